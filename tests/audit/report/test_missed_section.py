"""The section of the report on identifiers that detection misses: bounds as published, and nothing where nothing is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fixtures.audits import estimate, tiny_audit, write
from fixtures.figures import leave_out_figures


@pytest.fixture(autouse=True)
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out_figures(monkeypatch)


def row(recall: float, left: float, missed: int, n: int = 40) -> dict[str, Any]:
    return {
        "marked": 120,
        "recall": {**estimate(recall, recall - 0.0321, min(1.0, recall + 0.01)), "n": n},
        "unprotected": {**estimate(left, left / 2, left * 2 + 31.4), "n": n},
        "individuals_missed": missed,
        "individuals_found": n,
    }


def shown(tmp_path: Path, recall: dict[str, Any] | None) -> str:
    audit = tiny_audit()
    if recall is not None:
        audit["sampled_recall"] = recall
    return " ".join(write(tmp_path, audit).read_text(encoding="utf-8").split())


def sampled(overall: dict[str, Any], **categories: dict[str, Any]) -> dict[str, Any]:
    about = {"documents": 100, "corpus_documents": 12345, "individuals": 77, "strata": 12, "annotators": 1}
    return {**about, "overall": overall, "categories": categories}


def test_the_number_that_is_left_stands_with_its_bound(tmp_path: Path) -> None:
    page = shown(tmp_path, sampled(row(0.95, 800, 30), NAME=row(0.91, 700, 22), DATE=row(0.99, 100, 8)))
    assert "An annotator read 100 of the run’s 12,345 documents" in page
    assert "Detection leaves about 800 identifiers, at most 1,632" in page
    assert "<td>700<small>350 to 1,432</small></td>" in page
    assert "0.950<small>0.918 to 0.960</small>" in page
    assert "marked as reviewed" not in page


def test_the_users_word_that_all_documents_were_reviewed_is_said(tmp_path: Path) -> None:
    page = shown(tmp_path, sampled(row(0.95, 800, 30), NAME=row(0.95, 800, 30)) | {"all_reviewed": True})
    assert "Not every document was marked as reviewed: whoever evaluated them said that all were." in page


def test_few_have_a_bound_alone_and_fewer_are_left_out(tmp_path: Path) -> None:
    few = sampled(row(0.95, 800, 30), NAME=row(0.91, 700, 22), DATE=row(0.99, 90, 2), PHONE=row(0.5, 77, 1, n=3))
    page = shown(tmp_path, few)
    assert "<td>at most 220</td>" in page  # 211.4
    assert "above 0.950<small>0.950 to 1.000</small>" in page
    assert "PHONE" not in page.partition('id="missed"')[2].partition("</table>")[0]
    assert "0.99<" not in page


def test_agreement_of_two_is_said(tmp_path: Path) -> None:
    recall = sampled(row(0.95, 800, 30), NAME=row(0.95, 800, 30)) | {"annotators": 2}
    recall["agreement"] = {name: estimate(0.87) for name in ("exact", "partial", "kappa", "alpha")}
    page = shown(tmp_path, recall)
    assert "Two annotators read" in page
    assert "a share of 0.87 (0.82 to 0.92) of their marks exactly" in page


def test_a_run_without_annotation_has_no_such_section(tmp_path: Path) -> None:
    assert 'id="missed"' in shown(tmp_path, sampled(row(0.95, 800, 30), NAME=row(0.95, 800, 30)))
    assert 'id="missed"' not in shown(tmp_path, None)


def test_intervals_over_few_are_named_with_their_number(tmp_path: Path) -> None:
    page = shown(tmp_path, sampled(row(0.95, 800, 30), NAME=row(0.91, 700, 12, n=12), DATE=row(0.5, 9, 3, n=3)))
    assert "Intervals over fewer than 20 people (NAME: 12) may not hold" in page
    assert "Intervals over" not in shown(tmp_path, sampled(row(0.95, 800, 30), NAME=row(0.95, 800, 30, n=20)))
