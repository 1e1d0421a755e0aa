"""Files that the pages' reader is assumed to have."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from fixtures.models import toy_model, toy_tokenizer
from fixtures.pages import blocks

from reticent.engine.synthetic import SynthConfig, synthesize
from reticent.trainer.export import write_model
from reticent.trainer.models import load_tokenizer
from reticent.trainer.recipes import get_recipe


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the reader is said to have: notes, records, a base model; and a job file:
    that of the README and a classifier."""
    folder = tmp_path_factory.mktemp("own")
    synthesize(folder, SynthConfig(num_individuals=16, languages=("en",), words_per_document=60))
    notes = pl.read_parquet(folder / "documents" / "*.parquet")
    names = {"note_id": "doc_id", "patient_id": "individual_id", "note": "text"}
    diagnosis = pl.when(pl.col("individual_id").rank("dense") % 2 == 0).then(pl.lit("asthma")).otherwise(pl.lit("gout"))
    notes.select(**names, diagnosis=diagnosis).write_parquet(folder / "notes.parquet")
    (folder / "records.parquet").rename(folder / "patients.parquet")
    network = toy_model("bert", hidden_size=8)
    write_model(
        network, load_tokenizer(toy_tokenizer("bert")), folder / "models" / "bert", recipe=get_recipe("mlm"), epoch=0
    )
    (folder / "job.toml").write_text(blocks("README.md", "toml")[0] + '\n[classify]\nlabel = "diagnosis"\n')
    (folder / "said.txt").write_text("Mail a@b.org.")
    (folder / "marked").mkdir()
    for name in "ab":
        (folder / "marked" / f"{name}.txt").write_text("Mail a@b.org.")
        (folder / "marked" / f"{name}.ann").write_text("T1\tEMAIL 5 12\ta@b.org\n")
    individuals = notes["individual_id"].unique().sort()
    for name, chosen in (("notes", individuals[:-2]), ("new", individuals[-2:])):
        (folder / name).mkdir()
        notes.filter(pl.col("individual_id").is_in(chosen.implode())).write_parquet(folder / name / "part.parquet")
    (folder / "withdrawn.txt").write_text(individuals[0] + "\n")
    return folder
