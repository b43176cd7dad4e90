"""θ_M on its way: against trainings that stop there, after interruptions, and without new keys."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from memloc.api.experiments import keep
from memloc.api.result import Result
from memloc.config import Data, Model, Run, Training, Windows
from memloc.data.encode import encode
from memloc.data.task import Task
from memloc.engine import experiment
from memloc.engine.compute import forget_context, load
from memloc.engine.inputs import InputCache
from memloc.engine.job import Job, run_job
from memloc.engine.loop import Outcome
from memloc.engine.plan import Plan, snapshot_of
from memloc.engine.progress import Progress
from memloc.engine.store.store import Store
from memloc.errors import StoreError
from memloc.models.blocks import BlockModel
from memloc.techniques.base import Context
from memloc.techniques.centroids import Centroids
from memloc.techniques.probing import Probing
from memloc.training.learners import Learner
from memloc.training.loop import Objective, train, training_data
from tests.oracles.swapping import swap_all_windows_plainly
from tests.tiny_models import tiny_model, tiny_tokenizer

EPOCHS, EARLY, LAYERS = 4, 2, 2
NEVER = 1e9


class Here:
    """Computes jobs one after another in this process."""

    def __init__(self, store: Store) -> None:
        self.store, self.computed = store, []

    def execute(self, jobs: Sequence[Job], progress: Any) -> Outcome:
        for job in jobs:
            if not self.store.has(*job.artefact):
                run_job(job, self.store, lambda _: None)
                self.computed.append(job.title)
        return Outcome(len(jobs), {})


PROBING = {"epochs": 3, "select_after": 0, "seeds": 2}


class Bench:
    """A run with checkpoints."""

    def __init__(self, folder: Path) -> None:
        model = folder / "tiny"
        tiny_model("bert", layers=LAYERS).save_pretrained(model)
        tiny_tokenizer().save_pretrained(model)
        self.config = Run(
            data=Data(task="reviews", limit=80),
            model=Model(name=str(model)),
            training=Training(epochs=EPOCHS, learning_rate=3e-3, batch_size=32),
            techniques={"swapping": {}, "probing": PROBING},
            windows=Windows(exact=True),
            explain=False,
            checkpoints=2,
        )
        self.folder = folder
        self.store = Store(folder / "runs" / "store")
        self.plan, self.result, self.computed = self.run(self.config)
        self.seed = self.plan.cells[0]

    def run(self, config: Run) -> tuple[Plan, Result, list[str]]:
        here: Any = Here(self.store)
        planned = experiment.prepare(config, InputCache(here, {"device": "cpu"}))
        self.task: Task = planned.outline.task
        outcome = here.execute(planned.jobs, Progress())
        found = planned.collect(self.store, outcome)
        return planned.plan, keep(found, self.folder / "runs" / found.name), here.computed

    def stopped(self, state: str) -> BlockModel:
        """θ_M or θ_O as a training leaves it that goes no further."""
        job = self.seed.trainings[state]
        classifier = load(job, self.task, seed=1)
        learner = Learner(classifier.blocks, encode(self.task.train, classifier.codec, "joined"))
        labels = torch.from_numpy(training_data(self.task, state).labels)
        going = train([Objective(learner, labels, self.config.training)], seed=1)
        for _ in range(EARLY):
            next(going)
        going.close()
        return classifier.blocks

    def empty_store(self, name: str) -> Store:
        """One with data alone."""
        root = self.folder / name
        shutil.copytree(self.store.root / "data", root / "data")
        return Store(root)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    torch.set_num_threads(1)
    yield Bench(tmp_path_factory.mktemp("checkpoints"))
    forget_context()


@pytest.fixture(scope="module")
def stopped(bench: Bench) -> dict[str, BlockModel]:
    return {state: bench.stopped(state) for state in ("memorised", "original")}


def table(store: Store, job: Job, name: str) -> pd.DataFrame:
    return store.open(*job.artefact).table(f"{name}.parquet")


def content(store: Store, job: Job) -> dict[str, bytes]:
    folder = store.root / job.kind / job.key
    return {f.name: f.read_bytes() for f in sorted(folder.iterdir()) if f.name != "manifest.json"}


@pytest.mark.parametrize("state", ["memorised", "original"])
def test_a_snapshot_is_the_training_that_stops_there_bit_for_bit(
    bench: Bench, stopped: dict[str, BlockModel], state: str
) -> None:
    job = snapshot_of(bench.seed.trainings[state], EARLY)
    assert job == bench.seed.checkpoints[EARLY].trainings[state]
    kept = load_file(bench.store.root / "train" / job.key / "final.safetensors")
    expected = dict(stopped[state].model.named_parameters())
    assert set(expected) - set(kept) == set(stopped[state].groups.embeddings)
    assert all(torch.equal(kept[name], expected[name]) for name in kept)
    final = load_file(
        bench.store.root / "train" / bench.seed.trainings[state].key / "final.safetensors"
    )
    assert not all(torch.equal(kept[name], final[name]) for name in kept)


def test_swapping_at_a_checkpoint_is_that_of_both_models_of_that_epoch(
    bench: Bench, stopped: dict[str, BlockModel]
) -> None:
    memorised, original = stopped["memorised"], stopped["original"]
    plainly = swap_all_windows_plainly(
        memorised.model, original.model, "bert.encoder.layer", tiny_tokenizer(),
        bench.task.train["text"].tolist(),
    )  # fmt: skip
    labels, noisy = (bench.task.train[c].to_numpy() for c in ("label", "noisy"))
    rows = bench.result.tables["checkpoint_windows"]
    rows = rows[rows["epoch"] == EARLY].set_index(["first_layer", "last_layer"])
    assert len(rows) == 3
    for window, errors in rows.iterrows():
        wrong = np.array(plainly[window]) != labels
        assert errors["noisy_error"] == wrong[noisy].mean()
        assert errors["clean_error"] == wrong[~noisy].mean()
    wrong, full = (np.array(plainly[w]) != labels for w in ((0, 0), (1, LAYERS)))
    row = bench.result.tables["checkpoints"].set_index("epoch").loc[EARLY]
    assert row["memorised"] == pytest.approx(1 - wrong[noisy].mean())
    lost = {
        name: full[group].mean() - wrong[group].mean()
        for name, group in (("noisy", noisy), ("clean", ~noisy))
    }
    assert row["in_layers"] == pytest.approx(lost["noisy"] - max(0, lost["clean"]))


def test_probes_and_centroids_look_at_the_model_of_that_epoch(
    bench: Bench, stopped: dict[str, BlockModel]
) -> None:
    job = bench.seed.trainings["memorised"]
    untrained = load(job, bench.task)
    context = Context.of(
        bench.task.train,
        encode(bench.task.train, untrained.codec, "joined"),
        {**stopped, "pretrained": untrained.blocks},  # type: ignore[dict-item]
    )
    at = bench.seed.checkpoints[EARLY]
    probed = Probing(**PROBING).localise(context)
    pd.testing.assert_frame_equal(
        table(bench.store, at.results["probing"], "layers"), probed["layers"]
    )
    explained = Centroids().localise(context)
    pd.testing.assert_frame_equal(
        table(bench.store, at.results["centroids"], "centroids"), explained["centroids"]
    )
    layers = bench.result.tables["checkpoint_layers"]
    shown = layers[(layers["epoch"] == EARLY) & (layers["technique"] == "centroids")]
    means = explained["centroids"].query("model == 'memorised' and group == 'noisy'")["mean"]
    assert shown["value"].tolist() == means.tolist()


def test_the_last_checkpoint_is_the_result_of_the_run_itself(bench: Bench) -> None:
    tables = bench.result.tables
    assert tables["checkpoints"]["epoch"].tolist() == [EARLY, EPOCHS]
    end, own = (cell.results["swapping"] for cell in (bench.seed.checkpoints[EPOCHS], bench.seed))
    assert end.key == own.key
    found = tables["checkpoint_windows"].query("epoch == @EPOCHS").drop(columns="epoch")
    pd.testing.assert_frame_equal(found.reset_index(drop=True), tables["windows"])
    # θ_P has no epochs: its states are there once.
    assert sum(title == "states of θ_P" for title in bench.computed) == 1
    snapshots = [title for title in bench.computed if title.startswith("θ_") and "epoch" in title]
    assert snapshots == []  # left by the trainings


def test_a_run_without_checkpoints_shares_everything_with_one_that_has_them(bench: Bench) -> None:
    plan, result, computed = bench.run(bench.config.model_copy(update={"checkpoints": None}))
    assert computed == []
    assert {job.key for job in plan.jobs} < {job.key for job in bench.plan.jobs}
    assert "checkpoints" not in result.tables
    assert "over_time" not in result.summary
    assert result.folder != bench.result.folder
    assert not (result.folder / "checkpoints.parquet").exists()
    costs = bench.result.tables["costs"]
    assert costs["job"].tolist()[-1] == "checkpoints"
    assert costs["seconds"].iloc[-1] > 0
    for name, found in result.tables.items():
        other = costs[:-1] if name == "costs" else bench.result.tables[name]
        pd.testing.assert_frame_equal(found, other, check_dtype=name != "costs")


def test_a_training_that_was_done_before_is_repeated_with_the_same_weights(bench: Bench) -> None:
    store = bench.empty_store("before")
    told = bench.seed.trainings["memorised"]
    plain = replace(told, where={k: v for k, v in told.where.items() if k != "snapshots"})
    later = snapshot_of(plain, EARLY)
    run_job(plain, store, lambda _: None)
    assert content(store, plain) == content(bench.store, told)
    assert not store.has(*later.artefact)
    run_job(later, store, lambda _: None)
    assert content(store, later) == content(bench.store, later)


class Interrupted(Exception):
    """Raised from the progress report."""


def run_until(job: Job, store: Store, done: Callable[[float], bool], save_every: float) -> None:
    def report(fraction: float) -> None:
        if done(fraction):
            raise Interrupted

    with pytest.raises(Interrupted):
        run_job(replace(job, where={**job.where, "save_every": save_every}), store, report)
    forget_context()  # another process would not have it


@pytest.mark.parametrize("save_every", [0, NEVER])
def test_snapshots_survive_an_interruption(bench: Bench, save_every: float) -> None:
    store = bench.empty_store(f"interrupted-{save_every}")
    job = bench.seed.trainings["memorised"]
    early = snapshot_of(job, EARLY)
    run_until(job, store, lambda fraction: fraction > 0.7, save_every)
    assert content(store, early) == content(bench.store, early)
    run_job(job, store, lambda _: None)
    for one in (job, early):
        assert content(store, one) == content(bench.store, one)
    assert store.keys("resume") == []


def test_a_training_that_is_repeated_for_one_epoch_leaves_the_others_on_its_way(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = bench.empty_store("again")
    job = bench.seed.trainings["memorised"]
    told = replace(job, where={**job.where, "snapshots": [EARLY, EARLY + 1]})
    early, later = (snapshot_of(told, epoch) for epoch in (EARLY, EARLY + 1))
    write = Store.write
    full = StoreError("the disk is full")

    def refuse(self: Store, kind: str, key: str, *rest: Any) -> Any:
        if key == early.key:
            raise full
        return write(self, kind, key, *rest)

    # A snapshot that cannot be written costs a training later on, and never the result.
    with monkeypatch.context() as patched:
        patched.setattr(Store, "write", refuse)
        run_job(told, store, lambda _: None)
    assert content(store, job) == content(bench.store, job)
    assert store.has(*later.artefact)
    assert not store.has(*early.artefact)
    shutil.rmtree(store.folder(*later.artefact))
    run_job(later, store, lambda _: None)
    assert content(store, early) == content(bench.store, early)
