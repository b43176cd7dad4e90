"""Class probes (section 5): which of its two labels does the state of a noisy example show?

The probes of `memloc.techniques.probing` with another target: the class, once by original and once
by perturbed labels, on the states of θ_M2 after layers 1..L. They are tested on noisy and clean
examples apart, each against the labels it was trained with (macro F1).
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd

from memloc.analysis.events import event_table, f1_90, mem_gen
from memloc.techniques.base import Context, Report, Tables
from memloc.training.probes import f1, split_examples, train_probes

GUESSES = 200
"""Shuffles of the labels that random guessing is averaged over."""


def explain(context: Context, report: Report) -> Tables:
    """Tables: class_probes, events."""
    config = context.techniques.probing
    noisy = context.examples["noisy"].to_numpy()
    targets = {
        "original": context.examples["original_label"].to_numpy(),
        "perturbed": context.examples["label"].to_numpy(),
    }
    n_classes = int(max(labels.max() for labels in targets.values())) + 1
    states = context.pooled_states("memorised")[1:]
    # Both kinds of examples are in each part of a split, as for noisy-or-clean probes.
    splits = [split_examples(noisy.astype(np.int64), seed) for seed in range(config.seeds)]
    tables = []
    for index, (name, labels) in enumerate(targets.items()):
        probes = train_probes(
            states,
            labels,
            n_classes,
            splits,
            config,
            macro=True,
            report=partial(_report_half, report, index),
        )
        for seed, split in enumerate(splits):
            tests = {
                "noisy": split.test[noisy[split.test]],
                "clean": split.test[~noisy[split.test]],
            }
            scores = {
                f"{kind}_f1": f1(
                    probes.predicted[:, seed][:, rows], labels[rows], n_classes, macro=True
                )
                for kind, rows in tests.items()
            }
            tables.append(
                pd.DataFrame(
                    {
                        "labels": name,
                        "layer": np.arange(1, len(states) + 1),
                        "probe_seed": seed,
                        **scores,
                        "guessing_f1": guessing_f1(labels[tests["clean"]], n_classes, seed),
                        "validation_f1": probes.validation_f1[:, seed],
                        "epoch": probes.epoch[:, seed],
                    }
                )
            )
    table = pd.concat(tables, ignore_index=True)
    return {"class_probes": table, "events": event_table("memorised", probe_events(table))}


def guessing_f1(labels: np.ndarray, n_classes: int, seed: int) -> float:
    """Macro F1 of guessing the labels in a random order."""
    random = np.random.default_rng(seed)
    guesses = random.permuted(np.tile(labels, (GUESSES, 1)), axis=1)
    return float(f1(guesses, labels, n_classes, macro=True).mean())


def probe_events(probes: pd.DataFrame) -> dict[str, int | None]:
    """mem≫gen and 90% F1 from the scores of all probes, averaged over probe seeds.

    The second looks at both kinds of probes: on clean examples they answer to the same labels.
    """
    means = probes.groupby(["labels", "layer"])[["noisy_f1", "clean_f1"]].mean()
    original, perturbed = means.loc["original"], means.loc["perturbed"]
    clean = (original["clean_f1"] + perturbed["clean_f1"]) / 2
    return {
        "mem_gen": mem_gen(perturbed["noisy_f1"].to_numpy(), original["noisy_f1"].to_numpy()),
        "f1_90": f1_90(clean.to_numpy(), float(probes["guessing_f1"].mean())),
    }


def _report_half(report: Report, index: int, done: float) -> None:
    report((index + done) / 2)
