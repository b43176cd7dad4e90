"""The protocol of localisation techniques, what they are given and what they return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import pandas as pd

if TYPE_CHECKING:
    from memloc.config import Dtype
    from memloc.data.encode import Encoded
    from memloc.models.blocks import BlockModel

Report = Callable[[float], None]


@dataclass(frozen=True)
class Context:
    """The models and examples to analyse.

    `examples` has one row per training example in the order of `encoded`, with columns example,
    label (as trained), original_label and noisy.
    """

    examples: pd.DataFrame
    encoded: Encoded
    memorised: BlockModel
    original: BlockModel
    dtype: Dtype = "float32"


@dataclass(frozen=True)
class LocalisationResult:
    """Tidy tables; layers are numbered from 1.

    - layers: technique, layer, weight
    - windows: technique, first_layer, last_layer, size, noisy_error, clean_error
    - predictions: technique, first_layer, last_layer, example, predicted
    - examples (the noisy ones): technique, example, memorised, smallest_window, first_layer,
      last_layer
    """

    layers: pd.DataFrame
    windows: pd.DataFrame
    predictions: pd.DataFrame
    examples: pd.DataFrame
    costs: dict[str, Any] = field(default_factory=dict)

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """The tables by name."""
        return {
            "layers": self.layers,
            "windows": self.windows,
            "predictions": self.predictions,
            "examples": self.examples,
        }


class Method(Protocol):
    """A technique: says how much each layer has to do with memorisation."""

    name: str
    revision: int
    """Part of the key of stored results: raise it when the same input would give another result."""

    def localise(self, context: Context, report: Report) -> LocalisationResult:
        """Analyse; `report` takes the finished fraction."""
        ...


REGISTRY: dict[str, type[Method]] = {}


def register(method: type[Method]) -> type[Method]:
    """Class decorator: make a technique known under its name."""
    REGISTRY[method.name] = method
    return method
