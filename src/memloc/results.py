"""Result folders: Parquet tables and JSON, each file replaced as a whole."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any

import pandas as pd

from memloc.errors import StoreError


def write_results(
    folder: Path, tables: dict[str, pd.DataFrame], summary: dict[str, Any], settings: dict[str, Any]
) -> None:
    """Write the tables, `summary.json` and `settings.json`.

    Raises:
        StoreError: If the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in tables.items():
            _replace(
                folder / f"{name}.parquet", lambda path, t=table: t.to_parquet(path, index=False)
            )
        for name, value in {"summary": summary, "settings": settings}.items():
            text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
            _replace(folder / f"{name}.json", lambda path, t=text: path.write_text(t, "utf-8"))
    except OSError as error:
        raise StoreError(
            f"cannot write results to {str(folder)!r}: {error.strerror or error}; "
            "free some space or choose another folder"
        ) from None


def _replace(path: Path, write: Any) -> None:
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:6]}")
    try:
        write(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def check_folder(folder: Path) -> None:
    """Fail before any work if results could not be written to `folder`.

    Raises:
        StoreError: If it is a file, or cannot be created or written.
    """
    if folder.exists() and not folder.is_dir():
        raise StoreError(f"{str(folder)!r} is a file; give a folder for the results")
    parent = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    if not os.access(parent, os.W_OK):
        raise StoreError(f"cannot write to {str(parent)!r}; choose another folder")
