"""Users' own files: what can be read, what is guessed, and what is said about broken ones."""

import gzip
import json

import pandas as pd
import pytest

from memloc.config import Data
from memloc.data.files import load_file, read_labelled_file, read_table
from memloc.errors import DataError

ROWS = [("good film", "pos"), ("bad film", "neg"), ("fine", "pos"), ("awful", "neg")]


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def csv_of(rows, header="text,label"):
    return "\n".join([header, *(",".join(str(cell) for cell in row) for row in rows)]) + "\n"


def jsonl_of(records):
    return "".join(json.dumps(record) + "\n" for record in records)


def records(rows=ROWS):
    return [{"text": text, "label": label} for text, label in rows]


def refusal(path, **columns):
    """The message with which a file is refused; always one sentence."""
    with pytest.raises(DataError) as caught:
        read_labelled_file(path, **columns)
    message = str(caught.value)
    assert "\n" not in message
    return message


def task_refusal(path, **settings):
    with pytest.raises(DataError) as caught:
        load_file(Data(task=str(path), **settings))
    return str(caught.value)


def many(labels, each=10):
    return [(f"{label} text {i}", label) for i in range(each) for label in labels]


# --- formats


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.ndjson", "a.json", "a.CSV"])
def test_every_text_format_gives_the_same_examples(tmp_path, name):
    if name.lower().endswith("csv"):
        content = csv_of(ROWS)
    elif name.endswith("tsv"):
        content = csv_of(ROWS).replace(",", "\t")
    else:
        content = jsonl_of(records())
    table = read_labelled_file(write(tmp_path / name, content))
    assert list(table.columns) == ["example", "text", "label"]
    assert list(zip(table.text, table.label, strict=True)) == ROWS
    assert list(table.example) == [0, 1, 2, 3]


def test_parquet_is_read_with_its_types(tmp_path):
    path = tmp_path / "a.parquet"
    pd.DataFrame({"text": ["a", "b"], "label": [0, 1]}).to_parquet(path)
    assert list(read_labelled_file(path).label) == ["0", "1"]


def test_compressed_text_is_read(tmp_path):
    for name, content in [("a.csv.gz", csv_of(ROWS)), ("b.jsonl.gz", jsonl_of(records()))]:
        path = write(tmp_path / name, gzip.compress(content.encode()))
        assert len(read_labelled_file(path)) == 4


def test_a_json_array_is_read(tmp_path):
    path = write(tmp_path / "a.json", json.dumps(records(), indent=1))
    assert len(read_labelled_file(path)) == 4


def test_quoted_commas_newlines_tabs_and_quotation_marks_survive(tmp_path):
    text = 'He said "hi",\r\nthen\tleft\nagain'
    frame = pd.DataFrame({"text": [text, "plain"], "label": ["a", "b"]})
    for name, separator in [("a.csv", ","), ("a.tsv", "\t")]:
        frame.to_csv(tmp_path / name, index=False, sep=separator, lineterminator="\r\n")
        assert list(read_labelled_file(tmp_path / name).text) == [text, "plain"]


def test_an_index_column_and_blank_lines_do_no_harm(tmp_path):
    path = write(tmp_path / "a.csv", ",text,label\r\n0,a,x\r\n\r\n1,b,y\r\n")
    table = read_labelled_file(path)
    assert list(table.text) == ["a", "b"]
    assert list(table.example) == [0, 1]


def test_words_for_nothing_stay_strings(tmp_path):
    words = ["NA", "null", "None", "nan", "N/A"]
    path = write(tmp_path / "a.csv", csv_of([(word, word) for word in words]))
    table = read_labelled_file(path)
    assert list(table.text) == list(table.label) == words


def test_json_strings_may_hold_unicode_line_separators(tmp_path):
    content = '{"text": "one\u2028two", "label": "a"}\n{"text": "\u0085x", "label": "b"}\n'
    table = read_labelled_file(write(tmp_path / "a.jsonl", content))
    assert list(table.text) == ["one\u2028two", "\u0085x"]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_byte_order_marks_are_understood(tmp_path, encoding):
    path = write(tmp_path / "a.csv", csv_of([("café", "a"), ("thé", "b")]).encode(encoding))
    assert list(read_labelled_file(path).text) == ["café", "thé"]


