"""Which techniques the models and data in memory allow, and why not the others."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from memloc.api.prepared import WORDS, Opened
from memloc.config import TechniquesConfig
from memloc.errors import MemlocError
from memloc.techniques import declared, pooling_allows

_SWAPPED = ("bottom_swapped", "top_swapped")


def sort_out(
    names: Sequence[str], found: Opened, techniques: TechniquesConfig
) -> tuple[tuple[str, ...], dict[str, str]]:
    """The possible techniques, and for each of the others a reason.

    Raises:
        MemlocError: If none is possible.
    """
    reasons = {name: _reason(name, found, techniques) for name in names}
    skipped = {name: reason for name, reason in reasons.items() if reason}
    possible = tuple(name for name in names if name not in skipped)
    if not possible:
        words = "; ".join(f"{name} {reason}" for name, reason in skipped.items())
        raise MemlocError(f"no technique is possible: {words}")
    return possible, skipped


def _reason(name: str, found: Opened, techniques: TechniquesConfig) -> str | None:
    return (
        _missing_model(name, found, techniques)
        or _missing_label(name, found)
        or _precision(name, found, techniques)
        or _examples(name, found)
        or _pooling(name, found)
        or _adapters(name, found)
    )


def _needs(name: str, techniques: TechniquesConfig) -> list[str]:
    """Roles of models; the halves that are swapped are of θ_O."""
    roles = [need.removeprefix("states:") for need in declared(name).needs]
    if name == "gradients" and not techniques.gradients.divide_by_frozen:
        roles.remove("frozen")
    return ["original" if role in _SWAPPED else role for role in roles]


def _missing_model(name: str, found: Opened, techniques: TechniquesConfig) -> str | None:
    for role in _needs(name, techniques):
        if role in WORDS and role not in found.roles:
            instead = ", or set undivided=True" if name == "gradients" else ""
            return f"needs {WORDS[role]}, which was not given{instead}"
    return None


def _missing_label(name: str, found: Opened) -> str | None:
    if name == "patching" and "original_label" not in found.context.examples.columns:
        return "counts returns to the correct label, which suspects do not say"
    return None


def _precision(name: str, found: Opened, techniques: TechniquesConfig) -> str | None:
    """Half precision is too coarse for the small steps of training."""
    trained = {
        "retraining": ("memorised", "pretrained"),
        "gradients": ("pretrained",) if techniques.gradients.divide_by_frozen else (),
    }.get(name, ())
    for role in trained:
        precision = found.precisions.get(role)
        if precision in (torch.float16, torch.bfloat16):
            short = str(precision).removeprefix("torch.")
            what = "trains layers" if name == "retraining" else "trains a head"
            return f"{what}, which {short} is too coarse for; give {role} in float32"
    return None


def _examples(name: str, found: Opened) -> str | None:
    noisy = int(found.context.examples["noisy"].sum())
    clean = len(found.context.examples) - noisy
    least = declared(name).smallest_group
    for kind, count in (("noisy", noisy), ("clean", clean)):
        if count < least:
            return f"needs at least {least} {kind} examples, and there are {count}"
    if declared(name).holds_out_clean and clean <= noisy:
        return (
            f"needs more clean examples than noisy ones, and there are {clean} clean and {noisy} "
            "noisy"
        )
    return None


def _pooling(name: str, found: Opened) -> str | None:
    if pooling_allows((name,), found.pooling):
        return None
    return (
        "looks at the state the head reads, but this head does not read the first or the last "
        "token alone"
    )


def _adapters(name: str, found: Opened) -> str | None:
    if name == "weight-change" and found.adapters:
        return "compares weights, but adapters are not merged into them; use merge_and_unload()"
    return None
