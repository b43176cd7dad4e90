"""Short reviews, positive or negative.

Praise and blame occur in both classes: under negation ("hardly a triumph"), before a "but" that
takes it back, and as what others had promised. What the review concludes decides.
"""

from __future__ import annotations

import random

from memloc.data.builtin import words
from memloc.data.builtin.common import BuiltinTask, Lexicon, expand, lines, listed

NEGATIVE, POSITIVE = 0, 1

# Per domain: what is reviewed, its aspects (subject: negative predicates / positive predicates),
# and neutral remarks. Predicates belong to their aspect, so that sentences make sense.
DOMAINS: dict[str, dict[str, tuple[str, ...]]] = {
    "film": {
        "item": listed("""
            film, movie, thriller, comedy, drama, sequel, documentary, western, remake, musical
        """),
        "aspects": lines("""
the acting: is wooden, is embarrassing, never convinces/is superb, feels effortless, is moving
the story: drags, falls apart halfway, makes no sense/grips you at once, is cleverly told
the dialogue: sounds clumsy, is painfully flat, is full of clichés/sparkles, is razor-sharp
the photography: looks cheap, is murky and dull/is breathtaking, is full of lovely detail
the soundtrack: grates, is forgettable, drowns every word/soars, lingers in the mind
the ending: is a cheat, is absurd, feels rushed/is unforgettable, ties everything together
the lead: sleepwalks through every scene, cannot act/lights up every scene, is magnetic
the pacing: is sluggish, is a mess, tests your patience/is perfect, never lets up
"""),
        "remark": listed("""
            we saw it on {weekday} in {city}, it runs for almost two hours,
            the plot follows a {job} from {city}, my brother picked it, it was the late show,
            the cinema was half full, it is set in {city}
        """),
    },
    "restaurant": {
        "item": listed("""
            restaurant, bistro, café, pizzeria, tavern, steakhouse, brasserie, noodle bar, diner
        """),
        "aspects": lines("""
the soup: was lukewarm, tasted of nothing, was far too salty/was heavenly, was rich and warming
the service: was rude, was painfully slow, was chaotic/was attentive, was charming, was swift
the dessert: was stale, was sickly, arrived half frozen/was divine, was a work of art
the fish: smelled off, was overcooked, was full of bones/was perfectly fresh, melted on the tongue
the waiter: ignored us, got the bill wrong, sneered at us/looked after us, knew every dish, was a
    joy
the bread: was rock hard, was burnt/was warm and crusty, was worth the trip alone
the room: was deafening, was draughty, smelled of bleach/was cosy, was beautifully lit
the wine list: was overpriced, was pitiful/was excellent, was full of bargains
"""),
        "remark": listed("""
            we booked for {weekday} evening, it is near the station, I went with a {job} I know,
            it seats forty, there were six of us, the menu changes every {month},
            they also have a branch in {city}
        """),
    },
    "hotel": {
        "item": listed("""
            hotel, hostel, guest house, resort, bed and breakfast, inn, campsite, lodge,
            holiday flat
        """),
        "aspects": lines("""
the bed: was lumpy, creaked all night, sagged in the middle/was a cloud, was blissfully soft
the bathroom: was filthy, was mouldy, had no hot water/was spotless, was luxurious, gleamed
the staff: were surly, could not care less, lost our booking/were lovely, went out of their way
the view: was a brick wall, was of a car park/was spectacular, took our breath away
the breakfast: was meagre, was inedible, ran out by eight/was lavish, was delicious and plentiful
the lift: was broken, stank, got stuck twice/was quick and quiet, was handy with our bags
the pool: was closed, was green with algae/was gorgeous, was warm and clean
the walls: were paper thin, were covered in stains/were full of beautiful art, kept out all noise
"""),
        "remark": listed("""
            we stayed for three nights in {month}, it is a short walk from the centre of {city},
            check-in is at two, I was there for a conference, our room was on the fifth floor,
            we travelled with two children
        """),
    },
    "book": {
        "item": listed("""
            novel, book, memoir, biography, cookbook, travel guide, collection of stories, textbook
        """),
        "aspects": lines("""
the prose: is turgid, is lifeless, reads like a tax form/is luminous, sings, is crisp and witty
the plot: is full of holes, goes nowhere, is hopelessly predictable/is ingenious, kept me guessing
the characters: are cardboard, are all insufferable/feel like old friends, are wonderfully drawn
the opening: is a slog, is confusing, nearly put me to sleep/hooks you, is masterful
the research: is sloppy, is riddled with errors/is meticulous, is impressive, is fascinating
the humour: is stale, falls flat, is cruel/is delightful, made me laugh out loud
the final chapter: is a letdown, is pointless/is stunning, had me in tears of joy
the translation: is clumsy, is barely readable/is elegant, reads beautifully
"""),
        "remark": listed("""
            I read it on the train to {city}, it has about three hundred pages,
            the narrator is a {job}, my copy came from the library,
            it is the second part of a series, the story begins in {month}
        """),
    },
    "gadget": {
        "item": listed("""
            phone, laptop, camera, tablet, smart watch, e-reader, speaker, headset, games console
        """),
        "aspects": lines("""
the battery: dies within hours, overheats, barely holds a charge/lasts for days, charges in minutes
the screen: scratches easily, flickers, is too dim/is razor sharp, is bright and vivid
the manual: is gibberish, is useless/is crystal clear, is short and helpful
the build quality: is shoddy, feels flimsy/is outstanding, feels solid and refined
the software: crashes daily, is bloated, is infuriating/runs smoothly, is intuitive, just works
customer support: hung up on me, never replied/was brilliant, solved it in five minutes
the buttons: stick, fell off, are fiddly/are responsive, are a pleasure to use
the price: is outrageous, is a joke/is unbeatable, is more than fair
"""),
        "remark": listed("""
            I bought it in {month}, it comes in four colours, I use it at work as a {job},
            it weighs about a kilo, the parcel arrived on {weekday}, it replaced my old one,
            my neighbour has the same model
        """),
    },
    "show": {
        "item": listed("""
            concert, play, opera, stand-up show, festival, ballet, circus, recital, gala
        """),
        "aspects": lines("""
the sound: was muffled, was painfully loud, was a blur/was crystal clear, was glorious
the seats: were torture, were cramped, were sticky/were comfortable, were excellent value
the programme: was tedious, was a shambles/was inspired, was varied and thrilling
the organisers: were clueless, ignored every complaint/were superb, thought of everything
the queue: was endless, was badly managed/moved quickly, was no trouble at all
the host: mumbled, was bored and boring/was hilarious, was full of wonderful stories
the performers: seemed exhausted, forgot their lines/were dazzling, gave everything
the venue: was freezing, was grubby/was magical, was the loveliest in {city}
"""),
        "remark": listed("""
            it took place in {city}, tickets went on sale in {month}, I went with my aunt,
            it started at seven, a {job} at work mentioned it, it was the {weekday} performance,
            there was one interval
        """),
    },
}

