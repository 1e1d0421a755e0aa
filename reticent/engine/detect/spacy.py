"""spaCy: the entities of any installed pipeline, a path, or a blank pipeline with patterns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from reticent.engine.detect import spans_batch
from reticent.errors import PolicyError

__all__ = ["SpacyDetector"]


class SpacyDetector:
    """Named entities of a spaCy pipeline.

    Parameters
    ----------
    pipeline : str or Path
        Name of an installed package, a folder that ``nlp.to_disk`` wrote, or ``blank:<language>``.
    patterns : sequence of dict, optional
        Patterns for an ``entity_ruler``; for a blank pipeline they are all there is.
    labels : sequence of str, optional
        Entity labels to keep; default: people, places, organisations and dates under their usual names.
    """

    name = "spacy"
    columns: tuple[str, ...] = ()
    LABELS = ("PERSON", "PER", "GPE", "LOC", "FAC", "ORG", "DATE", "NORP")

    def __init__(
        self,
        pipeline: str | Path,
        *,
        patterns: Sequence[dict[str, Any]] | None = None,
        labels: Sequence[str] | None = None,
        batch_size: int = 64,
    ):
        try:
            import spacy
        except ImportError:
            raise PolicyError("detector spacy needs spaCy: install reticent[ner]") from None
        name = str(pipeline)
        try:
            self._nlp = spacy.blank(name.removeprefix("blank:")) if name.startswith("blank:") else spacy.load(pipeline)
        except (OSError, ImportError):
            raise PolicyError(f"spaCy pipeline {name!r} is neither installed nor a readable folder") from None
        if patterns:
            ruler: Any = self._nlp.add_pipe("entity_ruler")
            ruler.add_patterns(list(patterns))
            labels = labels if labels is not None else sorted({pattern["label"] for pattern in patterns})
        self._labels = frozenset(labels if labels is not None else self.LABELS)
        self._batch_size = batch_size

    def detect(self, batch: pa.RecordBatch) -> pa.Table:
        texts = batch.column("text").to_pylist()
        rows: list[tuple[int, int, int, str]] = []
        for document, parsed in enumerate(self._nlp.pipe(texts, batch_size=self._batch_size)):
            rows += [(document, e.start_char, e.end_char, e.label_) for e in parsed.ents if e.label_ in self._labels]
        columns: list[Any] = list(zip(*rows, strict=True)) if rows else [[], [], [], []]
        types = (pa.int64(), pa.int32(), pa.int32(), pa.string())
        return spans_batch(*(pa.array(list(column), kind) for column, kind in zip(columns, types, strict=True)))
