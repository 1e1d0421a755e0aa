"""A model that was trained outside of Reticent is judged: from its files and a list of who it was trained on."""

from __future__ import annotations

import hashlib
import http.server
import json
import math
import random
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
import torch
from fixtures.command import command
from fixtures.jobs import Recorder
from fixtures.models import toy_model, toy_tokenizer
from fixtures.stores import make_store
from safetensors.torch import load_file, save_file

from reticent.audit.config import VerdictConfig
from reticent.audit.evidence.audit import AuditEvidence
from reticent.audit.evidence.json_form import from_json
from reticent.audit.judgement.rows import BEYOND, NO_HEAD, NOT_SHOWN, WITHIN
from reticent.audit.membership.names import STATES
from reticent.audit.scoring.endpoint import score_endpoint
from reticent.core.errors import ArtifactError, ReticentError
from reticent.core.json_toml import read_json
from reticent.core.progress import Progress
from reticent.engine.synthetic import SynthConfig, synthesize
from reticent.ext.dossier.job import make_dossier
from reticent.ext.dossier.verify import read_evidence, verify_dossier
from reticent.job.config import load_kept_job, parse_job
from reticent.job.pipeline import execute, report_again
from reticent.job.run import Run
from reticent.trainer.given import write_given
from reticent.trainer.models import load_model
from reticent.trainer.windows import SpecialIds

pytestmark = pytest.mark.usefixtures("one_thread", "without_figures")
STATEMENT = "From the export of the partner, signed by its registrar."
LENGTH = 128


def fine_tune(net: Any, texts: list[str], epochs: int) -> None:
    """Train as anybody would, with torch alone."""
    from tokenizers import Tokenizer

    cut = Tokenizer.from_str(toy_tokenizer("gpt2"))
    rows = [torch.tensor(cut.encode(text).ids[:LENGTH]) for text in texts]
    order, steps = random.Random(0), torch.optim.AdamW(net.parameters(), lr=5e-3)
    net.train()
    for _ in range(epochs):
        order.shuffle(rows)
        for start in range(0, len(rows), 16):
            own = rows[start : start + 16]
            ids = torch.nn.utils.rnn.pad_sequence(own, batch_first=True)
            labels = torch.nn.utils.rnn.pad_sequence(own, batch_first=True, padding_value=-100)
            loss = net(input_ids=ids, labels=labels).loss
            steps.zero_grad()
            loss.backward()
            steps.step()
    net.eval()


