"""The clinical ladder of a job: its questions, asked once, and the part of the evidence of each last checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from reticent.audit.membership.names import FEWEST_DIAGNOSED
from reticent.audit.scoring.endpoint import is_endpoint
from reticent.core.device import pick_device
from reticent.engine.split import households_of
from reticent.ext.ladder.questions import Questions, ask
from reticent.job.artefact import Measurement, measurements_of
from reticent.job.stages.near_copies import copied_individuals

if TYPE_CHECKING:
    from reticent.audit.evidence.ladder import Ladder
    from reticent.job.run import Run

__all__ = ["check_diagnoses", "climb", "ladder_inputs"]

#: Scores of a base model, secret like the tokens: those of the trained models are compared with them.
SCORES = "diagnoses.npz"


def ladder_inputs(run: Run) -> dict[str, str]:
    """Return the fingerprints of what the ladder reads beside the model: the texts, the list and the records."""
    config = run.job.audit.diagnoses
    assert config is not None
    files = {"diagnoses:terms": config.terms, "diagnoses:records": config.records}
    named = {name: run.fingerprints.at(Path(path)) for name, path in files.items() if path is not None}
    return {**run.corpus_input(), "split": run.fingerprints.of("split"), **named}


def _questions(run: Run, left_out: np.ndarray | None) -> Questions:
    config = run.job.audit.diagnoses
    assert config is not None
    return ask(
        run.unplanted, run.individuals, config, k=run.job.protect.k, ids=run.job.corpus.ids, seed=run.job.seed,
        left_out=left_out,
    )  # fmt: skip


def check_diagnoses(run: Run) -> None:
    """Say before any training how many diagnoses too few individuals have; `CorpusError` or `PolicyError` for a list,
    a table or a column that cannot be asked about."""
    questions = _questions(run, None)
    has, lacks = questions.recorded & questions.written, ~questions.recorded & ~questions.written
    sides = (questions.is_member, ~questions.is_member)
    counts = np.array([[np.count_nonzero(who[side], axis=0) for side in sides] for who in (has, lacks)])
    least = counts.min(axis=(0, 1))
    few = int(np.count_nonzero(least < FEWEST_DIAGNOSED))
    if few:
        run.progress.warn_once(
            f"audit.diagnoses: {few} of {len(least)} diagnoses stand in the texts of fewer than {FEWEST_DIAGNOSED} "
            f"individuals of a side, or not in those of as few; they are not shown, and the most has {int(least.max())}"
        )


def climb(run: Run, measurement: Measurement, folder: Path) -> Ladder | None:
    """Return the ladder of a model; the scores of a base model are kept in ``folder``. None of an endpoint, which is
    not asked."""
    from reticent.ext.ladder.measure import ladder, score_ladder
    from reticent.trainer.models import load_model, load_tokenizer, special_ids

    config, path, objective = run.job.audit.diagnoses, run.checkpoint_of(measurement), measurement.model.objective
    assert config is not None
    if is_endpoint(path):
        run.progress.say_once("audit.diagnoses: an endpoint is not asked about diagnoses")
        return None
    # Held-out individuals with near-copies of a member's text would hide what is told of members.
    questions = run.once("questions of the ladder", b"", lambda: _questions(run, copied_individuals(run)))
    tokenizer = load_tokenizer(path)
    model: Any = load_model(path, objective).to(pick_device(run.job.audit.device)).eval()  # type: ignore
    with run.progress.task(f"ask {measurement.recipe} for diagnoses", len(questions.codes), "individuals") as advance:
        scores = score_ladder(
            model, tokenizer, special_ids(tokenizer, objective), questions, config.prompt, causal=objective == "clm",
            progress=lambda done, _: advance(done),
        )  # fmt: skip
    base, bases = None, [each for each in measurements_of(run.job, measurement.model) if each.training is None]
    if measurement.training is None:
        np.savez(folder / SCORES, **scores)  # type: ignore[arg-type]
    elif bases:
        with np.load(run.folder / bases[0].name / SCORES) as kept:
            base = {name: kept[name] for name in kept}
    return ladder(
        questions, scores, base, seed=run.job.seed, num_bootstrap=run.job.audit.num_bootstrap,
        households=households_of(run.individuals.units),
    )  # fmt: skip
