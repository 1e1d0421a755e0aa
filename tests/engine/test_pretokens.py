"""Tokens by distinct pretokens: the library's own, token for token, on real text and on fuzz.

An ordinary run takes a sample of every corpus; `-m slow` takes all of it.
"""

from __future__ import annotations

import csv
import itertools
import json
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from fixtures.drawing import examples, share_of
from fixtures.places import DATA
from fixtures.tokenizer_kinds import GPT4O, LLAMA3, split_by
from fixtures.tokenizers import Trained, bytelevel, unigram, wordpiece
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles.alignment import check_alignment
from tokenizers import AddedToken, Tokenizer, normalizers, pre_tokenizers, processors

from reticent import _rust
from reticent.engine.vocabularies import bytelevel_tokenizer_json, wordpiece_tokenizer_json

VOCABULARIES = DATA / "tokenizer_vocabs"
EVIL = (
    " ", "  ", "\n", "\r\n", "\t", "\x0b", "\x0c", "\x1c", "\x85", "\xa0", "\u2009", "\u2028", "\u3000", "\x00", "\x07",
    "\ufffd", "\u200b", "\u200d", "\ufeff", "\u0301", "\u0323", "\u0e34", "é", "e\u0301", "İ", "ß", "ﬁ", "½", "٣", "²",
    "<tool_call>", "É\n", ".\n/", "\r", "'S", "'Ll", "HELLOworld", "aBC", "(a", "\t(",
    "田", "한", "😀", "👩\u200d⚕️", "a", "B", "patient", "12", "'s", "'re", "'", "''", "’s", ".", ",", "-", "/", "«",
    "…", "_", "##ing", "[MASK]", "[UNK]", "<|endoftext|>", "x" * 101, "abcdefghijklmn", "1234567890.12345",
)  # fmt: skip


def changed(tokenizer_json: str, **parts: object) -> str:
    return json.dumps({**json.loads(tokenizer_json), **parts})


def bert(**options: bool | None) -> str:
    plain = {"clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": False}
    return changed(wordpiece(), normalizer={"type": "BertNormalizer", **plain, **options})


def gpt2(**options: bool) -> str:
    plain = {"add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return changed(bytelevel(), pre_tokenizer={"type": "ByteLevel", **plain, **options})


def with_a_word_added() -> str:
    token = {"id": 0, "content": "of the", "single_word": False, "lstrip": False, "rstrip": False}
    return changed(bytelevel(), added_tokens=[{**token, "normalized": True, "special": False}])


def with_normalizer(*steps: normalizers.Normalizer) -> str:
    tokenizer = Tokenizer.from_str(wordpiece())
    tokenizer.normalizer = normalizers.Sequence(list(steps))
    return tokenizer.to_str()


def roberta() -> str:
    """GPT-2's way with trimmed offsets and a mask token that takes the space before it."""
    tokenizer = Tokenizer.from_str(bytelevel())
    tokenizer.add_special_tokens(["<s>", "</s>", AddedToken("<mask>", lstrip=True)])
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0), trim_offsets=True)
    return tokenizer.to_str()


def with_spaces_added(*contents: str, **options: bool) -> str:
    """As ModernBERT and OLMo have them: the tokens of white space are no special ones."""
    tokenizer = Tokenizer.from_str(bytelevel())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_tokens([AddedToken(content, special=False, **options) for content in contents])
    return tokenizer.to_str()


def spaces_within_a_special_token() -> str:
    """The library passes over the special token, and finds no other within."""
    tokenizer = Tokenizer.from_str(with_spaces_added("  "))
    tokenizer.add_special_tokens([AddedToken("a  ")])
    return tokenizer.to_str()


def with_untyped_normalizer(normalizer: dict[str, str]) -> str:
    """As old files have it: the library tells the kind by the fields."""
    return json.dumps(json.loads(bytelevel()) | {"normalizer": normalizer})


def with_bytes_left_out(tokenizer_json: str, letters: str) -> str:
    """Without these letters of the byte-level alphabet: the library drops their bytes, and places the rest too soon."""
    parsed = json.loads(tokenizer_json)
    model = parsed["model"]
    model["vocab"] = {piece: number for piece, number in model["vocab"].items() if not set(letters) & set(piece)}
    model["merges"] = [merge for merge in model["merges"] if not set(letters) & set("".join(merge))]
    return json.dumps(parsed)


#: Mistral splits as GPT-4o does, but for what is shortened and for digits.
TEKKEN = GPT4O.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "").replace("{1,3}", "")


