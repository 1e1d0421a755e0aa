"""The auditor of a model's tokens and the settings of an audit, as a job defines them; categories of direct words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from reticent import _rust
from reticent.audit.leakage.words import WordCategories
from reticent.audit.membership.names import ATTACKS_ON_SIZES, USER_INFERENCE
from reticent.engine.detect.labels import category
from reticent.engine.detect.spans import SpanReader
from reticent.engine.flagged_words import FlaggedWords
from reticent.engine.index import open_index
from reticent.engine.schema import HELDOUT, MEMBERS

if TYPE_CHECKING:
    from reticent.audit.config import AuditConfig
    from reticent.audit.evaluate import Auditor
    from reticent.job.run import Run

__all__ = [
    "TEXT_SIZES",
    "audit_config",
    "needs_text_sizes",
    "open_auditor",
    "own_tokens",
    "read_categories",
    "resampling_settings",
]

#: Attack that needs tokens of its own -> their folder, which is also the keyword of `Auditor` for them.
OWN_TOKENS = {"lowercase": "lowercase", USER_INFERENCE: "user_inference_holdout"}
#: Artefact of the compressed sizes of the texts of the audit.
TEXT_SIZES = "text-sizes"


def own_tokens(run: Run) -> list[str]:
    """Return the names of the tokens that the job's attacks look at beside those of the audit."""
    return [tokens for attack, tokens in OWN_TOKENS.items() if attack in run.job.audit.attacks]


def needs_text_sizes(run: Run) -> bool:
    """Whether an attack of the job compares with the compressed sizes of the texts."""
    return not ATTACKS_ON_SIZES.isdisjoint(run.job.audit.attacks)


def audit_config(run: Run) -> AuditConfig:
    """Return the settings of the audit of a job."""
    return run.job.audit


def resampling_settings(run: Run) -> dict[str, str]:
    """Return what intervals resample, for a manifest: nothing where that is individuals, as before there was another
    unit."""
    from reticent.engine.split import households_of

    is_split = (run.folder / "split" / "individuals.parquet").exists()  # else nothing is up to date anyway
    return {"resampled": "households"} if is_split and households_of(run.individuals.units) is not None else {}


def open_auditor(run: Run, model: str) -> Auditor:
    """Return the auditor of a model, by its name: it scores and attacks checkpoints. Opens the tokens of the audit."""
    from reticent.audit.evaluate import Auditor
    from reticent.engine.store import open_tokens
    from reticent.engine.text_sizes import read_zlib_bytes
    from reticent.job.stages.near_copies import copied_individuals

    audit_store = open_tokens(run.folder / f"tokens/{model}/audit")
    members = run.individuals.mask(MEMBERS)[audit_store.individual]
    own: dict[str, Any] = {name: open_tokens(run.folder / f"tokens/{model}/{name}") for name in own_tokens(run)}
    if needs_text_sizes(run):
        own["zlib_bytes"] = read_zlib_bytes(run.folder / TEXT_SIZES)
    return Auditor(
        open_tokens(run.folder / f"tokens/{model}/train"),
        audit_store,
        members,
        audit_config(run),
        categories=read_categories(run, (MEMBERS, HELDOUT)),
        units=run.individuals.units,
        copied=copied_individuals(run),
        **own,
    )


def read_categories(run: Run, splits: tuple[str, ...]) -> WordCategories:
    """Return the categories of the words of the documents of these splits, in the order of their tokens.

    A word in spans of several categories has the one whose name comes first. Cost: two passes over the text.
    """
    flagged = FlaggedWords(
        run.corpus,
        run.individuals,
        splits=splits,
        index=open_index(run.folder / "index-joint"),
        spans=SpanReader(run.folder / "spans"),
        policy=run.policy,  # type: ignore[attr-defined]
        by_category=True,
        num_threads=run.job.num_threads,
    )
    return categories_of(flagged)


def categories_of(flagged: FlaggedWords) -> WordCategories:
    """Return the categories of flagged words; see `read_categories`."""
    known: dict[str, int] = {"": 0}
    codes, lengths = [np.empty(0, dtype=np.int16)], [np.zeros(1, dtype=np.int64)]
    for part, words, *_ in flagged:
        offsets, starts, ends, labels = flagged.spans_of(part, words)
        encoded = labels.dictionary_encode()
        label_names = [category(label) for label in encoded.dictionary.to_pylist()]
        of_span = encoded.indices.to_numpy()
        found = np.zeros(words.num_words, dtype=np.int16)
        for name in sorted(set(label_names), reverse=True):  # the first name is written last
            chosen = np.array([other == name for other in label_names])[of_span]
            before = np.concatenate([[0], np.cumsum(chosen)]).astype(np.int64)
            bounds = (np.ascontiguousarray(starts[chosen]), np.ascontiguousarray(ends[chosen]))
            covered = _rust.cover_spans(part.texts, words, before[offsets], *bounds, num_threads=flagged.num_threads)
            found[covered.astype(bool)] = known.setdefault(name, len(known))
        codes.append(found)
        lengths.append(np.diff(words.doc_offsets))
    return WordCategories(np.concatenate(codes), tuple(known), np.cumsum(np.concatenate(lengths)))
