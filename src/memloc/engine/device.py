"""Where to compute: CUDA, MPS or the CPU."""

from __future__ import annotations

import os
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
        raise ConfigError(
            "it is not available on this machine", setting="device", value=device, remedy="use auto"
        )
    return device


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, as ``CUDA_VISIBLE_DEVICES`` names them."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        names = [name.strip() for name in given.split(",")]
        # As for CUDA itself, -1 hides all that come after it.
        return [name for name in (names[: names.index("-1")] if "-1" in names else names) if name]
    if not _accelerator_likely():
        return []
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


def _accelerator_likely() -> bool:
    return platform.system() != "Linux" or any(
        Path(node).exists() for node in ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
    )
