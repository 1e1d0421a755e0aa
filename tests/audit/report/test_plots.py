"""The figures: they render from tiny evidence, whole, the same each time, and can be read without colour."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reticent.audit.report import corpus_plots, figure, membership_plots, plots

NUM_MEMBERS, NUM_HELDOUT = 40, 30


def estimate(value: float | None, low: float | None = None, high: float | None = None, n: int = 40) -> dict[str, Any]:
    if value is not None and low is None:
        low, high = value - 0.05, value + 0.05
    return {"value": value, "low": low, "high": high, "n": n, "unit": "individuals", "method": "by hand", "level": 0.95}


def leakage(leaked: int, total: int = 200, n: int = NUM_MEMBERS) -> dict[str, Any]:
    """One part of the privacy section; nothing leaked has the exact bound that the audit gives."""
    rate = leaked / total
    types = estimate(1 - rate, max(1 - rate - 0.04, 0.0), min(1 - rate + 0.04, 1.0), n)
    if leaked == 0:
        types = estimate(1.0, 0.9279, 1.0, n)
    return {
        "types": types, "occurrences": estimate(0.9, 0.85, 0.95, n), "individuals": estimate(0.5, 0.35, 0.65, n),
        "in_place": estimate(0.95, 0.92, 0.98, n),
        "num_identifiers": total, "num_leaked": leaked, "num_unpredictable": 0,
    }  # fmt: skip


def calls(called: int, hit: int) -> dict[str, Any]:
    """Low-cost membership: ``called`` people are called members, ``hit`` of them rightly."""
    precision = estimate(None, n=0) if called == 0 else estimate(hit / called, 0.0, 1.0, called)
    recall, f1 = hit / NUM_MEMBERS, 2 * hit / (called + NUM_MEMBERS)
    n = NUM_MEMBERS + NUM_HELDOUT
    return {
        "precision": precision,
        "recall": estimate(recall, 0.0, recall + 0.08, NUM_MEMBERS),
        "f1": estimate(f1, 0.0, f1 + 0.09, n),
    }


def model(recipe: str, objective: str, epoch: int, leaked: int = 20, auc: float = 0.6, **more: Any) -> dict[str, Any]:
    accuracy = "ordinary_word_accuracy" if objective == "mlm" else "ordinary_token_accuracy"
    every = "masked_word_accuracy" if objective == "mlm" else "token_accuracy"
    side = {accuracy: estimate(0.3 + epoch / 100), every: estimate(0.25 + epoch / 100)}
    if objective == "clm":
        side |= {"ordinary_perplexity": estimate(12.0, 11.0, 13.0), "perplexity": estimate(20.0, 19.0, 21.0)}
    rate = leaked / 200
    excess = {
        "members": estimate(rate, rate / 2, rate * 1.5 or 0.072),
        "heldout": estimate(0.05, 0.02, 0.08),
        "excess": estimate(rate - 0.05, rate - 0.09, rate - 0.01),
    }
    steps = np.linspace(0, 1, 31)
    measured = {
        "auc": estimate(auc, auc - 0.1, min(auc + 0.1, 1.0), NUM_MEMBERS + NUM_HELDOUT),
        "tpr_at_fpr": {"0.01": None, "0.001": None},
        "roc": {"fpr": [float(x) for x in steps], "tpr": [float(x) for x in steps**0.5]}, "unit": "individual",
        "num_members": NUM_MEMBERS, "num_nonmembers": NUM_HELDOUT,
    }  # fmt: skip
    called = leaked // 5
    ledger = {"eligible": 900, "protected": 0 if recipe == objective else 300, "targets": 900, "violations": 0}
    shares = [{"share": share, **calls(called + 8, called)} for share in (1.0, 0.5, 0.1)]
    return {
        "model": {"mlm": "bert", "clm": "gpt2"}[objective],
        "name": recipe, "recipe": recipe, "objective": objective, "epoch": epoch,
        "ledger": None if recipe == "base" else ledger,
        "utility": {"heldout": side, "members": side},
        "privacy": {part: leakage(leaked) for part in ("both", "direct", "indirect")},
        "privacy_by_n": {"1": {**leakage(leaked)["types"], "num_identifiers": 200, "num_leaked": leaked},
                         "2": {**leakage(leaked + 9, 300)["types"], "num_identifiers": 300, "num_leaked": leaked + 9}},
        "excess": dict.fromkeys(("both", "direct", "indirect"), excess),
        "membership": {"loss": measured, "zlib": measured},
        "low_cost": {**calls(called + 8, called), "by_graph_share": shares},
        **more,
    }  # fmt: skip


def near_the_line(curve: dict[str, Any]) -> dict[str, Any]:
    """What the documents hold by n, by support and by set, as `corpus_statistics` and the stage say it."""
    kinds = {"distinct": 700, "occurrences": 900, "occurrences_direct": 400, "per_individual": curve}
    kept = {"distinct": 500, "occurrences": 8100}
    rows = [{"n": n, "all": {**kinds, "distinct": 700 * n}, "minimal": kinds, "kept": kept} for n in (1, 2, 3)]
    share = {**estimate(0.0, 0.0, 0.1, n=200), "unit": "individual", "method": "Clopper-Pearson"}
    return {
        "unit": "individual",
        "identifiers_by_n": rows,
        "identifying_words": {part: {"distinct": 690, "occurrences": 930} for part in ("direct", "indirect", "both")},
        "margin": [{"n": n, "support": s, "distinct": 600 // s, "occurrences": 900} for n in (1, 2, 3, 4)
                   for s in range(1, 7)],
        "unicity": [{"m": m, "share": {**share, "value": 0.1 * (m - 1), "high": 0.1 * m}} for m in range(1, 11)],
    }  # fmt: skip


def tiny_audit() -> dict[str, Any]:
    """A whole audit of two objectives with three recipes each, by hand."""
    models = []
    for objective in ("mlm", "clm"):
        models.append(model("base", objective, 0, leaked=10, auc=0.5))
        for recipe, leaked in ((objective, 90), (f"pp{objective}", 12)):
            models += [model(recipe, objective, epoch, leaked=max(leaked * epoch // 16, 6)) for epoch in (4, 16)]
    curve = {"x": [float(x) for x in range(1, 41)], "y": [x / 40 for x in range(1, 41)]}
    return {
        "format": "reticent.audit/1",
        "created": "2026-01-02T03:04:05+00:00",
        "versions": {"torch": "2.15.0", "numpy": "2.4.6"},
        "settings": {
            "seed": 0, "split": {"heldout": 0.4, "by": "auto"}, "train": {"learning_rate": 0.002, "num_epochs": 16},
        },
        "corpus": {
            "num_documents": 80, "num_words": 9000, "num_distinct_words": 1200, "k": 2, "n": 1, "policy": "all",
            "share_types_identifying": 0.57, "share_occurrences_identifying": 0.104,
            "protected": {"direct": 0.2, "indirect": 0.1, "both": 0.25}, "retention": {"all": 0.75},
            "identifiers_per_individual": {"direct": curve, "indirect": curve, "both": curve},
            "words_per_individual": curve,
            "individuals_per_word": {
                "distinct": {"x": [1.0, 2.0, 40.0], "y": [0.57, 0.8, 1.0]},
                "occurrences": {"x": [1.0, 2.0, 40.0], "y": [0.1, 0.3, 1.0]},
            },
            **near_the_line(curve),
            "detected": [{"label": "NAME", "detector": "rules", "num_spans": 90, "num_documents": 80,
                          "num_individuals": 70},
                         {"label": "NAME", "detector": "gold", "num_spans": 95, "num_documents": 79,
                          "num_individuals": 69},
                         {"label": "CITY", "detector": "gold", "num_spans": 30, "num_documents": 25,
                          "num_individuals": 20}],
            "num_individuals": {"members": NUM_MEMBERS, "heldout": NUM_HELDOUT, "reference": 0},
        },
        "models": models,
    }  # fmt: skip


def two_berts(one: str = "bert", other: str = "camembert") -> dict[str, Any]:
    """The same with a second masked section, after the causal one: the same recipes, other epochs, other numbers."""
    audit = tiny_audit()
    for entry in audit["models"]:
        if entry["objective"] == "mlm":
            entry["model"] = one
    audit["models"] += [
        model("base", "mlm", 0, leaked=14, auc=0.51, model=other),
        *(model("mlm", "mlm", epoch, leaked=60, auc=0.65, model=other) for epoch in (2, 8)),
        model("ppmlm", "mlm", 8, leaked=16, auc=0.55, model=other),
    ]
    return audit


def all_panels(audit: dict[str, Any]) -> dict[str, list[str]]:
    models = audit["models"]
    return {
        **corpus_plots.corpus_panels(audit["corpus"]),
        "tradeoff": plots.tradeoff_panels(models),
        "excess": plots.excess_panels(models),
        "ngrams": plots.ngram_panels(models),
        "low_cost": membership_plots.low_cost_panels(models, 0.7),
        "auc": membership_plots.auc_panels(models, ["loss", "zlib"]),
        "roc": membership_plots.roc_panels(models, "loss"),
    }


@pytest.fixture(scope="module")
def panels() -> dict[str, list[str]]:
    return all_panels(tiny_audit())


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Every matplotlib figure that is drawn from now on, by the name of its panel."""
    figures: dict[str, Any] = {}

    def keep(drawn_figure: Any, name: str, label: str) -> str:
        drawn_figure.draw_without_rendering()
        figures[name] = drawn_figure
        return f"<svg>{name}</svg>"

    for module in (corpus_plots, plots, membership_plots):
        monkeypatch.setattr(module, "to_svg", keep)
    return figures


