"""Propagation: what was found once is found wherever else its label lets it spread, against a brute-force oracle."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.drawing import examples
from fixtures.processor_time import processor_seconds
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent import _rust
from reticent.core.errors import ArtifactError, CorpusError
from reticent.engine.corpus import Corpus, open_corpus
from reticent.engine.detect.common import count_common_words
from reticent.engine.detect.propagate import propagate
from reticent.engine.protect import Policy
from reticent.engine.schema import SPANS

Row = tuple[int, str, str]  # document, text of the span, label


def spread(
    folder: Path, documents: list[tuple[str, str]], hits: list[tuple[int, int, int, str]], **options: Any
) -> tuple[list[Row], dict[str, int]]:
    """Spans added to the hits (document, start, end, label) of (individual, text) documents, and the counts."""
    folder.mkdir(exist_ok=True)
    texts = [text for _, text in documents]
    columns = {"doc_id": [f"d{i}" for i in range(len(texts))], "individual_id": [unit for unit, _ in documents]}
    pq.write_table(pa.table({**columns, "text": texts}), folder / "d.parquet")
    rows = [
        {"document": d, "doc_id": f"d{d}", "start": a, "end": b, "label": label, "detector": "gold", "score": 1.0}
        for d, a, b, label in sorted(hits)
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=SPANS), folder / "in.parquet", row_group_size=3)
    counts = propagate(open_corpus(folder / "d.parquet"), folder / "in.parquet", folder / "out.parquet", **options)
    table = pq.read_table(folder / "out.parquet")
    assert table.schema.equals(SPANS)
    found = table.to_pylist()
    order = [(r["document"], r["start"], r["end"], r["label"], r["detector"]) for r in found]
    assert order == sorted(order)
    assert [r for r in found if r["detector"] == "gold"] == sorted(rows, key=lambda r: order_of(r))
    added = [r for r in found if r["detector"] != "gold"]
    assert all(r["detector"] == "propagated:gold" and r["doc_id"] == f"d{r['document']}" for r in added)
    assert counts["spans"] == len(found)
    assert counts["propagated"] == len(added)
    return [(r["document"], texts[r["document"]][r["start"] : r["end"]], r["label"]) for r in added], counts


def order_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["document"], row["start"], row["end"], row["label"]


def hit(documents: list[tuple[str, str]], document: int, text: str, label: str) -> tuple[int, int, int, str]:
    start = documents[document][1].index(text)
    return document, start, start + len(text), label


DOCUMENTS = [
    ("a", "Seen: Zoé Roselstone of 12 Elm Lane, 12/05/2020, tel 06 12 34"),
    ("a", "mrs. ROSELSTONE (zoe) of 12 elm lane, 12/05/2020"),
    ("b", "We met Zoe\u0301 Roselstone and Zoé, 12 Elm Lane, 06-12-34, 12/05/2020, Rosel\u00adstone"),
]


@pytest.mark.parametrize(
    ("text", "label", "expected"),
    [
        ("Zoé Roselstone", "NAME", [(1, "ROSELSTONE"), (1, "zoe"), (2, "Zoe\u0301 Roselstone")]),
        ("Roselstone", "NAME", [(1, "ROSELSTONE"), (2, "Roselstone"), (2, "Rosel\u00adstone")]),
        ("12 Elm Lane", "ADDRESS", [(1, "12 elm lane")]),  # no farther than the individual
        ("12/05/2020", "DATE", []),  # nowhere
        ("12/05/2020", "FECHAS", []),  # as its category
        ("06 12 34", "PHONE", [(2, "06-12-34")]),
        ("12", "ID", []),  # too short to say anything
    ],
)
def test_labels_say_how_far_a_surface_spreads(
    tmp_path: Path, text: str, label: str, expected: list[tuple[int, str]]
) -> None:
    added, _ = spread(tmp_path, DOCUMENTS, [hit(DOCUMENTS, 0, text, label)])
    assert added == [(document, piece, label) for document, piece in expected]


def test_scopes_of_the_job_come_first(tmp_path: Path) -> None:
    hits = [hit(DOCUMENTS, 0, "12/05/2020", "DATE"), hit(DOCUMENTS, 0, "Zoé Roselstone", "NAME")]
    added, _ = spread(tmp_path, DOCUMENTS, hits, scopes={"DATE": "corpus", "NAME": "occurrence"})
    assert added == [(1, "12/05/2020", "DATE"), (2, "12/05/2020", "DATE")]


def test_short_and_common_surfaces_do_not_spread_and_are_counted(tmp_path: Path) -> None:
    documents = [
        ("a", "Seen by Will Li, room 123, we will do as he will say"),
        ("b", "Will and Li of 123, but Will Li will"),
    ]
    hits = [hit(documents, 0, *what) for what in (("Will", "NAME"), ("Li", "NAME"), ("123", "ID"))]
    added, counts = spread(tmp_path, documents, hits)
    assert added == []
    assert (counts["surfaces"], counts["short"], counts["common"]) == (0, 2, 1)
    added, _ = spread(tmp_path, documents, [hit(documents, 0, "Will Li", "NAME")])
    assert added == [(1, "Will Li", "NAME")]


def test_words_of_every_tenth_document_do_not_spread(tmp_path: Path) -> None:
    documents = [("a", "SMITH"), *((f"p{i}", "SMITH AND RAREY") for i in range(21)), ("b", "RAREONE")]
    hits = [hit(documents, 0, "SMITH", "NAME"), hit(documents, 22, "RAREONE", "NAME")]
    assert spread(tmp_path, documents, hits)[1]["common"] == 1
    assert spread(tmp_path, documents[:19], hits[:1])[1]["propagated"] == 18


def test_spans_that_cut_words_do_not_spread(tmp_path: Path) -> None:
    documents = [("a", "Roselstone"), ("b", "Rosel stone Roselstone")]
    assert spread(tmp_path, documents, [(0, 0, 5, "NAME"), (0, 5, 10, "NAME")])[0] == []


def test_no_span_gives_no_span(tmp_path: Path) -> None:
    added, counts = spread(tmp_path, DOCUMENTS, [])
    assert added == []
    assert counts == {"spans": 0, "propagated": 0, "surfaces": 0, "short": 0, "common": 0}


def test_propagating_again_adds_nothing(tmp_path: Path) -> None:
    spread(tmp_path, DOCUMENTS, [hit(DOCUMENTS, 0, "Roselstone", "NAME")])
    corpus = open_corpus(tmp_path / "d.parquet")
    assert propagate(corpus, tmp_path / "out.parquet", tmp_path / "again.parquet")["propagated"] == 0
    assert pq.read_table(tmp_path / "again.parquet") == pq.read_table(tmp_path / "out.parquet")


WORDS = ["ANN", "Ann", "LEE", "Bo", "Marín", "MARIN", "12", "1234", "O'NEIL", "VAN"]


def is_abbreviation(text: str, start: int, end: int) -> bool:
    """Return whether a short word is in capitals alone in a text of one line that has case."""
    capitals, small = (len(re.findall(f"[{letters}]", text)) for letters in ("A-Z", "a-z"))
    return small >= capitals > 0 and re.fullmatch("[A-Z]{2,5}", text[start:end]) is not None


def oracle(documents: list[tuple[str, str]], hits: list[tuple[int, int, int, str]]) -> set[tuple[int, int, int, str]]:
    """Every surface at every place, from the definition."""

    def cut(text: str) -> list[tuple[str, int, int]]:
        folded = text.replace("í", "i").lower()  # same length
        return [(m.group(), m.start(), m.end()) for m in re.finditer(r"[a-z0-9]+", folded)]

    def gaps(text: str, here: list[tuple[str, int, int]]) -> list[str]:
        between = [text[a[2] : b[1]] for a, b in itertools.pairwise(here)]
        return [" " if set(gap) <= set(" '-.,") else gap for gap in between]

    surfaces: set[tuple[tuple[str, ...], tuple[str, ...], str, str | None]] = set()
    owners: set[tuple[tuple[str, ...], str, str]] = set()
    for document, start, end, label in hits:
        unit, text = documents[document]
        scope = Policy().scope_of(label)
        here = [piece for piece in cut(text) if piece[2] > start and piece[1] < end]
        if scope == "occurrence" or not here or here[0][1] < start or here[-1][2] > end:
            continue
        words = tuple(word for word, _, _ in here)
        surfaces.add((words, tuple(gaps(text, here)), label, unit if scope == "individual" else None))
        owners.add((words, label, unit))
        if label == "NAME" and len(here) > 1:
            strong = [word for word in words if len(word) >= 3 and word.isalpha() and word not in ("van",)]
            surfaces |= {((word,), (), label, unit) for word in strong}
            owners |= {((word,), label, unit) for word in strong}
    added = set()
    for document, (unit, text) in enumerate(documents):
        pieces = cut(text)
        places = set()
        for words, between, label, only in surfaces:
            if only not in (None, unit) or len("".join(words)) < (4 if "".join(words).isdigit() else 3):
                continue
            for first in range(len(pieces) - len(words) + 1):
                here = pieces[first : first + len(words)]
                abbreviates = len(words) == 1 and is_abbreviation(text, here[0][1], here[0][2])
                if abbreviates and (words, label, unit) not in owners:
                    continue
                if tuple(word for word, _, _ in here) == words and tuple(gaps(text, here)) == between:
                    places.add((here[0][1], here[-1][2], label))
        known = [(a, b, label) for d, a, b, label in hits if d == document]
        for a, b, label in sorted(places, key=lambda place: (place[0], -place[1])):
            if not any(own == label and x <= a and b <= y for x, y, own in known):
                known.append((a, b, label))
                added.add((document, a, b, label))
    return added


@settings(max_examples=examples(150))
@given(st.data())
def test_propagation_matches_oracle(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    pieces = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5)
    joined = st.builds(lambda words, sign: sign.join(words), pieces, st.sampled_from([" ", ", ", " / "]))
    documents = [(unit, data.draw(joined)) for unit in ("a", "a", "b", "c")]
    hits = set()
    for _ in range(data.draw(st.integers(0, 4))):
        document = data.draw(st.integers(0, 3))
        length = len(documents[document][1])
        start = data.draw(st.integers(0, length - 1))
        end = data.draw(st.integers(start + 1, length))
        hits.add((document, start, end, data.draw(st.sampled_from(["NAME", "ADDRESS", "DATE", "ID"]))))
    folder = tmp_path_factory.mktemp("spread")
    spread(folder, documents, sorted(hits))
    rows = pq.read_table(folder / "out.parquet").to_pylist()
    added = {(r["document"], r["start"], r["end"], r["label"]) for r in rows if r["detector"] != "gold"}
    assert added == oracle(documents, sorted(hits))


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("The ANA test was negative for her.", 0),  # a test in the note of another
        ("THE ANA TEST\nwas negative for her.", 1),  # a line without case says nothing
        ("So Ana came for a test.", 1),
        ("Vive en la calle Ana, 3.", 0),  # of a street, a hospital, a thing, a firm
        ("Dans le service de l'hôpital Ana il va.", 0),
        ("He has the Ana-Roy catheter now.", 0),
        ("So they saw Rosa & Petit GmbH.", 1),  # a firm that bears the name
        ("It was of a rosa colour and a rosa hue.", 0),  # the corpus has such a word
        ("then rosa came\nAnd So She Left For It all.", 1),
        ("In the Surgery of the mouth and jaw.", 0),  # a department, found as a name elsewhere
        ("Then it was the surgery of the mouth and jaw.", 0),
    ],
)
def test_case_and_common_words_say_where_a_name_of_another_cannot_stand(tmp_path: Path, text: str, places: int) -> None:
    first = "Seen by Ana and Rosa of the Surgery of the mouth and jaw today. Then Rosa and Ana left; Rosa, Ana."
    documents = [
        ("a", first),
        ("b", text),
        ("c", "It was of a rosa hue, or rosa: surgery, mouth, jaw, surgery, mouth, jaw, surgery."),
    ]
    hits = [hit(documents, 0, word, "NAME") for word in ("Ana", "Rosa", "Surgery of the mouth and jaw")]
    found, _ = spread(tmp_path, documents, hits)
    assert sum(document == 1 for document, _, _ in found) == places


def test_a_short_name_in_capitals_is_found_in_the_notes_of_its_own_individual(tmp_path: Path) -> None:
    documents = [("a", "Seen by Ana today."), ("a", "The name ANA is on the card of the patient.")]
    found, _ = spread(tmp_path, documents, [hit(documents, 0, "Ana", "NAME")])
    assert (1, "ANA", "NAME") in found


def test_spans_do_not_depend_on_batches_or_threads(tmp_path: Path) -> None:
    documents = [(f"p{i % 5}", f"{'é😀' * (i % 3)} NAME{chr(97 + i % 7)}X and R{i % 4}Q{i % 3}0") for i in range(60)]
    hits = [hit(documents, i, documents[i][1].split()[-3], "NAME") for i in range(0, 60, 9)]
    once, _ = spread(tmp_path, documents, hits, num_threads=1)
    assert len(once) > 30
    assert spread(tmp_path, documents, hits, num_threads=2)[0] == once
    corpus = open_corpus(tmp_path / "d.parquet")

    class Batched:
        def batches(self, columns: tuple[str, ...]) -> Any:
            return corpus.batches(columns=columns, batch_rows=7)

    small: Corpus = Batched()  # type: ignore[assignment]
    propagate(small, tmp_path / "in.parquet", tmp_path / "small.parquet")
    assert pq.read_table(tmp_path / "small.parquet") == pq.read_table(tmp_path / "out.parquet")


def test_spans_of_other_texts_and_files_that_are_none_are_errors(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"span 0 is 0\.\.999 in a text of 61 characters"):
        spread(tmp_path, DOCUMENTS, [(0, 0, 999, "NAME")])
    (tmp_path / "x.parquet").write_bytes(b"no table")
    with pytest.raises(ArtifactError, match=r"x\.parquet: not a readable table of spans"):
        propagate(open_corpus(tmp_path / "d.parquet"), tmp_path / "x.parquet", tmp_path / "y.parquet")
    surfaces, none = _rust.Surfaces(), np.zeros(0, dtype=np.uint32)
    empty = (np.zeros(1, dtype=np.int64), none.astype(np.int32), none.astype(np.int32), none)
    with pytest.raises(CorpusError, match="do not match"):
        surfaces.find(pa.array(["a"]), np.zeros(1, dtype=np.uint32), *empty, common=_rust.CommonWords())


@pytest.mark.parametrize(
    ("individual", "text", "places"),
    [
        ("b", "So the young man came.", 0),  # in small letters only where it is the individual's own name
        ("b", "she is young\nSo She Left.", 0),  # the corpus writes the word small
        ("b", "hi dr. young\nSo She Left.", 1),
        ("a", "So young came back.", 1),
        ("a", "So write to young@mail.example now.", 0),
        ("b", "So Young came back.", 1),
        ("b", "Then Young de Compostela was seen.", 0),
        ("a", "Then Young de Compostela was seen.", 1),
    ],
)
def test_a_name_of_another_is_not_a_word_in_small_letters_nor_goes_on(
    tmp_path: Path, individual: str, text: str, places: int
) -> None:
    documents = [
        ("a", "Seen by Mrs. Young today; Young left."),
        (individual, text),
        ("c", "So fairly young, young she was."),
    ]
    found, _ = spread(tmp_path, documents[: 2 if individual == "a" else 3], [hit(documents, 0, "Young", "NAME")])
    assert sum(document == 1 for document, _, _ in found) == places


def test_a_name_typed_small_again_and_again_in_one_document_is_no_word(tmp_path: Path) -> None:
    documents = [("a", "hi anna\nso anna how is it anna\nanna , anna\nSo She Came And Left."), ("b", "So She Came.")]
    found, _ = spread(tmp_path, documents, [hit(documents, 0, "anna", "NAME")])
    assert len(found) == 4


def test_words_that_were_counted_already_give_the_same_spans(tmp_path: Path) -> None:
    rare = [("c", "Then young and able, the young and the able came; So young, so able.")]
    documents = [("a", "Seen by Mrs. Young and Mr. Able today."), ("b", "Then Young and Able left."), *rare * 3]
    hits = [hit(documents, 0, name, "NAME") for name in ("Young", "Able")]
    counted_here = spread(tmp_path, documents, hits)
    words = count_common_words(open_corpus(tmp_path / "d.parquet"))
    assert spread(tmp_path, documents, hits, common=words) == counted_here
    assert counted_here[1]["common"] == 2
    none = count_common_words(open_corpus(tmp_path / "d.parquet"), num_documents=0)
    assert spread(tmp_path, documents, hits, common=none)[1]["common"] == 0  # they are the words that it goes by


def test_a_first_name_of_many_costs_no_more_for_each(tmp_path: Path) -> None:
    """Time by the number of surfaces that begin with one word, in texts that are full of it."""

    def seconds(num: int) -> float:
        documents = [(f"p{number}", f"So Ann Roselstone{number} came, and Ann left. " * 8) for number in range(num)]
        hits = [hit(documents, row, f"Ann Roselstone{row}", "NAME") for row in range(num)]
        spread(tmp_path, documents, hits)
        corpus, paths = open_corpus(tmp_path / "d.parquet"), (tmp_path / "in.parquet", tmp_path / "out.parquet")
        return processor_seconds(lambda: propagate(corpus, *paths, num_threads=1))

    assert seconds(8000) < 20 * seconds(1000)


def test_many_names_in_one_document_cost_no_more_for_each() -> None:
    def seconds(num: int) -> float:
        names = [f"Ann Roselstone{number}" for number in range(num)]
        starts = np.cumsum([0, *(len(name) + 2 for name in names)])[:-1].astype(np.int32)
        ends = starts + np.array([len(name) for name in names], dtype=np.int32)
        texts, unit = pa.array([", ".join(names)], pa.large_string()), np.zeros(1, dtype=np.uint32)
        spans = (np.array([0, num]), starts, ends, np.zeros(num, dtype=np.uint32))
        common, surfaces = _rust.CommonWords(), _rust.Surfaces()
        in_corpus, is_name = np.full(num, 2, dtype=np.uint8), np.ones(num, dtype=np.uint8)
        surfaces.add(texts, unit, *spans, in_corpus, is_name, spans[-1])
        assert surfaces.finish(common)[0] > num
        return processor_seconds(lambda: surfaces.find(texts, unit, *spans, common=common, num_threads=1))

    assert seconds(16_000) < 20 * seconds(2_000)
