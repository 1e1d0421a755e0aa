"""One job -> all stages in order; a stage whose inputs and settings have not changed is not run again.

    dedup -> split -> detect -> index -> foundation -> protect -> train -> classify -> audit -> report

Every stage writes one artefact folder under the run folder, whole or not at all (:mod:`reticent.core.artifact`).
Those up to the protected tokens stand in :mod:`reticent.job.data_stages`, training and what comes after it here.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reticent.core.errors import ArtifactError, PolicyError
from reticent.core.json_toml import read_json
from reticent.job.data_stages import Preparation
from reticent.job.run_folder import Training
from reticent.trainer.distributed import join_world, launched, leave_world

if TYPE_CHECKING:
    from reticent.job.config import ModelSection
    from reticent.trainer.privacy import PrivacyConfig

__all__ = ["STAGES", "Run"]

STAGES = ("dedup", "split", "detect", "index", "foundation", "protect", "train", "classify", "audit", "report")


class Run(Preparation):
    """A job bound to its run folder: its stages in order."""

    def execute(self, until: str = "report", *, alone: bool = False) -> Path:
        """Run every stage up to and including ``until``; returns the run folder.

        With ``alone`` only deduplication goes before it: what looks at documents one by one needs no split, unless
        canaries are planted in some of them.
        """
        if until not in STAGES:
            raise PolicyError(f"unknown stage {until!r}; one of {', '.join(STAGES)}")
        if not launched().is_main:  # the first process does all else, and these wait for its training
            if STAGES.index(until) >= STAGES.index("train"):
                self.train()
            return self.folder
        self.recover()
        if self.job.memory_limit is not None and STAGES.index(until) >= STAGES.index("index"):
            from reticent.engine.index import check_memory_limit

            check_memory_limit(self.job.memory_limit, self.job.num_threads)
        if STAGES.index(until) > STAGES.index("index"):
            self.require_models()
            self._require_extras()
            self._require_devices()
            self._require_bases()
        if self.job.classify is not None and STAGES.index(until) >= STAGES.index("classify"):
            from reticent.job.classification import check_starts, read_labels

            check_starts(self)
            read_labels(self.whole_corpus, self.job)
        if STAGES.index(until) >= STAGES.index("audit"):
            self._require_audit()
        self.prepare_folder()
        alone = alone and self.job.canaries is None
        with ExitStack() as stack:
            for stage in ("dedup", until) if alone else STAGES[: STAGES.index(until) + 1]:
                if stage == "train":
                    self._begin_experiment(stack, until)
                getattr(self, stage)()
        if alone:
            self._tell_recovered({})
        self.keep_job()
        return self.folder

    def require_models(self) -> None:
        """Raise `PolicyError` for a job that ends at the index: what comes after works on a model's tokens."""
        if not self.job.model:
            raise PolicyError("the job names no model; add a [[model]] section, or --model NAME=PATH and --recipe")

    def _require_extras(self) -> None:
        """Raise `PolicyError` for a library that is not installed, before the trainings that come before its own."""
        from importlib.util import find_spec

        for model in self.job.model:
            settings = self.job.training(model)
            private = [recipe for recipe in model.recipes if self.job.recipe(recipe).private]
            for setting, wanted, module, extra in (
                (f"recipe {', '.join(private)}", private, "opacus", "dp"),
                ("train.lora", settings.lora, "peft", "dp"),
                ("train.report_to", settings.report_to, "tensorboard", "track"),
            ):
                if wanted and find_spec(module) is None:
                    raise PolicyError(
                        f"model {model.name}: {setting} needs {module}, which is not installed; "
                        f"pip install reticent[{extra}]"
                    )

    def _require_devices(self) -> None:
        """Raise `PolicyError` for a device that is not there, before anything is spent on what comes before it."""
        devices = {self.job.train.device, *(self.job.training(model).device for model in self.job.model)}
        from reticent.core.device import check_device, pick_device

        for device in sorted(devices):
            check_device(device)
        if devices - {"auto", "cpu"}:  # importing torch takes seconds
            for device in sorted(devices):
                pick_device(device)

    def _require_audit(self) -> None:
        """Raise `PolicyError` for what the audit would find out after the training: a misspelt attack, say."""
        from reticent.audit.membership.attacks import require_attacks
        from reticent.job.audit_stage import audit_config
        from reticent.job.extraction_stage import check_extraction
        from reticent.job.probe_stage import check_probes

        require_attacks(self.job.audit.attacks)
        if self.job.probe is not None:
            check_probes(self.job)
        audit_config(self)  # the rest of it loads torch
        check_extraction(self)

    def _require_bases(self) -> None:
        """Raise `ArtifactError` for a base model that is not there, before hours are spent on what comes before it."""
        for model in self.job.model:
            if model.base is not None:
                from reticent.trainer.base_files import check_base

                check_base(model.base, tokenizer=self._tokenizer_json(model))

    # ----------------------------------------------------------------- trainer

    def _begin_experiment(self, stack: ExitStack, until: str) -> None:
        """Show how far the whole is from here on. Base models are measured first: what does not fit into one is found
        out before hours of training, and how fast it is scored is known for the expected end. So is what cannot be
        classified.
        """
        from reticent.job.audit_stage import measure, plan_steps
        from reticent.job.classification import labelled_documents
        from reticent.job.plan import Plan

        scoring, classifying = (STAGES.index(until) >= STAGES.index(stage) for stage in ("audit", "classify"))
        steps = list(plan_steps(self, scoring=scoring, classifying=classifying))
        done = [step.name for step, is_done in steps if is_done]
        if any(step.kind == "classify" and not is_done for step, is_done in steps):
            for model in self.job.model:
                labelled_documents(self, model)
        plan = Plan((step for step, _ in steps), done=done, earlier=self.timings.read())
        stack.enter_context(self.progress.experiment(plan))
        for model in self.job.model if scoring else ():
            measure(self, model, only_base=True)

    def train(self) -> None:
        """Protected tokens -> one model folder for each recipe, seed, kept epoch; goes on where it was interrupted."""
        from reticent.core.artifact import delete_unfinished
        from reticent.job.extraction_stage import fix_gates

        if launched().is_main:
            fix_gates(self)
        together = join_world()
        together.barrier()  # what is trained on must be there
        for training in self.trainings():
            self._train_one(training)
        if together.is_main:
            delete_unfinished(self.folder / "models")  # of a job before this one
        leave_world()

    def settings_and_inputs(
        self, training: Training, tokens: str | None = None
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Return what a training depends on; ``tokens`` names others than the members'.

        The seed is of the training alone: the order of the windows, the masks, what of the model is new. Split, index
        and protection stay those of the job's seed, so that what differs between seeds is the training, on the same
        members. A recipe that does not look at the flags does not depend on them.
        """
        recipe, settings = self.job.recipe(training.recipe), self.job.training(training.model)
        seed = self.job.seed if training.seed is None else training.seed
        tokens = tokens or self._tokens_of(training)
        read = (
            {"tokens": self.fingerprint_of(tokens)} if recipe.uses_flags else {"text": self.text_fingerprint_of(tokens)}
        )
        return (
            {**settings.cache_key(private=recipe.private), "recipe": recipe.to_dict(), "seed": seed},
            {**read, **self._base_input(training.model)},
        )

    def _tokens_of(self, training: Training) -> str:
        return f"tokens/{training.model.name}/{self.job.recipe(training.recipe).tokens}"

    def _make_room(self, training: Training) -> None:
        """What was trained (and classified) without ``seeds`` is the training with the job's seed, and goes into its
        place. The other way round nothing is moved: several trainings would have to go.
        """
        from reticent.core.artifact import nest_artifact

        place = self.folder / "models" / training.model.name / training.recipe
        if not launched().is_main:
            return
        if training.seed is not None:
            for kind in ("models", "classification"):
                nest_artifact(self.folder / kind / training.model.name / training.recipe, f"seed-{self.job.seed}")
        elif any(place.glob("seed-*")):
            raise ArtifactError(
                f"{place}: holds trainings of several seeds; keep train.seeds in the job, or give another out"
            )

    def _train_one(self, training: Training) -> None:
        from reticent.job.training_tokens import training_tokens

        model, recipe = training.model, self.job.recipe(training.recipe)
        self._make_room(training)
        settings = self.job.training(model)
        artifact_config, inputs = self.settings_and_inputs(training)
        config = settings.settings(artifact_config["seed"])

        def build(folder: Path, counts: dict[str, Any]) -> None:
            from reticent.core.artifact import STATE
            from reticent.trainer.loop import train
            from reticent.trainer.models import load_model

            if (folder / STATE).exists():
                self.progress.say(f"{training.name}: goes on from the state that was saved when it was interrupted")
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
                    privacy=self._privacy(model) if recipe.private else None,
                )
            counts.update(steps=result.num_steps, **result.ledger.to_dict())
            if result.guarantee is not None:
                counts["privacy"] = str(result.guarantee)

        self.make(training.name, artifact_config, inputs, build, kind="models", resume=not self.fresh)

    def _privacy(self, model: ModelSection) -> PrivacyConfig:
        """DP-SGD of a model's private recipes; what it costs is noted for the documents as they were given."""
        from reticent.trainer.budget import BUDGET_FILE
        from reticent.trainer.privacy import PrivacyConfig

        settings, dedup = self.job.training(model).dp, self.job.dedup
        assert settings is not None  # the job was checked
        own_copies = dedup.scope == "individual" and settings.unit == "individual"
        unaccounted: tuple[str, ...] = () if dedup.mode == "off" or own_copies else ("deduplication",)
        if self.job.split.fresh and settings.unit != "individual":
            unaccounted += ("the draw of fresh documents",)  # it goes by how many documents an individual has
        values = settings.model_dump()
        values["budget_file"] = str(settings.budget_file or self.folder / BUDGET_FILE)
        return PrivacyConfig(
            **values,
            corpus=self.whole_corpus.fingerprint(),
            unaccounted=unaccounted,
        )

    def classify(self) -> None:
        """Checkpoints and labels of documents -> F1 on the held-out individuals, where the job asks for it."""
        if self.job.classify is not None:
            from reticent.job.classification import classify_models

            classify_models(self)

    # ------------------------------------------------------------------- audit

    def audit(self) -> None:
        """Models -> every number of the report, as one JSON artefact."""
        from reticent.job.audit_stage import delete_stale_measurements, gather_evidence, measure, measurements_of
        from reticent.job.extraction_stage import gate_config, measure_extraction
        from reticent.job.shadow_stage import delete_stale_shadows, train_shadows

        settings = self.job.audit
        train_shadows(self)
        inputs = {training.name: self.fingerprint_of(training.name) for training in self.trainings()}
        for model in self.job.model:
            measure(self, model)
            inputs |= {f"tokens/{model.name}/train": self.fingerprint_of(f"tokens/{model.name}/train")}
            inputs |= {
                measurement.name: self.fingerprint_of(measurement.name) for measurement in measurements_of(self, model)
            }
        inputs |= measure_extraction(self)

        def build(folder: Path, counts: dict[str, Any]) -> None:
            delete_stale_measurements(self)
            delete_stale_shadows(self)
            evidence = gather_evidence(self)
            counts["models"] = len(evidence["models"])
            (folder / "audit.json").write_text(json.dumps(evidence, indent=1, allow_nan=False))

        config: dict[str, Any] = {**settings.model_dump(), "seed": self.job.seed}
        if self.job.gate:
            config |= gate_config(self)
        if self.job.probe is not None:
            from reticent.job.probe_stage import probe_inputs

            config["probe"] = self.job.probe.model_dump(exclude={"subjects", "templates"})
            inputs |= probe_inputs(self)
        self.make("audit", config, inputs, build)

    def report(self) -> None:
        """Audit -> report.json and report.html."""
        from reticent import __version__
        from reticent.audit.report.page import page_digest, write_report

        def build(folder: Path, counts: dict[str, Any]) -> None:
            write_report(folder, self.evidence)

        config = {"small_cell": self.job.audit.small_cell, "reticent": __version__, "page": page_digest()}
        self.make("report", config, {"audit": self.fingerprint_of("audit")}, build)

    @property
    def evidence(self) -> dict[str, Any]:
        """The finished audit as a dictionary (report.json's structure)."""
        from reticent.core.artifact import require_kind

        require_kind(self.folder / "audit", "audit")
        evidence: dict[str, Any] = read_json(self.folder / "audit" / "audit.json")
        return evidence
