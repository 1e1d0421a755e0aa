"""Windows: consecutive tokens of one document, cut to the model's length and batched.

A window never contains two documents, so it never contains two individuals. The order of an epoch is a pure function of
(seed, epoch). Batches hold windows of similar length, so there is little padding. One thread prepares batches ahead;
there are no worker processes.

Shapes: B windows of a batch, T tokens of a window.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from reticent.core.errors import PolicyError
from reticent.engine.kernels import hash_keys
from reticent.engine.randomness import generator
from reticent.engine.window_kernels import cut_documents

if TYPE_CHECKING:
    import torch

    from reticent.engine.store import TokenStore


T = TypeVar("T")
#: Streams of the draw of one window of each document; those of the order are the epochs.
_STREAM_OF_EACH = 1 << 33


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecialIds:
    """Ids of the special tokens of a window; None if the tokenizer has none.

    ``end`` is the end-of-text token, which a causal model may be trained to predict; it is never an input.
    """

    prefix: int | None
    suffix: int | None
    pad: int
    mask: int | None
    end: int | None = None

    @property
    def num_added(self) -> int:
        """Number of special tokens that are added to a window."""
        return (self.prefix is not None) + (self.suffix is not None)


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of windows as arrays.

    Attributes
    ----------
    windows : int64 array, shape (B,)
        Numbers of the windows.
    input_ids : int64 array, shape (B, T)
    word_ids : int32 array, shape (B, T), -1 outside words, at special tokens and padding
    flags : uint8 array, shape (B, T), 0 at special tokens and padding
    is_text : bool array, shape (B, T), True for tokens of the document, False for special tokens and padding
    attention : bool array, shape (B, T), False for padding
    keys : int64 array, shape (B,)
        Keys of a window's random draws: its number or, in DP-SGD, a hash of its document and position.

    Where the ends of texts are targets (`Windows.with_ends`), all but ``attention`` have one column more, which no
    model reads: an end follows the last token of its document and counts as text, in a full window too.
    """

    windows: np.ndarray
    input_ids: np.ndarray
    word_ids: np.ndarray
    flags: np.ndarray
    is_text: np.ndarray
    attention: np.ndarray
    keys: np.ndarray

    @property
    def inputs(self) -> np.ndarray:
        """Token ids of the model's input, int64 (B, T), the shape of ``attention``."""
        return np.ascontiguousarray(self.input_ids[:, : self.attention.shape[1]])

    @property
    def num_tokens(self) -> int:
        """Number of document tokens that a model reads."""
        return int(np.count_nonzero(self.is_text[:, : self.attention.shape[1]] & self.attention))


