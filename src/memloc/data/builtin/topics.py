"""News-like sentences by section of the newspaper."""

from __future__ import annotations

import random

from memloc.data.builtin import words
from memloc.data.builtin.common import BuiltinTask, expand, lines, listed

LABELS = ("business", "culture", "politics", "science", "sports", "weather")

# One template per line. All sections share places, names, days and numbers.
BUSINESS = """
shares in the {firm} {fell} {percent} per cent on {weekday} after {trouble}.
the {firm} plans to [open|close|sell] {number} {sites} in {country} [by the end of the year|next
    {month}].
{trouble_start} has forced the {city} {firm} to cut {number} hundred jobs.
{name}, chief executive of a {city} {firm}, expects {profits} to {rise} [this year|in the spring
    quarter].
{analysts} in {city} warned that {profits} could {drop} if {cost} keep rising.
a {city} {firm} has agreed to buy a rival from {country} for {number} [million|billion] euros.
{profits} at the {firm} {rose} {percent} per cent, helped by {boon}.
{unions} and managers at the {firm} in {city} [reached a deal|failed to agree] on {dispute}.
the {firm} will hire {number} hundred workers in {city}, citing {boon}.
investors in {city} welcomed {news} at the {firm} that {name} founded in a garage.
customers of the {firm} complained about {fees} [for the third year running|again on {weekday}].
the {firm} postponed its stock market listing in {city} because of {trouble}.
"""
CULTURE = """
{name}'s new {show} [opens|premieres] in {city} on {weekday} with {number} {performers}.
the {festival} in {city} will honour the {artist} {name} [this|next] {month}.
critics in {city} praised the {show} for its {quality}, but {audience} [left early|stayed away].
the {artist} {name} has [won|turned down|shared] a prize in {country} for best {work}.
a long-lost {piece} by a {artist} from {country} was [found in an attic|sold at auction] in {city}.
{name} will play a {job} in a {show} [set in|filmed near] {city}.
{audience} queued for hours in {city} to see the {show} about a {adjective} {job}.
after {number} years, the {artist} {name} returns to the stage in {city} with a {show}.
the {gallery} in {city} is showing {number} {objects} from {country} until {month}.
{name}, the {artist}, talks about {subject}, childhood in {city} and a {work} that took {number}
    years.
the {museum} in {city} has cancelled a {show} after a row over its {quality}.
{performers} from {country} open the {festival} in {city} on {weekday} night.
"""
POLITICS = """
the {politician} of {country} [resigned|apologised|refused to resign] on {weekday} over {scandal}.
{politician_name} promised voters in {city} [to reform|a debate on|to defend] {policy}.
parliament in {city} [passed|rejected|delayed] a bill on {policy} by {number} votes.
the opposition in {country} accused the {politician} of {misdeed}.
{country} and {country} signed a treaty on {treaty} [in {city}|after {number} days of talks].
thousands marched through {city} on {weekday} [against|in support of] {policy}.
the {party} will choose a new leader in {month} after losing {number} seats in {country}.
{politician_name} told the committee that {scandal} had been [exaggerated|a mistake|covered up].
the {politician} flew to {city} for talks on {policy} with {country}'s ambassador.
a court in {city} ruled that the {politician} had no right to {overreach}.
polls in {country} put the {party} {percent} points ahead [before the election|in spite of
    {scandal}].
the mayor of {city} and the {politician} clashed over {policy} at a rally on {weekday}.
"""
SCIENCE = """
{scientists} in {city} have [discovered|described|photographed] {finding} {habitat}.
a {number}-year study of {subjects} suggests that {claim}.
researchers from {country} used {instrument} to study {phenomenon}.
{finding_start} found near {city} may explain {phenomenon}, {scientists} say.
the {agency} will launch a {craft} in {month} to investigate {space}.
{scientists} at the University of {city} built {device} that can detect {phenomenon}.
according to {scientists} in {country}, {claim}, although the evidence is [thin|indirect|growing].
{name}, a {specialist} from {city}, has spent {number} years studying {phenomenon}.
an experiment in {city} [casts doubt on|confirms] a theory about {phenomenon}.
samples taken {habitat} contain {finding}, a {specialist} reported on {weekday}.
new measurements with {instrument} show that {claim}.
the {specialist} {name} explained how {subjects} cope with life {habitat}.
"""
SPORTS = """
{city} {beat} {city} {score} [in front of {number} thousand fans|on {weekday} night|in the {cup}].
the {player} {name} [scored {number} points|came off the bench|was outstanding] as {country} {beat}
    {country} in the {cup}.
{name} will miss the {cup} in {city} because of {injury}.
{country}'s {name} [won|came second in|dominated] the {race} in {city} [by a tiny margin|on
    {weekday}].
the coach of {city} praised the {player} after {moment}.
{name} broke the national record of {country} in the {timed} on {weekday}.
the {player} {name} has signed a {number}-year contract with {city} after {moment}.
{moment_start} gave {city} a late win over {city}.
the {cup} begins in {city} on {weekday} with {number} teams from {country} and abroad.
the referee sent off {city}'s {player} for {foul} in the [first|second] half.
fans in {city} held their breath as the {player} limped off with {hurt} before half-time.
{country} named {number} new faces, among them the {player} {name}, for the {cup}.
"""
WEATHER = """
{storm} [hit|swept across|battered] the area around {city} on {weekday}, {damage}.
forecasters expect {good} in {city} with temperatures of up to {number} degrees on {weekday}.
{country} recorded its [driest|wettest|coldest|warmest] {month} for {number} years.
{storm_start} is moving [slowly|quickly] across {country} and should [weaken|reach {city}]
    by {weekday}.
roads around {city} were closed on {weekday} after {storm} brought {bad}.
{sky_start} will give way to {good} in most of {country} by {weekday}.
residents of {city} were told to stay indoors as {storm} approached, {damage}.
flights from {city} were delayed by {bad} [on {weekday} morning|for {number} hours].
{number} centimetres of [rain|snow] fell on {city} in one day, {damage}.
the north of {country} wakes to {bad}, while {city} can look forward to {good}.
after {number} weeks of {bad}, farmers near {city} finally saw {good}.
in {city} {bad} lasted all {weekday}, and {storm} is due at the weekend.
"""
TEMPLATES = tuple(lines(block) for block in (BUSINESS, CULTURE, POLITICS, SCIENCE, SPORTS, WEATHER))

