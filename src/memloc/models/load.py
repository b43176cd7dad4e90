"""From a name to a classifier that is ready to be taken apart, and what is found in it."""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from memloc import text
from memloc.config import Model
from memloc.data.encode import TextCodec
from memloc.errors import ModelError
from memloc.models.blocks import BlockModel, token_table
from memloc.models.mixing import STATE_BYTES
from memloc.models.names import TOKENISER_FILES, ModelSource, resolve

POOLING = {
    "first": "the first token",
    "last": "the last real token",
    "other": "more than one position (slow path)",
}

PEFT_PREFIX = "base_model.model."
"""What `peft` puts before the names of the parameters."""
MARK = 7919
"""A number of classes that no other dimension of a model has."""


@dataclass(frozen=True)
class Classifier:
    """A model taken apart into layers, with its tokeniser.

    `fresh` names the parameters that no checkpoint holds: a new head, perhaps a pooler.
    """

    blocks: BlockModel
    codec: TextCodec
    fresh: frozenset[str] = frozenset()


def load_classifier(
    source: ModelSource,
    config: Model,
    *,
    n_labels: int | None,
    seed: int = 0,
    device: torch.device | str = "cpu",
    max_tokens: int = 512,
    labels: tuple[str, ...] | None = None,
) -> Classifier:
    """Load model and tokeniser, agree on padding, and examine the layers.

    Args:
        source: From `resolve`.
        config: How to read it.
        n_labels: Size of a new head (initialised from `seed`); None keeps the head that is stored.
        seed: For the new head.
        device: Where to put the model.
        max_tokens: Upper limit of the input length.
        labels: Class names to store in the config.

    Raises:
        ModelError: If the model cannot be loaded or analysed.
    """
    options: dict[str, Any] = {"trust_remote_code": config.trust_remote_code}
    if source.revision:
        options |= {"revision": source.revision, "local_files_only": source.offline}
    model_config = _load_part("config", AutoConfig, source, options)  # most errors show here
    own = Path(source.adapter or source.location)
    place = str(own) if any((own / name).is_file() for name in TOKENISER_FILES) else None
    tokenizer = _load_part("tokeniser", AutoTokenizer, source, options, place)
    adapter: dict[str, Tensor] = {}
    classes = n_labels
    if source.adapter is not None:
        adapter = _adapter_weights(source, source.adapter)
        if n_labels is None:
            classes = _classes_of(adapter, model_config, options)
    head: dict[str, Any] = {} if classes is None else {"num_labels": classes}
    if labels is not None:
        head |= {
            "id2label": dict(enumerate(labels)),
            "label2id": {n: i for i, n in enumerate(labels)},
        }
    # Checkpoints are loaded in float32 even if stored in half precision: fine-tuning needs it.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model, info = _load_part(
            "model",
            AutoModelForSequenceClassification,
            source,
            {
                **options,
                **head,
                "dtype": torch.float32,
                "output_loading_info": True,
                "ignore_mismatched_sizes": classes is not None,
            },
        )
        if source.adapter is not None:
            model = _merged(model, source, source.adapter, new_head=n_labels is not None)
            saved = {name.removeprefix(PEFT_PREFIX): one.shape for name, one in adapter.items()}
            given = {name for name, one in model.named_parameters() if saved.get(name) == one.shape}
            for keys in ("missing_keys", "mismatched_keys"):
                info[keys] = {key for key in info[keys] if _parameter(key) not in given}
    if config.head == "paper" and n_labels is not None:
        info["missing_keys"] = {*info["missing_keys"], *put_paper_head(model)}
    codec = codec_of(model, tokenizer, max_tokens, source.name)
    blocks = BlockModel(model.to(device).eval(), config.blocks)
    fresh = _check_loaded(blocks, info, source.name, new_head=n_labels is not None)
    return Classifier(blocks, codec, fresh)


# --- adapters -----------------------------------------------------------------------------------


