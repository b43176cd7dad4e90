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
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal, Self, Union, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    ByteSize,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo

from memloc.errors import MISSING, ConfigError, nearest
from memloc.text import counted

ExecutorName = Literal["local", "ray", "slurm"]
TrackerName = Literal["trackio", "wandb"]
Device = Literal["auto", "cpu", "cuda", "mps"]
Dtype = Literal["float32", "tf32", "bfloat16"]
PairFormat = Literal["joined", "native"]
Unit = Literal["layer", "attention", "mlp"]
CleanExamples = Literal["matched", "all"]
Head = Literal["own", "paper"]
Twin = Literal["without", "suggested"]
Tail = Literal["head", "norm+head", "all"]
"""What learns of the parameters behind the layers: the final norm is one, BERT's pooler another."""
Candidate = Literal[
    "swapped-window", "retrained-window", "trained-on", "twin", "control-window", "unchanged"
]
"""What a repair tries, and the two controls that it is compared with."""
PARTS = {"attention": "attention parts", "mlp": "MLP parts"}
"""What units that are not whole layers are called in sentences."""
WindowSizes = Literal["auto", "all"] | tuple[Annotated[int, Field(ge=1)], ...]
Checkpoints = int | Literal["every_epoch"]
EVERY_EPOCH = "every_epoch"
AUTO = "auto"

MOST_VALUES = 10_000
"""Of a setting that is a list."""
MOST_EPOCHS = 1_000_000
"""More are a mistake, and numbers without end have no end in plans either."""
LIKELY_EPOCHS = 15
"""What a training until the labels are learned usually takes; for estimates and its warm-up."""
DEFAULT_TECHNIQUES = ("swapping", "retraining", "gradients", "probing")
Seed = Annotated[int, Field(ge=0, lt=2**32)]


# --- what a group of settings is ---------------------------------------------------------------

WORDING = {
    "missing": "it has to be given",
    "too_short": "nothing is named",
    "multiple_of": "it has to be a multiple of {multiple_of}",
    "greater_than": "it has to be greater than {gt}",
    "greater_than_equal": "it has to be at least {ge}",
    "less_than": "it has to be less than {lt}",
    "less_than_equal": "it has to be at most {le}",
    "finite_number": "it has to be a finite number",
    "int_from_float": "it has to be a whole number",
    "int_parsing": "it has to be a whole number",
    "int_parsing_size": "it is too large",
    "int_type": "it has to be a whole number",
    "float_parsing": "it has to be a number",
    "float_type": "it has to be a number",
    "literal_error": "it has to be {expected}",
    "string_type": "it has to be a text",
    "path_type": "it has to be a path",
    "tuple_type": "it has to be a list",
    "byte_size": "it is not a size such as 500MB or 2GB",
    "byte_size_unit": "it is not a size such as 500MB or 2GB",
    "bool_parsing": "it has to be true or false",
    "bool_type": "it has to be true or false",
    "dict_type": "its settings have to be a mapping",
    "model_type": "its settings have to be a mapping",
}
"""What pydantic's complaints are called here."""


