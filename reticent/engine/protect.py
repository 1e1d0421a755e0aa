"""Policy: the words that must never be a prediction target.

Direct identifiers are protected where a detector found them. Depending on the *scope* of their label, the same surface
is also protected elsewhere. Indirect identifiers are n-grams that fewer than k individuals use. The policy determines
which of their words are protected (definitions.md#identifiers; [@boutet2025] §4.1 and §6.5).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from reticent.core.section import PUBLISHED, Section, of_job
from reticent.engine.detect.labels import category
from reticent.engine.schema import MAX_K, MAX_N, Words

Scope = Literal["corpus", "individual", "occurrence"]
POLICIES: Final = ("all", "last", "cover", "paper")

#: ``corpus``: that surface is protected wherever it occurs (the blacklist of [@boutet2025]); ``individual``: in all
#: documents of that individual; ``occurrence``: that span only, since spreading it would blacklist every "45". For the
#: same reason bare numbers of up to three digits (pieces of a phone number) reach no farther than their span in any
#: scope.
DEFAULT_SCOPES: Mapping[str, Scope] = {
    **dict.fromkeys(("NAME", "PERSON", "PER", "PATIENT", "DOCTOR", "USERNAME"), "corpus"),
    **dict.fromkeys(("ID", "MRN", "SSN", "NIR", "PHONE", "FAX", "EMAIL", "URL", "IP", "ACCOUNT"), "corpus"),
    **dict.fromkeys(("ADDRESS", "STREET", "CITY", "ZIP", "STATE", "LOCATION", "LOC", "GPE", "FAC"), "individual"),
    **dict.fromkeys(("HOSPITAL", "ORGANIZATION", "ORG", "PROFESSION", "COUNTRY"), "individual"),
    **dict.fromkeys(("DATE", "TIME", "DATETIME", "AGE", "NUMBER", "CARDINAL", "QUANTITY", "ORDINAL"), "occurrence"),
}


class Policy(Section):
    """Which words must never be a target.

    Of an identifying n-gram, one that fewer than ``k`` individuals use, ``policy`` says which words are protected.
    Where ``words`` are not counted, but told by ``public_words``, no scope reaches beyond an individual: the flags of
    one then follow from their own documents alone. A recipe says which.
    """

    section: ClassVar[str] = "protect"

    k: int = Field(default=2, ge=2, le=MAX_K, description="n-grams that fewer than k individuals use identify")
    n: int = Field(default=1, ge=1, le=MAX_N, description="longest n-gram looked at; at most index.max_n")
    policy: Literal["all", "last", "cover", "paper"] = "all"
    max_document_frequency: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="an n-gram (n >= 2) counts only if each of its words is used by less than this share of the "
        "individuals; this weakens the guarantee, so it is off by default",
    )
    scopes: Annotated[dict[str, Scope], PUBLISHED] = Field(
        default={},
        description="label or category, in any case -> corpus, individual or occurrence, over the default scopes; a "
        "label that stands in neither has the default scope of its category, or corpus",
    )
    public_words: Annotated[str | None, PUBLISHED] = Field(
        default=None,
        min_length=1,
        description="public words that are targets whoever uses them, for recipes with words that are public or "
        'private: "wordfreq:en" (or another language; extra wordfreq), or a file with a word a line; never words of '
        "these documents",
    )
    words: Annotated[Words, of_job(None)] = "counted"

    def cache_key(self) -> dict[str, Any]:
        """Return the settings that protection flags depend on, as part of a cache key; without ``public_words``, whose
        content callers add themselves."""
        # A scope once reached the label alone that was spelt as its key.
        return self.model_dump(exclude={"public_words"}) | ({"scopes_by": "category"} if self.scopes else {})

    def scope_of(self, label: str) -> Scope:
        """Return how far a detected span of this label protects its words: "corpus", "individual" or "occurrence"."""
        key = self._key_of(label)
        default = DEFAULT_SCOPES.get(label.upper()) or DEFAULT_SCOPES.get(category(label), "corpus")
        scope = default if key is None else self.scopes[key]
        return "individual" if scope == "corpus" and self.words != "counted" else scope

    def unused_scopes(self, labels: Iterable[str]) -> list[str]:
        """Return the keys of ``scopes`` that match none of these labels, so that they have no effect."""
        return sorted(self.scopes.keys() - set(map(self._key_of, labels)))

    def _key_of(self, label: str) -> str | None:
        """Return the key of ``scopes`` that applies to a label: the label itself, the label in other case, or else its
        category; None if there is none."""
        keys = {key.upper(): key for key in self.scopes} | {key: key for key in self.scopes}
        return next((keys[name] for name in (label, label.upper(), category(label)) if name in keys), None)
