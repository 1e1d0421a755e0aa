"""Checks before a run: a setting that would fail hours later fails at once."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reticent.core.errors import ArtifactError, PolicyError
from reticent.core.json_toml import parse_json, read_json
from reticent.job.idle import refuse_idle
from reticent.trainer.config import TrainConfig

if TYPE_CHECKING:
    from reticent.job.config import Job
    from reticent.job.config.model import ModelSection
    from reticent.job.run import Run
    from reticent.trainer.config import FoundationConfig

__all__ = [
    "check_classification",
    "check_run",
    "require_audit",
    "require_models",
    "require_same_documents",
    "require_withdrawals",
]


def check_run(
    run: Run, *, counts: bool, models: bool, trains: bool, classifies: bool, audits: bool, reports: bool = False
) -> None:
    """Check the requirements of a run's stages: of those that count n-grams, need models, train, classify, audit, and
    report.

    Raises
    ------
    PolicyError
        A setting cannot be used, or a library or a device that it needs is not there.
    ArtifactError
        A base model, or the key that signs the dossier, is not there.
    TrainingError
        A base model reads no windows of the wanted length.
    CorpusError
        The labels cannot be read.
    """
    if run.job.memory_limit is not None and counts:
        from reticent.engine.index import check_memory_limit

        check_memory_limit(run.job.memory_limit, run.job.num_threads)
    if models:
        require_models(run)
    refuse_idle(run.job, models=models, trains=trains, audits=audits)
    if models:
        _require_extras(run)
        _check_private(run)
        _check_noise(run.job)
        _require_devices(run)
        _require_bases(run, trains=trains)
        _require_pool(run)
    if run.job.classify is not None and classifies:
        from reticent.job.classification import read_labels
        from reticent.job.stages.classify import check_starts

        check_starts(run)
        if run.job.corpus.remote is None:  # else nothing may be there yet
            read_labels(run.whole_corpus, run.job)
    if audits:
        require_audit(run)
    if reports:
        _require_dossier(run.job)


def require_same_documents(job: Job) -> None:
    """Raise `PolicyError` if the run folder holds tokens of other documents, which an index would make useless."""
    from reticent.core.manifest import JOB
    from reticent.job.config import load_kept_job, parse_job
    from reticent.job.config.kept import kept_content

    folder = Path(job.out)
    if not (folder / "tokens").exists() or not (folder / JOB).exists():
        return
    before = load_kept_job(folder / JOB).corpus.sources
    now = parse_job(parse_json(kept_content(job))).corpus.sources
    if before != now:
        raise PolicyError(
            f"{folder}: is a run over other documents and holds their tokens; choose another --out, "
            "or remove the folder"
        )


def require_withdrawals(job: Job) -> None:
    """Raise `PolicyError` if an individual whom the job of the run folder leaves out as withdrawn would come back."""
    from reticent.core.manifest import JOB
    from reticent.job.config import load_kept_job

    file = Path(job.out) / JOB
    if not file.exists() or not _withdraws(read_json(file)):
        return
    now = {Path(path).resolve() for path in job.corpus.withdrawn}
    gone = {line for path in now for line in _lines(path) or ()}
    for path in load_kept_job(file).corpus.withdrawn:
        lines = _lines(Path(path))
        if Path(path).resolve() not in now and (lines is None or lines - gone):
            raise PolicyError(
                f"{job.out}: leaves out who withdrew in {path}, and individuals of that list would come back; name it "
                "again (`reticent update --remove`, corpus.withdrawn of a job), or choose another --out"
            )


def _withdraws(values: Any) -> bool:
    corpus = values.get("corpus") if isinstance(values, dict) else None
    return isinstance(corpus, dict) and bool(corpus.get("withdrawn"))


def _lines(file: Path) -> set[str] | None:
    """Return the lines of a list of ids; None if it cannot be read."""
    try:
        return set(filter(None, map(str.strip, file.read_text(encoding="utf-8-sig").split("\n"))))
    except (OSError, UnicodeDecodeError):
        return None


def check_classification(run: Run) -> None:
    """Raise for documents that cannot be classified, before the trainings; the tokens must be there."""
    from reticent.job.classification import labelled_documents

    for model in run.job.model:
        labelled_documents(run, model)


def require_models(run: Run) -> None:
    """Raise `PolicyError` for a job without models: every stage after the index works on a model's tokens."""
    if not run.job.model:
        raise PolicyError(
            "the job names no model; add a [[model]] section, or give reticent protect --model NAME=PATH and --recipe"
        )


def _require_extras(run: Run) -> None:
    """Raise `PolicyError` for a library that is not installed, before the trainings that come before its own."""
    from importlib.util import find_spec

    for model in run.job.model:
        settings = run.job.training(model)
        private = [recipe for recipe in model.recipes if run.job.recipe(recipe).private]
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


def _check_noise(job: Job) -> None:
    """Raise `PolicyError` for a noisy threshold where one individual more changes the documents of others."""
    if job.threshold.epsilon is not None and job.dedup.mode != "off" and job.dedup.scope == "corpus":
        raise PolicyError(
            'threshold.epsilon: bounds nothing with dedup.scope = "corpus", where the copy of one individual takes '
            'those of others out; set dedup.scope to "individual"'
        )


