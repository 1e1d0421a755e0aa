"""User inference: does a model's loss on documents outside its training data reveal whether the *individual* is a
member?

The documents belong to members and to held-out individuals. One rule draws them on both sides
(`reticent.engine.split.draw_user_inference_holdout`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from reticent.audit.evidence.membership import Blind
from reticent.audit.leakage.words import SurfaceTable, words_of
from reticent.audit.membership.blind import blind_baseline
from reticent.core.errors import ArtifactError
from reticent.engine.store import TokenStore

__all__ = ["UserInferenceHoldout"]


@dataclass(frozen=True, slots=True)
class UserInferenceHoldout:
    """Tokens of the holdout documents, and a mask of the members' documents (bool, shape (store.num_documents,))."""

    store: TokenStore
    members: np.ndarray

    @classmethod
    def beside(cls, audit: TokenStore, members: np.ndarray, holdout: TokenStore | None) -> UserInferenceHoldout:
        """Return the holdout documents of the individuals of an audit. An individual without any other document has no
        document in the audit, and is left out.

        Parameters
        ----------
        members : bool array, shape (audit.num_documents,)

        Raises
        ------
        ArtifactError
            There is no holdout, or one of its documents is a document of the audit.
        """
        if holdout is None:
            raise ArtifactError("the attack user_inference needs the tokens of documents that training never sees")
        seen = int(pc.sum(pc.is_in(holdout.doc_ids, value_set=audit.doc_ids)).as_py() or 0)
        if seen:
            raise ArtifactError(
                f"{seen} documents of the holdout are documents of the audit: members were trained on theirs"
            )
        holdout = holdout.select(np.flatnonzero(np.isin(holdout.individual, audit.individual)))
        return cls(holdout, np.isin(holdout.individual, audit.individual[members]))

    def blind(self, table: SurfaceTable, *, units: np.ndarray | None = None, seed: int) -> Blind:
        """Return the blind baseline of these documents, from their words alone; ``units`` as for `blind_baseline`."""
        words = words_of(self.store)
        surfaces = table.surfaces(self.store.input_ids, words)
        return blind_baseline(words, surfaces, self.members, units=units, seed=seed)
