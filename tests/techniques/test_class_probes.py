from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import f1_score

from memloc.techniques.base import Context
from memloc.techniques.probing import ClassProbes, guessing_f1, probe_events
from memloc.training.probes import epoch_orders, initial_weights, split_examples
from tests.oracles.probing import probe_plainly

CONFIG = ClassProbes.Config(
    seeds=2, epochs=30, select_after=5, dropout=0.0, learning_rate=3e-3, batch_size=16
)


def separable(n: int = 600, classes: int = 3, width: int = 12) -> tuple[torch.Tensor, pd.DataFrame]:
    """States in which layer 1 shows nothing, 2 the original label, 3 the flipped one."""
    random = np.random.default_rng(0)
    original = random.integers(classes, size=n)
    noisy = random.random(n) < 0.25
    label = np.where(noisy, (original + random.integers(1, classes, size=n)) % classes, original)
    noise = random.normal(size=(4, n, width)).astype(np.float32)
    for layer, shown in ((2, original), (3, label)):
        noise[layer, np.arange(n), shown] += 8
    examples = pd.DataFrame(
        {"example": np.arange(n), "label": label, "original_label": original, "noisy": noisy}
    )
    return torch.from_numpy(noise), examples


def make_context() -> Context:
    states, examples = separable()

    def nothing(*_: object) -> None:
        raise AssertionError("class probes need no model")

    return Context(
        examples,
        nothing,  # type: ignore[arg-type]
        nothing,  # type: ignore[arg-type]
        lambda _: states,
        3,
    )


def test_probes_find_the_label_that_the_states_show() -> None:
    tables = ClassProbes(CONFIG).explain(make_context())
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


@pytest.mark.parametrize("labels", ["original", "perturbed"])
def test_f1_is_that_of_single_probes_tested_on_their_own_labels(labels: str) -> None:
    context = make_context()
    table = ClassProbes(CONFIG).explain(context)["class_probes"]
    column = {"original": "original_label", "perturbed": "label"}[labels]
    truth = context.examples[column].to_numpy(copy=True)
    noisy = context.examples["noisy"].to_numpy()
    for layer in (1, 3):
        for seed in range(CONFIG.seeds):
            split = split_examples(noisy.astype(np.int64), seed)
            states = context.pooled_states("memorised")[layer]
            predicted, _, _, _ = probe_plainly(
                states,
                truth,
                3,
                split.train,
                split.validation,
                initial_weights(seed, states.shape[1], CONFIG.hidden, 3),
                epoch_orders(seed, len(split.train), CONFIG.epochs),
                first_epoch=CONFIG.select_after + 1,
                dropout=0.0,
                learning_rate=CONFIG.learning_rate,
                batch_size=CONFIG.batch_size,
            )
            row = table[
                (table["labels"] == labels)
                & (table["layer"] == layer)
                & (table["probe_seed"] == seed)
            ].iloc[0]
            for kind, chosen in (("noisy", noisy), ("clean", ~noisy)):
                rows = split.test[chosen[split.test]]
                expected = f1_score(truth[rows], predicted[rows], average="macro")
                assert row[f"{kind}_f1"] == pytest.approx(expected, abs=0.01)


def test_guessing_is_the_f1_of_shuffled_labels() -> None:
    labels = np.array([0] * 60 + [1] * 30 + [2] * 10)
    shuffled = [
        f1_score(labels, np.random.default_rng(seed).permutation(labels), average="macro")
        for seed in range(300)
    ]
    assert guessing_f1(labels, 3, 0) == pytest.approx(np.mean(shuffled), abs=0.02)
    assert guessing_f1(labels, 3, 0) == guessing_f1(labels, 3, 0)


def test_events_follow_from_the_scores_averaged_over_probe_seeds() -> None:
    rows = [
        {"labels": labels, "layer": layer, "probe_seed": seed, "noisy_f1": noisy + shift,
         "clean_f1": clean, "guessing_f1": 0.3}
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
