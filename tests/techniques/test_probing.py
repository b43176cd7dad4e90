"""Probing and class probes: scores are those of single probes on states computed one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import f1_score

from memloc.analysis.centroids import f1_90, mem_gen
from memloc.analysis.probes import gains
from memloc.analysis.windows import centre_of_gravity
from memloc.techniques.base import Context
from memloc.techniques.probing import ClassProbes, Probing, guessing_f1, probe_events
from memloc.training.probes import (
    Split,
    dropout_masks,
    epoch_batches,
    initial_weights,
    split_examples,
)
from tests.oracles.probing import (
    AuthorsProbe,
    PlainProbe,
    authors_probe,
    hidden_states_plainly,
    probe_plainly,
)
from tests.tiny_models import FIVE, each, prefix_of, tiny_context, tiny_tokenizer

CONFIG = Probing.Config(
    seeds=2, epochs=8, select_after=3, learning_rate=3e-3, batch_size=8, least_steps=60
)


def plain_probe(
    states: torch.Tensor,
    labels: np.ndarray,
    classes: int,
    split: Split,
    seed: int,
    config: Probing.Config,
    weights: Any = None,
    macro: bool = False,
) -> PlainProbe:
    return probe_plainly(
        states, labels, classes, split.train, split.validation,
        initial_weights(seed, states.shape[1], config.hidden, classes),
        epoch_batches(seed, len(split.train), config), class_weights=weights, macro=macro,
        first_epoch=config.select_after + 1, masks=dropout_masks(seed, config.dropout),
        learning_rate=config.learning_rate,
    )  # fmt: skip


def assert_plain(context: Context, layers: int) -> None:
    table = Probing(CONFIG).localise(context)["probes"]
    mlp = table[table["probe"] == "mlp"].set_index(["model", "layer", "probe_seed"])
    assert len(mlp) == (layers + 2) * CONFIG.seeds
    text, noisy = context.columns("text", "noisy")
    noisy = noisy.astype(np.int64)
    for role, probed in (("memorised", [0, layers // 2, layers]), ("pretrained", [1])):
        model = context.model(role)
        for layer in probed:
            states = hidden_states_plainly(
                model.model, tiny_tokenizer(), text.tolist(), layer, prefix_of(model), model.pooling
            )
            for seed in range(CONFIG.seeds):
                split = split_examples(noisy, seed)
                weights = CONFIG.clean_weight, CONFIG.noisy_weight
                plain = plain_probe(states, noisy, 2, split, seed, CONFIG, weights)
                row = mlp.loc[(role, layer, seed)]
                for column, part in (("f1", split.test), ("train_f1", split.train)):
                    expected = f1_score(noisy[part], plain.predicted[part], zero_division=0)
                    assert row[column] == pytest.approx(expected, abs=0.01)
                assert row["validation_f1"] == pytest.approx(plain.validation_f1, abs=0.01)
                assert row["epoch"] == plain.epoch


@pytest.mark.parametrize("architecture", each(*FIVE))
def test_f1_is_that_of_single_probes_on_states_computed_one_by_one(architecture: str) -> None:
    assert_plain(tiny_context(architecture, 2, ("memorised", "pretrained"), 60), 2)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", FIVE)
def test_f1_of_twelve_layers_is_that_of_single_probes(architecture: str) -> None:
    assert_plain(tiny_context(architecture, 12, ("memorised", "pretrained"), 60), 12)


AUTHORS = Probing.Config(
    seeds=2, standardise=False, least_steps=0, batches="chunks", select_after=26, fitted_at=0
)
"""What gives the procedure of the authors' program."""


def as_the_authors(
    states: torch.Tensor, labels: np.ndarray, noisy: np.ndarray, seed: int, rate: float, noise: bool
) -> AuthorsProbe:
    """Their procedure with the random numbers of memloc."""
    split = split_examples(noisy.astype(np.int64), seed)
    epochs = list(epoch_batches(seed, len(split.train), AUTHORS))
    chunks = sorted(epochs[0], key=len, reverse=True)  # in their program the last one is short
    where = {chunk.tobytes(): index for index, chunk in enumerate(chunks)}
    classes = 2 if noise else int(labels.max()) + 1
    return authors_probe(
        states, labels, noisy,
        np.concatenate([split.train[np.concatenate(chunks)], split.validation, split.test]),
        initial_weights(seed, states.shape[1], AUTHORS.hidden, classes),
        [[where[chunk.tobytes()] for chunk in epoch] for epoch in epochs],
        dropout_masks(seed, AUTHORS.dropout), predict_noise=noise, learning_rate=rate,
    )  # fmt: skip