LEXICON = {
    "name": tuple(
        f"{first} {last}"
        for first, last in zip(
            words.WOMEN + words.MEN,
            listed("""
            Hartley, Okafor, Lindqvist, Marsh, Delgado, Novak, Whitlock, Tanaka, Brandt, Osei,
            Fontaine, Reid, Kowalski, Banerjee, Holm, Castillo, Pryce, Weaver, Sandoval, Achebe,
            Larsen, Voss, Mehta, Quinn
            """)
            * 5,
            strict=False,
        )
    ),
    "city": words.CITIES,
    "country": words.COUNTRIES,
    "weekday": words.WEEKDAYS,
    "month": words.MONTHS,
    "job": words.JOBS,
    "adjective": words.PEOPLE_ADJECTIVES,
    "number": words.NUMBER_WORDS,
    "percent": words.NUMBER_WORDS[:12],
    # Business.
    "firm": listed("""
    carmaker, bank, brewery, airline, insurer, software company, shoe retailer, steel producer,
    chip maker, supermarket chain, furniture group, pension fund, shipping line, toy manufacturer,
    energy supplier, telecoms operator, hotel group, coffee roaster, paper mill, online bookseller,
    fashion label
    """),
    "fell": listed("fell, slid, tumbled, dropped, rose, climbed, jumped"),
    "rise": listed("rise, recover, double, level off"),
    "drop": listed("drop, shrink, collapse, stagnate"),
    "rose": listed("rose, grew, surged, climbed, shrank"),
    "profits": listed("""
        profits, sales, revenues, export orders, dividends, margins, quarterly earnings
    """),
    "analysts": listed("analysts, economists, brokers, accountants, fund managers, traders"),
    "unions": listed("unions, employees, drivers, warehouse staff, cabin crew"),
    "sites": listed("branches, factories, warehouses, outlets, shops, call centres"),
    "cost": listed("""
        interest rates, fuel prices, rents, wages, shipping costs, customs duties, hidden fees
    """),
    "trouble": listed("""
    a profit warning, weak demand, a costly recall, a fraud inquiry, the loss of a big client,
    rising debt, a failed takeover, a shortage of parts, an accounting scandal,
    a downgrade by a ratings agency
    """),
    "trouble_start": listed("weak demand, rising debt, a lost contract, a supplier's bankruptcy"),
    "boon": listed("""
    strong demand, a weak currency, lower taxes, cheaper loans, a rush of online orders, new orders,
    a generous bonus scheme, falling raw material costs, record tourist spending
    """),
    "fees": listed("""
        hidden fees, late deliveries, higher prices, poor service, rude call centres, wrong bills
    """),
    "news": listed("""
        a surprise dividend, a cost-cutting plan, a big merger, record exports, a new factory
    """),
    "dispute": listed("overtime pay, pensions, redundancy terms, a wage freeze, holiday pay"),
    # Culture.
    "work": listed("""
    film, opera, novel, play, album, ballet, musical, television series, documentary, exhibition,
    symphony, poetry collection, comedy, cartoon, song cycle, memoir, costume drama
    """),
    "show": listed("""
        film, opera, play, ballet, musical, television series, documentary, comedy, costume drama
    """),
    "piece": listed("""
        novel, symphony, silent film, portrait, poem, sonata, fresco, screenplay, love song
    """),
    "subject": listed("""
        fame, stage fright, divorce, silence, inspiration, vanity, sad songs, rehearsals, beauty
    """),
    "gallery": listed("""
        national gallery, museum of design, city library, arts centre, sculpture park
    """),
    "artist": listed("""
    director, soprano, novelist, actress, comedian, conductor, choreographer, sculptor, guitarist,
    rapper, playwright, drummer, screenwriter, pop star, pianist, illustrator
    """),
    "performers": listed("""
        dancers, actors, violinists, puppeteers, drummers, singers, acrobats, extras
    """),
    "quality": listed("""
    bold staging, melancholy humour, dazzling costumes, haunting melodies, tender dialogue, nudity,
    vivid colours, slow pace, clever rhymes, gloomy ending, lavish sets, sharp satire
    """),
    "audience": listed("audiences, fans, readers, families, cinema-goers, bookworms, opera lovers"),
    "festival": listed("""
        film festival, jazz festival, book fair, theatre festival, biennale, carnival
    """),
    "museum": listed("""
        national gallery, opera house, museum of design, city theatre, concert hall, arts centre
    """),
    "objects": listed("""
        portraits, sculptures, watercolours, manuscripts, masks, tapestries, photographs
    """),
    # Politics.
    "politician": listed("""
    prime minister, president, foreign minister, finance minister, chancellor,
    speaker of parliament, governor, opposition leader, interior minister, attorney general,
    party chairman
    """),
    "politician_name": listed("""
        senator {name}, the minister {name}, the candidate {name}, the deputy {name}
    """),
    "treaty": listed("""
        border controls, nuclear disarmament, fishing rights, arms exports, extradition, visas
    """),
    "overreach": listed("""
    dissolve parliament, dismiss judges, ban the rally, ignore the referendum, pardon a senator,
    tap phones, delay the election, expel diplomats, change the constitution
    """),
    "party": listed("""
        liberals, conservatives, greens, social democrats, nationalists, ruling coalition
    """),
    "policy": listed("""
    border controls, the death penalty, voting rights, asylum law, nuclear disarmament,
    press freedom, school reform, military service, the secret police, arms exports,
    electoral reform, abortion law, a referendum on independence, fishing rights, sanctions,
    public housing, the constitution
    """),
    "scandal": listed("""
    leaked letters, an illegal donation, a lavish holiday, a forged degree, secret talks,
    missing ballots, the bugging of journalists, a cabinet row, remarks about immigrants,
    a broken campaign pledge
    """),
    "misdeed": listed("""
    lying to parliament, buying votes, ignoring the constitution, breaking campaign pledges,
    silencing critics, weakening the courts, favouring old allies, betraying the voters,
    rigging the ballot
    """),
    # Science.
    "scientists": listed("""
    biologists, physicists, astronomers, chemists, geologists, neuroscientists, marine biologists,
    palaeontologists, ecologists, geneticists
    """),
    "specialist": listed("""
        botanist, astronomer, virologist, zoologist, physicist, geneticist, oceanographer
    """),
    "finding": listed("""
    a new species of frog, a giant fossil, traces of water, an unknown virus, a rare enzyme,
    a tiny crystal, ancient pollen, glowing bacteria, a feathered dinosaur, microscopic plastic
    """),
    "finding_start": listed("""
        a jawbone, a meteorite, fossil footprints, frozen microbes, a strand of ancient DNA
    """),
    "habitat": listed("""
    in a cave, in the deep sea, in a rainforest, in a salt lake, in the upper atmosphere,
    on the sea floor, on a coral reef, under the Antarctic ice, in a hot spring, in the desert,
    in peat bogs, on a volcano
    """),
    "subjects": listed("""
        mice, twins, honeybees, bats, fruit flies, sharks, monkeys, oak trees, salmon, octopuses
    """),
    "claim": listed("""
    sleep repairs the brain, some birds recognise faces, ants farm fungi,
    the moon is slowly drifting away, plants respond to sound, dolphins use names,
    our galaxy is heavier than thought, memories can be erased, early humans cooked fish,
    whales slow their hearts, gut bacteria influence mood, water once flowed on Mars
    """),
    "instrument": listed("""
    a laser, a radio telescope, a particle detector, gene sequencing, an electron microscope,
    a tiny sensor, satellite images, X-rays, a swarm of drones, a supercomputer
    """),
    "phenomenon": listed("""
    dark matter, bird migration, cell division, gravitational waves, photosynthesis,
    antibiotic resistance, the origin of life, earthquakes, black holes, ageing, solar flares,
    the extinction of mammoths, quantum entanglement, coral bleaching, cosmic rays
    """),
    "device": listed("""
    a laser, a radio telescope, a particle detector, a camera, a tiny sensor,
    an electron microscope, a robot
    """),
    "space": listed("""
    dark matter, gravitational waves, black holes, solar flares, cosmic rays, the rings of Saturn,
    volcanoes on Venus, melting glaciers, the ozone layer, ocean currents
    """),
    "agency": listed("space agency, polar institute, research council, observatory"),
    "craft": listed("""
        probe, satellite, space telescope, rocket, weather balloon, swarm of satellites
    """),
    # Sports.
    "player": listed("""
    striker, goalkeeper, captain, defender, midfielder, winger, quarterback, pitcher, fly-half,
    point guard, playmaker, fast bowler, veteran, teenager, substitute
    """),
    "beat": listed("beat, thrashed, edged past, lost to, stunned, overcame"),
    "score": listed("2-1, 3-0, 4-2, 28-14, 101-97, 5-4, 21-17, 3-2"),
    "cup": listed("""
    cup final, quarter-final, league, world championship, semi-final, play-off, opening match,
    qualifying round, friendly tournament, derby
    """),
    "injury": listed("""
    a knee injury, a torn hamstring, a broken finger, a one-match ban, a sprained ankle, concussion,
    a shoulder operation, a doping ban
    """),
    "race": listed("""
    marathon, slalom, hurdles, high jump, javelin, sprint, backstroke, decathlon, pole vault,
    cycling stage, triathlon, figure skating, tennis open, heavyweight bout, regatta
    """),
    "timed": listed("""
        marathon, hurdles, high jump, javelin, sprint, backstroke, decathlon, pole vault
    """),
    "hurt": listed("""
        a knee injury, a torn hamstring, a sprained ankle, concussion, a bleeding nose, cramp
    """),
    "moment": listed("""
    a stunning free kick, a hat-trick, a missed penalty, an unbeaten run, a brilliant save,
    a last-minute goal, a perfect serve, a clumsy own goal, a ten-game losing streak
    """),
    "moment_start": listed("""
        a penalty, an own goal, a goalkeeping blunder, a superb header, a buzzer-beater
    """),
    "foul": listed("""
        a reckless tackle, a handball, arguing, a second yellow card, diving, an elbow
    """),
    # Weather.
    "storm": listed("""
    a violent storm, a hurricane, a cold front, a thunderstorm, a typhoon, a blizzard,
    a tropical cyclone, a band of heavy rain, a tornado, an icy gale
    """),
    "storm_start": listed("""
        a low-pressure system, a heatwave, a cyclone, a belt of rain, a snowstorm
    """),
    "good": listed("""
    sunshine, bright spells, clear skies, a gentle breeze, mild air, blue skies, warm evenings,
    dry weather
    """),
    "bad": listed("""
    drizzle, thick fog, freezing rain, sleet, hail, strong winds, frost, humid heat, heavy snow,
    torrential rain, thunder and lightning, black ice, low cloud, dense smog
    """),
    "sky_start": listed("morning mist, overnight frost, heavy showers, gusty winds, grey skies"),
    "damage": listed("""
    flooding cellars, uprooting trees, cutting power to villages, leaving drivers stranded,
    tearing off roofs, swelling rivers, stranding ferries, blocking mountain passes,
    flattening crops
    """),
}


def _sample(rng: random.Random, label: int) -> tuple[str]:
    return (expand(rng.choice(TEMPLATES[label]), LEXICON, rng),)


TASK = BuiltinTask(
    name="topics",
    category="topic",
    labels=LABELS,
    description="the newspaper section of a sentence",
    pair=False,
    sample=_sample,
)
