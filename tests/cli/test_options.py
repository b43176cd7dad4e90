"""Options are made from the settings: short ones, dotted ones, and files of settings."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from memloc.cli import experiments
from memloc.cli.options import Options, spell
from memloc.config import (
    DEFAULT_TECHNIQUES,
    ControlRun,
    Engine,
    Execution,
    Localisation,
    Run,
    settings_in,
)
from memloc.engine.complete import complete_control, complete_run, usual_techniques
from tests.conftest import assert_one_sentence


@cache
def parser(options: str) -> typer.Typer:
    app = typer.Typer()
    found: Options = getattr(experiments, options)
    found.add(app, "parse", lambda settings, engine: settings)
    return app


def parsed(command: str, *words: str) -> Any:
    """The settings that the command line makes of it."""
    return parser(command.upper())(list(words), standalone_mode=False)


def test_without_options_everything_has_its_default() -> None:
    assert parsed("run") == complete_run({})
    assert parsed("control") == complete_control({})


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (["--epochs", "3"], {"training": {"epochs": 3}}),
        (["--training.epochs", "3"], {"training": {"epochs": 3}}),
        (["--training.warmup=0.2"], {"training": {"warmup": 0.2}}),
        (["--training.batch-size", "4"], {"training": {"batch_size": 4}}),
        (["--techniques", "swapping,probing"], {"techniques": ["swapping", "probing"]}),
        (["--retraining.epochs", "3"], {"retraining": {"epochs": 3}}),
        (["--gradients.per_example"], {"gradients": {"per_example": True}}),
        (
            ["--gradients.norm", "L2", "--seeds", "1-3"],
            {"gradients": {"norm": "L2"}, "seeds": "1-3"},
        ),
        (["--gradients.subtract_clean", "no"], {"gradients": {"subtract_clean": False}}),
        (["--generalisation"], {"generalisation": True}),
        (["--generalisation.splits", "4"], {"generalisation": {"splits": 4}}),
        (["--no-explain"], {"explain": False}),
        (["--class_probes.epochs", "3"], {"class_probes": {"epochs": 3}}),
    ],
)
def test_options_set_what_they_are_called_after(words: list[str], given: dict[str, Any]) -> None:
    assert parsed("run", *words) == complete_run(given)


@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_a_file_of_settings_comes_first_and_options_win(suffix: str, tmp_path: Path) -> None:
    run = complete_run(
        {"training": {"epochs": 4, "clip_norm": 2.0}, "techniques": {"probing": {"hidden": 9}}}
    )
    file = tmp_path / f"settings.{suffix}"
    file.write_text(json.dumps(run.model_dump(mode="json")))
    assert parsed("run", "--config", str(file)) == run
    changed = parsed(
        "run", "--config", str(file), "--epochs", "7", "--techniques", "random,probing"
    )
    assert (changed.training.epochs, changed.training.clip_norm) == (7, 2.0)
    assert list(changed.techniques) == ["random", "probing"]
    assert changed.techniques["probing"]["hidden"] == 9


def test_the_control_benchmark_is_repeated_by_its_settings(tmp_path: Path) -> None:
    control = complete_control(
        {"model": {"name": "minilm,bert"}, "training": {"warmup": 0.3}, "retraining": {"epochs": 2}}
    )
    file = tmp_path / "settings.json"
    file.write_text(json.dumps({"control": control.model_dump(mode="json")}))
    assert parsed("control", "--config", str(file)) == control
    assert parsed("control", "--config", str(file), "--techniques", "swapping").every_technique is (
        False
    )
    assert {one.training.warmup for one in control.models} == {0.3}


BAD = {
    "no such setting": (["--training.epoch", "3"], "there is no option --training.epoch; did you"),
    "no such group": (["--attention.power", "2"], "`memloc settings` and `memloc techniques NAME`"),
    "no value": (["--training.epochs"], "--epochs: it needs a value"),
    "dotted": (
        ["--training.warmup", "2"],
        "--training.warmup '2' is not possible: it has to be less than 1",
    ),
    "not chosen": (
        ["--techniques", "swapping", "--retraining.epochs", "3"],
        "--retraining.epochs: retraining is not among the techniques; add it to them",
    ),
    "no file": (["--config", "none.yaml"], "there is no file 'none.yaml'"),
    "no option": (["--epoch", "3"], "there is no option --epoch; did you mean '--epochs'?"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_options_are_one_sentence_in_the_words_of_the_command_line(case: str, memloc) -> None:
    words, sentence = BAD[case]
    assert_one_sentence(*memloc("run", *words), sentence)


def test_every_setting_is_spelled_as_an_option() -> None:
    assert spell("training.epochs") == "--epochs"
    assert spell("training.warmup") == "--training.warmup"
    assert spell("data.file") == "--data"
    for group in (Run, Localisation, ControlRun):
        for setting in settings_in(group):
            assert spell(setting.path).startswith("--")


@pytest.mark.parametrize("command", ["run", "localise", "control"])
def test_a_help_page_fits_on_two_screens(command: str, memloc) -> None:
    code, out, _ = memloc(command, "--help")
    assert code == 0
    lines = out.splitlines()
    assert len(lines) <= 80
    assert max(map(len, lines)) <= 80
    assert sum(line.strip("│* ").startswith("--") for line in lines) <= 25


def test_settings_are_listed(memloc) -> None:
    _, out, _ = memloc("settings")
    assert "--training.warmup NUMBER  (default 0.1)" in out
    found = json.loads(memloc("settings", "localise", "--json")[1])
    assert "memorised" in {row["setting"] for row in found if row["required"]}
    _, out, _ = memloc("techniques", "retraining")
    assert "--retraining.epochs INTEGER  (default 5)" in out
    assert_one_sentence(*memloc("techniques", "retaining"), "did you mean 'retraining'?")


@pytest.mark.parametrize("options", [experiments.RUN, experiments.LOCALISE, experiments.CONTROL])
def test_every_experiment_can_say_how_often_trainings_are_saved(options: Options) -> None:
    assert options.settings["engine.save_every"].option == "--save-every"
    assert Engine(save_every=2).where("cpu")["save_every"] == 120
    assert Execution(save_every=2).where("cpu")["save_every"] == 120


def test_the_help_names_the_usual_techniques_that_need_the_pretrained_model() -> None:
    (help_of_it,) = (one.help for one in settings_in(Localisation) if one.path == "pretrained")
    alone = usual_techniques(None)
    for name in DEFAULT_TECHNIQUES:
        assert (name in help_of_it) == (name not in alone)
