"""One result as the page shows it: JSON data, in the order in which a reader asks.

A *view* is what the page shows at a time: one seed, or all of them together (means, and for single
examples what holds in more than half of the seeds).
"""

from __future__ import annotations

import base64
import math
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from memloc.config import (
    DEFAULT_TECHNIQUES,
    PARTS,
    Localisation,
    Run,
    Settings,
    Training,
    leaves,
    settings_in,
    write_value,
)
from memloc.engine.complete import usual_techniques, usual_training
from memloc.errors import MISSING as UNKNOWN
from memloc.errors import MemlocError
from memloc.models.names import known_training
from memloc.results.folders import RunFolder, damaged, unit_of
from memloc.results.narrative import acting, facts, lead_technique, noisy_labels
from memloc.results.summary import (
    at_the_end,
    summarise_checkpoints,
    summarise_explanation,
    summarise_techniques,
)
from memloc.techniques import installed, names
from memloc.text import percent

TABLES = (
    *("layers", "windows", "examples", "history", "costs", "centroids", "trajectories", "events"),
    *("crossings", "pairs", "class_probes", "checkpoints", "checkpoint_layers"),
)
"""What the page reads whole; of the predictions, which may be long, only noisy examples."""
CURVES = (
    ("memorised", "noisy"),
    ("memorised", "clean"),
    ("memorised", "validation"),
    ("original", "validation"),
    ("frozen", "noisy"),
)
"""State and split of the learning curves."""
LOWEST, HIGHEST, STEPS, MISSING = -1.0, 2.0, 254, 255
"""Positions between two classes become bytes: 0..254, and 255 if there is none."""
MOST_POINTS = 3000
"""Of the memorisation map."""
LONGEST = 2000
"""Characters of a text."""
PICTURES = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: 0x2421,
    **dict.fromkeys((*range(0x80, 0xA0), *range(0xD800, 0xE000)), 0xFFFD),
}
"""Control characters as their pictures, so that none of them does anything."""
ALWAYS = ("data.task", "model.name", "seeds")
"""Settings that the command names even if they have their default."""

Tables = dict[str, pd.DataFrame]


class View(NamedTuple):
    """One seed, or all of them."""

    key: str
    label: str
    seeds: tuple[int, ...]

    def of(self, tables: Tables) -> Tables:
        """The rows of these seeds; tables without any are left out."""
        found = {name: rows[rows["seed"].isin(self.seeds)] for name, rows in tables.items()}
        return {name: rows for name, rows in found.items() if len(rows)}


def result_data(run: RunFolder, most: int) -> dict[str, Any]:
    """All that the page shows of one result, with at most so many single examples.

    Raises:
        ResultsError: If a file is damaged.
    """
    found = {name: _with_seed(run, run.table(name)) for name in TABLES if run.has(name)}
    tables = {name: table for name, table in found.items() if len(table)}
    try:
        data: dict[str, Any] = json_ready(_result(run, tables, most))
    # Columns and types are right, so this is for contents that contradict each other.
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise damaged(run.path, f"{type(error).__name__}: {error}") from None
    return data


def _with_seed(run: RunFolder, table: pd.DataFrame | None) -> pd.DataFrame:
    """All tables have a seed, whoever wrote them."""
    assert table is not None
    return table if run.trained else table.assign(seed=0)


def _result(run: RunFolder, tables: Tables, most: int) -> dict[str, Any]:
    # All noisy examples that some table knows, by number.
    parts = [tables[name] for name in ("examples", "crossings") if name in tables]
    noisy = pd.concat([pd.DataFrame({"example": []}), *parts]).drop_duplicates("example")
    total, noisy = len(noisy), noisy.set_index("example").sort_index().head(most)
    # The frozen model has a seed of its own, which is not one of the run.
    seeds = tuple(tables["layers"]["seed"].unique().tolist()) if "layers" in tables else (0,)
    views = [View(str(seed), f"seed {seed}", (seed,)) for seed in seeds]
    if len(seeds) > 1:
        views.insert(0, View("all", f"all {len(seeds)} seeds", seeds))
    undone = _undone(run, tables, noisy)
    data = {**_facts(run), "views": []}
    for view in views:
        single = _view(run, tables, view, whole=view is views[0])
        if len(noisy):
            single["ways"] = _ways(run, view.of(tables), noisy)
            single["undone"] = {
                name: _undone_in(rows, noisy) for name, rows in view.of(undone).items()
            }
        data["views"].append(single)
    data["examples"] = _example_columns(run, noisy) if len(noisy) else None
    data["map"] = _memorisation_map(run)
    data["made"] = _made(run, tables.get("costs"))
    some = f"Only the first {len(noisy):,}" if len(noisy) else "None"
    sentence = f"{some} of {total:,} noisy examples are on this page, to keep it small."
    data["left_out"] = [sentence] if len(noisy) < total else []
    return data


