"""Toy stores, tokenizers and models for the tests of the trainer: seconds, not minutes."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from reticent.engine.store import TokenStore

#: Text that is nobody's: the tokenizers of the toy models are trained on it.
PUBLIC_TEXT = [
    "the patient was seen today with pain in the chest and a fever",
    "she has a cough and no pain and was given rest at home",
    "he came back after a week with the same pain in the back",
]
#: One token: (token id, word id or -1, flags).
Token = tuple[int, int, int]


def make_store(*documents: list[Token], individual: list[int] | None = None) -> TokenStore:
    """Return a store in memory; by default every document is its own individual."""
    tokens = [token for document in documents for token in document]
    columns = np.array(tokens, dtype=np.int64).reshape(-1, 3).T
    return TokenStore(
        columns[0].astype(np.uint16),
        columns[1].astype(np.int32),
        columns[2].astype(np.uint8),
        np.zeros(len(tokens), dtype=np.uint8),
        np.cumsum([0, *map(len, documents)]).astype(np.int64),
        np.array(individual if individual is not None else range(len(documents)), dtype=np.uint32),
        pa.array([f"d{number}" for number in range(len(documents))], pa.string()),
    )


def random_store(
    num_documents: int, *, last_id: int = 200, protected: float = 0.3, length: int = 20, seed: int = 0
) -> TokenStore:
    """Return documents of one to ``length`` words of one to three tokens; a share of the words is protected."""
    random = np.random.default_rng(seed)
    documents = []
    for _ in range(num_documents):
        document: list[Token] = []
        for word in range(random.integers(1, length + 1)):
            flags = int(random.integers(1, 4)) if random.random() < protected else 0
            document += [(int(random.integers(5, last_id)), word, flags) for _ in range(random.integers(1, 4))]
            if random.random() < 0.2:
                document.append((int(random.integers(5, last_id)), -1, 0))
        documents.append(document)
    return make_store(*documents)


@cache
def toy_tokenizer(kind: str) -> str:
    """Return the ``tokenizer.json`` of a toy BERT ("bert") or GPT-2 ("gpt2")."""
    from reticent.trainer.foundation import train_tokenizer

    kinds: dict[str, Any] = {"bert": "wordpiece", "gpt2": "bytelevel"}
    return train_tokenizer([PUBLIC_TEXT], kinds[kind], 330)


def toy_model(kind: str, *, hidden_size: int = 16, max_length: int = 64, seed: int = 0) -> Any:
    """Return a fresh model of the toy tokenizer, one layer deep."""
    from reticent.trainer.foundation import new_model

    names: Any = kind
    return new_model(
        names, toy_tokenizer(kind), hidden_size=hidden_size, num_layers=1, max_length=max_length, seed=seed
    )


def words_of(store: TokenStore) -> list[list[Token]]:
    """Return the documents of a store as lists of tokens."""
    columns = zip(store.input_ids.tolist(), store.word_ids.tolist(), store.flags.tolist(), strict=True)
    tokens = list(columns)
    return [tokens[a:b] for a, b in itertools.pairwise(store.doc_offsets.tolist())]
