"""A job whose recipe replaces identifiers in the context: trained, verified, made again for another pool."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from fixtures.jobs import Values, changed, make_hospital, values_of
from fixtures.models import write_toy_model

from reticent.core.errors import PolicyError
from reticent.engine.ngrams import NgramIndex
from reticent.job.config import parse_job
from reticent.job.pipeline import execute
from reticent.job.run import Run
from reticent.job.training_tokens import Drawn, public_context, verify_training
from reticent.trainer.verify import read_ledger

pytestmark = [pytest.mark.usefixtures("one_thread", "without_figures"), pytest.mark.heavy]


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> Values:
    hospital = make_hospital(tmp_path_factory.mktemp("hospital"), 24)
    base = write_toy_model(hospital / "bert")
    (hospital / "public.txt").write_text("river\nstone\ngarden\nsummer\n42\n1999\n", encoding="utf-8")
    values = changed(values_of(hospital, hospital / "run"), model__base=str(base))
    values["train"] = {"num_epochs": 1, "window_length": 32, "batch_size": 8}
    values["protect"] = {"k": 2, "n": 1}
    values["model"][0]["recipes"] = ["ppmlm-surrogate"]
    values["surrogates"] = {"pool": str(hospital / "public.txt")}
    execute(Run(parse_job(values)), "train")
    return values


def test_no_word_that_identifies_was_read_and_the_ledger_is_verified(values: Values) -> None:
    ledger = Path(values["out"]) / "models/toy/ppmlm-surrogate/ledger.json"
    content = read_ledger(ledger)
    assert content["replaced"] > 100
    assert content["read"] == content["violations"] == 0
    verdict = verify_training(Run(parse_job(values)), "toy", "ppmlm-surrogate", ledger)
    assert verdict.mismatches == []
    assert verdict.counts is not None
    assert verdict.counts["replaced"] == content["replaced"]


def test_another_pool_is_another_training_and_one_that_is_missing_is_refused_at_once(values: Values) -> None:
    missing = Run(parse_job(changed(values, surrogates__pool=str(Path(values["out"]) / "none.txt"))))
    with pytest.raises(PolicyError, match=r"surrogates\.pool: .*cannot be read .*choose a public pool"):
        execute(missing, "train")
    ledger = Path(values["out"]) / "models/toy/ppmlm-surrogate/ledger.json"
    before = read_ledger(ledger)["context"]["pool"]
    execute(Run(parse_job(changed(values, surrogates__pool="generated"))), "train")
    assert read_ledger(ledger)["context"]["pool"] != before


def test_the_x_of_pseudonymised_text_is_not_read_as_a_word_of_one_individual(values: Values) -> None:
    own = {f"mine-{base}": {"base": base, "context_indirect": "surrogate"} for base in ("mlma", "mlm")}
    run = Run(parse_job({**values, "recipes": own}))
    index = NgramIndex.from_tables(
        pa.record_batch({"word": ["X", "pain"], "support": pa.array([1, 3], pa.uint32()), "occurrences": [1, 3]},
                        schema=run.index().words().schema), [], max_n=1, num_units=3, num_documents=3, min_support=2,
        surface="exact",
    )  # fmt: skip
    drawn = Drawn(run.individuals, "", lambda: index)
    num_rare = {}
    for base in ("mlma", "mlm"):
        context = public_context(run, run.job.model[0], run.job.recipe(f"mine-{base}"), of=drawn)
        assert context is not None
        num_rare[base] = context.reader.num_rare
    assert num_rare == {"mlma": 0, "mlm": 1}