def _facts(run: RunFolder) -> dict[str, Any]:
    """Names, numbers and sentences from the summary."""
    summary = run.summary
    words = [
        summary.get("interpretation"),
        *(summary.get("findings") or []),
        (summary.get("agreement") or {}).get("words"),
        *((summary.get("explanation") or {}).get("words") or []),
    ]
    return {
        "folder": run.path.absolute().name,
        "trained": run.trained,
        "task": summary["task"] if run.trained else None,
        "model": summary["model"],
        "layers": run.n_layers,
        "part": PARTS.get(unit_of(run.settings)),
        "classes": summary.get("classes") or [],
        "n_examples": summary.get("examples"),
        "n_noisy": summary.get("noisy_examples"),
        "n_validation": summary.get("validation_examples"),
        "noisy_labels": noisy_labels(summary),
        "words": [sentence for sentence in words if sentence],
        "caveats": [
            *filter(None, [run.outdated_words]),
            *(summary.get("caveats") or []),
            *(summary.get("failures") or []),
        ],
        "figures": key_figures(summary),
    }


def _view(run: RunFolder, tables: Tables, view: View, whole: bool) -> dict[str, Any]:
    """The charts of a view; `whole` if it is the one of all seeds."""
    own = view.of(tables)
    data: dict[str, Any] = {"key": view.key, "label": view.label, "curves": _curves(tables, view)}
    if "layers" in own:
        parts = {name: own[name] for name in TABLES[:3] if name in own}
        found = summarise_techniques(parts)
        for name, one in found.items():  # it comes from single answers, which are not read here
            known = run.summary["techniques"].get(name, {}) if whole else {}
            one["m_cog_interval"] = known.get("m_cog_interval")
        data["techniques"] = [
            {"name": name, **{k: v for k, v in one.items() if k.startswith(("m_cog", "layer_"))}}
            for name, one in found.items()
        ]
        windowed = {name: one for name, one in found.items() if "full_error" in one}
        if "windows" in own:
            data["maps"] = [_map(name, one, own) for name, one in windowed.items()]
    data["explanation"] = summarise_explanation(own)
    if "checkpoints" in own:
        data["over_time"] = summarise_checkpoints(own, run.n_layers)
    return data


def _map(name: str, found: dict[str, Any], tables: Tables) -> dict[str, Any]:
    """What the windows of a technique undo, and errors of single ones beside those of θ_M."""
    windows = tables["windows"][tables["windows"]["technique"] == name]
    by_window = windows.groupby(["size", "first_layer", "last_layer"], as_index=False)
    errors = by_window[["noisy_error", "clean_error"]].mean().drop(columns="size")
    technique = installed(name)
    clean = None
    if "history" in tables:
        last = at_the_end(tables["history"]).query("state == 'memorised' and split == 'clean'")
        clean = 1 - last["accuracy"].mean()
    return {
        "technique": name,
        "about": None if technique is None else technique.about(),
        "matrix": found["undone_by_size_and_layer"],
        "tried": found["sizes_tried"],
        "undone": found["undone"],
        "own_error": found["full_error"] - found["undone"],
        "own_clean_error": clean,
        "clean_error": found["clean_error"],
        "full_clean_error": found["full_clean_error"],
        "windows": errors.to_numpy(dtype=object).tolist(),
    }


