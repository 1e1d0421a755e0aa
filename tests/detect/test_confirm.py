"""Names that one NER or list alone found are kept where they look like the names of the corpus."""

from __future__ import annotations

import json
import re
import tracemalloc
from array import array
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reticent.engine.corpus import Corpus, open_corpus
from reticent.engine.detect import confirm, spans_batch
from reticent.engine.detect import confirm as judge
from reticent.engine.detect.config import DetectConfig
from reticent.engine.detect.confirm import MIN_EXAMPLES, confirm_names
from reticent.engine.schema import SPANS
from reticent.job import update as job_update
from reticent.job.config import parse_job
from reticent.job.pipeline import execute
from reticent.job.run import Run

#: (word, label, detector) of the spans of a text.
Names = Sequence[tuple[str, str, str]]

DRUGS = ("Lasix", "Prozac", "Zofran", "Reglan", "Mobic", "Neurontin")
NAMES = ("Roy", "Petit", "Garcia", "Novak", "Silva", "Weber")


def write(folder: Path, documents: Sequence[tuple[str, Names]]) -> Corpus:
    ids = [f"d{number}" for number in range(len(documents))]
    texts = pa.array([text for text, _ in documents], pa.large_string())
    pq.write_table(pa.table({"doc_id": ids, "individual_id": ids, "text": texts}), folder / "d.parquet")
    rows = [
        {
            "document": number,
            "doc_id": ids[number],
            "start": text.index(word),
            "end": text.index(word) + len(word),
            "label": label,
            "detector": detector,
            "score": 1.0,
        }
        for number, (text, names) in enumerate(documents)
        for word, label, detector in names
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=SPANS), folder / "in.parquet")
    return open_corpus(folder / "d.parquet")


def confirmed(folder: Path, corpus: Corpus) -> tuple[dict[str, int], list[tuple[int, int, str]]]:
    counts = confirm_names(corpus, folder / "in.parquet", folder / "out.parquet")
    rows = pq.read_table(folder / "out.parquet").to_pylist()
    return counts, [(row["document"], row["start"], row["detector"]) for row in rows]


def note(name: str, drug: str) -> str:
    return f"Then {name} denies pain. Continue {drug} 40 mg daily."


def examples(number: int) -> list[tuple[str, Names]]:
    return [(note(NAMES[at % 6], DRUGS[at % 6]), [(NAMES[at % 6], "NAME", "records")]) for at in range(number)]


def test_a_drug_of_a_ner_is_dropped_and_a_name_that_nobody_else_found_is_kept(tmp_path: Path) -> None:
    judged: list[tuple[str, Names]] = [
        (note("Kim", "Xanax"), [("Kim", "PERSON", "spacy"), ("Xanax", "PERSON", "spacy")]),
        (note("Lee", "Valium"), [("Lee", "NAME", "gazetteer"), ("Valium", "GPE", "spacy")]),
    ]
    corpus = write(tmp_path, [*examples(30), *judged])
    counts, spans = confirmed(tmp_path, corpus)
    assert counts == {"judged": 3, "unconfirmed": 1, "confirm": 0}
    assert spans[:30] == [(number, 5, "records") for number in range(30)]
    # The town of the NER is no name, and so is not judged.
    assert spans[30:] == [(30, 5, "spacy"), (31, 5, "gazetteer"), (31, note("Lee", "Valium").index("Valium"), "spacy")]
    again = confirmed(tmp_path, corpus)
    assert again == (counts, spans)


def test_what_two_found_or_one_with_evidence_is_not_judged(tmp_path: Path) -> None:
    judged: list[tuple[str, Names]] = [
        (note("Kim", "Xanax"), [("Xanax", "PERSON", "gazetteer"), ("Xanax", "PERSON", "spacy")]),
        (note("Kim", "Valium"), [("Valium", "PERSON", "context")]),
        # One word of a span that has evidence is enough.
        (note("Kim", "Valium Roy"), [("Valium Roy", "PERSON", "spacy"), ("Roy", "PERSON", "rules")]),
    ]
    counts, spans = confirmed(tmp_path, write(tmp_path, [*examples(30), *judged]))
    assert counts == {"judged": 0, "unconfirmed": 0, "confirm": 3}
    assert len(spans) == 30 + 5 + 3


