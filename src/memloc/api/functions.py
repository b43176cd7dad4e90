"""The functions of `import memloc`: whole experiments, models in memory, and single steps."""

from __future__ import annotations

import hashlib
import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np
import pandas as pd
from torch import nn

from memloc import config
from memloc.analysis.windows import chosen_windows
from memloc.api import experiments
from memloc.api.in_memory import (
    Data,
    Values,
    as_frame,
    check_distinct,
    check_words,
    given_examples,
    listed,
    open_model,
    padding_caution,
    restored,
    unwrap,
)
from memloc.api.repair import Repaired, repair_result
from memloc.api.result import Result
from memloc.config import (
    AUTO,
    DEFAULT_TECHNIQUES,
    Candidate,
    Columns,
    Device,
    Engine,
    Generalisation,
    Model,
    PairFormat,
    Seed,
    Settings,
    Training,
    Windows,
)
from memloc.data import noise as noise_of
from memloc.data.encode import Encoded, encode
from memloc.data.files import SUGGESTED_LABEL_COLUMN, labelled_examples
from memloc.data.task import Task
from memloc.engine.collect import TableParts
from memloc.engine.complete import choose_techniques, complete_run
from memloc.engine.experiment import Findings
from memloc.engine.given import (
    ABSENT,
    ROLES,
    Given,
    class_numbers,
    examine,
    possible_techniques,
)
from memloc.engine.job import Failure, Job, peak_memory
from memloc.engine.plan import FROZEN_SEED
from memloc.engine.progress import Progress
from memloc.errors import ConfigError, DataError, MemlocError, ModelError, StoreError
from memloc.models.blocks import BlockModel
from memloc.models.load import Classifier, codec_of, load_classifier
from memloc.models.names import Role, known_training, resolve
from memloc.report.progress_view import make_progress
from memloc.results.summary import summarise
from memloc.techniques import (
    Technique,
    check_possible,
    make_techniques,
    possible_explanations,
    settings_of,
)
from memloc.techniques.base import CACHE_MEMORY, Context, Tables, TechniqueFailed
from memloc.training import loop
from memloc.training.learners import Learner, TailOnly
from memloc.training.loop import TrainingData

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Techniques = str | Iterable["str | Technique"] | Mapping[str, Mapping[str, Any]]
"""Names, technique objects, or settings by name."""
_ARGUMENTS = {"data.task": "task", "model.name": "model"}
"""Settings that are arguments of their own; all others are called like their group."""
_COLUMNS = {f"data.{role}_column": role for role in ("text", "pair", "label", "original_label")}
"""Settings that are arguments of their own, except in `run`."""


class _Asked(Settings):
    """What can be set where models are in memory."""

    pairs: PairFormat = "native"
    blocks: str | None = None
    training: Training = Training()
    seed: Seed = 1
    windows: Windows = Windows()


@contextmanager
def as_arguments(names: Mapping[str, str]) -> Iterator[None]:
    """Errors inside name arguments; `names` are those that are not called like their setting."""
    try:
        yield
    except MemlocError as error:
        if error.setting is not None:
            error.setting = names.get(error.setting, error.setting.removeprefix("engine."))
        raise


def as_progress(progress: bool | Progress) -> Progress:
    """A table in a terminal and, with ipywidgets, in a notebook; otherwise lines."""
    if isinstance(progress, Progress):
        return progress
    return make_progress() if progress else Progress()


# --- the whole experiment -----------------------------------------------------------------------


