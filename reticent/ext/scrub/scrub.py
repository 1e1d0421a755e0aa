"""Scrubbing: documents and their spans in, the documents without direct identifiers out.

There are two passes over the text, batch by batch. The first collects real identifiers (so that no new id is one of the
corpus, and coincidences of names are counted), the corpus's usual order of day and month, and its language. The second
replaces. Memory: a batch, and 8 bytes for each distinct name or id of the corpus.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reticent import _rust
from reticent.core.errors import ArtifactError, PolicyError
from reticent.engine.corpus import as_corpus
from reticent.engine.detect.labels import category
from reticent.engine.languages import KNOWN, OtherLanguages
from reticent.engine.names import SurrogateNames
from reticent.engine.pseudonymize import (
    OUTCOMES,
    STYLES,
    DateOptions,
    OffsetMap,
    Pseudonymised,
    SpanArrays,
    Style,
    pseudonymise_batch,
)
from reticent.engine.schema import DOCUMENTS, SPAN_TYPE, with_version
from reticent.engine.sources.parquet import document_writer
from reticent.engine.survey import survey_documents

if TYPE_CHECKING:
    from reticent.engine.corpus import Corpus, Documents
    from reticent.engine.detect.spans import SpanReader

DOCUMENTS_PER_PART: Final = 1 << 18
KEY_BYTES: Final = 32

_POSITIONS: Final = pa.list_(pa.int32())
#: One row a document, in the order of the documents: where its edits are in the old text and in the new (characters).
OFFSETS: Final = with_version(
    pa.schema(
        [
            pa.field("doc_id", pa.string(), nullable=False),
            *(
                pa.field(f"{text}_{end}", _POSITIONS, nullable=False)
                for text in ("old", "new")
                for end in ("start", "end")
            ),
        ]
    ),
    "offsets",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubConfig:
    """Settings of a scrub: what replaces direct identifiers.

    Parameters
    ----------
    style : {"x", "tag", "surrogate", "rotate"}
        See :mod:`reticent.engine.pseudonymize`.
    draw : int
        Which draw, for style "rotate".
    names : SurrogateNames
        Names of individuals and places, where surrogates are drawn.
    new_ids : bool
        Replace doc_id, individual_id and household_id by pseudonyms under the key.
    """

    style: Style = "surrogate"
    draw: int = 0
    dates: DateOptions = field(default_factory=DateOptions)
    names: SurrogateNames = field(default_factory=SurrogateNames)
    new_ids: bool = False
    num_threads: int = 0

    def __post_init__(self) -> None:
        if self.style not in STYLES:
            raise PolicyError(f"style: expected one of {', '.join(STYLES)}, got {self.style!r}")
        if not 0 <= self.draw < 1 << 63:
            raise PolicyError(f"draw: expected 0 to {(1 << 63) - 1}, got {self.draw}")
        if self.dates.shift_days is not None and self.style not in ("surrogate", "rotate"):
            raise PolicyError(
                "--shift-dates (shift_days): dates are shifted where surrogates are drawn, style surrogate or rotate"
            )


def new_key() -> bytes:
    """Return a new random secret key, 32 bytes."""
    return secrets.token_bytes(KEY_BYTES)


def key_of_seed(seed: int) -> bytes:
    """Return a scrub key derived from a seed, for tests only: anyone with the seed has the key."""
    return hashlib.blake2b(f"reticent.scrub/{seed}".encode(), digest_size=KEY_BYTES).digest()


def read_key(path: Path | str) -> bytes:
    """Return the secret scrub key in a file of 64 hexadecimal digits.

    Raises
    ------
    ArtifactError
        The file cannot be read or holds something else.
    """
    try:
        key = bytes.fromhex(Path(path).read_text(encoding="ascii"))
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise ArtifactError(f"{path}: expected a key of {2 * KEY_BYTES} hexadecimal digits")
    return key


def scrub_corpus(
    corpus: Corpus | Documents,
    spans: SpanReader,
    folder: Path | str,
    config: ScrubConfig,
    key: bytes,
    *,
    languages: Collection[str] = KNOWN,
    progress: Callable[[int], None] | None = None,
    warn: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Replace the identifiers in all documents of a corpus, and write the documents and the map of character offsets as
    Parquet; return counts.

    Documents keep their order and mapped columns; ``spans`` are where the replaced identifiers stand in the new text,
    and ``mentions`` where the gold marks do. ``languages`` are those that the detectors know.

    Returns
    -------
    dict
        documents, spans (as given), replaced (after the union of what overlaps), what could not be done as asked
        (the names of `OUTCOMES`), long_documents and other_language (`OtherLanguages`, told to ``warn``), and under
        "categories" for each category how many were replaced, and by a tag.
    """

    corpus = as_corpus(corpus)
    folder = Path(folder)
    (folder / "documents").mkdir()
    draws = config.style in ("surrogate", "rotate")
    options: dict[str, Any] = {}
    if draws:
        batches = ((batch.column("text"), given) for batch, given in _with_spans(corpus, spans, ["text"]))
        options = survey_documents(batches, num_threads=config.num_threads).options(config.names, config.dates)
    columns = [name for name in DOCUMENTS.names if name != "spans" and getattr(corpus.columns, name) is not None]
    counts: Counter[str] = Counter(documents=0, spans=0, replaced=0, **dict.fromkeys(OUTCOMES, 0))
    replaced: Counter[str] = Counter()
    tagged: Counter[str] = Counter()
    other_languages = OtherLanguages(languages)
    with _Writer(folder) as writer:
        for batch, given in _with_spans(corpus, spans, columns):
            made = pseudonymise_batch(
                batch, given, config.style, key, config.draw, num_threads=config.num_threads, **options
            )
            other_languages.add(batch.column("text"))
            if config.new_ids:
                batch = _with_new_ids(batch, key, config.num_threads)
            if "mentions" in columns:
                at = columns.index("mentions")
                batch = batch.set_column(at, batch.schema.field(at), _move_mentions(batch.column(at), made.edits))
            writer.write(batch, made)
            counts.update(documents=batch.num_rows, spans=len(given[1]), replaced=len(made.labels))
            counts.update({name: int(np.count_nonzero(made.outcomes & bit)) for name, bit in OUTCOMES.items()})
            _count_categories(replaced, made.labels)
            _count_categories(tagged, made.labels.filter(pa.array((made.outcomes & OUTCOMES["tagged"]) != 0)))
            if progress:
                progress(counts["documents"])
    categories = {
        name: {"replaced": number, **({"tagged": tagged[name]} if draws else {})}
        for name, number in sorted(replaced.items())
    }
    if warn and (warning := other_languages.warning()):
        warn(warning)
    return {**counts, **other_languages.counts(), "categories": categories}


