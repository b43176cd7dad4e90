"""`memloc.audit`: which labels are likely wrong, in a file or in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

import memloc
from memloc import config
from memloc.api.functions import as_arguments, as_files, as_progress, given_settings
from memloc.api.in_memory import Data
from memloc.config import Audit, Device, Engine, Model, Training
from memloc.data.files import LABEL_NAME_COLUMN, choose_columns, read_table
from memloc.data.load import named_tasks
from memloc.engine.audit import Audited, audit_labels
from memloc.engine.complete import complete_audit
from memloc.engine.inputs import working
from memloc.engine.job import Artefact, one_thread
from memloc.engine.progress import Progress
from memloc.engine.store.store import Store
from memloc.errors import cannot_write
from memloc.report.audit_page import write_audit_page
from memloc.results.folders import check_folder, write_results
from memloc.tables import REPORT
from memloc.text import write_whole

CORRECTED = "corrected.csv"
OUT_OF_SAMPLE = "out_of_sample"


@dataclass(frozen=True)
class Labels:
    """What an audit found.

    Attributes:
        labels: One row per example: see docs/results.md.
        summary: How many labels are likely wrong, and what the audit was made of, as JSON data.
        settings: What was asked for, as JSON data.
        out_of_sample: Probability of every class by models that did not see the example, in the
            order of the rows; the columns are the classes in the order that cleanlab expects. None
            without half-splits.
        corrected: The user's file: suspects have the suggested label, and the columns
            `given_label` and `suspect` are added. Of data in memory, the texts and labels alone.
        folder: Where all this is; None if it was not written.
    """

    labels: pd.DataFrame
    summary: dict[str, Any]
    settings: dict[str, Any] = field(repr=False)
    out_of_sample: pd.DataFrame | None = field(repr=False)
    corrected: pd.DataFrame = field(repr=False)
    folder: Path | None = None

    @property
    def suspects(self) -> pd.DataFrame:
        """The labels that are likely wrong, the most suspicious first."""
        found = self.labels[self.labels["suspect"]]
        return found.sort_values("rank").reset_index(drop=True)

    def report(self, path: str | Path) -> Path:
        """Write the page to go through the labels, one HTML file that needs nothing else.

        Raises:
            MemlocError: If it cannot be written.
        """
        return write_audit_page(self.labels, self.summary, Path(path))


def audit(
    data: Data,
    model: str | Path | Model = "minilm",
    *,
    columns: config.Data | Mapping[str, Any] | None = None,
    training: Training | Mapping[str, Any] | None = None,
    splits: int = 2,
    seed: int = 1,
    device: Device = "auto",
    out: str | Path | None = None,
    runs: str | Path = "runs",
    workers: int | None = None,
    progress: bool | Progress = True,
) -> Labels:
    """Rank the labels of a data set by how likely they are wrong; none is flipped.

    A model is trained on the labels as they are. How it learned each label, and what models of
    random halves say about the examples they did not see, tells which labels to doubt.

    Args:
        data: As for `memloc.run`: a file, a data frame, a `datasets.Dataset` or lists.
        model: A name from `memloc models list`, a hub name, a directory, or a `memloc.Model`.
        columns: Names of columns, number of examples: a `memloc.Data`, or a dict of its settings.
        training: A `memloc.Training`, or a dict; what it does not say is what suits the model.
        splits: Models of random halves, in pairs; 0: none, which saves a third of the time.
        seed: Decides the new head, and the order of the examples.
        device: Where to compute.
        out: Folder for the tables, the corrected CSV file and the page; None writes nothing.
        runs: Folder for the store, if there is no `out`.
        workers: Processes, each with one thread; None takes one per core.
        progress: Show how far it is.

    Raises:
        MemlocError: If something that was given cannot be used.
    """
    with as_arguments({"data.task": "data", "model.name": "model"}):
        engine = Engine(runs=runs, workers=workers)
        given = given_settings(columns, "columns")
        if isinstance(data, str | Path):
            given["task"] = str(data)
        else:
            given = as_files({**given, "task": data}, Path(out or runs) / "data")
        settings = {
            "data": given,
            "model": model if isinstance(model, Model) else {"name": str(model)},
            "training": training,
            "splits": splits,
            "seed": seed,
            "device": device,
        }
        asked = complete_audit({k: v for k, v in settings.items() if v is not None})
        return carry_out(asked, engine, as_progress(progress), None if out is None else Path(out))


def carry_out(
    settings: Audit, engine: Engine, progress: Progress, out: Path | None = None
) -> Labels:
    """Audit labels; whatever is already in the store is not computed again.

    Args:
        settings: What to do.
        engine: How jobs run.
        progress: Where to show how far it is.
        out: Folder for the result and its own store; without it, the store is in `engine.runs`.

    Raises:
        MemlocError: If something the user gave cannot be used; nothing is lost then.
    """
    if out is not None:
        check_folder(out)
    store = Store((out or engine.runs) / "store")
    with one_thread(), working(store, engine, settings.device, progress, hold_out=False) as inputs:
        found = audit_labels(settings, inputs)
    result = _result(settings, found)
    if out is None:
        return result
    return _write(result, found.artefacts, out)


def _result(settings: Audit, found: Audited) -> Labels:
    task = found.task
    summary = {
        "memloc": memloc.__version__,
        "name": task.name,
        "model": settings.model.name,
        "examples": len(found.labels),
        "classes": list(task.labels),
        "suspects": int(found.labels["suspect"].sum()),
        "wrong": found.wrong and found.wrong._asdict(),
        "epochs": found.epochs,
    }
    unseen = None
    if found.out_of_sample is not None:
        unseen = pd.DataFrame(found.out_of_sample, columns=list(task.labels))
        unseen = unseen[sorted(unseen.columns)]
    return Labels(
        found.labels,
        summary,
        {"audit": settings.model_dump(mode="json")},
        unseen,
        _corrected(settings, found.labels),
    )


def _corrected(settings: Audit, labels: pd.DataFrame) -> pd.DataFrame:
    """The user's columns with corrected labels; of a task with a name, texts and labels."""
    data = settings.data
    correct = labels["suggested_label"].where(labels["suspect"], labels["label"])
    given = labels["label"]
    if data.task in named_tasks():
        front = ("row", "word", "text", "text_pair")
        table = labels[[name for name in front if name in labels]].copy()
        column = "label"
    else:
        whole = read_table(data.task)
        named = {role: getattr(data, f"{role}_column") for role in ("text", "pair", "label")}
        column = choose_columns(whole, data.task, **named)["label"]
        table = whole.iloc[labels["row"]].reset_index(drop=True)
        given = table[column]
        written = dict(zip(labels["label"], given, strict=True))  # by name: classes may have names
        if LABEL_NAME_COLUMN in table:
            names = table[LABEL_NAME_COLUMN].astype(str).str.strip()
            if (names == labels["label"]).all():
                table[LABEL_NAME_COLUMN] = correct
        correct = correct.map(written)
    return table.assign(**{"given_label": given, "suspect": labels["suspect"], column: correct})


def _write(result: Labels, artefacts: list[Artefact], folder: Path) -> Labels:
    tables = {"labels": result.labels}
    if result.out_of_sample is not None:
        tables[OUT_OF_SAMPLE] = result.out_of_sample
    write_results(folder, tables, result.summary, result.settings, artefacts, page_follows=True)
    try:
        if result.out_of_sample is None:
            (folder / f"{OUT_OF_SAMPLE}.parquet").unlink(missing_ok=True)
        write_whole(folder / CORRECTED, result.corrected.to_csv(index=False))
    except OSError as error:
        raise cannot_write(folder, error) from None
    result.report(folder / REPORT)
    return replace(result, folder=folder)
