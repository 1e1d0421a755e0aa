"""Protected tokens: alignment against an oracle in Python, scopes and policies by hand, the files they end in.

The oracle takes ids and character offsets from the Python library `tokenizers` and the bounds of words in characters,
and says in a double loop which token meets which word in a character that is not white space.
"""

from __future__ import annotations

import itertools
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import regex
from fixtures.cases import Case, written_case
from fixtures.drawing import examples
from fixtures.packing import packed
from fixtures.tokenizers import KINDS, SPECIAL, Trained, bytelevel, plain_tokenizer
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles.alignment import align, check_alignment, encode, words_of
from oracles.word_rules import is_space
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from reticent import _rust
from reticent.core.errors import ArtifactError, CorpusError
from reticent.engine.ngrams import NgramIndex
from reticent.engine.protect import Policy
from reticent.engine.rewrite import replace_words_by_x
from reticent.engine.schema import DIRECT, INDIRECT
from reticent.engine.store import TokenStore, open_tokens
from reticent.engine.tokens import write_tokens
from reticent.engine.vocabularies import bytelevel_tokenizer_json, wordpiece_tokenizer_json

SECRET = "Zyxwvut"


@pytest.fixture(scope="session", params=list(KINDS))
def trained(request: pytest.FixtureRequest) -> Trained:
    make, unknown = KINDS[request.param]
    return Trained.of(make(), unknown)


@pytest.fixture(
    scope="session", params=["bert-base-cased", "bert-base-uncased", "bert-base-multilingual-cased", "gpt2"]
)
def real(request: pytest.FixtureRequest, data: Path) -> Trained:
    folder = data / "tokenizer_vocabs" / request.param
    if not folder.exists():
        pytest.skip(f"{folder} is not there")
    if request.param == "gpt2":
        return Trained.of(bytelevel_tokenizer_json(folder / "vocab.json", folder / "merges.txt"), None)
    json = wordpiece_tokenizer_json(folder / "vocab.txt", lowercase="uncased" in request.param)
    return Trained.of(json, "[UNK]")


# Text that breaks tokenizers: pieces of it side by side, and anything at all.
pieces = st.sampled_from(
    [
        *(
            "the",
            "patient",
            "Smith",
            "été",
            "e\u0301te\u0301",
            "É",
            "E\u0301",
            "Saint-Élie",
            "06 12",
            "2021-03-04",
            "10:45",
        ),
        *(
            " ",
            "  ",
            "\n",
            "\t",
            "\u00a0",
            "\u3000",
            "\u2028",
            "\x1c",
            "\0",
            "\ufffd",
            ".",
            "'",
            "-",
            "_",
            "##",
            "▁",
            "Ġ",
        ),
        *("\u0301", "\u0345", "\u0e34", "\u200d", "\u200b", "\u00ad", "\ufe0f", "\ufeff", "\u202e", "\u2066"),
        *("ﬁ", "½", "ß", "İ", "ǆ", "ﷺ", "㍻", "Å", "\u212b", "\u1e9b\u0323", "각", "\u1100\u1161", "ｶﾞ"),
        *("שלום", "مرحبا", "患者", "田中", "かな", "ไทย", "नमस्ते", "😀", "👩\u200d⚕\ufe0f", "🇫🇷", "👍🏽"),
        *("\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010fffd", "\U0010ffff"),
        *SPECIAL,
    ]
)
fuzz = st.lists(st.one_of(pieces, pieces, st.text(max_size=4)), max_size=14).map("".join)


def check_protection(trained: Trained, text: str, seed: int) -> None:
    """No target may lie inside a protected word: between its first token and its last, every token is flagged."""
    num_words = words_of(text)
    if not num_words:
        return
    word = seed % num_words
    flags = [DIRECT * (w == word) for w in range(num_words)]
    tokens = encode(trained, [text], flags, [0] * num_words)
    met = [word in m for m in align(trained, text, flags, [0] * num_words).met]
    assert (tokens.flags == np.array(met, dtype=np.uint8)).all()
    inside = np.flatnonzero(met)
    if len(inside):
        assert tokens.flags[inside[0] : inside[-1] + 1].all()


@settings(max_examples=examples(200))
@given(text=fuzz, seed=st.integers(0, 1000))
@example(text="the Smith  été", seed=0)
@example(text="<s> [MASK] <|endoftext|> </s>[UNK]", seed=1)
@example(text="ab\0cd e\u0301 \u0e34", seed=2)
def test_alignment_matches_oracle(trained: Trained, text: str, seed: int) -> None:
    check_alignment(trained, text, seed)
    check_protection(trained, text, seed)


@pytest.mark.corpus
@settings(max_examples=examples(100))
@given(text=fuzz, seed=st.integers(0, 1000))
def test_alignment_matches_oracle_for_real_vocabularies(real: Trained, text: str, seed: int) -> None:
    check_alignment(real, text, seed)
    check_protection(real, text, seed)


