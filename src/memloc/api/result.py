"""What was found: tables, a summary, plots and the report, of any experiment."""

from __future__ import annotations

import base64
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from memloc.errors import MemlocError, StoreError, nearest
from memloc.results.folders import (
    ResultsError,
    RunFolder,
    check_files,
    check_folder,
    damaged,
    look_through,
    write_results,
)
from memloc.tables import EXAMPLES, WINDOWS

if TYPE_CHECKING:
    from memloc.api.plots import Plots


@dataclass(frozen=True, repr=False, eq=False)
class Result:
    """What an experiment found.

    Attributes:
        tables: All tables by name; `layers`, `windows` and `examples` are also attributes.
        summary: The findings as JSON data.
        settings: What was asked for.
        folder: Where it is kept; None if it was not saved.
        written: When it was made, in seconds since 1970.
    """

    tables: Mapping[str, pd.DataFrame]
    summary: dict[str, Any]
    settings: dict[str, Any]
    folder: Path | None = None
    written: float = field(default_factory=time.time)

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
        if not isinstance(name, str) or name not in self.tables:
            remedy = nearest(name, self.tables)
            raise MemlocError(f"there is no table {name!r}", remedy=remedy)
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
        self.check_models("a centre of gravity")
        techniques, known = self.summary["techniques"], isinstance(technique, str)
        if known and technique in self.skipped:
            raise MemlocError(f"{technique} was left out: {self.skipped[technique]}")
        if not known or technique not in techniques:
            remedy = nearest(technique, techniques)
            raise MemlocError(f"there is no technique {technique!r}", remedy=remedy)
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
            folder: A new or empty folder.
            overwrite: Also replace another result; nothing but results is ever replaced.

        Raises:
            MemlocError: If it cannot be written, or something else is there.
        """
        place = Path(folder)
        check_folder(place)
        # Hidden files are of the system, or of a save that was interrupted.
        if place.is_dir() and any(not path.name.startswith(".") for path in place.iterdir()):
            results = [one for one in look_through(place) if one.summary]
            if not any(one.path == place and one.kind for one in results):
                raise StoreError(
                    f"{str(folder)!r} is not empty, and what is there is no result of memloc; give "
                    "another folder"
                )
            if not overwrite:
                raise StoreError(
                    f"there is a result in {str(folder)!r} already; give another folder, or "
                    "overwrite=True to replace it"
                )
        write_results(place, dict(self.tables), self.summary, self.settings)
        return place

    def report(self, path: str | Path, pending: Sequence[str] = ()) -> Path:
        """Write the interactive report, one HTML file that needs nothing else.

        Args:
            path: The file.
            pending: What is still being computed. The page says so, and loads itself again.

        Raises:
            MemlocError: If it cannot be written.
        """
        from memloc.report.page import write_report

        self.check_models("a report")
        place = self.folder or Path("result")
        found = RunFolder(place, self.settings, self.summary, self.written, self.tables)
        return write_report(found, Path(path), pending=pending)

    def check_models(self, what: str) -> None:
        """Some things only exist of one model.

        Raises:
            MemlocError: If this is a result of `memloc control`.
        """
        if self.of_control:
            raise MemlocError(
                f"results of `memloc control` are of many models and have no such thing as {what}; "
                "look at table('accuracy')"
            )

    @property
    def _title(self) -> str:
        summary = self.summary
        if self.of_control:
            return f"control benchmark of {summary.get('control_models')} models"
        on = f" on {summary['task']}" if summary.get("task") else ""
        return (
            f"{summary['model']} ({summary['layers']} layers){on}, "
            f"{summary.get('noisy_examples', '?')} of {summary.get('examples', '?')} labels "
            f"{'suspected' if self.suspected else 'noisy'}"
        )

    @property
    def _table(self) -> pd.DataFrame:
        """What was found, at a glance: one row per technique."""
        if self.of_control:
            rows = [row for row in self.summary.get("by_technique", []) if row["k"] == 1]
            accuracy = {row["technique"]: row["accuracy"] for row in rows}
            return pd.DataFrame({"accuracy@1": pd.Series(accuracy, dtype=float)}).round(2)
        found = self.summary["techniques"]
        weights = {name: values["layer_weights"] for name, values in found.items()}
        table = pd.DataFrame(weights, dtype=float).T.round(3)
        table.columns = pd.Index([f"layer {number}" for number in range(1, table.shape[1] + 1)])
        centres = [values.get("m_cog") for values in found.values()]
        table.insert(0, "M-CoG", pd.Series(centres, table.index, dtype=float).round(2))
        return table

    def __repr__(self) -> str:
        """The findings in a few lines."""
        lines = [f"memloc result: {self._title}"]
        first = self._table.iloc[:, 0]
        for name, value in first.items():
            words = "none" if pd.isna(value) else f"{value:.2f}"
            lines.append(f"  {name:<14} {first.name} {words}")
        lines += [f"  {name:<14} left out: {why}" for name, why in self.skipped.items()]
        if self.summary.get("interpretation") and not self.of_control:
            lines.append(f"  {self.summary['interpretation']}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """A table and a chart, for notebooks: one piece, with all texts escaped."""
        shown = f"<p><b>memloc</b> {escape(self._title)}</p>{self._table.to_html(na_rep='–')}"
        if self.of_control:
            return f"<div>{shown}</div>"
        picture = base64.b64encode(self.plot.layers()._repr_png_()).decode()
        words = [self.summary.get("interpretation"), *(self.summary.get("caveats") or [])]
        sentences = "".join(f"<p>{escape(str(sentence))}</p>" for sentence in words if sentence)
        return f'<div>{shown}<img src="data:image/png;base64,{picture}"/>{sentences}</div>'


def load(folder: str | Path) -> Result:
    """Read a result folder of `memloc run`, `memloc localise`, `memloc control` or `Result.save`.

    Example:
        >>> memloc.load("saved").techniques
        ('swapping',)

    Raises:
        MemlocError: If it holds no result, or several, or if a file is damaged or was changed.
    """
    place = Path(folder)
    results = [one for one in look_through(place) if one.summary]
    if not results or results[0].path != place:
        inside = [one.path.name for one in results]
        hint = f"load one of those in it: {', '.join(inside[:5])}" if inside else "compute it again"
        raise ResultsError(
            f"{str(folder)!r} has no finished result (summary.json and settings.json)", remedy=hint
        )
    if results[0].kind == "audit":
        raise ResultsError(
            f"{str(folder)!r} is of `memloc audit`, which localises nothing",
            remedy="read its labels.parquet, or give a result of `memloc run`",
        )
    check_files(place)
    tables = {}
    for file in sorted(place.glob("*.parquet")):
        try:
            tables[file.stem] = pd.read_parquet(file)
        except Exception as error:  # Arrow has many kinds, and for the user it is one case
            raise damaged(file, str(error)) from None
    if "layers" not in tables:
        raise ResultsError(f"the result in {str(folder)!r} has no table layers; compute it again")
    (found,) = results
    return Result(tables, found.summary, found.settings, place, found.written)
