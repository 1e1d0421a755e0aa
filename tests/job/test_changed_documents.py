"""Documents and results that change while a job reads them: no result is made of two texts, or of another job's."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.jobs import Recorder

from reticent.core.errors import ArtifactError, CorpusError
from reticent.engine.corpus import open_corpus
from reticent.engine.scrub import ScrubConfig
from reticent.job import export
from reticent.job.config import Job, parse_job
from reticent.job.run import Run
from reticent.job.sampling import sample_documents
from reticent.job.scrub import scrub_documents

CHANGED = "have changed since"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "notes").mkdir()
    return write(tmp_path / "notes" / "a.parquet", "seen by Dr. Smith, call 06 12 34 56 78")


def write(file: Path, text: str) -> Path:
    texts = [f"{text} word{number}" for number in range(20)]
    ids = [f"{number}" for number in range(20)]
    pq.write_table(pa.table({"doc_id": ids, "individual_id": ids, "text": texts}), file)
    return file


def rewrite(file: Path) -> None:
    """As many documents of as many characters, with their words in another order."""
    write(file, "call 06 12 34 56 78, seen by Dr. Smith")


class Doing(Recorder):
    """Does something once an artefact is whole."""

    def __init__(self, after: str, what: Callable[[], object]):
        super().__init__()
        self.after, self.what = after, what

    @contextmanager
    def stage(self, name: str, counts: dict[str, Any]) -> Iterator[None]:
        with super().stage(name, counts):
            yield
        if name == self.after:
            self.what()


def job_of(file: Path) -> Job:
    return parse_job({"out": str(file.parent.parent / "run"), "corpus": {"source": str(file.parent)}})


@pytest.mark.parametrize("after", ["split", "spans"])
def test_no_result_is_made_of_documents_that_changed_since_the_run_began(file: Path, after: str) -> None:
    progress = Doing(after, lambda: rewrite(file))
    with pytest.raises(CorpusError, match=CHANGED):
        Run(job_of(file), progress).execute("index")
    assert progress.made[-1] == after
    again = Recorder()
    Run(job_of(file), again).execute("index")
    assert again.made == ["split", "spans", "index", "index-joint"]


def test_documents_that_were_only_touched_are_the_same(file: Path) -> None:
    progress = Doing("split", lambda: os.utime(file, (1, 1)))
    Run(job_of(file), progress).execute("index")
    assert progress.made[-1] == "index-joint"


def test_a_fingerprint_is_of_the_documents_that_were_scanned(file: Path) -> None:
    corpus = open_corpus(file)
    corpus.scan()
    rewrite(file)
    with pytest.raises(CorpusError, match=CHANGED):
        corpus.fingerprint()


@pytest.mark.parametrize("after", ["split", "spans"])
def test_no_result_is_made_of_what_another_process_replaced(file: Path, after: str) -> None:
    other = job_of(file).changed(seed=5)
    progress = Doing(after, lambda: Run(other).execute("index"))
    with pytest.raises(ArtifactError, match=r"run/split: replaced by another process"):
        Run(job_of(file), progress).execute("index")
    assert progress.made[-1] == after


def test_documents_are_not_scrubbed_by_the_spans_of_another_text(file: Path, tmp_path: Path) -> None:
    progress = Doing("spans", lambda: rewrite(file))
    with pytest.raises(CorpusError, match=CHANGED):
        scrub_documents(job_of(file), tmp_path / "out", ScrubConfig(), in_run_folder=False, progress=progress)
    assert not (tmp_path / "out").exists()


def test_a_sample_and_an_export_are_not_made_of_documents_that_change_meanwhile(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_spans(run: Run, name: str) -> Any:
        rewrite(file)
        return opened(run, name)

    opened = export._open
    monkeypatch.setattr(export, "_open", open_spans)
    with pytest.raises(CorpusError, match=CHANGED):
        export.export_files(Run(job_of(file)), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(CorpusError, match=CHANGED):
        sample_documents(job_of(file), tmp_path / "out", 5, seed=0, by_disagreement=False, progress=changing(file))
    assert not (tmp_path / "out").exists()


def changing(file: Path) -> Doing:
    """Changes the documents once their spans are there, with text that the spans are not of."""
    return Doing("spans", lambda: write(file, "call 06 12 34 56 78 now, seen by Dr. Smith"))
