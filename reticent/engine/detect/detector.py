"""Protocol of detectors: a detector takes a batch of documents and returns spans with character offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from reticent.core.errors import PolicyError

#: Result of a detector: one row a span, ``document`` = row in the batch.
BATCH_SPANS: Final = pa.schema(
    [
        pa.field("document", pa.int64()),
        pa.field("start", pa.int32()),
        pa.field("end", pa.int32()),
        pa.field("label", pa.string()),
        pa.field("score", pa.float32()),
    ]
)
#: What several detectors found in a batch.
FOUND: Final = pa.schema([*BATCH_SPANS, pa.field("detector", pa.string())])


class Detector(Protocol):
    """Finds direct identifiers in a batch of documents.

    One that reads what the others found has ``detect_beside(batch, found)`` too, with ``found`` as `FOUND`.
    """

    name: str
    #: Columns of `DOCUMENTS` that the detector reads.
    columns: tuple[str, ...]

    def detect(self, batch: pa.RecordBatch) -> pa.Table:
        """Return the spans found in a batch (schema `BATCH_SPANS`), in any order."""
        ...


def texts_of(batch: pa.RecordBatch) -> pa.Array:
    """Return the texts of a batch of documents; raise `PolicyError` if it is none."""
    if not isinstance(batch, pa.RecordBatch | pa.Table):
        raise PolicyError("detect takes a record batch of documents; texts: find_in_texts([detector], texts)")
    return batch.column("text")


def spans_batch(document: Any, start: Any, end: Any, label: Any, score: Any = 1.0) -> pa.Table:
    """Return a table of spans (schema `BATCH_SPANS`) from arrays of equal length; ``score`` may be one number for
    all."""
    columns = [document, start, end, label]
    arrays = [pa.array(values).cast(BATCH_SPANS.field(i).type) for i, values in enumerate(columns)]
    arrays.append(pa.array(np.full(len(arrays[0]), score, dtype=np.float32)))
    return pa.Table.from_arrays(arrays, schema=BATCH_SPANS)


def find_in_turn(detectors: Sequence[Any], batch: pa.RecordBatch) -> pa.Table:
    """Run all detectors on a record batch; return all spans as one table (schema `FOUND`). Detectors that use other
    detectors' spans run last."""
    found = FOUND.empty_table()
    for detector in sorted(detectors, key=detection_stage):
        reads = hasattr(detector, "detect_beside")
        table = detector.detect_beside(batch, found) if reads else detector.detect(batch)
        found = pa.concat_tables([found, with_detector_column(table, detector.name)])
    return found


def find_in_texts(
    detectors: Sequence[Any], texts: str | Sequence[str] | pa.Array, columns: Mapping[str, str] | None = None
) -> pa.Table:
    """Return the spans that detectors find in plain texts, or in one, as a table (schema `FOUND`); column ``document``
    is the index of the text.

    Parameters
    ----------
    columns : name -> value, optional
        Other columns of the documents, of one value for all.

    Raises
    ------
    PolicyError
        A detector reads a column that is not there.

    >>> from reticent.engine.detect import make_detectors
    >>> find_in_texts(make_detectors(["rules"]), "Call 555-213-9876.").column("label").to_pylist()
    ['PHONE']
    """
    texts = [texts] if isinstance(texts, str) else texts
    names = [str(number) for number in range(len(texts))]
    others = {name: pa.array([value] * len(texts), pa.string()) for name, value in (columns or {}).items()}
    batch = pa.record_batch(
        {"doc_id": names, "individual_id": names, "text": pa.array(texts, pa.large_string()), **others}
    )
    if lacking := {column for detector in detectors for column in detector.columns} - {*batch.column_names}:
        raise PolicyError(f"a text has no {', '.join(sorted(lacking))}, which a detector needs")
    return find_in_turn(detectors, batch)


def detection_stage(detector: Any) -> int:
    """Return the order in which a detector runs: 0 first, 1 if it uses other detectors' spans, 2 if it declares which
    detectors' spans it uses."""
    return hasattr(detector, "detect_beside") + hasattr(detector, "reads")


def with_detector_column(spans: pa.Table, name: str) -> pa.Table:
    """Return a table of spans (schema `BATCH_SPANS`) with the column ``detector`` added, which holds ``name`` in every
    row (schema `FOUND`)."""
    return spans.append_column(FOUND.field("detector"), pa.array([name] * len(spans), pa.string()))


def found_in(spans: pa.Table, rows: np.ndarray) -> pa.Table:
    """Return the spans of the documents with these row numbers (schema `FOUND`; rows ascending, at least one). In the
    result documents are numbered from 0."""
    document = spans.column("document").to_numpy()
    place = np.searchsorted(rows, document)
    kept = rows[np.minimum(place, len(rows) - 1)] == document
    return spans.filter(pa.array(kept)).set_column(0, FOUND.field(0), pa.array(place[kept]))
