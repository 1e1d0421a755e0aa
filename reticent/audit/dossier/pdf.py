"""The PDF of a dossier: PDF/UA-1, tagged, by WeasyPrint, from the same page as the HTML."""

from __future__ import annotations

import importlib.util
import logging
from pathlib import Path
from typing import Literal

from reticent.core.errors import PolicyError

__all__ = ["write_pdf", "writes_pdf"]


def writes_pdf(setting: Literal["auto", "on", "off"]) -> bool:
    """Return whether PDF is written: ``auto`` means where WeasyPrint is installed.

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
    """Write a page as PDF. Nothing is fetched, since the page holds no address."""
    from weasyprint import HTML  # its messages concern CSS that has no meaning on paper

    for name in ("weasyprint", "fontTools"):
        logging.getLogger(name).setLevel(logging.ERROR)
    HTML(string=page, url_fetcher=_fetch_nothing).write_pdf(file, pdf_variant="pdf/ua-1", identifier=b"reticent")


def _fetch_nothing(url: str, *_: object, **__: object) -> dict[str, object]:
    raise ValueError("a dossier fetches nothing")
