"""Direct identifiers: detectors, each behind one small interface, and the union of what they find.

A detector sees a batch of documents and returns spans in characters; it knows neither files nor policies. The union
keeps where each span comes from. A detector that fails stops the run: a skipped note would be an unprotected one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reticent.engine.schema import SPANS
from reticent.errors import CorpusError, PolicyError, ReticentError

if TYPE_CHECKING:
    from reticent.engine.corpus import Corpus

__all__ = ["BATCH_SPANS", "Detector", "detect_spans", "make_detectors", "spans_batch"]

#: What a detector returns: one row a span, ``document`` = row in the batch.
BATCH_SPANS = pa.schema(
    [
        pa.field("document", pa.int64()),
        pa.field("start", pa.int32()),
        pa.field("end", pa.int32()),
        pa.field("label", pa.string()),
        pa.field("score", pa.float32()),
    ]
)


class Detector(Protocol):
    """Finds direct identifiers in a batch of documents."""

    name: str
    #: Columns of `DOCUMENTS` that the detector reads.
    columns: tuple[str, ...]

    def detect(self, batch: pa.RecordBatch) -> pa.Table:
        """Return the spans of a batch (`BATCH_SPANS`), in any order."""
        ...


def spans_batch(document: Any, start: Any, end: Any, label: Any, score: Any = 1.0) -> pa.Table:
    """Build `BATCH_SPANS` from arrays; ``score`` is one for all, or an array."""
    columns = [document, start, end, label]
    arrays = [pa.array(values).cast(BATCH_SPANS.field(i).type) for i, values in enumerate(columns)]
    arrays.append(pa.array(np.full(len(arrays[0]), score, dtype=np.float32)))
    return pa.Table.from_arrays(arrays, schema=BATCH_SPANS)


def make_detectors(
    names: Sequence[str],
    *,
    records: str | Path | None = None,
    lists: Mapping[str, str | Path] | None = None,
    spacy: str | None = None,
    num_threads: int = 0,
) -> list[Detector]:
    """Return the detectors of these names: gold, rules, records, gazetteer, spacy.

    Parameters
    ----------
    records : path of a Parquet table with ``individual_id`` and one column a field, for "records"
    lists : label -> text file with one name a line, for "gazetteer"
    spacy : installed pipeline or path, for "spacy"
    """
    from reticent.engine.detect import gazetteer, gold, rules

    detectors: list[Detector] = []
    for name in names:
        if name == "gold":
            detectors.append(gold.GoldDetector())
        elif name == "rules":
            detectors.append(rules.RulesDetector(num_threads=num_threads))
        elif name == "records":
            if records is None:
                raise PolicyError("detector records needs a table of record fields")
            detectors.append(gazetteer.RecordsDetector(gazetteer.read_records(records), num_threads=num_threads))
        elif name == "gazetteer":
            if not lists:
                raise PolicyError("detector gazetteer needs lists of names")
            detectors.append(gazetteer.GazetteerDetector(gazetteer.read_lists(lists), num_threads=num_threads))
        elif name == "spacy":
            from reticent.engine.detect.spacy import SpacyDetector

            if spacy is None:
                raise PolicyError("detector spacy needs a pipeline")
            detectors.append(SpacyDetector(spacy))
        else:
            raise PolicyError(f"unknown detector {name!r}; expected gold, rules, records, gazetteer or spacy")
    return detectors


def detect_spans(
    corpus: Corpus,
    detectors: Sequence[Detector],
    folder: Path | str,
    *,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Write the union of all detectors' spans to ``folder/spans.parquet`` (`SPANS`; secret); returns counts.

    Spans are ordered by document, start and end; equal spans of one detector stand once.

    Returns
    -------
    dict
        For each detector the spans it found, and under "spans" how many were written.

    Raises
    ------
    CorpusError
        A detector failed, or gave a span outside its text; the message names the document's row.
    """
    counts: dict[str, Any] = {detector.name: 0 for detector in detectors}
    columns = ["doc_id", "individual_id", "text"]
    columns += [name for detector in detectors for name in detector.columns if name not in columns]
    first = num_spans = 0
    with pq.ParquetWriter(Path(folder) / "spans.parquet", SPANS, compression="zstd") as writer:
        for batch in corpus.batches(columns=tuple(columns)):
            lengths = pc.utf8_length(batch.column("text")).to_numpy()
            parts = []
            for detector in detectors:
                found = _run(detector, batch, first)
                _check(found, lengths, detector.name, first)
                counts[detector.name] += found.num_rows
                names = pa.array([detector.name]).take(pa.array(np.zeros(found.num_rows, dtype=np.int64)))
                parts.append(found.append_column("detector", names))
            if parts:
                united = _united(pa.concat_tables(parts), batch.column("doc_id"), first)
                writer.write_table(united)
                num_spans += united.num_rows
            first += batch.num_rows
            if progress:
                progress(first)
    return {**counts, "spans": num_spans}


def _run(detector: Detector, batch: pa.RecordBatch, first: int) -> pa.Table:
    try:
        return detector.detect(batch)
    except ReticentError as error:
        raise type(error)(
            f"detector {detector.name}, documents {first + 1} to {first + batch.num_rows}: {error}"
        ) from None
    except Exception as error:
        # A library's message may quote the text.
        where = f"documents {first + 1} to {first + batch.num_rows}"
        raise CorpusError(f"detector {detector.name} failed on {where} ({type(error).__name__})") from None


def _check(found: pa.Table, lengths: np.ndarray, name: str, first: int) -> None:
    document = found.column("document")
    numbers = document.to_numpy()
    if document.null_count or ((numbers < 0) | (numbers >= len(lengths))).any():
        raise CorpusError(f"detector {name}: a span of a document beyond the {len(lengths)} it was given")
    for column in ("start", "end", "label"):
        missing = found.column(column).is_null().to_numpy()
        if missing.any():
            row = int(numbers[missing.argmax()])
            raise CorpusError(f"detector {name}, document {first + row + 1} of the corpus: a span has no {column}")
    start, end = found.column("start").to_numpy(), found.column("end").to_numpy()
    document = found.column("document").to_numpy()
    bad = np.flatnonzero((start < 0) | (end <= start) | (end > lengths[document]))
    if len(bad):
        at = int(bad[0])
        raise CorpusError(
            f"detector {name}, document {first + int(document[at]) + 1} of the corpus: span {start[at]}..{end[at]} "
            f"does not fit its text of {lengths[document[at]]} characters"
        )


def _united(found: pa.Table, doc_ids: pa.Array, first: int) -> pa.Table:
    keys = ["document", "start", "end", "label", "detector"]
    found = (
        found.group_by(keys, use_threads=False).aggregate([("score", "max")]).sort_by([(k, "ascending") for k in keys])
    )
    document = found.column("document")
    return pa.table(
        {
            "document": pc.add(document, first),
            "doc_id": doc_ids.take(document.combine_chunks()),
            "start": found.column("start"),
            "end": found.column("end"),
            "label": found.column("label"),
            "detector": found.column("detector"),
            "score": found.column("score_max"),
        },
        schema=SPANS,
    )
