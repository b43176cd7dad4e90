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
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field

from memloc.config import MOST_EPOCHS, Settings, Tail, Training, Unit
from memloc.models.names import find_known
from memloc.tables import EPOCH, FIRST, LAST, TECHNIQUE, Column, Table
from memloc.techniques.base import (
    Circumstances,
    Context,
    Report,
    Tables,
    Technique,
    TechniqueFailed,
)

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from memloc.analysis.windows import Window
    from memloc.models.blocks import BlockModel
    from memloc.models.states import StateCache


class Retraining(Technique):
    """Reset layers and train them on clean examples alone."""

    class Config(Settings):
        """All else about the optimiser is as in fine-tuning."""

        epochs: int = Field(
            5, ge=1, le=MOST_EPOCHS, description="Passes over the clean data per window."
        )
        learning_rate: float | None = Field(
            None,
            gt=0,
            description="Peak learning rate (default: 3e-5 for the paper's models of 12 layers, as "
            "in the authors' script; for all others that of the fine-tuning).",
        )
        frozen_dropout: bool = Field(
            False,
            description="Dropout in frozen layers too, as in the authors' program; by default they "
            "are deterministic, so that states below the window can be computed once.",
        )
        tail: Tail | Literal["none"] = Field(
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
    of_model = ("learning_rate",)
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

    def suited_to(self, model: str, training: Training) -> Self:
        """The learning rate of windows, where nobody gave one."""
        if self.config.learning_rate is not None:
            return self
        known = find_known(model)
        rate = (known and known.window_rate) or training.learning_rate
        return type(self)(self.config.replace(learning_rate=rate))

    def cost(self, n_layers: int) -> float:
        """Windows only have to be put together."""
        return 0.01

    def window_cost(self, n_layers: int, window: Window) -> float:
        """A step, as derived above, for all epochs."""
        share = (2 * (n_layers - window.first + 1) + window.size) / (3 * n_layers)
        return 2.2 * self.config.epochs * share

    def obstacle(self, there: Circumstances) -> str | None:
        """As many clean examples as there are noisy ones are held out, and some must be left."""
        counts = there.counts
        if there.examples is not None and counts["clean"] <= counts["noisy"]:
            return (
                "more clean examples than noisy ones are needed, to hold out as many, and there "
                f"are {counts['clean']} clean and {counts['noisy']} noisy"
            )
        return super().obstacle(there)

    def localise(self, context: Context, report: Report = lambda _: None) -> Tables:
        """Retrain all windows, one after the other."""
        from memloc.analysis.windows import chosen_windows

        windows = chosen_windows(context.n_layers, context.windows.sizes)
        parts: dict[Window, Tables] = {}
        # In the order of their first layers, so that each step up needs one layer's pass only.
        for window in sorted(windows):

            def part(fraction: float) -> None:
                report((len(parts) + fraction) / len(windows))

            parts[window] = self.window(context, window, part)
        return self.combine(context, windows, [parts[window] for window in windows])

    def window(self, context: Context, window: Window, report: Report) -> Tables:
        """Retrain one window; predictions of the noisy and the held-out clean examples."""
        import numpy as np
        import pandas as pd
        import torch

        from memloc.models.states import predict_logits
        from memloc.training.learners import Learner, tail_parameters
        from memloc.training.loop import Objective, TrainingFailed, train

        config = self.config
        training = context.training.replace(
            epochs=config.epochs, learning_rate=config.learning_rate
        )
        labels, noisy, examples = context.columns("label", "noisy", "example")
        rows, evaluated = divide(noisy, context.seed)
        model, encoded, unit = context.model("memorised"), context.encoded, context.windows.unit
        cache = self._cache(context, model)
        if "unmodified" not in context.scratch:
            logits = predict_logits(model, encoded, training.dtype, evaluated)
            context.scratch["unmodified"] = logits.argmax(axis=1)
        record: dict[str, Any] = {"losses": [], "block_passes": 0}
        resume = context.resume and context.resume.part(f"window-{window.first}-{window.last}")
        if resume is not None:
            resume.keep("record", record)

        def forward(rows: np.ndarray) -> Tensor:
            below = 0 if cache is None else window.first - 1
            record["block_passes"] += model.n_layers - below
            if cache is None:
                return model.logits(encoded.batch(rows.tolist(), model.device))
            return model.resume(*cache.batch(rows), below)

        tail = () if config.tail == "none" else tail_parameters(model, config.tail)
        with (
            model.reset(window.layers, context.model("pretrained"), unit),
            model.preserved(tail),
        ):
            if cache is not None:
                cache.move_to(window.first - 1)
            learner = Learner(
                model,
                encoded,
                opened=[*_window_parameters(model, window, unit), *tail],
                rows=rows,
                forward=forward,
                dropout=None if config.frozen_dropout else window.layers,
            )
            answers = torch.tensor(labels)[torch.from_numpy(rows)].to(model.device)
            try:
                objective = Objective(learner, answers, training, "retraining.learning_rate")
                for (losses,) in train([objective], context.seed, report, resume):
                    record["losses"].append(losses)
                logits = predict_logits(model, encoded, training.dtype, evaluated, forward)
                if not np.isfinite(logits).all():
                    raise TrainingFailed(
                        "the retrained model answers with NaN or infinite logits",
                        setting="retraining.learning_rate",
                        value=training.learning_rate,
                        remedy="lower it",
                    )
            except TrainingFailed as error:
                # It would fail again, so this is the finding on the window; the others go on.
                return {"failure": pd.DataFrame({"reason": [str(error)]})}
        return {
            "predictions": pd.DataFrame(
                {
                    "example": examples[evaluated],
                    "predicted": logits.argmax(axis=1),
                    "unmodified": context.scratch["unmodified"],
                }
            ),
            "losses": pd.DataFrame(
                {
                    "epoch": range(1, config.epochs + 1),
                    "loss": [float(np.mean(epoch)) for epoch in record["losses"]],
                    "block_passes": record["block_passes"],
                }
            ),
        }

    def combine(
        self, context: Context, windows: Sequence[Window], parts: Sequence[Tables]
    ) -> Tables:
        """Errors, weights and the window that undoes each example.

        Raises:
            TechniqueFailed: If the full window, to which errors are relative, could not be trained.
        """
        import numpy as np
        import pandas as pd

        from memloc.analysis.windows import window_tables

        found = dict(zip(windows, parts, strict=True))
        failed = {w: p["failure"]["reason"].iloc[0] for w, p in found.items() if "failure" in p}
        full = max(windows, key=lambda window: window.size)
        if full in failed:
            raise TechniqueFailed(
                f"{len(failed)} of {len(windows)} windows could not be retrained, the full one "
                f"among them: {failed[full]}"
            )
        found = {window: part for window, part in found.items() if window not in failed}
        answers = [part["predictions"] for part in found.values()]
        losses = [
            part["losses"].assign(technique=self.name, first_layer=w.first, last_layer=w.last)
            for w, part in found.items()
        ]
        details = {"retraining": pd.concat(losses, ignore_index=True)[list(self.tables[0].columns)]}
        if failed:
            rows = [(self.name, *window, reason) for window, reason in failed.items()]
            details["failures"] = pd.DataFrame(rows, columns=list(self.tables[1].columns))
        examples = context.examples.set_index("example").loc[answers[0]["example"]].reset_index()
        tables = window_tables(
            self.name,
            tuple(found),
            np.stack([table["predicted"].to_numpy() for table in answers]),
            answers[0]["unmodified"].to_numpy(),
            examples,
        )
        context.costs["block_passes"] = sum(int(part["block_passes"].iloc[0]) for part in losses)
        return tables | details

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


def divide(noisy: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows to learn from, and rows to evaluate: the noisy ones, then as many clean ones, held out.

    Raises:
        TechniqueFailed: If nothing is left to learn from.
    """
    import numpy as np

    wrong, clean = np.flatnonzero(noisy), np.flatnonzero(~noisy)
    if len(clean) <= len(wrong):
        raise TechniqueFailed(
            f"retraining needs more clean examples than noisy ones, and there are {len(clean)} "
            f"clean and {len(wrong)} noisy; leave the technique out"
        )
    held_out = np.random.default_rng(seed).choice(clean, len(wrong), replace=False)
    return np.setdiff1d(clean, held_out), np.concatenate([wrong, np.sort(held_out)])


def _window_parameters(model: BlockModel, window: Window, unit: Unit) -> set[str]:
    """Names of the parameters of the layers, or of parts of them, after the layers were reset."""
    if unit != "layer":
        return {name for layer in window.layers for name in model.groups.of(unit)[layer - 1]}
    # Not `model.groups`: a layer that was reset may have other parameters (no adapters).
    inside = {id(p) for layer in window.layers for p in model.block(layer).parameters()}
    return {name for name, p in model.model.named_parameters() if id(p) in inside}
