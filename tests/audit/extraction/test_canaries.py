"""Canaries: fair coins, each arm what it says, bounds that match known numbers, nothing else in the corpus moved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from fixtures.drawing import share_of
from fixtures.models import toy_model, toy_tokenizer

from reticent import _rust
from reticent.audit.evidence.extraction import CanaryArm
from reticent.audit.stats.intervals import exposure
from reticent.core.errors import ArtifactError, CorpusError, PolicyError
from reticent.engine.canaries import (
    ARMS,
    CanaryConfig,
    Planted,
    common_words,
    draw_canaries,
    mark_spans,
    open_canaries,
    open_planted,
    plant,
    without_canaries,
    write_canaries,
)
from reticent.engine.corpus import Columns, Corpus, open_corpus
from reticent.engine.detect import detect_spans, make_detectors
from reticent.engine.schema import SPANS
from reticent.engine.split import Individuals, SplitConfig, split_individuals
from reticent.engine.store import TokenStore
from reticent.engine.synthetic import SynthConfig, synthesize
from reticent.ext.extraction import canaries as canary_audit
from reticent.ext.extraction.canaries import CanaryAudit, audit_canaries, exposures, one_run, tokens_of_canaries
from reticent.trainer.config import TrainConfig
from reticent.trainer.loop import train
from reticent.trainer.models import load_tokenizer, special_ids
from reticent.trainer.recipes import get_recipe

pytestmark = pytest.mark.usefixtures("one_thread")
CONFIG = CanaryConfig(num=6, repetitions=2, num_references=8, k=3, seed=5)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("hospital")
    synthesize(folder, SynthConfig(num_individuals=150, words_per_document=20, languages=("en",)))
    return open_corpus(str(folder / "documents"), columns=Columns(spans="spans", household_id="household_id"))


@pytest.fixture(scope="module")
def individuals(corpus: Corpus) -> Individuals:
    return split_individuals(corpus, SplitConfig(heldout=0.3))


@pytest.fixture(scope="module")
def folder(corpus: Corpus, individuals: Individuals, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("canaries")
    canaries = draw_canaries(individuals, common_words(corpus, individuals, CONFIG), CONFIG)
    write_canaries(canaries, folder)
    plant(corpus, individuals, canaries, folder, CONFIG)
    return folder


@pytest.fixture(scope="module")
def planted(folder: Path) -> Planted:
    return open_canaries(folder)


def columns_of(corpus: Corpus, *names: str) -> dict[str, list[Any]]:
    return pa.Table.from_batches(corpus.batches(columns=names)).to_pydict()


def test_coins_are_fair_and_kept(individuals: Individuals) -> None:
    words = [f"{chr(97 + n)}word" for n in range(26)]
    config = CanaryConfig(num=60, arms=("protected",), num_references=2)
    heads = [
        draw_canaries(individuals, words, CanaryConfig(num=60, arms=("protected",), num_references=2, seed=seed))
        .column("included").to_numpy()
        for seed in range(20)
    ]  # fmt: skip
    share = np.mean(heads)
    assert abs(share - 0.5) < 4 * 0.5 / np.sqrt(1200)
    again = draw_canaries(individuals, words, config).column("included").to_numpy()
    assert again.tolist() == heads[0].tolist()


def test_only_what_the_coin_chose_stands_in_the_documents_and_nothing_else_moved(
    corpus: Corpus, folder: Path, planted: Planted
) -> None:
    names = ("doc_id", "individual_id", "text", "household_id", "spans")
    before, after = columns_of(corpus, *names), columns_of(open_planted(folder), *names)
    assert [before[name] == after[name] for name in names] == [True, True, False, True, True]
    added = [new.removeprefix(old) for old, new in zip(before["text"], after["text"], strict=True)]
    owners = [(row, after["individual_id"][row], text) for row, text in enumerate(added) if text]
    found = 0
    for canary in planted.table.to_pylist():
        text = canary["prefix"] + canary["secret"] + canary["suffix"]
        copies = {who: sum(t.count(text) for _, w, t in owners if w == who) for who in canary["individual_ids"]}
        assert copies == dict.fromkeys(canary["individual_ids"], 2 if canary["included"] else 0)
        found += sum(copies.values()) * len(text)
    assert found == sum(map(len, added))  # every character is a canary's
    for place in planted.places.to_pylist():
        canary = planted.table.slice(place["canary"], 1).to_pylist()[0]
        text = after["text"][place["document"]]
        assert text[place["secret_start"] : place["secret_end"]] == canary["secret"]
        assert text[place["start"] : place["end"]].endswith(canary["suffix"])


def test_each_canary_has_members_of_its_own(planted: Planted, individuals: Individuals) -> None:
    carriers = planted.table.column("individual_ids").to_pylist()
    assert [len(ids) for ids in carriers] == [3 if arm == "missed" else 1 for arm in planted.arms]
    codes = individuals.individual_codes(pa.array([name for ids in carriers for name in ids]))
    assert individuals.mask("members")[codes].all()
    assert len(np.unique(individuals.units[codes])) == len(codes)
    assert set(planted.arms) == set(ARMS)


def test_too_few_members_are_refused(individuals: Individuals) -> None:
    with pytest.raises(CorpusError, match="of each arm need 600 members"):
        draw_canaries(individuals, ["a", "b"], CanaryConfig(num=100, k=3))
    with pytest.raises(PolicyError, match="arms"):
        CanaryConfig(arms=("protected", "protected"))


def test_spans_say_what_each_arm_is(folder: Path, planted: Planted, tmp_path: Path) -> None:
    corpus = open_planted(folder)
    detect_spans(corpus, make_detectors(["gold", "rules"], {"rules": {}}), tmp_path)
    before = pq.read_table(tmp_path / "spans.parquet")
    ids = corpus.scan().column("doc_id").combine_chunks()
    places = planted.places.to_pylist()
    # One that a detector might give: from the text before into a canary that nobody may find.
    missed = next(p for p in places if planted.arms[p["canary"]] == "missed")
    row = {"document": missed["document"], "doc_id": ids[missed["document"]].as_py(), "start": missed["start"] - 4,
           "end": missed["start"] + 9, "label": "NAME", "detector": "gold", "score": 1.0}  # fmt: skip
    both = pa.concat_tables([before, pa.Table.from_pylist([row], SPANS)])
    pq.write_table(both.sort_by([("document", "ascending"), ("start", "ascending")]), tmp_path / "spans.parquet")

    mark_spans(tmp_path / "spans.parquet", planted, ids, np.array([], dtype=np.int64))
    spans = pq.read_table(tmp_path / "spans.parquet")
    assert spans.schema.equals(SPANS)
    assert (np.diff(spans.column("document").to_numpy()) >= 0).all()
    inside = [
        (planted.arms[p["canary"]], s["detector"], (s["start"], s["end"]) == (p["secret_start"], p["secret_end"]))
        for p in places for s in spans.to_pylist()
        if s["document"] == p["document"] and s["start"] < p["end"] and s["end"] > p["start"]
    ]  # fmt: skip
    assert set(inside) == {("protected", "canary", True), ("context", "canary", True)}
    assert len(inside) == sum(planted.arms[p["canary"]] in ("protected", "context") for p in places)
    cut = [s for s in spans.to_pylist() if s["start"] == row["start"] and s["document"] == row["document"]]
    assert [s["end"] for s in cut] == [missed["start"]]  # what is before the canary stays protected


def test_spans_are_numbered_without_the_documents_in_quarantine(planted: Planted, folder: Path, tmp_path: Path) -> None:
    ids = open_planted(folder).scan().column("doc_id").combine_chunks()
    own = planted.places.filter(pa.array(np.isin(planted.arms[planted.places.column("canary").to_numpy()], ARMS[0])))
    gone = int(own.column("document")[0].as_py())
    pq.write_table(SPANS.empty_table(), tmp_path / "spans.parquet")
    mark_spans(tmp_path / "spans.parquet", planted, ids, np.array([gone]))
    spans = pq.read_table(tmp_path / "spans.parquet")
    kept = ids.take(pa.array(np.delete(np.arange(len(ids)), gone)))
    assert spans.num_rows > 0
    assert spans.column("doc_id").combine_chunks().equals(kept.take(spans.column("document").combine_chunks()))
    assert not pc.any(pc.equal(spans.column("doc_id"), ids[gone])).as_py()


def test_a_canary_that_stands_in_documents_of_the_quarantine_alone_was_not_trained_on(planted: Planted) -> None:
    document, canary = (planted.places.column(name).to_numpy() for name in ("document", "canary"))
    first = canary[0]
    all_of_it, one_of_another = document[canary == first], document[canary != first][:1]
    alone = np.setdiff1d(all_of_it, document[canary != first])  # a document has canaries of one individual only
    assert alone.tolist() == np.unique(all_of_it).tolist()
    left = planted.without(np.concatenate([all_of_it, one_of_another]))
    gone = {n for n in np.unique(canary) if np.isin(document[canary == n], one_of_another).all()}
    assert left.table.to_pylist() == [r for n, r in enumerate(planted.table.to_pylist()) if n not in {first, *gone}]
    owners = left.table.column("secret").take(left.places.column("canary")).to_pylist()
    stays = ~np.isin(document, np.concatenate([all_of_it, one_of_another]))
    assert owners == planted.table.column("secret").take(pa.array(canary[stays])).to_pylist()
    assert planted.without(np.empty(0, dtype=np.int64)).table.equals(planted.table)


def store_of(corpus: Corpus, tokenizer: str) -> TokenStore:
    """The tokens of a corpus, with a flag on every word that begins with a capital letter."""
    table = columns_of(corpus, "doc_id", "text")
    texts = pa.array(table["text"], pa.large_string())
    words = _rust.segment(texts)
    capital = np.zeros(int(words.doc_offsets[-1]), dtype=np.uint8)
    found = _rust.TokenEncoder(tokenizer).encode(texts, words, capital, capital)
    people = np.arange(len(texts), dtype=np.uint32)
    return TokenStore(
        found.input_ids, found.word_ids, found.flags, found.ngram_starts, found.doc_offsets, people,
        pa.array(table["doc_id"]),
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_tokens_without_canaries_are_those_of_the_documents_as_they_were(
    kind: str, planted: Planted, folder: Path, corpus: Corpus
) -> None:
    tokenizer = toy_tokenizer(kind)
    before, with_canaries = store_of(corpus, tokenizer), store_of(open_planted(folder), tokenizer)
    assert with_canaries.num_tokens > before.num_tokens
    few = with_canaries.select(np.arange(3, with_canaries.num_documents))  # in the order of another split
    for store, expected in ((with_canaries, before), (few, before.select(np.arange(3, before.num_documents)))):
        found = without_canaries(store, planted, open_planted(folder), tokenizer)
        assert found.input_ids.tolist() == expected.input_ids.tolist()
        assert found.word_ids.tolist() == expected.word_ids.tolist()
        assert found.doc_offsets.tolist() == expected.doc_offsets.tolist()
        assert found.doc_ids.equals(expected.doc_ids)
    none = planted.without(np.arange(before.num_documents))
    assert without_canaries(before, none, open_planted(folder), tokenizer) is before


def test_the_tokens_asked_for_are_the_secret_or_the_words_after_it(planted: Planted) -> None:
    tokens = tokens_of_canaries(planted, toy_tokenizer("gpt2"))
    tokenizer = load_tokenizer(toy_tokenizer("gpt2"))
    assert tokens.width == 9
    for number, canary in enumerate(planted.table.to_pylist()):
        secrets = [canary["secret"], *canary["references"]]
        for row in (0, 1, 8):
            part = slice(*tokens.store.doc_offsets[number * 9 + row : number * 9 + row + 2])
            ids, secret, asked = tokens.store.input_ids[part], tokens.secret[part], tokens.store.flags[part] != 0
            assert tokenizer.decode(ids) == canary["prefix"] + secrets[row] + canary["suffix"]
            assert tokenizer.decode(ids[secret]).replace(" ", "") == secrets[row].replace(" ", "")
            wanted = canary["suffix"].strip(" .") if canary["arm"] == "context" else secrets[row]
            # Of words: a space that is a token of its own belongs to none.
            assert tokenizer.decode(ids[asked]).replace(" ", "") == wanted.replace(" ", "")


def test_exposures_are_those_of_the_protocol() -> None:
    references = np.tile(-np.arange(1.0, 17.0), (4, 1))
    scores = np.array([0.0, -3.5, -20.0, -4.0])
    found = exposures(scores, references)
    assert found[:3] == pytest.approx([4.0, 2.0, -0.087463], abs=1e-6)
    assert found == pytest.approx([exposure(s, r) for s, r in zip(scores, references, strict=True)])
    assert exposures(np.ones(1), np.zeros((1, 1001)))[0] == np.log2(1001)


@pytest.mark.parametrize(
    ("m", "r", "v", "delta", "expected"),
    [(1000, 100, 100, 0.0, 3.492965), (1000, 100, 95, 1e-5, 2.165176), (1000, 200, 180, 1e-5, 1.796285),
     (1000, 1000, 600, 1e-5, 0.297227), (500, 250, 150, 0.0, 0.185912)],
)  # fmt: skip
def test_one_run_bounds_are_the_golden_numbers(m: int, r: int, v: int, delta: float, expected: float) -> None:
    included = np.arange(m) >= m // 2
    scores = np.arange(m, dtype=float)
    wrong = r - v
    included[m - wrong :] = False  # that many of the surest guesses are wrong
    found = one_run(scores, included, guesses=r / m, delta=delta)
    assert (found.num_guesses, found.num_right) == (r, v)
    assert found.at_least == pytest.approx(expected, abs=1e-6)
    assert found.most >= found.at_least


COINS = [(e, num, g) for e, num in ((0.0, 25), (0.0, 200), (1.0, 50), (1.0, 200), (2.0, 200)) for g in (0.25, 0.5, 1.0)]


@pytest.mark.parametrize(("epsilon", "num_canaries", "guesses"), share_of(COINS, least=4))
def test_the_one_run_bound_is_over_the_truth_once_in_twenty(epsilon: float, num_canaries: int, guesses: float) -> None:
    """Of scores that tell each coin as well as randomised response with this epsilon, which no mechanism beats; 600
    draws, of which at most 5 % and two standard errors may be over."""
    random, num_draws, bounds = np.random.default_rng(int(10 * epsilon) + num_canaries), 600, {}
    over = 0
    for _ in range(num_draws):
        included = random.random(num_canaries) < 0.5
        told = np.where(random.random(num_canaries) < 1 / (1 + np.exp(-epsilon)), included, ~included)
        scores = told + random.random(num_canaries) / 2
        each = int(num_canaries * guesses / 2)
        order = np.argsort(scores, kind="stable")
        right = int(included[order[len(order) - each :]].sum() + (~included[order[:each]]).sum())
        if right not in bounds:
            found = one_run(scores, included, guesses=guesses, delta=0.0)
            assert found.num_right == right
            bounds[right] = found.at_least
        over += bounds[right] > epsilon
    assert over / num_draws <= 0.05 + 2 * (0.05 * 0.95 / num_draws) ** 0.5


def test_scores_that_know_nothing_bound_nothing() -> None:
    random = np.random.default_rng(0)
    found = one_run(random.random(200), random.random(200) < 0.5, guesses=1.0, delta=1e-5)
    assert found.at_least < 0.5
    assert one_run(np.ones(1), np.ones(1, dtype=bool), guesses=0.5, delta=0.0).at_least is None


def test_the_difference_of_exposures_is_one_of_bits_and_not_of_rates(
    planted: Planted, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = tokens_of_canaries(planted, toy_tokenizer("bert"))
    special = special_ids(load_tokenizer(toy_tokenizer("bert")), "mlm")
    # Of 8 references all are likelier than a canary that was included, and four than one that was left out.
    own = np.where(tokens.included, -99, -4.5)[:, None]
    scores = np.concatenate([own, np.tile(-np.arange(1.0, 9.0), (len(own), 1))], axis=1)
    monkeypatch.setattr(canary_audit, "_scores", lambda *_: scores.ravel())
    found = audit_canaries(None, "mlm", tokens, special, CanaryAudit(num_bootstrap=100))  # type: ignore[arg-type]
    excess = [about.excess_exposure for about in found.arms.values()]
    measured = [one.value for one in excess if one is not None]  # without two canaries on a side there is none
    assert measured
    assert measured == pytest.approx([np.log2(5 / 9)] * len(measured))


@pytest.mark.parametrize("objective", ["clm", "mlm"])
def test_a_model_that_knows_nothing_gives_canaries_no_bits(planted: Planted, objective: str) -> None:
    kind = "gpt2" if objective == "clm" else "bert"
    tokens = tokens_of_canaries(planted, toy_tokenizer(kind))
    special = special_ids(load_tokenizer(toy_tokenizer(kind)), objective)
    config = CanaryAudit(num_bootstrap=100, window_length=128, device="cpu")
    found = audit_canaries(toy_model(kind, max_length=128), objective, tokens, special, config)
    assert found.most_exposure == 3
    assert set(found.arms) == set(ARMS)
    for arm, about in found.arms.items():
        assert about.exposure.included.n == about.num_included
        assert about.exposure.included.unit == "canaries"
        assert (about.extracted is not None) == (objective == "clm" and arm != "context")
    mean = np.mean([about.exposure.excluded.value for about in found.arms.values()])
    assert mean < 2.2
    if objective == "clm":
        assert found.arms["ngram"].extracted.excluded.value == 0
        assert found.arms["ngram"].extracted.excluded.high > 0.3


@pytest.fixture(scope="module")
def trained(planted: Planted, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, CanaryArm]]:
    """The audit of a model trained on the canaries by heart, plainly and with protection."""
    tokens = tokens_of_canaries(planted, toy_tokenizer("gpt2"))
    chosen = np.flatnonzero(tokens.included)
    store = tokens.store.select(chosen * tokens.width)
    marked = np.isin(tokens.arms[store.individual], ("protected", "context"))
    secret = np.concatenate([tokens.secret[slice(*tokens.store.doc_offsets[d : d + 2])] for d in chosen * tokens.width])
    flags = secret & np.repeat(marked, np.diff(store.doc_offsets))
    store = store.with_columns(flags=flags.astype(np.uint8), path=None)
    config = TrainConfig(num_epochs=150, checkpoint_epochs=(150,), learning_rate=5e-3, window_length=128, batch_size=16,
                         device="cpu")  # fmt: skip
    special = special_ids(load_tokenizer(toy_tokenizer("gpt2")), "clm")
    audits = {}
    for recipe in ("clm", "ppclm"):
        model = toy_model("gpt2", hidden_size=64, max_length=128)
        train(model, store, get_recipe(recipe), config, tmp_path_factory.mktemp(recipe),
              tokenizer=toy_tokenizer("gpt2"), has_spans_and_index=True)  # fmt: skip
        audit = CanaryAudit(num_bootstrap=100, window_length=128, device="cpu")
        audits[recipe] = audit_canaries(model, "clm", tokens, special, audit).arms
    return audits


def test_a_memorised_canary_has_all_bits_and_is_extracted(trained: dict[str, dict[str, CanaryArm]]) -> None:
    for arm in ("protected", "missed"):
        found = trained["clm"][arm]
        assert found.exposure.included.value > 2.7  # of 3
        assert found.extracted.included.value > 0.6
        assert found.exposure.excluded.value < 2.5
        assert found.extracted.excluded.value == 0


def test_a_protected_canary_is_kept_from_the_model_that_knows_the_missed_ones(
    trained: dict[str, dict[str, CanaryArm]],
) -> None:
    found = trained["ppclm"]
    assert found["missed"].exposure.included.value > 2.7
    assert found["missed"].extracted.included.value > 0.6
    assert found["protected"].exposure.included.value < 2.5
    zero = found["protected"].extracted.included
    assert zero.value == 0
    assert zero.high == pytest.approx(1 - 0.05 ** (1 / zero.n))  # no zero without its bound


def test_damaged_canaries_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"arm": ["protected"]}), tmp_path / "canaries.parquet")
    with pytest.raises(ArtifactError, match=r"canaries.parquet: not a table of this version"):
        open_canaries(tmp_path)
