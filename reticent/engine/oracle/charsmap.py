"""Corrected token offsets for SentencePiece character maps (`Precompiled` of XLM-R, T5, CamemBERT) that delete
characters.

The tokenizers library takes the length of the deleted characters off the character before. At the start of a text there
is none, and every later offset is too small; where that one had become several (`ﬁ`), the last stands at the deleted
one. This repeats the correction of ``rust_ext/src/tokenize/charsmap.rs`` without the core.
"""

from __future__ import annotations

import base64
import json
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Any


class Charsmaps:
    """The character maps of a ``tokenizer.json``; false if it has none."""

    def __init__(self, tokenizer_json: str):
        from tokenizers.normalizers import Precompiled

        # Most have none, and a large vocabulary takes a tenth of a second to parse.
        found = _find_charsmaps(json.loads(tokenizer_json)["normalizer"]) if '"Precompiled"' in tokenizer_json else ()
        self._maps = [Precompiled(base64.b64decode(each["precompiled_charsmap"])) for each in found]
        self.is_deleted = lru_cache(maxsize=None)(self._is_deleted)

    def __bool__(self) -> bool:
        return bool(self._maps)

    def num_deleted_at_start(self, text: str) -> int:
        """Return the number of characters at the start of a text that the tokenizer's SentencePiece character maps
        delete; 0 if they delete the whole text."""
        return next((at for at, c in enumerate(text) if not self.is_deleted(c)), 0)

    def correct_start(self, text: str, start: int) -> int:
        """Return the correct start offset of a token in ``text``. The ``start`` that the tokenizers library reports may
        be wrong: the offset of a character that the tokenizer deletes."""
        if start >= len(text) or not self.is_deleted(text[start]):
            return start
        left = (at for at in range(start - 1, -1, -1) if not self.is_deleted(text[at]))
        return next((at for at in left if not unicodedata.category(text[at]).startswith("M")), start)

    def _is_deleted(self, c: str) -> bool:
        """Whether the character maps delete this character."""
        for charsmap in self._maps:
            c = charsmap.normalize_str(c)
        return not c


def _find_charsmaps(normalizer: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Yield the character maps ("Precompiled" steps) in a tokenizer's normalizer, however nested."""
    if normalizer and normalizer["type"] == "Precompiled":
        yield normalizer
    for part in (normalizer or {}).get("normalizers", ()):
        yield from _find_charsmaps(part)
