"""A job: one artefact to be computed, described by data alone, and what becomes of an attempt.

A job can be sent to any process on any machine that sees the store. `identity` and the keys of what
it `needs` determine the result and so the key; `where` says how to get at the inputs and does not.
Whoever computes a job holds a lock, and its result is in the store before anybody hears of it.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import json
import os
import sys
import time
import traceback
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memloc.engine.store.store import DamagedArtefact, Store, key_of
from memloc.errors import MALFORMED, MISSING, MemlocError, StoreError, cannot_write
from memloc.text import write_whole
from memloc.training.resume import forget_states

if TYPE_CHECKING:
    import pandas as pd

    from memloc.data.task import Task

Artefact = tuple[str, str]
Report = Callable[[float], None]
"""Is told 0 when work on a job begins, and then how far it is."""
Reply = dict[str, Any]
"""What became of an attempt, as JSON data.

`state` is one of: done (computed and stored), there (another process had stored it), elsewhere
(another process is computing it), failed (`failure`), damaged (an input: `artefact`, `problem`),
full (nothing can be stored any more: `problem`, `remedy`).
"""
Tell = Callable[["Job", float | Reply], None]
"""Is told how far a job is, and what became of it."""


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
        group: Jobs that look at the same models and travel together.
    """

    kind: str
    title: str
    identity: dict[str, Any]
    needs: dict[str, Artefact] = field(default_factory=dict)
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
    def artefact(self) -> Artefact:
        """Kind and key."""
        return self.kind, self.key

    @property
    def name(self) -> str:
        """Kind and key in one word, for names of files."""
        return f"{self.kind}-{self.key}"


def jobs_to_text(jobs: Iterable[Job]) -> str:
    """For other processes: nothing that could run code is ever sent to them."""
    names = Job.__dataclass_fields__
    return json.dumps([{name: getattr(job, name) for name in names} for job in jobs])


def jobs_from_text(text: str) -> list[Job]:
    """What `jobs_to_text` wrote."""
    return [
        Job(**{**fields, "needs": {role: tuple(need) for role, need in fields["needs"].items()}})
        for fields in json.loads(text)
    ]


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


# --- one attempt, in whichever process ------------------------------------------------------------


class JobFailed(MemlocError):
    """A job ended with an error; the message says which and why."""


@dataclass(frozen=True)
class Failure:
    """Why a job failed, as JSON data.

    Attributes:
        title: Of the job, for people.
        reason: What went wrong.
        setting: See `MemlocError`, as for value and remedy.
        value: Of the setting.
        remedy: What to do about it.
        log: A file with the traceback, if the failure was not foreseen.
    """

    title: str
    reason: str
    setting: str | None = None
    value: Any = None
    remedy: str | None = None
    log: str | None = None

    @classmethod
    def of(cls, job: Job, error: Exception, log: Path | None = None) -> Failure:
        """Why a job failed, by the error it ended with."""
        if not isinstance(error, MemlocError):
            words = str(error).strip().partition("\n")[0]
            reason = f"{type(error).__name__}: {words}" if words else type(error).__name__
            return cls(job.title, reason, log=str(log) if log else None)
        value = None if error.value is MISSING else error.value
        if not isinstance(value, str | int | float | None):
            value = str(value)
        return cls(job.title, error.problem, error.setting, value, error.remedy)

    def error(self, title: bool = True) -> JobFailed:
        """The failure as an error, with or without the title of the job."""
        details = f" (details in {self.log})" if self.log else ""
        return JobFailed(
            f"{self.title} failed: {self.reason}{details}" if title else self.reason + details,
            setting=self.setting,
            value=MISSING if self.value is None else self.value,
            remedy=self.remedy,
        )

    def __str__(self) -> str:
        """One sentence."""
        return str(self.error())


