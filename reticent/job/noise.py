"""The index by which tokens are protected: the members' index, with a noisy threshold where ``[threshold] epsilon`` is
set.

Where the words of a recipe are not counted, the words of a public list are shared, whoever uses them, and no others: or
with a private vocabulary also those that are drawn into it. An individual then moves no flag of another but through
that vocabulary, which costs epsilon. A vocabulary that can hold no word of so few individuals is not drawn.

The key of the draws stands in the run folder (0600) and is drawn by the system: a key that follows from the documents
would give the draws away to whoever has them. A run again on other documents, or with another epsilon or delta, draws
afresh: by the same numbers the words that are spared would differ only where an individual came or went.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from reticent.core.errors import ArtifactError, PolicyError
from reticent.core.resolve import resolve
from reticent.engine.dp_vocabulary import count_voters, iter_word_occurrences, word_order
from reticent.engine.noisy_threshold import noisy_index, read_or_draw_key
from reticent.engine.public_words import read_public_words
from reticent.engine.schema import INDIRECT, MEMBERS

if TYPE_CHECKING:
    from reticent.engine.ngrams import NgramIndex
    from reticent.engine.noisy_threshold import Noise
    from reticent.engine.protect import Policy
    from reticent.engine.schema import Words
    from reticent.engine.split import Individuals
    from reticent.job.config import Job
    from reticent.job.run import Run

#: File of the run folder with the key of the draws.
KEY = "threshold.key"


def protection_index(
    run: Run, index: NgramIndex, k: int, individuals: Individuals | None = None, *, words: Words = "counted"
) -> NgramIndex:
    """Return the n-gram index by which words are protected: an n-gram is, if its support (number of individuals who use
    it) is below ``k``. It is ``index`` itself for plain counts, else a copy whose supports are changed by noise or by a
    list of public words.

    ``individuals`` say who are the members that it counts, by default those of the run; ``words`` are as in `Policy`.
    """
    if words == "counted":
        noise = noise_of(run, k, words)
        return index if noise is None else _with_noisy_supports(run, index, k, noise, individuals)
    supports = index.words().column("support").to_numpy()
    listed, hidden = _is_public(run, index), np.minimum(supports, k - 1)
    if (noise := noise_of(run, k, words)) is not None:
        hidden = _with_noisy_supports(run, index, k, noise, individuals, listed).words().column("support").to_numpy()
    return index.with_supports(np.where(listed, np.maximum(supports, k), hidden))


def noise_of(run: Run, k: int, words: Words) -> Noise | None:
    """Return the noise that is added when words are compared with the support threshold ``k`` (number of individuals);
    ``words`` says whether words are "counted", from a "public" list, or drawn into a "private" vocabulary. None without
    noise, as for a public list.
    """
    if words == "public":
        return None
    return counted_noise(run.job) if words == "counted" else vocabulary_noise(run, k)


def counted_noise(job: Job) -> Noise | None:
    """Return the noise added to counts of individuals per word, as the job sets it; None if it sets none. None also if
    no recipe uses noisy counts beside a private vocabulary, since noise would then waste privacy budget.
    """
    noise, recipes = job.threshold.noise, list(map(job.recipe, recipes_of(job)))
    is_read = any(recipe.words == "counted" and recipe.protected_flags & INDIRECT for recipe in recipes)
    return noise if is_read or all(recipe.words != "private" for recipe in recipes) else None


def recipes_of(job: Job) -> list[str]:
    """Return the names of the recipes and head sections for which a job makes tokens."""
    return [*(name for model in job.model for name in model.recipes), *(head.section for head in job.heads)]


def vocabulary_noise(run: Run, k: int) -> Noise | None:
    """Return the noise for drawing a private vocabulary. None if there are so few members that even a word which all of
    them use would probably be left out.
    """
    noise = run.job.threshold.noise
    assert noise is not None  # the job was checked
    number = _declared_num_individuals(run.job)
    if not number:
        try:
            number = run.index("index").num_units
        except ArtifactError:  # a look at a plan
            split = run.job.split
            number = round(run.whole_corpus.num_individuals * (1 - split.heldout - split.reference))
    return noise if noise.shares(k, number)[number] > 0.5 else None


def _declared_num_individuals(job: Job) -> int:
    """Return the number of individuals that the job declares as public (``train.dp.num_units``); 0 where the members
    are counted."""
    settings = filter(None, (job.training(model).dp for model in job.model))
    return max((dp.num_units or 0 for dp in settings), default=0)


def _is_public(run: Run, index: NgramIndex) -> np.ndarray:
    """Return whether each word of an index is on the public list, ignoring case, bool (num words,)."""
    source = run.job.protect.public_words
    assert source is not None  # the job was checked
    public = {word.lower() for word in read_public_words(source).words}
    return np.array([word.lower() in public for word in index.words().column("word").to_pylist()], dtype=bool)


def _with_noisy_supports(
    run: Run, index: NgramIndex, k: int, noise: Noise, individuals: Individuals | None, listed: np.ndarray | None = None
) -> NgramIndex:
    """Return a copy of an index in which every word that the noisy threshold protects has a support (number of
    individuals who use it) below ``k``. ``listed`` marks the words of the public word list, for which nobody votes
    (None: no list).
    """
    words: Words = "counted" if listed is None else "private"
    key = _derive_key(run, words)
    if noise.max_words is None:
        return noisy_index(index, k, noise, key)
    if individuals is not None:  # of shadow models, which nobody sees: nothing is spent
        return noisy_index(index, k, noise, key, voters=_count_votes(run, index, individuals, noise, key, listed))
    # Of the run's members, for each of its recipes and trainings.
    name = "voters" if listed is None else "voters of words on no list"
    voters = run.memoize(name, key, lambda: _count_votes(run, index, run.individuals, noise, key, listed))
    with resolve("reticent.ext.dp.charges:charge_vocabulary")(run, noise, words, k):
        return noisy_index(index, k, noise, key, voters=voters)


def _count_votes(
    run: Run, index: NgramIndex, individuals: Individuals, noise: Noise, key: bytes, listed: np.ndarray | None
) -> np.ndarray:
    """Return how many members vote for each word of an index, int64 (num words,), before noise is added. A member votes
    for at most ``noise.max_words`` of the words in their documents, chosen at random under ``key``. Words marked in
    ``listed`` (a public word list) get no votes.
    """

    assert noise.max_words is not None
    if noise.delta * index.num_units >= 1:
        raise PolicyError(
            f"threshold.delta: {noise.delta:g} is too much for {index.num_units:,} individuals, of whom it may give "
            f"one away for certain; give less than 1 in their number, which is {1 / index.num_units:.1e}"
        )
    numbered = run.numbered
    codes = individuals.individual_codes(run.corpus.scan().column("individual_id"))
    parts = iter_word_occurrences(
        numbered.words, numbered.index, index, individuals.units[codes], individuals.mask(MEMBERS)[codes]
    )
    if listed is not None:
        parts = ((unit[~listed[word]], word[~listed[word]]) for unit, word in parts)
    return count_voters(parts, word_order(key, index.words().column("word")), noise.max_words)


def noise_settings(run: Run, policy: Policy) -> dict[str, Any]:
    """Return the noise settings that a token store's protection flags depend on, for its manifest, with a hash of the
    random key. A read-only run without a key leaves the hash out. Empty if words are counted without noise.
    """
    told: dict[str, Any] = {}
    if policy.words != "counted":
        assert policy.public_words is not None  # the job was checked
        told = {"words": policy.words, "public_words": read_public_words(policy.public_words).digest()}
        told["num_units"] = _declared_num_individuals(run.job)
    noise = counted_noise(run.job) if policy.words == "counted" else run.job.threshold.noise
    if noise is None or policy.words == "public":
        return told
    settings = _noise_fields(noise)
    if run.fingerprints.looking and not (run.folder / KEY).exists():
        return {**told, "threshold": settings}
    return {**told, "threshold": {**settings, "key": hashlib.sha256(_derive_key(run, policy.words)).hexdigest()}}


def _noise_fields(noise: Noise) -> dict[str, Any]:
    """Return the fields of a noise that are not None, by name."""
    return {name: value for name, value in asdict(noise).items() if value is not None}


def vocabulary_name(run: Run, words: Words) -> str:
    """Return the name under which a private vocabulary is charged to the privacy budget: ``vocabulary-`` and a hash of
    its random key or, before there is a key, ``words`` ("private" or "counted").
    """
    is_keyed = (run.folder / KEY).exists()
    return f"vocabulary-{hashlib.sha256(_derive_key(run, words)).hexdigest()[:8] if is_keyed else words}"


def _derive_key(run: Run, words: Words = "counted") -> bytes:
    """Return the 32-byte key for random draws, derived from the folder's key, the documents and the settings.

    A private vocabulary beside a list has one of its own, and so has that of another list: the votes are others, and
    the same noise on both would cancel in their difference.
    """
    noise = run.job.threshold.noise
    assert noise is not None
    drawn_for = [run.fingerprints.of("index"), *map(str, _noise_fields(noise).values())]
    if words == "private":
        assert run.job.protect.public_words is not None  # the job was checked
        drawn_for.append(read_public_words(run.job.protect.public_words).digest())
    key = read_or_draw_key(run.folder / KEY)
    return hashlib.blake2b(" ".join(drawn_for).encode(), key=key, digest_size=32).digest()
