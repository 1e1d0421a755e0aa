"""Windows: every token once, one document at a time, in an order that is a function of seed and epoch."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from fixtures.drawing import examples
from fixtures.models import toy_model
from fixtures.stores import make_store, random_store, words_of
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.core.errors import PolicyError
from reticent.engine.store import TokenStore
from reticent.trainer.windows import Batch, SpecialIds, Windows, cut_windows, prefetched

BERT = SpecialIds(prefix=2, suffix=3, pad=0, mask=4)
GPT2 = SpecialIds(prefix=1, suffix=None, pad=1, mask=None)
BARE = SpecialIds(prefix=None, suffix=None, pad=9, mask=None)
SPECIALS = st.sampled_from([BERT, GPT2, BARE])
stores = st.lists(st.integers(0, 40), min_size=0, max_size=8).map(
    lambda lengths: make_store(*([(10 + i, i // 2, i % 4) for i in range(length)] for length in lengths))
)


def documents(*lengths: int) -> TokenStore:
    """Documents whose token ids count on from 10 through the whole store; words of two tokens, flags 0, 1, 2, 3, 0 …"""
    ids = itertools.count(10)
    return make_store(*([(next(ids), i // 2, i % 4) for i in range(length)] for length in lengths))


def all_batches(windows: Windows, batch_size: int = 3, seed: int = 0, epoch: int = 1) -> list[Batch]:
    return [windows.gather(numbers) for numbers in windows.epoch_order(batch_size, seed=seed, epoch=epoch)]


def test_a_hand_worked_batch() -> None:
    store = documents(3, 0, 5)
    windows = cut_windows(store, 5, BERT, pad_to_multiple_of=4)  # 3 tokens of text fit beside [CLS] and [SEP]
    assert windows.documents.tolist() == [0, 2, 2]
    assert windows.starts.tolist() == [0, 3, 6]
    assert windows.lengths.tolist() == [3, 3, 2]
    batch = windows.gather(np.array([2, 0]))  # the next multiple of 4 is more than a window may have
    assert batch.windows.tolist() == [2, 0]
    assert batch.input_ids.tolist() == [[2, 16, 17, 3, 0], [2, 10, 11, 12, 3]]
    assert batch.word_ids.tolist() == [[-1, 1, 2, -1, -1], [-1, 0, 0, 1, -1]]
    assert batch.flags.tolist() == [[0, 3, 0, 0, 0], [0, 0, 1, 2, 0]]
    assert batch.is_text.astype(int).tolist() == [[0, 1, 1, 0, 0], [0, 1, 1, 1, 0]]
    assert batch.attention.astype(int).tolist() == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]


@settings(max_examples=examples(150))
@given(stores, st.integers(3, 20), SPECIALS, st.integers(1, 4), st.integers(0, 5))
def test_an_epoch_holds_every_token_exactly_once(
    store: TokenStore, length: int, special: SpecialIds, batch_size: int, epoch: int
) -> None:
    windows = cut_windows(store, length, special, pad_to_multiple_of=4)
    seen = np.zeros(store.num_tokens, dtype=int)
    for batch in all_batches(windows, batch_size, epoch=epoch):
        positions = windows.token_positions(batch.windows, batch.input_ids.shape[1])
        assert (positions >= 0).tolist() == batch.is_text.tolist()
        at = positions[batch.is_text]
        np.add.at(seen, at, 1)
        assert (batch.input_ids[batch.is_text] == store.input_ids[at]).all()
        assert (batch.word_ids[batch.is_text] == store.word_ids[at]).all()
        assert (batch.flags[batch.is_text] == store.flags[at]).all()
    assert (seen == 1).all()


@settings(max_examples=examples(150))
@given(stores, st.integers(3, 20), SPECIALS)
def test_no_window_holds_two_documents(store: TokenStore, length: int, special: SpecialIds) -> None:
    windows = cut_windows(store, length, special)
    owner = np.repeat(np.arange(store.num_documents), np.diff(store.doc_offsets))
    for window in range(len(windows)):
        batch = windows.gather(np.array([window]))
        positions = windows.token_positions(batch.windows, batch.input_ids.shape[1])
        assert set(owner[positions[positions >= 0]]) == {windows.documents[window]}


def test_no_window_holds_two_individuals_though_their_documents_are_neighbours() -> None:
    store = make_store([(10, 0, 0)] * 3, [(11, 0, 0)] * 3, [(12, 0, 0)] * 3, individual=[7, 7, 8])
    windows = cut_windows(store, 512, GPT2)
    assert len(windows) == 3
    rows = windows.gather(np.arange(3))
    assert [set(row[text]) for row, text in zip(rows.input_ids, rows.is_text, strict=True)] == [{10}, {11}, {12}]


@settings(max_examples=examples(100))
@given(stores, st.integers(3, 20), SPECIALS, st.sampled_from([1, 8, 64]))
def test_special_tokens_and_padding_stand_where_they_should(
    store: TokenStore, length: int, special: SpecialIds, multiple: int
) -> None:
    windows = cut_windows(store, length, special, pad_to_multiple_of=multiple)
    for batch in all_batches(windows):
        width = batch.input_ids.shape[1]
        assert width % multiple == 0 or width == length  # a model may have positions for no more
        assert width <= length
        assert width - multiple < max(batch.attention.sum(axis=1))  # no more padding than the multiple asks for
        assert (batch.attention.sum(axis=1) <= length).all()
        outside = ~batch.is_text
        assert (batch.word_ids[outside] == -1).all()
        assert (batch.flags[outside] == 0).all()
        assert (batch.input_ids[~batch.attention] == special.pad).all()
        for row, text, attended in zip(batch.input_ids, batch.is_text, batch.attention, strict=True):
            end = int(attended.sum())
            assert attended[:end].all()  # padding stands on the right
            dressed = [row[0]] * (special.prefix is not None) + [row[end - 1]] * (special.suffix is not None)
            assert dressed == [token for token in (special.prefix, special.suffix) if token is not None]
            assert int(text.sum()) == end - special.num_added


@pytest.mark.parametrize(
    ("length", "expected"), [(1, [1]), (5, [5]), (6, [6]), (7, [6, 1]), (12, [6, 6]), (13, [6, 6, 1])]
)
def test_a_document_is_cut_at_the_capacity_and_nowhere_else(length: int, expected: list[int]) -> None:
    assert cut_windows(documents(length), 8, BERT).lengths.tolist() == expected


def test_an_empty_document_has_no_window() -> None:
    windows = cut_windows(documents(0, 2, 0), 8, BERT)
    assert windows.documents.tolist() == [1]


@pytest.mark.parametrize("lengths", [(), (0,), (0, 0, 0)])
def test_a_corpus_without_tokens_has_no_batches(lengths: tuple[int, ...]) -> None:
    windows = cut_windows(documents(*lengths), 8, BERT)
    assert len(windows) == 0
    assert windows.epoch_order(4, seed=0, epoch=1) == []
    assert windows.scoring_order(4) == []


@pytest.mark.parametrize(("special", "length"), [(BERT, 2), (BERT, 1), (GPT2, 1), (BARE, 0)])
def test_a_window_without_room_for_text_is_refused(special: SpecialIds, length: int) -> None:
    with pytest.raises(PolicyError, match="window_length"):
        cut_windows(documents(4), length, special)
    assert len(cut_windows(documents(4), special.num_added + 1, special)) == 4


def order(windows: Windows, seed: int, epoch: int, batch_size: int = 4) -> list[list[int]]:
    return [numbers.tolist() for numbers in windows.epoch_order(batch_size, seed=seed, epoch=epoch)]


def test_the_order_is_a_function_of_seed_and_epoch_alone() -> None:
    windows, again = (cut_windows(documents(*range(1, 60)), 16, BERT) for _ in range(2))
    third = order(windows, seed=5, epoch=3)
    assert order(again, seed=5, epoch=3) == third  # without the epochs before it: a resumed run goes on where it was
    assert order(windows, seed=5, epoch=4) != third
    assert order(windows, seed=6, epoch=3) != third
    orders = {str(order(windows, seed=5, epoch=epoch)) for epoch in range(20)}
    assert len(orders) == 20


def test_every_epoch_deals_windows_to_other_batches() -> None:
    windows = cut_windows(documents(*[8] * 60), 16, BERT)  # of one length: sorting by it must not undo the shuffle
    first, second = ({frozenset(batch) for batch in order(windows, 0, epoch)} for epoch in (1, 2))
    assert not first & second


def test_any_seed_makes_an_order_of_its_own() -> None:
    windows = cut_windows(documents(*range(1, 60)), 64, BERT)
    seeds = [0, -1, -2, 2**63 - 1, 2**63, 2**64 - 3]
    orders = [order(windows, seed, epoch=1) for seed in seeds]
    assert all(sorted(itertools.chain(*one)) == list(range(59)) for one in orders)
    assert len({str(one) for one in orders}) == len(seeds)


def test_batches_are_full_but_one_and_of_similar_lengths() -> None:
    windows = cut_windows(documents(*[1, 14] * 32), 16, BERT)
    batches = order(windows, seed=0, epoch=1, batch_size=8)
    assert sorted(map(len, batches)) == [8] * 8
    assert all(len(set(windows.lengths[batch].tolist())) == 1 for batch in batches)
    assert sorted(map(len, order(windows, seed=0, epoch=1, batch_size=10))) == [4, *[10] * 6]


def test_scoring_goes_through_every_window_once_and_the_longest_first() -> None:
    windows = cut_windows(random_store(30), 16, BERT)
    numbers = np.concatenate(windows.scoring_order(4))
    assert sorted(numbers.tolist()) == list(range(len(windows)))
    assert (np.diff(windows.lengths[numbers]) <= 0).all()


def test_words_keep_their_numbers_when_a_window_cuts_them() -> None:
    store = make_store([(10, 0, 1), (11, 0, 1), (12, 0, 1), (13, 1, 0)])
    rows = cut_windows(store, 4, BERT).gather(np.array([0, 1]))
    assert rows.word_ids[rows.is_text].tolist() == [0, 0, 0, 1]
    assert rows.flags[rows.is_text].tolist() == [1, 1, 1, 0]
    assert words_of(store)[0][2] == (12, 0, 1)


# ------------------------------------------------------------------ the thread


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "reticent-prefetch"]


def assert_no_thread_is_left() -> None:
    deadline = time.monotonic() + 5
    while threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threads() == []


def test_prefetching_keeps_items_and_order() -> None:
    assert list(prefetched(iter(range(100)), depth=3)) == list(range(100))
    assert list(prefetched([])) == []
    assert_no_thread_is_left()


def test_an_error_of_the_maker_is_raised_where_the_items_are_used() -> None:
    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise PolicyError("made of nothing")

    consumer = prefetched(items())
    assert [next(consumer), next(consumer)] == [1, 2]
    with pytest.raises(PolicyError, match="made of nothing"):
        next(consumer)
    assert_no_thread_is_left()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError])
def test_even_an_error_that_is_no_exception_reaches_the_consumer(error: type[BaseException]) -> None:
    def items() -> Iterator[int]:
        raise error
        yield 1

    with pytest.raises(error):
        list(prefetched(items()))


def test_the_thread_makes_no_more_than_its_depth_ahead() -> None:
    made = []

    def items() -> Iterator[int]:
        for number in range(50):
            made.append(number)
            yield number

    consumer = prefetched(items(), depth=3)
    assert next(consumer) == 0
    time.sleep(0.3)
    assert len(made) <= 1 + 3 + 1  # one taken, three ready, one in hand
    consumer.close()  # type: ignore[attr-defined]
    assert_no_thread_is_left()


def test_the_thread_stops_when_the_consumer_leaves() -> None:
    made = []

    def items() -> Iterator[int]:
        for number in itertools.count():
            made.append(number)
            yield number

    for item in prefetched(items(), depth=2):
        if item == 5:
            break
    assert_no_thread_is_left()
    num_made = len(made)
    time.sleep(0.2)
    assert len(made) == num_made < 20


def test_the_thread_stops_when_the_consumer_fails() -> None:
    def consume() -> None:
        for _ in prefetched(itertools.count(), depth=2):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        consume()
    assert_no_thread_is_left()


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_a_row_is_no_longer_than_the_positions_of_its_model(kind: str) -> None:
    store = documents(41)
    for multiple in (8, 64):
        batch = cut_windows(store, 43, BERT, pad_to_multiple_of=multiple).gather(np.array([0]))
        with torch.no_grad():
            logits = toy_model(kind, max_length=43)(input_ids=torch.from_numpy(batch.input_ids)).logits
        assert logits.shape[1] == 43
