"""Experiment files: grids, exceptions, presets, and one sentence for whatever makes no sense."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from memloc.config import DEFAULT_TECHNIQUES, Data, Training
from memloc.engine.compute import KINDS
from memloc.engine.progress import KIND_WORDS
from memloc.engine.sweep_config import Sweep, parse_sweep
from memloc.errors import ConfigError
from memloc.paper.presets import preset_names, preset_text, read_experiment

BASE = Path("/experiments")
SMALL = "models: [minilm, bert]\ntasks: [questions, reviews]\n"


def parse(text: str, base: Path = BASE, **arguments) -> Sweep:
    return parse_sweep(text, "my.yaml", base, **arguments)


def by_name(sweep: Sweep) -> dict[tuple[str, str], object]:
    return {(cell.model, cell.task): cell.config for cell in sweep.cells}


def test_every_model_meets_every_task_with_the_training_it_is_known_to_need() -> None:
    sweep = parse(SMALL + "training: {batch_size: 4}\nseeds: [3, 4]\ndata: {limit: 90}\n")
    assert list(by_name(sweep)) == [
        *(("minilm", "questions"), ("minilm", "reviews")),
        *(("bert", "questions"), ("bert", "reviews")),
    ]
    minilm, bert = sweep.cells[0].config, sweep.cells[2].config
    assert minilm.training == Training(epochs="auto", learning_rate=3e-4, batch_size=4)
    assert bert.training == Training(epochs="auto", batch_size=4)
    assert bert.seeds == (3, 4)
    assert bert.data == Data(task="questions", limit=90)
    assert bert.generalisation is None
    assert sweep.name == "sweep"
    assert sweep.control is None


def test_grids_begin_with_what_the_file_says_and_change_it() -> None:
    sweep = parse(
        SMALL + "probing: {seeds: 2}\nretraining: {epochs: 3}\n"
        "grids:\n"
        "- {}\n"
        "- {tasks: [topics], data: {binarise: true}, techniques: [probing, swapping],"
        " generalisation: true, probing: {epochs: 7}}\n"
    )
    assert len(sweep.cells) == 4 + 2
    config = by_name(sweep)["bert", "topics"]
    assert config.data.binarise
    assert list(config.techniques) == ["probing", "swapping"]
    assert config.generalisation.splits == 30
    probing = config.techniques["probing"]
    assert (probing["seeds"], probing["epochs"], probing["hidden"]) == (2, 7, 128)
    other = by_name(sweep)["bert", "questions"]
    assert not other.data.binarise
    assert list(other.techniques) == list(DEFAULT_TECHNIQUES)
    assert other.techniques["retraining"]["epochs"] == 3


def test_cells_that_two_grids_name_are_there_once() -> None:
    assert len(parse(SMALL + "grids: [{}, {models: bert}, {seeds: 1}]").cells) == 4
    assert len(parse(SMALL + "grids: [{}, {models: bert, seeds: 2}]").cells) == 6


def test_of_two_exceptions_the_later_wins() -> None:
    sweep = parse(
        SMALL + "overrides:\n"
        "- {models: [bert], training: {batch_size: 32, learning_rate: 1e-6}}\n"
        "- {models: bert, tasks: [reviews], training: {batch_size: 2}, seeds: [9]}\n"
        "- {tasks: [reviews], data: {limit: 50}, model: {pair_format: native}}\n"
    )
    found = by_name(sweep)
    common = Training(epochs="auto", learning_rate=1e-6)
    assert found["bert", "questions"].training == common.replace(batch_size=32)
    assert found["bert", "reviews"].training == common.replace(batch_size=2)
    assert found["bert", "reviews"].seeds == (9,)
    assert found["minilm", "reviews"].data.limit == 50
    assert found["minilm", "reviews"].model.pair_format == "native"
    assert found["minilm", "questions"].data.limit is None
    assert found["minilm", "questions"].training.batch_size == 16


def test_paths_are_relative_to_the_file_and_only_paper_tasks_have_a_data_folder(
    tmp_path: Path,
) -> None:
    (tmp_path / "models" / "mine").mkdir(parents=True)
    sweep = parse(
        "models: [models/mine, org/name]\n"
        "tasks: [{task: mine.csv, label_column: class, validation: other.csv}, rte, questions]\n"
        "data: {data_dir: copies}\n",
        tmp_path,
    )
    mine = sweep.cells[0].config
    assert mine.model.name == str(tmp_path / "models/mine")
    assert mine.data.task == str(tmp_path / "mine.csv")
    assert mine.data.validation == tmp_path / "other.csv"
    assert mine.data.label_column == "class"
    assert mine.data.data_dir is None
    assert sweep.cells[1].config.data.data_dir == tmp_path / "copies"
    assert sweep.cells[2].config.data.data_dir is None
    assert sweep.cells[3].config.model.name == "org/name"
    elsewhere = parse(SMALL.replace("reviews", "rte"), tmp_path, data_dir=Path("here"))
    assert elsewhere.cells[1].config.data.data_dir == Path("here")


def test_the_control_benchmark_takes_what_it_does_not_say_from_the_sweep() -> None:
    sweep = parse(
        SMALL + "data: {limit: 80}\ntraining: {epochs: 4}\n"
        "overrides: [{models: bert, training: {batch_size: 4}},"
        " {tasks: reviews, training: {warmup: 0.5}}]\n"
        "control: {tasks: [questions, topics], auxiliary: entailment, layers: [first],"
        " held_back: topics, windows: {sizes: [1]}, control: {attempts: 1}}\n"
    )
    control = sweep.control
    assert not any(one.exceptions for one in control.models)  # reviews is none of its tasks
    assert [one.model.name for one in control.models] == ["minilm", "bert"]
    assert [one.training.batch_size for one in control.models] == [16, 4]
    assert {(one.training.epochs, one.training.warmup) for one in control.models} == {(4, 0.1)}
    assert control.data.limit == 80
    assert control.held_back == ("topics",)
    assert control.control.attempts == 1
    assert control.windows.sizes == (1,)
    only = parse("models: minilm\ncontrol: {tasks: [questions, topics], techniques: [swapping]}\n")
    assert only.cells == ()
    assert list(only.control.techniques) == ["swapping"]
    assert not only.control.every_technique
    assert control.every_technique


@pytest.mark.parametrize("name", ["paper", "paper-large", "paper-mini", "builtin"])
def test_what_a_sweep_leaves_behind_is_an_experiment_that_says_the_same(
    name: str, tmp_path: Path
) -> None:
    sweep = read_experiment(name, tmp_path)
    again = parse_sweep(sweep.resolved(), "experiment.yaml", Path("/elsewhere"))
    assert again.name == name
    assert [cell.config for cell in again.cells] == [cell.config for cell in sweep.cells]
    assert again.control == sweep.control
    assert again.execution == sweep.execution


def test_presets_say_what_they_are() -> None:
    assert preset_names() == ["builtin", "paper", "paper-large", "paper-mini"]
    for name in preset_names():
        assert preset_text(name).startswith("# The ")
        assert read_experiment(name).name == name
        assert max(map(len, preset_text(name).splitlines())) <= 100
    mini = read_experiment("paper-mini")
    assert len(mini.cells) == 12
    assert {cell.config.data.limit for cell in mini.cells} == {200}
    assert len({cell.config.training for cell in mini.cells}) == 1  # or claims would not mix them


def test_the_paper_preset_follows_the_authors_program_in_runs_and_in_the_control() -> None:
    paper = read_experiment("paper")
    assert {cell.model for cell in paper.cells} == {"bert", *("opt-125m", "pythia-160m"),
                                                    "gpt-neo-125m"}  # fmt: skip
    runs = [cell.config for cell in paper.cells]
    models = [one.model for one in paper.control.models]
    assert {one.head for one in (*(run.model for run in runs), *models)} == {"paper"}
    for training in (*(run.training for run in runs), paper.control.models[0].training):
        assert (training.frozen_tail, training.frozen_dropout) == ("all", True)
        assert training.learning_rate == 1e-5
    assert paper.control.control.tail == "all"
    rates = {run.techniques["retraining"]["learning_rate"] for run in runs if len(run.seeds) == 3}
    assert rates == {paper.control.techniques["retraining"]["learning_rate"]} == {3e-5}
    # Long texts are taken in parts wherever they are.
    in_parts = {c.task for c in paper.cells if c.config.training.micro_batch_size == 4}
    assert in_parts == {"reuters"}
    for one in paper.control.models:
        assert one.training.micro_batch_size is None
        assert one.exceptions == {"reuters": one.training.replace(micro_batch_size=4)}
    (large,) = {cell.config.training for cell in read_experiment("paper-large").cells}
    assert (large.learning_rate, large.batch_size) == (5e-6, 16)


BAD = {
    "my.yaml: it is not a mapping; it needs at least `models:`": "- one\n- two",
    "my.yaml cannot be read: line 1, column 10: mapping values are not allowed": "models: a: b",
    "line 2, column 1: 'models' stands there twice": "models: a\nmodels: b",
    "my.yaml: grids[1].training.epoch: there is no such setting; did you mean 'epochs'?": (
        SMALL + "grids: [{}, {training: {epoch: 3}}]"
    ),
    "my.yaml: probing 5 is not possible: its settings have to be a mapping": "probing: 5",
    "my.yaml: grids[0].probing.seed: there is no such setting": (
        SMALL + "grids: [{techniques: {probing: {seed: 3}}}]"
    ),
    "my.yaml: grids 5 is not possible: ": "grids: 5",
    "my.yaml: control.data 5 is not possible: ": SMALL + "control: {tasks: [rte], data: 5}",
    "my.yaml cannot be read: it is nested too deeply": "[" * 5000,
    "my.yaml: the experiment names no tasks, so there is nothing to do": "models: [minilm]",
    "tasks: False is neither a name nor a mapping with a task; put a name": "tasks: [no]",
    "my.yaml: model.nam: there is no such setting; did you mean 'name'?": (
        "models: [{name: bert, nam: bert}]\ntasks: [questions]"
    ),
    "my.yaml: technique 'swaping' does not exist; did you mean 'swapping'?": (
        "techniques: [swaping]"
    ),
    "my.yaml: checkpoints 9 is not possible: training has 3 epochs": (
        SMALL + "checkpoints: 9\ntraining: {epochs: 3}"
    ),
    "my.yaml: name '../up' is not possible: it has to be a word": "name: ../up",
    "my.yaml: execution.ray.resources.trian: there is no such kind of jobs; did you mean": (
        "execution: {ray: {resources: {trian: {gpus: 1}}}}"
    ),
    "my.yaml: overrides[0].models: no cell has 'bertt'; did you mean 'bert'?": (
        SMALL + "overrides: [{models: bertt, seeds: 2}]"
    ),
    "my.yaml: overrides[0].data.task: it cannot be set here": (
        SMALL + "overrides: [{models: bert, data: {task: rte}}]"
    ),
    "data.suspects 'auto' is not possible: a sweep does not look for suspects; audit": (
        SMALL + "data: {suspects: auto}"
    ),
    "my.yaml: control.tasks: nothing is named": SMALL + "control: {layers: [first]}",
}


@pytest.mark.parametrize("words", BAD)
def test_what_makes_no_sense_is_one_sentence_that_says_where(words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(BAD[words])
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_resources_can_be_given_for_every_kind_of_jobs() -> None:
    assert set(KIND_WORDS) == set(KINDS)
    kinds = ", ".join(f"{kind}: {{cpus: 1}}" for kind in ("default", *KINDS))
    sweep = parse(SMALL + f"execution: {{ray: {{resources: {{{kinds}}}}}}}")
    assert len(sweep.execution.ray.resources) == len(KINDS) + 1


def test_what_is_no_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")  # reading it would wait for ever
    with pytest.raises(ConfigError, match=r"pipe.yaml' is not a file"):
        read_experiment(str(tmp_path / "pipe.yaml"))
    (tmp_path / "link.yaml").symlink_to(tmp_path / "gone.yaml")
    with pytest.raises(ConfigError, match=r"link.yaml' is a link to a file that does not exist$"):
        read_experiment(str(tmp_path / "link.yaml"))
    with pytest.raises(ConfigError, match=r"there is no file '.*lin.yaml'; check the path"):
        read_experiment(str(tmp_path / "lin.yaml"))
