"""Statistics of a corpus and its identifiers: counts and distributions that name no word and no individual.

They are the numbers of Figs. 5, 6 and 14 of [@boutet2025] (identifiers and words per individual, individuals per word,
identifiers by n), the margin of support at k, retention by policy, and the unicity of shared words. They need
documents, an index and, for direct identifiers, spans. They need no tokenizer and no model.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from reticent.core.errors import CorpusError
from reticent.engine.corpus import Corpus, Documents, as_corpus
from reticent.engine.detect.spans import SpanReader
from reticent.engine.flagged_words import FlaggedWords
from reticent.engine.graph import WordIds, WordStream, count_distinct, ngram_supports, unicity
from reticent.engine.kernels import protected_words
from reticent.engine.ngrams import NgramIndex
from reticent.engine.protect import POLICIES, Policy
from reticent.engine.schema import DIRECT, INDIRECT, MAX_K, MEMBERS
from reticent.engine.split import Individuals

#: Largest set of shared words, and how many individuals sets are drawn from.
MAX_M, NUM_SAMPLES = 10, 2000
#: Supports shown from k: so far below the line and so far above it.
BELOW, ABOVE = 2, 5
#: Marks of an n-gram: bits of the marks that `count_distinct` takes.
ALL, MINIMAL, ALONE, DIRECT_WORD, INDIRECT_WORD, EITHER_WORD = range(6)


def cdf(values: np.ndarray, weights: np.ndarray | None = None, *, max_points: int = 200) -> dict[str, list[float]]:
    """Return the empirical cumulative distribution of ``values``, optionally weighted, as lists x and y of at most
    ``max_points`` points.

    >>> cdf(np.array([1, 1, 2, 4]))
    {'x': [1.0, 2.0, 4.0], 'y': [0.5, 0.75, 1.0]}
    """
    if len(values) == 0:
        return {"x": [], "y": []}
    x, inverse = np.unique(values, return_inverse=True)
    mass = np.bincount(inverse.reshape(-1), weights=weights, minlength=len(x))
    y = np.cumsum(mass) / mass.sum()
    if len(x) > max_points:
        # Even in probability, so that the steep part keeps its points.
        wanted = np.linspace(0, 1, max_points)
        keep = np.unique(np.concatenate([[0], np.searchsorted(y, wanted).clip(0, len(x) - 1), [len(x) - 1]]))
        x, y = x[keep], y[keep]
    return {"x": [float(v) for v in x], "y": [round(float(v), 6) for v in y]}


def corpus_statistics(
    corpus: Corpus | Documents,
    individuals: Individuals,
    index: NgramIndex,
    *,
    policy: Policy,
    spans: SpanReader | None = None,
    splits: tuple[str, ...] = (MEMBERS,),
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
    num_threads: int = 0,
) -> dict[str, Any]:
    """Return the section "corpus" of the report: counts, shares and cumulative distributions of words and identifiers
    in these splits.

    Parameters
    ----------
    index : of the documents of ``splits``
    policy : the rule of protection; ``k`` is the line, and n-grams are looked at up to the index's ``max_n``
    spans : direct identifiers; without them no word is direct
    seed : of the sets of shared words that are drawn

    Returns
    -------
    dict
        Words are distinct by the index's surface. Individuals are those with a document; the index may count
        households, and then ``unit`` says so and unicity is theirs.

        ``share_unspaced``: share of the words that are one letter of a script without spaces.
        ``identifiers_by_n``: a row for each n, with ``all`` identifying n-grams and the ``minimal`` ones: distinct,
        occurrences, occurrences that hold a direct word, distinct ones per individual (CDF); and the n-grams that are
        ``kept``. ``identifying_words``: direct, indirect and both (either), distinct and occurrences, by support alone.
        ``margin``: rows of n, support, distinct, occurrences: n-grams with exactly this support, near k.
        ``retention_by_policy``: rows of policy, n, k, retention: the share of words that indirect protection alone
        leaves as targets. ``unicity``: rows of m, num_units, num_singled_out: of so many random m-sets of shared words
        (support >= k), each of another unit, how many no other unit has.

    Raises
    ------
    CorpusError
        The documents hold no word, or others than the index does.

    Cost: one pass over the text (two with spans); 5 bytes a word for the stream and 5 more for each n.
    """

    corpus = as_corpus(corpus)
    stream, flags = _read_words(corpus, individuals, index, policy, spans, splits, num_threads, progress)
    table = pa.record_batch(index.words())
    _check_words(len(flags), index)
    support, occurrences = table.column("support").to_numpy(), table.column("occurrences").to_numpy()
    identifying, k = support < policy.k, policy.k
    supports = ngram_supports(stream, index, index.max_n)
    marks = _mark_bits(supports, flags, k)
    of_stream, of_individual = np.unique(stream.individual, return_inverse=True)
    per_individual = count_distinct(stream, of_individual, len(of_stream), marks)
    units, of_unit = np.unique(stream.unit, return_inverse=True)
    households = len(units) < len(of_stream)
    per_unit = count_distinct(stream, of_unit, len(units), marks) if households else per_individual
    shares = {"direct": flags & DIRECT, "indirect": flags & INDIRECT, "both": flags}
    parts = {"direct": DIRECT_WORD, "indirect": INDIRECT_WORD, "both": EITHER_WORD}
    num_words = np.bincount(of_individual, weights=np.diff(stream.offsets), minlength=len(of_stream))
    alone = per_unit[:, :, ALONE].sum(axis=1)
    return {
        "num_documents": len(stream.offsets) - 1,
        "num_words": len(flags),
        "num_distinct_words": len(support),
        "k": k,
        "n": policy.n,
        "policy": policy.policy,
        "unit": "household" if households else "individual",
        "share_unspaced": index.num_unspaced / index.num_occurrences,
        "share_types_identifying": float(identifying.mean()),
        "share_occurrences_identifying": float(occurrences[identifying].sum() / occurrences.sum()),
        "protected": {name: float(np.count_nonzero(share) / len(flags)) for name, share in shares.items()},
        "retention": {policy.policy: float(np.mean(flags == 0))},
        "identifiers_per_individual": {part: cdf(per_individual[0, :, bit]) for part, bit in parts.items()},
        "words_per_individual": cdf(num_words),
        "individuals_per_word": {"distinct": cdf(support), "occurrences": cdf(support, occurrences.astype(np.float64))},
        "identifying_words": _identifying_words(stream, flags, supports[0] < k, len(support)),
        "identifiers_by_n": [
            _row_of_n(n, index, supports[n - 1], marks[n - 1], per_individual[n - 1], int(alone[n - 1]), flags, k)
            for n in range(1, index.max_n + 1)
        ],
        "margin": [
            row
            for n in range(1, index.max_n + 1)
            for row in _margin_rows(n, _distinct_by_support(index, n, int(alone[n - 1])), supports[n - 1], k)
        ],
        "retention_by_policy": _retention(marks, stream.offsets, k),
        "unicity": _unicity_rows(stream, ~identifying, seed),
    }


def _read_words(
    corpus: Corpus,
    individuals: Individuals,
    index: NgramIndex,
    policy: Policy,
    spans: SpanReader | None,
    splits: tuple[str, ...],
    num_threads: int,
    progress: Callable[[int], None] | None,
) -> tuple[WordStream, np.ndarray]:
    """Return the words of the documents in these splits as rows of the n-gram index, with document offsets, individuals
    and units (households), and each word's protection flags, uint8."""
    ids = WordIds(index)
    words_of, flags_of, lengths, individual, unit = [], [], [], [], []
    flagged = FlaggedWords(
        corpus, individuals, splits=splits, index=index, spans=spans, policy=policy, num_threads=num_threads
    )
    for part, words, flags, *_ in flagged:
        words_of.append(ids.look_up(part.texts, words))
        flags_of.append(flags)
        lengths.append(np.diff(words.doc_offsets))
        individual.append(part.codes)
        unit.append(part.units)
        if progress:
            progress(part.last_document)
    if not words_of:
        raise CorpusError(f"no document belongs to the splits {', '.join(splits)}")
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int64)
    stream = WordStream(np.concatenate(words_of), offsets, np.concatenate(individual), np.concatenate(unit))
    return stream, np.concatenate(flags_of)


