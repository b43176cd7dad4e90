"""Every figure is drawn from constructed results; its numbers are theirs, its texts readable."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.text import Text
from scipy.stats import pearsonr, spearmanr

from memloc.data.builtin import BUILTIN_TASKS
from memloc.paper.printed_tables import latex_text
from memloc.paper.tasks import PAPER_TASKS
from memloc.report.figures.looks import model_looks, task_looks
from memloc.report.figures.panels import DOUBLE, SINGLE, TALLEST, memloc_style, rendered
from memloc.report.figures.registry import (
    CannotDraw,
    FigureData,
    FigureEntry,
    Picture,
    PrintedTable,
    choose_figures,
    figures,
    read_figure_data,
    write_figures,
)
from tests.report.figure_folders import write_control, write_full_run, write_grid
from tests.result_folders import straight, write_run

FIGURES = figures()
DRAWN = [entry for entry in FIGURES if not entry.is_table]
LONG = [f"customer_complaints_of_2019_to_2024_in_region_{letter}" for letter in "abcdefghijkl"]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> FigureData:
    """Two tasks, two models, and a control experiment."""
    runs = tmp_path_factory.mktemp("small")
    models = {"minilm": 6, "other": 6}
    write_grid(runs, models, ("questions", "reviews"), seeds=(1, 2))
    write_control(runs, models, ("questions", "reviews"), seeds=(1, 2))
    for task in ("questions", "reviews"):
        write_full_run(runs, task, "minilm", seeds=(1, 2), binarise=True, name=f"{task}-two")
    return read_figure_data(runs)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> FigureData:
    """Twelve tasks with long names, four models of 24 layers with long names."""
    runs = tmp_path_factory.mktemp("large")
    models = {f"a-model-with-a-very-long-name-{size}b-uncased": 24 for size in (1, 2, 3, 4)}
    write_grid(runs, models, LONG, seeds=(1,))
    write_control(runs, models, LONG)
    return read_figure_data(runs)


def drawn(data: FigureData, name: str) -> list[Picture]:
    with memloc_style():
        found = choose_figures([name])[0].draw(data)
    assert not isinstance(found, PrintedTable)
    return list(found)


def table(data: FigureData, name: str) -> PrintedTable:
    found = choose_figures([name])[0].draw(data)
    assert isinstance(found, PrintedTable)
    return found


def test_a_figure_is_the_same_byte_for_byte_and_without_a_date(small: FigureData) -> None:
    with memloc_style():
        once, again = (drawn(small, "fig7")[0].figure for _ in range(2))
        for kind in ("svg", "png", "pdf"):
            content = rendered(once, kind)
            assert content == rendered(again, kind), kind
            assert b"<dc:date>" not in content
            assert b"CreationDate" not in content


@pytest.mark.parametrize("entry", DRAWN, ids=lambda entry: entry.name)
def test_figures_have_the_width_of_columns_and_texts_that_do_not_overlap(
    small: FigureData, entry: FigureEntry
) -> None:
    with memloc_style():
        picture = drawn(small, entry.name)[0]  # those of other models differ in numbers alone
        width, height = picture.figure.get_size_inches()
        assert any(np.isclose(width, known) for known in (SINGLE, DOUBLE)), width
        assert height <= TALLEST
        check_texts(picture.figure)
        assert picture.caption.endswith(".")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fig2", "fig3", "fig7", "fig10", "fig15", "time"])
def test_24_layers_12_tasks_and_long_names_neither_overlap_nor_overflow(
    large: FigureData, name: str
) -> None:
    with memloc_style():
        check_texts(drawn(large, name)[0].figure)


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


def test_every_figure_of_the_paper_with_data_is_listed_once() -> None:
    numbers = [number for entry in DRAWN for number in entry.numbers]
    assert sorted(map(int, numbers)) == [*range(2, 22)]
    names = [name for entry in FIGURES for name in entry.names]
    assert len(names) == len(set(names))
    assert [entry.name for entry in choose_figures(["fig16", "FIG3", "fig7"])] == ["fig3", "fig7"]


def test_from_a_bare_run_a_figure_is_drawn_or_skipped_in_words(tmp_path: Path) -> None:
    write_run(tmp_path, "topics")
    done = write_figures(read_figure_data(tmp_path), FIGURES, tmp_path / "out", ["svg"])
    for one in done:
        assert bool(one.files) != bool(one.reason)
        assert one.files or re.fullmatch(r"[^.\n]{10,150}", one.reason)


def test_control_experiments_alone_are_enough_for_their_figures(tmp_path: Path) -> None:
    write_control(tmp_path)
    data = read_figure_data(tmp_path)
    assert len(data.control["accuracy"]) == 3 * 4 * 2
    done = write_figures(data, FIGURES, tmp_path / "out", ["svg"])
    assert {one.entry.name for one in done if one.files} == {"fig2", "fig21", "table4"}


def test_twins_are_read_where_tasks_were_binarised(tmp_path: Path) -> None:
    for binarise in (False, True):
        for task in ("questions", "topics"):
            write_full_run(tmp_path, task, binarise=binarise, name=f"{task}-{binarise}")
    data = read_figure_data(tmp_path)
    assert drawn(data, "fig19")
    assert drawn(data, "fig20")


# --- numbers -------------------------------------------------------------------------------------


def dots(panel: Axes) -> set[tuple[float, float]]:
    """Places of single markers."""
    found = [np.asarray(line.get_xydata()) for line in panel.get_lines()]
    return {(float(p[0, 0]), float(p[0, 1])) for p in found if len(p) == 1}


def test_heat_maps_show_the_matrix_of_the_run(tmp_path: Path) -> None:
    folder = write_full_run(tmp_path, techniques=("swapping",))
    (picture,) = drawn(read_figure_data(tmp_path), "fig3")
    mesh = next(c for c in picture.figure.axes[0].collections if isinstance(c, QuadMesh))
    summary = json.loads((folder / "summary.json").read_text())
    matrix = summary["techniques"]["swapping"]["error_by_size_and_layer"]
    np.testing.assert_allclose(np.asarray(mesh.get_array()), matrix)
    assert picture.figure.axes[0].yaxis_inverted()  # size 1 on top, as in the paper


def test_events_are_at_their_mean_over_models_and_missing_ones_are_said(tmp_path: Path) -> None:
    events = {"m1": (4, 2), "m2": (6, 2)}
    for model, (crossing, initiation) in events.items():
        found: dict[str, list[int | None]] = {"crossing": [crossing], "initiation": [initiation]}
        write_run(tmp_path, "topics", model, 12, events=found)
        never: dict[str, list[int | None]] = {"crossing": [None], "initiation": [initiation]}
        write_run(tmp_path, "reviews", model, 12, events=never)
    (picture,) = drawn(read_figure_data(tmp_path), "fig12")
    (panel,) = picture.figure.axes
    assert dots(panel) == {(5.0, 2.0)}  # crossing to the right, as in the paper
    assert panel.get_xlabel() == "crossing (layer)"
    assert panel.get_ylabel() == "classification initiation (layer)"
    assert "reviews (crossing)" in picture.caption
    assert "topics (" not in picture.caption


def test_events_of_tasks_at_the_same_place_do_not_hide_each_other(tmp_path: Path) -> None:
    for task in ("topics", "reviews", "questions"):
        write_run(tmp_path, task, "m1", 12, events={"crossing": [5], "initiation": [2]})
    (picture,) = drawn(read_figure_data(tmp_path), "fig12")
    found = sorted(dots(picture.figure.axes[0]))
    assert found[1] == (5.0, 2.0)
    assert all(x - y == pytest.approx(3) for x, y in found)
    assert np.diff([x for x, _ in found]) == pytest.approx([0.3, 0.3])


def test_events_of_models_of_different_depth_are_in_different_files(tmp_path: Path) -> None:
    for model, layers in (("shallow", 6), ("deep", 12)):
        write_full_run(tmp_path, "topics", model, layers)
    names = [picture.suffix for picture in drawn(read_figure_data(tmp_path), "fig12")]
    assert names == ["6-layers", "12-layers"]


def curves(panel: Axes) -> list[np.ndarray]:
    """Values of the lines by layer."""
    found = [np.asarray(line.get_ydata(), dtype=float) for line in panel.get_lines()]
    return [values for values in found if len(values) > 2]


def test_class_probes_have_a_panel_per_task_with_means_over_models(tmp_path: Path) -> None:
    for task in ("topics", "reviews"):
        for model in ("one", "two"):
            write_full_run(tmp_path, task, model)
    path = tmp_path / "topics-one" / "class_probes.parquet"
    other = pd.read_parquet(tmp_path / "topics-two" / "class_probes.parquet")
    pd.read_parquet(path).assign(noisy_f1=0.5, seed=1).to_parquet(path, index=False)
    (picture,) = drawn(read_figure_data(tmp_path), "fig14")
    titles = [panel.get_title() for panel in picture.figure.axes]
    assert titles == ["reviews", "topics"]
    means = other.groupby(["labels", "layer"])["noisy_f1"].mean()
    perturbed, original, clean = curves(picture.figure.axes[1])
    np.testing.assert_allclose(perturbed, (means["perturbed"] + 0.5) / 2)
    np.testing.assert_allclose(original, (means["original"] + 0.5) / 2)
    np.testing.assert_allclose(clean, 0.8)
    assert "(one, two)" in picture.caption


@pytest.mark.parametrize(
    ("name", "table", "value"),
    [("fig14", "class_probes", "noisy_f1"), ("profiles", "layers", "weight")],
)
def test_what_is_missing_is_a_gap_and_no_zero(
    tmp_path: Path, name: str, table: str, value: str
) -> None:
    path = write_full_run(tmp_path, techniques=("probing",)) / f"{table}.parquet"
    rows = pd.read_parquet(path)
    rows.loc[rows["layer"] == 2, value] = np.nan  # in no seed
    rows.loc[(rows["layer"] == 4) & (rows["seed"] == 1), value] = np.nan  # in one of two
    rows.to_parquet(path, index=False)
    (picture,) = drawn(read_figure_data(tmp_path), name)
    shown = curves(picture.figure.axes[0])[0]
    assert np.isnan(shown).tolist() == [False, True, False, False, False, False]


def test_probes_that_fit_nothing_are_not_drawn(tmp_path: Path) -> None:
    folder = write_full_run(tmp_path, techniques=("swapping", "probing"))
    for name in ("probes", "class_probes"):
        path = folder / f"{name}.parquet"
        pd.read_parquet(path).assign(fitted=False).to_parquet(path, index=False)
    data = read_figure_data(tmp_path)
    with pytest.raises(CannotDraw, match="no class probe fits its own training data"):
        drawn(data, "fig14")
    (picture,) = drawn(data, "fig5")
    assert [panel.get_ylabel() for panel in picture.figure.axes] == ["swapping\nmean error"]


def test_correlations_are_spearmans_below_and_pearsons_above_the_diagonal(tmp_path: Path) -> None:
    centres = [[0.40, 0.42, 0.44, 0.46, 0.60], [0.40, 0.44, 0.42, 0.46, 0.50]]
    for place, task in enumerate("abcde"):
        one, other = (straight(6, float(by_task[place])) for by_task in centres)
        write_run(tmp_path, task, weights={"swapping": [one], "retraining": [other]})
    (picture,) = drawn(read_figure_data(tmp_path), "fig8")
    matrix = np.asarray(picture.figure.axes[0].get_images()[0].get_array())
    assert matrix[1, 0] == pytest.approx(spearmanr(*centres).statistic)
    assert matrix[0, 1] == pytest.approx(pearsonr(*centres).statistic)
    words = [text.get_text() for text in picture.figure.axes[0].texts]
    assert words == [f"{value:.2f}"[1:] for value in (matrix[0, 1], matrix[1, 0])]


def test_bars_are_mean_accuracies_with_a_line_at_chance(tmp_path: Path) -> None:
    folder = write_control(tmp_path, {"minilm": 6}, ("questions", "reviews"))
    accuracy = pd.read_parquet(folder / "accuracy.parquet")
    (picture,) = drawn(read_figure_data(tmp_path), "fig2")
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
    folder = write_control(tmp_path)
    norms = pd.read_parquet(folder / "gradients.parquet")
    (picture,) = drawn(read_figure_data(tmp_path), "fig21")
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
    assert lines[2:5] == [
        "| NLU | WiC | WordNet, VerbNet, Wiktionary | 5,428 | 5,400 | 810 | 2 |",
        "| Topic classification | TREC | news, mixed | 5,452 | 5,400 | 810 | 6 |",
        "| Other tasks | my & task | – | – | 5,400 | 810 | 6 |",
    ]
    assert r"Other tasks & my \& task & – & – & 5,400 & 810 & 6 \\" in found.latex.replace(
        "--", "–"
    )
    assert r"\begin{tabular}{lllrrrr}" in found.latex


def test_table_3_has_what_is_known_of_models_and_how_they_were_trained(tmp_path: Path) -> None:
    for model, sizes in (
        ("bert-base-cased", {"width": 768, "layer_parameters": 85_054_464}),
        ("opt-1.3b", {"width": 2048, "layer_parameters": 1_208_500_000}),
        ("mine", {}),
    ):
        folder = write_run(tmp_path, "wic", model, 24 if "opt" in model else 12)
        place = folder / "summary.json"
        place.write_text(json.dumps(json.loads(place.read_text()) | sizes))
    data = read_figure_data(tmp_path)
    assert table(data, "table3").markdown.splitlines()[2:5] == [
        "| BERT | BooksCorpus, Wikipedia | 3.3B | 1M | 85M | 12 | 768 | 1 | 1 | 50 | 1e-05 | 8 |",
        "| mine | – | – | – | – | 12 | – | 1 | 1 | 50 | 1e-05 | 8 |",
        "| OPT-1.3B | BookCorpus, CC-Stories, The Pile, Reddit, CCNewsV2 | 180B | – | 1.2B | 24 | "
        "2,048 | 1 | 1 | 50 | 1e-05 | 8 |",
    ]


def test_table_2_has_a_correlation_for_every_depth_and_score(tmp_path: Path) -> None:
    scores = [0.1, 0.3, 0.5, 0.7, 0.9]
    for place, score in enumerate(scores, start=1):
        found: dict[str, list[int | None]] = {"crossing": [place], "mem_gen": [6 - place]}
        other = {"validation_original_uniform": score, "validation_memorised_majority": -score}
        other["validation_memorised_uniform"] = [0.5, 0.1, 0.9, 0.3, 0.7][place - 1]
        write_run(tmp_path, f"task{place}", events=found, validation=other)
    lines = table(read_figure_data(tmp_path), "table2").markdown.splitlines()
    assert lines[2:8] == [
        *(f"| Generalisation score | {depth} | – |" for depth in ("crossing", "mem≫gen", "M-CoG")),
        "| Validation score (θ\\_O, uniform) | crossing | 1.00 |",
        "| Validation score (θ\\_O, uniform) | mem≫gen | −1.00 |",
        "| Validation score (θ\\_O, uniform) | M-CoG | – |",  # all runs have the same
    ]
    assert lines[14] == "| Validation score (θ\\_M, uniform) | crossing | 0.30\\* |"  # chance
    assert lines[20] == "| Validation score (θ\\_M, majority) | crossing | −1.00 |"
    assert sum("Validation score" in line for line in lines[2:-2]) == 18


def test_text_of_users_is_no_latex() -> None:
    assert latex_text(r"a_b\{c}$x^2~%#<>") == (
        r"a\_b\textbackslash{}\{c\}\$x\textasciicircum{}2\textasciitilde{}\%\#"
        r"\textless{}\textgreater{}"
    )


def test_a_small_difference_between_models_looks_small(tmp_path: Path) -> None:
    for model, depth in (("minilm", 0.50), ("gte-small", 0.52)):
        weights = {"retraining": [straight(12, depth)], "swapping": [straight(12, depth)]}
        write_run(tmp_path, "topics", model, layers=12, weights=weights)
    (picture,) = drawn(read_figure_data(tmp_path), "fig6")
    low, high = picture.figure.axes[0].get_ylim()
    assert high - low == pytest.approx(3)  # of 12 layers


# --- looks ---------------------------------------------------------------------------------------


def test_names_that_are_the_same_in_print_are_told_apart(tmp_path: Path) -> None:
    long = [f"customer_complaints_{letter}_about_deliveries" for letter in "abc"]
    assert len({look.name for look in task_looks([*long, "sst2", "SST-2"]).values()}) == 5
    models = model_looks({"pythia-160m": 12, "pythia-160m-deduped": 12})
    assert [look.name for look in models.values()] == ["Pythia", "pythi…0m-deduped"]
    for place, model in enumerate(("a b", "a-b", "A-B")):
        write_full_run(tmp_path, "topics", model, name=f"run{place}")
    (done,) = write_figures(
        read_figure_data(tmp_path), choose_figures(["fig3"]), tmp_path / "out", ["svg"]
    )
    assert set(done.files) == {"fig3-A-B.svg", "fig3-a-b-2.svg", "fig3-a-b-3.svg"}


def test_a_task_has_the_same_look_whatever_else_is_drawn() -> None:
    alone = task_looks(["wic", "complaints.csv"])
    together = task_looks(["wic", "trec", "complaints.csv", "sst2"])
    assert alone.items() <= together.items()


def test_no_two_tasks_look_alike() -> None:
    known = task_looks([*PAPER_TASKS, *BUILTIN_TASKS])
    assert len({look.colour for look in known.values()}) == len(known)
    own = task_looks(f"own{number}" for number in range(40))
    assert len({(look.colour, look.marker) for look in own.values()}) == 40
