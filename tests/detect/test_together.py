"""One pass for records and gazetteer finds what each finds alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fixtures.drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.engine.detect.common import learn_common_words
from reticent.engine.detect.gazetteer import GazetteerDetector
from reticent.engine.detect.records import RecordsDetector
from reticent.engine.detect.rules import RulesDetector
from reticent.engine.detect.together import detect_together
from tests.detect.test_detectors import corpus_of

TEXTS = (
    "Mr. Brown was seen on 12/03/2019 by Dr. Will Young. Will he come? The brown spot grew.",
    "M&uuml;ller, Jos=C3=A9: T=E9l. 06 12 34 56 78, n\u00e9 le 3 mai 1950 \u00e0 Saint-\u00c9lie",
    "D U P O N T Marie, NHC: 123456, Hauptstra\u00dfe 12, 75012 Paris",
    "",
    "mailto:a.b@example.org 2001:db8::1 \u0661\u0662/\u0663/\u0661\u0669\u0669\u0669 Du\u00adpont",
)


def the_two(folder: Path, surface: str = "fold") -> list[Any]:
    (folder / "names.txt").write_text("Young\nBrown\nWill\nM\u00fcller\nSaint-\u00c9lie\n", encoding="utf-8")
    (folder / "records.csv").write_text(
        "individual_id,last_name,birth_date\np0,Brown,2019-03-12\np2,Dupont,1950-05-03\np4,Dupont,1999-03-12\n",
        encoding="utf-8",
    )
    return [
        GazetteerDetector({"NAME": folder / "names.txt"}, surface=surface),
        RecordsDetector(folder / "records.csv"),
    ]


def batch_of(texts: Any) -> pa.RecordBatch:
    ids = [f"p{number % 5}" for number in range(len(texts))]
    return pa.record_batch({"individual_id": ids, "text": pa.array(texts, pa.large_string())})


@pytest.mark.parametrize("surface", ["fold", "casefold", "exact"])
def test_each_finds_together_what_it_finds_alone(tmp_path: Path, surface: str) -> None:
    detectors = the_two(tmp_path, surface)
    learn_common_words(corpus_of(tmp_path / "d.parquet", TEXTS), detectors)
    batch = batch_of(TEXTS * 3)
    together = detect_together(detectors, batch)
    assert sorted(together) == [0, 1]
    for place, detector in enumerate(detectors):
        assert together[place].num_rows > 0
        assert together[place].equals(detector.detect(batch)), detector.name


@settings(max_examples=examples(60))
@given(
    st.lists(
        st.lists(
            st.sampled_from(
                [
                    *" .,:\n\t=&%|'-",
                    "1",
                    "2019",
                    *TEXTS[0].split(),
                    *TEXTS[1].split(),
                    "\u00ad",
                    "J",
                    "Dupont",
                    "DUPONT",
                    "\u0661",
                    "\u00bd",
                    "\U0001f600",
                ]
            ),
            max_size=30,
        ).map("".join),
        max_size=12,
    )
)
def test_one_pass_matches_two(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    detectors = the_two(tmp_path_factory.mktemp("two"))
    batch = batch_of(texts)
    for place, found in detect_together(detectors, batch).items():
        assert found.equals(detectors[place].detect(batch))


def test_what_cannot_go_together_is_left_alone(tmp_path: Path) -> None:
    gazetteer, records = the_two(tmp_path)
    batch = batch_of(TEXTS)
    rules = RulesDetector()
    assert detect_together([rules, gazetteer], batch) == {}
    assert detect_together([rules, records], batch) == {}
    assert sorted(detect_together([gazetteer, rules, records], batch)) == [0, 2]
    assert detect_together([gazetteer, RecordsDetector(columns={"last_name": "surname"})], batch) == {}
    records.num_threads = 1
    assert detect_together([gazetteer, records], batch) == {}
