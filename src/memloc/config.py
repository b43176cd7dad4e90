"""Every setting, once: its type, default, limits and help.

A group of settings is a frozen pydantic model on the base `Settings`. All else is derived from the
fields: options of the command line with their help, keys of YAML files, arguments in Python,
`settings.json` of a result, and the command that makes it again. The settings of a technique are
declared in its own module the same way.

A setting has a dotted path such as `training.epochs`. The defaults of `Training` are the paper's
(section 3, appendix D); known models have their own, see `memloc.models.names`.
"""

from __future__ import annotations

import json
import operator
import types
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self, Union, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from memloc.errors import MISSING, nearest
from memloc.errors import ConfigError as ConfigError
from memloc.text import counted

ExecutorName = Literal["local", "ray", "slurm"]
TrackerName = Literal["trackio", "wandb"]
Device = Literal["auto", "cpu", "cuda", "mps"]
Dtype = Literal["float32", "bfloat16"]
PairFormat = Literal["joined", "native"]
RetrainedTail = Literal["norm+head", "head", "all", "none"]
Objective = Literal["nll", "gold_logit"]
Norm = Literal["L1", "L2"]
Unit = Literal["layer", "attention", "mlp"]
PARTS = {"attention": "attention parts", "mlp": "MLP parts"}
"""What units that are not whole layers are called in sentences."""
Checkpoints = int | Literal["every_epoch"]
EVERY_EPOCH = "every_epoch"

MOST_EPOCHS = 1_000_000
"""More are a mistake, and numbers without end have no end in plans either."""
DEFAULT_TECHNIQUES = ("swapping", "retraining", "gradients", "probing")
Seed = Annotated[int, Field(ge=0, lt=2**32)]


# --- what a group of settings is ---------------------------------------------------------------


@dataclass(frozen=True)
class Flag:
    """The short option of a setting; every setting also has a long one, `--training.epochs`.

    Attributes:
        name: With its dashes.
        shown: Whether it stands on the help page of a command; `memloc settings` lists all.
        former: Names it had in earlier versions, which still work.
    """

    name: str
    shown: bool = True
    former: tuple[str, ...] = ()


_inside: ContextVar[bool] = ContextVar("inside", default=False)


class Settings(BaseModel):
    """Settings that cannot be changed, nor have names that nobody knows."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def __init__(self, /, **values: Any) -> None:
        """Check the values.

        Raises:
            ConfigError: If one is not possible, or there is no such setting.
        """
        outermost = not _inside.get()
        token = _inside.set(True)
        try:
            super().__init__(**values)
        except ValidationError as error:
            if not outermost:
                raise  # pydantic adds where it is
            raise _as_config_error(type(self), error) from None
        finally:
            _inside.reset(token)

    @field_validator("*", mode="before")
    @classmethod
    def _read(cls, value: Any, info: ValidationInfo) -> Any:
        """Lists may be texts with commas, or single values; numbers are numbers.

        Numbers are neither `yes`, which YAML takes for true, nor texts.
        """
        annotation = cls.model_fields[str(info.field_name)].annotation
        kinds = kinds_of(annotation)
        if is_list(annotation) and value is not None:
            value = _as_list(value, kinds)
        values = list(value) if isinstance(value, list | tuple) else [value]
        if kinds & {int, float} and not kinds & {bool, str}:
            if any(isinstance(each, bool | str) for each in values):
                kind = "number" if float in kinds else "integer"
                raise PydanticCustomError(
                    "number", "Input should be a valid {kind}", {"kind": kind}
                )
            values = [_plain(each) for each in values]
            return values if isinstance(value, list | tuple) else values[0]
        return value

    @classmethod
    def make(cls, **values: Any) -> Self:
        """Construct from values of any type.

        Raises:
            ConfigError: If one is not possible.
        """
        return cls(**values)

    def replace(self, **values: Any) -> Self:
        """A checked copy with some settings changed; ``None`` means 'leave as it is'."""
        changed = {name: value for name, value in values.items() if value is not None}
        return type(self)(**{**dict(self), **changed})

    def given(self) -> dict[str, Any]:
        """What was given when it was made, as plain data; all else has its default."""
        return self.model_dump(exclude_unset=True)


def _as_config_error(group: type[Settings], error: ValidationError) -> ConfigError:
    """The first of pydantic's complaints."""
    first = error.errors(include_url=False)[0]
    path: list[str] = []
    shape: type[Settings] | None = group
    names: list[str] = []
    for part in first["loc"]:
        names = [] if shape is None else list(shape.model_fields)
        if shape is not None and part in shape.model_fields:
            path.append(str(part))
            annotation = shape.model_fields[str(part)].annotation
            shape = group_in(annotation)
            mapping = get_origin(annotation) is dict
        elif isinstance(part, int) and shape is not None:
            path[-1] += f"[{part}]"
        elif first["type"] == "extra_forbidden" or (mapping and part != "[key]"):
            path.append(str(part))
    setting = ".".join(path) or None
    if first["type"] == "extra_forbidden":
        remedy = nearest(path[-1], names)
        return ConfigError("there is no such setting", setting=setting, remedy=remedy)
    if first["type"] == "missing":
        return ConfigError("it has to be given", setting=setting)
    if first["type"] == "too_short":
        return ConfigError("nothing is named", setting=setting, remedy="name at least one")
    problem = first["msg"][0].lower() + first["msg"][1:]
    if first["type"] == "value_error":  # of a validator here, not of pydantic
        problem = str(first["ctx"]["error"])
    return ConfigError(problem, setting=setting, value=first["input"] if setting else MISSING)


