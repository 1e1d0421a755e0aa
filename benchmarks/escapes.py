"""Does an identifier get away as a target, whatever its spelling and whatever the tokenizer?

The obfuscation lab: one name in 150 spellings, each of 11 kinds of tokenizer (and the published vocabularies under
``RETICENT_DATA``), marked by a span or counted. Each time documents are written to files, the product makes the token
store, and which characters are a target is told independently (`escape_oracle`). *Escaped* are characters that the rule
protects, and must be 0; *outside* are those that it does not, and the spellings that have any are listed with the
reason. The masked recipe is drawn from too. A second part counts what the word rule's change did to each corpus.

    python -m benchmarks.escapes [--size toy|cpu] [--kind NAME] [--spelling NAME]

Exit status 1 where a character escapes, or the list of what is outside the rule is not true.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.escape_oracle import PROTECTED, characters_met, characters_of, open_tokenizer, rare_characters
from benchmarks.escape_spellings import SPELLINGS, TOY_SPELLINGS, Spelling
from benchmarks.escape_tokenizers import KINDS, TOY_KINDS, published_tokenizers, tokenizer_json
from benchmarks.record_io import machine_line, markdown, write_record
from benchmarks.word_rules import is_space
from reticent import _rust
from reticent.engine.corpus import Columns, Corpus, open_corpus
from reticent.engine.detect import detect_spans
from reticent.engine.detect.gold import GoldDetector
from reticent.engine.detect.spans import SpanReader
from reticent.engine.protect import Policy
from reticent.engine.schema import INDIVIDUALS, SPAN_TYPE
from reticent.engine.split import Individuals
from reticent.engine.store import TokenStore, open_tokens
from reticent.engine.tokens import write_tokens

__all__ = ["OPEN", "WAYS", "Case", "Note", "measure", "run"]

#: How a spelling is protected; each has a case of its own.
WAYS = ("marked", "marked, corpus", "spread", "counted", "counted, n = 2")
#: (kind or None for each, spelling) -> why characters of it escape today. An entry that no longer does fails the lab.
OPEN: Mapping[tuple[str | None, str], str] = {}
#: Where X stands in a note: at the ends of the text, among words, and between signs.
NOTE = '{x} was seen on the ward. The chart says ({x}), and "{x}" again; signed {x}'
WORDS = "was seen on the ward the chart says The and again signed by nobody"
K = 2


@dataclass(frozen=True, slots=True)
class Note:
    """A document: whose it is, its text, where the identifier stands, and whether that is marked."""

    individual: str
    text: str
    places: tuple[tuple[int, int], ...] = ()
    marked: bool = False

    @classmethod
    def about(cls, individual: str, identifier: str, *, marked: bool) -> Note:
        places, text = [], ""
        for number, part in enumerate(NOTE.split("{x}")):
            if number:
                places.append((len(text), len(text) + len(identifier)))
                text += identifier
            text += part
        return cls(individual, text, tuple(places), marked)

    def characters(self) -> set[int]:
        """Characters of the identifier, white space aside."""
        return {at for a, b in self.places for at in range(a, b) if not is_space(self.text[at])}


@dataclass
class Case:
    """Notes written to a folder, with their spans, individuals and index: what `write_tokens` is given."""

    folder: Path
    notes: Sequence[Note]
    corpus: Corpus = field(init=False)
    individuals: Individuals = field(init=False)
    spans: SpanReader = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        spans = [
            [{"start": a, "end": b, "label": "NAME"} for a, b in note.places] if note.marked else []
            for note in self.notes
        ]
        table = pa.table(
            {
                "doc_id": [f"d{number:04}" for number in range(len(self.notes))],
                "individual_id": [note.individual for note in self.notes],
                "text": pa.array([note.text for note in self.notes], pa.large_string()),
                "spans": pa.array(spans, pa.list_(SPAN_TYPE)),
            }
        )
        pq.write_table(table, self.folder / "documents.parquet")
        self.corpus = open_corpus(self.folder / "documents.parquet", columns=Columns(spans="spans"))
        people = sorted({note.individual for note in self.notes})
        codes = pa.array(range(len(people)), pa.uint32())
        split = pa.DictionaryArray.from_arrays(
            pa.array([0] * len(people), pa.int8()), pa.array(["members", "heldout", "reference"])
        )
        columns = [pa.array(people), codes, codes, split, pa.array([1] * len(people), pa.uint32())]
        self.individuals = Individuals(pa.table(columns, schema=INDIVIDUALS))
        detect_spans(self.corpus, [GoldDetector()], self.folder)
        self.spans = SpanReader(self.folder)
        builder = _rust.IndexBuilder(max_n=2)
        for batch in self.corpus.batches():
            builder.add(batch.column("text"), self.individuals.individual_codes(batch.column("individual_id")))
        self.index = builder.finish()

    def tokens(self, name: str, json: str, policy: Policy) -> TokenStore:
        """Write the token store as the product does, and open it."""
        folder = self.folder / name
        folder.mkdir()
        write_tokens(
            folder, self.corpus, self.individuals, json, index=self.index, spans=self.spans, policy=policy,
            num_threads=1,
        )  # fmt: skip
        return open_tokens(folder)


def marked_notes(spelling: Spelling) -> list[Note]:
    """The spelling marked in three notes of two individuals, and without a mark in one of a third: k of them use it."""
    notes = [Note.about(who, spelling.text, marked=True) for who in ("one", "one", "two")]
    return [*notes, Note.about("three", spelling.text, marked=False), *_others(spelling)]


def counted_notes(spelling: Spelling) -> list[Note]:
    """The spelling in one individual's notes, without a mark."""
    return [*(Note.about("one", spelling.text, marked=False) for _ in range(2)), *_others(spelling)]


