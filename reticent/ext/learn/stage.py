"""The trained tagger of a run: documents are drawn, a teacher (other detectors) labels them, a tagger is trained; each
an artefact.

The report ``learned.json`` holds the training data's size, the tagger's recall and precision on unseen individuals, and
the word shapes that it misses most, without text. ``taught.parquet`` lists the individuals it was trained on, whose
documents are excluded from measures of recall.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reticent import _rust
from reticent.core.artifact import fingerprint
from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.corpus import Columns, open_corpus
from reticent.engine.detect import detect_spans, make_detectors, option_files, option_packages
from reticent.engine.detect.choose import DETECTORS, require_detector
from reticent.engine.detect.common import count_common_words
from reticent.engine.detect.detector import FOUND, find_in_turn, found_in
from reticent.engine.detect.labels import category
from reticent.engine.detect.learned import (
    LESSONS,
    MIN_EXAMPLES,
    UNKNOWN,
    LearnConfig,
    TaggerConfig,
    key_id,
    learn_tagger,
    marked_categories,
)
from reticent.engine.detect.passages import cached
from reticent.engine.detect.preset import PRESETS, expand_preset
from reticent.engine.detect.spans import SpanReader
from reticent.engine.languages import OtherLanguages
from reticent.engine.noisy_threshold import read_or_draw_key
from reticent.engine.randomness import generator
from reticent.engine.sources.columns import sorted_codes
from reticent.engine.sources.formats import FORMATS
from reticent.engine.withdrawn import read_ids, sha256
from reticent.ext.annotate.annotation import check_ends, read_annotation
from reticent.ext.annotate.sample import iter_rows, text_digest
from reticent.job.artefact import Artefact, Step
from reticent.job.detection_learned import KEY, LEARNED, REPORT, TAUGHT, learn_config_of
from reticent.job.stages.detect import NER_CACHE

if TYPE_CHECKING:
    from reticent.engine.corpus import Corpus
    from reticent.engine.detect import Detector
    from reticent.job.run import Run

#: Artefact of the documents that were drawn, with what a teacher found in them.
TEACHER: Final = "teacher"
_STREAM: Final = 49
#: F1 of words that two leans may differ by and count as equal.
_CLOSE: Final = 0.01
#: Parts of the individuals, each left out once; fewer where there are many documents.
_FOLDS, _FOLDS_OF_MANY, _MANY = 5, 3, 500
#: The leans tried: what is subtracted from the score of no identifier.
LEANS: Final = (0.0, 0.125, 0.25, 0.375, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
#: Characters that a field's value may stand behind its colon.
_FIELD: Final = 60
#: Forms of missed words that are told.
_MOST_FORMS: Final = 12
#: Labels of rules that know a value by its form or its check digit.
_CERTAIN: Final = ("ID", "EMAIL", "URL", "IP", "PHONE", "DATE")
_CAPITAL: Final = re.compile(r"\b[^\W\d_a-zß-öø-ÿ]\w+")


def learned_steps(run: Run) -> Iterator[Step]:
    """Yield the steps that build the tagger which a job trains: draw documents that other detectors label (if it learns
    from them), then train it. Yield nothing if the job trains none.
    """
    config = learn_config_of(run.job)
    if config is None:
        return
    corpus = {"corpus": run.documents.fingerprint()}
    if config.teacher or config.certain:
        names, options = _teacher_detectors(run, config)
        settings: dict[str, Any] = {"teacher": config.teacher, "documents": config.documents, "seed": run.job.seed}
        settings["teacher_options"] = _without_file_options(options)
        if packages := option_packages({name: options.get(name, {}) for name in names}):
            settings["packages"] = packages
        files = {name: fingerprint(path) for name, path in option_files(options)}
        taught = Artefact(TEACHER, TEACHER, settings, corpus | files)
        yield Step.of(taught, partial(_run_teacher, run, config))
        corpus[TEACHER] = run.fingerprints.of(TEACHER)
    if config.marks is not None:
        corpus["marks"] = fingerprint(Path(config.marks))
        corpus |= {f"withdrawn.{n}": fingerprint(Path(file)) for n, file in enumerate(run.job.corpus.withdrawn)}
    settings = {name: value for name, value in asdict(config).items() if name != "marks"}
    settings |= {"k": _min_individuals(run, config), "seed": run.job.seed, "beside": _other_detectors(run)}
    if not run.fingerprints.looking or (run.folder / KEY).exists():
        settings["key"] = key_id(_feature_key(run))
    options = {name: run.job.detect.of(name) for name in _other_detectors(run)}
    settings["options"] = _without_file_options(options)
    corpus |= {name: fingerprint(path) for name, path in option_files(options)}
    yield Step.of(Artefact(LEARNED, LEARNED, settings, corpus), partial(_learn, run, config))


def _without_file_options(options: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the options of each detector (detector name -> option -> value) without the options that name a file.
    Manifests record the content of such a file, not its path.
    """
    files = {name for name, _ in option_files(options)}
    return {
        name: {key: value for key, value in table.items() if f"{name}.{key}" not in files}
        for name, table in options.items()
    }


