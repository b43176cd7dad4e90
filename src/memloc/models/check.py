"""`memloc models check`: what is found in a model, for people."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from memloc import text
from memloc.config import Model
from memloc.errors import ModelError
from memloc.models.blocks import BlockModel
from memloc.models.load import load_classifier
from memloc.models.mixing import STATE_BYTES
from memloc.models.names import resolve

POOLING = {
    "first": "the first token",
    "last": "the last real token",
    "other": "more than one position (slow path)",
}


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
    sizes = found["parameters"]
    per_layer = sorted(set(sizes["layers"]))
    each = (
        f"{per_layer[0]:,} each"
        if len(per_layer) == 1
        else f"{per_layer[0]:,} to {per_layer[-1]:,}"
    )
    exact = found["resume_from_any_layer"]
    cached = exact and found["head_reads"] != "other"
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 3, 0, 0))
    table.add_row("model", f"{found['model']} ({found['architecture']})")
    table.add_row("layers", f"{found['layers']}, in {found['stack']}")
    table.add_row("parameters", f"{sizes['all']:,}")
    table.add_row("  embeddings", f"{sizes['embeddings']:,}")
    table.add_row("  layers", f"{sum(sizes['layers']):,} ({each})")
    table.add_row("  tail", f"{sizes['tail']:,} (of which head {sizes['of the tail, head']:,})")
    table.add_row("head reads", POOLING[found["head_reads"]])
    table.add_row("padding, separator", f"{found['padding_token']}  {found['separator']}")
    table.add_row("longest input", f"{found['max_tokens']} tokens")
    table.add_row("swapping windows", "fast: shared between windows" if exact
                  else f"slow path: whole passes, because {found['resume_problem']}")  # fmt: skip
    memory = {name: text.size(size) for name, size in found["swapping_memory_bytes"].items()}
    table.add_row(
        "swapping needs",
        f"about {memory['two_models']}; in low-memory mode {memory['low_memory']}",
    )
    table.add_row(
        "frozen model", "fast: head on stored states" if cached else "slow path: whole passes"
    )
    console.print(table)
