"""Settings of the audit: one class for each of its parts.

They stand apart from the code that they configure: a job is read and checked without loading torch.
"""

# No `from __future__ import annotations` here: pydantic would compile each annotation from its text at every start.

import itertools
from collections.abc import Mapping
from pathlib import PurePath
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from reticent.audit.membership.names import COVERAGE, DEFAULT_ATTACKS, DEFAULT_SHADOW_ATTACKS
from reticent.audit.membership.table import require_attacks
from reticent.audit.texts import LANGUAGES, Language
from reticent.core.errors import PolicyError
from reticent.core.section import PUBLISHED, Section, of_job
from reticent.engine.config import CanaryConfig, Surface
from reticent.trainer.config import Bf16
from reticent.trainer.recipes import RECIPES

#: Name of a model that was trained elsewhere, where others have that of their recipe.
SUBJECT = "given"
#: Names that a copy of it cannot have: those of the base model and of recipes, by which an audit finds controls.
TAKEN = frozenset({SUBJECT, "base", *RECIPES})
AtLeastOne = Annotated[int, Field(ge=1)]
Init = Literal["type", "uniform", "mean"]
RiskName = Literal["emission", "context", "words", "individual", "passages"]
#: Who gets a model -> the adversaries who count; adversary -> the risks that they make.
ACCESS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "public": ("asker", "holder", "knows_documents", "knows_relation"),
        "named": ("asker", "holder", "knows_documents", "knows_relation"),
        "questions": ("asker", "knows_documents", "knows_relation"),
        "inside": ("asker", "knows_relation"),
    }
)
RISKS_OF: Mapping[str, tuple[RiskName, ...]] = MappingProxyType(
    {
        "asker": ("emission", "passages"),
        "holder": ("emission", "context"),
        "knows_documents": ("words", "individual"),
        "knows_relation": ("context", "words"),
    }
)
#: Level of a probe whose prompt is the name after a true prefix: the text before an item of the same type in another
#: individual's document [@nakka2024].
COMPASS: Final = "compass"
#: Tokens of the target that a masked model does not see while it predicts one of them: all; that one; that one and
#: those after it.
Masking = Literal["together", "one_by_one", "left_to_right"]


class InversionConfig(Section):
    """Inversion: an identifier that is only context is ranked among decoys, by the words around it and by its own
    likelihood in its position.

    The audit has this part only if the job has this section. Cost: for each identifier a forward pass over
    ``num_decoys`` + 1 copies of its window, times the folds of a masked model, and one for its place.
    """

    section: ClassVar[str] = "audit.inversion"

    num_decoys: int = Field(default=15, ge=1, description="other identifiers that each one is ranked among")
    per_individual: int = Field(
        default=4, ge=1, description="most identifiers of each kind that are drawn for an individual"
    )
    kinds: tuple[Literal["direct", "indirect"], ...] = Field(default=("direct", "indirect"), min_length=1)
    association: bool = Field(
        default=True, description="also measure how strongly names are tied to the terms of their documents"
    )
    terms_per_individual: int = Field(default=3, ge=1)
    term_support: tuple[float, float] = Field(
        default=(0.01, 0.2), description="a word is a term if the share of the individuals who use it is between these"
    )
    language: Literal["en", "fr"] = Field(default="en", description="language of the templates")
    embedding_shift: bool = Field(default=True, description="also measure how far rows of embeddings moved")

    @model_validator(mode="after")
    def _check_ascending(self) -> Self:
        """Raise `ValueError` unless ``term_support``, the range of shares of individuals who use a term, is two
        ascending numbers from 0 to 1."""
        low, high = self.term_support
        if not 0 <= low < high <= 1:
            raise ValueError(f"inversion.term_support: expected two ascending shares, got {list(self.term_support)}")
        return self


