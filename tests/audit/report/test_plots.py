"""The figures: they render from tiny evidence, whole, the same each time, and can be read without colour."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from fixtures.audits import (
    as_estimate,
    calls,
    entries,
    estimate,
    evidence,
    filled,
    model,
    tiny_audit,
)

from reticent.audit.evidence.corpus import CorpusEvidence
from reticent.audit.report import corpus_plots, epoch_plots, epsilon_plot, figure, membership_plots, plots
from reticent.audit.texts import Texts

pytestmark = pytest.mark.heavy


Panels = dict[str, list[str]]
OF_CORPUS = ("identifiers", "by_n", "margin", "unicity")


def all_panels(audit: dict[str, Any]) -> Panels:
    return {**corpus_panels(audit), **model_panels(audit)}


def corpus_panels(audit: dict[str, Any]) -> Panels:
    corpus = evidence(audit).corpus
    return {name: corpus_plots.corpus_panels(corpus, name) for name in OF_CORPUS}


def model_panels(audit: dict[str, Any]) -> Panels:
    """Without the panels of the corpus, which no model changes."""
    models = evidence(audit).models
    return {
        "tradeoff": plots.tradeoff_panels(models),
        "excess": plots.excess_panels(models),
        "ngrams": plots.ngram_panels(models),
        "low_cost": membership_plots.low_cost_panels(models, 0.7),
        "auc": membership_plots.auc_panels(models, ["loss", "zlib"]),
        "roc": membership_plots.roc_panels(models, "loss"),
        "precision": membership_plots.precision_panels(models, "loss"),
    }


@pytest.fixture(scope="module")
def panels() -> Panels:
    return all_panels(tiny_audit())


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Every matplotlib figure that is drawn from now on, by the name of its panel."""
    figures: dict[str, Any] = {}

    def keep(drawn_figure: Any, name: str, label: str, *_: Any) -> str:
        drawn_figure.draw_without_rendering()
        figures[name] = drawn_figure
        return f"<svg>{name}</svg>"

    for module in (corpus_plots, epoch_plots, epsilon_plot, plots, membership_plots):
        monkeypatch.setattr(module, "to_svg", keep)
    return figures


def test_a_sweep_has_utility_and_membership_against_epsilon_beside_the_plain_model(drawn: dict[str, Any]) -> None:
    arms = [(0.5, "dp-clm-epsilon-0.5"), (8, "dp-clm-epsilon-8"), (8, "other")]
    found = entries(model("base", "clm", 0, auc=0.5), model("clm", "clm", 16, auc=0.7))
    for epsilon, recipe in arms:
        (one,) = entries(model(recipe, "clm", 16, auc=0.5 + epsilon / 100))
        found.append(replace(one, guarantee=f"epsilon {epsilon:.2f} at delta 1e-5 per individual"))
    assert epsilon_plot.epsilon_panels(found[:3]) == []
    assert len(epsilon_plot.epsilon_panels(found)) == 2
    for name in ("utility", "loss"):
        (axis,) = drawn[f"fig-epsilon-{name}-clm"].axes
        assert [label.get_text() for label in axis.get_xticklabels()] == ["0.5", "8"]
        (points,) = [marks.get_offsets() for marks in axis.collections if len(marks.get_offsets()) == 2]
        assert points[:, 0].tolist() == [0.5, 8.0]
    assert points[:, 1].tolist() == pytest.approx([0.505, 0.58])
    assert 0.7 in [line.get_ydata()[0] for line in axis.lines]


def test_every_figure_renders_from_tiny_evidence(panels: Panels) -> None:
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
        "precision": 2,
    }
    assert {name: len(svgs) for name, svgs in panels.items()} == expected
    for svg in (svg for svgs in panels.values() for svg in svgs):
        root = ElementTree.fromstring(svg)
        assert root.attrib["role"] == "img"
        assert len(root.attrib["aria-label"]) > 40
        assert root.findall(".//text"), "text stays text"
        assert not re.search(r"https?:|xmlns|<script|<style|<metadata|<image|@import", svg)


def test_an_alternative_text_says_the_numbers(panels: Panels) -> None:
    label = ElementTree.fromstring(panels["tradeoff"][1]).attrib["aria-label"]
    assert (
        "clm: from utility 0.34, Privacy 0.89 at epoch 4 to utility 0.46, Privacy 0.55 (95 % interval 0.51 to 0.59)"
        in label
    )
    assert "area 0.60 (95 % interval 0.50 to 0.70)" in ElementTree.fromstring(panels["roc"][0]).attrib["aria-label"]


