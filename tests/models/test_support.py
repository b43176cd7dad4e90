from __future__ import annotations

import pytest

from tests.models.support import PAGE, page
from tests.tiny_models import ARCHITECTURES


@pytest.mark.slow
def test_the_table_of_supported_models_says_what_is_found() -> None:
    found = page()
    assert PAGE.read_text(encoding="utf-8") == found, "docs/support.md is out of date: make support"
    for architecture in ARCHITECTURES:
        (line,) = (line for line in found.splitlines() if line.startswith(f"| {architecture} |"))
        assert "refused" not in line
        assert "| no |" not in line