class DiagnosesConfig(Section):
    """The clinical ladder: which diagnoses of members a model reveals, by what an adversary knows of them.

    The audit has this part only if the job has this section. A diagnosis counts where it stands in the texts of 50
    individuals of each side, and not in those of 50 others. Cost: for each individual that is asked about, four times a
    forward pass over what is known and every diagnosis, and eight over ends of sentences; of each base model and last
    checkpoint.
    """

    section: ClassVar[str] = "audit.diagnoses"

    terms: str | None = Field(
        default=None,
        description="TOML file with a table [[diagnosis]] for each: name, and where wanted synonyms, drugs and "
        "sensitive = false; default: every value of `column` is one, and sensitive",
    )
    records: str | None = Field(
        default=None,
        description="table with individual_id whose columns are named below; default: columns of the documents",
    )
    column: str | None = Field(
        default=None,
        description="column with the diagnoses of an individual, set apart by semicolons; default: those of `terms` "
        "that stand in the texts, and no placebo",
    )
    demographics: tuple[str, ...] = Field(default=(), description="columns that anybody may know, such as age and sex")
    encounter: tuple[str, ...] = Field(
        default=(), description="columns that who saw the encounter knows, such as ward and date"
    )
    prompt: str = Field(default="Diagnosis:", min_length=1, description="what stands between all that and a diagnosis")
    num_individuals: int = Field(default=1000, ge=1, description="most individuals of each side that are asked about")

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        """Raise `ValueError` if neither ``terms`` (a file) nor ``column`` says where the diagnoses are."""
        if self.terms is None and self.column is None:
            raise ValueError("diagnoses need terms = FILE, or column = the column that has them")
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all columns that are read from the documents or the table of records: diagnosis, demographics,
        encounter."""
        return (*filter(None, (self.column,)), *self.demographics, *self.encounter)


class GenerationConfig(Section):
    """Leakage in text that causal models generate from the beginnings of documents of both sides.

    The audit has this part only if the job has this section.
    """

    section: ClassVar[str] = "audit.generation"

    num_prompts: int = Field(
        default=200, ge=1, description="documents of the larger side; the other side has the same share"
    )
    prefix_tokens: int = Field(default=16, ge=1, description="tokens of the document in each prompt")
    num_tokens: int = Field(default=64, ge=1, description="tokens to generate")
    num_samples: int = Field(default=1, ge=1, le=100_000, description="continuations of each prompt")
    temperature: float = Field(default=1.0, ge=0, description="0: greedy decoding")
    top_k: int = Field(default=0, ge=0, description="draw from this many of the likeliest tokens; 0: from all")

    @model_validator(mode="after")
    def _check_num_samples(self) -> Self:
        """Raise `ValueError` if greedy decoding (temperature 0) is set to give several continuations of a prompt."""
        if self.temperature == 0 and self.num_samples > 1:
            raise ValueError("num_samples: greedy decoding gives one continuation only")
        return self


class ShadowConfig(Section):
    """Shadow models: they are trained like the model under attack, on random halves of members and held-out
    individuals.

    Each recipe's last checkpoint is attacked with them. Cost: ``num_shadows`` trainings for each recipe.
    """

    section: ClassVar[str] = "audit.shadow"

    recipes: Annotated[tuple[str, ...], PUBLISHED] = Field(
        min_length=1, description="recipes whose models are attacked"
    )
    num_shadows: int = Field(
        default=8, ge=4, le=256, multiple_of=2, description="an even number: each individual is in half of them"
    )
    attacks: Annotated[tuple[str, ...], PUBLISHED] = Field(default=DEFAULT_SHADOW_ATTACKS, min_length=1)
    rmia_slope: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="a of p = ((1 + a) p_out + (1 - a)) / 2; default: fitted on the population",
    )
    population: float = Field(
        default=0.2,
        gt=0,
        lt=1,
        description="share of the held-out individuals that RMIA uses for comparison and does not attack",
    )
    keep_models: bool = Field(default=False, description="keep the shadows' checkpoints beside their scores")

    @field_validator("attacks")
    @classmethod
    def _check_attack_names(cls, attacks: tuple[str, ...]) -> tuple[str, ...]:
        """Return ``attacks`` unchanged; raise `PolicyError` for a name that is no attack with shadow models."""
        if attacks != DEFAULT_SHADOW_ATTACKS:
            from reticent.audit.membership.shadow import SHADOW_ATTACKS  # loads compiled kernels: not where not needed

            require_attacks(attacks, SHADOW_ATTACKS)
        return attacks


class HeadsConfig(Section):
    """Attacks on the classifiers and taggers that a job keeps (``save_model``): membership by the labels that they
    predict, attributes of members inferred from a classifier, and names inferred from a tagger.

    The audit has this part only if the job has this section. Cost: ``num_shadows`` trainings of each last head; as many
    of an unprotected one on each base model, the control of heads that protect; and for each person who is asked about
    a pass over every alternative of every attribute.
    """

    section: ClassVar[str] = "audit.heads"

    num_shadows: int = Field(
        default=8,
        ge=0,
        le=256,
        multiple_of=2,
        description="shadow heads of each, an even number, as each individual is in half of them; 0: none, and no "
        "membership is shown to be within",
    )
    attributes: tuple[str, ...] = Field(
        default=(),
        description="columns, such as sex, age group and diagnoses; several values are set apart by semicolons",
    )
    records: str | None = Field(
        default=None, description="table with individual_id and these columns; default: columns of the documents"
    )
    num_individuals: int = Field(
        default=1000, ge=1, description="most individuals of each side who are asked about attributes"
    )
    language: Literal["en", "fr"] = Field(default="en", description="language of the prompts of taggers")
    num_alternatives: int = Field(
        default=15, ge=1, description="most other values that each true one is compared with, drawn for each individual"
    )

    @field_validator("num_shadows")
    @classmethod
    def _check_num_shadows(cls, num: int) -> int:
        """Return the number of shadow models unchanged; raise `ValueError` for 2, with which every document is in the
        training set of exactly one and the spread of its scores is unknown."""
        if num == 2:
            raise ValueError(
                "num_shadows: with two, a document is in one of them, and no spread is known; give 4 or more"
            )
        return num


class Explained(Section):
    """Why an outcome that an earlier audit of this run found does not hold: ``[[audit.explained]]``.

    The report names such an outcome until an audit with at least the attacks of that one explains it; then it prints
    both.
    """

    section: ClassVar[str] = "audit.explained"

    model: str = Field(description="name of the model section")
    recipe: str
    risk: RiskName
    created: str = Field(description="time of the earlier audit, as the report prints it")
    why: str = Field(min_length=1, description="a false alarm, a mended error: what was found out, for the readers")


class AuditConfig(Section):
    """The attacks, and the resampling behind their intervals.

    Scores with small differences (canaries, candidates of the inversion) are always computed in float32, also with
    ``bf16``. A masked model predicts the words of a window in ``folds`` portions. N-grams of at most ``n`` words that
    fewer than ``k`` individuals use are the identifiers of every headline; leaks are measured up to ``max_n`` words.
    """

    section: ClassVar[str] = "audit"
    #: Settings that the measures of a checkpoint do not depend on; shadow models have their own.
    not_measured: ClassVar = ("small_cell", "every_checkpoint", "shadow", "heads", "explained", "earlier", "groups")

    attacks: Annotated[tuple[str, ...], PUBLISHED] = DEFAULT_ATTACKS
    num_bootstrap: int = Field(
        default=1000, ge=100, le=1_000_000, description="resamples of the individuals for each interval"
    )
    batch_size: int = Field(default=64, ge=1, le=1_000_000, description="windows that a model scores at once")
    small_cell: int = Field(default=5, ge=1, description="counts of fewer individuals are not published")
    graph_shares: tuple[Annotated[float, Field(gt=0, le=1)], ...] = Field(
        default=(1.0, 0.75, 0.5, 0.25, 0.1),
        min_length=1,
        description="shares of the documents that the adversary of low-cost membership has, the headline first",
    )
    every_checkpoint: bool = Field(default=True, description="false: measure the last checkpoint only")
    all_occurrences: bool = Field(
        default=False,
        description="score masked models a second time, with every occurrence of a word in its window masked",
    )
    generation: GenerationConfig | None = None
    inversion: InversionConfig | None = None
    diagnoses: DiagnosesConfig | None = None
    shadow: ShadowConfig | None = None
    heads: HeadsConfig | None = None
    groups: tuple[str, ...] = Field(
        default=(),
        description="files of ids of individuals, one a line: a p-value for the members in each, named as its file",
    )
    earlier: str | None = Field(
        default=None,
        description="run folder of the release before: also attack who withdrew since, by the difference of the models",
    )
    explained: tuple[Explained, ...] = ()
    window_length: Annotated[int, of_job("train.window_length")] = 512
    folds: Annotated[int, of_job(None), Field(ge=1)] = 7
    k: Annotated[int, of_job("protect.k"), Field(ge=2)] = 2
    n: Annotated[int, of_job("protect.n"), Field(ge=1)] = 1
    max_n: Annotated[int, of_job("index.max_n"), Field(ge=1)] = 1
    surface: Annotated[Surface, of_job("index.surface")] = "exact"
    seed: Annotated[int, of_job("seed")] = 0
    device: Annotated[str, of_job("train.device"), PUBLISHED] = "auto"
    bf16: Annotated[Bf16, of_job("train.bf16")] = "auto"

    @field_validator("groups")
    @classmethod
    def _check_group_names(cls, groups: tuple[str, ...]) -> tuple[str, ...]:
        """Return ``groups``, paths of files that each list the individuals of one group, unchanged; raise `ValueError`
        if two files differ only in folder or extension, as groups are named after their files."""
        names = [PurePath(file).stem for file in groups]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"two groups would be named {twice[0]}, as their files are; rename one of these")
        return groups

    def check_complete(self) -> None:
        """Raise `PolicyError` for an unknown attack, or for the coverage attack without ``[audit.generation]``."""
        if self.attacks != DEFAULT_ATTACKS:
            from reticent.audit.membership.asking import ASKING_ATTACKS  # compiles kernels: not to read a job
            from reticent.audit.membership.attacks import ATTACKS

            require_attacks(self.attacks, {**ATTACKS, **ASKING_ATTACKS})
        if COVERAGE in self.attacks and self.generation is None:
            raise PolicyError(f"audit.attacks: {COVERAGE} looks at text that models write; it needs [audit.generation]")


#: Tokens from which on a passage that comes back is a whole one, which gives its individual away.
WHOLE_PASSAGE: Final = 50


class ExtractionConfig(Section):
    """Extraction at the end of the audit: causal models complete passages of the documents."""

    section: ClassVar[str] = "extraction"

    prefix_tokens: tuple[AtLeastOne, ...] = Field(
        default=(10, 50),
        min_length=1,
        description="tokens of a passage that the adversary knows, ascending; 50: discoverable extraction",
    )
    suffix_tokens: int = Field(
        default=WHOLE_PASSAGE,
        ge=1,
        description=f"tokens that follow; all of them must come back. Under {WHOLE_PASSAGE} no whole passage is asked "
        "for, and verbatim passages are never within",
    )
    temperature: float = Field(default=1.0, gt=0, description="over 0: draws by greedy decoding would all be equal")
    top_k: int = Field(default=40, ge=0, description="draw from this many of the likeliest tokens; 0: from all")
    num_queries: tuple[AtLeastOne, ...] = Field(
        default=(1, 100, 10_000), description="numbers of draws that the adversary makes"
    )
    probability: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="a passage counts as extracted if the draws contain it with at least this probability",
    )
    near_verbatim: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="also count passages of which greedy decoding after the longest prefix writes the rest with this "
        "edit similarity of tokens or more, such as 0.9; costs the writing of each, far more than all the rest",
    )
    num_passages: int = Field(default=2000, ge=1, description="most passages of each side, one for each document")
    num_bootstrap: Annotated[int, of_job("audit.num_bootstrap"), Field(ge=1)] = 1000
    batch_size: Annotated[int, of_job("audit.batch_size"), Field(ge=1)] = 64
    seed: Annotated[int, of_job("seed")] = 0
    device: Annotated[str, of_job("train.device"), PUBLISHED] = "auto"
    bf16: Annotated[Bf16, of_job("train.bf16")] = "auto"

    @model_validator(mode="after")
    def _check_ascending(self) -> Self:
        """Raise `ValueError` unless the prefix lengths ``prefix_tokens`` are ascending."""
        if any(later <= earlier for earlier, later in itertools.pairwise(self.prefix_tokens)):
            raise ValueError(f"prefix_tokens: expected ascending numbers, got {list(self.prefix_tokens)}")
        return self


class CanaryAudit(CanaryConfig):
    """Made-up secrets written into members' documents, to measure memorisation. A model that is trained on them is for
    measuring only, and the report says so.
    """

    guesses: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="share of the canaries for which the one-run audit guesses whether training had them",
    )
    delta: float = Field(default=1e-5, ge=0, lt=1, description="delta of the one-run audit")
    num_bootstrap: Annotated[int, of_job("audit.num_bootstrap")] = 1000
    batch_size: Annotated[int, of_job(None)] = 256
    window_length: Annotated[int, of_job("train.window_length")] = 512
    device: Annotated[str, of_job("train.device"), PUBLISHED] = "auto"


def default_num_validation(num_training_subjects: int) -> int:
    """Return the default number of subjects that validate a soft prompt: a quarter of the number that it is trained on,
    at least 8."""
    return max(8, num_training_subjects // 4)


class SoftPromptConfig(Section):
    """Training of a soft prompt (ProPILE, sections 4.3 and A.4)."""

    section: ClassVar[str] = "probe.soft_prompt"

    num_tokens: int = Field(default=20, ge=1, description="soft tokens before the prompt")
    init: Init = Field(
        default="type",
        description='start from the word for the type ("phone"), from U(-1, 1), or from the mean of the vocabulary',
    )
    learning_rate: float = Field(default=5e-3, gt=0)
    num_epochs: int = Field(
        default=700, ge=1, description="most epochs; the best epoch on the validation subjects is kept"
    )
    batch_size: int = Field(default=32, ge=1, le=1_000_000)
    num_subjects: int = Field(default=128, ge=1, description="subjects to train on; the others are measured")
    num_validation: int | None = Field(
        default=None, description="validation subjects; default: a quarter of the training subjects, at least 8"
    )
    select_by: Literal["exact_match", "loss"] = Field(
        default="exact_match",
        description="criterion of the best epoch: exact match by greedy search, then the loss; or the loss alone",
    )
    eval_every: int = Field(default=5, ge=1, description="epochs between two evaluations on the validation subjects")
    patience: int = Field(
        default=0, ge=0, description="stop after this many evaluations without a better one; 0: never"
    )
    seed: Annotated[int, of_job("seed")] = 0

    @property
    def held_for_validation(self) -> int:
        """Number of subjects that validate the soft prompt and are not trained on; by default
        `default_num_validation`."""
        return default_num_validation(self.num_subjects) if self.num_validation is None else self.num_validation


class SoftPromptStudy(Section):
    """White-box study: the soft prompt, and the settings that are varied, one at a time.

    Parameters
    ----------
    targets : types; empty: those of the probe
    num_subjects, num_tokens, init : values of the sweeps (Fig. 5); empty: no such sweep
    """

    prompt: SoftPromptConfig
    targets: Annotated[tuple[str, ...], PUBLISHED] = ()
    num_subjects: tuple[int, ...] = ()
    num_tokens: tuple[int, ...] = ()
    init: tuple[Init, ...] = ()

    def variants(self) -> list[tuple[str, SoftPromptConfig]]:
        """Return (name of the changed setting, configuration with that change) for each variant of the soft prompt."""
        changes: list[tuple[str, Any]] = [("num_subjects", n) for n in self.num_subjects]
        changes += [("num_tokens", n) for n in self.num_tokens] + [("init", start) for start in self.init]
        return [(name, self.prompt.replace(**{name: value})) for name, value in changes]


class ProbeConfig(Section):
    """Probes at the end of the audit: models are prompted for individuals' own items (ProPILE)."""

    section: ClassVar[str] = "probe"

    subjects: str | None = Field(default=None, description="table of items with individual_id; default: detect.records")
    targets: Annotated[tuple[str, ...], PUBLISHED] = Field(
        default=(), description="types of items to ask for; default: every type but the name"
    )
    levels: tuple[Literal["twin", "triplet", "quadruplet", "compass"], ...] = Field(
        default=("twin", "triplet"),
        min_length=1,
        description="items in the prompt: the name (twin), and one or two more (triplet, quadruplet); or compass: the "
        "name, behind what stands before an item of the type in a document of another member",
    )
    given: Annotated[tuple[str, ...], PUBLISHED] = Field(
        default=(), description="items in the prompt beside the name, in this order; default: the order of the table"
    )
    language: Annotated[str, PUBLISHED] = Field(default="en", description="language of the built-in templates")
    templates: str | None = Field(default=None, description="file of templates; default: the built-in ones")
    beam_sizes: tuple[AtLeastOne, ...] = Field(
        default=(3,), min_length=1, description="widths of the beam search; the exact match is that of the first"
    )
    longest: Literal["published", "fit"] = Field(
        default="fit",
        description="new tokens: those of the longest target and of a few words before it, if these are more than the "
        "published number for the type; or that number alone",
    )
    num_draws: int = Field(
        default=0,
        ge=0,
        description="answers drawn at temperature 1 to each prompt of a causal model, beside what likelihoods promise "
        "of as many; 0: none",
    )
    masking: Masking = Field(default="together", description="tokens of the target that a masked model does not see")
    soft_prompt: SoftPromptConfig | None = Field(
        default=None,
        description="also attack with access to the weights: train soft prompts on some of the individuals",
    )
    num_bootstrap: Annotated[int, of_job("audit.num_bootstrap")] = 1000
    small_cell: Annotated[int, of_job("audit.small_cell")] = 5
    seed: Annotated[int, of_job("seed")] = 0
    device: Annotated[str, of_job("train.device"), PUBLISHED] = "auto"
    batch_tokens: Annotated[int | None, of_job(None)] = None
    bf16: Annotated[bool, of_job(None)] = False

    @model_validator(mode="before")
    @classmethod
    def _expand_short_form(cls, values: Any) -> Any:
        """Replace ``soft_prompt = true``, ``soft_subjects`` and ``soft_epochs`` in raw settings by the table
        ``[probe.soft_prompt]``."""
        if not isinstance(values, dict) or not isinstance(values.get("soft_prompt"), bool | None):
            return values
        values = dict(values)
        table = {"num_subjects": values.pop("soft_subjects", None), "num_epochs": values.pop("soft_epochs", None)}
        given = {name: value for name, value in table.items() if value is not None}
        if given and not values.get("soft_prompt"):
            raise ValueError("soft_subjects, soft_epochs: have no effect without soft_prompt = true; give it too")
        values["soft_prompt"] = given if values.get("soft_prompt") else None
        return values


