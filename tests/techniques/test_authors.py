"""memloc gives the numbers of the authors' procedure, with the settings that reproduce it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

import numpy as np
import pytest
import torch

from memloc.analysis.windows import Window
from memloc.config import Training, Windows
from memloc.data.encode import training_batches
from memloc.models.blocks import BlockModel
from memloc.models.load import put_paper_head
from memloc.techniques.base import Context
from memloc.techniques.centroids import Centroids
from memloc.techniques.gradients import Gradients, clean_sample
from memloc.techniques.retraining import Retraining, divide
from memloc.techniques.swapping import Swapping
from memloc.training.loop import Objective
from tests.conftest import labelled_rows
from tests.oracles import authors
from tests.tiny_models import encoded, tiny_model, tiny_tokenizer

ROLES = ("memorised", "original", "pretrained", "near_ceiling", "frozen")
LAYERS, SEED = 3, 3
TRAINING = Training(learning_rate=1e-5, batch_size=4)


@dataclass(frozen=True)
class Both:
    """The same models and examples for memloc and for the transcription."""

    context: Context
    theirs: dict[str, authors.TheirModel]
    data: authors.Texts
    noisy: np.ndarray

    @property
    def rows(self) -> tuple[list[int], list[int]]:
        """Rows of the noisy and of the clean examples."""
        return np.flatnonzero(self.noisy).tolist(), np.flatnonzero(~self.noisy).tolist()


@pytest.fixture(scope="module", params=["bert", "opt"])
def both(request: pytest.FixtureRequest) -> Both:
    rows = labelled_rows(60)
    rows["noisy"] = rows["label"] != rows["original_label"]
    rows["example"] = np.arange(len(rows)) + 100
    models = {}
    for seed, role in enumerate(ROLES):
        model = tiny_model(request.param, layers=LAYERS, seed=seed)
        put_paper_head(model)
        head = model.classifier if request.param == "bert" else model.score
        with torch.no_grad():
            head.bias.copy_(torch.linspace(-1.0, 1.0, 3).roll(seed))
        models[role] = BlockModel(model)
    theirs = {role: authors.their_model(one.model) for role, one in models.items()}
    data = authors.Texts(tiny_tokenizer(), rows["text"].tolist(), rows["label"].tolist())
    everything = Windows(exact=True)
    context = Context.of(
        rows, encoded(rows), models, seed=SEED, training=TRAINING, windows=everything
    )
    return Both(context, theirs, data, rows["noisy"].to_numpy())


def test_swapping_has_their_accuracies_in_every_window(both: Both) -> None:
    noisy, clean = both.rows
    expected = authors.swapping(
        both.theirs["memorised"], both.theirs["original"], both.data, noisy, clean
    )
    found = Swapping().localise(both.context)["windows"]
    mine = {
        tuple(range(row.first_layer - 1, row.last_layer)): (
            1 - row.noisy_error,
            1 - row.clean_error,
        )
        for row in found.itertuples()
    }
    assert mine.keys() == expected.keys()
    assert len({accuracy for accuracy, _ in expected.values()}) > 2
    for window, accuracies in expected.items():
        assert mine[window] == pytest.approx(accuracies), window


@pytest.mark.parametrize("norm", ["L1", "L2"])
def test_gradients_of_the_gold_logit_have_their_weights(both: Both, norm: str) -> None:
    noisy, clean = both.rows[0], clean_sample(both.noisy, SEED).tolist()
    expected = authors.gradient_weights(
        both.theirs["near_ceiling"], both.theirs["frozen"], both.data, noisy, clean, norm.lower()
    )
    found = Gradients(objective="gold_logit", norm=norm).localise(both.context)["layers"]
    np.testing.assert_allclose(found["weight"], expected, rtol=1e-4)
    assert np.std(expected) > 1e-3


def test_centroids_have_their_signed_positions_for_every_pair_and_layer(both: Both) -> None:
    label, original, example = both.context.columns("label", "original_label", "example")
    noisy = both.rows[0]
    expected = authors.centroid_positions(
        both.theirs["memorised"], both.data, original.tolist(), noisy
    )
    tables = Centroids().localise(both.context)
    paths = tables["trajectories"].query("model == 'memorised'")
    mine = {(row.example, row.layer): row.position for row in paths.itertuples()}
    pooled: dict[tuple[str, int], list[float]] = {}
    seen = 0
    for (one, two, layer), groups in expected.items():
        assert groups["noisy"]  # or memloc would leave out the pair
        for row, position in groups["noisy"].items():
            assert (label[row], original[row]) == (one, two)
            assert mine[example[row], layer] == pytest.approx(position, rel=1e-3, abs=1e-4)
            seen += 1
        for group, positions in groups.items():
            pooled.setdefault((group, layer), []).extend(positions.values())
    assert seen == len(mine) == LAYERS * len(noisy)
    assert {pair[:2] for pair in expected} == set(permutations(range(3), 2))
    assert min(mine.values()) < 0
    summary = tables["centroids"].query("model == 'memorised'").set_index(["group", "layer"])
    for place, positions in pooled.items():
        low, high = np.percentile(positions, [12.5, 87.5])
        found = summary.loc[place, ["mean", "low", "high"]].tolist()
        np.testing.assert_allclose(found, [np.mean(positions), low, high], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("window", [Window(1, 1), Window(2, 3), Window(1, 3)])
def test_retraining_with_dropout_everywhere_has_their_loss_in_every_step(
    both: Both, window: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    epochs, rate = 2, 5e-4
    train, evaluated = divide(both.noisy, SEED)
    order, lengths = np.random.default_rng(SEED), both.context.encoded.lengths[train]
    batches = [
        [train[indices].tolist() for indices in training_batches(lengths, 4, order)]
        for _ in range(epochs)
    ]
    layers = tuple(layer - 1 for layer in window.layers)
    model, expected = authors.retrain(
        both.theirs["memorised"], both.theirs["pretrained"], layers, both.data, batches, rate, SEED
    )
    found: list[float] = []
    step = Objective.step

    def noting(objective: Objective, indices: np.ndarray) -> torch.Tensor:
        loss = step(objective, indices)
        found.append(float(loss))
        return loss

    monkeypatch.setattr(Objective, "step", noting)
    technique = Retraining(epochs=epochs, learning_rate=rate, frozen_dropout=True, tail="norm+head")
    tables = technique.window(both.context, window, lambda _: None)
    np.testing.assert_allclose(found, expected, rtol=2e-4)
    means = np.reshape(expected, (epochs, -1)).mean(axis=1)
    np.testing.assert_allclose(tables["losses"]["loss"], means, rtol=2e-4)
    # Another seed of dropout gives other losses, so the agreement is no accident.
    _, other = authors.retrain(
        both.theirs["memorised"], both.theirs["pretrained"], layers, both.data, batches, rate, 9
    )
    assert np.abs(np.array(other) - expected).max() > 1e-2
    answers = tables["predictions"]
    right = answers["predicted"].to_numpy() == np.array(both.data.labels)[evaluated]
    half = int(both.noisy.sum())
    assert right[:half].mean() == both.data.accuracy(model, evaluated[:half].tolist())
    assert right[half:].mean() == both.data.accuracy(model, evaluated[half:].tolist())
