"""Where and how jobs run: settings without influence on results (so never part of a key)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from memloc.config import Device, Settings

ExecutorName = Literal["local", "ray", "slurm"]
TrackerName = Literal["trackio", "wandb"]
MOST_WORKERS = 100_000


class Resources(Settings):
    """What one job of a kind occupies."""

    cpus: float = Field(1, gt=0)
    gpus: float = Field(0, ge=0, description="A fraction lets several jobs share a GPU.")


class RayConfig(Settings):
    """Workers as actors of a Ray cluster, each of which does one job at a time."""

    address: str | None = Field(
        None, description="Of an existing cluster, or `auto`; None starts one on this machine."
    )
    resources: dict[str, Resources] = Field(
        {},
        description="By kind of job (train, window, …); `default` is for all others. Without it, a "
        "job occupies a core, and a GPU if it computes on one.",
    )


class SlurmConfig(Settings):
    """Workers as jobs of a Slurm array, each of which takes jobs until none are left."""

    cluster: Literal["slurm", "local"] = Field(
        "slurm", description="local: processes of this machine, to try out settings without Slurm."
    )
    workers: int = Field(16, ge=1, le=MOST_WORKERS, description="Workers in the array.")
    at_once: int | None = Field(None, ge=1, description="Cap on workers that run in parallel.")
    minutes: int = Field(240, ge=1, description="Time limit of a worker; it is requeued then.")
    cpus: int = Field(
        1, ge=1, description="Of a worker; without GPUs it does as many jobs at a time."
    )
    gpus: int = Field(
        0, ge=0, description="Of a worker; with several it does as many jobs at a time."
    )
    memory_gb: float = Field(16, gt=0, description="Of a worker.")
    partition: str | None = None
    requeues: int = Field(20, ge=0, description="How often a worker comes back after a time-out.")
    setup: tuple[str, ...] = Field((), description="Shell lines that run before a worker.")
    options: dict[str, Any] = Field(
        {}, description="Further options of sbatch by their long names, such as account."
    )


class ExecutionConfig(Settings):
    """The `execution` part of an experiment."""

    executor: ExecutorName = "local"
    workers: int | None = Field(
        None,
        ge=1,
        le=MOST_WORKERS,
        description="Of `local`: processes; None: one per core, or one per GPU. Of `ray`: at most "
        "so many; None: as many as fit. Slurm has its own.",
    )
    device: Device = "auto"
    save_every: float = Field(
        10.0, gt=0, description="Minutes between two saved states of a running training."
    )
    cache_memory: int | None = Field(
        None, ge=0, description="Bytes of states a process keeps in memory; more go to a file."
    )
    low_memory: bool = False
    ray: RayConfig = RayConfig()
    slurm: SlurmConfig = SlurmConfig()

    def where(self, device: str) -> dict[str, Any]:
        """For `Job.where`."""
        return {
            "device": device,
            "cache_memory": self.cache_memory,
            "low_memory": self.low_memory,
            "save_every": self.save_every * 60,
        }
