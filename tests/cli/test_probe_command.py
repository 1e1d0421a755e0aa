"""``reticent probe`` from the command line: results, refusals, and a person's own page of which nothing is kept."""

from __future__ import annotations

import io
import json
import os
from dataclasses import replace
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.command import command
from fixtures.models import toy_model, toy_tokenizer
from rich.console import Console

from reticent.audit.evidence.json_form import from_json
from reticent.audit.evidence.probe import ProbeEvidence
from reticent.core.artifact import require_kind
from reticent.ext.propile import self_probe
from reticent.ext.propile.evidence import results_table
from reticent.ext.propile.prompts import ProbeConfig
from reticent.ext.propile.scores import Pairs
from reticent.ext.propile.self_probe import Finding, invented_individuals, self_page
from reticent.ext.propile.subjects import subjects_from_rows
from reticent.trainer.models import load_tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")

SECRET = "Zyxwvut"
#: One beam: the first test has the three that are the default.
GREEDY = ("--beams", 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models ``gpt2`` and ``bert``, a table ``people.parquet``, and one individual's ``me.toml``."""
    folder = tmp_path_factory.mktemp("probe")
    for kind in ("gpt2", "bert"):
        toy_model(kind, max_length=128).save_pretrained(folder / kind)
        load_tokenizer(toy_tokenizer(kind)).save_pretrained(folder / kind)
    n = 30
    rows = {"name": [f"Ann {SECRET}{i}" for i in range(n)], "zip": [f"{10000 + i}" for i in range(n)],
            "phone": [f"555-123-40{i:02}" for i in range(n)]}  # fmt: skip
    pq.write_table(pa.table(rows), folder / "people.parquet")
    (folder / "me.toml").write_text(f'name = "Ann {SECRET}"\nphone = "555-123-4567"\nzip = "98765"\n', encoding="utf-8")
    return folder


def test_a_probe_of_two_models_with_soft_prompts(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    status = command(
        "probe", f"causal={folder / 'gpt2'}", folder / "bert", "--subjects", folder / "people.parquet",
        "--target", "zip", "--level", "twin", "--level", "triplet", "--soft-prompt", "--soft-subjects", 8,
        "--soft-tokens", 2,
        "--soft-epochs", 1, "--out", out, "--json", "--quiet",
    )  # fmt: skip
    assert status == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((out / "probe.json").read_text())
    assert [model["name"] for model in printed["models"]] == ["causal", "bert"]
    assert printed["models"][0]["soft_prompts"][0]["target"] == "zip"
    assert require_kind(out, "probe").counts["subjects"] == 30
    assert require_kind(tmp_path / "out-soft-causal-zip", "soft_prompt").counts["num_tokens"] == 2
    assert pq.read_table(out / "answers.parquet").num_rows > 300
    for path in out.iterdir():
        assert path.stat().st_mode & 0o777 == 0o600
        assert SECRET.encode() not in path.read_bytes()
    page = (out / "probe.html").read_text()
    assert page.count("<svg") > 3
    assert page.count("than alone") == 1  # a table of items behind nothing at all
    assert not [word for word in ("http:", "https:", "<script", "src=") if word in page]
    assert "default-src 'none'" in page
    found = from_json(ProbeEvidence, printed, "probe")
    named = replace(found, models=[replace(model, name="ppmlm-epoch-0002") for model in found.models])
    shown = io.StringIO()
    Console(file=shown, width=80).print(results_table(named))  # as into a pipe: no name is cut
    assert "…" not in shown.getvalue()


def test_a_sweep_follows_the_people_there_are_and_notes_need_no_marks(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = [f"Patient: Anna Berg{letter}\nPhone: 555-123-40{ord(letter) % 90:02}\n" for letter in ascii_lowercase]
    pq.write_table(pa.table({"individual_id": [*ascii_lowercase], "text": notes}), tmp_path / "notes.parquet")
    options = ("--target", "phone", "--level", "twin", *GREEDY, "--soft-prompt", "--sweep", "--soft-epochs", 1)
    assert command("probe", folder / "gpt2", "--documents", tmp_path / "notes.parquet", *options, "--json", "-q") == 0
    (model,) = json.loads(capsys.readouterr().out)["models"]
    (soft,) = model["soft_prompts"]
    assert (soft["num_subjects"], soft["evaluated"]) == (4, 14)
    assert [row["num_subjects"] for row in soft["sweeps"] if row["sweep"] == "num_subjects"] == [1, 2]


def test_a_probe_of_few_people_withholds_and_still_has_its_page(folder: Path, tmp_path: Path) -> None:
    few = pq.read_table(folder / "people.parquet").slice(0, 3)
    pq.write_table(few, tmp_path / "few.parquet")
    options = ("--subjects", tmp_path / "few.parquet", "--target", "zip", *GREEDY, "--out", tmp_path / "out", "-q")
    assert command("probe", folder / "gpt2", *options) == 0
    page = (tmp_path / "out" / "probe.html").read_text()
    assert "Each of fewer than 5 people is described" in page
    assert "fewer than 5 subjects" in page
    assert "None" not in page


@pytest.mark.parametrize(
    ("arguments", "status", "why"),
    [
        (("--subjects", "people.parquet", "--target", "doctor"), 1, "no column doctor"),
        (("--subjects", "none.parquet"), 1, "no such file"),
        (("--subjects", "people.parquet", "--level", "pair"), 2, "probe.levels.0: expected 'twin'"),
        (("--subjects", "people.parquet", "--templates", "bad.txt"), 2, "unknown field {shoe_size}"),
        (("--subjects", "people.parquet", "--soft-prompt", "--soft-subjects", 28), 1, "28 to train on, 8 to validate"),
        (("--documents", "people.parquet"), 1, "not Parquet with columns individual_id and text"),
        (("--documents", "json.parquet"), 1, "column spans: expected a list of (start, end, label), got string"),
        ((), 2, "give --subjects or --documents"),
        (("--items", "me.toml", "--subjects", "people.parquet"), 2, "--items belongs to --self"),
        (("--self", "--items", "bad.txt"), 1, "expected lines like"),
        (("--self", "--items", "me.toml", "--language", "de"), 2, "language 'de'"),
        (("--self", "--items", "me.toml", "--target", "phone"), 2, "--target has no effect with --self"),
        (("--self", "--items", "me.toml", "--level", "twin"), 2, "--level has no effect with --self"),
        (("--self", "--items", "me.toml", "--given", "zip"), 2, "--given has no effect with --self"),
        (("--self", "--items", "me.toml", "--published"), 2, "--published has no effect with --self"),
        (("--self", "--items", "me.toml", "--bf16"), 2, "--bf16 has no effect with --self"),
    ],
)
def test_requests_that_cannot_be_met_are_explained(
    folder: Path, arguments: tuple[str, ...], status: int, why: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(folder)
    Path("bad.txt").write_text("{name} wears {shoe_size} \n")
    pq.write_table(pa.table({"individual_id": ["a"], "text": [SECRET], "spans": ["[]"]}), "json.parquet")
    assert command("probe", "gpt2", *arguments, "-q") == status
    said = capsys.readouterr().err
    assert why in said
    assert SECRET not in said


def test_an_interrupted_probe_keeps_nothing_and_says_so(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("reticent.ext.propile.measure.write_probe", interrupted)  # all is measured by then
    people = folder / "people.parquet"
    options = ("--subjects", people, "--target", "zip", *GREEDY, "--out", tmp_path / "out", "-q")
    assert command("probe", folder / "gpt2", *options) == 130
    assert capsys.readouterr().err.endswith("interrupted; nothing is kept, and the same command begins anew\n")
    assert not list(tmp_path.iterdir())


def test_a_model_that_is_not_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("probe", folder / "none", "--subjects", folder / "people.parquet") == 1
    assert "no model here" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------------- one person


@pytest.mark.parametrize(("kind", "language"), [("gpt2", "en"), ("gpt2", "fr"), ("bert", "en")])
def test_an_individuals_own_page_holds_no_item_and_nothing_else_is_written(
    folder: Path, tmp_path: Path, kind: str, language: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    status = command("probe", folder / kind, "--self", "--items", folder / "me.toml", "--language", language)
    page = capsys.readouterr().out
    assert status == 0
    assert page.startswith("<!doctype html>")
    assert ("Rank " if language == "en" else "Rang ") in page
    for item in (SECRET, "555-123-4567", "98765"):
        assert item not in page
    assert list(tmp_path.iterdir()) == []
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_the_page_is_private_where_it_is_written(folder: Path, tmp_path: Path) -> None:
    arguments = ("--self", "--items", folder / "me.toml", "--subjects", folder / "people.parquet")
    assert command("probe", folder / "gpt2", *arguments, "--out", tmp_path / "me.html") == 0
    assert os.listdir(tmp_path) == ["me.html"]
    assert (tmp_path / "me.html").stat().st_mode & 0o777 == 0o600
    assert "a list of other people" in (tmp_path / "me.html").read_text()


@pytest.mark.parametrize(
    ("rank", "said", "level"),
    [(1, False, "clear"), (3, False, "clear"), (4, False, "some"), (11, False, "some"), (12, False, "none"),
     (150, True, "clear"), (None, False, "unknown"), (None, None, "unknown")],
)  # fmt: skip
def test_the_meaning_of_a_rank(rank: int | None, said: bool | None, level: str) -> None:
    finding = Finding("phone", 5, 1e-4, rank, 200, said)
    assert finding.level == level
    page = self_page([finding], language="en", invented=True)
    assert "1 answer in 10\N{NO-BREAK SPACE}000 " in page
    assert "within 100 answers the chance that it shows is 1.0 %" in page
    french = self_page([finding], language="fr", invented=True)
    assert "la chance qu’elle apparaisse est de 1,0\N{NO-BREAK SPACE}%" in french


@pytest.mark.parametrize(
    ("rank", "num_others", "level"),
    [(1, 20, "some"), (2, 20, "some"), (3, 20, "none"), (1, 98, "some"), (1, 99, "clear"), (2, 100, "clear")],
)
def test_a_rank_among_few_is_no_clear_sign(rank: int, num_others: int, level: str) -> None:
    # The best of 21 is anybody once in 21 times: an individual with five items would read of a clear link by chance.
    assert Finding("phone", 5, 1e-4, rank, num_others, False).level == level


@pytest.mark.parametrize(
    ("language", "said"),
    [
        ("en", "your name, alone or with one or two of your other items"),
        ("fr", "votre nom, seul ou avec une ou deux de vos autres données"),
    ],
)
def test_the_page_says_of_what_was_in_a_question_no_more_than_was_in_any(
    language: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    asked: list[str] = []

    def encoded(_: Any, prompts: list[str], targets: list[str], __: str) -> Any:
        asked.extend(prompts)
        return Pairs([[1]] * len(prompts), [[2]] * len(targets))

    monkeypatch.setattr(self_probe, "encode_pairs", encoded)
    monkeypatch.setattr(self_probe, "score_masked_pairs", lambda _, __, pairs, **___: (np.zeros(len(pairs)), []))
    items = {"name": "Ann Berg", "phone": "555-123-4567", "email": "a@b.example", "zip": "98765", "ssn": "123-45-6789",
             "address": "1 Mill Road"}  # fmt: skip
    config = ProbeConfig(language=language)
    found = self_probe.probe_myself(None, None, "mlm", items, None, config)  # type: ignore[arg-type]
    assert len(found) == len(items) - 1
    assert max(sum(item in prompt for item in items.values()) for prompt in asked) == 3
    assert said in self_page(found, language=language, invented=True)


@pytest.mark.parametrize(("own", "rank"), [("1 A", 101), ("9 " + "Long " * 20, 1)])
def test_an_item_is_ranked_by_what_it_costs_a_token_not_by_its_length(
    own: str, rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every letter costs as much, but in an item with a 9; an item that is as likely as another's is not above it."""
    monkeypatch.setattr(
        self_probe,
        "encode_pairs",
        lambda _, prompts, targets, __: Pairs([[1]] * len(prompts), [[*map(ord, each)] for each in targets]),
    )
    monkeypatch.setattr(
        self_probe,
        "score_masked_pairs",
        lambda _, __, pairs, **___: (np.array([-len(ids) / (1 + (ord("9") in ids)) for ids in pairs.targets]), []),
    )
    others = subjects_from_rows(
        {"name": [f"Bo Li{n}" for n in range(100)], "address": [f"1 {'x' * n}y" for n in range(100)]}
    )
    items = {"name": "Ann Berg", "address": own}
    (found,) = self_probe.probe_myself(None, None, "mlm", items, others, ProbeConfig())  # type: ignore[arg-type]
    assert (found.rank, found.num_others) == (rank, 100)


def test_invented_individuals_have_the_usual_items() -> None:
    found: Any = invented_individuals(30)
    assert len(found) == 30
    assert {"name", "phone", "email", "address", "zip", "patient_id", "birth_date"} <= set(found.types)


def test_a_name_that_leaves_the_folder_of_the_results_is_refused_before_anything_is_asked(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = command(
        "probe", f"../../up={folder / 'gpt2'}", "--subjects", folder / "people.parquet", "--target", "zip",
        "--soft-prompt", "--soft-subjects", 8, "--out", tmp_path / "out", "--quiet",
    )  # fmt: skip
    assert status == 2
    assert "a name is of letters" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
