"""The shadow models of a job: trained like the attacked model, scored once; only their scores are kept.

    shadows/MODEL/RECIPE/NN     scores.parquet, ledger.json (and the checkpoint, where the job keeps it; and
                                holdout.parquet, scores of documents that were held back, where an attack needs them)

A shadow is trained on a random half of the members and held-out individuals together, by household where there are any
(:mod:`reticent.audit.membership.draws`), with the recipe, base and settings of the model under attack but a seed of
its own. Its documents are protected as theirs were: an index over the shadow's own individuals, its own blacklist, its
own tokens ``tokens/MODEL/VARIANT-shadow-NN``. The flags of the joint audit tokens would be at hand at once, but support
counted over all individuals protects fewer words than the model under attack had protected, and the shadows would know
more than it. A difference remains: a shadow sees half of both sides, the model all members, so that with 40 % held out
it has a sixth fewer documents, and a little more is protected.

Each shadow is an artefact, bound by its manifest to tokens, base, settings and draw: one of another seed, recipe or
corpus is not believed but made again, and one that was interrupted goes on from its last state.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from reticent.audit.membership.draws import draw_population, split_for_shadow, training_seed
from reticent.audit.membership.names import ON_HOLDOUT
from reticent.core.eta import Work
from reticent.core.resolve import resolve
from reticent.engine.index import build_index
from reticent.engine.schema import HELDOUT, MEMBERS
from reticent.job.artefact import Artefact, Measurement, Step, Training, is_last
from reticent.job.auditing import open_auditor, token_counts
from reticent.job.dependencies import privacy_of, training_dependencies
from reticent.job.noise import noise_settings, protection_index
from reticent.job.stages.protect import tokenizer_digest, variant_inputs
from reticent.job.training_tokens import Drawn, heldout_tokens, public_context, training_tokens
from reticent.job.variants import REWRITTEN
from reticent.job.views import write_rewritten, write_view_of
from reticent.trainer.distributed import World

if TYPE_CHECKING:
    from reticent.audit.config import ShadowConfig
    from reticent.audit.evaluate import Auditor, Scored
    from reticent.audit.membership.shadow import ShadowControl
    from reticent.engine.ngrams import NgramIndex
    from reticent.engine.pseudonymize import Style
    from reticent.engine.split import Individuals
    from reticent.job.config import ModelSection
    from reticent.job.run import Run
    from reticent.trainer.privacy import PrivacyConfig
    from reticent.trainer.recipes import Recipe

SCORES, HOLDOUT_SCORES = "scores.parquet", "holdout.parquet"
#: Settings that the attacks on a measurement depend on.
ATTACK_SETTINGS = {"num_shadows", "attacks", "rmia_slope", "population"}


@dataclass(frozen=True, slots=True)
class Shadow:
    """One shadow model of a recipe on a model section."""

    run: Run
    model: ModelSection
    recipe: str
    number: int

    @property
    def name(self) -> str:
        """Path of the shadow's artefact in the run folder, ``shadows/MODEL/RECIPE/NN``."""
        return f"shadows/{self.model.name}/{self.recipe}/{self.number:02d}"

    @property
    def tokens(self) -> str:
        """Path of the shadow's token store in the run folder, which recipes with equal protection and text share."""
        return f"tokens/{self.model.name}/{self.run.job.tokens(self.recipe)}-shadow-{self.number:02d}"

    @property
    def group(self) -> str:
        """Name of the group of shadow models, one for each recipe, that are trained on the same random half of the
        individuals. They share token stores, so one part of a divided run builds the whole group.
        """
        return f"shadows/{self.model.name}/{self.number:02d}"

    @property
    def style(self) -> Style | None:
        """Style in which direct identifiers in the shadow's text are rewritten; None for the original text."""
        return REWRITTEN.get(self.run.job.recipe(self.recipe).tokens)

    @property
    def training(self) -> Training:
        """Settings by which the shadow is trained: those of the attacked model, with another seed."""
        return Training(self.model, self.recipe, training_seed(self.run.job.seed, self.number))

    @property
    def individuals(self) -> Individuals:
        """A split whose members are the individuals that the shadow is trained on."""
        return split_for_shadow(self.run.individuals, seed=self.run.job.seed, shadow_number=self.number)

    def index(self, spill_folder: Path) -> NgramIndex:
        """Return the n-gram index of the individuals that the shadow is trained on, with noise where its recipe's
        support threshold has some."""

        config = self.run.job.index.replace(updatable=False, spill_folder=spill_folder)
        index = build_index(self.run.corpus, self.individuals, splits=(MEMBERS,), config=config)
        policy = self.run.job.protection(self.recipe)
        return protection_index(self.run, index, policy.k, self.individuals, words=policy.words)

    @property
    def title(self) -> str:
        """Number, recipe and model as text for messages."""
        return f"shadow {self.number + 1} of {self.recipe} of {self.model.name}"

    def tokens_artefact(self) -> Artefact:
        """Return the artefact of the shadow's token store, which depends on corpus, split, spans and the draw of
        individuals."""
        run, job = self.run, self.run.job
        policy = job.protection(self.recipe)
        config = {
            **policy.cache_key(),
            **job.index.model_dump(),
            "splits": [MEMBERS],
            "style": self.style,
            "tokenizer": tokenizer_digest(run.tokenizer_of(self.model)),
            "seed": job.seed,
            "shadow": self.number,
            **noise_settings(run, policy),
        }
        inputs = {**run.corpus_input(), **{name: run.fingerprints.of(name) for name in ("split", "spans")}}
        inputs |= variant_inputs(run, self.model, self.style)
        return Artefact(self.tokens, "tokens", config, inputs)

    def artefact(self) -> Artefact:
        """Return the artefact of the shadow model with the settings and inputs of its training and scoring; its token
        store must exist."""
        run, scoring = self.run, self.run.job.audit
        settings, inputs = training_dependencies(run, self.training, self.tokens)
        del settings["checkpoint_epochs"]  # the last is the one that is attacked
        settings |= {"shadow": self.number, "keep_models": shadow_config(run).keep_models}
        settings["scoring"] = {"folds": scoring.folds, "seed": scoring.seed}
        settings["scoring"] |= run.canaries_left_out
        if scoring.bf16 != "auto":
            settings["scoring"]["bf16"] = scoring.bf16
        if scoring.diagnoses is not None:
            settings["scoring"]["diagnoses"] = scoring.diagnoses.all_values()
            inputs |= resolve("reticent.ext.ladder.stage:ladder_inputs")(run)
        inputs |= {"audit": run.fingerprints.of_text(f"tokens/{self.model.name}/audit")}
        if scores_holdout(run):
            name = "user_inference_holdout"
            inputs[name] = run.fingerprints.of_text(f"tokens/{self.model.name}/{name}")
        return Artefact(self.name, "shadows", settings, inputs)


