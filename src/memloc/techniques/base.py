"""What a technique is: what it declares, what it is given and what it returns.

This module and those of the techniques import nothing large, so that planning, the command line and
the report can read what a technique declares. What its work needs is imported where it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from memloc.config import Settings, Training, Windows
from memloc.errors import ConfigError, MemlocError
from memloc.models.names import NO_SINGLE_STATE, Role, StatesOf
from memloc.tables import Table

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from torch import Tensor

    from memloc.analysis.windows import Window
    from memloc.data.encode import Encoded
    from memloc.models.blocks import BlockModel
    from memloc.training.resume import ResumePoint

Report = Callable[[float], None]
Tables = dict[str, "pd.DataFrame"]
Kind = Literal["technique", "explanation"]

CACHE_MEMORY = 2**30
"""Bytes of states a process keeps in memory before it uses a file."""
NO_OLD_CLASS = (
    "suspects do not say which labels are correct, so examples have no old class to leave"
)
"""Why there are no explanations of labels that are only suspected."""


class TechniqueFailed(MemlocError):
    """A technique cannot say anything about these models and examples."""


@dataclass(frozen=True, repr=False)
class Context:
    """What a technique may look at; models are loaded when they are first asked for.

    `examples` has one row per training example in the order of `encoded`, with columns example,
    label (as trained), original_label and noisy.
    """

    examples: pd.DataFrame
    load_encoded: Callable[[], Encoded]
    model: Callable[[Role], BlockModel]
    """Gives one of the models."""
    pooled_states: Callable[[StatesOf], Tensor]
    """States 0..L of a model where its head reads them: [layers + 1, examples, width]."""
    n_layers: int
    seed: int = 0
    training: Training = field(default_factory=Training)
    windows: Windows = field(default_factory=Windows)
    """Which windows of layers are changed, and what of their layers."""
    cache_memory: int = CACHE_MEMORY
    cache_folder: Path | None = None
    scratch: dict[str, Any] = field(default_factory=dict)
    """What a technique keeps from one part of its work to the next in the same process."""
    costs: dict[str, Any] = field(default_factory=dict)
    """What its work took beside time: a technique notes its `block_passes` here."""
    resume: ResumePoint | None = None
    """Where a window that trains for long may save its state (`memloc.training.resume`)."""
    has_original: bool = True
    """Whether there is a θ_O to swap layers with."""

    def __repr__(self) -> str:
        """How much there is to look at, not the tables themselves."""
        noisy = f" ({int(self.examples['noisy'].sum())} noisy)" if "noisy" in self.examples else ""
        return (
            f"<memloc.Context: {len(self.examples)} examples{noisy}, {self.n_layers} layers, "
            f"seed {self.seed}; see .examples, .encoded, .model(role), .pooled_states(role)>"
        )

    @classmethod
    def of(
        cls,
        examples: pd.DataFrame,
        encoded: Encoded,
        models: Mapping[Role, BlockModel],
        **settings: Any,
    ) -> Self:
        """A context of models that are there already."""

        @cache
        def states(of: StatesOf) -> Tensor:
            from memloc.models.states import states_of

            return states_of(of, models.__getitem__, encoded)

        n_layers = next(iter(models.values())).n_layers
        return cls(examples, lambda: encoded, models.__getitem__, states, n_layers, **settings)

    @property
    def encoded(self) -> Encoded:
        """The token ids of the examples."""
        return self.load_encoded()

    def columns(self, *names: str) -> list[np.ndarray]:
        """Columns of the examples as arrays."""
        return [self.examples[name].to_numpy() for name in names]

    def noisy_examples(self) -> tuple[pd.DataFrame, Encoded]:
        """The noisy examples alone, with their token ids."""
        return self.some_examples(self.examples["noisy"].to_numpy().nonzero()[0])

    def some_examples(self, rows: np.ndarray) -> tuple[pd.DataFrame, Encoded]:
        """Some of the examples, with their token ids."""
        from memloc.data.encode import Encoded

        return self.examples.iloc[rows], Encoded(
            [self.encoded.rows[row] for row in rows], self.encoded.pad_id
        )


@dataclass(frozen=True)
class LayerCurves:
    """A figure of a technique's own: what one of its tables says about each layer.

    Attributes:
        table: Name of the table; it has the columns seed and layer.
        value: The column that is drawn.
        label: What it is, in a few words.
        caption: What the figure shows, in sentences, with {model} for the name of the model.
        by: A column; each of its values in `lines` is a line of its own.
        lines: These values, and what they mean. Without them, a line is a task.
        shares: Whether values are shares, from 0 to 1.
    """

    table: str
    value: str
    label: str
    caption: str
    by: str | None = None
    lines: Mapping[str, str] = field(default_factory=dict)
    shares: bool = False


@dataclass(frozen=True)
class Circumstances:
    """What is known about models and data before any work; None is what is not known yet."""

    examples: pd.DataFrame | None = None
    pooling: str | None = None
    """Where the head of the model reads; `other` if that is not a single position."""
    precisions: Mapping[str, str] = field(default_factory=dict)
    """Of the models, by role."""
    adapters: bool = False
    """Whether the weights of the models are not all in their layers."""

    @property
    def counts(self) -> dict[str, int]:
        """How many examples are noisy and how many are clean."""
        noisy = 0 if self.examples is None else int(self.examples["noisy"].sum())
        total = 0 if self.examples is None else len(self.examples)
        return {"noisy": noisy, "clean": total - noisy}


class Technique:
    """A technique of localisation: a name, a score per layer, and what it declares about itself.

    The least is a name and a method `score`. `localise` is for techniques that have more to tell.
    An instance holds its settings: `Retraining(epochs=3)`.
    """

    name: ClassVar[str]
    kind: ClassVar[Kind] = "technique"
    """Techniques weigh layers; explanations show what happens to noisy examples on their way up."""
    revision: ClassVar[int] = 1
    """Part of the key of stored results: raise it when the same input would give another result."""
    needs: ClassVar[tuple[str, ...]] = ("memorised", "original")
    """Roles of the models it looks at; `states:ROLE` if pooled states are enough."""
    needs_if: ClassVar[Mapping[str, str]] = {}
    """Those of its needs that only arise if a setting is on, and the name of that setting."""
    Config: ClassVar[type[Settings]] = Settings
    """Its settings: command-line options, YAML keys and arguments are made from the fields."""
    settings_from: ClassVar[str | None] = None
    """A technique whose settings it shares, unless it is given others."""
    without_effect: ClassVar[tuple[str, ...]] = ()
    """Settings that only add tables, or change how it is computed, so that results with and without
    them can be compared."""
    of_model: ClassVar[tuple[str, ...]] = ()
    """Settings that may differ between models whose results are compared: see `suited_to`."""
    later: ClassVar[tuple[str, ...]] = ()
    """Settings that came later: keys of results leave out their defaults, so that older ones stay
    valid."""
    uses_windows: ClassVar[bool] = False
    """Whether it changes windows of layers, so that their sizes matter."""
    uses_clean: ClassVar[bool] = False
    """Whether `Windows.clean` decides how many clean examples go through its windows."""
    uses_unit: ClassVar[bool] = False
    """Whether it can look at the attention or the MLP of layers alone."""
    windowed: ClassVar[bool] = False
    """Whether its windows are so much work that each is a job of its own: see `window`."""
    smallest_group: ClassVar[int] = 0
    """Noisy examples, and clean ones, that it needs at least."""
    trains: ClassVar[tuple[Role, ...]] = ()
    """Models whose layers it trains, which takes full precision."""
    at_checkpoints: ClassVar[bool] = False
    """Whether a run that looks at checkpoints of the training applies it to them."""
    tables: ClassVar[tuple[Table, ...]] = ()
    """What it writes beside the usual tables."""
    events: ClassVar[tuple[str, ...]] = ()
    """Events that follow from its own tables, so that they are as reliable as these."""
    colour: ClassVar[str | None] = None
    """Of its lines and points in figures, as #RRGGBB; None leaves the choice to them."""
    marker: ClassVar[str | None] = None
    """Of its points, as matplotlib calls it."""
    clean_loss: ClassVar[float | None] = None
    """Clean labels that its windows may lose on average, before a caveat says that they break more
    than memorisation."""
    clean_remedy: ClassVar[str] = "compare models that were trained alike"
    """What to do then."""
    by_chance: ClassVar[bool] = False
    """Whether it draws weights at random, so that nobody asks whether it beats chance."""
    figure: ClassVar[LayerCurves | None] = None
    """What `memloc figures` draws of its own tables, under its name."""

    config: Settings

    def __init__(self, config: Settings | None = None, /, **settings: Any) -> None:
        self.config = self.configured(**settings) if config is None else config

    @classmethod
    def configured(cls, **settings: Any) -> Settings:
        """Its settings, checked.

        Raises:
            ConfigError: If there is no such setting, or its value is not possible.
        """
        try:
            return cls.Config(**settings)
        except ConfigError as error:
            raise error.below(cls.name) from None

    def __repr__(self) -> str:
        """As it can be written in Python."""
        fields = self.config.model_fields_set
        given = ", ".join(f"{name}={value!r}" for name, value in self.config if name in fields)
        return f"{type(self).__name__}({given})"

    def __eq__(self, other: object) -> bool:
        """The same technique with the same settings."""
        return type(self) is type(other) and self.config == getattr(other, "config", None)

    @classmethod
    def about(cls) -> str:
        """What it does, in one line."""
        return (cls.__doc__ or "").strip().split("\n")[0]

    def identity(self) -> dict[str, Any]:
        """Its settings as JSON data, for keys."""
        fields = self.Config.model_fields
        usual = {n for n in self.later if getattr(self.config, n) == fields[n].default}
        return self.config.model_dump(mode="json", exclude=usual)

    def all_settings(self, windows: Windows) -> dict[str, Any]:
        """Its settings, and those of the windows it changes, as JSON data."""
        found = self.config.model_dump(mode="json")
        if self.uses_windows:
            found["window_sizes"] = windows.model_dump(mode="json")["sizes"]
        if self.uses_clean:
            found["clean"] = windows.clean
        if self.uses_unit:
            found["unit"] = windows.unit
        return found

    def suited_to(self, model: str, training: Training) -> Self:
        """The same, with the settings that were left open as a model of that name needs them."""
        return self

    @property
    def needed(self) -> tuple[str, ...]:
        """Those of its needs that its settings leave."""
        return tuple(
            need
            for need in self.needs
            if need not in self.needs_if or getattr(self.config, self.needs_if[need])
        )

    def obstacle(self, there: Circumstances) -> str | None:
        """Why it is not possible here, in words that can stand alone; None if it is."""
        if there.examples is not None:
            for kind, count in there.counts.items():
                if count < self.smallest_group:
                    least = f"at least {self.smallest_group} {kind} examples are needed"
                    return f"{least} and there are {count}"
        if there.pooling == "other" and any(":" in need for need in self.needed):
            return NO_SINGLE_STATE
        # Half precision is too coarse for the small steps of training.
        head: tuple[Role, ...] = ("pretrained",) if "frozen" in self.needed else ()
        for role in (*self.trains, *head):
            precision = there.precisions.get(role)
            if precision in ("float16", "bfloat16"):
                what = "layers" if role in self.trains else "a head"
                return f"{precision} is too coarse to train {what}; give {role} in float32"
        return None

    @classmethod
    def summarise(cls, tables: Tables) -> dict[str, Any]:
        """What the summary of a result says about its own tables, as JSON data; seeds together."""
        return {}

    @classmethod
    def sentences(cls, found: dict[str, Any]) -> list[str]:
        """What an explanation found in plain words, from what the summary says about all of them.

        See `summarise`; `found["events"]` are the events.
        """
        return []

    @classmethod
    def line(cls) -> str:
        """The column of the table `checkpoints` with the layer that sums it up at an epoch."""
        return f"{cls.name}_m_cog"

    @classmethod
    def benchmark(cls, tables: Tables) -> Tables:
        """Further tables of the control benchmark, from its own tables of all control models."""
        return {}

    @classmethod
    def summarise_benchmark(cls, tables: Tables) -> dict[str, Any]:
        """What the summary of the control benchmark adds, from the tasks that were held back.

        Without any, `tables` are of all tasks.
        """
        return {}

    def cost(self, n_layers: int) -> float:
        """Forward passes of the data that take as long; of a windowed one, beside its windows."""
        return 5.0

    def window_cost(self, n_layers: int, window: Window) -> float:
        """The same for one window."""
        return 5.0

    def localise(self, context: Context, report: Report = lambda _: None) -> Tables:
        """Its tables by name; `report` takes the finished fraction.

        Techniques have `layers`; those that change windows of layers have windows, predictions and
        examples too (`memloc.analysis.windows.window_tables`). Others are those it declares.
        """
        table = self.score(context)
        report(1.0)
        return {"layers": check_scores(self.name, table, context.n_layers)}

    def score(self, context: Context) -> pd.DataFrame:
        """One row per layer: `layer` (from 1) and `weight` (the larger, the more memorisation)."""
        raise self._without("score")

    def window(self, context: Context, window: Window, report: Report) -> Tables:
        """The findings on one window, if it is `windowed`."""
        raise self._without("window")

    def together(self, windows: Sequence[Window]) -> list[tuple[Window, ...]]:
        """Which of its windows are one job, if it is `windowed`; each by itself unless it says."""
        return [(window,) for window in windows]

    def group(self, context: Context, windows: Sequence[Window], report: Report) -> list[Tables]:
        """The findings on windows that are one job."""
        parts: list[Tables] = []
        for window in windows:

            def part(fraction: float) -> None:
                report((len(parts) + fraction) / len(windows))

            parts.append(self.window(context, window, part))
        return parts

    def combine(
        self, context: Context, windows: Sequence[Window], parts: Sequence[Tables]
    ) -> Tables:
        """Its tables from the findings on all windows; needs no model."""
        raise self._without("combine")

    def _without(self, method: str) -> TechniqueFailed:
        return TechniqueFailed(
            f"technique {self.name!r} has no method {method!r}; see docs/your-technique.md"
        )


