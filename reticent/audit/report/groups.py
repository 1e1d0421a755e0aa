"""The models of a report by section, recipe and epoch, each in the order of the audit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reticent.audit.evidence.audit import ModelEvidence

__all__ = ["OBJECTIVES", "Group", "by_recipe", "groups_of", "last_of", "shared_objectives"]

OBJECTIVES = {"mlm": "Masked (BERT-like)", "clm": "Causal (GPT-like)"}


@dataclass(frozen=True, slots=True)
class Group:
    """The models of one ``[[model]]`` section of the job: one base, one objective, a recipe once.

    ``number`` counts the sections of one objective from 1; it is 0 where there is one only, which needs no name.
    """

    objective: str
    model: str | None
    number: int

    def holds(self, model: ModelEvidence) -> bool:
        return (model.objective, model.model) == (self.objective, self.model)

    def called(self, what: str) -> str:
        """Return a recipe, with the section's name if there are several sections."""
        return f"{what} of {self.model}" if self.number else what

    @property
    def kind(self) -> str:
        """Words before "model" in a sentence."""
        word = OBJECTIVES[self.objective].split()[0].lower()
        return f"{word} {self.model}" if self.number else word

    @property
    def title(self) -> str:
        return OBJECTIVES[self.objective] + (f": {self.model}" if self.number else "")

    @property
    def short_name(self) -> str:
        """Return the section's name for the title of a panel: its beginning and end, in which the names of a job
        differ.
        """
        name = "".join(c for c in str(self.model) if c.isprintable())
        return name if len(name) <= 15 else f"{name[:7]}…{name[-7:]}"

    @property
    def panel_title(self) -> str:
        return OBJECTIVES[self.objective] + (f": {self.short_name}" if self.number else "")

    @property
    def slug(self) -> str:
        return f"{self.objective}-{self.number}" if self.number else self.objective


def shared_objectives(models: Iterable[ModelEvidence]) -> set[str]:
    """Return the objectives of more than one ``[[model]]`` section: there the section's name stands by the recipe."""
    sections = {(model.objective, model.model) for model in models}
    return {objective for objective, count in Counter(objective for objective, _ in sections).items() if count > 1}


def groups_of(models: Sequence[ModelEvidence], chosen: Sequence[ModelEvidence] | None = None) -> list[Group]:
    """Return the groups by objective and in the order of the audit; only those of ``chosen`` if that is given."""
    groups, shared = [], shared_objectives(models)
    for objective in OBJECTIVES:
        sections = dict.fromkeys(m.model for m in models if m.objective == objective)
        groups += [
            Group(objective, section, number if objective in shared else 0)
            for number, section in enumerate(sections, start=1)
        ]
    return groups if chosen is None else [group for group in groups if any(map(group.holds, chosen))]


def by_recipe(models: Sequence[ModelEvidence], group: Group) -> dict[str, list[ModelEvidence]]:
    """Return recipe -> its checkpoints by epoch, in the order of the audit."""
    found: dict[str, list[ModelEvidence]] = {}
    for model in filter(group.holds, models):
        found.setdefault(model.recipe, []).append(model)
    return {recipe: sorted(entries, key=lambda m: m.epoch) for recipe, entries in found.items()}


def last_of(models: Sequence[ModelEvidence], group: Group) -> list[ModelEvidence]:
    return [entries[-1] for entries in by_recipe(models, group).values()]
