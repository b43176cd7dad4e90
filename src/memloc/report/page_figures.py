"""The key figures of a result, each with what it means."""

from __future__ import annotations

from typing import Any

from memloc.results.narrative import (
    acting,
    clean_lost,
    found_something,
    lead_technique,
    of_all,
    part_of,
    undone_by_all,
)


def key_figures(summary: dict[str, Any]) -> list[dict[str, str]]:
    """Label, value and meaning of what a reader asks first; only what is known."""
    figures = [*_training(summary), *_localisation(summary), *_movement(summary)]
    return [
        {"label": label, "value": value, "meaning": meaning}
        for label, value, meaning in figures
        if value is not None
    ]


Figure = tuple[str, str | None, str]


def _training(summary: dict[str, Any]) -> list[Figure]:
    training = summary.get("training") or {}
    noisy = summary.get("noisy_examples")
    validation, original = (
        training.get(key) for key in ("validation_accuracy", "original_validation_accuracy")
    )
    beside = (
        "" if original is None else f" A twin trained on the original labels has {original:.0%}."
    )
    scores = summary.get("scores") or {}
    return [
        (
            "memorised",
            _percent(summary.get("memorised_share")),
            f"Share of the {noisy} flipped labels that the fine-tuned model gives. Near 100%: "
            "it has learned them by heart.",
        ),
        (
            "validation accuracy",
            _percent(validation),
            "Share of unseen examples it gets right although some of its training labels were "
            f"wrong.{beside}",
        ),
        (
            "generalisation score",
            _percent(scores.get("generalisation_score")),
            "Share of training examples whose label models that were not trained on them find "
            "more likely than by guessing.",
        ),
    ]


def _localisation(summary: dict[str, Any]) -> list[Figure]:
    methods = summary["methods"]
    if not methods:
        return []
    name = lead_technique(summary)
    result, layers = methods[name], summary["layers"]
    something = found_something(summary, result)
    centre = result["m_cog"] if something else None
    best = (result.get("strongest_single_layer") if something else None) or {}
    needed = result.get("layers_to_undo") if something else None
    does, part = acting(name, result), part_of(result)
    lost = clean_lost(summary, result)
    return [
        (
            "centre of gravity",
            None if centre is None else f"{centre:.2f} of {layers}",
            f"M-CoG by {name}: the mean layer, weighted by how much it matters. {_middle(layers)} "
            "would be the middle; lower means that lower layers matter more.",
        ),
        (
            "strongest single layer",
            f"layer {best['layer']}: {of_all(best['undoes'])}" if "undoes" in best else None,
            f"What {does} this layer alone undoes, of all that {does} every layer undoes.",
        ),
        (
            f"undone by all {part or 'layers'}",
            _percent(undone_by_all(summary, result)) if part or not something else None,
            f"Share of the flipped labels that {does} every layer undoes; other shares are "
            "relative to it.",
        ),
        (
            "layers to undo 95%",
            f"{needed} of {layers}" if needed else None,
            f"The smallest number of adjacent layers with which {name} undoes nearly all "
            + (f"that {does} every layer undoes." if part else "memorisation."),
        ),
        (
            "clean labels lost",
            _percent(lost, 1),
            f"Mean share of clean examples that {name} breaks. Near 0%: what it undoes is "
            "memorisation, not knowledge of the task.",
        ),
        (
            "clean labels wrong",
            _percent(result.get("clean_error"), 1) if lost is None else None,
            f"Mean share of clean examples that are wrong after {name}, those included that were "
            "wrong before. Near 0%: what it undoes is memorisation, not knowledge of the task.",
        ),
    ]


def _movement(summary: dict[str, Any]) -> list[Figure]:
    events = ((summary.get("explanation") or {}).get("events") or {}).get("memorised") or {}
    crossing = (events.get("crossing") or {}).get("layer")
    return [
        (
            "crossing",
            None if crossing is None else f"layer {crossing:.1f}".removesuffix(".0"),
            "The layer after which flipped examples are on average nearer to their new class than "
            "to their old one.",
        )
    ]


def _middle(layers: int) -> str:
    return f"{(layers + 1) / 2:g}"


def _percent(share: float | None, digits: int = 0) -> str | None:
    return None if share is None else f"{share:.{digits}%}"
