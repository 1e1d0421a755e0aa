"""Documents of any supported format, written as one Parquet file that only its owner can read."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa

from reticent.engine.corpus import Corpus, Documents, as_corpus
from reticent.engine.schema import DOCUMENTS
from reticent.engine.sources.parquet import document_writer

__all__ = ["write_documents"]


def write_documents(corpus: Corpus | Documents, path: Path | str, *, batch_rows: int = 4096) -> dict[str, int]:
    """Write a corpus with all the columns it has to a Parquet file (`DOCUMENTS`, zstd, mode 0600), whole or not at all.

    Returns
    -------
    dict
        The numbers of documents and spans, of repairs in marked-up files, and of documents left out without a text.

    Raises
    ------
    CorpusError
        As :meth:`Corpus.scan` and :meth:`Corpus.batches`: every document and mark is checked.

    Examples
    --------
    >>> write_documents(open_corpus("records/", format="i2b2-2014"), "records.parquet")  # doctest: +SKIP
    {'documents': 790, 'spans': 17410}
    """
    corpus = as_corpus(corpus)
    corpus.scan()
    path = Path(path)
    names = [name for name in DOCUMENTS.names if getattr(corpus.columns, name) is not None]
    schema = pa.schema([DOCUMENTS.field(name) for name in names], DOCUMENTS.metadata)
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    num_documents = num_spans = 0
    try:
        with (
            os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file,
            document_writer(file, schema) as writer,
        ):
            for batch in corpus.batches(columns=names, batch_rows=batch_rows):
                writer.write_batch(batch.cast(schema))
                num_documents += batch.num_rows
                num_spans += len(batch.column("spans").flatten()) if "spans" in names else 0
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return {"documents": num_documents, "spans": num_spans, **corpus.repaired, **corpus.reading.skipped()}
