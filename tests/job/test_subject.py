"""A model that was trained outside of Reticent is judged: from its files and a list of who it was trained on."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
import torch
from fixtures.command import command
from fixtures.models import toy_model, toy_tokenizer

from reticent.audit.evidence.audit import AuditEvidence
from reticent.audit.evidence.json_form import from_json
from reticent.audit.judgement.rows import BEYOND, NOT_SHOWN, WITHIN
from reticent.core.errors import ReticentError
from reticent.core.json_toml import read_json
from reticent.engine.synthetic import SynthConfig, synthesize
from reticent.job.config import load_kept_job, parse_job
from reticent.job.pipeline import execute
from reticent.job.run import Run
from reticent.trainer.given import check_given, write_given
from reticent.trainer.models import load_model

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
    """Documents of 90 people, half of whom a toy model was fine-tuned on elsewhere; the list of these; its base."""
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
    texts = table.column("text").to_pylist()
    net = toy_model("gpt2", hidden_size=48, max_length=LENGTH)
    save(net, folder / "base")
    fine_tune(net, [text for text, owner in zip(texts, owners, strict=True) if owner in members], 120)
    save(net, folder / "outside")
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


def test_one_command_leads_from_files_and_a_list_to_a_dossier(place: Path) -> None:
    args = ["--base", place / "base", "--documents", place / "notes.parquet", "--members", place / "members.txt"]
    args += ["--statement", STATEMENT, "--out", place / "run", "--also", "int8"]
    small = ["audit.num_bootstrap=100", "corpus.spans=spans", "audit.generation.num_prompts=20"]
    small += ["extraction.num_passages=20", "extraction.num_queries=[1]", "audit.inversion.per_individual=1"]
    sets = [word for each in small for word in ("--set", each)]
    assert command("audit-model", *map(str, (place / "outside", *args, *sets)), "--quiet") == 0
    found = risks_of(place / "run")
    assert found["given"]["individual"] == BEYOND
    assert WITHIN not in {outcome for own in found.values() for outcome in own.values()}
    page = (place / "run" / "dossier" / "dossier.html").read_text()
    for said in (STATEMENT, "Nothing here verifies it", "its recipe is not known here", "there is no ledger"):
        assert said in page
    evidence = from_json(AuditEvidence, read_json(place / "run" / "audit" / "audit.json"), "audit")
    assert {model.recipe for model in evidence.models} == {"base", "given", "int8"}
    assert all(model.ledger is None and model.split_given for model in evidence.models)
    assert load_kept_job(place / "run" / "job.json").subject is not None
