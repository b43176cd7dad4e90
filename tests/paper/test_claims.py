"""Claims that hold and claims that fail, in results made for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest, spearmanr

from memloc.paper.claims import CLAIMS, Finding, check_claims, count_verdicts, judge
from memloc.paper.measures import gather
from memloc.paper.tasks import PAPER_TASKS
from memloc.results.agreement import M_COG, agreement_table
from memloc.results.grid import Grid, read_grid
from tests.result_folders import straight, write_run, write_twins

TASKS = tuple("abcdefgh")
TASK_M_COG = CLAIMS["order-of-tasks"].arguments["paper"]
CATEGORIES = ("NLU", "sentiment", "hate speech", "topic")
CENTRES = np.linspace(0.36, 0.60, len(TASKS))


class Findings(Mapping[str, Finding]):
    """By claim, each judged when it is looked at: all of them take seconds."""

    def __init__(self, grid: Grid) -> None:
        self.claims = CLAIMS
        self.evidence = gather(grid)

    def __getitem__(self, claim: str) -> Finding:
        return judge(self.claims[claim], self.evidence)

    def __iter__(self) -> Iterator[str]:
        return iter(self.claims)

    def __len__(self) -> int:
        return len(self.claims)


def findings(runs: Path) -> Findings:
    return Findings(read_grid(runs))


def verdict(runs: Path, claim: str) -> str:
    return findings(runs)[claim].verdict


def write_tasks(
    runs: Path,
    model: str = "minilm",
    layers: int = 12,
    tasks: Sequence[str] = TASKS,
    make: Callable[[int], Mapping[str, Any]] = lambda place: {},
    **same: Any,
) -> Path:
    """One run per task; `make` gives what differs between them."""
    for place, task in enumerate(tasks):
        write_run(runs, task, model, layers, **{**same, **make(place)})
    return runs


def with_centres(technique: str, centres: Sequence[float], layers: int = 12) -> Callable[..., Any]:
    return lambda place: {"weights": {technique: [straight(layers, centres[place])]}}


def order_with(rho: float, n: int = 8) -> list[int]:
    """An order of n things whose ρ with the natural one is nearly this."""
    orders = np.array(list(islice(permutations(range(n)), 20_000)))
    found = orders[np.argmin(abs(_spearman(orders) - rho))]
    assert abs(spearmanr(range(n), found).statistic - rho) < 0.1
    return found.tolist()


def _spearman(orders: np.ndarray) -> np.ndarray:
    """With the natural order; there are no ties."""
    n = orders.shape[1]
    return 1 - 6 * ((orders - np.arange(n)) ** 2).sum(1) / (n * (n**2 - 1))


def course(end: float, layers: int = 12) -> list[float]:
    return np.linspace(1.0, end, layers).tolist()


JUMP = [1.0] * 8 + [0.1] * 4
"""A mean that moves in one layer alone."""


@pytest.mark.parametrize(
    ("claim", "layers", "good", "bad"),
    [
        ("not-confined", 12, {"single_layer": 0.14}, {"single_layer": 0.16}),
        ("not-confined", 6, {"single_layer": 0.29}, {"single_layer": 0.31}),
        ("layers-to-revert", 12, {"layers_to_revert": 7}, {"layers_to_revert": 6}),
        ("layers-to-revert", 6, {"layers_to_revert": 5}, {"layers_to_revert": 6}),
        ("clean-error", 6, {"clean_error": 0.004}, {"clean_error": 0.02}),
        (
            "early-layers",
            6,
            {"weights": {"swapping": [straight(6, 0.45)]}},
            {"weights": {"swapping": [straight(6, 0.55)]}},
        ),
        (
            "probing-not-local",
            6,
            {"weights": {"probing": [[0.1, 0.2, 0.3, 0.0, 0.0, 0.0]]}},
            {"weights": {"probing": [[0.1, 0.0, 0.2, 0.0, 0.0, 0.0]]}},
        ),
        (
            "gradual",
            12,
            {"positions": {"memorised": course(0.0)}},
            {"positions": {"memorised": JUMP}},
        ),
        (
            "bottom-swap",
            12,
            {"positions": {"memorised": course(0.1), "bottom_swapped": course(0.6)}},
            {"positions": {"memorised": course(0.1), "bottom_swapped": course(0.4)}},
        ),
        (
            "top-swap",
            12,
            {"positions": {"memorised": course(0.1), "top_swapped": course(0.4)}},
            {"positions": {"memorised": course(0.1), "top_swapped": course(0.6)}},
        ),
        ("cost", 12, {"seconds": 25 * 3600}, {"seconds": 23 * 3600}),
        ("single-examples", 12, {"steps": [0.3, 0.5, 0.8]}, {"steps": [0.3, 0.6, 0.8]}),
    ],
)
def test_a_claim_about_single_runs_holds_or_fails(
    tmp_path: Path, claim: str, layers: int, good: dict[str, Any], bad: dict[str, Any]
) -> None:
    write_tasks(tmp_path / "good", layers=layers, **good)
    write_tasks(tmp_path / "bad", layers=layers, **bad)
    assert verdict(tmp_path / "good", claim) == "holds"
    assert verdict(tmp_path / "bad", claim) == "does not hold"


@pytest.mark.parametrize(("others", "verdict"), [(0, "holds"), (3, "not enough data")])
def test_most_runs_decide_and_the_share_of_them_is_the_value(
    tmp_path: Path, others: int, verdict: str
) -> None:
    write_tasks(tmp_path, make=lambda place: {"single_layer": 0.3 if place < others else 0.1})
    found = findings(tmp_path)["not-confined"]
    assert found.verdict == verdict
    assert found.measured.value == pytest.approx((8 - others) / 8)
    assert found.measured.n == 8
    assert found.measured.interval is not None
    exact = binomtest(8 - others, 8).proportion_ci(method="exact")
    assert found.measured.interval == pytest.approx((exact.low, exact.high))


def between_and_within(tasks_differ: bool, technique: str) -> Callable[[int], dict[str, Any]]:
    """Three seeds per task; either tasks or seeds decide where the weight is."""

    def make(place: int) -> dict[str, Any]:
        centres = [CENTRES[place] if tasks_differ else CENTRES[seed * 3] for seed in range(3)]
        return {
            "seeds": (1, 2, 3),
            "weights": {technique: [straight(12, c + 0.001 * place) for c in centres]},
        }

    return make


@pytest.mark.parametrize(
    ("claim", "technique"),
    [("task-dependent", "swapping"), ("probing-task-dependent", "probing")],
)
def test_layers_depend_on_the_task_if_tasks_differ_more_than_seeds(
    tmp_path: Path, claim: str, technique: str
) -> None:
    write_tasks(tmp_path / "good", make=between_and_within(True, technique))
    write_tasks(tmp_path / "bad", make=between_and_within(False, technique))
    good, bad = findings(tmp_path / "good")[claim], findings(tmp_path / "bad")[claim]
    assert (good.verdict, good.measured.value) == ("holds", pytest.approx(1))
    assert bad.verdict == "does not hold"
    assert bad.measured.value is not None
    assert bad.measured.value < 0.1
    write_tasks(tmp_path / "one-seed", make=with_centres(technique, CENTRES))
    without = findings(tmp_path / "one-seed")[claim]
    assert without.verdict == "not enough data"
    assert "two seeds" in without.reason


def test_the_share_of_the_variance_is_that_of_a_random_effects_model(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    depths = 0.5 + random.normal(0, 0.02, (len(TASKS), 1)) + random.normal(0, 0.02, (8, 3))

    def make(place: int) -> dict[str, Any]:
        profiles = [straight(12, depth) for depth in depths[place]]
        return {"seeds": (1, 2, 3), "weights": {"retraining": profiles}}

    write_tasks(tmp_path, make=make)
    within = depths.var(axis=1, ddof=1).mean()
    between = depths.mean(axis=1).var(ddof=1) - within / 3
    found = findings(tmp_path)["task-dependent"].measured
    assert found.value == pytest.approx(between / (between + within))
    assert found.n == 8
    slow = []
    draws = np.random.default_rng(1).integers(0, 8, (4000, 8))
    for sample in (depths[draw] for draw in draws):
        within = sample.var(axis=1, ddof=1).mean()
        between = max(0.0, sample.mean(axis=1).var(ddof=1) - within / 3)
        slow.append(between / (between + within))
    # Other random samples than those of the oracle: ends of intervals vary by some hundredths.
    assert found.interval == pytest.approx(np.quantile(slow, [0.025, 0.975]), abs=0.05)


def test_tasks_are_ordered_as_in_the_paper_or_not(tmp_path: Path) -> None:
    tasks = list(TASK_M_COG)[:8]
    paper = [TASK_M_COG[task] for task in tasks]
    depths = [(m_cog - 0.5) / 12 for m_cog in paper]
    write_tasks(tmp_path / "good", tasks=tasks, make=with_centres("swapping", depths))
    turned = [0.9 - depth for depth in depths]
    write_tasks(tmp_path / "bad", tasks=tasks, make=with_centres("swapping", turned))
    good, bad = (findings(tmp_path / name)["order-of-tasks"] for name in ("good", "bad"))
    assert (good.verdict, good.measured.value) == ("holds", pytest.approx(1))
    assert (bad.verdict, bad.measured.value) == ("does not hold", pytest.approx(-1))
    write_tasks(tmp_path / "own", make=with_centres("swapping", CENTRES))
    assert findings(tmp_path / "own")["order-of-tasks"].measured.n == 0  # none of the paper's


def test_centres_of_two_techniques_go_together_as_in_the_paper_or_not(tmp_path: Path) -> None:
    pair, claim = ("swapping", "retraining"), "fig8-swapping-retraining"
    for name, places in (("good", order_with(0.97)), ("bad", range(8)[::-1])):

        def make(place: int, places: Sequence[int] = places) -> dict[str, Any]:
            centres = (CENTRES[place], CENTRES[places[place]])
            return {"weights": {t: [straight(6, c)] for t, c in zip(pair, centres, strict=True)}}

        for model in ("one", "two"):
            write_tasks(tmp_path / name, model, layers=6, make=make)
    assert verdict(tmp_path / "good", claim) == "holds"
    bad = findings(tmp_path / "bad")[claim]
    assert (bad.verdict, bad.reason) == ("does not hold", "opposite to the paper")


def two_models(
    runs: Path, technique: str, order: Sequence[int], layers: tuple[int, int] = (12, 12)
) -> Path:
    """The second model has the tasks in another order."""
    names = ("bert-base-cased", "opt-125m")
    write_tasks(runs, names[0], layers[0], make=with_centres(technique, CENTRES, layers[0]))
    other = [CENTRES[place] for place in order]
    return write_tasks(runs, names[1], layers[1], make=with_centres(technique, other, layers[1]))


def test_models_order_tasks_alike_or_not(tmp_path: Path) -> None:
    two_models(tmp_path / "good", "retraining", range(8))
    two_models(tmp_path / "bad", "retraining", range(8)[::-1])
    assert verdict(tmp_path / "good", "models-order-tasks") == "holds"
    assert verdict(tmp_path / "bad", "models-order-tasks") == "does not hold"
    two_models(tmp_path / "other", "swapping", range(8))  # the claim is about retraining
    assert verdict(tmp_path / "other", "models-order-tasks") == "not enough data"
    write_tasks(tmp_path / "one")
    assert findings(tmp_path / "one")["models-order-tasks"].reason == "needs at least two models"


def test_pairs_of_models_are_averaged(tmp_path: Path) -> None:
    two_models(tmp_path, "swapping", order_with(0.61))
    write_tasks(tmp_path, "minilm", 12, make=with_centres("swapping", CENTRES[::-1]))
    grid = read_grid(tmp_path)
    found = Findings(grid)["fig8-models"].measured
    table = agreement_table(grid)
    pairs = table[(table["kind"] == "models") & (table["quantity"] == M_COG)]
    assert found.value == pytest.approx(pairs["spearman"].mean())
    assert found.words.endswith("3 of 3 pairs of models")


def test_events_of_deeper_models_go_with_those_of_others_or_not(tmp_path: Path) -> None:
    def events(layers: Sequence[int]) -> Callable[[int], dict[str, Any]]:
        return lambda place: {"events": {"crossing": [layers[place]], "initiation": [place + 1]}}

    early_to_late = [1, 1, 2, 3, 4, 4, 5, 6]
    for name, deep in (("good", [2 * at for at in early_to_late]), ("bad", range(12, 4, -1))):
        write_tasks(tmp_path / name, "six", 6, make=events(early_to_late))
        write_tasks(tmp_path / name, "twelve", 12, make=events(deep))
    good, bad = findings(tmp_path / "good"), findings(tmp_path / "bad")
    assert good["deeper-crossing"].verdict == "holds"
    assert bad["deeper-crossing"].verdict == "does not hold"
    found = good["deeper-crossing"].measured
    assert (found.value, found.n) == (pytest.approx(1), 8)
    assert bad["deeper-crossing"].measured.value == pytest.approx(
        spearmanr(early_to_late, range(12, 4, -1)).statistic
    )
    write_tasks(tmp_path / "same", "six", 6, make=events(early_to_late))
    write_tasks(tmp_path / "same", "another", 6, make=events(early_to_late))
    assert "different depth" in findings(tmp_path / "same")["deeper-crossing"].reason
    # The paper found hardly any relation here.
    assert good["deeper-initiation"].verdict == "does not hold"
    assert good["deeper-initiation"].reason == "stronger than in the paper"


@pytest.mark.parametrize(
    ("claim", "one", "other"),
    [("crossing-mem-gen", "crossing", "mem_gen"), ("initiation-f1-90", "initiation", "f1_90")],
)
def test_events_of_centroids_go_with_those_of_probes_or_not(
    tmp_path: Path, claim: str, one: str, other: str
) -> None:
    def events(turned: bool) -> Callable[[int], dict[str, Any]]:
        return lambda place: {
            "events": {one: [place + 1], other: [9 - place if turned else place + 2]}
        }

    write_tasks(tmp_path / "good", make=events(False))
    write_tasks(tmp_path / "bad", make=events(True))
    assert verdict(tmp_path / "good", claim) == "holds"
    assert verdict(tmp_path / "bad", claim) == "does not hold"


def test_an_event_that_never_happens_is_said_to_be_missing(tmp_path: Path) -> None:
    def events(place: int) -> dict[str, Any]:
        return {"events": {"crossing": [place + 1], "mem_gen": [None if place < 2 else place + 1]}}

    write_tasks(tmp_path, make=events)
    found = findings(tmp_path)
    assert found["crossing-mem-gen"].measured.n == 6
    assert found["crossing-mem-gen"].measured.words == "missing in 2 runs"
    assert found["initiation-f1-90"].reason == "no run has the event f1_90 and initiation"


@pytest.mark.parametrize(
    ("depth", "score"), [("crossing", "generalisation_score"), ("m_cog", "validation_score")]
)
def test_deeper_memorisation_goes_with_better_scores_or_not(
    tmp_path: Path, depth: str, score: str
) -> None:
    def run(turned: bool) -> Callable[[int], dict[str, Any]]:
        def make(place: int) -> dict[str, Any]:
            better = (8 - place if turned else place + 1) / 10
            return {
                "events": {"crossing": [place + 1], "mem_gen": [place + 2]},
                "weights": {"swapping": [straight(12, CENTRES[place])]},
                "validation": 0.05 * place,
                "generalisation": 0.05 * place,
                score.removesuffix("_score"): better,
            }

        return make

    write_tasks(tmp_path / "good", make=run(False))
    write_tasks(tmp_path / "bad", make=run(True))
    claim = f"table2-{depth}-{score.removesuffix('_score')}".replace("_", "-")
    good, bad = findings(tmp_path / "good"), findings(tmp_path / "bad")
    assert (good[claim].verdict, bad[claim].verdict) == ("holds", "does not hold")
    general = "later-with-generalisation"
    assert (good[general].verdict, bad[general].verdict) == ("holds", "does not hold")
    assert bad[general].measured.value == pytest.approx(-1)


def write_binarised(
    runs: Path, order: Sequence[int], shift: int = 0, layers: int = 12, tasks: int = 8
) -> Path:
    """Every task with all classes and with two; these have the centres and events in an order.

    `shift` is in layers of 12.
    """
    for place in range(tasks):
        multi, binary = (
            {
                "weights": {"swapping": [straight(layers, 0.45 + at / 100 + moved / 12)]},
                "events": {event: [at + 3 + layers // 12 * moved] for event in EVENTS_COMPARED},
            }
            for at, moved in ((place, 0), (order[place], shift))
        )
        write_twins(runs, TASKS[place], layers=layers, multi=multi, binary=binary)
    return runs


EVENTS_COMPARED = ("crossing", "initiation")


def test_tasks_keep_their_order_when_cut_to_two_classes_or_not(tmp_path: Path) -> None:
    alike = findings(write_binarised(tmp_path / "good", range(8)))
    turned = findings(write_binarised(tmp_path / "bad", range(8)[::-1]))
    for what in ("m-cog", *EVENTS_COMPARED):
        good, bad = (found[f"binarised-{what}"] for found in (alike, turned))
        assert (good.verdict, good.measured.value) == ("holds", pytest.approx(1))
        assert (good.measured.n, good.measured.tasks) == (8, 8)
        assert (bad.verdict, bad.measured.value) == ("does not hold", pytest.approx(-1))


def test_with_two_classes_centres_stay_and_events_move_or_not(tmp_path: Path) -> None:
    still = findings(write_binarised(tmp_path / "still", range(8)))
    before = findings(write_binarised(tmp_path / "before", range(8), shift=-1))
    behind = findings(write_binarised(tmp_path / "behind", range(8), shift=1))
    verdicts = {
        claim: [found[f"binarised-{claim}-shift"].verdict for found in (before, still, behind)]
        for claim in ("m-cog", *EVENTS_COMPARED)
    }
    signed = [f["binarised-m-cog-mean-shift"].verdict for f in (before, still, behind)]
    no = "does not hold"
    assert signed == [no, "holds", no]
    assert verdicts == {
        "m-cog": [no, "holds", no],
        "crossing": ["holds", no, no],
        "initiation": [no, no, "holds"],
    }
    values = [found["binarised-crossing-shift"].measured.value for found in (before, still, behind)]
    assert values == pytest.approx([-1, 0, 1])
    assert before["binarised-m-cog-shift"].measured.value == pytest.approx(1)


PAPER = list(TASK_M_COG)
"""The tasks of the paper; the first five are NLU, the last two topics."""


def test_a_weak_correlation_holds_only_with_many_tasks(tmp_path: Path) -> None:
    claim = CLAIMS["fig8-probing-gradients"]
    random = np.random.default_rng(5)
    probing = random.normal(size=70)
    own = random.normal(size=70)
    for name, shared in (("good", 0.4), ("none", 0.0), ("bad", 1.0)):
        gradients = shared * probing + np.sqrt(1 - shared**2) * own
        centres = [0.5 + 0.03 * np.clip(side, -5, 5) for side in (probing, gradients)]

        def make(place: int, centres: Sequence[np.ndarray] = centres) -> dict[str, Any]:
            pair = zip(("probing", "gradients"), centres, strict=True)
            return {"weights": {t: [straight(6, side[place])] for t, side in pair}}

        tasks = [f"task-{place}" for place in range(70)]
        write_tasks(tmp_path / name, layers=6, tasks=tasks, make=make)
    good, bad = (findings(tmp_path / name)[claim.id] for name in ("good", "bad"))
    assert good.measured.value == pytest.approx(claim.number, abs=0.1)
    assert (good.verdict, bad.verdict) == ("holds", "does not hold")
    assert verdict(tmp_path / "none", claim.id) != "holds"
    write_tasks(tmp_path / "few", layers=6, tasks=tasks[:8], make=make)
    few = findings(tmp_path / "few")[claim.id]
    assert few.verdict != "holds"


@pytest.mark.parametrize(
    ("claim", "members", "deeper"),
    [
        ("nlu-lowest", slice(0, 5), -1),
        ("nlu-crosses-early", slice(0, 5), -1),
        ("nlu-initiates-late", slice(0, 5), 1),
        ("topics-cross-late", slice(10, 12), 1),
        ("topics-initiate-early", slice(10, 12), -1),
    ],
)
def test_a_category_of_tasks_lies_deeper_than_others_or_not(
    tmp_path: Path, claim: str, members: slice, deeper: int
) -> None:
    tasks = sorted(PAPER, key=lambda task: CATEGORIES.index(PAPER_TASKS[task].category))
    for name, way in (("good", deeper), ("bad", -deeper)):
        places = [way if task in tasks[members] else 0 for task in tasks]

        def make(place: int, places: list[int] = places) -> dict[str, Any]:
            layer = 6 + 4 * places[place] + place % 2
            centre = 0.5 + 0.1 * places[place] + 0.01 * (place % 2)
            return {
                "events": {"crossing": [layer], "initiation": [layer]},
                "weights": {"swapping": [straight(12, centre)]},
            }

        write_tasks(tmp_path / name, tasks=tasks, make=make)
    good, bad = (findings(tmp_path / name)[claim] for name in ("good", "bad"))
    assert (good.verdict, bad.verdict) == ("holds", "does not hold")
    write_tasks(tmp_path / "own", make=with_centres("swapping", CENTRES))
    assert "tasks of the paper" in findings(tmp_path / "own")[claim].reason


def test_probing_is_deeper_than_swapping_and_retraining_or_not(tmp_path: Path) -> None:
    for name, probing in (("good", 0.6), ("bad", 0.4)):

        def make(place: int, probing: float = probing) -> dict[str, Any]:
            centres = {"swapping": 0.45, "retraining": 0.5, "probing": probing + 0.005 * place}
            return {"weights": {t: [straight(12, at)] for t, at in centres.items()}}

        write_tasks(tmp_path / name, make=make)
    good, bad = (findings(tmp_path / name)["probing-deeper"] for name in ("good", "bad"))
    assert (good.verdict, bad.verdict) == ("holds", "does not hold")
    assert good.measured.value == pytest.approx(12 * (0.6175 - 0.475))


def test_one_model_agrees_less_than_the_others_or_not(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    own = random.permutation(12)
    for name, odd in (("good", "pythia-160m"), ("bad", "opt-125m")):
        for model in ("bert-base-cased", "gpt-neo-125m", "opt-125m", "pythia-160m"):
            places = own if model == odd else np.arange(12)
            places = places + random.normal(0, 0.5, 12)
            centres = (0.4 + 0.015 * places).tolist()
            write_tasks(tmp_path / name, model, tasks=PAPER, make=with_centres("swapping", centres))
    claim = "pythia-agrees-less"
    assert verdict(tmp_path / "good", claim) == "holds"
    assert verdict(tmp_path / "bad", claim) == "does not hold"
    two_models(tmp_path / "two", "swapping", range(8))
    assert "needs pythia" in findings(tmp_path / "two")[claim].reason


def scored(runs: Path, offset: float) -> Path:
    """Three models in which depth goes with both scores; they differ in depth by an offset."""
    random = np.random.default_rng(1)
    for number, model in enumerate(("one", "two", "three")):

        def make(place: int, number: int = number) -> dict[str, Any]:
            depth = place + offset * number
            score = float(place + random.normal(0, 0.4)) / 20
            return {
                "events": {"crossing": [int(depth) + 1], "mem_gen": [int(depth) + 2]},
                "weights": {"swapping": [straight(24, 0.4 + depth / 150)]},
                "validation": score,
                "generalisation": score,
            }

        write_tasks(runs, model, 24, tasks=PAPER, make=make)
    return runs


def test_table_2_is_stronger_per_model_than_over_all_or_not(tmp_path: Path) -> None:
    apart, alike = scored(tmp_path / "good", 5), scored(tmp_path / "bad", 0)
    claim = "stronger-per-model"
    good, bad = findings(apart)[claim], findings(alike)[claim]
    assert good.verdict == "holds"
    assert bad.verdict != "holds"
    assert good.measured.value > 0.1 > abs(bad.measured.value or 1)
    # Models with deeper memorisation have better scores, but in each of them it is the reverse.
    for number, model in enumerate(("one", "two", "three")):

        def make(place: int, number: int = number) -> dict[str, Any]:
            depth, score = place + 5 * number, (11 - place + place % 3 + 15 * number) / 60
            return {
                "events": {"crossing": [depth + 1], "mem_gen": [depth + 2]},
                "weights": {"swapping": [straight(24, 0.4 + depth / 150)]},
                "validation": score,
                "generalisation": score,
            }

        write_tasks(tmp_path / "worse", model, 24, tasks=PAPER, make=make)
    assert verdict(tmp_path / "worse", claim) == "does not hold"


def test_a_claim_that_depends_on_the_validation_score_says_so(tmp_path: Path) -> None:
    claim = "table2-crossing-validation"
    same = scored(tmp_path / "same", 0)
    assert verdict(same, claim) == "holds"
    runs = scored(tmp_path / "runs", 0)
    for place, task in enumerate(PAPER):
        for model in ("one", "two", "three"):
            path = runs / f"{task}-{model}" / "summary.json"
            summary = json.loads(path.read_text())
            summary["scores"]["validation_score"]["memorised"]["majority"] = -place / 20
            path.write_text(json.dumps(summary))
    found = findings(runs)[claim]
    assert found.verdict == "not enough data"
    assert "it depends on the validation score: holds with" in found.reason
    assert "does not with 1" in found.reason
    assert "θ_O" in found.measured.words


@pytest.mark.parametrize(("peak", "expected"), [(12, "holds"), (3, "does not hold")])
def test_the_middle_layers_matter_most_at_24_or_not(
    tmp_path: Path, peak: int, expected: str
) -> None:
    def make(place: int) -> dict[str, Any]:
        near = [0.5 - 0.02 * abs(layer - peak) + 0.001 * place for layer in range(24)]
        return {"windows": [near] * 23 + [[1.0] * 24]}

    write_tasks(tmp_path, "deep", 24, make=make)
    write_tasks(tmp_path, "one", 12)
    write_tasks(tmp_path, "two", 12)  # most runs, with which the deep model is not put together
    found = findings(tmp_path)
    assert found["deeper-middle"].verdict == expected
    assert found["clean-error"].measured.n == 16
    write_tasks(tmp_path / "shallow", "one", 12)
    assert "24 layers" in findings(tmp_path / "shallow")["deeper-middle"].reason


def test_runs_with_few_noisy_examples_give_no_verdict_and_are_named(tmp_path: Path) -> None:
    write_tasks(tmp_path / "some", make=lambda place: {"noisy": 14 if place == 0 else 15})
    evidence = gather(read_grid(tmp_path / "some"))
    remark = "Left out, as they have fewer than 15 noisy examples: a minilm."
    assert remark in evidence.grid.notes
    assert judge(CLAIMS["clean-error"], evidence).measured.n == 7
    write_tasks(tmp_path / "all", noisy=14)
    for finding in check_claims(gather(read_grid(tmp_path / "all"))):
        assert finding.verdict == "not enough data"
        assert finding.reason == "no run has 15 noisy examples"
    assert findings(tmp_path / "all")["clean-error"].measured.value == pytest.approx(0.002)


def test_more_models_of_the_same_tasks_do_not_narrow_an_interval(tmp_path: Path) -> None:
    make = with_centres("swapping", CENTRES)
    write_tasks(tmp_path / "one", make=make)
    for model in ("one", "two", "three", "four"):
        write_tasks(tmp_path / "four", model, make=make)
    for claim in ("early-layers", "not-confined"):
        one, four = (findings(tmp_path / name)[claim].measured for name in ("one", "four"))
        assert (one.n, four.n) == (8, 32)
        assert one.interval == pytest.approx(four.interval)


def test_fewer_than_six_runs_give_no_verdict_but_values_that_are_no_correlations(
    tmp_path: Path,
) -> None:
    write_tasks(tmp_path, tasks=TASKS[:3])
    found = findings(tmp_path)
    decided = {name for name, finding in found.items() if finding.verdict != "not enough data"}
    assert not decided
    assert found["not-confined"].measured.value == 1
    assert found["not-confined"].reason == "takes 6 runs, there are 3"
    assert found["fig8-swapping-retraining"].measured.value is None
    assert found["fig8-swapping-retraining"].measured.n == 3


def test_every_claim_has_a_verdict_and_the_counts_add_up(tmp_path: Path) -> None:
    write_tasks(tmp_path)
    found = check_claims(gather(read_grid(tmp_path)))
    assert [finding.claim for finding in found] == list(CLAIMS.values())
    counts = count_verdicts(found)
    assert sum(counts.values()) == len(CLAIMS)
    assert counts["holds"] >= 4
    for name in ("control-swapping", "gradient-corrections", "binarised-m-cog"):
        finding = next(one for one in found if one.claim.id == name)
        assert finding.verdict == "not enough data"
        assert finding.reason