def kinds_of(annotation: Any) -> set[Any]:
    """What values, or those in a list of them, may be; of words that are possible, `str`."""
    if get_origin(annotation) is Annotated:
        return kinds_of(get_args(annotation)[0])
    parts = get_args(annotation)
    if not parts:
        return {str if isinstance(annotation, str) else annotation}
    return set().union(*map(kinds_of, parts))


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    if get_origin(annotation) in (Union, types.UnionType):
        return get_args(annotation)
    return (annotation,)


def is_list(annotation: Any) -> bool:
    """Whether a setting has several values."""
    return any(get_origin(one) in (tuple, list) for one in _alternatives(annotation))


def group_in(annotation: Any) -> type[Settings] | None:
    """The group of settings that a field is, or has several of; None if it is a single setting."""
    for one in _alternatives(annotation):
        inner = get_args(one)[0] if get_origin(one) in (tuple, list) else one
        if isinstance(inner, type) and issubclass(inner, Settings):
            return inner
    return None


def _plain(value: Any) -> Any:
    """A whole number of Python, also for those of numpy."""
    try:
        return operator.index(value)
    except TypeError:
        return value


def _as_list(value: Any, kinds: set[Any]) -> Any:
    if isinstance(value, str):
        parts = [part.strip() for part in value.split(",")]
        if int in kinds and str not in kinds:
            return _ranges(parts)
        return tuple(dict.fromkeys(part for part in parts if part))
    if isinstance(value, list | tuple | dict | set | BaseModel):
        return (value,) if isinstance(value, BaseModel) else value
    try:
        return tuple(value)
    except TypeError:
        return (value,)


def _ranges(parts: list[str]) -> tuple[int, ...]:
    """`1-3,6` as numbers."""
    numbers: list[int] = []
    for part in parts:
        ends = part.split("-")
        if len(ends) > 2 or not all(end.isascii() and end.isdecimal() for end in ends):
            raise ValueError("it is not a list of whole numbers such as 1,2 or 1-3,6")
        low, high = int(ends[0]), int(ends[-1])
        if low > high or high - low > 10_000:
            raise ValueError("a range has its smaller end first, such as 1-3")
        numbers += range(low, high + 1)
    return tuple(numbers)


# --- settings as a tree, and as words on the command line --------------------------------------


