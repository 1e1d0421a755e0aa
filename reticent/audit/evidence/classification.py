"""Evidence of classification: F1 of classes on held-out documents, for each start. It stays in the run's folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from reticent.audit.evidence.json_form import optional
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
from reticent.trainer.config import ClassifyConfig, TagConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassRow:
    """F1 of one class, and the numbers of its held-out documents and their individuals."""

    f1: Annotated[Estimate, OVER_INDIVIDUALS]
    documents: Annotated[int | None, COUNT]
    individuals: Annotated[int | None, COUNT]

    def withhold_small_counts(self, raw: ClassRow, cell: int) -> ClassRow:
        """Return a publishable copy of the results on one class: the number of documents is removed if fewer than
        ``cell`` individuals wrote them. ``raw`` is the unpublished row."""
        few = raw.individuals is None or 0 < raw.individuals < cell
        return replace(self, documents=None) if few else self


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredClasses:
    """F1 over all classes and of each. ``confusion`` counts documents: one row for each true class, one column for each
    predicted class."""

    macro_f1: Annotated[Estimate, OVER_INDIVIDUALS]
    micro_f1: Annotated[Estimate, OVER_INDIVIDUALS]
    classes: Annotated[list[ClassRow], PARTS]
    #: Its small cells are withheld where it is measured, because row and column sums would reveal single cells.
    confusion: Annotated[list[list[int | None]] | None, TOGETHER]
    documents: Annotated[int | None, COUNT]
    individuals: Annotated[int | None, COUNT]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifierTraining:
    """Training settings of a classifier."""

    losses: Annotated[list[float], TOTAL]
    num_steps: Annotated[int, TOTAL]
    num_trained: Annotated[int, TOTAL]
    num_parameters: Annotated[int, TOTAL]
    guarantee: Annotated[str | None, SETTING] = optional()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifiedStart(MeasuredClasses):
    """The classifier on one checkpoint, or a baseline; the epoch is 0 for the base model and for a baseline."""

    recipe: Annotated[str, PATH]
    epoch: Annotated[int, SETTING]
    training: Annotated[ClassifierTraining | None, PARTS] = optional()
    seed: Annotated[int | None, PRIVATE] = optional()


class ClassifySettings(ClassifyConfig, TagConfig):
    """Settings that are kept with the results of classification, or of tagging."""

    small_cell: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassificationEvidence:
    """Every start of one model section (None: of folders), with the numbers of documents used and left out. Of taggers
    the classes are the categories of identifiers.
    """

    format: Annotated[str, SETTING]
    task: Annotated[str, SETTING] = "class"
    model: Annotated[str | None, NAME] = None
    settings: Annotated[Mapping[str, object], Settings(ClassifySettings)]
    classes: Annotated[list[str], NAME]
    documents: Annotated[dict[str, int | None], COUNT]
    individuals: Annotated[dict[str, int | None], COUNT]
    results: Annotated[list[ClassifiedStart], PARTS]
