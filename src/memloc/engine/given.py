"""Models that were trained elsewhere: in folders (`memloc localise`) or in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import nn

from memloc.analysis.windows import chosen_windows
from memloc.config import Columns, Dtype, Localisation, Model, PairFormat
from memloc.data.encode import encode, joins_parts
from memloc.data.files import labelled_examples, read_table
from memloc.data.task import Noise, Task
from memloc.engine.experiment import Experiment, Findings, describe
from memloc.engine.inputs import InputCache
from memloc.engine.job import write_task
from memloc.engine.plan import FROZEN_SEED, SWAPPED_HALVES, Plan, Planner, needs_frozen
from memloc.errors import DataError, MemlocError, ModelError
from memloc.models.blocks import BlockModel
from memloc.models.load import Classifier, load_classifier
from memloc.models.states import predict_logits
from memloc.techniques import (
    Circumstances,
    Technique,
    check_possible,
    make_techniques,
    possible_explanations,
)

ROLES = ("memorised", "original", "near_ceiling", "pretrained")
ABSENT = {
    "original": "the model of the correct labels (original)",
    "pretrained": "the model before fine-tuning (pretrained)",
    "frozen": "the model before fine-tuning (pretrained)",
}
"""What to call models that may not have been given."""
CLASSES = "list of class names"
REMEDIES = {
    "device": "move both to the same device",
    "precision": "convert one of them, such as with .float()",
}


# --- models and examples that fit each other ----------------------------------------------------


@dataclass(frozen=True)
class Given:
    """Models and examples that fit each other.

    Attributes:
        task: The examples; their labels are class numbers of the models.
        roles: Of the models.
        n_layers: Of each model.
        architecture: Their class.
        memorised: Noisy examples that the memorised model answers with the label it was trained on.
        cut_share: Share of the examples that are longer than the model may read.
        there: What techniques ask about models and examples.
        unit_problem: See `BlockModel`.
        changes: See `BlockModel`.
    """

    task: Task
    roles: frozenset[str]
    n_layers: int
    architecture: str
    memorised: int
    cut_share: float
    there: Circumstances
    unit_problem: str | None
    changes: dict[str, Any] | None

    def about(self) -> dict[str, Any]:
        """What there is to say beside the tables, as JSON data."""
        about = describe(self.task)
        return {
            "model": self.architecture,
            **about,
            "layers": self.n_layers,
            "memorised_examples": self.memorised,
            "memorised_share": self.memorised / about["noisy_examples"],
            "near_ceiling_known": "near_ceiling" in self.roles,
            "cut_share": self.cut_share,
        }


def examine(
    open_model: Callable[[str, int | None], Classifier],
    names: Mapping[str, str],
    examples: pd.DataFrame,
    data: Path | str,
    pair_format: PairFormat,
    dtype: Dtype = "float32",
) -> Given:
    """Find what can be wrong with given models and examples; one model is opened after the other.

    Args:
        open_model: Gives the model of a role. The number of classes is for a model whose own head
            does not matter.
        names: What to call each model that was given, by its role.
        examples: As `labelled_examples` leaves them; `noisy` instead of `original_label` if labels
            are only suspected.
        data: What to call the examples.
        pair_format: How two texts are encoded.
        dtype: Of matrix products.

    Raises:
        MemlocError: If the models do not fit each other or the data.
    """
    first = open_model("memorised", None)
    labels = tuple(class_names(first.blocks))
    suspected = "noisy" in examples.columns
    examples = number_labels(examples, first.blocks, data)
    encoded = encode(examples, first.codec, pair_format)
    noisy = np.flatnonzero(examples["noisy"])
    first.blocks.examine(encoded)
    answers = predict_logits(first.blocks, encoded, dtype, noisy).argmax(axis=1)
    memorised = int((answers == examples.loc[examples["noisy"], "label"].to_numpy()).sum())
    facts, vocabulary = comparable(first.blocks), first.codec.tokenizer.get_vocab()
    pooling, unit_problem = first.blocks.pooling, first.blocks.unit_problem
    changes, settings = first.blocks.changes, layer_settings(first.blocks)
    precisions = {"memorised": str(facts["precision"]).removeprefix("torch.")}
    adapters = bool(adapter_parameters(first.blocks.model))
    del first  # models may be large
    for role in [role for role in ROLES[1:] if role in names]:
        new_head = role == "pretrained"
        other = open_model(role, len(labels) if new_head else None)
        theirs = comparable(other.blocks)
        precisions[role] = str(theirs["precision"]).removeprefix("torch.")
        adapters = adapters or bool(adapter_parameters(other.blocks.model))
        ignored = (CLASSES, "precision") if new_head else ()
        check_fit(facts, theirs, names["memorised"], names[role], ignored)
        if other.codec.tokenizer.get_vocab() != vocabulary:
            raise ModelError(
                f"the tokenisers of {names['memorised']!r} and {names[role]!r} have different "
                "vocabularies",
                remedy="give models that were fine-tuned from the same one",
            )
        other.blocks.examine(encoded)
        check_fit(settings, layer_settings(other.blocks), names["memorised"], names[role], ())
        if role == "original" and "original_label" not in examples.columns:
            instead = predict_logits(other.blocks, encoded, dtype, noisy).argmax(axis=1)
            column = pd.Series([None] * len(examples), dtype=object)
            column[examples["noisy"].to_numpy()] = [labels[answer] for answer in instead]
            examples = examples.assign(original_answer=column)
    noise: Noise = "suspected" if suspected else "wrong"
    return Given(
        Task(Path(data).stem, "own", labels, examples, examples.iloc[:0], noise=noise),
        frozenset(names),
        int(facts["number of layers"]),
        str(facts["architecture"]),
        memorised,
        encoded.cut / len(encoded),
        Circumstances(examples, pooling, precisions, adapters),
        unit_problem,
        changes,
    )


def comparable(model: BlockModel) -> dict[str, Any]:
    """What models must have in common to exchange layers, in words."""
    names, parameters = class_names(model), dict(model.model.named_parameters())
    return {
        "architecture": type(model.model).__name__,
        "number of layers": model.n_layers,
        "number of classes": len(names),
        CLASSES: names,
        **{f"shape of {name}": tuple(p.shape) for name, p in parameters.items()},
        "device": model.device,
        "precision": parameters[model.groups.blocks[0][0]].dtype,  # adapters may have another
    }


def layer_settings(model: BlockModel) -> dict[str, str]:
    """How layers are to run, such as their kind of attention, which must be the same too."""
    return {
        f"{name} of layer {layer}": value
        for layer, block in enumerate(model.stack, start=1)
        for name, value in vars(block).items()
        if isinstance(value, str)
    }


def check_fit(
    mine: dict[str, Any], theirs: dict[str, Any], name: str, other: str, ignored: Collection[str]
) -> None:
    """Two models can exchange layers only if they have all of this in common.

    Parameters that only one of them has are no obstacle: adapters, and what they wrap.

    Raises:
        ModelError: Naming the first difference.
    """
    for what in [what for what in mine if what in theirs and what not in ignored]:
        if mine[what] != theirs[what]:
            raise ModelError(
                f"the models do not fit each other: {what} is {mine[what]} in {name!r} but "
                f"{theirs[what]} in {other!r}",
                remedy=REMEDIES.get(what, "give models that were fine-tuned from the same one"),
            )


def adapter_parameters(model: nn.Module) -> set[str]:
    """Names of the parameters of adapters (LoRA, say) that are not merged into the weights."""
    found = set()
    for prefix, module in model.named_modules():
        if hasattr(module, "base_layer") and hasattr(module, "adapter_layer_names"):
            inside = module.named_parameters(prefix)
            found |= {n for n, _ in inside if not n.startswith(f"{prefix}.base_layer.")}
    return found


def possible_techniques(
    techniques: Sequence[Technique], given: Given
) -> tuple[list[Technique], dict[str, str]]:
    """The techniques that given models and examples allow, and for each of the others a reason.

    Raises:
        MemlocError: If none is possible.
    """
    reasons = {
        one.name: missing_model(one, given.roles) or one.obstacle(given.there) for one in techniques
    }
    skipped = {name: reason for name, reason in reasons.items() if reason}
    if len(skipped) == len(techniques):
        words = "; ".join(f"{name}: {reason}" for name, reason in skipped.items())
        raise MemlocError(f"no technique is possible: {words}")
    return [one for one in techniques if one.name not in skipped], skipped


def missing_model(technique: Technique, roles: Collection[str]) -> str | None:
    """Which model a technique needs that was not given."""
    for need in technique.needed:
        role = need.removeprefix("states:")
        role = "original" if role in SWAPPED_HALVES else role  # the halves are of θ_O
        if role in ABSENT and (role if role == "original" else "pretrained") not in roles:
            switch = technique.needs_if.get(need)
            unless = f" unless {technique.name}.{switch} is false" if switch else ""
            return f"{ABSENT[role]} was not given but is needed{unless}"
    return None


# --- labels -------------------------------------------------------------------------------------


def number_labels(examples: pd.DataFrame, model: BlockModel, data: Path | str) -> pd.DataFrame:
    """Turn labels as written into the model's class numbers; mark the noisy examples.

    Raises:
        DataError: If the model has no such class, or no label is wrong, or every one.
    """
    numbered = examples.copy()
    for column in ("label", "original_label"):
        if column in examples.columns:
            numbered[column] = class_numbers(examples[column], model, column, data)
    if "noisy" in numbered.columns:
        return numbered
    numbered["noisy"] = numbered["label"] != numbered["original_label"]
    if not numbered["noisy"].any():
        raise DataError(
            f"no label in {data} differs from its original label, so there is nothing to localise; "
            "label must hold the labels that the memorised model was trained on"
        )
    if numbered["noisy"].all():
        raise DataError(
            f"all {len(numbered)} labels in {data} differ from their original labels; clean ones "
            "are needed to compare with, so check the original labels"
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
            numbers = "" if isinstance(label, str) else f" (numbers 0 to {len(names) - 1})"
            raise DataError(
                f"{where} is not a class of the model; its classes are: {', '.join(names)}{numbers}"
            )
        found.append(ids[label])
    return np.array(found, dtype=np.int64)


def class_names(model: BlockModel) -> list[str]:
    """In the order of the outputs."""
    config: Any = model.model.config
    return [str(config.id2label.get(index, index)) for index in range(int(config.num_labels))]


# --- the experiment: models in folders ----------------------------------------------------------


def given_models(config: Localisation) -> dict[str, Model]:
    """How to load each model that was given, by its role."""
    names = {role: getattr(config, role) for role in ROLES}
    reading = dict(config.model)
    return {role: Model(name=name, **reading) for role, name in names.items() if name is not None}


def prepare(config: Localisation, inputs: InputCache, label: str = "") -> Experiment:
    """Find what can be wrong with given models and data: every model is loaded once.

    Arguments are those of `experiment.prepare`.

    Raises:
        MemlocError: If the models do not fit each other or the data.
    """
    models, data, training = given_models(config), config.data.file, config.training
    techniques = make_techniques(config.techniques)
    for technique in techniques:
        if missing_model(technique, models):
            raise ModelError(
                f"{technique.name} needs the model before fine-tuning",
                setting="pretrained",
                remedy="give it, or leave the technique out",
            )
    columns = config.data.model_dump(include=set(Columns.model_fields))
    examples = labelled_examples(read_table(data), data, **columns, numbers=True)
    if not {"original_label", "noisy"} & {*examples.columns}:
        raise DataError(
            f"{data} has no column with the original labels",
            setting="data.original_label_column",
            remedy="name it, or a column of suspects",
        )

    def load(role: str, classes: int | None) -> Classifier:
        return load_classifier(
            inputs.source(models[role]),
            models[role],
            n_labels=classes,
            device=inputs.where["device"],
            max_tokens=training.max_tokens,
        )

    names = {role: model.name for role, model in models.items()}
    given = examine(load, names, examples, data, config.model.pair_format, training.dtype)
    check_possible(techniques, given.there, config.windows.unit, given.unit_problem)
    explanations, unexplained = possible_explanations(
        config.explain, given.there, config.techniques
    )
    chosen_windows(given.n_layers, config.windows.sizes)
    inputs.store.check_writable()
    sources = {role: inputs.source(model) for role, model in models.items()}
    start = sources.pop("pretrained", sources["memorised"])
    planner = Planner(
        write_task(inputs.store, given.task),
        models.get("pretrained", models["memorised"]),
        start,
        training,
        config.windows,
        given.n_layers,
        inputs.where,
        {"near_ceiling": sources["memorised"], **sources},
        label,
        joined=joins_parts(examples, config.model.pair_format),
        changes=given.changes,
    )
    trainings = {}
    if needs_frozen(techniques):
        title = "a head on the pre-trained model"
        trainings["frozen"] = planner.train("frozen", FROZEN_SEED, title)
    outline = Findings(
        "localise",
        "",
        about=given.about(),
        task=given.task,
        techniques={one.name: one.all_settings(config.windows) for one in techniques},
        unexplained=unexplained,
    )
    cell = planner.cell([*techniques, *explanations], config.seed, trainings)
    return Experiment(config, Plan((cell,)), outline, planner=planner)
