"""Errors are data; the front ends spell them."""

import pickle

import pytest

from memloc.errors import DataError, MemlocError, StoreError, nearest


def test_an_error_may_be_just_a_sentence() -> None:
    assert str(MemlocError("the disk is full")) == "the disk is full"


def test_an_error_about_a_setting_names_it_and_its_value() -> None:
    error = MemlocError("there is no such file", setting="data.task", value="a.csv")
    assert str(error) == "data.task 'a.csv' is not possible: there is no such file"


def test_the_remedy_comes_last() -> None:
    error = MemlocError("it is too small", setting="training.epochs", remedy="use a larger number")
    assert str(error) == "training.epochs: it is too small; use a larger number"


def test_none_is_a_value() -> None:
    error = MemlocError("it has to be a number", setting="noise", value=None)
    assert str(error) == "noise None is not possible: it has to be a number"


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
