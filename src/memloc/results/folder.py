"""Result folders: Parquet tables and JSON, replaced together."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from memloc.errors import StoreError
from memloc.tables import ARTEFACTS, REPORT
from memloc.techniques import all_tables


def write_results(
    folder: Path,
    tables: dict[str, pd.DataFrame],
    summary: dict[str, Any],
    settings: dict[str, Any],
    artefacts: Sequence[tuple[str, str]] | None = None,
) -> None:
    """Write the tables, `summary.json` and `settings.json`; old files stay if anything fails.

    A report of what was there before is removed.

    Args:
        folder: Where to.
        tables: By name.
        summary: What was found.
        settings: What was asked for.
        artefacts: What the result was made from (kinds and keys), if it is in a store.

    Raises:
        StoreError: If the folder cannot be written.
    """
    texts = {
        f"{name}.json": json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
        for name, value in {"summary": summary, "settings": settings}.items()
    }
    if artefacts is not None:
        texts[ARTEFACTS] = json.dumps(list(artefacts), indent=0)
    aside = folder / f".writing-{uuid.uuid4().hex[:6]}"
    try:
        aside.mkdir(parents=True)
        for name, table in tables.items():
            table.to_parquet(aside / f"{name}.parquet", index=False)
        for name, text in texts.items():
            (aside / name).write_text(text, encoding="utf-8", errors="backslashreplace")
        for file in sorted(aside.iterdir()):
            os.replace(file, folder / file.name)
        # What another call left here would pass for a result of this one.
        for name in all_tables().keys() - set(tables):
            (folder / f"{name}.parquet").unlink(missing_ok=True)
        if artefacts is None:
            (folder / ARTEFACTS).unlink(missing_ok=True)
        (folder / REPORT).unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(
            f"cannot write results to {str(folder)!r}: {error.strerror or error}; "
            "free some space or choose another folder"
        ) from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def check_folder(folder: Path) -> None:
    """Fail before any work if results could not be written to `folder`.

    Raises:
        StoreError: If it is a file, or cannot be created or written.
    """
    if folder.exists() and not folder.is_dir():
        raise StoreError(f"{str(folder)!r} is a file; give a folder for the results")
    parent = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise StoreError(f"cannot write to {str(parent)!r}; choose another folder")
