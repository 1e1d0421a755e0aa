"""The Numba kernels against plain Python, on any shape they can meet."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fixtures.drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.engine import document_kernels, kernels, window_kernels
from reticent.engine.document_kernels import document_lowest, document_ranks, document_sums
from reticent.engine.kernels import (
    all_tokens_of_words,
    count_disorder,
    draw_counts,
    draw_words,
    goldfish_drops,
    hash_ids,
    mark_tokens,
    number_tuples,
    protected_words,
    replace_words,
    word_slots,
)
from reticent.engine.protect import POLICIES
from reticent.engine.window_kernels import cut_documents, gather_windows

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
lengths_of_documents = st.lists(st.integers(0, 9), max_size=6)


def offsets_of(lengths: list[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


@settings(max_examples=examples(150))
@given(lengths_of_documents, st.integers(1, 5))
def test_cut_documents_matches_oracle(lengths: list[int], capacity: int) -> None:
    offsets = offsets_of(lengths)
    expected = [
        (document, int(offsets[document]) + at, min(capacity, length - at))
        for document, length in enumerate(lengths)
        for at in range(0, length, capacity)
    ]
    documents, starts, sizes = cut_documents(offsets, capacity)
    assert list(zip(documents.tolist(), starts.tolist(), sizes.tolist(), strict=True)) == expected
    assert {array.dtype for array in (documents, starts, sizes)} == {np.dtype(np.int64)}


def test_windows_of_a_store_that_does_not_begin_at_zero() -> None:
    documents, starts, sizes = cut_documents(np.array([10, 13, 13, 15]), 2)
    assert (documents.tolist(), starts.tolist(), sizes.tolist()) == ([0, 0, 2], [10, 12, 13], [2, 1, 2])


@settings(max_examples=examples(150))
@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6)), max_size=5),
    st.integers(0, 2),
    st.integers(0, 3),
    st.sampled_from([(np.uint16, np.int64), (np.uint32, np.int64), (np.int32, np.int32), (np.uint8, np.uint8)]),
    st.sampled_from([0, 7]),
)
def test_gather_windows_matches_oracle(
    windows: list[tuple[int, int]], offset: int, spare: int, dtypes: tuple[type, type], fill: int
) -> None:
    values = np.arange(100, 120).astype(dtypes[0])
    values.flags.writeable = False  # a memory map is read-only
    starts, lengths = (np.array([w[i] for w in windows], dtype=np.int64) for i in range(2))
    out = np.full((len(windows), offset + 6 + spare), 99, dtype=dtypes[1])
    gather_windows(values, starts, lengths, offset, fill, out)
    expected = [[fill] * offset + values[a : a + n].tolist() + [fill] * (6 - n + spare) for a, n in windows]
    assert out.tolist() == expected


def mix(state: int) -> int:
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & MASK
    return state ^ (state >> 31)


def hash_of(seed: int, epoch: int, window: int, word: int) -> int:
    """Splitmix64's finaliser, chained over the four counters."""
    state = mix((seed + GOLDEN) & MASK)
    for counter in (epoch, window, word):
        state = mix(state ^ ((counter + GOLDEN) & MASK))
    return state


Row = list[tuple[int, list[bool]]]  # runs of tokens: the word's number or -1, and which of its tokens are protected


def drawn(row: Row, share: float, seed: int, epoch: int, window: int) -> tuple[list[bool], int]:
    """Tokens of the words with the smallest hashes, of the words no token of which is protected."""
    eligible = [(hash_of(seed, epoch, window, word), word) for word, tokens in row if word >= 0 and not any(tokens)]
    count = max(1, math.floor(share * len(eligible) + 0.5)) if eligible else 0
    chosen = {word for _, word in sorted(eligible)[:count]}
    mask = [word in chosen and not any(tokens) for word, tokens in row for _ in tokens]
    return mask, sum(len(tokens) for word, tokens in row if word >= 0 and not any(tokens))


