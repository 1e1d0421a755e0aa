"""The job: one TOML file that says everything a run does, checked before anything starts.

Each section is the configuration object of one stage; unknown keys are refused. A run folder keeps the resolved
job as ``job.json``, so that a stage run later starts from the same settings.
"""

from __future__ import annotations

import itertools
import json
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ByteSize, ConfigDict, Field, ValidationError, model_validator

from reticent.errors import PolicyError
from reticent.trainer.recipes import Recipe, custom_recipe, get_recipe

if TYPE_CHECKING:
    from reticent.trainer.config import TrainConfig

__all__ = [
    "AuditSection",
    "CanariesSection",
    "ClassifySection",
    "CorpusSection",
    "DedupSection",
    "DetectSection",
    "DpSection",
    "ExtractionSection",
    "FoundationSection",
    "GateSection",
    "Job",
    "ModelSection",
    "ProbeSection",
    "RecipeSection",
    "ShadowSection",
    "load_job",
    "parse_job",
]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CorpusSection(Section):
    """Where the documents are and which columns hold what."""

    source: str | list[str] = Field(description="file, folder or glob of documents")
    format: Literal["auto", "parquet", "arrow", "csv", "jsonl", "i2b2-2006", "i2b2-2014", "meddocan", "brat", "tab"] = (
        Field(default="auto", description="auto: Parquet, Arrow, CSV or JSONL by the suffix")
    )
    doc_id: str = "doc_id"
    individual_id: str = "individual_id"
    text: str = "text"
    household_id: str | None = None
    label: str | None = None
    spans: str | None = None
    mentions: str | None = Field(default=None, description="column of marks with entity_id and identifier_type")
    offsets: Literal["characters", "bytes", "utf-16"] = Field(
        default="characters", description="what offsets of a marked-up format count"
    )
    individual: str | None = Field(
        default=None, description="regular expression of a marked-up document id; its group is the individual"
    )
    annotator: str | None = Field(default=None, description="the one annotator of TAB to believe; default: all")
    identifiers: list[Literal["DIRECT", "QUASI", "NO_MASK"]] = Field(
        default=["DIRECT", "QUASI"], description="types of TAB whose mentions are spans"
    )

    @property
    def marked(self) -> bool:
        """Whether the format brings spans that people marked."""
        return self.format in ("i2b2-2006", "i2b2-2014", "meddocan", "brat", "tab")


class DedupSection(Section):
    """Copies of documents that later stages do not see; the first of several stays."""

    mode: Literal["off", "exact", "near"] = "off"
    scope: Literal["individual", "corpus"] = Field(
        default="individual", description="copies of an individual's own documents, or of anybody's"
    )
    threshold: float = Field(default=0.8, gt=0, le=1)
    shingle_words: int = Field(default=5, ge=1)
    passage_words: int = Field(default=50, ge=1)


class SplitSection(Section):
    """Shares of the individuals (or households) that are never trained on; members are the rest."""

    heldout: float = Field(default=0.4, gt=0, lt=1)
    reference: float = Field(default=0.0, ge=0, lt=1)
    by: Literal["auto", "individual", "household"] = "auto"

    @model_validator(mode="after")
    def _leaves_members(self) -> SplitSection:
        if self.heldout + self.reference >= 1:
            raise ValueError("heldout and reference must leave a share for members")
        return self


Options = dict[str, Any]


