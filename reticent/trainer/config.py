"""Settings of the trainer, one class for each component; names follow transformers' TrainingArguments where possible.

They stand apart from the code that they configure, because that code loads torch. So a job is checked without torch.
"""

# No `from __future__ import annotations` here: pydantic would compile each annotation from its text at every start.

import itertools
import math
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    FieldSerializationInfo,
    field_serializer,
    model_validator,
)

from reticent.core.errors import PolicyError
from reticent.core.names import require_name
from reticent.core.section import PUBLISHED, Section, of_job
from reticent.trainer.recipes import Context, Head, Objective, Recipe

#: Fewest members of a positive control, and how many times each epoch repeats their documents.
FEWEST_REPEATED: Final = 100
TIMES_REPEATED: Final = 8

Bf16 = Literal["auto", "on", "off"]
#: Settings that did not exist when the first trainings were kept.
YOUNGER: Final = (
    "gradient_checkpointing", "dtype", "fsdp", "max_steps", "eval_strategy", "early_stopping_patience",
)  # fmt: skip
#: Epochs after which a checkpoint is kept by default, up to the last epoch, which is always kept.
CHECKPOINT_EPOCHS: Final = (4, 8, 16, 32, 64)


class FoundationConfig(Section):
    """A small model that is pre-trained here, in place of a foundation model if there is no network.

    ``text`` is a file or folder of non-personal documents, or ``"reference"``: the documents of the reference split,
    whose individuals are neither members nor held out. Nothing protects these, so that is for experiments alone.
    """

    section: ClassVar[str] = "model.foundation"

    kind: Literal["bert", "gpt2"]
    text: Annotated[str, PUBLISHED]
    vocabulary: Annotated[str | None, PUBLISHED] = Field(
        None,
        description="tokenizer.json, or a folder with vocab.txt or vocab.json and merges.txt; default: trained on text",
    )
    vocab_size: int = Field(default=4000, ge=300, le=10_000_000)
    hidden_size: int = Field(default=128, ge=1, le=65_536)
    num_layers: int = Field(default=2, ge=1, le=1000)
    num_heads: int = Field(default=4, ge=1)
    num_epochs: int = Field(default=4, ge=1, le=10_000)
    learning_rate: float = Field(default=2e-3, gt=0)
    warmup_steps: int = Field(default=100, ge=0)
    mask_share: float = Field(default=0.3, gt=0, lt=1)
    batch_size: int = Field(default=16, ge=1, le=1_000_000)

    @model_validator(mode="after")
    def _check_num_heads(self) -> Self:
        """Raise `ValueError` unless ``hidden_size`` is a multiple of ``num_heads``."""
        if self.hidden_size % self.num_heads:
            raise ValueError(f"hidden_size {self.hidden_size} is no multiple of num_heads {self.num_heads}")
        return self


class LoraSettings(Section):
    """Low-rank adapters, trained instead of all weights; the names are those of peft."""

    section: ClassVar[str] = "train.lora"

    r: int = Field(default=8, ge=1)
    lora_alpha: float = Field(default=16.0, gt=0)
    lora_dropout: float = Field(default=0.0, ge=0, lt=1)
    target_modules: Annotated[tuple[str, ...] | None, PUBLISHED] = Field(
        default=None,
        description="names of modules that get an adapter; default: those that peft has for the architecture",
    )


def _parse_epsilons(value: Any) -> Any:
    """Return an epsilon unchanged, or a list of different epsilons as floats; raise `ValueError` for anything else."""
    listed = isinstance(value, list | tuple)
    found = tuple(value) if listed else (value,)
    if value is not None and not (
        found
        and all(type(each) in (int, float) and 0 < each < math.inf for each in found)
        and len({*found}) == len(found)
    ):
        raise ValueError("expected an epsilon over 0, or a list of different ones")
    return tuple(map(float, found)) if listed else value