def test_a_text_longer_than_the_csv_module_allows_is_read(tmp_path):
    path = write(tmp_path / "a.csv", csv_of([("x" * 200_000, "a"), ("y", "b")]))
    assert len(read_labelled_file(path).text[0]) == 200_000


def test_a_table_survives_a_round_trip_through_parquet(tmp_path):
    table = read_labelled_file(write(tmp_path / "a.csv", csv_of(ROWS)))
    table.to_parquet(tmp_path / "b.parquet")
    assert pd.read_parquet(tmp_path / "b.parquet").equals(table)


# --- broken files


def test_a_missing_file_suggests_a_near_name(tmp_path):
    write(tmp_path / "reviews.csv", csv_of(ROWS))
    message = refusal(tmp_path / "review.csv")
    assert message == f"there is no file {tmp_path}/review.csv; did you mean 'reviews.csv'?"
    assert refusal(tmp_path / "nowhere" / "x.csv").endswith("check the path")


def test_a_folder_is_refused(tmp_path):
    assert "is a folder; name one file in it" in refusal(tmp_path)


def test_an_unknown_ending_is_refused(tmp_path):
    for name in ["a.xlsx", "a", "a.parquet.gz"]:
        assert ".csv, .tsv, .jsonl" in refusal(write(tmp_path / name, "text,label\n"))


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.json"])
@pytest.mark.parametrize("content", ["", "  \n\n", b"\xef\xbb\xbf"])
def test_an_empty_file_is_refused(tmp_path, name, content):
    assert "is empty" in refusal(write(tmp_path / name, content))


def test_a_header_without_rows_is_refused(tmp_path):
    assert "has no rows" in refusal(write(tmp_path / "a.csv", "text,label\n"))
    pd.DataFrame({"text": [], "label": []}).to_parquet(tmp_path / "a.parquet")
    assert "has no rows" in refusal(tmp_path / "a.parquet")
    assert "has no rows" in refusal(write(tmp_path / "a.json", "[]"))


def test_text_that_is_not_utf8_is_refused_with_its_place(tmp_path):
    path = write(tmp_path / "a.csv", "text,label\nok,a\ncafé,b\n".encode("latin1"))
    message = refusal(path)
    assert "is not UTF-8 text (byte 0xe9 at position 19, line 3)" in message
    assert "iconv" in message


def test_garbage_is_not_parquet_or_gzip(tmp_path):
    assert "not a valid Parquet file" in refusal(write(tmp_path / "a.parquet", b"\x00\x01" * 50))
    assert "not a valid Parquet file" in refusal(write(tmp_path / "b.parquet", b""))
    assert "not a valid gzip file" in refusal(write(tmp_path / "a.csv.gz", csv_of(ROWS)))
    cut = gzip.compress(csv_of(ROWS).encode())[:-12]
    assert "not a valid gzip file" in refusal(write(tmp_path / "b.csv.gz", cut))


def test_broken_json_is_refused_with_its_line(tmp_path):
    path = write(tmp_path / "a.jsonl", jsonl_of(records()) + '\n{"text": "x", "label"\n')
    assert "has broken JSON in line 6" in refusal(path)
    assert "has broken JSON in line 2" in refusal(write(tmp_path / "a.json", '[{"text": "a"},\n{]'))


@pytest.mark.parametrize("line", ['"text"', "[1, 2]", "3", "null"])
def test_a_json_line_that_is_no_object_is_refused(tmp_path, line):
    message = refusal(write(tmp_path / "a.jsonl", jsonl_of(records()) + line + "\n"))
    assert "in line 5 instead of an object" in message


def test_a_row_with_too_many_or_too_few_fields_is_refused(tmp_path):
    path = write(tmp_path / "a.csv", "text,label\nfine,a\nwell, well,b\n")
    assert "has 3 fields in line 3 but 2 in its header" in refusal(path)
    assert "has 1 fields in line 2" in refusal(write(tmp_path / "b.csv", "text,label\nfine\n"))


