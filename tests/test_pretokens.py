"""Tokens by distinct pretokens: the library's own, token for token, on real text and on fuzz."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from conftest import DATA
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_tokens import bytelevel, unigram, wordpiece
from tokenizers import Tokenizer, normalizers

from reticent import _rust
from reticent.engine.vocabularies import bytelevel_tokenizer_json, wordpiece_tokenizer_json

VOCABULARIES = DATA / "tokenizer_vocabs"
EVIL = (
    " ", "  ", "\n", "\r\n", "\t", "\x0b", "\x0c", "\x1c", "\x85", "\xa0", "\u2009", "\u2028", "\u3000", "\x00", "\x07",
    "\ufffd", "\u200b", "\u200d", "\ufeff", "\u0301", "\u0323", "\u0e34", "é", "e\u0301", "İ", "ß", "ﬁ", "½", "٣", "²",
    "田", "한", "😀", "👩\u200d⚕️", "a", "B", "patient", "12", "'s", "'re", "'", "''", "’s", ".", ",", "-", "/", "«",
    "…", "_", "##ing", "[MASK]", "[UNK]", "<|endoftext|>", "x" * 101,
)  # fmt: skip


def changed(tokenizer_json: str, **parts: object) -> str:
    return json.dumps({**json.loads(tokenizer_json), **parts})


def bert(**options: bool | None) -> str:
    plain = {"clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": False}
    return changed(wordpiece(), normalizer={"type": "BertNormalizer", **plain, **options})


def gpt2(**options: bool) -> str:
    plain = {"add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return changed(bytelevel(), pre_tokenizer={"type": "ByteLevel", **plain, **options})


def with_dropout() -> str:
    parsed = json.loads(bytelevel())
    parsed["model"]["dropout"] = 0.1
    return json.dumps(parsed)


def with_a_word_added() -> str:
    token = {"id": 0, "content": "of the", "single_word": False, "lstrip": False, "rstrip": False}
    return changed(bytelevel(), added_tokens=[{**token, "normalized": True, "special": False}])


def with_other_normalizer() -> str:
    tokenizer = Tokenizer.from_str(wordpiece())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()])
    return tokenizer.to_str()


#: Toy tokenizers and how texts reach the library with them.
TOYS = {
    "bert uncased": (lambda: bert(lowercase=True), "bert"),
    "bert cased": (bert, "bert"),
    "bert accents kept": (lambda: bert(lowercase=True, strip_accents=False), "bert"),
    "bert accents stripped": (lambda: bert(strip_accents=True), "bert"),
    "bert unclean": (lambda: bert(clean_text=False, handle_chinese_chars=False), "bert"),
    "bert without normalizer": (lambda: changed(wordpiece(), normalizer=None), "bert"),
    "bytelevel": (gpt2, "bytelevel"),
    "prefix space": (lambda: gpt2(add_prefix_space=True), "library"),
    "no pattern": (lambda: gpt2(use_regex=False), "library"),
    "dropout": (with_dropout, "library"),
    "a word added": (with_a_word_added, "library"),
    "other normalizer": (with_other_normalizer, "library"),
    "unigram": (unigram, "library"),
}


class Pair:
    """The core's encoder beside the library's."""

    def __init__(self, tokenizer_json: str, num_threads: int = 1):
        self.encoder = _rust.TokenEncoder(tokenizer_json, num_threads=num_threads)
        self.library = Tokenizer.from_str(tokenizer_json)
        self.library.encode_special_tokens = True
        self.special = [i for i, token in self.library.get_added_tokens_decoder().items() if token.special]

    def check(self, texts: list[str]) -> None:
        column = pa.array(texts, pa.large_string())
        words = _rust.segment(column)
        zeros = np.zeros(words.num_words, dtype=np.uint8)
        tokens = self.encoder.encode(column, words, zeros, zeros)
        expected = self.library.encode_batch_fast(texts, add_special_tokens=False)
        assert np.diff(tokens.doc_offsets).tolist() == [len(encoding.ids) for encoding in expected]
        for number, encoding in enumerate(expected):
            ours = tokens.input_ids[slice(*tokens.doc_offsets[number : number + 2])]
            theirs = np.array(encoding.ids, dtype=ours.dtype)
            # Text that spells a special token is the unknown token here; the library lets some through.
            same = (ours == theirs) | np.isin(theirs, self.special)
            assert same.all(), f"document {number}: token {int(np.argmin(same))} differs"


@cache
def toy(name: str) -> Pair:
    return Pair(TOYS[name][0]())


@pytest.mark.parametrize("name", TOYS)
def test_the_path_follows_the_configuration(name: str) -> None:
    assert toy(name).encoder.path == TOYS[name][1]


@pytest.mark.parametrize("name", [name for name, (_, path) in TOYS.items() if path != "library"])
@settings(max_examples=300)
@given(st.lists(st.lists(st.sampled_from(EVIL) | st.text(max_size=4), max_size=12).map("".join), max_size=4))
@example(["it's  \n\n ok", "'s", " 's", "\n", "a\u0301 \u0301b", "x\u200d \u200dy"])
def test_tokens_of_fuzzed_text_are_the_librarys(name: str, texts: list[str]) -> None:
    toy(name).check(texts)


def test_tokens_around_every_character_are_the_librarys() -> None:
    characters = [chr(code) for code in range(0x3100)]
    texts = [form.format(c) for c in characters for form in ("a{}b", "a {} b", "{}", "-{}-")]
    for name in ("bert uncased", "bert cased", "bytelevel"):
        toy(name).check(texts)


def test_what_is_remembered_changes_nothing_between_batches_and_threads() -> None:
    texts = [f"patient {number % 7} was seen at 10:{number:02d}, été's end" for number in range(50)]
    for name in ("bert cased", "bytelevel"):
        for num_threads in (1, 4):
            pair = Pair(TOYS[name][0](), num_threads)
            for batch in (texts, texts[::-1], texts[:1], []):
                pair.check(batch)


@cache
def real(name: str) -> Pair:
    folder = VOCABULARIES / name
    if not folder.is_dir():
        pytest.skip(f"no vocabulary {name} under RETICENT_DATA")
    if (folder / "vocab.txt").exists():
        return Pair(wordpiece_tokenizer_json(folder / "vocab.txt", lowercase="uncased" in name), num_threads=2)
    return Pair(bytelevel_tokenizer_json(folder / "vocab.json", folder / "merges.txt"), num_threads=2)


@pytest.mark.corpus
@pytest.mark.parametrize("vocabulary", ["bert-base-cased", "bert-base-uncased", "bert-base-multilingual-cased", "gpt2"])
@pytest.mark.parametrize("corpus", ["mtsamples/mtsamples.jsonl", "tab/tab_train.jsonl", "meddocan/train.jsonl"])
def test_tokens_of_real_text_are_the_librarys(vocabulary: str, corpus: str) -> None:
    path: Path = DATA / corpus
    if not path.exists():
        pytest.skip(f"no {corpus} under RETICENT_DATA")
    pair = real(vocabulary)
    assert pair.encoder.path != "library"
    pair.check([json.loads(line)["text"] for line in path.read_text(encoding="utf-8").splitlines()[:400]])
