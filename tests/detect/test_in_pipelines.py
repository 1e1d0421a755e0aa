"""Our rules in other libraries' pipelines: a component of spaCy and a recogniser of Presidio find what rules find."""

from __future__ import annotations

import pickle
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fixtures.pages import blocks

import reticent
from reticent.core.errors import PolicyError
from reticent.engine.detect.rules import RulesDetector, list_rules

TEXT = "Dr. Ann Müller 😀 wrote to ann@example.org on 03/04/2019; Locker no: 417"
ROOT = Path(reticent.__file__).parents[1]


def of_rules(text: str, **options: Any) -> list[tuple[int, int, str]]:
    found = RulesDetector(**options).detect(pa.record_batch({"text": pa.array([text], pa.large_string())}))
    return sorted(zip(*(found.column(name).to_pylist() for name in ("start", "end", "label")), strict=True))


# --------------------------------------------------------------------------------------------------------------- spaCy


@pytest.fixture
def nlp() -> Any:
    spacy = pytest.importorskip("spacy", reason="the component of spaCy is not tested: spaCy is not installed")
    from reticent.engine.detect import spacy_rules

    assert spacy_rules.make_rules  # as its entry point does
    return spacy.blank("en")


def spans_of(doc: Any, key: str = "reticent") -> list[tuple[int, int, str]]:
    return sorted((span.start_char, span.end_char, span.label_) for span in doc.spans[key])


def test_the_component_marks_what_the_rules_find(nlp: Any) -> None:
    nlp.add_pipe("reticent_rules")
    doc = nlp(TEXT)
    found = of_rules(TEXT)
    assert len(found) >= 3
    assert spans_of(doc) == found
    assert doc.text == TEXT
    assert not doc.ents


def test_many_documents_go_through_together_and_come_out_in_order(nlp: Any) -> None:
    nlp.add_pipe("reticent_rules", config={"labels": ["EMAIL"]})
    texts = [f"{'é' * n} a{n}@b.org" if n % 3 else "" for n in range(300)]
    docs = list(nlp.pipe(texts, batch_size=7))
    assert [doc.text for doc in docs] == texts
    assert [spans_of(doc) for doc in docs] == [of_rules(text, labels=["EMAIL"]) for text in texts]
    assert sum(len(doc.spans["reticent"]) for doc in docs) == 200


def test_fields_and_keys_are_those_of_the_config(nlp: Any) -> None:
    nlp.add_pipe("reticent_rules", config={"fields": {"locker no": "ID"}, "spans_key": "mine"})
    doc = nlp(TEXT)
    assert (TEXT.index("417"), len(TEXT), "ID") in spans_of(doc, "mine")
    assert "reticent" not in doc.spans


def test_entities_that_were_there_stay_unless_they_are_overwritten(nlp: Any) -> None:
    ruler = nlp.add_pipe("entity_ruler")
    ruler.add_patterns([{"label": "GPE", "pattern": "ann@example.org"}])
    nlp.add_pipe("reticent_rules", config={"annotate_ents": True})
    assert "GPE" in {ent.label_ for ent in nlp(TEXT).ents}
    assert "DATE" in {ent.label_ for ent in nlp(TEXT).ents}
    nlp.remove_pipe("reticent_rules")
    nlp.add_pipe("reticent_rules", config={"annotate_ents": True, "overwrite": True})
    labels = {ent.label_ for ent in nlp(TEXT).ents}
    assert "GPE" not in labels
    assert {"EMAIL", "DATE"} <= labels


def test_a_span_inside_of_tokens_is_widened_to_them(nlp: Any) -> None:
    from spacy.tokens import Doc

    nlp.add_pipe("reticent_rules", config={"labels": ["EMAIL"]})
    doc = nlp.get_pipe("reticent_rules")(Doc(nlp.vocab, words=["<ann@example.org>"], spaces=[False]))
    assert spans_of(doc) == [(0, 17, "EMAIL")]


def test_a_wrong_setting_is_refused(nlp: Any) -> None:
    with pytest.raises(PolicyError, match="unknown label 'COLOUR'"):
        nlp.add_pipe("reticent_rules", config={"labels": ["COLOUR"]})


def test_a_saved_pipeline_finds_the_same(nlp: Any, tmp_path: Path) -> None:
    import spacy

    nlp.add_pipe("reticent_rules", config={"labels": ["EMAIL"]})
    nlp.to_disk(tmp_path / "pipeline")
    assert spans_of(spacy.load(tmp_path / "pipeline")(TEXT)) == of_rules(TEXT, labels=["EMAIL"])