def test_precision_is_drawn_from_the_roc_curve_among_as_many_members_as_others(drawn: dict[str, Any]) -> None:
    """The curve has TPR = sqrt(FPR), so a precision of 1 / (1 + recall); nobody passes the first threshold."""
    membership_plots.precision_panels(evidence(tiny_audit()).models, "loss")
    lines = [line for figure in drawn.values() for line in figure.axes[0].get_lines() if len(line.get_xdata()) > 2]
    assert lines
    for line in lines:
        recall, precision = (np.asarray(values) for values in (line.get_xdata(), line.get_ydata()))
        assert recall.min() > 0
        np.testing.assert_allclose(precision, 1 / (1 + recall))


def test_ids_are_unique_over_all_panels(panels: Panels) -> None:
    ids = [found for svgs in panels.values() for svg in svgs for found in re.findall(r'\bid="([^"]+)"', svg)]
    assert len(ids) > 100
    assert len(ids) == len(set(ids))
    for svg in (svg for svgs in panels.values() for svg in svgs):
        wanted = set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', svg))
        assert {a or b for a, b in wanted} <= set(re.findall(r'\bid="([^"]+)"', svg))


@pytest.mark.filterwarnings("ignore:Glyph")
def test_no_text_is_cut_off(drawn: dict[str, Any]) -> None:
    audit, name = tiny_audit(), "a-recipe-whose-name-is-far-too-long-for-any-axis, $\\frac{1}{, 名前"
    for entry in audit["models"]:
        if entry["recipe"].startswith("pp"):
            entry["recipe"] = name
            entry["membership"] = {"loss": entry["membership"]["loss"], name: entry["membership"]["zlib"]}
    model_panels(audit)
    assert len(drawn) == 18
    assert_whole(drawn)


def test_no_text_about_the_corpus_is_cut_off(drawn: dict[str, Any]) -> None:
    corpus_panels(tiny_audit())
    assert len(drawn) == 10
    assert_whole(drawn)


def assert_whole(drawn: dict[str, Any]) -> None:
    for panel, shown in drawn.items():
        box, (width, height) = shown.get_tightbbox(), shown.get_size_inches()
        assert box.x0 >= -0.01, panel
        assert box.y0 >= -0.01, panel
        assert box.x1 <= width + 0.01, panel
        assert box.y1 <= height + 0.01, panel


def test_the_panels_of_a_figure_share_their_axes(drawn: dict[str, Any]) -> None:
    audit = tiny_audit()
    for entry in audit["models"]:
        if entry["objective"] == "mlm":  # a model to which nothing happened, at other epochs
            entry |= model(entry["recipe"], "mlm", 2 * entry["epoch"], leaked=0)
    model_panels(audit)
    for name in ("tradeoff", "excess", "roc-loss", "epochs", "shares", "auc"):
        masked, causal = (drawn[f"fig-{name}-{objective}"].axes[0] for objective in ("mlm", "clm"))
        assert masked.get_xlim() == causal.get_xlim(), name
        if name not in ("excess", "auc"):  # whose rows are names
            assert masked.get_ylim() == causal.get_ylim(), name


def test_an_empty_panel_says_why(panels: Panels) -> None:
    quiet = [model("base", "mlm", 0, leaked=0), model("mlm", "mlm", 4, leaked=0)]
    for entry in quiet:
        entry["utility"]["heldout"]["ordinary_word_accuracy"] = estimate(0.02, 0.01, 0.03)
        entry["low_cost"] = {**calls(0, 0), "by_graph_share": [{"share": 1.0, **calls(0, 0)}]}
        entry["excess"]["both"]["excess"] = estimate(0.0, -0.05, 0.05)
    assert "little was learned" in plots.tradeoff_panels(entries(*quiet))[0]
    assert "every F1 is 0" in membership_plots.low_cost_panels(entries(*quiet))[0]
    assert "no excess measured" in plots.excess_panels(entries(*quiet))[0]
    assert "little was learned" not in panels["tradeoff"][0]


def test_an_f1_that_is_not_known_is_not_said_to_be_0() -> None:
    unknown = model("mlm", "mlm", 4)
    unknown["low_cost"] = {**calls(0, 0), "f1": estimate(None, n=70), "by_graph_share": []}
    assert "every F1 is 0" not in membership_plots.low_cost_panels(entries(unknown))[0]


def test_nothing_to_draw_gives_no_panel() -> None:
    bare = {
        key: value
        for key, value in model("clm", "clm", 4).items()
        if key in ("name", "recipe", "objective", "epoch", "utility", "privacy")
    }
    corpus = filled(CorpusEvidence, {"k": 2})
    assert [corpus_plots.corpus_panels(corpus, name) for name in OF_CORPUS] == [[], [], [], []]
    for models in ([], entries(bare)):
        assert plots.excess_panels(models) == []
        assert plots.ngram_panels(models) == []
        assert membership_plots.low_cost_panels(models) == []
        assert membership_plots.roc_panels(models, "loss") == []
        assert membership_plots.precision_panels(models, "loss") == []
        assert membership_plots.auc_panels(models, ["loss"]) == []
    assert plots.tradeoff_panels([]) == []
    assert len(plots.tradeoff_panels(entries(bare))) == 1


