"""Prepared data sets as artefacts: their key is a hash of their content, whatever their name."""

from __future__ import annotations

import hashlib
import json

import pandas as pd

from memloc.data.task import Task
from memloc.engine.store.store import Store, key_of


def write_task(store: Store, task: Task) -> tuple[str, str]:
    """Store a task with its noise, if it is not there yet; return kind and key."""
    content = {
        "labels": list(task.labels),
        "train": table_hash(task.train),
        "validation": table_hash(task.validation),
    }
    key = key_of("data", content)
    if not store.sound("data", key):
        with store.write("data", key, content) as draft:
            draft.table("train.parquet", task.train)
            draft.table("validation.parquet", task.validation)
            draft.json("task.json", {"name": task.name, "category": task.category})
    return "data", key


def read_task(store: Store, artefact: tuple[str, str]) -> Task:
    """Read it back."""
    data = store.open(*artefact)
    about = data.json("task.json")
    return Task(
        about["name"],
        about["category"],
        tuple(data.manifest["inputs"]["labels"]),
        data.table("train.parquet"),
        data.table("validation.parquet"),
    )


def table_hash(table: pd.DataFrame) -> str:
    """Hash of columns and values, independent of how pandas keeps them."""
    columns = {str(column): table[column].tolist() for column in table.columns}
    return hashlib.sha256(json.dumps(columns, ensure_ascii=False).encode()).hexdigest()
