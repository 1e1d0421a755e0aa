"""Document scores of the attacks that prompt the model for more than likelihoods
(:mod:`reticent.audit.membership.asking`)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from reticent.audit.leakage.generated import texts_by_row
from reticent.audit.membership.asking import ASKING_ATTACKS
from reticent.audit.membership.coverage import coverage_score
from reticent.audit.membership.names import COVERAGE, PROBING
from reticent.audit.membership.probing import probe_score
from reticent.audit.scoring.token_scores import TokenScores
from reticent.engine.store import TokenStore
from reticent.trainer.windows import SpecialIds

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

    from reticent.audit.config import AuditConfig
    from reticent.audit.leakage.generated import Written

#: Name of a part of an evaluation -> context that shows its progress.
Task = Callable[[str], AbstractContextManager[Any]]


def generation_attack_scores(
    config: AuditConfig,
    store: TokenStore,
    scores: TokenScores,
    written: Written | None,
    *,
    load: Callable[[], PreTrainedModel],
    objective: str,
    tokenizer: PreTrainedTokenizerFast,
    special: SpecialIds,
    task: Task,
) -> dict[str, np.ndarray]:
    """Return attack name -> document scores, float64 (D,), of the configured attacks that use generated text or
    in-context copies; NaN for documents that are not attacked.

    Parameters
    ----------
    scores : the model's scores of ``store``
    written : the model's continuations; None if it writes none
    load : returns the model
    """
    found: dict[str, np.ndarray] = {}
    if COVERAGE in config.attacks and written is not None:
        assert config.generation is not None
        found[COVERAGE] = np.full(store.num_documents, np.nan)
        found[COVERAGE][written.documents] = coverage_score(*texts_by_row(written, store, config.generation, tokenizer))
    if PROBING in config.attacks and objective in ASKING_ATTACKS[PROBING].objectives:
        with task("probes") as advance:
            found[PROBING] = probe_score(
                load(), store, scores, tokenizer, special, window_length=config.window_length,
                batch_size=config.batch_size, device=config.device, bf16=config.bf16, seed=config.seed,
                progress=advance and partial(with_total, advance, store.num_documents),
            )  # fmt: skip
    return found


def with_total(progress: Callable[[int, int], None], total: int, done: int) -> None:
    """Call ``progress(done, total)``. For use with `functools.partial`: it turns a callback that takes both numbers
    into one that takes only ``done``."""
    progress(done, total)
