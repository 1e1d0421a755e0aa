"""The union of detectors: all run over a corpus, and their spans are checked, ordered and written.

A detector that fails stops the run: a skipped note would be an unprotected one. With ``on_error="quarantine"`` the
batch is tried document by document instead, and a document that a detector fails on is listed, and left out of
everything after it. A failure on every document of a batch is no matter of one document, and stops the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reticent.core.errors import CorpusError, PolicyError, ReticentError
from reticent.engine.corpus import Corpus, Documents, as_corpus
from reticent.engine.detect.alignment import Alignment
from reticent.engine.detect.common import learn_common_words
from reticent.engine.detect.detector import (
    BATCH_SPANS,
    FOUND,
    Detector,
    detection_stage,
    found_in,
    with_detector_column,
)
from reticent.engine.detect.spans import SpanFile, write_quarantine
from reticent.engine.detect.together import detect_together
from reticent.engine.reuse import ReusedSpans
from reticent.engine.schema import SPANS
from reticent.engine.sources.columns import sorted_codes
from reticent.engine.threads import overlapped, read_ahead

OnError = Literal["stop", "quarantine"]

#: Spans that a detector finds in a batch, and row -> error of the documents it fails on (of none but in a quarantine).
Detected = tuple[pa.Table, dict[int, str]]


def detect_spans(
    corpus: Corpus | Documents,
    detectors: Sequence[Detector],
    folder: Path | str,
    *,
    on_error: OnError = "stop",
    carried: ReusedSpans | None = None,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Run all detectors over a corpus, and write the union of their spans to ``folder/spans.parquet`` (schema `SPANS`;
    secret). Spans that an earlier run found (``carried``) are copied instead. Return counts by detector.

    Spans are ordered by document, start and end; equal spans of one detector stand once. Documents are numbered
    without those in quarantine, as in ``corpus.without(quarantined_rows(folder))``.

    Parameters
    ----------
    on_error : {"stop", "quarantine"}
        Effect of a document that a detector fails on: it stops the run, or it is listed in
        ``folder/quarantine.parquet`` (:mod:`reticent.engine.detect.spans`; secret) and has no span.
    carried : ReusedSpans, optional
        Spans that these detectors found in an earlier run; the documents that have some there are not read.

    Returns
    -------
    dict
        For each detector the spans it found, under "spans" how many were written, and with ``"quarantine"`` under
        "quarantined" how many documents were left out.

    Raises
    ------
    CorpusError
        A detector failed, or gave a span outside its text; the message names the document's row. Or most spans of a
        detector cut words, as those of another text or in bytes do.
    """

    corpus = as_corpus(corpus)
    _require_read_detectors(detectors)
    learn_common_words(corpus, detectors)
    union = _Union(detectors, on_error, None if carried is None else np.flatnonzero(carried.rows < 0))
    columns = ["doc_id", "individual_id", "text"]
    columns += dict.fromkeys(name for detector in detectors for name in detector.columns if name not in columns)
    only: dict[str, Any] = {} if carried is None else {"wanted": carried.rows < 0}
    batches = corpus.batches(columns=tuple(columns), **only)
    num_done = 0
    with SpanFile(Path(folder) / "spans.parquet") as file, ThreadPoolExecutor(1) as pool:
        written: Future[None] | None = None
        for batch, found in union.detect_batches(batches) if detectors else ():
            unite = union.check_results(batch, found)
            before, num_done = num_done, union.corpus_row(union.num_read - 1) + 1
            if written:  # while the detectors worked on this batch, the spans of the last one were put in order
                written.result()
            written = pool.submit(_write_merged, file, unite, _reused_spans(carried, before, num_done, union))
            if progress:
                progress(num_done)
        if written:
            written.result()
        if carried is not None:
            _write_merged(file, SPANS.empty_table, _reused_spans(carried, num_done, len(carried.rows), union))
    for name, count in carried.counts.items() if carried is not None else ():
        union.counts[name] += count
    union.counts["spans"] = file.num_spans
    if on_error == "quarantine":
        write_quarantine(union.quarantine, folder)
    return union.counts


def _require_read_detectors(detectors: Sequence[Detector]) -> None:
    """Raise `PolicyError` if a detector needs the spans of another detector that is not in the list."""
    names = [detector.name for detector in detectors]
    for detector in detectors:
        if missing := [name for name in getattr(detector, "reads", ()) if name not in names]:
            raise PolicyError(
                f"detector {detector.name} was taught beside {', '.join(missing)}, and detect.detectors has no "
                f"{missing[0]}; give the same detectors, or learn it again"
            )