def run(
    model: str | Path | Model = "minilm",
    task: Data = "questions",
    *,
    validation: Data | None = None,
    data: config.Data | Mapping[str, Any] | None = None,
    training: Training | Mapping[str, Any] | None = None,
    seeds: int | str | Sequence[int] = 1,
    techniques: Techniques | None = None,
    windows: Windows | Mapping[str, Any] | None = None,
    explain: bool | None = None,
    generalisation: bool | Generalisation | Mapping[str, Any] = False,
    checkpoints: int | str | None = None,
    device: Device = "auto",
    runs: str | Path = "runs",
    workers: int | None = None,
    cache_memory: str | int | None = None,
    low_memory: bool = False,
    save_every: float = 10.0,
    progress: bool | Progress = True,
) -> Result:
    """Flip labels, fine-tune, and find the layers that hold the flipped labels.

    The same as `memloc run`, with the same numbers. What was computed before is reused; after an
    interruption, the same call goes on. `memloc settings` lists all settings.

    Args:
        model: A name from `memloc models list`, a hub name, a directory, or a `memloc.Model`.
        task: A built-in task, a task of the paper, a file, a data frame, a `datasets.Dataset`,
            lists by column name such as `{"text": […], "label": […]}`, or a list of dicts.
        validation: Validation examples; by default a fifth of the others is set aside.
        data: Columns, number of examples, label noise: a `memloc.Data`, or a dict of its settings.
        training: A `memloc.Training`, or a dict; what it does not say is what suits the model.
        seeds: Model seeds.
        techniques: Names or techniques with their settings, such as
            `["swapping", memloc.Retraining(epochs=3)]`; None takes the usual four.
        windows: Which windows of layers are changed: a `memloc.Windows`, or a dict.
        explain: Follow noisy examples through the layers; None: if it is possible.
        generalisation: Also train on random halves; a `memloc.Generalisation`, or a dict, says how.
        checkpoints: Epochs at which to look at the models on their way: how many, or `every_epoch`.
        device: Where to compute.
        runs: Folder for the store and the results.
        workers: Processes, each with one thread; None takes one per core.
        cache_memory: States a process keeps in memory, such as "2GB"; more go to a file.
        low_memory: Layers of θ_O stay in a file until they are needed.
        save_every: Minutes between two saved states of a training.
        progress: Show how far it is.

    Example:
        >>> result = memloc.run(
        ...     "path/to/model", df[["text", "gold"]], data={"label_column": "gold", "noise": 0.2},
        ...     training=memloc.Training(epochs=1), techniques="swapping", explain=False, workers=1,
        ...     progress=False,
        ... )
        >>> result.techniques
        ('swapping',)

    Raises:
        MemlocError: If something that was given cannot be used.
    """
    with as_arguments(_ARGUMENTS):
        how = {"cache_memory": cache_memory, "low_memory": low_memory, "save_every": save_every}
        engine = Engine(runs=runs, workers=workers, **how)
        if not isinstance(model, str | Path | Model):
            raise ModelError(
                f"model is of type {type(model).__name__}; give a name, a directory or a "
                "memloc.Model (models in memory are for memloc.localise)"
            )
        given = given_settings(data, "data")
        given |= {} if validation is None else {"validation": validation}
        if not isinstance(task, str | Path):
            given = as_files({**given, "task": task}, engine.runs / "data")
        elif not isinstance(validation, str | Path | None):
            raise DataError("validation in memory goes with a task in memory; give files for both")
        else:
            given["task"] = str(task)
        settings: dict[str, Any] = {
            "data": given,
            "model": model if isinstance(model, Model) else {"name": str(model)},
            "training": training,
            "seeds": seeds,
            "techniques": techniques,
            "windows": windows,
            "explain": explain,
            "generalisation": generalisation,
            "checkpoints": checkpoints,
            "device": device,
        }
        asked = complete_run({k: value for k, value in settings.items() if value is not None})
        return experiments.run(asked, engine, as_progress(progress))


def given_settings(group: Any, name: str) -> dict[str, Any]:
    """The settings in a group, or in a dict, that were given."""
    if isinstance(group, Settings):
        return group.given()
    if not isinstance(group, Mapping | None):
        raise ConfigError("its settings have to be a mapping", setting=name, value=group)
    return dict(group or {})


