"""What a run's audit will be able to show, printed beforehand: how many individuals the verdict *within* needs for each
risk, what the recipes lower and do not, and what shadow models cost.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from reticent.audit.config import WHOLE_PASSAGE, VerdictConfig
from reticent.audit.judgement.rows import MIN_SHADOWS, PLAIN, RISKS, Risk
from reticent.audit.judgement.verdict import LONGER
from reticent.audit.texts import ENGLISH, Texts
from reticent.core.errors import ReticentError
from reticent.engine.split import count_units
from reticent.job.artefact import head_starts, repetition_cost_factor
from reticent.job.checks import OF_RMIA
from reticent.job.config import Job, ModelSection
from reticent.job.run import Run
from reticent.trainer.config import FEWEST_REPEATED

#: Members and held-out individuals (households, where the split has some).
Sides = tuple[int, int]


def expected_sides(job: Job, num_units: int) -> Sides:
    """Return the numbers of members and of held-out units that the split is expected to make of ``num_units``
    individuals or households."""
    split = job.split
    return round(num_units * (1 - split.heldout - split.reference)), round(num_units * split.heldout)


def sides_of(run: Run) -> Sides | None:
    """Return the numbers of members and of held-out individuals of a run (of households, where the split keeps these
    together), from its split or else estimated from its documents; None where these cannot be read yet."""
    try:
        return run.sides
    except (ReticentError, OSError):
        pass
    try:
        return expected_sides(run.job, count_units(run.whole_corpus, run.job.split))
    except (ReticentError, OSError):
        return None


def membership_is_reachable(job: Job, sides: Sides) -> bool:
    """Return whether there are enough members and held-out individuals (``sides``) to show that a risk measured by
    shadow models is within its threshold."""
    return any(_has_enough_individuals(risk, job, sides) for risk in RISKS.values() if risk.by_shadows)


def reach_lines(job: Job, sides: Sides | None, t: Texts = ENGLISH) -> Iterator[str]:
    """Yield sentences, without a full stop, on what an audit can show: how many individuals each risk needs and the job
    has, which risks each recipe lowers, and what shadow models cost. ``t`` has the texts of a language."""
    yield t("reach.heading")
    objectives = {model.objective for model in job.model}
    for risk in RISKS.values():
        if not risk.objectives or objectives & set(risk.objectives):
            yield "; ".join(_needed_individuals_clauses(risk, job, sides, t))
    for model in job.model:
        yield from _model_sentences(model, job, t)
    if (shadow := job.audit.shadow) is not None:
        attacked = [model for model in job.model for recipe in model.recipes if recipe in shadow.recipes]
        work = shadow.num_shadows * sum(_repetition_factor(model.repeated or 0, sides) for model in attacked)
        yield t("reach.shadows", n=len(attacked) * shadow.num_shadows, times=_num_trainings(job, work))
        if not any(model.repeated for model in job.model):
            yield _positive_control_sentence(job, sides, t)
    if n := _num_shadow_heads(job):
        yield t("reach.shadow_heads", n=n, times=_num_trainings(job, n))


def _num_shadow_heads(job: Job) -> int:
    """Return the number of shadow models for all classification and tagging heads of a job: ``num_shadows`` for each
    head and checkpoint that heads are trained on, and for the unprotected control of heads trained with protection.
    """
    starts = [(head, head_starts(job, head, model)) for head in job.heads for model in job.model]
    heads = sum(len(found) + (head.protects and bool(found)) for head, found in starts)
    return heads * job.audit.heads.num_shadows if job.audit.heads is not None else 0


def _needed_individuals_clauses(risk: Risk, job: Job, sides: Sides | None, t: Texts) -> Iterator[str]:
    """Yield clauses on how many individuals are needed to show that a risk is within its threshold, how many are
    missing, and whether the job measures it. ``t`` has the texts of a language."""
    at_most = _risk_threshold(risk, job)
    members, others = _fewest_individuals(risk, job)
    title, area = t.evidence(risk.title), risk.by_shadows
    threshold = t.threshold(at_most, area=area)
    yield t("reach.needs", risk=title, at_most=threshold, members=t.count(members), others=t.count(others))
    if sides is not None:
        have = {"members": t.count(sides[0]), "others": t.count(sides[1])}
        if _has_enough_individuals(risk, job, sides):
            yield t("reach.enough", **have)
        else:
            more = [max(needed - there, 0) for needed, there in zip((members, others), sides, strict=True)]
            of_members = t("reach.n_members", n=t.count(more[0]), count=more[0])
            of_others = t("reach.n_others", n=t.count(more[1]), count=more[1])
            yield t("reach.missing", **have, more_members=of_members, more_others=of_others)
    sections = {"context": job.audit.inversion, "passages": job.extraction}
    if sections.get(risk.name, True) is None:
        yield t("reach.not_measured", by=risk.measured_by)
    elif risk.name == "passages" and job.extraction and job.extraction.suffix_tokens < WHOLE_PASSAGE:
        yield t("reach.short_passages", tokens=WHOLE_PASSAGE)


def _model_sentences(model: ModelSection, job: Job, t: Texts) -> Iterator[str]:
    """Yield sentences on which risks each recipe of a model lowers. They also name what the job lacks to show it:
    shadow models, or a recipe without protection to compare with.
    """
    twin = next((recipe for recipe in model.recipes if recipe in PLAIN), None)
    if twin is None:
        yield t("reach.no_twin", model=model.name, twin=model.objective)
    shadow = job.audit.shadow
    strong = shadow.recipes if shadow is not None and shadow.num_shadows >= MIN_SHADOWS else ()
    risks = [risk for risk in RISKS.values() if not risk.objectives or model.objective in risk.objectives]
    for name in model.recipes:
        if name in PLAIN:
            continue
        titles: dict[bool, list[str]] = {True: [], False: []}
        for risk in risks:
            titles[risk.is_lowered(job.recipe(name))].append(t.evidence(risk.title))
        closed, left = (t.listed(titles[lowered]) for lowered in (True, False))
        about = {"recipe": name, "model": model.name}
        yield t("reach.lowers", **about, closed=closed, open=left) if closed else t("reach.lowers_none", **about)
        if twin is not None and not {name, twin} <= set(strong):
            n = 2 * MIN_SHADOWS
            of = t.listed([t.evidence(risk.title) for risk in risks if risk.by_shadows])
            yield t(
                "reach.no_shadows", **about, risks=of, least=MIN_SHADOWS, twin=twin, n=n, times=_num_trainings(job, n)
            )


def _positive_control_sentence(job: Job, sides: Sides | None, t: Texts) -> str:
    """Return the sentence that recommends a positive control, a model that must leak: by longer training or by repeated
    documents, whichever costs less. The sentence tells its cost, with the fewest shadow models that the attack needs.
    """
    how, often = t("reach.longer", longer=LONGER), float(LONGER)
    if sides is not None and sides[0] >= FEWEST_REPEATED and _repetition_factor(FEWEST_REPEATED, sides) < LONGER:
        how, often = t("reach.repeated", num=FEWEST_REPEATED), _repetition_factor(FEWEST_REPEATED, sides)
    return t("reach.weak_twin", how=how, times=round(often * (1 + _num_trainings(job, MIN_SHADOWS))))


def _repetition_factor(num_repeated: int, sides: Sides | None) -> float:
    """Return the factor by which training takes longer when ``num_repeated`` members are repeated; 1 while the number
    of members is unknown."""
    return 1.0 if sides is None else repetition_cost_factor(num_repeated, sides[0])


def _num_trainings(job: Job, num_shadows: float) -> int:
    """Return how many trainings of a model cost as much as ``num_shadows`` shadow models, which are trained on half of
    the members and held-out individuals each; at least 1.
    """
    split = job.split
    return max(round(num_shadows * (1 - split.reference) / 2 / (1 - split.heldout - split.reference)), 1)


def _has_enough_individuals(risk: Risk, job: Job, sides: Sides) -> bool:
    """Return whether there are enough members and held-out individuals (``sides``) to show that a risk is within its
    threshold."""
    return all(there >= fewest for there, fewest in zip(sides, _fewest_individuals(risk, job), strict=True))


def _fewest_individuals(risk: Risk, job: Job) -> Sides:
    """Return the fewest members and held-out individuals that can show a risk within its threshold; held-out
    individuals that an attack uses as reference population come on top."""
    members, others = risk.fewest(_risk_threshold(risk, job))
    shadow = job.audit.shadow
    if risk.by_shadows and shadow is not None and not set(OF_RMIA["population"]).isdisjoint(shadow.attacks):
        others = math.ceil(others / (1 - shadow.population))
    return members, others


def _risk_threshold(risk: Risk, job: Job) -> float:
    """Return the threshold of a risk in the job's ``[verdict]``, or the default."""
    found: float = getattr(job.verdict or VerdictConfig(), risk.name)
    return found
