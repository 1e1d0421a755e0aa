"""Export of the members' tokens of a run to another machine, which trains."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from reticent.core.artifact import write_artifact
from reticent.core.errors import PolicyError
from reticent.engine.token_copy import copy_tokens
from reticent.job.variants import REWRITTEN

if TYPE_CHECKING:
    from reticent.job.config import ModelSection
    from reticent.job.run import Run


def tokens_of(run: Run) -> dict[str, str]:
    """Return export name -> path in the run folder, for each model's token store of the members: ``tokens-MODEL`` ->
    ``tokens/MODEL/train``.
    """
    return {f"tokens-{model.name}": f"tokens/{model.name}/train" for model in run.job.model}


def _recipes_by_tokens(run: Run, model: ModelSection) -> dict[str, list[str]]:
    """Return token store -> recipes of a model that are trained on this store. Recipes that draw new surrogates in each
    epoch, and so are trained on many stores, are left out.
    """
    found: dict[str, list[str]] = {"train": []}
    for name in model.recipes:
        if run.job.recipe(name).context != "surrogate":  # which trains on others in each epoch
            found.setdefault(run.job.tokens(name), []).append(name)
    return found


def warn_of_other_tokens(run: Run, model: ModelSection, leaving: Sequence[str]) -> None:
    """Warn of a model's recipes whose training tokens are not exported, because their protection or text differs.
    ``leaving`` are the names of the token stores that are exported.
    """
    taken = _recipes_by_tokens(run, model)
    others = set(model.recipes).difference(*(taken[name] for name in leaving))
    if others:
        own, shown = run.job.protect, ", ".join(name for name in model.recipes if name in others)
        run.progress.warn(
            f"{model.name}: only tokens of the original text leave"
            + (
                f" with the job's protection (k = {own.k}, n = {own.n}, policy {own.policy})"
                if len(leaving) == 1
                else ""
            )
            + f"; {shown}: trained on others; train them in the run"
        )


def copy_members_tokens(run: Run, folder: Path) -> dict[Path, dict[str, int]]:
    """Copy the members' tokens of each model into ``folder``, with new individual ids; return the counts of each copy
    by its path.

    The tokens with the job's protection are the artefact ``folder/MODEL``, those of recipes with another k, n or policy
    ``folder/MODEL-kK-nN-POLICY``. Tokens of rewritten text are not copied.

    Raises
    ------
    ArtifactError
        A place holds something else, or cannot be written.
    PolicyError
        Another model has the name of such a folder.
    """
    places: dict[Path, str] = {}
    for model in run.job.model:
        names = [name for name in _recipes_by_tokens(run, model) if not name.startswith(tuple(REWRITTEN))]
        warn_of_other_tokens(run, model, names)
        for name in names:
            place = folder / f"{model.name}{name.removeprefix('train')}"
            if place in places:
                raise PolicyError(
                    f"{place}: tokens of two models or recipes would stand there; rename one of the models"
                )
            places[place] = f"tokens/{model.name}/{name}"
    counts = {}
    for place, tokens in places.items():
        inputs = {"view": run.fingerprints.of(tokens)}
        with write_artifact(place, kind="tokens", config={}, inputs=inputs) as writer:
            writer.counts.update(copy_tokens(run.folder / tokens, writer.path))
        counts[place] = dict(writer.counts)
    return counts
