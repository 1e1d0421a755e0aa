"""Presidio: its pattern recognisers, and the entities of a spaCy pipeline where one is given. Never the network.

Presidio would download a pipeline, and the list of public suffixes that its recogniser of e-mails checks; the first is
replaced by a blank pipeline, for the second the copy in the package is used.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from reticent.core.errors import PolicyError
from reticent.engine.detect.detector import texts_of
from reticent.engine.detect.passages import cut_texts, join_spans
from reticent.engine.detect.spacy import load_pipeline


class PresidioDetector:
    """Detects identifiers with the analyser of Presidio.

    Parameters
    ----------
    language : str
        Language of the texts (en, fr, es, …): it chooses the recognisers.
    pipeline : str or Path, optional
        spaCy pipeline whose entities are taken too; default: a blank one, so patterns alone.
    entities : sequence of str, optional
        Entities to look for (EMAIL_ADDRESS, PHONE_NUMBER, …); default: all that the language has.
    min_score : float
        Scores below are dropped; Presidio gives 0.05 to any nine digits, say.
    batch_size : int
        Texts that go through the pipeline together.
    """

    name = "presidio"
    columns: tuple[str, ...] = ()
    WINDOW, OVERLAP = 100_000, 400

    def __init__(
        self,
        language: str = "en",
        *,
        pipeline: str | Path | None = None,
        entities: Sequence[str] | None = None,
        min_score: float = 0.35,
        batch_size: int = 64,
    ):
        if not 0 <= min_score <= 1 or batch_size < 1:
            raise PolicyError("detector presidio: min_score is 0 to 1, batch_size at least 1")
        os.environ["TLDEXTRACT_PUBLIC_SUFFIX_LIST_URLS"] = ""  # read when tldextract is imported, if it was not yet
        logging.getLogger("presidio-analyzer").setLevel(logging.ERROR)  # it warns of every recogniser left out
        try:
            from presidio_analyzer import AnalyzerEngine, BatchAnalyzerEngine, RecognizerRegistry
            from presidio_analyzer.nlp_engine import SpacyNlpEngine
            from presidio_analyzer.predefined_recognizers import CreditCardRecognizer, EmailRecognizer
            from tldextract import TLDExtract
        except ImportError:
            raise PolicyError("detector presidio needs Presidio: install reticent[presidio]") from None
        engine = SpacyNlpEngine([{"lang_code": language, "model_name": "given"}])
        pipelines = {language: load_pipeline(pipeline or f"blank:{language}", detector=self.name)}
        engine.nlp = pipelines  # type: ignore[assignment]  # declared as None
        registry = RecognizerRegistry(supported_languages=[language])
        registry.load_predefined_recognizers(languages=[language], nlp_engine=engine)
        extract = TLDExtract(cache_dir=None, suffix_list_urls=())
        for recognizer in registry.recognizers:
            if isinstance(recognizer, EmailRecognizer):
                recognizer.validate_result = lambda address: bool(extract(address).fqdn)  # type: ignore[method-assign,assignment]
        if not any(isinstance(recognizer, CreditCardRecognizer) for recognizer in registry.recognizers):
            registry.add_recognizer(CreditCardRecognizer(supported_language=language))  # digits have no language
        analyzer = AnalyzerEngine(registry=registry, nlp_engine=engine, supported_languages=[language])
        known = set(analyzer.get_supported_entities(language))
        if unknown := sorted(set(entities or ()) - known):
            raise PolicyError(
                f"detector presidio: entities {', '.join(unknown)} are not among those of language {language}: "
                f"{', '.join(sorted(known))}"
            )
        self._analyzer: Any = BatchAnalyzerEngine(analyzer)
        self._options: dict[str, Any] = {
            "language": language,
            "entities": list(entities) if entities else None,
            "score_threshold": min_score,
            "batch_size": batch_size,
        }

    def detect(self, batch: pa.RecordBatch) -> pa.Table:
        """Return the identifier spans found in a batch of documents (schema `BATCH_SPANS`)."""
        texts = texts_of(batch).to_pylist()
        windows = cut_texts(texts, self.WINDOW, self.OVERLAP)
        results = self._analyzer.analyze_iterator(
            [texts[w.document][w.start : w.end] for w in windows], **self._options
        )
        found = [[(r.start, r.end, r.entity_type, r.score) for r in spans if r.end > r.start] for spans in results]
        return join_spans(windows, found)
