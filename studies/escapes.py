"""Does an identifier get away as a target, whatever its spelling and whatever the tokenizer?

The obfuscation lab: one name in 150 spellings, each of 11 kinds of tokenizer (and the published vocabularies under
``RETICENT_DATA``), marked by a span or counted. Each time documents are written to files, the product makes the token
store, and which characters are a target is told independently (`oracles.escape_lab`). *Escaped* are characters that the
rule protects, and must be 0; *outside* are those that it does not, and the spellings that have any are listed with the
reason. The masked recipe is drawn from too. A second part counts what the word rule's change did to each corpus.

    python -m studies.escapes [--size toy|cpu] [--kind NAME] [--spelling NAME]

Exit status 1 where a character escapes, or the list of what is outside the rule is not true.
"""

from __future__ import annotations

import csv
import json
import sys
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import regex
from fixtures.corpora import CORPORA, read_case
from fixtures.spellings import SPELLINGS, TOY_SPELLINGS, Spelling
from fixtures.tokenizer_kinds import KINDS, TOY_KINDS, published_tokenizers, tokenizer_json
from oracles.characters import characters_met, open_tokenizer, rare_characters
from oracles.escape_lab import (
    OPEN,
    WAYS,
    Case,
    K,
    Outcome,
    counted_notes,
    drawn_tokens,
    marked_notes,
    measure,
    outcome_of,
    verdicts,
)
from oracles.word_rules import is_ignorable, is_unspaced, supports, words_of

from benchmarks.record_io import DATA, STUDIES, machine_line, markdown, write_record
from benchmarks.runner import command
from reticent import _rust
from reticent.engine.protect import Policy


def measure_together(
    spellings: Sequence[Spelling], kinds: Mapping[str, str], folder: Path
) -> dict[str, dict[str, dict[str, Outcome]]]:
    """Return spelling -> kind -> outcome where marked and where counted, all spellings in one corpus, each in notes of
    individuals of its own: for vocabularies that take long to load.
    """
    found: dict[str, dict[str, dict[str, Outcome]]] = {s.name: {kind: {} for kind in kinds} for s in spellings}
    for way, make in (("marked", marked_notes), ("counted", counted_notes)):
        owners, notes = [], []
        for number, spelling in enumerate(spellings):
            for note in make(spelling):
                if way == "counted" or note.marked or not note.places:
                    notes.append(replace(note, individual=f"{number}-{note.individual}"))
                    owners.append(spelling.name)
        case = Case(folder / way, notes)
        rare = rare_characters([note.text for note in notes], [note.individual for note in notes], k=K, n=1)
        covered = [note.characters() if note.marked else own for note, own in zip(notes, rare, strict=True)]
        for number, (kind, content) in enumerate(kinds.items()):
            tokenizer = open_tokenizer(content)
            met = [characters_met(kind, tokenizer, note.text) for note in notes]
            store = case.tokens(str(number), content, Policy(k=K, scopes={"NAME": "occurrence"}))
            drawn = drawn_tokens(store)
            for name in found:
                wanted = [own == name and bool(note.places) for own, note in zip(owners, notes, strict=True)]
                found[name][kind][way] = outcome_of(store, notes, met, covered, wanted, drawn)
    return found


def _result(found: Mapping[str, Mapping[str, Mapping[str, Outcome]]], spellings: Sequence[Spelling]) -> dict[str, Any]:
    """Return the record: totals by kind and way, and the spellings outside the rule by name."""
    kinds = list(next(iter(found.values())))
    own_kinds = [kind for kind in kinds if kind in KINDS]
    totals = {
        kind: {
            way: {
                key: sum(getattr(found[s.name][kind][way], key) for s in spellings)
                for key in ("characters", "escaped", "outside", "drawn")
            }
            for way in found[spellings[0].name][kind]
        }
        for kind in kinds
    }
    rest = [
        {
            "spelling": spelling.name,
            "reason": spelling.reason,
            "characters": found[spelling.name][own_kinds[0]]["counted"].characters,
            "targets": {kind: found[spelling.name][kind]["counted"].outside for kind in own_kinds},
            "targets, n = 2": max(found[spelling.name][kind]["counted, n = 2"].outside for kind in own_kinds),
        }
        for spelling in spellings
        if spelling.reason is not None
    ]
    escapes = [
        {"spelling": name, "kind": kind, "way": way, "characters": outcome.escaped, "drawn": outcome.drawn}
        for name, of_kind in found.items()
        for kind, ways in of_kind.items()
        for way, outcome in ways.items()
        if outcome.escaped or outcome.drawn
    ]
    return {
        "spellings": len(spellings),
        "kinds": kinds,
        "ways": list(WAYS),
        "combinations": sum(len(ways) for of_kind in found.values() for ways in of_kind.values()),
        "totals": totals,
        "escapes": escapes,
        "open": [{"kind": kind, "spelling": name, "reason": reason} for (kind, name), reason in OPEN.items()],
        "outside_the_rule": rest,
    }


