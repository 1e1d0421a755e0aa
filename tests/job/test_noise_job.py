"""A job with a noisy threshold: no word below k is spared, the draws are kept, and without noise nothing changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from fixtures.jobs import Values, changed, make_hospital, values_of
from fixtures.models import toy_model, toy_tokenizer

from reticent.core.errors import PolicyError
from reticent.engine.ngrams import NgramIndex
from reticent.engine.schema import INDIRECT
from reticent.engine.store import TokenStore, open_tokens
from reticent.job.config import parse_job
from reticent.job.noise import KEY, protecting
from reticent.job.run import Run
from reticent.job.status import job_status
from reticent.trainer.export import write_model
from reticent.trainer.models import load_tokenizer
from reticent.trainer.recipes import get_recipe

pytestmark = [pytest.mark.usefixtures("one_thread", "without_figures"), pytest.mark.heavy]


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> Values:
    hospital = make_hospital(tmp_path_factory.mktemp("hospital"), 16)
    base = hospital / "bert"
    write_model(toy_model("bert"), load_tokenizer(toy_tokenizer("bert")), base, recipe=get_recipe("mlm"), epoch=0)
    values = changed(values_of(hospital, hospital / "run"), model__base=str(base))
    values["protect"] = {"k": 2, "n": 1}
    Run(parse_job(values)).execute("protect")
    return values


def indirect(store: TokenStore) -> np.ndarray:
    return (store.flags & INDIRECT) != 0


def test_noise_protects_more_words_and_the_draws_are_kept(values: Values) -> None:
    place = Path(values["out"]) / "tokens/toy"
    without, audit = indirect(open_tokens(place / "train")).copy(), open_tokens(place / "audit").flags_fingerprint()
    noisy = changed(values, threshold__epsilon=1.0, threshold__delta=0.05)
    states = {about["name"]: about["state"] for about in job_status(Run(parse_job(noisy)))["artifacts"]}
    assert states["tokens/toy/train"] != "done"
    assert not (Path(values["out"]) / KEY).exists()  # a look draws nothing
    Run(parse_job(noisy)).execute("protect")
    found = indirect(open_tokens(place / "train")).copy()
    assert (found >= without).all()
    assert found.sum() > without.sum()
    assert open_tokens(place / "audit").flags_fingerprint() == audit
    key = (Path(values["out"]) / KEY).read_bytes()
    Run(parse_job(values)).execute("protect")
    np.testing.assert_array_equal(indirect(open_tokens(place / "train")), without)
    Run(parse_job(noisy)).execute("protect")
    np.testing.assert_array_equal(indirect(open_tokens(place / "train")), found)
    assert (Path(values["out"]) / KEY).read_bytes() == key


def test_noise_is_of_single_words(values: Values) -> None:
    with pytest.raises(PolicyError, match=r"it needs protect\.n = 1"):
        parse_job(changed(values, threshold__epsilon=1.0, protect__n=2, index__max_n=2))


def test_other_documents_and_another_epsilon_are_drawn_afresh_under_the_key_of_the_folder(values: Values) -> None:
    words = pa.array([f"w{number:04}" for number in range(2000)], pa.large_string())
    counts = pa.array(np.full(2000, 3), pa.uint32())

    def spared(run: Run) -> set[int]:
        table = pa.record_batch([words, counts, pa.array(np.full(2000, 3), pa.uint64())], schema=schema)
        index = NgramIndex.from_tables(
            table, [], max_n=1, num_units=3, num_documents=3, min_support=2, surface="exact"
        )  # fmt: skip
        found = protecting(run, index, 2).words().column("support").to_numpy()
        return set(np.flatnonzero(found >= 2).tolist())

    run = Run(parse_job(changed(values, threshold__epsilon=1.0, threshold__delta=0.2)))
    run.execute("index")
    schema = run.index().words().schema
    first = spared(run)
    assert first == spared(run)
    assert 900 < len(first) < 1600
    # Drawn by the same numbers the words spared would be nested, and the difference would tell who came.
    more = Run(parse_job(changed(values, threshold__epsilon=1.0, threshold__delta=0.3)))
    assert len(first - spared(more)) > 50
    run.fingerprints._known[Path(values["out"]) / "index"] = "of other documents"
    assert len(first - spared(run)) > 50
