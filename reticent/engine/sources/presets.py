"""Models of clinical data in databases: the tables and columns of their notes.

A preset names columns as a job does (``doc_id``, ``individual_id``, ``text``), and offers others beside them under the
names that they have in the model, for a label or a household. A table is joined where one of its columns is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

__all__ = ["PRESETS", "Preset"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """The notes of a model.

    Attributes
    ----------
    notes : the table of the notes, which is called ``n`` in the expressions
    columns : name -> expression of SQL
    joins : alias of a further table -> the table and the condition that joins it, ``{schema}`` before its name
    condition : rows that are notes; None: all
    """

    notes: str
    columns: Mapping[str, str]
    joins: Mapping[str, str] = field(default_factory=dict)
    condition: str | None = None


PRESETS: Final[Mapping[str, Preset]] = MappingProxyType(
    {
        # OMOP CDM 5.4
        "omop": Preset(
            notes="note",
            columns={
                "doc_id": "n.note_id",
                "individual_id": "n.person_id",
                "text": "n.note_text",
                "note_title": "n.note_title",
                "note_date": "n.note_date",
                "note_type_concept_id": "n.note_type_concept_id",
                "note_class_concept_id": "n.note_class_concept_id",
                "language_concept_id": "n.language_concept_id",
                "provider_id": "n.provider_id",
                "visit_occurrence_id": "n.visit_occurrence_id",
                "visit_concept_id": "v.visit_concept_id",
                "visit_start_date": "v.visit_start_date",
                "care_site_id": "v.care_site_id",
                "gender_concept_id": "p.gender_concept_id",
                "year_of_birth": "p.year_of_birth",
            },
            joins={
                "v": "LEFT JOIN {schema}visit_occurrence v ON v.visit_occurrence_id = n.visit_occurrence_id",
                "p": "LEFT JOIN {schema}person p ON p.person_id = n.person_id",
            },
        ),
        # i2b2 has no id of a note: it is the key of the fact, joined by bars. A fact without a blob is no note.
        "i2b2": Preset(
            notes="observation_fact",
            columns={
                "doc_id": "concat_ws('|', n.encounter_num, n.patient_num, n.concept_cd, n.provider_id, n.start_date, "
                "n.modifier_cd, n.instance_num)",
                "individual_id": "n.patient_num",
                "text": "n.observation_blob",
                "encounter_num": "n.encounter_num",
                "concept_cd": "n.concept_cd",
                "provider_id": "n.provider_id",
                "start_date": "n.start_date",
                "sourcesystem_cd": "n.sourcesystem_cd",
            },
            condition="n.observation_blob <> ''",
        ),
    }
)
