"""The rules as a recogniser of Presidio: ``registry.add_recognizer(RulesRecognizer(supported_language="fr"))``.

Presidio is imported when the class is asked for, and not before. Spans have the names of Presidio's entities where it
has one, such as PERSON, and our labels else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from reticent.core.errors import PolicyError
from reticent.engine.detect.labels import category
from reticent.engine.detect.rules import RulesDetector, list_rules

if TYPE_CHECKING:
    RulesRecognizer: Any

#: Our label or category -> entity of Presidio.
ENTITIES: Final[Mapping[str, str]] = {
    "NAME": "PERSON",
    "DATE": "DATE_TIME",
    "PHONE": "PHONE_NUMBER",
    "EMAIL": "EMAIL_ADDRESS",
    "IP": "IP_ADDRESS",
    "IBAN": "IBAN_CODE",
    "SSN": "US_SSN",
    "NHS": "UK_NHS",
    "CREDIT_CARD": "CREDIT_CARD",
    "URL": "URL",
    "LOCATION": "LOCATION",
    "ORGANIZATION": "ORGANIZATION",
}


def entity_of(label: str) -> str:
    """Return the name of Presidio's entity type for a label of our rules; the label itself where Presidio has no type.

    >>> entity_of("IBAN"), entity_of("STREET"), entity_of("MRN")
    ('IBAN_CODE', 'LOCATION', 'MRN')
    """
    return ENTITIES.get(label) or ENTITIES.get(category(label), label)


def __getattr__(name: str) -> Any:
    if name != "RulesRecognizer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from presidio_analyzer import EntityRecognizer
    except ImportError:
        raise PolicyError("the recogniser for Presidio needs Presidio: install reticent[presidio]") from None
    about = {"__module__": __name__, "__doc__": _Rules.__doc__}
    return globals().setdefault(name, type(name, (_Rules, EntityRecognizer), about))


class _Rules:
    """The rules of Reticent as a Presidio recogniser; combined with Presidio's `EntityRecognizer` when imported.

    Parameters
    ----------
    supported_language : str
        The language of the analyser; the rules know no other and are the same in all.
    labels, fields : as of :class:`RulesDetector`
    score : float
        Of every result, from 0 to 1.
    """

    #: Of Presidio's class.
    name: str
    id: str

    def __init__(
        self,
        supported_language: str = "en",
        *,
        labels: Sequence[str] | None = None,
        fields: Mapping[str, str] | None = None,
        score: float = 0.95,
        name: str = "ReticentRules",
    ):
        if not 0 <= score <= 1:
            raise PolicyError(f"score: expected 0 to 1, got {score}")
        self._detector = RulesDetector(labels, fields=fields, num_threads=1)
        self._score = score
        known = [
            *(rule.label for rule in list_rules() if labels is None or rule.label in labels),
            *(fields or {}).values(),
        ]
        super().__init__(  # type: ignore[call-arg]
            supported_entities=sorted({entity_of(label) for label in known if label != "-"}),
            name=name,
            supported_language=supported_language,
        )

    def load(self) -> None:
        """Do nothing; Presidio calls this to load a recogniser's model, and the rules have none."""

    def analyze(self, text: str, entities: Sequence[str] | None, nlp_artifacts: Any = None) -> list[Any]:
        """Return Presidio results for the spans of these entities in a text; offsets count characters."""
        from presidio_analyzer import AnalysisExplanation, RecognizerResult

        texts = pa.array([text], pa.large_string())
        found = self._detector.detect(pa.record_batch({"text": texts})).select(["start", "end", "label"])
        results = []
        for start, end, label in zip(*(column.to_pylist() for column in found.columns), strict=True):
            if entities and entity_of(label) not in entities:
                continue
            explanation = AnalysisExplanation(
                recognizer=self.name, original_score=self._score, textual_explanation=f"rule for {label}"
            )
            result = RecognizerResult(entity_of(label), start, end, self._score, analysis_explanation=explanation)
            result.recognition_metadata = {
                RecognizerResult.RECOGNIZER_NAME_KEY: self.name,
                RecognizerResult.RECOGNIZER_IDENTIFIER_KEY: self.id,
            }
            results.append(result)
        return results
