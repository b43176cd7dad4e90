"""What all results have in common: names of files, and thresholds that several parts share."""

from __future__ import annotations

REPORT = "report.html"
"""The page that shows a result, in its folder."""
ARTEFACTS = "artefacts.json"
"""Kinds and keys of everything in the store that a result was made from."""

MEMORISED = 0.95
"""Accuracy on noisy examples from which on the model counts as having memorised them."""
NEARLY_ALL = 0.95
"""Share of the memorisation that counts as undone."""
