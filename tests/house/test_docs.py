"""The pages of docs/: every snippet runs, every setting and command has its line, the site is built without a warning.

Commands run in process, in the folder of the README's example and in the order of their page. ``make`` lines name
targets that exist; what stands after ``torchrun … -m reticent`` runs as a command.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tomllib
import types
from pathlib import Path
from typing import Any

import pytest
from fixtures.command import command
from fixtures.pages import ROOT, blocks

import reticent
from reticent.engine.corpus import open_corpus
from reticent.engine.detect.rules import list_rules
from reticent.engine.sources.config import Markup
from reticent.job.config import Job, parse_job

DOCS = ROOT / "docs"
pytestmark = [pytest.mark.skipif(not DOCS.exists(), reason="needs the sources"), pytest.mark.usefixtures("without_ink")]
HOW_TO = sorted(path.relative_to(ROOT).as_posix() for path in (DOCS / "how-to").glob("*.md"))
#: Commands that end with another status than 0.
STATUS = {("guard", "check"): 3, ("dossier", "verify"): 4}
#: Languages of blocks; ``text`` is shown, not run.
LANGUAGES = {"sh", "toml", "python", "text"}


def pages() -> list[Path]:
    readmes = [ROOT / "README.md", ROOT / "benchmarks" / "README.md", ROOT / "studies" / "README.md"]
    return [*readmes, *sorted(DOCS.rglob("*.md"))]


def run_line(line: str) -> None:
    """Run a line of a page, or check that what it names exists."""
    words = shlex.split(line, comments=True)
    if not words:
        return
    if "reticent" in words:
        verb = words[words.index("reticent") + 1 :]
        assert command(*verb) == STATUS.get(tuple(verb[:2]), 0), line
    elif words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), line
    else:
        assert words[:2] == [".venv/bin/python", "-m"], line
        assert importlib.util.find_spec(words[2]), line


def merged(over: dict[str, Any], under: dict[str, Any]) -> dict[str, Any]:
    """Return nested tables, those of ``over`` first."""
    result = dict(under)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(under.get(key), dict)
        result[key] = merged(value, under[key]) if both else value
    return result


def test_blocks_are_of_a_language_that_is_run() -> None:
    for path in pages():
        text = path.read_text(encoding="utf-8")
        assert text.count("```") % 2 == 0, path
        assert set(re.findall(r"^```(\S*)$", text, re.MULTILINE)[::2]) <= LANGUAGES, path


def test_everything_that_the_readmes_name_exists() -> None:
    for page in ("README.md", "benchmarks/README.md", "studies/README.md"):
        for block in blocks(page, "sh"):
            for line in block.splitlines():
                if not line.startswith("reticent"):
                    run_line(line)


@pytest.mark.heavy
def test_the_tutorial_works_from_the_first_line_to_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for language, block in re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL):
        if language == "toml":
            (tmp_path / "job.toml").write_text(block)
        elif language == "python":
            exec(block, names)
        for line in block.splitlines() if language == "sh" else ():
            run_line(line)
    assert type(names["model"]).__name__ == "BertForMaskedLM"
    assert (tmp_path / "run" / "report" / "report.html").exists()
    assert "protected.k" not in capsys.readouterr().err


@pytest.mark.heavy
@pytest.mark.parametrize("page", HOW_TO)
def test_every_command_of_a_guide_runs(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    lines = [line for block in blocks(page, "sh") for line in block.splitlines()]
    if any(" run" in line for line in lines) and not (folder / "run" / "report").exists():
        assert command("run", "job.toml") == 0
    for line in lines:
        run_line(line)
    if blocks(page, "python") and importlib.util.find_spec("spacy"):
        # As the entry point of the installed package does; a tree that was not set up since has none.
        importlib.import_module("reticent.engine.detect.spacy_rules")
    for block in blocks(page, "python"):
        exec(block, {})


@pytest.mark.parametrize("page", [*HOW_TO, "docs/tutorial.md", "README.md"])
def test_every_table_of_a_job_is_valid(page: str) -> None:
    (job,) = map(tomllib.loads, blocks("README.md", "toml"))
    for block in blocks(page, "toml"):
        values = tomllib.loads(block)
        parsed = parse_job(merged(values, job) | {key: values[key] for key in ("detect",) if key in values}, page)
        assert set(values) <= set(Job.model_fields)
        assert parsed.model


def test_the_guide_says_whose_a_marked_document_is(tmp_path: Path) -> None:
    tables = [tomllib.loads(block)["corpus"] for block in blocks("docs/how-to/documents.md", "toml")]
    (pattern,) = [table["individual"] for table in tables if "individual" in table and table.get("format") != "txt"]
    for name in ("p1-1", "p1-2", "p2-1-a"):
        (tmp_path / f"{name}.txt").write_text("seen")
        (tmp_path / f"{name}.ann").write_text("")
    corpus = open_corpus(tmp_path, format="brat", markup=Markup(individual=pattern))
    assert corpus.scan().column("individual_id").to_pylist() == ["p1", "p1", "p2"]


def test_every_setting_and_every_command_has_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    generate = importlib.import_module("generate")
    from reticent.cli import PANELS

    job, commands = generate.job_page(), generate.command_page()
    found = dict(generate.sections(Job, ""))
    assert {"", "corpus", "split", "train.dp", "[gate]", "[model].foundation", "recipes.NAME"} <= set(found)
    for name, kind in found.items():
        for field, info in generate.fields_of(kind).items():
            assert generate.subsection(info) or f"| `{field}` |" in job, (name, field)
    for name in (name.removesuffix("_app").replace("_", "-") for panel in PANELS.values() for name in panel):
        assert f"### `reticent {name}`" in commands
    assert "`--set, -s`" in commands
    python = generate.api_page()
    assert all(f"### `{name}`\n" in python for name in reticent.__all__ if not name.startswith("_"))
    for page in generate.PAGES.values():
        assert "<object" not in page()
        assert str(ROOT) not in page()


def test_the_page_of_detectors_has_every_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    page = importlib.import_module("generate").detector_page()
    rows = re.findall(r"^\| `(\w+)` \| ([A-Z_]+) \| (.+) \|$", page, re.MULTILINE)
    assert [tuple(rule) for rule in list_rules()] == [
        (name, label, finds.replace("\\|", "|")) for name, label, finds in rows
    ]
    guide = (DOCS / "how-to" / "detect.md").read_text(encoding="utf-8")
    assert "](../reference/detectors.md#rules)" in guide


def test_links_to_records_lead_to_them_in_the_repository_and_on_the_site(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the site they have the same paths, whichever folder a page is in."""
    monkeypatch.syspath_prepend(str(DOCS))
    generate = importlib.import_module("generate")
    num_links = 0
    for path in DOCS.rglob("*.md"):
        source = path.relative_to(DOCS).as_posix()
        page = types.SimpleNamespace(file=types.SimpleNamespace(src_uri=source))
        markdown = path.read_text(encoding="utf-8")
        links = re.findall(r"\]\(([^)]*record/[^)]*\.json)\)", markdown)
        assert all((path.parent / link).is_file() for link in links), source
        shown = re.findall(r"\]\(([^)]*record/[^)]*\.json)\)", generate.on_page_markdown(markdown, page))
        for link in shown:
            target = os.path.normpath(DOCS / source / ".." / link)
            assert (ROOT / Path(target).relative_to(DOCS)).is_file(), source
        num_links += len(shown)
    assert num_links > 20


@pytest.mark.heavy
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    if not all(map(importlib.util.find_spec, ("mkdocs", "material", "l2m4m"))):
        pytest.skip(
            "the site of docs/ is not built: the packages of the group docs are missing (`make docs` installs them)"
        )
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(tmp_path / "site")],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    built = list((tmp_path / "site").rglob("*.html"))
    assert len(built) > 40
    for page in built:
        text = page.read_text(encoding="utf-8")
        assert not re.findall(r'<(?:link|script|img)[^>]+(?:src|href)="https?://(?!example)[^"]+"', text), page.name
    definitions = (tmp_path / "site" / "explanation" / "definitions.html").read_text(encoding="utf-8")
    assert definitions.count("<math") > 60
    assert "$" not in re.sub(r"<(script|style).*?</\1>", "", definitions, flags=re.DOTALL)