def _others(spelling: Spelling) -> list[Note]:
    """Notes of two more individuals, with the words around the spelling and each of its characters alone, but for those
    that are words as symbols: the worst that others can do to counting.
    """
    alone = sorted({c for c in spelling.text if not is_space(c) and not _is_symbol(c)})
    random.Random(7).shuffle(alone)
    text = WORDS + " . " + " . ".join(alone)
    return [Note("four", text), Note("five", text + " . " + WORDS)]


def _is_symbol(c: str) -> bool:
    return unicodedata.category(c) in ("Co", "Cn", "So", "Sk")


@dataclass
class Outcome:
    """Characters of the identifier in one combination: of it, that are a target although the rule protects them, that
    are one outside the rule, and that the masked recipe drew.
    """

    characters: int = 0
    escaped: int = 0
    outside: int = 0
    drawn: int = 0


def measure(spelling: Spelling, kinds: Mapping[str, str], folder: Path) -> dict[str, dict[str, Outcome]]:
    """Return what becomes of a spelling, kind -> way -> outcome."""
    marked, counted = Case(folder / "marked", marked_notes(spelling)), Case(folder / "counted", counted_notes(spelling))
    found: dict[str, dict[str, Outcome]] = {}
    for number, (kind, json) in enumerate(kinds.items()):
        tokenizer = open_tokenizer(json)
        own = found[kind] = {}
        met = [characters_met(kind, tokenizer, note.text) for note in marked.notes]
        for way, scopes in (("marked", {"NAME": "occurrence"}), ("marked, corpus", {})):
            store = marked.tokens(f"{way}-{number}", json, Policy(k=K, scopes=scopes))  # type: ignore[arg-type]
            covered = [note.characters() if note.marked else set() for note in marked.notes]
            own[way] = _outcome(store, marked.notes, met, covered, [note.marked for note in marked.notes])
        # A word of the spelling is protected in the third individual's note too, however common; numbers are not.
        covered = [_spread_characters(note) for note in marked.notes]
        wanted = [bool(note.places) and not note.marked for note in marked.notes]
        own["spread"] = _outcome(store, marked.notes, met, covered, wanted)
        met = [characters_met(kind, tokenizer, note.text) for note in counted.notes]
        for way, n in (("counted", 1), ("counted, n = 2", 2)):
            store = counted.tokens(f"{n}-{number}", json, Policy(k=K, n=n, policy="all"))
            texts, people = [note.text for note in counted.notes], [note.individual for note in counted.notes]
            covered = rare_characters(texts, people, k=K, n=n)
            own[way] = _outcome(store, counted.notes, met, covered, [bool(note.places) for note in counted.notes])
    return found


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
        for number, (kind, json) in enumerate(kinds.items()):
            tokenizer = open_tokenizer(json)
            met = [characters_met(kind, tokenizer, note.text) for note in notes]
            store = case.tokens(str(number), json, Policy(k=K, scopes={"NAME": "occurrence"}))
            drawn = drawn_tokens(store)
            for name in found:
                wanted = [own == name and bool(note.places) for own, note in zip(owners, notes, strict=True)]
                found[name][kind][way] = _outcome(store, notes, met, covered, wanted, drawn)
    return found


def _spread_characters(note: Note) -> set[int]:
    """Characters of words of the identifier, less bare numbers of up to three digits, which are not spread."""
    from benchmarks.word_rules import seen, words_of

    words = [(a, b) for a, b in words_of(note.text, "new") if any(c <= a < d or a <= c < b for c, d in note.places)]
    return {
        at
        for a, b in words
        if not (len(word := seen(note.text[a:b])) <= 3 and all(unicodedata.category(c)[0] == "N" for c in word))
        for at in range(a, b)
    }


def _outcome(
    store: TokenStore,
    notes: Sequence[Note],
    met: list[list[set[int]]],
    covered: list[set[int]],
    wanted: Sequence[bool],
    drawn: np.ndarray | None = None,
) -> Outcome:
    outcome, drawn = Outcome(), drawn_tokens(store) if drawn is None else drawn
    for number in np.flatnonzero(wanted).tolist():
        own, of_tokens = notes[number].characters(), met[number]
        first, last = store.doc_offsets[number], store.doc_offsets[number + 1]
        targets = characters_of(of_tokens, (store.flags[first:last] & PROTECTED) == 0)
        outcome.characters += len(own)
        outcome.escaped += len(targets & own & covered[number])
        outcome.outside += len((targets & own) - covered[number])
        outcome.drawn += len(characters_of(of_tokens, drawn[first:last]) & own & covered[number])
    return outcome


