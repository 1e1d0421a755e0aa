"""Membership attacks on every model of an audit: their inputs besides the model's scores, and their joint results.

The attacks score the audit's own documents; ``user_inference`` scores its holdout. Tokens of the texts in lower case
and the sizes of the texts after zlib are required only if an attack needs them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import pyarrow.compute as pc

from reticent.audit.config import AuditConfig
from reticent.audit.evidence.membership import BestAttack, Blind, MeasuredAttack, WorstSubgroup
from reticent.audit.leakage.words import SurfaceTable, Words, words_of
from reticent.audit.membership.asking import EVERY_ATTACK
from reticent.audit.membership.attacks import ATTACKS, attack, needing, scores_of
from reticent.audit.membership.blind import BlindFeatures, blind_baseline, blind_scores, year_of
from reticent.audit.membership.kinds import Compared
from reticent.audit.membership.matched import matched_area, strata_of
from reticent.audit.membership.most_exposed import most_exposed_members
from reticent.audit.membership.names import OF_LOG_PROBS, ON_HOLDOUT
from reticent.audit.membership.table import Need
from reticent.audit.membership.validity import keep_without_near_copies
from reticent.audit.scoring.token_scores import TokenScores
from reticent.audit.stats.intervals import LEVEL, Bootstrap, JointArea, auc_estimate, best_of, joint_areas
from reticent.core.errors import ArtifactError
from reticent.engine.store import TokenStore

# ----------------------------------------------------------------------------------------------------------- subgroups
#
# Subgroups of individuals, and the one whose members are most clearly distinguishable, which an average hides.


#: A subgroup with fewer individuals on a side is not measured.
SMALLEST_SIDE = 10


def subgroup_labels(store: TokenStore, columns: Mapping[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
    """Return name of a grouping -> label of each individual, by ascending code. Individuals are grouped by terciles of
    their number and length of documents, and by the value of each of ``columns``.

    The groupings are thirds by number of documents, thirds by total length in tokens, and one for each of ``columns``
    (one value for each individual). A grouping with a single group is left out.
    """
    _, number = np.unique(store.individual, return_inverse=True)
    documents = np.bincount(number)
    length = np.bincount(number, weights=np.diff(store.doc_offsets))
    groups = {
        "documents": _thirds(documents, ("fewest documents", "middle number of documents", "most documents")),
        "length": _thirds(length, ("shortest", "middle length", "longest")),
    }
    groups |= {name: np.array([f"{name} {value}" for value in values]) for name, values in (columns or {}).items()}
    return {name: labels for name, labels in groups.items() if len(np.unique(labels)) > 1}


def _thirds(values: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """Return for each value the name of its tercile (from ``names``, lowest first). Equal values get the same name, so
    a tercile can be empty."""
    return np.array(names)[np.searchsorted(np.quantile(values, [1 / 3, 2 / 3]), values, side="left")]


def worst_subgroup(
    scores: np.ndarray,
    is_member: np.ndarray,
    groups: Mapping[str, np.ndarray],
    individuals: np.ndarray | None = None,
    *,
    num_bootstrap: int = 1000,
    seed: int = 0,
    units: np.ndarray | None = None,
) -> WorstSubgroup | None:
    """Return the subgroup of individuals on which membership attacks work best: that with the highest AUC interval,
    Bonferroni-corrected for all subgroups. None if no subgroup has ten members and ten others.

    Parameters
    ----------
    scores : float array, shape (individuals,), NaN for none
    is_member : bool array, shape (individuals,)
    groups : name -> label of each individual, shape (individuals,)
    individuals, units : as for `clusters_of`
    """
    codes = np.arange(len(scores)) if individuals is None else individuals
    usable = ~np.isnan(scores)
    sides = {}
    for labels in groups.values():
        for label in np.unique(labels):
            here = usable & (labels == label)
            chosen = here & is_member, here & ~is_member
            if min(map(np.count_nonzero, chosen)) >= SMALLEST_SIDE:
                sides[str(label)] = chosen
    if not sides:
        return None
    level = 1 - (1 - LEVEL) / len(sides)
    measured = {
        label: auc_estimate(
            scores[members],
            scores[others],
            (codes[members], codes[others]),
            num_bootstrap=num_bootstrap,
            seed=seed,
            units=units,
            level=level,
        )
        for label, (members, others) in sides.items()
    }
    worst, auc = max(measured.items(), key=lambda row: (row[1].low or 0.0, row[1].value or 0.0))
    num_members, num_nonmembers = (int(np.count_nonzero(side)) for side in sides[worst])
    return WorstSubgroup(
        group=worst, num_groups=len(measured), num_members=num_members, num_nonmembers=num_nonmembers, auc=auc
    )


# ------------------------------------------------------------------------------------------------------ user inference
#
# User inference: does a model's loss on documents outside its training data reveal whether the *individual* is a
# member?
#
# The documents belong to members and to held-out individuals. One rule draws them on both sides
# (`reticent.engine.split.draw_user_inference_holdout`).


@dataclass(frozen=True, slots=True)
class UserInferenceHoldout:
    """Tokens of the holdout documents, and a mask of the members' documents (bool, shape (store.num_documents,))."""

    store: TokenStore
    members: np.ndarray

    @classmethod
    def of_audited(cls, audit: TokenStore, members: np.ndarray, holdout: TokenStore | None) -> UserInferenceHoldout:
        """Return those documents of ``holdout``, which no model was trained on, whose individuals also have a document
        in the audit, with a mask of the documents of members.

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
        """Return the AUC at which members and others can be told apart by the words, lengths and dates of their holdout
        documents, without a model."""
        words = words_of(self.store)
        surfaces = table.surfaces(self.store.input_ids, words)
        features = BlindFeatures.of(words, surfaces, self.members, dates=_dates(table, surfaces), units=units)
        return blind_baseline(features, seed)


@dataclass(frozen=True, slots=True)
class Membership:
    """Results of all attacks on one model, with the worst subgroup of each, and the blind baselines of a base model.
    ``compared`` has each attack's scores of individuals, from which `KindAudit` computes simultaneous intervals."""

    membership: dict[str, MeasuredAttack]
    compared: dict[str, Compared]
    blind: Blind | None
    blind_holdout: Blind | None

    def with_areas(self, areas: Mapping[str, JointArea]) -> tuple[dict[str, MeasuredAttack], BestAttack | None]:
        """Return (attacks by name, each completed with the excess of its AUC over that of its control; the best attack
        or None). ``areas`` has the attacks' AUCs with simultaneous intervals."""
        over = {name: area.over_base for name, area in areas.items()}
        attacks = {name: replace(one, over_base=over.get(name)) for name, one in self.membership.items()}
        return attacks, best_of({name: areas[name] for name in attacks if name in areas})


