"""The report in French: the same tables and numbers, written the French way."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from fixtures.audits import evidence, tiny_audit
from fixtures.figures import leave_out_figures

import reticent.audit.report.page as report_page
from reticent.audit.texts import LANGUAGES, THIN


def numbers_in(text: str, *, french: bool) -> list[float]:
    text = re.sub(rf"(?<=\d){THIN}(?=\d{{3}})", "", text).replace(",", ".") if french else text.replace(",", "")
    return sorted(map(float, re.findall(r"\d+(?:\.\d+)?", text)))


def test_the_french_page_has_the_same_tables_and_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out_figures(monkeypatch)
    pages = {}
    for language in LANGUAGES:
        (tmp_path / language).mkdir()
        path = report_page.write_report(tmp_path / language, evidence(tiny_audit()), language=language)
        pages[language] = path.read_text(encoding="utf-8")
    assert (tmp_path / "en" / "report.json").read_bytes() == (tmp_path / "fr" / "report.json").read_bytes()
    assert json.loads((tmp_path / "fr" / "report.json").read_text())
    english, french = (ElementTree.fromstring(page.removeprefix("<!doctype html>")) for page in pages.values())
    assert french.get("lang") == "fr"
    assert 'lang="en"' not in pages["fr"]
    sections = [[s for s in page.iter("section") if s.get("id") not in ("findings", "first-screen")]
                for page in (english, french)]  # fmt: skip
    assert [s.get("id") for s in sections[0]] == [s.get("id") for s in sections[1]]
    cells = [[cell for section in side for cell in section.iter("td")] for side in sections]
    assert len(cells[0]) == len(cells[1]) > 150
    for one, other in zip(*cells, strict=True):
        texts = [" ".join(cell.itertext()) for cell in (one, other)]
        assert numbers_in(texts[0], french=False) == numbers_in(texts[1], french=True)
