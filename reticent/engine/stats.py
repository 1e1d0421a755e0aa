"""Statistics of a corpus and its identifiers: counts and distributions, nothing that names a word or a person.

They are the seed's Figs. 5 and 6: identifiers and words per individual, individuals per word.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reticent.engine.kernels import word_slots
from reticent.engine.protect import POLICIES
from reticent.engine.schema import DIRECT, INDIRECT, MEMBERS
from reticent.engine.split import Individuals
from reticent.engine.store import TokenStore
from reticent.errors import CorpusError

if TYPE_CHECKING:
    from reticent._rust import NgramIndex
    from reticent.engine.corpus import Corpus

__all__ = ["cdf", "corpus_statistics", "detected_spans", "retention_by_policy"]


def cdf(values: np.ndarray, weights: np.ndarray | None = None, *, max_points: int = 200) -> dict[str, list[float]]:
    """Return the cumulative distribution of ``values`` at up to ``max_points`` of them.

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
    store: TokenStore,
    index_words: Any,
    individuals: Individuals,
    *,
    k: int,
    n: int,
    policy: str,
) -> dict[str, Any]:
    """Return the "corpus" section of the report.

    Parameters
    ----------
    store : protected tokens of the members
    index_words : table of word, support, occurrences (anything pyarrow takes as a record batch)

    A word of an individual is told by its tokens, so two spellings that a lower-casing tokenizer unites count once.

    Raises
    ------
    CorpusError
        The documents hold no word.
    """
    words = pa.record_batch(index_words)
    support, occurrences = words.column("support").to_numpy(), words.column("occurrences").to_numpy()
    identifying = support < k
    starts, lengths, documents = word_slots(store.word_ids, store.doc_offsets)
    if not len(starts) or not len(support):
        raise CorpusError("the members' documents hold no word")
    flags = store.flags[starts]
    individual = store.individual[documents]
    surfaces = _surfaces(store, starts, lengths)
    codes = np.unique(store.individual)  # also those whose documents are empty
    shares = {
        "direct": np.mean((flags & DIRECT) > 0),
        "indirect": np.mean((flags & INDIRECT) > 0),
        "both": np.mean(flags > 0),
    }
    return {
        "num_documents": store.num_documents,
        "num_words": int(occurrences.sum()),
        "num_distinct_words": len(support),
        "k": k,
        "n": n,
        "policy": policy,
        "share_types_identifying": float(identifying.mean()),
        "share_occurrences_identifying": float(occurrences[identifying].sum() / occurrences.sum()),
        "protected": {name: float(share) for name, share in shares.items()},
        "retention": {policy: float(np.mean(flags == 0))},
        "identifiers_per_individual": {
            "direct": cdf(_distinct_per(individual, surfaces, (flags & DIRECT) > 0, codes)),
            "indirect": cdf(_distinct_per(individual, surfaces, (flags & INDIRECT) > 0, codes)),
            "both": cdf(_distinct_per(individual, surfaces, flags > 0, codes)),
        },
        "words_per_individual": cdf(np.bincount(np.searchsorted(codes, individual), minlength=len(codes))),
        "individuals_per_word": {"distinct": cdf(support), "occurrences": cdf(support, occurrences.astype(np.float64))},
    }


def detected_spans(path: Path | str, individual: np.ndarray, *, small_cell: int) -> list[dict[str, Any]]:
    """Return rows of label, detector, num_spans, num_documents, num_individuals: what was found, in all splits.

    What was found in fewer than ``small_cell`` individuals is put together as "other", which is left out where it is
    itself of fewer.

    Parameters
    ----------
    path : ``spans.parquet``
    individual : uint32 array, shape (num_documents,)
        Individual of each document of the corpus, which spans name by its row number.
    """
    table = pq.read_table(path, columns=["document", "label", "detector"])
    table = table.append_column("individual", pa.array(individual[table.column("document").to_numpy()]))
    grouped = table.group_by(["label", "detector"]).aggregate(
        [("document", "count"), ("document", "count_distinct"), ("individual", "count_distinct")]
    )
    grouped = grouped.rename_columns(["label", "detector", "num_spans", "num_documents", "num_individuals"])
    small = pc.less(grouped.column("num_individuals"), small_cell)
    rows = grouped.filter(pc.invert(small)).to_pylist()
    rest = table.join(grouped.filter(small).select(["label", "detector"]), ["label", "detector"], join_type="inner")
    num_individuals = pc.count_distinct(rest.column("individual")).as_py()
    if num_individuals and num_individuals >= small_cell:
        other = {"num_spans": rest.num_rows, "num_documents": None, "num_individuals": num_individuals}
        rows.append({"label": "other", "detector": "any", **other})
    return sorted(rows, key=lambda row: (-row["num_spans"], row["label"], row["detector"]))


def retention_by_policy(
    corpus: Corpus,
    individuals: Individuals,
    index: NgramIndex,
    *,
    k: int,
    splits: tuple[str, ...] = (MEMBERS,),
    num_threads: int = 0,
) -> list[dict[str, Any]]:
    """Return rows of policy, n, k, retention: the share of words that indirect protection alone leaves as targets,
    for every policy and every n the index holds.

    Cost: one pass over the text, and one protection a row.
    """
    from reticent import _rust

    settings = [(policy, n) for n in range(1, index.max_n + 1) for policy in POLICIES]
    protected, num_words = np.zeros(len(settings), dtype=np.int64), 0
    wanted = individuals.mask(*splits)
    for batch in corpus.batches(columns=("individual_id", "text")):
        texts = batch.column("text").filter(
            pa.array(wanted[individuals.individual_codes(batch.column("individual_id"))])
        )
        words = _rust.segment(texts, num_threads=num_threads)
        num_words += words.num_words
        for row, (policy, n) in enumerate(settings):
            flags, _ = index.protect(texts, words, k=k, n=n, policy=policy, num_threads=num_threads)
            protected[row] += np.count_nonzero(flags)
    return [
        {"policy": policy, "n": n, "k": k, "retention": 1.0 - int(hidden) / max(num_words, 1)}
        for (policy, n), hidden in zip(settings, protected, strict=True)
    ]


def _surfaces(store: TokenStore, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Number of each word's token tuple, exact: equal tuples and only they have equal numbers."""
    numbers = np.empty(len(starts), dtype=np.int64)
    used = 0
    for length in np.unique(lengths):
        chosen = np.flatnonzero(lengths == length)
        rows = store.input_ids[starts[chosen][:, None] + np.arange(length)].astype(np.int64)
        distinct, inverse = np.unique(rows, axis=0, return_inverse=True)
        numbers[chosen] = used + inverse.reshape(-1)
        used += len(distinct)
    return numbers


def _distinct_per(individual: np.ndarray, surfaces: np.ndarray, chosen: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Number of distinct chosen words of each individual."""
    pairs = np.unique(np.stack([individual[chosen].astype(np.int64), surfaces[chosen]], axis=1), axis=0)
    return np.bincount(np.searchsorted(codes, pairs[:, 0]), minlength=len(codes))