def _adapter_weights(source: ModelSource, folder: str) -> dict[str, Tensor]:
    """What `peft` saved: the weights of the adapter, and mostly those of a head."""
    try:
        import peft
    except ImportError:
        raise ModelError(
            f"{folder!r} is an adapter of peft, which is not installed",
            remedy="install it with `pip install peft`, or give the model with the adapter merged",
        ) from None
    config = _load_part("adapter", peft.PeftConfig, source, {}, folder)
    check_adapter(config, repr(folder))
    with _in_words("adapter", source, folder):
        weights: dict[str, Tensor] = peft.load_peft_weights(folder, device="cpu")
    return weights


def check_adapter(config: Any, name: str) -> None:
    """Only adapters in the layers can be analysed; takes their `peft` configuration.

    Raises:
        ModelError: If it is a learned prompt.
    """
    if getattr(config, "is_prompt_learning", False):
        raise ModelError(
            f"{name} has learned a prompt ({config.peft_type}), which is not in its layers; "
            "adapters in the layers, such as LoRA, can be analysed"
        )


def _classes_of(adapter: dict[str, Tensor], config: Any, options: dict[str, Any]) -> int | None:
    """Outputs of the head that an adapter brings, as its folder has no config that says so."""
    sized = copy.deepcopy(config)
    sized.num_labels = MARK
    with torch.device("meta"):
        trust = options["trust_remote_code"]
        model = AutoModelForSequenceClassification.from_config(sized, trust_remote_code=trust)
    for name, parameter in model.named_parameters():
        saved = adapter.get(f"{PEFT_PREFIX}{name}")
        if saved is not None and parameter.shape[0] == MARK:
            return len(saved)
    return None


def _merged(model: nn.Module, source: ModelSource, folder: str, *, new_head: bool) -> Any:
    """The model with the adapter in its weights; a new head may differ from the adapter's."""
    import peft

    with _in_words("adapter", source, folder), quiet():
        adapted: Any = peft.PeftModel.from_pretrained(
            model, folder, ignore_mismatched_sizes=new_head
        )
        return adapted.merge_and_unload()


class FirstToken(nn.Module):
    """A pooler that hands on the state of the first token as it is."""

    def forward(self, states: Tensor) -> Tensor:
        """The state that the head reads."""
        return states[:, 0]


def put_paper_head(model: Any) -> set[str]:
    """Give a model the head it has in the authors' program; names of the parameters that are new.

    Their BERT computes the pooler but returns the state of [CLS], so the pooler does not learn. The
    heads of their decoders have a bias.

    Raises:
        ModelError: If their program has no head for such a model.
    """
    if model.config.model_type == "bert":
        model.base_model.pooler = FirstToken()
        return set()
    if model.config.model_type in ("opt", "gpt_neo", "gpt_neox"):
        model.score.bias = nn.Parameter(torch.zeros(model.score.out_features))
        return {"score.bias"}
    raise ModelError(
        f"the authors' program has heads for BERT, OPT, GPT-Neo and GPT-NeoX (Pythia), and this is "
        f"{type(model).__name__}",
        setting="model.head",
        value="paper",
        remedy="use own",
    )


def codec_of(model: Any, tokenizer: Any, max_tokens: int, name: str = "tokenizer") -> TextCodec:
    """A tokeniser, used for this model; sets the padding ids of both.

    Raises:
        ModelError: If no token can serve as padding.
    """
    pad_id = agree_on_padding(model, tokenizer, name)
    return TextCodec(
        tokenizer,
        separator_of(tokenizer, model.config),
        pad_id,
        min(max_tokens, length_limit(tokenizer, model)),
        None if (table := token_table(model)) is None else len(table),
    )


def _check_loaded(
    blocks: BlockModel, info: dict[str, Any], name: str, *, new_head: bool
) -> frozenset[str]:
    """Which parameters are new; only the tail may have such, and only if a new head is wanted.

    Raises:
        ModelError: If layers or embeddings do not come from the checkpoint, or it has more layers.
    """
    mismatched = {_parameter(key) for key in info["mismatched_keys"]}
    parameters = {key for key, _ in blocks.model.named_parameters()}
    fresh = (set(info["missing_keys"]) | mismatched) & parameters
    allowed = set(blocks.groups.tail) if new_head else set()
    for key in sorted(fresh - allowed):
        what = "gives another shape for" if key in mismatched else "has no weights for"
        hint = "its config does not fit its weights"
        if key in blocks.groups.head:
            hint = "give a fine-tuned sequence-classification model"
        raise ModelError(f"the checkpoint of {name!r} {what} {key!r}; {hint}")
    extra = f"{blocks.stack_path}.{blocks.n_layers}."
    if any(extra in f"{key}." for key in info["unexpected_keys"]):
        raise ModelError(
            f"the checkpoint of {name!r} has more than the {blocks.n_layers} layers of its config; "
            "its config does not fit its weights"
        )
    return frozenset(fresh)


