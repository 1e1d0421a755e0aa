"""How many names in running text does each preset find, word by word, and at what speed?

Words of gold names outside of headers: of ``meddocan`` the body, found on whole documents. Aside are titles, single
letters and, in ``meddocan``, relatives by a common noun (``hijo``). ``aci_bench`` has the names of patient and doctor
as gold, so that names of others count as false; ``ehr_deid_sample_notes`` has none, and its names were marked for this
benchmark. The list is that of the US census. Speed is of the NER alone, in MB a second of one core, and again with the
passages that it has seen.

    python -m studies.running_names [--corpus tab] [--size toy|cpu]
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from fixtures.corpora import CORPORA as READERS
from fixtures.corpora import Case, body_of, census_names, json_lines, read_case

from benchmarks.detection import PIPELINES, _number
from benchmarks.record_io import DATA, STUDIES, estimate_text, machine, machine_line, markdown, write_record
from reticent.core.errors import PolicyError

#: Corpus -> documents that are read; None: all.
CORPORA: Mapping[str, int | None] = {
    "aci_bench": 40,
    "presidio_synth": None,
    "tab": None,
    "meddocan": None,
    "ehr_deid_sample_notes": None,
    "synth_en": 40,
    "synth_fr": 40,
}
GOAL = {"recall": 0.9, "precision": 0.8, "recall with records": 0.97}
#: Variant -> detectors, and whether names are confirmed and spread.
FAST = ("rules", "context", "gazetteer")
VARIANTS: Mapping[str, tuple[tuple[str, ...], bool, bool]] = {
    "NER alone": (("spacy",), False, False),
    "fast": (FAST, False, True),
    "fast, records": ((*FAST, "records"), False, True),
    "thorough, not confirmed": ((*FAST, "spacy"), False, True),
    "thorough": ((*FAST, "spacy"), True, True),
    "thorough, records": ((*FAST, "spacy", "records"), True, True),
}
TITLES = """
mr mrs ms miss dr drs doctor prof professor sir madam md sr sra dra don doña dña m mme mlle jr phd dds dvm ii iii iv esq
rn do np pa
"""
ASIDE = frozenset(TITLES.split())
#: Names of the four made-up notes of ``ehr_deid_sample_notes``.
EHR_NAMES = (
    ("Jack Reacher", "Roger C Kelly", "Hassan V Kim"),
    ("Ulysses Ogrady", "OSCAR, JOHNNY", "Wilson"),
    (),
    ("Jack Smith", "Jessy Smith", "Roger C Kelly", "Hassan V Kim", "Jon C Miller", "James Cafasso Ash"),
)
Bounds = list[tuple[int, int]]


def gold_names(case: Case) -> tuple[list[Bounds], list[Bounds]]:
    """Return the spans of names by document, and those that count neither as found nor as false."""
    from reticent.engine.detect.labels import category

    texts = case.documents.column("text").to_pylist()
    if case.gold is None:
        return [_standing(text, names) for text, names in zip(texts, EHR_NAMES, strict=False)], [[] for _ in texts]
    names, aside = [], []
    for text, spans in zip(texts, case.documents.column(case.gold).to_pylist(), strict=True):
        found = [span for span in spans if category(span["label"]) == "NAME"]
        relatives = [span["label"].startswith("FAMILIARES") for span in found]
        names.append([(s["start"], s["end"]) for s, is_noun in zip(found, relatives, strict=True) if not is_noun])
        of_nouns = [s for s, is_noun in zip(found, relatives, strict=True) if is_noun]
        aside.append([(s["start"], s["end"]) for s in of_nouns])
        names[-1] += [b for s in of_nouns for b in _capitals(text, s["start"], s["end"])]
    if case.name == "aci_bench":
        for bounds, text, doctor in zip(names, texts, _aci_doctors(), strict=False):
            bounds += _standing(
                text, [word for word in re.findall(r"[^\W\d_]{2,}", doctor) if word.lower() not in ASIDE]
            )
    return names, aside


def _standing(text: str, surfaces: Sequence[str]) -> Bounds:
    return [m.span() for surface in surfaces for m in re.finditer(rf"(?<!\w){re.escape(surface)}(?!\w)", text, re.I)]


def _capitals(text: str, start: int, end: int) -> Bounds:
    """Words with a capital inside a span, but for the first one: a relative's name behind the noun."""
    words = list(re.finditer(r"\w+", text[start:end]))[1:]
    return [(start + m.start(), start + m.end()) for m in words if m[0][0].isupper()]


