"""Experiments that come with memloc, as files."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from memloc.engine.complete import read_text
from memloc.engine.sweep_config import Sweep, parse_sweep
from memloc.errors import ConfigError, nearest


def preset_names() -> list[str]:
    """Experiments that come with memloc."""
    folder = files(__name__)
    return sorted(f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name.endswith("yaml"))


def preset_text(name: str) -> str:
    """The file of a preset.

    Raises:
        ConfigError: If there is none.
    """
    if name not in preset_names():
        raise ConfigError(
            f"there is neither a preset nor a file {name!r}", remedy=nearest(name, preset_names())
        )
    return (files(__name__) / f"{name}.yaml").read_text(encoding="utf-8")


def read_experiment(name: str, data_dir: Path | None = None) -> Sweep:
    """An experiment by the name of a preset, or from a file.

    Local copies of the paper's tasks are in `data_dir`, if given, whatever the file says.

    Raises:
        ConfigError: If there is none, or it makes no sense.
    """
    path = Path(name)
    if name in preset_names():
        return parse_sweep(preset_text(name), name, Path.cwd(), name, data_dir)
    if not path.is_file() and not path.suffix and len(path.parts) == 1:
        preset_text(name)
    return parse_sweep(read_text(path), path.name, path.resolve().parent, path.stem, data_dir)
