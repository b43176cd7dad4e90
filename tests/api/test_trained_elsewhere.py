"""Models that `transformers.Trainer` and `peft` trained, as they are."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from datasets import Dataset
from transformers import DataCollatorWithPadding, PreTrainedModel, Trainer, TrainingArguments

import memloc
from memloc.api.experiments import run
from memloc.config import Engine, Model
from memloc.engine.complete import complete_localisation
from memloc.errors import ModelError
from memloc.models.load import load_classifier
from memloc.models.names import resolve
from tests.api.conftest import QUICK, Setup, quick, untrained
from tests.api.test_localising import bit_identical, weights
from tests.tiny_models import tiny_model

pytestmark = pytest.mark.slow
peft = pytest.importorskip("peft", reason="peft is not installed: pip install peft")


def train_with_trainer(model: Any, setup: Setup, column: str, folder: Path) -> Trainer:
    rows = Dataset.from_dict(
        {"text": setup.data["text"].tolist(), "labels": setup.data[column].tolist()}
    )
    encoded = rows.map(lambda row: setup.tokenizer(row["text"]), remove_columns="text")
    arguments = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=15,
        learning_rate=5e-3,
        per_device_train_batch_size=8,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        seed=1,
    )
    collate = DataCollatorWithPadding(setup.tokenizer)
    trainer = Trainer(model, arguments, train_dataset=encoded, data_collator=collate)
    trainer.train()
    return trainer


@pytest.fixture(scope="module")
def adapted(trained: Setup, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """LoRA adapters in all layers, trained by the Trainer, with a head of their own."""
    config = peft.LoraConfig(
        task_type="SEQ_CLS",
        r=8,
        lora_alpha=32,
        lora_dropout=0.0,
        target_modules=["query", "value", "dense"],
        exclude_modules=[".*pooler.*"],
    )
    found = {}
    for role, column in (("memorised", "label"), ("original", "gold")):
        torch.manual_seed(0)
        model = peft.get_peft_model(untrained(), config)
        folder = tmp_path_factory.mktemp(role)
        found[role] = train_with_trainer(model, trained, column, folder)
    with pytest.raises(ModelError, match=r"memorised is of type Trainer.*give its \.model"):
        memloc.localise(**{**trained.both, "memorised": found["memorised"]})
    return {role: trainer.model.eval() for role, trainer in found.items()}


def merged(model: Any) -> PreTrainedModel:
    return copy.deepcopy(model).merge_and_unload()


def test_lora_models_give_the_same_merged_and_unmerged(
    trained: Setup, adapted: dict[str, Any]
) -> None:
    settings = {
        "pretrained": trained.pretrained,
        "techniques": ("swapping", "gradients", "probing", "shapley"),
        "explain": False,
        **QUICK,
    }
    with bit_identical(*(model.get_base_model() for model in adapted.values())):
        unmerged = memloc.localise(**{**trained.both, **adapted}, **settings)
    whole = {role: merged(model) for role, model in adapted.items()}
    with bit_identical(*whole.values()):
        merged_result = memloc.localise(**{**trained.both, **whole}, **settings)
    assert unmerged.summary["memorised_share"] > 0.8
    for result in (unmerged, merged_result):
        assert result.summary["failures"] == []
        assert result.summary["layers"] == 3
    same = (
        unmerged.table("predictions")["predicted"]
        == merged_result.table("predictions")["predicted"]
    )
    assert same.mean() > 0.995  # rounding may decide between two classes once in a while
    for technique in ("swapping", "gradients", "shapley"):
        assert weights(unmerged, technique) == pytest.approx(
            weights(merged_result, technique), abs=0.02
        )


def test_lora_layers_can_be_retrained_and_a_merged_twin_swapped(
    trained: Setup, adapted: dict[str, Any]
) -> None:
    model = adapted["memorised"]
    given = {**trained.both, "memorised": model, "original": merged(adapted["original"])}
    with bit_identical(model.get_base_model()):
        result = memloc.localise(
            **given,
            pretrained=trained.pretrained,
            explain=False,
            **quick("swapping", "retraining", "weight-change"),
        )
    assert result.techniques == ("swapping", "retraining")
    assert result.skipped["weight-change"].endswith("use merge_and_unload()")
    whole = memloc.localise(
        **{**trained.both, "memorised": merged(model)},
        pretrained=trained.pretrained,
        explain=False,
        **quick("retraining"),
    )
    # A window that is reset has no adapters, so the same is trained in both.
    alike = result.windows[result.windows["technique"] == "retraining"].reset_index(drop=True)
    pd.testing.assert_frame_equal(alike, whole.windows, atol=0.1, rtol=0)


@pytest.fixture(scope="module")
def saved(
    trained: Setup, adapted: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """Folders of the adapters as `peft` saves them, and of the model that they belong to."""
    folder = tmp_path_factory.mktemp("adapters")
    trained.pretrained.save_pretrained(folder / "pretrained")
    trained.tokenizer.save_pretrained(folder / "pretrained")
    for role, model in adapted.items():
        model.peft_config["default"].base_model_name_or_path = str(folder / "pretrained")
        model.save_pretrained(folder / role)
    return {role: str(folder / role) for role in ("memorised", "original", "pretrained")}


def test_folders_of_adapters_give_the_numbers_of_the_models_in_memory(
    trained: Setup, adapted: dict[str, Any], saved: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "data.csv"
    trained.data.rename(columns={"gold": "original_label"}).to_csv(file, index=False)
    asked = {"techniques": ["swapping", "weight-change"], "explain": False}
    given = complete_localisation({**saved, "data": {"file": file}, **asked})
    found = run(given, Engine(workers=1), out=tmp_path / "out")
    whole = {role: merged(model) for role, model in adapted.items()}
    whole["pretrained"] = trained.pretrained
    expected = memloc.localise(**{**trained.both, **whole}, **asked)
    for technique in expected.techniques:
        assert weights(found, technique) == pytest.approx(weights(expected, technique), abs=1e-6)
    assert found.summary["memorised_share"] == expected.summary["memorised_share"]


def test_an_adapter_can_be_trained_further_with_a_new_head(saved: dict[str, str]) -> None:
    model = Model(name=saved["memorised"])
    found = load_classifier(resolve(model), model, n_labels=5)
    assert found.blocks.model.config.num_labels == 5
    assert "classifier.weight" in found.fresh


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"base_model_name_or_path": "/no/such/model"}, "is an adapter, and its model is missing"),
        ({"base_model_name_or_path": None}, "is an adapter, and its model is missing"),
        ({}, "does not say which model the adapter belongs to"),
        ([], "does not say which model the adapter belongs to"),
    ],
)
def test_an_adapter_without_its_model_is_refused_in_words(
    config: Any, words: str, tmp_path: Path
) -> None:
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=words):
        resolve(Model(name=str(tmp_path)))


def test_a_damaged_adapter_is_refused_in_words(saved: dict[str, str], tmp_path: Path) -> None:
    shutil.copytree(saved["memorised"], tmp_path / "adapter")
    (tmp_path / "adapter/adapter_model.safetensors").write_bytes(b"nothing")
    model = Model(name=str(tmp_path / "adapter"))
    with pytest.raises(ModelError, match="the adapter of 'adapter' could not be loaded"):
        load_classifier(resolve(model), model, n_labels=None)


def test_the_folder_of_a_learned_prompt_is_refused_in_words(
    saved: dict[str, str], tmp_path: Path
) -> None:
    config = peft.PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=2)
    config.base_model_name_or_path = saved["pretrained"]
    prompted = peft.get_peft_model(tiny_model("bert", layers=3), config)
    prompted.peft_config["default"].base_model_name_or_path = saved["pretrained"]
    prompted.save_pretrained(tmp_path)
    model = Model(name=str(tmp_path))
    with pytest.raises(ModelError, match=r"has learned a prompt"):
        load_classifier(resolve(model), model, n_labels=None)


def test_learned_prompts_are_refused_in_words(trained: Setup) -> None:
    config = peft.PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=2)
    model = peft.get_peft_model(tiny_model("bert", layers=3), config)
    with pytest.raises(ModelError, match=r"has learned a prompt .* which is not in its layers"):
        memloc.localise(**{**trained.both, "memorised": model})
