"""Techniques × techniques, models × models, events and scores: correlations against scipy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import pearsonr, spearmanr

from memloc.paper.claims import CLAIMS, judge
from memloc.paper.measures import gather
from memloc.results.agreement import (
    LAYER_WEIGHTS,
    M_COG,
    agreement_table,
    choose_models,
    mean_centres,
)
from memloc.results.folders import ResultsError
from memloc.results.grid import VALIDATION_SCORES, Grid, read_grid
from tests.result_folders import TECHNIQUES, straight, write_run

TASKS = ("a", "b", "c", "d", "e", "f")


def row(table: pd.DataFrame, **values: str) -> pd.Series:
    for name, value in values.items():
        table = table[table[name] == value]
    assert len(table) == 1
    return table.iloc[0]


def random_profiles(layers: int, seed: int) -> dict[str, list[list[float]]]:
    random = np.random.default_rng(seed)
    return {name: [random.random(layers).tolist()] for name in TECHNIQUES}


def centre(profile: Sequence[float]) -> float:
    weights = np.asarray(profile)
    middle = (np.arange(1, len(weights) + 1) * weights).sum() / weights.sum()
    return float((middle - 0.5) / len(weights))


def write_all(
    runs: Path, models: dict[str, int], tasks: Sequence[str] = TASKS
) -> dict[tuple[str, str], dict[str, list[float]]]:
    """Random profiles of every task and model; returns them."""
    written = {}
    for number, model in enumerate(models):
        for place, task in enumerate(tasks):
            profiles = random_profiles(models[model], seed=100 * number + place)
            write_run(runs, task, model, models[model], weights=profiles)
            written[task, model] = {name: of_seeds[0] for name, of_seeds in profiles.items()}
    return written


def test_techniques_are_compared_over_runs_by_their_centres(tmp_path: Path) -> None:
    written = write_all(tmp_path, {"six": 6, "twelve": 12})
    table = agreement_table(read_grid(tmp_path), ["six", "twelve"])
    found = row(table, kind="techniques", quantity=M_COG, one="swapping", other="probing")
    one = [centre(profiles["swapping"]) for profiles in written.values()]
    other = [centre(profiles["probing"]) for profiles in written.values()]
    assert found["spearman"] == pytest.approx(spearmanr(one, other).statistic)
    assert found["pearson"] == pytest.approx(pearsonr(one, other).statistic)
    assert (found["n"], found["units"]) == (12, 6)
    assert found["spearman_low"] < found["spearman"] < found["spearman_high"]
    assert len(table[(table["kind"] == "techniques") & (table["quantity"] == M_COG)]) == 6


def test_models_that_differ_do_not_make_techniques_agree_within_models(tmp_path: Path) -> None:
    # Deep in one model and early in the other by both techniques, but in opposite orders.
    for model, middle in (("early", 0.4), ("late", 0.6)):
        for place, task in enumerate(TASKS):
            step = 0.01 * place
            weights = {
                "swapping": [straight(6, middle + step)],
                "gradients": [straight(6, middle - step)],
            }
            write_run(tmp_path, task, model, 6, weights=weights)
    grid = read_grid(tmp_path)
    found = row(agreement_table(grid), kind="techniques", quantity=M_COG)
    assert found["spearman"] > 0.4
    assert found[["within", "within_low", "within_high"]].tolist() == pytest.approx([-1, -1, -1])
    claim = CLAIMS["fig8-swapping-gradients"]
    finding = judge(claim, gather(grid))
    assert finding.measured.words == "Pearson's r 0.94; within models -1.00 [-1.00, -1.00]"
    assert finding.verdict != "holds"


def test_techniques_are_compared_over_layers_of_runs_by_their_weights(tmp_path: Path) -> None:
    written = write_all(tmp_path, {"six": 6})
    table = agreement_table(read_grid(tmp_path))
    found = row(table, kind="techniques", quantity=LAYER_WEIGHTS, one="swapping", other="gradients")
    one = np.concatenate([profiles["swapping"] for profiles in written.values()])
    other = np.concatenate([profiles["gradients"] for profiles in written.values()])
    assert found["spearman"] == pytest.approx(spearmanr(one, other).statistic)
    assert found["pearson"] == pytest.approx(pearsonr(one, other).statistic)
    assert (found["n"], found["units"]) == (36, 6)


def test_models_are_compared_over_tasks_technique_by_technique(tmp_path: Path) -> None:
    written = write_all(tmp_path, {"six": 6, "twelve": 12})
    write_run(tmp_path, "only-six", "six", 6)
    table = agreement_table(read_grid(tmp_path))
    found = row(table, kind="models", quantity=M_COG)
    alone = []
    for technique in TECHNIQUES:
        one, other = (
            [centre(written[task, model][technique]) for task in TASKS]
            for model in ("six", "twelve")
        )
        alone.append(spearmanr(one, other).statistic)
    assert found["spearman"] == pytest.approx(np.mean(alone))
    assert (found["n"], found["units"]) == (6, 6)


def test_a_technique_that_lies_deeper_does_not_make_models_agree(tmp_path: Path) -> None:
    for model, way in (("one", 1), ("two", -1)):
        for place, task in enumerate(TASKS):
            step = 0.01 * way * place
            weights = {"swapping": [straight(6, 0.4 + step)], "probing": [straight(6, 0.6 + step)]}
            write_run(tmp_path, task, model, 6, weights=weights)
    found = row(agreement_table(read_grid(tmp_path)), kind="models", quantity=M_COG)
    assert found["spearman"] == pytest.approx(-1)


def test_models_of_another_depth_are_put_together_only_if_named(tmp_path: Path) -> None:
    write_all(tmp_path, {"six": 6, "also-six": 6, "twelve": 12})
    grid = read_grid(tmp_path)
    wanted = {"kind": "techniques", "quantity": M_COG, "one": "swapping", "other": "probing"}
    assert row(agreement_table(grid), **wanted)["n"] == 12
    assert row(agreement_table(grid, ["twelve", "six"]), **wanted)["n"] == 12
    assert row(agreement_table(grid, grid.models), **wanted)["n"] == 18
    pairs = agreement_table(grid)
    assert len(pairs[(pairs["kind"] == "models") & (pairs["quantity"] == M_COG)]) == 3
    together, every = choose_models(grid)
    remark = "Not put together with the others, as they have another depth: twelve (12 layers)."
    assert together.remarks == every.remarks == (remark,)
    assert list(together.models) == ["also-six", "six"]
    with pytest.raises(ResultsError, match="no run has this model"):
        choose_models(grid, ["six", "seven"])


def test_profiles_of_the_same_shape_agree_whatever_the_number_of_layers(tmp_path: Path) -> None:
    for place, task in enumerate(TASKS):
        for model, layers in (("six", 6), ("twelve", 12)):
            profile = straight(layers, 0.36 + 0.05 * place)
            write_run(tmp_path, task, model, layers, weights={"swapping": [profile]})
    found = row(agreement_table(read_grid(tmp_path)), kind="models", quantity=LAYER_WEIGHTS)
    assert found["n"] == 6 * 6  # at the layers of the shallower one
    assert found["pearson"] > 0.99


def events_grid(runs: Path, **columns: Sequence[float | None]) -> Grid:
    """One run per task with these events (layers) and scores; `model` and `layers` too."""
    for place, task in enumerate("abcdefghijkl"[: len(next(iter(columns.values())))]):
        values = {name: column[place] for name, column in columns.items()}
        scores = {name: values.pop(name, None) for name in ("validation", "generalisation")}
        depth = {name: values.pop(name) for name in ("model", "layers") if name in values}
        write_run(runs, task, **depth, **scores, events={e: [at] for e, at in values.items()})
    return read_grid(runs)


def test_events_are_compared_by_relative_depth_and_missing_ones_do_not_count(
    tmp_path: Path,
) -> None:
    layers = [6, 6, 6, 12, 12, 12]
    crossing, mem_gen = [2, 3, 5, 4, 7, None], [1, 4, 4, 6, 6, 9]
    grid = events_grid(
        tmp_path, crossing=crossing, mem_gen=mem_gen, layers=layers, model=list("sssttt")
    )
    found = row(agreement_table(grid, ["s", "t"]), kind="events", one="crossing")
    one = [(at - 0.5) / deep for at, deep in zip(crossing[:5], layers, strict=False)]
    other = [(at - 0.5) / deep for at, deep in zip(mem_gen[:5], layers, strict=False)]
    assert found["spearman"] == pytest.approx(spearmanr(one, other).statistic)
    assert found["n"] == 5
    assert row(agreement_table(grid), kind="events", one="initiation")["n"] == 0


def test_table_2_is_for_all_models_together_and_for_each(tmp_path: Path) -> None:
    crossing, score = [1, 2, 3, 4, 6, 5, 4, 3], [0.1, 0.3, 0.2, 0.4, 0.5, 0.6, 0.9, 0.8]
    grid = events_grid(
        tmp_path, crossing=crossing, generalisation=score, model=["one"] * 4 + ["two"] * 4
    )
    table = agreement_table(grid)
    wanted = {"kind": "generalisation", "one": "crossing", "other": "generalisation_score"}
    together = row(table, **wanted, scope="all models")
    assert together["spearman"] == pytest.approx(spearmanr(crossing, score).statistic)
    assert together["n"] == 8
    first = row(table, **wanted, scope="one")
    assert first["spearman"] == pytest.approx(spearmanr(crossing[:4], score[:4]).statistic)
    assert row(table, **wanted, scope="two")["n"] == 4
    other = table[table["other"].isin(VALIDATION_SCORES)]
    assert len(other) == 6 * 3 * 3  # scores × depths × scopes
    assert other["n"].eq(0).all()


def test_the_mean_over_techniques_is_over_those_that_all_its_runs_have(tmp_path: Path) -> None:
    early, late = straight(6, 0.4), straight(6, 0.6)
    for task in TASKS:
        write_run(tmp_path, task, weights={"swapping": [early], "probing": [late]})
    write_run(tmp_path, "swapping-only", weights={"swapping": [early]})
    depths, techniques = mean_centres(read_grid(tmp_path))
    # With the seventh run it would be .4 for all; without it there is twice as much to average.
    assert techniques == ("swapping", "probing")
    assert depths.tolist() == pytest.approx([0.5] * 6)
