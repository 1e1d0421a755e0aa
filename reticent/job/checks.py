"""Checks before a run, so that a setting that would fail after hours fails at once."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator, Mapping, Set
from importlib.util import find_spec
from pathlib import Path

from reticent.audit.membership.names import DEFAULT_ATTACKS
from reticent.core.artifact import JOB
from reticent.core.device import check_device, pick_device
from reticent.core.errors import ArtifactError, PolicyError
from reticent.core.json_toml import parse_json
from reticent.core.resolve import resolve
from reticent.core.section import Section
from reticent.engine.config import DedupConfig
from reticent.engine.index import check_memory_limit
from reticent.engine.public_words import read_public_words
from reticent.engine.withdrawn import read_lines
from reticent.job.config import Job, load_kept_job, parse_job
from reticent.job.config.job import kept_content
from reticent.job.dependencies import privacy_unit, surrogate_names, unaccounted_stages
from reticent.job.noise import recipes_of
from reticent.job.releases import open_earlier
from reticent.job.run import Run
from reticent.trainer.base_files import check_base
from reticent.trainer.config import FoundationConfig, ModelSection, TrainConfig
from reticent.trainer.given import positions_of
from reticent.trainer.privacy import refuse_conflicts, refuse_promise, unaccounted_steps
from reticent.trainer.tokenizer_of_model import tokenizer_notices

# ---------------------------------------------------------------------------------------------------------------- idle
#
# Settings of a job that cannot have an effect, each with what to do about it: a check before a run refuses them.
#
# A setting counts as given where it is not its default, as a run folder keeps every field of its job. One that is
# shared by several models is idle only if it is for all of them.


#: Setting of shadow models -> the attacks that look at it.
OF_RMIA: Mapping[str, tuple[str, ...]] = {"rmia_slope": ("rmia",), "population": ("rmia", "rmia_online")}


def refuse_ineffective(job: Job, *, models: bool, trains: bool, audits: bool) -> None:
    """Raise `PolicyError` for settings that have no effect; each flag says whether a stage will run whose settings are
    checked too: one that needs models, that trains, or that audits."""
    found = [*_ineffective_dedup_settings(job.dedup)]
    if models:
        found += [*_ineffective_protection_settings(job), *_ineffective_foundation_settings(job)]
    if trains:
        found += _ineffective_training_settings(job)
    if audits:
        found += [*_ineffective_audit_settings(job), *_ineffective_attack_settings(job)]
    if found:
        raise PolicyError("; ".join(found))


def refuse_ineffective_scope(dedup: DedupConfig) -> None:
    """Raise `PolicyError` for a deduplication scope with mode "off", which only counts copies, so that the scope has no
    effect."""
    for said in _ineffective_dedup_settings(dedup):
        raise PolicyError(said)


def _non_defaults(section: Section, *names: str) -> list[str]:
    """Return those of the named fields of a section whose values differ from their defaults."""
    return [name for name in names if getattr(section, name) != type(section).model_fields[name].get_default()]


def _no_effect(setting: str, why: str, instead: str = "") -> str:
    """Return the error message for a setting without effect: its name, why it has none, and what to do instead."""
    return f"{setting}: has no effect {why}; {f'{instead}, or leave' if instead else 'leave'} it out"


def _ineffective_dedup_settings(dedup: DedupConfig) -> Iterator[str]:
    """Yield an error message for a deduplication scope without effect. Only the scope is checked: `reticent dedup RUN`
    uses the other settings in every mode."""
    if dedup.mode == "off" and _non_defaults(dedup, "scope"):
        yield _no_effect("dedup.scope", "where dedup.mode is off", 'set dedup.mode to "exact" or "near"')


def _ineffective_protection_settings(job: Job) -> Iterator[str]:
    """Yield an error message for each setting of thresholds, protection, recipes or surrogates that has no effect."""
    for name in _non_defaults(job.threshold, "unit", "delta", "max_words") if job.threshold.epsilon is None else ():
        yield _no_effect(f"threshold.{name}", "without threshold.epsilon", "give both")
    if job.threshold.epsilon is not None and job.threshold.unit == "word":
        for _ in _non_defaults(job.threshold, "max_words"):
            yield _no_effect("threshold.max_words", "on the epsilon of a word", 'set threshold.unit to "individual"')
    recipes = {name: job.recipe(name) for model in job.model for name in model.recipes}
    if all(policy.n == 1 for policy in (job.protect, *map(job.protection, recipes))):
        for _ in _non_defaults(job.protect, "max_document_frequency"):
            yield _no_effect("protect.max_document_frequency", "on single words", "set protect.n to 2 or more")
    if _non_defaults(job.surrogates, "pool") and all(r.context_indirect != "surrogate" for r in recipes.values()):
        yield _no_effect("surrogates.pool", 'where no recipe has context_indirect = "surrogate"', "choose one that has")
    if job.protect.public_words is not None and all(recipe.words == "counted" for recipe in recipes.values()):
        yield _no_effect("protect.public_words", "where every recipe counts words", 'choose one with words = "public"')
    for name, own in job.recipes.items():
        if own.goldfish_h is not None and job.recipe(name).goldfish_k is None:
            yield _no_effect(f"recipes.{name}.goldfish_h", "without goldfish_k", "give both")
    if job.surrogates.names == "syllables" and _non_defaults(job.surrogates, "language"):
        yield _no_effect("surrogates.language", 'on names = "syllables", which are of no language')


def _ineffective_foundation_settings(job: Job) -> Iterator[str]:
    """Yield an error message for each setting of a model's ``foundation`` that has no effect."""
    for model in job.model:
        if (foundation := model.foundation) is None:
            continue
        where = f"model {model.name}: foundation"
        if foundation.vocabulary is not None and _non_defaults(foundation, "vocab_size"):
            yield _no_effect(f"{where}.vocab_size", "beside foundation.vocabulary, which is taken as it is")
        if model.objective == "clm" and _non_defaults(foundation, "mask_share"):
            yield _no_effect(f"{where}.mask_share", "on a causal model, which masks no word")