def test_an_unclosed_quotation_mark_is_refused_instead_of_swallowing_rows(tmp_path):
    path = write(tmp_path / "a.csv", 'text,label\nfine,a\n"never closed,b\nlost,c\n')
    assert "misplaced quotation mark in the record from line 3 on" in refusal(path)


@pytest.mark.parametrize("separator", [";", "|", "\t"])
def test_a_csv_file_with_another_separator_is_read(tmp_path, separator):
    path = write(tmp_path / "a.csv", csv_of(ROWS).replace(",", separator))
    assert read_labelled_file(path).equals(
        read_labelled_file(write(tmp_path / "b.csv", csv_of(ROWS)))
    )


def test_duplicate_columns_are_refused(tmp_path):
    path = write(tmp_path / "a.csv", "text,label,text\na,b,c\n")
    assert "more than one column 'text'" in refusal(path)


# --- columns


@pytest.mark.parametrize("text", ["text", "Sentence", "REVIEW", "content", "tweet", "comment"])
@pytest.mark.parametrize(
    "label", ["label", "Labels", "class", "category", "target", "y", "Sentiment"]
)
def test_usual_column_names_are_guessed_in_any_case(tmp_path, text, label):
    path = write(tmp_path / "a.csv", csv_of([(1, *row) for row in ROWS], f"id,{text},{label}"))
    assert list(read_labelled_file(path).label) == ["pos", "neg", "pos", "neg"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("text", "text_pair"),
        ("sentence1", "sentence2"),
        ("premise", "hypothesis"),
        ("question1", "question2"),
        ("Question", "Passage"),
    ],
)
def test_unmistakable_pairs_are_guessed(tmp_path, first, second):
    path = write(tmp_path / "a.csv", csv_of([("b", "a", "x")], f"{second},{first},label"))
    table = read_labelled_file(path)
    assert (table.text[0], table.text_pair[0]) == ("a", "b")


def test_other_text_columns_are_not_taken_for_a_pair(tmp_path):
    path = write(tmp_path / "a.csv", csv_of([("a", "b", "x")], "text,title,label"))
    assert list(read_labelled_file(path).columns) == ["example", "text", "label"]


def test_naming_the_text_alone_leaves_the_pair_out_and_naming_both_takes_both(tmp_path):
    path = write(tmp_path / "a.csv", csv_of([("a", "b", "x")], "sentence1,sentence2,label"))
    assert "text_pair" not in read_labelled_file(path, text_column="sentence1")
    table = read_labelled_file(path, text_column="sentence2", pair_column="sentence1")
    assert (table.text[0], table.text_pair[0]) == ("b", "a")


def test_a_misspelt_column_gets_a_suggestion_and_the_list(tmp_path):
    path = write(tmp_path / "a.csv", csv_of(ROWS, "body_text,label"))
    message = refusal(path, text_column="body_txt")
    assert message == (
        f"data.text_column: {path} has no column 'body_txt' (columns: body_text, label); "
        "did you mean 'body_text'?"
    )
    message = refusal(path, text_column="zzz")
    assert message.endswith("choose one of: body_text, label")
    assert len(read_labelled_file(path, text_column="BODY_TEXT")) == 4


def test_columns_that_cannot_be_guessed_name_the_option(tmp_path):
    path = write(tmp_path / "a.csv", csv_of(ROWS, "foo,bar"))
    assert "has no column that looks like the text (columns: foo, bar)" in refusal(path)
    assert refusal(path, text_column="foo").startswith("data.label_column: ")


def test_one_column_cannot_serve_twice(tmp_path):
    path = write(tmp_path / "a.csv", csv_of(ROWS))
    assert "cannot be both the text and the label" in refusal(path, label_column="text")
    assert "cannot be both the text and the pair" in refusal(path, pair_column="text")
    message = refusal(path, original_label_column="label")
    assert "cannot be both the label and the original label" in message


# --- cells


@pytest.mark.parametrize(
    ("cell", "fault"),
    [
        ("", "is empty"),
        (" \t ", "is empty"),
        (None, "is missing"),
        (3, "is 3, which is not a text"),
        (["a"], "is ['a'], which is not a text"),
        ("\ud800", "holds half a character"),
    ],
)
def test_a_text_that_is_none_is_refused_with_its_row(tmp_path, cell, fault):
    path = write(tmp_path / "a.jsonl", jsonl_of([*records(), {"text": cell, "label": "pos"}]))
    assert f"'text' in row 4 of {path} (rows count from 0) {fault}" in refusal(path)


