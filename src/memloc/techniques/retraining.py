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

With ``batched``, the windows with the same first layer are one model (`memloc.training.batched`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field

from memloc.config import MOST_EPOCHS, Settings, Tail, Training, Unit
from memloc.errors import MemlocError
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
    from memloc.data.encode import Encoded
    from memloc.models.blocks import BlockModel
    from memloc.models.states import StateCache
    from memloc.training.learners import Learner


RATE = "retraining.learning_rate"


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
        batched: bool = Field(
            False,
            description="Retrain windows with the same first layer as one model, for GPUs with "
            "room for it; a model that does not allow it is retrained window by window.",
        )

    config: Config
    name = "retraining"
    needs = ("memorised", "pretrained")
    trains = ("memorised", "pretrained")
    uses_windows = uses_unit = True
    windowed = True
    of_model = ("learning_rate",)
    later = without_effect = ("batched",)  # with dropout, no more than another seed has
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
        Table(
            "one_by_one",
            "windows that could not be retrained as one model, though it was asked for",
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

    def together(self, windows: Sequence[Window]) -> list[tuple[Window, ...]]:
        """Those with the same first layer if they are one model, the largest first."""
        if not self.config.batched:
            return super().together(windows)
        return [
            tuple(sorted((w for w in windows if w.first == first), reverse=True))
            for first in sorted({window.first for window in windows})
        ]

    def localise(self, context: Context, report: Report = lambda _: None) -> Tables:
        """Retrain all windows, one after the other or those with the same first layer at once."""
        from memloc.analysis.windows import chosen_windows

        windows = chosen_windows(context.n_layers, context.windows.sizes)
        parts: dict[Window, Tables] = {}
        # In the order of their first layers, so that each step up needs one layer's pass only.
        for group in sorted(self.together(windows)):

            def part(fraction: float, size: int = len(group)) -> None:
                report((len(parts) + size * fraction) / len(windows))

            parts.update(zip(group, self.group(context, group, part), strict=True))
        return self.combine(context, windows, [parts[window] for window in windows])

    def group(self, context: Context, windows: Sequence[Window], report: Report) -> list[Tables]:
        """Retrain windows with the same first layer as one model, or one by one if need be."""
        import pandas as pd
        import torch

        from memloc.training.batched import CannotBatch

        if len(windows) == 1:
            return super().group(context, windows, report)
        try:
            return self._as_one(context, windows, report)
        except CannotBatch as error:
            reason = str(error)
        except torch.cuda.OutOfMemoryError:
            reason = "as one model, the windows need more memory than the device has"
        parts = super().group(context, windows, report)
        return [part | {"one_by_one": pd.DataFrame({"reason": [reason]})} for part in parts]

    def window(self, context: Context, window: Window, report: Report) -> Tables:
        """Retrain one window; predictions of the noisy and the held-out clean examples."""
        import numpy as np

        from memloc.models.states import predict_logits
        from memloc.training.loop import TrainingFailed

        (noisy,) = context.columns("noisy")
        bench = self._bench(context, *divide(noisy, context.seed))
        try:
            with self._retrained(context, bench, window, report) as (learner, record):
                logits = predict_logits(
                    bench.model,
                    context.encoded,
                    bench.training.dtype,
                    bench.evaluated,
                    learner.forward,
                )
        except TrainingFailed as error:
            # It would fail again, so this is the finding on the window; the others go on.
            return _failure(str(error))
        means = [float(np.mean(epoch)) for epoch in record["losses"]]
        return bench.findings(logits, means, record["block_passes"])

    def weights(
        self, context: Context, window: Window, rows: np.ndarray, report: Report
    ) -> dict[str, Tensor]:
        """What a window and the tail are once they were retrained on some examples, by name.

        Raises:
            TrainingFailed: If the loss is not a number.
        """
        bench = self._bench(context, rows, rows[:0])
        with self._retrained(context, bench, window, report) as (learner, _):
            return {name: p.detach().clone() for name, p in learner.trainable().items()}

    @contextlib.contextmanager
    def _retrained(
        self, context: Context, bench: _Bench, window: Window, report: Report
    ) -> Iterator[tuple[Learner, dict[str, Any]]]:
        """Inside, a window of θ_M2 is retrained: what has learned, the losses and block passes.

        Raises:
            TrainingFailed: If the loss is not a number.
        """
        from memloc.training.learners import Learner
        from memloc.training.loop import Objective, train

        model, unit = bench.model, context.windows.unit
        record: dict[str, Any] = {"losses": [], "block_passes": 0}
        resume = context.resume and context.resume.part(f"window-{window.first}-{window.last}")
        if resume is not None:
            resume.keep("record", record)
        with (
            model.reset(window.layers, context.model("pretrained"), unit),
            model.preserved(bench.tail),
        ):
            learner = Learner(
                model,
                context.encoded,
                opened=[*_window_parameters(model, window, unit), *bench.tail],
                rows=bench.rows,
                forward=bench.forward(window.first, record),
                dropout=None if self.config.frozen_dropout else window.layers,
            )
            objective = Objective(learner, bench.answers, bench.training, RATE)
            for (losses,) in train([objective], context.seed, report, resume):
                record["losses"].append(losses)
            yield learner, record

    def _as_one(self, context: Context, windows: Sequence[Window], report: Report) -> list[Tables]:
        """Retrain windows with the same first layer, the largest first, as one model.

        Raises:
            CannotBatch: If the model does not allow it.
        """
        from memloc.models.states import predict_logits
        from memloc.training.batched import Copies, CopiesObjective
        from memloc.training.loop import TrainingFailed, train

        (noisy,) = context.columns("noisy")
        bench = self._bench(context, *divide(noisy, context.seed))
        model, encoded, unit = bench.model, context.encoded, context.windows.unit
        record: dict[str, Any] = {"block_passes": 0}
        resume = context.resume and context.resume.part(f"windows-{windows[0].first}")
        if resume is not None:
            resume.keep("record", record)
        forward = bench.forward(windows[0].first, record)
        parts: list[Tables] = []
        before = _tensors(model)
        with model.reset(windows[0].layers, context.model("pretrained"), unit):
            _check_same_shape(before, _tensors(model))
            copies = Copies(
                model,
                encoded,
                [{*_window_parameters(model, window, unit), *bench.tail} for window in windows],
                before[0],
                rows=bench.rows,
                forward=forward,
                dropout=None if self.config.frozen_dropout else [w.layers for w in windows],
            )
            copies.check()
            record["block_passes"] = 0
            objective = CopiesObjective(copies, bench.answers, bench.training, RATE)
            if resume is not None:
                resume.keep("losses", objective)
            with contextlib.suppress(TrainingFailed):  # all have failed, as is seen below
                for _ in train([objective], context.seed, report, resume):
                    pass
            trained, failures = record["block_passes"], objective.failures()
            for number in range(len(windows)):
                if number in failures:
                    parts.append(_failure(str(failures[number])))
                    continue
                record["block_passes"] = trained
                logits = predict_logits(
                    model,
                    encoded,
                    bench.training.dtype,
                    bench.evaluated,
                    partial(copies.alone, number),
                )
                means = objective.mean_losses()[:, number].tolist()
                parts.append(bench.findings(logits, means, record["block_passes"]))
        return parts

    def _bench(self, context: Context, rows: np.ndarray, evaluated: np.ndarray) -> _Bench:
        """What all windows have in common; `scratch` must be of the same evaluated rows."""
        import torch

        from memloc.models.states import predict_logits
        from memloc.training.learners import tail_parameters

        config, model = self.config, context.model("memorised")
        training = context.training.replace(
            epochs=config.epochs, learning_rate=config.learning_rate
        )
        labels, examples = context.columns("label", "example")
        if "unmodified" not in context.scratch:
            logits = predict_logits(model, context.encoded, training.dtype, evaluated)
            context.scratch["unmodified"] = logits.argmax(axis=1)
        return _Bench(
            model,
            context.encoded,
            training,
            rows,
            evaluated,
            torch.tensor(labels)[torch.from_numpy(rows)].to(model.device),
            examples[evaluated],
            context.scratch["unmodified"],
            () if config.tail == "none" else tail_parameters(model, config.tail),
            self._cache(context, model),
        )

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
        apart = {
            w: part["one_by_one"]["reason"].iloc[0]
            for w, part in zip(windows, parts, strict=True)
            if "one_by_one" in part
        }
        if apart:
            rows = [(self.name, *window, reason) for window, reason in apart.items()]
            details["one_by_one"] = pd.DataFrame(rows, columns=list(self.tables[2].columns))
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


@dataclass(frozen=True)
class _Bench:
    """What all windows of a model have in common.

    Attributes:
        model: θ_M2.
        encoded: All examples.
        training: How windows are trained.
        rows: Of the examples they learn from.
        evaluated: Rows of the noisy and the held-out clean examples.
        answers: Labels of the examples they learn from.
        examples: Numbers of the evaluated ones.
        unmodified: What θ_M2 answers to them.
        tail: Names of the parameters that learn beside the window.
        cache: States below the window.
    """

    model: BlockModel
    encoded: Encoded
    training: Training
    rows: np.ndarray
    evaluated: np.ndarray
    answers: Tensor
    examples: np.ndarray
    unmodified: np.ndarray
    tail: tuple[str, ...]
    cache: StateCache | None

    def forward(self, first: int, record: dict[str, Any]) -> Callable[[np.ndarray], Tensor]:
        """Logits of examples by their rows; `record` counts the passes of layers."""
        if self.cache is not None:
            self.cache.move_to(first - 1)

        def run(rows: np.ndarray) -> Tensor:
            below = 0 if self.cache is None else first - 1
            record["block_passes"] += self.model.n_layers - below
            if self.cache is None:
                return self.model.logits(self.encoded.batch(rows.tolist(), self.model.device))
            return self.model.resume(*self.cache.batch(rows), below)

        return run

    def findings(self, logits: np.ndarray, losses: Sequence[float], block_passes: int) -> Tables:
        """On one window: the logits of the evaluated examples, and the losses by epoch."""
        import numpy as np
        import pandas as pd

        if not np.isfinite(logits).all():
            return _failure(
                str(
                    MemlocError(
                        "the retrained model answers with NaN or infinite logits",
                        setting=RATE,
                        value=self.training.learning_rate,
                        remedy="lower it",
                    )
                )
            )
        return {
            "predictions": pd.DataFrame(
                {
                    "example": self.examples,
                    "predicted": logits.argmax(axis=1),
                    "unmodified": self.unmodified,
                }
            ),
            "losses": pd.DataFrame(
                {
                    "epoch": range(1, len(losses) + 1),
                    "loss": losses,
                    "block_passes": block_passes,
                }
            ),
        }


def _failure(reason: str) -> Tables:
    import pandas as pd

    return {"failure": pd.DataFrame({"reason": [reason]})}


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


def _tensors(model: BlockModel) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Parameters and buffers by name."""
    return dict(model.model.named_parameters()), dict(model.model.named_buffers())


def _check_same_shape(
    before: tuple[dict[str, Tensor], dict[str, Tensor]],
    after: tuple[dict[str, Tensor], dict[str, Tensor]],
) -> None:
    """Whether layers of θ_P differ from those of θ_M2 in the values of parameters alone.

    Raises:
        CannotBatch: If not: such as with adapters, which only θ_M2 has.
    """
    import torch

    from memloc.training.batched import CannotBatch

    shapes = [
        {name: tensor.shape for name, tensor in parameters.items()}
        for parameters, _ in (before, after)
    ]
    buffers = [buffers for _, buffers in (before, after)]
    same = buffers[0].keys() == buffers[1].keys() and all(
        torch.equal(tensor, buffers[1][name]) for name, tensor in buffers[0].items()
    )
    if shapes[0] != shapes[1] or not same:
        raise CannotBatch(
            "the layers of θ_M and of θ_P differ in more than the values of parameters"
        )


def _window_parameters(model: BlockModel, window: Window, unit: Unit) -> set[str]:
    """Names of the parameters of the layers, or of parts of them, after the layers were reset."""
    if unit != "layer":
        return {name for layer in window.layers for name in model.groups.of(unit)[layer - 1]}
    # Not `model.groups`: a layer that was reset may have other parameters (no adapters).
    inside = {id(p) for layer in window.layers for p in model.block(layer).parameters()}
    return {name for name, p in model.model.named_parameters() if id(p) in inside}
