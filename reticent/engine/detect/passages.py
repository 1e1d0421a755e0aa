"""Passages: running a trained NER model once on each distinct paragraph, with a cache of its spans.

A passage is a paragraph, or lines up to one that ends a sentence. Notes are copied forward passage by passage, so the
spans of a passage are kept (:mod:`reticent.engine.detect.passages`) and not those of a document. A recogniser of
entities looks a few words to each side, and seldom across a line that ends a sentence.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from reticent.core.artifact import make_private_folder, write_private
from reticent.engine.detect import spans_batch

# ------------------------------------------------------------------------------------------------------------- windows
#
# Windows: texts longer than a library takes are cut at white space into pieces that overlap.
#
# A span belongs to the piece in which it begins and is farther from the cut than in the other, so each is taken once,
# and one that is shorter than half the overlap is seen whole by the piece it belongs to.


#: start, end, label and score of a span in its window.
Found = tuple[int, int, str, float]


class Window(NamedTuple):
    """Characters ``start`` to ``end`` of a document; it owns the spans that begin from ``first`` up to ``last``."""

    document: int
    start: int
    end: int
    first: int
    last: int


def cut_texts(texts: Sequence[str], length: int, overlap: int) -> list[Window]:
    """Return windows of at most ``length`` characters that cover all texts and overlap by about ``overlap`` characters,
    in order; a short text is one window.

    >>> ["one two six ten"[w.start : w.end] for w in cut_texts(["one two six ten"], 9, 4)]
    ['one two ', 'two six ', 'six ten']
    """
    windows = []
    for document, text in enumerate(texts):
        start = first = 0
        while len(text) - start > length:
            end = _offset_after_space(text, start + length, start + length // 2)
            following = max(_offset_after_space(text, end - overlap, end - 2 * overlap), start + 1)
            last = _offset_after_space(text, (following + end) // 2, following)
            windows.append(Window(document, start, end, first, last))
            start, first = following, last
        windows.append(Window(document, start, len(text), first, len(text)))
    return windows


def _offset_after_space(text: str, at: int, lowest: int) -> int:
    """Return the largest offset in ``text`` that follows white space, at most ``at`` and above ``lowest``; ``at`` if
    there is none."""
    for offset in range(at, max(lowest, 0), -1):
        if text[offset - 1].isspace():
            return offset
    return at


def join_spans(windows: Sequence[Window], found: Sequence[Sequence[Found]]) -> pa.Table:
    """Return the spans found in overlapping windows as one table with offsets into the whole texts, each span once
    (schema `BATCH_SPANS`)."""
    rows = [
        (window.document, window.start + start, window.start + end, label, score)
        for window, spans in zip(windows, found, strict=True)
        for start, end, label, score in spans
        if window.first <= window.start + start < window.last
    ]
    document, start, end, label, score = zip(*rows, strict=True) if rows else ((), (), (), (), ())
    numbers = np.array([document, start, end], dtype=np.int64)
    return spans_batch(numbers[0], numbers[1], numbers[2], pa.array(label, pa.string()), np.array(score, np.float32))


#: An empty line; or the end of a line that ends a sentence, and not in what is cut short ("Dr.").
_END: Final = re.compile(r"\n[^\S\n]*\n\s*|(?<=\w{4}[.!?:;])[^\S\n]*\n\s*")


def cut_passages(texts: Sequence[str], length: int) -> list[Window]:
    """Return the paragraphs of all texts as windows, in order; longer ones are cut into parts of at most ``length``
    characters.

    >>> text = "Seen by Dr.\\nRoy today.\\nNo pain.\\n\\nPlan"
    >>> [text[w.start : w.end] for w in cut_passages([text], 1000)]
    ['Seen by Dr.\\nRoy today.\\n', 'No pain.\\n\\n', 'Plan']
    """
    windows = []
    for document, text in enumerate(texts):
        start = 0
        for match in _END.finditer(text):
            windows.append(Window(document, start, match.end(), start, match.end()))
            start = match.end()
        if start < len(text) or not text:
            windows.append(Window(document, start, len(text), start, len(text)))
    return [part for window in windows for part in _cut_window(texts[window.document], window, length)]


def _cut_window(text: str, window: Window, length: int) -> list[Window]:
    """Return a paragraph's window as consecutive windows of at most ``length`` characters, cut at white space where
    possible."""
    parts, start = [], window.start
    while window.end - start > length:
        end = max(text.rfind(" ", start, start + length), text.rfind("\n", start, start + length)) + 1 or start + length
        parts.append(Window(window.document, start, end, start, end))
        start = end
    return [*parts, Window(window.document, start, window.end, start, window.end)]


def find_in_pieces(
    pieces: Sequence[str], find: Callable[[list[str]], Sequence[list[Found]]], cache: SpanCache | None = None
) -> list[list[Found]]:
    """Return a list of spans for each piece of text. ``find`` is called once, with the distinct pieces that have a
    letter or digit and are not in ``cache``, longest first.

    Raises
    ------
    ValueError
        ``find`` returned another number of lists than it was given pieces, or a span that does not fit its piece.

    >>> find_in_pieces(["b", "aa", "b", "--"], lambda asked: [[(0, len(a), "X", 1.0)] for a in asked])
    [[(0, 1, 'X', 1.0)], [(0, 2, 'X', 1.0)], [(0, 1, 'X', 1.0)], []]
    """
    distinct = dict.fromkeys(text for text in pieces if any(map(str.isalnum, text)))
    known: dict[str, list[Found]] = cache.look_up(list(distinct)) if cache is not None else {}
    wanted = sorted((text for text in distinct if text not in known), key=len, reverse=True)
    found = find(wanted) if wanted else ()
    if len(found) != len(wanted):
        raise ValueError(f"{len(wanted)} pieces have {len(found)} lists of spans")
    new = dict(zip(wanted, map(list, found), strict=True))
    for text, spans in new.items():
        if not all(0 <= start < end <= len(text) for start, end, *_ in spans):
            raise ValueError(f"a span does not fit its piece of {len(text)} characters")
    if cache is not None:
        cache.add(new)
    known |= new
    return [known.get(text, []) for text in pieces]


# ---------------------------------------------------------------------------------------------------------- span cache
#
# Cache of the spans that a trained NER found in a passage: what it saw once costs nothing again.
#
# The cache is a folder (0700) with a secret key and parts (0600), each a table of one flush. It holds no text: a
# passage is its keyed hash (BLAKE2b, 128 bits, the key never leaves the folder), a span its label and two offsets.
# Whoever has the folder and a passage can ask whether it stood in the corpus, so the folder is as secret as the spans.
#
# A part is written whole or not at all. One that cannot be read, or is of another model or other options, is deleted,
# and its passages are looked at again: a cache costs time at most, and changes nothing but the last digits of scores,
# which depend on the passages that are looked at together.


KEY: Final = "key"
#: In a part's metadata: digest of the model and its options.
ABOUT: Final = b"reticent.detector"
#: Entries that are kept in memory before they are written as a part.
PART: Final = 200_000
FIELDS: Final = ("start", "end", "label", "score")
#: One row a passage.
SCHEMA: Final = pa.schema(
    [
        pa.field("passage", pa.binary(16), nullable=False),
        pa.field(
            "spans",
            pa.list_(pa.struct(list(zip(FIELDS, (pa.int32(), pa.int32(), pa.string(), pa.float32()), strict=True)))),
            nullable=False,
        ),
    ]
)


class SpanCache:
    """On-disk cache of the spans of passages, for one detector with its options.

    Parameters
    ----------
    folder : Path
        It is made where it is not there.
    cache_key : str
        All that changes the spans of a text: the model, its options, the versions of its library.
    """

    def __init__(self, folder: Path, cache_key: str):
        self._folder = folder
        make_private_folder(folder)
        self._key = _read_key(folder / KEY)
        self._about = hashlib.sha256(cache_key.encode()).digest()
        self._new: dict[bytes, list[Found]] = {}
        self._read()
        #: Passages that were asked for, and those of them that were known.
        self.num_asked = 0
        self.num_known = 0

    def look_up(self, passages: Sequence[str]) -> dict[str, list[Found]]:
        """Return a dict from passage to its spans, for the passages that are in the cache."""
        hashes = [self._hash(passage) for passage in passages]
        known: dict[str, list[Found]] = {}
        for passage, digest, row in zip(passages, hashes, self._find_rows(hashes), strict=True):
            if row >= 0:
                spans = self._spans[row].as_py()
                known[passage] = [(s["start"], s["end"], s["label"], s["score"]) for s in spans]
            elif digest in self._new:
                known[passage] = list(self._new[digest])
        self.num_asked += len(passages)
        self.num_known += len(known)
        return known

    def add(self, found: Mapping[str, Sequence[Found]]) -> None:
        """Add the spans of further passages to the cache; they are written to disk by `write`, or once there are
        many."""
        for passage, of in found.items():
            spans = [(start, end, label, float(np.float32(score))) for start, end, label, score in of]
            self._new[self._hash(passage)] = spans
        if len(self._new) >= PART:
            self.write()

    def write(self) -> None:
        """Write the passages added since the last write to a new file of the cache."""
        if self._new:
            rows = [[dict(zip(FIELDS, span, strict=True)) for span in of] for of in self._new.values()]
            columns = [pa.array(self._new, pa.binary(16)), pa.array(rows, SCHEMA.field("spans").type)]
            table = pa.table(columns, schema=SCHEMA)
            self._write_table(table)
            self._new = {}
            self._add_known(table, is_used=True)

    def close(self) -> None:
        """Write the new passages to disk, and delete the cached ones that were never looked up, as the corpus no longer
        has them."""
        self.write()
        if not self._used.all():
            parts = self._parts()
            kept = self._table.filter(pa.array(self._used))
            if kept.num_rows:
                self._write_table(kept)
            for path in parts:
                path.unlink()
            self._read()

    def _parts(self) -> list[Path]:
        """Return the paths of the cache's files, in the order in which they were written."""
        return sorted(self._folder.glob("part-*.arrow"))

    def _write_table(self, table: pa.Table) -> None:
        """Write a table of passages and spans as the next numbered file of the cache."""
        numbers = [int(path.stem.removeprefix("part-")) for path in self._parts()]
        sink = pa.BufferOutputStream()
        table = table.combine_chunks().replace_schema_metadata({ABOUT: self._about})
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        name = f"part-{max(numbers, default=0) + 1:06d}.arrow"
        write_private(self._folder / name, sink.getvalue().to_pybytes())

    def _read(self) -> None:
        """Load all files of the cache; unreadable ones and those of another model are deleted."""
        tables = [SCHEMA.empty_table()]
        self._table, self._used = SCHEMA.empty_table(), np.zeros(0, dtype=bool)
        self._sorted: list[tuple[np.ndarray, np.ndarray]] = []
        for path in self._parts():
            try:
                with pa.OSFile(str(path)) as source:
                    table = pa.ipc.open_file(source).read_all()
                if not table.schema.equals(SCHEMA) or (table.schema.metadata or {}).get(ABOUT) != self._about:
                    raise pa.ArrowInvalid("of another model")
                table.validate(full=True)
            except (OSError, pa.ArrowException):
                path.unlink(missing_ok=True)
                continue
            tables.append(table.replace_schema_metadata(None))
        self._add_known(pa.concat_tables(tables), is_used=False)

    def _add_known(self, table: pa.Table, *, is_used: bool) -> None:
        """Add a table of passage hashes and their spans to the cache in memory, marked as used in this run or not.
        Sorted hash arrays of similar size are merged, so each hash is sorted only a few times."""
        hashes, rows = _halves(b"".join(table.column("passage").to_pylist())), np.arange(table.num_rows)
        rows += self._table.num_rows
        while self._sorted and len(self._sorted[-1][1]) < 2 * len(rows):
            before = self._sorted.pop()
            hashes, rows = (np.concatenate(both) for both in zip(before, (hashes, rows), strict=True))
        order = np.argsort(hashes[:, 0], kind="stable")
        self._sorted.append((hashes[order], rows[order]))
        self._table = pa.concat_tables([self._table, table])
        self._spans = self._table.column("spans")
        self._used = np.concatenate([self._used, np.full(table.num_rows, is_used)])

    def _hash(self, passage: str) -> bytes:
        """Return the keyed 128-bit hash of a passage."""
        content = self._about + passage.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(content, digest_size=16, key=self._key).digest()

    def _find_rows(self, hashes: Sequence[bytes]) -> list[int]:
        """Return the row in the cache of each of these hashes; -1 for unknown ones."""
        asked, rows = _halves(b"".join(hashes)), np.full(len(hashes), -1)
        for known, own in self._sorted:
            if len(own):
                at = np.minimum(np.searchsorted(known[:, 0], asked[:, 0]), len(known) - 1)
                rows = np.where((known[at] == asked).all(axis=1), own[at], rows)
        self._used[rows[rows >= 0]] = True
        found: list[int] = rows.tolist()
        return found


