"""The audit's measures of each model, from one scoring pass a model: `Auditor` measures one model, `audit_models`
all."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from reticent.audit.config import AuditConfig
from reticent.audit.evidence.audit import MeasuredModels, ModelEvidence
from reticent.audit.evidence.inversion import Inversion
from reticent.audit.evidence.leakage import AllOccurrences, Excess, Generated, Ledger, SideUtility, Utility
from reticent.audit.leakage.generated import Written, continue_documents, generated_leakage
from reticent.audit.leakage.leakage import FoldDraws, LeakageAudit
from reticent.audit.leakage.utility import numbers_beside, utility, without_predictions
from reticent.audit.leakage.words import SurfaceTable, words_of
from reticent.audit.membership.asked import Task, generation_attack_scores, with_total
from reticent.audit.membership.asking import EVERY_ATTACK
from reticent.audit.membership.attacks import USER_INFERENCE, loss_score, needing, reference_score
from reticent.audit.membership.groups import group_membership
from reticent.audit.membership.hidden_states import reidentify_authors
from reticent.audit.membership.kinds import ORDINARY, TARGETS, Compared, KindAudit, KindShadows
from reticent.audit.membership.measure import MembershipAudit, OutControls
from reticent.audit.membership.names import (
    CHECKPOINTS,
    END_OF_TEXT,
    GRADIENT,
    INFORMATION,
    SELF_CALIBRATION,
    STATES,
)
from reticent.audit.membership.self_calibration import train_on_written
from reticent.audit.membership.table import Need
from reticent.audit.membership.threshold import ThresholdAudit, word_normaliser
from reticent.audit.membership.validity import index_mask_by_code, with_attack_verdicts
from reticent.audit.scoring.endpoint import Server, is_endpoint, score_endpoint
from reticent.audit.scoring.gradients import gradient_norms, sampled_documents
from reticent.audit.scoring.scores import score_information, score_models
from reticent.audit.scoring.states import document_states
from reticent.audit.scoring.token_scores import BaseModelScores, TokenScores
from reticent.audit.stats.intervals import bootstrap_of, two_sides
from reticent.core.errors import ArtifactError, PolicyError
from reticent.core.resolve import resolve
from reticent.engine.randomness import generator
from reticent.engine.store import TokenStore
from reticent.trainer.models import check_fit, load_model, load_tokenizer, num_drawn, special_ids
from reticent.trainer.windows import SpecialIds, cut_windows

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from reticent.audit.leakage.words import WordCategories
    from reticent.audit.membership.shadow import ShadowControl
    from reticent.engine.noisy_threshold import Noise

#: Largest number of members whose documents are scored again with other random masks (folds) of a masked model.
MOST_DRAWN, _STREAM_FOLDS = 200, 71
#: A model's scores of the documents, and of the holdout of user inference if an attack needs it.
Scored = tuple[TokenScores, TokenScores | None]
DocumentScores = dict[str, np.ndarray]
#: (scores of a model, scores of its base model) -> (document scores by attack, the base model's, and further fields of
#: each attack's result).
MoreAttacks = Callable[[Scored, Scored], tuple[DocumentScores, DocumentScores, "dict[str, ShadowControl]"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """A checkpoint to audit, with the recipe and the protection threshold that it was trained with."""

    name: str
    recipe: str
    objective: str
    epoch: int
    path: Path
    #: Earlier checkpoints of the same training, in order; empty where none are kept or no attack needs them.
    earlier: tuple[Path, ...] = ()
    ledger: Ledger | None = None
    #: Flags that the recipe never has for a target.
    never_target: int = 0
    #: Whether reticent trained it; the protection threshold of a model that was trained elsewhere is unknown.
    is_known: bool = True
    #: Its protection threshold; None: that of the settings.
    k: int | None = None
    #: Noise on that threshold; None: the threshold is fixed.
    noise: Noise | None = None
    #: Whether the expensive measures are made as well: gradient norms, and further random masks of a masked model.
    is_last: bool = True


def audit_models(
    *,
    train_store: TokenStore,
    audit_store: TokenStore,
    members: np.ndarray,
    models: Sequence[ModelEntry],
    bases: Mapping[str, Path],
    config: AuditConfig,
    lowercase_store: TokenStore | None = None,
    user_inference_holdout: TokenStore | None = None,
    zlib_bytes: np.ndarray | None = None,
    groups: Mapping[str, np.ndarray] | None = None,
    units: np.ndarray | None = None,
    copied: np.ndarray | None = None,
    split_given: bool = True,
    progress: Callable[[int], None] | None = None,
) -> MeasuredModels:
    """Score and attack every trained model and the base model of each objective; return their evidence (leak rates,
    attack results, utility) with the settings used.

    Parameters
    ----------
    train_store : tokens of the members, with the flags of the training
    audit_store : tokens of members and held-out individuals, flagged by the joint index; its member documents are
        exactly those of ``train_store``, in the same order
    members : bool array, shape (audit_store.num_documents,)
    bases : objective -> base model; it is the reference of the attacks, their negative control, and the floor of the
        leak rates
    lowercase_store : tokens of the same documents in lower case, which the attack of that name needs
    user_inference_holdout : tokens of other documents of the same individuals, which ``user_inference`` needs
    zlib_bytes : int array, shape (audit_store.num_documents,), compressed size of each text, which ``zlib`` needs
    groups : name -> value of each individual of ``audit_store`` (by code, ascending), to find the worst subgroup
    units : household of each individual (by code), where support counts households
    copied : as for `reticent.audit.membership.validity.keep_without_near_copies`
    split_given : the sides were not drawn at random by `reticent.engine.split`, so they may differ by themselves

    Raises
    ------
    ArtifactError
        The two stores do not hold the same member documents, an individual is on both sides, a document of the holdout
        is in a store, or an attack needs the sizes of the texts, their tokens in lower case, or the holdout, and these
        were not given.
    PolicyError
        There is no base model of a model's objective.
    TrainingError
        A window or a token does not fit into a model.
    """
    without = {entry.objective for entry in models} - set(bases)
    if without:
        raise PolicyError(f"no base model to compare the {sorted(without)[0]} models with")
    audit = Auditor(
        train_store, audit_store, np.asarray(members, dtype=bool), config,
        lowercase=lowercase_store, user_inference_holdout=user_inference_holdout, zlib_bytes=zlib_bytes, groups=groups,
        units=units, copied=copied, split_given=split_given,
    )  # fmt: skip
    results: list[ModelEvidence] = []
    for objective, base_path in bases.items():
        base_entry = ModelEntry(name="base", recipe="base", objective=objective, epoch=0, path=Path(base_path))
        base: BaseModelScores | None = None
        for entry in (base_entry, *(m for m in models if m.objective == objective)):
            measured, said = audit.evaluate(entry, base)
            base = base or said
            results.append(measured)
            if progress:
                progress(len(results))
    return MeasuredModels(settings=config.all_values(without=config.not_measured), models=with_attack_verdicts(results))


class Auditor:
    """Measures models of one tokenizer; holds the words and numbered surface forms of both stores; see
    `audit_models`."""

    def __init__(
        self,
        train: TokenStore,
        audit: TokenStore,
        members: np.ndarray,
        config: AuditConfig,
        *,
        lowercase: TokenStore | None = None,
        user_inference_holdout: TokenStore | None = None,
        zlib_bytes: np.ndarray | None = None,
        groups: Mapping[str, np.ndarray] | None = None,
        categories: WordCategories | None = None,
        units: np.ndarray | None = None,
        copied: np.ndarray | None = None,
        split_given: bool = False,
        named_groups: Mapping[str, np.ndarray] | None = None,
    ):
        if len(members) != audit.num_documents:
            raise ArtifactError(f"members: {len(members)} flags for {audit.num_documents} documents of the audit")
        token_member = np.repeat(members, np.diff(audit.doc_offsets))
        same_documents = audit.doc_ids.filter(pa.array(members)).equals(train.doc_ids)
        if not same_documents or not np.array_equal(audit.input_ids[token_member], train.input_ids):
            raise ArtifactError("the audit's member documents are not the documents the models were trained on")
        both = np.intersect1d(audit.individual[members], audit.individual[~members])
        if len(both):
            raise ArtifactError(f"{len(both)} individuals are members and held out; sides are split by individual")
        self.store, self.members, self.config, self.split_given = audit, members, config, split_given
        self.named_groups = named_groups or {}
        self.tokenizer = load_tokenizer(audit.tokenizer_path)
        self.table = SurfaceTable(self.tokenizer)
        self.words = words_of(audit)
        self.true = self.table.surfaces(audit.input_ids, self.words)
        self.bootstrap = bootstrap_of(config.num_bootstrap, config.seed, units)
        self.membership = MembershipAudit(
            audit, members, self.words, self.true, self.table, config, self.bootstrap, lowercase=lowercase,
            user_inference_holdout=user_inference_holdout, zlib_bytes=zlib_bytes, groups=groups, units=units,
            copied=copied, split_given=split_given,
        )  # fmt: skip
        self.categories = None
        if categories is not None:
            self.categories = (categories.of_words(audit, self.words), categories.names)
        self.train = train
        self._kept = index_mask_by_code(self.membership.codes, self.membership.kept)
        self.leakage = LeakageAudit(
            audit, self.words, self.true, words_of(train), members[self.words.documents], config,
            self.bootstrap, units=units, categories=self.categories, kept=self._kept,
        )  # fmt: skip
        self.kinds = KindAudit(audit, members, self.bootstrap, self.membership.kept, self.membership.uncopied)
        spelt = SurfaceTable(self.tokenizer, word_normaliser(config.surface))
        owned = None if categories is None else categories.in_corpus_wide_spans(audit, self.words)
        in_span = None if self.categories is None else self.categories[0] > 0
        self.threshold = ThresholdAudit(audit, members, self.words, spelt, self.bootstrap, units, owned, in_span,
                                        self.membership.uncopied)  # fmt: skip
        #: The scores of individuals (by code) of the model that was measured last, by attack.
        self.own_scores: dict[str, np.ndarray] = {}
        self._inversion: Any = None
        self._tokenizers: dict[bytes, Any] = {}
        self._num_windows: dict[SpecialIds, int] = {}
        self._num_drawn: dict[Path | str, int] = {}
        self._load: Callable[[Path, str], PreTrainedModel] = load_model

    def _tokenizer_of(self, path: Path) -> Any:
        """Load the tokenizer from a model's folder, with its special tokens, which the store's tokenizer lacks.

        Tokenizers are cached by the hash of their files, which the checkpoints of a training share.
        """
        digest = hashlib.sha256()
        for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "config.json"):
            digest.update((path / name).read_bytes() if (path / name).is_file() else str(path).encode())
        key = digest.digest()
        if key not in self._tokenizers:
            self._tokenizers[key] = load_tokenizer(path)
        return self._tokenizers[key]

    def evaluate(
        self,
        entry: ModelEntry,
        base: BaseModelScores | Callable[[], BaseModelScores] | None = None,
        more_attacks: MoreAttacks | None = None,
        task: Task = lambda part: nullcontext(),
        shadow_tokens: Iterable[tuple[np.ndarray, np.ndarray]] | None = None,
    ) -> tuple[ModelEvidence, BaseModelScores | None]:
        """Score and attack one model; return its evidence (an entry of "models" in report.json) and, only if it is a
        base model, its token scores.

        Parameters
        ----------
        base : scores of the base model, or their reader, called after the model is scored; None for a base model itself
        more_attacks : returns attacks beside those of the settings; not for a base model
        shadow_tokens : of each shadow the log-probabilities of the tokens, and the documents it was trained on
        task : name of a part ("documents", "all occurrences", "probes", "gradients", "information", "inversion",
            "self-calibration", "checkpoints") -> context that shows its progress
        """
        self._load = cache(load_model)  # all parts of this evaluation share one loaded model
        again: TokenScores | None = None
        inverted: Inversion | None = None
        candidates: dict[str, np.ndarray] | None = None
        identity: Excess | None = None
        try:
            with task("documents") as advance:
                scores, lowercase = self.score(entry, advance), self.score_lowercase(entry)
            compared = base() if callable(base) else base
            holdout = self.score_holdout(entry)
            written = (
                self.generate_continuations(entry)
                if self.config.generation is not None and entry.objective == "clm"
                else None
            )
            asked = self._generation_scores(entry, scores, written, task)
            if GRADIENT in self.config.attacks and entry.is_last:
                with task("gradients") as advance:
                    asked[GRADIENT] = self.gradient_scores(entry, advance)
            if STATES in self.config.attacks:
                asked[STATES], identity = self.probe_states(entry)
            if SELF_CALIBRATION in self.config.attacks and entry.is_last and entry.objective == "clm":
                with task("self-calibration") as advance:
                    asked |= self.calibrated_scores(entry, scores, compared, advance)
            information = None
            if INFORMATION in self.config.attacks and compared:
                with task("information") as advance:
                    information = self.information(entry, compared.path, advance)
            draws = self.draw_folds(entry) if compared and entry.is_last and entry.objective == "mlm" else None
            if self.config.all_occurrences and entry.objective == "mlm":
                with task("all occurrences") as advance:
                    again = self.score(entry, advance, all_occurrences=True)
            if self.config.inversion is not None:
                with task("inversion") as advance:
                    inverted, candidates = self.invert(entry, compared, advance)
        finally:
            self._load = load_model  # statistics need its memory
        if CHECKPOINTS in self.config.attacks and entry.earlier:
            with task("checkpoints") as advance:
                asked[CHECKPOINTS] = self.checkpoint_scores(entry, scores, advance)
        base_scores = compared.documents if compared else None
        further, controls = dict(asked), dict(compared.asked if compared else {})
        about: dict[str, ShadowControl] = {}
        if more_attacks and compared:
            of_shadows, of_base, about = more_attacks((scores, holdout), (compared.documents, compared.holdout))
            further, controls = further | of_shadows, controls | of_base
        if holdout and compared:
            assert compared.holdout is not None  # the settings are the same
            further[USER_INFERENCE], holdout = reference_score(holdout, compared.holdout), None
        told = out = None
        if shadow_tokens is not None and base_scores is not None:
            out = OutControls(self.membership, entry.objective, base_scores, self._restricted_masks(entry))
            told = self.kinds.shadows(map(out.add, shadow_tokens), entry.never_target)
        measured = self.measure(entry, scores, base_scores, lowercase, further, controls, told, out, draws, information)
        before = base_scores.log_probs if base_scores else None
        k = entry.k or self.config.k
        threshold = self.threshold.measure(scores.log_probs, before, k, entry.noise) if entry.is_known else None
        attacks = {name: replace(measured.membership[name], **said) for name, said in about.items()}
        measured = replace(measured, membership=measured.membership | attacks, threshold=threshold)
        if again is not None:
            measured = replace(measured, all_occurrences=self.measure_all_occurrences(again))
        if written is not None:
            measured = replace(measured, generated=self.measure_written(entry, written))
        if inverted is not None:
            measured = replace(measured, inversion=inverted)
        if identity is not None and measured.beside:
            measured = replace(measured, beside=replace(measured.beside, identity=identity))
        if not scores.scored.any():
            measured = without_predictions(measured)
        measured = replace(measured, num_drawn=self._num_drawn.get(entry.path) or None)
        if compared:
            return measured, None
        lower = needing(Need.LOWERCASE)
        asked |= self.membership.document_scores(entry.objective, scores, None, lowercase, among=lower)
        return measured, BaseModelScores(entry.path, scores, holdout, candidates, asked)

    def score(
        self,
        entry: ModelEntry,
        progress: Callable[[int, int], None] | None = None,
        *,
        all_occurrences: bool = False,
    ) -> TokenScores:
        """Return a model's scores of all tokens, members' and held-out; ``progress`` receives the number of windows
        done and their total.

        For a masked model, ``all_occurrences`` masks every occurrence of a word in its window, so it cannot be copied.
        """
        return self._score(entry, self.store, progress, all_occurrences)

    def score_lowercase(self, entry: ModelEntry) -> TokenScores | None:
        """Return a model's scores of the documents in lower case; None if no attack needs them."""
        own = self.membership.lowercase
        return None if own is None else self._score(entry, own)

    def score_holdout(self, entry: ModelEntry) -> TokenScores | None:
        """Return a model's token scores of the user-inference holdout (unseen documents of the same individuals); None
        if no attack needs them."""
        own = self.membership.holdout
        return None if own is None else self._score(entry, own.store)

    def information(
        self, entry: ModelEntry, base: Path, progress: Callable[[int, int], None] | None = None
    ) -> np.ndarray:
        """Return the InfoRMIA score (a membership attack relative to the base model at path ``base``) of every token of
        members' and held-out documents, float32 (num_tokens,)."""
        special = special_ids(self._tokenizer_of(entry.path), entry.objective)
        return score_information(
            self._load(entry.path, entry.objective), load_model(base, entry.objective), entry.objective, self.store,
            special, progress=self._window_progress(progress, special, entry.objective), **self._scoring_options,
        )  # fmt: skip

    @property
    def _scoring_options(self) -> dict[str, Any]:
        """Keyword arguments of a scoring pass (folds, window length, batch size, seed, device, bf16), from the
        settings."""
        names = ("folds", "window_length", "batch_size", "seed", "device", "bf16")
        return {name: getattr(self.config, name) for name in names}

    def _window_progress(
        self, progress: Callable[[int, int], None] | None, special: SpecialIds, objective: str
    ) -> Callable[[int], None] | None:
        """Return a callback that takes a number of scored windows and calls ``progress(windows done, total)``; None
        without ``progress``."""
        if progress is None:
            return None
        if special not in self._num_windows:
            self._num_windows[special] = len(cut_windows(self.store, self.config.window_length, special))
        return partial(with_total, progress, self._num_windows[special] * self.num_passes(objective))

    def _score(
        self,
        entry: ModelEntry,
        store: TokenStore,
        progress: Callable[[int, int], None] | None = None,
        all_occurrences: bool = False,
        seed: int | None = None,
    ) -> TokenScores:
        """Return the model's scores of the tokens in ``store``. ``seed``, if given, replaces the configured seed, by
        which a masked model's words are assigned to masking passes."""
        tokenizer = self._tokenizer_of(entry.path)
        special = special_ids(tokenizer, entry.objective)
        if is_endpoint(entry.path):
            self._num_drawn[entry.path] = 0
            told = self._window_progress(progress, special, entry.objective)
            return score_endpoint(entry.path, store, special, self.config.window_length, told)
        model = self._load(entry.path, entry.objective)
        self._num_drawn[entry.path] = num_drawn(model)
        check_fit(model, store, tokenizer, special, self.config.window_length)
        (scores,) = score_models(
            [model],
            entry.objective,
            store,
            special,
            all_occurrences=all_occurrences,
            ends=END_OF_TEXT in self.config.attacks and store is self.store,
            progress=self._window_progress(progress, special, entry.objective),
            **(self._scoring_options if seed is None else self._scoring_options | {"seed": seed}),
        )
        return scores

    def draw_folds(self, entry: ModelEntry) -> FoldDraws | None:
        """Score a sample of members' documents again, twice, each time with another random assignment of words to the
        passes in which they are masked (folds); return the predicted words, or None with fewer than two folds.

        The sample has a tenth as many members as there are individuals, at most `MOST_DRAWN`, with all their documents.
        """
        if self.config.folds < 2:
            return None
        codes, members = np.unique(self.store.individual), np.unique(self.store.individual[self.members])
        num = min(max(len(codes) // 10, 1), MOST_DRAWN)
        drawn = generator(self.config.seed, _STREAM_FOLDS).choice(members, min(num, len(members)), replace=False)
        documents = np.flatnonzero(np.isin(self.store.individual, drawn))
        store = self.store.select(documents)
        words = words_of(store)
        again = (self._score(entry, store, seed=self.config.seed + more).argmax for more in (1, 2))
        return FoldDraws(documents, [self.table.surfaces(argmax, words) for argmax in again])

    def invert(
        self,
        entry: ModelEntry,
        base: BaseModelScores | None,
        progress: Callable[[int, int], None] | None = None,
    ) -> tuple[Inversion, dict[str, np.ndarray]]:
        """Run the inversion attacks (guess an identifier from the text around it); return their result and all
        candidates' scores by kind of identifier. ``base`` is None for the base model itself."""
        if self._inversion is None:
            self._inversion = resolve("reticent.ext.inversion.measure:InversionAudit")(
                self.store, self.train, self.members, self.words, self.true, self.table, self.tokenizer,
                self.categories, self.config, self.bootstrap, self._kept,
            )  # fmt: skip
        tokenizer = self._tokenizer_of(entry.path)
        special = special_ids(tokenizer, entry.objective)
        model = self._load(entry.path, entry.objective)
        return self._inversion.measure(model, entry.objective, special, tokenizer, base, progress)

    def generate_continuations(self, entry: ModelEntry) -> Written:
        """Return a causal model's generated continuations of documents; see `continue_documents`."""
        assert self.config.generation is not None
        tokenizer = self._tokenizer_of(entry.path)
        is_server = is_endpoint(entry.path)
        return continue_documents(
            Server(entry.path, tokenizer) if is_server else self._load(entry.path, entry.objective), self.store,
            self.members, special_ids(tokenizer, entry.objective), self.config.generation,
            batch_size=self.config.batch_size, device=self.config.device, bf16=self.config.bf16, seed=self.config.seed,
        )  # fmt: skip

    def measure_written(self, entry: ModelEntry, continuations: Written) -> Generated:
        """Return how often members' and held-out individuals' identifiers appear in a causal model's generated
        continuations; see `generated_leakage`."""
        assert self.config.generation is not None
        return generated_leakage(
            continuations, self.store, self.members, self.leakage.identifiers, self.table,
            self._tokenizer_of(entry.path), self.config.generation, self.leakage.compared, **self.bootstrap,
        )  # fmt: skip

    def _generation_scores(
        self, entry: ModelEntry, scores: TokenScores, written: Written | None, task: Task
    ) -> DocumentScores:
        """Return attack name -> document scores, float64 (D,), of the attacks that use texts generated by the model
        (``written``) or copies of the document in its context."""
        tokenizer = self._tokenizer_of(entry.path)
        return generation_attack_scores(
            self.config, self.store, scores, written, load=lambda: self._load(entry.path, entry.objective),
            objective=entry.objective, tokenizer=tokenizer, special=special_ids(tokenizer, entry.objective), task=task,
        )  # fmt: skip

    def num_passes(self, objective: str) -> int:
        """Return the number of forward passes over every window that scoring a model of this objective takes."""
        return self.config.folds if objective == "mlm" else 1

    def measure(
        self,
        entry: ModelEntry,
        scores: TokenScores,
        base: TokenScores | None,
        lowercase: TokenScores | None = None,
        further: Mapping[str, np.ndarray] | None = None,
        controls: Mapping[str, np.ndarray] | None = None,
        shadows: KindShadows | None = None,
        out: OutControls | None = None,
        draws: FoldDraws | None = None,
        information: np.ndarray | None = None,
    ) -> ModelEvidence:
        """Return the evidence of one model (an entry of "models" in report.json), computed from its token scores and
        those of its base model, ``base`` (None if the model is the base model itself).

        ``further`` has the document scores of attacks that need other inputs, by name, NaN for documents that are not
        attacked. The scores of ``user_inference`` are of the holdout of user inference. ``controls`` is as for
        `MembershipAudit.measure`, ``shadows`` as for `KindAudit.measure`, ``draws`` as for `LeakageAudit.measure`;
        ``out`` has summed these shadows. ``information`` is the result of `Auditor.information`.
        """
        special = special_ids(self._tokenizer_of(entry.path), entry.objective)
        predicted = self.table.surfaces(scores.argmax, self.words)
        base_predicted = None if base is None else self.table.surfaces(base.argmax, self.words)
        leaks = self.leakage.measure(predicted, base_predicted, self.leakage.context(entry.objective, special), draws)
        further = dict(further or {})
        controls = {**(controls or {}), **(out.document_scores() if out else {})}
        on_kinds = self._attacks_by_kind(entry, scores, base, out)
        if (own := further.pop(GRADIENT, None)) is not None and ORDINARY in on_kinds:
            on_kinds[ORDINARY] |= {GRADIENT: self.membership.score_individuals(GRADIENT, own, controls.get(GRADIENT))}
        if information is not None:
            further[INFORMATION] = self._information_scores(information, np.ones(len(information), dtype=bool))
            for kind, mask in self.kinds.masks(entry.never_target):
                if kind != "all":
                    informed = self.membership.score_individuals(
                        INFORMATION, self._information_scores(information, mask), None
                    )
                    on_kinds[kind] = {**on_kinds.get(kind, {}), INFORMATION: informed}
        attacked = self.membership.measure(entry.objective, scores, base, lowercase, further, controls)
        self.own_scores = {name: one.own for name, one in attacked.compared.items()}
        by_kind, areas = self.kinds.measure(
            scores.log_probs, None if base is None else base.log_probs, entry.never_target, shadows,
            on_kinds, attacked.compared,
        )  # fmt: skip
        attacks, best = attacked.with_areas(areas)
        memorised = (None, None) if shadows is None else self.kinds.counterfactual(shadows)
        heldout, members = (self._utility(entry.objective, scores, side) for side in (~self.members, self.members))
        return ModelEvidence(
            name=entry.name,
            recipe=entry.recipe,
            objective=entry.objective,
            epoch=entry.epoch,
            ledger=entry.ledger,
            utility=Utility(heldout=heldout, members=members),
            privacy=leaks.privacy,
            privacy_by_n=leaks.privacy_by_n,
            by_category=leaks.by_category,
            excess=leaks.excess,
            over_base=leaks.over_base,
            exposed=leaks.exposed,
            membership=attacks,
            best_attack=best,
            by_kind=by_kind,
            split_given=self.split_given or None,
            groups=group_membership(
                self.own_scores,
                self.membership.codes,
                self.membership.code_member,
                self.named_groups,
                **self.bootstrap,
            )
            or None,
            blind=attacked.blind,
            blind_holdout=attacked.blind_holdout,
            low_cost=leaks.low_cost,
            beside=replace(
                numbers_beside(scores, self.store.individual, self.members, **self.bootstrap),
                shared_over_base=leaks.shared_over_base,
                counterfactual=memorised[0],
                counterfactual_exposed=memorised[1],
            ),
        )

    def _restricted_masks(self, entry: ModelEntry) -> dict[str, np.ndarray]:
        """Return token masks by name, for repeating likelihood attacks on part of the text: "ordinary" words, which
        identify nobody, and the recipe's prediction targets, unless these are the same tokens."""
        masks = {kind: mask for kind, mask in self.kinds.masks(entry.never_target) if kind in (ORDINARY, TARGETS)}
        if len(masks) == 2 and np.array_equal(masks[ORDINARY], masks[TARGETS]):
            del masks[TARGETS]
        return masks

    def _attacks_by_kind(
        self, entry: ModelEntry, scores: TokenScores, base: TokenScores | None, out: OutControls | None
    ) -> dict[str, dict[str, Compared]]:
        """Return, for ordinary (not identifying) words and for the recipe's prediction targets, attack name -> scores
        of individuals under the model and a control model, from likelihood attacks on these words alone."""
        found: dict[str, dict[str, Compared]] = {}
        for kind, mask in self._restricted_masks(entry).items():
            own, before = scores.restrict_to(mask), base and base.restrict_to(mask)
            asked = self.membership.document_scores(entry.objective, own, before)
            control = {} if base is None else self.membership.of_base(entry.objective, base, mask)
            control = {**control, **(out.document_scores(kind) if out else {})}
            found[kind] = {
                name: self.membership.score_individuals(name, one, control.get(name)) for name, one in asked.items()
            }
        if ORDINARY in found:  # where targets are the ordinary words, the same attacks
            found.setdefault(TARGETS, found[ORDINARY])
        return found

    def _information_scores(self, information: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Return each document's mean InfoRMIA score over the tokens of a mask, float64 (D,)."""
        return np.asarray(EVERY_ATTACK[INFORMATION].score(information, mask, self.store.doc_offsets))

    def gradient_scores(self, entry: ModelEntry, progress: Callable[[int, int], None] | None = None) -> np.ndarray:
        """Return minus the norm of the gradient of each document's loss on its ordinary (not identifying) words,
        float64 (D,); NaN for documents outside a random sample."""
        documents = sampled_documents(
            self.store.individual, self.members, self.config.seed, units=self.bootstrap.get("units")
        )
        special = special_ids(self._tokenizer_of(entry.path), entry.objective)
        norms = gradient_norms(
            self._load(entry.path, entry.objective), entry.objective, self.store, special, self.store.flags == 0,
            documents, folds=self.config.folds, window_length=self.config.window_length, seed=self.config.seed,
            device=self.config.device, progress=progress and partial(with_total, progress, len(documents)),
        )  # fmt: skip
        return np.asarray(EVERY_ATTACK[GRADIENT].score(norms))

    def checkpoint_scores(
        self, entry: ModelEntry, scores: TokenScores, progress: Callable[[int, int], None] | None = None
    ) -> np.ndarray:
        """Return for each document the slope of its mean log-probability over the checkpoints of the training, in nats
        a checkpoint, float64 (D,). Earlier checkpoints are loaded and scored here."""
        before = [loss_score(self.score(replace(entry, path=path), progress)) for path in entry.earlier]
        return np.asarray(EVERY_ATTACK[CHECKPOINTS].score(np.stack([*before, loss_score(scores)])))

    def calibrated_scores(
        self,
        entry: ModelEntry,
        scores: TokenScores,
        base: BaseModelScores | None,
        progress: Callable[[int, int], None] | None = None,
    ) -> DocumentScores:
        """Return attack name -> document scores relative to a reference model: the base model fine-tuned on text that
        the model generates. Empty without a base model, or if the tokenizer has no beginning-of-text token."""
        special = special_ids(self._tokenizer_of(entry.path), entry.objective)
        start = base.path if base else entry.path if entry.recipe == "base" else None
        if start is None or special.prefix is None:
            return {}
        reference = train_on_written(
            self._load(entry.path, entry.objective), load_model(start, entry.objective), special,
            batch_size=self.config.batch_size, device=self.config.device, bf16=self.config.bf16, seed=self.config.seed,
            progress=progress,
        )  # fmt: skip
        (before,) = score_models([reference], entry.objective, self.store, special, **self._scoring_options)
        return {SELF_CALIBRATION: EVERY_ATTACK[SELF_CALIBRATION].score(scores, before)}

    def probe_states(self, entry: ModelEntry) -> tuple[np.ndarray, Excess | None]:
        """Run two attacks on the model's hidden states. Return document scores of the membership attack, float64 (D,),
        and the rates at which two documents of one individual are matched, of members and held-out (None if too few
        have two)."""
        units, scores = self.bootstrap.get("units"), np.full(self.store.num_documents, np.nan)
        asked = sampled_documents(self.store.individual, self.members, self.config.seed, units=units)
        states = document_states(
            self._load(entry.path, entry.objective), self.store.select(asked),
            special_ids(self._tokenizer_of(entry.path), entry.objective), window_length=self.config.window_length,
            batch_size=self.config.batch_size, device=self.config.device, bf16=self.config.bf16,
        )  # fmt: skip
        sides = states, self.store.individual[asked], self.members[asked]
        scores[asked] = EVERY_ATTACK[STATES].score(*sides, seed=self.config.seed, units=units)
        hits, codes, member = reidentify_authors(*sides, seed=self.config.seed, units=units)
        return scores, two_sides(hits, codes, member, limit=1.0, **self.bootstrap) if len(hits) else None

    def _utility(self, objective: str, scores: TokenScores, chosen: np.ndarray) -> SideUtility:
        """Return a model's accuracies and, for a causal model, perplexity on the documents that the mask ``chosen``
        selects."""
        store = self.store
        return utility(
            objective, scores, store.input_ids, self.words, store.flags, store.individual, chosen, **self.bootstrap
        )

    def measure_all_occurrences(self, scores: TokenScores) -> AllOccurrences:
        """Return the leakage of a masked model whose ``scores`` were computed with all copies of the predicted word in
        the window masked, so that it cannot be copied from the context."""
        return self.leakage.measure_all_occurrences(self.table.surfaces(scores.argmax, self.words))
