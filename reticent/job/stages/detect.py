"""From documents to the spans of direct identifiers, and to the quarantined documents, on which a detector failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from reticent.core.artifact import fingerprint, read_manifest
from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.canaries import mark_spans, open_canaries
from reticent.engine.detect import (
    Detector,
    detect_spans,
    make_detectors,
    option_files,
    option_packages,
    quarantined_rows,
    rules_digest,
)
from reticent.engine.detect.common import counted_words, learn_common_words
from reticent.engine.detect.passages import cached, delete_cache
from reticent.engine.detect.propagate import propagate
from reticent.engine.detect.records import missing_records_warning
from reticent.engine.languages import KNOWN, OtherLanguages
from reticent.engine.reuse import ReusedSpans
from reticent.job.artefact import Artefact, Step
from reticent.job.detection_learned import LEARNED, learn_config_of, options_of
from reticent.job.maker import is_up_to_date
from reticent.job.run import Run

#: Folder of the run that keeps what a trained NER found.
NER_CACHE = "ner-cache"
#: Count of the spans that holds, in a list, the digest of the rules that found them.
RULES = "rules_digest"
#: Takes nothing; returns the spans that are taken from another run, or None where all documents are searched.
Carried = Callable[[], "ReusedSpans | None"]


def detect_steps(run: Run, carried: Carried | None = None) -> Iterator[Step]:
    """Yield the step that detects direct identifiers (artefact ``spans``). In an update ``carried`` is a function that
    returns the spans to reuse from the previous run, or None to search all documents.
    """
    spans = spans_artefact(run)
    yield Step.of(spans, partial(_build_spans, run, carried), prepare=partial(_prepare_detection, run, spans))
    run.invalidate("corpus")


def _prepare_detection(run: Run, spans: Artefact) -> None:
    """Delete the NER cache where caching is off, and warn of spans that another version's rules found."""
    if not run.job.detect.cache:
        delete_cache(run.folder / NER_CACHE)
    if is_up_to_date(run, spans) and has_other_rules(run):
        run.progress.warn_once(
            f"{run.folder / 'spans'}: found by the rules of another version of Reticent, which may find more or less "
            "than this one; they are kept, and with them all models. Delete that folder to search all documents again"
        )


def has_other_rules(run: Run) -> bool:
    """Return whether the spans of a run were found with other detection code or word lists than this version's."""
    searched = {*run.job.detect.detectors} - {"gold"}
    return bool(searched) and read_manifest(run.folder / "spans").counts.get(RULES) != [rules_digest()]


def spans_artefact(run: Run) -> Artefact:
    """Return the artefact ``spans``, with the detectors' options as settings and the files that they read as inputs."""

    settings = run.job.detect
    files = dict(option_files(settings.options))
    own = {} if run.job.canaries is None else {"canaries": run.fingerprints.of("canaries")}
    if learn_config_of(run.job) is not None:
        own[LEARNED] = run.fingerprints.of(LEARNED)
    inputs = {"corpus": run.documents.fingerprint(), **own, **{o: fingerprint(path) for o, path in files.items()}}
    config = settings.model_dump(include={"detectors", "on_error", "propagate"})
    config["options"] = {
        name: {
            key: value
            for key, value in table.items()
            if not any(f"{file}.".startswith(f"{name}.{key}.") for file in files)
        }
        for name, table in ((name, settings.of(name)) for name in settings.detectors)
    }
    if packages := option_packages({name: settings.of(name) for name in settings.detectors}):
        config["packages"] = packages
    if settings.propagate:
        config |= {name: value for name, value in run.job.protect.cache_key().items() if name.startswith("scopes")}
    if run.job.corpus.ids == "exact" and "records" in settings.detectors:  # "stop" compares ids with the records'
        config["ids"] = "exact"
    return Artefact("spans", "spans", config, inputs)


def _build_spans(run: Run, carried: Carried | None, folder: Path, counts: dict[str, Any]) -> None:
    """Run the job's detectors and write their spans into ``folder``. In an update ``carried`` returns the spans to
    reuse from the previous run.
    """
    job = run.job
    detectors = make_detectors(job.detect.detectors, options_of(job), num_threads=job.num_threads, ids=job.corpus.ids)
    _find_identifiers(run, detectors, carried() if carried else None, folder, counts)