class SubjectConfig(Section):
    """A model that was trained elsewhere, judged here in place of trainings of the job's own.

    Who was trained on is told by one of ``members``, ``column`` and ``others``. Nothing can verify it, and a wrong list
    only hides leaks: so ``statement`` is printed on every page, and the signature of the dossier is under it.
    """

    section: ClassVar[str] = "subject"

    model: Annotated[str, PUBLISHED] = Field(
        min_length=1,
        description="folder of weights (safetensors, GGUF, an adapter of peft), or a hub name; with endpoint: the name "
        "of the model there",
    )
    endpoint: str | None = Field(
        default=None,
        description="address of a server of completions with log-probabilities, http(s)://HOST/v1, in place of "
        "weights: every document is sent to it",
    )
    log_probs: bool = Field(
        default=True,
        description="whether the server gives log-probabilities; false: it is judged by what it writes alone",
    )
    allow_sending: Annotated[str | None, PUBLISHED] = Field(
        default=None, description="the host that documents may be sent to; this machine needs no leave"
    )
    base: Annotated[str | None, PUBLISHED] = Field(
        default=None, description="the model that it was trained from: the control of every attack; an adapter needs it"
    )
    objective: Literal["mlm", "clm"]
    members: str | None = Field(default=None, description="list of who was trained on: text, the id of one a line")
    column: str | None = Field(default=None, description="column of the documents: whether each was trained on")
    others: str | None = Field(
        default=None, description="documents of people who were not trained on, where those of corpus.source all were"
    )
    statement: Annotated[str, PUBLISHED] = Field(
        min_length=1, description="where that list comes from and who says so, for the readers of the dossier"
    )
    also: Annotated[dict[str, str], PUBLISHED] = Field(
        default={},
        description='copies that are judged beside it, by name: "merged" (rounded as the base is stored), "int8" '
        "(eight bits a weight), or the folder of one",
    )

    @model_validator(mode="after")
    def _check_consistent(self) -> Self:
        """Raise `ValueError` if these settings of a model that was trained elsewhere contradict each other. Exactly one
        of ``members``, ``column`` and ``others`` must tell which individuals the model was trained on.

        The names of copies (``also``) must be valid, and the settings of an endpoint must go together.
        """
        if sum(given is not None for given in (self.members, self.column, self.others)) != 1:
            raise ValueError(
                "give one of members, column and others (audit-model: --members or --others): who was trained on"
            )
        if wrong := [name for name in self.also if name in TAKEN or not name.isidentifier()]:
            raise ValueError(f"also: {wrong[0]!a} cannot be the name of a copy")
        if self.endpoint is not None and (self.base is None or self.also or self.objective != "clm"):
            raise ValueError(
                "endpoint: needs base, whose tokenizer cuts the texts; it is one causal model, without copies"
            )
        if not self.log_probs and self.endpoint is None:
            raise ValueError("log_probs: is of an endpoint, and none is given")
        if self.allow_sending is not None and self.endpoint is None:
            raise ValueError(
                "allow_sending: is the host of an endpoint, and none is given; nothing is sent without one"
            )
        if not self.statement.strip():
            raise ValueError("statement: is blank; say where the list comes from and who says so")
        return self

    @property
    def copies(self) -> dict[str, str]:
        """Models to audit, by name: first the model itself, then its copies. A value is a folder, or the way in which
        the copy is made ("merged", "int8")."""
        return {SUBJECT: self.model, **self.also}