def test_a_bound_is_drawn_hollow() -> None:
    filled, bound = estimate(0.5), {**estimate(0.5), "bound": "below"}
    assert figure.marker_fills([as_estimate(filled), as_estimate(bound)], "#123456") == ["#123456", figure.PAPER]


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


def test_recipes_whose_names_tell_no_family_are_told_apart() -> None:
    names = ("dp-mlm-public", "private-mlm", "ward-notes", "goldfish")
    with figure.telling_apart(("base", "ppmlm", *names, "private-mlm-epsilon-8")):
        looks = [figure.look_of(name) for name in names]
        assert figure.look_of("ward/ward-notes") == looks[2]
        assert figure.look_of("private-mlm-epsilon-8") == looks[1]
        assert figure.look_of("ppmlm") == figure.LOOKS["protected"]
    assert len({look.slug for look in looks}) == len(names)
    assert figure.look_of("private-mlm") == figure.LOOKS["other"]


def luminance(colour: str) -> float:
    parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return float(np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize(("side", "paper"), [("light", "#ffffff"), ("dark", "#14181d")])
def test_every_colour_stands_out_from_its_background(side: str, paper: str) -> None:
    for name, look in figure.LOOKS.items():
        bright, dim = sorted((luminance(getattr(look, side)), luminance(paper)), reverse=True)
        assert (bright + 0.05) / (dim + 0.05) >= 2.95, name


def corpus_of(**more: Any) -> CorpusEvidence:
    corpus = tiny_audit()["corpus"] | more
    return evidence({**tiny_audit(), "corpus": corpus}).corpus


def test_a_count_that_is_withheld_is_not_drawn_as_none() -> None:
    rows = tiny_audit()["corpus"]["identifiers_by_n"]
    rows[1]["minimal"] = rows[1]["minimal"] | dict.fromkeys(("distinct", "occurrences", "occurrences_direct"))
    distinct, occurrences, _ = corpus_plots.draw_by_n(corpus_of(identifiers_by_n=rows))
    assert "minimal: 700 of 1 word, few of 2 words, 700 of 3 words" in distinct.label
    assert "minimal: 900 of 1 word, few of 2 words, 900 of 3 words" in occurrences.label
    assert "few" in [text.get_text() for text in distinct.figure.axes[0].texts]


def test_a_curve_that_ends_below_a_half_has_no_median() -> None:
    short = {"x": [3.0, 4.0], "y": [0.1, 0.4]}  # the rest lies above, in steps of too few people to show
    rows = tiny_audit()["corpus"]["identifiers_by_n"]
    rows[1]["minimal"] = {**rows[1]["minimal"], "per_individual": short}
    corpus = corpus_of(identifiers_by_n=rows, words_per_individual=short)
    *_, per_person = corpus_plots.draw_by_n(corpus)
    assert "minimal: 20 of 1 word, more than 4 of 2 words, 20 of 3 words" in per_person.label
    words = next(drawn for drawn in corpus_plots.draw_identifiers(corpus) if drawn.name == "fig-words")
    assert words.label == "Words per person, cumulative. words: more than half of the people have more than 4."


MASKED = ("base", "mlm", "mlma", "dppmlm", "ippmlm", "ppmlm", "ippmlm-surrogate", "ppmlm-surrogate", "dp-mlm")


def marks_of(axis: Any) -> list[tuple[float, float]]:
    """Centres of the marks of all error bars of an axis."""
    return [(float(x), float(y)) for bar in axis.containers for x, y in zip(*bar.lines[0].get_data(), strict=True)]


def test_a_mark_lies_in_the_row_of_its_own_kind_of_word(drawn: dict[str, Any]) -> None:
    sides = {"num_members": 40, "num_nonmembers": 40}
    kinds = {
        kind: {"share": 0.2, "attacks": {"loss": {"auc": estimate(auc), **sides}}}
        for kind, auc in (("ordinary", 0.9), ("rare", 0.6), ("direct", 0.3))
    }
    membership_plots.kind_panels(entries(*(model(recipe, "mlm", 4, by_kind=kinds) for recipe in MASKED)))
    marks = marks_of(drawn["fig-kinds-mlm"].axes[0])
    assert len(marks) == 3 * len(MASKED)
    for auc, row in ((0.9, 0), (0.6, 1), (0.3, 2)):
        assert all(abs(y - row) < 0.45 for x, y in marks if x == pytest.approx(auc))


def test_an_alternative_text_says_that_a_number_is_a_bound(
    drawn: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    labels: dict[str, str] = {}
    for module in (epoch_plots, plots, membership_plots):
        monkeypatch.setattr(module, "to_svg", lambda _, name, label, *__: labels.setdefault(name, label))
    audit = tiny_audit()
    for entry in audit["models"]:
        entry["privacy"]["both"]["types"] |= {"bound": "above"}
        entry["low_cost"]["f1"] |= {"bound": "below"}
        for row in entry["low_cost"]["by_graph_share"]:
            row["f1"] |= {"bound": "below"}
    models = evidence(audit).models
    for draw in (epoch_plots.epoch_panels, plots.tradeoff_panels, membership_plots.low_cost_panels):
        draw(models)
    assert "base: above 0.95; mlm: above 0.89 after 4, above 0.55 after 16" in labels["fig-epochs-privacy-mlm"]
    assert "mlm: from utility 0.34, Privacy above 0.89 at epoch 4" in labels["fig-tradeoff-mlm"]
    assert "mlm: below 0.15 after 4, below 0.55 after 16" in labels["fig-epochs-mlm"]
    assert "mlm: below 0.55 at 100 %, below 0.55 at 50 %" in labels["fig-shares-mlm"]


def test_a_bound_of_precision_or_recall_is_hollow_and_no_other_mark_is(drawn: dict[str, Any]) -> None:
    one = model("clm", "clm", 4, leaked=90)
    exact, above = estimate(0.6, 0.5, 0.7), {**estimate(0.875, 0.8, 1.0), "bound": "above"}
    one["low_cost"] |= {"precision": exact, "recall": above, "f1": above}
    membership_plots.low_cost_panels(entries(one))
    axis = drawn["fig-lowcost-clm"].axes[0]
    faces = [bar.lines[0].get_markerfacecolor() for bar in axis.containers]
    assert [face == figure.PAPER for face in faces] == [False, True, True]
    assert axis.get_xlabel() == "◆ precision   ● recall   ■ F1"


@figure.styled
def french_tick_labels(set_ticks: Any) -> str:
    drawing, axis = figure.new_panel("title")
    axis.set(xlim=(0, 2000), ylim=(0, 2000))
    set_ticks(axis)
    return figure.to_svg(drawing, "ticks", "label", Texts("fr"))


def test_labels_of_ticks_that_are_in_french_stay_as_they_are() -> None:
    """1,5 k and 0,5, not 1 5 k: the comma of a French number is no separator of thousands."""
    t = Texts("fr")
    given = french_tick_labels(lambda axis: axis.xaxis.set_ticks([500], labels=[t.plain("0.5")]))
    made = french_tick_labels(lambda axis: axis.xaxis.set_major_formatter(lambda _, at: t.plain("1.5 k")))
    assert ">0,5<" in given
    assert ">1,5 k<" in made
    assert ">0\N{NARROW NO-BREAK SPACE}5<" not in given
    english = french_tick_labels(lambda axis: axis.xaxis.set_major_formatter("{x:,.1f}"))
    assert ">1\N{NARROW NO-BREAK SPACE}000,0<" in english, "labels of the library are put into French"


def test_a_mark_of_many_recipes_is_nearest_to_its_own_epoch_and_labels_have_room(drawn: dict[str, Any]) -> None:
    recipes = [f"a-recipe-of-the-job-number-{number}" for number in range(20)]
    models = entries(*(model(recipe, "clm", epoch) for recipe in recipes for epoch in (1, 2, 4, 8)))
    membership_plots.low_cost_panels(models)
    epoch_plots.epoch_panels(models)
    for name in ("fig-epochs-utility-clm", "fig-epochs-clm"):
        (axis,) = drawn[name].axes
        places = [marks.get_offsets()[:, 0] for marks in axis.collections if len(marks.get_offsets()) == 4]
        assert len(places) == 20
        assert all(np.array_equal(np.round(np.log2(x.astype(float))), [0, 1, 2, 3]) for x in places)
    axis = drawn["fig-lowcost-clm"].axes[0]
    names = [label.get_text() for label in axis.get_yticklabels()]
    assert len(set(names)) == 20, "names that differ at their end"
    assert axis.get_window_extent().height / len(names) > axis.get_yticklabels()[0].get_window_extent().height

    epoch_plots.epoch_panels(entries(*(model("clm", "clm", epoch) for epoch in range(1, 21))))
    (axis,) = drawn["fig-epochs-utility-clm"].axes
    boxes = [label.get_window_extent() for label in axis.get_xticklabels() if label.get_text()]
    assert [label.get_text() for label in axis.get_xticklabels()][-1] == "20"
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_a_short_count_has_three_digits_at_most() -> None:
    counts = (999, 1234, 999_499, 999_500, 1_500_000_000)
    assert [corpus_plots._short_count(count, Texts("en")) for count in counts] == [
        "999", "1.23 k", "999 k", "1 M", "1.5 G",
    ]  # fmt: skip