@contextmanager
def cached(folder: Path, detectors: Sequence[Any]) -> Iterator[None]:
    """Give each detector that has a ``cache_key`` an on-disk cache of its spans, in a subfolder of ``folder``, for the
    ``with`` block.

    After an error the new passages are kept too, so that the next try goes on from there.
    """
    caching = [detector for detector in detectors if hasattr(detector, "cache_key")]
    for detector in caching:
        detector.cache = SpanCache(folder / detector.name, detector.cache_key())
    try:
        yield
    except BaseException:
        for detector in caching:
            detector.cache.write()
        raise
    for detector in caching:
        detector.cache.close()


def delete_cache(folder: Path) -> None:
    """Delete the span caches under ``folder``, their keys first, as the rest is unusable without them."""
    for key in folder.glob(f"*/{KEY}"):
        key.unlink(missing_ok=True)
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder)


def copy_cache(folder: Path, source: Path) -> None:
    """Copy the span caches of another run (folder ``source``) to ``folder``, except those already there. Keys are
    copied last: files without a key are unusable, so an interrupted copy is repeated."""
    for key in sorted(source.glob(f"*/{KEY}")):
        place = folder / key.parent.name
        if not (place / KEY).exists():
            make_private_folder(place)
            for path in (*sorted(key.parent.glob("part-*.arrow")), key):
                write_private(place / path.name, path.read_bytes())


def _halves(hashes: bytes) -> np.ndarray:
    """Return each 128-bit hash as two uint64 numbers, shape (N, 2)."""
    return np.frombuffer(hashes, dtype=">u8").astype(np.uint64).reshape(-1, 2)


def _read_key(path: Path) -> bytes:
    """Return the key in a cache folder's file; a missing file is written with a random key, which makes older content
    unusable."""
    if not path.exists():
        write_private(path, secrets.token_bytes(32))
    return path.read_bytes()