class DetectSection(Section):
    """Detectors of direct identifiers; their spans are united. Each has a table of options, ``[detect.spacy]`` say.

    For the option a detector cannot do without there is a short form: ``records = "FILE"``, ``spacy = "PIPELINE"``,
    ``transformers = "MODEL"`` and ``lists = { LABEL = "FILE" }``.
    """

    detectors: list[Literal["gold", "rules", "records", "gazetteer", "spacy", "transformers", "presidio", "eds"]] = [
        "rules"
    ]
    on_error: Literal["stop", "quarantine"] = Field(
        default="stop", description="what a document does that a detector fails on: stop the run, or be left out"
    )
    propagate: bool = Field(default=False, description="what is found once is found wherever else it stands")
    gold: Options = {}
    rules: Options = {}
    records: Options = {}
    gazetteer: Options = {}
    spacy: Options = {}
    transformers: Options = {}
    presidio: Options = {}
    eds: Options = {}

    @model_validator(mode="before")
    @classmethod
    def _long_forms(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        values = dict(values)
        for name, option in (("records", "table"), ("spacy", "pipeline"), ("transformers", "model")):
            if values.get(name, "") is None:
                del values[name]
            elif isinstance(values.get(name), str):
                values[name] = {option: values[name]}
        if lists := values.pop("lists", None):
            values["gazetteer"] = {**(values.get("gazetteer") or {}), "lists": lists}
        return values

    @model_validator(mode="after")
    def _consistent(self) -> DetectSection:
        from reticent.engine.detect import DETECTORS, check_options

        if len(set(self.detectors)) != len(self.detectors):
            raise ValueError("a detector stands twice")
        for name in DETECTORS:
            if name in self.detectors:
                check_options(name, getattr(self, name))
            elif getattr(self, name):  # names thought protected would be targets
                raise ValueError(f'detect.{name} is given, but "{name}" is not among detect.detectors')
        return self

    @property
    def options(self) -> dict[str, Options]:
        """Options of each detector that is chosen."""
        return {name: getattr(self, name) for name in self.detectors}


class IndexSection(Section):
    """The graph of n-grams and individuals."""

    max_n: int = Field(default=1, ge=1, le=8)
    surface: Literal["exact", "casefold", "fold"] = "exact"


class ProtectSection(Section):
    """Which words must never be a target."""

    k: int = Field(default=2, ge=2, le=255)
    n: int = Field(default=1, ge=1, le=8)
    policy: Literal["all", "last", "cover", "paper"] = "all"
    max_document_frequency: float | None = Field(default=None, gt=0, le=1)
    scopes: dict[str, Literal["corpus", "individual", "occurrence"]] = {}


class FoundationSection(Section):
    """A small model pre-trained here, the stand-in for a foundation model where there is no network.

    ``text`` is a file or folder of documents that are not personal, or ``"reference"``: the individuals of the
    reference split, who are neither members nor held out.
    """

    kind: Literal["bert", "gpt2"]
    text: str
    vocabulary: str | None = Field(
        None,
        description="tokenizer.json, or a folder with vocab.txt or vocab.json and merges.txt; default: trained on text",
    )
    vocab_size: int = Field(default=4000, ge=300)
    hidden_size: int = 128
    num_layers: int = 2
    num_heads: int = 4
    num_epochs: int = 4
    learning_rate: float = 2e-3
    warmup_steps: int = 100
    mask_share: float = 0.3
    batch_size: int = 16


class DpSection(Section):
    """DP-SGD of the recipes that are private (dp-mlm, dp-clm); names follow Opacus."""

    unit: Literal["individual", "record"] = Field(
        default="individual", description="whose presence epsilon hides: a person, or one document"
    )
    target_epsilon: float | None = Field(default=None, gt=0, description="either this or noise_multiplier")
    noise_multiplier: float | None = Field(default=None, ge=0)
    target_delta: float | None = Field(
        default=None, gt=0, lt=1, description="default: a power of ten below a tenth of 1 / number of units"
    )
    max_grad_norm: float = Field(default=1.0, gt=0, description="what a unit's gradient is clipped to")
    max_documents: int = Field(default=4, ge=1, description="documents of an individual in a step, drawn afresh each")
    clipping: Literal["ghost", "hooks"] = "ghost"
    sample_rate: float | None = Field(
        default=None, gt=0, le=1, description="default: batch_size * gradient_accumulation_steps units are expected"
    )
    max_physical_batch_size: int = Field(default=16, ge=1, description="windows in memory at once")
    accountant: Literal["prv", "rdp"] = "prv"
    budget_epsilon: float | None = Field(
        default=None,
        gt=0,
        description="what all private runs on this corpus may spend together; beyond, a run is refused",
    )
    budget_delta: float | None = Field(default=None, gt=0, lt=1, description="default: 1 / number of units")
    budget_file: str | None = Field(
        default=None, description="where it is kept; default: privacy-budget.json in the run folder"
    )

    @model_validator(mode="after")
    def _consistent(self) -> DpSection:
        from reticent.trainer.privacy import PrivacyConfig

        PrivacyConfig(**self.model_dump(exclude={"budget_epsilon", "budget_delta", "budget_file"}))
        return self


class LoraSection(Section):
    """Low-rank adapters are trained instead of all weights; names are peft's."""

    r: int = Field(default=8, ge=1)
    lora_alpha: float = Field(default=16.0, gt=0)
    lora_dropout: float = Field(default=0.0, ge=0, lt=1)
    target_modules: list[str] | None = Field(default=None, description="default: peft's for the architecture")


class RecipeSection(Section):
    """A recipe of one's own: a built-in one with other fields. What is not given is that of ``base``."""

    base: str = Field(description="name of a built-in recipe")
    objective: Literal["mlm", "clm"] | None = None
    text: Literal["original", "pseudonymised"] | None = Field(
        default=None, description="pseudonymised: X for each direct identifier, and X is a target"
    )
    never_target: list[Literal["direct", "indirect"]] | None = None
    context: Literal["keep", "surrogate", "tag"] | None = Field(
        default=None, description="what stands for a direct identifier; surrogates and tags are never a target"
    )
    freeze_embeddings: bool | None = None
    goldfish_k: int | None = Field(default=None, description="drop one token in k by a hash; clm only")
    goldfish_h: int | None = Field(default=None, description="of that many tokens before it")
    mask_split: tuple[float, float, float] | None = Field(
        default=None, description="shares of the drawn words that are masked, replaced at random, kept; mlm only"
    )
    private: bool | None = Field(default=None, description="DP-SGD")


class TrainSection(Section):
    """The training loop; names follow transformers' TrainingArguments where one exists."""

    seeds: list[int] | None = Field(
        default=None,
        min_length=1,
        description="train every recipe once with each; of the training alone, the data stay those of the job's seed",
    )
    num_epochs: int = Field(default=8, ge=1)
    checkpoint_epochs: list[int] | None = Field(
        default=None, description="default: 4, 8, 16, 32, 64 up to num_epochs, and the last"
    )
    window_length: int = Field(default=512, ge=8)
    batch_size: int = Field(default=16, ge=1)
    learning_rate: float = Field(default=1e-4, gt=0)
    lr_scheduler_type: Literal["linear", "constant_with_warmup"] = "linear"
    warmup_steps: int = Field(default=0, ge=0)
    weight_decay: float = Field(default=0.01, ge=0)
    mask_share: float = Field(default=0.15, gt=0, lt=1)
    gradient_accumulation_steps: int = Field(default=1, ge=1)
    max_grad_norm: float = Field(default=1.0, gt=0)
    device: str = "auto"
    bf16: Literal["auto", "on", "off"] = "auto"
    packing: bool = Field(
        default=False, description="several windows in one row, none of which sees another; batch_size counts rows"
    )
    torch_compile: bool = False
    lora: LoraSection | None = None
    save_steps: int = Field(
        default=0, ge=0, description="steps after which the state to go on from is saved; 0: after each epoch"
    )
    logging_steps: int = Field(default=10, ge=1, description="steps after which one is logged")
    report_to: list[Literal["tensorboard"]] = Field(default=[], description="beside metrics.jsonl")
    dp: DpSection | None = Field(default=None, description="DP-SGD, for the recipes that are private")

    def what_it_computes(self, *, private: bool = False) -> dict[str, Any]:
        """These settings less those that change only how the training is watched, less the seeds, of which it has one,
        and less ``dp`` where a recipe is not private.
        """
        said = self.model_dump(exclude={"save_steps", "logging_steps", "report_to", "seeds", "dp"})
        if private and self.dp is not None:
            watched = {"max_physical_batch_size", "budget_epsilon", "budget_delta", "budget_file"}
            said["dp"] = self.dp.model_dump(exclude=watched)
        return said

    @model_validator(mode="after")
    def _consistent(self) -> TrainSection:
        seeds, epochs = self.seeds or [], self.checkpoint_epochs or []
        if len(set(seeds)) != len(seeds):
            raise ValueError("seeds: a seed stands twice")
        if any(not 0 <= seed < 2**63 for seed in seeds):
            raise ValueError("seeds: expected 0 or more, below 2**63")
        if any(epoch < 1 for epoch in epochs):
            raise ValueError("checkpoint_epochs: the first epoch is 1")
        if any(later <= earlier for earlier, later in itertools.pairwise(epochs)):
            raise ValueError("checkpoint_epochs: expected increasing epochs")
        return self

    def settings(self, seed: int) -> TrainConfig:
        """The trainer's own settings."""
        from reticent.trainer.config import LoraSettings, TrainConfig

        values = self.model_dump(exclude={"checkpoint_epochs", "report_to", "lora", "dp", "seeds"})
        values |= {"checkpoint_epochs": self.epochs_kept(), "report_to": tuple(self.report_to)}
        if self.lora is not None:
            modules = self.lora.target_modules
            lora = self.lora.model_dump(exclude={"target_modules"})
            values["lora"] = LoraSettings(**lora, target_modules=tuple(modules) if modules else None)
        return TrainConfig(**values, seed=seed)

    def epochs_kept(self) -> tuple[int, ...]:
        """Epochs after which a checkpoint is kept; the last epoch always is."""
        wanted = self.checkpoint_epochs if self.checkpoint_epochs is not None else [4, 8, 16, 32, 64]
        return tuple(sorted({e for e in wanted if 1 <= e <= self.num_epochs} | {self.num_epochs}))


class ModelSection(Section):
    """One base model and the recipes it is fine-tuned with."""

    name: str = Field(pattern=r"^[A-Za-z0-9._-]+$")
    base: str | None = Field(default=None, description="local folder or hub name")
    foundation: FoundationSection | None = None
    objective: Literal["mlm", "clm"]
    recipes: list[str] = Field(min_length=1)
    train: TrainSection | None = Field(default=None, description="what differs from the job's [train] for this model")

    @model_validator(mode="after")
    def _consistent(self) -> ModelSection:
        if (self.base is None) == (self.foundation is None):
            raise ValueError("give either base or foundation")
        if len(set(self.recipes)) != len(self.recipes):
            raise ValueError("a recipe stands twice")
        return self


class ClassifySection(Section):
    """Documents classified on top of checkpoints, their last layer and a head trained (seed 1 §5.5): a stage only where
    the job has this section. Window length and device are those of ``[train]``.
    """

    label: str | None = Field(default=None, description="column of the class; default: corpus.label")
    from_epochs: list[int] | None = Field(
        default=None, description="checkpoints to start from; default: those of 8 and 64 that were kept, else the last"
    )
    num_epochs: int = Field(default=4, ge=1)
    learning_rate: float = Field(default=2e-5, gt=0)
    warmup_ratio: float = Field(default=0.1, ge=0, le=1)
    weight_decay: float = Field(default=0.01, ge=0)
    batch_size: int = Field(default=16, ge=1)
    windows: Literal["all", "first"] = Field(
        default="all", description="of a document longer than a window: all, their answers averaged, or the first"
    )
    min_individuals: int | None = Field(
        default=None, ge=1, description="leave out classes that fewer people have on a side; default: refuse them"
    )
    save_model: bool = False


class InversionSection(Section):
    """Can an identifier that is context only be told from decoys by the words around it? A part of the audit only where
    the job has this section: each identifier costs a forward pass over ``num_decoys`` + 1 copies of its window.
    """

    num_decoys: int = Field(default=15, ge=1)
    per_individual: int = Field(default=4, ge=1, description="identifiers of each kind that are drawn of a person")
    kinds: list[Literal["direct", "indirect"]] = Field(default=["direct", "indirect"], min_length=1)
    association: bool = Field(default=True, description="also ask for terms of the documents after names in templates")
    terms_per_individual: int = Field(default=3, ge=1)
    term_support: tuple[float, float] = Field(
        default=(0.01, 0.2), description="share of the individuals who use a word that counts as a term"
    )
    language: Literal["en", "fr"] = Field(default="en", description="of the templates")
    embedding_shift: bool = True


class GenerationSection(Section):
    """What causal models write by themselves, begun with documents of both sides: a part of the audit only where the
    job has this section.
    """

    num_prompts: int = Field(default=200, ge=1, description="documents of each side")
    prefix_tokens: int = Field(default=16, ge=1)
    num_tokens: int = Field(default=64, ge=1)
    num_samples: int = Field(default=1, ge=1)
    temperature: float = Field(default=1.0, ge=0, description="0: greedy")
    top_k: int = Field(default=0, ge=0, description="0: every token can be drawn")


class ShadowSection(Section):
    """Shadow models: each recipe's last checkpoint is attacked with models that are trained like it on random halves of
    the members and held-out individuals together. Costs ``num_shadows`` trainings a recipe.
    """

    recipes: list[str] = Field(min_length=1, description="whose models are attacked")
    num_shadows: int = Field(default=8, ge=4, le=256, multiple_of=2, description="even: everybody is in half of them")
    attacks: list[Literal["shadow", "lira_online", "lira_offline", "lira_sequence", "rmia", "rmia_online"]] = Field(
        default=["shadow", "lira_online", "lira_offline", "lira_sequence", "rmia"], min_length=1
    )
    rmia_slope: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="a of p = ((1 + a) p_out + (1 - a)) / 2; default: fitted on the population",
    )
    population: float = Field(
        default=0.2, gt=0, lt=1, description="share of the held-out that RMIA compares with and does not attack"
    )
    keep_models: bool = Field(default=False, description="keep the shadows' checkpoints beside their scores")