def _curves(tables: Tables, view: View) -> dict[str, Any] | None:
    """Accuracy per epoch: mean over the seeds, and the lowest and highest of them."""
    if "history" not in tables:
        return None
    history, lines = tables["history"], []
    # Of the frozen model there is one for all seeds, with a seed of its own.
    history = history[history["seed"].isin(view.seeds) | (history["state"] == "frozen")]
    end = history.loc[history["state"] != "frozen", "epoch"].max()
    # One that goes on while the others have ended is not at its end where they are at theirs.
    longer = history.groupby("state")["epoch"].transform("max") > end
    history = history[~longer]
    for state, split in CURVES:
        rows = history[(history["state"] == state) & (history["split"] == split)]
        if len(rows):
            by_seed = rows.pivot(index="epoch", columns="seed", values="accuracy")
            # Some end earlier than others.
            found = by_seed.ffill().agg(["mean", "min", "max"], axis=1)
            several = rows["seed"].nunique() > 1
            lines.append(
                {
                    "state": state,
                    "split": split,
                    "epoch": found.index.tolist(),
                    "accuracy": found["mean"].tolist(),
                    "range": [found["min"].tolist(), found["max"].tolist()] if several else None,
                }
            )
    trainings = tables["costs"].query("job == 'memorised' and seed in @view.seeds")
    known = trainings.get("memorised_epoch", ())  # of given models, nobody knows
    epochs = [None if pd.isna(one) else int(one) for one in known]
    return {"lines": lines, "near_ceiling": epochs, "end": int(end)}


def _example_columns(run: RunFolder, noisy: pd.DataFrame) -> dict[str, Any]:
    """What is the same in all views: numbers, texts, labels."""
    columns: dict[str, Any] = {"example": noisy.index.tolist()}
    if "text" not in noisy:
        return columns
    both = noisy.reindex(columns=["text", "text_pair"]).itertuples(index=False)
    texts = [" ⏐ ".join(str(part) for part in pair if not pd.isna(part)) for pair in both]
    columns["text"] = [text[:LONGEST] for text in texts]
    columns["cut"] = {str(i): len(text) for i, text in enumerate(texts) if len(text) > LONGEST}
    names = noisy.reindex(columns=["label_name", "original_label_name"])
    for column, values in names.items():
        columns[str(column).removesuffix("_name")] = values.where(values.notna(), None).tolist()
    scores = run.table("memorisation_map")
    if scores is not None:
        by_example = scores.set_index("example").reindex(noisy.index)
        columns["counterfactual"] = by_example["counterfactual_memorisation"].tolist()
    return columns


def _memorisation_map(run: RunFolder) -> dict[str, Any] | None:
    """Probability of the label of each example if it was seen, and if it was held out."""
    scores = run.table("memorisation_map")
    if scores is None:
        return None
    both = ["training_memorisation", "generalisation_score"]
    there = scores.dropna(subset=both)
    if there.empty:
        return None
    shown = there.iloc[np.unique(np.linspace(0, len(there) - 1, MOST_POINTS).astype(int))]
    found: dict[str, Any] = {"total": len(there), "shown": len(shown)}
    for group, noisy in (("clean", False), ("noisy", True)):
        rows, points = (table.loc[table["noisy"] == noisy, both] for table in (there, shown))
        for name, column in zip(("seen", "held_out"), both, strict=True):
            found.setdefault(group, {})[name] = points[column].round(3).tolist()
            found[group][f"{name}_mean"] = float(rows[column].mean())
    return found


def _ways(run: RunFolder, tables: Tables, noisy: pd.DataFrame) -> dict[str, Any]:
    """Where each example crosses, and its way through the layers."""
    found: dict[str, Any] = {}
    if "crossings" in tables:  # the (lower) median of the seeds; none where most never cross
        crossing = tables["crossings"].set_index("example")["crossing"].astype("Float64")
        layers = crossing.fillna(np.inf).astype("float64").groupby("example")
        middle = layers.quantile(0.5, interpolation="lower").reindex(noisy.index)
        found["crossing"] = [int(layer) if np.isfinite(layer) else None for layer in middle]
    if "trajectories" in tables:
        found["positions"] = {
            model: _packed_ways(rows, noisy, run.n_layers)
            for model, rows in tables["trajectories"].groupby("model", sort=False)
        }
    return found


def _packed_ways(table: pd.DataFrame, noisy: pd.DataFrame, n_layers: int) -> str:
    """Positions of all examples after all layers as bytes, examples after each other."""
    means = table.pivot_table(index="example", columns="layer", values="position")
    ways = means.reindex(index=noisy.index, columns=range(1, n_layers + 1)).to_numpy()
    share = (np.clip(ways, LOWEST, HIGHEST) - LOWEST) / (HIGHEST - LOWEST)
    steps = np.where(np.isfinite(share), np.rint(share * STEPS), MISSING)
    return _packed(steps.astype(np.uint8))


