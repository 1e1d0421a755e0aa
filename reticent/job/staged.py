"""The source of a job's documents: local files, or the artefact ``corpus``, a copy in the run folder of a database, an
object store or a lake.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from reticent.core.artifact import require_kind
from reticent.core.errors import ArtifactError
from reticent.engine.sources.config import Columns, CsvDialect
from reticent.engine.sources.corpus_config import CorpusConfig
from reticent.engine.sources.staged import staged_files
from reticent.engine.sources.table import row_of, shown
from reticent.job.artefact import Artefact
from reticent.job.config import Job

#: Name of the artefact.
NAME = "corpus"


def corpus_artefact(job: Job) -> Artefact:
    """Return the artefact ``corpus``, the local copy of a remote source; its settings hold the address without user and
    parameters, the query's digest, and the columns."""
    settings, address = job.corpus, str(job.corpus.remote)
    kept: dict[str, Any] = {"source": shown(address), "address": _sha256(address)}
    kept |= {name: getattr(settings, name) for name in ("table", "preset", "version")}
    since = {"opt_out": None, "row_security": "stop", "readmitted": (), "time_zone": None}  # settings that came later
    kept |= {name: value for name, old in since.items() if (value := getattr(settings, name)) != old}
    if settings.opt_out is not None and settings.ids == "exact":  # by which fewer of its ids are individuals
        kept["ids"] = "exact"
    kept["query"] = None if settings.query is None else _sha256(settings.query)
    kept |= {"columns": settings.only(Columns).model_dump(), "more": more_columns(job)}
    if row_of(address).kind == "store":
        kept |= {"format": settings.format, **settings.only(CsvDialect).model_dump()}
    if row_of(address).kind == "export":
        kept |= {"individual": settings.individual, "individuals": settings.individuals}
    return Artefact(NAME, "corpus", kept, {})


def more_columns(job: Job) -> list[str]:
    """Return the sorted names of the source's additional columns that later stages read."""
    columns = [str(column) for column in job.detect.of("records").get("columns", {}).values()]
    label = job.classify.label if job.classify is not None else None
    ladder = job.audit.diagnoses
    if ladder is not None and ladder.records is None:
        columns += ladder.columns
    heads = job.audit.heads
    if heads is not None and heads.records is None:
        columns += heads.attributes
    return sorted({*columns, *([label] if label else [])})


def _sha256(text: str) -> str:
    """Return the SHA-256 of a text in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def staged_job(job: Job) -> Job:
    """Return a job whose documents are local files: its own, or the copy in the run folder.

    Raises
    ------
    ArtifactError
        They have not been read into the run folder, or others were.
    """
    return job if job.corpus.remote is None else job.model_copy(update={"corpus": _local_copy_config(job)})


def _local_copy_config(job: Job) -> CorpusConfig:
    """Return corpus settings that read the copy of a remote source in the run folder. Raise `ArtifactError` if there is
    no copy, or if it was read from another source, query or columns.
    """
    folder, settings = Path(job.out) / NAME, job.corpus
    if not folder.exists():
        raise ArtifactError(
            f"{folder}: the documents of a database, an object store or a lake are read once into a run folder; "
            "start with `reticent index` or `reticent run`, and give that run folder to other commands"
        )
    kept, wanted = require_kind(folder, "corpus").config, corpus_artefact(job).settings
    if any(kept.get(name) != value for name, value in wanted.items() if name != "more"):  # a missing column is named
        raise ArtifactError(
            f"{folder}: read from another source, or with another query or other columns; `reticent run` reads it again"
        )
    return CorpusConfig(
        source=tuple(map(str, staged_files(folder))),
        ids=settings.ids,
        real_ids=settings.real_ids,
        withdrawn=settings.withdrawn,
        readmitted=tuple(name for name in settings.readmitted if Path(name).is_file()),  # a table was read with them
        on_null=settings.on_null,
        **settings.only(Columns).model_dump(),
    )
