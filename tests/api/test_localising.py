"""`memloc.localise` on models in memory."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Mapping
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
from memloc.api.experiments import localise_folders
from memloc.config import Engine
from memloc.engine.complete import complete_localisation
from memloc.engine.progress import Silent
from memloc.errors import DataError, MemlocError, ModelError
from tests.api.conftest import FOUR, LAYERS, QUICK, UNDIVIDED, Setup, quick
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
    expected = localise_folders(
        complete_localisation(
            {
                **{role: str(tmp_path / role) for role in ("memorised", "original", "pretrained")},
                "data": {"file": file},
                "model": {"pair_format": "native"},
                "training": {"epochs": 2},
                **{"retraining": {"epochs": 1}, "probing": {"epochs": 27, "seeds": 1}},
            }
        ),
        engine=Engine(workers=1),
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


class Interrupting(Silent):
    """Ctrl-C in the middle of a technique."""

    def __init__(self, technique: str) -> None:
        super().__init__()
        self.technique = technique

    def advance(self, job: Any, fraction: float) -> None:
        if job.title == self.technique and fraction > 0.2:
            raise KeyboardInterrupt


@pytest.mark.parametrize("technique", ["swapping", "retraining", "gradients", "probing"])
def test_after_ctrl_c_the_models_are_as_they_were(trained: Setup, technique: str) -> None:
    models = (trained.memorised, trained.original, trained.pretrained)
    given = {**trained.both, "progress": Interrupting(technique)}
    with bit_identical(*models), pytest.raises(KeyboardInterrupt):
        memloc.localise(**given, pretrained=trained.pretrained, explain=False, **quick(technique))


def test_after_an_error_inside_a_model_it_is_as_it_was(trained: Setup) -> None:
    broken = copy.deepcopy(trained.memorised)
    calls = []

    def fail(*_: Any) -> None:
        calls.append(1)
        if len(calls) > 40:
            raise RuntimeError("out of memory")

    broken.bert.encoder.layer[1].register_forward_hook(fail)
    with bit_identical(broken), pytest.raises(RuntimeError, match="out of memory"):
        memloc.localise(
            **{**trained.both, "memorised": broken}, techniques="swapping", explain=False
        )


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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
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


def test_gradients_in_half_precision_are_summed_in_single(trained: Setup) -> None:
    settings = {"techniques": UNDIVIDED, "explain": False}
    exact = memloc.localise(**trained.both, **settings)
    half = copy.deepcopy(trained.memorised).to(torch.bfloat16)
    original = copy.deepcopy(trained.original).to(torch.bfloat16)
    given = {**trained.both, "memorised": half, "original": original}
    coarse = memloc.localise(**given, **settings)
    assert weights(coarse, "gradients") == pytest.approx(weights(exact, "gradients"), abs=0.05)


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
    # What θ_O answers stands beside each example; here it learned the correct labels.
    answers = result.examples.drop_duplicates("example").set_index("example")["original_answer"]
    gold = trained.data.loc[answers.index, "gold"].map(lambda label: f"LABEL_{label}")
    assert (answers == gold).mean() > 0.9
    with pytest.raises(MemlocError, match=r"^explain True is not possible: suspects do not say"):
        memloc.localise(**given, explain=True)


def test_suspects_may_be_values_and_data_may_be_lists(trained: Setup) -> None:
    data = trained.data
    frame = memloc.localise(**trained.both, techniques="swapping", explain=False)
    lists = memloc.localise(
        memorised=trained.memorised,
        original=trained.original,
        tokenizer=trained.tokenizer,
        text=data["text"].tolist(),
        label=data["label"].to_numpy(),
        suspects=data["noisy"].tolist(),
        techniques="swapping",
        explain=False,
        progress=False,
    )
    dataset = memloc.localise(
        **{**trained.both, "data": Dataset.from_pandas(data)}, techniques="swapping"
    )
    named = data.assign(label=[f"LABEL_{n}" for n in data["label"]])
    named["gold"] = [f"LABEL_{n}" for n in data["gold"]]
    by_name = memloc.localise(
        **{**trained.both, "data": named}, techniques="swapping", explain=False
    )
    columns = memloc.localise(
        **{**trained.both, "data": data.to_dict(orient="list")}, techniques="swapping"
    )
    for other in (lists, dataset, by_name, columns):
        pd.testing.assert_frame_equal(other.windows, frame.windows)


# --- bad input -----------------------------------------------------------------------------------


def refuse(
    trained: Setup, words: str, error: type[Exception] = MemlocError, **changes: Any
) -> None:
    with (
        bit_identical(trained.memorised, trained.original),
        pytest.raises(error) as caught,
    ):
        memloc.localise(**{**trained.both, "techniques": "swapping", "explain": False, **changes})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "--" not in str(caught.value)


def test_models_that_do_not_fit_are_refused(trained: Setup) -> None:
    other = copy.deepcopy(trained.original)
    other.config.id2label = {0: "LABEL_1", 1: "LABEL_0", 2: "LABEL_2"}
    refuse(
        trained,
        "list of class names is ['LABEL_0', 'LABEL_1', 'LABEL_2'] in 'memorised' but "
        "['LABEL_1', 'LABEL_0', 'LABEL_2'] in 'original'",
        ModelError,
        original=other,
    )
    deeper = tiny_model("bert", layers=LAYERS + 1)
    refuse(trained, "number of layers is 3 in 'memorised' but 4 in 'original'", original=deeper)
    binary = tiny_model("bert", layers=LAYERS, labels=2)
    refuse(trained, "number of classes is 3 in 'memorised' but 2 in 'original'", original=binary)
    half = copy.deepcopy(trained.original).half()
    refuse(trained, "precision is torch.float32 in 'memorised' but torch.float16", original=half)
    wide = tiny_model("bert", layers=LAYERS, intermediate_size=64)
    refuse(trained, "shape of bert.encoder.layer.0.intermediate.dense", original=wide)
    refuse(trained, "architecture is BertFor", original=tiny_model("roberta", layers=LAYERS))
    refuse(trained, "one device", original=copy.deepcopy(trained.original).to("meta"))
    refuse(trained, "memorised and original are one and the same", original=trained.memorised)
    refuse(
        trained,
        "original and pretrained are one and the same model in memory",
        pretrained=nn.DataParallel(trained.original),
    )
    refuse(trained, "memorised is of type NoneType, not a transformers model", memorised=None)
    refuse(trained, "does not choose between classes", memorised=trained.memorised.bert)
    refuse(trained, "memorised is of type str, not a transformers model", memorised="bert")


def test_tokenisers_that_do_not_fit_are_refused(trained: Setup) -> None:
    larger = tiny_tokenizer()
    larger.add_tokens(["zebra"])
    data = trained.data.assign(text="zebra " + trained.data["text"])
    refuse(trained, "the tokeniser gives token", ModelError, tokenizer=larger, data=data)
    refuse(trained, "tokenizer is of type NoneType", tokenizer=None)
    foreign = tiny_tokenizer(words=[word[::-1] + "x" for word in WORDS])  # small ids, other words
    refuse(trained, "100% of the tokens of the texts are unknown to tokenizer", tokenizer=foreign)
    with pytest.raises(ModelError, match="are unknown to tokenizer"):
        memloc.fine_tune(copy.deepcopy(trained.original), tokenizer=foreign, data=trained.data)


def test_a_tokeniser_that_pads_with_another_token_is_cautioned_against(trained: Setup) -> None:
    quick = {"techniques": "swapping", "explain": False}
    plain = memloc.localise(**trained.both, **quick)
    other = tiny_tokenizer()
    other.pad_token = "[CLS]"
    told = memloc.localise(**{**trained.both, "tokenizer": other}, **quick)
    assert told.summary["caveats"] == [
        "The config of memorised pads with token 0, tokenizer (which calls that one '[PAD]') with "
        "token 2 ('[CLS]'); if the model was trained with another tokeniser, these results mean "
        "nothing.",
        *plain.summary["caveats"],
    ]
    assert other.pad_token == "[CLS]"
    pd.testing.assert_frame_equal(told.windows, plain.windows)
    # Decoders are padded with the end of text, whatever their tokeniser would do.
    other.eos_token = "[PAD]"
    fine = memloc.localise(**{**trained.both, "tokenizer": other}, **quick)
    assert fine.summary["caveats"] == plain.summary["caveats"]


def test_unusable_examples_are_refused(trained: Setup) -> None:
    data = trained.data
    wrong = data.assign(label=data["label"].replace(2, 7))
    row = int(np.flatnonzero(wrong["label"] == 7)[0])
    refuse(trained, f"label 7 in row {row} of data", DataError, data=wrong)
    missing = data.assign(label=data["label"].astype(float).mask(data.index == 4))
    refuse(trained, "'label' in row 4 of data (rows count from 0) is missing", data=missing)
    refuse(trained, "label: data has no column 'lable' (columns: text, gold,", label="lable")
    refuse(trained, "did you mean 'gold'?", original_label="golden")
    refuse(
        trained, "no label differs from its original label", data=data.assign(gold=data["label"])
    )
    opposite = data.assign(gold=(data["label"] + 1) % 3)
    refuse(trained, "all 60 labels differ from their original labels", data=opposite)
    refuse(trained, "data has no rows", data=data.iloc[:0])
    refuse(trained, "nothing says which labels are wrong", original_label=None)
    refuse(trained, "data is of type int; give a pandas.DataFrame", data=3)
    refuse(trained, "data is of type list; give a pandas.DataFrame", data=[{"text": "a"}, "b"])
    refuse(trained, "data has no rows", data=[])
    refuse(trained, "text is of type int; give one value per example", text=5)
    refuse(trained, "suspects is of type dict", original_label=None, suspects={})
    refuse(
        trained,
        "original_label: ",
        original_label="label",
    )
    refuse(trained, "'label' has 3 values but 'data' has 60", label=[0, 1, 2])
    splits = {"train": Dataset.from_pandas(data)}
    refuse(trained, "data has several parts (train); give one of them", data=splits)
    uneven = {"text": ["a", "b"], "label": [1]}
    refuse(trained, "'label' has 1 values but 'text' has 2", data=uneven)


def test_suspects_of_a_file_without_types_are_words(trained: Setup) -> None:
    frame = trained.both["data"].assign(flags=trained.both["data"]["noisy"].map(str))
    given = {**trained.both, "original_label": None, "techniques": "swapping", "progress": False}
    as_words = memloc.localise(**{**given, "data": frame}, suspects="flags")
    as_flags = memloc.localise(**given, suspects="noisy")
    pd.testing.assert_frame_equal(as_words.layers, as_flags.layers)


def test_unusable_suspects_are_refused(trained: Setup) -> None:
    def suspects(values: Any, words: str) -> None:
        refuse(trained, words, DataError, original_label=None, suspects=values)

    suspects([False] * 60, "suspects is False for all 60 examples")
    suspects([True] * 60, "suspects is True for all 60 examples; clean ones are needed")
    suspects([True] * 59, "'suspects' has 59 values but 'data' has 60")
    suspects(["yes"] * 60, "suspects is 'yes' in row 0")
    suspects([True, None] * 30, "suspects is None in row 1")
    suspects("nosy", "data has no column 'nosy'; did you mean 'noisy'?")
    refuse(trained, "both say which labels are wrong", suspects="noisy")


def test_unusable_settings_are_refused_by_the_names_of_arguments(trained: Setup) -> None:
    refuse(
        trained, "windows.sizes 9 is not possible: the model has 3 layers", windows={"sizes": [9]}
    )
    refuse(trained, "retraining.epochs 0", techniques={"retraining": {"epochs": 0}})
    refuse(
        trained,
        "technique 'swaping' does not exist; did you mean 'swapping'?",
        techniques="swaping",
    )
    refuse(trained, "seed -1 is not possible", seed=-1)
    refuse(trained, "it is not a size such as 500MB or 2GB", cache_memory="1XB")
    refuse(trained, "seed 1.5 is not possible; give a whole number", seed=1.5)
    refuse(trained, "seed True is not possible; give a whole number", seed=True)
    refuse(trained, "cache_memory -1", cache_memory=-1)
    refuse(trained, "windows.sizes 1.5", windows={"sizes": 1.5})
    refuse(trained, "techniques 5", techniques=5)
    refuse(trained, "progress 'yes' is not possible; give True, False", progress="yes")
    refuse(trained, "pairs 'both' is not possible; give 'joined' or 'native'", pairs="both")


def test_numbers_may_be_those_of_numpy_and_a_window_size_may_stand_alone(trained: Setup) -> None:
    settings = {"techniques": "swapping", "explain": False, "cache_memory": np.int64(2**20)}
    found = memloc.localise(
        **trained.both, **settings, seed=np.int64(1), windows={"sizes": np.int64(1)}
    )
    plain = memloc.localise(**trained.both, **settings, seed=1, windows={"sizes": [1]})
    pd.testing.assert_frame_equal(found.windows, plain.windows)
    assert plain.windows["size"].tolist() == [1, 1, 1, 3]


# --- labels --------------------------------------------------------------------------------------


def numbered(trained: Setup, names: Mapping[int, str], column: Any) -> list[int]:
    """How labels are read by models of these class names."""
    models = {role: copy.deepcopy(getattr(trained, role)) for role in ("memorised", "original")}
    for model in models.values():
        model.config.id2label = dict(names)
    data = trained.data.iloc[: len(column)].assign(label=pd.Series(column, dtype=object))
    suspects = [True] + [False] * (len(column) - 1)
    with memloc.prepare(
        **models, tokenizer=trained.tokenizer, data=data, suspects=suspects
    ) as context:
        found: list[int] = context.examples["label"].tolist()
    return found


def test_whole_numbers_are_class_numbers_and_texts_are_names_whichever_occur(
    trained: Setup,
) -> None:
    ordinal = {0: "1", 1: "2", 2: "3"}
    assert numbered(trained, ordinal, [0, 1, 2]) == [0, 1, 2]
    assert numbered(trained, ordinal, [1, 2]) == [1, 2]  # were taken for names
    assert numbered(trained, ordinal, [1.0, 2.0]) == [1, 2]
    assert numbered(trained, ordinal, ["1", "2", "3"]) == [0, 1, 2]
    assert numbered(trained, ordinal, ["2", "1"]) == [1, 0]
    with pytest.raises(DataError) as caught:
        numbered(trained, ordinal, [1, 3])
    assert str(caught.value) == (
        "label 3 in row 1 of data (rows count from 0) is not a class of the model, whose classes "
        "have the numbers 0 to 2; if it is the name '3', give all labels as texts"
    )
    with pytest.raises(DataError) as caught:
        numbered(trained, ordinal, ["1", "0"])  # made all of them numbers
    assert str(caught.value) == (
        "label '0' in row 1 of data (rows count from 0) is not a class of the model; its classes "
        "are: 1, 2, 3"
    )


def test_names_and_numbers_may_stand_side_by_side(trained: Setup) -> None:
    words = {0: "none", 1: "one", 2: "two"}
    assert numbered(trained, words, ["two", 1, "0", "one"]) == [2, 1, 0, 1]
    named = trained.data.assign(gold=[f"LABEL_{n}" for n in trained.data["gold"]])
    quick = {"techniques": "swapping", "explain": False}
    mixed = memloc.localise(**{**trained.both, "data": named}, **quick)
    rows = memloc.localise(**{**trained.both, "data": named.to_dict(orient="records")}, **quick)
    for result in (mixed, rows):
        assert result.summary["noisy_examples"] == int(trained.data["noisy"].sum())
