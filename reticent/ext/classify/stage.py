"""The job's stage of classifier and tagger heads: which checkpoints they start from, one artefact for each training.

Training and evaluation are in :mod:`reticent.ext.classify.documents`, which a job without heads need not load.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reticent.audit.evidence.classification import ClassificationEvidence
from reticent.audit.evidence.json_form import from_json, to_json
from reticent.core.artifact import read_manifest
from reticent.core.errors import PolicyError
from reticent.core.eta import Work
from reticent.core.json_toml import read_json
from reticent.ext.classify.documents import (
    FILE,
    assemble_result,
    labelled_documents,
    measure_baselines,
    read_labels,
    train_one,
)
from reticent.ext.classify.labels import LabelledTokens
from reticent.job.artefact import Artefact, Step, Training, head_starts
from reticent.job.dependencies import privacy_of, privacy_unit, surrogate_names, trained_base, unaccounted_stages
from reticent.trainer.privacy import plan_privacy, refuse_promise, unaccounted_steps

if TYPE_CHECKING:
    from reticent.engine.store import TokenStore
    from reticent.ext.classify.training import StepReport
    from reticent.job.config import Job, ModelSection
    from reticent.job.run import Run
    from reticent.trainer.config import HeadConfig, PrivacyConfig
    from reticent.trainer.recipes import Recipe

#: Epochs of the checkpoints that [@boutet2025] starts from: its text says 64, its Fig. 8 says 8.
PAPER_EPOCHS = (8, 64)
#: Section of a job -> the folder of its artefacts.
FOLDERS = {"classify": "classification", "tag": "tagging"}


@dataclass(frozen=True, slots=True)
class _Stage:
    """The heads trained on the checkpoints of one training, or (None) on the base model: one artefact.

    The head's own seed is always the job's: seeds differ in the training alone, on the same individuals.
    """

    head: HeadConfig
    model: ModelSection
    training: Training | None = None

    @property
    def recipe(self) -> str:
        """Return the recipe of the checkpoints on which the heads are trained; "base" for the base model."""
        return "base" if self.training is None else self.training.recipe

    @property
    def name(self) -> str:
        """Name of the artefact that holds the trained heads."""
        kind = FOLDERS[self.head.section]
        folder = f"{kind}/{self.model.name}"
        return f"{folder}/base" if self.training is None else self.training.name.replace("models", kind, 1)

    @property
    def title(self) -> str:
        """Return the title of the step for progress output, such as "classifying from ..."."""
        what = "classifying" if self.head.section == "classify" else "tagging"
        return f"{what} from {self.training.title if self.training else f'base of {self.model.name}'}"

    def epochs(self, job: Job) -> list[int]:
        """Return the epochs of the checkpoints to train heads on; [0] is the base model."""
        if self.training is None:
            return [0]
        return _epochs_to_start_from(
            job.training(self.model).epochs_kept(), self.head, f"{self.model.name}/{self.recipe}"
        )

    def privacy(self, run: Run) -> PrivacyConfig:
        """Return the DP-SGD settings of a private head. Its privacy unit is that of the model's trainings, since they
        share a budget.
        """
        return privacy_of(run, self.model).replace(unaccounted=self.unaccounted_steps_of(run.job))

    def unaccounted_steps_of(self, job: Job) -> tuple[str, ...]:
        """Return the names of steps before the head's training that read private documents but are not covered by its
        epsilon, such as the training of its checkpoint without DP."""
        own = unaccounted_stages(job, self.model, self.head.recipe())
        if self.training is None:
            return own
        start = job.recipe(self.training.recipe)
        if not start.private:
            return (*own, "the training of its checkpoint")
        return tuple(dict.fromkeys((*own, *unaccounted_stages(job, self.model, start), *unaccounted_steps(start))))

    def artefact(self, run: Run) -> Artefact:
        """Return the artefact of the trained heads: its name, settings and input fingerprints, which decide whether it
        is up to date."""
        job, head = run.job, run.job.of_model(self.head, self.model)
        settings = {
            **head.all_values(without=("save_minutes",)),
            **job.audit.model_dump(include={"num_bootstrap", "small_cell"}),
        }
        if head.section == "classify":
            settings["label"] = job.classifying().label or job.corpus.label
        if head.private:
            settings["dp"] = privacy_settings(job, self.model)
        if head.text == "surrogate" and (names := surrogate_names(job).digest()) is not None:
            settings["names"] = names
        return Artefact(self.name, FOLDERS[head.section], settings, self._inputs(run))

    def _inputs(self, run: Run) -> dict[str, str]:
        """Return the fingerprints of checkpoints, corpus, split, tokens and spans that the heads are trained from, by
        name.
        """
        if self.training is None:
            inputs = run.base_input(self.model)
        else:
            of, name = run.fingerprints.of_checkpoint, self.training.name
            inputs = {f"epoch-{epoch:04d}": of(name, epoch) for epoch in self.epochs(run.job)}
        if self.head.section == "tag":
            inputs["word spans"] = run.fingerprints.of("word-spans")
        if self.head.text != "keep":
            inputs["text"] = run.fingerprints.of(f"tokens/{self.model.name}/{run.job.tokens(self.head.section)}")
        return {
            **inputs,
            "corpus": run.corpus.fingerprint(),
            "split": run.fingerprints.of("split"),
            "tokens": run.fingerprints.of(f"tokens/{self.model.name}/audit"),
        }


def _stages(run: Run) -> list[_Stage]:
    """Return one `_Stage` for each head of the job, model, and model that the head starts from: the base model or one
    of its trainings.
    """
    job = run.job
    return [
        _Stage(head, model, start)
        for head in job.heads
        for model in job.model
        for start in head_starts(job, head, model)
    ]


def privacy_settings(job: Job, model: ModelSection) -> dict[str, Any]:
    """Return the DP-SGD settings and the privacy unit of a private head, as its manifest records them: the head is
    trained again if one changes. The privacy budget is left out.
    """
    settings = job.training(model)
    assert settings.dp is not None  # the job was checked
    found: dict[str, Any] = settings.cache_key(private=True)["dp"]
    return {**found, "unit": privacy_unit(job, settings.dp), **trained_base(model)}


def private_heads(run: Run) -> Iterator[tuple[str, Recipe, PrivacyConfig, int, int]]:
    """Yield (artefact name, recipe, DP-SGD settings, epochs, batch size) for each training of a private head."""
    for stage in _stages(run):
        head = stage.head
        for _ in stage.epochs(run.job) if head.private else ():
            yield stage.name, head.recipe(), stage.privacy(run), head.num_epochs, head.batch_size


def classification_inputs(run: Run) -> dict[str, str]:
    """Return artefact name -> fingerprint of the trained heads of a run."""
    return {stage.name: run.fingerprints.of(stage.name) for stage in _stages(run)}


def check_settings(run: Run) -> None:
    """Raise `PolicyError` if a head starts from a checkpoint that is not saved, or claims an epsilon that does not
    cover earlier steps on private documents.
    """
    for stage in _stages(run):
        stage.epochs(run.job)
        settings = run.job.training(stage.model).dp if stage.head.private else None
        if settings is not None:
            privacy_unit(run.job, settings)  # or there are no households
            owed = stage.unaccounted_steps_of(run.job)
            try:
                refuse_promise(settings, owed)
            except PolicyError as error:
                is_of_start = owed != replace(stage, training=None).unaccounted_steps_of(run.job)
                others = f"; or name other starts in {stage.head.section}.from_recipes" if is_of_start else ""
                raise PolicyError(f"{stage.title}: {error}{others}") from None


def check_labels(run: Run) -> None:
    """Raise `CorpusError` if the classes of the job's classifier cannot be read from the documents."""
    read_labels(run.whole_corpus, run.job)


