"""Claims of section 3.2 and appendix E: do techniques find memorisation where it was hidden?"""

from __future__ import annotations

from typing import Any

from memloc.analysis.correlation import interval_of_mean
from memloc.paper.claim_measures import Measure
from memloc.paper.numbers import CONTROL_ACCURACY, GRADIENT_CHOICE, GRADIENT_OTHERS
from memloc.paper.verdicts import Claim, Evidence, Measured, Rule, above, at_least

CONTROL = "Do the techniques find what was hidden? (§3.2)"
SURE, UNSURE = ("swapping", "retraining"), ("gradients", "probing")
NO_CONTROL = "needs results of `memloc control`"
UNIT = "control models"


def control_accuracy(technique: str) -> Measure:
    """accuracy@1 of a technique; the lower bound is chance."""

    def measure(evidence: Evidence) -> Measured:
        if evidence.control is None:
            return Measured(missing=NO_CONTROL)
        rows = evidence.control.accuracy
        rows = rows[(rows["technique"] == technique) & (rows["k"] == 1)].dropna(subset="accuracy")
        if rows.empty:
            return Measured(missing=f"needs {technique} in `memloc control`")
        cells = rows.groupby(["model", "task", "hidden"])[["accuracy", "chance"]].mean()
        chance = float(cells["chance"].mean())
        return Measured(
            float(cells["accuracy"].mean()),
            len(rows),
            len(cells),
            UNIT,
            interval_of_mean(cells["accuracy"].to_numpy()),
            bounds=(chance, 1.0),
            words=f"by chance {chance:.2f}",
        )

    return measure


def surer_than_others(evidence: Evidence) -> Measured:
    """accuracy@1 of swapping and retraining minus that of gradients and probing."""
    if evidence.control is None:
        return Measured(missing=NO_CONTROL)
    rows = evidence.control.accuracy
    rows = rows[rows["k"] == 1].dropna(subset="accuracy")
    wide = rows.pivot_table(
        index=["model", "task", "hidden"], columns="technique", values="accuracy"
    )
    if not {*SURE, *UNSURE} <= set(wide.columns):
        return Measured(missing="needs all four techniques in `memloc control`")
    gap = (wide[list(SURE)].mean(axis=1) - wide[list(UNSURE)].mean(axis=1)).dropna().to_numpy()
    value = float(gap.mean()) if len(gap) else None
    return Measured(value, len(gap), len(gap), UNIT, interval_of_mean(gap))


def best_post_processing(evidence: Evidence) -> Measured:
    """accuracy@2 of gradients by L1 with both corrections, minus that of the best other choice."""
    if evidence.control is None:
        return Measured(missing=NO_CONTROL)
    rows = evidence.control.gradient_choices
    wide = rows[rows["k"] == 2].pivot_table(
        index=["model", "task", "hidden"],
        columns=["norm", "subtract_clean", "divide_by_frozen"],
        values="accuracy",
    )
    chosen = ("L1", True, True)
    if chosen not in wide.columns:
        return Measured(missing="needs gradients, divided by the frozen model, in `memloc control`")
    means = wide.mean()
    best: Any = means.drop(index=[chosen]).idxmax()
    gap = (wide[chosen] - wide[best]).dropna().to_numpy()
    done = zip(best, (best[0], "clean subtracted", "divided by frozen"), strict=True)
    parts = [words for is_done, words in done if is_done]
    return Measured(
        float(gap.mean()) if len(gap) else None,
        len(gap),
        len(gap),
        UNIT,
        interval_of_mean(gap),
        words=f"accuracy@2 {means[chosen]:.2f}; best other {means[best]:.2f}: {', '.join(parts)}",
    )


CHANCE_WITHIN = "the interval has chance in it"


def _mean(techniques: tuple[str, ...]) -> float:
    return sum(CONTROL_ACCURACY[name] for name in techniques) / len(techniques)


def _above_chance(value: float, measured: Measured) -> bool | None:
    chance = measured.bounds[0] if measured.bounds else 0.0
    low, high = measured.interval or (value, value)
    return low > chance if low > chance or high < chance else None


CLAIMS_ON_CONTROL: tuple[Claim, ...] = (
    *(
        Claim(
            f"control-{technique}",
            CONTROL,
            "Fig. 2",
            f"A hidden layer is found nearly always by {technique} (accuracy@1)",
            f"{CONTROL_ACCURACY[technique]:.2f}",
            at_least(0.9, "accuracy@1 at least .9"),
            control_accuracy(technique),
        )
        for technique in SURE
    ),
    *(
        Claim(
            f"control-{technique}",
            CONTROL,
            "Fig. 2",
            f"A hidden layer is found more often than by chance by {technique} (accuracy@1)",
            f"{CONTROL_ACCURACY[technique]:.2f}",
            Rule("the interval is above chance", _above_chance, undecided=CHANCE_WITHIN),
            control_accuracy(technique),
        )
        for technique in UNSURE
    ),
    Claim(
        "control-surer",
        CONTROL,
        "Fig. 2",
        "Swapping and retraining are more accurate than gradients and probing (difference)",
        f"{_mean(SURE) - _mean(UNSURE):.2f}",
        above(0.1, "more than .1 higher accuracy@1"),
        surer_than_others,
    ),
    Claim(
        "gradient-corrections",
        CONTROL,
        "Table 4",
        "Gradients find them best by L1 with both corrections (difference to the best other)",
        f"{GRADIENT_CHOICE - GRADIENT_OTHERS:.2f}",
        above(0.0, "accuracy@2 is higher than with any other norm or correction"),
        best_post_processing,
    ),
)
