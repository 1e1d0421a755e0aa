"""The evidence of a run: every attack on every checkpoint of every training, and on the base models.

What was measured of one checkpoint is a *piece*: an artefact of its own under ``measures/``, made from the checkpoint,
the tokens, the base and the settings. So a run that stops goes on at the checkpoint it was at, and another recipe or
seed costs its own scoring only. The scores of a base are kept beside its piece, secret like the tokens: the attacks on
the other models compare with them. A piece whose checkpoint is gone is wiped.
"""

from __future__ import annotations

import datetime
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reticent import __version__
from reticent.core.json_toml import read_json
from reticent.engine.schema import HELDOUT, MEMBERS
from reticent.job.cost_model import extraction_work, own_tokens, scoring_work
from reticent.job.engine_stages import corpus_section
from reticent.job.run_folder import Training
from reticent.job.shadow_stage import attack_with_shadows, is_attacked, shadow_config, shadow_inputs, shadows_of

if TYPE_CHECKING:
    from reticent.audit.evaluate import AuditConfig, Auditor
    from reticent.job.config import ModelSection
    from reticent.job.run import Run

__all__ = ["Piece", "audit_config", "gather_evidence", "measure", "pieces_of", "plan_steps", "wipe_stale_pieces"]

#: What a piece does not depend on: where and in which portions a model is run.
NOT_IN_A_PIECE = ("device", "batch_size")
#: Parts of the examination of a model that say how far they are -> what they are called, and in what they count.
TASKS = {
    "documents": ("score {}", "windows"),
    "all occurrences": ("score {}, all occurrences masked", "windows"),
    "inversion": ("invert {}", "identifiers"),
}


@dataclass(frozen=True, slots=True)
class Piece:
    """One model to measure: a checkpoint of a training, or (None) the base."""

    model: ModelSection
    training: Training | None = None
    epoch: int = 0

    @property
    def recipe(self) -> str:
        return "base" if self.training is None else self.training.recipe

    @property
    def name(self) -> str:
        """Name of its artefact."""
        seed = "" if self.training is None or self.training.seed is None else f"seed-{self.training.seed}-"
        return f"measures/{self.model.name}/{self.recipe}/{seed}epoch-{self.epoch:04d}"


def audit_config(run: Run) -> AuditConfig:
    """Return the settings of the audit of a job."""
    from reticent.audit.evaluate import AuditConfig
    from reticent.audit.inversion.inversion import InversionConfig
    from reticent.audit.leakage.generated import GenerationConfig

    settings = run.job.audit
    inversion = None
    if settings.inversion is not None:
        asked = settings.inversion.model_dump()
        inversion = InversionConfig(**{**asked, "kinds": tuple(asked["kinds"])})
    return AuditConfig(
        attacks=tuple(settings.attacks),
        num_bootstrap=settings.num_bootstrap,
        batch_size=settings.batch_size,
        window_length=run.job.train.window_length,
        graph_shares=tuple(settings.graph_shares),
        seed=run.job.seed,
        device=run.job.train.device,
        bf16=run.job.train.bf16,
        all_occurrences=settings.all_occurrences,
        generation=None if settings.generation is None else GenerationConfig(**settings.generation.model_dump()),
        inversion=inversion,
    )


def pieces_of(run: Run, model: ModelSection) -> list[Piece]:
    """Return what is measured of a model section: its base, then every checkpoint to come by recipe, seed, epoch."""
    epochs = run.job.training(model).epochs_kept()
    kept = epochs if run.job.audit.every_checkpoint else epochs[-1:]
    own = sorted((t for t in run.trainings() if t.model is model), key=lambda t: model.recipes.index(t.recipe))
    return [Piece(model), *(Piece(model, training, epoch) for training in own for epoch in kept)]


def piece_config(run: Run, piece: Piece) -> dict[str, Any]:
    """Return the settings a piece depends on."""
    config = asdict(audit_config(run))
    for name in NOT_IN_A_PIECE:
        del config[name]
    if config["bf16"] == "auto":  # as it was before there was a choice
        del config["bf16"]
    if is_attacked(run, piece):
        config["shadow"] = shadow_config(run)
    return {**config, "objective": piece.model.objective, "recipe": piece.recipe, "epoch": piece.epoch}