def test_words_that_none_found_are_added_where_names_stand_and_nowhere_else(tmp_path: Path) -> None:
    unseen: list[tuple[str, Names]] = [
        (note("Kim", "Xanax"), ()),
        # The corpus writes the word small.
        (note("Rest", "Lasix") + " Then rest.", ()),
        (note("MRI", "Lasix"), ()),
        # A weekday is a date, a dialogue has the word small, a field has a name.
        (note("Monday", "Lasix"), [("Monday", "DATE", "spacy")]),
        (note("Pulse", "Lasix") + "\nso the pulse is good", ()),
        (note("Kidneys:", "Lasix"), ()),
    ]
    counts, spans = confirmed(tmp_path, write(tmp_path, [*examples(30), *unseen]))
    assert counts == {"judged": 0, "unconfirmed": 0, "confirm": 1}
    assert [span for span in spans[30:] if span[2] != "spacy"] == [(30, 5, "confirm")]


def test_words_of_a_list_in_a_dialogue_typed_small_are_dropped_and_its_names_kept(tmp_path: Path) -> None:
    talks: list[tuple[str, Names]] = [
        (
            f"so {NAMES[at % 6].lower()} how is it\nthe brown spot went away and the {DRUGS[at % 6].lower()} helped",
            [(NAMES[at % 6].lower(), "NAME", "records"), ("brown", "NAME", "gazetteer")],
        )
        for at in range(30)
    ]
    judged: tuple[str, Names] = ("so lee how is it\nthe spot went away", [("lee", "NAME", "gazetteer")])
    counts, spans = confirmed(tmp_path, write(tmp_path, [*examples(30), *talks, judged]))
    assert counts == {"judged": 31, "unconfirmed": 30, "confirm": 0}
    assert spans[-1] == (60, 3, "gazetteer")


def test_a_word_without_context_is_what_it_is_elsewhere(tmp_path: Path) -> None:
    both = [("Kim", "PERSON", "spacy"), ("Xanax", "PERSON", "spacy")]
    judged: list[tuple[str, Names]] = [(note("Kim", "Xanax"), both)] * 5
    alone: list[tuple[str, Names]] = [("Xanax", both[1:]), ("Kim", both[:1])]
    counts, spans = confirmed(tmp_path, write(tmp_path, [*examples(30), *judged, *alone]))
    assert counts == {"judged": 12, "unconfirmed": 6, "confirm": 0}
    assert spans[30:] == [(number, 5, "spacy") for number in range(30, 35)] + [(36, 0, "spacy")]


def test_nothing_is_dropped_where_the_corpus_has_too_few_examples(tmp_path: Path) -> None:
    judged: tuple[str, Names] = (note("Kim", "Xanax"), [("Xanax", "PERSON", "spacy")])
    counts, spans = confirmed(tmp_path, write(tmp_path, [*examples(MIN_EXAMPLES - 1), judged]))
    assert counts == {"judged": 0, "unconfirmed": 0, "confirm": 0}
    assert len(spans) == MIN_EXAMPLES
    counts, _ = confirmed(tmp_path, write(tmp_path, [*examples(MIN_EXAMPLES), judged]))
    assert (counts["judged"], counts["unconfirmed"]) == (1, 1)


def test_edges_of_texts_and_spans_without_words(tmp_path: Path) -> None:
    judged: list[tuple[str, Names]] = [
        ("Kim", [("Kim", "PERSON", "spacy")]),
        ("42", [("42", "PERSON", "spacy")]),
        ("Mr.", [("Mr", "PERSON", "spacy")]),
        ("", []),
    ]
    corpus = write(tmp_path, [*examples(30), *judged])
    counts, spans = confirmed(tmp_path, corpus)
    assert counts["judged"] == 1
    assert {(31, 0, "spacy"), (32, 0, "spacy")} <= set(spans)


def test_a_corpus_without_spans_stays_without(tmp_path: Path) -> None:
    counts, spans = confirmed(tmp_path, write(tmp_path, [("Then Roy came", ()), ("Then Ann came", ())]))
    assert (counts, spans) == ({"judged": 0, "unconfirmed": 0, "confirm": 0}, [])


