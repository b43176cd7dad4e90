"""The command on the page makes the same result: parsed by the real command line."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from annotated_types import Ge, Gt, Le, Lt
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from memloc.config import (
    DEFAULT_TECHNIQUES,
    Localisation,
    Run,
    Setting,
    Settings,
    is_list,
    kinds_of,
    put,
    settings_in,
)
from memloc.engine.complete import complete_localisation, complete_run
from memloc.report.page_data import command_of
from memloc.techniques import find
from tests.cli.test_options import parsed as parsed_words

TEXTS = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), min_size=1, max_size=12)


def parsed(command: str) -> Any:
    """The settings that the command line makes of it."""
    program, name, *words = shlex.split(command)
    assert program == "memloc"
    return parsed_words(name, *(words[:-2] if name == "localise" else words))  # without --out


def values_of(setting: Setting) -> SearchStrategy[Any]:
    """All that a field allows, by what it declares."""
    annotation, field = setting.field.annotation, setting.field
    kinds = kinds_of(annotation) - {type(None)}
    limits: dict[type, Any] = {
        type(one): getattr(one, type(one).__name__.lower())
        for one in field.metadata
        if isinstance(one, Ge | Gt | Le | Lt)
    }
    low, high = limits.get(Ge, limits.get(Gt, 1)), limits.get(Le, limits.get(Lt, 1000))
    choices = [
        choice
        for one in (annotation, *get_args(annotation))
        if get_origin(one) is Literal
        for choice in get_args(one)
    ]
    if is_list(annotation):
        numbers = st.lists(st.integers(1, 99), min_size=1, max_size=4, unique=True)
        found: SearchStrategy[Any] = numbers.map(tuple)
    elif choices:
        found = st.sampled_from(choices)
    elif bool in kinds:
        found = st.booleans()
    elif kinds <= {Path, str}:
        found = TEXTS.map(str.strip).filter(lambda text: text not in ("", "."))
        found = found.map(Path) if Path in kinds else found
    elif float in kinds:
        open_ends = {"exclude_min": Gt in limits, "exclude_max": Lt in limits}
        found = st.floats(low, high, **open_ends)
    else:
        found = st.integers(low, min(high, 10**6))
    return st.none() | found if type(None) in kinds_of(annotation) else found


@st.composite
def some_settings(draw: Any, group: type[Settings], path: str = "") -> dict[str, Any]:
    """A tree of some settings, chosen at random."""
    tree: dict[str, Any] = {}
    for setting in settings_in(group, path):
        if setting.path in ("techniques", "checkpoints", "generalisation"):
            continue
        required = setting.field.is_required()
        if required or draw(st.integers(0, 3)) == 0:
            put(tree, setting.path, draw(values_of(setting)))
    chosen = draw(st.lists(st.sampled_from(DEFAULT_TECHNIQUES), unique=True, min_size=1))
    if draw(st.booleans()):
        tree["techniques"] = chosen
    for name in tree.get("techniques", DEFAULT_TECHNIQUES[:1]):
        for setting in settings_in(find(name).Config, name):
            if draw(st.integers(0, 3)) == 0:
                put(tree, setting.path, draw(values_of(setting)))
    return tree


@given(some_settings(Run))
@hypothesis_settings(max_examples=100, deadline=None)
def test_the_command_of_a_run_gives_back_its_settings(tree: dict[str, Any]) -> None:
    run = complete_run(tree)
    assert parsed(command_of(run.model_dump(mode="json"), trained=True)) == run


@given(some_settings(Localisation))
@hypothesis_settings(max_examples=60, deadline=None)
def test_the_command_of_given_models_gives_back_its_settings(tree: dict[str, Any]) -> None:
    tree = {**tree, "techniques": tree.get("techniques", ["swapping"])}
    found = complete_localisation(tree)
    assert parsed(command_of(found.model_dump(mode="json"), trained=False)) == found


def test_a_plain_run_names_nothing_that_is_usual() -> None:
    command = command_of(complete_run({}).model_dump(mode="json"), trained=True)
    assert command == "memloc run --task questions --model minilm --seeds 1"


@pytest.mark.parametrize(
    ("folder", "words"),
    [
        ("runs/x", []),
        ("./runs/x", []),
        ("other/runs/x", ["--runs", "other/runs"]),
        (".", ["--runs", ".."]),
        ("..", ["--runs", "../.."]),
    ],
)
def test_the_command_writes_to_the_folder_that_holds_the_result(
    folder: str, words: list[str]
) -> None:
    settings = complete_run({}).model_dump(mode="json")
    command = shlex.split(command_of(settings, True, Path(folder)))
    assert command[command.index("--seeds") + 2 :] == words


@pytest.mark.parametrize("pretrained", [None, "minilm"])
def test_the_command_of_given_models_does_not_name_the_usual_techniques(
    pretrained: str | None,
) -> None:
    given = {"memorised": "m", "original": "o", "pretrained": pretrained, "data": {"file": "a.csv"}}
    found = complete_localisation(given)
    command = command_of(found.model_dump(mode="json"), trained=False)
    assert "--techniques" not in command
    assert parsed(command) == found


def test_switches_groups_and_folders_come_back() -> None:
    run = complete_run(
        {"generalisation": {"splits": 5}, "explain": False, "checkpoints": "every_epoch",
         "data": {"binarise": True}}
    )  # fmt: skip
    command = command_of(run.model_dump(mode="json"), True, Path("other/questions-minilm-1"))
    assert command.endswith("--runs other")
    for word in ("--generalisation.splits 5", "--no-explain", "--checkpoints every_epoch"):
        assert word in command
    assert parsed(command) == run
    on = complete_run({"generalisation": True})
    assert parsed(command_of(on.model_dump(mode="json"), True)) == on
