"""Numba kernels over token and word arrays: hashes, draws, words, covers. Rust handles strings.

Kernels over windows stand in `window_kernels`, kernels over the values of a document in `document_kernels`.

All kernels release the interpreter lock, none is parallel (a forked child would hang), and compiled code is cached on
disk. Randomness is counter-based: a draw depends on (seed, epoch, window, word) and on nothing else, so it does not
change with the batching, order or resumption of windows. A window goes by its number or, in DP-SGD, by a key of its
document and place, which no other individual moves. Computations that are as fast in NumPy have no kernel;
``benchmarks/kernels.py`` compares each kernel with its NumPy form. Offsets are CSR bounds: document d has
``offsets[d]:offsets[d + 1]``.
"""

from __future__ import annotations

import numba
import numpy as np

__all__ = [
    "all_tokens_of_words",
    "count_disorder",
    "draw_counts",
    "draw_words",
    "goldfish_drops",
    "hash_ids",
    "hash_keys",
    "hash_slices",
    "mark_tokens",
    "number_tuples",
    "protected_words",
    "replace_words",
    "word_slots",
]

_jit = numba.njit(nogil=True, cache=True)


@_jit
def _mix(state: np.uint64) -> np.uint64:
    """Return a 64-bit number with its bits mixed (the splitmix64 finaliser)."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


@_jit
def _hash(seed: np.uint64, epoch: np.uint64, window: np.uint64, word: np.uint64) -> np.uint64:
    """Return a 64-bit hash of (seed, epoch, window, word), for counter-based random draws."""
    golden = np.uint64(0x9E3779B97F4A7C15)
    state = _mix(seed + golden)
    state = _mix(state ^ (epoch + golden))
    state = _mix(state ^ (window + golden))
    return _mix(state ^ (word + golden))


@_jit
def hash_slices(data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return a 64-bit hash (int64) of each byte slice ``data[starts[i] : ends[i]]``: FNV-1a, then mixed."""
    hashes = np.empty(len(starts), dtype=np.int64)
    for row in range(len(starts)):
        state = np.uint64(0xCBF29CE484222325)
        for at in range(starts[row], ends[row]):
            state = (state ^ np.uint64(data[at])) * np.uint64(0x100000001B3)
        hashes[row] = np.int64(_mix(state))
    return hashes


@_jit
def hash_keys(seed: int, keys: np.ndarray, purpose: int) -> np.ndarray:
    """Return a keyed 64-bit hash of each integer in ``keys``, uint64. The key is the pair (``seed``, ``purpose``) of
    secret 64-bit numbers."""
    hashes = np.empty(len(keys), dtype=np.uint64)
    for row in range(len(keys)):
        hashes[row] = _hash(np.uint64(seed), np.uint64(keys[row]), np.uint64(purpose), np.uint64(0))
    return hashes


@_jit
def count_disorder(word_ids: np.ndarray, doc_offsets: np.ndarray) -> int:
    """Return the number of tokens whose word number is invalid: below -1, or lower than an earlier one of the same
    document."""
    found = 0
    for document in range(len(doc_offsets) - 1):
        last = 0
        for token in range(doc_offsets[document], doc_offsets[document + 1]):
            word = word_ids[token]
            found += word < -1 or 0 <= word < last
            last = max(last, word)
    return found


@_jit
def draw_words(
    word_ids: np.ndarray,
    protected: np.ndarray,
    windows: np.ndarray,
    share: float,
    seed: int,
    epoch: int,
    out: np.ndarray,
) -> int:
    """Select a random ``share`` of the unprotected words in each row of a batch, to be masked, and mark their tokens in
    ``out`` (bool, (B, T)); return the number of tokens of all unprotected words. ``windows`` numbers the rows, for the
    draw.

    A word is eligible when none of its tokens in the row is protected. Of E eligible words round(share * E) are drawn,
    at least one if there is any: those with the smallest hash of (seed, epoch, window, word).

    Parameters
    ----------
    word_ids : int32 array, shape (B, T), -1 outside words
    protected : bool array, shape (B, T)
    windows : int64 array, shape (B,), the number of each row's window
    out : bool array, shape (B, T), set to True at every token of a drawn word, else False
    """
    num_rows, length = word_ids.shape
    hashes = np.empty(length, dtype=np.uint64)
    eligible_tokens = 0
    for row in range(num_rows):
        out[row, :] = False
        num_eligible = 0
        at = 0
        while at < length:
            word = word_ids[row, at]
            end = at + 1
            while end < length and word_ids[row, end] == word:
                end += 1
            if word >= 0 and not protected[row, at:end].any():
                hashes[num_eligible] = _hash(
                    np.uint64(seed), np.uint64(epoch), np.uint64(windows[row]), np.uint64(word)
                )
                num_eligible += 1
                eligible_tokens += end - at
            at = end
        if num_eligible == 0:
            continue
        num_drawn = min(num_eligible, max(1, int(np.floor(share * num_eligible + 0.5))))
        threshold = np.sort(hashes[:num_eligible])[num_drawn - 1]
        at = 0
        seen = 0
        while at < length:
            word = word_ids[row, at]
            end = at + 1
            while end < length and word_ids[row, end] == word:
                end += 1
            if word >= 0 and not protected[row, at:end].any():
                if hashes[seen] <= threshold:
                    out[row, at:end] = True
                seen += 1
            at = end
    return eligible_tokens