@st.composite
def rows(draw: st.DrawFn) -> Row:
    runs: Row = []
    word = draw(st.integers(0, 5))
    for _ in range(draw(st.integers(0, 12))):
        tokens = draw(st.lists(st.booleans() if draw(st.booleans()) else st.just(False), min_size=1, max_size=3))
        if draw(st.integers(0, 3)) == 0:
            if not runs or runs[-1][0] >= 0:
                runs.append((-1, tokens))
        else:
            runs.append((word, tokens))
            word += draw(st.integers(1, 3))
    return runs


@settings(max_examples=examples(200))
@given(
    st.lists(rows(), max_size=4),
    st.sampled_from([0.0, 0.15, 0.5, 0.99, 1.0, 3.0]),
    st.integers(0, 2**63 - 1),
    st.integers(0, 100),
    st.integers(0, 2**40),
)
def test_draw_words_matches_oracle(batch: list[Row], share: float, seed: int, epoch: int, window: int) -> None:
    width = max((sum(len(tokens) for _, tokens in row) for row in batch), default=0) + 1
    word_ids = np.full((len(batch), width), -1, dtype=np.int32)
    protected = np.ones((len(batch), width), dtype=bool)
    expected = np.zeros((len(batch), width), dtype=bool)
    num_eligible = 0
    windows = np.array([window + 7 * i for i in range(len(batch))], dtype=np.int64)
    for i, row in enumerate(batch):
        flat = [(word, token) for word, tokens in row for token in tokens]
        word_ids[i, : len(flat)] = [word for word, _ in flat]
        protected[i, : len(flat)] = [token for _, token in flat]
        mask, count = drawn(row, share, seed, epoch, int(windows[i]))
        expected[i, : len(flat)] = mask
        num_eligible += count
    out = np.ones((len(batch), width), dtype=bool)
    assert draw_words(word_ids, protected, windows, share, seed, epoch, out) == num_eligible
    assert out.tolist() == expected.tolist()


def big_batch(num_rows: int = 200, length: int = 64) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    word_ids = np.cumsum(rng.integers(0, 2, (num_rows, length)), axis=1).astype(np.int32)
    return word_ids, rng.random((num_rows, length)) < 0.1, np.arange(num_rows, dtype=np.int64)


def test_draw_never_takes_a_protected_word_and_takes_the_share() -> None:
    word_ids, protected, windows = big_batch()
    out = np.empty_like(protected)
    draw_words(word_ids, protected, windows, 0.15, 1, 0, out)
    assert not (out & protected).any()
    words = [{*row.tolist()} for row in word_ids]
    free = [w - {*ids[bad].tolist()} for w, ids, bad in zip(words, word_ids, protected, strict=True)]
    taken = [{*ids[mask].tolist()} for ids, mask in zip(word_ids, out, strict=True)]
    assert [len(t) for t in taken] == [max(1, math.floor(0.15 * len(f) + 0.5)) for f in free]
    assert all(t <= f for t, f in zip(taken, free, strict=True))
    assert all((out[i] == np.isin(word_ids[i], list(taken[i]))).all() for i in range(len(out)))  # whole words


def test_draw_depends_on_seed_epoch_and_window_and_not_on_the_batch() -> None:
    word_ids, protected, windows = big_batch()

    def draw(order: np.ndarray, seed: int = 1, epoch: int = 0, shift: int = 0) -> np.ndarray:
        out = np.empty((len(order), word_ids.shape[1]), dtype=bool)
        draw_words(word_ids[order], protected[order], windows[order] + shift, 0.15, seed, epoch, out)
        return out

    order = np.random.default_rng(0).permutation(len(windows))
    whole = draw(np.arange(len(windows)))
    assert (draw(order) == whole[order]).all()
    assert (draw(order[:1]) == whole[order[:1]]).all()
    for other in (draw(order, seed=2), draw(order, epoch=1), draw(order, shift=1)):
        assert (other != whole[order]).mean() > 0.1


def test_every_word_is_drawn_about_equally_often_over_epochs() -> None:
    word_ids = np.arange(100, dtype=np.int32)[None, :]
    protected = np.zeros((1, 100), dtype=bool)
    counts = np.zeros(100)
    out = np.empty_like(protected)
    for epoch in range(2000):
        draw_words(word_ids, protected, np.array([3]), 0.15, 5, epoch, out)
        counts += out[0]
    assert counts.sum() == 2000 * 15
    # Binomial(2000, 0.15): mean 300, standard deviation 16; six of them.
    assert abs(counts - 300).max() < 96


