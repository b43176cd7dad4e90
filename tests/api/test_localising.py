"""`memloc.localise` on models in memory."""

from __future__ import annotations

import copy
import itertools
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import transformers
from datasets import Dataset
from torch import nn

import memloc
from memloc.api.experiments import run
from memloc.api.in_memory import as_frame, given_examples, padding_caution
from memloc.config import Engine
from memloc.data.files import labelled_examples
from memloc.engine.complete import complete_localisation
from memloc.engine.given import CLASSES, check_fit, class_numbers
from memloc.engine.progress import Progress
from memloc.errors import DataError, MemlocError, ModelError
from memloc.models.blocks import BlockModel
from tests.api.conftest import FOUR, LAYERS, QUICK, UNDIVIDED, Setup, quick, untrained
from tests.tiny_models import WORDS, tiny_model, tiny_tokenizer


@contextmanager
def bit_identical(*models: nn.Module) -> Iterator[None]:
    """Weights, buffers, modes, flags, gradients, hooks, modules and padding ids stay."""

    def fingerprint(model: nn.Module) -> dict[str, Any]:
        return {
            "weights": {n: p.detach().clone() for n, p in model.state_dict().items()},
            "places": {n: p.data_ptr() for n, p in model.named_parameters()},
            "flags": {n: p.requires_grad for n, p in model.named_parameters()},
            "gradients": {n: p.grad for n, p in model.named_parameters()},
            "buffers": {n: b.clone() for n, b in model.named_buffers()},
            "modes": {n: m.training for n, m in model.named_modules()},
            "modules": {n: id(m) for n, m in model.named_modules()},
            "hooks": {
                n: (len(m._forward_hooks), len(m._forward_pre_hooks), "forward" in vars(m))
                for n, m in model.named_modules()
            },
            "padding": model.config.pad_token_id,
        }

    before = [fingerprint(model) for model in models]
    yield
    for model, old in zip(models, before, strict=True):
        new = fingerprint(model)
        for kind in ("weights", "buffers"):
            assert old[kind].keys() == new[kind].keys()
            for name, value in old[kind].items():
                assert value.dtype == new[kind][name].dtype, name
                assert torch.equal(value, new[kind][name]), name
        for kind in ("places", "flags", "modes", "modules", "hooks", "padding"):
            assert old[kind] == new[kind], kind
        for name, gradient in old["gradients"].items():
            assert new["gradients"][name] is gradient, name


def weights(result: memloc.Result, technique: str) -> np.ndarray:
    rows = result.layers[result.layers["technique"] == technique]
    return rows["weight"].to_numpy()


def test_models_in_memory_give_the_numbers_of_the_same_models_in_folders(
    trained: Setup, tmp_path: Path
) -> None:
    for role in ("memorised", "original", "pretrained"):
        getattr(trained, role).save_pretrained(tmp_path / role)
        trained.tokenizer.save_pretrained(tmp_path / role)
    file = tmp_path / "data.csv"
    trained.data.rename(columns={"gold": "original_label"}).to_csv(file, index=False)
    expected = run(
        complete_localisation(
            {
                **{role: str(tmp_path / role) for role in ("memorised", "original", "pretrained")},
                "data": {"file": file},
                "model": {"pair_format": "native"},
                "training": {"epochs": 2},
                **{
                    "retraining": {"epochs": 1},
                    "probing": {"epochs": 27, "seeds": 1, "least_steps": 0, "fitted_at": 0},
                },
            }
        ),
        Engine(workers=1),
        out=tmp_path / "out",
    ).tables
    found = memloc.localise(**trained.both, pretrained=tmp_path / "pretrained", **QUICK)
    assert found.techniques == FOUR
    assert found.skipped == {}
    exact = ("layers", "windows", "predictions", "examples", "probes", "gradients", "centroids")
    for name in (*exact, "crossings", "class_probes", "events", "trajectories", "retraining"):
        theirs = expected[name].reset_index(drop=True)
        pd.testing.assert_frame_equal(
            found.tables[name][theirs.columns.tolist()], theirs, check_exact=True, check_dtype=False
        )
    assert any("θ_M1 was not given" in words for words in found.summary["caveats"])
    # What a person sees first: all labels are memorised, swapping all layers undoes most of it.
    assert found.summary["memorised_share"] == 1.0
    full = found.windows[found.windows["size"] == LAYERS].set_index("technique")["noisy_error"]
    assert full["swapping"] > 0.7


