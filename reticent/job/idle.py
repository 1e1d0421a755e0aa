"""Settings of a job that cannot have an effect, each with what to do about it: a check before a run refuses them.

A setting counts as given where it is not its default, as a run folder keeps every field of its job. One that is shared
by several models is idle only if it is for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import TYPE_CHECKING

from reticent.audit.membership.names import DEFAULT_ATTACKS
from reticent.core.errors import PolicyError
from reticent.engine.config import DedupConfig

if TYPE_CHECKING:
    from reticent.core.section import Section
    from reticent.job.config import Job
    from reticent.trainer.config import ModelSection

__all__ = ["refuse_idle", "refuse_idle_scope"]

#: Setting of shadow models -> the attacks that look at it.
OF_RMIA: Mapping[str, tuple[str, ...]] = {"rmia_slope": ("rmia",), "population": ("rmia", "rmia_online")}


def refuse_idle(job: Job, *, models: bool, trains: bool, audits: bool) -> None:
    """Raise `PolicyError` for settings without an effect on the stages of a run: on those that need models, that train,
    and that audit.
    """
    found = [*_of_deduplication(job.dedup)]
    if models:
        found += [*_of_protection(job), *_of_foundations(job)]
    if trains:
        found += _of_training(job)
    if audits:
        found += [*_of_audit(job), *_of_parts(job)]
    if found:
        raise PolicyError("; ".join(found))


def refuse_idle_scope(dedup: DedupConfig) -> None:
    """Raise `PolicyError` for a scope where copies are only counted, within individuals and between them alike."""
    for said in _of_deduplication(dedup):
        raise PolicyError(said)


def _given(section: Section, *names: str) -> list[str]:
    """Return those of these fields that are not their defaults."""
    return [name for name in names if getattr(section, name) != type(section).model_fields[name].get_default()]


def _idle(setting: str, why: str, instead: str = "") -> str:
    return f"{setting}: has no effect {why}; {f'{instead}, or leave' if instead else 'leave'} it out"


def _of_deduplication(dedup: DedupConfig) -> Iterator[str]:
    """The scope alone: `reticent dedup RUN` counts copies by the other settings, whatever the mode."""
    if dedup.mode == "off" and _given(dedup, "scope"):
        yield _idle("dedup.scope", "where dedup.mode is off", 'set dedup.mode to "exact" or "near"')


def _of_protection(job: Job) -> Iterator[str]:
    for name in _given(job.threshold, "unit", "delta", "max_words") if job.threshold.epsilon is None else ():
        yield _idle(f"threshold.{name}", "without threshold.epsilon", "give both")
    if job.threshold.epsilon is not None and job.threshold.unit == "word":
        for _ in _given(job.threshold, "max_words"):
            yield _idle("threshold.max_words", "on the epsilon of a word", 'set threshold.unit to "individual"')
    recipes = {name: job.recipe(name) for model in job.model for name in model.recipes}
    if all(policy.n == 1 for policy in (job.protect, *map(job.protection, recipes))):
        for _ in _given(job.protect, "max_document_frequency"):
            yield _idle("protect.max_document_frequency", "on single words", "set protect.n to 2 or more")
    if _given(job.surrogates, "pool") and all(r.context_indirect != "surrogate" for r in recipes.values()):
        yield _idle("surrogates.pool", 'where no recipe has context_indirect = "surrogate"', "choose one that has")
    for name, own in job.recipes.items():
        if own.goldfish_h is not None and job.recipe(name).goldfish_k is None:
            yield _idle(f"recipes.{name}.goldfish_h", "without goldfish_k", "give both")
    if job.surrogates.names == "syllables" and _given(job.surrogates, "language"):
        yield _idle("surrogates.language", 'on names = "syllables", which are of no language')


def _of_foundations(job: Job) -> Iterator[str]:
    for model in job.model:
        if (foundation := model.foundation) is None:
            continue
        where = f"model {model.name}: foundation"
        if foundation.vocabulary is not None and _given(foundation, "vocab_size"):
            yield _idle(f"{where}.vocab_size", "beside foundation.vocabulary, which is taken as it is")
        if model.objective == "clm" and _given(foundation, "mask_share"):
            yield _idle(f"{where}.mask_share", "on a causal model, which masks no word")


def _of_training(job: Job) -> Iterator[str]:
    causal = [model for model in job.model if model.objective == "clm"]
    if len(causal) == len(job.model) and _given(job.train, "mask_share"):
        yield _idle("train.mask_share", "on causal models, and the job has no other")
    for model in causal:
        if model.train is not None and _given(model.train, "mask_share"):
            yield _idle(f"model {model.name}: train.mask_share", "on a causal model, which masks no word")
    if any(job.recipe(name).private for model in job.model for name in model.recipes):  # else more than this is refused
        for model in job.model:
            if model.train is not None and model.train.dp and not any(job.recipe(r).private for r in model.recipes):
                yield _idle(f"model {model.name}: train.dp", "as none of its recipes is trained by DP-SGD")
    shared: list[ModelSection] = []
    for model in job.model:
        if model.train is None or "checkpoint_epochs" not in model.train.model_fields_set:
            shared.append(model)
        else:
            yield from _late_epochs(job, [model], f"model {model.name}: train")
    if shared:
        yield from _late_epochs(job, shared, "train")


def _late_epochs(job: Job, models: list[ModelSection], table: str) -> Iterator[str]:
    """Checkpoints after the last epoch of all models that share this list of them."""
    last = max(job.training(model).num_epochs for model in models)
    late = [epoch for epoch in job.training(models[0]).checkpoint_epochs or () if epoch > last]
    if late:
        yield (
            f"{table}.checkpoint_epochs: training ends after epoch {last} (num_epochs), so {', '.join(map(str, late))} "
            "cannot be kept; leave out what is later (the last epoch is always kept), or raise num_epochs"
        )


def _of_audit(job: Job) -> Iterator[str]:
    audit, objectives = job.audit, {model.objective for model in job.model}
    if audit.attacks != DEFAULT_ATTACKS:
        yield from _of_attacks(audit.attacks, objectives)
    if "clm" not in objectives:
        if audit.generation is not None:
            yield _idle("audit.generation", "on masked models, which write no text, and the job has no other")
        if job.extraction is not None:
            yield _idle("extraction", "on masked models, which complete no passage, and the job has no other")
    if "mlm" not in objectives and audit.all_occurrences:
        yield _idle("audit.all_occurrences", "on causal models, which mask no word, and the job has no other")


def _of_attacks(names: Iterable[str], objectives: Set[str]) -> Iterator[str]:
    from reticent.audit.membership.asking import ASKING_ATTACKS  # compiles kernels
    from reticent.audit.membership.attacks import ATTACKS

    for row in (row for row in (*ATTACKS.values(), *ASKING_ATTACKS.values()) if row.name in names):
        if objectives.isdisjoint(row.objectives):
            kind = "masked" if "mlm" in row.objectives else "causal"
            yield f"audit.attacks: {row.name} attacks {kind} models only, and the job has none; leave it out"


def _of_parts(job: Job) -> Iterator[str]:
    inversion, shadow, probe = job.audit.inversion, job.audit.shadow, job.probe
    if inversion is not None and not inversion.association:
        for name in _given(inversion, "terms_per_individual", "term_support", "language"):
            yield _idle(f"audit.inversion.{name}", "where audit.inversion.association is false")
    for name, attacks in OF_RMIA.items():
        if shadow is not None and _given(shadow, name) and set(attacks).isdisjoint(shadow.attacks):
            yield _idle(f"audit.shadow.{name}", f"without {' or '.join(attacks)} in audit.shadow.attacks", "add one")
    if probe is None:
        return
    objectives = {model.objective for model in job.model}
    if "mlm" not in objectives and _given(probe, "masking"):
        yield _idle("probe.masking", "on causal models, which mask no token, and the job has no other")
    if "clm" not in objectives:
        for name in _given(probe, "beam_sizes", "longest", "soft_prompt"):
            yield _idle(f"probe.{name}", "on masked models, which write no text, and the job has no other")