def _is_exact(detector: Detector) -> bool:
    """Whether a detector's offsets are known to be correct, as those of the Rust core are; others are checked."""
    return getattr(detector, "exact_offsets", False)


def _write_merged(file: SpanFile, merge_found: Callable[[], pa.Table], reused: Iterable[tuple[int, pa.Table]]) -> None:
    """Write the spans that ``merge_found()`` returns and the spans ``reused`` from an earlier run to the file, in
    document order. ``reused`` yields pairs: the end of a range of documents, and the spans in that range."""
    found = merge_found()
    for end, before in reused:
        num_found = int(np.searchsorted(found.column("document").to_numpy(), end))
        both = pa.concat_tables([before, found.slice(0, num_found)])
        order = np.argsort(both.column("document").to_numpy(), kind="stable")
        file.write(both.take(pa.array(order)) if num_found else before)
        found = found.slice(num_found)
    file.write(found)


def _reused_spans(reused: ReusedSpans | None, first: int, end: int, union: _Union) -> Iterator[tuple[int, pa.Table]]:
    """Yield the spans that an earlier run found in documents ``first`` to ``end`` (exclusive) as pairs: the end of a
    range of documents, and the spans in that range. Documents are numbered without those quarantined in this run."""
    left_out = np.array([row["row"] - 1 for row in union.quarantine], dtype=np.int64)
    for stop, table in reused.between(first, end) if reused is not None else ():
        numbers = table.column("document").to_numpy()
        numbers = numbers - np.searchsorted(np.unique(left_out), numbers)
        yield (
            stop - int(np.searchsorted(np.unique(left_out), stop)),
            table.set_column(0, SPANS.field(0), pa.array(numbers, pa.int64())),
        )