def _min_individuals(run: Run, config: LearnConfig) -> int:
    """Return the fewest individuals whose documents must have a feature for the tagger to use it: the setting, else the
    job's k.
    """
    return run.job.protect.k if config.k is None else config.k


def _feature_key(run: Run) -> bytes:
    """Return the run's secret key that hashes the tagger's features, 16 bytes, drawn if missing."""
    return read_or_draw_key(run.folder / KEY)[:16]


def _other_detectors(run: Run) -> list[str]:
    """Return the names of the job's detectors besides the tagger that report exact offsets."""
    names = [name for name in run.job.detect.detectors if name != "learned"]
    return [name for name in names if getattr(DETECTORS[name].load(), "exact_offsets", False)]


# ------------------------------------------------------------------------------------------------------------- teacher


def _teacher_detectors(run: Run, config: LearnConfig) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """Return the names of the teacher's detectors and the options of each, the job's own records and gazetteer among
    them.
    """
    if not config.teacher:
        return [], {}
    options = {name: dict(table) for name, table in config.teacher_options.items()}
    for name in ("records", "gazetteer"):
        if table := run.job.detect.of(name):
            options.setdefault(name, dict(table))
    try:
        if config.teacher in PRESETS:
            names, options = expand_preset(config.teacher, options)
        else:
            names = [require_detector(config.teacher)]
    except ValueError as error:
        presets = "" if config.teacher in PRESETS else f", or a preset: {', '.join(PRESETS)}"
        raise PolicyError(f"detect.learned.teacher: {error}{presets}") from None
    return names, {name: options[name] for name in names if name in options}


def _run_teacher(run: Run, config: LearnConfig, folder: Path, counts: dict[str, Any]) -> None:
    """Draw random documents, run the teacher (a stronger detector to learn from) on them, and write their spans to
    ``folder``.
    """
    num = run.documents.num_documents
    drawn = np.sort(generator(run.job.seed, _STREAM).choice(num, min(config.documents, num), replace=False))
    pq.write_table(pa.table({"document": drawn}), folder / "documents.parquet")
    counts["documents"] = len(drawn)
    if not config.teacher:
        return
    chosen = run.documents.without(np.setdiff1d(np.arange(num), drawn))
    names, options = _teacher_detectors(run, config)
    teachers = make_detectors(names, options, num_threads=run.job.num_threads, ids=run.job.corpus.ids)
    with (
        cached(run.folder / NER_CACHE, teachers if run.job.detect.cache else ()),
        run.progress.task("teacher", len(drawn), "documents") as advance,
    ):
        found = detect_spans(chosen, teachers, folder, progress=advance)
    counts["spans"] = found["spans"]
    if not found["spans"]:
        raise CorpusError(
            f"the teacher {config.teacher} found nothing in {len(drawn):,} documents: nothing can be learned from it"
        )


