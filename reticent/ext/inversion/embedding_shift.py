"""Embedding shift (white box): whether embedding rows used only by identifiers show that they were trained on.

An embedding row moves when training reads or predicts its token. The distance from the base model's row is compared
between tokens that the training documents use in identifiers only, and tokens they do not use at all, of the same kind
(letters or not, begins a word or not) so that a difference is not one between kinds of tokens. The measure is the AUROC
over such pairs: at 0.5 the weights do not show which of the names were in the data. With frozen embeddings no row
moves, and it is exactly 0.5.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import torch

from reticent.audit.evidence.inversion import EmbeddingShift
from reticent.audit.stats.intervals import Bootstrap, Estimate, ratio_estimate
from reticent.core.errors import ArtifactError
from reticent.engine.store import TokenStore

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

UNIT = "rows of the vocabulary"


def identifier_only_rows(store: TokenStore, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which vocabulary tokens occur in the store only inside identifiers, and which do not occur at all; two
    bool arrays (num_rows,).
    """
    total = np.bincount(store.input_ids, minlength=num_rows)[:num_rows]
    flagged = np.bincount(store.input_ids[store.flags > 0], minlength=num_rows)[:num_rows]
    return (total > 0) & (flagged == total), total == 0


def kinds_of_tokens(tokenizer: PreTrainedTokenizerFast, num_rows: int) -> np.ndarray:
    """Return a code for the spelling of each vocabulary token (letters or not, word start or not), int64 (num_rows,);
    -1 for special tokens and rows without a token.

    Kinds: of letters only or not, crossed with the mark of its place in a word: a space, ``##`` or neither.
    """
    special = set(tokenizer.all_special_ids)
    kinds = np.full(num_rows, -1, dtype=np.int64)
    for number, token in enumerate(tokenizer.convert_ids_to_tokens(list(range(min(len(tokenizer), num_rows))))):
        if token is None or number in special:
            continue
        mark = next((place for place, found in enumerate(("##", "\u0120", "\u2581"), 1) if token.startswith(found)), 0)
        kinds[number] = 2 * mark + token.lstrip("#\u0120\u2581").isalpha()
    return kinds


@torch.inference_mode()
def embedding_shift(
    model: PreTrainedModel,
    base: PreTrainedModel,
    store: TokenStore,
    tokenizer: PreTrainedTokenizerFast,
    **bootstrap: Unpack[Bootstrap],
) -> EmbeddingShift:
    """Measure how much farther training moved the embeddings of tokens that occur only in identifiers than those of
    unused tokens. Return the AUROC, for input and for output embeddings.

    Intervals resample the used rows of the vocabulary; the unused ones are fixed. With tied weights both are the same
    matrix. Rows of a kind without an unused token are left out.

    Parameters
    ----------
    store : the members' tokens as they stand in their documents, even if the model was trained on rewritten ones

    Raises
    ------
    ArtifactError
        The two models have embeddings of different shapes.
    """
    both: list[Any] = [model, base]
    pairs = {"input": [m.get_input_embeddings() for m in both]}
    pairs["output"] = [m.get_output_embeddings() or m.get_input_embeddings() for m in both]
    shifts = {}
    for name, (own, other) in pairs.items():
        now, before = (layer.weight.detach().float().cpu() for layer in (own, other))
        if now.shape != before.shape:
            raise ArtifactError(f"{name} embeddings: {tuple(now.shape)}, of the base {tuple(before.shape)}")
        shifts[name] = torch.linalg.vector_norm(now - before, dim=1).numpy()
    num_rows = len(shifts["input"])
    used, unused = identifier_only_rows(store, num_rows)
    kinds = kinds_of_tokens(tokenizer, num_rows)
    used &= (kinds >= 0) & np.isin(kinds, kinds[unused])
    unused &= (kinds >= 0) & np.isin(kinds, kinds[used])
    return EmbeddingShift(
        input=_auroc(shifts["input"], used, unused, kinds, **bootstrap),
        output=_auroc(shifts["output"], used, unused, kinds, **bootstrap),
        tied=pairs["input"][0].weight is pairs["output"][0].weight,
        num_rows=int(used.sum()),
        num_unused=int(unused.sum()),
    )


def _auroc(
    shift: np.ndarray, used: np.ndarray, unused: np.ndarray, kinds: np.ndarray, **bootstrap: Unpack[Bootstrap]
) -> Estimate:
    """Return the AUROC with which the ``shift`` of embedding rows tells used from unused vocabulary tokens. Only tokens
    of the same kind of spelling (``kinds``) are compared; 0.5 if no row moved.
    """
    wins = np.zeros(int(used.sum()))
    kind_of = kinds[used]
    for kind in np.unique(kind_of).tolist():
        others = np.sort(shift[unused & (kinds == kind)])
        mine = shift[used][kind_of == kind]
        below, up_to = (np.searchsorted(others, mine, side=side) for side in ("left", "right"))
        wins[kind_of == kind] = (below + up_to) / (2 * len(others))
    if len(wins) and not shift[used | unused].any():
        return Estimate(value=0.5, low=0.5, high=0.5, n=len(wins), unit=UNIT, method="no row moved")
    estimate = ratio_estimate(wins, np.ones(len(wins)), unit=UNIT, **bootstrap)
    return replace(estimate, method=estimate.method.replace("individuals", "rows"))