def _aci_doctors() -> list[str]:
    files = ("train", "valid", "clinicalnlp_taskB_test1", "clinicalnlp_taskC_test2")
    return [row["metadata"].get("doctor_name") or "" for f in files for row in json_lines("aci_bench", f"{f}.jsonl")]


class Words:
    """The words of a corpus, and which of them count."""

    def __init__(self, case: Case):
        from reticent import _rust

        texts = case.documents.column("text").combine_chunks()
        words = _rust.segment(texts)
        self.starts, self.ends = words.char_spans(texts)
        self.bounds = np.asarray(words.doc_offsets)
        self.document = np.repeat(np.arange(len(texts)), np.diff(self.bounds))
        ids = case.documents.column("individual_id").combine_chunks().dictionary_encode()
        self.individual = ids.indices.to_numpy()[self.document]
        read = texts.to_pylist()
        self.surfaces = [read[d][s:e] for d, s, e in zip(self.document, self.starts, self.ends, strict=True)]
        counted = [len(word) > 1 and word.lower().strip(".") not in ASIDE for word in self.surfaces]
        names, aside = gold_names(case)
        self.gold = self.touched(names)
        self.counted = np.array(counted, dtype=bool) & ~(self.touched(aside) & ~self.gold)
        if case.name == "meddocan":
            first, last = np.array([body_of(text) for text in read]).T[:, self.document]
            self.counted &= (self.starts >= first) & (self.ends <= last)

    def touched(self, spans: Sequence[Bounds]) -> np.ndarray:
        """Whether a span touches each word."""
        hit = np.zeros(len(self.starts), dtype=bool)
        for document, of in enumerate(spans):
            own = slice(self.bounds[document], self.bounds[document + 1])
            for start, end in of:
                first = np.searchsorted(self.ends[own], start, side="right")
                after = np.searchsorted(self.starts[own], end, side="left")
                hit[own][first:after] = True
        return hit

    def scores(self, spans: pa.Table, num_bootstrap: int) -> dict[str, Any]:
        """Recall and precision over the words, with intervals over individuals, and recall by form of the word."""
        from reticent.audit.evidence.json_form import to_json
        from reticent.audit.stats.intervals import ratio_estimates
        from reticent.engine.detect.labels import category

        by: list[Bounds] = [[] for _ in range(len(self.bounds) - 1)]
        for row in spans.select(["document", "start", "end", "label"]).to_pylist():
            if category(row["label"]) == "NAME":
                by[row["document"]].append((row["start"], row["end"]))
        gold, found = self.gold & self.counted, self.touched(by) & self.counted
        num = int(self.individual.max()) + 1

        def each(which: np.ndarray) -> np.ndarray:
            return np.bincount(self.individual[which], minlength=num)

        right = each(gold & found)
        estimates, _ = ratio_estimates(
            np.array([right, right]), np.array([each(gold), each(found)]), num_bootstrap=num_bootstrap
        )
        forms = np.array([_form(surface) for surface in self.surfaces])
        by_form = {form: (gold & (forms == form)).sum() for form in FORMS}
        return {
            **{
                name: _number(to_json(e) | {"of": int(n)})
                for name, e, n in zip(("recall", "precision"), estimates, (gold.sum(), found.sum()), strict=True)
            },
            "missed": {f: int((gold & ~found & (forms == f)).sum()) for f, n in by_form.items() if n},
            "of": {form: int(n) for form, n in by_form.items() if n},
        }


FORMS = ("Capital", "CAPITALS", "small", "initials")


def _form(word: str) -> str:
    if re.fullmatch(r"\w(\.\w)+\.?|[^\W\d_]{2}", word) and word.isupper():
        return "initials"
    return "CAPITALS" if word.isupper() else "Capital" if word[0].isupper() else "small"