def agree_on_padding(model: Any, tokenizer: Any, name: str) -> int:
    """Make tokeniser and config name the same padding token; a missing one becomes EOS.

    If they disagree the model wins: its modules were built with its id.

    Raises:
        ModelError: If there is neither a padding nor an end-of-text token.
    """
    config = model.config.get_text_config()
    token = None
    if config.pad_token_id is not None and 0 <= config.pad_token_id < config.vocab_size:
        token = tokenizer.convert_ids_to_tokens(config.pad_token_id)
    if token is not None:
        tokenizer.pad_token = token
    elif tokenizer.pad_token_id is None:
        if tokenizer.eos_token_id is None:
            raise ModelError(
                f"the tokeniser of {name!r} has neither a padding nor an end-of-text token; "
                "set tokenizer.pad_token and save it again"
            )
        tokenizer.pad_token = tokenizer.eos_token
    set_padding(model, int(tokenizer.pad_token_id))
    return int(tokenizer.pad_token_id)


def set_padding(model: Any, pad_id: int) -> None:
    """Tell the model which token is padding."""
    model.config.get_text_config().pad_token_id = pad_id
    model.config.pad_token_id = pad_id


def share_embeddings(model: BlockModel, reference: BlockModel) -> None:
    """Let a model use the embeddings of another one where they are equal, instead of a copy.

    Fine-tuning leaves embeddings alone, so models that come from the same one cost one set of them.
    """
    mine, theirs = (dict(m.model.named_parameters()) for m in (model, reference))
    for name in model.groups.embeddings:
        if name in theirs and torch.equal(mine[name], theirs[name]):
            mine[name].data = theirs[name].data


def separator_of(tokenizer: Any, config: Any) -> str:
    """What stands between two sentences (section 3): SEP; EOS for OPT; otherwise a bar."""
    if tokenizer.sep_token:
        return str(tokenizer.sep_token)
    if config.model_type == "opt":
        return str(tokenizer.eos_token)
    return "|"