def _ineffective_training_settings(job: Job) -> Iterator[str]:
    """Yield an error message for each setting of ``train``, of the job or of a model, that has no effect."""
    causal = [model for model in job.model if model.objective == "clm"]
    if len(causal) == len(job.model) and _non_defaults(job.train, "mask_share"):
        yield _no_effect("train.mask_share", "on causal models, and the job has no other")
    for model in causal:
        if model.train is not None and _non_defaults(model.train, "mask_share"):
            yield _no_effect(f"model {model.name}: train.mask_share", "on a causal model, which masks no word")
    is_private = [job.recipe(name).private for model in job.model for name in model.recipes]
    # Where no recipe is private more than this is refused, and private heads need it.
    if any(is_private) and not any(head.private for head in job.heads):
        for model in job.model:
            if model.train is not None and model.train.dp and not any(job.recipe(r).private for r in model.recipes):
                yield _no_effect(f"model {model.name}: train.dp", "as none of its recipes is trained by DP-SGD")
    shared: list[ModelSection] = []
    for model in job.model:
        if model.train is None or "checkpoint_epochs" not in model.train.model_fields_set:
            shared.append(model)
        else:
            yield from _late_epochs(job, [model], f"model {model.name}: train")
    if shared:
        yield from _late_epochs(job, shared, "train")


def _late_epochs(job: Job, models: list[ModelSection], table: str) -> Iterator[str]:
    """Yield an error message if ``checkpoint_epochs`` of the section ``table`` has epochs after the last epoch of all
    of ``models``."""
    longest = max(map(job.training, models), key=lambda training: training.num_epochs)
    last = longest.num_epochs
    if late := longest.late_epochs():
        yield (
            f"{table}.checkpoint_epochs: training ends after epoch {last} (num_epochs), so {', '.join(map(str, late))} "
            "cannot be kept; leave out what is later (the last epoch is always kept), or raise num_epochs"
        )


