"""`memloc.localise`: models that are already fine-tuned, in memory."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from torch import nn

import memloc
from memloc.analysis.windows import chosen_windows
from memloc.api.arguments import COLUMNS, group_of, in_words, progress_of, spoken
from memloc.api.possible import sort_out
from memloc.api.prepared import Opened, opened, training_of
from memloc.api.result import NO_OLD_CLASS, Result
from memloc.api.running import Techniques
from memloc.api.tabular import Data, Values, given_examples
from memloc.config import DEFAULT_TECHNIQUES, PairFormat, TechniqueSettings, Training, Windows
from memloc.engine.complete import choose_techniques
from memloc.engine.experiment import with_texts
from memloc.engine.job import Job, peak_memory
from memloc.engine.loop import Failure
from memloc.engine.progress import Progress
from memloc.errors import MemlocError
from memloc.results.summary import finish, summarise_methods
from memloc.techniques import (
    Circumstances,
    Technique,
    check_unit,
    make_usable,
    possible_explanations,
    settings_of,
)
from memloc.techniques.base import Context, Tables

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def localise(
    *,
    memorised: nn.Module,
    original: nn.Module | None = None,
    pretrained: nn.Module | str | Path | None = None,
    near_ceiling: nn.Module | None = None,
    tokenizer: PreTrainedTokenizerBase,
    data: Data | None = None,
    text: Values | None = "text",
    pair: Values | None = None,
    label: Values | None = "label",
    original_label: Values | None = None,
    suspects: Values | None = None,
    pairs: PairFormat = "native",
    blocks: str | None = None,
    training: Training | Mapping[str, Any] | None = None,
    seed: int = 1,
    techniques: Techniques | None = None,
    windows: Windows | Mapping[str, Any] | None = None,
    cache_memory: str | int | None = None,
    explain: bool | None = None,
    progress: bool | Progress = True,
) -> Result:
    """Which layers of a fine-tuned classifier hold the wrong labels it has learned?

    The models are used where they are, on their device and in their precision; none is copied, and
    all are left as they were. Techniques that lack something (a model, enough examples) are left
    out; `Result.skipped` says why. Nothing is written to disk.

    Args:
        memorised: θ_M, fine-tuned on the labels in the data, the wrong ones included. A
            `transformers` sequence classifier, also inside `peft`, `torch.compile` or data-parallel
            wrappers.
        original: θ_O, fine-tuned the same way on correct labels; swapping needs it.
        pretrained: θ_P, the model before fine-tuning, or its name; retraining, gradients and
            probing need it.
        near_ceiling: θ_M1, `memorised` when it had just learned the labels, for gradients.
        tokenizer: Of all models.
        data: A data frame, a `datasets.Dataset`, lists by column name, a list of dicts, or a file.
        text: Column with the text, or the texts. The same holds for the next four.
        pair: Second texts.
        label: Labels as `memorised` was trained on them: whole numbers are the numbers of its
            classes, texts are their names.
        original_label: The correct labels.
        suspects: Instead of `original_label`: True where a label may be wrong, while the correct
            one is unknown.
        pairs: native: the tokeniser's way of encoding two texts; joined: one text, the paper's.
        blocks: Path of the layer stack, if it is ambiguous.
        training: For retraining windows, and for the head that is put on `pretrained`: a
            `memloc.Training`, or a dict; what it does not say is what suits the model.
        seed: Chooses clean examples, and the order of retraining.
        techniques: Names or techniques with their settings, such as
            `["swapping", memloc.Retraining(epochs=3)]`; None takes the usual four.
        windows: Which windows of layers are changed: a `memloc.Windows`, or a dict.
        cache_memory: States that retraining keeps in memory, such as "2GB"; more go to a temporary
            file.
        explain: Follow noisy examples through the layers; None: if it is possible.
        progress: Show how far it is.

    Example:
        >>> result = memloc.localise(
        ...     memorised=model_m, original=model_o, tokenizer=tok, data=df, original_label="gold",
        ...     techniques="swapping", progress=False,
        ... )
        >>> result.layers.columns.tolist()
        ['technique', 'layer', 'weight', 'spread']
        >>> 1 <= result.mcog("swapping") <= 3
        True

    Raises:
        MemlocError: If models, tokeniser and data do not fit each other, or no technique is
            possible.
    """
    with spoken(names=COLUMNS):
        settings_by_name = choose_techniques(techniques, {}, DEFAULT_TECHNIQUES)
        changed = Windows(**group_of(Windows, windows, "windows"))
        chosen, broken = make_usable(settings_by_name)
        shown = progress_of(progress)
        trained = training_of(pretrained, training)
        examples = given_examples(data, text, pair, label, original_label, suspects)
        roles = {"memorised": memorised, "original": original, "near_ceiling": near_ceiling}
        with opened(
            roles,
            pretrained,
            tokenizer,
            examples,
            pairs,
            blocks,
            trained,
            seed,
            cache_memory,
            changed,
        ) as found:
            chosen_windows(found.context.n_layers, changed.sizes)
            check_unit(chosen, changed.unit, found.context.model("memorised").unit_problem)
            possible, skipped = sort_out(chosen, found)
            explanations, unexplained = _explanations(explain, found, settings_by_name)
            left_out = (f"no {name}: {why}" for name, why in skipped.items())
            for sentence in (*found.cautions, *broken, *left_out):
                shown.note(in_words(sentence))
            tables, failures = _compute(found, [*possible, *explanations], shown)
        settings = _settings(found, trained, changed, seed, possible, explain, pairs, blocks)
        return _result(
            found, tables, possible, settings, skipped, [*broken, *failures], unexplained
        )


def _explanations(
    explain: bool | None, found: Opened, techniques: TechniqueSettings
) -> tuple[list[Technique], list[str]]:
    if explain is False or not found.suspected:
        there = Circumstances(found.context.examples, found.pooling)
        return possible_explanations(explain, there, techniques)
    if explain:
        raise MemlocError(f"--explain is not possible: {NO_OLD_CLASS}")
    return [], [NO_OLD_CLASS]


def _compute(
    found: Opened, techniques: Sequence[Technique], progress: Progress
) -> tuple[Tables, list[str]]:
    """All tables; a technique that fails leaves a sentence, unless all do."""
    context = found.context
    # Described as jobs so that they are shown like those of `memloc run`; they are never stored.
    jobs = [
        Job("localise", one.name, {"in_memory": one.name}, cost=_cost(one, context))
        for one in techniques
    ]
    gathered: dict[str, list[pd.DataFrame]] = {}
    costs, failures = [], []
    with progress.showing(jobs):
        for job, technique in zip(jobs, techniques, strict=True):
            name = technique.name
            progress.start(job)
            started = time.perf_counter()
            try:
                tables, spent = technique.compute(context, partial(progress.advance, job))
            except MemlocError as error:
                failures.append(in_words(f"{name} failed: {error}"))
                progress.fail(job, Failure.of(job, error))
                continue
            progress.finish(job)
            seconds = round(time.perf_counter() - started, 3)
            block_passes = spent.get("block_passes")
            costs.append({"job": name, "seconds": seconds, "block_passes": block_passes})
            for table, rows in tables.items():
                gathered.setdefault(table, []).append(rows)
    if "layers" not in gathered:
        raise MemlocError(failures[0])
    all_tables = {
        name: pd.concat([rows for rows in of_name if len(rows)] or of_name[:1], ignore_index=True)
        for name, of_name in gathered.items()
    }
    if "examples" in all_tables:
        all_tables["examples"] = with_texts(all_tables["examples"], context.examples, found.labels)
    # Peak memory of the process, the user's own part included.
    all_tables["costs"] = pd.DataFrame(costs).assign(
        memorised_epoch=None, peak_memory_bytes=peak_memory()
    )
    return all_tables, failures


def _cost(technique: Technique, context: Context) -> float:
    """All windows of a technique are one job here."""
    n_layers, cost = context.n_layers, technique.cost(context.n_layers)
    if technique.windowed:
        windows = chosen_windows(n_layers, context.windows.sizes)
        cost += sum(technique.window_cost(n_layers, window) for window in windows)
    return cost


def _settings(
    found: Opened,
    training: Training,
    windows: Windows,
    seed: int,
    techniques: Sequence[Technique],
    explain: bool | None,
    pairs: str,
    blocks: str | None,
) -> dict[str, Any]:
    """As JSON data; what was in memory has no name."""
    there = dict.fromkeys(found.precisions, f"{found.architecture} in memory")
    return {
        **{role: there.get(role) for role in ("memorised", "original", "pretrained")},
        "data": "in memory",
        "in_memory": True,
        "precision": str(found.precisions["memorised"]).removeprefix("torch."),
        "pairs": pairs,
        "blocks": blocks,
        "training": training.model_dump(),
        "seed": seed,
        "techniques": settings_of(techniques),
        "windows": windows.model_dump(mode="json"),
        "explain": explain,
        "suspects": found.suspected,
    }


def _result(
    found: Opened,
    tables: Tables,
    techniques: Sequence[Technique],
    settings: dict[str, Any],
    skipped: dict[str, str],
    failures: list[str],
    unexplained: Sequence[str],
) -> Result:
    examples = found.context.examples
    noisy = int(examples["noisy"].sum())
    summary: dict[str, Any] = {
        "memloc": memloc.__version__,
        "model": found.architecture,
        "classes": list(found.labels),
        "layers": found.context.n_layers,
        "examples": len(examples),
        "noisy_examples": noisy,
        "memorised_examples": found.memorised,
        "memorised_share": found.memorised / noisy,
        "methods": summarise_methods(
            tables, {one.name: one.all_settings(found.context.windows) for one in techniques}
        ),
        "failures": failures,
        "near_ceiling_known": "near_ceiling" in found.precisions,
        "skipped": {name: in_words(why) for name, why in skipped.items()},
    }
    finish(summary, tables, unexplained)
    left_out = [f"{name.capitalize()} was left out: {why}." for name, why in skipped.items()]
    sentences = (*found.cautions, *summary["caveats"], *left_out)
    summary["caveats"] = [in_words(words) for words in sentences]
    return Result(tables, summary, settings)
