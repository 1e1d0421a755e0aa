"""The study of models that nobody here trained: a leak that is there is found, and one that is not is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fixtures.places import ROOT

from studies.egress import SIZES, tables, told

pytestmark = pytest.mark.usefixtures("one_thread")


def test_diagnoses_that_members_notes_state_are_told_and_those_of_other_peoples_notes_are_not(tmp_path: Path) -> None:
    """The clinical ladder, from documents on; a diagnosis goes with nothing else of a note."""
    found = told(tmp_path, SIZES["cpu"])
    for kind in ("sensitive", "other"):
        of_members, of_others = (found[name][kind] for name in ("members", "others"))
        assert list(of_members) == list(of_others) == ["fragment", "colleague"]
        for cell in (*of_members.values(), *of_others.values()):
            assert (cell["num_diagnoses"], cell["num_too_few"], cell["fewest"]) == (2, 0, 60)
        for cell in of_members.values():
            assert cell["told"]["low"] > 0.2
            assert cell["placebo"]["low"] <= 0 <= cell["placebo"]["high"]
            assert cell["cue_only"]["low"] <= 0
        assert all(cell["told"]["low"] <= 0 for cell in of_others.values())


def test_a_dossier_whose_signature_does_not_hold_is_told() -> None:
    record = json.loads((ROOT / "studies" / "record" / "egress.json").read_text())
    record["commands"]["models"][0] |= {"model": "toy", "verified": False}
    assert "| toy | 120 | not shown | False |" in tables(record)
