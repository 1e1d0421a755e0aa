"""Deduplication: documents that repeat others, the amount of copied text, and its effect on protection.

Copies within one individual's documents are repetitions that a model memorises. Copies between individuals raise
support, so an n-gram of one individual seems to belong to two. Both are counted separately. By default, later stages
leave out only later copies of the same individual, because no rule decides which of two individuals should keep a
shared text.

Exact: texts that are equal in NFC with every run of white space as one space (compared by a 128-bit hash of the text
and by every word). Near: the Jaccard similarity of the sets of word shingles reaches the threshold; MinHash finds
candidates, and each is compared in full, so no pair is reported wrongly and few are missed. Passages: runs of words
that two documents share, all found, compared word for word. Memory: 8 bytes a word, 16 more while passages are counted;
some 42 at the peak.

MinHash is our own implementation. In `python -m benchmarks.dedup` it finds all true pairs (recall 1.0) and takes 0.5
processor seconds for 20,000 documents; datasketch finds 0.82 of them and takes 7.6 seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from reticent import _rust
from reticent.core.errors import ArtifactError
from reticent.engine.config import DedupConfig
from reticent.engine.corpus import as_corpus
from reticent.engine.sources.columns import sorted_codes

if TYPE_CHECKING:
    from reticent._rust import Copies
    from reticent.engine.corpus import Corpus, Documents

#: One row a document that is left out (secret: it holds ids). Rows are of the corpus as it was given.
LEFT_OUT = pa.schema(
    [
        pa.field("row", pa.int64(), nullable=False),
        pa.field("doc_id", pa.string(), nullable=False),
        pa.field("kept_row", pa.int64(), nullable=False),
        pa.field("kept_doc_id", pa.string(), nullable=False),
    ]
)
NOT_A_COPY = np.uint32(2**32 - 1)


@dataclass(frozen=True, slots=True)
class Deduplication:
    """Counts of copied documents, and a table of the documents to leave out (schema `LEFT_OUT`)."""

    counts: dict[str, Any]
    left_out: pa.Table


def find_copies(
    corpus: Corpus | Documents, config: DedupConfig | None = None, *, progress: Callable[[int], None] | None = None
) -> Deduplication:
    """Return counts of exact and near-duplicate documents, and the row numbers of the documents to leave out, each with
    that of the document it repeats.

    Counts, with shares of all words: for "exact" and "near" each, ``within`` (documents that repeat an earlier one of
    their individual, and groups of them) and ``across`` (documents in clusters that several individuals share, and
    clusters); ``passages``, words in passages that stand in another document of the individual, and in one of another
    individual; ``support``, distinct words whose support (of individuals, or households where there are any) is at
    least k and would not be if the documents of a cluster all were its first document's individual's.

    Raises
    ------
    CorpusError
        As :meth:`Corpus.for_each_batch`.

    Cost: one pass over the text; another one where individuals share documents.
    """

    corpus = as_corpus(corpus)

    config = config or DedupConfig()
    num_threads = _rust.resolve_threads(config.num_threads)
    collector = _rust.CopyCollector()

    def add(first: int, batch: pa.RecordBatch) -> None:
        """Pass the texts of a record batch, whose first document has row number ``first``, to the Rust object that
        searches for duplicates."""
        collector.add(first, batch.column("text"))
        if progress:
            progress(first + batch.num_rows)

    corpus.for_each_batch(add, columns=("text",), num_threads=num_threads)
    copies = collector.finish(num_threads=config.num_threads)
    owners = sorted_codes(corpus.scan().column("individual_id"))[1]
    words = copies.num_words.astype(np.int64)
    exact = copies.first_equal
    cluster, near_copy = copies.near(owners, threshold=config.threshold, shingle=config.shingle_words)
    exact_copy = _first_in_group(exact, owners)
    counts: dict[str, Any] = {
        "documents": corpus.num_documents,
        "individuals": int(owners.max()) + 1,
        "words": int(words.sum()),
        "exact": {
            "within": _count_copies_within(exact_copy, words),
            "across": _count_copies_across(exact, owners, words),
        },
        "near": {
            "within": _count_copies_within(near_copy, words),
            "across": _count_copies_across(cluster, owners, words),
        },
        "passages": _count_passages(copies, owners, words, config.passage_words),
        "support": _count_lifted_words(corpus, cluster, owners, config),
    }
    copy_of = _find_documents_to_drop(copies, exact_copy, near_copy, config)
    left_out = np.flatnonzero(copy_of != NOT_A_COPY)
    stay = np.delete(owners, left_out)
    counts["left_out"] = {
        "documents": len(left_out),
        "individuals": counts["individuals"] - len(np.unique(stay)),
        "words_share": _share_of_words(words[left_out], words),
    }
    return Deduplication(counts, _left_out_table(corpus, left_out, copy_of[left_out]))


def write_left_out(left_out: pa.Table, folder: Path | str) -> None:
    """Write the table of duplicate documents to leave out to ``left_out.parquet`` (secret)."""
    pq.write_table(left_out, Path(folder) / "left_out.parquet", compression="zstd")


def read_left_out(path: Path | str) -> np.ndarray:
    """Return the row numbers (int64) of the duplicate documents that a stored deduplication leaves out."""
    file = Path(path) / "left_out.parquet"
    try:
        return pq.read_table(file).cast(LEFT_OUT).column("row").to_numpy()
    except (OSError, ValueError, pa.ArrowException) as error:
        raise ArtifactError(f"{file}: not a readable deduplication ({type(error).__name__})") from None


def _household_codes(corpus: Corpus, owners: np.ndarray) -> np.ndarray:
    """Return the household code of each document, uint32; a document without a household gets a code of its
    individual."""
    if "household_id" not in corpus.scan().column_names:
        return owners
    encoded = corpus.scan().column("household_id").combine_chunks().dictionary_encode()
    codes = encoded.indices.fill_null(0).to_numpy()
    return np.where(encoded.is_valid(), codes, len(encoded.dictionary) + owners).astype(np.uint32)


def _first_in_group(group_of_document: np.ndarray, owner_of_document: np.ndarray) -> np.ndarray:
    """Return for each document the row number, uint32, of the first document with the same owner and the same group
    code; `NOT_A_COPY` for that first document itself."""
    _, first, inverse = np.unique(
        owner_of_document.astype(np.uint64) << np.uint64(32) | group_of_document, return_index=True, return_inverse=True
    )
    copy_of = first[inverse].astype(np.uint32)
    copy_of[first] = NOT_A_COPY
    return copy_of


def _share_of_words(num_words: np.ndarray, num_words_of_all: np.ndarray) -> float:
    """Return the sum of the first array of word counts as a share of the sum of the second; 0 if that is 0."""
    return float(num_words.sum() / total) if (total := num_words_of_all.sum()) else 0.0


def _count_copies_within(copy_of: np.ndarray, num_words: np.ndarray) -> dict[str, Any]:
    """Return the number of documents that repeat another one of their individual, the number of groups of such copies,
    and the copies' share of all words. ``num_words`` is the word count of each document."""
    copies = copy_of != NOT_A_COPY
    groups = len(np.unique(copy_of[copies]))
    return {
        "documents": int(copies.sum()),
        "clusters": groups,
        "words_share": _share_of_words(num_words[copies], num_words),
    }