def read_offsets(folder: Path | str) -> tuple[pa.Array, OffsetMap]:
    """Return a scrub's document ids and its map from old to new character offsets, in document order."""
    path = Path(folder) / "offsets.parquet"
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise ArtifactError(f"{path}: not a readable table of offsets ({type(error).__name__})") from None
    return table.column("doc_id").combine_chunks(), OffsetMap.from_columns(table)


def _with_spans(corpus: Corpus, spans: SpanReader, columns: list[str]) -> Iterator[tuple[pa.RecordBatch, SpanArrays]]:
    """Yield record batches of these columns, each with the detected spans of its documents."""
    first = 0
    for batch in corpus.batches(columns=tuple(columns)):
        yield batch, spans.slice(first, batch.num_rows)
        first += batch.num_rows


def _count_categories(counter: Counter[str], labels: pa.Array) -> None:
    """Add the number of labels of each category to a counter."""
    for row in pc.value_counts(labels).to_pylist():
        counter[category(row["values"])] += row["counts"]


def _with_new_ids(batch: pa.RecordBatch, key: bytes, num_threads: int) -> pa.RecordBatch:
    """Return a batch with doc_id, individual_id and household_id replaced by pseudonyms under the key."""
    for name in ("doc_id", "individual_id", "household_id"):
        at = batch.schema.get_field_index(name)
        if at < 0:
            continue
        ids = batch.column(at)
        made = _rust.pseudonymise_ids(ids.fill_null(""), key=key, purpose=name, num_threads=num_threads)
        new = pa.record_batch(made).column("id")
        batch = batch.set_column(at, batch.schema.field(at), pc.if_else(ids.is_valid(), new, None))
    return batch


