"""The attack on two releases of one model, before and after a withdrawal: does their difference show who left?

The earlier run (``audit.earlier``) has the documents of those who withdrew, which this run has no more. Its last model
of the same section and recipe, and the model that is measured, are scored on the earlier run's tokens.

Cost: a pass of both models over the documents of those who left, and two documents of 1,060 others at most.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reticent.audit.evidence.membership import KindAttack
from reticent.core.artifact import JOB
from reticent.core.errors import PolicyError
from reticent.engine.schema import HELDOUT, MEMBERS
from reticent.job.artefact import Measurement, Training, is_last
from reticent.job.config import load_kept_job
from reticent.job.run import Run
from reticent.job.stages.near_copies import copied_individuals


class Earlier:
    """The previous release of a measured model: its run, its training, and its last checkpoint."""

    def __init__(self, run: Run, training: Training, epoch: int, path: Path):
        self.run, self.training, self.epoch, self.path = run, training, epoch, path

    def inputs(self) -> dict[str, str]:
        """Return the fingerprints of the previous release's checkpoint and tokens, by name."""
        known = self.run.fingerprints
        return {
            "earlier checkpoint": known.of_checkpoint(self.training.name, self.epoch),
            "earlier tokens": known.of(f"tokens/{self.training.model.name}/audit"),
        }


def open_earlier(run: Run) -> Run | None:
    """Open the run of the previous release (``audit.earlier``); None where the job names none; `PolicyError` where it
    is no run folder."""
    if run.job.audit.earlier is None:
        return None
    folder = Path(run.job.audit.earlier)
    if not (folder / JOB).is_file():
        raise PolicyError(
            f"audit.earlier: {folder} is no run folder; leave it out where the earlier release is deleted"
        )
    return Run(load_kept_job(folder / JOB))


def earlier_of(run: Run, measurement: Measurement) -> Earlier | None:
    """Return the previous release of a measured model, or None; only a training's last checkpoint has one, where the
    earlier run trained the same recipe on a model section of the same name."""
    training = measurement.training
    if training is None or not is_last(run.job, measurement):
        return None
    before = run.memoize("earlier", b"", lambda: open_earlier(run))
    if before is None:
        return None
    for section in before.job.model:
        if section.name == measurement.model.name and measurement.recipe in section.recipes:
            seeds = before.job.training(section).seeds or (None,)
            own = Training(section, measurement.recipe, training.seed if training.seed in seeds else seeds[0])
            checkpoints = before.checkpoints(section, own.recipe, own.seed)
            if checkpoints:
                return Earlier(before, own, max(checkpoints), checkpoints[max(checkpoints)])
    return None


def measure_withdrawn(run: Run, measurement: Measurement, earlier: Earlier) -> KindAttack | None:
    """Attack individuals who were members of the previous release and have withdrawn since, by the scores of both
    releases' models on their documents. Non-members are individuals held out in both releases. Return the result; None
    if nobody has withdrawn.
    """
    from reticent.audit.membership.releases import withdrawn_attack
    from reticent.audit.scoring.gradients import sampled_documents
    from reticent.audit.scoring.scores import score_models
    from reticent.audit.stats.intervals import bootstrap_of
    from reticent.job.auditing import audited_tokens
    from reticent.trainer.models import check_fit, load_model, load_tokenizer, special_ids

    before, settings, objective = earlier.run.individuals, run.job.audit, measurement.model.objective
    ids = before.table.column("individual_id").cast(pa.string())
    now = run.individuals.table.column("individual_id").cast(pa.string())
    is_here = pc.is_in(ids, value_set=now.combine_chunks()).to_numpy(zero_copy_only=False)
    held = now.filter(pa.array(run.individuals.mask(HELDOUT))).combine_chunks()
    has_left = before.mask(MEMBERS) & ~is_here
    is_other = before.mask(HELDOUT) & pc.is_in(ids, value_set=held).to_numpy(zero_copy_only=False)
    store = audited_tokens(earlier.run, measurement.model.name, "audit")
    left = has_left[store.individual]
    chosen = left | is_other[store.individual]
    if not left.any():
        return None
    rows = np.flatnonzero(chosen)
    asked = rows[sampled_documents(store.individual[rows], left[rows], settings.seed, units=before.units)]
    store = store.select(np.union1d(np.flatnonzero(left), asked))
    path = run.checkpoint_of(measurement)
    special = special_ids(load_tokenizer(path), objective)
    models = [load_model(each, objective) for each in (earlier.path, path)]
    for model in models:
        check_fit(model, store, load_tokenizer(path), special, settings.window_length)
    taught = (store.flags & run.job.recipe(measurement.recipe).never_target) == 0
    old, new = score_models(
        models, objective, store, special, folds=settings.folds, window_length=settings.window_length,
        batch_size=settings.batch_size, seed=settings.seed, device=settings.device, bf16=settings.bf16,
    )  # fmt: skip
    return withdrawn_attack(
        old.restrict_to(taught), new.restrict_to(taught), store.individual, has_left[store.individual],
        copied_individuals(earlier.run), **bootstrap_of(settings.num_bootstrap, settings.seed, before.units),
    )  # fmt: skip
