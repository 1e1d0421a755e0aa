"""EDS: rules of edsnlp for French clinical text, or a pipeline of edsnlp or eds-pseudo from a local path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from reticent.core.errors import PolicyError
from reticent.engine.detect.detector import texts_of
from reticent.engine.detect.passages import Found, cut_texts, join_spans


class EdsDetector:
    """Detects entities and dates with a pipeline of edsnlp.

    Parameters
    ----------
    pipeline : str or Path, optional
        Local folder that ``nlp.to_disk`` wrote, or a config file; nothing is fetched. Default: edsnlp's rules of dates.
    components : mapping, optional
        Components and their settings, in order, in place of the default rules; those of eds-pseudo among them where it
        is installed. ``{"eds.sentences": {}, "eds.matcher": {"regex": {"IPP": ["8[0-9]{9}"]}}}``, say.
    groups : sequence of str
        Groups of ``doc.spans`` that are taken beside ``doc.ents``.
    labels : sequence of str, optional
        Labels to keep, whatever their case; default: all.
    batch_size : int
        Texts that go through the pipeline together.

    Notes
    -----
    Of the dates those that name a day, month or year are taken, and not "yesterday".
    """

    name = "eds"
    columns: tuple[str, ...] = ()
    WINDOW, OVERLAP = 100_000, 400
    RULES = ("eds.sentences", "eds.dates")

    def __init__(
        self,
        pipeline: str | Path | None = None,
        *,
        components: Mapping[str, Mapping[str, Any]] | None = None,
        groups: Sequence[str] = ("dates",),
        labels: Sequence[str] | None = None,
        batch_size: int = 32,
    ):
        if pipeline is not None and components is not None:
            raise PolicyError("detector eds: give pipeline or components, not both")
        if pipeline is not None and not Path(pipeline).exists():  # edsnlp would take it for a package or a hub name
            raise PolicyError(f"detector eds: pipeline {str(pipeline)!r} is no local folder or config file")
        try:
            import spacy

            spacy.blank("xx")  # registers spaCy's components: once edsnlp is imported, loading a pipeline does not
            import edsnlp
        except ImportError:
            raise PolicyError("detector eds needs edsnlp: install reticent[eds]") from None
        if pipeline is not None:
            try:
                self._nlp: Any = edsnlp.load(Path(pipeline))
            except Exception as error:  # whatever its components raise
                raise PolicyError(
                    f"detector eds: {pipeline} cannot be loaded as a pipeline of edsnlp ({type(error).__name__})"
                ) from None
        else:
            self._nlp = edsnlp.blank("eds")
            for name, settings in (components or {rule: {} for rule in self.RULES}).items():
                try:
                    self._nlp.add_pipe(name, config=dict(settings))
                except Exception as error:
                    raise PolicyError(f"detector eds: component {name} is not one ({type(error).__name__})") from None
        self._groups = tuple(groups)
        self._labels = frozenset(label.upper() for label in labels) if labels is not None else None
        self._batch_size = batch_size

    def detect(self, batch: pa.RecordBatch) -> pa.Table:
        """Return the identifier spans found in a batch of documents (schema `BATCH_SPANS`)."""
        texts = texts_of(batch).to_pylist()
        windows = cut_texts(texts, self.WINDOW, self.OVERLAP)
        parsed = self._nlp.pipe([texts[w.document][w.start : w.end] for w in windows], batch_size=self._batch_size)
        return join_spans(windows, [self._wanted_spans(document) for document in parsed])

    def _wanted_spans(self, parsed: Any) -> list[Found]:
        """Return the wanted entities in a document that edsnlp has processed, each as (start, end, label, score)."""
        spans = [*parsed.ents, *(span for group in self._groups for span in parsed.spans.get(group, ()))]
        return [
            (span.start_char, span.end_char, span.label_.upper(), 1.0)
            for span in spans
            if (self._labels is None or span.label_.upper() in self._labels) and not _relative(span)
        ]


def _relative(span: Any) -> bool:
    """Whether a span is a relative date, such as "yesterday"."""
    date = getattr(span._, "date", None) if span.has_extension("date") else None
    return type(date).__name__ == "RelativeDate"
