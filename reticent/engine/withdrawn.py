"""Individuals who withdrew: lists and tables of their ids, and the record of whom earlier readings left out.

A list is a text file, an id a line; a table (a *register*) stands in the database of the documents. Their ids are held
to those of the documents as ``corpus.ids`` says. Ids of nobody here are counted: whoever withdrew may have no document,
or none any more. Lists and registers are read before the documents. A database does not send the texts of who withdrew;
of other sources, and where their first note arrives after that, they are passed over before anything is written.

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
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reticent.core.artifact import write_private
from reticent.core.errors import ArtifactError, CorpusError, PolicyError
from reticent.engine.corpus import Corpus
from reticent.engine.identity import Ids, fold_ids, normalise_listed_ids
from reticent.engine.schema import one_array
from reticent.engine.sources.corpus_config import CorpusConfig
from reticent.engine.sources.protocol import origin_of

if TYPE_CHECKING:
    from reticent.core.progress import Progress  # it loads rich, of which a worker of Spark has no use

#: The record's file in a run folder.
RECORD: Final = "left-out.parquet"
_DIGEST = pa.binary(16)
_SCHEMA: Final = pa.schema(
    [("key", pa.binary(32)), *((name, _DIGEST) for name in ("exact", "folded", "document", "text"))]
)
#: A document of whom is left out: its ids, and the SHA-256 of its text (null: not known).
DOCUMENTS_LEFT: Final = pa.schema([("doc_id", pa.string()), ("individual_id", pa.string()), ("sha256", pa.binary())])
_OPTED_IN: Final = "corpus.readmitted lists who opted in again"


@runtime_checkable
class Registering(Protocol):
    """A database source that can exclude individuals by id, so that their texts are never sent."""

    name: str

    def ids_of(self, table: str | None) -> pa.Array:
        """Return the distinct individual ids in this table of the database, such as one of withdrawn individuals; if
        None, those of the documents."""

    def leave_out(self, ids: pa.Array) -> None:
        """Exclude the documents of these individuals from all later reads of the database."""

    def left_out(self) -> Iterator[pa.RecordBatch]:
        """Yield doc_id, individual_id and, if available, the text's SHA-256 of each document that `leave_out`
        excluded."""


# --------------------------------------------------------------------------------------------------------------- lists

#: A list: its name, how many ids it has, and how many of them are individuals.
OfList: TypeAlias = tuple[str, int, int]


def comparable_form(ids: pa.Array | pa.ChunkedArray, choice: Ids) -> pa.Array | pa.ChunkedArray:
    """Return individual ids in the form in which two are compared: unchanged for "exact", otherwise normalised
    (folded)."""
    return ids if choice == "exact" else fold_ids(ids)


def read_ids(file: Path | str, known: pa.ChunkedArray | pa.Array, choice: Ids = "stop") -> tuple[pa.Array, int]:
    """Return the ids of withdrawn individuals in a text file (one a line) that are individuals of the documents, and
    the number of distinct ids in the file.

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
    numbered = _read_numbered_lines(file)
    ids = pa.array([line for _, line in numbered], pa.string())
    return match_known_ids(ids, known, choice, str(file), lambda row: f"line {numbered[row][0]}"), len(ids.unique())


def read_lines(*files: Path | str) -> pa.Array:
    """Return the ids in these list files, concatenated."""
    return pa.array([line for file in files for _, line in _read_numbered_lines(file)], pa.string())


def _read_numbered_lines(file: Path | str) -> list[tuple[int, str]]:
    """Return the ids in a list file, each with its line number."""
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


def match_known_ids(
    ids: pa.Array, known: pa.ChunkedArray | pa.Array, choice: Ids, where: str, place: Any = lambda row: "an id"
) -> pa.Array:
    """Return the individual ids of the documents (``known``) that also occur in ``ids``, a list or table of withdrawn
    individuals. ``choice`` says how two ids are compared; ``where`` and ``place`` locate an id in error messages."""
    names = known.unique().cast(pa.string())
    alike = names.filter(pc.is_in(comparable_form(names, choice), value_set=comparable_form(ids, choice)))
    if choice == "stop":
        normalise_listed_ids(ids, alike, choice, where, place)
    return alike


def leave_out(corpus: Corpus, files: Sequence[Path | str]) -> tuple[Corpus, pa.Array, list[OfList]]:
    """Return the corpus without the documents of the individuals listed in these files, the ids of these individuals,
    and for each file its name and counts.

    An individual may be in several files: a list of today may repeat that of yesterday.

    Returns
    -------
    The corpus, the ids of who is left out, and what is said of each file.
    """
    owners = corpus.scan().column("individual_id")
    gone, about = _read_lists(files, owners, corpus.ids)
    return corpus.without(np.flatnonzero(pc.is_in(owners, value_set=gone))), gone, about


