"""The table of recipes is PROTOCOLS section 3, row by row; a change of it is a change of the science."""

from __future__ import annotations

import dataclasses

import pytest

from reticent.errors import PolicyError
from reticent.trainer.recipes import RECIPES, get_recipe

TABLE = [
    ("mlm", "mlm", "original", 0),
    ("clm", "clm", "original", 0),
    ("mlma", "mlm", "pseudonymised", 0),
    ("clma", "clm", "pseudonymised", 0),
    ("dppmlm", "mlm", "original", 1),
    ("dppclm", "clm", "original", 1),
    ("ippmlm", "mlm", "original", 2),
    ("ippclm", "clm", "original", 2),
    ("ppmlm", "mlm", "original", 3),
    ("ppclm", "clm", "original", 3),
    ("dp-mlm", "mlm", "original", 0),
    ("dp-clm", "clm", "original", 0),
]


def test_table_of_recipes_is_that_of_the_protocol() -> None:
    rows = [(r.name, r.objective, r.text, r.never_target) for r in RECIPES.values()]
    assert sorted(rows) == sorted(TABLE)


@pytest.mark.parametrize("row", TABLE, ids=[row[0] for row in TABLE])
def test_recipe_is_found_by_its_name(row: tuple[str, str, str, int]) -> None:
    recipe = get_recipe(row[0])
    assert (recipe.name, recipe.objective, recipe.text, recipe.never_target) == row
    assert RECIPES[row[0]] is recipe


@pytest.mark.parametrize("name", ["", "PPMLM", "pp-mlm", "dp-ppmlm", "ppmlm "])
def test_unknown_recipe_is_an_error_that_lists_the_known_ones(name: str) -> None:
    with pytest.raises(PolicyError, match="unknown recipe") as caught:
        get_recipe(name)
    listed = str(caught.value).partition("expected one of ")[2].split(", ")
    assert listed == sorted(row[0] for row in TABLE)


def test_a_recipe_cannot_be_changed_after_it_was_made() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        get_recipe("ppmlm").never_target = 0  # type: ignore[misc]
