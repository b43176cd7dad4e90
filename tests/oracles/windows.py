"""E of sizes that were not tried, one number at a time."""


def interpolate_plainly(rows: list[list[float] | None]) -> list[list[float]]:
    """E by size from 1; sizes that were not tried on the line between their neighbours.

    A window of no layers changes nothing: size 0 is a row of zeros.
    """
    layers = len(rows)
    known = {0: [0.0] * layers} | {i: row for i, row in enumerate(rows, 1) if row is not None}
    found = []
    for size in range(1, layers + 1):
        below = max(tried for tried in known if tried <= size)
        above = min(tried for tried in known if tried >= size)
        share = (size - below) / (above - below) if above > below else 0.0
        found.append(
            [(1 - share) * a + share * b for a, b in zip(known[below], known[above], strict=True)]
        )
    return found
