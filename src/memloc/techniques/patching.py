"""Activation patching: which layer's output carries the wrong label?

θ_M2 runs on a noisy example, but after layer l its hidden state (all tokens) is replaced by that of
θ_O for the same example; the upper layers and the head go on from there. How often does the
prediction flip from the perturbed to the original label? And the reverse: how often does the state
of θ_M2, put into θ_O's run, flip its prediction from the original to the perturbed label?

    flips_l   of the noisy examples that θ_M2 answers with the perturbed label,
              those answered with the original one after patching layer l
    weight_l  = max(0, flips_l − flips_{l−1}),  flips_0 = 0

Patching the state after layer l is the same as taking the embeddings and layers 1..l from the other
model; that is how it is computed, all layers together. With shared (frozen) embeddings it looks at
the same models as swapping, but counts something else: an example that becomes a third class has
not flipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memloc.tables import EXAMPLE, LAYER, TECHNIQUE, Column, Table
from memloc.techniques.base import (
    Circumstances,
    Context,
    LayerCurves,
    Report,
    Tables,
    Technique,
    TechniqueFailed,
    tidy,
)

if TYPE_CHECKING:
    import numpy as np

    from memloc.data.encode import Encoded
    from memloc.models.blocks import BlockModel

DIRECTION = Column("str", "restore (a state of θ_O in θ_M) or implant (the reverse)")


class Patching(Technique):
    """Put the state of the other model into a run, after each layer."""

    name = "patching"
    needs = ("memorised", "original")
    tables = (
        Table(
            "patching",
            "how often patching a layer flips the answer",
            {
                "technique": TECHNIQUE,
                "direction": DIRECTION,
                "layer": LAYER,
                "flipped": Column("float64", "share of the examples"),
            },
        ),
        Table(
            "example_patching",
            "the same for every noisy example",
            {
                "technique": TECHNIQUE,
                "direction": DIRECTION,
                "example": EXAMPLE,
                "expected": Column("bool", "whether the model gives the expected answer before"),
                "first_layer": Column("Int64", "the first layer that flips it"),
            },
        ),
    )
    colour, marker = "#56B4E9", "P"
    figure = LayerCurves(
        table="patching",
        value="flipped",
        label="share flipped",
        caption="Activation patching in {model}: share of noisy examples whose prediction flips "
        "when the state after a layer is that of the other model: to the original label "
        "(restore), or to the perturbed one (implant).",
        by="direction",
        lines={
            "restore": "restore: state of the original model",
            "implant": "implant: state of the memorising model",
        },
        shares=True,
    )

    def obstacle(self, there: Circumstances) -> str | None:
        """It counts returns to the correct label."""
        if there.examples is not None and "original_label" not in there.examples.columns:
            return "returns to the correct label are counted, which suspects do not say"
        return super().obstacle(there)

    def cost(self, n_layers: int) -> float:
        """Noisy examples alone, half of the layers on average, in both directions."""
        return n_layers / 4

    def localise(self, context: Context, report: Report = lambda _: None) -> Tables:
        """Patch every layer in both directions."""
        import numpy as np
        import pandas as pd

        from memloc.analysis.windows import layer_table

        models = context.model("memorised"), context.model("original")
        examples, encoded = context.noisy_examples()
        label, original = examples["label"].to_numpy(), examples["original_label"].to_numpy()
        shares, tables, passes = [], [], 0
        answers = {"restore": (label, original), "implant": (original, label)}
        for direction, (before, after) in answers.items():
            own, other = models if direction == "restore" else models[::-1]
            predicted, spent = _patched(own, other, encoded, context)
            passes += spent
            # Only what the unpatched model answers as expected can flip.
            expected = predicted[0] == before
            flips = expected & (predicted[1:] == after)
            shares.append(flips.sum(axis=1) / max(int(expected.sum()), 1))
            first = pd.Series(flips.argmax(axis=0) + 1, dtype="Int64").where(flips.any(axis=0))
            tables.append(
                pd.DataFrame(
                    {
                        "technique": self.name,
                        "direction": direction,
                        "example": examples["example"].to_numpy(),
                        "expected": expected,
                        "first_layer": first,
                    }
                )
            )
            report(len(shares) / 2)
        layers = range(1, context.n_layers + 1)
        context.costs["block_passes"] = passes
        return {
            "layers": layer_table(self.name, np.maximum(0.0, np.diff(shares[0], prepend=0.0))),
            "patching": tidy(
                {"technique": [self.name], "direction": answers, "layer": layers}, flipped=shares
            ),
            "example_patching": pd.concat(tables, ignore_index=True),
        }


def _patched(
    own: BlockModel, other: BlockModel, encoded: Encoded, context: Context
) -> tuple[np.ndarray, int]:
    """Predictions [1 + layers, examples]: unpatched, then with the state after layers 1..L."""
    import numpy as np

    from memloc.models.mixing import predict_mixtures

    n_layers = own.n_layers
    swapped = np.tri(n_layers + 1, n_layers, -1, dtype=bool)
    dtype = context.training.dtype
    if _same_embeddings(own, other):
        found = predict_mixtures(own, other, encoded, swapped, dtype)
        return found.predicted, found.block_passes
    if not own.can_resume:
        raise TechniqueFailed(
            "patching needs models that share their embeddings, or can start from a stored state, "
            "and these do neither; leave the technique out"
        )
    plain = predict_mixtures(own, other, encoded, swapped[:1], dtype)
    found = predict_mixtures(own, other, encoded, swapped[1:], dtype, input_of=other)
    predicted = np.concatenate([plain.predicted, found.predicted])
    return predicted, plain.block_passes + found.block_passes


def _same_embeddings(own: BlockModel, other: BlockModel) -> bool:
    import torch

    mine, theirs = (dict(model.model.named_parameters()) for model in (own, other))
    return all(torch.equal(mine[name], theirs[name]) for name in own.groups.embeddings)
