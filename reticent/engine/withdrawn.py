"""Individuals who withdrew: lists and tables of their ids, and the record of whom an earlier reading left out.

A list is a text file, an id a line; a table (a *register*) stands in the database of the documents. Their ids are held
to those of the documents as ``corpus.ids`` says. Ids of nobody here are counted: whoever withdrew may have no document,
or none any more.

The record (`LeftOut`) is a private file of the run folder. It has a keyed digest of each individual who was left out
and had documents, and of the id and text of each of these. So nobody comes back because a list was forgotten, and no
document because patients were merged, one note after the other.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reticent.core.artifact import write_private
from reticent.core.errors import ArtifactError, CorpusError, PolicyError
from reticent.engine.identity import Ids, as_read, fold_ids
from reticent.engine.sources.protocol import origin_of

if TYPE_CHECKING:
    from reticent.engine.corpus import Corpus
    from reticent.engine.sources.corpus_config import CorpusConfig

__all__ = ["RECORD", "LeftOut", "Registering", "Withdrawals", "leave_out", "matched", "read_ids", "read_lines", "told"]

#: The record's file in a run folder.
RECORD: Final = "left-out.parquet"
_DIGEST = pa.binary(16)
_SCHEMA: Final = pa.schema(
    [("key", pa.binary(32)), *((name, _DIGEST) for name in ("exact", "folded", "document", "text"))]
)
_OPTED_IN: Final = "corpus.readmitted lists who opted in again"


@runtime_checkable
class Registering(Protocol):
    """A database that can leave individuals out, so that their texts never travel; all of it in its one snapshot."""

    name: str

    def ids_of(self, table: str | None) -> pa.Array:
        """Return the distinct ids in a register, or of the individuals of the documents (None), as strings."""

    def leave_out(self, ids: pa.Array) -> None:
        """Read no document of these individuals from now on."""

    def left_out(self) -> Iterator[pa.RecordBatch]:
        """Yield doc_id, individual_id and, where it can, the SHA-256 of the text of each document left out."""


# --------------------------------------------------------------------------------------------------------------- lists


def read_ids(file: Path | str, known: pa.ChunkedArray | pa.Array, choice: Ids = "stop") -> tuple[pa.Array, int]:
    """Return the individuals of a text file (UTF-8, an id a line, blank lines passed over), and how many ids it has.

    Parameters
    ----------
    known : ids of the individuals of the documents
    choice : ``corpus.ids``; with "fold" a line is each individual of the same folded form

    Returns
    -------
    Ids that are among ``known``, as they are spelt there, and the number of distinct ids of the file.

    Raises
    ------
    PolicyError
        The file cannot be read, or holds no id.
    CorpusError
        With "stop": an id is not one of ``known``, but is one but for how it is spelt.
    """
    numbered = _numbered(file)
    ids = pa.array([line for _, line in numbered], pa.string())
    return matched(ids, known, choice, str(file), lambda row: f"line {numbered[row][0]}"), len(ids.unique())


def read_lines(file: Path | str) -> list[str]:
    """Return the ids in a list; raises `PolicyError` as :func:`read_ids` does."""
    return [line for _, line in _numbered(file)]


def _numbered(file: Path | str) -> list[tuple[int, str]]:
    """The ids in a list, each with the number of its line."""
    try:
        lines = Path(file).read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        raise PolicyError(f"{file}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise PolicyError(f"{file}: not UTF-8 text; expected the id of one individual a line") from None
    numbered = [(number, line.rstrip("\r")) for number, line in enumerate(lines, 1) if line.strip()]
    if not numbered:
        raise PolicyError(f"{file}: no id; expected the id of one individual a line")
    return numbered


def matched(
    ids: pa.Array, known: pa.ChunkedArray | pa.Array, choice: Ids, where: str, place: Any = lambda row: "an id"
) -> pa.Array:
    """Return those of the known ids that a list or register names; raises as :func:`read_ids` does."""
    names = known.unique().cast(pa.string())
    if choice == "exact":
        return names.filter(pc.is_in(names, value_set=ids))
    folded = fold_ids(names)
    alike = names.filter(pc.is_in(folded, value_set=fold_ids(ids)))
    if choice == "stop":
        as_read(ids, alike, choice, where, place)
    return alike


def leave_out(corpus: Corpus, files: Sequence[Path | str]) -> tuple[Corpus, pa.Array, list[tuple[str, int, int]]]:
    """Return the corpus without all documents of the individuals in these files; raises as :func:`read_ids` does.

    An individual may be in several files: a list of today may repeat that of yesterday.

    Returns
    -------
    The corpus, the ids of who is left out, and of each file its name, its ids and how many of them are individuals.
    """
    owners = corpus.scan().column("individual_id")
    found = [read_ids(file, owners, corpus.ids) for file in files]
    gone = pa.concat_arrays([pa.array([], pa.string()), *(ids for ids, _ in found)]).unique()
    about = [(str(file), num, len(ids)) for file, (ids, num) in zip(files, found, strict=True)]
    return corpus.without(np.flatnonzero(pc.is_in(owners, value_set=gone))), gone, about


def told(where: str, num_ids: int, num_individuals: int, settings: CorpusConfig) -> tuple[str, bool]:
    """Return the sentence about a list or register, and whether it is a warning.

    Raises
    ------
    CorpusError
        None of its ids is an individual, and ``corpus.on_unmatched`` is "stop".
    """
    said = f"{where}: {num_ids:,} ids of who withdrew, of which {num_individuals:,} are individuals here"
    if num_individuals:
        return f"{said}; none of their documents is read", False
    said += "; its ids may be of another system, or of an older export"
    if settings.on_unmatched == "stop":
        raise CorpusError(f'{said} (corpus.on_unmatched = "stop")')
    return said, True


# -------------------------------------------------------------------------------------------------------------- record


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Keyed digests of documents that earlier readings left out, and of whose they are.

    Attributes
    ----------
    key : of new entries
    table : a row for each document: the key of the row, digests of the id of its individual (as it was spelt, and
        folded), of its own id, and of its text (null: not known, or a text that others have too)
    """

    key: bytes = field(default_factory=partial(secrets.token_bytes, 32))
    table: pa.Table = field(default_factory=_SCHEMA.empty_table)
    _kept: dict[str, list[tuple[bytes, set[bytes]]]] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def read(cls, folder: Path) -> LeftOut:
        """Return the record of a run folder; an empty one where there is none."""
        file = folder / RECORD
        if not file.exists():
            return cls()
        try:
            table = pq.read_table(file, memory_map=False).cast(_SCHEMA)
        except (OSError, pa.ArrowException, ValueError):
            raise ArtifactError(f"{file}: damaged; it says who must be left out of this run folder") from None
        return cls(table.column("key")[0].as_py(), table) if table.num_rows else cls()

    def keep(self, folder: Path) -> None:
        """Write the record into a run folder, unless it is empty and there is none."""
        if self.table.num_rows or (folder / RECORD).exists():
            sink = pa.BufferOutputStream()
            pq.write_table(self.table, sink)
            write_private(folder / RECORD, sink.getvalue().to_pybytes())

    def __bool__(self) -> bool:
        return bool(self.table.num_rows)

    def joined(self, other: LeftOut) -> LeftOut:
        """Return both records as one."""
        rows = pa.concat_tables([self.table, other.table])
        return LeftOut(self.key if self else other.key, rows.group_by(_SCHEMA.names).aggregate([]).cast(_SCHEMA))

    def has(self, name: str, values: pa.Array) -> np.ndarray:
        """Return which of these values (ids, or SHA-256 of texts; nulls are none) are in a column."""
        if name not in self._kept:
            keys, digests = self.table.column("key"), self.table.column(name)
            each = [(key, digests.filter(pc.equal(keys, key)).to_pylist()) for key in keys.unique().to_pylist()]
            self._kept[name] = [(key, set(own) - {None}) for key, own in each]
        found = np.zeros(len(values), dtype=bool)
        for key, own in self._kept[name]:
            found |= np.fromiter((each in own for each in _digests(key, name, values)), bool, len(values))
        return found

    def people(self, ids: pa.Array, choice: Ids) -> np.ndarray:
        """Return which of these individuals are in the record."""
        return self.has("exact", ids) if choice == "exact" else self.has("folded", fold_ids(ids))

    def adding(self, documents: Iterable[pa.RecordBatch | pa.Table], texts: set[bytes]) -> LeftOut:
        """Return the record with these documents (doc_id, individual_id, SHA-256), which are left out now.

        ``texts``: SHA-256 of the texts of those who stay; a text that several share is no mark of one of them.
        """
        rows = [self.table]
        for batch in documents:
            ids, owners, digests = (batch.column(number) for number in range(3))
            digests = pa.array([None if each in texts else each for each in digests.to_pylist()], pa.binary())
            columns = [("exact", owners), ("folded", fold_ids(owners)), ("document", ids), ("text", digests)]
            made = [pa.array([self.key] * batch.num_rows, pa.binary(32))]
            made += [pa.array(_digests(self.key, name, values), _DIGEST) for name, values in columns]
            rows.append(pa.table(made, schema=_SCHEMA))
        return LeftOut(self.key, pa.concat_tables(rows).group_by(_SCHEMA.names).aggregate([]).cast(_SCHEMA))

    def without(self, **values: pa.Array) -> LeftOut:
        """Return the record without the rows that have one of these values in a column."""
        kept = np.ones(self.table.num_rows, dtype=bool)
        keys = self.table.column("key").to_pylist()
        for name, given in values.items():
            gone = {key: set(_digests(key, name, given)) - {None} for key in set(keys)}
            digests = self.table.column(name).to_pylist()
            kept &= np.fromiter((d not in gone[k] for k, d in zip(keys, digests, strict=True)), bool, len(keys))
        return LeftOut(self.key, self.table.filter(pa.array(kept)))


