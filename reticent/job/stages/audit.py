"""From the measurements to the evidence, a JSON artefact with every number of the report, and to the report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import partial
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

import reticent
from reticent.audit.config import SUBJECT
from reticent.audit.evidence.audit import FORMAT, AuditEvidence, ModelEvidence
from reticent.audit.evidence.corpus import CorpusEvidence
from reticent.audit.evidence.json_form import from_json, to_json
from reticent.audit.evidence.leakage import Ledger
from reticent.audit.evidence.sampled import SampledRecall
from reticent.audit.judgement.verdict import ARITHMETIC
from reticent.audit.membership.validity import with_attack_verdicts
from reticent.audit.report.page import page_digest, write_report
from reticent.core.artifact import delete_artifact, delete_unfinished, read_manifest, require_kind
from reticent.core.json_toml import read_json
from reticent.core.resolve import resolve
from reticent.engine.detect.spans import SpanReader
from reticent.engine.index import open_index
from reticent.engine.schema import HELDOUT, MEMBERS, REFERENCE
from reticent.engine.stats import corpus_statistics, detected_spans
from reticent.job.artefact import Artefact, Measurement, Step, creation_time, measurements_of, trainings_of
from reticent.job.config import Job
from reticent.job.gates import judge_gates, judge_settings
from reticent.job.outcomes import keep_outcomes, keep_outcomes_of_older_audit, with_digests, with_earlier
from reticent.job.run import Run
from reticent.job.stages.measure import over_source
from reticent.job.stages.near_copies import NEAR_COPIES, near_copies_section
from reticent.job.stages.shadows import shadows_of, shadows_of_heads

# --------------------------------------------------------------------------------------------------- corpus statistics
#
# Statistics of a run's documents and their identifiers, of which the report shows counts and distributions.


def corpus_section(run: Run) -> CorpusEvidence:
    """Return statistics of the members' documents and identifiers, of a run that has its index: counts, distributions,
    n-grams by number of users, retention (tokens left as targets) and unicity."""
    from reticent.audit.stats.intervals import clopper_pearson

    for name in ("split", "spans", "index"):
        require_kind(run.folder / name, name)
    with run.progress.task("statistics", run.corpus.num_documents, "documents") as advance:
        statistics = corpus_statistics(
            run.corpus,
            run.individuals,
            open_index(run.folder / "index"),
            policy=run.policy,
            spans=SpanReader(run.folder / "spans"),
            seed=run.job.seed,
            progress=advance,
            num_threads=run.job.num_threads,
        )
    for row in statistics["unicity"]:
        found, n = row.pop("num_singled_out"), row.pop("num_units")
        low, high = clopper_pearson(found, n) if n else (None, None)
        about = {"level": 0.95, "n": n, "unit": statistics["unit"], "method": "Clopper-Pearson"}
        row["share"] = {"value": found / n if n else None, "low": low, "high": high, **about}
    individual = run.individuals.individual_codes(run.corpus.scan().column("individual_id").combine_chunks())
    statistics["detected"] = detected_spans(
        run.folder / "spans" / "spans.parquet", individual, min_individuals=run.job.audit.small_cell
    )
    asked = require_kind(run.folder / "spans", "spans").counts
    if "long_documents" in asked:
        statistics["other_languages"] = {
            "num_documents": asked["long_documents"], "num_unknown": asked["other_language"]
        }  # fmt: skip
    if run.job.dedup.mode != "off":
        statistics["copies"] = require_kind(run.folder / "dedup", "dedup").counts
    statistics["reading"] = run.whole_corpus.reading.counts()
    statistics["num_individuals"] = {s: int(np.sum(run.individuals.mask(s))) for s in (MEMBERS, HELDOUT, REFERENCE)}
    return from_json(CorpusEvidence, statistics, "corpus")


# ------------------------------------------------------------------------------------------------------ sampled recall
#
# The recall that annotators of a run's documents measured, as the run folder keeps it and the report shows it.


#: Name and kind of the artefact.
SAMPLED_RECALL = "sampled-recall"


def read_sampled_recall(run: Run) -> SampledRecall | None:
    """Return the detectors' recall as annotators measured it on a sample; None where it was not measured, or on other
    spans than the run's."""

    path = run.folder / SAMPLED_RECALL
    if not path.exists():
        return None
    manifest = require_kind(path, SAMPLED_RECALL)
    if manifest.inputs["spans"] != run.fingerprints.of("spans"):
        run.progress.warn_once(
            f"{path}: measured on other spans than the run has now; it is left out of the report until `reticent "
            "detect evaluate` measures the annotations again"
        )
        return None
    return from_json(SampledRecall, read_json(path / "recall.json"), str(path))