def modern(
    pattern: str,
    normalizer: normalizers.Normalizer | None = None,
    added: tuple[str, ...] = (),
    *,
    ignore_merges: bool = False,
    behavior: str = "isolated",
) -> str:
    tokenizer = Tokenizer.from_str(bytelevel())
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.add_tokens([AddedToken(content, special=False, normalized=False) for content in added])
    tokenizer.pre_tokenizer = split_by(pattern, behavior)
    parsed = json.loads(tokenizer.to_str())
    parsed["model"]["ignore_merges"] = ignore_merges
    if ignore_merges:  # a piece that no merges make
        parsed["model"]["merges"] = parsed["model"]["merges"][:40]
    return json.dumps(parsed)


def digits(*, individual: bool = True) -> str:
    """As StarCoder and SmolLM do it."""
    tokenizer = Tokenizer.from_str(bytelevel())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual), byte_level])
    return tokenizer.to_str()


#: Toy tokenizers and how texts reach the library with them.
TOYS = {
    "bert without normalizer": (lambda: changed(wordpiece(), normalizer=None), "bert"),
    "bytelevel": (gpt2, "bytelevel"),
    "bytelevel, offsets not trimmed": (lambda: gpt2(trim_offsets=False), "bytelevel"),
    "roberta": (roberta, "bytelevel"),
    "prefix space": (lambda: gpt2(add_prefix_space=True), "library"),
    "no pattern": (lambda: gpt2(use_regex=False), "library"),
    "llama 3": (lambda: modern(LLAMA3, ignore_merges=True), "bytelevel"),
    "llama 3, by merges": (lambda: modern(LLAMA3), "bytelevel"),
    "qwen": (lambda: modern(LLAMA3.replace("{1,3}", ""), normalizers.NFC(), ("<tool_call>", "é")), "bytelevel"),
    "gpt-4o": (lambda: modern(GPT4O), "bytelevel"),
    "mistral": (lambda: modern(TEKKEN), "bytelevel"),
    "another pattern": (lambda: modern(LLAMA3.replace("{1,3}", "{1,4}")), "library"),
    "pattern left out": (lambda: modern(LLAMA3, behavior="removed"), "library"),
    "nfkc before a pattern": (lambda: modern(LLAMA3, normalizers.NFKC()), "library"),
    "digits": (digits, "bytelevel"),
    "digits together": (lambda: digits(individual=False), "library"),
    "spaces added": (lambda: with_spaces_added("  ", "   ", "\n\n", "\t\t\t"), "bytelevel"),
    "a space added": (lambda: with_spaces_added(" ", "  "), "library"),
    "spaces added, more taken": (lambda: with_spaces_added("  ", rstrip=True), "library"),
    "spaces added, as words": (lambda: with_spaces_added("  ", single_word=True), "library"),
    "spaces hidden": (spaces_within_a_special_token, "library"),
    "normalizer without a type": (lambda: with_untyped_normalizer({"prepend": "a"}), "library"),
    "a word added": (with_a_word_added, "library"),
    "nfd, accents stripped": (lambda: with_normalizer(normalizers.NFD(), normalizers.StripAccents()), "library"),
    "nfc": (lambda: with_normalizer(normalizers.NFC()), "library"),
    "nfkc, lower case": (lambda: with_normalizer(normalizers.NFKC(), normalizers.Lowercase()), "library"),
    "unigram": (unigram, "library"),
}
TOYS |= {  # every option of BERT's normaliser
    f"bert {clean:d}{chinese:d}{accents}{lower:d}": (
        lambda clean=clean, chinese=chinese, accents=accents, lower=lower: bert(
            clean_text=clean, handle_chinese_chars=chinese, strip_accents=accents, lowercase=lower
        ),
        "bert",
    )
    for clean, chinese, accents, lower in itertools.product(
        (False, True), (False, True), (None, False, True), (False, True)
    )
}
PATTERNS = ("llama 3", "llama 3, by merges", "qwen", "gpt-4o", "mistral", "digits", "spaces added")
CASED, UNCASED = "bert 11None0", "bert 11None1"


