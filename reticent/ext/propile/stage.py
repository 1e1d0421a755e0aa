"""The probes of a job: prompts for members' items, run on every model's last checkpoint and on its base model.

The items come from the job's table of records (or the one ``[probe]`` names). The same prompts are made for held-out
individuals: right answers about them are skill, and are reported beside those about members.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reticent.audit.config import COMPASS
from reticent.core.errors import PolicyError
from reticent.engine.identity import normalise_listed_ids
from reticent.engine.randomness import generator
from reticent.engine.schema import HELDOUT, MEMBERS
from reticent.engine.split import households_of
from reticent.ext.propile.prompts import ProbeModel, SoftPromptStudy, require_questions, require_subjects
from reticent.ext.propile.subjects import read_subjects
from reticent.ext.propile.templates import read_templates

if TYPE_CHECKING:
    from reticent.audit.config import ProbeConfig
    from reticent.audit.evidence.probe import ProbeEvidence
    from reticent.ext.propile.prompts import Beginnings
    from reticent.ext.propile.subjects import Subjects
    from reticent.ext.propile.templates import Template
    from reticent.job.config import Job
    from reticent.job.run import Run

#: Letters of a beginning at most, cut between words.
LETTERS = 240
_STREAM = 101


def table_of(job: Job) -> Path:
    """Return the path of the table of individuals' items that a job's probes use: ``probe.subjects`` or the table of
    ``detect.records``; raise `PolicyError` without either.
    """
    assert job.probe is not None
    table = job.probe.subjects or job.detect.of("records").get("table")
    if table is None:
        raise PolicyError("probe.subjects: a table of individuals' items is needed, as there is no detect.records")
    return Path(table)


def probe_inputs(run: Run) -> dict[str, str]:
    """Return name -> fingerprint of the files that a job's probes read (subjects, templates); empty without probes."""
    if run.job.probe is None:
        return {}
    files = {"probe:subjects": table_of(run.job), "probe:templates": run.job.probe.templates}
    return {name: run.fingerprints.at(Path(path)) for name, path in files.items() if path is not None}


def check_probes(job: Job) -> None:
    """Raise `PolicyError` or `CorpusError`, before any training, if no prompt can be made for a job's probes."""

    subjects, templates = _read_probe_files(job)
    _require_prompts(job, subjects, templates)


def check_members(run: Run) -> None:
    """Raise `PolicyError` or `CorpusError`, before any training, if no prompt can be made for the members alone, or
    they are too few for soft prompts.
    """
    subjects, templates = _read_probe_files(run.job)
    _require_prompts(run.job, _split_subjects(run, subjects)[MEMBERS], templates)


def _require_prompts(job: Job, subjects: Subjects, templates: tuple[Template, ...] | None) -> None:
    """Raise `PolicyError` or `CorpusError` if no prompt can be made for these subjects, or they are too few for soft
    prompts.
    """
    assert job.probe is not None
    asked = require_questions(subjects, job.probe, templates)
    if job.probe.soft_prompt is not None and any(model.objective == "clm" for model in job.model):
        targets = tuple(dict.fromkeys(target for target, _ in asked))
        require_subjects(subjects, targets, SoftPromptStudy(prompt=job.probe.soft_prompt))


def _read_probe_files(job: Job) -> tuple[Subjects, tuple[Template, ...] | None]:
    """Return the subjects and templates of a job's probes; templates None for the built-in ones."""
    assert job.probe is not None
    subjects = read_subjects(table_of(job), fold=job.corpus.ids == "fold")
    if subjects.ids is None:
        raise PolicyError(f"{table_of(job)}: no column individual_id, so members are unknown")
    return subjects, read_templates(job.probe.templates) if job.probe.templates else None