def shadows_of(run: Run, model: ModelSection | None = None, recipe: str | None = None) -> list[Shadow]:
    """Return the shadow models of the job, or of one model and recipe, in training order: the first of every recipe,
    then the second."""
    section = run.job.audit.shadow
    if section is None:
        return []
    return [
        Shadow(run, own, name, number)
        for own in run.job.model
        for number in range(section.num_shadows)
        for name in own.recipes
        if name in section.recipes and model in (None, own) and recipe in (None, name)
    ]


def shadows_of_heads(run: Run) -> list[Shadow]:
    """Return the shadow models for attacks on classification and tagging heads, for those heads that are trained on
    rewritten text: for each of these shadow models tokens must be written.
    """
    section = run.job.audit.heads
    return [
        Shadow(run, model, head.section, number)
        for head in run.job.heads
        if head.text != "keep"
        for model in run.job.model
        for number in range(section.num_shadows if section else 0)
    ]


def shadow_steps(run: Run) -> Iterator[Step]:
    """Yield for each shadow model the step that writes its tokens, and the one that trains and scores it."""
    auditor_of = cache(partial(open_auditor, run))
    for shadow in shadows_of(run):
        yield Step.of(shadow.tokens_artefact(), partial(write_shadow_tokens, shadow), group=shadow.group)
        yield Step.of(
            shadow.artefact(),
            partial(_build_shadow, shadow, auditor_of),
            resume=not run.restart,
            alone=True,
            group=shadow.group,
            work=partial(shadow_work, run, shadow),
        )


