"""Documents, spans and index -> protected tokens, once for each tokenizer and style of text.

    words, word-spans            the words of all documents as rows of the joint index, and the words of each span
    tokens/MODEL/ids, gaps       the ids of all documents, and the tokens that spans hold between words
    tokens/MODEL/train, audit    views over them: whose documents, and what of them is protected
    tokens/MODEL/train-…         tokens of text in another style: a patch over the ids, or with ids of their own

The first two lines are one pass over the text (:mod:`reticent.engine.text_pass`); a view reads none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reticent.audit.membership.names import USER_INFERENCE
from reticent.core.errors import PolicyError
from reticent.engine.schema import HELDOUT, MEMBERS
from reticent.job.artefact import Artefact, Outputs, Step
from reticent.job.capped import NONE, Capped, capped_supports
from reticent.job.noise import noise_settings, protecting
from reticent.job.rewritten import REWRITTEN
from reticent.job.samples import Samples, ViewSample
from reticent.job.stages.index import INDEXES

if TYPE_CHECKING:
    from reticent.engine.carried_text import CarriedText
    from reticent.engine.ngrams import NgramIndex
    from reticent.engine.protect import Policy
    from reticent.engine.rewrite import TextStyle
    from reticent.engine.split import Individuals
    from reticent.engine.text_pass import TextPass
    from reticent.job.config import ModelSection
    from reticent.job.run import Run

__all__ = [
    "digest_of",
    "protect_steps",
    "text_artefacts",
    "text_steps",
    "variant_inputs",
    "write_view_of",
]

#: Below this share of words that stay usable as targets, a run warns.
LITTLE_RETENTION = 0.4
#: Whose documents the views for training and for the audit hold.
TRAIN: tuple[str, ...] = (MEMBERS,)
AUDIT: tuple[str, ...] = (MEMBERS, HELDOUT)
#: Artefacts of the pass over the text that all models share.
WORDS, WORD_SPANS = "words", "word-spans"


@dataclass(frozen=True, slots=True)
class _Variant:
    """One store of tokens of a model: whose documents, flagged by which index, in which style."""

    name: str
    index: str = "index"
    splits: tuple[str, ...] = TRAIN
    style: TextStyle | None = None
    #: None: that of the job.
    policy: Policy | None = None


def protect_steps(run: Run) -> Iterator[Step]:
    """Yield the step of the pass over the text, and one for each artefact ``tokens/MODEL/VARIANT``."""
    samples = Samples(run, TRAIN, AUDIT)
    if run.job.model:
        yield Step(text_artefacts(run), partial(_read_text, run, samples, None))
    for model in run.job.model:
        tokenizer = run.tokenizer_of(model)
        for variant in _variants(run, model):
            view = partial(_build_view, samples=samples)
            build = view if variant.style is None else _build_store
            yield Step.of(_artefact(run, model, variant, tokenizer), partial(build, run, model, variant))
        if USER_INFERENCE in run.job.audit.attacks:
            yield _holdout_step(run, model, tokenizer)
    run.invalidate(*INDEXES, "numbered")  # their memory


def text_steps(run: Run, carried: Callable[[TextPass], CarriedText]) -> Iterator[Step]:
    """Yield the step of the pass over the text of an update, which takes results from another run."""
    yield Step(text_artefacts(run), partial(_read_text, run, None, carried))
    run.invalidate(*INDEXES, "numbered")


def text_artefacts(run: Run) -> tuple[Artefact, ...]:
    """Return the artefacts of the pass over the text."""
    corpus = run.corpus_input()
    spans = {**corpus, "spans": run.fingerprints.of("spans")}
    outputs = [
        Artefact(WORDS, "words", {}, {**corpus, "index": run.fingerprints.of("index-joint")}),
        Artefact(WORD_SPANS, "word-spans", {}, spans),
    ]
    for model in run.job.model:
        tokenizer = {"tokenizer": digest_of(run.tokenizer_of(model))}
        outputs += [
            Artefact(f"tokens/{model.name}/ids", "token-ids", tokenizer, corpus),
            Artefact(f"tokens/{model.name}/gaps", "token-gaps", tokenizer, spans),
        ]
    return tuple(outputs)


def _read_text(
    run: Run, samples: Samples | None, carried: Callable[[TextPass], CarriedText] | None, outputs: Outputs
) -> None:
    from reticent.engine.detect.spans import SpanReader
    from reticent.engine.text_pass import Encoding, TextPass

    if samples:  # views follow
        planned = [variant for model in run.job.model for variant in _variants(run, model)]
        _require_room(run, (variant for variant in planned if variant.style != "lower"), ROOM_OF_TEXT)
        if run.job.memory_limit is not None:
            run.invalidate("index")  # its words, until a view needs them
    with ExitStack() as stack:
        # The last that is opened is whole first.
        made = {name: stack.enter_context(outputs[name]()) for name in reversed(list(outputs))}
        folders = {name: output.folder for name, output in made.items()}
        run.invalidate("numbered")
        text = TextPass(run.corpus, num_threads=run.job.num_threads)
        text.shown = samples.shown() if samples else None
        text.words, text.word_spans = folders.get(WORDS), folders.get(WORD_SPANS)
        if text.words:
            text.index = run.index("index-joint")
        for model in run.job.model:
            ids, gaps = (folders.get(f"tokens/{model.name}/{name}") for name in ("ids", "gaps"))
            if ids or gaps:
                text.encodings.append(Encoding(run.tokenizer_of(model), ids, gaps))
        if text.word_spans or any(encoding.gaps for encoding in text.encodings):
            text.spans = SpanReader(run.folder / "spans")
        text.carried = carried(text) if carried else None
        with run.progress.task("words and tokens", run.corpus.num_documents, "documents") as advance:
            counts = text.run(advance)
        for output in made.values():
            output.counts.update(counts.get(output.folder, {}))


@lru_cache(maxsize=4)
def digest_of(tokenizer: str) -> str:
    """Return the fingerprint of a tokenizer."""
    return hashlib.sha256(tokenizer.encode()).hexdigest()


def _variants(run: Run, model: ModelSection) -> Iterator[_Variant]:
    yield _Variant("train")
    own = {run.job.tokens(recipe): recipe for recipe in model.recipes}
    for name, recipe in sorted(own.items()):
        if name != "train":
            style = REWRITTEN.get(run.job.recipe(recipe).tokens)
            yield _Variant(name, style=style, policy=run.job.protection(recipe))
    yield _Variant("audit", "index-joint", AUDIT)
    if "lowercase" in run.job.audit.attacks:
        yield _Variant("lowercase", "index-joint", AUDIT, "lower")


def _artefact(run: Run, model: ModelSection, variant: _Variant, tokenizer: str) -> Artefact:
    config = {
        **(variant.policy or run.policy).model_dump(),
        "splits": list(variant.splits),
        "style": variant.style,
        "tokenizer": digest_of(tokenizer),
        **(noise_settings(run) if variant.index == "index" else {}),
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
    """Return the fingerprints of what the pass over the text made for tokens of a style."""
    ids, gaps = (f"tokens/{model.name}/{name}" for name in ("ids", "gaps"))
    if style is None:
        names = {WORDS: WORDS, WORD_SPANS: WORD_SPANS, "ids": ids, "gaps": gaps}
    else:
        names = {} if style == "lower" else {"ids": ids}
    return {name: run.fingerprints.of(path) for name, path in names.items()}


def write_view_of(
    run: Run,
    model: ModelSection,
    folder: Path,
    individuals: Individuals,
    splits: tuple[str, ...],
    index: NgramIndex,
    policy: Policy,
    progress: Callable[[int], None] | None = None,
    capped: Capped = NONE,
) -> dict[str, Any]:
    """Write the view of the documents of these splits, protected by an index and a policy; returns its counts."""
    from reticent.core.artifact import read_manifest
    from reticent.engine.views import write_view

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
        capped=capped.folder,
        keep=capped.keep,
        num_threads=run.job.num_threads,
        progress=progress,
    )
    return {**written, "pretokens": read_manifest(ids).counts["pretokens"]}


#: Memory that tokens and views take beside the tables of n-grams, whatever the size of the corpus.
ROOM_OF_TEXT, ROOM_OF_VIEW = 256 << 20, 64 << 20


def _require_room(run: Run, variants: Iterable[_Variant], room: int) -> None:
    """Raise `PolicyError` where the n-grams that protect one of these do not fit into the memory limit."""
    from reticent.core.memory import own_bytes

    limit = run.job.memory_limit
    if limit is None:
        return
    policies = [(run.index(variant.index), variant.policy or run.policy) for variant in variants]
    run.forget_tables(*INDEXES)  # of the view before
    tables = max((index.table_bytes(k=policy.k, n=policy.n) for index, policy in policies), default=0)
    if (least := own_bytes() + tables + room) > limit:
        raise PolicyError(
            f"memory limit of {limit // 10**6}MB cannot be held: n-grams that protect tokens take "
            f"{tables // 10**6}MB of it; allow at least {-(-least // 10**7)}0MB, or set a larger k or a smaller n"
        )


def _build_view(
    run: Run, model: ModelSection, variant: _Variant, folder: Path, counts: dict[str, Any], *, samples: Samples
) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from reticent.engine.store import open_tokens

    if variant.index != "index" and run.job.memory_limit is not None:
        run.invalidate("index")  # its words
    policy = variant.policy or run.policy
    capped = capped_supports(run, variant.index, variant.splits, policy)
    _require_room(run, [variant] if capped.folder is None else (), ROOM_OF_VIEW)
    index = _index_of(run, variant, policy)
    sample = ViewSample(samples, run, model, variant.index, variant.splits, index, policy)
    task = run.progress.task(f"protect {variant.name} tokens", run.corpus.num_documents, "documents")
    with task as advance, ThreadPoolExecutor(1) as pool:
        reading = pool.submit(sample.read)  # while the core works on numbers
        documents = (run.individuals, variant.splits)
        counts.update(write_view_of(run, model, folder, *documents, index, policy, advance, capped))
    reading.result()
    counts["text_check"] = sample.require(open_tokens(folder)).to_dict()
    if variant.splits == TRAIN:
        _warn_of_policy(run, model, policy, counts)


def _index_of(run: Run, variant: _Variant, policy: Policy) -> NgramIndex:
    """The index that flags a variant; the members' has the noise of the threshold, the audit's has none."""
    index = run.index(variant.index)
    return protecting(run, index, policy.k) if variant.index == "index" else index


def _build_store(run: Run, model: ModelSection, variant: _Variant, folder: Path, counts: dict[str, Any]) -> None:
    from reticent.engine.detect.spans import SpanReader
    from reticent.engine.tokens import write_tokens

    lower = variant.style == "lower"  # asked for by an attack alone: no target, and no flag
    with run.progress.task(f"protect {variant.name} tokens", run.corpus.num_documents, "documents") as advance:
        written = write_tokens(
            folder,
            run.corpus,
            run.individuals,
            run.tokenizer_of(model),
            splits=variant.splits,
            policy=variant.policy or run.policy,
            index=None if lower else _index_of(run, variant, variant.policy or run.policy),
            spans=None if lower else SpanReader(run.folder / "spans"),
            style=variant.style,
            ids=None if lower else run.folder / "tokens" / model.name / "ids",
            progress=advance,
            num_threads=run.job.num_threads,
        )
    counts.update(written)


def _warn_of_policy(run: Run, model: ModelSection, settings: Policy, counts: dict[str, Any]) -> None:
    if counts["retention"] < LITTLE_RETENTION:
        noise = run.job.threshold.epsilon
        run.progress.warn(
            f"only {counts['retention']:.0%} of the words stay usable as targets "
            + (
                f"(k={settings.k}, n={settings.n}, policy {settings.policy}); "
                "try policy cover, a smaller n, or more documents"
                if noise is None
                else f"(k={settings.k}, threshold.epsilon {noise:g}); try a larger epsilon, or more individuals"
            )
        )
    if settings.policy == "last" and settings.n > 1 and model.objective == "mlm":
        run.progress.warn(
            f"{model.name} is a masked model, which predicts a word from those after it too: "
            "policy last protects one direction only; use all"
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
