"""Public words where identifying ones stood: none that identifies is read, and a hole in the flags stops a training."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fixtures.cases import written_case
from fixtures.models import toy_model, toy_tokenizer
from fixtures.tokenizer_kinds import KINDS, tokenizer_json
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from reticent.core.errors import PolicyError, TrainingError
from reticent.engine.context_kernels import draw_surrogates
from reticent.engine.index import IndexConfig, build_index
from reticent.engine.kernels import _hash, _mix
from reticent.engine.protect import Policy
from reticent.engine.public_words import ContextWords, PublicWords, context_words, read_public_words
from reticent.engine.schema import INDIRECT, MEMBERS
from reticent.engine.store import TokenStore
from reticent.trainer.config import TrainConfig
from reticent.trainer.context import BatchContext, context_of
from reticent.trainer.labels import make_targets
from reticent.trainer.ledger import CONTEXT_COUNTS, Ledger
from reticent.trainer.loop import train
from reticent.trainer.recipes import custom_recipe, get_recipe
from reticent.trainer.verify import read_ledger, verify_ledger
from reticent.trainer.windows import SpecialIds, Windows, cut_windows

BARE = SpecialIds(prefix=None, suffix=None, pad=0, mask=4)
PUBLIC = PublicWords(("river", "stone", "garden", "summer", "winter", "ab", "cd", "12", "7", "x", "été"), "test")
POOL = read_public_words("generated")
#: Words that several share, and words that one may have alone, each in the spellings that tokenizers may make one.
SHARED = ["the", "patient", "pain", "was", "as", "12", "12/03/2020"]
RARE = [
    "Smith",
    "smith",
    "AS",
    "Élie",
    "E\u0301lie",
    "X-7",
    "1999",
    "1/2/1999",
    "electroencephalography",
    "患者",
    "o'neill",
    "co.",
]
CASES = st.lists(st.lists(st.sampled_from(SHARED + RARE), min_size=1, max_size=12), min_size=3, max_size=6)


def protected(folder: Path, texts: list[str], tokenizer: str, k: int = 2) -> tuple[TokenStore, Any]:
    """Return the tokens of texts of an individual each, and the index that protects them."""
    case = written_case(folder, [(f"p{number}", text) for number, text in enumerate(texts)])
    index = build_index(case.corpus, case.individuals, splits=(MEMBERS,), config=IndexConfig(max_n=1))
    options = {"index": index, "spans": case.spans, "splits": (MEMBERS,), "policy": Policy(k=k)}
    return case.tokens("tokens", tokenizer, **options)[0], index


def inputs_of(
    store: TokenStore, words: ContextWords, *, epoch: int = 1, length: int = 16, recipe: str = "ippclm-surrogate"
) -> tuple[Windows, np.ndarray, Any, Ledger]:
    """Return the windows of a store, the inputs and the batch of all of them, and the ledger."""
    windows = cut_windows(store, length, BARE, pad_to_multiple_of=1)
    batch, ledger = windows.gather(np.arange(len(windows))), Ledger()
    context = BatchContext(words, windows, get_recipe(recipe), 0, epoch)
    options = {"mask_id": 4, "mask_share": 0.5, "seed": 0, "epoch": epoch, "context": context}
    targets = make_targets(batch, get_recipe(recipe), ledger, **options)
    return windows, targets.input_ids, (batch, targets), ledger


# ------------------------------------------------------------------ draws


def test_draws_are_those_of_a_loop_in_python() -> None:
    random = np.random.default_rng(0)
    shape = (6, 20)
    ids, words = random.integers(0, 50, shape), np.sort(random.integers(0, 8, shape), axis=1).astype(np.int32)
    replaced, windows = random.random(shape) < 0.5, random.integers(0, 99, 6)
    classes = random.integers(0, 16, 50).astype(np.uint8)
    count = random.integers(0, 4, (8, 4))
    first = np.cumsum(count.ravel()).reshape(8, 4) - count
    entries = random.integers(0, 30, count.sum())
    pool, rare = random.integers(50, 99, 40), random.integers(0, 2, count.sum()).astype(np.uint8)
    rare_fill = np.array([0, 0, 1, 0], np.uint8)
    out = np.empty_like(ids)
    found = draw_surrogates(
        ids, words, replaced, windows, classes, first, count, entries, pool, rare, 7, rare_fill, 3, 5, out
    )
    expected, counts = ids.copy(), [0, 0, 0]
    for row, column in np.ndindex(shape):
        begins = column == 0 or not replaced[row, column - 1] or words[row, column - 1] != words[row, column]
        if not replaced[row, column] or not begins:
            continue
        end = column
        while end < 20 and replaced[row, end] and words[row, end] == words[row, column]:
            end += 1
        own = [int(classes[number]) for number in ids[row, column:end]]
        is_digit, is_lower = any(bits & 4 for bits in own), any(bits & 8 for bits in own)
        form = 0 if is_digit else 1 if not own[0] & 2 else 2 if is_lower else 3
        kind, num = 4 * (own[0] & 1) + form, end - column
        counts[0] += 1
        if num >= 4 or count[kind, num] == 0:
            counts[1] += 1
            counts[2] += num == 2
            expected[row, column:end] = 7
            continue
        with np.errstate(over="ignore"):
            state = _hash.py_func(*(np.uint64(value) for value in (3, 5, windows[row], column)))
            state = _mix.py_func(state ^ np.uint64(0xA0761D6478BD642F))
        entry = first[kind, num] + int(state) % int(count[kind, num])
        counts[2] += int(rare[entry])
        expected[row, column:end] = pool[entries[entry] : entries[entry] + num]
    np.testing.assert_array_equal(out, expected)
    assert list(found) == counts
    assert min(counts) > 0


def test_draws_are_uniform_afresh_each_epoch_and_do_not_depend_on_the_word_that_stood_there(tmp_path: Path) -> None:
    tokenizer = toy_tokenizer("gpt2")
    store, index = protected(tmp_path, ["the qa was", "the qe was", "the was"], tokenizer)
    words = context_words(tokenizer, PublicWords(("ab", "cd", "zu", "ko", "fi", "wy", "px", "vj"), "test"), index, 2)
    one, other = Counter(), 0
    for epoch in range(1, 401):
        _, inputs, (batch, _), _ = inputs_of(store, words, epoch=epoch)
        places = (batch.flags & INDIRECT) != 0
        one[tuple(inputs[0][places[0]])] += 1
        other += tuple(inputs[0][places[0]]) == tuple(inputs[1][places[1]])
    assert len(one) == 8
    assert max(one.values()) < 90
    assert min(one.values()) > 20
    assert 20 < other < 90  # two windows agree by chance, one in eight


# ------------------------------------------------------------------ nothing that identifies is read


@settings(max_examples=25)
@given(CASES, st.sampled_from(sorted(KINDS)), st.integers(2, 3), st.sampled_from([5, 16]))
@example([["the"], ["12"], ["12/03/2020"]], "added tokens", 2, 16)  # the public word that fills happens to identify
def test_no_word_that_identifies_stands_in_an_input_or_a_label(
    texts: list[list[str]], kind: str, k: int, length: int
) -> None:
    tokenizer = tokenizer_json(kind)
    with tempfile.TemporaryDirectory() as folder:
        store, index = protected(Path(folder), [" ".join(text) for text in texts], tokenizer, k)
        words = context_words(tokenizer, PUBLIC, index, k)
        for recipe in ("ippclm-surrogate", "ippmlm-surrogate"):
            _, inputs, (batch, targets), ledger = inputs_of(store, words, length=length, recipe=recipe)
            flagged = (batch.flags & INDIRECT) != 0
            assert (targets.labels[flagged] == -100).all()
            assert ledger.read == ledger.violations == 0
            assert (
                inputs[~flagged & (targets.labels == -100)] == batch.input_ids[~flagged & (targets.labels == -100)]
            ).all()
            own = runs_of(words)
            for row, column, ids in replaced_runs(batch, inputs):
                assert ids in own or set(ids) == {words.fill}, (row, column)


def runs_of(words: ContextWords) -> set[tuple[int, ...]]:
    """Every run of ids that may be drawn."""
    found = set()
    for length in range(1, words.count.shape[1]):
        for kind in range(words.count.shape[0]):
            own = words.entries[words.first[kind, length] : words.first[kind, length] + words.count[kind, length]]
            found |= {tuple(words.pool[entry : entry + length].tolist()) for entry in own}
    return found


def replaced_runs(batch: Any, inputs: np.ndarray) -> list[tuple[int, int, tuple[int, ...]]]:
    found = []
    for row in range(len(inputs)):
        column = 0
        while column < inputs.shape[1]:
            end = column
            while (
                end < inputs.shape[1]
                and batch.flags[row, end] & INDIRECT
                and batch.word_ids[row, end] == batch.word_ids[row, column]
            ):
                end += 1
            if end > column:
                found.append((row, column, tuple(inputs[row, column:end].tolist())))
            column = max(end, column + 1)
    return found


def test_a_text_of_inputs_holds_no_word_that_one_individual_uses(tmp_path: Path) -> None:
    tokenizer = toy_tokenizer("gpt2")
    texts = [
        f"the patient was seen by {name} at {hour}:15 and again, {name}!" for name, hour in (("Zyx", 8), ("Élie", 9))
    ]
    store, index = protected(tmp_path, [*texts, "the patient was seen at home and again by"], tokenizer)
    words = context_words(tokenizer, POOL, index, 2)
    for epoch in (1, 2):
        _, inputs, _, ledger = inputs_of(store, words, epoch=epoch, length=64)
        text = Tokenizer.from_str(tokenizer).decode(inputs.ravel().tolist())
        assert "the patient was seen by" in text
        assert not any(word in text for word in ("Zyx", "Élie", "8:15", "9:15", "home"))
        assert ledger.replaced == 7
        assert ledger.filled == 0


@pytest.mark.parametrize("recipe", ["ippclm-surrogate", "ippmlm-surrogate"])
@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_a_word_that_identifies_and_has_no_flag_stops_the_training(recipe: str, kind: str, tmp_path: Path) -> None:
    tokenizer = toy_tokenizer(kind)
    store, index = protected(tmp_path, ["the patient was seen by Zyx today", "the patient was Yxz today"], tokenizer)
    words = context_words(tokenizer, POOL, index, 2)
    inputs_of(store, words, recipe=recipe, length=40)
    first = int(np.flatnonzero(store.flags & INDIRECT)[0])
    own = store.word_ids == store.word_ids[first]
    own[store.doc_offsets[1] :] = False
    flags = np.where(own, 0, store.flags).astype(np.uint8)
    with pytest.raises(TrainingError, match="1 words that identify stand in the inputs"):
        inputs_of(store.with_columns(flags=flags), words, recipe=recipe, length=40)


@pytest.mark.parametrize("edge", ["last", "first"])
def test_a_whole_word_at_the_edge_of_a_window_is_looked_at_too(edge: str, tmp_path: Path) -> None:
    tokenizer = toy_tokenizer("gpt2")
    store, index = protected(tmp_path, ["the the Zy pain pain", "the pain"], tokenizer)
    words = context_words(tokenizer, POOL, index, 2)
    bare = store.with_columns(flags=np.zeros_like(store.flags))
    own = np.flatnonzero(store.word_ids[: store.doc_offsets[1]] == 2)
    assert len(own) > 1
    # A window that ends with the word, or begins with it; then such as cut it in two.
    windows = cut_windows(bare, int(own[-1]) + 1 if edge == "last" else int(own[0]), BARE, pad_to_multiple_of=1)
    context = BatchContext(words, windows, get_recipe("ippclm-surrogate"), 0, 1)
    with pytest.raises(TrainingError, match="1 words that identify"):
        context(windows.gather(np.arange(len(windows))), Ledger())
    windows = cut_windows(bare, int(own[-1]), BARE, pad_to_multiple_of=1)
    ledger = Ledger()
    BatchContext(words, windows, get_recipe("ippclm-surrogate"), 0, 1)(windows.gather(np.arange(len(windows))), ledger)
    assert ledger.read == 0


def test_protected_words_that_stay_where_they_are_stop_the_training(tmp_path: Path, monkeypatch: Any) -> None:
    tokenizer = toy_tokenizer("gpt2")
    store, index = protected(tmp_path, ["the Zyx was", "the Yxz was"], tokenizer)
    words = context_words(tokenizer, PUBLIC, index, 2)

    def keep(*arguments: Any) -> tuple[int, int, int]:
        arguments[-1][:] = arguments[0]
        return 2, 0, 0

    monkeypatch.setattr("reticent.engine.context_kernels.draw_surrogates", keep)
    with pytest.raises(TrainingError, match="2 words that identify"):
        inputs_of(store, words)


@pytest.mark.parametrize(("base", "kind"), [("mlma", "bert"), ("clma", "gpt2")])
def test_the_x_of_pseudonymised_text_is_no_word_of_the_one_individual_who_writes_x(
    base: str, kind: str, tmp_path: Path
) -> None:
    marked = ["the «Smith|NAME» had an X ray", "the «Smith|NAME» had pain", "the «Jones|NAME» had pain an ray"]
    tokenizer = toy_tokenizer(kind)
    case = written_case(tmp_path, [(f"p{number}", text) for number, text in enumerate(marked)])
    index = build_index(case.corpus, case.individuals, splits=(MEMBERS,), config=IndexConfig(max_n=1))
    options = {"index": index, "spans": case.spans, "splits": (MEMBERS,), "policy": Policy(k=2), "style": "x"}
    store = case.tokens("tokens", tokenizer, **options)[0]
    recipe = custom_recipe("mine", base, {"context_indirect": "surrogate"})
    windows = cut_windows(store, 40, BARE, pad_to_multiple_of=1)
    batch, ledger = windows.gather(np.arange(len(windows))), Ledger()
    words = context_words(tokenizer, POOL, index, 2, also_shared=("X",))
    made = BatchContext(words, windows, recipe, 0, 1)(batch, ledger)
    assert (ledger.replaced, ledger.read) == (1, 0)  # the X of "X ray"
    assert Tokenizer.from_str(tokenizer).decode(made.input_ids.ravel().tolist()).count("X") == 3


def test_public_words_that_happen_to_identify_are_counted_and_stay(tmp_path: Path) -> None:
    tokenizer = toy_tokenizer("gpt2")
    store, index = protected(tmp_path, ["the river was", "the stone was"], tokenizer)
    words = context_words(tokenizer, PublicWords(("river",), "test"), index, 2)
    assert words.is_rare.any()
    _, inputs, _, ledger = inputs_of(store, words)
    assert ledger.coincidences > 0
    assert ledger.read == 0
    assert "river" in Tokenizer.from_str(tokenizer).decode(inputs[1].tolist())


def test_a_word_of_a_length_that_no_public_word_has_is_filled_and_counted(tmp_path: Path) -> None:
    tokenizer = toy_tokenizer("bert")
    store, index = protected(tmp_path, ["the " + "zyx" * 12 + " was", "the q was"], tokenizer)
    words = context_words(tokenizer, PublicWords(("a", "b"), "test"), index, 2)
    _, inputs, (batch, _), ledger = inputs_of(store, words, length=60)
    assert (ledger.replaced, ledger.filled) == (2, 1)
    assert words.fill == Tokenizer.from_str(tokenizer).token_to_id("[UNK]")
    assert (inputs[0][(batch.flags[0] & INDIRECT) != 0] == words.fill).all()


def test_a_tag_is_a_blank_for_every_token(tmp_path: Path) -> None:
    tokenizer = toy_tokenizer("bert")
    store, index = protected(tmp_path, ["the Zyx was", "the Yxz was"], tokenizer)
    recipe = custom_recipe("blank", "ippclm", {"context_indirect": "tag"})
    words = context_of(recipe, context_words(tokenizer, POOL, index, 2))
    assert words is not None
    _, inputs, (batch, _), ledger = inputs_of(store, words)
    assert (inputs[(batch.flags & INDIRECT) != 0] == words.fill).all()
    assert ledger.filled == ledger.replaced == 2


# ------------------------------------------------------------------ whole trainings


def trained(folder: Path, recipe: str, kind: str, **changes: Any) -> tuple[Any, TokenStore, ContextWords, Any]:
    tokenizer = toy_tokenizer(kind)
    folder.mkdir(exist_ok=True)
    store, index = protected(
        folder, [f"the patient {name} was seen today" for name in ("Zyx", "Yxz", "Qaz")], tokenizer
    )
    words = context_words(tokenizer, POOL, index, 2)
    config = TrainConfig(num_epochs=2, batch_size=2, window_length=32, checkpoint_epochs=(), device="cpu", **changes)
    result = train(
        toy_model(kind), store, get_recipe(recipe), config, folder / "out", tokenizer=tokenizer, context=words
    )
    return result, store, words, config


@pytest.mark.parametrize(("recipe", "kind"), [("ippclm-surrogate", "gpt2"), ("ippmlm-surrogate", "bert")])
def test_a_ledger_with_replaced_words_holds_and_one_that_was_changed_does_not(
    recipe: str, kind: str, tmp_path: Path
) -> None:
    result, store, words, _ = trained(tmp_path, recipe, kind)
    assert result.ledger.replaced == 6
    assert result.ledger.read == 0
    content = read_ledger(tmp_path / "out" / "ledger.json")
    assert content["context"] == {"source": "generated", "pool": POOL.digest()}
    assert verify_ledger(content, store, get_recipe(recipe), context=words).mismatches == []
    changed = json.loads(json.dumps(content))
    changed["epochs"][1]["inputs"] = "0" * 16
    assert "epoch 2: inputs" in verify_ledger(changed, store, get_recipe(recipe), context=words).mismatches[0]
    changed = json.loads(json.dumps(content))
    changed["read"] = 1
    assert any(
        "were read" in line for line in verify_ledger(changed, store, get_recipe(recipe), context=words).mismatches
    )
    other = context_words(toy_tokenizer(kind), PUBLIC, None, 2)
    assert any(
        "public words" in line for line in verify_ledger(content, store, get_recipe(recipe), context=other).mismatches
    )
    plain = get_recipe(recipe.removesuffix("-surrogate"))
    assert any("context_indirect" in line for line in verify_ledger(content, store, plain).mismatches)


def test_the_ledger_of_a_recipe_that_keeps_its_context_is_as_before(tmp_path: Path) -> None:
    _, store, _, config = trained(tmp_path / "first", "ippclm-surrogate", "gpt2")
    train(toy_model("gpt2"), store, get_recipe("ippclm"), config, tmp_path / "out", tokenizer=toy_tokenizer("gpt2"))
    content = read_ledger(tmp_path / "out" / "ledger.json")
    assert not {*CONTEXT_COUNTS, "context", "inputs"} & {*content, *content["epochs"][0]}
    assert "context_indirect" not in content["recipe"]
    assert set(content["epochs"][0]) == {
        "epoch",
        "eligible",
        "protected",
        "targets",
        "violations",
        "digest",
        "protection",
    }


def test_a_recipe_that_replaces_words_without_public_ones_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"needs a public pool of words; .* \[surrogates\] pool"):
        context_of(get_recipe("ppclm-surrogate"), None)
    assert context_of(get_recipe("ppclm"), None) is None


# ------------------------------------------------------------------ pools


def test_the_generated_pool_is_fixed_and_has_words_of_many_lengths() -> None:
    assert POOL.digest() == "53ae7a5a24bda2a461420bf1f3592b09442645baa39daff2515e57af4e78be3c"
    words = context_words(toy_tokenizer("bert"), POOL, None, 2)
    assert (words.count[:, 1:12] > 0).all()


def test_a_pool_of_ones_own_is_a_word_a_line(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("river\n\n stone \nriver\n", encoding="utf-8")
    assert read_public_words(str(tmp_path / "words.txt")).words == ("river", "stone")


@pytest.mark.parametrize(
    ("source", "content", "says"),
    [
        ("missing.txt", None, "cannot be read"),
        ("empty.txt", b" \n", "holds no word"),
        ("latin.txt", b"\xe9t\xe9\n", "not UTF-8"),
        ("wordfreq:en", None, r"needs the extra reticent\[wordfreq\]"),
    ],
)
def test_a_pool_that_cannot_be_had_is_refused_with_the_choices(
    source: str, content: bytes | None, says: str, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "wordfreq", None)
    if content is not None:
        (tmp_path / source).write_bytes(content)
    path = source if ":" in source else str(tmp_path / source)
    with pytest.raises(PolicyError, match=f"surrogates.pool: .*{says}"):
        read_public_words(path)


def test_a_pool_that_the_tokenizer_cannot_write_is_refused() -> None:
    with pytest.raises(PolicyError, match="no word of test can be written"):
        context_words(toy_tokenizer("bert"), PublicWords(("患者", "田中"), "test"), None, 2)
