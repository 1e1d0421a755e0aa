"""Pseudonymised text: direct identifiers replaced, with the map between old and new offsets.

Four styles. ``x``: each word of a span becomes ``X`` ([@boutet2025] §5.5), and so do its symbols; punctuation stays.
``tag``: each span becomes ``[NAME]``, ``[DATE]``…
``surrogate``: the same name of one individual always becomes the same other name, "J. Smith", "SMITH" and "Smith's"
in step with "John Smith"; ids keep their form digit for digit; dates their way of writing. A first name that is on no
list of first names is drawn as a woman's or a man's where a title in its document says so, and otherwise as a surname:
it may differ between documents with the title and without. ``rotate``: the same, drawn
afresh at every occurrence and every ``draw``. The draw is a function of a secret key, the individual and the value
(``rust_ext/src/scrub``), so no table of who became whom exists, and neither order nor batches nor threads matter.

Overlapping and nested spans become one, under the label of the longest, then of the category that stands first in
`PRIORITY`. White space at the ends of a span stays. Text outside spans stays byte for byte, also the rest of a word
that a span cuts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reticent import _rust
from reticent.core.errors import PolicyError
from reticent.engine.detect.labels import category
from reticent.engine.schema import one_array

if TYPE_CHECKING:
    from reticent._rust import NamePool

Style = Literal["x", "tag", "surrogate", "rotate"]
STYLES: Final = ("x", "tag", "surrogate", "rotate")

#: Which category wins where overlapping spans are equally long; one that is not here comes after these.
PRIORITY: Final = (
    "NAME", "ID", "EMAIL", "URL", "IP", "PHONE", "DATE", "AGE", "ZIP", "LOCATION", "ORGANIZATION", "PROFESSION",
    "DEMOGRAPHIC", "QUANTITY", "OTHER",
)  # fmt: skip

#: Bits of an edit's outcome: a tag stands there for want of a surrogate; a date whose day and month nothing in its
#: document tells apart; the surrogate is a real identifier (of realistic names by coincidence, else because every draw
#: was one); the span cuts a word, whose rest still stands.
OUTCOMES: Final = {"tagged": 1, "ambiguous_dates": 2, "collided": 4, "cut_words": 8}

#: Spans of a batch: offsets int64[D + 1], starts int32[S], ends int32[S], labels string[S]; see `SpanReader.slice`.
SpanArrays = tuple[np.ndarray, np.ndarray, np.ndarray, pa.Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class DateOptions:
    """How surrogates of dates are made.

    Parameters
    ----------
    shift_days : int, at least 1, optional
        Move all dates of an individual by one number of days, drawn from -shift_days to shift_days without 0, so that
        intervals stay. Without it every date moves on its own, by up to two years.
    order : {"auto", "dmy", "mdy"}
        How 03/04/2019 is read; "auto" asks the other dates of the document, then ``otherwise``.
    otherwise : {"dmy", "mdy"}
        Value of "auto" in a document that does not tell.
    """

    shift_days: int | None = None
    order: Literal["auto", "dmy", "mdy"] = "auto"
    otherwise: Literal["dmy", "mdy"] = "mdy"

    def __post_init__(self) -> None:
        if self.shift_days is not None and not 1 <= self.shift_days <= 36_500:
            raise PolicyError(f"shift_days: expected 1 to 36500, got {self.shift_days}")
        if self.order not in ("auto", "dmy", "mdy") or self.otherwise not in ("dmy", "mdy"):
            raise PolicyError("date order: expected auto, dmy or mdy")


@dataclass(frozen=True, slots=True)
class OffsetMap:
    """Map of character offsets between old and new texts: the edits of each document, ascending and disjoint.

    ``offsets`` (int64, shape (D + 1,)) bounds the edits of each document; the others have one entry an edit, ends
    exclusive. Outside edits both texts are the same, character for character.
    """

    offsets: np.ndarray
    old_start: np.ndarray
    old_end: np.ndarray
    new_start: np.ndarray
    new_end: np.ndarray

    def to_new(self, document: np.ndarray, start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the start and end, in the rewritten texts, of spans of the original texts; ``document`` has the spans'
        row numbers.

        A bound inside an edit goes to that edit's own bound: the result covers all that the span met.
        """
        return self._map_spans(document, start, end, self.old_start, self.old_end, self.new_start, self.new_end)

    def to_old(self, document: np.ndarray, start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the start and end, in the original texts, of spans of the rewritten texts; ``document`` has the spans'
        row numbers."""
        return self._map_spans(document, start, end, self.new_start, self.new_end, self.old_start, self.old_end)

    def _map_spans(
        self,
        document: np.ndarray,
        start: np.ndarray,
        end: np.ndarray,
        from_start: np.ndarray,
        from_end: np.ndarray,
        to_start: np.ndarray,
        to_end: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return start and end of each span in the target texts, given the edits' bounds in the source texts
        (``from_start``, ``from_end``) and in the target texts (``to_start``, ``to_end``)."""
        document = np.asarray(document, dtype=np.int64)
        rows = np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))
        keys = (rows << 32) | from_start
        bounds = []
        for given, at_start, inside_to in ((start, True, to_start), (end, False, to_end)):
            position = np.asarray(given, dtype=np.int64)
            # The last edit that begins before it; a start at the edit's own start is in it, an end there is not.
            before = np.searchsorted(keys, (document << 32) | position, "right" if at_start else "left") - 1
            edited = before >= self.offsets[document]
            before = before[edited]
            mapped = position.copy()
            inside = position[edited] < from_end[before]
            mapped[edited] = np.where(inside, inside_to[before], position[edited] - from_end[before] + to_end[before])
            bounds.append(mapped)
        return bounds[0], bounds[1]

    def columns(self) -> dict[str, pa.Array]:
        """Return the offset map as Arrow list columns old_start, old_end, new_start, new_end, one row per document."""
        offsets = pa.array(self.offsets.astype(np.int32))
        names = ("old_start", "old_end", "new_start", "new_end")
        return {
            name: pa.ListArray.from_arrays(offsets, pa.array(getattr(self, name).astype(np.int32))) for name in names
        }

    @classmethod
    def from_columns(cls, table: pa.Table | pa.RecordBatch) -> OffsetMap:
        """Return the offset map stored in this table by `columns`."""
        lists = [one_array(table.column(name)) for name in ("old_start", "old_end", "new_start", "new_end")]
        offsets = np.concatenate([[0], np.cumsum(pc.list_value_length(lists[0]).to_numpy(zero_copy_only=False))])
        flat = (pc.list_flatten(array).to_numpy(zero_copy_only=False).astype(np.int64) for array in lists)
        return cls(offsets.astype(np.int64), *flat)


