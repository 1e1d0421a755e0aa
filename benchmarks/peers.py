"""One tokeniser over texts in memory: the worker of `benchmarks.protection`, and of `benchmarks.engine`.

It runs by the Python of an environment of its own (``make peers``), which has pyarrow, the tokenisers and nothing of
this project, so it imports nothing else.

    PYTHON benchmarks/peers.py LIBRARY DOCUMENTS TOKENIZER_JSON

Prints what `encode` returns: seconds of the second of two passes over all texts, as the caches of some are then full.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

#: Texts to the ids of each, whatever holds them.
Encode = Callable[[list[str]], Iterable[Any]]


def _tokenizers(path: str) -> Encode:
    from tokenizers import Tokenizer

    library = Tokenizer.from_file(path)
    batch = getattr(library, "encode_batch_fast", library.encode_batch)
    return lambda texts: [encoding.ids for encoding in batch(texts, add_special_tokens=False)]


def _nanotoken(path: str) -> Encode:
    from nanotoken import Tokenizer

    library = Tokenizer.from_json(Path(path).read_text())
    return lambda texts: library.encode_batch_list(texts, add_special_tokens=False)


def _gigatoken(path: str) -> Encode:
    from gigatoken import Tokenizer

    return Tokenizer.from_json(Path(path).read_text()).encode_batch_list


def _tokie(path: str) -> Encode:
    from tokie import Tokenizer

    library = Tokenizer.from_json(path)
    return lambda texts: [encoding.ids for encoding in library.encode_batch(texts, add_special_tokens=False)]


LIBRARIES: dict[str, Callable[[str], Encode]] = {
    "tokenizers": _tokenizers,
    "nanotoken": _nanotoken,
    "gigatoken": _gigatoken,
    "tokie": _tokie,
}


def digest(ids: Iterable[int]) -> str:
    """Return a few letters for the ids of a document, by which two tokenisers are compared."""
    return hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()[:12]


def read_texts(documents: str) -> list[str]:
    """Return the column ``text`` of Parquet files."""
    import pyarrow.parquet as pq

    files = sorted(Path(documents).rglob("*.parquet")) if Path(documents).is_dir() else [Path(documents)]
    return [text for file in files for text in pq.read_table(file, columns=["text"]).column("text").to_pylist()]


def encode(library: str, documents: str, tokenizer: str, passes: int = 2) -> dict[str, Any]:
    """Return times and numbers of tokens of the last pass, and a digest of the ids of each document."""
    encode, texts = LIBRARIES[library](tokenizer), read_texts(documents)
    for _ in range(passes):
        started, before = time.perf_counter(), time.process_time()
        found = encode(texts)
        seconds, cpu = time.perf_counter() - started, time.process_time() - before
    rows = [list(map(int, ids)) for ids in found]
    return {
        "version": version(library),
        "seconds": seconds,
        "cpu_seconds": cpu,
        "tokens": sum(map(len, rows)),
        "documents": len(texts),
        "text_bytes": sum(len(text.encode()) for text in texts),
        "digests": [digest(row) for row in rows],
    }


def main() -> None:
    """Print as JSON what a library does; one that is not there, or refuses the tokenizer, is told by its error."""
    library, documents, tokenizer, *passes = sys.argv[1:]
    try:
        answer = encode(library, documents, tokenizer, *map(int, passes))
    except Exception as error:
        answer = {"error": type(error).__name__}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
