"""The plan of a job: its stages and their order. Running a job and showing its status are loops over this plan.

    corpus -> dedup -> split -> detect -> index -> foundation -> protect -> train -> classify -> audit -> report

A stage yields its steps lazily: a later one may depend on the bytes of an earlier one. Every step writes its artefacts
into folders of the run folder, each whole or not at all, and one whose inputs and settings have not changed is not
made again (:mod:`reticent.job.maker`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from reticent.core.artifact import JOB, delete_unfinished
from reticent.core.errors import PolicyError, ReticentError
from reticent.core.eta import Plan
from reticent.core.resolve import resolve
from reticent.job.artefact import Step
from reticent.job.checks import check_budget, check_columns, check_run, check_sides
from reticent.job.gates import judge_again
from reticent.job.maker import artifact_state, build_step
from reticent.job.run import Run
from reticent.trainer.distributed import join_world, launched, leave_world


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a job.

    Attributes
    ----------
    steps : str or callable
        Function that yields the steps of a run; as "module:function" it is imported when the stage is reached, so that
        a run loads nothing of the stages that it does not come to.
    within : str
        Name of the stage that this one is a sub-stage of, as a user gives it; empty for a stage that a user can name.
    """

    name: str
    steps: str | Callable[[Run], Iterator[Step]]
    within: str = ""

    def steps_of(self, run: Run) -> Iterator[Step]:
        """Yield the stage's steps for a run, lazily: a later step may depend on the bytes
        that an earlier one writes.
        """
        steps = resolve(self.steps) if isinstance(self.steps, str) else self.steps
        yield from steps(run)


_PLAN = (
    Stage("subject", "reticent.job.stages.subject:subject_steps", within="corpus"),
    Stage("corpus", "reticent.job.stages.corpus:corpus_steps"),
    Stage("dedup", "reticent.job.stages.dedup:dedup_steps"),
    Stage("split", "reticent.job.stages.split:split_steps"),
    Stage("canaries", "reticent.job.stages.split:canary_steps", within="split"),
    Stage("learned", "reticent.ext.learn.stage:learned_steps", within="detect"),
    Stage("detect", "reticent.job.stages.detect:detect_steps"),
    Stage("index", "reticent.job.stages.index:index_steps"),
    Stage("foundation", "reticent.job.stages.foundation:foundation_steps"),
    Stage("protect", "reticent.job.stages.protect:protect_steps"),
    Stage("rules", "reticent.ext.dossier.rules:rules_steps", within="audit"),
    Stage("base models", "reticent.job.stages.measure:base_steps", within="audit"),
    Stage("train", "reticent.job.stages.train:train_steps"),
    Stage("classify", "reticent.ext.classify.stage:classify_steps"),
    Stage("heads", "reticent.ext.head_attacks.stage:head_steps", within="audit"),
    Stage("shadows", "reticent.job.stages.shadows:shadow_steps", within="audit"),
    Stage("measures", "reticent.job.stages.measure:measure_steps", within="audit"),
    Stage("extraction", "reticent.ext.extraction.stage:extraction_steps", within="audit"),
    Stage("audit", "reticent.job.stages.audit:audit_steps"),
    Stage("report", "reticent.job.stages.audit:report_steps"),
    Stage("dossier", "reticent.ext.dossier.stage:dossier_steps", within="report"),
)
#: Names of the stages, as a user gives them, in order.
STAGES = tuple(stage.name for stage in _PLAN if not stage.within)
#: From this stage on, a run is an experiment: its expected end is shown.
EXPERIMENT = ("base models", "train", "classify", "heads", "shadows", "measures", "extraction")


def stages_until(until: str) -> list[Stage]:
    """Return the stages of the plan up to and including ``until``, with their sub-stages."""
    wanted = STAGES[: STAGES.index(until) + 1]
    return [stage for stage in _PLAN if (stage.within or stage.name) in wanted]


def stages_named(*names: str) -> list[Stage]:
    """Return the stages or sub-stages of the plan with these names, in the plan's order."""
    return [stage for stage in _PLAN if stage.name in names]


