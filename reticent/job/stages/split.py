"""From individuals to members, held-out and reference; then canaries are inserted into members' documents, if the job
has some.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from reticent import _rust
from reticent.engine.canaries import CanaryConfig, common_words, draw_canaries, plant, write_canaries
from reticent.engine.schema import HELDOUT, MEMBERS, REFERENCE
from reticent.engine.sources.formats import FORMATS
from reticent.engine.split import split_individuals, write_individuals
from reticent.engine.withdrawn import report_lists
from reticent.job.artefact import Artefact, Step
from reticent.job.run import Run
from reticent.job.stages.subject import given_split, list_settings


def split_steps(run: Run) -> Iterator[Step]:
    """Yield the step that splits the individuals into members, held-out and reference (artefact ``split``)."""
    settings = {**run.job.split.model_dump(), "seed": run.job.seed}
    inputs = {"corpus": run.deduplicated.fingerprint()}
    if run.job.subject is not None:
        settings = {"by": run.job.split.by, **list_settings(run)}
    yield Step.of(Artefact("split", "split", settings, inputs), partial(_build_split, run))
    run.invalidate("individuals")


def _build_split(run: Run, folder: Path, counts: dict[str, Any]) -> None:
    """Check the documents, split the individuals, and write the split and the record of withdrawn documents."""
    settings = run.job.split
    num_threads = _rust.resolve_threads(run.job.num_threads)
    run.deduplicated.check(num_threads=num_threads, frugal=run.job.memory_limit is not None)
    given = run.job.subject is not None
    individuals = given_split(run) if given else split_individuals(run.deduplicated, settings)
    run.left_out(again=True).keep(run.folder)
    write_individuals(individuals, folder)
    for name in (MEMBERS, HELDOUT, REFERENCE):
        counts[name] = int(individuals.mask(name).sum())
    counts["documents"] = run.deduplicated.num_documents
    report_lists(run.withdrawn, run.job.corpus, run.progress, counts)
    if settings.user_inference_holdout:
        counts["user_inference_holdout"] = run.user_inference_holdout.num_documents
    report_repairs(run, counts)
    counts.update(run.whole_corpus.reading.skipped(), reading=run.whole_corpus.reading.counts())
    _warn_of_owners(run)


def report_repairs(run: Run, counts: dict[str, Any]) -> None:
    """Add to ``counts`` how many records were repaired while documents were read, and warn of them."""
    for name, count in run.deduplicated.repaired.items():
        counts[name] = count
        run.progress.warn(f"{name}: {count:,}")


def _warn_of_owners(run: Run) -> None:
    """Warn if no individual has two documents, which may mean that the ids given as individuals' ids are those of
    documents.
    """

    corpus, settings = run.whole_corpus, run.job.corpus
    if corpus.format in FORMATS and not FORMATS[corpus.format].names_individuals and not settings.individual:
        run.progress.warn(
            f"format {corpus.format} does not say whose a document is: every document counts as an individual "
            "of its own, which protects individuals with several too little; corpus.individual says otherwise"
        )
    elif (settings.individual or not settings.marked) and corpus.num_individuals == corpus.num_documents:
        how = "corpus.individual" if settings.individual else f"column {settings.individual_id}"
        run.progress.warn(
            f"{how}: each of the {corpus.num_documents:,} documents has an individual of its own. If these are ids "
            "of documents, individuals with several are protected too little; choose the column of individuals"
        )


def canary_steps(run: Run) -> Iterator[Step]:
    """Yield the step that plants canaries in members' documents (artefact ``canaries``); none for a job without
    canaries."""
    config = run.job.canaries
    if config is None:
        return
    more = [str(column) for column in run.job.detect.of("records").get("columns", {}).values()]
    kept = config.model_dump(include={"num", "arms", "repetitions", "num_references"})
    kept |= {"k": config.k, "seed": config.chosen_seed, **({"columns": more} if more else {})}
    inputs = {"corpus": run.remaining.fingerprint(), "split": run.fingerprints.of("split")}
    yield Step.of(Artefact("canaries", "canaries", kept, inputs), partial(_build_canaries, run, config, more))
    run.invalidate("documents", "corpus")


def _build_canaries(run: Run, config: CanaryConfig, more: list[str], folder: Path, counts: dict[str, Any]) -> None:
    """Draw canaries, plant them in members' documents, and write canaries and documents into ``folder``. ``more`` are
    the names of further document columns to keep, ``counts`` is filled in for the manifest.
    """
    words = common_words(run.remaining, run.individuals, config)
    canaries = draw_canaries(run.individuals, words, config)
    write_canaries(canaries, folder)
    planted = plant(run.remaining, run.individuals, canaries, folder, config, more_columns=more)
    counts.update(canaries=canaries.num_rows, included=sum(canaries.column("included").to_pylist()), **planted)
    run.progress.warn("canaries stand in the documents: models that are trained on them are for measuring only")