def piece_inputs(run: Run, piece: Piece) -> dict[str, str]:
    """Return the fingerprints of what a piece is made from; its training must be there."""
    variants = ("train", "audit", *own_tokens(run))
    inputs = {v: run.fingerprint_of(f"tokens/{piece.model.name}/{v}") for v in variants}
    inputs |= run._base_input(piece.model)
    if piece.training is not None:
        inputs["checkpoint"] = run.checkpoint_fingerprint(piece.training, piece.epoch)
    if is_attacked(run, piece):
        inputs |= shadow_inputs(run, piece)
    return inputs


def measure(run: Run, model: ModelSection, *, only_base: bool = False) -> None:
    """Make the pieces of a model section that are not there yet; its stores are opened only for those."""
    from reticent.audit.scoring.base_model_scores import BaseScores

    auditor = cache(lambda: _open_auditor(run, model))
    base = cache(lambda: BaseScores.load(run.folder / Piece(model).name, Path(run._base(model)), audit_config(run)))
    for piece in pieces_of(run, model)[: 1 if only_base else None]:

        def build(folder: Path, counts: dict[str, Any], piece: Piece = piece) -> None:
            entry, work = _entry_of(run, piece), scoring_work(run, piece)

            def task(part: str) -> AbstractContextManager[Callable[..., None]]:
                title, unit = TASKS[part]
                return run.progress.task(title.format(piece.recipe), None, unit, work.portion(part))

            shadows = partial(attack_with_shadows, run, piece, auditor()) if is_attacked(run, piece) else None
            measured, said = auditor().examine(entry, base if piece.training else None, shadows, task)
            if said is not None:
                said.save(folder)
            (folder / "measures.json").write_text(json.dumps(measured, indent=1, allow_nan=False))
            counts["epoch"] = piece.epoch

        run.make(piece.name, piece_config(run, piece), piece_inputs(run, piece), build, kind="measures")


def _open_auditor(run: Run, model: ModelSection) -> Auditor:
    from reticent.audit.evaluate import Auditor
    from reticent.engine.store import open_tokens
    from reticent.job.word_categories import read_categories

    audit_store = open_tokens(run.folder / f"tokens/{model.name}/audit")
    members = run.individuals.mask(MEMBERS)[audit_store.individual]
    own: dict[str, Any] = {name: open_tokens(run.folder / f"tokens/{model.name}/{name}") for name in own_tokens(run)}
    return Auditor(
        open_tokens(run.folder / f"tokens/{model.name}/train"),
        audit_store,
        members,
        audit_config(run),
        categories=read_categories(run, (MEMBERS, HELDOUT)),
        **own,
    )


def _entry_of(run: Run, piece: Piece) -> Any:
    from reticent.audit.evaluate import ModelEntry

    path = (
        Path(run._base(piece.model))
        if piece.training is None
        else run.checkpoints(piece.model, piece.recipe, piece.training.seed)[piece.epoch]
    )
    return ModelEntry(
        name=piece.recipe, recipe=piece.recipe, objective=piece.model.objective, epoch=piece.epoch, path=path
    )


def wipe_stale_pieces(run: Run) -> None:
    """Delete the pieces of checkpoints that are gone: of fewer epochs, or of a layout without seeds."""
    from reticent.core.artifact import wipe_artifact

    made = (path for kind in ("measures", "extraction") for path in (run.folder / kind).glob("*/*/*epoch-[0-9]*"))
    for path in sorted(made):
        seed, _, epoch = path.name.rpartition("epoch-")
        trained = run.folder / "models" / path.parent.parent.name / path.parent.name / seed.removesuffix("-")
        if path.parent.name != "base" and not (trained / f"epoch-{epoch}").is_dir():
            wipe_artifact(path)


def gather_evidence(run: Run) -> dict[str, Any]:
    """Return report.json's structure before publication, from the pieces and the corpus section."""
    from reticent.audit.membership.validity import judged
    from reticent.job.extraction_stage import extraction_section, judge_gates

    probe: dict[str, Any] = {}
    if run.job.probe is not None:
        from reticent.job.probe_stage import run_probes

        probe["probe"] = run_probes(run)
    evidence = {
        **probe,
        **extraction_section(run),
        "format": "reticent.audit/1",
        "created": datetime.datetime.fromtimestamp(_now(), datetime.UTC).isoformat(timespec="seconds"),
        "versions": {
            "reticent": __version__,
            **{name: version(name) for name in ("torch", "transformers", "tokenizers", "numpy")},
        },
        "settings": run.job.model_dump(
            mode="json",
            include={
                *("seed", "dedup", "split", "detect", "index", "protect", "model", "recipes", "train", "audit"),
                *(name for name in ("canaries", "extraction", "gate") if getattr(run.job, name)),
            },
        ),
        "corpus": corpus_section(run),
        "models": judged([_measured(run, piece) for model in run.job.model for piece in pieces_of(run, model)]),
    }
    return {**evidence, **judge_gates(run, evidence)}