def drawn_tokens(
    store: TokenStore, *, share: float = 0.5, seeds: Iterable[int] = (0, 1), epochs: int = 2
) -> np.ndarray:
    """Return which tokens the masked recipe ever drew, bool array of the store's tokens; windows cut words in two."""
    from reticent.trainer.labels import draw_targets
    from reticent.trainer.ledger import Ledger
    from reticent.trainer.recipes import get_recipe
    from reticent.trainer.windows import SpecialIds, cut_windows

    drawn = np.zeros(store.num_tokens, bool)
    windows = cut_windows(store, 24, SpecialIds(prefix=None, suffix=None, pad=0, mask=0))
    for seed in seeds:
        for epoch in range(1, epochs + 1):
            for numbers in windows.scoring_order(64):
                batch, ledger = windows.gather(numbers), Ledger()
                labels = draw_targets(batch, get_recipe("ppmlm"), ledger, mask_share=share, seed=seed, epoch=epoch)
                drawn[windows.token_positions(numbers, labels.shape[1])[labels >= 0]] = True
    assert not (drawn & ((store.flags & PROTECTED) != 0)).any(), "a flagged token was drawn"
    return drawn


def verdicts(found: Mapping[str, Mapping[str, Mapping[str, Outcome]]]) -> list[str]:
    """Return what is wrong: characters that escaped, spellings that are not what the list says, entries of `OPEN` that
    hold now. Names of spellings and kinds are ours, so they may be said.
    """
    reasons, wrong, still_open = {spelling.name: spelling for spelling in SPELLINGS}, [], set()
    for name, kinds in found.items():
        for kind, ways in kinds.items():
            key = next((key for key in ((kind, name), (None, name)) if key in OPEN), None)
            for way, outcome in ways.items():
                if not outcome.escaped and not outcome.drawn:
                    continue
                if key:
                    still_open.add(key)
                else:
                    wrong.append(f"{name}, {kind}, {way}: {outcome.escaped} characters escaped, {outcome.drawn} drawn")
        outside = sum(ways["counted"].outside for kind, ways in kinds.items() if kind in KINDS)
        if reasons[name].counted_holds and outside:
            wrong.append(f"{name}: the list says that counting protects it; {outside} characters are targets")
        if not reasons[name].counted_holds and not outside:
            wrong.append(f"{name}: the list says that counting leaves characters of it; none is a target")
    tried = {(kind, name) for name, kinds in found.items() for kind in (*kinds, None)}
    return wrong + [f"{key[1]}: listed as open, and holds now" for key in OPEN if key in tried - still_open]


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


def run(
    size: str, *, kinds: Sequence[str] | None = None, spellings: Sequence[Spelling] | None = None, supports: bool = True
) -> dict[str, Any]:
    """Run the lab, print its tables and write the record; `AssertionError` names what escaped."""
    from benchmarks.escape_supports import measure_supports, supports_table

    names = [kind for kind in (TOY_KINDS if size == "toy" else KINDS) if kinds is None or kind in kinds]
    chosen = {kind: tokenizer_json(kind) for kind in names}
    spellings = spellings or (TOY_SPELLINGS if size == "toy" else SPELLINGS)
    found = {}
    with tempfile.TemporaryDirectory(prefix="reticent-bench-") as folder:
        for number, spelling in enumerate(spellings):
            found[spelling.name] = measure(spelling, chosen, Path(folder) / str(number))
        if size != "toy" and kinds is None:
            together = measure_together(spellings, published_tokenizers(), Path(folder) / "published")
            for name, of_kind in together.items():
                found[name] |= of_kind
    result = _result(found, spellings)
    if supports:
        result["supports"] = measure_supports(size)
    print(totals_table(result))
    print(rest_table(result))
    if supports:
        print(supports_table(result["supports"]))
    wrong = verdicts(found)
    assert not wrong, "\n".join(wrong)
    if kinds is None and len(spellings) in (len(SPELLINGS), len(TOY_SPELLINGS)):
        print(write_record("escapes", result, size))
    return result


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
    from benchmarks.escape_supports import supports_table

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=["toy", "cpu"], default="cpu")
    parser.add_argument("--kind", action="append", help="only this kind of tokenizer; no record is written")
    parser.add_argument("--spelling", action="append", help="only this spelling; no record is written")
    options = parser.parse_args()
    spellings = [s for s in SPELLINGS if s.name in (options.spelling or ())]
    narrowed = bool(options.kind or spellings)
    try:
        run(options.size, kinds=options.kind, spellings=spellings or None, supports=not narrowed)
    except AssertionError as error:
        print(error, file=sys.stderr)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
