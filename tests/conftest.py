"""Shared ground: where real corpora are found, which tests run on one worker, and which are no fast ones."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("fixtures", "oracles")  # before any of them is imported
from fixtures.places import DATA, TESTS  # noqa: E402

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # toy models: threads cost more than they bring

# Programs that tests start find the fixtures as the tests do.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
#: The folders with the longest tests come first: a long file that starts last leaves the other worker without work.
ORDER = ("job", "trainer", "audit", "house", "cli", "engine", "detect", "benchmarks", "core")


@pytest.hookimpl(tryfirst=True)  # before the workers read the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of a file on one worker, so that its fixtures are made once; mark those that run a job or a model.

    A file may name a group of its own, which it shares with another file of the same fixtures.
    """
    items.sort(key=lambda item: _place(item.path))
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
        if item.path.parent.name == "job" or "one_thread" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.heavy)


def _place(path: Path) -> int:
    folder = path.relative_to(TESTS).parts[0]
    return ORDER.index(folder) if folder in ORDER else len(ORDER)


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
