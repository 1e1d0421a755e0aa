"""Rules: identifiers that have a form, in English, French, Spanish and German notes.

Numbers with check digits (cards, NIR, IBAN, NHS, NPI, DNI, NIE …), telephone and fax, mail, web and network addresses,
dates in numbers and words, postcodes and streets, what stands behind a cue ("NHC:", "policy no."), names behind a title
or in a form's field, ages over 89. `list_rules` says what each rule finds. Texts are matched on their plain folding, so
full-width digits, look-alike letters and invisible characters hide nothing; offsets mean the text as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from reticent.core.errors import PolicyError
from reticent.engine.detect import spans_batch

__all__ = ["Rule", "RulesDetector", "list_rules"]


class Rule(NamedTuple):
    """One rule: its name, the label of its spans, and the form it finds in words."""

    name: str
    label: str
    finds: str


def list_rules() -> list[Rule]:
    """Return every rule.

    >>> [rule.name for rule in list_rules() if rule.label == "AGE"]
    ['age_over_89', 'age_cued', 'age_in_words']
    """
    from reticent import _rust

    return [Rule(*row) for row in _rust.list_rules()]


class RulesDetector:
    """Linear-time patterns with checks: check digits, calendars, the words around.

    A number that only has a form keeps the general label ID; where a surer rule covers it, that one alone is reported.

    Parameters
    ----------
    labels : sequence of str, optional
        Only the rules with these labels (see `list_rules`); every rule by default.
    num_threads : int
        0 is ``RAYON_NUM_THREADS`` or every core.

    Raises
    ------
    PolicyError
        No rule has one of the labels.
    """

    name = "rules"
    columns: tuple[str, ...] = ()
    exact_offsets = True

    def __init__(self, labels: Sequence[str] | None = None, *, num_threads: int = 0):
        self.labels = list(labels) if labels is not None else None
        self.num_threads = num_threads
        known = {rule.label for rule in list_rules()}
        for label in self.labels or []:
            if label not in known:
                raise PolicyError(f"rules: unknown label {label!r}; expected one of {', '.join(sorted(known))}")

    def detect(self, batch: pa.RecordBatch) -> pa.Table:
        from reticent import _rust

        found = pa.record_batch(_rust.scan_rules(batch.column("text"), self.labels, num_threads=self.num_threads))
        return spans_batch(*(found.column(name) for name in ("document", "start", "end", "label")))
