"""Classification tasks that are generated, so that everything works without a download.

The grammar of each task is a YAML file in the folder `grammars`. There are two kinds. A grammar
with `templates` fills slots: `[a|b|]` is replaced by one of the alternatives, `{slot}` by one of
the words in the list of that name. A grammar with `frames` has a small Jinja program for each
phenomenon, which makes both classes from the same words.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

import pandas as pd
import yaml

from memloc.config import Data
from memloc.data.noise import check_limit
from memloc.data.task import NamedTask, Task
from memloc.errors import DataError

Input = tuple[str, ...]
"""One input: (text,), or (text, text_pair) for a pair task."""
Lists = Mapping[str, Any]
"""Words by the name of their list; a word may itself contain slots and alternatives."""
Sampler = Callable[[random.Random, int], Input]
"""Draws one input of the class with the given label index."""

NAMES = ("questions", "reviews", "topics", "entailment", "acceptability")
BUILTIN_SIZE = 400
"""Training examples, unless a limit says otherwise."""
CAPACITY = 40_000
"""The largest number of examples (training and validation together) of a task. It is far below the
number of distinct inputs, so that drawing stays quick and classes stay varied."""
CONTENT_SEED = 1
"""Seed of the texts: the data seed only decides who is noisy."""
ARROW = "⇒"
"""Stands between the two sentences that a frame of a pair task makes."""


def tasks() -> list[NamedTask]:
    """The built-in tasks, for `memloc.data.load.named_tasks`."""
    return list(BUILTIN_TASKS.values())


def _load(config: Data) -> Task:
    size = config.limit or BUILTIN_SIZE
    classes = len(BUILTIN_TASKS[config.task].labels)
    check_limit(config.task, size, 2 if config.binarise else classes)
    # Two classes of a larger number must make up the whole size once the others are gone.
    n_train = size * -(-classes // 2) if config.binarise else size
    return generate(config.task, n_train, min(1000, max(100, n_train // 2)), seed=CONTENT_SEED)


def generate(name: str, n_train: int = 600, n_validation: int = 300, seed: int = 1) -> Task:
    """Generate a built-in task, without noise.

    The same arguments give the same task on every machine. No input occurs twice, neither within a
    table nor in both, and class counts differ by at most one in each table.

    Raises:
        DataError: If there are not as many examples.
    """
    task, sample = BUILTIN_TASKS[name], _sampler(name)
    if n_train + n_validation > CAPACITY:
        raise DataError(
            f"{n_train + n_validation} examples were requested of the built-in task {name!r}, "
            f"which has at most {CAPACITY}; ask for fewer"
        )
    # Strings are hashed with SHA-512 here, never with the per-process hash().
    rng = random.Random(f"{name}:{seed}")
    counts = [_class_counts(rng, len(task.labels), size) for size in (n_train, n_validation)]
    splits: list[list[tuple[Input, int]]] = [[], []]
    seen: set[Input] = set()
    for label in range(len(task.labels)):
        for split, wanted in zip(splits, counts, strict=True):
            for _ in range(wanted[label]):
                drawn = sample(rng, label)
                while drawn in seen:
                    drawn = sample(rng, label)
                seen.add(drawn)
                split.append((drawn, label))
    for split in splits:
        rng.shuffle(split)
    columns = ("text", "text_pair")[: len(next(iter(seen)))]
    train, validation = (_table(split, columns) for split in splits)
    return Task(task.name, task.category, task.labels, train, validation)


def _class_counts(rng: random.Random, n_classes: int, n_examples: int) -> list[int]:
    """Spread examples evenly; chance decides which classes get one more."""
    counts = [n_examples // n_classes] * n_classes
    for label in rng.sample(range(n_classes), n_examples % n_classes):
        counts[label] += 1
    return counts


def _table(rows: list[tuple[Input, int]], columns: Sequence[str]) -> pd.DataFrame:
    table = pd.DataFrame({"example": pd.Series(range(len(rows)), dtype="int64")})
    for part, name in enumerate(columns):
        table[name] = pd.Series([drawn[part] for drawn, _ in rows], dtype="object")
    table["label"] = pd.Series([label for _, label in rows], dtype="int64")
    return table


# --- grammars ------------------------------------------------------------------------------------


def packaged(package: str, name: str) -> dict[str, Any]:
    """What is in a YAML file of memloc itself."""
    text = (resources.files(package) / f"{name}.yaml").read_text(encoding="utf-8")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the fast one, if built
    content: dict[str, Any] = loader(text).get_single_data()
    return content


def _read(name: str) -> dict[str, Any]:
    return packaged("memloc.data", f"grammars/{name}")


@cache
def _sampler(name: str) -> Sampler:
    """What draws the inputs of a task."""
    grammar = _GRAMMARS[name]
    kinds = {"frames": _frames, "domains": _contrasts, "templates": _templates}
    make = next(make for key, make in kinds.items() if key in grammar)
    lists: dict[str, Any] = {}
    for key, value in {**_read("words")["lists"], **grammar.get("lists", {})}.items():
        lists[key] = _list(value, lists)
    return make(grammar, lists)


def _list(value: Any, lists: Lists) -> Any:
    """A list of a grammar: its words, or how it is made from lists before it."""
    if isinstance(value, str):
        return _split(value)
    ((how, what), *more) = value.items()
    if how == "all_of":
        return tuple(itertools.chain.from_iterable(lists[name] for name in what))
    if how == "plural_of":
        unchanged = dict(more).get("unchanged", ())
        return tuple(word if word in unchanged else plural(word) for word in lists[what])
    if how == "full_names":
        first, last = (lists[name] for name in what)
        return tuple(map(" ".join, zip(first, itertools.cycle(last), strict=False)))
    if how == "range":
        return tuple(map(str, range(*what)))
    if how == "pairs":
        return tuple((key, word) for key, words in what.items() for word in _split(words))
    assert how == "groups", how
    return {key: _split(words) for key, words in what.items()}


def _split(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(","))


def _lines(block: str) -> tuple[str, ...]:
    """The lines of a block; an indented line continues the one before it."""
    return tuple(re.sub(r"\n +", " ", block).splitlines())


def _templates(grammar: dict[str, Any], lists: Lists) -> Sampler:
    templates = [_lines(grammar["templates"][label]) for label in grammar["labels"]]
    openings = _lines(grammar.get("openings", ""))

    def sample(rng: random.Random, label: int) -> Input:
        template = rng.choice(templates[label])
        if openings and rng.random() < grammar["opening_share"] and template.endswith("?"):
            template = f"{rng.choice(openings)} {template}"
        return (expand(template, lists, rng),)

    return sample


def _contrasts(grammar: dict[str, Any], lists: Lists) -> Sampler:
    """Texts with words of their own class (`same`) and of the opposite one (`other`)."""
    templates = _lines(grammar["templates"])
    labels: list[str] = grammar["labels"]
    domains = tuple(grammar["domains"].values())

    def sample(rng: random.Random, label: int) -> Input:
        template, domain = rng.choice(templates), rng.choice(domains)
        words = {**lists, "item": _split(domain["item"]), "remark": _split(domain["remark"])}
        # Each aspect serves one side of a review: no soup is both heavenly and lukewarm.
        aspects = rng.sample(tuple(domain["aspects"].items()), len(domain["aspects"]))
        half = len(aspects) // 2
        for side, index, chosen in (
            ("same", label, aspects[:half]),
            ("other", 1 - label, aspects[half:]),
        ):
            words[f"{side}_clause"] = tuple(
                f"{subject} {rng.choice(_split(predicates.split('/')[index]))}"
                for subject, predicates in chosen
            )
            for kind, of_labels in grammar["sides"].items():
                words[f"{side}_{kind}"] = _split(of_labels[labels[index]])
        return (expand(template, words, rng),)

    return sample


def _frames(grammar: dict[str, Any], lists: Lists) -> Sampler:
    import jinja2

    good_label = grammar["labels"].index(grammar["good"])
    environment = jinja2.Environment(line_statement_prefix="%", extensions=["jinja2.ext.do"])
    environment.globals.update(lists)
    environment.globals.update(plural=plural, third_person=third_person, past=past, gerund=gerund)
    macros = grammar.get("macros", "")
    common, others = (
        [environment.from_string(macros + frame) for frame in grammar[key].values()]
        for key in ("common_frames", "frames")
    )

    def render(frame: Any, rng: random.Random, good: bool) -> str:
        def shuffled(items: Sequence[Any]) -> list[Any]:
            order = list(items)
            rng.shuffle(order)
            return order

        def scrambled(words: list[str]) -> list[str]:
            order = shuffled(words)
            while order == words:
                rng.shuffle(order)
            return ["a" if word == "an" else word for word in order]  # tidied again afterwards

        text: str = frame.render(
            good=good,
            choice=rng.choice,
            sample=rng.sample,
            randrange=rng.randrange,
            chance=lambda share: rng.random() < share,
            shuffled=shuffled,
            scrambled=scrambled,
            sentence=lambda: render(rng.choice(others), rng, True),
            implied=lambda strong, weak: f" {ARROW} ".join((strong, weak)[:: 1 if good else -1]),
        )
        return text

    def sample(rng: random.Random, label: int) -> Input:
        frames = common if rng.random() < grammar["common_share"] else others
        frame = rng.choice(frames) if len(frames) > 1 else frames[0]
        return tuple(map(tidy, render(frame, rng, label == good_label).split(ARROW)))

    return sample


# --- English -------------------------------------------------------------------------------------

_ALTERNATIVES = re.compile(r"\[([^\[\]]*)\]")
_SLOT = re.compile(r"\{(\w+)\}")


def expand(template: str, lists: Lists, rng: random.Random) -> str:
    """Fill the slots and alternatives of a template, and tidy the text.

    A slot that occurs twice gets two different words wherever it has them ("Oslo is colder than
    Oslo" would be absurd).
    """
    used: dict[str, set[str]] = {}

    def fill(match: re.Match[str]) -> str:
        slot = match.group(1)
        taken = used.setdefault(slot, set())
        filler: str = rng.choice(lists[slot])
        for _ in range(10):
            if filler not in taken:
                break
            filler = rng.choice(lists[slot])
        taken.add(filler)
        return filler

    text = template
    while "[" in text or "{" in text:
        # Alternatives first: slots inside an alternative that is dropped must not be filled.
        if "[" in text:
            text = _ALTERNATIVES.sub(lambda match: rng.choice(match.group(1).split("|")), text)
        else:
            text = _SLOT.sub(fill, text)
    return tidy(text)


_ARTICLE = re.compile(r"\b([Aa]) (?=(\w+))")
_VOWEL_SOUND = re.compile(
    r"(?!uni(?![mn])|us[aeu]|uten|eu|one\b|once\b)[aeiou]|hour|honest|honou?r|heir", re.IGNORECASE
)


def tidy(text: str) -> str:
    """Repair spacing, "a" before a vowel sound, and the capitals at the start of sentences."""
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(r" ([,.;:?!])", r"\1", text)
    text = _ARTICLE.sub(
        lambda m: m.group(1) + ("n " if _VOWEL_SOUND.match(m.group(2)) else " "), text
    )
    return re.sub(r"(^|[.?!] )([a-z])", lambda m: m.group(1) + m.group(2).upper(), text)


def plural(noun: str) -> str:
    """The regular plural of a noun or of a noun phrase that ends with its noun."""
    if noun.endswith(("s", "ch", "sh", "x")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"


def third_person(verb: str) -> str:
    """The form of a verb after he, she or it ("watch" to "watches"); later words are kept."""
    return _first_word(verb, lambda word: word + "es" if word.endswith("o") else plural(word))


def past(verb: str) -> str:
    """The regular past of a verb that does not double its last consonant; later words are kept."""

    def form(word: str) -> str:
        if word.endswith("e"):
            return word + "d"
        if word.endswith("y") and word[-2] not in "aeiou":
            return word[:-1] + "ied"
        return word + "ed"

    return _first_word(verb, form)


def gerund(verb: str) -> str:
    """The -ing form of a verb that does not double its last consonant; later words are kept."""

    def form(word: str) -> str:
        drops_e = word.endswith("e") and not word.endswith(("ee", "oe", "ye"))
        return (word[:-1] if drops_e else word) + "ing"

    return _first_word(verb, form)


def _first_word(words: str, change: Callable[[str], str]) -> str:
    first, _, rest = words.partition(" ")
    return f"{change(first)} {rest}" if rest else change(first)


_GRAMMARS = {name: _read(name) for name in NAMES}
BUILTIN_TASKS = {
    name: NamedTask(
        name=name,
        category=grammar["category"],
        labels=tuple(grammar["labels"]),
        source="built-in",
        load=_load,
        train_size=BUILTIN_SIZE,
        note="generated, no download",
        description=grammar["description"],
    )
    for name, grammar in _GRAMMARS.items()
}