class Pair:
    """The core's encoder beside the library's."""

    def __init__(self, tokenizer_json: str, num_threads: int = 1):
        self.encoder = _rust.TokenEncoder(tokenizer_json, num_threads=num_threads)
        self.library = Tokenizer.from_str(tokenizer_json)
        self.library.encode_special_tokens = True
        ids = (self.library.token_to_id(token) for token in ("[UNK]", "<unk>"))
        self.unknown = next((i for i in ids if i is not None), None)
        added = self.library.get_added_tokens_decoder().items()
        self.special = [i for i, token in added if token.special and i != self.unknown]

    def check(self, texts: list[str]) -> int:
        """Compare the tokens; return their number."""
        column = pa.array(texts, pa.large_string())
        words = _rust.segment(column)
        zeros = np.zeros(words.num_words, dtype=np.uint8)
        tokens = self.encoder.encode(column, words, zeros, zeros)
        expected = self.library.encode_batch_fast(texts, add_special_tokens=False)
        assert np.diff(tokens.doc_offsets).tolist() == [len(encoding.ids) for encoding in expected]
        for number, encoding in enumerate(expected):
            ours = tokens.input_ids[slice(*tokens.doc_offsets[number : number + 2])]
            theirs = np.array(encoding.ids, dtype=ours.dtype)
            if self.unknown is not None:
                # Text that spells a special token is the unknown token here; the library lets some through.
                theirs = np.where(np.isin(theirs, self.special), self.unknown, theirs)
            same = ours == theirs
            assert same.all(), f"document {number}: token {int(np.argmin(same))} differs"
        return len(tokens.input_ids)


@cache
def toy(name: str) -> Pair:
    return Pair(TOYS[name][0]())


fuzz = st.lists(st.sampled_from(EVIL) | st.text(max_size=4), max_size=12).map("".join)


@pytest.mark.parametrize("name", TOYS)
@settings(max_examples=examples(60))
@given(st.lists(fuzz, max_size=4))
@example(["it's  \n\n ok", "'s", " 's", "\n", "a\u0301 \u0301b", "x\u200d \u200dy"])
@example(["abcdefghijklmn, abcdefghijklmno abcdefghijklmnop", "[MASK]", "12/05/1999 x-y-z (a)b"])
def test_tokens_of_fuzzed_text_are_the_librarys(name: str, texts: list[str]) -> None:
    toy(name).check(texts)


@cache
def trained(name: str) -> Trained:
    unknown = {"unigram": "<unk>"}.get(name, "[UNK]")
    return Trained.of(TOYS[name][0](), unknown)


@pytest.mark.parametrize("name", [CASED, "bert 11True1", "bytelevel", "roberta", "prefix space", *PATTERNS])
@settings(max_examples=examples(60))
@given(text=fuzz, seed=st.integers(0, 1000))
@example(text="Anna-Maria O'Neil (12/05/1999), 12/05/1999 x", seed=3)
def test_words_and_flags_of_fuzzed_text_match_oracle(name: str, text: str, seed: int) -> None:
    check_alignment(trained(name), text, seed)
    check_alignment(trained(name), f"{text} {text}", seed)  # the second time much of it is remembered


@pytest.mark.heavy
def test_tokens_around_every_character_are_the_librarys() -> None:
    characters = [chr(code) for code in (*range(0x250), *share_of(range(0x250, 0x3100)))]
    texts = [form.format(c) for c in characters for form in ("a{}b", "a {} b", "{}", "-{}-", "\n{}", " {}x")]
    for name in (UNCASED, CASED, "bytelevel", *PATTERNS):
        toy(name).check(texts)


def test_remembered_words_change_nothing_between_batches_and_threads() -> None:
    texts = [f"patient {number % 7} was seen at 10:{number:02d}, été's end" for number in range(50)]
    for name in (CASED, "bytelevel"):
        for num_threads in (1, 4):
            pair = Pair(TOYS[name][0](), num_threads)
            for batch in (texts, texts[::-1], texts[:1], []):
                pair.check(batch)


def test_a_forgotten_word_is_found_again() -> None:
    """More distinct chunks than a thread remembers, twice."""
    text = " ".join(f"{number:x}" for number in range(150_000))
    pair = Pair(bytelevel())
    assert pair.check([text, text]) > 600_000


@pytest.mark.parametrize("name", [CASED, "bytelevel"])
def test_words_that_are_not_the_texts_own_are_met_by_their_bytes(name: str) -> None:
    """A cached chunk holds for its words only where they are: here they are another text's."""
    encoder = toy(name).encoder
    own, other = pa.array(["one two three"] * 2), pa.array(["one two three", "ab cdefgh ij"])
    zeros = np.zeros(6, dtype=np.uint8)
    first = encoder.encode(own, _rust.segment(own), zeros, zeros)
    flags = np.array([0, 0, 0, 1, 2, 4], dtype=np.uint8)
    tokens = encoder.encode(own, _rust.segment(other), flags, flags)
    assert (first.input_ids == tokens.input_ids).all()
    # "ab" lies in "one", "cdefgh" in "one two t", "ij" in "three".
    second = slice(*tokens.doc_offsets[1:3])
    covered = toy(name).library.encode("one two three", add_special_tokens=False).offsets
    spans = [(0, 2, 1), (3, 9, 2), (10, 12, 4)]
    expected = [sum(flag for a, b, flag in spans if max(a, start) < min(b, end)) for start, end in covered]
    assert tokens.flags[second].tolist() == expected
    assert len(set(expected)) >= 3


