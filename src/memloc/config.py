"""What to do: frozen settings, checked when they are made.

The defaults of `TrainingConfig` are the paper's (section 3, appendix D). Known models carry
settings of their own, see `memloc.models.names`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from memloc.errors import ConfigError as ConfigError

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


class Settings(BaseModel):
    """Settings that cannot be changed, nor have names that nobody knows."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    flags: ClassVar[dict[str, str]] = {}
    """Options on the command line that are not called like their field."""

    @field_validator("*", mode="before")
    @classmethod
    def _check_numbers(cls, value: Any, info: ValidationInfo) -> Any:
        """Numbers are numbers: neither `yes`, which YAML takes for true, nor texts."""
        kinds = _kinds(cls.model_fields[str(info.field_name)].annotation)
        if kinds & {int, float} and not kinds & {bool, str}:
            values = value if isinstance(value, list | tuple) else [value]
            if any(isinstance(each, bool | str) for each in values):
                kind = "number" if float in kinds else "integer"
                raise PydanticCustomError(
                    "number", "Input should be a valid {kind}", {"kind": kind}
                )
        return value

    @classmethod
    def make(cls, **values: Any) -> Self:
        """Construct, turning pydantic's report into one sentence."""
        try:
            return cls(**values)
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(str(part) for part in first["loc"]) or cls.__name__
            option = cls.flags.get(name, f"--{name.replace('_', '-')}")
            reason = first["msg"][0].lower() + first["msg"][1:]
            raise ConfigError(f"{option} {first['input']} is not possible: {reason}") from None

    def replace(self, **values: Any) -> Self:
        """A checked copy with some settings changed; ``None`` means 'leave as it is'."""
        changed = {name: value for name, value in values.items() if value is not None}
        return self.make(**{**dict(self), **changed})


def _kinds(annotation: Any) -> set[Any]:
    """What values, or those in a list of them, may be; of words that are possible, `str`."""
    parts = get_args(annotation)
    if not parts:
        return {str if isinstance(annotation, str) else annotation}
    return set().union(*map(_kinds, parts))


class DataConfig(Settings):
    """Which examples, and which of their labels are flipped (section 3)."""

    flags = {"seed": "--data-seed"}

    task: str = Field("questions", description="A built-in task, a paper task, or a file.")
    data_dir: Path | None = Field(None, description="Folder with local copies of the paper tasks.")
    validation: Path | None = Field(None, description="Validation file beside a --task file.")
    text_column: str | None = None
    pair_column: str | None = None
    label_column: str | None = None
    original_label_column: str | None = Field(
        None, description="Correct labels, for data whose label noise is already known."
    )
    limit: int | None = Field(None, ge=1, description="Training examples (stratified subset).")
    binarise: bool = Field(False, description="Keep the two most frequent classes (appendix C).")
    noise: float = Field(0.15, gt=0, lt=1, description="Share of each class whose label flips.")
    seed: int = Field(1, ge=0, description="Decides who is noisy; the same for all model seeds.")


class TrainingConfig(Settings):
    """How θ_O, θ_M and the frozen model are fine-tuned (appendix D)."""

    epochs: int = Field(50, ge=1, le=MOST_EPOCHS)
    learning_rate: float = Field(1e-5, gt=0)
    batch_size: int = Field(8, ge=1)
    micro_batch_size: int | None = Field(
        None, ge=1, description="Examples per forward pass; gradients accumulate to batch_size."
    )
    warmup: float = Field(0.1, ge=0, lt=1, description="Share of the steps with a rising rate.")
    weight_decay: float = Field(0.01, ge=0)
    clip_norm: float = Field(1.0, gt=0)
    memorised_at: float = Field(0.993, gt=0, le=1, description="Training accuracy that marks θ_M1.")
    max_tokens: int = Field(512, ge=4)
    dtype: Dtype = "float32"


class ModelConfig(Settings):
    """Which classifier, and how to read it."""

    flags = {"name": "--model", "pair_format": "--pairs"}

    name: str = Field("minilm", description="A known name, a hub name, or a local directory.")
    blocks: str | None = Field(None, description="Path of the layer stack, if it is ambiguous.")
    pair_format: PairFormat = Field(
        "joined",
        description="joined: both sentences as one text with the separator (the paper); "
        "native: the tokeniser's own way of encoding a pair.",
    )
    trust_remote_code: bool = False


class Windows(Settings):
    """Windows of consecutive layers, for the techniques that change them."""

    flags = {"sizes": "--window-sizes"}

    sizes: tuple[int, ...] | None = Field(
        None,
        min_length=1,
        description="Sizes of the windows to modify; None: all. The full window always belongs to "
        "them, as errors are relative to it.",
    )
    unit: Unit = Field(
        "layer",
        description="What of a layer is changed: all of it, its attention, or the rest (the MLP).",
    )


