"""The recipes of CONTRIBUTING.md, followed to the letter in a copy of the package, to the end of a run.

A recipe is sentences and blocks: "Write `FILE`:" makes a file; "In `FILE`, above the line `START`, write:" puts a block
above the one line that begins so, "below" puts it below; "In `FILE`, as a row of `TABLE`, write:" puts it first in a
table; "A job asks for it:" is a part of a job, of one of its own where it names another source.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from fixtures.forks import Forks
from fixtures.models import toy_model, toy_tokenizer
from fixtures.pages import ROOT

from reticent.engine.synthetic import SynthConfig, synthesize
from reticent.trainer.export import write_model
from reticent.trainer.models import load_tokenizer
from reticent.trainer.recipes import get_recipe

PAGE = ROOT / "CONTRIBUTING.md"
#: The recipe that needs a new build of the core.
NATIONAL_ID = "A national id with a new label"
pytestmark = [pytest.mark.skipif(not PAGE.exists(), reason="needs the sources"), pytest.mark.heavy]
STEP = re.compile(r"^([^\n`#][^\n]*(?:\n[^\n`#][^\n]*)*:)\n\n```(\w+)\n(.*?)```", re.MULTILINE | re.DOTALL)
WRITE = re.compile(r"Write `([^`]+)`:$")
BESIDE = re.compile(r"In `([^`]+)`, (above|below) the line `([^`]+)`, write:$")
ROW = re.compile(r"In `([^`]+)`, as a row of `([^`]+)`, write:$")
JOB = {
    "out": "run",
    "model": [
        {"name": "bert", "base": "models/bert", "objective": "mlm", "recipes": ["mlm", "ppmlm", "late"]},
        {"name": "gpt2", "base": "models/gpt2", "objective": "clm", "recipes": ["clm"]},
    ],
    "train": {"num_epochs": 1, "window_length": 32, "device": "cpu"},
    "audit": {"num_bootstrap": 100},
}


def recipes() -> dict[str, str]:
    """The recipes by heading."""
    text = PAGE.read_text(encoding="utf-8").partition("## Recipes\n")[2]
    return dict(re.findall(r"^### ([^\n]+)\n(.*?)(?=^### |\Z)", text, re.MULTILINE | re.DOTALL))


def steps(recipe: str) -> Iterator[tuple[str, str, str]]:
    """Yield (sentence, language, block) in the order of the page."""
    yield from STEP.findall(recipe)


def put_beside(text: str, start: str, block: str, *, below: bool) -> str:
    lines = text.splitlines(keepends=True)
    (at,) = (number + below for number, line in enumerate(lines) if line.startswith(start))
    return "".join([*lines[:at], block, *lines[at:]])


def put_row(text: str, table: str, block: str) -> str:
    """Put a row above the first one of a table, as deep as that is."""
    lines = text.splitlines(keepends=True)
    (begin,) = (number for number, line in enumerate(lines) if re.match(rf"(?:pub const )?{table}\b[^=]*=", line))
    kind = re.match(r"\w+\(", block)
    assert kind
    at = next(n for n, line in enumerate(lines) if n > begin and line.lstrip().startswith(kind[0]))
    indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
    return "".join([*lines[:at], textwrap.indent(block.rstrip() + ",\n", indent), *lines[at:]])


def follow(recipe: str, package: Path) -> tuple[dict[str, Any], str]:
    """Do what a recipe says; returns its part of a job, and the program that it shows at its end."""
    job: dict[str, Any] = {}
    program = ""
    edits = 0
    for sentence, language, block in steps(recipe):
        if found := WRITE.search(sentence):
            path = package / found[1]
            assert not path.exists()
            path.parent.mkdir(exist_ok=True)
            path.write_text(block, encoding="utf-8")
        elif found := BESIDE.search(sentence):
            path = package / found[1]
            text = put_beside(path.read_text(encoding="utf-8"), found[3], block, below=found[2] == "below")
            path.write_text(text, encoding="utf-8")
        elif found := ROW.search(sentence):
            path = package / found[1]
            path.write_text(put_row(path.read_text(encoding="utf-8"), found[2], block), encoding="utf-8")
        elif language == "python":
            program = block
        else:
            assert language == "toml"
            job |= tomllib.loads(block)
        edits += 1
    assert edits >= 2
    return job, program


def toml(values: dict[str, Any], where: str = "") -> str:
    """Return values as TOML: plain ones first, then tables."""
    plain = [f"{key} = {json.dumps(value)}\n" for key, value in values.items() if not _is_table(value)]
    parts = [f"[{where}]\n" if where else "", *plain]
    for key, value in values.items():
        name = f"{where}.{key}".lstrip(".")
        if isinstance(value, dict):
            parts.append(toml(value, name))
        elif _is_table(value):
            parts += [f"[[{name}]]\n" + toml(each) for each in value]
    return "".join(parts)


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and bool(value) and isinstance(value[0], dict))


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the package, documents in several forms, and a base model.

    Bytecode and compiled kernels come along: both go by the time of their source, so a changed file is compiled anew.
    """
    desk = tmp_path_factory.mktemp("desk")
    shutil.copytree(ROOT / "reticent", desk / "code" / "reticent")
    synthesize(desk, SynthConfig(num_individuals=30, languages=("en",), words_per_document=40))
    notes = pl.read_parquet(desk / "documents" / "*.parquet").select("doc_id", "individual_id", "text")
    notes = notes.with_columns(
        pl.col("text").str.replace_all(r"\s+", " ") + " Seen by C-" + pl.col("doc_id").hash().cast(str)
    )
    notes.write_parquet(desk / "notes.parquet")
    lines = ("|".join(row) for row in notes.iter_rows())
    (desk / "notes.bars").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    with sqlite3.connect(desk / "notes.db") as connection:
        connection.execute("CREATE TABLE notes (doc_id TEXT, individual_id TEXT, text TEXT)")
        connection.executemany("INSERT INTO notes VALUES (?, ?, ?)", notes.iter_rows())
    connection.close()
    for name, recipe in (("bert", "mlm"), ("gpt2", "clm")):
        network, tokenizer = toy_model(name, hidden_size=8), load_tokenizer(toy_tokenizer(name))
        write_model(network, tokenizer, desk / "models" / name, recipe=get_recipe(recipe), epoch=0)
    return desk


