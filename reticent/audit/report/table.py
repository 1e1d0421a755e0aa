"""The table of plots of the report: one row for each, with its place in the page and its texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from reticent.audit.report import corpus_plots, epoch_plots, membership_plots, plots, utility_plots
from reticent.audit.report.epsilon_plot import epsilon_panels
from reticent.audit.report.findings import charged_together
from reticent.audit.report.format_estimate import percent
from reticent.audit.stats.seeds import last_checkpoints, num_seeds
from reticent.audit.texts import Texts

if TYPE_CHECKING:
    from reticent.audit.evidence.audit import AuditEvidence

#: Sections of the page, in order; a section shows its plots in the order of the table.
Place = Literal[
    "documents", "tradeoff", "continuations", "task", "leaks", "sequences", "low_cost", "membership", "kinds"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
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
    draw: Callable[[Shown], list[str]]
    caption: Callable[[Shown, int], str] | None = None
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


def drawn_plots(shown: Shown) -> Iterator[Drawn]:
    """Yield every plot that has at least one panel, with its caption and titles."""
    for plot in PLOTS:
        if panels := plot.draw(shown):
            t, key = shown.t, f"plots.{plot.name}"
            caption = plot.caption(shown, len(panels)) if plot.caption else t(f"{key}.caption")
            title, fold = t(f"{key}.title") if plot.titled else "", t(f"{key}.fold") if plot.folded else ""
            yield Drawn(plot, panels, caption, title, fold)


def _draw_corpus(name: str) -> Callable[[Shown], list[str]]:
    """Return the function that draws the corpus figure of this name."""
    return lambda shown: corpus_plots.corpus_panels(shown.audit.corpus, name, shown.t)


def _caption_of(key: str, *more: str, count: bool = False) -> Callable[[Shown, int], str]:
    """Return the function that writes a plot's caption from the text ``key``, and the texts ``more`` if there are
    several panels; with ``count`` the number of panels chooses singular or plural."""

    def caption(shown: Shown, num: int) -> str:
        values = {"cell": shown.audit.cell} | ({"count": num} if count else {})
        return " ".join([shown.t(key, **values), *(shown.t(each) for each in more if num > 1)])

    return caption


def _by_n_caption(shown: Shown, _: int) -> str:
    """Return the caption of the n-gram figures, which says which n-grams are protected."""
    t, corpus, settings = shown.t, shown.audit.corpus, shown.audit.settings.get("protect")
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


def _unicity_caption(shown: Shown, _: int) -> str:
    corpus = shown.audit.corpus
    num = corpus.unicity[0].share.n if corpus.unicity else None
    return shown.t(f"plots.unicity.caption_{corpus.unit or 'individual'}", n=num)


def _epochs_caption(shown: Shown, _: int) -> str:
    seeds = num_seeds(shown.audit.models)
    return shown.t("plots.epochs.caption_seeds", n=seeds) if seeds > 1 else shown.t("plots.epochs.caption")


def _epsilon_caption(shown: Shown, _: int) -> str:
    private = [model for model in last_checkpoints(shown.audit.models) if model.guarantee]
    return " ".join([shown.t("plots.epsilon.caption"), *charged_together(private, shown.t)])


def _roc_caption(shown: Shown, _: int) -> str:
    return shown.t("plots.roc.caption_seeds" if num_seeds(shown.audit.models) > 1 else "plots.roc.caption")


def _draw_rocs(shown: Shown, attacks: Sequence[str]) -> list[str]:
    """Return the ROC panels of these attacks."""
    models, cell = shown.audit.models, shown.audit.cell
    return [panel for attack in attacks for panel in membership_plots.roc_panels(models, attack, cell, shown.t)]


#: Every plot of the page. A new plot is a new row here.
PLOTS: tuple[Plot, ...] = (
    Plot(
        name="identifiers",
        place="documents",
        draw=_draw_corpus("identifiers"),
        caption=_caption_of("plots.identifiers.caption"),
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
        caption=_caption_of("plots.tradeoff.caption", "plots.tradeoff.same_axes"),
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
        caption=_caption_of("plots.excess.caption", count=True),
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
        caption=_caption_of("plots.low_cost.caption"),
        titled=False,
        columns=3,
        keyed=True,
    ),
    Plot(
        name="auc",
        place="membership",
        draw=lambda shown: membership_plots.auc_panels(shown.audit.models, shown.attacks, shown.t),
        caption=_caption_of("plots.auc.caption", count=True),
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
        caption=_caption_of("plots.precision.caption"),
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
