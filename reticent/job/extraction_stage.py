"""Extraction and canaries in a job: an artefact for each last checkpoint and base, and the section of the evidence.

Also where the gates of a job are written down before anything is trained: thresholds that were chosen when the numbers
were known decide nothing, and the report says which it was.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reticent.core.json_toml import read_json
from reticent.engine.schema import MEMBERS
from reticent.job.audit_stage import Measurement, measurements_of

if TYPE_CHECKING:
    from reticent.job.run import Run

__all__ = [
    "EXTRACTION",
    "check_extraction",
    "extraction_measurements",
    "extraction_name",
    "extraction_section",
    "fix_gates",
    "judge_again",
    "judge_gates",
    "measure_extraction",
    "settings_and_inputs",
]

#: Kind of the artefacts.
EXTRACTION = "extraction"


def extraction_measurements(run: Run) -> list[Measurement]:
    """Return what is asked: of each model section its base and the last checkpoint of every training."""
    if run.job.extraction is None and run.job.canaries is None:
        return []
    pieces = []
    for model in run.job.model:
        own = measurements_of(run, model)
        last = max(measurement.epoch for measurement in own)
        pieces += [measurement for measurement in own if measurement.training is None or measurement.epoch == last]
    return pieces


def extraction_name(measurement: Measurement) -> str:
    """Name of the artefact."""
    return measurement.name.replace("measures/", "extraction/", 1)


def settings_and_inputs(run: Run, measurement: Measurement) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what the artefact depends on; its training must be there."""
    job = run.job
    config: dict[str, Any] = {
        "objective": measurement.model.objective, "recipe": measurement.recipe, "epoch": measurement.epoch,
        "num_bootstrap": job.audit.num_bootstrap, "seed": job.seed, "window_length": job.train.window_length,
        "extraction": job.extraction and job.extraction.model_dump(),
        "canaries": job.canaries and job.canaries.model_dump(),
    }  # fmt: skip
    inputs = {
        "tokens": run.fingerprint_of(f"tokens/{measurement.model.name}/audit"),
        **run._base_input(measurement.model),
    }
    if job.canaries is not None:
        inputs["canaries"] = run.fingerprint_of("canaries")
    if measurement.training is not None:
        inputs["checkpoint"] = run.checkpoint_fingerprint(measurement.training, measurement.epoch)
    return config, inputs


def measure_extraction(run: Run) -> dict[str, str]:
    """Make the artefacts that are not there yet; returns the fingerprints of all."""
    made = {}
    for measurement in extraction_measurements(run):
        name = extraction_name(measurement)

        def build(folder: Path, counts: dict[str, Any], measurement: Measurement = measurement) -> None:
            found = _measured(run, measurement)
            (folder / "extraction.json").write_text(json.dumps(found, indent=1, allow_nan=False))
            counts["epoch"] = measurement.epoch

        run.make(name, *settings_and_inputs(run, measurement), build, kind=EXTRACTION)
        made[name] = run.fingerprint_of(name)
    return made


def _measured(run: Run, measurement: Measurement) -> dict[str, Any]:
    from reticent.trainer.models import check_fit, load_model, load_tokenizer, special_ids

    path = _path_of(run, measurement)
    model, tokenizer = load_model(path, measurement.model.objective), load_tokenizer(path)
    special = special_ids(tokenizer, measurement.model.objective)
    found: dict[str, Any] = {"canaries": None, "passages": None}
    if run.job.canaries is not None:
        from reticent.audit.extraction.canaries import audit_canaries, tokens_of_canaries
        from reticent.engine.canaries import open_canaries

        tokens = tokens_of_canaries(open_canaries(run.folder / "canaries"), run._tokenizer_json(measurement.model))
        check_fit(model, tokens.store, tokenizer, special, run.job.train.window_length)
        with run.progress.task(f"canaries of {measurement.recipe}", None, "windows") as advance:
            found["canaries"] = audit_canaries(
                model, measurement.model.objective, tokens, special, _canary_audit(run), progress=advance
            )
    if run.job.extraction is not None and measurement.model.objective == "clm":
        from reticent.audit.extraction.passages import extraction_rates
        from reticent.engine.store import open_tokens

        store = open_tokens(run.folder / f"tokens/{measurement.model.name}/audit")
        check_fit(model, store, tokenizer, special, run.job.train.window_length)
        members = run.individuals.mask(MEMBERS)[store.individual]
        with run.progress.task(f"extract from {measurement.recipe}", None, "passages") as advance:
            found["passages"] = extraction_rates(model, store, members, special, _config(run), progress=advance)
    return found


