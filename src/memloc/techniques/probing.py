"""Probing (Dankers & Titov 2024, section 3.1).

Can noisy examples be told from clean ones by the state that the head would read after layer l? An
MLP is trained on the states of θ_M2 after every layer 0..L, with several seeds; F1_l is that of the
noisy class on examples it has not seen, averaged over the seeds:

    weight_l = max(0, F1_l − F1_{l−1})

For layer 1 the baseline is the same probe on layer 1 of θ_P. A logistic regression on the same
states is reported beside it as a control: what it finds needed no capacity of the probe.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch

from memloc.analysis.windows import layer_table
from memloc.techniques.base import Context, LocalisationResult, Report, register
from memloc.training.probes import f1, linear_probes, split_examples, train_probes


@register
class Probing:
    """After which layer can a probe tell wrong labels from clean ones?"""

    name = "probing"
    revision = 1
    needs = ("states:memorised", "states:pretrained")
    settings = ("probing",)
    smallest_group = 10

    def localise(self, context: Context, report: Report) -> LocalisationResult:
        """Probe all layers with all seeds."""
        config = context.techniques.probing
        noisy = context.examples["noisy"].to_numpy().astype(np.int64)
        states = context.pooled_states("memorised")
        # The baseline is one more feature set: it trains together with the layers.
        features = torch.cat([states, context.pooled_states("pretrained")[1:2]])
        splits = [split_examples(noisy, seed) for seed in range(config.seeds)]
        weights = (config.clean_weight, config.noisy_weight)
        mlp = train_probes(features, noisy, 2, splits, config, class_weights=weights, report=report)
        linear = linear_probes(features, noisy, splits, class_weights=weights)
        scores = {
            probe: np.stack(
                [
                    f1(predicted[:, seed][:, split.test], noisy[split.test], 2)
                    for seed, split in enumerate(splits)
                ],
                axis=1,
            )
            for probe, predicted in (("mlp", mlp.predicted), ("linear", linear))
        }
        return LocalisationResult(
            layers=layer_table(self.name, *gains(scores["mlp"])),
            details={"probes": self._table(scores, mlp.validation_f1, mlp.epoch)},
            costs={"probe_steps": mlp.steps},
        )

    def _table(
        self, scores: dict[str, np.ndarray], validation: np.ndarray, epochs: np.ndarray
    ) -> pd.DataFrame:
        """One row per probe; the last feature set is layer 1 of θ_P."""
        n_sets, n_seeds = validation.shape
        layers = np.append(np.arange(n_sets - 1), 1)
        models = np.append(np.repeat("memorised", n_sets - 1), "pretrained")
        tables = [
            pd.DataFrame(
                {
                    "technique": self.name,
                    "probe": probe,
                    "model": np.repeat(models, n_seeds),
                    "layer": np.repeat(layers, n_seeds),
                    "probe_seed": np.tile(np.arange(n_seeds), n_sets),
                    "f1": found.reshape(-1),
                    "validation_f1": validation.reshape(-1) if probe == "mlp" else np.nan,
                    "epoch": pd.array(
                        epochs.reshape(-1) if probe == "mlp" else [None] * epochs.size,
                        dtype="Int64",
                    ),
                }
            )
            for probe, found in scores.items()
        ]
        return pd.concat(tables, ignore_index=True)


def gains(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights of layers 1..L from F1 [layers 0..L and the baseline, seeds], and their spread."""
    before = scores[:-2].copy()
    before[0] = scores[-1]
    gain = scores[1:-1] - before
    several = scores.shape[1] > 1
    spread = gain.std(axis=1, ddof=1) if several else np.full(len(gain), np.nan)
    return np.maximum(0.0, gain.mean(axis=1)), spread