def _build_shadow(shadow: Shadow, auditor_of: Callable[[str], Auditor], folder: Path, counts: dict[str, int]) -> None:
    """Train a shadow model, write its document scores into ``folder``, and delete its checkpoint unless the job keeps
    it."""
    from reticent.audit.evaluate import ModelEntry
    from reticent.audit.membership.shadow import DocumentScores

    checkpoint = _train_shadow(shadow, folder, counts)
    entry = ModelEntry(
        name=shadow.recipe, recipe=shadow.recipe, objective=shadow.model.objective, epoch=0, path=checkpoint
    )
    auditor = auditor_of(shadow.model.name)
    scores = DocumentScores.of(auditor.score(entry))
    is_in = shadow.individuals.mask(MEMBERS)[auditor.store.individual]
    scores.to_parquet(folder / SCORES, is_in)
    counts["documents_in"] = int(is_in.sum())
    if scores_holdout(shadow.run):
        holdout, asked = auditor.score_holdout(entry), auditor.membership.holdout
        assert holdout is not None  # the settings ask for it
        assert asked is not None
        knows = shadow.individuals.mask(MEMBERS)[asked.store.individual]
        DocumentScores.of(holdout).to_parquet(folder / HOLDOUT_SCORES, knows)
    if shadow.run.job.audit.diagnoses is not None:
        ask = resolve("reticent.ext.ladder.stage:score_shadow")
        ask(shadow.run, checkpoint, shadow.model.objective, shadow.individuals, folder)
    if not shadow_config(shadow.run).keep_models:
        shutil.rmtree(checkpoint)


def write_shadow_tokens(shadow: Shadow, folder: Path, counts: dict[str, int]) -> None:
    """Write the tokens of a shadow model's documents into an empty folder, with the protection flags of its recipe and
    in its version of the text (original or rewritten); add their numbers to ``counts``."""
    run, splits = shadow.run, (MEMBERS,)
    policy, documents = run.job.protection(shadow.recipe), (shadow.individuals, splits)
    with TemporaryDirectory(prefix=".original-", dir=folder) as made:
        view = folder if shadow.style is None else Path(made)
        index = shadow.index(folder)
        written = write_view_of(run, shadow.model, view, *documents, index, policy)
        run.invalidate("index-joint", "numbered")  # their memory, while models are trained
        if shadow.style is not None:
            written = write_rewritten(run, shadow.model, folder, shadow.style, *documents, policy, index, view)
    counts.update(written)


def _train_shadow(shadow: Shadow, folder: Path, counts: dict[str, int]) -> Path:
    """Train a shadow model in ``folder``; return the path of its last checkpoint."""
    from reticent.trainer.loop import train
    from reticent.trainer.models import load_model

    run, model, recipe = shadow.run, shadow.model, shadow.run.job.recipe(shadow.recipe)
    seed = shadow.training.seed
    assert seed is not None
    config = run.job.training(model)
    config = config.replace(seed=seed, checkpoint_epochs=(config.num_epochs,), report_to=())
    heldout = None  # a shadow ends as its model does: by those whom it is not trained on
    if config.early_stopping_patience:
        heldout = heldout_tokens(run, model, ~shadow.individuals.mask(MEMBERS))
    else:
        config = config.replace(eval_strategy="no")
    drawn = Drawn(shadow.individuals, shadow.tokens, lambda: shadow.index(folder))
    with (
        training_tokens(run, model, recipe, folder, config.num_epochs, of=drawn) as (store, epoch_store),
        run.progress.task(f"shadow {shadow.number + 1} of {recipe.name}", None, "steps") as advance,
    ):
        result = train(
            load_model(run.base_of(model), model.objective),
            store,
            recipe,
            config,
            folder,
            tokenizer=run.base_of(model),
            progress=advance,
            epoch_store=epoch_store,
            privacy=unspent_privacy(run, model, recipe) if recipe.private else None,
            world=World(),
            context=public_context(run, model, recipe, of=drawn),
            has_spans_and_index=True,
            heldout=heldout,
        )
    counts.update(steps=result.num_steps, **result.ledger.to_dict())
    return result.checkpoints[config.num_epochs]


def unspent_privacy(run: Run, model: ModelSection, recipe: Recipe | None) -> PrivacyConfig:
    """Return the DP-SGD settings of the attacked model without its budget: shadow models are not released, so nothing
    is charged."""
    unspent = {"budget_file": None, "corpus": None, "budget_epsilon": None, "budget_delta": None}
    return privacy_of(run, model, recipe).replace(**unspent)


def shadow_config(run: Run) -> ShadowConfig:
    """Return the settings of the attacks with shadow models: ``[audit.shadow]``, which the job must have."""
    section = run.job.audit.shadow
    assert section is not None  # else there are no shadows
    return section


