"""How often rules err: unrelated data that hold, and findings like the paper's that are missed.

Data are drawn anew many times, with as many tasks and models as the paper has. What is drawn goes
through the functions that measure real results and the rules that decide.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from memloc.analysis.correlation import Points, compare_correlations, interval_of_difference
from memloc.paper.claims import CLAIMS, RULES, Claim, decide
from memloc.paper.measures import Measured, _between_tasks, _mean, _of_correlation, _share, of_pair
from memloc.results.agreement import ALL_MODELS, LAYER_WEIGHTS, M_COG, Pair

TASKS, MODELS, LAYERS = 12, 4, 12
TRIALS = 120
OFTEN, SELDOM = 0.8, 0.05

pytestmark = pytest.mark.slow


def holds(
    random: np.random.Generator,
    rule: str,
    number: float,
    draw: Callable[[np.random.Generator], Measured],
    trials: int = TRIALS,
) -> float:
    """The share of the trials in which a claim with this rule holds."""
    claim = Claim("id", "s", "f", "it is so", "1", "m", rule, "", number)
    return float(np.mean([decide(claim, draw(random)).verdict == "holds" for _ in range(trials)]))


def drawn(
    random: np.random.Generator, rho: float, shape: tuple[int, ...], shared: float
) -> tuple[np.ndarray, np.ndarray]:
    """Two values per task, model (and layer) with this correlation.

    This part of the variance is the same for all models of a task.
    """
    covariance = [[1.0, rho], [rho, 1.0]]
    of_task = random.multivariate_normal([0, 0], covariance, (shape[0], 1, *shape[2:]))
    own = random.multivariate_normal([0, 0], covariance, shape)
    both = np.sqrt(shared) * of_task + np.sqrt(1 - shared) * own
    return both[..., 0], both[..., 1]


def correlated(
    rho: float, shared: float = 0.5, layers: int = 1, tasks: int = TASKS, models: int = MODELS
) -> Callable[[np.random.Generator], Measured]:
    """Two techniques, events or scores; ρ over all runs and within models."""

    def draw(random: np.random.Generator) -> Measured:
        one, other = drawn(random, rho, (tasks, models, layers), shared)
        names = np.broadcast_to(np.arange(tasks)[:, None, None], one.shape).ravel().tolist()
        of_model = np.broadcast_to(np.arange(models)[None, :, None], one.shape).ravel()
        points = Points(one.ravel(), other.ravel(), names)
        quantity = M_COG if layers == 1 else LAYER_WEIGHTS
        own = tuple(f"{model}" for model in of_model) if models > 1 else ()
        return of_pair(Pair("techniques", quantity, "a", "b", ALL_MODELS, (points,), own))

    return draw


def shares(p: float, together: bool, tasks: int = TASKS, **more: object) -> Callable[..., Measured]:
    """Whether something is so in each run; models of a task are alike, or know nothing of it."""

    def draw(random: np.random.Generator) -> Measured:
        values = random.random((tasks, 1 if together else MODELS)) < p
        values = np.broadcast_to(values, (tasks, MODELS)).ravel()
        found = _share(
            pd.Series(values.astype(float)), np.repeat(np.arange(tasks), MODELS).tolist()
        )
        return Measured(**{**vars(found), **more})

    return draw


def means(mean: float, spread: float = 1.0, tasks: int = TASKS) -> Callable[..., Measured]:
    """A mean over tasks, of which models of a task share half of the variance."""

    def draw(random: np.random.Generator) -> Measured:
        own = random.normal(0, np.sqrt(0.5), (tasks, MODELS))
        values = mean + spread * (random.normal(0, np.sqrt(0.5), (tasks, 1)) + own)
        names = np.repeat(np.arange(tasks), MODELS).tolist()
        return _mean(pd.Series(values.ravel()), names)

    return draw


def difference(gap: float, mine: int) -> Callable[..., Measured]:
    """Tasks of a category against the others, in standard deviations of tasks."""

    def draw(random: np.random.Generator) -> Measured:
        one, other = random.normal(gap, 1, mine), random.normal(0, 1, TASKS - mine)
        interval = interval_of_difference(one, other)
        return Measured(float(one.mean() - other.mean()), TASKS, TASKS, interval=interval)

    return draw


def variance(between: float) -> Callable[..., Measured]:
    """Tasks against three seeds each, in one model."""

    def draw(random: np.random.Generator) -> Measured:
        of_task = random.normal(0, np.sqrt(between), (TASKS, 1))
        values = of_task + random.normal(0, np.sqrt(1 - between), (TASKS, 3))
        task = np.repeat(np.arange(TASKS), 3)
        rows = pd.DataFrame({"run": task, "task": task, "model": "m", "technique": "swapping"})
        return _between_tasks(rows.assign(depth=values.ravel()), ["depth"])

    return draw


def one_disagrees(rho: float, of_one: float) -> Callable[..., Measured]:
    """Four models by four techniques; one agrees with the others by another ρ."""

    def draw(random: np.random.Generator) -> Measured:
        sides: dict[bool, list[Points]] = {True: [], False: []}
        for _ in range(4):
            order = random.normal(size=TASKS)
            # Two models that follow one order by √ρ correlate by ρ.
            follow = [np.sqrt(rho)] * 3 + [of_one / np.sqrt(rho)]
            models = [f * order + np.sqrt(1 - f**2) * random.normal(size=TASKS) for f in follow]
            for one in range(4):
                for other in range(one):
                    points = Points(models[one], models[other], range(TASKS))
                    sides[one == 3].append(points)
        return _of_correlation(compare_correlations(sides[True], sides[False]), "tasks")

    return draw


def per_model(rho: float, apart: float) -> Callable[..., Measured]:
    """ρ in single models against that of all; models differ by `apart` standard deviations."""

    def draw(random: np.random.Generator) -> Measured:
        one, other = drawn(random, rho, (TASKS, MODELS), 0.5)
        one = one + apart * random.permutation([-1.5, -0.5, 0.5, 1.5])
        alone = [Points(one[:, m], other[:, m], range(TASKS)) for m in range(MODELS)]
        tasks = np.repeat(np.arange(TASKS), MODELS).tolist()
        together = [Points(one.ravel(), other.ravel(), tasks)]
        return _of_correlation(compare_correlations(alone, together), "tasks")

    return draw


CHANCE = {"bounds": (1 / 6, 1.0)}
UNRELATED = {
    "ρ as strong": ("as_strong", 0.55, correlated(0.0)),
    "ρ as strong, models alike": ("as_strong", 0.55, correlated(0.0, shared=1.0)),
    "ρ as strong, six tasks": ("as_strong", 0.55, correlated(0.0, tasks=6, models=2)),
    "ρ as strong, one model": ("as_strong", 0.55, correlated(0.0, models=1)),
    "ρ as weak": ("as_weak", 0.49, correlated(0.0)),
    "ρ as weak, weakest": ("as_weak", 0.14, correlated(0.0, layers=LAYERS), 40),
    "ρ as weak, truly stronger": ("as_weak", 0.32, correlated(0.65, layers=LAYERS), 40),
    "nearly always, half": ("nearly_always", 0.9, shares(0.5, together=True)),
    "above chance, nine tasks": ("above_chance", 0.63, shares(1 / 6, True, 9, **CHANCE)),
    "above half": ("above", 0.5, shares(0.5, together=True)),
    "below half": ("below", 0.5, shares(0.5, together=True)),
    "mean above": ("above", 0.0, means(0.0)),
    "mean above, five tasks": ("above", 0.0, means(0.0, tasks=5)),
    "mean within bounds": ("within_bounds", 1.0, means(1.0)),
    "shifted, five tasks": ("shifted", -0.85, means(0.0, tasks=5)),
    "category": ("below", 0.0, difference(0.0, mine=5)),
    "small category": ("above", 0.0, difference(0.0, mine=2)),
    "variance between tasks": ("above", 0.5, variance(0.5)),
    "one model disagrees": ("below", 0.0, one_disagrees(0.6, 0.6)),
    "stronger per model": ("above", 0.0, per_model(0.6, apart=0.0)),
}
"""By name: rule, number, and data that have nothing of it (or lie at the limit of the rule)."""
LIKE_THE_PAPER = {
    "ρ as strong, .63 (Table 2)": ("as_strong", 0.63, correlated(0.63)),
    "ρ as strong, one model, .85": ("as_strong", 0.85, correlated(0.85, models=1)),
    "ρ as weak, layers, .32": ("as_weak", 0.32, correlated(0.32, layers=LAYERS), 40),
    "nearly always (.98 of nine tasks)": ("nearly_always", 0.9, shares(0.98, False, 9)),
    "above chance (.63 of nine tasks)": ("above_chance", 0.63, shares(0.63, False, 9, **CHANCE)),
    "above half (most runs)": ("above", 0.5, shares(0.9, together=False)),
    "below half (few runs)": ("below", 0.5, shares(1 / 12, together=True)),
    "mean below (M-CoG .447, spread .03)": ("below", 0.5, means(0.447, 0.03)),
    "mean within bounds": ("within_bounds", 0.32, means(-0.05, 0.19, tasks=5)),
    "category (NLU, Figure 7)": ("shifted", -0.6, difference(-3.0, mine=5)),
    "small category (topics)": ("above", 0.0, difference(3.0, mine=2)),
    "variance between tasks": ("above", 0.5, variance(0.9)),
}
"""What the paper found, by its number of tasks and models."""


UNDERPOWERED = {
    "fig8-swapping-probing": (0.77, correlated(0.55)),
    "fig8-probing-gradients": (0.13, correlated(0.49)),
    "fig9-probing-gradients": (0.7, correlated(0.14, layers=LAYERS), 40),
    "pythia-agrees-less": (0.37, one_disagrees(0.73, 0.487)),
    "stronger-per-model": (0.28, per_model(0.8, apart=0.65)),
    "deeper-initiation": (0.0, correlated(0.15, models=1)),
    "binarised-m-cog": (0.71, correlated(0.84, tasks=5)),
    "binarised-initiation": (0.38, correlated(0.67, tasks=5)),
    "binarised-crossing-shift": (0.6, means(-0.85, 0.85, tasks=5)),
    "binarised-initiation-shift": (0.21, means(0.45, 0.85, tasks=5)),
}
"""Claims for which the paper's tasks are too few, and how often they would hold if true."""


