"""Word lists that several built-in tasks draw from."""

from __future__ import annotations

from memloc.data.builtin.common import listed

WOMEN = listed("""
Anna, Maria, Julia, Sophie, Clara, Helen, Ruth, Nora, Lucy, Emma, Alice, Martha, Diana, Laura,
Irene, Paula, Sarah, Rachel, Olivia, Grace, Hannah, Naomi, Priya, Fatima, Leila, Ingrid, Yuki, Mei,
Rosa, Carmen, Bianca, Elena, Greta, Heidi, Joanna, Katherine, Linda, Margaret, Nina, Octavia,
Penelope, Rebecca, Sylvia, Teresa, Ursula, Vera, Wendy, Zoe, Amina, Chloe
""")
MEN = listed("""
Tom, Daniel, Peter, Oscar, Henry, Simon, Victor, Walter, George, Martin, Felix, Hugo, Arthur,
Edward, Frank, Gregory, Harold, Isaac, James, Kevin, Leo, Malcolm, Nathan, Oliver, Patrick, Quentin,
Robert, Samuel, Thomas, Vincent, William, Ahmed, Omar, Rajesh, Kenji, Chen, Diego, Pablo, Ivan,
Stefan, Bernard, Charles, Dennis, Eric, Gordon, Howard, Jonas, Lars, Mario, Nigel
""")
CITIES = listed("""
Oslo, Lisbon, Vienna, Prague, Dublin, Madrid, Athens, Cairo, Nairobi, Lagos, Mumbai, Delhi, Tokyo,
Osaka, Seoul, Beijing, Shanghai, Bangkok, Hanoi, Jakarta, Manila, Sydney, Melbourne, Perth,
Auckland, Toronto, Montreal, Vancouver, Chicago, Boston, Seattle, Denver, Dallas, Miami, Havana,
Lima, Bogota, Santiago, Glasgow, Edinburgh, Bristol, Leeds, Manchester, Liverpool, Paris, Lyon,
Marseille, Berlin, Hamburg, Munich, Zurich, Geneva, Rome, Milan, Naples, Florence, Venice, Warsaw,
Budapest, Stockholm, Copenhagen, Helsinki, Reykjavik, Brussels, Amsterdam, Istanbul, Jerusalem,
Marrakesh, Accra, Dakar
""")
COUNTRIES = listed("""
Norway, Portugal, Austria, Ireland, Spain, Greece, Egypt, Kenya, Nigeria, India, Japan, China,
Thailand, Vietnam, Indonesia, Australia, Canada, Cuba, Peru, Colombia, Chile, Argentina, Brazil,
Mexico, Scotland, France, Germany, Switzerland, Italy, Poland, Hungary, Sweden, Denmark, Finland,
Iceland, Belgium, Turkey, Morocco, Ghana, Senegal, Ethiopia, Tanzania, Mongolia, Nepal, Bolivia,
Ecuador, Estonia, Latvia, Croatia, Romania, Bulgaria, Jordan, Malaysia, Singapore, Jamaica
""")
JOBS = listed("""
doctor, lawyer, teacher, nurse, pilot, baker, farmer, plumber, painter, sculptor, engineer, dentist,
banker, butcher, carpenter, gardener, librarian, journalist, photographer, musician, poet, novelist,
actor, dancer, singer, soldier, sailor, captain, detective, judge, senator, minister, mayor,
student, professor, scientist, chemist, biologist, surgeon, pharmacist, waiter, cook, tailor,
barber, cleaner, driver, cyclist, athlete, coach, referee, tourist, neighbour, shopkeeper,
electrician, mechanic, architect, accountant, secretary, manager, editor, translator, programmer,
designer, director, producer, violinist, pianist, goalkeeper, swimmer, climber, inspector, diplomat,
ambassador, guard
""")
PEOPLE_VERBS = listed("""
praise, criticise, visit, follow, help, thank, invite, admire, ignore, warn, question, interview,
call, contact, greet, welcome, support, defend, accuse, blame, insult, entertain, advise, consult,
photograph, recognise, employ, replace, trust, dislike, encourage, mention, rescue, interrupt,
tease, annoy, surprise, amuse, disappoint, impress, chase, notice, observe, remember, honour,
challenge
""")
"""Regular verbs that take a person as subject and as object."""

PEOPLE_ADJECTIVES = listed("""
tall, young, old, famous, friendly, tired, nervous, clever, polite, rude, cheerful, angry, lonely,
rich, poor, elegant, ambitious, bearded, talented, modest, proud, careless, patient, shy, bald,
experienced, respected, foreign, local, hungry, generous, jealous, stubborn, curious, witty, serious
""")
THINGS = listed("""
book, letter, lamp, chair, table, bottle, basket, hammer, ladder, suitcase, umbrella, mirror,
carpet, blanket, pillow, candle, clock, camera, bicycle, kettle, teapot, bucket, shovel, jacket,
coat, hat, scarf, necklace, ring, painting, statue, vase, cushion, curtain, wallet, ticket, map,
newspaper, magazine, notebook, pencil, computer, telephone, radio, guitar, violin, drum, toy, kite,
balloon, sandwich, cake, melon, pumpkin, envelope, parcel, rope, tent, lantern, helmet, backpack,
blender
""")
THING_ADJECTIVES = listed("""
red, blue, green, yellow, wooden, heavy, small, large, broken, expensive, cheap, ancient, modern,
dusty, shiny, round, narrow, striped, empty, fragile, rusty, beautiful, ugly, strange, ordinary,
valuable
""")
WEEKDAYS = listed("Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday")
MONTHS = listed("""
January, February, March, April, May, June, July, August, September, October, November, December
""")
NUMBER_WORDS = listed("""
two, three, four, five, six, seven, eight, nine, ten, eleven, twelve, thirteen, fourteen, fifteen,
sixteen, seventeen, eighteen, nineteen, twenty
""")
OCCASIONS = listed("""
during the storm, after the concert, before the meeting, at the airport, in the library,
near the river, at the market, on the ferry, during the interview, after lunch, before breakfast,
at the wedding, in the garden, outside the theatre, behind the church, at the museum, on the beach,
near the station, during the festival, at the conference, in the kitchen, on the bridge,
at the hospital, in the courtyard, during the debate, after the match, in the harbour,
at the exhibition, by the fountain, in the cathedral, during the rehearsal, at the bakery,
on the platform, after the funeral, in the workshop, during the election, before the final exam,
on the balcony
""")
