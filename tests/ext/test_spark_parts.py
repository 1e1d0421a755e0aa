"""What a part does on Spark, without a session."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from functools import reduce
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest

from reticent.core.errors import CorpusError
from reticent.engine.config import SplitConfig, Surface
from reticent.engine.detect.union import detect_spans
from reticent.engine.protect import Policy
from reticent.engine.schema import DIRECT, SPANS
from reticent.engine.sources.config import Columns
from reticent.ext.spark import spans as spans_of_parts
from reticent.ext.spark.documents import _Cut
from reticent.ext.spark.protection import Protection, _surfaces, individuals_of_part
from reticent.ext.spark.spans import _Detectors, corpus_of_part, detectors_of
from reticent.ext.spark.tables import decoded, encoded


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
    listed = _surfaces(how, 0, data, spans)
    assert listed is not None
    (found,) = how.flagged(data, b"", spans, encoded(listed.filter(pa.compute.field("everywhere") > 0)))
    starts, ends = found.words.char_spans(found.part.texts)
    rows = np.repeat(np.arange(2), np.diff(found.words.doc_offsets))
    flagged = np.flatnonzero(found.flags & DIRECT)
    assert [text[rows[word]][starts[word] : ends[word]] for word in flagged] == others


def test_individuals_of_a_part_have_the_households_and_sides_of_all() -> None:
    sides = pa.array([1, 0, 1], pa.int8())
    part = {"doc_id": ["d", "e", "f"], "individual_id": ["q", "p", "q"], "unit": [7, 7, 7], "side": sides}
    own = individuals_of_part(pa.table(part))
    assert own.units.tolist() == [7, 7]
    assert own.mask("heldout").tolist() == [False, True]


def test_records_are_found_by_ids_as_the_documents_are_read(tmp_path: Path) -> None:
    (tmp_path / "records.csv").write_text("individual_id,last_name\nP-007,Dupont\n")
    (tmp_path / "common.txt").write_text("the\n")
    options = {"records": {"table": str(tmp_path / "records.csv"), "common": str(tmp_path / "common.txt")}}

    def part(individual: str) -> bytes:
        return encoded(pa.table({"doc_id": ["d"], "individual_id": [individual], "text": ["by Dupont"]}))

    folded, stopping = (_Detectors(("records",), options, ids) for ids in ("fold", "stop"))
    assert decoded(folded.spans(part("p-7"))).column("start").to_pylist() == [3]
    assert folded.without_record("records.csv", part("p-7")) == (1, 0)
    assert stopping.without_record("records.csv", part("P-007")) == (1, 0)
    assert stopping.without_record("records.csv", part("other")) == (1, 1)
    assert stopping.without_record("records.csv", b"") == (0, 0)
    with pytest.raises(CorpusError, match=r"records\.csv column individual_id: 1 id\(s\) spelt otherwise"):
        stopping.without_record("records.csv", part("p-7"))


def test_records_of_nobody_are_refused_as_on_one_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "records.csv").write_text("individual_id,last_name\np1,Dupont\n")
    (tmp_path / "common.txt").write_text("the\n")
    options = {"records": {"table": str(tmp_path / "records.csv"), "common": str(tmp_path / "common.txt")}}

    class Dataset(list[Any]):
        """What a dataset of Spark does here, without Spark."""

        def mapPartitions(self, work: Callable[[Iterator[Any]], Iterable[Any]]) -> Dataset:
            return Dataset(found for element in self for found in work(iter([element])))

        def reduce(self, add: Callable[[Any, Any], Any]) -> Any:
            return reduce(add, self)

    def found(*individuals: str) -> int:
        parts = [encoded(pa.table({"doc_id": ["d"], "individual_id": [i], "text": ["by Dupont"]})) for i in individuals]
        documents: Any = SimpleNamespace(parts=Dataset([*parts, b""]), columns=Columns(individual_id="mrn"), ids="stop")
        spans: Any = spans_of_parts.detect(documents, ["records"], options).parts
        return sum(decoded(data).num_rows for data in spans if data)

    monkeypatch.setattr(spans_of_parts, "errors_of_tasks", nullcontext)
    monkeypatch.setattr(spans_of_parts, "persisted", lambda dataset: dataset)
    assert found("p1", "p2") == 1
    with pytest.raises(CorpusError, match=r"holds none of the 2 individuals of the documents \(their column mrn\)"):
        found("p2", "p3")


@pytest.mark.parametrize("blank", ["", " ", "\u00a0", "\u200b", "\x01"])
@pytest.mark.parametrize("column", ["doc_id", "individual_id", "household_id"])
@pytest.mark.parametrize("by_household", [True, False])
def test_ids_that_are_blank_on_one_machine_are_so_in_a_part(column: str, blank: str, by_household: bool) -> None:
    table = pa.table(
        {"doc_id": ["d", "e"], "individual_id": ["p", "q"], "household_id": ["h", "i"], "text": ["a", "b"]}
    )
    at = table.schema.names.index(column)
    split = SplitConfig(by="household" if by_household else "individual")
    cut = pickle.loads(pickle.dumps(_Cut(split, table.schema.names, None, "exact", ())))
    assert decoded(cut(table)).num_rows == 2
    with pytest.raises(CorpusError, match=f"column {column}: a document has none"):
        cut(table.set_column(at, column, pa.array(["x", blank])))
    without = table.set_column(at, column, pa.array(["x", None], pa.string()))
    if column == "household_id" and not by_household:
        assert decoded(cut(without)).num_rows == 2
    else:
        with pytest.raises(CorpusError, match=f"column {column}: a document has none"):
            cut(without)


def test_a_split_by_household_needs_its_column_as_on_one_machine() -> None:
    with pytest.raises(CorpusError, match="split by household needs the column household_id"):
        _Cut(SplitConfig(by="household"), ["doc_id", "individual_id", "text"], None, "exact", ())
