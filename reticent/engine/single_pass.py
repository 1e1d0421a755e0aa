"""One pass over the text that writes any of: token ids, word numbers, and the words that identifier spans cover.

Everything after it (:mod:`reticent.engine.token_views`) is work on numbers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from reticent import _rust
from reticent.core.errors import CorpusError
from reticent.engine.schema import with_place
from reticent.engine.store_writer import BitFile, IdsWriter
from reticent.engine.threads import overlapped
from reticent.engine.word_ids import SpanWriter, WordWriter

if TYPE_CHECKING:
    from reticent import _rust
    from reticent.engine.corpus import Corpus
    from reticent.engine.detect.spans import SpanReader
    from reticent.engine.ngrams import NgramIndex

#: File of the tokens that meet what a span holds between words: one bit a token.
GAPS = "gaps.bits"


@dataclass(slots=True)
class Encoding:
    """A tokenizer, and the folders for the results of its tokens.

    Attributes
    ----------
    ids : folder of the ids, or None
    gaps : folder of the tokens that spans hold between words, or None
    """

    tokenizer_json: str
    ids: Path | None = None
    gaps: Path | None = None


@dataclass(slots=True)
class SinglePass:
    """One pass over the documents of a corpus, and the folders that its results go to.

    Attributes
    ----------
    words : folder of the numbers of words, or None
    index : index whose rows number the words; needed for ``words``
    word_spans : folder of the words of spans, or None
    spans : SpanReader; needed for ``word_spans`` and gaps
    encodings : tokens, by tokenizer
    wanted : which documents are read, bool, shape (num_documents,); None: all
    on_batch : called with the row of its first document and each batch, which has ``individual_id`` then
    """

    corpus: Corpus
    words: Path | None = None
    index: NgramIndex | None = None
    word_spans: Path | None = None
    spans: SpanReader | None = None
    encodings: list[Encoding] = field(default_factory=list)
    wanted: np.ndarray | None = None
    on_batch: Callable[[int, pa.RecordBatch], None] | None = None
    num_threads: int = 0
    _rows: np.ndarray | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.wanted is not None:
            self._rows = np.flatnonzero(self.wanted)

    def run(self, progress: Callable[[int], None] | None = None) -> dict[Path, dict[str, Any]]:
        """Read all documents once and write the requested files (token ids, word numbers, the words that identifier
        spans cover); return counts by folder. Each folder must exist and be empty.

        Raises
        ------
        CorpusError
            A span does not fit its text, or the tokenizer makes more tokens of a document than its length allows.

        Cost: reading, segmenting and tokenising, once each; memory is four batches.
        """

        encoders = [_rust.TokenEncoder(own.tokenizer_json, num_threads=self.num_threads) for own in self.encodings]
        with ExitStack() as stack:
            files = _Files(self, encoders, stack)
            self._read_documents(encoders, files, progress)
        for own, encoder in zip(self.encodings, encoders, strict=True):
            if own.ids is not None:
                (own.ids / "tokenizer.json").write_text(own.tokenizer_json, encoding="utf-8")
                files.counts[own.ids]["pretokens"] = encoder.path
        return files.counts

    def _read_documents(
        self, encoders: list[_rust.TokenEncoder], files: _Files, progress: Callable[[int], None] | None
    ) -> None:
        """Read and process all documents in batches, and write the results to the files."""
        num_done = 0
        columns = ("doc_id", "individual_id", "text") if self.on_batch else ("doc_id", "text")
        batches = self.corpus.batches(columns=columns, wanted=self.wanted)
        for batch, made in overlapped(batches, lambda batch, first: self._process_batch(encoders, batch, first)):
            files.write(batch.column("doc_id"), made)
            if self.on_batch:
                self.on_batch(num_done, batch)
            num_done += batch.num_rows
            if progress:
                progress(num_done)

    def _process_batch(self, encoders: list[_rust.TokenEncoder], batch: pa.RecordBatch, first: int) -> _Made:
        """Return the words, tokens, and words covered by identifier spans of a record batch, whose first document has
        the number ``first``."""

        texts, threads = batch.column("text"), self.num_threads
        words = _rust.segment(texts, num_threads=threads)
        numbers = spans = marked = None
        if self.words is not None:
            assert self.index is not None
            numbers = self.index.number_words(texts, words, num_threads=threads)
        if self.spans is not None:
            offsets, starts, ends, labels = self._spans_of(first, batch.num_rows)
            marked = _rust.mark_spans(
                texts, words, offsets, np.ascontiguousarray(starts), np.ascontiguousarray(ends), num_threads=threads
            )
            spans = offsets, marked.firsts, marked.ends, labels
        none = np.zeros(words.num_words, dtype=np.uint8)
        gaps = None if marked is None else marked.gaps
        try:
            tokens = [encoder.pack(texts, words, none, none, gaps=gaps) for encoder in encoders]
        except CorpusError as error:
            raise with_place(error, lambda row: self.corpus.place(self._corpus_row(first + row))) from None
        return _Made(words.doc_offsets, numbers, spans, tokens)

    def _corpus_row(self, number: int) -> int:
        """Return the corpus row number of a document, given its number among the documents that are read."""
        return number if self._rows is None else int(self._rows[number])

    def _spans_of(self, first: int, num_documents: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, pa.Array]:
        """Return the detected spans of consecutive documents: offsets by document, starts, ends, labels."""
        assert self.spans is not None
        if self._rows is None:
            return self.spans.slice(first, num_documents)
        offsets, table = self.spans.of_documents(self._rows[first : first + num_documents])
        starts, ends = (table.column(name).to_numpy() for name in ("start", "end"))
        return offsets, starts, ends, table.column("label").combine_chunks()


@dataclass(slots=True)
class _Made:
    """The results of one record batch: word offsets, word numbers, spans and tokens."""

    word_offsets: np.ndarray
    numbers: np.ndarray | None
    #: As `SpanWriter.write` takes them.
    spans: tuple[np.ndarray, np.ndarray, np.ndarray, pa.Array] | None
    tokens: list[_rust.PackedTokens]


class _Files:
    """The open output files of a pass, and counts by folder; they are closed with the exit stack."""

    def __init__(self, text: SinglePass, encoders: list[_rust.TokenEncoder], stack: ExitStack):
        self.counts: dict[Path, dict[str, Any]] = defaultdict(lambda: defaultdict(int))
        self._writers: list[Callable[[pa.Array, _Made], None]] = []
        if text.words is not None:
            assert text.index is not None
            self._add_words(text.words, text.index.num_words, stack)
        if text.word_spans is not None:
            self._add_spans(text.word_spans, stack)
        for number, (own, encoder) in enumerate(zip(text.encodings, encoders, strict=True)):
            if own.ids is not None:
                self._add_ids(own.ids, number, encoder.vocab_size, stack)
            if own.gaps is not None:
                self._add_gaps(own.gaps, number, stack)

    def write(self, doc_ids: pa.Array, results: _Made) -> None:
        """Append the results of one record batch to all files."""
        for write in self._writers:
            write(doc_ids, results)

    def _add_words(self, folder: Path, num_index_words: int, stack: ExitStack) -> None:
        """Open the file of word numbers (index rows) in ``folder``, and register a writer that appends each batch's.
        ``num_index_words`` is the number of words in the index."""
        writer, counts = WordWriter(folder, num_index_words), self.counts[folder]
        stack.callback(writer.close)

        def write(_: pa.Array, made: _Made) -> None:
            """Append the word numbers of a batch."""
            assert made.numbers is not None
            writer.write(made.numbers, made.word_offsets)
            counts["words"] += int(made.word_offsets[-1])

        self._writers.append(write)

    def _add_spans(self, folder: Path, stack: ExitStack) -> None:
        """Open the files of the words that identifier spans cover, in ``folder``, and register a writer that appends
        each batch's."""
        writer, counts = SpanWriter(folder), self.counts[folder]
        stack.callback(writer.close)

        def write(_: pa.Array, made: _Made) -> None:
            """Append the words that a batch's identifier spans cover."""
            assert made.spans is not None
            writer.write(*made.spans)
            counts["spans"] += len(made.spans[1])

        self._writers.append(write)

    def _add_ids(self, folder: Path, tokenizer_index: int, vocab_size: int, stack: ExitStack) -> None:
        """Open the files of token ids in ``folder``, and register a writer that appends each batch's ids by this
        tokenizer."""
        writer, counts = stack.enter_context(IdsWriter(folder, vocab_size)), self.counts[folder]

        def write(doc_ids: pa.Array, made: _Made) -> None:
            """Append the token ids of a batch."""
            writer.write(doc_ids, made.tokens[tokenizer_index])
            counts.update(documents=writer.num_documents, tokens=writer.num_tokens)

        self._writers.append(write)

    def _add_gaps(self, folder: Path, tokenizer_index: int, stack: ExitStack) -> None:
        """Open the file in ``folder`` with one bit for each token, set if it lies in a detected span but outside of
        words, and register a writer that appends the bits of each batch for this tokenizer."""
        writer, counts = BitFile(folder / GAPS), self.counts[folder]
        stack.callback(writer.close)

        def write(_: pa.Array, made: _Made) -> None:
            """Append a batch's bits, one per token."""
            num_tokens = int(made.tokens[tokenizer_index].doc_offsets[-1])
            writer.write(made.tokens[tokenizer_index].direct, num_tokens)
            counts["tokens"] += num_tokens

        self._writers.append(write)
