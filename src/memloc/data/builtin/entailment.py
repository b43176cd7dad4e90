"""Sentence pairs: does the second sentence follow from the first?

Every rule makes both classes from the same words: where one direction follows, the other does not.
What the words are therefore says (almost) nothing; only how the two sentences relate does. A good
part of the pairs are everyday ones, where the second sentence repeats the first in short or changes
a detail: a model that compares the two gets those right, and the logical ones only partly.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from memloc.data.builtin import words
from memloc.data.builtin.common import BuiltinTask, listed, past, plural, tidy

Pair = tuple[str, str]

NAMES = words.WOMEN + words.MEN

ACTIONS = listed("""
dance, laugh, cough, smile, shout, complain, apologise, volunteer, faint, yawn, whistle, cheer,
sneeze, wait, protest, hesitate, stumble, celebrate, giggle, mutter, wander, disappear, surrender,
arrive, collapse, improvise, perform, rest, relax, whisper, tremble, argue, joke, exercise, pray,
stretch
""")
TASKS = listed("""
repair the boiler, open the safe, finish the report, solve the puzzle, climb the tower,
cross the river, reach the summit, complete the form, deliver the parcel, cook the dinner,
lock the gate, clean the attic, paint the fence, answer the invitation, close the shutters,
borrow the van, print the leaflets, record the song, return the keys, translate the poem,
park the lorry, unlock the cellar, water the roses, order the medicine, move the piano,
pack the crates, check the brakes, collect the rent, polish the silver, harvest the apples,
photograph the eclipse, memorise the speech, assemble the wardrobe, measure the corridor,
save the document, iron the shirts, extinguish the fire, restore the fresco, decode the message,
varnish the floor, empty the dustbin
""")
FACTS = tuple(
    (subject, state)
    for subject, states in {
        "the bridge": "closed, unsafe, crowded, newly painted",
        "the museum": "free on Sundays, empty, under repair, open",
        "the soup": "cold, salty, vegetarian, too thick",
        "the witness": "lying, asleep, abroad, related to the victim",
        "the engine": "overheating, silent, out of fuel, faulty",
        "the painting": "stolen, a forgery, unfinished, hanging upside down",
        "the train": "late, full, on the wrong track, delayed by snow",
        "the contract": "invalid, signed, still in force, unfair",
        "the island": "uninhabited, volcanic, private, covered in moss",
        "the budget": "too small, approved, a secret, already spent",
        "the vaccine": "effective, expired, available, safe for children",
        "the castle": "haunted, for sale, older than the town, locked",
        "the telescope": "misaligned, damaged, ready, pointing at Saturn",
        "the tunnel": "flooded, blocked, lit, longer than a mile",
    }.items()
    for state in listed(states)
)
KINDS = {
    kind: listed(members)
    for kind, members in {
        "instrument": "violin, trumpet, flute, cello, clarinet, banjo, harp",
        "vehicle": "lorry, bicycle, tractor, scooter, taxi, bus, van",
        "animal": "rabbit, goat, parrot, hamster, donkey, tortoise, ferret",
        "dog": "poodle, terrier, spaniel, dachshund, greyhound, labrador",
        "bird": "falcon, sparrow, canary, pigeon, owl, swan, heron",
        "fruit": "pear, mango, peach, lemon, banana, plum, apricot",
        "tool": "hammer, chisel, spanner, screwdriver, drill, saw, axe",
        "weapon": "dagger, sword, rifle, crossbow, spear, pistol",
        "flower": "tulip, daisy, orchid, rose, lily, sunflower, daffodil",
        "tree": "birch, maple, oak, willow, cedar, chestnut",
        "garment": "sweater, skirt, raincoat, blouse, waistcoat, cardigan",
        "boat": "canoe, kayak, yacht, dinghy, gondola",
        "jewel": "diamond, ruby, emerald, sapphire, pearl",
        "building": "barn, cottage, warehouse, villa, lighthouse, chapel",
        "drink": "lemonade, cappuccino, milkshake, beer, smoothie, cocktail",
        "piece of furniture": "sofa, wardrobe, bookcase, desk, armchair, cupboard",
    }.items()
}
CITY_COUNTRY = tuple(
    (city, country)
    for country, cities in {
        "France": "Lyon, Paris, Nantes, Bordeaux, Marseille",
        "Italy": "Rome, Milan, Naples, Turin, Bologna",
        "Japan": "Tokyo, Osaka, Kyoto, Nagoya, Sapporo",
        "Canada": "Toronto, Montreal, Vancouver, Ottawa, Calgary",
        "Germany": "Berlin, Hamburg, Munich, Dresden, Leipzig",
        "Spain": "Madrid, Seville, Valencia, Barcelona, Bilbao",
        "India": "Mumbai, Delhi, Chennai, Kolkata, Jaipur",
        "Brazil": "Recife, Salvador, Fortaleza, Manaus",
        "Australia": "Sydney, Melbourne, Perth, Brisbane, Adelaide",
        "Egypt": "Cairo, Alexandria, Luxor, Aswan",
    }.items()
    for city in listed(cities)
)
STAYS = listed("""
lived, worked, studied, got married, retired, grew up, spent a summer, opened a shop, broke a leg,
learned to sail, started a company, taught chemistry, gave a lecture, lost a passport,
bought a house
""")
SIGHTS = tuple(
    (done, bare)
    for done, bare in zip(
        listed("""
            bought, saw, drew, mentioned, photographed, chose, noticed, needed, found, sketched
        """),
        listed("buy, see, draw, mention, photograph, choose, notice, need, find, sketch"),
        strict=True,
    )
)
SCALES = listed("""
taller/shorter, older/younger, richer/poorer, faster/slower, stronger/weaker, louder/quieter,
heavier/lighter, happier/sadder, braver/more timid, wiser/more foolish
""")
MOMENTS = listed("""
arrived, left, finished, woke up, retired, voted, resigned, graduated, called, spoke, sang, paid,
moved out, fell asleep, boarded the train, signed the petition, crossed the line, noticed the smoke
""")


def _turn(stronger: str, weaker: str, follows: bool) -> Pair:
    """The pair of a stronger sentence and the weaker one it implies, turned round if need be."""
    return (stronger, weaker) if follows else (weaker, stronger)


def _voice(rng: random.Random, follows: bool) -> Pair:
    """Active and passive, with or without exchanged roles."""
    agent, patient = rng.sample(words.JOBS, 2)
    agent = f"{rng.choice(words.PEOPLE_ADJECTIVES)} {agent}" if rng.random() < 0.4 else agent
    patient = f"{rng.choice(words.PEOPLE_ADJECTIVES)} {patient}" if rng.random() < 0.4 else patient
    verb, occasion = rng.choice(words.PEOPLE_VERBS), rng.choice(words.OCCASIONS)
    negative = rng.random() < 0.25

    def active(one: str, other: str) -> str:
        return f"the {one} {'did not ' + verb if negative else past(verb)} the {other} {occasion}."

    def passive(one: str, other: str) -> str:
        return f"the {other} was {'not ' if negative else ''}{past(verb)} by the {one} {occasion}."

    forms = [active, passive]
    rng.shuffle(forms)
    premise = forms[0](agent, patient)
    return premise, forms[1](*((agent, patient) if follows else (patient, agent)))


def _modifiers(rng: random.Random, follows: bool) -> Pair:
    """Modifiers that are dropped, or move to somebody else."""
    one, other = rng.sample(words.JOBS, 2)
    first, second = rng.sample(words.PEOPLE_ADJECTIVES, 2)
    verb, occasion = past(rng.choice(words.PEOPLE_VERBS)), rng.choice(words.OCCASIONS)
    premise = f"the {first} {one} {verb} the {second} {other} {occasion}."
    kept = (first, second) if follows else (second, first)
    drop = rng.randrange(3)
    before, after = ("" if drop == 0 else kept[0]), ("" if drop == 1 else kept[1])
    return (
        premise,
        f"the {before} {one} {verb} the {after} {other} {'' if drop == 2 else occasion}.",
    )


def _two_events(rng: random.Random, follows: bool) -> Pair:
    """One of two reported events, or a mixture of both."""
    people, cities = rng.sample(NAMES, 2), rng.sample(words.CITIES, 2)
    jobs, verbs = rng.sample(words.JOBS, 2), rng.sample(words.PEOPLE_VERBS, 2)
    parts = [(people[i], past(verbs[i]), f"a {jobs[i]}", f"in {cities[i]}") for i in (0, 1)]
    link = rng.choice((", and", ", while", "; earlier that week", "; the day before"))
    premise = f"{' '.join(parts[0])}{link} {' '.join(parts[1])}."
    kept = rng.randrange(2)
    told = list(parts[kept])
    if not follows:
        swapped = rng.randrange(4)
        told[swapped] = parts[1 - kept][swapped]
    return premise, " ".join(told) + "."


def _counts(rng: random.Random, follows: bool) -> Pair:
    """An exact number against a bound."""
    group, act = plural(rng.choice(words.JOBS)), past(rng.choice(ACTIONS))
    occasion = rng.choice(words.OCCASIONS)
    count = rng.randrange(4, 19)
    tests: dict[str, Callable[[int], bool]] = {
        "more than": lambda bound: count > bound,
        "fewer than": lambda bound: count < bound,
        "at least": lambda bound: count >= bound,
        "at most": lambda bound: count <= bound,
    }
    comparison = rng.choice(tuple(tests))
    bounds = range(max(2, count - 4), min(20, count + 4) + 1)
    bound = rng.choice([b for b in bounds if tests[comparison](b) == follows])
    premise = f"{rng.choice(('exactly', 'precisely'))} {words.NUMBER_WORDS[count - 2]} {group}"
    hypothesis = f"{comparison} {words.NUMBER_WORDS[bound - 2]} {group}"
    return f"{premise} {act} {occasion}.", f"{hypothesis} {act} {occasion}."


def _quantifiers(rng: random.Random, follows: bool) -> Pair:
    """All implies most implies some, never the other way round."""
    group, act = plural(rng.choice(words.JOBS)), past(rng.choice(ACTIONS))
    place, occasion = rng.choice(words.CITIES), rng.choice(words.OCCASIONS)
    scale = (
        ("all", "every single one"),
        ("most", "more than half"),
        ("some", "at least one"),
    )
    strong, weak = sorted(rng.sample(range(len(scale)), 2))
    rest = f"of the {group} from {place} {act} {occasion}."
    return _turn(
        f"{rng.choice(scale[strong])} {rest}", f"{rng.choice(scale[weak])} {rest}", follows
    )


def _subsets(rng: random.Random, follows: bool) -> Pair:
    """Every and no go down to a subgroup, some goes up from it."""
    job, act = rng.choice(words.JOBS), past(rng.choice(ACTIONS))
    special = f"{rng.choice(words.PEOPLE_ADJECTIVES)} {job}"
    if rng.random() < 0.5:
        special = f"{job} from {rng.choice(words.CITIES)}"
    occasion = rng.choice(words.OCCASIONS)
    determiner, upward = rng.choice((("every", 0), ("no", 0), ("at least one", 1), ("some", 1)))
    wide, narrow = (
        f"{determiner} {job} {act} {occasion}.",
        f"{determiner} {special} {act} {occasion}.",
    )
    return _turn(*((narrow, wide) if upward else (wide, narrow)), follows)


def _circumstances(rng: random.Random, follows: bool) -> Pair:
    """A circumstance may be dropped from what happened and added to what did not."""
    who, act, occasion = rng.choice(NAMES), rng.choice(ACTIONS), rng.choice(words.OCCASIONS)
    day = f"on {rng.choice(words.WEEKDAYS)}"
    if rng.random() < 0.5:
        return _turn(f"{who} {past(act)} {occasion} {day}.", f"{who} {past(act)} {day}.", follows)
    wide, narrow = f"{who} did not {act} {day}.", f"{who} did not {act} {occasion} {day}."
    return _turn(wide, narrow, follows)


def _kinds(rng: random.Random, follows: bool) -> Pair:
    """A violin is an instrument; whoever has no instrument has no violin."""
    kind = rng.choice(tuple(KINDS))
    member, who = rng.choice(KINDS[kind]), rng.choice(NAMES)
    done, bare = rng.choice(SIGHTS)
    where = rng.choice((f"in {rng.choice(words.CITIES)}", rng.choice(words.OCCASIONS)))
    if rng.random() < 0.5:
        return _turn(
            f"{who} {done} a {member} {where}.", f"{who} {done} a {kind} {where}.", follows
        )
    wide, narrow = (
        f"{who} did not {bare} a {kind} {where}.",
        f"{who} did not {bare} a {member} {where}.",
    )
    return _turn(wide, narrow, follows)


def _regions(rng: random.Random, follows: bool) -> Pair:
    """A city lies in its country."""
    (city, country), year = rng.choice(CITY_COUNTRY), rng.randrange(1950, 2020)
    told = f"{rng.choice(NAMES)}, a {rng.choice(words.JOBS)}, {rng.choice(STAYS)} in"
    return _turn(f"{told} {city} in {year}.", f"{told} {country} in {year}.", follows)


def _coordination(rng: random.Random, follows: bool) -> Pair:
    """And implies each part, each part implies or."""
    one, other = rng.sample(NAMES, 2)
    rest = f"{past(rng.choice(ACTIONS))} {rng.choice(words.OCCASIONS)}."
    single = f"{rng.choice((one, other))} {rest}"
    if rng.random() < 0.5:
        return _turn(f"{one} and {other} {rest}", single, follows)
    return _turn(single, f"{one} or {other} {rest}", follows)


def _order(rng: random.Random, follows: bool) -> Pair:
    """Before and after."""
    one, other = rng.sample(NAMES, 2)
    event = rng.choice(MOMENTS)
    early, late = rng.sample(range(1, 12), 2)
    early, late = sorted((early, late))
    told = rng.randrange(3)
    premise = f"{one} {event} {rng.choice(('long', 'shortly', 'just'))} before {other}."
    if told == 1:
        premise = f"{other} {event} after {one}, {rng.choice(words.OCCASIONS)}."
    elif told == 2:
        hours = ("one", *words.NUMBER_WORDS)
        clock = [f"{one} {event} at {hours[early - 1]}", f"{other} did so at {hours[late - 1]}"]
        premise = f"On {rng.choice(words.WEEKDAYS)} morning {clock[0]}, and {clock[1]}."
    first, second = (one, other) if follows else (other, one)
    if rng.random() < 0.5:
        return premise, f"{first} {event} before {second}."
    return premise, f"{second} {event} after {first}."


def _comparison(rng: random.Random, follows: bool) -> Pair:
    """Comparatives chain and have converses."""
    top, middle, bottom = rng.sample(NAMES, 3)
    more, less = rng.choice(SCALES).split("/")
    links = [f"{top} is {more} than {middle}", f"{middle} is {more} than {bottom}"]
    rng.shuffle(links)
    high, low = rng.choice(((top, bottom), (top, middle), (middle, bottom)))
    if not follows:
        high, low = low, high
    claim = (
        f"{high} is {more} than {low}." if rng.random() < 0.5 else f"{low} is {less} than {high}."
    )
    return f"{links[0]}, and {links[1]}.", claim


def _implicatives(rng: random.Random, follows: bool) -> Pair:
    """Managing means doing, failing means not doing."""
    who, task, occasion = rng.choice(NAMES), rng.choice(TASKS), rng.choice(words.OCCASIONS)
    did = rng.random() < 0.5
    verbs = (
        ("managed to", "remembered to", "took the trouble to")
        if did
        else ("failed to", "forgot to", "neglected to", "was unable to")
    )
    outcome = f"{who} {past(task)}" if did == follows else f"{who} did not {task}"
    return f"{who} {rng.choice(verbs)} {task} {occasion}.", f"{outcome} {occasion}."


def _judgements(rng: random.Random, follows: bool) -> Pair:
    """What somebody is right about is true, what somebody is wrong about is not."""
    who, (subject, state) = f"{rng.choice(NAMES)}, a {rng.choice(words.JOBS)},", rng.choice(FACTS)
    true = rng.random() < 0.5
    verbs = (
        ("correctly reported", "rightly pointed out", "was right in saying", "proved")
        if true
        else ("falsely claimed", "wrongly assumed", "was wrong in thinking", "lied when saying")
    )
    outcome = "was" if true == follows else "was not"
    return f"{who} {rng.choice(verbs)} that {subject} was {state}.", f"{subject} {outcome} {state}."


def _exceptions(rng: random.Random, follows: bool) -> Pair:
    """The exception to everybody did not, the exception to nobody did."""
    who, act, occasion = rng.choice(NAMES), rng.choice(ACTIONS), rng.choice(words.OCCASIONS)
    group = rng.choice(words.JOBS)
    did = rng.random() < 0.5
    premise = f"{'no' if did else 'every'} {group} except {who} {past(act)} {occasion}."
    outcome = past(act) if did == follows else f"did not {act}"
    return premise, f"{who} {outcome} {occasion}."


def _everyday(rng: random.Random, follows: bool) -> Pair:
    """A short report, and either its gist or something it does not say.

    As in sentence pairs that people write, what does not follow is often a denial, and what follows
    often leaves the name out; but either may stand in both classes.
    """
    name, other = rng.sample(NAMES, 2)
    verb, another = rng.sample(ACTIONS, 2)
    place, elsewhere = rng.sample(words.OCCASIONS, 2)
    job = rng.choice(words.JOBS)
    opening = rng.choice(("According to the paper,", "We heard that", "It is true that", "Indeed,"))
    denied = rng.random() < 0.15
    premise = f"{opening} {name}, a {job}, {_did(verb, denied)} {place}."
    if follows:
        subject = rng.choice((name, f"a {job}", "somebody")) if not denied else name
        return premise, f"{subject} {_did(verb, denied)} {place}."
    change = rng.choice(("denial", "denial", "denial", "name", "verb", "place"))
    name = other if change == "name" else name
    verb = another if change == "verb" else verb
    place = elsewhere if change == "place" else place
    return premise, f"{name} {_did(verb, denied != (change == 'denial'))} {place}."


def _did(verb: str, denied: bool) -> str:
    return f"did not {verb}" if denied else past(verb)


EVERYDAY = 0.6
"""Share of everyday pairs; the rest is divided among the logical rules."""

RULES = (
    _voice,
    _modifiers,
    _two_events,
    _counts,
    _quantifiers,
    _subsets,
    _circumstances,
    _kinds,
    _regions,
    _coordination,
    _order,
    _comparison,
    _implicatives,
    _judgements,
    _exceptions,
)


def _sample(rng: random.Random, label: int) -> Pair:
    rule = _everyday if rng.random() < EVERYDAY else rng.choice(RULES)
    premise, hypothesis = rule(rng, label == 0)
    return tidy(premise), tidy(hypothesis)


TASK = BuiltinTask(
    name="entailment",
    category="NLU",
    labels=("entailment", "not_entailment"),
    description="whether the second sentence follows from the first",
    pair=True,
    sample=_sample,
)