@dataclass(frozen=True)
class Setting:
    """One setting: where it is, and what its field declares."""

    path: str
    field: FieldInfo

    @property
    def flag(self) -> Flag | None:
        """Its short option."""
        return next((each for each in self.field.metadata if isinstance(each, Flag)), None)

    @property
    def help(self) -> str:
        """What it is for, in a line."""
        return self.field.description or ""

    @property
    def default(self) -> Any:
        """Its default; `MISSING` if it has to be given."""
        return MISSING if self.field.is_required() else self.field.get_default()

    @property
    def is_switch(self) -> bool:
        """Whether it is on or off; a group is, if it may be left out."""
        return kinds_of(self.field.annotation) <= {bool, type(None)} or self.is_optional_group

    @property
    def is_optional_group(self) -> bool:
        """Whether it is a group that may be left out."""
        return group_in(self.field.annotation) is not None

    @property
    def type_words(self) -> str:
        """What values it takes: a choice, or the kind of value."""
        annotation = self.field.annotation
        choices = [
            str(choice)
            for one in _alternatives(annotation)
            if get_origin(one) is Literal
            for choice in get_args(one)
        ]
        kinds = kinds_of(annotation)
        words = {bool: "true|false", int: "INTEGER", float: "NUMBER", Path: "PATH"}
        found = [word for kind, word in words.items() if kind in kinds]
        if float in kinds and int in kinds:
            found.remove("INTEGER")
        kind = "|".join([*found, *choices]) or "TEXT"
        if get_origin(annotation) is dict:
            return "NAME,..."
        return f"{kind},..." if is_list(annotation) else kind

    def read(self, text: str) -> Any:
        """The value that a text on the command line means; what it cannot mean stays a text."""
        annotation, word = self.field.annotation, text.strip()
        kinds = kinds_of(annotation)
        optional = type(None) in kinds and (str not in kinds or self.default is not None)
        if optional and word.lower() in ("none", "null"):
            return None
        if self.is_switch and word.lower() in ("true", "yes", "on", "false", "no", "off"):
            return word.lower() in ("true", "yes", "on")
        if word[:1] in ("[", "{") and (is_list(annotation) or not kinds & {str, Path}):
            try:
                return json.loads(word)
            except json.JSONDecodeError:
                return text
        if is_list(annotation):
            return text
        for number in (int, float):
            if number in kinds:
                try:
                    return number(word)
                except ValueError:
                    continue
        return text


def settings_in(group: type[Settings], path: str = "") -> Iterator[Setting]:
    """All settings of a group and of the groups in it; optional groups are settings themselves."""
    own = [name for name in group.model_fields if name in group.__annotations__]
    for name in dict.fromkeys([*own, *group.model_fields]):  # its own first, then inherited ones
        field = group.model_fields[name]
        where = f"{path}.{name}" if path else name
        inner = group_in(field.annotation)
        if inner is None or field.annotation is not inner:
            yield Setting(where, field)
        if inner is not None and not is_list(field.annotation):
            yield from settings_in(inner, where)


def write_value(value: Any) -> str:
    """A value as a text on the command line, which `Setting.read` takes for the same value."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return json.dumps(dict(value), ensure_ascii=False)
    if isinstance(value, list | tuple):
        texts = [str(each) for each in value]
        plain = all(t and t == t.strip() and "," not in t and t[0] not in "[{" for t in texts)
        simple = all(isinstance(each, int | float | str) for each in value)
        if plain and simple and texts and not any(isinstance(each, bool) for each in value):
            return ",".join(texts)
        return json.dumps(list(value), ensure_ascii=False, default=str)
    return str(value)


def merge(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Both trees of settings; the second wins where both say something."""
    merged = dict(one)
    for key, value in other.items():
        before = merged.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            merged[key] = merge(before, value)
        elif not (isinstance(before, Mapping) and value is True):  # which only says that it is on
            merged[key] = value
    return merged


def put(tree: dict[str, Any], path: str, value: Any) -> None:
    """Put a value where a dotted path says."""
    *groups, last = path.split(".")
    for group in groups:
        inner = tree.get(group)
        tree[group] = tree = dict(inner) if isinstance(inner, Mapping) else {}
    tree[last] = value


