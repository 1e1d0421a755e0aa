"""A run with nothing to do: what it loads, and that it reads no document."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reticent.core import artifact as verified
from reticent.core.errors import ArtifactError
from reticent.job.config import parse_job
from reticent.job.pipeline import execute
from reticent.job.run import Run


@pytest.fixture
def values(tmp_path: Path) -> dict[str, Any]:
    """A job up to the index, with every detector that needs no library."""
    ids = [f"{number}" for number in range(20)]
    (tmp_path / "notes").mkdir()
    texts = [f"Mr. Lefort was seen in Lyon word{number}" for number in range(20)]
    pq.write_table(pa.table({"doc_id": ids, "individual_id": ids, "text": texts}), tmp_path / "notes" / "a.parquet")
    pq.write_table(pa.table({"individual_id": ids, "last_name": ["Lefort"] * 20}), tmp_path / "records.parquet")
    (tmp_path / "cities.txt").write_text("Lyon\n")
    return {
        "out": str(tmp_path / "run"),
        "corpus": {"source": str(tmp_path / "notes")},
        "detect": {
            "detectors": ["rules", "records", "gazetteer", "shipped"],
            "records": {"table": str(tmp_path / "records.parquet")},
            "gazetteer": {"lists": {"CITY": str(tmp_path / "cities.txt")}},
        },
    }


def test_a_run_with_nothing_to_do_loads_nothing_that_only_work_needs(values: dict[str, Any], tmp_path: Path) -> None:
    """Each of these takes a tenth of a second to several seconds of a start, which may take one."""
    execute(Run(parse_job(values)), "index")
    code = (
        "import json, sys; from reticent.job.config import parse_job; "
        "from reticent.job.pipeline import execute; from reticent.job.run import Run; "
        "run = Run(parse_job(json.load(open(sys.argv[1])))); execute(run, 'index'); "
        "print(*sorted({'torch', 'transformers', 'scipy', 'matplotlib', 'numba', 'tokenizers', 'polars'} "
        "& set(sys.modules)))"
    )
    (tmp_path / "job.json").write_text(json.dumps(values))
    command = [sys.executable, "-c", code, tmp_path / "job.json"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert shown.stdout == "\n"


@pytest.mark.parametrize(
    ("module", "heavy"), [("reticent.job.parts", "regex"), ("reticent.cli.runs", "regex"), ("reticent.spark", "rich")]
)
def test_stages_and_workers_of_spark_load_no_library_for_what_they_may_never_do(module: str, heavy: str) -> None:
    code = f"import sys, {module}; print({heavy!r} in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "False\n"


def test_documents_that_have_not_changed_are_not_read(values: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verified, "LARGE", 0)
    time.sleep(1.5 * verified.SETTLED)
    execute(Run(parse_job(values)), "index")
    time.sleep(1.5 * verified.SETTLED)
    hashed: list[str] = []
    file_digest = hashlib.file_digest
    monkeypatch.setattr(
        hashlib, "file_digest", lambda file, kind: hashed.append(Path(file.name).name) or file_digest(file, kind)
    )
    execute(Run(parse_job(values)), "index")
    assert "a.parquet" not in hashed
    execute(Run(parse_job(values), reread=True), "index")
    assert "a.parquet" in hashed


def test_a_verified_run_reads_the_results_too_that_none_of_its_stages_asks_for(values: dict[str, Any]) -> None:
    execute(Run(parse_job(values)), "index")
    folder = Path(values["out"]) / "text-samples" / "bert" / "index"
    with verified.write_artifact(folder, kind="text-sample", config={}, inputs={}) as writer:
        (writer.path / "sample").write_bytes(b"0")
    execute(Run(parse_job(values), reread=True), "index")
    (folder / "sample").write_bytes(b"1")
    execute(Run(parse_job(values)), "index")
    with pytest.raises(ArtifactError, match="text-samples/bert/index/sample: changed since it was written"):
        execute(Run(parse_job(values), reread=True), "index")
