"""Lake tables (Delta, Iceberg) as corpus sources, at one version or snapshot.

Delta: ``delta:///folder``, ``delta+s3://bucket/folder``. Iceberg: ``iceberg://CATALOGUE/namespace.table``; the
catalogue comes from pyiceberg's own configuration, which also holds the credentials.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa

from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.sources.columns import require_columns
from reticent.engine.sources.corpus_config import CorpusConfig
from reticent.engine.sources.table import shown

if TYPE_CHECKING:
    import pyarrow.dataset as ds


_NO_VECTORS: Final[dict[str, list[Any]]] = {"filepath": [], "selection_vector": []}
#: Features of tables that the library does not read, and that are read here.
_APPLIED: Final = ("deletionVectors", "columnMapping")
_ELSE: Final = "read it with Spark and give the data frame, or write the table anew without the mapping"
#: Parameter of an address -> option of the library.
OPTIONS: Final = {"region": "AWS_REGION", "endpoint_override": "AWS_ENDPOINT_URL"}


class _Lake:
    """Base class of lake sources: the table is opened once, and no file is kept open.

    Parameters
    ----------
    settings : the address, and perhaps ``version``
    scratch : not used
    """

    passed_over = 0

    def __init__(self, settings: CorpusConfig, scratch: Path):
        self._settings, self.name = settings, shown(str(settings.remote))
        self._table: Any = None

    def close(self) -> None:
        """Do nothing, as no file is kept open."""

    def _requested_version(self, expected: str) -> int | None:
        """Return the version number that the job names, None for the newest. Raise `PolicyError` if it is no number;
        the message says what is ``expected``.
        """
        wanted = self._settings.version
        if wanted is not None and not wanted.isdecimal():
            raise PolicyError(f"corpus.version: expected the {expected} of the {type(self).__name__[:-6]} table")
        return None if wanted is None else int(wanted)

    def _failure(self, error: Exception, description: str) -> CorpusError:
        """Return a `CorpusError` for a library's error, with ``description`` in place of the library's message."""
        return CorpusError(f"{self.name}: {description} ({type(error).__name__})")


@dataclass(frozen=True, slots=True)
class _Files:
    """Data files of a Delta table's version, each with a bool mask of undeleted rows if it has a deletion vector.

    Attributes
    ----------
    names : of the table's columns
    columns : name in the table -> field of the files, of those that can be read
    """

    names: list[str]
    columns: dict[str, pa.Field]
    fragments: list[tuple[ds.ParquetFileFragment, pa.Array | None]]


def _physical_fields(table: Any, columns: Mapping[str, pa.Field]) -> dict[str, pa.Field]:
    """Return table column -> Arrow field under its physical name in the data files (Delta column mapping). Partition
    and nested columns are left out.
    """
    names = {field.name: field.metadata.get("delta.columnMapping.physicalName") for field in table.schema().fields}
    apart = {*table.metadata().partition_columns}
    return {
        name: field.with_name(names[name])
        for name, field in columns.items()
        if names[name] and name not in apart and not pa.types.is_nested(field.type)
    }


class DeltaSource(_Lake):
    """The rows of a Delta table at one version, by default the newest; a `RemoteSource`."""

    def __init__(self, settings: CorpusConfig, scratch: Path):
        super().__init__(settings, scratch)
        self._opening = Lock()
        self._files: _Files | None = None

    def version(self) -> bytes:
        """Return the version of the table that is read, as bytes."""
        return f"version {self._open().version()}".encode()

    def batches(
        self, columns: Sequence[str], *, part: int = 0, parts: int = 1, batch_rows: int = 1024
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows in a part of the table's files as record batches of these columns."""
        with self._opening:  # parts are read by several threads
            self._files = self._files or self._list_files()
        files = self._files
        require_columns(files.names, columns, self.name)
        if missing := [name for name in columns if name not in files.columns]:
            raise CorpusError(
                f"{self.name} column {missing[0]}: the table's columns are mapped, and of those only plain ones that "
                f"its files have are read; {_ELSE}"
            )
        fields = [files.columns[name] for name in columns]
        share = files.fragments[part * len(files.fragments) // parts : (part + 1) * len(files.fragments) // parts]
        try:
            for fragment, kept in share:
                batches = fragment.to_batches(
                    schema=pa.schema(fields),
                    columns=[field.name for field in fields],
                    batch_size=batch_rows,
                    batch_readahead=1,
                    fragment_readahead=1,
                    use_threads=False,
                )
                for batch in _without_deleted(batches, kept):
                    yield batch.rename_columns(list(columns))
        except (OSError, pa.ArrowException) as error:
            raise self._failure(error, "a file of this version cannot be read") from None

    def _list_files(self) -> _Files:
        """Return the data files of the table's version, with physical column names and deletion vectors."""
        table = self._open()
        mode = table.metadata().configuration.get("delta.columnMapping.mode", "none")
        if mode not in ("none", "name"):  # by ids of fields, which pyarrow does not look at
            raise CorpusError(
                f"{self.name}: its columns are mapped by number (delta.columnMapping.mode = {mode}); {_ELSE}"
            )
        protocol = table.protocol()
        try:
            features = [name for name in protocol.reader_features or () if name not in _APPLIED]
            table.protocol = lambda: protocol._replace(reader_features=features)
            dataset = table.to_pyarrow_dataset()
            has_vectors = "deletionVectors" in (protocol.reader_features or ())
            vectors = pa.table(table.deletion_vectors()).to_pydict() if has_vectors else _NO_VECTORS
        except Exception as error:
            raise self._failure(error, "cannot be read; it may use a feature of Delta that the library lacks") from None
        finally:
            del table.protocol
        fragments = {unquote(fragment.path): fragment for fragment in dataset.get_fragments()}
        kept: dict[str, pa.Array] = {}
        for place, rows in zip(vectors["filepath"], vectors["selection_vector"], strict=True):
            below = unquote(place).split("/")
            found = next(filter(fragments.__contains__, ("/".join(below[i:]) for i in range(len(below)))), None)
            if found is None:
                raise CorpusError(f"{self.name}: a deletion vector is of no file of this version")
            kept[found] = pa.array(rows, pa.bool_())
        columns = {field.name: field for field in dataset.schema}
        if mode == "name":
            columns = _physical_fields(table, columns)
            # The library's own fragments know values of columns by the names that files give to others.
            make = dataset.format.make_fragment
            fragments = {name: make(each.path, dataset.filesystem) for name, each in fragments.items()}
        listed = [(fragments[name], kept.get(name)) for name in sorted(fragments)]
        return _Files(dataset.schema.names, columns, listed)

    def _open(self) -> Any:
        """Return the Delta table at the requested version, opened at the first call."""
        if self._table is None:
            try:
                from deltalake import DeltaTable
            except ImportError:
                raise PolicyError("corpus.source: Delta needs a library; pip install 'reticent[lake]'") from None
            wanted = self._requested_version("number of a version")
            address, options = _split_address(str(self._settings.remote))
            try:
                self._table = DeltaTable(address, version=wanted, storage_options=options)
            except Exception as error:
                said = "no Delta table there" if wanted is None else f"version {wanted} is not there"
                raise self._failure(error, said) from None
        return self._table


def _without_deleted(batches: Iterator[pa.RecordBatch], kept: pa.Array | None) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of a data file without deleted rows, those that are False in ``kept`` (from the file's
    deletion vector; None: no row is deleted).
    """
    row = 0
    for batch in batches:
        if kept is None:
            yield batch
            continue
        mask = kept.slice(row, batch.num_rows)
        row += batch.num_rows
        yield batch.filter(pa.concat_arrays([mask, pa.array([True] * (batch.num_rows - len(mask)), pa.bool_())]))


def _split_address(address: str) -> tuple[str, dict[str, str] | None]:
    """Return a Delta address as the library takes it, and its storage options (None without any)."""
    parts = urlsplit(address)
    scheme = parts.scheme.removeprefix("delta").removeprefix("+")
    if not scheme:
        return parts.path, None
    given = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    options = {OPTIONS[name]: value for name, value in given.items() if name in OPTIONS}
    if given.get("scheme") == "http":
        options["AWS_ALLOW_HTTP"] = "true"
    if "AWS_ENDPOINT_URL" in options and "://" not in options["AWS_ENDPOINT_URL"]:
        options["AWS_ENDPOINT_URL"] = f"{given.get('scheme', 'https')}://{options['AWS_ENDPOINT_URL']}"
    return f"{scheme}://{parts.netloc}{parts.path}", options or None


class IcebergSource(_Lake):
    """The rows of an Iceberg table at one snapshot, by default the current one; a `RemoteSource`."""

    _snapshot = 0

    def version(self) -> bytes:
        """Return the id of the snapshot that is read, as bytes."""
        self._open()
        return f"snapshot {self._snapshot}".encode()

    def batches(
        self, columns: Sequence[str], *, part: int = 0, parts: int = 1, batch_rows: int = 1024
    ) -> Iterator[pa.RecordBatch]:
        """Yield all rows of the snapshot as record batches of these columns in part 0; other parts are empty."""
        if part:
            return
        table = self._open()
        try:
            schema = self._scan(table).projection()
            uuids = [column.name for column in schema.fields if str(column.field_type) == "uuid"]
        except Exception as error:
            raise self._failure(error, "cannot be read") from None
        require_columns([column.name for column in schema.fields], columns, self.name)
        for batch in self._rows(table, columns):
            for start in range(0, batch.num_rows, batch_rows):
                chosen = batch.slice(start, batch_rows).select(list(columns))
                yield pa.record_batch(
                    [
                        column.cast(pa.binary(16)).cast(pa.uuid()) if name in uuids else column
                        for name, column in zip(columns, chosen.columns, strict=True)
                    ],
                    names=list(columns),
                )

    def _scan(self, table: Any, **options: Any) -> Any:
        """Return the library's scan of the requested snapshot, or of the current one if the job names none."""
        snapshot = {} if self._settings.version is None else {"snapshot_id": self._snapshot}
        return table.scan(**snapshot, **options)

    def _rows(self, table: Any, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the snapshot as record batches of these columns."""
        try:
            yield from self._scan(table, selected_fields=tuple(columns)).to_arrow_batch_reader()
        except Exception as error:
            raise self._failure(error, "a file of this snapshot cannot be read") from None

    def _open(self) -> Any:
        """Return the Iceberg table, opened at the first call, and set the snapshot to read."""
        if self._table is None:
            try:
                from pyiceberg.catalog import load_catalog
            except ImportError:
                raise PolicyError("corpus.source: Iceberg needs a library; pip install 'reticent[lake]'") from None
            wanted = self._requested_version("id of a snapshot")
            catalogue, _, name = str(self._settings.remote).partition("://")[2].partition("/")
            try:
                table = load_catalog(catalogue).load_table(name)
                found = table.current_snapshot() if wanted is None else table.snapshot_by_id(wanted)
            except Exception as error:
                raise self._failure(error, "cannot be opened") from None
            if found is None:
                raise CorpusError(
                    f"{self.name}: {'no snapshot' if wanted is None else f'snapshot {wanted} is not there'}"
                )
            self._table, self._snapshot = table, found.snapshot_id
        return self._table
