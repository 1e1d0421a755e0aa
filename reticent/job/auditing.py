"""The auditor of a model and its settings, as a job defines them; categories of direct identifiers; estimates of the
work.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reticent import _rust
from reticent.audit.leakage.words import WordCategories
from reticent.audit.membership.names import (
    ATTACKS_ON_SIZES,
    CALIBRATION_EPOCHS,
    CALIBRATION_TEXTS,
    CALIBRATION_TOKENS,
    CHECKPOINTS,
    GRADIENT,
    INFORMATION,
    MOST_DOCUMENTS,
    MOST_MEMBERS,
    MOST_OTHERS,
    PROBE_COPIES,
    PROBE_TOKENS,
    PROBING,
    SELF_CALIBRATION,
    STATES,
    USER_INFERENCE,
)
from reticent.core.artifact import read_manifest
from reticent.core.eta import Work
from reticent.engine.canaries import open_canaries, without_canaries
from reticent.engine.detect.labels import category
from reticent.engine.detect.spans import SpanReader
from reticent.engine.flagged_words import FlaggedWords
from reticent.engine.schema import HELDOUT, MEMBERS
from reticent.engine.split import draw_repeated, households_of
from reticent.engine.store import open_tokens
from reticent.engine.text_sizes import read_zlib_bytes
from reticent.engine.withdrawn import read_ids
from reticent.job.artefact import is_last, repetition_cost_factor
from reticent.job.stages.near_copies import copied_individuals

if TYPE_CHECKING:
    from reticent.audit.evaluate import Auditor
    from reticent.engine.protect import Policy
    from reticent.engine.store import TokenStore
    from reticent.job.artefact import Measurement, Training
    from reticent.job.config import ModelSection
    from reticent.job.run import Run


#: Attack that needs tokens of its own -> their folder, which is also the keyword of `Auditor` for them.
OWN_TOKENS = {"lowercase": "lowercase", USER_INFERENCE: "user_inference_holdout"}
#: Artefact of the compressed sizes of the texts of the audit.
TEXT_SIZES = "text-sizes"


def attack_token_stores(run: Run) -> list[str]:
    """Return the names of the token stores that the job's attacks need in addition to ``audit``, such as
    ``lowercase``."""
    return [tokens for attack, tokens in OWN_TOKENS.items() if attack in run.job.audit.attacks]


def needs_text_sizes(run: Run) -> bool:
    """Return whether an attack of the job needs the compressed size of each text (the zlib baseline)."""
    return not ATTACKS_ON_SIZES.isdisjoint(run.job.audit.attacks)


def resampling_settings(run: Run) -> dict[str, str]:
    """Return the manifest entry for the bootstrap's resampling unit: ``{"resampled": "households"}``, or empty where
    individuals are resampled, the default."""

    is_split = (run.folder / "split" / "individuals.parquet").exists()  # else nothing is up to date anyway
    return {"resampled": "households"} if is_split and households_of(run.individuals.units) is not None else {}


def open_auditor(run: Run, model: str) -> Auditor:
    """Open a model's token stores for the audit and return the `Auditor` that scores and attacks its checkpoints;
    ``model`` is the name of a model section."""
    from reticent.audit.evaluate import Auditor

    audit_store = audited_tokens(run, model, "audit")
    asked = _sampled_rows(run, model, open_tokens(run.folder / f"tokens/{model}/audit"))
    categories = read_categories(run, (MEMBERS, HELDOUT))
    members = run.individuals.mask(MEMBERS)[audit_store.individual]
    own: dict[str, Any] = {name: audited_tokens(run, model, name) for name in attack_token_stores(run)}
    if needs_text_sizes(run):
        own["zlib_bytes"] = read_zlib_bytes(run.folder / TEXT_SIZES)
    if asked is not None:
        categories = categories.select(asked)
        own |= {"zlib_bytes": own["zlib_bytes"][asked]} if "zlib_bytes" in own else {}
    return Auditor(
        audited_tokens(run, model, "train"),
        audit_store,
        members,
        run.job.audit,
        categories=categories,
        units=run.individuals.units,
        copied=copied_individuals(run),
        split_given=run.job.subject is not None,
        named_groups=named_groups(run),
        **own,
    )


def named_groups(run: Run) -> dict[str, np.ndarray]:
    """Return the groups of individuals that the job names in ``audit.groups``, each a file of ids: file name without
    suffix -> members of the group, bool by individual code. Raise `PolicyError` if a file cannot be read.
    """
    ids = run.individuals.table.column("individual_id").cast(pa.string())
    found = {}
    for file in run.job.audit.groups:
        listed, _ = read_ids(file, ids, run.job.corpus.ids)
        found[Path(file).stem] = pc.is_in(ids, value_set=listed).to_numpy(zero_copy_only=False).astype(bool)
    return found


def audited_tokens(run: Run, model: str, name: str) -> TokenStore:
    """Return the token store ``tokens/MODEL/NAME`` for the audit, without canaries. For a positive control (a model
    trained on repeated documents of some members) it has only their documents and an equal share of non-members'.
    """
    store = open_tokens(run.folder / f"tokens/{model}/{name}")
    asked = _sampled_rows(run, model, store)
    if run.job.canaries is not None and name != OWN_TOKENS[USER_INFERENCE]:
        planted = open_canaries(run.folder / "canaries")
        store = without_canaries(store, planted, run.documents, run.tokenizer_of(_find_model_section(run, model)))
    return store if asked is None else store.select(asked)


def _find_model_section(run: Run, model: str) -> ModelSection:
    """Return the job's model section of this name."""
    return next(section for section in run.job.model if section.name == model)


