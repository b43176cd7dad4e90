"""Windows retrained as one model: each is what it is alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from memloc.analysis.windows import Window, all_windows
from memloc.config import Data, Model, Run, Training
from memloc.data.load import load_task
from memloc.engine.job import write_task
from memloc.engine.store.store import Store
from memloc.models.names import resolve
from memloc.techniques.base import Context, Tables
from memloc.techniques.retraining import Retraining
from memloc.training.batched import Copies, CopiesObjective
from memloc.training.resume import ResumePoint
from tests.engine.same_results import compute_here, plan_of
from tests.techniques.test_retraining import NO_DROPOUT, make_context
from tests.tiny_models import FIVE, each, tiny_model, tiny_tokenizer

FROM_1 = (Window(1, 3), Window(1, 2), Window(1, 1))
FROM_2 = (Window(2, 3), Window(2, 2))


def nothing(_fraction: float) -> None:
    pass


def plain(architecture: str = "bert", **changes: Any) -> Context:
    """Without dropout."""
    return make_context(architecture, **NO_DROPOUT.get(architecture, {}), **changes)


def assert_same(
    context: Context, windows: tuple[Window, ...] = FROM_1, rtol: float = 1e-5, **settings: Any
) -> list[Tables]:
    """As one model, windows have the losses and predictions that each has alone."""
    technique = Retraining(**{"epochs": 2, "batched": True, **settings})
    memorised = context.model("memorised").model
    before = {name: value.clone() for name, value in memorised.state_dict().items()}
    alone = [technique.window(context, window, nothing) for window in windows]
    together = technique.group(context, windows, nothing)
    for one, other in zip(alone, together, strict=True):
        assert one.keys() == other.keys() == {"predictions", "losses"}
        pd.testing.assert_frame_equal(one["predictions"], other["predictions"])
        pd.testing.assert_frame_equal(one["losses"], other["losses"], rtol=rtol)
    for name, value in memorised.state_dict().items():
        assert torch.equal(value, before[name]), name
    return together


@pytest.mark.parametrize("windows", [FROM_1, FROM_2], ids=["from layer 1", "from layer 2"])
@pytest.mark.parametrize("architecture", [*FIVE[:3], *each("gpt_neo"), "llama"])
def test_windows_have_the_losses_and_predictions_that_they_have_alone(
    architecture: str, windows: tuple[Window, ...]
) -> None:
    found = assert_same(plain(architecture), windows)
    losses = {tuple(part["losses"]["loss"]) for part in found}
    assert len(losses) == len(windows)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", each())
def test_no_architecture_gives_other_results_as_one_model(architecture: str) -> None:
    if architecture == "bloom":
        pytest.skip("its forward cannot be batched")
    off = {name: 0.0 for name in vars(make_context(architecture).model("memorised").model.config)
           if "drop" in name and "layer" not in name}  # fmt: skip
    assert_same(make_context(architecture, **off), rtol=1e-4)


@pytest.mark.parametrize("unit", ["attention", "mlp"])
def test_parts_of_layers_have_the_results_that_they_have_alone(unit: Any) -> None:
    assert_same(plain("gpt_neox", unit=unit))


@pytest.mark.parametrize("tail", ["none", "head", "all"])
def test_the_tail_learns_in_each_window_by_itself(tail: str) -> None:
    assert_same(plain(), tail=tail)


def test_whole_passes_with_dropout_in_frozen_layers_are_batched_too() -> None:
    assert_same(plain(), FROM_2, frozen_dropout=True)  # its dropout is 0


def test_a_model_that_cannot_resume_is_batched_too() -> None:
    assert_same(make_context("t5", n=24), FROM_2)


def test_gradients_are_clipped_and_batches_cut_for_each_window_by_itself() -> None:
    context = plain("llama")
    training = context.training.replace(clip_norm=0.05, micro_batch_size=3)
    assert_same(replace(context, training=training))
    unclipped = replace(context, training=context.training.replace(clip_norm=1e9))
    assert_same(unclipped)


def test_all_windows_together_give_the_tables_of_all_windows_one_by_one() -> None:
    reports: list[float] = []
    together = Retraining(epochs=1, batched=True).localise(plain(), reports.append)
    apart = Retraining(epochs=1).localise(plain())
    assert together.keys() == apart.keys()
    for name, table in apart.items():
        pd.testing.assert_frame_equal(together[name], table, rtol=1e-5)
    assert reports == sorted(reports)
    assert reports[-1] == 1.0


def test_passes_of_layers_are_counted_per_window() -> None:
    counts = []
    for batched in (False, True):
        context = plain()
        Retraining(epochs=1, batched=batched).localise(context)
        counts.append(context.costs["block_passes"])
    assert counts[0] == counts[1]


def test_a_window_whose_loss_is_not_a_number_fails_alone() -> None:
    context = plain()
    with torch.no_grad():
        next(context.model("pretrained").block(2).parameters()).fill_(float("nan"))
    technique = Retraining(epochs=2, batched=True)
    alone = [technique.window(context, window, nothing) for window in FROM_1]
    parts = technique.group(context, FROM_1, nothing)
    assert ["failure" in part for part in parts] == [True, True, False]
    for one, other in zip(alone, parts, strict=True):
        assert one.keys() == other.keys()
    for number in (0, 1):
        pd.testing.assert_frame_equal(alone[number]["failure"], parts[number]["failure"])
    pd.testing.assert_frame_equal(alone[2]["predictions"], parts[2]["predictions"])
    # All of them.
    parts = technique.group(context, FROM_2, nothing)
    assert all("the loss became nan in epoch 1" in p["failure"]["reason"].iloc[0] for p in parts)


@pytest.mark.parametrize("infinite", [True, False])
def test_a_window_that_diverges_on_the_way_fails_alone(infinite: bool, monkeypatch) -> None:
    """From the second epoch on; the others are what they are without it."""
    sound = Retraining(epochs=2, batched=True).group(plain(), FROM_1, nothing)
    step = CopiesObjective.step

    def breaking(objective: CopiesObjective, indices: np.ndarray) -> torch.Tensor:
        if len(objective.losses) >= objective.steps_per_epoch:
            with torch.no_grad():
                weights = objective.copies.learned["classifier.weight"]
                weights[1].fill_(1e38 if infinite else float("nan"))
        return step(objective, indices)

    monkeypatch.setattr(CopiesObjective, "step", breaking)
    parts = Retraining(epochs=2, batched=True).group(plain(), FROM_1, nothing)
    assert "in epoch 2" in parts[1]["failure"]["reason"].iloc[0]
    for number in (0, 2):
        for name, table in sound[number].items():
            pd.testing.assert_frame_equal(parts[number][name], table)


def test_a_model_that_cannot_be_batched_is_retrained_window_by_window_and_a_table_says_why() -> (
    None
):
    context = make_context("bloom", hidden_dropout=0.0, attention_dropout=0.0, n=24)
    found = Retraining(epochs=1, batched=True).localise(context)
    usual = Retraining(epochs=1).localise(context)
    reasons = found.pop("one_by_one")
    assert found.keys() == usual.keys()
    for name, table in usual.items():
        pd.testing.assert_frame_equal(found[name], table)
    assert len(reasons) == 5  # the window of layer 3 is alone anyway
    assert reasons["reason"].str.startswith("its forward cannot be batched (").all()
    assert not reasons["reason"].str.contains("\n").any()


def test_layers_with_other_buffers_are_retrained_window_by_window() -> None:
    context = plain()
    context.model("pretrained").block(2).register_buffer("more", torch.zeros(1))
    part = Retraining(epochs=1, batched=True).group(context, FROM_1, nothing)[0]
    reason = "the layers of θ_M and of θ_P differ in more than the values of parameters"
    assert part["one_by_one"]["reason"].tolist() == [reason]


def test_a_model_that_answers_otherwise_as_one_is_noticed(monkeypatch) -> None:
    monkeypatch.setattr(Copies, "alone", lambda self, n, rows: torch.zeros(len(rows), 3))
    part = Retraining(epochs=1, batched=True).group(plain(), FROM_2, nothing)[0]
    assert "other logits" in part["one_by_one"]["reason"].iloc[0]


def test_windows_that_do_not_fit_the_device_as_one_model_are_retrained_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def too_large(*_: Any) -> float:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(CopiesObjective, "step", too_large)
    parts = Retraining(epochs=1, batched=True).group(plain(), FROM_2, nothing)
    assert all("more memory" in part["one_by_one"]["reason"].iloc[0] for part in parts)
    assert all("predictions" in part for part in parts)


# --- dropout --------------------------------------------------------------------------------------


def copies_of(
    context: Context, dropout: list[tuple[int, ...]] | None, unit: Any = "layer"
) -> Copies:
    model = context.model("memorised")

    def forward(rows: np.ndarray) -> torch.Tensor:
        return model.logits(context.encoded.batch(rows.tolist(), model.device))

    opened = {*model.groups.of(unit)[0], *model.groups.head}
    return Copies(
        model, context.encoded, [opened] * 3, {},
        rows=np.arange(8), forward=forward, dropout=dropout,
    )  # fmt: skip


def test_dropout_acts_in_the_layers_of_a_window_alone_and_differs_between_windows() -> None:
    context = make_context("bert", hidden_dropout_prob=0.4, classifier_dropout=0.0)
    copies = copies_of(context, [(1, 2), (1,), ()])
    some = np.arange(6)
    copies.check()
    assert copies.partly == {1: 2, 2: 1}
    with copies.training_mode():
        first, second, third = copies.logits(some)
        # What one copy draws does not decide what another draws, though their weights are equal.
        assert not torch.equal(first, second)
    with context.model("memorised").mode(training=False):
        expected = copies.alone(2, some)
    torch.testing.assert_close(third, expected)
    assert (second - expected).abs().max() > 1e-3
    with copies.training_mode(), torch.random.fork_rng():
        torch.manual_seed(1)
        one = copies.logits(some)
        torch.manual_seed(1)
        assert torch.equal(copies.logits(some), one)


def test_dropout_everywhere_differs_between_windows() -> None:
    context = make_context("bert", hidden_dropout_prob=0.4)
    copies = copies_of(context, None)
    copies.check()
    with copies.training_mode():
        first, second, _ = copies.logits(np.arange(6))
    assert not torch.equal(first, second)


def test_a_model_without_dropout_runs_no_layer_twice() -> None:
    context = plain()
    copies = copies_of(context, [(1, 2), (1,), ()])
    ran: list[bool] = []
    copies.model.block(2).register_forward_hook(lambda *_: ran.append(True))
    copies.check()
    ran.clear()
    with copies.training_mode():
        copies.logits(np.arange(6))
    assert len(ran) == 1
    assert not copies.has_dropout


def test_with_dropout_the_same_seed_gives_the_same_result_and_all_windows_learn() -> None:
    training = Training(learning_rate=2e-3, batch_size=4, epochs=1)
    technique = Retraining(epochs=4, batched=True)
    runs = [
        technique.group(replace(make_context("bert"), training=training), FROM_1, nothing)
        for _ in range(2)
    ]
    for one, other in zip(*runs, strict=True):
        pd.testing.assert_frame_equal(one["losses"], other["losses"])
        losses = one["losses"]["loss"].tolist()
        assert losses[-1] < losses[0]


@pytest.mark.parametrize("unit", ["layer", "attention", "mlp"])
@pytest.mark.parametrize("architecture", ["bert", *each("distilbert", "gpt2")])
def test_models_with_dropout_everywhere_are_batched(architecture: str, unit: Any) -> None:
    """Also where all windows have the same attention below what they learn."""
    parts = Retraining(epochs=1, batched=True).group(
        make_context(architecture, unit=unit), FROM_2, nothing
    )
    assert all(part.keys() == {"predictions", "losses"} for part in parts)


def test_attention_that_windows_share_has_dropout_of_its_own_in_each() -> None:
    context = make_context(
        "bert", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.5, classifier_dropout=0.0
    )
    copies = copies_of(context, [(1,), (1,), (1,)], "mlp")
    with copies.training_mode():
        first, second, third = copies.logits(np.arange(6))
    assert not torch.allclose(first, second, atol=1e-3)
    assert not torch.allclose(second, third, atol=1e-3)


def test_layers_that_opt_drops_as_a_whole_cannot_be_batched() -> None:
    """In training mode it draws a number per layer, even if none is ever dropped."""
    context = plain("opt")
    part = Retraining(epochs=1, batched=True, frozen_dropout=True).group(context, FROM_2, nothing)
    assert "data-dependent" in part[0]["one_by_one"]["reason"].iloc[0]


# --- going on after an interruption ---------------------------------------------------------------


class Interrupted(Exception):
    pass


def test_a_group_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    point = ResumePoint(Store(tmp_path), "job", every=0.0)
    technique = Retraining(epochs=2, batched=True)
    whole = technique.group(make_context("bert"), FROM_1, nothing)

    def interrupt(fraction: float) -> None:
        if fraction > 0.7:
            raise Interrupted

    with pytest.raises(Interrupted):
        technique.group(replace(make_context("bert"), resume=point), FROM_1, interrupt)
    fractions: list[float] = []
    found = technique.group(replace(make_context("bert"), resume=point), FROM_1, fractions.append)
    assert min(fractions) > 0.6
    for one, other in zip(whole, found, strict=True):
        for name, table in one.items():
            pd.testing.assert_frame_equal(table, other[name])


# --- jobs -----------------------------------------------------------------------------------------


def test_windows_with_the_same_first_layer_belong_together_the_largest_first() -> None:
    windows = all_windows(3)
    assert Retraining().together(windows) == [(window,) for window in windows]
    assert Retraining(batched=True).together(windows) == [FROM_1, FROM_2, (Window(3, 3),)]


def test_jobs_of_windows_that_are_one_model_give_the_same_tables(tmp_path: Path) -> None:
    folder, store = tmp_path / "model", Store(tmp_path / "store")
    tiny_model("bert", layers=3, **NO_DROPOUT["bert"]).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    data = write_task(store, load_task(Data(task="reviews", limit=60)))
    found, seconds = [], []
    for batched in (False, True):
        config = Run(
            model=Model(name=str(folder)),
            training=Training(epochs=1, learning_rate=1e-3),
            techniques={"retraining": {"epochs": 1, "batched": batched}},
        )
        where = {"device": "cpu", "cache_memory": None}
        plan = plan_of(config, data, resolve(config.model), 3, where)
        compute_here(plan.jobs, store)
        artefact = store.open(*plan.cells[0].results["retraining"].artefact)
        files = artefact.manifest["files"]
        found.append({name: artefact.table(name) for name in files if name.endswith(".parquet")})
        parts = [store.open(*job.artefact).manifest["costs"] for job in plan.cells[0].parts]
        seconds.append((artefact.manifest["costs"]["seconds"], sum(p["seconds"] for p in parts)))
    assert found[0].keys() == found[1].keys() >= {"layers.parquet", "retraining.parquet"}
    for name, table in found[0].items():
        pd.testing.assert_frame_equal(found[1][name], table, rtol=1e-5)
    for whole, of_parts in seconds:  # a job is counted once, however many windows it has
        assert whole == pytest.approx(of_parts, abs=0.01)
