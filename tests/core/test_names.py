"""Names that become folders: one rule, for models, recipes and what `probe` writes."""

from __future__ import annotations

from typing import Any

import pytest

from reticent.core.errors import PolicyError
from reticent.core.names import MAX_LENGTH, require_distinct, require_name
from reticent.job.config import parse_job

BAD = (".", "..", "", "../x", "a/b", "/a", ".hidden", "a b", "a\0b", "a\n", "é", "a\\b", "~", "a" * (MAX_LENGTH + 1))
VALID: dict[str, Any] = {"out": "run", "corpus": {"source": "x"}}
MODEL: dict[str, Any] = {"name": "a", "base": "b", "objective": "clm", "recipes": ["clm"]}


@pytest.mark.parametrize("name", BAD)
def test_a_name_that_is_no_folder_of_its_own_is_refused(name: str) -> None:
    with pytest.raises(PolicyError, match=r"^model\.name: a name is of letters.*begins with no dot"):
        require_name(name, "model.name")
    for values in ({"model": [{**MODEL, "name": name}]}, {"recipes": {name: {"base": "clm"}}}):
        with pytest.raises(PolicyError):
            parse_job({**VALID, **values})


@pytest.mark.parametrize("name", ["a", "bert-base.v2", "_x", "7", "a" * MAX_LENGTH, "a..b"])
def test_every_other_name_is_taken(name: str) -> None:
    assert parse_job({**VALID, "model": [{**MODEL, "name": name}]}).model[0].name == name


def test_names_that_one_file_system_takes_for_the_same_are_refused() -> None:
    with pytest.raises(PolicyError, match=r"two models have names that differ by case alone, a and A"):
        parse_job({**VALID, "model": [MODEL, {**MODEL, "name": "A"}]})
    with pytest.raises(PolicyError, match=r"two recipes have names that differ by case alone, ppclm and PPclm"):
        parse_job({**VALID, "recipes": {"PPclm": {"base": "clm"}}})
    require_distinct(["a", "b"], "models")
