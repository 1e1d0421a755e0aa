"""The tokens that a recipe is trained on, and the verification of a training's ledger against them. Needs no torch."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from reticent.core.artifact import JOB, MANIFEST, VERIFY, fingerprint, held_folder, read_manifest
from reticent.core.errors import ArtifactError
from reticent.engine.detect.spans import SpanReader
from reticent.engine.epochs import EpochTokens
from reticent.engine.index import open_index
from reticent.engine.ngrams import NgramIndex
from reticent.engine.noisy_threshold import read_or_draw_key
from reticent.engine.packed import ids_folder_of
from reticent.engine.protect import Policy
from reticent.engine.public_words import ContextWords, context_words, read_public_words
from reticent.engine.schema import MEMBERS
from reticent.engine.split import Individuals, draw_repeated
from reticent.engine.store import TokenStore, open_tokens, open_view
from reticent.engine.tokens import RewrittenTokens
from reticent.job.config import ModelSection
from reticent.job.dependencies import by_household, surrogate_names
from reticent.job.noise import protection_index
from reticent.job.run import Run
from reticent.job.text_checks import text_check_of_flags
from reticent.trainer.config import TIMES_REPEATED
from reticent.trainer.distributed import launched
from reticent.trainer.recipes import Recipe
from reticent.trainer.verify import Verdict, read_ledger, verify_ledger

#: File of the run folder with the key of surrogates in trainings by DP-SGD.
SURROGATES_KEY = "surrogates.key"


@dataclass(frozen=True, slots=True)
class Drawn:
    """Individuals other than the run's members: their split, their tokens' artefact, and a function that opens their
    index.
    """

    individuals: Individuals
    tokens: str
    index: Callable[[], NgramIndex]


def heldout_tokens(run: Run, model: ModelSection, is_heldout: np.ndarray) -> TokenStore:
    """Return the audit's tokens, with protection flags, of the documents of some individuals: those for whom
    ``is_heldout``, bool by individual code, is true.
    """
    store = open_tokens(run.folder / f"tokens/{model.name}/audit")
    return store.select(np.flatnonzero(is_heldout[store.individual]))


@contextmanager
def training_tokens(
    run: Run, model: ModelSection, recipe: Recipe, folder: Path, num_epochs: int, *, of: Drawn | None = None
) -> Iterator[tuple[TokenStore, Callable[[int], TokenStore] | None]]:
    """Context manager for the tokens that a recipe is trained on: it yields the members' token store (or that of the
    individuals in ``of``), and a function epoch -> token store if direct identifiers are replaced by new surrogates in
    each epoch, else None.

    Surrogates are drawn under a key that is a hash of the documents, the spans and the seed: the same in every run of
    the job, and a secret to all who do not have the documents anyway. In DP-SGD, where one individual must not move the
    key of others, it is that of a file of the run. Their tokens are in ``folder`` while needed; of
    the processes that torchrun started on a machine, the first makes them for all.
    """
    store = open_tokens(run.folder / (of.tokens if of else f"tokens/{model.name}/{run.job.tokens(recipe.name)}"))
    if model.repeated:
        often = draw_repeated(run.individuals, model.repeated, seed=run.job.seed)[store.individual]
        store = store.select(np.repeat(np.arange(store.num_documents), np.where(often, TIMES_REPEATED, 1)))
    households = (of.individuals if of else run.individuals).units if recipe.private and by_household(run.job) else None

    def by_units(tokens: TokenStore) -> TokenStore:
        """Return the token store with the privacy unit of DP-SGD as its individuals: households, if these are kept
        together, else unchanged.
        """
        return tokens if households is None else tokens.with_units_as_individuals(households)

    if recipe.context != "surrogate":
        yield by_units(store), None
        return

    make = _surrogate_writer(run, store, recipe, of)
    node = os.environ.get("GROUP_RANK", "0")
    if launched().local_rank == 0:  # what a training left that was interrupted
        for left in (folder / f".surrogates-{node}", *folder.glob(f".surrogates-{node}-*")):
            shutil.rmtree(left, ignore_errors=True)
    # One launcher has started all processes of the machine.
    place = folder / f".surrogates-{node}-{os.getppid() if launched().size > 1 else os.getpid()}"
    with EpochTokens(place, make if launched().local_rank == 0 else None, num_epochs) as epoch_store:
        yield by_units(epoch_store(1)), lambda epoch: by_units(epoch_store(epoch))


def _surrogate_writer(run: Run, store: TokenStore, recipe: Recipe, of: Drawn | None) -> Callable[[Path, int], object]:
    """Return a function (folder, epoch) that writes the documents of a store with their direct identifiers replaced by
    surrogates, which are drawn anew for each epoch. ``of`` are the individuals whose documents they are (None: the
    run's members).
    """

    @functools.cache
    def open_writer() -> RewrittenTokens:
        """Return the writer of rewritten tokens, with documents and n-gram index opened at the first call."""
        assert store.path is not None
        policy = run.job.protection(recipe.name)
        return RewrittenTokens(
            "rotate",
            open_view(store.path),
            run.corpus,
            of.individuals if of else run.individuals,
            store.tokenizer_path.read_text(encoding="utf-8"),
            splits=(MEMBERS,),
            spans=SpanReader(run.folder / "spans"),
            policy=policy,
            supports=_index_of_individuals(run, policy, of),
            names=surrogate_names(run.job),
            alone=recipe.private,
            num_threads=run.job.num_threads,
        )

    drawn_for = ("reticent.surrogates", run.corpus.fingerprint(), run.fingerprints.of("spans"), str(run.job.seed))
    key = hashlib.sha256("\n".join(drawn_for).encode()).digest()
    if recipe.private:
        key = read_or_draw_key(run.folder / SURROGATES_KEY)
    return lambda folder, epoch: open_writer().write(folder, key=key, draw=epoch)


def _index_of_individuals(run: Run, policy: Policy, of: Drawn | None) -> NgramIndex:
    """Return the n-gram index whose supports decide what is protected in the documents of the run's members or, if
    given, of the individuals in ``of``.
    """
    return of.index() if of else protection_index(run, open_index(run.folder / "index"), policy.k, words=policy.words)


def public_context(run: Run, model: ModelSection, recipe: Recipe, *, of: Drawn | None = None) -> ContextWords | None:
    """Return the public words that replace indirect identifiers (n-grams of too few individuals) in a recipe's input;
    None for recipes that do not replace them."""
    if not recipe.replaces_indirect:
        return None

    policy = run.job.protection(recipe.name)
    return context_words(
        run.tokenizer_of(model),
        read_public_words(run.job.surrogates.pool),
        _index_of_individuals(run, policy, of),
        policy.k,
        also_shared=("X",) if recipe.text == "pseudonymised" else (),
        num_threads=run.job.num_threads,
    )


def find_run(ledger: Path) -> tuple[Path, str, str]:
    """Return the run folder, the model name and the recipe name of a ledger ``models/MODEL/RECIPE/…/ledger.json``.

    Raises
    ------
    ArtifactError
        It stands in no run folder.
    """

    ledger = ledger.resolve()
    for folder in ledger.parents:
        parts = ledger.relative_to(folder).parts
        if (folder / JOB).is_file() and len(parts) >= 4 and parts[0] == "models":
            return folder, parts[1], parts[2]
    raise ArtifactError(
        f"{ledger}: not the ledger of a run; expected RUN/models/MODEL/RECIPE/ledger.json, or for that of a guarded "
        "trainer its run too: train RUN --verify LEDGER"
    )


def verify_training(
    run: Run,
    model_name: str,
    recipe_name: str,
    ledger: Path,
    *,
    progress: Callable[[int], None] | None = None,
) -> Verdict:
    """Draw all prediction targets of a training again from the run's tokens, and compare them with its ledger (recorded
    counts and digests of targets); return the comparison.

    The recipe is the job's, the settings are those of the manifest beside the ledger.

    Raises
    ------
    ArtifactError
        The ledger or the tokens cannot be read, or the job has no such model.
    """

    content = read_ledger(ledger)
    model = next((model for model in run.job.model if model.name == model_name), None)
    if model is None:
        raise ArtifactError(f"{ledger}: the job of {run.folder} has no model {model_name}")
    recipe, tokens = run.job.recipe(recipe_name), None
    mismatches, settings = [], None
    try:  # flags that were changed in between would be drawn again as they are
        tokens = verified_fingerprint(run.folder / "tokens" / model.name / run.job.tokens(recipe.name))
    except ArtifactError as error:
        mismatches.append(str(error))
    if (ledger.parent / MANIFEST).exists():
        try:
            manifest = read_manifest(ledger.parent)
        except ArtifactError as error:
            mismatches.append(str(error))
        else:
            settings = manifest.config
            if hashlib.sha256(ledger.read_bytes()).hexdigest() != manifest.files[ledger.name]["sha256"]:
                mismatches.append("the file was changed since the training wrote it")
            if tokens is not None and manifest.inputs.get("tokens", tokens) != tokens:
                mismatches.append("tokens: not those of the training; they were made again since")
    num_epochs = len(content["epochs"])
    if recipe.context == "surrogate":
        run.progress.say(
            f"{recipe.name}: its text was rewritten for each epoch, so it is rewritten and tokenised {num_epochs} times"
        )
    with (
        held_folder(VERIFY, run.folder) as place,
        training_tokens(run, model, recipe, place, num_epochs) as (store, epoch_store),
    ):
        context = public_context(run, model, recipe)
        tokens_of = epoch_store or store
        verdict = verify_ledger(content, tokens_of, recipe, settings=settings, progress=progress, context=context)
        name = f"tokens/{model.name}/{run.job.tokens(recipe.name)}"
        flags, are_those = check_of_flags(run, name, recipe, store, epoch_store)
    verdict.mismatches[:0] = mismatches if are_those else [*mismatches, flags]
    return replace(verdict, flags=flags)


def verified_fingerprint(tokens: Path) -> str:
    """Return the fingerprint of a token store after hashing every byte, including the token ids that it refers to."""

    ids = ids_folder_of(tokens)
    if ids != tokens and fingerprint(ids) != read_manifest(tokens).inputs.get("ids"):
        raise ArtifactError(f"{ids}: not the ids that {tokens.name} was made for")
    return fingerprint(tokens)


def check_of_flags(
    run: Run, name: str, recipe: Recipe, store: TokenStore, epoch_store: Callable[[int], TokenStore] | None
) -> tuple[str, bool]:
    """Return (sentence, may be used) on the protection flags of a recipe's training tokens: how far they were checked
    against the text, and False if the check found wrong ones.
    """
    if not recipe.uses_flags:
        return "the recipe protects nothing by flags", True
    if epoch_store is not None:
        return "flags not checked against the text: it is rewritten for each epoch", True
    return text_check_of_flags(run, name, store)
