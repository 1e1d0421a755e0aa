"""The members who are told most easily: no mean hides them, chance alone shows none, and all ends hold at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fixtures.audits import filled
from fixtures.stores import make_store
from scipy import stats

from reticent.audit.config import VerdictConfig
from reticent.audit.evidence.audit import AuditEvidence, ModelEvidence
from reticent.audit.evidence.json_form import to_json
from reticent.audit.evidence.membership import Told
from reticent.audit.evidence.rules import publish
from reticent.audit.judgement.rows import ABOVE, BEYOND, NOT_SHOWN, TOLD, WITHIN
from reticent.audit.judgement.verdict import judge_risks
from reticent.audit.membership.kinds import Compared, KindAudit
from reticent.audit.membership.most_exposed import FPR, chance_of_the_top, most_exposed_members
from reticent.audit.membership.validity import INVALID
from reticent.audit.stats.estimate import LEVEL
from reticent.audit.stats.intervals import auc_estimate, tpr_at_fpr

OPTIONS: dict[str, Any] = {"num_bootstrap": 200, "seed": 0}


def scored(members: int, others: int, certain: int = 0, num: int = 1, seed: int = 0) -> Any:
    """Scores of attacks by chance, but of so many members who stand over everyone; codes and sides."""
    random = np.random.default_rng(seed)
    is_member = np.arange(members + others) < members
    scores = {f"attack {n}": random.standard_normal(members + others) for n in range(num)}
    scores["attack 0"][:certain] += 10.0
    return scores, np.arange(members + others), is_member


@pytest.mark.parametrize(("num", "members", "others"), [(0, 3, 4), (1, 3, 4), (3, 3, 4), (8, 300, 300), (2, 1, 1)])
def test_the_chance_of_the_top_is_hypergeometric(num: int, members: int, others: int) -> None:
    expected = stats.hypergeom.sf(num - 1, members + others, members, num)
    assert chance_of_the_top(num, members, others) == pytest.approx(expected)


def test_the_rate_is_that_of_the_attack_alone_with_ends_that_hold_for_all() -> None:
    scores, codes, is_member = scored(400, 1200, 30, num=5)
    found = most_exposed_members(scores, codes, is_member, **OPTIONS)
    for name, own in scores.items():
        alone = tpr_at_fpr(own[is_member], own[~is_member], FPR, **OPTIONS)
        rate = found[name].rate
        assert alone
        assert rate
        assert (found[name].fpr, rate.value) == (FPR, alone.value)
        assert rate.low <= alone.low + 0.01  # type: ignore[operator]
        assert rate.high >= alone.high  # type: ignore[operator]
    gone = scores["attack 0"].copy()
    gone[is_member] = np.nan
    assert most_exposed_members({"loss": gone}, codes, is_member, **OPTIONS) == {}


def test_of_few_those_above_every_other_are_counted_and_of_households_one() -> None:
    scores, codes, is_member = scored(40, 60, 8)
    found = most_exposed_members(scores, codes, is_member, **OPTIONS)["attack 0"]
    assert (found.fpr, found.num_above, found.p_value) == (None, 8, chance_of_the_top(8, 40, 60))
    families = most_exposed_members(scores, codes, is_member, **OPTIONS, units=codes // 2)["attack 0"]
    assert (families.num_above, families.p_value) == (4, chance_of_the_top(4, 20, 30))
    assert families.rate
    assert (families.rate.n, families.rate.num_households) == (40, 20)
    assert publish(families, 5).num_above is None
    assert publish(families, 5).p_value is None


@pytest.mark.parametrize("size", [1, 2], ids=["individuals", "households"])
def test_an_attack_that_asks_a_part_of_the_members_counts_these(size: int) -> None:
    scores, codes, is_member = scored(1300, 1300 * size)
    scores["attack 0"] = np.where(is_member, -5.0, scores["attack 0"])
    scores["attack 0"][320 * size : 1300] = np.nan
    units = None if size == 1 else codes // size
    found = most_exposed_members(scores, codes, is_member, **OPTIONS, units=units)["attack 0"]
    assert found.rate
    assert (found.fpr, found.rate.n, found.rate.value) == (FPR, 320 * size, 0.0)
    assert found.rate.num_resampled == 320
    assert (found.rate.high or 0.0) >= 3 / 320


AREA = {"value": 0.54, "low": 0.5, "high": 0.58, "n": 600}


def outcome(told: dict[str, Told], risk: str = "individual", faulty: str = "") -> tuple[str, str]:
    """The outcome of a risk by areas that are within, beside the members who are told; the twin is loud. ``faulty``:
    the sides differ ("split"), or a fault of the run stands ("run")."""
    loud = Told(rate=auc_estimate(np.ones(400), np.zeros(400), **OPTIONS), fpr=FPR, num_above=400, p_value=0.0)
    counts = {"num_members": 300, "num_nonmembers": 300, "auc": AREA}
    models = []
    for recipe, of in (("ppclm", told), ("clm", dict.fromkeys(told, loud))):
        area = AREA if recipe == "ppclm" else {**AREA, "value": 0.9, "low": 0.8, "high": 0.95}
        shadows: dict[str, Any] = {"num_shadows": 8}
        own = counts | (shadows if risk == "individual" else {})
        if faulty == "split" and risk == "individual":
            own |= {"verdict": INVALID, "why": "a reason"}
        attacked = {
            name.replace("attack 0", "lira"): {**own, "auc": area, "told": to_json(one)} for name, one in of.items()
        }
        one: dict[str, Any] = {"model": "m", "recipe": recipe, "objective": "clm", "epoch": 8}
        key = "membership" if risk == "individual" else "by_kind"
        one[key] = attacked if risk == "individual" else {"rare": {"share": 0.1, "attacks": attacked, **shadows}}
        if faulty == "split" and risk == "words":
            one[key]["rare"]["why"] = "a reason"
        one |= {"fault": "a reason"} if faulty == "run" else {}
        models.append(filled(ModelEvidence, one))
    audit = filled(AuditEvidence, {"corpus": {}})
    results = judge_risks(
        type(audit)(**{**{f: getattr(audit, f) for f in audit.__slots__}, "models": models}), VerdictConfig()
    )
    found = next(result for result in results.rows[0].results if result.risk == risk)
    return found.outcome, found.what or ""


@pytest.mark.parametrize("risk", ["individual", "words"])
@pytest.mark.parametrize(
    ("members", "others", "certain", "num", "expected", "what"),
    [
        (300, 300, 30, 5, BEYOND, ABOVE),
        (300, 300, 9, 13, BEYOND, ABOVE),
        (300, 300, 2, 13, NOT_SHOWN, ""),
        (300, 300, 0, 5, NOT_SHOWN, ""),
        (60, 60, 4, 5, NOT_SHOWN, ""),
        (6, 6, 3, 2, NOT_SHOWN, ""),
        (1000, 1000, 100, 5, BEYOND, TOLD),
        (1000, 1000, 0, 5, WITHIN, ""),
        (300, 1000, 60, 5, BEYOND, TOLD),
        (299, 1000, 0, 5, NOT_SHOWN, ""),
    ],
)
def test_a_tenth_who_are_certain_are_not_within(
    risk: str, members: int, others: int, certain: int, num: int, expected: str, what: str
) -> None:
    told = most_exposed_members(*scored(members, others, certain, num), **OPTIONS)
    found, by = outcome(told, risk)
    assert found == expected
    assert what in by


@pytest.mark.parametrize("risk", ["individual", "words"])
@pytest.mark.parametrize(
    ("faulty", "certain", "num", "expected"),
    [("split", 100, 1000, NOT_SHOWN), ("split", 30, 300, NOT_SHOWN), ("run", 0, 1000, NOT_SHOWN),
     ("run", 100, 1000, BEYOND)],
)  # fmt: skip
def test_what_says_nothing_by_its_area_tells_no_members_either(
    risk: str, faulty: str, certain: int, num: int, expected: str
) -> None:
    told = most_exposed_members(*scored(num, num, certain, 3), **OPTIONS)
    told = {name.replace("attack 0", "loss"): one for name, one in told.items()}
    assert outcome(told, risk, faulty)[0] == expected


@pytest.mark.parametrize(("taught", "expected"), [("ordinary", BEYOND), ("more", NOT_SHOWN)])
def test_attacks_on_the_same_words_are_one_test(taught: str, expected: str) -> None:
    """A recipe that protects all identifying words is taught the ordinary ones: 8 of 300 are told by 8 attacks."""
    told = most_exposed_members(*scored(300, 300, num=8), **OPTIONS)
    told = {
        name: replace(one, p_value=chance_of_the_top(8 * (name == "attack 0"), 300, 300)) for name, one in told.items()
    }
    counts = {"num_members": 300, "num_nonmembers": 300}
    ordinary = {name: {**counts, "auc": AREA, "told": to_json(one)} for name, one in told.items()}
    targets = {name: {**one, "auc": AREA if taught == "ordinary" else {**AREA, "value": 0.55}}
               for name, one in ordinary.items()}  # fmt: skip
    kinds = {kind: {"share": 0.5, "attacks": of} for kind, of in (("ordinary", ordinary), ("targets", targets))}
    one = {"model": "m", "recipe": "ppclm", "objective": "clm", "epoch": 8, "by_kind": kinds}
    audit = replace(filled(AuditEvidence, {"corpus": {}}), models=[filled(ModelEvidence, one)])
    results = {result.risk: result.outcome for result in judge_risks(audit, VerdictConfig()).rows[0].results}
    assert results["individual"] == expected


def test_by_chance_nobody_is_told() -> None:
    """Of the draws of 12 attacks, at most 5 % and two standard errors are beyond."""
    for members, others in ((60, 60), (300, 1000)):
        options = OPTIONS | {"num_bootstrap": 100}
        draws = 60 if members == 60 else 8
        beyond = sum(
            outcome(most_exposed_members(*scored(members, others, num=12, seed=seed), **options))[0] == BEYOND
            for seed in range(draws)
        )
        assert beyond <= 0.05 * draws + 2 * (0.05 * 0.95 * draws) ** 0.5


@pytest.mark.parametrize(("size", "copies"), [(1200, 24), (300, 1)])
def test_near_copies_hide_nobody_who_is_told(size: int, copies: int) -> None:
    """A tenth of the members stand over every other person, and beside them who holds copies of their documents."""
    scores, codes, is_member = scored(size, size, size // 10)
    copied = (codes >= size) & (codes < size + copies)
    log_probs = np.where(copied, 20.0, scores["attack 0"]) - 30.0
    store = make_store(*[[(5, 0, 0)]] * (2 * size))
    shares = []
    for uncopied in (None, ~copied):
        found, _ = KindAudit(store, is_member, {"num_bootstrap": 200, "seed": 0}, uncopied=uncopied).measure(
            log_probs.astype(np.float32), None
        )
        told = found["ordinary"].attacks["loss"].told
        assert told
        assert told.rate
        shares.append(told.rate.value or 0.0)
    assert shares[0] < 0.02 < 0.1 <= shares[1] < 0.12


@pytest.mark.parametrize("size", [20, 60])
def test_ends_of_all_kinds_and_attacks_hold_at_once(size: int) -> None:
    """Nothing leaks: an area of .5 is outside of one of 10 intervals in one of twenty draws at most, and without
    near-copies too."""
    outside, draws = 0, 60
    random = np.random.default_rng(size)
    is_member = np.arange(2 * size) < size
    kept = is_member | (np.arange(2 * size) % 3 > 0)
    for _ in range(draws):
        common = random.standard_normal(2 * size)
        scores = {str(n): 0.7 * common + 0.7 * random.standard_normal(2 * size) for n in range(10)}
        audit = KindAudit(make_store(*[[(5, 0, 0)]] * (2 * size)), is_member, {"num_bootstrap": 200, "seed": 1}, kept)
        found = audit._joint_aucs({("rare", name): Compared(own) for name, own in scores.items()}, LEVEL)
        areas = [one.auc for one in found.values()]
        assert len(areas) == 20
        outside += not all(a.low <= 0.5 <= a.high for a in areas)  # type: ignore[operator]
    assert outside <= 0.05 * draws + 2 * (0.05 * 0.95 * draws) ** 0.5
