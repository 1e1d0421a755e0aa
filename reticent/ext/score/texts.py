"""Candidate texts to be scored: their file format, and removal of near-duplicates."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reticent.core.errors import CorpusError


@dataclass(frozen=True, slots=True)
class Candidate:
    """A text to score, the prefix given before it (None: none), and its number (line of the file, or as generated)."""

    number: int
    text: str
    given: str | None = None


def read_texts(path: Path) -> list[Candidate]:
    """Return the texts to score in a file: JSON lines with ``text`` and ``given`` (a prefix), or plain lines with a tab
    after the prefix.

    Raises
    ------
    CorpusError
        The file cannot be read, holds no text, or a line is not of this form; the text is not quoted.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise CorpusError(f"{path}: not UTF-8") from None
    found = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        if path.suffix == ".jsonl":
            try:
                row = json.loads(line)
                text, given = row["text"], row.get("given")
                f"{text}{given}".encode()  # half of a pair of surrogates is no text
            except (ValueError, KeyError, TypeError, AttributeError):
                text, given = None, None
            if not isinstance(text, str) or not isinstance(given, str | None):
                raise CorpusError(f"{path}: line {number}: expected a JSON object with text, and given if it has one")
        else:
            before, tab, after = line.rstrip("\r").partition("\t")
            text, given = (after, before) if tab else (before, None)
        if not text.strip():
            raise CorpusError(f"{path}: line {number}: no text to score")
        found.append(Candidate(number, text, given))
    if not found:
        raise CorpusError(f"{path}: no text to score")
    return found


def without_repeats(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Drop near-duplicates: texts half of whose word trigrams are in an earlier text (Carlini et al. 2021), and equal
    short texts.
    """
    kept: list[tuple[Candidate, Counter[tuple[str, ...]]]] = []
    for candidate in candidates:
        words = candidate.text.split()
        own = (
            Counter(zip(*(words[at:] for at in range(3)), strict=False)) if len(words) > 2 else Counter([tuple(words)])
        )
        if not any(2 * (own & other).total() >= own.total() for _, other in kept):
            kept.append((candidate, own))
    return [candidate for candidate, _ in kept]
