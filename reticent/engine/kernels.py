"""Numba kernels over token and word arrays: windows, gathers, draws, covers, reductions. Strings are Rust's.

All release the interpreter lock, none is parallel (a forked child would hang), and compiled code is cached on disk.
Randomness is counter-based: a draw depends on (seed, epoch, window, word) and on nothing else, so it is the same
however windows are batched, ordered or resumed. What NumPy does as fast is not here; ``benchmarks/kernels.py`` times
each of these beside its NumPy form. Offsets are CSR bounds: document d holds ``offsets[d]:offsets[d + 1]``.
"""

from __future__ import annotations

import numba
import numpy as np

__all__ = [
    "count_disorder",
    "cut_documents",
    "document_lowest",
    "document_ranks",
    "document_sums",
    "document_window_wins",
    "draw_counts",
    "draw_words",
    "gather_windows",
    "goldfish_drops",
    "hash_slices",
    "hash_targets",
    "lay_rows",
    "number_tuples",
    "pack_rows",
    "protected_words",
    "replace_words",
    "word_slots",
    "words_all",
]

_jit = numba.njit(nogil=True, cache=True)


@_jit
def _mix(state: np.uint64) -> np.uint64:
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


@_jit
def _hash(seed: np.uint64, epoch: np.uint64, window: np.uint64, word: np.uint64) -> np.uint64:
    """Splitmix64 finaliser chained over the four counters."""
    golden = np.uint64(0x9E3779B97F4A7C15)
    state = _mix(seed + golden)
    state = _mix(state ^ (epoch + golden))
    state = _mix(state ^ (window + golden))
    return _mix(state ^ (word + golden))


