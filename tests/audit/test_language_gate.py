"""The gate that every job has: documents in a language that the rules do not know, of one in a hundred."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fixtures.audits import evidence, text_of, tiny_audit

from reticent.audit.judgement.rows import GateConfig
from reticent.audit.judgement.verdict import verdict, verdict_lines
from reticent.cli.show import print_summary


def audit(asked: int, unknown: int) -> dict[str, Any]:
    found = tiny_audit()
    found["corpus"]["other_languages"] = {"num_documents": asked, "num_unknown": unknown}
    return found


@pytest.mark.parametrize(
    ("asked", "unknown", "at_most", "outcomes"),
    [
        (1000, 10, None, []),
        (1000, 11, None, ["fail"]),
        (100, 100, None, ["fail"]),
        (100, 100, 1.0, ["pass"]),
        (1000, 5, 0.001, ["fail"]),
        (0, 0, None, []),
        (0, 0, 0.5, ["no power"]),
    ],
)
def test_gate_fails_over_its_share_and_needs_no_mention(
    asked: int, unknown: int, at_most: float | None, outcomes: list[str]
) -> None:
    gates = [] if at_most is None else [GateConfig(measure="other_language", at_most=at_most)]
    found = verdict([], gates, corpus=evidence(audit(asked, unknown)).corpus)
    assert [row.outcome for row in found.results] == outcomes
    assert found.failed == ("fail" in outcomes)
    assert all("language that the rules do not know" in line for line in verdict_lines(found))


def test_an_evidence_of_an_older_version_is_not_judged() -> None:
    assert verdict([], [], corpus=evidence(tiny_audit()).corpus).results == []


@pytest.mark.usefixtures("without_figures")
def test_report_says_it(tmp_path: Path) -> None:
    said = "in a language that the rules for identifiers do not know"
    assert f"{said} (they know English, French, Spanish and German): 100 of 1,000" in text_of(
        tmp_path / "a", audit(1000, 100)
    )
    assert said not in text_of(tmp_path / "b", audit(1000, 0))


def test_the_terminal_does_not_call_a_language_a_near_copy(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    print_summary(evidence(audit(100, 7)), tmp_path)
    lines = capsys.readouterr().out.splitlines()
    (line,) = [line for line in lines if "in a language that the rules for identifiers do not know" in line]
    assert line.startswith("Documents: ")
    assert "near-cop" not in line.lower()
