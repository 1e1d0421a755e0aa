"""The learned tagger: what it may read, what it finds, and what is refused."""

from __future__ import annotations

import json
import random
import re
import string
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.processor_time import processor_seconds

from reticent import _rust
from reticent.core.errors import ArtifactError, CorpusError, PolicyError
from reticent.engine.detect import detect_spans, make_detectors
from reticent.engine.detect.detector import FOUND
from reticent.engine.detect.learned import (
    LESSONS,
    MIN_EXAMPLES,
    LearnConfig,
    LearnedDetector,
    TaggerConfig,
    _digest_arrays,
    learn_tagger,
    read_tagger,
)

KEY = bytes(range(16))
NOTHING = FOUND.empty_table()
SETTINGS = TaggerConfig(k=3, corpus=False)


def name(draw: random.Random) -> str:
    """A name that nobody else has."""
    return "".join(draw.choices(string.ascii_lowercase, k=draw.randint(5, 9))).capitalize()


def notes(num: int, seed: int = 0, first: int = 0) -> pa.Table:
    """Notes in a language without rules, with a name in each of two sentences; one individual a note."""
    draw = random.Random(seed)
    rows = []
    for number in range(first, first + num):
        text, spans = "", []
        sentences = draw.sample(
            ["Ho visto {} in corsia oggi.", "La moglie di {} riferisce febbre.", "Nessun dolore alla Palpazione.",
             "Si consiglia riposo e Paracetamolo.", "Parlato con {} della terapia.", "Controllo in Radiologia."], 6,
        )  # fmt: skip
        for sentence in sentences:
            before, hole, after = sentence.partition("{}")
            text += before
            if hole:
                found = name(draw)
                spans.append({"start": len(text), "end": len(text) + len(found), "label": "NAME"})
                text += found
            text += f"{after} "
        rows.append({"individual_id": f"p{number}", "text": text, "spans": spans, "weight": 1.0})
    return pa.Table.from_pylist(rows, schema=LESSONS)


def recall(tagger, documents: pa.Table, **options) -> tuple[float, float]:
    """Recall and precision of spans."""
    texts = documents.column("text").combine_chunks()
    found = {(row["document"], row["start"], row["end"]) for row in tagger.find(texts, NOTHING, **options).to_pylist()}
    gold = {
        (row, span["start"], span["end"])
        for row, spans in enumerate(documents.column("spans").to_pylist())
        for span in spans
    }
    return len(found & gold) / len(gold), len(found & gold) / max(len(found), 1)


@pytest.fixture(scope="module")
def tagger():
    return learn_tagger(notes(25), NOTHING, SETTINGS, key=KEY)


def test_twenty_five_notes_teach_what_no_rule_knows(tagger) -> None:
    others = notes(200, seed=1)
    rules = make_detectors(["rules"])[0].detect(pa.record_batch({"text": others.column("text").combine_chunks()}))
    assert rules.num_rows < 20
    found, right = recall(tagger, others)
    assert found > 0.97
    assert right > 0.97


def test_equal_documents_give_equal_bytes_and_threads_change_nothing(tagger) -> None:
    assert learn_tagger(notes(25), NOTHING, SETTINGS, key=KEY).to_bytes() == tagger.to_bytes()
    texts = notes(300, seed=2).column("text").combine_chunks()
    one, *others = [tagger.find(texts, NOTHING, num_threads=num) for num in (1, 2, 4)]
    assert one.num_rows > 500
    assert all(other.equals(one) for other in others)


def test_rare_words_are_read_by_their_form_alone(tagger) -> None:
    """Each word of fewer than k individuals is replaced by another of its form: the tagger is the same, bit for bit."""
    lessons = notes(25)
    of: dict[str, set[int]] = {}
    for row, text in enumerate(lessons.column("text").to_pylist()):
        for word in re.findall(r"\w+", text):
            of.setdefault(word.lower(), set()).add(row)
    draw, taken = random.Random(3), {}

    def other(word: re.Match) -> str:
        lower = word[0].lower()
        if len(of[lower]) >= SETTINGS.k:
            return word[0]
        if lower not in taken:
            taken[lower] = "".join(draw.choice(string.ascii_lowercase) for _ in lower)
        new = taken[lower]
        return "".join(c.upper() if old.isupper() else c for c, old in zip(new, word[0], strict=True))

    texts = [re.sub(r"\w+", other, text) for text in lessons.column("text").to_pylist()]
    changed = lessons.set_column(1, LESSONS.field("text"), pa.array(texts, pa.large_string()))
    assert len(taken) > 50
    assert learn_tagger(changed, NOTHING, SETTINGS, key=KEY).to_bytes() == tagger.to_bytes()
    one_known = learn_tagger(changed, NOTHING, TaggerConfig(k=1, corpus=False), key=KEY)
    assert one_known.to_bytes() != learn_tagger(lessons, NOTHING, TaggerConfig(k=1, corpus=False), key=KEY).to_bytes()


