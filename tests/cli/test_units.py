"""Parts of layers on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
from transformers import AutoModelForSequenceClassification

from tests.conftest import labelled_rows
from tests.oracles.swapping import swap_all_windows_plainly, swap_plainly
from tests.tiny_models import save_pair, tiny_tokenizer


def test_localise_swaps_parts_also_with_low_memory_and_says_so(memloc, tmp_path: Path) -> None:
    folders = save_pair(tmp_path, "gpt2", layers=3)
    models = [AutoModelForSequenceClassification.from_pretrained(folder) for folder in folders]
    rows = labelled_rows(24)
    own = swap_plainly(*models, "transformer.h", tiny_tokenizer(), rows["text"].tolist(), [(0, 0)])
    known = own[0, 0].argmax(dim=1).numpy()
    rows["label"] = np.where(rows["label"] == rows["original_label"], rows["label"], known)
    rows.to_csv("data.csv", index=False)
    common = ("localise", "--memorised", folders[0], "--original", folders[1], "--data", "data.csv",
              "--techniques", "swapping,patching", "--no-explain", "--workers", "1",
              "--clean", "all")  # fmt: skip
    for unit, more in (("attention", ()), ("mlp", ("--low-memory",))):
        code, out, err = memloc(*common, "--unit", unit, "--out", unit, *more)
        assert code == 0, err
        assert max(map(len, out.splitlines())) <= 80
        name = {"attention": "attention parts", "mlp": "MLP parts"}[unit]
        assert f"only the {name} are changed" in out
        assert f"Swapping, {name}: % of memorisation undone" in out
        words = f"Patching looks at whole layers, while the others look at {name} alone."
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
