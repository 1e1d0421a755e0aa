"""`reticent detect sample` and `reticent detect evaluate`: write documents for annotators, and measure recall from
their annotations.

A sample is drawn from the documents that the stages after ``detect`` see, with the spans of the run's folder in them.
Text leaves the run only into the folder that the user names. The measured recall is the artefact ``sampled-recall`` of
the run folder, which the report shows while the spans are those that were measured.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reticent import _rust
from reticent.audit.evidence.json_form import to_json
from reticent.core.artifact import fingerprint, write_artifact
from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.canaries import open_canaries
from reticent.engine.detect import quarantined_rows
from reticent.engine.detect.labels import category
from reticent.engine.detect.marks import gather_marks
from reticent.engine.schema import SPAN_TYPE, SPANS
from reticent.engine.sources.columns import sorted_codes
from reticent.ext.annotate.annotation import Annotation, Span, check_texts, read_annotation, write_annotation
from reticent.ext.annotate.sample import draw_sample, iter_rows
from reticent.job.detection_learned import TAUGHT_OUT, taught
from reticent.job.pipeline import execute
from reticent.job.run import Run
from reticent.job.stages.audit import SAMPLED_RECALL

if TYPE_CHECKING:
    from reticent.audit.evidence.sampled import SampledRecall
    from reticent.core.progress import Progress
    from reticent.engine.detect.marks import Marks
    from reticent.job.config import Job
    from reticent.job.run import Run


def sample_documents(
    job: Job, out: Path | str, num_documents: int, *, seed: int, by_disagreement: bool, progress: Progress
) -> dict[str, Any]:
    """Draw a stratified sample of a run's documents, more where detectors differ if ``by_disagreement``, and write it
    for annotators into ``out``; return the numbers of documents drawn, of all documents and of strata.

    The spans are brought up to date first. Parameters and errors as in :func:`draw_sample` and
    :func:`write_annotation`; `CorpusError` also where a document changes meanwhile.
    """
    run = _run_detection(job, progress)
    with progress.task("sample", None, "documents"):
        ends = _text_ends_of_corpus(run)
        sample = draw_sample(
            run.corpus,
            run.folder / "spans",
            num_documents,
            seed=seed,
            by_disagreement=by_disagreement,
            ends=ends,
        )
        rows = np.sort([document.row for document in sample.documents])
        texts = _texts_by_row(run, rows, ends)
        found: dict[int, list[Span]] = {int(row): [] for row in rows}
        for span in _detected_spans(run, rows).to_pylist():
            if span["end"] <= len(texts[span["document"]]):
                found[span["document"]].append((span["start"], span["end"], span["label"]))
        run.require_unchanged()  # the spans are those of the text that was read first
        write_annotation(out, sample, texts, found)
    return {"documents": len(rows), "of": sum(sample.strata), "strata": len(sample.strata)}


def evaluate_sample(
    job: Job, files: Sequence[Path], progress: Progress, *, all_reviewed: bool = False
) -> SampledRecall:
    """Measure the recall of a run's detected spans against the spans of one or two annotators, in ``files``; store the
    result in the run folder and return it.

    With ``all_reviewed`` documents of BRAT in which no span was changed count as reviewed, and the result says so.

    Raises
    ------
    CorpusError
        A file is spoilt or of other documents (:func:`read_annotation`, :func:`check_texts`), the annotators had
        different samples, or documents of BRAT are unchanged and not said to be reviewed.
    PolicyError
        No file, more than two, or the same one twice.
    """
    from reticent.ext.annotate.recall import measure_agreement, unite_spans, weighted_recall

    if not 1 <= len(files) <= 2:
        raise PolicyError(f"expected the annotations of one or two annotators, got {len(files)}")
    if len({_annotation_path(path).resolve() for path in files}) < len(files):
        raise PolicyError(f"{files[0]}: given twice; whoever agrees with themselves is no second annotator")
    run = _run_detection(job, progress)
    annotations = [read_annotation(file) for file in files]
    _check_samples(run, annotations, files)
    if not all_reviewed:
        _require_changed(annotations, files)
    sample = annotations[0].sample
    order = np.argsort([document.row for document in sample.documents])
    rows = np.array([document.row for document in sample.documents], dtype=np.int64)[order]
    ends = _text_ends_of_corpus(run)
    texts = _texts_by_row(run, rows, ends)
    for annotation, file in zip(annotations, files, strict=True):
        check_texts(annotation, texts, file)
    own = [_spans_by_row(annotation) for annotation in annotations]
    stratum = np.array([document.stratum for document in sample.documents], dtype=np.int64)[order]
    sizes = np.array(sample.strata)
    if (left_out := _in_tagger_training(run, rows)).any():
        progress.warn(TAUGHT_OUT.format(int(left_out.sum())))
        rows, stratum, sizes = _drop_documents(left_out, rows, stratum, sizes)
    united = [unite_spans([spans[int(row)] for spans in own]) for row in rows]
    with progress.task("evaluate", None, "documents"):
        marks = _gather_spans(run, rows, texts, united)
        agreement = None
        if len(own) == 2:
            first, second = (_gather_spans(run, rows, texts, [spans[int(row)] for row in rows]) for spans in own)
            agreement = measure_agreement(
                first, second, _num_words(rows, texts), num_bootstrap=job.audit.num_bootstrap, seed=job.seed
            )
        result = weighted_recall(
            marks, stratum, sizes, household=_households(run, rows), annotators=len(files),
            agreement=agreement,
        )  # fmt: skip
        if any(annotation.unchanged for annotation in annotations):
            result = replace(result, all_reviewed=True)
    inputs = {"spans": run.fingerprints.of("spans"), "corpus": run.corpus.fingerprint()}
    inputs |= {
        f"annotation {number}": fingerprint(_annotation_path(path)) for number, path in enumerate(files, start=1)
    }
    with write_artifact(run.folder / SAMPLED_RECALL, kind=SAMPLED_RECALL, config={}, inputs=inputs) as writer:
        (writer.path / "recall.json").write_text(json.dumps(to_json(result), indent=1, allow_nan=False))
        writer.counts["documents"] = result.documents
    return result


def _in_tagger_training(run: Run, rows: np.ndarray) -> np.ndarray:
    """Return for each document, given by corpus row, whether any document of its individual was used to train the
    tagger; bool."""
    return taught(run, run.corpus.scan().column("individual_id").take(pa.array(rows)))


def _drop_documents(
    is_left_out: np.ndarray, rows: np.ndarray, stratum: np.ndarray, sizes: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Drop from a stratified sample the documents for which ``is_left_out`` is true. Return corpus rows and strata of
    the other documents, and the strata's ``sizes`` in the corpus, reduced in the same proportion.
    """
    if is_left_out.all():
        raise CorpusError("every individual of this sample taught the tagger; draw another sample to measure it")
    drawn, left = (np.bincount(of, minlength=len(sizes)) for of in (stratum, stratum[~is_left_out]))
    kept = np.flatnonzero(left)
    fewer = np.maximum(np.round(sizes[kept] * left[kept] / drawn[kept]).astype(np.int64), left[kept])
    return rows[~is_left_out], np.searchsorted(kept, stratum[~is_left_out]), fewer


