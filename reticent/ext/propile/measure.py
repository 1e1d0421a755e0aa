"""Run ProPILE probes of models on subjects, and write the evidence and the private artefact.

Black box: every model, target type and level; number of templates, levels, beam sizes and model sizes are its sweeps
(Fig. 4). White box, if wanted: a soft prompt for each causal model and target, its sweeps (Fig. 5), and the effect of
the first model's prompt in the others (Table 1).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq

from reticent.audit.evidence.json_form import extended, to_json
from reticent.audit.evidence.probe import (
    Comparison,
    HeldoutProbe,
    ProbedModel,
    ProbedSubjects,
    ProbeEvidence,
    SoftPromptResult,
    SoftPromptRow,
    TransferRow,
)
from reticent.audit.evidence.rules import publish
from reticent.audit.report.page import probe_page
from reticent.audit.scoring.endpoint import Server, is_endpoint
from reticent.core.artifact import write_artifact
from reticent.core.device import pick_device
from reticent.core.errors import PolicyError
from reticent.ext.propile.evidence import (
    answers_table,
    best_over_templates,
    estimate_arguments,
    mean_estimate,
    share_estimate,
    summarise,
    to_factor,
)
from reticent.ext.propile.probe import Answers, probe_target
from reticent.ext.propile.prompts import (
    Beginnings,
    ProbeConfig,
    ProbeModel,
    SoftPromptStudy,
    all_prompts,
    require_subjects,
    usable_templates,
)
from reticent.ext.propile.soft_prompt import (
    Sides,
    SoftPrompt,
    nearest_text,
    probe_with_soft_prompt,
    soft_prompt_sides,
    train_soft_prompt,
    write_soft_prompt,
)
from reticent.ext.propile.subjects import Subjects
from reticent.ext.propile.templates import LEVELS, Template, builtin_templates
from reticent.trainer.models import load_model, load_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

FORMAT = "reticent.probe/1"
Progress = Callable[[str, int, int], None]


def probe_models(
    models: Sequence[ProbeModel],
    subjects: Subjects,
    config: ProbeConfig,
    *,
    templates: Sequence[Template] | None = None,
    study: SoftPromptStudy | None = None,
    beginnings: Beginnings | None = None,
    progress: Progress | None = None,
) -> tuple[ProbeEvidence, list[tuple[str, Answers]], dict[str, SoftPrompt]]:
    """Run the ProPILE probes on every model; return the evidence, (model name, answers) pairs, and the soft prompts by
    name (``MODEL-TARGET``).

    Parameters
    ----------
    templates : of a user; None: the built-in ones of ``config.language``
    beginnings : as for `all_prompts`

    Raises
    ------
    CorpusError, PolicyError
        A column is missing, a template has an unknown field, nothing can be asked, or there are too few subjects for a
        soft prompt.
    """
    if len({model.name for model in models}) != len(models):
        raise PolicyError("two models have the same name")
    prompts, skipped = all_prompts(subjects, config, templates, beginnings)
    if study is not None and any(entry.objective == "clm" for entry in models):
        require_subjects(subjects, study.targets or tuple(dict.fromkeys(q.target for q in prompts)), study)
    # The soft prompts of the first causal model are given to the others as text.
    source = next((entry.name for entry in models if entry.objective == "clm"), models[0].name)
    results, everything, learned = [], [], {}
    kept: dict[str, tuple[SoftPrompt, Sides, Template, str]] = {}
    for entry in models:
        model, tokenizer = _load_model(entry, config)
        asked = []
        for question in prompts:
            told = _prefixed(progress, f"{entry.name} {question.target} {question.level}")
            answers = probe_target(model, tokenizer, entry.objective, question, config, progress=told)
            everything.append((entry.name, answers))
            asked.append(summarise(answers, config))
        soft_prompts = transfer = None
        if study is not None and entry.objective == "clm":
            soft_prompts = []
            for target in study.targets or tuple(dict.fromkeys(q.target for q in prompts)):
                level, template = _first_template(subjects, target, config, templates)
                white = _probe_white_box(model, tokenizer, subjects, target, level, template, config, study, progress)
                soft_prompts.append(white[0])
                learned[f"{entry.name}-{target}"] = white[1]
                if entry.name == source:
                    kept[target] = (white[1], white[2], template, nearest_text(model, tokenizer, white[1]))
            transfer = [_probe_transfer(model, tokenizer, *source_prompt, config) for source_prompt in kept.values()]
        results.append(
            ProbedModel(
                name=entry.name,
                recipe=entry.name,
                objective=entry.objective,
                num_parameters=None if isinstance(model, Server) else sum(p.numel() for p in model.parameters()),
                results=asked,
                soft_prompts=soft_prompts,
                transfer=transfer,
            )
        )
    # The settings that go with the results: no path among them.
    settings = config.all_values(without=("subjects", "templates"))
    evidence = ProbeEvidence(
        format=FORMAT,
        settings={**settings, "soft_prompt": study.all_values() if study else None},
        subjects=ProbedSubjects(num=len(subjects), types=list(subjects.types)),
        not_asked=skipped,
        source=source,
        models=results,
    )
    return evidence, everything, learned


def _load_model(entry: ProbeModel, config: ProbeConfig) -> tuple[Any, PreTrainedTokenizerFast]:
    """Return the model on its device (or the client of a model server) and its tokenizer."""
    if is_endpoint(Path(entry.path)):
        tokenizer = load_tokenizer(entry.path)
        return Server(Path(entry.path), tokenizer), tokenizer
    model: Any = load_model(entry.path, entry.objective)
    return model.to(device=pick_device(config.device)).eval(), load_tokenizer(entry.path)


def _prefixed(progress: Progress | None, where: str) -> Progress | None:
    """Return a progress callback that puts ``where`` before the name of the work."""
    return None if progress is None else lambda what, done, total: progress(f"{where}: {what}", done, total)


def _first_template(
    subjects: Subjects, target: str, config: ProbeConfig, templates: Sequence[Template] | None
) -> tuple[str, Template]:
    """Return (level, template): the highest level (number of other items that a prompt gives) in the settings at which
    a template asks for the item type ``target``, and the first such template. Raise `PolicyError` if there is none.
    """
    for level in reversed([level for level in LEVELS if level in config.levels] or ["twin"]):
        found = usable_templates(
            subjects, target, level, templates or builtin_templates(), config, strict=bool(templates)
        )[0]
        if found:
            return level, found[0]
    raise PolicyError(f"no template asks for {target} at level {', '.join(config.levels)}")


def _probe_white_box(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    subjects: Subjects,
    target: str,
    level: str,
    template: Template,
    config: ProbeConfig,
    study: SoftPromptStudy,
    progress: Progress | None,
) -> tuple[SoftPromptResult, SoftPrompt, Sides]:
    """Train and measure the soft prompts of one target type; return their results, the first soft prompt, and the
    subjects that it was trained, validated and evaluated on.
    """
    pool = max([study.prompt.num_subjects, *study.num_subjects])
    variants = [("", study.prompt), *study.variants()]
    rows, first = [], None
    for number, (sweep, settings) in enumerate(variants):
        sides = soft_prompt_sides(
            subjects, target, settings.replace(num_validation=study.prompt.held_for_validation), pool=pool
        )
        told = _prefixed(progress, f"soft prompt {target} {number + 1} of {len(variants)}")
        prompt = train_soft_prompt(
            model, tokenizer, sides, target, level, template, settings, config,
            progress=None if told is None else partial(told, "epochs"),
        )  # fmt: skip
        without, with_it = probe_with_soft_prompt(model, tokenizer, sides, prompt, level, template, config)
        rows.append(
            extended(
                compare(without, with_it, config),
                SoftPromptRow,
                sweep=sweep,
                best_epoch=prompt.best_epoch,
                num_subjects=settings.num_subjects,
                num_tokens=settings.num_tokens,
                init=settings.init,
            )
        )
        if first is None:
            first = prompt, sides
    assert first is not None
    about = {"target": target, "level": level, "template": template.text, "evaluated": len(first[1].evaluation)}
    return extended(rows[0], SoftPromptResult, **about, sweeps=rows[1:]), *first


def _probe_transfer(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    prompt: SoftPrompt,
    sides: Sides,
    template: Template,
    text: str,
    config: ProbeConfig,
) -> TransferRow:
    """Measure how a model answers prompts that begin with ``text``, the soft prompt of another model decoded to words,
    compared with prompts without it.
    """
    both = probe_with_soft_prompt(model, tokenizer, sides, prompt, template.level, template, config, text=text)
    return extended(compare(*both, config), TransferRow, target=prompt.target, level=template.level)


def compare(before: Answers, after: Answers, config: ProbeConfig) -> Comparison:
    """Compare answers to the same prompts without and with a soft prompt: mean likelihoods, their ratio, and
    exact-match rates.
    """
    old, new = best_over_templates(before.log_probs), best_over_templates(after.log_probs)
    both = ~(np.isnan(old) | np.isnan(new))
    asked = estimate_arguments(config, before.prompts.households, both)
    hits = [np.any(next(iter(a.matches.values()))["exact_match"], axis=0)[both] for a in (before, after)]
    return Comparison(
        n=int(both.sum()),
        likelihood_before=mean_estimate(np.exp(old[both]), *asked),
        likelihood_after=mean_estimate(np.exp(new[both]), *asked),
        factor=to_factor(mean_estimate((new - old)[both], *asked)),
        exact_match_before=share_estimate(hits[0], *asked),
        exact_match_after=share_estimate(hits[1], *asked),
    )


def with_heldout(members: ProbeEvidence, heldout: ProbeEvidence) -> ProbeEvidence:
    """Return the evidence on members with the results of held-out subjects added to each row."""
    found = {(model.name, row.target, row.level): row for model in heldout.models for row in model.results}
    models = []
    for model in members.models:
        rows = []
        for row in model.results:
            other = found.get((model.name, row.target, row.level))
            if other and row.exact_match and other.exact_match:
                ratio = other.likelihood.factor if other.likelihood else None
                beside = HeldoutProbe(n=other.n, factor=ratio, exact_match=other.exact_match)
                row = replace(row, heldout=beside)
            rows.append(row)
        models.append(replace(model, results=rows))
    return replace(members, models=models)


def write_probe(
    folder: Path | str,
    evidence: ProbeEvidence,
    answers: Sequence[tuple[str, Answers]],
    learned: dict[str, SoftPrompt],
    subjects: Subjects,
    *,
    study: SoftPromptStudy | None = None,
    inputs: dict[str, str],
) -> Path:
    """Write the probe results: publishable ``probe.json`` and ``probe.html``, private ``answers.parquet``, and soft
    prompts beside the folder; return the page's path.
    """

    folder = Path(folder)
    settings = to_json(evidence.settings)
    with write_artifact(folder, kind="probe", config=settings, inputs=inputs) as writer:
        shown = publish(evidence, settings["small_cell"])
        (writer.path / "probe.json").write_text(json.dumps(to_json(shown), indent=1, allow_nan=False) + "\n")
        (writer.path / "probe.html").write_text(probe_page(shown), encoding="utf-8")
        pq.write_table(answers_table(answers, subjects.rows), writer.path / "answers.parquet", compression="zstd")
        writer.counts.update(models=len(evidence.models), subjects=len(subjects))
    for name, prompt in learned.items():
        assert study is not None
        write_soft_prompt(folder.parent / f"{folder.name}-soft-{name}", prompt, study.prompt, inputs=inputs)
    return folder / "probe.html"
