"""The report in a real browser: what it shows, and that everything in it does what it says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from memloc.analysis.windows import all_windows
from memloc.paper.scorecard import page_claims
from memloc.report.page import write_report
from tests.report.folders import HOSTILE, undoing, write_full_localised, write_full_run
from tests.report.over_time_folders import add_checkpoints
from tests.result_folders import straight, write_run

LAYERS, NOISY, SEEDS = 4, 45, (1, 2, 3)
CELL = '[data-map="{}"] [data-row="{}"][data-column="{}"]'
Visit = Callable[..., Any]


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three seeds, and 45 noisy examples of which the first was never memorised."""
    return write_report(
        write_full_run(tmp_path_factory.mktemp("one"), layers=LAYERS, noisy=NOISY, seeds=SEEDS)
    )


@pytest.fixture(scope="session")
def many_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve tasks, of which one has all tables, and a model of 24 layers."""
    runs = tmp_path_factory.mktemp("many")
    for index in range(11):
        depth = 0.38 + 0.02 * index
        write_run(
            runs, f"a-task-with-a-name-{index}", layers=24, seeds=(1, 2),
            weights={n: [straight(24, depth)] * 2 for n in ("swapping", "retraining", "probing")},
            events={"crossing": [6 + index] * 2, "mem_gen": [7 + index] * 2,
                    "initiation": [4, 5], "f1_90": [4, 6]},
            validation=0.5 + index / 30, generalisation=0.6 + index / 40,
        )  # fmt: skip
    write_full_run(runs, "full", layers=24, noisy=30)
    return write_report(runs, check=page_claims)


def cell(technique: str, size: int, layer: int, layers: int = LAYERS) -> str:
    return CELL.format(technique, layers - size, layer - 1)


def majority(needed: int, layers: int = LAYERS, noisy: int = NOISY) -> np.ndarray:
    """[windows, examples]: undone in at least two of three seeds."""
    undone = sum(undoing(noisy, layers, seed, needed).astype(int) for seed in SEEDS) >= 2
    undone[:, 0] = False
    return undone


def shown(page: Any) -> list[int]:
    """Places of the examples in the table, over all its pages."""
    places: list[int] = []
    if page.locator(".pager").is_visible() and page.locator("[data-focus=first]").is_enabled():
        page.click("[data-focus=first]")
    while True:
        rows = page.locator("tr[data-example]")
        places += [int(place) for place in rows.evaluate_all("r => r.map(x => x.dataset.example)")]
        following = page.locator("[data-focus=next]")
        if not page.locator(".pager").is_visible() or not following.is_enabled():
            return places
        following.click()


def fits(page: Any) -> bool:
    """No horizontal scrolling of the page."""
    return page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_all_parts_are_there_in_the_order_of_the_questions(visit: Visit, report: Path) -> None:
    page = visit(report)
    parts = page.locator("main > section").evaluate_all("s => s.map(x => x.id)")
    assert parts == ["found", "training", "where", "how", "examples", "made"]
    assert page.title() == "memloc: minilm on topics"
    assert page.locator("h1").inner_text() == "minilm on topics"
    assert "Memorisation" in page.locator(".finding").inner_text()
    assert page.locator("[data-curve]").count() == 5
    assert page.get_by_text("θ_M1, epoch 4").count() == 1
    assert page.get_by_text("θ_M2, epoch 6").count() == 1
    assert page.locator("[data-map]").count() == 2
    assert page.locator("[data-profile]").count() == 4
    assert page.locator(".seed-centre").count() == 4 * 3
    assert page.locator("[data-ways]").count() == 3
    assert page.locator("[data-ways=memorised] [data-event]").count() == 2
    assert page.locator("pre").first.inner_text().startswith("memloc run --task topics")


@pytest.mark.parametrize("width", [1280, 390])
def test_every_part_can_be_reached_from_the_bar(visit: Visit, report: Path, width: int) -> None:
    page = visit(report, width)
    links = page.locator(".bar nav a")
    names = ["Summary", "Training", "Where", "How", "Examples", "Reproduce"]
    assert links.all_inner_texts() == names
    for link in links.all():
        box = link.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width


def test_the_memorisation_map_has_a_point_per_example(visit: Visit, report: Path) -> None:
    page = visit(report)
    points = page.locator("[data-memorisation-map] [data-group=noisy]").get_attribute("d")
    assert points.count("M") == NOISY


def test_a_technique_without_weight_says_so(visit: Visit, tmp_path: Path) -> None:
    weights = {"swapping": [straight(6, 0.5)], "probing": [[0.0] * 6]}
    page = visit(write_report(write_run(tmp_path, weights=weights)))
    assert page.get_by_text("probing: no layer has any weight").count() == 1


def test_columns_that_are_absent_are_not_announced(visit: Visit, tmp_path: Path) -> None:
    folder = write_full_run(tmp_path, scores=False)
    words = "the layer after which it stays with its new class"
    page = visit(write_report(folder))
    assert words in page.locator("#examples .lede").inner_text()
    for name in ("crossings", "trajectories"):
        (folder / f"{name}.parquet").unlink()
    page = visit(write_report(folder))
    assert words not in page.locator("#examples .lede").inner_text()


def test_single_examples_and_means_stay_inside_the_chart(visit: Visit, tmp_path: Path) -> None:
    folder = write_full_run(tmp_path)
    table = pd.read_parquet(folder / "centroids.parquet")
    noisy = table["group"] == "noisy"
    table.loc[noisy, "mean"] = table.loc[noisy, "mean"] * 4 - 1  # from -1 to 3
    table.to_parquet(folder / "centroids.parquet", index=False)
    page = visit(write_report(folder))
    chart = page.locator("[data-ways=memorised]")
    heights = chart.locator("circle").evaluate_all("c => c.map(x => +x.getAttribute('cy'))")
    assert len(set(heights)) == LAYERS  # none is cut to the edge
    assert chart.get_by_text("↑ 0 new class, 1 old class").count() == 1


def test_claims_without_enough_data_are_folded(visit: Visit, many_runs: Path) -> None:
    page = visit(many_runs)
    assert page.locator(".claims-open summary").inner_text().endswith("claims without enough data")
    assert not page.locator(".claims-open .badge").first.is_visible()
    assert page.locator(".claims:not(.claims-open .claims) .badge.open").count() == 0


def test_charts_have_text_alternatives(visit: Visit, report: Path) -> None:
    page = visit(report)
    for chart in page.locator("svg.plot").all():
        assert len(chart.get_attribute("aria-label")) > 20
        assert chart.get_attribute("role") in ("img", "group")
    assert page.locator("details.numbers").count() >= 6
    page.locator("#where details.numbers summary").first.click()
    assert page.locator("#where details.numbers table").first.is_visible()


@pytest.mark.parametrize("by", ["hover", "focus"])
def test_a_cell_shows_its_windows_and_their_errors(visit: Visit, report: Path, by: str) -> None:
    page = visit(report)
    getattr(page.locator(cell("swapping", 2, 2)), by)()
    words = page.locator("#tip").inner_text()
    assert "Layer 2 in 2 layers" in words
    assert "layers 1–2" in words
    assert "layers 2–3" in words
    assert "layers 3–4" not in words
    row = all_windows(LAYERS).index((1, 2))
    undone = np.mean([undoing(NOISY, LAYERS, seed, 1)[row].mean() for seed in SEEDS])
    never = 1 / NOISY  # example 0 was not memorised, so its label is not undone
    assert f"{(undone - never) / (1 - never):.0%} undone, 0.0% of clean lost" in words


def test_checkpoints_are_a_map_of_layers_and_epochs_for_pointer_and_keyboard(
    visit: Visit, tmp_path: Path
) -> None:
    folder = add_checkpoints(write_full_run(tmp_path, seeds=(1, 2)))
    page = visit(write_report(folder))
    parts = page.locator("main > section").evaluate_all("s => s.map(x => x.id)")
    assert parts == ["found", "training", "where", "when", "how", "examples", "made"]
    assert page.locator("[data-over-time]").count() == 3
    swapping = page.locator("[data-over-time=swapping]")
    assert swapping.locator(".cell").count() == LAYERS * 3
    assert swapping.get_by_text("not yet").count() == 1
    assert page.locator("[data-over-time=centroids]").get_by_text("not yet").count() == 0
    assert "Memorisation starts between epochs 2 and 6" in page.locator("#when").inner_text()
    swapping.locator('[data-row="0"][data-column="1"]').hover()
    words = page.locator("#tip").inner_text()
    assert "Epoch 4, layer 4" in words
    assert "1.000" in words
    page.locator('[data-over-time=swapping] [tabindex="0"]').focus()
    for key, place in (
        ("ArrowRight", "Epoch 4"),
        ("ArrowRight", "Epoch 6"),
        ("ArrowUp", "Epoch 6"),
    ):
        page.keyboard.press(key)
        assert place in page.locator("#tip").inner_text()
    page.select_option("[data-choice=Seed]", label="seed 2")
    assert swapping.locator("circle").count() == 1  # its centre is known at the end alone
    assert fits(page)


def test_a_cell_filters_the_table_to_what_its_windows_undo(visit: Visit, report: Path) -> None:
    page = visit(report)
    assert shown(page) == list(range(NOISY))
    page.click(cell("retraining", 2, 1))
    windows = all_windows(LAYERS)
    expected = np.flatnonzero(majority(2)[windows.index((1, 2))])
    assert shown(page) == expected.tolist()
    assert page.locator(".count").inner_text() == f"{len(expected)} of {NOISY} examples"
    page.click(cell("swapping", 2, 2))  # two windows: any of them
    both = majority(1)[[windows.index((1, 2)), windows.index((2, 3))]]
    assert shown(page) == np.flatnonzero(both.any(axis=0)).tolist()
    page.click(".chip:has-text('layers 2–3')")
    assert shown(page) == np.flatnonzero(both[1]).tolist()
    page.click("#selection button:has-text('Clear')")
    assert shown(page) == list(range(NOISY))
    assert page.locator("#selection").is_hidden()


def test_a_selected_example_is_marked_everywhere(visit: Visit, report: Path) -> None:
    page = visit(report)
    page.click("tr[data-example='5'] .clamp")
    assert page.locator("tr.chosen").get_attribute("data-example") == "5"
    assert "number 5" in page.locator("tr.chosen").inner_text()
    assert "windows undo it" in page.locator("tr.detail").inner_text()
    page.wait_for_selector("[data-ways=memorised] .selected-way[data-example='5']")
    assert page.locator(".selected-way[data-example='5']").count() == 3
    undoing_it = [w for w, yes in zip(all_windows(LAYERS), majority(1)[:, 5], strict=True) if yes]
    marked = {(window.size, layer) for window in undoing_it for layer in window.layers}
    assert page.locator("[data-map=swapping] .undoes").count() == len(marked)
    assert page.locator("[data-map=swapping] .smallest").count() == 1
    page.keyboard.press("Escape")
    page.wait_for_selector(".selected-way", state="detached")
    assert page.locator("tr.chosen").count() == 0


def test_a_bar_filters_by_the_layer_of_crossing(visit: Visit, report: Path) -> None:
    page = visit(report)
    cells = "#examples td[data-label='Crosses in']"
    bar = page.locator("[data-crossings] [data-column='2']")
    bar.click()
    assert "Crosses for good in layer 3" in page.locator("#selection").inner_text()
    assert set(page.locator(cells).all_inner_texts()) == {"layer 3"}
    assert bar.get_attribute("aria-pressed") in ("true", "false")
    page.wait_for_selector("[data-crossings] [data-column='2'][aria-pressed=true]")


def test_search_finds_words_in_texts_and_labels(visit: Visit, report: Path) -> None:
    page = visit(report)
    page.fill("#search", "NUMBER 16")
    assert shown(page) == [16]
    page.fill("#search", "stones falcon")
    found = shown(page)
    assert found
    assert all(i % 3 in (1, 2) for i in found)  # stones: the label or the original one
    page.fill("#search", "no such words")
    assert page.locator("tr[data-example]").count() == 0
    assert page.locator(".count").inner_text() == f"0 of {NOISY} examples"
    page.fill("#search", "")
    assert len(shown(page)) == NOISY


def test_headings_sort_both_ways(visit: Visit, report: Path) -> None:
    page = visit(report)
    for title in ("Crosses in", "Undone by swapping", "Counterfactual memorisation", "Text"):
        heading = page.locator(".examples th", has_text=title)
        heading.locator("button").click()
        assert heading.get_attribute("aria-sort") == "ascending"
        up = shown(page)
        heading.locator("button").click()
        assert heading.get_attribute("aria-sort") == "descending"
        assert sorted(up) == sorted(shown(page)) == list(range(NOISY))
    page.click("th:has-text('Counterfactual') button")
    cells = page.locator("td[data-label='Counterfactual memorisation']").all_inner_texts()
    numbers = [float(text) for text in cells]
    assert numbers == sorted(numbers)


def test_themes_follow_the_system_and_the_button(visit: Visit, report: Path) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    dark, light = visit(report, theme="dark"), visit(report, theme="light")
    assert dark.evaluate(ground) == "rgb(17, 22, 27)"
    assert light.evaluate(ground) == "rgb(255, 255, 255)"
    shade = f"document.querySelector('{cell('swapping', 4, 1)} rect').getAttribute('fill')"
    assert dark.evaluate(shade) != light.evaluate(shade)
    light.click("#theme")
    assert light.evaluate(ground) == dark.evaluate(ground)
    assert light.evaluate(shade) == dark.evaluate(shade)


def test_everything_can_be_reached_with_the_keyboard(visit: Visit, report: Path) -> None:
    page = visit(report)
    focused_part = """() => {
        const one = document.activeElement;
        const map = one.closest('[data-map]');
        return map ? map.dataset.map : one.getAttribute('class') || one.id;
    }"""
    seen = []
    while "swapping" not in seen and len(seen) < 60:
        page.keyboard.press("Tab")
        seen.append(page.evaluate(focused_part))
    assert {"skip", "theme", "key-figure", "plot"} <= set(seen)
    assert seen[-1] == "swapping"
    assert page.locator("#tip").is_visible()
    focused = "[document.activeElement.dataset.row, document.activeElement.dataset.column]"
    start = page.evaluate(focused)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert page.evaluate(focused) == [str(int(start[0]) + 1), str(int(start[1]) + 1)]
    page.keyboard.press("Enter")
    assert page.locator("#selection").is_visible()
    page.wait_for_selector(".cell.chosen")
    assert page.evaluate(focused) == [str(int(start[0]) + 1), str(int(start[1]) + 1)]
    page.locator("[data-pick]").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.locator("tr.chosen").count() == 1
    page.locator("#training svg:has([data-curve])").focus()
    page.keyboard.press("ArrowRight")
    assert "Epoch 2" in page.locator("#tip").inner_text()
    assert "Epoch 2" in page.locator("#spoken").inner_text()


def test_hostile_texts_neither_run_nor_break_the_page(visit: Visit, tmp_path: Path) -> None:
    folder = write_full_run(
        tmp_path,
        task="</title><script>window.broken = true</script>",
        model='"><img src=x onerror="window.broken = true">',
        texts=HOSTILE,
        noisy=24,
        classes=("<i>a</i>", "b" * 300, "\u202egnol"),
        name="hostile",
    )
    for width in (1440, 375):
        page = visit(write_report(folder), width)
        assert page.locator(".examples .clamp").first.inner_text() == HOSTILE[0]
        assert page.evaluate("window.broken") is None
        assert page.locator("img, main script, main i").count() == 0
        assert fits(page)
        for place in (4, 5, 6):
            page.click(f"tr[data-example='{place}'] [data-pick]")
            assert page.locator("tr.detail").is_visible()
            assert fits(page)
        page.fill("#search", "<script>")
        assert page.locator("tr[data-example]").count() == 2 * 2
        page.fill("#search", "xxxxxxxx")
        page.locator("[data-pick]").first.click()
        assert page.locator(".full-text").inner_text() == "x" * 2000
        assert "The first 2,000 of 10,000 characters." in page.locator("tr.detail").inner_text()
        assert fits(page)
        assert page.evaluate("window.broken") is None


def test_the_policy_stops_what_is_not_of_the_page(browser: Any, report: Path) -> None:
    page = browser.new_page()
    page.goto(report.as_uri())
    stopped = page.evaluate(
        """() => new Promise((done) => {
            const seen = [];
            document.addEventListener('securitypolicyviolation', (event) => {
              seen.push(event.effectiveDirective);
              if (seen.length === 3) done(seen.sort());
            });
            const script = document.createElement('script');
            script.textContent = 'window.broken = true';
            const image = new Image();
            image.src = 'http://127.0.0.1:9/x.png';
            document.body.append(script, image);
            fetch('http://127.0.0.1:9/').catch(() => null);
        })"""
    )
    assert stopped == ["connect-src", "img-src", "script-src-elem"]
    assert page.evaluate("window.broken") is None
    page.close()


@pytest.mark.parametrize("width", [1440, 375])
def test_many_layers_and_tasks_fit(visit: Visit, many_runs: Path, width: int) -> None:
    page = visit(many_runs, width)
    assert fits(page)
    options = page.locator("[data-choice=Run] option").all_inner_texts()
    assert len(options) == 12
    page.select_option("[data-choice=Run]", label="full · minilm")
    assert page.locator("h1").inner_text() == "minilm on full"
    assert fits(page)
    assert page.locator("[data-map=swapping] .cell").count() == 24 * 24
    tasks = page.locator("[data-centres] .name").count()
    assert tasks == 12
    assert page.locator("[data-scatter]").count() == 2
    assert page.locator(".matrix").count() == 2
    assert page.locator(".claims .badge").count() > 10
    for chart in page.locator("svg.plot").all():
        box = chart.bounding_box()
        assert box is None or box["x"] + box["width"] <= width


def test_it_prints_in_light_colours_without_what_needs_a_screen(visit: Visit, report: Path) -> None:
    page = visit(report, theme="dark")
    page.click(cell("swapping", 1, 1))
    page.evaluate("window.addEventListener('beforeprint', () => setTimeout(() => 0))")
    assert page.pdf(format="A4").startswith(b"%PDF")
    page.emulate_media(media="print")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    for hidden in (".bar", "#selection", "#search", ".pager"):
        assert page.locator(hidden).first.is_hidden()
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_results_of_localise_have_a_page_without_training(visit: Visit, tmp_path: Path) -> None:
    page = visit(write_report(write_full_localised(tmp_path)))
    parts = page.locator("main > section").evaluate_all("s => s.map(x => x.id)")
    assert parts == ["found", "where", "how", "examples", "made"]
    assert page.locator("h1").inner_text() == "minilm"
    assert page.locator("pre").first.inner_text().startswith("memloc localise")
    assert page.locator("[data-choice]").count() == 0


def test_a_seed_can_be_chosen(visit: Visit, report: Path) -> None:
    page = visit(report)
    page.click(cell("swapping", 1, 1))
    together = shown(page)
    page.select_option("[data-choice=Seed]", label="seed 3")
    page.click(cell("swapping", 1, 1))
    expected = undoing(NOISY, LAYERS, 3, 1)[0]
    expected[0] = False
    assert shown(page) == np.flatnonzero(expected).tolist() != together


def test_points_of_the_comparison_choose_their_run(visit: Visit, many_runs: Path) -> None:
    page = visit(many_runs)
    point = page.locator("[data-centres] .point[aria-label^='full']").first
    point.hover()
    assert "M-CoG" in page.locator("#tip").inner_text()
    point.dispatch_event("click")
    assert page.locator("h1").inner_text() == "minilm on full"