@pytest.mark.parametrize(("bearers", "is_read"), [(2, False), (3, False), (4, False), (5, True)])
@pytest.mark.parametrize("text", ["Visto {} oggi.", "{}: sta bene."])
def test_a_name_of_k_individuals_is_read_by_its_form_alone(text: str, bearers: int, is_read: bool) -> None:
    """And so is one of fewer than 2k - 1: who asks the tagger cannot tell one of exactly k from one of none."""

    def taught(name: str) -> bytes:
        rows = notes(25).to_pylist()
        for row in rows[:bearers]:
            at = text.index("{") + len(row["text"])
            row["text"] += text.format(name)
            row["spans"].append({"start": at, "end": at + len(name), "label": "NAME"})
        return learn_tagger(pa.Table.from_pylist(rows, schema=LESSONS), NOTHING, SETTINGS, key=KEY).to_bytes()

    assert (taught("Zuvxo") != taught("Abelt")) == is_read


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Ho visto Zuvxo, in corsia.", "Zuvxo"),
        ("Nome:Zuvxo in corsia.", "Zuvxo"),
        ("La moglie di D'Abelt riferisce.", "D'Abelt"),
        ("Ieri sera.Zuvxo in corsia.", "Zuvxo"),
        ("La moglie di l’Abelt riferisce.", "l’Abelt"),
        ('Ricoverato in Casa "Zuvxo" ieri.', 'Casa "Zuvxo"'),
        ("Ricoverato in Casa (Zuvxo) ieri.", "Casa (Zuvxo)"),
        ("Ricoverato (in Casa Zuvxo) ieri.", "Casa Zuvxo"),
    ],
)
def test_a_span_ends_where_its_words_do(text: str, found: str) -> None:
    """Signs within a written word part it, and what is opened within a span is closed there."""
    rows = [
        {"individual_id": str(number), "text": text, "weight": 1.0,
         "spans": [{"start": text.index(found), "end": text.index(found) + len(found), "label": "NAME"}]}
        for number in range(20)
    ]  # fmt: skip
    tagger = learn_tagger(pa.Table.from_pylist(rows, schema=LESSONS), NOTHING, SETTINGS, key=KEY)
    (span,) = tagger.find(pa.array([text], pa.large_string()), NOTHING).to_pylist()
    assert text[span["start"] : span["end"]] == found


def test_a_feature_counts_individuals_and_not_documents() -> None:
    """A word that one individual has in many notes is not read."""
    lessons = notes(25)
    crowd = pa.concat_tables([lessons, *[lessons.slice(0, 1)] * 5])
    words = [learn_tagger(table, NOTHING, TaggerConfig(k=2, corpus=False), key=KEY) for table in (lessons, crowd)]
    assert words[0].core.tables()[0].tolist() == words[1].core.tables()[0].tolist()


def test_the_file_holds_no_word_and_is_read_back(tagger, tmp_path: Path) -> None:
    path = tmp_path / "tagger.parquet"
    tagger.write(path)
    assert path.stat().st_mode & 0o077 == 0
    content = path.read_bytes() + str(pq.read_table(path).to_pydict()).encode()
    words = {word for text in notes(25).column("text").to_pylist() for word in re.findall(r"\w{4,}", text)}
    assert len(words) > 60
    assert not [word for word in words if word.encode() in content or word.lower().encode() in content]
    again, texts = read_tagger(path, KEY), notes(50, seed=4).column("text").combine_chunks()
    assert again.find(texts, NOTHING).equals(tagger.find(texts, NOTHING))
    assert again.to_bytes() == tagger.to_bytes()


def changed_header(path: Path, **values) -> None:
    table = pq.read_table(path)
    header = json.loads(table.schema.metadata[b"reticent"]) | values
    pq.write_table(table.replace_schema_metadata({"reticent": json.dumps(header)}), path)


