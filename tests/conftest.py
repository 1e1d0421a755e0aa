"""Shared ground: where real corpora are found, in which order tests run, and which are no fast ones."""

from __future__ import annotations

import gc
import os
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

pytest.register_assert_rewrite("fixtures", "oracles")  # before any of them is imported
from fixtures.drawing import examples  # noqa: E402
from fixtures.forks import Forks  # noqa: E402
from fixtures.other_device import run_on  # noqa: E402
from fixtures.places import DATA, TESTS, memory_with_room  # noqa: E402
from fixtures.whole_files import WholeFiles, turn_of  # noqa: E402

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # toy models: threads cost more than they bring

settings.register_profile("tests", deadline=None, max_examples=examples(100))  # a busy machine is slow, and no fault
settings.load_profile("tests")

# The files of tests live for seconds, but every artefact waits until the disk has it: in memory there is no wait.
if "TMPDIR" not in os.environ and (memory := memory_with_room()):
    os.environ["TMPDIR"] = memory
    tempfile.tempdir = None

if device := os.environ.get("RETICENT_TEST_DEVICE"):
    run_on(device)

# Programs that tests start find the fixtures as the tests do.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))


def pytest_configure(config: pytest.Config) -> None:
    """Hand out whole files where that is asked for; a worker is not asked."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what runs in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("dist", "no") == "loadfile":
        config.pluginmanager.register(WholeFiles())


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave the modules and tests, which live to the end, out of every later walk of the garbage collector, and let it
    walk less often: toy models and tables come and go by the thousand, and next to none is part of a cycle. They stay
    out at the end too: walking them then takes four seconds, and frees what the process gives back anyway.

    The accountants of Opacus, where they were imported, work out each Renyi divergence several times, and most of their
    time is that; here once.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        if accounting := sys.modules.get("opacus.accountants.analysis.rdp"):
            accounting._compute_rdp = cache(accounting._compute_rdp)
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first; mark those that run a job or a model."""
    items.sort(key=lambda item: turn_of(item.path.relative_to(TESTS).as_posix()))
    for item in items:
        if item.path.parent.name == "job" or "one_thread" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.heavy)


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Models this small only lose by a second thread: up to 60 times on a busy machine."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def without_figures() -> Iterator[None]:
    """Reports of these tests have no figures."""
    from fixtures.figures import leave_out_figures

    with pytest.MonkeyPatch.context() as patch:
        leave_out_figures(patch)
        yield


@pytest.fixture(scope="module")
def without_ink() -> Iterator[None]:
    """Figures in reports of these tests are blank."""
    from fixtures.figures import blank_figures

    with pytest.MonkeyPatch.context() as patch:
        blank_figures(patch)
        yield


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """Programs of their own that begin with PyTorch and Transformers imported."""
    with Forks() as forks:
        yield forks


@pytest.fixture(scope="session")
def data() -> Path:
    """Folder of the real corpora; skips where there is none."""
    if not DATA.exists():
        pytest.skip(f"no real corpora: RETICENT_DATA ({DATA}) does not exist")
    return DATA
