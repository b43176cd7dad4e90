"""Prepared data sets as artefacts: their key is a hash of their content."""

from __future__ import annotations

import hashlib

import pandas as pd

from memloc.data.task import Task
from memloc.store.store import Store, key_of


def write_task(store: Store, task: Task) -> tuple[str, str]:
    """Store a task with its noise, if it is not there yet; return kind and key."""
    content = {
        "name": task.name,
        "category": task.category,
        "labels": list(task.labels),
        "train": table_hash(task.train),
        "validation": table_hash(task.validation),
    }
    key = key_of("data", content)
    if not store.has("data", key):
        with store.write("data", key, content) as draft:
            draft.table("train.parquet", task.train)
            draft.table("validation.parquet", task.validation)
    return "data", key


def read_task(store: Store, artefact: tuple[str, str]) -> Task:
    """Read it back."""
    data = store.open(*artefact)
    inputs = data.manifest["inputs"]
    return Task(
        inputs["name"],
        inputs["category"],
        tuple(inputs["labels"]),
        data.table("train.parquet"),
        data.table("validation.parquet"),
    )


def table_hash(table: pd.DataFrame) -> str:
    """Hash of columns and values, independent of how pandas keeps them."""
    digest = hashlib.sha256()
    for column in table.columns:
        digest.update(f"\0{column}\0".encode())
        for value in table[column].tolist():
            digest.update(f"{value}\x1f".encode())
    return digest.hexdigest()
