"""Splitting a run over machines or the array of a job scheduler: each part makes its share of the models and their
scores.

    part 0 of N      all that the models share: documents, protected tokens, scores of the base models, the gates
    part i of N      every N-th training with its scores, every N-th draw of shadow models
    the whole run    joins them: what the parts made is up to date, the rest is made, and the report is written

All parts work in one run folder, or in copies of it after part 0, whose artefacts are copied into one. A step is the
same whoever makes it, so the result is that of a run without parts, to the byte. A part makes only steps whose inputs
are there: scores that compare with the shadow models of other parts are left to a second turn, or to the whole run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from reticent.core.errors import ArtifactError, PolicyError
from reticent.job.artefact import Step, trainings_of
from reticent.job.checks import check_run
from reticent.job.fingerprints import TO_DO
from reticent.job.maker import build_step, is_up_to_date
from reticent.job.pipeline import iter_step_states, run_stages, stages_named, stages_until
from reticent.job.run import Run
from reticent.job.stages.shadows import shadows_of
from reticent.job.stages.train import train_steps
from reticent.trainer.distributed import join_world, launched, leave_world

#: The stages whose steps the parts share, after the trainings.
SHARED = ("classify", "shadows", "measures", "extraction")


@dataclass(frozen=True, slots=True)
class Part:
    """Part ``number`` of ``total``; number 0 makes what all others need first."""

    number: int
    total: int

    @classmethod
    def parse(cls, text: str) -> Part:
        """Return the part given as ``i/N``; `PolicyError` for any other text."""
        found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text, re.ASCII)
        if found is None or not 0 <= int(found[1]) <= int(found[2]) or int(found[2]) == 0:
            raise PolicyError("--part: expected i/N, with i from 1 to N, or 0/N for all that the parts share")
        return cls(int(found[1]), int(found[2]))

    def groups(self, run: Run) -> frozenset[str]:
        """Return the names of the trainings and of the groups of shadow models that this part of a divided run builds:
        every N-th of the list of them all, where N is the number of parts. Empty for part 0.
        """
        found = [training.name for training in trainings_of(run.job)]
        found += dict.fromkeys(shadow.group for shadow in shadows_of(run))
        return frozenset(found[self.number - 1 :: self.total] if self.number else ())


def execute_part(run: Run, part: Part) -> dict[str, int]:
    """Build the steps of one part of a divided run. Return how many models and scores were ``made``, were
    ``up_to_date``, or are ``waiting`` for other parts.

    Raises
    ------
    ArtifactError
        The part 0 is not done, or was of another job; another process makes the same artefact.
    PolicyError
        The job contradicts itself.
    """
    if not launched().is_main:
        return _train_part(run, part)
    run.recover()
    check_run(run, counts=True, models=True, trains=True, classifies=True, audits=True)
    run.prepare_folder()
    before = [*stages_until("protect"), *stages_named("rules", "base models")]
    if part.number:
        for look in iter_step_states(run.read_only_copy(), before):
            if not look.is_done or look.step is None:
                raise ArtifactError(
                    f"{run.folder}: {look.stage.name} is not done, or was of another job; run part 0/{part.total} first"
                )
    run_stages(run, before)
    counts = _train_part(run, part)
    if part.number:
        for stage in stages_named(*SHARED):
            _add_counts(counts, _build_part_steps(run, stage.steps_of(run), part))
    run.keep_job()
    if counts["waiting"]:
        run.progress.say(
            f"{counts['waiting']:,} scorings wait for shadow models of other parts: run this part again when those are "
            "done, or leave them to the whole run"
        )
    return counts


def _train_part(run: Run, part: Part) -> dict[str, int]:
    """Run the trainings of one part of a divided run, in all processes of a distributed training, and return how many
    were made, were up to date, or wait for other parts. Part 0 writes the limits that measures must meet ("gates").
    """
    world = join_world()
    world.barrier()
    run.fingerprints.trust_manifests()  # of other parts, which may be at work; those of before were read
    counts = _build_part_steps(run, train_steps(run), part)
    leave_world()
    return counts


def _build_part_steps(run: Run, steps: Iterable[Step], part: Part) -> dict[str, int]:
    """Build those of the steps that belong to this part of a divided run. Return how many were built (``made``), were
    ``up_to_date``, and are ``waiting`` for results of other parts.
    """
    own = part.groups(run)
    counts = dict.fromkeys(("made", "up_to_date", "waiting"), 0)
    for step in steps:
        if (step.group is not None or part.number) and step.group not in own:
            continue
        if any(TO_DO in output.inputs.values() for output in step.outputs):
            counts["waiting"] += 1
            continue
        there = launched().is_main and all(is_up_to_date(run, output) for output in step.outputs)
        build_step(run, step)
        counts["up_to_date" if there else "made"] += 1
    return counts


def _add_counts(counts: dict[str, int], more: dict[str, int]) -> None:
    """Add counts to those of the same names, in place."""
    for name, count in more.items():
        counts[name] += count
