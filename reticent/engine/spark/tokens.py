"""Protected tokens on Spark: every part tokenises its documents; the driver writes them in the order of documents.

The folder is the one that `write_tokens` writes on one machine, byte for byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from reticent.core.errors import CorpusError
from reticent.engine.protect import Policy
from reticent.engine.schema import no_token
from reticent.engine.spark.exchange import Answers, decoded, encoded, kept, one_each
from reticent.engine.spark.ordered import in_order
from reticent.engine.spark.protection import NONE, Protection, _second, count_flags, protected_parts, summed
from reticent.engine.spark.spans import SparkSpans
from reticent.engine.store_writer import StoreWriter

if TYPE_CHECKING:
    from reticent import _rust
    from reticent.engine.spark.documents import SparkDocuments
    from reticent.engine.spark.index import SparkIndex

__all__ = ["write_tokens"]

#: Bits of a token on its way to the driver.
BITS: Final = ("begins", "outside", "direct", "indirect")
#: Tokens and tables of tokens by document. Tokens count from the first of their document.
_PACKED: Final = pa.schema(
    [
        pa.field("number", pa.int64()),
        pa.field("doc_id", pa.string()),
        pa.field("individual", pa.uint32()),
        pa.field("ids", pa.large_list(pa.uint32())),
        pa.field("bits", pa.large_list(pa.uint8())),
        pa.field("exceptions", pa.large_list(pa.int64())),
        pa.field("skipped", pa.large_list(pa.uint32())),
        pa.field("more", pa.large_list(pa.uint32())),
        pa.field("ngram_tokens", pa.large_list(pa.int64())),
        pa.field("ngram_lengths", pa.large_list(pa.uint8())),
    ]
)


def write_tokens(
    folder: Path | str,
    documents: SparkDocuments,
    tokenizer_json: str,
    *,
    index: SparkIndex | None = None,
    spans: SparkSpans | None = None,
    policy: Policy | None = None,
    splits: tuple[str, ...] | None = None,
) -> dict[str, Any]:
    """Write the protected tokens of the documents of these splits (None: all); as `reticent.write_tokens`.

    Returns the same counts, and raises the same errors. Cost: tokens are moved once, and the driver writes all of
    them, some documents at a time.
    """
    from reticent import _rust

    folder = Path(folder)
    encoder = _rust.TokenEncoder(tokenizer_json, num_threads=1)
    parts, how, listed = protected_parts(documents, index, spans, policy or Policy(), splits)
    packed = kept(one_each(parts, _Pack(how, tokenizer_json)))
    counts = summed(packed, listed, splits)
    with StoreWriter(folder, encoder.vocab_size) as writer:
        for table in in_order(packed.map(_second), "number", documents.num_documents):
            writer.write(*_as_written(table, encoder.vocab_size))
        num_tokens = writer.num_tokens
    packed.unpersist()
    (folder / "tokenizer.json").write_text(tokenizer_json, encoding="utf-8")
    return {"documents": counts.pop("documents"), "tokens": num_tokens, **counts, "pretokens": encoder.path}


#: The encoder of this process, by its tokenizer.
_ENCODERS: dict[str, _rust.TokenEncoder] = {}


@dataclass(frozen=True, slots=True)
class _Pack:
    how: Protection
    tokenizer_json: str

    def __call__(
        self, data: bytes, index: bytes, spans: bytes, answers: dict[str, Answers]
    ) -> tuple[dict[str, int], bytes]:
        from reticent import _rust

        counts = dict(NONE)
        if not data:
            return counts, b""
        if self.tokenizer_json not in _ENCODERS:
            _ENCODERS.clear()
            _ENCODERS[self.tokenizer_json] = _rust.TokenEncoder(self.tokenizer_json, num_threads=1)
        encoder, table, batches = _ENCODERS[self.tokenizer_json], decoded(data), []
        numbers, individuals = (table.column(name).to_numpy() for name in ("number", "individual"))
        for part, words, flags, starts, gaps in self.how.flagged(data, index, spans, answers):
            tokens = encoder.pack(part.texts, words, flags, starts, gaps=gaps)
            num_words = np.diff(words.doc_offsets)
            passed_over = np.flatnonzero((num_words > 0) & (np.diff(tokens.doc_offsets) == 0))
            if len(passed_over):
                raise CorpusError(f"a document of a part: {no_token(int(num_words[passed_over[0]]))}")
            count_flags(counts, flags)
            counts["documents"] += len(part.doc_ids)
            rows = part.first + np.flatnonzero(part.keep)
            batches.append(_by_document(tokens, numbers[rows], part.doc_ids, individuals[rows]))
        return counts, encoded(pa.concat_tables(batches).combine_chunks()) if batches else b""


def _by_document(
    tokens: _rust.PackedTokens, numbers: np.ndarray, doc_ids: pa.Array, individuals: np.ndarray
) -> pa.Table:
    """Packed tokens of a batch as lists of each document."""
    offsets = np.asarray(tokens.doc_offsets)
    num_tokens = int(offsets[-1])
    ids = tokens.ids.astype(np.uint32)
    if len(tokens.high):
        ids |= tokens.high.astype(np.uint32) << 16
    bits = np.zeros(num_tokens, dtype=np.uint8)
    for place, name in enumerate(BITS):
        own = np.unpackbits(getattr(tokens, name), count=num_tokens, bitorder="little")
        bits |= own << np.uint8(place)
    columns: list[Any] = [numbers, doc_ids.cast(pa.string()), individuals.astype(np.uint32)]
    columns += [_lists(ids, offsets), _lists(bits, offsets)]
    for places, others in (
        (tokens.exceptions, (tokens.skipped, tokens.more)),
        (tokens.ngram_tokens, (tokens.ngram_lengths,)),
    ):
        bounds = np.searchsorted(places, offsets)
        columns.append(_lists(places - np.repeat(offsets[:-1], np.diff(bounds)), bounds))
        columns += [_lists(other, bounds) for other in others]
    return pa.table([pa.array(column) for column in columns], schema=_PACKED)


def _lists(values: np.ndarray, bounds: np.ndarray) -> pa.Array:
    return pa.LargeListArray.from_arrays(pa.array(bounds.astype(np.int64)), pa.array(values))


def _as_written(table: pa.Table, vocab_size: int) -> tuple[pa.Array, np.ndarray, Any]:
    """The documents of a table as `StoreWriter.write` takes them."""
    columns: dict[str, Any] = {name: table.column(name).combine_chunks() for name in _PACKED.names}
    flat = {name: columns[name].flatten().to_numpy() for name in _PACKED.names[3:]}
    bounds = {name: columns[name].offsets.to_numpy() - columns[name].offsets[0].as_py() for name in _PACKED.names[3:]}
    offsets = bounds["ids"]
    bits = [np.packbits(flat["bits"] >> place & 1, bitorder="little") for place in range(len(BITS))]
    packed = SimpleNamespace(
        doc_offsets=offsets,
        ids=(flat["ids"] & 0xFFFF).astype(np.uint16),
        high=(flat["ids"] >> 16).astype(np.uint8) if vocab_size > 1 << 16 else np.empty(0, np.uint8),
        **dict(zip(BITS, bits, strict=True)),
        skipped=flat["skipped"],
        more=flat["more"],
        ngram_lengths=flat["ngram_lengths"],
        **{
            name: flat[name] + np.repeat(offsets[:-1], np.diff(bounds[name])) for name in ("exceptions", "ngram_tokens")
        },
    )
    return columns["doc_id"], columns["individual"].to_numpy(), packed
