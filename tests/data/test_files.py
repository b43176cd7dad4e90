"""Users' own files: what can be read, what is guessed, and what is said about broken ones."""

import gzip
import json

import pandas as pd
import pytest

from memloc.config import Data
from memloc.data.files import labelled_examples, load_file, read_table
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


def read(path, **columns):
    return labelled_examples(read_table(path), path, **columns)


def refusal(path, **columns):
    """The message with which a file is refused; always one sentence."""
    with pytest.raises(DataError) as caught:
        read(path, **columns)
    message = str(caught.value)
    assert "\n" not in message
    return message


def load(path, **settings):
    return load_file(Data(task=str(path), **settings))


def task_refusal(path, **settings):
    with pytest.raises(DataError) as caught:
        load(path, **settings)
    return str(caught.value)


def many(labels, each=10):
    return [(f"{label} text {i}", label) for i in range(each) for label in labels]


# --- formats

PLAIN = csv_of(ROWS)
FORMATS = {
    "a.csv": PLAIN,
    "semicolons.csv": PLAIN.replace(",", ";"),
    "a.TSV": PLAIN.replace(",", "\t"),
    "index and blank lines.csv": ",text,label\r\n"
    + "".join(f"{i},{text},{label}\r\n\r\n" for i, (text, label) in enumerate(ROWS)),
    "byte order mark.csv": PLAIN.encode("utf-8-sig"),
    "of a spreadsheet.csv": PLAIN.encode("utf-16"),
    "a.csv.gz": gzip.compress(PLAIN.encode()),
    "a.jsonl": jsonl_of(records()),
    "array.json": json.dumps(records(), indent=1),
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_text_format_gives_the_same_examples(tmp_path, name):
    table = read(write(tmp_path / name, FORMATS[name]))
    assert list(table.columns) == ["example", "text", "label"]
    assert list(zip(table.text, table.label, strict=True)) == ROWS
    assert list(table.example) == [0, 1, 2, 3]


def test_cells_are_left_as_they_are(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"a": 1, "b": null}\n{"a": "x", "c": [1]}\n')
    assert read_table(path).to_dict("list") == {"a": [1, "x"], "b": [None, None], "c": [None, [1]]}
    path = tmp_path / "a.parquet"
    pd.DataFrame({"text": ["a", "b"], "label": pd.array([0, None], dtype="Int64")}).to_parquet(path)
    assert read_table(path).to_dict("list") == {"text": ["a", "b"], "label": [0, None]}


def test_any_text_survives(tmp_path):
    texts = ['He said "hi",\r\nthen\tleft\nagain', "NA", "null", "é\u2028x", "y" * 200_000]
    frame = pd.DataFrame({"text": texts, "label": texts})
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_csv(tmp_path / "a.tsv", index=False, sep="\t", lineterminator="\r\n")
    frame.to_json(tmp_path / "a.jsonl", orient="records", lines=True, force_ascii=False)
    for name in ("a.csv", "a.tsv", "a.jsonl"):
        table = read(tmp_path / name)
        assert list(table.text) == texts
        assert list(table.label) == [text.strip() for text in texts]


BROKEN = {
    "a.xlsx": ("text,label\n", "save it as one of: .csv, .tsv, .jsonl"),
    "empty.csv": ("", "is empty; it needs a text and a label"),
    "header.csv": ("text,label\n", "has no rows"),
    "latin.csv": ("text,label\ncafé,b\n".encode("latin1"), "is not UTF-8 text ("),
    "commas.csv": ("text,label\nfine,a\nwell, well,b\n", "Expected 2 fields in line 3, saw 3"),
    "broken.jsonl": (jsonl_of(records()) + '\n{"text": "x", "label"\n', "broken JSON in line 6"),
    "a.parquet": (b"\x00\x01" * 50, "cannot be read"),
    "not.csv.gz": (PLAIN, "cannot be read (Not a gzipped file"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_refused_in_one_sentence(tmp_path, name):
    content, words = BROKEN[name]
    path = write(tmp_path / name, content)
    message = refusal(path)
    assert message.startswith(str(path))
    assert words in message


@pytest.mark.parametrize(
    "text",
    [
        "text;label\nwell, then;a\nso;b\n",
        "text;label;notes, if any\nwell, then;a;\nso;b;x, y\n",
        '"text";"label"\n"well, then";a\nso;b\n',
    ],
)
def test_a_file_with_semicolons_is_read_whatever_its_texts_hold(tmp_path, text):
    path = tmp_path / "a.csv"
    path.write_text(text)
    table = read_table(path)
    assert table["text"].tolist() == ["well, then", "so"]
    assert table["label"].tolist() == ["a", "b"]


def test_a_file_whose_rows_do_not_fit_its_header_names_the_separator(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text;label\na;b\nc;d;e\n")
    with pytest.raises(DataError, match=r"by its header, fields are separated by semicolons.*3"):
        read_table(path)


# --- columns


@pytest.mark.parametrize(("text", "label"), [("text", "class"), ("Sentence", "Sentiment")])
def test_usual_column_names_are_guessed_in_any_case(tmp_path, text, label):
    path = write(tmp_path / "a.csv", csv_of([(1, *row) for row in ROWS], f"id, {text},{label}"))
    assert list(read(path).label) == ["pos", "neg", "pos", "neg"]


def test_naming_the_text_alone_leaves_the_pair_out_and_naming_both_takes_both(tmp_path):
    path = write(tmp_path / "a.csv", csv_of([("a", "b", "x")], "sentence1,sentence2,label"))
    assert "text_pair" not in read(path, text_column="sentence1")
    table = read(path, text_column="sentence2", pair_column="SENTENCE1")
    assert (table.text[0], table.text_pair[0]) == ("b", "a")


def test_a_misspelt_column_gets_a_suggestion_and_the_list(tmp_path):
    path = write(tmp_path / "a.csv", csv_of(ROWS, "body_text,label"))
    assert refusal(path, text_column="body_txt") == (
        f"data.text_column: {path} has no column 'body_txt' (columns: body_text, label); "
        "did you mean 'body_text'?"
    )


@pytest.mark.parametrize("role", ["label", "pair"])
def test_one_column_cannot_serve_twice(tmp_path, role):
    path = write(tmp_path / "a.csv", csv_of(ROWS))
    assert f"cannot be both the {role} and the text" in refusal(path, **{f"{role}_column": "text"})


# --- cells


@pytest.mark.parametrize(
    ("column", "cell", "fault"),
    [
        ("text", " \t ", "is empty"),
        ("text", None, "is missing"),
        ("text", 3, "is 3, which is not a text"),
        ("label", None, "is missing"),
        ("label", 0.5, "is 0.5, which is not a class"),
    ],
)
def test_a_cell_that_cannot_be_used_is_refused_with_its_row(tmp_path, column, cell, fault):
    last = {"text": "x", "label": "pos"} | {column: cell}
    path = write(tmp_path / "a.jsonl", jsonl_of([*records(), last]))
    assert f"'{column}' in row 4 of {path} (rows count from 0) {fault}" in refusal(path)


def test_labels_of_any_kind_become_strings(tmp_path):
    def labels(values):
        path = tmp_path / "a.jsonl"
        write(path, jsonl_of([{"text": "x", "label": value} for value in values]))
        return list(read(path).label)

    assert labels([1, 0]) == ["1", "0"]
    assert labels([1.0, 0.0]) == ["1", "0"]
    assert labels([True, False]) == ["True", "False"]
    assert labels([" a", "b "]) == ["a", "b"]
    assert labels(["1.0", "-2.0", "3"]) == ["1", "-2", "3"]
    assert labels(["1.0", "1.5"]) == ["1.0", "1.5"]


def test_numbers_of_very_many_digits_are_names_or_refused(tmp_path):
    path = tmp_path / "a.csv"
    rows = [f"text {i},{'12'[i % 2] * 5000}" for i in range(40)]
    path.write_text("\n".join(["text,label", *rows]))
    assert load_file(Data(task=str(path))).labels == ("1" * 5000, "2" * 5000)
    table = pd.DataFrame({"text": ["a", "b"], "label": [1, 10**5000]}, dtype=object)
    with pytest.raises(DataError, match="holds a whole number of more than 18 digits"):
        labelled_examples(table, "data")


@pytest.mark.parametrize(
    ("one", "other"),
    [("caf\u00e9", "cafe\u0301"), ("01", "1"), ("True", "true")],
)
def test_labels_that_look_alike_are_told_to_the_user(tmp_path, one, other):
    path = tmp_path / "a.csv"
    rows = [f"text {i},{(one, other, 'x')[i % 3]}" for i in range(60)]
    path.write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    (note,) = load_file(Data(task=str(path))).notes
    assert "look alike and count as different classes" in note
    assert ascii(one) in note
    assert ascii(other) in note


def test_labels_that_differ_have_no_note(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["text,label", *(f"text {i},{i % 12}" for i in range(60))]))
    assert load_file(Data(task=str(path))).notes == ()


def test_a_link_to_nothing_is_called_so(tmp_path):
    (tmp_path / "a.csv").symlink_to(tmp_path / "b.csv")
    with pytest.raises(DataError, match=r"a.csv is a link to a file that does not exist"):
        read_table(tmp_path / "a.csv")


# --- tasks


def test_label_names_beside_integers_are_used_when_they_fit(tmp_path):
    rows = [(text, label, ["no", "yes"][label]) for text, label in many([1, 0])]
    path = write(tmp_path / "g.csv", csv_of(rows, "text,label,label_name"))
    assert load(path).labels == ("no", "yes")
    rows[3] = (*rows[3][:2], "yes")
    path = write(tmp_path / "b.csv", csv_of(rows, "text,label,label_name"))
    assert load(path).labels == ("0", "1")


def test_a_fifth_of_every_class_is_set_aside_for_validation_whatever_the_seed(tmp_path):
    rows = [*many("ab", 40), *many("c", 10)]
    path = write(tmp_path / "my.reviews.csv.gz", gzip.compress(csv_of(rows).encode()))
    task = load(path)
    assert (task.name, task.category) == ("my.reviews", "file")
    assert task.validation.label.value_counts().to_dict() == {0: 8, 1: 8, 2: 2}
    assert sorted([*task.train.example, *task.validation.example]) == list(range(90))
    assert task.train.example.is_monotonic_increasing
    assert [rows[example][0] for example in task.train.example] == list(task.train.text)
    assert load(path, seed=2).train.equals(task.train)
    rare = load(write(tmp_path / "rare.csv", csv_of([*many("a", 40), *many("b", 2)])))
    assert (rare.train.label == 1).sum() == 2


def test_a_validation_file_is_used_with_the_labels_of_training(tmp_path):
    train = write(tmp_path / "a.csv", csv_of(many(["good", "bad"])))
    held = write(tmp_path / "v.jsonl", jsonl_of([{"text": "new", "label": "good"}]))
    task = load(train, validation=held)
    assert len(task.train) == 20
    assert task.validation.to_dict("records") == [{"example": 0, "text": "new", "label": 1}]
    held = write(tmp_path / "v.csv", csv_of([("new", "good"), ("newer", "goood")]))
    message = task_refusal(train, validation=held)
    assert f"the label 'goood' in row 1 of {held}" in message
    assert "did you mean 'good'?" in message
    held = write(tmp_path / "p.csv", csv_of([("a", "b", "good")], "text,text_pair,label"))
    assert "has two texts per example" in task_refusal(train, validation=held)


def test_too_few_classes_or_examples_are_refused(tmp_path):
    path = tmp_path / "a.csv"
    assert "too few examples (4) to set some aside" in task_refusal(write(path, csv_of(ROWS)))
    assert "has one class only, 'a'" in task_refusal(write(path, csv_of(many("a"))))
    rows = [*many("ab"), ("lonely", "c")]
    assert "the class 'c' has a single example" in task_refusal(write(path, csv_of(rows)))


def test_original_labels_are_guessed_by_one_name_only(tmp_path):
    rows = [(text, label, label) for text, label in many("ab")]
    for name, found in [("original_label", True), ("gold", False)]:
        path = write(tmp_path / f"{name}.csv", csv_of(rows, f"text,label,{name}"))
        assert ("original_label" in load(path).train) == found
    assert "original_label" in load(path, original_label_column="Gold").train
    rows[7] = (*rows[7][:2], "c")
    path = write(tmp_path / "a.csv", csv_of(rows, "text,label,original_label"))
    assert f"the original label 'c' in row 7 of {path}" in task_refusal(path)


def test_validation_goes_by_the_original_labels(tmp_path):
    rows = [(text, "b", label) for text, label in many("ab")]
    rows[0] = (rows[0][0], "a", "b")
    rows[2] = (rows[2][0], "a", "b")
    path = write(tmp_path / "a.csv", csv_of(rows, "text,label,original_label"))
    held = load(path).validation
    assert "original_label" not in held
    original = {text: "ab".index(label) for text, _, label in rows}
    assert list(held.label) == [original[text] for text in held.text]
    clean = write(tmp_path / "v.csv", csv_of(many("ab")))
    task = load(path, validation=clean, original_label_column="original_label")
    assert list(task.validation.label) == [0, 1] * 10


def test_a_suggestion_counts_only_where_the_label_is_suspected(tmp_path):
    table = pd.DataFrame(
        {
            "text": [f"t{i}" for i in range(12)],
            "label": ["a", "b"] * 6,
            "flag": [False, True] + [False] * 10,
            "suggested_label": ["", "a"] + [""] * 10,
        }
    )
    table.to_csv(tmp_path / "marked.csv", index=False)
    table.assign(flag=[True] * 2 + [False] * 10).to_csv(tmp_path / "held.csv", index=False)
    task = load_file(
        Data(
            task=str(tmp_path / "marked.csv"),
            validation=tmp_path / "held.csv",
            suspects="flag",
        )
    )
    assert task.train["noisy"].tolist() == [False, True] + [False] * 10
    assert task.train["original_label"].tolist() == [0, 0] + [0, 1] * 5
    assert len(task.validation) == 10  # without suspects