class VerdictConfig(Section):
    """The verdict by risk: which risks count, and the threshold of each, fixed before the run.

    A rate is a difference (members less held-out individuals, or less the base model), an area that of an attack, 0.5
    where nothing can be told. The defaults are no law: who releases a model sets their own.
    """

    section: ClassVar[str] = "verdict"

    risks: tuple[RiskName, ...] = Field(
        default=("emission", "context", "words", "individual", "passages"),
        description="those whose worst is the model's verdict; the others are shown all the same, and named",
    )
    emission: float = Field(default=0.05, gt=0, le=1, description="one identifier in twenty, less what others leak")
    context: float = Field(default=0.05, gt=0, le=1, description="one identifier in twenty is told from its decoys")
    words: float = Field(default=0.6, gt=0.5, le=1, description="area of an attack by identifying words alone")
    individual: float = Field(default=0.6, gt=0.5, le=1, description="area of an attack by the whole text")
    passages: float = Field(default=0.01, gt=0, le=1, description="one passage in a hundred comes back word for word")

    def of_access(self, model_access: str | None) -> Self:
        """Return a copy of the settings with only the risks that matter if others get this kind of access to the model
        (such as its weights, or only its answers). All risks stay if ``model_access`` is None or unknown."""
        counted = {risk for who in ACCESS.get(model_access or "", ()) for risk in RISKS_OF[who]} or set(self.risks)
        return self.model_copy(update={"risks": tuple(risk for risk in self.risks if risk in counted)})


