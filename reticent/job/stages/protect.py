"""Documents, spans and index -> protected tokens, once for each tokenizer and style of text."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reticent.audit.membership.names import USER_INFERENCE
from reticent.engine.schema import HELDOUT, MEMBERS
from reticent.job.artefact import Artefact, Step
from reticent.job.auditing import TEXT_SIZES, needs_text_sizes

if TYPE_CHECKING:
    from reticent.engine.pseudonymize import Style
    from reticent.engine.rewrite import TextStyle
    from reticent.job.config import ModelSection
    from reticent.job.run import Run

__all__ = ["REWRITTEN", "digest_of", "protect_steps"]

#: Tokens of the members' documents in another style than the original's.
REWRITTEN: dict[str, Style] = {"train-pseudonymised": "x", "train-tag": "tag"}

#: Below this share of words that stay usable as targets, a run warns.
LITTLE_RETENTION = 0.4


@dataclass(frozen=True, slots=True)
class _Variant:
    """One store of tokens of a model: whose documents, flagged by which index, in which style."""

    name: str
    index: str = "index"
    splits: tuple[str, ...] = (MEMBERS,)
    style: TextStyle | None = None


def protect_steps(run: Run) -> Iterator[Step]:
    """Yield a step for each artefact ``tokens/MODEL/VARIANT``, and one for the sizes of texts where they are needed."""
    if needs_text_sizes(run):
        inputs = {**run.corpus_input(), "split": run.fingerprints.of("split")}
        yield Step.of(
            Artefact(TEXT_SIZES, "text-sizes", {"splits": [MEMBERS, HELDOUT]}, inputs), partial(_build_sizes, run)
        )
    for model in run.job.model:
        tokenizer = run.tokenizer_of(model)
        for variant in _variants(run, model):
            yield Step.of(_artefact(run, model, variant, tokenizer), partial(_build, run, model, variant, tokenizer))
        if USER_INFERENCE in run.job.audit.attacks:
            yield _holdout_step(run, model, tokenizer)


def digest_of(tokenizer: str) -> str:
    """Return the fingerprint of a tokenizer."""
    return hashlib.sha256(tokenizer.encode()).hexdigest()


def _variants(run: Run, model: ModelSection) -> Iterator[_Variant]:
    needed = {run.job.recipe(recipe).tokens for recipe in model.recipes}
    yield _Variant("train")
    yield _Variant("audit", "index-joint", (MEMBERS, HELDOUT))
    for name, style in REWRITTEN.items():
        if name in needed:
            yield _Variant(name, style=style)
    if "lowercase" in run.job.audit.attacks:
        yield _Variant("lowercase", "index-joint", (MEMBERS, HELDOUT), "lower")


def _artefact(run: Run, model: ModelSection, variant: _Variant, tokenizer: str) -> Artefact:
    config = {
        **run.job.protect.model_dump(),
        "splits": list(variant.splits),
        "style": variant.style,
        "tokenizer": digest_of(tokenizer),
    }
    inputs = {
        **run.corpus_input(),
        "split": run.fingerprints.of("split"),
        "spans": run.fingerprints.of("spans"),
        "index": run.fingerprints.of(variant.index),
    }
    return Artefact(f"tokens/{model.name}/{variant.name}", "tokens", config, inputs)


def _build(
    run: Run, model: ModelSection, variant: _Variant, tokenizer: str, folder: Path, counts: dict[str, Any]
) -> None:
    from reticent.engine.detect.spans import SpanReader
    from reticent.engine.index import open_index
    from reticent.engine.tokens import write_tokens
    from reticent.engine.verify import TextSample

    lower = variant.style == "lower"  # asked for by an attack alone: no target, and no flag
    sample = None if variant.style else TextSample(run.corpus, run.individuals, variant.splits, run.job.seed)
    with run.progress.task(f"protect {variant.name} tokens", run.corpus.num_documents, "documents") as advance:
        written = write_tokens(
            folder,
            run.corpus,
            run.individuals,
            tokenizer,
            splits=variant.splits,
            policy=run.policy,
            index=None if lower else open_index(run.folder / variant.index),
            spans=None if lower else SpanReader(run.folder / "spans"),
            style=variant.style,
            sample=sample,
            progress=advance,
            num_threads=run.job.num_threads,
        )
    counts.update(written)
    if variant.name == "train":
        _warn_of_policy(run, model, counts)


def _warn_of_policy(run: Run, model: ModelSection, counts: dict[str, Any]) -> None:
    settings = run.job.protect
    if counts["retention"] < LITTLE_RETENTION:
        run.progress.warn(
            f"only {counts['retention']:.0%} of the words stay usable as targets "
            f"(k={settings.k}, n={settings.n}, policy {settings.policy}); "
            "try policy cover, a smaller n, or more documents"
        )
    if settings.policy == "last" and settings.n > 1 and model.objective == "mlm":
        run.progress.warn(
            f"{model.name} is a masked model, which predicts a word from those after it too: "
            "policy last protects one direction only; use all"
        )


def _build_sizes(run: Run, folder: Path, counts: dict[str, Any]) -> None:
    from reticent.engine.text_sizes import write_text_sizes

    with run.progress.task("compress texts", run.corpus.num_documents, "documents") as advance:
        counts["documents"] = write_text_sizes(
            folder,
            run.corpus,
            run.individuals,
            (MEMBERS, HELDOUT),
            num_threads=run.job.num_threads,
            progress=advance,
        )


def _holdout_step(run: Run, model: ModelSection, tokenizer: str) -> Step:
    config = {"splits": [MEMBERS, HELDOUT], "tokenizer": digest_of(tokenizer)}
    inputs = {"corpus": run.user_inference_holdout.fingerprint(), "split": run.fingerprints.of("split")}
    return Step.of(
        Artefact(f"tokens/{model.name}/user_inference_holdout", "tokens", config, inputs),
        partial(_build_holdout, run, tokenizer),
    )


def _build_holdout(run: Run, tokenizer: str, folder: Path, counts: dict[str, Any]) -> None:
    """Held-back documents of both sides -> tokens without flags: nothing is trained on them, and all are asked for."""
    from reticent.engine.tokens import write_tokens

    corpus = run.user_inference_holdout
    with run.progress.task("tokens of held-back documents", corpus.num_documents, "documents") as advance:
        counts.update(
            write_tokens(
                folder,
                corpus,
                run.individuals,
                tokenizer,
                splits=(MEMBERS, HELDOUT),
                progress=advance,
                num_threads=run.job.num_threads,
            )
        )
