"""`memloc claims` and `memloc agreement` as a user meets them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from memloc.paper.claims import CLAIMS
from tests.conftest import assert_one_sentence
from tests.result_folders import write_run, write_twins

COMMANDS = ("claims", "agreement")


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Where the commands look if they are not told."""
    folder = tmp_path / "runs"
    for task in ("one", "two", "three", "four"):
        write_run(folder, task)
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_results_are_shown_from_the_default_folder_or_a_given_one(
    memloc, runs: Path, command: str
) -> None:
    code, out, err = memloc(command)
    assert (code, err) == (0, "")
    assert out.startswith(f"\nmemloc {command}  4 runs: 4 tasks, 1 model")
    assert max(map(len, out.splitlines())) <= 80
    assert memloc(command, runs)[1] == out
    assert "1 run: 1 task" in memloc(command, runs / "one-minilm")[1]


@pytest.mark.parametrize("command", COMMANDS)
def test_cautions_of_the_runs_are_shown(memloc, runs: Path, command: str) -> None:
    for place in range(7):
        write_run(
            runs, f"more-{place}", caveats=["Texts are cut."] if place < 2 else [f"No {place}."]
        )
    code, out, _ = memloc(command)
    words = " ".join(out.split())
    assert code == 0
    assert "Caution (2 runs, more-0 minilm, more-1 minilm): Texts are cut." in words
    assert "1 more caution: see --json." in words
    cautions = json.loads(memloc(command, "--json")[1])["cautions"]
    assert {"caution": "No 6.", "runs": ["more-6 minilm"]} in cautions
    if command == "claims":
        assert "- Texts are cut. (more-0 minilm, more-1 minilm)" in memloc(command, "--markdown")[1]


@pytest.mark.parametrize("command", COMMANDS)
def test_models_are_chosen_by_name(memloc, runs: Path, command: str) -> None:
    for task in ("one", "two", "three"):
        write_run(runs, task, "deep", 12)
    shown = " ".join(memloc(command)[1].split())
    assert "as they have another depth: deep (12 layers)." in shown
    shown = " ".join(memloc(command, "--models", "deep,minilm")[1].split())
    assert "7 runs: 4 tasks, 2 models" in shown
    assert "another depth" not in shown
    assert "3 runs: 3 tasks, 1 model" in memloc(command, "--models", "deep")[1]
    words = "no run has this model; there are deep, minilm"
    assert_one_sentence(*memloc(command, "--models", "other"), words)


def test_claims_as_json_and_as_markdown(memloc, runs: Path) -> None:
    code, out, _ = memloc("claims", "--json")
    assert code == 0
    data = json.loads(out)
    assert len(data["claims"]) == len(CLAIMS)
    assert data["folder"] == "runs"
    code, out, _ = memloc("claims", "--markdown")
    assert code == 0
    assert out.startswith("# The paper's claims, checked\n")
    words = "--json and --markdown exclude each other; give one of them"
    assert_one_sentence(*memloc("claims", "--markdown", "--json"), words)


@pytest.mark.parametrize(
    "command", [["claims"], ["agreement"], ["figures", "--only", "fig6", "--json"]]
)
def test_centres_of_gravity_may_be_taken_from_mean_weights(
    memloc, runs: Path, command: list[str]
) -> None:
    words = "M-CoG is that of the layer weights averaged over seeds."
    assert words in " ".join(memloc(*command, "--mean-profile")[1].split())
    assert words not in " ".join(memloc(*command)[1].split())


@pytest.mark.parametrize("command", COMMANDS)
def test_runs_of_different_settings_are_grouped_in_words(memloc, runs: Path, command: str) -> None:
    write_run(runs, "five", settings={"data.noise": 0.4})
    words = " ".join(memloc(command)[1].split())
    assert "4 runs: 4 tasks" in words
    assert "The runs have different settings; group 1 of 2 is used (4 runs)" in words
    assert "Group 2 (1 run): data.noise is 0.4 instead of 0.15." in words
    assert "1 run: 1 task" in memloc(command, "--group", 2)[1]
    missing = "--group 3 is not possible: it does not exist; there are groups 1 to 2"
    assert_one_sentence(*memloc(command, "--group", 3), missing)


def test_neither_command_loads_what_only_training_needs(runs: Path) -> None:
    program = (
        "import sys\n"
        "from memloc import cli\n"
        f"for command in {COMMANDS}:\n"
        f"    cli.app([command, {str(runs)!r}, '--json'], standalone_mode=False)\n"
        "loaded = {'torch', 'transformers', 'sklearn', 'datasets'} & set(sys.modules)\n"
        "sys.exit(f'loaded: {sorted(loaded)}' if loaded else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_tasks_with_two_classes_are_a_section_of_agreement_if_there_are_some(
    memloc, runs: Path
) -> None:
    title = "Is it the same with two classes? (App. C)"
    without = memloc("agreement")[1]
    assert title not in without
    assert "binarised" not in json.loads(memloc("agreement", "--json")[1])
    for task in ("six", "seven"):
        write_twins(runs, task, multi={"seeds": (1, 2)}, binary={"seeds": (2, 3)})
    code, out, _ = memloc("agreement")
    assert code == 0
    assert out.index(title) > out.index("Is it deeper where it generalises better?")
    assert max(map(len, out.splitlines())) <= 80
    data = json.loads(memloc("agreement", "--json")[1])["binarised"]
    assert {row["task"] for row in data["pairs"]} == {"six", "seven"}
    # The binarised runs themselves: the same comparison.
    other = json.loads(memloc("agreement", "--json", "--group", 2)[1])
    assert other["binarised"] == data
    assert len(other["runs"]) == 2