def measure(name: str, size: str) -> dict[str, Any]:
    """Measure the variants of a corpus and the speed of its NER."""
    from reticent.engine.corpus import open_corpus
    from reticent.engine.detect import detect_spans, make_detectors
    from reticent.engine.detect.confirm import confirm_names
    from reticent.engine.detect.propagate import propagate

    case = read_case(name, 12 if size == "toy" else CORPORA[name])
    with tempfile.TemporaryDirectory(prefix="reticent-bench-") as place:
        folder = Path(place)
        pq.write_table(case.documents.select(["doc_id", "individual_id", "text"]), folder / "d.parquet")
        options: dict[str, Any] = {"rules": {}, "context": {}}
        if case.language == "en" and (DATA / "us_census_names").exists():
            options["gazetteer"] = {"lists": census_names(folder)}
        if case.records is not None:
            pq.write_table(case.records, folder / "records.parquet")
            options["records"] = {"table": str(folder / "records.parquet")}
        detectors = make_detectors(list(options), options)
        speed = None
        try:
            pipeline = {"pipeline": PIPELINES.get(case.language, ""), "guard": True, "passages": True}
            (ner,) = make_detectors(["spacy"], {"spacy": pipeline})
        except PolicyError:
            ner = None
        corpus = open_corpus(folder / "d.parquet")
        if ner is not None:
            speed = _speed(ner, case, folder)
            detectors.append(ner)
        detect_spans(corpus, detectors, folder)
        united = pq.read_table(folder / "spans.parquet")
        words = Words(case)
        variants = {}
        for variant, (wanted, confirmed, spread) in VARIANTS.items():
            if ("spacy" in wanted and ner is None) or ("records" in wanted and case.records is None):
                continue
            path = folder / "variant.parquet"
            pq.write_table(united.filter(pc.is_in(united.column("detector"), pa.array(wanted))), path)
            for step, apply in ((confirmed, confirm_names), (spread, propagate)):
                if step:
                    apply(corpus, path, path.with_suffix(".next"))
                    path.with_suffix(".next").rename(path)
            variants[variant] = words.scores(pq.read_table(path), 100 if size == "toy" else 1000)
    ner_name = PIPELINES.get(case.language) if ner is not None else None
    return {"language": case.language, "documents": len(case.documents), "ner": ner_name, "speed": speed} | {
        "variants": variants
    }


def _speed(ner: Any, case: Case, folder: Path) -> dict[str, Any]:
    """MB a CPU second of the NER on all documents, and again with its cache; its spans stay in the cache."""
    from reticent.engine.detect.passages import SpanCache

    batch = case.documents.select(["text"]).combine_chunks().to_batches()[0]
    num_bytes = pc.sum(pc.binary_length(batch.column("text"))).as_py()
    ner.cache = SpanCache(folder / "cache", ner.cache_key())
    rates, tables = [], []
    for _ in range(2):
        cpu = time.process_time()
        tables.append(ner.detect(batch))
        rates.append(num_bytes / 1e6 / (time.process_time() - cpu))
        ner.cache.write()
    assert tables[0].equals(tables[1]), "the cache changes what is found"
    return {"bytes": num_bytes, "mb_per_cpu_second": round(rates[0], 3), "again": round(rates[1], 2)}


def run(size: str = "cpu", chosen: Sequence[str] = ()) -> dict[str, Any]:
    """Measure the corpora that are there; their record is kept."""
    corpora = {}
    for name in chosen or CORPORA:
        folder = READERS[name][0]
        if folder is not None and not (DATA / folder).exists():
            print(f"skipped {name}: not found under RETICENT_DATA", file=sys.stderr)
            continue
        corpora[name] = measure(name, size)
        print(running_names_tables({"machine": machine(), "corpora": {name: corpora[name]}}), file=sys.stderr)
    result = {"goal": GOAL, "corpora": corpora}
    if corpora and not chosen:
        write_record("running_names", result, size, STUDIES)
    return result


def running_names_tables(record: Mapping[str, Any]) -> str:
    """Return the tables of the page."""
    rows, speeds = [], []
    for name, result in record["corpora"].items():
        for variant, scores in result["variants"].items():
            missed = ", ".join(f"{form} {scores['missed'][form]} of {num}" for form, num in scores["of"].items())
            rates = [estimate_text(scores[what]) for what in ("recall", "precision")]
            rows.append((name, variant, scores["recall"]["of"], *rates, missed))
        if speed := result["speed"]:
            speeds.append(
                (name, result["ner"], f"{speed['bytes'] / 1e6:.1f}", speed["mb_per_cpu_second"], speed["again"])
            )
    text = f"{machine_line(record)}\n\n" + markdown(
        ("corpus", "detection", "words", "recall", "precision", "missed, by form"), rows
    )
    if speeds:
        heads = ("corpus", "NER", "MB", "MB a CPU second", "again, from its cache")
        text += "\n" + markdown(heads, speeds)
    return text


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=["toy", "cpu"], default="cpu")
    parser.add_argument("--corpus", choices=sorted(CORPORA), action="append", default=[])
    options = parser.parse_args(arguments)
    sys.stdout.write(running_names_tables({"machine": machine(), **run(options.size, options.corpus)}))


if __name__ == "__main__":
    main()