def changed_rows(path: Path, stays, keys=lambda key: True) -> None:
    """Leave out rows of features, by row and number of rows, as one who writes the digest anew may."""
    table = pq.read_table(path)
    rows, hashes = table.column("row").to_numpy(), table.column("hash").to_numpy()
    of_key = dict(zip(*np.unique(hashes, return_counts=True), strict=True))
    left = [stays(row, of_key[key]) or not keys(key) for row, key in zip(rows, hashes, strict=True)]
    table = table.filter(pa.array(left))
    pq.write_table(table, path)
    found, slots = np.unique(table.column("hash").to_numpy(), return_counts=True)
    weights = np.frombuffer(b"".join(table.column("weights").to_pylist()), dtype="<i2")
    transitions = np.array(json.loads(table.schema.metadata[b"reticent"])["transitions"], dtype=np.int16)
    changed_header(path, digest=_digest_arrays(found, slots.astype(np.uint8), weights, transitions))


@pytest.mark.parametrize(
    ("spoil", "key", "message"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-200]), KEY, "not a readable tagger"),
        (lambda path: path.write_bytes(b""), KEY, "not a readable tagger"),
        (lambda path: path.unlink(), KEY, "not a readable tagger"),
        (lambda path: changed_header(path, format="reticent.learned/0"), KEY, "another version"),
        (lambda path: changed_header(path, transitions=[0] * 288), KEY, "not as it was written"),
        (lambda path: changed_header(path, surprise=1), KEY, "header cannot be read"),
        (lambda path: changed_header(path, config={}), KEY, "header cannot be read"),
        (lambda path: changed_header(path, config={"affixes": True}), KEY, "header cannot be read"),
        (lambda path: changed_header(path, lean="x"), KEY, "header cannot be read"),
        (lambda path: changed_header(path, hints=3), KEY, "header cannot be read"),
        (lambda path: changed_header(path, categories=["NAME", "NAME"]), KEY, "header cannot be read"),
        (lambda path: changed_header(path, scale="much"), KEY, "damaged tagger: "),
        (lambda path: None, bytes(16), "another key"),
        (lambda path: changed_rows(path, lambda row, _: row != 1), KEY, "rows of a feature are missing"),
        (lambda path: changed_rows(path, lambda row, num: row < 1 or num == 1), KEY, "fewer rows than its kind"),
    ],
)  # fmt: skip
def test_a_spoilt_tagger_is_refused(tagger, tmp_path: Path, spoil, key: bytes, message: str) -> None:
    path = tmp_path / "tagger.parquet"
    tagger.write(path)
    spoil(path)
    with pytest.raises(ArtifactError, match=f"^{re.escape(str(path))}: .*{message}"):
        read_tagger(path, key)


def test_a_feature_with_rows_that_no_kind_has_is_refused() -> None:
    tables = np.array([1], np.uint64), np.array([4], np.uint8), np.zeros(4 * 32, np.int16), 1.0, np.zeros(288, np.int16)
    with pytest.raises(ArtifactError, match="has 4 rows, which no kind of feature has"):
        _rust.Tagger(KEY, *tables, num_lanes=2, affixes=False)


def test_a_word_with_too_few_rows_is_not_known(tagger, tmp_path: Path) -> None:
    """Its kind is not in the file, so nothing refuses it; but no rows of another feature are read for it."""
    path, texts = tmp_path / "tagger.parquet", notes(30, seed=5).column("text").combine_chunks()
    tagger.write(path)
    whole, hashes = path.read_bytes(), [row["hash"] for row in pq.read_table(path).to_pylist() if row["row"] == 2]
    num = 0
    for cut in hashes:
        found = []
        for least in (1, 0):  # rows that are left of it
            path.write_bytes(whole)
            changed_rows(path, lambda row, _, least=least: row < least, keys=lambda key, cut=cut: key == cut)
            with suppress(ArtifactError):  # its kind can be told
                found.append(read_tagger(path, KEY).find(texts, NOTHING))
        if len(found) == 2:
            assert found[0].equals(found[1])
            num += 1
    assert num > 20


def test_finds_that_lie_over_one_another_cost_no_more_for_each(tagger) -> None:
    def seconds(num: int) -> float:
        texts, ends = pa.array(["Zuvxo " * num]), np.arange(5, 6 * num, 6, dtype=np.int32)
        hints = (np.array([0, num]), np.zeros(num, np.int32), ends, np.zeros(num, np.uint32))
        return processor_seconds(lambda: tagger.core.find(texts, hints, ["rules:NAME"], num_threads=1))

    assert seconds(32_000) < 20 * seconds(4_000)


