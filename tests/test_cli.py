"""The command line: help that is quick and complete, exit codes, errors without text of documents."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import reticent

COMMANDS = ("demo", "synth", "run", "index", "protect", "train", "audit", "report", "stats")
SECRET = "Zyxwvut"


def reticent_command(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from reticent.cli import main; main()", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


def write_documents(path: Path, **columns: list[object] | None) -> Path:
    rows = len(next(values for values in columns.values() if values is not None))
    table = {
        "doc_id": [f"d{i}" for i in range(rows)],
        "individual_id": [f"p{i}" for i in range(rows)],
        "text": [f"{SECRET} was seen today." for _ in range(rows)],
        **columns,
    }
    pq.write_table(pa.table({name: values for name, values in table.items() if values is not None}), path)
    return path


def test_help_names_every_command_and_imports_no_torch() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from reticent.cli import app; "
        "result = CliRunner().invoke(app, ['--help']); print(result.output); "
        "heavy = {'torch', 'transformers', 'polars', 'spacy', 'numba', 'sklearn', 'matplotlib', 'pyarrow'}; "
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert all(command in shown for command in COMMANDS)


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, reticent; assert not {'torch', 'numpy', 'pyarrow', 'pydantic'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    result = reticent_command(command, "--help")
    assert result.returncode == 0
    assert "Usage" in result.stdout


def test_help_is_quick() -> None:
    best = min(_seconds("--help") for _ in range(3))
    bare = min(_bare_seconds() for _ in range(3))
    assert best - bare < 0.6  # 0.3 s on a quiet machine; room for a loaded one


def _seconds(*arguments: str) -> float:
    start = time.perf_counter()
    reticent_command(*arguments)
    return time.perf_counter() - start


def _bare_seconds() -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return time.perf_counter() - start


def test_every_public_name_can_be_imported() -> None:
    missing = [name for name in reticent.__all__ if not hasattr(reticent, name)]
    assert reticent.__all__
    assert not missing


def test_unknown_option_is_a_usage_error() -> None:
    assert reticent_command("index", "--no-such-option").returncode == 2


def test_unknown_field_of_a_job_is_refused_with_its_name(tmp_path: Path) -> None:
    job = tmp_path / "job.toml"
    job.write_text('out = "run"\n[corpus]\nsource = "x.parquet"\ncolour = "red"\n')
    result = reticent_command("run", job)
    assert result.returncode == 2
    assert "corpus.colour" in result.stderr
    assert "Traceback" not in result.stderr


def test_job_that_is_not_toml_says_where(tmp_path: Path) -> None:
    job = tmp_path / "job.toml"
    job.write_text("out = \n")
    result = reticent_command("run", job)
    assert result.returncode == 2
    assert "line 1" in result.stderr


def test_missing_column_names_the_columns_there_are(tmp_path: Path) -> None:
    source = write_documents(tmp_path / "d.parquet", text=None, note=["a", "b", "c"], doc_id=["1", "2", "3"])
    result = reticent_command("index", source, "--out", tmp_path / "run")
    assert result.returncode == 1
    assert "text" in result.stderr
    assert "note" in result.stderr
    assert "Traceback" not in result.stderr


def test_blank_individual_is_an_error_with_file_row_and_column_and_no_text(tmp_path: Path) -> None:
    source = write_documents(tmp_path / "d.parquet", individual_id=["a", "b", " ", "c"])
    result = reticent_command("index", source, "--out", tmp_path / "run")
    assert result.returncode == 1
    assert "d.parquet" in result.stderr
    assert "row 3" in result.stderr
    assert "individual_id" in result.stderr
    assert SECRET not in result.stderr


def test_a_folder_that_is_not_a_run_is_left_alone(tmp_path: Path) -> None:
    precious = tmp_path / "run" / "thesis.txt"
    precious.parent.mkdir()
    precious.write_text("two years of work")
    source = write_documents(tmp_path / "d.parquet", doc_id=[str(i) for i in range(9)])
    result = reticent_command("index", source, "--out", precious.parent)
    assert result.returncode == 1
    assert precious.read_text() == "two years of work"
    assert [path.name for path in precious.parent.iterdir()] == ["thesis.txt"]


def test_index_is_not_run_again_when_nothing_changed(tmp_path: Path) -> None:
    source = write_documents(
        tmp_path / "d.parquet", individual_id=[f"p{i}" for i in range(40)], doc_id=[str(i) for i in range(40)]
    )
    first = reticent_command("index", source, "--out", tmp_path / "run", "--json")
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout)["index"]["words"] == 4
    again = reticent_command("index", source, "--out", tmp_path / "run")
    assert "index: up to date" in again.stderr


def test_bad_input_leaves_an_earlier_result_as_it_was(tmp_path: Path) -> None:
    source = write_documents(
        tmp_path / "d.parquet", individual_id=[f"p{i}" for i in range(40)], doc_id=[str(i) for i in range(40)]
    )
    assert reticent_command("index", source, "--out", tmp_path / "run").returncode == 0
    before = {p: p.read_bytes() for p in (tmp_path / "run" / "index").iterdir()}
    write_documents(source, individual_id=["a", None, "b"])
    assert reticent_command("index", source, "--out", tmp_path / "run").returncode == 1
    assert before == {p: p.read_bytes() for p in (tmp_path / "run" / "index").iterdir()}


def test_set_needs_a_known_field() -> None:
    result = reticent_command("run", "missing.toml", "--set", "protect.k")
    assert result.returncode == 2
