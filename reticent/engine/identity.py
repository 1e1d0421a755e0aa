"""Identity: one individual is one id. Ids that differ in spelling only are an error, or are joined.

Ids are compared by their folded form (``rust_ext/src/identity.rs``). It is a function of the id alone, so joined ids do
not depend on other documents, files or threads. No message quotes an id; it says where and how ids differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, Literal, get_args

import numpy as np
import pyarrow as pa

from reticent import _rust
from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.schema import one_array

#: Choices for ids that fold to one another: stop, read each in its folded form, or take them for different ones.
Ids = Literal["stop", "fold", "exact"]
#: Columns of `DOCUMENTS` whose ids are of individuals or households.
FOLDED: Final = ("individual_id", "household_id")
#: Groups whose places a message names.
_SHOWN: Final = 3


#: Words that exports write where an individual is not known, folded and without signs around them (`_AROUND`).
# fmt: off
_MISSING: Final = [
    "na", "nan", "nat", "nil", "none", "null", "undef", "undefined", "unk", "unknown", "missing", "blank", "empty",
    "n/a", "n.a", "n/d", "n/an/a", "\\n", "-nan", "1.#ind", "-1.#ind", "1.#qnan", "-1.#qnan", "div/0",
    "na_character_", "na_integer_", "objectobject", "__hive_default_partition__", "notavailable", "notapplicable",
    "notknown", "notrecorded", "noid", "nopatient", "inconnu", "inconnue", "nonrenseigné", "nonrenseigne",
    "unbekannt", "keineangabe", "desconocido", "desconocida", "sindatos", "nodisponible",
]
# fmt: on
#: The same where they are such words only between signs: errors of a spreadsheet.
_MARKED: Final = ["#value!", "#ref!", "#name?", "#num!"]
_AROUND: Final = "\"'`()[]{}<>#!?;:,.%"
SAYS_MISSING: Final = (
    "a word for no id, such as NULL, nan or -: all rows that have it would be one individual. Give each its id, or "
    "leave them out; corpus.real_ids lists such words that are ids here"
)
#: Signs alone (folded), and a UUID of zeros, whose last digits are folded as a number.
_SIGNS: Final = r"^([-._?*/#~+=:;,!|<>(){}\[\]\\\\]+|0{8}(-0{4}){3}-0)$"


@dataclass(frozen=True, slots=True)
class Spellings:
    """Groups of ids of a column that fold to the same form, and so seem to be of one individual.

    Attributes
    ----------
    rows : int64, shape (num_ids,); the first row of each spelling
    bounds : int64, shape (num_groups + 1,); group g is ``rows[bounds[g]:bounds[g + 1]]``
    differences : uint8, shape (num_groups,); in what the ids of a group differ from its first (a bit of each kind)
    """

    rows: np.ndarray
    bounds: np.ndarray
    differences: np.ndarray

    def __len__(self) -> int:
        return len(self.differences)

    @property
    def num_joined(self) -> int:
        """Number of spellings that are merged into another spelling of the same id."""
        return len(self.rows) - len(self)

    def describe_kinds(self) -> str:
        """Return text for a message that lists the kinds of spelling differences, each with its number of groups."""

        counts = [int(np.count_nonzero(self.differences >> bit & 1)) for bit in range(len(_rust.ID_DIFFERENCES))]
        named = zip(_rust.ID_DIFFERENCES, counts, strict=True)
        return ", ".join(f"{name} ({count:,})" for name, count in named if count)

    def describe_places(self, describe_rows: Callable[[np.ndarray], str], groups: np.ndarray | None = None) -> str:
        """Return text for an error message that says where the first few groups of differently spelt ids occur, of all
        or of ``groups``. ``describe_rows`` turns row numbers into text."""
        groups = np.arange(len(self)) if groups is None else groups
        firsts = (self.rows[self.bounds[group] : self.bounds[group + 1]][:2] for group in groups[:_SHOWN])
        names = (_name_differences(int(bits)) for bits in self.differences[groups[:_SHOWN]])
        shown = (f"{describe_rows(rows)} ({what})" for rows, what in zip(firsts, names, strict=True))
        return "; ".join(shown) + ("; …" if len(groups) > _SHOWN else "")


def _name_differences(bits: int) -> str:
    """Return the names of the kinds of spelling differences that these bits stand for, joined by commas."""
    return ", ".join(name for bit, name in enumerate(_rust.ID_DIFFERENCES) if bits >> bit & 1)


def check_choice(ids: str) -> None:
    """Raise `PolicyError` unless ``ids`` is a valid value of the option ``corpus.ids``."""
    if ids not in get_args(Ids):
        raise PolicyError(f"corpus.ids: expected {', '.join(get_args(Ids))}, got {ids!r}")


def fold_ids(ids: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the normalised form of each id (string, nulls stay): different spellings of one id, as in case or leading
    zeros, have the same form.

    White space and characters that print nothing are left out; then NFKC (full-width forms), digits, hyphens and
    apostrophes of all scripts as those of ASCII, case folded. A number is compared without leading zeros: an id that is
    one, and the last digits of any other id (``P-007`` and ``p-7``, but not ``007-P`` and ``7-P``). Of an id of digits
    alone a fraction of zeros goes too (``12.0``). Accents and other letters and signs tell ids apart. The form of a
    form is itself; only a blank id has an empty one.

    >>> fold_ids(pa.array(["P 001", "ｐ1", "12.0", None])).to_pylist()
    ['p1', 'p1', '12', None]
    """

    return pa.record_batch(_rust.fold_ids(one_array(ids))).column(0)


