"""What a part does on Spark, without a session."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reticent import _rust
from reticent.engine.config import Surface
from reticent.engine.detect.union import detect_spans
from reticent.engine.protect import Policy
from reticent.engine.schema import DIRECT, SPANS
from reticent.engine.spark.exchange import Answers, encoded
from reticent.engine.spark.protection import Protection, _ListedTables
from reticent.engine.spark.spans import corpus_of_part, detectors_of


def test_a_list_that_was_changed_is_read_again_by_a_process_that_goes_on(tmp_path: Path) -> None:
    names, part = tmp_path / "names.txt", {"doc_id": ["d"], "individual_id": ["p"], "text": ["by Dupont and Martin"]}

    def found() -> list[int]:
        detectors = detectors_of(("gazetteer",), {"gazetteer": {"lists": {"NAME": str(names)}, "guard": False}})
        detect_spans(corpus_of_part(pa.table(part)), detectors, tmp_path)
        return list(pq.read_table(tmp_path / "spans.parquet")["start"].to_pylist())

    names.write_text("Dupont\n")
    assert found() == [3]
    names.write_text("Dupont\nMartin\n")
    assert found() == [3, 14]


@pytest.mark.parametrize(
    ("surface", "others"), [("exact", ["Dupont"]), ("casefold", ["Dupont", "DUPONT"]), ("fold", ["Dupont", "DUPONT"])]
)
def test_a_name_is_protected_everywhere_in_the_spellings_of_the_index(surface: Surface, others: list[str]) -> None:
    text = ["by Dupont", "by DUPONT, not Dupond"]
    part = {"doc_id": ["d", "e"], "individual_id": ["p", "q"], "text": text, "number": [0, 1], "individual": [0, 1]}
    data = encoded(pa.table({**part, "unit": [0, 1], "side": pa.array([0, 0], pa.int8())}))
    row = {"document": 0, "doc_id": "d", "start": 3, "end": 9, "label": "NAME", "detector": "x", "score": 1.0}
    spans = encoded(pa.Table.from_pylist([row], schema=SPANS))
    how = Protection(Policy(), None, surface, None)
    listed = _rust.merge_runs(_ListedTables(how)((data, spans))["surfaces"].cut([]), words=True, min_support=0)
    (found,) = how.flagged(data, b"", spans, {"surfaces": Answers(list(listed.answers), [0])})
    starts, ends = found.words.char_spans(found.part.texts)
    rows = np.repeat(np.arange(2), np.diff(found.words.doc_offsets))
    flagged = np.flatnonzero(found.flags & DIRECT)
    assert [text[rows[word]][starts[word] : ends[word]] for word in flagged] == others