class PrivacyConfig(Section):
    """DP-SGD of the private recipes (dp-mlm, dp-clm); names follow Opacus.

    ``seed`` is the seed of samples and noise, for tests only: by default the system draws it and it stays secret, as
    epsilon requires. ``unaccounted`` names steps that read every individual's documents (`STAGES` of
    :mod:`reticent.trainer.privacy`); with any of them no epsilon is given. ``vocabulary`` is noise and floor (sigma,
    delta) of the private vocabulary by which words are protected, which epsilon then includes; ``includes`` its name in
    the budget, and k. ``corpus`` is the fingerprint of the documents that are charged (:mod:`reticent.ext.dp.budget`).
    """

    section: ClassVar[str] = "train.dp"

    unit: Literal["individual", "household", "record"] = Field(
        default="individual",
        description="epsilon hides the presence of an individual with all documents, or of one document; where "
        "corpus.household_id keeps households together, an individual is a household",
    )
    target_epsilon: Annotated[float | tuple[float, ...] | None, BeforeValidator(_parse_epsilons)] = Field(
        default=None,
        description="epsilon after all epochs; give either this or noise_multiplier. A list trains one model for each, "
        "whose recipe is NAME-epsilon-E, and the budget is charged for all of them together",
    )
    noise_multiplier: float | None = Field(default=None, ge=0, description="the noise sigma itself")
    target_delta: float | None = Field(
        default=None, gt=0, lt=1, description="default: a power of ten below a tenth of 1 / number of units"
    )
    num_units: int | None = Field(
        default=None,
        ge=1,
        description="a public number of units, fixed before the documents are counted: sample rate, steps, divisor and "
        "delta then follow from it. Default: the number of the members, which then counts as public",
    )
    max_grad_norm: float = Field(default=1.0, gt=0, description="norm to which the gradient of a unit is clipped")
    max_documents: int = Field(
        default=4, ge=1, description="most documents of an individual in a step, drawn again for each step"
    )
    clipping: Literal["ghost", "hooks"] = Field(
        default="ghost", description="ghost: no gradient of a unit is kept in memory; hooks: one for each unit"
    )
    sample_rate: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="share of the units in a step; default: batch_size * gradient_accumulation_steps are expected",
    )
    max_physical_batch_size: int = Field(
        default=16,
        ge=1,
        description="windows in memory at once (64 to 256 on a large GPU); changes dropout, never the guarantee",
    )
    accountant: Literal["prv", "rdp"] = Field(default="prv", description="rdp is looser by a tenth; for comparison")
    seed: Annotated[int | None, of_job(None)] = None
    unaccounted: Annotated[tuple[str, ...], of_job(None)] = ()
    vocabulary: Annotated[tuple[float, float] | None, of_job(None)] = None
    includes: Annotated[tuple[str, int] | None, of_job(None)] = None
    corpus: Annotated[str | None, of_job(None)] = None
    budget_epsilon: float | None = Field(
        default=None,
        gt=0,
        description="budget of all private runs on this corpus together; a run beyond it is refused",
    )
    budget_delta: float | None = Field(default=None, gt=0, lt=1, description="default: 1 / number of units")
    budget_file: Annotated[str | None, PUBLISHED] = Field(
        default=None, description="file of the budget; default: privacy-budget.json in the run folder"
    )

    @model_validator(mode="after")
    def _require_epsilon_or_noise(self) -> Self:
        """Raise `ValueError` unless exactly one of ``target_epsilon`` and ``noise_multiplier`` is given."""
        if (self.target_epsilon is None) == (self.noise_multiplier is None):
            raise ValueError("give either target_epsilon or noise_multiplier")
        return self

    def check_complete(self) -> None:
        """Raise `PolicyError` if a privacy budget, the epsilon that all trainings on a corpus may spend together, has
        no file or no fingerprint of the corpus."""
        if (self.budget_file is None) != (self.corpus is None):
            raise PolicyError("train.dp: a budget needs both a file and the fingerprint of the corpus")
        if self.budget_epsilon is not None and self.budget_file is None:
            raise PolicyError("train.dp.budget_epsilon: needs a budget file")

    def cache_key(self) -> dict[str, object]:
        """Return the DP-SGD settings that change the weights of a training.

        The size of physical batches is included, because it changes weights through the draws of dropout. If a run were
        resumed with another size, it would repeat steps with the same noise on another sum, and the noise would cancel
        in the difference of the two.
        """
        return self.all_values({"budget_file", "budget_epsilon", "budget_delta", "includes"} | self.untouched())

    def untouched(self) -> set[str]:
        """Return the names of the settings that earlier versions did not have and that are not set. Cache keys leave
        these out, so that results of earlier versions stay valid."""
        return {name for name in ("num_units", "vocabulary") if getattr(self, name) is None}


