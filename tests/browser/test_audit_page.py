"""The page to review labels in a real browser: every key and button, and the file it exports."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from memloc.data.files import labelled_examples, read_table
from memloc.report.audit_page import write_audit_page
from tests.browser.test_report import fits
from tests.report.audit_labels import CLASSES, about, made_labels
from tests.report.folders import HOSTILE

N, SUSPECTS, PAGE = 60, 8, 25
Visit = Callable[..., Any]
CSV_TRAPS = (
    *('a, "b"', "two\nlines", "windows\r\nlines", "old\rmac", '"', ",", " spaces ", "-1", "NA"),
    *("'single'", "tab\t", '""', "=1+1", "semi;colon|bar"),
)


@pytest.fixture(scope="session")
def review(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(made_labels(N, SUSPECTS), tmp_path_factory.mktemp("audit"))


def written(labels: pd.DataFrame, folder: Path, **values: Any) -> Path:
    return write_audit_page(labels, about(labels, **values), folder / "report.html")


def shown(page: Any) -> list[int]:
    """Rows of the file on this page of the list, in order."""
    rows = page.locator(".label-row").evaluate_all("r => r.map(x => x.dataset.row)")
    return list(map(int, rows))


def current(page: Any) -> int:
    """The row that has the focus, itself or something in it."""
    return int(page.evaluate("document.activeElement.closest('.label-row').dataset.row"))


def decisions(page: Any) -> dict[int, str]:
    """Of the rows on this page of the list."""
    pairs = page.locator(".label-row").evaluate_all(
        "r => r.map(x => [x.dataset.row, x.querySelector('[aria-pressed=true]')?.textContent])"
    )
    return {int(row): kind for row, kind in pairs if kind}


def press(page: Any, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def row(page: Any, number: int) -> Any:
    return page.locator(f".label-row[data-row='{number}']")


def exported(page: Any, folder: Path) -> pd.DataFrame:
    with page.expect_download() as download:
        page.click("#export")
    assert download.value.suggested_filename == "reviewed.csv"
    download.value.save_as(folder / "reviewed.csv")
    return read_table(folder / "reviewed.csv")


def test_it_says_what_was_found_and_starts_with_the_most_suspicious_label(
    visit: Visit, review: Path
) -> None:
    page = visit(review)
    assert page.locator("h1").inner_text() == "About 7 of 60 labels look wrong"
    words = "The 95% interval is 4 to 12. 8 labels are marked as suspects."
    assert page.locator(".finding").inner_text() == words
    assert "export your decisions as reviewed.csv" in page.locator("#found").inner_text()
    assert shown(page) == list(range(SUSPECTS))[::-1]
    assert page.locator("#progress").inner_text() == "0 of 8 suspects decided"
    words = row(page, 7).inner_text()
    assert "text number 7" in words
    assert "given plants → suggested stones" in words.replace("\n", " ")
    keys = page.locator(".keys kbd").all_inner_texts()
    assert keys == ["↓", "j", "↑", "k", "1", "Shift+K", "2", "R", "3", "D", "U"]
    assert "--label-column given_label --suspects suspect" in page.locator("pre").inner_text()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_everything_fits_and_has_a_name(visit: Visit, review: Path, width: int, theme: str) -> None:
    page = visit(review, width, theme)
    assert fits(page)
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == {"dark": "rgb(17, 22, 27)", "light": "rgb(255, 255, 255)"}[theme]
    for kind in ("button", "combobox", "searchbox", "progressbar"):
        assert page.get_by_role(kind).count()
        assert page.get_by_role(kind, name="", exact=True).count() == 0, kind
    assert page.locator(".label-row[tabindex='0']").count() == 1
    assert (
        "data map of 60 labels"
        in page.locator("[data-datamap]").get_attribute("aria-label").lower()
    )


def test_search_finds_words_and_rows_among_what_is_listed(visit: Visit, review: Path) -> None:
    page = visit(review)
    page.fill("#search", "NUMBER 3")
    assert shown(page) == [3]
    page.click("[data-show=all]")
    assert shown(page) == [i for i in range(N) if "3" in str(i)]
    assert page.locator(".count").inner_text() == "15 labels"
    page.fill("#search", "#41")
    assert shown(page) == [41]
    page.fill("#search", "no such words")
    assert page.locator(".label-row").count() == 0
    page.locator(".nothing button").focus()
    press(page, "1", "j", "Escape")
    page.click(".nothing button")
    assert page.locator("#search").input_value() == ""
    assert page.locator(".count").inner_text() == "60 labels"


def test_classes_and_states_filter_the_list(visit: Visit, review: Path) -> None:
    page = visit(review)
    page.select_option("[data-choice=Given]", label="plants")
    assert shown(page) == [7, 4, 1]
    page.select_option("[data-choice=Given]", label="any class")
    page.select_option("[data-choice=Suggested]", label="plants")
    assert shown(page) == [6, 3, 0]
    page.select_option("[data-choice=Suggested]", label="any class")
    row(page, 5).get_by_text("Keep").click()
    row(page, 2).get_by_text("Drop").click()
    states = page.locator(".chip").all_inner_texts()
    assert states == ["Suspects 8", "Undecided 6", "Decided 2", "All labels 60"]
    page.click("[data-show=undecided]")
    assert shown(page) == [7, 6, 4, 3, 1, 0]
    page.click("[data-show=decided]")
    assert shown(page) == [5, 2]
    page.click("[data-show=suspects]")
    assert shown(page) == list(range(SUSPECTS))[::-1]


def test_the_list_is_sorted_by_any_column_and_missing_values_come_last(
    visit: Visit, review: Path
) -> None:
    page = visit(review)
    labels = made_labels(N, SUSPECTS).iloc[:SUSPECTS].sort_values("rank")
    for title, column, up in (
        ("row of the file", "row", True),
        ("least suspicious first", "rank", False),
        ("given label", "label", True),
        ("suggested label", "suggested_label", True),
        ("learned, lowest first", "learned", True),
        ("learned, highest first", "learned", False),
        ("confidence, lowest first", "confidence", True),
    ):
        page.select_option("[data-choice='Sort by']", label=title)
        expected = labels.sort_values(column, ascending=up, kind="stable", na_position="last")
        assert shown(page) == expected["row"].tolist(), title


def test_the_pages_of_the_list_have_25_labels(visit: Visit, review: Path) -> None:
    page = visit(review)
    page.click("[data-show=all]")
    seen = shown(page)
    assert len(seen) == PAGE
    page.click("[data-focus=next]")
    page.click("[data-focus=next]")
    assert page.locator(".pager span").inner_text() == "51–60 of 60"
    assert shown(page) == list(range(50, 60))
    page.click("[data-focus=first]")
    assert shown(page) == seen


def test_keys_move_decide_and_undo(visit: Visit, review: Path) -> None:
    page = visit(review)
    press(page, "1", "2", "3", "ArrowDown", "d")  # nothing has the focus: these keys do nothing
    assert decisions(page) == {}
    press(page, "j")
    assert current(page) == 7
    press(page, "j", "ArrowDown", "k", "ArrowUp", "ArrowUp")
    assert current(page) == 7
    press(page, "1", "2", "3", "Shift+K", "r", "d")
    assert decisions(page) == {
        **{7: "Keep", 6: "Relabel", 5: "Drop", 4: "Keep", 3: "Relabel", 2: "Drop"}
    }
    assert current(page) == 1
    assert page.locator("#progress").inner_text() == "6 of 8 suspects decided"
    assert "Row 2: drop. 6 of 8 suspects decided" in page.locator("#spoken").inner_text()
    press(page, "u")
    assert current(page) == 2
    press(page, "u", "1", "u")
    assert decisions(page) == {7: "Keep", 6: "Relabel", 5: "Drop", 4: "Keep"}
    press(page, "Control+1", "Alt+3")
    row(page, 3).locator("select").focus()
    press(page, "3", "1")
    assert len(decisions(page)) == 4
    page.locator("#search").focus()
    press(page, "u")
    assert page.locator("#search").input_value() == "u"
    page.fill("#search", "")
    assert len(decisions(page)) == 4
    row(page, 4).get_by_text("Keep").click()  # pressed already: takes it back
    page.click("#undo")
    assert decisions(page)[4] == "Keep"


def test_moving_beyond_the_end_turns_the_page(visit: Visit, review: Path) -> None:
    page = visit(review)
    page.click("[data-show=all]")
    row(page, PAGE - 1).focus()
    press(page, "ArrowDown")
    assert current(page) == PAGE
    assert shown(page)[0] == PAGE
    press(page, "k")
    assert current(page) == PAGE - 1
    page.click("[data-focus=last]")
    row(page, N - 1).focus()
    press(page, "3", "j")
    assert current(page) == N - 1


def test_relabelling_takes_the_suggestion_or_the_class_that_is_chosen(
    visit: Visit, review: Path, tmp_path: Path
) -> None:
    page = visit(review)
    box = row(page, 7).locator("select")
    assert box.locator("option").all_inner_texts() == ["animals", "stones"]  # given: plants
    assert box.evaluate("b => b.selectedOptions[0].text") == "stones"
    box.select_option(label="animals")
    assert decisions(page) == {7: "Relabel"}
    row(page, 6).get_by_text("Relabel").click()
    page.click("[data-show=all]")
    row(page, 20).focus()
    press(page, "2")  # no other class is suggested: the box asks for one
    assert page.evaluate("document.activeElement.tagName") == "SELECT"
    assert 20 not in decisions(page)
    row(page, 20).locator("select").select_option(label="animals")
    press(page, "Escape", "j")
    assert current(page) == 21
    table = exported(page, tmp_path).set_index("row")
    assert table.loc[["7", "6", "20"], "label"].tolist() == ["animals", "plants", "animals"]
    assert table.loc[["7", "6", "20"], "suspect"].tolist() == ["True"] * 3


def test_the_export_says_what_was_decided(visit: Visit, review: Path, tmp_path: Path) -> None:
    page = visit(review)
    press(page, "j", "1", "2", "3")
    page.click("[data-show=all]")
    row(page, 10).get_by_text("Keep").click()
    row(page, 11).get_by_text("Drop").click()
    assert page.locator("#progress").inner_text() == "3 of 8 suspects decided, and 2 other labels"
    table = exported(page, tmp_path)
    labels = made_labels(N, SUSPECTS)
    columns = ["row", "text", "label", "given_label", "suspect", "decision"]
    assert list(table.columns) == columns
    expected = labels.assign(given_label=labels["label"], decision="undecided")[columns]
    expected.loc[6, "label"] = labels["suggested_label"][6]
    expected.loc[[7, 10], "decision"] = "keep"
    expected.loc[6, "decision"] = "relabel"
    expected.loc[7, "suspect"] = False
    expected = expected.drop(index=[5, 11]).reset_index(drop=True).astype(str)
    pd.testing.assert_frame_equal(table.astype(str), expected, check_dtype=False)
    read = labelled_examples(table, "reviewed.csv", label_column="given_label")
    assert read["label"].tolist() == expected["given_label"].tolist()


def test_the_export_holds_every_text_as_it_was(visit: Visit, tmp_path: Path) -> None:
    labels = made_labels(N, SUSPECTS, texts=[*CSV_TRAPS, *HOSTILE])
    labels["text_pair"] = labels["text"].to_numpy()[::-1]
    labels["word"] = ["wo,rd", *["word"] * (N - 2), 'wo"rd']
    classes = ["a, b", 'quoted "c"', "d\ne"]
    for column in ("label", "suggested_label"):
        labels[column] = labels[column].replace(dict(zip(CLASSES, classes, strict=True)))
    page = visit(written(labels, tmp_path, classes=classes))
    press(page, "j", "2")
    table = exported(page, tmp_path)
    names = ["row", "text", "text_pair", "word", "label", "given_label", "suspect", "decision"]
    assert list(table.columns) == names
    for column in ("text", "text_pair", "word"):
        assert table[column].tolist() == labels[column].tolist()
    assert table["given_label"].tolist() == labels["label"].tolist()
    changed = table["label"] != table["given_label"]
    assert table["row"][changed].tolist() == ["7"]


def test_decisions_survive_a_reload_and_a_new_audit_of_the_same_labels(
    visit: Visit, tmp_path: Path
) -> None:
    labels = made_labels(200, 40)
    file = written(labels, tmp_path)
    page = visit(file)
    press(page, "j", *"123" * 9)
    page.reload()
    assert page.locator("#progress").inner_text() == "27 of 40 suspects decided"
    assert page.locator(".label-row[tabindex='0']").get_attribute("data-row") == "12"  # goes on
    assert page.locator(".pager span").inner_text() == "26–40 of 40"
    page.click("[data-focus=first]")
    assert [*decisions(page).values()][:6] == ["Keep", "Relabel", "Drop"] * 2
    written(labels.assign(score=0.5, rank=labels["row"] + 1), tmp_path)
    page.reload()
    assert page.locator("#progress").inner_text() == "27 of 40 suspects decided"
    page.fill("#search", "#39")
    assert decisions(page) == {39: "Keep"}
    written(labels.assign(label="stones"), tmp_path)  # other labels: nothing is decided
    page.reload()
    assert page.locator("#progress").inner_text() == "0 of 40 suspects decided"


def test_two_windows_of_a_page_have_the_same_decisions(visit: Visit, review: Path) -> None:
    page = visit(review)
    other = page.context.new_page()
    other.goto(review.as_uri())
    press(page, "j", "1", "1")
    other.wait_for_selector("#progress:has-text('2 of 8')")
    assert decisions(other) == {7: "Keep", 6: "Keep"}


@pytest.mark.parametrize("trouble", ["blocked", "full", "damaged"])
def test_without_storage_it_works_and_warns(
    visit: Visit, review: Path, tmp_path: Path, trouble: str
) -> None:
    page = visit(review)
    breaks = {
        "blocked": "Object.defineProperty(window, 'localStorage', { get() { throw Error(); } })",
        "full": "Storage.prototype.setItem = () => { throw new Error(); }",
        "damaged": "Storage.prototype.getItem = () => '{not json'",
    }
    page.add_init_script(breaks[trouble])
    page.reload()
    press(page, "j", "1", "3")
    assert decisions(page) == {7: "Keep", 6: "Drop"}
    notice = page.locator("#found .notice")
    assert notice.count() == (trouble != "damaged")  # what is damaged is replaced
    asked = []
    page.on("dialog", lambda dialog: (asked.append(dialog.type), dialog.accept()))
    page.reload()
    assert asked == ["beforeunload"] * (trouble != "damaged")
    press(page, "j", "1")
    assert len(exported(page, tmp_path)) == N
    page.reload()
    assert len(asked) == (trouble != "damaged")  # exported: nothing would be lost


def test_hostile_texts_neither_run_nor_break_the_page(visit: Visit, tmp_path: Path) -> None:
    texts = [*HOSTILE[:-1], "</script><img src=x onerror='window.broken = true'>"]
    labels = made_labels(N, len(texts), texts=texts)
    classes = ["<i>a</i>", "b" * 300, "\u202egnol"]
    for column in ("label", "suggested_label"):
        labels[column] = labels[column].replace(dict(zip(CLASSES, classes, strict=True)))
    names = {"name": "</title><script>window.broken = true</script>", "model": "<img src=x>"}
    file = written(labels, tmp_path, classes=classes, **names)
    for width in (1280, 390):
        page = visit(file, width)
        for number in (0, 1, 2, 3):
            assert row(page, number).locator(".label-text").inner_text() == texts[number]
        long = row(page, 9)
        assert len(long.locator(".label-text").inner_text()) < 1600
        long.get_by_text("Show all 11,000 characters").click()
        assert long.locator(".label-text").inner_text() == texts[9]
        assert current(page) == 9
        assert fits(page)
        press(page, "j", "2")
        assert page.locator("img, main script, main i").count() == 0
        assert page.evaluate("window.broken") is None
        page.locator("[data-datamap]").hover()
        assert fits(page)


def test_scores_are_shown_on_demand(visit: Visit, review: Path) -> None:
    page = visit(review)
    button, scores = row(page, 5).locator(".scores"), row(page, 5).locator("dl")
    assert scores.is_hidden()
    button.click()
    assert button.get_attribute("aria-expanded") == "true"
    assert scores.locator("dt").all_inner_texts() == ["learned", "confidence", "variability"]
    assert scores.locator("dd").all_inner_texts() == ["–", "0.083", "0.045"]
    button.click()
    assert scores.is_hidden()


def point(page: Any, labels: pd.DataFrame, number: int) -> tuple[float, float]:
    """Where the label of a row is in the data map, by the positions of two known points."""
    rings = []
    for one in (0, SUSPECTS - 1):
        row(page, one).focus()
        ring = page.locator(".current-point")
        rings.append([float(ring.get_attribute(name)) for name in ("cx", "cy")])
    value = labels[["variability", "confidence"]].to_numpy()
    share = (value[number] - value[0]) / (value[SUSPECTS - 1] - value[0])
    chart = page.locator("[data-datamap]").bounding_box()
    x, y = np.array(rings[0]) + share * (np.array(rings[1]) - rings[0])
    return chart["x"] + x, chart["y"] + y


def test_a_point_of_the_data_map_leads_to_its_label(visit: Visit, review: Path) -> None:
    page = visit(review)
    labels = made_labels(N, SUSPECTS)
    assert page.locator(".dots.doubted").get_attribute("d").count("M") == SUSPECTS
    assert page.locator(".dots.others").get_attribute("d").count("M") == N - SUSPECTS
    target = point(page, labels, 40)
    page.mouse.move(*target)
    assert "text number 40" in page.locator("#tip").inner_text()
    page.mouse.click(*target)  # it is not among the suspects: all labels are listed then
    assert current(page) == 40
    assert page.locator("[data-show=all]").get_attribute("aria-pressed") == "true"
    assert row(page, 40).evaluate("r => r.getBoundingClientRect().top > 50")
    press(page, "3")
    assert page.locator(".dots.decided").get_attribute("d").count("M") == 1


def test_a_large_data_map_has_all_suspects_and_a_sample(visit: Visit, tmp_path: Path) -> None:
    page = visit(written(made_labels(5000, 700), tmp_path))
    assert page.locator(".dots.doubted").get_attribute("d").count("M") == 700
    assert page.locator(".dots.others").get_attribute("d").count("M") == 2300
    words = "All 700 suspects and 2,300 of the 4,300 other labels, evenly chosen."
    assert page.get_by_text(words).count() == 1


def test_without_both_its_columns_there_is_no_data_map(visit: Visit, tmp_path: Path) -> None:
    labels = made_labels().drop(columns=["variability"])
    page = visit(written(labels.assign(suspect=False), tmp_path, wrong=None, epochs=None))
    assert page.locator("[data-datamap]").count() == 0
    assert page.locator("h1").inner_text() == "No label is marked as a suspect"
    assert len(shown(page)) == PAGE
    press(page, "j", "1")
    assert page.locator("#progress").inner_text() == "1 label decided"


def test_20_000_labels_load_and_filter_in_little_processor_time(
    visit: Visit, tmp_path: Path
) -> None:
    n, classes = 20_000, [f"class {i}" for i in range(50)]
    chance = np.random.default_rng(0)
    texts = [f"text number {i} " + "words of a review that goes on " * 6 for i in range(n)]
    labels = made_labels(n, 500, texts=texts).assign(
        label=chance.choice(classes, n), suggested_label=chance.choice(classes, n)
    )
    file = written(labels, tmp_path, classes=classes)
    page = visit(tmp_path / "nowhere.html")
    metrics = page.context.new_cdp_session(page)
    metrics.send("Performance.enable")

    def spent() -> float:
        """Processor seconds of the page so far, after its next frame."""
        page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
        found = metrics.send("Performance.getMetrics")["metrics"]
        return {one["name"]: one["value"] for one in found}["ProcessTime"]

    page.goto(file.as_uri())
    times = [spent()]
    page.click("[data-show=all]")
    times.append(spent())
    page.fill("#search", "text #1999")
    times.append(spent())
    assert shown(page) == [1999, *range(19990, 20000)]
    assert page.locator("*").count() < 6000
    assert times[0] < 3
    assert np.diff(times).max() < 1