def work_through(bundle: Sequence[Job], store: Store, tell: Tell) -> None:
    """Try jobs one after the other; whatever happens is told, and never an exception."""
    for job in bundle:
        reply = attempt(job, store, partial(tell, job))
        tell(job, reply)
        if reply["state"] == "full":
            return


def attempt(job: Job, store: Store, report: Report) -> Reply:
    """Try one job in this process; only an interruption ends it with an exception.

    What failed in another process that works on the same plan is not tried again.
    """
    try:
        with store.locks.hold(*job.artefact) as ours:
            if not ours:
                return {"state": "elsewhere"}
            if store.has(*job.artefact):
                return {"state": "there"}
            failure = read_failure(store, job)
            if failure is not None:
                return {"state": "failed", "failure": asdict(failure)}
            report(0.0)
            run_job(job, store, report)
            return {"state": "done"}
    except DamagedArtefact as error:
        return {"state": "damaged", "artefact": error.artefact, "problem": error.problem}
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            error = cannot_write(store.root, error)
        if isinstance(error, StoreError):
            return {"state": "full", "problem": error.problem, "remedy": error.remedy}
        return {"state": "failed", "failure": asdict(record_failure(store, job, error))}


def _record_of(store: Store, name: str) -> Path:
    return store.root.parent / "failures" / f"{name}.json"


def record_failure(store: Store, job: Job, error: Exception) -> Failure:
    """Keep why a job failed, as ``<runs>/failures/<kind>-<key>.json`` and the traceback beside it.

    Best effort, as the disk may be what failed.
    """
    path = _record_of(store, job.name)
    log = None if isinstance(error, MemlocError) else path.with_suffix(".log")
    failure = Failure.of(job, error, log)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        if log is not None:
            log.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
        write_whole(path, json.dumps(asdict(failure), indent=1, ensure_ascii=False))
    return failure


def read_failure(store: Store, job: Job) -> Failure | None:
    """Why a job failed when it was last tried, if it did."""
    try:
        return Failure(**json.loads(_record_of(store, job.name).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def recorded_failures(store: Store) -> set[str]:
    """Names of all jobs with a record."""
    return {path.stem for path in _record_of(store, "*").parent.glob("*.json")}


def forget_failures(store: Store, jobs: Iterable[Job]) -> None:
    """They are tried again."""
    for name in recorded_failures(store).intersection(job.name for job in jobs):
        path = _record_of(store, name)
        with contextlib.suppress(OSError):
            path.unlink()
            path.with_suffix(".log").unlink(missing_ok=True)


# --- a plan on disk: for workers elsewhere, and for the clean-up of the store ---------------------


def write_plan(folder: Path, jobs: Sequence[Job]) -> Path:
    """Write jobs to a file that is named after them; it appears at once.

    Plans of other jobs stay: what they made may still be wanted, and `memloc store gc` reads all.

    Raises:
        StoreError: If it cannot be written.
    """
    name = hashlib.sha256("".join(job.key for job in jobs).encode()).hexdigest()[:8]
    path = folder / f"plan-{name}.json.gz"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f".{path.name}-{os.getpid()}"
        draft.write_bytes(gzip.compress(jobs_to_text(jobs).encode(), compresslevel=1))
        draft.rename(path)
    except OSError as error:
        raise cannot_write(path, error) from None
    return path


def read_plan(path: Path) -> list[Job]:
    """The jobs of a plan.

    Raises:
        StoreError: If it cannot be read.
    """
    try:
        return jobs_from_text(gzip.decompress(path.read_bytes()).decode())
    except (OSError, EOFError, zlib.error, *MALFORMED) as error:
        raise StoreError(
            f"the plan {str(path)!r} cannot be read ({error})",
            remedy="start the sweep again to write it, or move its folder away",
        ) from None


# --- prepared data sets: their key is a hash of their content, whatever their name ---------------


def write_task(store: Store, task: Task) -> Artefact:
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


def read_task(store: Store, artefact: Artefact) -> Task:
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
