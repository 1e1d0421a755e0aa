"""The sections of the job itself: the models that it trains, with their recipes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, FieldSerializationInfo, field_serializer, model_validator

from reticent.core.names import require_name
from reticent.core.section import Section
from reticent.trainer.config import FoundationConfig, TrainConfig

__all__ = ["ModelSection"]


class ModelSection(Section):
    """One base model and the recipes it is fine-tuned with."""

    name: Annotated[str, AfterValidator(lambda name: require_name(name, "model.name"))]
    base: str | None = Field(default=None, description="local folder or hub name")
    foundation: FoundationConfig | None = None
    objective: Literal["mlm", "clm"]
    recipes: tuple[str, ...] = Field(min_length=1)
    train: TrainConfig | None = Field(default=None, description="settings in which this model differs from [train]")

    @field_serializer("train")
    def _what_differs(self, train: TrainConfig | None, info: FieldSerializationInfo) -> dict[str, Any] | None:
        """Dump only the fields that the model sets: a default that is read back would be taken for a difference."""
        return None if train is None else train.model_dump(mode=str(info.mode), exclude_unset=True)

    @model_validator(mode="after")
    def _consistent(self) -> ModelSection:
        if (self.base is None) == (self.foundation is None):
            raise ValueError("give either base or foundation")
        if len(set(self.recipes)) != len(self.recipes):
            raise ValueError("a recipe is listed twice")
        return self
