"""Settings of the engine's components, except those of sources and detectors, which are in their folders.

They stand apart from the code that they configure, so a job is checked before that code is loaded.
"""

# No `from __future__ import annotations` here: pydantic would compile each annotation from its text at every start.

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from reticent.core.section import PUBLISHED, Section, of_job
from reticent.engine.noisy_threshold import Noise
from reticent.engine.schema import MAX_K, MAX_N

#: Spellings that count as one word. A coarser surface raises supports, so it protects less.
Surface = Literal["exact", "casefold", "fold"]
Arm = Literal["protected", "missed", "context", "ngram"]


class DedupConfig(Section):
    """Copies of documents that later stages do not see; the first of several stays.

    ``k`` and ``surface`` are those of the protection: only the count of words that copies lift to k individuals
    depends on them.
    """

    section: ClassVar[str] = "dedup"

    mode: Literal["off", "exact", "near"] = Field(default="off", description="off: copies are only counted")
    scope: Literal["individual", "corpus"] = Field(
        default="individual", description="copies within an individual's own documents, or within the corpus"
    )
    threshold: float = Field(
        default=0.8, gt=0, le=1, description="Jaccard similarity from which two documents are near duplicates"
    )
    shingle_words: int = Field(default=5, ge=1, description="words of a shingle, the unit of the Jaccard similarity")
    passage_words: int = Field(default=50, ge=1, description="words of the shortest passage that counts as shared")
    k: Annotated[int, of_job("protect.k"), Field(ge=2, le=MAX_K)] = 2
    surface: Annotated[str, of_job("index.surface")] = "exact"
    num_threads: Annotated[int, of_job("num_threads")] = 0


