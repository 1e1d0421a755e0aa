"""Shared ground: where real corpora are found, and what a test says when it skips."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("fixtures", "oracles")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # toy models: threads cost more than they bring

TESTS = Path(__file__).parent
ROOT = TESTS.parent
# Programs that tests start find the fixtures as the tests do.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
DATA = Path(os.environ.get("RETICENT_DATA", ROOT / ".." / "shared" / "data"))


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Models this small only lose by a second thread: up to 60 times on a busy machine."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def data() -> Path:
    """Folder of the real corpora; skips where there is none."""
    if not DATA.exists():
        pytest.skip(f"no real corpora: RETICENT_DATA ({DATA}) does not exist")
    return DATA
