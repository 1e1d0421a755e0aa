"""Evidence of the attacks on a classifier or tagger head: attacks over individuals, from what the head predicts for
labels of documents.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from reticent.audit.evidence.heads import ToldAttribute, ToldNames
from reticent.audit.evidence.leakage import SideUtility, Utility
from reticent.audit.evidence.membership import Blind
from reticent.audit.evidence.model import ModelEvidence
from reticent.audit.leakage.words import Words
from reticent.audit.membership.blind import BlindFeatures, blind_baseline
from reticent.audit.membership.heads import HEAD_ATTACKS, HeadScores, HeadShadows, head_controls, head_scores
from reticent.audit.membership.measure import AttackedIndividuals
from reticent.audit.membership.table import Need
from reticent.audit.stats.intervals import Bootstrap, best_of, joint_areas
from reticent.engine.store import TokenStore


def head_evidence(
    store: TokenStore,
    members: np.ndarray,
    scores: HeadScores,
    shadows: HeadShadows | None,
    *,
    labels: tuple[np.ndarray, np.ndarray],
    objective: str,
    recipe: str,
    epoch: int,
    start: str,
    protects: bool,
    bootstrap: Bootstrap,
    copied: np.ndarray | None = None,
    attributes: Mapping[str, ToldAttribute] | None = None,
    names: ToldNames | None = None,
) -> ModelEvidence:
    """Return the results of the membership attacks on a classifier or tagger head as evidence, from the head's scores
    and those of its shadow models, with a baseline attack that sees only the labels of the documents.

    Parameters
    ----------
    store : the D labelled documents of members and held-out individuals; members : bool array, shape (D,)
    labels : as for `labels_alone`
    recipe : name of the head in tables; start : recipe of the checkpoint that it was trained on, of ``epoch``
    copied : as for `MembershipAudit`
    """
    asked = AttackedIndividuals(store, members, bootstrap, copied=copied)
    attacks, compared = asked.run_attacks(head_scores(scores, shadows), head_controls(shadows))
    own = {name: one[0] for name, one in compared.items()}
    before = {name: one[1] for name, one in compared.items()}
    areas = joint_areas(own, asked.codes, asked.code_member, base=before, **bootstrap)
    num_shadows = None if shadows is None else len(shadows.scores)
    membership = {
        name: replace(
            one,
            over_base=areas[name].over_base if name in areas else None,
            num_shadows=num_shadows if Need.SHADOWS in HEAD_ATTACKS[name].needs else None,
        )
        for name, one in attacks.items()
    }
    return ModelEvidence(
        name=recipe,
        recipe=recipe,
        objective=objective,
        epoch=epoch,
        start=start,
        protects=protects,
        utility=Utility(heldout=SideUtility()),
        privacy={},
        membership=membership,
        best_attack=best_of(areas),
        blind=labels_alone(store.individual, members, *labels, bootstrap),
        attributes=dict(attributes) if attributes else None,
        names=names,
    )


def labels_alone(
    individuals: np.ndarray, members: np.ndarray, documents: np.ndarray, labels: np.ndarray, bootstrap: Bootstrap
) -> Blind:
    """Return how well the labels of the documents, or their number, tell members from held-out individuals without any
    model.

    Parameters
    ----------
    individuals, members : of each document, shape (D,)
    documents, labels : int64 arrays, shape (labels,), each label in place of a word of its document
    """
    num, none = len(labels), np.zeros(len(labels), dtype=np.uint8)
    bag = Words(np.arange(num), np.ones(num, dtype=np.int64), documents, individuals[documents], none, none)
    found = blind_baseline(BlindFeatures.of(bag, labels, members, units=bootstrap.get("units")), bootstrap["seed"])
    return replace(found, by="labels") if found.by == "words" else found
