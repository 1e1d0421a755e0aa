"""Settings of the dossier: languages, what an institution says itself, and the key that signs."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from reticent.audit.texts import LANGUAGES, Language
from reticent.core.section import Section

__all__ = ["DossierConfig"]


class DossierConfig(Section):
    """The dossier at the end of a run: the evidence for a decision about each model, in a folder that can be sent.

    ``institution``, ``purpose``, ``legal_basis`` and ``documents`` are printed as they are given. What is not given is
    left open, for a person to write.
    """

    section: ClassVar[str] = "dossier"

    languages: tuple[Language, ...] = Field(default=LANGUAGES, min_length=1, description="the first is dossier.html")
    pdf: Literal["auto", "on", "off"] = Field(
        default="auto", description="also write PDF/UA by WeasyPrint; auto: where the extra `dossier` is installed"
    )
    key: str | None = Field(default=None, description="private SSH key of the institution, which signs the folder")
    institution: str | None = Field(default=None, description="who answers for the model")
    purpose: str | None = Field(default=None, description="what the model is made for")
    legal_basis: str | None = Field(default=None, description="on which basis the documents are processed")
    documents: str | None = Field(default=None, description="which documents these are, for the model card too")
    licence: str | None = Field(default=None, description="licence of a model that leaves, for its card")
    replaces: str | None = Field(
        default=None, description="digest of the dossier that this one replaces; an update of a run sets it"
    )