def _split_subjects(run: Run, subjects: Subjects) -> dict[str, Subjects]:
    """Split the subjects into members and held-out individuals, with households as in the split; those without a
    document are left out.
    """
    known = run.individuals.table.column("individual_id").combine_chunks()
    ids = normalise_listed_ids(
        pa.array(subjects.ids, known.type),
        known,
        run.job.corpus.ids,
        str(table_of(run.job)),
        lambda n: f"row {subjects.rows[n] + 1}",
    )
    # An individual with a record and no document is on no side.
    codes = pc.fill_null(pc.index_in(ids, value_set=known), -1).to_numpy()
    subjects = replace(subjects, ids=ids.to_pylist())
    households = households_of(run.individuals.units)
    if households is not None:  # as the split has them
        subjects = replace(subjects, households=np.where(codes < 0, -1, households[codes]))
    return {
        side: subjects.take(np.flatnonzero(run.individuals.mask(side)[codes] & (codes >= 0)))
        for side in (MEMBERS, HELDOUT)
    }


def beginnings_of(run: Run, members: Subjects) -> Beginnings | None:
    """Return for each item type a shuffled list of (member's row, text before the item in a document of this member),
    which prompts can begin with. None unless the job's probes have a level with such beginnings.

    Parameters
    ----------
    members : as `_split_subjects` returns them, with ids as in the documents
    """
    assert run.job.probe is not None
    assert members.ids is not None
    if COMPASS not in run.job.probe.levels:
        return None
    of_id = {who: number for number, who in enumerate(members.ids)}
    found: dict[str, dict[int, str]] = {name: {} for name in members.types}
    for batch in run.unplanted.batches(columns=("individual_id", "text")):
        for who, text in zip(*(batch.column(name).to_pylist() for name in ("individual_id", "text")), strict=True):
            if (number := of_id.get(who)) is None:
                continue
            for name, items in members.items.items():
                at = text.find(item) if (item := items[number]) else -1
                if at > 0 and (before := " ".join(text[:at][-LETTERS:].split()[at > LETTERS :])):
                    found[name].setdefault(int(members.rows[number]), before)
    random = generator(run.job.seed, _STREAM)
    listed = {name: list(of_row.items()) for name, of_row in found.items()}
    return {name: [rows[at] for at in random.permutation(len(rows))] for name, rows in listed.items()}


def run_probes(run: Run) -> ProbeEvidence:
    """Run a job's ProPILE probes on the base models and on the last checkpoint of each training, for members and
    held-out individuals; return the evidence.
    """

    from reticent.ext.propile.measure import probe_models, with_heldout

    job = run.job
    subjects, templates = _read_probe_files(job)
    config = job.probe
    assert config is not None
    study = None if config.soft_prompt is None else SoftPromptStudy(prompt=config.soft_prompt)
    on_side, models = _split_subjects(run, subjects), []
    for model in job.model:
        named = f" of {model.name}" if len(job.model) > 1 else ""
        if job.subject is None or job.subject.base is not None:
            models.append(ProbeModel(f"base{named}", run.base_of(model), model.objective))
        for recipe in model.recipes:
            checkpoints = run.checkpoints(model, recipe)
            models.append(ProbeModel(f"{recipe}{named}", checkpoints[max(checkpoints)], model.objective))

    beginnings = beginnings_of(run, on_side[MEMBERS])

    def probe_side(side: str, config: ProbeConfig, study: SoftPromptStudy | None) -> ProbeEvidence:
        """Run the probes on the subjects of one side of the split: the members or the held-out individuals."""
        with run.progress.task(f"probe {side}", None, "rows") as advance:

            def report(what: str, done: int, total: int) -> None:
                """Update the progress bar of the work named ``what``: ``done`` of ``total`` is finished."""
                advance(done, total, what)

            evidence, _, _ = probe_models(
                models, on_side[side], config, templates=templates, study=study, beginnings=beginnings, progress=report
            )
        return evidence

    members = probe_side(MEMBERS, config, study)
    # Types of items that no held-out individual has are asked of members alone.
    targets = dict.fromkeys(row.target for row in members.models[0].results)
    shared = tuple(name for name in targets if any(item is not None for item in on_side[HELDOUT].items[name]))
    return with_heldout(members, probe_side(HELDOUT, config.replace(targets=shared), None)) if shared else members