def gaps_by_hand(text: str, spans: list[tuple[int, int]]) -> set[int]:
    """The characters of spans, and of the grapheme clusters they cut, that are neither in a word nor white space."""
    clusters = [cluster.span() for cluster in regex.finditer(r"\X", text)]
    spans = [(min(c for c, d in clusters if d > a), max(d for c, d in clusters if c < b)) for a, b in spans if a < b]
    array = pa.array([text], pa.large_string())
    froms, tos = _rust.segment(array).char_spans(array)
    in_words = {i for a, b in zip(froms.tolist(), tos.tolist(), strict=True) for i in range(a, b)}
    return {i for a, b in spans for i in range(a, b) if i not in in_words and not is_space(text[i])}


def span_arrays_of(spans: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    starts, ends = (np.array([span[i] for span in spans], dtype=np.int32) for i in (0, 1))
    return np.array([0, len(spans)], dtype=np.int64), starts, ends


def spans_in(text: str, seed: int) -> list[tuple[int, int]]:
    rng = np.random.default_rng(seed)
    bounds = np.sort(rng.integers(0, len(text) + 1, (3, 2)), axis=1).tolist()
    return [(a, b) for a, b in bounds]


def assert_packed(found: Any, tokens: Any) -> None:
    """Packed tokens are the flat ones, bit by bit; of ``more`` only that it stands where nothing is passed over."""
    num = len(tokens.doc_offsets) - 1
    columns = (tokens.input_ids, tokens.word_ids, tokens.flags, tokens.ngram_starts, tokens.doc_offsets)
    expected = packed(TokenStore(*columns, np.zeros(num, np.uint32), pa.array([""] * num)))
    for name in ("doc_offsets", "ids", "begins", "outside", "direct", "indirect", "ngram_tokens", "ngram_lengths"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
    passes = found.skipped > 0
    assert found.exceptions[passes].tolist() == expected.exceptions.tolist()
    assert found.skipped[passes].tolist() == expected.skipped.tolist()
    assert (found.more[~passes] > 0).all()


@pytest.mark.parametrize("num_documents", [1, 3])
def test_words_are_found_again_where_tokens_meet_several_or_none(num_documents: int) -> None:
    """Pieces over word borders, and words that the normaliser deletes: each would shift the words after it."""
    pieces = ["▁the▁old", "▁man", "▁the", "▁old", "▁", "m", "a", "n", "s", "x", "."]
    tokenizer = Tokenizer(
        models.Unigram([("<unk>", -20.0), *((piece, -1.0 - i / 10) for i, piece in enumerate(pieces))], 0, False)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(split=False)
    tokenizer.normalizer = normalizers.Replace("7", "")
    encoder = _rust.TokenEncoder(tokenizer.to_str())
    array = pa.array(["the old man. 7 man the old 77 7 mans", "", "7 the old"][:num_documents], pa.large_string())
    words = _rust.segment(array)
    draw = np.random.default_rng(0)
    flags, starts = draw.integers(0, 4, (2, words.num_words)).astype(np.uint8)
    tokens = encoder.encode(array, words, flags, starts)
    found = encoder.pack(array, words, flags, starts)
    assert_packed(found, tokens)
    assert (found.more > 0).any()
    assert (found.skipped > 0).any()


@settings(max_examples=examples(200))
@given(text=fuzz, seed=st.integers(0, 1000))
@example(text="j.doe@x.org, 𝄞 \ue000", seed=3)
def test_every_token_that_meets_a_character_of_a_span_is_direct(trained: Trained, text: str, seed: int) -> None:
    """Whatever its word: punctuation, symbols and private-use characters of a span are as direct as its words."""
    spans = spans_in(text, seed)
    array = pa.array([text], pa.large_string())
    words = _rust.segment(array)
    marked = _rust.mark_spans(array, words, *span_arrays_of(spans))
    gaps = marked.gaps
    froms, tos = gaps.char_spans(array)
    by_hand = gaps_by_hand(text, spans)
    assert {i for a, b in zip(froms.tolist(), tos.tolist(), strict=True) for i in range(a, b)} == by_hand
    assert all(b < c for b, c in zip(tos.tolist(), froms.tolist()[1:], strict=False))

    flags = marked.mask * np.uint8(DIRECT)
    starts = np.zeros_like(flags)
    tokens = trained.encoder.encode(array, words, flags, starts, gaps=gaps)
    assert_packed(trained.encoder.pack(array, words, flags, starts, gaps=gaps), tokens)
    plain = trained.encoder.encode(array, words, flags, starts)
    seen = {i for a, b in spans for i in range(a, b) if not is_space(text[i])}
    offsets = trained.python.encode(text, add_special_tokens=False).offsets
    for (a, b), flag, without in zip(offsets, tokens.flags.tolist(), plain.flags.tolist(), strict=True):
        in_gap = any(i in by_hand for i in range(a, b))
        assert flag == (without | DIRECT if in_gap else without)
        assert flag == DIRECT or not any(i in seen for i in range(a, b))
    assert tokens.input_ids.tolist() == plain.input_ids.tolist()
    assert tokens.word_ids.tolist() == plain.word_ids.tolist()


def test_a_gap_is_direct_in_its_document_alone(trained: Trained) -> None:
    """Chunks of a text are remembered with their words, and what a span holds between words is not one of these."""
    texts = pa.array(["see a@b now", "see a@b now", "see a@b now"], pa.large_string())
    words = _rust.segment(texts)
    zeros = np.zeros(words.num_words, dtype=np.uint8)
    spans = np.array([0, 0, 1, 1]), np.array([4], dtype=np.int32), np.array([7], dtype=np.int32)
    gaps = _rust.mark_spans(texts, words, *spans).gaps
    tokens = trained.encoder.encode(texts, words, zeros, zeros, gaps=gaps)
    first, second, third = (tokens.flags[a:b].tolist() for a, b in itertools.pairwise(tokens.doc_offsets.tolist()))
    assert not any(first)
    assert not any(third)
    offsets = trained.python.encode("see a@b now", add_special_tokens=False).offsets
    assert second == [DIRECT * (a <= 5 < b) for a, b in offsets]


@settings(max_examples=examples(60))
@given(texts=st.lists(fuzz, max_size=5), seed=st.integers(0, 1000))
def test_tokens_of_a_document_do_not_depend_on_its_batch(trained: Trained, texts: list[str], seed: int) -> None:
    rng = np.random.default_rng(seed)
    counts = [words_of(text) for text in texts]
    flags = [rng.integers(0, 4, count).tolist() for count in counts]
    every = [flag for own in flags for flag in own]
    together = encode(trained, texts, every, every)
    offsets = together.doc_offsets.tolist()
    assert len(offsets) == len(texts) + 1
    for text, own, (a, b) in zip(texts, flags, itertools.pairwise(offsets), strict=True):
        alone = encode(trained, [text], own, own)
        for name in ("input_ids", "word_ids", "flags", "ngram_starts"):
            assert getattr(together, name)[a:b].tolist() == getattr(alone, name).tolist()


def spelled(trained: Trained, text: str, protected: list[str]) -> list[tuple[str, int]]:
    """Each token as the text it stands for, and its flag, when these words are protected."""
    array = pa.array([text])
    surfaces = pa.record_batch(_rust.segment(array).surfaces(array)).column("word").to_pylist()
    flags = [int(surface in protected) for surface in surfaces]
    tokens = encode(trained, [text], flags, [0] * len(flags))
    offsets = trained.python.encode(text, add_special_tokens=False).offsets
    return [(text[a:b], flag) for (a, b), flag in zip(offsets, tokens.flags.tolist(), strict=True)]


@pytest.fixture(scope="session")
def gpt2(data: Path) -> Trained:
    folder = data / "tokenizer_vocabs" / "gpt2"
    return Trained.of(bytelevel_tokenizer_json(folder / "vocab.json", folder / "merges.txt"), None)


@pytest.mark.corpus
def test_space_glued_to_a_word_protects_no_other_word(gpt2: Trained) -> None:
    """The trap of byte-level BPE: the token " Smith" begins right where "John" ends."""
    text = "John Smith was seen"
    assert spelled(gpt2, text, ["John"]) == [("John", 1), (" Smith", 0), (" was", 0), (" seen", 0)]
    assert spelled(gpt2, text, ["Smith"]) == [("John", 0), (" Smith", 1), (" was", 0), (" seen", 0)]


@pytest.mark.corpus
def test_every_piece_of_a_protected_word_is_flagged_and_nothing_beside_it(gpt2: Trained) -> None:
    pieces = spelled(gpt2, "on 2021-03-04, Quorvelstan: 😀é", ["2021-03-04", "Quorvelstan"])
    assert "".join(piece for piece, flag in pieces if flag).split() == ["2021-03-04", "Quorvelstan"]
    assert len([flag for _, flag in pieces if flag]) > 6
    assert {piece for piece, flag in pieces if not flag} >= {"on", ",", ":"}


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("name", "text", "ids"),
    [("bert-base-uncased", "Hello world", [7592, 2088]), ("bert-base-cased", "Hello world", [8667, 1362])],
)
def test_ids_of_bert_are_the_published_ones(data: Path, name: str, text: str, ids: list[int]) -> None:
    json = wordpiece_tokenizer_json(data / "tokenizer_vocabs" / name / "vocab.txt", lowercase="uncased" in name)
    assert encode(Trained.of(json, "[UNK]"), [text], [0, 0], [0, 0]).input_ids.tolist() == ids


@pytest.mark.corpus
def test_ids_of_gpt2_are_the_published_ones(gpt2: Trained) -> None:
    assert encode(gpt2, ["Hello world"], [0, 0], [0, 0]).input_ids.tolist() == [15496, 995]


@pytest.mark.parametrize("text", [*SPECIAL, " ".join(SPECIAL), "x" + "".join(SPECIAL) + "y"])
def test_text_that_spells_a_special_token_does_not_become_one(trained: Trained, text: str) -> None:
    num_words = words_of(text)
    ids = encode(trained, [text], [0] * num_words, [0] * num_words).input_ids.tolist()
    assert ids
    assert not trained.special & set(ids)


def test_special_token_that_the_model_itself_holds_becomes_the_unknown_token() -> None:
    """Unigram knows "<s>" as a piece, and WordPiece without a split at punctuation "[MASK]" as a word."""
    tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0, "[MASK]": 1, "a": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["[UNK]", "[MASK]"])
    tokens = encode(Trained.of(tokenizer.to_str(), "[UNK]"), ["a [MASK] a"], [0, 1, 0], [0, 0, 0])
    assert (tokens.input_ids.tolist(), tokens.flags.tolist()) == ([2, 0, 2], [0, 1, 0])


def test_special_token_without_an_unknown_one_is_an_error_without_text() -> None:
    vocabulary = {"<": 0, "s": 1, ">": 2, "<s": 3, "<s>": 4}
    tokenizer = Tokenizer(models.BPE(vocabulary, [("<", "s"), ("<s", ">")]))
    tokenizer.add_special_tokens(["<s>"])
    trained = Trained.of(tokenizer.to_str(), None)
    assert encode(trained, ["s<s"], [0] * 1 + [0] * 1, [0, 0]).input_ids.tolist() == [1, 3]
    with pytest.raises(CorpusError, match="document 1 of the batch: it spells a special token"):
        encode(trained, ["s", "<s>"], [0, 0], [0, 0])


def test_broken_tokenizer_is_an_artifact_error() -> None:
    with pytest.raises(ArtifactError, match=r"tokenizer\.json"):
        _rust.TokenEncoder("{}")


def test_masks_of_another_length_are_refused(trained: Trained) -> None:
    with pytest.raises(CorpusError, match="a mask of 1 bytes was given for 2 words"):
        encode(trained, ["two words"], [0], [0])
    array = pa.array(["two words"])
    with pytest.raises(CorpusError, match="words of 1 documents were given with 2"):
        trained.encoder.encode(
            pa.array(["two words", ""]), _rust.segment(array), np.zeros(2, np.uint8), np.zeros(2, np.uint8)
        )


@pytest.mark.parametrize("texts", [[], [""], ["", " \n", ""], ["."]])
def test_texts_without_words_give_tokens_without_words(trained: Trained, texts: list[str]) -> None:
    tokens = encode(trained, texts, [], [])
    assert len(tokens.doc_offsets) == len(texts) + 1
    assert set(tokens.word_ids.tolist()) <= {-1}
    assert set(tokens.flags.tolist()) <= {0}


# Files: a corpus on disk, gold spans, an index, protected tokens.


def flags_of(store: TokenStore) -> list[list[int]]:
    return [store.flags[a:b].tolist() for a, b in itertools.pairwise(store.doc_offsets.tolist())]


def test_case_reads_its_marks(tmp_path: Path) -> None:
    case = written_case(tmp_path, [("p", "a «bc|NAME» d"), ("q", "«é|ID»")])
    (batch,) = case.corpus.batches(columns=("text", "spans"))
    assert batch.to_pylist() == [
        {"text": "a bc d", "spans": [{"start": 2, "end": 4, "label": "NAME"}]},
        {"text": "é", "spans": [{"start": 0, "end": 1, "label": "ID"}]},
    ]


SCOPES = [
    # The same words in four documents; p0 has the spans, p1 shares p0's household, p2 is another individual.
    ({}, "NAME", ["1", "1", "1", "1"]),  # by default names are protected everywhere,
    ({}, "CITY", ["1", "1", "1", "0"]),  # places in the documents of the individual (unit),
    ({}, "DATE", ["1", "0", "0", "0"]),  # dates where they stand,
    ({}, "city", ["1", "1", "1", "0"]),  # in any spelling of the label;
    ({}, "COLOUR", ["1", "1", "1", "1"]),  # a label that is no known kind of name.
    ({"NAME": "occurrence"}, "NAME", ["1", "0", "0", "0"]),
    ({"NAME": "individual"}, "NAME", ["1", "1", "1", "0"]),
    ({"DATE": "corpus"}, "DATE", ["1", "1", "1", "1"]),
    ({"COLOUR": "individual"}, "COLOUR", ["1", "1", "1", "0"]),
]


@pytest.mark.parametrize(("scopes", "label", "expected"), SCOPES)
def test_scope_says_how_far_a_direct_identifier_reaches(
    tmp_path: Path, scopes: dict[str, Any], label: str, expected: list[str]
) -> None:
    people = ["p0", "p0", "p1", "p2"]
    texts = [f"saw «Quorvel|{label}» today", *["saw Quorvel today"] * 3]
    households = {"p0": "h0", "p1": "h0", "p2": "h2"}
    case = written_case(tmp_path, list(zip(people, texts, strict=True)), households)
    store, counts = case.tokens("tokens", plain_tokenizer("saw"), spans=case.spans, policy=Policy(scopes=scopes))
    assert flags_of(store) == [[0, int(flag) * DIRECT, 0] for flag in expected]
    assert counts["direct"] == counts["protected"] == expected.count("1")
    assert counts["blacklisted"] == (expected != ["1", "0", "0", "0"])


@pytest.mark.parametrize(
    ("texts", "flags", "blacklisted"),
    [
        (["M. «Jean du|DATE»pont, né «le|DATE» x", "😀 e\u0301te\u0301 «Zoé|DATE»😀 x", "«a b  c|DATE» d"],
         [[0, 1, 1, 0, 1, 0], [0, 0, 1, 0], [1, 1, 1, 0]], None),
        # Characters between words too: j.doe, x.org, the private-use name; 𝄞 is no word; a token ends at white space.
        (["at «j.doe@x.org|EMAIL», «\ue000\ue001|NAME» or «𝄞 ♭|NAME»!", "j.doe @ \ue000\ue001 𝄞"],
         [[0, 1, 1, 0, 1, 1], [1, 0, 1, 0]], 3),
        # A phone number in pairs would otherwise protect every "12"; a longer number identifies wherever it stands.
        (["«06 12 34 56 78|PHONE» «12345|ID» «A12|ID»", "06 12 78 123456 12345 A12"], [[1] * 7, [0, 0, 0, 0, 1, 1]], 2),
    ],
)  # fmt: skip
def test_every_word_and_character_of_a_span_is_direct_and_no_small_number_elsewhere(
    tmp_path: Path, texts: list[str], flags: list[list[int]], blacklisted: int | None
) -> None:
    case = written_case(tmp_path, [(f"p{i}", text) for i, text in enumerate(texts)])
    store, counts = case.tokens("tokens", plain_tokenizer(), spans=case.spans)
    assert flags_of(store) == flags
    assert blacklisted in (None, counts["blacklisted"])


def test_a_name_is_protected_with_characters_in_it_that_print_nothing(tmp_path: Path) -> None:
    case = written_case(tmp_path, [("p0", "«Dupont|NAME»"), ("p1", "Du\u200bpont Dupont\u00ad \ufeffDupont Du pont")])
    store, _ = case.tokens("tokens", plain_tokenizer(), spans=case.spans)
    words = pa.array(["Du\u200bpont Dupont\u00ad \ufeffDupont Du pont"])
    assert _rust.segment(words).num_words == 5
    flags = dict(zip(store.word_ids.tolist(), store.flags.tolist(), strict=True))
    assert [flags[word] for word in range(5)] == [1, 1, 1, 0, 0]


def test_blacklist_compares_words_as_the_index_does(tmp_path: Path) -> None:
    texts = ["«Zoé|NAME»", "Zoe\u0301 ZOÉ Zoe"]
    case = written_case(tmp_path, [("p0", texts[0]), ("p1", texts[1])])
    store, _ = case.tokens("tokens", plain_tokenizer(), spans=case.spans)
    assert flags_of(store) == [[1], [1, 0, 0]]
    for surface, expected in (("casefold", [3, 3, 2]), ("fold", [3, 3, 3])):
        builder = _rust.IndexBuilder(surface=surface)
        store, _ = case.tokens(surface, plain_tokenizer(), spans=case.spans, index=NgramIndex(builder.finish()))
        assert flags_of(store) == [[3], expected]


POLICY_TEXTS = ["a b c d", "a b c d", "a b x d", "d c b a"]  # of four individuals, k = 2
POLICY_TABLE = [
    # Worked by hand: x has support 1; of pairs only "a b" (3) and "b c", "c d" (2) have support >= 2, of triples
    # "a b c" and "b c d". The last document is made of pairs with support 1.
    ("all", 1, ["0000", "0000", "0010", "0000"]),
    ("all", 2, ["0000", "0000", "0010", "1111"]),
    ("last", 2, ["0000", "0000", "0010", "0111"]),
    ("cover", 2, ["0000", "0000", "0010", "0101"]),
    ("paper", 2, ["0000", "0000", "0111", "1111"]),
    ("paper", 3, ["0000", "0000", "1111", "1111"]),
]


@pytest.mark.parametrize(("policy", "n", "expected"), POLICY_TABLE)
def test_policy_says_which_words_of_an_ngram_are_flagged(
    tmp_path: Path, policy: Any, n: int, expected: list[str]
) -> None:
    case = written_case(tmp_path, [(f"p{i}", text) for i, text in enumerate(POLICY_TEXTS)])
    builder = _rust.IndexBuilder(max_n=3)
    builder.add(pa.array(POLICY_TEXTS), np.arange(4, dtype=np.uint32))
    store, counts = case.tokens(
        "tokens", plain_tokenizer(*"abcd"), index=NgramIndex(builder.finish()), policy=Policy(k=2, n=n, policy=policy)
    )
    assert flags_of(store) == [[int(c) * INDIRECT for c in word] for word in expected]
    assert counts["indirect"] == counts["protected"] == "".join(expected).count("1")
    assert counts["retention"] == 1 - counts["protected"] / 16
    assert counts["words"] == counts["tokens"] == 16


def test_counts_tell_direct_indirect_and_both(tmp_path: Path) -> None:
    case = written_case(
        tmp_path, [("p0", "«rare|DATE» odd common"), ("p1", "«common|DATE» words"), ("p2", "common words")]
    )
    builder = _rust.IndexBuilder()
    texts = ["rare odd common", "common words", "common words"]
    builder.add(pa.array(texts), np.arange(3, dtype=np.uint32))
    store, counts = case.tokens("tokens", plain_tokenizer(), spans=case.spans, index=NgramIndex(builder.finish()))
    assert flags_of(store) == [[3, 2, 0], [1, 0], [0, 0]]
    assert {name: counts[name] for name in ("documents", "words", "direct", "indirect", "protected")} == {
        "documents": 3, "words": 7, "direct": 2, "indirect": 2, "protected": 3,
    }  # fmt: skip
    assert counts["retention"] == 1 - 3 / 7


def test_splits_choose_documents_and_keep_their_spans(tmp_path: Path) -> None:
    documents = [("held0", "«x|DATE» a"), ("p0", "b «y|DATE»"), ("held1", "c «z|DATE»"), ("p1", "d")]
    case = written_case(tmp_path, documents)
    vocabulary = plain_tokenizer(*"abcdxyz")
    for split, ids, flags, codes in (
        ("members", [[2, 6], [4]], [[0, 1], [0]], [2, 3]),
        ("heldout", [[5, 1], [3, 7]], [[1, 0], [0, 1]], [0, 1]),
    ):
        store, counts = case.tokens(split, vocabulary, spans=case.spans, splits=(split,))
        assert [store.input_ids[a:b].tolist() for a, b in itertools.pairwise(store.doc_offsets)] == ids
        assert flags_of(store) == flags
        assert store.individual.tolist() == codes
        assert counts["documents"] == 2
    with pytest.raises(CorpusError, match="no document belongs to the splits reference"):
        case.tokens("reference", vocabulary, splits=("reference",))


def test_public_text_needs_no_individuals(tmp_path: Path) -> None:
    case = written_case(tmp_path, [("p0", "a b"), ("p1", "c")])
    (tmp_path / "tokens").mkdir()
    counts = write_tokens(tmp_path / "tokens", case.corpus, None, plain_tokenizer())
    store = open_tokens(tmp_path / "tokens")
    assert counts["retention"] == 1
    assert store.individual.tolist() == [0, 1]
    assert set(store.flags.tolist()) == {0}


def test_files_are_the_same_bytes_for_any_threads_files_and_run(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    words = ["a", "b", "c", "d", "é", "12/03", "😀", "Quorvel", "5.Smith"]
    documents = [
        (f"p{i % 40:02}", " ".join(rng.choice(words, rng.integers(0, 12))) + (f" «w{i}|NAME»" if i % 3 else ""))
        for i in range(400)
    ]
    case = Case(tmp_path, documents)
    files: dict[str, set[bytes]] = {}
    for number, (threads, parts) in enumerate([(1, 1), (2, 1), (2, 5), (1, 3), (1, 1)]):
        case.write(f"documents-{number}", parts)
        builder = _rust.IndexBuilder(max_n=2, num_threads=threads)
        for batch in case.corpus.batches():
            builder.add(batch.column("text"), case.individuals.individual_codes(batch.column("individual_id")))
        for pseudonymised in (False, True):
            name = f"tokens-{number}-{pseudonymised}"
            case.tokens(
                name, bytelevel() if not number else (tmp_path / "tokens-0-False" / "tokenizer.json").read_text(),
                spans=case.spans, index=NgramIndex(builder.finish()) if not pseudonymised else None, policy=Policy(n=2),
                style="x" if pseudonymised else None, num_threads=threads,
            )  # fmt: skip
            for path in (tmp_path / name).iterdir():
                files.setdefault(f"{pseudonymised} {path.name}", set()).add(path.read_bytes())
    assert len(files) == 2 * 10  # ids, four rows of bits, four tables and the tokenizer of each
    assert {name: len(contents) for name, contents in files.items()} == dict.fromkeys(files, 1)


# Pseudonymised text.


@settings(max_examples=examples(200))
@given(st.lists(fuzz, max_size=4), st.integers(0, 1000), st.sampled_from(["X", "", "[NAME]"]))
def test_replace_words_matches_oracle(texts: list[str], seed: int, replacement: str) -> None:
    array = pa.array(texts, pa.large_string())
    words = _rust.segment(array)
    mask = np.random.default_rng(seed).integers(0, 2, words.num_words).astype(np.uint8)
    froms, tos = words.char_spans(array)
    expected = []
    for text, (first, last) in zip(texts, itertools.pairwise(words.doc_offsets), strict=True):
        for word in reversed(range(first, last)):
            if mask[word]:
                text = text[: froms[word]] + replacement + text[tos[word] :]
        expected.append(text)
    replaced, _ = _rust.replace_words(array, words, mask, replacement)
    assert pa.record_batch(replaced).column("text").to_pylist() == expected


@settings(max_examples=examples(300))
@given(
    st.lists(
        st.lists(
            st.sampled_from(["5", ".", "Smith", "-", "12/05", " ", "é", "X", "_", "'", "😀", "1,2", "\u200d"])
        ).map("".join),
        max_size=4,
    ),
    st.integers(0, 1000),
)
@example(["5.Smith", "the same"], 1)
def test_flags_of_pseudonymised_text_match_oracle(texts: list[str], seed: int) -> None:
    """Every character that is left takes the flags of its word along; a new word has those of its characters."""
    array = pa.array(texts, pa.large_string())
    words = _rust.segment(array)
    rng = np.random.default_rng(seed)
    flags, starts = (rng.integers(0, 4, words.num_words).astype(np.uint8) for _ in range(2))
    froms, tos = words.char_spans(array)
    got = replace_words_by_x(array, words, flags, starts, num_threads=1)
    got_texts, got_words, got_flags, got_starts = got.texts, got.words, got.flags, got.ngram_starts
    new_froms, new_tos = got_words.char_spans(got_texts)
    expected = []
    for row, (first, last) in enumerate(itertools.pairwise(words.doc_offsets)):
        left: list[tuple[str, int]] = []  # characters, and the word each is of
        for i, c in enumerate(texts[row]):
            word = next((w for w in range(first, last) if froms[w] <= i < tos[w]), -1)
            direct = word >= 0 and flags[word] & DIRECT
            if direct:
                if i == froms[word]:
                    left.append(("X", -1))
            else:
                left.append((c, word))
        assert got_texts[row].as_py() == "".join(c for c, _ in left)
        for w in range(got_words.doc_offsets[row], got_words.doc_offsets[row + 1]):
            old = {word for _, word in left[new_froms[w] : new_tos[w]] if word >= 0}
            expected.append((reduce(or_, (flags[o] for o in old), 0), reduce(or_, (starts[o] for o in old), 0)))
    assert list(zip(got_flags.tolist(), got_starts.tolist(), strict=True)) == expected


def test_x_stands_for_symbols_of_an_identifier_and_punctuation_stays() -> None:
    text = "see Z𝄞q, 𝄞𝄢 ♭ and a@b; 𝄞"
    array = pa.array([text], pa.large_string())
    words = _rust.segment(array)
    spans = [(4, 13), (18, 21)]
    marked = _rust.mark_spans(array, words, *span_arrays_of(spans))
    flags = marked.mask | np.array([0, 0, 0, 2, 0, 0], dtype=np.uint8)
    made = replace_words_by_x(array, words, flags, np.zeros_like(flags), marked.gaps, num_threads=1)
    assert made.texts.to_pylist() == ["see XXX, X X and X@X; 𝄞"]
    surfaces = pa.record_batch(made.words.surfaces(made.texts)).column("word").to_pylist()
    assert dict(zip(surfaces, made.flags.tolist(), strict=True)) == {"see": 0, "XXX": 0, "X": 0, "and": 2}


def test_pseudonymised_tokens_hold_no_direct_word_and_keep_the_other_flags(tmp_path: Path) -> None:
    texts = ["saw «Ann|NAME» «Lee|NAME», odd", "Ann was seen «5|DATE».Smith odd", "saw Smith was seen"]
    case = written_case(tmp_path, [(f"p{i}", text) for i, text in enumerate(texts)])
    builder = _rust.IndexBuilder()
    plain = ["saw Ann Lee, odd", "Ann was seen 5.Smith odd", "saw Smith was seen"]
    builder.add(pa.array(plain), np.arange(3, dtype=np.uint32))
    json = bytelevel()
    store, counts = case.tokens(
        "tokens", json, spans=case.spans, index=NgramIndex(builder.finish()), policy=Policy(k=3), style="x"
    )
    written = [
        Tokenizer.from_str(json).decode(store.input_ids[a:b].tolist())
        for a, b in itertools.pairwise(store.doc_offsets.tolist())
    ]
    assert written == ["saw X X, odd", "X was seen X.Smith odd", "saw Smith was seen"]
    assert counts["direct"] == 0
    assert not (store.flags & DIRECT).any()
    # Every word is used by one or two of three individuals, so all that is left is indirect; "X.Smith" is one word now.
    assert counts["words"] == 4 + 5 + 4
    assert counts["indirect"] == 2 + 4 + 4
    decode = Tokenizer.from_str(json)
    flagged = [
        decode.id_to_token(i)
        for i, flag in zip(store.input_ids.tolist(), store.flags.tolist(), strict=True)
        if not flag
    ]
    assert "".join(flagged).replace("Ġ", " ").split() == ["X", "X,", "X"]


def test_pseudonymised_document_does_not_depend_on_its_batch(tmp_path: Path) -> None:
    texts = ["«5|DATE».Smith odd", "odd «Ann|DATE» Smith", "«a|DATE»-1/2 «7|DATE»"]
    both = {}
    for name, chosen in (("together", [0, 1, 2]), ("1", [1]), ("0", [0]), ("2", [2])):
        (tmp_path / name).mkdir()
        case = written_case(tmp_path / name, [(f"p{i}", texts[i]) for i in chosen])
        builder = _rust.IndexBuilder()
        index = NgramIndex(builder.finish())
        store, _ = case.tokens("tokens", bytelevel(), spans=case.spans, index=index, style="x")
        both[name] = list(zip(store.input_ids.tolist(), store.word_ids.tolist(), store.flags.tolist(), strict=True))
    assert both["together"] == both["0"] + both["1"] + both["2"]
    assert any(flag for _, _, flag in both["1"])


# Vocabulary files.


BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b", "é"]


@pytest.mark.parametrize("end", ["\n", ""])
def test_vocabulary_is_read_with_or_without_its_last_newline(tmp_path: Path, end: str) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(BERT) + end, encoding="utf-8")
    trained = Trained.of(wordpiece_tokenizer_json(tmp_path / "vocab.txt"), "[UNK]")
    assert trained.encoder.vocab_size == len(BERT)
    assert encode(trained, ["ab é É"], [0, 0, 0], [0, 0, 0]).input_ids.tolist() == [5, 6, 7, 1]


@pytest.mark.parametrize("missing", BERT[:5])
def test_vocabulary_without_a_special_token_is_refused(tmp_path: Path, missing: str) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(token for token in BERT if token != missing), encoding="utf-8")
    with pytest.raises(ArtifactError, match=f"no token .{missing[1:-1]}"):
        wordpiece_tokenizer_json(tmp_path / "vocab.txt")