class AuditSection(Section):
    """What is attacked and how intervals are made."""

    attacks: list[str] = ["loss", "reference", "zlib", "min_k", "min_k_plus_plus", "wbc", "ez"]
    num_bootstrap: int = Field(default=1000, ge=100)
    batch_size: int = Field(default=64, ge=1)
    small_cell: int = Field(default=5, ge=1)
    graph_shares: list[float] = [1.0, 0.75, 0.5, 0.25, 0.1]
    every_checkpoint: bool = True
    all_occurrences: bool = Field(
        default=False, description="masked models a second time, a word masked wherever it stands in its window"
    )
    generation: GenerationSection | None = None
    inversion: InversionSection | None = None
    shadow: ShadowSection | None = None


class ProbeSection(Section):
    """Probes with people's own items (ProPILE), at the end of the audit."""

    subjects: str | None = Field(default=None, description="table of items with individual_id; default: detect.records")
    targets: list[str] = []
    levels: list[Literal["twin", "triplet", "quadruplet"]] = ["twin", "triplet"]
    given: list[str] = Field(default=[], description="items given beside the name, in this order; default: the table's")
    language: str = "en"
    templates: str | None = None
    beam_sizes: list[int] = Field(default=[3], min_length=1)
    longest: Literal["published", "fit"] = "published"
    soft_prompt: bool = False
    soft_subjects: int = Field(default=128, ge=1)
    soft_epochs: int = Field(default=700, ge=1)


