"""Errors are data; the front ends spell them."""

import pickle
from typing import Any

import pytest

from memloc.errors import DataError, MemlocError, StoreError, nearest


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ({}, "it is wrong"),
        ({"setting": "data.task", "value": "a"}, "data.task 'a' is not possible: it is wrong"),
        ({"setting": "noise", "value": None}, "noise None is not possible: it is wrong"),
        ({"setting": "training.epochs", "remedy": "stop"}, "training.epochs: it is wrong; stop"),
    ],
)
def test_an_error_is_a_sentence_on_its_setting_value_and_remedy(
    parts: dict[str, Any], sentence: str
) -> None:
    assert str(MemlocError("it is wrong", **parts)) == sentence


def test_a_front_end_spells_the_setting() -> None:
    error = MemlocError("it is too small", setting="training.epochs", value=0)
    assert error.spelled(lambda path: f"--{path}") == (
        "--training.epochs 0 is not possible: it is too small"
    )


def test_a_setting_may_lie_deeper_than_whoever_checks_it_knows() -> None:
    error = MemlocError("it is too small", setting="epochs", value=0).below("training")
    assert error.setting == "training.epochs"


@pytest.mark.parametrize("kind", [MemlocError, DataError, StoreError])
def test_errors_reach_other_processes_whole(kind: type[MemlocError]) -> None:
    error = kind("wrong", setting="a.b", value=[1], remedy="stop")
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.problem, copy.setting, copy.value, copy.remedy) == ("wrong", "a.b", [1], "stop")
    assert type(copy) is kind
    assert pickle.loads(pickle.dumps(MemlocError("wrong"))).value is MemlocError("wrong").value


def test_long_values_are_cut() -> None:
    assert len(str(MemlocError("too long", setting="a", value="x" * 500))) < 120


def test_a_wrong_name_has_a_suggestion() -> None:
    assert nearest("swaping", ["swapping", "probing"]) == "did you mean 'swapping'?"
    assert nearest("x", ["swapping", "probing"]) == "choose one of: swapping, probing"
    assert nearest("x", []) is None
