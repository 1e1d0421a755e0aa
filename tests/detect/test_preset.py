"""One named choice of detectors; names of a NER that the corpus says are words."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reticent import _rust
from reticent.core.errors import PolicyError
from reticent.engine.detect import preset, spans_batch
from reticent.engine.detect.common import without_common_words
from reticent.engine.detect.config import DetectConfig
from reticent.job.config import load_kept_job


def config(**values: Any) -> DetectConfig:
    return DetectConfig(**values)


def no_pipeline(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    points = [type("Point", (), {"name": name})() for name in names]
    monkeypatch.setattr(preset, "entry_points", lambda group: points if group == "spacy_models" else [])


def test_fast_takes_what_needs_no_model() -> None:
    chosen = config(preset="fast")
    assert chosen.detectors == ("rules", "shipped")
    assert chosen.propagate
    assert config(preset="fast", propagate=False).propagate is False
    more = config(preset="fast", records="r.csv", lists={"CITY": "c.txt"})
    assert more.detectors == ("rules", "shipped", "records", "gazetteer")
    assert more.of("records") == {"table": "r.csv"}


def test_thorough_adds_the_ner_that_is_named() -> None:
    chosen = config(preset="thorough", spacy="en_core_web_sm", records="r.csv")
    assert chosen.detectors == ("rules", "shipped", "records", "spacy")
    assert chosen.of("spacy") == {"pipeline": "en_core_web_sm", "guard": True, "passages": True}
    assert config(preset="thorough", spacy={"pipeline": "x", "guard": False}).of("spacy")["guard"] is False


def test_thorough_takes_the_one_pipeline_that_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    no_pipeline(monkeypatch, "fr_core_news_sm")
    assert config(preset="thorough").of("spacy")["pipeline"] == "fr_core_news_sm"


@pytest.mark.parametrize(
    ("installed", "message"),
    [((), "no pipeline of spaCy is installed"), (("a", "b"), "several are installed: a, b")],
)
def test_thorough_without_a_ner_says_what_is_needed(
    monkeypatch: pytest.MonkeyPatch, installed: tuple[str, ...], message: str
) -> None:
    no_pipeline(monkeypatch, *installed)
    with pytest.raises(PolicyError, match=message) as error:
        config(preset="thorough")
    assert "detect.spacy.pipeline" in str(error.value)
    assert 'preset = "fast"' in str(error.value)


def test_a_preset_and_other_detectors_contradict_each_other() -> None:
    with pytest.raises(PolicyError, match="give preset or detectors"):
        config(preset="fast", detectors=["rules"])
    with pytest.raises(PolicyError, match="preset"):
        config(preset="slow")


def test_a_resolved_preset_reads_back_as_itself() -> None:
    chosen = config(preset="thorough", spacy="x", records="r.csv")
    assert DetectConfig(**chosen.model_dump()) == chosen


@pytest.mark.parametrize(
    ("kept", "detectors"),
    [
        ({"preset": "fast", "detectors": ["rules", "context"], "confirm": False}, ("rules", "shipped")),
        ({"detectors": ["context", "rules"], "confirm": True, "context": {"common": "w.txt"}}, ("rules", "shipped")),
        ({"preset": None, "detectors": ["rules"], "confirm": False}, ("rules",)),
    ],
)
def test_kept_job_with_a_detector_that_is_gone_opens(
    tmp_path: Path, kept: dict[str, Any], detectors: tuple[str, ...]
) -> None:
    job = {"out": str(tmp_path), "corpus": {"source": "notes.parquet"}, "detect": kept}
    (tmp_path / "job.json").write_text(json.dumps(job))
    assert load_kept_job(tmp_path / "job.json").detect.detectors == detectors


def test_who_names_a_detector_that_is_gone_is_told_which_finds_the_same() -> None:
    with pytest.raises(PolicyError, match="detector context is gone: detector shipped"):
        config(detectors=["rules", "context"])


PIECES = ("pain", "Pain", "Trubman", "T", "7", "_", "été", "x²", "’", "-", " ", "\n", "\U0001f600")


@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=6), min_size=1, max_size=5), st.booleans())
def test_names_without_common_words_matches_oracle(names: list[list[str]], is_together: bool) -> None:
    """By the definition: a name is left out if it has words, and the corpus writes all of them small."""
    common = _rust.CommonWords()
    common.add_list(pa.array(["pain", "été"]))
    common.merge()
    spans, texts = [], [""]
    for name in map("".join, names):
        spans.append((len(texts) - 1, len(texts[-1]), len(texts[-1]) + len(name), "PERSON"))
        texts[-1] += name
        texts += [] if is_together else [""]
    found = spans_batch(*map(list, zip(*spans, strict=True)))

    def is_name(name: str) -> bool:
        words = re.findall(r"[^\W\d_]{2,}", name)
        return not words or not all(common.are_widespread(pa.array(words)).tolist())

    kept = [span for span in spans if is_name(texts[span[0]][span[1] : span[2]])]
    left = without_common_words(found, pa.array(texts), common).drop_columns(["score"])
    assert [tuple(row.values()) for row in left.to_pylist()] == kept


def test_names_of_a_ner_that_many_documents_write_small_are_left_out() -> None:
    common = _rust.CommonWords()
    notes = [
        "See chief complaint: pain, see hopkins",
        "So the chief complaint is",
        "A chief complaint of Mrs. Hopkins",
        "",
    ]
    common.add(pa.array(notes), pa.array(["a", "b", "c", "d"]))
    common.merge()
    text = "CHIEF COMPLAINT Hopkins 2019 chief Hopkins"
    spans = [(0, 15, "PERSON"), (0, 15, "ORG"), (16, 23, "PERSON"), (24, 28, "PERSON"), (29, 42, "PERSON")]
    start, end, label = zip(*spans, strict=True)
    found = spans_batch([0] * 5, list(start), list(end), list(label))
    kept = without_common_words(found, pa.array([text]), common).select(["start", "label"]).to_pylist()
    assert [(row["start"], row["label"]) for row in kept] == [(s, lab) for s, _, lab in spans[1:]]
    empty = found.slice(0, 0)
    assert without_common_words(empty, pa.array([], pa.string()), common).num_rows == 0
