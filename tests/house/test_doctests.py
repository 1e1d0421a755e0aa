"""The examples of docstrings give what they say."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = [
    file.relative_to(ROOT)
    for room in ("reticent", "benchmarks", "studies", "tools")
    for file in sorted((ROOT / room).rglob("*.py"))
    if ">>> " in file.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("file", FILES, ids=str)
def test_the_examples_of_a_module_hold(file: Path) -> None:
    module = import_module(".".join(file.with_suffix("").parts).removesuffix(".__init__"))
    assert doctest.testmod(module).failed == 0
    found = sum(len(test.examples) for test in doctest.DocTestFinder().find(module))
    assert found == (ROOT / file).read_text(encoding="utf-8").count(">>> ")