def test_recipes_are_those_that_the_page_promises() -> None:
    wanted = {
        "An attack on membership",
        "An attack that asks the model",
        "A gate",
        "A number beside the verdict",
        "A recipe with a new field",
        "A sibling in `ext/`",
        "A plot of the report",
        "A detector",
        NATIONAL_ID,
        "A format of files",
        "A source that a job can name",
    }
    assert wanted <= set(recipes())


def test_every_recipe_works_when_it_is_followed_to_the_letter(desk: Path, forks: Forks) -> None:
    code = desk / "code"
    job: dict[str, Any] = {"corpus": {"source": "notes.parquet"}, **JOB}
    for heading, recipe in recipes().items():
        if heading == NATIONAL_ID:
            continue
        part, program = follow(recipe, code)
        assert not program
        if heading == "A source that a job can name":
            (desk / "source.toml").write_text(toml({"out": "of-source", **part}), encoding="utf-8")
            continue
        job |= {key: {**job.get(key, {}), **value} if isinstance(value, dict) else value for key, value in part.items()}
    (desk / "job.toml").write_text(toml(job), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(code)}

    def python(program: str, *arguments: str, module: bool = False) -> str:
        run = forks.run(program, *arguments, module=module, cwd=desk, environment=environment)
        assert run.returncode == 0, run.stderr
        return run.stdout

    python("reticent", "run", "job.toml", module=True)
    report = json.loads((desk / "run" / "report" / "report.json").read_text())
    trained = next(model for model in report["models"] if model["recipe"] == "mlm")
    assert {"loss", "max_loss"} <= set(trained["membership"])
    assert trained["membership"]["max_loss"]["auc"]["value"] is not None
    page = (desk / "run" / "report" / "report.html").read_text(encoding="utf-8")
    assert "Largest loss" in page
    assert "How many are predicted" in page
    assert trained["beside"]["entropy_gap"]["gap"]["value"] is not None
    assert "entropy gap, held-out people less members" in page
    assert "Identifiers predicted, Masked (BERT-like). " in page
    (asked,) = (model for model in report["models"] if model["recipe"] == "clm")
    assert asked["membership"]["shuffled"]["auc"]["value"] is not None
    assert "shuffled" not in trained["membership"]
    assert "Shuffled beginning" in page
    late = next(model for model in report["models"] if model["recipe"] == "late")
    assert 0 < late["ledger"]["targets"] < trained["ledger"]["targets"]
    assert report["regulars"]["num_documents"] == 2
    owned = pl.read_parquet(desk / "notes.parquet")["individual_id"].value_counts()["count"]
    assert report["regulars"]["num_individuals"] == (owned >= 2).sum()
    judged = report["verdict"]["results"]
    assert [row["recipe"] for row in judged] == ["ppmlm", "late"]
    assert {row["measure"] for row in judged} == {"low_cost_recall"}
    assert {row["outcome"] for row in judged} <= {"pass", "no power"}
    spans = pl.read_parquet(desk / "run" / "spans" / "*.parquet")
    num_documents = pl.read_parquet(desk / "notes.parquet").height
    assert spans.filter(pl.col("detector") == "badge").height == num_documents
    python("reticent", "detect", "source.toml", module=True)
    read = pl.read_parquet(desk / "of-source" / "corpus" / "*.parquet")
    assert read.sort("doc_id").equals(pl.read_parquet(desk / "notes.parquet").sort("doc_id"))


