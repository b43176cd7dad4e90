"""Probing (Dankers & Titov 2024, section 3.1).

Can noisy examples be told from clean ones by the state that the head would read after layer l? An
MLP is trained on the states of θ_M2 after every layer 0..L, with several seeds; F1_l is that of the
noisy class on examples it has not seen, averaged over the seeds:

    weight_l = max(0, F1_l − F1_{l−1})

For layer 1 the baseline is the same probe on layer 1 of θ_P. A probe that did not even fit the
examples it was trained on says nothing about others: it is left out of the mean, and F1_l is
missing, not 0, if fewer than half of the layer's probes fitted. A logistic regression on the same
states is reported beside it as a control: what it finds needed no capacity of the probe.

Class probes (section 5) are the same probes with another target: the class, once by original and
once by perturbed labels, on the states of θ_M2 after layers 1..L. They are tested on noisy and
clean examples apart, each against the labels it was trained with (macro F1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from memloc.config import MOST_EPOCHS, Settings
from memloc.tables import EVENTS, LAYER, STATE, TECHNIQUE, Column, Table, number, numbers
from memloc.techniques.base import Context, Explanation, Report, Tables, Technique

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

GUESSES = 200
"""Shuffles of the labels that random guessing is averaged over."""
SMALLEST_GROUP = 10
"""Noisy examples, and clean ones: a fifth of them is for testing."""


class Probing(Technique):
    """After which layer can a probe tell wrong labels from clean ones?"""

    class Config(Settings):
        """An MLP d-128-128-C on the state the head reads."""

        seeds: int = Field(5, ge=1, description="Probes per layer.")
        epochs: int = Field(100, ge=1, le=MOST_EPOCHS, description="Passes over the states.")
        select_after: int = Field(
            25, ge=0, description="The best validation F1 is sought after this epoch."
        )
        hidden: int = Field(128, ge=1, description="Width of the hidden layers.")
        dropout: float = Field(0.1, ge=0, lt=1, description="On the input.")
        learning_rate: float = Field(2e-4, gt=0, description="Of AdamW.")
        weight_decay: float = Field(1e-5, ge=0, description="Of AdamW.")
        batch_size: int = Field(32, ge=1, description="Examples per step.")
        standardise: bool = Field(
            True, description="Give every feature mean 0 and deviation 1 over the training split."
        )
        least_steps: int = Field(
            1000, ge=0, description="Small data get more epochs, until there are so many steps."
        )
        batches: Literal["shuffled", "chunks"] = Field(
            "shuffled",
            description="Drawn anew in every epoch, or once (chunks), so that their order changes.",
        )
        fitted_at: float = Field(
            0.5, ge=0, le=1, description="Training F1 from which on a probe counts as fitted."
        )
        clean_weight: float = Field(0.33, gt=0, description="Of clean examples in the loss.")
        noisy_weight: float = Field(0.67, gt=0, description="Of noisy examples in the loss.")

    config: Config
    name = "probing"
    revision = 2
    needs = ("states:memorised", "states:pretrained")
    smallest_group = SMALLEST_GROUP
    at_checkpoints = True
    tables = (
        Table(
            "probes",
            "every probe",
            {
                "technique": TECHNIQUE,
                "probe": Column("str", "mlp or linear"),
                "model": STATE,
                "layer": Column("int64", "the layer; 0 is before the first"),
                "probe_seed": Column("int64", "seed of the probe"),
                "f1": Column("float64", "F1 of the noisy class on examples it has not seen"),
                "train_f1": Column("float64", "F1 on the examples it was trained on", added=True),
                "fitted": Column(
                    "bool", "whether that is enough for its other F1 to count", added=True
                ),
                "validation_f1": Column("float64", "F1 by which its epoch was chosen"),
                "epoch": Column("Int64", "that epoch"),
            },
            of=("run", "localise", "control"),
        ),
    )
    colour, marker = "#CC79A7", "^"

    @classmethod
    def summarise(cls, tables: Tables) -> dict[str, Any]:
        """F1 by layer of both kinds of probes, and on layer 1 of θ_P; and how many did not fit."""
        from memloc.analysis.probes import fitted_means, unfitted

        probes = tables["probes"]
        seeds = [name for name in ("seed",) if name in probes]
        means = fitted_means(probes, ["probe", "model", "layer", *seeds], ["f1"])["f1"]
        f1 = means.groupby(["probe", "model", "layer"]).mean()
        # No weight depends on layer 0, where all examples may look alike.
        counted = probes[(probes["probe"] == "mlp") & (probes["layer"] > 0)]
        return {
            "f1": {probe: numbers(f1[probe, "memorised"]) for probe in ("mlp", "linear")},
            "baseline_f1": {
                probe: number(f1[probe, "pretrained", 1]) for probe in ("mlp", "linear")
            },
            "no_evidence": unfitted(counted),
        }

    def cost(self, n_layers: int) -> float:
        """Probes are small, but many."""
        return 1.0 * n_layers

    def localise(self, context: Context, report: Report = lambda _: None) -> Tables:
        """Probe all layers with all seeds."""
        import numpy as np
        import pandas as pd
        import torch

        from memloc.analysis.probes import gains
        from memloc.analysis.windows import layer_table
        from memloc.training.probes import f1, linear_probes, split_examples, train_probes

        config = self.config
        noisy = context.examples["noisy"].to_numpy().astype(np.int64)
        states = context.pooled_states("memorised")
        # The baseline is one more feature set: it trains together with the layers.
        features = torch.cat([states, context.pooled_states("pretrained")[1:2]])
        splits = [split_examples(noisy, seed) for seed in range(config.seeds)]
        weights = (config.clean_weight, config.noisy_weight)
        mlp = train_probes(features, noisy, 2, splits, config, class_weights=weights, report=report)
        linear = linear_probes(features, noisy, splits, class_weights=weights)

        def scores(predicted: np.ndarray, part: str) -> np.ndarray:
            """F1 [features, seeds] on the examples of one part of the splits."""
            rows = [getattr(split, part) for split in splits]
            found = [f1(predicted[:, i][:, row], noisy[row], 2) for i, row in enumerate(rows)]
            return np.stack(found, axis=1)

        columns = {
            "technique": self.name,
            "model": np.repeat([*["memorised"] * len(states), "pretrained"], config.seeds),
            "layer": np.repeat([*range(len(states)), 1], config.seeds),
            "probe_seed": np.tile(np.arange(config.seeds), len(features)),
        }
        chosen = {"validation_f1": mlp.validation_f1.reshape(-1), "epoch": mlp.epoch.reshape(-1)}
        tables = []
        for probe, predicted, more in (("mlp", mlp.predicted, chosen), ("linear", linear, {})):
            test, train = (scores(predicted, part).reshape(-1) for part in ("test", "train"))
            fit = {"train_f1": train, "fitted": train >= config.fitted_at}
            tables.append(pd.DataFrame({**columns, "probe": probe, "f1": test, **fit, **more}))
        known = np.where(tables[0]["fitted"], tables[0]["f1"], np.nan)
        return {
            "layers": layer_table(self.name, *gains(known.reshape(-1, config.seeds))),
            "probes": self.tables[0].frame(pd.concat(tables, ignore_index=True)),
        }


class ClassProbes(Explanation):
    """Which of its two labels does the state of a noisy example show?"""

    Config = Probing.Config
    config: Probing.Config
    name = "class_probes"
    revision = 2
    settings_from = "probing"
    needs = ("states:memorised",)
    smallest_group = SMALLEST_GROUP
    events = ("mem_gen", "f1_90")
    tables = (
        Table(
            "class_probes",
            "every probe for the class",
            {
                "labels": Column("str", "which labels it learns: original or perturbed"),
                "layer": LAYER,
                "probe_seed": Column("int64", "seed of the probe"),
                "noisy_f1": Column("float64", "macro F1 on noisy examples"),
                "clean_f1": Column("float64", "macro F1 on clean examples"),
                "guessing_f1": Column("float64", "macro F1 of guessing"),
                "train_f1": Column(
                    "float64", "macro F1 on the examples it was trained on", added=True
                ),
                "fitted": Column(
                    "bool", "whether that is enough for its other F1 to count", added=True
                ),
                "validation_f1": Column("float64", "macro F1 by which its epoch was chosen"),
                "epoch": Column("int64", "that epoch"),
            },
        ),
        EVENTS,
    )

    @classmethod
    def summarise(cls, tables: Tables) -> dict[str, Any]:
        """F1 by layer on noisy and on clean examples, for both kinds of labels."""
        from memloc.analysis.probes import fitted_means, unfitted

        if "class_probes" not in tables:
            return {}
        probes = tables["class_probes"]
        seeds = [name for name in ("seed",) if name in probes]
        means = fitted_means(probes, ["labels", "layer", *seeds], ["noisy_f1", "clean_f1"])
        means = means.groupby(["labels", "layer"]).mean()
        return {
            "class_probes": {
                **{
                    labels: {
                        kind: numbers(means[f"{kind}_f1"][labels]) for kind in ("noisy", "clean")
                    }
                    for labels in ("original", "perturbed")
                },
                "no_evidence": unfitted(probes),
            }
        }

    @classmethod
    def sentences(cls, found: dict[str, Any]) -> list[str]:
        """Why an event may be missing."""
        lacking = found.get("class_probes", {}).get("no_evidence")
        if lacking is None:
            return []
        unknown = "what they would find in their layers is not known"
        return [f"Of those for classes, {lacking['because']}, so {unknown}; {lacking['remedy']}."]

    def cost(self, n_layers: int) -> float:
        """Probes of both kinds of labels."""
        return 2.0 * n_layers

    def localise(self, context: Context, report: Report = lambda _: None) -> Tables:
        """Tables: class_probes, events."""
        import numpy as np
        import pandas as pd

        from memloc.analysis.centroids import event_table
        from memloc.training.probes import f1, split_examples, train_probes

        config = self.config
        original, perturbed, noisy = context.columns("original_label", "label", "noisy")
        n_classes = int(max(original.max(), perturbed.max())) + 1
        states = context.pooled_states("memorised")[1:]
        # Both kinds of examples are in each part of a split, as for noisy-or-clean probes.
        splits = [split_examples(noisy.astype(np.int64), seed) for seed in range(config.seeds)]
        tables = []
        for index, labels in enumerate((original, perturbed)):

            def half(done: float, index: int = index) -> None:
                report((index + done) / 2)

            probes = train_probes(
                states, labels, n_classes, splits, config, macro=True, report=half
            )
            for seed, split in enumerate(splits):
                columns: dict[str, Any] = {
                    "labels": ("original", "perturbed")[index],
                    "layer": np.arange(1, len(states) + 1),
                    "probe_seed": seed,
                    "validation_f1": probes.validation_f1[:, seed],
                    "epoch": probes.epoch[:, seed],
                }
                answers = probes.predicted[:, seed][:, split.train]
                columns["train_f1"] = f1(answers, labels[split.train], n_classes, macro=True)
                columns["fitted"] = columns["train_f1"] >= config.fitted_at
                for kind, chosen in (("noisy", noisy), ("clean", ~noisy)):
                    rows = split.test[chosen[split.test]]
                    answers = probes.predicted[:, seed][:, rows]
                    columns[f"{kind}_f1"] = f1(answers, labels[rows], n_classes, macro=True)
                columns["guessing_f1"] = guessing_f1(labels[rows], n_classes, seed)
                tables.append(pd.DataFrame(columns))
        table = self.tables[0].frame(pd.concat(tables, ignore_index=True))
        return {"class_probes": table, "events": event_table("memorised", probe_events(table))}


def guessing_f1(labels: np.ndarray, n_classes: int, seed: int) -> float:
    """Macro F1 of guessing the labels in a random order."""
    import numpy as np

    from memloc.training.probes import f1

    random = np.random.default_rng(seed)
    guesses = random.permuted(np.tile(labels, (GUESSES, 1)), axis=1)
    return float(f1(guesses, labels, n_classes, macro=True).mean())


def probe_events(probes: pd.DataFrame) -> dict[str, int | None]:
    """mem≫gen and 90% F1 from the scores of the probes that fitted, averaged over probe seeds.

    The second looks at both kinds of probes: on clean examples they answer to the same labels.
    """
    from memloc.analysis.centroids import f1_90, mem_gen
    from memloc.analysis.probes import fitted_means

    means = fitted_means(probes, ["labels", "layer"], ["noisy_f1", "clean_f1"])
    original, perturbed = means.loc["original"], means.loc["perturbed"]
    clean = (original["clean_f1"] + perturbed["clean_f1"]) / 2
    return {
        "mem_gen": mem_gen(perturbed["noisy_f1"].to_numpy(), original["noisy_f1"].to_numpy()),
        "f1_90": f1_90(clean.to_numpy(), float(probes["guessing_f1"].mean())),
    }
