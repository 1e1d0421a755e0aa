"""Effect of the change of the word rule on the supports of each corpus: numbers, no word of a document.

The new rule is the product's `segment`, the old one the oracle of `word_rules`, whose reading of the new rule must be
the product's in every document.
"""

from __future__ import annotations

import csv
import json
import sys
import unicodedata
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import regex

from benchmarks.detection_corpora import CORPORA, read_case
from benchmarks.record_io import DATA, markdown
from benchmarks.word_rules import is_ignorable, is_unspaced, supports, words_of

__all__ = ["measure_supports", "supports_table"]

#: Corpora that stand among those of the detection benchmark in parts.
_PARTS = ("meddocan_header", "meddocan_body")
#: Kind of a character that made or unmade a word: the first that fits.
_CLASSES = {
    "private use": r"\p{Co}", "unassigned": r"\p{Cn}", "regional indicator": r"\p{RI}",
    "Braille": r"\p{Block=Braille_Patterns}", "default-ignorable": r"\p{Default_Ignorable_Code_Point}",
    "letter or digit": r"[\p{Alphabetic}\p{N}]", "emoji or symbol": r"\p{S}", "other": r".",
}  # fmt: skip
_CLASS = regex.compile(
    "|".join(f"(?P<c{number}>{pattern})" for number, pattern in enumerate(_CLASSES.values())), regex.S
)


def _primock57(limit: int | None) -> tuple[list[str], list[str]]:
    lines = (DATA / "primock57" / "primock57.jsonl").read_text(encoding="utf-8").splitlines()[:limit]
    rows = [json.loads(line) for line in lines]
    texts = ["\n".join([row["note"], *(said["text"] for said in row["utterances"])]) for row in rows]
    return texts, [str(number) for number in range(len(texts))]


def _mts_dialog(limit: int | None) -> tuple[list[str], list[str]]:
    texts = []
    for path in sorted((DATA / "mts_dialog").glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            texts += ["\n".join(value or "" for value in row.values()) for row in csv.DictReader(file)]
    texts = texts[:limit]
    return texts, [str(number) for number in range(len(texts))]


#: Corpora that the detection benchmark does not open; every document is one individual.
_MORE = {"mts_dialog": _mts_dialog, "primock57": _primock57}


def _read(limit: int | None) -> dict[str, tuple[list[str], list[str]]]:
    found = {}
    for name, (folder, _) in CORPORA.items():
        if name in _PARTS:
            continue
        if folder is not None and not (DATA / folder).exists():
            print(f"skipped {name}: not found under RETICENT_DATA ({DATA})", file=sys.stderr)
            continue
        documents = read_case(name, limit).documents
        found[name] = (documents.column("text").to_pylist(), documents.column("individual_id").to_pylist())
    for name, read in _MORE.items():
        if (DATA / name).exists():
            found[name] = read(limit)
    return found


def _product_words(texts: list[str]) -> list[list[tuple[int, int]]]:
    from reticent import _rust

    array = pa.array(texts, pa.large_string())
    words = _rust.segment(array)
    starts, ends = (bounds.tolist() for bounds in words.char_spans(array))
    return [list(zip(starts[a:b], ends[a:b], strict=True)) for a, b in pairwise(words.doc_offsets.tolist())]


def _product_supports(texts: list[str], individuals: list[str], words: list[list[tuple[int, int]]]) -> Counter[str]:
    used: set[tuple[str, str]] = set()
    for text, individual, own in zip(texts, individuals, words, strict=True):
        used |= {(unicodedata.normalize("NFC", text[a:b]), individual) for a, b in own}
    return Counter(word for word, _ in used)


def compare(texts: list[str], individuals: list[str]) -> dict[str, Any]:
    """Return what the new rule changes in a corpus; `AssertionError` where an oracle is not what it should be."""
    words = _product_words(texts)
    for text, own in zip(texts, words, strict=True):
        assert words_of(text, "new") == own, "the oracle cuts other words than the product"
    old, new = supports(texts, individuals, "old"), _product_supports(texts, individuals, words)
    gained, lost = new.keys() - old.keys(), old.keys() - new.keys()
    changed = [word for word in old.keys() & new.keys() if old[word] != new[word]]
    characters = np.array(
        [[len(text), sum(map(is_unspaced, regex.findall(r"[^\x00-\u0dff]", text)))] for text in texts]
    )
    return {
        "documents": len(texts),
        "individuals": len(set(individuals)),
        "distinct_words": {"old": len(old), "new": len(new)},
        "occurrences": {"old": sum(len(words_of(text, "old")) for text in texts), "new": sum(map(len, words))},
        "support_changed": len(changed),
        "words_gained": len(gained),
        "words_lost": len(lost),
        "gained_by_class": _classes(gained),
        "lost_by_class": _classes(lost),
        "ignorable_characters": sum(sum(map(is_ignorable, regex.findall(r"[^\x00-\xac]", text))) for text in texts),
        "unspaced_share": float(characters[:, 1].sum() / max(characters[:, 0].sum(), 1)),
    }


def _classes(words: set[str]) -> dict[str, int]:
    """Words by the rarest class of their characters."""
    found: Counter[str] = Counter()
    names = list(_CLASSES)
    for word in words:
        found[names[min(int(match.lastgroup[1:]) for match in _CLASS.finditer(word) if match.lastgroup)]] += 1
    return dict(found.most_common())


def measure_supports(size: str) -> dict[str, dict[str, Any]]:
    """Return `compare` of every corpus that is there, and of the generated hospital."""
    return {name: compare(*documents) for name, documents in _read(20 if size == "toy" else None).items()}


def supports_table(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a row a corpus."""
    rows = [
        [
            name,
            f"{row['distinct_words']['new']:,}",
            row["support_changed"],
            row["words_gained"],
            row["words_lost"],
            ", ".join(f"{count} {kind}" for kind, count in row["gained_by_class"].items()) or "-",
            f"{row['unspaced_share']:.2%}",
        ]
        for name, row in found.items()
    ]
    heads = ["corpus", "distinct words", "supports changed", "words gained", "words lost", "gained", "without spaces"]
    return markdown(heads, rows)
