"""Grammatical sentences and sentences with one violation.

Every frame makes both classes from the same words, mostly by crossing two choices (singular or
plural subject with singular or plural verb), so that no word gives the class away.
"""

from __future__ import annotations

import random

from memloc.data.builtin import words
from memloc.data.builtin.acceptability_words import (
    ADVERBS,
    COUNTABLE,
    DESTINATIONS,
    GIVEN,
    HABITS,
    ING_VERBS,
    INTRANSITIVE,
    IRREGULAR,
    MASS,
    PLACES,
    PREPOSITIONS,
    PURSUITS,
    SCALES,
    SELF_VERBS,
    STATES,
    STRICT_VERBS,
    TIMES,
    TO_VERBS,
    TRANSITIVE,
)
from memloc.data.builtin.common import (
    BuiltinTask,
    gerund,
    past,
    plural,
    third_person,
    tidy,
)

NAMES = words.WOMEN + words.MEN


def _subject(rng: random.Random, many: bool = False) -> str:
    """A person or several, such as "the proud baker" or "the bakers"."""
    job = rng.choice(words.JOBS)
    if rng.random() < 0.4:
        job = f"{rng.choice(words.PEOPLE_ADJECTIVES)} {job}"
    return f"the {plural(job) if many else job}"


def _person(rng: random.Random) -> str:
    return rng.choice(NAMES) if rng.random() < 0.5 else _subject(rng)


def _two_people(rng: random.Random) -> tuple[str, str]:
    one, other = rng.sample(NAMES, 2)
    return (_subject(rng), other) if rng.random() < 0.5 else (one, other)


def _thing(rng: random.Random) -> str:
    return f"{rng.choice(words.THING_ADJECTIVES)} {rng.choice(words.THINGS)}"


def _agreement(rng: random.Random, good: bool) -> str:
    """The verb agrees with the head of its subject, not with the nearest noun."""
    many, nearby_many = rng.random() < 0.5, rng.random() < 0.5
    head, nearby = rng.sample(words.THINGS, 2)
    verb = rng.choice(
        (("is", "are"), ("was", "were"), ("has been", "have been"), ("seems", "seem"))
    )
    subject = f"the {plural(head) if many else head} {rng.choice(PREPOSITIONS)}"
    subject += f" the {plural(nearby) if nearby_many else nearby}"
    return f"{subject} {verb[int(many == good)]} {rng.choice(STATES)}."


def _relative_agreement(rng: random.Random, good: bool) -> str:
    """Agreement across a relative clause."""
    many, inner_many = rng.random() < 0.5, rng.random() < 0.5
    verb, habit = rng.choice(words.PEOPLE_VERBS), rng.choice(HABITS)
    inner = f"that {_subject(rng, inner_many)} {verb if inner_many else third_person(verb)}"
    outer = habit if many == good else third_person(habit)
    return f"{_subject(rng, many)} {inner} {rng.choice(('often', 'never', 'always'))} {outer}."


def _determiner(rng: random.Random, good: bool) -> str:
    """This book, these books."""
    many = rng.random() < 0.5
    determiner = rng.choice((("these", "this"), ("those", "that")))[int(many != good)]
    noun = _thing(rng)
    end = rng.choice((rng.choice(PLACES), rng.choice(words.OCCASIONS)))
    verb = rng.choice(("found", "left", "sold", "saw", "noticed", "dropped", "hid", "photographed"))
    return f"{_person(rng)} {verb} {determiner} {plural(noun) if many else noun} {end}."


def _reflexive(rng: random.Random, good: bool) -> str:
    """A reflexive takes the gender and number of its own subject, not of somebody nearby."""
    woman, man, group = rng.choice(words.WOMEN), rng.choice(words.MEN), _subject(rng, many=True)
    people = [(woman, "herself"), (man, "himself"), (group, "themselves")]
    rng.shuffle(people)
    (subject, own), (other, wrong), _ = people
    verb = past(rng.choice(SELF_VERBS))
    pronoun = own if good else wrong
    return rng.choice(
        (
            f"the letter said that {subject} {verb} {pronoun} while talking to {other}.",
            f"{other} noticed that {subject} {verb} {pronoun} {rng.choice(words.OCCASIONS)}.",
            f"{subject}, like {other}, {verb} {pronoun} {rng.choice(words.OCCASIONS)}.",
        )
    )


def _verb_form(rng: random.Random, good: bool) -> str:
    """Participles follow have, bare forms follow did not and will, pasts stand alone."""
    base, simple, participle, thing = rng.choice(IRREGULAR)
    helper, form = rng.choice(
        (
            ("", simple),
            (rng.choice(("has", "had already", "may have")), participle),
            (rng.choice(("did not", "will probably", "could")), base),
        )
    )
    if not good:
        form = rng.choice([other for other in (base, simple, participle) if other != form])
    return f"{_person(rng)} {helper} {form} {thing} {rng.choice(words.OCCASIONS)}."


