"""The table of `reticent classify`: F1 on held-out individuals, the models beside the base model and the baselines."""

from __future__ import annotations

from rich import box
from rich.table import Table

from reticent.audit.evidence.classification import ClassificationEvidence
from reticent.audit.report.summary import _shown as _shown_mean

__all__ = ["classification_table"]


def classification_table(result: ClassificationEvidence) -> Table:
    """Return the table of one model's results (`reticent.job.classification`); it fits 80 columns."""
    documents, individuals = result.documents, result.individuals
    left_out = [
        f"{documents[key]:,} {what}"
        for key, what in (
            ("unlabelled", "documents without a label"),
            ("without_text", "without text"),
            ("of_rare_classes", f"of {documents['rare_classes']} rare classes"),
        )
        if documents[key]
    ]
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 2, 0, 0),
        show_edge=False,
        title=f"{result.model}: {len(result.classes)} classes" if result.model else None,
        title_justify="left",
        caption=f"Trained on {documents['train']:,} documents of {individuals['train']:,} people, measured "
        f"on {documents['heldout']:,} of {individuals['heldout']:,} held out. In brackets: 95 % intervals over "
        "individuals." + (f" Left out: {', '.join(left_out)}." if left_out else ""),
        caption_justify="left",
    )
    table.add_column("start", overflow="fold")  # a long name goes on in the next line: numbers are never cut
    for column in ("epochs", "macro F1", "micro F1"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in result.results:
        epoch = str(row.epoch) if row.epoch else "-"
        seed = "" if row.seed is None else f", seed {row.seed}"
        table.add_row(row.recipe + seed, epoch, _shown_mean(row.macro_f1), _shown_mean(row.micro_f1))
    return table