def leaves(tree: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """`training.epochs` and its value, for all that a tree says."""
    for key, inner in tree.items():
        where = f"{path}.{key}" if path else str(key)
        if isinstance(inner, Mapping) and inner:
            yield from leaves(inner, where)
        else:
            yield where, inner


# --- the groups --------------------------------------------------------------------------------


class Columns(Settings):
    """Which columns of a file hold what; by default they are found by their names."""

    text_column: Annotated[str | None, Flag("--text-column")] = Field(
        None, description="Column with the text."
    )
    pair_column: Annotated[str | None, Flag("--pair-column", shown=False)] = Field(
        None, description="Column with a second text."
    )
    label_column: Annotated[str | None, Flag("--label-column")] = Field(
        None, description="Column with the label."
    )
    original_label_column: Annotated[str | None, Flag("--original-label-column")] = Field(
        None, description="Column with the correct labels, if the label noise is known."
    )


class Data(Columns):
    """Which examples, and which of their labels are flipped (section 3)."""

    task: Annotated[str, Flag("--task")] = Field(
        "questions", description="A name from `memloc tasks`, or a CSV/TSV/JSONL/Parquet file."
    )
    data_dir: Annotated[Path | None, Flag("--data-dir")] = Field(
        None, description="Folder with local copies of the paper's tasks."
    )
    validation: Annotated[Path | None, Flag("--validation", shown=False)] = Field(
        None, description="File with validation examples; else a fifth of the task is set aside."
    )
    limit: Annotated[int | None, Flag("--limit")] = Field(
        None, ge=1, description="Training examples to use (stratified)."
    )
    binarise: Annotated[bool, Flag("--binarise", shown=False)] = Field(
        False, description="Keep only the two most frequent classes (appendix C)."
    )
    noise: Annotated[float, Flag("--noise")] = Field(
        0.15, gt=0, lt=1, description="Share of the labels of each class to flip."
    )
    seed: Annotated[int, Flag("--data-seed", shown=False)] = Field(
        1, ge=0, description="Decides whose label flips; the same for all model seeds."
    )


class GivenData(Columns):
    """The examples that given models were trained on."""

    file: Annotated[Path, Flag("--data")] = Field(
        description="File with text, label (as trained), original_label; text_pair for pairs."
    )


class Training(Settings):
    """How θ_O, θ_M and the frozen model are fine-tuned (appendix D)."""

    epochs: Annotated[int, Flag("--epochs")] = Field(
        50, ge=1, le=MOST_EPOCHS, description="Passes over the data."
    )
    learning_rate: Annotated[float, Flag("--learning-rate")] = Field(
        1e-5, gt=0, description="Peak learning rate."
    )
    batch_size: Annotated[int, Flag("--batch-size")] = Field(
        8, ge=1, description="Examples per step."
    )
    micro_batch_size: Annotated[int | None, Flag("--micro-batch-size", shown=False)] = Field(
        None, ge=1, description="Examples per forward pass; gradients accumulate to batch_size."
    )
    warmup: float = Field(
        0.1, ge=0, lt=1, description="Share of the steps in which the learning rate rises."
    )
    weight_decay: float = Field(0.01, ge=0, description="Weight decay of AdamW.")
    clip_norm: float = Field(1.0, gt=0, description="Gradients with a larger norm are clipped.")
    memorised_at: float = Field(0.993, gt=0, le=1, description="Training accuracy that marks θ_M1.")
    max_tokens: Annotated[int, Flag("--max-tokens", shown=False)] = Field(
        512, ge=4, description="Longer texts are cut."
    )
    dtype: Annotated[Dtype, Flag("--dtype", shown=False)] = Field(
        "float32", description="Of matrix products; weights stay float32."
    )


class Reading(Settings):
    """How a classifier is read."""

    blocks: Annotated[str | None, Flag("--blocks", shown=False)] = Field(
        None, description="Path of the layer stack in the model, if it is ambiguous."
    )
    pair_format: Annotated[PairFormat, Flag("--pairs", shown=False)] = Field(
        "joined",
        description="joined: both texts as one with a separator (the paper); native: the "
        "tokeniser's way of encoding a pair.",
    )
    trust_remote_code: Annotated[bool, Flag("--trust-remote-code", shown=False)] = Field(
        False, description="Run code that a hub model brings along."
    )


class Model(Reading):
    """Which classifier, and how to read it."""

    name: Annotated[str, Flag("--model")] = Field(
        "minilm", description="A name from `memloc models list`, a hub name, or a directory."
    )


class GivenReading(Reading):
    """How given models are read."""

    pair_format: Annotated[PairFormat, Flag("--pairs", shown=False)] = Field(
        "native",
        description="native: the tokeniser's way of encoding a pair; joined: both texts as one "
        "with a separator (the paper).",
    )


class Windows(Settings):
    """Windows of consecutive layers, for the techniques that change them."""

    sizes: Annotated[tuple[Annotated[int, Field(ge=1)], ...] | None, Flag("--window-sizes")] = (
        Field(
            None,
            min_length=1,
            description="Sizes of the windows to change, such as 1-3,6 (default: all); the full "
            "one is always among them.",
        )
    )
    unit: Annotated[Unit, Flag("--unit")] = Field(
        "layer", description="What of a layer is changed: all of it, or one of its parts."
    )


TechniqueSettings = dict[str, dict[str, Any]]
"""Techniques by name, in their order, with those of their settings that were given. Explanations
may be among them for their settings."""
TECHNIQUES_FLAG = Flag("--techniques", former=("--methods",))


class Generalisation(Settings):
    """Generalisation scores (section 5): models of random halves of the training data."""

    splits: int = Field(30, ge=2, description="Random halves.")
    epochs: int = Field(10, ge=1, le=MOST_EPOCHS, description="Passes over each half.")
    learning_rate: float | None = Field(
        None,
        gt=0,
        description="Default: the paper's 3e-5, or that of the fine-tuning if it is higher.",
    )
    standard_error: float | None = Field(
        None, gt=0, lt=1, description="No more halves once that of the task score is below this."
    )


class Control(Settings):
    """The control setup (section 3.2): memorisation hidden in known layers."""

    auxiliary_rate: Annotated[float | None, Flag("--aux-rate")] = Field(
        None,
        gt=0,
        description="Learning rate of the auxiliary task (default: half of the main task's, as in "
        "the paper).",
    )
    learned_at: float = Field(
        0.99, gt=0, lt=1, description="Training accuracy above which the main task is learned."
    )
    attempts: int = Field(3, ge=1, description="Trainings at rising rates until it is learned.")
    rate_factor: float = Field(
        2.0, gt=1, description="How much the rate rises from one attempt to the next."
    )


PAPER_SPLIT_RATE = 3e-5


class Engine(Settings):
    """Where results go and how jobs run here; without influence on what is found."""

    runs: Annotated[Path, Flag("--runs")] = Field(
        Path("runs"), description="Folder for the store and the results."
    )
    workers: Annotated[int | None, Flag("--workers")] = Field(
        None, ge=1, le=100_000, description="Processes, each with one thread (default: cores)."
    )
    cache_memory: Annotated[int | None, Flag("--cache-memory", shown=False)] = Field(
        None,
        ge=0,
        lt=2**60,
        description="States a process keeps in memory, such as 500MB (default: 1GB); more go to a "
        "file.",
    )
    low_memory: Annotated[bool, Flag("--low-memory", shown=False)] = Field(
        False, description="Layers of θ_O stay in a file until they are needed; same results."
    )

    @field_validator("cache_memory", mode="before")
    @classmethod
    def _read_bytes(cls, value: Any) -> Any:
        return parse_bytes(value) if isinstance(value, str) else value


class Resources(Settings):
    """What one job of a kind occupies."""

    cpus: float = Field(1, gt=0)
    gpus: float = Field(0, ge=0, description="A fraction lets several jobs share a GPU.")


class Ray(Settings):
    """Jobs as tasks of a Ray cluster."""

    address: str | None = Field(
        None, description="Of an existing cluster, or `auto`; None starts one on this machine."
    )
    resources: dict[str, Resources] = Field(
        {},
        description="By kind of job (train, window, …); `default` is for all others. Without it, a "
        "job occupies a core, and a GPU if it computes on one.",
    )


class Slurm(Settings):
    """Workers as jobs of a Slurm array, each of which takes jobs until none are left."""

    cluster: Literal["slurm", "local"] = Field(
        "slurm", description="local: processes of this machine, to try out settings without Slurm."
    )
    workers: int = Field(16, ge=1, le=100_000, description="Workers in the array.")
    at_once: int | None = Field(None, ge=1, description="Cap on workers that run in parallel.")
    minutes: int = Field(240, ge=1, description="Time limit of a worker; it is requeued then.")
    cpus: int = Field(
        1, ge=1, description="Of a worker; without GPUs it does as many jobs at a time."
    )
    gpus: int = Field(
        0, ge=0, description="Of a worker; with several it does as many jobs at a time."
    )
    memory_gb: float = Field(16, gt=0, description="Of a worker.")
    partition: str | None = None
    requeues: int = Field(20, ge=0, description="How often a worker comes back after a time-out.")
    setup: tuple[str, ...] = Field((), description="Shell lines that run before a worker.")
    options: dict[str, Any] = Field(
        {}, description="Further options of sbatch by their long names, such as account."
    )


class Execution(Settings):
    """The `execution` part of an experiment."""

    executor: ExecutorName = "local"
    workers: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description="Of `local`: processes; None: one per core, or one per GPU. Of `ray`: at most "
        "so many; None: as many as fit. Slurm has its own.",
    )
    device: Device = "auto"
    save_every: float = Field(
        10.0, gt=0, description="Minutes between two saved states of a running training."
    )
    cache_memory: int | None = Field(
        None, ge=0, description="Bytes of states a process keeps in memory; more go to a file."
    )
    low_memory: bool = False
    ray: Ray = Ray()
    slurm: Slurm = Slurm()

    def where(self, device: str) -> dict[str, Any]:
        """For `Job.where`."""
        return {
            "device": device,
            "cache_memory": self.cache_memory,
            "low_memory": self.low_memory,
            "save_every": self.save_every * 60,
        }


