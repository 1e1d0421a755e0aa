"""Mapping a source's columns to those of `DOCUMENTS`: every value is checked, and none is repaired.

An error names file, row (the first is 1) and column. It never names the text or the id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from reticent import _rust
from reticent.core.errors import CorpusError
from reticent.engine.identity import FOLDED, fold_ids
from reticent.engine.schema import DOCUMENTS, one_array, type_name
from reticent.engine.sources.config import Columns
from reticent.engine.sources.protocol import Fragment, LocalSource, Request
from reticent.engine.sources.reading import count_nulls

REQUIRED: Final = ("doc_id", "individual_id", "text")
#: Prefix by which a detector asks for a column of the source under its name there: ``source:pat_last``, as text.
SOURCE_COLUMN: Final = "source:"


class NullError(CorpusError):
    """A required value is null. The error names the first one of a batch; others may follow."""


def canonical(
    batch: pa.RecordBatch,
    wanted: dict[str, str],
    file: Path | str,
    first_row: int,
    *,
    fold: bool = False,
    null_texts: bool = False,
    time_zone: str | None = None,
) -> pa.RecordBatch:
    """Return a batch with columns renamed and cast to the schema `DOCUMENTS`, and every value checked. ``wanted`` maps
    names in that schema to the source's; ``fold`` normalises ids; ``file`` and ``first_row`` are for errors.

    With ``fold``, ids of individuals are in their folded form. A text may be null only with ``null_texts``. Times with
    a zone, in columns of the source, are read in ``time_zone``.
    """
    arrays, fields = [], []
    for name, column in wanted.items():
        array = batch.column(batch.schema.get_field_index(column))
        if name.startswith(SOURCE_COLUMN):
            arrays.append(as_text(array, column, file, time_zone))
            fields.append(pa.field(name, pa.string()))
            continue
        array = _cast(array, name, column, file, first_row)
        if name in REQUIRED and array.null_count and not (null_texts and name == "text"):
            row = int(np.flatnonzero(array.is_null())[0])
            raise NullError(f"{file} row {first_row + row + 1} column {column}: is null")
        arrays.append(fold_ids(array) if fold and name in FOLDED else array)
        fields.append(DOCUMENTS.field(name))
    for name in {"spans", "mentions"} & wanted.keys():
        texts = arrays[list(wanted).index("text")] if "text" in wanted else None
        _check_spans(arrays[list(wanted).index(name)], texts, f"column {wanted[name]}", file, first_row)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def require_columns(
    found: Sequence[str], wanted: Sequence[str], file: Path | str, describe_columns: Callable[[str], str] | None = None
) -> None:
    """Raise `CorpusError` unless each wanted column occurs exactly once in ``found``, the file's columns.
    ``describe_columns`` makes the part of the message that describes the file's columns."""
    for name in wanted:
        if name not in found:
            names = f"it has {', '.join(map(str, found))}" if describe_columns is None else describe_columns(name)
            if any(part.startswith(f"{name}=") for part in str(file).split("/")):
                names += (
                    f"; {name}=… in its path is a folder of a partition, which is a column on Spark and in lakes alone"
                )
            raise CorpusError(f"{file}: column {name} is missing; {names}")
        if list(found).count(name) > 1:
            raise CorpusError(f"{file}: column {name} stands there {list(found).count(name)} times")


def sorted_codes(values: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, np.ndarray]:
    """Return the distinct strings in byte order, and for each row the index of its string among them, uint32."""
    names, codes = _rust.sorted_codes(one_array(values))
    return pa.record_batch(names).column(0), codes


def _cast(array: pa.Array, name: str, column: str, file: Path | str, first_row: int) -> pa.Array:
    """Return a column cast to its type in the schema `DOCUMENTS`, after checking type, UTF-8 and blank ids."""
    target = DOCUMENTS.field(name).type
    array = _plain_values(array)
    if name in ("spans", "mentions"):
        try:
            return array.cast(target)
        except pa.ArrowException:
            parts = ", ".join(f"{part.name}: {part.type}" for part in target.value_type)
            raise CorpusError(
                f"{file} column {column}: expected a list of ({parts}), got "
                f"{type_name(array.type)}, or a number out of range"
            ) from None
    if name != "text" and (is_whole(array.type) or array.type == pa.uuid()):
        array = plain_ids(array).cast(pa.string())
    if pa.types.is_null(array.type) and len(array):
        array = pa.nulls(len(array), pa.string())
    if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type) or _is_view(array.type)):
        expected = "text" if name == "text" else "text or integers"
        more = "; cast it in the source, where every digit is known" if pa.types.is_floating(array.type) else ""
        if pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type):
            more = ": bytes without the mark of UTF-8; cast them to text, or write the file again"
        raise CorpusError(f"{file} column {column}: expected {expected}, got {type_name(array.type)}{more}")
    bad = _rust.check_utf8(array)
    if bad is not None:
        raise CorpusError(f"{file} row {first_row + bad + 1} column {column}: not valid UTF-8")
    if name in ("doc_id", "individual_id", "household_id"):
        _raise_for_blank(_rust.blank_rows(array), file, column, first_row)
    return array if array.type == target else array.cast(target)


