"""Views of a run: written from numbers, and held to a sample of the text.

Views by different indexes are made at a time where supports are kept for all: a third of each one's time is Python's,
which waits for the core and the disk. Where n-grams are looked up they come one after the other, as both would wait for
the same memory and hold their tables; so do those by one index, as what the first keeps (supports, a sample as numbers)
serves the next. With a memory limit one view is made at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from reticent.core.errors import PolicyError
from reticent.engine.threads import mapped
from reticent.job.artefact import Output, Outputs
from reticent.job.capped import NONE, Capped, capped_supports
from reticent.job.noise import protecting
from reticent.job.samples import Samples, ViewSample
from reticent.job.stages.index import INDEXES
from reticent.job.variants import TRAIN, Variant

if TYPE_CHECKING:
    from reticent.engine.ngrams import NgramIndex
    from reticent.engine.protect import Policy
    from reticent.engine.split import Individuals
    from reticent.job.config import ModelSection
    from reticent.job.run import Run

__all__ = ["ROOM_OF_TEXT", "build_views", "index_of", "require_room", "write_view_of"]

#: Below this share of words that stay usable as targets, a run warns.
LITTLE_RETENTION = 0.4
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


def require_room(run: Run, variants: Iterable[Variant], room: int) -> None:
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


def build_views(
    run: Run, model: ModelSection, variants: Mapping[str, Variant], samples: Samples, outputs: Outputs
) -> None:
    """Write those views of a model that are among the outputs; ``variants`` by the names of their artefacts."""
    from reticent import _rust

    stale = {name: variant for name, variant in variants.items() if name in outputs}
    has_room = run.job.memory_limit is None and _rust.resolve_threads(run.job.num_threads) > 1
    at_a_time = has_room and not any(_looks_up(run, variant) for variant in stale.values())
    if has_room:
        _open_at_a_time(run, stale.values())
    title = " and ".join(variant.name for variant in stale.values())
    task = run.progress.task(f"protect {title} tokens", len(stale) * run.corpus.num_documents, "documents")
    done = dict.fromkeys(stale, 0)
    stopped = Event()

    def build(name: str, output: Output) -> None:
        def advance(num_documents: int) -> None:
            if stopped.is_set():
                raise InterruptedError
            done[name] = num_documents
            tell(sum(done.values()))

        advance(0)
        _build_view(run, model, stale[name], samples, output, advance)

    with task as tell:
        if at_a_time:
            _build_at_a_time({name: variant.index for name, variant in stale.items()}, outputs, build, stopped)
        else:
            for name in stale:
                with outputs[name]() as output:
                    build(name, output)


def _looks_up(run: Run, variant: Variant) -> bool:
    """Whether a view takes supports from tables of n-grams."""
    policy = variant.policy or run.policy
    return policy.n > 1 and capped_supports(run, variant.index, variant.splits, policy).folder is None


def _open_at_a_time(run: Run, variants: Iterable[Variant]) -> None:
    indexes = {"index-joint", *(variant.index for variant in variants)}  # its rows number the words
    opened = [*(partial(run.index, name) for name in sorted(indexes)), run.corpus.scan, lambda: run.individuals]
    mapped(lambda open_one: open_one(), opened)


def _build_at_a_time(
    index_of: Mapping[str, str], outputs: Outputs, build: Callable[[str, Output], None], stopped: Event
) -> None:
    """Build outputs, a thread for each index; each is whole once it and those before it are built."""
    from reticent.core.artifact import signals_deferred

    with ExitStack() as opened:
        ends = {name: opened.enter_context(ExitStack()) for name in reversed(list(index_of))}  # the last is whole first
        made = {name: end.enter_context(outputs[name]()) for name, end in ends.items()}
        with ExitStack() as pools:
            pool_of = {index: pools.enter_context(ThreadPoolExecutor(1)) for index in set(index_of.values())}
            try:
                # A thread whose start is interrupted would be left out of those that are waited for, and go on writing.
                with signals_deferred():
                    built = {name: pool_of[index].submit(build, name, made[name]) for name, index in index_of.items()}
                for name, result in built.items():
                    result.result()
                    ends[name].close()
            except BaseException:
                stopped.set()
                raise


def _build_view(
    run: Run, model: ModelSection, variant: Variant, samples: Samples, output: Output, advance: Callable[[int], None]
) -> None:
    from reticent.engine.store import open_tokens

    if variant.index != "index" and run.job.memory_limit is not None:
        run.invalidate("index")  # its words
    policy = variant.policy or run.policy
    capped = capped_supports(run, variant.index, variant.splits, policy)
    require_room(run, [variant] if capped.folder is None else (), ROOM_OF_VIEW)
    index = index_of(run, variant, policy)
    sample = ViewSample(samples, run, model, variant.index, variant.splits, index, policy)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(sample.read)  # while the core works on numbers
        documents = (run.individuals, variant.splits)
        counts = write_view_of(run, model, output.folder, *documents, index, policy, advance, capped)
    reading.result()
    output.counts.update(counts, text_check=sample.require(open_tokens(output.folder)).to_dict())
    if variant.splits == TRAIN:
        _warn_of_policy(run, model, policy, counts)


def index_of(run: Run, variant: Variant, policy: Policy) -> NgramIndex:
    """The index that flags a variant; the members' has the noise of the threshold, the audit's has none."""
    index = run.index(variant.index)
    return protecting(run, index, policy.k) if variant.index == "index" else index


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
