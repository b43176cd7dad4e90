"""Do techniques find the layers in which memorisation was hidden (section 3.2, Figure 2)?

    accuracy@k = share of the k layers with the highest weights that are among the hidden ones

A technique that knows nothing has (hidden layers) / L on average. Where weights are equal, the
accuracy is the mean over all ways of ordering them, so that no layer is favoured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from memloc.analysis.correlation import interval_of_share
from memloc.errors import ConfigError
from memloc.tables import ACCURACY, CELL

RANKS = (1, 2)
"""k."""
NAMED = ("first", "middle", "last")


def hidden_layers(spec: str, n_layers: int, model: str) -> tuple[int, ...]:
    """The layers that `first`, `middle`, `last` (pairs) or `1+2` stand for in a model.

    Raises:
        ConfigError: If the model has no such layers, or no other ones.
    """

    def wrong(problem: str, remedy: str | None = None) -> ConfigError:
        return ConfigError(problem, setting="layers", value=spec, remedy=remedy)

    if spec in NAMED:
        if n_layers < 3:
            raise wrong(f"{model!r} has only {n_layers}, and a pair hides among at least 3")
        start = {"first": 1, "middle": n_layers // 2, "last": n_layers - 1}[spec]
        return (start, start + 1)
    parts = [part.strip() for part in spec.split("+")]
    if not all(part.isdecimal() for part in parts):
        raise wrong("it is neither first, middle or last nor layers such as 1+2")
    layers = tuple(sorted({int(part) for part in parts}))
    if not all(1 <= layer <= n_layers for layer in layers):
        raise wrong(f"{model!r} has layers 1 to {n_layers}")
    if len(layers) == n_layers:
        raise wrong(
            f"these are all layers of {model!r}, which leaves nothing to find", "name fewer"
        )
    return layers


def hidden_name(layers: Iterable[int]) -> str:
    """`1+2`."""
    return "+".join(map(str, layers))


def accuracy_at(weights: Sequence[float] | np.ndarray, hidden: Iterable[int], k: int) -> float:
    """Share of the k highest-weighted layers (1..L) that are hidden ones; NaN without weights."""
    values = np.asarray(weights, dtype=float)
    if not np.isfinite(values).all():
        return math.nan
    k = min(k, len(values))
    is_hidden = np.isin(np.arange(1, len(values) + 1), list(hidden))
    limit = np.sort(values)[-k]
    above, tied = values > limit, values == limit
    # Of the layers that tie for the last places, every choice is as likely as any other.
    places = k - int(above.sum())
    found = is_hidden[above].sum() + places * is_hidden[tied].mean()
    return float(found / k)


def accuracy_table(layers: pd.DataFrame) -> pd.DataFrame:
    """accuracy@k of every technique on every control model, from layer weights.

    Args:
        layers: Columns of `CELL`, technique, layer, weight.

    Returns:
        Columns of `CELL`, technique, k, accuracy, chance.
    """
    rows = []
    for key, profile in layers.groupby([*CELL, "technique"], sort=False):
        cell = dict(zip([*CELL, "technique"], key, strict=True))
        hidden = parse_hidden(str(cell["hidden"]))
        weights = profile.sort_values("layer")["weight"].to_numpy()
        chance = len(hidden) / len(weights)
        rows += [
            {**cell, "k": k, "accuracy": accuracy_at(weights, hidden, k), "chance": chance}
            for k in RANKS
        ]
    return ACCURACY.frame(rows, "control")


def parse_hidden(name: str) -> tuple[int, ...]:
    """The layers of `hidden_name`."""
    return tuple(int(part) for part in name.split("+"))


def score(accuracy: pd.DataFrame, by: str, techniques: Sequence[str] | None = None) -> pd.DataFrame:
    """Mean accuracy@k per technique, task or model, with the exact interval of a share (Figure 2).

    A unit is one technique on one set of layers of one task and model; seeds are averaged first.
    `by` is one of the three, and `accuracy` is from `accuracy_table`.

    Returns:
        One row per value of `by` and k: accuracy, low, high (none for fewer than four units), n,
        chance.
    """
    rows = accuracy.dropna(subset="accuracy")
    if techniques is not None:
        rows = rows[rows["technique"].isin(techniques)]
    unit = ["technique", "model", "task", "hidden", "k"]
    units = rows.groupby(unit, sort=False, as_index=False)[["accuracy", "chance"]].mean()
    found = []
    for (name, k), group in units.groupby([by, "k"], sort=False):
        low, high = interval_of_share(group["accuracy"].to_numpy()) or (math.nan, math.nan)
        mean, chance = group["accuracy"].mean(), group["chance"].mean()
        found.append((name, k, mean, low, high, len(group), chance))
    return pd.DataFrame(found, columns=[by, "k", "accuracy", "low", "high", "n", "chance"])
