"""`reticent detect`: over documents, a run folder and a job; what it prints, keeps and refuses."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.command import command
from fixtures.documents import span_lists, write_documents

from reticent.core.artifact import HELD
from reticent.engine.synthetic import SynthConfig, synthesize

SECRET = "Zyxwvut"


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    """Three documents of two individuals: of four gold spans the rules find the two e-mails."""
    texts = [f"{SECRET} mails a@b.org", "b@b.org", "nothing"]
    gold = [[(0, 7, "NAME"), (14, 21, "EMAIL")], [(0, 7, "EMAIL")], [(0, 7, "NAME")]]
    return write_documents(tmp_path / "documents.parquet", texts, ["p", "q", "q"], marks=span_lists(gold))


@dataclass
class Done:
    status: object
    stdout: str
    stderr: str


@pytest.fixture
def reticent(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """The command ``reticent detect``."""

    def run(*arguments: object) -> Done:
        capsys.readouterr()
        status = command("detect", *arguments)
        said = capsys.readouterr()
        return Done(status, said.out, said.err)

    return run


@pytest.fixture
def found(reticent: Callable[..., Done]) -> Callable[..., Any]:
    """Output of ``reticent detect --json``."""

    def run(*arguments: object) -> Any:
        done = reticent(*arguments, "--json", "--quiet")
        assert done.status == 0, done.stderr
        assert SECRET not in done.stdout + done.stderr
        return json.loads(done.stdout)

    return run


def test_spans_are_counted_by_detector_and_category_and_nothing_is_kept(
    documents: Path,
    found: Callable[..., Any],
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor do those stay that a killed command left."""
    before, temporary = sorted(documents.parent.rglob("*")), tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    (temporary / "reticent-detect-killed/run/spans").mkdir(parents=True)
    (temporary / "reticent-detect-killed" / HELD).touch()
    result = found(documents)
    assert result == {"folder": None, "documents": 3, "quarantined": 0, "spans": {"rules": {"EMAIL": 2}}}
    assert sorted(documents.parent.rglob("*")) == before
    assert list(temporary.iterdir()) == []


def test_evaluation_says_which_marks_are_found_and_which_by_no_detector(
    documents: Path, tmp_path: Path, found: Callable[..., Any]
) -> None:
    pq.write_table(pa.table({"individual_id": ["p"], "name": [SECRET]}), tmp_path / "records.parquet")
    result = found(
        documents,
        "--set",
        "corpus.spans=marks",
        "--evaluate",
        "--set",
        f"detect.records.table={tmp_path / 'records.parquet'}",
    )
    assert result["spans"] == {"rules": {"EMAIL": 2}, "records": {"NAME": 1}}
    evaluation = result["evaluation"]
    assert evaluation["union"]["overall"]["strict"]["recall"]["value"] == 0.75
    assert evaluation["union"]["all_found"]["documents"]["value"] == pytest.approx(2 / 3)
    assert evaluation["only"] == {"rules": {"EMAIL": 2}, "records": {"NAME": 1}}
    assert evaluation["missed"] == {"NAME": 1}
    pq.write_table(pa.table({"individual_id": ["p"], "name": ["Nobody"]}), tmp_path / "records.parquet")
    result = found(
        documents,
        "--set",
        "corpus.spans=marks",
        "--evaluate",
        "--set",
        f"detect.records.table={tmp_path / 'records.parquet'}",
    )
    assert result["spans"]["records"] == {}
    assert result["evaluation"]["alone"]["records"]["overall"]["strict"]["recall"]["value"] == 0.0


def test_gold_is_not_measured_against_itself(documents: Path, found: Callable[..., Any]) -> None:
    names = ("--detector", "gold", "--detector", "rules")
    result = found(
        documents, "--set", "corpus.spans=marks", *names, "--evaluate", "--set", "detect.rules.labels=['EMAIL']"
    )
    assert result["spans"] == {"gold": {"EMAIL": 2, "NAME": 2}, "rules": {"EMAIL": 2}}
    assert list(result["evaluation"]["alone"]) == ["rules"]
    assert result["evaluation"]["union"]["overall"]["strict"]["recall"]["value"] == 0.5


def test_spans_are_kept_in_a_run_folder_that_other_commands_go_on_with(
    documents: Path, tmp_path: Path, found: Callable[..., Any], reticent: Callable[..., Done]
) -> None:
    out = tmp_path / "run[a]"  # no markup
    result = found(documents, "--out", out)
    assert result["folder"] == str(out / "spans")
    assert f"Spans: {out / 'spans'}\n" in reticent(out).stdout
    assert pq.read_table(out / "spans" / "spans.parquet").num_rows == 2
    # The same settings from the run folder; then another choice of detectors.
    assert found(out)["spans"] == {"rules": {"EMAIL": 2}}
    done = reticent(out, "--set", "corpus.spans=marks", "--detector", "gold")
    assert "gold 4" in done.stderr
    # Over documents again: the detectors are those of the command, what later stages use stays.
    assert reticent(out, "--set", "protect.k=7").status == 0
    found(documents, "--out", out)
    kept = json.loads((out / "job.json").read_text())
    assert (kept["protect"]["k"], kept["detect"]["detectors"]) == (7, ["rules"])
    job = tmp_path / "job.toml"
    job.write_text(f'out = "{tmp_path / "other"}"\n[corpus]\nsource = "{documents}"\nspans = "marks"\n')
    assert found(job, "--evaluate")["evaluation"]["missed"] == {"NAME": 2}
    assert (tmp_path / "other" / "spans" / "spans.parquet").exists()


def test_a_job_with_canaries_has_them_planted_before_anything_is_looked_for(
    tmp_path: Path, found: Callable[..., Any]
) -> None:
    synthesize(tmp_path, SynthConfig(num_individuals=80, words_per_document=20))
    run, job = tmp_path / "run", tmp_path / "job.toml"
    job.write_text(f'out = "{run}"\ncorpus.source = "{tmp_path / "documents"}"\ncanaries.num = 4\n')
    first = found(job)
    spans = (run / "spans" / "spans.parquet").stat()
    assert (run / "canaries").is_dir()
    assert command("run", job, "--until", "detect", "-q") == 0
    assert (run / "spans" / "spans.parquet").stat() == spans  # the same spans serve the job
    assert found(job) == first


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "SOURCE is missing"),
        (("DOCUMENTS", "--evaluate"), "nothing to evaluate against"),
        (("DOCUMENTS", "--detector", "magic"), r"detect.detectors.0: unknown detector 'magic'; expected gold, rules,"),
        (("DOCUMENTS", "--detector", "records"), "detector records needs detect.records.table"),
        (("DOCUMENTS", "--set", "detect.rules.colour=red"), "detector rules has no option 'colour'"),
    ],
)
def test_impossible_options_are_refused(
    documents: Path, arguments: tuple[str, ...], message: str, reticent: Callable[..., Done]
) -> None:
    done = reticent(*(str(documents) if word == "DOCUMENTS" else word for word in arguments))
    assert done.status == 2
    assert message in done.stderr


def test_rules_are_listed(reticent: Callable[..., Done]) -> None:
    shown = json.loads(reticent("--list-rules", "--json").stdout)
    assert {"EMAIL", "PHONE"} <= {rule["label"] for rule in shown}
    assert all(rule["name"] and rule["finds"] for rule in shown)
    assert "EMAIL" in reticent("--list-rules").stdout
