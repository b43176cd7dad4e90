"""A result, its candidates without the wrong labels, and the best of them as a model on disk."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from safetensors import SafetensorError

import memloc
from memloc.api.experiments import PREPARE
from memloc.api.result import Result, load
from memloc.config import Candidate, Engine, Localisation, Repair, Run
from memloc.data.task import Task, input_columns
from memloc.engine.complete import complete_localisation, complete_run
from memloc.engine.job import one_thread
from memloc.engine.progress import Progress
from memloc.engine.repair import Examined, carry_out
from memloc.engine.store.store import Store, library_versions
from memloc.errors import ConfigError, MemlocError, StoreError, cannot_write
from memloc.models.load import Classifier, quiet
from memloc.models.names import ModelSource, find_known
from memloc.report.page_data import command_of
from memloc.report.repair import exam_figure, model_card
from memloc.report.repair_page import repair_page
from memloc.results.folders import check_folder
from memloc.results.repair import Exams, summarise_repair, windows_of
from memloc.tables import ARTEFACTS, REPORT

CARD, PICTURE, TABLE, ABOUT = "README.md", "exam.png", "exam.parquet", "repair.json"


@dataclass(frozen=True, repr=False, eq=False)
class Repaired:
    """What a repair found and wrote.

    Attributes:
        exam: One row per candidate and measure.
        summary: The findings as JSON data.
        folder: The model, with its card.
    """

    exam: pd.DataFrame
    summary: dict[str, Any]
    folder: Path

    @property
    def candidate(self) -> Candidate:
        """The candidate that was written."""
        name: Candidate = self.summary["candidate"]
        return name

    def __repr__(self) -> str:
        """The findings in sentences."""
        words = [f"memloc repair: {self.candidate} in {str(self.folder)!r}"]
        return "\n  ".join([*words, *self.summary["findings"]])


def repair_result(
    given: Result | str | Path,
    out: Path,
    settings: Repair,
    engine: Engine,
    progress: Progress,
) -> Repaired:
    """Make all candidates, examine them, and write one.

    Args:
        given: A result, or its folder.
        out: A new folder for the model.
        settings: Which seed and which candidate.
        engine: How jobs run.
        progress: Where to show how far it is.

    Raises:
        MemlocError: If the result cannot be repaired, or the model cannot be written.
    """
    result = given if isinstance(given, Result) else load(given)
    folder, config = _folder_of(result), _config_of(result)
    store = _store_of(folder, isinstance(config, Localisation))
    _check_new(out, [folder, store.root, *_model_folders(config)])
    seeds = config.seeds if isinstance(config, Run) else (config.seed,)
    seed = seeds[0] if settings.seed is None else settings.seed
    if seed not in seeds:
        there = ", ".join(map(str, seeds))
        raise ConfigError(
            "the result has no such seed", setting="seed", value=seed, remedy=f"it has {there}"
        )
    n_layers = int(result.summary["layers"])
    of_seed = seed if isinstance(config, Run) else None
    windows = windows_of(result.tables, of_seed, n_layers)
    with one_thread():
        prepare = PREPARE[type(config)]
        examined = carry_out(
            prepare, config, folder, seed, windows, store, engine, settings, progress
        )
        exams = Exams(examined.table, n_layers)
        chosen = settings.candidate or exams.best
        summary = {
            "memloc": memloc.__version__,
            "model": examined.source.name if isinstance(config, Run) else result.summary["model"],
            "task": examined.task.name,
            "noise": examined.task.noise,
            "suspects": int(examined.task.train["noisy"].sum()),
            "kept": int((~examined.task.train["noisy"]).sum()),
            "result": str(folder),
            "seed": seed,
            "made_by": command_of(result.settings, isinstance(config, Run), folder),
            "command": _command(folder, out, seed, settings),
            **summarise_repair(exams, chosen, examined.plan.left_out, examined.task.noise),
            "failures": examined.failures,
            "settings": result.settings,
            "versions": library_versions(),
        }
        _write(out, examined, chosen, store, config, summary)
    about = {"folder": str(out), "jobs": examined.jobs, "job_seconds": examined.seconds}
    return Repaired(examined.table, {**summary, **about}, out)


def _folder_of(result: Result) -> Path:
    """Where the result is, if its models can be found again.

    Raises:
        MemlocError: If not.
    """
    if result.of_control:
        raise MemlocError(
            "results of `memloc control` are of many models, and are not repaired",
            remedy="give a result of `memloc run` or `memloc localise`",
        )
    if result.settings.get("in_memory") or result.folder is None:
        raise MemlocError(
            "the models of this result were in memory, so they cannot be found again",
            remedy="save them with save_pretrained, and use `memloc localise`",
        )
    if not (result.folder / ARTEFACTS).is_file():
        raise MemlocError(
            f"{str(result.folder)!r} has no {ARTEFACTS}, which says where its models are",
            remedy="give the folder that `memloc run` or `memloc localise` wrote",
        )
    return result.folder


def _store_of(folder: Path, of_given_models: bool) -> Store:
    """The store of a result: `localise` has its own, but not after an import from elsewhere."""
    own, shared = folder / "store", Path(os.path.normpath(folder / "..")) / "store"
    there = [place for place in (own, shared) if place.is_dir()]
    return Store((there or ([own] if of_given_models else [shared]))[0])


def _config_of(result: Result) -> Run | Localisation:
    """The settings of a result.

    Raises:
        MemlocError: If they are those of another version, or of a head that is no ordinary one.
    """
    localised = "memorised" in result.settings
    try:
        complete = complete_localisation if localised else complete_run
        config = complete(result.settings)
    except ConfigError as error:
        raise MemlocError(
            f"the settings of {str(result.folder)!r} are not possible in this version: {error}"
        ) from None
    if isinstance(config, Run) and config.model.head == "paper":
        raise MemlocError(
            "the model has the head of the authors' program, which ordinary Hugging Face models do "
            "not have, so that a repaired one could not be loaded",
            remedy="make the result again with `--model.head own`",
        )
    return config


def _model_folders(config: Run | Localisation) -> list[Path]:
    """Folders of the user in which nothing may be written."""
    names = (
        [config.model.name]
        if isinstance(config, Run)
        else [config.memorised, config.original, config.pretrained, config.near_ceiling]
    )
    places = [Path(os.path.expanduser(name)) for name in names if name is not None]
    return [place for place in places if place.is_dir()]


def _check_new(out: Path, others: Iterable[Path]) -> None:
    """Fail before any work if the model could not be written.

    Raises:
        StoreError: If there is something already, or the folder is inside one of the others.
    """
    check_folder(out)
    # Hidden files are of the system, or of a repair that was interrupted.
    if out.is_dir() and any(not path.name.startswith(".") for path in out.iterdir()):
        raise StoreError(
            f"{str(out)!r} is not empty", remedy="give a new folder for the repaired model"
        )
    for other in others:
        if out.resolve().is_relative_to(other.resolve()):
            raise StoreError(
                f"{str(out)!r} is inside {str(other)!r}, in which nothing is changed",
                remedy="give another folder for the repaired model",
            )


def _command(folder: Path, out: Path, seed: int, settings: Repair) -> str:
    words = ["memloc", "repair", str(folder), "--out", str(out), "--seed", str(seed)]
    if settings.candidate is not None:
        words += ["--candidate", settings.candidate]
    return shlex.join(words)


def _write(
    out: Path,
    examined: Examined,
    chosen: Candidate,
    store: Store,
    config: Run | Localisation,
    summary: dict[str, Any],
) -> None:
    """The model, its card and its exam; the config, without which it is no model, comes last.

    Raises:
        StoreError: If it cannot be written.
    """
    from memloc.engine.compute import forget_context, repaired

    classifier, _ = repaired(examined.plan.candidates[chosen].exam, store)
    aside = out / f".writing-{uuid.uuid4().hex[:6]}"
    model: Any = classifier.blocks.model
    try:
        aside.mkdir(parents=True)
        with quiet():
            model.save_pretrained(aside)
            classifier.codec.tokenizer.save_pretrained(aside)
        examined.table.to_parquet(aside / TABLE, index=False)
        (aside / PICTURE).write_bytes(exam_figure(summary))
        card = model_card(
            summary, _hub_name(examined.source), _inputs(classifier, examined.task, config)
        )
        about = json.dumps(summary, indent=1, ensure_ascii=False)
        texts = {CARD: card, ABOUT: about, REPORT: repair_page(summary)}
        for name, text in texts.items():
            (aside / name).write_text(text, encoding="utf-8", errors="backslashreplace")
        for file in sorted(aside.iterdir(), key=lambda file: file.name == "config.json"):
            os.replace(file, out / file.name)
    except (OSError, SafetensorError) as error:
        raise cannot_write(out, error) from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        forget_context()


def _hub_name(source: ModelSource) -> str | None:
    """The name of a model on the hub, if it is there."""
    known = find_known(source.name)
    if known is not None:
        return known.hub
    return None if source.revision is None else source.location


def _inputs(classifier: Classifier, task: Task, config: Run | Localisation) -> list[str]:
    """Python that encodes texts the way the model has read them."""
    parts, codec = input_columns(task.train), classifier.codec
    limit = f'padding=True, truncation=True, max_length={codec.max_tokens}, return_tensors="pt"'
    if len(parts) == 1:
        return ['texts = ["a text"]', f"batch = tokenizer(texts, {limit})"]
    examples = [f'"its {part}"' for part in parts]
    if config.model.pair_format == "native" and len(parts) == 2:
        first, second = examples
        lists = f"texts, others = [{first}], [{second}]"
        return [lists, f"batch = tokenizer(texts, others, {limit})"]
    joint = json.dumps(f" {codec.separator} ", ensure_ascii=False)
    joined = f"texts = [{joint}.join([{', '.join(examples)}])]"
    return [joined, f"batch = tokenizer(texts, {limit})"]
