"""memloc: in which layers did a text classifier memorise, and which examples?

    import memloc

    result = memloc.run(model="minilm", task="questions")
    labels = memloc.audit("reviews.csv").labels
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
    from memloc.api.audit import audit
    from memloc.api.callback import MemlocCallback
    from memloc.api.functions import fine_tune, localise, perturb, prepare, repair, run
    from memloc.api.repair import Repaired
    from memloc.api.result import Result, load
    from memloc.config import Data, Generalisation, Model, Training, Windows
    from memloc.models.blocks import BlockModel
    from memloc.techniques.base import Context

__version__ = _version("memloc")

__all__ = [
    "BlockModel",
    "Context",
    "Data",
    "Generalisation",
    "MemlocCallback",
    "MemlocError",
    "Model",
    "Repaired",
    "Result",
    "Training",
    "Windows",
    "__version__",
    "audit",
    "fine_tune",
    "load",
    "localise",
    "perturb",
    "prepare",
    "repair",
    "run",
]

_MODULES = {
    "memloc.api.audit": ["audit"],
    "memloc.api.callback": ["MemlocCallback"],
    "memloc.api.functions": ["fine_tune", "localise", "perturb", "prepare", "repair", "run"],
    "memloc.api.repair": ["Repaired"],
    "memloc.api.result": ["Result", "load"],
    "memloc.config": ["Data", "Generalisation", "Model", "Training", "Windows"],
    "memloc.models.blocks": ["BlockModel"],
    "memloc.techniques.base": ["Context"],
}
_WHERE = {name: module for module, names in _MODULES.items() for name in names}


if not TYPE_CHECKING:  # mypy would take every misspelt name for one of these

    def __getattr__(name: str) -> object:
        """Import a public name."""
        import importlib
        import random

        if name in _WHERE:
            state = random.getstate()  # libraries draw from it when they are first imported
            globals()[name] = getattr(importlib.import_module(_WHERE[name]), name)
            random.setstate(state)
            return globals()[name]
        if name[:1].isupper():  # the class of a technique, perhaps of another package
            from memloc.techniques import classes

            if name in classes():
                return classes()[name]
        raise AttributeError(f"module 'memloc' has no attribute {name!r}")

    def __dir__() -> list[str]:
        """All public names, imported or not."""
        from memloc.techniques import classes

        return sorted({*globals(), *__all__, *classes()})
