"""The tiny audit of the report's tests."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))


@pytest.fixture
def tiny_audit() -> dict[str, Any]:
    from test_plots import tiny_audit as made

    found: dict[str, Any] = made()
    return found