# ----------------------------------------------------------------------------------------------------------- evidence


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the evidence that an extension in ``reticent.ext`` measures.

    Attributes
    ----------
    name : str
        Name of the field of `AuditEvidence` that holds this part.
    sections : tuple of str
        Dotted names of sections of the job; the part is measured if the job has one of them.
    inputs : str
        "module:function" that returns the fingerprints, by name, of all that the part is read from.
    read : str
        "module:function" that returns the part.
    """

    name: str
    sections: tuple[str, ...]
    inputs: str
    read: str


_PARTS = (
    Part(
        "extraction",
        ("extraction", "canaries"),
        "reticent.ext.extraction.stage:extraction_inputs",
        "reticent.ext.extraction.stage:extraction_section",
    ),
    Part(
        "classification",
        ("classify", "tag"),
        "reticent.ext.classify.stage:classification_inputs",
        "reticent.ext.classify.stage:read_results",
    ),
    Part(
        "heads",
        ("audit.heads",),
        "reticent.ext.head_attacks.stage:head_inputs",
        "reticent.ext.head_attacks.stage:read_head_evidence",
    ),
    Part("probe", ("probe",), "reticent.ext.propile.stage:probe_inputs", "reticent.ext.propile.stage:run_probes"),
)


def _requested_parts(run: Run) -> list[Part]:
    """Return the optional parts of the evidence, such as extraction, that the job has a section for."""
    return [part for part in _PARTS if any(attrgetter(section)(run.job) is not None for section in part.sections)]


def audit_steps(run: Run) -> Iterator[Step]:
    """Yield the step that writes the artefact ``audit``: the evidence (audit.json)."""
    config: dict[str, Any] = {**run.job.audit.model_dump(), "seed": run.job.seed, "arithmetic": ARITHMETIC}
    if config["heads"] is None:  # the manifest of before there were these
        del config["heads"]
    names = [training.name for training in trainings_of(run.job)]
    for model in run.job.model:
        names.append(f"tokens/{model.name}/train")
        names += [measurement.name for measurement in measurements_of(run.job, model)]
    inputs = {name: run.fingerprints.of(name) for name in names}
    for part in _requested_parts(run):
        inputs |= resolve(part.inputs)(run)
    if (run.folder / SAMPLED_RECALL).exists():
        inputs[SAMPLED_RECALL] = run.fingerprints.of(SAMPLED_RECALL)
    if run.job.memory_limit is None:
        inputs[NEAR_COPIES] = run.fingerprints.of(NEAR_COPIES)
    config |= judge_settings(run)
    if run.job.probe is not None:
        config["probe"] = run.job.probe.model_dump(exclude={"subjects", "templates"})
    yield Step.of(Artefact("audit", "audit", config, inputs), partial(_build_audit, run))


def report_steps(run: Run) -> Iterator[Step]:
    """Yield the step that writes the artefact ``report``: report.json and report.html."""

    config = {"small_cell": run.job.audit.small_cell, "reticent": reticent.__version__, "page": page_digest()}
    if (language := run.job.dossier.languages[0]) != "en":
        config["language"] = language
    yield Step.of(
        Artefact("report", "report", config, {"audit": run.fingerprints.of("audit")}), partial(_build_report, run)
    )


def _build_audit(run: Run, folder: Path, counts: dict[str, Any]) -> None:
    """Delete stale measurements, write the evidence to ``folder/audit.json``, and keep its outcome for each risk, for
    comparison with later audits."""
    keep_outcomes_of_older_audit(run)
    _delete_stale(run)
    evidence = gather_evidence(run)
    counts["models"] = len(evidence.models)
    (folder / "audit.json").write_text(json.dumps(to_json(evidence), indent=1, allow_nan=False))
    keep_outcomes(run, evidence)


def _build_report(run: Run, folder: Path, counts: dict[str, Any]) -> None:
    """Write report.json and report.html from the finished audit into ``folder``."""
    write_report(folder, run.evidence, language=run.job.dossier.languages[0])


def _delete_stale(run: Run) -> None:
    """Delete shadow models (with their tokens) that the job no longer asks for, and measurements of checkpoints that no
    longer exist. Measurements of existing checkpoints stay, even if the job no longer names their recipe.
    """

    wanted = {run.folder / name for shadow in shadows_of(run) for name in (shadow.name, shadow.tokens)}
    wanted |= {run.folder / shadow.tokens for shadow in shadows_of_heads(run)}
    heads = list((run.folder / "head-shadows").glob("**/[0-9][0-9]*"))
    if heads:
        wanted |= {run.folder / name for name in resolve("reticent.ext.head_attacks.stage:shadow_names")(run)}
    shadows = [*(run.folder / "shadows").glob("*/*/[0-9]*"), *(run.folder / "tokens").glob("*/*-shadow-[0-9]*"), *heads]
    made = (path for kind in ("measures", "extraction") for path in (run.folder / kind).glob("*/*/*epoch-[0-9]*"))
    stale = [path for path in shadows if path not in wanted]
    for path in sorted([*stale, *(path for path in made if not _has_checkpoint(run, path))]):
        delete_artifact(path)
    if (run.folder / "shadows").is_dir():
        delete_unfinished(run.folder / "shadows")


def _has_checkpoint(run: Run, measured: Path) -> bool:
    """Return whether a measured model still exists, by its path, since the job may no longer list it."""
    seed, _, epoch = measured.name.rpartition("epoch-")
    recipe, model = measured.parent.name, measured.parent.parent.name
    trained = run.folder / "models" / model / recipe / seed.removesuffix("-")
    return recipe == "base" or (trained / f"epoch-{epoch}").is_dir()


def gather_evidence(run: Run) -> AuditEvidence:
    """Return the audit's evidence before publication, from the measurements and the corpus statistics, with its
    verdict."""

    parts = {part.name: resolve(part.read)(run) for part in _requested_parts(run)}
    measurements = [m for model in run.job.model for m in measurements_of(run.job, model)]
    evidence = AuditEvidence(
        sampled_recall=read_sampled_recall(run),
        format=FORMAT,
        created=creation_time(),
        versions={
            "reticent": reticent.__version__,
            **{name: version(name) for name in ("torch", "transformers", "tokenizers", "numpy")},
        },
        settings=all_settings(run.job),
        corpus=replace(corpus_section(run), near_copies=near_copies_section(run)),
        models=with_attack_verdicts([_read_measurement(run, measurement) for measurement in measurements]),
        **parts,
    )
    return with_earlier(run, judge_gates(run, evidence))


def all_settings(job: Job) -> dict[str, Any]:
    """Return every setting of a job except its folder; sections that it lacks are left out."""
    values = job.model_dump(mode="json", exclude={"out"})
    return {name: value for name, value in values.items() if value is not None and value != []}


def _read_measurement(run: Run, measurement: Measurement) -> ModelEvidence:
    """Return the evidence on one measured model as its measurement wrote it, with seed, counts, epsilon and digests of
    its training filled in.
    """

    path = run.folder / measurement.name / "measures.json"
    measured = replace(from_json(ModelEvidence, read_json(path), str(path)), model=measurement.model.name)
    if measurement.training is None:
        return measured
    manifest = read_manifest(run.folder / measurement.training.name)
    counts = manifest.counts
    parts = [part.name for part in fields(Ledger)]
    ledger = Ledger(**{name: counts[name] for name in parts}) if set(parts) <= counts.keys() else None
    if run.job.subject is not None and measurement.recipe != SUBJECT:
        (source,) = (m for m in measurements_of(run.job, measurement.model) if m.recipe == SUBJECT)
        areas = over_source(run, measurement, source)
        beside = {name: replace(one, over_source=areas.get(name)) for name, one in measured.membership.items()}
        measured = replace(measured, membership=beside)
    epsilon = counts.get("epsilons", {}).get(str(measurement.epoch))
    measured = replace(
        measured, seed=measurement.training.seed, ledger=ledger, guarantee=counts.get("privacy"), epsilon=epsilon
    )
    return with_digests(measured, manifest)
