"""From protected tokens to model folders, one for each recipe, seed and kept epoch; an interrupted training resumes.

The gates of the job are written down first. A threshold that was chosen when the numbers were known decides nothing,
and the report says which it was.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from reticent.core.artifact import STATE, nest_artifact
from reticent.core.errors import ArtifactError
from reticent.core.resolve import resolve
from reticent.engine.schema import HELDOUT
from reticent.job.artefact import Artefact, Step, Training, trainings_of
from reticent.job.auditing import training_work
from reticent.job.dependencies import privacy_of, training_dependencies
from reticent.job.gates import gate_settings, gate_step
from reticent.job.run import Run
from reticent.job.training_tokens import heldout_tokens, public_context, training_tokens

#: Seconds between two looks at whether the tokens of a training are still its own.
LOOK_AGAIN = 30.0


def train_steps(run: Run) -> Iterator[Step]:
    """Yield the step that writes the limits a model must meet (gates), if there are any, then one for each model to
    train, ``models/MODEL/RECIPE`` (``/seed-N``)."""
    if gate_settings(run):
        yield gate_step(run)
    for training in () if run.job.subject is not None else trainings_of(run.job):
        settings, inputs = training_dependencies(run, training)
        yield Step.of(
            Artefact(training.name, "models", settings, inputs),
            partial(_build_training, run, training, settings["seed"]),
            resume=not run.restart,
            group=training.name,
            prepare=partial(_move_to_seed_folder, run, training),
            work=partial(training_work, run, training),
        )


def _move_to_seed_folder(run: Run, training: Training) -> None:
    """Move a training (and its heads), made before the job set ``train.seeds``, into the subfolder of its seed. Raise
    `ArtifactError` if there are such subfolders and the job does not set seeds any more.
    """

    place = run.folder / "models" / training.model.name / training.recipe
    if training.seed is not None:
        for kind in ("models", "classification", "tagging"):
            nest_artifact(run.folder / kind / training.model.name / training.recipe, f"seed-{run.job.seed}")
    elif any(place.glob("seed-*")):
        raise ArtifactError(
            f"{place}: holds trainings of several seeds; keep train.seeds in the job, or give another out"
        )


def _check_tokens_while_training(run: Run, tokens: str, advance: Callable[..., None]) -> Callable[..., None]:
    """Return a progress callback that passes its arguments on to ``advance``, and now and then checks that no other
    process has replaced the ``tokens`` of the training; if one has, it raises an error, which stops the training.
    """
    digest, looked = run.fingerprints.of(tokens), time.monotonic()

    def advance_and_check(*done: Any, **about: Any) -> None:
        """Call ``advance`` with the progress. Every `LOOK_AGAIN` seconds check before that the files of the tokens have
        not changed, and raise an error if they have.
        """
        nonlocal looked
        if time.monotonic() - looked >= LOOK_AGAIN:
            run.fingerprints.require_unchanged([digest])
            looked = time.monotonic()
        advance(*done, **about)

    return advance_and_check


def _build_training(run: Run, training: Training, seed: int, folder: Path, counts: dict[str, Any]) -> None:
    """Train one model with its recipe and seed, write its checkpoints and ledger into ``folder``, and fill in its
    counts."""
    from reticent.trainer.loop import train
    from reticent.trainer.models import load_model

    model, recipe = training.model, run.job.recipe(training.recipe)
    config = run.job.training(model)
    config = config.replace(seed=seed, checkpoint_epochs=config.epochs_kept())  # the list may be longer models' too
    if (folder / STATE).exists():
        run.progress.say(f"{training.name}: goes on from the state that was saved when it was interrupted")
    if not run.bases_are_loaded:  # the first training of this run: a base that cannot be loaded is no news hours later
        bases = {(run.base_of(other), other.objective) for other in run.job.model}
        for base_of_other, objective in sorted(bases - {(run.base_of(model), model.objective)}):
            load_model(base_of_other, objective)
        run.bases_are_loaded = True
    base = load_model(run.base_of(model), model.objective)
    with (
        training_tokens(run, model, recipe, folder, config.num_epochs) as (store, epoch_store),
        run.progress.task(f"train {recipe.name}", None, "steps") as advance,
    ):
        result = train(
            base,
            store,
            recipe,
            config,
            folder,
            tokenizer=run.base_of(model),
            progress=_check_tokens_while_training(run, f"tokens/{model.name}/{run.job.tokens(recipe.name)}", advance),
            epoch_store=epoch_store,
            privacy=privacy_of(run, model, recipe) if recipe.private else None,
            context=public_context(run, model, recipe),
            has_spans_and_index=True,
            heldout=None if config.eval_strategy == "no" else heldout_tokens(run, model, run.individuals.mask(HELDOUT)),
        )
    if result.ended.get("epoch", config.num_epochs) < config.num_epochs:
        kept = f", the best is {best}" if (best := result.ended.get("best_epoch")) else ""
        run.progress.say(f"{training.name}: ended in epoch {result.ended['epoch']} of {config.num_epochs}{kept}")
    counts.update(steps=result.num_steps, **result.ledger.to_dict())
    if result.guarantee is not None:
        counts["privacy"] = str(result.guarantee)
        spent = {epoch: each.epsilon for epoch, each in result.spent.items()}
        counts["epsilons"] = {str(epoch): found for epoch, found in spent.items() if found not in (None, math.inf)}
        if result.guarantee.protects_nobody:
            run.progress.warn(f"{training.name}: {result.guarantee}. {result.guarantee.protects_nobody}")
        run.progress.say(resolve("reticent.ext.dp.charges:spent_so_far")(run, training))
