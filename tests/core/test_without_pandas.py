"""pandas stays out of programs of ours, and what asks for it itself gets it."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from reticent.core import without_pandas


def test_pandas_is_kept_from_pyarrow_and_from_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = ModuleType("pandas")

    class Installed:
        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            if name == "pandas":
                raise ImportError("found")

    monkeypatch.delitem(sys.modules, "pandas", raising=False)
    others = [finder for finder in sys.meta_path if not isinstance(finder, without_pandas._NotForArrow)]
    monkeypatch.setattr(sys, "meta_path", [Installed(), *others])
    without_pandas.keep_pandas_out()
    without_pandas.keep_pandas_out()
    assert sum(isinstance(finder, without_pandas._NotForArrow) for finder in sys.meta_path) == 1
    for module, message in (
        ("reticent.engine.schema", "kept out"),
        ("pyarrow.lib", "kept out"),
        ("edsnlp.data", "found"),
    ):
        with pytest.raises(ImportError, match=message):
            exec("import pandas", {"__name__": module})
    monkeypatch.setitem(sys.modules, "pandas", stand_in)
    monkeypatch.setattr(sys, "meta_path", [])
    without_pandas.keep_pandas_out()
    assert sys.meta_path == []  # it is there already
