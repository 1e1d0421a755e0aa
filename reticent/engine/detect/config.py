"""Settings of the detection of direct identifiers: ``[detect]``, with a table of options for each detector."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from reticent.core.section import PUBLISHED, Section, holds_something
from reticent.engine.detect.choose import DETECTORS, check_options, require_detector
from reticent.engine.detect.preset import expand_preset


class DetectConfig(Section):
    """Detectors of direct identifiers; their spans are united. Each has a table of options, such as ``[detect.spacy]``.

    ``preset = "fast"`` or ``"thorough"`` chooses the detectors by one name (:mod:`reticent.engine.detect.preset`).

    The option that a detector needs has a short form: ``records = "FILE"``, ``spacy = "PIPELINE"``,
    ``transformers = "MODEL"`` and ``lists = { LABEL = "FILE" }``.
    """

    section: ClassVar[str] = "detect"

    preset: Literal["fast", "thorough"] | None = Field(
        default=None,
        description="detectors by one name: all that need no model, or a trained NER too; both with propagate",
    )
    detectors: Annotated[tuple[Annotated[str, AfterValidator(require_detector)], ...], PUBLISHED] = Field(
        default=("rules",)
    )
    on_error: Literal["stop", "quarantine"] = Field(
        default="stop", description="a document on which a detector fails stops the run, or is left out"
    )
    propagate: bool = Field(
        default=False, description="find an identifier that was found once everywhere else in the corpus"
    )
    cache: bool = Field(
        default=True,
        description="keep the spans of a trained NER by passage in ner-cache/, so that no passage is looked at twice",
    )
    options: dict[str, dict[str, Any]] = Field(
        default={}, description="detector -> its options; in a job file each detector is a table of this one"
    )

    @model_validator(mode="before")
    @classmethod
    def _collect_options(cls, values: Any) -> Any:
        """Return the unvalidated settings with all detector options under ``options``, whether given in a detector's
        table or by a shorthand (``spacy = "PIPELINE"``), and with ``preset`` expanded."""
        if not isinstance(values, dict):
            return values
        values, options = dict(values), dict(values.get("options") or {})
        for name, row in DETECTORS.items():
            for key, option in row.short.items():
                if key in values and (key != name or isinstance(values[key], str)):
                    given = values.pop(key)
                    options[name] = {**(options.get(name) or {}), **({option: given} if given else {})}
            if (table := values.pop(name, None)) is not None:
                options[name] = {**table, **(options.get(name) or {})} if isinstance(table, dict) else table
        options = {name: table for name, table in options.items() if table != {}}
        if isinstance(preset := values.get("preset"), str) and all(isinstance(t, dict) for t in options.values()):
            detectors, options = expand_preset(preset, options)
            if list(values.setdefault("detectors", detectors)) != detectors:
                raise ValueError("a preset chooses the detectors: give preset or detectors")
            values.setdefault("propagate", True)
        if options:
            values["options"] = options
        return values

    @field_validator("options")
    @classmethod
    def _without_empty_tables(cls, options: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Return the options by detector, without empty tables."""
        return {name: table for name, table in options.items() if table}

    @model_validator(mode="after")
    def _check_detectors(self) -> DetectConfig:
        """Raise `ValueError` or `PolicyError` for a repeated detector, an invalid option, or options of a detector that
        is not listed."""
        if len(set(self.detectors)) != len(self.detectors):
            raise ValueError("a detector is listed twice")
        for name in self.detectors:
            check_options(name, self.of(name))
        if "learned" in self.detectors:
            from reticent.engine.detect.learned import LearnConfig  # loads compiled kernels

            LearnConfig.of(self.of("learned"))
        for name in self.options:
            if name not in self.detectors:  # names thought protected would be targets
                raise ValueError(f'detect.{name} is given, but "{name}" is not among detect.detectors')
        return self

    @model_serializer(mode="wrap")
    def _dump_as_tables(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Serialise with one table of options per detector, at the top level, as in a job file."""
        values: dict[str, Any] = dump(self)
        tables: dict[str, Any] = values.pop("options", {})
        return values | tables

    def of(self, name: str) -> dict[str, Any]:
        """Return the options of the detector with this name; an empty dict if there are none."""
        return self.options.get(name, {})

    @classmethod
    def published(cls, values: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
        """Return the detection settings that a report may show (of detector options only numbers and those marked as
        published), and the number of withheld ones."""
        tables = {name: values[name] for name in values if name in DETECTORS and isinstance(values[name], Mapping)}
        shown, withheld = super().published({name: value for name, value in values.items() if name not in tables})
        for name, table in tables.items():
            texts = DETECTORS[name].published
            shown[name] = {
                option: value for option, value in table.items() if option in texts or isinstance(value, int | float)
            }
            withheld += sum(holds_something(value) for option, value in table.items() if option not in shown[name])
        return shown, withheld
