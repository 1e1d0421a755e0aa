"""Prompts of a tagger attack, which are texts with a slot for a name, and the tagger's person labels; no torch is
loaded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reticent.core.errors import PolicyError, cause

MASK = "[MASK]"
UTTERANCES = ("none", "assertion", "question", "negation")
POSITIONS = ("alone", "subject", "object")


@dataclass(frozen=True, slots=True)
class Prompt:
    """A text with one ``[MASK]`` slot for the name, its kind of utterance, and the grammatical position of the name."""

    text: str
    utterance: str = "none"
    position: str = "alone"

    def __post_init__(self) -> None:
        if self.text.count(MASK) != 1:
            raise PolicyError(f"prompt: expected {MASK} once, found it {self.text.count(MASK)} times")
        if self.utterance not in UTTERANCES or self.position not in POSITIONS:
            raise PolicyError(
                f"prompt: expected {', '.join(UTTERANCES)} and {', '.join(POSITIONS)}, got {self.utterance!r} and "
                f"{self.position!r}"
            )


#: The prompts of [@nussbaumer2023] in its order (Table 3.6), and the same in French.
PROMPTS, FRENCH_PROMPTS = (
    tuple(Prompt(row[language], *row[2:]) for row in (
        ("[MASK]", "[MASK]"),
        ("[MASK] is a person.", "[MASK] est une personne.", "assertion", "subject"),
        ("My name is [MASK].", "Mon nom est [MASK].", "assertion", "object"),
        ("I am named [MASK].", "Je m'appelle [MASK].", "assertion", "object"),
        ("[MASK] is an individual human being.", "[MASK] est un être humain.", "assertion", "subject"),
        ("Is [MASK] your name?", "Est-ce que [MASK] est votre nom ?", "question", "subject"),
        ("Is [MASK] a person?", "Est-ce que [MASK] est une personne ?", "question", "subject"),
        ("[MASK] is not a person.", "[MASK] n'est pas une personne.", "negation", "subject"),
        ("My name is not [MASK].", "Mon nom n'est pas [MASK].", "negation", "object"),
    ))
    for language in (0, 1)
)  # fmt: skip


def read_prompts(path: Path | str) -> tuple[Prompt, ...]:
    """Read prompts from a text file, one a line, optionally followed by tab-separated kind of utterance and position of
    the name.

    Raises
    ------
    PolicyError
        The file cannot be read, it holds no prompt, or a line is none.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise PolicyError(f"{path}: cannot be read ({cause(error)}); expected en, fr or a file of prompts") from None
    prompts = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        cells = [cell.strip() for cell in line.split("\t")]
        try:
            prompts.append(Prompt(*cells))
        except TypeError:
            raise PolicyError(f"{path}:{number}: expected at most 3 columns, got {len(cells)}") from None
        except PolicyError as error:
            raise PolicyError(f"{path}:{number}: {error}") from None
    if not prompts:
        raise PolicyError(f"{path}: no prompt in it")
    return tuple(prompts)


def person_labels(id2label: Mapping[Any, str], labels: Sequence[str] = ("PER",)) -> list[int]:
    """Return the ids of a tagger's labels for these entity types, with or without a prefix (B-, I-, …).

    Raises
    ------
    PolicyError
        The model has none of them.

    >>> person_labels({0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC"})
    [1, 2]
    """
    kinds = {number: re.sub(r"^[BIESLUM][-_](?=.)", "", name) for number, name in id2label.items()}
    found = [int(number) for number in sorted(kinds, key=int) if kinds[number] in labels or id2label[number] in labels]
    if not found:
        known = ", ".join(sorted(set(kinds.values()) - {"O"})) or "none"
        raise PolicyError(
            f"tagger: expected a label {' or '.join(labels)}, the model's are {known}; choose those of persons"
        )
    return found
