"""The benchmark of detection: its corpora, and that it shows what was measured and refuses what cannot be."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from benchmarks import detection, detection_speed
from benchmarks.detection_corpora import CORPORA, _body, read_case


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    return detection.measure("synth_en", "toy")


@pytest.mark.heavy
def test_a_generated_corpus_is_measured_with_what_is_installed(measured: dict[str, Any]) -> None:
    assert {"rules", "records"} <= set(measured["detectors"])
    assert set(measured["absent"].values()) <= {"not installed"}
    detection._check(measured)
    assert measured["goal"]["recall"]["covered"]["value"] >= detection.NAMES_GOAL
    assert set(measured["unions"]) >= {"ours", "all", "fast"}
    covered = {name: measured["unions"][name]["covered"]["overall"]["value"] for name in ("ours", "fast")}
    assert covered["fast"] >= covered["ours"]


@pytest.mark.heavy
def test_figures_that_contradict_each_other_are_refused(measured: dict[str, Any]) -> None:
    wrong = copy.deepcopy(measured)
    wrong["missed_by_all"]["NAME"] = wrong["missed_by_all"].get("NAME", 0) + 30
    with pytest.raises(AssertionError):
        detection._check(wrong)
    wrong = copy.deepcopy(measured)
    wrong["alone"]["rules"]["covered"]["overall"]["value"] = 1.1
    with pytest.raises(AssertionError, match="a union finds less"):
        detection._check(wrong)


@pytest.mark.heavy
def test_the_tables_show_detectors_goals_and_what_is_not_installed(measured: dict[str, Any]) -> None:
    shown = detection.detection_tables({"corpora": {"synth_en": measured | {"absent": {"presidio": "not installed"}}}})
    for words in (
        "| records |",
        "| *ours* |",
        "| en | synth_en | *fast* |",
        "| presidio |",
        "not installed",
        "| synth_en | names of the individuals",
    ):
        assert words in shown


def test_a_report_is_cut_into_header_and_body() -> None:
    header = "Datos del paciente.\nNombre:  Ana.\nCP: 28016.\n"
    body = "Paciente de 70 años con dolor, " * 8 + "\nEvoluciona bien.\n"
    assert _body(header + body + "Remitido por: Dr. X") == (len(header), len(header + body))
    assert _body(header) == (len(header), len(header))
    assert _body("") == (0, 0)


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


@pytest.mark.heavy
def test_speed_runs_and_says_which_peer_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = detection_speed.run("toy")
    assert found["throughput"]["rows"]["rules"]["mb_per_second"]["median"] > 0
    for peer in found["peers"].values():
        assert peer["status"] in ("measured", "not installed")
    assert "rules" in detection_speed.speed_tables(found)
