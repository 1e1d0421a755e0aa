"""Sections on the audit: what is attacked, what is planted for it, and what a model must keep."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from reticent.job.config.section import Section

__all__ = [
    "AuditSection",
    "CanariesSection",
    "ExtractionSection",
    "GateSection",
    "GenerationSection",
    "InversionSection",
    "ProbeSection",
    "ShadowSection",
]


class InversionSection(Section):
    """Can an identifier that is context only be told from decoys by the words around it? A part of the audit only where
    the job has this section: each identifier costs a forward pass over ``num_decoys`` + 1 copies of its window.
    """

    num_decoys: int = Field(default=15, ge=1)
    per_individual: int = Field(default=4, ge=1, description="identifiers of each kind that are drawn of a person")
    kinds: list[Literal["direct", "indirect"]] = Field(default=["direct", "indirect"], min_length=1)
    association: bool = Field(default=True, description="also ask for terms of the documents after names in templates")
    terms_per_individual: int = Field(default=3, ge=1)
    term_support: tuple[float, float] = Field(
        default=(0.01, 0.2), description="share of the individuals who use a word that counts as a term"
    )
    language: Literal["en", "fr"] = Field(default="en", description="of the templates")
    embedding_shift: bool = True


class GenerationSection(Section):
    """What causal models write by themselves, begun with documents of both sides: a part of the audit only where the
    job has this section.
    """

    num_prompts: int = Field(default=200, ge=1, description="documents of the larger side; of the other the same share")
    prefix_tokens: int = Field(default=16, ge=1)
    num_tokens: int = Field(default=64, ge=1)
    num_samples: int = Field(default=1, ge=1)
    temperature: float = Field(default=1.0, ge=0, description="0: greedy")
    top_k: int = Field(default=0, ge=0, description="0: every token can be drawn")


class ShadowSection(Section):
    """Shadow models: each recipe's last checkpoint is attacked with models that are trained like it on random halves of
    the members and held-out individuals together. Costs ``num_shadows`` trainings a recipe.
    """

    recipes: list[str] = Field(min_length=1, description="whose models are attacked")
    num_shadows: int = Field(default=8, ge=4, le=256, multiple_of=2, description="even: everybody is in half of them")
    attacks: list[Literal["shadow", "lira_online", "lira_offline", "lira_sequence", "rmia", "rmia_online"]] = Field(
        default=["shadow", "lira_online", "lira_offline", "lira_sequence", "rmia"], min_length=1
    )
    rmia_slope: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="a of p = ((1 + a) p_out + (1 - a)) / 2; default: fitted on the population",
    )
    population: float = Field(
        default=0.2, gt=0, lt=1, description="share of the held-out that RMIA compares with and does not attack"
    )
    keep_models: bool = Field(default=False, description="keep the shadows' checkpoints beside their scores")


class AuditSection(Section):
    """What is attacked and how intervals are made."""

    attacks: list[str] = Field(default=["loss", "reference", "zlib", "min_k", "min_k_plus_plus", "wbc", "ez"])
    num_bootstrap: int = Field(default=1000, ge=100)
    batch_size: int = Field(default=64, ge=1)
    small_cell: int = Field(default=5, ge=1)
    graph_shares: list[Annotated[float, Field(gt=0, le=1)]] = Field(default=[1.0, 0.75, 0.5, 0.25, 0.1], min_length=1)
    every_checkpoint: bool = True
    all_occurrences: bool = Field(
        default=False, description="masked models a second time, a word masked wherever it stands in its window"
    )
    generation: GenerationSection | None = None
    inversion: InversionSection | None = None
    shadow: ShadowSection | None = None


class ProbeSection(Section):
    """Probes with people's own items (ProPILE), at the end of the audit."""

    subjects: str | None = Field(default=None, description="table of items with individual_id; default: detect.records")
    targets: list[str] = Field(default=[])
    levels: list[Literal["twin", "triplet", "quadruplet"]] = Field(default=["twin", "triplet"])
    given: list[str] = Field(default=[], description="items given beside the name, in this order; default: the table's")
    language: str = "en"
    templates: str | None = None
    beam_sizes: list[int] = Field(default=[3], min_length=1)
    longest: Literal["published", "fit"] = "published"
    soft_prompt: bool = False
    soft_subjects: int = Field(default=128, ge=1)
    soft_epochs: int = Field(default=700, ge=1)


class CanariesSection(Section):
    """Made-up secrets written into members' documents, to measure what a model keeps of them. A model trained on them
    is for measuring only, and the report says so.
    """

    num: int = Field(default=25, ge=1, description="of each arm; a fair coin leaves out half of them")
    arms: list[Literal["protected", "missed", "context", "ngram"]] = Field(
        default=["protected", "missed", "context", "ngram"], min_length=1
    )
    repetitions: int = Field(default=1, ge=1, description="times each is written into its individual's documents")
    num_references: int = Field(default=256, ge=2, description="other secrets to rank each among")
    seed: int | None = Field(default=None, ge=0, lt=2**63, description="default: the job's")
    guesses: float = Field(
        default=0.5, gt=0, le=1, description="share of the canaries whose coin the one-run audit guesses"
    )
    delta: float = Field(default=1e-5, ge=0, lt=1, description="of the one-run audit")

    @model_validator(mode="after")
    def _consistent(self) -> CanariesSection:
        if len(set(self.arms)) != len(self.arms):
            raise ValueError("canaries: an arm stands twice")
        return self


class ExtractionSection(Section):
    """Passages of the documents that causal models are asked to complete, at the end of the audit."""

    prefix_tokens: list[int] = Field(default=[10, 50], min_length=1, description="tokens the adversary knows")
    suffix_tokens: int = Field(default=50, ge=1, description="tokens that must come back")
    temperature: float = Field(default=1.0, gt=0)
    top_k: int = Field(default=40, ge=0, description="0: all tokens can be drawn")
    num_queries: list[int] = Field(default=[1, 100, 10_000])
    probability: float = Field(default=0.5, gt=0, le=1)
    num_passages: int = Field(default=2000, ge=1, description="at most so many of each side, one a document")


class GateSection(Section):
    """A threshold that the trained models must keep, fixed before the run: ``[[gate]]``, as many as wanted."""

    measure: Literal[
        "excess_leakage", "membership_auc", "membership_tpr", "extraction", "np_extraction", "exposure", "epsilon"
    ]
    at_most: float = Field(description="what the upper end of the 95 % interval may be")
    recipes: list[str] | None = Field(default=None, description="models it is for; default: those that protect")
    attack: str | None = Field(default=None, description="of membership; default: each attack that was made")
    arm: Literal["protected", "missed", "context", "ngram"] = Field(
        default="protected", description="of exposure and epsilon"
    )
    part: Literal["both", "direct", "indirect"] = Field(default="both", description="of excess_leakage")
    required: bool = Field(default=False, description="a gate without the power to say is failed")