def _check_words(num_words: int, index: NgramIndex) -> None:
    """Raise `CorpusError` if the documents hold no word, or another number of words than the index."""
    if not num_words:
        raise CorpusError("the members' documents hold no word")
    if num_words != index.num_occurrences:
        raise CorpusError(
            f"the index holds {index.num_occurrences:,} words, the documents {num_words:,}; run index again"
        )


def _mark_bits(supports: list[np.ndarray], flags: np.ndarray, k: int) -> np.ndarray:
    """Return properties of the n-gram that starts at each word as bits, uint8 (N, W): identifying (used by fewer than
    k), minimal (and its shorter n-grams are not), used by one individual or household only; for single words also
    directly and indirectly protected."""
    marks = np.zeros((len(supports), len(flags)), dtype=np.uint8)
    for n, support in enumerate(supports, start=1):
        identifying = (support > 0) & (support < k)
        minimal = identifying
        if n > 1:
            shorter = supports[n - 2] >= k
            minimal = identifying & shorter
            minimal[:-1] &= shorter[1:]
        for bit, chosen in ((ALL, identifying), (MINIMAL, minimal), (ALONE, support == 1)):
            marks[n - 1] |= chosen.astype(np.uint8) << np.uint8(bit)
    for bit, chosen in ((DIRECT_WORD, flags & DIRECT), (INDIRECT_WORD, flags & INDIRECT), (EITHER_WORD, flags)):
        marks[0] |= (chosen > 0).astype(np.uint8) << np.uint8(bit)
    return marks


