"""The layers of a model in a file, one of them in memory at a time.

Techniques that mix θ_M2 and θ_O go through the layers from the bottom up and do everything with one
layer before they turn to the next. So of θ_O a single layer is enough: it is read when it is about
to run, or when somebody asks for it, over the one before.
"""

from __future__ import annotations

import functools
import os
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from memloc import text
from memloc.errors import ModelError, StoreError
from memloc.models.blocks import BlockModel
from memloc.models.intercept import Interceptor

ALIGNMENT = 64
"""Bytes; as torch aligns tensors, so that the same kernels do the same sums."""


class LayersOnDemand:
    """Takes the layers of a model out of memory, for good; the model gives the same answers.

    Parameters of a layer that is not in memory are empty: `BlockModel.block` brings it back until
    another one is asked for. Parameters that several layers share, and those outside the layers,
    stay in memory. The file has no name in its folder: it vanishes with the process, whatever ends
    it.

    Args:
        model: The model. It can no longer be trained or differentiated.
        folder: Where the file goes; None takes the system's folder for temporary files.

    Raises:
        StoreError: If there is no room for the file.
    """

    def __init__(self, model: BlockModel, folder: Path | None = None) -> None:
        self.parameters = _own_parameters(model)
        layouts = [_layout(parameters) for parameters in self.parameters]
        self.sizes = [size for _, size in layouts]
        self.starts = [sum(self.sizes[:index]) for index in range(len(self.sizes))]
        self.file = self._write(folder)
        self.layer: int | None = None
        """The one in memory."""
        self.reads = 0

        device = model.device
        # Read into main memory, then copied to where the model is.
        on_cpu = device.type == "cpu"
        self.read_into = torch.empty(
            max(self.sizes), dtype=torch.uint8, pin_memory=device.type == "cuda"
        )
        self.buffer = self.read_into if on_cpu else torch.empty_like(self.read_into, device=device)
        self.views = [
            [self._view(start, p) for start, p in zip(starts, parameters, strict=True)]
            for (starts, _), parameters in zip(layouts, self.parameters, strict=True)
        ]
        for parameters in self.parameters:
            _release(parameters)
        _let_go_of_files(model.model)
        for layer, block in enumerate(model.stack, start=1):
            Interceptor.of(block).before = functools.partial(self._bring, layer)
        model.before_use = self.fetch

    def fetch(self, layer: int) -> None:
        """Bring a layer (1..L) into memory, in the place of the one that was there."""
        if layer == self.layer:
            return
        if self.layer is not None:
            before, self.layer = self.layer, None  # whatever happens while reading
            _release(self.parameters[before - 1])
        self._read(layer)
        if self.buffer is not self.read_into:
            self.buffer.copy_(self.read_into)
        for parameter, view in zip(self.parameters[layer - 1], self.views[layer - 1], strict=True):
            parameter.data = view
        self.layer = layer
        self.reads += 1

    def _bring(self, layer: int) -> None:
        """Called before a block runs."""
        if torch.is_grad_enabled():
            raise ModelError(
                "the layers of the original model cannot be differentiated while they are in a "
                "file",
                setting="engine.low_memory",
                value=True,
                remedy="leave it out, or compute under torch.no_grad()",
            )
        self.fetch(layer)

    def _view(self, start: int, parameter: nn.Parameter) -> Tensor:
        part = self.buffer[start : start + parameter.nbytes]
        return part.view(parameter.dtype).view(parameter.shape)

    def _write(self, folder: Path | None) -> Any:
        size = sum(self.sizes)
        try:
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
            file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, max(size, 1))
            for start, parameters in zip(self.starts, self.parameters, strict=True):
                for offset, parameter in zip(_layout(parameters)[0], parameters, strict=True):
                    file.seek(start + offset)
                    _write_all(file, parameter)
        except OSError as error:
            raise StoreError(
                f"no room for {text.size(size)} of layers in {str(folder)!r}: "
                f"{error.strerror or error}",
                setting="engine.low_memory",
                value=True,
                remedy="free some space or leave it out",
            ) from None
        return file

    def _read(self, layer: int) -> None:
        # Plain reads: pages of a mapped file would stay in memory.
        left = self.read_into.numpy().data[: self.sizes[layer - 1]]
        self.file.seek(self.starts[layer - 1])
        while left:
            count = self.file.readinto(left)
            if not count:
                raise StoreError(f"the file of layers ends within layer {layer}; run it again")
            left = left[count:]


def _own_parameters(model: BlockModel) -> list[list[nn.Parameter]]:
    """Per layer, the parameters that belong to nothing else."""
    owners = Counter(id(p) for block in model.stack for p in block.parameters())
    inside = set(model.stack.modules())
    for module in model.model.modules():
        if module not in inside:
            owners.update(id(p) for p in module.parameters(recurse=False))
    return [[p for p in block.parameters() if owners[id(p)] == 1] for block in model.stack]


def _layout(parameters: list[nn.Parameter]) -> tuple[list[int], int]:
    """Where each parameter begins, in bytes, and where the last ends."""
    starts, size = [], 0
    for parameter in parameters:
        starts.append(size)
        size += -(-parameter.nbytes // ALIGNMENT) * ALIGNMENT
    return starts, size


def _release(parameters: list[nn.Parameter]) -> None:
    for parameter in parameters:
        parameter.data = torch.empty(0, dtype=parameter.dtype, device=parameter.device)


def _let_go_of_files(model: nn.Module) -> None:
    """Copy what is left: as long as one tensor is a view of a mapped checkpoint, all of it is."""
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data = tensor.data.clone()


def _write_all(file: Any, parameter: nn.Parameter) -> None:
    values = parameter.detach().cpu().contiguous().view(-1).view(torch.uint8)
    left = values.numpy().data
    while left:
        left = left[file.write(left) :]