def _read_lists(
    files: Sequence[Path | str], known: pa.Array | pa.ChunkedArray, choice: Ids
) -> tuple[pa.Array, list[OfList]]:
    """Return the known individuals listed in any of the files, and for each file its name, number of ids and number of
    individuals."""
    found = [read_ids(file, known, choice) for file in files]
    gone = pa.concat_arrays([pa.array([], pa.string()), *(ids for ids, _ in found)]).unique()
    return gone, [(str(file), num, len(ids)) for file, (ids, num) in zip(files, found, strict=True)]


def report_lists(lists: Iterable[OfList], settings: CorpusConfig, progress: Progress, counts: dict[str, Any]) -> None:
    """Print how many individuals each list of withdrawn individuals excludes, and append its numbers of ids and of
    individuals to ``counts["withdrawn"]``."""
    for each in lists:
        sentence, is_warning = list_message(*each, settings)
        progress.tell(sentence, is_warning=is_warning)
        counts.setdefault("withdrawn", []).append({"ids": each[1], "individuals": each[2]})


def list_message(where: str, num_ids: int, num_individuals: int, settings: CorpusConfig) -> tuple[str, bool]:
    """Return a sentence on how many individuals a list of withdrawn individuals excludes, and whether it is a warning:
    that it excludes nobody. `CorpusError` instead of the warning if the settings say so.

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
    """The record of withdrawals: keyed digests of documents that earlier readings excluded, and of their individuals.

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
        """Return the record of withdrawn individuals stored in a run folder; an empty one if there is none,
        `ArtifactError` if it is damaged."""
        file = folder / RECORD
        if not file.exists():
            return cls()
        try:
            table = pq.read_table(file, memory_map=False).cast(_SCHEMA)
        except (OSError, pa.ArrowException, ValueError):
            raise ArtifactError(f"{file}: damaged; it says who must be left out of this run folder") from None
        return cls(table.column("key")[0].as_py(), table) if table.num_rows else cls()

    def keep(self, folder: Path) -> None:
        """Write the record to a run folder, unless it is empty and the folder has none."""
        if self.table.num_rows or (folder / RECORD).exists():
            sink = pa.BufferOutputStream()
            pq.write_table(self.table, sink)
            write_private(folder / RECORD, sink.getvalue().to_pybytes())

    def __bool__(self) -> bool:
        return bool(self.table.num_rows)

    def union(self, other: LeftOut) -> LeftOut:
        """Return the union of two records of withdrawn individuals and documents."""
        rows = pa.concat_tables([self.table, other.table])
        return LeftOut(self.key if self else other.key, rows.group_by(_SCHEMA.names).aggregate([]).cast(_SCHEMA))

    def has(self, name: str, values: pa.Array) -> np.ndarray:
        """Return which of these values (ids, or SHA-256 of texts) are in the record's column ``name``, bool; null never
        is."""
        if name not in self._kept:
            keys, digests = self.table.column("key"), self.table.column(name)
            each = [(key, digests.filter(pc.equal(keys, key)).to_pylist()) for key in keys.unique().to_pylist()]
            self._kept[name] = [(key, set(own) - {None}) for key, own in each]
        found = np.zeros(len(values), dtype=bool)
        for first in range(0, len(values), 1 << 16):  # Python's values take ten times the memory of Arrow's
            some = values.slice(first, 1 << 16)
            for key, own in self._kept[name]:
                is_kept = (each in own for each in _keyed_digests(key, name, some))
                found[first : first + len(some)] |= np.fromiter(is_kept, bool, len(some))
        return found

    def has_individuals(self, ids: pa.Array, choice: Ids) -> np.ndarray:
        """Return for each of these individual ids whether it is recorded as withdrawn, bool."""
        return self.has(_column_of(choice), comparable_form(ids, choice))

    def num_others(self, known_ids: pa.Array, choice: Ids) -> int:
        """Return how many individuals are recorded as withdrawn and are not among ``known_ids``."""
        name = _column_of(choice)
        rest = self.without(name, comparable_form(known_ids, choice)).table
        return rest.group_by(["key", name]).aggregate([]).num_rows

    def marked(self, documents: pa.Table) -> np.ndarray:
        """Return which of these documents are recorded as withdrawn, by their id or their text, bool."""
        marked = np.zeros(documents.num_rows, dtype=bool)
        for column, name in (("doc_id", "document"), ("sha256", "text")):
            if column in documents.column_names:
                marked |= self.has(name, documents.column(column))
        return marked

    def adding(self, documents: Iterable[pa.RecordBatch | pa.Table], texts: set[bytes]) -> LeftOut:
        """Return a copy of the record to which these newly excluded documents (doc_id, individual_id, SHA-256 of the
        text) are added. SHA-256 in ``texts`` are not recorded, as documents that are not excluded have the same text.

        ``texts``: SHA-256 of the texts that stay; a text that several share does not identify one of them.
        """
        rows = [self.table]
        for batch in documents:
            ids, owners, digests = (batch.column(number) for number in range(3))
            digests = pa.array([None if each in texts else each for each in digests.to_pylist()], pa.binary())
            columns = [("exact", owners), ("folded", fold_ids(owners)), ("document", ids), ("text", digests)]
            made = [pa.array([self.key] * batch.num_rows, pa.binary(32))]
            made += [pa.array(_keyed_digests(self.key, name, values), _DIGEST) for name, values in columns]
            rows.append(pa.table(made, schema=_SCHEMA))
        return LeftOut(self.key, pa.concat_tables(rows).group_by(_SCHEMA.names).aggregate([]).cast(_SCHEMA))

    def without(self, name: str, values: pa.Array) -> LeftOut:
        """Return a copy of the record without the rows that have one of these values in the column ``name``."""
        return LeftOut(self.key, self.table.filter(pa.array(~self._rows_with(name, values))))

    def without_marks_of(self, documents: pa.Table) -> LeftOut:
        """Return a copy of the record that no longer recognises these documents (doc_id, sha256) by their id or text;
        the individuals it names stay recorded as withdrawn."""
        table = self.table
        for column, name in (("doc_id", "document"), ("sha256", "text")):
            is_known = pa.array(self._rows_with(name, documents.column(column)))
            marks = pc.if_else(is_known, pa.scalar(None, _DIGEST), table.column(name))
            table = table.set_column(_SCHEMA.names.index(name), _SCHEMA.field(name), marks)
        return LeftOut(self.key, table)

    def _rows_with(self, name: str, values: pa.Array | pa.ChunkedArray) -> np.ndarray:
        """Return which rows have one of these values in the column ``name``, bool (num_rows,)."""
        keys, digests = (self.table.column(column).to_pylist() for column in ("key", name))
        found = {key: set(_keyed_digests(key, name, values)) - {None} for key in set(keys)}
        return np.fromiter((d in found[k] for k, d in zip(keys, digests, strict=True)), bool, len(keys))


