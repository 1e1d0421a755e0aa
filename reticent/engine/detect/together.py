"""Rules, records and gazetteer in one pass of the core: each finds what it finds alone.

A text is read, folded and cut once for all of them. Which of a list of detectors go together is seen by what they are;
the others are run by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from reticent.engine.detect.detector import Detector
from reticent.engine.detect.gazetteer import GazetteerDetector
from reticent.engine.detect.records import RecordsDetector
from reticent.engine.detect.rules import RulesDetector

__all__ = ["detect_together"]

_KINDS = {"rules": RulesDetector, "records": RecordsDetector, "gazetteer": GazetteerDetector}


def detect_together(detectors: Sequence[Detector], batch: pa.RecordBatch) -> dict[int, pa.Table]:
    """Return place in the list -> spans (`BATCH_SPANS`) of those detectors that one pass can serve.

    Empty where fewer than two can be, or their numbers of threads differ: nothing would be gained.

    >>> rules = RulesDetector()
    >>> detect_together([rules], pa.record_batch({"text": ["a"]}))
    {}
    """
    from reticent import _rust

    chosen: dict[str, tuple[int, Any]] = {}
    for place, detector in enumerate(detectors):
        name = next((name for name, kind in _KINDS.items() if type(detector) is kind), None)
        if name and getattr(detector, "can_go_together", False):
            chosen[name] = place, detector
    threads = {detector.num_threads for _, detector in chosen.values()}
    if len(chosen) < 2 or len(threads) > 1:
        return {}
    choices: dict[str, Any] = {name: detector.choice(batch) for name, (_, detector) in chosen.items()}
    found = _rust.scan_together(batch.column("text"), **choices, num_threads=threads.pop())
    places = [chosen[name] for name in _KINDS if name in chosen]
    return {
        place: detector.as_spans(pa.record_batch(part)) for (place, detector), part in zip(places, found, strict=True)
    }
