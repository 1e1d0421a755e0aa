"""The page for annotators in a real browser, where one is installed: marking, undoing, saving, opening."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from reticent.ext.annotate.annotation import check_texts, read_annotation, write_annotation
from reticent.ext.annotate.sample import Sample, SampledDocument, text_digest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(BROWSER is None, reason="the page of annotators is not opened: no Chromium is installed"),
]
TEXTS = {0: "😀 Ann Müller\r\nsaw  Bob on 1.1.1970 </script>", 1: "nobody"}
FOUND = {0: [(2, 5, "NAME"), (26, 34, "DATE")]}


@pytest.fixture
def page(tmp_path: Path) -> Path:
    documents = tuple(
        SampledDocument(name=f"{row + 1:04d}", row=row, stratum=0, sha256=text_digest(text))
        for row, text in TEXTS.items()
    )
    write_annotation(tmp_path / "out", Sample(corpus="c", strata=(2,), documents=documents), TEXTS, FOUND)
    return tmp_path / "out" / "annotate.html"


def after(page: Path, script: str = "") -> str:
    """The page as the browser shows it, after a script: of a copy that allows one."""
    text = page.read_text(encoding="utf-8")
    if script:
        text = re.sub(r"script-src '[^']*'", "script-src 'unsafe-inline'", text)
        text = text.replace("</body>", f"<script>{script}</script>\n</body>")
    copy = page.with_name("copy.html")
    copy.write_text(text, encoding="utf-8")
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000", "--dump-dom")
    command = [str(BROWSER), *options, f"--user-data-dir={page.parent / 'profile'}", copy.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-500:]
    return done.stdout


#: What `save` would write, put into the page instead.
SAVE = """
URL.createObjectURL = (blob) => { blob.text().then((text) => { document.body.dataset.saved = text; }); return "#"; };
const press = (key, more = {}) =>
  region.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...more }));
const select = (word) => { const at = pages[current].text.indexOf(word); region.focus(); caret(at, at + word.length); };
"""


def after_saving(page: Path, script: str) -> tuple[str, re.Match[str] | None]:
    """The page after a script that saves, and what it saved.

    Files are read by another process of the browser, which its virtual time does not wait for: a start that ends too
    early is repeated.
    """
    for _ in range(3):
        shown = after(page, SAVE + script)
        if found := re.search(r'data-saved="([^"]*)"', shown):
            return shown, found
    return shown, None


def saved(page: Path, script: str, file: Path) -> Any:
    _, found = after_saving(page, script + "save();")
    assert found
    file.write_text(html.unescape(found[1]))
    return json.loads(file.read_text())


def test_the_page_runs_under_its_own_policy_and_shows_what_was_found(page: Path) -> None:
    shown = after(page)
    assert re.findall(r'<mark[^>]*data-label="(\w+)"[^>]*>([^<]*)</mark>', shown) == [
        ("NAME", "Ann"),
        ("DATE", "1.1.1970"),
    ]
    assert "0 of 2 documents reviewed" in shown
    assert shown.count('aria-label="Category of ') == 2


def test_what_is_marked_by_the_keyboard_is_saved_in_characters(page: Path, tmp_path: Path) -> None:
    script = """
    select("Ann Müller"); press("1");      // the mark of Ann alone goes
    select("Bob on"); press("Enter");      // with the last category
    select("Bob on"); press("Delete");
    select("Bob"); caret(selection().start + 1, selection().start + 1); press("1");  // the word at the cursor
    select("1.1.1970"); press("8"); press("z", { ctrlKey: true });
    press("r"); press("]"); press("r");
    """
    content = saved(page, script, tmp_path / "saved.json")
    assert [[(s["start"], s["end"], s["label"]) for s in d["spans"]] for d in content["documents"]] == [
        [(2, 12, "NAME"), (19, 22, "NAME"), (26, 34, "DATE")],
        [],
    ]
    assert TEXTS[0][2:12] == "Ann Müller"
    assert TEXTS[0][19:22] == "Bob"
    back = read_annotation(tmp_path / "saved.json")
    check_texts(back, TEXTS, "saved")
    assert "Müller" not in (tmp_path / "saved.json").read_text()


def test_an_edit_of_the_text_is_refused(page: Path) -> None:
    script = """
    select("Bob");
    document.execCommand("insertText", false, "Eve");
    document.execCommand("delete");
    document.body.dataset.kept = String(region.textContent === pages[0].text);
    """
    assert 'data-kept="true"' in after(page, SAVE + script)


def test_a_saved_file_is_opened_and_one_of_other_documents_is_not(page: Path, tmp_path: Path) -> None:
    content = saved(page, 'select("Bob"); press("2"); press("r");', tmp_path / "a.json")
    script = """
    window.alert = () => { document.body.dataset.alerted = "yes"; };
    const file = (content) => new File([JSON.stringify(content)], "a.json");
    const content = CONTENT;
    open(file({ ...content, corpus: "other" })).then(() => open(file(content))).then(() => save());
    """.replace("CONTENT", json.dumps(content).replace("<", "\\u003c"))
    shown, found = after_saving(page, script)
    assert 'data-alerted="yes"' in shown
    assert found
    assert json.loads(html.unescape(found[1])) == content
    assert "1 of 2 documents reviewed" in shown
