"""The protocol of localisation techniques, what they are given and what they return."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import pandas as pd

from memloc.analysis.windows import Window, layer_table
from memloc.config import TechniquesConfig, TrainingConfig
from memloc.errors import MemlocError
from memloc.models.names import Role, StatesOf

if TYPE_CHECKING:
    from torch import Tensor

    from memloc.data.encode import Encoded
    from memloc.models.blocks import BlockModel
    from memloc.training.resume import ResumePoint

Report = Callable[[float], None]
Tables = dict[str, pd.DataFrame]

CACHE_MEMORY = 2**30
"""Bytes of states a process keeps in memory before it uses a file."""


class MethodFailed(MemlocError):
    """A technique cannot say anything about these models and examples."""


@dataclass(frozen=True, repr=False)
class Context:
    """What a technique may look at; models are loaded when they are first asked for.

    `examples` has one row per training example in the order of `encoded`, with columns example,
    label (as trained), original_label and noisy.
    """

    examples: pd.DataFrame
    load_encoded: Callable[[], Encoded]
    load_model: Callable[[Role], BlockModel]
    load_states: Callable[[StatesOf], Tensor]
    n_layers: int
    seed: int = 0
    training: TrainingConfig = field(default_factory=TrainingConfig)
    techniques: TechniquesConfig = field(default_factory=TechniquesConfig)
    cache_memory: int = CACHE_MEMORY
    cache_folder: Path | None = None
    scratch: dict[str, Any] = field(default_factory=dict)
    """What a technique keeps from one part of its work to the next in the same process."""
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
    ) -> Context:
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

    def model(self, role: Role) -> BlockModel:
        """One of the models."""
        return self.load_model(role)

    def pooled_states(self, of: StatesOf) -> Tensor:
        """States 0..L of a model where its head reads them: [layers + 1, examples, width]."""
        return self.load_states(of)


@dataclass(frozen=True)
class LocalisationResult:
    """Tidy tables; layers are numbered from 1.

    Every technique has layers; those that modify windows of layers have windows, predictions and
    examples too; `details` are tables that only one technique has.

    - layers: technique, layer, weight, spread (standard deviation over the technique's own seeds)
    - windows: technique, first_layer, last_layer, size, noisy_error, clean_error
    - predictions: technique, first_layer, last_layer, example, predicted
    - examples (the noisy ones): technique, example, memorised, smallest_window, first_layer,
      last_layer
    """

    layers: pd.DataFrame
    windows: pd.DataFrame | None = None
    predictions: pd.DataFrame | None = None
    examples: pd.DataFrame | None = None
    details: Tables = field(default_factory=dict)
    costs: dict[str, Any] = field(default_factory=dict)

    @property
    def tables(self) -> Tables:
        """The tables that there are, by name."""
        named = {
            "layers": self.layers,
            "windows": self.windows,
            "predictions": self.predictions,
            "examples": self.examples,
        }
        return {k: table for k, table in named.items() if table is not None} | self.details


class Technique(Protocol):
    """The least a technique must have: a name, and a score per layer.

    It may declare what `Method` declares, and a pydantic model `Config`; it is then constructed
    with one. Without `needs` it gets the memorised and the original model.
    """

    name: str

    def score(self, context: Context) -> pd.DataFrame:
        """One row per layer: `layer` (from 1) and `weight` (the larger, the more memorisation)."""
        ...


class Method(Protocol):
    """A technique in full: says how much each layer has to do with memorisation.

    The attributes are literals in the source, so that planning can read them without importing
    what a technique needs for its work.
    """

    name: str
    revision: int
    """Part of the key of stored results: raise it when the same input would give another result."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Roles of the models it looks at; `states:ROLE` if pooled states are enough."""
        ...

    @property
    def settings(self) -> tuple[str, ...]:
        """Fields of `TechniquesConfig` that determine its result."""
        ...

    def localise(self, context: Context, report: Report) -> LocalisationResult:
        """Analyse; `report` takes the finished fraction."""
        ...


class WindowedMethod(Method, Protocol):
    """A technique whose windows are so much work that each is a job of its own.

    It declares `windowed = True`.
    """

    def window(self, context: Context, window: Window, report: Report) -> Tables:
        """The findings on one window."""
        ...

    def combine(
        self, context: Context, windows: Sequence[Window], parts: Sequence[Tables]
    ) -> LocalisationResult:
        """The result from the findings on all windows; needs no model."""
        ...


class Scored:
    """A technique that only scores layers, as a method; its answer is checked."""

    def __init__(self, technique: Technique) -> None:
        self.technique = technique
        self.name = technique.name
        self.revision: int = getattr(technique, "revision", 1)
        self.needs: tuple[str, ...] = getattr(technique, "needs", ("memorised", "original"))
        self.settings: tuple[str, ...] = getattr(technique, "settings", ())

    def localise(self, context: Context, report: Report) -> LocalisationResult:
        """Ask for the scores."""
        table = self.technique.score(context)
        report(1.0)
        return LocalisationResult(check_scores(self.name, table, context.n_layers))


def check_scores(name: str, table: Any, n_layers: int) -> pd.DataFrame:
    """The scores of a technique as a table of layers.

    Raises:
        MethodFailed: Saying what is wrong with them.
    """

    def fail(what: str) -> MethodFailed:
        return MethodFailed(f"technique {name!r} {what}; it must return one weight for each layer")

    if not isinstance(table, pd.DataFrame) or not {"layer", "weight"} <= set(table.columns):
        raise fail("returned no table with columns layer and weight")
    layers = table["layer"].tolist()
    if sorted(layers) != list(range(1, n_layers + 1)):
        shown = ", ".join(map(str, layers[:20]))
        raise fail(f"returned weights for layers {shown or 'none'} of a model with {n_layers}")
    ordered = table.set_index("layer").sort_index()
    try:
        weights = ordered["weight"].to_numpy(dtype=np.float64)
    except (TypeError, ValueError):
        raise fail("returned weights that are no numbers") from None
    if not np.isfinite(weights).all():
        bad = int(np.flatnonzero(~np.isfinite(weights))[0])
        raise fail(f"returned {weights[bad]} for layer {bad + 1}")
    spread = ordered["spread"].to_numpy(dtype=np.float64) if "spread" in ordered else np.nan
    return layer_table(name, weights, spread)


REGISTRY: dict[str, type[Any]] = {}
M = TypeVar("M", bound=Method | Technique)


def register(method: type[M]) -> type[M]:
    """Class decorator: make a technique of memloc known under its name."""
    REGISTRY[method.name] = method
    return method
