"""Models that somebody has already trained (the engine of `memloc localise`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from memloc.analysis.windows import chosen_windows
from memloc.config import (
    DEFAULT_TECHNIQUES,
    ModelConfig,
    TechniqueSettings,
    TrainingConfig,
    Windows,
)
from memloc.data.encode import encode
from memloc.data.files import labelled_examples, read_table
from memloc.data.task import Task
from memloc.engine.experiment import (
    Findings,
    Planned,
    Prepared,
    check_failures,
    collect,
    describe,
    made_from,
)
from memloc.engine.input_cache import InputCache
from memloc.engine.job import Job, write_task
from memloc.engine.loop import Executor, Outcome
from memloc.engine.plan import FROZEN_SEED, Planner, RunPlan
from memloc.engine.progress import Progress
from memloc.engine.store.store import Store
from memloc.errors import DataError, ModelError
from memloc.models.blocks import BlockModel
from memloc.models.load import Classifier, load_classifier
from memloc.models.names import resolve
from memloc.models.states import predict_logits
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


def _need_pretrained(needs: Iterable[str]) -> bool:
    return any(need.endswith(("pretrained", "frozen")) for need in needs)


@dataclass(frozen=True)
class GivenModels:
    """What `memloc localise` is asked for.

    Attributes:
        given: The models.
        data: File with text, optional text_pair, label (as trained) and original_label.
        techniques: To apply, with their settings; None takes the usual ones that the models allow.
        columns: Names of the columns, if they are not the usual ones (see `labelled_examples`).
        training: How windows are retrained and a head is put on θ_P; input length and precision.
        windows: Which windows of layers are changed.
        seed: For the clean examples to compare with, and for retraining.
        explain: Whether to follow noisy examples through the layers; None: if it is possible.
        settings: All of this as JSON data, as the user gave it.
    """

    given: Given
    data: Path
    techniques: TechniqueSettings | None = None
    columns: dict[str, str | None] | None = None
    training: TrainingConfig = field(default_factory=TrainingConfig)
    windows: Windows = field(default_factory=Windows)
    seed: int = 1
    explain: bool | None = None
    settings: dict[str, Any] | None = None


@dataclass(frozen=True)
class PreparedGiven(Prepared):
    """Models that fit each other and the data.

    Attributes:
        config: What was asked for.
        techniques: Those that can be imported.
        broken: Sentences on those that cannot.
        task: The examples.
        n_layers: Of the models.
        architecture: Their class.
        memorised: Noisy examples that the memorised model answers with the wrong label.
        explanations: Those that are possible.
        unexplained: Sentences on the others.
    """

    config: GivenModels
    techniques: list[Technique]
    broken: list[str]
    task: Task
    n_layers: int
    architecture: str
    memorised: int
    explanations: list[Technique]
    unexplained: list[str]

    def plan(
        self,
        inputs: InputCache,
        executor: Executor,
        where: dict[str, Any],
        progress: Progress,
        label: str = "",
    ) -> PlannedGiven:
        """See `Prepared`."""
        config, given = self.config, self.config.given
        roles = {
            "memorised": given.memorised,
            "near_ceiling": given.near_ceiling or given.memorised,
            "original": given.original,
        }
        pretrained = given.pretrained or given.memorised
        planner = Planner(
            write_task(inputs.store, self.task),
            pretrained,
            resolve(pretrained),
            config.training,
            config.windows,
            self.n_layers,
            where,
            {role: resolve(model) for role, model in roles.items()},
        )
        frozen = planner.train("frozen", FROZEN_SEED, "a head on the pre-trained model")
        jobs = planner.seed_jobs(
            self.techniques, self.explanations, config.seed, {"frozen": frozen.artefact}
        )
        needs_frozen = any("frozen" in technique.needed for technique in self.techniques)
        return PlannedGiven(self, RunPlan(frozen if needs_frozen else None, (jobs,)))


@dataclass(frozen=True)
class PlannedGiven(Planned):
    """Given models and the jobs that look at them."""

    prepared: PreparedGiven
    plan: RunPlan

    @property
    def jobs(self) -> list[Job]:
        """See `Planned`."""
        return self.plan.jobs

    def collect(self, store: Store, outcome: Outcome) -> Findings:
        """See `Planned`."""
        prepared, jobs = self.prepared, self.jobs
        failures = check_failures(self.plan, jobs, outcome)
        tables = collect(self.plan, store, prepared.task, "localise")
        about = describe(prepared.task)
        return Findings(
            "localise",
            "localise",
            tables,
            prepared.config.settings or {},
            {
                "model": prepared.architecture,
                **about,
                "layers": prepared.n_layers,
                "memorised_examples": prepared.memorised,
                "memorised_share": prepared.memorised / about["noisy_examples"],
                "near_ceiling_known": prepared.config.given.near_ceiling is not None,
            },
            prepared.task,
            {one.name: one.all_settings(prepared.config.windows) for one in prepared.techniques},
            [*prepared.broken, *failures],
            prepared.unexplained,
            made_from(jobs, store),
        )


def prepare_given(config: GivenModels, progress: Progress, device: str) -> PreparedGiven:
    """Find what can be wrong with given models and data: every model is loaded once.

    Raises:
        MemlocError: If the models do not fit each other or the data.
    """
    given = config.given
    settings = config.techniques
    if settings is None:
        settings = {name: {} for name in possible_techniques(given)}
    techniques, broken = make_usable(settings)
    for sentence in broken:
        progress.note(sentence)
    for technique in techniques:
        if given.pretrained is None and _need_pretrained(technique.needed):
            raise ModelError(
                f"{technique.name} needs the model before fine-tuning; give it with --pretrained, "
                "or leave the technique out"
            )
    data, training = config.data, config.training
    examples = labelled_examples(read_table(data), data, **(config.columns or {}), numbers=True)
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
    task = Task(data.stem, "own", tuple(_names(first.blocks)), examples, examples.iloc[:0])
    facts, pooling = _Facts.of(first), first.blocks.pooling
    unit_problem = first.blocks.unit_problem
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
    there = Circumstances(task.train, pooling)
    explanations, unexplained = possible_explanations(config.explain, there, settings)
    chosen_windows(facts.n_layers, config.windows.sizes)
    check_unit(techniques, config.windows.unit, unit_problem)
    memorised = int((answers == noisy["label"].to_numpy()).sum())
    return PreparedGiven(
        config,
        techniques,
        broken,
        task,
        facts.n_layers,
        facts.architecture,
        memorised,
        explanations,
        unexplained,
    )


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
