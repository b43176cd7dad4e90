"""`MemlocCallback` in real trainings by `transformers.Trainer`."""

from __future__ import annotations

import copy
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from datasets import Dataset
from torch.utils.data import DataLoader, WeightedRandomSampler
from transformers import (
    DataCollatorWithPadding,
    PreTrainedModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    get_linear_schedule_with_warmup,
    set_seed,
)

import memloc
from memloc.analysis.dynamics import dynamics
from tests.conftest import labelled_rows
from tests.tiny_models import tiny_model, tiny_tokenizer

N, EPOCHS, BATCH = 37, 3, 8
STEPS = 5
"""In an epoch; the last has fewer examples."""
ROWS = np.random.default_rng(0).permutation(N) * 3
"""Row numbers with gaps, in no order."""
COLLATE = DataCollatorWithPadding(tiny_tokenizer())


def examples(n: int = N, **columns: Any) -> Dataset:
    rows = labelled_rows(n)
    encoded = tiny_tokenizer()(rows["text"].tolist())
    texts = {"text": rows["text"].tolist(), "label": rows["label"].tolist()}
    return Dataset.from_dict({**texts, **encoded, **columns})


def numbered() -> Dataset:
    return examples(row=ROWS.tolist())


def model() -> PreTrainedModel:
    return tiny_model("bert", layers=2)


def without_dropout() -> PreTrainedModel:
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return tiny_model("bert", layers=2, **none)


def trainer_of(
    folder: Path,
    callback: TrainerCallback | None = None,
    *,
    trained: Any = None,
    data: Any = None,
    kind: type[Trainer] = Trainer,
    given: dict[str, Any] | None = None,
    **settings: Any,
) -> Trainer:
    """Of three epochs with shuffled batches, if not said otherwise."""
    usual = {
        "num_train_epochs": EPOCHS,
        "per_device_train_batch_size": BATCH,
        "learning_rate": 5e-3,
        "save_strategy": "no",
        "logging_strategy": "no",
        "disable_tqdm": True,
        "use_cpu": True,
        "seed": 1,
    }
    return kind(
        **{"model": model() if trained is None else trained, **(given or {})},
        args=TrainingArguments(str(folder), **{**usual, **settings}),
        train_dataset=numbered() if data is None else data,
        data_collator=COLLATE,
        callbacks=None if callback is None else [callback],
    )


class Witness(Trainer):
    """Writes down what its model answers to whom, without any callback.

    The model gets the row numbers, and passes them over.
    """

    def __init__(self, **given: Any) -> None:
        given["train_dataset"] = given["train_dataset"].remove_columns("text")
        given["args"].remove_unused_columns = False
        super().__init__(**given)
        self.seen: list[pd.DataFrame] = []

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any
    ) -> Any:
        rows = inputs.get("row")
        loss, outputs = super().compute_loss(model, inputs, True, **kwargs)
        if model.training:
            logits = outputs["logits"].detach().numpy().copy()
            self.seen.append(pd.DataFrame(logits, rows.numpy()))
        return (loss, outputs) if return_outputs else loss

    @property
    def logits(self) -> np.ndarray:
        steps = [self.seen[at : at + STEPS] for at in range(0, len(self.seen), STEPS)]
        return np.stack([pd.concat(epoch).sort_index().to_numpy() for epoch in steps])


def weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}


def assert_same_weights(one: Trainer, other: Trainer) -> None:
    for name, tensor in weights(one).items():
        assert torch.equal(tensor, other.model.state_dict()[name]), name


def assert_as_before(trained: torch.nn.Module) -> None:
    assert not trained._forward_hooks
    assert not trained._forward_pre_hooks
    assert not [name for name in vars(trained) if name == "forward" or "memloc" in name]


@pytest.fixture(scope="module")
def witness(tmp_path_factory: pytest.TempPathFactory) -> Witness:
    torch.manual_seed(0)
    trainer = trainer_of(tmp_path_factory.mktemp("witness"), kind=Witness)
    trainer.train()
    return trainer


# --- what is recorded ---------------------------------------------------------------------------