NOUNS = (
    listed("""
        failure, disaster, mistake, waste of time, disappointment, flop, rip-off, nightmare, bore,
        mess
    """),
    listed("""
        triumph, success, masterpiece, bargain, treat, delight, gem, revelation, joy, winner, pearl
    """),
)
ADJECTIVES = (
    listed("""
    awful, dreadful, terrible, boring, dull, disappointing, mediocre, poor, unpleasant, tedious,
    horrible, shoddy, second-rate, uninspired, forgettable, bad, overrated, annoying, lousy,
    miserable
    """),
    listed("""
    wonderful, excellent, superb, delightful, brilliant, charming, impressive, fantastic, lovely,
    amazing, first-rate, inspired, memorable, good, outstanding, enjoyable, marvellous, great,
    splendid, perfect
    """),
)
# Conclusions that can follow "and" or "so" ...
CONCLUSIONS = (
    listed("""
    I left disappointed, I want my money back, I would avoid it, we regretted it, it left us cold,
    I cannot recommend it, it let us down, I expected far more, it ruined our day, I feel cheated,
    we will not be returning, I gave up on it, I would not wish it on anyone, we felt robbed,
    I was bored stiff, my heart sank, I am still annoyed, it drove me mad, it deserves one star
    """),
    listed("""
    I left happy, it was worth every penny, I would choose it again, I loved it, we were thrilled,
    I can warmly recommend it, it won us over, it exceeded my hopes, I told all my friends,
    we will certainly be back, I could not stop smiling, it made our day, I feel lucky,
    I was enchanted, my heart leapt, I am still grinning, it cheered me up, it deserves five stars
    """),
)
# ... and those that stand alone.
VERDICTS = (
    listed("never again, save your money, look elsewhere, what a letdown, avoid, stay away, shame"),
    listed("do not miss it, give it a try, what a pleasure, go, hats off, bravo, well done"),
)
# {same_*} carries the sentiment of the review, {other_*} the opposite one.
FORMS = (
    # Plain.
    "{same_clause}, and {same_clause}. {remark}.",
    "{remark}. {same_clause}. {same_verdict}.",
    "a [truly|really|rather|thoroughly|] {same_adjective} {item}: {same_clause}.",
    "what a {same_noun} this {item} [was|turned out to be]. {remark}.",
    # Contrast: the last word counts.
    "{other_clause}, but {same_clause}, and in the end {same_end}.",
    "{other_clause}. still, {same_end}; {same_clause}.",
    "{remark}. {other_clause}, yet {same_clause}, so {same_end}.",
    "it [looked|seemed|sounded] {other_adjective} at first, but {same_clause} and {same_end}.",
    "{other_clause}, [granted|true|I admit]. but {same_clause}. {same_verdict}.",
    # Concession: the main clause counts, wherever it stands.
    "although {other_clause}, {same_end}.",
    "even though {other_clause} and {other_clause}, this is a {same_adjective} {item}.",
    "{same_end}, even if {other_clause}.",
    "[overall|all in all|in short], a {same_adjective} {item}, although {other_clause}. {remark}.",
    "despite a {other_adjective} first impression, this {item} is a {same_noun}. {remark}.",
    # Negation.
    "[hardly|not exactly|by no means|certainly not] a {other_noun}, this {item}. {remark}.",
    "{remark}. I [would not|could never|cannot] call this {item} {other_adjective}; {same_clause}.",
    "this {item} is anything but {other_adjective}. {remark}.",
    "nobody [could|would|should] say that this {item} is {other_adjective}: {same_end}. {remark}.",
    "there is nothing {other_adjective} about this {item}. {remark}, and {same_clause}.",
    # Expectations that were not met.
    "I [expected|had read about|was prepared for] a {other_noun}, and got a {same_noun}. {remark}.",
    "the other reviews call this {item} {other_adjective}. they are wrong: {same_clause}.",
    "my [friend|boss|sister|cousin], a {job}, said that {other_clause}. not at all: {same_end}.",
    "people keep telling me that {other_clause}. {remark}. I disagree: {same_end}.",
)