class DossierConfig(Section):
    """The dossier at the end of a run: the evidence for a decision about each model, in a folder that can be sent.

    ``institution``, ``purpose``, ``legal_basis`` and ``documents`` are printed as they are given. What is not given is
    left open, for a person to write.
    """

    section: ClassVar[str] = "dossier"

    languages: tuple[Language, ...] = Field(default=LANGUAGES, min_length=1, description="the first is dossier.html")
    pdf: Literal["auto", "on", "off"] = Field(
        default="auto", description="also write PDF/UA by WeasyPrint; auto: where the extra `dossier` is installed"
    )
    key: str | None = Field(default=None, description="private SSH key of the institution, which signs the folder")
    institution: str | None = Field(default=None, description="who answers for the model")
    purpose: str | None = Field(default=None, description="what the model is made for")
    legal_basis: str | None = Field(default=None, description="on which basis the documents are processed")
    documents: str | None = Field(default=None, description="which documents these are, for the model card too")
    licence: str | None = Field(default=None, description="licence of a model that leaves, for its card")
    preregister: bool = Field(
        default=False,
        description="write thresholds, risks, attacks and seeds down, and sign them, before the first model is scored; "
        "rules that change later make every score anew",
    )
    access: Literal["public", "named", "questions", "inside"] | None = Field(
        default=None,
        description="who gets the model: anybody its files; named partners its files; others may put questions to it; "
        "or it stays inside. It decides which adversaries, and so which risks, count",
    )
    secure_environment: bool = Field(
        default=False,
        description="for who checks what leaves a secure environment: also a JSON file for each attack, and the halves "
        "of those who ask for the release (command, statement, digests) and of those who decide (checks, decision)",
    )
    statement: str | None = Field(
        default=None, description="what those who ask for the release state of the model, with secure_environment"
    )
    replaces: str | None = Field(
        default=None, description="digest of the dossier that this one replaces; an update of a run sets it"
    )
