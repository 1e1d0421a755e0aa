"""Models + tokens -> TokenScores: the one module that runs a model for likelihoods.

Every likelihood attack is a pure function of these scores. Logits are reduced on the device; only six numbers a token
reach the host. Windows are batched by length, and each batch goes through every model before the next is made; padding
is never scored, and scores do not depend on the batch size. The processes of a `World` divide the windows among them.

Shapes: B rows a batch, T cells a row, N scored cells, V the vocabulary.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
import torch

from reticent.core.device import uses_bf16
from reticent.core.errors import TrainingError
from reticent.core.progress import log_warning
from reticent.engine.document_kernels import document_ranks
from reticent.engine.kernels import number_tuples, word_slots
from reticent.engine.randomness import generator
from reticent.engine.store import TokenStore
from reticent.trainer.attention import using_mask
from reticent.trainer.distributed import World
from reticent.trainer.models import fused_activations, lm_head, logits_of
from reticent.trainer.windows import Batch, SpecialIds, Windows, cut_windows, prefetched

if TYPE_CHECKING:
    from transformers import PreTrainedModel

from reticent.audit.scoring.token_scores import COLUMNS, INTEGERS, TokenScores, unscored_arrays

# -------------------------------------------------------------------------------------------------------- logit scores
#
# Logits + true tokens -> the six numbers of each token in `TokenScores`: the cost of a scoring pass besides the model.
#
# On a CPU a Numba kernel keeps a row of logits in the cache from the first pass over it to the last, and takes one
# exponential a logit; on a GPU a Triton kernel (`logits_gpu`) reads each logit once. Elsewhere, and where Triton finds
# no compiler, it is torch, which reads and writes some 80 bytes a logit. All have the same order of columns
# (`token_scores.COLUMNS`) and agree to float32's rounding.


#: Fast math, but with NaN and infinities kept: these show that a model has diverged.
_jit = numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz", "arcp"})
#: Below it exp(x) is 0 in float32 and the token takes part in no mean.
_LOWEST = np.float32(-87.0)
_LOG2_E = np.float32(1.0 / math.log(2.0))
#: ln 2 in two parts, the first exact in few bits, so that x - n ln 2 loses none.
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(math.log(2.0) - 0.693359375)
#: Taylor's coefficients of exp(z), |z| <= ln 2 / 2, from z^7 down to z^2: an error under 2e-9.
_EXP = tuple(np.float32(1 / math.factorial(n)) for n in range(7, 1, -1))


def score_logits(logits_NV: torch.Tensor, true_N: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return six arrays (N,): log p of the true token, entropy, standard deviation of log p, argmax, rank of the true
    token, log p of the argmax; log p is NaN in a row with a NaN or infinite logit."""
    fits_float32 = logits_NV.dtype in (torch.float32, torch.bfloat16)
    if logits_NV.device.type == "cpu" and fits_float32 and not logits_NV.requires_grad:
        return _columns_by_numba(logits_NV.float().contiguous(), true_N)
    kernel = _gpu_kernel(logits_NV.device) if logits_NV.is_cuda and not logits_NV.requires_grad else None
    return (kernel or _columns_by_torch)(logits_NV, true_N)


@cache
def _gpu_kernel(device: torch.device) -> Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, ...]] | None:
    """Return the Triton function that computes `score_logits` on a GPU; None, with a warning, if it cannot be
    compiled."""
    try:
        from reticent.audit.scoring.logits_gpu import reduce_logits  # Triton

        reduce_logits(torch.zeros(1, 2, device=device), torch.zeros(1, dtype=torch.int64, device=device))
    except Exception as error:  # a compiler can fail anywhere
        log_warning(
            f"scoring: no kernel for this GPU ({type(error).__name__}); logits are reduced by torch, more slowly"
        )
        return None
    return reduce_logits