def test_every_figure_renders_from_tiny_evidence(panels: dict[str, list[str]]) -> None:
    expected = {
        "identifiers": 3,
        "by_n": 3,
        "margin": 3,
        "unicity": 1,
        "tradeoff": 2,
        "excess": 2,
        "ngrams": 2,
        "low_cost": 6,
        "auc": 2,
        "roc": 2,
    }
    assert {name: len(svgs) for name, svgs in panels.items()} == expected
    for svg in (svg for svgs in panels.values() for svg in svgs):
        root = ElementTree.fromstring(svg)
        assert root.attrib["role"] == "img"
        assert len(root.attrib["aria-label"]) > 40
        assert root.findall(".//text"), "text stays text"
        assert not re.search(r"https?:|xmlns|<script|<style|<metadata|<image|@import", svg)


def test_an_alternative_text_says_the_numbers(panels: dict[str, list[str]]) -> None:
    label = ElementTree.fromstring(panels["tradeoff"][1]).attrib["aria-label"]
    assert (
        "clm: from utility 0.34, Privacy 0.89 after 4 epochs to utility 0.46, Privacy 0.55 (95 % interval 0.51 to 0.59)"
        in label
    )
    assert "area 0.60 (95 % interval 0.50 to 0.70)" in ElementTree.fromstring(panels["roc"][0]).attrib["aria-label"]


