"""Gradient norms of each document's loss: how much a model would still have to learn from it.

The gradient of a document that a model was trained on is smaller than that of one that it never saw [@nasr2019]. The
adversary has the weights. Over the tokens that every recipe may teach, the norm identified members of a protected model
better than every other attack without shadow models.

Many documents share a batch, and no gradient of a weight is kept: its norm follows from a layer's input and the
gradient of its output (`reticent.trainer.ghost_norms`). A model with a layer that `_kind_of` does not know, or that
uses a weight in another way (a layer that runs twice, a matrix outside of its layer), is measured one document at a
time by torch's own gradients, and so is a document that is too long for a batch. The first document of a model is
measured in both ways, which detects such a use.

Cost: a forward pass, and a backward pass without the gradients of weights; at most `MOST_MEMBERS` and `MOST_OTHERS` are
sampled, and `MOST_DOCUMENTS` of each.

Shapes: B rows, T tokens a row, N positions whose loss counts, U documents of a batch, L positions of the longest, I and
O inputs and outputs of a layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from reticent.audit.membership.names import MOST_DOCUMENTS, MOST_MEMBERS, MOST_OTHERS
from reticent.audit.scoring.scores import word_folds
from reticent.core.device import pick_device
from reticent.core.errors import TrainingError
from reticent.core.progress import log_warning
from reticent.engine.randomness import generator
from reticent.engine.store import TokenStore
from reticent.trainer.attention import using_mask
from reticent.trainer.ghost_norms import linear_squares, row_squares, tied_products
from reticent.trainer.models import fused_activations, lm_head, logits_of, whole_inputs
from reticent.trainer.windows import SpecialIds, Windows, cut_windows

if TYPE_CHECKING:
    from transformers import PreTrainedModel

#: Windows in a batch where documents are measured one at a time.
ROWS_AT_ONCE = 8
#: Token positions, and logits, in a batch of many documents.
MAX_CELLS = {"cuda": 1 << 14, "cpu": 1 << 12}
MAX_LOGITS = {"cuda": 1 << 27, "cpu": 1 << 24}
#: Largest relative difference of a weight's squared norm between both ways.
MOST_OFF = 1e-3
_STREAM = 67


def sampled_documents(
    individual: np.ndarray, is_member: np.ndarray, seed: int, *, units: np.ndarray | None = None
) -> np.ndarray:
    """Draw the documents that costly attacks score; return their ascending numbers, int64. They are the first
    `MOST_DOCUMENTS` of each of up to `MOST_MEMBERS` members and `MOST_OTHERS` others drawn at random.

    Parameters
    ----------
    individual, is_member : arrays, shape (num_documents,)
    units : household of each individual, by code; each has a first individual before any has a second; None: none
    """
    codes, first, row = np.unique(individual, return_index=True, return_inverse=True)
    keys, chosen = generator(seed, _STREAM).random(len(codes)), np.zeros(len(codes), dtype=bool)
    for side, most in ((True, MOST_MEMBERS), (False, MOST_OTHERS)):
        own = np.flatnonzero(is_member[first] == side)
        own = own[np.argsort(keys[own], kind="stable")]
        if units is not None:
            is_again = np.ones(len(own), dtype=bool)
            is_again[np.unique(units[codes[own]], return_index=True)[1]] = False
            own = own[np.argsort(is_again, kind="stable")]
        chosen[own[:most]] = True
    order = np.argsort(row, kind="stable")
    counts = np.bincount(row, minlength=len(codes))
    rank = np.empty(len(row), dtype=np.int64)
    rank[order] = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.flatnonzero(chosen[row] & (rank < MOST_DOCUMENTS))


def gradient_norms(
    model: PreTrainedModel,
    objective: str,
    store: TokenStore,
    special: SpecialIds,
    mask: np.ndarray,
    documents: np.ndarray,
    *,
    folds: int = 7,
    window_length: int = 512,
    seed: int = 0,
    device: str = "auto",
    progress: Callable[[int], None] | None = None,
) -> np.ndarray:
    """Return the norm, over all weights, of the gradient of each document's mean loss on the tokens in ``mask``,
    float64 (num_documents,); NaN for documents that are not in ``documents`` or lack such a token.

    Parameters
    ----------
    mask : bool array, shape (num_tokens,), the tokens whose loss counts
    documents : numbers of the documents to measure
    folds : of a masked model: the words of one fold of so many are masked, and only their tokens count
    progress : called with the number of documents done

    Raises
    ------
    TrainingError
        A norm is not a number.
    """
    where = pick_device(device)
    net: Any = model.to(device=where).eval()  # type: ignore
    chosen = mask & (word_folds(store, folds, seed)[0] == 0) if objective == "mlm" else mask
    asked = _LossWindows(cut_windows(store, window_length, special), chosen, objective, net)
    norms, layers, is_checked, done = np.full(store.num_documents, np.nan), _Layers.of(net), False, 0
    with fused_activations(net):
        for group in asked.iter_batches(documents):
            questions = asked.of(group) if layers is not None and asked.fits(group) else None
            if layers is not None and questions is not None and not is_checked:
                is_checked = True
                if not layers.agree_with_torch(asked.of(group[:1]), asked.gradients(group[0])):
                    layers = None
            if layers is not None and questions is not None:
                norms[group] = layers.norms(questions)
            else:
                for document in group.tolist():
                    found = asked.gradients(document)
                    if found:
                        parts = [gradient.float() for gradient in found.values()]
                        norms[document] = float(torch.stack(torch._foreach_norm(parts)).norm())
            count = asked.num_counted_tokens(group)
            norms[group] = np.where(count > 0, norms[group] / np.maximum(count, 1), np.nan)
            if not np.isfinite(norms[group][count > 0]).all():
                raise TrainingError("gradients: a norm is not a number; did training diverge?")
            done += len(group)
            if progress:
                progress(done)
    net.zero_grad(set_to_none=True)
    return norms


@dataclass(frozen=True, slots=True)
class _DocumentBatch:
    """A batch of rows of several documents: input ids (B, T), attention mask or None, flat positions whose loss counts
    (N,), true tokens (N,), and the document (0 to U - 1, ascending, on the host) of each row and position."""

    num_documents: int
    given: torch.Tensor
    seen: torch.Tensor | None
    wanted: torch.Tensor
    true: torch.Tensor
    of_rows: np.ndarray
    of_cells: np.ndarray
    _slots: dict[bool, tuple[int, torch.Tensor | None]] = field(default_factory=dict)

    def arrange_by_document(self, values: torch.Tensor) -> torch.Tensor:
        """Sort the activations or gradients of a layer by document: from (rows, tokens, …) or (positions, …) to
        (documents, positions, …), padded with zeros."""
        is_rows = values.ndim == 3 or not values.is_floating_point()
        expected = self.given.shape if is_rows else self.wanted.shape
        if values.shape[: len(expected)] != expected or values.ndim > 3:
            raise _Unknown
        if is_rows not in self._slots:
            owners = self.of_rows if is_rows else self.of_cells
            ranks = np.arange(len(owners)) - np.searchsorted(owners, owners)
            longest = int(ranks.max()) + 1
            slots = owners * longest + ranks
            is_whole = len(slots) == self.num_documents * longest
            self._slots[is_rows] = longest, None if is_whole else torch.from_numpy(slots).to(values.device)
        longest, places = self._slots[is_rows]
        if places is not None:
            spread = values.new_zeros((self.num_documents * longest, *values.shape[1:]))
            values = spread.index_copy_(0, places, values)
        return values.reshape(self.num_documents, -1, *values.shape[1 + is_rows :])


class _LossWindows:
    """The windows of a store and the tokens whose loss counts, as batches for a model."""

    def __init__(self, windows: Windows, chosen: np.ndarray, objective: str, net: Any):
        self.windows, self.chosen, self.objective, self.net = windows, chosen, objective, net
        self.head, self.device = lm_head(net), net.device
        self.mask_id = -1 if windows.special.mask is None else windows.special.mask
        totals = np.concatenate([[0], np.cumsum(chosen)])
        #: Tokens of each window whose loss counts; a causal model predicts no first token without a prefix token.
        begins = windows.starts + int(objective != "mlm" and windows.special.prefix is None)
        ends = windows.starts + windows.lengths
        self.num_asked = totals[np.maximum(ends, begins)] - totals[begins]
        self._totals = np.concatenate([[0], np.cumsum(self.num_asked)])
        self.bounds = np.searchsorted(windows.documents, np.arange(windows.store.num_documents + 1))
        self._kind = "cuda" if self.device.type == "cuda" else "cpu"

    def num_counted_tokens(self, documents: np.ndarray) -> np.ndarray:
        """Return for each of these documents the number of its tokens on which the loss is computed."""
        return np.asarray(self._totals[self.bounds[documents + 1]] - self._totals[self.bounds[documents]])

    def iter_batches(self, documents: np.ndarray) -> Iterator[np.ndarray]:
        """Yield arrays of document numbers, longest documents first, each as large as memory allows (`fits`). Documents
        without a token on which the loss is computed are left out."""
        documents = documents[self.num_counted_tokens(documents) > 0]
        documents = documents[np.argsort(-np.diff(self.windows.store.doc_offsets)[documents], kind="stable")]
        first = 0
        while first < len(documents):
            last = first + 1
            while last < len(documents) and self.fits(documents[first : last + 1]):
                last += 1
            yield documents[first:last]
            first = last

    def fits(self, documents: np.ndarray) -> bool:
        """Return whether the windows of these documents fit into memory as one batch."""
        counts, added = self.num_counted_tokens(documents), self.windows.special.num_added
        num_cells = sum(
            len(part) * int(self.windows.lengths[part].max() + added) for part in self._split_by_length(documents)
        )
        num_logits = max(num_cells if self.head is None else int(counts.sum()), len(documents) * int(counts.max()))
        is_small = num_logits * self.net.config.vocab_size <= MAX_LOGITS[self._kind]
        return num_cells <= MAX_CELLS[self._kind] and is_small

    def _counted_windows(self, documents: np.ndarray) -> np.ndarray:
        """Return the numbers of the documents' windows that have a token on which the loss is computed."""
        spans = [np.arange(self.bounds[document], self.bounds[document + 1]) for document in documents.tolist()]
        windows = np.concatenate(spans)
        return np.asarray(windows[self.num_asked[windows] > 0])

    def _split_by_length(self, documents: np.ndarray) -> list[np.ndarray]:
        """Return the documents' windows as two arrays of window numbers: those of full length and the shorter ones, so
        that the latter are not padded to full length."""
        windows = self._counted_windows(documents)
        is_whole = self.windows.lengths[windows] == self.windows.longest - self.windows.special.num_added
        return [part for part in (windows[is_whole], windows[~is_whole]) if len(part)]

    def of(self, documents: np.ndarray) -> list[_DocumentBatch]:
        """Return the model inputs for these documents as batches: one of their windows of full length, one of their
        shorter windows."""
        number = np.empty(self.windows.store.num_documents, dtype=np.int64)
        number[documents] = np.arange(len(documents))
        parts = self._split_by_length(documents)
        return [self._make_batch(part, number[self.windows.documents[part]], len(documents)) for part in parts]

    def _make_batch(
        self, window_numbers: np.ndarray, documents_of_windows: np.ndarray, num_documents: int = 1
    ) -> _DocumentBatch:
        """Return the windows with these numbers as one batch of model inputs; ``documents_of_windows`` has the number
        of each window's document within the batch."""
        batch = self.windows.gather(window_numbers)
        positions = self.windows.token_positions(window_numbers, batch.input_ids.shape[1])
        asked = (positions >= 0) & self.chosen[np.maximum(positions, 0)]
        input_ids, attention = batch.input_ids, None
        if self.objective == "mlm":
            input_ids, attention = np.where(asked, self.mask_id, input_ids), batch.attention
        else:  # position t predicts the token at t + 1
            positions = np.concatenate([positions[:, 1:], np.full((len(window_numbers), 1), -1)], axis=1)
            asked = np.concatenate([asked[:, 1:], np.zeros((len(window_numbers), 1), dtype=bool)], axis=1)
        cells = np.flatnonzero(asked)
        true = self.windows.store.input_ids[positions.reshape(-1)[cells]].astype(np.int64)
        given, wanted, labels = (torch.from_numpy(part).to(self.device) for part in (input_ids, cells, true))
        seen = None if attention is None or attention.all() else torch.from_numpy(attention).to(self.device)
        of_cells = documents_of_windows[cells // batch.input_ids.shape[1]]
        return _DocumentBatch(num_documents, given, seen, wanted, labels, documents_of_windows, of_cells)

    def gradients(self, document: int) -> dict[Any, torch.Tensor]:
        """Return weight -> gradient of one document's summed loss, computed by torch's own backward pass, to check the
        gradients computed by the hooks."""
        self.net.zero_grad(set_to_none=True)
        windows = self._counted_windows(np.array([document]))
        for start in range(0, len(windows), ROWS_AT_ONCE):
            some = windows[start : start + ROWS_AT_ONCE]
            question = self._make_batch(some, np.zeros(len(some), dtype=np.int64))
            with using_mask(self.net, question.seen):
                logits = logits_of(self.net, self.head, question.given, question.seen, question.wanted)
            torch.nn.functional.cross_entropy(logits.float(), question.true, reduction="sum").backward()
        return {weight: weight.grad for weight in self.net.parameters() if weight.grad is not None}


class _Unknown(Exception):
    """A layer uses its weights in a way for which batched gradient norms are not implemented."""


def _normalised(layer: Any, read: torch.Tensor) -> torch.Tensor:
    """Return the normalised input of a layer norm or RMS norm, before its weight multiplies it."""
    if isinstance(layer, torch.nn.LayerNorm):
        return torch.nn.functional.layer_norm(read, layer.normalized_shape, eps=layer.eps)
    eps = next((getattr(layer, name) for name in ("variance_epsilon", "eps", "epsilon") if hasattr(layer, name)), None)
    return torch.nn.functional.rms_norm(read.float(), read.shape[-1:], eps=eps)


def _kind_of(layer: Any) -> str:
    """Return how a layer uses its weights, "linear", "embedding" or "layernorm"; raise `_Unknown` for a layer of
    another type."""
    name = type(layer).__name__
    if type(layer) in (torch.nn.Linear, torch.nn.Embedding, torch.nn.LayerNorm) or name == "Conv1D":
        return "linear" if name in ("Linear", "Conv1D") else name.lower()
    if name.endswith("RMSNorm") and [weight for weight, _ in layer.named_parameters(recurse=False)] == ["weight"]:
        return "layernorm"
    raise _Unknown


@lru_cache
def _warn_of_single_documents(model_type: str) -> None:
    """Warn, once for each type of model, that gradients are measured one document at a time, because a layer is of an
    unknown kind or the hooks disagree with torch."""
    log_warning(
        f"gradients: a layer of {model_type} models has gradients that cannot be told apart in a batch; documents are "
        "asked one at a time"
    )


class _Layers:
    """The layers of a model with trainable weights, whose gradient norms are computed by hooks during a backward
    pass."""

    def __init__(self, net: Any, layers: list[Any]):
        self.net, self.layers, self.head = net, layers, lm_head(net)
        self.weights = [weight for weight in net.parameters() if weight.requires_grad]
        self._squares: dict[Any, torch.Tensor] = {}
        #: (kind, input, output gradient) of a tied matrix at the first of its two uses in the backward pass.
        self._tied: dict[Any, tuple[str, torch.Tensor, torch.Tensor]] = {}
        self._batch: _DocumentBatch | None = None
        #: Layer -> (input, output gradient) in the batches before the last of the same documents.
        self._before: dict[Any, tuple[torch.Tensor, torch.Tensor]] = {}
        self._is_last = True

    @classmethod
    def of(cls, model: Any) -> _Layers | None:
        """Return hooks that compute gradient norms in all layers of a model; None, with a warning, if a layer is of an
        unknown kind."""
        try:
            return cls(model, list(cls._weighted_modules(model)))
        except _Unknown:
            return _warn_of_single_documents(model.config.model_type)

    @classmethod
    def _weighted_modules(cls, module: Any) -> Iterator[Any]:
        """Yield the submodules that have trainable weights themselves, not only in their children; raise `_Unknown` for
        one of an unknown kind."""
        own = {id(weight) for weight in module.parameters(recurse=False) if weight.requires_grad}
        below = {id(weight) for child in module.children() for weight in child.parameters()}
        if own - below:
            _kind_of(module)
            if below:
                raise _Unknown
            yield module
        for child in module.children():
            yield from cls._weighted_modules(child)

    def agree_with_torch(self, batches_of_document: list[_DocumentBatch], gradients: dict[Any, torch.Tensor]) -> bool:
        """Return whether the gradient norms by the hooks equal those of ``gradients``, which torch computed for the
        same single document; warn if they differ."""
        plain = {weight: float(gradient.float().square().sum()) for weight, gradient in gradients.items()}
        try:
            self.norms(batches_of_document)
        except (MemoryError, torch.OutOfMemoryError):
            raise
        except Exception:  # an architecture can fail anywhere
            _warn_of_single_documents(self.net.config.model_type)
            return False
        found = {weight: float(squares[0]) for weight, squares in self._squares.items()}
        least = 1e-6 * sum(plain.values())
        both = {*plain, *found}
        off = [abs(plain.get(w, 0.0) - found.get(w, 0.0)) > MOST_OFF * plain.get(w, 0.0) + least for w in both]
        if any(off) and all(map(math.isfinite, plain.values())):
            _warn_of_single_documents(self.net.config.model_type)
            return False
        return True

    def norms(self, batches: list[_DocumentBatch]) -> np.ndarray:
        """Return for each document the norm, over all weights, of the gradient of its summed loss, float64 (U,)."""
        self._squares, self._tied, self._before = {}, {}, {}
        with self._hooked():
            for question in batches:
                self._batch, self._is_last = question, question is batches[-1]
                with using_mask(self.net, question.seen):
                    inputs = whole_inputs(self.net, question.given, question.seen)
                    values = self.net(**inputs).logits if self.head is None else self.net.base_model(**inputs)[0]
                    at = values.flatten(0, 1).index_select(0, question.wanted)
                    logits = at if self.head is None else self.head(at)
                    torch.nn.functional.cross_entropy(logits.float(), question.true, reduction="sum").backward()
        for layer, (read, back) in self._before.items():  # not run in the last batch
            self._add_layer(layer, read, back)
        squares = torch.stack(list(self._squares.values())).sum(0).cpu().numpy().astype(np.float64)
        self._batch, self._tied, self._before = None, {}, {}
        return np.sqrt(np.maximum(squares, 0.0))

    @contextmanager
    def _hooked(self) -> Iterator[None]:
        """Context in which the hooks are registered on the layers, and torch itself computes no gradients of
        weights.
        """
        handles = [layer.register_forward_hook(self._on_forward) for layer in self.layers]
        for weight in self.weights:
            weight.requires_grad_(False)
        try:
            yield
        finally:
            for weight in self.weights:
                weight.requires_grad_(True)
            for handle in handles:
                handle.remove()

    def _on_forward(self, layer: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Hook a layer's output in a forward pass, so that the output's gradient reaches `_on_backward` together with
        the layer's input."""
        if len(inputs) != 1 or not isinstance(output, torch.Tensor):
            raise _Unknown
        if not output.requires_grad:  # the first of a path
            output.requires_grad_(True)
        read = inputs[0].detach()
        output.register_hook(lambda back: self._on_backward(layer, read, back))

    def _on_backward(self, layer: Any, read: torch.Tensor, back: torch.Tensor) -> None:
        """Hook of the backward pass: collect a layer's input ``read`` and output gradient ``back``; when the last batch
        of a group of documents is done, add the layer's gradient norms."""
        assert self._batch is not None
        here = self._batch.arrange_by_document(read), self._batch.arrange_by_document(back.float())
        if not self._is_last:
            if layer in self._before:
                raise _Unknown
            self._before[layer] = here
        elif (before := self._before.pop(layer, None)) is None:
            self._add_layer(layer, *here)
        else:
            self._add_layer(layer, *(torch.cat(both, dim=1) for both in zip(before, here, strict=True)))

    def _add_layer(self, layer: Any, read: torch.Tensor, back: torch.Tensor) -> None:
        """Add for each document the squared gradient norms of a layer's weight and bias, from its input ``read`` and
        output gradient ``back``."""
        kind, trained = _kind_of(layer), set(map(id, self.weights))
        weight, bias = layer.weight, getattr(layer, "bias", None)
        if id(weight) in trained:
            if kind == "linear":
                self._add_squares(weight, kind, linear_squares(read, back), read, back)
            elif kind == "embedding":
                if layer.padding_idx is not None:
                    back = back * (read != layer.padding_idx)[:, :, None]
                self._add_squares(weight, kind, row_squares(read, back), read, back)
            else:
                self._add_squares(weight, kind, (_normalised(layer, read) * back).sum(1).square_().sum(1))
        if bias is not None and id(bias) in trained:
            self._add_squares(bias, "bias", back.sum(1).square_().sum(1))

    def _add_squares(self, weight: Any, kind: str, squares: torch.Tensor, *factors: torch.Tensor) -> None:
        """Add the squared gradient norm of a weight for each document. If embedding and head share the weight matrix,
        the cross term of the two gradients is added too."""
        if weight in self._tied:
            other, *before = self._tied[weight]
            uses = {kind: factors, other: tuple(before)}
            if set(uses) != {"embedding", "linear"}:
                raise _Unknown
            squares = squares + self._squares[weight] + 2 * tied_products(*uses["embedding"], *uses["linear"])
        elif weight in self._squares:
            raise _Unknown
        elif weight is self.net.get_input_embeddings().weight:
            self._tied[weight] = (kind, *factors)  # type: ignore[assignment]
        self._squares[weight] = squares