def test_unreadable_vocabularies_are_artifact_errors(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"vocab\.txt: not a readable"):
        wordpiece_tokenizer_json(tmp_path / "vocab.txt")
    (tmp_path / "vocab.json").write_text("{", encoding="utf-8")
    with pytest.raises(ArtifactError, match=r"vocab\.json: not a readable"):
        bytelevel_tokenizer_json(tmp_path / "vocab.json", tmp_path / "merges.txt")
    (tmp_path / "vocab.json").write_text('{"a": 0, "b": 1, "ab": 2}', encoding="utf-8")
    with pytest.raises(ArtifactError, match=r"merges\.txt: not a readable"):
        bytelevel_tokenizer_json(tmp_path / "vocab.json", tmp_path / "merges.txt")
    for wrong in ("a", "a b c", "b a"):
        (tmp_path / "merges.txt").write_text(f"#version: 0.2\na b\n{wrong}\n", encoding="utf-8")
        with pytest.raises(ArtifactError, match=r"merges\.txt: merge 2"):
            bytelevel_tokenizer_json(tmp_path / "vocab.json", tmp_path / "merges.txt")
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b", encoding="utf-8")
    assert bytelevel_tokenizer_json(tmp_path / "vocab.json", tmp_path / "merges.txt")


# ------------------------------------------------------------------ odd tokenizers


