"""Outcomes that a run keeps of its audits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fixtures.audits import evidence, tiny_audit

from reticent.audit.judgement.verdict import ARITHMETIC
from reticent.job import outcomes


@pytest.mark.parametrize("arithmetic", [ARITHMETIC, None])
def test_an_audit_whose_outcomes_are_gone_is_of_the_version_that_judged_it(
    arithmetic: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the file is deleted, and what was found is superseded."""
    monkeypatch.setattr(outcomes, "trainings_of", lambda job: [])
    audit = evidence(tiny_audit())
    audit = replace(audit, models=[replace(model, digest="files") for model in audit.models])
    made = SimpleNamespace(config={"arithmetic": arithmetic} if arithmetic else {})
    monkeypatch.setattr(outcomes, "read_manifest", lambda folder: made)
    run: Any = SimpleNamespace(folder=tmp_path, evidence=audit, job=None)
    outcomes.keep_outcomes_of_older_audit(run)
    assert {row.arithmetic for row in outcomes._read_outcomes(tmp_path)} == {arithmetic or 1}