@pytest.mark.parametrize("text", ["(anna", "日annabella", " 日 anna €bella"])
@pytest.mark.parametrize("name", ["bytelevel", "llama 3", "no pattern"])
def test_characters_that_the_vocabulary_lacks_take_no_protection_from_a_word(name: str, text: str) -> None:
    encoder = _rust.TokenEncoder(with_bytes_left_out(TOYS[name][0](), "(âĤ¬æĹ¥"))
    column = pa.array([text], pa.large_string())
    words = _rust.segment(column)
    starts, ends = (bounds.tolist() for bounds in words.char_spans(column))
    flags = np.array([text[a:b].isascii() for a, b in zip(starts, ends, strict=True)], dtype=np.uint8)
    tokens = encoder.encode(column, words, flags, flags)
    spell = Tokenizer.from_str(TOYS[name][0]()).id_to_token
    assert all(flag or spell(i) == "Ġ" for i, flag in zip(tokens.input_ids, tokens.flags, strict=True))


def test_a_long_line_takes_no_longer_than_short_ones() -> None:
    text = pa.array(["a-" * 100_000], pa.large_string())
    words = _rust.segment(text)
    zeros = np.zeros(words.num_words, dtype=np.uint8)
    began = time.perf_counter()
    assert len(toy("digits").encoder.encode(text, words, zeros, zeros).input_ids) == 200_000
    assert time.perf_counter() - began < 20


# Real vocabularies and real text.

REAL = ("bert-base-cased", "bert-base-uncased", "bert-base-multilingual-cased", "gpt2")
CORPORA = (
    "aci_bench", "ehr_deid_sample_notes", "golden_metrics", "i2b2_format", "meddocan", "mts_dialog", "mtsamples",
    "presidio_synth", "primock57", "tab", "unicode_break_tests", "us_census_names",
)  # fmt: skip


@cache
def real(name: str) -> Pair:
    folder = VOCABULARIES / name
    if not folder.is_dir():
        pytest.skip(f"no vocabulary {name} under RETICENT_DATA")
    if (folder / "vocab.txt").exists():
        return Pair(wordpiece_tokenizer_json(folder / "vocab.txt", lowercase="uncased" in name), num_threads=2)
    return Pair(bytelevel_tokenizer_json(folder / "vocab.json", folder / "merges.txt"), num_threads=2)


def strings(value: object) -> Iterator[str]:
    """Every text in a parsed record."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from strings(item)


def texts_by_row(path: Path) -> Iterator[str]:
    if path.suffix == ".csv":
        with path.open(encoding="utf-8", newline="") as file:
            yield from itertools.chain.from_iterable(csv.reader(file))
        return
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        yield from itertools.chain.from_iterable(strings(json.loads(line)) for line in text.split("\n") if line)
    elif path.suffix == ".json":
        yield from strings(json.loads(text))
    elif path.name.endswith("BreakTest.txt"):
        for line in text.splitlines():
            codes = line.split("#")[0].split()[1:-1:2]
            yield "".join(chr(int(code, 16)) for code in codes)
    else:
        yield text
        yield from text.splitlines()


@cache
def corpus(name: str) -> list[str]:
    folder: Path = DATA / name
    if not folder.is_dir():
        pytest.skip(f"no {name} under RETICENT_DATA")
    found = [text for path in sorted(folder.rglob("*")) if path.is_file() for text in texts_by_row(path)]
    assert found
    return found


@pytest.mark.heavy
@pytest.mark.corpus
@pytest.mark.parametrize("name", CORPORA)
def test_tokens_of_a_sample_of_real_text_are_the_librarys(name: str) -> None:
    texts = sorted(set(corpus(name)))
    sample = texts[:: max(1, sum(map(len, texts)) // 100_000)]
    for vocabulary in REAL:
        assert real(vocabulary).check(sample) > 0
        assert real(vocabulary).encoder.path != "library"


@pytest.mark.slow
@pytest.mark.corpus
@pytest.mark.parametrize("vocabulary", REAL)
@pytest.mark.parametrize("name", CORPORA)
def test_tokens_of_all_real_text_are_the_librarys(vocabulary: str, name: str) -> None:
    texts = corpus(name)
    num_tokens = sum(real(vocabulary).check(texts[first : first + 2000]) for first in range(0, len(texts), 2000))
    print(f"{name}, {vocabulary}: {len(texts)} texts, {num_tokens} tokens")
    assert num_tokens > len(texts) // 2