def _run_detection(job: Job, progress: Progress) -> Run:
    """Return the run of a job after its detection stage has been brought up to date."""
    run = Run(job, progress)
    execute(run, "detect", alone=True)
    return run


def _annotation_path(path: Path) -> Path:
    """Return the BRAT subfolder of an annotation folder that has one, else the path itself."""
    return path / "brat" if path.is_dir() and (path / "brat").is_dir() else path


def _text_ends_of_corpus(run: Run) -> np.ndarray | None:
    """Return the length in characters of each document's text before its first planted canary, int64, without the
    documents set aside because a detector failed on them. None if the job plants no canaries.
    """
    ends = text_ends(run)
    return None if ends is None else np.delete(ends, quarantined_rows(run.folder / "spans"))


def text_ends(run: Run) -> np.ndarray | None:
    """Return the number of characters before the first canary of each document, int64 (documents,); the largest int64
    where it has none. None if the job plants no canaries.
    """
    if run.job.canaries is None:
        return None
    places = open_canaries(run.folder / "canaries").places
    ends = np.full(run.documents.num_documents, np.iinfo(np.int64).max)
    np.minimum.at(ends, places.column("document").to_numpy(), places.column("start").to_numpy())
    return ends


def _texts_by_row(run: Run, rows: np.ndarray, ends: np.ndarray | None) -> dict[int, str]:
    """Return row -> text of the documents at these rows. Each text is cut at its character offset in ``ends``, if
    given.
    """
    texts = [text for batch in iter_rows(run.corpus, rows, ("text",)) for text in batch.column("text").to_pylist()]
    return {int(row): text if ends is None else text[: ends[row]] for row, text in zip(rows, texts, strict=True)}