def _columns_by_torch(logits_NV: torch.Tensor, true_N: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return log p of the true token, its rank and the other four arrays of `score_logits`, computed by torch in
    float32 even where mixed precision is on."""
    with torch.autocast(logits_NV.device.type, enabled=False):  # it would take the products for those of a model
        return _torch_columns(logits_NV, true_N)


def _torch_columns(logits_NV: torch.Tensor, true_N: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the six arrays of `score_logits`, computed by torch in float32 from logits in any precision."""
    log_p = torch.log_softmax(logits_NV.float(), dim=-1)
    true_log_p = log_p.gather(1, true_N[:, None])
    top, argmax = log_p.max(-1)
    rank = (log_p > true_log_p).sum(-1).to(torch.int32)
    p = log_p.exp()
    # A token that is ruled out has log p of minus infinity and takes part in no mean.
    log_p.masked_fill_(p == 0, 0.0)
    mean = torch.linalg.vecdot(p, log_p)
    # Around the mean: the difference of two squares loses every digit where the model is unsure.
    variance = torch.linalg.vecdot(p, log_p.sub_(mean[:, None]).square_())
    return true_log_p[:, 0], -mean, variance.sqrt(), argmax.to(torch.int32), rank, top


def _columns_by_numba(logits_NV: torch.Tensor, true_N: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the six arrays of `score_logits`, computed by Numba in several CPU threads."""
    logits, true, num_rows = logits_NV.numpy(), true_N.numpy(), len(true_N)
    reals, integers = np.empty((4, num_rows), np.float32), np.empty((2, num_rows), np.int32)
    num_parts = max(1, min(torch.get_num_threads(), num_rows))
    bounds = [num_rows * part // num_parts for part in range(num_parts + 1)]

    def score(part: int) -> None:
        """Compute the scores of one thread's share of the rows of logits."""
        rows = slice(bounds[part], bounds[part + 1])
        _score_rows(logits[rows], true[rows], reals[:, rows], integers[:, rows])

    if num_parts == 1:
        score(0)
    else:
        list(_pool(num_parts).map(score, range(num_parts)))
    log_p, entropy, std, top = (torch.from_numpy(row) for row in reals)
    argmax, rank = (torch.from_numpy(row) for row in integers)
    return log_p, entropy, std, argmax, rank, top


@cache
def _pool(num_threads: int) -> ThreadPoolExecutor:
    """Return the pool of CPU threads that score logits by Numba."""
    return ThreadPoolExecutor(num_threads, thread_name_prefix="logits")


# A fork has none of the threads, and would wait for them for ever.
os.register_at_fork(after_in_child=_pool.cache_clear)


@_jit
def _score_rows(logits: np.ndarray, true: np.ndarray, reals: np.ndarray, integers: np.ndarray) -> None:
    """Fill for each row of logits ``reals`` with log p of the true token, entropy, standard deviation and log p of the
    argmax, and ``integers`` with argmax and rank of the true token."""
    num_logits = logits.shape[1]
    weights = np.empty(num_logits, np.float32)
    for row in range(len(logits)):
        values, wanted = logits[row], logits[row, true[row]]
        top, rank, broken = values[0], np.int32(0), np.int32(0)
        for at in range(num_logits):
            value = values[at]
            top = value if value > top else top
            rank += np.int32(value > wanted)
            broken += np.int32(value != value)  # NaN
        argmax = np.int32(0)
        while argmax < num_logits - 1 and values[argmax] != top:
            argmax += np.int32(1)
        if broken or not abs(top) < np.inf:
            reals[:, row], integers[0, row], integers[1, row] = np.nan, argmax, rank
            continue
        _exponentials(values, top, weights)
        total, first = np.float32(0), np.float32(0)
        for at in range(num_logits):
            total += weights[at]
            first += weights[at] * max(values[at] - top, _LOWEST)
        mean, second = first / total, np.float32(0)
        for at in range(num_logits):
            second += weights[at] * (max(values[at] - top, _LOWEST) - mean) ** 2
        log_total = np.float32(math.log(total))
        reals[0, row] = wanted - top - log_total
        reals[1, row] = log_total - mean
        reals[2, row] = math.sqrt(second / total)
        reals[3, row] = -log_total
        integers[0, row], integers[1, row] = argmax, rank


@_jit
def _exponentials(values: np.ndarray, top: np.float32, out: np.ndarray) -> None:
    """Write exp(values - top) to ``out``, by a polynomial and arithmetic on the exponent bits, which the compiler can
    vectorise."""
    bits = out.view(np.int32)
    half, one = np.float32(0.5), np.float32(1)
    for at in range(len(values)):
        exponent = np.int32(max(values[at] - top, _LOWEST) * _LOG2_E - half)
        bits[at] = (exponent + np.int32(127)) << np.int32(23)
    for at in range(len(values)):
        x = max(values[at] - top, _LOWEST)
        power = np.float32(np.int32(x * _LOG2_E - half))
        z = x - power * _LN2_HIGH - power * _LN2_LOW
        series = _EXP[0]
        series = series * z + _EXP[1]
        series = series * z + _EXP[2]
        series = series * z + _EXP[3]
        series = series * z + _EXP[4]
        series = series * z + _EXP[5]
        out[at] = out[at] * (series * z * z + z + one) if x > _LOWEST else np.float32(0)


#: Logits held at once, in numbers: 2^28 float32 are 1 GiB.
MAX_LOGITS = {"cuda": 1 << 28, "cpu": 1 << 23}
#: Log-probability of a token that a model rules out, so that no divergence is infinite.
LEAST_LOG_PROB = -100.0
#: Token positions in a forward pass on a CPU; on a GPU it is a whole batch.
MAX_CELLS = 1 << 12
#: The shortest window of a batch on a CPU, as a share of its longest.
LEAST_LENGTH = 0.75


def score_causal(model: PreTrainedModel, store: TokenStore, special: SpecialIds, **options: Any) -> TokenScores:
    """Return the scores of every token of a store under a causal model, which predicts it from the tokens before it in
    its window.

    The first token of a window is scored from the prefix token; without one it is not scored (NaN). Options are those
    of `score_models`.
    """
    return score_models([model], "clm", store, special, **options)[0]


def score_masked(model: PreTrainedModel, store: TokenStore, special: SpecialIds, **options: Any) -> TokenScores:
    """Return the scores of every token of a store under a masked model, each word predicted while all its tokens are
    masked; each pass masks another random part of the words.

    Options are those of `score_models`.
    """
    return score_models([model], "mlm", store, special, **options)[0]


def score_models(
    models: Sequence[PreTrainedModel],
    objective: str,
    store: TokenStore,
    special: SpecialIds,
    *,
    folds: int = 7,
    all_occurrences: bool = False,
    ends: bool = False,
    window_length: int = 512,
    batch_size: int = 64,
    seed: int = 0,
    device: str = "auto",
    bf16: str = "auto",
    progress: Callable[[int], None] | None = None,
    world: World | None = None,
) -> list[TokenScores]:
    """Return one `TokenScores` (probability, entropy, rank of each token of the store) for each of several models with
    one tokenizer, from one pass over the batches.

    Parameters
    ----------
    objective : {"clm", "mlm"}
    folds : int
        For "mlm": passes over every window, each of which masks the words of one fold; 7 masks about 15 % at a time.
    all_occurrences : bool
        For "mlm": also mask every other occurrence of the masked words in their window, so that they cannot be copied.
    ends : bool
        For "clm": also score the end of each text (`TokenScores.end_log_probs`), if the tokenizer has one.
    batch_size : int
        Windows of ``window_length`` a batch; a GPU takes more of shorter ones.
    bf16 : {"auto", "on", "off"}
        bfloat16 autocast; "auto" is on for CUDA and off elsewhere.
    progress : called with the number of windows done, of all folds
    world : World, optional
        Processes that share the windows out; all of them get all scores. By default this one scores everything.

    Raises
    ------
    TrainingError
        The logits of a model are not numbers, or the objective is "mlm" and the tokenizer has no mask token.

    Cost: one forward pass a model and window (times ``folds``); 24 bytes a token and model.
    """
    scorer = Scorer(
        models, store, special, window_length=window_length, batch_size=batch_size, device=device, bf16=bf16,
        progress=progress, world=world, passes=folds if objective == "mlm" else 1, ends=ends and objective != "mlm",
    )  # fmt: skip
    scorer.run(objective, folds=folds, all_occurrences=all_occurrences, seed=seed)
    return scorer.results()


def score_information(
    model: PreTrainedModel,
    reference: PreTrainedModel,
    objective: str,
    store: TokenStore,
    special: SpecialIds,
    *,
    folds: int = 7,
    window_length: int = 512,
    batch_size: int = 64,
    seed: int = 0,
    device: str = "auto",
    bf16: str = "auto",
    progress: Callable[[int], None] | None = None,
) -> np.ndarray:
    """Return the score of each token by InfoRMIA, a membership attack relative to ``reference``, in nats, float32
    (num_tokens,); NaN where not scored [@tao2026].

    It is log p(x) - log q(x) of the true token x, less the mean of log p(z) - log q(z) over z drawn from q, which is
    minus the divergence of the model's prediction p from the reference's q: the gain on this token beyond the general
    change of the prediction at this position. Options are those of `score_models`.

    Raises
    ------
    TrainingError
        As `score_models`, or the two models predict different vocabularies.

    Cost: a forward pass of each of the two models a window (times ``folds``).
    """
    if model.config.vocab_size != reference.config.vocab_size:
        raise TrainingError("information: the model and its base predict tokens of different vocabularies")
    scorer = _Information(
        [model, reference], store, special, window_length=window_length, batch_size=batch_size, device=device,
        bf16=bf16, progress=progress, passes=folds if objective == "mlm" else 1,
    )  # fmt: skip
    scorer.run(objective, folds=folds, seed=seed)
    return scorer.information


def word_folds(store: TokenStore, folds: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return two arrays, int64 (num_tokens,), -1 outside words: in which of the ``folds`` masking passes the token's
    word is masked and predicted; and a number that is the same for equal words.

    The words of a document are assigned to folds in random order; its folds differ in size by one word at most.
    """
    starts, lengths, documents = word_slots(store.word_ids, store.doc_offsets)
    word_bounds = np.searchsorted(documents, np.arange(store.num_documents + 1))
    fold = document_ranks(generator(seed, 1).random(len(starts)), word_bounds) % folds
    tuples, _ = number_tuples(store.input_ids, starts, lengths)
    fold_of = np.full(store.num_tokens, -1, dtype=np.int64)
    word_of = np.full(store.num_tokens, -1, dtype=np.int64)
    tokens = np.repeat(starts - np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths) + np.arange(lengths.sum())
    fold_of[tokens] = np.repeat(fold, lengths)
    word_of[tokens] = np.repeat(tuples, lengths)
    return fold_of, word_of


class Scorer:
    """Runs models over the windows of a store and holds the arrays of their scores; options as of `score_models`."""

    def __init__(
        self,
        models: Sequence[PreTrainedModel],
        store: TokenStore,
        special: SpecialIds,
        *,
        window_length: int,
        batch_size: int,
        device: str,
        bf16: str = "auto",
        progress: Callable[[int], None] | None = None,
        world: World | None = None,
        passes: int = 1,
        ends: bool = False,
    ):
        self.world = world or World()
        self.device = self.world.device(device)
        self.models: list[Any] = [model.to(device=self.device).eval() for model in models]  # type: ignore
        self._heads = [lm_head(model) for model in self.models]
        self.store, self.batch_size = store, batch_size
        is_known = special.end is not None and all(special.end < model.config.vocab_size for model in self.models)
        #: Id of the end-of-text token, if it is scored. Its scores follow those of the tokens, one a document.
        self._end = special.end if ends and is_known else None
        self.windows: Windows = cut_windows(store, window_length, special)
        self._kind = "cuda" if self.device.type == "cuda" else "cpu"
        self._bf16 = uses_bf16(bf16, self.device)
        self._max_cells = batch_size * window_length
        self._progress, self._done, self._total = progress, 0, passes * len(self.windows)
        self._pending: deque[tuple[int, np.ndarray, tuple[torch.Tensor, ...]]] = deque()
        num_ends = 0 if self._end is None else store.num_documents
        self._scores = [unscored_arrays(store.num_tokens + num_ends) for _ in models]

    def batches(self) -> Iterator[tuple[np.ndarray, Batch]]:
        """Yield (window numbers, batch) for every window of this process once, longest first, so that peak memory comes
        at the start."""
        own = self._plan_batches()[self.world.rank :: self.world.size]
        for item in prefetched((numbers, self.windows.gather(numbers)) for numbers in own):
            yield item
            self._done = min(self._done + len(item[0]) * self.world.size, self._total)
            if self._progress:
                self._progress(self._done)

    def _plan_batches(self) -> list[np.ndarray]:
        """Return the window numbers of each batch, longest windows first; a GPU takes more rows of shorter windows."""
        order = np.argsort(-self.windows.lengths, kind="stable")
        widths = self.windows.lengths[order] + self.windows.special.num_added
        rising = -widths.astype(np.float64)  # of integers each search would convert all
        batches, first = [], 0
        while first < len(order):
            width = int(widths[first])
            if self._kind == "cpu":  # what is saved on padding is worth more than long batches
                num_alike = int(np.searchsorted(rising, -LEAST_LENGTH * width, side="right")) - first
                num_rows = min(self.batch_size, self._rows_at_once(self.windows.padded_width(width)), num_alike)
            else:
                num_rows = max(self.batch_size, self._max_cells // width)
            batches.append(order[first : first + num_rows])
            first += num_rows
        return batches

    def run(self, objective: str, *, folds: int, all_occurrences: bool = False, seed: int = 0) -> None:
        """Score every token of the store once under all models, with options as for `score_models`; `results` then
        returns the scores."""
        with fused_activations(*self.models):
            self._run(objective, folds=folds, all_occurrences=all_occurrences, seed=seed)

    def _run(self, objective: str, *, folds: int, all_occurrences: bool, seed: int) -> None:
        """Score every token of the store once. A causal model needs one pass over all windows, a masked model one for
        each fold (part of the words that is masked together)."""
        if objective != "mlm":
            for numbers, batch in self.batches():
                positions = self.windows.token_positions(numbers, batch.input_ids.shape[1])
                # Position t predicts the token at t + 1.
                ahead = np.concatenate([positions[:, 1:], np.full((len(numbers), 1), -1)], axis=1)
                self.score(batch.input_ids, None, self._with_ends(ahead, positions, numbers))
            return
        mask = self.windows.special.mask
        if mask is None:
            raise TrainingError("masked scoring needs a mask token and the tokenizer has none")
        fold_of, word_of = word_folds(self.store, folds, seed)
        for fold in range(folds):
            for numbers, batch in self.batches():
                positions = self.windows.token_positions(numbers, batch.input_ids.shape[1])
                safe = np.maximum(positions, 0)
                chosen = (positions >= 0) & (fold_of[safe] == fold)
                if not chosen.any():
                    continue
                hidden = chosen
                if all_occurrences:
                    words = np.where(positions >= 0, word_of[safe], -1)
                    rows = np.arange(len(numbers))[:, None] * (int(word_of.max(initial=0)) + 2)
                    hidden = np.isin(words + rows, (words + rows)[chosen]) & (words >= 0)
                input_ids = np.where(hidden, mask, batch.input_ids)
                self.score(input_ids, batch.attention, np.where(chosen, positions, -1))

    def _with_ends(self, ahead_BT: np.ndarray, positions_BT: np.ndarray, windows: np.ndarray) -> np.ndarray:
        """Return for each cell of a batch the store position of the token that it predicts, ``ahead_BT``. If ends of
        texts are scored, the cell of a document's last token gets a position of its own behind the store's tokens."""
        if self._end is not None:
            documents = self.windows.documents[windows][:, None]
            last = positions_BT == self.store.doc_offsets[documents + 1] - 1
            ahead_BT = np.where(last & (positions_BT >= 0), self.store.num_tokens + documents, ahead_BT)
        return ahead_BT

    @torch.inference_mode()
    def score(self, input_ids_BT: np.ndarray, attention_BT: np.ndarray | None, positions_BT: np.ndarray) -> None:
        """Score the tokens at the store positions ``positions_BT``: each is predicted at the position in the batch
        where its number stands; -1 marks positions where no token is scored."""
        for start in range(0, len(input_ids_BT), self._rows_at_once(input_ids_BT.shape[1])):
            rows = slice(start, start + self._rows_at_once(input_ids_BT.shape[1]))
            cells = np.flatnonzero(positions_BT[rows] >= 0)
            if len(cells) == 0:
                continue
            at = positions_BT[rows].reshape(-1)[cells]
            is_end = at >= self.store.num_tokens  # last, so that the numbers of tokens are to the bit those without
            cells, at = (np.concatenate([values[~is_end], values[is_end]]) for values in (cells, at))
            num_own = len(at) - np.count_nonzero(is_end)
            given, wanted = self._to_device(input_ids_BT[rows]), self._to_device(cells)
            true = np.full(len(at), self._end or 0, dtype=np.int64)
            true[:num_own] = self.store.input_ids[at[:num_own]]
            seen = None if attention_BT is None else attention_BT[rows]
            mask = None if seen is None or seen.all() else self._to_device(seen)
            self._score_cells(at, given, mask, wanted, self._to_device(true))

    def _score_cells(
        self,
        store_positions: np.ndarray,
        input_ids: torch.Tensor,
        mask: torch.Tensor | None,
        cells: torch.Tensor,
        true_ids: torch.Tensor,
    ) -> None:
        """Score the tokens ``true_ids`` at ``store_positions`` by every model's predictions at ``cells``, indices into
        the flattened batch ``input_ids``."""
        num_own = int(np.count_nonzero(store_positions < self.store.num_tokens))
        for number, (model, head) in enumerate(zip(self.models, self._heads, strict=True)):
            with torch.autocast(self._kind, dtype=torch.bfloat16, enabled=self._bf16):
                values = self._cell_states(model, head, input_ids, mask, cells)
                columns = self._reduce_cells(values, head, true_ids, model.config.vocab_size, num_own)
            # Fetched when the next is under way, so that a GPU does not wait for it.
            self._pending.append((number, store_positions, columns))
            if len(self._pending) > len(self.models):
                self._store_oldest()

    @staticmethod
    def _cell_states(
        model: Any, head: Any, input_ids: torch.Tensor, mask: torch.Tensor | None, cells: torch.Tensor
    ) -> torch.Tensor:
        """Return the last hidden states (N, D) at ``cells``, indices into the flattened batch ``input_ids``; the logits
        if ``head`` is None."""
        with using_mask(model, mask):
            return logits_of(model, None if head is None else torch.nn.Identity(), input_ids, mask, cells)

    def _rows_at_once(self, width: int) -> int:
        """Return how many rows of ``width`` tokens go through the models in one forward pass, limited by memory."""
        whole = [model.config.vocab_size for model, head in zip(self.models, self._heads, strict=True) if head is None]
        if whole:  # the model makes all logits at once, not those of a few cells
            return max(1, MAX_LOGITS[self._kind] // max(1, max(whole) * width))
        return max(1, MAX_CELLS // width) if self._kind == "cpu" else 1 << 30

    def results(self) -> list[TokenScores]:
        """Return the scores of each model, gathered from all processes; raise `TrainingError` if logits were not
        numbers."""
        while self._pending:
            self._store_oldest()
        for scores in self._scores:
            # Otherwise a diverged model's documents would look like documents that were not scored.
            broken = np.count_nonzero(np.isnan(scores["log_probs"]) & (scores["argmax"] >= 0))
            (all_broken,) = self.world.sum(int(broken))
            if all_broken:
                raise TrainingError(
                    f"scoring: the model's logits are not numbers at {all_broken:.0f} tokens; did training diverge?"
                )
            if self.world.size > 1:
                _join_processes(scores)
        num_tokens, offsets = self.store.num_tokens, self.store.doc_offsets
        ends = [None if self._end is None else scores["log_probs"][num_tokens:] for scores in self._scores]
        return [
            TokenScores(
                doc_offsets=offsets, **{name: column[:num_tokens] for name, column in scores.items()}, end_log_probs=own
            )
            for scores, own in zip(self._scores, ends, strict=True)
        ]

    def _reduce_cells(
        self, states: torch.Tensor, head: Any, true_ids: torch.Tensor, vocabulary: int, num_own: int
    ) -> tuple[torch.Tensor, ...]:
        """Return the six arrays of `score_logits` for the tokens ``true_ids``, from hidden states (logits without a
        ``head``), computed in pieces that fit into memory. The first ``num_own`` are tokens of documents, the others
        ends of texts."""
        at_once = max(1, MAX_LOGITS[self._kind] // vocabulary)
        parts = [
            score_logits(cells if head is None else head(cells), true_here)
            for part in (slice(num_own), slice(num_own, None))
            for cells, true_here in zip(states[part].split(at_once), true_ids[part].split(at_once), strict=True)
            if len(cells)
        ]
        return tuple(torch.cat(columns) for columns in zip(*parts, strict=True))

    def _to_device(self, array: np.ndarray) -> torch.Tensor:
        """Return the array as a tensor on the device, without waiting for the transfer."""
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        return tensor.pin_memory().to(self.device, non_blocking=True) if self._kind == "cuda" else tensor

    def _store_oldest(self) -> None:
        """Move the scores of the batch that was computed first, among those still on the device, into the arrays of
        results."""
        number, at, columns = self._pending.popleft()
        for name, column in zip(COLUMNS, columns, strict=True):
            self._scores[number][name][at] = column.cpu().numpy()


class _Information(Scorer):
    """A `Scorer` that reduces a model and its reference to one number a token; see `score_information`."""

    def __init__(self, models: Sequence[PreTrainedModel], *args: Any, **options: Any):
        super().__init__(models, *args, **options)
        self.information = np.full(self.store.num_tokens, np.nan, dtype=np.float32)

    def _score_cells(
        self,
        at: np.ndarray,
        given: torch.Tensor,
        mask: torch.Tensor | None,
        wanted: torch.Tensor,
        true: torch.Tensor,
    ) -> None:
        """Store the InfoRMIA scores of the tokens ``true``, at the store positions ``at``. They are predicted at the
        cells ``wanted`` of the flattened batch ``given``, by the model and by the reference model."""
        with torch.autocast(self._kind, dtype=torch.bfloat16, enabled=self._bf16):
            each = zip(self.models, self._heads, strict=True)
            both = [self._cell_states(model, head, given, mask, wanted) for model, head in each]
            at_once = max(1, MAX_LOGITS[self._kind] // self.models[0].config.vocab_size)
            found = torch.cat(
                [
                    self._information_of_cells(*parts)
                    for parts in zip(*(value.split(at_once) for value in (*both, true)), strict=True)
                ]
            )
        self.information[at] = found.cpu().numpy()
        if np.isnan(self.information[at]).any():
            raise TrainingError("information: logits of a model are not numbers; did training diverge?")

    def _information_of_cells(self, own: torch.Tensor, other: torch.Tensor, true_N: torch.Tensor) -> torch.Tensor:
        """Return InfoRMIA's score of each true token, float32 (N,): log p/q minus its mean under q, where p is
        predicted by the model's logits ``own``, q by the reference's, ``other``."""
        pairs = zip((own, other), self._heads, strict=True)
        logits = [cells if head is None else head(cells) for cells, head in pairs]
        with torch.autocast(self._kind, enabled=False):
            log_p, log_q = (torch.log_softmax(values.float(), dim=-1).clamp(min=LEAST_LOG_PROB) for values in logits)
            gain = log_p.sub_(log_q)
            return gain.gather(1, true_N[:, None])[:, 0] - torch.linalg.vecdot(log_q.exp_(), gain)


def _join_processes(scores: dict[str, np.ndarray]) -> None:
    """Combine the token scores of all processes in place, so that each process has all of them. No token is scored by
    two processes."""
    own = scores["argmax"] >= 0
    for column in scores.values():
        # Scores of another process's rows are lower than anything here, so the largest is the score.
        joined = torch.from_numpy(np.where(own, column, -np.inf if column.dtype == np.float32 else -1))
        joined = joined.to(torch.from_numpy(column).dtype)
        torch.distributed.all_reduce(joined, op=torch.distributed.ReduceOp.MAX)
        column[:] = joined.numpy()
    for name in set(COLUMNS) - set(INTEGERS):
        scores[name][scores["argmax"] < 0] = np.nan
