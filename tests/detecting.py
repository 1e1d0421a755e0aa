"""What tests of single detectors share: batches of texts, and the spans a detector finds in them as text."""

from __future__ import annotations

import pyarrow as pa

from reticent.engine.detect import BATCH_SPANS, Detector


def batch_of(texts: list[str], individuals: list[str] | None = None, **columns: list[str | None]) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "doc_id": [f"d{i}" for i in range(len(texts))],
            "individual_id": individuals or [f"p{i}" for i in range(len(texts))],
            "text": pa.array(texts, pa.large_string()),
            **columns,
        }
    )


def found(detector: Detector, texts: list[str], individuals: list[str] | None = None) -> list[list[tuple[str, str]]]:
    """Label and text of the spans of each document, in order."""
    table = detector.detect(batch_of(texts, individuals))
    assert table.schema == BATCH_SPANS
    spans: list[list[tuple[str, str]]] = [[] for _ in texts]
    for row in sorted(table.to_pylist(), key=lambda r: (r["document"], r["start"], r["end"])):
        spans[row["document"]].append((row["label"], texts[row["document"]][row["start"] : row["end"]]))
    return spans
