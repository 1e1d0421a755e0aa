"""One job -> all stages in order; a stage whose inputs and settings have not changed is not run again.

    dedup -> split -> detect -> index -> foundation -> protect -> train -> audit -> report

Every stage writes one artefact folder under the run folder, whole or not at all (:mod:`reticent.artifact`).
Members alone shape the protection that training sees. For the audit a second, *joint* index over members and held-out
individuals flags both sides by the same rule, so that their leak rates can be compared.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reticent.config import ModelSection
from reticent.engine.schema import HELDOUT, MEMBERS, REFERENCE
from reticent.errors import PolicyError
from reticent.run_folder import RunFolder

if TYPE_CHECKING:
    pass

__all__ = ["STAGES", "Run"]

STAGES = ("dedup", "split", "detect", "index", "foundation", "protect", "train", "audit", "report")


class Run(RunFolder):
    """A job bound to its run folder: its stages in order."""

    def execute(self, until: str = "report", *, alone: bool = False) -> Path:
        """Run every stage up to and including ``until``; returns the run folder.

        With ``alone`` only deduplication goes before it: what looks at documents one by one needs no split.
        """
        if until not in STAGES:
            raise PolicyError(f"unknown stage {until!r}; one of {', '.join(STAGES)}")
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

    # ------------------------------------------------------------------ engine

    def dedup(self) -> None:
        """Documents -> copies that no later stage sees, where the job asks for it: it takes 8 bytes a word."""
        from reticent.engine.dedup import find_copies, write_left_out

        settings, config = self.job.dedup, self.dedup_config
        if settings.mode == "off":
            return

        def build(folder: Path, counts: dict[str, Any]) -> None:
            with self.progress.task("dedup", self.whole_corpus.num_documents, "documents") as advance:
                found = find_copies(self.whole_corpus, config, progress=advance)
            write_left_out(found.left_out, folder)
            counts.update(found.counts)

        kept = {**settings.model_dump(), "k": config.k, "surface": config.surface}
        self.make("dedup", kept, {"corpus": self.whole_corpus.fingerprint()}, build)
        self.reopen("documents", "corpus")

    def split(self) -> None:
        """Individuals -> members, held-out, reference."""
        from reticent.engine.split import SplitConfig, split_individuals, write_individuals

        settings = self.job.split
        config = SplitConfig(heldout=settings.heldout, reference=settings.reference, by=settings.by, seed=self.job.seed)

        def build(folder: Path, counts: dict[str, Any]) -> None:
            self.documents.check()
            individuals = split_individuals(self.documents, config)
            write_individuals(individuals, folder)
            for name in (MEMBERS, HELDOUT, REFERENCE):
                counts[name] = int(individuals.mask(name).sum())
            counts["documents"] = self.documents.num_documents
            self._tell_mended(counts)
            if self.documents.format in ("i2b2-2006", "meddocan", "brat") and not self.job.corpus.individual:
                self.progress.warn(
                    f"format {self.documents.format} does not say whose a document is: each counts as an individual of "
                    "its own, which protects people with several too little; corpus.individual says otherwise"
                )

        self.make("split", {**settings.model_dump(), "seed": self.job.seed}, self._documents_input(), build)

    def _tell_mended(self, counts: dict[str, Any]) -> None:
        for what, count in self.documents.mended.items():
            counts[what] = count
            self.progress.warn(f"{what}: {count:,}")

    def detect(self) -> None:
        """Documents -> spans of direct identifiers, and the documents a detector failed on, if these are left out."""
        from reticent.artifact import fingerprint
        from reticent.engine.detect import make_detectors, option_files
        from reticent.stages import find_identifiers

        settings = self.job.detect
        files = dict(option_files(settings.options))
        inputs = self._documents_input() | {option: fingerprint(path) for option, path in files.items()}

        def build(folder: Path, counts: dict[str, Any]) -> None:
            detectors = make_detectors(settings.detectors, settings.options, num_threads=self.job.num_threads)
            find_identifiers(self, detectors, folder, counts)

        config = settings.model_dump(include={"detectors", "on_error", "propagate"})
        config["options"] = {
            name: {
                key: value
                for key, value in table.items()
                if not any(f"{file}.".startswith(f"{name}.{key}.") for file in files)
            }
            for name, table in settings.options.items()
        }
        if settings.propagate:
            config["scopes"] = self.job.protect.scopes
        self.make("spans", config, inputs, build)
        self.reopen("corpus")

    def index(self) -> None:
        """Documents of members -> supports of words and n-grams; the same over members and held-out for the audit."""
        from reticent.engine.index import IndexConfig, build_index, write_index

        config = IndexConfig(
            max_n=self.job.index.max_n,
            surface=self.job.index.surface,
            num_threads=self.job.num_threads,
            memory_limit=self.job.memory_limit,
        )
        inputs = {**self._corpus_input(), "split": self.fingerprint_of("split")}
        for name, splits in (("index", (MEMBERS,)), ("index-joint", (MEMBERS, HELDOUT))):

            def build(folder: Path, counts: dict[str, Any], splits: tuple[str, ...] = splits) -> None:
                with self.progress.task(
                    f"index of {' and '.join(splits)}", self.corpus.num_documents, "documents"
                ) as advance:
                    index = build_index(
                        self.corpus,
                        self.individuals,
                        splits=splits,
                        config=replace(config, spill_folder=folder),
                        progress=advance,
                    )
                counts.update(words=index.num_words, occurrences=index.num_occurrences, individuals=index.num_units)
                write_index(index, folder)

            self.make(name, {**self.job.index.model_dump(), "splits": list(splits)}, inputs, build, kind="index")

    def protect(self) -> None:
        """Documents, spans and index -> protected tokens, once for each tokenizer."""
        from reticent.engine.detect.spans import SpanReader
        from reticent.engine.index import open_index
        from reticent.engine.tokens import write_tokens

        settings, policy = self.job.protect, self.policy
        for model in self.job.model:
            tokenizer = self._tokenizer_json(model)
            variants = [
                ("train", "index", (MEMBERS,), False),
                ("audit", "index-joint", (MEMBERS, HELDOUT), False),
            ]
            if self._uses_pseudonyms(model):
                variants.append(("train-pseudonymised", "index", (MEMBERS,), True))
            for variant, index_name, splits, pseudonymise in variants:

                def build(
                    folder: Path,
                    counts: dict[str, Any],
                    *,
                    variant: str = variant,
                    index_name: str = index_name,
                    splits: tuple[str, ...] = splits,
                    pseudonymise: bool = pseudonymise,
                    tokenizer: str = tokenizer,
                ) -> None:
                    with self.progress.task(
                        f"protect {variant} tokens", self.corpus.num_documents, "documents"
                    ) as advance:
                        counts.update(
                            write_tokens(
                                folder,
                                self.corpus,
                                self.individuals,
                                tokenizer,
                                splits=splits,
                                policy=policy,
                                index=open_index(self.folder / index_name),
                                spans=SpanReader(self.folder / "spans"),
                                pseudonymise=pseudonymise,
                                text_sizes=variant == "audit",
                                progress=advance,
                                num_threads=self.job.num_threads,
                            )
                        )
                    if counts["retention"] < 0.4 and variant == "train":
                        self.progress.warn(
                            f"only {counts['retention']:.0%} of the words stay usable as targets "
                            f"(k={settings.k}, n={settings.n}, policy {settings.policy}); "
                            "try policy cover, a smaller n, or more documents"
                        )

                config = {
                    **settings.model_dump(),
                    "splits": list(splits),
                    "pseudonymise": pseudonymise,
                    "tokenizer": _digest(tokenizer),
                }
                inputs = {
                    **self._corpus_input(),
                    "split": self.fingerprint_of("split"),
                    "spans": self.fingerprint_of("spans"),
                    "index": self.fingerprint_of(index_name),
                }
                self.make(f"tokens/{model.name}/{variant}", config, inputs, build, kind="tokens")

    # ----------------------------------------------------------------- trainer

    def foundation(self) -> None:
        """Text that is nobody's -> the stand-in for a foundation model, where the job asks for one."""
        from reticent.artifact import fingerprint
        from reticent.engine.corpus import open_corpus

        for model in self.job.model:
            if model.foundation is None:
                continue
            reference = model.foundation.text == "reference"
            inputs = (
                {**self._corpus_input(), "split": self.fingerprint_of("split")}
                if reference
                else {"text": open_corpus(model.foundation.text).fingerprint()}
            )
            if model.foundation.vocabulary is not None:
                inputs["vocabulary"] = fingerprint(model.foundation.vocabulary)
            config = {
                **model.foundation.model_dump(exclude={"text"}),
                "objective": model.objective,
                "seed": self.job.seed,
                "window_length": self.job.train.window_length,
            }

            def build(folder: Path, counts: dict[str, Any], model: ModelSection = model) -> None:
                from reticent.stages import build_foundation

                build_foundation(self, model, folder, counts)

            self.make(f"foundation/{model.name}", config, inputs, build, kind="foundation")

    def train(self) -> None:
        """Protected tokens -> one model folder for each recipe and kept epoch."""
        for model in self.job.model:
            for name in model.recipes:
                self._train_one(model, name)

    def _train_one(self, model: ModelSection, recipe_name: str) -> None:
        from reticent.engine.store import open_tokens
        from reticent.trainer.config import TrainConfig
        from reticent.trainer.recipes import get_recipe

        recipe = get_recipe(recipe_name)
        if recipe.objective != model.objective:
            raise PolicyError(
                f"model {model.name}: recipe {recipe.name} is {recipe.objective}, "
                f"the model's objective is {model.objective}"
            )
        settings = self.job.training(model)
        variant = "train-pseudonymised" if recipe.text == "pseudonymised" else "train"
        tokens = f"tokens/{model.name}/{variant}"
        config = TrainConfig(
            **settings.model_dump(exclude={"checkpoint_epochs"}),
            checkpoint_epochs=settings.epochs_kept(),
            seed=self.job.seed,
        )
        inputs = {"tokens": self.fingerprint_of(tokens), **self._base_input(model)}

        def build(folder: Path, counts: dict[str, Any]) -> None:
            from reticent.trainer.loop import train
            from reticent.trainer.models import load_model

            base = load_model(self._base(model), model.objective)
            with self.progress.task(f"train {recipe.name}", None, "steps") as advance:
                result = train(
                    base,
                    open_tokens(self.folder / tokens),
                    recipe,
                    config,
                    folder,
                    tokenizer=self._base(model),
                    progress=advance,
                )
            counts.update(steps=result.num_steps, **result.ledger.to_dict())

        self.make(
            f"models/{model.name}/{recipe.name}",
            {**settings.model_dump(), "recipe": recipe.name, "seed": self.job.seed},
            inputs,
            build,
            kind="models",
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

        config: dict[str, Any] = {**settings.model_dump(), "seed": self.job.seed}
        if self.job.probe is not None:
            from reticent.probe_stage import probe_inputs

            config["probe"] = self.job.probe.model_dump(exclude={"subjects", "templates"})
            inputs |= probe_inputs(self)
        self.make("audit", config, inputs, build)

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

    # ---------------------------------------------------------------- of a model

    def _base(self, model: ModelSection) -> str:
        return model.base if model.base is not None else str(self.folder / "foundation" / model.name / "model")

    def _base_input(self, model: ModelSection) -> dict[str, str]:
        if model.foundation is not None:
            return {"foundation": self.fingerprint_of(f"foundation/{model.name}")}
        base = str(model.base)
        return {"base": self.fingerprint_at(Path(base)) if Path(base).exists() else base}

    def _tokenizer_json(self, model: ModelSection) -> str:
        from reticent.trainer.models import tokenizer_json_of

        return tokenizer_json_of(self._base(model))

    @staticmethod
    def _uses_pseudonyms(model: ModelSection) -> bool:
        from reticent.trainer.recipes import get_recipe

        return any(get_recipe(recipe).text == "pseudonymised" for recipe in model.recipes)

    def _documents_input(self) -> dict[str, str]:
        return {"corpus": self.documents.fingerprint()}

    def _corpus_input(self) -> dict[str, str]:
        return {"corpus": self.corpus.fingerprint()}


def _digest(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()