@pytest.mark.parametrize("architecture", ["bert", "opt"])
@pytest.mark.parametrize(
    "rate",
    [
        pytest.param(2e-4, id="as-printed", marks=pytest.mark.slow),
        pytest.param(5e-3, id="quick-to-learn"),
    ],
)
def test_the_authors_procedure_is_a_matter_of_settings(architecture: str, rate: float) -> None:
    context = tiny_context(architecture, 2, ("memorised", "pretrained"), 60)
    examples = context.examples
    # A share of noisy examples for which their split and ours have parts of the same sizes.
    examples["noisy"] = np.arange(60) % 6 == 0
    examples["label"] = np.where(
        examples["noisy"], (examples["original_label"] + 1) % 3, examples["original_label"]
    )
    noisy = examples["noisy"].to_numpy()
    config = AUTHORS.replace(learning_rate=rate)
    states = context.pooled_states("memorised")
    probes = Probing(config).localise(context)["probes"]
    mlp = probes.query("probe == 'mlp' and model == 'memorised'")
    chosen = []
    for row in mlp.itertuples():
        target = noisy.astype(np.int64)
        theirs = as_the_authors(states[row.layer], target, noisy, row.probe_seed, rate, True)
        assert row.f1 == pytest.approx(theirs.test_f1, abs=0.01)
        assert row.train_f1 == pytest.approx(theirs.train_f1, abs=0.01)
        assert row.epoch == (100 if theirs.chosen is None else theirs.chosen + 1)
        chosen.append(theirs.chosen)
    assert any(epoch is not None for epoch in chosen)
    if architecture == "bert":  # before the first layer all examples look alike to an encoder
        assert chosen[:2] == [None, None]

    table = ClassProbes(config).localise(context)["class_probes"]
    for row in table.itertuples():
        column = "label" if row.labels == "perturbed" else "original_label"
        labels = examples[column].to_numpy(dtype=np.int64)
        theirs = as_the_authors(states[row.layer], labels, noisy, row.probe_seed, rate, False)
        assert row.noisy_f1 == pytest.approx(theirs.noisy_f1, abs=0.01)
        assert row.clean_f1 == pytest.approx(theirs.clean_f1, abs=0.01)
        assert row.train_f1 == pytest.approx(theirs.train_f1, abs=0.01)
        assert row.epoch == (100 if theirs.chosen is None else theirs.chosen + 1)


def test_weights_are_gains_over_the_layer_below_and_never_negative() -> None:
    # Layers 0..3 and, last, layer 1 of θ_P; two seeds.
    scores = np.array([[0.9, 0.9], [0.4, 0.6], [0.8, 0.6], [0.6, 0.6], [0.3, 0.5]])
    weights, spread = gains(scores)
    np.testing.assert_allclose(weights, [0.1, 0.2, 0.0])  # layer 1 against θ_P, not against layer 0
    np.testing.assert_allclose(spread, [0.0, np.sqrt(0.08), np.sqrt(0.02)], atol=1e-12)
    assert np.isnan(gains(scores[:, :1])[1]).all()  # one seed has no spread


def test_probes_that_did_not_fit_are_missing_from_the_weights_not_zero() -> None:
    nan = np.nan
    # Layers 0..3 and the baseline; four seeds. Layer 0 counts in no weight.
    scores = np.array(
        [[nan] * 4, [0.4, 0.6, nan, nan], [0.8, nan, nan, nan], [0.6] * 4, [0.3, 0.5, 0.1, 0.1]]
    )
    weights, spread = gains(scores)
    assert weights[0] == pytest.approx(0.5 - 0.25)  # half of the probes is enough
    assert np.isnan(weights[1:]).all()  # a quarter is not: layer 2, and layer 3, compared with it
    assert spread[0] == pytest.approx(0.0, abs=1e-12)
    assert np.isnan(spread[1:]).all()
    assert centre_of_gravity(weights) is None


