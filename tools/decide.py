"""Write the picture and the example of docs/how-to/decide.md from the dossier of a demo run: none is typed by hand.

    make demo
    python -m tools.decide demo-run

The pictures are the first screens of the two pages, by the Chromium that is installed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from PIL import Image

from reticent.audit.judgement.rows import BEYOND, NOT_SHOWN, WITHIN
from reticent.audit.report.risk_text import Cell, ShownModel, cells_of, shown_models
from reticent.audit.texts import ENGLISH, NO_BREAK
from reticent.core.errors import ArtifactError
from reticent.ext.dossier.verify import read_evidence

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "how-to" / "decide.md"
ASSETS = ROOT / "docs" / "assets"
#: Marks around what is written here.
BEGIN, END = "<!-- written by tools.decide from the demo -->", "<!-- until here by tools.decide -->"
#: The first screen, in CSS pixels.
SCREEN = (1200, 1500)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def example(models: list[ShownModel]) -> str:
    """Return the example of a decision on these models, as it stands in the page."""
    decision = " ".join(filter(None, (_leave(models), _said(models, BEYOND), _said(models, NOT_SHOWN), _plain(models))))
    person = ENGLISH.listed([f"{value} for {model.letter}" for model in models if (value := _person(model))])
    rows = {
        "Which model may leave": decision,
        "Conditions": "A protected model may be used inside the hospital, by staff who may read the letters anyway, "
        "behind the [guard](guard.md).",
        "What has to be done first": "Fewer epochs, or noise in the threshold (`[threshold] epsilon`, of each word, or "
        'with `unit = "individual"` of a person, for many people): what each '
        "[costs](../explanation/what-is-closed.md). Then what was not tested (section 7), with more people held out.",
        "Membership of the person": f"{person or 'Not measured'}. Who was in the data may be recognised by the whole "
        "text. Being in this data is no secret inside the hospital; outside it is. So none of them leaves without "
        "differential privacy.",
        "To be tested again by": "In a year, or with the first withdrawal.",
    }
    head = "| field | decision |\n|---|---|\n"
    return head + "".join(f"| {name} | {text} |\n" for name, text in rows.items()).replace(NO_BREAK, " ")


def _leave(models: list[ShownModel]) -> str:
    letters = [model.letter for model in models if model.risks and model.risks.outcome == WITHIN]
    return f"{ENGLISH.listed(letters)} within every threshold." if letters else "None for now."


def _said(models: list[ShownModel], outcome: str) -> str:
    """The models with an outcome, each with the numbers that decide."""
    said = []
    for model in models:
        if model.risks and model.risks.outcome == outcome:
            cells = cells_of(model, ENGLISH)
            found = [_number(cell) for cell in cells if cell.relevant and cell.mark.outcome == outcome]
            said.append(f"{model.letter} ({', '.join(found)})" if found else model.letter)
    words = {BEYOND: "Beyond a threshold", NOT_SHOWN: "Not shown to be within"}[outcome]
    return f"{words}: {'; '.join(said)}." if said else ""


def _number(cell: Cell) -> str:
    return " ".join(filter(None, (cell.title, cell.value)))


def _plain(models: list[ShownModel]) -> str:
    letters = [model.letter for model in models if model.is_unprotected]
    return f"Nothing in the training of {ENGLISH.listed(letters)} protects anyone." if letters else ""


def _person(model: ShownModel) -> str:
    return next((cell.value for cell in cells_of(model, ENGLISH) if cell.mark.risk == "individual"), "")


def written(page: str, text: str) -> str:
    """Return the page with another example between its marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ArtifactError(f"{PAGE.name}: the marks of tools.decide are gone")
    return f"{before}{begin}\n\n{text}\n{end}{after}"


def take_pictures(dossier: Path) -> None:
    """Write the first screens of the pages of a dossier, English and French."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise ArtifactError("no Chromium is installed, which takes the pictures")
    for language in ("en", "fr"):
        pages = [dossier / "dossier.html", dossier / f"dossier.{language}.html"]
        page = next(p for p in reversed(pages) if p.is_file() and f'lang="{language}"' in p.read_text()[:200])
        target = ASSETS / f"dossier-{language}.png"
        size = ",".join(map(str, SCREEN))
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={size}"]
        subprocess.run(
            [browser, *options, f"--screenshot={target}", page.absolute().as_uri()], check=True, capture_output=True
        )
        Image.open(target).convert("RGB").quantize(64).save(target, optimize=True)  # a quarter of the bytes


def main(run: str) -> None:
    """Write example and pictures from ``RUN/dossier``."""
    dossier = Path(run) / "dossier"
    models = shown_models(read_evidence(dossier).audit, ENGLISH)
    take_pictures(dossier)
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), example(models)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