@dataclass(slots=True)
class _Union:
    """The detectors, the counts of their spans so far, and the documents in quarantine."""

    detectors: Sequence[Detector]
    on_error: OnError
    #: Numbers of the documents that are read; None: all.
    documents: np.ndarray | None = None
    counts: dict[str, Any] = field(default_factory=dict)
    quarantine: list[dict[str, Any]] = field(default_factory=list)
    #: Documents that were read, and those of them that are not in quarantine.
    num_read: int = 0
    num_kept: int = 0
    _alignments: list[Alignment] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.on_error not in ("stop", "quarantine"):
            raise PolicyError(f"on_error: expected stop or quarantine, got {self.on_error!r}")
        names = [detector.name for detector in self.detectors]
        if len(set(names)) != len(names):
            raise PolicyError(f"detectors: a name stands twice among {', '.join(names)}")
        self.counts = dict.fromkeys(names, 0) | {"spans": 0}
        if self.on_error == "quarantine":
            self.counts["quarantined"] = 0
        self._alignments = [Alignment(name) for name in names]

    def corpus_row(self, index: int) -> int:
        """Return the corpus row number of the ``index``-th document that is read; documents whose spans are reused from
        an earlier run are not read."""
        return index if self.documents is None else int(self.documents[index])

    def detect_batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, list[Detected]]]:
        """Yield each batch with the results of every detector on it. Two batches are processed at a time if all
        detectors have exact offsets."""
        if all(map(_is_exact, self.detectors)):
            yield from overlapped(batches, self._run_all)
            return
        num_before = 0
        for batch in read_ahead(batches):
            yield batch, self._run_all(batch, num_before)
            num_before += batch.num_rows

    def _run_all(self, batch: pa.RecordBatch, num_before: int) -> list[Detected]:
        """Run all detectors on a batch, and return their results in the order of the detectors. Those that use other
        detectors' spans run last."""
        try:
            together = detect_together(self.detectors, batch)
        except Exception:  # each by itself says which failed, and on which document
            together = {}
        found = {
            place: (together[place], {}) if place in together else self._run_detector(detector, batch, num_before)
            for place, detector in enumerate(self.detectors)
            if not hasattr(detector, "detect_beside")
        }
        readers = [place for place in range(len(self.detectors)) if place not in found]
        for place in sorted(readers, key=lambda place: detection_stage(self.detectors[place])):
            beside = _combine_found({self.detectors[other].name: spans for other, (spans, _) in found.items()})
            found[place] = self._run_detector(_Beside(self.detectors[place], beside), batch, num_before)
        return [found[place] for place in range(len(self.detectors))]

    def check_results(self, batch: pa.RecordBatch, results: Sequence[Detected]) -> Callable[[], pa.Table]:
        """Check and count the detectors' spans in the next batch, and quarantine documents with errors. Return a
        function that merges the spans of all detectors into one table (schema `SPANS`)."""
        lengths = pc.utf8_length(batch.column("text")).to_numpy()
        keep = np.ones(batch.num_rows, dtype=bool)
        parts = []
        for detector, alignment, (found, failed) in zip(self.detectors, self._alignments, results, strict=True):
            misfits = self._check_offsets(found, lengths, detector.name)
            if misfits:
                found = found.filter(~np.isin(found.column("document").to_numpy(), list(misfits)))
            if not _is_exact(detector):
                alignment.check(found, batch.column("text"), self.num_read)
            for row, error in sorted((misfits | failed).items()):
                keep[row] = False
                about = {"row": self.corpus_row(self.num_read + row) + 1, "doc_id": batch.column("doc_id")[row].as_py()}
                self.quarantine.append({**about, "detector": detector.name, "error": error})
            self.counts[detector.name] += found.num_rows
            parts.append(found)
        names = [detector.name for detector in self.detectors]
        read = np.arange(self.num_read, self.num_read + batch.num_rows)
        numbers = read if self.documents is None else self.documents[read]
        numbers = numbers - (self.num_read - self.num_kept) - np.cumsum(~keep)
        unite = partial(_merge_spans, parts, names, batch.column("doc_id"), keep, numbers)
        self.num_read += batch.num_rows
        self.num_kept += int(keep.sum())
        if "quarantined" in self.counts:
            self.counts["quarantined"] = self.num_read - self.num_kept
        return unite

    def _run_detector(self, detector: Detector, batch: pa.RecordBatch, num_before: int) -> Detected:
        """Return a detector's spans in a batch, and a dict of errors by row; ``num_before`` documents precede the
        batch."""
        try:
            found = detector.detect(batch)
        except ReticentError as error:
            where = self._describe_batch(batch, num_before)
            if self.on_error == "stop" or isinstance(error, PolicyError):
                raise type(error)(f"detector {detector.name}, {where}: {error}") from None
            return self._run_by_document(detector, batch, num_before, error)
        except Exception as error:  # a library's message may quote the text, so none is shown
            return self._run_by_document(detector, batch, num_before, error)
        _check_table(found, detector.name)
        return found, {}

    def _describe_batch(self, batch: pa.RecordBatch, num_before: int) -> str:
        """Return the corpus row numbers of a batch as text for an error message."""
        first, last = self.corpus_row(num_before), self.corpus_row(num_before + batch.num_rows - 1)
        return f"documents {first + 1} to {last + 1}"

    def _run_by_document(
        self, detector: Detector, batch: pa.RecordBatch, num_before: int, first_error: Exception
    ) -> Detected:
        """Return the spans found by running a detector on each document of a batch by itself, and a dict of errors by
        row."""
        parts, failed = [BATCH_SPANS.empty_table()], {}
        for row in range(batch.num_rows):
            try:
                found = getattr(detector, "for_row", lambda _: detector)(row).detect(batch.slice(row, 1))
            except Exception as error:
                failed[row] = type(error).__name__
                if self.on_error == "stop":
                    break
                continue
            _check_table(found, detector.name)
            moved = pc.add(found.column("document"), row)
            parts.append(found.set_column(0, BATCH_SPANS.field("document"), moved))
        name, kind = detector.name, type(first_error).__name__
        documents = self._describe_batch(batch, num_before)
        if self.on_error == "stop":
            where = f"document {self.corpus_row(num_before + min(failed)) + 1} of the corpus" if failed else documents
            more = "" if failed else ", but on none of them alone"
            raise CorpusError(
                f"detector {name} failed on {where} ({failed.popitem()[1] if failed else kind}){more}"
            ) from None
        if len(failed) == batch.num_rows > 1:
            raise CorpusError(
                f"detector {name} failed on each of {documents} ({kind}); no quarantine for all of them"
            ) from None
        return pa.concat_tables(parts), failed

    def _check_offsets(self, spans: pa.Table, num_characters: np.ndarray, name: str) -> dict[int, str]:
        """Return a dict from row to error message for documents with an invalid span; if errors stop the run, raise the
        first as `CorpusError`. ``spans`` are those of the detector ``name``."""
        document = spans.column("document")
        numbers = document.to_numpy()
        if document.null_count or ((numbers < 0) | (numbers >= len(num_characters))).any():
            raise CorpusError(f"detector {name}: a span of a document beyond the {len(num_characters)} it was given")
        start, end = (pc.fill_null(spans.column(edge), -1).to_numpy() for edge in ("start", "end"))
        outside = np.flatnonzero((start < 0) | (end <= start) | (end > num_characters[numbers]))
        rows, first = np.unique(numbers[outside], return_index=True)
        bad = {
            row: f"span {start[at]}..{end[at]} does not fit its text of {num_characters[row]} characters"
            for row, at in zip(rows.tolist(), outside[first].tolist(), strict=True)
        }
        for column in ("score", "label", "end", "start"):
            missing = np.unique(numbers[spans.column(column).is_null().to_numpy()])
            bad |= dict.fromkeys(missing.tolist(), f"a span has no {column}")
        if bad and self.on_error == "stop":
            row = min(bad)
            raise CorpusError(
                f"detector {name}, document {self.corpus_row(self.num_read + row) + 1} of the corpus: {bad[row]}"
            )
        return bad


