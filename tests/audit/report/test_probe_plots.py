"""Figures of probes: what stands on one line differs in nothing but what the axis says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fixtures.audits import estimate, filled

from reticent.audit.evidence.probe import ProbeEvidence
from reticent.audit.report import probe_plots


def probed(name: str, objective: str, millions: float | None, said: float) -> dict[str, Any]:
    result = {"target": "phone", "level": "twin", "n": 40, "num_templates": 1, "likelihood": {},
              "exact_match": estimate(said, said - 0.01, said + 0.01)}  # fmt: skip
    number = None if millions is None else round(millions * 1e6)
    return {"name": name, "recipe": name, "objective": objective, "num_parameters": number, "results": [result]}


def lines_of(monkeypatch: pytest.MonkeyPatch, *models: dict[str, Any]) -> dict[str, list[tuple[float, float]]]:
    """Points of each line of the panel of sizes; nothing where it is not drawn."""
    drawn: dict[str, list[tuple[float, float]]] = {}

    def keep(figure: Any, name: str, label: str, *_: Any) -> str:
        if name == "fig-probe-sizes":
            (axis,) = figure.axes
            for bar, text in zip(axis.containers, axis.get_legend().get_texts(), strict=True):
                drawn[text.get_text()] = [tuple(np.round(point, 3)) for point in bar.lines[0].get_xydata()]
        return "<svg></svg>"

    monkeypatch.setattr(probe_plots, "to_svg", keep)
    probe_plots.sweep_panels(filled(ProbeEvidence, {"models": list(models)}))
    return drawn


def test_models_of_other_recipes_and_objectives_are_not_on_one_line_of_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    bert = [probed("mlm of bert", "mlm", 110, 0.1), probed("ppmlm of bert", "mlm", 110, 0.0)]
    small = [probed("clm of small", "clm", 82, 0.3), probed("ppclm of small", "clm", 82, 0.01)]
    large = [probed("clm of large", "clm", 124, 0.6), probed("ppclm of large", "clm", 124, 0.02)]
    assert lines_of(monkeypatch, *bert, *small) == {}  # a masked and a causal model: no size to compare
    assert lines_of(monkeypatch, *bert, *small, *large) == {
        "clm, phone, twin": [(82, 0.3), (124, 0.6)],
        "ppclm, phone, twin": [(82, 0.01), (124, 0.02)],
    }


def test_models_of_the_command_line_are_one_line_if_no_two_are_of_one_size(monkeypatch: pytest.MonkeyPatch) -> None:
    large, small, unknown = (
        probed(*m) for m in (("a", "clm", 124, 0.6), ("b", "clm", 82, 0.3), ("c", "clm", None, 0.9))
    )
    assert lines_of(monkeypatch, large, small, unknown) == {"phone, twin": [(82, 0.3), (124, 0.6)]}
    assert lines_of(monkeypatch, large, small, probed("d", "clm", 82, 0.0)) == {}