def _detected_spans(run: Run, rows: np.ndarray) -> pa.Table:
    """Return the table of spans detected in the documents at these rows; column ``document`` has the row."""
    file = pq.ParquetFile(run.folder / "spans" / "spans.parquet")
    wanted = pa.array(rows, pa.int64())
    parts = []
    for group in range(file.num_row_groups):
        table = file.read_row_group(group)
        parts.append(table.filter(pc.is_in(table.column("document"), value_set=wanted)))
    return pa.concat_tables(parts).cast(SPANS) if parts else SPANS.empty_table()


def _check_samples(run: Run, annotations: Sequence[Annotation], files: Sequence[Path]) -> None:
    """Raise `CorpusError` unless all annotation files are of one sample, drawn from this run's corpus."""
    corpus = run.corpus.fingerprint()
    for annotation, file in zip(annotations, files, strict=True):
        rows = [document.row for document in annotation.sample.documents]
        if annotation.sample.corpus != corpus or max(rows, default=0) >= run.corpus.num_documents:
            raise CorpusError(f"{file}: drawn from other documents than this run has; draw a sample of it")
        if _document_keys(annotation) != _document_keys(annotations[0]):
            raise CorpusError(f"{file}: of another sample than {files[0]}; two annotators read the same documents")


def _require_changed(annotations: Sequence[Annotation], files: Sequence[Path]) -> None:
    """Raise `CorpusError` if BRAT documents have only the detected spans, so that nobody may have reviewed them."""
    for annotation, file in zip(annotations, files, strict=True):
        if names := annotation.unchanged:
            raise CorpusError(
                f"{file}: {len(names):,} of {len(annotation.spans):,} documents, such as {names[0]}, have the marks "
                "that detection made and no other, and BRAT does not say whether they were reviewed; if every document "
                "was, give --all-reviewed"
            )


def _document_keys(annotation: Annotation) -> set[tuple[str, int]]:
    """Return the (file name, corpus row) of every sampled document as a set, by which two samples are compared."""
    return {(document.name, document.row) for document in annotation.sample.documents}


def _spans_by_row(annotation: Annotation) -> dict[int, list[Span]]:
    """Return document row -> annotated spans, with labels mapped to categories."""

    return {
        document.row: [(start, end, category(label)) for start, end, label in spans]
        for document, spans in zip(annotation.sample.documents, annotation.spans, strict=True)
    }


def _gather_spans(run: Run, rows: np.ndarray, texts: dict[int, str], spans: Sequence[Sequence[Span]]) -> Marks:
    """Return the sampled documents with their words, annotated spans (``spans``: one list for each document) and
    detected spans, as the `Marks` from which recall is computed.
    """

    ids = [
        each
        for batch in iter_rows(run.corpus, rows, ("individual_id",))
        for each in batch.column("individual_id").to_pylist()
    ]
    gold = [[dict(zip(("start", "end", "label"), span, strict=True)) for span in own] for own in spans]
    batch = pa.record_batch(
        {
            "individual_id": pa.array(ids, pa.string()),
            "text": pa.array([texts[int(row)] for row in rows], pa.large_string()),
            "spans": pa.array(gold, pa.list_(SPAN_TYPE)),
        }
    )
    found = _detected_spans(run, rows)
    number = np.searchsorted(rows, found.column("document").to_numpy())
    lengths = np.array([len(texts[int(row)]) for row in rows])
    found = found.set_column(0, SPANS.field("document"), pa.array(number))
    return gather_marks([batch], found.filter(pa.array(found.column("end").to_numpy() <= lengths[number])).cast(SPANS))


def _households(run: Run, rows: np.ndarray) -> np.ndarray | None:
    """Return the household number of each document's individual, int64; None if the run has no households of several
    individuals.
    """
    ids = run.corpus.scan()
    if "household_id" not in ids.column_names or ids.column("household_id").null_count:
        return None
    individual, household = (sorted_codes(ids.column(name))[1] for name in ("individual_id", "household_id"))
    if len(np.unique(individual)) == len(np.unique(household)):
        return None
    return np.unique(household[rows], return_inverse=True)[1].reshape(-1)


def _num_words(rows: np.ndarray, texts: dict[int, str]) -> np.ndarray:
    """Return the number of words of each document in the order of ``rows``, int64."""
    return np.diff(_rust.segment(pa.array([texts[int(row)] for row in rows], pa.large_string())).doc_offsets)