class Explanation(Technique):
    """What happens to noisy examples on their way up (section 5): tables, but no weights."""

    kind = "explanation"

    def obstacle(self, there: Circumstances) -> str | None:
        """See `Technique`; the correct labels must be known too."""
        if there.examples is not None and "original_label" not in there.examples:
            return NO_OLD_CLASS
        return super().obstacle(there)


def clean_sample(noisy: np.ndarray, seed: int) -> np.ndarray:
    """As many clean examples as there are noisy ones, or all of them if there are fewer."""
    import numpy as np

    clean = np.flatnonzero(~noisy)
    size = min(len(clean), int(noisy.sum()))
    return np.sort(np.random.default_rng(seed).choice(clean, size, replace=False))


def tidy(axes: Mapping[str, Iterable[Any]], **values: Any) -> pd.DataFrame:
    """A table with one row per cell of arrays that have these axes."""
    import numpy as np
    import pandas as pd

    cells = pd.MultiIndex.from_product(list(axes.values()), names=list(axes)).to_frame(index=False)
    return cells.assign(**{name: np.reshape(array, -1) for name, array in values.items()})


def check_scores(name: str, table: Any, n_layers: int) -> pd.DataFrame:
    """The scores of a technique as a table of layers.

    Raises:
        TechniqueFailed: Saying what is wrong with them.
    """
    import numpy as np

    from memloc.analysis.windows import layer_table

    def fail(what: str) -> TechniqueFailed:
        return TechniqueFailed(
            f"technique {name!r} {what}; it must return one weight for each layer"
        )

    try:
        ordered = table.set_index("layer").sort_index()
        weights = ordered["weight"].to_numpy(dtype=np.float64)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise fail("returned no table with numbers in the columns layer and weight") from None
    layers = ordered.index.tolist()
    if layers != list(range(1, n_layers + 1)):
        raise fail(f"returned weights for layers {layers} of a model with {n_layers}")
    if not np.isfinite(weights).all():
        bad = int(np.flatnonzero(~np.isfinite(weights))[0])
        raise fail(f"returned {weights[bad]} for layer {bad + 1}")
    spread = ordered["spread"].to_numpy(dtype=np.float64) if "spread" in ordered else np.nan
    return layer_table(name, weights, spread)
