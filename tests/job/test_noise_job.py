"""A job with a noisy threshold: no word below k is spared, the draws are kept, and without noise nothing changes."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from fixtures.jobs import Values, changed, make_hospital, values_of
from fixtures.models import toy_model, toy_tokenizer

from reticent import _rust
from reticent.core.errors import ArtifactError, PolicyError
from reticent.engine import dp_vocabulary
from reticent.engine.dp_vocabulary import word_order
from reticent.engine.ngrams import NgramIndex
from reticent.engine.schema import INDIRECT
from reticent.engine.store import TokenStore, open_tokens
from reticent.ext.dp.budget import read_budget
from reticent.job import noise, views
from reticent.job.checks import check_run, refuse_ineffective
from reticent.job.config import parse_job
from reticent.job.noise import KEY, _derive_key, protection_index
from reticent.job.pipeline import execute
from reticent.job.run import Run
from reticent.job.status import job_status
from reticent.job.text_checks import check_text
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
    execute(Run(parse_job(values)), "protect")
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
    execute(Run(parse_job(noisy)), "protect")
    found = indirect(open_tokens(place / "train")).copy()
    assert (found >= without).all()
    assert found.sum() > without.sum()
    assert open_tokens(place / "audit").flags_fingerprint() == audit
    key = (Path(values["out"]) / KEY).read_bytes()
    execute(Run(parse_job(values)), "protect")
    np.testing.assert_array_equal(indirect(open_tokens(place / "train")), without)
    execute(Run(parse_job(noisy)), "protect")
    np.testing.assert_array_equal(indirect(open_tokens(place / "train")), found)
    assert (Path(values["out"]) / KEY).read_bytes() == key


def test_noise_for_individuals_counts_their_voters_and_refuses_a_delta_of_one_of_them(
    values: Values, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Path(values["out"]) / "tokens/toy"
    execute(Run(parse_job(values)), "protect")
    without, audit = indirect(open_tokens(place / "train")).copy(), open_tokens(place / "audit").flags_fingerprint()
    of_individuals = {"threshold__unit": "individual", "threshold__max_words": 60, "threshold__delta": 0.05}
    run = Run(parse_job(changed(values, threshold__epsilon=500.0, **of_individuals)))
    execute(run, "protect")
    found = indirect(open_tokens(place / "train")).copy()
    assert (found >= without).all()
    assert without.sum() < found.sum() < len(found)
    assert open_tokens(place / "audit").flags_fingerprint() == audit

    # From the text: with next to no noise a word is spared if more than so many have it among their 60.
    order = word_order(_derive_key(run), (words := run.index().words().column("word")))
    place_of = {word: int(order[row]) for row, word in enumerate(words.to_pylist())}
    texts: dict[int, Counter[str]] = {}
    members = run.individuals.mask("members")
    for batch in run.corpus.batches(columns=("individual_id", "text")):
        for code, text in zip(
            run.individuals.individual_codes(batch.column("individual_id")), batch["text"].to_pylist(), strict=True
        ):
            if members[code]:
                found_words, raw = _rust.segment(pa.array([text], pa.large_string()), num_threads=1), text.encode()
                bounds = zip(found_words.starts, found_words.ends, strict=True)
                own = (raw[start:end].decode() for start, end in bounds)
                texts.setdefault(int(run.individuals.units[code]), Counter()).update(own)
    voters = Counter[str]()
    for own in texts.values():
        voters.update(sorted(own, key=lambda word: (-own[word], place_of[word]))[:60])
    settings = run.job.threshold.noise
    assert settings is not None
    shares = settings.shares(2, len(texts))
    spared = protection_index(run, run.index(), 2).words().column("support").to_numpy() >= 2
    for word, is_spared in zip(words.to_pylist(), spared, strict=True):
        if not 1e-9 < (share := shares[voters[word]]) < 1 - 1e-9:
            assert is_spared == (share > 0.5)
    assert 0 < spared.sum() < len(spared)

    # They are counted once for all who ask.
    monkeypatch.setattr(dp_vocabulary, "count_voters", lambda *_: pytest.fail("counted again"))
    assert (protection_index(run, run.index(), 3).words()["support"].to_numpy() >= 3).sum() <= spared.sum()
    monkeypatch.undo()

    with pytest.raises(PolicyError, match=r"threshold\.delta: 0\.5 is too much"):
        execute(
            Run(parse_job(changed(values, threshold__epsilon=8.0, **of_individuals | {"threshold__delta": 0.5}))),
            "protect",
        )
    for idle in ({"threshold__unit": "individual"}, {"threshold__epsilon": 1.0, "threshold__max_words": 5}):
        with pytest.raises(PolicyError, match="has no effect"):
            refuse_ineffective(parse_job(changed(values, **idle)), models=True, trains=True, audits=True)


def test_a_vocabulary_that_was_drawn_is_spent_whatever_ends_the_run(
    values: Values, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_individuals = {"threshold__unit": "individual", "threshold__epsilon": 3.0, "threshold__delta": 1e-3}
    noisy = changed(values, out=str(tmp_path / "run"), **of_individuals)
    file = tmp_path / "run/privacy-budget.json"

    def killed(*_: object, **__: object) -> None:
        assert [str(each.guarantee) for each in read_budget(file)] == ["epsilon 3.00 at delta 1e-3 per household"]
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(noise, "noisy_index", killed)
        with pytest.raises(KeyboardInterrupt):
            execute(Run(parse_job(noisy)), "protect")
    (spent,) = read_budget(file)
    assert not spent.settled
    execute(Run(parse_job(noisy)), "protect")
    execute(Run(parse_job(changed(noisy, protect__policy="all"))), "protect")  # the same draw
    (spent,) = read_budget(file)
    assert spent.settled
    assert spent.about["recipe"] == "vocabulary"
    execute(Run(parse_job(changed(noisy, threshold__epsilon=2.0))), "protect")
    assert [each.guarantee.epsilon for each in read_budget(file)] == [3.0, 2.0]

    model = {**noisy["model"][0], "recipes": [*noisy["model"][0]["recipes"], "dp-mlm"]}
    dp = {"noise_multiplier": 1.0, "budget_epsilon": 6.0, "budget_delta": 1e-2}
    more = changed(noisy, threshold__epsilon=4.0) | {"model": [model], "train": {"dp": dp}}
    with pytest.raises(PolicyError, match=r"the private vocabulary would spend epsilon 4\.00 .* epsilon 1\.00 is left"):
        execute(Run(parse_job(more)), "protect")
    assert len(read_budget(file)) == 2
    # Training is held to a delta of one in the number that is declared: what it would refuse then is not spent before.
    declared = {"noise_multiplier": 1.0, "budget_epsilon": 60.0, "num_units": 100_000}
    more = changed(more, threshold__epsilon=4.0) | {"train": {"dp": declared}}
    with pytest.raises(PolicyError, match=r"the private vocabulary would spend .* at delta 1e-5 per household"):
        execute(Run(parse_job(more)), "protect")
    assert len(read_budget(file)) == 2


def test_the_check_against_the_text_finds_words_that_noise_protects_and_no_flag_does(
    values: Values, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noisy = changed(values, out=str(tmp_path / "run"), threshold__epsilon=1.0, threshold__delta=0.05)
    execute(Run(parse_job(noisy)), "protect")
    found = check_text(Run(parse_job(noisy)))["tokens/toy/train"]
    assert found is not None
    assert found.holds
    assert found.unexplained == 0
    shutil.rmtree(tmp_path / "run/tokens/toy/train")
    with monkeypatch.context() as patch:
        patch.setattr(views, "protection_index", lambda run, index, *_, **__: index)
        execute(Run(parse_job(noisy)), "protect")
    with pytest.raises(ArtifactError, match=r"tokens of direct and [1-9]"):
        check_text(Run(parse_job(noisy)))


def test_noise_is_of_single_words(values: Values) -> None:
    with pytest.raises(PolicyError, match=r"it needs protect\.n = 1"):
        parse_job(changed(values, threshold__epsilon=1.0, protect__n=2, index__max_n=2))


@pytest.mark.parametrize("unit", ["word", "individual"])
def test_noise_is_refused_where_an_individual_takes_documents_of_others_out(unit: str, values: Values) -> None:
    """Whose copy stays depends on who takes part: one individual more would move the words of all whose copies go."""
    job = changed(values, threshold__epsilon=1.0, threshold__unit=unit, dedup__mode="exact", dedup__scope="corpus")
    with pytest.raises(PolicyError, match=r"threshold\.epsilon: .* dedup\.scope"):
        execute(Run(parse_job(job)), "protect")
    about = {"counts": True, "models": True, "trains": False, "classifies": False, "audits": False}
    check_run(Run(parse_job(changed(job, dedup__scope="individual"))), **about)


def test_other_documents_and_another_epsilon_are_drawn_afresh_under_the_key_of_the_folder(values: Values) -> None:
    words = pa.array([f"w{number:04}" for number in range(2000)], pa.large_string())
    counts = pa.array(np.full(2000, 3), pa.uint32())

    def spared(run: Run) -> set[int]:
        table = pa.record_batch([words, counts, pa.array(np.full(2000, 3), pa.uint64())], schema=schema)
        index = NgramIndex.from_tables(
            table, [], max_n=1, num_units=3, num_documents=3, min_support=2, surface="exact"
        )  # fmt: skip
        found = protection_index(run, index, 2).words().column("support").to_numpy()
        return set(np.flatnonzero(found >= 2).tolist())

    run = Run(parse_job(changed(values, threshold__epsilon=1.0, threshold__delta=0.2)))
    execute(run, "index")
    schema = run.index().words().schema
    first = spared(run)
    assert first == spared(run)
    assert 900 < len(first) < 1600
    # Drawn by the same numbers the words spared would be nested, and the difference would tell who came.
    more = Run(parse_job(changed(values, threshold__epsilon=1.0, threshold__delta=0.3)))
    assert len(first - spared(more)) > 50
    run.fingerprints._known[Path(values["out"]) / "index"] = "of other documents"
    assert len(first - spared(run)) > 50