TechniqueSettings = dict[str, dict[str, Any]]
"""Techniques by name, in their order, with those of their settings that were given. Explanations
may be among them for their settings."""


class GeneralisationConfig(Settings):
    """Generalisation scores (section 5): models of random halves of the training data."""

    flags = {
        "splits": "--splits",
        "epochs": "--split-epochs",
        "learning_rate": "--split-rate",
        "standard_error": "--stop-at-error",
    }

    splits: int = Field(30, ge=2)
    epochs: int = Field(10, ge=1, le=MOST_EPOCHS)
    learning_rate: float | None = Field(
        None,
        gt=0,
        description="None: the paper's 3e-5, or that of the fine-tuning if it is higher.",
    )
    standard_error: float | None = Field(
        None, gt=0, lt=1, description="No further splits once that of the task score is below it."
    )


class ControlConfig(Settings):
    """The control setup (section 3.2): memorisation hidden in known layers."""

    flags = {
        "auxiliary_rate": "--aux-rate",
        "attempts": "--attempts",
        "learned_at": "--learned-at",
    }

    auxiliary_rate: float | None = Field(
        None,
        gt=0,
        description="Learning rate of the auxiliary task; None: half of the main task's, as in the "
        "paper (5e-6 and 1e-5).",
    )
    learned_at: float = Field(
        0.99, gt=0, lt=1, description="Training accuracy above which the main task is learned."
    )
    attempts: int = Field(3, ge=1, description="Trainings at rising rates until it is learned.")
    rate_factor: float = Field(2.0, gt=1, description="From one attempt to the next.")


PAPER_SPLIT_RATE = 3e-5


class RunConfig(Settings):
    """One experiment: a model, a task, some seeds."""

    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    seeds: tuple[int, ...] = Field((1,), min_length=1)
    techniques: TechniqueSettings = Field(
        {name: {} for name in DEFAULT_TECHNIQUES}, description="Techniques, with their settings."
    )
    windows: Windows = Windows()
    explain: bool | None = Field(
        None, description="Centroids and class probes; None: as far as model and data allow."
    )
    generalisation: GeneralisationConfig | None = Field(
        None, description="Half-splits; None leaves them out."
    )
    checkpoints: Checkpoints | None = Field(
        None,
        description="Also look at θ_M on its way: at so many epochs, evenly spread and with the "
        "last one, or at every epoch; None: only at the end.",
    )
    device: Device = "auto"

    @field_validator("checkpoints", mode="before")
    @classmethod
    def check_checkpoints(cls, value: Any) -> Any:
        """A number of epochs, or every one.

        Raises:
            ConfigError: If it is something else.
        """
        number = isinstance(value, int) and not isinstance(value, bool)
        if value is None or value == EVERY_EPOCH or (number and value >= 2):
            return value
        raise ConfigError(
            f"--checkpoints {value or repr(value)} is not possible: give a number of epochs from 2 "
            f"up, or {EVERY_EPOCH}"
        )

    @model_validator(mode="after")
    def _check_epochs(self) -> Self:
        wanted, epochs = self.checkpoints, self.training.epochs
        least = 2 if wanted == EVERY_EPOCH else wanted
        if least is not None and epochs < int(least):
            raise ConfigError(
                f"--checkpoints {wanted} is not possible: training has {epochs} "
                f"epoch{'s' * (epochs > 1)}, and there is one checkpoint per epoch at most; "
                "use fewer, or more --epochs"
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


class ControlledModel(Settings):
    """A model of the control benchmark with the settings it is trained with."""

    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()


class ControlRunConfig(Settings):
    """The control benchmark: models × tasks × sets of layers × seeds."""

    flags = {"auxiliary_limit": "--aux-limit"}

    models: tuple[ControlledModel, ...] = Field((ControlledModel(),), min_length=1)
    data: DataConfig = Field(DataConfig(), description="Of all tasks; the name of one is replaced.")
    tasks: tuple[str, ...] = Field(min_length=1)
    auxiliary: str = "entailment"
    auxiliary_limit: int | None = Field(
        None, ge=1, description="Its training examples; None: all, but of a built-in task 100."
    )
    layers: tuple[str, ...] = Field(("first", "middle", "last"), min_length=1)
    seeds: tuple[int, ...] = Field((1,), min_length=1)
    techniques: TechniqueSettings = Field(
        {}, description="Techniques, with their settings; none: all that the models allow."
    )
    all_techniques: bool = Field(
        False,
        description="All techniques that the models allow; `techniques` only has settings then.",
    )
    windows: Windows = Windows()
    held_back: tuple[str, ...] = Field(
        (), description="Tasks that only choose the post-processing of gradients (Table 4)."
    )
    control: ControlConfig = ControlConfig()
    device: Device = "auto"

    @property
    def every_technique(self) -> bool:
        """Whether all techniques are wanted that the models allow."""
        return self.all_techniques or not self.techniques