FIRST_CALL = """
import random, sys
import pandas as pd
from tests.tiny_models import WORDS, tiny_model, tiny_tokenizer
data = {"text": [f"{one} {other}" for one in WORDS[:6] for other in WORDS[6:10]]}
data["label"] = [number % 3 for number in range(24)]
data["gold"] = [(number + (number % 5 == 0)) % 3 for number in range(24)]
models = {"memorised": tiny_model("bert", seed=1), "original": tiny_model("bert", seed=2)}
import memloc
before = random.getstate()
memloc.localise(
    **models, tokenizer=tiny_tokenizer(), data=data, original_label="gold", progress=False,
    techniques=["swapping", memloc.Gradients(divide_by_frozen=False)],
)
sys.exit(random.getstate() != before)
"""


def test_the_first_call_of_a_process_leaves_the_random_state_alone() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", FIRST_CALL], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_what_is_no_model_and_no_setting_is_refused_in_words(
    trained: Setup, tmp_path: Path
) -> None:
    with torch.device("meta"):
        nowhere = untrained()
    result = memloc.localise(**trained.both, **quick("swapping"), explain=False)
    runs = {"runs": tmp_path / "runs", "progress": False}
    opened = BlockModel(copy.deepcopy(trained.memorised))
    calls: dict[str, Callable[[], Any]] = {
        "model is of type object; give a name": lambda: memloc.run(model=object(), **runs),
        "models in memory are for": lambda: memloc.run(model=trained.memorised, **runs),
        "runs 5 is not possible": lambda: memloc.run(runs=5, progress=False),
        "data 5 is not possible": lambda: memloc.run(data=5, **runs),
        "training 5 is not": lambda: memloc.localise(**trained.both, training=5),
        "blocks 3 is not possible": lambda: memloc.localise(**trained.both, blocks=3),
        "of memorised are on meta": lambda: memloc.localise(
            **{**trained.both, "memorised": nowhere}
        ),
        "of model are on meta": lambda: memloc.fine_tune(
            nowhere, tokenizer=trained.tokenizer, data=trained.data
        ),
        "there is no table 5": lambda: result.table(5),
        "there is no table []": lambda: result.table([]),
        "there is no technique None": lambda: result.mcog(None),
        "there is no technique []": lambda: result.mcog([]),
        "layer a does not exist": lambda: opened.block("a"),
        "windows.sizes range(0, 1000000000) is": lambda: memloc.localise(
            **trained.both, windows={"sizes": range(10**9)}
        ),
        "it has more than 10,000 values": lambda: memloc.Windows(sizes=itertools.count(1)),
    }
    for words, call in calls.items():
        with pytest.raises(MemlocError) as caught:
            call()
        assert words in str(caught.value)
    assert not (tmp_path / "runs").exists()


def test_the_models_are_left_exactly_as_they_were(trained: Setup) -> None:
    memorised, original = copy.deepcopy(trained.memorised), copy.deepcopy(trained.original)
    pretrained = copy.deepcopy(trained.pretrained)
    memorised.train()
    memorised.bert.encoder.layer[1].eval()
    for parameter in memorised.bert.encoder.layer[0].parameters():
        parameter.requires_grad_(False)
    batch = trained.tokenizer(["the film was good"], return_tensors="pt")
    memorised(**batch, labels=torch.tensor([0])).loss.backward()  # gradients the user still needs
    kept = memorised.classifier.weight.grad.clone()
    memorised.bert.pooler.register_forward_hook(lambda *_: None)
    memorised.config.pad_token_id = None
    given = {**trained.both, "memorised": memorised, "original": original}
    with bit_identical(memorised, original, pretrained):
        result = memloc.localise(**given, pretrained=pretrained, **QUICK)
    assert set(result.techniques) == set(FOUR)
    assert torch.equal(memorised.classifier.weight.grad, kept)


class Interrupting(Progress):
    """Ctrl-C in the middle of a technique."""

    def __init__(self, technique: str) -> None:
        super().__init__()
        self.technique = technique

    def advance(self, job: Any, fraction: float) -> None:
        if job.title == self.technique and fraction > 0.2:
            raise KeyboardInterrupt


