"""Taggers of the package: each document by its own language; no number, no thing that bears a name."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent.engine.detect.detector import FOUND, spans_batch
from reticent.engine.detect.learned import read_tagger
from reticent.engine.detect.shipped import FOLDER, FORMLESS, ShippedDetector, _refine_spans
from reticent.engine.languages import KNOWN

#: Language -> a note, and the name in it.
NOTES = {
    "de": ("Die Patientin lebt mit Ihrer Tochter Annelore Trübmann in der Stadt und ist wohlauf.", "Annelore Trübmann"),
    "en": ("She was seen with her daughter Annalee Trubman, who lives in the same house.", "Annalee Trubman"),
    "es": ("La paciente vive con su hija Anabel Trubano y no refiere dolor en el pecho.", "Anabel Trubano"),
    "fr": ("La patiente vit avec sa fille Annabelle Trubot et ne se plaint pas de douleur.", "Annabelle Trubot"),
}


def found(*texts: str) -> list[tuple[int, str, str]]:
    rows = ShippedDetector().detect(pa.record_batch({"text": pa.array(texts, pa.string())})).to_pylist()
    return [(row["document"], texts[row["document"]][row["start"] : row["end"]], row["label"]) for row in rows]


@pytest.mark.parametrize("language", KNOWN)
def test_each_language_has_a_tagger_that_finds_a_name_in_running_text(language: str) -> None:
    text, name = NOTES[language]
    assert name in " ".join(piece for _, piece, label in found(text) if label == "NAME")
    assert read_tagger(FOLDER / f"{language}.parquet").header.languages == [language]


def test_a_document_is_read_alike_in_any_batch() -> None:
    """What another document has in the same place, a thing too, changes nothing."""
    texts = ["She was seen with Melinda Hargrove and is well.", "She was given her Roy catheter and is well."]
    texts += [text for text, _ in NOTES.values()]
    alone = [(number, *rest) for number, text in enumerate(texts) for _, *rest in found(text)]
    assert found(*texts) == alone


@pytest.mark.parametrize(
    "text",
    [
        "Il paziente vive con la figlia Annalisa Trubani e non ha dolore, è in cura da anni per il cuore e il rene, "
        "e prende la terapia che il medico gli ha dato alla visita della settimana scorsa.",
        "EVA 7/10, TA 12/8, Doliprane 1 g x3/j.",
        "A Foley catheter was placed; Glasgow Coma Scale 15.",
        "",
    ],
)
def test_other_languages_numbers_and_things_are_left(text: str) -> None:
    assert found(text) == []


def test_a_name_ends_behind_its_initial() -> None:
    """But not behind a letter that begins a sentence."""
    texts = (
        "This is Corwin T., a boy with asthma.",
        "She was seen with Melinda. T waves are normal.",
    )
    assert [piece for _, piece, label in found(*texts) if label == "NAME"] == ["Corwin T", "Melinda"]


@given(st.lists(st.sampled_from(("Ana", " ", "T", ".", ",", "7", "x²", "²", "_", "é")), max_size=8), st.data())
def test_refined_spans_match_an_oracle(pieces: list[str], data: st.DataObject) -> None:
    """By the definition, on each span of a text: a letter, no number in a name, and the initial behind one."""
    text = "".join(pieces) + " end"
    start = data.draw(st.integers(0, len(text) - 1))
    end, label = data.draw(st.integers(start + 1, len(text))), data.draw(st.sampled_from(("NAME", "LOCATION")))
    initial = re.compile(r" ([A-ZÀ-ÖØ-Þ])\.(?=[,;:)]| [^\W\d_A-Z])").match(text, end) if label == "NAME" else None
    has_number = label == "NAME" and re.compile(r"\b\d+\b").search(text, start, end)
    is_kept = re.compile(r"[^\W\d_]").search(text, start, end) and not has_number
    left = _refine_spans(spans_batch([0], [start], [end], [label]), pa.array([text])).to_pylist()
    expected = [(start, initial.end(1) if initial else end, label)] if is_kept else []
    assert [(row["start"], row["end"], row["label"]) for row in left] == expected


def test_no_span_has_a_category_with_a_form() -> None:
    labels = {label for _, _, label in found("Seen on 3 May 2020, call 555 214 8803, Mrs Ann Tremlow, Leeds, nurse.")}
    assert labels
    assert labels <= set(FORMLESS)


def test_a_batch_without_documents_has_no_spans() -> None:
    batch = pa.record_batch({"text": pa.array([], pa.string())})
    assert ShippedDetector().detect_beside(batch, FOUND.empty_table()).num_rows == 0
