"""Word lists of the acceptability task: what its frames are filled with."""

from __future__ import annotations

from memloc.data.builtin.common import listed

STRICT_VERBS = listed("""
praise, invite, admire, thank, accuse, rescue, blame, recognise, employ, greet, replace, welcome,
honour, contact, ignore, mention, dismiss, appoint, arrest, embrace
""")
"""Verbs that cannot go without their object ("when did she help?" would be fine)."""

SELF_VERBS = listed("""
praise, criticise, blame, admire, defend, photograph, surprise, amuse, encourage, disappoint,
mention, rescue, question, trust, help, impress, dislike, support, insult, entertain, accuse,
challenge
""")
"""Verbs for what people do to themselves."""

PREPOSITIONS = listed("near, behind, beside, next to, in front of, opposite")
STATES = listed("""
missing, famous, late, ready, very old, in danger, on fire, out of date, popular, unusual, for sale,
in good condition, covered in dust, difficult to find, easy to forget,
more interesting than expected
""")
HABITS = listed("""
sing, smile, complain, laugh, cook, travel, dance, shout, argue, cheat, apologise, whistle, read,
write, work, vote, rest, panic, gamble, cough, dream, snore, pray, joke, hesitate, stumble, exercise
""")
IRREGULAR = tuple(
    (*forms.split("/"), thing)
    for forms, things in {
        "write/wrote/written": "a novel, the report, several letters, an opera",
        "eat/ate/eaten": "the soup, two pancakes, an orange, the last biscuit",
        "break/broke/broken": "the window, a vase, the world record, a promise",
        "steal/stole/stolen": "the jewels, a bicycle, the recipe, some apples",
        "take/took/taken": "the train, a photograph, the keys, an umbrella",
        "choose/chose/chosen": "a name, the curtains, a smaller flat, the winner",
        "drive/drove/driven": "the lorry, a tractor, the old taxi, the ambulance",
        "ride/rode/ridden": "the pony, a camel, the motorbike, an elephant",
        "give/gave/given": "a speech, some advice, a concert, the answer",
        "see/saw/seen": "the eclipse, a ghost, the parade, an otter",
        "draw/drew/drawn": "a circle, the skyline, a map, a dragon",
        "begin/began/begun": "the lesson, a diary, the descent, the repairs",
        "fly/flew/flown": "a kite, the helicopter, the old glider, a drone",
        "throw/threw/thrown": "a stone, the ball, a party, the javelin",
        "wear/wore/worn": "a wig, the uniform, a velvet jacket, sandals",
    }.items()
    for thing in listed(things)
)
TRANSITIVE = listed("""
devoured the pie, repaired the roof, wrapped the parcel, described the accident,
destroyed the evidence, invented the device, purchased the farm, discovered the cave,
abandoned the yacht, rejected the offer, demolished the shed, carried the trunk, mended the sail,
locked the drawer, acquired the estate
""")
INTRANSITIVE = listed("""
slept, arrived, vanished, sneezed, fainted, disappeared, smiled, hesitated, yawned, laughed,
existed, shivered, blinked, perished, emigrated, waited
""")
PLACES = listed("""
on the shelf, under the bed, in the cellar, on the roof, behind the sofa, in the drawer,
by the door, on the counter, in the attic, beneath the stairs, on the windowsill, in the garage
""")
COUNTABLE = listed(
    "chairs, coins, tools, songs, bridges, jewels, suitcases, facts, potatoes, cars, jobs"
)
MASS = listed(
    "furniture, money, equipment, music, rain, luggage, information, rice, traffic, work, sand"
)
TO_VERBS = listed("want, hope, decide, promise, expect, refuse, agree, pretend, threaten")
ING_VERBS = listed("enjoy, avoid, dislike, resent, miss, suggest, postpone, consider, imagine")
PURSUITS = listed("""
sail boats, play chess, paint portraits, cook dinner, read poetry, climb mountains, watch trains,
collect stamps, clean windows, teach chemistry, visit museums, grow tomatoes, repair clocks,
walk home, sing duets, build models, write letters, bake bread, hunt mushrooms, drive tractors
""")
SCALES = tuple(
    tuple(pair.split("/"))
    for pair in listed("""
tall/taller, old/older, fast/faster, strong/stronger, rich/richer, loud/louder, brave/braver,
kind/kinder, clever/cleverer, quick/quicker, heavy/heavier, happy/happier, slow/slower,
young/younger, wise/wiser
""")
)
ADVERBS = listed("""
carefully, quickly, secretly, proudly, slowly, happily, quietly, suddenly, eagerly, calmly, angrily,
foolishly, gently, nervously, bravely, politely, cheerfully, reluctantly, accidentally, patiently
""")
DESTINATIONS = listed("""
library, station, harbour, theatre, museum, airport, bakery, cathedral, stadium, embassy, pharmacy,
garden
""")
TIMES = listed("""
before breakfast, after lunch, at noon, in the evening, on Sunday, at midnight, before sunrise,
at once
""")
GIVEN = listed("a painting, a cheque, a piano, an old map, a rare stamp, some books, a silver coin")
