"""Identifiers in text that a causal model generates (definitions.md#leakage): the second half of the Privacy metric.

The model continues the beginnings of documents of both sides. An identifier counts as leaked where it is written
anywhere, but not where the beginning it was given holds it: repeating what was said is no leak. The same identifiers
of members and held-out individuals are counted, so that what such documents hold in general cancels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from reticent.audit.config import GenerationConfig
from reticent.audit.evidence.leakage import Generated, GenerationSettings, Sides
from reticent.audit.leakage.leakage import excess_leakage
from reticent.audit.leakage.words import NO_SURFACE, SurfaceTable, Words
from reticent.audit.scoring.generate import Decoding, generate
from reticent.engine.randomness import generator
from reticent.engine.store import TokenStore
from reticent.trainer.windows import SpecialIds

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

__all__ = ["GenerationConfig", "draw_prompts", "generated_leakage", "new_surfaces"]


def draw_prompts(store: TokenStore, members: np.ndarray, config: GenerationConfig, seed: int) -> np.ndarray:
    """Return documents that are longer than a prompt, up to ``num_prompts`` of the larger side, int64, ascending.

    Of both sides the same share is drawn: a document's beginning draws out its own words, and rates are over all,
    so a side that is asked more densely would seem to leak more.

    Parameters
    ----------
    members : bool array, shape (num_documents,)
    """
    random = generator(seed, 23)
    long_enough = np.diff(store.doc_offsets) > config.prefix_tokens
    sides = [np.flatnonzero(side & long_enough) for side in (members, ~members)]
    share = min(1.0, config.num_prompts / max(1, *map(len, sides)))
    return np.sort(np.concatenate([random.permutation(side)[: round(share * len(side))] for side in sides]))


def new_surfaces(
    prompts: np.ndarray, made: np.ndarray, table: SurfaceTable, tokenizer: PreTrainedTokenizerFast
) -> np.ndarray:
    """Return the known surfaces of the words that were written and do not stand in their own prompt, int64, distinct.

    Parameters
    ----------
    prompts : int array, shape (P, prefix tokens)
    made : int array, shape (P, samples, tokens), -1 after the end
    """
    given, given_row = _words(list(prompts.tolist()), table, tokenizer)
    rows = [[token for token in row if token >= 0] for row in made.reshape(-1, made.shape[-1]).tolist()]
    written, row = _words(rows, table, tokenizer)
    row = row // made.shape[1]
    width = int(max(given.max(initial=0), written.max(initial=0))) + 2
    fresh = ~np.isin(row * width + written, given_row * width + given) & (written != NO_SURFACE)
    return np.unique(written[fresh])


def _words(
    rows: list[list[int]], table: SurfaceTable, tokenizer: PreTrainedTokenizerFast
) -> tuple[np.ndarray, np.ndarray]:
    """Surfaces of the words of rows of ids, cut as documents are, and the row of each."""
    from reticent import _rust

    texts = pa.array(tokenizer.backend_tokenizer.decode_batch(rows, skip_special_tokens=True), pa.large_string())
    words = _rust.segment(texts)
    spelled = pa.record_batch(words.surfaces(texts)).column("word").to_pylist()
    return table.known(spelled), np.repeat(np.arange(len(rows)), np.diff(words.doc_offsets))


def generated_leakage(
    model: PreTrainedModel,
    store: TokenStore,
    members: np.ndarray,
    words: Words,
    true: np.ndarray,
    table: SurfaceTable,
    tokenizer: PreTrainedTokenizerFast,
    special: SpecialIds,
    config: GenerationConfig,
    *,
    batch_size: int,
    device: str,
    num_bootstrap: int,
    seed: int,
) -> Generated:
    """Return the leak rates of generated text.

    Parameters
    ----------
    words, true : words of the store and their surfaces, numbered by ``table``

    Cost: at most 2 x num_prompts x num_samples continuations of num_tokens tokens.
    """
    documents = draw_prompts(store, members, config, seed)
    prompts = store.input_ids[store.doc_offsets[documents][:, None] + np.arange(config.prefix_tokens)].astype(np.int64)
    decoding = Decoding(temperature=config.temperature, top_k=config.top_k)
    predicted_types = np.empty(0, dtype=np.int64)
    if len(documents):
        made = generate(
            model, list(prompts), special=special, num_tokens=config.num_tokens, decoding=decoding,
            num_samples=config.num_samples, batch_size=batch_size, seed=seed, device=device,
        )  # fmt: skip
        predicted_types = new_surfaces(prompts, made, table, tokenizer)
    is_member = members[words.documents]
    return Generated(
        settings=GenerationSettings(**config.model_dump()),
        decoding=str(decoding),
        num_prompts=Sides.of(members[documents]),
        excess=excess_leakage(words, true, predicted_types, is_member, num_bootstrap=num_bootstrap, seed=seed),
    )
