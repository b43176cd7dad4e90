"""The claims of Dankers & Titov (2024), each with where it is from, its number and its rule.

Statements about layers are about shares of the depth, so that they can be checked in models with
any number of layers. How a claim is measured: `measures`; how it is decided: `verdicts`.
"""

from __future__ import annotations

from collections.abc import Sequence

from memloc.paper.measures import (
    SURE,
    UNSURE,
    absolute_shift,
    best_post_processing,
    centres_depend_on_task,
    clean_error,
    control_accuracy,
    deeper_models_agree,
    deeper_models_event,
    deeper_with_generalisation,
    depth_goes_with,
    early_layers,
    events_agree,
    examples_take_several_layers,
    hours_per_pair,
    layers_to_revert,
    models_agree,
    models_order_tasks_alike,
    movement_is_gradual,
    order_is_kept,
    probing_depends_on_task,
    probing_is_not_local,
    shift,
    single_layers_matter_little,
    surer_than_others,
    swap_prevents_crossing,
    tasks_are_ordered_as_in_the_paper,
    techniques_agree,
)
from memloc.paper.numbers import (
    BINARISED,
    BINARISED_ABSOLUTE,
    BINARISED_SHIFT,
    CLEAN_ERROR,
    CONTROL_ACCURACY,
    DEEPER_EVENTS,
    DEEPER_M_COG,
    EVENTS,
    GRADIENT_CHOICE,
    GRADIENT_OTHERS,
    HOURS_PER_PAIR,
    MODELS_AGREE,
    MODELS_M_COG,
    MODELS_WEIGHTS,
    TABLE_2,
    TECHNIQUES_M_COG,
    TECHNIQUES_WEIGHTS,
    mean_of,
)
from memloc.paper.verdicts import (
    VERDICTS,
    Claim,
    Evidence,
    Finding,
    Measured,
    Rule,
    Verdict,
    above,
    at_least,
    below,
    judge,
    near,
    positive,
    shifted,
    within_bounds,
)
from memloc.results.agreement import ALL_MODELS, IN_PRINT, LAYER_WEIGHTS, M_COG
from memloc.results.grid import Grid

CONTROL = "Do the techniques find what was hidden? (§3.2)"
CHANCE_WITHIN = "the interval has chance in it"


def _mean(techniques: tuple[str, ...]) -> float:
    return sum(CONTROL_ACCURACY[name] for name in techniques) / len(techniques)


def _above_chance(value: float, measured: Measured) -> bool | None:
    chance = measured.bounds[0] if measured.bounds else 0.0
    low, high = measured.interval or (value, value)
    return low > chance if low > chance or high < chance else None


