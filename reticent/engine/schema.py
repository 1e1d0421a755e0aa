"""The interface between the layers: Arrow schemas, flag bits and the names of the splits.

Column names are fixed. Offsets of spans count characters (Unicode code points), end exclusive.
A stored table carries ``reticent.schema`` = ``<name>/<version>`` in its schema metadata.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Literal

import pyarrow as pa

from reticent.core.errors import CorpusError

#: Flag bit of a word or token that a detector found.
DIRECT: Final = 1
#: Flag bit of a word or token that n-gram support protects.
INDIRECT: Final = 2
#: What tells an indirect identifier: how many individuals use it; a public list; that list and a private vocabulary.
Words = Literal["counted", "public", "private"]
#: Label of a position that is not a target (the convention of torch's cross entropy).
IGNORE_INDEX: Final = -100
#: The greatest k, and the greatest support that pruning and protection distinguish.
MAX_K: Final = 255
#: Longest n-gram an index holds: the n of each n-gram that starts at a word is one bit of a byte.
MAX_N: Final = 8

MEMBERS: Final = "members"
HELDOUT: Final = "heldout"
REFERENCE: Final = "reference"
SPLITS: Final = (MEMBERS, HELDOUT, REFERENCE)

SPAN_TYPE: Final = pa.struct([("start", pa.int32()), ("end", pa.int32()), ("label", pa.string())])
#: A span that humans marked, with its other attributes: mentions of one entity share an ``entity_id``;
#: ``identifier_type`` is DIRECT, QUASI or NO_MASK. Null where a corpus does not say.
MENTION_TYPE: Final = pa.struct(
    [*SPAN_TYPE, *((name, pa.string()) for name in ("entity_id", "identifier_type", "annotator"))]
)


def with_version(schema: pa.Schema, name: str, version: int = 1) -> pa.Schema:
    """Return the Arrow schema with ``<name>/<version>`` added to its metadata."""
    return schema.with_metadata({**(schema.metadata or {}), b"reticent.schema": f"{name}/{version}".encode()})


#: One row a document, in the order of the corpus. Optional columns may be absent.
DOCUMENTS: Final = with_version(
    pa.schema(
        [
            pa.field("doc_id", pa.string(), nullable=False),
            pa.field("individual_id", pa.string(), nullable=False),
            pa.field("text", pa.large_string(), nullable=False),
            pa.field("household_id", pa.string()),
            pa.field("label", pa.string()),
            pa.field("spans", pa.list_(SPAN_TYPE)),
            pa.field("mentions", pa.list_(MENTION_TYPE)),
        ]
    ),
    "documents",
)

#: One row a span, ordered by ``document`` (row number of the document in its corpus), then ``start``.
SPANS: Final = with_version(
    pa.schema(
        [
            pa.field("document", pa.int64(), nullable=False),
            pa.field("doc_id", pa.string(), nullable=False),
            pa.field("start", pa.int32(), nullable=False),
            pa.field("end", pa.int32(), nullable=False),
            pa.field("label", pa.string(), nullable=False),
            pa.field("detector", pa.string(), nullable=False),
            pa.field("score", pa.float32(), nullable=False),
        ]
    ),
    "spans",
)

#: One row an individual, ordered by ``individual_id``; ``individual`` is that row number, and ``unit`` is the
#: code support is counted on (the household where there is one, else the individual).
INDIVIDUALS: Final = with_version(
    pa.schema(
        [
            pa.field("individual_id", pa.string(), nullable=False),
            pa.field("individual", pa.uint32(), nullable=False),
            pa.field("unit", pa.uint32(), nullable=False),
            pa.field("split", pa.dictionary(pa.int8(), pa.string()), nullable=False),
            pa.field("num_documents", pa.uint32(), nullable=False),
        ]
    ),
    "individuals",
)


def _numeric_schema(name: str, **columns: pa.DataType) -> pa.Schema:
    """Return the versioned schema of a table of non-null numeric columns."""
    fields = [pa.field(column, kind, nullable=False) for column, kind in columns.items()]
    return with_version(pa.schema(fields), name, 4)


#: Tables beside the ids of tokens (:mod:`reticent.engine.packed`). ``end`` counts the tokens up to and with a document;
#: ``token`` numbers the tokens of all documents.
ID_TABLES: Final = {
    "documents": _numeric_schema("token-documents", doc_id=pa.string(), end=pa.int64()),
    "exceptions": _numeric_schema("token-exceptions", token=pa.int64(), skipped=pa.uint32(), more=pa.uint32()),
}
#: Tables of a view: which documents it holds (``document`` is a row of the ids' documents, ascending), and where
#: minimal identifying n-grams start: ``token`` numbers the tokens of the view, ``lengths`` has bit n - 1 where an
#: n-gram of n words starts at a word whose first token this is.
VIEW_TABLES: Final = {
    "view": _numeric_schema("token-view", document=pa.int64(), individual=pa.uint32()),
    "ngram_starts": _numeric_schema("token-ngram-starts", token=pa.int64(), lengths=pa.uint8()),
}


#: Words of a view whose protection its tokens do not tell, where there are any: those without a token, and those whose
#: tokens all meet other words too. ``word`` numbers the words of the view's documents, ``flag`` is `INDIRECT` or 0.
UNTOLD: Final = _numeric_schema("token-untold", word=pa.int64(), flag=pa.uint8(), lengths=pa.uint8())


def type_name(kind: pa.DataType) -> str:
    """Return the name of an Arrow type without its parameters, such as "struct", as JSON field names in it may be
    private."""
    return str(kind).partition("<")[0]


def copy_alone(array: pa.Array) -> pa.Array:
    """Return a copy of an Arrow array that shares no buffer with its record batch, so that it does not keep the batch
    in memory.

    A column that came through Arrow's C interface keeps all columns of its batch in memory, the texts among them.
    """
    return pa.concat_arrays([array, array.slice(0, 0)])


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array; a copy only if it has several chunks."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def owned_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a copy of a record batch whose columns share no buffer with other columns; see `copy_alone`."""
    return pa.RecordBatch.from_arrays([copy_alone(column) for column in batch.columns], schema=batch.schema)


def with_place(error: CorpusError, describe_row: Callable[[int], str]) -> CorpusError:
    """Return the error with the document's file and row in its message in place of the document's number in the batch.
    ``describe_row`` turns that number into the text."""
    found = re.match(r"document (\d+) of the batch: ", str(error))
    return error if found is None else CorpusError(f"{describe_row(int(found[1]))}: {str(error)[found.end() :]}")


def no_token_message(num_words: int) -> str:
    """Return the error message for a document that has words but no token."""
    return (
        f"the tokenizer makes no token of its words ({num_words:,}), so it would be passed over in silence; use a "
        "tokenizer that has an unknown token or falls back to bytes, or leave the document out"
    )
