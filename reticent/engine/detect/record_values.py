"""Values of record fields, from the second table or from columns of the documents, and how each field is looked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reticent.core.errors import CorpusError, PolicyError
from reticent.core.names import plain_name
from reticent.engine.detect.record_table import columns_of, read_record_table
from reticent.engine.identity import fold_ids
from reticent.engine.schema import type_name

__all__ = ["FIELDS", "Values", "read_records", "unknown_fields", "values_of"]

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
    """Values of record fields, one row each, and how many fields held none."""

    #: Columns individual_id, value, field (how it is looked for) and label, all strings without nulls.
    table: pa.Table
    num_skipped: int
    #: individual_id of each row that was read.
    ids: pa.ChunkedArray
    #: How a CSV was read, where that is not as commas, double quotes and UTF-8.
    said: str | None = None

    def names(self) -> pa.Table:
        """Return individual_id and value (name) of the fields that are names."""
        named = self.table.filter(pc.equal(self.table.column("field"), "name"))
        return named.select(["individual_id", "value"]).rename_columns(["individual_id", "name"])


def unknown_fields(values: Values, table: object) -> str | None:
    """Return the warning about fields that no name says how to look for, and that are looked for as they stand."""
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
    """Read record fields from Parquet or CSV: ``individual_id`` and one column a field.

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
    from reticent import _rust

    named = {"individual_id": "individual_id"} | dict(fields or {})
    table, said = read_record_table(Path(path), sorted(set(named.values())))
    field_of = {column: field for field, column in named.items()}
    table = table.rename_columns([field_of.get(column, column) for column in table.column_names])
    if len(set(table.column_names)) < len(table.column_names):
        raise PolicyError(
            f"{path}: fields give a column the name of another; {columns_of(Path(path), table.column_names)}"
        )
    ids = _as_text(table.column("individual_id"), f"{path} column individual_id")
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
    """Return the values of these columns, by field, of the individuals with these ids; ``where`` names them in errors.

    Raises
    ------
    CorpusError
        A column holds no text, numbers or dates.
    """
    parts, num_skipped = [], 0
    for name, column in columns.items():
        is_date = pa.types.is_date(column.type) or pa.types.is_timestamp(column.type)
        label, field = FIELDS.get(plain_name(name), (name.upper(), "date" if is_date else "text"))
        values = _as_text(column, f"{where} column {name}")
        keep = pc.fill_null(pc.greater(pc.utf8_length(pc.utf8_trim_whitespace(values)), 1), False)
        kept = values.filter(keep)
        num_skipped += len(values) - len(kept)
        constants = {
            key: pa.array([value], pa.string()).take(pa.array(np.zeros(len(kept), dtype=np.int64)))
            for key, value in (("field", field), ("label", label))
        }
        parts.append(pa.table({"individual_id": ids.filter(keep), "value": kept, **constants}))
    return Values(table=pa.concat_tables(parts).combine_chunks(), num_skipped=num_skipped, ids=ids)


def _as_text(column: pa.ChunkedArray, where: str) -> pa.ChunkedArray:
    if pa.types.is_floating(column.type):  # numbers with nulls, as pandas keeps them
        column = pc.if_else(pc.is_nan(column), None, column)
        whole = pc.equal(column, pc.floor(column))
        if pc.all(pc.fill_null(whole, True)).as_py():
            column = column.cast(pa.int64(), safe=False)
    try:
        return column.cast(pa.string())
    except pa.ArrowException:
        raise CorpusError(f"{where}: expected text, numbers or dates, got {type_name(column.type)}") from None
