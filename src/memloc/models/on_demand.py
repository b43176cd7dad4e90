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
from memloc.models.blocks import BlockModel, Interceptor

ALIGNMENT = 64
"""Bytes; as torch aligns tensors, so that the same kernels do the same sums."""


def nameless_file(folder: Path | None, size: int, what: str, setting: str) -> Any:
    """A file with room for so many bytes; it vanishes with the process, whatever ends it.

    Raises:
        StoreError: If there is no room for it.
    """
    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
        if hasattr(os, "posix_fallocate"):
            # Writing to a mapped page that the disk has no room for would kill the process.
            os.posix_fallocate(file.fileno(), 0, max(size, 1))
    except OSError as error:
        raise StoreError(
            f"no room for {text.size(size)} of {what} in {str(folder)!r}: "
            f"{error.strerror or error}",
            setting=setting,
            remedy="free some space or change the setting",
        ) from None
    return file


class LayersOnDemand:
    """Takes the layers of a model out of memory, for good; the model gives the same answers.

    Parameters of a layer that is not in memory are empty: `BlockModel.block` brings it back until
    another one is asked for. Parameters that several layers share, and those outside the layers,
    stay in memory. The file has no name in its folder: it vanishes with the process, whatever ends
    it.

    The model can no longer be trained or differentiated. Without a folder, the file is in that of
    the system for temporary files.

    Raises:
        StoreError: If there is no room for the file.
    """

    def __init__(self, model: BlockModel, folder: Path | None = None) -> None:
        self.device = model.device
        self.parameters = _own_parameters(model)
        self.sizes = [sum(map(_aligned, parameters)) for parameters in self.parameters]
        self.buffer = torch.empty(max(self.sizes), dtype=torch.uint8)
        """What a layer is read into; parameters are parts of it, or copies on another device."""
        self.views = [self._views(parameters) for parameters in self.parameters]
        self.layer: int | None = None
        """The one in memory."""
        self.reads = 0
        self.file = self._write(folder)
        for parameters in self.parameters:
            _release(parameters)
        # As long as one tensor is a view of a mapped checkpoint, all of that stays in memory.
        for tensor in (*model.model.parameters(), *model.model.buffers()):
            tensor.data = tensor.data.clone()
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
        for parameter, view in zip(self.parameters[layer - 1], self.views[layer - 1], strict=True):
            parameter.data = view.to(self.device)
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

    def _views(self, parameters: list[nn.Parameter]) -> list[Tensor]:
        """Parts of the buffer, one for each parameter of a layer."""
        views, start = [], 0
        for parameter in parameters:
            part = self.buffer[start : start + parameter.nbytes]
            views.append(part.view(parameter.dtype).view(parameter.shape))
            start += _aligned(parameter)
        return views

    def _write(self, folder: Path | None) -> Any:
        file = nameless_file(folder, sum(self.sizes), "layers", "engine.low_memory")
        for parameters, views, size in zip(self.parameters, self.views, self.sizes, strict=True):
            for parameter, view in zip(parameters, views, strict=True):
                view.copy_(parameter.detach())
            left = self.buffer.numpy().data[:size]
            while left:
                left = left[file.write(left) :]
        return file

    def _read(self, layer: int) -> None:
        # Plain reads: pages of a mapped file would stay in memory.
        left = self.buffer.numpy().data[: self.sizes[layer - 1]]
        self.file.seek(sum(self.sizes[: layer - 1]))
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


def _aligned(parameter: nn.Parameter) -> int:
    """Bytes that it takes in the file."""
    return -(-parameter.nbytes // ALIGNMENT) * ALIGNMENT


def _release(parameters: list[nn.Parameter]) -> None:
    for parameter in parameters:
        parameter.data = torch.empty(0, dtype=parameter.dtype, device=parameter.device)
