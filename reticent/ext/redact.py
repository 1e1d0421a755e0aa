"""Redaction of one text, reversible if wanted: ``reticent.redact`` and the command ``reticent
redact``.

For a corpus take ``reticent scrub``: it knows how all documents write a word, and finds in every document what one of
them gives away.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import pyarrow as pa

from reticent.core.errors import CorpusError
from reticent.engine.detect.choose import make_detectors
from reticent.engine.detect.detector import find_in_texts
from reticent.engine.detect.labels import category
from reticent.engine.detect.preset import expand_preset
from reticent.engine.pseudonymize import pseudonymise_batch, span_arrays
from reticent.engine.schema import SPAN_TYPE
from reticent.engine.sources.columns import SOURCE_COLUMN

#: Categories of which a value that was found once is taken out wherever else it stands in the text.
_NAMING: Final = frozenset({"NAME", "ID", "EMAIL", "PHONE", "URL"})
#: A tag is drawn without a key.
_NO_KEY: Final = bytes(32)
#: A word, white space, or another character.
_PIECE: Final = re.compile(r"\w+|\s+|[^\w\s]")
_TAG: Final = re.compile(r"\[[^\[\]]+_\d+\]")

_Pieces = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, repr=False)
class Redacted:
    """A text with a numbered tag for each identifier, and tag -> identifier (secret: keep it apart from the text)."""

    text: str
    #: Tag -> the identifier.
    values: Mapping[str, str]

    def restore(self, text: str | None = None) -> str:
        """Return a text (default: the redacted one) with each tag such as ``[NAME_1]`` replaced by the identifier it
        stands for; unknown tags stay.
        """
        given = self.text if text is None else text
        return _TAG.sub(lambda tag: self.values.get(tag[0], tag[0]), given)

    def __repr__(self) -> str:
        return f"Redacted({self.text!r}, {len(self.values)} identifiers)"


def redact(text: str, *, record: Mapping[str, str] | None = None, detectors: Sequence[Any] | None = None) -> str:
    """Return a text with its direct identifiers, also those in ``record`` (field -> value), replaced by category tags
    such as ``[NAME]`` and ``[DATE]``.

    Parameters
    ----------
    record : field -> value, optional
        What is known of the individual, also looked for: ``{"last_name": "Weber", "birth_date": "1958-03-14"}``; the
        fields are those of the records of a job; the value of any other is looked for as it stands.
    detectors : sequence of Detector, optional
        Default: those of the preset "fast" (:func:`reticent.make_detectors` makes others). The record is looked for
        beside them.

    Raises
    ------
    PolicyError
        A detector needs more than a text.
    CorpusError
        The text is no Unicode.

    >>> redact("Seen by Dr. Maria Lopez on 3 May 2021, call 555-213-9876.")
    'Seen by Dr. [NAME] on [DATE], call [PHONE].'
    """
    return "".join(
        piece if label is None else f"[{label}]" for piece, label in _split_at_identifiers(text, record, detectors)
    )


def redact_reversibly(
    text: str, *, record: Mapping[str, str] | None = None, detectors: Sequence[Any] | None = None
) -> Redacted:
    """Replace direct identifiers in a text by numbered tags such as ``[NAME_1]``; return the text and tag ->
    identifier.

    Equal values have one tag, so that what is written about them elsewhere can be turned back:

    >>> sent = redact_reversibly("Dr. Maria Lopez saw him. Maria Lopez agreed.")
    >>> sent.text
    'Dr. [NAME_1] saw him. [NAME_1] agreed.'
    >>> sent.restore("Ask [NAME_1].")
    'Ask Maria Lopez.'

    Parameters and errors as :func:`redact`.
    """
    tags: dict[tuple[str, str], str] = {}
    numbers: Counter[str] = Counter()
    taken = set(_TAG.findall(text))  # what looks like a tag in the text itself stays what it is
    shown = []
    for piece, label in _split_at_identifiers(text, record, detectors):
        if label is None:
            shown.append(piece)
            continue
        while (label, piece) not in tags:
            numbers[label] += 1
            if (tag := f"[{label}_{numbers[label]}]") not in taken:
                tags[label, piece] = tag
        shown.append(tags[label, piece])
    return Redacted("".join(shown), {tag: piece for (_, piece), tag in tags.items()})


def _split_at_identifiers(
    text: str, record: Mapping[str, str] | None, detectors: Sequence[Any] | None
) -> list[tuple[str, str | None]]:
    """Detect the identifiers in a text, and return it as consecutive (text, category) pairs; the category is None
    outside identifiers.
    """
    fields = dict(record or {})
    records = {"records": {"columns": {name: name for name in fields}}} if fields else {}
    if detectors is None:
        detectors = make_detectors(*expand_preset("fast", records))
    else:
        detectors = [*detectors, *make_detectors(list(records), records)]
    try:
        texts = pa.array([text], pa.large_string())
    except UnicodeEncodeError:
        raise CorpusError("the text is no Unicode: it has half of a surrogate pair") from None
    found = find_in_texts(detectors, texts, {f"{SOURCE_COLUMN}{name}": value for name, value in fields.items()})
    spans = [tuple(row[name] for name in ("start", "end", "label")) for row in found.to_pylist()]
    naming = {text[start:end]: label for start, end, label in spans if category(label) in _NAMING}
    spans += _find_again(text, naming)
    column = pa.array(
        [[dict(zip(("start", "end", "label"), span, strict=True)) for span in spans]], pa.list_(SPAN_TYPE)
    )
    batch = pa.record_batch({"doc_id": ["0"], "individual_id": ["0"], "text": texts})
    made = pseudonymise_batch(batch, span_arrays(column), "tag", _NO_KEY, num_threads=1)
    pieces: list[tuple[str, str | None]] = []
    at = 0
    edits = made.edits
    for begin, stop, label in zip(
        edits.old_start.tolist(), edits.old_end.tolist(), made.labels.to_pylist(), strict=True
    ):
        pieces += [(text[at:begin], None), (text[begin:stop], category(label))]
        at = stop
    return [*pieces, (text[at:], None)]


def _find_again(text: str, labels: Mapping[str, str]) -> list[tuple[int, int, str]]:
    """Return (start, end, label) of each occurrence in a text of the values in ``labels`` (value -> label) that have
    three characters or more. Whole words are matched, whatever their case and white space.
    """
    wanted: dict[_Pieces, list[str]] = defaultdict(list)
    lengths: dict[tuple[str, ...], set[int]] = defaultdict(set)  # by the first piece
    for value, label in labels.items():
        if len(value) > 2 and (pieces := tuple(map(_fold_piece, _PIECE.findall(value.strip())))):
            wanted[pieces].append(label)
            lengths[pieces[0]].add(len(pieces))
    places = list(_PIECE.finditer(text))
    folded = [_fold_piece(place[0]) for place in places]
    spans: list[tuple[int, int, str]] = []
    ends: dict[_Pieces, int] = {}
    for at, first in enumerate(folded):
        for length in lengths.get(first, ()):
            pieces = tuple(folded[at : at + length])
            start = places[at].start()
            if pieces not in wanted or len(pieces) < length or start < ends.get(pieces, 0):
                continue
            end = places[at + length - 1].end()
            if not any(beside.isalnum() or beside == "_" for beside in (text[start - 1 : start], text[end : end + 1])):
                ends[pieces] = end
                spans += [(start, end, label) for label in wanted[pieces]]
    return spans


def _fold_piece(piece: str) -> tuple[str, ...]:
    """Return a tuple by which two pieces of text can be compared: it is equal if they differ only in case or white
    space.
    """
    return (" ",) if piece.isspace() else tuple(map(_fold_letter, piece))


@cache
def _fold_letter(letter: str) -> str:
    """Return a letter in upper case, the same for all letters that a case-insensitive regular expression treats as
    equal.
    """
    return letter.lower()[0].upper()
