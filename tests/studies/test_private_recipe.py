"""The study of recipes with a bound: what is missing is said before hours of work."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from reticent.core.errors import PolicyError
from studies import private_recipe


def test_a_missing_list_of_words_is_said_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wordfreq", None)
    rows = Mock()
    monkeypatch.setattr(private_recipe.Cell, "rows", rows)
    with pytest.raises(PolicyError, match=r"reticent\[wordfreq\]"):
        private_recipe.run("hours", tmp_path)
    rows.assert_not_called()
    assert not list(tmp_path.iterdir())
