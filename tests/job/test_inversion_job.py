"""A job that asks for inversion: every recipe the same identifiers, categories from the spans, a table on the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from reticent.audit.evidence.json_form import to_json
from reticent.audit.leakage.words import words_of
from reticent.audit.scoring.token_scores import load_candidates
from reticent.core.errors import ArtifactError, PolicyError
from reticent.engine.schema import DIRECT, HELDOUT, MEMBERS
from reticent.engine.store import open_tokens
from reticent.engine.synthetic import SynthConfig, synthesize
from reticent.ext.score.scorer import Scorer
from reticent.ext.score.texts import Candidate
from reticent.job.auditing import named_groups, read_categories
from reticent.job.checks import require_audit
from reticent.job.config import parse_job
from reticent.job.pipeline import execute
from reticent.job.run import Run

pytestmark = pytest.mark.usefixtures("one_thread", "without_figures")


def job_values(folder: Path) -> dict[str, Any]:
    hospital = folder / "hospital"
    foundation = {"kind": "gpt2", "text": str(hospital / "public"), "vocab_size": 400, "num_layers": 1,
                  "hidden_size": 16, "num_heads": 2, "num_epochs": 1}  # fmt: skip
    return {
        "out": str(folder / "run"),
        "corpus": {"source": str(hospital / "documents"), "spans": "spans", "household_id": "household_id"},
        "split": {"heldout": 0.5},
        "detect": {"detectors": ["gold"]},
        "recipes": {
            "frozen": {"base": "ppclm", "freeze_embeddings": True},
            "tagged": {"base": "ppclm", "context": "tag"},
        },
        "model": [{"name": "m", "objective": "clm", "recipes": ["frozen", "tagged"], "foundation": foundation}],
        "train": {"num_epochs": 1, "window_length": 128},
        "audit": {
            "num_bootstrap": 100,
            "attacks": ["loss"],
            "inversion": {"num_decoys": 3, "per_individual": 2},
            "generation": {"num_prompts": 6, "prefix_tokens": 8, "num_tokens": 8},
        },
    }


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("inversion")
    (folder / "hospital").mkdir()
    synthesize(folder / "hospital", SynthConfig(num_individuals=40, words_per_document=30, public_documents=20,
                                                documents_per_individual=1.0, languages=("en",)))  # fmt: skip
    run = Run(parse_job(job_values(folder)))
    execute(run)
    return run


def test_every_recipe_is_asked_for_the_same_identifiers(done: Run) -> None:
    models = {model["recipe"]: model["inversion"] for model in to_json(done.evidence)["models"]}
    assert set(models) == {"base", "frozen", "tagged"}
    base = models["base"]
    assert base["direct"]["num_targets"]["members"] > 10
    for found in models.values():
        for kind in ("direct", "indirect"):
            assert found[kind]["num_targets"] == base[kind]["num_targets"]
            assert found[kind]["chance"]["top1"] == 0.25
        assert found["association"]["num_terms"] == base["association"]["num_terms"]
    assert models["frozen"]["embedding_shift"]["input"]["value"] == 0.5


def test_inversion_stands_in_the_report_and_names_nobody(done: Run) -> None:
    folder = done.folder / "report"
    shown = (folder / "report.html").read_text() + (folder / "report.json").read_text()
    assert "Identifiers that are context only" in shown
    assert "tokens given: 8, written: 8, samples: 1" in shown
    assert all("by_category" in model for model in json.loads((folder / "report.json").read_text())["models"])
    records = pq.read_table(done.folder.parent / "hospital" / "records.parquet")
    assert not [item for name in ("phone", "email", "last_name") for item in records[name].to_pylist() if item in shown]


def test_every_direct_word_has_the_category_of_its_span(done: Run) -> None:
    categories = read_categories(done, (MEMBERS, HELDOUT))
    store = open_tokens(done.folder / "tokens/m/audit")
    slots = words_of(store)
    found = categories.of_words(store, slots)
    assert ((found > 0) == ((slots.flags & DIRECT) > 0)).all()
    assert {"NAME", "DATE", "PHONE"} <= set(categories.names)
    with pytest.raises(ArtifactError, match="categories of"):
        categories.of_words(store.select(np.arange(3)), slots)


def test_scores_of_the_base_are_private_and_plain(done: Run) -> None:
    path = done.folder / "measures/m/base/epoch-0000/candidates.npz"
    assert path.stat().st_mode & 0o077 == 0
    assert set(load_candidates(path)) == {
        "direct", "indirect", "association", "direct_in_place", "indirect_in_place",
    }  # fmt: skip
    with pytest.raises(ArtifactError, match="not readable"):
        load_candidates(path.parent / "measures.json")


def test_candidate_texts_are_compared_with_the_held_out_documents_of_the_run(done: Run) -> None:
    (section,) = done.job.model
    scorer = Scorer(done.base_of(section), section.objective)
    heldout = scorer.heldout_of(done)
    assert heldout.num_documents > 5
    assert done.individuals.mask(HELDOUT)[heldout.individual].all()
    (row,) = scorer.measure([Candidate(1, "The patient was seen today.")], heldout)
    assert 0 <= row["quantile"] <= 1
    assert "ratio" not in row


def test_groups_that_the_job_names_are_individuals_of_the_run(done: Run, tmp_path: Path) -> None:
    ids = done.individuals.table["individual_id"].to_pylist()
    (tmp_path / "ward 7.txt").write_text("".join(f"{each}\n" for each in (*ids[:3], "somebody else")))
    values = done.job.model_dump()
    values["audit"]["groups"] = [str(tmp_path / "ward 7.txt")]
    found = named_groups(Run(parse_job(values)))
    assert {name: np.flatnonzero(mask).tolist() for name, mask in found.items()} == {"ward 7": [0, 1, 2]}
    values["audit"]["groups"] = [str(tmp_path / "none.txt")]
    with pytest.raises(PolicyError, match=r"none\.txt"):
        require_audit(Run(parse_job(values)))


def test_a_wrong_setting_is_refused_before_anything_runs(tmp_path: Path) -> None:
    values = job_values(tmp_path)
    values["audit"]["inversion"]["kinds"] = ["phone"]
    with pytest.raises(PolicyError, match=r"audit\.inversion\.kinds"):
        parse_job(values)
