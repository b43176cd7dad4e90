"""What learns: some parameters of a model, from some inputs.

A `Learner` says which parameters are open, which examples they learn from, how the logits of these
are computed, and where dropout acts. All trainings differ in nothing else:

| | open | logits from | dropout |
| --- | --- | --- | --- |
| whole model | all but the embeddings | whole passes | everywhere |
| frozen model | the head, or more of the tail | stored states that it reads | in the head |
| window (`techniques.retraining`) | layers, part of the tail | states below the window | there |
| hidden task | some layers, head or tail | whole passes | everywhere |
| auxiliary task | all layers, a second head | whole passes through that head | everywhere |

The last two train one model together (the control setup, section 3.2): memorisation is hidden in
known layers. The main task, with noisy labels, may change only these and its head. The auxiliary
task, with clean labels, changes the other layers, so that they differ from θ_P too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from memloc.config import Dtype, Tail
from memloc.data.encode import Encoded
from memloc.errors import ModelError
from memloc.models.blocks import BlockModel
from memloc.models.states import autocast, pooled_states, predict_logits


class Learner:
    """Some parameters of a model that learn from examples; all others are frozen.

    Args:
        model: The model.
        train: Inputs; labels are given to the training.
        validation: Inputs that are evaluated too.
        opened: Names of the parameters that learn; by default all but the embeddings.
        rows: Which of the inputs it learns from; by default all.
        forward: Logits of some of the inputs, by their rows; by default an ordinary pass.
        dropout: Layers with dropout, beside the head; by default all of the model has it.
        shared: Whether others train the same model. Then parameters are open in its own passes
            only, and all but the embeddings are another after training.
    """

    def __init__(
        self,
        model: BlockModel,
        train: Encoded,
        validation: Encoded | None = None,
        *,
        opened: Iterable[str] | None = None,
        rows: np.ndarray | None = None,
        forward: Callable[[np.ndarray], Tensor] | None = None,
        dropout: Collection[int] | None = None,
        shared: bool = False,
    ) -> None:
        self.model, self.train = model, train
        self.validation = Encoded([], train.pad_id) if validation is None else validation
        self.device = model.device
        self.rows = np.arange(len(train)) if rows is None else rows
        self.lengths: np.ndarray = train.lengths[self.rows]
        self.forward = forward or self.whole_pass
        self.dropout, self.shared = dropout, shared
        names = [name for name, _ in model.model.named_parameters()]
        fixed = set(model.groups.embeddings)
        self.learns_anywhere = [name for name in names if name not in fixed]
        chosen = set(self.learns_anywhere if opened is None else opened)
        self.closed = [name for name in names if name not in chosen]

    def trainable(self) -> dict[str, nn.Parameter]:
        """The open parameters by name."""
        closed = set(self.closed)
        return {n: p for n, p in self.model.model.named_parameters() if n not in closed}

    def changed(self) -> dict[str, nn.Parameter]:
        """All parameters that are another after training, be it by a task beside this one."""
        if not self.shared:
            return self.trainable()
        parameters = dict(self.model.model.named_parameters())
        return {name: parameters[name] for name in self.learns_anywhere}

    def logits(self, indices: np.ndarray) -> Tensor:
        """Logits of some training examples, differentiable."""
        if not self.shared:
            return self.forward(self.rows[indices])
        with self.model.frozen(self.closed):
            return self.forward(self.rows[indices])

    def whole_pass(self, rows: np.ndarray) -> Tensor:
        """Logits of some inputs by an ordinary forward pass."""
        return self.model.logits(self.train.batch(rows.tolist(), self.device))

    def evaluate(self, dtype: Dtype) -> np.ndarray:
        """Logits of all training inputs."""
        return predict_logits(self.model, self.train, dtype)

    def evaluate_validation(self, dtype: Dtype) -> np.ndarray:
        """Logits of all validation inputs."""
        return predict_logits(self.model, self.validation, dtype)

    @contextmanager
    def training_mode(self) -> Iterator[None]:
        """Inside, dropout acts and frozen parameters are closed."""
        with ExitStack() as undo:
            if not self.shared:
                undo.enter_context(self.model.frozen(self.closed))
            undo.enter_context(self.model.mode(training=True))
            if self.dropout is not None:
                base = self.model.model.base_model
                assert isinstance(base, nn.Module)
                base.eval()
                for layer in self.dropout:
                    self.model.block(layer).train()
            yield


def tail_parameters(model: BlockModel, which: Tail) -> tuple[str, ...]:
    """Names of the parameters behind the layers that are open."""
    head = set(model.groups.head)

    def learns(name: str) -> bool:
        owner = model.model.get_submodule(name.rpartition(".")[0])
        is_norm = "norm" in type(owner).__name__.lower()
        return which == "all" or name in head or (which == "norm+head" and is_norm)

    return tuple(name for name in model.groups.tail if learns(name))


class TailOnly(Learner):
    """Only the head learns, or more of what lies behind the layers: the frozen model.

    The output of the last layer is constant, so the state that the tail reads is computed once.
    Where the model allows no such short cut, whole passes are made, with the same result. With
    dropout in the layers, that state differs in every step, so whole passes are needed too.

    Args:
        model: The model.
        train: Inputs; labels are given to the training.
        validation: Inputs that are evaluated too.
        tail: What learns.
        dropout: Whether the layers have dropout.
    """

    def __init__(
        self,
        model: BlockModel,
        train: Encoded,
        validation: Encoded,
        tail: Tail = "head",
        dropout: bool = False,
    ) -> None:
        opened = tail_parameters(model, tail)
        if not opened:
            raise ModelError(
                f"{type(model.model).__name__} has no head outside its base model, so there is no "
                "frozen model; leave out the techniques that compare with it"
            )
        super().__init__(
            model,
            train,
            validation,
            opened=opened,
            dropout=None if dropout else (),
        )
        self.cached = model.head_alone
        if self.cached:
            last = (model.n_layers,)
            read = [pooled_states(model, part, layers=last) for part in (train, validation)]
            # States are kept in float32, whatever the model computes in.
            precision = next(model.block(model.n_layers).parameters()).dtype
            self.features = [
                (states[0] if len(states) else states).to(precision) for states in read
            ]
            if not dropout:
                self.forward = self._from_states

    def _from_states(self, rows: np.ndarray) -> Tensor:
        return self.model.tail(self.features[0][torch.from_numpy(rows)].to(self.device))

    def evaluate(self, dtype: Dtype) -> np.ndarray:
        """From the stored states, if possible."""
        return self._from_tail(0, dtype) if self.cached else super().evaluate(dtype)

    def evaluate_validation(self, dtype: Dtype) -> np.ndarray:
        """From the stored states, if possible."""
        if not self.cached or not len(self.features[1]):
            return super().evaluate_validation(dtype)
        return self._from_tail(1, dtype)

    def _from_tail(self, part: int, dtype: Dtype) -> np.ndarray:
        with self.model.mode(training=False), torch.inference_mode(), autocast(self.device, dtype):
            logits = self.model.tail(self.features[part].to(self.device))
        found: np.ndarray = logits.float().cpu().numpy()
        return found


def hidden_task(
    model: BlockModel,
    train: Encoded,
    validation: Encoded,
    layers: tuple[int, ...],
    tail: Tail = "head",
) -> Learner:
    """The main task of the control setup: only some layers, and head or tail, learn from it."""
    opened = [name for layer in layers for name in model.groups.blocks[layer - 1]]
    opened += tail_parameters(model, tail)
    return Learner(model, train, validation, opened=opened, shared=True)


class AuxiliaryTask(Learner):
    """The auxiliary task of the control setup: all layers learn, through a head of its own.

    Args:
        model: The model whose layers are shared.
        donor: A model of the same architecture, with a new head. Only its head is kept.
        train: Inputs.
    """

    def __init__(self, model: BlockModel, donor: BlockModel, train: Encoded) -> None:
        head = set(model.groups.head)
        closed = head | set(model.groups.embeddings)
        names = [name for name, _ in model.model.named_parameters() if name not in closed]
        super().__init__(model, train, opened=names, forward=self._through_head, shared=True)
        places = dict.fromkeys(name.split(".")[0] for name in model.groups.head)
        self.head = {place: donor.model.get_submodule(place) for place in places}

    def trainable(self) -> dict[str, nn.Parameter]:
        """All layers, what else is shared, and its head."""
        return super().trainable() | {
            f"auxiliary {place}.{name}": parameter
            for place, module in self.head.items()
            for name, parameter in module.named_parameters()
        }

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside, the model answers through the second head."""
        own = {place: self.model.model.get_submodule(place) for place in self.head}
        try:
            for place, module in self.head.items():
                module.train(own[place].training)
                setattr(self.model.model, place, module)
            yield
        finally:
            for place, module in own.items():
                setattr(self.model.model, place, module)

    def _through_head(self, rows: np.ndarray) -> Tensor:
        with self.in_place():
            return self.whole_pass(rows)

    def accuracy(self, labels: np.ndarray, dtype: Dtype) -> float:
        """Share of its training examples that it answers as it should."""
        with self.in_place():
            predicted = predict_logits(self.model, self.train, dtype).argmax(axis=1)
        return float((predicted == labels).mean())