def _path_of(run: Run, measurement: Measurement) -> Path:
    if measurement.training is None:
        return Path(run._base(measurement.model))
    return run.checkpoints(measurement.model, measurement.recipe, measurement.training.seed)[measurement.epoch]


def _canary_audit(run: Run) -> Any:
    from reticent.audit.extraction.canaries import CanaryAudit

    settings = run.job.canaries
    assert settings is not None
    return CanaryAudit(
        guesses=settings.guesses, delta=settings.delta, num_bootstrap=run.job.audit.num_bootstrap,
        window_length=run.job.train.window_length, seed=run.job.seed, device=run.job.train.device,
    )  # fmt: skip


def _config(run: Run) -> Any:
    from reticent.audit.extraction.passages import ExtractionConfig
    from reticent.audit.scoring.generate import Decoding

    settings = run.job.extraction
    assert settings is not None
    return ExtractionConfig(
        prefix_tokens=tuple(settings.prefix_tokens), suffix_tokens=settings.suffix_tokens,
        decoding=Decoding(temperature=settings.temperature, top_k=settings.top_k),
        num_queries=tuple(settings.num_queries), probability=settings.probability,
        num_passages=settings.num_passages, num_bootstrap=run.job.audit.num_bootstrap,
        batch_size=run.job.audit.batch_size, seed=run.job.seed, device=run.job.train.device,
    )  # fmt: skip


def check_extraction(run: Run) -> None:
    """Raise `PolicyError` for settings that extraction and canaries cannot be measured with."""
    if run.job.extraction is not None:
        _config(run)
    if run.job.canaries is not None:
        _canary_audit(run)


def extraction_section(run: Run) -> dict[str, Any]:
    """Return {"extraction": …} for the evidence, or nothing where the job asks for none."""
    models = []
    for measurement in extraction_measurements(run):
        seed = None if measurement.training is None else measurement.training.seed
        about = {
            "model": measurement.model.name,
            "recipe": measurement.recipe,
            "objective": measurement.model.objective,
        }
        found = read_json(run.folder / extraction_name(measurement) / "extraction.json")
        models.append({**about, "seed": seed, "epoch": measurement.epoch, **found})
    return {"extraction": {"has_canaries": run.job.canaries is not None, "models": models}} if models else {}


def gate_config(run: Run) -> dict[str, Any]:
    """The gates of a job, as they are written down."""
    return {"gates": [gate.model_dump() for gate in run.job.gate]}


def fix_gates(run: Run) -> None:
    """Write the gates down, with whether anything was trained already."""
    if not run.job.gate:
        return

    def build(folder: Path, counts: dict[str, Any]) -> None:
        (folder / "gates.json").write_text(json.dumps(gate_config(run), indent=1))
        counts["fixed_before_training"] = not any((run.folder / "models").rglob("manifest.json"))

    run.make("gates", gate_config(run), {}, build)


def judge_gates(run: Run, evidence: dict[str, Any]) -> dict[str, Any]:
    """Return {"verdict": …} for the evidence, or nothing where the job has no gate."""
    from reticent.audit.gates import verdict
    from reticent.core.artifact import read_manifest

    if not run.job.gate:
        return {}
    found = verdict(evidence, gate_config(run)["gates"], small_cell=run.job.audit.small_cell)
    fixed = read_manifest(run.folder / "gates").counts["fixed_before_training"]
    return {"verdict": {"fixed_before_training": fixed, **found}}


def judge_again(run: Run) -> None:
    """Put the verdict of the job's gates into a finished audit that has that of others; nothing is measured again."""
    from reticent.core.artifact import require_kind

    gates, made = gate_config(run) if run.job.gate else {}, require_kind(run.folder / "audit", "audit")
    others = {name: value for name, value in made.config.items() if name != "gates"}
    if others | gates == made.config:
        return
    fix_gates(run)

    def build(folder: Path, counts: dict[str, Any]) -> None:
        evidence = {name: value for name, value in run.evidence.items() if name != "verdict"}
        settings = {name: value for name, value in evidence["settings"].items() if name != "gate"}
        evidence["settings"] = settings | ({"gate": gates["gates"]} if gates else {})
        (folder / "audit.json").write_text(
            json.dumps({**evidence, **judge_gates(run, evidence)}, indent=1, allow_nan=False)
        )
        counts.update(made.counts)

    run.make("audit", others | gates, made.inputs, build)
