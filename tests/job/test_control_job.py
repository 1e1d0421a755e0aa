"""A positive control in a job: the documents of some members are seen eight times, and the audit asks of these."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.models import toy_model, toy_tokenizer

from reticent.core.errors import PolicyError
from reticent.engine.schema import HELDOUT, MEMBERS, SPLITS
from reticent.engine.split import Individuals, draw_repeated
from reticent.engine.store import open_tokens
from reticent.engine.synthetic import SynthConfig, synthesize
from reticent.job.checks import refuse_too_few
from reticent.job.config import parse_job
from reticent.job.pipeline import execute
from reticent.job.run import Run
from reticent.job.training_tokens import verify_training
from reticent.trainer.config import TIMES_REPEATED

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("num", [100, 10_000])
def test_both_sides_are_drawn_alike_by_household_and_no_one_else(num: int) -> None:
    units = np.arange(2000) // 2
    side = np.random.default_rng(0).choice(3, 1000, p=[0.5, 0.4, 0.1])[units]
    column = pa.DictionaryArray.from_arrays(pa.array(side.astype(np.int8)), pa.array(SPLITS))
    individuals = Individuals(pa.table({"unit": pa.array(units.astype(np.uint32)), "split": column}))
    drawn, members = draw_repeated(individuals, num, seed=3), individuals.mask(MEMBERS)
    sides = [len(np.unique(individuals.units[drawn & side])) for side in (members, individuals.mask(HELDOUT))]
    all_sides = [len(np.unique(individuals.units[side])) for side in (members, individuals.mask(HELDOUT))]
    assert sides[0] == min(num, all_sides[0])
    assert sides[1] / all_sides[1] == pytest.approx(sides[0] / all_sides[0], abs=0.08)
    assert not (drawn & ~individuals.mask(MEMBERS, HELDOUT)).any()
    assert np.array_equal(drawn, draw_repeated(individuals, num, seed=3))


def test_a_control_is_plain_and_has_its_members(tmp_path: Path) -> None:
    control = {"name": "control", "base": "b", "objective": "clm", "recipes": ["clm"], "repeated": 100}
    values = {"out": str(tmp_path / "run"), "corpus": {"source": "notes"}, "model": [control]}
    for wrong in ({"recipes": ["clm", "ppclm"]}, {"repeated": 99}):
        with pytest.raises(PolicyError, match="repeated"):
            parse_job({**values, "model": [control | wrong]})
    job = parse_job(values)
    refuse_too_few(job, (100, 5))
    with pytest.raises(PolicyError, match="model control: repeated = 100 of 93 members: 7 are missing"):
        refuse_too_few(job, (93, 5))


def test_a_control_sees_some_members_eight_times_and_is_attacked_on_these(tmp_path: Path) -> None:
    config = SynthConfig(num_individuals=220, words_per_document=20, documents_per_individual=1.0, languages=("en",))
    (tmp_path / "hospital").mkdir()
    synthesize(tmp_path / "hospital", config)
    toy_model("gpt2", max_length=128).save_pretrained(tmp_path / "base")
    (tmp_path / "base" / "tokenizer.json").write_text(toy_tokenizer("gpt2"))
    about = {"base": str(tmp_path / "base"), "objective": "clm"}
    job = parse_job({
        "out": str(tmp_path / "run"),
        "corpus": {"source": str(tmp_path / "hospital" / "documents"), "spans": "spans"},
        "detect": {"detectors": ["gold"]}, "split": {"heldout": 0.4},
        "recipes": {"plain": {"base": "clm"}},  # of the recipe clm alone there are shadows
        "model": [{"name": "m", **about, "recipes": ["plain"]},
                  {"name": "control", **about, "recipes": ["clm"], "repeated": 100}],
        "train": {"num_epochs": 1, "window_length": 128, "batch_size": 16, "device": "cpu"},
        "audit": {"num_bootstrap": 100, "attacks": ["loss", "zlib"], "shadow": {"recipes": ["clm"], "num_shadows": 4}},
    })  # fmt: skip
    run = Run(job)
    execute(run, "audit")
    drawn = draw_repeated(run.individuals, 100, seed=job.seed)
    members, others = (int((drawn & run.individuals.mask(side)).sum()) for side in (MEMBERS, HELDOUT))
    assert members == 100
    models = {(model.model, model.recipe): model for model in run.evidence.models}
    for own in (models["control", "base"], models["control", "clm"]):
        attack = own.membership["loss"]
        assert (attack.num_members, attack.num_nonmembers) == (members, others)
    assert models["control", "clm"].membership["lira_online"].num_shadows == 4
    assert (models["m", "plain"].membership["loss"].num_members or 0) > members
    scores = pq.read_table(tmp_path / "run" / "shadows" / "control" / "clm" / "00" / "scores.parquet")
    assert scores.num_rows == members + others
    # What was trained on, by its ledger, which is drawn again from the tokens.
    store = open_tokens(tmp_path / "run" / "tokens" / "control" / "train")
    lengths = np.diff(store.doc_offsets) + 1  # the end of each is a target too
    seen = int((lengths * np.where(drawn[store.individual], TIMES_REPEATED, 1)).sum())
    ledgers = {name: own.ledger for name, own in models.items() if own.ledger}
    assert (ledgers["m", "plain"].eligible, ledgers["control", "clm"].eligible) == (lengths.sum(), seen)
    folder = tmp_path / "run" / "models" / "control" / "clm"
    assert verify_training(run, "control", "clm", folder / "ledger.json").mismatches == []