# ------------------------------------------------- supports before and after the change of the word rule

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
    r"""Return what the new rule changes in a corpus; `AssertionError` where an oracle is not what it should be.

    "Du" was used by two; the new words are the joined one and the emoji.

    >>> found = compare(["Du\u200bpont 🦄 pont", "pont 田中 Du"], ["a", "b"])
    >>> found["distinct_words"], found["support_changed"], found["words_gained"], found["words_lost"]
    ({'old': 4, 'new': 6}, 1, 2, 0)
    >>> found["gained_by_class"], round(24 * found["unspaced_share"])
    ({'default-ignorable': 1, 'emoji or symbol': 1}, 2)
    """
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
    """Words by the rarest class of their characters, the most common class first."""
    found: Counter[str] = Counter()
    names = list(_CLASSES)
    for word in words:
        found[names[min(int(match.lastgroup[1:]) for match in _CLASS.finditer(word) if match.lastgroup)]] += 1
    return dict(sorted(found.items(), key=lambda one: (-one[1], one[0])))


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


# ------------------------------------------------- the whole


def run(
    size: Annotated[str, ("toy", "cpu")] = "cpu",
    kind: Annotated[Sequence[str], KINDS, "only this kind of tokenizer; no record is written"] = (),
    spelling: Annotated[Sequence[str], "only this spelling; no record is written"] = (),
) -> None:
    """Run the lab, print its tables and write the record; `AssertionError` names what escaped."""
    names = kind or (TOY_KINDS if size == "toy" else KINDS)
    chosen = {name: tokenizer_json(name) for name in names}
    spellings = [s for s in SPELLINGS if s.name in spelling] or (TOY_SPELLINGS if size == "toy" else SPELLINGS)
    found, is_whole = {}, not kind and not spelling
    with tempfile.TemporaryDirectory(prefix="reticent-bench-") as folder:
        for number, each in enumerate(spellings):
            found[each.name] = measure(each, chosen, Path(folder) / str(number))
        if size != "toy" and not kind:
            together = measure_together(spellings, published_tokenizers(), Path(folder) / "published")
            for name, of_kind in together.items():
                found[name] |= of_kind
    result = _result(found, spellings)
    if is_whole:
        result["supports"] = measure_supports(size)
        assert result["supports"]["synth_en"]["words_lost"] == 0
    print(totals_table(result))
    print(rest_table(result))
    if is_whole:
        print(supports_table(result["supports"]))
    wrong = verdicts(found)
    assert not wrong, "\n".join(wrong)
    if is_whole:
        print(write_record("escapes", result, size, STUDIES))


def totals_table(result: Mapping[str, Any]) -> str:
    """Return a row a kind of tokenizer: characters that escaped, of all, by way."""
    rows = [
        [kind, *(f"{ways[way]['escaped']:,} of {ways[way]['characters']:,}" if way in ways else "-" for way in WAYS)]
        for kind, ways in result["totals"].items()
    ]
    return markdown(["escaped", *WAYS], rows)


def rest_table(result: Mapping[str, Any]) -> str:
    """Return a row a spelling that counting leaves characters of."""
    rows = []
    for row in result["outside_the_rule"]:
        shares = list(row["targets"].values())
        told = f"{min(shares)} to {max(shares)}" if min(shares) < max(shares) else str(max(shares))
        rows.append([row["spelling"], f"{told} of {row['characters']}", row["targets, n = 2"], row["reason"]])
    return markdown(["counted: spelling", "characters that are targets", "n = 2", "because"], rows)


def escape_tables(record: Mapping[str, Any]) -> str:
    """Return the section of the README, the answer first."""
    open_ones = {row["spelling"] for row in record["open"]}
    escaped = {row["spelling"] for row in record["escapes"]}
    total = sum(way["characters"] for ways in record["totals"].values() for way in ways.values())
    far = sum(row["characters"] for row in record["escapes"])
    told = "\n".join(f"- {row['spelling']} ({row['kind'] or 'every kind'}): {row['reason']}." for row in record["open"])
    return (
        f"{record['spellings']} spellings, {len(record['kinds'])} tokenizers, "
        f"{record['combinations']:,} combinations: {far:,} of {total:,} characters of identifiers are targets although "
        f"the rule protects them, in {len(escaped - open_ones)} spellings besides those that are known to be open"
        f"{':' if told else '.'}\n\n{told}\n\n{machine_line(record)}\n\n{totals_table(record)}\nCharacters that "
        "counting leaves as targets, if one individual alone writes the identifier and others use each of its "
        f"characters alone:\n\n{rest_table(record)}\nThe word rule before symbols were counted, and now:\n\n"
        f"{supports_table(record['supports'])}"
    )


if __name__ == "__main__":
    command(run)
