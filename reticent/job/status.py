"""The status of a job: artefacts done and remaining, and the expected time. It only reads, so the job may be running.

It goes through the plan as a run does, but makes nothing: an artefact is done if its manifest has the settings and
inputs that a run would make it with. An artefact that follows from one not done is not done either. Bytes of results
are not read again; those of the documents and of a base model are, once.
"""

from __future__ import annotations

from typing import Any

from reticent.core.artifact import read_manifest
from reticent.core.errors import ReticentError
from reticent.core.eta import Plan
from reticent.job.fingerprints import TO_DO
from reticent.job.pipeline import StepState, iter_step_states
from reticent.job.run import Run


def job_status(run: Run) -> dict[str, Any]:
    """Return {"folder", "artifacts": [{"name", "state", "seconds"}], "plan": …} of a job; tokens that were checked
    against their text also have a "text_check".

    A state is "done", "to do", "begun" (a training goes on from a saved state) or "out of date" (an artefact of that
    name exists, and the job would make it anew). ``plan`` counts trainings, classifications and scorings;
    its ``remaining_seconds`` is None while the speed of some of the work that is left is not known.

    Raises
    ------
    CorpusError, PolicyError
        Local documents, or a list of who withdrew, are not there: what is done cannot be told without them.
    """
    run = run.read_only_copy()
    if run.job.corpus.remote is None:
        _ = run.whole_corpus
    states = list(iter_step_states(run))
    earlier = run.timings.read()
    artifacts = []
    for look in states:
        state_of = look.states
        if look.step is None and not look.stage.within:
            state_of = {look.stage.name: TO_DO}
        for name, state in state_of.items():
            check = _text_check(run, name) if name.startswith("tokens/") and state == "done" else None
            about = {"name": name, "state": state, "seconds": earlier.get(name, {}).get("seconds")}
            artifacts.append(about | ({"text_check": check} if check is not None else {}))
    return {"folder": str(run.folder), "artifacts": artifacts, "plan": _experiment_progress(states, earlier)}


def _experiment_progress(states: list[StepState], earlier: dict[str, dict[str, Any]]) -> dict[str, Any] | None:
    """Return how many steps of the experiment are done, which is next, and the time left, as JSON values, from the
    states of the steps; None before there are tokens to train on. ``earlier`` has the measured times of earlier
    runs."""
    try:
        works = [(look.step.work(), look.is_done) for look in states if look.step is not None and look.step.work]
    except ReticentError:
        return None
    if not works:
        return None
    plan = Plan((work for work, _ in works), done=[work.name for work, is_done in works if is_done], earlier=earlier)
    left = [work.name for work in plan.left]
    return {
        "what": plan.what(),
        "num_steps": len(works),
        "num_done": len(plan.done),
        "next": left[0] if left else None,
        "remaining_seconds": plan.remaining_seconds(),
        "unmeasured": plan.unmeasured(),
    }


def _text_check(run: Run, name: str) -> dict[str, Any] | None:
    """Return the numbers of documents, tokens and violations of a token store's check against the text, and whether all
    documents were checked or a sample; None without a check.
    """

    tokens = read_manifest(run.folder / name)
    try:
        check = read_manifest(run.folder / "text-check" / name.removeprefix("tokens/"))
    except ReticentError:
        check = None
    whole = check is not None and check.inputs.get("tokens") == tokens.digest
    counts = check.counts if whole and check is not None else tokens.counts.get("text_check")
    if counts is None:
        return None
    found = {key: counts[key] for key in ("documents", "tokens")}
    return {**found, "violations": 0, "whole": whole}
