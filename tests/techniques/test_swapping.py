from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from memloc.api.experiments import localise_folders
from memloc.config import Model
from memloc.data.encode import encode
from memloc.engine.complete import complete_localisation
from memloc.models.blocks import BlockModel
from memloc.models.load import TextCodec, load_classifier
from memloc.models.names import resolve
from memloc.techniques.swapping import expected_block_passes, swap_all_windows
from tests.conftest import labelled_rows
from tests.oracles.swapping import swap_all_windows_plainly
from tests.tiny_models import ARCHITECTURES, save_pair, tiny_model, tiny_tokenizer


def plain_predictions(
    folders: tuple[Path, Path], prefix: str, texts: list[str]
) -> dict[tuple[int, int], list[int]]:
    models = [
        AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32)
        for folder in folders
    ]
    tokenizer = AutoTokenizer.from_pretrained(folders[0])
    return swap_all_windows_plainly(models[0], models[1], prefix, tokenizer, texts)


def stack_prefix(folder: Path) -> str:
    config = Model(name=str(folder))
    model = load_classifier(resolve(config), config, n_labels=None).blocks
    return f"{model.model.base_model_prefix}.{model.stack_path}"


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_localise_predicts_like_plain_mixed_models(architecture: str, tmp_path: Path) -> None:
    folders = save_pair(tmp_path, architecture, layers=4)
    rows = labelled_rows(24)
    rows.to_csv(tmp_path / "data.csv", index=False)
    given = {"memorised": str(folders[0]), "original": str(folders[1])}
    settings = complete_localisation({**given, "data": {"file": tmp_path / "data.csv"}})
    result = localise_folders(settings)
    summary, tables = result.summary, result.tables
    expected = plain_predictions(folders, stack_prefix(folders[0]), rows["text"].tolist())
    unmodified = expected.pop((0, 0))
    found = tables["predictions"]
    assert len(found) == len(rows) * len(expected)
    for (first, last), predictions in expected.items():
        window = found[(found["first_layer"] == first) & (found["last_layer"] == last)]
        assert window["example"].tolist() == list(range(len(rows)))
        assert window["predicted"].tolist() == predictions
    # Tiny random models still differ between windows, or the comparison would be empty.
    assert len({tuple(p) for p in expected.values()}) > 2

    noisy = (rows["label"] != rows["original_label"]).to_numpy()
    labels = rows["label"].to_numpy()
    for row in tables["windows"].itertuples():
        wrong = np.array(expected[row.first_layer, row.last_layer]) != labels
        assert row.noisy_error == pytest.approx(wrong[noisy].mean())
        assert row.clean_error == pytest.approx(wrong[~noisy].mean())
    assert summary["memorised_examples"] == int((np.array(unmodified) == labels)[noisy].sum())


def test_pairs_are_encoded_as_the_tokeniser_does(tmp_path: Path) -> None:
    folders = save_pair(tmp_path, "bert", layers=3)
    rows = labelled_rows(16)
    rows["text_pair"] = rows["text"].tolist()[::-1]
    rows.to_json(tmp_path / "data.jsonl", orient="records", lines=True)
    given = {"memorised": str(folders[0]), "original": str(folders[1])}
    settings = complete_localisation(
        {**given, "model": {"pair_format": "native"}, "data": {"file": tmp_path / "data.jsonl"}}
    )
    tables = localise_folders(settings).tables
    models = [AutoModelForSequenceClassification.from_pretrained(folder) for folder in folders]
    texts = list(zip(rows["text"], rows["text_pair"], strict=True))
    expected = swap_all_windows_plainly(
        models[0], models[1], "bert.encoder.layer", tiny_tokenizer(), texts
    )
    for (first, last), window in tables["predictions"].groupby(["first_layer", "last_layer"]):
        assert window["predicted"].tolist() == expected[first, last]


def swap(architecture: str, layers: int, texts: list[str], **changes):
    models = [
        BlockModel(tiny_model(architecture, layers=layers, seed=seed, **changes)) for seed in (0, 1)
    ]
    encoded = encode(pd.DataFrame({"text": texts}), TextCodec(tiny_tokenizer(), "|", 0, 128))
    return models, encoded, swap_all_windows(models[0], models[1], encoded)


@pytest.mark.parametrize("layers", [1, 2, 6, 12, 24])
def test_block_passes_are_as_derived(layers: int, texts: list[str]) -> None:
    _, _, result = swap("bert", layers, texts)
    assert result.block_passes == expected_block_passes(layers) * result.batches
    assert len(result.windows) == layers * (layers + 1) // 2


def test_twelve_layers_cost_364_passes_and_the_unmodified_model() -> None:
    assert expected_block_passes(12) == 364 + 12


@pytest.mark.parametrize("layers", [2, 12])
@pytest.mark.parametrize("architecture", ["bert", "opt", "gpt_neox", "gpt_neo", "llama"])
def test_many_layers_and_long_stacks_agree_with_plain_models(
    architecture: str, layers: int, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A small limit cuts the stacked states into many parts.
    monkeypatch.setattr("memloc.models.mixing.TOKENS_PER_PASS", {"cpu": 100})
    models, _, result = swap(architecture, layers, texts)
    prefix = f"{models[0].model.base_model_prefix}.{models[0].stack_path}"
    expected = swap_all_windows_plainly(
        models[0].model, models[1].model, prefix, tiny_tokenizer(), texts
    )
    assert result.unmodified.tolist() == expected[0, 0]
    for window, predicted in zip(result.windows, result.predicted, strict=True):
        assert predicted.tolist() == expected[tuple(window)]


def test_a_mean_pooling_head_gets_whole_states(texts: list[str]) -> None:
    models, _, result = swap("modernbert", 3, texts, classifier_pooling="mean")
    assert models[0].pooling == "other"
    expected = swap_all_windows_plainly(
        models[0].model, models[1].model, "model.layers", tiny_tokenizer(), texts
    )
    for window, predicted in zip(result.windows, result.predicted, strict=True):
        assert predicted.tolist() == expected[tuple(window)]


def test_a_model_that_cannot_resume_takes_the_slow_path_with_the_same_answer(
    texts: list[str],
) -> None:
    settings = {"layers_name": "num_layers", "d_model": 32, "d_kv": 8, "d_ff": 48, "num_heads": 4}
    models = [
        BlockModel(
            tiny_model("t5", layers=3, seed=seed, decoder_start_token_id=0, **settings),
            blocks="encoder.block",
        )
        for seed in (0, 1)
    ]
    assert not models[0].can_resume
    encoded = encode(pd.DataFrame({"text": texts}), TextCodec(tiny_tokenizer(), "|", 0, 128))
    result = swap_all_windows(models[0], models[1], encoded)
    expected = swap_all_windows_plainly(
        models[0].model, models[1].model, "transformer.encoder.block", tiny_tokenizer(), texts
    )
    for window, predicted in zip(result.windows, result.predicted, strict=True):
        assert predicted.tolist() == expected[tuple(window)]


def test_both_models_are_left_as_they_were(texts: list[str]) -> None:
    models = [tiny_model("gpt2", seed=seed).train() for seed in (0, 1)]
    before = [{k: v.clone() for k, v in m.state_dict().items()} for m in models]
    blocks = [BlockModel(model) for model in models]
    encoded = encode(pd.DataFrame({"text": texts}), TextCodec(tiny_tokenizer(), "|", 0, 128))
    swap_all_windows(blocks[0], blocks[1], encoded)
    for model, state in zip(models, before, strict=True):
        assert all(module.training for module in model.modules())
        assert all(torch.equal(state[k], v) for k, v in model.state_dict().items())
