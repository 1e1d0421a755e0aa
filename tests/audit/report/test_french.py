"""The report in French: every string has its French, numbers are written the French way, and none is changed."""

from __future__ import annotations

import json
import re
import string
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest
from fixtures.audits import evidence, tiny_audit
from fixtures.figures import leave_out_figures

import reticent.audit.report.page as report_page
from reticent.audit.dossier.first_screen import first_screen
from reticent.audit.dossier.page import CLAIMS
from reticent.audit.evidence.audit import AuditEvidence
from reticent.audit.report.first_screen import FirstScreen
from reticent.audit.report.french import FrenchPage, french_strings

THIN, NO_BREAK = "\N{NARROW NO-BREAK SPACE}", "\N{NO-BREAK SPACE}"
ROOM = Path(report_page.__file__).parent
#: Pages that are made in English alone, or hold both languages already.
NOT_OF_THE_REPORT = ("self.html.j2", "probe.html.j2", "style.html.j2", "risks.html.j2")


def translated(english: str) -> str | None:
    return FrenchPage(["mlm", "clm", "ppclm", "bert", "loss", "rules"]).translated(english)


@pytest.mark.parametrize(
    ("english", "french"),
    [
        ("1,855", f"1{THIN}855"),
        ("0.319 to 0.706", "de\u00a00,319 à\u00a00,706"),
        ("mlm", "mlm"),
        ("mlm of bert", None),
        ("76 % of it", None),
        (
            "clm (no protection, 16 epochs) predicts 1,200 of its members’ 2,000 identifiers (60 %), fewer than mlm.",
            f"clm (sans protection, passages{NO_BREAK}: 16) prédit 1{THIN}200 des 2{THIN}000 identifiants de ses "
            f"membres (60{NO_BREAK}%), moins que mlm.",
        ),
        ("mlm, clm and ppclm have learned identifiers of the people they were trained on.",
         "mlm, clm et ppclm ont appris des identifiants des personnes de l’entraînement."),
        ("somebody and clm have learned identifiers of the people they were trained on.", None),
        ("Causal: F1 against epochs. clm: 0.10 after 4, below 0.20 after 8; mlm: 0.30 after 4.",
         f"Causal{NO_BREAK}: F1 selon les passages. clm{NO_BREAK}: 0,10 après 4, moins de 0,20 après 8{THIN}; "
         f"mlm{NO_BREAK}: 0,30 après 4."),
        ("minimal: 700 of 1 words, few of 2 words; all: more than 4 of 3 words.",
         f"minimales{NO_BREAK}: 700 de 1 mots, peu de 2 mots{THIN}; tous{NO_BREAK}: plus de 4 de 3 mots."),
        ("from utility 0.34, Privacy above 0.89 after 4 epochs to utility 0.46, Privacy 0.55 (95 % interval 0.51 to "
         "0.59) after 16",
         "de l’utilité 0,34, confidentialité plus de 0,89 après 4 passages, à l’utilité 0,46, confidentialité 0,55 "
         f"(intervalle à 95{THIN}%{NO_BREAK}: de 0,51 à 0,59) après 16"),
        ("rules 12", "rules 12"),
        ("Privacy. An unknown sentence.", None),
    ],
)  # fmt: skip
def test_a_text_is_translated_whole_by_sentence_or_not_at_all(english: str, french: str | None) -> None:
    assert translated(english) == french


def test_every_placeholder_of_a_string_is_in_its_french() -> None:
    def names(text: str) -> set[str]:
        return {name for _, name, _, _ in string.Formatter().parse(text) if name}

    assert len(french_strings()) > 500
    assert {e: names(e) for e in french_strings()} == {e: names(f) for e, f in french_strings().items()}
    assert not [claim for claim in CLAIMS for text in french_strings().values() if claim in text.lower()]


def test_every_fixed_text_of_a_template_has_its_french() -> None:
    found, missing = 0, []
    for template in ROOM.glob("templates/*.j2"):
        if template.name in NOT_OF_THE_REPORT:
            continue
        source = re.sub(r"\{%[^%]*%\}|\{#.*?#\}", "<br />", template.read_text(encoding="utf-8"))
        for text in re.findall(r">([^<>{}]*[A-Za-z][^<>{}]*)<", source):
            english = re.sub(r"\s+", " ", text).strip()
            found += 1
            if FrenchPage().translated(english) is None and english not in {"Privacy audit – Reticent"}:
                missing.append(english)
    assert found > 150
    # Beginnings and ends of sentences that go on behind a condition: their wholes are keys.
    assert [text for text in missing if text[0].isupper() and text[-1] in ".?"] == []


def french_screen(audit: AuditEvidence) -> FirstScreen:
    return first_screen(audit, "fr")


def numbers_in(text: str, *, french: bool) -> list[float]:
    text = re.sub(rf"(?<=\d){THIN}(?=\d{{3}})", "", text).replace(",", ".") if french else text.replace(",", "")
    return sorted(map(float, re.findall(r"\d+(?:\.\d+)?", text)))


def test_the_french_page_has_the_same_tables_and_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out_figures(monkeypatch)
    pages = {}
    screens: dict[str, Callable[[AuditEvidence], FirstScreen] | None] = {"en": None, "fr": french_screen}
    for name, screen in screens.items():
        (tmp_path / name).mkdir()
        path = report_page.write_report(tmp_path / name, evidence(tiny_audit()), first_screen=screen)
        pages[name] = path.read_text(encoding="utf-8")
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


def test_a_name_beside_a_figure_that_is_longer_in_french_is_not_cut_off(tmp_path: Path) -> None:
    # Figures are laid out in English: names to the left of an axis begin at the edge of the drawing.
    for english in ("ordinary", "majority class", "bag of words", "ppclm, 8 epochs"):
        assert len(translated(english) or 100 * "x") - len(english) <= 5, english
    page = report_page.write_report(tmp_path, evidence({**tiny_audit(), "models": []})).read_text(encoding="utf-8")
    (style,) = re.findall(r"\.plot \{[^}]*width: 100%[^}]*\}", page)
    assert "overflow: visible" in style