def _is_in_shared_cluster(cluster_of_document: np.ndarray, owner_of_document: np.ndarray) -> np.ndarray:
    """Return for each document whether its cluster of duplicates has documents of more than one owner, bool
    (num_documents,)."""
    other = np.zeros(len(cluster_of_document), dtype=bool)
    other[cluster_of_document[owner_of_document != owner_of_document[cluster_of_document]]] = True
    return other[cluster_of_document]


def _count_copies_across(cluster: np.ndarray, owners: np.ndarray, num_words: np.ndarray) -> dict[str, Any]:
    """Return the number of documents in duplicate clusters that span several individuals, the number of these clusters,
    and the documents' share of all words. ``num_words`` is the word count of each document."""
    shared = _is_in_shared_cluster(cluster, owners)
    clusters = len(np.unique(cluster[shared]))
    return {
        "documents": int(shared.sum()),
        "clusters": clusters,
        "words_share": _share_of_words(num_words[shared], num_words),
    }


def _count_passages(
    copies: Copies, owners: np.ndarray, words_of_documents: np.ndarray, min_words: int
) -> dict[str, Any]:
    """Count documents with a passage of ``min_words`` words or more that another document repeats. Return the count and
    the share of words in such passages, once for repeats within an individual and once for repeats across
    individuals."""
    within, across = copies.passages(owners, num_words=min_words)
    return {
        "min_words": min_words,
        "within": {"documents": int((within > 0).sum()), "words_share": _share_of_words(within, words_of_documents)},
        "across": {"documents": int((across > 0).sum()), "words_share": _share_of_words(across, words_of_documents)},
    }


