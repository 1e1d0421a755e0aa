"""Sizes of texts for the attack that needs them: those of the text, by as many threads as asked for."""

from __future__ import annotations

import zlib
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from reticent import _rust
from reticent.core.errors import ArtifactError
from reticent.engine import text_sizes
from reticent.engine.corpus import open_corpus
from reticent.engine.split import SplitConfig, split_individuals
from reticent.engine.text_sizes import read_zlib_bytes, write_text_sizes

TEXTS = ["été " * 50, "", "x😀", "a b", "c " * 900]


def written(folder: Path, num_threads: int = 0) -> int:
    documents = {
        "doc_id": [f"d{i}" for i in range(len(TEXTS))],
        "individual_id": [f"p{i}" for i in range(len(TEXTS))],
        "text": TEXTS,
    }
    corpus = open_corpus(documents)
    individuals = split_individuals(corpus, SplitConfig(heldout=0.4))
    return write_text_sizes(folder, corpus, individuals, ("members", "heldout"), num_threads=num_threads)


def test_text_sizes_are_those_of_the_text(tmp_path: Path) -> None:
    assert written(tmp_path) == len(TEXTS)
    sizes = pq.read_table(tmp_path / "text_sizes.parquet")
    assert sizes.column("num_bytes").to_pylist() == [len(text.encode()) for text in TEXTS]
    expected = [len(zlib.compress(text.encode())) for text in TEXTS]
    assert sizes.column("zlib_bytes").to_pylist() == read_zlib_bytes(tmp_path).tolist() == expected


@pytest.mark.parametrize("content", [None, b"no table"])
def test_sizes_that_cannot_be_read_are_an_error_with_their_file(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "text_sizes.parquet").write_bytes(content)
    with pytest.raises(ArtifactError, match=r"text_sizes\.parquet: not readable .* zlib attack"):
        read_zlib_bytes(tmp_path)


@pytest.mark.parametrize(
    ("num_threads", "rayon", "used"), [(1, "7", 1), (3, None, 3), (0, "2", 2), (0, "none", 0), (0, None, 0)]
)
def test_texts_are_compressed_by_as_many_threads_as_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_threads: int, rayon: str | None, used: int
) -> None:
    asked: list[int] = []

    class Pool(text_sizes.ThreadPoolExecutor):
        def __init__(self, max_workers: int) -> None:
            asked.append(max_workers)
            super().__init__(max_workers)

    monkeypatch.setattr(text_sizes, "ThreadPoolExecutor", Pool)
    monkeypatch.delenv("RAYON_NUM_THREADS", raising=False)
    every_core = _rust.resolve_threads(0)
    if rayon is not None:
        monkeypatch.setenv("RAYON_NUM_THREADS", rayon)
    written(tmp_path, num_threads)
    assert asked == [used or every_core]