def without_unknown(vocabulary: list[str]) -> str:
    """A tokenizer that makes nothing of what its vocabulary does not hold."""
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(vocabulary)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer.to_str()


def test_a_document_with_words_and_without_tokens_is_an_error_that_names_its_row(tmp_path: Path) -> None:
    documents = [
        ("held", "b b"),
        ("anna", "a"),
        ("bob", f"a {SECRET}"),
        ("bob", "a"),
        ("bob", SECRET),
        ("anna", "b ... b"),
    ]
    case = Case(tmp_path, documents)
    case.write(files=2)
    assert case.tokens("all", plain_tokenizer(), splits=("members",))[1]["documents"] == 5
    with pytest.raises(
        CorpusError, match=r"part-1\.parquet row 2: the tokenizer makes no token of its words \(1\)"
    ) as error:
        case.tokens("tokens", without_unknown(["a"]), splits=("members",))
    assert SECRET not in str(error.value)
    case.spans, case.corpus = None, case.corpus.without([1, 4])
    with pytest.raises(CorpusError, match=r"part-1\.parquet row 3: the tokenizer makes no token of its words \(2\)"):
        case.tokens("less", without_unknown(["a"]), splits=("members",))


def test_signs_without_a_word_may_come_to_no_token(tmp_path: Path) -> None:
    case = written_case(tmp_path, [("anna", "a"), ("bob", "..."), ("bob", "")])
    assert case.tokens("tokens", without_unknown(["a"]))[1]["tokens"] == 1


