"""Every command of the pages exists, with every option, whether it is run or not."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from memloc import techniques
from memloc.cli import UsageError, app, experiments
from memloc.cli.options import Options
from memloc.config import Settings
from memloc.engine.sweep_config import parse_sweep
from memloc.errors import MemlocError
from tests.docs.pages import LANGUAGES, PAGES, ROOT, Block, Command, blocks_of, commands_of

BLOCKS = [block for page in PAGES for block in blocks_of(page)]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


class Spread(techniques.Technique):
    """The technique of docs/your-technique.md."""

    name = "spread"

    class Config(Settings):
        """Its settings."""

        power: float = 1.0


@pytest.fixture(autouse=True)
def _spread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(techniques, "_registered", dict(techniques._registered))
    techniques.register(Spread)


ONE_OF_EACH = "models: [minilm]\ntasks: [questions]\n"


def check_command(command: Command) -> None:
    """Raises if there is no such command, or not with these options."""
    program, *words = command.words
    if program == "memloc":
        found: Any = get_command(app)
        name = program
        while hasattr(found, "commands"):
            name = words.pop(0)
            assert name in found.commands, f"there is no command {name!r}"
            found = found.commands[name]
        context = found.make_context(name, words)
        settings = getattr(experiments, name.upper(), None)
        if isinstance(settings, Options):  # which are read later
            settings.read(context.params, context.args)
    elif program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
        assert set(words) <= set(targets)
    elif program == "pip":
        assert words[0] == "install"
        named = re.findall(r"(?:memloc|\.)\[([\w,]+)\]", " ".join(words[1:]))
        assert set(",".join(named).split(",")) - {""} <= set(EXTRAS)
    elif program in ("python", "python3"):
        assert words[0] == "-m"
        assert importlib.util.find_spec(words[1]), f"there is no module {words[1]}"
    else:
        assert program in ("cd", "git"), f"{program} is no program that the pages may use"


def test_there_are_pages_with_blocks() -> None:
    assert {"README.md", "docs/start.md", "docs/techniques.md"} <= {b.page for b in BLOCKS}


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_names_its_language(block: Block) -> None:
    assert block.language in LANGUAGES


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language == "console"], ids=str)
def test_all_commands_and_options_exist(block: Block) -> None:
    commands = commands_of(block)
    assert commands
    for command in commands:
        check_command(command)


@pytest.mark.parametrize(
    "line",
    [
        "memloc runn",
        "memloc run --modle minilm",
        "memloc run --limit many",
        "memloc run --unit neuron",
        "memloc store lst",
        "memloc localise --memorised DIR",
        "make everything",
        "pip install 'memloc[slrum]'",
        "python -m benchmarks.nothing",
        "rm -rf runs",
    ],
)
def test_a_command_that_does_not_exist_is_noticed(line: str) -> None:
    (command,) = commands_of(Block("page", 1, "console", line, None))
    with pytest.raises((AssertionError, UsageError, MemlocError)):
        check_command(command)


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language == "yaml"], ids=str)
def test_experiments_make_sense(block: Block, tmp_path: Path) -> None:
    text = block.text
    if not re.search(r"^models:", text, flags=re.MULTILINE):
        text = ONE_OF_EACH + text
    for file in re.findall(r"\w+\.csv", text):
        (tmp_path / file).write_text("text,stars\ngood,1\n")
    assert parse_sweep(text, "page.yaml", tmp_path).cells


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language == "toml"], ids=str)
def test_toml_can_be_read(block: Block) -> None:
    assert tomllib.loads(block.text)
