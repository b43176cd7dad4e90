"""Every figure is drawn from constructed results, and looked at as far as a program can look."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from memloc.report.figures.data import (
    FigureData,
    Picture,
    PrintedTable,
    read_figure_data,
)
from memloc.report.figures.panels import DOUBLE, SINGLE, TALLEST, memloc_style, rendered
from memloc.report.figures.registry import FigureEntry, choose_figures, figures, write_figures
from tests.report.figure_folders import write_control, write_full_run, write_paper_grid
from tests.result_folders import write_run

FIGURES = figures()
DRAWN = [entry for entry in FIGURES if not entry.name.startswith("table")]
MANY_PANELS = ("fig21",)
LONG = [f"customer_complaints_of_2019_to_2024_in_region_{letter}" for letter in "abcdefghijkl"]


def twins(tasks: list[str], models: list[str], layers: int = 12) -> pd.DataFrame:
    """Tasks with all classes and with two, as `memloc.results.agreement` gives them."""
    rows = [
        (quantity, model, task, layers, place + 1.5, place + 1.0 + shift)
        for shift, model in enumerate(models)
        for place, task in enumerate(tasks)
        for quantity in ("m_cog", "crossing", "initiation")
    ]
    columns = ["quantity", "model", "task", "layers", "multi", "binary"]
    return pd.DataFrame(rows, columns=columns)


def read(folder: Path, with_twins: bool = True) -> FigureData:
    data = read_figure_data(folder)
    if not with_twins:
        return data
    found = twins(data.tasks[:4], data.run_models[:2], data.depths[data.run_models[0]])
    return replace(data, twins=found)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> FigureData:
    """Two tasks, two models, and a control experiment."""
    runs = tmp_path_factory.mktemp("small")
    models = {"minilm": 6, "other": 6}
    write_paper_grid(runs, models, ("questions", "reviews"), seeds=(1, 2))
    write_control(runs, models, ("questions", "reviews"), seeds=(1, 2))
    return read(runs)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> FigureData:
    """Twelve tasks with long names, four models of 24 layers with long names."""
    runs = tmp_path_factory.mktemp("large")
    models = {f"a-model-with-a-very-long-name-{size}b-uncased": 24 for size in (1, 2, 3, 4)}
    write_paper_grid(runs, models, LONG, seeds=(1,))
    write_control(runs, models, LONG)
    return read(runs)


def pictures(entry: FigureEntry, data: FigureData) -> list[Picture]:
    drawn = entry.draw(data)
    assert not isinstance(drawn, PrintedTable)
    return list(drawn)


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(
            entry, marks=pytest.mark.slow if entry.name in MANY_PANELS else (), id=entry.name
        )
        for entry in DRAWN
    ],
)
def test_drawn_twice_a_figure_is_the_same_byte_for_byte(
    small: FigureData, entry: FigureEntry
) -> None:
    with memloc_style():
        once, again = (pictures(entry, small)[0].figure for _ in range(2))
        assert once is not again
        for kind in ("svg", "png"):
            content = rendered(once, kind)
            assert content == rendered(again, kind), kind
            assert len(content) > 1000


def test_no_file_has_a_date(small: FigureData) -> None:
    with memloc_style():
        figure = choose_figures(["fig7"])[0].draw(small)[0].figure  # type: ignore[index]
        svg, pdf = rendered(figure, "svg"), rendered(figure, "pdf")
        assert rendered(figure, "pdf") == pdf
    assert b"<dc:date>" not in svg
    assert b"CreationDate" not in pdf


@pytest.mark.parametrize("entry", DRAWN, ids=lambda entry: entry.name)
def test_figures_of_a_small_grid_have_the_width_of_columns(
    small: FigureData, entry: FigureEntry
) -> None:
    with memloc_style():
        for picture in pictures(entry, small):
            width, height = picture.figure.get_size_inches()
            assert any(np.isclose(width, known) for known in (SINGLE, DOUBLE)), width
            assert height <= TALLEST
            check_texts(picture.figure)
            assert picture.caption.endswith(".")


@pytest.mark.slow
@pytest.mark.parametrize("entry", DRAWN, ids=lambda entry: entry.name)
def test_24_layers_12_tasks_and_long_names_neither_overlap_nor_overflow(
    large: FigureData, entry: FigureEntry
) -> None:
    with memloc_style():
        picture = pictures(entry, large)[0]  # those of other models differ in numbers alone
        check_texts(picture.figure)


def check_texts(figure: Figure) -> None:
    """All texts are within the figure, and no two of them lie on each other."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    width, height = figure.bbox.width, figure.bbox.height
    hidden = _hidden_ticks(figure)
    texts = [
        text
        for text in figure.findobj(Text)
        if text.get_text().strip() and text.get_visible() and id(text) not in hidden
    ]
    assert texts
    boxes = [(text.get_text(), text.get_window_extent(renderer), text) for text in texts]
    for words, box, _ in boxes:
        assert box.x0 >= -1, words
        assert box.y0 >= -1, words
        assert box.x1 <= width + 1, words
        assert box.y1 <= height + 1, words
    for place, (words, box, text) in enumerate(boxes):
        for others, other, other_text in boxes[place + 1 :]:
            if text.get_rotation() % 90 or other_text.get_rotation() % 90:
                continue  # boxes of slanted texts overlap where the texts do not
            across = min(box.x1, other.x1) - max(box.x0, other.x0)
            up = min(box.y1, other.y1) - max(box.y0, other.y0)
            assert across <= 1 or up <= 2, f"{words!r} and {others!r} overlap"