def _teacher_lessons(
    run: Run, config: LearnConfig, marked: pa.ChunkedArray, detectors: Sequence[Any], common: Any
) -> tuple[pa.Table, pa.Table]:
    """Return training examples (table `LESSONS`) from the documents drawn at random, and the spans that the other
    detectors find in them. Each document occurs once for each source of its labels: the teacher's spans, and the
    certain finds of rules and records. Texts in ``marked``, which people annotated, are left out.
    """
    folder = run.folder / TEACHER
    rows = pq.read_table(folder / "documents.parquet").column("document").to_numpy()
    documents = _read_documents(run.documents, rows)
    is_marked = pc.is_in(documents.column("text"), marked.combine_chunks())
    kept = np.flatnonzero(~is_marked.to_numpy().astype(bool))
    if not len(kept):
        return LESSONS.empty_table(), FOUND.empty_table()
    documents = documents.take(kept)
    found, tables = _detect_in(documents, detectors, common), []
    if config.teacher:
        spans = SpanReader(folder).table(0, len(rows)).select(["document", "start", "end", "label"])
        tables.append(_lessons_from_spans(documents, found_in(spans, kept), config.weight("teacher")))
    if config.certain:
        if not any(detector.name in ("records", "rules") for detector in detectors):
            raise PolicyError("detect.learned.certain: needs the detector rules or records")
        tables.append(_certain_lessons(documents, found, config.weight("certain")))
    return pa.concat_tables(tables), pa.concat_tables(
        [_shift_documents(found, at * len(kept)) for at in range(len(tables))]
    )


def _shift_documents(spans: pa.Table, num_documents: int) -> pa.Table:
    """Return spans with ``num_documents`` added to the document number of each, so that they fit a table whose first
    ``num_documents`` documents are others."""
    return spans.set_column(0, FOUND.field(0), pc.add(spans.column("document"), num_documents))


def _lessons_from_spans(documents: pa.Table, spans: pa.Table, weight: float) -> pa.Table:
    """Return documents and their labelled spans as training examples (`LESSONS`) of the sample weight ``weight``."""
    marks: list[list[dict[str, Any]]] = [[] for _ in range(documents.num_rows)]
    for span in spans.to_pylist():
        marks[span.pop("document")].append(span)
    return _lessons_table(documents, marks, weight)


def _read_documents(corpus: Corpus, rows: np.ndarray) -> pa.Table:
    """Return the documents at these rows of a corpus as a table of doc_id, individual_id and text."""
    columns = ("doc_id", "individual_id", "text")
    tables = [pa.Table.from_batches([batch]).select(columns) for batch in iter_rows(corpus, rows, columns)]
    return pa.concat_tables([table.cast(_DOCUMENTS) for table in tables])


_DOCUMENTS: Final = pa.schema([("doc_id", pa.string()), ("individual_id", pa.string()), ("text", pa.large_string())])


def _lessons_table(documents: pa.Table, marks: Sequence[Sequence[Mapping[str, Any]]], weight: float) -> pa.Table:
    """Return documents and the marked spans (start, end, label) of each as training examples (`LESSONS`) of the sample
    weight ``weight``.
    """
    columns = [
        documents.column("individual_id"),
        documents.column("text"),
        pa.array(marks, LESSONS.field("spans").type),
    ]
    return pa.table([*columns, pa.array(np.full(len(marks), weight, dtype=np.float32))], schema=LESSONS)


def _certain_lessons(documents: pa.Table, found: pa.Table, weight: float) -> pa.Table:
    """Return documents as training examples (`LESSONS`), labelled only with the spans that are certain: those found
    from records, or by rules of strict formats. Other spans and capitalised words get the label `UNKNOWN`."""
    marks: list[list[dict[str, Any]]] = [[] for _ in range(documents.num_rows)]
    for span in found.to_pylist():
        known = span["detector"] == "records" or (span["detector"] == "rules" and category(span["label"]) in _CERTAIN)
        label = span["label"] if known else UNKNOWN
        marks[span["document"]].append({"start": span["start"], "end": span["end"], "label": label})
    for own, text in zip(marks, documents.column("text").to_pylist(), strict=True):
        own += [{"start": match.start(), "end": match.end(), "label": UNKNOWN} for match in _CAPITAL.finditer(text)]
    return _lessons_table(documents, marks, weight)


# --------------------------------------------------------------------------------------------------------------- marks


