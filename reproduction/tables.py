"""Results of many runs as a few tables: all runs of a kind of table in one file, and back.

Weights, texts and predictions stay away: what is kept is small, and holds nothing of the data sets
but numbers of examples.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from memloc.results.folders import ResultsError

DOCS = Path(__file__).parent.parent / "docs"
TABLES = DOCS / "reproduction"
RUNS = "runs.json"
"""Settings and summaries, by folder."""
LEFT_OUT = {"predictions"}
"""One row per window and example: larger than everything else together, and nothing reads it."""
TEXTS = ["text", "text_pair", "word"]


def collect(sources: list[Path], out: Path) -> None:
    """Put result folders into tables.

    Args:
        sources: Results of `memloc run` or `memloc control`, or folders with such.
        out: Where the tables go.

    Raises:
        ResultsError: If a source has no results; then nothing is written.
    """
    runs: dict[str, Any] = {}
    parts: dict[str, list[pd.DataFrame]] = {}
    for folder in _result_folders(sources):
        runs[folder.name] = {
            "settings": _without_places(_read(folder / "settings.json")),
            "summary": _without_texts(_read(folder / "summary.json")),
        }
        for path in sorted(folder.glob("*.parquet")):
            if path.stem not in LEFT_OUT:
                table = pd.read_parquet(path).drop(columns=TEXTS, errors="ignore")
                table.insert(0, "run", folder.name)
                parts.setdefault(path.stem, []).append(table)
    out.mkdir(parents=True, exist_ok=True)
    for name, tables in parts.items():
        together = pd.concat(tables, ignore_index=True).astype({"run": "category"})
        together.to_parquet(out / f"{name}.parquet", compression="zstd", index=False)
    lines = (f"{json.dumps(name)}: {json.dumps(run)}" for name, run in runs.items())
    text = ",\n".join(lines)  # one line each, so that changes can be seen
    (out / RUNS).write_text(f"{{\n{text}\n}}\n", encoding="utf-8")


def spread(tables: Path, out: Path) -> Path:
    """Write result folders from tables, as `memloc claims` and the other commands read them.

    Args:
        tables: What `collect` wrote.
        out: Replaced if it is there.

    Returns:
        The same folder.
    """
    shutil.rmtree(out, ignore_errors=True)
    runs = read_runs(tables)
    for name, run in runs.items():
        (out / name).mkdir(parents=True)
        for part, content in run.items():
            (out / name / f"{part}.json").write_text(json.dumps(content), encoding="utf-8")
    for path in sorted(tables.glob("*.parquet")):
        table = pd.read_parquet(path)
        if "run" not in table.columns:  # of all runs together
            continue
        for run, rows in table.groupby("run", observed=True):
            own = rows.drop(columns="run").dropna(axis=1, how="all").reset_index(drop=True)
            own.to_parquet(out / str(run) / path.name, index=False)
    return out


def read_runs(tables: Path) -> dict[str, Any]:
    """Settings and summary of every run, by folder."""
    return dict(_read(tables / RUNS))


def _result_folders(sources: list[Path]) -> Iterator[Path]:
    for source in sources:
        own = source / "summary.json"
        found = [own] if own.exists() else sorted(source.glob("*/summary.json"))
        if not found:
            raise ResultsError(f"there are no results in {str(source)!r}; give a folder of runs")
        yield from (path.parent for path in found)


def _without_texts(summary: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in summary.items() if key != "sample_examples"}


def _without_places(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without folders of the machine: of a path its last part is left."""
    kept: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, dict):
            kept[key] = _without_places(value)
        elif isinstance(value, list):
            kept[key] = [_without_places(v) if isinstance(v, dict) else v for v in value]
        elif key == "data_dir":
            kept[key] = None
        elif key == "name" and isinstance(value, str):
            kept[key] = Path(value).name
        else:
            kept[key] = value
    return kept


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