def test_a_national_id_is_a_row_of_the_rules_and_a_row_of_the_labels(tmp_path: Path) -> None:
    files = ["rust_ext/src/rules/numbers.rs", "reticent/engine/detect/labels.py"]
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True)
        shutil.copy(ROOT / file, tmp_path / file)
    _, program = follow(recipes()[NATIONAL_ID], tmp_path)
    assert "RulesDetector" in program
    rules, labels = ((tmp_path / file).read_text(encoding="utf-8") for file in files)
    assert re.search(r'RULES: &\[Rule\] = &\[\n    rule\(\n        "nif",\n        "NIF",', rules)
    names: dict[str, Any] = {"__name__": "labels"}
    exec(compile(labels, "labels.py", "exec"), names)
    assert names["category"]("NIF") == "ID"


@pytest.mark.slow
def test_a_national_id_is_found_by_a_core_that_is_built_with_it(tmp_path: Path, forks: Forks) -> None:
    for folder in ("reticent", "rust_ext"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    for file in ("Cargo.toml", "Cargo.lock"):
        shutil.copy(ROOT / file, tmp_path / file)
    _, program = follow(recipes()[NATIONAL_ID], tmp_path)
    target = tmp_path / "target"  # not a folder that CARGO_TARGET_DIR names, whose core this one would replace
    cargo = {**os.environ, "CARGO_TARGET_DIR": str(target)}
    subprocess.run(["cargo", "build", "--release", "--locked"], cwd=tmp_path, env=cargo, check=True)
    shutil.copy(target / "release" / "lib_rust.so", tmp_path / "reticent" / "_rust.abi3.so")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    run = forks.run(program + "\nprint(spans.to_pylist())", cwd=tmp_path, environment=environment)
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("'NIF'") == 1, run.stdout
    assert "'start': 5, 'end': 14" in run.stdout


def test_the_attack_of_the_page_scores_documents() -> None:
    from reticent.audit.scoring.token_scores import TokenScores

    code = next(block for _, _, block in steps(recipes()["An attack on membership"]) if "def max_loss_score" in block)
    names: dict[str, Any] = {"np": np, "TokenScores": TokenScores, "Any": Any}
    exec(code, names)
    log_probs = np.array([-1, -7, np.nan, -2, np.nan], dtype=np.float32)
    argmax = np.where(np.isnan(log_probs), -1, 0)
    scores = TokenScores(log_probs, log_probs, log_probs, argmax, argmax, np.array([0, 3, 4, 5]))
    assert names["max_loss_score"](scores, None, None).tolist()[:2] == [-7, -2]
    assert np.isnan(names["max_loss_score"](scores, None, None)[2])
