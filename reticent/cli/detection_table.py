"""The tables of `reticent detect`: the spans of each detector, and how they compare with annotations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rich import box
from rich.table import Table

from reticent.audit.evidence.detection import DetectionEvidence
from reticent.audit.evidence.sampled import FEW_INDIVIDUALS, SampledRecall
from reticent.audit.stats.estimate import Estimate

__all__ = ["counts_table", "evaluation_tables", "rules_table", "sampled_lines", "sampled_table"]


def counts_table(spans: dict[str, dict[str, int]]) -> Table:
    """Return spans by category and detector; propagated spans of all detectors are one column."""
    columns: dict[str, Counter[str]] = {}
    for name, counts in spans.items():
        columns.setdefault(name.partition(":")[0], Counter()).update(counts)
    table = _table("category", *columns, title="Spans found")
    for name in sorted({category for counts in columns.values() for category in counts}):
        table.add_row(name, *(f"{counts[name]:,}" for counts in columns.values()))
    table.add_section()
    table.add_row("all", *(f"{counts.total():,}" for counts in columns.values()))
    return table


def evaluation_tables(found: DetectionEvidence) -> Iterator[Table]:
    """Yield the tables of `reticent.audit.detection.evaluate_detection`; they fit 80 columns."""
    yield _overall(found)
    yield _whole(found)
    yield _by_category(found)
    yield _by_detector(found)


def rules_table(rules: Sequence[Mapping[str, str]]) -> Table:
    """Return the forms that each rule finds, a row a rule."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for head in rules[0] if rules else ():
        table.add_column(head, overflow="fold")
    for rule in rules:
        table.add_row(*map(str, rule.values()))
    return table


def _overall(found: DetectionEvidence) -> Table:
    left_out = f"; {found.unmarked:,} without are left out" if found.unmarked else ""
    table = _table(
        "all detectors",
        *("precision", "recall", "F1"),
        title=f"{found.documents:,} documents of {found.individuals:,} individuals with gold spans{left_out}",
        caption="Behind each rate its 95 % interval, individuals resampled whole.",
    )
    for scores, what in ((found.union.overall, ""), (found.union.any_label, ", any label")):
        for name, match in (("strict", scores.strict), ("relaxed", scores.relaxed), ("words", scores.words)):
            table.add_row(name + what, *map(_shown, (match.precision, match.recall, match.f1)))
    return table


def _whole(found: DetectionEvidence) -> Table:
    table = _table(
        "all found, under any label", "share", "of", title="Found whole", caption="entities: all their mentions."
    )
    union = found.union
    rows = [("mentions", union.covered["overall"])]
    for name, rate in union.entities.items():
        rows.append(("entities" if name == "overall" else f"{name} entities", rate))
    rows += [("documents", union.all_found.documents), ("individuals", union.all_found.individuals)]
    for what, rate in rows:
        table.add_row(what, _shown(rate), f"{rate.of:,}")
    return table


def _by_category(found: DetectionEvidence) -> Table:
    heads = ("gold", "strict\nP", "\nR", "relaxed\nP", "\nR", "words\nR", "whole", "part", "missed")
    table = _table(
        "category",
        *heads,
        title="By category",
        caption="whole: every word found, under any label; part: some word; missed: none.",
    )
    union = found.union
    for name, scores in union.categories.items():
        rates = [rate for match in (scores.strict, scores.relaxed) for rate in (match.precision, match.recall)]
        table.add_row(
            name,
            f"{found.mentions.get(name, 0):,}",
            *map(_value, [*rates, scores.words.recall]),
            _value(union.covered[name]),
            *(f"{counts.get(name, 0):,}" for counts in (found.partial, found.missed)),
        )
    return table


def _by_detector(found: DetectionEvidence) -> Table:
    table = _table(
        "alone",
        *("relaxed\nP", "\nR", "any label\nP", "\nR", "mentions\ncovered", "only\nit"),
        title="By detector",
        caption="only it: mentions that are covered with it and not without it.",
    )
    for name, scores in found.alone.items():
        relaxed = (scores.overall.relaxed, scores.any_label.relaxed)
        rates = [rate for match in relaxed for rate in (match.precision, match.recall)]
        table.add_row(name, *map(_value, [*rates, scores.covered["overall"]]), f"{sum(found.only[name].values()):,}")
    return table


def sampled_table(found: SampledRecall) -> Table:
    """Recall in a sample, weighted back to the corpus, and the identifiers that are left, by category."""
    table = _table(
        "category",
        *("marked", "recall", "95 %", "unprotected", "95 %"),
        title=f"Detection in {found.documents:,} of {found.corpus_documents:,} documents, weighted back to all",
    )
    for name, row in {"all": found.overall, **found.categories}.items():
        left = row.unprotected
        bounds = "-" if left.low is None or left.high is None else f"{left.low:,.0f}-{left.high:,.0f}"
        of = "-" if row.recall.low is None else f"{row.recall.low:.3f}-{row.recall.high:.3f}"
        count = "-" if left.value is None else f"{left.value:,.0f}"
        table.add_row(name, f"{row.marked:,}", _value(row.recall), of, count, bounds)
    return table


def sampled_lines(found: SampledRecall) -> Iterator[str]:
    """The number of identifiers that are left, what rests on few, and how far annotators agree, in sentences."""
    left = found.overall.unprotected
    if left.value is not None and left.high is not None:
        yield (
            f"Identifiers that detection leaves in all documents: about {left.value:,.0f}, at most {left.high:,.0f} "
            "(each counted wherever it stands)."
        )
    if found.over_few:
        names = ", ".join(f"{name}: {num}" for name, num in found.over_few.items())
        yield (
            f"Warning: intervals over fewer than {FEW_INDIVIDUALS} individuals ({names}) may not hold if one outside "
            "of the sample has far more identifiers than any in it. A larger sample helps."
        )
    if found.all_reviewed:
        yield "Documents in which no mark was changed count as reviewed, as --all-reviewed says."
    if found.agreement is not None:
        own = found.agreement
        yield (
            f"Two annotators agree: equal spans {_shown(own.exact)}, overlapping spans {_shown(own.partial)}, words "
            f"beyond chance (kappa) {_shown(own.kappa)}, (alpha) {_shown(own.alpha)}."
        )


def _table(first: str, *heads: str, title: str, caption: str | None = None) -> Table:
    table = Table(
        title=f"\n{title}",
        caption=caption,
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1, 0, 0),
        title_justify="left",
        caption_justify="left",
    )
    table.add_column(first, overflow="fold")  # a long label goes on in the next line: numbers are never cut
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    return table


def _value(estimate: Estimate) -> str:
    return "-" if estimate.value is None else f"{estimate.value:.3f}"


def _shown(estimate: Estimate) -> str:
    return _value(estimate) + ("" if estimate.low is None else f" {estimate.low:.3f}-{estimate.high:.3f}")
