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

from memloc.analysis.correlation import interval_of_mean
from memloc.config import ConfigError
from memloc.tables import ACCURACY, CELL, GRADIENT_CHOICES

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
    if not all(part.isdecimal() and len(part) < 6 for part in parts):
        raise wrong("it is neither first, middle or last nor layers such as 1+2")
    layers = tuple(sorted(int(part) for part in parts))
    if not all(1 <= layer <= n_layers for layer in layers):
        raise wrong(f"{model!r} has layers 1 to {n_layers}")
    if len(set(layers)) < len(layers):
        raise wrong("it names a layer twice", "name each layer once")
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
        for k in RANKS:
            accuracy = accuracy_at(weights, hidden, k)
            chance = len(hidden) / len(weights)
            rows.append({**cell, "k": k, "accuracy": accuracy, "chance": chance})
    return ACCURACY.frame(rows, "control")


def parse_hidden(name: str) -> tuple[int, ...]:
    """The layers of `hidden_name`."""
    return tuple(int(part) for part in name.split("+"))


def gradient_choices(norms: pd.DataFrame) -> pd.DataFrame:
    """accuracy@k of gradients under every kind of post-processing (appendix E, Table 4).

    Args:
        norms: Columns of `CELL`, state (near_ceiling, frozen), gradient (noisy, clean, difference),
            kind (L1, L2), layer, norm.

    Returns:
        Columns of `CELL`, norm, subtract_clean, divide_by_frozen, k, accuracy. Without norms of the
        frozen model, only rows that do not need it.
    """
    rows = []
    for key, cell in norms.groupby([*CELL, "kind"], sort=False):
        profiles = {
            (str(state), str(gradient)): part.sort_values("layer")["norm"].to_numpy()
            for (state, gradient), part in cell.groupby(["state", "gradient"])
        }
        named = dict(zip([*CELL, "norm"], key, strict=True))
        hidden = parse_hidden(str(named["hidden"]))
        for subtract in (False, True):
            used = "difference" if subtract else "noisy"
            for divide in (False, True):
                if divide and ("frozen", used) not in profiles:
                    continue
                weights = profiles["near_ceiling", used]
                if divide:
                    with np.errstate(divide="ignore", invalid="ignore"):
                        weights = weights / profiles["frozen", used]
                choice = {**named, "subtract_clean": subtract, "divide_by_frozen": divide}
                rows += [
                    {**choice, "k": k, "accuracy": accuracy_at(weights, hidden, k)} for k in RANKS
                ]
    return GRADIENT_CHOICES.frame(rows, "control")


def score(accuracy: pd.DataFrame, by: str, techniques: Sequence[str] | None = None) -> pd.DataFrame:
    """Mean accuracy@k per technique, task or model, with a bootstrap interval (Figure 2).

    A unit is one technique on one set of layers of one task and model; seeds are averaged first.

    Args:
        accuracy: From `accuracy_table`.
        by: `technique`, `task` or `model`.
        techniques: Only these; None takes all.

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
        low, high = interval_of_mean(group["accuracy"].to_numpy()) or (math.nan, math.nan)
        found.append(
            {
                by: name,
                "k": k,
                "accuracy": float(group["accuracy"].mean()),
                "low": low,
                "high": high,
                "n": len(group),
                "chance": float(group["chance"].mean()),
            }
        )
    return pd.DataFrame(found, columns=[by, "k", "accuracy", "low", "high", "n", "chance"])


def score_choices(choices: pd.DataFrame, k: int = 2) -> pd.DataFrame:
    """Mean accuracy@k per model and kind of post-processing (Table 4).

    Returns:
        Columns model, norm, subtract_clean, divide_by_frozen, accuracy, n.
    """
    kind = ["model", "norm", "subtract_clean", "divide_by_frozen"]
    rows = choices[choices["k"] == k].dropna(subset="accuracy")
    grouped = rows.groupby(kind, sort=False)["accuracy"]
    return grouped.agg(accuracy="mean", n="size").reset_index()
