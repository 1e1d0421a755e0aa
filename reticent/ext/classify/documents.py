"""`reticent classify` and `tagger train`: train heads on labelled documents, and measure F1 on held-out individuals.

This module joins the floors: the engine reads labels and tokens, the trainer trains the head, and the audit measures
it. Results include baselines: the commonest class, a bag of words, and a head on the base model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reticent.audit.evidence.classification import (
    ClassificationEvidence,
    ClassifiedStart,
    ClassifierTraining,
    MeasuredClasses,
)
from reticent.audit.evidence.json_form import extended
from reticent.core.errors import CorpusError
from reticent.engine.schema import MEMBERS
from reticent.engine.split import households_named
from reticent.engine.store import open_tokens, open_view
from reticent.engine.word_ids import WordSpans
from reticent.ext.classify.labels import LabelledTokens, label_documents
from reticent.ext.classify.tags import FEWEST, TaggedTokens, measure_tags, tag, tag_documents

if TYPE_CHECKING:
    from reticent.engine.corpus import Corpus
    from reticent.engine.split import Individuals
    from reticent.engine.store import TokenStore
    from reticent.ext.classify.measure import Truth
    from reticent.ext.classify.training import StepReport
    from reticent.job.config import Job, ModelSection
    from reticent.job.run import Run
    from reticent.trainer.config import HeadConfig

FORMAT = "reticent.classification/1"
FILE = "classification.json"


def read_labels(corpus: Corpus, job: Job) -> pa.Table:
    """Return a table of doc_id and class label of every document of a corpus (null: no label).

    Raises
    ------
    CorpusError
        The column is missing, of another type, or all of its values are null.
    """
    column = job.classifying().label or job.corpus.label
    labelled = replace(corpus, columns=corpus.columns.replace(label=column), _fingerprint=None)
    table = pa.Table.from_batches(labelled.batches(columns=("doc_id", "label")))
    if table.num_rows and table.column("label").null_count == table.num_rows:
        raise CorpusError(f"column {column}: no document has a label")
    return table


def labelled_documents(run: Run, model: ModelSection, head: HeadConfig) -> LabelledTokens | TaggedTokens:
    """Return a run's tokenised documents with the labels that the head predicts (classes or BIO tags). Documents of
    members, the individuals to train on, are for training, the others held out.

    Classes are those of the source: a copy with canaries in it has only the columns that the corpus maps.
    """
    store = open_tokens(run.folder / f"tokens/{model.name}/audit")
    is_member, households = run.individuals.mask(MEMBERS), _households(run.corpus, run.individuals, run.job)
    if head.section == "classify":
        return label_tokens(store, read_labels(run.remaining, run.job), is_member, run.job, households)
    assert store.path is not None
    rows = open_view(store.path).documents
    spans = WordSpans(run.folder / "word-spans")
    fewest = 0 if head.private else FEWEST
    is_train = is_member[store.individual]
    return tag_documents(store, spans, is_train, documents=rows, households=households, fewest=fewest)


def _households(corpus: Corpus, individuals: Individuals, job: Job) -> np.ndarray | None:
    """Return the household number of each individual: from the household column if the corpus was split by individual,
    else from the split. None if there are no households.
    """
    return households_named(corpus, individuals) if job.split.by == "individual" else individuals.units


def label_tokens(
    store: TokenStore, labels: pa.Table, is_member: np.ndarray, job: Job, households: np.ndarray | None = None
) -> LabelledTokens:
    """Return tokenised documents with their class labels from a table (doc_id, label); those of members (``is_member``,
    by individual code) are for training.
    """
    rows = pc.index_in(store.doc_ids, value_set=labels.column("doc_id").combine_chunks())
    if rows.null_count:
        raise CorpusError(f"{rows.null_count} documents of the tokens are not in the corpus; run protect again")
    return label_documents(
        store,
        labels.column("label").combine_chunks().take(rows),
        is_member[store.individual],
        min_individuals=job.classifying().min_individuals,
        households=households,
    )


def _heldout_truth(documents: LabelledTokens) -> Truth:
    """Return the true classes of the held-out documents, with their individuals."""
    from reticent.ext.classify.measure import Truth

    test = ~documents.is_train
    return Truth(documents.classes[test], documents.store.individual[test], len(documents.class_names))


def measure_baselines(documents: LabelledTokens, job: Job) -> list[ClassifiedStart]:
    """Return the F1 on held-out documents of two baselines without a language model: the commonest class, and logistic
    regression on bags of words.
    """
    from reticent.ext.classify.measure import predict_from_words, predict_majority

    classes, is_train = documents.classes, documents.is_train
    found = {
        "majority class": predict_majority(classes, is_train),
        "bag of words": predict_from_words(documents.store, classes, is_train),
    }
    return [
        extended(_measure_f1(documents, said, job), ClassifiedStart, recipe=name, epoch=0)
        for name, said in found.items()
    ]


def train_one(
    checkpoint: Path,
    recipe: str,
    epoch: int,
    documents: LabelledTokens | TaggedTokens,
    config: HeadConfig,
    job: Job,
    out: Path | None,
    progress: Callable[[StepReport], None],
    **more: Any,
) -> ClassifiedStart:
    """Train a classifier or tagger on top of one ``checkpoint`` and test it on held-out documents. Return F1, losses,
    numbers of steps and parameters, and epsilon; ``recipe`` and ``epoch`` of the checkpoint are only copied to the
    result, and ``more`` is passed on to `classify` or `tag`.
    """
    from reticent.ext.classify.training import classify

    found = (classify if isinstance(documents, LabelledTokens) else tag)(
        checkpoint, documents, config, out=out, progress=progress, **more  # type: ignore[arg-type]
    )  # fmt: skip
    training = ClassifierTraining(
        losses=found.losses,
        num_steps=found.num_steps,
        num_trained=found.num_trained,
        num_parameters=found.num_parameters,
        guarantee=None if found.guarantee is None else str(found.guarantee),
    )
    measured = _measure_f1(documents, found.predicted, job)
    return extended(measured, ClassifiedStart, recipe=recipe, epoch=epoch, training=training)


def _measure_f1(documents: LabelledTokens | TaggedTokens, predicted: np.ndarray, job: Job) -> MeasuredClasses:
    """Return F1 with intervals of predicted classes or tags on the held-out documents."""
    from reticent.ext.classify.measure import measure

    audit = job.audit
    options = {"num_bootstrap": audit.num_bootstrap, "seed": job.seed, "small_cell": audit.small_cell}
    if isinstance(documents, LabelledTokens):
        return measure(_heldout_truth(documents), predicted, **options)
    return measure_tags(documents, predicted, **options)


def assemble_result(
    documents: LabelledTokens | TaggedTokens, job: Job, head: HeadConfig, model: str | None, rows: list[ClassifiedStart]
) -> ClassificationEvidence:
    """Return the classification evidence: these result rows with the settings, the class names, and numbers of
    documents and individuals.
    """
    is_train, individual = documents.is_train, documents.store.individual
    if isinstance(documents, LabelledTokens):
        classes, column = documents.class_names, {"label": job.classifying().label or job.corpus.label}
    else:
        classes, column = documents.categories, {}
    return ClassificationEvidence(
        format=FORMAT,
        task=head.head,
        model=model,
        settings={
            **head.model_dump(),
            **column,
            "window_length": job.train.window_length,
            "seed": job.seed,
            "small_cell": job.audit.small_cell,
        },
        classes=list(classes),
        documents={
            "train": int(np.count_nonzero(is_train)),
            "heldout": int(np.count_nonzero(~is_train)),
            **documents.left_out,
        },
        individuals={
            "train": len(np.unique(individual[is_train])),
            "heldout": len(np.unique(individual[~is_train])),
        },
        results=rows,
    )