def _ineffective_audit_settings(job: Job) -> Iterator[str]:
    """Yield an error message for each setting of the audit or of extraction that has no effect on the job's models."""
    audit, objectives = job.audit, {model.objective for model in job.model}
    if audit.attacks != DEFAULT_ATTACKS:
        yield from _inapplicable_attacks(audit.attacks, objectives)
    if "clm" not in objectives:
        if audit.generation is not None:
            yield _no_effect("audit.generation", "on masked models, which write no text, and the job has no other")
        if job.extraction is not None:
            yield _no_effect("extraction", "on masked models, which complete no passage, and the job has no other")
    if "mlm" not in objectives and audit.all_occurrences:
        yield _no_effect("audit.all_occurrences", "on causal models, which mask no word, and the job has no other")


def _inapplicable_attacks(names: Iterable[str], objectives: Set[str]) -> Iterator[str]:
    """Yield an error message for each named attack that works on none of the objectives of the job's models."""
    from reticent.audit.membership.asking import ASKING_ATTACKS  # compiles kernels
    from reticent.audit.membership.attacks import ATTACKS

    for row in (row for row in (*ATTACKS.values(), *ASKING_ATTACKS.values()) if row.name in names):
        if objectives.isdisjoint(row.objectives):
            kind = "masked" if "mlm" in row.objectives else "causal"
            yield f"audit.attacks: {row.name} attacks {kind} models only, and the job has none; leave it out"


def _ineffective_attack_settings(job: Job) -> Iterator[str]:
    """Yield an error message for each setting of inversion, shadow models or probes that has no effect."""
    inversion, shadow, probe = job.audit.inversion, job.audit.shadow, job.probe
    if inversion is not None and not inversion.association:
        for name in _non_defaults(inversion, "terms_per_individual", "term_support", "language"):
            yield _no_effect(f"audit.inversion.{name}", "where audit.inversion.association is false")
    for name, attacks in OF_RMIA.items():
        if shadow is not None and _non_defaults(shadow, name) and set(attacks).isdisjoint(shadow.attacks):
            yield _no_effect(
                f"audit.shadow.{name}", f"without {' or '.join(attacks)} in audit.shadow.attacks", "add one"
            )
    if probe is None:
        return
    objectives = {model.objective for model in job.model}
    if "mlm" not in objectives and _non_defaults(probe, "masking"):
        yield _no_effect("probe.masking", "on causal models, which mask no token, and the job has no other")
    if "clm" not in objectives:
        for name in _non_defaults(probe, "beam_sizes", "longest", "soft_prompt"):
            yield _no_effect(f"probe.{name}", "on masked models, which write no text, and the job has no other")


def check_run(
    run: Run, *, counts: bool, models: bool, trains: bool, classifies: bool, audits: bool, reports: bool = False
) -> None:
    """Check settings, files, libraries, devices and base models of a run before any stage starts, and raise an error
    for the first fault. The flags say which stages will run: those that count n-grams, need models, train, classify,
    audit, or report.

    Raises
    ------
    PolicyError
        A setting cannot be used, or a library or a device that it needs is not there.
    ArtifactError
        A base model, or the key that signs the dossier, is not there.
    TrainingError
        A base model reads no windows of the wanted length.
    CorpusError
        The labels, attributes that attacks on heads infer, or columns of the diagnoses cannot be read.
    """
    check_settings(
        run, counts=counts, models=models, trains=trains, classifies=classifies, audits=audits, reports=reports
    )
    if models:
        if run.job.seed == 0 and run.job.subject is None:  # whose list of members is given, not drawn
            run.progress.say_once(
                "seed = 0: everybody can guess it, and who knows it and the ids can compute who was trained on; give "
                'seed = "draw", or a large number of your own. Another seed is another split: the run is made again'
            )
        _require_devices(run)
        _require_bases(run, trains=trains)
    if (classifies or trains) and run.job.corpus.remote is None:
        check_columns(run)
    if models:
        _warn_of_tokenizers(run, trains=trains)


