"""Extraction and canaries in a job: an artefact for each base model and last checkpoint, and their section of the
evidence.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from reticent.audit.evidence.extraction import ExtractedModel, Extraction
from reticent.audit.evidence.json_form import from_json, to_json
from reticent.audit.membership.validity import index_mask_by_code, keep_without_near_copies
from reticent.audit.scoring.endpoint import Server, is_endpoint
from reticent.audit.stats.intervals import bootstrap_of
from reticent.core.json_toml import read_json
from reticent.engine.canaries import open_canaries
from reticent.engine.detect import quarantined_rows
from reticent.engine.schema import HELDOUT, MEMBERS
from reticent.job.artefact import Artefact, Measurement, Step, measurements_of
from reticent.job.auditing import audited_tokens, extraction_step_work, resampling_settings
from reticent.job.dependencies import repeated_settings
from reticent.job.stages.near_copies import copied_individuals, near_copies_input

if TYPE_CHECKING:
    from reticent.audit.evidence.extraction import ExtractedModel, Extraction, Passages
    from reticent.job.run import Run

#: Kind of the artefacts.
EXTRACTION = "extraction"


def extraction_steps(run: Run) -> Iterator[Step]:
    """Yield the build step of the extraction attacks on each base model and on the last checkpoint of each training."""
    for measurement in _attacked_models(run):
        work = partial(extraction_step_work, run, measurement)
        group = measurement.training and measurement.training.name
        yield Step.of(_artefact(run, measurement), partial(_build, run, measurement), group=group, work=work)


def extraction_inputs(run: Run) -> dict[str, str]:
    """Return artefact name -> fingerprint of the extraction results of a run."""
    names = (_artefact_name(measurement) for measurement in _attacked_models(run))
    return {name: run.fingerprints.of(name) for name in names}


def _attacked_models(run: Run) -> list[Measurement]:
    """Return the models to attack: each base model, and the last checkpoint of every training."""
    if run.job.extraction is None and run.job.canaries is None:
        return []
    asked = []
    for model in run.job.model:
        own = measurements_of(run.job, model)
        last = max(measurement.epoch for measurement in own)
        asked += [measurement for measurement in own if measurement.training is None or measurement.epoch == last]
    return asked


def _artefact_name(measurement: Measurement) -> str:
    """Return the name of the artefact with a model's extraction results."""
    return measurement.name.replace("measures/", "extraction/", 1)


def _artefact(run: Run, measurement: Measurement) -> Artefact:
    """Return the artefact of a model's extraction results with its settings and input fingerprints."""
    job = run.job
    config = {
        "objective": measurement.model.objective, "recipe": measurement.recipe, "epoch": measurement.epoch,
        "num_bootstrap": job.audit.num_bootstrap, "seed": job.seed, "window_length": job.train.window_length,
        "extraction": job.extraction and job.extraction.model_dump(),
        "canaries": job.canaries and job.canaries.model_dump(), **resampling_settings(run),
        **repeated_settings(measurement.model),
    }  # fmt: skip
    inputs = {
        "tokens": run.fingerprints.of(f"tokens/{measurement.model.name}/audit"),
        **run.base_input(measurement.model),
        **(near_copies_input(run) if job.extraction is not None else {}),
    }
    if job.canaries is not None:
        inputs["canaries"] = run.fingerprints.of("canaries")
    if measurement.training is not None:
        inputs["checkpoint"] = run.fingerprints.of_checkpoint(measurement.training.name, measurement.epoch)
    return Artefact(_artefact_name(measurement), EXTRACTION, config, inputs)


def _build(run: Run, measurement: Measurement, folder: Path, counts: dict[str, int]) -> None:
    """Run the extraction attacks on one model and write the results as JSON into ``folder``."""
    found = _measure_extraction(run, measurement)
    (folder / "extraction.json").write_text(json.dumps(to_json(found), indent=1, allow_nan=False))
    counts["epoch"] = measurement.epoch


def _measure_extraction(run: Run, measurement: Measurement) -> ExtractedModel:
    """Run the canary and passage attacks that a job asks for on one model; return their results."""
    from reticent.trainer.models import check_fit, load_model, load_tokenizer, special_ids

    path = run.checkpoint_of(measurement)
    tokenizer = load_tokenizer(path)
    is_server = is_endpoint(path)
    model: Any = Server(path, tokenizer) if is_server else load_model(path, measurement.model.objective)
    special = special_ids(tokenizer, measurement.model.objective)
    canaries = passages = None
    if run.job.canaries is not None:
        from reticent.ext.extraction.canaries import audit_canaries, tokens_of_canaries

        planted = open_canaries(run.folder / "canaries").without(quarantined_rows(run.folder / "spans"))
        tokens = tokens_of_canaries(planted, run.tokenizer_of(measurement.model))
        check_fit(model, tokens.store, tokenizer, special, run.job.train.window_length)
        with run.progress.task(f"canaries of {measurement.recipe}", None, "windows") as advance:
            canaries = audit_canaries(
                model, measurement.model.objective, tokens, special, run.job.canaries, progress=advance
            )
    if run.job.extraction is not None and measurement.model.objective == "clm":
        from reticent.ext.extraction.passages import extraction_rates

        store = audited_tokens(run, measurement.model.name, "audit")
        if not is_server:
            check_fit(model, store, tokenizer, special, run.job.train.window_length)
        members = run.individuals.mask(MEMBERS)[store.individual]
        with run.progress.task(f"extract from {measurement.recipe}", None, "passages") as advance:
            passages = extraction_rates(
                model, store, members, special, run.job.extraction, units=run.individuals.units,
                kept=_kept_individuals(run), progress=advance,
            )  # fmt: skip
    return ExtractedModel(canaries=canaries, passages=passages)


def extraction_section(run: Run) -> Extraction | None:
    """Return the extraction results of all models of a run, with the individuals exposed beyond the base model; None
    without any.
    """
    from reticent.ext.extraction.passages import exposed_by_passages

    bases: dict[str, Passages] = {}
    models = []
    for measurement in _attacked_models(run):
        seed = None if measurement.training is None else measurement.training.seed
        path = run.folder / _artefact_name(measurement) / "extraction.json"
        found = from_json(ExtractedModel, read_json(path), str(path))
        passages = found.passages
        if passages is not None:
            if measurement.training is None:  # the base model comes first, where there is one
                bases[measurement.model.name] = passages
            exposed = None
            if measurement.training is not None and (base := bases.get(measurement.model.name)) is not None:
                settings = bootstrap_of(run.job.audit.num_bootstrap, run.job.seed, run.individuals.units)
                exposed = exposed_by_passages(passages, base, **settings)
            passages = replace(passages, exposed=exposed, of_one_side=None)
        models.append(
            replace(
                found,
                passages=passages,
                model=measurement.model.name,
                recipe=measurement.recipe,
                objective=measurement.model.objective,
                seed=seed,
                epoch=measurement.epoch,
            )
        )
    return Extraction(has_canaries=run.job.canaries is not None, models=models) if models else None


def _kept_individuals(run: Run) -> np.ndarray | None:
    """Return which individuals remain after held-out individuals with near-copies of members' documents are excluded,
    bool by individual code; None if nobody is excluded.
    """
    individuals = run.individuals
    codes = np.flatnonzero(individuals.mask(MEMBERS, HELDOUT))
    kept = keep_without_near_copies(codes, individuals.mask(MEMBERS)[codes], copied_individuals(run))
    return index_mask_by_code(codes, kept)
