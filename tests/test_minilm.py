"""One real training with the embedded model, from the command line to the result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import memloc as library


def test_minilm_learns_flipped_labels_and_swapping_undoes_them(
    memloc: Callable[..., tuple[int, str, str]],
) -> None:
    code, _, err = memloc(
        *("run", "--task", "reviews", "--limit", "30", "--epochs", "8", "--batch-size", "8"),
        *("--techniques", "swapping", "--window-sizes", "1,6", "--no-explain", "--workers", "1"),
    )
    assert code == 0, err
    result = library.load(next(Path("runs").glob("reviews-*")))
    assert result.summary["memorised_share"] == 1.0
    whole = result.windows.query("size == 6")
    assert (whole["noisy_error"] == 1.0).all()