def _hidden_ticks(figure: Figure) -> set[int]:
    """Ticks outside the limits of an axis are not drawn, and have texts all the same."""
    hidden = set()
    for axes in figure.axes:
        for axis, limits in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
            low, high = sorted(limits)
            for tick in axis.majorTicks + axis.minorTicks:
                if not low - 1e-9 <= tick.get_loc() <= high + 1e-9:
                    hidden |= {id(tick.label1), id(tick.label2)}
    return hidden


def test_the_users_own_settings_neither_matter_nor_change(small: FigureData) -> None:
    entry = choose_figures(["fig4"])[0]
    with memloc_style():
        plain = rendered(pictures(entry, small)[0].figure, "svg")
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red"}):
        before = dict(matplotlib.rcParams)
        with memloc_style():
            assert rendered(pictures(entry, small)[0].figure, "svg") == plain
        assert dict(matplotlib.rcParams) == before


def test_drawing_loads_neither_pyplot_nor_what_only_training_needs() -> None:
    program = (
        "import sys; from memloc.report.figures.registry import figures; figures()\n"
        "loaded = {'matplotlib.pyplot', 'torch', 'transformers'} & set(sys.modules)\n"
        "sys.exit(f'loaded: {sorted(loaded)}' if loaded else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_command_line_does_not_load_matplotlib_for_other_commands() -> None:
    program = "import sys, memloc.cli; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_every_figure_of_the_paper_with_data_is_listed_once() -> None:
    numbers = [number for entry in DRAWN for number in entry.numbers]
    assert sorted(map(int, numbers)) == [*range(2, 22)]
    names = [name for entry in FIGURES for name in entry.names]
    assert len(names) == len(set(names))
    assert [entry.name for entry in choose_figures(["fig16", "FIG3", "fig7"])] == ["fig3", "fig7"]


@pytest.mark.parametrize("entry", FIGURES, ids=lambda entry: entry.name)
def test_from_a_bare_run_a_figure_is_drawn_or_skipped_in_words(
    tmp_path: Path, entry: FigureEntry
) -> None:
    write_run(tmp_path, "topics")
    data = read_figure_data(tmp_path)
    with memloc_style():
        (done,) = write_figures(data, [entry], tmp_path / "out", ["svg"])
    assert bool(done.files) != bool(done.reason)
    assert done.files or re.fullmatch(r"[^.\n]{10,150}", done.reason)


def test_control_experiments_alone_are_enough_for_their_figures(tmp_path: Path) -> None:
    write_control(tmp_path, {"minilm": 6}, ("questions",))
    data = read_figure_data(tmp_path)
    done = write_figures(data, FIGURES, tmp_path / "out", ["svg"])
    assert {one.entry.name for one in done if one.files} == {"fig2", "fig21", "table4"}


def test_tables_of_control_experiments_are_read_whole(tmp_path: Path) -> None:
    write_control(tmp_path, {"minilm": 6}, ("questions", "reviews"))
    tables = read_figure_data(tmp_path).control
    assert set(tables) == {"accuracy", "layers", "gradient_choices", "gradients"}
    assert len(tables["accuracy"]) == 2 * 3 * 4 * 2


def test_twins_are_read_where_tasks_were_binarised(tmp_path: Path) -> None:
    for binarise in (False, True):
        for task in ("questions", "topics"):
            write_full_run(tmp_path, task, binarise=binarise, name=f"{task}-{binarise}")
    data = read_figure_data(tmp_path)
    assert data.twins is not None
    assert set(data.twins["task"]) == {"questions", "topics"}
    with memloc_style():
        for name in ("fig19", "fig20"):
            assert pictures(choose_figures([name])[0], data)