def scores_holdout(run: Run) -> bool:
    """Return whether one of the job's attacks with shadow models also scores the documents reserved for the
    user-inference attack.
    """
    return not ON_HOLDOUT.isdisjoint(shadow_config(run).attacks)


# ------------------------------------------------------------------ what is attacked


def is_attacked(run: Run, measurement: Measurement) -> bool:
    """Return whether shadow models attack this checkpoint: it is the last one of a training for whose recipe the job
    has shadow models.
    """
    section = run.job.audit.shadow
    return (
        section is not None
        and measurement.training is not None
        and measurement.recipe in section.recipes
        and is_last(run.job, measurement)
    )


def shadow_inputs(run: Run, measurement: Measurement) -> dict[str, str]:
    """Return the fingerprints of the shadow models that attack a measured model, by name; the shadows must exist."""
    return {
        shadow.name: run.fingerprints.of(shadow.name)
        for shadow in shadows_of(run, measurement.model, measurement.recipe)
    }


def attack_with_shadows(
    run: Run, measurement: Measurement, auditor: Auditor, scores: Scored, base: Scored
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, ShadowControl]]:
    """Run all attacks that use shadow models on one checkpoint. Return three dicts by attack: its scores of the
    documents, the scores of the same attack on the base model, and a control (AUC on the base model, number of shadow
    models).
    """
    from reticent.audit.membership.attacks import attack
    from reticent.audit.membership.shadow import (
        SHADOW_ATTACKS,
        DocumentScores,
        ShadowAttacks,
        shadow_scores,
    )

    section, store = shadow_config(run), auditor.store
    names = [name for name in section.attacks if name not in ON_HOLDOUT]
    population = draw_population(
        run.individuals.units, run.individuals.mask(HELDOUT), share=section.population, seed=run.job.seed
    )

    def shadows() -> Iterator[tuple[DocumentScores, Any]]:
        """Yield for each shadow model (its scores of the documents, mask of the documents that it was trained on)."""
        for shadow in shadows_of(run, measurement.model, measurement.recipe):
            yield DocumentScores.from_parquet(run.folder / shadow.name / SCORES)

    def holdout_shadows() -> Iterator[tuple[DocumentScores, Any]]:
        """Yield for each shadow model (its scores of the documents reserved for user inference, mask of those whose
        individual it was trained on)."""
        for shadow in shadows_of(run, measurement.model, measurement.recipe):
            yield DocumentScores.from_parquet(run.folder / shadow.name / HOLDOUT_SCORES)

    attacks = ShadowAttacks(shadows(), population[store.individual], slope=section.rmia_slope)
    found = shadow_scores(attacks, names, DocumentScores.of(scores[0]), DocumentScores.of(base[0]))
    sides = dict.fromkeys(found, (store.individual, auditor.members))
    asked, own, before = auditor.membership.holdout, scores[1], base[1]
    if scores_holdout(run) and asked and own and before:
        on_holdout = ShadowAttacks(holdout_shadows(), np.zeros(asked.store.num_documents, dtype=bool), slope=1.0)
        held_back = [name for name in section.attacks if name in ON_HOLDOUT]
        found |= shadow_scores(on_holdout, held_back, DocumentScores.of(own), DocumentScores.of(before))
        sides |= dict.fromkeys(held_back, (asked.store.individual, asked.members))
    about: dict[str, ShadowControl] = {}
    for name, (_, control) in found.items():
        without = attack(control, *sides[name], is_total=SHADOW_ATTACKS[name].is_total, **auditor.bootstrap)
        about[name] = {"control": without.auc, "num_shadows": attacks.num_shadows}
    if "rmia" in about:
        about["rmia"]["slope"] = attacks.slope
    own_scores, of_base = ({name: both[side] for name, both in found.items()} for side in (0, 1))
    return own_scores, of_base, about


def shadow_work(run: Run, shadow: Shadow) -> Work:
    """Return the estimated work of a shadow model in tokens; it is trained on half of the documents of members and
    held-out."""
    tokens = token_counts(run, shadow.model, "audit")["tokens"] / 2 * run.job.training(shadow.model).num_epochs
    return Work(
        name=shadow.name, title=f"training {shadow.title}", kind="train", model=shadow.model.name,
        recipe=shadow.recipe, work=float(tokens),
    )  # fmt: skip
