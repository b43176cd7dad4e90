"""What a repair changes, by the result it is made from; and what its exams say.

The rule that finds the best candidate. Among the repairs (a swapped window, a retrained window, the
model trained on, the twin), those pass

    - of which no measure of wrong labels (given, relearned_kept, relearned_tenth, probe) is above
      that of the twin;
    - whose accuracy on kept examples is at most two points below that of the unchanged model.

Of those that pass, the one with the best validation accuracy is the best; of several, the one that
changes the fewest layers. Without validation examples, accuracy on kept examples takes their place.
If none passes, the best is the twin, which never saw the wrong labels.

A share is *above* another one if each lies outside the other's 95% interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import pandas as pd

from memloc.analysis.windows import Window
from memloc.config import Candidate
from memloc.data.task import Noise
from memloc.results.folders import ResultsError
from memloc.results.narrative import layers_named
from memloc.results.summary import summarise_techniques
from memloc.tables import number
from memloc.techniques.retraining import Retraining
from memloc.techniques.swapping import Swapping
from memloc.text import counted, listed

REPAIRS: tuple[Candidate, ...] = ("swapped-window", "retrained-window", "trained-on", "twin")
"""The others are controls."""
TRACES = {
    "given": "{} still get the label",
    "relearned_kept": "{} get it again after an epoch on kept examples",
    "relearned_tenth": "{} get it again after a step on a tenth of them",
    "probe": "a probe reads it from the states of {}",
}
"""Measures of what is left of wrong labels, and how to say so."""
MAY_LOSE = 0.02
"""Accuracy on kept examples."""
LITTLE = 0.5
"""Share of suspects with the given label below which θ_M has not memorised enough to repair."""
MEASURES = (*TRACES, "kept_accuracy", "validation_accuracy", "true_accuracy")


# --- which windows ------------------------------------------------------------------------------


def windows_of(
    tables: Mapping[str, pd.DataFrame], seed: int | None, n_layers: int
) -> dict[Candidate, Window | str]:
    """The window of each candidate that has one; a text says why there is none.

    Args:
        tables: Of a result.
        seed: Which of its seeds; None if its tables have none.
        n_layers: Of the model.

    Raises:
        ResultsError: If it has no result of swapping.
    """
    own = {
        name: table if seed is None or "seed" not in table else table[table["seed"] == seed]
        for name, table in tables.items()
        if name in ("layers", "windows", "examples")
    }
    found = summarise_techniques({name: table for name, table in own.items() if len(table)})
    if "full_error" not in found.get(Swapping.name, {}):
        raise ResultsError(
            "the result has no swapping, which says which layers to swap",
            remedy="make it again with swapping among the techniques",
        )
    swapped = _smallest(found[Swapping.name], n_layers)
    retrained = found.get(Retraining.name, {})
    return {
        "swapped-window": swapped,
        "retrained-window": _smallest(retrained, n_layers)
        if "full_error" in retrained
        else swapped,
        "control-window": _least(found[Swapping.name]["layer_weights"], swapped),
    }


def _smallest(result: dict[str, Any], n_layers: int) -> Window:
    """The smallest window that undoes nearly all memorisation, or all layers."""
    smallest = result["smallest_window"]
    if smallest is None:
        return Window(1, n_layers)
    return Window(smallest["first_layer"], smallest["last_layer"])


def _least(weights: list[float | None], swapped: Window) -> Window | str:
    """The window of the same size whose layers have the least weight in all."""
    others = [
        Window(first, first + swapped.size - 1)
        for first in range(1, len(weights) - swapped.size + 2)
        if first != swapped.first
    ]
    if not others:
        return "the swapped window has all layers, so there is no other of its size"
    if any(weight is None for weight in weights):
        return "swapping gives the layers no weights, so none is the least important"
    known = np.array(weights, dtype=float)
    return min(others, key=lambda window: known[window.first - 1 : window.last].sum())


# --- the verdict --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Exams:
    """The exams of all candidates.

    Attributes:
        table: The schema is `memloc.tables.EXAM`.
        n_layers: Of the model.
    """

    table: pd.DataFrame
    n_layers: int

    @property
    def candidates(self) -> list[Candidate]:
        """Those that were examined."""
        there = set(self.table["candidate"])
        return [name for name in get_args(Candidate) if name in there]

    def row(self, name: str, measure: str) -> dict[str, float | None]:
        """Value, low, high and examples of a measure; None: not known."""
        rows = self.table[(self.table["candidate"] == name) & (self.table["measure"] == measure)]
        found = rows[["value", "low", "high", "examples"]].astype("float64").to_dict("records")
        empty: dict[Any, Any] = dict.fromkeys(("value", "low", "high", "examples"), np.nan)
        return {str(key): number(one) for key, one in (found or [empty])[0].items()}

    def value(self, name: str, measure: str) -> float | None:
        """A share, or seconds; None if it is not known."""
        return self.row(name, measure)["value"]

    def window(self, name: str) -> Window | None:
        """Its layers; None if it is a whole model."""
        first, last = self.table.loc[
            self.table["candidate"] == name, ["first_layer", "last_layer"]
        ].iloc[0]
        return None if pd.isna(first) else Window(int(first), int(last))

    def above(self, name: str, other: str, measure: str) -> bool:
        """Whether a share of a candidate is above that of another; False if one is not known."""
        mine, theirs = self.row(name, measure), self.row(other, measure)
        if mine["value"] is None or mine["low"] is None:
            return False
        if theirs["value"] is None or theirs["high"] is None:
            return False
        return mine["value"] > theirs["high"] and theirs["value"] < mine["low"]

    def traces(self, name: str) -> list[str]:
        """The measures by which more of the wrong labels is left than in the twin."""
        return [measure for measure in TRACES if self.above(name, "twin", measure)]

    def loses(self, name: str) -> float:
        """Accuracy on kept examples that the unchanged model has and a candidate has not."""
        before, after = (self.value(one, "kept_accuracy") for one in ("unchanged", name))
        return 0.0 if before is None or after is None else before - after

    def passes(self, name: str) -> bool:
        """See the rule at the top of this module; a rounding error is no loss."""
        return not self.traces(name) and round(self.loses(name) - MAY_LOSE, 9) <= 0

    @property
    def passing(self) -> list[Candidate]:
        """The repairs that pass."""
        return [name for name in REPAIRS if name in self.candidates and self.passes(name)]

    @property
    def decides(self) -> str:
        """The measure by which the best of those that pass is found."""
        known = self.value("unchanged", "validation_accuracy") is not None
        return "validation_accuracy" if known else "kept_accuracy"

    @property
    def best(self) -> Candidate:
        """See the rule at the top of this module."""

        def order(name: Candidate) -> tuple[float, int, int]:
            window = self.window(name)
            size = self.n_layers if window is None else window.size
            return -(self.value(name, self.decides) or 0.0), size, REPAIRS.index(name)

        return min(self.passing, key=order, default="twin")


def summarise_repair(
    exams: Exams, chosen: Candidate, left_out: Mapping[Candidate, str], noise: Noise
) -> dict[str, Any]:
    """What the exams say, as JSON data.

    Args:
        exams: Of all candidates.
        chosen: The candidate that is written.
        left_out: Why others are not among them.
        noise: What the suspects are.
    """
    candidates = []
    for name in exams.candidates:
        window = exams.window(name)
        candidates.append(
            {
                "candidate": name,
                "layers": None if window is None else list(window),
                "repairs": name in REPAIRS,
                "passes": exams.passes(name),
                "traces": exams.traces(name),
                **{measure: exams.row(name, measure) for measure in MEASURES},
                "seconds": exams.value(name, "seconds"),
            }
        )
    return {
        "candidate": chosen,
        "best": exams.best,
        "candidates": candidates,
        "left_out": dict(left_out),
        "findings": findings(exams, chosen, left_out, noise),
    }


def findings(
    exams: Exams, chosen: Candidate, left_out: Mapping[Candidate, str], noise: Noise
) -> list[str]:
    """What was found, in sentences."""
    sentences = [_best(exams)]
    if chosen != exams.best:
        sentences.append(f"What is written is {named(exams, chosen)}, as asked for.")
    for name in exams.candidates:
        if name not in ("twin", "unchanged") and (name in REPAIRS or name == chosen):
            sentences.append(_gone_or_hidden(exams, name))
    for name in exams.candidates:
        if name != "twin" and name in (chosen, *exams.passing):
            sentences.append(_beside_the_twin(exams, name))
    if "swapped-window" in exams.candidates and "control-window" in exams.candidates:
        sentences.append(_right_layers(exams))
    sentences += [f"There is no {name}: {why}." for name, why in left_out.items()]
    return [*filter(None, sentences), *_cautions(exams, noise)]


def named(exams: Exams, name: Candidate) -> str:
    """A candidate in a sentence."""
    words = {"trained-on": "the model trained on", "unchanged": "the unchanged model"}
    window = exams.window(name)
    layers = "" if window is None else f" ({_layers(window)})"
    return words.get(name, f"the {name.replace('-', ' ')}") + layers


def _layers(window: Window) -> str:
    return layers_named({"first_layer": window.first, "last_layer": window.last})


def _share(value: float | None) -> str:
    return "not known" if value is None else f"{value:.0%}"


def _best(exams: Exams) -> str:
    best = exams.best
    if not exams.passing:
        return "No candidate passes, so the best is the twin, which never saw the wrong labels."
    if exams.passing == ["twin"]:
        return "The best is the twin; no other candidate passes."
    where = {"validation_accuracy": "on validation", "kept_accuracy": "on kept examples"}
    of_others = [
        f"{named(exams, name)} {_share(exams.value(name, exams.decides))}"
        for name in ("twin", "unchanged")
        if name != best
    ]
    own = _share(exams.value(best, exams.decides))
    return (
        f"The best is {named(exams, best)}: {where[exams.decides]} it gives {own} correct answers, "
        f"{' and '.join(of_others)}."
    )


def _gone_or_hidden(exams: Exams, name: Candidate) -> str:
    """What is left of the labels in a candidate, compared with the twin."""
    who, traces = named(exams, name), exams.traces(name)
    who = who[0].upper() + who[1:]
    if traces:
        verdict = "the labels are not gone" if "given" in traces else "the labels are only hidden"
        parts = []
        for measure in traces:
            own, twin = (_share(exams.value(one, measure)) for one in (name, "twin"))
            parts.append(f"{TRACES[measure].format(own)} (twin: {twin})")
        return f"{who}: {verdict}. Of the suspects, {listed(parts)}."
    unknown = [measure for measure in TRACES if exams.value(name, measure) is None]
    few = counted(int(exams.row(name, "given")["examples"] or 0), "suspect")
    what = "no measure that is known" if unknown else "no measure"
    gone = f"the labels are gone, as far as {few} can tell ({what} is above the twin's)"
    lost = f"; but {exams.loses(name):.1%} of the kept examples have lost their label too"
    return f"{who}: {gone}{'' if exams.passes(name) else lost}."


def _beside_the_twin(exams: Exams, name: Candidate) -> str:
    """Whether a candidate is as good as the twin on validation; empty if that is not known."""
    measure = "validation_accuracy"
    own, twin = exams.row(name, measure), exams.value("twin", measure)
    if own["low"] is None or twin is None:
        return ""
    who, both = named(exams, name), f"{_share(own['value'])}, the twin {_share(twin)}"
    if exams.above("twin", name, measure):
        return f"On validation {who} is worse than the twin ({both})."
    if exams.above(name, "twin", measure):
        return f"On validation {who} is better than the twin ({both})."
    few = counted(int(own["examples"] or 0), "example")
    return f"On validation {who} is as good as the twin, as far as {few} can tell ({both})."


def _right_layers(exams: Exams) -> str:
    """Whether the window that the localisation names beats another one of its size."""
    window, control = exams.window("swapped-window"), exams.window("control-window")
    assert window is not None
    assert control is not None
    own, other = (exams.value(n, "given") for n in ("swapped-window", "control-window"))
    shares = (
        f"with {_layers(window)} swapped, {_share(own)} of the suspects still get the label; with "
        f"{_layers(control)}, the least important of that size, {_share(other)}"
    )
    if exams.above("control-window", "swapped-window", "given"):
        return f"The window that the localisation names beats the control window: {shares}."
    return f"The window that the localisation names does not beat the control window: {shares}."


def _cautions(exams: Exams, noise: Noise) -> list[str]:
    """What makes the exam less sure."""
    found = []
    given = exams.row("unchanged", "given")
    if given["value"] is not None and given["value"] < LITTLE:
        found.append(
            f"The unchanged model gives only {_share(given['value'])} of the suspects the label in "
            "the data, so there was little to repair."
        )
    if given["low"] is None:
        few = counted(int(given["examples"] or 0), "suspect")
        found.append(f"{few} are too few: nothing can be told from chance.".capitalize())
    unknown = [name for name in exams.candidates if exams.value(name, "probe") is None]
    if unknown:
        whose = "any candidate" if unknown == exams.candidates else " or ".join(unknown)
        found.append(f"What a probe can read from the states of {whose} is not known.")
    if noise == "suspected":
        found.append(
            "The labels are only suspected, so how many of the new answers are right is not known."
        )
    return found