@settings(max_examples=examples(150))
@given(st.lists(st.lists(st.tuples(st.integers(-1, 3), st.integers(1, 3)), max_size=5), max_size=5))
def test_word_slots_matches_oracle(documents: list[list[tuple[int, int]]]) -> None:
    """Documents as runs of (word or -1, tokens); the same word twice in a row is one word."""
    flat = [[word for word, count in runs for _ in range(count)] for runs in documents]
    offsets = offsets_of([len(tokens) for tokens in flat])
    expected = []
    for document, tokens in enumerate(flat):
        at = int(offsets[document])
        for word, group in itertools.groupby(tokens):
            length = len(list(group))
            if word >= 0:
                expected.append((at, length, document))
            at += length
    ids = np.array([word for tokens in flat for word in tokens], dtype=np.int32)
    ids.flags.writeable = False
    starts, lengths, numbers = word_slots(ids, offsets)
    assert list(zip(starts.tolist(), lengths.tolist(), numbers.tolist(), strict=True)) == expected
    assert (starts.dtype, lengths.dtype, numbers.dtype) == (np.int64, np.int32, np.int64)


Starts = list[list[set[int]]]  # documents of words: the lengths of the n-grams that start at each


@st.composite
def ngram_starts(draw: st.DrawFn) -> Starts:
    documents = draw(st.lists(st.integers(0, 9), max_size=3))
    lengths = st.sets(st.integers(1, 3), max_size=2)
    return [[{n for n in draw(lengths) if at + n <= size} for at in range(size)] for size in documents]


def intervals_of(document: list[set[int]], max_n: int) -> list[range]:
    return [range(at, at + n) for at, found in enumerate(document) for n in sorted(found) if n <= max_n]


def protected_by_hand(document: list[set[int]], policy: str, max_n: int) -> set[int]:
    intervals = intervals_of(document, max_n)
    if policy == "all":
        return {word for words in intervals for word in words}
    if policy == "last":
        return {words[-1] for words in intervals}
    size = len(document)
    windows = [range(at, at + n) for n in range(1, max_n + 1) for at in range(size - n + 1)]
    return {word for window in windows for words in intervals if {*words} <= {*window} for word in window}


def flat_starts(documents: Starts) -> tuple[np.ndarray, np.ndarray]:
    bits = [sum(1 << (n - 1) for n in found) for document in documents for found in document]
    return np.array(bits, dtype=np.uint8), offsets_of([len(document) for document in documents])


@settings(max_examples=examples(150))
@given(ngram_starts(), st.sampled_from(["all", "last", "paper"]), st.integers(1, 3))
def test_protected_words_matches_oracle(documents: Starts, policy: str, max_n: int) -> None:
    starts, offsets = flat_starts(documents)
    taken = protected_words(starts, offsets, POLICIES.index(policy), max_n)
    expected = [at in protected_by_hand(d, policy, max_n) for d in documents for at in range(len(d))]
    assert taken.tolist() == expected


@settings(max_examples=examples(150))
@given(ngram_starts(), st.integers(1, 3))
def test_cover_meets_every_ngram_with_as_few_words_as_any_set(documents: Starts, max_n: int) -> None:
    starts, offsets = flat_starts(documents)
    taken = protected_words(starts, offsets, POLICIES.index("cover"), max_n)
    for number, document in enumerate(documents):
        mine = np.flatnonzero(taken[offsets[number] : offsets[number + 1]]).tolist()
        intervals = intervals_of(document, max_n)
        assert all({*mine} & {*words} for words in intervals)
        smaller = itertools.combinations(range(len(document)), len(mine) - 1) if mine else ()
        assert not any(all({*few} & {*words} for words in intervals) for few in smaller)


