"""The evidence of a run: every attack on every checkpoint of every training, and on the base models.

A *measurement* holds the results of one checkpoint. It is an artefact of its own under ``measures/``, made from the
checkpoint, the tokens, the base and the settings. So a run that stops goes on at the checkpoint it was at, and another
recipe or seed costs its own scoring only. The scores of a base model are kept beside its measurement, secret like the
tokens: the attacks on the other models compare with them. A measurement whose checkpoint is gone is deleted.
"""

from __future__ import annotations

import datetime
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reticent import __version__
from reticent.core.json_toml import read_json
from reticent.engine.schema import HELDOUT, MEMBERS
from reticent.job.cost_model import extraction_work, own_tokens, scoring_work
from reticent.job.engine_stages import corpus_section
from reticent.job.run_folder import Training
from reticent.job.shadow_stage import attack_with_shadows, is_attacked, shadow_config, shadow_inputs, shadows_of

if TYPE_CHECKING:
    from reticent.audit.evaluate import AuditConfig, Auditor
    from reticent.job.config import ModelSection
    from reticent.job.run import Run

__all__ = [
    "Measurement",
    "audit_config",
    "delete_stale_measurements",
    "gather_evidence",
    "measure",
    "measurements_of",
    "plan_steps",
]

#: What a measurement does not depend on: where and in which portions a model is run.
NOT_IN_A_MEASUREMENT = ("device", "batch_size")
#: Parts of the examination of a model that say how far they are -> what they are called, and in what they count.
TASKS = {
    "documents": ("score {}", "windows"),
    "all occurrences": ("score {}, all occurrences masked", "windows"),
    "inversion": ("invert {}", "identifiers"),
}


@dataclass(frozen=True, slots=True)
class Measurement:
    """One model to measure: a checkpoint of a training, or (None) the base."""

    model: ModelSection
    training: Training | None = None
    epoch: int = 0

    @property
    def recipe(self) -> str:
        return "base" if self.training is None else self.training.recipe

    @property
    def name(self) -> str:
        """Name of its artefact."""
        seed = "" if self.training is None or self.training.seed is None else f"seed-{self.training.seed}-"
        return f"measures/{self.model.name}/{self.recipe}/{seed}epoch-{self.epoch:04d}"


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


def measurements_of(run: Run, model: ModelSection) -> list[Measurement]:
    """Return what is measured of a model section: its base, then every checkpoint to come by recipe, seed, epoch."""
    epochs = run.job.training(model).epochs_kept()
    kept = epochs if run.job.audit.every_checkpoint else epochs[-1:]
    own = sorted((t for t in run.trainings() if t.model is model), key=lambda t: model.recipes.index(t.recipe))
    return [Measurement(model), *(Measurement(model, training, epoch) for training in own for epoch in kept)]


def measurement_config(run: Run, measurement: Measurement) -> dict[str, Any]:
    """Return the settings a measurement depends on."""
    config = asdict(audit_config(run))
    for name in NOT_IN_A_MEASUREMENT:
        del config[name]
    if config["bf16"] == "auto":  # as it was before there was a choice
        del config["bf16"]
    if is_attacked(run, measurement):
        config["shadow"] = shadow_config(run)
    return {
        **config,
        "objective": measurement.model.objective,
        "recipe": measurement.recipe,
        "epoch": measurement.epoch,
    }


def measurement_inputs(run: Run, measurement: Measurement) -> dict[str, str]:
    """Return the fingerprints of what a measurement is made from; its training must be there."""
    variants = ("train", "audit", *own_tokens(run))
    inputs = {v: run.fingerprint_of(f"tokens/{measurement.model.name}/{v}") for v in variants}
    inputs |= run._base_input(measurement.model)
    if measurement.training is not None:
        inputs["checkpoint"] = run.checkpoint_fingerprint(measurement.training, measurement.epoch)
    if is_attacked(run, measurement):
        inputs |= shadow_inputs(run, measurement)
    return inputs


