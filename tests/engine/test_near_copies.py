"""Held-out individuals who hold near-copies of members' documents, found among both sides."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reticent.core.errors import ArtifactError
from reticent.engine import near_copies
from reticent.engine.config import DedupConfig, SplitConfig
from reticent.engine.corpus import Corpus, open_corpus
from reticent.engine.near_copies import heldout_with_copies, read_copied, write_copied
from reticent.engine.schema import HELDOUT, MEMBERS, REFERENCE
from reticent.engine.sources.frames import FrameSource
from reticent.engine.split import Individuals, split_individuals

NUM = 30


def text(seed: int) -> list[str]:
    rng = random.Random(seed)
    return [f"word{rng.randrange(10**6)}" for _ in range(60)]


def corpus_of(texts: dict[str, str]) -> Corpus:
    rows = {"doc_id": [f"d{name}" for name in texts], "individual_id": list(texts), "text": list(texts.values())}
    return Corpus(FrameSource("table", pa.table(rows)))


@pytest.fixture(scope="module")
def individuals() -> Individuals:
    names = {f"p{number:02}": " ".join(text(number)) for number in range(NUM)}
    return split_individuals(corpus_of(names), SplitConfig(heldout=0.4, reference=0.2))


def test_who_holds_a_near_copy_of_a_members_document_is_found(individuals: Individuals) -> None:
    names = individuals.table.column("individual_id").to_pylist()
    member, heldout, reference = (np.flatnonzero(individuals.mask(side)) for side in (MEMBERS, HELDOUT, REFERENCE))
    words = {code: text(code) for code in range(NUM)}
    words[heldout[0]] = list(words[member[0]])  # equal
    words[heldout[1]] = [*words[member[1]][:58], "other", "words"]  # near
    words[heldout[2]] = [*words[member[2]][:30], *words[heldout[2]][30:]]  # half of it is no near-copy
    words[heldout[4]] = list(words[heldout[3]])  # of another who is held out
    words[heldout[5]] = list(words[reference[0]])  # nor is that of one whom no audit asks about
    words[member[3]] = words[heldout[6]] = ["."]  # nor is a text without words
    corpus = corpus_of({names[code]: " ".join(words[code]) for code in range(NUM)})
    copied = heldout_with_copies(corpus, individuals)
    assert copied is not None
    assert np.flatnonzero(copied).tolist() == [heldout[0], heldout[1]]
    alike = heldout_with_copies(corpus, individuals, DedupConfig(threshold=0.25, mode="exact"))
    assert alike is not None
    assert np.flatnonzero(alike).tolist() == [heldout[0], heldout[1], heldout[2]]


def test_in_more_text_than_memory_holds_they_are_not_looked_for(
    individuals: Individuals, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = individuals.table.column("individual_id").to_pylist()
    texts = {name: " ".join(text(number)) for number, name in enumerate(names)}
    audited = np.flatnonzero(individuals.mask(MEMBERS, HELDOUT)).tolist()
    num_bytes = sum(len(texts[names[code]]) for code in audited)
    monkeypatch.setattr(near_copies, "MAX_BYTES", num_bytes)
    assert heldout_with_copies(corpus_of(texts), individuals) is not None
    monkeypatch.setattr(near_copies, "MAX_BYTES", num_bytes - 1)
    assert heldout_with_copies(corpus_of(texts), individuals) is None


def test_who_holds_copies_is_read_as_it_was_written(tmp_path: Path) -> None:
    copied = np.array([True, False, True])
    write_copied(copied, tmp_path)
    np.testing.assert_array_equal(read_copied(tmp_path), copied)
    with pytest.raises(ArtifactError, match="not readable"):
        read_copied(tmp_path / "nowhere")


def test_files_are_read_by_many_threads_with_one_result(
    individuals: Individuals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = individuals.table.column("individual_id").to_pylist()
    member, heldout = (np.flatnonzero(individuals.mask(side)) for side in (MEMBERS, HELDOUT))
    words = {code: text(code) for code in range(NUM)} | {heldout[1]: text(int(member[1]))}
    for code, own in words.items():  # a file each
        row = {"doc_id": [f"d{code}"], "individual_id": [names[code]], "text": [" ".join(own)]}
        pq.write_table(pa.table(row), tmp_path / f"{code:02}.parquet")
    readers, read = set(), Corpus.for_each_batch

    def for_each_batch(self: Corpus, work: Callable[..., None], **options: Any) -> None:
        def noted(first: int, batch: pa.RecordBatch) -> None:
            readers.add(threading.get_ident())
            time.sleep(0.01)
            work(first, batch)

        read(self, noted, **options)

    monkeypatch.setattr(Corpus, "for_each_batch", for_each_batch)
    for num_threads in (1, 4):
        readers.clear()
        copied = heldout_with_copies(open_corpus(tmp_path), individuals, num_threads=num_threads)
        assert copied is not None
        assert np.flatnonzero(copied).tolist() == [heldout[1]]
        assert len(readers) == num_threads
