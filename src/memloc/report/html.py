"""Pages: data, scripts and styles in one HTML file that needs nothing else.

A Content-Security-Policy allows this one script and this one style sheet, by their hashes, and
nothing from elsewhere; texts of data sets are data for the script, which never reads them as HTML.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memloc.results.folders import ResultsError
from memloc.text import write_whole

PARTS = Path(__file__).parent / "page"
UNSAFE_IN_SCRIPT = {
    ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029\ufeff"
}


def one_file(title: str, styles: Sequence[str], scripts: Sequence[str], data: Any) -> str:
    """A page as text.

    Args:
        title: What the tab of the browser says.
        styles: Names of style sheets among the parts; later ones have the last word.
        scripts: Names of scripts among the parts, in the order in which they are joined.
        data: JSON data for the scripts.
    """
    style = "\n".join(map(_part, styles))
    script = "(() => {\n'use strict';\n" + "\n".join(map(_part, scripts)) + "\n})();\n"
    filled = {
        "POLICY": policy(script, style),
        "TITLE": html.escape(title),
        "STYLE": style,
        "DATA": json_for_script(data),
        "SCRIPT": script,
    }
    # In one go, so that nothing that was put in is searched for further places.
    return re.sub(r"@([A-Z]+)@", lambda place: filled[place[1]], _part("page.html"))


def write_page(path: Path, text: str) -> Path:
    """Write a page; returns where it is.

    Raises:
        ResultsError: If it cannot be written.
    """
    try:
        write_whole(path, text)
    except OSError as error:
        raise ResultsError(
            f"cannot write {str(path)!r}: {error.strerror or error}", remedy="give another file"
        ) from None
    return path


def policy(script: str, style: str) -> str:
    """Only this script and this style sheet, and nothing from anywhere else."""
    hashes = [
        base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
        for text in (script, style)
    ]
    return (
        f"default-src 'none'; script-src 'sha256-{hashes[0]}'; style-src 'sha256-{hashes[1]}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def json_for_script(data: Any) -> str:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(UNSAFE_IN_SCRIPT)


def _part(name: str) -> str:
    return (PARTS / name).read_text(encoding="utf-8")
