"""Who withdrew between two releases of a model (definitions.md#two-releases), inferred from the difference of their
losses.

The attacker has both models. The first was trained on the documents of those who withdrew and the second was not, so
its loss is larger; on individuals who were in neither, the two differ by chance [@chen2021].
"""

from __future__ import annotations

from typing import Unpack

import numpy as np

from reticent.audit.evidence.membership import KindAttack
from reticent.audit.membership.attacks import FPRS, reference_score, scores_of
from reticent.audit.membership.most_exposed import most_exposed_members
from reticent.audit.membership.names import WITHDRAWN
from reticent.audit.scoring.token_scores import TokenScores
from reticent.audit.stats.intervals import Bootstrap, auc_estimate, tpr_at_fpr


def withdrawn_attack(
    before: TokenScores,
    after: TokenScores,
    individuals: np.ndarray,
    has_left: np.ndarray,
    copied: np.ndarray | None = None,
    **bootstrap: Unpack[Bootstrap],
) -> KindAttack:
    """Return the result of the attack that tells which individuals withdrew between two releases of a model. An
    individual's score is the mean log-probability per token under the earlier release minus that under the later one.

    Parameters
    ----------
    before, after : scores of the same tokens under the two releases
    individuals : uint32 array, shape (D,)
    has_left : bool array, shape (D,), documents of those who withdrew; the others were in neither release
    copied : bool array by code, who holds near-copies of a member's document; of those in neither release they are
        left out, as the earlier release knew their text too
    """
    codes, first = np.unique(individuals, return_index=True)
    scores, left = scores_of(codes, reference_score(before, after), individuals), has_left[first]
    if copied is not None:
        scores = np.where(copied[codes] & ~left, np.nan, scores)
    sides = [np.flatnonzero(side & ~np.isnan(scores)) for side in (left, ~left)]
    own, of_sides = (scores[sides[0]], scores[sides[1]]), (codes[sides[0]], codes[sides[1]])
    return KindAttack(
        auc=auc_estimate(*own, of_sides, **bootstrap),
        tpr=tpr_at_fpr(*own, FPRS[0], of_sides, **bootstrap),
        num_members=len(sides[0]),
        num_nonmembers=len(sides[1]),
        told=most_exposed_members({WITHDRAWN: scores}, codes, left, **bootstrap).get(WITHDRAWN),
    )
