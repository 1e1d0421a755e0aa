"""Run inversion, association and embedding shift on every model of an audit.

Targets, decoys and terms are drawn once for the windows of an objective, and are the same for every model. The scores
of the base model are kept, because the other models are compared with them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from reticent.audit.evidence.inversion import Inversion, InvertedKind
from reticent.audit.leakage.words import SurfaceTable, Words
from reticent.audit.stats.intervals import Bootstrap
from reticent.core.device import pick_device
from reticent.core.errors import ArtifactError
from reticent.engine.store import TokenStore
from reticent.ext.inversion.association import (
    Pairs,
    association,
    draw_name_term_pairs,
    pair_rates,
    read_association_templates,
)
from reticent.ext.inversion.embedding_shift import embedding_shift
from reticent.ext.inversion.identifiers import Runs, Targets, draw_targets, runs_of
from reticent.ext.inversion.inversion import InversionConfig, in_place, inversion, score_candidates, score_in_place
from reticent.trainer.models import load_model
from reticent.trainer.windows import SpecialIds, Windows, cut_windows

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

    from reticent.audit.config import AuditConfig
    from reticent.audit.scoring.token_scores import BaseModelScores

#: Scores of the candidates by a model: a kind of identifiers, one "in_place", or "association" -> sums.
Scores = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class _AttackInputs:
    """The windows, targets and name-term pairs on which all models of one objective are measured."""

    windows: Windows
    targets: dict[str, Targets]
    pairs: Pairs | None


class InversionAudit:
    """Inversion, association and embedding shift on the documents of members and held-out individuals; see `measure`.

    Parameters
    ----------
    store, train : tokens of both sides, and those of the members with the flags of the training
    members : bool array, shape (store.num_documents,)
    words, surfaces, table : of ``store``
    categories : (codes of the words, their names), optional
        Without them identifiers are matched by shape alone, and there is no association, because names are unknown.
    kept : as for `two_sides`
    """

    def __init__(
        self,
        store: TokenStore,
        train: TokenStore,
        members: np.ndarray,
        words: Words,
        surfaces: np.ndarray,
        table: SurfaceTable,
        tokenizer: PreTrainedTokenizerFast,
        categories: tuple[np.ndarray, tuple[str, ...]] | None,
        config: AuditConfig,
        bootstrap: Bootstrap,
        kept: np.ndarray | None = None,
    ):
        assert config.inversion is not None
        self.settings: InversionConfig = config.inversion
        self.store, self.train, self.config, self.tokenizer = store, train, config, tokenizer
        self.bootstrap, self.kept = bootstrap, kept
        self.words, self.surfaces = words, surfaces
        self.names = ("",) if categories is None else categories[1]
        codes = None if categories is None else categories[0]
        self.is_member = np.zeros(int(store.individual.max(initial=0)) + 1, dtype=bool)
        self.is_member[store.individual[members]] = True
        kinds = dict.fromkeys((*self.settings.kinds, *(("direct",) if self.settings.association else ())))
        self.runs: dict[str, Runs] = {kind: runs_of(store, words, kind, tokenizer, table, codes) for kind in kinds}
        self._drawn: dict[tuple[SpecialIds, str], _AttackInputs] = {}

    def drawn(self, special: SpecialIds, objective: str) -> _AttackInputs:
        """Return what all models of one objective are attacked with: windows of text, identifiers with decoys, and
        pairs of a name and a term. They are drawn at the first call and cached.
        """
        key = (special, objective)
        if key not in self._drawn:
            windows = cut_windows(self.store, self.config.window_length, special)
            targets: dict[str, Targets] = {
                kind: draw_targets(
                    self.store,
                    windows,
                    self.runs[kind],
                    self.is_member[self.runs[kind].individuals],
                    num_decoys=self.settings.num_decoys,
                    per_individual=self.settings.per_individual,
                    seed=self.config.seed,
                    needs_more=objective == "clm",
                )
                for kind in self.settings.kinds
            }
            self._drawn[key] = _AttackInputs(windows, targets, self._draw_name_pairs())
        return self._drawn[key]

    def _draw_name_pairs(self) -> Pairs | None:
        """Draw the name-term pairs of the association attack; None if it is off or names are unknown."""
        if not self.settings.association or "NAME" not in self.names:
            return None
        runs = self.runs["direct"]
        is_name = runs.categories == self.names.index("NAME")
        return draw_name_term_pairs(
            self.store,
            self.words,
            self.surfaces,
            runs,
            is_name,
            self.is_member,
            self.settings,
            self.tokenizer,
            seed=self.config.seed,
        )

    def measure(
        self,
        net: PreTrainedModel,
        objective: str,
        special: SpecialIds,
        tokenizer: PreTrainedTokenizerFast,
        base: BaseModelScores | None,
        progress: Callable[[int, int], None] | None = None,
    ) -> tuple[Inversion, Scores]:
        """Run the inversion, association and embedding-shift attacks on one model, and compare it with the base model's
        scores in ``base``. Return the results, and the model's score of every candidate by attack.

        The base model is ranked by its own likelihoods: a control for what can be known without the documents.
        """
        drawn, causal = self.drawn(special, objective), objective == "clm"
        known = None if base is None else base.candidates
        if known is not None and any(len(known[kind]) != len(targets) for kind, targets in drawn.targets.items()):
            raise ArtifactError("inversion: the base model was measured on other identifiers; measure it again")
        device = pick_device(self.config.device)
        model: Any = net.to(device=device).eval()  # type: ignore
        options = self.bootstrap
        total, before = 2 * sum(map(len, drawn.targets.values())), 0
        scores: Scores = {}
        kinds: dict[str, InvertedKind] = {}
        related = shift = None

        def advance(done: int) -> None:
            """Report the number of targets scored in all kinds of identifiers."""
            if progress:
                progress(before + done, total)

        for kind, targets in drawn.targets.items():
            scores[kind] = score_candidates(
                model,
                drawn.windows,
                targets,
                folds=None if causal else self.config.folds,
                seed=self.config.seed,
                batch_size=self.config.batch_size,
                progress=advance,
            )
            before += len(targets)
            own = f"{kind}_in_place"
            scores[own] = score_in_place(
                model, drawn.windows, targets, masked=not causal, batch_size=self.config.batch_size, progress=advance
            )
            before += len(targets)
            side = self.is_member[targets.individuals]
            of_base = (None, None) if known is None else (known[kind], known[own])
            kinds[kind] = replace(
                inversion(targets, scores[kind], of_base[0], side, self.kept, **options),
                in_place=in_place(targets, scores[own], of_base[1], side, self.kept, **options),
            )
        if drawn.pairs is not None:
            templates = read_association_templates(self.settings.language)
            scores["association"] = association(
                model, self.store, drawn.pairs, tokenizer, special, templates, causal=causal,
                batch_size=self.config.batch_size,
            )  # fmt: skip
            side = self.is_member[drawn.pairs.individuals]
            related = pair_rates(drawn.pairs, scores["association"], side, self.kept, **options)
        if self.settings.embedding_shift and base is not None:
            before_training: Any = load_model(base.path, objective)
            shift = embedding_shift(
                model.cpu(), before_training, self.train, tokenizer,
                num_bootstrap=options["num_bootstrap"], seed=options["seed"],  # of rows, which have no household
            )  # fmt: skip
        return Inversion(**kinds, association=related, embedding_shift=shift), scores
