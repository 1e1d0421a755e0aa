"""The plots of the report: one row for each, with its place in the page and its texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from reticent.audit.report import corpus_plots, epoch_plots, membership_plots, plots, utility_plots
from reticent.audit.report.shown import percent
from reticent.audit.stats.seeds import num_seeds

if TYPE_CHECKING:
    from reticent.audit.evidence.audit import AuditEvidence

__all__ = ["PLOTS", "Drawn", "Plot", "Shown", "drawn_plots"]

#: Places of the page, in its order; a place shows its plots in the order of the table.
Place = Literal[
    "documents", "tradeoff", "continuations", "task", "leaks", "sequences", "low_cost", "membership", "kinds"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The evidence that plots are drawn from: a published audit whose models are means over their trainings.

    Attributes
    ----------
    attacks : names of the attacks on membership, in the order of the page
    f1_of_all : F1 of calling each individual a member; None where it is not known
    """

    audit: AuditEvidence
    attacks: Sequence[str]
    f1_of_all: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """One plot of the report.

    Parameters
    ----------
    name : of the row, for tests and errors
    place : part of the page where it stands
    draw : returns its panels as inline SVG, none if there is nothing to draw
    caption : text under the panels, or a function of the evidence and the number of panels that returns it
    title : heading over it
    columns : panels side by side
    keyed : whether the key of the recipes stands over it
    fold : words that unfold it; empty if it is not folded
    """

    name: str
    place: Place
    draw: Callable[[Shown], list[str]]
    caption: str | Callable[[Shown, int], str]
    title: str = ""
    columns: int = 2
    keyed: bool = False
    fold: str = ""


class Drawn(NamedTuple):
    """A plot with its panels and the text under them."""

    plot: Plot
    panels: list[str]
    caption: str


def drawn_plots(shown: Shown) -> Iterator[Drawn]:
    """Yield every plot with at least one panel."""
    for plot in PLOTS:
        if panels := plot.draw(shown):
            caption = plot.caption
            yield Drawn(plot, panels, caption if isinstance(caption, str) else caption(shown, len(panels)))


def _corpus(name: str) -> Callable[[Shown], list[str]]:
    return lambda shown: corpus_plots.corpus_panels(shown.audit.corpus, name)


def _protected_sequences(shown: Shown) -> str:
    """Say which of the minimal sequences protection is about: by their length, and by how common their words are."""
    n, settings = shown.audit.corpus.n, shown.audit.settings.get("protect")
    share = settings.get("max_document_frequency") if isinstance(settings, Mapping) else None
    what = "single words" if n == 1 else f"those of up to {n} words"
    if n > 1 and share is not None:
        what += f" of which no word is used by {percent(share)} of the people or more (single words always)"
    return f"Protected are {what}."


def _unicity_caption(shown: Shown, _: int) -> str:
    corpus = shown.audit.corpus
    whom = "households" if corpus.unit == "household" else "people"
    num = corpus.unicity[0].share.n if corpus.unicity else None
    return (
        "No protection here looks at this: words that are common one by one can point to one person when they are put "
        f"together. For each of {num} {whom} some shared words were drawn at random and looked for in everybody else’s "
        "documents; bars are 95 % intervals."
    )


def _epochs_caption(shown: Shown, _: int) -> str:
    seeds = num_seeds(shown.audit.models)
    bands = f"; bands, from the lowest to the highest of {seeds} trainings with other seeds" if seeds > 1 else ""
    return (
        "Of held-out people: ordinary text predicted right. Of members: Privacy, and how well the loss tells them from "
        "held-out people (dashed: chance). Dotted: the base model. Bars are 95 % intervals over people"
        f"{bands}. Marks that would lie on each other are moved apart."
    )


def _roc_caption(shown: Shown, _: int) -> str:
    first = ", of the first seed" if num_seeds(shown.audit.models) > 1 else ""
    return (
        f"ROC curves on logarithmic axes{first}; a band is the exact 95 % interval of the true-positive rate at each "
        "threshold. Grey: rates that fewer than ten non-members resolve; read nothing into them."
    )


def _rocs(shown: Shown, attacks: Sequence[str]) -> list[str]:
    panels = (membership_plots.roc_panels(shown.audit.models, attack, shown.audit.cell) for attack in attacks)
    return [panel for one in panels for panel in one]