def check_settings(
    run: Run,
    *,
    counts: bool = True,
    models: bool = True,
    trains: bool = True,
    classifies: bool = True,
    audits: bool = True,
    reports: bool = True,
) -> None:
    """Check the settings of a run, the files that they name and the libraries that they need, and raise an error for
    the first fault. The flags say which stages will run (see `check_run`). Devices, base models and documents, which
    may come later, are not checked.
    """
    if run.job.memory_limit is not None and counts:
        check_memory_limit(run.job.memory_limit, run.job.num_threads)
    if models:
        require_models(run)
    refuse_ineffective(run.job, models=models, trains=trains, audits=audits)
    if models:
        _require_extras(run)
        _check_private(run)
        _check_noise(run.job)
        _require_word_lists(run)
    if classifies and run.job.heads:
        resolve("reticent.ext.classify.stage:check_settings")(run)
    if audits:
        require_audit(run)
    if reports:
        resolve("reticent.ext.dossier.stage:check_settings")(run.job)


def require_same_documents(job: Job) -> None:
    """Raise `PolicyError` if the run folder holds tokens of other documents than the job's, which a new index would
    make useless."""

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


def require_models(run: Run) -> None:
    """Raise `PolicyError` for a job without models, which every stage after the index needs."""
    if not run.job.model:
        raise PolicyError(
            "the job names no model; add a [[model]] section, or give reticent protect --model NAME=PATH and --recipe"
        )


def _require_extras(run: Run) -> None:
    """Raise `PolicyError` for all optional libraries that are not installed, before any training."""
    missing = []
    for model in run.job.model:
        settings = run.job.training(model)
        heads = [head.section for head in run.job.heads]
        private = [recipe for recipe in (*model.recipes, *heads) if run.job.recipe(recipe).private]
        for setting, wanted, module, extra in (
            (f"recipe {', '.join(private)}", private, "opacus", "dp"),
            ("train.lora", settings.lora, "peft", "dp"),
            ("train.report_to", settings.report_to, "tensorboard", "track"),
        ):
            if wanted and find_spec(module) is None:
                missing.append(
                    f"model {model.name}: {setting} needs {module}, which is not installed; "
                    f"pip install reticent[{extra}]"
                )
    if missing:
        raise PolicyError("; ".join(missing))


def _check_noise(job: Job) -> None:
    """Raise `PolicyError` if the support threshold (individuals per word) is noisy and deduplication covers the whole
    corpus, so that one individual's copy removes documents of others."""
    if job.threshold.epsilon is not None and job.dedup.mode != "off" and job.dedup.scope == "corpus":
        raise PolicyError(
            'threshold.epsilon: bounds nothing with dedup.scope = "corpus", where the copy of one individual takes '
            'those of others out; set dedup.scope to "individual"'
        )


def _check_private(run: Run) -> None:
    """Raise `PolicyError` for a DP-SGD recipe that its training would refuse, and for settings of DP-SGD or of plain
    gradient clipping that no recipe uses."""
    is_private = {model.name: [run.job.recipe(name).private for name in model.recipes] for model in run.job.model}
    wanted = any(map(any, is_private.values())) or any(head.private for head in run.job.heads)
    if not wanted and any(run.job.training(model).dp for model in run.job.model):
        raise PolicyError("train.dp: no recipe of the job is trained by DP-SGD; add dp-mlm or dp-clm, or leave it out")
    if all(map(all, is_private.values())):
        _refuse_unused_clipping(run.job.train, "train")
    private = [run.job.training(model) for model in run.job.model if any(is_private[model.name])]
    refuse_conflicts(*((settings, settings.dp) for settings in private if settings.dp is not None))
    for model in run.job.model:
        settings = run.job.training(model)
        if model.train is not None and all(is_private[model.name]):
            _refuse_unused_clipping(model.train, f"model {model.name}: train")
        for recipe in map(run.job.recipe, model.recipes):
            if not recipe.private:
                continue
            assert settings.dp is not None  # the job was checked
            privacy_unit(run.job, settings.dp)
            stages = unaccounted_stages(run.job, model, recipe)
            refuse_promise(settings.dp, (*stages, *unaccounted_steps(recipe)), recipe)