def save(net: Any, folder: Path) -> Path:
    net.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(toy_tokenizer("gpt2"))
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents of 90 people, half of whom a toy model was fine-tuned on elsewhere; the list of these; its base; the
    records of a few."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "hospital").mkdir()
    config = SynthConfig(num_individuals=90, words_per_document=20, documents_per_individual=1.0, languages=("en",))
    synthesize(folder / "hospital", config)
    table = pyarrow.dataset.dataset(folder / "hospital" / "documents").to_table()
    table = table.drop_columns(["household_id"]) if "household_id" in table.column_names else table
    ids = sorted(set(table.column("individual_id").to_pylist()))
    members = set(random.Random(1).sample(ids, len(ids) // 2))
    owners = table.column("individual_id").to_pylist()
    table = table.append_column("trained", [[owner in members for owner in owners]])
    pq.write_table(table, folder / "notes.parquet")
    for name, is_in in (("theirs", True), ("others", False)):
        pq.write_table(table.filter([(owner in members) == is_in for owner in owners]), folder / f"{name}.parquet")
    (folder / "members.txt").write_text("\n".join(sorted(members)))
    pq.write_table(pq.read_table(folder / "hospital" / "records.parquet").slice(0, 24), folder / "asked.parquet")
    texts = table.column("text").to_pylist()
    net = toy_model("gpt2", hidden_size=48, max_length=LENGTH)
    save(net, folder / "base")
    fine_tune(net, [text for text, owner in zip(texts, owners, strict=True) if owner in members], 120)
    save(net, folder / "outside")
    config = replace(config, num_individuals=60, seed=7)
    (folder / "elsewhere").mkdir()
    synthesize(folder / "elsewhere", config)
    theirs = pyarrow.dataset.dataset(folder / "elsewhere" / "documents").to_table().column("text").to_pylist()
    net = load_model(folder / "base", "clm")
    fine_tune(net, theirs, 30)  # of the same kind, and of nobody here
    save(net, folder / "stranger")
    return folder


def values_of(place: Path, out: str, **more: Any) -> dict[str, Any]:
    subject = {"model": str(place / "outside"), "base": str(place / "base"), "objective": "clm"}
    subject |= {"members": str(place / "members.txt"), "statement": STATEMENT}
    subject |= more.pop("subject", {})
    return {
        "out": str(place / out),
        "corpus": {"source": str(place / "notes.parquet"), "spans": "spans"},
        "detect": {"detectors": ["gold"]},
        "subject": {name: value for name, value in subject.items() if value is not None},
        "train": {"window_length": LENGTH, "device": "cpu"},
        "audit": {"num_bootstrap": 100, "attacks": ["loss", "reference", "min_k"]},
        **more,
    }


def split_of(values: dict[str, Any]) -> Any:
    run = Run(parse_job(values))
    execute(run, "split")
    return run


def risks_of(run: Path) -> dict[str, dict[str, str]]:
    table = read_json(run / "report" / "report.json")["risks"]["rows"]
    return {
        row["recipe"]: {"verdict": row["outcome"]} | {r["risk"]: r["outcome"] for r in row["results"]} for row in table
    }


def test_one_command_leads_from_files_and_a_list_to_a_dossier(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reticent.audit.membership.self_calibration.CALIBRATION_TEXTS", 32)
    args = ["--base", place / "base", "--documents", place / "notes.parquet", "--members", place / "members.txt"]
    args += ["--statement", STATEMENT, "--out", place / "run", "--also", "int8"]
    said: list[str] = []
    monkeypatch.setattr(Progress, "say_once", lambda _, line: said.append(line))
    small = [
        "dossier.secure_environment=true",
        "dossier.statement=We ask for it.",
        "audit.num_bootstrap=100",
        "corpus.spans=spans",
        "audit.generation.num_prompts=20",
        'audit.attacks=["loss", "reference", "end_of_text", "self_calibration", "checkpoints", "hidden_states"]',
    ]
    small += ["extraction.num_passages=20", "extraction.num_queries=[1]", "audit.inversion.per_individual=1"]
    sets = [word for each in small for word in ("--set", each)]
    assert command("audit-model", *map(str, (place / "outside", *args, *sets)), "--quiet") == 0
    found = risks_of(place / "run")
    assert found["given"]["verdict"] == BEYOND
    assert WITHIN not in {outcome for own in found.values() for outcome in own.values()}
    page = (place / "run" / "dossier" / "dossier.html").read_text()
    unknown = "its recipe is not known here", "the earlier checkpoints of its training are not here"
    for told in (STATEMENT, "Nothing here verifies it", *unknown, "what else the models were trained on is not known"):
        assert told in page
    assert "there is no ledger" in page
    report = (place / "run" / "report" / "report.html").read_text()
    assert not re.search(r"Epochs \(times|\d epochs", page + report)  # how often it read a document is not known
    assert not any(line.startswith("seed = 0") for line in said)  # the list is given, not drawn by the seed
    form = read_json(place / "run" / "dossier" / "secure-environment" / "form.json")
    asked, decided = form["those_who_ask"], form["those_who_decide"]
    weights = hashlib.sha256((place / "outside" / "model.safetensors").read_bytes()).hexdigest()
    assert asked["models"][0]["files"]["model.safetensors"] == weights
    assert (asked["statement"], decided["decision"]) == ("We ask for it.", None)
    attack = read_json(place / "run" / "dossier" / "secure-environment" / "attack-loss.json")
    assert [row["model"] for row in attack["models"]] == ["base", "given", "int8"]
    assert attack["models"][2]["result"]["over_source"]["low"] < 0.5
    alike = attack["models"][1]["result"]["matched"]
    assert (alike["auc"]["low"] > 0.5, alike["num_members"] > 10) == (True, True)
    assert "between people alike without the model" in (place / "run" / "report" / "report.html").read_text()
    made = {path.stem for path in (place / "run" / "dossier" / "secure-environment").glob("attack-*.json")}
    assert {"attack-self_calibration", "attack-hidden_states"} <= made
    assert "attack-checkpoints" not in made
    checked = verify_dossier(place / "run" / "dossier", [place / "outside"])
    assert not checked.faults
    evidence = from_json(AuditEvidence, read_json(place / "run" / "audit" / "audit.json"), "audit")
    assert {model.recipe for model in evidence.models} == {"base", "given", "int8"}
    assert all(model.ledger is None and model.split_given for model in evidence.models)
    assert load_kept_job(place / "run" / "job.json").subject is not None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "MODEL: nowhere: no such folder"),
        (["name", "--endpoint", "http://localhost:9/v1", "--allow-sending", "localhost"], "--endpoint: needs --base"),
        (["outside"], "--members or --others"),
    ],
)
def test_a_command_that_lacks_something_says_what(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    monkeypatch.chdir(place)
    more = ["--documents", "notes.parquet", "--statement", STATEMENT, "--out", "none"]
    assert command("audit-model", *words, *more) in (1, 2)
    assert said in capfd.readouterr().err
    assert not (place / "none").exists()


@pytest.mark.parametrize("form", ["members", "column", "others"])
def test_a_list_a_column_and_two_corpora_give_the_same_sides(place: Path, tmp_path: Path, form: str) -> None:
    given: dict[str, Any] = {
        "members": None,
        form: {"column": "trained", "others": str(place / "others.parquet")}.get(form),
    }
    given = given if form != "members" else {}
    values = values_of(place, str(tmp_path / "run"), subject=given)
    if form == "others":
        values["corpus"]["source"] = str(place / "theirs.parquet")
    run = split_of(values)
    members = set(run.individuals.table.filter(run.individuals.mask("members")).column("individual_id").to_pylist())
    assert members == set((place / "members.txt").read_text().split())
    assert run.individuals.mask("heldout").sum() == 90 - len(members)
    assert split_of(load_kept_job(tmp_path / "run" / "job.json").model_dump()).sides == run.sides


def test_two_corpora_that_change_places_change_sides(place: Path, tmp_path: Path) -> None:
    files = [str(place / "theirs.parquet"), str(place / "others.parquet")]
    sides = []
    for source, others in (files, files[::-1], files[::-1]):
        values = values_of(place, str(tmp_path / "run"), subject={"members": None, "others": others})
        values["corpus"]["source"] = source
        recorder = Recorder()
        run = Run(parse_job(values), recorder)
        execute(run, "split")
        sides.append((recorder.made, [run.individuals.mask(name).tolist() for name in ("members", "heldout")]))
    (_, first), (made, second), (again, third) = sides
    assert (made, again) == (["split"], [])
    assert first == second[::-1] == third[::-1]


def _lines(place: Path, tmp_path: Path, change: Any) -> dict[str, Any]:
    (tmp_path / "list.txt").write_text("\n".join(change((place / "members.txt").read_text().split())))
    return values_of(place, str(tmp_path / "run"), subject={"members": str(tmp_path / "list.txt")})


def _table(place: Path, tmp_path: Path, change: Any, **subject: Any) -> dict[str, Any]:
    pq.write_table(change(pq.read_table(place / "notes.parquet")), tmp_path / "notes.parquet")
    values = values_of(place, str(tmp_path / "run"), subject=subject)
    values["corpus"]["source"] = str(tmp_path / "notes.parquet")
    return values


def _with(name: str, make: Any) -> Any:
    """A change of a table: one column, made of the rows."""

    def change(table: Any) -> Any:
        column = pyarrow.array(
            make(table.to_pylist()), table.schema.field(name).type if name in table.column_names else None
        )
        kept = table.drop_columns([name]) if name in table.column_names else table
        return kept.append_column(name, column)

    return change


def _copy_across(rows: list[dict[str, Any]]) -> list[str]:
    member = next(row for row in rows if row["trained"])
    other = next(row for row in rows if not row["trained"])
    return [f" {member['text']}\n" if row is other else row["text"] for row in rows]


def _one_home(rows: list[dict[str, Any]]) -> list[str]:
    shared = {next(row["individual_id"] for row in rows if row["trained"] == side) for side in (True, False)}
    return ["home" if row["individual_id"] in shared else row["individual_id"] for row in rows]


def _all_in(place: Path, _: list[str]) -> list[str]:
    return sorted(set(pq.read_table(place / "notes.parquet").column("individual_id").to_pylist()))


BAD_LISTS: dict[str, tuple[Any, str]] = {
    "of nobody here": (lambda p, t: _lines(p, t, lambda ids: [*ids, "zz-1", "zz-2"]), r"2 of \d+ ids are of nobody"),
    "everybody": (lambda p, t: _lines(p, t, lambda ids: _all_in(p, ids)), "names every individual"),
    "nobody": (lambda p, t: _lines(p, t, lambda ids: [""]), "no id"),
    "individual on both sides": (
        lambda p, t: _table(p, t, lambda x: pyarrow.concat_tables([x, _flipped(x)]), members=None, column="trained"),
        "1 individuals are on both sides",
    ),
    "household on both sides": (
        lambda p, t: _homes(_table(p, t, _with("home", _one_home))),
        "1 households of 89 are on both sides",
    ),
    "copies across": (lambda p, t: _table(p, t, _with("text", _copy_across)), "1 documents of people who were not"),
    "column of neither": (
        lambda p, t: _table(p, t, _with("arm", lambda rows: ["A"] * len(rows)), members=None, column="arm"),
        "say neither that they were trained on",
    ),
    "column of nulls": (
        lambda p, t: _table(p, t, _with("trained", lambda rows: [None] * len(rows)), members=None, column="trained"),
        "say neither that they were trained on",
    ),
    "everybody by a column": (
        lambda p, t: _table(p, t, _with("trained", lambda rows: [True] * len(rows)), members=None, column="trained"),
        "names every individual",
    ),
    "nobody by a column": (
        lambda p, t: _table(p, t, _with("trained", lambda rows: [False] * len(rows)), members=None, column="trained"),
        "no individual of the documents was trained on",
    ),
    "copies across by a column": (
        lambda p, t: _table(p, t, _with("text", _copy_across), members=None, column="trained"),
        "1 documents of people who were not",
    ),
    "household on both sides by a column": (
        lambda p, t: _homes(_table(p, t, _with("home", _one_home), members=None, column="trained")),
        "1 households of 89 are on both sides",
    ),
    "individual in both corpora": (
        lambda p, t: _others(p, t, lambda own, theirs: {**own, "individual_id": theirs["individual_id"]}),
        "1 individuals have documents among those of members too",
    ),
    "copies across corpora": (
        lambda p, t: _others(p, t, lambda own, theirs: {**own, "text": theirs["text"], "spans": theirs["spans"]}),
        "1 documents of people who were not",
    ),
    "no such list": (
        lambda p, t: values_of(p, str(t / "run"), subject={"members": str(t / "none.txt")}), "none.txt",
    ),
    "no such corpus of others": (
        lambda p, t: values_of(p, str(t / "run"), subject={"members": None, "others": str(t / "none.parquet")}),
        "none.parquet",
    ),
    "a list that is no text": (lambda p, t: _no_text(p, t), "list.txt"),
}  # fmt: skip


def _others(place: Path, tmp_path: Path, change: Any) -> dict[str, Any]:
    """Two corpora; one document of the others is changed, given one of the members'."""
    table, theirs = pq.read_table(place / "others.parquet"), pq.read_table(place / "theirs.parquet")
    first, *rest = table.to_pylist()
    changed = [change(first, theirs.slice(0, 1).to_pylist()[0]), *rest]
    pq.write_table(pyarrow.Table.from_pylist(changed, schema=table.schema), tmp_path / "others.parquet")
    subject = {"members": None, "others": str(tmp_path / "others.parquet")}
    values = values_of(place, str(tmp_path / "run"), subject=subject)
    values["corpus"]["source"] = str(place / "theirs.parquet")
    return values


def _no_text(place: Path, tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "list.txt").write_bytes(b"\xff\xfe\x00\x01" * 9)
    return values_of(place, str(tmp_path / "run"), subject={"members": str(tmp_path / "list.txt")})


def _flipped(table: Any) -> Any:
    row = table.slice(0, 1).to_pylist()[0]
    row |= {"doc_id": "again", "trained": not row["trained"], "text": "another text", "spans": []}
    return pyarrow.Table.from_pylist([row], schema=table.schema)


def _homes(values: dict[str, Any]) -> dict[str, Any]:
    values["corpus"]["household_id"] = "home"
    return values


@pytest.mark.parametrize("case", BAD_LISTS)
def test_a_list_that_cannot_be_one_is_refused_before_anything_is_counted(
    place: Path, tmp_path: Path, case: str
) -> None:
    make, said = BAD_LISTS[case]
    with pytest.raises(ReticentError, match=said) as error:
        split_of(make(place, tmp_path))
    ids = (place / "members.txt").read_text().split()
    assert not any(each in str(error.value) for each in ids)
    assert not (tmp_path / "run" / "spans").exists()


def _model(place: Path, tmp_path: Path, change: Any) -> Path:
    shutil.copytree(place / "outside", tmp_path / "model")
    change(tmp_path / "model")
    return tmp_path / "model"


def _pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def _coded(folder: Path) -> None:
    config = read_json(folder / "config.json")
    (folder / "config.json").write_text(json.dumps(config | {"auto_map": {"AutoModel": "evil.Model"}}))


def _narrow(folder: Path) -> None:
    content = read_json(folder / "tokenizer.json")
    content["model"]["vocab"]["unheard"] = 9999
    (folder / "tokenizer.json").write_text(json.dumps(content))


def _cut_otherwise(folder: Path) -> None:
    content = read_json(folder / "tokenizer.json")
    content["normalizer"] = {"type": "Lowercase"}
    (folder / "tokenizer.json").write_text(json.dumps(content))


def _quantised(folder: Path) -> None:
    config = read_json(folder / "config.json")
    quantised = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": quantised}))


def _broken(folder: Path) -> None:
    net = load_model(folder, "clm")
    with torch.no_grad():
        next(net.parameters())[0, 0] = float("nan")
    net.save_pretrained(folder)


def _adapter(folder: Path) -> None:
    (folder / "adapter_config.json").write_text("{}")


BAD_MODELS = {
    "pickle": (_pickled, "pickle"),
    "code": (_coded, "auto_map"),
    "vocabulary": (_narrow, "ids up to 9,999"),
    "tokenizer of another": (_cut_otherwise, "cuts texts otherwise"),
    "quantised by what is not here": (_quantised, "bitsandbytes; it is not installed"),
    "no numbers": (_broken, "no numbers"),
    "adapter in pickle": (_adapter, "adapter without"),
    "absent": (shutil.rmtree, "no such folder"),
}


@pytest.mark.parametrize("case", BAD_MODELS)
def test_a_model_that_cannot_be_judged_is_refused_before_documents_are_read(
    place: Path, tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, said = BAD_MODELS[case]
    monkeypatch.setattr("reticent.trainer.given.find_spec", lambda name: None if name == "bitsandbytes" else name)
    model = _model(place, tmp_path, change)
    with pytest.raises(ReticentError, match=said):
        split_of(values_of(place, str(tmp_path / "run"), subject={"model": str(model)}))
    assert not (tmp_path / "run" / "split").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"subject": {"statement": " "}}, "statement"),
        ({"subject": {"column": "trained"}}, "one of members, column and others"),
        ({"subject": {"also": {"given": "int8"}}}, "name of a copy"),
        ({"subject": {"also": {"clm": "int8"}}}, "name of a copy"),
        ({"subject": {"also": {"base": "int8"}}}, "name of a copy"),
        ({"subject": {"allow_sending": "example.org"}}, "nothing is sent"),
        ({"recipes": {"int8": {"base": "clm"}}}, "none is made"),
        ({"audit": {"groups": ["ward.txt"]}}, "dealt at random"),
        ({"audit": {"groups": ["a/ward.txt", "b/ward.txt"]}}, "two groups"),
        ({"audit": {"shadow": {"recipes": ["given"], "num_shadows": 4}}}, "recipe of a training"),
        ({"canaries": {}}, "before the training"),
        ({"split": {"heldout": 0.2}}, "split.heldout"),
        ({"model": [{"name": "own", "base": "x", "objective": "clm", "recipes": ["clm"]}]}, "trains none"),
    ],
)
def test_a_job_that_contradicts_a_given_model_is_refused(place: Path, more: dict[str, Any], said: str) -> None:
    with pytest.raises(ReticentError, match=said):
        parse_job(values_of(place, "run", **more))


