"""Questions by the kind of answer they ask for, in the manner of a general-knowledge quiz.

The question word alone does not decide: "what" and "which" occur in all classes, and the nouns that
would decide ("city", "year", "scientist") also occur where they are not what is asked for.
"""

from __future__ import annotations

import random

from memloc.data.builtin import words
from memloc.data.builtin.common import BuiltinTask, expand, lines, listed, plural

LABELS = ("abbreviation", "description", "entity", "human", "location", "number")

ACRONYMS = listed("""
NASA, FBI, CIA, DNA, RNA, NATO, UNESCO, UNICEF, OPEC, WHO, IMF, BBC, CNN, HTML, HTTP, PDF, USB, RAM,
ROM, CPU, GPU, LED, LCD, GPS, ATM, PIN, VAT, GDP, CEO, CFO, PhD, MBA, MRI, HIV, AIDS, SARS, ADHD,
UFO, RSVP, ASAP, FAQ, DIY, VIP, SOS, SQL, XML, URL, VPN, WWW, IBM, BMW, IKEA, KLM, FIFA, UEFA, NBA,
NFL, MIT, EU, ASEAN, NAFTA, CERN, ESA, LASER, RADAR, SONAR, SCUBA, CFC, BPM, RPM, BCE, EEG, ECG,
ICU, GIF, JPEG, MP3, DVD, FM, AM, IQ, PTO, ETA, IOU, TNT, UV, BIOS, ISBN, RSPCA, UPS, EPA, FDA, KPI,
HR
""")
LONG_NAMES = listed("""
the World Trade Organization, kilometres per hour, the United Nations, random access memory,
the European Central Bank, the Red Cross, chief executive officer, the Royal Air Force, megabyte,
the International Space Station, Doctor of Philosophy, hydrogen peroxide, the state of California,
the Metropolitan Museum, pound sterling, ante meridiem, the Football Association, milligram,
the African Union, public limited company, estimated time of arrival, the New Testament, Mister,
the University of Oxford, British Columbia, gross domestic product, the Supreme Court, potassium,
extended play record, the Dewey Decimal system, frequently asked questions, the Ministry of Defence
""")
ORGANISATIONS = listed("""
NASA, the FBI, the CIA, NATO, UNESCO, UNICEF, OPEC, the IMF, the BBC, CNN, IBM, BMW, IKEA, KLM,
FIFA, UEFA, MIT, CERN, ESA, the RSPCA, ASEAN, the Red Cross, the United Nations, the African Union,
the University of Oxford
""")
PEOPLE = listed("""
Marie Curie, Isaac Newton, Charles Darwin, Albert Einstein, Galileo, Leonardo da Vinci, Mozart,
Beethoven, Shakespeare, Charles Dickens, Jane Austen, Napoleon, Cleopatra, Julius Caesar, Gandhi,
Nelson Mandela, Abraham Lincoln, Winston Churchill, Queen Victoria, Christopher Columbus,
Marco Polo, Vasco da Gama, Amelia Earhart, Neil Armstrong, Florence Nightingale, Frida Kahlo,
Pablo Picasso, Vincent van Gogh, Rembrandt, Thomas Edison, Nikola Tesla, Alexander Fleming,
Louis Pasteur, Ada Lovelace, Alan Turing, Leo Tolstoy, Confucius, Socrates, Aristotle, Joan of Arc,
Genghis Khan, Simon Bolivar, Karl Marx, Sigmund Freud, Johann Sebastian Bach, Rosa Parks,
Muhammad Ali, Pele, Mark Twain, Ernest Hemingway, Agatha Christie, Virginia Woolf, Franz Kafka,
Archimedes, Copernicus
""")
INVENTIONS = listed("""
telephone, light bulb, steam engine, printing press, microscope, telescope, typewriter,
zip fastener, bicycle, sewing machine, parachute, thermometer, barometer, safety razor,
ballpoint pen, jet engine, helicopter, television, transistor, vacuum cleaner, refrigerator,
dishwasher, stethoscope, hovercraft, submarine, electric guitar, saxophone, fire extinguisher,
lawn mower, pacemaker, lightning rod, abacus
""")
ANIMALS = listed("""
kangaroo, giraffe, penguin, octopus, elephant, hedgehog, polar bear, blue whale, chimpanzee,
crocodile, flamingo, hummingbird, jellyfish, koala, leopard, moose, ostrich, panda, porcupine,
raccoon, reindeer, salmon, scorpion, seahorse, snow leopard, squirrel, tortoise, vulture, walrus,
wolverine, zebra, bat, camel, cheetah, dolphin, falcon, gorilla, hippopotamus, lobster, owl,
platypus, rattlesnake, tiger
""")
SPORTS = listed("""
cricket, badminton, basketball, rugby, tennis, volleyball, water polo, fencing, archery, curling,
judo, gymnastics, ice hockey, lacrosse, rowing, sailing, table tennis, weightlifting, wrestling,
golf, polo
""")
SUBSTANCES = listed("""
gold, silver, copper, mercury, uranium, helium, oxygen, nitrogen, chlorine, iron, aluminium, carbon,
sulphur, calcium, salt, glass, paper, cement, rubber, silk, amber, porcelain, petrol, soap,
penicillin
""")
DISHES = listed("""
sushi, goulash, paella, pizza, hummus, borscht, couscous, haggis, kimchi, moussaka, ravioli,
risotto, tiramisu, tortillas, curry, baklava, croissants, dumplings, gazpacho, fondue, ceviche,
marzipan
""")
CONCEPTS = listed("""
photosynthesis, inflation, gravity, osmosis, democracy, insulin, plate tectonics, evolution,
erosion, the greenhouse effect, nuclear fusion, a black hole, a solar eclipse, an earthquake,
the gold standard, a tax haven, a sonnet, a fugue, a haiku, the Doppler effect, radioactivity,
hibernation, metamorphosis, the placebo effect, stainless steel, cubism, stoicism, feudalism,
a referendum, a mortgage, a tsunami, jet lag, hypnosis, asthma, malaria, diabetes, anaemia,
dyslexia, an allergy, a migraine, a prime number
""")
BOOKS = listed("""
War and Peace, Hamlet, Moby Dick, Don Quixote, Frankenstein, Dracula, Oliver Twist, Emma, Ulysses,
The Odyssey, Treasure Island, Animal Farm, Dubliners, The Trial, Middlemarch, Jane Eyre, Macbeth
""")
WORKS = listed("""
the Mona Lisa, Guernica, The Night Watch, The Scream, The Magic Flute, Swan Lake, The Four Seasons,
the Moonlight Sonata, Carmen, The Birth of Venus, The Starry Night, The Nutcracker, Citizen Kane
""")
EVENTS = listed("""
the French Revolution, the First World War, the American Civil War, the Cold War,
the Great Depression, the Black Death, the Boston Tea Party, the Battle of Waterloo,
the Battle of Hastings, the moon landing, the fall of the Berlin Wall, the Great Fire of London,
the Russian Revolution, the Wall Street Crash, the Cuban missile crisis, the Congress of Vienna,
the California Gold Rush, the Boer War, the Renaissance, the Industrial Revolution,
the first modern Olympics, the Suez crisis, the eruption of Vesuvius
""")
LANDMARKS = listed("""
the Eiffel Tower, the Taj Mahal, the Great Wall of China, Machu Picchu, the Colosseum, Stonehenge,
the Acropolis, the Golden Gate Bridge, Big Ben, the Statue of Liberty, the Kremlin, Angkor Wat,
Petra, the Alhambra, the Louvre, Mount Rushmore, the Panama Canal, the Suez Canal, Easter Island,
the Sphinx, Victoria Falls, the Grand Canyon, the Dead Sea, Lake Baikal, Mount Everest, Kilimanjaro,
the Matterhorn
""")
RIVERS = listed("""
Nile, Amazon, Danube, Rhine, Mississippi, Ganges, Yangtze, Volga, Thames, Seine, Mekong, Congo,
Zambezi, Indus, Tigris, Euphrates, Loire, Elbe, Rhone, Murray, Orinoco, Niger, Yukon, Jordan, Douro,
Vistula
""")
PLACE_NOUNS = listed("""
city, country, town, island, river, mountain range, desert, state, province, village, lake,
continent, capital, port, valley, street, region, kingdom, bay, peninsula, planet
""")
ROLES = listed("""
explorer, scientist, inventor, emperor, queen, president, general, philosopher, physicist,
astronomer, composer, painter, novelist, poet, architect, mathematician, chemist, economist,
dictator, astronaut, tennis player, boxer, film director, actress, singer, prime minister, king,
pope, missionary, spy
""")
NATURE = listed("""
animal, bird, metal, plant, tree, gemstone, insect, fruit, vegetable, gas, disease, fish, flower,
planet
""")
CULTURE = listed("""
language, novel, sport, dance, card game, board game, musical instrument, film, newspaper, religion,
song, opera, poem, colour, festival, hat, sauce, ship, prize
""")
GOODS = listed("""
fabric, drink, cheese, tool, weapon, spice, wine, medicine, brand of car, dog breed, perfume, clock,
toy
""")
HUMAN = """
who [invented|patented|first built] the {invention}?
who [discovered|first described|first produced|imported] {substance}?
who [wrote|illustrated|translated|first published] {book}?
who was the {ordinal} [president|king|queen|prime minister] of {country}?
who was the first [woman|man|person|{role}] to [visit|sketch|map|photograph|describe] {landmark}?
which {role} [wrote|loved|banned|admired] {book}?
which {role} [designed|visited|painted|saved|described] {landmark}?
which {role} was born in [the city of|] {city} in {year}?
what {role} [lived|died|studied|worked] in {city} [for many years|in secret|in the year {year}]?
what is the name of the {role} who [ruled|explored|left|united] {country} [in {year}|for many
    years|]?
what was the real name of the {role} [from|who moved to|who fled from] {city}?
name the {role} who [led|inspired|opposed|reported on|predicted] {event}.
name a [famous|well-known|living|rich] {role} from {country} [|who speaks many languages].
by whom was [{work}|the {invention}|{landmark}] [created|made famous|first described|criticised]?
whose [portrait|face|name] appears on the [coins|stamps|money|currency] of {country}?
who [coached|captained|played {sport} for] the national team of {country} in {recent}?
what [team|group of people|tribe|family|{role}] [visited|described|sketched|photographed] {landmark}
    in {year}?
which [company|organisation|university|newspaper] [sold|tested|marketed] the first {invention}?
who is the [patron saint|national hero|richest citizen|youngest minister] of {country}?
who [founded|runs|leads|funds] {org} [|and in which country was this person born]?
what {role} said that {concept} was [a mystery|an illusion|dangerous|simple]?
who [married|taught|succeeded|painted|betrayed|accompanied] {person} [|in {city}|in secret|for
    money]?
which {role} was a [friend|rival|pupil|cousin|teacher] of {person}?
to whom did {person} [dedicate a book|leave a fortune|write from {city}|sell the {invention}]?
tell me which {role} [named|drew|studied|tamed] the {animal} [in {country}|].
"""
LOCATION = """
where [was the first {invention} built|is the oldest {invention} displayed|did people first use the
    {invention}]?
where is {landmark}?
where did {event} [begin|end|take place]?
where was {person} [born|buried|educated|imprisoned|married]?
where can [I|you|a tourist|a {role}] [photograph a wild {animal}|buy {dish}|find {substance}|play
    {sport}]?
where do most [wild {animals}|makers of {substance}|players of {sport}] live?
what {settlement} was [visited by|home to|named after] {person}?
what {place_noun} [lies|is found] [near|north of|south of|between {country} and] {landmark}?
which {settlement} is [famous for|known for] its [{animals}|{dish}|{substance}]?
which {place_noun} did the {role} [leave|rule|explore|map|reach] in {year}?
which [country|nation|state] [won|hosted|boycotted] the {sport} [championship|world cup] in
    {recent}?
which [country|city] [invented|is the home of] {dish} [|and is loved by many a {role}]?
name the {settlement} where {person} [lived|died|worked|met a {role}|wrote a book].
name a [city|town|village|river|valley|region] in {country} [|with a famous {role}|with many
    {animals}].
what is the [capital|largest city|highest mountain|longest river|main port] of {country}?
in [what|which] {place_noun} is {landmark}?
in [what|which] [city|town] was the {role} [born|murdered|elected|arrested] in {year}?
from which [country|continent|region|island] does [the recipe for {dish}|the {animal}|the
    {invention}|the sport of {sport}] [originally|] come?
through which [countries|cities|country|valley] does the {river} [river|] flow?
what [sea|ocean|body of water] does the {river} flow into?
into what [sea|ocean|bay] does the {river} flow [after its long journey|]?
which [countries|states] [border|lie next to|trade most with] {country}?
where [are|were] the [first|new|] headquarters of {org}?
on which [continent|island|coast] would you [find|photograph|look for]
    [{animals}|{landmark}|{substance}]?
tell me in which {settlement} {event} [started|ended|was planned].
"""
NUMBER = """
how many [people|{roles}|{animals}] [live|lived] in {country} [|in {year}|before {event}]?
how many [{animals}|cities|languages|islands|rivers|museums] are there in {country}?
how many [books|houses|children|brothers|servants] did {person} have [|in {city}]?
how many [players|referees|points|minutes] are there in a [game|match] of {sport}?
how many [letters|syllables|words] does the [abbreviation|name|word] {acronym} have?
how [tall|heavy|fast|long] is [a|the average] {animal}?
how [old|high|far away|large|wide] is {landmark}?
how old was {person} [at the time of death|on arriving in {city}|when success came|on leaving
    school]?
how much [does|did] [a {invention}|a ticket to {landmark}|a kilo of {substance}] cost [in {year}|in
    {country}]?
how [long|deep|wide] is the {river} [river|]?
how far is {city} from {city}?
how long did {event} last?
what is the [population|area|average income|inflation rate|speed limit] [of|in] {country}?
what is the [height|age|length|weight] of [{landmark}|a {animal}|the average {animal}]?
what is the [boiling point|atomic number|density|price|melting point] of {substance}?
what is the [gestation period|top speed|life span|body temperature] of a {animal}?
what [percentage|share|fraction|number] of [people|{roles}|families] in {country} [eat {dish}|own a
    {invention}|have tried {dish}|play {sport}]?
what [year|century|decade] saw the [beginning|end|outbreak] of {event}?
in [what|which] year was the [first|fastest|cheapest] {invention} [made|sold|shown in {city}]?
in [what|which] [year|month|decade] did {person} [visit|leave|move to|write about] {city}?
when [was {book} published|was {book} banned in {country}|did {person} read {book}]?
when [was {org} founded|did people in {country} first hear of {org}|did the {role} join {org}]?
when did [{country} win its independence|{event} begin|{person} die|{city} get its name]?
at what [age do most {roles} retire|time do {animals} sleep|speed can a {animal} run|age did
    {person} come to {city}]?
name the year in which [{event} ended|the {role} left {city}|{person} became famous].
tell me the number of [{animals}|{roles}|cities] in {country} [in {year}|].
"""
ENTITY = """
what {culture} is [named after|most often linked with] {person}?
what {goods} did the {role} [bring|export|send] [to {city}|from {country}|to {country}]?
what {entity_noun} comes from {country} [|and is loved in {city}]?
which {entity_noun} is [popular|common|rare|banned|sacred] in {country}?
which [{nature} was discovered|{culture} was banned|{goods} was stolen] in {year} [|by a {role}]?
which [{nature}|{culture}|{goods}] did {person} [love|hate|choose|write about|prefer]?
which [animal|bird|mammal] [eats|hunts|fears|looks like] the {animal}?
what [do|can] {animals} [eat|drink|hunt] [in winter|in {country}|at night]?
what [is|was] the [favourite|national|most popular] {goods} of [{country}|{person}|the people of
    {city}]?
what [is|was] the name of [the ship|the dog|the horse|the first novel] [of|that belonged to]
    {person}?
name a {entity_noun} [that begins with the letter B|that is found in {country}|that {roles} use].
name the {goods} [that|which] {person} [invented|described|carried|sold] [in {city}|].
what [language|languages] do [people|{roles}|children] [speak|learn|read] in {city}?
what [currency|money|language] is used in {country} [|by most {roles}]?
what [colour|animal|plant|shape] is on the [flag|coins|stamps|coat of arms] of {country}?
what [material|metal|stone] is [{landmark}|the {invention}] made of?
what [instrument|tool|machine] [did|does] a {role} use to [measure|make|test] {substance}?
what [prize|award|disease|nickname|present] did {person} get [in {city}|from the {role}]?
what [sport|game] is played [by most {roles} in {country}|with a ball in {city}|in {city} every
    year]?
what [film|song|opera|poem] [tells the story of|is about] {event}?
what [ingredient|spice|drink|wine] goes [well|best] with {dish}?
what [crop|product|mineral|fish] does {country} [export|import|sell] [to {country}|]?
of what [{nature}|{culture}|{goods}] was {person} [especially|particularly|always] fond?
with which [weapon|tool|poison|trick] was the {role} [killed|threatened|wounded] in {city}?
what [material|metal|plant|rock] is needed to make [a {invention}|{substance}]?
tell me which {nature} [frightens {animals}|{animals} avoid|{person} drew|is common in {country}].
"""
DESCRIPTION = """
why did {person} [leave|visit|hate|write about|return to] [{city}|{country}]?
why [do|don't] {animals} [sleep so little|live in groups|change colour|avoid people|sing at night]?
why [is|was] the {role} [so famous|expelled|remembered] in {city}?
why is {substance} [so expensive|used in every {invention}|dangerous|found in {country}]?
how does a {invention} work?
how do {animals} [survive the winter|find food|raise their young|communicate|protect themselves]?
how did [{person}|the {role}] [become famous|escape from {city}|discover {substance}|die in {year}]?
how [is|was] [{substance}|{dish}] [made|prepared|stored|sold] [in {country}|]?
how do you [learn {sport}|cook {dish}|repair a {invention}|get from {city} to {city}|train a
    {animal}]?
what is {concept}?
what [causes|prevents|explains] {concept} [|in simple words|according to the {role}]?
what is the [meaning|origin|history|definition] of [the word|the name|the term]
    "[{invention}|{animal}|{dish}|{river}]"?
what is the [difference|relationship] between [{sport} and {sport}|a {animal} and a
    {animal}|{substance} and {substance}]?
what does [a {role}|{org}|the president of {country}] do [all day|in {country}|every year]?
what [happened to|was so special about] [{person}|the {role} from {city}|the first {invention}]?
what [were the causes|was the outcome|was the purpose] of {event}?
what [effect|influence] did {event} have on [{country}|{sport}|the {role}|{person}]?
what [made|makes] {landmark} [famous|collapse|so hard to reach]?
what are the [risks|advantages|dangers|benefits] of [{sport}|owning a {animal}|eating {dish}|using
    {substance}]?
what [reason|explanation] did {person} give for [leaving {city}|selling the {invention}|joining
    {org}]?
what is [it like to live|the best way to travel] in {country} [|as a {role}]?
describe [the history of {landmark}|how a {invention} works|the character of {person}|life in {city}
    in {year}].
explain [why {animals} live in {country}|what {concept} is|how {event} began|who may join {org} and
    why].
in what way did {person} [change|influence|describe] [{city}|{country}|{sport}|the {invention}]?
tell me [why|how] {event} [started|changed {country}|is still remembered in {city}].
"""
ABBREVIATION = """
what does {acronym} stand for [|{field}|on a {label}]?
what do the letters {acronym} [mean|stand for] [|{field}|on a {label}|in {country}]?
what is the [full form|long form|expansion] of {acronym} [|{field}|as used in {country}]?
what is [the name {acronym}|{acronym}|the term {acronym}] short for [|{field}]?
what do {roles} mean when they write {acronym}?
what does a {role} mean by the letters {acronym}?
which words [make up|are behind|hide in] the [acronym|name|abbreviation] {acronym} [|{field}]?
which [name|words] did {roles} in {country} shorten to {acronym}?
how [is "{long_name}" abbreviated in {country}|do people abbreviate "{long_name}"|do {roles} shorten
    "{long_name}"]?
what is the [abbreviation|acronym|short form|usual symbol] [for|of] {long_name} [|{field}|in
    {country}]?
what [abbreviation|acronym|symbol|short form] [do {roles} use|is used] for {long_name}?
which letters [stand for|abbreviate] {long_name} [|{field}|in {city}|on a {label}]?
spell out the [acronym|abbreviation|letters|name] {acronym} [|for a {role}|as used {field}].
give the [short form|abbreviation|initials] [of|for] {long_name} [|as used {field}|as used in
    {country}].
when people in {country} say {acronym}, what do the letters [mean|stand for]?
{field}, what does {acronym} [mean when it is spelled out|stand for]?
tell me what {acronym} [stands for|is an abbreviation of|means in full] [|{field}].
who or what do the initials {acronym} [stand for|represent] [|{field}|in {country}|in {city}]?
"""
# Openings that fit any question, so that neither the first word nor a telling noun is a sure sign.
OPENINGS = lines("""
quick question:
for a school project about {subject}:
one for the quiz team:
from a crossword about {subject}:
a question from my [daughter|teacher|neighbour|uncle]:
just wondering:
after reading a book about {subject}, I wonder:
here is a tricky one about {subject}:
trivia time:
you know a lot about {subject}, so tell me:
""")