@pytest.mark.parametrize("technique", ["swapping", "retraining", "gradients"])
def test_after_ctrl_c_the_models_are_as_they_were(trained: Setup, technique: str) -> None:
    models = (trained.memorised, trained.original, trained.pretrained)
    given = {**trained.both, "progress": Interrupting(technique)}
    with bit_identical(*models), pytest.raises(KeyboardInterrupt):
        memloc.localise(**given, pretrained=trained.pretrained, explain=False, **quick(technique))


def test_nothing_global_is_changed(trained: Setup, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(5)
    state = {
        "torch": torch.get_rng_state(),
        "numpy": np.random.get_state()[1].tolist(),
        "python": random.getstate(),
        "threads": torch.get_num_threads(),
        "dtype": torch.get_default_dtype(),
        "verbosity": transformers.logging.get_verbosity(),
    }
    with torch.no_grad():
        memloc.localise(**trained.both, pretrained=trained.pretrained, **QUICK)
        assert not torch.is_grad_enabled()
    with torch.inference_mode():
        memloc.localise(**trained.both, techniques=UNDIVIDED, explain=False)
        assert torch.is_inference_mode_enabled()
    assert torch.equal(torch.get_rng_state(), state["torch"])
    assert np.random.get_state()[1].tolist() == state["numpy"]
    assert random.getstate() == state["python"]
    assert torch.get_num_threads() == state["threads"]
    assert torch.get_default_dtype() == state["dtype"]
    assert transformers.logging.get_verbosity() == state["verbosity"]
    assert torch.is_grad_enabled()
    assert list(tmp_path.iterdir()) == []  # and nothing is written


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_models_keep_their_precision(trained: Setup, dtype: torch.dtype) -> None:
    models = [copy.deepcopy(m).to(dtype) for m in (trained.memorised, trained.original)]
    pretrained = copy.deepcopy(trained.pretrained).to(dtype)
    with bit_identical(*models, pretrained):
        result = memloc.localise(
            **{**trained.both, "memorised": models[0], "original": models[1]},
            pretrained=pretrained,
            explain=False,
            **QUICK,
        )
    exact = memloc.localise(**trained.both, techniques="swapping", explain=False)
    tolerance = 1e-9 if dtype == torch.float64 else 0.08
    assert weights(result, "swapping") == pytest.approx(weights(exact, "swapping"), abs=tolerance)
    assert "probing" in result.techniques  # the head is recognised in spite of the rounding
    if dtype == torch.float64:
        return
    name = str(dtype).removeprefix("torch.")
    assert result.skipped == {
        "retraining": f"{name} is too coarse to train layers; give memorised in float32",
        "gradients": f"{name} is too coarse to train a head; give pretrained in float32",
    }


def test_wrappers_are_looked_into(trained: Setup) -> None:
    plain = memloc.localise(**trained.both, techniques="swapping", explain=False)
    for wrap in (torch.compile, nn.DataParallel):
        given = {**trained.both, "memorised": wrap(trained.memorised)}
        found = memloc.localise(**given, techniques="swapping", explain=False)
        pd.testing.assert_frame_equal(found.table("predictions"), plain.table("predictions"))


# --- what is missing -----------------------------------------------------------------------------


def test_without_the_original_model_the_others_run(trained: Setup) -> None:
    given = {**trained.both, "original": None}
    result = memloc.localise(**given, pretrained=trained.pretrained, **QUICK)
    assert result.techniques == ("retraining", "gradients", "probing")
    words = "the model of the correct labels (original) was not given but is needed"
    assert result.skipped == {"swapping": words}
    assert f"left out: {words}" in repr(result)
    assert f"Swapping was left out: {words}." in result.summary["caveats"]
    assert set(result.table("centroids")["model"]) == {"memorised"}
    with pytest.raises(MemlocError, match="swapping was left out: "):
        result.mcog("swapping")


def test_without_any_other_model_undivided_gradients_remain(trained: Setup) -> None:
    given = {**trained.both, "original": None}
    result = memloc.localise(**given, techniques={"swapping": {}, **UNDIVIDED}, explain=False)
    assert result.techniques == ("gradients",)
    with pytest.raises(
        MemlocError, match="no technique is possible: swapping: the model of the correct labels"
    ):
        memloc.localise(**given, techniques=["swapping", "shapley"])


def test_suspected_labels_are_enough(trained: Setup) -> None:
    given = {**trained.both, "original_label": None, "suspects": "noisy"}
    result = memloc.localise(
        **given,
        pretrained=trained.pretrained,
        **quick(*FOUR, "shapley", "patching"),
    )
    known = memloc.localise(
        **trained.both, pretrained=trained.pretrained, **quick(*FOUR, "shapley")
    )
    # The same examples are noisy, so all that does not ask for the correct label is the same.
    pd.testing.assert_frame_equal(result.layers, known.layers)
    pd.testing.assert_frame_equal(result.windows, known.windows)
    assert result.skipped == {
        "patching": "returns to the correct label are counted, which suspects do not say"
    }
    assert "centroids" not in result.tables
    assert any("no old class to leave" in words for words in result.summary["caveats"])
    assert "original_label" not in result.examples.columns
    assert (result.summary["noise"], known.summary["noise"]) == ("suspected", "wrong")
    assert "flipped" not in json.dumps(result.summary)
    # What θ_O answers stands beside each example; here it learned the correct labels.
    answers = result.examples.drop_duplicates("example").set_index("example")["original_answer"]
    gold = trained.data.loc[answers.index, "gold"].map(lambda label: f"LABEL_{label}")
    assert (answers == gold).mean() > 0.9
    with pytest.raises(MemlocError, match=r"^explain: suspects do not say"):
        memloc.localise(**given, explain=True)


def test_suspects_may_be_values_and_data_may_be_lists_or_a_dataset(trained: Setup) -> None:
    data, quick = trained.data, {"techniques": "swapping", "explain": False}
    frame = memloc.localise(**trained.both, **quick)
    lists = {name: data[name].tolist() for name in ("text", "label")}
    marked = {"data": lists, "original_label": None, "suspects": data["noisy"].to_numpy()}
    named = {"data": data.assign(label=[f"LABEL_{number}" for number in data["label"]])}
    for changes in (marked, named, {"data": Dataset.from_pandas(data)}):
        found = memloc.localise(**{**trained.both, **changes}, **quick)
        pd.testing.assert_frame_equal(found.windows, frame.windows)


# --- bad input -----------------------------------------------------------------------------------


def test_models_fit_if_all_that_matters_is_equal() -> None:
    facts = {"number of layers": 3, CLASSES: ["a", "b"], "precision": "float32"}
    check_fit(facts, {**facts, CLASSES: ["c", "d"], "shape of x": 1}, "m", "o", (CLASSES,))
    for what, value in {"number of layers": 4, CLASSES: ["b", "a"], "precision": "half"}.items():
        with pytest.raises(ModelError) as caught:
            check_fit(facts, {**facts, what: value}, "mine", "yours", ())
        words = f"{what} is {facts[what]} in 'mine' but {value} in 'yours'; "
        assert words in str(caught.value)


def foreign_words() -> Any:
    """A tokeniser with as many words, all of them others."""
    return tiny_tokenizer(words=[word[::-1] + "x" for word in WORDS])


REFUSED: dict[str, Callable[[Setup], dict[str, Any]]] = {
    "number of layers is 3 in 'memorised' but 4": lambda _: {"original": tiny_model("bert", 4)},
    "memorised and original are one and the same": lambda own: {"original": own.memorised},
    "does not choose between classes": lambda own: {"memorised": own.memorised.bert},
    "memorised is of type str, not a transformers model": lambda _: {"memorised": "bert"},
    "tokenizer is of type NoneType": lambda _: {"tokenizer": None},
    "100% of the tokens of the texts are unknown": lambda _: {"tokenizer": foreign_words()},
    "label 7 in row 0 of data": lambda own: {"data": own.data.assign(label=7)},
    "did you mean 'gold'?": lambda _: {"original_label": "golden"},
    "no label in data differs": lambda own: {"data": own.data.assign(gold=own.data["label"])},
    "windows.sizes 9 is not possible": lambda _: {"windows": {"sizes": [9]}},
    "seed -1 is not possible": lambda _: {"seed": -1},
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_does_not_fit_is_one_sentence_and_changes_nothing(trained: Setup, words: str) -> None:
    given = {**trained.both, "techniques": "swapping", **REFUSED[words](trained)}
    with (
        bit_identical(trained.memorised, trained.original),
        pytest.raises(MemlocError) as caught,
    ):
        memloc.localise(**given)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "--" not in str(caught.value)


def test_a_tokeniser_that_pads_with_another_token_is_cautioned_against(trained: Setup) -> None:
    other = tiny_tokenizer()
    other.pad_token = "[CLS]"
    told = memloc.localise(
        **{**trained.both, "tokenizer": other}, techniques="swapping", explain=False
    )
    assert told.summary["caveats"][0].startswith(
        "The config of memorised pads with token 0, tokenizer (which calls that one '[PAD]') with "
        "token 2 ('[CLS]')"
    )
    assert other.pad_token == "[CLS]"
    # Decoders are padded with the end of text, whatever their tokeniser would do.
    other.eos_token = "[PAD]"
    assert padding_caution(trained.memorised, other) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data": pd.DataFrame({"text": []})}, "data has no rows"),
        ({"original_label": None}, "nothing says which labels are wrong"),
        ({"data": 3}, "data is of type int; give a pandas.DataFrame"),
        ({"original_label": None, "suspects": [True]}, "'suspects' has 1 values but 'data' has 4"),
        ({"data": {"train": Dataset.from_dict({"text": ["a"]})}}, "data has several parts (train)"),
        ({"data": {"text": ["a", "b"], "label": [1]}}, "'label' has 1 values but 'text' has 2"),
        ({"suspects": "gold"}, "both say which labels are wrong"),
        ({"original_label": None, "suspects": [False] * 4}, "suspects is False for all 4 examples"),
        ({"original_label": None, "suspects": ["yes"] * 4}, "suspects is 'yes' in row 0"),
        ({"original_label": None, "suspects": "godl"}, "no column 'godl'; did you mean 'gold'?"),
        (
            {"original_label": None, "suspects": pd.Series([True, False] * 2, index=[3, 2, 1, 0])},
            "suspects has another index than data",
        ),
    ],
)
def test_what_is_wrong_with_a_table_is_one_sentence(changes: dict[str, Any], words: str) -> None:
    rows = pd.DataFrame({"text": list("abcd"), "label": [0, 1, 0, 1], "gold": [0, 1, 1, 1]})
    given = {"data": rows, "text": "text", "pair": None, "label": "label"}
    with pytest.raises(DataError) as caught:
        given_examples(**{**given, "original_label": "gold", "suspects": None, **changes})
    assert words in str(caught.value)