class Words:
    """A detector of words."""

    columns: tuple[str, ...] = ()

    def __init__(self, name: str, words: Sequence[str]):
        self.name, self.words = name, words

    def detect(self, batch: pa.RecordBatch) -> pa.Table:
        texts = batch.column("text").to_pylist()
        found = [(row, t.index(w), t.index(w) + len(w)) for row, t in enumerate(texts) for w in self.words if w in t]
        rows, starts, ends = zip(*found, strict=True) if found else ((), (), ())
        return spans_batch(rows, starts, ends, pa.array(["NAME"] * len(rows), pa.string()))


def test_a_job_confirms_before_it_spreads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = [*examples(30), (note("Kim", "Xanax"), ()), ("Xanax again", ())]
    write(tmp_path, documents)
    detectors = [Words("sure", NAMES), Words("spacy", ["Kim", "Xanax"])]
    monkeypatch.setattr("reticent.job.stages.detect.make_detectors", lambda *_, **__: detectors)
    values: dict[str, Any] = {
        "out": str(tmp_path / "run"),
        "corpus": {"source": str(tmp_path / "d.parquet")},
        "detect": {"confirm": True, "propagate": True},
    }
    execute(Run(parse_job(values)), "detect")
    folder = tmp_path / "run" / "spans"
    found = pq.read_table(folder / "spans.parquet").to_pylist()
    assert [(row["document"], row["detector"]) for row in found if row["document"] >= 30] == [(30, "spacy")]
    counts = json.loads((folder / "manifest.json").read_text())["counts"]
    assert (counts["sure"], counts["spacy"], counts["judged"], counts["unconfirmed"]) == (30, 3, 3, 2)
    assert counts["spans"] == len(found) == 31
    assert [path.name for path in folder.glob("*.parquet")] == ["spans.parquet"]


def test_an_update_judges_all_names_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_update, "_is_whole", lambda *_: True)
    monkeypatch.setattr(job_update, "spans_artefact", lambda _: None)
    monkeypatch.setattr(job_update, "has_other_rules", lambda _: False)
    for confirms in (True, False):
        job = SimpleNamespace(detect=DetectConfig(confirm=confirms), corpus=SimpleNamespace(remote=None))
        run = SimpleNamespace(job=job)
        update: Any = job_update.Reuse(SimpleNamespace(before=None), run)  # type: ignore[arg-type]
        assert ("judges names by those of all documents" in update._why_not_spans()) == confirms


def test_what_a_ner_takes_for_names_of_firms_streets_and_things_is_dropped_whole_or_in_part(tmp_path: Path) -> None:
    judged: list[tuple[str, Names]] = [
        ("She is with Kim, Lee and Park Inc today.", [("Kim, Lee and Park Inc", "PERSON", "spacy")]),
        ("It is of Kim & Lee GmbH.", [("Kim", "NAME", "gazetteer"), ("Kim & Lee", "PERSON", "spacy")]),
        ("He came from Kim Avenue.", [("Kim Avenue", "PERSON", "spacy")]),
        ("Il habite rue de la Kim.", [("Kim", "PERSON", "spacy")]),
        ("en el Hospital Kim Lee", [("Kim Lee", "PERSON", "spacy")]),
        ("with a Kim-Lee blade", [("Kim-Lee", "PERSON", "spacy")]),
        # Two weak detectors are no more than one here.
        ("Er arbeitet bei Kim.", [("Kim", "NAME", "gazetteer"), ("Kim", "PERSON", "spacy")]),
        # A date and the next line are no part of a name; a title says more than a street.
        (
            "Then Kim 03/04/1937",
            [("Kim 03/04/1937", "PERSON", "spacy"), ("Kim", "NAME", "records"), ("03/04/1937", "DATE", "rules")],
        ),
        ("Then Kim\nPhone: 12", [("Kim\nPhone", "PERSON", "spacy"), ("Kim", "NAME", "records")]),
        ("Hospital Kim", [("Kim", "NAME", "rules")]),
    ]
    confirmed(tmp_path, write(tmp_path, [*examples(30), *judged]))
    rows = pq.read_table(tmp_path / "out.parquet").to_pylist()[30:]
    texts = [text for text, _ in judged]
    found = [(row["document"] - 30, texts[row["document"] - 30][row["start"] : row["end"]]) for row in rows]
    assert found == [(7, "Kim"), (7, "Kim"), (7, "03/04/1937"), (8, "Kim"), (8, "Kim"), (9, "Kim")]


