"""The findings of an experiment in numbers and sentences, which all that shows them reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

import memloc
from memloc.analysis.control import score
from memloc.analysis.correlation import compare_profiles, interval_of_share
from memloc.analysis.generalisation import validation_scores
from memloc.analysis.over_time import movement
from memloc.analysis.windows import (
    ENOUGH,
    Window,
    centre_interval,
    centre_of_gravity,
    centre_range,
    error_matrix,
    full_error,
    interpolated,
    interval_over_seeds,
    lost,
    sizes_tried,
    undone_matrix,
)
from memloc.config import DEFAULT_TECHNIQUES
from memloc.data.task import Task
from memloc.engine.experiment import Findings
from memloc.engine.store.store import library_versions
from memloc.results.grid import records
from memloc.results.narrative import (
    agreement,
    caveats,
    control_caveats,
    further_findings,
    interpret,
    interpret_control,
    lead_technique,
    over_time_words,
)
from memloc.tables import MEMORISED, NEARLY_ALL, number, numbers
from memloc.techniques import at_checkpoints, classes, installed

SHARES = ("memorised", "in_layers", "clean_accuracy", "validation_accuracy", "clean_error")
CENTRES = {one.name: one.line() for one in classes().values() if one.at_checkpoints}
"""The line through the layers that goes with a technique or explanation, over training time."""


def summarise(findings: Findings) -> dict[str, Any]:
    """Everything a reader asks first, as JSON data."""
    if findings.kind == "control":
        summary = summarise_control(findings.about, findings.tables)
    else:
        summary = _summarise(findings)
    return {**summary, "failures": list(findings.failures)}


def _summarise(findings: Findings) -> dict[str, Any]:
    tables, about = findings.tables, findings.about
    summary: dict[str, Any] = {
        "memloc": memloc.__version__,
        **about,
        "techniques": summarise_techniques(tables, findings.techniques),
    }
    if "history" in tables and findings.kind == "run":
        summary["training"] = summarise_training(tables["history"], tables["costs"])
        summary["memorised_share"] = summary["training"]["noisy_accuracy"] or 0.0
        summary["cut_share"] = _cut_share(tables["costs"])
        if findings.task is not None:
            summary["scores"] = summarise_scores(
                summary["training"], about["generalisation"], findings.task
            )
    over_time = summarise_checkpoints(tables, about["layers"])
    if over_time is not None:
        summary["over_time"] = over_time
    finish(summary, tables, findings.unexplained)
    return summary


def _cut_share(trainings: pd.DataFrame) -> float | None:
    """Share of the training examples that were cut; None if their trainings do not say."""
    return number(trainings["cut_share"].max()) if "cut_share" in trainings else None


def sweep_row(summary: dict[str, Any]) -> dict[str, Any]:
    """What the summary of a sweep tells of one of its experiments."""
    if "techniques" not in summary:
        told = ("by_technique", "chance", "interpretation", "failures")
        return {key: summary[key] for key in told}
    learnt = summary["memorised_share"]
    return {
        "noisy_accuracy": learnt,
        "memorised": learnt >= MEMORISED,
        "m_cog": {name: found["m_cog"] for name, found in summary["techniques"].items()},
        "cut_share": summary.get("cut_share"),
        "failures": summary["failures"],
    }


def finish(
    summary: dict[str, Any], tables: dict[str, pd.DataFrame], left_out: Sequence[str] = ()
) -> None:
    """Add the sentences, their caveats, a few examples, and the versions of libraries.

    `left_out` are sentences on explanations that were not possible.
    """
    profiles = {name: result["layer_weights"] for name, result in summary["techniques"].items()}
    summary["agreement"] = {"pairs": compare_profiles(profiles)}
    summary["agreement"]["words"] = agreement(summary)
    summary["explanation"] = {**summarise_explanation(tables), "left_out": list(left_out)}
    summary["explanation"]["words"] = [
        sentence for one in classes().values() for sentence in one.sentences(summary["explanation"])
    ]
    summary["interpretation"] = interpret(summary)
    summary["findings"] = further_findings(summary)
    summary["caveats"] = caveats(summary)
    examples = tables.get("examples", pd.DataFrame({"technique": []}))
    first = examples[examples["technique"] == lead_technique(summary)]
    summary["sample_examples"] = sample_examples(first) if len(first) else []
    summary["versions"] = library_versions()


def at_the_end(history: pd.DataFrame) -> pd.DataFrame:
    """The last epoch of every training; not all have the same number."""
    ends = history.groupby(["state", "seed"])["epoch"].transform("max")
    return history[history["epoch"] == ends]


def summarise_training(history: pd.DataFrame, costs: pd.DataFrame) -> dict[str, Any]:
    """Final accuracies, averaged over seeds."""
    last = at_the_end(history)

    def accuracy(state: str, split: str) -> float | None:
        """None if that model is missing, because its training failed."""
        rows = last[(last["state"] == state) & (last["split"] == split)]
        return number(rows["accuracy"].mean())

    epochs = costs.loc[costs["job"] == "memorised", "memorised_epoch"]
    return {
        "epochs": int(last.loc[last["state"] != "frozen", "epoch"].max()),
        "near_ceiling_epoch": [None if pd.isna(epoch) else int(epoch) for epoch in epochs],
        "noisy_accuracy": accuracy("memorised", "noisy"),
        "clean_accuracy": accuracy("memorised", "clean"),
        "validation_accuracy": accuracy("memorised", "validation"),
        "original_accuracy": accuracy("original", "clean"),
        "original_validation_accuracy": accuracy("original", "validation"),
        "frozen_noisy_accuracy": accuracy("frozen", "noisy"),
    }


def summarise_techniques(
    tables: dict[str, pd.DataFrame], settings: Mapping[str, dict[str, Any]] | None = None
) -> dict[str, Any]:
    """Per technique: layer weights and M-CoG, and what else it found. Seeds are averaged.

    With the settings of the techniques and a table of costs, these are attached.
    """
    found: dict[str, Any] = {}
    for technique in dict.fromkeys(tables["layers"]["technique"]):
        mine = {
            name: table[table["technique"] == technique]
            for name, table in tables.items()
            if name in ("layers", "windows", "predictions", "examples", "failures")
        }
        result = _summarise_layers(mine["layers"])
        result |= _place_of_centre(mine, result["m_cog_per_seed"])
        examples = mine.get("examples", pd.DataFrame())
        if len(mine.get("windows", ())):
            result |= _summarise_windows(mine["windows"], examples)
            result["clean_error_interval"] = _clean_interval(result["clean_error"], mine)
        result |= _own_summary(technique, tables)
        if "examples" in mine and "windows" in mine:
            single = result.get("strongest_single_layer") is not None
            result["examples_undone_by_one_layer"] = _undone_by_one_layer(examples, single)
        if "failures" in mine:
            columns = ["first_layer", "last_layer", "reason"]
            result["failed_windows"] = mine["failures"][columns].to_dict("records")
        if settings is not None:
            result["settings"] = settings[technique]
        if "costs" in tables:
            result["costs"] = _summarise_costs(tables["costs"], technique)
        found[technique] = result
    return found


def _own_summary(name: str, tables: dict[str, pd.DataFrame]) -> dict[str, Any]:
    """What a technique or explanation says about the tables that it writes."""
    known = installed(name)
    wanted = [] if known is None else [table.name for table in known.tables]
    own = {table: tables[table] for table in wanted if len(tables.get(table, ()))}
    return known.summarise(own) if known is not None and own else {}


def _summarise_costs(costs: pd.DataFrame, technique: str) -> dict[str, Any]:
    """Over all seeds; without the models and states that techniques share."""
    rows = costs[costs["job"] == technique]
    return {
        "seconds": number(rows["seconds"].sum()),
        "peak_memory_bytes": int(rows["peak_memory_bytes"].max()),
        "block_passes": int(rows["block_passes"].fillna(0).sum()),
    }


def _by_seed(table: pd.DataFrame) -> list[pd.DataFrame]:
    if "seed" not in table.columns:
        return [table]
    return [rows for _, rows in table.groupby("seed", sort=False)]


def _summarise_layers(layers: pd.DataFrame) -> dict[str, Any]:
    profiles = [rows.sort_values("layer")["weight"].to_numpy() for rows in _by_seed(layers)]
    # A seed in which changing all layers undoes nothing has no profile; the others are averaged.
    defined = np.array([profile for profile in profiles if np.isfinite(profile).all()])
    # Without any whole profile, layers of which something is known are shown all the same.
    part = layers.groupby("layer")["weight"].mean()
    centres = [centre_of_gravity(profile) for profile in profiles]
    known = [centre for centre in centres if centre is not None]
    n_layers = int(layers["layer"].max())
    nothing = np.full(n_layers, np.nan)
    spread = defined.std(axis=0, ddof=1) if len(defined) > 1 else nothing
    within = layers.groupby("layer")["spread"].mean().to_numpy()
    return {
        "layers": n_layers,
        "m_cog": float(np.mean(known)) if known else None,
        "m_cog_per_seed": centres,
        "m_cog_spread": number(np.std(known, ddof=1)) if len(known) > 1 else None,
        "layer_weights": numbers(defined.mean(axis=0) if len(defined) else part),
        "layer_weights_spread": numbers(spread),
        "spread_within_seed": numbers(within),
    }


def _place_of_centre(
    tables: dict[str, pd.DataFrame], centres: Sequence[float | None]
) -> dict[str, Any]:
    """Where M-CoG can lie at all, and its interval over noisy examples and seeds.

    Without answers to single examples it is over seeds; None if there are too few of them.
    """
    seeds = [
        [Window(*layers) for layers in rows[["first_layer", "last_layer"]].itertuples(index=False)]
        for rows in (_by_seed(tables["windows"]) if len(tables.get("windows", ())) else ())
    ]
    ends = (1.0, float(tables["layers"]["layer"].max()))
    if seeds:
        ends = tuple(np.mean([centre_range(windows) for windows in seeds], axis=0).tolist())
    examples, predictions = (
        tables.get(name, pd.DataFrame()) for name in ("examples", "predictions")
    )
    if len(predictions) and "label" in examples:
        interval = centre_interval(*zip(*_lost_labels(predictions, examples), strict=True))
    else:
        interval = interval_over_seeds([centre for centre in centres if centre is not None])
        interval = interval and (max(ends[0], interval[0]), min(ends[1], interval[1]))
    return {"m_cog_range": list(ends), "m_cog_interval": interval and list(interval)}


def _lost_labels(
    predictions: pd.DataFrame, examples: pd.DataFrame
) -> Iterator[tuple[list[Window], np.ndarray]]:
    """For each seed, its windows, and whether each takes the label of a noisy example away."""
    labels = examples.drop_duplicates("example").set_index("example")["label"]
    noisy = predictions[predictions["example"].isin(labels.index)]
    for rows in _by_seed(noisy):
        place = ["first_layer", "last_layer"]
        answers = rows.pivot(index=place, columns="example", values="predicted")
        windows = [Window(*layers) for layers in answers.index]
        yield windows, answers.to_numpy() != labels[answers.columns].to_numpy()


def _summarise_windows(windows: pd.DataFrame, examples: pd.DataFrame) -> dict[str, Any]:
    """Errors as they are (E), and what is undone: that is measured from what θ_M knew."""
    n_layers = int(windows["last_layer"].max())
    by_seed = _by_seed(windows)
    shares = [rows["memorised"].mean() for rows in _by_seed(examples)] if len(examples) else []
    known = shares if len(shares) == len(by_seed) else [1.0] * len(by_seed)
    matrix = _mean_matrix([error_matrix(rows) for rows in by_seed])
    undone = _mean_matrix([undone_matrix(*pair) for pair in zip(by_seed, known, strict=True)])
    full = float(np.mean([full_error(rows) for rows in by_seed]))
    single = undone[0] if np.isfinite(undone[0]).all() else None
    return {
        "sizes_tried": sizes_tried(matrix).tolist(),
        "error_by_size_and_layer": [numbers(row) for row in interpolated(matrix)],
        "undone_by_size_and_layer": [numbers(row) for row in interpolated(undone)],
        "full_error": full,
        "undone": float(lost(full, float(np.mean(known)))),
        "clean_error": number(windows["clean_error"].mean()),
        "full_clean_error": number(windows.loc[windows["size"] == n_layers, "clean_error"].mean()),
        "strongest_single_layer": None
        if single is None
        else {"layer": int(single.argmax()) + 1, "undoes": float(single.max())},
        **_smallest_window(windows, n_layers, float(np.mean(known))),
    }


def _clean_interval(error: float | None, tables: dict[str, pd.DataFrame]) -> list[float] | None:
    """Of the mean clean error, which was measured on some of the clean examples."""
    if error is None or "predictions" not in tables:
        return None
    clean = {*tables["predictions"]["example"]} - {*tables["examples"]["example"]}
    interval = interval_of_share([error] * len(clean))
    return interval and list(interval)


def _mean_matrix(matrices: list[np.ndarray]) -> np.ndarray:
    """Over the seeds in which modifying all layers does something."""
    defined = [one for one in matrices if np.isfinite(one[-1]).all()]
    return np.mean(defined, axis=0) if defined else np.full(matrices[0].shape, np.nan)


def _undone_by_one_layer(examples: pd.DataFrame, single: bool) -> float | None:
    """Share of the memorised examples, if windows of one layer were tried."""
    memorised = examples[examples["memorised"]]
    if not len(memorised) or not single:
        return None
    return number(memorised["smallest_window"].eq(1).fillna(False).mean())


def _smallest_window(windows: pd.DataFrame, n_layers: int, memorised: float) -> dict[str, Any]:
    """The smallest window that undoes nearly all memorisation, and what the rest undoes.

    Shares are of what all layers undo. The window is the smallest that was tried: one of `at_least`
    layers could do as well, if its size is larger than that. What lies outside are up to two
    windows, as far as they were tried.
    """
    errors = windows.groupby(["size", "first_layer", "last_layer"])["noisy_error"].mean()
    undone = pd.Series(lost(errors.to_numpy(), memorised), errors.index)
    full = float(undone[n_layers].iloc[0])
    shares = undone / full if full > 0 else undone[:0]
    enough = shares[shares >= NEARLY_ALL]
    if not len(enough):
        return {"smallest_window": None, "outside": []}
    size = int(enough.index[0][0])
    smaller = [int(tried) for tried in shares.index.get_level_values("size") if tried < size]

    def of(first: int, last: int) -> dict[str, Any]:
        undoes = float(shares[last - first + 1, first, last])
        return {"first_layer": first, "last_layer": last, "undoes": undoes}

    first, last = map(int, enough[size].idxmax())
    outside = [(1, first - 1), (last + 1, n_layers)]
    tried = [w for w in outside if (w[1] - w[0] + 1, *w) in shares.index]
    return {
        "smallest_window": {**of(first, last), "at_least": max(smaller, default=0) + 1},
        "outside": [of(*window) for window in tried],
    }


def sample_examples(examples: pd.DataFrame, n: int = 4) -> list[dict[str, Any]]:
    """A few memorised examples, from the easiest to undo to the hardest."""
    known = examples[examples["memorised"] & examples["smallest_window"].notna()]
    known = known.drop_duplicates("example").sort_values(
        ["smallest_window", "example"], kind="stable"
    )
    places = np.unique(np.linspace(0, len(known) - 1, min(n, len(known))).round().astype(int))
    return [
        {
            "example": int(row["example"]),
            "text": str(row["text"]),
            "label": str(row["label_name"]),
            "original_label": row.get("original_label_name"),  # unknown of suspected labels
            "first_layer": int(row["first_layer"]),
            "last_layer": int(row["last_layer"]),
        }
        for row in known.iloc[places].to_dict("records")
    ]


def summarise_explanation(tables: dict[str, pd.DataFrame]) -> dict[str, Any]:
    """What the explanations found, averaged over seeds; empty if there are none."""
    found: dict[str, Any] = {}
    if "events" in tables:
        found["events"] = {
            model: {event: _event(rows) for event, rows in _parts(of, "event")}
            for model, of in _parts(tables["events"], "model")
        }
    for one in classes().values():
        found |= _own_summary(one.name, tables) if one.kind == "explanation" else {}
    return found


def _parts(table: pd.DataFrame, column: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """The rows of each value, in the order of the table."""
    return ((str(value), rows) for value, rows in table.groupby(column, sort=False))


def summarise_scores(
    training: dict[str, Any], generalisation: dict[str, Any] | None, task: Task
) -> dict[str, Any]:
    """The scores of Table 2: of the validation data, and of held-out training examples."""
    labels = task.validation["label"].to_numpy()
    accuracy = {
        "original": training["original_validation_accuracy"],
        "memorised": training["validation_accuracy"],
    }
    return {
        "validation_score": {
            state: validation_scores(value, labels, len(task.labels))
            for state, value in accuracy.items()
        },
        "generalisation_score": generalisation and generalisation["score"],
    }


def _event(rows: pd.DataFrame) -> dict[str, Any]:
    """Mean layer of the seeds in which it happens, and in how many it does not."""
    layers = [None if pd.isna(layer) else int(layer) for layer in rows["layer"]]
    known = [layer for layer in layers if layer is not None]
    return {
        "layer": float(np.mean(known)) if known else None,
        "per_seed": layers,
        "missing": len(layers) - len(known),
    }


def summarise_checkpoints(tables: dict[str, pd.DataFrame], n_layers: int) -> dict[str, Any] | None:
    """What was found at the checkpoints, averaged over seeds; None if there are none."""
    table = tables.get("checkpoints")
    if table is None or not len(table):
        return None
    epochs = sorted(table["epoch"].unique().tolist())
    layers = tables.get("checkpoint_layers", pd.DataFrame())
    found = {
        "enough": ENOUGH,
        "epochs": [_epoch(rows) for _, rows in table.groupby("epoch", sort=True)],
        "techniques": _techniques(table, layers, epochs) if len(layers) else [],
        "starts": _starts(table, epochs),
        "movement": {name: _movement(table, name) for name in at_checkpoints()},
    }
    found["words"] = over_time_words(found, n_layers)
    return found


def _epoch(rows: pd.DataFrame) -> dict[str, Any]:
    enough = rows["enough"].astype(bool)
    return {
        "epoch": int(rows["epoch"].iloc[0]),
        **{name: _mean(rows[name]) for name in SHARES},
        "seeds": len(rows),
        "seeds_with_enough": int(enough.sum()),
        **{name: _mean(rows[column]) for name, column in CENTRES.items()},
    }


def _techniques(
    table: pd.DataFrame, layers: pd.DataFrame, epochs: list[int]
) -> list[dict[str, Any]]:
    """Per technique: values [epoch][layer], and its line."""
    found = []
    for (technique, measure), rows in layers.groupby(["technique", "measure"], sort=False):
        means = rows.groupby(["epoch", "layer"])["value"].mean().unstack("layer").reindex(epochs)
        centres = table.groupby("epoch")[CENTRES[str(technique)]]
        found.append(
            {
                "technique": str(technique),
                "measure": str(measure),
                "values": [[number(v) for v in row] for row in means.to_numpy()],
                "centres": [_mean(centres.get_group(epoch)) for epoch in epochs],
            }
        )
    return found


def _starts(table: pd.DataFrame, epochs: list[int]) -> list[dict[str, Any]]:
    """By seed: the first checkpoint with enough to localise, and the one before it."""
    found = []
    for seed, rows in table.groupby("seed", sort=False):
        first = rows.loc[rows["enough"].astype(bool), "epoch"].min()
        start = None if pd.isna(first) else int(first)
        before = [epoch for epoch in epochs if start is not None and epoch < start]
        found.append({"seed": int(str(seed)), "epoch": start, "before": max(before, default=None)})
    return found


def _movement(table: pd.DataFrame, technique: str) -> dict[str, Any] | None:
    """From the first centre of gravity to the last, over the seeds that have both."""
    by_seed = movement(table, technique)
    if not by_seed:
        return None
    epochs, starts, ends = zip(*by_seed.values(), strict=True)
    shifts = [end - start for start, end in zip(starts, ends, strict=True)]
    return {
        "seeds": list(by_seed),
        "first_epochs": list(epochs),
        "from": float(np.mean(starts)),
        "to": float(np.mean(ends)),
        "shift": float(np.mean(shifts)),
        "shift_per_seed": shifts,
    }


def _mean(values: pd.Series) -> float | None:
    known = values.dropna().astype(float)
    return number(known.mean()) if len(known) else None


def summarise_control(about: dict[str, Any], tables: dict[str, pd.DataFrame]) -> dict[str, Any]:
    """Everything a reader asks first, as JSON data.

    `about` has held_back, auxiliary, seeds, learned_at and unit, from the settings.
    """
    layers, trainings = tables["layers"], tables["trainings"]
    scored = tables["accuracy"][~tables["accuracy"]["task"].isin(about["held_back"])]
    models = layers.drop_duplicates("model")[["model", "n_layers"]]
    techniques = list(dict.fromkeys(layers["technique"]))
    usual = [name for name in DEFAULT_TECHNIQUES if name in techniques] or techniques
    cells = layers.drop_duplicates(["model", "task", "hidden", "seed"])
    summary: dict[str, Any] = {
        "memloc": memloc.__version__,
        "models": records(models),
        "tasks": list(dict.fromkeys(layers["task"])),
        "held_back": about["held_back"],
        "auxiliary": about["auxiliary"],
        "hidden": list(dict.fromkeys(cells["hidden"])),
        "seeds": about["seeds"],
        "control_models": len(cells),
        "chance": float(scored["chance"].mean()) if len(scored) else None,
        "by_technique": records(score(scored, "technique")),
        "without_weights": _without_weights(tables["accuracy"]),
        "by_task": {"techniques": usual, "scores": records(score(scored, "task", usual))},
        "by_model": {"techniques": usual, "scores": records(score(scored, "model", usual))},
        "trainings": _trainings(trainings, tables["attempts"]),
        "cut_share": {str(task): _cut_share(rows) for task, rows in trainings.groupby("task")},
        "seconds_of_work": float(tables["costs"]["seconds"].sum()),
    }
    held_back = about["held_back"] or summary["tasks"]
    chosen = {
        name: table[table["task"].isin(held_back)]
        for name, table in tables.items()
        if "task" in table
    }
    for name in techniques:
        known = installed(name)
        summary |= {} if known is None else known.summarise_benchmark(chosen)
    summary["interpretation"] = interpret_control(summary)
    summary["caveats"] = control_caveats(summary, about)
    return summary


def _without_weights(accuracy: pd.DataFrame) -> dict[str, int]:
    """By technique: control models whose layers it could not all weigh, if there are any."""
    rows = accuracy[accuracy["accuracy"].isna()]
    cells = rows.drop_duplicates(["technique", "model", "task", "hidden", "seed"])
    return {str(name): int(n) for name, n in cells["technique"].value_counts().items()}


def _trainings(trainings: pd.DataFrame, attempts: pd.DataFrame) -> dict[str, Any]:
    """How well the main task was learned, and how often training had to be repeated."""
    main = trainings[trainings["state"] != "frozen"]
    cell = ["model", "task", "hidden", "seed", "state"]
    tried = attempts[attempts["state"] != "frozen"].groupby(cell).size()
    weak = main[~main["learned"].astype(bool)]
    return {
        "trained": len(main),
        "repeated": int((tried > 1).sum()),
        "lowest_accuracy": float(main["accuracy"].min()),
        "auxiliary_accuracy": float(trainings["auxiliary_accuracy"].mean()),
        "not_learned": records(weak[[*cell, "accuracy"]]),
    }