@pytest.mark.heavy
def test_spacy_finds_the_factory_by_the_entry_point(nlp: Any, tmp_path: Path) -> None:
    """As installed: metadata with the entry points of pyproject.toml beside the package."""
    if not (ROOT / "pyproject.toml").exists():
        pytest.skip("needs the sources")
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["spacy_factories"]
    assert list(points) == ["reticent_rules"]
    info = tmp_path / "reticent_points-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: reticent-points\nVersion: 1\n")
    lines = "".join(f"{name} = {place}\n" for name, place in points.items())
    (info / "entry_points.txt").write_text(f"[spacy_factories]\n{lines}")
    code = (
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]\nimport spacy\n"
        "before = {'torch', 'polars', 'numba'} & set(sys.modules)\nnlp = spacy.blank('en')\n"
        "assert {'torch', 'polars', 'numba'} & set(sys.modules) == before\nnlp.add_pipe('reticent_rules')\n"
        "print(len(nlp('ann@example.org').spans['reticent']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("1", 0), done.stderr


# ------------------------------------------------------------------------------------------------------------ Presidio


@pytest.fixture
def recogniser() -> Any:
    pytest.importorskip("presidio_analyzer", reason="the recogniser is not tested: Presidio is not installed")
    from reticent.engine.detect.presidio_rules import RulesRecognizer

    return RulesRecognizer


def test_the_recogniser_finds_what_the_rules_find_by_presidios_names(recogniser: Any) -> None:
    from reticent.engine.detect.presidio_rules import entity_of

    own = recogniser("fr", score=0.7)
    found = own.analyze(TEXT, own.supported_entities, None)
    assert sorted((r.start, r.end, r.entity_type) for r in found) == sorted(
        (start, end, entity_of(label)) for start, end, label in of_rules(TEXT)
    )
    assert {r.score for r in found} == {0.7}
    assert {"PERSON", "EMAIL_ADDRESS", "DATE_TIME"} <= {r.entity_type for r in found} <= set(own.supported_entities)
    assert {entity_of(rule.label) for rule in list_rules()} == set(own.supported_entities)
    assert {r.entity_type for r in own.analyze(TEXT, ["EMAIL_ADDRESS"], None)} == {"EMAIL_ADDRESS"}


def test_an_analyser_takes_the_recogniser(recogniser: Any) -> None:
    import spacy
    from presidio_analyzer import AnalyzerEngine, RecognizerRegistry
    from presidio_analyzer.nlp_engine import SpacyNlpEngine

    engine = SpacyNlpEngine([{"lang_code": "es", "model_name": "given"}])
    engine.nlp = {"es": spacy.blank("es")}
    registry = RecognizerRegistry(supported_languages=["es"])
    registry.add_recognizer(recogniser("es", fields={"Taquilla n.º": "ID"}))
    analyser = AnalyzerEngine(registry=registry, nlp_engine=engine, supported_languages=["es"])
    text = "Taquilla n.º: 417, correo a@b.org"
    found = {(text[r.start : r.end], r.entity_type) for r in analyser.analyze(text, language="es")}
    assert {("417", "ID"), ("a@b.org", "EMAIL_ADDRESS")} <= found


def test_the_snippet_of_the_guide_runs(recogniser: Any) -> None:
    (snippet,) = blocks("docs/how-to/pipelines.md", "text")
    names: dict[str, Any] = {}
    exec(snippet, names)
    assert [own.name for own in names["registry"].recognizers] == ["ReticentRules"]


def test_settings_of_the_recogniser_are_checked(recogniser: Any) -> None:
    with pytest.raises(PolicyError, match="unknown label 'COLOUR'"):
        recogniser(labels=["COLOUR"])
    with pytest.raises(PolicyError, match="score: expected 0 to 1"):
        recogniser(score=2)
    assert recogniser(labels=["EMAIL"]).supported_entities == ["EMAIL_ADDRESS"]


def test_the_class_is_made_once_and_is_a_recogniser_of_presidio(recogniser: Any) -> None:
    from presidio_analyzer import EntityRecognizer

    from reticent.engine.detect import presidio_rules

    assert presidio_rules.RulesRecognizer is recogniser
    assert issubclass(recogniser, EntityRecognizer)
    own = pickle.loads(pickle.dumps(recogniser(labels=["EMAIL"])))
    assert len(own.analyze(TEXT, [], None)) == 1


def test_without_presidio_the_error_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['presidio_analyzer'] = None\nfrom reticent.core.errors import PolicyError\n"
        "try:\n    from reticent.engine.detect.presidio_rules import RulesRecognizer\n"
        "except PolicyError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "install reticent[presidio]" in done.stdout
