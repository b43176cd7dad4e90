"""Analyse models that somebody has already trained (the engine of `memloc localise`)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import memloc
from memloc.analysis.windows import chosen_windows
from memloc.config import (
    DEFAULT_TECHNIQUES,
    ModelConfig,
    TechniqueSettings,
    TrainingConfig,
    Windows,
)
from memloc.data.encode import encode
from memloc.data.files import labelled_examples
from memloc.data.tables import read_table
from memloc.data.task import Task
from memloc.engine.experiment import check_failures, collect
from memloc.engine.local import LocalExecutor
from memloc.engine.plan import FROZEN_SEED, Planner, RunPlan
from memloc.engine.progress import Progress, Silent
from memloc.engine.store.store import Store
from memloc.engine.tasks import write_task
from memloc.errors import DataError, ModelError
from memloc.models.blocks import BlockModel
from memloc.models.load import Classifier, load_classifier
from memloc.models.names import resolve
from memloc.models.states import predict_logits
from memloc.results.folder import made_from
from memloc.results.summary import finish, summarise_methods
from memloc.techniques import (
    Circumstances,
    Technique,
    check_possible,
    check_unit,
    find,
    make_usable,
    possible_explanations,
)


@dataclass(frozen=True)
class Given:
    """Classifiers that somebody has fine-tuned.

    Attributes:
        memorised: θ_M2, trained on the labels in the data.
        original: θ_O, trained the same way on the original labels.
        pretrained: θ_P, which all techniques but swapping need.
        near_ceiling: θ_M1, when the labels had just been learned; None takes θ_M2.
    """

    memorised: ModelConfig
    original: ModelConfig
    pretrained: ModelConfig | None = None
    near_ceiling: ModelConfig | None = None


def possible_techniques(given: Given) -> tuple[str, ...]:
    """The usual techniques, as far as the models allow."""
    return tuple(
        name
        for name in DEFAULT_TECHNIQUES
        if given.pretrained or not _need_pretrained(find(name).needs)
    )


def localise_folders(
    given: Given,
    data: Path,
    techniques: TechniqueSettings | None = None,
    columns: dict[str, str | None] | None = None,
    *,
    training: TrainingConfig | None = None,
    windows: Windows | None = None,
    seed: int = 1,
    device: str = "cpu",
    work: Path | None = None,
    workers: int = 1,
    cache_memory: int | None = None,
    low_memory: bool = False,
    progress: Progress | None = None,
    explain: bool | None = None,
    used: list[tuple[str, str]] | None = None,
) -> tuple[dict[str, Any], dict[str, pd.DataFrame]]:
    """Localise what one fine-tuned classifier stores and its twin does not.

    Args:
        given: The models.
        data: File with text, optional text_pair, label (as trained) and original_label.
        techniques: To apply, with their settings; None takes the usual ones that the models allow.
        columns: Names of the columns, if they are not the usual ones (see `labelled_examples`).
        training: How windows are retrained and a head is put on θ_P; input length and precision.
        windows: Which windows of layers are changed.
        seed: For the clean examples to compare with, and for retraining.
        device: Where to compute.
        work: Folder that keeps finished parts, so that the same call goes on after an interruption;
            None keeps nothing.
        workers: Processes, each with one thread.
        cache_memory: Bytes of states that a process keeps in memory; more go to a file.
        low_memory: Keep the layers of θ_O in a file until they are needed; same results.
        progress: Where to show how far it is.
        explain: Whether to follow noisy examples through the layers; None: if it is possible.
        used: Gets the kinds and keys of what the result was made from, in the store `work`.

    Returns:
        A summary and the tables.

    Raises:
        MemlocError: If the models do not fit each other or the data.
    """
    if techniques is None:
        techniques = {name: {} for name in possible_techniques(given)}
    training, windows = training or TrainingConfig(), windows or Windows()
    chosen, broken = make_usable(techniques)
    for sentence in broken:
        (progress or Silent()).note(sentence)
    for technique in chosen:
        if given.pretrained is None and _need_pretrained(technique.needed):
            raise ModelError(
                f"{technique.name} needs the model before fine-tuning; give it with --pretrained, "
                "or leave the technique out"
            )
    checked = _check(given, data, columns, chosen, training, device)
    there = Circumstances(checked.task.train, checked.pooling)
    explanations, unexplained = possible_explanations(explain, there, techniques)
    chosen_windows(checked.n_layers, windows.sizes)
    check_unit(chosen, windows.unit, checked.unit_problem)
    with ExitStack() as stack:
        root = work or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store = Store(root)
        store.check_writable()
        sources = {
            role: resolve(config)
            for role, config in {
                "memorised": given.memorised,
                "near_ceiling": given.near_ceiling or given.memorised,
                "original": given.original,
            }.items()
        }
        pretrained = given.pretrained or given.memorised
        planner = Planner(
            write_task(store, checked.task),
            pretrained,
            resolve(pretrained),
            training,
            windows,
            checked.n_layers,
            {"device": device, "cache_memory": cache_memory, "low_memory": low_memory},
            sources,
        )
        frozen = planner.train("frozen", FROZEN_SEED, "a head on the pre-trained model")
        jobs = planner.seed_jobs(chosen, explanations, seed, {"frozen": frozen.artefact})
        needs_frozen = any("frozen" in technique.needed for technique in chosen)
        plan = RunPlan(frozen if needs_frozen else None, (jobs,))
        executor = stack.enter_context(LocalExecutor(store, workers))
        outcome = executor.execute(plan.jobs, progress or Silent())
        failures = check_failures(plan, plan.jobs, outcome)
        tables = collect(plan, store, checked.task)
        if used is not None:
            used += made_from(plan.jobs, store)
    tables = {name: table.drop(columns="seed") for name, table in tables.items()}
    noisy = int(checked.task.train["noisy"].sum())
    summary: dict[str, Any] = {
        "memloc": memloc.__version__,
        "model": checked.architecture,
        "classes": list(checked.task.labels),
        "layers": checked.n_layers,
        "examples": len(checked.task.train),
        "noisy_examples": noisy,
        "memorised_examples": checked.memorised,
        "memorised_share": checked.memorised / noisy,
        "methods": summarise_methods(tables, chosen, windows),
        "failures": [*broken, *failures],
        "near_ceiling_known": given.near_ceiling is not None,
    }
    finish(summary, tables, unexplained)
    return summary, tables


def _need_pretrained(needs: Iterable[str]) -> bool:
    return any(need.endswith(("pretrained", "frozen")) for need in needs)


@dataclass(frozen=True)
class _Checked:
    """What was found when the models were looked at."""

    task: Task
    n_layers: int
    architecture: str
    pooling: str
    unit_problem: str | None
    memorised: int
    """Noisy examples that the memorised model answers with the wrong label."""


def _check(
    given: Given,
    data: Path,
    columns: dict[str, str | None] | None,
    techniques: Sequence[Technique],
    training: TrainingConfig,
    device: str,
) -> _Checked:
    """Load everything once and see whether it fits together, before any work."""
    examples = labelled_examples(read_table(data), data, **(columns or {}), numbers=True)
    if "original_label" not in examples.columns:
        raise DataError(
            f"{data} has no column with the original labels; name it with --original-label-column"
        )
    first = _load(given.memorised, device, training.max_tokens)
    check_possible(techniques, Circumstances(pooling=first.blocks.pooling))
    examples = label_examples(examples, first.blocks, data)
    noisy = examples[examples["noisy"]]
    check_possible(techniques, Circumstances(examples))
    encoded = encode(noisy, first.codec, given.memorised.pair_format)
    answers = predict_logits(first.blocks, encoded, training.dtype).argmax(axis=1)
    checked = _Checked(
        Task(data.stem, "own", tuple(_names(first.blocks)), examples, examples.iloc[:0]),
        first.blocks.n_layers,
        type(first.blocks.model).__name__,
        first.blocks.pooling,
        first.blocks.unit_problem,
        int((answers == noisy["label"].to_numpy()).sum()),
    )
    facts = _Facts.of(first)
    del first  # models are large: one at a time
    for other in (given.original, given.near_ceiling, given.pretrained):
        if other is not None:
            new_head = other is given.pretrained
            n_labels = len(facts.class_names) if new_head else None
            theirs = _Facts.of(
                load_classifier(
                    resolve(other), other, n_labels=n_labels, max_tokens=training.max_tokens
                )
            )
            check_fit(facts, theirs, given.memorised.name, other.name, compare_names=not new_head)
    return checked


@dataclass(frozen=True)
class _Facts:
    """What models must have in common to exchange layers."""

    architecture: str
    n_layers: int
    class_names: list[str]
    shapes: dict[str, tuple[int, ...]]
    vocabulary: dict[str, int]

    @classmethod
    def of(cls, classifier: Classifier) -> _Facts:
        blocks = classifier.blocks
        return cls(
            type(blocks.model).__name__,
            blocks.n_layers,
            _names(blocks),
            {key: tuple(value.shape) for key, value in blocks.model.named_parameters()},
            classifier.codec.tokenizer.get_vocab(),
        )


def label_examples(examples: pd.DataFrame, model: BlockModel, data: Path) -> pd.DataFrame:
    """Turn labels as written into the model's class numbers; mark the noisy examples.

    Raises:
        DataError: If the model has no such class, or no label is wrong.
    """
    numbered = examples.copy()
    for column in ("label", "original_label"):
        numbered[column] = class_numbers(examples[column], model, column, data)
    numbered["noisy"] = numbered["label"] != numbered["original_label"]
    if not numbered["noisy"].any():
        raise DataError(
            f"no label in {data} differs from its original label, so there is nothing to localise; "
            "the column 'label' must hold the labels the model was trained on"
        )
    return numbered


def class_numbers(
    labels: Iterable[str | int], model: BlockModel, column: str, data: Path | str
) -> np.ndarray:
    """Labels as the model's class numbers: whole numbers are these, texts are names (`id2label`).

    A text that is no name may be a number in digits, as in a CSV file; but not if the model has
    names in digits that are not their numbers, as `{0: "1", 1: "2"}`: there "1" must mean the same
    whichever labels occur beside it.

    Args:
        labels: As `labelled_examples` leaves them, if numbers stay numbers.
        model: Whose config has the names.
        column: What to call the labels in messages.
        data: What to call the data.

    Raises:
        DataError: If the model has no such class.
    """
    names = _names(model)
    ids: dict[str | int, int] = {index: index for index in range(len(names))}
    if not any(name.isdecimal() and int(name) != index for index, name in enumerate(names)):
        ids |= {str(index): index for index in range(len(names))}
    ids |= {name: index for index, name in enumerate(names)}
    found = []
    for row, label in enumerate(labels):
        if label not in ids:
            where = f"{column} {label!r} in row {row} of {data} (rows count from 0)"
            raise DataError(f"{where} {_no_class(label, names)}")
        found.append(ids[label])
    return np.array(found, dtype=np.int64)


def _no_class(label: str | int, names: list[str]) -> str:
    if isinstance(label, str):
        return f"is not a class of the model; its classes are: {', '.join(names)}"
    numbers = f"is not a class of the model, whose classes have the numbers 0 to {len(names) - 1}"
    if str(label) in names:
        return f"{numbers}; if it is the name {str(label)!r}, give all labels as texts"
    return f"{numbers} and the names {', '.join(names)}"


def _names(model: BlockModel) -> list[str]:
    config: Any = model.model.config
    return [str(config.id2label.get(index, index)) for index in range(_n_labels(model))]


def _n_labels(model: BlockModel) -> int:
    config: Any = model.model.config
    return int(config.num_labels)


def check_fit(
    one: _Facts, other: _Facts, name: str, other_name: str, *, compare_names: bool = True
) -> None:
    """Two models can exchange layers only if all their parameters have the same shape.

    Raises:
        ModelError: Naming the first difference.
    """
    facts: dict[str, tuple[Any, Any]] = {
        "architecture": (one.architecture, other.architecture),
        "number of layers": (one.n_layers, other.n_layers),
        "number of classes": (len(one.class_names), len(other.class_names)),
    }
    if compare_names:
        facts["list of class names"] = (one.class_names, other.class_names)
    for key in one.shapes | other.shapes:
        facts[f"shape of {key}"] = (one.shapes.get(key, "none"), other.shapes.get(key, "none"))
    for what, (mine, theirs) in facts.items():
        if mine != theirs:
            raise ModelError(
                f"the models do not fit each other: {what} is {mine} in {name!r} but {theirs} in "
                f"{other_name!r}; give models that were fine-tuned from the same one"
            )
    if one.vocabulary != other.vocabulary:
        raise ModelError(
            f"the tokenisers of {name!r} and {other_name!r} have different vocabularies; "
            "give two models fine-tuned from the same one"
        )


def _load(config: ModelConfig, device: str, max_tokens: int) -> Classifier:
    return load_classifier(
        resolve(config), config, n_labels=None, device=device, max_tokens=max_tokens
    )
