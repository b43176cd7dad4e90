"""Which techniques the models and data in memory allow, and why not the others."""

from __future__ import annotations

from collections.abc import Sequence

from memloc.api.prepared import WORDS, Opened
from memloc.errors import MemlocError
from memloc.techniques import Circumstances, Technique

_SWAPPED = ("bottom_swapped", "top_swapped")


def sort_out(
    techniques: Sequence[Technique], found: Opened
) -> tuple[list[Technique], dict[str, str]]:
    """The possible techniques, and for each of the others a reason.

    Raises:
        MemlocError: If none is possible.
    """
    precisions = {
        role: str(dtype).removeprefix("torch.") for role, dtype in found.precisions.items()
    }
    there = Circumstances(found.context.examples, found.pooling, precisions, found.adapters)
    reasons = {one.name: _missing_model(one, found) or one.obstacle(there) for one in techniques}
    skipped = {name: reason for name, reason in reasons.items() if reason}
    possible = [one for one in techniques if one.name not in skipped]
    if not possible:
        words = "; ".join(f"{name}: {reason}" for name, reason in skipped.items())
        raise MemlocError(f"no technique is possible: {words}")
    return possible, skipped


def _missing_model(technique: Technique, found: Opened) -> str | None:
    """The halves that are swapped are of θ_O."""
    for need in technique.needed:
        role = need.removeprefix("states:")
        role = "original" if role in _SWAPPED else role
        if role in WORDS and role not in found.roles:
            switch = technique.needs_if.get(need)
            instead = f", unless {technique.name}.{switch} is false" if switch else ""
            return f"{WORDS[role]} is needed, which was not given{instead}"
    return None
