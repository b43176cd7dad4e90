"""`memloc.localise` and `memloc.prepare`: models that are already fine-tuned, in memory."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from memloc.analysis.windows import chosen_windows
from memloc.api.arguments import (
    COLUMNS,
    Techniques,
    as_arguments,
    checked_seed,
    group_of,
    progress_of,
)
from memloc.api.models import (
    adapter_parameters,
    check_distinct,
    check_pairs,
    check_role,
    check_words,
    dtype_of,
    ensure_padding,
    load_pretrained,
    make_codec,
    open_model,
    padding_caution,
    unwrap,
)
from memloc.api.restored import own_settings, restored
from memloc.api.result import NO_OLD_CLASS, Result
from memloc.api.tabular import Data, Values, given_examples
from memloc.config import (
    DEFAULT_TECHNIQUES,
    Engine,
    PairFormat,
    TechniqueSettings,
    Training,
    Windows,
)
from memloc.data.encode import Encoded, encode
from memloc.engine.complete import choose_techniques
from memloc.engine.experiment import Findings, TableParts
from memloc.engine.given import class_names, class_numbers
from memloc.engine.job import Job, peak_memory
from memloc.engine.loop import Failure
from memloc.engine.plan import FROZEN_SEED
from memloc.engine.progress import Progress
from memloc.errors import DataError, MemlocError
from memloc.models.blocks import BlockModel
from memloc.models.names import Role, StatesOf, known_training
from memloc.models.states import predict_logits, states_of
from memloc.results.summary import summarise
from memloc.techniques import (
    Circumstances,
    Technique,
    check_unit,
    make_usable,
    possible_explanations,
    settings_of,
)
from memloc.techniques.base import CACHE_MEMORY, Context, Tables, TechniqueFailed
from memloc.training.learners import HeadOnly
from memloc.training.loop import TrainingData, fine_tune

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

WORDS = {
    "original": "the model of the correct labels (original)",
    "pretrained": "the model before fine-tuning (pretrained)",
    "frozen": "the model before fine-tuning (pretrained)",
}
_SWAPPED = ("bottom_swapped", "top_swapped")


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
    with as_arguments(COLUMNS):
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
            absent = [f"no {name}: {why}" for name, why in skipped.items()]
            for sentence in (*found.cautions, *broken, *absent):
                shown.note(sentence)
            tables, failures = _compute(found, [*possible, *explanations], shown)
        noisy = int(found.context.examples["noisy"].sum())
        findings = Findings(
            "localise",
            "localise",
            tables,
            _settings(found, trained, changed, seed, possible, explain, pairs, blocks),
            {
                "model": found.architecture,
                "classes": list(found.labels),
                "layers": found.context.n_layers,
                "examples": len(found.context.examples),
                "noisy_examples": noisy,
                "memorised_examples": found.memorised,
                "memorised_share": found.memorised / noisy,
                "near_ceiling_known": "near_ceiling" in found.precisions,
                "skipped": skipped,
            },
            techniques={one.name: one.all_settings(changed) for one in possible},
            failures=[*broken, *failures],
            unexplained=unexplained,
        )
        summary = summarise(findings)
        left_out = [f"{name.capitalize()} was left out: {why}." for name, why in skipped.items()]
        sentences = (*found.cautions, *summary["caveats"], *left_out)
        summary["caveats"] = list(sentences)
        return Result(tables, summary, findings.settings)


def _explanations(
    explain: bool | None, found: Opened, techniques: TechniqueSettings
) -> tuple[list[Technique], list[str]]:
    if explain is False or not found.suspected:
        there = Circumstances(found.context.examples, found.pooling)
        return possible_explanations(explain, there, techniques)
    if explain:
        remedy = "give original_label, or do not ask for explanations"
        raise MemlocError(NO_OLD_CLASS, setting="explain", value=explain, remedy=remedy)
    return [], [NO_OLD_CLASS]


def _compute(
    found: Opened, techniques: Sequence[Technique], progress: Progress
) -> tuple[Tables, list[str]]:
    """All tables; a technique that fails leaves a sentence, unless all do."""
    context, parts = found.context, TableParts("localise")
    # Described as jobs so that they are shown like those of `memloc run`; they are never stored.
    jobs = [
        Job("localise", one.name, {"in_memory": one.name}, cost=_cost(one, context))
        for one in techniques
    ]
    costs, failures = [], []
    with progress.showing(jobs):
        for job, technique in zip(jobs, techniques, strict=True):
            progress.start(job)
            started = time.perf_counter()
            try:
                tables, spent = technique.compute(context, partial(progress.advance, job))
            except MemlocError as error:
                failures.append(f"{technique.name} failed: {error}")
                progress.fail(job, Failure.of(job, error))
                continue
            progress.finish(job)
            seconds = round(time.perf_counter() - started, 3)
            passes = spent.get("block_passes")
            costs.append({"job": technique.name, "seconds": seconds, "block_passes": passes})
            for name, rows in tables.items():
                parts.add(name, rows)
    if "layers" not in parts.parts:
        raise MemlocError(failures[0])
    parts.add_texts(context.examples, found.labels)
    # Peak memory of the process, the user's own part included.
    memory = {"memorised_epoch": None, "peak_memory_bytes": peak_memory()}
    parts.add("costs", pd.DataFrame(costs).assign(**memory))
    return parts.joined(), failures


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


def sort_out(
    techniques: Sequence[Technique], found: Opened
) -> tuple[list[Technique], dict[str, str]]:
    """The possible techniques, and for each of the others a reason.

    Raises:
        MemlocError: If none is possible.
    """
    precisions = {
        role: str(dtype).removeprefix("torch.") for role, dtype in found.precisions.items()
    }
    there = Circumstances(found.context.examples, found.pooling, precisions, found.adapters)
    reasons = {one.name: _missing_model(one, found) or one.obstacle(there) for one in techniques}
    skipped = {name: reason for name, reason in reasons.items() if reason}
    possible = [one for one in techniques if one.name not in skipped]
    if not possible:
        words = "; ".join(f"{name}: {reason}" for name, reason in skipped.items())
        raise MemlocError(f"no technique is possible: {words}")
    return possible, skipped


def _missing_model(technique: Technique, found: Opened) -> str | None:
    """The halves that are swapped are of θ_O."""
    for need in technique.needed:
        role = need.removeprefix("states:")
        role = "original" if role in _SWAPPED else role
        if role in WORDS and role not in found.roles:
            switch = technique.needs_if.get(need)
            unless = f" unless {technique.name}.{switch} is false" if switch else ""
            return f"{WORDS[role]} was not given but is needed{unless}"
    return None


@contextmanager
def prepare(
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
    windows: Windows | Mapping[str, Any] | None = None,
    seed: int = 1,
    cache_memory: str | int | None = None,
) -> Iterator[Context]:
    """Models and data in the form that techniques take; arguments as for `localise`.

    Inside the ``with`` the models belong to memloc; afterwards they are as they were.

    Example:
        >>> models = {"memorised": model_m, "original": model_o}
        >>> with memloc.prepare(
        ...     **models, tokenizer=tok, data=df, original_label="gold", windows={"sizes": [1]}
        ... ) as context:
        ...     found = memloc.Swapping().localise(context)
        >>> found.windows["size"].tolist()
        [1, 1, 1, 3]

    Raises:
        MemlocError: If models, tokeniser and data do not fit each other.
    """
    with as_arguments(COLUMNS):
        trained = training_of(pretrained, training)
        changed = Windows(**group_of(Windows, windows, "windows"))
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
            yield found.context


@dataclass(frozen=True)
class Opened:
    """What was found in the models."""

    context: Context
    labels: tuple[str, ...]
    roles: frozenset[str]
    """Of the models there are."""
    memorised: int
    """Noisy examples that θ_M answers with the label it was trained on."""
    pooling: str
    architecture: str
    adapters: bool
    """Whether some adapters are not merged into the weights."""
    precisions: dict[str, torch.dtype]
    """By role."""
    cautions: tuple[str, ...] = ()
    """What may be wrong with the input, in sentences."""

    @property
    def suspected(self) -> bool:
        """Whether labels may be wrong, but correct ones are unknown."""
        return "original_label" not in self.context.examples.columns


def training_of(pretrained: Any, training: Any) -> Training:
    """How windows are retrained and a head is put on θ_P: what suits it, unless it was given."""
    known = known_training(str(pretrained)) if isinstance(pretrained, str | Path) else {}
    return Training(**{**known, **group_of(Training, training, "training")})


@contextmanager
def opened(
    models: dict[str, Any],
    pretrained: Any,
    tokenizer: Any,
    examples: pd.DataFrame,
    pairs: PairFormat,
    blocks: str | None,
    training: Training,
    seed: int,
    cache_memory: str | int | None,
    windows: Windows | None = None,
) -> Iterator[Opened]:
    """Open the models and check everything; all is restored at the end, also after Ctrl-C.

    Args:
        models: memorised, original and near_ceiling; None where there is none.
        pretrained: θ_P, its name, or None.
        tokenizer: Of all models.
        examples: From `given_examples`.
        pairs: How two texts are encoded.
        blocks: Path of the layer stack.
        training: Settings.
        seed: For clean examples to compare with, and for retraining.
        cache_memory: Upper limit of states that are kept in memory.
        windows: Which windows of layers are changed.
    """
    memory = Engine(cache_memory=cache_memory).cache_memory
    memory, seed = CACHE_MEMORY if memory is None else memory, checked_seed(seed)
    check_pairs(pairs)
    found = {
        role: unwrap(model, role)
        for role, model in models.items()
        if model is not None or role == "memorised"
    }
    by_name = isinstance(pretrained, str | Path)
    if pretrained is not None and not by_name:
        found["pretrained"] = unwrap(pretrained, "pretrained")
    check_distinct(found)
    caution = padding_caution(found["memorised"], tokenizer)
    with ExitStack() as undo:
        undo.enter_context(restored(list(found.values()), tokenizer))
        device = next(found["memorised"].parameters(), torch.empty(0)).device
        undo.enter_context(own_settings(device))
        for model in found.values():
            ensure_padding(model, tokenizer)
        own = open_model(found["memorised"], "memorised", blocks)
        codec = make_codec(tokenizer, own, training.max_tokens)
        layers: dict[str, BlockModel] = {"memorised": own}
        for role, model in found.items():
            if role != "memorised":
                layers[role] = open_model(model, role, blocks)
                make_codec(tokenizer, layers[role], training.max_tokens)
        if by_name:
            layers["pretrained"] = load_pretrained(
                pretrained, len(class_names(own)), blocks, device, training.max_tokens
            )
            make_codec(tokenizer, layers["pretrained"], training.max_tokens)
        for role, other in layers.items():
            if role != "memorised":
                check_role(own, other, role)
        labels = class_names(own)
        examples = number_labels(examples, own)
        encoded = encode(examples, codec, pairs)
        check_words(encoded, tokenizer)
        examples, memorised = _answers(examples, encoded, layers, labels)
        roles = frozenset({*layers, *({"frozen"} if "pretrained" in layers else ())})
        context = _context(layers, examples, encoded, training, seed, memory, windows, undo)
        yield Opened(
            context,
            tuple(labels),
            roles,
            memorised,
            own.pooling,
            type(own.model).__name__,
            any(adapter_parameters(model.model) for model in layers.values()),
            {role: dtype_of(model) for role, model in layers.items()},
            () if caution is None else (caution,),
        )


def number_labels(examples: pd.DataFrame, model: BlockModel) -> pd.DataFrame:
    """Labels as the model's class numbers; `noisy` where they differ from the original ones.

    Raises:
        DataError: If the model has no such class, or no label is wrong, or every one.
    """
    numbered = examples.copy()
    for column in ("label", "original_label"):
        if column in examples.columns:
            numbered[column] = class_numbers(examples[column], model, column, "data")
    if "noisy" not in numbered.columns:
        noisy = numbered["label"] != numbered["original_label"]
        if not noisy.any():
            raise DataError(
                "no label differs from its original label, so there is nothing to localise; "
                "label must hold the labels that memorised was trained on"
            )
        if noisy.all():
            raise DataError(
                f"all {len(noisy)} labels differ from their original labels; clean ones are needed "
                "to compare with, so check original_label"
            )
        numbered["noisy"] = noisy
    return numbered


def _answers(
    examples: pd.DataFrame,
    encoded: Encoded,
    layers: dict[str, BlockModel],
    labels: list[str],
) -> tuple[pd.DataFrame, int]:
    """How much is memorised; and what θ_O answers, where correct labels are unknown."""
    rows = np.flatnonzero(examples["noisy"].to_numpy())
    noisy = Encoded([encoded.rows[row] for row in rows], encoded.pad_id)
    known = predict_logits(layers["memorised"], noisy).argmax(axis=1)
    memorised = int((known == examples["label"].to_numpy()[rows]).sum())
    if "original_label" not in examples.columns and "original" in layers:
        answers = predict_logits(layers["original"], noisy).argmax(axis=1)
        column = pd.Series([None] * len(examples), dtype=object)
        column.iloc[rows] = [labels[answer] for answer in answers]
        examples = examples.assign(original_answer=column)
    return examples, memorised


def _context(
    layers: dict[str, BlockModel],
    examples: pd.DataFrame,
    encoded: Encoded,
    training: Training,
    seed: int,
    memory: int,
    windows: Windows | None,
    undo: ExitStack,
) -> Context:
    layers = {"near_ceiling": layers["memorised"], **layers}

    @cache
    def frozen() -> BlockModel:
        """θ_P whose head has learned the labels; the head gets its weights back at the end."""
        model = model_of("pretrained")
        undo.enter_context(model.preserved(model.groups.head))
        labels, noisy = (examples[c].to_numpy(copy=True) for c in ("label", "noisy"))
        nothing = Encoded([], encoded.pad_id)
        target = TrainingData(labels, noisy, np.empty(0, dtype=np.int64))
        fine_tune(HeadOnly(model, encoded, nothing), target, training, FROZEN_SEED)
        return model

    def model_of(role: Role) -> BlockModel:
        if role == "frozen":
            return frozen()
        if role not in layers:
            raise TechniqueFailed(f"this needs {WORDS[role]}, which was not given")
        return layers[role]

    @cache
    def states(of: StatesOf) -> Tensor:
        return states_of(of, model_of, encoded)

    return Context(
        examples,
        lambda: encoded,
        model_of,
        states,
        layers["memorised"].n_layers,
        seed=seed,
        training=training,
        windows=windows or Windows(),
        cache_memory=memory,
        has_original="original" in layers,
    )
