"""One real training with the embedded model, from the command line to the result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import memloc as library
from tests.conftest import labelled_rows


def test_minilm_learns_flipped_labels_and_swapping_undoes_them(
    memloc: Callable[..., tuple[int, str, str]],
) -> None:
    rows = labelled_rows(30, classes=2)
    rows.assign(label=rows.pop("original_label")).to_csv("words.csv", index=False)
    code, _, err = memloc(
        *("run", "--task", "words.csv", "--epochs", "12", "--no-explain", "--workers", "1"),
        *("--techniques", "swapping", "--windows", "1"),
    )
    assert code == 0, err
    result = library.load(next(Path("runs").glob("words-*")))
    assert result.summary["memorised_share"] == 1.0
    whole = result.windows.query("size == 6")
    assert (whole["noisy_error"] == 1.0).all()