@pytest.mark.parametrize("name", UNRELATED)
def test_unrelated_data_seldom_hold(name: str) -> None:
    rate = holds(np.random.default_rng(len(name)), *UNRELATED[name])
    print(f"{name}: {rate:.3f}")
    assert rate <= SELDOM


@pytest.mark.parametrize("name", LIKE_THE_PAPER)
def test_what_the_paper_found_would_be_found_again(name: str) -> None:
    rate = holds(np.random.default_rng(len(name)), *LIKE_THE_PAPER[name])
    print(f"{name}: {rate:.3f}")
    assert rate >= OFTEN


@pytest.mark.parametrize("name", UNDERPOWERED)
def test_what_the_papers_tasks_can_hardly_decide_is_noted(name: str) -> None:
    claim, (power, draw, *trials) = CLAIMS[name], UNDERPOWERED[name]
    rate = holds(np.random.default_rng(len(name)), claim.rule, claim.number, draw, *trials)
    print(f"{name}: {rate:.3f}")
    assert rate == pytest.approx(power, abs=0.1)
    assert f"{power:.0%}" in claim.note


def test_every_rule_is_tried() -> None:
    assert {rule for rule, *_ in UNRELATED.values()} == set(RULES)
    assert {rule for rule, *_ in LIKE_THE_PAPER.values()} == set(RULES)
    assert {claim.rule for claim in CLAIMS.values()} == set(RULES)
