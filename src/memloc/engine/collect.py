"""From the results of jobs in the store to the tables of an experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from memloc import tables
from memloc.analysis.control import accuracy_table
from memloc.analysis.dynamics import dynamics
from memloc.analysis.generalisation import (
    Splits,
    detection,
    memorisation_map,
    standard_error,
    task_score,
)
from memloc.analysis.over_time import (
    Examined,
    checkpoint_layer_table,
    checkpoint_table,
    checkpoint_window_table,
)
from memloc.data.task import Task
from memloc.engine.job import Job
from memloc.engine.plan import DYNAMICS, SPLIT_SEED, VALIDATION, Plan
from memloc.engine.store.store import Store
from memloc.techniques import all_tables, at_checkpoints, find


class TableParts:
    """Tables that are put together from the results of many jobs.

    Args:
        experiment: Decides which columns stand in front.
    """

    def __init__(self, experiment: tables.Experiment) -> None:
        self.experiment, self.known = experiment, all_tables()
        self.parts: dict[str, list[pd.DataFrame]] = {}

    def add(self, name: str, rows: pd.DataFrame, **front: Any) -> None:
        """A part of a table.

        Args:
            name: Of the table.
            rows: The part.
            front: Columns to put in front, such as the seed, which `localise` does without.
        """
        if self.experiment == "localise":
            front.pop("seed", None)
        renamed = rows.rename(columns=tables.RENAMED.get(self.experiment, {}))
        columns = pd.DataFrame(front, index=rows.index)
        self.parts.setdefault(name, []).append(pd.concat([columns, renamed], axis=1))

    def add_result(self, artefact: Any, **front: Any) -> None:
        """All tables of a technique or an explanation, as far as the experiment keeps them."""
        for file in artefact.manifest["files"]:
            name = file.removesuffix(".parquet")
            schema = self.known.get(name)
            if self.experiment in (("run", "localise") if schema is None else schema.of):
                self.add(name, artefact.table(file), **front)

    def add_texts(self, examples: pd.DataFrame, labels: Sequence[str]) -> None:
        """Put texts and the names of labels beside the findings on examples."""
        if "examples" in self.parts:
            found = self.parts["examples"]
            self.parts["examples"] = [with_texts(part, examples, labels) for part in found]

    def joined(self) -> dict[str, pd.DataFrame]:
        """All tables; what is declared for them is checked."""
        found = {
            name: pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)
            for name, parts in self.parts.items()
        }
        return {
            name: self.known[name].frame(table, self.experiment) if name in self.known else table
            for name, table in found.items()
        }


def with_texts(found: pd.DataFrame, examples: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Findings per example, with the text and the names of its labels beside them."""
    texts = examples.drop(columns="noisy")
    for column in ("label", "original_label"):
        if column in texts:  # the original one is unknown if labels are only suspected
            texts[f"{column}_name"] = [names[label] for label in texts[column]]
    return found.merge(texts, on="example", how="left")