# --- labels --------------------------------------------------------------------------------------


def numbered(names: Mapping[int, str], column: list[Any]) -> list[int]:
    """How labels are read by a model of these class names."""
    model = tiny_model("bert", layers=1)
    model.config.id2label = dict(names)
    labels = labelled_examples(as_frame({"text": ["a"] * len(column), "label": column}), "data",
                               numbers=True)["label"]  # fmt: skip
    return class_numbers(labels, memloc.BlockModel(model), "label", "data").tolist()


def test_whole_numbers_are_class_numbers_and_texts_are_names_whichever_occur() -> None:
    ordinal = {0: "1", 1: "2", 2: "3"}
    assert numbered(ordinal, [0, 1, 2]) == [0, 1, 2]
    assert numbered(ordinal, [1, 2]) == [1, 2]  # not taken for names
    assert numbered(ordinal, [1.0, 2.0]) == [1, 2]
    assert numbered(ordinal, ["2", "1"]) == [1, 0]
    with pytest.raises(DataError) as caught:
        numbered(ordinal, [1, 3])
    assert str(caught.value) == (
        "label 3 in row 1 of data (rows count from 0) is not a class of the model; its classes "
        "are: 1, 2, 3 (numbers 0 to 2)"
    )
    with pytest.raises(DataError, match=r"^label '0' in row 1 of data .* classes are: 1, 2, 3$"):
        numbered(ordinal, ["1", "0"])
    assert numbered({0: "none", 1: "one", 2: "two"}, ["two", 1, "0", "one"]) == [2, 1, 0, 1]
