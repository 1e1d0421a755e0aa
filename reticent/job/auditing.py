"""The auditor of a model's tokens and the settings of an audit, as a job defines them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reticent.audit.membership.names import ATTACKS_ON_SIZES, USER_INFERENCE
from reticent.engine.schema import HELDOUT, MEMBERS

if TYPE_CHECKING:
    from reticent.audit.evaluate import AuditConfig, Auditor
    from reticent.job.run import Run

__all__ = ["TEXT_SIZES", "audit_config", "needs_text_sizes", "open_auditor", "own_tokens", "resampling_settings"]

#: Attack that needs tokens of its own -> their folder, which is also the keyword of `Auditor` for them.
OWN_TOKENS = {"lowercase": "lowercase", USER_INFERENCE: "user_inference_holdout"}
#: Artefact of the compressed sizes of the texts of the audit.
TEXT_SIZES = "text-sizes"


def own_tokens(run: Run) -> list[str]:
    """Return the names of the tokens that the job's attacks look at beside those of the audit."""
    return [tokens for attack, tokens in OWN_TOKENS.items() if attack in run.job.audit.attacks]


def needs_text_sizes(run: Run) -> bool:
    """Whether an attack of the job compares with the compressed sizes of the texts."""
    return not ATTACKS_ON_SIZES.isdisjoint(run.job.audit.attacks)


def audit_config(run: Run) -> AuditConfig:
    """Return the settings of the audit of a job."""
    return run.job.audit


def resampling_settings(run: Run) -> dict[str, str]:
    """Return what intervals resample, for a manifest: nothing where that is individuals, as before there was another
    unit."""
    from reticent.engine.split import households_of

    is_split = (run.folder / "split" / "individuals.parquet").exists()  # else nothing is up to date anyway
    return {"resampled": "households"} if is_split and households_of(run.individuals.units) is not None else {}


def open_auditor(run: Run, model: str) -> Auditor:
    """Return the auditor of a model, by its name: it scores and attacks checkpoints. Opens the tokens of the audit."""
    from reticent.audit.evaluate import Auditor
    from reticent.engine.store import open_tokens
    from reticent.engine.text_sizes import read_zlib_bytes
    from reticent.job.stages.near_copies import copied_individuals
    from reticent.job.word_categories import read_categories

    audit_store = open_tokens(run.folder / f"tokens/{model}/audit")
    members = run.individuals.mask(MEMBERS)[audit_store.individual]
    own: dict[str, Any] = {name: open_tokens(run.folder / f"tokens/{model}/{name}") for name in own_tokens(run)}
    if needs_text_sizes(run):
        own["zlib_bytes"] = read_zlib_bytes(run.folder / TEXT_SIZES)
    return Auditor(
        open_tokens(run.folder / f"tokens/{model}/train"),
        audit_store,
        members,
        audit_config(run),
        categories=read_categories(run, (MEMBERS, HELDOUT)),
        units=run.individuals.units,
        copied=copied_individuals(run),
        **own,
    )
