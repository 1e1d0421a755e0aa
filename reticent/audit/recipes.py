"""The training recipes of an audit: their protection, from the names and the settings of the evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from reticent.core.errors import PolicyError
from reticent.trainer.recipes import RECIPES, Recipe, RecipeChanges, parted_name

if TYPE_CHECKING:
    from reticent.audit.evidence.audit import AuditEvidence, ModelEvidence


def settings_by_section(audit: AuditEvidence) -> Mapping[str, Mapping[str, object]]:
    """Return the settings of each model section of the job, by its name."""
    found = audit.settings.get("model")
    sections = found if isinstance(found, list | tuple) else ()
    return {str(each.get("name")): each for each in sections if isinstance(each, Mapping)}


def subject_settings(audit: AuditEvidence) -> Mapping[str, object] | None:
    """Return the job's settings ``[subject]`` of models that were trained elsewhere; None if the job trained the
    models."""
    found = audit.settings.get("subject")
    return found if isinstance(found, Mapping) else None


def is_elsewhere(audit: AuditEvidence) -> bool:
    """Whether the audited models were trained elsewhere, and not by the job of this audit."""
    return subject_settings(audit) is not None


def job_recipes(audit: AuditEvidence) -> Mapping[str, object]:
    """Return the settings of the recipes that the job defines, by name."""
    found = audit.settings.get("recipes")
    return found if isinstance(found, Mapping) else {}


def recipe_of(name: str, audit: AuditEvidence) -> Recipe | None:
    """Return the recipe of this name; None if neither Reticent nor the settings of the audit define it."""
    stem, epsilon = parted_name(name)
    if epsilon is not None:
        found = recipe_of(stem, audit)
        return None if found is None else replace(found, name=name)
    if name in RECIPES:
        return RECIPES[name]
    own = job_recipes(audit).get(name)
    try:
        return RecipeChanges(**own).named(name) if isinstance(own, Mapping) else None
    except PolicyError:
        return None


def is_unprotected(recipe: Recipe | None, model: ModelEvidence) -> bool:
    """Whether a model was trained on the original text with every token a target and without differential privacy.

    False for an unknown recipe. For a classifier or a tagger its own training counts, not that of its base.
    """
    if model.start is not None:
        return not model.protects
    plain = recipe is not None and not recipe.uses_flags and recipe.text == "original" and not recipe.private
    return plain and not model.guarantee
