"""What this machine can do at best, the yardstick for everything else; and the clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch


def matmul_peak(seconds: float = 1.0) -> float:
    """Best measured floating-point operations per second of one thread, in float32."""
    left, right = torch.randn(1024, 1024), torch.randn(1024, 1024)
    best = 0.0
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        started = time.perf_counter()
        left @ right
        best = max(best, 2 * 1024**3 / (time.perf_counter() - started))
    return best


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds, and what the work returned."""
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result
