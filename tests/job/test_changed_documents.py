"""Documents and results that change while a job reads them: no result is made of two texts, or of another job's."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fixtures.documents import write_documents
from fixtures.jobs import Recorder, changed, make_hospital, values_of
from fixtures.models import write_toy_model

from reticent.core.errors import ArtifactError, CorpusError
from reticent.engine.corpus import open_corpus
from reticent.ext.annotate.command import sample_documents
from reticent.ext.scrub.command import scrub_documents
from reticent.ext.scrub.scrub import ScrubConfig
from reticent.ext.warehouse import export
from reticent.job.config import Job, parse_job
from reticent.job.pipeline import execute
from reticent.job.run import Run
from reticent.job.stages import train

CHANGED = "have changed since"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "notes").mkdir()
    return write(tmp_path / "notes" / "a.parquet", "seen by Dr. Smith, call 06 12 34 56 78")


def write(file: Path, text: str) -> Path:
    return write_documents(file, [f"{text} word{number}" for number in range(20)], rows_per_group=20)


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
        execute(Run(job_of(file), progress), "index")
    assert progress.made[-1] == after
    again = Recorder()
    execute(Run(job_of(file), again), "index")
    assert again.made == ["split", "spans", "index", "index-joint"]


def test_documents_that_were_only_touched_are_the_same(file: Path) -> None:
    progress = Doing("split", lambda: os.utime(file, (1, 1)))
    execute(Run(job_of(file), progress), "index")
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
    progress = Doing(after, lambda: execute(Run(other), "index"))
    with pytest.raises(ArtifactError, match=r"run/split: replaced by another process"):
        execute(Run(job_of(file), progress), "index")
    assert progress.made[-1] == after


class DoingAtStep(Recorder):
    """Does something after the first step of a training, and counts the steps."""

    def __init__(self, what: Callable[[], object]):
        super().__init__()
        self.what, self.num_steps = what, 0

    @contextmanager
    def task(self, description: str, *about: Any, **more: Any) -> Iterator[Callable[..., None]]:
        def advance(*_: Any, **__: Any) -> None:
            self.num_steps += 1
            if self.num_steps == 1:
                self.what()

        with super().task(description, *about, **more) as usual:
            yield advance if description.startswith("train ") else usual


@pytest.mark.heavy
def test_a_training_stops_soon_after_its_tokens_were_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "LOOK_AGAIN", 0.0)
    hospital = make_hospital(tmp_path, 16)
    base = write_toy_model(hospital / "bert")
    values = changed(
        values_of(hospital, tmp_path / "run"), model__base=str(base), train__num_epochs=4, train__window_length=32
    )
    other = changed(values, protect__k=4)
    progress = DoingAtStep(lambda: execute(Run(parse_job(other)), "protect"))
    with pytest.raises(ArtifactError, match=r"tokens/toy/train: replaced by another process"):
        execute(Run(parse_job(values), progress), "train")
    assert progress.num_steps < 4
    assert not any(name.startswith("models/") for name in progress.made)


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

    opened = export._open_result
    monkeypatch.setattr(export, "_open_result", open_spans)
    with pytest.raises(CorpusError, match=CHANGED):
        export.export_files(Run(job_of(file)), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(CorpusError, match=CHANGED):
        sample_documents(job_of(file), tmp_path / "out", 5, seed=0, by_disagreement=False, progress=changing(file))
    assert not (tmp_path / "out").exists()


def changing(file: Path) -> Doing:
    """Changes the documents once their spans are there, with text that the spans are not of."""
    return Doing("spans", lambda: write(file, "call 06 12 34 56 78 now, seen by Dr. Smith"))
