"""What private trainings and a private vocabulary cost together, before the first of a job and after each.

A sweep (a list in ``train.dp.target_epsilon``) is charged for all of its trainings, whichever is used, as one looked at
all of them. A private vocabulary is charged before it is drawn; it is spent then, and a kill gives nothing back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from reticent.audit.texts import ENGLISH, Texts
from reticent.core.artifact import MANIFEST, STATE
from reticent.core.errors import ReticentError
from reticent.engine.schema import MEMBERS
from reticent.ext.dp.budget import Budget, budget_of, totals
from reticent.job.artefact import Training, trainings_of
from reticent.job.dependencies import privacy_of
from reticent.job.reach import expected_sides
from reticent.trainer.privacy import (
    BUDGET_FILE,
    Guarantee,
    default_delta,
    plan_privacy,
    show_delta,
    show_epsilon,
    together,
    unaccounted_steps,
)

if TYPE_CHECKING:
    from reticent.engine.noisy_threshold import Noise
    from reticent.job.run import Run

__all__ = ["charge_lines", "charged_vocabulary", "check_charges", "require_room", "spent_so_far"]

Unit = Literal["individual", "household", "record"]
#: What the budget calls a vocabulary, where a training has its recipe.
VOCABULARY = "vocabulary"


def charge_lines(run: Run, t: Texts = ENGLISH) -> Iterator[str]:
    """Yield a sentence, without a full stop, on what all private trainings of a job, and its vocabulary, cost."""
    for asked in _asked(run, every=True).values():
        total = together(asked)
        each = t.listed([show_epsilon(one.epsilon) for one in asked if one.epsilon is not None])
        if total is not None and len(asked) > 1:
            yield t("reach.charged", n=len(asked), each=each, total=t.evidence(str(total)))


def check_charges(run: Run) -> None:
    """Say what the private trainings of a job cost together, before the first of them; the error of `require_room`."""
    for line in charge_lines(run):
        run.progress.say_once(line)
    require_room(run)


def require_room(run: Run) -> None:
    """Raise `PolicyError` where the budget does not hold all private trainings that are still to be made."""
    for budget, asked in _asked(run).items():
        budget.require_room(asked, _num_units(run, asked[0].unit))


def spent_so_far(run: Run, training: Training) -> str:
    """Return what the budget of a private training has been charged for, all its runs on these documents together."""
    budget = budget_of(privacy_of(run, training.model, run.job.recipe(training.recipe)))
    assert budget is not None  # a job has one
    shown = [
        f"epsilon {show_epsilon(row['epsilon'])} at delta {show_delta(row['delta'])} per {row['unit']} "
        f"({row['runs']} together, {row['bound']})"
        for row in totals(budget.spent())
        if row["epsilon"] is not None
    ]
    return f"charged to {budget.path.name} on these documents so far: {' and '.join(shown) or 'no total'}"


@contextmanager
def charged_vocabulary(run: Run, noise: Noise, key: bytes, k: int, num_units: int) -> Iterator[None]:
    """Charge a private vocabulary to every budget of a job, then let it be drawn: once for a key, and of another k for
    half of delta more (definitions.md#private-vocabulary).

    Raises
    ------
    PolicyError
        A budget does not allow it; nothing is drawn.
    """
    name, costs = f"{VOCABULARY}-{hashlib.sha256(key).hexdigest()[:8]}", {}
    for budget, unit in _budgets(run).items():
        before: list[int] = next((each.about["k"] for each in budget.spent() if each.run == name), [])
        all_k = sorted({*before, k})
        costs[budget] = _of_vocabulary(noise, unit, len(all_k))
        about = {"recipe": VOCABULARY, "k": all_k}
        budget.reserve(name, costs[budget], num_units, about, "the private vocabulary")
    yield
    for budget, cost in costs.items():
        budget.settle(name, cost)


def _of_vocabulary(noise: Noise, unit: Unit, num_k: int = 1) -> Guarantee:
    return Guarantee(epsilon=noise.epsilon, delta=(1 + num_k) / 2 * noise.delta, unit=unit)


def _budgets(run: Run) -> dict[Budget, Unit]:
    """The budgets that the trainings of a job are charged to, and what a vocabulary is a unit of there; that of the run
    folder where it has no DP-SGD.
    """
    found: dict[Budget, Unit] = {}
    for model in run.job.model:
        if run.job.training(model).dp is not None:
            privacy = privacy_of(run, model)
            if (budget := budget_of(privacy)) is not None:
                found[budget] = "individual" if privacy.unit == "record" else privacy.unit
    own = Budget(path=run.folder / BUDGET_FILE, corpus=run.whole_corpus.fingerprint())
    return found or {own: "individual"}


def _asked(run: Run, *, every: bool = False) -> dict[Budget, list[Guarantee]]:
    """By budget the cost of each private training of the job, and of its vocabulary: those that are still to be made,
    or ``every`` one.
    """
    found: dict[Budget, list[Guarantee]] = {}
    noise = run.job.threshold.noise
    if noise is not None and noise.max_words is not None:
        for budget, unit in _budgets(run).items():
            cost = _of_vocabulary(noise, unit)
            drawn = [each.guarantee.epsilon for each in budget.spent() if each.about.get("recipe") == VOCABULARY]
            if every or cost.epsilon not in drawn:
                found.setdefault(budget, []).append(cost)
    for training in trainings_of(run.job):
        folder = run.folder / training.name
        is_charged = (folder / MANIFEST).exists() or (folder / STATE).exists()
        if run.job.recipe(training.recipe).private and (every or not is_charged):
            budget, cost = _cost(run, training)
            found.setdefault(budget, []).append(cost)
    return found


def _cost(run: Run, training: Training) -> tuple[Budget, Guarantee]:
    recipe, settings = run.job.recipe(training.recipe), run.job.training(training.model)
    privacy = privacy_of(run, training.model, recipe)
    budget = budget_of(privacy)
    assert budget is not None  # a job has one
    num_units = _num_units(run, privacy.unit)
    target = privacy.target_epsilon
    if isinstance(target, float):
        cap = None if privacy.unit == "record" else privacy.max_documents
        delta = privacy.target_delta or default_delta(privacy.num_units or num_units)
        return budget, Guarantee(epsilon=target, delta=delta, unit=privacy.unit, max_documents=cap)
    batch_size = settings.batch_size * settings.gradient_accumulation_steps
    plan = plan_privacy(privacy, num_units, settings.num_epochs, batch_size, unaccounted_steps(recipe))
    return budget, plan.guarantee


def _num_units(run: Run, unit: str) -> int:
    """About how many units of privacy the members are: as they were split, or else as they will be."""
    corpus = run.whole_corpus
    try:
        members = int(run.individuals.mask(MEMBERS).sum())
    except (ReticentError, OSError):
        members = expected_sides(run.job, corpus.num_individuals)[0]
    return max(members if unit != "record" else members * corpus.num_documents // corpus.num_individuals, 1)