class TrainConfig(Section):
    """Settings of training a recipe."""

    section: ClassVar[str] = "train"

    num_epochs: int = Field(default=8, ge=1, le=10_000, description="passes over the members' documents")
    checkpoint_epochs: tuple[int, ...] | None = Field(
        default=None, description="epochs whose checkpoints are kept, with the last; default: 4, 8, 16, 32, 64"
    )
    max_steps: int | None = Field(
        default=None,
        ge=1,
        description="steps after which training ends, if num_epochs are more; one checkpoint is kept, under the number "
        "num_epochs. Not for DP-SGD",
    )
    eval_strategy: Literal["no", "epoch"] = Field(
        default="no",
        description="epoch: after each, write the loss on ordinary words of held-out individuals to metrics.jsonl and "
        "ledger.json",
    )
    early_stopping_patience: int = Field(
        default=0,
        ge=0,
        description="epochs without a lower such loss after which training ends; one checkpoint is kept, that of the "
        "lowest, under the number num_epochs. 0: all epochs. Not for DP-SGD",
    )
    window_length: int = Field(
        default=512, ge=8, le=10_000_000, description="tokens of a window, special tokens included"
    )
    batch_size: int = Field(default=16, ge=1, le=1_000_000, description="windows of a micro-batch")
    learning_rate: float = Field(
        default=1e-4, gt=0, description="peak rate, after it rose from 0 over warmup_steps steps"
    )
    lr_scheduler_type: Literal["linear", "cosine", "constant_with_warmup"] = Field(
        default="linear",
        description="after the peak: a fall to 0 over the whole training, linear or as a cosine, or a constant rate",
    )
    warmup_steps: int = Field(default=0, ge=0)
    weight_decay: float = Field(default=0.01, ge=0)
    mask_share: float = Field(default=0.15, gt=0, lt=1, description="share of the eligible words that MLM masks")
    end_of_text: bool = Field(
        default=True,
        description="a causal model also learns where a text ends: the tokenizer's end token is a target behind each "
        "document, never protected. A job that an earlier version kept reads as false",
    )
    gradient_accumulation_steps: int = Field(default=1, ge=1)
    max_grad_norm: float = Field(default=1.0, gt=0)
    device: Annotated[str, PUBLISHED] = "auto"
    bf16: Bf16 = Field(
        default="auto",
        description="bfloat16 in training and in the audit's scores; auto: on CUDA. It pays on a CPU with AMX too",
    )
    seed: Annotated[int, of_job("seed")] = 0
    packing: bool = Field(
        default=False,
        description="put several windows into one row, each attended by itself; batch_size counts rows",
    )
    torch_compile: bool = Field(
        default=False, description="compile the model; the first steps then take tens of seconds"
    )
    gradient_checkpointing: bool = Field(
        default=False,
        description="make activations again in the backward pass: less memory, a third more time, other rounding",
    )
    dtype: Literal["float32", "bfloat16"] = Field(
        default="float32",
        description="of weights, gradients and moments. bfloat16 takes half of the memory and loses changes of a "
        "weight under 1/256 of it, so it is for large models and adapters",
    )
    fsdp: bool = Field(
        default=False,
        description="processes share weights, gradients and moments (torch's fully_shard); False: each has all (DDP)",
    )
    lora: LoraSettings | None = Field(default=None, description="low-rank adapters instead of all weights")
    save_steps: int = Field(
        default=0,
        ge=0,
        description="steps between two saved states, from which training can be resumed; 0: by save_minutes alone",
    )
    save_minutes: float = Field(
        default=10.0,
        ge=0,
        description="minutes between two saved states; each checkpoint, and a stop, save one too. 0: they alone",
    )
    logging_steps: int = Field(
        default=10, ge=1, description="steps between two lines of the log; on CUDA also between two checks of the loss"
    )
    report_to: tuple[Literal["tensorboard"], ...] = Field(default=(), description="logs beside metrics.jsonl")
    seeds: tuple[Annotated[int, Field(ge=0, lt=2**63)], ...] | None = Field(
        default=None,
        min_length=1,
        description="train every recipe once with each seed; split and protection keep the seed of the job",
    )
    dp: PrivacyConfig | None = Field(default=None, description="DP-SGD, for the private recipes")

    @model_validator(mode="after")
    def _check_consistent(self) -> Self:
        """Raise `ValueError` for settings that contradict each other (seeds, checkpoints, early stopping, …)."""
        seeds, epochs = self.seeds or (), self.checkpoint_epochs or ()
        if len(set(seeds)) != len(seeds):
            raise ValueError("seeds: a seed is listed twice")
        if any(epoch < 1 for epoch in epochs):
            raise ValueError("checkpoint_epochs: the first epoch is 1")
        if any(later <= earlier for earlier, later in itertools.pairwise(epochs)):
            raise ValueError("checkpoint_epochs: expected increasing epochs")
        if self.early_stopping_patience and self.eval_strategy == "no":
            raise ValueError('early_stopping_patience: goes by eval_loss; set eval_strategy = "epoch"')
        if self.ends_early and not {*epochs} <= {self.num_epochs}:
            raise ValueError(
                f"checkpoint_epochs: with {'max_steps' if self.max_steps else 'early_stopping_patience'} nobody knows "
                "which epochs there will be, so one checkpoint is kept; leave it out"
            )
        if self.fsdp and (self.lora or self.torch_compile):
            raise ValueError(f"fsdp: does not go with {'lora' if self.lora else 'torch_compile'}; leave one out")
        return self

    def cache_key(self, *, private: bool = False, causal: bool = True) -> dict[str, Any]:
        """Return the settings that change the weights of a training, with those of DP-SGD if it is ``private``, and
        without ``end_of_text`` unless it is ``causal``.

        Omitted are settings that only monitor or place a training, the list of seeds (each training has one), ``dp`` if
        the recipe is not private, ``end_of_text`` if no end is a target, and `YOUNGER` settings at their defaults, so
        that older keys stay valid.
        """
        watched = {"save_steps", "save_minutes", "logging_steps", "report_to", "eval_strategy", "seeds", "dp"}
        said = self.model_dump(exclude=watched | self._younger_at_default())
        if not (self.end_of_text and causal):
            del said["end_of_text"]
        if private and self.dp is not None:
            watched = {"max_physical_batch_size", "budget_epsilon", "budget_delta", "budget_file"}
            said["dp"] = self.dp.model_dump(exclude=watched | self.dp.untouched())
        return said

    def _younger_at_default(self) -> set[str]:
        """Return the names of the settings that earlier versions did not have (`YOUNGER`) and that are at their
        defaults. Cache keys leave these out, so that results of earlier versions stay valid."""
        return {name for name in YOUNGER if getattr(self, name) == type(self).model_fields[name].default}

    @property
    def ends_early(self) -> bool:
        """Whether training may end before the last epoch (``max_steps`` or early stopping)."""
        return self.max_steps is not None or self.early_stopping_patience > 0

    def epochs_kept(self) -> tuple[int, ...]:
        """Return the epochs after which a checkpoint is written, ascending; always with the last one, and it alone if
        training may end early."""
        if self.ends_early:
            return (self.num_epochs,)
        wanted = CHECKPOINT_EPOCHS if self.checkpoint_epochs is None else self.checkpoint_epochs
        return tuple(sorted({epoch for epoch in wanted if epoch <= self.num_epochs} | {self.num_epochs}))

    def late_epochs(self) -> tuple[int, ...]:
        """Return the epochs of ``checkpoint_epochs`` that lie beyond ``num_epochs`` and so are never reached."""
        return tuple(epoch for epoch in self.checkpoint_epochs or () if epoch > self.num_epochs)

    def of_one_training(self) -> dict[str, Any]:
        """Return the settings that are stored with a training, in its ledger and saved state. Settings that do not
        change it are left out, and newer ones at their defaults, so that records of earlier versions still match."""
        values = self.all_values() | {"checkpoint_epochs": self.epochs_kept()}
        left_out = {
            "seeds",
            "dp",
            "save_minutes",
            *self._younger_at_default(),
            *(() if self.end_of_text else ("end_of_text",)),
        }
        return {name: value for name, value in values.items() if name not in left_out}