def test_the_scores_are_those_of_a_plain_training_loop(tmp_path: Path) -> None:
    callback = memloc.MemlocCallback()
    trainer_of(tmp_path, callback, train_sampling_strategy="sequential").train()

    plain, data = model(), numbered().remove_columns("text")
    set_seed(1)
    batches = DataLoader(data, BATCH, collate_fn=COLLATE)  # type: ignore[arg-type]
    optimizer = torch.optim.AdamW(plain.parameters(), lr=5e-3, weight_decay=0.0)
    schedule = get_linear_schedule_with_warmup(optimizer, 0, EPOCHS * STEPS)
    logits = np.zeros((EPOCHS, N, 3))
    plain.train()
    for epoch in range(EPOCHS):
        for batch in batches:
            places = [sorted(ROWS).index(row) for row in batch.pop("row")]
            output = plain(**batch)
            output.loss.backward()
            torch.nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            logits[epoch, places] = output.logits.detach().numpy()

    np.testing.assert_array_equal(callback.rows, sorted(ROWS))
    labels = np.array(data["label"])[np.argsort(ROWS)]
    np.testing.assert_array_equal(callback.labels, labels)
    np.testing.assert_allclose(callback.logits, logits, atol=1e-4)
    table = callback.dynamics()
    assert table.columns[0] == "row"
    assert table["row"].tolist() == sorted(ROWS)
    expected = dynamics(logits, labels)
    pd.testing.assert_frame_equal(table.drop(columns="row"), expected, atol=1e-3)


