"""From documents, spans and index to protected tokens, once for each tokenizer and style of text (original or
rewritten).

    words, word-spans            the words of all documents as rows of the joint index, and the words of each span
    tokens/MODEL/ids, gaps       the ids of all documents, and the tokens that spans hold between words
    tokens/MODEL/train, audit    views over them: whose documents, and what of them is protected
    tokens/MODEL/train-…         tokens of text in another style, with ids of their own and the flags of a view

The first two lines are one pass over the text (:mod:`reticent.engine.single_pass`); a view reads none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack
from functools import lru_cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from reticent.audit.membership.names import USER_INFERENCE
from reticent.engine.detect.spans import SpanReader
from reticent.engine.rewrite import TextStyle
from reticent.engine.schema import HELDOUT, MEMBERS
from reticent.engine.single_pass import Encoding, SinglePass
from reticent.engine.tokens import write_tokens
from reticent.job.artefact import Artefact, Outputs, Step
from reticent.job.config import ModelSection
from reticent.job.noise import noise_settings
from reticent.job.run import Run
from reticent.job.samples import Samples
from reticent.job.stages.index import INDEXES
from reticent.job.variants import AUDIT, REWRITTEN, TRAIN, Variant
from reticent.job.views import (
    ROOM_OF_TEXT,
    ROOM_OF_VIEW,
    build_views,
    index_of,
    require_room,
    write_rewritten,
    write_view_of,
)

#: Artefacts of the pass over the text that all models share.
WORDS, WORD_SPANS = "words", "word-spans"


def protect_steps(run: Run) -> Iterator[Step]:
    """Yield the step that reads the text once, and those that write the protected token stores
    ``tokens/MODEL/VARIANT``."""
    samples = Samples(run, TRAIN, AUDIT)
    if run.job.model:
        yield Step(text_artefacts(run), partial(_read_text, run, samples))
    for model in run.job.model:
        tokenizer = run.tokenizer_of(model)
        planned = [
            (variant, _variant_artefact(run, model, variant, tokenizer)) for variant in _iter_variants(run, model)
        ]
        views = {artefact.name: variant for variant, artefact in planned if variant.style is None}
        outputs = tuple(artefact for _, artefact in planned if artefact.name in views)
        yield Step(outputs, partial(build_views, run, model, views, samples))
        for variant, artefact in planned:
            if variant.style is not None:
                build = _build_lowered if variant.style == "lower" else _build_rewritten
                yield Step.of(artefact, partial(build, run, model, variant))
        if USER_INFERENCE in run.job.audit.attacks:
            yield _holdout_step(run, model, tokenizer)
    run.invalidate(*INDEXES, "numbered")  # their memory


def text_artefacts(run: Run) -> tuple[Artefact, ...]:
    """Return the artefacts that the single pass over the text writes: the word ids of all documents, the words inside
    detected spans, and for each model the token ids and the tokens in spans that belong to no word ("gaps").
    """
    corpus = run.corpus_input()
    spans = {**corpus, "spans": run.fingerprints.of("spans")}
    outputs = [
        Artefact(WORDS, "words", {}, {**corpus, "index": run.fingerprints.of("index-joint")}),
        Artefact(WORD_SPANS, "word-spans", {}, spans),
    ]
    for model in run.job.model:
        tokenizer = {"tokenizer": tokenizer_digest(run.tokenizer_of(model))}
        outputs += [
            Artefact(f"tokens/{model.name}/ids", "token-ids", tokenizer, corpus),
            Artefact(f"tokens/{model.name}/gaps", "token-gaps", tokenizer, spans),
        ]
    return tuple(outputs)


def _read_text(run: Run, samples: Samples, outputs: Outputs) -> None:
    """Read the text once and write those artefacts of `text_artefacts` that are out of date."""
    planned = [variant for model in run.job.model for variant in _iter_variants(run, model)]
    require_room(run, (variant for variant in planned if variant.style != "lower"), ROOM_OF_TEXT)
    if run.job.memory_limit is not None:
        run.invalidate("index")  # its words, until a view needs them
    with ExitStack() as stack:
        # The last that is opened is whole first.
        made = {name: stack.enter_context(outputs[name]()) for name in reversed(list(outputs))}
        folders = {name: output.folder for name, output in made.items()}
        run.invalidate("numbered")
        text = SinglePass(run.corpus, num_threads=run.job.num_threads)
        text.on_batch = samples.on_batch()
        text.words, text.word_spans = folders.get(WORDS), folders.get(WORD_SPANS)
        if text.words:
            text.index = run.index("index-joint")
        for model in run.job.model:
            ids, gaps = (folders.get(f"tokens/{model.name}/{name}") for name in ("ids", "gaps"))
            if ids or gaps:
                text.encodings.append(Encoding(run.tokenizer_of(model), ids, gaps))
        if text.word_spans or any(encoding.gaps for encoding in text.encodings):
            text.spans = SpanReader(run.folder / "spans")
        with run.progress.task("words and tokens", run.corpus.num_documents, "documents") as advance:
            counts = text.run(advance)
        for output in made.values():
            output.counts.update(counts.get(output.folder, {}))


@lru_cache(maxsize=4)
def tokenizer_digest(tokenizer: str) -> str:
    """Return the SHA-256 (hex) of a tokenizer given as JSON text."""
    return hashlib.sha256(tokenizer.encode()).hexdigest()


def _iter_variants(run: Run, model: ModelSection) -> Iterator[Variant]:
    """Yield a description of each token store that a model needs: one for training, one for each recipe with another
    protection or text, one for the audit, and one of lower-cased text if an attack needs it.
    """
    yield Variant("train")
    heads = [head.section for head in run.job.heads]
    own = {run.job.tokens(recipe): recipe for recipe in (*model.recipes, *heads)}
    for name, recipe in sorted(own.items()):
        if name != "train":
            style = REWRITTEN.get(run.job.recipe(recipe).tokens)
            yield Variant(name, style=style, policy=run.job.protection(recipe))
    yield Variant("audit", "index-joint", AUDIT)
    if "lowercase" in run.job.audit.attacks:
        yield Variant("lowercase", "index-joint", AUDIT, "lower")


def _variant_artefact(run: Run, model: ModelSection, variant: Variant, tokenizer: str) -> Artefact:
    """Return the artefact of a token store, with its protection settings and the fingerprints that it depends on."""
    policy = variant.policy or run.policy
    config = {
        **policy.cache_key(),
        "splits": list(variant.splits),
        "style": variant.style,
        "tokenizer": tokenizer_digest(tokenizer),
        **(noise_settings(run, policy) if variant.index == "index" else {}),
    }
    inputs = {
        **run.corpus_input(),
        "split": run.fingerprints.of("split"),
        "spans": run.fingerprints.of("spans"),
        "index": run.fingerprints.of(variant.index),
        **variant_inputs(run, model, variant.style),
    }
    return Artefact(f"tokens/{model.name}/{variant.name}", "tokens", config, inputs)


def variant_inputs(run: Run, model: ModelSection, style: TextStyle | None) -> dict[str, str]:
    """Return the inputs {name: fingerprint} that the tokens of a text style are made from, some of `text_artefacts`.
    Empty for lower-cased text, which is tokenised from the documents instead.
    """
    ids, gaps = (f"tokens/{model.name}/{name}" for name in ("ids", "gaps"))
    names = {WORDS: WORDS, WORD_SPANS: WORD_SPANS, "ids": ids, "gaps": gaps}
    return {} if style == "lower" else {name: run.fingerprints.of(path) for name, path in names.items()}


def _build_lowered(run: Run, model: ModelSection, variant: Variant, folder: Path, counts: dict[str, Any]) -> None:
    """Write unflagged tokens of the lower-cased documents, for an attack; nothing is trained on them."""

    with run.progress.task(f"protect {variant.name} tokens", run.corpus.num_documents, "documents") as advance:
        written = write_tokens(
            folder,
            run.corpus,
            run.individuals,
            run.tokenizer_of(model),
            splits=variant.splits,
            style="lower",
            progress=advance,
            num_threads=run.job.num_threads,
        )
    counts.update(written)


def _build_rewritten(run: Run, model: ModelSection, variant: Variant, folder: Path, counts: dict[str, Any]) -> None:
    """Write tokens of the documents with direct identifiers replaced in the variant's style, and with the protection
    flags of the original text under the same policy."""

    assert variant.style is not None
    assert variant.style != "lower"
    policy, documents = variant.policy or run.policy, (run.individuals, variant.splits)
    with (
        TemporaryDirectory(prefix=".original-", dir=folder) as made,
        run.progress.task(f"protect {variant.name} tokens", run.corpus.num_documents, "documents") as advance,
    ):
        original, index = run.folder / "tokens" / model.name / "train", index_of(run, variant, policy)
        if policy != run.policy:
            original = Path(made)
            require_room(run, [variant], ROOM_OF_VIEW)
            write_view_of(run, model, original, *documents, index, policy)
        counts |= write_rewritten(run, model, folder, variant.style, *documents, policy, index, original, advance)


def _holdout_step(run: Run, model: ModelSection, tokenizer: str) -> Step:
    """Return the step that writes the tokens of the documents reserved for user inference."""
    config = {"splits": [MEMBERS, HELDOUT], "tokenizer": tokenizer_digest(tokenizer)}
    inputs = {"corpus": run.user_inference_holdout.fingerprint(), "split": run.fingerprints.of("split")}
    return Step.of(
        Artefact(f"tokens/{model.name}/user_inference_holdout", "tokens", config, inputs),
        partial(_build_holdout, run, tokenizer),
    )


def _build_holdout(run: Run, tokenizer: str, folder: Path, counts: dict[str, Any]) -> None:
    """Write unflagged tokens of the documents reserved for user inference; nothing is trained on them."""

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