def measure(run: Run, model: ModelSection, *, only_base: bool = False) -> None:
    """Make the pieces of a model section that are not there yet; its stores are opened only for those."""
    from reticent.audit.scoring.base_model_scores import BaseModelScores

    auditor = cache(lambda: _open_auditor(run, model))
    base = cache(
        lambda: BaseModelScores.load(run.folder / Measurement(model).name, Path(run._base(model)), audit_config(run))
    )
    for measurement in measurements_of(run, model)[: 1 if only_base else None]:

        def build(folder: Path, counts: dict[str, Any], measurement: Measurement = measurement) -> None:
            entry, work = _entry_of(run, measurement), scoring_work(run, measurement)

            def task(part: str) -> AbstractContextManager[Callable[..., None]]:
                title, unit = TASKS[part]
                return run.progress.task(title.format(measurement.recipe), None, unit, work.portion(part))

            shadows = (
                partial(attack_with_shadows, run, measurement, auditor()) if is_attacked(run, measurement) else None
            )
            measured, said = auditor().evaluate(entry, base if measurement.training else None, shadows, task)
            if said is not None:
                said.save(folder)
            (folder / "measures.json").write_text(json.dumps(measured, indent=1, allow_nan=False))
            counts["epoch"] = measurement.epoch

        run.make(
            measurement.name,
            measurement_config(run, measurement),
            measurement_inputs(run, measurement),
            build,
            kind="measures",
        )


def _open_auditor(run: Run, model: ModelSection) -> Auditor:
    from reticent.audit.evaluate import Auditor
    from reticent.engine.store import open_tokens
    from reticent.job.word_categories import read_categories

    audit_store = open_tokens(run.folder / f"tokens/{model.name}/audit")
    members = run.individuals.mask(MEMBERS)[audit_store.individual]
    own: dict[str, Any] = {name: open_tokens(run.folder / f"tokens/{model.name}/{name}") for name in own_tokens(run)}
    return Auditor(
        open_tokens(run.folder / f"tokens/{model.name}/train"),
        audit_store,
        members,
        audit_config(run),
        categories=read_categories(run, (MEMBERS, HELDOUT)),
        **own,
    )


def _entry_of(run: Run, measurement: Measurement) -> Any:
    from reticent.audit.evaluate import ModelEntry

    path = (
        Path(run._base(measurement.model))
        if measurement.training is None
        else run.checkpoints(measurement.model, measurement.recipe, measurement.training.seed)[measurement.epoch]
    )
    return ModelEntry(
        name=measurement.recipe,
        recipe=measurement.recipe,
        objective=measurement.model.objective,
        epoch=measurement.epoch,
        path=path,
    )


def delete_stale_measurements(run: Run) -> None:
    """Delete the pieces of checkpoints that are gone: of fewer epochs, or of a layout without seeds."""
    from reticent.core.artifact import delete_artifact

    made = (path for kind in ("measures", "extraction") for path in (run.folder / kind).glob("*/*/*epoch-[0-9]*"))
    for path in sorted(made):
        seed, _, epoch = path.name.rpartition("epoch-")
        trained = run.folder / "models" / path.parent.parent.name / path.parent.name / seed.removesuffix("-")
        if path.parent.name != "base" and not (trained / f"epoch-{epoch}").is_dir():
            delete_artifact(path)


def gather_evidence(run: Run) -> dict[str, Any]:
    """Return report.json's structure before publication, from the pieces and the corpus section."""
    from reticent.audit.membership.validity import judged
    from reticent.job.extraction_stage import extraction_section, judge_gates

    probe: dict[str, Any] = {}
    if run.job.probe is not None:
        from reticent.job.probe_stage import run_probes

        probe["probe"] = run_probes(run)
    evidence = {
        **probe,
        **extraction_section(run),
        "format": "reticent.audit/1",
        "created": datetime.datetime.fromtimestamp(_now(), datetime.UTC).isoformat(timespec="seconds"),
        "versions": {
            "reticent": __version__,
            **{name: version(name) for name in ("torch", "transformers", "tokenizers", "numpy")},
        },
        "settings": run.job.model_dump(
            mode="json",
            include={
                *("seed", "dedup", "split", "detect", "index", "protect", "model", "recipes", "train", "audit"),
                *(name for name in ("canaries", "extraction", "gate") if getattr(run.job, name)),
            },
        ),
        "corpus": corpus_section(run),
        "models": judged(
            [_measured(run, measurement) for model in run.job.model for measurement in measurements_of(run, model)]
        ),
    }
    return {**evidence, **judge_gates(run, evidence)}


