"""TokenScores: the result of one pass of a model over the tokens of a store, and its file.

Every likelihood attack is a pure function of these arrays (:mod:`reticent.audit.membership.attacks`).
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, field, fields
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from reticent.core.errors import ArtifactError


@dataclass(frozen=True, slots=True)
class TokenScores:
    """Scores aligned with the tokens of a store; shape (num_tokens,) each.

    Attributes
    ----------
    log_probs : float32, natural log of the probability of the true token; NaN where not scored
    entropy : float32, entropy of the prediction in nats; minus it is the mean of log p under p (Min-K%++'s mu)
    std : float32, standard deviation of log p under p
    argmax : int32, most likely token, -1 where not scored
    rank : int32, number of tokens that are more likely than the true one, -1 where not scored
    doc_offsets : int64, shape (num_documents + 1,)
    top_log_probs : float32, natural log of the probability of the most likely token; NaN where not scored, or not given
    end_log_probs : float32, shape (num_documents,), natural log of the probability of the end of each text after its
        last token, NaN for an empty one; None if not requested, or the tokenizer has no end token
    """

    log_probs: np.ndarray
    entropy: np.ndarray
    std: np.ndarray
    argmax: np.ndarray
    rank: np.ndarray
    doc_offsets: np.ndarray
    top_log_probs: np.ndarray = None  # type: ignore[assignment]
    end_log_probs: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.top_log_probs is None:
            object.__setattr__(self, "top_log_probs", np.full(len(self.log_probs), np.nan, dtype=np.float32))

    @property
    def mean(self) -> np.ndarray:
        """Mean log-probability over the vocabulary under the model's own distribution at each token's position (minus
        the entropy), float32."""
        return -self.entropy

    @property
    def scored(self) -> np.ndarray:
        """Whether each token was scored, bool (num_tokens,)."""
        return self.argmax >= 0

    def restrict_to(self, mask: np.ndarray) -> TokenScores:
        """Return the scores of the tokens in a mask, bool (num_tokens,). All other tokens, and the ends of texts, count
        as not scored."""
        columns = {}
        for name in COLUMNS:
            values = getattr(self, name)
            columns[name] = np.where(mask, values, -1 if name in INTEGERS else np.nan).astype(values.dtype)
        return TokenScores(doc_offsets=self.doc_offsets, **columns)

    def to_parquet(self, path: Path | str) -> None:
        """Write one row for each document, with a list column for each score."""
        offsets = pa.array(self.doc_offsets)
        columns = {name: pa.LargeListArray.from_arrays(offsets, pa.array(getattr(self, name))) for name in COLUMNS}
        if self.end_log_probs is not None:
            columns[ENDS] = pa.array(self.end_log_probs)
        pq.write_table(pa.table(columns), path, compression="zstd")

    @classmethod
    def from_parquet(cls, path: Path | str) -> TokenScores:
        """Return the scores that `to_parquet` wrote; raise `ArtifactError` if they cannot be read."""
        try:
            table = pq.read_table(path)
            lists = [table.column(name).cast(_list_of(name)).combine_chunks() for name in COLUMNS]
        except (OSError, KeyError, pa.ArrowException) as error:
            raise ArtifactError(f"{path}: not a readable table of scores ({type(error).__name__})") from None
        offsets = lists[0].offsets.to_numpy()
        if not all(column.null_count == 0 and np.array_equal(column.offsets, offsets) for column in lists):
            raise ArtifactError(f"{path}: the scores of a document have different lengths")
        columns: dict[str, np.ndarray] = {
            name: column.flatten().to_numpy(zero_copy_only=False) for name, column in zip(COLUMNS, lists, strict=True)
        }
        ends = table.column(ENDS).to_numpy() if ENDS in table.column_names else None
        return cls(doc_offsets=offsets, **columns, end_log_probs=ends)


ENDS = "end_log_probs"
#: Names of the arrays with one number a token, in the order of the scoring pass.
COLUMNS = [column.name for column in fields(TokenScores) if column.name not in ("doc_offsets", ENDS)]


INTEGERS = ("argmax", "rank")


def unscored_arrays(num_tokens: int) -> dict[str, np.ndarray]:
    """Return name -> score array in which no token is scored yet: NaN in float32 arrays, -1 in int32 arrays."""
    return {
        name: np.full(num_tokens, -1, np.int32) if name in INTEGERS else np.full(num_tokens, np.nan, np.float32)
        for name in COLUMNS
    }


def _list_of(name: str) -> pa.DataType:
    """Return the Arrow list type of a score column."""
    return pa.large_list(pa.int32() if name in INTEGERS else pa.float32())


DOCUMENTS, HOLDOUT, CANDIDATES, ASKED = "scores.parquet", "holdout.parquet", "candidates.npz", "asked.npz"


@dataclass(frozen=True, slots=True)
class BaseModelScores:
    """Scores of a base model, kept for the comparison with its models: of the documents, of the user-inference holdout,
    and summed log-probabilities of inversion candidates by kind of identifier; None if no attack needs them. ``asked``
    has document scores of attacks beyond likelihoods and of those that compare with lower case, by name."""

    path: Path
    documents: TokenScores
    holdout: TokenScores | None
    candidates: dict[str, np.ndarray] | None
    asked: dict[str, np.ndarray] = field(default_factory=dict)

    def save(self, folder: Path) -> None:
        """Write a base model's scores to files in ``folder``, one file for each kind of scores that exists. They are as
        confidential as the documents."""
        self.documents.to_parquet(folder / DOCUMENTS)
        if self.holdout is not None:
            self.holdout.to_parquet(folder / HOLDOUT)
        if self.candidates is not None:
            np.savez(folder / CANDIDATES, **self.candidates)  # type: ignore[arg-type]
        if self.asked:
            np.savez(folder / ASKED, **self.asked)  # type: ignore[arg-type]

    @classmethod
    def load(cls, folder: Path, path: Path, *, holdout: bool, candidates: bool) -> BaseModelScores:
        """Return the base model's scores that `save` wrote, with those of the holdout and of inversion candidates if
        requested; raise `ArtifactError` if they cannot be read. ``asked`` is empty if an earlier version wrote them."""
        return cls(
            path,
            TokenScores.from_parquet(folder / DOCUMENTS),
            TokenScores.from_parquet(folder / HOLDOUT) if holdout else None,
            load_candidates(folder / CANDIDATES) if candidates else None,
            load_candidates(folder / ASKED) if (folder / ASKED).exists() else {},
        )


def load_candidates(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz file by name; raise `ArtifactError` if it cannot be read."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ArtifactError(f"{path}: not readable scores of an inversion ({type(error).__name__})") from None