def _measured(run: Run, piece: Piece) -> dict[str, Any]:
    """What a piece holds, with whose model it is and what its training counted."""
    from reticent.core.artifact import read_manifest

    measured = read_json(run.folder / piece.name / "measures.json")
    seed: dict[str, Any] = {}
    if piece.training is not None:
        counts = read_manifest(run.folder / piece.training.name).counts
        measured["ledger"] = {key: counts[key] for key in ("eligible", "protected", "targets", "violations")}
        if "privacy" in counts:
            measured["guarantee"] = counts["privacy"]
        seed = {} if piece.training.seed is None else {"seed": piece.training.seed}
    return {"model": piece.model.name, **seed, **measured}


def plan_steps(run: Run, *, scoring: bool, classifying: bool) -> Iterator[tuple[Any, bool]]:
    """Yield the steps of the experiment in the order they run, each with whether it looks done already."""
    from reticent.core.artifact import read_manifest
    from reticent.job.extraction_stage import EXTRACTION, extraction_name, extraction_pieces, settings_and_inputs
    from reticent.job.plan import Step

    def tokens(model: ModelSection, variant: str) -> float:
        return float(read_manifest(run.folder / f"tokens/{model.name}/{variant}").counts["tokens"])

    def score_step(piece: Piece, *, extracts: bool = False) -> Step:
        seed = "" if piece.training is None or piece.training.seed is None else f", seed {piece.training.seed}"
        epoch = f", epoch {piece.epoch}" if piece.epoch else ""
        return Step(
            name=extraction_name(piece) if extracts else piece.name,
            title=f"{'extraction from' if extracts else 'scoring'} {piece.recipe} of {piece.model.name}{epoch}{seed}",
            kind="score",
            model=piece.model.name,
            recipe=EXTRACTION if extracts else "",
            work=extraction_work(run, piece.model) if extracts else scoring_work(run, piece).total,
        )

    def is_done(piece: Piece) -> bool:
        if piece.training is not None and not done[piece.training.name]:
            return False
        if is_attacked(run, piece) and not all(done[s.name] for s in shadows_of(run, piece.model, piece.recipe)):
            return False
        return run.looks_current(piece.name, piece_config(run, piece), piece_inputs(run, piece), kind="measures")

    done: dict[str, bool] = {}
    for model in run.job.model if scoring else ():
        yield score_step(Piece(model)), is_done(Piece(model))
    for training in run.trainings():
        model = training.model
        seed = "" if training.seed is None else f", seed {training.seed}"
        done[training.name] = run.looks_current(training.name, *run.settings_and_inputs(training), kind="models")
        step = Step(
            name=training.name,
            title=f"training {training.recipe} of {model.name}{seed}",
            kind="train",
            model=model.name,
            recipe=training.recipe,
            work=tokens(model, "train") * run.job.training(model).num_epochs,
        )
        yield step, done[training.name]
    if classifying and run.job.classify is not None:
        from reticent.job.classification import classification_steps

        yield from classification_steps(run, done)
    for shadow in shadows_of(run) if scoring else ():
        model = shadow.model
        done[shadow.name] = shadow.is_done()
        step = Step(
            name=shadow.name,
            title=f"training shadow {shadow.number + 1} of {shadow.recipe} of {model.name}",
            kind="train",
            model=model.name,
            recipe=shadow.recipe,
            work=tokens(model, "audit") / 2 * run.job.training(model).num_epochs,
        )
        yield step, done[shadow.name]
    for model in run.job.model if scoring else ():
        for piece in pieces_of(run, model)[1:]:
            yield score_step(piece), is_done(piece)
    for piece in extraction_pieces(run) if scoring else ():
        known = piece.training is None or done[piece.training.name]
        step = score_step(piece, extracts=True)
        yield step, known and run.looks_current(step.name, *settings_and_inputs(run, piece), kind=EXTRACTION)


def _now() -> float:
    """Seconds since 1970, or SOURCE_DATE_EPOCH, by which who needs the same bytes twice holds the clock."""
    return float(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