def _undone(run: RunFolder, tables: Tables, noisy: pd.DataFrame) -> Tables:
    """By technique, for every window, example and seed: is the label as trained undone?"""
    if "examples" not in tables or not len(noisy) or not run.has("predictions"):
        return {}
    predictions = _with_seed(run, run.table("predictions", examples=noisy.index.tolist()))
    keys = ["seed", "technique", "example"]
    rows = predictions.merge(tables["examples"][[*keys, "memorised", "label"]], on=keys)
    rows["undone"] = rows["memorised"] & (rows["predicted"] != rows["label"])
    rows["size"] = rows["last_layer"] - rows["first_layer"] + 1
    return {str(name): found for name, found in rows.groupby("technique", sort=False)}


def _undone_in(rows: pd.DataFrame, noisy: pd.DataFrame) -> dict[str, Any]:
    """Bits per window and example, and the first (smallest, lowest) window of each example.

    Of several seeds, what holds in more than half of them.
    """
    n_seeds = rows["seed"].nunique()
    by_window = rows.groupby(["size", "first_layer", "last_layer", "example"])["undone"].sum()
    counts = by_window.unstack("example").reindex(columns=noisy.index)
    wrong = 2 * counts.to_numpy() > n_seeds
    own = rows.drop_duplicates(["seed", "example"]).groupby("example")["memorised"].sum()
    memorised = 2 * own.reindex(noisy.index).to_numpy() > n_seeds
    return {
        "windows": [[first, last] for _, first, last in counts.index],
        "bits": _packed(np.packbits(wrong, axis=1, bitorder="little")),
        "smallest": np.where(wrong.any(axis=0), wrong.argmax(axis=0), -1).tolist(),
        "memorised": _packed(np.packbits(memorised, bitorder="little")),
    }


def _packed(array: np.ndarray) -> str:
    """Bytes as they can stand in JSON."""
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")


def _made(run: RunFolder, costs: pd.DataFrame | None) -> dict[str, Any]:
    """How the result was made, and how to make it again."""
    command = None  # if an older memloc had other settings
    with suppress(MemlocError):
        command = command_of(run.settings, run.trained, run.path)
    jobs = []
    for job, rows in () if costs is None else costs.groupby("job", sort=False):
        memory = rows["peak_memory_bytes"].max() if "peak_memory_bytes" in rows else math.nan
        megabytes = None if math.isnan(memory) else round(memory / 2**20)
        seconds = float(rows["seconds"].sum())
        jobs.append({"job": job, "times": len(rows), "seconds": seconds, "megabytes": megabytes})
    again = f"memloc report {shlex.quote(str(run.path))}"
    return {
        "memloc": run.summary.get("memloc"),
        "versions": run.summary.get("versions") or {},
        "written": run.written,
        "seeds": run.settings["seeds"] if run.trained else [0],
        "settings": [
            (path, "–" if value in (None, {}) else write_value(value))
            for path, value in leaves(run.settings)
        ],
        "command": command,
        "report": "result.report(…)" if run.settings.get("in_memory") else again,
        "costs": jobs,
    }


def command_of(settings: Mapping[str, Any], trained: bool, folder: Path | None = None) -> str:
    """`memloc run ...` or `memloc localise ...`, with every setting that is not a default.

    Task, model and seeds of a run are always named.
    """
    if settings.get("in_memory"):
        return "memloc.localise(…)  # in Python, with models in memory"
    if trained:
        words = ["memloc", "run", *_options(Run(**settings))]
        # The folder may be "." or "..", which have no parent by name.
        runs = Path("runs") if folder is None else Path(os.path.normpath(folder / ".."))
        words += [] if runs == Path("runs") else ["--runs", str(runs)]
    else:
        words = ["memloc", "localise", *_options(Localisation(**settings))]
        words += ["--out", "OUT" if folder is None else str(folder)]
    return " ".join(map(shlex.quote, words))