def test_panels_are_the_same_each_time(panels: dict[str, list[str]]) -> None:
    assert all_panels(tiny_audit()) == panels


def test_ids_are_unique_over_all_panels(panels: dict[str, list[str]]) -> None:
    ids = [found for svgs in panels.values() for svg in svgs for found in re.findall(r'\bid="([^"]+)"', svg)]
    assert len(ids) > 100
    assert len(ids) == len(set(ids))
    for svg in (svg for svgs in panels.values() for svg in svgs):
        wanted = set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', svg))
        assert {a or b for a, b in wanted} <= set(re.findall(r'\bid="([^"]+)"', svg))


@pytest.mark.parametrize(
    "name", ["a-recipe-whose-name-is-far-too-long-for-any-axis", "$\\frac{1}{", "名前の長いレシピ"]
)
@pytest.mark.filterwarnings("ignore:Glyph")
def test_no_text_is_cut_off(drawn: dict[str, Any], name: str) -> None:
    audit = tiny_audit()
    for entry in audit["models"]:
        if name and entry["recipe"].startswith("pp"):
            entry["recipe"] = name
            entry["membership"] = {"loss": entry["membership"]["loss"], name: entry["membership"]["zlib"]}
    all_panels(audit)
    assert len(drawn) == 26
    for panel, shown in drawn.items():
        box, (width, height) = shown.get_tightbbox(), shown.get_size_inches()
        assert box.x0 >= -0.01, panel
        assert box.y0 >= -0.01, panel
        assert box.x1 <= width + 0.01, panel
        assert box.y1 <= height + 0.01, panel