def _refuse_unused_clipping(settings: TrainConfig, table: str) -> None:
    """Raise `PolicyError` if ``max_grad_norm`` is set in training settings that only DP-SGD recipes use: these clip by
    another setting, so it has no effect. ``table`` is the settings' section, for the message.
    """
    if settings.max_grad_norm != TrainConfig.model_fields["max_grad_norm"].default:
        raise PolicyError(
            f"{table}.max_grad_norm: every recipe is DP-SGD, which clips the gradient of each unit to "
            "train.dp.max_grad_norm"
        )


def _require_devices(run: Run) -> None:
    """Raise `PolicyError` for a device that is not available, before any stage runs."""
    devices = {run.job.train.device, *(run.job.training(model).device for model in run.job.model)}

    for device in sorted(devices):
        check_device(device)
    if devices - {"auto", "cpu"}:  # importing torch takes seconds
        for device in sorted(devices):
            pick_device(device)


def _require_bases(run: Run, *, trains: bool) -> None:
    """Raise `ArtifactError` for a missing base model, and `TrainingError` for one whose context is shorter than the
    windows, before any stage runs.
    """
    for model in run.job.model:
        if model.foundation is not None:
            _require_matching_architecture(model, model.foundation)
            _require_existing_path(model.foundation.text, f"model {model.name}: foundation.text", names=("reference",))
            _require_existing_path(model.foundation.vocabulary, f"model {model.name}: foundation.vocabulary")
        if model.base is not None:
            window_length = run.job.training(model).window_length if trains else 0
            check_base(model.base, tokenizer=run.tokenizer_of(model), window_length=window_length)


def _warn_of_tokenizers(run: Run, *, trains: bool) -> None:
    """Warn of peculiarities of the base models' tokenizers, once: before tokens are made or, if ``trains``, before the
    first training of a model.
    """
    for model in run.job.model:
        is_new = run.tokenizer_of_ids(model) is None or (trains and not (run.folder / "models" / model.name).exists())
        if model.base is not None and is_new:
            for notice in tokenizer_notices(model.base, run.tokenizer_of(model), builds=trains):
                run.progress.warn_once(f"model {model.name}: {notice}")


def _require_matching_architecture(model: ModelSection, foundation: FoundationConfig) -> None:
    """Raise `PolicyError` for a foundation whose architecture (bert, gpt2) does not fit the model's objective (mlm,
    clm)."""
    if (wanted := {"mlm": "bert", "clm": "gpt2"}[model.objective]) != foundation.kind:
        raise PolicyError(
            f'model {model.name}: foundation.kind: the objective {model.objective} needs "{wanted}", got '
            f'"{foundation.kind}"'
        )


def _require_existing_path(path: str | None, setting: str, names: tuple[str, ...] = ()) -> None:
    """Raise `ArtifactError` if ``path``, the value of a setting, is a path or glob pattern that matches no file. Other
    values are accepted: None, a URL, and the ``names`` that the setting allows instead of a path.
    """
    if path is not None and path not in names and "://" not in path and not glob.glob(path, recursive=True):
        raise ArtifactError(f"{setting}: {path}: no such file or folder")


def _require_word_lists(run: Run) -> None:
    """Raise `PolicyError` for a list of public words or of surrogate names that a recipe needs and that cannot be
    read."""
    recipes = [run.job.recipe(recipe) for model in run.job.model for recipe in model.recipes]
    sources = {"protect.public_words": run.job.protect.public_words}
    if any(recipe.context_indirect == "surrogate" for recipe in recipes):
        sources["surrogates.pool"] = run.job.surrogates.pool
    for setting, source in sources.items():
        if source is not None:
            read_public_words(source, setting)
    if any(recipe.context == "surrogate" for recipe in recipes):
        surrogate_names(run.job).pool()


