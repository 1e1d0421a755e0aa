"""Direct identifiers: detectors behind one small interface, and the union of their spans.

`detector` says what a detector is, `choose` knows them by name, `union` runs them over a corpus, `quarantine` lists
the documents that they failed on. The union is loaded on first use: every command checks the names of detectors, and
few run any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reticent.engine.detect.choose import (
    DETECTORS,
    DetectorRow,
    check_options,
    make_detectors,
    option_files,
    option_packages,
    rules_digest,
)
from reticent.engine.detect.detector import BATCH_SPANS, Detector, spans_batch
from reticent.engine.detect.spans import quarantined_rows

if TYPE_CHECKING:
    from reticent.engine.detect.union import detect_spans

__all__ = [
    "BATCH_SPANS",
    "DETECTORS",
    "Detector",
    "DetectorRow",
    "check_options",
    "detect_spans",
    "make_detectors",
    "option_files",
    "option_packages",
    "quarantined_rows",
    "rules_digest",
    "spans_batch",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name != "detect_spans":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from reticent.engine.detect.union import detect_spans

        return detect_spans
