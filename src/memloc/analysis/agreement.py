"""Do techniques agree on the layers? Spearman's ρ between their layer weights (Figures 8, 9)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from memloc.analysis.correlation import FEWEST, correlate

__all__ = ["AGREEING", "FEWEST", "agreeing_group", "compare_profiles"]

AGREEING = 0.6
"""ρ from which on two profiles count as agreeing."""


def compare_profiles(profiles: Mapping[str, Sequence[float | None]]) -> list[dict[str, Any]]:
    """ρ of every pair of techniques; None where it is not defined."""
    return [
        {"techniques": [one, other], "spearman": _rho(profiles[one], profiles[other])}
        for one, other in combinations(profiles, 2)
    ]


def _rho(one: Sequence[float | None], other: Sequence[float | None]) -> float | None:
    if None in one or None in other:
        return None
    profiles = np.array([one, other], dtype=float)
    if not np.isfinite(profiles).all():
        return None
    return correlate(profiles[0], profiles[1], resamples=0).spearman


def agreeing_group(names: Sequence[str], pairs: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The largest group of techniques of which every pair agrees; the best such group on a tie."""
    rho = {frozenset(pair["techniques"]): pair["spearman"] for pair in pairs}

    def lowest(group: Sequence[str]) -> float:
        values = [rho[frozenset(pair)] for pair in combinations(group, 2)]
        return -math.inf if None in values else min(values)

    for size in range(len(names), 1, -1):
        groups = [group for group in combinations(names, size) if lowest(group) >= AGREEING]
        if groups:
            return max(groups, key=lowest)
    return ()
