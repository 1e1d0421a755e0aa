"""One Chromium for all tests of this folder, and the pages that they open: by hand, in every language."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fixtures.audits import evidence, tiny_audit, write
from fixtures.dossiers import dossier_evidence

from reticent.audit.config import DossierConfig
from reticent.audit.evidence.dossier import Declared
from reticent.audit.report.page import write_report
from reticent.ext.dossier.write import write_dossier

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NEEDED = ("playwright", "axe_playwright_python", "weasyprint", "pypdf", "jsonschema")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    for item in items:
        if item.path.parent != Path(__file__).parent:
            continue
        item.add_marker(pytest.mark.heavy)
        if CHROMIUM is None or missing:
            why = "no Chromium is installed" if CHROMIUM is None else f"{', '.join(missing)}: not installed"
            item.add_marker(pytest.mark.skip(reason=f"no page is opened: {why} (`make test-browser`)"))


@dataclass
class Opened:
    """A page in the browser, with what the browser complained about."""

    page: Any
    complaints: list[str] = field(default_factory=list)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield chromium
        chromium.close()


@pytest.fixture
def opened(browser: Any) -> Iterator[Callable[..., Opened]]:
    """Opens a file at a width in CSS pixels, on a screen or as it is printed."""
    contexts = []

    def open_file(file: Path, width: int = 1200, *, media: str = "screen", dark: bool = False) -> Opened:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light", bypass_csp=True
        )
        contexts.append(context)
        found = Opened(context.new_page())
        found.page.on("console", lambda message: found.complaints.append(message.text))
        found.page.on("pageerror", lambda error: found.complaints.append(str(error)))
        found.page.on("requestfailed", lambda request: found.complaints.append(request.url))
        found.page.emulate_media(media=media)
        found.page.goto(file.as_uri())
        return found

    yield open_file
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a report, and a dossier in both languages as HTML and PDF."""
    folder = tmp_path_factory.mktemp("pages")
    write(folder, tiny_audit())
    (folder / "french").mkdir()
    made = write_report(folder / "french", evidence(tiny_audit()), language="fr")
    made.rename(folder / "report.fr.html")
    said = Declared(institution="Hospital of X", purpose="To find adverse events in letters.")
    write_dossier(folder, dossier_evidence(declared=said), DossierConfig(pdf="on"))
    return folder