def _sampled_rows(run: Run, model: str, store: TokenStore) -> np.ndarray | None:
    """Return the rows (int64) of a store's documents that the audit uses of a positive control, a model trained on
    repeated documents of some members; None for any other model, of which it uses all."""
    num = _find_model_section(run, model).repeated
    if num is None:
        return None
    return np.flatnonzero(draw_repeated(run.individuals, num, seed=run.job.seed)[store.individual])


def earlier_epochs(run: Run, measurement: Measurement) -> tuple[int, ...]:
    """Return the epochs of the training's earlier checkpoints, which the attack over checkpoints compares with the last
    one; empty for any other measurement, and without that attack."""
    if CHECKPOINTS not in run.job.audit.attacks or measurement.training is None or not is_last(run.job, measurement):
        return ()
    return run.job.training(measurement.model).epochs_kept()[:-1]


def read_categories(run: Run, splits: tuple[str, ...]) -> WordCategories:
    """Return for each word of the documents in these splits the category of direct identifier (name, date …) in whose
    detected span it is, or none. Words are in the order of the splits' token store.

    A word in spans of several categories has the one whose name comes first. Cost: two passes over the text.
    """
    flagged = FlaggedWords(
        run.corpus,
        run.individuals,
        splits=splits,
        spans=SpanReader(run.folder / "spans"),
        policy=run.policy,  # type: ignore[attr-defined]
        by_category=True,
        supports=run.index("index-joint"),
        num_threads=run.job.num_threads,
    )
    return categorize_words(flagged, run.policy)


def categorize_words(flagged: FlaggedWords, policy: Policy) -> WordCategories:
    """Return for each word of ``flagged`` (documents with detected spans) the category of direct identifier that it
    belongs to, or none; ``policy`` says which categories are protected wherever they occur."""
    known: dict[str, int] = {"": 0}
    codes, lengths = [np.empty(0, dtype=np.int16)], [np.zeros(1, dtype=np.int64)]
    corpus_wide = [np.empty(0, dtype=np.bool_)]
    for part, words, *_ in flagged:
        offsets, starts, ends, labels = flagged.spans_of(part, words)
        encoded = labels.dictionary_encode()
        label_names = [category(label) for label in encoded.dictionary.to_pylist()]
        of_span = encoded.indices.to_numpy()
        spans_of = (part, words, offsets, starts, ends)
        found = np.zeros(words.num_words, dtype=np.int16)
        for name in sorted(set(label_names), reverse=True):  # the first name is written last
            found[_words_in_spans(flagged, *spans_of, np.array([other == name for other in label_names])[of_span])] = (
                known.setdefault(name, len(known))
            )
        codes.append(found)
        wide = np.array([policy.scope_of(label) == "corpus" for label in encoded.dictionary.to_pylist()], dtype=bool)
        corpus_wide.append(_words_in_spans(flagged, *spans_of, wide[of_span]))
        lengths.append(np.diff(words.doc_offsets))
    return WordCategories(
        np.concatenate(codes), tuple(known), np.cumsum(np.concatenate(lengths)), np.concatenate(corpus_wide)
    )