def _measured(run: Run, measurement: Measurement) -> dict[str, Any]:
    """What a measurement holds, with whose model it is and what its training counted."""
    from reticent.core.artifact import read_manifest

    measured = read_json(run.folder / measurement.name / "measures.json")
    seed: dict[str, Any] = {}
    if measurement.training is not None:
        counts = read_manifest(run.folder / measurement.training.name).counts
        measured["ledger"] = {key: counts[key] for key in ("eligible", "protected", "targets", "violations")}
        if "privacy" in counts:
            measured["guarantee"] = counts["privacy"]
        seed = {} if measurement.training.seed is None else {"seed": measurement.training.seed}
    return {"model": measurement.model.name, **seed, **measured}


def plan_steps(run: Run, *, scoring: bool, classifying: bool) -> Iterator[tuple[Any, bool]]:
    """Yield the steps of the experiment in the order they run, each with whether it looks done already."""
    from reticent.core.artifact import read_manifest
    from reticent.job.extraction_stage import EXTRACTION, extraction_measurements, extraction_name, settings_and_inputs
    from reticent.job.plan import Step

    def tokens(model: ModelSection, variant: str) -> float:
        return float(read_manifest(run.folder / f"tokens/{model.name}/{variant}").counts["tokens"])

    def score_step(measurement: Measurement, *, extracts: bool = False) -> Step:
        seed = (
            ""
            if measurement.training is None or measurement.training.seed is None
            else f", seed {measurement.training.seed}"
        )
        epoch = f", epoch {measurement.epoch}" if measurement.epoch else ""
        return Step(
            name=extraction_name(measurement) if extracts else measurement.name,
            title=" ".join(
                (
                    "extraction from" if extracts else "scoring",
                    f"{measurement.recipe} of {measurement.model.name}{epoch}{seed}",
                )
            ),
            kind="score",
            model=measurement.model.name,
            recipe=EXTRACTION if extracts else "",
            work=extraction_work(run, measurement.model) if extracts else scoring_work(run, measurement).total,
        )

    def is_done(measurement: Measurement) -> bool:
        if measurement.training is not None and not done[measurement.training.name]:
            return False
        if is_attacked(run, measurement) and not all(
            done[s.name] for s in shadows_of(run, measurement.model, measurement.recipe)
        ):
            return False
        return run.looks_current(
            measurement.name,
            measurement_config(run, measurement),
            measurement_inputs(run, measurement),
            kind="measures",
        )

    done: dict[str, bool] = {}
    for model in run.job.model if scoring else ():
        yield score_step(Measurement(model)), is_done(Measurement(model))
    for training in run.trainings():
        model = training.model
        seed = "" if training.seed is None else f", seed {training.seed}"
        done[training.name] = run.looks_current(training.name, *run.settings_and_inputs(training), kind="models")
        step = Step(
            name=training.name,
            title=f"training {training.recipe} of {model.name}{seed}",
            kind="train",
            model=model.name,
            recipe=training.recipe,
            work=tokens(model, "train") * run.job.training(model).num_epochs,
        )
        yield step, done[training.name]
    if classifying and run.job.classify is not None:
        from reticent.job.classification import classification_steps

        yield from classification_steps(run, done)
    for shadow in shadows_of(run) if scoring else ():
        model = shadow.model
        done[shadow.name] = shadow.is_done()
        step = Step(
            name=shadow.name,
            title=f"training shadow {shadow.number + 1} of {shadow.recipe} of {model.name}",
            kind="train",
            model=model.name,
            recipe=shadow.recipe,
            work=tokens(model, "audit") / 2 * run.job.training(model).num_epochs,
        )
        yield step, done[shadow.name]
    for model in run.job.model if scoring else ():
        for measurement in measurements_of(run, model)[1:]:
            yield score_step(measurement), is_done(measurement)
    for measurement in extraction_measurements(run) if scoring else ():
        known = measurement.training is None or done[measurement.training.name]
        step = score_step(measurement, extracts=True)
        yield step, known and run.looks_current(step.name, *settings_and_inputs(run, measurement), kind=EXTRACTION)


def _now() -> float:
    """Seconds since 1970, or SOURCE_DATE_EPOCH, by which who needs the same bytes twice holds the clock."""
    return float(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
