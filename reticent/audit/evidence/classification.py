"""Evidence of classification: F1 of classes on held-out documents, from each start. It stays in the run's folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from reticent.audit.evidence.json_form import nullable, optional
from reticent.audit.evidence.rules import (
    COUNT,
    NAME,
    OVER_INDIVIDUALS,
    PARTS,
    PATH,
    PRIVATE,
    SETTING,
    TOGETHER,
    TOTAL,
    Settings,
)
from reticent.audit.stats.estimate import Estimate

__all__ = ["ClassRow", "ClassificationEvidence", "ClassifiedStart", "ClassifierTraining", "MeasuredClasses"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassRow:
    """F1 of one class, its held-out documents and their individuals."""

    f1: Annotated[Estimate, OVER_INDIVIDUALS]
    documents: Annotated[int | None, COUNT]
    individuals: Annotated[int | None, COUNT]

    def closed(self, raw: ClassRow, cell: int) -> ClassRow:
        """No count of documents of few individuals."""
        few = raw.individuals is None or 0 < raw.individuals < cell
        return replace(self, documents=None) if few else self


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredClasses:
    """F1 over the classes and of each; ``confusion`` counts documents, a row a true class, a column a predicted one."""

    macro_f1: Annotated[Estimate, OVER_INDIVIDUALS]
    micro_f1: Annotated[Estimate, OVER_INDIVIDUALS]
    classes: Annotated[list[ClassRow], PARTS]
    #: Closed by the small cell where it is measured, as its sums would give cells away.
    confusion: Annotated[list[list[int | None]] | None, TOGETHER]
    documents: Annotated[int | None, COUNT]
    individuals: Annotated[int | None, COUNT]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifierTraining:
    """Settings of the training of a classifier."""

    losses: Annotated[list[float], TOTAL]
    num_steps: Annotated[int, TOTAL]
    num_trained: Annotated[int, TOTAL]
    num_parameters: Annotated[int, TOTAL]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifiedStart(MeasuredClasses):
    """The classifier on one checkpoint, or a baseline; epoch 0 for the base model and without a model."""

    recipe: Annotated[str, PATH]
    epoch: Annotated[int, SETTING]
    training: Annotated[ClassifierTraining | None, PARTS] = optional()
    seed: Annotated[int | None, PRIVATE] = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassificationEvidence:
    """Every start of one model section (None: of folders), the documents that were used and those that were not."""

    format: Annotated[str, SETTING]
    model: Annotated[str | None, NAME] = nullable()
    settings: Annotated[Mapping[str, object], Settings("classify")]
    classes: Annotated[list[str], NAME]
    documents: Annotated[dict[str, int], COUNT]
    individuals: Annotated[dict[str, int], COUNT]
    results: Annotated[list[ClassifiedStart], PARTS]
