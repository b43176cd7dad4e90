"""Layer retraining (Dankers & Titov 2024, section 3.1).

For every window [a..b] of consecutive layers, layers a..b of θ_M2 are reset to θ_P and trained
again, for a few epochs, on clean examples only; all other layers stay as they are. If the model no
longer gives the flipped labels, the window was needed to remember them:

    error[a..b] = share of noisy examples not predicted as their perturbed label

relative to the error when all layers are retrained. As many clean examples as there are noisy ones
are held out, to see what the window loses beside what it had memorised. With ``unit``, only the
attention of the window's layers, or the rest of them, is reset and learns.

What lies below the window is constant, so its states are computed once per start layer; gradients
flow back to layer a and no further, and no frozen weight gets one. A step costs, in passes of one
layer, 2(L − a + 1) for the states and their gradients and b − a + 1 for the weights, instead of 3L.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch

from memloc.analysis.windows import (
    Window,
    chosen_windows,
    error_matrix,
    error_table,
    layer_weights,
    prediction_table,
    undoing_table,
)
from memloc.config import RetrainingConfig, TrainingConfig, Unit
from memloc.data.encode import Encoded
from memloc.models.blocks import BlockModel
from memloc.models.states import StateCache
from memloc.techniques.base import (
    Context,
    LocalisationResult,
    MethodFailed,
    Report,
    Tables,
    register,
)
from memloc.training.lesson import TrainingFailed
from memloc.training.loop import train_epochs
from memloc.training.resume import ResumePoint
from memloc.training.window_learner import WindowLearner, tail_parameters


@register
class Retraining:
    """Reset layers and train them on clean examples alone."""

    name = "retraining"
    revision = 1
    needs = ("memorised", "pretrained")
    settings = ("window_sizes", "retraining", "unit")
    windowed = True
    holds_out_clean = True

    def localise(self, context: Context, report: Report) -> LocalisationResult:
        """Retrain all windows, one after the other."""
        n_layers = context.model("memorised").n_layers
        windows = chosen_windows(n_layers, context.techniques.window_sizes)
        # In the order of their first layers, so that each step up needs one layer's pass only.
        order = sorted(range(len(windows)), key=lambda index: windows[index])
        parts: list[Tables] = [{}] * len(windows)
        for done, index in enumerate(order):

            def part(fraction: float, done: int = done) -> None:
                report((done + fraction) / len(windows))

            parts[index] = self.window(context, windows[index], part)
        return self.combine(context, windows, parts)

    def window(self, context: Context, window: Window, report: Report) -> Tables:
        """Retrain one window; predictions of the noisy and the held-out clean examples."""
        rows = divide(context.examples["noisy"].to_numpy(), context.seed)
        memorised, config = context.model("memorised"), context.techniques.retraining
        cache = _cache(context, memorised) if _cacheable(memorised, config) else None
        if "unmodified" not in context.scratch:
            whole = WindowLearner(
                memorised, context.encoded, rows.train, Window(1, 1), config, None
            )
            context.scratch["unmodified"] = whole.predict(rows.evaluated, context.training.dtype)
        try:
            found = retrain_window(
                memorised,
                context.model("pretrained"),
                context.encoded,
                torch.tensor(context.examples["label"].to_numpy()),
                rows,
                window,
                context.training.replace(epochs=config.epochs),
                config,
                context.seed,
                cache,
                report,
                context.techniques.unit,
                None if context.resume is None else context.resume.part(_name(window)),
            )
        except TrainingFailed as error:
            # It would fail again, so this is the finding on the window; the others go on.
            return {"failure": pd.DataFrame({"reason": [str(error)]})}
        return {
            "predictions": pd.DataFrame(
                {
                    "example": context.examples["example"].to_numpy()[rows.evaluated],
                    "predicted": found.predicted,
                    "unmodified": context.scratch["unmodified"],
                }
            ),
            "losses": pd.DataFrame(
                {
                    "epoch": range(1, len(found.losses) + 1),
                    "loss": [float(np.mean(epoch)) for epoch in found.losses],
                    "block_passes": found.block_passes,
                }
            ),
        }

    def combine(
        self, context: Context, windows: Sequence[Window], parts: Sequence[Tables]
    ) -> LocalisationResult:
        """Errors, weights and the window that undoes each example.

        Raises:
            MethodFailed: If the full window, to which errors are relative, could not be trained.
        """
        failed = {
            window: part["failure"]["reason"].iloc[0]
            for window, part in zip(windows, parts, strict=True)
            if "failure" in part
        }
        full = max(windows, key=lambda window: window.size)
        if full in failed:
            raise MethodFailed(
                f"{len(failed)} of {len(windows)} windows could not be retrained, the full one "
                f"among them: {failed[full]}"
            )
        chosen = tuple(window for window in windows if window not in failed)
        parts = [part for part in parts if "failure" not in part]
        all_examples = context.examples.set_index("example")
        examples = parts[0]["predictions"]["example"].to_numpy()
        labels = all_examples.loc[examples, "label"].to_numpy()
        noisy = all_examples.loc[examples, "noisy"].to_numpy()
        predicted = np.stack([part["predictions"]["predicted"].to_numpy() for part in parts])
        unmodified = parts[0]["predictions"]["unmodified"].to_numpy()
        errors = error_table(self.name, chosen, predicted, labels, noisy)
        return LocalisationResult(
            layers=layer_weights(self.name, error_matrix(errors)),
            windows=errors,
            predictions=prediction_table(self.name, chosen, predicted, examples),
            examples=undoing_table(
                self.name,
                chosen,
                predicted[:, noisy],
                unmodified[noisy],
                labels[noisy],
                examples[noisy],
            ),
            details={"retraining": self._losses(chosen, parts)} | self._failures(failed),
            costs={
                "block_passes": sum(int(part["losses"]["block_passes"].iloc[0]) for part in parts)
            },
        )

    def _failures(self, failed: dict[Window, str]) -> Tables:
        if not failed:
            return {}
        table = {
            "technique": self.name,
            "first_layer": [window.first for window in failed],
            "last_layer": [window.last for window in failed],
            "reason": list(failed.values()),
        }
        return {"failures": pd.DataFrame(table)}

    def _losses(self, windows: Sequence[Window], parts: Sequence[Tables]) -> pd.DataFrame:
        losses = [
            part["losses"][["epoch", "loss"]].assign(
                technique=self.name, first_layer=window.first, last_layer=window.last
            )
            for window, part in zip(windows, parts, strict=True)
        ]
        order = ["technique", "first_layer", "last_layer", "epoch", "loss"]
        return pd.concat(losses, ignore_index=True)[order]


@dataclass(frozen=True)
class Rows:
    """Which examples a window learns from, and which it is evaluated on."""

    train: np.ndarray
    evaluated: np.ndarray
    """The noisy ones, then the held-out clean ones."""


def divide(noisy: np.ndarray, seed: int) -> Rows:
    """Hold out as many clean examples as there are noisy ones.

    Raises:
        MethodFailed: If nothing is left to learn from.
    """
    wrong, clean = np.flatnonzero(noisy), np.flatnonzero(~noisy)
    if len(clean) <= len(wrong):
        raise MethodFailed(
            f"retraining needs more clean examples than noisy ones, and there are {len(clean)} "
            f"clean and {len(wrong)} noisy; leave it out with --methods"
        )
    held_out = np.random.default_rng(seed).choice(clean, len(wrong), replace=False)
    return Rows(np.setdiff1d(clean, held_out), np.concatenate([wrong, np.sort(held_out)]))


@dataclass(frozen=True)
class Retrained:
    """One retrained window."""

    predicted: np.ndarray
    """Class per evaluated example."""
    losses: list[list[float]]
    """Per epoch and step."""
    block_passes: int
    """Forward passes of a batch through a layer; without those for the states below the window,
    which are shared by the windows that a process happens to compute."""


def retrain_window(
    memorised: BlockModel,
    pretrained: BlockModel,
    encoded: Encoded,
    labels: torch.Tensor,
    rows: Rows,
    window: Window,
    training: TrainingConfig,
    config: RetrainingConfig,
    seed: int,
    cache: StateCache | None,
    report: Report = lambda _: None,
    unit: Unit = "layer",
    resume: ResumePoint | None = None,
) -> Retrained:
    """Reset a window to θ_P, train it on clean examples, predict the others; restore the model."""
    with (
        memorised.reset(window.layers, pretrained, unit),
        memorised.preserved(tail_parameters(memorised, config.tail)),
    ):
        learner = WindowLearner(memorised, encoded, rows.train, window, config, cache, unit)
        targets = labels[torch.from_numpy(rows.train)].to(memorised.device)
        record = _Record(learner)
        if resume is not None:
            resume.keep("record", record)
        for losses in train_epochs(learner, targets, training, seed, report, resume=resume):
            record.losses.append(losses)
        predicted = learner.predict(rows.evaluated, training.dtype)
    return Retrained(predicted, record.losses, learner.block_passes)


class _Record:
    """What is told of a training beside its result; a part of its state (`ResumePoint`)."""

    def __init__(self, learner: WindowLearner) -> None:
        self.learner = learner
        self.losses: list[list[float]] = []

    def tensors(self) -> dict[str, torch.Tensor]:
        return {}

    def values(self) -> dict[str, Any]:
        return {"losses": self.losses, "block_passes": self.learner.block_passes}

    def restore(self, tensors: dict[str, torch.Tensor], values: dict[str, Any]) -> None:
        self.losses, self.learner.block_passes = values["losses"], values["block_passes"]


def _name(window: Window) -> str:
    return f"window-{window.first}-{window.last}"


def _cacheable(model: BlockModel, config: RetrainingConfig) -> bool:
    return model.can_resume and model.ignores_padding and not config.frozen_dropout


def _cache(context: Context, model: BlockModel) -> StateCache:
    if "states" not in context.scratch:
        context.scratch["states"] = StateCache(
            model, context.encoded, context.cache_memory, context.cache_folder
        )
    cache: StateCache = context.scratch["states"]
    return cache
