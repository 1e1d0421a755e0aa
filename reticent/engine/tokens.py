"""Documents, spans and index -> protected tokens of one tokenizer.

Text, perhaps rewritten, is cut into words and tokenised in one pass. Flags of rewritten text are those of the tokens of
the original, carried over the map between old and new characters (:mod:`reticent.engine.rewrite`): rewritten words are
looked up nowhere. Rust handles the strings; this file only moves batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np
import pyarrow as pa

from reticent import _rust
from reticent.core.errors import ArtifactError, CorpusError
from reticent.engine.corpus import Corpus, Documents, as_corpus
from reticent.engine.detect.spans import SpanReader
from reticent.engine.flagged_words import Flagged, FlaggedWords
from reticent.engine.names import SurrogateNames
from reticent.engine.ngrams import NgramIndex
from reticent.engine.packed import PackedTokens
from reticent.engine.protect import Policy
from reticent.engine.pseudonymize import Style
from reticent.engine.rewrite import (
    Rewritten,
    TextStyle,
    lower_case,
    protection_of_words,
    replace_spans,
    replace_words_by_x,
)
from reticent.engine.schema import DIRECT, INDIRECT, SPANS
from reticent.engine.single_pass import Encoding, SinglePass
from reticent.engine.split import Individuals
from reticent.engine.store import open_view
from reticent.engine.store_writer import StoreWriter
from reticent.engine.survey import survey_documents
from reticent.engine.token_views import NumberedCorpus, document_codes, num_set, write_view
from reticent.engine.word_ids import NumberedWords, SpanWriter, WordSpans


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
    progress: Callable[[int], None] | None = None,
    num_threads: int = 0,
) -> dict[str, Any]:
    """Tokenise the documents of ``splits`` (all documents if None), and write their token ids and protection flags to
    ``folder``; return counts.

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
        `RewrittenTokens`.

    Returns
    -------
    dict
        documents, tokens, words, direct, indirect, protected (words), protected_tokens, retention (share of tokens that
        are not protected), blacklisted (surfaces protected beyond their span), pretokens ("bert" or "bytelevel" where
        each distinct one was tokenised once, "library" where documents went through the tokenizers library whole).
        Of text as it is, also common_tokens (of words that are too common to identify anybody), common_direct_tokens
        (of them, those that direct identifiers take) and common_lost (their share).

    Raises
    ------
    CorpusError
        No document belongs to the splits, a span does not fit its text, or the tokenizer makes no token of a document
        with words, or more tokens than a text of its length can have.

    Cost: two passes over the text (one without spans, twice as many where it is rewritten); memory is one batch and the
    blacklist.
    """

    folder, corpus, policy = Path(folder), as_corpus(corpus), policy or Policy()
    common: dict[str, Any] = {"splits": splits, "num_threads": num_threads}
    if style == "lower" or (style is None and index is None and spans is None):
        words = FlaggedWords(corpus, individuals, **common)
        lowered = style == "lower"
        texts = (
            (each, lower_case(each.part.texts, num_threads=num_threads) if lowered else _keep_texts(each))
            for each in words
        )
        encoder = _rust.TokenEncoder(tokenizer_json, num_threads=num_threads)
        return _write_rewritten(folder, words, texts, encoder, tokenizer_json, progress)
    protected = index, spans or NO_SPANS, policy
    if style is None:
        return _write_protected(folder, corpus, individuals, tokenizer_json, *protected, progress=progress, **common)[0]
    with TemporaryDirectory(prefix=".original-", dir=folder) as original:
        _, supports = _write_protected(Path(original), corpus, individuals, tokenizer_json, *protected, **common)
        rewritten = RewrittenTokens(
            style,
            open_view(Path(original)),
            corpus,
            individuals,
            tokenizer_json,
            spans=spans,
            policy=policy,
            supports=supports,
            **common,
        )
        return rewritten.write(folder, progress=progress)


class _NoSpans:
    """A stand-in for `SpanReader` for documents without identifier spans."""

    def slice(self, first_document: int, num_documents: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, pa.Array]:
        """Return no spans for these documents, as arrays: offsets, starts, ends, labels."""
        nothing = np.zeros(0, dtype=np.int32)
        return np.zeros(num_documents + 1, dtype=np.int64), nothing, nothing, pa.array([], pa.string())

    def of_documents(self, rows: np.ndarray) -> tuple[np.ndarray, pa.Table]:
        """Return no spans for these documents: offsets, and an empty table."""
        return np.zeros(len(rows) + 1, dtype=np.int64), SPANS.empty_table()


NO_SPANS = _NoSpans()


def _write_protected(
    folder: Path,
    corpus: Corpus,
    individuals: Individuals | None,
    tokenizer_json: str,
    index: NgramIndex | None,
    spans: SpanReader | _NoSpans,
    policy: Policy,
    *,
    splits: tuple[str, ...] | None,
    num_threads: int,
    progress: Callable[[int], None] | None = None,
) -> tuple[dict[str, Any], NgramIndex | None]:
    """Tokenise the documents of these splits in one pass over the text, and write token ids and protection flags to
    ``folder``. Return counts, and the n-gram index by whose supports words were protected."""

    ids = [batch.column("individual_id") for batch in corpus.batches(columns=("individual_id",))]
    owners = pa.chunked_array(ids) if ids else pa.chunked_array([], pa.string())
    _, units, kept = document_codes(owners, individuals, splits)
    wanted, rows = (None, None) if kept.all() else (kept, np.flatnonzero(kept))
    numbered = index
    if numbered is None or spans is not NO_SPANS:  # every word needs a number, so that spans protect it elsewhere
        surface = "exact" if index is None else index.surface
        builder, first = _rust.IndexBuilder(max_n=1, surface=surface, num_threads=num_threads), 0
        for batch in corpus.batches(columns=("text",)):
            own = slice(first, first := first + batch.num_rows)
            builder.add(batch.column("text"), np.where(kept[own], units[own], np.uint32(_rust.LEFT_OUT)))
        numbered = NgramIndex(builder.finish(min_support=1))
    if index is None:  # all words are used by one unit or more
        policy = policy.model_copy(update={"k": 1, "n": 1, "max_document_frequency": None})
    with TemporaryDirectory(prefix=".numbers-", dir=folder) as numbers:
        words, word_spans, gaps = (Path(numbers) / name for name in ("words", "word-spans", "gaps"))
        for made in (words, word_spans, gaps):
            made.mkdir()
        encoding = Encoding(tokenizer_json, folder, gaps)
        text = SinglePass(corpus, words, numbered, word_spans, cast("SpanReader", spans), [encoding], wanted=wanted)
        text.num_threads = num_threads
        pretokens = text.run(progress)[folder]["pretokens"]
        chosen = owners if rows is None else owners.take(rows)
        documents = NumberedCorpus(corpus, NumberedWords(words), WordSpans(word_spans), numbered, chosen, rows)
        counts = write_view(
            folder,
            folder,
            gaps,
            documents,
            individuals,
            splits=splits,
            index=index or numbered,
            policy=policy,
            num_threads=num_threads,
        )
    return {**counts, "pretokens": pretokens}, index or numbered


class RewrittenTokens:
    """Writes the tokens of documents with replaced direct identifiers, repeatedly (for each epoch, say).

    Parameters
    ----------
    style : {"x", "tag", "surrogate", "rotate"}
        See :mod:`reticent.engine.pseudonymize`.
    view : the protected tokens of the same documents, whose flags are carried over
    names : SurrogateNames, optional
        Names that surrogates are drawn from; default: realistic ones in the language of most documents.
    alone : bool
        Whether the surrogates of an individual follow from key, id and own documents alone. None is then drawn again
        because it stands in the corpus, "auto" is no language of its documents, and months come before days.

    The others are those of `write_tokens`, and ``supports`` as `FlaggedWords` takes it: the index of the view.

    Cost: a pass over the text when made (with spans), one more before the first surrogates, and one for each writing.
    """

    def __init__(
        self,
        style: Style,
        view: PackedTokens,
        corpus: Corpus,
        individuals: Individuals | None,
        tokenizer_json: str,
        *,
        splits: tuple[str, ...] | None = None,
        spans: SpanReader | None = None,
        policy: Policy | None = None,
        supports: NgramIndex | None = None,
        names: SurrogateNames | None = None,
        alone: bool = False,
        num_threads: int = 0,
    ):
        #: Ids of the individuals by their codes, where no number may depend on others.
        self._ids = individuals.table.column("individual_id") if alone and individuals is not None else None
        self._alone = alone
        self._style, self._view, self._tokenizer_json, self._num_threads = style, view, tokenizer_json, num_threads
        self._flagged = FlaggedWords(
            corpus,
            individuals,
            splits=splits,
            spans=spans,
            policy=policy,
            by_category=style != "x",
            supports=supports,
            num_threads=num_threads,
        )
        self._encoder = _rust.TokenEncoder(tokenizer_json, num_threads=num_threads)
        self._names = names or SurrogateNames()
        self._drawn_from: dict[str, Any] | None = None

    def write(
        self,
        folder: Path,
        *,
        key: bytes = bytes(32),
        draw: int = 0,
        progress: Callable[[int], None] | None = None,
    ) -> dict[str, Any]:
        """Write token ids and flags of the rewritten documents to an empty folder, and the words that each surrogate
        covers, if there are any; return the counts of `write_tokens`. Surrogates are drawn by ``key`` and the epoch
        ``draw``.

        Parameters
        ----------
        key : 32 bytes
            For "surrogate" and "rotate": secret.
        draw : int
            For "rotate": the epoch.

        Raises
        ------
        ArtifactError
            The view is not of these documents.
        """
        options: dict[str, Any] = {"num_threads": self._num_threads}
        if self._style in ("surrogate", "rotate"):
            if self._drawn_from is None:
                survey = survey_documents(()) if self._alone else self._flagged.survey()
                self._drawn_from = survey.options(self._names)
            options |= {"draw": draw, **self._drawn_from}
        return _write_rewritten(
            folder,
            self._flagged,
            self._rewrite_batches(key, options),
            self._encoder,
            self._tokenizer_json,
            progress,
            SpanWriter(folder) if self._style in ("surrogate", "rotate") else None,
        )

    def _rewrite_batches(self, key: bytes, options: dict[str, Any]) -> Iterator[tuple[Flagged, Rewritten]]:
        """Yield each batch of documents with its rewritten texts."""
        first = first_word = 0
        for documents in self._flagged:
            part, words, direct, _, gaps = documents
            end = first + len(part.codes)
            if not np.array_equal(self._view.individual[first:end], part.codes):
                raise ArtifactError(f"{self._view.stored.folder}: tokens of other documents; run protect again")
            indirect, starts = protection_of_words(self._view, first, end, words.doc_offsets, first_word)
            flags, first, first_word = direct | indirect, end, first_word + words.num_words
            if self._style == "x":
                made = replace_words_by_x(part.texts, words, flags, starts, gaps, num_threads=self._num_threads)
            else:
                codes = pa.array(part.codes)
                individuals = codes.cast(pa.string()) if self._ids is None else self._ids.take(codes).combine_chunks()
                batch = pa.record_batch([part.texts, individuals, part.doc_ids], ["text", "individual_id", "doc_id"])
                spans = self._flagged.spans_of(part, words)
                made = replace_spans(batch, words, flags, starts, spans, self._style, key, **options)
            yield documents, made


def _keep_texts(documents: Flagged) -> Rewritten:
    """Return a batch's texts, words and flags unchanged, in the form of rewritten ones."""
    part, words, flags, starts, gaps = documents
    return Rewritten(part.texts, words, flags, starts, gaps)


