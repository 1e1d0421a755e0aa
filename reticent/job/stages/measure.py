"""Every attack on every checkpoint of every training and on the base models, one measurement a model.

A measurement holds the results of one checkpoint. It is an artefact of its own under ``measures/``, made from the
checkpoint, the tokens, the base model and the settings. So a run that stops goes on at the same checkpoint, and another
recipe or seed costs only its own scoring. The scores of a base model are kept beside its measurement, secret
like the tokens: the attacks on the other models compare with them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from reticent.audit.evidence.json_form import to_json
from reticent.audit.membership.names import USER_INFERENCE
from reticent.audit.scoring.token_scores import BaseModelScores
from reticent.core.artifact import read_manifest
from reticent.core.resolve import resolve
from reticent.engine.schema import HELDOUT, INDIRECT, MEMBERS
from reticent.engine.text_sizes import write_text_sizes
from reticent.job.artefact import Artefact, Measurement, Step, is_last, measurements_of
from reticent.job.auditing import (
    TEXT_SIZES,
    attack_token_stores,
    earlier_epochs,
    measurement_work,
    needs_text_sizes,
    open_auditor,
    resampling_settings,
    scoring_work,
)
from reticent.job.dependencies import repeated_settings
from reticent.job.maker import is_up_to_date
from reticent.job.noise import noise_of
from reticent.job.releases import earlier_of, measure_withdrawn
from reticent.job.stages.near_copies import near_copies_input, near_copies_steps
from reticent.job.stages.shadows import (
    ATTACK_SETTINGS,
    SCORES,
    attack_with_shadows,
    is_attacked,
    shadow_config,
    shadow_inputs,
    shadows_of,
)

if TYPE_CHECKING:
    from reticent.audit.evaluate import Auditor
    from reticent.audit.stats.estimate import Estimate
    from reticent.job.config import ModelSection
    from reticent.job.run import Run

#: Scores of individuals by attack, secret like the tokens: a copy of the same model is compared with them.
SCORES_OF_INDIVIDUALS = "individuals.npz"
#: Settings that a measurement does not depend on: the device, and the size of batches.
NOT_IN_A_MEASUREMENT = ("device", "batch_size")
#: Parts of the evaluation of a model that report progress -> their titles, and their units of counting.
TASKS = {
    "documents": ("score {}", "windows"),
    "all occurrences": ("score {}, all occurrences masked", "windows"),
    "probes": ("probe {}", "documents"),
    "gradients": ("gradients of {}", "documents"),
    "information": ("compare predictions of {}", "windows"),
    "inversion": ("invert {}", "identifiers"),
    "self-calibration": ("train on what {} writes", "texts"),
    "checkpoints": ("score earlier checkpoints of {}", "windows"),
}


def base_steps(run: Run) -> Iterator[Step]:
    """Yield the steps that measure the base models, and before them the steps that their attacks need: compressed text
    sizes, and near-copies. They come before the trainings, to find data that does not fit a base model early, and to
    time scoring.
    """
    if needs_text_sizes(run):
        inputs = {**run.corpus_input(), "split": run.fingerprints.of("split")}
        config = {"splits": [MEMBERS, HELDOUT], **run.canaries_left_out}
        sizes = Artefact(TEXT_SIZES, "text-sizes", config, inputs)
        yield Step.of(sizes, partial(_build_sizes, run))
    yield from near_copies_steps(run)
    for model in run.job.model:
        yield from _measurement_steps(
            run, model, [each for each in measurements_of(run.job, model) if each.training is None]
        )


def _build_sizes(run: Run, folder: Path, counts: dict[str, Any]) -> None:
    """Write the compressed size of each text of members and held-out individuals into ``folder``."""
    with run.progress.task("compress texts", run.corpus.num_documents, "documents") as advance:
        counts["documents"] = write_text_sizes(
            folder,
            run.unplanted,
            run.individuals,
            (MEMBERS, HELDOUT),
            num_threads=run.job.num_threads,
            progress=advance,
        )


def measure_steps(run: Run) -> Iterator[Step]:
    """Yield a step for each checkpoint of each training, which measures it."""
    for model in run.job.model:
        yield from _measurement_steps(
            run, model, [each for each in measurements_of(run.job, model) if each.training is not None]
        )


def _measurement_steps(run: Run, model: ModelSection, measurements: list[Measurement]) -> Iterator[Step]:
    """Yield the step of each measurement. The model's auditor (token stores and attacks) and the scores of its base
    model are opened once for all of them, when first needed.
    """
    # Opened for the first measurement that is stale; the stores stay open for the others.
    auditor = cache(partial(open_auditor, run, model.name))
    base = cache(partial(_load_base_scores, run, model))
    has_base = any(measurement.training is None for measurement in measurements_of(run.job, model))
    for measurement in measurements:
        yield Step.of(
            _measurement_artefact(run, measurement),
            partial(_build_measurement, run, measurement, auditor, base if measurement.training and has_base else None),
            group=measurement.training and measurement.training.name,
            work=partial(measurement_work, run, measurement),
        )


def _measurement_artefact(run: Run, measurement: Measurement) -> Artefact:
    """Return the artefact of a measurement, with the audit's settings and the fingerprints that it depends on."""
    config = run.job.audit.all_values(without=(*run.job.audit.not_measured, *NOT_IN_A_MEASUREMENT))
    for name, default in (
        ("bf16", "auto"),
        ("surface", "exact"),
        ("diagnoses", None),
    ):  # the manifest of before there was this setting
        if config[name] == default:
            del config[name]
    config |= resampling_settings(run) | run.canaries_left_out | repeated_settings(measurement.model)
    if is_attacked(run, measurement):
        config["shadow"] = shadow_config(run).model_dump(include=ATTACK_SETTINGS)
    about = {"objective": measurement.model.objective, "recipe": measurement.recipe, "epoch": measurement.epoch}
    return Artefact(measurement.name, "measures", {**config, **about}, _measurement_inputs(run, measurement))


