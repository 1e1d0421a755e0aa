"""Small replacements for a foundation model: a tokenizer trained on public text, and a randomly initialised BERT or
GPT-2.

A vocabulary that is trained on the documents of individuals holds their words in ``tokenizer.json``: what may leave is
trained on public text.
"""

from __future__ import annotations

import math
import string
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

import torch

from reticent.core.errors import PolicyError
from reticent.trainer.models import load_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

BERT_SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
#: Characters of every WordPiece vocabulary, at the start of a word and inside, whether the public text has them or not.
#: Words with other characters become [UNK], which no model can predict as a word.
ALPHABET = [chr(code) for code in (*range(0x21, 0x7F), *range(0xC0, 0x100), 0x152, 0x153)]
#: Characters that BERT splits off as single words, so they never occur inside a word.
PUNCTUATION = frozenset(string.punctuation)
#: Marks the beginning of a word while a vocabulary is learned; BERT's normaliser removes this character from texts.
WORD_START = "\ue000"


def train_tokenizer(
    texts: Iterable[list[str]], kind: Literal["wordpiece", "bytelevel"] = "wordpiece", vocab_size: int = 4000
) -> str:
    """Return the ``tokenizer.json`` text of a tokenizer that is trained on batches of public text.

    "wordpiece" is BERT's cased variant, "bytelevel" is GPT-2's byte-level BPE. tokenizers 1.0 cannot train: 0.23 does.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    if kind == "wordpiece":
        tokenizer = Tokenizer(models.WordPiece(_wordpieces(texts, vocab_size), unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece()
        tokenizer.add_special_tokens(BERT_SPECIALS)
        sep, cls = (BERT_SPECIALS.index(token) for token in ("[SEP]", "[CLS]"))
        tokenizer.post_processor = processors.BertProcessing(("[SEP]", sep), ("[CLS]", cls))
    elif kind == "bytelevel":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=["<|endoftext|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(texts, trainer)
    else:
        raise PolicyError(f"tokenizer kind: expected wordpiece or bytelevel, got {kind!r}")
    return tokenizer.to_str()


def _wordpieces(texts: Iterable[list[str]], vocab_size: int) -> dict[str, int]:
    """Return a reproducible WordPiece vocabulary (token -> id): special tokens, the alphabet, then pieces in the order
    of BPE merges.

    The library's own WordPiece trainer numbers the pieces inside words in the order of a hash table, and breaks ties by
    these numbers. Plain BPE does not. A mark before each word distinguishes its first piece from the others.
    """
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    learner = Tokenizer(models.BPE())
    learner.normalizer = normalizers.BertNormalizer(lowercase=False)
    learner.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.BertPreTokenizer(),
            pre_tokenizers.Metaspace(replacement=WORD_START, prepend_scheme="always", split=False),
        ]
    )
    # The mark, and letters merged with it, do not become pieces, so as many more are learned.
    trainer = trainers.BpeTrainer(vocab_size=vocab_size + 2 * len(ALPHABET), show_progress=False)
    learner.train_from_iterator(texts, trainer)
    numbers = learner.get_vocab()
    learned = sorted(numbers, key=numbers.__getitem__)
    letters = dict.fromkeys([*ALPHABET, *(token for token in learned if len(token) == 1 and token != WORD_START)])
    base = [*BERT_SPECIALS, *letters, *(f"##{letter}" for letter in letters if letter not in PUNCTUATION)]
    merged = (
        token.removeprefix(WORD_START) if token.startswith(WORD_START) else f"##{token}"
        for token in learned
        if len(token) > 1
    )
    pieces = list(dict.fromkeys([*base, *merged]))
    return {token: number for number, token in enumerate(pieces[: max(vocab_size, len(base))])}


def new_model(
    kind: Literal["bert", "gpt2"],
    tokenizer_json: str,
    *,
    hidden_size: int = 128,
    num_layers: int = 2,
    num_heads: int = 2,
    max_length: int = 512,
    seed: int = 0,
) -> PreTrainedModel:
    """Return a small model with random weights, tied embeddings and no dropout.

    Position embeddings start as sinusoids, so that "the word before" is the same direction at all positions. With
    random ones the attention of a small BERT stays uniform for thousands of steps.
    """
    from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel

    tokenizer = load_tokenizer(tokenizer_json)
    size = len(tokenizer)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if kind == "bert":
            bert = BertConfig(
                vocab_size=size,
                hidden_size=hidden_size,
                num_hidden_layers=num_layers,
                num_attention_heads=num_heads,
                intermediate_size=4 * hidden_size,
                max_position_embeddings=max_length,
                hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0,
                pad_token_id=tokenizer.pad_token_id,
                # BERT's 0.02 is for 768 dimensions; in a small model it keeps attention uniform for thousands of steps.
                initializer_range=(2 * hidden_size) ** -0.5,
            )
            bert._attn_implementation = "sdpa"
            masked = BertForMaskedLM(bert)
            _start_as_sinusoids(masked.bert.embeddings.position_embeddings.weight)
            return masked
        if kind == "gpt2":
            gpt2 = GPT2Config(
                vocab_size=size,
                n_embd=hidden_size,
                n_layer=num_layers,
                n_head=num_heads,
                n_positions=max_length,
                resid_pdrop=0.0,
                embd_pdrop=0.0,
                attn_pdrop=0.0,
                bos_token_id=tokenizer.bos_token_id,
                eos_token_id=tokenizer.eos_token_id,
            )
            gpt2._attn_implementation = "sdpa"
            causal = GPT2LMHeadModel(gpt2)
            _start_as_sinusoids(causal.transformer.wpe.weight)
            return causal
    raise PolicyError(f"model kind: expected bert or gpt2, got {kind!r}")


@torch.no_grad()
def _start_as_sinusoids(positions_TD: torch.Tensor) -> None:
    """Overwrite position embeddings with sinusoids (Vaswani et al. 2017) of the same standard deviation."""
    length, width = positions_TD.shape
    rates = torch.exp(-math.log(10_000.0) * torch.arange(0, width, 2) / width)
    angles = torch.arange(length)[:, None] * rates
    waves = torch.cat([angles.sin(), angles.cos()], dim=1)[:, :width]
    positions_TD.copy_(waves * positions_TD.std() * math.sqrt(2))