def _find_identifiers(
    run: Run, detectors: Sequence[Detector], carried: ReusedSpans | None, folder: Path, counts: dict[str, Any]
) -> None:
    """Detect identifiers in all documents and write the spans into ``folder``; with the setting ``detect.propagate``
    also spans of the other occurrences of the same identifiers. ``carried`` has the spans of unchanged documents to
    reuse in an update.
    """

    settings = run.job.detect
    for detector in detectors:
        if detector.name == "records":
            _check_records(run, detector, counts)
    languages = _count_other_languages(run, detectors)
    with (
        cached(run.folder / NER_CACHE, detectors if settings.cache else ()),
        run.progress.task("detect", run.documents.num_documents, "documents") as advance,
    ):
        counts.update(
            detect_spans(
                run.documents, detectors, folder, on_error=settings.on_error, carried=carried, progress=advance
            )
        )
    counts.update(run.whole_corpus.reading.skipped(), **languages, **{RULES: [rules_digest()]})
    rows = quarantined_rows(folder)
    if len(rows):
        run.progress.warn(
            f"{len(rows):,} of {run.documents.num_documents:,} documents are left out of everything that follows: a "
            f"detector failed on them; spans/quarantine.parquet lists them"
        )
    corpus = run.documents.without(rows) if len(rows) else run.documents
    if settings.propagate:
        with (
            _replacing_spans_file(folder) as (given, written),
            run.progress.task("propagate", corpus.num_documents, "documents") as advance,
        ):
            spread = propagate(
                corpus,
                given,
                written,
                scopes=run.job.protect.scopes,
                common=counted_words(corpus, detectors),
                num_threads=run.job.num_threads,
                progress=advance,
            )
        counts.update(spans=spread["spans"], propagated=spread["propagated"])
    if run.job.canaries is not None:
        ids = run.documents.scan().column("doc_id").combine_chunks()
        counts["canaries"] = mark_spans(folder / "spans.parquet", open_canaries(run.folder / "canaries"), ids, rows)


def _count_other_languages(run: Run, detectors: Sequence[Detector]) -> dict[str, int]:
    """Return the number of documents of 30 words or more, and of those in a language that no detector covers. In the
    same pass, the detectors that need the corpus's common words are given them.

    Raises
    ------
    PolicyError
        The preset "thorough" has a pipeline of a language that less than half of them are in.
    """
    learned = [language for detector in detectors for language in getattr(detector, "languages", ())]
    languages = OtherLanguages((*KNOWN, *learned))
    learn_common_words(run.documents, detectors, languages.add)
    if warning := languages.warning():
        run.progress.warn_once(warning)
    asked = languages.counts()
    for detector in detectors if run.job.detect.preset == "thorough" else ():
        own = getattr(detector, "language", "xx")
        num = languages.in_language(own)
        if own != "xx" and 2 * num < asked["long_documents"]:
            raise PolicyError(
                f'detect.preset = "thorough": the pipeline of detector {detector.name} is for {own}, and {num:,} of '
                f"{asked['long_documents']:,} documents of 30 words or more are in it; give one of their language "
                f'(detect.{detector.name}), or choose preset = "fast"'
            )
    return asked


@contextmanager
def _replacing_spans_file(folder: Path) -> Iterator[tuple[Path, Path]]:
    """Context manager for rewriting ``spans.parquet``: the file is renamed, and (path of the renamed file, path to
    write the new file to) is yielded. The renamed file is deleted at the end.
    """
    given, written = folder / "united.parquet", folder / "spans.parquet"
    written.rename(given)
    yield given, written
    given.unlink()


def _check_records(run: Run, detector: Any, counts: dict[str, Any]) -> None:
    """Count individuals without a record and fields without a value, and warn of them.

    Raises
    ------
    CorpusError
        No individual has a record, as with ids of another system, or an individual's record has another spelling of
        the id.

    """

    if detector.num_skipped:
        counts["empty_fields"] = detector.num_skipped
    if detector.warning:
        run.progress.warn(detector.warning)
    ids = run.documents.scan().column("individual_id").unique()
    path = run.job.detect.of("records").get("table")
    detector.check_ids(ids, f"{path} column individual_id")
    missing = detector.num_without_record(ids)
    if missing == len(ids):
        raise CorpusError(
            f"{path}: column individual_id holds none of the {len(ids):,} individuals of the documents "
            f"(their column {run.job.corpus.individual_id})"
        )
    if missing:
        counts["without_record"] = missing
        run.progress.warn(missing_records_warning(missing, len(ids), path))
