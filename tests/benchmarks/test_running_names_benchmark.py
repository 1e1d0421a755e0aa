"""The benchmark of names in running text: what counts as a word of a name, and scores that follow from it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from benchmarks import running_names
from benchmarks.detection_corpora import SPAN, Case
from reticent.engine.schema import SPANS


def case_of(text: str, *names: tuple[str, str]) -> Case:
    spans = [{"start": text.index(name), "end": text.index(name) + len(name), "label": label} for name, label in names]
    texts = pa.array([text, "Nobody."], pa.large_string())
    gold = pa.array([spans, []], pa.list_(SPAN))
    ids = ["a", "b"]
    documents = pa.table({"doc_id": ids, "individual_id": ids, "text": texts, "spans": gold})
    return Case(name="made", language="en", documents=documents)


def found(*bounds: tuple[int, int]) -> pa.Table:
    rows = [
        {"document": 0, "doc_id": "a", "start": s, "end": e, "label": "PER", "detector": "x", "score": 1.0}
        for s, e in bounds
    ]
    return pa.Table.from_pylist(rows, schema=SPANS)


def test_titles_initials_and_relatives_by_a_noun_are_no_words_of_names() -> None:
    text = "Mrs. Ann B. LEE and su hijo Max saw roy and el padre, J.T. too"
    relatives = "FAMILIARES_SUJETO_ASISTENCIA"
    names = [("Mrs. Ann B. LEE", "PER"), ("hijo Max", relatives), ("roy", "NAME"), ("padre", relatives), ("J.T", "PER")]
    words = running_names.Words(case_of(text, *names))
    counted = [w for w, gold, counts in zip(words.surfaces, words.gold, words.counted, strict=True) if gold and counts]
    assert counted == ["Ann", "LEE", "Max", "roy", "J.T"]
    assert [running_names._form(word) for word in counted] == ["Capital", "CAPITALS", "Capital", "small", "initials"]
    # "padre" counts neither as missed nor as false; "saw" is false.
    at = [(text.index(word), text.index(word) + len(word)) for word in ("Ann", "padre", "saw")]
    scores = words.scores(found(*at), 10)
    assert (scores["recall"]["value"], scores["recall"]["of"]) == (0.2, 5)
    assert (scores["precision"]["value"], scores["precision"]["of"]) == (0.5, 2)
    assert scores["missed"] == {"Capital": 1, "CAPITALS": 1, "small": 1, "initials": 1}


@pytest.mark.heavy
def test_a_corpus_is_measured_and_shown() -> None:
    result: dict[str, Any] = running_names.measure("synth_en", "toy")
    assert {"fast", "fast, records"} <= set(result["variants"])
    fast, records = (result["variants"][name] for name in ("fast", "fast, records"))
    assert records["recall"]["value"] >= fast["recall"]["value"] > 0
    record = {"machine": {"cpu": "c", "cores": 2, "commit": "x"}, "corpora": {"synth_en": result}}
    assert "| synth_en | fast, records |" in running_names.running_names_tables(record)
    assert "*fast* finds nine of ten" in running_names.running_names_answer(record)
    assert any(row.label == "synth_en: fast" for row in running_names.running_names_figure(record).rows)
