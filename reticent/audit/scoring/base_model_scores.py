"""Scores of the base model, which the models trained from it are compared with, and how they are stored."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from reticent.audit.membership.names import USER_INFERENCE
from reticent.audit.scoring.token_scores import TokenScores
from reticent.core.errors import ArtifactError

if TYPE_CHECKING:
    from reticent.audit.config import AuditConfig

__all__ = ["BaseModelScores", "load_candidates"]

DOCUMENTS, HOLDOUT, CANDIDATES = "scores.parquet", "holdout.parquet", "candidates.npz"


@dataclass(frozen=True, slots=True)
class BaseModelScores:
    """Scores of the documents and of the holdout of user inference, and sums of the candidates of the inversion by kind
    of identifiers (or "association"); None if no attack needs them. ``path`` is the folder of the model.
    """

    path: Path
    documents: TokenScores
    holdout: TokenScores | None
    candidates: dict[str, np.ndarray] | None

    def save(self, folder: Path) -> None:
        """Write a file for each of them that exists; they are secret like the tokens."""
        self.documents.to_parquet(folder / DOCUMENTS)
        if self.holdout is not None:
            self.holdout.to_parquet(folder / HOLDOUT)
        if self.candidates is not None:
            np.savez(folder / CANDIDATES, **self.candidates)  # type: ignore[arg-type]

    @classmethod
    def load(cls, folder: Path, path: Path, config: AuditConfig) -> BaseModelScores:
        """Read the scores that an audit with these settings saved; `ArtifactError` if they cannot be read."""
        holdout = TokenScores.from_parquet(folder / HOLDOUT) if USER_INFERENCE in config.attacks else None
        candidates = None if config.inversion is None else load_candidates(folder / CANDIDATES)
        return cls(path, TokenScores.from_parquet(folder / DOCUMENTS), holdout, candidates)


def load_candidates(path: Path) -> dict[str, np.ndarray]:
    """Return the sums of the candidates; `ArtifactError` where they cannot be read."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ArtifactError(f"{path}: not readable scores of an inversion ({type(error).__name__})") from None