def execute(run: Run, until: str = "report", *, alone: bool = False) -> Path:
    """Run all stages of a job up to and including ``until`` (one of `STAGES`), and return the run folder. With
    ``alone`` only that stage and those that it must have before it are run.

    With ``alone`` only the reading of the documents and deduplication run before it: a stage that looks at documents
    one by one needs no split, unless canaries are planted in some of them. Who withdrew is recorded all the same.
    """
    if until not in STAGES:
        raise PolicyError(f"unknown stage {until!r}; one of {', '.join(STAGES)}")
    if not launched().is_main:  # the first process does all else, and these wait for its training
        if STAGES.index(until) >= STAGES.index("train"):
            _run_trainings(run)
        return run.folder
    run.recover()
    reaches = {stage: STAGES.index(until) >= STAGES.index(stage) for stage in STAGES}
    check_run(
        run,
        counts=reaches["index"],
        models=reaches["foundation"],
        trains=reaches["train"],
        classifies=reaches["classify"],
        audits=reaches["audit"],
        reports=reaches["report"],
    )
    if run.job.corpus.remote is None and not (run.folder / JOB).exists():
        _ = run.given_corpus  # no folder is begun for documents that are not there
    run.prepare_folder()
    alone = alone and run.job.canaries is None
    chosen = stages_until(until)
    if alone:  # no split keeps the record of who withdrew
        run_stages(run, stages_named("corpus"))
        _ = run.whole_corpus  # says whom the lists name
        run.left_out(again=True).keep(run.folder)
        chosen = [stage for stage in chosen if stage.name == "dedup" or until in (stage.name, stage.within)]
    run_stages(run, chosen)
    run.verify_all()
    if alone:
        resolve("reticent.job.stages.split:report_repairs")(run, {})
    run.keep_job()
    return run.folder


def run_stages(run: Run, stages: Iterable[Stage]) -> None:
    """Build the steps of these stages in order. Attacks and privacy budget are checked before the first training; if
    there is any, the expected finishing time is shown from the first training or measurement on."""
    stages = list(stages)
    audits = any("audit" in (stage.name, stage.within) for stage in stages)
    learns = any(stage.name in ("train", "classify") for stage in stages)
    with ExitStack() as stack:
        stack.callback(run.verified.save)
        is_shown = False
        for stage in stages:
            if stage.name in EXPERIMENT and not is_shown and any(other.name == "train" for other in stages):
                stack.enter_context(run.progress.experiment(_experiment_plan(run, stages)))
                is_shown = True
            if stage.name == "foundation" and audits:
                check_sides(run)
            if stage.name == "foundation" and any(other.name == "train" for other in stages):
                check_budget(run)
            if stage.name == "train":
                _run_trainings(run)
            else:
                for step in stage.steps_of(run):
                    build_step(run, step)
            if stage.name == "corpus" and run.job.corpus.remote is not None and learns:
                check_columns(run)  # those of local documents were checked before


def report_again(run: Run) -> None:
    """Judge a finished audit by the job's present gates and write report and dossier again, without measuring
    anything."""
    judge_again(run)
    for stage in stages_named("report", "dossier"):
        for step in stage.steps_of(run):
            build_step(run, step)


def _run_trainings(run: Run) -> None:
    """Run the job's trainings, in all processes of a distributed training where torchrun started several."""

    (train,), world = stages_named("train"), join_world()
    world.barrier()  # the tokens must be there
    for step in train.steps_of(run):
        build_step(run, step)
    if world.is_main:
        delete_unfinished(run.folder / "models")  # of a job before this one
    leave_world()


@dataclass(frozen=True, slots=True)
class StepState:
    """The states of one step's outputs, by name, as found without building anything. Stages that depend on an
    unfinished one have no steps yet.
    """

    stage: Stage
    step: Step | None
    states: dict[str, str]

    @property
    def is_done(self) -> bool:
        """Whether all outputs of the step are up to date."""
        return all(state == "done" for state in self.states.values())


def iter_step_states(run: Run, stages: Iterable[Stage] = _PLAN) -> Iterator[StepState]:
    """Yield the state of every step of the plan without building any; ``run`` must be from
    :meth:`Run.read_only_copy`."""
    for stage in stages:
        told = False
        try:
            for step in stage.steps_of(run):
                told = True
                yield StepState(stage, step, {output.name: artifact_state(run, output) for output in step.outputs})
        except (ReticentError, OSError):  # its inputs do not exist yet
            if not told:
                yield StepState(stage, None, {})


def _experiment_plan(run: Run, stages: list[Stage]) -> Plan:
    """Return the work, done and remaining, of the stages that train and measure models, from which their finishing time
    is estimated."""
    looked = list(iter_step_states(run.read_only_copy(), [stage for stage in stages if stage.name in EXPERIMENT]))
    if any(look.stage.name == "classify" and not look.is_done for look in looked):
        resolve("reticent.ext.classify.stage:check_documents")(run)
    works = [(look.step.work(), look.is_done) for look in looked if look.step is not None and look.step.work]
    done = [work.name for work, is_done in works if is_done]
    return Plan((work for work, _ in works), done=done, earlier=run.timings.read())
