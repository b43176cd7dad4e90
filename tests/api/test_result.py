"""`memloc.Result`: tables, figures, the report, notebooks, and reading it back."""

from __future__ import annotations

import json
import random
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure

import memloc
from memloc.api.result import Result
from memloc.errors import MemlocError
from memloc.results.folders import ResultsError
from tests.api.conftest import QUICK, UNDIVIDED, Setup
from tests.result_folders import write_control, write_localised, write_run


@pytest.fixture(scope="module")
def result(trained: Setup) -> Result:
    return memloc.localise(**trained.both, pretrained=trained.pretrained, **QUICK)


@pytest.fixture(scope="module")
def suspected(trained: Setup) -> Result:
    given = {**trained.both, "original_label": None, "suspects": "noisy"}
    return memloc.localise(**given, techniques="swapping", explain=False)


def test_tables_are_attributes_or_have_names(result: Result) -> None:
    assert set(result.layers["technique"]) == set(result.techniques)
    assert {"first_layer", "noisy_error"} <= set(result.windows.columns)
    assert {"text", "smallest_window", "label_name"} <= set(result.examples.columns)
    assert set(result.table("probes")["probe"]) == {"mlp", "linear"}
    with pytest.raises(MemlocError, match="there is no table 'prober'; did you mean 'probes'"):
        result.table("prober")


def test_a_result_without_windows_has_empty_tables_of_them(trained: Setup) -> None:
    found = memloc.localise(**trained.both, techniques=UNDIVIDED, explain=False)
    assert len(found.windows) == len(found.examples) == 0
    assert "noisy_error" in found.windows
    with pytest.raises(MemlocError, match="no run has changed windows of layers"):
        found.plot.heatmap()
    with pytest.raises(MemlocError, match="compute again with explain=True"):
        found.plot.centroids()
    assert "gradients" in found._repr_html_()


def test_a_saved_result_is_read_back_as_it_was(result: Result, tmp_path: Path) -> None:
    folder = result.save(tmp_path / "new" / "saved")
    again = memloc.load(folder)
    assert again.summary == json.loads(json.dumps(result.summary))
    assert again.settings == json.loads(json.dumps(result.settings))
    assert again.tables.keys() == result.tables.keys()
    for name, table in result.tables.items():
        pd.testing.assert_frame_equal(again.tables[name], table, check_dtype=False)
    assert again.folder == folder
    assert repr(again) == repr(result)
    assert again._repr_html_() == result._repr_html_()


def test_figures_are_those_of_matplotlib(result: Result, tmp_path: Path) -> None:
    for figure in (
        result.plot.heatmap(),
        result.plot.heatmap("retraining"),
        result.plot.layers(),
        result.plot.layers("swapping", "probing"),
        result.plot.centroids(),
        result.plot.figure("fig5"),
    ):
        assert isinstance(figure, Figure)
        figure.savefig(tmp_path / "figure.pdf")
        assert figure._repr_png_().startswith(b"\x89PNG")
    labels = [panel.get_ylabel() for panel in result.plot.heatmap().axes[:2]]
    assert labels == ["swapping\nwindow size", "retraining\nwindow size"]
    with pytest.raises(MemlocError, match="there is nothing to draw of 'probing'; choose one of"):
        result.plot.heatmap("probing")
    with pytest.raises(MemlocError, match="this is a table; write it with `memloc figures`"):
        result.plot.figure("table1")
    for wrong in ("fig99", 99):
        with pytest.raises(MemlocError, match=rf"^there is no figure '{wrong}'; "):
            result.plot.figure(wrong)


def test_the_report_is_one_file(result: Result, tmp_path: Path) -> None:
    page = result.report(tmp_path / "out.html")
    text = page.read_text(encoding="utf-8")
    assert [path.name for path in tmp_path.iterdir()] == ["out.html"]
    assert "memloc.localise(" in text  # how it was made; there is no command for it
    assert "/tmp" not in text
    with pytest.raises(MemlocError, match=r"^cannot write .*nowhere.*; give another file"):
        result.report(tmp_path / "nowhere" / "out.html")


def test_only_a_result_is_overwritten_and_only_if_asked(
    result: Result, suspected: Result, tmp_path: Path
) -> None:
    folder = tmp_path / "saved"
    folder.mkdir()
    (folder / ".hidden").write_text("of the system")
    result.save(folder)
    (folder / "artefacts.json").write_text('[["task", "key"]]')
    with pytest.raises(MemlocError, match=r"^there is a result in '.*saved' already; give another"):
        suspected.save(folder)
    assert memloc.load(folder).summary == json.loads(json.dumps(result.summary))
    suspected.save(folder, overwrite=True)
    assert memloc.load(folder).techniques == ("swapping",)
    assert not (folder / "probes.parquet").exists()
    assert not (folder / "artefacts.json").exists()
    (tmp_path / "mine").mkdir()
    for name in ("notes.txt", "settings.json", "summary.json"):  # of another program
        (tmp_path / "mine" / name).write_text("{}")
        for overwrite in (False, True):
            with pytest.raises(MemlocError, match=r"mine' is not empty, and what is there is no"):
                suspected.save(tmp_path / "mine", overwrite=overwrite)
    assert len(list((tmp_path / "mine").iterdir())) == 3


