"""The parts alone: flip, fine-tune, one technique, one analysis."""

from __future__ import annotations

import copy
from typing import Any

import pandas as pd
import pytest
import torch

import memloc
from memloc.config import Data
from memloc.data.load import load_task
from memloc.errors import MemlocError
from memloc.techniques import make
from tests.api.conftest import Setup, quick, untrained


def test_labels_flip_as_in_a_run() -> None:
    task = load_task(Data(task="questions", limit=100, noise=0.2, seed=4))
    correct = [task.labels[number] for number in task.train["original_label"]]
    found = memloc.perturb(correct, noise=0.2, seed=4)
    assert found["original_label"].tolist() == correct
    assert (found["noisy"] == (found["label"] != found["original_label"])).all()
    assert found["noisy"].groupby(correct).mean().between(0.1, 0.2).all()
    # Numbers of classes decide who flips, and names are numbered in alphabetical order.
    numbers = memloc.perturb(task.train["original_label"].tolist(), noise=0.2, seed=4)
    assert numbers["label"].tolist() == task.train["label"].tolist()


@pytest.mark.parametrize(
    ("labels", "settings", "words"),
    [
        (["a", None, "b"], {}, "label 1 (they count from 0) is missing"),
        (["a", "a"], {}, "1 class is not enough"),
        (["a", "b"] * 9, {"noise": 2.0}, "noise ratio 2.0 is not possible"),
        (["a", "b"], {"seed": -1}, "seed -1 is not possible"),
        ("abab", {}, "labels is of type str; give one value per example"),
    ],
)
def test_labels_that_cannot_flip_are_refused(
    labels: Any, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(MemlocError) as caught:
        memloc.perturb(labels, **settings)
    assert words in str(caught.value)


def test_fine_tuning_changes_layers_and_head_but_not_embeddings(trained: Setup) -> None:
    model = untrained().train()
    before = copy.deepcopy(model.state_dict())
    history = memloc.fine_tune(
        model, tokenizer=trained.tokenizer, data=trained.data, epochs=2, learning_rate=1e-3
    )
    assert history["epoch"].tolist() == [1, 2]
    assert history["loss"].iloc[1] < history["loss"].iloc[0]
    changed = {n for n, p in model.named_parameters() if not torch.equal(p, before[n])}
    assert not any("embeddings" in name for name in changed)
    assert {"classifier.weight", "bert.encoder.layer.0.output.dense.weight"} <= changed
    assert model.training
    assert all(p.requires_grad for p in model.parameters())
    head = memloc.fine_tune(
        model, tokenizer=trained.tokenizer, data=trained.data, epochs=1, head_only=True
    )
    assert len(head) == 1
    with pytest.raises(MemlocError, match=r"label 'x' in row 0 of data .* is not a class"):
        memloc.fine_tune(model, tokenizer=trained.tokenizer, data={"text": ["a"], "label": ["x"]})
    with pytest.raises(MemlocError, match=r"^epochz: there is no such setting; did you mean 'ep"):
        memloc.fine_tune(model, tokenizer=trained.tokenizer, data=trained.data, epochz=1)


def test_each_technique_alone_finds_what_all_find_together(trained: Setup) -> None:
    whole = memloc.localise(
        **trained.both,
        pretrained=trained.pretrained,
        explain=False,
        **quick("swapping", "gradients", "probing", "shapley", "patching", "random"),
    )
    given = {name: value for name, value in trained.both.items() if name != "progress"}
    with memloc.prepare(**given, pretrained=trained.pretrained, training={"epochs": 2}) as context:
        assert repr(context).startswith("<memloc.Context: 60 examples (11 noisy), 3 layers, seed 1")
        alone = {
            name: make(name, settings).localise(context)
            for name, settings in quick(*whole.techniques)["techniques"].items()
        }
        explained = memloc.Centroids().localise(context)  # type: ignore[attr-defined]
    with (
        memloc.prepare(**{**given, "original": None}) as context,
        pytest.raises(MemlocError, match=r"this needs the model of the correct labels"),
    ):
        make("swapping").localise(context)
    for name, found in alone.items():
        rows = whole.layers[whole.layers["technique"] == name].reset_index(drop=True)
        pd.testing.assert_frame_equal(found["layers"], rows)
    assert set(explained["centroids"]["group"]) == {"noisy", "class_a", "class_b"}
    assert set(explained["events"]["event"]) == {"crossing", "first_crossing", "initiation"}


def test_flipped_labels_stay_in_the_rows_of_a_shuffled_table() -> None:
    table = pd.DataFrame({"gold": ["yes", "no", "maybe"] * 20}).sample(frac=1, random_state=1)
    before = table["gold"].tolist()
    flipped = memloc.perturb(table["gold"], noise=0.1)
    table["label"], table["gold"] = flipped["label"], flipped["original_label"]
    assert table["gold"].tolist() == before
    assert (table["label"] != table["gold"]).tolist() == flipped["noisy"].tolist()


def test_what_is_frozen_is_not_trained_behind_the_back_of_its_owner() -> None:
    model = untrained()
    next(model.parameters()).requires_grad = False
    with pytest.raises(MemlocError, match=r"1 parameters of the model are frozen"):
        memloc.fine_tune(model, tokenizer=None, data={"text": ["a", "b"], "label": [0, 1]})