def check_columns(run: Run) -> None:
    """Raise `CorpusError` where the column of a classifier's classes, an attribute that attacks on heads infer, or a
    column of the diagnoses cannot be read; called as soon as the documents can be read."""
    if run.job.classify is not None:
        resolve("reticent.ext.classify.stage:check_labels")(run)
    if run.job.audit.heads is not None:
        resolve("reticent.ext.head_attacks.stage:check_attributes")(run)
    if run.job.audit.diagnoses is not None:
        resolve("reticent.ext.ladder.stage:check_columns")(run)


def require_audit(run: Run) -> None:
    """Raise `PolicyError` for errors in the audit's settings that would otherwise show only after training, such as a
    misspelt attack."""

    run.job.audit.check_complete()
    open_earlier(run)
    for file in run.job.audit.groups:
        read_lines(file)
    _require_prompts_fit(run)
    if run.job.probe is not None:
        resolve("reticent.ext.propile.stage:check_probes")(run.job)


def refuse_too_few(job: Job, sides: tuple[int, int]) -> None:
    """Raise `PolicyError` if a job with shadow models has fewer members or held-out individuals (``sides``) than the
    smallest group whose results may be published, or if a positive control is to repeat more members than there are.
    """
    if job.audit.shadow is not None:
        least = job.audit.small_cell
        for name, there in zip(("members", "held-out individuals"), sides, strict=True):
            if there < least:
                raise PolicyError(
                    f"audit.shadow: {there} {name} are too few to attack: {least - there} are missing, as no number "
                    f"over fewer than {least} (audit.small_cell) is published; leave it out, or change [split]"
                )
    for model in job.model:
        if model.repeated and sides[0] < model.repeated:
            raise PolicyError(
                f"model {model.name}: repeated = {model.repeated} of {sides[0]} members: "
                f"{model.repeated - sides[0]} are missing"
            )


def check_sides(run: Run) -> None:
    """Raise `PolicyError` for attacks that need more members or held-out individuals than the run has; called after the
    split and before the first training."""
    refuse_too_few(run.job, run.sides)
    if run.job.probe is not None:
        resolve("reticent.ext.propile.stage:check_members")(run)
    if run.job.audit.diagnoses is not None:
        resolve("reticent.ext.ladder.stage:check_diagnoses")(run)


def check_budget(run: Run) -> None:
    """Print the total privacy cost of the job's private trainings; `PolicyError` where it exceeds the budget. Called
    after the split and before the first training."""
    if any(run.job.recipe(recipe).private for recipe in recipes_of(run.job)):
        resolve("reticent.ext.dp.charges:check_charges")(run)


def _require_prompts_fit(run: Run) -> None:
    """Raise `PolicyError` where a prefix and its continuation, of extraction or generation, exceed the context of a
    causal model."""
    asked = []
    if (extraction := run.job.extraction) is not None:
        asked.append(("extraction", max(extraction.prefix_tokens), extraction.suffix_tokens))
    if (generation := run.job.audit.generation) is not None:
        asked.append(("audit.generation", generation.prefix_tokens, generation.num_tokens))
    for model in run.job.model if asked else ():
        positions = _context_length(run, model) if model.objective == "clm" else None
        for section, prefix, more in asked:
            if positions is not None and 1 + prefix + more > positions:
                raise PolicyError(
                    f"{section}: a prefix of {prefix} and the token that begins a text, and a continuation of {more} "
                    f"tokens do not fit into the {positions} that model {model.name} reads"
                )


def _context_length(run: Run, model: ModelSection) -> int | None:
    """Return the context length of a base model in tokens; None where only loading the model tells it."""
    if model.foundation is not None:
        return run.job.train.window_length
    return positions_of(run.base_of(model), None)
