"""Memorisation over training time: what techniques find at several epochs of θ_M.

How much is memorised at an epoch is not the share of flipped labels that θ_M gives then: before it
has learned anything, it gives half of those of a task with two classes. What counts is what θ_M
loses with all its layers taken from θ_O of the same epoch, which has never seen a flipped label,
and loses of them more than of the clean ones (which are lost if the layers do not fit):

    lost      = accuracy of θ_M − accuracy of θ_M with all layers of θ_O
    in_layers = lost of the flipped labels − what is lost of the clean ones, if anything

Below `ENOUGH` there is nothing to localise yet. Weights of layers are noise then, so they are
missing, not small.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from memloc.analysis.windows import ENOUGH, centre_of_gravity, lost

MOVED = 0.05
"""A centre of gravity that moves by less than this share of the depth stays where it is."""


@dataclass(frozen=True)
class Examined:
    """What was found at one epoch of one seed, in the tables that results have."""

    seed: int
    epoch: int
    accuracy: Mapping[str, float]
    """Of θ_M, by split (noisy, clean, validation)."""
    layers: pd.DataFrame | None = None
    windows: pd.DataFrame | None = None
    centroids: pd.DataFrame | None = None
    events: pd.DataFrame | None = None

    @property
    def in_layers(self) -> float:
        """Share of flipped labels that layers of θ_O take away; NaN without windows."""
        if self.windows is None:
            return math.nan
        full = self.windows[self.windows["size"] == self.windows["size"].max()]
        noisy, clean = (
            lost(float(full[f"{group}_error"].iloc[0]), self.accuracy[group])
            for group in ("noisy", "clean")
        )
        return float(noisy - max(0.0, clean))

    @property
    def enough(self) -> bool:
        """Whether there is something to localise."""
        return self.in_layers >= ENOUGH

    def weights(self, technique: str) -> np.ndarray | None:
        """Of layers 1..L."""
        if self.layers is None:
            return None
        rows = self.layers[self.layers["technique"] == technique].sort_values("layer")
        return rows["weight"].to_numpy(dtype=np.float64) if len(rows) else None

    def centre(self, technique: str) -> float | None:
        """M-CoG; None where there is nothing to localise."""
        weights = self.weights(technique)
        return centre_of_gravity(weights) if weights is not None and self.enough else None

    def event(self, name: str) -> int | None:
        """The layer of an event of θ_M."""
        if self.events is None:
            return None
        rows = self.events[(self.events["model"] == "memorised") & (self.events["event"] == name)]
        return next((int(layer) for layer in rows["layer"].dropna()), None)


def checkpoint_table(found: list[Examined], weighted: Sequence[str]) -> pd.DataFrame:
    """One row per seed and epoch; `weighted` are the techniques whose weights are compared."""
    rows = [
        {
            "seed": one.seed,
            "epoch": one.epoch,
            "memorised": one.accuracy["noisy"],
            "in_layers": one.in_layers,
            "enough": one.enough,
            "clean_accuracy": one.accuracy["clean"],
            "validation_accuracy": one.accuracy.get("validation", math.nan),
            "clean_error": math.nan if one.windows is None else one.windows["clean_error"].mean(),
            **{f"{name}_m_cog": one.centre(name) for name in weighted},
            **{name: one.event(name) for name in ("crossing", "initiation")},
        }
        for one in found
    ]
    centres = {f"{name}_m_cog": "Float64" for name in weighted}
    return pd.DataFrame(rows).astype({**centres, "crossing": "Int64", "initiation": "Int64"})


def checkpoint_layer_table(found: list[Examined], weighted: Sequence[str]) -> pd.DataFrame:
    """One row per seed, epoch, technique and layer.

    `value` is a weight (missing where there is nothing to localise), or, of centroids, the mean
    position of the noisy examples: 0 at their new class, 1 at the old one.
    """
    parts = []
    for one in found:
        measured = {(name, "weight"): one.weights(name) for name in weighted}
        if not one.enough:
            measured = {key: None if w is None else w * math.nan for key, w in measured.items()}
        if one.centroids is not None:
            of = one.centroids.query("model == 'memorised' and group == 'noisy'")
            measured["centroids", "position"] = of.sort_values("layer")["mean"].to_numpy()
        for (technique, measure), values in measured.items():
            if values is not None:
                names = {"seed": one.seed, "epoch": one.epoch, "technique": technique}
                layers = {"layer": np.arange(1, len(values) + 1), "measure": measure}
                parts.append(pd.DataFrame({**names, **layers, "value": values}))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def checkpoint_window_table(found: list[Examined]) -> pd.DataFrame:
    """Errors of windows: one row per seed, epoch and window."""
    known = {(one.seed, one.epoch): one.windows for one in found if one.windows is not None}
    if not known:
        return pd.DataFrame()
    return (
        pd.concat(known, names=["seed", "epoch"])
        .reset_index(["seed", "epoch"])
        .reset_index(drop=True)
    )


def movement(checkpoints: pd.DataFrame, technique: str) -> dict[int, tuple[int, float, float]]:
    """By seed: the first epoch with a centre of gravity, that centre, and the one at the end.

    Seeds without at least two centres are left out.
    """
    found = {}
    for seed, rows in checkpoints.groupby("seed", sort=False):
        centres = rows.set_index("epoch")[f"{technique}_m_cog"].dropna().sort_index().astype(float)
        if len(centres) > 1:
            ends = float(centres.iloc[0]), float(centres.iloc[-1])
            found[int(str(seed))] = (int(str(centres.index[0])), *ends)
    return found
