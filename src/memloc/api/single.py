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

import memloc.techniques as all_techniques
from memloc.api.arguments import sizes_of, spoken
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
    return all_techniques.names()


def apply(
    name: str, context: Context, report: Callable[[float], None] | None = None, **options: Any
) -> LocalisationResult:
    """Any technique by its name.

    Args:
        name: One of `names()`.
        context: Models and data.
        report: Called with the finished fraction.
        options: Settings of the technique.
    """
    with spoken():
        return all_techniques.make(name, options).localise(context, report or (lambda _: None))


@spoken(names=_OWN)
def swapping(
    context: Context, *, window_sizes: int | str | Sequence[int] | None = None
) -> LocalisationResult:
    """Swap windows of layers for those of θ_O."""
    return apply("swapping", _with(context, window_sizes))


@spoken(names=_OWN)
def retraining(
    context: Context,
    *,
    window_sizes: int | str | Sequence[int] | None = None,
    **settings: Any,
) -> LocalisationResult:
    """Reset windows of layers to θ_P and train them on clean examples."""
    return apply("retraining", _with(context, window_sizes), **settings)


@spoken(names=_OWN)
def gradients(context: Context, **settings: Any) -> LocalisationResult:
    """Which layers would have to change most to forget?"""
    return apply("gradients", context, **settings)


@spoken(names=_OWN)
def probing(context: Context, **settings: Any) -> LocalisationResult:
    """After which layer can a probe tell wrong labels from clean ones?"""
    return apply("probing", context, **settings)


@spoken(names=_OWN)
def shapley(context: Context, **settings: Any) -> LocalisationResult:
    """What a layer adds when layers are swapped in any order."""
    return apply("shapley", context, **settings)


def patching(context: Context) -> LocalisationResult:
    """Put the state of the other model into a run, after each layer."""
    return apply("patching", context)


def _with(context: Context, sizes: int | str | Sequence[int] | None) -> Context:
    return replace(context, windows=context.windows.replace(sizes=sizes_of(sizes)))
