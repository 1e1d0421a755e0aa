"""The models of a dossier, in words: each recipe explained, none by its name alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reticent.audit.judgement.rows import PLAIN
from reticent.audit.recipes import is_unprotected, own_recipes, recipe_of
from reticent.audit.stats.seeds import over_seeds, passages_over_seeds
from reticent.engine.schema import DIRECT, INDIRECT

if TYPE_CHECKING:
    from reticent.audit.evidence.audit import AuditEvidence, ModelEvidence
    from reticent.audit.evidence.extraction import ExtractedModel
    from reticent.audit.evidence.risks import ModelRisks
    from reticent.audit.language import Words
    from reticent.trainer.recipes import Recipe

__all__ = ["ShownModel", "explained", "shown_models"]

#: Sentences about a recipe. ``{k}``: what fewer than k individuals use identifies them.
NEVER_TARGET = {
    DIRECT | INDIRECT: "never trained to predict a word that identifies a person: neither a name or number that was "
    "found, nor a word that fewer than {k} people use",
    DIRECT: "never trained to predict a name or number that was found; rare words were not protected",
    INDIRECT: "never trained to predict a word that fewer than {k} people use; names and numbers that more people "
    "share were not protected",
}
OBJECTIVES = {"mlm": "It fills in masked words (BERT-like)", "clm": "It continues a text (GPT-like)"}
CONTEXTS = {
    "tag": "names and numbers that were found stand in its texts as a tag",
    "surrogate": "names and numbers that were found stand in its texts as made-up ones, other ones in each epoch",
}
CONTEXTS_INDIRECT = {
    "tag": "blanks stand in its texts for rare words",
    "surrogate": "public words, other ones in each epoch, stand in its texts for rare words",
}


@dataclass(frozen=True, slots=True)
class ShownModel:
    """One trained model at its last checkpoint; several trainings are shown by their means."""

    evidence: ModelEvidence
    risks: ModelRisks | None
    extracted: ExtractedModel | None
    #: Name in the tables: letters in the order of the audit.
    letter: str
    about: str
    recipe: Recipe | None
    is_unprotected: bool

    @property
    def is_twin(self) -> bool:
        """Whether others are compared with it: a recipe of the job never is, whatever it does without."""
        return self.is_unprotected and self.evidence.recipe in PLAIN


def shown_models(audit: AuditEvidence, words: Words) -> list[ShownModel]:
    """Return the trained models of a published audit, those of the verdict, in its order."""
    last: dict[tuple[str | None, str, str], ModelEvidence] = {}
    for model in over_seeds(audit.models, audit.cell):
        key = (model.model, model.objective, model.recipe)
        if model.recipe != "base" and (key not in last or model.epoch > last[key].epoch):
            last[key] = model
    rows = {(row.model, row.objective, row.recipe): row for row in (audit.risks.rows if audit.risks else ())}
    found = []
    for number, model in enumerate(last.values()):
        recipe = recipe_of(model.recipe, audit)
        found.append(
            ShownModel(
                evidence=model,
                risks=rows.get((model.model, model.objective, model.recipe)),
                extracted=_extracted(model, audit),
                letter=_letter(number),
                about=_about(recipe, model, audit, words),
                recipe=recipe,
                is_unprotected=is_unprotected(recipe, model),
            )
        )
    return found


def explained(recipe: Recipe, k: int, words: Words) -> str:
    """Return a sentence on the targets that a model of this recipe was and was not trained to predict."""
    parts = []
    if recipe.text == "pseudonymised":
        parts.append(words("names and numbers that were found were replaced by X before training"))
    if recipe.never_target in NEVER_TARGET:
        parts.append(words(NEVER_TARGET[recipe.never_target], k=k))
    if recipe.context in CONTEXTS:
        parts.append(words(CONTEXTS[recipe.context]))
    if recipe.context_indirect in CONTEXTS_INDIRECT:
        parts.append(words(CONTEXTS_INDIRECT[recipe.context_indirect]))
    if recipe.goldfish_k is not None:
        parts.append(words("one token in {k} was left out of training, chosen by a hash", k=recipe.goldfish_k))
    if recipe.private:
        parts.append(words("trained with differential privacy"))
    if not parts and recipe.name in PLAIN:
        parts.append(words("trained without any protection: made for comparison"))
    elif not parts:
        parts.append(words("trained without any protection"))
    return words("{objective}: {recipe}.", objective=words(OBJECTIVES[recipe.objective]), recipe=words.apart(parts))


def _about(recipe: Recipe | None, model: ModelEvidence, audit: AuditEvidence, words: Words) -> str:
    if recipe is None:
        return words("{objective}. Its recipe is the institution’s own.", objective=words(OBJECTIVES[model.objective]))
    own = own_recipes(audit).get(model.recipe)
    k = own.get("k") if isinstance(own, Mapping) else None
    return explained(recipe, k if isinstance(k, int) else audit.corpus.k, words)


def _extracted(model: ModelEvidence, audit: AuditEvidence) -> ExtractedModel | None:
    rows = audit.extraction.models if audit.extraction else ()
    found = [row for row in rows if (row.model, row.recipe) == (model.model, model.recipe)]
    last = max((row.epoch or 0 for row in found), default=0)
    return passages_over_seeds([row for row in found if (row.epoch or 0) == last], audit.cell)


def _letter(number: int) -> str:
    """A, B, …, Z, A2, B2, …"""
    return chr(ord("A") + number % 26) + (str(number // 26 + 1) if number >= 26 else "")
