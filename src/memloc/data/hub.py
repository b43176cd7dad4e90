"""The Hugging Face hub: whether it can be reached, and data sets from it, without long waits."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from memloc.errors import DataError

if TYPE_CHECKING:
    from datasets import DatasetDict

CONVERTED = "refs/convert/parquet"
"""The branch on which the hub keeps Parquet copies, one folder per configuration.

`datasets` no longer runs the loading scripts that some older data sets consist of.
"""

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


def load_splits(repository: str, configuration: str | None, converted: bool) -> DatasetDict:
    """Load every split of a data set from the hub, its cache, or a local folder of the same form.

    Args:
        repository: Name on the hub, or a folder.
        configuration: Which of its configurations.
        converted: Whether to take the hub's Parquet copies instead of the data set's own files.

    Raises:
        DataError: If it can neither be reached nor found in the cache.
    """
    # Imported here, as it takes seconds and most commands do not need it.
    import datasets

    local = Path(repository).is_dir()
    offline = not local and not hub_answers()
    try:
        with _cache_only(offline):
            if not converted:
                return datasets.load_dataset(repository, configuration)
            folder = repository if local else _download(repository, configuration, offline)
            return datasets.load_dataset(folder, data_dir=configuration)
    except Exception as error:  # whatever goes wrong in there, the user can do the same about it
        first = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        reason = "the hub cannot be reached and nothing is cached" if offline else first
        asked = f"{repository} ({configuration})" if configuration else repository
        raise DataError(
            f"the data set {asked} cannot be loaded from the Hugging Face hub ({reason})",
            setting="data.data_dir",
            remedy="give a folder with a local copy",
        ) from error


def _download(repository: str, configuration: str | None, offline: bool) -> str:
    """Fetch the Parquet copies; unlike `datasets`, this finds them again without a connection."""
    from huggingface_hub import snapshot_download

    return str(
        snapshot_download(
            repository,
            repo_type="dataset",
            revision=CONVERTED,
            allow_patterns=[f"{configuration}/*.parquet"],
            local_files_only=offline,
        )
    )


@contextmanager
def _cache_only(wanted: bool) -> Iterator[None]:
    """Keep `datasets` to its cache for a while; there is no argument for this."""
    from datasets import config

    before = config.HF_HUB_OFFLINE
    config.HF_HUB_OFFLINE = before or wanted
    try:
        yield
    finally:
        config.HF_HUB_OFFLINE = before
