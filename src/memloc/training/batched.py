"""Copies of one model that learn as one: `torch.func.vmap` over their parameters.

Windows with the same first layer read the same states, in the same order. So the models in which
they are retrained can be one model whose parameters have a further dimension. On a GPU that small
batches leave idle, this replaces many small products by few large ones.

A copy is what it would be alone. It has its own loss, its own gradient norm to be clipped and its
own moments in AdamW. The order of the batches and the schedule are common to all. Without
dropout, losses are those of the copies one after the other, up to rounding. With dropout, every
copy draws masks of its own, other ones than it would alone: results then differ as those of two
seeds do.

Memory: of every layer there are as many weights, gradients and pairs of moments as copies that
learn in it. A layer in which only some learn is also there once more per copy during a step, for
its frozen weights are put beside the others. If the model has dropout, such a layer runs twice,
with and without, as frozen layers have none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.functional import cross_entropy

from memloc.config import Training
from memloc.data.encode import Encoded
from memloc.errors import MALFORMED
from memloc.models.blocks import BlockModel, Interceptor
from memloc.models.states import autocast
from memloc.training.learners import Learner
from memloc.training.loop import Objective, TrainingFailed

Run = Callable[..., Any]
TOLERANCE = 1e-3
"""Of logits of copies together and alone, relative to the largest."""
ROUNDING = 1e-5
"""Logits with and without dropout differ by more, relative to the largest."""


class CannotBatch(Exception):
    """A model whose copies cannot be run as one; the message says why."""


class Copies(Learner):
    """Copies of a model that learn from the same examples.

    Args:
        model: The model. Parameters start from its own; it is not changed.
        train: Inputs.
        opened: Per copy, the names of the parameters that learn: all of the next copy's, or more.
        frozen: Values of parameters that only some copies learn, for the others.
        rows: Which of the inputs they learn from.
        forward: Logits of some of the inputs by a pass of the model.
        dropout: Per copy, the layers with dropout beside the head: all of the next copy's, or more.
            None if all of the model has it.
    """

    def __init__(
        self,
        model: BlockModel,
        train: Encoded,
        opened: Sequence[Collection[str]],
        frozen: Mapping[str, Tensor],
        *,
        rows: np.ndarray,
        forward: Callable[[np.ndarray], Tensor],
        dropout: Sequence[Collection[int]] | None,
    ) -> None:
        widest = None if dropout is None else dropout[0]
        super().__init__(model, train, opened=(), rows=rows, forward=forward, dropout=widest)
        self.size = len(opened)
        self.number: Tensor | None = None
        """Of the copy, inside a pass of all of them."""
        self.whole = _Whole(model.model, forward)
        self.learned: dict[str, nn.Parameter] = {}
        for name, own in model.model.named_parameters():
            copies = sum(name in names for names in opened)
            if copies:
                start = own.detach().expand(copies, *own.shape).clone()
                self.learned[name] = nn.Parameter(start)
        self.frozen = {n: frozen[n].detach() for n, p in self.learned.items() if len(p) < self.size}
        self.has_dropout = True
        """Whether the model has any; `check` finds out."""
        self.partly: dict[int, int] = {}
        """Layers in which only some copies have dropout, and how many."""
        for layer in widest or ():
            copies = sum(layer in layers for layers in dropout or ())
            if copies < self.size:
                self.partly[layer] = copies

    def trainable(self) -> dict[str, nn.Parameter]:
        """All parameters that learn, [copies, ...] each: those of the first copies."""
        return self.learned

    def logits(self, indices: np.ndarray) -> Tensor:
        """Logits of some training examples: [copies, examples, classes]."""
        rows = self.rows[indices]

        def of_one(weights: dict[str, Tensor], number: Tensor) -> Tensor:
            self.number = number
            result: Tensor = functional_call(self.whole, weights, (rows,))
            return result

        weights = {f"model.{name}": self._of_all(name) for name in self.learned}
        numbers = torch.arange(self.size, device=self.device)
        try:
            result: Tensor = vmap(of_one, randomness="different")(weights, numbers)
        finally:
            self.number = None
        return result

    def alone(self, number: int, rows: np.ndarray) -> Tensor:
        """Logits of some inputs by one copy, in evaluation mode: [examples, classes]."""
        weights = {
            f"model.{name}": own[number] if number < len(own) else self.frozen[name]
            for name, own in self.learned.items()
        }
        result: Tensor = functional_call(self.whole, weights, (rows,))
        return result

    def _of_all(self, name: str) -> Tensor:
        own = self.learned[name]
        others = self.size - len(own)
        if not others:
            return own
        frozen = self.frozen[name]
        return torch.cat([own, frozen.expand(others, *frozen.shape)])

    def check(self) -> None:
        """Make sure that the copies, run as one, answer as each does alone, and can learn.

        Raises:
            CannotBatch: If not.
        """
        order = np.argsort(self.lengths, kind="stable")
        some = np.unique(order[[0, -1]])
        try:
            with torch.random.fork_rng():
                with self.model.mode(training=False), torch.no_grad():
                    together = self.logits(some)
                    alone = torch.stack([self.alone(n, self.rows[some]) for n in range(self.size)])
                with self.training_mode():
                    learning = self.logits(some)
                    torch.autograd.grad(learning.sum(), [*self.learned.values()], allow_unused=True)
        except torch.cuda.OutOfMemoryError:
            raise
        except (RuntimeError, *MALFORMED) as error:
            words = str(error).strip().partition("\n")[0]
            raise CannotBatch(f"its forward cannot be batched ({words})") from error
        scale = float(alone[alone.isfinite()].abs().max()) if alone.isfinite().any() else 1.0

        def equal(one: Tensor, other: Tensor, tolerance: float) -> bool:
            return torch.allclose(one, other, rtol=0, atol=tolerance * scale, equal_nan=True)

        if not equal(together, alone, TOLERANCE):
            raise CannotBatch("as one model, it gives other logits than one window after the other")
        if equal(together, learning, ROUNDING):
            self.has_dropout = False

    @contextmanager
    def training_mode(self) -> Iterator[None]:
        """Inside, dropout acts, in every copy by itself and only in its layers."""
        with super().training_mode(), ExitStack() as undo:
            if self.has_dropout:
                lowest = 1 if self.dropout is None else min(self.dropout)
                undo.enter_context(self._replaced(lowest, self._with_own_input))
                for layer in self.partly:
                    undo.enter_context(self._replaced(layer, self._with_and_without))
            yield

    @contextmanager
    def _replaced(self, layer: int, other: Callable[[int, Run], Run]) -> Iterator[None]:
        """Inside, the block of a layer does something else than its forward."""
        interceptor = Interceptor.of(self.model.block(layer))
        own = interceptor.forward
        interceptor.forward = other(layer, own)
        try:
            yield
        finally:
            interceptor.forward = own

    def _with_own_input(self, layer: int, own: Run) -> Run:
        """The same, with an input per copy: attention cannot draw masks per copy without it."""

        def run(*args: Any, **kwargs: Any) -> Any:
            assert self.number is not None
            nothing = 0 * self.number
            if args:
                return own(args[0] + nothing, *args[1:], **kwargs)
            return own(**{**kwargs, "hidden_states": kwargs["hidden_states"] + nothing})

        return run

    def _with_and_without(self, layer: int, own: Run) -> Run:
        """With dropout for the copies that learn in a layer, without it for the others."""
        block, copies = self.model.block(layer), self.partly[layer]

        def choose(one: Any, other: Any) -> Any:
            if not isinstance(one, Tensor):
                return one
            assert self.number is not None
            return torch.where(self.number < copies, one, other)

        def run(*args: Any, **kwargs: Any) -> Any:
            with_dropout = own(*args, **kwargs)
            block.eval()
            without = own(*args, **kwargs)
            block.train()
            if isinstance(with_dropout, tuple):
                return tuple(map(choose, with_dropout, without))
            return choose(with_dropout, without)

        return run


class _Whole(nn.Module):
    """A pass of a model that is more than its forward, for `functional_call`."""

    def __init__(self, model: nn.Module, run: Callable[[np.ndarray], Tensor]) -> None:
        super().__init__()
        self.model, self.run = model, run

    def forward(self, rows: np.ndarray) -> Tensor:
        return self.run(rows)


class CopiesObjective(Objective):
    """What a task does to copies of a model: `Objective`, for each of them by itself.

    A copy whose loss is not a number has failed. It is carried along, but has no influence on the
    others. Losses are part of a state that is saved.

    Args:
        copies: The copies.
        labels: Of the examples they learn from.
        config: Settings.
        rate_setting: See `Objective`.
    """

    def __init__(self, copies: Copies, labels: Tensor, config: Training, rate_setting: str) -> None:
        # What `torch.compile` makes does not take the tensors that vmap hands to layers.
        super().__init__(copies, labels, config.replace(compile=False), rate_setting)
        self.copies = copies
        self.losses: list[Tensor] = []
        """Of every step, one per copy."""

    def step(self, indices: np.ndarray) -> Tensor:
        """Learn from one batch, in parts that fit the device; the mean loss of sound copies.

        It is NaN once all have failed.
        """
        size, part = self.copies.size, self.config.micro_batch_size or len(indices)
        total = torch.zeros(size, device=self.copies.device)
        for start in range(0, len(indices), part):
            chunk = indices[start : start + part]
            with autocast(self.copies.device, self.config.dtype):
                logits = self.copies.logits(chunk)
            answers = self.labels[torch.from_numpy(chunk)].repeat(size)
            each = cross_entropy(logits.float().flatten(0, 1), answers, reduction="none")
            loss = each.view(size, -1).sum(dim=1) / len(indices)
            loss.sum().backward()
            total += loss.detach()
        self._clip()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.schedule.step()
        self.losses.append(total)
        return total.where(total.isfinite(), torch.nan).nanmean()

    def mean_losses(self) -> np.ndarray:
        """Per epoch and copy."""
        steps = self._steps().reshape(-1, self.steps_per_epoch, self.copies.size)
        found: np.ndarray = steps.double().mean(dim=1).numpy()
        return found

    def failures(self) -> dict[int, TrainingFailed]:
        """Why copies have failed, by their numbers."""
        found = {}
        steps = self._steps()
        for number in (~steps.isfinite()).any(dim=0).nonzero().flatten().tolist():
            losses = steps[:, number].tolist()
            step = next(i for i, loss in enumerate(losses) if not math.isfinite(loss))
            found[number] = TrainingFailed(
                f"the loss became {losses[step]} in epoch {step // self.steps_per_epoch + 1}",
                setting=self.rate_setting,
                value=self.config.learning_rate,
                remedy="lower it",
            )
        return found

    def _steps(self) -> Tensor:
        if not self.losses:
            return torch.zeros(0, self.copies.size)
        return torch.stack(self.losses).cpu()

    def state_dict(self) -> dict[str, Any]:
        """The losses so far; all else is part of the position in a training."""
        return {"losses": self._steps()}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Go on from there."""
        self.losses = list(state["losses"].to(self.copies.device))

    def _clip(self) -> None:
        """`torch.nn.utils.clip_grad_norm_`, for every copy by itself."""
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        squares = torch.zeros(self.copies.size, device=self.copies.device)
        for gradient in gradients:
            norms = torch.linalg.vector_norm(gradient.reshape(len(gradient), -1), dim=1)
            squares[: len(gradient)] += norms.float().square()
        scale = (self.config.clip_norm / (squares.sqrt() + 1e-6)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(scale[: len(gradient)].view(-1, *[1] * (gradient.dim() - 1)))