#: Every plot of the page. A new plot is a new row here.
PLOTS: tuple[Plot, ...] = (
    Plot(
        name="identifiers",
        place="documents",
        draw=_corpus("identifiers"),
        caption=lambda shown, _: (
            f"Cumulative shares. A step over people holds at least {shown.audit.cell} of them; the first and the last "
            "few are left out."
        ),
        columns=3,
    ),
    Plot(
        name="by_n",
        place="documents",
        draw=_corpus("by_n"),
        title="Longer sequences of words",
        caption=lambda shown, _: (
            "The more words in a row, the more of what is written is one person’s own. “All” counts every sequence "
            f"that fewer than {shown.audit.corpus.k} people use; “minimal” those that hold no shorter one. "
            f"{_protected_sequences(shown)}"
        ),
        columns=3,
    ),
    Plot(
        name="margin",
        place="documents",
        draw=_corpus("margin"),
        title="How near to the line",
        caption=lambda shown, _: (
            f"Right of the line is kept as a target: what exactly {shown.audit.corpus.k} people use would identify the "
            "others if one of them withdrew."
        ),
        columns=3,
    ),
    Plot(
        name="unicity",
        place="documents",
        draw=_corpus("unicity"),
        title="Several shared words together",
        caption=_unicity_caption,
        columns=3,
    ),
    Plot(
        name="tradeoff",
        place="tradeoff",
        draw=lambda shown: plots.tradeoff_panels(shown.audit.models),
        caption=lambda shown, num: (
            "A point is a checkpoint; marks grow with the epochs. Up is more private, right is more useful. Bars are "
            f"95 % intervals; a hollow mark is a bound, where fewer than {shown.audit.cell} identifiers are behind it."
            + (
                " The panels have the same axes, so an empty one is a result: nothing happened there."
                if num > 1
                else ""
            )
        ),
        keyed=True,
    ),
    Plot(
        name="epochs",
        place="tradeoff",
        draw=lambda shown: epoch_plots.epoch_panels(shown.audit.models),
        title="Against epochs",
        caption=_epochs_caption,
        columns=3,
    ),
    Plot(
        name="continuations",
        place="continuations",
        draw=lambda shown: utility_plots.continuation_panels(shown.audit.models),
        caption="Causal models go on from the beginning of held-out people’s documents, and are compared with the "
        "documents; last checkpoints, 95 % intervals over people.",
    ),
    Plot(
        name="f1",
        place="task",
        draw=lambda shown: utility_plots.f1_panels(shown.audit.classification or ()),
        caption="Classes of held-out people’s documents: macro F1 is the mean over classes, micro F1 counts documents. "
        "A bag of words and the commonest class need no model. Bars are 95 % intervals over people.",
    ),
    Plot(
        name="excess",
        place="leaks",
        draw=lambda shown: plots.excess_panels(shown.audit.models),
        title="Members against held-out people",
        caption=lambda _, num: (
            "How much more often identifiers of members are predicted than those of held-out people; last checkpoints"
            f"{', same axes' if num > 1 else ''}. Both sides are flagged by one index over members and held-out people "
            "together, so membership is all in which they differ."
        ),
    ),
    Plot(
        name="ngrams",
        place="sequences",
        draw=lambda shown: plots.ngram_panels(shown.audit.models),
        title="Sequences of words",
        caption="Minimal identifying n-grams of members that are predicted somewhere, word after word, last "
        "checkpoints, whatever length they were protected up to. Bars are 95 % intervals.",
        keyed=True,
    ),
    Plot(
        name="low_cost",
        place="low_cost",
        draw=lambda shown: membership_plots.low_cost_panels(shown.audit.models, shown.f1_of_all),
        caption=lambda shown, _: (
            "Left: precision, recall and F1 at the last checkpoint; no mark for precision means that nobody, or too "
            "few people, were called. Middle: against epochs; the dotted line is the base model. Right: against the "
            "share of the documents from which the adversary makes the graph of words and people; at 100 % it is the "
            "auditor. All panels "
            f"run from 0 to 1. A hollow mark is a bound, where fewer than {shown.audit.cell} people, or all but so "
            "few, are behind it. Marks that would lie on each other are moved apart."
        ),
        columns=3,
        keyed=True,
    ),
    Plot(
        name="auc",
        place="membership",
        draw=lambda shown: membership_plots.auc_panels(shown.audit.models, shown.attacks),
        caption=lambda _, num: (
            f"Area under the ROC curve of every attack, last checkpoints, 95 % intervals"
            f"{', same axes' if num > 1 else ''}. The base model is the negative control: it saw nobody, so it must "
            "lie on the dashed line of chance."
        ),
        keyed=True,
    ),
    Plot(
        name="roc",
        place="membership",
        draw=lambda shown: _rocs(shown, shown.attacks[:1]),
        caption=_roc_caption,
    ),
    Plot(
        name="other_rocs",
        place="membership",
        draw=lambda shown: _rocs(shown, shown.attacks[1:]),
        caption=_roc_caption,
        fold="ROC curves of the other attacks",
    ),
    Plot(
        name="kinds",
        place="kinds",
        draw=lambda shown: membership_plots.kind_panels(shown.audit.models),
        caption="Members against held-out people by the tokens of one kind, last checkpoints, 95 % intervals: LiRA "
        "where there are shadow models, else the reference attack, and of the base model the loss. Dashed: chance.",
        keyed=True,
    ),
)