def test_states_without_variation_are_no_evidence() -> None:
    noisy = np.arange(120) % 5 == 0
    states = torch.randn(4, 120, 16)
    states[2] = 1.0  # no probe can fit: all examples look alike
    plain = torch.randn(4, 120, 16)
    context = of_states(pd.DataFrame({"noisy": noisy}), memorised=states, pretrained=plain)
    config = Probing.Config(seeds=2, learning_rate=3e-3, epochs=60, least_steps=0)
    result = Probing(config).localise(context)
    mlp = result["probes"].query("probe == 'mlp'")
    assert (mlp["fitted"] == (mlp["train_f1"] >= config.fitted_at)).all()
    assert not mlp.query("layer == 2")["fitted"].any()
    assert mlp.query("layer != 2")["fitted"].all()
    weights = result["layers"]["weight"]
    assert weights.isna().tolist() == [False, True, True]
    found = Probing.summarise(result)
    assert [f1 is None for f1 in found["f1"]["mlp"]] == [False, False, True, False]
    assert found["no_evidence"]["because"] == "2 of 8 probes did not fit their training data"
    counted = Probing(config.replace(fitted_at=0)).localise(context)
    assert counted["layers"]["weight"].notna().all()
    assert Probing.summarise(counted)["no_evidence"] is None


@pytest.mark.parametrize(
    ("perturbed", "expected"),
    [
        ([0.5, 0.5, 0.9, 0.9], 3),
        ([0.5, np.nan, 0.9, 0.9], None),  # it may have happened in layer 2 already
        ([0.5, 0.5, 0.9, np.nan], 3),  # what comes later does not matter
        ([0.5, 0.5, 0.5, np.nan], None),
    ],
)
def test_an_event_above_an_unknown_layer_is_unknown(
    perturbed: list[float], expected: int | None
) -> None:
    assert mem_gen(np.array(perturbed), np.full(4, 0.5)) == expected
    assert mem_gen(np.full(4, 0.5), np.array(perturbed) - 1) in (1, None)


def test_90_percent_of_the_best_layer_needs_all_layers() -> None:
    assert f1_90(np.array([0.3, 0.95, 1.0]), 0.3) == 2
    for layer in range(3):
        scores = np.array([0.3, 0.95, 1.0])
        scores[layer] = np.nan
        assert f1_90(scores, 0.3) is None


def of_states(examples: pd.DataFrame, **states: torch.Tensor) -> Context:
    """A context without models: probes need none."""

    def nothing(*_: object) -> Any:
        raise AssertionError("probes need no model")

    layers = len(states["memorised"]) - 1
    return Context(examples, nothing, nothing, states.__getitem__, layers)


def test_a_layer_that_marks_noisy_examples_gets_the_weight() -> None:
    noisy = np.arange(120) % 5 == 0
    states, plain = torch.randn(4, 120, 16), torch.randn(4, 120, 16)
    states[2:, torch.from_numpy(noisy), 0] += 6.0  # from layer 2 on, one direction shows them
    context = of_states(pd.DataFrame({"noisy": noisy}), memorised=states, pretrained=plain)
    result = Probing(seeds=3, epochs=40, learning_rate=3e-3).localise(context)
    weights = result["layers"]["weight"].to_numpy()
    assert weights.argmax() == 1
    assert weights[1] > 0.4
    assert weights[2] < 0.1
    linear = result["probes"].query("probe == 'linear' and layer >= 2")
    assert linear["f1"].min() > 0.8  # the control sees it as well


def separable(n: int = 400, classes: int = 3, width: int = 12) -> Context:
    """States in which layer 1 shows nothing, 2 the original label, 3 the flipped one."""
    random = np.random.default_rng(0)
    original = random.integers(classes, size=n)
    noisy = random.random(n) < 0.25
    label = np.where(noisy, (original + random.integers(1, classes, size=n)) % classes, original)
    noise = random.normal(size=(4, n, width)).astype(np.float32)
    for layer, shown in ((2, original), (3, label)):
        noise[layer, np.arange(n), shown] += 8
    columns = {"example": np.arange(n), "label": label, "original_label": original, "noisy": noisy}
    return of_states(pd.DataFrame(columns), memorised=torch.from_numpy(noise))