def _column_of(choice: Ids) -> str:
    """Return the column of the record by which individuals are compared: "exact" or "folded"."""
    return "exact" if choice == "exact" else "folded"


def _keyed_digests(key: bytes, kind: str, values: pa.Array | pa.ChunkedArray) -> list[bytes | None]:
    """Return a keyed 128-bit digest of each value, None for null. ``kind``, the name of the record's column, makes
    equal values in different columns have different digests."""
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
    """Return the SHA-256 of the UTF-8 of each text, binary; nulls stay."""
    return pa.array(
        [hashlib.sha256(text.as_buffer()).digest() if text.is_valid else None for text in texts], pa.binary()
    )


def hash_texts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield for each batch of documents a table with doc_id, individual_id and the SHA-256 of the text (schema
    `DOCUMENTS_LEFT`)."""
    for batch in batches:
        ids = [batch.column(number).cast(pa.string()) for number in range(2)]
        yield pa.table([*ids, sha256(batch.column(2))], schema=DOCUMENTS_LEFT)


# ------------------------------------------------------------------------------------------------------------ a reading


@dataclass(slots=True)
class Withdrawals:
    """Who is excluded from one reading of the documents, and whom earlier readings of the run excluded.

    Attributes
    ----------
    record : of the earlier readings; once `end` was called, with this one
    lists : what is said of each list, once it is known
    counts : what a manifest says of registers
    said : sentences about registers, each with whether it is a warning
    """

    settings: CorpusConfig
    record: LeftOut = field(default_factory=LeftOut)
    lists: list[OfList] = field(default_factory=list)
    counts: dict[str, Any] = field(default_factory=dict)
    said: list[tuple[str, bool]] = field(default_factory=list)
    _registers: list[pa.Array] = field(default_factory=list)
    _source: Registering | None = None
    _listed: pa.Array | None = None
    _passed_over: list[pa.Table] = field(default_factory=list)

    def begin(self, source: Any) -> None:
        """Read the lists and tables of withdrawn individuals, and have a database exclude their documents before any
        text is read."""
        settings, origin = self.settings, origin_of(source)
        tables = [name for name in settings.readmitted if self._is_table(name)]
        if isinstance(origin, Registering):
            if settings.opt_out is not None or settings.withdrawn or tables or self.record:
                self._exclude_at_source(origin, tables)
        elif settings.opt_out is not None or tables:
            raise PolicyError("corpus.opt_out: this source has no table of who withdrew; corpus.withdrawn takes files")
        elif settings.withdrawn:
            self._listed = comparable_form(read_lines(*settings.withdrawn), settings.ids)

    def _exclude_at_source(self, origin: Registering, tables: Sequence[str]) -> None:
        """Match all lists and tables with the ids in the database, and have the database exclude the withdrawn
        individuals."""
        settings, known = self.settings, origin.ids_of(None)
        self._registers = [origin.ids_of(table) for table in tables]
        gone, named = [self.of_lists(known)], [read_lines(*settings.withdrawn)]
        for each in self.lists:  # nothing is read where a list stops the reading
            list_message(*each, settings)
        if settings.opt_out is not None:
            where = f"{origin.name} opt_out"
            ids = origin.ids_of(settings.opt_out)
            if not len(ids):
                raise CorpusError(f"{where}: the table holds no id; leave corpus.opt_out out where nobody withdrew")
            gone.append(match_known_ids(ids, known, settings.ids, where))
            named.append(ids)
            self.counts["opt_out"] = {"ids": len(ids), "individuals": len(gone[-1])}
            self.said.append(list_message(where, len(ids), len(gone[-1]), settings))
        out = pa.concat_arrays(gone).unique()
        refuse_withdrawn(self.record, known, settings.ids, pa.concat_arrays([out, self.readmitted(known)]))
        if any(map(len, named)):  # also those without a note yet: one may arrive before the texts are read
            self._listed = comparable_form(pa.concat_arrays(named), settings.ids)
        if len(out):
            self._source = origin
            origin.leave_out(out)

    def of_lists(self, known: pa.ChunkedArray | pa.Array) -> pa.Array:
        """Return those of the known individual ids that the configured lists of withdrawn individuals name."""
        gone, self.lists = _read_lists(self.settings.withdrawn, known, self.settings.ids)
        return gone

    def drop_withdrawn(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch of documents without those of withdrawn individuals that the source sent nevertheless; these
        are recorded."""
        if self._listed is None:
            return batch
        names = batch.column("individual_id").cast(pa.string())
        is_gone = pc.is_in(comparable_form(names, self.settings.ids), value_set=self._listed)
        if pc.any(is_gone).as_py():
            self._passed_over += hash_texts([batch.select(["doc_id", "individual_id", "text"]).filter(is_gone)])
            batch = batch.filter(pc.invert(is_gone))
        return batch

    def end(self, individuals: Callable[[], pa.Array], documents: Iterable[pa.RecordBatch]) -> None:
        """Update the record of withdrawals after all documents (doc_id, individual_id, text) were read. Raise
        `PolicyError` instead if an individual or document that an earlier reading excluded is among them.

        Raises
        ------
        PolicyError
            Someone whom an earlier reading left out would come back, or a document of theirs under another id.
        CorpusError
            An id of a list is an individual's but for how it is spelt.
        """
        if not (self.record or self._source is not None or self._listed is not None):
            return
        left = [*(self._source.left_out() if self._source else ()), *self._passed_over]
        stay = individuals()
        if self._listed is not None:
            self.of_lists(pa.concat_arrays([stay, *(one_array(each.column("individual_id")) for each in left)]))
        self.end_with_tables(stay, hash_texts(documents), left)

    def end_with_tables(
        self,
        individuals: pa.ChunkedArray | pa.Array,
        documents: Iterable[pa.Table],
        left_out: Iterable[pa.RecordBatch | pa.Table] = (),
        gone: pa.Array | None = None,
    ) -> None:
        """Update the record of withdrawals after these documents (tables of `hash_texts`) were read: add those
        ``left_out`` and those of ``gone``, individuals who are still to be excluded. Raise `PolicyError` instead if
        someone whom an earlier reading excluded is among them.

        Cost: eight bytes a document are held, and what is said of those who are left out.
        """
        gone = pa.array([], pa.string()) if gone is None else gone
        readmitted = self.readmitted(individuals)
        settled = pa.concat_arrays([gone, readmitted])
        refuse_withdrawn(self.record, individuals, self.settings.ids, settled)
        left = list(left_out)
        stays: list[np.ndarray] = []
        moved, asked = [], [DOCUMENTS_LEFT.empty_table()]
        for table in documents:
            is_gone = pc.is_in(table.column("individual_id"), value_set=gone)
            left.append(table.filter(is_gone))
            table = table.filter(pc.invert(is_gone))
            stays.append(_prefixes(table.column("sha256")))
            if self.record:
                table = table.filter(pa.array(self.record.marked(table)))
                is_settled = pc.is_in(table.column("individual_id"), value_set=settled)
                moved.append(table.filter(pc.invert(is_settled)))
                asked.append(table.filter(pc.is_in(table.column("individual_id"), value_set=readmitted)))
        refuse_moved(moved)
        taken = pa.concat_tables(asked)
        choice = self.settings.ids
        record = self.record.without(_column_of(choice), comparable_form(readmitted, choice)).without_marks_of(taken)
        marks = pa.chunked_array([one_array(each.column(2)) for each in left], pa.binary())
        shared = np.isin(_prefixes(marks), np.concatenate([np.empty(0, np.uint64), *stays]))
        texts = set(marks.drop_null().filter(pa.array(shared)).to_pylist())
        self.record = record.adding(left, texts)

    def require(self, documents: pa.Table, gone: pa.Array) -> None:
        """Raise `PolicyError` if one of these documents (doc_id, individual_id) belongs to an individual recorded as
        withdrawn, unless the individual is in ``gone`` (to be excluded) or has opted in again."""
        individuals = documents.column("individual_id")
        settled = pa.concat_arrays([gone, self.readmitted(individuals)])
        refuse_withdrawn(self.record, individuals, self.settings.ids, settled)
        rest = documents.filter(pc.invert(pc.is_in(individuals, value_set=settled)))
        refuse_moved([rest.filter(pa.array(self.record.marked(rest)))])

    def require_named(self) -> None:
        """Raise `PolicyError` if an individual recorded as withdrawn is in none of the configured lists, neither of
        withdrawn nor of readmitted individuals. It serves runs whose copied documents already lack the withdrawn
        ones."""
        settings = self.settings
        if self.record and settings.opt_out is None and not any(map(self._is_table, settings.readmitted)):
            named = read_lines(*settings.withdrawn, *settings.readmitted)
            _refuse_return(self.record.num_others(named, settings.ids))

    def readmitted(self, known: pa.ChunkedArray | pa.Array) -> pa.Array:
        """Return those of the known individual ids that opted in again; empty if nobody was ever excluded."""
        choice, lists = self.settings.ids, [name for name in self.settings.readmitted if not self._is_table(name)]
        found = [pa.array([], pa.string())]
        if self.record:
            found += [read_ids(file, known, choice)[0] for file in lists]
            found += [match_known_ids(ids, known, choice, "corpus.readmitted") for ids in self._registers]
        return pa.concat_arrays(found)

    def _is_table(self, name: str) -> bool:
        """Whether a name means a database table, not a file."""
        return self.settings.is_database and not Path(name).is_file()