def _words_in_spans(
    flagged: FlaggedWords, part: Any, words: Any, offsets: np.ndarray, starts: np.ndarray, ends: np.ndarray,
    chosen: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """Return whether each word of a batch of documents lies in one of the spans that the mask ``chosen`` selects, bool
    (num words,). The spans have character ``starts`` and ``ends``, and ``offsets`` bound those of each document.
    """
    before = np.concatenate([[0], np.cumsum(chosen)]).astype(np.int64)
    bounds = (np.ascontiguousarray(starts[chosen]), np.ascontiguousarray(ends[chosen]))
    covered = _rust.mark_spans(part.texts, words, before[offsets], *bounds, num_threads=flagged.num_threads).mask
    return np.asarray(covered.astype(bool))


# ---------------------------------------------------------------------------------------------------------- cost model
#
# The cost model: how many tokens pass through a model in each part of an audit. The expected end is computed from it.
#
# The counts follow from the settings and from the manifests of the tokens; no document is read and nothing is drawn.
# If a part draws its questions at random, its count is the largest possible one. Speeds are measured in the same
# counts: a count that is too high makes the speed too high by the same factor, and the expected time of the next model
# stays right.


#: Words of a template of association, with the name and the term; number of templates of a language.
WORDS_OF_A_TEMPLATE, NUM_TEMPLATES = 8, 3


@dataclass(frozen=True, slots=True)
class Workload:
    """Tokens that pass through the model in each part of a step, in the order of execution."""

    parts: dict[str, float]

    @property
    def total(self) -> float:
        """Tokens that pass through the model in the whole step."""
        return sum(self.parts.values())

    def portion(self, *names: str) -> tuple[float, float]:
        """Return where the named parts of a step begin and end in its progress, as fractions from 0 to 1 of its total
        number of tokens. The parts must be adjacent.

        >>> Workload({"documents": 30.0, "generation": 10.0, "inversion": 40.0}).portion("generation")
        (0.375, 0.5)
        """
        ends = dict(zip(self.parts, accumulate(self.parts.values()), strict=True))
        begins = [(ends[name] - self.parts[name]) / self.total for name in names]
        return min(begins), max(ends[name] for name in names) / self.total


def training_work(run: Run, training: Training) -> Work:
    """Return the `Work` (cost in tokens) of a training, from which the finishing time of a run is estimated: the tokens
    of its token store times the number of epochs. `ArtifactError` where the store is missing."""
    model = training.model
    tokens = token_counts(run, model, "train")["tokens"] * run.job.training(model).num_epochs
    if model.repeated:
        tokens *= repetition_cost_factor(model.repeated, run.sides[0])
    return Work(
        name=training.name, title=f"training {training.title}", kind="train", model=model.name,
        recipe=training.recipe, work=float(tokens),
    )  # fmt: skip


def measurement_work(run: Run, measurement: Measurement) -> Work:
    """Return the `Work` of measuring one model, from which the finishing time of a run is estimated: the number of
    tokens that pass through the model."""
    return Work(
        name=measurement.name, title=f"scoring {measurement.title}", kind="score", model=measurement.model.name,
        recipe="", work=scoring_work(run, measurement).total,
    )  # fmt: skip


def extraction_step_work(run: Run, measurement: Measurement) -> Work:
    """Return the `Work` of extracting canaries and passages from one model, from which the finishing time of a run is
    estimated: the number of tokens that pass through the model."""
    return Work(
        name=measurement.name.replace("measures/", "extraction/", 1), title=f"extraction from {measurement.title}",
        kind="score", model=measurement.model.name, recipe="extraction", work=extraction_work(run, measurement.model),
    )  # fmt: skip


def scoring_work(run: Run, measurement: Measurement) -> Workload:
    """Return the estimated number of tokens that pass through a model in each part of its measurement, as a `Workload`;
    `ArtifactError` where its token stores are missing.

    A masked model reads a window once for each fold of the words that it has to predict. Embedding shift and
    all that is computed from scores need no model.
    """
    settings, model = run.job.audit, measurement.model
    masked = model.objective == "mlm"
    folds = run.job.audit.folds if masked else 1
    audit = token_counts(run, model, "audit")
    parts = {"documents": audit["tokens"] * folds}
    for name in attack_token_stores(run):
        parts[name] = token_counts(run, model, name)["tokens"] * folds
    if masked and settings.all_occurrences:
        parts["all occurrences"] = audit["tokens"] * folds
    if settings.generation is not None and not masked:
        asked = settings.generation
        rows = min(2 * asked.num_prompts, audit["documents"]) * asked.num_samples
        parts["generation"] = rows * (asked.prefix_tokens + asked.num_tokens)
    if PROBING in settings.attacks and not masked:
        parts["probes"] = 2 * PROBE_COPIES * min(audit["tokens"], audit["documents"] * PROBE_TOKENS)
    asked_share = min(1.0, (MOST_MEMBERS + MOST_OTHERS) * MOST_DOCUMENTS / max(audit["documents"], 1))
    if GRADIENT in settings.attacks and is_last(run.job, measurement):  # a backward pass costs two forward ones
        parts["gradients"] = 3 * audit["tokens"] * asked_share
    if STATES in settings.attacks:
        parts["states"] = audit["tokens"] * asked_share
    if SELF_CALIBRATION in settings.attacks and not masked and is_last(run.job, measurement):
        passes = 1 + 3 * CALIBRATION_EPOCHS  # a text is written once; a backward pass costs two forward ones
        parts["self-calibration"] = audit["tokens"] + CALIBRATION_TEXTS * CALIBRATION_TOKENS * passes
    if CHECKPOINTS in settings.attacks:
        parts["checkpoints"] = audit["tokens"] * folds * len(earlier_epochs(run, measurement))
    if INFORMATION in settings.attacks and measurement.training is not None:
        parts["information"] = 2 * audit["tokens"] * folds
    if settings.inversion is not None:
        parts["inversion"] = _inversion_work(run, settings.inversion, audit, folds)
    return Workload({name: float(work) for name, work in parts.items()})


def _inversion_work(run: Run, settings: Any, audit: dict[str, Any], folds: int) -> float:
    """Return the expected number of tokens that the model reads in the inversion attack, which ranks each hidden
    identifier among decoys. A masked model reads each candidate ``folds`` times.
    """

    sides = read_manifest(run.folder / "split").counts
    individuals, candidates = sides[MEMBERS] + sides[HELDOUT], settings.num_decoys + 1
    window = min(audit["tokens"] / max(audit["documents"], 1), run.job.train.window_length)
    targets = sum(min(individuals * settings.per_individual, audit[kind]) for kind in settings.kinds)
    work = targets * window * (candidates * folds + 1)
    if settings.association:
        sentences = individuals * settings.terms_per_individual * candidates * NUM_TEMPLATES
        work += sentences * WORDS_OF_A_TEMPLATE * _tokens_per_word(audit)
    return float(work)


def extraction_work(run: Run, model: ModelSection) -> float:
    """Return the expected number of tokens that one model reads when canaries and passages are extracted from it:
    candidates of each canary (the secret and its references), and prefixes with their suffixes. Greedy decoding of
    canaries is not counted.
    """
    audit, masked, job = token_counts(run, model, "audit"), model.objective == "mlm", run.job
    work = 0.0
    if job.canaries is not None:
        table = open_canaries(run.folder / "canaries").table
        texts = zip(*(table.column(name).to_pylist() for name in ("prefix", "secret", "suffix")), strict=True)
        words = [len(" ".join(text).split()) for text in texts]
        folds = max(words, default=0) if masked else 1  # a masked model is asked for one word at a time
        work += sum(words) * (job.canaries.num_references + 1) * folds * _tokens_per_word(audit)
    if job.extraction is not None and not masked:
        rows = min(2 * job.extraction.num_passages, audit["documents"])
        work += rows * sum(prefix + job.extraction.suffix_tokens for prefix in job.extraction.prefix_tokens)
    return work


def token_counts(run: Run, model: ModelSection, variant: str) -> dict[str, Any]:
    """Return the counts (documents, words, tokens …) in the manifest of the token store ``tokens/MODEL/VARIANT``;
    `ArtifactError` where it is missing."""

    return read_manifest(run.folder / f"tokens/{model.name}/{variant}").counts


def _tokens_per_word(audit: dict[str, Any]) -> float:
    """Return the mean number of tokens of a word, from the counts of the audit's token store."""
    return float(audit["tokens"] / max(audit["words"], 1))
