"""The tables of `reticent stats`: the documents, the identifiers in them, and the words left to learn from."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.table import Table

from reticent.audit.evidence.corpus import CorpusEvidence
from reticent.audit.report.selectors import retention_rows

__all__ = ["statistics_tables"]


def statistics_tables(corpus: CorpusEvidence) -> Iterator[Table]:
    """Yield the tables of published statistics; a count of few individuals is a dash."""
    yield _documents(corpus)
    if corpus.identifiers_by_n:
        yield _identifiers(corpus)
    if retention_rows(corpus):
        yield _retention(corpus)
    if any(row.share.value is not None for row in corpus.unicity or ()):
        yield _unicity(corpus)


def _documents(corpus: CorpusEvidence) -> Table:
    table = _table("documents of members", "", title=f"identifying: used by fewer than {corpus.k} {_whose(corpus)}")
    sides = corpus.num_individuals
    table.add_row("individuals: members, held out", f"{_count(sides.members)}, {_count(sides.heldout)}")
    for name, number in (
        ("documents", corpus.num_documents),
        ("words", corpus.num_words),
        ("distinct words", corpus.num_distinct_words),
    ):
        table.add_row(name, f"{number:,}")
    table.add_row("distinct words that identify", _share(corpus.share_types_identifying))
    table.add_row("occurrences of these", _share(corpus.share_occurrences_identifying))
    if corpus.protected:
        table.add_row("words protected as direct identifiers", _share(corpus.protected.direct))
        table.add_row("words protected as indirect identifiers", _share(corpus.protected.indirect))
        table.add_row("words protected in all", _share(corpus.protected.both))
    return table


def _identifiers(corpus: CorpusEvidence) -> Table:
    table = _table("n", "identifying", "minimal", "occurrences", "not identifying", title="Identifying n-grams")
    for row in corpus.identifiers_by_n or ():
        counts = (row.all.distinct, row.minimal.distinct, row.all.occurrences, row.kept.distinct)
        table.add_row(str(row.n), *map(_count, counts))
    return table


def _retention(corpus: CorpusEvidence) -> Table:
    table = _table("policy", "n", "k", "left by indirect protection", title="Words left to learn from")
    for row in retention_rows(corpus):
        table.add_row(row.policy, _count(row.n), _count(row.k), _share(row.retention))
    return table


def _unicity(corpus: CorpusEvidence) -> Table:
    heads = ("shared words", f"{_whose(corpus)} singled out", "95 % interval")
    table = _table(*heads, title="Sets of words that many use")
    for row in corpus.unicity or ():
        if row.share.value is not None:
            ends = f"{_share(row.share.low)} to {_share(row.share.high)}"
            table.add_row(str(row.m), f"{_bound(row.share.bound)}{_share(row.share.value)}", ends)
    return table


def _whose(corpus: CorpusEvidence) -> str:
    """The units that use a word: households, where the index counts these."""
    return "households" if corpus.unit == "household" else "individuals"


def _table(*heads: str, title: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, title=title, title_justify="left")
    for number, head in enumerate(heads):
        table.add_column(head, justify="right" if number else "left")
    return table


def _count(number: int | None) -> str:
    return "–" if number is None else f"{number:,}"


def _share(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"


def _bound(bound: str | None) -> str:
    return {"below": "at most ", "above": "at least "}.get(bound or "", "")
