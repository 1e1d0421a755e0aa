"""pandas, where it is installed, stays out of processes that do not need it: 40 MB, and half a second of every start.

pyarrow imports pandas when it first converts a list, to find out whether the list is a column of a data frame. Nothing
here converts to or from pandas.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import FrameType


class _NotForArrow(MetaPathFinder):
    """Says that there is no pandas, to pyarrow alone: its own code is compiled, so its caller seems to import it."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> None:
        if name == "pandas" and _importer(sys._getframe(1)).partition(".")[0] in ("reticent", "pyarrow"):
            raise ModuleNotFoundError("pandas is kept out of this process", name=name)


def _importer(frame: FrameType | None) -> str:
    """The module whose statement imports, as far as Python knows."""
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith("importlib."):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", "")) if frame is not None else ""


def keep_pandas_out() -> None:
    """Keep pandas out of this process, but for libraries that import it themselves. For programs of ours only: pyarrow
    cannot convert to pandas afterwards.
    """
    if "pandas" not in sys.modules and not any(isinstance(finder, _NotForArrow) for finder in sys.meta_path):
        sys.meta_path.insert(0, _NotForArrow())
