"""The page of a repair in a real browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memloc.report.repair_page import repair_page
from tests.browser.test_report import fits
from tests.report.folders import HOSTILE
from tests.report.test_repair_page import made_repair
from tests.results.test_repair import exams

Visit = Callable[..., Any]


def written(folder: Path, summary: dict[str, Any]) -> Path:
    path = folder / "report.html"
    path.write_text(repair_page(summary), encoding="utf-8")
    return path


def test_it_shows_the_sentences_the_table_and_a_panel_for_each_trace(
    visit: Visit, tmp_path: Path
) -> None:
    summary = made_repair(exams(trained_on={"given": 0.6, "probe": None}), chosen="twin")
    page = visit(written(tmp_path, summary))
    assert page.locator("h1").inner_text() == "minilm on my data, repaired"
    said = [page.locator(".finding").inner_text(), *page.locator(".further").all_inner_texts()]
    assert said == summary["findings"]
    rows = page.locator(".exam tbody [data-candidate]")
    assert rows.count() == 6
    assert page.locator(".exam .controls [data-candidate]").count() == 2
    assert page.locator(".exam .best th").inner_text().split("\n") == [
        *("swapped-window", "best · passes"),
    ]
    assert "written · passes" in page.locator(".exam [data-candidate=twin] th").inner_text()

    def cell(measure: str, candidate: str = "trained-on") -> list[str]:
        place = f".exam [data-candidate={candidate}] [data-measure={measure}]"
        return page.locator(place).inner_text().split()

    assert cell("given") == ["▲", "60%", "43–75%"]
    assert cell("given", "twin") == ["5%", "1–17%"]
    assert cell("probe") == ["-"]
    panels = page.locator("[data-panel]")
    assert panels.evaluate_all("p => p.map(x => x.dataset.panel)") == [
        *("given", "relearned_kept", "relearned_tenth", "probe"),
    ]
    probe = page.locator("[data-panel=probe]")
    assert probe.locator("[data-candidate]").count() == 5  # the sixth has no dot
    assert probe.get_by_text("not known").count() == 1
    dots = page.locator("[data-panel=given] circle").evaluate_all(
        "d => d.map(x => +x.cx.baseVal.value)"
    )
    twin, trained, unchanged = dots[3], dots[2], dots[5]
    assert (trained - twin) / (unchanged - twin) == pytest.approx((0.6 - 0.05) / 0.95, abs=0.01)
    line = page.locator("[data-panel=given] .event").get_attribute("x1")
    assert float(line) == pytest.approx(twin)
    page.locator("[data-panel=given] [data-candidate=trained-on]").hover()
    assert page.locator("#tip").inner_text().split() == ["trained-on", "given", "60%", "(43–75%)"]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_everything_fits_whatever_the_names_are(
    visit: Visit, tmp_path: Path, width: int, theme: str
) -> None:
    text = " ".join(HOSTILE)
    page = visit(written(tmp_path, made_repair(model=text, task=text, command=text)), width, theme)
    assert fits(page)
    assert not page.evaluate("window.broken || document.querySelector('main img') !== null")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == {"dark": "rgb(17, 22, 27)", "light": "rgb(255, 255, 255)"}[theme]
    names = page.locator("[data-panel] .name").evaluate_all(
        "n => n.map(x => x.getBoundingClientRect().left"
        " - x.closest('.chart').getBoundingClientRect().left)"
    )
    assert min(names) >= 0  # none is cut
    assert page.get_by_role("button", name="theme").count() == 1
