"""The corpora of the fixtures: what is read of them, and where a report ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from fixtures.corpora import CORPORA, body_of, read_case


def test_a_report_is_cut_into_header_and_body() -> None:
    header = "Datos del paciente.\nNombre:  Ana.\nCP: 28016.\n"
    body = "Paciente de 70 años con dolor, " * 8 + "\nEvoluciona bien.\n"
    assert body_of(header + body + "Remitido por: Dr. X") == (len(header), len(header + body))
    assert body_of(header) == (len(header), len(header))
    assert body_of("") == (0, 0)


@pytest.mark.corpus
@pytest.mark.parametrize("name", [name for name, (folder, _) in CORPORA.items() if folder is not None])
def test_every_corpus_is_read_with_spans_that_fit(name: str, data: Path) -> None:
    case = read_case(name, 20)
    table = case.documents
    assert 0 < len(table) <= 20
    if case.gold is not None:
        lengths = [len(text) for text in table.column("text").to_pylist()]
        spans = table.column(case.gold).to_pylist()
        assert any(spans)
        assert all(0 <= s["start"] < s["end"] <= n for n, each in zip(lengths, spans, strict=True) for s in each)


@pytest.mark.corpus
def test_header_and_body_share_the_marks_of_meddocan(data: Path) -> None:
    def marks(name: str) -> int:
        return sum(map(len, read_case(name).documents.column("spans").to_pylist()))

    whole, header, body = (marks(name) for name in ("meddocan", "meddocan_header", "meddocan_body"))
    assert whole - 5 <= header + body <= whole  # a mark across the cut is in neither
    assert min(header, body) > 1000