def missing_id_rows(ids: pa.Array | pa.ChunkedArray, real_ids: Collection[str] = ()) -> np.ndarray:
    """Return the row numbers whose id is a word for a missing value (``NULL``, ``nan``, ``-``), except ids listed in
    ``real_ids``. Null ids are not among them. Cost: a hash of each row, and a fold of each distinct id."""
    ids = one_array(ids)
    # The core's distinct ids in place of pyarrow's functions, which take 10 MB.
    names, codes = _rust.sorted_codes(ids.fill_null("") if ids.null_count else ids)
    kept = set(fold_ids(pa.array(list(real_ids), pa.string())).to_pylist())
    forms = fold_ids(pa.record_batch(names).column(0)).to_pylist()
    missing = [number for number, form in enumerate(forms) if _says_missing(form) and form not in kept]
    return np.flatnonzero(np.isin(codes, missing)) if missing else np.empty(0, np.int64)


def _says_missing(form: str) -> bool:
    """Whether a folded id is a word or sign for a missing value, such as "null" or "-"."""
    return form.strip(_AROUND) in _MISSING or form in _MARKED or re.search(_SIGNS, form) is not None


def require_real_ids(
    ids: pa.ChunkedArray, column: str, real_ids: Collection[str], describe_row: Callable[[int], str]
) -> None:
    """Raise `CorpusError` if an id is a word for a missing value and not listed in ``real_ids``. ``describe_row``
    returns file and row of a row number.

    Everybody under such an id would be one individual: what two of them share would count as one person's, and what one
    of them alone has as shared with whoever else has it.
    """
    rows = missing_id_rows(ids, real_ids)
    if len(rows):
        raise CorpusError(
            f"{describe_row(int(rows[0]))} column {column}: {SAYS_MISSING} "
            f"({len(rows):,} of {len(ids):,} rows have one)"
        )


def find_spellings(ids: pa.Array | pa.ChunkedArray) -> Spellings:
    """Return groups of ids that differ in spelling only (their folded forms are equal). Cost: a hash of each row, and a
    fold of each distinct id."""

    return Spellings(*_rust.id_groups(one_array(ids)))


def require_distinct_ids(doc_ids: pa.ChunkedArray, column: str, describe_row: Callable[[int], str]) -> None:
    """Raise `CorpusError` if two documents have the same id; the message names both places. ``describe_row`` returns
    file and row of a row number."""

    names = doc_ids.combine_chunks()
    if _rust.count_distinct(names) == len(names):
        return
    codes = _rust.sorted_codes(names)[1]
    _, first, counts = np.unique(codes, return_index=True, return_counts=True)
    code = codes[first[counts > 1].min()]
    places = " and ".join(describe_row(int(row)) for row in np.flatnonzero(codes == code)[:2])
    raise CorpusError(f"column {column}: the same document id stands at {places}")


def unify_spellings(
    documents: pa.Table, id_column: str, source_column: str, choice: Ids, describe_row: Callable[[int], str]
) -> tuple[pa.Table, int]:
    """Keep, merge or refuse different spellings of an id (``choice``: "exact", "fold" or "stop"). Return the documents
    with the resulting ids in ``id_column``, and the number of merged spellings.

    Parameters
    ----------
    source_column : its name in the source
    describe_row : says where a row stands

    Raises
    ------
    CorpusError
        With "stop": ids fold to one another.
    """
    if choice == "exact":
        return documents, 0
    found = find_spellings(documents.column(id_column))
    if choice == "stop":
        if len(found):
            raise CorpusError(_refusal_message(source_column, found, describe_row))
        return documents, 0
    folded = pa.chunked_array(map(fold_ids, documents.column(id_column).chunks), pa.string())
    at = documents.column_names.index(id_column)
    return documents.set_column(at, documents.field(at), folded), found.num_joined


def _refusal_message(column: str, spellings: Spellings, describe_row: Callable[[int], str]) -> str:
    """Return the error message for ids that differ in spelling only: kinds of difference, first places, remedy."""
    where = spellings.describe_places(lambda rows: " and ".join(describe_row(int(row)) for row in rows))
    return (
        f"column {column}: {len(spellings.rows):,} ids are {len(spellings):,} but for how they are spelt, and each "
        f"would count by itself. They differ in {spellings.describe_kinds()}: {where}. Correct them; "
        f"or {_CHOICES}"
    )


def normalise_listed_ids(
    ids: pa.Array, known: pa.Array, choice: Ids, where: str, describe_row: Callable[[int], str]
) -> pa.Array:
    """Return the ids of a separate list, normalised as those of the documents (``known``) were; `CorpusError` if
    ``choice`` is "stop" and an id is spelt differently there. ``where`` and ``describe_row`` locate an id in the
    message.

    Parameters
    ----------
    ids : strings, shape (num_rows,)
    known : strings
        Ids of the documents, as they were read.
    choice : ``corpus.ids``
    where, describe_row : which list it is, and where a row of it stands, for the message

    Raises
    ------
    CorpusError
        With "stop": an id is none of the documents', but folds to one of them.
    """
    if choice == "fold":
        return fold_ids(ids)
    if choice == "stop":
        names = known.unique()
        found = find_spellings(pa.concat_arrays([names, ids]))
        # No two ids of the documents fold to one another, so one of them begins a group and others of the list follow.
        strange = np.flatnonzero(found.rows[found.bounds[:-1]] < len(names))
        if len(strange):
            shown = found.describe_places(lambda rows: describe_row(int(rows[1]) - len(names)), strange)
            raise CorpusError(
                f"{where}: {len(strange):,} id(s) spelt otherwise than in the documents: {shown}. "
                f"Write them as the documents do; or {_CHOICES}"
            )
    return ids


_CHOICES: Final = (
    'corpus.ids = "fold" (--set corpus.ids=fold) joins them, and "exact" says that they are of different individuals'
)
