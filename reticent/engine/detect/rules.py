"""Rules: identifiers that have a form, in English, French, Spanish and German notes.

Numbers with check digits (cards, NIR, IBAN, NHS, NPI, DNI, NIE …), telephone and fax, mail, web and network addresses,
dates in numbers and words, postcodes, streets and towns, numbers that introduce themselves ("application no."), names
behind titles, ages. The fields of a form ("NHC:", "Wohnort:", "Profession :") are known by a table of names, and their
values are found to the end of the field; a job adds names of its own. `list_rules` says what each rule finds. Texts are
matched on their plain folding, so full-width digits, look-alike letters, invisible characters and the escapes of an
export hide nothing; offsets mean the text as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from reticent import _rust
from reticent.core.errors import PolicyError
from reticent.engine.detect import spans_batch
from reticent.engine.detect.detector import texts_of

if TYPE_CHECKING:
    from reticent._rust import CommonWords


class Rule(NamedTuple):
    """One detection rule: its name, the label of its spans, and a description of what it matches."""

    name: str
    label: str
    finds: str


def list_rules() -> list[Rule]:
    """Return all detection rules.

    >>> [rule.name for rule in list_rules() if rule.label == "AGE" and "89" in rule.name]
    ['age_over_89', 'age_over_89_short', 'age_over_89_said']
    """

    return [Rule(*row) for row in _rust.list_rules()]


class RulesDetector:
    """Detects identifiers of known form by linear-time patterns with checks: check digits, calendars, context words.

    A number that only has a form keeps the general label ID; where a surer rule covers it, that one alone is reported.

    Parameters
    ----------
    labels : sequence of str, optional
        Only the rules with these labels (see `list_rules`); every rule by default.
    fields : mapping of str to str, optional
        Names of fields in this hospital's forms with the labels of their values, before the names that are known and
        beside them: ``{"Taquilla n.º": "ID", "name of *": "NAME"}``. Case, accents, signs between words, particles and
        spellings of "number" do not count; ``~name`` holds only where a field begins, ``name *`` with any words behind
        it, ``*name`` at the end of a word, and the label ``-`` says that the value identifies no individual. A value of
        ``ID`` has three digits or more; one that another rule finds by its form ("C-9382") stays found under ``-``.
    num_threads : int
        0 is ``RAYON_NUM_THREADS`` or every core.

    Raises
    ------
    PolicyError
        No rule has one of the labels; a name of a field is empty, too long or given twice, or its label is unknown.

    >>> batch = pa.record_batch({"text": ["Taquilla n.º: 417"]})
    >>> RulesDetector(fields={"taquilla no": "ID"}).detect(batch).select(["start", "end", "label"]).to_pylist()
    [{'start': 14, 'end': 17, 'label': 'ID'}]
    """

    name = "rules"
    columns: tuple[str, ...] = ()
    exact_offsets = True

    def __init__(
        self,
        labels: Sequence[str] | None = None,
        *,
        fields: Mapping[str, str] | None = None,
        num_threads: int = 0,
    ):
        self.labels = list(labels) if labels is not None else None
        self.num_threads = num_threads
        #: How the corpus writes its words, where a detector beside this one has learned it.
        self.known_words: CommonWords | None = None
        known = {rule.label for rule in list_rules()}
        for label in self.labels or []:
            if label not in known:
                raise PolicyError(f"rules: unknown label {label!r}; expected one of {', '.join(sorted(known))}")
        if not isinstance(fields, Mapping | None) or not all(
            isinstance(label, str) for label in (fields or {}).values()
        ):
            raise PolicyError('rules: fields is a table of names of fields with their labels, { "locker no" = "ID" }')
        #: (name, label) of each field of the user's.
        self.fields = list((fields or {}).items())
        if self.fields:  # checked before the first document
            _rust.scan_rules(pa.array([], pa.string()), fields=self.fields)

    def detect(self, batch: pa.RecordBatch) -> pa.Table:
        """Return the identifier spans that the rules find in a batch of documents (schema `BATCH_SPANS`)."""
        found = pa.record_batch(
            _rust.scan_rules(
                texts_of(batch),
                self.labels,
                fields=self.fields,
                common=self.known_words,
                num_threads=self.num_threads,
            )
        )
        return spans_batch(*(found.column(name) for name in ("document", "start", "end", "label")))