def length_limit(tokenizer: Any, model: Any) -> int:
    """The longest input that both tokeniser and position embeddings allow."""
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None) or 2**30
    for name, module in model.named_modules():
        # RoBERTa and its kin count positions from the padding id on.
        if (
            name.endswith("position_embeddings")
            and getattr(module, "padding_idx", None) is not None
        ):
            positions = min(positions, len(module.weight) - module.padding_idx - 1)
    return min(int(tokenizer.model_max_length), int(positions))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence the loading reports and bars of transformers, then restore them."""
    verbosity = transformers.logging.get_verbosity()
    bars = transformers.utils.logging.is_progress_bar_enabled()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            # Said by torch about weights that it then refuses, which is said in our words.
            warnings.filterwarnings("ignore", message="Detected pickle protocol")
            # Said by peft about a head that is replaced.
            warnings.filterwarnings("ignore", message="Some weights of")
            yield
    finally:
        transformers.logging.set_verbosity(verbosity)
        if bars:
            transformers.utils.logging.enable_progress_bar()


def _parameter(key: Any) -> str:
    """Of a loading report, which may add the two shapes."""
    return key if isinstance(key, str) else str(key[0])


def _load_part(
    what: str, loader: Any, source: ModelSource, options: dict[str, Any], place: str | None = None
) -> Any:
    """Load something from the model, or from another place."""
    place = place or source.location
    with _in_words(what, source, place), quiet():
        return loader.from_pretrained(place, **options)


@contextlib.contextmanager
def _in_words(what: str, source: ModelSource, place: str | None) -> Iterator[None]:
    """What the libraries raise becomes a sentence."""
    try:
        yield
    except Exception as error:  # damaged files make the libraries raise almost anything
        if "trust_remote_code" in str(error):
            raise ModelError(
                f"model {source.name!r} brings code of its own, which runs only if you allow it",
                setting="model.trust_remote_code",
                remedy="switch it on if you trust the model",
            ) from None
        if type(error).__name__ == "UnpicklingError":
            raise ModelError(
                f"the weights of {source.name!r} are a pickle with more than tensors in it, which "
                "could run code and is not read; get or save the model as safetensors"
            ) from None
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        details = (lines[0] if lines else "no details").rstrip(".:")[:200]
        raise ModelError(
            f"the {what} of {source.name!r} could not be loaded from {place!r} "
            f"({type(error).__name__}: {details}); check or save it again"
        ) from None


def check_model(config: Model) -> dict[str, Any]:
    """Load a model, examine it, and describe it as JSON data."""
    source = resolve(config)
    try:
        classifier = load_classifier(source, config, n_labels=None)  # a fine-tuned classifier
    except ModelError:
        classifier = load_classifier(source, config, n_labels=2)  # or a new head on what is there
    blocks, codec = classifier.blocks, classifier.codec
    parameters = parameter_counts(blocks)
    return {
        "model": source.name,
        "architecture": type(blocks.model).__name__,
        "stack": blocks.stack_path,
        "layers": blocks.n_layers,
        "parameters": parameters,
        "resume_from_any_layer": blocks.can_resume,
        "resume_problem": blocks.resume_problem,
        "head_reads": blocks.pooling,
        "padding_token": codec.tokenizer.pad_token,
        "separator": codec.separator,
        "max_tokens": codec.max_tokens,
        "swapping_memory_bytes": swapping_bytes(parameters),
    }


def parameter_counts(model: BlockModel) -> dict[str, Any]:
    """How many numbers the parts of a model have; `layers` has one entry per layer."""
    sizes = {name: parameter.numel() for name, parameter in model.model.named_parameters()}

    def count(names: tuple[str, ...]) -> int:
        return sum(sizes[name] for name in names)

    groups = model.groups
    return {
        "embeddings": count(groups.embeddings),
        "layers": [count(names) for names in groups.blocks],
        "tail": count(groups.tail),
        "of the tail, head": count(groups.head),
        "all": sum(sizes.values()),
    }


def swapping_bytes(parameters: dict[str, Any]) -> dict[str, int]:
    """The peak of swapping, beside the program itself: two models in float32, and room to work.

    Models of one origin share their embeddings, but each has its own while they are loaded. In low
    memory, one layer of the second model is there at a time.
    """
    layers, tail = parameters["layers"], parameters["tail"]
    work = max(STATE_BYTES, 4 * parameters["embeddings"])
    return {
        "two_models": 4 * (parameters["all"] + sum(layers) + tail) + work,
        "low_memory": 4 * (parameters["all"] + max(layers) + tail) + work,
    }


def show_check(found: dict[str, Any], console: Console) -> None:
    """Print the description."""
    sizes = found["parameters"] | {"layers": sum(found["parameters"]["layers"])}
    memory = {name: text.size(size) for name, size in found["swapping_memory_bytes"].items()}
    slow = f"slow path: whole passes, because {found['resume_problem']}"
    rows = {
        "model": f"{found['model']} ({found['architecture']})",
        "layers": f"{found['layers']}, in {found['stack']}",
        "parameters": "\n".join(f"{size:,} {part}" for part, size in sizes.items()),
        "head reads": POOLING[found["head_reads"]],
        "padding, separator": f"{found['padding_token']}  {found['separator']}",
        "longest input": f"{found['max_tokens']} tokens",
        "windows": slow if found["resume_problem"] else "fast: shared between windows",
        "swapping needs": f"about {memory['two_models']}; "
        f"in low-memory mode {memory['low_memory']}",
    }
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 3, 0, 0))
    for name, value in rows.items():
        table.add_row(name, value)
    console.print(table)
