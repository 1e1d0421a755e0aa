"""Settings and inputs that the training of a model or of a shadow model depends on."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Literal

import numpy as np

from reticent.core.artifact import read_manifest
from reticent.core.errors import ArtifactError, PolicyError
from reticent.engine.detect.choose import DETECTORS
from reticent.engine.dp_vocabulary import gaussian_sigma
from reticent.engine.names import SurrogateNames
from reticent.engine.public_words import read_public_words
from reticent.engine.store import open_tokens
from reticent.job.artefact import Training
from reticent.job.config import Job, ModelSection
from reticent.job.fingerprints import TO_DO
from reticent.job.noise import vocabulary_name, vocabulary_noise
from reticent.job.run import Run
from reticent.trainer.privacy import BUDGET_FILE, PrivacyConfig
from reticent.trainer.recipes import Recipe


def training_dependencies(
    run: Run, training: Training, tokens: str | None = None
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the settings and the input fingerprints that a training depends on, for its manifest. ``tokens`` is the
    token store that it reads (None: that of the members for this model and recipe).

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
    if settings.early_stopping_patience:
        read["heldout"] = run.fingerprints.of(f"tokens/{training.model.name}/audit")
    causal = recipe.objective == "clm"
    config = {**settings.cache_key(private=recipe.private, causal=causal), "recipe": recipe.to_dict(), "seed": seed}
    config |= repeated_settings(training.model)
    if recipe.private and settings.dp is not None and privacy_unit(run.job, settings.dp) == "household":
        # Earlier versions clipped individuals where text is rewritten in each epoch: such a training is made again.
        config["unit"] = "household in every epoch" if recipe.context == "surrogate" else "household"
        if read.get("text", TO_DO) != TO_DO:  # of the tokens alone, which do not say who lives together
            members = np.unique(open_tokens(run.folder / tokens).individual)
            read["units"] = hashlib.sha256(run.individuals.units[members].tobytes()).hexdigest()
    if recipe.private:
        config |= trained_base(training.model)
    if recipe.replaces_indirect:
        config["pool"] = read_public_words(run.job.surrogates.pool).digest()
    if recipe.context == "surrogate" and (names := surrogate_names(run.job).digest()) is not None:
        config["names"] = names
    return config, {**read, **run.base_input(training.model)}


def repeated_settings(model: ModelSection) -> dict[str, int]:
    """Return ``{"repeated": NUMBER}``, the additional setting in the manifest of a positive control's training; empty
    for any other model."""
    return {"repeated": model.repeated} if model.repeated else {}


def surrogate_names(job: Job) -> SurrogateNames:
    """Return the job's pool of surrogate names, which replace direct identifiers.

    Raises
    ------
    PolicyError
        See `SurrogateNames`.
    """
    return SurrogateNames(source=job.surrogates.names, language=job.surrogates.language)


def privacy_of(run: Run, model: ModelSection, recipe: Recipe | None = None) -> PrivacyConfig:
    """Return the DP-SGD settings of a model's private recipe with its privacy unit, budget file, the corpus that its
    cost is charged to, and the stages that epsilon does not cover.

    ``recipe`` says what is protected, and so what epsilon includes; None: nothing is.
    """

    settings = run.job.privacy(model, "" if recipe is None else recipe.name)
    assert settings is not None  # the job was checked
    vocabulary = includes = None
    if recipe is not None and recipe.words == "private":
        k = run.job.protection(recipe.name).k
        if (noise := vocabulary_noise(run, k)) is not None:
            vocabulary = (gaussian_sigma(noise.epsilon, noise.delta / 2), noise.delta / 2)
            includes = (vocabulary_name(run, recipe.words), k)
    return settings.replace(
        unit=privacy_unit(run.job, settings),
        budget_file=str(settings.budget_file or run.folder / BUDGET_FILE),
        corpus=run.whole_corpus.fingerprint(),
        unaccounted=unaccounted_stages(run.job, model, recipe),
        vocabulary=vocabulary,
        includes=includes,
    )


def privacy_unit(job: Job, settings: PrivacyConfig) -> Literal["individual", "household", "record"]:
    """Return the privacy unit of models and heads: that of the settings, but the household in place of the individual
    where households are kept together.

    Raises
    ------
    PolicyError
        It is to be a household, and the documents have none.
    """
    if settings.unit == "household" and not by_household(job):
        raise PolicyError('train.dp.unit = "household": needs corpus.household_id, and a split by household (split.by)')
    return "household" if settings.unit == "individual" and by_household(job) else settings.unit


def by_household(job: Job) -> bool:
    """Return whether households are kept together in the split, and so count and vote as one individual."""
    return job.corpus.household_id is not None and job.split.by != "individual"


def is_trained_here(folder: Path | str | None) -> bool:
    """Return whether a base model was trained by this package on individuals' documents, since a ledger stands beside
    its folder. Models from elsewhere, and those pre-trained here on a public text, are taken for public.
    """
    if folder is None or not ((made := Path(folder).resolve().parent) / "ledger.json").is_file():
        return False
    try:
        manifest = read_manifest(made)
    except ArtifactError:
        return True
    return manifest.kind != "foundation" or "text" not in manifest.inputs


def trained_base(model: ModelSection) -> dict[str, str]:
    """Return ``{"base": "trained here"}``, the additional setting in the manifest of a private training whose base
    model no epsilon accounts for; empty for any other model."""
    return {"base": "trained here"} if is_trained_here(model.base) else {}


def unaccounted_stages(job: Job, model: ModelSection, recipe: Recipe | None = None) -> tuple[str, ...]:
    """Return the names of the stages before a DP-SGD training that read every individual's documents and are not
    covered by its epsilon; such steps of the recipe itself are in `unaccounted_steps`."""
    settings = job.training(model).dp
    assert settings is not None  # the job was checked
    of_record = settings.unit == "record"
    looks_at_others = [name for name in job.detect.detectors if DETECTORS[name].depends(job.detect.of(name))]
    # A tagger learns the spans themselves.
    has_flags = recipe is not None and (recipe.words != "counted" or recipe.head == "tags")
    found = {
        "deduplication": job.dedup.mode != "off" and (job.dedup.scope != "individual" or of_record),
        "the draw of the user-inference holdout": bool(job.split.user_inference_holdout) and of_record,
        "the planting of canaries": job.canaries is not None,
        "the base model": model.foundation.text == "reference" if model.foundation else is_trained_here(model.base),
        # Of what is protected by counts, the recipe itself says that nothing is accounted.
        "the other documents of an individual": has_flags and of_record,
        "the propagation of identifiers": has_flags and job.detect.propagate,
        "a detector that learns from all documents": has_flags and bool(looks_at_others),
        "lists of names": has_flags and "gazetteer" in job.detect.detectors,
    }
    return tuple(name for name, is_there in found.items() if is_there)