@_jit
def hash_slices(data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return a 64-bit hash (int64) of each slice of the bytes: FNV-1a, mixed."""
    hashes = np.empty(len(starts), dtype=np.int64)
    for row in range(len(starts)):
        state = np.uint64(0xCBF29CE484222325)
        for at in range(starts[row], ends[row]):
            state = (state ^ np.uint64(data[at])) * np.uint64(0x100000001B3)
        hashes[row] = np.int64(_mix(state))
    return hashes


@_jit
def count_disorder(word_ids: np.ndarray, doc_offsets: np.ndarray) -> int:
    """Tokens whose word is below -1, or before a word that stood earlier in their document."""
    found = 0
    for document in range(len(doc_offsets) - 1):
        last = 0
        for token in range(doc_offsets[document], doc_offsets[document + 1]):
            word = word_ids[token]
            found += word < -1 or 0 <= word < last
            last = max(last, word)
    return found


@_jit
def cut_documents(doc_offsets: np.ndarray, capacity: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut documents into runs of at most ``capacity`` tokens; returns document, start and length of each (int64)."""
    num_windows = 0
    for document in range(len(doc_offsets) - 1):
        length = doc_offsets[document + 1] - doc_offsets[document]
        num_windows += (length + capacity - 1) // capacity
    documents = np.empty(num_windows, dtype=np.int64)
    starts = np.empty(num_windows, dtype=np.int64)
    lengths = np.empty(num_windows, dtype=np.int64)
    window = 0
    for document in range(len(doc_offsets) - 1):
        at, end = doc_offsets[document], doc_offsets[document + 1]
        while at < end:
            documents[window] = document
            starts[window] = at
            lengths[window] = min(capacity, end - at)
            at += capacity
            window += 1
    return documents, starts, lengths


@_jit
def gather_windows(
    values: np.ndarray, starts: np.ndarray, lengths: np.ndarray, offset: int, fill: int, out: np.ndarray
) -> None:
    """Copy each window of ``values`` to its row of ``out`` (B, T) from column ``offset``; the rest is ``fill``."""
    for row in range(len(starts)):
        out[row, :offset] = fill
        for i in range(lengths[row]):
            out[row, offset + i] = values[starts[row] + i]
        out[row, offset + lengths[row] :] = fill


@_jit
def pack_rows(lengths: np.ndarray, capacity: int) -> np.ndarray:
    """Deal windows of these lengths, longest first, to rows of ``capacity`` tokens; returns the row of each (int64).

    Best fit: each goes to the fullest row that has room. With falling lengths the number of rows depends on nothing
    but the lengths, and is at most 11/9 of the fewest possible, plus one. Cost: ``capacity`` steps a window at worst.
    """
    rows = np.empty(len(lengths), dtype=np.int64)
    newest = np.full(capacity + 1, -1, dtype=np.int64)  # by room left: the row that came to it last, a stack
    below = np.empty(len(lengths), dtype=np.int64)
    num_rows = 0
    for window in range(len(lengths)):
        room = lengths[window]
        while room <= capacity and newest[room] < 0:
            room += 1
        if room <= capacity:
            row = newest[room]
            newest[room] = below[row]
        else:
            row, room = num_rows, capacity
            num_rows += 1
        left = room - lengths[window]
        below[row] = newest[left]
        newest[left] = row
        rows[window] = row
    return rows


@_jit
def lay_rows(
    input_ids: np.ndarray,
    labels: np.ndarray,
    lengths: np.ndarray,
    rows: np.ndarray,
    columns: np.ndarray,
    out_ids: np.ndarray,
    out_labels: np.ndarray,
    segments: np.ndarray,
    positions: np.ndarray,
) -> None:
    """Lay window w of the arrays (W, S), ``lengths[w]`` long, into row ``rows[w]``, column ``columns[w]``, of (B, T).

    Cells of no window stay as they are; the others say in ``segments`` which window is theirs and in ``positions``
    where in it they stand.
    """
    for window in range(len(lengths)):
        row, column = rows[window], columns[window]
        for i in range(lengths[window]):
            out_ids[row, column + i] = input_ids[window, i]
            out_labels[row, column + i] = labels[window, i]
            segments[row, column + i] = window
            positions[row, column + i] = i


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
    """Draw whole words to mask in each row; returns the number of eligible tokens.

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
    """Copy ``input_ids`` to ``out`` (B, T) with each drawn word masked, or random tokens in its place, or as it is.

    What becomes of a word is one draw of (seed, epoch, window, word), so all its tokens share it; each random token is
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
    """Tokens that the goldfish loss drops, bool (N,): those where a hash of the h ids before them, as a share of its
    range, is below 1 / k. The first h tokens of a document stay: there is no h before them.
    """
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
def hash_targets(labels: np.ndarray, windows: np.ndarray, seed: int, epoch: int) -> np.uint64:
    """Sum (modulo 2^64) of a hash of (seed, epoch, window, column, label) over the targets of a batch.

    A sum, so that it is the same however the windows are batched, and adds up over processes. Where a target stands is
    in it: a token that is protected in one document cannot pass for its equal in another.
    """
    total = np.uint64(0)
    num_rows, length = labels.shape
    for row in range(num_rows):
        for at in range(length):
            if labels[row, at] >= 0:
                state = _hash(np.uint64(seed), np.uint64(epoch), np.uint64(windows[row]), np.uint64(at))
                total += _mix(state ^ (np.uint64(labels[row, at]) + np.uint64(0x9E3779B97F4A7C15)))
    return total


@_jit
def word_slots(word_ids: np.ndarray, doc_offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where each word of a store stands: first token (int64), number of tokens (int32), document (int64)."""
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
    """Words that a policy protects, bool (W,), from where the minimal identifying n-grams start.

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
    """Number the tuples ``values[starts[i] : starts[i] + lengths[i]]``: equal ones and only they share a number.

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
def words_all(values: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Whether every token of each word has ``values``, bool (S,); a word of no token has."""
    out = np.ones(len(starts), dtype=np.bool_)
    for word in range(len(starts)):
        for token in range(starts[word], starts[word] + lengths[word]):
            out[word] &= values[token]
    return out


@_jit
def document_sums(values: np.ndarray, chosen: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sum (float64) and number (int64) of each document's ``chosen`` values, in their order."""
    totals = np.zeros(len(offsets) - 1, dtype=np.float64)
    counts = np.zeros(len(offsets) - 1, dtype=np.int64)
    for document in range(len(offsets) - 1):
        for i in range(offsets[document], offsets[document + 1]):
            if chosen[i]:
                totals[document] += values[i]
                counts[document] += 1
    return totals, counts


@_jit
def document_lowest(values: np.ndarray, offsets: np.ndarray, share: float) -> np.ndarray:
    """Mean (float64) of the lowest ``share`` of each document's values that are not NaN, at least one; else NaN."""
    means = np.full(len(offsets) - 1, np.nan, dtype=np.float64)
    for document in range(len(offsets) - 1):
        part = values[offsets[document] : offsets[document + 1]]
        part = part[~np.isnan(part)]
        if len(part) == 0:
            continue
        num_kept = max(int(len(part) * share), 1)
        total = 0.0
        for value in np.partition(part, num_kept - 1)[:num_kept]:
            total += value
        means[document] = total / num_kept
    return means


@_jit
def document_window_wins(values: np.ndarray, offsets: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Share (float64) of each document's windows of values whose sum is over 0, as a mean over the sizes of windows.

    Values that are NaN are left out first; so are sizes that a document is too short for, and where all are, it is one
    window itself. NaN for a document without values.
    """
    means = np.full(len(offsets) - 1, np.nan, dtype=np.float64)
    for document in range(len(offsets) - 1):
        part = values[offsets[document] : offsets[document + 1]]
        part = part[~np.isnan(part)]
        running = np.zeros(len(part) + 1, dtype=np.float64)
        for i in range(len(part)):
            running[i + 1] = running[i] + part[i]
        total, num_sizes = 0.0, 0
        for size in sizes:
            if size <= len(part):
                num_over = 0
                for first in range(len(part) - size + 1):
                    num_over += running[first + size] > running[first]
                total += num_over / (len(part) - size + 1)
                num_sizes += 1
        if num_sizes:
            means[document] = total / num_sizes
        elif len(part):
            means[document] = 1.0 if running[-1] > 0.0 else 0.0
    return means


@_jit
def document_ranks(keys: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Rank of each key among those of its document, int64, from 0; the earlier of two equal ones comes first."""
    ranks = np.empty(len(keys), dtype=np.int64)
    for document in range(len(offsets) - 1):
        start = offsets[document]
        order = np.argsort(keys[start : offsets[document + 1]], kind="mergesort")
        for rank in range(len(order)):
            ranks[start + order[rank]] = rank
    return ranks


@_jit
def draw_counts(seed: int, first: int, out: np.ndarray) -> None:
    """Fill each row of ``out`` (R, num), float64, with how often each of num is drawn in num draws with replacement.

    Row r is resample ``first + r``: a function of (seed, first + r, num), however rows are blocked.
    """
    num_rows, num = out.shape
    for row in range(num_rows):
        out[row, :] = 0.0
        state = _hash(np.uint64(seed), np.uint64(first + row), np.uint64(num), np.uint64(0))
        for _ in range(num):
            state += np.uint64(0x9E3779B97F4A7C15)
            # 53 random bits as a number in [0, 1): unequal by at most num / 2^53.
            out[row, int((_mix(state) >> np.uint64(11)) * (num * 2.0**-53))] += 1.0