@settings(max_examples=40)
@given(st.lists(st.lists(st.sampled_from("abcdefg"), max_size=12), min_size=1, max_size=8), st.integers(2, 3))
def test_protected_words_are_those_of_the_core_for_every_policy_and_n(documents: list[list[str]], k: int) -> None:
    from reticent import _rust

    texts = pa.array([" ".join(words) for words in documents], pa.large_string())
    builder = _rust.IndexBuilder(max_n=3)
    builder.add(texts, np.arange(len(texts), dtype=np.uint32))
    index, words = builder.finish(), _rust.segment(texts)
    _, starts = index.protect(texts, words, k=k, n=3)
    for number, policy in enumerate(POLICIES):
        for n in (1, 2, 3):
            flags, _ = index.protect(texts, words, k=k, n=n, policy=policy)
            assert (protected_words(starts, words.doc_offsets, number, n) == (flags > 0)).all(), (policy, n)


@settings(max_examples=examples(150))
@given(
    st.lists(st.tuples(st.integers(0, 15), st.integers(0, 4)), max_size=30),
    st.sampled_from([np.uint16, np.int32, np.int64]),
)
def test_number_tuples_matches_oracle(places: list[tuple[int, int]], dtype: type) -> None:
    values = np.array([0, 1, 1, 0, 1, 2, 0, 0, 0, 0, 1, 1, 0, 1, 2, 2, 1, 0, 0, 1], dtype=dtype)
    if dtype != np.uint16:
        values[values == 2] = -1  # a token that was not predicted
    starts, lengths = (np.array([place[i] for place in places], dtype=np.int64) for i in range(2))
    seen: dict[tuple[int, ...], int] = {}
    expected = [seen.setdefault(tuple(values[at : at + n].tolist()), len(seen)) for at, n in places]
    numbers, first = number_tuples(values, starts, lengths)
    assert numbers.tolist() == expected
    assert first.tolist() == [expected.index(number) for number in range(len(seen))]


def test_number_tuples_grows_past_its_first_table() -> None:
    values = np.random.default_rng(0).integers(0, 5000, 20_000)
    numbers, first = number_tuples(values, np.arange(20_000), np.ones(20_000, dtype=np.int32))
    assert len(first) == len(np.unique(values)) > 2048
    assert (values[first][numbers] == values).all()


documents_of_values = st.lists(
    st.lists(st.sampled_from([-2.5, -1.0, -1.0, 0.0, np.nan, -np.inf]), max_size=9), max_size=5
)


@settings(max_examples=examples(150))
@given(documents_of_values, st.sampled_from([0.2, 0.5, 1.0]))
def test_document_lowest_matches_oracle(documents: list[list[float]], share: float) -> None:
    values = np.array([value for document in documents for value in document], dtype=np.float32)
    means = document_lowest(values, offsets_of([len(document) for document in documents]), share)
    for document, mean in zip(documents, means, strict=True):
        scored = sorted(value for value in document if not math.isnan(value))
        kept = scored[: max(int(len(scored) * share), 1)]
        np.testing.assert_allclose(mean, sum(kept) / len(kept) if kept else np.nan)


@settings(max_examples=examples(100))
@given(documents_of_values)
def test_document_sums_matches_oracle(documents: list[list[float]]) -> None:
    values = np.array([value for document in documents for value in document], dtype=np.float32)
    totals, counts = document_sums(values, ~np.isnan(values), offsets_of([len(document) for document in documents]))
    scored = [[value for value in document if not math.isnan(value)] for document in documents]
    assert totals.tolist() == [sum(document) for document in scored]
    assert counts.tolist() == [len(document) for document in scored]


@settings(max_examples=examples(100))
@given(st.lists(st.lists(st.integers(0, 4), max_size=9), max_size=5))
def test_document_ranks_matches_oracle(documents: list[list[int]]) -> None:
    keys = np.array([float(key) for document in documents for key in document])
    expected = [sum((k, j) < (key, i) for j, k in enumerate(d)) for d in documents for i, key in enumerate(d)]
    assert document_ranks(keys, offsets_of([len(document) for document in documents])).tolist() == expected