@_jit
def replace_words(
    input_ids: np.ndarray,
    drawn: np.ndarray,
    word_ids: np.ndarray,
    windows: np.ndarray,
    mask_id: int,
    random_ids: np.ndarray,
    masked_share: float,
    random_share: float,
    seed: int,
    epoch: int,
    out: np.ndarray,
) -> None:
    """Copy ``input_ids`` to ``out`` (B, T), with each word marked in ``drawn`` replaced by mask tokens (probability
    ``masked_share``), by random tokens (``random_share``), or left unchanged, as masked language modelling does.

    The fate of a word is one draw of (seed, epoch, window, word), so all its tokens share it; each random token is
    a draw of its own, uniform over ``random_ids``. Where no share is random, that array may be empty.
    """
    num_rows, length = input_ids.shape
    for row in range(num_rows):
        place = 0  # of a token in its word
        for at in range(length):
            place = place + 1 if at > 0 and word_ids[row, at] == word_ids[row, at - 1] else 0
            out[row, at] = input_ids[row, at]
            if not drawn[row, at]:
                continue
            state = _hash(np.uint64(seed), np.uint64(epoch), np.uint64(windows[row]), np.uint64(word_ids[row, at]))
            state = _mix(state ^ np.uint64(0xD1B54A32D192ED03))  # `draw_words` chose the smallest of the first draw
            chance = (state >> np.uint64(11)) * 2.0**-53
            if chance < masked_share:
                out[row, at] = mask_id
            elif chance < masked_share + random_share:
                state = _mix(state + np.uint64(place + 1) * np.uint64(0x9E3779B97F4A7C15))
                out[row, at] = random_ids[np.int64(state % np.uint64(len(random_ids)))]


@_jit
def goldfish_drops(input_ids: np.ndarray, doc_offsets: np.ndarray, k: int, h: int) -> np.ndarray:
    """Return which tokens the goldfish loss excludes, bool (N,): those where a hash of the ``h`` preceding token ids
    falls into the lowest 1 / k of its range. The first h tokens of a document are never excluded."""
    dropped = np.zeros(len(input_ids), dtype=np.bool_)
    golden = np.uint64(0x9E3779B97F4A7C15)
    # The number of hashes below 2^64 / k, which 64 bits hold as k >= 2.
    threshold = np.uint64(0xFFFFFFFFFFFFFFFF) // np.uint64(k)
    for document in range(len(doc_offsets) - 1):
        for token in range(doc_offsets[document] + h, doc_offsets[document + 1]):
            state = golden
            for before in range(token - h, token):
                state = _mix(state ^ (np.uint64(input_ids[before]) + golden))
            dropped[token] = state < threshold
    return dropped


@_jit
def hash_ids(ids: np.ndarray, windows: np.ndarray, seed: int, epoch: int) -> np.uint64:
    """Return a checksum (sum modulo 2^64) of the token ids of a batch, such as its prediction targets, each hashed with
    seed, epoch, window number and column; negative entries are skipped.

    A sum, so that it is the same however the windows are batched, and adds up over processes. Where a target stands is
    in it: a token that is protected in one document cannot pass for its equal in another.
    """
    total = np.uint64(0)
    num_rows, length = ids.shape
    for row in range(num_rows):
        for at in range(length):
            if ids[row, at] >= 0:
                state = _hash(np.uint64(seed), np.uint64(epoch), np.uint64(windows[row]), np.uint64(at))
                total += _mix(state ^ (np.uint64(ids[row, at]) + np.uint64(0x9E3779B97F4A7C15)))
    return total


@_jit
def mark_tokens(marks: np.ndarray, indices: np.ndarray, ids: np.ndarray) -> np.uint64:
    """Set the bit of each token index in ``marks`` (uint8, lowest bit first) and return a checksum (sum modulo 2^64) of
    index and token id of those whose bit was not set before."""
    total = np.uint64(0)
    for at in range(len(indices)):
        index = indices[at]
        bit = np.uint8(1 << (index & 7))
        if not marks[index >> 3] & bit:
            marks[index >> 3] |= bit
            total += _hash(np.uint64(0), np.uint64(0), np.uint64(index), np.uint64(ids[at]))
    return total


