"""Writing the views of a run (token stores with protection flags), checked against a sample of the text.

They come one after the other: two would wait for the same memory, and hold the tables of n-grams of both indexes.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from reticent.core.artifact import read_manifest
from reticent.core.errors import PolicyError
from reticent.core.memory import own_bytes
from reticent.engine.detect.spans import SpanReader
from reticent.engine.ngrams import NgramIndex
from reticent.engine.protect import Policy
from reticent.engine.pseudonymize import Style
from reticent.engine.split import Individuals
from reticent.engine.store import open_tokens, open_view
from reticent.engine.token_views import write_view
from reticent.engine.tokens import RewrittenTokens
from reticent.job.artefact import Output, Outputs
from reticent.job.config import ModelSection
from reticent.job.noise import protection_index
from reticent.job.run import Run
from reticent.job.samples import Samples, require_matching_text
from reticent.job.stages.index import INDEXES
from reticent.job.variants import TRAIN, Variant

#: Below this share of tokens that stay usable as targets, a run warns.
LITTLE_RETENTION = 0.4
#: So does it above this share of the tokens of common words that direct identifiers take.
MUCH_LOST = 0.1
#: Folders of older versions that hold documents, of individuals who may have withdrawn since.
KEPT_BEFORE = ("supports", "text-samples")
#: Memory that tokens and views take beside the tables of n-grams, whatever the size of the corpus.
ROOM_OF_TEXT, ROOM_OF_VIEW = 256 << 20, 64 << 20


def write_view_of(
    run: Run,
    model: ModelSection,
    folder: Path,
    individuals: Individuals,
    splits: tuple[str, ...],
    index: NgramIndex,
    policy: Policy,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Write a token store with protection flags of the documents in these ``splits``, into ``folder``. The supports in
    ``index`` and the ``policy`` decide which words are protected. Return the counts for its manifest.
    """

    ids, gaps = (run.folder / "tokens" / model.name / name for name in ("ids", "gaps"))
    written = write_view(
        folder,
        ids,
        gaps,
        run.numbered,
        individuals,
        splits=splits,
        index=index,
        policy=policy,
        num_threads=run.job.num_threads,
        progress=progress,
    )
    return {**written, "pretokens": read_manifest(ids).counts["pretokens"]}


