"""Matrix products in bfloat16: the same answers as plain models give in bfloat16."""

from __future__ import annotations

import pandas as pd
import pytest
import torch

from memloc.data.encode import TextCodec, encode
from memloc.models.blocks import BlockModel
from memloc.techniques.swapping import swap_all_windows
from tests.conftest import make_texts
from tests.oracles.swapping import swap_plainly
from tests.tiny_models import ARCHITECTURES, tiny_model, tiny_tokenizer

TOLERANCE = 2**-5
"""Of the largest logit. bfloat16 has 8 binary digits, so a logit is known to 2^-8 of its size.
Batches of another shape may be summed in another order, which now and then rounds a state to the
other side, and layers above may enlarge that: four times the rounding of two logits leaves room."""


def compare(architecture: str, layers: int, texts: list[str], every: int) -> None:
    models = [BlockModel(tiny_model(architecture, layers=layers, seed=seed)) for seed in (0, 1)]
    encoded = encode(pd.DataFrame({"text": texts}), TextCodec(tiny_tokenizer(), "|", 0, 128))
    found = swap_all_windows(models[0], models[1], encoded, "bfloat16")
    rows = dict(zip(found.windows, found.predicted, strict=True))
    rows = {(0, 0): found.unmodified, **{tuple(w): rows[w] for w in found.windows[::every]}}
    prefix = f"{models[0].model.base_model_prefix}.{models[0].stack_path}"
    expected = swap_plainly(
        models[0].model, models[1].model, prefix, tiny_tokenizer(), texts, rows,
        dtype=torch.bfloat16,
    )  # fmt: skip
    clear = total = 0
    for window, predicted in rows.items():
        logits = expected[window]
        best, second = logits.topk(2).values.T
        certain = best - second > TOLERANCE * logits.abs().amax(dim=1)
        assert torch.equal(torch.from_numpy(predicted)[certain], logits.argmax(dim=1)[certain])
        clear, total = clear + int(certain.sum()), total + len(certain)
    assert clear > 0.9 * total  # or the comparison would say little


@pytest.mark.parametrize("architecture", ["bert", "opt", "gpt_neox", "llama"])
def test_24_layers_swapped_in_bfloat16_predict_like_plain_models(architecture: str) -> None:
    compare(architecture, 24, make_texts(6), every=13)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_can_be_swapped_in_bfloat16(architecture: str) -> None:
    compare(architecture, 3, make_texts(8), every=1)