def check_documents(run: Run) -> None:
    """Raise, before any training, if a run's documents cannot be labelled for its heads, or are too few for a head's
    epsilon.
    """
    from reticent.ext.classify.training import training_units

    for head in run.job.heads:
        for model in run.job.model:
            documents = labelled_documents(run, model, head)
            if head.private:
                privacy = privacy_of(run, model)
                plan_privacy(privacy, training_units(documents, privacy)[1], head.num_epochs, head.batch_size)


def classify_steps(run: Run) -> Iterator[Step]:
    """Yield a build step for the heads of each section on the base model and on every training of each model.

    The artefact of the base model also has the rows that need no model. Each artefact is ``classification.json``, and
    the heads if the job keeps them.
    """
    for stage in _stages(run):
        group = stage.training and stage.training.name
        yield Step.of(
            stage.artefact(run),
            partial(_build, run, stage),
            resume=not run.restart,
            alone=True,
            group=group,
            work=partial(_estimate_work, run, stage),
        )


def _estimate_work(run: Run, stage: _Stage) -> Work:
    """Return the work of a step in tokens to train on, from which the remaining time is estimated."""
    tokens = float(read_manifest(run.folder / f"tokens/{stage.model.name}/audit").counts["tokens"])
    work = tokens * stage.head.num_epochs * len(stage.epochs(run.job))
    section = stage.head.section
    return Work(name=stage.name, title=stage.title, kind="classify", model=stage.model.name, recipe=section, work=work)