@pytest.mark.parametrize("name", ["a", "CAMEMBERT-LARGE-OF-THE-MEDICAL-WARD"])
def test_no_name_of_a_section_is_cut_off(drawn: dict[str, Any], name: str) -> None:
    quiet = two_berts(name, f"{name}-2")
    for entry in quiet["models"]:
        entry["utility"]["heldout"] = dict.fromkeys(entry["utility"]["heldout"], estimate(0.02, 0.01, 0.03))
    for audit in (two_berts(name, f"{name}-2"), quiet):
        drawn.clear()
        all_panels(audit)
        assert len(drawn) == 34
        for panel, shown in drawn.items():
            box, (width, _) = shown.get_tightbbox(), shown.get_size_inches()
            assert box.x1 <= width + 0.01, panel
            assert box.x0 >= -0.01, panel
    titles = [drawn[f"fig-{kind}-mlm-{n}"].axes[0].get_title("left") for kind in ("auc", "lowcost") for n in (1, 2)]
    assert len(set(titles)) == 4


def test_sections_of_one_objective_are_drawn_apart_and_by_name() -> None:
    panels = all_panels(two_berts())
    expected = {
        "identifiers": 3,
        "by_n": 3,
        "margin": 3,
        "unicity": 1,
        "tradeoff": 3,
        "excess": 3,
        "ngrams": 3,
        "low_cost": 9,
        "auc": 3,
        "roc": 3,
    }
    assert {name: len(svgs) for name, svgs in panels.items()} == expected
    labels = {name: [ElementTree.fromstring(svg).attrib["aria-label"] for svg in svgs] for name, svgs in panels.items()}
    one, other, causal = labels["tradeoff"]
    assert one.startswith("Utility against Privacy, Masked (BERT-like): bert.")
    assert other.startswith("Utility against Privacy, Masked (BERT-like): camembert.")
    assert causal.startswith("Utility against Privacy, Causal (GPT-like). ")
    assert "mlm: from utility 0.34, Privacy 0.89 after 4 epochs to utility 0.46, Privacy 0.55" in one
    assert "mlm: from utility 0.32, Privacy 0.70 after 2 epochs to utility 0.38, Privacy 0.70" in other
    assert ["bert" in text for text in labels["low_cost"]] == [True] * 6 + [False] * 3
    assert [("area 0.60" in text, "area 0.65" in text) for text in labels["roc"]] == [
        (True, False), (False, True), (True, False),
    ]  # fmt: skip
    ids = [found for svgs in panels.values() for svg in svgs for found in re.findall(r'\bid="([^"]+)"', svg)]
    assert len(ids) == len(set(ids))


def test_the_readme_figure_has_a_panel_for_each_section(tmp_path: Path) -> None:
    plots.plot_utility_privacy(two_berts(), tmp_path / "three.png")
    plots.plot_utility_privacy(tiny_audit(), tmp_path / "two.png")
    three, two = (int.from_bytes((tmp_path / f"{name}.png").read_bytes()[16:20], "big") for name in ("three", "two"))
    assert three > 1.4 * two


def test_the_panels_of_a_figure_share_their_axes(drawn: dict[str, Any]) -> None:
    audit = tiny_audit()
    for entry in audit["models"]:
        if entry["objective"] == "mlm":  # a model to which nothing happened, at other epochs
            entry |= model(entry["recipe"], "mlm", 2 * entry["epoch"], leaked=0)
    all_panels(audit)
    for name in ("tradeoff", "excess", "roc-loss", "epochs", "shares", "auc"):
        masked, causal = (drawn[f"fig-{name}-{objective}"].axes[0] for objective in ("mlm", "clm"))
        assert masked.get_xlim() == causal.get_xlim(), name
        if name not in ("excess", "auc"):  # whose rows are names
            assert masked.get_ylim() == causal.get_ylim(), name