def test_a_plain_folder_is_taken_byte_for_byte(place: Path, tmp_path: Path) -> None:
    write_given(str(place / "outside"), None, "clm", tmp_path / "taken")
    for file in (place / "outside").iterdir():
        assert (tmp_path / "taken" / file.name).read_bytes() == file.read_bytes()


def _by(place: Path, key: Any) -> list[str]:
    """Half of the individuals: those whose first document has the larger keys."""
    rows = {row["individual_id"]: row for row in pq.read_table(place / "notes.parquet").to_pylist()}
    ranked = sorted(rows, key=lambda name: (key(rows[name]), name))
    return ranked[len(ranked) // 2 :]


def _first_date(row: dict[str, Any]) -> str:
    return max(re.findall(r"(?:19|20)\d\d", row["text"]), default="")


SHIFTS = {
    "length": lambda row: len(row["text"]),
    "words": lambda row: sum(letter in "aeiou" for letter in row["text"]) / len(row["text"]),
    "dates": _first_date,
}


@pytest.mark.parametrize(("shift", "base"), [*((shift, "base") for shift in SHIFTS), ("dates", None)])
def test_a_shifted_list_of_people_nobody_trained_on_shows_nothing(
    place: Path, tmp_path: Path, shift: str, base: str | None
) -> None:
    (tmp_path / "list.txt").write_text("\n".join(_by(place, SHIFTS[shift])))
    subject = {"model": str(place / "stranger"), "members": str(tmp_path / "list.txt")}
    subject["base"] = str(place / base) if base else None
    run = Run(parse_job(values_of(place, str(tmp_path / "run"), subject=subject)))
    execute(run)
    (found,) = risks_of(tmp_path / "run").values()
    assert set(found.values()) == {NOT_SHOWN}
    if base is None:
        assert [model.recipe for model in run.evidence.models] == ["given"]
        assert "no base model was given" in (tmp_path / "run" / "dossier" / "dossier.html").read_text().lower()


def test_a_model_that_knows_its_people_by_heart_is_beyond_without_a_base_too(place: Path, tmp_path: Path) -> None:
    execute(Run(parse_job(values_of(place, str(tmp_path / "run"), subject={"base": None}))))
    (found,) = risks_of(tmp_path / "run").values()
    assert found["verdict"] == found["words"] == BEYOND


def test_an_encoder_without_a_head_is_asked_by_its_states_and_shows_nothing_else(place: Path, tmp_path: Path) -> None:
    toy_model("bert", max_length=LENGTH).base_model.save_pretrained(tmp_path / "encoder")
    (tmp_path / "encoder" / "tokenizer.json").write_text(toy_tokenizer("bert"))
    args = ["--documents", place / "notes.parquet", "--members", place / "members.txt", "--statement", STATEMENT]
    sets = ["--set", "audit.num_bootstrap=100", "--set", "corpus.spans=spans", "--also", "int8"]
    command_line = [tmp_path / "encoder", *args, "--out", tmp_path / "run", *sets, "--quiet"]
    assert command("audit-model", *map(str, command_line)) == 0
    (table, _), report = risks_of(tmp_path / "run").values(), read_json(tmp_path / "run" / "report" / "report.json")
    assert set(table.values()) == {NOT_SHOWN}
    assert {row["reason"] for each in report["risks"]["rows"] for row in each["results"] if "what" in row} == {NO_HEAD}
    evidence = from_json(AuditEvidence, read_json(tmp_path / "run" / "audit" / "audit.json"), "audit")
    assert all(set(model.membership) == {STATES} and model.num_drawn for model in evidence.models)


@pytest.mark.parametrize(("positions", "asked"), [(64, False), (LENGTH, True)])
def test_a_model_that_reads_little_is_asked_for_no_whole_passage(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, positions: int, asked: bool
) -> None:
    jobs: list[Any] = []
    monkeypatch.setattr("reticent.cli.audit_model.execute_job", lambda job, *_: jobs.append(job))
    model = save(toy_model("gpt2", max_length=positions), tmp_path / "small")
    args = ["--documents", place / "notes.parquet", "--members", place / "members.txt", "--statement", STATEMENT]
    assert command("audit-model", *map(str, (model, *args, "--out", tmp_path / "run"))) == 0
    assert (jobs[0].extraction is not None) == asked
    assert jobs[0].train.window_length == positions
    served = ("partner", *args, "--endpoint", "http://localhost/v1", "--base", model, "--out", tmp_path / "run")
    assert command("audit-model", *map(str, served)) == 0
    assert jobs[1].train.window_length == positions - 1  # a server writes a token behind them


def test_weights_that_a_model_should_have_are_not_drawn(place: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    for name, lost in (("encoder", "encoder.layer.0.output.dense.weight"), ("whole", "cls.predictions.bias")):
        net = toy_model("bert", max_length=LENGTH)
        (net.base_model if name == "encoder" else net).save_pretrained(tmp_path / name)
        (tmp_path / name / "tokenizer.json").write_text(toy_tokenizer("bert"))
        weights = load_file(file := tmp_path / name / "model.safetensors")
        del weights[lost]
        save_file(weights, file, {"format": "pt"})
        with pytest.raises(ReticentError, match="weights are not in its files"):
            write_given(str(tmp_path / name), None, "mlm", tmp_path / "taken")


def test_copies_have_a_paired_difference_to_the_model_and_no_better_verdict(place: Path, tmp_path: Path) -> None:
    also = {"int8": "int8", "merged": "merged", "other": str(place / "stranger")}
    run = Run(parse_job(values_of(place, str(tmp_path / "run"), subject={"also": also})))
    execute(run)
    found, table = {model.recipe: model.membership for model in run.evidence.models}, risks_of(tmp_path / "run")
    for name, attack in found["given"].items():
        assert attack.over_source is None
        same, near, other = (found[copied][name].over_source for copied in ("merged", "int8", "other"))
        assert same.value == pytest.approx(0.5)
        assert near.low <= 0.5 <= near.high
        assert near.value == pytest.approx(0.5 + found["int8"][name].auc.value - attack.auc.value)
        assert other.value < 0.45
    assert {outcome["verdict"] for outcome in table.values()} == {BEYOND}
    assert table["given"]["words"] == BEYOND
    assert "difference to the model itself" in (tmp_path / "run" / "dossier" / "dossier.html").read_text()


def test_rules_are_signed_before_scores_and_rules_that_change_score_anew(place: Path, tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")], check=True)
    values = values_of(place, str(tmp_path / "run"), dossier={"key": str(tmp_path / "key"), "preregister": True})
    values["gate"] = [{"measure": "membership_auc", "at_most": 0.9, "recipes": ["given"]}]
    run = Run(parse_job(values))
    execute(run)
    dossier = tmp_path / "run" / "dossier"
    rules = read_evidence(dossier).rules
    assert rules is not None
    assert (rules.scored_before, rules.scored_after, rules.is_kept) == (0, 2, True)
    assert rules.digest == hashlib.sha256((dossier / "rules.json").read_bytes()).hexdigest()
    assert rules.signed_by
    assert run.evidence.verdict is not None
    assert run.evidence.verdict.fixed_before_training
    kept = read_json(dossier / "rules.json")
    assert kept["measured"]["audit"]["attacks"] == ["loss", "reference", "min_k"]
    assert '"seed"' not in json.dumps(kept)
    assert not verify_dossier(dossier, []).faults
    again = Recorder()
    execute(Run(parse_job(values), again))
    assert not again.made
    values["verdict"] = {"individual": 0.99}  # with the numbers in view
    execute(Run(parse_job(values), again))
    assert {"rules", "measures/subject/given/epoch-0001"} <= set(again.made)
    after = read_evidence(dossier).rules
    assert after is not None
    assert after.scored_before == 2
    assert "could be chosen with those numbers in view" in (dossier / "dossier.html").read_text()


@pytest.mark.parametrize(("access", "counted"), [("public", 5), ("questions", 5), ("inside", 4)])
def test_the_release_context_decides_which_risks_count(access: str, counted: int) -> None:
    assert len(VerdictConfig().of_access(access).risks) == counted
    assert VerdictConfig(risks=("individual", "passages")).of_access("inside").risks == ("passages",)
    assert "words" in VerdictConfig().of_access(access).risks  # whoever knows a relation has the test at the threshold


def test_another_release_of_the_same_model_is_judged_anew(place: Path, tmp_path: Path) -> None:
    def relevant(access: str | None, made: Callable[[Run], Any]) -> set[str]:
        values = values_of(place, str(tmp_path / "run"), dossier={} if access is None else {"access": access})
        made(Run(parse_job(values)))
        (row,) = read_json(tmp_path / "run" / "report" / "report.json")["risks"]["rows"]
        return {result["risk"] for result in row["results"] if result["relevant"]}

    assert "individual" not in relevant("inside", execute)
    assert "individual" in relevant("public", make_dossier)
    assert "individual" not in relevant("inside", report_again)
    assert "individual" in relevant(None, execute)


def test_an_adapter_is_judged_beside_its_base_and_its_merge_is_the_same_model(place: Path, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    net = load_model(place / "base", "clm")
    wrapped = peft.get_peft_model(
        net, peft.LoraConfig(target_modules=["c_attn", "c_fc", "c_proj"], task_type="CAUSAL_LM", r=16,
                             init_lora_weights=False)
    )  # fmt: skip
    wrapped.save_pretrained(tmp_path / "adapter")
    write_given(str(tmp_path / "adapter"), str(place / "base"), "clm", tmp_path / "alone")
    write_given(str(tmp_path / "adapter"), str(place / "base"), "clm", tmp_path / "merged", "merged")
    ids = torch.arange(5, 25)[None]
    taken = [load_model(tmp_path / name, "clm")(input_ids=ids).logits for name in ("alone", "merged")]
    assert torch.allclose(taken[0], wrapped.eval()(input_ids=ids).logits, atol=1e-4)
    assert torch.allclose(taken[0], taken[1], atol=1e-4)
    shutil.copytree(tmp_path / "adapter", tmp_path / "other")
    weights = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    few = dict(list(weights.items())[2:])
    of_headless = {name.replace("model.transformer.", "model."): weight for name, weight in weights.items()}
    deeper = {**weights, **{name.replace(".h.0.", ".h.9."): weight.clone() for name, weight in weights.items()}}
    for other in (few, of_headless, deeper):  # the library takes what fits, and leaves the rest as it was drawn
        save_file(other, tmp_path / "other" / "adapter_model.safetensors")
        with pytest.raises(ArtifactError, match="does not fit the base model"):
            write_given(str(tmp_path / "other"), str(place / "base"), "clm", tmp_path / "none")
    run = split_of(values_of(place, str(tmp_path / "run"), subject={"model": str(tmp_path / "adapter")}))
    assert (run.folder / "models" / "subject" / "given" / "epoch-0001" / "tokenizer.json").is_file()
    members = pq.read_table(place / "theirs.parquet").column("text").to_pylist()
    fine_tune(wrapped, members, 80)
    wrapped.save_pretrained(tmp_path / "adapter")
    values = values_of(place, str(tmp_path / "tuned"), subject={"model": str(tmp_path / "adapter")})
    execute(tuned := Run(parse_job(values)))
    (found,) = (model for model in tuned.evidence.models if model.recipe == "given")
    assert found.membership["reference"].auc.low > 0.5  # the adapter taken off is the reference
    with pytest.raises(ReticentError, match="difference to its base"):
        split_of(values_of(place, str(tmp_path / "none"), subject={"model": str(tmp_path / "adapter"), "base": None}))


class Watched(Recorder):
    """Keeps how far the task of scoring says it is."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[int, int]] = []

    @contextmanager
    def task(self, *_: Any) -> Iterator[Callable[..., None]]:
        yield lambda done=0, total=0, *_, **__: self.told.append((done, total))


class Server:
    """A server of completions on this machine, which gives the log-probabilities of a model; it dies when told to."""

    def __init__(
        self,
        model: Any,
        *,
        port: int = 0,
        dies_after: int = 1 << 30,
        redirect: str = "",
        cut: bool = False,
        status: int = 503,
        retry_after: str = "",
        spoil: Callable[[dict[str, Any]], Any] = lambda answer: answer,
    ) -> None:
        self.asked, self.model, owner = 0, model, self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                owner.asked += 1
                if redirect or owner.asked > dies_after:
                    self.send_response(302 if redirect else status)
                    self.send_header("Location", redirect)
                    self.send_header("Retry-After", retry_after)
                    self.end_headers()
                    return
                question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                ids = question["prompt"]
                if "echo" not in question:
                    self.answer([{"text": text} for text in owner.written(question)])
                    return
                with torch.no_grad():
                    logits = model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
                own = [None, *logits[:-1][torch.arange(len(ids) - 1), ids[1:]].tolist(), 0.0]
                top = [None, *({"x": value} for value in logits[:-1].amax(-1).tolist()), {"x": 0.0}]
                self.answer([{"text": "", "logprobs": {"token_logprobs": own, "top_logprobs": top}}])

            def answer(self, choices: list[dict[str, Any]]) -> None:
                content = json.dumps(spoil({"choices": choices})).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(content) + cut))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"

    def written(self, question: dict[str, Any]) -> list[str]:
        """What the model writes: the likeliest, as often as asked."""
        from tokenizers import Tokenizer

        ids = torch.tensor([question["prompt"]])
        options = {"do_sample": False, "max_new_tokens": question["max_tokens"], "pad_token_id": 0}
        with torch.no_grad():
            made = self.model.generate(ids, attention_mask=torch.ones_like(ids), **options)[0, ids.shape[1] :].tolist()
        return [Tokenizer.from_str(toy_tokenizer("gpt2")).decode(made, skip_special_tokens=False)] * question["n"]

    def __enter__(self) -> Server:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def _without_log_probs(answer: dict[str, Any]) -> dict[str, Any]:
    return {"choices": [choice | {"logprobs": None} for choice in answer["choices"]]}


def _spoilt(part: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    """An answer with one log-probability of this value, or all of them."""

    def spoil(answer: dict[str, Any]) -> Any:
        found = answer["choices"][0]["logprobs"]
        found[part] = [*found[part][:2], value, *found[part][3:]] if value is not ... else found[part][:2]
        return answer

    return spoil


#: What a server may answer that is no scores, and what is said of it.
BAD_ANSWERS: dict[str, tuple[dict[str, Any], str]] = {
    "NaN": ({"spoil": _spoilt("token_logprobs", math.nan)}, "no numbers"),
    "infinite": ({"spoil": _spoilt("token_logprobs", -math.inf)}, "no numbers"),
    "null within": ({"spoil": _spoilt("token_logprobs", None)}, "no numbers"),
    "text": ({"spoil": _spoilt("token_logprobs", "-1.5")}, "no numbers"),
    "over 0": ({"spoil": _spoilt("token_logprobs", 0.7)}, "no numbers"),
    "NaN of the likeliest": ({"spoil": _spoilt("top_logprobs", {"x": math.nan})}, "no numbers"),
    "null of the likeliest": ({"spoil": _spoilt("top_logprobs", {"x": None})}, "no numbers"),
    "too few": ({"spoil": _spoilt("token_logprobs", ...)}, "gives no log-probabilities"),
    "none": ({"spoil": _without_log_probs}, "gives no log-probabilities"),
    "a list": ({"spoil": lambda _: {"choices": [{"logprobs": [1]}]}}, "gives no log-probabilities"),
    "no choice": ({"spoil": lambda _: {"choices": []}}, "gives no log-probabilities"),
    "choices of another kind": ({"spoil": lambda _: {"choices": None}}, "no usable answer"),
    "an error in their words": ({"spoil": lambda _: {"error": "the chest"}}, "no usable answer"),
    "cut": ({"cut": True}, "no usable answer"),
    "too many requests": (
        {"status": 429, "dies_after": 3, "retry_after": "7"},
        "answers 429; 3 of 5 windows are scored; what was answered is kept",
    ),
    "too many for a day": ({"status": 429, "dies_after": 3, "retry_after": "86400"}, "answers 429"),
    "forbidden": ({"status": 401, "dies_after": 0}, "answers 401"),
}


@pytest.mark.parametrize("case", BAD_ANSWERS)
def test_an_answer_that_is_no_scores_ends_with_its_reason_and_no_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    waits: list[float] = []
    monkeypatch.setattr("reticent.audit.scoring.endpoint.time.sleep", waits.append)
    more, said = BAD_ANSWERS[case]
    store = make_store(*[[(5 + (7 * who + n) % 300, n, 0) for n in range(12)] for who in range(5)])
    with Server(toy_model("gpt2").eval(), **more) as server:
        about = {"url": server.url, "model": "m", "host": "127.0.0.1", "answers": str(tmp_path / "kept")}
        (tmp_path / "endpoint.json").write_text(json.dumps(about | {"log_probs": True}))
        with pytest.raises(ReticentError, match=said) as error:
            score_endpoint(tmp_path, store, SpecialIds(prefix=1, suffix=None, pad=0, mask=None), 16)
    assert "the chest" not in str(error.value)
    assert "the same command goes on" in str(error.value)
    assert len((tmp_path / "kept").read_text().splitlines()) == more.get("dies_after", 0)
    if asked := more.get("retry_after"):
        assert waits == [min(int(asked), 120)] * 2


#: A server that writes a token behind a window has no room for a longer one.
READ_BY_SERVER = {"window_length": LENGTH - 1, "device": "cpu"}


def by_endpoint(place: Path, out: Path, url: str, **subject: Any) -> dict[str, Any]:
    own = {"model": "partner", "endpoint": url, **subject}
    audit = {"num_bootstrap": 100, "attacks": ["loss", "reference"]}
    return values_of(place, str(out), subject=own, train=READ_BY_SERVER, audit=audit)


def test_a_server_is_asked_for_what_the_weights_say_and_goes_on_when_it_died(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reticent.audit.scoring.endpoint.time.sleep", lambda _: None)
    net = load_model(place / "outside", "clm")
    with Server(net, dies_after=30) as server:
        port, values = server.server.server_port, by_endpoint(place, tmp_path / "run", server.url)
        with pytest.raises(ReticentError, match="30 of 221 windows are scored; what was answered is kept"):
            execute(Run(parse_job(values)))
    with Server(net, port=port) as server:
        kept = tmp_path / "run" / "endpoint.jsonl"
        assert len(kept.read_text().splitlines()) == 30
        run = Run(parse_job(values), watched := Watched())
        execute(run)
        assert (221, 221) in watched.told
        execute(Run(parse_job(values)))
        lines = kept.read_text().splitlines()
        assert server.asked == len(lines) - 30 == len({line[:66] for line in lines}) - 30
    local = values_of(place, str(tmp_path / "local"), train=READ_BY_SERVER, audit=values["audit"])
    execute(there := Run(parse_job(local)))
    (own,), (weights,) = ([m for m in each.evidence.models if m.recipe == "given"] for each in (run, there))
    for name, attack in weights.membership.items():
        assert own.membership[name].auc.value == pytest.approx(attack.auc.value, abs=1e-3)
    # A server says of its likeliest token only whether it is the true one: it hides what is predicted elsewhere.
    assert own.privacy["both"].types.value >= weights.privacy["both"].types.value
    assert not re.search(r"[g-z]{3,}", "".join(lines))  # digests and numbers alone


def test_a_server_that_dies_while_it_writes_or_is_probed_loses_nothing_and_leaves_no_text(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("reticent.audit.scoring.endpoint.time.sleep", lambda _: None)
    net, port, num_asked, said = load_model(place / "outside", "clm"), 0, 0, []
    more: dict[str, Any] = {
        "audit": {"num_bootstrap": 100, "attacks": ["loss", "ngram_coverage"],
                  "generation": {"num_prompts": 20, "prefix_tokens": 8, "num_tokens": 4, "temperature": 0}},
        "probe": {"subjects": str(place / "asked.parquet"), "targets": ["zip"], "beam_sizes": [1],
                  "levels": ["twin"]},
    }  # fmt: skip
    while True:
        with Server(net, port=port, dies_after=170) as server:
            port, subject = server.server.server_port, {"model": "partner", "endpoint": server.url}
            try:
                execute(Run(parse_job(values_of(place, str(tmp_path / "run"), subject=subject, **more))))
            except ReticentError as error:
                said.append(str(error))
                num_asked += 170
            else:
                num_asked += server.asked
                break
    kept = (tmp_path / "run" / "endpoint.jsonl").read_text()
    assert len(said) > 2
    assert all("goes on" in each for each in said)
    assert num_asked == len(kept.splitlines()) == len({line[:66] for line in kept.splitlines()})  # none asked twice
    assert not re.search(r"[g-z]{3,}", kept)
    assert not _words_of(place) & set(" ".join([caplog.text, *said]).split())


def _words_of(place: Path) -> set[str]:
    """Names and numbers of people, which no error and no log may hold."""
    records = pq.read_table(place / "hospital" / "records.parquet")
    return {str(value) for name in ("last_name", "phone", "zip") for value in records.column(name).to_pylist()}


def test_a_server_is_judged_by_what_it_writes_with_log_probabilities_and_without(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reticent.ext.propile.stage.LETTERS", 40)  # the toy reads 128 tokens
    net = load_model(place / "outside", "clm")
    asked = {"num_prompts": 20, "prefix_tokens": 8, "num_tokens": 12, "temperature": 0}
    more: dict[str, Any] = {
        "extraction": {"prefix_tokens": [10], "suffix_tokens": 10, "num_passages": 20, "num_queries": []},
        "audit": {"num_bootstrap": 100, "attacks": ["ngram_coverage"], "generation": asked},
        "probe": {
            "subjects": str(place / "asked.parquet"), "targets": ["zip"], "beam_sizes": [1],
            "levels": ["twin", "compass"],
        },
    }  # fmt: skip
    execute(there := Run(parse_job(values_of(place, str(tmp_path / "local"), **more))))
    for log_probs, spoil in ((True, lambda answer: answer), (False, _without_log_probs)):
        out = tmp_path / f"run-{log_probs}"
        with Server(net, spoil=spoil) as server:
            subject = {"model": "partner", "endpoint": server.url, "log_probs": log_probs}
            values = values_of(place, str(out), subject=subject, **more)
            execute(run := Run(parse_job(values)))
            before = server.asked
            shutil.rmtree(out / "extraction")
            execute(Run(parse_job(values)))
            assert server.asked == before  # what was answered is kept
        _require_equal_answers(run, there, log_probs)
        assert not re.search(r"[g-z]{3,}", (out / "endpoint.jsonl").read_text())
    with Server(net) as server, pytest.raises(ReticentError, match="left: ngram_coverage"):
        parse_job(by_endpoint(place, tmp_path / "no", server.url, log_probs=False))


def _require_equal_answers(served: Run, local: Run, log_probs: bool) -> None:
    """What a server's model writes is what the same weights write; likelihoods are there where it tells them."""
    own, weights = (_given(run.evidence.models) for run in (served, local))
    assert own.membership["ngram_coverage"].auc.value == pytest.approx(weights.membership["ngram_coverage"].auc.value)
    assert (own.privacy["both"].types.value is not None) == log_probs
    found, expected = (_given(run.evidence.extraction.models).passages for run in (served, local))
    assert found.rates[0].members.value == pytest.approx(expected.rates[0].members.value)
    probed, by_weights = (_given(run.evidence.probe.models).results for run in (served, local))
    assert [row.level for row in probed] == [row.level for row in by_weights] == ["twin", "compass"]
    for one, other in zip(probed, by_weights, strict=True):
        assert (one.n, one.exact_match.value) == (other.n, other.exact_match.value)
        assert (one.likelihood is not None) == log_probs
        assert one.heldout.n == other.heldout.n > 0
        if log_probs:
            assert one.likelihood.factor.value == pytest.approx(other.likelihood.factor.value, rel=1e-3)


def _given(models: Iterable[Any]) -> Any:
    """The evidence of the model that was trained elsewhere."""
    return next(model for model in models if model.recipe == "given")


@pytest.mark.parametrize(
    ("url", "allowed", "said"),
    [
        ("http://example.org/v1", None, "would be sent to example.org"),
        ("http://example.org/v1", "example.com", "would be sent to example.org"),
        ("http://me:secret@example.org/v1", "example.org", "without a name"),
        ("http://:secret@example.org/v1", "example.org", "without a name"),
        ("ftp://localhost/v1", None, "expected http"),
    ],
)
def test_documents_are_sent_to_no_host_that_was_not_named(
    place: Path, tmp_path: Path, url: str, allowed: str | None, said: str
) -> None:
    with pytest.raises(ReticentError, match=said) as error:
        split_of(by_endpoint(place, tmp_path / "run", url, allow_sending=allowed))
    assert "secret" not in str(error.value)


def test_a_redirect_is_not_followed(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reticent.audit.scoring.endpoint.time.sleep", lambda _: None)
    net = load_model(place / "outside", "clm")
    with Server(net) as target, Server(net, redirect=target.url) as server:
        with pytest.raises(ReticentError, match="answers 302"):
            execute(Run(parse_job(by_endpoint(place, tmp_path / "run", server.url))))
        assert not target.asked
