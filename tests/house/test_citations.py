"""Sources are cited by key or by a heading of the definitions; each is there, and nothing else is cited."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import reticent

ROOT = Path(reticent.__file__).parents[1]
BIBLIOGRAPHY = ROOT / "docs" / "references.bib"
DEFINITIONS = ROOT / "docs" / "explanation" / "definitions.md"
#: Folders whose texts are read, and what is no source of ours in them.
FOLDERS = ("reticent", "rust_ext/src", "tests", "benchmarks", "studies", "tools", "docs")
#: Names under which a reader outside finds nothing.
NOWHERE = re.compile(r"PROTOCOL" + r"S|[Ss]eed [1-4](?: §|,? alg)|[Tt]he (?:paper|thesis)\b|the seed'" + "s Fig")
pytestmark = pytest.mark.skipif(not BIBLIOGRAPHY.exists(), reason="needs the sources")


def texts() -> dict[Path, str]:
    found = {
        path: path.read_text(encoding="utf-8")
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in (".py", ".rs", ".md", ".toml", ".html", ".pyi") and path != Path(__file__)
    }
    assert len(found) > 300
    return found


def test_every_key_that_is_cited_is_in_the_bibliography() -> None:
    known = set(re.findall(r"^@\w+\{([\w:-]+),$", BIBLIOGRAPHY.read_text(encoding="utf-8"), re.MULTILINE))
    cited = {key for text in texts().values() for key in re.findall(r"\[@([\w:-]+)\]", text)} - {"key"}
    assert len(cited) > 20
    assert cited <= known
    assert known <= cited, "an entry that nothing cites"


def test_every_heading_of_the_definitions_that_is_cited_is_there() -> None:
    headings = re.findall(r"^#+ (.+)$", DEFINITIONS.read_text(encoding="utf-8"), re.MULTILINE)
    known = {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}
    cited = {anchor for text in texts().values() for anchor in re.findall(r"definitions\.md#([\w-]+)", text)}
    assert len(cited) > 8
    assert cited <= known


def test_nothing_is_cited_that_is_not_in_the_repository() -> None:
    assert not {str(path): found[0] for path, text in texts().items() if (found := NOWHERE.findall(text))}
