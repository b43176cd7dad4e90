"""Training dynamics of a training by `transformers.Trainer`: `MemlocCallback`."""

from __future__ import annotations

import functools
import inspect
import weakref
from pathlib import Path
from types import MethodType
from typing import Any

import numpy as np
import pandas as pd
import torch
from datasets import Dataset
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from torch import Tensor, nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from memloc.analysis.dynamics import LEAST_EPOCHS, dynamics
from memloc.errors import DataError, MemlocError, ModelError

FILE = "memloc.safetensors"
"""Beside the weights of a checkpoint: what was recorded before it."""
_HANDLES = "_memloc_handles"
_ROWS = "_memloc_rows"


class MemlocCallback(TrainerCallback):
    """Records the logits that a `Trainer` computes for every training example, in every epoch.

    They are those of the training passes, as in the papers on the area under the margin and on
    data maps: with dropout, and while the weights change within the epoch. No example goes through
    the model another time, and training gives the same weights as without the callback.

    The training data are a `datasets.Dataset` with a column that numbers the examples. Evaluation
    data need no such column. Epochs in which training stops early do not count. A training that is
    resumed from a checkpoint goes on with what was recorded before.

    Examples:
        data = data.add_column("row", range(len(data)))
        callback = memloc.MemlocCallback()
        trainer = Trainer(model, arguments, train_dataset=data, callbacks=[callback], ...)
        trainer.train()
        callback.dynamics()

    Attributes:
        row: The name of that column.
        rows: The row numbers, in ascending order.
        labels: The label of each of these rows.
    """

    def __init__(self, row: str = "row") -> None:
        self.row = row
        self.rows = np.zeros(0, dtype=np.int64)
        self.labels = np.zeros(0, dtype=np.int64)
        self._logits: list[np.ndarray] = []
        self._passes: list[np.ndarray] = []
        self._pending: list[tuple[Tensor, Tensor]] = []
        self._model: weakref.ref[Any] | None = None
        self._processes = 1

    # --- what was recorded ----------------------------------------------------------------------

    @property
    def logits(self) -> np.ndarray:
        """[epochs, examples, classes] of the complete epochs; examples as in `rows`.

        Raises:
            DataError: If there are too few, or an epoch does not have every example once.
        """
        # Training may end in the middle of the last one.
        epochs = len(self._passes) - bool(self._passes and not self._passes[-1].all())
        for epoch, passes in enumerate(self._passes[:epochs], start=1):
            # Several processes fill up their last batches with examples from the beginning.
            once = passes > 0 if self._processes > 1 else passes == 1
            if not once.all():
                place = int(np.argmin(once))
                raise DataError(
                    f"the example with row number {self.rows[place]} was seen {passes[place]} "
                    f"times in epoch {epoch}, not once",
                    remedy="train on all examples in every epoch: without sampling, without "
                    "dataloader_drop_last, and with one pass through the model per step",
                )
        if epochs < LEAST_EPOCHS:
            raise DataError(
                f"complete epochs that were recorded: {epochs}, but {LEAST_EPOCHS} are needed to "
                "see how labels are learned",
                remedy=f"let trainer.train() make {LEAST_EPOCHS} epochs or more",
            )
        return np.stack(self._logits[:epochs])

    def dynamics(self) -> pd.DataFrame:
        """How each label was learned, one row per example: see `memloc.analysis.dynamics`.

        Raises:
            DataError: If there are too few epochs, or an epoch does not have every example once.
        """
        table = dynamics(self.logits, self.labels)
        table.insert(0, "row", self.rows)
        return table

    # --- events of the Trainer ------------------------------------------------------------------

    def on_init_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        **kwargs: Any,
    ) -> None:
        """Make the Trainer keep the column, which it drops if the model does not ask for it."""
        self._model = weakref.ref(model)
        _ask_for(_inner(model), self.row)

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        train_dataloader: Any = None,
        **kwargs: Any,
    ) -> None:
        """Look at the data, and start to record."""
        seen = None if self._model is None else self._model()
        if seen is None or seen is not model:
            raise ModelError(
                "MemlocCallback does not know the model that is trained, because it was added to "
                "the Trainer later, or because the Trainer makes another one (model_init, FSDP)",
                remedy="make the Trainer with callbacks=[callback] and with a model",
            )
        _restore_forward(_inner(model))
        if getattr(getattr(model, "config", None), "num_labels", 0) < 2:
            raise ModelError(
                f"the Trainer's model ({type(model).__name__}) does not choose between classes",
                remedy="train a sequence-classification model with two outputs or more",
            )
        data = getattr(train_dataloader, "dataset", None)
        self.rows, self.labels = self._numbered(data, args, model.config.num_labels)
        self._logits, self._passes, self._pending = [], [], []
        self._processes = args.world_size
        if state.global_step:
            self._resume(_checkpoint(args, state))
        _forget(model)  # a callback whose training was interrupted
        setattr(
            model,
            _HANDLES,
            (
                model.register_forward_pre_hook(self._take_rows, with_kwargs=True),
                model.register_forward_hook(self._record),
            ),
        )

    def on_epoch_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        **kwargs: Any,
    ) -> None:
        """Make room, unless training is resumed in the middle of an epoch."""
        if len(self._logits) <= int(state.epoch):
            shape = len(self.rows), model.config.num_labels
            self._logits.append(np.full(shape, np.nan, dtype=np.float32))
            self._passes.append(np.zeros(len(self.rows), dtype=np.int64))

    def on_epoch_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Fetch the logits of the epoch from the device."""
        self._fetch()

    def on_save(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Put what was recorded so far into the checkpoint."""
        self._fetch()
        if state.is_world_process_zero:
            save_file(
                {
                    "rows": self.rows,
                    "labels": self.labels,
                    "logits": np.stack(self._logits),
                    "passes": np.stack(self._passes),
                },
                _checkpoint(args, state),
            )

    def on_train_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        **kwargs: Any,
    ) -> None:
        """Leave the model as it was."""
        _forget(model)

    # --- the work -------------------------------------------------------------------------------

    def _numbered(
        self, data: Any, args: TrainingArguments, n_classes: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Row numbers in ascending order, and their labels."""
        if not isinstance(data, Dataset):
            raise DataError(
                f"the training data of the Trainer are of type {type(data).__name__}",
                remedy="MemlocCallback needs a datasets.Dataset",
            )
        if self.row not in data.column_names:
            raise DataError(
                f"the training data of the Trainer have no column {self.row!r}",
                remedy="add one that numbers the examples: "
                f"dataset = dataset.add_column({self.row!r}, range(len(dataset)))",
            )
        named = ("label", "label_ids", *(args.label_names or ["labels"]))
        label = next((name for name in named if name in data.column_names), None)
        if label is None:
            raise DataError("the training data of the Trainer have no column 'labels' or 'label'")
        plain = data.with_format(None)
        numbers = pd.Series(plain[self.row][:])
        if not pd.api.types.is_integer_dtype(numbers) or not numbers.is_unique:
            raise DataError(
                f"column {self.row!r} of the training data must have whole numbers, a different "
                "one for every example"
            )
        labels = pd.Series(plain[label][:])
        if not pd.api.types.is_integer_dtype(labels) or not labels.between(0, n_classes - 1).all():
            raise DataError(
                f"column {label!r} of the training data must have whole numbers from 0 to "
                f"{n_classes - 1}, the classes of the model"
            )
        order = np.argsort(numbers)
        return numbers.to_numpy()[order], labels.to_numpy()[order]

    def _resume(self, file: Path) -> None:
        """Take up what was recorded before a checkpoint."""
        try:
            recorded = load_file(file)
            same = all(
                np.array_equal(recorded[name], getattr(self, name)) for name in ("rows", "labels")
            )
        except (OSError, LookupError, SafetensorError):
            same = False
        if not same:
            raise MemlocError(
                f"the training is resumed, but {str(file)!r} does not have what was recorded of "
                "these examples before",
                remedy="train from the beginning, or without MemlocCallback",
            )
        self._logits, self._passes = list(recorded["logits"]), list(recorded["passes"])

    def _take_rows(self, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        """Before a pass: the model must not see the row numbers."""
        # On the module, as data-parallel training passes batches through copies of it, at once.
        setattr(module, _ROWS, kwargs.pop(self.row, None))

    def _record(self, module: nn.Module, args: Any, output: Any) -> None:
        """After a pass: keep the logits on the device, so that nothing waits for it."""
        rows = module.__dict__.pop(_ROWS)
        if not module.training:
            return
        if rows is None:
            raise DataError(
                f"column {self.row!r} of the training data does not reach the model",
                remedy="the data collator and compute_loss must pass it on",
            )
        parts = [output["logits"]] if isinstance(output, dict) else output
        logits = next(part for part in parts if part.dim() == 2)
        self._pending.append((torch.as_tensor(rows), logits.detach().clone()))

    def _fetch(self) -> None:
        """Sort the logits that are still on the devices, of all processes, into the epoch."""
        from accelerate.utils import gather_object

        batches = [
            (rows.cpu().numpy(), logits.float().cpu().numpy()) for rows, logits in self._pending
        ]
        self._pending = []
        for rows, logits in gather_object(batches):
            places = np.searchsorted(self.rows, rows)
            self._logits[-1][places] = logits
            np.add.at(self._passes[-1], places, 1)


def _checkpoint(args: TrainingArguments, state: TrainerState) -> Path:
    return Path(str(args.output_dir), f"checkpoint-{state.global_step}", FILE)


def _inner(model: Any) -> Any:
    """The model inside a `peft` one; its signature is what the Trainer looks at."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _ask_for(model: Any, name: str) -> None:
    """Replace `model.forward` by one with another parameter, which it ignores."""
    _restore_forward(model)  # of a Trainer that was made before, and never trained
    before = model.forward
    known = inspect.signature(before).parameters
    if name in known:
        raise DataError(
            f"column {name!r} cannot have the row numbers, as it is an input of the model",
            remedy="give the column another name",
        )

    @functools.wraps(before)
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        kwargs.pop(name, None)
        return before(*args, **kwargs)

    parameters = [
        inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY),
        *known.values(),
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY),
    ]
    ordered = sorted(parameters, key=lambda parameter: parameter.kind)
    vars(forward).update(
        __signature__=inspect.Signature(ordered), memloc_before=vars(model).get("forward")
    )
    model.forward = MethodType(forward, model)  # bound, as accelerate may wrap it


def _restore_forward(model: Any) -> None:
    """Undo `_ask_for`, unless accelerate wrapped it for mixed precision; there it does nothing."""
    forward = vars(model).get("forward")
    if hasattr(forward, "memloc_before"):
        del model.forward
        if forward.memloc_before is not None:
            model.forward = forward.memloc_before


def _forget(model: nn.Module) -> None:
    """Remove the hooks of a callback."""
    for handle in vars(model).pop(_HANDLES, ()):
        handle.remove()