class Settings(BaseModel):
    """Settings that cannot be changed, nor have names that nobody knows."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def __init__(self, /, **values: Any) -> None:
        """Check the values.

        Raises:
            ConfigError: If one is not possible, or there is no such setting.
        """
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise _as_config_error(type(self), error) from None

    @field_validator("*", mode="wrap")
    @classmethod
    def _check(cls, value: Any, check: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        name = str(info.field_name)
        try:
            found = check(_read(value, cls.model_fields[name]))
        except ConfigError as error:  # of a group inside
            raise error.below(name) from None
        for one in found if isinstance(found, tuple) else (found,):
            if isinstance(one, str | Path) and not _is_unicode(str(one)):
                raise ValueError("it has bytes that are not UTF-8; rename that file or folder")
        return found

    def replace(self, **values: Any) -> Self:
        """A checked copy with some settings changed; ``None`` means 'leave as it is'."""
        changed = {name: value for name, value in values.items() if value is not None}
        return type(self)(**{**dict(self), **changed})

    def given(self) -> dict[str, Any]:
        """What was given when it was made, as plain data; all else has its default."""
        return self.model_dump(exclude_unset=True)


def setting(default: Any, help: str, **limits: Any) -> Any:
    """The field of a setting, which has a long option such as `--training.warmup`.

    Args:
        default: Its default; `...` if it has to be given.
        help: What it is for, in a line.
        **limits: As of pydantic's `Field`.
    """
    return Field(default, description=help, **limits)


def option(
    default: Any, help: str, *, name: str | None = None, shown: bool = True, **limits: Any
) -> Any:
    """The field of a setting that also has a short option.

    Args:
        default: As of `setting`.
        help: As of `setting`.
        name: Its short option, if it is not the name of the field: `--epochs`.
        shown: Whether the short option is on the help page; `memloc settings` lists all.
        **limits: As of `setting`.
    """
    return setting(default, help, json_schema_extra={"option": name, "shown": shown}, **limits)


def rare(default: Any, help: str, **more: Any) -> Any:
    """The field of a setting whose short option is not on the help page."""
    return option(default, help, shown=False, **more)


def _as_config_error(group: type[Settings], error: ValidationError) -> ConfigError:
    """The first of pydantic's complaints; it is about a setting of the group itself."""
    first = error.errors(include_url=False)[0]
    kind, context = first["type"], first.get("ctx", {})
    where, *inside = map(str, first["loc"] or ("",))
    if kind == "extra_forbidden":
        remedy = nearest(where, group.model_fields)
        return ConfigError("there is no such setting", setting=where, remedy=remedy)
    if inside and get_origin(group.model_fields[where].annotation) is dict:
        where = f"{where}.{inside[0]}"
    problem = str(context["error"]) if kind == "value_error" else first["msg"]
    if kind in WORDING:
        problem = WORDING[kind].format(**context)
    field = group.model_fields.get(where)
    if field is not None and kind.endswith(("_parsing", "_type")):
        words = [w for one in _alternatives(field.annotation) for w in _choices(one)]
        problem = " or ".join([problem, *words])
    nothing = not where or kind in ("missing", "too_short")
    return ConfigError(problem, setting=where or None, value=MISSING if nothing else first["input"])


def _read(value: Any, field: FieldInfo) -> Any:
    """Texts, as on the command line, are read as the field wants; pydantic reads numbers."""
    kinds, several = kinds_of(field.annotation), is_list(field.annotation)
    ways = _alternatives(field.annotation)
    if isinstance(value, str):
        if any(value in _choices(way) for way in ways):
            return value
        # A column may be called none.
        can_be_none = field.default is not None or not kinds & {str, Path}
        if value.lower() == "none" and type(None) in kinds and can_be_none:
            return None
        if value[:1] in ("[", "{") and (several or get_origin(field.annotation) is dict):
            value = json.loads(value)
    if several and value is not None:
        value = _as_list(value, set().union(*(kinds_of(way) for way in ways if is_list(way))))
    if kinds & {int, float} and bool not in kinds:
        for each in value if isinstance(value, list | tuple) else (value,):
            if isinstance(each, bool):  # `yes` in YAML
                raise ValueError("it has to be a number")
    return value


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def kinds_of(annotation: Any) -> set[Any]:
    """What values, or those in a list of them, may be; of words that are possible, `str`."""
    if get_origin(annotation) is Annotated:
        return kinds_of(get_args(annotation)[0])
    parts = get_args(annotation)
    if not parts:
        return {str if isinstance(annotation, str) else annotation}
    return set().union(*map(kinds_of, parts)) - {...}


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    if get_origin(annotation) in (Union, types.UnionType):
        return get_args(annotation)
    return (annotation,)


def _choices(annotation: Any) -> list[str]:
    return list(map(str, get_args(annotation))) if get_origin(annotation) is Literal else []


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


