"""What was found: tables, a summary, plots and the report, of any experiment."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from memloc.analysis.run_folders import ResultsError, damaged, look_through
from memloc.api.arguments import spoken
from memloc.errors import MemlocError, suggest
from memloc.results import check_folder, write_results

if TYPE_CHECKING:
    from memloc.api.plots import Plots

EMPTY: dict[str, dict[str, str]] = {
    "windows": {
        **{"technique": "str", "first_layer": "int64", "last_layer": "int64", "size": "int64"},
        **{"noisy_error": "float64", "clean_error": "float64"},
    },
    "examples": {
        **{"technique": "str", "example": "int64", "memorised": "bool"},
        **{"smallest_window": "Int64", "first_layer": "Int64", "last_layer": "Int64"},
    },
}
"""Columns of tables that no technique may have filled."""


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

    @property
    def layers(self) -> pd.DataFrame:
        """Weights of the layers: technique, layer, weight, spread (and seed, after a run)."""
        return self.table("layers")

    @property
    def windows(self) -> pd.DataFrame:
        """Errors by window: technique, first_layer, last_layer, size, noisy_error, clean_error."""
        return self.tables["windows"] if "windows" in self.tables else _empty("windows")

    @property
    def examples(self) -> pd.DataFrame:
        """Noisy examples, their texts and labels, and the smallest window that undoes each."""
        return self.tables["examples"] if "examples" in self.tables else _empty("examples")

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

    def mcog(self, technique: str) -> float | None:
        """The centre of gravity of the layer weights, a mean over seeds.

        Returns:
            A layer number, rarely whole; None if no layer has any weight.

        Raises:
            MemlocError: If the technique has no result.
        """
        self._check_models("a centre of gravity")
        methods = self.summary["methods"]
        if technique in self.skipped:
            raise MemlocError(f"{technique} was left out: it {self.skipped[technique]}")
        if technique not in methods:
            raise MemlocError(f"there is no technique {technique!r}{suggest(technique, methods)}")
        centre: float | None = methods[technique]["m_cog"]
        return centre

    @cached_property
    def plot(self) -> Plots:
        """Figures, such as `result.plot.heatmap()` and `result.plot.layers()`."""
        from memloc.api.plots import Plots

        return Plots(self)

    def save(self, folder: str | Path) -> Path:
        """Write the tables (.parquet), `summary.json` and `settings.json`; see `memloc.load`.

        Raises:
            MemlocError: If it cannot be written.
        """
        place = Path(folder)
        check_folder(place)
        write_results(place, dict(self.tables), self.summary, self.settings)
        return place

    def report(self, path: str | Path) -> Path:
        """Write the interactive report, one HTML file that needs nothing else.

        Raises:
            MemlocError: If it cannot be written.
        """
        from memloc.report.page import write_report

        self._check_models("a report")
        with spoken():
            if self.folder is not None and (self.folder / "summary.json").is_file():
                return write_report(self.folder, Path(path))
            with tempfile.TemporaryDirectory() as aside:
                return write_report(self.save(Path(aside) / "result"), Path(path))

    def _check_models(self, what: str) -> None:
        if self.of_control:
            raise MemlocError(
                f"results of `memloc control` are of many models and have no such thing as {what}; "
                "look at table('accuracy')"
            )

    def __repr__(self) -> str:
        """The findings in a few lines."""
        from memloc.api.shown import as_text

        return as_text(self)

    def _repr_html_(self) -> str:
        """A table and a chart, for notebooks."""
        from memloc.api.shown import as_html

        return as_html(self)


def _empty(name: str) -> pd.DataFrame:
    return pd.DataFrame({c: pd.Series(dtype=kind) for c, kind in EMPTY[name].items()})


def load(folder: str | Path) -> Result:
    """Read a result folder of `memloc run`, `memloc localise`, `memloc control` or `Result.save`.

    Example:
        >>> memloc.load("saved").techniques
        ('swapping',)

    Raises:
        MemlocError: If it holds no result, or several, or if a file is damaged.
    """
    place = Path(folder)
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
        raise ResultsError(
            f"there is no result in {str(folder)!r}, only {', '.join(there) or 'nothing'}; give a "
            "folder with summary.json and settings.json"
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
    texts = {}
    for name in ("summary", "settings"):
        try:
            texts[name] = json.loads((place / f"{name}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise damaged(place / f"{name}.json", str(error)) from None
    return Result(tables, texts["summary"], texts["settings"], place)