def _row_of_n(
    n: int,
    index: NgramIndex,
    support: np.ndarray,
    marks: np.ndarray,
    per_individual: np.ndarray,
    num_of_one_individual: int,
    flags: np.ndarray,
    k: int,
) -> dict[str, Any]:
    """Return the row of the report's table ``identifiers_by_n`` for n-grams of n words: counts of those that are
    identifying (used by fewer than k), minimal (and without a shorter identifying n-gram), or kept (used by k or
    more)."""
    distinct = _distinct_by_support(index, n, num_of_one_individual)
    holds_direct = (flags & DIRECT) > 0
    for offset in range(1, n):
        holds_direct[:-offset] |= (flags[offset:] & DIRECT) > 0
    row: dict[str, Any] = {"n": n}
    for name, bit, num in (("all", ALL, distinct[:k].sum()), ("minimal", MINIMAL, _num_minimal(index, n, k, distinct))):
        chosen = (marks >> np.uint8(bit) & np.uint8(1)).astype(bool)
        row[name] = {
            "distinct": int(num),
            "occurrences": int(np.count_nonzero(chosen)),
            "occurrences_direct": int(np.count_nonzero(chosen & holds_direct)),
            "per_individual": cdf(per_individual[:, bit]),
        }
    row["kept"] = {"distinct": int(distinct[k:].sum()), "occurrences": int(np.count_nonzero(support >= k))}
    return row


def _distinct_by_support(index: NgramIndex, n: int, num_of_one_individual: int) -> np.ndarray:
    """Return how many distinct n-grams have each support (number of individuals or households using them), int64 (MAX_K
    + 1,); the last entry counts supports of MAX_K and more. The count for a support of 1 is not taken from the index
    but given.

    Those of one individual are counted in the documents: of the longer ones the index keeps only some. Every n-gram of
    two is in it, since its parts have two as well.
    """
    table = pa.record_batch(index.words() if n == 1 else index.level(n))
    support = np.minimum(table.column("support").to_numpy(), MAX_K)
    counts = np.bincount(support, minlength=MAX_K + 1).astype(np.int64)
    counts[1] = num_of_one_individual
    return counts


def _num_minimal(index: NgramIndex, n: int, k: int, distinct: np.ndarray) -> int:
    """Return the number of distinct minimal identifying n-grams of n words: used by fewer than k individuals (or
    households), while both (n-1)-grams in them are used by k or more. For n = 1 it is the sum of ``distinct``, the
    counts by support, below k."""
    if n == 1:
        return int(distinct[:k].sum())
    table, parts = pa.record_batch(index.level(n)), pa.record_batch(index.words() if n == 2 else index.level(n - 1))
    support = parts.column("support").to_numpy()
    if n > 2:  # parts are numbered among those that the index extends
        support = support[support >= index.min_support]
    shared = support >= k
    left, right = (table.column(name).to_numpy() for name in ("left", "right"))
    return int(np.count_nonzero((table.column("support").to_numpy() < k) & shared[left] & shared[right]))