@_jit
def word_slots(word_ids: np.ndarray, doc_offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return for each word of the documents its first token (int64), number of tokens (int32) and document (int64),
    given each token's word number."""
    num_slots = 0
    for document in range(len(doc_offsets) - 1):
        last = -1
        for token in range(doc_offsets[document], doc_offsets[document + 1]):
            if word_ids[token] >= 0 and word_ids[token] != last:
                num_slots += 1
            last = word_ids[token]
    starts = np.empty(num_slots, dtype=np.int64)
    lengths = np.zeros(num_slots, dtype=np.int32)
    documents = np.empty(num_slots, dtype=np.int64)
    slot = -1
    for document in range(len(doc_offsets) - 1):
        last = -1
        for token in range(doc_offsets[document], doc_offsets[document + 1]):
            word = word_ids[token]
            if word >= 0:
                if word != last:
                    slot += 1
                    starts[slot] = token
                    documents[slot] = document
                lengths[slot] += 1
            last = word
    return starts, lengths, documents


@_jit
def protected_words(ngram_starts: np.ndarray, offsets: np.ndarray, policy: int, max_n: int) -> np.ndarray:
    """Return which words a policy protects, bool (W,). Bit n - 1 of ``ngram_starts``, uint8 (W,), is set where a
    minimal identifying n-gram of n words starts; ``offsets`` bounds the documents, in words.

    The same as ``NgramIndex.protect`` without ``max_document_frequency``, for any policy and any ``max_n`` up to the
    one that ``ngram_starts`` was made with: one look-up of the n-grams serves them all.

    Parameters
    ----------
    ngram_starts : uint8 array, shape (W,), bit n - 1 where a minimal n-gram of n words starts. Of words, not of tokens:
        two words can share a token, whose n-grams then would all start at the first
    offsets : int64 array, shape (D + 1,), in words
    policy : number of the policy in :data:`reticent.engine.protect.POLICIES` (all, last, cover, paper)
    """
    taken = np.zeros(len(ngram_starts), dtype=np.bool_)
    for document in range(len(offsets) - 1):
        begin, stop = offsets[document], offsets[document + 1]
        free = begin
        for last in range(begin, stop):
            # From the shortest n-gram that ends here: the cover takes its last word unless it holds a taken one.
            for first in range(last, max(begin, last - max_n + 1) - 1, -1):
                if not ngram_starts[first] >> (last - first) & 1:
                    continue
                if policy == 0:
                    taken[first : last + 1] = True
                elif policy == 3:
                    taken[max(begin, last + 1 - max_n) : min(stop, first + max_n)] = True
                elif policy == 1 or first >= free:
                    taken[last] = True
                    free = last + 1
    return taken


@_jit
def number_tuples(values: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return an integer code for each tuple ``values[starts[i] : starts[i] + lengths[i]]``, and for each code the first
    i that has it. Two tuples have the same code only if they are equal.

    Numbers run from 0 in the order of first appearance. A hash table of the distinct tuples, compared by value.

    Returns
    -------
    numbers : int64 array, shape (S,)
    first : int64 array, shape (number of distinct tuples,), the first i of each
    """
    numbers = np.empty(len(starts), dtype=np.int64)
    first = np.empty(1 << 10, dtype=np.int64)
    hashes = np.empty(1 << 10, dtype=np.uint64)
    table = np.full(1 << 11, -1, dtype=np.int64)
    used = 0
    for i in range(len(starts)):
        start, length = starts[i], lengths[i]
        state = np.uint64(length)
        for j in range(length):
            state = _mix(state ^ (np.uint64(values[start + j]) + np.uint64(0x9E3779B97F4A7C15)))
        place = np.int64(state & np.uint64(len(table) - 1))
        while True:
            number = table[place]
            if number < 0:
                break
            if hashes[number] == state and lengths[first[number]] == length:
                other = starts[first[number]]
                j = 0
                while j < length and values[start + j] == values[other + j]:
                    j += 1
                if j == length:
                    break
            place = (place + 1) & (len(table) - 1)
        if number < 0:
            number = used
            used += 1
            first[number] = i
            hashes[number] = state
            table[place] = number
            if used == len(first):
                first = np.concatenate((first, np.empty_like(first)))
                hashes = np.concatenate((hashes, np.empty_like(hashes)))
                table = np.full(2 * len(table), -1, dtype=np.int64)
                for old in range(used):
                    place = np.int64(hashes[old] & np.uint64(len(table) - 1))
                    while table[place] >= 0:
                        place = (place + 1) & (len(table) - 1)
                    table[place] = old
        numbers[i] = number
    return numbers, first[:used].copy()


@_jit
def all_tokens_of_words(values: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return for each word whether ``values`` (bool, one entry per token) is True at every token of the word, bool
    (num_words,)."""
    out = np.ones(len(starts), dtype=np.bool_)
    for word in range(len(starts)):
        for token in range(starts[word], starts[word] + lengths[word]):
            out[word] &= values[token]
    return out


@_jit
def draw_counts(seed: int, first_row: int, out: np.ndarray) -> None:
    """Fill each row of ``out`` (R, num), float64, with bootstrap counts: how often each of ``num`` items is drawn in
    ``num`` draws with replacement. The first row is resample number ``first_row``.

    Row r is resample ``first + r``: a function of (seed, first + r, num), however rows are blocked.
    """
    num_rows, num = out.shape
    for row in range(num_rows):
        out[row, :] = 0.0
        state = _hash(np.uint64(seed), np.uint64(first_row + row), np.uint64(num), np.uint64(0))
        for _ in range(num):
            state += np.uint64(0x9E3779B97F4A7C15)
            # 53 random bits as a number in [0, 1): unequal by at most num / 2^53.
            out[row, int((_mix(state) >> np.uint64(11)) * (num * 2.0**-53))] += 1.0
