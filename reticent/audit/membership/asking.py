"""Attacks that need more than the likelihood of the documents: generated text, the document after a copy of itself,
gradients, or earlier checkpoints (definitions.md#attacks-that-ask-the-model)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from reticent.audit.membership.attacks import ATTACKS, document_means, reference_score
from reticent.audit.membership.coverage import coverage_score
from reticent.audit.membership.heads import HEAD_ATTACKS
from reticent.audit.membership.hidden_states import states_score
from reticent.audit.membership.names import (
    CHECKPOINTS,
    COVERAGE,
    GRADIENT,
    INFORMATION,
    PROBING,
    SELF_CALIBRATION,
    STATES,
)
from reticent.audit.membership.shadow import SHADOW_ATTACKS
from reticent.audit.membership.table import Attack, Need, table_of


def probing_score(plain: np.ndarray, probed: np.ndarray) -> np.ndarray:
    """Return each passage's mean log-probability alone, minus the highest one after a copy of the passage with gaps,
    float64 (D,). It is high for passages that the model knows already, which gain little from the copy.

    Parameters
    ----------
    plain, probed : mean log-probability alone, float (D,), and after each copy with gaps, float (D, copies)
    """
    if probed.shape[1] == 0:
        return np.full(len(plain), np.nan)
    return plain - probed.max(axis=1)


def information_score(information: np.ndarray, mask: np.ndarray, doc_offsets: np.ndarray) -> np.ndarray:
    """Return each document's mean InfoRMIA score over the tokens of a mask, float64 (D,); NaN without such a token.

    Parameters
    ----------
    information : float array, shape (T,), of `reticent.audit.scoring.scores.score_information`
    mask : bool array, shape (T,)
    """
    return document_means(information, mask & ~np.isnan(information), doc_offsets)


def checkpoints_score(means: np.ndarray) -> np.ndarray:
    """Return the least-squares slope of each document's mean log-probability over the checkpoints of a training, in
    nats a checkpoint; float64 (D,).

    Parameters
    ----------
    means : float array, shape (checkpoints, D), two checkpoints or more in the order of their epochs
    """
    place = np.arange(len(means)) - (len(means) - 1) / 2
    return np.asarray(place @ means / (place @ place))


#: Every such attack by name. Each score function has arguments of its own.
ASKING_ATTACKS: Final[Mapping[str, Attack]] = table_of(
    (
        Attack(
            name=COVERAGE,
            score=coverage_score,
            title="N-gram coverage",
            about="asked to continue the document, the model writes runs of the document's own words; the attack sees "
            "the text that the model writes, and no probability",
            source="Hallinan et al. 2025",
            needs=frozenset({Need.GENERATED}),
            objectives=frozenset({"clm"}),
        ),
        Attack(
            name=PROBING,
            score=probing_score,
            title="In-context probing",
            about="a copy of the document with gaps, put before it, helps the model little: it knows the document "
            "already",
            source="Lu et al. 2025",
            needs=frozenset({Need.PROBES}),
            objectives=frozenset({"clm"}),
        ),
        Attack(
            name=GRADIENT,
            score=np.negative,
            title="Gradient norm",
            about="the model has little left to learn from the ordinary words of the document; the attack has the "
            "weights",
            source="Nasr et al. 2019",
            needs=frozenset({Need.GRADIENTS}),
        ),
        Attack(
            name=INFORMATION,
            score=information_score,
            title="InfoRMIA by token",
            about="tokens of the document gained more over the base model than its prediction moved at their places; "
            "the attack sees whole predictions",
            source="Tao and Shokri 2026",
            needs=frozenset({Need.BASE}),
        ),
        Attack(
            name=STATES,
            score=states_score,
            title="Probe of hidden states",
            about="the last hidden states of its documents look like those of members that a classifier learned from; "
            "the attack knows some members, and has the states of the documents",
            source="Liu et al. 2024",
        ),
        Attack(
            name=CHECKPOINTS,
            score=checkpoints_score,
            title="Slope over checkpoints",
            about="the model goes on learning the document from one checkpoint to the next; the attack has the earlier "
            "checkpoints",
            source="Liu et al. 2022",
            needs=frozenset({Need.CHECKPOINTS}),
        ),
        Attack(
            name=SELF_CALIBRATION,
            score=reference_score,
            title="Self-calibration",
            about="the model predicts the document better than its base model does after training on what the model "
            "writes",
            source="Fu et al. 2024",
            needs=frozenset({Need.CALIBRATED}),
            objectives=frozenset({"clm"}),
        ),
    )
)


# ----------------------------------------------------------------------------------------------------------- catalogue
#
# Attacks of all families in one table.


#: Attacks by name, in the order in which a report explains them.
EVERY_ATTACK: Final[Mapping[str, Attack]] = table_of(
    (*ATTACKS.values(), *ASKING_ATTACKS.values(), *SHADOW_ATTACKS.values(), *HEAD_ATTACKS.values())
)