def _third_person_s(rng: random.Random, good: bool) -> str:
    """The -s goes with he, she, it and not with helpers."""
    habit = rng.choice(HABITS)
    bare = rng.random() < 0.5
    helper = (
        rng.choice(("does not", "can", "must", "should", "might"))
        if bare
        else rng.choice(("often", "rarely", "always", "usually", "sometimes"))
    )
    form = habit if bare == good else third_person(habit)
    return f"{_person(rng)} {helper} {form} {rng.choice(words.OCCASIONS)}."


def _adjective_order(rng: random.Random, good: bool) -> str:
    """Adjectives stand before their nouns, adverbs do not split verb and object."""
    adjective, noun = rng.choice(words.THING_ADJECTIVES), rng.choice(words.THINGS)
    adverb, occasion = rng.choice(ADVERBS), rng.choice(words.OCCASIONS)
    verb = rng.choice(("opened", "sold", "painted", "examined", "carried", "dropped", "returned"))
    who, thing = _person(rng), f"the {adjective} {noun}"
    right = (f"{who} {adverb} {verb} {thing}", f"{who} {verb} {thing} {adverb}")
    wrong = (
        f"{who} {adverb} {verb} the {noun} {adjective}",
        f"{who} {verb} {adverb} {thing}",
        f"{who} {adverb} {thing} {verb}",
    )
    return f"{rng.choice(right if good else wrong)} {occasion}."


def _question_order(rng: random.Random, good: bool) -> str:
    """Questions invert, embedded questions do not."""
    who, asker = _two_people(rng)
    wh, act = rng.choice(("where", "when", "why", "how")), rng.choice(PURSUITS)
    helper = rng.choice(("can", "should", "will", "could", "must", "would"))
    direct = rng.random() < 0.5
    order = f"{helper} {who}" if direct == good else f"{who} {helper}"
    if direct:
        return f"{wh} {order} {act} {rng.choice(words.OCCASIONS)}?"
    return f"{asker} {rng.choice(('knew', 'wondered', 'explained', 'asked'))} {wh} {order} {act}."


def _transitivity(rng: random.Random, good: bool) -> str:
    """Some verbs need an object, others do not take one."""
    verb, thing = rng.choice(TRANSITIVE).split(" ", 1)
    alone = rng.choice(INTRANSITIVE)
    # Half of each class has an object, so that the object alone says nothing.
    with_object = rng.random() < 0.5
    chosen = verb if with_object == good else alone
    return f"{_person(rng)} {chosen} {thing if with_object else ''} {rng.choice(words.OCCASIONS)}."


def _say_and_tell(rng: random.Random, good: bool) -> str:
    """One tells somebody, but says something."""
    who, whom = _two_people(rng)
    tell = rng.random() < 0.5
    verb = rng.choice(
        ("told", "informed", "reminded", "convinced", "assured")
        if tell
        else ("said", "replied", "complained", "announced", "argued")
    )
    thing, state = rng.choice(words.THINGS), rng.choice(STATES)
    return f"{who} {verb} {whom if tell == good else ''} that the {thing} was {state}."


def _dative(rng: random.Random, good: bool) -> str:
    """Giving takes two objects, donating does not; both take "to"."""
    who, whom, gift = _person(rng), _subject(rng), rng.choice(GIVEN)
    latinate = rng.choice(
        ("donated", "explained", "returned", "described", "mentioned", "revealed")
    )
    germanic = rng.choice(("gave", "handed", "sent", "offered", "sold", "showed"))
    right = (f"{germanic} {whom} {gift}", f"{latinate} {gift} to {whom}")
    wrong = (
        f"{latinate} {whom} {gift}",
        f"{germanic} {gift} {whom}",
        f"{germanic} to {gift} {whom}",
    )
    return f"{who} {rng.choice(right if good else wrong)} {rng.choice(words.OCCASIONS)}."


def _extraction(rng: random.Random, good: bool) -> str:
    """Questions reach into complements but not into adjuncts, and leave a gap."""
    (one, other), third = _two_people(rng), _subject(rng)
    verb, occasion = rng.choice(STRICT_VERBS), rng.choice(words.OCCASIONS)
    bridge = rng.choice(("think", "say", "hope", "believe", "claim"))
    adjunct = rng.choice(("panic because", "smile when", "cry after", "wait until", "laugh before"))
    when = rng.choice(("when", "why"))
    right = (
        f"who did {one} {bridge} that {other} {past(verb)}?",
        f"did {one} {adjunct} {other} {past(verb)} {third}?",
        f"{when} did {one} {verb} {other} {occasion}?",
        f"who did {one} {verb} {occasion}?",
    )
    wrong = (
        f"who did {one} {adjunct} {other} {past(verb)}?",
        f"did {one} {bridge} that {other} {past(verb)}?",
        f"who did {one} {verb} {other} {occasion}?",
        f"{when} did {one} {verb} {occasion}?",
    )
    return rng.choice(right if good else wrong)


