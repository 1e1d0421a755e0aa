"""One job -> all stages in order; a stage whose inputs and settings have not changed is not run again.

    dedup -> split -> detect -> index -> foundation -> protect -> train -> audit -> report

Every stage writes one artefact folder under the run folder, whole or not at all (:mod:`reticent.artifact`).
Those up to the protected tokens stand in :mod:`reticent.preparation`, training and what comes after it here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reticent.config import ModelSection
from reticent.errors import PolicyError
from reticent.preparation import Preparation
from reticent.trainer.distributed import join_world, launched, leave_world

__all__ = ["STAGES", "Run"]

STAGES = ("dedup", "split", "detect", "index", "foundation", "protect", "train", "audit", "report")


class Run(Preparation):
    """A job bound to its run folder: its stages in order."""

    def execute(self, until: str = "report", *, alone: bool = False) -> Path:
        """Run every stage up to and including ``until``; returns the run folder.

        With ``alone`` only deduplication goes before it: what looks at documents one by one needs no split.
        """
        if until not in STAGES:
            raise PolicyError(f"unknown stage {until!r}; one of {', '.join(STAGES)}")
        if not launched().is_main:  # the first process does all else, and these wait for its training
            if STAGES.index(until) >= STAGES.index("train"):
                self.train()
            return self.folder
        self.mend()
        if STAGES.index(until) > STAGES.index("index"):
            self.require_models()
            self._require_devices()
            self._require_bases()
        if STAGES.index(until) >= STAGES.index("audit"):  # a misspelt attack must not be found out after the training
            from reticent.audit.run import AuditConfig

            AuditConfig(attacks=tuple(self.job.audit.attacks))
        self.prepare_folder()
        for stage in ("dedup", until) if alone else STAGES[: STAGES.index(until) + 1]:
            getattr(self, stage)()
        if alone:
            self._tell_mended({})
        self.keep_job()
        return self.folder

    def require_models(self) -> None:
        """Raise `PolicyError` for a job that ends at the index: what comes after works on a model's tokens."""
        if not self.job.model:
            raise PolicyError("the job names no model; add a [[model]] section, or --model NAME=PATH and --recipe")

    def _require_devices(self) -> None:
        """Raise `PolicyError` for a device that is not there, before anything is spent on what comes before it."""
        devices = {self.job.train.device, *(self.job.training(model).device for model in self.job.model)}
        if devices - {"auto", "cpu"}:  # importing torch takes seconds
            from reticent.device import pick_device

            for device in sorted(devices):
                pick_device(device)

    def _require_bases(self) -> None:
        """Raise `ArtifactError` for a base model that is not there, before hours are spent on what comes before it."""
        for model in self.job.model:
            if model.base is not None and not (Path(model.base) / "tokenizer.json").is_file():
                self._tokenizer_json(model)

    # ----------------------------------------------------------------- trainer

    def train(self) -> None:
        """Protected tokens -> one model folder for each recipe and kept epoch; goes on where it was interrupted."""
        from reticent.artifact import wipe_unfinished

        together = join_world()
        together.wait()  # what is trained on must be there
        for model in self.job.model:
            for name in model.recipes:
                self._train_one(model, name)
        if together.is_main:
            wipe_unfinished(self.folder / "models")  # of a job before this one
        leave_world()

    def _train_one(self, model: ModelSection, recipe_name: str) -> None:
        from reticent.training_tokens import training_tokens

        recipe = self.job.recipe(recipe_name)
        settings = self.job.training(model)
        config = settings.settings(self.job.seed)
        tokens = self.fingerprint_of(f"tokens/{model.name}/{recipe.tokens}")
        inputs = {"tokens": tokens, **self._base_input(model)}

        def build(folder: Path, counts: dict[str, Any]) -> None:
            from reticent.trainer.loop import train
            from reticent.trainer.models import load_model

            base = load_model(self._base(model), model.objective)
            with (
                training_tokens(self, model, recipe, folder, config.num_epochs) as (store, epoch_store),
                self.progress.task(f"train {recipe.name}", None, "steps") as advance,
            ):
                result = train(
                    base,
                    store,
                    recipe,
                    config,
                    folder,
                    tokenizer=self._base(model),
                    progress=advance,
                    epoch_store=epoch_store,
                )
            counts.update(steps=result.num_steps, **result.ledger.to_dict())

        self.make(
            f"models/{model.name}/{recipe.name}",
            {**settings.what_it_computes(), "recipe": recipe.to_dict(), "seed": self.job.seed},
            inputs,
            build,
            kind="models",
            resume=not self.fresh,
        )

    # ------------------------------------------------------------------- audit

    def audit(self) -> None:
        """Models -> every number of the report, as one JSON artefact."""
        settings = self.job.audit
        inputs: dict[str, str] = {}
        for model in self.job.model:
            inputs |= {
                f"tokens:{model.name}:{v}": self.fingerprint_of(f"tokens/{model.name}/{v}") for v in ("train", "audit")
            }
            inputs |= {f"{key}:{model.name}": value for key, value in self._base_input(model).items()}
            inputs |= {
                f"model:{model.name}:{r}": self.fingerprint_of(f"models/{model.name}/{r}") for r in model.recipes
            }

        def build(folder: Path, counts: dict[str, Any]) -> None:
            from reticent.stages import gather_evidence

            evidence = gather_evidence(self)
            counts["models"] = len(evidence["models"])
            (folder / "audit.json").write_text(json.dumps(evidence, indent=1, allow_nan=False))

        self.make("audit", {**settings.model_dump(), "seed": self.job.seed}, inputs, build)

    def report(self) -> None:
        """Audit -> report.json and report.html."""
        from reticent import __version__
        from reticent.audit.report import page_digest, write_report

        def build(folder: Path, counts: dict[str, Any]) -> None:
            write_report(folder, self.evidence)

        config = {"small_cell": self.job.audit.small_cell, "reticent": __version__, "page": page_digest()}
        self.make("report", config, {"audit": self.fingerprint_of("audit")}, build)

    @property
    def evidence(self) -> dict[str, Any]:
        """The finished audit as a dictionary (report.json's structure)."""
        from reticent.artifact import require_kind

        require_kind(self.folder / "audit", "audit")
        return json.loads((self.folder / "audit" / "audit.json").read_text())