def _options(settings: Run | Localisation) -> Iterator[str]:
    group: Any = type(settings)
    if isinstance(settings, Run):
        start, usual_names = settings.model.name, list(DEFAULT_TECHNIQUES)
        training = usual_training(start, settings.checkpoints is not None)
    else:
        start, usual_names = settings.pretrained or "", usual_techniques(settings.pretrained)
        training = known_training(start)
    usual = group.model_construct(training=Training(**training))
    for setting in settings_in(group):
        value = _at(settings, setting.path, UNKNOWN)  # in a group that was left out
        if setting.path == "techniques" or value is UNKNOWN:
            continue
        if setting.path not in ALWAYS and value == _at(usual, setting.path, setting.default):
            continue
        if setting.is_switch and setting.default is None:
            yield f"--no-{setting.path}" if value is False else f"--{setting.path}"
        else:
            short = None if setting.is_switch else setting.option
            yield from _option(short or f"--{setting.path}", value)
    chosen = [name for name in settings.techniques if name not in names("explanation")]
    if chosen != usual_names:
        yield from _option("--techniques", chosen)
    for name, given in settings.techniques.items():
        known = installed(name)
        defaults: dict[str, Any] = {}
        if known is not None:
            own = known().suited_to(start, settings.training)
            defaults = own.config.model_dump(mode="json")
        for key, value in given.items():
            if key not in defaults or value != defaults[key]:
                yield from _option(f"--{name}.{key}", value)


def _at(settings: Settings, path: str, otherwise: Any) -> Any:
    try:
        return attrgetter(path)(settings)
    except AttributeError:
        return otherwise


def _option(flag: str, value: Any) -> list[str]:
    text = write_value(value)
    return [f"{flag}={text}"] if text.startswith("-") else [flag, text]


def key_figures(summary: dict[str, Any]) -> list[dict[str, str]]:
    """Label, value and meaning of what a reader asks first; only what is known."""
    training = summary.get("training") or {}
    original = training.get("original_validation_accuracy")
    twin = "" if original is None else f" A twin trained on the original labels has {original:.0%}."
    events = ((summary.get("explanation") or {}).get("events") or {}).get("memorised") or {}
    crossing = (events.get("crossing") or {}).get("layer")
    figures = [
        (
            "memorised",
            percent(summary.get("memorised_share")),
            f"Share of the {summary.get('noisy_examples')} {noisy_labels(summary)} that the "
            "fine-tuned model gives. Near 100%: it has learned them by heart.",
        ),
        (
            "validation accuracy",
            percent(training.get("validation_accuracy")),
            "Share of unseen examples it gets right although some of its training labels were "
            f"wrong.{twin}",
        ),
        (
            "generalisation score",
            percent((summary.get("scores") or {}).get("generalisation_score")),
            "Share of training examples whose label models that were not trained on them find "
            "more likely than by guessing.",
        ),
        *(_localisation(summary) if summary["techniques"] else []),
        (
            "crossing",
            None if crossing is None else f"layer {crossing:.1f}".removesuffix(".0"),
            "The layer after which noisy examples are on average nearer to their new class than "
            "to their old one.",
        ),
    ]
    return [
        {"label": label, "value": value, "meaning": meaning}
        for label, value, meaning in figures
        if value is not None
    ]


def _localisation(summary: dict[str, Any]) -> list[tuple[str, str | None, str]]:
    name = lead_technique(summary)
    does = acting(name, summary["techniques"][name])
    meanings = {
        "centre of gravity": f"M-CoG by {name}: the mean layer, weighted by how much it matters. "
        f"{(summary['layers'] + 1) / 2:g} would be the middle. Beside it, the range in which it "
        "can lie: windows of many layers contain every layer.",
        "strongest single layer": f"What {does} this layer alone undoes, of all that {does} every "
        "layer undoes.",
        "smallest window for 95%": "The fewest adjacent layers of those tried that undo nearly "
        f"all that {does} every layer undoes. If smaller sizes were not tried, beside it is how "
        "few it could be.",
        "examples one layer undoes": "Share of the memorised examples that a single layer undoes.",
        "undone by all layers": f"Share of the {noisy_labels(summary)} that {does} every layer "
        "undoes; other shares are relative to it.",
        "clean labels lost": f"Mean share of clean examples that {name} breaks. Near 0%: what it "
        "undoes is memorisation, not knowledge of the task.",
        "clean labels wrong": f"Mean share of clean examples that are wrong after {name}, those "
        "included that were wrong before.",
    }
    return [(title, value, meanings[title]) for title, value in facts(summary, name).items()]


def json_ready(value: Any) -> Any:
    """With short numbers, null for what is not finite, and no control characters."""
    if isinstance(value, dict):
        return {json_ready(str(key)): json_ready(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [json_ready(one) for one in value]
    if isinstance(value, str):
        return value.translate(PICTURES)
    if isinstance(value, float):
        short = round(value, 4) if math.isfinite(value) else None
        return int(short) if short is not None and short.is_integer() else short
    return value
