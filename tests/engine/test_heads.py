"""The authors' heads go all the way: training, store, checkpoints, every technique, low memory."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from memloc.config import Data, Model, Run, Training
from memloc.engine import compute, control, experiment
from memloc.engine.complete import complete_control
from memloc.engine.experiment import Findings
from memloc.engine.inputs import InputCache
from memloc.engine.store.store import Store
from memloc.models.states import predict_logits
from tests.engine.test_checkpoints import Here
from tests.tiny_models import tiny_model, tiny_tokenizer

TECHNIQUES = {
    "swapping": {},
    "retraining": {"epochs": 1},
    "gradients": {},
    "probing": {"epochs": 3, "select_after": 0, "seeds": 1},
}


def carry_out(prepare, config, folder: Path, low_memory: bool) -> tuple[Findings, list[str]]:
    here = Here(Store(folder / "store"))
    where = {"device": "cpu", "low_memory": low_memory}
    prepared = prepare(config, InputCache(here, where))
    outcome = here.execute(prepared.jobs, None)
    return prepared.collect(here.store, outcome), here.computed


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["bert", "opt"])
def test_the_authors_heads_go_all_the_way(architecture: str, tmp_path: Path) -> None:
    model = tmp_path / "tiny"
    tiny_model(architecture, layers=2).save_pretrained(model)
    tiny_tokenizer().save_pretrained(model)
    config = Run(
        data=Data(task="reviews", limit=100),
        model=Model(name=str(model), head="paper"),
        training=Training(
            epochs=2, learning_rate=3e-3, batch_size=16, frozen_tail="all", frozen_dropout=True
        ),
        techniques=TECHNIQUES,
        checkpoints=2,
    )
    found, computed = carry_out(experiment.prepare, config, tmp_path / "one", False)
    assert computed
    assert not found.failures
    assert set(found.tables["layers"]["technique"]) == set(TECHNIQUES)
    # The model that is loaded from the store answers as it did at the end of its training.
    history = found.tables["history"].query("state == 'memorised' and epoch == 2")
    trained = history.set_index("split")["accuracy"]["train"]
    store = Store(tmp_path / "one" / "store")
    planned = experiment.prepare(config, InputCache(Here(store), {"device": "cpu"}))
    context = compute.context_for(planned.plan.cells[0].results["swapping"], store)
    answers = predict_logits(context.model("memorised"), context.encoded).argmax(axis=1)
    assert (answers == context.examples["label"]).mean() == pytest.approx(trained)
    again, computed = carry_out(experiment.prepare, config, tmp_path / "one", False)
    assert computed == []
    sparing, _ = carry_out(experiment.prepare, config, tmp_path / "two", True)
    for name in ("windows", "layers", "predictions"):
        pd.testing.assert_frame_equal(found.tables[name], again.tables[name])
        pd.testing.assert_frame_equal(found.tables[name], sparing.tables[name])
    own = config.replace(model=Model(name=str(model)))
    other, computed = carry_out(experiment.prepare, own, tmp_path / "one", False)
    assert len(computed) > 1
    assert other.name != found.name


def test_the_control_setup_has_the_authors_heads_and_single_tasks_their_own_training(
    tmp_path: Path,
) -> None:
    model = tmp_path / "tiny"
    tiny_model("opt", layers=2).save_pretrained(model)
    tiny_tokenizer().save_pretrained(model)
    training = {"epochs": 2, "learning_rate": 1e-3, "batch_size": 16}
    config = complete_control(
        {
            "models": [
                {
                    "model": {"name": str(model), "head": "paper"},
                    "training": training,
                    "exceptions": {"topics": {**training, "epochs": 1}},
                }
            ],
            "tasks": ["reviews", "topics"],
            "data": {"limit": 40},
            "layers": ["1"],
            "techniques": ["swapping", "gradients"],
            "control": {"tail": "all", "attempts": 1},
        }
    )
    found, _ = carry_out(control.prepare, config, tmp_path, False)
    assert not found.failures
    epochs = found.tables["history"].groupby("task")["epoch"].max()
    assert epochs.to_dict() == {"reviews": 2, "topics": 1}
    assert set(found.tables["accuracy"]["technique"]) == {"swapping", "gradients"}
