"""Fill the template of the page."""

from __future__ import annotations

import re
from pathlib import Path

TEMPLATE = Path(__file__).parent / "page.md"
PLACE = re.compile(r"\{\{ (.+?) \}\}")


def fill(template: str, values: dict[str, str]) -> str:
    """Put values where their names stand, as `{{ name }}`.

    Raises:
        ValueError: If a name has no value, or a table is made for nothing.
    """
    wanted = set(PLACE.findall(template))
    if wanted - values.keys():
        raise ValueError(f"the page wants {sorted(wanted - values.keys())}, which nothing makes")
    if values.keys() - wanted:
        raise ValueError(f"the page has no place for {sorted(values.keys() - wanted)}")
    return PLACE.sub(lambda found: values[found[1]], template)
