"""Each technique alone, for those who build their own experiments.

    with memloc.prepare(memorised=model_m, original=model_o, tokenizer=tok, data=df) as context:
        found = memloc.api.single.swapping(context, window_sizes=[1, 2])
    found.layers, found.windows

A `Context` can also be made by hand, from `BlockModel`s: see `memloc.Context.of`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from memloc.api.arguments import sizes_of, spoken
from memloc.config import (
    GradientsConfig,
    Norm,
    Objective,
    ProbingConfig,
    RetrainedTail,
    RetrainingConfig,
    ShapleyConfig,
)
from memloc.techniques import find_method, method_names
from memloc.techniques.base import Context, LocalisationResult

__all__ = [
    "apply",
    "gradients",
    "names",
    "patching",
    "probing",
    "retraining",
    "shapley",
    "swapping",
]

_OWN = {
    "retrain_epochs": "epochs",
    "retrain_tail": "tail",
    "gradient_objective": "objective",
    "gradient_norm": "norm",
    "keep_clean": "subtract_clean",
    "undivided": "divide_by_frozen",
    "probe_seeds": "seeds",
    "probe_epochs": "epochs",
    "shapley_error": "standard_error",
    "shapley_orders": "orders",
}
"""Arguments here, where the technique is known, by those of `localise`."""


def names() -> tuple[str, ...]:
    """All techniques, also those of other packages."""
    return method_names()


def apply(
    name: str, context: Context, report: Callable[[float], None] | None = None, **options: Any
) -> LocalisationResult:
    """Any technique by its name, with the settings of the context.

    Args:
        name: One of `names()`.
        context: Models and data.
        report: Called with the finished fraction.
        options: Of a technique from another package.
    """
    with spoken():
        return find_method(name, options).localise(context, report or (lambda _: None))


@spoken(names=_OWN)
def swapping(
    context: Context, *, window_sizes: int | str | Sequence[int] | None = None
) -> LocalisationResult:
    """Swap windows of layers for those of θ_O."""
    return apply("swapping", _with(context, window_sizes=sizes_of(window_sizes)))


@spoken(names=_OWN)
def retraining(
    context: Context,
    *,
    window_sizes: int | str | Sequence[int] | None = None,
    epochs: int = 5,
    tail: RetrainedTail = "norm+head",
    frozen_dropout: bool = False,
) -> LocalisationResult:
    """Reset windows of layers to θ_P and train them on clean examples."""
    config = RetrainingConfig.make(epochs=epochs, tail=tail, frozen_dropout=frozen_dropout)
    return apply(
        "retraining", _with(context, window_sizes=sizes_of(window_sizes), retraining=config)
    )


@spoken(names=_OWN)
def gradients(
    context: Context,
    *,
    objective: Objective = "nll",
    norm: Norm = "L1",
    subtract_clean: bool = True,
    divide_by_frozen: bool = True,
    per_example: bool = False,
) -> LocalisationResult:
    """Which layers would have to change most to forget?"""
    config = GradientsConfig.make(
        objective=objective,
        norm=norm,
        subtract_clean=subtract_clean,
        divide_by_frozen=divide_by_frozen,
        per_example=per_example,
    )
    return apply("gradients", _with(context, gradients=config))


@spoken(names=_OWN)
def probing(context: Context, *, seeds: int = 5, epochs: int = 100) -> LocalisationResult:
    """After which layer can a probe tell wrong labels from clean ones?"""
    return apply("probing", _with(context, probing=ProbingConfig.make(seeds=seeds, epochs=epochs)))


@spoken(names=_OWN)
def shapley(
    context: Context, *, standard_error: float = 0.01, orders: int = 400
) -> LocalisationResult:
    """What a layer adds when layers are swapped in any order."""
    config = ShapleyConfig.make(standard_error=standard_error, orders=orders)
    return apply("shapley", _with(context, shapley=config))


def patching(context: Context) -> LocalisationResult:
    """Put the state of the other model into a run, after each layer."""
    return apply("patching", context)


def _with(context: Context, **settings: Any) -> Context:
    return replace(context, techniques=context.techniques.replace(**settings))