@pytest.mark.parametrize(
    ("cell", "fault"),
    [
        (None, "is missing"),
        (float("nan"), "is missing"),
        ("", "is empty"),
        (0.5, "is 0.5, which is not a class"),
        ([1], "is [1], which is not a class"),
    ],
)
def test_a_label_that_is_none_is_refused_with_its_row(tmp_path, cell, fault):
    path = write(tmp_path / "a.jsonl", jsonl_of([{"text": "x", "label": cell}, *records()]))
    assert f"'label' in row 0 of {path} (rows count from 0) {fault}" in refusal(path)


def test_an_absent_key_and_an_empty_cell_are_missing_labels(tmp_path):
    path = write(tmp_path / "a.jsonl", jsonl_of([*records(), {"text": "x"}]))
    assert "'label' in row 4" in refusal(path)
    assert "'label' in row 1" in refusal(write(tmp_path / "a.csv", "text,label\na,x\nb,\n"))


def test_labels_of_any_kind_become_strings(tmp_path):
    def labels(values):
        path = tmp_path / "a.jsonl"
        write(path, jsonl_of([{"text": "x", "label": value} for value in values]))
        return list(read_labelled_file(path).label)

    assert labels([1, 0]) == ["1", "0"]
    assert labels([1.0, 0.0]) == ["1", "0"]
    assert labels([True, False]) == ["True", "False"]
    assert labels([" a", "b "]) == ["a", "b"]
    path = write(tmp_path / "a.csv", csv_of([("a", "1.0"), ("b", "-2.0"), ("c", "3")]))
    assert list(read_labelled_file(path).label) == ["1", "-2", "3"]
    path = write(tmp_path / "b.csv", csv_of([("a", "1.0"), ("b", "1.5")]))
    assert list(read_labelled_file(path).label) == ["1.0", "1.5"]


# --- tasks


def test_labels_are_sorted_as_numbers_or_as_words(tmp_path):
    numbers = write(tmp_path / "n.csv", csv_of(many([10, 9, -1])))
    words = write(tmp_path / "w.csv", csv_of(many(["b", "a", "10"])))
    assert load_file(Data(task=str(numbers))).labels == ("-1", "9", "10")
    assert load_file(Data(task=str(words))).labels == ("10", "a", "b")


def test_label_names_beside_integers_are_used_when_they_fit(tmp_path):
    rows = [(text, label, ["no", "yes"][label]) for text, label in many([1, 0])]
    good = write(tmp_path / "g.csv", csv_of(rows, "text,label,label_name"))
    rows[3] = (*rows[3][:2], "yes")
    bad = write(tmp_path / "b.csv", csv_of(rows, "text,label,label_name"))
    assert load_file(Data(task=str(good))).labels == ("no", "yes")
    assert load_file(Data(task=str(bad))).labels == ("0", "1")


def test_a_fifth_of_every_class_is_set_aside_for_validation(tmp_path):
    path = write(tmp_path / "my.reviews.csv", csv_of([*many("ab", 40), *many("c", 10)]))
    task = load_file(Data(task=str(path)))
    assert (task.name, task.category) == ("my.reviews", "file")
    assert task.validation.label.value_counts().to_dict() == {0: 8, 1: 8, 2: 2}
    assert sorted([*task.train.example, *task.validation.example]) == list(range(90))
    assert task.train.example.is_monotonic_increasing
    lines = path.read_text().splitlines()[1:]
    assert all(
        lines[example].startswith(text + ",")
        for example, text in zip(task.train.example, task.train.text, strict=True)
    )


def test_the_data_seed_does_not_change_the_split(tmp_path):
    path = write(tmp_path / "a.csv", csv_of(many("ab", 40)))
    first, second = (load_file(Data(task=str(path), seed=seed)) for seed in (1, 2))
    assert first.train.equals(second.train)


