"""The public API: one table of names, each with its type for a user's type checker, and cheap to import."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import reticent

PACKAGE = Path(reticent.__file__).parent

#: A user's module that type checks.
GOOD = """
import numpy as np
import reticent

frame = {"doc_id": ["a", "b"], "individual_id": ["c", "d"], "text": ["e", "f"]}
reticent.build_index(frame, reticent.split_individuals(frame))
corpus: reticent.Corpus = reticent.open_corpus("notes.parquet", columns=reticent.Columns(text="note"), ids="fold")
individuals = reticent.split_individuals(corpus, reticent.SplitConfig(heldout=0.4))
index = reticent.build_index(corpus, individuals, config=reticent.IndexConfig(max_n=3))
number: int = index.num_units + index.support("fever") + index["high fever"]
policy = reticent.Policy(k=2, n=3)
recipe: reticent.Recipe = reticent.get_recipe("ppclm")
try:
    job: reticent.Job = reticent.load_job("job.toml")
except (reticent.PolicyError, reticent.ReticentError):
    raise
"""
#: One mistake a line, and the error that mypy calls it.
MISTAKES = {
    'reticent.open_corpu("notes.parquet")': "attr-defined",
    'reticent.open_corpus("notes.parquet", column=reticent.Columns())': "call-arg",
    "reticent.open_corpus(3)": "arg-type",
    'reticent.open_corpus("notes.parquet", ids="join")': "arg-type",
    'reticent.Columns("doc")': "call-arg",
    'reticent.IndexConfig(max_n="3")': "arg-type",
    'reticent.build_index("notes.parquet", None)': "arg-type",
    "reticent.get_recipe(1)": "arg-type",
    'text: str = reticent.get_recipe("ppclm")': "assignment",
}


def exports_of_type_checkers() -> dict[str, str]:
    """Name -> module, of the imports that type checkers alone see."""
    found = {}
    for node in ast.parse(Path(reticent.__file__).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name):
            for line in node.body:
                assert isinstance(line, ast.ImportFrom)
                for alias in line.names:
                    if alias.asname:  # exported: imported as itself
                        assert alias.asname == alias.name
                        found[alias.name] = str(line.module)
    return found


def test_type_checkers_and_the_interpreter_find_the_same_names_in_the_same_modules() -> None:
    table = {name: f"reticent.{module}" for name, module in reticent._EXPORTS.items()}
    assert len(table) > 30
    assert exports_of_type_checkers() == table
    assert list(table) == sorted(table)
    assert set(dir(reticent)) == {"__version__", *table}


def test_every_public_function_has_a_type_for_each_parameter_and_a_docstring() -> None:
    checked = 0
    for name, module in reticent._EXPORTS.items():
        value = getattr(reticent, name)
        assert value is getattr(importlib.import_module(f"reticent.{module}"), name)
        if inspect.isfunction(value) or inspect.isclass(value):
            assert (value.__doc__ or "").strip(), name
            assert value.__module__.startswith("reticent."), name
        if inspect.isfunction(value):
            parameters = inspect.signature(value).parameters
            assert {*parameters, "return"} == set(value.__annotations__), name
            checked += 1
    assert checked > 15


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'open_corpu'"):
        reticent.open_corpu  # noqa: B018


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's virtual environment where Reticent is installed, with what its types speak of."""
    pytest.importorskip("mypy")
    folder = tmp_path_factory.mktemp("user") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = (folder / "lib").glob("python*/site-packages")
    (packages / "reticent").symlink_to(PACKAGE)
    for name in ("numpy", "pydantic", "pydantic_core", "annotated_types", "typing_extensions.py", "typing_inspection"):
        (packages / name).symlink_to(Path(sysconfig.get_paths()["purelib"]) / name)
    return folder / "bin" / "python"


@pytest.mark.heavy
def test_types_of_the_package_reach_a_user_who_checks_strictly(interpreter: Path, tmp_path: Path) -> None:
    mistakes = "".join(f"{line}\n" for line in MISTAKES)
    (tmp_path / "good.py").write_text(GOOD, encoding="utf-8")
    (tmp_path / "mistakes.py").write_text(f"import reticent\n{mistakes}", encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", interpreter, "--no-error-summary"]
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MYPYPATH")}
    checked = subprocess.run(
        [*command, "--cache-dir", tmp_path / "cache", "good.py", "mistakes.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    found = checked.stdout.splitlines()
    assert [line for line in found if not line.startswith("mistakes.py:")] == [], checked.stderr
    errors = {(int(line.split(":")[1]), line.rsplit("[", 1)[-1].rstrip("]")) for line in found if ": error:" in line}
    assert errors == set(enumerate(MISTAKES.values(), start=2))