def read_marks_of(run: Run, path: Path, format: str = "auto", weight: float = 1.0) -> pa.Table:
    """Return the documents that people annotated, from an annotation file or folder, as training examples (`LESSONS`)
    of the sample weight ``weight``.

    Raises
    ------
    CorpusError
        They are a sample of other documents than the run's, an offset fits no text, or nothing is marked.
    """
    brat = next((folder for folder in (path, path / "brat") if (folder / "sample.json").is_file()), None)
    if brat is not None or (format == "auto" and path.suffix.lower() in (".json", ".html", ".htm")):
        annotation = read_annotation(path)
        rows = _rows_of(run, [document.sha256 for document in annotation.sample.documents])
        if not len(rows) or (rows < 0).all():
            raise CorpusError(f"{path}: marks of other documents than this run has; draw a sample of it")
        if missing := int((rows < 0).sum()):
            run.progress.warn(f"{path}: {missing:,} marked documents are none of this run any more: they teach nothing")
        is_read = np.array([document.name not in annotation.unchanged for document in annotation.sample.documents])
        if not is_read.all():
            run.progress.warn(
                f"{path}: {int((~is_read).sum()):,} documents have no mark but those of detection, and BRAT "
                "does not say whether they were reviewed: they teach nothing"
            )
        kept = np.flatnonzero((rows >= 0) & is_read)
        if not len(kept):
            raise CorpusError(
                f"{path}: no document was reviewed: change the marks of some, or review them in annotate.html"
            )
        kept = kept[np.argsort(rows[kept])]
        documents = _read_documents(run.documents, rows[kept])
        lengths = pc.utf8_length(documents.column("text")).to_pylist()
        for place, length in zip(kept.tolist(), lengths, strict=True):
            name = annotation.sample.documents[place].name
            check_ends(annotation.spans[place], length, f"{path}: document {name}")
        names = ("start", "end", "label")
        own = [[dict(zip(names, span, strict=True)) for span in annotation.spans[place]] for place in kept.tolist()]
        return _lessons_table(documents, own, weight)
    if format == "auto" and path.is_dir() and any(path.glob("**/*.ann")):
        format = "brat"
    if path.is_dir() and not any(file.is_file() for file in path.rglob("*")):
        marking = [row.name for row in FORMATS.values() if row.is_marked]
        raise CorpusError(
            f"{path}: no marks in this folder; expected what `reticent detect sample` wrote and people marked, BRAT, "
            f"Parquet, Arrow, CSV or JSONL with a column spans, or a format of detect.learned.marks_format: "
            f"{', '.join(marking)}"
        )
    marked = format in FORMATS and FORMATS[format].is_marked
    corpus = open_corpus(path, format=format, columns=None if marked else Columns(spans="spans"))
    batches = list(corpus.batches(columns=("doc_id", "individual_id", "text", "spans")))
    documents = pa.Table.from_batches(batches)
    if marked and not FORMATS[corpus.format].names_individuals:
        documents = _with_owners(run, path, corpus.format, documents)
    own = [
        [{name: span[name] for name in ("start", "end", "label")} for span in spans or ()]
        for spans in documents.column("spans").to_pylist()
    ]
    return _lessons_table(documents.select(_DOCUMENTS.names).cast(_DOCUMENTS), own, weight)


def _rows_of(run: Run, digests: Sequence[str]) -> np.ndarray:
    """Return for each SHA-256 of a text the row of the run's document that has this text, int64; -1 if no document has
    it.
    """
    from reticent.ext.annotate.command import text_ends  # loads compiled kernels

    wanted: dict[str, list[int]] = {}
    for place, digest in enumerate(digests):
        wanted.setdefault(digest, []).append(place)
    rows, first, ends = np.full(len(digests), -1, dtype=np.int64), 0, text_ends(run)
    for batch in run.documents.batches(columns=("text",)):
        for row, text in enumerate(batch.column("text").to_pylist(), start=first):
            if places := wanted.get(text_digest(text if ends is None else text[: ends[row]])):
                rows[places.pop()] = row
        first += batch.num_rows
    return rows


def _with_owners(run: Run, path: Path, format: str, documents: pa.Table) -> pa.Table:
    """Return annotated documents, each with the individual id of the run's document of the same text; documents that
    are not in the run keep the id that they have.
    """
    rows = _rows_of(run, [text_digest(text) for text in documents.column("text").to_pylist()])
    known = np.flatnonzero(rows >= 0)
    owners = np.array(documents.column("individual_id").to_pylist(), dtype=object)
    order = known[np.argsort(rows[known])]
    if len(order):
        owners[order] = _read_documents(run.documents, rows[order]).column("individual_id").to_pylist()
    if others := len(rows) - len(known):
        run.progress.warn(
            f"{path}: format {format} does not say whose a document is, and {others:,} of {len(rows):,} are none of "
            "this run: each of them counts as an individual of its own, so what k of them have may be of fewer people"
        )
    place = documents.column_names.index("individual_id")
    return documents.set_column(place, "individual_id", pa.array(owners.tolist(), pa.string()))


