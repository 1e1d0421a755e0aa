"""``reticent bench``: every row counts the same documents, and nothing of their text is in the result."""

from __future__ import annotations

import json
import stat
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.command import command
from fixtures.models import toy_model, toy_tokenizer

from reticent.ext.bench import model as bench_model
from reticent.trainer.models import load_tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")

SECRET = "Zyxwvut"
TEXT = f"the patient {SECRET} was seen today and is at home"
STAGES = ["reading", "detection (rules)", "index of n = 1..2"]
BESIDE = ["wc -w", *(["Polars, reading all of it"] if find_spec("polars") else [])]
OF_MODEL = ["words and tokens, written", "tokenizers, ids alone", "scoring, clm, on cpu", "training, clm, on cpu"]


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    ids = [f"d{number}" for number in range(30)]
    people = [f"p{number // 2}" for number in range(30)]
    pq.write_table(pa.table({"doc_id": ids, "individual_id": people, "text": [TEXT] * 30}), tmp_path / "n.parquet")
    return tmp_path / "n.parquet"


def test_the_stages_and_what_is_beside_them_are_timed_on_the_first_documents(
    notes: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "result.json"
    assert command("bench", notes, "--documents", "20", "--set", "index.max_n=2", "--out", out, "--quiet") == 0
    done = capfd.readouterr()
    result = json.loads(out.read_text())
    assert (result["documents"], result["individuals"], result["text_bytes"]) == (20, 10, 20 * len(TEXT))
    assert {row["what"]: row["text_bytes"] // len(TEXT) for row in result["rows"]} == {
        **dict.fromkeys((*STAGES, "wc -w"), 20),
        **dict.fromkeys(BESIDE[1:], 30),
    }
    assert all(row["seconds"] > 0 <= row["cpu_seconds"] for row in result["rows"])
    assert [row["what"] for row in result["rows"] if row["beside"]] == BESIDE
    assert all(name in done.out for name in (*STAGES, *BESIDE, "MB per CPU second"))
    assert SECRET not in done.out + done.err + out.read_text()
    assert stat.S_IMODE(out.stat().st_mode) == 0o600


def test_a_model_is_timed_on_its_device(notes: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    base, text = tmp_path / "base", toy_tokenizer("gpt2")
    toy_model("gpt2").save_pretrained(base)
    (base / "tokenizer.json").write_text(text)
    settings = ("--device", "cpu", "--set", "train.batch_size=2", "--json", "-q")
    assert command("bench", notes, "--model", base, *settings) == 0
    done = capfd.readouterr()
    result = json.loads(done.out)
    tokens = {row["what"]: row["tokens"] for row in result["rows"] if "tokens" in row}
    assert list(tokens) == OF_MODEL
    each = len(load_tokenizer(text).encode(TEXT, add_special_tokens=False))
    assert list(tokens.values())[:3] == [30 * each] * 3
    assert 0 < tokens[OF_MODEL[3]] < 30 * each  # those of the first step are left out
    assert result["machine"]["versions"].keys() >= {"reticent", "torch", "tokenizers"}
    assert SECRET not in done.out + done.err


def test_the_first_call_of_scoring_is_not_timed(
    notes: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    base, first, scored = tmp_path / "base", [True], bench_model.score_models
    toy_model("gpt2").save_pretrained(base)
    (base / "tokenizer.json").write_text(toy_tokenizer("gpt2"))

    def slow_at_first(*args: Any, **options: Any) -> Any:
        if first:
            first.clear()
            time.sleep(bench_model.MODEL_SECONDS)
        return scored(*args, **options)

    monkeypatch.setattr(bench_model, "score_models", slow_at_first)
    settings = ("--device", "cpu", "--set", "train.batch_size=2", "--json", "-q")
    assert command("bench", notes, "--model", base, *settings) == 0
    seconds = {row["what"]: row["seconds"] for row in json.loads(capfd.readouterr().out)["rows"]}
    assert 0 < seconds["scoring, clm, on cpu"] < bench_model.MODEL_SECONDS


def test_marks_of_documents_are_taken_along(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text(TEXT)
        (tmp_path / f"{name}.ann").write_text(f"T1\tNAME 12 19\t{SECRET}\n")
    settings = ("--set", "corpus.format=brat", "--detector", "gold", "--json", "-q")
    assert command("bench", tmp_path, *settings) == 0
    assert "detection (gold)" in [row["what"] for row in json.loads(capfd.readouterr().out)["rows"]]


def test_documents_that_are_not_there_are_an_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert command("bench", tmp_path / "none.parquet") == 1
    assert "none.parquet" in capfd.readouterr().err