def parse_bytes(text: str) -> int:
    """`500MB` or `2GB` as bytes.

    Raises:
        ValueError: If it is something else.
    """
    units = {"KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}
    number, unit = text.strip()[:-2].strip(), text.strip()[-2:].upper()
    try:
        size = float(number) * units[unit]
        if not 0 <= size < 2**60:
            raise ValueError(text)
    except (KeyError, ValueError):
        raise ValueError("it is not a size such as 500MB or 2GB") from None
    return int(size)


def _check_different(seeds: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(seeds)) < len(seeds):
        raise ValueError("a seed is named twice; leave one of them out")
    return seeds


Seeds = Annotated[
    tuple[Seed, ...],
    Field(min_length=1, description="Model seeds, such as 1,2,3 or 1-5."),
    AfterValidator(_check_different),
    Flag("--seeds"),
]
Explain = Annotated[
    bool | None,
    Field(
        description="Follow noisy examples through the layers (default: as far as model and data "
        "allow)."
    ),
    Flag("--explain"),
]
DeviceSetting = Annotated[Device, Field(description="Where to compute."), Flag("--device")]


class Run(Settings):
    """One experiment: a model, a task, some seeds."""

    data: Data = Data()
    model: Model = Model()
    training: Training = Training()
    seeds: Seeds = (1,)
    techniques: Annotated[TechniqueSettings, TECHNIQUES_FLAG] = Field(
        {name: {} for name in DEFAULT_TECHNIQUES},
        description=f"Names from `memloc techniques` (default: {', '.join(DEFAULT_TECHNIQUES)}).",
    )
    windows: Windows = Windows()
    explain: Explain = None
    generalisation: Annotated[Generalisation | None, Flag("--generalisation")] = Field(
        None, description="Also train on random halves: generalisation scores, memorisation map."
    )
    checkpoints: Annotated[Checkpoints | None, Flag("--checkpoints")] = Field(
        None, description="Also look at the model on its way: at so many epochs, or every_epoch."
    )
    device: DeviceSetting = "auto"

    @field_validator("generalisation", mode="before")
    @classmethod
    def _switch(cls, value: Any) -> Any:
        return ({} if value else None) if isinstance(value, bool) else value

    @field_validator("checkpoints", mode="before")
    @classmethod
    def _check_checkpoints(cls, value: Any) -> Any:
        number = isinstance(value, int) and not isinstance(value, bool)
        if value is None or value == EVERY_EPOCH or (number and value >= 2):
            return value
        raise ValueError(f"give a number of epochs from 2 up, or {EVERY_EPOCH}")

    @model_validator(mode="after")
    def _check_epochs(self) -> Self:
        wanted, epochs = self.checkpoints, self.training.epochs
        least = 2 if wanted == EVERY_EPOCH else wanted
        if least is not None and epochs < int(least):
            raise ConfigError(
                f"training has {counted(epochs, 'epoch')}, and there is one checkpoint per "
                "epoch at most",
                setting="checkpoints",
                value=wanted,
                remedy="use fewer, or train for more epochs",
            )
        return self

    @property
    def checkpoint_epochs(self) -> tuple[int, ...]:
        """The epochs after which θ_M is looked at; the last is the end. Empty: no checkpoints."""
        if self.checkpoints is None:
            return ()
        epochs = self.training.epochs
        count = epochs if self.checkpoints == EVERY_EPOCH else int(self.checkpoints)
        return tuple(round(epochs * number / count) for number in range(1, count + 1))


class Localisation(Settings):
    """Models that somebody has fine-tuned, and what to find out about them."""

    memorised: Annotated[str, Flag("--memorised")] = Field(
        description="Model fine-tuned on the labels in the data (directory or hub name)."
    )
    original: Annotated[str, Flag("--original")] = Field(
        description="The same model fine-tuned on the original labels."
    )
    pretrained: Annotated[str | None, Flag("--pretrained")] = Field(
        None, description="The model before fine-tuning; all techniques but swapping need it."
    )
    near_ceiling: Annotated[str | None, Flag("--near-ceiling")] = Field(
        None,
        description="The memorised model when it had just learned the labels, for gradients "
        "(default: the memorised model).",
    )
    data: GivenData
    model: GivenReading = GivenReading()
    training: Training = Training()
    seed: Annotated[Seed, Flag("--seed")] = Field(
        1, description="Chooses clean examples, and the order of retraining."
    )
    techniques: Annotated[TechniqueSettings, TECHNIQUES_FLAG] = Field(
        {},
        description="Names from `memloc techniques` (default: all that the models allow).",
    )
    windows: Windows = Windows()
    explain: Explain = None
    device: DeviceSetting = "auto"


class ControlledModel(Settings):
    """A model of the control benchmark with the settings it is trained with."""

    model: Model = Model()
    training: Training = Training()


class ControlRun(Settings):
    """The control benchmark: models × tasks × sets of layers × seeds."""

    models: tuple[ControlledModel, ...] = Field(
        (ControlledModel(),), min_length=1, description="Models, with how they are trained."
    )
    data: Data = Field(Data(), description="Of all tasks; the name of one is replaced.")
    tasks: Annotated[tuple[str, ...], Flag("--tasks")] = Field(
        min_length=1, description="Main tasks (default: the built-in ones)."
    )
    auxiliary: Annotated[str, Flag("--aux-task")] = Field(
        "entailment", description="Task with clean labels that trains all layers."
    )
    auxiliary_limit: Annotated[int | None, Flag("--aux-limit")] = Field(
        None, ge=1, description="Its training examples (default: all, but of a built-in task 100)."
    )
    layers: Annotated[tuple[str, ...], Flag("--layers")] = Field(
        ("first", "middle", "last"),
        min_length=1,
        description="Where to hide: first, middle, last (pairs), or 1+2,6+7.",
    )
    seeds: Seeds = (1,)
    techniques: Annotated[TechniqueSettings, TECHNIQUES_FLAG] = Field(
        {},
        description="Names from `memloc techniques` (default: all that the models allow).",
    )
    all_techniques: bool = Field(
        False,
        description="All techniques that the models allow; `techniques` only has settings then.",
    )
    windows: Windows = Windows()
    held_back: Annotated[tuple[str, ...], Flag("--held-back")] = Field(
        (), description="Tasks that only choose the post-processing of gradients (Table 4)."
    )
    control: Control = Control()
    device: DeviceSetting = "auto"

    @property
    def every_technique(self) -> bool:
        """Whether all techniques are wanted that the models allow."""
        return self.all_techniques or not self.techniques