@pytest.mark.parametrize(
    "steps",
    [
        [normalizers.Replace("e", "e" * 1000)] * 3,
        [normalizers.Replace("e", "e" * 1000)],
        [normalizers.Sequence([normalizers.Replace(Regex("e"), "e" * 10)] * 2)],
        [normalizers.Prepend("e" * 20), normalizers.Replace("e", "e" * 20)],
    ],
)
def test_a_normalizer_that_makes_a_text_far_longer_is_refused(steps: list[normalizers.Normalizer]) -> None:
    tokenizer = Tokenizer.from_str(plain_tokenizer("e"))
    tokenizer.normalizer = normalizers.Sequence(steps)
    with pytest.raises(ArtifactError, match=r"the normalizer can make \d+ characters of one, expected at most 100"):
        _rust.TokenEncoder(tokenizer.to_str())


def test_normalizers_of_published_tokenizers_are_not_refused() -> None:
    quotes = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    unicode = [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
    for steps in (
        [*quotes, *unicode, normalizers.Replace(Regex(" {2,}"), " ")],  # ALBERT, XLNet
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")],  # Llama 2
        [normalizers.Replace(" ", "▁")],  # Gemma
    ):
        tokenizer = Tokenizer.from_str(plain_tokenizer("a"))
        tokenizer.normalizer = normalizers.Sequence(steps)
        _rust.TokenEncoder(tokenizer.to_str())
