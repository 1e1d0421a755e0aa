"""The table of recipes is definitions.md#training, row by row; a change of it is a change of the science."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from reticent.core.errors import PolicyError
from reticent.job.config import parse_job
from reticent.trainer.recipes import RECIPES, custom_recipe, get_recipe

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
    ("ippmlm-surrogate", "mlm", "original", 2),
    ("ippclm-surrogate", "clm", "original", 2),
    ("ppmlm-surrogate", "mlm", "original", 3),
    ("ppclm-surrogate", "clm", "original", 3),
    ("dp-mlm", "mlm", "original", 0),
    ("dp-clm", "clm", "original", 0),
    ("dp-mlm-public", "mlm", "original", 3),
    ("dp-clm-public", "clm", "original", 3),
    ("private-mlm", "mlm", "original", 3),
    ("private-clm", "clm", "original", 3),
    ("goldfish", "clm", "original", 0),
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


@pytest.mark.parametrize(
    ("changes", "protected", "tokens"),
    [
        ({}, 3, "train"),
        ({"never_target": ["indirect"]}, 2, "train"),
        ({"never_target": [], "context": "tag"}, 1, "train-tag"),
        ({"never_target": ["indirect"], "context": "surrogate"}, 3, "train"),
        ({"never_target": ["direct"], "context_indirect": "surrogate"}, 3, "train"),
        ({"never_target": [], "context_indirect": "tag"}, 2, "train"),
        ({"never_target": [], "goldfish_k": 3}, 4, "train"),
        ({"never_target": [], "text": "pseudonymised"}, 0, "train-pseudonymised"),
        ({"freeze_embeddings": True, "private": True}, 3, "train"),
    ],
)
def test_a_custom_recipe_is_its_base_with_other_fields(changes: dict[str, Any], protected: int, tokens: str) -> None:
    recipe = custom_recipe("mine", "ppclm", changes)
    assert (recipe.name, recipe.objective, recipe.protected_flags, recipe.tokens) == ("mine", "clm", protected, tokens)
    assert all(getattr(recipe, name) == value for name, value in changes.items() if name != "never_target")


@pytest.mark.parametrize(
    ("name", "base", "changes", "says"),
    [
        ("ppclm", "clm", {}, "there already"),
        ("base", "clm", {}, "there already"),
        ("mine", "ppcml", {}, "unknown recipe 'ppcml'"),
        ("mine", "clm", {"contxt": "tag"}, "recipes.mine.contxt: unknown field"),
        ("mine", "clm", {"name": "other"}, "unknown field"),
        ("mine", "clm", {"never_target": ["names"]}, "got 'names'"),
        ("mine", "clm", {"context": "hide"}, "keep, surrogate or tag"),
        ("mine", "clm", {"context_indirect": "hide"}, "context_indirect: expected keep, surrogate or tag"),
        ("mine", "clma", {"context": "tag"}, "X already"),
        ("mine", "mlm", {"goldfish_k": 4}, "is one of clm"),
        ("mine", "goldfish", {"goldfish_k": 1}, "at least 2"),
        ("mine", "goldfish", {"goldfish_h": 0}, "at least 1"),
        ("mine", "mlm", {"mask_split": [0.8, 0.1]}, "three shares"),
        ("mine", "mlm", {"mask_split": [0.8, 0.1, 0.2]}, "add up to 1"),
        ("mine", "clm", {"mask_split": [0.8, 0.1, 0.1]}, "clm masks no word"),
    ],
)
def test_a_wrong_custom_recipe_is_refused(name: str, base: str, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(PolicyError, match=re.escape(says)):
        custom_recipe(name, base, changes)


JOB = {"out": "x", "corpus": {"source": "y"}}
MODEL = {"name": "m", "base": "b", "objective": "clm"}


def test_a_job_trains_with_recipes_of_its_own() -> None:
    job = parse_job(
        {
            **JOB,
            "model": [{**MODEL, "recipes": ["clm", "mine"]}],
            "recipes": {"mine": {"base": "ppclm", "context": "tag"}},
        }
    )
    assert job.recipe("mine") == custom_recipe("mine", "ppclm", {"context": "tag"})
    assert job.recipe("clm") is RECIPES["clm"]
    assert parse_job(json.loads(job.model_dump_json())).recipe("mine") == job.recipe("mine")


@pytest.mark.parametrize(
    ("recipes", "own", "says"),
    [
        (["yours"], {"mine": {"base": "clm"}}, "unknown recipe 'yours'; expected one of clm, clma"),
        (["mine"], {"mine": {"base": "mlm"}}, "recipe mine is mlm, the objective is clm"),
        (["clm"], {"clm": {"base": "mlm"}}, "there already"),
        (["clm"], {"a/b": {"base": "clm"}}, "100 characters, as it becomes the name of a folder; got 'a/b'"),
        (["clm"], {"..": {"base": "clm"}}, "100 characters, as it becomes the name of a folder; got '..'"),
        (["clm"], {"mine": {}}, "recipes.mine.base"),
        (["clm"], {"mine": {"base": "clm", "contxt": "tag"}}, "recipes.mine.contxt: unknown field"),
        (["clm"], {"mine": {"base": "clm", "never_target": ["names"]}}, "recipes.mine.never_target"),
        (["clm"], {"mine": {"base": "clm", "goldfish_k": "four"}}, "recipes.mine.goldfish_k"),
    ],
)
def test_a_job_with_a_wrong_recipe_is_refused(recipes: list[str], own: dict[str, Any], says: str) -> None:
    with pytest.raises(PolicyError, match=re.escape(says)):
        parse_job({**JOB, "model": [{**MODEL, "recipes": recipes}], "recipes": own})
