"""Scores of the base model, which the models trained from it are compared with, and how they are stored."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from reticent.audit.scoring.token_scores import TokenScores
from reticent.core.errors import ArtifactError

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
    def load(cls, folder: Path, path: Path, *, holdout: bool, candidates: bool) -> BaseModelScores:
        """Read the scores that were saved, those of the holdout and of candidates where they are asked for;
        `ArtifactError` if they cannot be read.
        """
        return cls(
            path,
            TokenScores.from_parquet(folder / DOCUMENTS),
            TokenScores.from_parquet(folder / HOLDOUT) if holdout else None,
            load_candidates(folder / CANDIDATES) if candidates else None,
        )


def load_candidates(path: Path) -> dict[str, np.ndarray]:
    """Return the sums of the candidates; `ArtifactError` where they cannot be read."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ArtifactError(f"{path}: not readable scores of an inversion ({type(error).__name__})") from None
