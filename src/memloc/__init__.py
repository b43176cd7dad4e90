"""memloc: in which layers did a text classifier memorise, and which examples?

    import memloc

    result = memloc.run(model="minilm", task="questions")
    result = memloc.localise(memorised=model_m, original=model_o, tokenizer=tok, data=df)
    result.layers, result.windows, result.examples
    result.plot.heatmap()

All names are imported when they are first used, so that ``import memloc`` takes no time.
"""

from __future__ import annotations

from importlib.metadata import version as _version
from typing import TYPE_CHECKING

from memloc.errors import MemlocError

if TYPE_CHECKING:
    from memloc.api import analyses, single
    from memloc.api.localising import localise
    from memloc.api.parts import fine_tune, perturb
    from memloc.api.prepared import prepare
    from memloc.api.result import Result, load
    from memloc.api.running import run
    from memloc.models.blocks import BlockModel
    from memloc.techniques.base import Context, LocalisationResult

__version__ = _version("memloc")

__all__ = [
    "BlockModel",
    "Context",
    "LocalisationResult",
    "MemlocError",
    "Result",
    "__version__",
    "analyses",
    "fine_tune",
    "load",
    "localise",
    "perturb",
    "prepare",
    "run",
    "single",
]

_WHERE = {
    "BlockModel": "memloc.models.blocks",
    "Context": "memloc.techniques.base",
    "LocalisationResult": "memloc.techniques.base",
    "Result": "memloc.api.result",
    "analyses": "memloc.api.analyses",
    "fine_tune": "memloc.api.parts",
    "load": "memloc.api.result",
    "localise": "memloc.api.localising",
    "perturb": "memloc.api.parts",
    "prepare": "memloc.api.prepared",
    "run": "memloc.api.running",
    "single": "memloc.api.single",
}
"""The module of each public name; a module has its own name as its last part."""


if not TYPE_CHECKING:  # mypy would take every misspelt name for one of these

    def __getattr__(name: str) -> object:
        """Import a public name."""
        import importlib

        if name not in _WHERE:
            raise AttributeError(f"module 'memloc' has no attribute {name!r}")
        module = importlib.import_module(_WHERE[name])
        found = module if module.__name__.endswith(f".{name}") else getattr(module, name)
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        """All public names, imported or not."""
        return sorted({*globals(), *__all__})
