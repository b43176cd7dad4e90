"""The findings in words, from the numbers of a summary alone."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import numpy as np

from memloc.analysis.correlation import agreeing_group, more_than_chance
from memloc.analysis.over_time import MOVED
from memloc.analysis.windows import ENOUGH, FEWEST_SEEDS, lost
from memloc.config import PARTS
from memloc.tables import CUT, MEMORISED, NEARLY_ALL
from memloc.techniques import installed
from memloc.text import counted, listed, percent

LEARNED = 0.9
"""Training accuracy from which on the model of the original labels has learned them."""
NO_FIT = "parts of two models need not fit each other, so compare with whole layers"
"""Why parts may lose clean labels."""
NEARLY_ALWAYS = 0.9
HOW_OFTEN = ("nearly always", "more often than chance", "too seldom to tell from chance")
FEW = 20
"""Fewer noisy examples than this make coarse numbers."""


def lead_technique(summary: dict[str, Any]) -> str:
    """The technique to speak of first: one that says what changing layers does, if there is one."""
    techniques: dict[str, Any] = summary["techniques"]
    return next(
        (name for name in techniques if "full_error" in techniques[name]), next(iter(techniques))
    )


def part_of(result: dict[str, Any]) -> str:
    """What a technique changed of the layers, in words; empty if it was all of them."""
    return PARTS.get((result.get("settings") or {}).get("unit", "layer"), "")


def acting(name: str, result: dict[str, Any]) -> str:
    """What a technique does, to be followed by layers: `swapping` or `swapping ... of`."""
    part = part_of(result)
    return f"{name} the {part} of" if part else name


def noisy_labels(summary: dict[str, Any]) -> str:
    """What to call noisy labels: those that memloc did not flip are not called flipped."""
    otherwise = "flipped" if summary.get("training") else "wrong"  # of results without that entry
    return f"{summary.get('noise') or otherwise} labels"


def undone_by_all(result: dict[str, Any]) -> float | None:
    """Share of the noisy labels that changing all layers takes away; None if nobody tried.

    Not the error, which also counts labels that θ_M never gave.
    """
    return max(0.0, float(result["undone"])) if "undone" in result else None


def clean_lost(
    summary: dict[str, Any], result: dict[str, Any], error: str = "clean_error"
) -> float | None:
    """Share of clean labels that θ_M gives and windows lose; None if not known.

    On average, or the full one alone with `error="full_clean_error"`.
    """
    accuracy = (summary.get("training") or summary).get("clean_accuracy")
    wrong = result.get(error)
    return None if accuracy is None or wrong is None else max(0.0, lost(wrong, accuracy))


def found_something(summary: dict[str, Any], result: dict[str, Any]) -> bool:
    """Whether weights of layers mean anything; below `ENOUGH` they are chance."""
    undone = undone_by_all(result)
    return result.get("m_cog") is not None and (undone is None or undone >= ENOUGH)


def of_all(share: float) -> str:
    """A part of what all layers undo; a window may undo more than all, but not of its labels."""
    return f"{min(1.0, max(0.0, share)):.0%}"


def layers_named(window: dict[str, Any]) -> str:
    """`layer 3` or `layers 1-3`."""
    first, last = window["first_layer"], window["last_layer"]
    return f"layer {first}" if first == last else f"layers {first}-{last}"


def size_of(window: dict[str, Any]) -> int:
    """How many layers it has."""
    return int(window["last_layer"] - window["first_layer"] + 1)


def possible(result: dict[str, Any]) -> str:
    """The range in which the centre of gravity can lie: `1–6`, or `2.54–4.46`."""
    ends = result.get("m_cog_range") or (1, result["layers"])
    return "–".join(f"{end:.2f}".removesuffix(".00") for end in ends)


def facts(summary: dict[str, Any], name: str) -> dict[str, str | None]:
    """What a technique found, by title, as it is printed; None if it is not known."""
    result = summary["techniques"][name]
    known = result if found_something(summary, result) else {}
    centre, smallest = known.get("m_cog"), known.get("smallest_window")
    best = known.get("strongest_single_layer")
    lost_labels = clean_lost(summary, result)
    wrong = result.get("clean_error") if lost_labels is None else None
    by_all = clean_lost(summary, result, "full_clean_error")
    by_all = result.get("full_clean_error") if lost_labels is None else by_all
    beside = "" if by_all is None else f", by all layers {by_all:.0%}"
    window = smallest and layers_named(smallest)
    if smallest and smallest.get("at_least", size_of(smallest)) < size_of(smallest):
        window = f"{window} (at least {counted(smallest['at_least'], 'layer')})"

    def with_full(share: float | None) -> str | None:
        return None if share is None else f"{share:.1%}{beside}"

    return {
        "centre of gravity": None if centre is None else f"{centre:.2f} of {possible(result)}",
        "strongest single layer": best and f"layer {best['layer']}: {of_all(best['undoes'])}",
        "smallest window for 95%": window,
        "examples one layer undoes": percent(known.get("examples_undone_by_one_layer")),
        "undone by all layers": percent(undone_by_all(result)),
        "clean labels lost": with_full(lost_labels),
        "clean labels wrong": with_full(wrong),
    }


def interpret(summary: dict[str, Any]) -> str:
    """One plain sentence: what the heat map shows."""
    name = lead_technique(summary)
    result = summary["techniques"][name]
    if result["m_cog"] is not None and summary["memorised_share"] < 0.5:
        return "Too little was memorised to say where it is stored."
    if not found_something(summary, result):
        return _nothing_found(name, summary, result)
    best, smallest = result.get("strongest_single_layer"), result.get("smallest_window")
    if best is None and smallest is None:
        of_parts = f" of the {part_of(result)}" if part_of(result) else ""
        return f"By {name}{of_parts}, layer {peak(result)} matters most."
    undone = undone_by_all(result) or 0.0
    of_what = "of it"
    if part_of(result) or undone < NEARLY_ALL:  # all layers are 100% of the shares
        of_what = f"of what all layers undo ({undone:.0%} of the {noisy_labels(summary)})"
    parts = _window_parts(acting(name, result), result, of_what)
    if smallest is None:
        return f"{parts[0].capitalize()}."
    return f"Memorisation {_place(result)}: {'; '.join(parts)}."


def _window_parts(does: str, result: dict[str, Any], of_what: str) -> list[str]:
    """The smallest window that undoes nearly all, what the rest undoes, and the best layer."""
    best, smallest = result.get("strongest_single_layer"), result.get("smallest_window")
    parts = []
    if smallest is not None:
        share, n = of_all(smallest["undoes"]), result["layers"]
        size = size_of(smallest)
        where = f"all {n} layers" if size == n > 1 else layers_named(smallest)
        least = f", and no smaller window {NEARLY_ALL:.0%}" if size > 1 else ""
        if smallest.get("at_least", size) < size:
            sizes = [str(tried) for tried in result["sizes_tried"] if tried < size]
            some = (
                f"{listed(sizes, 'or')} {'layer' if sizes == ['1'] else 'layers'}" if sizes else ""
            )
            least = f", and no window of {some} {NEARLY_ALL:.0%}" if some else ""
        parts.append(f"{does} {where} undoes {share} {of_what}{least}")
    outside = [
        f"{layers_named(one)} {'undoes' if one['first_layer'] == one['last_layer'] else 'undo'} "
        f"{of_all(one['undoes'])}"
        for one in result.get("outside", [])
    ]
    parts += [listed(outside)] if outside else []
    if best is not None and smallest is None:
        parts.append(
            f"{does} layer {best['layer']} alone undoes {of_all(best['undoes'])} {of_what}, more "
            "than any other single layer"
        )
    elif best is not None and size > 1:
        undoes = of_all(best["undoes"])
        parts.append(f"the strongest single layer, layer {best['layer']}, undoes {undoes}")
    return parts


def _place(result: dict[str, Any]) -> str:
    """Where memorisation is, by the windows; the one place that says what is called spread.

    It is spread if no layer undoes half of it alone, and the smallest window that undoes nearly all
    has more than half of the layers, or layers outside it undo half of it too. It sits in that
    window if it has at most half of the layers and those outside undo less than a tenth; mostly, if
    they undo less than half. If sizes that would decide this were not tried, the sizes that it can
    have are given instead.
    """
    best, smallest = result.get("strongest_single_layer"), result["smallest_window"]
    size = size_of(smallest)
    least = smallest.get("at_least", size)
    outside = max((one["undoes"] for one in result.get("outside", [])), default=0.0)
    if 2 * size <= result["layers"] and outside < 0.5:
        return f"sits {'in' if outside < 0.1 else 'mostly in'} {layers_named(smallest)}"
    if best is not None and best["undoes"] >= 0.5:
        return f"leans on layer {best['layer']}"
    if 2 * least <= result["layers"] < 2 * size:
        return f"takes {least} to {size} neighbouring layers"
    return "is spread over the layers"


def further_findings(summary: dict[str, Any]) -> list[str]:
    """Sentences after the first one: which half matters more, and what wrong labels cost."""
    name = lead_technique(summary)
    found = []
    result = summary["techniques"][name]
    if summary["memorised_share"] >= 0.5 and found_something(summary, result):
        found.append(_lean(name, result))
    training = summary.get("training") or {}
    noisy = training.get("validation_accuracy")
    original = training.get("original_validation_accuracy")
    if noisy is not None and original is not None:
        found.append(
            f"Validation accuracy is {noisy:.1%} with the {noisy_labels(summary)} and "
            f"{original:.1%} without them ({100 * (noisy - original):+.1f} points)."
        )
    return found


def _lean(name: str, result: dict[str, Any]) -> str:
    """Lower or upper layers, if the interval of the centre of gravity says so."""
    middle = (result["layers"] + 1) / 2
    interval = result.get("m_cog_interval")
    place = f"the centre of gravity is {result['m_cog']:.2f}"
    of = f"of a possible {possible(result).replace('–', ' to ')} with the middle at {middle:g}"
    if interval is None:
        return f"By {name}, {place}, {of}; it has no interval with fewer than {FEWEST_SEEDS} seeds."
    if interval[0] <= middle <= interval[1]:
        first = "neither lower nor upper layers clearly matter more"
    else:
        first = f"{'lower' if interval[1] < middle else 'upper'} layers matter more"
    within = f"95% interval {interval[0]:.2f} to {interval[1]:.2f}"
    return f"By {name}, {first}: {place} ({within}), {of}."


def _nothing_found(name: str, summary: dict[str, Any], result: dict[str, Any]) -> str:
    undone = undone_by_all(result)
    if no_evidence(result):
        return f"Nothing is known about the layers: {_says_nothing(name, result)}."
    if undone is None:
        return f"Nothing to localise: {name} gives no layer any weight."
    where = part_of(result) or "layers"
    if not undone or result["m_cog"] is None:
        return (
            f"Nothing to localise: even {acting(name, result)} all layers leaves every noisy label "
            f"in place that was there, so what was memorised is not in the {where}, or the models "
            "have the same ones."
        )
    return (
        f"Nothing to localise: {acting(name, result)} all layers undoes only {undone:.0%} of the "
        f"{noisy_labels(summary)}; below {ENOUGH:.0%}, what single {where} undo is chance."
    )


def no_evidence(result: dict[str, Any]) -> dict[str, str] | None:
    """Why a technique cannot weigh some layers (because, remedy), in its own words, if so."""
    return result.get("no_evidence") if None in result["layer_weights"] else None


def _says_nothing(name: str, result: dict[str, Any]) -> str:
    unknown = [str(n) for n, weight in enumerate(result["layer_weights"], 1) if weight is None]
    where = f"layer{'s' if len(unknown) > 1 else ''} {listed(unknown)}"
    return f"{result['no_evidence']['because']}, so {name} says nothing about {where}"


def peak(result: dict[str, Any]) -> int:
    """The layer with the largest weight."""
    return int(np.argmax(result["layer_weights"])) + 1


def agreement(summary: dict[str, Any]) -> str:
    """One sentence on where the techniques agree and where not; empty if there is one alone."""
    techniques = {n: r for n, r in summary["techniques"].items() if found_something(summary, r)}
    others = {n: r for n, r in summary["techniques"].items() if n not in techniques}
    compared = _agreement(summary, techniques, bool(others)) if len(techniques) > 1 else ""
    if not others or not techniques:
        return compared
    empty = {n: r for n, r in others.items() if r["m_cog"] is None}
    unknown = [n for n, r in empty.items() if None in r["layer_weights"]]
    partly = [n for n in unknown if no_evidence(empty[n])]
    reasons = {
        "gave no layer any weight": [n for n in empty if n not in unknown],
        "found no weights": [n for n in unknown if n not in partly],
        "cannot be compared, as some layers have no weight": partly,
        "undid too little to compare": [n for n in others if n not in empty],
    }
    without = "; ".join(f"{listed(names)} {why}" for why, names in reasons.items() if names) + "."
    return f"{compared[:-1]}; {without}" if compared else without[0].upper() + without[1:]


def _agreement(summary: dict[str, Any], techniques: dict[str, Any], others_empty: bool) -> str:
    peaks = {name: peak(result) for name, result in techniques.items()}
    if math.isinf(more_than_chance(summary["layers"])):
        few = f"With so few layers ({summary['layers']}) profiles cannot be compared"
        return f"{few}; {_peaks(peaks)}."
    pairs = summary["agreement"]["pairs"]
    group = agreeing_group(tuple(techniques), pairs, summary["layers"])
    others = {name: layer for name, layer in peaks.items() if name not in group}
    if not group and all(pair["spearman"] is None for pair in pairs):
        return ""
    if not group:
        return (
            "No two techniques agree on the order of the layers more than by chance: "
            f"{_peaks(peaks)}."
        )
    values = [p["spearman"] for p in pairs if set(p["techniques"]) <= set(group)]
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    rho = f"ρ {low}" if low == high else f"ρ {low} to {high}"
    tops = sorted({peaks[name] for name in group})
    top = f"layer {tops[0]}" if len(tops) == 1 else "layers " + listed([str(t) for t in tops])
    everybody = not others and not others_empty
    who = f"All {len(group)} techniques" if everybody else listed(list(group)).capitalize()
    first = f"{who} agree on the order of the layers ({rho}; most weight in {top})"
    if not others:
        return f"{first}."
    verb = "does" if len(others) == 1 else "do"
    where = _peaks(others, tops)
    return f"{first}; {listed(list(others))} {verb} not agree with all of them ({where})."


def _peaks(peaks: dict[str, int], also: Collection[int] = ()) -> str:
    """Where each technique has most weight; `too` if others have it there as well."""
    parts = [
        f"layer {layer}{' too' if layer in also else ''} for {name}"
        for name, layer in peaks.items()
    ]
    return f"most weight in {listed(parts)}"


def _whole_layers(techniques: dict[str, Any]) -> list[str]:
    """Techniques that know no parts of layers, beside others that were told to look at them."""
    parts = {part_of(result) for result in techniques.values()} - {""}
    whole = [name for name, result in techniques.items() if not part_of(result)]
    if not parts or not whole:
        return []
    one = len(whole) == 1
    return [
        f"{listed(whole).capitalize()} {'looks' if one else 'look'} at whole layers, while the "
        f"others look at {listed(sorted(parts))} alone."
    ]


def caveats(summary: dict[str, Any]) -> list[str]:
    """What keeps the numbers from meaning what they seem to mean, each with a remedy."""
    found = []
    training, techniques = summary.get("training"), summary["techniques"]
    if summary["memorised_share"] < MEMORISED:
        remedy = "train for more epochs or with a higher learning rate"
        if not training:
            remedy = "check that the two models were not exchanged"
        share = f"{summary['memorised_share']:.0%}"
        found.append(f"Only {share} of the noisy labels are memorised; {remedy}.")
    if training and (training["original_accuracy"] or 1.0) < LEARNED:
        found.append(
            f"The model of the original labels knows only {training['original_accuracy']:.0%} of "
            "them; train for more epochs."
        )
    found += [
        words for name, result in techniques.items() for words in _clean(name, summary, result)
    ]
    found += _whole_layers(techniques)
    early = [n for n in techniques if "near_ceiling" in getattr(installed(n), "needs", ())]
    if early and training and None in training.get("near_ceiling_epoch", []):
        found.append(
            "Training never passed the accuracy that marks θ_M1, so the model at its end was used "
            f"for {listed(early)}; train for more epochs."
        )
    if early and summary.get("near_ceiling_known") is False:
        found.append(
            f"The model at the end of training was used for {listed(early)}, as θ_M1 was not "
            "given; give the checkpoint of the epoch that first knew all labels as the model near "
            "its ceiling."
        )
    found += cut_words({"": summary.get("cut_share")})
    for name, result in techniques.items():
        lacking = no_evidence(result)
        if lacking is not None:
            found.append(f"{_says_nothing(name, result)}; {lacking['remedy']}.")
        failed = result.get("failed_windows")
        if failed:
            missing = "1 window is" if len(failed) == 1 else f"{len(failed)} windows are"
            found.append(
                f"{missing} missing from {name}, the first with {layers_named(failed[0])}: "
                f"{failed[0]['reason']}."
            )
    for reason in summary.get("explanation", {}).get("left_out", []):
        found.append(f"Part of the explanation is left out: {reason.rstrip('.')}.")
    if summary["noisy_examples"] < FEW:
        found.append(
            f"The number of noisy examples is only {summary['noisy_examples']}, so errors move in "
            "large steps; use more examples."
        )
    return found


def cut_words(shares: dict[str, float | None]) -> list[str]:
    """A caution if many examples were cut, by task."""
    many = {task: share for task, share in shares.items() if share is not None and share > CUT}
    if not many:
        return []
    some = listed(
        [f"{share:.0%} of the examples{task and f' of {task}'}" for task, share in many.items()]
    )
    return [
        f"{some} were too long and were cut, so what decides their label may be missing; raise "
        "training.max_tokens if the model can read more."
    ]


def _clean(name: str, summary: dict[str, Any], result: dict[str, Any]) -> list[str]:
    """A technique that loses more clean labels than it should."""
    technique = installed(name)
    if technique is None or technique.clean_loss is None:
        return []
    mixed = "original" in technique.needs and part_of(result)
    remedy = NO_FIT if mixed else technique.clean_remedy
    gone, wrong = clean_lost(summary, result), result.get("clean_error") or 0.0
    if (wrong if gone is None else gone) <= technique.clean_loss:
        return []
    if gone is None:
        what = f"leaves {wrong:.0%} of the clean labels wrong, so it may break"
    else:
        what = f"also loses {gone:.0%} of the clean labels, so it breaks"
    return [f"{name.capitalize()} {what} more than memorisation; {remedy}."]


def over_time_words(found: dict[str, Any], n_layers: int) -> list[str]:
    """Plain sentences: when memorisation starts, and whether it moves."""
    end = found["epochs"][-1]["epoch"]
    known = [start for start in found["starts"] if start["epoch"] is not None]
    if not known:
        return [
            f"At no checkpoint are {ENOUGH:.0%} of the noisy labels stored in the layers, so it "
            "cannot be said when memorisation starts, nor where."
        ]
    return [
        _start_words(known, len(found["starts"]), end),
        *(
            _movement_words(name, moved, n_layers)
            for name, moved in found["movement"].items()
            if moved is not None
        ),
    ]


def _start_words(known: list[dict[str, Any]], seeds: int, end: int) -> str:
    latest = max(start["epoch"] for start in known)
    before = [start["before"] for start in known]
    missing = "" if len(known) == seeds else f" (in {len(known)} of {seeds} seeds)"
    if None in before:
        when = "is there at the first checkpoint already" if len({*before}) == 1 else "starts"
        return f"Memorisation {when}, by epoch {latest} of {end}{missing}."
    return f"Memorisation starts between epochs {min(before)} and {latest} of {end}{missing}."


def _movement_words(name: str, moved: dict[str, Any], n_layers: int) -> str:
    firsts = sorted(set(moved["first_epochs"]))
    epoch = f"epoch{'s' if len(firsts) > 1 else ''} {listed([str(first) for first in firsts])}"
    centres = f"{moved['from']:.2f} at {epoch} and {moved['to']:.2f} at the end"
    shift, shifts = moved["shift"], moved["shift_per_seed"]
    begin = f"By {name}, its centre of gravity is {centres}"
    if abs(shift) < MOVED * n_layers:
        return f"{begin}: it stays (a shift of {shift:+.2f} of {n_layers} layers)."
    way = "up" if shift > 0 else "down"
    same = sum((one > 0) == (shift > 0) for one in shifts)
    how_sure = ""
    if len(shifts) > 1:
        how_sure = " in all seeds" if same == len(shifts) else f" in {same} of {len(shifts)} seeds"
    return f"{begin}: it moves {way} by {abs(shift):.2f} of {n_layers} layers{how_sure}."


def interpret_control(summary: dict[str, Any]) -> str:
    """Who finds the hidden layers."""
    found: dict[str, list[str]] = {how: [] for how in HOW_OFTEN}
    for row in summary["by_technique"]:
        name, low = row["technique"], row["low"] if row["low"] is not None else row["accuracy"]
        if row["k"] == 1 and not getattr(installed(name), "by_chance", False):
            rank = 0 if row["accuracy"] >= NEARLY_ALWAYS else 1 if low > row["chance"] else 2
            found[HOW_OFTEN[rank]].append(name)
    parts = [f"{listed(names)} {how}" for how, names in found.items() if names]
    if not parts:
        return ""
    first = next(names for names in found.values() if names)
    point = f"{listed(first)} point{'s' if len(first) == 1 else ''} to a hidden layer"
    text = "; ".join([parts[0].replace(listed(first), point, 1), *parts[1:]])
    return text[0].upper() + text[1:] + "."


def control_caveats(summary: dict[str, Any], about: dict[str, Any]) -> list[str]:
    """What keeps the scores of a control benchmark from meaning what they seem to mean."""
    found = []
    weak = summary["trainings"]["not_learned"]
    if weak:
        lowest = min(weak, key=lambda row: row["accuracy"])
        found.append(
            f"{len(weak)} of {summary['trainings']['trained']} trainings did not get above "
            f"{about['learned_at']:g} accuracy on their labels (lowest: {lowest['task']}, "
            f"layers {lowest['hidden']}, {lowest['accuracy']:.3f}); what was not memorised cannot "
            "be found. Try more epochs or attempts."
        )
    found += cut_words(summary["cut_share"])
    for name, n in summary["without_weights"].items():
        found.append(
            f"{name} could not weigh all layers of {n} of {summary['control_models']} control "
            "models; these do not count in its accuracy."
        )
    part = PARTS.get(about["unit"])
    if part:
        found.append(
            f"memorisation was hidden in whole layers, but techniques were told to look at their "
            f"{part} alone."
        )
    if summary["control_models"] < 4:
        found.append("fewer than 4 control models: no intervals, and chance plays a large part.")
    return found