@dataclass(frozen=True, slots=True)
class Pseudonymised:
    """New texts, the map of their offsets, and for each edit the label of its span and its `OUTCOMES` bits."""

    texts: pa.Array
    edits: OffsetMap
    labels: pa.Array
    outcomes: np.ndarray

    def spans(self) -> SpanArrays:
        """Return the spans that the replacements cover in the new texts: offsets, starts, ends and labels."""
        edits = self.edits
        return edits.offsets, edits.new_start.astype(np.int32), edits.new_end.astype(np.int32), self.labels


def pseudonymise_batch(
    batch: pa.RecordBatch,
    spans: SpanArrays,
    style: Style,
    key: bytes,
    draw: int = 0,
    *,
    dates: DateOptions | None = None,
    avoid: np.ndarray | None = None,
    names: NamePool | None = None,
    num_threads: int = 0,
) -> Pseudonymised:
    """Return the documents of a record batch with each of these identifier spans replaced: by X, by a tag such as
    [NAME], or by a surrogate that is drawn by ``key`` and ``draw``.

    A pure function: the same document, spans, key and draw give the same text in any batch, on any number of threads.

    Parameters
    ----------
    batch : columns text, and for surrogates individual_id, and for rotating ones doc_id
    spans : see `span_arrays` and `SpanReader.slice`; in any order within a document
    key : 32 secret bytes
        Whoever has them can tell whether a name became a surrogate.
    draw : int
        The epoch, for style "rotate".
    avoid : uint64 array, ascending, optional
        Identifiers of the corpus (`_rust.real_identifiers`). An id or an invented name that is among them is drawn
        again; a realistic name that is among them is only counted.
    names : NamePool, optional
        Realistic names (:mod:`reticent.engine.names`); without them names are put together from syllables.

    Raises
    ------
    CorpusError
        A span does not fit its text; the message names the row in the batch.
    PolicyError
        Unknown style, a key of another length.

    Cost: one pass over the text in parallel by document, about a microsecond an identifier.
    """

    offsets, starts, ends, labels = spans
    codes, categories = category_codes(labels)
    dates = dates or DateOptions()
    texts = batch.column("text")
    no_ids = pa.nulls(batch.num_rows, pa.string()).fill_null("")
    documents, edits = _rust.scrub_texts(
        texts,
        batch.column("individual_id") if style in ("surrogate", "rotate") else no_ids,
        batch.column("doc_id") if style == "rotate" else no_ids,
        offsets,
        starts,
        ends,
        codes,
        categories,
        style=style,
        key=key,
        draw=draw,
        shift_days=dates.shift_days,
        date_order=dates.otherwise if dates.order == "auto" else dates.order,
        order_is_sure=dates.order != "auto",
        avoid=avoid,
        names=names,
        num_threads=num_threads,
    )
    new, made = pa.record_batch(documents), pa.record_batch(edits)
    bounds = np.append(new.column("first_edit").to_numpy(), made.num_rows)
    old_start, old_end, new_start, new_end = (
        made.column(name).to_numpy().astype(np.int64) for name in ("old_start", "old_end", "new_start", "new_end")
    )
    return Pseudonymised(
        new.column("text"),
        OffsetMap(bounds, old_start, old_end, new_start, new_end),
        labels.take(made.column("span")),
        made.column("outcome").to_numpy(),
    )


def span_arrays(spans: pa.Array) -> SpanArrays:
    """Return a list column of spans (start, end, label) as flat arrays: offsets by document, starts, ends and labels; a
    null list has no span."""
    lengths = pc.fill_null(pc.list_value_length(spans), 0).to_numpy(zero_copy_only=False)
    flat = pc.list_flatten(spans)
    start, end, label = (pc.struct_field(flat, name) for name in ("start", "end", "label"))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return offsets, start.to_numpy(zero_copy_only=False), end.to_numpy(zero_copy_only=False), label


def category_codes(labels: pa.Array) -> tuple[np.ndarray, list[str]]:
    """Return the category number of each label, uint32, and the category names, in the order of `PRIORITY`."""
    encoded = labels.dictionary_encode()
    names = [category(label) for label in encoded.dictionary.to_pylist()]
    rank = {name: number for number, name in enumerate(PRIORITY)}
    categories = sorted(set(names), key=lambda name: (rank.get(name, len(rank)), name))
    numbers = np.array([categories.index(name) for name in names], dtype=np.uint32)
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    return (numbers[codes] if len(codes) else np.zeros(0, dtype=np.uint32)), categories