# --------------------------------------------------------------------------------------------------------------- learn


def _make_other_detectors(run: Run) -> list[Detector]:
    """Return the job's detectors besides the tagger that need no column but the text."""
    names = _other_detectors(run)
    options = {name: run.job.detect.of(name) for name in names}
    found = make_detectors(names, options, num_threads=run.job.num_threads, ids=run.job.corpus.ids)
    return [detector for detector in found if not detector.columns]


def _detect_in(documents: pa.Table, detectors: Sequence[Any], common: Any) -> pa.Table:
    """Return the spans that detectors find in documents (table `FOUND`); ``common`` are the corpus's common words, for
    detectors that use them.
    """
    for detector in detectors:
        for name in ("common_words", "known_words"):
            if hasattr(detector, name) and getattr(detector, name) is None:
                setattr(detector, name, common)
    (batch,) = documents.combine_chunks().to_batches() or [None]
    return FOUND.empty_table() if batch is None else find_in_turn(detectors, batch)


def _learn(run: Run, config: LearnConfig, folder: Path, counts: dict[str, Any]) -> None:
    """Train the tagger, and choose by cross-validation how far its scores are shifted towards recall (its "lean").
    Write the tagger and a report on its recall and precision to ``folder``.
    """
    marked = LESSONS.empty_table()
    if config.marks is not None:
        marked = read_marks_of(run, Path(config.marks), config.marks_format, config.weight("marks"))
        owners = marked.column("individual_id")
        for file in run.job.corpus.withdrawn:
            gone = read_ids(file, owners.unique(), run.job.corpus.ids)[0]
            marked = marked.filter(pc.invert(pc.is_in(marked.column("individual_id"), gone)))
        record = run.left_out(again=True)  # a register is no file, and marks may not say whose they are
        left = record.has_individuals(marked.column("individual_id").combine_chunks(), run.job.corpus.ids)
        left |= record.has("text", sha256(marked.column("text")))
        marked = marked.filter(pa.array(~left))
    num_marked, num_drawn = marked.num_rows, 0
    detectors = _make_other_detectors(run)
    names = [detector.name for detector in detectors]
    # As the run will: rules hear of the common words where another detector asks for them.
    wanted = config.corpus or any(getattr(detector, "common_words", False) is None for detector in detectors)
    common = count_common_words(run.documents, num_threads=run.job.num_threads) if wanted else None
    ids = pa.array([str(number) for number in range(num_marked)], pa.string())
    documents = marked.select(["individual_id", "text"]).add_column(0, "doc_id", ids)
    lessons, found = marked, _detect_in(documents, detectors, common)
    if config.teacher or config.certain:
        taught, beside = _teacher_lessons(run, config, marked.column("text"), detectors, common)
        num_drawn = taught.num_rows // (bool(config.teacher) + config.certain)  # one after the other, once for each
        lessons = pa.concat_tables([lessons, taught])
        found = pa.concat_tables([found, _shift_documents(beside, num_marked)])
    lessons = lessons.combine_chunks()
    settings = TaggerConfig(k=_min_individuals(run, config), corpus=config.corpus, seed=run.job.seed)
    _require_enough(lessons, settings.k)
    languages = OtherLanguages()
    languages.add(lessons.column("text").combine_chunks())
    with run.progress.task("learn", None, "documents"):
        report, lean = cross_validate(
            lessons, found, settings, key=_feature_key(run), common=common, detectors=names, precision=config.precision,
            measured=num_marked or num_drawn, num_bootstrap=run.job.audit.num_bootstrap, seed=run.job.seed,
        )  # fmt: skip
        tagger = learn_tagger(
            lessons, found, settings, key=_feature_key(run), common=common, detectors=names,
            languages=languages.main(),
        ).with_bias(lean)  # fmt: skip
    tagger.write(folder / "tagger.parquet")
    report["documents"] = num_marked + num_drawn
    report["sources"] = {"marks": num_marked, "drawn": num_drawn}
    report["left_out"] = {name: num for name, num in marked_categories(lessons).items() if num < MIN_EXAMPLES}
    for name, num in report["left_out"].items():
        run.progress.warn(f"category {name} has {num} marks, of {MIN_EXAMPLES} that are needed: it is not learned")
    for name, num in report["not_measured"].items():
        run.progress.warn(
            f"category {name} has {num} marks: in cross-validation too little of it is left to learn from (at least "
            f"{MIN_EXAMPLES} marks), so it is learned, but its recall is not measured"
        )
    if report["folds_not_learned"]:
        run.progress.warn(
            f"{report['folds_not_learned']} of {report['folds']} folds: too little is left to learn from without them, "
            f"so {(num_marked or num_drawn) - report['measured']:,} documents are not measured"
        )
    for name, found_of in report["categories"].items():
        if name not in report["left_out"] and found_of["recall"]["words"] and not found_of["recall"]["value"]:
            run.progress.warn(
                f"category {name}: of {found_of['recall']['words']:,} marked words the tagger finds none in "
                "documents of individuals that it has not seen"
            )
    (folder / REPORT).write_text(json.dumps(report, indent=1))
    pq.write_table(pa.table({"individual_id": lessons.column("individual_id").unique()}), folder / TAUGHT)
    num_marks = sum(marked_categories(lessons).values())
    counts.update(documents=report["documents"], individuals=report["individuals"], marks=num_marks)


