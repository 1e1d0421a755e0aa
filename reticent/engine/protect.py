"""Policy: which words must never be a prediction target.

Direct identifiers are protected where a detector found them and, by their label's *scope*, wherever else that surface
stands. Indirect ones are n-grams that fewer than k individuals use; the policy says which of their words are protected
(definitions.md#identifiers; [@boutet2025] §4.1 and §6.5).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from reticent.core.errors import PolicyError
from reticent.engine.detect.labels import category
from reticent.engine.schema import MAX_K, MAX_N

__all__ = ["DEFAULT_SCOPES", "POLICIES", "Policy", "Scope"]

Scope = Literal["corpus", "individual", "occurrence"]
POLICIES = ("all", "last", "cover", "paper")

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What is protected.

    Parameters
    ----------
    k : int, 2 to 255
        n-grams that fewer than k individuals use identify.
    n : int, 1 to 8
        Longest n-gram looked at; at most the index's ``max_n``.
    policy : {"all", "last", "cover", "paper"}
        Which words of an identifying n-gram are protected.
    max_document_frequency : float in (0, 1], optional
        An n-gram (n >= 2) counts only if each of its words is used by less than this share of the individuals. This
        weakens the guarantee, so it is off by default.
    scopes : mapping of label to "corpus", "individual" or "occurrence"
        Over :data:`DEFAULT_SCOPES`; a label that stands in neither has the scope of its category, or "corpus".
    """

    k: int = 2
    n: int = 1
    policy: Literal["all", "last", "cover", "paper"] = "all"
    max_document_frequency: float | None = None
    scopes: Mapping[str, Scope] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 2 <= self.k <= MAX_K:
            raise PolicyError(f"k: expected 2 to {MAX_K}, got {self.k}")
        if not 1 <= self.n <= MAX_N:
            raise PolicyError(f"n: expected 1 to {MAX_N}, got {self.n}")
        if self.policy not in POLICIES:
            raise PolicyError(f"policy: expected one of {', '.join(POLICIES)}, got {self.policy!r}")
        if self.max_document_frequency is not None and not 0 < self.max_document_frequency <= 1:
            raise PolicyError(f"max_document_frequency: expected a share in (0, 1], got {self.max_document_frequency}")
        for label, scope in self.scopes.items():
            if scope not in ("corpus", "individual", "occurrence"):
                raise PolicyError(f"scopes.{label}: expected corpus, individual or occurrence, got {scope!r}")

    def scope_of(self, label: str) -> Scope:
        """Return the scope of a label: its own, or else that of its category."""
        known = self.scopes.get(label) or DEFAULT_SCOPES.get(label.upper())
        return known or DEFAULT_SCOPES.get(category(label), "corpus")