def collect(
    plan: Plan, store: Store, experiment: tables.Experiment, task: Task | None = None
) -> tuple[dict[str, pd.DataFrame], dict[str, Any] | None]:
    """The tables of all jobs that are in the store, each once; and a summary of half-splits."""
    parts, costs = TableParts(experiment), []
    control, seen = experiment == "control", set()

    def count(
        front: dict[str, Any], job: str, spent: Mapping[str, Any], outcome: Mapping[str, Any]
    ) -> None:
        row = {"job": job, "seconds": spent.get("seconds")}
        if not control:
            row |= {key: outcome.get(key) for key in ("memorised_epoch", "cut_share")}
            row |= {key: spent.get(key) for key in ("peak_memory_bytes", "block_passes")}
        costs.append((front, row))

    for cell in plan.cells:
        states = {f"states:{j.identity['role']}": j for j in cell.parts if j.kind == "states"}
        for name, job in (cell.trainings | ({} if control else states) | cell.results).items():
            if job.key in seen or not store.has(*job.artefact):
                continue
            seen.add(job.key)
            artefact = store.open(*job.artefact)
            front = {**cell.front, "seed": job.identity.get("seed", cell.seed)}
            outcome: dict[str, Any] = {}
            if name in cell.trainings:
                if control and name == "frozen":  # shared by all cells of a task
                    front["hidden"] = ""
                outcome = artefact.json("outcome.json")
                history = artefact.table("history.parquet")
                if task is not None and "noisy" not in {*history["split"]}:
                    history = _by_noise(history, artefact, task)
                parts.add("history", history, **front, state=name)
                kept = f"{DYNAMICS}.safetensors" in artefact.manifest["files"]
                if name == "memorised" and task is not None and kept:
                    parts.add("dynamics", _dynamics(artefact, task), **front)
                if control:
                    parts.add("trainings", pd.DataFrame([outcome]), **front, state=name)
                    parts.add("attempts", artefact.table("attempts.parquet"), **front, state=name)
            elif job.kind != "states":
                parts.add_result(artefact, **front)
            count(front, name, artefact.manifest["costs"], outcome)
    beside = {job.key for job in plan.of_checkpoints}
    for cell in plan.cells:
        looking = [j for at in cell.checkpoints.values() for j in (*at.parts, *at.results.values())]
        spent = _spent(store, [job for job in looking if job.key in beside])
        if spent:
            count({"seed": cell.seed}, "checkpoints", spent, {})
    spent = _spent(store, plan.splits)
    if spent:
        count({"seed": SPLIT_SEED}, "generalisation", spent, {})
    if task is not None:
        parts.add_texts(task.train, task.labels)
    if costs:
        front = {key: [one[key] for one, _ in costs] for key in costs[0][0]}
        parts.add("costs", pd.DataFrame([row for _, row in costs]), **front)
    found = parts.joined()
    if control:
        if "layers" in found:
            found["accuracy"] = accuracy_table(found["layers"])
        for name in dict.fromkeys(name for cell in plan.cells for name in cell.techniques):
            found |= find(name).benchmark(found)
    found |= _collect_checkpoints(plan, store, found.get("history"))
    if not spent or task is None:
        return found, None
    splits = read_splits(store, plan.splits, task)
    known = [name for name in tables.MEMORISATION_MAP.columns if name in task.train]
    table = pd.concat([task.train[known], memorisation_map(splits)], axis=1)
    found["memorisation_map"] = tables.MEMORISATION_MAP.frame(table)
    return found, summarise_splits(splits, found["memorisation_map"])


def _dynamics(artefact: Any, task: Task) -> pd.DataFrame:
    """How a model learned the labels of a task."""
    logits = artefact.arrays(f"{DYNAMICS}.safetensors")["logits"]
    found = dynamics(logits, task.train["label"].to_numpy())
    return pd.concat([task.train[["example", "noisy"]], found], axis=1)


def _by_noise(history: pd.DataFrame, artefact: Any, task: Task) -> pd.DataFrame:
    """Every epoch of a training that knew no suspects, with rows on these and on the others."""
    from memloc.training.loop import by_noise, scores  # brings torch, which others do not need

    labels, noisy = task.train["label"].to_numpy(), task.train["noisy"].to_numpy()
    logits = artefact.arrays(f"{DYNAMICS}.safetensors")["logits"].astype(np.float32)
    rows = [
        {"epoch": epoch, "split": split, **scores(*found)}
        for epoch, answers in enumerate(logits, start=1)
        for split, found in by_noise(answers, labels, noisy).items()
    ]
    return pd.concat([history[history["split"] != "clean"], pd.DataFrame(rows)], ignore_index=True)


