"""Recipes: every training variant as one row of data (PROTOCOLS §3, seed 1 §5.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from reticent.engine.schema import DIRECT, INDIRECT
from reticent.errors import PolicyError

__all__ = ["RECIPES", "Objective", "Recipe", "get_recipe"]

Objective = Literal["mlm", "clm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What a model is trained to predict, on which text, and what is never a target.

    Parameters
    ----------
    objective : {"mlm", "clm"}
        Masked or causal language modelling.
    text : {"original", "pseudonymised"}
        Pseudonymised text has ``X`` for each direct word; X stays in the loss.
    never_target : int
        Flag bits (`DIRECT`, `INDIRECT`) of tokens that are context only.
    private : bool
        Trained by DP-SGD.
    """

    name: str
    objective: Objective
    text: Literal["original", "pseudonymised"] = "original"
    never_target: int = 0
    private: bool = False


def _pair(prefix: str, suffix: str, **more: object) -> list[Recipe]:
    return [Recipe(name=f"{prefix}{o}{suffix}", objective=o, **more) for o in ("mlm", "clm")]  # type: ignore[arg-type]


#: All recipes by name.
RECIPES: Mapping[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        *_pair("", ""),
        *_pair("", "a", text="pseudonymised"),
        *_pair("dpp", "", never_target=DIRECT),
        *_pair("ipp", "", never_target=INDIRECT),
        *_pair("pp", "", never_target=DIRECT | INDIRECT),
        *_pair("dp-", "", private=True),
    )
}


def get_recipe(name: str) -> Recipe:
    """Return a recipe by name; `PolicyError` lists the known ones."""
    try:
        return RECIPES[name]
    except KeyError:
        raise PolicyError(f"unknown recipe {name!r}; expected one of {', '.join(sorted(RECIPES))}") from None