def _measurement_inputs(run: Run, measurement: Measurement) -> dict[str, str]:
    """Return the fingerprints that a measurement depends on, by name."""
    variants = ("train", "audit", *attack_token_stores(run))
    inputs = {v: run.fingerprints.of(f"tokens/{measurement.model.name}/{v}") for v in variants}
    if needs_text_sizes(run):
        inputs["text sizes"] = run.fingerprints.of(TEXT_SIZES)
    inputs |= near_copies_input(run) | run.base_input(measurement.model)
    if run.job.dossier.preregister:
        inputs["rules"] = run.fingerprints.of("rules")
    if measurement.training is not None:
        inputs["checkpoint"] = run.fingerprints.of_checkpoint(measurement.training.name, measurement.epoch)
        for epoch in earlier_epochs(run, measurement):
            inputs[f"checkpoint {epoch}"] = run.fingerprints.of_checkpoint(measurement.training.name, epoch)
    if is_attacked(run, measurement):
        inputs |= shadow_inputs(run, measurement)
    if (earlier := earlier_of(run, measurement)) is not None:
        inputs |= earlier.inputs()
    if run.job.audit.diagnoses is not None:
        inputs |= resolve("reticent.ext.ladder.stage:ladder_inputs")(run)
    inputs |= {f"group {Path(file).stem}": run.fingerprints.at(Path(file)) for file in run.job.audit.groups}
    return inputs


def _load_base_scores(run: Run, model: ModelSection) -> BaseModelScores:
    """Return the scores of a model section's base model, from the folder of its measurement."""
    settings = run.job.audit
    return BaseModelScores.load(
        run.folder / Measurement(model).name,
        Path(run.base_of(model)),
        holdout=USER_INFERENCE in settings.attacks,
        candidates=settings.inversion is not None,
    )


