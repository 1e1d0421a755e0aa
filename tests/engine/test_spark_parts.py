"""What a part does on Spark, without a session."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from reticent.engine.detect.union import detect_spans
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