def _plain_values(array: pa.Array) -> pa.Array:
    """Return a column with dictionary encoding undone, or, if it is of Arrow's type JSON, as its text."""
    if isinstance(array, pa.DictionaryArray):
        if _is_view(array.type.value_type):  # by whose number Arrow does not look up
            array = pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(pa.large_string()))
        array = array.dictionary_decode()
    is_json = isinstance(array, pa.ExtensionArray) and array.type.extension_name == "arrow.json"
    return array.storage if is_json else array


def plain_ids(array: pa.Array) -> pa.Array:
    """Return a column without driver-specific types: UUIDs and whole decimal numbers become text."""
    if array.type == pa.uuid():
        return pa.array([None if value is None else str(value) for value in array.to_pylist()], pa.string())
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    return array.cast(pa.string()) if pa.types.is_decimal(array.type) and is_whole(array.type) else array


def is_whole(kind: pa.DataType) -> bool:
    """Whether an Arrow type holds whole numbers only (integers, or decimals of scale 0)."""
    return pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0)


def as_text(array: pa.Array, column: str, file: Path | str, time_zone: str | None = None) -> pa.Array:
    """Return an additional column of the source, which `DOCUMENTS` does not define, as strings; nulls stay.

    A time with a zone is written as the clock of ``time_zone`` shows it; without one, every time of the column must be
    midnight in UTC, as of a date. A time without a zone keeps its day. So no result depends on who reads, and where.
    """
    array = _plain_values(array)
    if pa.types.is_timestamp(array.type) and array.type.tz is not None:
        array = _to_local_times(array, column, file, time_zone)
    try:
        return plain_ids(array).cast(pa.string())
    except pa.ArrowException:
        raise CorpusError(
            f"{file} column {column}: expected text, numbers or dates, got {type_name(array.type)}"
        ) from None


def _to_local_times(array: pa.Array, column: str, file: Path | str, time_zone: str | None) -> pa.Array:
    """Return times with a zone as local times of ``time_zone``. Without that setting raise `CorpusError` unless all
    times are midnight in UTC, which are plain dates."""

    import pyarrow.compute as pc

    local = pc.local_timestamp(array.cast(pa.timestamp(array.type.unit, time_zone or "UTC")))
    if time_zone is None and pc.any(pc.not_equal(local, pc.floor_temporal(local, unit="day"))).as_py():
        raise CorpusError(
            f"{file} column {column}: holds times with a zone that are not all midnight in UTC, so their days are not "
            "known; cast it in the source: (birth AT TIME ZONE 'Europe/Paris')::date; for columns of the documents, "
            'corpus.time_zone = "Europe/Paris" does so too'
        )
    return local


def _check_spans(spans: pa.Array, texts: pa.Array | None, where: str, file: Path | str, first_row: int) -> None:
    """Raise `CorpusError` for a span without start, end or label, or one that does not lie inside its text."""

    import pyarrow.compute as pc

    rows = pc.list_parent_indices(spans).to_numpy()
    start, end, label = (pc.struct_field(pc.list_flatten(spans), name) for name in ("start", "end", "label"))
    for name, values in (("start", start), ("end", end), ("label", label)):
        if values.null_count:
            row = rows[np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0]]
            raise CorpusError(f"{file} row {first_row + row + 1} {where}: a span has no {name}")
    starts, ends = start.to_numpy(zero_copy_only=False), end.to_numpy(zero_copy_only=False)
    bad = (starts < 0) | (ends <= starts)
    if texts is not None:
        bad |= ends > pc.utf8_length(texts).to_numpy(zero_copy_only=False)[rows]
    for at in np.flatnonzero(bad)[:1]:
        row = int(rows[at])
        length = f" of {pc.utf8_length(texts)[row]} characters" if texts is not None else ""
        if texts is not None and 0 <= starts[at] < ends[at] <= pc.binary_length(texts)[row].as_py():
            length += "; it would if offsets counted bytes, but they count characters"
        raise CorpusError(
            f"{file} row {first_row + row + 1} {where}: span {starts[at]}..{ends[at]} does not fit its text{length}"
        )


