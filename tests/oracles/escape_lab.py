"""What becomes of one spelling of an identifier, by kind of tokenizer and by how it is protected, through real files.

Documents are written, the product makes the token store, and which characters are a target is told independently
(`oracles.characters`). *Escaped* are characters that the rule protects, and must be 0; *outside* are those that it does
not. The masked recipe is drawn from too.
"""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from fixtures.spellings import SPELLINGS, Spelling
from fixtures.tokenizer_kinds import KINDS

from oracles.characters import PROTECTED, characters_met, characters_of, open_tokenizer, rare_characters
from oracles.word_rules import is_space, seen, words_of
from reticent import _rust
from reticent.engine.corpus import Columns, Corpus, open_corpus
from reticent.engine.detect import detect_spans
from reticent.engine.detect.gold import GoldDetector
from reticent.engine.detect.spans import SpanReader
from reticent.engine.ngrams import NgramIndex
from reticent.engine.protect import Policy
from reticent.engine.schema import INDIVIDUALS, SPAN_TYPE
from reticent.engine.split import Individuals
from reticent.engine.store import TokenStore, open_tokens
from reticent.engine.tokens import write_tokens
from reticent.trainer.labels import draw_targets
from reticent.trainer.ledger import Ledger
from reticent.trainer.recipes import get_recipe
from reticent.trainer.windows import SpecialIds, cut_windows

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
        self.index = NgramIndex(builder.finish())

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
            own[way] = outcome_of(store, marked.notes, met, covered, [note.marked for note in marked.notes])
        # A word of the spelling is protected in the third individual's note too, however common; numbers are not.
        covered = [_spread_characters(note) for note in marked.notes]
        wanted = [bool(note.places) and not note.marked for note in marked.notes]
        own["spread"] = outcome_of(store, marked.notes, met, covered, wanted)
        met = [characters_met(kind, tokenizer, note.text) for note in counted.notes]
        for way, n in (("counted", 1), ("counted, n = 2", 2)):
            store = counted.tokens(f"{n}-{number}", json, Policy(k=K, n=n, policy="all"))
            texts, people = [note.text for note in counted.notes], [note.individual for note in counted.notes]
            covered = rare_characters(texts, people, k=K, n=n)
            own[way] = outcome_of(store, counted.notes, met, covered, [bool(note.places) for note in counted.notes])
    return found


def _spread_characters(note: Note) -> set[int]:
    """Characters of words of the identifier, less bare numbers of up to three digits, which are not spread."""
    words = [(a, b) for a, b in words_of(note.text, "new") if any(c <= a < d or a <= c < b for c, d in note.places)]
    return {
        at
        for a, b in words
        if not (len(word := seen(note.text[a:b])) <= 3 and all(unicodedata.category(c)[0] == "N" for c in word))
        for at in range(a, b)
    }


def outcome_of(
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
