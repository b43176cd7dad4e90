"""The Hugging Face hub: is it there? Shared by models and data."""

from __future__ import annotations

PATIENCE = 5.0
"""Seconds to wait for a sign of life."""


def hub_answers() -> bool:
    """Ask once, as the libraries themselves would retry for up to minutes."""
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        get_session().head(constants.ENDPOINT, timeout=PATIENCE)
    except Exception:  # httpx or requests, whichever the library is built on
        return False
    return True
