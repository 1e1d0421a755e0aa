"""Records and gazetteer in one joint pass of the Rust core, with the same spans as in two passes.

Rules stay apart: they read another folding, and one pass for all three was slower than two.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from reticent import _rust
from reticent.engine.detect.detector import Detector
from reticent.engine.detect.gazetteer import GazetteerDetector
from reticent.engine.detect.records import RecordsDetector


def detect_together(detectors: Sequence[Detector], batch: pa.RecordBatch) -> dict[int, pa.Table]:
    """Run the records and gazetteer detectors in one pass over a batch's texts; return their spans by index in
    ``detectors`` (schema `BATCH_SPANS`), or an empty dict if they cannot share a pass.

    Empty where not both are there, their numbers of threads differ, or the records stand beside the texts.

    >>> detect_together([], pa.record_batch({"text": ["a"]}))
    {}
    """

    records = next((detector for detector in detectors if type(detector) is RecordsDetector), None)
    gazetteer = next((detector for detector in detectors if type(detector) is GazetteerDetector), None)
    if records is None or gazetteer is None or records.columns or records.num_threads != gazetteer.num_threads:
        return {}
    found = _rust.find_together(
        batch.column("text"), records.choice(batch), gazetteer.choice(), num_threads=records.num_threads
    )
    of_records, of_gazetteer = map(pa.record_batch, found)
    return {
        detectors.index(records): records.as_spans(of_records),
        detectors.index(gazetteer): gazetteer.as_spans(of_gazetteer),
    }