def write_rewritten(
    run: Run,
    model: ModelSection,
    folder: Path,
    style: Style,
    individuals: Individuals,
    splits: tuple[str, ...],
    policy: Policy,
    supports: NgramIndex,
    original: Path,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Write a token store of the documents in these ``splits``, with direct identifiers replaced in a ``style`` (by
    surrogates or by tags), into ``folder``. Protection flags are taken from the store ``original`` of the unchanged
    text. Return the counts for its manifest.

    ``original`` is the folder of the view of the same documents, whose flags are carried over, and ``supports`` the
    index that protects them.
    """

    rewritten = RewrittenTokens(
        style,
        open_view(original, run.folder / "tokens" / model.name / "ids"),
        run.corpus,
        individuals,
        run.tokenizer_of(model),
        splits=splits,
        spans=SpanReader(run.folder / "spans"),
        policy=policy,
        supports=supports,
        num_threads=run.job.num_threads,
    )
    return rewritten.write(folder, progress=progress)


def require_room(run: Run, variants: Iterable[Variant], num_bytes: int) -> None:
    """Raise `PolicyError` if the job's memory limit is too low for the n-gram tables that protect these token stores
    (``variants``) and ``num_bytes`` besides.
    """

    limit = run.job.memory_limit
    if limit is None:
        return
    policies = [(run.index(variant.index), variant.policy or run.policy) for variant in variants]
    run.forget_tables(*INDEXES)  # of the view before
    tables = max((index.table_bytes(k=policy.k, n=policy.n) for index, policy in policies), default=0)
    if (least := own_bytes() + tables + num_bytes) > limit:
        raise PolicyError(
            f"memory limit of {limit // 10**6}MB cannot be held: n-grams that protect tokens take "
            f"{tables // 10**6}MB of it; allow at least {-(-least // 10**7)}0MB, or set a larger k or a smaller n"
        )


def build_views(
    run: Run, model: ModelSection, variants: Mapping[str, Variant], samples: Samples, outputs: Outputs
) -> None:
    """Write those token stores with protection flags ("views") of a model that are missing or out of date. ``variants``
    maps each store's artefact name to its splits, protection and text style, ``outputs`` those to be written to their
    output.

    Parameters
    ----------
    variants : for each view, by the name of its artefact, what is protected in it and how its text is rewritten
    """
    stale = {name: variant for name, variant in variants.items() if name in outputs}
    for name in KEPT_BEFORE:
        shutil.rmtree(run.folder / name, ignore_errors=True)
    title = " and ".join(variant.name for variant in stale.values())
    num_documents = run.corpus.num_documents
    with run.progress.task(f"protect {title} tokens", len(stale) * num_documents, "documents") as advance:
        for number, (name, variant) in enumerate(stale.items()):
            with outputs[name]() as output:
                _build_view(
                    run, model, variant, samples, output, partial(_report_total, advance, number * num_documents)
                )


def _report_total(advance: Callable[[int], None], num_before: int, num_documents: int) -> None:
    """Report progress over all token stores: ``num_before`` documents in finished ones plus ``num_documents`` in the
    present one."""
    advance(num_before + num_documents)


def _build_view(
    run: Run, model: ModelSection, variant: Variant, samples: Samples, output: Output, advance: Callable[[int], None]
) -> None:
    """Write one token store with protection flags, check the flags against the text of sampled documents, and warn if
    protection leaves few training targets.
    """
    if variant.index != "index" and run.job.memory_limit is not None:
        run.invalidate("index")  # its words
    policy = variant.policy or run.policy
    require_room(run, [variant], ROOM_OF_VIEW)
    index = index_of(run, variant, policy)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(samples.read, model, variant.splits, index, policy)  # while the core works on numbers
        counts = write_view_of(run, model, output.folder, run.individuals, variant.splits, index, policy, advance)
    check = require_matching_text(open_tokens(output.folder), reading.result(), policy)
    output.counts.update(counts, text_check=check.to_dict())
    if variant.splits == TRAIN:
        _warn_of_policy(run, model, policy, counts)


def index_of(run: Run, variant: Variant, policy: Policy) -> NgramIndex:
    """Return the n-gram index whose supports decide the protection flags of a token store. For training it is that of
    the members, changed by noise or a public word list if the job has them; for the audit that of members and held-out
    individuals, unchanged.
    """
    index = run.index(variant.index)
    return protection_index(run, index, policy.k, words=policy.words) if variant.index == "index" else index


def _warn_of_policy(run: Run, model: ModelSection, settings: Policy, counts: dict[str, Any]) -> None:
    """Warn if protection leaves few training targets or direct identifiers cover many common words, by the store's
    ``counts``. Warn also if a policy does not fit the model's objective or names labels that no span has.
    """
    if unused := settings.unused_scopes(run.numbered.word_spans.names):
        run.progress.warn_once(f"protect.scopes: no span has the label or category {', '.join(unused)}")
    if counts["common_lost"] > MUCH_LOST:
        run.progress.warn(
            f"direct identifiers take {counts['common_lost']:.0%} of the tokens of words that are too common to "
            "identify anybody, so models learn less of the language: look for a label that has spans which identify "
            "nobody, or give it the scope occurrence (protect.scopes)"
        )
    if counts["retention"] < LITTLE_RETENTION:
        noise = run.job.threshold.epsilon
        if settings.words != "counted":
            why = f"(words: {settings.words}); give a longer list (protect.public_words)"
        elif noise is None:
            of_policy = f"(k={settings.k}, n={settings.n}, policy {settings.policy})"
            why = f"{of_policy}; try policy cover, a smaller n, or more documents"
        else:
            why = f"(k={settings.k}, threshold.epsilon {noise:g}); try a larger epsilon, or more individuals"
        run.progress.warn(f"only {counts['retention']:.0%} of the tokens stay usable as targets {why}")
    if settings.policy == "last" and settings.n > 1 and model.objective == "mlm":
        run.progress.warn(
            f"{model.name} is a masked model, which predicts a word from those after it too: "
            "policy last protects one direction only; use all"
        )