class CanariesSection(Section):
    """Made-up secrets written into members' documents, to measure what a model keeps of them. A model trained on them
    is for measuring only, and the report says so.
    """

    num: int = Field(default=25, ge=1, description="of each arm; a fair coin leaves out half of them")
    arms: list[Literal["protected", "missed", "context", "ngram"]] = Field(
        default=["protected", "missed", "context", "ngram"], min_length=1
    )
    repetitions: int = Field(default=1, ge=1, description="times each is written into its individual's documents")
    num_references: int = Field(default=256, ge=2, description="other secrets to rank each among")
    seed: int | None = Field(default=None, ge=0, lt=2**63, description="default: the job's")
    guesses: float = Field(
        default=0.5, gt=0, le=1, description="share of the canaries whose coin the one-run audit guesses"
    )
    delta: float = Field(default=1e-5, ge=0, lt=1, description="of the one-run audit")

    @model_validator(mode="after")
    def _consistent(self) -> CanariesSection:
        if len(set(self.arms)) != len(self.arms):
            raise ValueError("canaries: an arm stands twice")
        return self


class ExtractionSection(Section):
    """Passages of the documents that causal models are asked to complete, at the end of the audit."""

    prefix_tokens: list[int] = Field(default=[10, 50], min_length=1, description="tokens the adversary knows")
    suffix_tokens: int = Field(default=50, ge=1, description="tokens that must come back")
    temperature: float = Field(default=1.0, gt=0)
    top_k: int = Field(default=40, ge=0, description="0: all tokens can be drawn")
    num_queries: list[int] = [1, 100, 10_000]
    probability: float = Field(default=0.5, gt=0, le=1)
    num_passages: int = Field(default=2000, ge=1, description="at most so many of each side, one a document")


