"""How the values of options are read, and that messages name options that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pytest
import typer.main

import memloc
from memloc.cli import app
from memloc.cli.options import (
    parse_bytes,
    parse_names,
    parse_seeds,
    parse_sizes,
    techniques_from,
)
from memloc.config import (
    ConfigError,
    DataConfig,
    GradientsConfig,
    ModelConfig,
    ProbingConfig,
    RetrainingConfig,
    RunConfig,
    TechniquesConfig,
    TrainingConfig,
)
from memloc.errors import MemlocError
from tests.conftest import assert_one_sentence

# --- values ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (None, None),
        ("1", (1,)),
        ("1-3,6", (1, 2, 3, 6)),
        ("6,1-3", (1, 2, 3, 6)),
        ("1-3,2-4,4", (1, 2, 3, 4)),
        (" 2 , 4-4 ", (2, 4)),
        ("12", (12,)),
    ],
)
def test_sizes_are_read_as_numbers_and_ranges(
    text: str | None, sizes: tuple[int, ...] | None
) -> None:
    assert parse_sizes(text) == sizes


@pytest.mark.parametrize(
    "text", ["", "a", "1,", ",1", "1-", "-1", "1-2-3", "1.5", "1;2", "²", "1" * 9, "1–3"]
)
def test_what_is_not_a_list_of_sizes_is_refused(text: str) -> None:
    with pytest.raises(MemlocError, match=re.escape(f"--window-sizes {text!r} is not a list of")):
        parse_sizes(text)


@pytest.mark.parametrize("text", ["0", "0-2", "3-1", "1,5-4"])
def test_sizes_below_1_and_ranges_downwards_are_refused(text: str) -> None:
    with pytest.raises(MemlocError, match=f"--window-sizes '{text}' is out of range"):
        parse_sizes(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1KB", 1024),
        ("500MB", 500 * 1024**2),
        ("2GB", 2 * 1024**3),
        ("1TB", 1024**4),
        ("0.5gb", 2**29),
        (" 3 Mb ", 3 * 2**20),
        ("0GB", 0),
    ],
)
def test_bytes_are_read_with_their_unit(text: str, size: int) -> None:
    found = parse_bytes(text)
    assert found == size
    assert isinstance(found, int)


@pytest.mark.parametrize(
    "text",
    ["", "GB", "500", "1", "-1GB", "2GiB", "2B", "x MB", "nanGB", "infGB", "1e30TB", "1,5GB"],
)
def test_what_is_not_a_number_of_bytes_is_refused(text: str) -> None:
    with pytest.raises(MemlocError, match=re.escape(f"--cache-memory {text!r} is not a size such")):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("1",), "--checkpoints 1 is not possible: give a number of epochs from 2 up, or every_ep"),
        (("-3",), "--checkpoints -3 is not possible"),
        (("2.5",), "--checkpoints 2.5 is not possible"),
        (("often",), "--checkpoints often is not possible"),
        (("",), "--checkpoints '' is not possible"),
        (("9", "--epochs", "3"), "--checkpoints 9 is not possible: training has 3 epochs, and"),
    ],
)
def test_checkpoints_that_make_no_sense_are_one_sentence(memloc, given, words: str) -> None:
    assert_one_sentence(*memloc("run", "--checkpoints", *given), words)


def test_seeds_and_names_are_read_as_lists() -> None:
    assert parse_seeds("3,1, 2") == (3, 1, 2)
    assert parse_names(" swapping,gradients , swapping,") == ("swapping", "gradients")


@pytest.mark.parametrize("text", ["", "1,", "a", "1.5", "1,1", "-1", str(2**32)])
def test_bad_seeds_are_refused(text: str) -> None:
    with pytest.raises(MemlocError, match=re.escape(f"--seeds {text!r} ")):
        parse_seeds(text)


@pytest.mark.parametrize("text", ["", " , ,"])
def test_no_technique_at_all_is_refused(text: str) -> None:
    with pytest.raises(MemlocError, match="--methods is empty"):
        parse_names(text)


# --- settings of the techniques ----------------------------------------------------------------


def options_of(*command: str) -> dict[str, click.Parameter]:
    """The parameters of a command by every flag that sets them."""
    found: Any = typer.main.get_command(app)
    for name in command:
        found = found.commands[name]
    return {
        flag: parameter
        for parameter in found.params
        for flag in (*parameter.opts, *parameter.secondary_opts)
    }


STORE = ("list", "verify", "gc", "export", "import")


def defaults(command: str) -> dict[str, Any]:
    return {str(p.name): p.default for p in options_of(command).values()}


@pytest.mark.parametrize("command", ["run", "localise"])
def test_without_options_the_techniques_have_their_usual_settings(command: str) -> None:
    assert techniques_from(defaults(command)) == TechniquesConfig()


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("window_sizes", "1-2", TechniquesConfig(window_sizes=(1, 2))),
        ("unit", "mlp", TechniquesConfig(unit="mlp")),
        ("retrain_epochs", 7, TechniquesConfig(retraining=RetrainingConfig(epochs=7))),
        ("retrain_tail", "none", TechniquesConfig(retraining=RetrainingConfig(tail="none"))),
        (
            "frozen_dropout",
            True,
            TechniquesConfig(retraining=RetrainingConfig(frozen_dropout=True)),
        ),
        (
            "gradient_objective",
            "gold_logit",
            TechniquesConfig(gradients=GradientsConfig(objective="gold_logit")),
        ),
        ("gradient_norm", "L2", TechniquesConfig(gradients=GradientsConfig(norm="L2"))),
        (
            "keep_clean",
            True,
            TechniquesConfig(gradients=GradientsConfig(subtract_clean=False)),
        ),
        (
            "undivided",
            True,
            TechniquesConfig(gradients=GradientsConfig(divide_by_frozen=False)),
        ),
        ("per_example", True, TechniquesConfig(gradients=GradientsConfig(per_example=True))),
        ("probe_seeds", 2, TechniquesConfig(probing=ProbingConfig(seeds=2))),
        ("probe_epochs", 9, TechniquesConfig(probing=ProbingConfig(epochs=9))),
    ],
)
def test_every_option_sets_what_it_is_called_after(
    option: str, value: Any, expected: TechniquesConfig
) -> None:
    values = defaults("run")
    assert option in values
    assert techniques_from({**values, option: value}) == expected
    assert expected != TechniquesConfig()


@pytest.mark.parametrize(
    ("option", "value", "flag"),
    [
        ("window_sizes", "none", "--window-sizes"),
        ("retrain_epochs", 0, "--retrain-epochs"),
        ("retrain_tail", "half", "--retrain-tail"),
        ("gradient_norm", "L3", "--gradient-norm"),
        ("gradient_objective", "accuracy", "--gradient-objective"),
        ("probe_seeds", 0, "--probe-seeds"),
        ("probe_epochs", -1, "--probe-epochs"),
    ],
)
def test_a_bad_setting_is_one_sentence_with_its_option_and_value(
    option: str, value: Any, flag: str
) -> None:
    with pytest.raises(MemlocError) as error:
        techniques_from({**defaults("run"), option: value})
    assert str(error.value).startswith(f"{flag} ")
    assert str(value) in str(error.value)
    assert "\n" not in str(error.value)
    assert flag in options_of("run")


# --- options in messages -----------------------------------------------------------------------


FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


@pytest.mark.parametrize(
    ("config", "field", "value"),
    [
        (DataConfig, "limit", 0),
        (DataConfig, "noise", 1.5),
        (DataConfig, "seed", -1),
        (DataConfig, "validation", 3),
        (DataConfig, "data_dir", 3),
        (DataConfig, "text_column", 3),
        (DataConfig, "binarise", "perhaps"),
        (TrainingConfig, "epochs", 0),
        (TrainingConfig, "learning_rate", float("nan")),
        (TrainingConfig, "batch_size", 0),
        (TrainingConfig, "micro_batch_size", 0),
        (TrainingConfig, "max_tokens", 1),
        (TrainingConfig, "dtype", "float8"),
        (ModelConfig, "blocks", 3),
        (ModelConfig, "trust_remote_code", "perhaps"),
        (RetrainingConfig, "epochs", 0),
        (RetrainingConfig, "tail", "half"),
        (RetrainingConfig, "frozen_dropout", "perhaps"),
        (GradientsConfig, "objective", "accuracy"),
        (GradientsConfig, "norm", "L3"),
        (GradientsConfig, "subtract_clean", "perhaps"),
        (GradientsConfig, "divide_by_frozen", "perhaps"),
        (GradientsConfig, "per_example", "perhaps"),
        (ProbingConfig, "seeds", 0),
        (ProbingConfig, "epochs", 0),
        (TechniquesConfig, "window_sizes", ()),
        (TechniquesConfig, "unit", "head"),
        (RunConfig, "seeds", ()),
        (RunConfig, "device", "abacus"),
        (ModelConfig, "name", 3),
        (ModelConfig, "pair_format", "both"),
    ],
)
def test_a_bad_value_is_reported_under_an_option_that_exists(
    config: Any, field: str, value: Any
) -> None:
    with pytest.raises(ConfigError, match=" is not possible: ") as error:
        config.make(**{field: value})
    (flag,) = FLAG.findall(str(error.value))
    assert flag in options_of("run")


def test_retraining_and_probing_do_not_speak_of_the_epochs_of_fine_tuning() -> None:
    for config, flag in (
        (TrainingConfig, "--epochs"),
        (RetrainingConfig, "--retrain-epochs"),
        (ProbingConfig, "--probe-epochs"),
    ):
        with pytest.raises(ConfigError, match=f"^{flag} 0 is not possible: .*greater than"):
            config.make(epochs=0)


def test_every_option_that_the_source_speaks_of_exists() -> None:
    known = {
        *("--help", "--version"),
        *options_of("run"),
        *options_of("localise"),
        *options_of("models", "check"),
        *options_of("claims"),
        *options_of("agreement"),
        *options_of("control"),
        *options_of("report"),
        *options_of("figures"),
        *options_of("sweep"),
        *options_of("status"),
        *(flag for name in STORE for flag in options_of("store", name)),
        "--head",  # of `ray start`
    }
    spoken: dict[str, str] = {}
    for path in sorted(Path(memloc.__file__).parent.rglob("*.py")):
        text = re.sub("pip install .*", "", path.read_text(encoding="utf-8"))
        for flag in FLAG.findall(text):
            spoken.setdefault(flag, path.name)
    assert len(spoken) > 30
    assert {flag: file for flag, file in spoken.items() if flag not in known} == {}


def test_the_help_page_lists_every_option(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "dumb")
    with pytest.raises(SystemExit) as stop:
        app(["run", "--help"])
    assert not stop.value.code
    page = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    for flag in ("--retrain-epochs", "--probe-seeds", "--gradient-norm", "--window-sizes"):
        assert flag in page
    assert set(FLAG.findall(page)) >= set(options_of("run"))