def _write_rewritten(
    folder: Path,
    flagged: FlaggedWords,
    texts: Iterable[tuple[Flagged, Rewritten]],
    encoder: _rust.TokenEncoder,
    tokenizer_json: str,
    progress: Callable[[int], None] | None,
    spans: SpanWriter | None = None,
) -> dict[str, Any]:
    """Write token ids and protection flags of rewritten texts, given in batches with their original documents, to
    ``folder``, and the words that replace identifiers to ``spans``; return the counts of `write_tokens`."""
    counts = dict.fromkeys(("words", "direct", "indirect", "protected", "protected_tokens"), 0)
    with StoreWriter(folder, encoder.vocab_size) as writer:
        for documents, text in texts:
            part = documents.part
            try:
                tokens = encoder.pack(text.texts, text.words, text.flags, text.ngram_starts, gaps=text.gaps)
            except CorpusError as error:
                raise flagged.locate_error(error, part) from None
            flagged.check_tokens(part, documents.words, tokens.doc_offsets)
            writer.write(part.doc_ids, part.codes, tokens)
            if spans is not None and text.spans is not None:
                spans.write(*text.spans)
            counts["words"] += len(text.flags)
            counts["direct"] += int(np.count_nonzero(text.flags & DIRECT))
            counts["indirect"] += int(np.count_nonzero(text.flags & INDIRECT))
            counts["protected"] += int(np.count_nonzero(text.flags))
            counts["protected_tokens"] += num_set(tokens.direct | tokens.indirect)
            if progress:
                progress(part.last_document)
    if spans is not None:
        spans.close()
    if not writer.num_documents:
        raise CorpusError(f"no document belongs to the splits {', '.join(flagged.splits or ())}")
    (folder / "tokenizer.json").write_text(tokenizer_json, encoding="utf-8")
    return {
        "documents": writer.num_documents,
        "tokens": writer.num_tokens,
        **counts,
        "retention": 1.0 - counts["protected_tokens"] / max(writer.num_tokens, 1),
        "blacklisted": flagged.num_blacklisted,
        "pretokens": encoder.path,
    }
