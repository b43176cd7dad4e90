"""Where and how jobs run: settings without influence on results (so never part of a key)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from memloc.config import Device, Frozen

ExecutorName = Literal["local", "ray", "slurm"]


class Resources(Frozen):
    """What one job of a kind occupies."""

    cpus: float = Field(1, ge=0)
    gpus: float = Field(0, ge=0, description="A fraction lets several jobs share a GPU.")


class RayConfig(Frozen):
    """Jobs as tasks of a Ray cluster."""

    address: str | None = Field(
        None, description="Of an existing cluster, or `auto`; None starts one on this machine."
    )
    resources: dict[str, Resources] = Field(
        {}, description="By kind of job (train, window, …); `default` is for all others."
    )


class SlurmConfig(Frozen):
    """Workers as jobs of a Slurm array, each of which takes jobs until none are left."""

    workers: int = Field(16, ge=1, description="Workers in the array.")
    at_once: int | None = Field(None, ge=1, description="Cap on workers that run in parallel.")
    minutes: int = Field(240, ge=1, description="Time limit of a worker; it is requeued then.")
    cpus: int = Field(1, ge=1)
    gpus: int = Field(0, ge=0)
    memory_gb: float = Field(16, gt=0)
    partition: str | None = None
    requeues: int = Field(20, ge=0, description="How often a worker comes back.")
    setup: tuple[str, ...] = Field((), description="Shell lines that run before a worker.")
    options: dict[str, Any] = Field({}, description="Further options of sbatch.")


class ExecutionConfig(Frozen):
    """The `execution` part of an experiment."""

    executor: ExecutorName = "local"
    workers: int | None = Field(
        None, ge=1, description="Of `local`: processes; None: one per core, or one per GPU."
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
