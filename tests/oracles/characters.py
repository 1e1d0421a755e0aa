"""Which characters a model is asked to predict: told from text and tokenizers library, not from stored words.

Two oracles, and a character is a target when either says so. By *offsets*: those that the library gives in
characters. By what tokens *spell*: where a tokenizer loses nothing, its tokens one after the other are the text,
whatever the offsets say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from unicodedata import normalize

import numpy as np
import regex
from tokenizers import Encoding, Tokenizer

from oracles.word_rules import is_space, words_of

__all__ = ["PROTECTED", "Stream", "characters_met", "characters_of", "open_tokenizer", "rare_characters"]

PROTECTED = 3  # direct or indirect
_CLUSTER = regex.compile(r"\X")


class Stream:
    """Bytes that the tokens of a text spell, and the characters that each byte comes from."""

    def __init__(self, kind: str, tokenizer: Tokenizer, text: str):
        self._kind = kind
        parts: list[tuple[str, set[int]]] = [(c, {at}) for at, c in enumerate(text)]
        if kind.startswith("Unigram"):
            parts = list(_normalised(tokenizer, text))
            parts = [(part.replace(" ", "▁"), owners) for part, owners in parts]
            parts = parts if "".join(part for part, _ in parts).startswith("▁") else [("▁", set()), *parts]
        elif kind.endswith("NFC"):
            parts = list(_normalised(tokenizer, text))
        elif kind == "BPE, byte fallback":
            parts = [("▁", set()), *((c.replace(" ", "▁"), owners) for c, owners in parts)]
        elif kind == "byte-level, prefix space" and not text.startswith(" "):
            parts = [(" ", set()), *parts]
        pieces = [(byte, owners) for part, owners in parts for byte in part.encode()]
        self._bytes = bytes(byte for byte, _ in pieces)
        self._owners = [owners for _, owners in pieces]
        self._at = 0

    @staticmethod
    def is_known(kind: str, tokenizer: Tokenizer, text: str) -> bool:
        """Whether it can be told what the tokens of this text spell."""
        if kind.startswith(("WordPiece", "NFD", "bert")):
            return False
        if kind.startswith("Unigram") or kind.endswith("NFC"):
            # Normalised cluster by cluster it must be the same; what a normaliser does across them has no owner here.
            return "".join(part for part, _ in _normalised(tokenizer, text)) == tokenizer.normalizer.normalize_str(text)
        return True

    def take(self, token: str) -> set[int]:
        """Characters of the next token; `AssertionError` where it is not what comes next."""
        spelled = self._spelled(token)
        end = self._at + len(spelled)
        assert self._bytes[self._at : end] == spelled, f"{self._kind}: a token does not spell what comes next"
        owners = set().union(*self._owners[self._at : end])
        self._at = end
        return owners

    def _spelled(self, token: str) -> bytes:
        if self._kind == "BPE, byte fallback" and regex.fullmatch("<0x[0-9A-F]{2}>", token):
            return bytes([int(token[3:5], 16)])
        if self._kind.startswith(("Unigram", "BPE")):
            return token.encode()
        alphabet = _byte_alphabet()
        return bytes(alphabet[c] for c in token) if all(c in alphabet for c in token) else token.encode()


def _normalised(tokenizer: Tokenizer, text: str) -> Iterator[tuple[str, set[int]]]:
    """Output of the tokenizer's normaliser for each grapheme cluster, with the cluster's characters (each with its own
    where none changes).
    """
    for cluster in _CLUSTER.finditer(text):
        made = tokenizer.normalizer.normalize_str(cluster.group())
        if made == cluster.group():
            yield from ((c, {cluster.start() + at}) for at, c in enumerate(made))
        else:
            # White space that comes out of it tells nothing of what was in it.
            yield from ((c, set() if is_space(c) else set(range(*cluster.span()))) for c in made)


@cache
def _byte_alphabet() -> dict[str, int]:
    """The letters that byte-level tokenizers write bytes with."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(256 + at): byte for at, byte in enumerate(hidden)}


def open_tokenizer(json: str) -> Tokenizer:
    """Return the library's tokenizer, to which text that spells a special token is text."""
    tokenizer = Tokenizer.from_str(json)
    tokenizer.encode_special_tokens = True
    return tokenizer


def characters_met(kind: str, tokenizer: Tokenizer, text: str) -> list[set[int]]:
    """Return the characters, white space aside, that each token of a text meets by either oracle."""
    encoding: Encoding = tokenizer.encode(text, add_special_tokens=False)
    met = [set(range(start, max(end, start + 1))) for start, end in encoding.offsets]
    if Stream.is_known(kind, tokenizer, text):
        stream = Stream(kind, tokenizer, text)
        spelled = [stream.take(token) for token in encoding.tokens]
        # The library's offsets are wrong where a map of SentencePiece deletes something.
        met = (
            spelled
            if kind == "Unigram, SentencePiece"
            else [own | more for own, more in zip(met, spelled, strict=True)]
        )
    return [{at for at in own if at < len(text) and not is_space(text[at])} for own in met]


def rare_characters(texts: list[str], individuals: list[str], *, k: int, n: int) -> list[set[int]]:
    """Return the characters of each text in a word that counting protects: one of up to n words in a row that fewer
    than k individuals use, and that hold no shorter such run. Words by the oracle of `word_rules`.
    """
    bounds = [words_of(text, "new") for text in texts]
    surfaces = [[_surface(text[a:b]) for a, b in own] for text, own in zip(texts, bounds, strict=True)]
    used: dict[tuple[str, ...], set[str]] = {}
    for words, individual in zip(surfaces, individuals, strict=True):
        for gram, _ in _grams(words, n):
            used.setdefault(gram, set()).add(individual)
    identifying = {gram for gram, users in used.items() if len(users) < k}
    # A longer one that holds an identifying one adds nothing: the rule is about the minimal ones.
    minimal = {gram for gram in identifying if not any(part in identifying for part, _ in _grams(gram, len(gram) - 1))}
    found = []
    for own, words in zip(bounds, surfaces, strict=True):
        rare = np.zeros(len(words), bool)
        for gram, first in _grams(words, n):
            if gram in minimal:
                rare[first : first + len(gram)] = True
        found.append({at for (a, b), is_rare in zip(own, rare, strict=True) if is_rare for at in range(a, b)})
    return found


def _grams(words: Sequence[str], n: int) -> Iterator[tuple[tuple[str, ...], int]]:
    for size in range(1, n + 1):
        for first in range(len(words) - size + 1):
            yield tuple(words[first : first + size]), first


def _surface(word: str) -> str:
    """As counting compares words by default."""
    return normalize("NFC", word)


def characters_of(met: list[set[int]], chosen: np.ndarray) -> set[int]:
    """Return the characters that the chosen tokens of a document meet, of `characters_met` and a bool array."""
    assert len(met) == len(chosen), "the store has other tokens than the library"
    return set().union(*(met[at] for at in np.flatnonzero(chosen).tolist()))
