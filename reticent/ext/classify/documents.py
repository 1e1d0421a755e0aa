"""`reticent classify`: labels of documents, their tokens and checkpoints -> F1 on held-out individuals.

This module joins the floors: the engine reads labels and tokens, the trainer trains the classifier, and the audit
measures it beside its baselines: the commonest class, a bag of words, and the same classifier on the base model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

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
from reticent.engine.store import open_tokens
from reticent.ext.classify.labels import label_documents

if TYPE_CHECKING:
    from reticent.engine.corpus import Corpus
    from reticent.engine.store import TokenStore
    from reticent.ext.classify.labels import LabelledTokens
    from reticent.ext.classify.measure import Truth
    from reticent.ext.classify.training import ClassifyConfig, StepReport
    from reticent.job.config import Job, ModelSection
    from reticent.job.run import Run

__all__ = ["FILE", "baselines", "classify_one", "label_tokens", "labelled_documents", "read_labels", "result_of"]

FORMAT = "reticent.classification/1"
FILE = "classification.json"


def read_labels(corpus: Corpus, job: Job) -> pa.Table:
    """Return doc_id and label of every document, checked as far as possible before anything is trained.

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


def labelled_documents(run: Run, model: ModelSection) -> LabelledTokens:
    """Return the labelled documents of a run in a model's tokens: members to train on, held-out ones to measure on.

    Labels are those of the source: a copy with canaries in it has only the columns that the corpus maps.
    """

    store = open_tokens(run.folder / f"tokens/{model.name}/audit")
    return label_tokens(store, read_labels(run.remaining, run.job), run.individuals.mask(MEMBERS), run.job)


def label_tokens(store: TokenStore, labels: pa.Table, is_member: np.ndarray, job: Job) -> LabelledTokens:
    rows = pc.index_in(store.doc_ids, value_set=labels.column("doc_id").combine_chunks())
    if rows.null_count:
        raise CorpusError(f"{rows.null_count} documents of the tokens are not in the corpus; run protect again")
    return label_documents(
        store,
        labels.column("label").combine_chunks().take(rows),
        is_member[store.individual],
        min_individuals=job.classifying().min_individuals,
    )


def _truth(documents: LabelledTokens) -> Truth:
    from reticent.ext.classify.measure import Truth

    test = ~documents.is_train
    return Truth(documents.classes[test], documents.store.individual[test], len(documents.class_names))


def baselines(documents: LabelledTokens, job: Job) -> list[ClassifiedStart]:
    from reticent.ext.classify.measure import bag_of_words, majority

    classes, is_train = documents.classes, documents.is_train
    found = {
        "majority class": majority(classes, is_train),
        "bag of words": bag_of_words(documents.store, classes, is_train),
    }
    return [
        extended(_measured(documents, said, job), ClassifiedStart, recipe=name, epoch=0) for name, said in found.items()
    ]


def classify_one(
    checkpoint: Path,
    recipe: str,
    epoch: int,
    documents: LabelledTokens,
    config: ClassifyConfig,
    job: Job,
    out: Path | None,
    progress: Callable[[StepReport], None],
) -> ClassifiedStart:
    from reticent.ext.classify.training import classify

    found = classify(checkpoint, documents, config, out=out, progress=progress)
    training = ClassifierTraining(
        losses=found.losses,
        num_steps=found.num_steps,
        num_trained=found.num_trained,
        num_parameters=found.num_parameters,
    )
    measured = _measured(documents, found.predicted, job)
    return extended(measured, ClassifiedStart, recipe=recipe, epoch=epoch, training=training)


def _measured(documents: LabelledTokens, predicted: np.ndarray, job: Job) -> MeasuredClasses:
    from reticent.ext.classify.measure import measure

    audit = job.audit
    return measure(
        _truth(documents), predicted, num_bootstrap=audit.num_bootstrap, seed=job.seed, small_cell=audit.small_cell
    )


def result_of(
    documents: LabelledTokens, job: Job, model: str | None, rows: list[ClassifiedStart]
) -> ClassificationEvidence:
    is_train, individual = documents.is_train, documents.store.individual
    return ClassificationEvidence(
        format=FORMAT,
        model=model,
        settings={
            **job.classifying().model_dump(),
            "label": job.classifying().label or job.corpus.label,
            "window_length": job.train.window_length,
            "seed": job.seed,
            "small_cell": job.audit.small_cell,
        },
        classes=list(documents.class_names),
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
