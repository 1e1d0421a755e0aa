"""Common words: which names are also ordinary words of the language, learned from how the corpus writes them.

A word that stands in small letters more often than with a capital inside a sentence is common ("will", "brown"). No
list is shipped: a corpus of notes knows its own words, in its own languages. Whoever has a list gives it to a detector
as ``common``, and nothing is counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from reticent import _rust
from reticent.core.errors import CorpusError
from reticent.engine.detect.labels import category
from reticent.engine.threads import overlapped, read_ahead

if TYPE_CHECKING:
    from reticent._rust import CommonWords
    from reticent.engine.corpus import Corpus

#: About how many documents are drawn of a larger corpus where a sample tells enough.
SAMPLE_DOCUMENTS: Final = 8192
_WORD: Final = re.compile(r"[^\W\d_]{2,}")


def read_common_words(path: str | Path) -> CommonWords:
    """Return the common words listed in a file, one a line."""

    common = _rust.CommonWords()
    common.add_list(pa.array(read_lines(path, "a list of common words"), pa.string()))
    return common


def read_lines(path: str | Path, what: str) -> list[str]:
    """Return the non-blank lines of a text file, stripped; ``what`` names its content in errors."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise CorpusError(f"{path}: not a readable {what.removeprefix('a ')} ({type(error).__name__})") from None
    return [line.strip() for line in text.splitlines() if line.strip()]


def count_common_words(
    corpus: Corpus,
    *,
    num_documents: int | None = None,
    num_threads: int = 0,
    on_texts: Callable[[pa.Array], None] | None = None,
) -> CommonWords:
    """Count the lower-case and capitalised occurrences of each word of the corpus, in one pass over the text;
    ``on_texts`` is called with each batch of texts. Memory grows with the vocabulary.

    Parameters
    ----------
    num_documents : int, optional
        About how many documents are counted where there are more, drawn at random and always the same; default: all.
    on_texts : called with the texts of all documents, batch by batch, in the same pass
    """

    common = _rust.CommonWords()
    drawn = None
    if num_documents is not None:
        num = sum(batch.num_rows for batch in corpus.batches(columns=("individual_id",)))
        drawn = np.random.default_rng(0).random(num, dtype=np.float32) * num <= num_documents

    def count(batch: pa.RecordBatch, num_before: int) -> None:
        """Count the words of a record batch, or of its sampled documents if a sample is drawn; ``num_before`` documents
        precede the batch."""
        if drawn is not None:
            batch = batch.filter(pa.array(drawn[num_before : num_before + batch.num_rows]))
        ids = batch.column("individual_id").cast(pa.string())
        common.add(batch.column("text"), ids, num_threads=num_threads)

    for batch, _ in overlapped(corpus.batches(columns=("individual_id", "text")), count):
        if on_texts:
            on_texts(batch.column("text"))
    common.merge()
    return common


def learn_common_words(
    corpus: Corpus, detectors: Sequence[Any], on_texts: Callable[[pa.Array], None] | None = None
) -> None:
    """Count the corpus's words in one pass, and give the counts to every detector that needs common words and has no
    list. ``on_texts`` is called with each batch of texts, even if no detector needs counts."""
    wanting = [detector for detector in detectors if getattr(detector, "common_words", False) is None]
    if wanting:
        enough = all(getattr(detector, "learns_from_sample", False) for detector in wanting)
        common = count_common_words(
            corpus,
            num_documents=SAMPLE_DOCUMENTS if enough else None,
            num_threads=wanting[0].num_threads,
            on_texts=on_texts,
        )
        for detector in wanting:
            detector.common_words = common
        for detector in detectors:
            if hasattr(detector, "known_words"):
                detector.known_words = common
    elif on_texts:
        for batch in read_ahead(corpus.batches(columns=("text",))):
            on_texts(batch.column("text"))


def counted_words(corpus: Corpus, detectors: Sequence[Any]) -> CommonWords | None:
    """Return the word counts that one of the detectors learned from the whole corpus; None if there are none."""
    learned = (getattr(detector, "common_words", None) for detector in detectors)
    return next((words for words in learned if words and words.num_documents == corpus.num_documents), None)


def without_common_words(found: pa.Table, texts: pa.Array | pa.ChunkedArray, common: CommonWords) -> pa.Table:
    """Drop NAME spans that consist of common words only, as small NER models take headings ("CHIEF COMPLAINT") for
    names. Return the other spans (schema `BATCH_SPANS`).

    Cost: a look-up a word of the names.
    """
    labels = found.column("label").combine_chunks().dictionary_encode()
    of_names = np.array([category(label) == "NAME" for label in labels.dictionary.to_pylist()], dtype=bool)
    rows = np.flatnonzero(of_names[labels.indices.to_numpy()]) if found.num_rows else np.empty(0, dtype=np.int64)
    documents, starts, ends = (found.column(name).to_numpy()[rows].tolist() for name in ("document", "start", "end"))
    read = texts_by_row(texts, documents)
    names = [read[document][start:end] for document, start, end in zip(documents, starts, ends, strict=True)]
    distinct = list({*_WORD.findall("\n".join(names))})
    are_common = common.are_widespread(pa.array(distinct, pa.string())).tolist()
    widespread = {word for word, is_common in zip(distinct, are_common, strict=True) if is_common}

    def may_be_name(name: str) -> bool:
        """Whether a text may be a name: one of its words is not common, or it has no word at all."""
        first = _WORD.search(name)  # mostly no common word, so that the others need not be found
        return first is None or first[0] not in widespread or not widespread.issuperset(_WORD.findall(name))

    keep = np.ones(found.num_rows, dtype=bool)
    keep[rows] = [may_be_name(name) for name in names]
    return found.filter(pa.array(keep))


def texts_by_row(texts: pa.Array | pa.ChunkedArray, rows: Sequence[int]) -> dict[int, str]:
    """Return a dict from row number to text for these rows; a row that is asked for several times is read once."""
    distinct = sorted(set(rows))
    return dict(zip(distinct, texts.take(pa.array(distinct, pa.int64())).to_pylist(), strict=True))
