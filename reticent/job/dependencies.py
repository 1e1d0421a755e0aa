"""Dependencies of a training, for the models of members and for shadow models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reticent.engine.names import SurrogateNames
from reticent.engine.public_words import read_public_words
from reticent.trainer.privacy import BUDGET_FILE

if TYPE_CHECKING:
    from reticent.job.artefact import Training
    from reticent.job.config import Job, ModelSection
    from reticent.job.run import Run
    from reticent.trainer.privacy import PrivacyConfig
    from reticent.trainer.recipes import Recipe

__all__ = ["privacy_of", "repeated_settings", "surrogate_names", "training_dependencies", "unaccounted_stages"]


def training_dependencies(
    run: Run, training: Training, tokens: str | None = None
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the settings and inputs of a training; ``tokens`` names others than the members'.

    The seed is that of the training alone: it decides the order of the windows, the masks and the new weights of the
    model. Split, index and protection follow the job's seed, so trainings with several seeds have the same members. A
    recipe that does not look at the flags does not depend on them.
    """
    recipe, settings = run.job.recipe(training.recipe), run.job.training(training.model)
    if recipe.private:
        settings = settings.replace(dp=run.job.privacy(training.model, training.recipe))
    seed = run.job.seed if training.seed is None else training.seed
    tokens = tokens or f"tokens/{training.model.name}/{run.job.tokens(training.recipe)}"
    read = {"tokens": run.fingerprints.of(tokens)} if recipe.uses_flags else {"text": run.fingerprints.of_text(tokens)}
    causal = recipe.objective == "clm"
    config = {**settings.cache_key(private=recipe.private, causal=causal), "recipe": recipe.to_dict(), "seed": seed}
    config |= repeated_settings(training.model)
    if recipe.replaces_indirect:
        config["pool"] = read_public_words(run.job.surrogates.pool).digest()
    if recipe.context == "surrogate" and (names := surrogate_names(run.job).digest()) is not None:
        config["names"] = names
    return config, {**read, **run.base_input(training.model)}


def repeated_settings(model: ModelSection) -> dict[str, int]:
    """Return what a positive control depends on beside its training, for a manifest: nothing for another model."""
    return {"repeated": model.repeated} if model.repeated else {}


def surrogate_names(job: Job) -> SurrogateNames:
    """Return the names that stand for direct identifiers.

    Raises
    ------
    PolicyError
        See `SurrogateNames`.
    """
    return SurrogateNames(source=job.surrogates.names, language=job.surrogates.language)


def privacy_of(run: Run, model: ModelSection, recipe: Recipe | None = None) -> PrivacyConfig:
    """Return DP-SGD of a model's private recipe; its cost is noted for the documents as they were given."""

    settings = run.job.privacy(model, "" if recipe is None else recipe.name)
    assert settings is not None  # the job was checked
    file = str(settings.budget_file or run.folder / BUDGET_FILE)
    corpus = run.whole_corpus.fingerprint()
    return settings.replace(budget_file=file, corpus=corpus, unaccounted=unaccounted_stages(run.job, settings))


def unaccounted_stages(job: Job, settings: PrivacyConfig) -> tuple[str, ...]:
    """Return the stages before a private training that read every individual's documents and are not accounted."""
    dedup = job.dedup
    own_copies = dedup.scope == "individual" and settings.unit == "individual"
    unaccounted: tuple[str, ...] = () if dedup.mode == "off" or own_copies else ("deduplication",)
    if job.split.user_inference_holdout and settings.unit != "individual":
        # It depends on how many documents an individual has.
        unaccounted += ("the draw of the user-inference holdout",)
    if job.canaries is not None:
        # Their words, and who carries them, depend on all members.
        unaccounted += ("the planting of canaries",)
    return unaccounted