@settings(max_examples=examples(100))
@given(st.lists(st.lists(st.booleans(), max_size=4), max_size=8))
def test_words_all_matches_oracle(words: list[list[bool]]) -> None:
    values = np.array([value for word in words for value in word], dtype=bool)
    lengths = np.array([len(word) for word in words], dtype=np.int32)
    starts = offsets_of(lengths.tolist())[:-1]
    assert all_tokens_of_words(values, starts, lengths).tolist() == [all(word) for word in words]


def counts_by_hand(seed: int, row: int, num: int) -> list[int]:
    """Splitmix64 from the hash of (seed, row, num, 0); the upper 53 bits of each number are a share of num."""
    state, counts = hash_of(seed, row, num, 0), [0] * num
    for _ in range(num):
        state = (state + GOLDEN) & MASK
        counts[int((mix(state) >> 11) * (num * 2.0**-53))] += 1
    return counts


@settings(max_examples=examples(60))
@given(st.integers(1, 40), st.integers(0, 5), st.integers(0, 1000), st.integers(0, 2**63 - 1))
def test_draw_counts_matches_oracle(num: int, rows: int, first: int, seed: int) -> None:
    out = np.full((rows, num), 7.0)
    draw_counts(seed, first, out)
    assert out.tolist() == [counts_by_hand(seed, first + row, num) for row in range(rows)]


def test_draw_counts_has_the_mean_and_spread_of_drawing_with_replacement() -> None:
    out = np.empty((4000, 50))
    draw_counts(3, 0, out)
    assert (out.sum(axis=1) == 50).all()
    # Binomial(50, 1/50): mean 1, variance 0.98; six standard errors of 4,000 draws.
    assert abs(out.mean(axis=0) - 1).max() < 6 * math.sqrt(0.98 / 4000)
    assert abs(out.var(axis=0) - 0.98).max() < 6 * math.sqrt((3 * 0.98**2 + 0.98) / 4000)
    # Cov of two counts is -1/50.
    assert abs(np.corrcoef(out[:, 0], out[:, 1])[0, 1] + 1 / 49) < 6 / math.sqrt(4000)


@pytest.mark.parametrize(
    "kernel",
    [getattr(module, name) for module in (kernels, window_kernels, document_kernels) for name in module.__all__],
)
def test_kernels_release_the_interpreter_lock_and_start_no_threads(kernel: Any) -> None:
    options = kernel.targetoptions
    assert options["nogil"]
    assert not options.get("parallel")


# ------------------------------------------------------------------ recipes


def chained(*counters: int) -> int:
    state = mix((counters[0] + GOLDEN) & MASK)
    for counter in counters[1:]:
        state = mix(state ^ ((counter + GOLDEN) & MASK))
    return state


