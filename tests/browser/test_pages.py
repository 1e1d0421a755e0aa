"""Report and dossier in a real browser, on a wide and on a narrow screen and as they are printed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fixtures.places import ROOT

PAGES = ("report.html", "report.fr.html", "dossier.html", "dossier.fr.html")
#: Width in CSS pixels and medium; 680 pixels are the width between the margins of A4.
VIEWS = ((1200, "screen"), (360, "screen"), (680, "print"))

#: Elements that end beyond the page, or whose text is cut; what may be scrolled sideways is not, and what is only for
#: those who hear the page is meant to be small.
CUT = """() => {
  const seen = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const style = getComputedStyle(at);
      if (["auto", "scroll"].includes(style.overflowX) && at !== document.documentElement && at !== document.body)
        return false;
      if (style.clipPath !== "none" || style.visibility === "hidden" || style.display === "none") return false;
      if (at.matches(".skip, details:not([open]) > :not(summary), svg *")) return false;
    }
    return true;
  };
  const width = document.documentElement.clientWidth, found = [];
  for (const element of document.body.querySelectorAll("*")) {
    const box = element.getBoundingClientRect();
    if (!box.width || !seen(element)) continue;
    const name = `${element.tagName} ${element.className} ${element.textContent.trim().slice(0, 40)}`;
    if (box.right > width + 1 || box.left < -1) found.push(`beyond the page: ${name}`);
    const style = getComputedStyle(element);
    if (style.overflowX === "hidden" && element.scrollWidth > element.clientWidth + 1) found.push(`cut: ${name}`);
    if (style.overflowY === "hidden" && element.scrollHeight > element.clientHeight + 1) found.push(`cut: ${name}`);
  }
  return found;
}"""


#: Parts that have to be scrolled sideways to be read.
SCROLLED = """() => {
  document.querySelectorAll("details").forEach((part) => { part.open = true; });
  return [...document.querySelectorAll(".scroll, table")].filter((part) => part.scrollWidth > part.clientWidth + 1)
    .map((part) => part.textContent.trim().slice(0, 80));
}"""


@pytest.mark.parametrize("name", PAGES)
def test_no_table_is_scrolled_sideways_on_a_wide_screen(opened: Callable[..., Any], pages: Path, name: str) -> None:
    page = opened(pages / name, 1200).page
    assert page.evaluate(SCROLLED) == []
    page.set_viewport_size({"width": 360, "height": 900})
    assert name.startswith("dossier") or page.evaluate(SCROLLED), "it would be found"


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(("width", "media"), VIEWS)
def test_a_page_is_whole_and_the_browser_has_no_complaint(
    opened: Callable[..., Any], pages: Path, name: str, width: int, media: str
) -> None:
    found = opened(pages / name, width, media=media)
    assert found.page.evaluate("document.body.innerText.length") > 2000
    assert found.page.evaluate("document.documentElement.scrollWidth") <= width
    assert found.page.evaluate(CUT) == []
    assert found.complaints == []


#: Words that no French text has.
ENGLISH = re.compile(r"\b(the|of|with|people|are|is|members|what|share)\b", re.I)
#: Texts and alternative texts of a page, but for names and settings.
SAID = """() => [
  ...[...document.querySelectorAll("body *:not(style):not([translate=no]):not([translate=no] *)")]
    .flatMap((one) => [...one.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data)),
  ...[...document.querySelectorAll("[aria-label]")].map((one) => one.getAttribute("aria-label")),
].filter((text) => text.trim())"""
#: Texts of figures that end outside of their figure.
OUTSIDE = """() => [...document.querySelectorAll("svg.plot")].flatMap((figure) => {
  const [, , width, height] = figure.getAttribute("viewBox").split(" ").map(Number);
  const to = figure.getBoundingClientRect(), scale = to.width / width;
  return [...figure.querySelectorAll("text")].filter((text) => {
    const box = text.getBoundingClientRect();
    return box.width && (box.right > to.right + 4 * scale || box.left < to.left - 4 * scale);
  }).map((text) => text.textContent);
})"""


def test_a_french_report_has_no_english_and_its_figures_have_room(opened: Callable[..., Any], pages: Path) -> None:
    page = opened(pages / "report.fr.html").page
    assert page.evaluate("document.documentElement.lang") == "fr"
    assert page.query_selector_all("[lang=en]") == []
    said = page.evaluate(SAID)
    assert len(said) > 500
    assert [text for text in said if ENGLISH.search(text)] == []
    assert page.evaluate(OUTSIDE) == []
    english = opened(pages / "report.html").page
    assert english.evaluate(OUTSIDE) == []
    assert len([text for text in english.evaluate(SAID) if ENGLISH.search(text)]) > 100, "the words would be found"


def test_the_first_screen_of_a_french_report_is_in_french(opened: Callable[..., Any], pages: Path) -> None:
    page = opened(pages / "report.fr.html").page
    assert page.evaluate("document.documentElement.lang") == "fr"
    seen = page.evaluate(
        "[...document.querySelectorAll('h1, .lead, #first-screen')].map((part) => part.getBoundingClientRect().top)"
    )
    assert len(seen) == 3  # title, subtitle, verdict
    assert page.evaluate("document.querySelector('#first-screen h2').textContent") == "Le verdict"
    assert seen == sorted(seen)
    assert seen[-1] < 900  # before the end of the screen, above everything but the contents
    assert page.evaluate("document.querySelector('#findings').getBoundingClientRect().top") > seen[-1]


def test_a_cut_element_would_be_found(opened: Callable[..., Any], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(
        "<body><p style='width: 900px'>wide</p><div style='width: 9px; overflow: hidden'>unbreakable</div>"
        "<script>console.error('oh')</script><img src='gone.png' alt=''>"
    )
    found = opened(page, 360)
    assert [line.split(":")[0] for line in found.page.evaluate(CUT)] == ["beyond the page", "cut"]
    assert any("oh" in line for line in found.complaints)
    assert any("gone.png" in line or "ERR_FILE_NOT_FOUND" in line for line in found.complaints)


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(("width", "media"), VIEWS)
def test_a_page_keeps_the_rules_of_axe(
    opened: Callable[..., Any], pages: Path, name: str, width: int, media: str
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    result = Axe().run(opened(pages / name, width, media=media).page)
    assert len(result.response["passes"]) > 15
    assert {v["id"]: [node["html"][:120] for node in v["nodes"][:3]] for v in result.response["violations"]} == {}


def test_axe_would_find_a_fault(opened: Callable[..., Any], tmp_path: Path) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page = tmp_path / "page.html"
    page.write_text("<html><body><p style='color: #999; background: #fff'>pale</p><img src='data:,'></body></html>")
    found = {violation["id"] for violation in Axe().run(opened(page).page).response["violations"]}
    assert {"color-contrast", "image-alt", "html-has-lang", "document-title"} <= found


def test_the_dark_report_keeps_its_contrast(opened: Callable[..., Any], pages: Path) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page = opened(pages / "report.html", dark=True).page
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 29)"
    found = [v for v in Axe().run(page).response["violations"] if v["id"] == "color-contrast"]
    assert [node["html"][:120] for violation in found for node in violation["nodes"]] == []


@pytest.mark.parametrize("name", ["dossier.html", "dossier.fr.html"])
def test_a_link_of_a_dossier_leads_somewhere(opened: Callable[..., Any], pages: Path, name: str) -> None:
    page = opened(pages / name).page
    links = page.evaluate("[...document.links].map((link) => link.getAttribute('href'))")
    assert len(links) >= 3
    for link in links:
        assert page.query_selector(link) if link.startswith("#") else (pages / link).is_file(), link


@pytest.mark.parametrize(("name", "language"), [("dossier.pdf", "en"), ("dossier.fr.pdf", "fr")])
def test_the_pdf_is_tagged_and_says_what_the_page_says(pages: Path, name: str, language: str) -> None:
    from pypdf import PdfReader

    pdf = PdfReader(pages / name)
    root: Any = pdf.trailer["/Root"]
    assert root["/MarkInfo"]["/Marked"]
    assert root["/Lang"] == language
    assert root["/ViewerPreferences"]["/DisplayDocTitle"]
    assert b"pdfuaid:part" in root["/Metadata"].get_data()
    tags = set(re.findall(r"'/S': '/(\w+)'", repr(_tags(root["/StructTreeRoot"]))))
    assert {"H1", "H2", "H3", "P", "Table", "TR", "TH", "TD", "L", "LI"} <= tags
    text = re.sub(r"\s+", " ", " ".join(page.extract_text() for page in pdf.pages))
    page = re.sub(r"<style.*?</style>|<[^>]*>", " ", (pages / name.replace(".pdf", ".html")).read_text(), flags=re.S)
    words = [word for word in re.findall(r"[a-zà-ÿ]{4,}", page) if word not in text]
    assert len(words) < 60, "words of the page that are not in the PDF: those that a screen alone shows, or are broken"
    assert 5 < len(pdf.pages) < 40


def _tags(element: Any, depth: int = 0) -> Any:
    """The tree of tags, without what they hold."""
    element = element.get_object()
    if isinstance(element, list):
        return [_tags(each, depth) for each in element]
    if not isinstance(element, dict) or depth > 40:
        return None
    return {"/S": str(element.get("/S", "")), "/K": _tags(element["/K"], depth + 1) if "/K" in element else None}


def test_evidence_keeps_its_published_schema(pages: Path) -> None:
    import jsonschema

    schema = json.loads((ROOT / "docs" / "reference" / "evidence-1.schema.json").read_text())
    evidence = json.loads((pages / "evidence.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(evidence, schema)
    evidence["audit"]["models"][0]["approved"] = True
    with pytest.raises(jsonschema.ValidationError, match="approved"):
        jsonschema.validate(evidence, schema)
