"""The example of the page on deciding is written from a dossier, and none of its numbers by hand."""

from __future__ import annotations

import re

import pytest
from fixtures.audits import tiny_audit
from fixtures.dossiers import dossier_evidence

from reticent.audit.report.risk_text import cells_of, shown_models
from reticent.audit.texts import ENGLISH, NO_BREAK
from reticent.core.errors import ArtifactError
from tools.decide import PAGE, example, written


def test_each_model_has_its_deciding_numbers_and_a_page_is_written_again_as_it_is() -> None:
    models = shown_models(dossier_evidence(tiny_audit()).audit, ENGLISH)
    text = example(models)
    for model in models:
        assert model.risks
        pairs = zip(cells_of(model, ENGLISH), model.risks.results, strict=True)
        deciding = [cell for cell, r in pairs if r.relevant and r.outcome == model.risks.outcome and cell.value]
        assert all(f"{cell.title} {cell.value}".replace(NO_BREAK, " ") in text for cell in deciding)
        assert re.search(rf"\b{model.letter}\b", text)
    assert "Nothing in the training of A and C protects anyone." in text
    page = PAGE.read_text(encoding="utf-8")
    assert written(written(page, text), text) == written(page, text)
    assert written(page, text).partition("<!--")[0] == page.partition("<!--")[0]
    with pytest.raises(ArtifactError, match="marks"):
        written("no marks", text)
