"""The table of plots of the report: one row for each, with its place in the page and its texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from reticent.audit.report import corpus_plots, epoch_plots, membership_plots, plots, utility_plots
from reticent.audit.report.epsilon_plot import epsilon_panels
from reticent.audit.report.findings import joint_epsilon_sentence
from reticent.audit.report.format_estimate import percent
from reticent.audit.stats.seeds import max_num_trainings
from reticent.audit.texts import Texts

if TYPE_CHECKING:
    from reticent.audit.evidence.audit import AuditEvidence

#: Sections of the page, in order; a section shows its plots in the order of the table.
Place = Literal[
    "documents", "tradeoff", "continuations", "task", "leaks", "sequences", "low_cost", "membership", "kinds"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotContent:
    """The evidence that plots are drawn from: a published audit whose models are means over their trainings.

    Attributes
    ----------
    attacks : names of the attacks on membership, in the order of the page
    f1_of_all : F1 of declaring everybody a member; None if unknown
    t : texts of the language of the page
    """

    audit: AuditEvidence
    attacks: Sequence[str]
    f1_of_all: float | None
    t: Texts


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """One plot of the report. The catalogue of texts has its heading, its caption, and the words that unfold it:
    ``plots.NAME.title``, ``.caption`` and ``.fold``.

    Parameters
    ----------
    name : of the row, in the catalogue of texts, and for tests and errors
    place : section of the page that shows it
    draw : returns its panels as inline SVG, none if there is nothing to draw
    caption : function of the evidence and the number of panels that returns the text under them; default: the text of
        the catalogue as it is
    titled : whether it has a heading
    columns : panels side by side
    keyed : whether it has a legend of the recipes
    folded : whether it is collapsed until unfolded
    """

    name: str
    place: Place
    draw: Callable[[PlotContent], list[str]]
    caption: Callable[[PlotContent, int], str] | None = None
    titled: bool = True
    columns: int = 2
    keyed: bool = False
    folded: bool = False


class Drawn(NamedTuple):
    """A plot with its panels, and the texts around them; empty where it has none."""

    plot: Plot
    panels: list[str]
    caption: str
    title: str
    fold: str


def draw_plots(content: PlotContent) -> Iterator[Drawn]:
    """Draw every plot of the report; yield each that has at least one panel, with its panels as SVG, caption and
    titles."""
    for plot in PLOTS:
        if panels := plot.draw(content):
            t, key = content.t, f"plots.{plot.name}"
            caption = plot.caption(content, len(panels)) if plot.caption else t(f"{key}.caption")
            title, fold = t(f"{key}.title") if plot.titled else "", t(f"{key}.fold") if plot.folded else ""
            yield Drawn(plot, panels, caption, title, fold)


def _draw_corpus(name: str) -> Callable[[PlotContent], list[str]]:
    """Return the function that draws the corpus figure of this name."""
    return lambda shown: corpus_plots.corpus_panels(shown.audit.corpus, name, shown.t)


def _caption_writer(text_key: str, *more_keys: str, counts_panels: bool = False) -> Callable[[PlotContent, int], str]:
    """Return a function that writes a plot's caption: the text ``text_key`` of the catalogue, then ``more_keys`` if
    there are several panels. With ``counts_panels`` the text's singular or plural follows the number of panels."""

    def caption(content: PlotContent, num_panels: int) -> str:
        """Return the caption of a plot with this number of panels."""
        values = {"cell": content.audit.cell} | ({"count": num_panels} if counts_panels else {})
        return " ".join([content.t(text_key, **values), *(content.t(each) for each in more_keys if num_panels > 1)])

    return caption


def _by_n_caption(content: PlotContent, _: int) -> str:
    """Return the caption of the n-gram figures, which says which n-grams are protected."""
    t, corpus, settings = content.t, content.audit.corpus, content.audit.settings.get("protect")
    share = settings.get("max_document_frequency") if isinstance(settings, Mapping) else None
    if corpus.n == 1:
        protected = t("plots.protected_are_single_words")
    elif share is None:
        protected = t("plots.protected_are_those_of_up_to_n_words", n=corpus.n)
    else:
        protected = t(
            "plots.protected_are_those_without_common_words",
            n=corpus.n,
            share=percent(share, t),
        )
    return f"{t('plots.by_n.caption', k=corpus.k)} {protected}"


def _unicity_caption(content: PlotContent, _: int) -> str:
    """Return the caption of the unicity figure."""
    corpus = content.audit.corpus
    num = corpus.unicity[0].share.n if corpus.unicity else None
    return content.t(f"plots.unicity.caption_{corpus.unit or 'individual'}", n=num)


