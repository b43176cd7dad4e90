"""What was found: tables, a summary, plots and the report, of any experiment."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from memloc.api.arguments import as_arguments, path_of
from memloc.errors import MemlocError, StoreError, suggest
from memloc.results.folders import (
    ResultsError,
    RunFolder,
    check_folder,
    damaged,
    look_through,
    write_results,
)
from memloc.tables import ARTEFACTS, EXAMPLES, WINDOWS

if TYPE_CHECKING:
    from memloc.api.plots import Plots

NO_OLD_CLASS = (
    "suspects do not say which labels are correct, so examples have no old class to leave"
)
"""Why there are no explanations of labels that are only suspected."""


@dataclass(frozen=True, repr=False, eq=False)
class Result:
    """What an experiment found.

    Attributes:
        tables: All tables by name; `layers`, `windows` and `examples` are also attributes.
        summary: The findings as JSON data.
        settings: What was asked for.
        folder: Where it is kept; None if it was not saved.
    """

    tables: Mapping[str, pd.DataFrame] = field(repr=False)
    summary: dict[str, Any] = field(repr=False)
    settings: dict[str, Any] = field(repr=False)
    folder: Path | None = None
    _in_folder: tuple[Any, Any] | None = field(default=None, init=False)
    _written: float = field(default_factory=time.time, init=False)

    def __post_init__(self) -> None:
        """Remember what is in the folder, to notice if something else is there later."""
        if self.folder is not None:
            object.__setattr__(self, "_in_folder", _kept(self.folder))
            file = self.folder / "summary.json"
            object.__setattr__(self, "_written", file.stat().st_mtime)

    @property
    def layers(self) -> pd.DataFrame:
        """Weights of the layers: technique, layer, weight, spread (and seed, after a run)."""
        return self.table("layers")

    @property
    def windows(self) -> pd.DataFrame:
        """Errors by window: technique, first_layer, last_layer, size, noisy_error, clean_error."""
        return self.tables["windows"] if "windows" in self.tables else WINDOWS.empty()

    @property
    def examples(self) -> pd.DataFrame:
        """Noisy examples, their texts and labels, and the smallest window that undoes each."""
        return self.tables["examples"] if "examples" in self.tables else EXAMPLES.empty()

    def table(self, name: str) -> pd.DataFrame:
        """A table by its name, such as 'probes'.

        Raises:
            MemlocError: If there is none.
        """
        if name not in self.tables:
            raise MemlocError(f"there is no table {name!r}{suggest(name, self.tables)}")
        return self.tables[name]

    @property
    def techniques(self) -> tuple[str, ...]:
        """Those with results."""
        return tuple(dict.fromkeys(self.layers["technique"]))

    @property
    def skipped(self) -> dict[str, str]:
        """Techniques that were not possible, and why."""
        return dict(self.summary.get("skipped", {}))

    @property
    def of_control(self) -> bool:
        """Whether this is of `memloc control`: many models, in which memorisation was hidden."""
        return "control" in self.settings

    @property
    def suspected(self) -> bool:
        """Whether labels were only suspected to be wrong, and correct ones were not known."""
        return self.settings.get("suspects") is True

    def mcog(self, technique: str) -> float | None:
        """The centre of gravity of the layer weights, a mean over seeds.

        Returns:
            A layer number, rarely whole; None if no layer has any weight.

        Raises:
            MemlocError: If the technique has no result.
        """
        self._check_models("a centre of gravity")
        techniques = self.summary["techniques"]
        if technique in self.skipped:
            raise MemlocError(f"{technique} was left out: {self.skipped[technique]}")
        if technique not in techniques:
            raise MemlocError(
                f"there is no technique {technique!r}{suggest(technique, techniques)}"
            )
        centre: float | None = techniques[technique]["m_cog"]
        return centre

    @cached_property
    def plot(self) -> Plots:
        """Figures, such as `result.plot.heatmap()` and `result.plot.layers()`."""
        from memloc.api.plots import Plots

        return Plots(self)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write the tables (.parquet), `summary.json` and `settings.json`; see `memloc.load`.

        Args:
            folder: A new or empty folder, or one in which this result is already.
            overwrite: Also replace another result; nothing but results is ever replaced.

        Raises:
            MemlocError: If it cannot be written, or something else is there.
        """
        place = path_of(folder, "folder")
        check_folder(place)
        artefacts = None
        # Hidden files are of the system, or of a save that was interrupted.
        if place.is_dir() and any(not path.name.startswith(".") for path in place.iterdir()):
            there = _kept(place)
            if there is None:
                raise StoreError(
                    f"{str(folder)!r} is not empty, and what is there is no result of memloc; give "
                    "another folder"
                )
            same = there in (self._in_folder, _as_json(self.summary, self.settings))
            if not same and not overwrite:
                raise StoreError(
                    f"there is another result in {str(folder)!r}; give another folder, or "
                    "overwrite=True to replace it"
                )
            if same and (place / ARTEFACTS).is_file():
                artefacts = json.loads((place / ARTEFACTS).read_text(encoding="utf-8"))
        write_results(place, dict(self.tables), self.summary, self.settings, artefacts)
        return place

    def report(self, path: str | Path) -> Path:
        """Write the interactive report, one HTML file that needs nothing else.

        Raises:
            MemlocError: If it cannot be written.
        """
        from memloc.report.page import write_result

        self._check_models("a report")
        place = self.folder or Path("result")
        found = RunFolder(place, self.settings, self.summary, self._written, self.tables)
        with as_arguments({"out": "path"}):
            return write_result(found, path_of(path, "path"))

    def _check_models(self, what: str) -> None:
        if self.of_control:
            raise MemlocError(
                f"results of `memloc control` are of many models and have no such thing as {what}; "
                "look at table('accuracy')"
            )

    def __repr__(self) -> str:
        """The findings in a few lines."""
        from memloc.api.result_repr import as_text

        return as_text(self)

    def _repr_html_(self) -> str:
        """A table and a chart, for notebooks."""
        from memloc.api.result_repr import as_html

        return as_html(self)


