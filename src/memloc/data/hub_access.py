"""The Hugging Face hub: is it there? Shared by models and data."""

from __future__ import annotations

import time

PATIENCE = 5.0
"""Seconds to wait for a sign of life."""
MEMORY = 60.0
"""Seconds for which silence counts: a sweep asks for dozens of models and data sets."""
_silent_until = 0.0


def hub_answers() -> bool:
    """Ask once, as the libraries themselves would retry for up to minutes."""
    global _silent_until
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE or time.monotonic() < _silent_until:
        return False
    try:
        get_session().head(constants.ENDPOINT, timeout=PATIENCE)
    except Exception:  # httpx or requests, whichever the library is built on
        _silent_until = time.monotonic() + MEMORY
        return False
    return True
