"""Write the folder of a dossier: evidence, pages and their seal."""

from __future__ import annotations

import importlib.util
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from reticent.audit.evidence.json_form import to_json
from reticent.audit.evidence.rules import publish
from reticent.core.errors import ArtifactError, PolicyError
from reticent.ext.dossier.exchange import EXCHANGE, write_exchange
from reticent.ext.dossier.page import page_name, render
from reticent.ext.dossier.seal import EVIDENCE, seal

if TYPE_CHECKING:
    from reticent.audit.config import DossierConfig
    from reticent.audit.evidence.dossier import DossierEvidence


def write_dossier(folder: Path, evidence: DossierEvidence, config: DossierConfig) -> None:
    """Write a dossier into an empty folder: evidence as JSON, pages as HTML and PDF, digests and signature; equal input
    gives equal bytes.

    Raises
    ------
    ArtifactError
        The audit in the evidence is not published, a page would make a claim that no page may make, or the key cannot
        be used.
    """
    if evidence.audit.small_cell is None or evidence.audit.risks is None:
        raise ArtifactError("a dossier is made of published evidence alone")
    shown = publish(evidence, evidence.audit.small_cell)
    text = json.dumps(to_json(shown), indent=1, allow_nan=False) + "\n"
    (folder / EVIDENCE).write_text(text, encoding="utf-8")
    for language in config.languages:
        page = render(shown, language, config.languages)
        (folder / page_name(language, config.languages, "html")).write_text(page, encoding="utf-8")
        if writes_pdf(config.pdf):
            write_pdf(page, folder / page_name(language, config.languages, "pdf"))
    if config.secure_environment:
        write_exchange(folder / EXCHANGE, shown, config.statement)
    seal(folder, config.key)


# ------------------------------------------------------------------- PDF


def writes_pdf(setting: Literal["auto", "on", "off"]) -> bool:
    """Return whether PDF is written: ``auto`` means if WeasyPrint is installed.

    Raises
    ------
    PolicyError
        PDF is asked for, and WeasyPrint is not installed.
    """
    installed = importlib.util.find_spec("weasyprint") is not None
    if setting == "on" and not installed:
        raise PolicyError('dossier.pdf: WeasyPrint is not installed; pip install "reticent[dossier]"')
    return installed and setting != "off"


def write_pdf(page: str, file: Path) -> None:
    """Write an HTML page as a PDF file; no URL is fetched."""
    from weasyprint import HTML  # its messages concern CSS that has no meaning on paper

    for name in ("weasyprint", "fontTools"):
        logging.getLogger(name).setLevel(logging.ERROR)
    HTML(string=page, url_fetcher=_fetch_nothing).write_pdf(file, pdf_variant="pdf/ua-1", identifier=b"reticent")


def _fetch_nothing(url: str, *_: object, **__: object) -> dict[str, object]:
    """Raise `ValueError` for any URL, so that WeasyPrint fetches none."""
    raise ValueError("a dossier fetches nothing")
