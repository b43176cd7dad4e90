"""From settings to an executor."""

from __future__ import annotations

from pathlib import Path

from memloc.engine.device import pick_device
from memloc.engine.executor import Executor
from memloc.engine.local import LocalExecutor, default_workers
from memloc.engine.settings import ExecutionConfig
from memloc.engine.store.store import Store


def check_executor(config: ExecutionConfig) -> None:
    """What can be checked at once, before long plans are made for it.

    Raises:
        MemlocError: If it cannot be used here.
    """
    if config.executor == "ray":
        from memloc.engine.ray_cluster import check_address, import_ray

        import_ray()
        check_address(config.ray.address)
    elif config.executor == "slurm":
        from memloc.engine.on_slurm import check_slurm

        check_slurm(config.slurm)


def make_executor(config: ExecutionConfig, store: Store, folder: Path) -> Executor:
    """The executor that was asked for.

    Args:
        config: Which one, and its settings.
        store: Where results go.
        folder: For its own files, such as logs of workers elsewhere.

    Raises:
        MemlocError: If it cannot be used here.
    """
    if config.executor == "ray":
        from memloc.engine.on_ray import RayExecutor

        return RayExecutor(store, config.ray, config.workers)
    if config.executor == "slurm":
        from memloc.engine.on_slurm import SlurmExecutor

        return SlurmExecutor(store, config.slurm, folder)
    workers = config.workers or default_workers(pick_device(config.device))
    return LocalExecutor(store, workers)
