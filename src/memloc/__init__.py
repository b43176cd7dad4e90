"""memloc: in which layers did a text classifier memorise, and which examples?"""

from __future__ import annotations

from importlib.metadata import version as _version

__version__ = _version("memloc")