def _margin_rows(n: int, distinct: np.ndarray, support: np.ndarray, k: int) -> list[dict[str, Any]]:
    """Return rows of the report's table ``margin``: for each support (number of users) near k, the numbers of distinct
    n-grams with it and of their occurrences. ``distinct`` counts n-grams by support; ``support`` is that of the n-gram
    at each word of the text."""
    return [
        {"n": n, "support": s, "distinct": int(distinct[s]), "occurrences": int(np.count_nonzero(support == s))}
        for s in range(max(1, k - BELOW), min(k + ABOVE, MAX_K))
    ]


def _identifying_words(
    stream: WordStream, flags: np.ndarray, is_indirect: np.ndarray, num_words: int
) -> dict[str, dict[str, int]]:
    """Count the words that identify directly, indirectly (``is_indirect``), and either way: distinct words and
    occurrences of each."""
    direct = (flags & DIRECT) > 0
    found = {}
    for name, chosen in (("direct", direct), ("indirect", is_indirect), ("both", direct | is_indirect)):
        distinct = np.zeros(num_words, dtype=bool)
        distinct[stream.words[chosen]] = True
        found[name] = {"distinct": int(distinct.sum()), "occurrences": int(np.count_nonzero(chosen))}
    return found


def _retention(marks: np.ndarray, offsets: np.ndarray, k: int) -> list[dict[str, Any]]:
    """Return rows of the report's table ``retention_by_policy``: the share of words that remain prediction targets, by
    policy and n, computed from the bits of `_mark_bits`."""
    starts = np.zeros(marks.shape[1], dtype=np.uint8)
    for n, row in enumerate(marks):
        starts |= (row >> np.uint8(MINIMAL) & np.uint8(1)) << np.uint8(n)
    return [
        {"policy": policy, "n": n, "k": k, "retention": 1.0 - float(protected_words(starts, offsets, number, n).mean())}
        for n in range(1, len(marks) + 1)
        for number, policy in enumerate(POLICIES)
    ]


def _unicity_rows(stream: WordStream, is_shared: np.ndarray, seed: int) -> list[dict[str, int]]:
    """Return a table row for each m from 1 to `MAX_M`: the number of sampled units (individuals or households) that use
    at least m of the words in the mask ``is_shared``, and how many of them m random ones of their words single out."""
    singled = unicity(stream, is_shared, max_m=MAX_M, num_samples=NUM_SAMPLES, seed=seed)
    return [
        {"m": m + 1, "num_units": int((singled[:, m] >= 0).sum()), "num_singled_out": int((singled[:, m] == 1).sum())}
        for m in range(MAX_M)
    ]


def detected_spans(
    path: Path | str, individual_of_document: np.ndarray, *, min_individuals: int
) -> list[dict[str, Any]]:
    """Count detected spans by label and detector: rows of label, detector, num_spans, num_documents, num_individuals.
    Labels found in fewer than ``min_individuals`` individuals are counted together.

    Labels found in fewer than ``min_individuals`` individuals count together as "other", which is left out where it is
    itself of fewer.

    Parameters
    ----------
    path : ``spans.parquet``
    individual_of_document : uint32 array, shape (num_documents,)
        Individual of each document of the corpus, which spans name by its row number.
    """
    import polars as pl

    by = ["label", "detector"]
    spans = pl.scan_parquet(path).select(
        *by, "document", individual=pl.lit(pl.Series(individual_of_document)).gather(pl.col("document"))
    )
    found = spans.group_by(by).agg(
        num_spans=pl.len(), num_documents=pl.n_unique("document"), num_individuals=pl.n_unique("individual")
    )
    table = found.collect()
    is_small = pl.col("num_individuals") < min_individuals
    rows = table.filter(~is_small).to_dicts()
    if len(rows) < len(table):
        small = table.lazy().filter(is_small).select(by)
        rest = spans.join(small, on=by, how="semi").select(pl.len(), pl.n_unique("individual")).collect()
        num_spans, num_individuals = rest.row(0)
        if num_individuals >= min_individuals:
            other = {"num_spans": num_spans, "num_documents": None, "num_individuals": num_individuals}
            rows.append({"label": "other", "detector": "any", **other})
    return sorted(rows, key=lambda row: (-row["num_spans"], row["label"], row["detector"]))