def _prefixes(digests: pa.ChunkedArray) -> np.ndarray:
    """Return the first eight bytes of each non-null digest as uint64."""
    return np.frombuffer(b"".join(each[:8] for each in digests.drop_null().to_pylist()), dtype=np.uint64)


def refuse_withdrawn(record: LeftOut, individuals: pa.ChunkedArray | pa.Array, choice: Ids, settled: pa.Array) -> None:
    """Raise `PolicyError`, with their number, if some of these individuals are recorded as withdrawn. Individuals in
    ``settled``, who are excluded now or have opted in again, are not counted."""
    names = individuals.unique()
    names = names.filter(pc.invert(pc.is_in(names, value_set=settled)))
    _refuse_return(int(record.has_individuals(names, choice).sum()) if record else 0)


def _refuse_return(num_returning: int) -> None:
    """Raise `PolicyError` if ``num_returning``, the number of withdrawn individuals who would come back, is not 0."""
    if num_returning:
        raise PolicyError(
            f"{num_returning:,} individual(s) whom an earlier reading left out as withdrawn would come back. Name them "
            f"again (corpus.withdrawn, corpus.opt_out, `reticent update --remove`); {_OPTED_IN}"
        )


def refuse_moved(moved_documents: Sequence[pa.Table]) -> None:
    """Raise `PolicyError` if there are documents that belonged to a withdrawn individual and now have the id of another
    one."""
    if count := sum(table.num_rows for table in moved_documents):
        people = len({owner for table in moved_documents for owner in table.column("individual_id").to_pylist()})
        raise PolicyError(
            f"{count:,} document(s) of individuals who withdrew now have the id of another individual ({people:,} of "
            "them), as when patients are merged; none is taken in without being asked. Add these ids to who withdrew "
            "(corpus.withdrawn, corpus.opt_out), or name them in corpus.readmitted"
        )
