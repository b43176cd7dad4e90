"""Joining a Ray cluster: one sentence if it does not work, and no noise if it does."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any

from memloc.errors import ClusterError

REACH = 5.0
"""Seconds for a cluster to accept a connection."""


def import_ray() -> Any:
    """Ray, told to be quiet.

    Raises:
        ClusterError: If it is not installed.
    """
    # Before the import: Ray reads them then. No reports home, no logs in our terminal, and no
    # minutes of waiting for a port at which something else listens.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "5")
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise ClusterError(
            "executor 'ray' needs Ray, which is not installed; get it with: "
            "pip install 'memloc[ray]'"
        ) from None


def check_address(address: str | None) -> None:
    """Ray itself would try for minutes.

    Raises:
        ClusterError: If nobody listens there.
    """
    if address is None or address == "auto":
        return
    host, colon, port = address.removeprefix("ray://").rstrip("/").rpartition(":")
    if not (host and colon and port.isdecimal()):
        raise ClusterError(
            f"Ray address {address!r} is not possible; give `auto`, HOST:PORT or ray://HOST:PORT"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH).close()
    except (OSError, OverflowError) as error:
        raise _unreachable(address, error) from None


def connect(ray: Any, address: str | None, cores: int) -> None:
    """Join a cluster, or start one on this machine.

    Raises:
        ClusterError: If that is not possible.
    """
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address is None:
        # Ray would reserve a third of the memory for objects; ours are in the store.
        options |= {
            "num_cpus": cores,
            "include_dashboard": False,
            "object_store_memory": 80 * 2**20,
        }
    with _sigterm_kept():
        try:
            ray.init(address or "local", **options)
        except (ConnectionError, RuntimeError, ValueError, ImportError, OSError) as error:
            raise _unreachable(address, error) from None
    _silence()


def _unreachable(address: str | None, error: Exception) -> ClusterError:
    reason = (getattr(error, "strerror", None) or str(error)).strip().splitlines()[0]
    reason = reason.split(". ")[0].rstrip(".")
    if address is None:
        return ClusterError(f"a Ray cluster could not be started on this machine: {reason}")
    remedy = (
        "install Ray's client with: pip install 'ray[client]'"
        if address.startswith("ray://") and isinstance(error, ImportError)
        else "start one with `ray start --head`, check the address, or leave it out to start one "
        "on this machine"
    )
    return ClusterError(f"the Ray cluster {address!r} cannot be reached ({reason}); {remedy}")


@contextlib.contextmanager
def _sigterm_kept() -> Iterator[None]:
    """Ray replaces the handler, and whoever set it relies on it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _silence() -> None:
    """Ray prints a paragraph on standard output for every worker that dies; we say it in words."""
    internals: Any = importlib.import_module("ray._private.worker")
    if hasattr(internals, "print_to_stdstream"):
        internals.print_to_stdstream = lambda *given, **named: None
