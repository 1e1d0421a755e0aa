"""Shadow models: their scores of the documents, and the attacks with them.

definitions.md#shadow-models defines the attacks; :mod:`reticent.audit.membership.draws` draws whom each is trained on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from reticent.audit.membership.attacks import document_means
from reticent.audit.membership.names import USER_INFERENCE_SHADOWS
from reticent.audit.membership.shadow_attacks import (
    LOG_PROB_LIMITS,
    attack_classifier_score,
    fit_gaussians,
    fit_offline_slope,
    informia_score,
    lira_offline_score,
    lira_online_score,
    lira_sequence_score,
    logit_confidence,
    mean_where,
    offline_probability,
    online_probability,
    rmia_score,
)
from reticent.audit.membership.table import Attack, Need, table_of
from reticent.audit.scoring.token_scores import TokenScores
from reticent.audit.stats.estimate import Estimate
from reticent.core.errors import ArtifactError

# ------------------------------------------------------------------------ scores


@dataclass(frozen=True, slots=True)
class DocumentScores:
    """One model's scores of D documents with T tokens, as the attacks with shadow models need them.

    Attributes
    ----------
    log_probs : float32 (T,), NaN where not scored
    mean_log_prob, top_probability, entropy : float64 (D,)
        Means over the scored tokens: log p of the token, p of the most likely token, entropy in nats; NaN without a
        scored token.
    doc_offsets : int64 (D + 1,)
    """

    log_probs: np.ndarray
    mean_log_prob: np.ndarray
    top_probability: np.ndarray
    entropy: np.ndarray
    doc_offsets: np.ndarray

    @classmethod
    def of(cls, scores: TokenScores) -> DocumentScores:
        """Return mean log-probability, top-1 probability and entropy of each document, from the token scores of a
        scoring pass."""
        offsets = scores.doc_offsets
        bounded = np.maximum(scores.log_probs, LOG_PROB_LIMITS[0])  # else one impossible token decides
        top, mean, entropy = (
            document_means(values, ~np.isnan(values), offsets)
            for values in (np.exp(scores.top_log_probs), bounded, scores.entropy)
        )
        return cls(scores.log_probs, mean, top, entropy, offsets)

    @property
    def features(self) -> np.ndarray:
        """Features of the attack classifier, (-loss, top-1 probability, entropy), float64 (D, 3)."""
        return np.stack([self.mean_log_prob, self.top_probability, self.entropy], axis=1)

    def to_parquet(self, path: Path, is_in: np.ndarray) -> None:
        """Write a shadow model's scores, one row for each document; ``is_in``, bool (D,), marks the documents it was
        trained on."""
        log_probs = pa.LargeListArray.from_arrays(pa.array(self.doc_offsets), pa.array(self.log_probs))
        columns = {"is_in": pa.array(is_in), "log_probs": log_probs}
        columns |= {name: pa.array(getattr(self, name)) for name in _MEANS}
        pq.write_table(pa.table(columns), path, compression="zstd")

    @classmethod
    def from_parquet(cls, path: Path) -> tuple[DocumentScores, np.ndarray]:
        """Read what `to_parquet` wrote; return (scores of a shadow model, bool mask (D,) of the documents that it was
        trained on)."""
        try:
            table = pq.read_table(path).combine_chunks()
            log_probs = table.column("log_probs").combine_chunks()
            means: dict[str, np.ndarray] = {name: table.column(name).to_numpy() for name in _MEANS}
            is_in = table.column("is_in").to_numpy()
            offsets = log_probs.offsets.to_numpy()
            return cls(log_probs.flatten().to_numpy(zero_copy_only=False), doc_offsets=offsets, **means), is_in
        except (OSError, KeyError, AttributeError, pa.ArrowException) as error:
            raise ArtifactError(f"{path}: not readable scores of a shadow model ({type(error).__name__})") from None


_MEANS = ("mean_log_prob", "top_probability", "entropy")


# ----------------------------------------------------------------------- attacks


class ShadowAttacks:
    """Scores of the shadow models for D documents, read once; `scores` then attacks a model with them.

    Parameters
    ----------
    shadows : for each shadow, its scores and its training documents, bool (D,)
    population : bool (D,), documents that RMIA compares with
    slope : float, optional
        RMIA's a; default: fitted on in and out models of the population's documents (`fit_offline_slope`).

    Cost: one pass over the shadows' scores; only the scores of documents, not of tokens, are kept.
    """

    def __init__(
        self,
        shadows: Iterable[tuple[DocumentScores, np.ndarray]],
        population: np.ndarray,
        *,
        slope: float | None = None,
    ):
        features, is_in = [], []

        def read() -> Iterator[tuple[np.ndarray, np.ndarray]]:
            """Yield for each shadow model (logit of each token's probability, whether the token's document was in its
            training set). Its document features and training mask are appended to the caller's lists ``features`` and
            ``is_in``."""
            for said, known in shadows:
                features.append(said.features)
                is_in.append(known)
                yield logit_confidence(said.log_probs), np.repeat(known, np.diff(said.doc_offsets))

        self.tokens = fit_gaussians(read())
        self.features, self.is_in, self.population = np.stack(features), np.stack(is_in), population
        self.documents = fit_gaussians(zip(self.features[:, :, 0], self.is_in, strict=True))
        probability = np.exp(self.features[:, :, 0])
        self.known, self.out = (mean_where(probability, chosen) for chosen in (self.is_in, ~self.is_in))
        fitted = population & ~np.isnan(self.known + self.out)
        self.slope = fit_offline_slope(self.known[fitted], self.out[fitted]) if slope is None else slope

    @property
    def num_shadows(self) -> int:
        """Number of shadow models."""
        return len(self.is_in)

    def scores(self, name: str, *models: DocumentScores) -> list[np.ndarray]:
        """Return for each of ``models`` (their document scores) the scores that the named attack gives the documents,
        float64 (D,)."""
        found: list[np.ndarray] = SHADOW_ATTACKS[name].score(self, models)
        return found


Models = Sequence[DocumentScores]


def _attack_classifier(shadows: ShadowAttacks, models: Models) -> list[np.ndarray]:
    """Return each model's log-odds of membership by a classifier trained on the shadows' outputs; one float64 (D,) for
    each model."""
    rows = shadows.features.reshape(-1, shadows.features.shape[2])
    return attack_classifier_score(rows, shadows.is_in.ravel(), *(model.features for model in models))


def _lira_online(shadows: ShadowAttacks, models: Models) -> list[np.ndarray]:
    """Return each model's LiRA log likelihood ratio of the documents' mean log-probabilities; one float64 (D,) for each
    model."""
    return [lira_online_score(model.mean_log_prob, shadows.documents) for model in models]


def _lira_offline(shadows: ShadowAttacks, models: Models) -> list[np.ndarray]:
    """Return each model's offline LiRA scores, which need only shadows not trained on the document, from the documents'
    mean log-probabilities; one float64 (D,) for each model."""
    return [lira_offline_score(model.mean_log_prob, shadows.documents) for model in models]


def _lira_sequence(shadows: ShadowAttacks, models: Models) -> list[np.ndarray]:
    """Return each model's LiRA log likelihood ratio of token probabilities, averaged over each document's tokens; one
    float64 (D,) for each model."""
    return [lira_sequence_score(model.log_probs, model.doc_offsets, shadows.tokens) for model in models]


def _rmia(shadows: ShadowAttacks, models: Models) -> list[np.ndarray]:
    """Return each model's RMIA scores, with p(x) estimated from shadows not trained on the document (offline); one
    float64 (D,) for each model."""
    average = offline_probability(shadows.out, shadows.slope)
    return [rmia_score(np.exp(model.mean_log_prob), average, shadows.population) for model in models]


def _rmia_online(shadows: ShadowAttacks, models: Models) -> list[np.ndarray]:
    """Return each model's RMIA scores, with p(x) estimated from shadow models trained on the document and shadow models
    not trained on it (online); one float64 (D,) for each model."""
    average = online_probability(shadows.known, shadows.out)
    return [rmia_score(np.exp(model.mean_log_prob), average, shadows.population) for model in models]


def _informia(shadows: ShadowAttacks, models: Models) -> list[np.ndarray]:
    """Return each model's InfoRMIA scores of the documents, from shadows that were not trained on them; one float64
    (D,) for each model."""
    average = offline_probability(shadows.out, shadows.slope)
    return [informia_score(np.exp(model.mean_log_prob), average, shadows.population) for model in models]


def _user_inference(shadows: ShadowAttacks, models: Models) -> list[np.ndarray]:
    """Return each model's mean log-probability of the documents minus its mean over the shadows that were not trained
    on the individual; one float64 (D,) for each model."""
    without = mean_where(shadows.features[:, :, 0], ~shadows.is_in)
    return [model.mean_log_prob - without for model in models]


_SHADOWS, _POPULATION = frozenset({Need.BASE, Need.SHADOWS}), frozenset({Need.BASE, Need.SHADOWS, Need.POPULATION})
#: Every attack with shadow models. A score function takes the shadows and the models, and returns one score array for
#: each model.
SHADOW_ATTACKS: Mapping[str, Attack] = table_of(
    (
        Attack(
            name="shadow",
            score=_attack_classifier,
            title="Attack classifier",
            about="a classifier that was trained on the outputs of shadow models predicts membership",
            source="Shokri et al. 2017",
            needs=_SHADOWS,
        ),
        Attack(
            name="lira_online",
            score=_lira_online,
            title="LiRA, online",
            about="its likelihood fits shadow models that were trained on the document better than those that were not",
            source="Carlini et al. 2022",
            needs=_SHADOWS,
            is_total=True,
        ),
        Attack(
            name="lira_offline",
            score=_lira_offline,
            title="LiRA, offline",
            about="the model predicts the document better than shadow models that were not trained on it",
            source="Carlini et al. 2022",
            needs=_SHADOWS,
        ),
        Attack(
            name="lira_sequence",
            score=_lira_sequence,
            title="LiRA by token",
            about="the same as lira_online, token by token",
            source="Rossi et al. 2025",
            needs=_SHADOWS,
            is_total=True,
        ),
        Attack(
            name="rmia",
            score=_rmia,
            title="RMIA, offline",
            about="relative to shadow models that were not trained on it, the model prefers the document to more "
            "documents of people it never saw",
            source="Zarifzadeh et al. 2024",
            needs=_POPULATION,
        ),
        Attack(
            name="rmia_online",
            score=_rmia_online,
            title="RMIA, online",
            about="the same, relative to shadow models that were trained on it and shadow models that were not",
            source="Zarifzadeh et al. 2024",
            needs=_POPULATION,
        ),
        Attack(
            name="informia",
            score=_informia,
            title="InfoRMIA, offline",
            about="relative to shadow models that were not trained on it, the model gained more information about the "
            "document than about documents of people it never saw",
            source="Tao and Shokri 2026",
            needs=_POPULATION,
        ),
        Attack(
            name=USER_INFERENCE_SHADOWS,
            score=_user_inference,
            title="User inference with shadow models",
            about="the model predicts documents of the person that were held back from training better than shadow "
            "models do that were not trained on the person",
            source="Kandpal et al. 2024",
            needs=_SHADOWS | {Need.HOLDOUT},
        ),
    )
)


class ShadowControl(TypedDict, total=False):
    """Further fields of a `MeasuredAttack`: the same attack's AUC on the base model, the number of shadows, and RMIA's
    slope."""

    control: Estimate
    num_shadows: int
    slope: float


def shadow_scores(
    attacks: ShadowAttacks, names: Iterable[str], target: DocumentScores, base: DocumentScores
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return attack name -> two float64 arrays (D,): document scores of the attacked model ``target``, and of the base
    model as a control. RMIA gives NaN for the documents of its reference population.

    If members are distinguishable in the base model, which saw no individual, the two sides differ by themselves.
    """
    found = {}
    for name in names:
        scored, control = attacks.scores(name, target, base)
        left_out = attacks.population & (Need.POPULATION in SHADOW_ATTACKS[name].needs)
        found[name] = (np.where(left_out, np.nan, scored), np.where(left_out, np.nan, control))
    return found