@dataclass(frozen=True, slots=True)
class Windows:
    """All windows of a store; see :func:`cut_windows`."""

    store: TokenStore
    special: SpecialIds
    documents: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    #: Largest number of tokens in a window, special ones included, for which the model has positions.
    longest: int
    pad_to_multiple_of: int = 8
    #: Whether batches hold the end-of-text token of each document as a target; see `Batch`.
    with_ends: bool = False
    #: Key of each window's random draws, int64; None: its number.
    keys: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.starts)

    def epoch_order(self, batch_size: int, *, seed: int, epoch: int) -> list[np.ndarray]:
        """Return the batches of one epoch, each an array of window numbers, in an order drawn by (seed, epoch); windows
        of similar length are in the same batch."""
        random = generator(seed, epoch)
        order = random.permutation(len(self))
        pool = batch_size * 64
        batches = []
        for start in range(0, len(order), pool):
            part = order[start : start + pool]
            part = part[np.argsort(self.lengths[part], kind="stable")]
            batches += [part[i : i + batch_size] for i in range(0, len(part), batch_size)]
        return [batches[i] for i in random.permutation(len(batches))]

    def scoring_order(self, batch_size: int) -> list[np.ndarray]:
        """Return batches of all windows, longest first, so that memory peaks at the start."""
        order = np.argsort(-self.lengths, kind="stable")
        return [order[i : i + batch_size] for i in range(0, len(order), batch_size)]

    def one_of_each(self, *, seed: int, epoch: int) -> Windows:
        """Return one random window of each document, drawn by (seed, epoch), so that long documents weigh no more."""
        firsts = np.flatnonzero(np.diff(self.documents, prepend=-1))
        counts = np.diff(np.append(firsts, len(self)))
        chance: np.ndarray
        if self.keys is None:
            chance = generator(seed, _STREAM_OF_EACH + epoch).random(len(firsts))
        else:
            chance = (hash_keys(seed, self.keys[firsts], _STREAM_OF_EACH + epoch) >> 11) * 2.0**-53
        chosen = firsts + (chance * counts).astype(np.int64)
        columns = {name: getattr(self, name) for name in ("documents", "starts", "lengths", "keys")}
        return replace(self, **{name: column[chosen] for name, column in columns.items() if column is not None})

    def gather(self, windows: np.ndarray) -> Batch:
        """Return the windows with these numbers as one padded batch, special tokens added."""
        special, store = self.special, self.store
        starts, lengths = self.starts[windows], self.lengths[windows]
        offset = int(special.prefix is not None)
        width = self.padded_width(int(lengths.max(initial=0)) + special.num_added)
        shape = (len(windows), width + self.with_ends)
        input_ids = np.empty(shape, dtype=np.int64)
        word_ids = np.empty(shape, dtype=np.int32)
        flags = np.empty(shape, dtype=np.uint8)
        documents = self.documents[windows]
        store.gather(documents, starts, lengths, offset, special.pad, (input_ids, word_ids, flags))
        columns = np.arange(shape[1])
        end = (offset + lengths)[:, None]
        is_text = (columns >= offset) & (columns < end)
        attention = (columns < end + (special.suffix is not None))[:, :width]
        if special.prefix is not None:
            input_ids[:, 0] = special.prefix
        if special.suffix is not None:
            input_ids[np.arange(len(windows)), offset + lengths] = special.suffix
        if self.with_ends:
            assert special.end is not None
            last = np.flatnonzero(starts + lengths == store.doc_offsets[documents + 1])
            behind = last, offset + lengths[last]
            input_ids[behind], is_text[behind] = special.end, True
        numbers = np.asarray(windows, dtype=np.int64)
        keys = numbers if self.keys is None else self.keys[numbers]
        return Batch(numbers, input_ids, word_ids, flags, is_text, attention, keys)

    def padded_width(self, length: int) -> int:
        """Return the width to which rows of ``length`` tokens are padded: the next multiple that suits the device, but
        at most the longest window."""
        return min(-(-length // self.pad_to_multiple_of) * self.pad_to_multiple_of, self.longest)

    def token_positions(self, windows: np.ndarray, width: int) -> np.ndarray:
        """Return for each position of a batch the index of its token in the store, int64 (B, T); -1 for special tokens
        and padding.
        """
        offset = int(self.special.prefix is not None)
        columns = np.arange(width) - offset
        inside = (columns >= 0) & (columns < self.lengths[windows][:, None])
        return np.where(inside, self.starts[windows][:, None] + columns, -1)


def padding_multiple(device: torch.device) -> int:
    """Return the multiple, in tokens, to which rows are padded on a device, as suits its matrix units."""
    return 64 if device.type == "cuda" else 8


def cut_windows(
    store: TokenStore,
    length: int,
    special: SpecialIds,
    *,
    pad_to_multiple_of: int = 8,
    with_ends: bool = False,
    keyed: bool = False,
) -> Windows:
    """Return every document cut into windows of at most ``length`` tokens, special tokens included. ``with_ends``:
    batches hold the end-of-text token as a target too. ``keyed``: random draws go by document and position, not by
    window number.

    Raises
    ------
    PolicyError
        The length has no room for a token of the document beside the special tokens.
    """
    capacity = length - special.num_added
    if capacity < 1:
        raise PolicyError(f"window_length: {length} leaves no room beside {special.num_added} special tokens")
    documents, starts, lengths = cut_documents(store.doc_offsets, capacity)
    ends = with_ends and special.end is not None
    keys = None
    if keyed:
        keys = hash_keys(0, store.doc_keys[documents] ^ (starts - store.doc_offsets[documents]), 0).view(np.int64)
    return Windows(store, special, documents, starts, lengths, length, pad_to_multiple_of, ends, keys)


def prefetched(items: Iterable[T], depth: int = 4) -> Generator[T, None, None]:
    """Yield ``items``, which one thread produces up to ``depth`` ahead; an error in that thread is raised here."""
    ready: queue.Queue[tuple[str, object]] = queue.Queue(maxsize=depth)
    stopped = threading.Event()

    def put(kind: str, value: object) -> bool:
        """Put an item into the queue; return False if the consumer has stopped."""
        while not stopped.is_set():
            try:
                ready.put((kind, value), timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def work() -> None:
        """Produce the items into the queue, then an end mark, or the error."""
        try:
            for item in items:
                if not put("item", item):
                    return
            put("end", None)
        except BaseException as error:
            put("error", error)

    thread = threading.Thread(target=work, name="reticent-prefetch", daemon=True)
    thread.start()
    try:
        while True:
            kind, value = ready.get()
            if kind == "end":
                return
            if kind == "error":
                raise value  # type: ignore[misc]
            yield value  # type: ignore[misc]
    finally:
        stopped.set()
        thread.join()