def _epochs_caption(content: PlotContent, _: int) -> str:
    """Return the caption of the panels against epochs."""
    seeds = max_num_trainings(content.audit.models)
    return content.t("plots.epochs.caption_seeds", n=seeds) if seeds > 1 else content.t("plots.epochs.caption")


def _epsilon_caption(content: PlotContent, _: int) -> str:
    """Return the caption of the panels against epsilon."""
    return " ".join([content.t("plots.epsilon.caption"), *joint_epsilon_sentence(content.audit, content.t)])


def _roc_caption(content: PlotContent, _: int) -> str:
    """Return the caption of the ROC panels."""
    return content.t("plots.roc.caption_seeds" if max_num_trainings(content.audit.models) > 1 else "plots.roc.caption")


def _draw_rocs(content: PlotContent, attacks: Sequence[str]) -> list[str]:
    """Return the ROC panels of these attacks."""
    models, cell = content.audit.models, content.audit.cell
    return [panel for attack in attacks for panel in membership_plots.roc_panels(models, attack, cell, content.t)]


#: Every plot of the page. A new plot is a new row here.
PLOTS: tuple[Plot, ...] = (
    Plot(
        name="identifiers",
        place="documents",
        draw=_draw_corpus("identifiers"),
        caption=_caption_writer("plots.identifiers.caption"),
        titled=False,
        columns=3,
    ),
    Plot(name="by_n", place="documents", draw=_draw_corpus("by_n"), caption=_by_n_caption, columns=3),
    Plot(
        name="margin",
        place="documents",
        draw=_draw_corpus("margin"),
        caption=lambda shown, _: shown.t("plots.margin.caption", k=shown.audit.corpus.k),
        columns=3,
    ),
    Plot(name="unicity", place="documents", draw=_draw_corpus("unicity"), caption=_unicity_caption, columns=3),
    Plot(
        name="tradeoff",
        place="tradeoff",
        draw=lambda shown: plots.tradeoff_panels(shown.audit.models, shown.t),
        caption=_caption_writer("plots.tradeoff.caption", "plots.tradeoff.same_axes"),
        titled=False,
        keyed=True,
    ),
    Plot(
        name="epochs",
        place="tradeoff",
        draw=lambda shown: epoch_plots.epoch_panels(shown.audit.models, shown.t),
        caption=_epochs_caption,
        columns=3,
    ),
    Plot(
        name="epsilon",
        place="tradeoff",
        draw=lambda shown: epsilon_panels(shown.audit.models, shown.t),
        caption=_epsilon_caption,
    ),
    Plot(
        name="continuations",
        place="continuations",
        draw=lambda shown: utility_plots.continuation_panels(shown.audit.models, shown.t),
        titled=False,
    ),
    Plot(
        name="f1",
        place="task",
        draw=lambda shown: utility_plots.f1_panels(shown.audit.classification or (), shown.t),
        titled=False,
    ),
    Plot(
        name="excess",
        place="leaks",
        draw=lambda shown: plots.excess_panels(shown.audit.models, shown.t),
        caption=_caption_writer("plots.excess.caption", counts_panels=True),
    ),
    Plot(
        name="ngrams",
        place="sequences",
        draw=lambda shown: plots.ngram_panels(shown.audit.models, shown.t),
        keyed=True,
    ),
    Plot(
        name="low_cost",
        place="low_cost",
        draw=lambda shown: membership_plots.low_cost_panels(shown.audit.models, shown.f1_of_all, shown.t),
        caption=_caption_writer("plots.low_cost.caption"),
        titled=False,
        columns=3,
        keyed=True,
    ),
    Plot(
        name="auc",
        place="membership",
        draw=lambda shown: membership_plots.auc_panels(shown.audit.models, shown.attacks, shown.t),
        caption=_caption_writer("plots.auc.caption", counts_panels=True),
        titled=False,
        keyed=True,
    ),
    Plot(
        name="roc",
        place="membership",
        draw=lambda shown: _draw_rocs(shown, shown.attacks[:1]),
        caption=_roc_caption,
        titled=False,
    ),
    Plot(
        name="precision",
        place="membership",
        draw=lambda shown: [
            panel
            for attack in shown.attacks[:1]
            for panel in membership_plots.precision_panels(shown.audit.models, attack, shown.t)
        ],
        caption=_caption_writer("plots.precision.caption"),
        titled=False,
        folded=True,
    ),
    Plot(
        name="other_rocs",
        place="membership",
        draw=lambda shown: _draw_rocs(shown, shown.attacks[1:]),
        caption=_roc_caption,
        titled=False,
        folded=True,
    ),
    Plot(
        name="kinds",
        place="kinds",
        draw=lambda shown: membership_plots.kind_panels(shown.audit.models, shown.t),
        titled=False,
        keyed=True,
    ),
)
