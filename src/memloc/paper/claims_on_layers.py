"""Claims of section 4: which layers, and whether techniques and models agree on them.

Statements about layers are about shares of the depth, so that they can be checked in models with
any number of layers.
"""

from __future__ import annotations

from memloc.paper.claim_measures import (
    centres_depend_on_task,
    clean_error,
    early_layers,
    layers_to_revert,
    models_agree,
    models_order_tasks_alike,
    probing_depends_on_task,
    probing_is_not_local,
    single_layers_matter_little,
    tasks_are_ordered_as_in_the_paper,
    techniques_agree,
)
from memloc.paper.numbers import (
    CLEAN_ERROR,
    MODELS_AGREE,
    MODELS_M_COG,
    MODELS_WEIGHTS,
    TECHNIQUES_M_COG,
    TECHNIQUES_WEIGHTS,
    mean_of,
)
from memloc.paper.verdicts import (
    Claim,
    above,
    at_least,
    below,
    near,
    within_bounds,
)
from memloc.results.agreement import LAYER_WEIGHTS, M_COG

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

CLAIMS_ON_LAYERS: tuple[Claim, ...] = (*_LAYERS, *_PROBING, *_TECHNIQUES, *_MODELS)
