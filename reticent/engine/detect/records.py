"""Records: the structured data of an individual, searched for in that individual's documents only.

The fields come from a second table (any number of rows an individual: aliases, maiden names) or from columns of the
documents themselves. How a field is looked for depends on what it is (`FIELDS` of
:mod:`reticent.engine.detect.records`): names by their parts, initials and small edits; a birth date in whatever
form it is written; codes and phone numbers whatever separates their groups; an address in its parts; other fields as
they stand, whatever their case and accents.

A job that names the detector loads this module to check the options: what reads values is imported when it is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reticent import _rust
from reticent.core.errors import CorpusError, PolicyError, cause
from reticent.core.names import plain_name
from reticent.engine.detect.common import read_common_words
from reticent.engine.detect.detector import spans_batch
from reticent.engine.identity import Ids, check_choice, fold_ids, normalise_listed_ids
from reticent.engine.sources.columns import SOURCE_COLUMN, as_text
from reticent.engine.sources.compressed import COMPRESSIONS
from reticent.engine.sources.config import CsvDialect
from reticent.engine.sources.csv import CsvSource, find_form, read_csv
from reticent.engine.sources.parquet import read_parquet
from reticent.engine.sources.protocol import Request
from reticent.engine.sources.reading import Reading

if TYPE_CHECKING:
    from reticent import _rust
    from reticent._rust import CommonWords, Records


#: Score of a span that differs from the record by a small edit.
_EDITED: Final = 0.8


def missing_records_warning(num_without: int, num_individuals: int, table: object) -> str:
    """Return a warning that ``num_without`` of ``num_individuals`` individuals have no row in ``table``, the table of
    structured records."""
    return (
        f"{num_without:,} of {num_individuals:,} individuals have no record in {table}; their names are left to the "
        "other detectors"
    )


class RecordsDetector:
    """Detects the values of each individual's record fields, in that individual's documents only.

    Parameters
    ----------
    table : path, optional
        Parquet or CSV with ``individual_id`` and one column a field, any number of rows an individual.
    fields : field -> column of the table, optional
        For columns of other names: ``{last_name = "pat_last"}``.
    columns : field -> column of the documents, optional
        Fields that stand beside the text; each counts in its own document. Null and blank ones are passed over.
    initials : bool
        Whether "J.S." counts without a name beside it.
    common : path, optional
        Text file of words that are no names by themselves; by default they are learned from the corpus.
    ids : {"stop", "fold", "exact"}
        As the corpus is opened: "fold" reads the table's ids in their folded form too. It is no option of a job, whose
        ``corpus.ids`` is taken.
    """

    name = "records"
    columns: tuple[str, ...]
    exact_offsets = True
    #: A word that the sample lacks is no reason against a name of the individual's own, so less would be left out.
    learns_from_sample = True

    def __init__(
        self,
        table: str | Path | None = None,
        *,
        fields: Mapping[str, str] | None = None,
        columns: Mapping[str, str] | None = None,
        initials: bool = False,
        common: str | Path | None = None,
        ids: Ids = "stop",
        num_threads: int = 0,
    ):
        check_choice(ids)
        if table is None and not columns:
            raise PolicyError('detector records needs detect.records.table = "records.parquet", or columns')
        if fields and table is None:
            raise PolicyError("detector records: fields name columns of a table, and there is none")
        self.num_threads = num_threads
        self.ids: Ids = ids
        self.initials = initials
        self.common_words: CommonWords | None = read_common_words(common) if common is not None else None
        self._of_document = {field: f"{SOURCE_COLUMN}{column}" for field, column in (columns or {}).items()}
        self.columns = tuple(self._of_document.values())
        #: Fields of the table that held nothing.
        self.num_skipped = 0
        #: What is to be told of the table.
        self.warning: str | None = None
        self._id_rows: _rust.IdRows | None = None
        if table is not None:
            values = read_records(table, fields, fold=ids == "fold")
            self.num_skipped = values.num_skipped
            warnings = (values.said, unknown_fields_warning(values, table))
            self.warning = ". ".join(filter(None, warnings)) or None
            self._rows = values.ids
            encoded = values.table.column("individual_id").combine_chunks().dictionary_encode()
            self._id_rows = _rust.IdRows(encoded.dictionary)
            self._records = _compile_records(values.table, encoded.indices)

    def check_ids(self, individual_ids: pa.Array, where: str) -> None:
        """Raise `CorpusError` if an id in the records table differs from an id of the documents in spelling only;
        checked if ``ids`` is "stop". ``where`` names the table in the message."""
        if self._id_rows is not None:
            rows = self._rows.combine_chunks()
            normalise_listed_ids(rows, individual_ids.cast(pa.string()), self.ids, where, lambda row: f"row {row + 1}")

    def num_without_record(self, individual_ids: pa.Array) -> int:
        """Return how many of these individuals have no record; 0 if there is no table of records."""

        if self._id_rows is None:
            return 0
        return int(np.count_nonzero(self._id_rows.rows(individual_ids.cast(pa.string())) == _rust.MISSING))

    def _document_values(self, ids: pa.ChunkedArray, batch: pa.RecordBatch) -> Values:
        """Return the record values that are columns of the documents themselves, as values to search for; ``ids`` has
        one id per document."""

        columns = {field: pa.chunked_array([batch.column(source)]) for field, source in self._of_document.items()}
        return values_of(ids, columns, "documents")

    def detect(self, batch: pa.RecordBatch) -> pa.Table:
        """Return the occurrences of each individual's record values in their own documents, as spans (schema
        `BATCH_SPANS`)."""
        parts = []
        if self._id_rows is not None:
            parts.append(self._find_records(self._records, batch, self._record_rows(batch)))
        if self._of_document:
            rows = pa.chunked_array([pa.array(np.arange(batch.num_rows), pa.int64()).cast(pa.string())])
            values = self._document_values(rows, batch).table
            own = _compile_records(values, values.column("individual_id").combine_chunks().cast(pa.int64()))
            parts.append(self._find_records(own, batch, np.arange(batch.num_rows, dtype=np.uint32)))
        return pa.concat_tables(parts)

    def choice(self, batch: pa.RecordBatch) -> tuple[Records, np.ndarray, CommonWords | None, bool]:
        """Return what `detect_together` passes to the Rust core for this detector: compiled records, each document's
        row in them, common words or None, and whether initials match."""
        return self._records, self._record_rows(batch), self.common_words, self.initials

    def _record_rows(self, batch: pa.RecordBatch) -> np.ndarray:
        """Return for each document the row of its individual in the compiled records, uint32; `_rust.MISSING` if the
        individual has no record."""
        assert self._id_rows is not None
        return self._id_rows.rows(batch.column("individual_id").cast(pa.string()))  # no record: no unit

    def _find_records(self, records: Records, batch: pa.RecordBatch, record_rows: np.ndarray) -> pa.Table:
        """Return the occurrences of record values in the batch's texts as spans. A document is searched for the values
        of one individual, whose row in ``records`` is in ``record_rows``."""
        found = records.find(
            batch.column("text"),
            record_rows,
            common=self.common_words,
            initials=self.initials,
            num_threads=self.num_threads,
        )
        return self.as_spans(pa.record_batch(found))

    def as_spans(self, found: pa.RecordBatch) -> pa.Table:
        """Return the Rust core's matches as a table of spans (schema `BATCH_SPANS`); matches with a small edit get a
        lower score."""

        spans = spans_batch(*(found.column(name) for name in ("document", "start", "end", "label")))
        scores = pc.if_else(pc.equal(found.column("rule"), "edited"), _EDITED, 1.0).cast(pa.float32())
        return spans.set_column(4, spans.schema.field(4), scores)


def _compile_records(values: pa.Table, units: pa.Array) -> Records:
    """Return a Rust object that searches texts for these record values; ``units`` has, for each value, the number of
    the individual to whom it belongs."""
    columns = (values.column(name).combine_chunks() for name in ("value", "field", "label"))
    return _rust.Records(units.to_numpy().astype(np.uint32), *columns)


# -------------------------------------------------------------------------------------------------------- record table
#
# The file that holds a table of records: Parquet, or CSV in any dialect in which documents may be.
#
# CSV is read as documents are (`reticent.engine.sources.csv`), every value as it stands: a number that is read as
# one loses its zeros. An error never shows the columns of a CSV file: a file without a header has data there.


def read_record_table(path: Path, wanted: Sequence[str]) -> tuple[pa.Table, str | None]:
    """Return a table of structured patient records, read from Parquet or CSV, and a note on the CSV dialect if it is
    unusual (else None).

    Parameters
    ----------
    wanted : sequence of str
        Columns that the table must have; the dialect of CSV is the one in which its first line names them.

    Raises
    ------
    CorpusError
        The file cannot be read, a line is no row, a column stands twice or a wanted one is missing.
    """
    try:
        if not _is_csv(path):
            with pq.ParquetFile(path) as parquet:
                schema = parquet.schema_arrow
            _check_columns(path, schema.names, wanted)
            batches = list(read_parquet(path, Request(columns=schema.names)))
            return (pa.Table.from_batches(batches) if batches else schema.empty_table()), None
        form = find_form(path, CsvDialect(), wanted)
        _check_columns(path, form.header, wanted)
        reading, columns = Reading(), list(form.header)
        source = CsvSource(columns=tuple(wanted), reading=reading)
        batches = list(read_csv(path, Request(columns=columns, csv=source)))
    except (OSError, pa.ArrowException) as error:
        if isinstance(error, CorpusError):
            raise
        raise CorpusError(f"{path}: not a readable table of records in Parquet or CSV ({cause(error)})") from None
    table = pa.Table.from_batches(batches, pa.schema([(name, pa.large_string()) for name in columns]))
    said = reading.dialects.get(path)
    return table, f"{path}: read {said}" if said else None


def _describe_columns(path: Path, names: Sequence[str]) -> str:
    """Return text for an error message that lists the columns of a table; of a CSV file only their number, as its first
    line may be data."""
    if not _is_csv(path):
        return f"it has {', '.join(names)}"
    said = f"the first line must name each once, and names {len(names)} column(s)"
    return said + ("; a comma, a semicolon, a tab or | stands between columns" if len(names) == 1 else "")


def _check_columns(path: Path, names: Sequence[str], wanted: Sequence[str]) -> None:
    """Raise `CorpusError` if a column name occurs twice, or a wanted column is missing."""
    if len(set(names)) < len(names):
        raise CorpusError(f"{path}: a column name stands twice; {_describe_columns(path, names)}")
    if missing := set(wanted) - set(names):
        column = min(missing, key=lambda name: (name == "individual_id", name))
        other = ' (detect.records.fields = { individual_id = "COLUMN" } names another)'
        other = other if column == "individual_id" else ""
        raise CorpusError(f"{path}: column {column} is missing{other}; {_describe_columns(path, names)}")


def _is_csv(path: Path) -> bool:
    """Return whether a path has a suffix of CSV (.csv, .tsv), before that of a compression if it has one."""
    plain = path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path
    return plain.suffix.lower() in (".csv", ".tsv")


# ------------------------------------------------------------------------------------------------------- record values
#
# Values of record fields, from the second table or from columns of the documents, and how each field is looked for.


_NAMES_OF: Final = {
    ("NAME", "name"): (
        "name first_name middle_name last_name full_name given_name family_name surname maiden_name birth_name alias "
        "firstname lastname familyname patient_name prenom prenoms nom nom_naissance nom_de_naissance "
        "nom_de_famille nombre apellido apellidos vorname nachname"
    ),
    ("DATE", "date"): "birth_date dob date_of_birth birthdate death_date date_naissance date_de_naissance "
    "fecha_nacimiento fecha_de_nacimiento geburtsdatum",
    ("PHONE", "phone"): "phone telephone phone_number mobile cell fax tel telefono telefon",
    ("EMAIL", "text"): "email mail e_mail",
    ("ADDRESS", "address"): "address street adresse direccion",
    ("CITY", "text"): "city town ville ciudad",
    ("ZIP", "text"): "zip zip_code postcode postal_code code_postal",
    ("ID", "code"): "id mrn ipp nda patient_number record_number account_number insurance_number nhs_number",
    ("SSN", "code"): "ssn",
    ("NIR", "code"): "nir",
    ("DNI", "code"): "dni",
    ("IBAN", "code"): "iban",
}

#: Field of a record -> label of its spans, and how it is looked for: name, date, phone, code, address or text. A field
#: that is not here is text, under its own name in upper case; a column of dates is a date.
FIELDS: Final = {field: kind for kind, names in _NAMES_OF.items() for field in names.split()}
_IDS: Final = ("individual_id", "household_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """Values of record fields, one row each, and the number of empty fields."""

    #: Columns individual_id, value, field (how it is looked for) and label, all strings without nulls.
    table: pa.Table
    num_skipped: int
    #: individual_id of each row that was read.
    ids: pa.ChunkedArray
    #: How a CSV was read, where that is not as commas, double quotes and UTF-8.
    said: str | None = None


def unknown_fields_warning(values: Values, table: object) -> str | None:
    """Return a warning that names the fields without a known type, whose values are searched for literally; None if
    there are none."""
    labels = values.table.column("label").filter(pc.equal(values.table.column("field"), "text"))
    known = {label for label, field in FIELDS.values() if field == "text"}
    names = sorted({*labels.unique().to_pylist()} - known)
    if not names:
        return None
    return (
        f"{table}: {', '.join(names).lower()}: no field that is known, so the values are looked for as they stand; "
        'where one is a name, an address or a code, say so: detect.records.fields = { last_name = "COLUMN" }'
    )


def read_records(path: str | Path, fields: Mapping[str, str] | None = None, *, fold: bool = False) -> Values:
    """Read structured patient records from a Parquet or CSV file (``individual_id``, and one column per field), and
    return their values. With ``fold``, ids are normalised to their folded form.

    Parameters
    ----------
    fields : field -> column, optional
        For columns with other names, also of ``individual_id``: ``{"last_name": "pat_last"}``.
    fold : bool
        Whether ids are read in their folded form, as those of a corpus with ``ids="fold"`` are.

    Raises
    ------
    CorpusError
        The table cannot be read, a column is missing, stands twice or holds no text, numbers or dates; an
        individual_id is null or blank.
    """

    named = {"individual_id": "individual_id"} | dict(fields or {})
    table, said = read_record_table(Path(path), sorted(set(named.values())))
    field_of = {column: field for field, column in named.items()}
    table = table.rename_columns([field_of.get(column, column) for column in table.column_names])
    if len(set(table.column_names)) < len(table.column_names):
        raise PolicyError(
            f"{path}: fields give a column the name of another; {_describe_columns(Path(path), table.column_names)}"
        )
    ids = _as_text(table.column("individual_id"), "individual_id", path)
    if ids.null_count:
        raise CorpusError(f"{path}: column individual_id has {ids.null_count} null values")
    if blank := sum(len(_rust.blank_rows(chunk)) for chunk in ids.chunks):
        raise CorpusError(f"{path}: column individual_id has {blank} blank values")
    ids = pa.chunked_array([fold_ids(ids)]) if fold else ids
    columns = {name: table.column(name) for name in table.column_names if name not in _IDS}
    if not columns:
        raise CorpusError(f"{path}: no record field beside individual_id")
    return replace(values_of(ids, columns, str(path)), said=said)


def values_of(ids: pa.ChunkedArray, columns: Mapping[str, pa.ChunkedArray], where: str) -> Values:
    """Return the record values of two characters or more as rows of individual_id, value, field type and label.
    ``columns`` maps field to values, ``ids`` has each row's individual, ``where`` names the source in errors.

    Raises
    ------
    CorpusError
        A column holds no text, numbers or dates.
    """
    parts, num_skipped = [], 0
    for name, column in columns.items():
        is_date = pa.types.is_date(column.type) or pa.types.is_timestamp(column.type)
        label, field = FIELDS.get(plain_name(name), (name.upper(), "date" if is_date else "text"))
        values = _as_text(column, name, where)
        keep = pc.fill_null(pc.greater(pc.utf8_length(pc.utf8_trim_whitespace(values)), 1), False)
        kept = values.filter(keep)
        num_skipped += len(values) - len(kept)
        constants = {
            key: pa.array([value], pa.string()).take(pa.array(np.zeros(len(kept), dtype=np.int64)))
            for key, value in (("field", field), ("label", label))
        }
        parts.append(pa.table({"individual_id": ids.filter(keep), "value": kept, **constants}))
    return Values(table=pa.concat_tables(parts).combine_chunks(), num_skipped=num_skipped, ids=ids)


def _as_text(column: pa.ChunkedArray, name: str, where: Path | str) -> pa.ChunkedArray:
    """Return a column as strings, whole floating-point numbers without a fraction; `CorpusError` for a type such as a
    list, or for times with a zone that are no plain dates."""
    if pa.types.is_floating(column.type):  # numbers with nulls, as pandas keeps them
        column = pc.if_else(pc.is_nan(column), None, column)
        whole = pc.equal(column, pc.floor(column))
        if pc.all(pc.fill_null(whole, True)).as_py():
            column = column.cast(pa.int64(), safe=False)
    return pa.chunked_array([as_text(chunk, name, where) for chunk in column.chunks], pa.string())
