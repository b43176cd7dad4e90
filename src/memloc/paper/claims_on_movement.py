"""Claims of section 5 and the appendices: how examples are moved, and what goes with it."""

from __future__ import annotations

from memloc.paper.claim_measures import deeper_models_agree
from memloc.paper.claim_measures_binarised import absolute_shift, order_is_kept, shift
from memloc.paper.claim_measures_events import (
    deeper_models_event,
    deeper_with_generalisation,
    depth_goes_with,
    events_agree,
    examples_take_several_layers,
    hours_per_pair,
    movement_is_gradual,
    swap_prevents_crossing,
)
from memloc.paper.numbers import (
    BINARISED,
    BINARISED_ABSOLUTE,
    BINARISED_SHIFT,
    DEEPER_EVENTS,
    DEEPER_M_COG,
    EVENTS,
    HOURS_PER_PAIR,
    TABLE_2,
    mean_of,
)
from memloc.paper.verdicts import Claim, above, at_least, below, near, positive, shifted
from memloc.results.agreement import ALL_MODELS, IN_PRINT, M_COG

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


CLAIMS_ON_MOVEMENT: tuple[Claim, ...] = (*_MOVEMENT, *_SCORES, *_APPENDIX, *_BEYOND)
