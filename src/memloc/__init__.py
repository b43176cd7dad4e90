"""memloc: in which layers did a text classifier memorise, and which examples?

    import memloc

    result = memloc.run(model="minilm", task="questions")
    result = memloc.localise(memorised=model_m, original=model_o, tokenizer=tok, data=df)
    result.layers, result.windows, result.examples
    result.plot.heatmap()

Settings are objects: `memloc.Training(epochs=3)`. So are techniques: `memloc.Retraining(epochs=1)`.
All names are imported when they are first used, so that ``import memloc`` takes no time.
"""

from __future__ import annotations

from importlib.metadata import version as _version
from typing import TYPE_CHECKING

from memloc.errors import MemlocError

if TYPE_CHECKING:
    from memloc.api import analyses
    from memloc.api.in_memory import localise, prepare
    from memloc.api.parts import fine_tune, perturb
    from memloc.api.result import Result, load
    from memloc.api.running import run
    from memloc.config import Data, Generalisation, Model, Training, Windows
    from memloc.models.blocks import BlockModel
    from memloc.techniques.base import Context, LocalisationResult

__version__ = _version("memloc")

__all__ = [
    "BlockModel",
    "Context",
    "Data",
    "Generalisation",
    "LocalisationResult",
    "MemlocError",
    "Model",
    "Result",
    "Training",
    "Windows",
    "__version__",
    "analyses",
    "fine_tune",
    "load",
    "localise",
    "perturb",
    "prepare",
    "run",
]

_WHERE = {
    "BlockModel": "memloc.models.blocks",
    "Context": "memloc.techniques.base",
    "Data": "memloc.config",
    "Generalisation": "memloc.config",
    "LocalisationResult": "memloc.techniques.base",
    "Model": "memloc.config",
    "Result": "memloc.api.result",
    "Training": "memloc.config",
    "Windows": "memloc.config",
    "analyses": "memloc.api.analyses",
    "fine_tune": "memloc.api.parts",
    "load": "memloc.api.result",
    "localise": "memloc.api.in_memory",
    "perturb": "memloc.api.parts",
    "prepare": "memloc.api.in_memory",
    "run": "memloc.api.running",
}
"""The module of each public name; a module has its own name as its last part."""


if not TYPE_CHECKING:  # mypy would take every misspelt name for one of these

    def __getattr__(name: str) -> object:
        """Import a public name."""
        import importlib

        if name not in _WHERE:
            return _technique(name)
        module = importlib.import_module(_WHERE[name])
        found = module if module.__name__.endswith(f".{name}") else getattr(module, name)
        globals()[name] = found
        return found

    def _technique(name: str) -> object:
        """The class of a technique, also of one that another package brings."""
        if name[:1].isupper():
            from memloc.techniques import classes

            if name in classes():
                return classes()[name]
        raise AttributeError(f"module 'memloc' has no attribute {name!r}")

    def __dir__() -> list[str]:
        """All public names, imported or not."""
        from memloc.techniques import classes

        return sorted({*globals(), *__all__, *classes()})