def _check_private(run: Run) -> None:
    """Raise `PolicyError` for a private recipe that its training would refuse, maybe hours later, and for settings of
    DP-SGD, or of plain training, that no recipe looks at.
    """
    from reticent.job.dependencies import unaccounted_stages
    from reticent.trainer.privacy import refuse_conflicts, refuse_promise, unaccounted_steps

    is_private = {model.name: [run.job.recipe(name).private for name in model.recipes] for model in run.job.model}
    if not any(map(any, is_private.values())) and any(run.job.training(model).dp for model in run.job.model):
        raise PolicyError("train.dp: no recipe of the job is trained by DP-SGD; add dp-mlm or dp-clm, or leave it out")
    if all(map(all, is_private.values())):
        _refuse_plain_clip(run.job.train, "train")
    for model in run.job.model:
        settings = run.job.training(model)
        if model.train is not None and all(is_private[model.name]):
            _refuse_plain_clip(model.train, f"model {model.name}: train")
        for recipe in map(run.job.recipe, model.recipes):
            if not recipe.private:
                continue
            assert settings.dp is not None  # the job was checked
            if recipe.context == "surrogate":
                raise PolicyError(f"recipe {recipe.name}: text that changes each epoch does not go with DP-SGD")
            refuse_conflicts(settings, settings.dp)
            refuse_promise(settings.dp, (*unaccounted_stages(run.job, settings.dp), *unaccounted_steps(recipe)))


def _refuse_plain_clip(settings: TrainConfig, table: str) -> None:
    if settings.max_grad_norm != TrainConfig.model_fields["max_grad_norm"].default:
        raise PolicyError(
            f"{table}.max_grad_norm: every recipe is DP-SGD, which clips the gradient of each unit to "
            "train.dp.max_grad_norm"
        )


def _require_devices(run: Run) -> None:
    """Raise `PolicyError` for a device that is not there, before any time is spent on earlier stages."""
    devices = {run.job.train.device, *(run.job.training(model).device for model in run.job.model)}
    from reticent.core.device import check_device, pick_device

    for device in sorted(devices):
        check_device(device)
    if devices - {"auto", "cpu"}:  # importing torch takes seconds
        for device in sorted(devices):
            pick_device(device)


def _require_bases(run: Run, *, trains: bool) -> None:
    """Raise `ArtifactError` for a base model that is not there, and `TrainingError` for one that reads no such windows,
    before hours are spent on earlier stages.
    """
    for model in run.job.model:
        if model.foundation is not None:
            _require_kind(model, model.foundation)
            _require_there(model.foundation.text, f"model {model.name}: foundation.text", beside=("reference",))
            _require_there(model.foundation.vocabulary, f"model {model.name}: foundation.vocabulary")
        if model.base is not None:
            from reticent.trainer.base_files import check_base

            window_length = run.job.training(model).window_length if trains else 0
            check_base(model.base, tokenizer=run.tokenizer_of(model), window_length=window_length)


def _require_kind(model: ModelSection, foundation: FoundationConfig) -> None:
    if (wanted := {"mlm": "bert", "clm": "gpt2"}[model.objective]) != foundation.kind:
        raise PolicyError(
            f'model {model.name}: foundation.kind: the objective {model.objective} needs "{wanted}", got '
            f'"{foundation.kind}"'
        )


def _require_there(path: str | None, setting: str, beside: tuple[str, ...] = ()) -> None:
    if path is not None and path not in beside and "://" not in path and not glob.glob(path, recursive=True):
        raise ArtifactError(f"{setting}: {path}: no such file or folder")


def _require_pool(run: Run) -> None:
    """Raise `PolicyError` for public words or names that cannot be read, where a recipe needs them."""
    recipes = [run.job.recipe(recipe) for model in run.job.model for recipe in model.recipes]
    if any(recipe.context_indirect == "surrogate" for recipe in recipes):
        from reticent.engine.public_words import read_public_words

        read_public_words(run.job.surrogates.pool)
    if any(recipe.context == "surrogate" for recipe in recipes):
        from reticent.job.dependencies import surrogate_names

        surrogate_names(run.job).pool()


def require_audit(run: Run) -> None:
    """Raise `PolicyError` for faults that the audit would find only after the training, such as a misspelt attack."""
    from reticent.job.probes import check_probes

    run.job.audit.check_complete()
    _require_room(run)
    if run.job.probe is not None:
        check_probes(run.job)


def _require_room(run: Run) -> None:
    """Raise `PolicyError` for passages that are longer than a causal model reads at once."""
    asked = []
    if (extraction := run.job.extraction) is not None:
        asked.append(("extraction", max(extraction.prefix_tokens), extraction.suffix_tokens))
    if (generation := run.job.audit.generation) is not None:
        asked.append(("audit.generation", generation.prefix_tokens, generation.num_tokens))
    for model in run.job.model if asked else ():
        positions = _positions(run, model) if model.objective == "clm" else None
        for section, prefix, more in asked:
            if positions is not None and 1 + prefix + more > positions:
                raise PolicyError(
                    f"{section}: a prefix of {prefix} and the token that begins a text, and a continuation of {more} "
                    f"tokens do not fit into the {positions} that model {model.name} reads"
                )


def _positions(run: Run, model: ModelSection) -> int | None:
    """Return the tokens that a base model reads at once; None where only its loader knows."""
    if model.foundation is not None:
        return run.job.train.window_length
    path = Path(run.base_of(model)) / "config.json"
    config = read_json(path) if path.is_file() else {}
    named = (
        [config.get(name) for name in ("max_position_embeddings", "n_positions")] if isinstance(config, dict) else []
    )
    return next((number for number in named if isinstance(number, int)), None)


def _require_dossier(job: Job) -> None:
    """Raise `ArtifactError` for a key that cannot sign, and `PolicyError` for PDF that cannot be written."""
    from reticent.audit.dossier.seal import fingerprint_of_key
    from reticent.audit.dossier.write import writes_pdf

    writes_pdf(job.dossier.pdf)
    if job.dossier.key is not None:
        if not Path(job.dossier.key).expanduser().is_file():
            raise ArtifactError(f"dossier.key: {job.dossier.key}: no such file")
        fingerprint_of_key(job.dossier.key)
