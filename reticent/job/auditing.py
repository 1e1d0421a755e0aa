"""The auditor of a model's tokens, and the settings of an audit, as a job has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reticent.audit.membership.validity import USER_INFERENCE
from reticent.engine.schema import HELDOUT, MEMBERS

if TYPE_CHECKING:
    from reticent.audit.evaluate import AuditConfig, Auditor
    from reticent.job.run import Run

__all__ = ["audit_config", "open_auditor", "own_tokens"]

#: Attacks that need tokens of their own, and the names of these.
OWN_TOKENS = {"lowercase": "lowercase", USER_INFERENCE: "fresh"}


def own_tokens(run: Run) -> list[str]:
    """Return the names of the tokens that the job's attacks look at beside those of the audit."""
    return [tokens for attack, tokens in OWN_TOKENS.items() if attack in run.job.audit.attacks]


def audit_config(run: Run) -> AuditConfig:
    """Return the settings of the audit of a job."""
    from reticent.audit.evaluate import AuditConfig
    from reticent.audit.inversion.inversion import InversionConfig
    from reticent.audit.leakage.generated import GenerationConfig

    settings = run.job.audit
    inversion = None
    if settings.inversion is not None:
        asked = settings.inversion.model_dump()
        inversion = InversionConfig(**{**asked, "kinds": tuple(asked["kinds"])})
    return AuditConfig(
        attacks=tuple(settings.attacks),
        num_bootstrap=settings.num_bootstrap,
        batch_size=settings.batch_size,
        window_length=run.job.train.window_length,
        graph_shares=tuple(settings.graph_shares),
        seed=run.job.seed,
        device=run.job.train.device,
        bf16=run.job.train.bf16,
        all_occurrences=settings.all_occurrences,
        generation=None if settings.generation is None else GenerationConfig(**settings.generation.model_dump()),
        inversion=inversion,
    )


def open_auditor(run: Run, model: str) -> Auditor:
    """Return what scores and attacks the checkpoints of a model, by its name; opens the tokens of the audit."""
    from reticent.audit.evaluate import Auditor
    from reticent.engine.store import open_tokens
    from reticent.job.word_categories import read_categories

    audit_store = open_tokens(run.folder / f"tokens/{model}/audit")
    members = run.individuals.mask(MEMBERS)[audit_store.individual]
    own: dict[str, Any] = {name: open_tokens(run.folder / f"tokens/{model}/{name}") for name in own_tokens(run)}
    return Auditor(
        open_tokens(run.folder / f"tokens/{model}/train"),
        audit_store,
        members,
        audit_config(run),
        categories=read_categories(run, (MEMBERS, HELDOUT)),
        **own,
    )
