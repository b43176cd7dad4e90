"""docs/results.md, from the schema of the tables: `python -m tests.docs.results_page`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from memloc.tables import CELL, EXAM, Column, Table
from memloc.techniques import all_tables

PAGE = Path(__file__).parents[2] / "docs" / "results.md"
TOP = """# Result tables

Every result is a folder: tables as Parquet, `summary.json` (the findings as numbers and sentences),
`settings.json` (everything that was asked for) and `report.html`. In Python the tables are
`result.tables` ([api.md](api.md)); anywhere else, `pandas.read_parquet` reads them. Layers are
numbered from 1, classes from 0. This page is made from `memloc/tables.py` and from what techniques
declare; `make tables` makes it again.

`memloc run` writes every table with a column `seed` (the model seed) in front, except
`memorisation_map`, whose models have seeds of their own. Tables of `memloc localise` have no such
column. Every table of `memloc control` begins with the columns that name a control model:

"""
BOTTOM = """
`summary.json` has the means over seeds with their spread, and `settings.json` all settings. What
a run needs to be repeated, and its costs, are on the last part of the report
([report.md](report.md)); what was computed on the way is in the store ([store.md](store.md)). For
the control benchmark see [control.md](control.md), for checkpoints
[training-time.md](training-time.md), for repaired models [repair.md](repair.md).
"""


def page() -> str:
    """The page as text."""
    tables = all_tables().values()
    alone = {
        kind: [table for table in tables if table.of == (kind,)] for kind in ("control", "audit")
    }
    usual = [table for table in tables if table.of not in (("control",), ("audit",))]
    return "".join(
        [
            TOP,
            _columns(CELL),
            "\nA column `model` of another table is called `state` there.\n",
            "\n## Runs, and models that were given\n",
            *map(_section, usual),
            "\n## Control benchmark\n",
            *map(_section, alone["control"]),
            "\n## Audit\n",
            *map(_section, alone["audit"]),
            "\n## Repaired models\n",
            "`exam.parquet` is beside the model, and `report.html` shows it "
            "([repair.md](repair.md)).\n",
            _section(EXAM),
            BOTTOM,
        ]
    )


def _section(table: Table) -> str:
    there = f"with `{table.condition}`" if table.condition else ""
    commands = {"run": "`memloc run`", "localise": "`memloc localise`", "control": "`control`"}
    if set(table.of) in ({"run", "localise"}, {"control"}, {"audit"}, set()):
        where = there
    elif set(table.of) == {"run"}:
        where = ", ".join(filter(None, (f"only of {commands['run']}", there)))
    else:
        where = ", ".join(filter(None, ("also of `memloc control`", there)))
    about = f"{table.about[0].upper()}{table.about[1:]}"
    return f"\n### {table.name}\n{about}{f' ({where})' if where else ''}.\n\n" + _columns(
        table.columns
    )


def _columns(columns: Mapping[str, Column]) -> str:
    rows = [
        f"| `{name}` | {found.dtype} | {found.meaning}{' (optional)' * found.optional} |\n"
        for name, found in columns.items()
    ]
    return "| column | type | meaning |\n| --- | --- | --- |\n" + "".join(rows)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
