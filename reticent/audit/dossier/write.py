"""The folder of a dossier: evidence, pages and their seal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from reticent.audit.dossier.page import page_name, render
from reticent.audit.dossier.pdf import write_pdf, writes_pdf
from reticent.audit.dossier.seal import EVIDENCE, seal
from reticent.audit.evidence.json_form import to_json
from reticent.audit.evidence.rules import publish
from reticent.core.errors import ArtifactError

if TYPE_CHECKING:
    from reticent.audit.dossier.config import DossierConfig
    from reticent.audit.evidence.dossier import DossierEvidence

__all__ = ["write_dossier"]


def write_dossier(folder: Path, evidence: DossierEvidence, config: DossierConfig) -> None:
    """Write ``evidence.json``, the pages and their seal into an empty folder; equal input, equal bytes.

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
    seal(folder, config.key)
