"""Rules: identifiers that have a form (e-mail, phone, date, URL, IP, SSN, NIR, long numbers)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from reticent.engine.detect import spans_batch

__all__ = ["RulesDetector"]


class RulesDetector:
    """Linear-time patterns with checks (NIR key, SSN ranges, real dates).

    Parameters
    ----------
    labels : sequence of str, optional
        Only the rules with these labels; every rule by default. An unknown label is a `PolicyError`.
    """

    name = "rules"
    columns: tuple[str, ...] = ()

    def __init__(self, labels: Sequence[str] | None = None, *, num_threads: int = 0):
        self.labels = list(labels) if labels is not None else None
        self.num_threads = num_threads

    def detect(self, batch: pa.RecordBatch) -> pa.Table:
        from reticent import _rust

        found = pa.record_batch(_rust.scan_rules(batch.column("text"), self.labels, num_threads=self.num_threads))
        return spans_batch(*(found.column(name) for name in ("document", "start", "end", "label")))


def list_rules() -> pa.Table:
    """Return a row a rule: its name, the label of its spans, and what it finds."""
    from reticent import _rust

    rules = _rust.list_rules()
    return pa.table({name: [rule[i] for rule in rules] for i, name in enumerate(("rule", "label", "finds"))})