class AttackedIndividuals:
    """Documents of members and of held-out individuals, and attack results over individuals from scores of these
    documents.

    Parameters
    ----------
    members, groups, copied : as for `MembershipAudit`
    """

    #: The documents that the user-inference attacks (`ON_HOLDOUT`) score instead.
    holdout: UserInferenceHoldout | None = None

    def __init__(
        self,
        store: TokenStore,
        members: np.ndarray,
        bootstrap: Bootstrap,
        *,
        groups: Mapping[str, np.ndarray] | None = None,
        copied: np.ndarray | None = None,
    ):
        self.store, self.members, self.bootstrap = store, members, bootstrap
        self.codes, first = np.unique(store.individual, return_index=True)
        self.code_member = members[first]
        of_codes = None if copied is None else copied[self.codes]
        self.kept = keep_without_near_copies(np.arange(len(self.codes)), self.code_member, of_codes)
        self.uncopied = None if of_codes is None else self.code_member | ~of_codes
        self.groups, self._columns = subgroup_labels(store, groups), groups

    def run_attacks(
        self, document_scores: Mapping[str, np.ndarray], controls: Mapping[str, np.ndarray]
    ) -> tuple[dict[str, MeasuredAttack], dict[str, Compared]]:
        """Return (attack name -> result, attack name -> scores of individuals) from each attack's document scores under
        the model and, in ``controls``, under a model that never saw the documents."""
        options = self.bootstrap
        results: dict[str, MeasuredAttack] = {}
        compared: dict[str, Compared] = {}
        for name, attacked in document_scores.items():
            asked = self.holdout if name in ON_HOLDOUT and self.holdout else self
            is_total = EVERY_ATTACK[name].is_total
            compared[name] = self.score_individuals(name, attacked, controls.get(name))
            results[name] = replace(
                attack(attacked, asked.store.individual, asked.members, is_total=is_total, **options),
                worst_subgroup=worst_subgroup(compared[name].own, self.code_member, self.groups, self.codes, **options),
            )
            if asked is self and (strata := self.strata()) is not None:
                matched = matched_area(compared[name].own, self.codes, self.code_member, strata, **options)
                results[name] = replace(results[name], matched=matched)
        by_code = {name: one.own for name, one in compared.items()}
        for name, told in most_exposed_members(by_code, self.codes, self.code_member, self.uncopied, **options).items():
            results[name] = replace(results[name], told=told)
        return self._with_auc_without_copies(results, by_code), compared

    def strata(self) -> np.ndarray | None:
        """Return None: no strata of individuals with similar propensity to be a member are known here. A subclass may
        return the stratum number of each individual."""
        return None

    def score_individuals(self, name: str, document_scores: np.ndarray, control: np.ndarray | None) -> Compared:
        """Return one attack's scores of the individuals, by ascending code, from its document scores under the model
        and, if given, under a ``control`` model."""
        asked = self.holdout if name in ON_HOLDOUT and self.holdout else self
        of_individuals = partial(
            scores_of, self.codes, individuals=asked.store.individual, is_total=EVERY_ATTACK[name].is_total
        )
        return Compared(of_individuals(document_scores), None if control is None else of_individuals(control))

    def _with_auc_without_copies(
        self, results: dict[str, MeasuredAttack], by_code: dict[str, np.ndarray]
    ) -> dict[str, MeasuredAttack]:
        """Return the attack results, each with the AUC after held-out individuals with near-copies of members'
        documents are removed; unchanged if there are few. ``by_code`` has each attack's scores of the individuals."""
        kept = self.kept
        if kept is None:
            return results
        scores = {name: own[kept] for name, own in by_code.items()}
        codes, member = self.codes[kept], self.code_member[kept]
        best = best_of(joint_areas(scores, codes, member, **self.bootstrap))
        ends = (best.intervals or {}) if best else {}
        found = {}
        for name, attacked in results.items():
            sides = [np.flatnonzero(side & ~np.isnan(scores[name])) for side in (member, ~member)]
            own, of_sides = (tuple(values[rows] for rows in sides) for values in (scores[name], codes))
            auc = auc_estimate(own[0], own[1], (of_sides[0], of_sides[1]), **self.bootstrap)
            if name in ends and best:
                auc = replace(auc, low=ends[name][0], high=ends[name][1], method=best.auc.method)
            found[name] = replace(attacked, auc_without_copies=auc)
        return found


