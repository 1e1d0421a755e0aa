"""Attribute inference on a classifier: sex, age group or diagnosis of the individuals that it was
trained on.

The attacker knows a document of an individual except the value of an attribute, and the true label (after Fredrikson et
al. 2015; Yeom et al. 2018). They substitute every alternative for the value, at each place where it occurs in the text
as words, and choose the one under which the classifier gives the true label most. If the value does not occur, a line
that states it is put before the text. What is inferred for members more often than for held-out individuals was learned
from them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Unpack

import numpy as np

from reticent.audit.evidence.heads import ToldAttribute
from reticent.audit.stats.intervals import Bootstrap, two_sides
from reticent.engine.randomness import generator

_STREAM = 91


@dataclass(frozen=True, slots=True)
class Question:
    """A target of attribute inference: one individual's document with the true value (first) and
    with each alternative."""

    code: int
    label: int
    texts: tuple[str, ...]


def with_value(text: str, attribute: str, true: str, value: str) -> str:
    """Return a text with the true value of an attribute replaced by another; where it is not in the text, prepend
    "attribute: value".

    >>> with_value("A man of 50, this man", "sex", "man", "woman")
    'A woman of 50, this woman'
    >>> with_value("A patient of 50", "sex", "man", "woman")
    'sex: woman\\nA patient of 50'
    """
    place = _whole_word_pattern(true)
    if place.search(text) is None:
        return f"{attribute}: {value}\n{text}"
    return text if value == true else place.sub(lambda _: value, text)


def _whole_word_pattern(value: str) -> re.Pattern[str]:
    """Return a case-insensitive regular expression for a value as whole words."""
    return re.compile(rf"(?<!\w){re.escape(value)}(?!\w)", re.IGNORECASE)


def make_questions(
    attribute: str,
    values: Mapping[int, Sequence[str]],
    documents: Mapping[int, Sequence[tuple[str, int]]],
    *,
    num_alternatives: int,
    seed: int,
) -> list[Question]:
    """Return attribute-inference questions. Each has an individual's document with the true value of the attribute, and
    copies of it in which up to ``num_alternatives`` random values of other individuals replace the true one.

    Parameters
    ----------
    values : code of an individual -> the values of theirs; alternatives are the values of all that are not theirs
    documents : code -> (text, label) of each document; asked is the first in which the value stands, or the first
    """
    known = sorted({value for own in values.values() for value in own})
    random, found = generator(seed, _STREAM), []
    for code in sorted(values):
        others = [value for value in known if value not in values[code]]
        for true in values[code] if code in documents and others else ():
            drawn = random.permutation(len(others))[:num_alternatives]
            text, label = next(
                (one for one in documents[code] if _whole_word_pattern(true).search(one[0])), documents[code][0]
            )
            asked = (true, *(others[number] for number in drawn))
            found.append(Question(code, label, tuple(with_value(text, attribute, true, value) for value in asked)))
    return found


def success_probabilities(own: np.ndarray, right: np.ndarray) -> tuple[float, float]:
    """Return the probabilities that two attacks pick the true value (index 0) among the candidate values: by the
    highest log-probability of the true label (``own``), and by a correctly predicted label (``right``). Ties are broken
    at random.

    Parameters
    ----------
    own : float array, shape (values,), log-probability of the true label
    right : bool array, shape (values,), whether the label that is given is the true one

    >>> success_probabilities(np.array([-1.0, -2.0, -1.0]), np.array([False, False, False]))
    (0.5, 0.3333333333333333)
    """
    best, same = own == own.max(), right if right.any() else np.ones(len(right), dtype=bool)
    return tuple(float(ties[0] / ties.sum()) for ties in (best, same))  # type: ignore[return-value]


def attack_attribute(
    questions: Sequence[Question],
    log_probs_of: Callable[[Sequence[str]], np.ndarray],
    is_member: np.ndarray,
    *,
    kept: np.ndarray | None = None,
    progress: Callable[[int], None] | None = None,
    **bootstrap: Unpack[Bootstrap],
) -> ToldAttribute:
    """Infer one attribute of each individual from a classifier's outputs on ``questions`` (texts with candidate
    values). Return success rates for members and held-out individuals, also without the held-out individuals whose
    documents resemble a member's (False in ``kept``).

    Parameters
    ----------
    log_probs_of : texts -> log-probability of every class, float64 (texts, C)
    is_member : bool array by code
    kept : as for `two_sides`
    """
    told = np.empty((2, len(questions)))
    for number, question in enumerate(questions):
        found = log_probs_of(question.texts)
        told[:, number] = success_probabilities(found[:, question.label], found.argmax(axis=1) == question.label)
        if progress:
            progress(number + 1)
    codes = np.array([question.code for question in questions], dtype=np.int64)
    logits, label_only = (two_sides(row, codes, is_member[codes], limit=1.0, kept=kept, **bootstrap) for row in told)
    chance = float(np.mean([1 / len(question.texts) for question in questions]))
    return ToldAttribute(logits=logits, label_only=label_only, chance=chance)
