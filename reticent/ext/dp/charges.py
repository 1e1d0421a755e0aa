"""Joint privacy cost of a job's private trainings, heads and private vocabulary, before the first and after each.

A sweep (a list in ``train.dp.target_epsilon``) is charged for all of its trainings, whichever is used, since the choice
depends on all of them. A private vocabulary is charged before it is drawn; it is spent then, and a kill gives nothing
back.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from reticent.audit.texts import ENGLISH, Texts
from reticent.core.artifact import MANIFEST, resumable_folders_of
from reticent.core.errors import ReticentError
from reticent.core.resolve import resolve
from reticent.engine.schema import MEMBERS
from reticent.engine.split import count_units
from reticent.ext.dp.budget import Budget, Spending, budget_of, counted_entries, totals
from reticent.job.artefact import trainings_of
from reticent.job.dependencies import by_household, privacy_of
from reticent.job.noise import noise_of, recipes_of, vocabulary_name
from reticent.job.reach import expected_sides
from reticent.trainer.privacy import (
    BUDGET_FILE,
    Guarantee,
    plan_privacy,
    plan_sampling,
    require_reachable_epsilon,
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
    """Yield one phrase for each privacy budget that several trainings, heads or vocabularies of a job are charged to:
    the epsilon of each of them, and of all together.
    """
    for spendings in _pending_costs(run, include_charged=True).values():
        asked = [each.guarantee for each in counted_entries(spendings)]
        total = together(asked)
        each = t.listed([show_epsilon(one.epsilon) for one in asked if one.epsilon is not None])
        if total is not None and len(asked) > 1:
            yield t("reach.charged", n=len(asked), each=each, total=t.evidence(str(total)))


def check_charges(run: Run) -> None:
    """Print the joint privacy cost of a job's private trainings, and raise `PolicyError` if a budget does not allow
    them.
    """
    for line in charge_lines(run):
        run.progress.say_once(line)
    require_room(run)


def require_room(run: Run) -> None:
    """Raise `PolicyError` if a budget does not allow all private trainings of a job that are not charged yet."""
    for budget, asked in _pending_costs(run).items():
        budget.require_room(asked, _num_units_of_limit(run, budget))


def spent_so_far(run: Run, training: Training) -> str:
    """Return a phrase on the total epsilon and delta charged to a training's budget on these documents."""
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
def charge_vocabulary(run: Run, noise: Noise, words: Words, k: int) -> Iterator[None]:
    """Context manager around the drawing of a private vocabulary (words that about k individuals or more use): charge
    it to every budget of the job before, and settle its cost after.

    Each further support threshold k of the same draw costs half of delta (definitions.md#private-vocabulary). The cost
    of a training by the vocabulary includes that of the vocabulary, which then no longer counts itself.

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
        asked = _vocabulary_entry(run, budget, noise, words, {k, *(before.about["k"] if before is not None else ())})
        costs[budget] = asked.guarantee
        budget.reserve(name, asked.guarantee, _num_units_of_limit(run, budget), asked.about, "the private vocabulary")
    yield
    for budget, cost in costs.items():
        budget.settle(name, cost)


def _vocabulary_entry(run: Run, budget: Budget, noise: Noise, words: Words, thresholds: Set[int]) -> Spending:
    """Return the budget entry (privacy cost) of drawing a private vocabulary for these ``thresholds``, each a number k
    of individuals who must use a word for it to be in the vocabulary.
    """
    unit: Literal["individual", "household"] = "household" if by_household(run.job) else "individual"
    cost = Guarantee(epsilon=noise.epsilon, delta=(1 + len(thresholds)) / 2 * noise.delta, unit=unit)
    about = {"recipe": VOCABULARY, "k": sorted(thresholds)}
    return Spending(run=vocabulary_name(run, words), corpus=budget.corpus, guarantee=cost, about=about)


def _budgets(run: Run) -> list[Budget]:
    """Return the privacy budgets that the private trainings of a job are charged to; that in the run folder if
    no training is private."""
    found = {}
    for model in run.job.model:
        if run.job.training(model).dp is not None and (budget := budget_of(privacy_of(run, model))):
            found[budget.path] = budget
    own = Budget(path=run.folder / BUDGET_FILE, corpus=run.whole_corpus.fingerprint())
    return list(found.values()) or [own]


def _pending_costs(run: Run, *, include_charged: bool = False) -> dict[Budget, list[Spending]]:
    """Return budget -> entries of the job's private trainings, heads and vocabularies that are not charged yet; with
    ``include_charged`` also those that are. Raise `PolicyError` if no noise reaches the epsilon of an uncharged
    training.
    """
    found: dict[Budget, list[Spending]] = {}
    for budget in _budgets(run):
        drawn = {each.run for each in budget.spent()}
        for words, (noise, all_k) in _vocabularies(run).items():
            cost = _vocabulary_entry(run, budget, noise, words, all_k)
            if include_charged or cost.run not in drawn:
                found.setdefault(budget, []).append(cost)
    for name, recipe, privacy, *size in _private_trainings(run):
        path = run.folder / name
        is_charged = (path / MANIFEST).exists() or bool(resumable_folders_of(path))
        if not is_charged:
            require_reachable_epsilon(privacy, _num_units(run, privacy.unit), *size)
        if include_charged or not is_charged:
            budget, cost = _training_entry(run, name, recipe, privacy, *size)
            found.setdefault(budget, []).append(cost)
    return found


def _private_trainings(run: Run) -> Iterator[tuple[str, Recipe, PrivacyConfig, int, int]]:
    """Yield (artefact name, recipe, DP-SGD settings, number of epochs, batch size) for each private training and head
    of a job.
    """
    for training in trainings_of(run.job):
        recipe, settings = run.job.recipe(training.recipe), run.job.training(training.model)
        if recipe.private:
            batch_size = settings.batch_size * settings.gradient_accumulation_steps
            yield training.name, recipe, privacy_of(run, training.model, recipe), settings.num_epochs, batch_size
    if any(head.private for head in run.job.heads):
        yield from resolve("reticent.ext.classify.stage:private_heads")(run)


def _vocabularies(run: Run) -> dict[Words, tuple[Noise, set[int]]]:
    """Return the private vocabularies that a job draws: source of words ("private", "counted") -> (noise, all
    thresholds k). A threshold is the number of individuals who must use a word.
    """
    found: dict[Words, tuple[Noise, set[int]]] = {}
    for policy in (run.job.protect, *map(run.job.protection, recipes_of(run.job))):
        noise = noise_of(run, policy.k, policy.words)
        if noise is not None and noise.max_words is not None:
            found.setdefault(policy.words, (noise, set()))[1].add(policy.k)
    return found


def _training_entry(
    run: Run, name: str, recipe: Recipe, privacy: PrivacyConfig, num_epochs: int, batch_size: int
) -> tuple[Budget, Spending]:
    """Return the budget of a private training, and the entry that it will be charged."""
    budget = budget_of(privacy)
    assert budget is not None  # a job has one
    num_units = _num_units(run, privacy.unit)
    target = privacy.target_epsilon
    about = {"recipe": recipe.name, **({} if privacy.includes is None else {"includes": privacy.includes})}
    asked = partial(Spending, run=name, corpus=budget.corpus, about=about)
    if isinstance(target, float):
        cap = None if privacy.unit == "record" else privacy.max_documents
        _, delta, *_ = plan_sampling(privacy, num_units, num_epochs, batch_size)
        cost = Guarantee(epsilon=target, delta=delta, unit=privacy.unit, max_documents=cap)
        return budget, asked(guarantee=cost)
    plan = plan_privacy(privacy, num_units, num_epochs, batch_size, unaccounted_steps(recipe))
    return budget, asked(guarantee=plan.guarantee)


def _num_units_of_limit(run: Run, budget: Budget) -> int:
    """Return the number of privacy units N from which a budget's limit on delta is 1 / N by default: the largest number
    that a training charged to it declares or, if it declares none, has among the members.

    Each training is held to its own number, once the vocabulary is spent.
    """
    settings = [privacy for _, _, privacy, *_ in _private_trainings(run) if budget_of(privacy) == budget]
    numbers = [privacy.num_units or _num_units(run, privacy.unit) for privacy in settings]
    return max(numbers, default=0) or _num_units(run, "household" if by_household(run.job) else "individual")


def _num_units(run: Run, unit: str) -> int:
    """Return the number of privacy units (``unit``: individual, household or record) among the members, at least 1;
    before the split exists, the expected number.
    """
    corpus = run.whole_corpus
    try:
        is_member = run.individuals.mask(MEMBERS)
        members = len(np.unique(run.individuals.units[is_member])) if unit == "household" else int(is_member.sum())
    except (ReticentError, OSError):
        units = count_units(corpus, run.job.split) if unit == "household" else corpus.num_individuals
        members = expected_sides(run.job, units)[0]
    return max(members if unit != "record" else members * corpus.num_documents // corpus.num_individuals, 1)
