"""Keeps pandas, where installed, out of processes that do not need it: it costs 40 MB, and half a second of every
start.

pyarrow imports pandas when it first converts a list, to find out whether the list is a column of a data frame. Nothing
here converts to or from pandas.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import FrameType


class _NotForArrow(MetaPathFinder):
    """Import hook that hides pandas from pyarrow only: pyarrow's code is compiled, so its caller seems to import it."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> None:
        """Raise `ModuleNotFoundError` for pandas when it is imported by pyarrow or by this package; otherwise return
        None."""
        if name == "pandas" and _importer(sys._getframe(1)).partition(".")[0] in ("reticent", "pyarrow"):
            raise ModuleNotFoundError("pandas is kept out of this process", name=name)


def _importer(frame: FrameType | None) -> str:
    """Return the name of the module whose import statement is running, as far as Python knows."""
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith("importlib."):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", "")) if frame is not None else ""


def keep_pandas_out() -> None:
    """Keep pandas from being imported by pyarrow in this process. For our own programs only: pyarrow cannot convert to
    pandas afterwards."""
    if "pandas" not in sys.modules and not any(isinstance(finder, _NotForArrow) for finder in sys.meta_path):
        sys.meta_path.insert(0, _NotForArrow())
