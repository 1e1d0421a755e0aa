"""What of a job is done, what is left and how long it will take, without doing any of it and while it may be running.

The stages are gone through as in a run, but nothing is made: an artefact is done if its manifest has the settings and
inputs it would be made with. What follows from one that is not done is not done either. Bytes of results are not read
again; those of the documents and of a base model are, once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reticent.core.errors import ReticentError
from reticent.core.progress import Progress
from reticent.job.plan import Plan
from reticent.job.run import STAGES, Run

__all__ = ["job_status"]

#: Fingerprint of what is not there yet.
TO_DO = "to do"


def job_status(run: Run) -> dict[str, Any]:
    """Return {"artifacts": [{"name", "state", "seconds"}], "plan": …} of a job; tokens that were held to their text
    have a "text_check" besides.

    A state is "done", "to do", "begun" where a training goes on from a state that it saved, or, where something of the
    name is there that the job would make anew, "out of date". ``plan`` counts trainings, classifications and scorings;
    its ``remaining_seconds`` is None while nobody measured what is left.
    """
    survey = _Survey(run.job, Progress(quiet=True))
    survey.walk()
    earlier = survey.timings.read()
    artifacts = [
        {"name": name, "state": state, "seconds": earlier.get(name, {}).get("seconds")}
        | ({"text_check": check} if (check := survey.text_checks.get(name)) is not None else {})
        for name, state in survey.states.items()
    ]
    return {"folder": str(survey.folder), "artifacts": artifacts, "plan": _plan_of(survey, earlier)}


def _plan_of(survey: _Survey, earlier: dict[str, dict[str, Any]]) -> dict[str, Any] | None:
    """Counts and expected time of what the plan has; None before there are tokens to train on."""
    from reticent.job.audit_stage import plan_steps

    try:
        steps = list(plan_steps(survey, scoring=True, classifying=True))
    except ReticentError:
        return None
    plan = Plan((s for s, _ in steps), done=[s.name for s, is_done in steps if is_done], earlier=earlier)
    left = [step.name for step in plan.left]
    return {
        "what": plan.what(),
        "num_steps": len(steps),
        "num_done": len(plan.done),
        "next": left[0] if left else None,
        "remaining_seconds": plan.remaining_seconds(),
        "unmeasured": plan.unmeasured(),
    }


class _Survey(Run):
    """A run that looks and makes nothing."""

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.states: dict[str, str] = {}
        self.text_checks: dict[str, dict[str, Any]] = {}

    def walk(self) -> None:
        """Look at every stage; one that cannot be told about before an earlier one is done is to do."""
        for stage in STAGES:
            before = len(self.states)
            try:
                getattr(self, stage)()
            except (ReticentError, OSError):  # of what is not there
                if len(self.states) == before:
                    self.states[stage] = TO_DO

    def train(self) -> None:
        """No process is waited for, and no state of a training is wiped."""
        for training in self.trainings():
            self._train_one(training)

    def recover(self) -> None:
        """Another process may be writing."""

    def keep_job(self) -> None:
        """The job stays the one of the last run."""

    def _make_room(self, training: Any) -> None:
        """Nothing is moved."""

    def make(
        self,
        name: str,
        config: dict[str, Any],
        inputs: dict[str, str],
        build: Any,
        *,
        kind: str | None = None,
        **_: Any,
    ) -> None:
        if self.looks_current(name, config, inputs, kind=kind or name):
            self.states[name] = "done"
            if kind == "tokens":
                self._look_at_check(name)
        else:
            self.states[name] = "out of date" if (self.folder / name / "manifest.json").exists() else TO_DO
            if any((self.folder / name).parent.glob(f".{Path(name).name}.part-*")):
                self.states[name] = "begun"
            self._fingerprints[self.folder / name] = TO_DO
            self._fingerprints[self.folder / name / "text"] = TO_DO

    def _look_at_check(self, name: str) -> None:
        """What was counted when tokens were held to their text: all of them, else a sample."""
        from reticent.core.artifact import read_manifest

        tokens = read_manifest(self.folder / name)
        try:
            check = read_manifest(self.folder / "text-check" / name.removeprefix("tokens/"))
        except ReticentError:
            check = None
        whole = check is not None and check.inputs.get("tokens") == tokens.digest
        counts = check.counts if whole and check is not None else tokens.counts.get("text_check")
        if counts is not None:
            found = {key: counts[key] for key in ("documents", "tokens")}
            self.text_checks[name] = {**found, "violations": 0, "whole": whole}

    def fingerprint_at(self, path: Path) -> str:
        """By the manifest of an artefact; its bytes are not read again."""
        from reticent.core.artifact import read_manifest

        if path not in self._fingerprints and self.folder in path.parents:
            self._fingerprints[path] = read_manifest(path).digest if path.exists() else TO_DO
        return super().fingerprint_at(path)

    def checkpoint_fingerprint(self, training: Any, epoch: int) -> str:
        """Of a training that is not done there is none."""
        if self.states.get(training.name) != "done":
            return TO_DO
        return super().checkpoint_fingerprint(training, epoch)
