"""Where to compute: CUDA, MPS or the CPU."""

from __future__ import annotations

import platform
from pathlib import Path

from memloc.config import ConfigError, Device


def pick_device(device: Device) -> str:
    """The device to use; `auto` means CUDA, then MPS, then the CPU.

    Torch is imported only if there may be a choice: it takes seconds, and a run whose results are
    all stored does not need it.

    Raises:
        ConfigError: If the device that was asked for is not there.
    """
    if device == "cpu" or (device == "auto" and not _accelerator_likely()):
        return "cpu"
    import torch

    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if device == "auto":
        return next((name for name, available in there.items() if available), "cpu")
    if not there[device]:
        raise ConfigError(f"device {device!r} is not available on this machine; use --device auto")
    return device


def _accelerator_likely() -> bool:
    return platform.system() != "Linux" or any(
        Path(node).exists() for node in ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
    )
