"""What private trainings, heads and a private vocabulary cost together, before the first of a job and after each.

A sweep (a list in ``train.dp.target_epsilon``) is charged for all of its trainings, whichever is used, as one looked at
all of them. A private vocabulary is charged before it is drawn; it is spent then, and a kill gives nothing back.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from reticent.audit.texts import ENGLISH, Texts
from reticent.core.artifact import MANIFEST, parts_of
from reticent.core.errors import ReticentError
from reticent.core.resolve import resolve
from reticent.engine.schema import MEMBERS
from reticent.ext.dp.budget import Budget, Spending, budget_of, counting, totals
from reticent.job.artefact import trainings_of
from reticent.job.dependencies import by_household, privacy_of
from reticent.job.noise import noise_of, recipes_of, vocabulary_name
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
    from reticent.engine.protect import Words
    from reticent.job.artefact import Training
    from reticent.job.run import Run
    from reticent.trainer.config import PrivacyConfig
    from reticent.trainer.recipes import Recipe

#: What the budget calls a vocabulary, where a training has its recipe.
VOCABULARY = "vocabulary"


def charge_lines(run: Run, t: Texts = ENGLISH) -> Iterator[str]:
    """Yield a sentence, without a full stop, on what all private trainings and heads of a job, and its vocabulary,
    cost.
    """
    for spendings in _asked(run, every=True).values():
        asked = [each.guarantee for each in counting(spendings)]
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
        budget.require_room(asked, _num_units(run, asked[0].guarantee.unit))


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
def charged_vocabulary(run: Run, noise: Noise, words: Words, k: int, num_units: int) -> Iterator[None]:
    """Charge a private vocabulary to every budget of a job, then let it be drawn: once for a key, and of another k for
    half of delta more (definitions.md#private-vocabulary). A training by it includes it, and it then counts no more.

    Raises
    ------
    PolicyError
        A budget does not allow it; nothing is drawn.
    """
    name, costs = vocabulary_name(run, words), {}
    for budget in _budgets(run):
        before = next((each for each in budget.spent() if each.run == name), None)
        if before is not None and before.settled and k in before.about["k"]:
            continue  # the same draw again
        asked = _of_vocabulary(run, budget, noise, words, {k, *(before.about["k"] if before is not None else ())})
        costs[budget] = asked.guarantee
        budget.reserve(name, asked.guarantee, num_units, asked.about, "the private vocabulary")
    yield
    for budget, cost in costs.items():
        budget.settle(name, cost)


def _of_vocabulary(run: Run, budget: Budget, noise: Noise, words: Words, all_k: Set[int]) -> Spending:
    unit: Literal["individual", "household"] = "household" if by_household(run.job) else "individual"
    cost = Guarantee(epsilon=noise.epsilon, delta=(1 + len(all_k)) / 2 * noise.delta, unit=unit)
    about = {"recipe": VOCABULARY, "k": sorted(all_k)}
    return Spending(run=vocabulary_name(run, words), corpus=budget.corpus, guarantee=cost, about=about)


def _budgets(run: Run) -> list[Budget]:
    """The budgets that the trainings of a job are charged to; that of the run folder where it has no DP-SGD."""
    found = {}
    for model in run.job.model:
        if run.job.training(model).dp is not None and (budget := budget_of(privacy_of(run, model))):
            found[budget.path] = budget
    own = Budget(path=run.folder / BUDGET_FILE, corpus=run.whole_corpus.fingerprint())
    return list(found.values()) or [own]


def _asked(run: Run, *, every: bool = False) -> dict[Budget, list[Spending]]:
    """By budget the cost of each private training and head of the job, and of its vocabularies: those that are still to
    be made, or ``every`` one. One that was begun stands in the budget.
    """
    found: dict[Budget, list[Spending]] = {}
    for budget in _budgets(run):
        drawn = {each.run for each in budget.spent()}
        for words, (noise, all_k) in _vocabularies(run).items():
            cost = _of_vocabulary(run, budget, noise, words, all_k)
            if every or cost.run not in drawn:
                found.setdefault(budget, []).append(cost)
    for training in _private(run):
        path = run.folder / training[0]
        is_charged = (path / MANIFEST).exists() or bool(parts_of(path))
        if every or not is_charged:
            budget, cost = _cost(run, *training)
            found.setdefault(budget, []).append(cost)
    return found


def _private(run: Run) -> Iterator[tuple[str, Recipe, PrivacyConfig, int, int]]:
    """Yield for each training by DP-SGD its artefact, recipe, DP-SGD, number of epochs, and size of a batch."""
    for training in trainings_of(run.job):
        recipe, settings = run.job.recipe(training.recipe), run.job.training(training.model)
        if recipe.private:
            batch_size = settings.batch_size * settings.gradient_accumulation_steps
            yield training.name, recipe, privacy_of(run, training.model, recipe), settings.num_epochs, batch_size
    if any(head.private for head in run.job.heads):
        yield from resolve("reticent.ext.classify.stage:private_heads")(run)


def _vocabularies(run: Run) -> dict[Words, tuple[Noise, set[int]]]:
    """The vocabularies that a job draws: by what tells their words, the noise and every k."""
    found: dict[Words, tuple[Noise, set[int]]] = {}
    for policy in (run.job.protect, *map(run.job.protection, recipes_of(run.job))):
        noise = noise_of(run, policy.k, policy.words)
        if noise is not None and noise.max_words is not None:
            found.setdefault(policy.words, (noise, set()))[1].add(policy.k)
    return found


def _cost(
    run: Run, name: str, recipe: Recipe, privacy: PrivacyConfig, num_epochs: int, batch_size: int
) -> tuple[Budget, Spending]:
    budget = budget_of(privacy)
    assert budget is not None  # a job has one
    num_units = _num_units(run, privacy.unit)
    target = privacy.target_epsilon
    about = {"recipe": recipe.name, **({} if privacy.includes is None else {"includes": privacy.includes})}
    asked = partial(Spending, run=name, corpus=budget.corpus, about=about)
    if isinstance(target, float):
        cap = None if privacy.unit == "record" else privacy.max_documents
        delta = privacy.target_delta or default_delta(privacy.num_units or num_units)
        cost = Guarantee(epsilon=target, delta=delta, unit=privacy.unit, max_documents=cap)
        return budget, asked(guarantee=cost)
    plan = plan_privacy(privacy, num_units, num_epochs, batch_size, unaccounted_steps(recipe))
    return budget, asked(guarantee=plan.guarantee)


def _num_units(run: Run, unit: str) -> int:
    """About how many units of privacy the members are: as they were split, or else as they will be."""
    corpus = run.whole_corpus
    try:
        is_member = run.individuals.mask(MEMBERS)
        members = len(np.unique(run.individuals.units[is_member])) if unit == "household" else int(is_member.sum())
    except (ReticentError, OSError):
        members = expected_sides(run.job, corpus.num_individuals)[0]
    return max(members if unit != "record" else members * corpus.num_documents // corpus.num_individuals, 1)
