"""Data subjects: a row for each individual, a column for each type of personal item; and random other subjects as
controls.

They are read from a table (Parquet, CSV, JSON lines) or gathered from the marked spans of documents. Columns have many
names (`reticent.ext.propile.templates.pii_type`); first and last names make one name. Dropped rows are counted, a
missing item stays missing, and no message holds an item.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.json as arrow_json
import pyarrow.parquet as pq

from reticent.core.errors import CorpusError
from reticent.core.json_toml import parse_toml
from reticent.core.names import plain_name
from reticent.engine.detect.detector import Detector, find_in_texts
from reticent.engine.identity import fold_ids
from reticent.engine.randomness import generator
from reticent.engine.split import households_of
from reticent.ext.propile.templates import is_known, pii_type

_FIRST, _LAST = ("first_name", "firstname", "given_name", "prenom"), ("last_name", "lastname", "surname", "nom")
#: Columns that make up a name: they are fields for templates, and never targets.
NAME_PARTS = (*_FIRST, *_LAST)
_NAME = ("name", "full_name", "patient_name")
_IDS = ("individual_id", "household_id", "doc_id", "split")
#: Label of a marked span -> type of item.
LABELS = {
    "NAME": "name", "PATIENT": "name", "PERSON": "name", "ID": "patient_id", "MRN": "patient_id", "DATE": "birth_date",
    "PHONE": "phone", "EMAIL": "email", "ADDRESS": "address", "STREET": "address", "CITY": "city", "ZIP": "zip",
    "SSN": "ssn", "NIR": "ssn", "HOSPITAL": "hospital", "DOCTOR": "doctor",
}  # fmt: skip
_STREAM_NULL, _STREAM_SPLIT = 31, 32


@dataclass(frozen=True, slots=True)
class Subjects:
    """Items by type, one entry a subject; None where a subject has no such item.

    Attributes
    ----------
    items : type -> list of str or None, all of one length
    rows : int64, shape (num_subjects,); the row of the table a subject came from, the first being 0
    counts : rows that were read and dropped
    ids : ``individual_id`` of each subject, where the table has it
    households : int array, the household of each subject; None where every subject is of one of their own
    """

    items: Mapping[str, list[str | None]]
    rows: np.ndarray
    counts: Mapping[str, int]
    ids: list[str] | None = None
    households: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def types(self) -> tuple[str, ...]:
        """Names of the item types, in column order."""
        return tuple(self.items)

    def take(self, chosen: np.ndarray) -> Subjects:
        """Return the subjects at these indices, in this order."""
        items = {name: [values[number] for number in chosen] for name, values in self.items.items()}
        ids = None if self.ids is None else [self.ids[number] for number in chosen]
        households = None if self.households is None else self.households[chosen]
        return Subjects(items, self.rows[chosen], self.counts, ids, households)

    def require(self, *types: str) -> None:
        """Raise `CorpusError` unless there is a column of each type."""
        for name in types:
            if name not in self.items:
                raise CorpusError(f"subjects: no column {name}; there are {', '.join(sorted(self.items))}")


def read_subjects(path: Path | str, *, fold: bool = False) -> Subjects:
    """Read a table of individuals' items (name, phone …) from Parquet, CSV or JSON lines; with ``fold``, ids are
    normalised in spelling.

    A cell may be a list: the parts of a name are joined, of other items the first is taken. With ``fold``, ids are read
    in their folded form, as those of a corpus with ``ids="fold"`` are.

    Raises
    ------
    CorpusError
        The table cannot be read, is empty, has no column of items, two columns of one type, or two rows of one
        individual that differ.
    """
    path = Path(path)
    try:
        suffix = path.suffix.lower()
        if suffix == ".csv":
            texts = csv.ConvertOptions(
                column_types=dict.fromkeys(_csv_header(path), pa.string()), strings_can_be_null=True, null_values=[""]
            )
            # Else a block of the reader may end within a value, and its next line is a row.
            parse = csv.ParseOptions(newlines_in_values=True)
            table = csv.read_csv(path, parse_options=parse, convert_options=texts)
        elif suffix in (".jsonl", ".json"):
            table = arrow_json.read_json(path)
        else:
            table = pq.read_table(path)
    except FileNotFoundError:
        raise CorpusError(f"{path}: no such file") from None
    except (OSError, pa.ArrowException, UnicodeDecodeError, StopIteration) as error:
        raise CorpusError(f"{path}: not a readable table of subjects ({type(error).__name__})") from None
    if len(set(table.column_names)) < len(table.column_names):
        raise CorpusError(f"{path}: a column name stands twice")
    columns = {name: table.column(name).to_pylist() for name in table.column_names}
    if fold and "individual_id" in columns:
        ids = pa.array([None if value is None else str(value) for value in columns["individual_id"]], pa.string())
        columns["individual_id"] = fold_ids(ids).to_pylist()
    return subjects_from_rows(columns, where=str(path))


def _csv_header(path: Path) -> list[str]:
    """Return the column names of a CSV file; raise `CorpusError` if none is known, as the first line is then data."""
    with csv.open_csv(path) as reader:
        names: list[str] = reader.schema.names
    known = (*_IDS, *_NAME, *NAME_PARTS)
    if not any(plain_name(name) in known or is_known(name) for name in names):
        raise CorpusError(
            f"{path}: the first line must name the columns, with commas between them; none of its {len(names)} name(s) "
            "is known, such as individual_id, name or phone"
        )
    return names


def read_items(path: Path | str) -> dict[str, str]:
    """Return item type -> item of one individual from a TOML file with lines such as ``phone = "…"``.

    Raises
    ------
    CorpusError
        The file cannot be read, or has other content; the message quotes none of it.
    """
    try:
        values = parse_toml(Path(path).read_bytes())
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError:
        raise CorpusError(f'{path}: expected lines like name = "…"') from None
    if not values or not all(isinstance(value, str) for value in values.values()):
        raise CorpusError(f'{path}: expected lines like name = "…", all of them text')
    return values


def subjects_from_rows(columns: Mapping[str, Sequence[Any]], *, where: str = "subjects") -> Subjects:
    """Return subjects from columns of items, one row an individual; duplicate rows are dropped and counted."""
    num_rows = len(next(iter(columns.values()), []))
    if num_rows == 0:
        raise CorpusError(f"{where}: no subject in it")
    items = _items_by_kind(columns, where)
    if not items:
        raise CorpusError(f"{where}: no column of personal items in it")
    whole = list(zip(*items.values(), strict=True))
    ids = columns.get("individual_id", [None] * num_rows)
    kept: list[int] = []
    seen: set[tuple[Any, ...]] = set()
    first_of: dict[Any, int] = {}
    for row, (who, values) in enumerate(zip(ids, whole, strict=True)):
        if (who, values) in seen:
            continue
        if who is not None and who in first_of:
            raise CorpusError(f"{where} row {row + 1}: same individual_id as row {first_of[who] + 1}, and other items")
        seen.add((who, values))
        first_of[who] = row
        kept.append(row)
    chosen = np.array(kept, dtype=np.int64)
    counts = {"rows": num_rows, "duplicates": num_rows - len(kept)}
    names = Counter(items["name"][row] for row in kept) if "name" in items else Counter()
    counts["share_a_name"] = sum(count for name, count in names.items() if name is not None and count > 1)
    kept_items = {name: [values[row] for row in kept] for name, values in items.items()}
    kept_ids = [str(ids[row]) for row in kept] if "individual_id" in columns else None
    households = None
    if "household_id" in columns:
        of_row = [columns["household_id"][row] for row in kept]
        households = households_of(_name_codes([None if value is None else str(value) for value in of_row]))
    return Subjects(kept_items, chosen, counts, kept_ids, households)


def _items_by_kind(columns: Mapping[str, Sequence[Any]], where: str) -> dict[str, list[str | None]]:
    """Return kind of personal item ("name", "phone" …) -> its text in each row of a table, None where it has none. The
    name comes first, joined from its parts if need be; ``where`` names the table in errors.
    """
    plain = {plain_name(column): column for column in columns}
    parts = [plain[part] for group in (_FIRST, _LAST) for part in group if part in plain]
    whole = next((plain[name] for name in _NAME if name in plain), None)
    items: dict[str, list[str | None]] = {}
    if whole is not None:
        items["name"] = [_cell_text(value, join=True) for value in columns[whole]]
    elif len(parts) > 1:
        texts = [[_cell_text(value, join=True) for value in columns[part]] for part in parts]
        items["name"] = [" ".join(filter(None, row)) or None for row in zip(*texts, strict=True)]
    for column, values in columns.items():
        if plain_name(column) in (*_IDS, *_NAME):
            continue
        name = pii_type(column).name if column not in parts else plain_name(column)
        if name in items:
            raise CorpusError(f"{where}: column {column} is a second one of type {name}")
        items[name] = [_cell_text(value) for value in values]
    return items


def _cell_text(value: Any, *, join: bool = False) -> str | None:
    """Return a cell as text with single spaces, None if empty; of a list the first item, or all joined."""
    if isinstance(value, list):
        kept = [text for text in map(_cell_text, value) if text is not None]
        return (" ".join(kept) if join else kept[0]) if kept else None
    if value is None or value != value:  # NaN
        return None
    return " ".join(str(value).split()) or None


def subjects_from_spans(documents: pa.Table, *, labels: Mapping[str, str] = LABELS) -> Subjects:
    """Return subjects from documents with labelled spans: each individual's most frequent item of each type.

    Parameters
    ----------
    documents : pa.Table
        Columns ``individual_id``, ``text`` and ``spans``.
    labels : label -> type; spans of other labels are not looked at
    """
    found: dict[str, dict[str, Counter[str]]] = {}
    columns = (documents.column(name).to_pylist() for name in ("individual_id", "text", "spans"))
    for who, text, spans in zip(*columns, strict=True):
        for span in spans or ():
            kind, item = labels.get(span["label"].upper()), _cell_text(text[span["start"] : span["end"]])
            if kind is not None and item is not None:
                found.setdefault(who, {}).setdefault(kind, Counter())[item] += 1
    types = [name for name in dict.fromkeys(labels.values()) if any(name in items for items in found.values())]
    best = {
        who: {name: _most_frequent(name, counter) for name, counter in items.items()} for who, items in found.items()
    }
    rows: dict[str, list[Any]] = {name: [best[who].get(name) for who in best] for name in types}
    return subjects_from_rows({"individual_id": list(best), **rows}, where="marked spans")


def _most_frequent(kind: str, counter: Counter[str]) -> str:
    """Return an individual's most frequent item of one type, the longest of equally frequent ones. Of a full name,
    occurrences of its parts are counted too.

    A name also stands where a part of it does ("Mrs. Berg" for "Anna Berg"), and a whole one comes before a part.
    """
    counts: Mapping[str, int] = counter
    if kind == "name":
        words = {item: item.split() for item in counter}
        counts = {
            item: sum(counter[other] for other in counter if set(words[other]) <= set(words[item])) for item in counter
        }
    return max(counter, key=lambda item: (counts[item], len(item), item))


def subjects_from_notes(documents: pa.Table, detectors: Sequence[Detector]) -> Subjects:
    """Return subjects from documents without spans: each individual's most frequent item of each type that detectors
    find.

    Parameters
    ----------
    documents : pa.Table
        Columns ``individual_id`` and ``text``.
    """
    found: list[list[dict[str, Any]]] = [[] for _ in range(documents.num_rows)]
    texts = documents.column("text").cast(pa.large_string()).combine_chunks()
    for span in find_in_texts(detectors, texts).to_pylist():
        found[span["document"]].append(span)
    return subjects_from_spans(documents.append_column("spans", pa.array(found)))


def draw_nulls(num_subjects: int, *, num_nulls: int = 1, seed: int = 0) -> np.ndarray:
    """Draw for each subject ``num_nulls`` random other subjects, whose items its own are compared with. Return their
    indices, int64 (subjects, num_nulls), -1 if there is no other subject.

    Their items may be the same: with these left out, a common item would be compared with rarer ones, and a model that
    knows no more than how common each is would seem to know whose they are. -1 where there is no other subject.
    """
    if num_subjects < 2:
        return np.full((num_subjects, num_nulls), -1, dtype=np.int64)
    draws = generator(seed, _STREAM_NULL).random((num_subjects, num_nulls)) * (num_subjects - 1)
    places = draws.astype(np.int64)
    return places + (places >= np.arange(num_subjects)[:, None])


def split_subjects(subjects: Subjects, sizes: Sequence[int], *, seed: int = 0) -> tuple[Subjects, ...]:
    """Split subjects at random into disjoint sets of these sizes and a last set with all others; equal names and
    households stay together.

    Two subjects that share a name stay together, so that no individual is on two sides under two rows; those of one
    household share items.

    Raises
    ------
    CorpusError
        There are not enough subjects for the sizes and one more.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    if sum(sizes) >= len(subjects):
        raise CorpusError(
            f"subjects: {len(subjects)} are too few for sets of {', '.join(map(str, sizes))} and an evaluation"
        )
    rows, unit = np.arange(len(subjects)), _name_codes(subjects.items.get("name") or [None] * len(subjects))
    if subjects.households is not None:
        _, first, home = np.unique(subjects.households, return_index=True, return_inverse=True)
        links = (np.ones(2 * len(rows)), (np.tile(rows, 2), np.concatenate([unit, first[home]])))
        linked = connected_components(coo_array(links, shape=(len(rows), len(rows))), directed=False)[1]
        _, first, unit = np.unique(linked, return_index=True, return_inverse=True)
        unit = first[unit]
    keys = generator(seed, _STREAM_SPLIT).random(len(subjects))[unit]
    order = np.lexsort((rows, unit, keys))
    bounds = np.cumsum([0, *sizes, len(subjects)]).clip(max=len(subjects))
    runs = unit[order]
    for number in range(1, len(bounds) - 1):  # a bound inside of a run of one unit moves to its end
        while 0 < bounds[number] < len(runs) and runs[bounds[number]] == runs[bounds[number] - 1]:
            bounds[number] += 1
    return tuple(subjects.take(order[a:b]) for a, b in itertools.pairwise(bounds))


def _name_codes(names: Sequence[str | None]) -> np.ndarray:
    """Return an integer code for each name, the same for equal names. Each None gets a code of its own."""
    known: dict[str, int] = {}
    return np.array([number if name is None else known.setdefault(name, number) for number, name in enumerate(names)])


def count_words(names: Sequence[str | None]) -> np.ndarray:
    """Return the number of words of each name, int64; 0 for None."""
    return pc.fill_null(pc.list_value_length(pc.utf8_split_whitespace(pa.array(names, pa.string()))), 0).to_numpy()
