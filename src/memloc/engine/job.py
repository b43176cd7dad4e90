"""A job: one artefact to be computed, described by data alone.

A job can be sent to any process on any machine that sees the store. `identity` and the keys of what
it `needs` determine the result and so the key; `where` says how to get at the inputs and does not.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from memloc.engine.store.store import Store, key_of
from memloc.training.resume import forget_states

if TYPE_CHECKING:
    import pandas as pd

    from memloc.data.task import Task

Report = Callable[[float], None]


@dataclass(frozen=True)
class Job:
    """What to compute.

    Attributes:
        kind: Which function computes it; also the folder in the store.
        title: For people.
        identity: JSON data that determines the result.
        needs: Role to (kind, key) of the artefacts it reads.
        where: JSON data on where to find inputs, without influence on the result.
        cost: Rough size: passes of the data through the model, or where jobs on several data sets
            or models are compared, floating-point operations.
        group: Jobs that are shown together.
    """

    kind: str
    title: str
    identity: dict[str, Any]
    needs: dict[str, tuple[str, str]] = field(default_factory=dict)
    where: dict[str, Any] = field(default_factory=dict)
    cost: float = 1.0
    group: str | None = None

    @property
    def inputs(self) -> dict[str, Any]:
        """Everything that determines the result."""
        return {**self.identity, "needs": {role: key for role, (_, key) in self.needs.items()}}

    @cached_property
    def key(self) -> str:
        """Name of the artefact."""
        return key_of(self.kind, self.inputs)

    @property
    def artefact(self) -> tuple[str, str]:
        """Kind and key."""
        return self.kind, self.key

    def to_json(self) -> str:
        """As text, for other processes: nothing that could run code is ever sent to them."""
        return json.dumps(vars_of(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Job:
        """The job that `to_json` wrote."""
        values = json.loads(text)
        values["needs"] = {role: (kind, key) for role, (kind, key) in values["needs"].items()}
        return cls(**values)


def vars_of(job: Job) -> dict[str, Any]:
    """The fields of a job, without what is computed from them."""
    return {name: getattr(job, name) for name in Job.__dataclass_fields__}


def run_job(job: Job, store: Store, report: Report) -> None:
    """Compute a job in this process, on one thread, and store the result."""
    compute = _function(job.kind)
    started = time.perf_counter()
    with one_thread():
        write = compute(job, store, report)
    seconds = round(time.perf_counter() - started, 3)
    costs = {"seconds": seconds, "cost": job.cost, **write.costs}
    with store.write(job.kind, job.key, job.inputs, costs) as draft:
        for name, table in write.tables.items():
            draft.table(f"{name}.parquet", table)
        for name, tensors in write.tensors.items():
            draft.tensors(f"{name}.safetensors", tensors)
        for name, value in write.values.items():
            draft.json(f"{name}.json", value)
    forget_states(store, job.key)


def _function(kind: str) -> Callable[[Job, Store, Report], Output]:
    """What computes a kind of jobs; imported only now, as most of them bring torch."""
    if kind == "nap":
        return nap
    from memloc.engine.compute import KINDS

    return KINDS[kind]


def nap(job: Job, store: Store, report: Report) -> Output:
    """A job that only takes its time: for measuring what surrounds the work, and for fault tests.

    Needs no torch. Waits for `identity["seconds"]` and leaves a small file.
    """
    time.sleep(job.identity["seconds"])
    report(1.0)
    return Output(values={"nap": {"seconds": job.identity["seconds"]}})


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """One thread: results do not depend on the machine, parallelism comes from independent jobs.

    On a busy machine, several threads that wait for each other are also far slower.
    """
    if "torch" not in sys.modules:
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass
class Output:
    """What a job leaves: written to the store in one go, after all computing is done."""

    tables: dict[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, Any] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    costs: dict[str, Any] = field(default_factory=dict)


def peak_memory() -> int:
    """Largest resident size of this process so far, in bytes."""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)


# --- prepared data sets: their key is a hash of their content, whatever their name ---------------


def write_task(store: Store, task: Task) -> tuple[str, str]:
    """Store a task with its noise, if it is not there yet; return kind and key."""
    content = {
        "labels": list(task.labels),
        "train": table_hash(task.train),
        "validation": table_hash(task.validation),
    }
    key = key_of("data", content)
    if not store.sound("data", key):
        with store.write("data", key, content) as draft:
            draft.table("train.parquet", task.train)
            draft.table("validation.parquet", task.validation)
            draft.json("task.json", {"name": task.name, "category": task.category})
    return "data", key


def read_task(store: Store, artefact: tuple[str, str]) -> Task:
    """Read it back."""
    from memloc.data.task import Task

    data = store.open(*artefact)
    about = data.json("task.json")
    return Task(
        about["name"],
        about["category"],
        tuple(data.manifest["inputs"]["labels"]),
        data.table("train.parquet"),
        data.table("validation.parquet"),
    )


def table_hash(table: pd.DataFrame) -> str:
    """Hash of columns and values, independent of how pandas keeps them."""
    columns = {str(column): table[column].tolist() for column in table.columns}
    return hashlib.sha256(json.dumps(columns, ensure_ascii=False).encode()).hexdigest()
