"""The command `reticent scrub`: write the documents of a job with their direct identifiers
replaced.

It is no stage of a job: its result is for others, and no stage uses it.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reticent.audit.config import AuditConfig
from reticent.core.artifact import MANIFEST, read_manifest, write_artifact
from reticent.core.errors import ArtifactError, PolicyError
from reticent.engine.config import SplitConfig
from reticent.engine.detect import quarantined_rows
from reticent.engine.detect.spans import SpanReader
from reticent.engine.names import REALISTIC, SYLLABLES
from reticent.ext.exports.write import FORMS, write_export
from reticent.ext.scrub.scrub import new_key, read_key, scrub_corpus
from reticent.job.detection_learned import languages_of
from reticent.job.given_spans import has_spans, spans_as_given
from reticent.job.pipeline import execute
from reticent.job.run import Run
from reticent.job.staged import staged_job

if TYPE_CHECKING:
    from reticent.core.progress import Progress
    from reticent.ext.scrub.scrub import ScrubConfig
    from reticent.job.config import Job
    from reticent.job.run import Run

KEY_FILE = "scrub.key"


def scrub_documents(
    job: Job,
    out: Path | str,
    config: ScrubConfig,
    *,
    in_run_folder: bool,
    progress: Progress,
    key: bytes | None = None,
    keep_key: bool = False,
    overwrite: bool = False,
    renew_key: bool = False,
) -> dict[str, Any]:
    """Replace the direct identifiers in a job's documents, and write the documents to the artefact ``out``; return its
    counts.

    The result has no copies that the job's deduplication leaves out, no documents in quarantine and no canaries. It
    has the documents that the job holds back from training. What was read from FHIR or HL7 v2 is written so too
    (``out/export``).

    Parameters
    ----------
    in_run_folder : bool
        Use the spans of the run folder ``job.out``, which are brought up to date first. Otherwise, or if the
        job trains on other documents than it was given, its detectors run in a folder inside the unfinished artefact.
        Their spans, which show where the identifiers were, are deleted.
    key : 32 bytes, optional
        Default: a new one, which is not kept unless ``keep_key`` writes it to ``out/scrub.key``.
    overwrite : bool
        Replace scrubbed documents that are in ``out``. A key that was kept there is used again and stays.
    renew_key : bool
        With ``overwrite``: the key that was kept there may be lost.

    Raises
    ------
    PolicyError
        ``out`` holds the documents themselves, or scrubbed ones that are not to be overwritten, or their key would be
        lost.
    """

    out = Path(out)
    # Documents as they were given: none held back, nothing planted. Spans that the run has found serve for them too.
    before = None
    if job.split.user_inference_holdout or job.canaries is not None:
        before = Run(job, progress) if in_run_folder and has_spans(Run(job)) else None
        job, in_run_folder = job.changed(split=SplitConfig(), canaries=None, audit=AuditConfig(), gate=()), False
    run = Run(job, progress)
    place = os.path.realpath(out)
    if any(os.path.realpath(file).startswith(place + os.sep) for file in run.whole_corpus.files):
        raise PolicyError(f"{out}: holds the documents that are to be scrubbed; choose another --out")
    # A column that the search does not read and the copy does: one that is missing must not show after hours.
    next(run.whole_corpus.batches(columns=("doc_id", "label", "household_id")), None)
    if (kept := _earlier_key(out, key, overwrite=overwrite, renew_key=renew_key)) is not None:
        key, keep_key = kept, True
    if in_run_folder:
        execute(run, "detect", alone=True)
    settings = _settings(job, config)
    inputs = {"corpus": run.whole_corpus.fingerprint()}
    with write_artifact(out, kind="scrub", config=settings, inputs=inputs) as writer:
        work = writer.path / "work"
        corpus, spans, num_quarantined = _documents_and_spans(run, None if in_run_folder else work, before)
        secret = key or new_key()
        if keep_key:
            (writer.path / KEY_FILE).write_text(secret.hex() + "\n", encoding="ascii")
        with (
            progress.stage("scrub", writer.counts),
            progress.task("scrub", corpus.num_documents, "documents") as advance,
        ):
            counts = scrub_corpus(
                corpus, SpanReader(spans), writer.path, config, secret, languages=languages_of(job), progress=advance,
                warn=progress.warn_once,
            )  # fmt: skip
            if job.detect.on_error == "quarantine":
                counts["quarantined"] = num_quarantined
            counts.update(run.whole_corpus.reading.skipped())
            writer.counts.update(counts)
            scheme = str(job.corpus.remote).partition("://")[0].lower()
            if scheme in FORMS:
                write_export(writer.path / "export", scheme, writer.path / "documents")
        run.whole_corpus.require_unchanged()  # the spans are those of the text that was read first
        if not in_run_folder:
            shutil.rmtree(work)
    _warn(counts, config, progress)
    return counts


def _documents_and_spans(run: Run, work: Path | None, before: Run | None) -> tuple[Any, Path, int]:
    """Return the documents to scrub, the folder with their detected spans, and how many documents are left out because
    a detector failed. If ``work`` is given, detection runs in this folder, on the original documents of an earlier run
    if ``before`` is given; else the run's own spans are used.
    """

    if work is not None and before is not None:
        execute(before, "detect")
        work.mkdir()
        corpus, num_quarantined = spans_as_given(before, work)
        return corpus, work, num_quarantined
    if work is not None:
        run = Run(staged_job(run.job).model_copy(update={"out": str(work)}), run.progress)
        execute(run, "detect", alone=True)
    spans = run.folder / "spans"
    return run.corpus, spans, len(quarantined_rows(spans))


def _settings(job: Job, config: ScrubConfig) -> dict[str, Any]:
    """Return the settings of a scrub for its manifest, without paths or names, since the folder goes to others."""
    settings = {
        "style": config.style,
        "draw": config.draw,
        "shift_days": config.dates.shift_days,
        "date_order": config.dates.order,
        "new_ids": config.new_ids,
        **({"names": _settings_of_names(config)} if config.style in ("surrogate", "rotate") else {}),
        # The detectors' options are left out: they may hold names (patterns) and paths, and this folder goes to others.
        "detect": job.detect.model_dump(mode="json", include={"detectors", "on_error", "propagate"}),
    }
    if job.dedup.mode != "off":
        settings["dedup"] = job.dedup.model_dump(mode="json")
    return settings


def _settings_of_names(config: ScrubConfig) -> dict[str, Any]:
    """Return source, language and digest of the surrogate names for a manifest, without a file path."""

    names = config.names
    source = names.source if names.source in (REALISTIC, SYLLABLES) else "file"
    return {"source": source, "language": names.language, "digest": names.digest()}


def _earlier_key(out: Path, key: bytes | None, *, overwrite: bool, renew_key: bool) -> bytes | None:
    """Return the secret key of an earlier scrub in the folder ``out``, so that pseudonyms stay the same; None without
    one. Raise `PolicyError` if the new scrub, with its own ``key``, would overwrite the earlier result or key unasked.
    """

    with suppress(ArtifactError):  # the folder may be damaged
        read_manifest(out)
    if not (out / MANIFEST).exists():
        return None
    if not overwrite:
        raise PolicyError(f"{out}: holds a result already; choose another --out, or replace it with --overwrite")
    if renew_key or not (out / KEY_FILE).exists():
        return None
    kept = read_key(out / KEY_FILE)
    if key not in (None, kept):
        raise PolicyError(
            f"{out / KEY_FILE}: another key than the one to scrub with would be lost; move it away, or give it up with "
            "--new-key"
        )
    return kept


def _warn(counts: dict[str, Any], config: ScrubConfig, progress: Progress) -> None:
    """Warn of documents left out because a detector failed on them, spans that cut words, ambiguous dates, and
    surrogates that occur as real names in the corpus.
    """
    if counts.get("quarantined"):
        progress.warn(f"{counts['quarantined']:,} documents are not in the result: a detector failed on them")
    if counts["cut_words"]:
        progress.warn(f"{counts['cut_words']:,} spans begin or end inside a word; the rest of these words still stands")
    if counts["ambiguous_dates"] and config.dates.shift_days:
        progress.warn(
            f"{counts['ambiguous_dates']:,} dates such as 3/4 do not say which number is the day, nor do others of "
            "their documents; they were read as most of the corpus is (--date-order says otherwise)"
        )
    if counts["collided"] and config.names.source == SYLLABLES:  # realistic names are not kept from coincidences
        progress.warn(f"{counts['collided']:,} surrogates are names or ids that really occur in the corpus")