def test_notebooks_show_a_table_and_a_chart_with_all_texts_escaped(result: Result) -> None:
    tree = ElementTree.fromstring(result._repr_html_())
    heads = [head.text for head in tree.iter("th") if head.text]
    assert heads == ["M-CoG", "layer 1", "layer 2", "layer 3", *result.techniques]
    (picture,) = tree.iter("img")
    assert picture.attrib["src"].startswith("data:image/png;base64,")
    assert "http" not in result._repr_html_()
    evil = "<script>alert(1)</script>"
    weights = {"layer_weights": [0.5, 0.5, None], "m_cog": 1.6}
    summary = {
        **result.summary,
        "model": evil,
        "interpretation": evil,
        "techniques": {evil: weights},
    }
    shown = Result(result.tables, summary, result.settings)._repr_html_()
    assert "<script" not in shown
    assert shown.count("&lt;script&gt;") == 3


def test_of_suspected_labels_nothing_more_is_said(suspected: Result, tmp_path: Path) -> None:
    for one in (suspected, memloc.load(suspected.save(tmp_path / "saved"))):
        assert repr(one).splitlines()[0].endswith(", 11 of 60 labels suspected")
        assert "labels noisy" not in one._repr_html_()
        with pytest.raises(MemlocError) as caught:
            one.plot.centroids()
        assert str(caught.value) == (
            "examples were not followed through the layers, as suspects do not say which labels "
            "are correct, so examples have no old class to leave"
        )


# --- folders of commands -------------------------------------------------------------------------


def test_results_of_all_commands_are_read(tmp_path: Path) -> None:
    run = memloc.load(write_run(tmp_path, task="topics", seeds=(1, 2)))
    assert run.settings["seeds"] == [1, 2]
    assert set(run.layers["seed"]) == {1, 2}
    assert isinstance(run.plot.figure("fig5"), Figure)
    assert isinstance(run.plot.layers(), Figure)
    with pytest.raises(MemlocError, match="this cannot be drawn: "):
        run.plot.figure("fig2")
    assert memloc.load(write_localised(tmp_path)).layers["layer"].max() == 6
    control = memloc.load(write_control(tmp_path, {"swapping": [True] * 6}))
    assert control.of_control
    assert "control benchmark of 6 models" in repr(control)
    assert "control benchmark" in control._repr_html_()
    assert set(control.table("accuracy")["k"]) == {1, 2}
    assert isinstance(control.plot.figure("fig2"), Figure)
    with pytest.raises(MemlocError, match="results of `memloc control` are of many models"):
        control.mcog("swapping")


def test_no_bit_of_a_saved_result_changes_unnoticed(result: Result, tmp_path: Path) -> None:
    folder = result.save(tmp_path / "saved")
    files = [path for path in sorted(folder.iterdir()) if path.name != "checksums.json"]
    assert {path.suffix for path in files} == {".json", ".parquet"}
    places = random.Random(1)
    for path in files:
        whole = path.read_bytes()
        for _ in range(6):
            changed = bytearray(whole)
            changed[places.randrange(len(whole))] ^= 1 << places.randrange(8)
            path.write_bytes(changed)
            with pytest.raises(ResultsError):
                memloc.load(folder)
        path.write_bytes(whole)
    assert memloc.load(folder).techniques == result.techniques
    (folder / "checksums.json").unlink()  # a result of an earlier version
    assert memloc.load(folder).techniques == result.techniques


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("settings.json", "[]"),
        ("summary.json", "[]"),
        ("summary.json", '{"layers": 1' + 400 * "0" + "}"),
        ("summary.json", '{"layers": 1e999}'),
        ("summary.json", '{"layers": NaN}'),
        ("summary.json", '{"model": "a", "layers": 99999999, "techniques": {}, "task": "b"}'),
        ("summary.json", 100_000 * "["),
        ("checksums.json", "[]"),
    ],
)
def test_a_forged_result_is_damage(file: str, text: str, tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    (folder / "checksums.json").unlink(missing_ok=True)
    (folder / file).write_text(text)
    with pytest.raises(ResultsError, match=f"{file}' cannot be read"):
        memloc.load(folder)


def test_wrong_folders_are_refused_with_what_is_there(tmp_path: Path) -> None:
    def refuse(folder: Path, words: str) -> None:
        with pytest.raises(ResultsError) as caught:
            memloc.load(folder)
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)

    refuse(tmp_path / "none", "there is no folder")
    (tmp_path / "notes.txt").write_text("hello")
    refuse(tmp_path, "has no finished result (summary.json and settings.json)")
    refuse(tmp_path / "notes.txt", "is a file")
    runs = tmp_path / "runs"
    one = write_run(runs, task="topics")
    write_run(runs, task="reviews")
    refuse(runs, "load one of those in it: reviews-minilm, topics-minilm")
    (one / "layers.parquet").write_bytes(b"nonsense")
    refuse(one, "layers.parquet' cannot be read")
    (one / "layers.parquet").unlink()
    refuse(one, "has no table layers")
    (one / "summary.json").unlink()
    refuse(one, "has no finished result")
