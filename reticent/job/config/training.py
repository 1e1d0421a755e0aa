"""Sections on models: what is trained, how, and what is trained on top of it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, FieldSerializationInfo, field_serializer, model_validator

from reticent.core.names import require_name
from reticent.job.config.section import Section

if TYPE_CHECKING:
    from reticent.trainer.config import TrainConfig

__all__ = [
    "ClassifySection",
    "DpSection",
    "FoundationSection",
    "LoraSection",
    "ModelSection",
    "RecipeSection",
    "TrainSection",
]


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
    bf16: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="bfloat16 in training and in the audit's scores; auto: on CUDA. It pays on a CPU with AMX too",
    )
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

    def cache_key(self, *, private: bool = False) -> dict[str, Any]:
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

    name: Annotated[str, AfterValidator(lambda name: require_name(name, "model.name"))]
    base: str | None = Field(default=None, description="local folder or hub name")
    foundation: FoundationSection | None = None
    objective: Literal["mlm", "clm"]
    recipes: list[str] = Field(min_length=1)
    train: TrainSection | None = Field(default=None, description="what differs from the job's [train] for this model")

    @field_serializer("train")
    def _what_differs(self, train: TrainSection | None, info: FieldSerializationInfo) -> dict[str, Any] | None:
        """Only what the model says: a default that is read back would be taken for a difference."""
        return None if train is None else train.model_dump(mode=str(info.mode), exclude_unset=True)

    @model_validator(mode="after")
    def _consistent(self) -> ModelSection:
        if (self.base is None) == (self.foundation is None):
            raise ValueError("give either base or foundation")
        if len(set(self.recipes)) != len(self.recipes):
            raise ValueError("a recipe stands twice")
        return self


class ClassifySection(Section):
    """Documents classified on top of checkpoints, their last layer and a head trained ([@boutet2025] §5.5): a stage
    only where the job has this section. Window length and device are those of ``[train]``.
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