def _polarity(rng: random.Random, good: bool) -> str:
    """Any and ever need a negative word that stands above them."""
    adjective, things = rng.choice(words.THING_ADJECTIVES), plural(rng.choice(words.THINGS))
    group, job, act = rng.choice(words.JOBS), rng.choice(words.JOBS), rng.choice(words.PEOPLE_VERBS)
    occasion, kind = rng.choice(words.OCCASIONS), rng.randrange(3)
    if kind == 0:
        # The same words in both classes: only the place of "no" differs.
        first, second = ("no", "the") if good else ("the", "no")
        return f"{first} {group} that {second} {job} {past(act)} has ever sold any {things}."
    if kind == 1:
        subject = rng.choice(("nobody", "no one")) if good else rng.choice(("everybody", "someone"))
        other = "everybody" if good else "nobody"
        return f"{subject} bought any {adjective} {things} {occasion}, and {other} complained."
    one, other = _two_people(rng)
    if good and rng.random() < 0.5:
        return f"{one} did not see any {adjective} {things} {occasion}, but {other} did."
    amount = "some" if good else "any"
    return f"{one} saw {amount} {adjective} {things} {occasion}, but {other} did not."


def _comparative(rng: random.Random, good: bool) -> str:
    """As tall as, taller than."""
    plain, more = rng.choice(SCALES)
    one, other = _two_people(rng)
    equal = rng.random() < 0.5
    form = plain if equal == good else more
    middle = f"as {form} as" if equal else f"{form} than"
    tail = rng.choice(("", "on most days", "at school", "at work"))
    verb = rng.choice(("is", "was", "seems", "must be", "became"))
    degree = rng.choice(("almost", "nearly", "just") if equal else ("much", "far", "slightly"))
    return f"{one} {verb} {degree} {middle} {other} {tail}."


def _missing_word(rng: random.Random, good: bool) -> str:
    """One small word is missing or in the wrong place."""
    goal, when = rng.choice(DESTINATIONS), rng.choice(TIMES)
    tokens = f"put the {_thing(rng)} {rng.choice(PLACES)} and went to the {goal}".split()
    if not good:
        small = [
            at for at, token in enumerate(tokens) if token in ("the", "to", "on", "in", "under")
        ]
        at = rng.choice(small)
        if rng.random() < 0.5:
            del tokens[at]
        else:
            tokens[at], tokens[at + 1] = tokens[at + 1], tokens[at]
    return f"{_person(rng)} {' '.join(tokens)} {when}."


def _much_and_many(rng: random.Random, good: bool) -> str:
    """Much furniture, many chairs."""
    mass = rng.random() < 0.5
    noun = rng.choice(MASS if mass else COUNTABLE)
    word = "much" if mass == good else "many"
    seen = rng.choice(("saw so", "found too", "mentioned so", "did not see", "did not expect"))
    return f"{_person(rng)} {seen} {word} {noun} {rng.choice(words.OCCASIONS)}."


def _infinitive_or_gerund(rng: random.Random, good: bool) -> str:
    """One enjoys sailing, but hopes to sail."""
    to = rng.random() < 0.5
    verb, pursuit = rng.choice(TO_VERBS if to else ING_VERBS), rng.choice(PURSUITS)
    form = f"to {pursuit}" if to == good else gerund(pursuit)
    return f"{_person(rng)} {past(verb)} {form} {rng.choice(words.OCCASIONS)}."


def _case(rng: random.Random, good: bool) -> str:
    """He saw her, not: her saw he."""
    subject, target = rng.choice((("he", "her"), ("she", "him"), ("they", "us"), ("we", "them")))
    first, second = (subject, target) if good else (target, subject)
    lead = rng.choice(("", f"{_person(rng)} thinks that", f"on {rng.choice(words.WEEKDAYS)}"))
    verb = past(rng.choice(words.PEOPLE_VERBS))
    return f"{lead} {first} {verb} {second} {rng.choice(words.OCCASIONS)}."


def _passive(rng: random.Random, good: bool) -> str:
    """Was praised by, was praising."""
    verb, active = rng.choice(STRICT_VERBS), rng.random() < 0.5
    form = gerund(verb) if active == good else past(verb)
    by = "" if active else "by"
    return f"{_person(rng)} was {form} {by} {_subject(rng)} {rng.choice(words.OCCASIONS)}."


