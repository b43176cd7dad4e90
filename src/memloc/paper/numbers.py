"""What Dankers & Titov (2024) found, in numbers. Some are read off figures.

Tasks are called as in `memloc tasks`, models as in the paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memloc.report.figures.looks import short_name

PAPER_LAYERS = 12
"""Depth of the paper's four main models."""

CONTROL_ACCURACY = {"swapping": 0.98, "retraining": 0.99, "gradients": 0.65, "probing": 0.63}
"""Figure 2, accuracy@1, read off the bars."""
GRADIENT_CHOICE = 0.54
"""Table 4: accuracy@2 of L1 with both corrections, mean over the four models."""
GRADIENT_OTHERS = 0.48
"""The highest such mean of another norm or correction: L1, clean subtracted."""

SINGLE_LAYER_ERROR = 0.15
"""Figure 4: modifying one of 12 layers mostly causes fewer errors."""
LAYERS_TO_REVERT = (7 / PAPER_LAYERS, 10 / PAPER_LAYERS)
"""Figure 3, as shares of the depth."""
CLEAN_ERROR = 0.003
"""Footnote 6."""
MODELS_AGREE = 0.85
"""Section 4.1 on Figure 6."""

TECHNIQUES_M_COG = {
    ("swapping", "retraining"): 0.97,
    ("swapping", "probing"): 0.55,
    ("retraining", "probing"): 0.58,
    ("swapping", "gradients"): 0.79,
    ("retraining", "gradients"): 0.77,
    ("probing", "gradients"): 0.49,
}
"""Figure 8, left."""
TECHNIQUES_WEIGHTS = {
    ("swapping", "retraining"): 0.91,
    ("swapping", "probing"): 0.32,
    ("retraining", "probing"): 0.39,
    ("swapping", "gradients"): 0.68,
    ("retraining", "gradients"): 0.53,
    ("probing", "gradients"): 0.14,
}
"""Figure 9, left."""
MODELS_M_COG = {
    ("BERT", "OPT"): 0.74,
    ("BERT", "GPT-N"): 0.76,
    ("OPT", "GPT-N"): 0.69,
    ("BERT", "Pythia"): 0.58,
    ("OPT", "Pythia"): 0.40,
    ("GPT-N", "Pythia"): 0.48,
}
"""Figure 8, right."""
MODELS_WEIGHTS = {
    ("BERT", "OPT"): 0.83,
    ("BERT", "GPT-N"): 0.67,
    ("OPT", "GPT-N"): 0.80,
    ("BERT", "Pythia"): 0.74,
    ("OPT", "Pythia"): 0.73,
    ("GPT-N", "Pythia"): 0.65,
}
"""Figure 9, right."""

TASK_M_COG = {
    "wic": 5.45,
    "rte": 5.2,
    "mrpc": 5.55,
    "cola": 5.8,
    "boolq": 5.55,
    "sst2": 6.0,
    "sst5": 5.85,
    "emotion": 6.4,
    "implicithate": 6.2,
    "stormfront": 5.95,
    "reuters": 6.3,
    "trec": 6.05,
}
"""Figure 7: mean over models and techniques."""

EVENTS = {("crossing", "mem_gen"): 0.84, ("initiation", "f1_90"): 0.73}
"""Section 5."""

_COLUMNS = ("all models", "BERT", "OPT", "GPT-N", "Pythia")
TABLE_2: dict[tuple[str, str], dict[str, float]] = {
    key: dict(zip(_COLUMNS, values, strict=True))
    for key, values in {
        ("crossing", "generalisation_score"): (0.75, 0.88, 0.94, 0.94, 0.72),
        ("mem_gen", "generalisation_score"): (0.63, 0.86, 0.88, 0.94, 0.69),
        ("m_cog", "generalisation_score"): (0.56, 0.78, 0.69, 0.92, 0.69),
        ("crossing", "validation_score"): (0.70, 0.90, 0.84, 0.83, 0.70),
        ("mem_gen", "validation_score"): (0.61, 0.90, 0.77, 0.76, 0.77),
        ("m_cog", "validation_score"): (0.54, 0.80, 0.52, 0.72, 0.69),
    }.items()
}
"""Table 2: depth and score, for all models together and for each."""

DEEPER_M_COG = {"BERT": 0.75, "OPT": 0.87, "GPT-N": 0.84, "Pythia": 0.73}
"""Appendix B: swapping M-CoG of OPT-1.3B (24 layers) against that of the other models."""
DEEPER_EVENTS = {"crossing": 0.94, "initiation": 0.15}
"""Appendix B: events in OPT-1.3B against their means over the other models."""
BINARISED = {"m_cog": 0.84, "crossing": 0.90, "initiation": 0.67}
"""Appendix C: ρ between tasks with all classes and the same with two."""
BINARISED_SHIFT = {"crossing": -0.85, "initiation": 0.45}
"""Appendix C: mean shift of two classes against all, in layers of 12."""
BINARISED_ABSOLUTE = 0.16
"""Appendix C: mean absolute shift of M-CoG, in layers of 12."""
HOURS_PER_PAIR = 24.0
"""Appendix D: per model and task 7 trainings of 1 to 6 h and 234 retrainings of 3 to 45 min, so 19
to 218 h; in most cases more than a day."""


def mean_of(values: Mapping[Any, float]) -> float:
    """The mean of several values of the paper."""
    return round(sum(values.values()) / len(values), 3)


def of_pair(values: dict[tuple[str, str], float], one: str, other: str) -> float | None:
    """The paper's value for two of its models, in any order."""
    pair = short_name(one), short_name(other)
    return next((v for (a, b), v in values.items() if pair in ((a, b), (b, a))), None)