class MembershipAudit(AttackedIndividuals):
    """Membership attacks on the models of one tokenizer: holds the documents and the inputs besides the scores; see
    `measure`.

    Parameters
    ----------
    store : tokens of both sides
    members : bool array, shape (store.num_documents,)
    words, surfaces, table : the words of ``store``, their surfaces, and the table that numbers the surfaces
    lowercase, user_inference_holdout, groups : as for `audit_models`; read only if an attack of ``config`` needs them
    units : household of each individual (by code), by which the sides were drawn; None: the individuals themselves
    copied : as for `keep_without_near_copies`
    split_given : as for `audit_models`

    Raises
    ------
    ArtifactError
        An input of an attack is missing, or belongs to other documents.
    """

    def __init__(
        self,
        store: TokenStore,
        members: np.ndarray,
        words: Words,
        surfaces: np.ndarray,
        table: SurfaceTable,
        config: AuditConfig,
        bootstrap: Bootstrap,
        *,
        lowercase: TokenStore | None = None,
        user_inference_holdout: TokenStore | None = None,
        zlib_bytes: np.ndarray | None = None,
        groups: Mapping[str, np.ndarray] | None = None,
        units: np.ndarray | None = None,
        copied: np.ndarray | None = None,
        split_given: bool = False,
    ):
        super().__init__(store, members, bootstrap, groups=groups, copied=copied)
        self.config, self.words, self.surfaces, self.table, self.units = config, words, surfaces, table, units
        attacks = config.attacks
        self.lowercase = _require_lowercase(lowercase, store) if needing(Need.LOWERCASE, attacks) else None
        self.holdout = (
            UserInferenceHoldout.of_audited(store, members, user_inference_holdout)
            if needing(Need.HOLDOUT, attacks)
            else None
        )
        self.zlib_bytes = _require_zlib_sizes(zlib_bytes, store) if needing(Need.SIZES, attacks) else None
        self.split_given = split_given
        self._of_base: dict[bytes, tuple[TokenScores, dict[str, np.ndarray]]] = {}

    def measure(
        self,
        objective: str,
        scores: TokenScores,
        base: TokenScores | None,
        lowercase: TokenScores | None = None,
        further: Mapping[str, np.ndarray] | None = None,
        controls: Mapping[str, np.ndarray] | None = None,
    ) -> Membership:
        """Run every configured membership attack; return its results on a model, with the blind baseline if the model
        is the base model.

        Parameters
        ----------
        base : scores of the base model; None if the model is the base model
        lowercase : scores of the documents in lower case
        further : as for `Auditor.measure`
        controls : document scores of those attacks under a model that was not trained on the document's individual;
            the control of all other attacks is the base model
        """
        document_scores = self.document_scores(objective, scores, base, lowercase) | dict(further or {})
        before = {} if base is None else self.of_base(objective, base)
        before = {**before, **(controls or {})}
        results, compared = self.run_attacks(document_scores, before)
        blind = of_holdout = None
        if base is None and results:
            blind = blind_baseline(self._blind_features, self.config.seed)
        if base is None and self.holdout is not None:
            of_holdout = self.holdout.blind(self.table, units=self.units, seed=self.config.seed)
        return Membership(results, compared, blind, of_holdout)

    @cached_property
    def _blind_features(self) -> BlindFeatures:
        """Features of the individuals' documents that may tell members from others without a model: words, length,
        dates, groups."""
        dates = _dates(self.table, self.surfaces)
        return BlindFeatures.of(
            self.words, self.surfaces, self.members, dates=dates, groups=self._columns, units=self.units
        )

    @cached_property
    def _strata(self) -> np.ndarray:
        """Each individual's stratum by log-odds of membership, which are estimated from the documents alone, without
        the model."""
        return strata_of(self.codes, *blind_scores(self._blind_features, self.config.seed), units=self.units)

    def strata(self) -> np.ndarray | None:
        """Return the stratum of each individual, int64, in which propensities to be a member are similar, if the
        members were given; None if they were drawn at random."""
        return self._strata if self.split_given else None

    def document_scores(
        self,
        objective: str,
        scores: TokenScores,
        base: TokenScores | None,
        lowercase: TokenScores | None = None,
        *,
        among: Container[str] = ATTACKS,
    ) -> dict[str, np.ndarray]:
        """Return attack name -> document scores, float (D,), for every configured likelihood attack whose inputs are
        given."""
        rows = [ATTACKS[name] for name in self.config.attacks if name in ATTACKS and name in among]
        return {
            row.name: row.score(scores, base, self.zlib_bytes, lowercase)
            for row in rows
            if objective in row.objectives
            and Need.HOLDOUT not in row.needs  # it scores other documents
            and not (Need.ENDS in row.needs and scores.end_log_probs is None)
            and not (Need.BASE in row.needs and base is None)
            and not (Need.LOWERCASE in row.needs and lowercase is None)
        }

    def of_base(self, objective: str, base: TokenScores, mask: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """Return attack name -> the base model's document scores on the tokens of ``mask`` (None: all), float (D,);
        cached, as all checkpoints share the base."""
        key = b"" if mask is None else hashlib.sha256(np.packbits(mask).tobytes()).digest()
        if (known := self._of_base.get(key)) is None or known[0] is not base:
            scores = base if mask is None else base.restrict_to(mask)
            self._of_base[key] = known = base, self.document_scores(objective, scores, None)
        return known[1]


def _dates(table: SurfaceTable, surfaces: np.ndarray) -> np.ndarray:
    """Return the date that each word stands for, in years, float64; NaN for a word that is no date."""
    return np.append(table.map_forms(year_of), np.nan)[surfaces]


class OutControls:
    """The control of attacks that already compare with the base model: the mean of the same score under shadow models
    that were not trained on the document.

    Shadows keep log-probabilities alone, so an attack that needs more of a prediction has no such control.

    Parameters
    ----------
    kinds : kind of word -> bool mask of its tokens; the whole text (kind "") is added
    """

    def __init__(self, audit: MembershipAudit, objective: str, base: TokenScores, kinds: Mapping[str, np.ndarray]):
        self._audit, self._objective = audit, objective
        self._bases = {"": base} | {kind: base.restrict_to(mask) for kind, mask in kinds.items()}
        self._totals: dict[str, dict[str, np.ndarray]] = {kind: {} for kind in self._bases}
        self._counts = np.zeros(audit.store.num_documents)

    def add(self, shadow: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Compute the attacks' document scores under one shadow model, and add those of documents that it was not
        trained on to the running sums. ``shadow`` is (token log-probabilities, bool mask of its training documents) and
        is returned."""
        log_probs, known = shadow
        for kind, base in self._bases.items():
            scores = replace(base, log_probs=np.where(np.isnan(base.log_probs), np.nan, log_probs))
            found = self._audit.document_scores(self._objective, scores, base, among=OF_LOG_PROBS)
            for name, own in found.items():
                self._totals[kind][name] = self._totals[kind].get(name, 0.0) + np.where(known, 0.0, own)
        self._counts += ~known
        return shadow

    def document_scores(self, kind: str = "") -> dict[str, np.ndarray]:
        """Return attack name -> each document's mean score under the shadow models not trained on it, float64 (D,), on
        words of one kind ("": all); NaN if all were trained on it."""
        with np.errstate(invalid="ignore"):
            return {name: total / self._counts for name, total in self._totals[kind].items()}


def _require_lowercase(lowercase: TokenStore | None, audit: TokenStore) -> TokenStore:
    """Return the tokens of the lower-case texts; raise `ArtifactError` if there are none or if they belong to other
    documents."""
    if lowercase is None:
        raise ArtifactError("the lowercase attack needs the tokens of the texts in lower case")
    if not lowercase.doc_ids.equals(audit.doc_ids):
        raise ArtifactError("the documents in lower case are not the documents of the audit")
    return lowercase


def _require_zlib_sizes(zlib_bytes: np.ndarray | None, store: TokenStore) -> np.ndarray:
    """Return the zlib-compressed sizes of the texts; raise `ArtifactError` if they are missing or of another number of
    documents."""
    if zlib_bytes is None:
        raise ArtifactError("the zlib attack needs the compressed sizes of the texts")
    if len(zlib_bytes) != store.num_documents:
        raise ArtifactError(f"{len(zlib_bytes)} compressed sizes for {store.num_documents} documents of the audit")
    return zlib_bytes