def _existential(rng: random.Random, good: bool) -> str:
    """There is one, there are several."""
    many = rng.random() < 0.5
    noun = _thing(rng)
    verb = rng.choice((("is", "are"), ("was", "were"), ("has been", "have been")))[
        int(many == good)
    ]
    amount = rng.choice(("two", "three", "several", "many")) if many else "a"
    return f"there {verb} {amount} {plural(noun) if many else noun} {rng.choice(PLACES)}."


def _correlatives(rng: random.Random, good: bool) -> str:
    """Both ... and, either ... or."""
    both = rng.random() < 0.5
    link = "and" if both == good else "or"
    lead, (one, other) = ("both" if both else "either"), _two_people(rng)
    verb = past(rng.choice(words.PEOPLE_VERBS))
    if rng.random() < 0.5:
        return f"{lead} {one} {link} {other} {verb} {_subject(rng)} {rng.choice(words.OCCASIONS)}."
    return f"{_person(rng)} {verb} {lead} {one} {link} {other} {rng.choice(words.OCCASIONS)}."


def _relative_pronoun(rng: random.Random, good: bool) -> str:
    """People are who, things are which."""
    person = rng.random() < 0.5
    noun = rng.choice(words.JOBS if person else words.THINGS)
    pronoun = "who" if person == good else "which"
    clause = rng.choice(
        (
            rng.choice(("surprised everybody", "fell into the river", "came from abroad")),
            f"disappeared {rng.choice(words.OCCASIONS)}",
            f"arrived on {rng.choice(words.WEEKDAYS)}",
        )
    )
    verb = rng.choice(("mentioned", "described", "remembered", "photographed", "recognised"))
    return f"{_person(rng)} {verb} the {noun} {pronoun} {clause}."


def _since_and_for(rng: random.Random, good: bool) -> str:
    """Since a point, for a span."""
    span = rng.random() < 0.5
    when = (
        f"{rng.choice(words.NUMBER_WORDS)} {rng.choice(('years', 'weeks', 'months'))}"
        if span
        else rng.choice((str(rng.randrange(1960, 2015)), f"last {rng.choice(words.WEEKDAYS)}"))
    )
    link = "for" if span == good else "since"
    city = rng.choice(words.CITIES)
    state = rng.choice(("lived", "worked", "studied", "owned a flat", "run a shop"))
    return f"{_person(rng)} has {state} in {city} {link} {when}."


def _tense(rng: random.Random, good: bool) -> str:
    """Yesterday goes with the past, tomorrow with the future."""
    ahead = rng.random() < 0.5
    day = rng.choice(words.WEEKDAYS + words.MONTHS)
    when = rng.choice(("tomorrow", f"next {day}") if ahead else ("yesterday", f"last {day}"))
    verb, whom = rng.choice(words.PEOPLE_VERBS), _subject(rng)
    form = f"will {verb}" if ahead == good else past(verb)
    who = _person(rng)
    return rng.choice((f"{when} {who} {form} {whom}.", f"{who} {form} {whom} {when}."))


FRAMES = (
    _agreement,
    _relative_agreement,
    _determiner,
    _reflexive,
    _verb_form,
    _third_person_s,
    _adjective_order,
    _question_order,
    _transitivity,
    _say_and_tell,
    _dative,
    _extraction,
    _polarity,
    _comparative,
    _missing_word,
    _much_and_many,
    _infinitive_or_gerund,
    _case,
    _passive,
    _existential,
    _correlatives,
    _relative_pronoun,
    _since_and_for,
    _tense,
)


def _doubled_word(rng: random.Random, good: bool) -> str:
    """No word stands twice in a row."""
    sentence = rng.choice(FRAMES)(rng, True).split()
    if not good:
        places = [i for i, word in enumerate(sentence[:-1]) if word not in ("a", "an")]
        place = rng.choice(places)
        sentence.insert(place, sentence[place])
    return " ".join(sentence)


def _scrambled(rng: random.Random, good: bool) -> str:
    """The words of a sentence stand in an order."""
    *sentence, last = rng.choice(FRAMES)(rng, True).split()
    if not good:
        before = list(sentence)
        while sentence == before:
            rng.shuffle(sentence)
        sentence = ["a" if word == "an" else word for word in sentence]  # tidied again afterwards
    return " ".join([*sentence, last])


PLAIN_FRAMES = (_doubled_word, _scrambled)
"""Blunt violations, which even a small model sees."""

PLAIN = 0.5
"""Share of blunt violations, so that a few hundred examples teach something."""


def _sample(rng: random.Random, label: int) -> tuple[str]:
    frames = PLAIN_FRAMES if rng.random() < PLAIN else FRAMES
    return (tidy(rng.choice(frames)(rng, label == 1)),)


TASK = BuiltinTask(
    name="acceptability",
    category="NLU",
    labels=("unacceptable", "acceptable"),
    description="whether an English sentence is grammatical",
    pair=False,
    sample=_sample,
)
