"""What do the Numba kernels save over NumPy, at the size of a real corpus?

Each kernel and its NumPy form get the same arrays, in turns; their answers are compared before a time is shown. Both
run on one thread; compiling is not counted (it is cached on disk). The last rows are loops that stayed in NumPy, and
what a kernel in their place would take.

    python -m benchmarks.kernels [--tokens 20000000] [--rounds 3]
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import numba
import numpy as np

from benchmarks.record_io import spread, write_record
from benchmarks.runner import command
from reticent.engine import document_kernels, kernels, window_kernels
from reticent.engine.protect import POLICIES
from reticent.engine.schema import IGNORE_INDEX

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
WINDOW, BATCH, FILL = 510, 64, 0
PAPER, COVER = POLICIES.index("paper"), POLICIES.index("cover")
INDIVIDUALS, RESAMPLES = 20_000, 200


class Corpus:
    """Token and word arrays of the shape of a tokenised corpus: 700 words a document, of 400,000 distinct ones."""

    def __init__(self, num_tokens: int, seed: int = 0):
        random = np.random.default_rng(seed)
        # The rarer a word the more tokens it has; word 0 is what stands outside words.
        pieces = np.minimum(np.log10(np.arange(400_000) + 10).astype(np.int64), 5)
        spelling = random.integers(0, 30_000, pieces.sum()).astype(np.uint16)
        words = np.minimum(random.pareto(0.7, max(1, int(num_tokens / 1.48))) * 30, 399_999).astype(np.int64)
        sizes = pieces[words]
        begins = np.cumsum(sizes) - sizes
        within = np.arange(sizes.sum()) - np.repeat(begins, sizes)
        self.num_tokens = len(within)
        self.input_ids = spelling[np.repeat((np.cumsum(pieces) - pieces)[words], sizes) + within]
        num_documents = max(1, len(words) // 700)
        inner = np.sort(random.choice(len(words), num_documents - 1, replace=False))
        bounds = np.concatenate([[0], inner, [len(words)]]).astype(np.int64)
        self.offsets = np.append(begins, self.num_tokens)[bounds].astype(np.int64)
        place = np.arange(len(words)) - np.repeat(bounds[:-1], np.diff(bounds))
        self.word_ids = np.repeat(np.where(words == 0, -1, place), sizes).astype(np.int32)
        self.flags = ((random.random(self.num_tokens) < 0.05) * 2).astype(np.uint8)
        self.log_probs = -random.exponential(3, self.num_tokens).astype(np.float32)
        self.log_probs[random.random(self.num_tokens) < 0.1] = np.nan
        self.right = random.random(self.num_tokens) < 0.4
        self.slots = kernels.word_slots(self.word_ids, self.offsets)
        starts, _, documents = self.slots
        self.word_offsets = np.searchsorted(documents, np.arange(len(self.offsets)))
        self.keys = random.random(len(starts))
        self.ngram_starts = self._ngram_starts(random)
        self.individuals = (documents * 2 // 5).astype(np.int64)
        self.windows = window_kernels.cut_documents(self.offsets, WINDOW)

    def _ngram_starts(self, random: np.random.Generator) -> np.ndarray:
        num_words = len(self.keys)
        left = np.repeat(self.word_offsets[1:], np.diff(self.word_offsets)) - np.arange(num_words)
        bits = np.zeros(num_words, dtype=np.uint8)
        for n, share in ((1, 0.01), (2, 0.15), (3, 0.25)):
            bits |= ((random.random(num_words) < share) & (left >= n)).astype(np.uint8) << (n - 1)
        return bits

    def batches(self) -> Iterator[np.ndarray]:
        for first in range(0, len(self.windows[1]), BATCH):
            yield np.arange(first, min(first + BATCH, len(self.windows[1])))


# ------------------------------------------------------------------ NumPy forms, in the order of the kernels


def cut_documents(offsets: np.ndarray, capacity: int) -> tuple[np.ndarray, ...]:
    lengths = np.diff(offsets)
    counts = -(-lengths // capacity)
    documents = np.repeat(np.arange(len(lengths)), counts)
    nth = np.arange(len(documents)) - np.repeat(np.cumsum(counts) - counts, counts)
    return documents, offsets[documents] + nth * capacity, np.minimum(capacity, lengths[documents] - nth * capacity)


def gather_windows(values: np.ndarray, starts: np.ndarray, lengths: np.ndarray, width: int) -> np.ndarray:
    columns = np.arange(width)
    inside = columns < lengths[:, None]
    return np.where(inside, values[np.where(inside, starts[:, None] + columns, 0)], FILL)


def mix(state: np.ndarray) -> np.ndarray:
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def hashed(*counters: Any) -> np.ndarray:
    state = mix(np.asarray(counters[0], dtype=np.uint64).reshape(-1) + GOLDEN)
    for counter in counters[1:]:
        state = mix(state ^ (np.asarray(counter).astype(np.uint64) + GOLDEN))
    return state


def draw_words(word_ids: np.ndarray, protected: np.ndarray, windows: np.ndarray, share: float) -> np.ndarray:
    length = word_ids.shape[1]
    ids = word_ids.reshape(-1)
    begins = np.append(True, ids[1:] != ids[:-1])
    begins[::length] = True
    at = np.flatnonzero(begins)
    free = (ids[at] >= 0) & ~np.logical_or.reduceat(protected.reshape(-1), at)
    rows = at[free] // length
    hashes = hashed(1, 0, windows[rows], ids[at[free]])
    eligible = np.bincount(rows, minlength=len(windows))
    drawn = np.minimum(eligible, np.maximum(1, np.floor(share * eligible + 0.5))).astype(np.int64)
    order = np.lexsort((hashes, rows))
    rank = np.arange(len(order)) - np.repeat(np.cumsum(eligible) - eligible, eligible)
    chosen = np.zeros(len(at), dtype=bool)
    chosen[np.flatnonzero(free)[order[rank < drawn[rows]]]] = True
    return np.repeat(chosen, np.diff(np.append(at, len(ids)))).reshape(word_ids.shape)


def word_slots(word_ids: np.ndarray, offsets: np.ndarray, documents: np.ndarray) -> tuple[np.ndarray, ...]:
    begins = np.append(True, word_ids[1:] != word_ids[:-1])
    begins[offsets[:-1][offsets[:-1] < len(word_ids)]] = True
    at = np.flatnonzero(begins)
    lengths = np.diff(np.append(at, len(word_ids)))
    kept = word_ids[at] >= 0
    return at[kept], lengths[kept].astype(np.int32), documents[at[kept]]


def paper(starts: np.ndarray, offsets: np.ndarray, max_n: int) -> np.ndarray:
    lengths = np.diff(offsets)
    begin, stop = np.repeat(offsets[:-1], lengths), np.repeat(offsets[1:], lengths)
    edges = np.zeros(len(starts) + 1, dtype=np.int64)
    for n in range(1, max_n + 1):
        first = np.flatnonzero(starts >> (n - 1) & 1)
        edges += np.bincount(np.maximum(begin[first], first + n - max_n), minlength=len(edges))
        edges -= np.bincount(np.minimum(stop[first], first + max_n), minlength=len(edges))
    return np.cumsum(edges[:-1]) > 0


def cover(starts: np.ndarray, offsets: np.ndarray, max_n: int) -> np.ndarray:
    """A round takes the next word of every document at once."""
    nowhere = len(starts)
    ends = np.full(nowhere + 1, nowhere)  # the nearest right end of an n-gram that starts here or later
    for n in range(max_n, 0, -1):
        first = np.flatnonzero(starts >> (n - 1) & 1)
        ends[first] = first + n - 1
    ends = np.minimum.accumulate(ends[::-1])[::-1]
    taken = np.zeros(nowhere, dtype=bool)
    at, stop = offsets[:-1].copy(), offsets[1:]
    while len(at):
        last = ends[at]
        going = last < stop
        taken[last[going]] = True
        at, stop = last[going] + 1, stop[going]
    return taken


def number_tuples(values: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """One sort a length, of the ids packed into 64 bits, or of rows where they do not fit."""
    numbers = np.empty(len(starts), dtype=np.int64)
    used = 0
    for length in np.unique(lengths):
        chosen = np.flatnonzero(lengths == length)
        if length <= 4:
            packed = np.zeros(len(chosen), dtype=np.uint64)
            for ahead in range(length):
                packed = packed << np.uint64(16) | values[starts[chosen] + ahead]
            distinct, inverse = np.unique(packed, return_inverse=True)
        else:
            rows = values[starts[chosen][:, None] + np.arange(length)]
            distinct, inverse = np.unique(rows, axis=0, return_inverse=True)
        numbers[chosen] = used + inverse.reshape(-1)
        used += len(distinct)
    return numbers


def all_tokens_of_words(values: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    running = np.concatenate([[0], np.cumsum(values)])
    return running[starts + lengths] - running[starts] == lengths


def document_sums(values: np.ndarray, chosen: np.ndarray, documents: np.ndarray, num: int) -> tuple[np.ndarray, ...]:
    counted = documents[chosen]
    return np.bincount(counted, weights=values[chosen], minlength=num), np.bincount(counted, minlength=num)


def document_lowest(values: np.ndarray, documents: np.ndarray, num: int, share: float) -> np.ndarray:
    scored = ~np.isnan(values)
    order = np.lexsort((values[scored], documents[scored]))
    counts = np.bincount(documents[scored], minlength=num)
    kept = np.maximum((counts * share).astype(np.int64), 1)
    rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    chosen = rank < np.repeat(kept, counts)
    totals = np.bincount(np.repeat(np.arange(num), counts)[chosen], values[scored][order][chosen], minlength=num)
    return np.where(counts > 0, totals / kept, np.nan)


def document_ranks(keys: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    lengths = np.diff(offsets)
    ranks = np.empty(len(keys), dtype=np.int64)
    order = np.lexsort((keys, np.repeat(np.arange(len(lengths)), lengths)))
    ranks[order] = np.arange(len(keys)) - np.repeat(offsets[:-1], lengths)
    return ranks


def draw_counts(seed: int, first: int, out: np.ndarray) -> None:
    num = out.shape[1]
    steps = np.arange(1, num + 1, dtype=np.uint64) * GOLDEN
    for row in range(len(out)):
        random = mix(hashed(seed, first + row, num, 0) + steps)
        out[row] = np.bincount(((random >> np.uint64(11)) * (num * 2.0**-53)).astype(np.int64), minlength=num)


# ------------------------------------------------------------------ what stayed in NumPy


def targets(batch: tuple[np.ndarray, ...]) -> np.ndarray:
    input_ids, flags, is_text = batch
    return np.where(is_text & (flags == 0), input_ids, IGNORE_INDEX)


@numba.njit(nogil=True)
def targets_kernel(input_ids: np.ndarray, flags: np.ndarray, is_text: np.ndarray) -> np.ndarray:
    out = np.full(input_ids.shape, IGNORE_INDEX, dtype=np.int64)
    for row in range(len(out)):
        for column in range(len(out[row])):
            if is_text[row, column] and flags[row, column] == 0:
                out[row, column] = input_ids[row, column]
    return out


def pairs(individuals: np.ndarray, identifiers: np.ndarray) -> np.ndarray:
    packed = np.sort(individuals * (int(identifiers.max(initial=0)) + 1) + identifiers)
    return packed[np.diff(packed, prepend=-1) > 0]


def pairs_kernel(individuals: np.ndarray, identifiers: np.ndarray) -> np.ndarray:
    both = np.stack([individuals, identifiers], axis=1).reshape(-1)
    places = np.arange(len(individuals)) * 2
    _, first = kernels.number_tuples(both, places, np.full(len(places), 2))
    return np.sort(individuals[first] * (int(identifiers.max(initial=0)) + 1) + identifiers[first])


# ------------------------------------------------------------------ the rows


def rows(corpus: Corpus) -> Iterator[tuple[str, int, Callable[[], Any], Callable[[], Any]]]:
    """Yield (kernel, what it goes over, with Numba, with NumPy)."""
    c, (starts, lengths, _) = corpus, corpus.slots
    num = len(c.offsets) - 1
    _, window_starts, window_lengths = c.windows

    def gathered(one: Callable[..., np.ndarray]) -> int:
        # A checksum a batch: an epoch of batches does not fit into memory.
        parts = [one(c.input_ids, window_starts[w], window_lengths[w]) for w in c.batches()]
        return hash(tuple(int(part.sum()) for part in parts))

    def by_kernel(values: np.ndarray, at: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        out = np.empty((len(at), WINDOW), dtype=np.int64)
        window_kernels.gather_windows(values, at, sizes, 0, FILL, out)
        return out

    some = np.arange(min(len(window_starts), 4096))
    width = (window_starts[some], window_lengths[some], WINDOW)
    word_ids = gather_windows(c.word_ids + 1, *width).astype(np.int32) - 1
    flags = gather_windows(c.flags, *width)
    input_ids, protected, is_text = gather_windows(c.input_ids, *width).astype(np.int64), flags != 0, word_ids >= 0

    def drawn() -> np.ndarray:
        out = np.empty(word_ids.shape, dtype=bool)
        kernels.draw_words(word_ids, protected, some, 0.15, 1, 0, out)
        return out

    def counts(one: Callable[..., None]) -> np.ndarray:
        out = np.empty((RESAMPLES, INDIVIDUALS))
        one(3, 0, out)
        return out

    words = (c.ngram_starts, c.word_offsets)
    scored = ~np.isnan(c.log_probs)
    held = np.flatnonzero(c.ngram_starts & 3)
    identifiers = c.input_ids[starts[held]].astype(np.int64)
    n, w, cells = c.num_tokens, len(starts), word_ids.size
    yield (
        "cut_documents",
        n,
        lambda: window_kernels.cut_documents(c.offsets, 64),
        lambda: cut_documents(c.offsets, 64),
    )
    yield (
        "gather_windows",
        n,
        lambda: gathered(by_kernel),
        lambda: gathered(lambda values, at, sizes: gather_windows(values, at, sizes, WINDOW)),
    )
    yield ("draw_words", cells, drawn, lambda: draw_words(word_ids, protected, some, 0.15))
    yield (
        "word_slots",
        n,
        lambda: kernels.word_slots(c.word_ids, c.offsets),
        lambda: word_slots(c.word_ids, c.offsets, np.repeat(np.arange(num), np.diff(c.offsets))),
    )
    yield ("protected_words, cover", w, lambda: kernels.protected_words(*words, COVER, 3), lambda: cover(*words, 3))
    yield ("protected_words, paper", w, lambda: kernels.protected_words(*words, PAPER, 3), lambda: paper(*words, 3))
    yield (
        "number_tuples",
        w,
        lambda: kernels.number_tuples(c.input_ids, starts, lengths)[0],
        lambda: number_tuples(c.input_ids, starts, lengths),
    )
    yield (
        "words_all",
        w,
        lambda: kernels.all_tokens_of_words(c.right, starts, lengths),
        lambda: all_tokens_of_words(c.right, starts, lengths),
    )
    yield (
        "document_sums",
        n,
        lambda: document_kernels.document_sums(c.log_probs, scored, c.offsets),
        lambda: document_sums(c.log_probs, scored, np.repeat(np.arange(num), np.diff(c.offsets)), num),
    )
    yield (
        "document_lowest",
        n,
        lambda: document_kernels.document_lowest(c.log_probs, c.offsets, 0.2),
        lambda: document_lowest(c.log_probs, np.repeat(np.arange(num), np.diff(c.offsets)), num, 0.2),
    )
    yield (
        "document_ranks",
        w,
        lambda: document_kernels.document_ranks(c.keys, c.word_offsets),
        lambda: document_ranks(c.keys, c.word_offsets),
    )
    yield (
        "draw_counts",
        RESAMPLES * INDIVIDUALS,
        lambda: counts(kernels.draw_counts),
        lambda: counts(draw_counts),
    )
    yield (
        "stayed in NumPy: labels of a batch",
        cells,
        lambda: targets_kernel(input_ids, flags, is_text),
        lambda: targets((input_ids, flags, is_text)),
    )
    yield (
        "stayed in NumPy: distinct (individual, identifier)",
        len(held),
        lambda: pairs_kernel(c.individuals[held], identifiers),
        lambda: pairs(c.individuals[held], identifiers),
    )


def _renamed(numbers: np.ndarray) -> np.ndarray:
    """Numbers in the order of first appearance."""
    size = int(numbers.max(initial=-1)) + 1
    first = np.full(size, len(numbers))
    first[numbers[::-1]] = np.arange(len(numbers))[::-1]
    names = np.empty(size, dtype=np.int64)
    names[np.argsort(first)] = np.arange(size)
    return names[numbers]


def run(size: Annotated[str, ("toy", "cpu")] = "cpu", tokens: int = 20_000_000, rounds: int = 3) -> dict[str, Any]:
    """Time every row and write ``record/kernels.json``; `AssertionError` where a kernel and NumPy differ."""
    for _, _, with_numba, _ in rows(Corpus(2000)):  # compiles
        with_numba()
    corpus = Corpus(20_000 if size == "toy" else tokens)
    result: dict[str, Any] = {"num_tokens": corpus.num_tokens, "num_words": len(corpus.keys), "rows": {}}
    for name, entries, *both in rows(corpus):
        seconds: tuple[list[float], list[float]] = ([], [])
        for _ in range(1 if size == "toy" else rounds):
            answers: list[Any] = []
            for side, one in enumerate(both):
                start = time.process_time()
                answers.append(one())
                seconds[side].append(time.process_time() - start)
            _check(name, *answers)
        row: dict[str, Any] = {"entries": entries, "numba": spread(seconds[0]), "numpy": spread(seconds[1])}
        result["rows"][name] = row
        faster = row["numpy"]["median"] / max(row["numba"]["median"], 1e-9)
        print(f"{name:52s} {entries / 1e6:6.1f} M  Numba {row['numba']['median']:7.3f} s  "
              f"NumPy {row['numpy']['median']:7.3f} s  {faster:5.1f}x")  # fmt: skip
    write_record("kernels", result, size)
    return result


def _check(name: str, ours: Any, theirs: Any) -> None:
    if not isinstance(ours, tuple):
        ours, theirs = (ours,), (theirs,)
    for mine, other in zip(ours, theirs, strict=True):
        if name == "number_tuples":  # NumPy numbers them in sorted order
            np.testing.assert_array_equal(mine, _renamed(other))
        elif name == "document_lowest":  # sums of float32 in another order
            np.testing.assert_allclose(mine, other, rtol=1e-9)
        else:
            np.testing.assert_array_equal(mine, other, err_msg=name)


if __name__ == "__main__":
    command(run)
