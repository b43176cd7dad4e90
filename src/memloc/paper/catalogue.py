"""The 12 tasks of Dankers & Titov (2024): where each is found, and how it is made into a task."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PaperTask:
    """Where a task of the paper comes from and how it is made (section 3, table 1).

    Attributes:
        name: What memloc calls it.
        category: One of the paper's four.
        hub: Its name on the hub.
        configuration: Which configuration, if it has several or is `converted`.
        converted: The data set is a loading script; take the hub's Parquet copies of it.
        columns: The column on the hub for each of memloc's input columns.
        label: The column on the hub with the label, as a class name or its number.
        labels: The class names, in order.
        train_size: Training examples in the local copies the table was checked with.
        licence: The terms of the data, as far as they are stated.
        description: What is to be told apart.
        has_split: Whether the data set itself sets evaluation data apart.
        drop_others: Examples with other labels are left out (instead of being an error).
        topics: If set, the label column holds a list of topics; keep the documents with a single
            topic that is among this many most frequent ones, and of repeated texts the first.
    """

    name: str
    category: str
    hub: str
    columns: dict[str, str]
    label: str
    labels: tuple[str, ...]
    train_size: int
    licence: str
    description: str
    configuration: str | None = None
    converted: bool = False
    has_split: bool = True
    drop_others: bool = False
    topics: int | None = None


_PAIR = {"text": "sentence1", "text_pair": "sentence2"}
_TEXT = {"text": "text"}
_SENTENCE = {"text": "sentence"}

_ROWS = (
    PaperTask(
        name="wic",
        category="NLU",
        hub="aps/super_glue",
        configuration="wic",
        columns={"word": "word", **_PAIR},
        label="label",
        labels=("False", "True"),
        train_size=5428,
        licence="terms of SuperGLUE",
        description="whether a word has the same sense in two sentences",
        converted=True,
    ),
    PaperTask(
        name="rte",
        category="NLU",
        hub="nyu-mll/glue",
        configuration="rte",
        columns=_PAIR,
        label="label",
        labels=("entailment", "not_entailment"),
        train_size=2490,
        licence="terms of GLUE",
        description="whether the first sentence entails the second",
    ),
    PaperTask(
        name="mrpc",
        category="NLU",
        hub="nyu-mll/glue",
        configuration="mrpc",
        columns=_PAIR,
        label="label",
        labels=("not_equivalent", "equivalent"),
        train_size=3668,
        licence="terms of GLUE",
        description="whether two sentences are paraphrases",
    ),
    PaperTask(
        name="cola",
        category="NLU",
        hub="nyu-mll/glue",
        configuration="cola",
        columns=_SENTENCE,
        label="label",
        labels=("unacceptable", "acceptable"),
        train_size=8551,
        licence="research use (CoLA)",
        description="whether a sentence is grammatical",
    ),
    PaperTask(
        name="boolq",
        category="NLU",
        hub="aps/super_glue",
        configuration="boolq",
        columns={"text": "question", "text_pair": "passage"},
        label="label",
        labels=("False", "True"),
        train_size=9427,
        licence="CC BY-SA 3.0",
        description="the answer to a yes/no question about a passage",
        converted=True,
    ),
    PaperTask(
        name="sst2",
        category="sentiment",
        hub="yerevann/sst2",
        columns=_SENTENCE,
        label="label",
        labels=("negative", "positive"),
        train_size=6920,
        licence="not stated",
        description="the sentiment of a sentence of a film review",
    ),
    PaperTask(
        name="sst5",
        category="sentiment",
        hub="SetFit/sst5",
        columns=_TEXT,
        label="label",
        labels=("very negative", "negative", "neutral", "positive", "very positive"),
        train_size=8544,
        licence="not stated",
        description="the sentiment of a sentence of a film review, in five grades",
    ),
    PaperTask(
        name="emotion",
        category="sentiment",
        hub="dair-ai/emotion",
        configuration="split",
        columns=_TEXT,
        label="label",
        labels=("sadness", "joy", "love", "anger", "fear", "surprise"),
        train_size=16000,
        licence="educational and research use only",
        description="the emotion in a tweet",
    ),
    PaperTask(
        name="implicithate",
        category="hate speech",
        hub="SALT-NLP/ImplicitHate",
        columns={"text": "post"},
        label="implicit_class",
        labels=(
            "incitement",
            "inferiority",
            "irony",
            "other",
            "stereotypical",
            "threatening",
            "white_grievance",
        ),
        train_size=5076,
        licence="CC BY 4.0; offensive language",
        description="the kind of implicit hate in a tweet",
        has_split=False,
    ),
    PaperTask(
        name="stormfront",
        category="hate speech",
        hub="odegiber/hate_speech18",
        configuration="default",
        columns=_TEXT,
        label="label",
        labels=("noHate", "hate"),
        train_size=8562,
        licence="CC BY-SA 3.0; offensive language",
        description="whether a sentence from a white supremacist forum is hateful",
        converted=True,
        has_split=False,
        drop_others=True,
    ),
    PaperTask(
        name="reuters",
        category="topic",
        hub="ucirvine/reuters21578",
        configuration="ModApte",
        columns=_TEXT,
        label="topics",
        labels=("acq", "crude", "earn", "interest", "money-fx", "money-supply", "ship", "trade"),
        train_size=5001,
        licence="research use only",
        description="the topic of a newswire article",
        converted=True,
        topics=8,
    ),
    PaperTask(
        name="trec",
        category="topic",
        hub="CogComp/trec",
        configuration="default",
        columns=_TEXT,
        label="coarse_label",
        labels=("ABBR", "ENTY", "DESC", "HUM", "LOC", "NUM"),
        train_size=5452,
        licence="not stated",
        description="what kind of answer a question asks for",
        converted=True,
    ),
)

PAPER_TASKS: dict[str, PaperTask] = {row.name: row for row in _ROWS}