def _as_json(summary: dict[str, Any], settings: dict[str, Any]) -> tuple[Any, Any]:
    """As they are read back from files."""
    return json.loads(json.dumps(summary)), json.loads(json.dumps(settings))


def _kept(folder: Path) -> tuple[Any, Any] | None:
    """Summary and settings of the result in a folder, which tell it from others; None: no result.

    Raises:
        ResultsError: If they are damaged, or of a newer memloc.
    """
    if not all((folder / f"{name}.json").is_file() for name in ("summary", "settings")):
        return None
    found = look_through(folder)
    if not (found.runs or found.localised or found.controls):
        return None
    return _read_json(folder, "summary"), _read_json(folder, "settings")


def _read_json(folder: Path, name: str) -> Any:
    file = folder / f"{name}.json"
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise damaged(file, str(error)) from None


def load(folder: str | Path) -> Result:
    """Read a result folder of `memloc run`, `memloc localise`, `memloc control` or `Result.save`.

    Example:
        >>> memloc.load("saved").techniques
        ('swapping',)

    Raises:
        MemlocError: If it holds no result, or several, or if a file is damaged.
    """
    place = path_of(folder, "folder")
    found = look_through(place)
    if not (place / "settings.json").is_file():
        inside = [*(run.path for run in found.runs), *found.localised]
        inside += [control.path for control in found.controls]
        names = ", ".join(path.name for path in inside[:5])
        several = f"{names}, …" if len(inside) > 5 else names
        if inside:
            raise ResultsError(
                f"{str(folder)!r} is a folder of {len(inside)} results; load one of them: {several}"
            )
        there = sorted(path.name for path in place.iterdir())[:5]
        what = f"there is no result in {str(folder)!r}, only {', '.join(there)}"
        raise ResultsError(
            f"{what if there else f'the folder {str(folder)!r} is empty'}; give a folder with "
            "summary.json and settings.json"
        )
    if not (place / "summary.json").is_file():
        raise ResultsError(
            f"the result in {str(folder)!r} is not finished, as it has no summary.json; compute it "
            "again"
        )
    tables = {}
    for file in sorted(place.glob("*.parquet")):
        try:
            tables[file.stem] = pd.read_parquet(file)
        except Exception as error:  # Arrow has many kinds, and for the user it is one case
            raise damaged(file, str(error)) from None
    if "layers" not in tables:
        raise ResultsError(f"the result in {str(folder)!r} has no table layers; compute it again")
    return Result(tables, _read_json(place, "summary"), _read_json(place, "settings"), place)
