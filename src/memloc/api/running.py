"""`memloc.run`: the whole experiment."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from memloc import config
from memloc.api.arguments import Techniques, as_arguments, group_of, path_of, progress_of
from memloc.api.result import Result
from memloc.api.tabular import Data, as_frame, run_table
from memloc.config import Columns, Device, Engine, Generalisation, Model, Training, Windows
from memloc.engine.progress import Progress
from memloc.errors import DataError, StoreError

if TYPE_CHECKING:
    pass


def run(
    model: str | Path | Model = "minilm",
    task: Data = "questions",
    *,
    texts: Sequence[str] | None = None,
    text_pairs: Sequence[str] | None = None,
    labels: Sequence[Any] | None = None,
    original_labels: Sequence[Any] | None = None,
    validation: Data | None = None,
    data: config.Data | Mapping[str, Any] | None = None,
    training: Training | Mapping[str, Any] | None = None,
    seeds: int | str | Sequence[int] = 1,
    techniques: Techniques | None = None,
    windows: Windows | Mapping[str, Any] | None = None,
    explain: bool | None = None,
    generalisation: bool | Generalisation | Mapping[str, Any] = False,
    checkpoints: int | str | None = None,
    device: Device = "auto",
    runs: str | Path = "runs",
    workers: int | None = None,
    cache_memory: str | int | None = None,
    low_memory: bool = False,
    progress: bool | Progress = True,
) -> Result:
    """Flip labels, fine-tune, and find the layers that hold the flipped labels.

    The same as `memloc run`, with the same numbers. What was computed before is reused; after an
    interruption, the same call goes on. `memloc settings` lists all settings.

    Args:
        model: A name from `memloc models list`, a hub name, a directory, or a `memloc.Model`.
        task: A built-in task, a task of the paper, a file, a data frame, a `datasets.Dataset`,
            lists by column name, or a list of dicts.
        texts: With `labels`, instead of a task: one text per example.
        text_pairs: Second texts.
        labels: One label per example.
        original_labels: The correct labels, if the noise is known.
        validation: Validation examples; by default a fifth of the others is set aside.
        data: Columns, number of examples, label noise: a `memloc.Data`, or a dict of its settings.
        training: A `memloc.Training`, or a dict; what it does not say is what suits the model.
        seeds: Model seeds.
        techniques: Names or techniques with their settings, such as
            `["swapping", memloc.Retraining(epochs=3)]`; None takes the usual four.
        windows: Which windows of layers are changed: a `memloc.Windows`, or a dict.
        explain: Follow noisy examples through the layers; None: if it is possible.
        generalisation: Also train on random halves; a `memloc.Generalisation`, or a dict, says how.
        checkpoints: Epochs at which to look at the models on their way: how many, or `every_epoch`.
        device: Where to compute.
        runs: Folder for the store and the results.
        workers: Processes, each with one thread; None takes one per core.
        cache_memory: States a process keeps in memory, such as "2GB"; more go to a file.
        low_memory: Layers of θ_O stay in a file until they are needed.
        progress: Show how far it is.

    Example:
        >>> result = memloc.run(
        ...     "path/to/model", df[["text", "gold"]], data={"label_column": "gold", "noise": 0.2},
        ...     training=memloc.Training(epochs=1), techniques="swapping", explain=False, workers=1,
        ...     progress=False,
        ... )
        >>> result.techniques
        ('swapping',)

    Raises:
        MemlocError: If something that was given cannot be used.
    """
    from memloc.api.experiments import run as run_experiment
    from memloc.engine.complete import complete_run

    own_files: list[str] = []
    with as_arguments(own_files=own_files):
        engine = Engine(
            runs=path_of(runs, "runs"),
            workers=workers,
            cache_memory=cache_memory,
            low_memory=low_memory,
        )
        lists = {
            "text": texts, "text_pair": text_pairs, "label": labels,
            "original_label": original_labels,
        }  # fmt: skip
        given = group_of(config.Data, data, "data")
        columns = {name: given.get(name) for name in Columns.model_fields}
        place, columns, validation_file = _data(task, lists, validation, columns, engine.runs)
        if not isinstance(task, str | Path) or place != str(task):
            own_files.append(place)
        if not isinstance(validation, str | Path | None):
            own_files.append(str(validation_file))
        if validation_file is not None:
            given["validation"] = validation_file
        halves = generalisation
        if not isinstance(generalisation, bool):
            halves = group_of(Generalisation, generalisation, "generalisation")
        settings = complete_run(
            {
                "data": {**given, **columns, "task": place},
                "model": model.given() if isinstance(model, Model) else {"name": str(model)},
                "training": group_of(Training, training, "training"),
                "seeds": seeds,
                "techniques": techniques,
                "windows": group_of(Windows, windows, "windows"),
                "explain": explain,
                "generalisation": halves,
                "checkpoints": checkpoints,
                "device": device,
            }
        )
        return run_experiment(settings, engine, progress_of(progress))


def _data(
    task: Any,
    lists: dict[str, Any],
    validation: Any,
    columns: dict[str, str | None],
    runs: Path,
) -> tuple[str, dict[str, str | None], Path | None]:
    """The task as a name or a file, the columns that remain to be named, and the validation file.

    What is in memory becomes a file, so that the command line can repeat the run.
    """
    given = {name: values for name, values in lists.items() if values is not None}
    if given:
        if not isinstance(task, str) or task != "questions":
            raise DataError("both a task and lists of examples were given; give one of them")
        for name in ("text", "label"):
            if name not in given:
                raise DataError(f"{name}s are missing; give texts and labels, one per example")
        task = given
    in_memory = not isinstance(task, str | Path)
    wanted = [columns[f"{role}_column"] for role in ("text", "pair", "label", "original_label")]
    if validation is not None and not isinstance(validation, str | Path):
        frame = as_frame(validation, "validation")
        # Validation data need no original labels.
        known = [*wanted[:3], wanted[3] if wanted[3] in list(frame) else None]
        table = run_table(frame, known, "validation")
        validation = _write(table, runs)
        if not in_memory:
            raise DataError("validation in memory goes with a task in memory; give files for both")
    if not in_memory:
        return str(task), columns, None if validation is None else Path(validation)
    file = _write(run_table(task, wanted), runs)
    return str(file), dict.fromkeys(columns), None if validation is None else Path(validation)


def _write(table: pd.DataFrame, runs: Path) -> Path:
    text = table.to_json(orient="columns", force_ascii=False)
    name = hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()[:8]
    path = runs / "data" / f"data-{name}.parquet"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        table.to_parquet(path, index=False)
    except OSError as error:
        raise StoreError(
            f"cannot write the examples to {str(path)!r}: {error.strerror or error}; choose "
            "another folder with runs"
        ) from None
    return path
