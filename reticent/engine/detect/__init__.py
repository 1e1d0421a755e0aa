"""Direct identifiers: detectors, each behind one small interface, and the union of what they find.

`detector` says what a detector is, `choose` knows them by name, `union` runs them over a corpus.
"""

from __future__ import annotations

from reticent.engine.detect.choose import DETECTORS, check_options, make_detectors, option_files
from reticent.engine.detect.detector import BATCH_SPANS, Detector, spans_batch
from reticent.engine.detect.union import QUARANTINE, detect_spans, quarantined_rows

__all__ = [
    "BATCH_SPANS",
    "DETECTORS",
    "QUARANTINE",
    "Detector",
    "check_options",
    "detect_spans",
    "make_detectors",
    "option_files",
    "quarantined_rows",
    "spans_batch",
]
