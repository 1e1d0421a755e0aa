"""Correct token offsets where the library's are wrong: BPE with characters missing from its vocabulary.

The definition is that of `rust_ext/src/tokenize/tokens/misplaced.rs`.
"""

from __future__ import annotations

from functools import cached_property

from tokenizers import PreTokenizedString, Token, Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel


class Misplaced:
    """Recomputes token offsets for a BPE tokenizer; false if the library's offsets are always right."""

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer, model = tokenizer, tokenizer.model
        self._is_needed = isinstance(model, BPE) and (model.unk_token is None or model.byte_fallback)
        if not self._is_needed:
            return
        self._prefix, self._suffix = model.continuing_subword_prefix or "", model.end_of_word_suffix or ""
        self._by_bytes, self._unknown = model.byte_fallback, model.unk_token
        steps = [step.__getstate__() for step in (tokenizer.normalizer, tokenizer.pre_tokenizer) if step is not None]
        renamed = any(b'"ByteLevel"' in step for step in steps)
        alphabet = ByteLevel.alphabet() if renamed else [f"<0x{byte:02X}>" for byte in range(256)]
        has_all = all(model.token_to_id(symbol) is not None for symbol in alphabet)
        self._is_needed = bool(self._prefix or self._suffix) or not (has_all and (renamed or self._by_bytes))

    @cached_property
    def _vocabulary(self) -> dict[str, int]:
        """Vocabulary of the tokenizer's model, without added tokens."""
        return self._tokenizer.get_vocab(with_added_tokens=False)

    def __bool__(self) -> bool:
        return self._is_needed

    def token_ranges(self, text: str, ids: list[int]) -> list[tuple[int, int]] | None:
        """Return the correct character range of each token of a text; None if tokenising the text gives other tokens
        than ``ids``."""
        parts = PreTokenizedString(text)
        if self._tokenizer.normalizer is not None:
            parts.normalize(self._tokenizer.normalizer.normalize)
        if self._tokenizer.pre_tokenizer is not None:
            self._tokenizer.pre_tokenizer.pre_tokenize(parts)
        parts.tokenize(self._tokenize_word)
        encoding = parts.to_encoding()
        return encoding.offsets if encoding.ids == ids else None

    def _tokenize_word(self, pretoken: str) -> list[Token]:
        """Return the tokens of a pretoken with their correct byte ranges in it, which the library can get wrong."""
        symbols, placed = self._align_symbols(pretoken), []
        for token in self._tokenizer.model.tokenize(pretoken):
            start, end = token.offsets
            met = [place for first, last, place in symbols if max(first, start) < min(last, end)]
            if len(met) == 0 or token.value == pretoken:
                met = [(start, end)]
            placed.append(Token(token.id, token.value, (min(met)[0], max(place[1] for place in met))))
        return placed

    def _align_symbols(self, pretoken: str) -> list[tuple[int, int, tuple[int, int]]]:
        """Return for each character of a pretoken (start, end, true byte range), where start and end are the offsets
        that the library would report. Characters that the library reorders share all of these."""
        found: list[list[int]] = []
        waiting: list[list[int]] = []
        counted = byte = 0
        overtaken = False
        for at, c in enumerate(pretoken):
            symbol = f"{self._prefix if at else ''}{c}{self._suffix if at + 1 == len(pretoken) else ''}"
            size = length = len(c.encode())
            is_unknown = False
            if symbol in self._vocabulary:
                waiting, overtaken = [], False
            elif self._by_bytes and all(f"<0x{number:02X}>" in self._vocabulary for number in symbol.encode()):
                length, overtaken = len(symbol.encode()), bool(waiting)
            elif self._unknown is None:
                length = 0
            else:
                is_unknown = True
            found.append([counted, counted + length, byte, byte + size])
            counted, byte = counted + length, byte + size
            if waiting or is_unknown:
                waiting.append(found[-1])
            for each in waiting if overtaken else ():
                each[:] = [waiting[0][0], counted, waiting[0][2], byte]
        return [(first, last, (start, end)) for first, last, start, end in found]