def as_files(given: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Settings of data: what is in memory becomes a file, so that the command line can use it too.

    Raises:
        DataError: If a column is absent or an example is unusable.
        StoreError: If a file cannot be written.
    """
    columns = {name: given.pop(name, None) for name in Columns.model_fields}
    suspects = columns.pop("suspects")
    if suspects is not None:
        given["suspects"] = suspects if suspects == AUTO else "suspect"
    for role in ("task", "validation"):
        if isinstance(given.get(role), str | Path | None):
            continue
        frame = as_frame(given[role], role)
        if role == "validation" and columns["original_label_column"] not in frame:
            columns["original_label_column"] = None  # validation data need none
        marked = suspects if role == "task" and suspects != AUTO else None
        asked = [*columns.values(), marked]
        table = labelled_examples(frame, role, *asked).drop(columns="example")
        if marked is not None:  # as a file has them
            names = {"noisy": "suspect", "original_label": SUGGESTED_LABEL_COLUMN}
            table = table.rename(columns=names)
        text = table.to_json(orient="columns", force_ascii=False)
        name = hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()[:8]
        file = folder / f"data-{name}.parquet"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            table.to_parquet(file, index=False)
        except OSError as error:
            raise StoreError(
                f"cannot write the examples to {str(file)!r}: {error.strerror or error}; choose "
                "another folder with runs"
            ) from None
        given[role] = str(file)
    return given


def repair(
    result: Result | str | Path,
    *,
    out: str | Path,
    seed: int | None = None,
    candidate: Candidate | None = None,
    device: Device = "auto",
    workers: int | None = None,
    cache_memory: str | int | None = None,
    save_every: float = 10.0,
    progress: bool | Progress = True,
) -> Repaired:
    """Make models that no longer hold the wrong labels, examine all, and write the best.

    The same as `memloc repair`. What was computed before is reused.

    Args:
        result: Of `memloc.run`, or a folder of `memloc run` or `memloc localise`.
        out: A new folder: the model as `save_pretrained` writes it, its card and its exam.
        seed: Model seed to repair; None takes the first of the result.
        candidate: Which one to write, such as "swapped-window"; None takes the best by the exam.
        device: Where to compute.
        workers: Processes, each with one thread; None takes one per core.
        cache_memory: States a process keeps in memory, such as "2GB"; more go to a file.
        save_every: Minutes between two saved states of a training.
        progress: Show how far it is.

    Example:
        >>> repaired = memloc.repair(result, out="repaired", workers=1, progress=False)
        >>> repaired.exam["candidate"].unique().tolist()[:3]
        ['swapped-window', 'retrained-window', 'trained-on']

    Raises:
        MemlocError: If the result cannot be repaired, or the folder is not empty.
    """
    with as_arguments({}):
        settings = config.Repair(seed=seed, candidate=candidate, device=device)
        engine = Engine(workers=workers, cache_memory=cache_memory, save_every=save_every)
        return repair_result(result, Path(out), settings, engine, as_progress(progress))


# --- models in memory ---------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class GivenModels:
    """The arguments of `localise`, where they are explained, and of `prepare`."""

    memorised: nn.Module
    original: nn.Module | None = None
    pretrained: nn.Module | str | Path | None = None
    near_ceiling: nn.Module | None = None
    tokenizer: PreTrainedTokenizerBase
    data: Data
    text: str | None = "text"
    pair: str | None = None
    label: str | None = "label"
    original_label: str | None = None
    suspects: Values | None = None
    pairs: PairFormat = "native"
    blocks: str | None = None
    training: Training | Mapping[str, Any] | None = None
    seed: int = 1
    techniques: Techniques | None = None
    windows: Windows | Mapping[str, Any] | None = None
    cache_memory: str | int | None = None
    explain: bool | None = None
    progress: bool | Progress = True


P = ParamSpec("P")
T = TypeVar("T")


def _with_arguments(
    make: Callable[P, GivenModels],
) -> Callable[[Callable[[GivenModels], T]], Callable[P, T]]:
    """Decorator: a function of `GivenModels` is called with their fields as its arguments."""

    def decorate(function: Callable[[GivenModels], T]) -> Callable[P, T]:
        @wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> T:
            return function(make(*args, **kwargs))

        called.__signature__ = inspect.signature(make)  # type: ignore[attr-defined]
        return called

    return decorate


@_with_arguments(GivenModels)
def localise(models: GivenModels) -> Result:  # noqa: D417 - its arguments are the fields
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
        text: Column with the text.
        pair: Column with a second text.
        label: Column with the labels that `memorised` was trained on: whole numbers are the
            numbers of its classes, texts are their names.
        original_label: Column with the correct labels.
        suspects: Instead of `original_label`: True where a label may be wrong, while the correct
            one is unknown. A column, or one value per example.
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
    settings = choose_techniques(models.techniques, {}, DEFAULT_TECHNIQUES)
    chosen = make_techniques(settings)
    progress = as_progress(models.progress)
    with _opened(models) as (context, given, asked, cautions):
        start = models.pretrained if isinstance(models.pretrained, str | Path) else ""
        chosen = [one.suited_to(str(start), asked.training) for one in chosen]
        windows = context.windows
        chosen_windows(given.n_layers, windows.sizes)
        possible, skipped = possible_techniques(chosen, given)
        check_possible(possible, given.there, windows.unit, given.unit_problem)
        explanations, unexplained = possible_explanations(models.explain, given.there, settings)
        absent = [f"no {name}: {why}" for name, why in skipped.items()]
        for sentence in (*cautions, *absent):
            progress.note(sentence)
        computed = [*possible, *explanations]
        tables, failures = _compute(context, computed, given.task.labels, progress)
    # What was in memory has no name.
    there = dict.fromkeys(given.roles, f"{given.architecture} in memory")
    findings = Findings(
        "localise",
        "localise",
        tables,
        {
            **{role: there.get(role) for role in ("memorised", "original", "pretrained")},
            "data": "in memory",
            "in_memory": True,
            "precision": given.there.precisions["memorised"],
            **asked.model_dump(mode="json"),
            "techniques": settings_of(possible),
            "explain": models.explain,
            "suspects": models.suspects is not None,
        },
        {**given.about(), "skipped": skipped},
        techniques={one.name: one.all_settings(windows) for one in possible},
        failures=failures,
        unexplained=unexplained,
    )
    summary = summarise(findings)
    left_out = [f"{name.capitalize()} was left out: {why}." for name, why in skipped.items()]
    summary["caveats"] = [*cautions, *summary["caveats"], *left_out]
    return Result(tables, summary, findings.settings)


def _compute(
    context: Context, techniques: Sequence[Technique], labels: Sequence[str], progress: Progress
) -> tuple[Tables, list[str]]:
    """All tables; a technique that fails leaves a sentence, unless all do."""
    parts, costs, failures = TableParts("localise"), [], []
    # Described as jobs so that they are shown like those of `memloc run`; they are never stored.
    jobs = [
        Job("localise", one.name, {"in_memory": one.name}, cost=_cost(one, context))
        for one in techniques
    ]
    with progress.showing(jobs):
        for job, technique in zip(jobs, techniques, strict=True):
            progress.start(job)
            started = time.perf_counter()
            try:
                own = replace(context, costs={})
                tables = technique.localise(own, partial(progress.advance, job))
            except MemlocError as error:
                failures.append(f"{technique.name} failed: {error}")
                progress.fail(job, Failure.of(job, error))
                continue
            progress.finish(job)
            seconds = round(time.perf_counter() - started, 3)
            passes = own.costs.get("block_passes")
            costs.append({"job": technique.name, "seconds": seconds, "block_passes": passes})
            for name, rows in tables.items():
                parts.add(name, rows)
    if "layers" not in parts.parts:
        raise MemlocError(failures[0])
    parts.add_texts(context.examples, labels)
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


@_with_arguments(GivenModels)
@contextmanager
def prepare(models: GivenModels) -> Iterator[Context]:
    """Models and data in the form that techniques take; arguments as for `localise`.

    Inside the ``with`` the models belong to memloc; afterwards they are as they were.

    Example:
        >>> models = {"memorised": model_m, "original": model_o}
        >>> with memloc.prepare(
        ...     **models, tokenizer=tok, data=df, original_label="gold", windows={"sizes": [1]}
        ... ) as context:
        ...     found = memloc.Swapping().localise(context)
        >>> found["windows"]["size"].tolist()
        [1, 1, 1, 3]

    Raises:
        MemlocError: If models, tokeniser and data do not fit each other.
    """
    with _opened(models) as (context, *_):
        yield context


@contextmanager
def _opened(models: GivenModels) -> Iterator[tuple[Context, Given, _Asked, list[str]]]:
    """The context, models and examples, settings, and what may be wrong with the input."""
    with as_arguments(_COLUMNS), ExitStack() as undo:
        roles = {role: getattr(models, role) for role in ROLES}
        name = models.pretrained if isinstance(models.pretrained, str | Path) else None
        settings = given_settings(models.training, "training")
        asked = _Asked(
            pairs=models.pairs,
            blocks=models.blocks,
            training={**known_training(str(name or "")), **settings},
            seed=models.seed,
            windows=models.windows or Windows(),
        )
        limit = asked.training.max_tokens
        memory = Engine(cache_memory=models.cache_memory).cache_memory
        columns = (models.text, models.pair, models.label, models.original_label)
        examples = given_examples(models.data, *columns, models.suspects)
        found = {
            role: unwrap(model, role)
            for role, model in roles.items()
            if role == "memorised" or (model is not None and not isinstance(model, str | Path))
        }
        check_distinct(found)
        tokenizer = models.tokenizer
        caution = padding_caution(found["memorised"], tokenizer)
        undo.enter_context(restored(list(found.values()), tokenizer))
        opened: dict[str, Classifier] = {}

        def open_role(role: str, classes: int | None) -> Classifier:
            if role in found:
                opened[role] = open_model(found[role], role, tokenizer, asked.blocks, limit)
            else:
                model = Model(name=str(name), blocks=asked.blocks)
                device = opened["memorised"].blocks.device
                loaded = load_classifier(
                    resolve(model),
                    model,
                    n_labels=classes,
                    seed=FROZEN_SEED,
                    device=device,
                    max_tokens=limit,
                ).blocks
                opened[role] = Classifier(loaded, codec_of(loaded.model, tokenizer, limit))
            return opened[role]

        called = {role: role for role, model in roles.items() if model is not None}
        given = examine(open_role, called, examples, "data", asked.pairs, asked.training.dtype)
        examples = given.task.train
        encoded = encode(examples, opened["memorised"].codec, asked.pairs)
        check_words(encoded, tokenizer)

        def train_head(model: BlockModel) -> None:
            """What was trained gets its weights back at the end."""
            config, nothing = asked.training, Encoded([], encoded.pad_id)
            learner = TailOnly(model, encoded, nothing, config.frozen_tail, config.frozen_dropout)
            undo.enter_context(model.preserved(learner.trainable()))
            labels, noisy = (examples[c].to_numpy(copy=True) for c in ("label", "noisy"))
            target = TrainingData(labels, noisy, np.empty(0, dtype=np.int64))
            loop.fine_tune(learner, target, config, FROZEN_SEED)

        context = Context.of(
            examples,
            encoded,
            _Models({role: one.blocks for role, one in opened.items()}, train_head),
            seed=asked.seed,
            training=asked.training,
            windows=asked.windows,
            cache_memory=CACHE_MEMORY if memory is None else memory,
            has_original="original" in opened,
        )
        yield context, given, asked, [] if caution is None else [caution]


class _Models(dict[Role, BlockModel]):
    """The models by role. The frozen one is made of θ_P when it is first asked for."""

    def __init__(self, models: Mapping[Any, BlockModel], train_head: Callable[[BlockModel], None]):
        super().__init__({"near_ceiling": models["memorised"], **models})
        self.train_head = train_head

    def __missing__(self, role: Role) -> BlockModel:
        if role != "frozen":
            raise TechniqueFailed(f"this needs {ABSENT[role]}, which was not given")
        self.train_head(self["pretrained"])
        self[role] = self["pretrained"]
        return self[role]


# --- the steps of the experiment, one by one ----------------------------------------------------


def perturb(labels: Sequence[Any], noise: float = 0.15, seed: int = 1) -> pd.DataFrame:
    """Flip a share of the labels of every class, as `memloc.run` does (section 3 of the paper).

    Args:
        labels: Correct labels: texts or numbers.
        noise: The share of each class.
        seed: Decides who is noisy and what the new labels are.

    Returns:
        One row per example: label, original_label, noisy; with the index of `labels`, if they have
        one.

    Example:
        >>> found = memloc.perturb(["yes", "no"] * 10, noise=0.1)
        >>> int(found["noisy"].sum())
        2

    Raises:
        MemlocError: If the share is impossible, or flips no label at all.
    """
    values = pd.Series(listed(labels, "labels"), dtype=object)
    if values.isna().any():
        row = int(values.isna().to_numpy().argmax())
        raise DataError(f"label {row} (they count from 0) is missing; give every example a label")
    classes = sorted(values.unique().tolist(), key=lambda value: (str(type(value)), value))
    if len(classes) < 2:
        raise DataError(f"{len(classes)} class is not enough to flip labels; give two or more")
    numbers = values.map({value: index for index, value in enumerate(classes)}).astype("int64")
    train = pd.DataFrame({"label": numbers})
    task = Task("labels", "own", tuple(map(str, classes)), train, train.iloc[:0])
    found = noise_of.perturb(task, noise, _Asked(seed=seed).seed).train
    for column in ("label", "original_label"):
        found[column] = pd.Series([classes[number] for number in found[column]])
    if isinstance(labels, pd.Series):  # so that columns put back into its table stay in their rows
        found.index = labels.index
    return found[["label", "original_label", "noisy"]]


def fine_tune(
    model: nn.Module,
    *,
    tokenizer: PreTrainedTokenizerBase,
    data: Data,
    text: str | None = "text",
    pair: str | None = None,
    label: str | None = "label",
    pairs: PairFormat = "joined",
    head_only: bool = False,
    blocks: str | None = None,
    seed: int = 1,
    progress: bool = False,
    **training: Any,
) -> pd.DataFrame:
    """Train a classifier in place, as `memloc.run` does (appendix D of the paper).

    AdamW, linear schedule with warm-up, gradients clipped; input embeddings stay frozen. Mode and
    `requires_grad` are afterwards as before.

    Args:
        model: A `transformers` sequence classifier; its weights change.
        tokenizer: Its tokeniser.
        data: As for `memloc.localise`.
        text: Column with the text.
        pair: Column with a second text.
        label: Column with the label: names (texts) or numbers of the model's classes.
        pairs: How two texts are encoded.
        head_only: Train nothing but the head.
        blocks: Path of the layer stack, if it is ambiguous.
        seed: Decides the order of the examples and dropout.
        progress: Show how far it is.
        **training: Settings of `memloc.Training`, such as epochs and learning_rate.

    Example:
        >>> history = memloc.fine_tune(model_p, tokenizer=tok, data=df, epochs=2)
        >>> history.columns.tolist()
        ['epoch', 'loss', 'accuracy', 'macro_f1']

    Returns:
        One row per epoch: epoch, loss, accuracy, macro_f1 on the training examples.

    Raises:
        MemlocError: If model and data do not fit, or the loss is not a number.
    """
    with as_arguments(_COLUMNS):
        asked = _Asked(pairs=pairs, blocks=blocks, seed=seed)
        config = Training(**training)
        examples = labelled_examples(as_frame(data), "data", text, pair, label, numbers=True)
        inner = unwrap(model, "model")
        frozen = [name for name, p in inner.named_parameters() if not p.requires_grad]
        if frozen:
            raise ModelError(
                f"{len(frozen)} parameters of the model are frozen ({frozen[0]} is one), and "
                "fine_tune would train them; merge adapters, or set requires_grad, before"
            )
        shown, job = as_progress(progress), Job("train", "fine-tuning", {})
        with restored([inner], tokenizer), shown.showing([job]):
            opened = open_model(inner, "model", tokenizer, asked.blocks, config.max_tokens)
            numbers = class_numbers(examples["label"], opened.blocks, "label", "data")
            encoded = encode(examples, opened.codec, asked.pairs)
            check_words(encoded, tokenizer)
            shown.start(job)
            how = TailOnly if head_only else Learner
            learner = how(opened.blocks, encoded, Encoded([], encoded.pad_id))
            nobody = np.zeros(len(numbers), dtype=bool)
            target = TrainingData(numbers, nobody, np.empty(0, dtype=np.int64))
            report = partial(shown.advance, job)
            history = loop.fine_tune(learner, target, config, asked.seed, report).history
            shown.finish(job)
    return history[history["split"] == "train"].drop(columns="split").reset_index(drop=True)