def _max_folds(lessons: pa.Table) -> int:
    """Return the largest number of cross-validation folds for these training examples; it is smaller if the examples
    are many.
    """
    return _FOLDS if lessons.num_rows <= _MANY else _FOLDS_OF_MANY


def _require_enough(lessons: pa.Table, k: int) -> None:
    """Raise `CorpusError` if the training examples are of so few individuals that, with a fold left out, no feature can
    occur in documents of k of them.
    """
    num, folds = len(lessons.column("individual_id").unique()), _max_folds(lessons)
    if num < 2 or num - -(-num // folds) < k:
        raise CorpusError(
            f"the marked documents are of {num} individuals: with k = {k} a tagger needs "
            f"{max(2, -(-folds * k // (folds - 1)))} or more, for a feature to have enough of them; mark documents of "
            "more individuals, or lower detect.learned.k"
        )


# ------------------------------------------------------------------------------------------------------------ measured


def cross_validate(
    lessons: pa.Table,
    found: pa.Table,
    config: TaggerConfig,
    *,
    key: bytes,
    common: Any,
    detectors: Sequence[str],
    precision: float,
    measured: int,
    num_bootstrap: int = 1000,
    seed: int = 0,
) -> tuple[dict[str, Any], float]:
    """Cross-validate a tagger over individuals, on the first ``measured`` documents. Return a report of its recall and
    precision, and the shift of its scores ("lean") that gives the highest recall at the wanted ``precision``.

    Parameters
    ----------
    precision : float
        Of the words that are found, among all and among those in running text, which fields would outweigh; of all that
        keep it, the lean with the highest recall is chosen; see `choose_lean`.
    measured : int
        The first so many documents are measured: those that people marked, where there are any; else those that were
        drawn, as the teacher labelled them, if there is one. Words labelled `UNKNOWN` are not, nor words of a category
        that has enough marks to be learned, but too few without their fold.

    Returns
    -------
    dict, float
        individuals, documents, ``overall``, ``running_text`` and ``categories``: recall and precision of words, each
        with its interval over individuals; ``missed``: the commonest forms that are missed, without text;
        ``not_measured``: marks by category, of those of which no word is measured; ``folds_not_learned``: folds without
        which nothing can be learned, whose documents are not measured.
    """
    from reticent.audit.stats.intervals import ratio_estimate  # loads scipy and compiled kernels

    individual = sorted_codes(lessons.column("individual_id"))[1]
    num = len(np.unique(individual))
    own = np.unique(individual[:measured])
    folds = min(_max_folds(lessons), len(own))
    fold_of = np.full(num, -1)
    fold_of[own] = generator(seed, _STREAM + 1).permutation(len(own)) % folds
    fold = fold_of[individual]
    marks = marked_categories(lessons)
    words = _Words(lessons.slice(0, measured), marks)

    def predicted(number: int) -> list[tuple[np.ndarray, list[str], dict[float, np.ndarray]]]:
        """Train on all folds but this one, and predict its documents. Return one tuple (document rows, categories
        learned, shift of the scores towards recall -> predicted category of each word) in a list, which is empty if the
        other folds have too few examples.
        """
        rows = np.flatnonzero(fold[:measured] == number)
        rest = np.flatnonzero(fold != number)
        try:
            tagger = learn_tagger(
                lessons.take(rest), found_in(found, rest), config, key=key, common=common, detectors=detectors
            )
        except CorpusError:  # too little is left to learn from
            return []
        texts, beside = lessons.column("text").take(rows).combine_chunks(), found_in(found, rows)
        spans = {lean: tagger.with_bias(lean).find(texts, beside, common=common) for lean in LEANS}
        lanes = {lean: words.categories_of(rows, table) for lean, table in spans.items()}
        return [(rows, tagger.header.categories, lanes)]

    with ThreadPoolExecutor(2) as pool:
        parts = [part for parts in pool.map(predicted, range(folds)) for part in parts]
    lanes = {lean: np.zeros(len(words.gold), dtype=np.int64) for lean in LEANS}
    label = np.zeros(len(words.gold), dtype=np.int64)
    for rows, learned, of_lean in parts:
        at = words.indices_of(rows)
        # Of a category with too few marks in all, the tagger that is kept finds none: its words count as missed.
        is_counted = np.array([marks.get(name, 0) < MIN_EXAMPLES or name in learned for name in words.names])
        is_measured = is_counted[words.gold[at]]
        label[at] = np.where(is_measured, words.gold[at], 0)
        for lean, values in of_lean.items():
            lanes[lean][at] = np.where(is_measured, values, 0)
    gold, running = label > 0, ~words.in_field
    lean = choose_lean(lanes, gold, running, precision)
    # Nobody knows whether these are right: in the choice of a lean they count as wrong, or it would mark all of them.
    named = np.where(words.is_unknown, 0, lanes[lean])
    owner = individual[:measured][words.document]

    def share_found(is_found: np.ndarray, is_counted: np.ndarray) -> dict[str, Any]:
        """Return the share of the words marked in ``is_counted`` that are also marked in ``is_found`` (bool arrays),
        with its interval over individuals, and the number of counted words.
        """
        sums = [
            np.bincount(owner, weights=mask, minlength=num)[own].astype(np.float64)
            for mask in (is_found & is_counted, is_counted)
        ]
        estimate = asdict(ratio_estimate(*sums, num_bootstrap=num_bootstrap, seed=seed))
        return {name: estimate[name] for name in ("value", "low", "high", "n")} | {"words": int(is_counted.sum())}

    def recall_and_precision(gold: np.ndarray, hit: np.ndarray) -> dict[str, Any]:
        """Return recall and precision from masks of the true (``gold``) and the predicted words."""
        return {"recall": share_found(hit, gold), "precision": share_found(gold, hit)}

    categories = {
        name: recall_and_precision(label == number, named == number)
        for number, name in enumerate(words.names)
        if number
    }
    unmeasured = [words.names[n] for n in np.setdiff1d(words.gold, np.append(label, 0))]
    report = {
        "individuals": num, "documents": lessons.num_rows, "measured": sum(len(rows) for rows, _, _ in parts),
        "folds": folds, "lean": lean,
        "overall": recall_and_precision(gold, named > 0),
        "running_text": recall_and_precision(gold & running, (named > 0) & running),
        "categories": categories, "missed": words.missed_forms(gold & (named == 0)),
        "not_measured": {name: marks[name] for name in unmeasured if marks[name] >= MIN_EXAMPLES},
        "folds_not_learned": folds - len(parts),
    }  # fmt: skip
    return report, lean


def choose_lean(
    predictions: Mapping[float, np.ndarray], gold: np.ndarray, in_running_text: np.ndarray, precision: float
) -> float:
    """Return the largest lean (shift towards recall) whose predictions keep the wanted precision, on all words and in
    running text. If none does, return the largest whose F1 is nearly the best.
    """
    kept, f1 = [], {}
    for lean, lane in predictions.items():
        places = [found for found in (lane > 0, (lane > 0) & in_running_text) if found.any()]
        if places and all((gold & found).sum() >= precision * found.sum() for found in places):
            kept.append(lean)
        f1[lean] = 2 * (gold & (lane > 0)).sum() / max(gold.sum() + (lane > 0).sum(), 1)
    best = max(f1.values())
    return max(kept or [lean for lean, value in f1.items() if value >= best - _CLOSE]) if best else 0.0


class _Words:
    """The words of annotated documents, concatenated, with the category number of each; 0 is none. ``categories`` are
    those that any document is annotated with, as a tagger may find all of them."""

    def __init__(self, lessons: pa.Table, categories: Iterable[str]):
        self._texts = lessons.column("text").combine_chunks()
        words = _rust.segment(self._texts)
        self.offsets = words.doc_offsets
        self._starts, self._ends = words.char_spans(self._texts)
        self.document = np.repeat(np.arange(lessons.num_rows), np.diff(self.offsets))
        self.names = ["", *categories]
        spans = [
            (row, span["start"], span["end"], span["label"])
            for row, own in enumerate(lessons.column("spans").to_pylist())
            for span in own
        ]
        spans.sort(key=lambda span: span[3] != UNKNOWN)  # a word that is marked otherwise too is known
        gold = self._label_words(spans)
        self.gold, self.is_unknown = np.maximum(gold, 0), gold < 0
        self.in_field = self._find_fields()

    def indices_of(self, rows: np.ndarray) -> np.ndarray:
        """Return the indices of all words of these documents, concatenated, int64."""
        return np.concatenate([np.arange(self.offsets[row], self.offsets[row + 1]) for row in rows.tolist()])

    def categories_of(self, rows: np.ndarray, found: pa.Table) -> np.ndarray:
        """Return the predicted category of each word of the documents ``rows``, int64, from a table of predicted spans
        whose column ``document`` is an index into ``rows``.
        """
        spans = [(rows[s["document"]], s["start"], s["end"], s["label"]) for s in found.to_pylist()]
        return self._label_words(spans)[self.indices_of(rows)]

    def _label_words(self, spans: Sequence[tuple[int, int, int, str]]) -> np.ndarray:
        """Return the category of every word, int64 (0: none, -1: `UNKNOWN`), from spans (row, start, end, label)."""
        numbers = {name: number for number, name in enumerate(self.names)} | {UNKNOWN: -1}
        result = np.zeros(len(self._starts), dtype=np.int64)
        for row, start, end, label in spans:
            own = slice(self.offsets[row], self.offsets[row + 1])
            first = self.offsets[row] + np.searchsorted(self._ends[own], start, side="right")
            last = self.offsets[row] + np.searchsorted(self._starts[own], end, side="left")
            result[first:last] = numbers.get(category(label)) or numbers["OTHER"]
        return result

    def _find_fields(self) -> np.ndarray:
        """Return whether each word follows a colon on its line within `_FIELD` characters, as the value of a field such
        as "Name: Smith" does; bool (words,).
        """
        result = np.zeros(len(self._starts), dtype=bool)
        for row, text in enumerate(self._texts.to_pylist()):
            own = slice(self.offsets[row], self.offsets[row + 1])
            starts = self._starts[own].astype(np.int64)
            last = {}
            for mark in ":\n":
                at = np.array([-1, *(found.start() for found in re.finditer(mark, text))])
                last[mark] = at[np.searchsorted(at, starts) - 1]
            result[own] = (last[":"] > last["\n"]) & (starts - last[":"] <= _FIELD)
        return result

    def missed_forms(self, missed: np.ndarray) -> list[dict[str, Any]]:
        """Return the commonest kinds of missed words with their counts, where a kind is category, shape and place
        (field or running text); no letter of a word is shown.
        """
        counts: Counter[tuple[str, str, str]] = Counter()
        for word in np.flatnonzero(missed).tolist():
            text = self._texts[int(self.document[word])].as_py()
            place = "field" if self.in_field[word] else "running text"
            counts[self.names[self.gold[word]], _shape(text[self._starts[word] : self._ends[word]]), place] += 1
        return [
            {"category": name, "shape": shape, "place": place, "words": num}
            for (name, shape, place), num in sorted(counts.items(), key=lambda row: (-row[1], row[0]))[:_MOST_FORMS]
        ]


def _shape(word: str) -> str:
    """Return a word's shape: ``X`` capital, ``x`` small letter, ``9`` digit, ``-`` other; longer
    repeats end in ``+``."""
    classes = "".join("X" if c.isupper() else "9" if c.isnumeric() else "x" if c.isalpha() else "-" for c in word)
    return re.sub(r"(.)\1{2,}", r"\1+", classes)