def test_a_rare_class_keeps_two_training_examples(tmp_path):
    path = write(tmp_path / "a.csv", csv_of([*many("a", 40), *many("b", 2)]))
    task = load_file(Data(task=str(path)))
    assert (task.train.label == 1).sum() == 2


def test_too_few_examples_for_a_split_are_refused(tmp_path):
    path = write(tmp_path / "a.csv", csv_of(ROWS))
    assert "too few examples (4) to set some aside" in task_refusal(path)


def test_a_validation_file_is_used_with_the_labels_of_training(tmp_path):
    train = write(tmp_path / "a.csv", csv_of(many("ab")))
    held = write(tmp_path / "v.jsonl", jsonl_of([{"text": "new", "label": "b"}]))
    task = load_file(Data(task=str(train), validation=held))
    assert len(task.train) == 20
    assert task.validation.to_dict("records") == [{"example": 0, "text": "new", "label": 1}]


def test_a_validation_label_unknown_in_training_is_named(tmp_path):
    train = write(tmp_path / "a.csv", csv_of(many(["good", "bad"])))
    held = write(tmp_path / "v.csv", csv_of([("new", "good"), ("newer", "goood")]))
    message = task_refusal(train, validation=held)
    assert f"the label 'goood' in row 1 of {held}" in message
    assert "did you mean 'good'?" in message


def test_a_validation_file_without_the_second_text_is_refused(tmp_path):
    rows = [(text, text, label) for text, label in many("ab")]
    train = write(tmp_path / "a.csv", csv_of(rows, "text,text_pair,label"))
    held = write(tmp_path / "v.csv", csv_of(many("ab")))
    assert f"{held} has one text per example but {train} has two" in task_refusal(
        train, validation=held
    )


def test_one_class_is_refused(tmp_path):
    path = write(tmp_path / "a.csv", csv_of(many("a")))
    assert "has one class only, 'a'" in task_refusal(path)


def test_a_class_with_a_single_example_is_named(tmp_path):
    path = write(tmp_path / "a.csv", csv_of([*many("ab"), ("lonely", "c")]))
    assert "the class 'c' has a single example" in task_refusal(path)
    path = write(tmp_path / "b.csv", csv_of([*many("ab"), ("lonely", "c"), ("too", "d")]))
    assert "the class 'c' (one of 2 such classes) has a single" in task_refusal(path)


def test_original_labels_are_guessed_by_one_name_only(tmp_path):
    rows = [(text, label, label) for text, label in many("ab")]
    for name, found in [("original_label", True), ("gold", False)]:
        path = write(tmp_path / f"{name}.csv", csv_of(rows, f"text,label,{name}"))
        assert ("original_label" in load_file(Data(task=str(path))).train) == found
    config = Data(task=str(path), original_label_column="Gold")
    assert "original_label" in load_file(config).train


def test_validation_goes_by_the_original_labels(tmp_path):
    rows = [(text, "b", label) for text, label in many("ab")]
    rows[0] = (rows[0][0], "a", "b")
    rows[2] = (rows[2][0], "a", "b")
    path = write(tmp_path / "a.csv", csv_of(rows, "text,label,original_label"))
    held = load_file(Data(task=str(path))).validation
    assert "original_label" not in held
    original = {text: "ab".index(label) for text, _, label in rows}
    assert list(held.label) == [original[text] for text in held.text]
    clean = write(tmp_path / "v.csv", csv_of(many("ab")))
    config = Data(task=str(path), validation=clean, original_label_column="original_label")
    assert list(load_file(config).validation.label) == [0, 1] * 10


def test_an_original_label_that_is_no_label_is_named(tmp_path):
    rows = [(text, label, label) for text, label in many("ab")]
    rows[7] = (*rows[7][:2], "c")
    path = write(tmp_path / "a.csv", csv_of(rows, "text,label,original_label"))
    assert f"the original label 'c' in row 7 of {path}" in task_refusal(path)


def test_read_table_leaves_cells_as_they_are(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"a": 1, "b": null}\n{"a": "x", "c": [1]}\n')
    assert read_table(path).to_dict("list") == {"a": [1, "x"], "b": [None, None], "c": [None, [1]]}
