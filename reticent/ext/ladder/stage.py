"""The clinical ladder (inference of diagnoses) in a job: its questions, made once, and the evidence of each last
checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from reticent.audit.membership.names import FEWEST_DIAGNOSED, RUNGS
from reticent.audit.scoring.endpoint import is_endpoint
from reticent.core.device import pick_device
from reticent.engine.schema import MEMBERS
from reticent.engine.split import households_of
from reticent.ext.ladder.questions import Questions, check_fields, make_questions, read_terms
from reticent.job.artefact import Measurement, measurements_of
from reticent.job.stages.near_copies import NEAR_COPIES, copied_individuals
from reticent.job.stages.shadows import shadows_of

if TYPE_CHECKING:
    from reticent.audit.evidence.ladder import Ladder
    from reticent.engine.split import Individuals
    from reticent.job.run import Run

#: Scores of a base model, secret like the tokens: those of the trained models are compared with them.
SCORES = "diagnoses.npz"


def ladder_inputs(run: Run) -> dict[str, str]:
    """Return name -> fingerprint of what the diagnosis attack ("clinical ladder") reads besides the model: texts,
    split, list of diagnoses, records, near-copies and k.
    """
    config = run.job.audit.diagnoses
    assert config is not None
    files = {"diagnoses:terms": config.terms, "diagnoses:records": config.records}
    named = {name: run.fingerprints.at(Path(path)) for name, path in files.items() if path is not None}
    if run.job.memory_limit is None:
        named["diagnoses:left out"] = run.fingerprints.of(NEAR_COPIES)
    named["diagnoses:k"] = str(run.job.protect.k)
    return {**run.corpus_input(), "split": run.fingerprints.of("split"), **named}


def _build_questions(run: Run, left_out: np.ndarray | None) -> Questions:
    """Build the questions of the diagnosis attack ("clinical ladder") for a run. Held-out individuals whose code is
    true in ``left_out`` are not asked about.
    """
    config = run.job.audit.diagnoses
    assert config is not None
    return make_questions(
        run.unplanted, run.individuals, config, k=run.job.protect.k, ids=run.job.corpus.ids, seed=run.job.seed,
        left_out=left_out,
    )  # fmt: skip


def check_columns(run: Run) -> None:
    """Raise `CorpusError` or `PolicyError` if the list of diagnoses, or a column of the documents or of the table of
    records, cannot be read.
    """
    config = run.job.audit.diagnoses
    assert config is not None
    if config.terms is not None:
        read_terms(config.terms)
    check_fields(run.whole_corpus, config.records, run.job.corpus.ids, config.columns)


def check_diagnoses(run: Run) -> None:
    """Warn, before any training, of diagnoses that too few individuals have; raise `PolicyError` if none stands in any
    text.
    """
    questions = _build_questions(run, None)
    has, lacks = questions.recorded & questions.written, ~questions.recorded & ~questions.written
    sides = (questions.is_member, ~questions.is_member)
    counts = np.array([[np.count_nonzero(who[side], axis=0) for side in sides] for who in (has, lacks)])
    least = counts.min(axis=(0, 1))
    few = int(np.count_nonzero(least < FEWEST_DIAGNOSED))
    if unknown := [rung for rung, cues in zip(RUNGS, questions.cues, strict=True) if not any(cues)]:
        run.progress.warn_once(
            f"audit.diagnoses: nothing is known of anybody on these rungs, which are not asked: {', '.join(unknown)}"
        )
    if few:
        run.progress.warn_once(
            f"audit.diagnoses: {few} of {len(least)} diagnoses stand in the texts of fewer than {FEWEST_DIAGNOSED} "
            f"individuals of a side, or not in those of as few; they are not shown, and the most has {int(least.max())}"
        )


def measure_ladder(run: Run, measurement: Measurement, folder: Path) -> Ladder | None:
    """Run the diagnosis attack ("clinical ladder") on one model, and return its result; None for a model behind a
    server. The scores of a base model are written to ``folder``, since other models are compared with them.
    """
    from reticent.ext.ladder.measure import ladder

    path, model = run.checkpoint_of(measurement), measurement.model
    if is_endpoint(path):
        run.progress.say_once("audit.diagnoses: an endpoint is not asked about diagnoses")
        return None
    scores, base, out = _model_scores(run, path, model.objective, measurement.recipe), None, None
    bases = [each for each in measurements_of(run.job, model) if each.training is None]
    if measurement.training is None:
        np.savez(folder / SCORES, **scores)  # type: ignore[arg-type]
    else:
        base = _read_scores(run.folder / bases[0].name) if bases else None
        out = _mean_out_scores(
            _read_scores(run.folder / shadow.name) for shadow in shadows_of(run, model, measurement.recipe)
        )
    return ladder(
        _cached_questions(run), scores, base, out, seed=run.job.seed, num_bootstrap=run.job.audit.num_bootstrap,
        households=households_of(run.individuals.units),
    )  # fmt: skip


def score_shadow(run: Run, path: Path, objective: str, individuals: Individuals, folder: Path) -> None:
    """Write a shadow model's log-probabilities of all diagnoses, and which individuals it was trained on, to
    ``folder``.
    """
    scores = _model_scores(run, path, objective, "a shadow", ends=False)
    is_in = individuals.mask(MEMBERS)[_cached_questions(run).codes]
    np.savez(folder / SCORES, is_in=is_in, **scores)  # type: ignore[arg-type]


def _cached_questions(run: Run) -> Questions:
    """Return the questions of the diagnosis attack ("clinical ladder") for a run, built at the first call. Held-out
    individuals who have near-copies of members' documents are left out.
    """
    return run.memoize("questions of the ladder", b"", lambda: _build_questions(run, copied_individuals(run)))


def _model_scores(run: Run, path: Path, objective: str, name: str, *, ends: bool = True) -> dict[str, np.ndarray]:
    """Load a model and return its scores on the run's questions on diagnoses, name -> array (see `score_ladder`).
    ``name`` is shown while it runs.
    """
    from reticent.ext.ladder.measure import score_ladder
    from reticent.trainer.models import load_model, load_tokenizer, special_ids

    config, questions, tokenizer = run.job.audit.diagnoses, _cached_questions(run), load_tokenizer(path)
    assert config is not None
    model: Any = load_model(path, objective).to(pick_device(run.job.audit.device)).eval()  # type: ignore
    with run.progress.task(f"ask {name} for diagnoses", len(questions.codes), "individuals") as advance:
        return score_ladder(
            model, tokenizer, special_ids(tokenizer, objective), questions, config.prompt, causal=objective == "clm",
            ends=ends, progress=advance,
        )  # fmt: skip


def _read_scores(folder: Path) -> dict[str, np.ndarray]:
    """Return name -> array of a model's scores in the diagnosis attack, from the file in a folder."""
    with np.load(folder / SCORES) as kept:
        return {name: kept[name] for name in kept}


def _mean_out_scores(shadows: Iterator[dict[str, np.ndarray]]) -> np.ndarray | None:
    """Return the mean scores of each individual over the shadow models that were not trained on that individual,
    float64 (individuals, rungs, diagnoses); None without shadow models.
    """
    total: Any = 0.0
    num: Any = 0.0
    for found in shadows:
        is_out = ~found["is_in"][:, None, None]
        total = total + np.where(is_out, found["diagnoses"], 0.0)
        num = num + is_out
    return np.asarray(total / np.where(num > 0, num, np.nan)) if np.size(num) > 1 else None
