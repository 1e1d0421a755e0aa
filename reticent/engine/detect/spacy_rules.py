"""The rules as a component of spaCy: ``nlp.add_pipe("reticent_rules")``.

spaCy finds the factory by the entry point ``spacy_factories`` of this package and imports this module when it makes a
pipeline, so nothing heavy is imported here; without spaCy the import does nothing. Spans go where those of spaCy's own
span ruler go, into ``doc.spans``, and into ``doc.ents`` where that is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from reticent.engine.detect.rules import RulesDetector

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc


class RulesComponent:
    """A spaCy pipeline component that adds the rules' spans to documents.

    A span whose ends lie inside of tokens is widened to these tokens.

    Parameters
    ----------
    labels, fields : as of :class:`RulesDetector`
    spans_key : str
        The group of ``doc.spans`` that is written; ``None`` for none.
    annotate_ents : bool
        Whether ``doc.ents`` gets the spans too. An entity that was there stays unless ``overwrite`` says otherwise; of
        spans that overlap the longest is taken.
    """

    def __init__(
        self,
        name: str,
        *,
        labels: Sequence[str] | None = None,
        fields: Mapping[str, str] | None = None,
        spans_key: str | None = "reticent",
        annotate_ents: bool = False,
        overwrite: bool = False,
    ):
        self.name = name
        self.spans_key, self.annotate_ents, self.overwrite = spans_key, annotate_ents, overwrite
        self._detector = RulesDetector(labels, fields=fields, num_threads=1)

    def __call__(self, doc: Doc) -> Doc:
        """Add the spans to one document."""
        self._add_spans([doc])
        return doc

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128) -> Iterator[Doc]:
        """Yield spaCy documents with the spans of the rules added, processed in batches."""
        documents = iter(stream)
        while batch := list(islice(documents, batch_size)):
            self._add_spans(batch)
            yield from batch

    def _add_spans(self, docs: Sequence[Doc]) -> None:
        """Add the spans that the rules find to spaCy documents, in ``doc.spans`` and ``doc.ents`` as configured."""
        from spacy.util import filter_spans

        texts = pa.array([doc.text for doc in docs], pa.large_string())
        found: list[list[Any]] = [[] for _ in docs]
        columns = self._detector.detect(pa.record_batch({"text": texts})).select(["document", "start", "end", "label"])
        for number, start, end, label in zip(*(column.to_pylist() for column in columns.columns), strict=True):
            span = docs[number].char_span(start, end, label=label, alignment_mode="expand")
            if span is not None:
                found[number].append(span)
        for doc, spans in zip(docs, found, strict=True):
            spans.sort(key=lambda span: (span.start, span.end, span.label_))
            if self.spans_key is not None:
                doc.spans[self.spans_key] = spans
            if self.annotate_ents:
                own = filter_spans(spans)
                kept = [each for each in doc.ents if not self.overwrite or not any(map(_overlap_test(each), own))]
                doc.ents = [*kept, *(span for span in own if not any(map(_overlap_test(span), kept)))]


def _overlap_test(span: Any) -> Any:
    """Return a function that tells whether a spaCy span overlaps this one."""
    return lambda other: span.start < other.end and other.start < span.end


def make_rules(
    nlp: Language,
    name: str,
    labels: list[str] | None,
    fields: dict[str, str] | None,
    spans_key: str | None,
    annotate_ents: bool,
    overwrite: bool,
) -> RulesComponent:
    """Return the rules as a spaCy pipeline component (factory function); the settings are those of ``nlp.add_pipe``."""
    return RulesComponent(
        name,
        labels=labels,
        fields=fields,
        spans_key=spans_key,
        annotate_ents=annotate_ents,
        overwrite=overwrite,
    )


def _register() -> None:
    """Register the component's factory with spaCy; do nothing if spaCy is not installed."""
    try:
        from spacy.language import Language
    except ImportError:
        return
    nothing = {"labels": None, "fields": None}
    Language.factory(
        "reticent_rules",
        default_config={**nothing, "spans_key": "reticent", "annotate_ents": False, "overwrite": False},
        func=make_rules,
    )


_register()
