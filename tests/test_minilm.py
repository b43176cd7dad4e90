"""One real training with the embedded model, from the command line to the result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

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


@pytest.mark.slow
def test_minilm_is_repaired_and_a_probe_tells_whether_labels_are_gone(
    memloc: Callable[..., tuple[int, str, str]],
) -> None:
    rows = labelled_rows(90, classes=2)
    rows.assign(label=rows.pop("original_label")).to_csv("words.csv", index=False)
    code, _, err = memloc(
        *("run", "--task", "words.csv", "--epochs", "12", "--no-explain", "--noise", "0.2"),
        *("--techniques", "swapping", "--windows", "1,3"),
    )
    assert code == 0, err
    result = next(Path("runs").glob("words-*"))
    repaired = library.repair(result, out="repaired", progress=False)
    shares = repaired.exam.pivot(index="candidate", columns="measure", values="value")
    for measure in ("given", "probe", "relearned_kept"):
        assert shares.loc["unchanged", measure] > shares.loc["twin", measure] + 0.4, measure
    assert shares.loc["swapped-window", "given"] < 0.2
    assert repaired.summary["candidates"][-1]["traces"][0] == "given"