def _spent(store: Store, jobs: Sequence[Job]) -> dict[str, Any]:
    """What several jobs cost in all; empty if none of them is in the store."""
    done = [store.open(*j.artefact).manifest["costs"] for j in jobs if store.has(*j.artefact)]
    if not done:
        return {}
    passes = [cost["block_passes"] for cost in done if cost.get("block_passes") is not None]
    return {
        "seconds": round(sum(cost.get("seconds") or 0 for cost in done), 3),
        "peak_memory_bytes": max(cost.get("peak_memory_bytes") or 0 for cost in done),
        "block_passes": sum(passes) if passes else None,
    }


def _collect_checkpoints(
    plan: Plan, store: Store, history: pd.DataFrame | None
) -> dict[str, pd.DataFrame]:
    """The tables of all checkpoints whose jobs are in the store; empty without checkpoints."""
    found = []
    for cell in plan.cells:
        for epoch, at in cell.checkpoints.items():
            accuracy = _accuracy(history, cell.seed, epoch)
            if not accuracy:
                continue  # its training failed
            snapshot = at.trainings["memorised"].artefact
            if "validation" not in accuracy and store.has(*snapshot):
                known = store.open(*snapshot).json(f"{VALIDATION}.json")
                accuracy |= {} if known is None else {"validation": known}
            parts: dict[str, list[pd.DataFrame]] = {}
            for job in at.results.values():
                if store.has(*job.artefact):
                    artefact = store.open(*job.artefact)
                    for name in ("layers", "windows", "centroids", "events"):
                        if f"{name}.parquet" in artefact.manifest["files"]:
                            parts.setdefault(name, []).append(artefact.table(f"{name}.parquet"))
            joined = {name: pd.concat(some, ignore_index=True) for name, some in parts.items()}
            found.append(Examined(cell.seed, epoch, accuracy, **joined))
    if not found:
        return {}
    weighted = at_checkpoints()
    made = (
        (tables.checkpoints_of(weighted), checkpoint_table(found, weighted)),
        (tables.CHECKPOINT_LAYERS, checkpoint_layer_table(found, weighted)),
        (tables.CHECKPOINT_WINDOWS, checkpoint_window_table(found)),
    )
    return {schema.name: schema.frame(table, "run") for schema, table in made}


def _accuracy(history: pd.DataFrame | None, seed: int, epoch: int) -> dict[str, float]:
    """Accuracy of θ_M after an epoch, by split."""
    if history is None:
        return {}
    rows = history[
        (history["state"] == "memorised") & (history["seed"] == seed) & (history["epoch"] == epoch)
    ]
    return {str(k): float(v) for k, v in zip(rows["split"], rows["accuracy"], strict=True)}


def read_splits(store: Store, jobs: Sequence[Job], task: Task) -> Splits:
    """What was found for the half-splits that are in the store."""
    there = [store.open(*job.artefact) for job in jobs if store.has(*job.artefact)]
    answers = [artefact.table("answers.parquet") for artefact in there]
    return Splits(
        np.stack([found["inside"].to_numpy(dtype=bool) for found in answers]),
        np.stack([found["probability"].to_numpy() for found in answers]),
        len(task.labels),
    )


def summarise_splits(splits: Splits, table: pd.DataFrame) -> dict[str, Any]:
    """Task score with its standard error, and how well wrong labels are found."""
    noisy = table["noisy"].to_numpy()
    # Of the same examples, so that the third is the difference of the first two.
    both = table["counterfactual_memorisation"].notna().to_numpy()
    scores = ("training_memorisation", "generalisation_score", "counterfactual_memorisation")
    return {
        "splits": len(splits.inside),
        "score": tables.number(task_score(splits)),
        "standard_error": tables.number(standard_error(splits)),
        "never_held_out": int((table["times_out"] == 0).sum()),
        "means": {
            kind: {name: tables.number(table.loc[rows, name].mean()) for name in scores}
            for kind, rows in (("noisy", noisy & both), ("clean", ~noisy & both))
        },
        "share_noisy": float(noisy.mean()),
        "detection": detection(table, noisy),
    }