def _as_list(value: Any, kinds: set[Any]) -> Any:
    """A single value, or a text with commas, is a list too."""
    if isinstance(value, str):
        parts = [part.strip() for part in value.split(",")]
        if int in kinds and str not in kinds:
            return _ranges(parts)
        return tuple(dict.fromkeys(part for part in parts if part))
    if isinstance(value, BaseModel) or not isinstance(value, Iterable):
        return (value,)
    if isinstance(value, Mapping):
        return value
    found = tuple(islice(value, MOST_VALUES + 1))
    if len(found) > MOST_VALUES:
        raise ValueError(f"it has more than {MOST_VALUES:,} values; name fewer")
    return found


def _ranges(parts: list[str]) -> tuple[int, ...]:
    """`1-3,6` as numbers."""
    numbers: list[int] = []
    for part in parts:
        ends = part.split("-")
        if len(ends) > 2 or not all(end.isascii() and end.isdecimal() for end in ends):
            raise ValueError("it is not a list of whole numbers such as 1,2 or 1-3,6")
        low, high = int(ends[0]), int(ends[-1])
        if low > high or high - low >= MOST_VALUES:
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
    def option(self) -> str | None:
        """Its short option."""
        extra = self.field.json_schema_extra
        if not isinstance(extra, dict) or "option" not in extra:
            return None
        return str(extra["option"] or f"--{self.path.rpartition('.')[2].replace('_', '-')}")

    @property
    def shown(self) -> bool:
        """Whether the short option is on the help page."""
        extra = self.field.json_schema_extra
        return isinstance(extra, dict) and bool(extra.get("shown"))

    @property
    def help(self) -> str:
        """What it is for, in a line."""
        return self.field.description or ""

    @property
    def default(self) -> Any:
        """Its default; `MISSING` if it has to be given."""
        return self.field.default

    @property
    def is_switch(self) -> bool:
        """Whether it is on or off; a group is, if it may be left out."""
        annotation = self.field.annotation
        return group_in(annotation) is not None or kinds_of(annotation) <= {bool, type(None)}

    @property
    def type_words(self) -> str:
        """What values it takes: a choice, or the kind of value."""
        annotation = self.field.annotation
        if get_origin(annotation) is dict:
            return "NAME,..."
        kinds = kinds_of(annotation)
        names = {bool: "true|false", float: "NUMBER", int: "INTEGER", Path: "PATH"}
        found = [name for kind, name in names.items() if kind in kinds]
        for one in _alternatives(annotation):
            found += _choices(one)
        kind = "|".join(found) or "TEXT"
        return f"{kind},..." if is_list(annotation) else kind


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
    """A value as a text on the command line, which is read as the same value."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple) and value and not any("," in str(each) for each in value):
        return ",".join(map(str, value))
    if isinstance(value, list | tuple | Mapping):
        return json.dumps(value, ensure_ascii=False, default=str)
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

    text_column: str | None = option(None, "Column with the text.")
    pair_column: str | None = rare(None, "Column with a second text.")
    label_column: str | None = option(None, "Column with the label.")
    original_label_column: str | None = option(None, "Column with the correct labels, if known.")
    suspects: str | None = option(None, "Column that marks labels you do not trust (true, false).")


class Data(Columns):
    """Which examples, and which of their labels are flipped (section 3)."""

    task: str = option("questions", "A name from `memloc tasks`, or a CSV/TSV/JSONL/Parquet file.")
    suspects: str | None = option(
        None,
        "Labels you do not trust, instead of flipped ones: a column that marks them (true, false), "
        "or auto for those that an audit suspects.",
    )
    twin: Twin = rare(
        "without",
        "What θ_O learns where labels are suspected: without (all but the suspects), suggested "
        "(the labels suggested for them).",
    )
    data_dir: Path | None = option(None, "Folder with local copies of the paper's tasks.")
    validation: Path | None = rare(None, "File with validation examples (default: a fifth).")
    limit: int | None = option(
        None, "Training examples to use; classes and known wrong labels keep their shares.", ge=1
    )
    binarise: bool = rare(False, "Keep only the two most frequent classes (appendix C).")
    noise: float = option(0.15, "Share of the labels of each class to flip.", gt=0, lt=1)
    seed: int = rare(1, "Decides whose label flips in all model seeds.", name="--data-seed", ge=0)


class GivenData(Columns):
    """The examples that given models were trained on."""

    file: Path = option(
        ...,
        "File with text, label (as trained), original_label; text_pair for pairs.",
        name="--data",
    )


class Training(Settings):
    """How θ_O, θ_M and the frozen model are fine-tuned (appendix D)."""

    epochs: Annotated[int, Field(ge=1, le=MOST_EPOCHS)] | Literal["auto"] = option(
        50, "Passes over the data; auto: until all training labels are learned."
    )
    most_epochs: int = setting(50, "Limit of epochs auto.", ge=1, le=MOST_EPOCHS)
    learning_rate: float = option(1e-5, "Peak learning rate.", gt=0)
    batch_size: int = rare(8, "Examples per step.", ge=1)
    micro_batch_size: int | None = rare(None, "Examples per forward pass, if not all.", ge=1)
    warmup: float = setting(0.1, "Share of the steps in which the learning rate rises.", ge=0, lt=1)
    weight_decay: float = setting(0.01, "Weight decay of AdamW.", ge=0)
    clip_norm: float = setting(1.0, "Gradients with a larger norm are clipped.", gt=0)
    memorised_at: float = setting(0.993, "Training accuracy that marks θ_M1.", gt=0, le=1)
    max_tokens: int = rare(512, "Longer texts are cut.", ge=4)
    dtype: Dtype = rare(
        "float32", "Of matrix products; weights stay float32. tf32: on CUDA GPUs only."
    )
    frozen_tail: Tail = setting(
        "head",
        "What learns in the frozen model: head, norm+head, all (also BERT's pooler; the authors' "
        "program).",
    )
    frozen_dropout: bool = setting(
        False, "Dropout in the frozen model's layers too, as in the authors' program."
    )
    compile: bool = rare(
        False,
        "Train with layers that torch.compile made, for GPUs; a process needs a minute or more for "
        "compiling, and results differ by rounding.",
    )

    def identity(self, state: str = "") -> dict[str, Any]:
        """What determines a training, for keys: what is about the frozen model counts there alone.

        Defaults of settings that came later are left out, so that older keys stay valid.
        """
        later = {"frozen_tail", "frozen_dropout", "compile"}
        counts = later if state == "frozen" else {"compile"}
        kept = self.model_dump(include=counts, exclude_defaults=True)
        if self.epochs != "auto":
            later |= {"most_epochs"}
        return self.model_dump(exclude=later) | kept

    @property
    def likely_epochs(self) -> int:
        """For estimates: how long `auto` takes is not known before."""
        return min(LIKELY_EPOCHS, self.most_epochs) if self.epochs == "auto" else self.epochs

    def with_fixed_epochs(self) -> Self:
        """The same; what never learns all labels trains to the limit of `auto`."""
        return self.replace(epochs=self.most_epochs) if self.epochs == "auto" else self


def check_dtype(dtype: Dtype, device: str) -> None:
    """Complain about TF32 where there is none; `auto` is a machine that is not known yet.

    Raises:
        ConfigError: If the device computes no matrix products in `dtype`.
    """
    if dtype == "tf32" and device not in ("auto", "cuda"):
        raise ConfigError(
            f"only CUDA GPUs have TF32, and the device is {device}",
            setting="training.dtype",
            value=dtype,
            remedy="leave it out",
        )


class Reading(Settings):
    """How a classifier is read."""

    blocks: str | None = rare(None, "Path of the layer stack in the model, if it is ambiguous.")
    pair_format: PairFormat = rare(
        "joined",
        "joined: both texts as one, with a separator (the paper); native: as the tokeniser does.",
        name="--pairs",
    )
    trust_remote_code: bool = rare(False, "Run code that a hub model brings along.")


class Model(Reading):
    """Which classifier, and how to read it."""

    name: str = option(
        "minilm", "A name from `memloc models list`, a hub name, or a directory.", name="--model"
    )
    head: Head = rare(
        "own",
        "own: that of transformers; paper: that of the authors' program, which reads BERT's [CLS] "
        "without the pooler, and has a bias in OPT, GPT-Neo and GPT-NeoX.",
    )


class GivenReading(Reading):
    """How given models are read."""

    pair_format: PairFormat = rare(
        "native",
        "native: pairs as the tokeniser does; joined: both texts as one, with a separator.",
        name="--pairs",
    )


class Windows(Settings):
    """Windows of consecutive layers, for the techniques that change them."""

    sizes: WindowSizes = option(
        "auto",
        "Sizes to try: auto (all up to 8 layers, else five, such as 1, 4, 7, 10 and 12; the rest "
        "is interpolated), all, or such as 1-3,6. The full window is always among them.",
        name="--windows",
        min_length=1,
    )
    clean: CleanExamples = rare(
        "matched",
        "Clean examples sent through swapped windows: matched (as many as noisy ones), all.",
    )
    exact: bool = rare(False, "Short for all windows and all clean examples.")
    unit: Unit = option("layer", "What of a layer is changed: all of it, or one of its parts.")

    @model_validator(mode="before")
    @classmethod
    def _spell_out(cls, values: Any) -> Any:
        if not isinstance(values, Mapping) or str(values.get("exact")).lower() != "true":
            return values
        return {**values, "sizes": "all", "clean": "all", "exact": False}


TechniqueSettings = dict[str, dict[str, Any]]
"""Techniques by name, in their order, with those of their settings that were given. Explanations
may be among them for their settings."""


class Generalisation(Settings):
    """Generalisation scores (section 5): models of random halves of the training data."""

    splits: int = setting(30, "Random halves.", ge=2)
    epochs: int = setting(10, "Passes over each half.", ge=1, le=MOST_EPOCHS)
    learning_rate: float | None = setting(
        None, "Default: the paper's 3e-5, or that of the fine-tuning if it is higher.", gt=0
    )


class Control(Settings):
    """The control setup (section 3.2): memorisation hidden in known layers."""

    auxiliary_rate: float | None = option(
        None,
        "Learning rate of the auxiliary task (default: half of the main task's, as in the paper).",
        name="--aux-rate",
        gt=0,
    )
    learned_at: float = setting(0.99, "Accuracy above which the task is learned.", gt=0, lt=1)
    attempts: int = setting(3, "Trainings at rising rates until it is learned.", ge=1)
    rate_factor: float = setting(2.0, "How much the rate rises from one attempt to the next.", gt=1)
    tail: Tail = setting(
        "head",
        "What the main task may change beside the hidden layers: head, norm+head, all (also BERT's "
        "pooler; the authors' program).",
    )

    def identity(self) -> dict[str, Any]:
        """For keys; the default of a setting that came later is left out."""
        tail = self.model_dump(include={"tail"}, exclude_defaults=True)
        return self.model_dump(exclude={"tail"}) | tail


PAPER_SPLIT_RATE = 3e-5


DeviceSetting = Annotated[Device, option(..., "Where to compute.")]


class Workers(Settings):
    """How jobs run; without influence on what is found."""

    workers: int | None = option(
        None, "Processes, each with one thread (default: cores).", ge=1, le=100_000
    )
    cache_memory: ByteSize | None = rare(
        None, "States a process keeps in memory, such as 500MB (default: 1GB); more go to a file."
    )
    low_memory: bool = rare(False, "Layers of θ_O stay in a file until needed; same results.")
    save_every: float = rare(10.0, "Minutes between two saved states of a training.", gt=0)

    def where(self, device: str) -> dict[str, Any]:
        """For `Job.where`."""
        memory = {"cache_memory": self.cache_memory, "low_memory": self.low_memory}
        return {"device": device, **memory, "save_every": self.save_every * 60}


class Engine(Workers):
    """Where results go and how jobs run here."""

    runs: Path = option(Path("runs"), "Folder for the store and the results.")


class Resources(Settings):
    """What one job of a kind occupies."""

    cpus: float = Field(1, gt=0)
    gpus: float = setting(0, "A fraction lets several jobs share a GPU.", ge=0)


class Ray(Settings):
    """Jobs as tasks of a Ray cluster."""

    address: str | None = setting(None, "Of a cluster, or `auto` (default: one starts here).")
    resources: dict[str, Resources] = setting(
        {},
        "By kind of job (train, window, …) or `default` (a core, and a GPU if it computes on one).",
    )


class Slurm(Settings):
    """Workers as jobs of a Slurm array, each of which takes jobs until none are left."""

    workers: int = setting(16, "Workers in the array.", ge=1, le=100_000)
    at_once: int | None = setting(None, "Cap on workers that run in parallel.", ge=1)
    minutes: int = setting(240, "Time limit of a worker; it is requeued then.", ge=1)
    cpus: int = setting(1, "Of a worker; without GPUs it does as many jobs at a time.", ge=1)
    gpus: int = setting(0, "Of a worker; with several it does as many jobs at a time.", ge=0)
    memory_gb: float = setting(16, "Of a worker.", gt=0)
    partition: str | None = None
    requeues: int = setting(20, "How often a worker comes back after a time-out.", ge=0)
    setup: tuple[str, ...] = setting((), "Shell lines that run before a worker.")
    options: dict[str, Any] = setting({}, "Further options of sbatch, such as account.")


class Execution(Workers):
    """The `execution` part of an experiment."""

    executor: ExecutorName = option("local", "Where jobs run.")
    device: DeviceSetting = "auto"
    ray: Ray = Ray()
    slurm: Slurm = Slurm()


def _check_different(seeds: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(seeds)) < len(seeds):
        raise ValueError("a seed is named twice; leave one of them out")
    return seeds


Seeds = Annotated[
    tuple[Seed, ...],
    option(..., "Model seeds, such as 1,2,3 or 1-5.", min_length=1),
    AfterValidator(_check_different),
]
Explain = Annotated[
    bool | None,
    option(
        ..., "Follow noisy examples through the layers (default: as far as model and data allow)."
    ),
]


class Run(Settings):
    """One experiment: a model, a task, some seeds."""

    data: Data = Data()
    model: Model = Model()
    training: Training = Training()
    seeds: Seeds = (1,)
    techniques: TechniqueSettings = option(
        {name: {} for name in DEFAULT_TECHNIQUES},
        f"Names from `memloc techniques` (default: {', '.join(DEFAULT_TECHNIQUES)}).",
    )
    windows: Windows = Windows()
    explain: Explain = None
    generalisation: Generalisation | None = option(
        None, "Also train on random halves: generalisation scores, memorisation map."
    )
    checkpoints: Checkpoints | None = option(
        None, "Also look at the model on its way: at so many epochs, or every_epoch."
    )
    device: DeviceSetting = "auto"

    @field_validator("generalisation", mode="before")
    @classmethod
    def _switch(cls, value: Any) -> Any:
        words: dict[str, Any] = {"true": {}, "false": None}
        return words.get(str(value).lower(), value)

    @field_validator("checkpoints", mode="before")
    @classmethod
    def _check_checkpoints(cls, value: Any) -> Any:
        if value in (None, EVERY_EPOCH) or (str(value).isdecimal() and int(value) >= 2):
            return value
        raise ValueError(f"give a number of epochs from 2 up, or {EVERY_EPOCH}")

    @model_validator(mode="after")
    def _check_epochs(self) -> Self:
        wanted, epochs = self.checkpoints, self.training.epochs
        if wanted is not None and epochs == "auto":
            raise ConfigError(
                "checkpoints need a number of epochs that is known before",
                setting="training.epochs",
                value=epochs,
                remedy="give a number",
            )
        least = 2 if wanted == EVERY_EPOCH else wanted
        if least is not None and epochs != "auto" and epochs < int(least):
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
        epochs = self.training.likely_epochs
        count = epochs if self.checkpoints == EVERY_EPOCH else int(self.checkpoints)
        return tuple(round(epochs * number / count) for number in range(1, count + 1))


class Audit(Settings):
    """Which labels of the training examples are likely wrong."""

    data: Data = Data(suspects=AUTO)
    model: Model = Model()
    training: Training = Training()
    seed: Seed = option(1, "Decides the new head, and the order of the examples.")
    splits: int = option(
        2,
        "Models of random halves of the data, in pairs, which judge the examples they did not see; "
        "0: none, which saves a third of the time.",
        ge=0,
        multiple_of=2,
    )
    split_epochs: int = setting(4, "Passes over each half.", ge=1, le=MOST_EPOCHS)
    device: DeviceSetting = "auto"

    @field_validator("data")
    @classmethod
    def _flip_none(cls, data: Data) -> Data:
        return data.replace(suspects=AUTO)


class Localisation(Settings):
    """Models that somebody has fine-tuned, and what to find out about them."""

    memorised: str = option(..., "Model fine-tuned on the labels in the data: directory or name.")
    original: str = option(..., "The same model fine-tuned on the original labels.")
    pretrained: str | None = option(
        None, "The model before fine-tuning, for retraining, gradients and probing."
    )
    near_ceiling: str | None = option(
        None,
        "The memorised model when it had just learned the labels (for gradients).",
    )
    data: GivenData
    model: GivenReading = GivenReading()
    training: Training = Training()
    seed: Seed = option(1, "Chooses clean examples, and the order of retraining.")
    techniques: TechniqueSettings = option(
        {}, "Names from `memloc techniques` (default: the usual four, as far as models are given)."
    )
    windows: Windows = Windows()
    explain: Explain = None
    device: DeviceSetting = "auto"


class ControlledModel(Settings):
    """A model of the control benchmark with the settings it is trained with."""

    model: Model = Model()
    training: Training = Training()
    exceptions: dict[str, Training] = setting({}, "How it is trained on single tasks, by name.")


class ControlRun(Settings):
    """The control benchmark: models × tasks × sets of layers × seeds."""

    models: tuple[ControlledModel, ...] = setting(
        (ControlledModel(),), "Models, with how they are trained.", min_length=1
    )
    data: Data = setting(Data(), "Of all tasks; the name of one is replaced.")
    tasks: tuple[str, ...] = option(..., "Main tasks (default: the built-in ones).", min_length=1)
    auxiliary: str = option(
        "entailment", "Task with clean labels that trains all layers.", name="--aux-task"
    )
    auxiliary_limit: int | None = option(
        None,
        "Its training examples (default: all, but of a built-in task 100).",
        name="--aux-limit",
        ge=1,
    )
    layers: tuple[str, ...] = option(
        ("first", "middle", "last"),
        "Where to hide: first, middle, last (pairs), or 1+2,6+7.",
        min_length=1,
    )
    seeds: Seeds = (1,)
    techniques: TechniqueSettings = option(
        {}, "Names from `memloc techniques` (default: all that the models allow)."
    )
    all_techniques: bool = setting(
        False, "All techniques that the models allow; `techniques` only has settings then."
    )
    windows: Windows = Windows()
    held_back: tuple[str, ...] = option(
        (), "Tasks that only choose the post-processing of gradients (Table 4)."
    )
    control: Control = Control()
    device: DeviceSetting = "auto"

    @property
    def every_technique(self) -> bool:
        """Whether all techniques are wanted that the models allow."""
        return self.all_techniques or not self.techniques


class Repair(Settings):
    """Which models without their wrong labels are made of a result, and which of them is kept."""

    seed: Seed | None = option(None, "Model seed to repair (default: the first of the result).")
    candidate: Candidate | None = option(None, "Which one to write (default: the best by the exam)")
    device: DeviceSetting = "auto"