class ModelSection(Section):
    """One base model and the recipes it is fine-tuned with."""

    name: Annotated[str, AfterValidator(lambda name: require_name(name, "model.name")), PUBLISHED]
    base: Annotated[str | None, PUBLISHED] = Field(default=None, description="local folder or hub name")
    foundation: FoundationConfig | None = None
    objective: Literal["mlm", "clm"]
    recipes: Annotated[tuple[str, ...], PUBLISHED] = Field(min_length=1)
    train: TrainConfig | None = Field(default=None, description="settings in which this model differs from [train]")
    repeated: int | None = Field(
        default=None,
        ge=FEWEST_REPEATED,
        description=f"so many members, whose documents an epoch has {TIMES_REPEATED} times; the audit asks of them and "
        "of others drawn alike. A plain model so trained is the positive control of models of the same base",
    )

    @field_serializer("train")
    def _serialize_set(self, train: TrainConfig | None, info: FieldSerializationInfo) -> dict[str, Any] | None:
        """Serialise only the training settings that are set for this model. A default that was written out would count
        as set when it is read again, and override the job's value."""
        return None if train is None else train.model_dump(mode=str(info.mode), exclude_unset=True)

    @model_validator(mode="after")
    def _check_consistent(self) -> Self:
        """Raise `ValueError` unless exactly one of ``base`` and ``foundation`` is given and the recipes fit
        together."""
        if (self.base is None) == (self.foundation is None):
            raise ValueError("give either base or foundation")
        if len(set(self.recipes)) != len(self.recipes):
            raise ValueError("a recipe is listed twice")
        if self.repeated and self.recipes != (self.objective,):
            raise ValueError(
                f'repeated: is for a control; expected recipes = ["{self.objective}"], the plain one alone'
            )
        return self