_CONTROL = (
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

LAYERS = "Which layers? (§4.1)"
PROBING = "Probing (§4.2)"
TECHNIQUES = "Do techniques agree? (§4, Figs 8 and 9, left; Spearman's ρ)"
MODELS = "Do models agree? (§4, Figs 6, 8 and 9, right; Spearman's ρ)"

_LAYERS = (
    Claim(
        "not-confined",
        LAYERS,
        "Fig. 4",
        "Memorisation is not confined to individual layers",
        "most < .15",
        above(0.5, "modifying any one layer causes errors below .15 × 12/L in most runs"),
        single_layers_matter_little,
        format="percent",
    ),
    Claim(
        "layers-to-revert",
        LAYERS,
        "Fig. 3",
        "Reverting memorisation takes 7 to 10 of 12 layers (share of the depth)",
        "0.58-0.83",
        within_bounds("the mean is within .58 to .83, half a layer more or less"),
        layers_to_revert,
    ),
    Claim(
        "clean-error",
        LAYERS,
        "footnote 6",
        "Swapping leaves clean examples alone (mean error)",
        f"{CLEAN_ERROR:.4f}",
        below(0.01, "the mean over runs is below .01"),
        clean_error,
        format="small",
    ),
    Claim(
        "task-dependent",
        LAYERS,
        "§4.1, Fig. 5",
        "The importance of layers is task-dependent",
        "yes",
        above(0.5, "M-CoG varies more between tasks than between seeds (above half)"),
        centres_depend_on_task,
        format="percent",
    ),
    Claim(
        "early-layers",
        LAYERS,
        "§4.1, Fig. 5",
        "Early layers matter more for memorisation (M-CoG as share of the depth)",
        "< 0.50",
        below(0.5, "the mean and its interval are below the middle, .5"),
        early_layers,
    ),
    Claim(
        "order-of-tasks",
        LAYERS,
        "Fig. 7",
        "M-CoG orders the tasks as in the paper",
        "-",
        at_least(0.5, "ρ with the paper's M-CoG per task at least .5"),
        tasks_are_ordered_as_in_the_paper,
    ),
)

_PROBING = (
    Claim(
        "probing-not-local",
        PROBING,
        "§4.2, Fig. 5",
        "By probing, too, memorisation is not local to individual layers",
        "yes",
        above(0.5, "no layer has more than half of the weight in most runs"),
        probing_is_not_local,
        format="percent",
    ),
    Claim(
        "probing-task-dependent",
        PROBING,
        "§4.2, Fig. 5",
        "Tasks differ in how probing changes over layers",
        "yes",
        above(0.5, "its course varies more between tasks than between seeds (above half)"),
        probing_depends_on_task,
        format="percent",
    ),
)

AGREEMENT = 0.5
"""From here on the paper's finding is that two techniques agree, and more is as good; below it,
that they hardly do."""

_TECHNIQUES = tuple(
    Claim(
        f"{figure}-{one}-{other}",
        TECHNIQUES,
        f"Fig. {figure[3:]}",
        f"{what}: {one} and {other}",
        f"{value:.2f}",
        near(value, or_more=value >= AGREEMENT),
        techniques_agree(quantity, one, other),
    )
    for figure, what, quantity, values in (
        ("fig8", "M-CoG", M_COG, TECHNIQUES_M_COG),
        ("fig9", "Layer weights", LAYER_WEIGHTS, TECHNIQUES_WEIGHTS),
    )
    for (one, other), value in values.items()
)

_MODELS = (
    Claim(
        "models-order-tasks",
        MODELS,
        "§4.1, Fig. 6",
        "Models agree strongly on the order of tasks (M-CoG of retraining)",
        f"{MODELS_AGREE:.2f}",
        near(MODELS_AGREE, or_more=True),
        models_order_tasks_alike,
    ),
    Claim(
        "fig8-models",
        MODELS,
        "Fig. 8",
        "M-CoG: mean over pairs of models",
        f"{mean_of(MODELS_M_COG):.2f}",
        near(mean_of(MODELS_M_COG), or_more=True),
        models_agree(M_COG, MODELS_M_COG),
    ),
    Claim(
        "fig9-models",
        MODELS,
        "Fig. 9",
        "Layer weights: mean over pairs of models",
        f"{mean_of(MODELS_WEIGHTS):.2f}",
        near(mean_of(MODELS_WEIGHTS), or_more=True),
        models_agree(LAYER_WEIGHTS, MODELS_WEIGHTS),
    ),
)


MOVEMENT = "How are examples moved? (§5)"
SCORES = "Memorisation and generalisation (§5, Table 2; Spearman's ρ)"
APPENDIX = "Deeper models, two classes, costs (Apps B to D)"
BEYOND = "Beyond the paper"

_MOVEMENT = (
    Claim(
        "gradual",
        MOVEMENT,
        "Fig. 10",
        "Memorisation is gradual",
        "yes",
        above(0.5, "no layer makes more than half of the noisy mean's way in most runs"),
        movement_is_gradual,
        format="percent",
    ),
    Claim(
        "bottom-swap",
        MOVEMENT,
        "Fig. 11",
        "Swapping the bottom half prevents the crossing",
        "all tasks",
        at_least(0.9, "in at least 90% of the runs"),
        swap_prevents_crossing("bottom"),
        format="percent",
    ),
    Claim(
        "top-swap",
        MOVEMENT,
        "Fig. 11",
        "Swapping the top half does so for few tasks only",
        "few tasks",
        below(0.5, "in less than half of the runs"),
        swap_prevents_crossing("top"),
        format="percent",
    ),
    *(
        Claim(
            f"{one}-{other}".replace("_", "-"),
            MOVEMENT,
            "Fig. 12",
            f"The {IN_PRINT[one]} goes with {IN_PRINT[other]} of the probes",
            f"{value:.2f}",
            near(value, or_more=True),
            events_agree(one, other),
        )
        for (one, other), value in EVENTS.items()
    ),
)

_SCORES = (
    Claim(
        "later-with-generalisation",
        SCORES,
        "Table 2",
        "The better it generalises, the later it memorises",
        ">= 0.54",
        positive("every ρ of Table 2 for all models together is above 0"),
        deeper_with_generalisation,
    ),
    *(
        Claim(
            f"table2-{depth}-{score.removesuffix('_score')}".replace("_", "-"),
            SCORES,
            "Table 2",
            f"Deeper {IN_PRINT[depth]}, higher {IN_PRINT[score]}",
            f"{values[ALL_MODELS]:.2f}",
            near(values[ALL_MODELS], or_more=True),
            depth_goes_with(depth, score),
        )
        for (depth, score), values in TABLE_2.items()
    ),
)

_APPENDIX = (
    Claim(
        "deeper-models",
        APPENDIX,
        "App. B",
        "A deeper model orders the tasks alike (M-CoG of swapping)",
        f"{mean_of(DEEPER_M_COG):.2f}",
        near(mean_of(DEEPER_M_COG), or_more=True),
        deeper_models_agree,
    ),
    *(
        Claim(
            f"deeper-{event}",
            APPENDIX,
            "App. B",
            f"{event.capitalize()} in deeper and other models",
            f"{value:.2f}",
            near(value),
            deeper_models_event(event),
        )
        for event, value in DEEPER_EVENTS.items()
    ),
    *(
        Claim(
            f"binarised-{what}".replace("_", "-"),
            APPENDIX,
            "App. C",
            f"Tasks keep their order when cut to two classes ({IN_PRINT[what]})",
            f"{value:.2f}",
            near(value, or_more=True),
            order_is_kept(what),
        )
        for what, value in BINARISED.items()
    ),
    Claim(
        "binarised-m-cog-shift",
        APPENDIX,
        "App. C",
        "With two classes M-CoG differs only slightly (mean absolute shift, of 12 layers)",
        f"{BINARISED_ABSOLUTE:.2f}",
        below(
            2 * BINARISED_ABSOLUTE,
            f"the mean is below twice the paper's, {2 * BINARISED_ABSOLUTE:.2f}",
        ),
        absolute_shift(M_COG),
    ),
    *(
        Claim(
            f"binarised-{event}-shift",
            APPENDIX,
            "App. C",
            f"With two classes the {event} is {'earlier' if value < 0 else 'later'} "
            "(mean shift, of 12 layers)",
            f"{value:+.2f}",
            shifted(value),
            shift(event),
        )
        for event, value in BINARISED_SHIFT.items()
    ),
    Claim(
        "cost",
        APPENDIX,
        "App. D",
        "A model on a task takes more than a day",
        f"> {HOURS_PER_PAIR:g} h",
        above(
            HOURS_PER_PAIR,
            f"mean computing time per run above {HOURS_PER_PAIR:g} h; one run decides",
        ),
        hours_per_pair,
        fewest=1,
        format="hours",
    ),
)

_BEYOND = (
    Claim(
        "single-examples",
        BEYOND,
        "Limitations",
        "Single examples, too, are memorised over several layers",
        "open",
        above(0.5, "no layer makes more than half of the way of most examples"),
        examples_take_several_layers,
        format="percent",
    ),
)


CLAIMS: tuple[Claim, ...] = (
    *(*_CONTROL, *_LAYERS, *_PROBING, *_TECHNIQUES, *_MODELS),
    *(*_MOVEMENT, *_SCORES, *_APPENDIX, *_BEYOND),
)


def check_claims(grid: Grid) -> list[Finding]:
    """Every claim with its verdict."""
    evidence = Evidence(grid)
    return [judge(claim, evidence) for claim in CLAIMS]


def count_verdicts(findings: Sequence[Finding]) -> dict[Verdict, int]:
    """How many hold, do not hold, and lack data."""
    return {one: sum(finding.verdict == one for finding in findings) for one in VERDICTS}
