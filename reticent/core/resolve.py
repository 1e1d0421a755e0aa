"""Look-up of code named by strings ("module:function") in tables, imported only when used."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def resolve(row: str) -> Any:
    """Import and return the object that ``"package.module:name"`` names.

    Raises
    ------
    ImportError
        The module is not there, or has no such name.

    >>> resolve("reticent.core.errors:CorpusError").__name__
    'CorpusError'
    """
    module, _, name = row.partition(":")
    try:
        return getattr(import_module(module), name)
    except AttributeError:
        raise ImportError(f"{module} has no name {name!r}") from None