def test_an_empty_panel_says_why(panels: dict[str, list[str]]) -> None:
    quiet = [model("base", "mlm", 0, leaked=0), model("mlm", "mlm", 4, leaked=0)]
    for entry in quiet:
        entry["utility"]["heldout"]["ordinary_word_accuracy"] = estimate(0.02, 0.01, 0.03)
        entry["low_cost"] = {**calls(0, 0), "by_graph_share": [{"share": 1.0, **calls(0, 0)}]}
        entry["excess"]["both"]["excess"] = estimate(0.0, -0.05, 0.05)
    assert "little was learned" in plots.tradeoff_panels(quiet)[0]
    assert "every F1 is 0" in membership_plots.low_cost_panels(quiet)[0]
    assert "no excess measured" in plots.excess_panels(quiet)[0]
    assert "little was learned" not in panels["tradeoff"][0]


def test_nothing_to_draw_gives_no_panel() -> None:
    bare = {
        key: value
        for key, value in model("clm", "clm", 4).items()
        if key in ("recipe", "objective", "epoch", "utility", "privacy")
    }
    assert corpus_plots.corpus_panels({"k": 2}) == {"identifiers": [], "by_n": [], "margin": [], "unicity": []}
    for models in ([], [bare]):
        assert plots.excess_panels(models) == []
        assert plots.ngram_panels(models) == []
        assert membership_plots.low_cost_panels(models) == []
        assert membership_plots.roc_panels(models, "loss") == []
        assert membership_plots.auc_panels(models, ["loss"]) == []
    assert plots.tradeoff_panels([]) == []
    assert len(plots.tradeoff_panels([bare])) == 1


def test_a_bound_is_drawn_hollow() -> None:
    filled, bound = estimate(0.5), {**estimate(0.5), "bound": "below"}
    assert figure.faces_of([filled, bound], "#123456") == ["#123456", figure.PAPER]


def test_recipes_are_told_apart_without_colour() -> None:
    looks = list(figure.LOOKS.values())
    assert len({look.marker for look in looks}) == len(looks)
    assert len({str(look.line) for look in looks}) == len(looks)
    assert len({look.glyph for look in looks}) == len(looks)
    families = [
        figure.look_of(r).slug
        for r in ("base", "mlm", "clma", "dppmlm", "ippclm", "ppclm", "dp-mlm", "goldfish", "ppmlma")
    ]
    assert families == ["base", "plain", "pseudo", "direct", "indirect", "protected", "dp", "other", "other"]


def luminance(colour: str) -> float:
    parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return float(np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize(("side", "paper"), [("light", "#ffffff"), ("dark", "#14181d")])
def test_every_colour_stands_out_from_its_background(side: str, paper: str) -> None:
    for name, look in figure.LOOKS.items():
        bright, dim = sorted((luminance(getattr(look, side)), luminance(paper)), reverse=True)
        assert (bright + 0.05) / (dim + 0.05) >= 2.95, name


def test_drawing_leaves_matplotlib_as_it_was() -> None:
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    plots.tradeoff_panels(tiny_audit()["models"])
    assert dict(mpl.rcParams) == before


def test_the_readme_figure_is_a_small_png_and_the_same_each_time(tmp_path: Path) -> None:
    paths = [tmp_path / "one.png", tmp_path / "two.png"]
    for path in paths:
        plots.plot_utility_privacy(tiny_audit(), path)
    one, two = (path.read_bytes() for path in paths)
    assert one == two
    assert one.startswith(b"\x89PNG")
    assert len(one) < 300 * 1024
    width, height = (int.from_bytes(one[i : i + 4], "big") for i in (16, 20))
    assert width >= 1400
    assert height >= 500
