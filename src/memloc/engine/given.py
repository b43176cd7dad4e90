"""Models that somebody has already trained (the engine of `memloc localise`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from memloc.analysis.windows import chosen_windows
from memloc.config import Columns, Localisation, Model
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
from memloc.models.load import load_classifier
from memloc.models.names import resolve
from memloc.models.states import predict_logits
from memloc.techniques import (
    Circumstances,
    Technique,
    check_possible,
    check_unit,
    make_usable,
    possible_explanations,
)

ROLES = ("memorised", "original", "near_ceiling", "pretrained")
CLASSES = "list of class names"
REMEDIES = {
    "device": "move both to the same device",
    "precision": "convert one of them, such as with .float()",
}


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

    config: Localisation
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
        config = self.config
        models = given_models(config)
        pretrained = models.get("pretrained", models["memorised"])
        sources = {"near_ceiling": resolve(models["memorised"])} | {
            role: resolve(model) for role, model in models.items() if role != "pretrained"
        }
        planner = Planner(
            write_task(inputs.store, self.task),
            pretrained,
            resolve(pretrained),
            config.training,
            config.windows,
            self.n_layers,
            where,
            sources,
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
            prepared.config.model_dump(mode="json"),
            {
                "model": prepared.architecture,
                **about,
                "layers": prepared.n_layers,
                "memorised_examples": prepared.memorised,
                "memorised_share": prepared.memorised / about["noisy_examples"],
                "near_ceiling_known": prepared.config.near_ceiling is not None,
            },
            prepared.task,
            {one.name: one.all_settings(prepared.config.windows) for one in prepared.techniques},
            [*prepared.broken, *failures],
            prepared.unexplained,
            made_from(jobs, store),
        )


def given_models(config: Localisation) -> dict[str, Model]:
    """How to load each model that was given, by its role."""
    names = {role: getattr(config, role) for role in ROLES}
    reading = dict(config.model)
    return {role: Model(name=name, **reading) for role, name in names.items() if name is not None}


def prepare(config: Localisation, progress: Progress, device: str) -> PreparedGiven:
    """Find what can be wrong with given models and data: every model is loaded once.

    Raises:
        MemlocError: If the models do not fit each other or the data.
    """
    models, data, training = given_models(config), config.data.file, config.training
    techniques, broken = make_usable(config.techniques)
    for sentence in broken:
        progress.note(sentence)
    for technique in techniques:
        needed = [need for need in technique.needed if need.endswith(("pretrained", "frozen"))]
        if needed and "pretrained" not in models:
            raise ModelError(
                f"{technique.name} needs the model before fine-tuning",
                setting="pretrained",
                remedy="give it, or leave the technique out",
            )
    columns = config.data.model_dump(include=set(Columns.model_fields))
    examples = labelled_examples(read_table(data), data, **columns, numbers=True)
    if "original_label" not in examples.columns:
        raise DataError(
            f"{data} has no column with the original labels",
            setting="data.original_label_column",
            remedy="name it",
        )
    first = load_classifier(
        resolve(models["memorised"]),
        models["memorised"],
        n_labels=None,
        device=device,
        max_tokens=training.max_tokens,
    )
    check_possible(techniques, Circumstances(pooling=first.blocks.pooling))
    examples = label_examples(examples, first.blocks, data)
    noisy = examples[examples["noisy"]]
    there = Circumstances(examples, first.blocks.pooling)
    check_possible(techniques, there)
    encoded = encode(noisy, first.codec, config.model.pair_format)
    answers = predict_logits(first.blocks, encoded, training.dtype).argmax(axis=1)
    task = Task(data.stem, "own", tuple(class_names(first.blocks)), examples, examples.iloc[:0])
    facts, unit_problem = comparable(first.blocks), first.blocks.unit_problem
    vocabulary = first.codec.tokenizer.get_vocab()
    del first  # models are large: one at a time
    for role in ("original", "near_ceiling", "pretrained"):
        if role in models:
            other, new_head = models[role], role == "pretrained"
            theirs = load_classifier(
                resolve(other),
                other,
                n_labels=len(task.labels) if new_head else None,
                max_tokens=training.max_tokens,
            )
            ignored = {CLASSES: facts[CLASSES]} if new_head else {}
            check_fit(facts, comparable(theirs.blocks) | ignored, config.memorised, other.name)
            if theirs.codec.tokenizer.get_vocab() != vocabulary:
                raise ModelError(
                    f"the tokenisers of {config.memorised!r} and {other.name!r} have different "
                    "vocabularies",
                    remedy="give models that were fine-tuned from the same one",
                )
    explanations, unexplained = possible_explanations(config.explain, there, config.techniques)
    chosen_windows(int(facts["number of layers"]), config.windows.sizes)
    check_unit(techniques, config.windows.unit, unit_problem)
    return PreparedGiven(
        config,
        techniques,
        broken,
        task,
        int(facts["number of layers"]),
        str(facts["architecture"]),
        int((answers == noisy["label"].to_numpy()).sum()),
        explanations,
        unexplained,
    )


def comparable(model: BlockModel) -> dict[str, Any]:
    """What models must have in common to exchange layers, in words."""
    names = class_names(model)
    return {
        "architecture": type(model.model).__name__,
        "number of layers": model.n_layers,
        "number of classes": len(names),
        CLASSES: names,
        **{f"shape of {name}": tuple(p.shape) for name, p in model.model.named_parameters()},
    }


def check_fit(mine: dict[str, Any], theirs: dict[str, Any], name: str, other: str) -> None:
    """Two models can exchange layers only if they have all of this in common.

    Args:
        mine: Of one model, see `comparable`.
        theirs: Of another.
        name: What to call the one.
        other: What to call the other.

    Raises:
        ModelError: Naming the first difference.
    """
    for what in mine | theirs:
        one, two = mine.get(what, "none"), theirs.get(what, "none")
        if one != two:
            raise ModelError(
                f"the models do not fit each other: {what} is {one} in {name!r} but {two} in "
                f"{other!r}",
                remedy=REMEDIES.get(what, "give models that were fine-tuned from the same one"),
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
    names = class_names(model)
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


def class_names(model: BlockModel) -> list[str]:
    """In the order of the outputs."""
    config: Any = model.model.config
    return [str(config.id2label.get(index, index)) for index in range(int(config.num_labels))]