def test_every_row_has_the_logits_of_its_own_text(tmp_path: Path) -> None:
    callback = memloc.MemlocCallback()
    trainer = trainer_of(tmp_path, callback, trained=without_dropout(), learning_rate=0.0)
    trainer.train()
    answers = trainer.predict(numbered()).predictions[np.argsort(ROWS)]
    np.testing.assert_allclose(callback.logits, np.stack([answers] * EPOCHS), atol=1e-5)
    assert np.ptp(answers, axis=0).min() > 0.1


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"gradient_accumulation_steps": 2},
        {"gradient_checkpointing": True},
        {"bf16": True},
        {"label_smoothing_factor": 0.1},
        {"dataloader_num_workers": 1},
        {"train_sampling_strategy": "group_by_length"},
        pytest.param(
            {"torch_compile": True, "torch_compile_backend": "eager", "num_train_epochs": 2},
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda settings: next(iter(settings), "as usual"),
)
def test_training_is_the_same_to_the_bit_and_all_its_logits_are_recorded(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    callback = memloc.MemlocCallback()
    with_callback = trainer_of(tmp_path, callback, **settings)
    with_callback.train()
    witness = trainer_of(tmp_path, kind=Witness, **settings)
    witness.train()
    np.testing.assert_array_equal(callback.logits, witness.logits)
    assert_same_weights(with_callback, witness)
    if "bf16" in settings:  # then accelerate replaces `forward`, in every training
        assert vars(with_callback.model).keys() == vars(witness.model).keys()
        del with_callback.model.forward
    assert_as_before(with_callback.model)


def test_models_with_adapters_are_recorded(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft", reason="peft is not installed: pip install peft")
    config = peft.LoraConfig(task_type="SEQ_CLS", target_modules=["query", "value"])
    trained = []
    for kind in (Trainer, Witness):
        torch.manual_seed(0)
        callback = memloc.MemlocCallback() if kind is Trainer else None
        adapted = peft.get_peft_model(model(), config)
        trained.append((callback, trainer_of(tmp_path, callback, trained=adapted, kind=kind)))
        trained[-1][1].train()
    (callback, with_callback), (_, witness) = trained
    np.testing.assert_array_equal(callback.logits, witness.logits)
    assert_same_weights(with_callback, witness)
    assert_as_before(with_callback.model)
    assert_as_before(with_callback.model.get_base_model())


class Overwriting(Trainer):
    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        loss, outputs = super().compute_loss(*args, **{**kwargs, "return_outputs": True})
        outputs["logits"].detach().zero_()
        return loss


def test_a_loss_may_change_the_logits_in_place(witness: Witness, tmp_path: Path) -> None:
    callback = memloc.MemlocCallback()
    trainer_of(tmp_path, callback, kind=Overwriting).train()
    np.testing.assert_array_equal(callback.logits, witness.logits)


class InHalves(Trainer):
    """Passes both halves of a batch through copies at once, as data-parallel training does."""

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        halves = [
            {name: tensor[part] for name, tensor in inputs.items()}
            for part in (slice(0, 3), slice(3, None))
        ]
        copies = [model._replicate_for_data_parallel() for _ in halves]
        with ThreadPoolExecutor(2) as pool:
            outputs = pool.map(lambda one, half: one(**half), copies, halves)
            return torch.stack([output.loss for output in outputs]).mean()


def test_copies_of_data_parallel_training_are_recorded(tmp_path: Path) -> None:
    callback = memloc.MemlocCallback()
    trained = without_dropout()
    trainer_of(tmp_path, callback, kind=InHalves, trained=trained, learning_rate=0.0).train()
    answers = (
        trainer_of(tmp_path, trained=trained).predict(numbered()).predictions[np.argsort(ROWS)]
    )
    np.testing.assert_allclose(callback.logits, np.stack([answers] * EPOCHS), atol=1e-5)


ONE_OF_TWO = """
import os, sys
from pathlib import Path

import numpy as np
import memloc
from tests.api.test_callback import trainer_of, without_dropout

callback, folder = memloc.MemlocCallback(), Path(sys.argv[1])
still = {"trained": without_dropout(), "learning_rate": 0.0}
trainer_of(folder, callback, ddp_backend="gloo", **still).train()
np.save(folder / os.environ["RANK"], callback.logits)
"""


@pytest.mark.slow
def test_each_of_two_processes_has_the_logits_of_both(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(ONE_OF_TWO)
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    subprocess.run(
        [sys.executable, *launch, program, tmp_path],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
        timeout=600,
    )
    trainer = trainer_of(tmp_path, trained=without_dropout())
    answers = trainer.predict(examples()).predictions[np.argsort(ROWS)]
    for rank in range(2):
        logits = np.load(tmp_path / f"{rank}.npy")
        np.testing.assert_allclose(logits, np.stack([answers] * EPOCHS), atol=1e-5)


@pytest.mark.slow
def test_recording_takes_less_than_a_twentieth_of_the_training(tmp_path: Path) -> None:
    small = {"hidden_size": 128, "intermediate_size": 512}  # with a larger model the share is less
    trained = tiny_model("bert", layers=4, **small)
    data = examples(120, row=list(range(120)))
    best = {True: np.inf, False: np.inf}
    for attempt in range(12):
        for recorded in (True, False):
            callback = memloc.MemlocCallback() if recorded else None
            trainer = trainer_of(tmp_path, callback, trained=trained, data=data)
            start = time.process_time()
            trainer.train()
            best[recorded] = min(best[recorded], time.process_time() - start)
        if attempt >= 2 and best[True] < 1.05 * best[False]:
            return
    pytest.fail(f"{best[True]:.2f} seconds with the callback, {best[False]:.2f} without")


# --- around training ----------------------------------------------------------------------------


@pytest.mark.parametrize("held_out", [examples(9), examples(9, row=list(range(9)))])
def test_evaluation_neither_needs_the_column_nor_is_recorded(
    held_out: Dataset, tmp_path: Path
) -> None:
    callback, losses = memloc.MemlocCallback(), []
    for kind, recording in ((Trainer, callback), (Witness, None)):
        trainer = trainer_of(
            tmp_path,
            recording,
            kind=kind,
            given={"eval_dataset": held_out.remove_columns("text")},
            eval_strategy="steps",
            eval_steps=2,
            eval_on_start=True,
        )
        first = trainer.evaluate()["eval_loss"]
        trainer.train()
        last = trainer.evaluate()["eval_loss"]
        history = [
            entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry
        ]
        losses.append([first, *history, last])
        assert history[0] == first != last == history[-1]
    np.testing.assert_array_equal(callback.logits, trainer.logits)
    assert losses[0] == losses[1]


class StopAt(TrainerCallback):
    def __init__(self, step: int, stop: Callable[[Any], None]) -> None:
        self.step, self.stop = step, stop

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step:
            self.stop(control)


def early(control: Any) -> None:
    control.should_training_stop = True


def interrupt(control: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(("step", "epochs"), [(12, 2), (14, 2), (10, 2), (15, 3)])
def test_epochs_that_are_not_finished_do_not_count(
    step: int, epochs: int, witness: Witness, tmp_path: Path
) -> None:
    callback = memloc.MemlocCallback()
    trainer = trainer_of(tmp_path, callback)
    trainer.add_callback(StopAt(step, early))
    trainer.train()
    assert trainer.state.global_step == step
    np.testing.assert_array_equal(callback.logits, witness.logits[:epochs])


def test_so_it_is_with_max_steps(tmp_path: Path) -> None:
    callback = memloc.MemlocCallback()
    trainer_of(tmp_path, callback, max_steps=12).train()
    assert callback.logits.shape == (2, N, 3)
    assert np.isfinite(callback.logits).all()


@pytest.mark.parametrize("step", [5, 7, 10])
def test_a_resumed_training_goes_on_with_what_was_recorded(
    step: int, witness: Witness, tmp_path: Path
) -> None:
    saving = {"save_strategy": "steps", "save_steps": step, "save_total_limit": 1}
    first = trainer_of(tmp_path, memloc.MemlocCallback(), **saving)
    first.add_callback(StopAt(step + 1, interrupt))
    with pytest.raises(KeyboardInterrupt):
        first.train()
    callback = memloc.MemlocCallback()
    second = trainer_of(tmp_path, callback, **saving)
    second.train(resume_from_checkpoint=True)
    np.testing.assert_array_equal(callback.logits, witness.logits)
    assert_same_weights(second, witness)


@pytest.mark.parametrize("damage", ["missing", "empty", "another file", "other rows"])
def test_a_resumed_training_whose_beginning_is_not_known_is_refused(
    damage: str, tmp_path: Path
) -> None:
    saving = {"save_strategy": "steps", "save_steps": 5}
    first = trainer_of(tmp_path, memloc.MemlocCallback(), **saving)
    first.train()
    file = tmp_path / "checkpoint-5" / "memloc.safetensors"
    data = numbered()
    if damage == "missing":
        file.unlink()
    elif damage == "empty":
        file.write_bytes(b"")
    elif damage == "another file":
        shutil.copy(file.with_name("model.safetensors"), file)
    else:
        data = examples(row=list(range(N)))
    again = trainer_of(tmp_path, memloc.MemlocCallback(), data=data, **saving)
    with pytest.raises(memloc.MemlocError, match=r"is resumed, but .*checkpoint-5.* does not have"):
        again.train(resume_from_checkpoint=str(file.parent))


def test_an_interrupted_training_can_be_started_again(witness: Witness, tmp_path: Path) -> None:
    trained = model()
    beginning = copy.deepcopy(trained.state_dict())
    interrupted = memloc.MemlocCallback()
    first = trainer_of(tmp_path, interrupted, trained=trained)
    first.add_callback(StopAt(11, interrupt))
    with pytest.raises(KeyboardInterrupt):
        first.train()
    np.testing.assert_array_equal(interrupted.logits, witness.logits[:2])
    trained.load_state_dict(beginning)
    callback = memloc.MemlocCallback()
    trainer_of(tmp_path, callback, trained=trained).train()
    np.testing.assert_array_equal(callback.logits, witness.logits)
    assert len(interrupted.logits) == 2
    assert_as_before(trained)


def test_a_trainer_that_is_made_anew_leaves_nothing_behind(tmp_path: Path) -> None:
    trained, callback = model(), memloc.MemlocCallback()
    for _ in range(3):
        trainer = trainer_of(tmp_path, callback, trained=trained)
    trainer.train()
    assert callback.logits.shape == (EPOCHS, N, 3)
    assert_as_before(trained)


def test_a_second_training_replaces_the_first(witness: Witness, tmp_path: Path) -> None:
    callback = memloc.MemlocCallback()
    trainer = trainer_of(tmp_path, callback)
    trainer.train()
    np.testing.assert_array_equal(callback.logits, witness.logits)
    trainer.args.num_train_epochs = 2
    trainer.train()
    assert callback.logits.shape == (2, N, 3)
    assert (callback.logits != witness.logits[:2]).any()


def test_the_column_may_have_another_name(witness: Witness, tmp_path: Path) -> None:
    callback = memloc.MemlocCallback(row="number")
    trainer_of(tmp_path, callback, data=numbered().rename_column("row", "number")).train()
    np.testing.assert_array_equal(callback.logits, witness.logits)


# --- what cannot be recorded --------------------------------------------------------------------


def assert_refused(trainer: Trainer, words: str) -> None:
    with pytest.raises(memloc.MemlocError, match=words) as caught:
        trainer.train()
    assert "\n" not in str(caught.value)
    if trainer.state.global_step == 0:
        assert all(map(torch.equal, weights(trainer).values(), model().state_dict().values()))


def test_data_without_the_column_are_refused_with_the_way_to_add_it(tmp_path: Path) -> None:
    data = examples()
    words = r"no column 'row'; .*: dataset = dataset\.add_column\('row', range\(len\(dataset\)\)\)$"
    assert_refused(trainer_of(tmp_path, memloc.MemlocCallback(), data=data), words)
    callback = memloc.MemlocCallback()
    data = data.add_column("row", range(len(data)))
    trainer_of(tmp_path, callback, data=data).train()
    assert callback.dynamics()["row"].tolist() == list(range(N))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"data": examples(row=[0] * N)}, "whole numbers, a different one for every example"),
        ({"data": examples(row=list(map(str, range(N))))}, "must have whole numbers, a different"),
        ({"data": examples(row=[None, *range(1, N)])}, "must have whole numbers, a different"),
        ({"data": numbered().to_list()}, r"of type list; MemlocCallback needs a datasets\.Dataset"),
        ({"data": numbered().rename_column("label", "class")}, "no column 'labels' or 'label'"),
        (
            {"data": examples(row=list(range(N)), labels=[3.5] * N).remove_columns("label")},
            "column 'labels' of the training data must have whole numbers from 0 to 2",
        ),
        (
            {"data": examples(row=list(range(N)), labels=[3] * N).remove_columns("label")},
            "column 'labels' of the training data must have whole numbers from 0 to 2",
        ),
        ({"trained": tiny_model("bert", layers=2, labels=1)}, "does not choose between classes"),
        ({"given": {"model": None, "model_init": model}}, r"makes another one \(model_init"),
    ],
)
def test_data_and_models_that_do_not_fit_are_refused(
    change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    trainer = trainer_of(tmp_path, memloc.MemlocCallback(), **change)
    with pytest.raises(memloc.MemlocError, match=words):
        trainer.train()
    assert_as_before(trainer.model)


def test_a_callback_that_comes_too_late_is_refused(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path)
    trainer.add_callback(memloc.MemlocCallback())
    assert_refused(trainer, r"added to the Trainer later.*with callbacks=\[callback\]")


def test_row_numbers_in_an_input_of_the_model_are_refused(tmp_path: Path) -> None:
    with pytest.raises(memloc.MemlocError, match="'labels' cannot have the row numbers"):
        trainer_of(tmp_path, memloc.MemlocCallback(row="labels"))


def test_a_collator_that_drops_the_column_is_refused(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, memloc.MemlocCallback())
    trainer.data_collator = lambda rows: {
        name: tensor for name, tensor in COLLATE(rows).items() if name != "row"
    }
    assert_refused(trainer, "column 'row' of the training data does not reach the model; the data")


class WithReplacement(Trainer):
    def _get_train_sampler(self, *args: Any) -> Any:
        return WeightedRandomSampler([1.0] * N, N, replacement=True)


class TwoPasses(Trainer):
    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        super().compute_loss(*args, **kwargs)
        return super().compute_loss(*args, **kwargs)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": WithReplacement}, r"number \d+ was seen [^1] times in epoch 1, not once; train"),
        ({"kind": TwoPasses}, "row number 0 was seen 2 times in epoch 1, not once; .* one pass"),
        ({"dataloader_drop_last": True}, r"was seen 0 times in .* without dataloader_drop_last"),
        ({"num_train_epochs": 1}, "recorded: 1, but 2 are needed .*; let .* make 2 epochs or more"),
        ({"max_steps": 9}, "complete epochs that were recorded: 1, but 2 are needed"),
        ({"max_steps": 3}, "complete epochs that were recorded: 0, but 2 are needed"),
    ],
)
def test_epochs_that_do_not_tell_enough_are_refused_after_training(
    change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    callback = memloc.MemlocCallback()
    trainer_of(tmp_path, callback, **change).train()
    for ask in (callback.dynamics, lambda: callback.logits):
        with pytest.raises(memloc.MemlocError, match=words):
            ask()


def test_before_training_there_is_nothing_to_tell(tmp_path: Path) -> None:
    callback = memloc.MemlocCallback()
    with pytest.raises(memloc.MemlocError, match="were recorded: 0, but 2 are needed"):
        callback.dynamics()
    trainer_of(tmp_path, callback)
    with pytest.raises(memloc.MemlocError, match="were recorded: 0, but 2 are needed"):
        callback.dynamics()