class _Beside:
    """Adapter for a detector that also reads the spans of other detectors in the same batch."""

    columns: tuple[str, ...] = ()

    def __init__(self, detector: Any, found: pa.Table):
        self.name: str = detector.name
        self._detector, self._found = detector, found

    def detect(self, batch: pa.RecordBatch) -> pa.Table:
        """Return the wrapped detector's spans in a batch, given the other detectors' spans in it (schema
        `BATCH_SPANS`)."""
        found: pa.Table = self._detector.detect_beside(batch, self._found)
        return found

    def for_row(self, row: int) -> _Beside:
        """Return the same adapter for a batch that consists only of this row's document."""
        return _Beside(self._detector, found_in(self._found, np.array([row])))


def _combine_found(found: Mapping[str, pa.Table]) -> pa.Table:
    """Return the spans of several detectors in one batch as one table (schema `FOUND`); ``found`` maps detector name to
    spans."""
    return pa.concat_tables(
        [FOUND.empty_table(), *(with_detector_column(table, name) for name, table in found.items())]
    )


def _check_table(found: object, name: str) -> None:
    """Raise `CorpusError` unless a detector's result is a table with the schema `BATCH_SPANS`."""
    if not isinstance(found, pa.Table) or not found.schema.equals(BATCH_SPANS):
        raise CorpusError(f"detector {name}: expected a table with the columns of BATCH_SPANS") from None


def _merge_spans(
    parts: Sequence[pa.Table], names: Sequence[str], doc_ids: pa.Array, keep: np.ndarray, numbers_kept: np.ndarray
) -> pa.Table:
    """Return the spans of all detectors (``parts``, one table for each of ``names``) as one table (schema `SPANS`),
    sorted and without repeats. Only documents in the mask ``keep`` are included, under the document numbers
    ``numbers_kept``.

    Rows are ordered by document, start, end, label and detector.
    """
    found = pa.concat_tables(parts)
    document, start, end = (found.column(name).to_numpy().astype(np.int64) for name in ("document", "start", "end"))
    labels, rank_of_label = sorted_codes(found.column("label"))
    detectors, rank_of_name = sorted_codes(pa.array(names, pa.string()))
    rank_of_detector = np.repeat(rank_of_name, [part.num_rows for part in parts])
    major = document << 32 | start
    minor = end << 32 | rank_of_label.astype(np.int64) << 8 | rank_of_detector
    order = _sorted_rows(major, minor)
    if not keep.all():
        order = order[keep[document[order]]]
    major, minor = major[order], minor[order]
    first = np.flatnonzero((major != np.roll(major, 1)) | (minor != np.roll(minor, 1)) | (np.arange(len(order)) == 0))
    score = found.column("score").to_numpy()[order]
    rows = order[first]
    return pa.table(
        {
            "document": numbers_kept[document[rows]],
            "doc_id": doc_ids.take(pa.array(document[rows])),
            "start": start[rows].astype(np.int32),
            "end": end[rows].astype(np.int32),
            "label": labels.take(pa.array(rank_of_label[rows])),
            "detector": detectors.take(pa.array(rank_of_detector[rows])),
            "score": np.maximum.reduceat(score, first) if len(first) else score,
        },
        schema=SPANS,
    )


def _sorted_rows(major: np.ndarray, minor: np.ndarray) -> np.ndarray:
    """Return the row order that sorts by ``major``, then by ``minor``; fast for input that consists of few sorted
    runs."""
    order = np.argsort(major, kind="stable")
    equal = np.diff(major[order]) == 0
    tied = np.flatnonzero(np.concatenate([equal, [False]]) | np.concatenate([[False], equal])) if len(order) else order
    rows = order[tied]
    order[tied] = rows[np.lexsort((minor[rows], major[rows]))]
    return order