def _raise_for_blank(rows: np.ndarray, file: Path | str, column: str, first_row: int) -> None:
    """Raise `CorpusError` for the first of these rows, whose id is blank; do nothing if there are none."""
    if len(rows):
        more = f" ({len(rows)} such rows in this batch)" if len(rows) > 1 else ""
        raise CorpusError(f"{file} row {first_row + int(rows[0]) + 1} column {column}: is blank{more}")


def _is_view(kind: pa.DataType) -> bool:
    """Whether an Arrow type is a string view."""
    return pa.types.is_string_view(kind)


def validate_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch unchanged; raise an Arrow error if an offset or index points outside its data, as in a damaged
    file.

    No reader checks this for a damaged file.
    """
    for array in batch.columns:
        if isinstance(array, pa.DictionaryArray):
            pa.DictionaryArray.from_arrays(array.indices, _as_bytes(array.dictionary)).validate(full=True)
        else:
            _as_bytes(array).validate(full=True)
    return batch


def _as_bytes(array: pa.Array) -> pa.Array:
    """Return a text column as binary, without a copy, for readers that must not check its UTF-8 yet."""
    views = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}
    return array.view(views[array.type]) if array.type in views else array


@dataclass(frozen=True)
class Reader:
    """Reads documents from a source: maps its columns and checks the values.

    Parameters
    ----------
    source : LocalSource, what is read
    columns : Columns, names of the source's columns of documents, individuals and text
    fold : bool, whether ids of individuals and households are read in folded form (`fold_ids`)
    null_texts : bool, whether a text may be null; else `CorpusError`, with the number of nulls in the source
    time_zone : str, optional, name of the time zone to which times with a zone are converted
    """

    source: LocalSource
    columns: Columns
    fold: bool
    null_texts: bool
    time_zone: str | None = None

    def read(
        self,
        fragment: Fragment,
        columns: Sequence[str],
        batch_rows: int,
        row_groups: Sequence[int] | None = None,
        row: int = 0,
        repaired: Counter[str] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the documents of a file or table (fragment) as checked batches with these columns of `DOCUMENTS`,
        without those that the source lacks. ``row`` numbers the first row for errors; ``repaired`` counts repairs.

        Parameters
        ----------
        fragment : Fragment, the file or table to read
        columns : sequence of str, names of columns of the corpus
        batch_rows : int, rows of a batch, at most
        row_groups : sequence of int, optional, numbers of the row groups to read; None: all
        row : int, number of the first row that is read, for error messages
        repaired : Counter, optional, to which the number of repaired values is added, by kind of repair
        """
        mapped = {name: self.column_of(name) for name in columns}
        wanted = {name: column for name, column in mapped.items() if column is not None}
        request = Request(
            columns=list(dict.fromkeys(wanted.values())),
            batch_rows=batch_rows,
            row_groups=row_groups,
            large=[wanted["text"]] if "text" in wanted else [],
            repaired=Counter() if repaired is None else repaired,
        )
        for batch in fragment.read(request):
            try:
                how: dict[str, Any] = {"fold": self.fold, "null_texts": self.null_texts, "time_zone": self.time_zone}
                checked = canonical(batch, wanted, fragment.place, row, **how)
            except NullError as error:
                raise CorpusError(f"{error}{self._describe_nulls}") from None
            yield checked
            row += batch.num_rows

    def column_of(self, name: str) -> str | None:
        """Return the source's name of a standard column; None if the source does not have it."""
        is_of_source = name.startswith(SOURCE_COLUMN)
        return name.removeprefix(SOURCE_COLUMN) if is_of_source else getattr(self.columns, name)

    @cached_property
    def _describe_nulls(self) -> str:
        """Return text on the null values in all required columns, for an error message."""
        columns = list(dict.fromkeys(getattr(self.columns, name) for name in REQUIRED))
        batches = ((fragment.place, fragment.read(Request(columns=columns))) for fragment in self.source.fragments)
        return count_nulls(batches, columns, self.columns.text)