TEMPLATES = tuple(
    lines(block) for block in (ABBREVIATION, DESCRIPTION, ENTITY, HUMAN, LOCATION, NUMBER)
)
LEXICON = {
    "acronym": ACRONYMS,
    "org": ORGANISATIONS,
    "long_name": LONG_NAMES,
    "person": PEOPLE,
    "invention": INVENTIONS,
    "animal": ANIMALS,
    "animals": tuple(
        name if name in ("salmon", "moose", "reindeer", "jellyfish") else plural(name)
        for name in ANIMALS
    ),
    "sport": SPORTS,
    "substance": SUBSTANCES,
    "dish": DISHES,
    "concept": CONCEPTS,
    "book": BOOKS,
    "work": WORKS,
    "event": EVENTS,
    "landmark": LANDMARKS,
    "river": RIVERS,
    "place_noun": PLACE_NOUNS,
    "role": ROLES,
    "roles": tuple("spies" if role == "spy" else plural(role) for role in ROLES),
    "nature": NATURE,
    "culture": CULTURE,
    "goods": GOODS,
    "entity_noun": NATURE + CULTURE + GOODS,
    "settlement": listed("city, country, town, village, island, port, region, state, kingdom"),
    "city": words.CITIES,
    "country": words.COUNTRIES,
    "year": tuple(str(year) for year in range(1750, 1990, 4)),
    "recent": tuple(str(year) for year in range(1930, 2019, 4)),
    "ordinal": listed("first, second, third, fourth, last, youngest"),
    "subject": listed("""
        cities, famous people, numbers, inventors, animals, abbreviations, dates, countries, rivers,
        explorers, history, science, sport, food, places, scientists, words,
        the years before {event}, acronyms, queens and kings, plants, the meaning of names, money,
        languages
    """),
    "field": listed("""
        in the news, in old newspapers, in official letters, in everyday speech, in this leaflet,
        in a lecture, in the manual, in the contract, in the small print, in an e-mail, on the form,
        at the office, in the textbook, in the minutes, on the radio, in the report, on the website
    """),
    "label": listed("""
        road sign, keyboard, medicine bottle, bank statement, camera, ticket, passport, food packet,
        weather map, business card, battery, coin, pay slip, car, computer, uniform
    """),
}


def _sample(rng: random.Random, label: int) -> tuple[str]:
    template = rng.choice(TEMPLATES[label])
    if rng.random() < 0.25 and template.endswith("?"):
        template = f"{rng.choice(OPENINGS)} {template}"
    return (expand(template, LEXICON, rng),)


TASK = BuiltinTask(
    name="questions",
    category="topic",
    labels=LABELS,
    description="what kind of answer a question asks for",
    pair=False,
    sample=_sample,
)
