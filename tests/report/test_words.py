"""The findings in words: every sentence says what the numbers say, and is one sentence."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from memloc.analysis.correlation import compare_profiles
from memloc.analysis.windows import centre_of_gravity
from memloc.results.narrative import (
    agreement,
    caveats,
    facts,
    further_findings,
    interpret,
    lead_technique,
)

RISING, FALLING = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [6.0, 5.0, 4.0, 3.0, 2.0, 1.0]
NEARLY_RISING = [1.0, 2.0, 3.0, 4.0, 6.0, 5.0]
"""ρ with RISING is .943; layer 5 has the most weight."""
SCATTERED = [3.0, 6.0, 1.0, 5.0, 2.0, 4.0]
"""ρ with RISING is −.029."""


def technique(weights: list[float] | None, layers: int = 6, **more: Any) -> dict[str, Any]:
    if weights is None:
        return {"layers": layers, "m_cog": None, "layer_weights": [None] * layers, **more}
    centre = centre_of_gravity(np.array(weights))
    return {"layers": len(weights), "m_cog": centre, "layer_weights": weights, **more}


def summary(**methods: dict[str, Any]) -> dict[str, Any]:
    profiles = {name: result["layer_weights"] for name, result in methods.items()}
    return {
        "layers": next(iter(methods.values()))["layers"],
        "techniques": methods,
        "agreement": {"pairs": compare_profiles(profiles)},
        "memorised_share": 1.0,
        "clean_accuracy": 1.0,
        "noisy_examples": 100,
    }


def said(words: str) -> str:
    """The words, after a check that they are one sentence."""
    assert words[0].isupper() or words[0].isdigit()
    assert words.endswith(".")
    assert len(re.findall(r"\.(?=\s|$)", words)) == 1
    assert ".." not in words
    assert "\n" not in words
    assert "None" not in words
    assert "nan" not in words.replace("became nan", "")
    return words


# --- agreement ---------------------------------------------------------------------------------


RISE, FALL = technique(RISING), technique(FALLING)
NEARLY, SCATTER = technique(NEARLY_RISING), technique(SCATTERED)
NONE, ZERO, EVEN = technique(None), technique([0.0] * 6), technique([1.0] * 6)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            {"swapping": RISE, "retraining": RISE, "gradients": NEARLY},
            "All 3 techniques agree on the order of the layers (ρ 0.94 to 1.00; most weight in "
            "layers 5 and 6).",
        ),
        (
            {"swapping": RISE, "retraining": RISE, "probing": SCATTER, "gradients": NEARLY},
            "Swapping, retraining and gradients agree on the order of the layers (ρ 0.94 to 1.00; "
            "most weight in layers 5 and 6); probing does not agree with all of them (most weight "
            "in layer 2 for probing).",
        ),
        (  # it has most weight where the others have it, which is no disagreement
            {"swapping": RISE, "retraining": RISE, "gradients": technique([5, 3, 4, 2, 1, 6])},
            "Swapping and retraining agree on the order of the layers (ρ 1.00; most weight in "
            "layer 6); gradients does not agree with all of them (most weight in layer 6 too for "
            "gradients).",
        ),
        (  # ρ .83 of six layers is not more than chance
            {"swapping": RISE, "retraining": technique([2, 1, 4, 3, 6, 5])},
            "No two techniques agree on the order of the layers more than by chance: most weight "
            "in layer 6 for swapping and layer 5 for retraining.",
        ),
        (
            {"swapping": RISE, "retraining": RISE, "probing": SCATTER, "gradients": FALL},
            "Swapping and retraining agree on the order of the layers (ρ 1.00; most weight in "
            "layer 6); probing and gradients do not agree with all of them (most weight in layer 2 "
            "for probing and layer 1 for gradients).",
        ),
        (
            {"swapping": RISE, "gradients": FALL, "probing": SCATTER},
            "No two techniques agree on the order of the layers more than by chance: most weight "
            "in layer 6 for swapping, layer 1 for gradients and layer 2 for probing.",
        ),
        ({"swapping": RISE}, ""),
        ({"swapping": RISE, "probing": NONE}, "Probing found no weights."),
        ({"swapping": RISE, "probing": ZERO}, "Probing gave no layer any weight."),
        (
            {"probing": NONE, "swapping": RISE, "retraining": RISE},
            "Swapping and retraining agree on the order of the layers (ρ 1.00; most weight in "
            "layer 6); probing found no weights.",
        ),
        ({"swapping": NONE, "probing": NONE}, ""),
        ({"swapping": RISE, "probing": EVEN}, ""),
        (
            {"swapping": technique([1.0, 3.0, 2.0]), "gradients": technique([3.0, 1.0, 2.0])},
            "With so few layers (3) profiles cannot be compared; most weight in layer 2 for "
            "swapping and layer 1 for gradients.",
        ),
    ],
)
def test_agreement_is_one_sentence(found: dict[str, Any], words: str) -> None:
    assert agreement(summary(**found)) == words
    assert not words or said(words)


# --- interpretation ----------------------------------------------------------------------------


def windowed(weights: list[float] | None, **more: Any) -> dict[str, Any]:
    return technique(weights, **({"full_error": 1.0, "undone": 1.0, "clean_error": 0.0} | more))


def test_a_technique_that_changes_layers_is_spoken_of_first() -> None:
    found = summary(gradients=technique(RISING), swapping=windowed(FALLING))
    assert lead_technique(found) == "swapping"
    assert said(interpret(found)).startswith("By swapping, layer 1 matters most")
    assert lead_technique(summary(probing=technique(RISING), gradients=technique(RISING))) == (
        "probing"
    )


@pytest.mark.parametrize(("weights", "layer"), [(RISING, 6), ([1, 2, 3, 3.1, 2, 1], 4)])
def test_a_technique_with_layers_alone_is_interpreted_by_its_peak(
    weights: list[float], layer: int
) -> None:
    words = said(interpret(summary(gradients=technique(weights))))
    assert words == f"By gradients, layer {layer} matters most."


def span(first: int, last: int, undoes: float) -> dict[str, Any]:
    return {"first_layer": first, "last_layer": last, "undoes": undoes}


@pytest.mark.parametrize(
    ("best", "smallest", "outside", "words"),
    [
        (
            (1, 0.57),
            span(1, 3, 1.0),
            [span(4, 6, 0.02)],
            "Memorisation sits in layers 1-3: retraining layers 1-3 undoes 100% of it, and no "
            "smaller window 95%; layers 4-6 undo 2%; the strongest single layer, layer 1, undoes "
            "57%.",
        ),
        (
            (5, 0.97),
            span(5, 5, 0.97),
            [span(1, 4, 0.03), span(6, 6, 0.01)],
            "Memorisation sits in layer 5: retraining layer 5 undoes 97% of it; layers 1-4 undo 3% "
            "and layer 6 undoes 1%.",
        ),
        (
            (2, 0.12),
            span(1, 5, 0.96),
            [span(6, 6, 0.1)],
            "Memorisation is spread over the layers: retraining layers 1-5 undoes 96% of it, and "
            "no smaller window 95%; layer 6 undoes 10%; the strongest single layer, layer 2, "
            "undoes 12%.",
        ),
        (
            (1, 0.17),
            span(1, 3, 0.97),
            [span(4, 6, 0.4)],
            "Memorisation sits mostly in layers 1-3: retraining layers 1-3 undoes 97% of it, and "
            "no smaller window 95%; layers 4-6 undo 40%; the strongest single layer, layer 1, "
            "undoes 17%.",
        ),
        (  # either half is enough, so neither holds it alone
            (2, 0.12),
            span(1, 3, 0.96),
            [span(4, 6, 0.8)],
            "Memorisation is spread over the layers: retraining layers 1-3 undoes 96% of it, and "
            "no smaller window 95%; layers 4-6 undo 80%; the strongest single layer, layer 2, "
            "undoes 12%.",
        ),
        (
            (2, 0.6),
            span(1, 6, 1.0),
            [],
            "Memorisation leans on layer 2: retraining all 6 layers undoes 100% of it, and no "
            "smaller window 95%; the strongest single layer, layer 2, undoes 60%.",
        ),
        (  # some sizes were not tried
            (2, 0.6),
            None,
            [],
            "Retraining layer 2 alone undoes 60% of it, more than any other single layer.",
        ),
    ],
)
def test_the_headline_names_what_the_heat_map_shows(
    best: tuple[int, float],
    smallest: dict[str, Any] | None,
    outside: list[dict[str, Any]],
    words: str,
) -> None:
    single = {"layer": best[0], "undoes": best[1]}
    found = windowed(
        FALLING, strongest_single_layer=single, smallest_window=smallest, outside=outside
    )
    assert said(interpret(summary(retraining=found))) == words


@pytest.mark.parametrize(
    ("weights", "interval", "words"),
    [
        (FALLING, [2.55, 2.81], "lower layers matter more: the centre of gravity is 2.67 (95%"),
        (RISING, [4.1, 4.5], "upper layers matter more: the centre of gravity is 4.33 (95%"),
        (FALLING, [2.5, 3.51], "neither lower nor upper layers clearly matter more: the centre"),
        (FALLING, None, "the centre of gravity is 2.67, of a possible 2.54 to 4.46 with the middle "
         "at 3.5; it has no interval with fewer than 3 seeds."),
    ],
)  # fmt: skip
def test_a_half_matters_more_only_if_the_interval_excludes_the_middle(
    weights: list[float], interval: list[float] | None, words: str
) -> None:
    found = technique(weights, m_cog_interval=interval, m_cog_range=[2.5376, 4.4624])
    (sentence,) = further_findings(summary(swapping=found))
    assert said(sentence).startswith(f"By swapping, {words}")
    assert "of a possible 2.54 to 4.46 with the middle at 3.5" in sentence


def test_what_noisy_labels_cost_is_a_sentence() -> None:
    training = {"validation_accuracy": 0.612, "original_validation_accuracy": 0.75}
    found = summary(probing=technique(None)) | {"training": training}
    assert further_findings(found) == [
        "Validation accuracy is 61.2% with the flipped labels and 75.0% without them "
        "(-13.8 points)."
    ]
    missing = {"training": training | {"original_validation_accuracy": None}}
    assert further_findings(found | missing) == []


@pytest.mark.parametrize("noise", ["flipped", "wrong", "suspected"])
def test_only_labels_that_were_flipped_are_called_so(noise: str) -> None:
    best = {"layer": 1, "undoes": 0.6}
    more = {"strongest_single_layer": best, "smallest_window": span(1, 3, 1.0), "undone": 0.71}
    clean = {"clean_error": 0.018, "full_clean_error": 0.21}
    found = summary(swapping=windowed(FALLING, **more) | clean) | {"noise": noise}
    assert f"of what all layers undo (71% of the {noise} labels)" in said(interpret(found))
    little = summary(swapping=windowed(FALLING, undone=0.1)) | {"noise": noise}
    assert f"only 10% of the {noise} labels" in said(interpret(little))
    assert facts(found, "swapping")["clean labels lost"] == "1.8%, by all layers 21%"


def test_no_weights_are_said_according_to_what_the_technique_does() -> None:
    words = said(interpret(summary(probing=technique(None))))
    assert words == "Nothing to localise: probing gives no layer any weight."
    words = said(interpret(summary(retraining=windowed(None))))
    assert "even retraining all layers leaves every noisy label in place" in words


def test_little_memorisation_is_said_instead_of_a_place() -> None:
    found = summary(gradients=technique(RISING)) | {"memorised_share": 0.49}
    assert said(interpret(found)).startswith("Too little was memorised")


# --- caveats -----------------------------------------------------------------------------------


def failure(first: int, last: int) -> dict[str, Any]:
    reason = "the loss became nan in epoch 1 at learning rate 0.1; lower it with --learning-rate"
    return {"first_layer": first, "last_layer": last, "reason": reason}


def test_windows_that_failed_are_a_caveat_with_the_first_reason() -> None:
    failed = [failure(2, 3), failure(4, 4), failure(1, 5)]
    found = summary(swapping=windowed(RISING), retraining=windowed(RISING, failed_windows=failed))
    (caveat,) = caveats(found)
    assert said(caveat).startswith(
        "3 windows are missing from retraining, the first with layers 2-3: the loss became nan"
    )
    assert "--learning-rate" in caveat
    (one,) = caveats(summary(retraining=windowed(RISING, failed_windows=[failure(2, 2)])))
    assert said(one).startswith("1 window is missing from retraining")
    assert caveats(summary(retraining=windowed(RISING, failed_windows=[]))) == []


@pytest.mark.parametrize(
    ("name", "fine", "too_much", "remedy"),
    [
        ("swapping", 0.05, 0.06, "compare models that were trained alike"),
        ("retraining", 0.3, 0.31, "set retraining.epochs higher"),
    ],
)
def test_lost_clean_labels_are_a_caveat_from_the_technique_s_own_limit_on(
    name: str, fine: float, too_much: float, remedy: str
) -> None:
    assert caveats(summary(**{name: windowed(RISING) | {"clean_error": fine}})) == []
    (caveat,) = caveats(summary(**{name: windowed(RISING) | {"clean_error": too_much}}))
    assert said(caveat).startswith(f"{name.capitalize()} also loses {too_much:.0%} of the clean")
    assert remedy in caveat


# --- parts of layers ---------------------------------------------------------------------------


def part(unit: str, **more: Any) -> dict[str, Any]:
    found = {
        "strongest_single_layer": {"layer": 1, "undoes": 0.04},
        "full_error": 0.45,
        "undone": 0.45,
        **more,
    }
    return technique(FALLING, settings={"unit": unit}, **found)


def test_what_all_parts_undo_is_said_before_shares_of_it() -> None:
    found = summary(swapping=part("attention", smallest_window=span(1, 6, 1.0)))
    assert said(interpret(found | {"noise": "flipped"})) == (
        "Memorisation is spread over the layers: swapping the attention parts of all 6 layers "
        "undoes 100% of what all layers undo (45% of the flipped labels), and no smaller window "
        "95%; the strongest single layer, layer 1, undoes 4%."
    )


def test_techniques_that_look_at_whole_layers_beside_parts_are_named() -> None:
    mixed = summary(swapping=part("attention"), probing=technique(RISING))
    assert [said(words) for words in caveats(mixed)] == [
        "Probing looks at whole layers, while the others look at attention parts alone."
    ]
    assert caveats(summary(swapping=technique(RISING), probing=technique(RISING))) == []
    broken = summary(swapping=part("attention", clean_error=0.4))
    (words,) = caveats(broken)
    assert "loses 40% of the clean labels" in said(words)
    assert words.endswith("so compare with whole layers.")


# --- labels that θ_M never gave ------------------------------------------------------------------


@pytest.mark.parametrize(("undone", "something"), [(0.19, False), (0.21, True)])
def test_below_a_fifth_of_the_labels_nothing_is_localised(undone: float, something: bool) -> None:
    best = {"layer": 5, "undoes": 0.12}
    little = windowed(
        RISING, strongest_single_layer=best, smallest_window=span(1, 4, 1.0), undone=undone
    )
    found = summary(swapping=little, gradients=technique(RISING)) | {"memorised_share": 0.8}
    words = said(interpret(found))
    assert words.startswith("Memorisation is spread") == something
    assert ("undoes only 19% of the wrong labels" in words) == (not something)
    assert ("Swapping undid too little" in agreement(found)) == (not something)


def test_clean_labels_that_were_wrong_before_are_not_lost() -> None:
    worse = windowed(RISING) | {"clean_error": 0.14}
    assert caveats(summary(swapping=worse) | {"clean_accuracy": 0.9}) == []
    (words,) = caveats(summary(swapping=worse) | {"clean_accuracy": 0.95})
    assert said(words).startswith("Swapping also loses 9% of the clean labels")
    (words,) = caveats(summary(swapping=worse) | {"clean_accuracy": None})
    assert said(words).startswith("Swapping leaves 14% of the clean labels wrong")


# --- layers of which nothing is known ----------------------------------------------------------

UNFITTED = {
    "because": "12 of 35 probes did not fit their training data",
    "remedy": "train probes for more steps",
}


def test_layers_of_which_nothing_is_known_are_not_layers_without_weight() -> None:
    gaps = technique([0.1, 0.2, 0.0, 0.0, 0.1, 0.3], no_evidence=UNFITTED)
    gaps |= {"layer_weights": [0.1, None, None, 0.0, 0.1, 0.3], "m_cog": None}
    alone = summary(probing=gaps)
    assert said(interpret(alone)) == (
        "Nothing is known about the layers: 12 of 35 probes did not fit their training data, so "
        "probing says nothing about layers 2 and 3."
    )
    among = summary(swapping=RISE, retraining=RISE, probing=gaps)
    words = said(agreement(among))
    assert words.endswith("; probing cannot be compared, as some layers have no weight.")
    assert "gave no layer any weight" not in words
    assert said(caveats(among)[-1]).endswith("layers 2 and 3; train probes for more steps.")


def test_probes_that_did_not_fit_need_no_caution_where_enough_of_their_layer_did() -> None:
    known = technique(RISING, no_evidence=UNFITTED)
    assert caveats(summary(swapping=RISE, probing=known)) == []
