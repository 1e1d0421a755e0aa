"""Texts tokenised again by the Python library, with the character data that a comparison needs."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import regex

from reticent.engine.oracle.charsmap import Charsmaps
from reticent.engine.oracle.tokens import ReadTexts, Spans, TokenisedText

#: A grapheme cluster.
CLUSTER = regex.compile(r"\X")
#: Unicode's White_Space.
SPACES = np.array(
    [*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000], np.uint32
)


class Retokenizer:
    """The Python library's tokenizer, loaded from a file. Cost: up to .3 s for a large vocabulary."""

    def __init__(self, path: Path):
        from tokenizers import Tokenizer

        from reticent.engine.oracle.misplaced import Misplaced

        self.path = path
        content = path.read_text(encoding="utf-8")
        self._tokenizer, self._charsmaps = Tokenizer.from_str(content), Charsmaps(content)
        self._tokenizer.encode_special_tokens = True  # a document that writes "[MASK]" has written text
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._misplaced = Misplaced(self._tokenizer)
        unknown = self._tokenizer.model.tokenize("\U0010fffe")
        self._unknown = unknown[0].id if len(unknown) == 1 else None
        added = self._tokenizer.get_added_tokens_decoder()
        self._special = [i for i, token in added.items() if token.special and i != self._unknown]

    def __call__(self, texts: list[str], bases: np.ndarray) -> TokenisedText:
        """Return the tokens of documents. ``bases`` bounds the documents within the joined texts: the start of each,
        and the end of the last."""
        chain = itertools.chain.from_iterable
        deleted = [self._charsmaps.num_deleted_at_start(text) if self._charsmaps else 0 for text in texts]
        texts = [text[length:] for text, length in zip(texts, deleted, strict=True)]
        encodings = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        lengths = np.array([len(encoding) for encoding in encodings], dtype=np.int64)
        total = int(lengths.sum())
        ids = np.fromiter(chain(encoding.ids for encoding in encodings), dtype=np.int64, count=total)
        places = chain(map(self._token_ranges, texts, encodings))
        offsets = np.fromiter(chain(places), dtype=np.int64, count=2 * total).reshape(-1, 2)
        if self._unknown is not None:
            ids[np.isin(ids, self._special)] = self._unknown
        if self._charsmaps:
            owners = chain(itertools.repeat(text, length) for text, length in zip(texts, lengths.tolist(), strict=True))
            offsets[:, 0] = list(map(self._charsmaps.correct_start, owners, offsets[:, 0].tolist()))
        place = np.repeat(bases[:-1] + deleted, lengths)
        return TokenisedText(lengths, ids, offsets[:, 0] + place, offsets[:, 1] + place)

    def _token_ranges(self, text: str, encoding: Any) -> list[tuple[int, int]]:
        """Return the character range of each token, corrected where the library's offsets are known to be wrong."""
        places = self._misplaced.token_ranges(text, encoding.ids) if self._misplaced else None
        return encoding.offsets if places is None else places  # type: ignore[no-any-return]


def retokenize(
    texts: list[str], doc_ids: pa.Array, text_offsets: np.ndarray, spans: Spans, retokenizer: Retokenizer
) -> ReadTexts:
    """Tokenise documents again with the Python library. Return the tokens, a mask of the characters that are not white
    space, and the identifier ``spans`` widened to whole grapheme clusters; offsets are those in the joined texts, where
    ``text_offsets`` has the start of each text."""
    joined = "\n".join(texts)
    codes = np.frombuffer(joined.encode("utf-32-le"), dtype=np.uint32)
    place = text_offsets[spans.owners]
    cut = _grow_to_clusters(joined, spans.starts + place, spans.ends + place)
    return ReadTexts(doc_ids, ~np.isin(codes, SPACES), cut, retokenizer(texts, text_offsets))


def _grow_to_clusters(text: str, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the non-empty spans, each bound moved outwards to the edge of its grapheme cluster, as starts and ends,
    int64."""
    real = starts < ends
    return tuple(  # type: ignore[return-value]
        np.array([_cluster_at(text, at)[side] for at in edges[real].tolist()], dtype=np.int64)
        for side, edges in enumerate((starts, ends))
    )


def _cluster_at(text: str, at: int) -> tuple[int, int]:
    """Return the bounds of the grapheme cluster around this offset; (at, at) if it is on a boundary."""
    if at == len(text) or text[at].isascii():
        return at, at
    first = at
    while first > 0 and not (text[first].isascii() and text[first - 1].isascii()):  # two of ASCII are never one
        first -= 1
    cluster = next(m for m in CLUSTER.finditer(text, first) if m.end() > at)
    return (at, at) if cluster.start() == at else cluster.span()