def test_a_find_of_no_detector_is_refused(tagger) -> None:
    hints = (np.array([0, 1]), np.array([3], np.int32), np.array([8], np.int32), np.array([2**32 - 1], np.uint32))
    with pytest.raises(CorpusError, match="the number of one of the names"):
        tagger.core.find(pa.array(["Ho visto Zuvxo."]), hints, ["rules:NAME"])


def with_spans(num: int, spans: list) -> pa.Table:
    return notes(num).set_column(2, LESSONS.field("spans"), pa.array([spans] * num, LESSONS.field("spans").type))


@pytest.mark.parametrize(
    ("lessons", "message"),
    [
        (notes(1), "two individuals"),
        (with_spans(30, []), "nothing is marked"),
        (with_spans(MIN_EXAMPLES - 1, [{"start": 0, "end": 2, "label": "DATE"}]), "DATE 9"),
        (with_spans(20, [{"start": 0, "end": 5000, "label": "NAME"}]), "0..5000"),
    ],
)
def test_lessons_that_teach_nothing_are_refused(lessons: pa.Table, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        learn_tagger(lessons, NOTHING, SETTINGS, key=KEY)


def test_a_category_of_few_marks_is_left_out_and_not_learned_as_none() -> None:
    lessons = notes(25).to_pylist()
    for row in lessons[:4]:
        row["spans"].append({"start": 0, "end": 2, "label": "DATE"})
    few = learn_tagger(pa.Table.from_pylist(lessons, schema=LESSONS), NOTHING, SETTINGS, key=KEY)
    assert few.header.categories == ["NAME"]


def test_it_reads_what_the_detectors_beside_it_find(tmp_path: Path) -> None:
    """A find of another detector is a feature: words that nothing else tells apart are learned by it."""
    lessons = notes(40)
    spans = lessons.column("spans").to_pylist()
    told = [row % 2 == 0 for row in range(40)]
    rows = [
        {"document": row, **span, "score": 1.0, "detector": "rules"}
        for row in range(40)
        for span in spans[row]
        if told[row]
    ]
    found = pa.Table.from_pylist(rows, schema=FOUND)
    marks = pa.array([own if told[row] else [] for row, own in enumerate(spans)], LESSONS.field("spans").type)
    lessons = lessons.set_column(2, LESSONS.field("spans"), marks)
    tagger = learn_tagger(lessons, found, SETTINGS, key=KEY, detectors=["rules"])
    texts = lessons.column("text").combine_chunks()
    assert tagger.find(texts, found).num_rows > 50
    assert tagger.find(texts, NOTHING).num_rows < 5
    tagger.write(tmp_path / "t.parquet")
    (tmp_path / "key").write_bytes(KEY * 2)
    detector = LearnedDetector(tmp_path / "t.parquet", key=tmp_path / "key")
    with pytest.raises(PolicyError, match="taught beside rules"):
        detect_spans(
            lessons.select(["individual_id", "text"]).add_column(0, "doc_id", [list("abcd" * 10)]), [detector], tmp_path
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "something to learn from"),
        ({"certain": True, "weights": {"people": 1.0}}, "unknown 'people'"),
        ({"certain": True, "weights": {"marks": 0.0}}, "over 0"),
        ({"teacher": "fast", "documents": 1}, "documents"),
        ({"teacher": "fast", "precision": 1.0}, "precision"),
    ],
)
def test_idle_settings_are_refused(options: dict, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        LearnConfig(**options)


def test_words_are_those_that_supports_are_counted_of(tagger) -> None:
    """Spans begin and end where words of the index do, also where a text has other scripts and marks."""
    texts = pa.array(
        ["Ho visto Zoë\u0301-Łukasz in corsia oggi. La moglie di محمد riferisce febbre.", "", "\0 12/05/2020"]
    )
    words = _rust.segment(texts)
    starts, ends = words.char_spans(texts)
    for row in tagger.with_bias(3.0).find(texts, NOTHING).to_pylist():
        own = slice(words.doc_offsets[row["document"]], words.doc_offsets[row["document"] + 1])
        assert row["start"] in starts[own]
        assert row["end"] in ends[own]
    assert np.count_nonzero(starts) > 5
