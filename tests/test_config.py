"""Settings: what is possible, how errors name them, and how texts are read."""

from __future__ import annotations

import re
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memloc.config import (
    ControlRun,
    Data,
    Engine,
    Generalisation,
    Localisation,
    Model,
    Run,
    Settings,
    Training,
    Windows,
    merge,
    put,
    settings_in,
    write_value,
)
from memloc.errors import ConfigError
from memloc.techniques import find


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("1", (1,)),
        ("1-3,6", (1, 2, 3, 6)),
        ([1, 3], (1, 3)),
        (np.array([1, 2]), (1, 2)),
        (5, (5,)),
    ],
)
def test_sizes_are_numbers_ranges_or_lists(text: Any, sizes: tuple[int, ...] | None) -> None:
    assert Windows(sizes=text).sizes == sizes


@pytest.mark.parametrize("text", ["", "a", "1,", "1-2-3", "3-1", "0"])
def test_what_is_not_a_list_of_sizes_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^sizes .* is not possible: "):
        Windows(sizes=text)


@pytest.mark.parametrize("text", ["-1GB", "x MB"])
def test_what_is_not_a_number_of_bytes_is_refused(text: str) -> None:
    words = f"cache_memory {text!r} is not possible: it is not a size such as 500MB or 2GB"
    with pytest.raises(ConfigError, match=re.escape(words)):
        Engine(cache_memory=text)


@pytest.mark.parametrize("seeds", ["", "1,1", -1, 2**32, [1, 1.5], True])
def test_bad_seeds_are_refused(seeds: Any) -> None:
    with pytest.raises(ConfigError, match=r"^seeds"):
        Run(seeds=seeds)


@pytest.mark.parametrize("checkpoints", [1, 2.5, "often", True])
def test_checkpoints_are_a_number_or_every_epoch(checkpoints: Any) -> None:
    with pytest.raises(ConfigError, match=r"^checkpoints .*give a number of epochs from 2 up"):
        Run(checkpoints=checkpoints)


def test_there_are_not_more_checkpoints_than_epochs() -> None:
    assert Run(checkpoints=3, training={"epochs": 10}).checkpoint_epochs == (3, 7, 10)
    assert Run(checkpoints="every_epoch", training={"epochs": 2}).checkpoint_epochs == (1, 2)
    words = "checkpoints 9 is not possible: training has 3 epochs, and there is one checkpoint per"
    with pytest.raises(ConfigError, match=words):
        Run(checkpoints=9, training={"epochs": 3})


@pytest.mark.parametrize(
    ("group", "field", "value"),
    [
        (Data, "limit", 0),
        (Data, "noise", 1.5),
        (Data, "binarise", "perhaps"),
        (Training, "epochs", 0),
        (Training, "epochs", True),
        (Training, "epochs", "three"),
        (Windows, "sizes", {"a": 1}),
        (Training, "epochs", 10**30),
        (Training, "learning_rate", float("nan")),
        (Training, "dtype", "float8"),
        (Model, "name", 3),
        (Run, "device", "abacus"),
        (find("retraining").Config, "tail", "half"),
    ],
)
def test_a_bad_value_is_one_sentence_with_its_setting(
    group: type[Settings], field: str, value: Any
) -> None:
    with pytest.raises(ConfigError, match=f"^{field} .* is not possible: ") as caught:
        group(**{field: value})
    assert caught.value.setting == field
    assert "should be" not in str(caught.value)  # as pydantic words it
    assert caught.value.value is value or caught.value.value == value or value != value
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "setting"),
    [
        ({"training": {"epochs": 0}}, "training.epochs"),
        ({"training": {"epochz": 3}}, "training.epochz"),
        ({"generalisation": {"splits": 1}}, "generalisation.splits"),
        ({"generalisation": 3}, "generalisation"),
        ({"techniques": {"swapping": 3}}, "techniques.swapping"),
    ],
)
def test_an_error_says_where_the_setting_is(values: dict[str, Any], setting: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Run(**values)
    assert caught.value.setting == setting


def test_what_has_to_be_given_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^original: it has to be given"):
        Localisation(memorised="a", data={"file": "x.csv"})


def test_generalisation_is_a_switch_too() -> None:
    assert Run(generalisation=True).generalisation == Generalisation()
    assert Run(generalisation=False).generalisation is None


def test_every_setting_has_help_and_short_options_are_unique() -> None:
    for group in (Run, Localisation, ControlRun, Engine):
        flags = [one.option for one in settings_in(group) if one.option]
        assert len(flags) == len(set(flags))
        for setting in settings_in(group):
            assert setting.help.endswith("."), setting.path


@pytest.mark.parametrize(
    ("path", "text", "value"),
    [
        ("training.epochs", "3", 3),
        ("training.learning_rate", "1e-3", 1e-3),
        ("training.micro_batch_size", "none", None),
        ("data.text_column", "none", "none"),
        ("data.binarise", "yes", True),
        ("checkpoints", "every_epoch", "every_epoch"),
        ("checkpoints", "3", 3),
        ("seeds", "1-3", (1, 2, 3)),
        ("seeds", "[1, 2]", (1, 2)),
        ("explain", "no", False),
        ("generalisation", "true", Generalisation()),
        ("data.task", "[x].csv", "[x].csv"),
    ],
)
def test_texts_of_the_command_line_are_read_by_the_type_of_the_setting(
    path: str, text: str, value: Any
) -> None:
    tree: dict[str, Any] = {}
    put(tree, path, text)
    assert attrgetter(path)(Run(**tree)) == value


def test_lists_whose_parts_have_commas_are_written_as_json() -> None:
    assert write_value(("a", "b")) == "a,b"
    assert write_value(("a,b", "c")) == '["a,b", "c"]'
    assert write_value(()) == "[]"
    assert write_value(Path("x")) == "x"
    assert write_value(None) == "none"
    assert write_value(True) == "true"


def test_trees_of_settings_are_merged_key_by_key() -> None:
    one = {"training": {"epochs": 3, "warmup": 0.1}, "generalisation": {"splits": 3}}
    other = {"training": {"epochs": 5}, "generalisation": True}
    assert merge(one, other) == {
        "training": {"epochs": 5, "warmup": 0.1},
        "generalisation": {"splits": 3},
    }
    tree: dict[str, Any] = {"generalisation": True}
    put(tree, "generalisation.splits", 4)
    put(tree, "seeds", 1)
    assert tree == {"generalisation": {"splits": 4}, "seeds": 1}


@pytest.mark.parametrize("given", [{"task": "na\udcffme.csv"}, {"validation": Path("\udcff.csv")}])
def test_names_that_are_not_utf_8_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="bytes that are not UTF-8; rename that file or folder"):
        Data(**given)


def test_a_list_of_too_many_values_is_refused_before_it_is_made() -> None:
    with pytest.raises(ConfigError, match="more than 10,000 values"):
        Windows(sizes=range(10**9))
    assert Windows(sizes=range(1, 4)).sizes == (1, 2, 3)