def test_class_probes_find_the_label_that_the_states_show_as_single_probes_do() -> None:
    config = CONFIG.replace(epochs=20, select_after=5, batch_size=16)
    context = separable()
    tables = ClassProbes(config).localise(context)
    mean = tables["class_probes"].groupby(["labels", "layer"])[["noisy_f1", "clean_f1"]].mean()
    assert mean.loc[("original", 2), "noisy_f1"] > 0.9
    assert mean.loc[("perturbed", 3), "noisy_f1"] > 0.9
    assert mean.loc[("original", 3), "noisy_f1"] < 0.5
    assert mean.loc[("perturbed", 2), "noisy_f1"] < 0.5
    assert mean.loc[("original", 1), "clean_f1"] < 0.6
    assert (mean.loc[(slice(None), [2, 3]), "clean_f1"] > 0.8).all()
    events = tables["events"].set_index("event")["layer"]
    assert events["mem_gen"] == 3
    assert events["f1_90"] == 2

    rows = tables["class_probes"].set_index(["labels", "layer", "probe_seed"])
    noisy = context.examples["noisy"].to_numpy()
    split = split_examples(noisy.astype(np.int64), 1)
    for labels, column in (("original", "original_label"), ("perturbed", "label")):
        truth = context.examples[column].to_numpy(copy=True)
        states = context.pooled_states("memorised")[3]
        predicted = plain_probe(states, truth, 3, split, 1, config, macro=True).predicted
        expected = f1_score(truth[split.train], predicted[split.train], average="macro")
        assert rows.loc[(labels, 3, 1), "train_f1"] == pytest.approx(expected, abs=0.01)
        for kind, chosen in (("noisy", noisy), ("clean", ~noisy)):
            test = split.test[chosen[split.test]]
            expected = f1_score(truth[test], predicted[test], average="macro")
            assert rows.loc[(labels, 3, 1), f"{kind}_f1"] == pytest.approx(expected, abs=0.01)


def test_guessing_is_the_f1_of_shuffled_labels() -> None:
    labels = np.array([0] * 60 + [1] * 30 + [2] * 10)
    shuffled = [
        f1_score(labels, np.random.default_rng(seed).permutation(labels), average="macro")
        for seed in range(300)
    ]
    assert guessing_f1(labels, 3, 0) == pytest.approx(np.mean(shuffled), abs=0.02)


def test_events_follow_from_the_scores_averaged_over_probe_seeds() -> None:
    rows = [
        {"labels": labels, "layer": layer, "probe_seed": seed, "noisy_f1": noisy + shift,
         "clean_f1": clean, "guessing_f1": 0.3, "fitted": True}
        for labels, scores in {
            "original": [(0.5, 0.3), (0.5, 0.8), (0.2, 1.0)],
            "perturbed": [(0.5, 0.3), (0.58, 1.0), (0.9, 1.0)],
        }.items()
        for layer, (noisy, clean) in enumerate(scores, start=1)
        for seed, shift in ((0, 0.1), (1, -0.1))
    ]  # fmt: skip
    # mem≫gen: .58 does not exceed .5 by ten points. F1 on clean examples, both probes: .3 .9 1;
    # rescaled by guessing (.3): 0 .857 1.
    assert probe_events(pd.DataFrame(rows)) == {"mem_gen": 3, "f1_90": 3}
    # One of two probes is enough, and its F1 is that of the layer: .58 against .5 − .1. Without
    # both, layer 2 is unknown, and so are the events.
    probes = pd.DataFrame(rows)
    in_layer_2 = (probes["labels"] == "original") & (probes["layer"] == 2)
    probes["fitted"] = ~(in_layer_2 & (probes["probe_seed"] == 0))
    assert probe_events(probes) == {"mem_gen": 2, "f1_90": 3}
    probes["fitted"] = ~in_layer_2
    assert probe_events(probes) == {"mem_gen": None, "f1_90": None}