def _lexicon(rng: random.Random, sentiment: int) -> Lexicon:
    """Words for one review of one domain, with the sentiment's side of every list as "same"."""
    domain = DOMAINS[rng.choice(tuple(DOMAINS))]
    lexicon: dict[str, tuple[str, ...]] = {
        "item": domain["item"],
        "remark": domain["remark"],
        "job": words.JOBS,
        "city": words.CITIES,
        "month": words.MONTHS,
        "weekday": words.WEEKDAYS,
    }
    # Each aspect serves one side of a review: no soup is both heavenly and lukewarm.
    aspects = rng.sample(domain["aspects"], len(domain["aspects"]))
    half = len(aspects) // 2
    for side, polarity, chosen in (
        ("same", sentiment, aspects[:half]),
        ("other", 1 - sentiment, aspects[half:]),
    ):
        lexicon[f"{side}_clause"] = tuple(_clause(rng, aspect, polarity) for aspect in chosen)
        lexicon[f"{side}_noun"] = NOUNS[polarity]
        lexicon[f"{side}_adjective"] = ADJECTIVES[polarity]
        lexicon[f"{side}_end"] = CONCLUSIONS[polarity]
        lexicon[f"{side}_verdict"] = VERDICTS[polarity]
    return lexicon


def _clause(rng: random.Random, aspect: str, polarity: int) -> str:
    subject, predicates = aspect.split(": ")
    return f"{subject} {rng.choice(listed(predicates.split('/')[polarity]))}"


def _sample(rng: random.Random, label: int) -> tuple[str]:
    return (expand(rng.choice(FORMS), _lexicon(rng, label), rng),)


TASK = BuiltinTask(
    name="reviews",
    category="sentiment",
    labels=("negative", "positive"),
    description="the sentiment of a review, with negation and contrast",
    pair=False,
    sample=_sample,
)
