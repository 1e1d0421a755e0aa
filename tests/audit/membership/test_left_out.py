"""Areas of membership without held-out individuals who hold near-copies: given where these are not few."""

from __future__ import annotations

from typing import Any

import numpy as np
from fixtures.audits import estimate, filled

from reticent.audit.evidence.membership import KindAttack, MeasuredAttack
from reticent.audit.evidence.rules import publish
from reticent.audit.membership.attacks import attack
from reticent.audit.membership.measure import MembershipAudit
from reticent.audit.membership.validity import SHARE, keep_without_near_copies

NUM = 400  # on each side
CODES = np.arange(2 * NUM)
IS_MEMBER = CODES < NUM


def test_none_is_left_out_where_few_hold_copies_or_they_were_not_looked_for() -> None:
    copied = np.zeros(2 * NUM, dtype=bool)
    assert keep_without_near_copies(CODES, IS_MEMBER, None) is None
    copied[NUM : NUM + int(SHARE * NUM)] = True
    assert keep_without_near_copies(CODES, IS_MEMBER, copied) is None
    copied[NUM : NUM + int(SHARE * NUM) + 1] = True
    kept = keep_without_near_copies(CODES, IS_MEMBER, copied)
    assert kept is not None
    assert np.flatnonzero(~kept).tolist() == list(range(NUM, NUM + 5))
    members = np.roll(copied, -NUM)  # the documents of members are theirs
    assert keep_without_near_copies(CODES, IS_MEMBER, members) is None


def test_the_area_without_near_copies_is_that_of_a_corpus_without_them() -> None:
    """Of 30 % of the held-out the model knows the texts: they score like members, and .92 seems to be .79."""
    random = np.random.default_rng(0)
    copied = ~IS_MEMBER & (np.arange(2 * NUM) % 10 < 3)
    scores = random.standard_normal(2 * NUM) + 2.0 * (IS_MEMBER | copied)
    audit = object.__new__(MembershipAudit)
    audit.codes, audit.code_member = CODES, IS_MEMBER
    audit.kept = keep_without_near_copies(CODES, IS_MEMBER, copied)
    options: Any = {"num_bootstrap": 200, "seed": 0}
    audit.bootstrap = options
    whole = attack(scores, CODES, IS_MEMBER, **options)
    found = audit._with_auc_without_copies({"loss": whole}, {"loss": scores})["loss"]
    clean = attack(scores[~copied], CODES[~copied], IS_MEMBER[~copied], **options)
    assert whole.auc.value is not None
    assert found.auc_without_copies is not None
    assert found.auc_without_copies.value == clean.auc.value
    assert abs(whole.auc.value - 0.79) < 0.02
    assert abs((clean.auc.value or 0.0) - 0.92) < 0.02
    assert (found.auc, found.auc_without_copies.n) == (whole.auc, 2 * NUM - 120)
    audit.kept = None
    assert audit._with_auc_without_copies({"loss": whole}, {"loss": scores}) == {"loss": whole}


def test_a_published_area_counts_no_few_who_hold_copies() -> None:
    """The two counts of individuals beside each other would tell how many were left out."""
    for cls in (MeasuredAttack, KindAttack):
        for left_out, shown in ((3, False), (5, True), (97, False), (95, True)):
            raw = filled(
                cls,
                {
                    "auc": estimate(0.6, 0.5, 0.7, 200), "num_members": 100, "num_nonmembers": 100,
                    "auc_without_copies": estimate(0.7, 0.6, 0.8, 200 - left_out),
                },
            )  # fmt: skip
            found = publish(raw, 5)
            assert found.auc_without_copies is not None
            assert (found.auc_without_copies.value is not None) == shown, left_out
            assert publish(found, 5) == found
