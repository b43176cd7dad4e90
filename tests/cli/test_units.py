"""Parts of layers on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
from transformers import AutoModelForSequenceClassification

from tests.conftest import assert_one_sentence, labelled_rows
from tests.oracles.swapping import swap_all_windows_plainly, swap_plainly
from tests.tiny_models import save_pair, tiny_tokenizer

JAMBA = {
    **{"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2},
    **{"intermediate_size": 48, "attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 2},
    **{"expert_layer_period": 2, "expert_layer_offset": 1, "mamba_d_state": 4},
    "use_mamba_kernels": False,
}
"""State-space layers without attention, then one with it."""


def test_localise_swaps_parts_also_with_low_memory_and_says_so(memloc, tmp_path: Path) -> None:
    folders = save_pair(tmp_path, "gpt2", layers=3)
    models = [AutoModelForSequenceClassification.from_pretrained(folder) for folder in folders]
    rows = labelled_rows(24)
    own = swap_plainly(*models, "transformer.h", tiny_tokenizer(), rows["text"].tolist(), [(0, 0)])
    known = own[0, 0].argmax(dim=1).numpy()
    rows["label"] = np.where(rows["label"] == rows["original_label"], rows["label"], known)
    rows.to_csv("data.csv", index=False)
    common = ("localise", "--memorised", folders[0], "--original", folders[1], "--data", "data.csv",
              "--techniques", "swapping,patching", "--no-explain", "--workers", "1")  # fmt: skip
    for unit, more in (("attention", ()), ("mlp", ("--low-memory",))):
        code, out, err = memloc(*common, "--unit", unit, "--out", unit, *more)
        assert code == 0, err
        assert max(map(len, out.splitlines())) <= 80
        name = {"attention": "attention parts", "mlp": "MLP parts"}[unit]
        assert f"only the {name} are changed (--unit)" in out
        assert f"Swapping, {name}: % of what all layers undo" in out
        words = f"Patching looks at whole layers, while the others look at {name} alone (--unit)."
        assert words in " ".join(out.split())
        expected = swap_all_windows_plainly(
            models[0], models[1], "transformer.h", tiny_tokenizer(), rows["text"].tolist(),
            unit=unit,
        )  # fmt: skip
        found = pd.read_parquet(f"{unit}/predictions.parquet")
        for window, table in found.groupby(["first_layer", "last_layer"]):
            assert table["predicted"].tolist() == expected[window], (unit, window)
        summary = json.loads(Path(unit, "summary.json").read_text())
        assert summary["techniques"]["swapping"]["settings"]["unit"] == unit
        assert "unit" not in summary["techniques"]["patching"]["settings"]
        page = Path(unit, "report.html").read_text()
        assert f'"part":"{name}"' in page
        assert f"--unit {unit}" in page


def test_bad_units_are_one_sentence(memloc, tmp_path: Path, tiny_folder: Path) -> None:
    code, out, err = memloc(
        *("run", "--model", tiny_folder, "--unit", "mlp", "--techniques", "probing"),
        *("--workers", "1"),
    )
    assert_one_sentence(
        code,
        out,
        err,
        "--unit 'mlp' is not possible: it makes no difference to probing; leave it out",
    )
    folders = save_pair(tmp_path, "jamba", layers=2, **JAMBA)
    labelled_rows(24).to_csv("data.csv", index=False)
    arguments = ("--original", folders[1], "--data", "data.csv", "--out", "found", "--workers", "1")
    code, out, err = memloc("localise", "--memorised", folders[0], *arguments, "--unit", "mlp")
    words = "no part of layer 1 (JambaMambaDecoderLayer) is called attention"
    assert_one_sentence(code, out, err, f"--unit 'mlp' is not possible: {words}")
    assert not Path("found").exists()
    code, out, err = memloc("run", "--model", folders[0], "--unit", "attention", "--workers", "1")
    assert_one_sentence(code, out, err, f"--unit 'attention' is not possible: {words}")
