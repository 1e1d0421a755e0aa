"""N-gram coverage (definitions.md#attacks-that-ask-the-model): a membership attack on generated text, without any
probability.

The adversary has the document and may only let the model write. They prompt it with the beginning, and count how many
words of the rest come back in n-grams [@hallinan2025]. Only documents that the audit of generated text prompts with
(`reticent.audit.leakage.generated.draw_prompts`) have a score.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

#: Lengths of the n-grams over which coverage is averaged. One length alone ties most documents of a small model.
LENGTHS = (2, 3, 4, 5)


def coverage(true: Sequence[str], written: Sequence[str], lengths: Sequence[int] = LENGTHS) -> float:
    """Return the share of the words of ``true`` that lie in an n-gram which ``written`` contains too, averaged over the
    n of ``lengths``; 0 for an n that is longer than the text.

    >>> round(coverage("the pain in the chest".split(), "a pain in the back".split(), (2, 3, 4)), 3)
    0.4
    """
    shares = []
    for length in lengths:
        known = {tuple(written[at : at + length]) for at in range(len(written) - length + 1)}
        covered = np.zeros(len(true), dtype=bool)
        for at in range(len(true) - length + 1):
            if tuple(true[at : at + length]) in known:
                covered[at : at + length] = True
        shares.append(float(covered.mean()) if len(true) else 0.0)
    return float(np.mean(shares))


def coverage_score(rest: Sequence[str], written: Sequence[Sequence[str]]) -> np.ndarray:
    """Return the largest `coverage` of each document's remainder by one of its continuations, float64 (D,); NaN if the
    remainder has no word.

    Words are runs of letters and digits, case folded, as in BLEU and ROUGE of the audit.

    Parameters
    ----------
    rest : the text of each document after the prompt, as long as a continuation
    written : the continuations of each document
    """
    result = np.full(len(rest), np.nan)
    for number, (text, samples) in enumerate(zip(rest, written, strict=True)):
        if true := words_of_text(text):
            result[number] = max((coverage(true, words_of_text(sample)) for sample in samples), default=0.0)
    return result


def words_of_text(text: str) -> list[str]:
    """Return the maximal sequences of letters and digits of a text, case folded."""
    return re.findall(r"[^\W_]+", text.casefold())
