"""The tables of results: columns, types and meaning of each, once; and thresholds that are shared.

Tables that only one technique writes are declared by the technique (`Technique.tables`). Layers are
numbered from 1, classes from 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from memloc.errors import MemlocError

if TYPE_CHECKING:
    import pandas as pd

REPORT = "report.html"
"""The page that shows a result, in its folder."""
CHECKSUMS = "checksums.json"
"""Of every other file of a result."""
ARTEFACTS = "artefacts.json"
"""Kinds and keys of everything in the store that a result was made from."""

CUT = 0.1
"""Share of examples that were cut, from which on a caution says so."""
MEMORISED = 0.95
"""Accuracy on noisy examples from which on the model counts as having memorised them."""
NEARLY_ALL = 0.95
"""Share of the memorisation that counts as undone."""

Experiment = Literal["run", "localise", "control", "audit"]
Dtype = Literal["int64", "Int64", "float64", "Float64", "bool", "str", "string", "object"]
"""As pandas calls them; capital letters: values may be missing."""


def number(value: Any) -> float | None:
    """As JSON data; None if it is not finite."""
    found = float(value)
    return found if math.isfinite(found) else None


def numbers(values: Iterable[Any]) -> list[float | None]:
    """The same for several."""
    return [number(value) for value in values]


class TableError(MemlocError):
    """A table does not have the columns that are declared for it."""


class Column(NamedTuple):
    """One column: its type, and what its values mean."""

    dtype: Dtype
    meaning: str
    optional: bool = False
    """Whether a table may do without it."""
    added: bool = False
    """Whether results of earlier versions lack it. What they found is no evidence then."""


@dataclass(frozen=True)
class Table:
    """The schema of a result table.

    Attributes:
        name: Of the file, without `.parquet`.
        about: What a row is, in a few words.
        columns: In their order, without those that say which run a row is of.
        of: The experiments that have it.
        condition: The setting that it takes for a result to have it, if it takes one.
        front: Whether every row says which run it is of: see `FRONT`.
    """

    name: str
    about: str
    columns: Mapping[str, Column]
    of: tuple[Experiment, ...] = ("run", "localise")
    condition: str = ""
    front: bool = True

    def columns_in(self, experiment: Experiment) -> dict[str, Column]:
        """All columns that it has in the results of an experiment."""
        front = FRONT[experiment] if self.front else {}
        renamed = RENAMED.get(experiment, {})
        return front | {renamed.get(name, name): found for name, found in self.columns.items()}

    def dtypes(self, names: Iterable[str], experiment: Experiment = "run") -> dict[str, str]:
        """The types of some columns."""
        known = self.columns_in(experiment)
        return {name: known[name].dtype for name in names}

    def frame(self, rows: Any, experiment: Experiment | None = None) -> pd.DataFrame:
        """A data frame with these columns, in this order and of these types.

        Args:
            rows: Whatever `pandas.DataFrame` takes.
            experiment: If rows say which run of it they are of.

        Raises:
            TableError: If a column is missing, or not declared.
        """
        import pandas as pd

        known = self.columns if experiment is None else self.columns_in(experiment)
        needed = [name for name, column in known.items() if not column.optional]
        table = pd.DataFrame(columns=needed) if isinstance(rows, list) and not rows else rows
        table = pd.DataFrame(table)
        absent = [name for name in needed if name not in table]
        unknown = [str(name) for name in table.columns if name not in known]
        if absent or unknown:
            what = f"has no column {absent[0]!r}" if absent else f"has a column {unknown[0]!r}"
            raise TableError(f"the table {self.name} {what}, unlike what is declared for it")
        there = {name: column.dtype for name, column in known.items() if name in table}
        return table[list(there)].astype(there)

    def empty(self) -> pd.DataFrame:
        """Without any row, and without optional columns."""
        return self.frame([])


SEED = {"seed": Column("int64", "model seed")}
CELL = {
    "model": Column("str", "name of the model"),
    "n_layers": Column("int64", "its depth"),
    "task": Column("str", "the task whose labels are memorised"),
    "hidden": Column("str", "the layers that hide them, such as 1+2; empty if all cells share it"),
    "seed": Column("int64", "model seed"),
}
"""The columns that name one control model."""
FRONT: dict[Experiment, dict[str, Column]] = {
    "run": SEED,
    "localise": {},
    "control": CELL,
    "audit": {},
}
"""The columns that every table begins with; those of `localise` are of one run only."""
RENAMED: dict[Experiment, dict[str, str]] = {"control": {"model": "state"}}
"""Where names of columns collide with those in front."""

TECHNIQUE = Column("str", "name of the technique")
LAYER = Column("int64", "the layer")
EXAMPLE = Column("int64", "the training example: its row in the data, from 0")
FIRST = Column("int64", "first layer of the window")
LAST = Column("int64", "last layer of the window")
LABEL = Column("int64", "the label as trained")
ORIGINAL = Column("int64", "the original label")
STATE = Column(
    "str", "which model: memorised, near_ceiling (θ_M1), original, pretrained, frozen, …"
)
EPOCH = Column("int64", "the epoch, from 1")

LAYERS = Table(
    "layers",
    "a weight for every layer: the larger, the more memorisation is stored there",
    {
        "technique": TECHNIQUE,
        "layer": LAYER,
        "weight": Column("float64", "its weight; scales differ; missing if nothing is known"),
        "spread": Column("float64", "standard deviation over the technique's own seeds"),
    },
    of=("run", "localise", "control"),
)
WINDOWS = Table(
    "windows",
    "what is left if a window of layers is changed",
    {
        "technique": TECHNIQUE,
        "first_layer": FIRST,
        "last_layer": LAST,
        "size": Column("int64", "number of layers in the window"),
        "noisy_error": Column("float64", "share of noisy examples that lose the label as trained"),
        "clean_error": Column("float64", "share of clean examples that lose their label"),
    },
    of=("run", "localise", "control"),
)
PREDICTIONS = Table(
    "predictions",
    "the answer to every example if a window of layers is changed",
    {
        "technique": TECHNIQUE,
        "first_layer": FIRST,
        "last_layer": LAST,
        "example": EXAMPLE,
        "predicted": Column("int64", "the class"),
    },
)
EXAMPLES = Table(
    "examples",
    "every noisy example, and the smallest window of layers tried that undoes it",
    {
        "technique": TECHNIQUE,
        "example": EXAMPLE,
        "memorised": Column("bool", "whether the model answers with the label as trained"),
        "smallest_window": Column("Int64", "layers in the smallest window tried that undoes it"),
        "at_least": Column(
            "Int64", "its true size is not below this: the sizes between were not tried"
        ),
        "first_layer": Column("Int64", "first layer of that window"),
        "last_layer": Column("Int64", "last layer of that window"),
        "word": Column("object", "the word it is about (WiC)", optional=True),
        "text": Column("str", "its text", optional=True),
        "text_pair": Column("object", "its second text", optional=True),
        "label": LABEL._replace(optional=True),
        "original_label": ORIGINAL._replace(optional=True),
        "original_answer": Column("object", "what θ_O answers, if labels are only suspected", True),
        "label_name": Column("str", "the label in words", optional=True),
        "original_label_name": Column("str", "the original label in words", optional=True),
    },
)
EVENTS = Table(
    "events",
    "the layer in which something happens to noisy examples",
    {
        "model": STATE,
        "event": Column("str", "crossing, first_crossing, initiation, mem_gen or f1_90"),
        "layer": Column("Int64", "the layer; none if it never happens, or is not known"),
    },
)
HISTORY = Table(
    "history",
    "every epoch of fine-tuning",
    {
        "state": STATE,
        "epoch": EPOCH,
        "split": Column("str", "train, noisy, clean or validation"),
        "loss": Column("float64", "mean loss on these examples"),
        "accuracy": Column("float64", "accuracy on these examples"),
        "macro_f1": Column("float64", "macro F1 on these examples"),
    },
    of=("run", "localise", "control"),
)
COSTS = Table(
    "costs",
    "what every job cost",
    {
        "job": Column("str", "a model, a technique, an explanation, or `states:` of a model"),
        "memorised_epoch": Column("object", "of a training: the epoch of θ_M1", optional=True),
        "cut_share": Column("float64", "of a training: share of its examples cut", optional=True),
        "seconds": Column("float64", "time"),
        "peak_memory_bytes": Column("int64", "largest memory of the process", optional=True),
        "block_passes": Column("float64", "batches that went through a layer", optional=True),
    },
    of=("run", "localise", "control"),
)
MEMORISATION_MAP = Table(
    "memorisation_map",
    "how every example is answered by models of random halves, with and without it",
    {
        "example": EXAMPLE,
        "label": LABEL,
        "original_label": ORIGINAL,
        "noisy": Column("bool", "whether the label was flipped"),
        "times_in": Column("int64", "halves with it"),
        "times_out": Column("int64", "halves without it"),
        "training_memorisation": Column("float64", "probability of its label if it was seen"),
        "generalisation_score": Column("float64", "probability of its label if it was held out"),
        "counterfactual_memorisation": Column("float64", "the difference of these two"),
    },
    of=("run",),
    condition="generalisation",
    front=False,
)
CHECKPOINTS = Table(
    "checkpoints",
    "every checkpoint of the training",
    {
        "epoch": EPOCH,
        "memorised": Column("float64", "share of noisy examples answered as trained"),
        "in_layers": Column("float64", "share of noisy labels that all layers of θ_O undo"),
        "enough": Column("bool", "whether that is enough to localise"),
        "clean_accuracy": Column("float64", "accuracy on clean examples"),
        "validation_accuracy": Column("float64", "accuracy on validation examples"),
        "clean_error": Column("float64", "share of clean examples that windows lose, on average"),
        "crossing": Column("Int64", "the layer in which noisy examples cross to the new class"),
        "initiation": Column("Int64", "the layer from which on classes are apart"),
    },
    of=("run",),
    condition="checkpoints",
)


def checkpoints_of(weighted: Iterable[str]) -> Table:
    """`CHECKPOINTS`, with the centres of gravity by the techniques that look at checkpoints."""
    columns = dict(CHECKPOINTS.columns)
    last = {name: columns.pop(name) for name in ("crossing", "initiation")}
    for name in weighted:
        columns[f"{name}_m_cog"] = Column("Float64", f"centre of gravity by {name}")
    return replace(CHECKPOINTS, columns=columns | last)


CHECKPOINT_LAYERS = Table(
    "checkpoint_layers",
    "every layer at every checkpoint",
    {
        "epoch": EPOCH,
        "technique": TECHNIQUE,
        "layer": LAYER,
        "measure": Column("str", "weight, or position of the noisy examples (centroids)"),
        "value": Column("float64", "the weight or position"),
    },
    of=("run",),
    condition="checkpoints",
)
CHECKPOINT_WINDOWS = Table(
    "checkpoint_windows",
    "windows, at every checkpoint",
    {"epoch": EPOCH, **WINDOWS.columns},
    of=("run",),
    condition="checkpoints",
)
ACCURACY = Table(
    "accuracy",
    "whether a technique finds the hidden layers of a control model",
    {
        "technique": TECHNIQUE,
        "k": Column("int64", "how many layers it may name"),
        "accuracy": Column("float64", "share that are hidden ones; missing if a weight is"),
        "chance": Column("float64", "what random weights would get"),
    },
    of=("control",),
)
TRAININGS = Table(
    "trainings",
    "every training of a control model",
    {
        "state": STATE,
        "memorised_epoch": Column("object", "the epoch of θ_M1"),
        "steps": Column("int64", "steps of the optimiser"),
        "learning_rate": Column("float64", "the rate that was used in the end"),
        "accuracy": Column("float64", "accuracy on the labels of the main task"),
        "learned": Column("bool", "whether that is enough"),
        "auxiliary_accuracy": Column("float64", "accuracy on the auxiliary task"),
        "cut_share": Column("float64", "share of the examples that were cut", optional=True),
    },
    of=("control",),
)
ATTEMPTS = Table(
    "attempts",
    "every attempt at such a training",
    {
        "state": STATE,
        "learning_rate": Column("float64", "the rate that was tried"),
        "accuracy": Column("float64", "accuracy on the labels of the main task"),
        "failure": Column("string", "why it was given up, if it was"),
    },
    of=("control",),
)
LEARNED = {
    "learned": Column("Int64", "the epoch from which on the model gives the label"),
    "forgotten": Column("int64", "how often the model stopped giving it"),
    "margin": Column("float64", "mean logit of the label minus the largest other (AUM)"),
    "cumulative_loss": Column("float64", "sum of the losses after all epochs"),
    "confidence": Column("float64", "mean probability of the label over the epochs"),
    "variability": Column("float64", "standard deviation of that probability"),
}
"""Training dynamics, see `memloc.analysis.dynamics`."""
DYNAMICS = Table(
    "dynamics",
    "how every label was learned by θ_M",
    {
        "example": EXAMPLE,
        "noisy": Column("bool", "whether the label was flipped, is wrong or is suspected"),
        **LEARNED,
    },
    of=("run",),
)
LABELS = Table(
    "labels",
    "every label, and how much speaks against it",
    {
        "row": Column("int64", "the row in the data, from 0"),
        "word": Column("object", "the word it is about (WiC)", optional=True),
        "text": Column("str", "its text", optional=True),
        "text_pair": Column("object", "its second text", optional=True),
        "label": Column("str", "the label as given"),
        "suggested_label": Column("str", "the most likely one of the other labels"),
        "suspect": Column("bool", "whether it is among the labels that are likely wrong"),
        "rank": Column("int64", "its place: 1 is the most suspicious label"),
        "score": Column("float64", "how suspicious it is, from 0 to 1: from ranks by both margins"),
        "early_margin": Column(
            "float64",
            "probability of the label minus the largest other, in the first half of the training",
        ),
        "unseen_margin": Column(
            "float64", "the same by models that did not see the example", optional=True
        ),
        "self_confidence": Column(
            "float64", "probability of the label by models that did not see it", optional=True
        ),
        **LEARNED,
    },
    of=("audit",),
)
EXAM = Table(
    "exam",
    "what a measure says about a candidate of a repair",
    {
        "candidate": Column("str", "its name"),
        "first_layer": Column("Int64", "first layer of its window; none of a whole model"),
        "last_layer": Column("Int64", "last layer of its window"),
        "measure": Column(
            "str",
            "given, relearned_kept, relearned_tenth, probe, kept_accuracy, validation_accuracy, "
            "true_accuracy or seconds",
        ),
        "value": Column("Float64", "a share, or the seconds; missing if it is not known"),
        "low": Column("Float64", "lower end of the 95% interval; missing for fewer than four"),
        "high": Column("Float64", "upper end of the interval"),
        "examples": Column("Int64", "how many examples it is a share of"),
    },
    of=(),
    front=False,
)
"""Of `memloc repair`, beside the model."""
SHARED = (
    *(LAYERS, WINDOWS, PREDICTIONS, EXAMPLES, EVENTS, HISTORY, DYNAMICS, COSTS),
    MEMORISATION_MAP,
    *(CHECKPOINTS, CHECKPOINT_LAYERS, CHECKPOINT_WINDOWS),
    *(ACCURACY, TRAININGS, ATTEMPTS, LABELS),
)
"""All tables that do not belong to one technique."""