class HeadConfig(Section):
    """What classifiers and taggers share: a new head on a base model, or on a checkpoint of the run."""

    head: ClassVar[Head]

    from_recipes: Annotated[tuple[str, ...] | None, PUBLISHED] = Field(
        default=None,
        min_length=1,
        description='recipes whose checkpoints to start from, "base" for the base model; default: it and all of them',
    )
    from_epochs: tuple[int, ...] | None = Field(
        default=None,
        description="epochs of the checkpoints to start from; default: 8 and 64, if kept, or else the last",
    )
    text: Context = Field(
        default="keep",
        description="what it reads for a direct identifier of a member: the identifier, a surrogate that is drawn anew "
        "in each epoch, or a tag such as [NAME]. Held-out documents are read as they are",
    )
    private: bool = Field(
        default=False, description="DP-SGD by [train.dp], per household where corpus.household_id keeps these together"
    )
    num_epochs: int = Field(default=4, ge=1, le=10_000)
    checkpoint_epochs: tuple[int, ...] = Field(
        default=(), description="epochs of the head whose checkpoints are kept beside the last, where it is saved"
    )
    learning_rate: float = Field(default=2e-5, gt=0)
    warmup_ratio: float = Field(
        default=0.1, ge=0, le=1, description="share of the steps over which the rate rises from 0; then it falls to 0"
    )
    weight_decay: float = Field(default=0.01, ge=0)
    max_grad_norm: float = Field(default=1.0, gt=0)
    batch_size: int = Field(default=16, ge=1, le=1_000_000)
    layers: Literal["last", "all"] = Field(
        default="last",
        description="what is trained with the head: the last layer, or all of them; embeddings of words never are",
    )
    save_model: bool = False
    save_minutes: Annotated[float, of_job("train.save_minutes")] = 10.0
    window_length: Annotated[int, of_job("train.window_length"), Field(ge=1)] = 512
    device: Annotated[str, of_job("train.device"), PUBLISHED] = "auto"
    bf16: Annotated[Bf16, of_job("train.bf16")] = "auto"
    seed: Annotated[int, of_job("seed")] = 0

    @property
    def protects(self) -> bool:
        """Whether the training of the head (a classifier or tagger) protects anyone: by differential privacy, or
        because it reads no identifier.
        """
        return self.private or self.text != "keep"

    def recipe(self, objective: Objective = "mlm") -> Recipe:
        """Return the recipe that trains the head on a base model with this objective."""
        return Recipe(name=self.section, objective=objective, head=self.head, context=self.text, private=self.private)

    def training(self, num_windows: int) -> TrainConfig:
        """Return the training settings of the head, with warm-up steps for an epoch of ``num_windows`` windows."""
        num_steps = self.num_epochs * -(-num_windows // self.batch_size)
        shared = ("num_epochs", "learning_rate", "weight_decay", "max_grad_norm", "batch_size", "save_minutes")
        return TrainConfig(
            **{name: getattr(self, name) for name in (*shared, "window_length", "device", "bf16", "seed")},
            checkpoint_epochs=self.checkpoint_epochs or (self.num_epochs,),
            warmup_steps=math.ceil(self.warmup_ratio * num_steps),
        )

    @model_validator(mode="after")
    def _check_private_text(self) -> Self:
        """Raise `ValueError` for private training on text in which words are replaced."""
        if self.private and self.text != "keep":
            raise ValueError(
                'private: which words are replaced depends on all documents and is not accounted; set text to "keep"'
            )
        return self


class ClassifyConfig(HeadConfig):
    """Classification of documents: the last layer of a checkpoint and a new head are trained.

    The job has this stage only if it has this section.
    """

    section: ClassVar[str] = "classify"
    head: ClassVar[Head] = "class"

    label: str | None = Field(default=None, description="column of the class; default: corpus.label")
    windows: Literal["all", "first"] = Field(
        default="all",
        description="windows of a long document: all, one of them drawn for each epoch, and the mean of their answers; "
        "or the first",
    )
    min_individuals: int | None = Field(
        default=None,
        ge=1,
        description="leave out classes with fewer individuals on a side, or a single member; default: refuse them",
    )

    @model_validator(mode="after")
    def _check_private_classes(self) -> Self:
        """Raise `ValueError` for private training in which rare classes are left out."""
        if self.private and self.min_individuals is not None:
            raise ValueError(
                "private: which classes are left out depends on all members and is not accounted; join rare classes in "
                "the column, and leave min_individuals out"
            )
        return self


class TagConfig(HeadConfig):
    """A tagger of identifiers: it learns where the direct identifiers of members stand, and of which kind they are.

    Their categories are those of the detectors: NAME, DATE, ID and so on. It has to learn what names look like, so they
    cannot be left out of its loss. It reads surrogates by default, which are no individual's.
    The job has this stage only if it has this section.
    """

    section: ClassVar[str] = "tag"
    head: ClassVar[Head] = "tags"

    text: Literal["keep", "surrogate"] = Field(
        default="surrogate",
        description="what it reads for a direct identifier of a member: a surrogate that is drawn anew in each epoch, "
        "or the identifier. Held-out documents are read as they are",
    )
    num_epochs: int = Field(default=8, ge=1, le=10_000)
    learning_rate: float = Field(default=1e-4, gt=0)
    layers: Literal["last", "all"] = Field(
        default="all",
        description="what is trained with the head: the last layer, or all of them; embeddings of words never are",
    )
