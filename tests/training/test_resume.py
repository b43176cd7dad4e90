"""Exact resume: an interrupted training gives, bit for bit, what an uninterrupted one gives."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from memloc.analysis.windows import Window
from memloc.config import Training
from memloc.engine.store.store import Store
from memloc.techniques.base import Context
from memloc.techniques.retraining import Retraining
from memloc.training import resume as resuming
from memloc.training.learners import Learner, TailOnly, hidden_task
from memloc.training.loop import Objective, Trained, fine_tune
from memloc.training.resume import ResumePoint, forget_finished, forget_states
from tests.techniques.test_retraining import TRAINING as RETRAINING
from tests.techniques.test_retraining import make_context
from tests.tiny_models import tiny_blocks
from tests.training.test_control import auxiliary_labels, auxiliary_of
from tests.training.test_loop import data

# The ceiling is passed in the first epoch, so that weights are kept over most interruptions.
CONFIG = Training(epochs=3, learning_rate=3e-3, batch_size=8, memorised_at=0.1)
NAME = "0123abcd-training"
Train = Callable[[ResumePoint | None, Callable[[float], None]], Any]


class Interrupted(Exception):
    """Raised from the progress report, in the place of whatever ends a process."""


def whole_model(resume: ResumePoint | None, report: Callable[[float], None]) -> Trained:
    train, validation, targets = data(22, 9)
    learner = Learner(tiny_blocks("bert", 2), train, validation)
    return fine_tune(learner, targets, CONFIG, 1, report, resume=resume)


def open_end(resume: ResumePoint | None, report: Callable[[float], None]) -> Trained:
    train, validation, targets = data(22, 9)
    learner = Learner(tiny_blocks("bert", 2), train, validation)
    config = CONFIG.replace(epochs="auto", most_epochs=9)
    return fine_tune(learner, targets, config, 1, report, resume=resume)


def head_only(resume: ResumePoint | None, report: Callable[[float], None]) -> Trained:
    train, validation, targets = data(22, 9)
    model = tiny_blocks("roberta", 2)  # has dropout in its head
    config = CONFIG.replace(micro_batch_size=3)
    return fine_tune(TailOnly(model, train, validation), targets, config, 1, report, resume=resume)


def two_objectives(
    resume: ResumePoint | None, report: Callable[[float], None]
) -> tuple[Trained, dict[str, torch.Tensor]]:
    train, validation, targets = data(16, 9)
    model = tiny_blocks("bert", 2)
    task = auxiliary_of(model, "bert", validation)
    config = CONFIG.replace(epochs=2)
    beside = Objective(task, auxiliary_labels(len(validation)), config.replace(learning_rate=1e-3))
    learner = hidden_task(model, train, validation, (2,))
    trained = fine_tune(learner, targets, config, 1, report, [beside], resume)
    return trained, {n: p.detach().clone() for n, p in task.head["classifier"].named_parameters()}


def window(
    resume: ResumePoint | None,
    report: Callable[[float], None],
    context: Context | None = None,
    **settings: Any,
) -> dict[str, pd.DataFrame]:
    context = context or make_context("bert", 3)
    assert context.training == RETRAINING
    object.__setattr__(context, "resume", resume)
    return Retraining(epochs=2, **settings).window(context, Window(2, 3), report)


ALL = [whole_model, open_end, head_only, two_objectives, window]


def assert_same(one: Any, other: Any) -> None:
    """Equal bit for bit."""
    assert type(one) is type(other)
    if isinstance(one, Trained):
        assert_same(vars(one), vars(other))
    elif isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    elif isinstance(one, np.ndarray):
        np.testing.assert_array_equal(one, other, strict=True)
    elif isinstance(one, pd.DataFrame):
        pd.testing.assert_frame_equal(one, other, check_exact=True)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            assert_same(one[name], other[name])
    elif isinstance(one, list | tuple):
        for mine, theirs in zip(one, other, strict=True):
            assert_same(mine, theirs)
    else:
        assert one == other


def uninterrupted(train: Train) -> tuple[Any, list[float]]:
    fractions: list[float] = []
    return train(None, fractions.append), fractions


def train_until(
    train: Train, store: Store, last: int, *, unsaved: int = 0
) -> tuple[Any, list[float]]:
    """Train for some steps and die, the last ones after the last save.

    Returns:
        The result, if training came to its end, and the fractions that were reported.
    """
    fractions: list[float] = []

    with pytest.MonkeyPatch.context() as patch:

        def report(fraction: float) -> None:
            fractions.append(fraction)
            if len(fractions) == last - unsaved:
                patch.setattr(ResumePoint, "save_if_due", lambda _: None)
            if len(fractions) == last:
                raise Interrupted

        try:
            return train(ResumePoint(store, NAME, every=0), report), fractions
        except Interrupted:
            return None, fractions


@pytest.mark.parametrize("train", ALL)
def test_a_training_that_dies_after_every_single_step_gives_the_same(
    train: Train, tmp_path: Path
) -> None:
    expected, steps = uninterrupted(train)
    store, result, seen = Store(tmp_path), None, []
    torch.manual_seed(99)  # the state of the global generator must not matter
    while result is None:
        result, fractions = train_until(train, store, 1)
        seen += fractions
    # Every step was made once: the first, those inside an epoch, at its end, and the last.
    assert seen == steps
    assert steps[-1] == 1
    assert_same(result, expected)


@pytest.mark.parametrize("train", [two_objectives, window])
def test_steps_after_the_last_save_are_made_again(train: Train, tmp_path: Path) -> None:
    expected, steps = uninterrupted(train)
    _, first = train_until(train, Store(tmp_path), 5, unsaved=3)
    result, second = train_until(train, Store(tmp_path), 100)
    assert (first, second) == (steps[:5], steps[2:])
    assert_same(result, expected)


def test_a_window_that_dies_leaves_the_model_for_the_next_as_it_was(tmp_path: Path) -> None:
    expected, steps = uninterrupted(window)
    context = make_context("bert", 3)
    _, first = train_until(lambda *given: window(*given, context), Store(tmp_path), 3)
    result, second = train_until(lambda *given: window(*given, context), Store(tmp_path), 100)
    assert first + second == steps
    assert_same(result, expected)


def states(store: Store) -> list[str]:
    return sorted(folder.name for folder in (store.root / "resume").glob("*"))


def newest(store: Store) -> Path:
    return store.root / "resume" / states(store)[-1]


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def of_another_torch(folder: Path) -> None:
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["inputs"]["versions"]["torch"] = "1.0"
    path.write_text(json.dumps(manifest))


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "a bit of the tensors": lambda folder: flip(folder / "tensors.safetensors"),
    "without tensors": lambda folder: (folder / "tensors.safetensors").unlink(),
    "another torch": of_another_torch,
}


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, list[float], Path]:
    """The uninterrupted result and its steps; a store with states after steps 2 and 5."""
    torch.set_num_threads(1)
    expected, steps = uninterrupted(whole_model)
    store = Store(tmp_path_factory.mktemp("interrupted"))
    train_until(whole_model, store, 2)
    assert states(store) == [f"{NAME}-2"]
    older = newest(store)
    shutil.copytree(older, store.root / "older")
    train_until(whole_model, store, 3)
    assert states(store) == [f"{NAME}-5"]
    (store.root / "older").rename(older)
    return expected, steps, store.root


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_or_foreign_state_costs_time_but_not_the_result(
    damage: str, interrupted: tuple[Any, list[float], Path], tmp_path: Path
) -> None:
    expected, steps, root = interrupted
    store = Store(tmp_path / "store")
    shutil.copytree(root, store.root)
    DAMAGES[damage](newest(store))
    result, fractions = train_until(whole_model, store, 100)
    assert fractions == steps[2:]  # from the older state
    assert_same(result, expected)
    forget_states(store, NAME.split("-")[0])
    assert states(store) == []


def test_a_state_of_other_settings_is_not_used(
    interrupted: tuple[Any, list[float], Path], tmp_path: Path
) -> None:
    store = Store(tmp_path / "store")
    shutil.copytree(interrupted[2], store.root)
    train, validation, targets = data(22, 9)

    def steps_of(layers: int = 2, seed: int = 1, **changes: Any) -> int:
        fractions: list[float] = []
        learner = Learner(tiny_blocks("bert", layers), train, validation)
        point = ResumePoint(store, NAME, every=math.inf)
        config = CONFIG.replace(**changes)
        fine_tune(learner, targets, config, seed, fractions.append, resume=point)
        return len(fractions)

    assert steps_of() == 9 - 5
    assert steps_of(seed=2) == 9
    assert steps_of(layers=3) == 9
    assert steps_of(learning_rate=1e-3) == 9
    assert steps_of(epochs=4) == 12


# --- when, where and how long states are kept ---------------------------------------------------


def kept(store: Store, name: str = "key-training", every: float = 0.0, value: int = 0):
    point, values = ResumePoint(store, name, every), {"value": value}
    point.keep("values", values)
    return point, values


def test_states_are_saved_by_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(resuming.time, "monotonic", lambda: now)
    store = Store(tmp_path)
    point, _ = kept(store, every=60.0)
    for now, expected in [(1059.9, []), (1060.0, [1]), (1119.9, [1]), (1120.1, [2])]:  # noqa: B007
        point.save_if_due()
        assert states(store) == [f"key-training-{number}" for number in expected]


def test_only_the_newest_state_is_kept_and_each_training_has_its_own(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for number in range(12):
        kept(store, "key-attempt-1", value=number)[0].save()
    kept(store, "key-attempt-1-result", value=100)[0].save()
    kept(store, "key-attempt-11", value=200)[0].save()
    assert states(store) == ["key-attempt-1-12", "key-attempt-1-result-1", "key-attempt-11-1"]
    for name, value in [("key-attempt-1", 11), ("key-attempt-1-result", 100), ("key-attempt-2", 0)]:
        point, values = kept(store, name)
        assert point.restore() == (value > 0)
        assert values == {"value": value}
    kept(store, "key-attempt-1")[0].forget()
    assert states(store) == ["key-attempt-1-result-1", "key-attempt-11-1"]
    assert list((tmp_path / ".tmp").iterdir()) == []


def test_a_full_disk_ends_neither_the_training_nor_the_state_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    store = Store(tmp_path)
    assert kept(store, value=1)[0].save()
    monkeypatch.setattr("memloc.engine.store.store.Draft.tensors", full)
    assert not kept(store, value=2)[0].save()
    assert list((tmp_path / ".tmp").iterdir()) == []
    point, values = kept(store)
    assert point.restore()
    assert values == {"value": 1}


def test_states_of_finished_jobs_can_be_swept(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for name in ("done-training", "open-training"):
        kept(store, name)[0].save()
    with store.write("train", "done", {}) as draft:
        draft.json("value.json", 1)
    forget_finished(store)
    assert states(store) == ["open-training-1"]
