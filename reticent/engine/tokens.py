"""Documents, spans and index -> protected tokens of one tokenizer: the stage where protection meets tokens.

There are two passes. The first collects the surfaces of direct identifiers whose scope extends beyond their span
(:mod:`reticent.engine.flagged_words`). The second flags words, tokenises, aligns and writes. Rust handles the strings;
this file only moves batches.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from reticent.core.errors import CorpusError
from reticent.engine.flagged_words import Flagged, FlaggedWords
from reticent.engine.names import SurrogateNames
from reticent.engine.patches import PatchMaker
from reticent.engine.rewrite import Rewritten, TextStyle, lower_case, replace_spans, replace_words_by_x
from reticent.engine.schema import DIRECT, INDIRECT
from reticent.engine.store_writer import StoreWriter

if TYPE_CHECKING:
    from reticent.engine.corpus import Corpus, Documents
    from reticent.engine.detect.spans import SpanReader
    from reticent.engine.ngrams import NgramIndex
    from reticent.engine.protect import Policy
    from reticent.engine.split import Individuals
    from reticent.engine.survey import Survey

__all__ = ["TokenMaker", "write_tokens"]


def write_tokens(
    folder: Path | str,
    corpus: Corpus | Documents,
    individuals: Individuals | None,
    tokenizer_json: str,
    *,
    splits: tuple[str, ...] | None = None,
    index: NgramIndex | None = None,
    spans: SpanReader | None = None,
    policy: Policy | None = None,
    style: TextStyle | None = None,
    ids: Path | None = None,
    progress: Callable[[int], None] | None = None,
    num_threads: int = 0,
) -> dict[str, Any]:
    """Write the protected tokens of the documents of ``splits`` (all documents if None); returns counts.

    Parameters
    ----------
    individuals : Individuals or None
        None is for text of no individual: every document then counts as its own individual.
    index, spans : optional
        Index and spans that make words indirect and direct; without them no word is.
    style : {"x", "tag", "lower"}, optional
        Replacement of direct identifiers in the text whose tokens are written; None leaves it as it is. "x": ``X`` for
        each direct word, its flags 0. "tag": ``[NAME]`` for each span, direct. Flags of other words are those of the
        original. "lower": the text in lower case, no word flagged, for the attack of that name. For surrogates see
        `TokenMaker.write`.
    ids : Path, optional
        See `TokenMaker`.

    Returns
    -------
    dict
        documents, tokens, words, direct, indirect, protected (words), retention (share of words not protected),
        blacklisted (surfaces protected beyond their span), pretokens ("bert" or "bytelevel" where each distinct one
        was tokenised once, "library" where documents went through the tokenizers library whole).

    Raises
    ------
    CorpusError
        No document belongs to the splits, a span does not fit its text, or the tokenizer makes no token of a document
        with words, or more tokens than a text of its length can have.

    Cost: two passes over the text (one without spans); memory is one batch and the blacklist.
    """
    from reticent.engine.corpus import as_corpus

    corpus = as_corpus(corpus)
    flagged = FlaggedWords(
        corpus,
        individuals,
        splits=splits,
        index=index,
        spans=spans,
        policy=policy,
        by_category=style not in (None, "x", "lower"),
        num_threads=num_threads,
    )
    return TokenMaker(flagged, tokenizer_json, ids=ids).write(folder, style=style, progress=progress)


class TokenMaker:
    """Writes the tokens of flagged documents in any style, as often as is wanted; the costly parts are made once.

    Parameters
    ----------
    ids : Path, optional
        Folder of the ids of the corpus and this tokenizer. With it text in which identifiers are replaced is written
        as a patch over them (:mod:`reticent.engine.patches`), if the tokenizer can be cut.
    kept : Path, optional
        See `PatchMaker`.
    names : SurrogateNames, optional
        Names that surrogates are drawn from; default: realistic ones in the language of most documents.
    """

    def __init__(
        self,
        flagged: FlaggedWords,
        tokenizer_json: str,
        *,
        ids: Path | None = None,
        kept: Path | None = None,
        names: SurrogateNames | None = None,
    ):
        from reticent import _rust

        self._flagged, self._tokenizer_json = flagged, tokenizer_json
        self._encoder = _rust.TokenEncoder(tokenizer_json, num_threads=flagged.num_threads)
        self._names = names or SurrogateNames()
        self._survey: Survey | None = None
        self._patches: PatchMaker | None = None
        if ids is not None and self._encoder.path != "library":
            self._patches = PatchMaker(flagged, self._encoder, ids, kept)

    def write(
        self,
        folder: Path | str,
        *,
        style: TextStyle | None = None,
        key: bytes = bytes(32),
        draw: int = 0,
        progress: Callable[[int], None] | None = None,
    ) -> dict[str, Any]:
        """Write protected tokens; see `write_tokens`.

        Parameters
        ----------
        style : {"x", "tag", "surrogate", "rotate", "lower"}, optional
            See :mod:`reticent.engine.pseudonymize`; every one but "x" and "lower" wants words flagged ``by_category``.
        key : 32 bytes
            For "surrogate" and "rotate": secret.
        draw : int
            For "rotate": the epoch.
        """
        folder, flagged = Path(folder), self._flagged
        if self._patches is not None and style is not None and style != "lower":
            written = self._patches.write(folder, style, key, self._options(style, draw), progress)
        else:
            written = self._write_store(folder, style, key, draw, progress)
        if not written["documents"]:
            raise CorpusError(f"no document belongs to the splits {', '.join(flagged.splits or ())}")
        (folder / "tokenizer.json").write_text(self._tokenizer_json, encoding="utf-8")
        return {
            **written,
            "retention": 1.0 - written["protected"] / max(written["words"], 1),
            "blacklisted": flagged.num_blacklisted,
            "pretokens": self._encoder.path,
        }

    def _write_store(
        self, folder: Path, style: TextStyle | None, key: bytes, draw: int, progress: Callable[[int], None] | None
    ) -> dict[str, int]:
        flagged = self._flagged
        counts = dict.fromkeys(("words", "direct", "indirect", "protected"), 0)
        with StoreWriter(folder, self._encoder.vocab_size) as writer:
            for documents in flagged:
                part = documents.part
                text = self._rewritten(documents, style, key, draw)
                try:
                    tokens = self._encoder.pack(text.texts, text.words, text.flags, text.ngram_starts, gaps=text.gaps)
                except CorpusError as error:
                    raise flagged.placed(error, part) from None
                flagged.check_tokens(part, documents.words, tokens.doc_offsets)
                writer.write(part.doc_ids, part.codes, tokens)
                counts["words"] += len(text.flags)
                counts["direct"] += int(np.count_nonzero(text.flags & DIRECT))
                counts["indirect"] += int(np.count_nonzero(text.flags & INDIRECT))
                counts["protected"] += int(np.count_nonzero(text.flags))
                if progress:
                    progress(part.last_document)
        return {"documents": writer.num_documents, "tokens": writer.num_tokens, **counts}

    def _options(self, style: TextStyle, draw: int) -> dict[str, Any]:
        """Options of `pseudonymise_batch`."""
        options: dict[str, Any] = {"draw": draw, "num_threads": self._flagged.num_threads}
        if style in ("surrogate", "rotate"):
            self._survey = self._survey or self._flagged.survey()
            options |= self._survey.options(self._names)
        return options

    def _rewritten(self, documents: Flagged, style: TextStyle | None, key: bytes, draw: int) -> Rewritten:
        threads = self._flagged.num_threads
        part, words, flags, starts, gaps = documents
        if style is None:
            return Rewritten(part.texts, words, flags, starts, gaps)
        if style == "lower":
            return lower_case(part.texts, num_threads=threads)
        if style == "x":
            return replace_words_by_x(part.texts, words, flags, starts, gaps, num_threads=threads)
        individuals = pa.array(part.codes).cast(pa.string())
        batch = pa.record_batch([part.texts, individuals, part.doc_ids], ["text", "individual_id", "doc_id"])
        spans, options = self._flagged.spans_of(part, words), self._options(style, draw)
        return replace_spans(batch, words, flags, starts, spans, style, key, **options)