def _build_measurement(
    run: Run,
    measurement: Measurement,
    auditor: Callable[[], Auditor],
    base: Callable[[], BaseModelScores] | None,
    folder: Path,
    counts: dict[str, int],
) -> None:
    """Run every attack on one model and write the results to ``folder/measures.json``."""
    from reticent.audit.evaluate import ModelEntry

    counts["epoch"] = measurement.epoch
    if (same := _find_equal_measurement(run, measurement)) is not None:
        for file in read_manifest(same).files:
            shutil.copyfile(same / file, folder / file)
        return
    never_target = 0 if measurement.training is None else run.job.recipe(measurement.recipe).never_target
    policy = run.job.protect if measurement.training is None else run.job.protection(measurement.recipe)
    entry = ModelEntry(
        name=measurement.recipe,
        recipe=measurement.recipe,
        objective=measurement.model.objective,
        epoch=measurement.epoch,
        path=run.checkpoint_of(measurement),
        earlier=tuple(run.checkpoint_of(replace(measurement, epoch=e)) for e in earlier_epochs(run, measurement)),
        never_target=never_target,
        is_known=run.job.subject is None or measurement.training is None,
        k=policy.k,
        noise=noise_of(run, policy.k, policy.words) if never_target & INDIRECT else None,
        is_last=is_last(run.job, measurement),
    )
    work = scoring_work(run, measurement)

    def task(part: str) -> AbstractContextManager[Callable[..., None]]:
        """Return the progress display of one part of the measurement, as a context manager."""
        title, unit = TASKS[part]
        return run.progress.task(title.format(measurement.recipe), None, unit, work.portion(part))

    shadows = partial(attack_with_shadows, run, measurement, auditor()) if is_attacked(run, measurement) else None
    told = _iter_shadow_log_probs(run, measurement) if is_attacked(run, measurement) else None
    measured, scores = auditor().evaluate(entry, base, shadows, task, told)
    if (earlier := earlier_of(run, measurement)) is not None:
        measured = replace(measured, withdrawn=measure_withdrawn(run, measurement, earlier))
        if measured.withdrawn is None:
            run.progress.say_once(f"{measurement.recipe}: nobody withdrew since the release before (audit.earlier)")
    elif run.job.audit.earlier is not None and measurement.training is not None and is_last(run.job, measurement):
        run.progress.say_once(
            f"{measurement.recipe}: the run of audit.earlier has no such model; who left is not asked"
        )
    if scores is not None and measurement.training is None:
        scores.save(folder)
    if run.job.audit.diagnoses is not None and entry.is_last:
        measured = replace(
            measured, diagnoses=resolve("reticent.ext.ladder.stage:measure_ladder")(run, measurement, folder)
        )
    if run.job.subject is not None and run.job.subject.also and measurement.training is not None:
        membership = auditor().membership
        own: dict[str, Any] = {f"attack {name}": scored for name, scored in auditor().own_scores.items()}
        np.savez(
            folder / SCORES_OF_INDIVIDUALS, codes=membership.codes, is_member=membership.code_member, **own
        )  # fmt: skip
    (folder / "measures.json").write_text(json.dumps(to_json(measured), indent=1, allow_nan=False))


def _find_equal_measurement(run: Run, measurement: Measurement) -> Path | None:
    """Return the folder of an up-to-date measurement of the same base model, made for another model section of the job
    with the same settings and inputs, so that it can be copied. None if there is none, or if the measured model is not
    a base model.
    """
    if measurement.training is not None:
        return None
    wanted = _measurement_artefact(run, measurement)
    for model in run.job.model[: run.job.model.index(measurement.model)]:
        for base in (each for each in measurements_of(run.job, model) if each.training is None):
            found = _measurement_artefact(run, base)
            if (found.settings, found.inputs) == (wanted.settings, wanted.inputs) and is_up_to_date(run, found):
                return run.folder / found.name
    return None


def over_source(run: Run, copied: Measurement, source: Measurement) -> dict[str, Estimate]:
    """Return attack -> 0.5 plus the difference of two AUCs on the same individuals: on a copy of a model (``copied``:
    merged, quantised …) minus on the model itself (``source``). Confidence intervals are simultaneous over the attacks.
    """
    from reticent.audit.stats.intervals import bootstrap_of, joint_areas

    (own, codes, is_member), (other, *_) = (_read_scores(run, each) for each in (copied, source))
    draws = bootstrap_of(run.job.audit.num_bootstrap, run.job.seed, run.individuals.units)
    shared = {name: scores for name, scores in own.items() if name in other}
    areas = joint_areas(shared, codes, is_member, base=other, **draws)
    return {name: area.over_base for name, area in areas.items() if area.over_base is not None}


def _read_scores(run: Run, measurement: Measurement) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Return a measurement's scores of individuals by attack, float (num individuals,), and in the same order the
    individuals' codes and whether each is a member."""
    with np.load(run.folder / measurement.name / SCORES_OF_INDIVIDUALS) as found:
        scores = {name.removeprefix("attack "): found[name] for name in found if name.startswith("attack ")}
        return scores, found["codes"], found["is_member"]


def _iter_shadow_log_probs(run: Run, measurement: Measurement) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield for each shadow model of a measurement the token log-probabilities, and which documents it was trained on,
    bool (num documents,)."""
    from reticent.audit.membership.shadow import DocumentScores

    for shadow in shadows_of(run, measurement.model, measurement.recipe):
        said, is_in = DocumentScores.from_parquet(run.folder / shadow.name / SCORES)
        yield said.log_probs, is_in