def _count_lifted_words(
    corpus: Corpus, cluster_of_document: np.ndarray, owners: np.ndarray, config: DedupConfig
) -> dict[str, Any]:
    """Count the words that reach k users (individuals or households) only through copied documents: with fewer than k
    if all copies count for one individual. Return their number and their share of all word occurrences."""

    found = {"k": config.k, "lifted_words": 0, "lifted_share": 0.0}
    shared = _is_in_shared_cluster(cluster_of_document, owners)
    if not shared.any():
        return found
    units = _household_codes(corpus, owners)
    once = np.where(shared, units[cluster_of_document], units)
    num_threads = _rust.resolve_threads(config.num_threads)
    builders = [_rust.IndexBuilder(surface=config.surface, num_threads=config.num_threads) for _ in range(2)]

    def add(first: int, batch: pa.RecordBatch) -> None:
        """Add the texts of a record batch to two word counts: one for the documents' own individuals or households, and
        one in which all copies of a document count for the same one."""
        for builder, numbers in zip(builders, (units, once), strict=True):
            builder.add(batch.column("text"), numbers[first : first + batch.num_rows])

    corpus.for_each_batch(add, columns=("text",), num_threads=num_threads)
    as_is, counted_once = (pa.record_batch(builder.finish(min_support=1).words()) for builder in builders)
    lifted = (as_is.column("support").to_numpy() >= config.k) & (counted_once.column("support").to_numpy() < config.k)
    occurrences = as_is.column("occurrences").to_numpy().astype(np.int64)
    return {
        **found,
        "lifted_words": int(lifted.sum()),
        "lifted_share": _share_of_words(occurrences[lifted], occurrences),
    }


def _find_documents_to_drop(
    copies: Copies, exact_copy: np.ndarray, near_copy: np.ndarray, config: DedupConfig
) -> np.ndarray:
    """Return for each document to leave out the row number of the document it repeats, `NOT_A_COPY` for all others;
    uint32 (num_documents,). ``exact_copy`` and ``near_copy`` have the same for copies within one individual."""
    if config.mode == "off":
        return np.full(len(exact_copy), NOT_A_COPY)
    if config.scope == "individual":
        return exact_copy if config.mode == "exact" else near_copy
    one_owner = np.zeros(len(exact_copy), dtype=np.uint32)
    if config.mode == "exact":
        return _first_in_group(copies.first_equal, one_owner)
    return copies.near(one_owner, threshold=config.threshold, shingle=config.shingle_words)[1]


def _left_out_table(corpus: Corpus, dropped: np.ndarray, kept: np.ndarray) -> pa.Table:
    """Return the table of duplicates: row number and id of each document in ``dropped`` (to leave out), and of its
    counterpart in ``kept``."""
    doc_ids = corpus.scan().column("doc_id")
    kept = kept.astype(np.int64)
    columns = [pa.array(dropped), doc_ids.take(pa.array(dropped)), pa.array(kept), doc_ids.take(pa.array(kept))]
    return pa.table(columns, schema=LEFT_OUT)
