"""What all built-in tasks share: the task record, template filling and small rules of English."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Input = tuple[str, ...]
"""One input: (text,), or (text, text_pair) for a pair task."""

Sampler = Callable[[random.Random, int], Input]
"""Draws one input of the class with the given label index."""

Lexicon = Mapping[str, Sequence[str]]
"""Slot name to its fillers; a filler may itself contain slots and alternatives."""


@dataclass(frozen=True)
class BuiltinTask:
    """A task that is generated rather than loaded.

    Attributes:
        name: Under which name users ask for it.
        category: The kind of task.
        labels: Class names; a label is an index into them.
        description: One line for listings.
        pair: Whether inputs are sentence pairs.
        sample: Draws one input of a given class.
        capacity: The largest number of examples (training and validation together) on offer. It is
            far below the number of distinct inputs the sampler can draw, so that drawing stays
            quick and classes stay varied.
    """

    name: str
    category: str
    labels: tuple[str, ...]
    description: str
    pair: bool
    sample: Sampler
    capacity: int = 40_000


def listed(text: str) -> tuple[str, ...]:
    """Split a comma-separated list, which is easier to read and to extend than quoted strings."""
    return tuple(item.strip() for item in text.split(",") if item.strip())


def lines(block: str) -> tuple[str, ...]:
    """The lines of a block; an indented line continues the one before it."""
    return tuple(line for line in re.sub(r"\n +", " ", block).splitlines() if line)


_ALTERNATIVES = re.compile(r"\[([^\[\]]*)\]")
_SLOT = re.compile(r"\{(\w+)\}")


def expand(template: str, lexicon: Lexicon, rng: random.Random) -> str:
    """Fill a template.

    `[a|b|]` is replaced by one of the alternatives, `{slot}` by one of the slot's fillers. A slot
    that occurs twice gets two different fillers wherever it has them ("Oslo is colder than Oslo"
    would be absurd).

    Args:
        template: Text with slots and alternatives.
        lexicon: The fillers of every slot.
        rng: Source of randomness.

    Returns:
        The filled and tidied text.
    """
    used: dict[str, set[str]] = {}

    def fill(match: re.Match[str]) -> str:
        slot = match.group(1)
        taken = used.setdefault(slot, set())
        filler = rng.choice(lexicon[slot])
        for _ in range(10):
            if filler not in taken:
                break
            filler = rng.choice(lexicon[slot])
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
    first, _, rest = verb.partition(" ")
    form = first + "es" if first.endswith("o") else plural(first)
    return f"{form} {rest}" if rest else form


def past(verb: str) -> str:
    """The regular past of a verb that does not double its last consonant; later words are kept."""
    first, _, rest = verb.partition(" ")
    if first.endswith("e"):
        form = first + "d"
    elif first.endswith("y") and first[-2] not in "aeiou":
        form = first[:-1] + "ied"
    else:
        form = first + "ed"
    return f"{form} {rest}" if rest else form


def gerund(verb: str) -> str:
    """The -ing form of a verb that does not double its last consonant; later words are kept."""
    first, _, rest = verb.partition(" ")
    drops_e = first.endswith("e") and not first.endswith(("ee", "oe", "ye"))
    form = (first[:-1] if drops_e else first) + "ing"
    return f"{form} {rest}" if rest else form
