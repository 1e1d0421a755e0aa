"""Figures of probes: what stands on one line differs in nothing but what the axis says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fixtures.audits import estimate, filled
from matplotlib.legend import Legend

from reticent.audit.evidence.probe import ProbeEvidence
from reticent.audit.report import probe_plots
from reticent.audit.report.figure import LOOKS


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


def test_a_recipe_has_its_own_look_in_a_probe_of_several_sections_too() -> None:
    models = [probed(f"{recipe} of bert", "mlm", 110, 0.1) for recipe in ("base", "mlm", "ppmlm")]
    looks = probe_plots._looks(filled(ProbeEvidence, {"models": models}))
    assert [look.slug for _, look in looks] == ["base", "plain", "protected"]


def test_the_key_of_the_factors_lies_outside_of_the_axes(monkeypatch: pytest.MonkeyPatch) -> None:
    # A mark of the key among the marks would be read as one of them.
    figures: list[Any] = []
    monkeypatch.setattr(probe_plots, "to_svg", lambda figure, *_: figures.append(figure) or "<svg></svg>")
    names = ("base of bert", "mlm of bert", "ppmlm-surrogate of a")
    models = [probed(name, "mlm", 110, 0.1) for name in names]
    for entry in models:
        entry["results"][0]["likelihood"] = {"factor": estimate(12.0, 8.0, 20.0)}
    probe_plots.factor_panels(filled(ProbeEvidence, {"models": models}))
    (figure,) = figures
    figure.draw_without_rendering()
    (axis,), (key,) = figure.axes, list(figure.findobj(Legend))
    assert [text.get_text() for text in key.get_texts()] == list(names)
    assert not key.get_window_extent().overlaps(axis.get_window_extent())
    width, height = figure.bbox.size
    assert 0 <= key.get_window_extent().x0 < key.get_window_extent().x1 <= width
    assert 0 <= key.get_window_extent().y0 < height


def test_a_model_has_the_same_look_in_the_sweeps_of_its_soft_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    figures: dict[str, Any] = {}
    monkeypatch.setattr(
        probe_plots, "to_svg", lambda figure, name, *_: figures.setdefault(name, figure) and "<svg></svg>"
    )

    def soft(target: str) -> dict[str, Any]:
        rows = [{"sweep": "num_tokens", "num_tokens": number, "factor": estimate(2.0)} for number in (5, 50)]
        return {"target": target, "level": "twin", "num_tokens": 20, "factor": estimate(2.0), "sweeps": rows}

    def colours(*targets: str) -> list[str]:
        figures.clear()
        models = [
            probed(name, "clm", 110, 0.1) | {"soft_prompts": list(map(soft, targets))} for name in ("clm", "ppclm")
        ]
        probe_plots.soft_sweep_panels(filled(ProbeEvidence, {"models": models}))
        (axis,) = figures["fig-probe-soft-num_tokens"].axes
        return [bar.lines[0].get_color() for bar in axis.containers]

    assert colours("phone") == [LOOKS["plain"].light, LOOKS["protected"].light]
    assert len(set(colours("phone", "email"))) == 4  # what tells the lines apart is more than the model
