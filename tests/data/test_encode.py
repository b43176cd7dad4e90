"""Texts that are too long: the longest part of an example is cut, and never a part lost."""

from __future__ import annotations

from itertools import product

import pandas as pd
import pytest
from tokenizers import ByteLevelBPETokenizer
from transformers import ByT5Tokenizer, PreTrainedTokenizerFast

from memloc.data.encode import TextCodec, encode, longest_first
from tests.tiny_models import WORDS, tiny_tokenizer


def bpe_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level, as those of OPT and GPT: a token takes the space before it along."""
    trained = ByteLevelBPETokenizer()
    texts = [" ".join(WORDS), "Überraschung ist schön", "naïve café"]
    trained.train_from_iterator(texts, vocab_size=320, show_progress=False)
    return PreTrainedTokenizerFast(tokenizer_object=trained._tokenizer, eos_token="a")


def plain_cut(codec: TextCodec, parts: list[str]) -> list[int]:
    """Token ids, where the end of the longest part is taken away token by token."""
    text, place, spans = "", [], []
    for part in parts:
        text += f" {codec.separator} " if text else ""
        spans.append((len(text), len(text) + len(part)))
        text += part
    whole = codec.tokenizer(text, return_offsets_mapping=True)
    for first, last in whole["offset_mapping"]:
        inside = [i for i, (a, b) in enumerate(spans) if first < last and a < last <= b]
        place.append(inside[0] if inside else None)
    tokens = list(zip(whole["input_ids"], place, strict=True))
    while len(tokens) > codec.max_tokens:
        counts = [sum(part == i for _, part in tokens) for i in range(len(parts))]
        longest = max(range(len(parts)), key=lambda i: (counts[i], i))
        last = max(at for at, (_, part) in enumerate(tokens) if part == longest)
        del tokens[last]
    return [token for token, _ in tokens]


@pytest.mark.parametrize("limit", [8, 12, 20])
@pytest.mark.parametrize("columns", [("text", "text_pair"), ("word", "text", "text_pair")])
@pytest.mark.parametrize("make", [tiny_tokenizer, bpe_tokenizer])
def test_the_longest_part_is_cut_first(make, columns: tuple[str, ...], limit: int) -> None:
    codec = TextCodec(make(), "|", 0, limit)
    words = [*WORDS[:6], "schön", "café"]
    texts = [" ".join((words * 3)[:length]) for length in (1, 3, 7, 15)]
    table = pd.DataFrame(product(texts, repeat=len(columns)), columns=list(columns))
    found = encode(table, codec)
    whole = [
        len(row["input_ids"]) for row in encode(table, TextCodec(codec.tokenizer, "|", 0, 999)).rows
    ]
    assert found.cut == sum(length > limit for length in whole) > 0
    for parts, row in zip(table.itertuples(index=False), found.rows, strict=True):
        assert row["input_ids"] == plain_cut(codec, list(parts))
        assert {len(values) for values in row.values()} == {min(limit, len(row["input_ids"]))}


def test_a_short_second_text_is_kept_whole() -> None:
    codec = TextCodec(tiny_tokenizer(), "[SEP]", 0, 10)
    table = pd.DataFrame({"text": ["the city " * 20], "text_pair": ["a king"]})
    words = codec.tokenizer.convert_ids_to_tokens(encode(table, codec).rows[0]["input_ids"])
    assert words == ["[CLS]", *["the", "city"] * 2, "the", "[SEP]", "a", "king", "[SEP]"]
    native = encode(table, codec, "native")
    assert native.cut == 1
    assert codec.tokenizer.convert_ids_to_tokens(native.rows[0]["input_ids"]) == words


def test_tokenisers_without_offsets_cut_the_longest_part_too() -> None:
    codec = TextCodec(ByT5Tokenizer(), "|", 0, 20)
    table = pd.DataFrame({"text": ["abcdefghijklmnopqrstuvwxyz"], "text_pair": ["king"]})
    (row,) = encode(table, codec).rows
    assert codec.tokenizer.decode(row["input_ids"]) == "abcdefghijkl | king</s>"
    assert len(row["input_ids"]) == 20


def test_single_texts_are_cut_at_their_end_and_counted() -> None:
    codec = TextCodec(tiny_tokenizer(), "|", 0, 6)
    table = pd.DataFrame({"text": ["the city the city", "the city the city a", "the"]})
    found = encode(table, codec)
    assert found.cut == 1  # the first fills the limit, no more
    assert found.lengths.tolist() == [6, 6, 3]


def test_a_limit_below_the_separators_leaves_something() -> None:
    codec = TextCodec(tiny_tokenizer(), "|", 0, 4)
    table = pd.DataFrame({"word": ["king"], "text": ["the city"], "text_pair": ["a king"]})
    found = encode(table, codec)
    assert found.lengths.tolist() == [4]
    assert found.cut == 1


@pytest.mark.parametrize(
    ("lengths", "room", "kept"),
    [((2, 9), 6, [2, 4]), ((9, 2), 6, [4, 2]), ((5, 5), 7, [4, 3]), ((1, 8, 9), 8, [1, 4, 3])],
)
def test_room_goes_to_the_shortest_parts_first(
    lengths: tuple[int, ...], room: int, kept: list[int]
) -> None:
    assert longest_first(lengths, room) == kept