@settings(max_examples=examples(100))
@given(lengths_of_documents, st.integers(2, 5), st.integers(1, 4), st.integers(0, 9))
def test_goldfish_drops_match_oracle(lengths: list[int], k: int, h: int, seed: int) -> None:
    offsets = offsets_of(lengths)
    ids = np.random.default_rng(seed).integers(0, 3, offsets[-1]).astype(np.uint16)
    expected = []
    for start, end in itertools.pairwise(offsets.tolist()):
        for token in range(start, end):
            state = GOLDEN
            for before in ids[token - h : token].tolist() if token - start >= h else []:
                state = mix(state ^ ((before + GOLDEN) & MASK))
            expected.append(token - start >= h and state < MASK // k)
    assert goldfish_drops(ids, offsets, k, h).tolist() == expected


def test_goldfish_drops_one_token_in_k_and_the_same_ones_of_a_copy() -> None:
    ids = np.random.default_rng(0).integers(0, 50_000, 20_000).astype(np.uint16)
    copied = np.concatenate([np.array([7, 8, 9], np.uint16), ids, ids[5_000:9_000]])
    for k in (2, 4, 32):
        dropped = goldfish_drops(copied, np.array([0, 3, 20_003, 24_003]), k, 13)
        assert abs(dropped.mean() - 1 / k) < 4 * np.sqrt((1 - 1 / k) / k / len(copied))
        assert (dropped[20_003 + 13 :] == dropped[5_003 + 13 : 9_003]).all()


@settings(max_examples=examples(100))
@given(st.integers(1, 3), st.integers(1, 12), st.integers(0, 99), st.sampled_from([(0.8, 0.1), (0.3, 0.5), (0.0, 1.0)]))
def test_replaced_words_match_oracle(rows: int, length: int, seed: int, shares: tuple[float, float]) -> None:
    random = np.random.default_rng(seed)
    word_ids = np.sort(random.integers(-1, 5, (rows, length)).astype(np.int32), axis=1)
    input_ids = random.integers(10, 99, (rows, length))
    drawn = np.isin(word_ids, random.integers(0, 5, 3))
    windows, pool, out = np.arange(rows) + 4, np.array([5, 6, 7]), np.empty_like(input_ids)
    replace_words(input_ids, drawn, word_ids, windows, 4, pool, *shares, seed, 2, out)
    for row in range(rows):
        for _, run in itertools.groupby(range(length), key=lambda at, row=row: int(word_ids[row, at])):
            for place, at in enumerate(run):
                expected = int(input_ids[row, at])
                if drawn[row, at]:
                    state = mix(chained(seed, 2, int(windows[row]), int(word_ids[row, at])) ^ 0xD1B54A32D192ED03)
                    chance = (state >> 11) * 2.0**-53
                    if chance < shares[0]:
                        expected = 4
                    elif chance < sum(shares):
                        expected = int(pool[mix((state + (place + 1) * GOLDEN) & MASK) % 3])
                assert out[row, at] == expected


@settings(max_examples=examples(50))
@given(st.integers(0, 99))
def test_digest_of_targets_matches_oracle_however_they_are_batched(seed: int) -> None:
    random = np.random.default_rng(seed)
    labels = np.where(random.random((4, 6)) < 0.5, -100, random.integers(0, 50, (4, 6)))
    windows = random.permutation(9)[:4]
    expected = sum(
        mix(chained(3, 7, int(windows[row]), at) ^ ((int(label) + GOLDEN) & MASK))
        for (row, at), label in np.ndenumerate(labels)
        if label >= 0
    )
    assert int(hash_ids(labels, windows, 3, 7)) == expected & MASK
    parts = sum(int(hash_ids(labels[i : i + 1], windows[i : i + 1], 3, 7)) for i in range(4))
    assert parts & MASK == expected & MASK


def test_tokens_are_marked_once_and_the_checksum_is_of_those_that_are_new() -> None:
    random = np.random.default_rng(1)
    indices, ids = random.integers(0, 90, 60), random.integers(0, 50, 60)
    marks, seen = np.zeros(12, np.uint8), dict[int, int]()
    for part in np.split(np.arange(60), [7, 7, 40]):
        new = {}
        for at in part.tolist():
            if int(indices[at]) not in seen | new:
                new[int(indices[at])] = int(ids[at])
        expected = sum(chained(0, 0, index, number) for index, number in new.items())
        assert int(mark_tokens(marks, indices[part], ids[part])) == expected & MASK
        seen |= new
    assert np.flatnonzero(np.unpackbits(marks, bitorder="little")).tolist() == sorted(seen)


def test_digest_tells_a_target_from_its_equal_in_another_document() -> None:
    """The same token, at the same place, of the same word: protected in one document, not in the other."""
    windows, allowed, violated = np.array([0, 1]), np.array([[-100, 9], [9, 9]]), np.array([[9, 9], [-100, 9]])
    assert hash_ids(allowed, windows, 3, 7) != hash_ids(violated, windows, 3, 7)


@pytest.mark.parametrize(
    ("word_ids", "expected"),
    [([0, 0, -1, 1, 0], 0), ([1, 0, 0], 2), ([-2, 0], 1), ([0, 2, -1, 1], 1), ([], 0)],
)
def test_words_out_of_order_are_counted(word_ids: list[int], expected: int) -> None:
    """Documents of four tokens at most: the first case is two of them."""
    offsets = np.array([0, min(4, len(word_ids)), len(word_ids)])
    assert count_disorder(np.array(word_ids, dtype=np.int32), offsets) == expected