class SplitConfig(Section):
    """Shares of the individuals (or households) that are never trained on; members are the rest."""

    section: ClassVar[str] = "split"

    heldout: float = Field(default=0.4, gt=0, lt=1, description="share whom the audit compares members with")
    reference: float = Field(default=0.0, ge=0, lt=1, description="share whose documents pre-train a small base model")
    by: Literal["auto", "individual", "household"] = "auto"
    user_inference_holdout: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="share of the documents of each individual with several that only the attack user_inference sees; "
        "at least one each, never all",
    )
    seed: Annotated[int, of_job("seed")] = 0

    @model_validator(mode="before")
    @classmethod
    def _refuse_old_name(cls, values: Any) -> Any:
        """Raise `ValueError` for the option's old name ``fresh``; otherwise return the values unchanged."""
        if isinstance(values, dict) and "fresh" in values:
            raise ValueError("fresh has a new name: write user_inference_holdout instead")
        return values

    @model_serializer(mode="wrap")
    def _omit_zero_holdout(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Serialise without a ``user_inference_holdout`` of 0, so that results from before this option stay up to
        date."""
        values: dict[str, Any] = dump(self)
        if not self.user_inference_holdout:
            values.pop("user_inference_holdout", None)
        return values

    @model_validator(mode="after")
    def _require_members(self) -> Self:
        """Raise `ValueError` if the shares of held-out and reference individuals leave none for members."""
        if self.heldout + self.reference >= 1:
            raise ValueError("heldout and reference must leave a share for members")
        return self


class IndexConfig(Section):
    """Settings of counting n-grams.

    An n-gram with less support than ``min_support`` is not extended: 2 serves every k from 2 to 255. ``num_threads`` 0
    means ``RAYON_NUM_THREADS``, or every core. ``memory_limit`` is of the whole process, in bytes. Counts that do not
    fit are written to nameless files in ``spill_folder`` (None: the system's temporary folder, which may be memory);
    the system frees them however the process ends. The result depends on none of these three.
    """

    section: ClassVar[str] = "index"

    max_n: int = Field(default=1, ge=1, le=MAX_N, description="longest n-gram")
    surface: Surface = "exact"
    updatable: bool = Field(
        default=False,
        description="keep every n-gram, also those that one individual alone uses: `reticent update` needs them",
    )
    min_support: Annotated[int, of_job(None), Field(ge=1, le=MAX_K)] = 2
    num_threads: Annotated[int, of_job("num_threads")] = 0
    memory_limit: Annotated[int | None, of_job("memory_limit")] = None
    spill_folder: Annotated[Path | None, of_job(None)] = None

    @property
    def least_support(self) -> int:
        """Minimum support (number of individuals or households using it) from which an n-gram is extended to longer
        ones: ``min_support``, or 1 for an index that can be updated or merged."""
        return 1 if self.updatable else self.min_support


class SurrogateConfig(Section):
    """The text that replaces identifiers in the context of a model, for recipes that replace them."""

    section: ClassVar[str] = "surrogates"

    pool: Annotated[str, PUBLISHED] = Field(
        default="generated",
        min_length=1,
        description='public words for indirect identifiers: "generated", "wordfreq:en" (or another language; extra '
        "wordfreq), or a file with a word a line; never words of these documents",
    )
    names: Annotated[str, PUBLISHED] = Field(
        default="realistic",
        min_length=1,
        description='names in place of direct identifiers: "realistic" (public lists), "syllables" (names that nobody '
        "bears, so that a missed name shows), or a file of the form of `reticent/engine/names.toml`",
    )
    language: Annotated[str, PUBLISHED] = Field(
        default="auto",
        min_length=1,
        description='language of realistic names: "de", "en", "es", "fr", "it", "nl", "pt", or "auto", that of most '
        "documents",
    )


class ThresholdConfig(Section):
    """Noise on the threshold of protection (n = 1 alone): a word is unprotected at random, never below k users.

    Without it one individual more makes a target of a word of k - 1 users in the texts of all of them, and tells that
    they take part. With epsilon, the choice of protected words is (epsilon, delta)-private: for each word of an
    individual, which bounds little for who uses hundreds; or for an individual with all their words, which costs much
    where there are few, and little where there are tens of thousands.
    """

    section: ClassVar[str] = "threshold"

    epsilon: float | None = Field(default=None, gt=0, description="without it the threshold is k itself")
    unit: Literal["word", "individual"] = Field(
        default="word", description="of what epsilon and delta are: of each word, or of an individual with all words"
    )
    delta: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="of a word: the probability that one of just k users is unprotected, 0.01 by default; of an "
        "individual: less than one in the number of members, 1e-6 by default",
    )
    max_words: int = Field(
        default=200,
        ge=1,
        description="words of an individual that count, those used most often, where epsilon is of an individual",
    )

    @property
    def noise(self) -> "Noise | None":
        """Privacy parameters (epsilon, delta) of the noise that randomises the threshold k; None (an exact threshold)
        if ``epsilon`` is not set."""

        if self.epsilon is None:
            return None
        if self.unit == "word":
            return Noise(self.epsilon, 0.01 if self.delta is None else self.delta)
        return Noise(self.epsilon, 1e-6 if self.delta is None else self.delta, self.max_words)


class CanaryConfig(Section):
    """Made-up secrets written into members' documents. ``k`` individuals share one of the arm ``missed``."""

    section: ClassVar[str] = "canaries"

    num: int = Field(default=25, ge=1, description="canaries of each arm; a fair coin leaves out half of them")
    arms: tuple[Arm, ...] = Field(default=("protected", "missed", "context", "ngram"), min_length=1)
    repetitions: int = Field(
        default=1, ge=1, description="times that each canary is written into its individual's documents"
    )
    num_references: int = Field(
        default=256, ge=2, description="other secrets to rank each among: exposure is at most log2 of it"
    )
    seed: int | None = Field(default=None, ge=0, lt=2**63, description="default: the seed of the job")
    k: Annotated[int, of_job("protect.k"), Field(ge=2, le=MAX_K)] = 2
    job_seed: Annotated[int, of_job("seed")] = 0

    @model_validator(mode="after")
    def _require_distinct_arms(self) -> Self:
        """Raise `ValueError` if an arm is listed twice."""
        if len(set(self.arms)) != len(self.arms):
            raise ValueError("arms: an arm is listed twice")
        return self

    @property
    def chosen_seed(self) -> int:
        """Seed for drawing canaries: ``seed``, or the job's if that is None."""
        return self.job_seed if self.seed is None else self.seed

    @property
    def num_individuals(self) -> int:
        """Number of individuals (households) that must receive a canary if all are included; each gets at most one."""
        return sum(self.num * (self.k if arm == "missed" else 1) for arm in self.arms)
