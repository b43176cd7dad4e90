"""The numbers in figures and tables are those of the results."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh

from memloc.paper.figures.examples import side_by_side
from memloc.paper.figures.layers import draw_control, draw_gradients, largest_errors
from memloc.paper.figures.tables import latex_text
from memloc.report.figures.data import FigureData, Picture, PrintedTable, read_figure_data
from memloc.report.figures.looks import (
    category,
    file_names,
    print_names,
    shorten,
    task_looks,
    task_order,
)
from memloc.report.figures.panels import layer_ticks, memloc_style
from memloc.report.figures.registry import choose_figures
from memloc.report.figures.results import draw_heat_maps
from tests.report.figure_folders import write_control, write_full_run
from tests.result_folders import straight, write_run


def drawn(data: FigureData, name: str) -> list[Picture]:
    with memloc_style():
        found = choose_figures([name])[0].draw(data)
    assert not isinstance(found, PrintedTable)
    return list(found)


def table(data: FigureData, name: str) -> PrintedTable:
    found = choose_figures([name])[0].draw(data)
    assert isinstance(found, PrintedTable)
    return found


def dots(panel: Axes) -> set[tuple[float, float]]:
    """Places of single markers."""
    found = [np.asarray(line.get_xydata()) for line in panel.get_lines()]
    return {(float(p[0, 0]), float(p[0, 1])) for p in found if len(p) == 1}


def test_heat_maps_show_the_matrix_of_the_run(tmp_path: Path) -> None:
    folder = write_full_run(tmp_path, techniques=("swapping",))
    with memloc_style():
        (picture,) = draw_heat_maps(read_figure_data(tmp_path))
    mesh = next(c for c in picture.figure.axes[0].collections if isinstance(c, QuadMesh))
    summary = json.loads((folder / "summary.json").read_text())
    matrix = summary["techniques"]["swapping"]["error_by_size_and_layer"]
    np.testing.assert_allclose(np.asarray(mesh.get_array()), matrix)
    assert picture.figure.axes[0].yaxis_inverted()  # size 1 on top, as in the paper


def test_the_largest_error_is_that_of_the_layer_with_the_largest_mean() -> None:
    rows = [
        # seed, first, last, size, error; layer 2 is the strongest on average
        *((1, 1, 1, 1, 0.4), (1, 2, 2, 1, 0.3), (1, 1, 2, 2, 1.0)),
        *((2, 1, 1, 1, 0.0), (2, 2, 2, 1, 0.2), (2, 1, 2, 2, 0.5)),
    ]
    columns = ["seed", "first_layer", "last_layer", "size", "noisy_error"]
    windows = pd.DataFrame(rows, columns=columns)
    windows = windows.assign(technique="swapping", model="m", task="t", layers=2)
    (found,) = largest_errors(windows).to_dict("records")
    assert found["first_layer"] == 2
    assert found["error"] == pytest.approx((0.3 + 0.4) / 2)
    assert found["spread"] == pytest.approx(np.std([0.3, 0.4], ddof=1))


def test_events_are_at_their_mean_over_models_and_missing_ones_are_said(tmp_path: Path) -> None:
    events = {"m1": (4, 2), "m2": (6, 2)}
    for model, (crossing, initiation) in events.items():
        found: dict[str, list[int | None]] = {"crossing": [crossing], "initiation": [initiation]}
        write_run(tmp_path, "topics", model, 12, events=found)
        never: dict[str, list[int | None]] = {"crossing": [None], "initiation": [initiation]}
        write_run(tmp_path, "reviews", model, 12, events=never)
    (picture,) = drawn(read_figure_data(tmp_path), "fig12")
    (panel,) = picture.figure.axes
    assert dots(panel) == {(2.0, 5.0)}
    assert "reviews (crossing)" in picture.caption
    assert "topics (" not in picture.caption


def test_events_of_models_of_different_depth_are_in_different_files(tmp_path: Path) -> None:
    for model, layers in (("shallow", 6), ("deep", 12)):
        write_full_run(tmp_path, "topics", model, layers)
    names = [picture.suffix for picture in drawn(read_figure_data(tmp_path), "fig12")]
    assert names == ["6-layers", "12-layers"]


def test_centres_of_models_of_different_depth_are_shares_of_the_depth(tmp_path: Path) -> None:
    for model, layers in (("shallow", 6), ("deep", 12)):
        weights = {"retraining": [straight(layers, 0.4)]}
        write_run(tmp_path, "topics", model, layers, weights=weights)
    (picture,) = drawn(read_figure_data(tmp_path), "fig6")
    (panel,) = picture.figure.axes
    (line, *_) = panel.get_lines()
    np.testing.assert_allclose(np.asarray(line.get_ydata(), dtype=float), [0.4, 0.4])
    assert "depth" in panel.get_ylabel()


def test_bars_are_mean_accuracies_with_a_line_at_chance(tmp_path: Path) -> None:
    folder = write_control(tmp_path, {"minilm": 6}, ("questions", "reviews"))
    accuracy = pd.read_parquet(folder / "accuracy.parquet")
    with memloc_style():
        (picture,) = draw_control(read_figure_data(tmp_path))
    panel = picture.figure.axes[0]
    heights = [bar.get_height() for bar in panel.patches]  # type: ignore[attr-defined]
    expected = accuracy.groupby(["technique", "k"])["accuracy"].mean()
    wanted = [
        expected[name, k]
        for name in ("swapping", "retraining", "gradients", "probing")
        for k in (1, 2)
    ]
    np.testing.assert_allclose(heights, wanted)
    chance = [line for line in panel.get_lines() if len(set(line.get_ydata())) == 1]  # type: ignore[arg-type]
    assert float(np.asarray(chance[0].get_ydata())[0]) == pytest.approx(2 / 6)


def test_post_processed_gradients_are_divided_and_sum_to_1(tmp_path: Path) -> None:
    folder = write_control(tmp_path, {"minilm": 6}, ("questions",))
    norms = pd.read_parquet(folder / "gradients.parquet")
    with memloc_style():
        (picture,) = draw_gradients(read_figure_data(tmp_path))
    first = norms[(norms["hidden"] == "1+2") & (norms["kind"] == "L1")]

    def norm(state: str, gradient: str) -> np.ndarray:
        rows = first[(first["state"] == state) & (first["gradient"] == gradient)]
        return rows.sort_values("layer")["norm"].to_numpy()

    divided = norm("near_ceiling", "difference") / norm("frozen", "difference")
    shown = np.asarray(picture.figure.axes[6].get_lines()[0].get_ydata(), dtype=float)
    np.testing.assert_allclose(shown, divided / divided.sum())
    plain = np.asarray(picture.figure.axes[3].get_lines()[0].get_ydata(), dtype=float)
    raw = norm("near_ceiling", "noisy")
    np.testing.assert_allclose(plain, raw / raw.sum())


def test_table_1_has_sizes_and_classes_by_category(tmp_path: Path) -> None:
    for task in ("trec", "wic", "my & task"):
        write_full_run(tmp_path, task, name=task.replace(" ", ""))
    found = table(read_figure_data(tmp_path), "table1")
    lines = found.markdown.splitlines()
    assert lines[2:8] == [
        "| *NLU* |  |  |  |",
        "| WiC | 5,400 | 810 | 2 |",
        "| *Topic classification* |  |  |  |",
        "| TREC | 5,400 | 810 | 6 |",
        "| *Other tasks* |  |  |  |",
        "| my & task | 5,400 | 810 | 6 |",
    ]
    assert r"my \& task & 5,400 & 810 & 6 \\" in found.latex
    assert found.latex.count(r"\midrule") == 3


def test_table_2_has_a_correlation_for_every_depth_and_score(tmp_path: Path) -> None:
    scores = [0.1, 0.3, 0.5, 0.7, 0.9]
    for place, score in enumerate(scores, start=1):
        found: dict[str, list[int | None]] = {"crossing": [place], "mem_gen": [6 - place]}
        write_run(tmp_path, f"task{place}", events=found, validation=score)
    lines = table(read_figure_data(tmp_path), "table2").markdown.splitlines()
    assert lines[2:10] == [
        *("| *Generalisation score* |  |", "| crossing | – |", "| mem≫gen | – |", "| M-CoG | – |"),
        *("| *Validation score* |  |", "| crossing | 1.00 |", "| mem≫gen | −1.00 |"),
        "| M-CoG | – |",  # all runs have the same
    ]


def test_table_2_marks_what_may_be_chance(tmp_path: Path) -> None:
    for place, layer in enumerate((2, 1, 4, 3), start=1):
        write_run(tmp_path, f"t{place}", events={"crossing": [layer]}, validation=place / 10)
    found = table(read_figure_data(tmp_path), "table2")
    assert r"| crossing | 0.60\* |" in found.markdown
    assert r"crossing & 0.60* \\" in found.latex


def test_table_4_has_mean_accuracies(tmp_path: Path) -> None:
    folder = write_control(tmp_path, {"minilm": 6}, ("questions", "reviews"))
    choices = pd.read_parquet(folder / "gradient_choices.parquet")
    rows = choices[choices["subtract_clean"] & ~choices["divide_by_frozen"]]
    means = rows.groupby("norm")["accuracy"].mean()
    found = table(read_figure_data(tmp_path), "table4")
    assert f"| ✓ | × | {means['L1']:.2f} | {means['L2']:.2f} |" in found.markdown


def test_text_of_users_is_no_latex() -> None:
    assert latex_text(r"a_b\{c}$x^2~%#<>") == (
        r"a\_b\textbackslash{}\{c\}\$x\textasciicircum{}2\textasciitilde{}\%\#"
        r"\textless{}\textgreater{}"
    )


def test_names_are_short_printable_and_different() -> None:
    long = [f"complaints_of_the_year_2024_{letter}_part" for letter in "ab"]
    names = print_names([*long, "_hidden", "two\nlines", "sst2"], {"sst2": "SST-2"}, 16)
    assert len(set(names.values())) == len(names)
    assert all(len(name) <= 16 for name in names.values())
    assert names["two\nlines"] == "two lines"
    assert names["_hidden"] == "\u200a_hidden"
    assert names["sst2"] == "SST-2"
    assert shorten("abcdefghij", 7) == "abc…hij"


def test_file_names_are_safe_and_different() -> None:
    found = file_names(["a/b", "a b", "A-b", "..", "x" * 200])
    assert list(found.values())[:4] == ["a-b", "a-b-2", "A-b-3", "x"]
    assert len(found["x" * 200]) == 50


def test_a_task_has_the_same_look_whatever_else_is_drawn() -> None:
    alone = task_looks(["wic", "complaints.csv"])
    together = task_looks(["wic", "trec", "complaints.csv", "sst2"])
    assert alone["wic"] == together["wic"]
    assert alone["complaints.csv"] == together["complaints.csv"]


def test_no_two_tasks_look_alike() -> None:
    from memloc.data.builtin import BUILTIN_TASKS
    from memloc.paper.catalogue import PAPER_TASKS

    tasks = [*PAPER_TASKS, *BUILTIN_TASKS, *(f"own{number}" for number in range(40))]
    looks = task_looks(tasks)
    assert len(set(looks.values())) == len(tasks)
    known = [looks[task].colour for task in (*PAPER_TASKS, *BUILTIN_TASKS)]
    assert len(set(known)) == len(known)


def test_tasks_are_in_the_order_of_the_paper_then_by_name() -> None:
    order = task_order(["zebra", "trec", "sst2", "apple", "rte", "wic"])
    assert order == ["wic", "rte", "sst2", "trec", "apple", "zebra"]
    assert category("sst2") == "sentiment"
    assert category("zebra") == "other"


@pytest.mark.parametrize(
    ("layers", "most", "ticks"),
    [
        (1, 6, [1]),
        (6, 6, [1, 2, 3, 4, 5, 6]),
        (12, 6, [1, 3, 6, 9, 12]),
        (12, 4, [1, 4, 8, 12]),
        (24, 6, [1, 6, 12, 18, 24]),
        (24, 3, [1, 12, 24]),
        (2, 3, [1, 2]),
        (13, 4, [1, 4, 8, 13]),
    ],
)
def test_ticks_of_layers_begin_with_the_first_and_end_with_the_last(
    layers: int, most: int, ticks: list[int]
) -> None:
    assert layer_ticks(layers, most) == ticks


def test_dots_at_the_same_place_are_put_side_by_side() -> None:
    found = side_by_side({"a": (2, 3), "b": (2, 3), "c": (4, 3)}, 0.2)
    assert found == {"a": (1.9, 3), "b": (2.1, 3), "c": (4, 3)}