def _digests(key: bytes, kind: str, values: pa.Array | pa.ChunkedArray) -> list[bytes | None]:
    person = kind.encode()
    return [
        None
        if value is None
        else hashlib.blake2b(
            value if isinstance(value, bytes) else value.encode(), key=key, digest_size=16, person=person
        ).digest()
        for value in values.to_pylist()
    ]


def sha256(texts: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the SHA-256 of each text (of its UTF-8); nulls stay."""
    return pa.array(
        [hashlib.sha256(text.as_buffer()).digest() if text.is_valid else None for text in texts], pa.binary()
    )


# ------------------------------------------------------------------------------------------------------------ a reading


@dataclass(slots=True)
class Withdrawals:
    """Who is left out of one reading of documents, and what earlier readings of the run left out.

    Attributes
    ----------
    record : of the earlier readings; once `end` was called, with this one
    counts : what a manifest says of registers
    said : sentences, each with whether it is a warning
    """

    settings: CorpusConfig
    record: LeftOut = field(default_factory=LeftOut)
    counts: dict[str, Any] = field(default_factory=dict)
    said: list[tuple[str, bool]] = field(default_factory=list)
    _registers: list[pa.Array] = field(default_factory=list)
    _source: Registering | None = None

    def begin(self, source: Any) -> None:
        """Tell a source that can, before a text of it is read, whom to leave out; raises as `end` does."""
        settings = self.settings
        tables = [name for name in settings.readmitted if self._is_table(name)]
        if settings.opt_out is None and not tables and not self.record:
            return
        origin = origin_of(source)
        if not isinstance(origin, Registering):
            if settings.opt_out is not None or tables:
                raise PolicyError(
                    "corpus.opt_out: this source has no table of who withdrew; corpus.withdrawn takes files"
                )
            return
        known = origin.ids_of(None)
        self._registers = [origin.ids_of(table) for table in tables]
        gone = pa.array([], pa.string())
        if settings.opt_out is not None:
            self._source = origin
            where = f"{origin.name} opt_out"
            ids = origin.ids_of(settings.opt_out)
            if not len(ids):
                raise CorpusError(f"{where}: the table holds no id; leave corpus.opt_out out where nobody withdrew")
            gone = matched(ids, known, settings.ids, where)
            self.counts["opt_out"] = {"ids": len(ids), "individuals": len(gone)}
            self.said.append(told(where, len(ids), len(gone), settings))
        refuse_people(self.record, known, settings.ids, self._settled(known, gone)[0])
        if len(gone):
            origin.leave_out(gone)

    def end(self, individuals: Callable[[], pa.Array], documents: Iterable[pa.RecordBatch]) -> None:
        """Check the documents that were read (doc_id, individual_id, text), and bring the record up to date; neither
        is asked for where nobody is left out, now or earlier.

        Raises
        ------
        PolicyError
            Someone whom an earlier reading left out would come back, or a document of theirs under another id.
        """
        if self.record or self._source is not None:
            left_out = self._source.left_out() if self._source else ()
            self.compare(individuals(), documents, pa.array([], pa.string()), left_out)

    def compare(
        self,
        individuals: pa.ChunkedArray | pa.Array,
        documents: Iterable[pa.RecordBatch],
        gone: pa.Array,
        left_out: Iterable[pa.RecordBatch | pa.Table] = (),
    ) -> None:
        """As `end`, of documents among which those of individuals in ``gone`` are left out by a list.

        Cost: eight bytes a document are held, and what is said of those who are left out.
        """
        settled, readmitted = self._settled(individuals, gone)
        refuse_people(self.record, individuals, self.settings.ids, settled)
        left = list(left_out)
        stays: list[np.ndarray] = []
        moved, asked = [], [_DOCUMENTS.empty_table()]
        for batch in documents:
            ids = [batch.column(number).cast(pa.string()) for number in range(2)]
            table = pa.table([*ids, sha256(batch.column(2))], schema=_DOCUMENTS)
            is_gone = pc.is_in(table.column("individual_id"), value_set=gone)
            left.append(table.filter(is_gone))
            table = table.filter(pc.invert(is_gone))
            stays.append(_prefixes(table.column("sha256")))
            if self.record:
                table = table.filter(pa.array(_marked(self.record, table)))
                is_settled = pc.is_in(table.column("individual_id"), value_set=settled)
                moved.append(table.filter(pc.invert(is_settled)))
                asked.append(table.filter(pc.is_in(table.column("individual_id"), value_set=readmitted)))
        refuse_moved(moved)
        taken = pa.concat_tables(asked)
        record = self.record.without(
            **({"exact": readmitted} if self.settings.ids == "exact" else {"folded": fold_ids(readmitted)}),
            document=taken.column("doc_id"),
            text=taken.column("sha256"),
        )
        marks = pa.chunked_array([chunk for each in left for chunk in _chunks(each.column(2))], pa.binary())
        shared = np.isin(_prefixes(marks), np.concatenate([np.empty(0, np.uint64), *stays]))
        texts = set(marks.drop_null().filter(pa.array(shared)).to_pylist())
        self.record = record.adding(left, texts)

    def require(self, documents: pa.Table, gone: pa.Array) -> None:
        """Raise as `end` does; ``documents`` have doc_id and individual_id."""
        settled, _ = self._settled(documents.column("individual_id"), gone)
        refuse_people(self.record, documents.column("individual_id"), self.settings.ids, settled)
        rest = documents.filter(pc.invert(pc.is_in(documents.column("individual_id"), value_set=settled)))
        refuse_moved([rest.filter(pa.array(_marked(self.record, rest)))])

    def readmitted(self, known: pa.ChunkedArray | pa.Array) -> pa.Array:
        """Return the individuals who opted in again."""
        choice, lists = self.settings.ids, [name for name in self.settings.readmitted if not self._is_table(name)]
        found = [read_ids(file, known, choice)[0] for file in lists]
        found += [matched(ids, known, choice, "corpus.readmitted") for ids in self._registers]
        return pa.concat_arrays([pa.array([], pa.string()), *found])

    def _is_table(self, name: str) -> bool:
        return self.settings.is_database and not Path(name).is_file()

    def _settled(self, known: pa.ChunkedArray | pa.Array, gone: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Individuals who are left out now or opted in again; and the latter."""
        if not self.record:
            return gone, pa.array([], pa.string())
        listed = [read_ids(file, known, self.settings.ids)[0] for file in self.settings.withdrawn]
        readmitted = self.readmitted(known)
        return pa.concat_arrays([gone, *listed, readmitted]), readmitted


_DOCUMENTS: Final = pa.schema([("doc_id", pa.string()), ("individual_id", pa.string()), ("sha256", pa.binary())])


def _chunks(column: pa.ChunkedArray | pa.Array) -> list[pa.Array]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]


