"""Identifiers in text that a causal model generates (definitions.md#leakage): the second half of the Privacy metric.

The model continues the beginnings of documents of both sides. An identifier counts as leaked if a continuation contains
it and its prompt does not: repeating the prompt is not a leak. The same identifiers are counted for members and
held-out individuals, so identifiers that are common in such documents cancel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

import numpy as np
import pyarrow as pa

from reticent.audit.config import GenerationConfig
from reticent.audit.evidence.leakage import Continuations, Generated, GenerationSettings, Sides
from reticent.audit.leakage.continuations import continuations
from reticent.audit.leakage.identifiers import Identifiers
from reticent.audit.leakage.leakage import excess_leakage
from reticent.audit.leakage.words import SurfaceTable
from reticent.audit.scoring.generate import Decoding, generate
from reticent.audit.stats.statistics import Bootstrap
from reticent.engine.randomness import generator
from reticent.engine.store import TokenStore
from reticent.trainer.windows import SpecialIds

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

__all__ = [
    "GenerationConfig",
    "Written",
    "continue_documents",
    "draw_prompts",
    "generated_leakage",
    "newly_written",
    "texts_of",
]


@dataclass(frozen=True, slots=True)
class Written:
    """Continuations of the beginnings of documents.

    Attributes
    ----------
    documents : int64 (P,), numbers of the documents, ascending
    prompts : int64 (P, prefix tokens)
    made : int64 (P, samples, tokens), -1 after the end
    """

    documents: np.ndarray
    prompts: np.ndarray
    made: np.ndarray


def draw_prompts(store: TokenStore, members: np.ndarray, config: GenerationConfig, seed: int) -> np.ndarray:
    """Return documents that are longer than a prompt, up to ``num_prompts`` of the larger side, int64, ascending.

    The same share of both sides is drawn. The beginning of a document tends to elicit its own words, and rates are over
    all identifiers, so a side with more prompts per document would seem to leak more.

    Parameters
    ----------
    members : bool array, shape (num_documents,)
    """
    random = generator(seed, 23)
    long_enough = np.diff(store.doc_offsets) > config.prefix_tokens
    sides = [np.flatnonzero(side & long_enough) for side in (members, ~members)]
    share = min(1.0, config.num_prompts / max(1, *map(len, sides)))
    return np.sort(np.concatenate([random.permutation(side)[: round(share * len(side))] for side in sides]))


def newly_written(
    prompts: np.ndarray,
    made: np.ndarray,
    identifiers: Identifiers,
    table: SurfaceTable,
    tokenizer: PreTrainedTokenizerFast,
) -> np.ndarray:
    """Return the identifiers that occur in a continuation whose prompt does not contain them: bool, by number.

    Parameters
    ----------
    prompts : int array, shape (P, prefix tokens)
    made : int array, shape (P, samples, tokens), -1 after the end
    """
    given, given_row = _spelled(list(prompts.tolist()), identifiers, table, tokenizer)
    rows = [[token for token in row if token >= 0] for row in made.reshape(-1, made.shape[-1]).tolist()]
    written, row = _spelled(rows, identifiers, table, tokenizer)
    row = row // made.shape[1]
    new = ~np.isin(row * identifiers.num + written, given_row * identifiers.num + given)
    found = np.zeros(identifiers.num, dtype=bool)
    found[written[new]] = True
    return found


def _spelled(
    rows: list[list[int]], identifiers: Identifiers, table: SurfaceTable, tokenizer: PreTrainedTokenizerFast
) -> tuple[np.ndarray, np.ndarray]:
    """Identifiers in rows of ids, split into words like documents, and the row of each."""
    from reticent import _rust

    texts = pa.array(tokenizer.backend_tokenizer.decode_batch(rows, skip_special_tokens=True), pa.large_string())
    words = _rust.segment(texts)
    surfaces = table.known(pa.record_batch(words.surfaces(texts)).column("word").to_pylist())
    row = np.repeat(np.arange(len(rows)), np.diff(words.doc_offsets))
    following = np.diff(row, prepend=-1) == 0
    places, numbers, _ = identifiers.find(surfaces, following)
    return numbers, row[places]


def continue_documents(
    model: PreTrainedModel,
    store: TokenStore,
    members: np.ndarray,
    special: SpecialIds,
    config: GenerationConfig,
    *,
    batch_size: int,
    device: str,
    bf16: str,
    seed: int,
) -> Written:
    """Return a model's continuations of the documents that `draw_prompts` draws.

    Cost: at most 2 x num_prompts x num_samples continuations of num_tokens tokens.
    """
    documents = draw_prompts(store, members, config, seed)
    prompts = store.input_ids[store.doc_offsets[documents][:, None] + np.arange(config.prefix_tokens)].astype(np.int64)
    made = np.empty((0, config.num_samples, config.num_tokens), dtype=np.int64)
    if len(documents):
        made = generate(
            model, list(prompts), special=special, num_tokens=config.num_tokens, decoding=_decoding(config),
            num_samples=config.num_samples, batch_size=batch_size, seed=seed, device=device, bf16=bf16,
        )  # fmt: skip
    return Written(documents, prompts, made)


def _decoding(config: GenerationConfig) -> Decoding:
    return Decoding(temperature=config.temperature, top_k=config.top_k)


def texts_of(
    written: Written, store: TokenStore, config: GenerationConfig, tokenizer: PreTrainedTokenizerFast
) -> tuple[list[str], list[list[str]]]:
    """Return the rest of each document after its prompt, as long as a continuation, and its continuations."""
    decode = tokenizer.backend_tokenizer.decode_batch
    first = store.doc_offsets[written.documents] + config.prefix_tokens
    end = np.minimum(first + config.num_tokens, store.doc_offsets[written.documents + 1])
    rest = decode([store.input_ids[a:b].tolist() for a, b in zip(first, end, strict=True)], skip_special_tokens=True)
    rows = [[token for token in sample if token >= 0] for own in written.made.tolist() for sample in own]
    texts, num = decode(rows, skip_special_tokens=True), written.made.shape[1]
    return list(rest), [list(texts[at : at + num]) for at in range(0, len(texts), num)]


def generated_leakage(
    continued: Written,
    store: TokenStore,
    members: np.ndarray,
    identifiers: Identifiers,
    table: SurfaceTable,
    tokenizer: PreTrainedTokenizerFast,
    config: GenerationConfig,
    **bootstrap: Unpack[Bootstrap],
) -> Generated:
    """Return the leak rates of generated text.

    Parameters
    ----------
    continued : continuations by `continue_documents` with the same ``config``
    identifiers : identifiers of the store, over the surfaces that ``table`` numbers
    """
    documents, made = continued.documents, continued.made
    heldout = of_members = None
    written = np.zeros(identifiers.num, dtype=bool)
    if len(documents):
        written = newly_written(continued.prompts, made, identifiers, table, tokenizer)
        heldout, of_members = (
            _continued(store, documents, side, made, config, tokenizer, **bootstrap) if side.any() else None
            for side in (~members[documents], members[documents])
        )
    is_member = members[identifiers.words.documents]
    return Generated(
        settings=GenerationSettings(**config.model_dump()),
        decoding=str(_decoding(config)),
        num_prompts=Sides.of(members[documents]),
        excess=excess_leakage(identifiers, written, is_member, **bootstrap),
        heldout=heldout,
        members=of_members,
    )


def _continued(
    store: TokenStore,
    documents: np.ndarray,
    side: np.ndarray,
    made: np.ndarray,
    config: GenerationConfig,
    tokenizer: PreTrainedTokenizerFast,
    **bootstrap: Unpack[Bootstrap],
) -> Continuations:
    """BLEU and ROUGE of one side's continuations against the same number of tokens of the documents themselves."""
    first = store.doc_offsets[documents] + config.prefix_tokens
    end = np.minimum(first + config.num_tokens, store.doc_offsets[documents + 1])
    chosen = np.flatnonzero(side)
    decode = tokenizer.backend_tokenizer.decode_batch
    true = decode([store.input_ids[first[i] : end[i]].tolist() for i in chosen], skip_special_tokens=True)
    rows = [[token for token in sample if token >= 0] for i in chosen for sample in made[i].tolist()]
    num_samples = made.shape[1]
    return continuations(
        decode(rows, skip_special_tokens=True),
        [text for text in true for _ in range(num_samples)],
        np.repeat(store.individual[documents[chosen]], num_samples),
        **bootstrap,
    )
