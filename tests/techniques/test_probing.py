from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score

from memloc.data.encode import TextCodec, encode
from memloc.models.blocks import BlockModel
from memloc.techniques.base import Context
from memloc.techniques.probing import Probing, gains
from memloc.training.probes import epoch_orders, initial_weights, split_examples
from tests.conftest import labelled_rows
from tests.oracles.probing import hidden_states_plainly, probe_plainly
from tests.tiny_models import tiny_model, tiny_tokenizer

FIVE = ("bert", "opt", "gpt_neox", "gpt_neo", "llama")
CONFIG = Probing.Config(
    seeds=2, epochs=8, select_after=3, dropout=0.0, learning_rate=3e-3, batch_size=8
)


def make_context(architecture: str, layers: int, n: int = 60) -> Context:
    rows = labelled_rows(n)
    rows["noisy"] = rows["label"] != rows["original_label"]
    rows["example"] = np.arange(n)
    models = {
        role: BlockModel(tiny_model(architecture, layers=layers, seed=seed))
        for seed, role in enumerate(("memorised", "pretrained"))
    }
    encoded = encode(rows, TextCodec(tiny_tokenizer(), "|", 0, 128))
    return Context.of(rows, encoded, models)


@pytest.mark.parametrize(("architecture", "layers"), list(product(FIVE, (2, 12))))
def test_f1_is_that_of_single_probes_on_states_computed_one_by_one(
    architecture: str, layers: int
) -> None:
    context = make_context(architecture, layers)
    table = Probing(CONFIG).localise(context, lambda _: None).details["probes"]
    mlp = table[table["probe"] == "mlp"]
    assert len(mlp) == (layers + 2) * CONFIG.seeds
    noisy = context.examples["noisy"].to_numpy().astype(np.int64)
    texts = context.examples["text"].tolist()
    chosen = [0, layers // 2, layers] if layers > 2 else [0, 1, 2]
    for role, probed in (("memorised", chosen), ("pretrained", [1])):
        model = context.model(role)
        stack = f"{model.model.base_model_prefix}.{model.stack_path}"
        for layer in probed:
            states = hidden_states_plainly(
                model.model, tiny_tokenizer(), texts, layer, stack, model.pooling
            )
            for seed in range(CONFIG.seeds):
                split = split_examples(noisy, seed)
                predicted, best, epoch, _ = probe_plainly(
                    states,
                    noisy,
                    2,
                    split.train,
                    split.validation,
                    initial_weights(seed, states.shape[1], CONFIG.hidden, 2),
                    epoch_orders(seed, len(split.train), CONFIG.epochs),
                    class_weights=(CONFIG.clean_weight, CONFIG.noisy_weight),
                    first_epoch=4,
                    dropout=0.0,
                    learning_rate=3e-3,
                    batch_size=8,
                )
                row = mlp[
                    (mlp["model"] == role) & (mlp["layer"] == layer) & (mlp["probe_seed"] == seed)
                ].iloc[0]
                expected = f1_score(noisy[split.test], predicted[split.test], zero_division=0)
                assert row["f1"] == pytest.approx(expected, abs=0.01)
                assert row["validation_f1"] == pytest.approx(best, abs=0.01)
                assert row["epoch"] == epoch


def test_weights_are_gains_over_the_layer_below_and_never_negative() -> None:
    # Layers 0..3 and, last, layer 1 of θ_P; two seeds.
    scores = np.array([[0.9, 0.9], [0.4, 0.6], [0.8, 0.6], [0.6, 0.6], [0.3, 0.5]])
    weights, spread = gains(scores)
    np.testing.assert_allclose(weights, [0.1, 0.2, 0.0])  # layer 1 against θ_P, not against layer 0
    np.testing.assert_allclose(spread, [0.0, np.sqrt(0.08), np.sqrt(0.02)], atol=1e-12)
    assert np.isnan(gains(scores[:, :1])[1]).all()  # one seed has no spread


def test_a_layer_that_marks_noisy_examples_gets_the_weight() -> None:
    context = make_context("bert", 3, n=120)
    noisy = torch.tensor(context.examples["noisy"].to_numpy())
    states = torch.randn(4, 120, 16)
    states[2:, noisy, 0] += 6.0  # from layer 2 on, one direction tells them apart
    plain = torch.randn(4, 120, 16)
    marked = Context(
        context.examples,
        context.load_encoded,
        context.load_model,
        {"memorised": states, "pretrained": plain}.__getitem__,
        context.n_layers,
    )
    result = Probing(seeds=3, epochs=40, learning_rate=3e-3).localise(marked, lambda _: None)
    weights = result.layers["weight"].to_numpy()
    assert weights.argmax() == 1
    assert weights[1] > 0.4
    assert weights[2] < 0.1
    linear = result.details["probes"].query("probe == 'linear' and layer >= 2")
    assert linear["f1"].min() > 0.8  # the control sees it as well
