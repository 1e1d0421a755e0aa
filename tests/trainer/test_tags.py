"""Taggers: the tags of tokens by an oracle, strict F1, what is learned from surrogates, DP-SGD, what is refused."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fixtures.drawing import examples
from fixtures.models import write_toy_model
from fixtures.private import dp
from fixtures.stores import Token, make_store, random_store
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score

from reticent.core.errors import ArtifactError, CorpusError, PolicyError
from reticent.engine.detect.labels import CATEGORIES
from reticent.engine.pseudonymize import PRIORITY
from reticent.engine.schema import IGNORE_INDEX
from reticent.engine.store import TokenStore
from reticent.ext.classify.tags import TagConfig, TaggedTokens, found_identifiers, measure_tags, tag, tag_documents
from reticent.trainer.privacy import plan_privacy

pytestmark = pytest.mark.usefixtures("one_thread")

QUICK: dict[str, Any] = {"window_length": 16, "batch_size": 4, "num_epochs": 2, "device": "cpu", "text": "keep"}
Span = tuple[int, int, str]


def spans_of(*documents: list[Span]) -> Any:
    """Word spans, as a run has them, of (first word, end, label)."""
    flat = [span for document in documents for span in document]
    names = list(dict.fromkeys(label for *_, label in flat))
    return SimpleNamespace(
        doc_offsets=np.cumsum([0, *map(len, documents)]).astype(np.int64),
        firsts=np.array([first for first, *_ in flat], dtype=np.uint32),
        ends=np.array([end for _, end, _ in flat], dtype=np.uint32),
        labels=np.array([names.index(label) for *_, label in flat], dtype=np.uint16),
        names=names,
    )


def named(tags: np.ndarray, documents: TaggedTokens) -> list[str]:
    return ["-" if tag == IGNORE_INDEX else documents.class_names[tag] for tag in tags]


def expected(store: TokenStore, spans: list[list[Span]]) -> list[str]:
    """Tags by definition: spans that share a word are joined; a token between words is of the one on both sides."""
    found = []
    for number, own in enumerate(spans):
        groups: list[list[Span]] = []
        for span in sorted(span for span in own if span[1] > span[0]):
            if groups and span[0] < max(end for _, end, _ in groups[-1]):
                groups[-1].append(span)
            else:
                groups.append([span])
        words = store.word_ids[store.doc_offsets[number] : store.doc_offsets[number + 1]].tolist()
        of_token: list[int | None] = []
        for at, word in enumerate(words):
            beside = [word]
            if word < 0:
                before = [w for w in words[:at] if w >= 0][-1:]
                beside = [*before, *[w for w in words[at:] if w >= 0][:1]]
            groups_of = {
                next((g for g, group in enumerate(groups) if group[0][0] <= w < max(e for _, e, _ in group)), None)
                for w in beside
            }
            of_token.append(groups_of.pop() if len(groups_of) == 1 and (word >= 0 or len(beside) == 2) else None)
        for at, group in enumerate(of_token):
            if group is None:
                found.append("O")
                continue
            best = min(groups[group], key=lambda span: (span[0] - span[1], PRIORITY.index(span[2])))
            begins = at == 0 or of_token[at - 1] != group
            found.append(f"{'B' if begins else 'I'}-{best[2]}")
    return found


@settings(deadline=None, max_examples=examples(100))
@given(
    st.integers(0, 10**6),
    st.lists(
        st.lists(st.tuples(st.integers(0, 8), st.integers(0, 4), st.sampled_from(CATEGORIES[:3])), max_size=5),
        min_size=4, max_size=4,
    ),
)  # fmt: skip
def test_tags_match_oracle(seed: int, drawn: list[list[tuple[int, int, str]]]) -> None:
    store = random_store(8, length=10, seed=seed)
    # Four documents to train on, and the same spans in four held-out ones; the last ones let every category be learned.
    spans = [[(first, first + length, label) for first, length, label in own] for own in drawn] * 2
    every = [(number, number + 1, label) for number, label in enumerate(CATEGORIES[:3])]
    more = make_store(*[[(5, word, 0) for word in range(3)] for _ in range(4)])
    both = joined(store, more)
    spans += [every] * 4
    found = tag_documents(both, spans_of(*spans), np.array([1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0], dtype=bool))
    assert found.categories == CATEGORIES[:3]
    assert named(found.tags, found) == expected(both, spans)


def joined(*stores: TokenStore) -> TokenStore:
    documents = [
        [*zip(*(column[a:b].tolist() for column in (store.input_ids, store.word_ids, store.flags)), strict=True)]
        for store in stores
        for a, b in itertools.pairwise(store.doc_offsets.tolist())
    ]
    return make_store(*documents)


@pytest.mark.parametrize(
    ("tags", "ends", "found"),
    [
        # 1 B-A, 2 I-A, 3 B-B, 4 I-B
        ([0, 1, 2, 2, 0], [5], [(1, 4, 0)]),
        ([1, 1, 2], [3], [(0, 1, 0), (1, 3, 0)]),
        ([2, 2, 4, 3, 4], [5], [(0, 2, 0), (2, 3, 1), (3, 5, 1)]),
        ([1, 2, 2, 0], [2, 4], [(0, 2, 0), (2, 3, 0)]),  # none crosses the end of a document
        ([0, 0], [1, 1, 2], []),
    ],
)
def test_identifiers_of_tags(tags: list[int], ends: list[int], found: list[tuple[int, int, int]]) -> None:
    assert [*map(tuple, found_identifiers(np.array(tags), np.array([0, *ends])).tolist())] == found


def held_out(tags: list[int], individual: list[int], length: int) -> TaggedTokens:
    store = make_store(*[[(5, word, 0) for word in range(length)]] * len(individual), individual=individual)
    return TaggedTokens(
        store=store, categories=("NAME", "DATE"), tags=np.array(tags), left_out={},
        is_train=np.zeros(len(individual), dtype=bool),
    )  # fmt: skip


def test_strict_f1_worked_by_hand() -> None:
    # NAME: one of two is found, and one too many; the other one is cut short. DATE: found.
    documents = held_out([1, 2, 0, 3, 1, 2, 0, 0], [0, 1], 4)
    predicted = np.array([1, 2, 0, 3, 1, 0, 1, 0])
    found = measure_tags(documents, predicted, num_bootstrap=100, seed=0, small_cell=1)
    assert [row.f1.value for row in found.classes] == pytest.approx([2 / 5, 1.0])
    assert found.micro_f1.value == pytest.approx(4 / 7)
    assert found.macro_f1.value == pytest.approx((2 / 5 + 1) / 2)
    assert [(row.documents, row.individuals) for row in found.classes] == [(2, 2), (1, 1)]
    assert (found.documents, found.individuals, found.micro_f1.n) == (2, 2, 2)


@settings(deadline=None, max_examples=examples(50))
@given(st.lists(st.tuples(st.sampled_from([0, 1, 3]), st.sampled_from([0, 1, 3])), min_size=4, max_size=24))
def test_f1_of_identifiers_of_one_token_matches_scikit_learn(rows: list[tuple[int, int]]) -> None:
    rows = rows[: len(rows) // 4 * 4]
    true, predicted = (np.array(column) for column in zip(*rows, strict=True))
    documents = held_out(true.tolist(), list(range(len(rows) // 4)), 4)
    if (true > 0).any() or (predicted > 0).any():
        found = measure_tags(documents, predicted, num_bootstrap=100, seed=0, small_cell=1)
        assert found.micro_f1.value == pytest.approx(f1_score(true, predicted, labels=[1, 3], average="micro"))


# ------------------------------------------------------------------------------------------------------------- training


def sentences(num: int, *, is_surrogate: bool = False) -> tuple[TokenStore, Any]:
    """Documents "a NAME NAME b DATE", where the token before tells the category."""
    random = np.random.default_rng(7 if is_surrogate else 1)
    documents: list[list[Token]] = []
    for _ in range(num):
        first, second, day = random.integers(100, 200, 3).tolist()
        documents.append([(30, 0, 0), (first, 1, 1), (second, 2, 1), (31, 3, 0), (day, 4, 1), (32, 5, 0)])
    return make_store(*documents), spans_of(*[[(1, 3, "PERSON"), (4, 5, "DATE")]] * num)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_toy_model(tmp_path_factory.mktemp("base") / "bert", hidden_size=32)


@pytest.mark.parametrize("private", [False, True])
def test_a_tagger_learns_all_tags_and_leaves_a_plain_folder(base: Path, tmp_path: Path, private: bool) -> None:
    from transformers import AutoModelForTokenClassification

    if private:
        pytest.importorskip("opacus")
    store, spans = sentences(40)
    documents = tag_documents(store, spans, np.arange(40) < 30)
    config = TagConfig(
        **{**QUICK, "num_epochs": 12}, learning_rate=1e-2, checkpoint_epochs=(4, 12), private=private, warmup_ratio=0
    )
    privacy = dp(noise_multiplier=0.1, sample_rate=0.2) if private else None
    found = tag(base, documents, config, out=tmp_path / "tagger", privacy=privacy)
    measured = measure_tags(documents, found.predicted, num_bootstrap=100, seed=0, small_cell=1)
    assert measured.micro_f1.value > 0.6  # a new head finds none
    model = AutoModelForTokenClassification.from_pretrained(tmp_path / "tagger")
    assert [*model.config.id2label.values()] == ["O", "B-NAME", "I-NAME", "B-DATE", "I-DATE"]
    assert (tmp_path / "tagger/epoch-0004/model.safetensors").exists()
    ledger = json.loads((tmp_path / "tagger/ledger.json").read_text())
    assert ledger["recipe"]["head"] == "tags"
    assert ledger["violations"] == 0
    card = (tmp_path / "tagger/README.md").read_text()
    assert "pipeline_tag: token-classification" in card
    assert ("Trained by differentially private SGD: epsilon" in card) is private
    word = "embeddings.word_embeddings.weight"
    before, after = (
        AutoModelForTokenClassification.from_pretrained(folder).base_model.state_dict()[word]
        for folder in (base, tmp_path / "tagger")
    )
    assert np.array_equal(before.numpy(), after.numpy())


def test_text_that_changes_needs_the_texts_and_private_ones_stay_as_they_are(base: Path) -> None:
    store, spans = sentences(8)
    documents = tag_documents(store, spans, np.arange(8) < 4)
    with pytest.raises(PolicyError, match=r'tag.text: "surrogate" needs epoch_store'):
        tag(base, documents, TagConfig(**{**QUICK, "text": "surrogate"}))
    with pytest.raises(PolicyError, match=r'private: which words are replaced .* set text to "keep"'):
        TagConfig(private=True)
    with pytest.raises(PolicyError, match=r"tag.private: DP-SGD needs its settings"):
        tag(base, documents, TagConfig(**QUICK, private=True))


@pytest.mark.parametrize(
    ("spans", "options", "error", "message"),
    [
        ([[(0, 1, "NAME")], [], [(0, 1, "NAME")], []], {}, CorpusError, "at least 2 individuals .* got 0 categories"),
        ([[(0, 1, "NAME")], [(0, 1, "PER")], [], []], {}, CorpusError, "and of held-out ones; got 1 categories"),
        ([[(0, 1, "NAME")]] * 3, {}, ArtifactError, "spans of 3 documents for tokens of 4"),
        ([[(0, 1, "NAME")]] * 4, {"households": np.array([0, 1, 2, 0])}, ArtifactError, "1 households are on both"),
    ],
)
def test_identifiers_that_cannot_be_learned_are_refused(
    spans: list[list[Span]], options: dict[str, Any], error: type[Exception], message: str
) -> None:
    store = make_store(*[[(5, 0, 0), (6, 1, 0)]] * 4)
    with pytest.raises(error, match=message):
        tag_documents(store, spans_of(*spans), np.arange(4) < 2, **options)


def test_a_category_of_one_person_is_not_learned_and_not_counted_against_anybody() -> None:
    store = make_store(*[[(5, 0, 0), (6, 1, 0)]] * 6)
    rare = [(0, 1, "NAME"), (1, 2, "ID")]
    spans = spans_of(rare, *[[(0, 1, "NAME")]] * 4, rare)
    found = tag_documents(store, spans, np.arange(6) < 4)
    assert found.categories == ("NAME",)
    assert found.left_out == {"rare_categories": 1}
    assert found.tags.tolist() == [1, IGNORE_INDEX, *[1, 0] * 4, 1, IGNORE_INDEX]
    measured = measure_tags(found, np.array([1, 0, 1, 1]), num_bootstrap=100, seed=0, small_cell=1)
    assert measured.micro_f1.value == 1.0


def test_an_epsilon_that_nothing_is_learned_at_is_refused_with_the_least_that_would_do() -> None:
    pytest.importorskip("opacus")
    with pytest.raises(PolicyError, match=r"0\.05 needs noise .* epsilon (\d+\.\d\d) is the least") as caught:
        plan_privacy(dp(noise_multiplier=None, target_epsilon=0.05, sample_rate=None), 60, 8, 16)
    least = float(str(caught.value).split("epsilon ")[-1].split()[0])
    plan_privacy(dp(noise_multiplier=None, target_epsilon=least + 0.01, sample_rate=None), 60, 8, 16)


def test_a_private_tagger_has_households_as_units_and_a_warm_up_of_public_numbers(base: Path, tmp_path: Path) -> None:
    pytest.importorskip("opacus")
    store, spans = sentences(40)
    config = TagConfig(**QUICK, private=True, warmup_ratio=0.5)

    def trained(num: int, name: str, **options: Any) -> dict[str, Any]:
        documents = tag_documents(store, spans, np.arange(40) < num, households=np.arange(40) // 2)
        tag(base, documents, config, out=tmp_path / name, privacy=dp(**options))
        return json.loads((tmp_path / name / "ledger.json").read_text())

    of_households = trained(30, "households", unit="household")
    assert "per household" in of_households["privacy"]["guarantee"]
    assert of_households["privacy"]["num_units"] == 15
    assert of_households["settings"]["warmup_steps"] == 2  # half of two epochs of two samples
    many, few = (trained(num, f"of-{num}", num_units=16, sample_rate=None) for num in (30, 20))
    assert many["settings"]["warmup_steps"] == few["settings"]["warmup_steps"] == 4
    with pytest.raises(PolicyError, match="name no households"):
        tag(base, tag_documents(store, spans, np.arange(40) < 30), config, privacy=dp(unit="household"))


def test_one_individual_more_adds_no_tag_to_a_private_tagger() -> None:
    store = make_store(*[[(5, 0, 0), (6, 1, 0)]] * 4)
    spans = spans_of([(0, 1, "NAME"), (1, 2, "ID")], *[[(0, 1, "NAME")]] * 3)
    assert tag_documents(store, spans, np.arange(4) < 2).categories == ("NAME",)
    found = tag_documents(store, spans, np.arange(4) < 2, fewest=0)
    assert found.categories == CATEGORIES
    predicted = found.tags[4:]
    assert measure_tags(found, predicted, num_bootstrap=100, seed=0, small_cell=1).macro_f1.value == 1.0