def _build(run: Run, stage: _Stage, folder: Path, counts: dict[str, int]) -> None:
    """Train and test the heads of a `_Stage`, and write the results to ``folder``; an interrupted build goes on after
    its last finished head.
    """
    from reticent.trainer.resume import delete_state  # it loads torch

    job, model, training, head = run.job, stage.model, stage.training, run.job.of_model(stage.head, stage.model)
    documents = labelled_documents(run, model, head)
    file, epochs = folder / FILE, stage.epochs(job)
    # What an interrupted step has finished is not trained again.
    rows = from_json(ClassificationEvidence, read_json(file), str(file)).results if file.exists() else []
    if not rows and training is None and isinstance(documents, LabelledTokens):
        rows = measure_baselines(documents, job)
    kept = run.checkpoints(model, training.recipe, training.seed) if training else {0: Path(run.base_of(model))}
    privacy = stage.privacy(run) if head.private else None
    with run.progress.task(stage.title, None, "steps") as advance:
        for number, epoch in enumerate(epochs):
            out = folder / (f"epoch-{epoch:04d}" if epoch else "base")
            if not any(row.training is not None and row.epoch == epoch for row in rows):
                with _epoch_stores(run, model, head, folder) as epoch_store:
                    tell = _progress_of_part(advance, number, len(epochs))
                    row = train_one(
                        kept[epoch], stage.recipe, epoch, documents, head, job, out, tell, epoch_store=epoch_store,
                        privacy=privacy, keep_state=True,
                    )  # fmt: skip
                rows.append(row)
                so_far = to_json(assemble_result(documents, job, head, model.name, rows))
                file.with_suffix(".tmp").write_text(json.dumps(so_far, indent=1, allow_nan=False))
                file.with_suffix(".tmp").replace(file)
            delete_state(out)  # only now: what was trained is not trained, and charged, again
            if not head.save_model:
                shutil.rmtree(out, ignore_errors=True)
    result = assemble_result(documents, job, head, model.name, rows)
    counts.update(
        {name: count or 0 for name, count in result.documents.items()}, classes=len(result.classes), models=len(epochs)
    )


@contextmanager
def _epoch_stores(
    run: Run, model: ModelSection, head: HeadConfig, folder: Path
) -> Iterator[Callable[[int], TokenStore] | None]:
    """Context manager for training a head on text in which surrogates or tags replace the identifiers: it yields a
    function epoch -> token store of that text. For a head that is trained on the original text it yields None.
    """
    from reticent.job.training_tokens import training_tokens  # it loads numba

    if head.text == "keep":
        yield None
        return
    with training_tokens(run, model, head.recipe(), folder, head.num_epochs) as (store, epoch_store):
        yield epoch_store or (lambda _: store)


def _progress_of_part(advance: Callable[..., None], index: int, count: int) -> Callable[[StepReport], None]:
    """Return a progress callback for one of ``count`` equally long trainings, that of number ``index``. It counts the
    steps over all trainings together, and reports them to ``advance``.
    """

    def report_step(report: StepReport) -> None:
        """Report a step of this training as a step of all trainings together."""
        size = report["num_steps"]
        advance({**report, "step": index * size + report["step"], "num_steps": count * size})

    return report_step


def read_results(run: Run) -> list[ClassificationEvidence]:
    """Return what was measured of a run's classifiers and taggers: one result for each section (``[classify]``,
    ``[tag]``) and model, whose rows are the baselines, the base model and every checkpoint.
    """

    results: dict[tuple[str, str], ClassificationEvidence] = {}
    for stage in _stages(run):
        path = run.folder / stage.name / FILE
        found = from_json(ClassificationEvidence, read_json(path), str(path))
        seed = None if stage.training is None else stage.training.seed
        rows = [replace(row, seed=seed) for row in found.results]
        if (before := results.get(key := (stage.head.section, stage.model.name))) is None:
            results[key] = replace(found, results=rows)
        else:
            before.results.extend(rows)
    return list(results.values())


def _epochs_to_start_from(saved_epochs: Sequence[int], settings: HeadConfig, name: str) -> list[int]:
    """Return the epochs of the checkpoints to train heads on, ascending. Raise `PolicyError` if the settings name an
    epoch that is not among ``saved_epochs``.
    """
    wanted: Sequence[int] | None = settings.from_epochs
    if wanted is None:
        wanted = [epoch for epoch in PAPER_EPOCHS if epoch in saved_epochs] or [max(saved_epochs)]
    if missing := sorted(set(wanted) - set(saved_epochs)):
        shown = ", ".join(map(str, sorted(saved_epochs)))
        raise PolicyError(
            f"{settings.section}.from_epochs: {name} has no checkpoint of epoch {missing[0]}; kept are {shown}"
        )
    return sorted(set(wanted))