def _move_mentions(mentions: pa.Array, edits: OffsetMap) -> pa.Array:
    """Return annotated mentions with their offsets moved from the original to the scrubbed texts."""
    flat = pc.list_flatten(mentions)
    fields = {field.name: pc.struct_field(flat, field.name) for field in flat.type}
    document = pc.list_parent_indices(mentions).to_numpy()
    start, end = edits.to_new(document, fields["start"].to_numpy(), fields["end"].to_numpy())
    fields |= {"start": pa.array(start, pa.int32()), "end": pa.array(end, pa.int32())}
    lengths = pc.fill_null(pc.list_value_length(mentions), 0).to_numpy()
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    moved = pa.StructArray.from_arrays(list(fields.values()), fields=list(flat.type))
    return pa.ListArray.from_arrays(offsets, moved, mask=mentions.is_null())


class _Writer:
    """Writes documents to numbered parts and one table of offsets, in a thread while the next batch is processed."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._pool = ThreadPoolExecutor(1)
        self._waiting: Any = None
        self._offsets = pq.ParquetWriter(folder / "offsets.parquet", OFFSETS, compression="zstd")
        self._part: pq.ParquetWriter | None = None
        self._num_parts = self._num_rows = 0

    def __enter__(self) -> _Writer:
        return self

    def write(self, batch: pa.RecordBatch, scrubbed: Pseudonymised) -> None:
        """Wait until the batch before is written, then queue a batch of scrubbed documents."""
        self._wait()
        self._waiting = self._pool.submit(self._write, batch, scrubbed)

    def _wait(self) -> None:
        """Wait until the queued batch is written; raise its error."""
        if self._waiting is not None:
            self._waiting.result()
            self._waiting = None

    def _write(self, batch: pa.RecordBatch, made: Pseudonymised) -> None:
        """Write a batch of scrubbed documents to the current Parquet file, and its map of character offsets to the
        table of offsets.
        """
        offsets, starts, ends, labels = made.spans()
        flat = pa.StructArray.from_arrays([pa.array(starts), pa.array(ends), labels], fields=list(SPAN_TYPE))
        spans = pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), flat)
        columns = {name: made.texts if name == "text" else batch.column(name) for name in batch.schema.names}
        schema = pa.schema([DOCUMENTS.field(name) for name in (*columns, "spans")], metadata=DOCUMENTS.metadata)
        table = pa.Table.from_arrays([*columns.values(), spans], schema=schema)
        if self._part is None:
            path = self._folder / "documents" / f"part-{self._num_parts:05d}.parquet"
            self._part = document_writer(path, schema)
            self._num_parts, self._num_rows = self._num_parts + 1, 0
        self._part.write_table(table)
        self._num_rows += table.num_rows
        if self._num_rows >= DOCUMENTS_PER_PART:
            self._part.close()
            self._part = None
        rows = {"doc_id": batch.column("doc_id"), **made.edits.columns()}
        self._offsets.write_table(pa.table([rows[name] for name in OFFSETS.names], schema=OFFSETS))

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            if kind is None:
                self._wait()
        finally:
            self._pool.shutdown()
            self._offsets.close()
            if self._part is not None:
                self._part.close()
