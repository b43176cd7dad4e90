"""docs/reproduction.md: made of committed tables, by one command."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
from reproduction.__main__ import FIGURES, main, write_page
from reproduction.page import TEMPLATE, fill
from reproduction.tables import DOCS, TABLES, collect, spread

from memloc.paper.claims import check_claims
from memloc.paper.measures import gather
from memloc.results.folders import ResultsError
from memloc.results.grid import Grid, read_grid
from tests.report.figure_folders import write_control, write_full_run

MEGABYTES = 3


def copy_figures(arguments: list[str], standalone_mode: bool) -> None:
    """Instead of drawing them, which takes a minute."""
    figures = Path(arguments[arguments.index("--out") + 1])
    shutil.copytree(TABLES / "figures", figures)
    (figures / "captions.md").touch()


@pytest.mark.parametrize("drawn", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_page_and_its_figures_are_what_the_tables_give(
    drawn: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not drawn:
        monkeypatch.setattr("memloc.cli.app", copy_figures)
    monkeypatch.chdir(tmp_path)
    assert write_page(tmp_path) == (DOCS / "reproduction.md").read_text(encoding="utf-8")
    made = {path.name for path in (tmp_path / "reproduction" / "figures").glob("*.png")}
    assert made == {path.name for path in (TABLES / "figures").glob("*.png")}
    assert {name.split("-")[0].removesuffix(".png") for name in made} == set(FIGURES)


def test_the_page_shows_every_figure_that_is_made_and_no_other() -> None:
    page = (DOCS / "reproduction.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"reproduction/figures/([\w.-]+\.png)", page))
    assert shown == {path.name for path in (TABLES / "figures").glob("*.png")}


def test_the_tables_are_small_and_hold_no_texts() -> None:
    paths = [path for path in TABLES.iterdir() if path.suffix in (".parquet", ".json")]
    assert sum(path.stat().st_size for path in paths) < MEGABYTES * 2**20
    for path in paths:
        if path.suffix == ".parquet":
            assert not {"text", "text_pair", "word"} & set(pd.read_parquet(path).columns)
        else:
            assert '"text"' not in path.read_text(encoding="utf-8")


def cells(heading: str, task: str) -> list[str]:
    """The row of a task in the first table that stands under a heading and has one."""
    page = (DOCS / "reproduction.md").read_text(encoding="utf-8")
    row = re.search(rf"^\| {task} \|.*$", page[page.index(heading) :], re.MULTILINE)
    assert row is not None
    return [cell.strip() for cell in row[0].strip("|").split("|")][1:]


def folder_of(task: str, model: str, two_classes: bool = False) -> str:
    [found] = [
        name
        for name, run in json.loads((TABLES / "runs.json").read_text(encoding="utf-8")).items()
        if (run["summary"].get("task"), run["summary"].get("model")) == (task, model)
        and bool(run["settings"]["data"]["binarise"]) == two_classes
    ]
    return found


def test_numbers_of_the_page_are_those_of_the_raw_tables() -> None:
    """Computed anew, without what makes the page."""
    events = pd.read_parquet(TABLES / "events.parquet").set_index(["run", "event"])["layer"]
    layers = pd.read_parquet(TABLES / "layers.parquet")

    def crossing(*run: object) -> float:
        return float(events[folder_of(*run), "crossing"].mean())  # type: ignore[arg-type]

    def m_cog(*run: object) -> float:
        mine = layers[(layers["run"] == folder_of(*run)) & (layers["technique"] == "swapping")]  # type: ignore[arg-type]
        by_seed = mine.assign(moment=mine["layer"] * mine["weight"]).groupby("seed")
        return float((by_seed["moment"].sum() / by_seed["weight"].sum()).mean())

    for task in ("cola", "emotion", "reuters"):
        row = cells("### How examples are moved", task)
        found = [crossing(task, model) for model in ("minilm", "gte-small", "stories15m")]
        assert [float(row[place]) for place in (0, 2, 4)] == found
        depth = cells("### Centres of gravity", task)[4]
        assert float(depth) == pytest.approx((m_cog(task, "minilm") - 0.5) / 6, abs=0.0051)
    for task in ("emotion", "reuters"):
        row = cells("### Tasks of many classes, cut to two", task)
        assert float(row[1]) == pytest.approx(m_cog(task, "minilm", True), abs=0.051)
        assert float(row[3]) == crossing(task, "minilm", True)


def test_probes_that_may_not_have_learned_anything_are_no_evidence() -> None:
    layers = pd.read_parquet(TABLES / "layers.parquet")
    events = pd.read_parquet(TABLES / "events.parquet")
    assert layers.loc[layers["technique"] == "probing", "weight"].isna().all()
    assert events.loc[events["event"].isin(["mem_gen", "f1_90"]), "layer"].isna().all()
    assert "probing" not in set(pd.read_parquet(TABLES / "accuracy.parquet")["technique"])
    page = (DOCS / "reproduction.md").read_text(encoding="utf-8")
    probing = re.findall(r"^\| (holds|does not hold) \|[^|]*prob", page, re.MULTILINE)
    assert not probing, "a claim on probing is decided by probes that count as missing"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    for task in ("wic", "rte", "mrpc", "cola"):
        write_full_run(folder, task, generalisation=task != "cola")
        write_full_run(folder, task, "deep", layers=4, techniques=("swapping", "probing"))
    write_control(folder)
    return folder


def same(one: Grid, other: Grid) -> None:
    for name in ("runs", "seed_weights", "windows", "events", "positions", "examples"):
        pd.testing.assert_frame_equal(getattr(one, name), getattr(other, name))
    assert [f.measured for f in check_claims(gather(one))] == [
        f.measured for f in check_claims(gather(other))
    ]


def test_results_come_back_out_of_the_tables_as_they_were(runs: Path, tmp_path: Path) -> None:
    collect([runs], tmp_path / "tables")
    back = spread(tmp_path / "tables", tmp_path / "back")
    same(read_grid(runs), read_grid(back))


def test_a_folder_without_results_is_one_sentence_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (TABLES / "runs.json").read_bytes()
    for folder in (tmp_path, tmp_path / "absent"):
        monkeypatch.setattr("sys.argv", ["reproduction", "collect", str(folder)])
        with pytest.raises(SystemExit) as stopped:
            main()
        assert stopped.value.code == 2
        assert re.fullmatch(r"reproduction: there is no sweep .*\n", capsys.readouterr().err)
    with pytest.raises(ResultsError, match="there are no results in"):
        collect([tmp_path], tmp_path / "tables")
    assert not (tmp_path / "tables").exists()
    assert (TABLES / "runs.json").read_bytes() == before


def test_places_of_the_machine_are_not_collected(runs: Path, tmp_path: Path) -> None:
    settings = next(runs.glob("wic-minilm*/settings.json"))
    text = settings.read_text(encoding="utf-8")
    settings.write_text(text.replace('"minilm"', '"/home/me/models/minilm"'), encoding="utf-8")
    assert "/home/me" in settings.read_text(encoding="utf-8")
    collect([runs], tmp_path / "tables")
    assert "/home/me" not in (tmp_path / "tables" / "runs.json").read_text(encoding="utf-8")


def test_a_number_that_nothing_makes_is_noticed_and_one_that_nobody_wants_too() -> None:
    assert fill("a {{ x y }} b", {"x y": "1"}) == "a 1 b"
    with pytest.raises(ValueError, match=r"wants.*'x'"):
        fill("{{ x }}", {})
    with pytest.raises(ValueError, match=r"no place.*'y'"):
        fill("{{ x }}", {"x": "1", "y": "2"})


def test_the_template_has_no_numbers_of_its_own_in_results() -> None:
    """Decimals in the prose would not change with the tables; quoted from the paper is another."""
    results = TEMPLATE.read_text(encoding="utf-8").split("## What came out", 1)[1]
    ours = [line for line in results.splitlines() if "paper" not in line.lower()]
    assert not re.findall(r"(?<![\w.`])0?\.\d+", "\n".join(ours))
