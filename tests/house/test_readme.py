"""The README's example, read from the README: its job file, its commands and its Python lines work as written.

The pages of docs/ are held to the same by ``test_docs.py``.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import tomllib
from pathlib import Path

import pytest
from fixtures.command import command
from fixtures.pages import ROOT, blocks

from reticent.job.config import parse_job

README = ROOT / "README.md"
TREE = "docs/explanation/architecture.md"
pytestmark = [
    pytest.mark.skipif(not README.exists(), reason="needs the sources"),
    pytest.mark.usefixtures("without_ink"),
]


def test_the_job_file_is_valid() -> None:
    (job,) = map(tomllib.loads, blocks("README.md", "toml"))
    options, training, attacks, private = (
        tomllib.loads(blocks(f"docs/how-to/{page}.md", "toml")[0]) for page in ("detect", "train", "audit", "dp-sgd")
    )
    assert list(parse_job(job).model[0].recipes) == ["mlm", "ppmlm"]
    causal = [{"name": "gpt2", "base": "models/gpt2", "objective": "clm", "recipes": ["ppclm-surrogates", "dp-clm"]}]
    trained = parse_job(
        job | training | {"model": causal, "train": job["train"] | training["train"] | private["train"]}
    )
    assert trained.recipe("ppclm-surrogates").context == "surrogate"
    assert trained.train.dp is not None
    assert trained.train.dp.unit == "individual"
    plain = [{"name": "gpt2", "base": "models/gpt2", "objective": "clm", "recipes": ["clm", "ppclm"]}]
    attacked = parse_job(job | attacks | {"model": plain})
    assert attacked.audit.shadow is not None
    assert attacked.gate[0].attack in attacked.audit.shadow.attacks
    detect = parse_job(job | options).detect
    assert set(detect.detectors) == {"rules", "records", "gazetteer", "spacy"}
    assert {"records", "gazetteer", "spacy"} <= detect.options.keys()


@pytest.mark.heavy
def test_the_commands_run_in_order_and_the_model_loads(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(folder / "run", ignore_errors=True)  # of a page that was tested before
    monkeypatch.chdir(folder)
    (commands,) = (block for block in blocks("README.md", "sh") if "job.toml" in block)
    lines = [shlex.split(line, comments=True) for line in commands.splitlines()]
    assert [line[:2] for line in lines] == [["reticent", "run"], ["reticent", "stats"], *[["reticent", "run"]] * 2]
    for number, line in enumerate(lines):
        assert command(*line[1:]) == 0, line
        if line[1] == "stats":
            found = re.search(r"^documents +([\d,]+)", capsys.readouterr().out, re.MULTILINE)
            assert found
            assert int(found[1].replace(",", "")) > 0
            assert not (folder / "run" / "models").exists()
        if number == 2:
            assert (folder / "run" / "report" / "report.html").exists()
    (python,) = blocks("README.md", "python")
    names: dict[str, object] = {}
    exec(python, names)
    assert type(names["model"]).__name__ == "BertForMaskedLM"


def test_every_room_has_its_line_in_the_tree() -> None:
    tree = next(block for block in blocks(TREE, "text") if block.startswith("reticent/"))
    shown, parents = set(), [""]
    for line in tree.splitlines():
        depth, name = (len(line) - len(line.lstrip())) // 2, line.split()[0]
        parents[depth + 1 :] = [parents[depth] + name]
        shown.add(parents[-1])
    rooms = {
        f"{path.parent.relative_to(ROOT)}/" for path in (ROOT / "reticent").rglob("*.py") if path.parent.name[0] != "_"
    }
    assert rooms <= shown
    assert all((ROOT / name).is_dir() for name in shown)


def test_every_link_leads_to_a_file() -> None:
    names = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md", "studies/README.md")
    for page in map(ROOT.joinpath, names):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if not target.startswith("http"):
                assert os.path.exists(page.parent / target), f"{page.name}: {target}"


def test_the_demo_table_is_the_record() -> None:
    shown = next(block for block in blocks("README.md", "text") if "MIA AUC" in block)
    record = json.loads((ROOT / "benchmarks" / "record" / "demo.json").read_text())
    rows = {line.split()[0]: line for line in shown.splitlines()[2:9]}
    for row in record["table"]:
        line = rows[row["recipe"]] if row["recipe"] != "base" else shown
        for value in (row["utility"], row["utility_all"], row["privacy"]["types"], row["loss_auc"]):
            assert f"{value['value']:.3f}" in line, row["recipe"]


def test_the_pages_of_the_benchmarks_are_those_of_the_records() -> None:
    from tools.pages import pages

    found = list(pages())
    assert len(found) > 30
    assert [path for path, text in found if not path.exists() or path.read_text(encoding="utf-8") != text] == []


def test_a_record_is_a_summary() -> None:
    records = [path for folder in ("benchmarks", "studies") for path in (ROOT / folder / "record").iterdir()]
    assert len(records) > 30
    assert {path.name: path.stat().st_size for path in records if path.stat().st_size > 50_000} == {}
