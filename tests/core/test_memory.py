"""Without memory a command ends with one line and status 1; a stage that goes over the memory limit says so."""

from __future__ import annotations

import errno
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from fixtures.command import command

from reticent.core import memory
from reticent.core.errors import CorpusError
from reticent.core.memory import OUT_OF_MEMORY, is_out_of_memory
from reticent.engine.synthetic import SynthConfig, synthesize

linux = pytest.mark.skipif(sys.platform != "linux", reason="address space is read from /proc")
#: Leave so many bytes of address space from here on.
LIMITED = """
import resource, os, sys
from pathlib import Path
import pyarrow as pa, numpy as np
from reticent import _rust
from reticent.core.memory import explain_abort

def leave(num_bytes):
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + num_bytes, used + num_bytes))

"""


def run(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-c", LIMITED + script, *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("synthetic")
    synthesize(folder, SynthConfig(num_individuals=1500, words_per_document=200, vocabulary=50_000))
    return folder / "documents"


@linux
def test_the_core_says_that_there_is_no_memory_and_ends_with_status_1() -> None:
    script = (
        "_rust.segment(pa.array(['a']), num_threads=1)\n"  # its thread is there
        "texts = pa.array(['a ' * 4_000_000])\nleave(1 << 20)\n"
        "_rust.segment(texts, num_threads=1)\nprint('here')"
    )
    done = run(script)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"reticent: {OUT_OF_MEMORY}\n")


@linux
def test_a_library_that_aborts_for_want_of_memory_says_so_and_no_other_abort_does() -> None:
    done = run("explain_abort()\nleave(1 << 20)\nos.abort()")
    assert (done.returncode, done.stderr) == (1, f"reticent: {OUT_OF_MEMORY}\n")
    done = run("explain_abort()\nos.abort()")
    assert (done.returncode, done.stderr) == (-6, "")


@linux
@pytest.mark.parametrize("room", [4, 48])
def test_a_command_without_memory_ends_with_one_line_and_what_it_left_is_repaired(
    documents: Path, tmp_path: Path, room: int
) -> None:
    out = tmp_path / "run"
    script = (
        "import reticent.job.run, reticent.job.pipeline, reticent.engine.index\n"
        "import reticent.engine.detect.rules, pyarrow.parquet\n"
        "from reticent.cli import main\n"
        f"leave({room} << 20)\nsys.argv = ['reticent', 'index', *sys.argv[1:]]\nmain()"
    )
    done = run(script, documents, "--out", out, "-n", 3, "--set", "num_threads=1")
    # Where the C library has no memory for a thread of its own, it ends the process with 127 once the line is written.
    expected = 127 if "thread-local data" in done.stderr else 1
    assert done.returncode == expected, done.stderr
    assert done.stderr.splitlines()[-1] == f"reticent: {OUT_OF_MEMORY}"
    assert "Traceback" not in done.stderr
    assert "internal error" not in done.stderr
    assert command("index", documents, "--out", out, "-n", 3) == 0
    assert not [path for path in out.rglob("*") if ".tmp-" in path.name]


def from_another(error: BaseException) -> BaseException:
    """An error that was raised over this one, and says nothing of it."""
    try:
        try:
            raise error
        except BaseException:
            raise CorpusError("documents 1 to 2") from None
    except CorpusError as over:
        return over


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (MemoryError(), True),
        (pa.ArrowMemoryError("malloc of size 64 failed"), True),
        (OSError(errno.ENOMEM, "no"), True),
        (ImportError("libx.so: failed to map segment from shared object"), True),
        (RuntimeError("can't start new thread"), True),
        (pa.ArrowException("Unknown error: Resource temporarily unavailable"), True),
        (from_another(MemoryError()), True),
        (from_another(ValueError("cannot allocate memory, the text says")), False),
        (OSError(errno.ENOSPC, "no"), False),
        (ImportError("no module"), False),
        (ValueError("can't start new thread"), False),
    ],
)
def test_errors_that_mean_there_is_no_memory(error: BaseException, is_one: bool) -> None:
    assert is_out_of_memory(error) == is_one


def test_an_error_for_want_of_memory_is_one_line_and_status_1(
    documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for error in (MemoryError(), from_another(MemoryError())):

        def fail(*_: object, error: BaseException = error) -> None:
            raise error

        monkeypatch.setattr("reticent.cli.runs.execute", fail)
        assert command("index", documents, "--out", tmp_path / "run") == 1
        assert capfd.readouterr().err == f"reticent: {OUT_OF_MEMORY}\n"


def test_a_limit_under_what_the_process_takes_is_refused_before_anything_is_made(
    documents: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert command("index", documents, "--out", tmp_path / "run", "--set", "memory_limit=10MB") == 2
    assert "reticent: memory limit of 10MB cannot be held: " in (shown := capfd.readouterr().err)
    assert "allow at least " in shown
    assert not (tmp_path / "run").exists()


def test_a_stage_that_goes_over_the_limit_says_so_once(
    documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    peaks = iter([4.3e9, 5e9, 5.1e9, 6e9])

    class Told(AbstractContextManager["Told"]):
        peak = property(lambda _: next(peaks))

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr("reticent.job.maker.OwnMemory", Told)
    assert command("index", documents, "--out", tmp_path / "run", "--set", "memory_limit=4GB") == 0
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("warning: ")]
    over = "over the memory limit of 4,000 MB"
    assert said == [
        f"warning: spans took the process to 5,000 MB (files that it maps aside), {over}",
        f"warning: index-joint took the process to 6,000 MB (files that it maps aside), {over}",
    ]


@linux
def test_own_memory_leaves_out_what_is_mapped_and_sees_a_peak_that_is_over(tmp_path: Path) -> None:
    size = 64 << 20
    (tmp_path / "file").write_bytes(bytes(size))
    before, resident = memory.own_bytes(), memory.resident_bytes()
    with memory.OwnMemory() as watched:
        mapped = np.memmap(tmp_path / "file", mode="r")
        assert mapped.sum() == 0
        assert memory.resident_bytes() > resident + size // 2
        time.sleep(0.1)
        assert watched.peak < before + size // 2
        own = np.ones(size, dtype=np.uint8)
        for _ in range(50):  # until the watch has looked, on a busy machine too
            if watched.peak <= before + size // 2:
                time.sleep(0.1)
        del own
    assert watched.peak > before + size // 2
    assert memory.own_bytes() < before + size // 2