class GateSection(Section):
    """A threshold that the trained models must keep, fixed before the run: ``[[gate]]``, as many as wanted."""

    measure: Literal[
        "excess_leakage", "membership_auc", "membership_tpr", "extraction", "np_extraction", "exposure", "epsilon"
    ]
    at_most: float = Field(description="what the upper end of the 95 % interval may be")
    recipes: list[str] | None = Field(default=None, description="models it is for; default: those that protect")
    attack: str | None = Field(default=None, description="of membership; default: each of audit.attacks")
    arm: Literal["protected", "missed", "context", "ngram"] = Field(
        default="protected", description="of exposure and epsilon"
    )
    part: Literal["both", "direct", "indirect"] = Field(default="both", description="of excess_leakage")
    required: bool = Field(default=False, description="a gate without the power to say is failed")


class Job(Section):
    """A whole run: documents in, models and a report out."""

    out: str
    seed: int = Field(default=0, ge=0, lt=2**63)
    num_threads: int = Field(default=0, ge=0)
    #: Memory the stage index may use, "4GB" say; what does not fit is written beside the results while it counts.
    memory_limit: ByteSize | None = None
    corpus: CorpusSection
    dedup: DedupSection = DedupSection()
    split: SplitSection = SplitSection()
    detect: DetectSection = DetectSection()
    index: IndexSection = IndexSection()
    protect: ProtectSection = ProtectSection()
    model: list[ModelSection] = []
    recipes: dict[str, RecipeSection] = Field(default={}, description="recipes of one's own, by name")
    train: TrainSection = TrainSection()
    classify: ClassifySection | None = None
    audit: AuditSection = AuditSection()
    probe: ProbeSection | None = None
    canaries: CanariesSection | None = None
    extraction: ExtractionSection | None = None
    gate: list[GateSection] = []

    @model_validator(mode="after")
    def _gates_have_their_measure(self) -> Job:
        for number, gate in enumerate(self.gate, start=1):
            where = f"gate {number} ({gate.measure})"
            if gate.measure in ("exposure", "epsilon") and (
                self.canaries is None or gate.arm not in self.canaries.arms
            ):
                raise ValueError(f"{where}: needs [canaries] with the arm {gate.arm}")
            if gate.measure in ("extraction", "np_extraction") and self.extraction is None:
                raise ValueError(f"{where}: needs [extraction]")
            if gate.measure.startswith("membership") and gate.attack and gate.attack not in self.audit.attacks:
                raise ValueError(f"{where}: {gate.attack} is not among audit.attacks")
            known = {name for model in self.model for name in model.recipes}
            if gate.recipes is not None and (not gate.recipes or not known.issuperset(gate.recipes)):
                raise ValueError(f"{where}: recipes: expected some of {', '.join(sorted(known))}")
        return self

    @model_validator(mode="after")
    def _consistent(self) -> Job:
        if self.protect.n > self.index.max_n:
            raise ValueError(
                f"protect.n = {self.protect.n} needs index.max_n >= {self.protect.n}, got {self.index.max_n}"
            )
        if any(self.training(model).window_length != self.train.window_length for model in self.model):
            raise ValueError("train.window_length belongs to the whole job: models are attacked on the same windows")
        for name in self.recipes:
            if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", name):
                raise ValueError(f"recipes.{name}: a name is of letters, digits, dots, dashes and underscores")
            try:
                self.recipe(name)
            except ValueError as error:
                where = "" if str(error).startswith("recipes.") else f"recipes.{name}.base: "
                raise ValueError(f"{where}{error}") from None
        for model in self.model:
            for name in model.recipes:
                try:
                    found = self.recipe(name)
                except ValueError as error:
                    raise ValueError(f"model {model.name}: {error}") from None
                if found.objective != model.objective:
                    raise ValueError(
                        f"model {model.name}: recipe {name} is {found.objective}, the objective is {model.objective}"
                    )
                if found.private and self.training(model).dp is None:
                    raise ValueError(
                        f"model {model.name}: recipe {name} is DP-SGD and needs [train.dp], with target_epsilon say"
                    )
        if self.audit.shadow is not None:
            unknown = set(self.audit.shadow.recipes) - {recipe for model in self.model for recipe in model.recipes}
            if self.model and unknown:
                raise ValueError(f"audit.shadow.recipes: no model is trained with {sorted(unknown)[0]}")
        names = [model.name for model in self.model]
        if len(set(names)) != len(names):
            raise ValueError("two models have the same name")
        if self.classify is not None and not (self.classify.label or self.corpus.label):
            raise ValueError("classify needs the column of classes: classify.label or corpus.label")
        if "gold" in self.detect.detectors and self.corpus.spans is None and not self.corpus.marked:
            raise ValueError('detector gold needs corpus.spans = "the column of spans"')
        return self

    def recipe(self, name: str) -> Recipe:
        """Return a recipe by name: one of the job's own, or a built-in one; `PolicyError` lists the known ones."""
        own = self.recipes.get(name)
        if own is not None:
            return custom_recipe(
                name, own.base, own.model_dump(exclude={"base"}, exclude_unset=True, exclude_none=True)
            )
        return get_recipe(name, also=self.recipes)

    def training(self, model: ModelSection) -> TrainSection:
        """Return the job's training settings with what the model says otherwise."""
        own = model.train.model_dump(exclude_unset=True) if model.train else {}
        return TrainSection(**{**self.train.model_dump(), **own})


def parse_job(values: dict[str, Any], where: str = "job") -> Job:
    """Check a job given as nested dictionaries; `PolicyError` lists every field that is wrong, and why."""
    try:
        return Job.model_validate(values)
    except ValidationError as error:
        lines = []
        for wrong in error.errors(include_input=False, include_url=False):
            what = "unknown field" if wrong["type"] == "extra_forbidden" else wrong["msg"].removeprefix("Value error, ")
            lines.append(": ".join(filter(None, (".".join(map(str, wrong["loc"])), what))))
        raise PolicyError(f"{where}: " + "; ".join(lines)) from None


def load_job(path: str | Path) -> Job:
    """Read a job from a TOML file (or the ``job.json`` of a run folder).

    Relative paths in the file are meant from the folder one stands in, as on the command line.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
        values = json.loads(data) if path.suffix == ".json" else tomllib.loads(data.decode())
    except OSError as error:
        raise PolicyError(f"{path}: cannot be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise PolicyError(f"{path}: not valid {'JSON' if path.suffix == '.json' else 'TOML'}: {error}") from None
    return parse_job(values, str(path))
