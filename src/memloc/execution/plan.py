"""From settings to jobs: θ_O and θ_M per model seed, a frozen model, the techniques on top."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from memloc.config import RunConfig
from memloc.execution.job import Job
from memloc.methods import check_method_names, method_revision
from memloc.models.names import ModelSource

TRAIN_REVISION = 1
"""Part of the key of trained models: raise it when the same settings would train another model."""


@dataclass(frozen=True)
class SeedJobs:
    """The jobs of one model seed."""

    seed: int
    original: Job
    memorised: Job
    methods: dict[str, Job]


@dataclass(frozen=True)
class RunPlan:
    """All jobs of a run."""

    frozen: Job
    seeds: tuple[SeedJobs, ...]

    @property
    def jobs(self) -> list[Job]:
        """In an order in which they could run one after another."""
        trainings = [job for s in self.seeds for job in (s.original, s.memorised)]
        return [*trainings, self.frozen, *(job for s in self.seeds for job in s.methods.values())]


def plan_run(config: RunConfig, data: tuple[str, str], source: ModelSource, device: str) -> RunPlan:
    """Describe everything that a run computes."""
    check_method_names(config.methods)
    model = {
        "fingerprint": source.fingerprint,
        "blocks": config.model.blocks,
        "pair_format": config.model.pair_format,
    }
    where = {
        "source": asdict(source),
        "device": device,
        "trust_remote_code": config.model.trust_remote_code,
    }
    epochs = config.training.epochs

    def training(state: str, seed: int, title: str, cost: float) -> Job:
        return Job(
            "train",
            title,
            {
                "state": state,
                "seed": seed,
                "model": model,
                "training": config.training.model_dump(),
                "revision": TRAIN_REVISION,
            },
            {"data": data},
            where,
            cost,
        )

    seeds = []
    for seed in config.seeds:
        of = f", seed {seed}" if len(config.seeds) > 1 else ""
        original = training("original", seed, f"θ_O: train on original labels{of}", 4.5 * epochs)
        memorised = training("memorised", seed, f"θ_M: train on perturbed labels{of}", 4.5 * epochs)
        methods = {
            name: Job(
                "localise",
                f"{name}{of}",
                {
                    "method": name,
                    "revision": method_revision(name),
                    "model": model,
                    "max_tokens": config.training.max_tokens,
                    "dtype": config.training.dtype,
                },
                {"data": data, "memorised": memorised.artefact, "original": original.artefact},
                where,
                cost=12,
            )
            for name in config.methods
        }
        seeds.append(SeedJobs(seed, original, memorised, methods))
    frozen = training(
        "frozen", min(config.seeds), "frozen model: train the head alone", 2 + 0.1 * epochs
    )
    return RunPlan(frozen, tuple(seeds))