def _prefixes(digests: pa.ChunkedArray) -> np.ndarray:
    """The first eight bytes of each digest that is there, uint64."""
    return np.frombuffer(b"".join(each[:8] for each in digests.drop_null().to_pylist()), dtype=np.uint64)


def _marked(record: LeftOut, documents: pa.Table) -> np.ndarray:
    """Which documents have the id or the text of one that was left out."""
    marked = np.zeros(documents.num_rows, dtype=bool)
    for column, name in (("doc_id", "document"), ("sha256", "text")):
        if column in documents.column_names:
            marked |= record.has(name, documents.column(column))
    return marked


def refuse_people(record: LeftOut, individuals: pa.ChunkedArray | pa.Array, choice: Ids, settled: pa.Array) -> None:
    """Raise `PolicyError`, with their number, for individuals of the record who are neither left out nor opted in."""
    names = individuals.unique()
    names = names.filter(pc.invert(pc.is_in(names, value_set=settled)))
    if record and (back := int(record.people(names, choice).sum())):
        raise PolicyError(
            f"{back:,} individual(s) whom an earlier reading left out as withdrawn would come back. Name them again "
            f"(corpus.withdrawn, corpus.opt_out, `reticent update --remove`); {_OPTED_IN}"
        )


def refuse_moved(moved: Sequence[pa.Table]) -> None:
    """Raise `PolicyError`, with their number, for documents of who withdrew that have another individual now."""
    if count := sum(table.num_rows for table in moved):
        people = len({owner for table in moved for owner in table.column("individual_id").to_pylist()})
        raise PolicyError(
            f"{count:,} document(s) of individuals who withdrew now have the id of another individual ({people:,} of "
            "them), as when patients are merged; none is taken in without being asked. Add these ids to who withdrew "
            "(corpus.withdrawn, corpus.opt_out), or name them in corpus.readmitted"
        )
