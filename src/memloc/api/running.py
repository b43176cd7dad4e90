"""`memloc.run`: the whole experiment."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from memloc.api.arguments import (
    bytes_of,
    checked_workers,
    names_of,
    path_of,
    progress_of,
    seeds_of,
    sizes_of,
    spoken,
    techniques_of,
)
from memloc.api.result import Result
from memloc.api.tabular import Data, as_frame, run_table
from memloc.config import (
    DEFAULT_TECHNIQUES,
    DataConfig,
    Device,
    Dtype,
    GeneralisationConfig,
    ModelConfig,
    Norm,
    Objective,
    PairFormat,
    RetrainedTail,
    RunConfig,
    TrainingConfig,
    Unit,
    Windows,
)
from memloc.engine.progress import Progress
from memloc.errors import DataError, MemlocError, StoreError


def run(
    model: str | Path = "minilm",
    task: Data = "questions",
    *,
    texts: Sequence[str] | None = None,
    text_pairs: Sequence[str] | None = None,
    labels: Sequence[Any] | None = None,
    original_labels: Sequence[Any] | None = None,
    data_dir: str | Path | None = None,
    validation: Data | None = None,
    text_column: str | None = None,
    pair_column: str | None = None,
    label_column: str | None = None,
    original_label_column: str | None = None,
    limit: int | None = None,
    binarise: bool = False,
    noise: float = 0.15,
    data_seed: int = 1,
    blocks: str | None = None,
    pairs: PairFormat = "joined",
    trust_remote_code: bool = False,
    max_tokens: int | None = None,
    seeds: int | str | Sequence[int] = 1,
    epochs: int | None = None,
    learning_rate: float | None = None,
    batch_size: int | None = None,
    micro_batch_size: int | None = None,
    dtype: Dtype = "float32",
    device: Device = "auto",
    methods: str | Sequence[str] = DEFAULT_TECHNIQUES,
    window_sizes: int | str | Sequence[int] | None = None,
    unit: Unit = "layer",
    retrain_epochs: int = 5,
    retrain_tail: RetrainedTail = "norm+head",
    frozen_dropout: bool = False,
    gradient_objective: Objective = "nll",
    gradient_norm: Norm = "L1",
    keep_clean: bool = False,
    undivided: bool = False,
    per_example: bool = False,
    probe_seeds: int = 5,
    probe_epochs: int = 100,
    shapley_error: float = 0.01,
    shapley_orders: int = 400,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    cache_memory: str | int = "1GB",
    low_memory: bool = False,
    explain: bool | None = None,
    checkpoints: int | str | None = None,
    generalisation: bool = False,
    splits: int = 30,
    split_epochs: int = 10,
    split_rate: float | None = None,
    stop_at_error: float | None = None,
    runs: str | Path = "runs",
    workers: int | None = None,
    progress: bool | Progress = True,
) -> Result:
    """Flip labels, fine-tune, and find the layers that hold the flipped labels.

    The same as `memloc run`, with the same numbers: every argument is an option there. What was
    computed before is reused; after an interruption, the same call goes on.

    Args:
        model: A name from `memloc models list`, a hub name, or a directory.
        task: A built-in task, a task of the paper, a file, a data frame, a `datasets.Dataset`,
            lists by column name, or a list of dicts.
        texts: With `labels`, instead of a task: one text per example.
        text_pairs: Second texts.
        labels: One label per example.
        original_labels: The correct labels, if the noise is known.
        data_dir: Folder with local copies of the paper tasks.
        validation: Validation examples; by default a fifth of the others is set aside.
        text_column: Column with the text.
        pair_column: Column with a second text.
        label_column: Column with the label.
        original_label_column: Correct labels, if the noise is known.
        limit: Training examples to use (stratified).
        binarise: Keep only the two most frequent classes.
        noise: Share of the labels to flip.
        data_seed: Decides whose label flips.
        blocks: Path of the layer stack, if it is ambiguous.
        pairs: joined: one text with a separator (the paper); native: the tokeniser's way.
        trust_remote_code: Run code that a hub model brings along.
        max_tokens: Longer texts are cut.
        seeds: Model seeds.
        epochs: Passes over the data; None takes what suits the model, also for the next two.
        learning_rate: Peak learning rate.
        batch_size: Examples per step.
        micro_batch_size: Accumulate gradients in parts of this size.
        dtype: Of matrix products; weights stay float32.
        device: Where to compute.
        methods: Techniques.
        window_sizes: Sizes of the windows to change; None takes all.
        unit: What of a layer is changed: all of it, its `attention`, or the rest, its `mlp`.
        retrain_epochs: Passes over the clean data per window.
        retrain_tail: What learns beside the window.
        frozen_dropout: Dropout in frozen layers too.
        gradient_objective: What is differentiated.
        gradient_norm: Norm per layer.
        keep_clean: Do not subtract the gradient of clean examples.
        undivided: Do not divide by the norm in the frozen model.
        per_example: Also gradient weights of every noisy example.
        probe_seeds: Probes per layer.
        probe_epochs: Passes over the states.
        shapley_error: Standard error of Shapley values to stop at.
        shapley_orders: Orders of the layers to draw at most.
        options: Of techniques of other packages, by name (`--set`).
        cache_memory: States a process keeps in memory; more go to a file.
        low_memory: Layers of θ_O stay in a file until needed.
        explain: Follow noisy examples through the layers; None: if it is possible.
        checkpoints: Epochs at which to look at the models on their way: how many, or `every_epoch`.
        generalisation: Also train on random halves.
        splits: Random halves.
        split_epochs: Passes over each half.
        split_rate: Learning rate on halves.
        stop_at_error: No more halves once the standard error of the score is below this.
        runs: Folder for the store and the results.
        workers: Processes, each with one thread; None takes one per core.
        progress: Show how far it is.

    Example:
        >>> result = memloc.run(
        ...     "path/to/model", df[["text", "gold"]], label_column="gold", noise=0.2, epochs=1,
        ...     methods="swapping", explain=False, workers=1, progress=False,
        ... )
        >>> result.techniques
        ('swapping',)

    Raises:
        MemlocError: If something that was given cannot be used.
    """
    from memloc.api.experiments import run as run_experiment
    from memloc.models.names import known_training

    files: dict[str, str] = {}
    with spoken(files):
        techniques = techniques_of(locals(), names_of(methods))
        windows = Windows.make(sizes=sizes_of(window_sizes), unit=unit)
        folder, processes = path_of(runs, "runs"), checked_workers(workers)
        halves = GeneralisationConfig.make(
            splits=splits,
            epochs=split_epochs,
            learning_rate=split_rate,
            standard_error=stop_at_error,
        )
        if not generalisation and halves != GeneralisationConfig():
            raise MemlocError(
                "splits, split_epochs, split_rate and stop_at_error have no effect without "
                "generalisation=True; add it, or leave them out"
            )
        memory = bytes_of(cache_memory)
        lists = {
            "text": texts, "text_pair": text_pairs, "label": labels,
            "original_label": original_labels,
        }  # fmt: skip
        columns = {
            "text_column": text_column, "pair_column": pair_column,
            "label_column": label_column, "original_label_column": original_label_column,
        }  # fmt: skip
        data, columns, validation_file = _data(task, lists, validation, columns, folder)
        # The user knows nothing of the files that data in memory are written to.
        if not isinstance(task, str | Path) or data != str(task):
            files[data] = "task"
        if not isinstance(validation, str | Path | None):
            files[str(validation_file)] = "validation"
        config = RunConfig.make(
            data=DataConfig.make(
                task=data,
                data_dir=None if data_dir is None else path_of(data_dir, "data_dir"),
                validation=validation_file,
                **columns,
                limit=limit,
                binarise=binarise,
                noise=noise,
                seed=data_seed,
            ),
            model=ModelConfig.make(
                name=str(model),
                blocks=blocks,
                pair_format=pairs,
                trust_remote_code=trust_remote_code,
            ),
            training=TrainingConfig.make(**known_training(str(model))).replace(
                epochs=epochs,
                learning_rate=learning_rate,
                batch_size=batch_size,
                micro_batch_size=micro_batch_size,
                max_tokens=max_tokens,
                dtype=dtype,
            ),
            seeds=seeds_of(seeds),
            techniques=techniques,
            windows=windows,
            explain=explain,
            checkpoints=checkpoints,
            generalisation=halves if generalisation else None,
            device=device,
        )
        return run_experiment(
            config,
            folder,
            processes,
            progress_of(progress),
            cache_memory=memory,
            low_memory=low_memory,
        )


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