def test_names_of_a_list_vouch_for_the_others(tmp_path: Path) -> None:
    lists: list[tuple[str, Names]] = [
        ("They saw Roy, Petit, Ximo and Garcia.", [(name, "NAME", "records") for name in ("Roy", "Petit", "Garcia")]),
        ("Vieron a Petit, Ximo y Roy.", [(name, "NAME", "records") for name in ("Petit", "Roy")]),
        ("They saw Roy, Lyon and Ximo.", [("Roy", "NAME", "records")]),
    ]
    _, spans = confirmed(tmp_path, write(tmp_path, [*examples(30), *lists]))
    assert [span for span in spans if span[2] == "confirm"] == [(30, 21, "confirm"), (31, 16, "confirm")]


def test_a_name_goes_on_over_particles(tmp_path: Path) -> None:
    named: list[tuple[str, Names]] = [("Then Kim van de Ximo denies pain.", [("Kim", "NAME", "records")])] * 3
    _, spans = confirmed(tmp_path, write(tmp_path, [*examples(30), *named]))
    assert (30, 16, "confirm") in spans


def test_letters_with_digits_are_no_name_of_a_ner_alone(tmp_path: Path) -> None:
    judged: list[tuple[str, Names]] = [
        (note("Mrn472", "Lasix"), [("Mrn472", "PERSON", "spacy")]),
        (note("Kim Mrn472", "Lasix"), [("Kim Mrn472", "PERSON", "spacy")]),
        (note("Mrn472", "Lasix"), [("Mrn472", "NAME", "records"), ("Mrn472", "PERSON", "spacy")]),
    ]
    corpus = write(tmp_path, [*examples(30), *judged])
    confirmed(tmp_path, corpus)
    rows = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert [(r["document"], r["start"], r["end"]) for r in rows if r["detector"] == "spacy"] == [
        (31, 5, 8),
        (32, 5, 11),
    ]


@pytest.mark.parametrize(("word", "is_name"), [("Kim", 1), ("Lives", 0), ("Similarly", 0), ("Information", 0)])
def test_verbs_adverbs_and_words_of_forms_are_not_added(tmp_path: Path, word: str, is_name: int) -> None:
    counts, _ = confirmed(tmp_path, write(tmp_path, [*examples(30), (note(word, "Lasix"), ())]))
    assert counts["confirm"] == is_name


@pytest.mark.parametrize(("most", "characters", "stride"), [(20, 10**9, 2), (100, 400, 3), (100, 10**9, 1)])
def test_the_documents_that_the_model_is_fitted_on_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, characters: int, stride: int
) -> None:
    strides = []

    def documents(*_: object, stride: int) -> list[object]:
        strides.append(stride)
        return []

    monkeypatch.setattr(confirm, "MAX_DOCUMENTS", most)
    monkeypatch.setattr(confirm, "MAX_CHARACTERS", characters)
    monkeypatch.setattr(confirm, "_documents", documents)
    ids = [f"d{number}" for number in range(39)]
    pq.write_table(pa.table({"doc_id": ids, "individual_id": ids, "text": ["é" * 30] * 39}), tmp_path / "d.parquet")
    pq.write_table(SPANS.empty_table(), tmp_path / "in.parquet")
    confirm_names(open_corpus(tmp_path / "d.parquet"), tmp_path / "in.parquet", tmp_path / "out.parquet")
    assert strides == [stride]


def test_what_is_learned_from_is_held_in_few_bytes() -> None:
    """Memory that each more character takes, in documents with names that are said and other words with a capital."""
    text = "So Roy came. Mr. Roy and Anna felt Some Pain Today Again, and Left Then. " * 20
    words = [(match.start(), match.end()) for match in re.finditer(r"\w+", text)]
    starts, ends = (array("I", edges) for edges in zip(*words, strict=True))
    names = [word for word, (start, end) in enumerate(words) if text[start:end] in ("Roy", "Anna")]
    said = [(0, word, word + 1, "rules") for word in names]

    def peak(num: int) -> int:
        tracemalloc.start()
        assert judge.learn(judge.Document(text, starts, ends, said) for _ in range(num)) is not None
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(2)  # imports
    assert peak(12) - peak(4) < 130 * 8 * len(text)
