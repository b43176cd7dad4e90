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
from typing import TYPE_CHECKING

from pydantic import Field

from memloc.config import MOST_EPOCHS, RetrainedTail, Settings
from memloc.tables import EPOCH, FIRST, LAST, TECHNIQUE, Column, Table
from memloc.techniques.base import (
    Context,
    LocalisationResult,
    Report,
    Tables,
    Technique,
    TechniqueFailed,
)

if TYPE_CHECKING:
    import pandas as pd

    from memloc.analysis.windows import Window
    from memloc.models.blocks import BlockModel
    from memloc.models.states import StateCache


class Retraining(Technique):
    """Reset layers and train them on clean examples alone."""

    class Config(Settings):
        """Settings of the optimiser are those of the fine-tuning."""

        epochs: int = Field(
            5, ge=1, le=MOST_EPOCHS, description="Passes over the clean data per window."
        )
        frozen_dropout: bool = Field(
            False,
            description="Dropout in frozen layers too, as in the authors' program; by default they "
            "are deterministic, so that states below the window can be computed once.",
        )
        tail: RetrainedTail = Field(
            "norm+head",
            description="What learns beside the window: norm+head (the authors' program), head, "
            "all (also BERT's pooler), none (the paper's words).",
        )

    config: Config
    name = "retraining"
    needs = ("memorised", "pretrained")
    trains = ("memorised", "pretrained")
    uses_windows = uses_unit = True
    windowed = True
    holds_out_clean = True
    # Held-out examples are a matter of generalisation too.
    clean_loss = 0.3
    clean_remedy = "set retraining.epochs higher"
    tables = (
        Table(
            "retraining",
            "every epoch of the training of a window",
            {
                "technique": TECHNIQUE,
                "first_layer": FIRST,
                "last_layer": LAST,
                "epoch": EPOCH,
                "loss": Column("float64", "mean training loss"),
            },
        ),
        Table(
            "failures",
            "windows that could not be retrained",
            {
                "technique": TECHNIQUE,
                "first_layer": FIRST,
                "last_layer": LAST,
                "reason": Column("str", "why"),
            },
            of=("run", "localise", "control"),
        ),
    )
    colour, marker = "#D55E00", "s"

    def cost(self, n_layers: int) -> float:
        """Windows only have to be put together."""
        return 0.01

    def window_cost(self, n_layers: int, window: Window) -> float:
        """A step, as derived above, for all epochs."""
        share = (2 * (n_layers - window.first + 1) + window.size) / (3 * n_layers)
        return 2.2 * self.config.epochs * share

    def localise(self, context: Context, report: Report = lambda _: None) -> LocalisationResult:
        """Retrain all windows, one after the other."""
        from memloc.analysis.windows import chosen_windows

        n_layers = context.model("memorised").n_layers
        windows = chosen_windows(n_layers, context.windows.sizes)
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
        import numpy as np
        import pandas as pd
        import torch

        from memloc.analysis.windows import Window
        from memloc.training.loop import TrainingFailed
        from memloc.training.window_learner import WindowLearner, divide, retrain_window

        rows = divide(context.examples["noisy"].to_numpy(), context.seed)
        memorised, config = context.model("memorised"), self.config
        cache = self._cache(context, memorised)
        if "unmodified" not in context.scratch:
            whole = WindowLearner(memorised, context.encoded, rows.train, Window(1, 1), None)
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
                context.seed,
                cache,
                report,
                config.tail,
                config.frozen_dropout,
                context.windows.unit,
                None
                if context.resume is None
                else context.resume.part(f"window-{window.first}-{window.last}"),
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
            TechniqueFailed: If the full window, to which errors are relative, could not be trained.
        """
        import numpy as np

        from memloc.analysis.windows import (
            error_matrix,
            error_table,
            layer_weights,
            prediction_table,
            undoing_table,
        )

        failed = {
            window: part["failure"]["reason"].iloc[0]
            for window, part in zip(windows, parts, strict=True)
            if "failure" in part
        }
        full = max(windows, key=lambda window: window.size)
        if full in failed:
            raise TechniqueFailed(
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
        import pandas as pd

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
        import pandas as pd

        losses = [
            part["losses"][["epoch", "loss"]].assign(
                technique=self.name, first_layer=window.first, last_layer=window.last
            )
            for window, part in zip(windows, parts, strict=True)
        ]
        order = ["technique", "first_layer", "last_layer", "epoch", "loss"]
        return pd.concat(losses, ignore_index=True)[order]

    def _cache(self, context: Context, model: BlockModel) -> StateCache | None:
        """States of all examples below the windows, if they are the same in every step."""
        from memloc.models.states import StateCache

        if not (model.can_resume and model.ignores_padding) or self.config.frozen_dropout:
            return None
        if "states" not in context.scratch:
            context.scratch["states"] = StateCache(
                model, context.encoded, context.cache_memory, context.cache_folder
            )
        cache: StateCache = context.scratch["states"]
        return cache
