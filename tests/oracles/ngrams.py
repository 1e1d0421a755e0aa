"""N-grams, their supports and the protected words, by brute force and straight from the definitions."""

from __future__ import annotations

import itertools
from collections import defaultdict

import pyarrow as pa

from reticent import _rust


def split(texts: list[str]) -> list[list[str]]:
    """Words of each text, as the core splits them."""
    array = pa.array(texts, pa.string())
    segmented = _rust.segment(array)
    surfaces = pa.record_batch(segmented.surfaces(array)).column("word").to_pylist()
    offsets = segmented.doc_offsets
    return [surfaces[a:b] for a, b in itertools.pairwise(offsets)]


def ngrams(tokens: list[str], n: int) -> list[tuple[str, ...]]:
    return [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]


def supports(corpus: list[tuple[str, int]], max_n: int) -> dict[tuple[str, ...], int]:
    """Brute force: the set of units of every n-gram."""
    units = defaultdict(set)
    for tokens, (_, unit) in zip(split([text for text, _ in corpus]), corpus, strict=True):
        for n in range(1, max_n + 1):
            for gram in ngrams(tokens, n):
                units[gram].add(unit)
    return {gram: len(owners) for gram, owners in units.items()}


def minimal(tokens: list[str], counts: dict[tuple[str, ...], int], k: int, max_n: int) -> list[tuple[int, int]]:
    """Brute force: (first, last) word of each minimal identifying n-gram, by the definition."""
    found = []
    for n in range(1, max_n + 1):
        for i, gram in enumerate(ngrams(tokens, n)):
            rare = counts.get(gram, 0) < k
            if rare and (n == 1 or (counts.get(gram[1:], 0) >= k and counts.get(gram[:-1], 0) >= k)):
                found.append((i, i + n - 1))
    return found


def protected_words(tokens: list[str], counts: dict[tuple[str, ...], int], k: int, n: int, policy: str) -> set[int]:
    """Words a policy protects, from definitions.md#identifiers; of covers any minimum one, so sizes are compared."""
    intervals = minimal(tokens, counts, k, n)
    if policy == "all":
        return {i for first, last in intervals for i in range(first, last + 1)}
    if policy == "last":
        return {last for _, last in intervals}
    if policy == "paper":
        return {
            i + j
            for m in range(1, n + 1)
            for i, gram in enumerate(ngrams(tokens, m))
            if counts.get(gram, 0) < k
            for j in range(m)
        }
    for size in range(len(tokens) + 1):
        for chosen in itertools.combinations(range(len(tokens)), size):
            if all(any(first <= i <= last for i in chosen) for first, last in intervals):
                return set(chosen)
    raise AssertionError
