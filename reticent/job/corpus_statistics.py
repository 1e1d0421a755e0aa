"""Statistics of a run's documents and their identifiers, of which the report shows counts and distributions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reticent.engine.schema import HELDOUT, MEMBERS, REFERENCE

if TYPE_CHECKING:
    from reticent.audit.evidence.corpus import CorpusEvidence
    from reticent.job.run import Run

__all__ = ["corpus_section"]


def corpus_section(run: Run) -> CorpusEvidence:
    """Statistics of the members' documents and their identifiers, of a run that has its index: counts and
    distributions only (Figs. 5, 6 and 14 of [@boutet2025]), margin of support, retention and unicity.
    """
    from reticent.audit.evidence.corpus import CorpusEvidence
    from reticent.audit.evidence.json_form import from_json
    from reticent.audit.stats.statistics import clopper_pearson
    from reticent.core.artifact import require_kind
    from reticent.engine.detect.spans import SpanReader
    from reticent.engine.index import open_index
    from reticent.engine.stats import corpus_statistics, detected_spans

    for name in ("split", "spans", "index"):
        require_kind(run.folder / name, name)
    with run.progress.task("statistics", run.corpus.num_documents, "documents") as advance:
        statistics = corpus_statistics(
            run.corpus,
            run.individuals,
            open_index(run.folder / "index"),
            policy=run.policy,
            spans=SpanReader(run.folder / "spans"),
            seed=run.job.seed,
            progress=advance,
            num_threads=run.job.num_threads,
        )
    for row in statistics["unicity"]:
        found, n = row.pop("num_singled_out"), row.pop("num_units")
        low, high = clopper_pearson(found, n) if n else (None, None)
        about = {"level": 0.95, "n": n, "unit": statistics["unit"], "method": "Clopper-Pearson"}
        row["share"] = {"value": found / n if n else None, "low": low, "high": high, **about}
    individual = run.individuals.individual_codes(run.corpus.scan().column("individual_id").combine_chunks())
    statistics["detected"] = detected_spans(
        run.folder / "spans" / "spans.parquet", individual, small_cell=run.job.audit.small_cell
    )
    if run.job.dedup.mode != "off":
        statistics["copies"] = require_kind(run.folder / "dedup", "dedup").counts
    statistics["reading"] = run.whole_corpus.reading.counts()
    statistics["num_individuals"] = {s: int(np.sum(run.individuals.mask(s))) for s in (MEMBERS, HELDOUT, REFERENCE)}
    return from_json(CorpusEvidence, statistics, "corpus")
