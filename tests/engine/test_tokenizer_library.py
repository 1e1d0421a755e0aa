"""What runs for a user makes the same tokens with 0.23 and with 1.0 of the tokenizers library; `make test-tokenizers`
runs this file with the second one.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fixtures.places import ROOT
from tokenizers import Tokenizer

from reticent import _rust
from reticent.engine.tokenizer_library import core_tokenizer, json_of, library_json, library_tokenizer, names_in
from reticent.engine.vocabularies import bytelevel_tokenizer_json, wordpiece_tokenizer_json
from reticent.trainer.base_files import differing_parts
from reticent.trainer.tokenizer_of_model import tokenizer_notices

#: Modules that may call the library, and those of them that need 0.23.
DOOR = {"engine/tokenizer_library.py"}
OLD = {
    "engine/oracle/charsmap.py",
    "engine/oracle/misplaced.py",
    "engine/oracle/retokenizer.py",
    "trainer/foundation.py",
}
TEXTS = [
    "",
    " ",
    "Élie saw Mr. O'Neill at 9:30;\n\tab aab  BA.",
    "a" * 120,
    "ab 東京 [MASK] <|endoftext|> 👩‍👩‍👧 e\u0301",
]
NUM_PLAIN = len(TEXTS) - 1


@pytest.fixture(params=["cased", "uncased", "byte-level"])
def text(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A ``tokenizer.json``, made without the library."""
    if request.param == "byte-level":
        spelt = [chr(c) for c in (*range(33, 127), *range(161, 173), *range(174, 256), *range(256, 324))]
        (tmp_path / "vocab.json").write_text(json.dumps({t: n for n, t in enumerate([*spelt, "ab", "Ġa", "Ġab"])}))
        (tmp_path / "merges.txt").write_text("#version: 0.2\na b\nĠ a\nĠ ab\n")
        return bytelevel_tokenizer_json(tmp_path / "vocab.json", tmp_path / "merges.txt")
    letters = [chr(c) for c in range(33, 127)] + ["É", "é", "東"]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (tmp_path / "vocab.txt").write_text("\n".join([*special, *letters, *(f"##{t}" for t in letters), "aab", "##ab"]))
    return wordpiece_tokenizer_json(tmp_path / "vocab.txt", lowercase=request.param == "uncased")


def test_one_module_calls_the_library_for_a_user() -> None:
    calling = re.compile(r"^\s*(from tokenizers|import tokenizers)\b|backend_tokenizer", re.MULTILINE)
    package = ROOT / "reticent"
    found = {str(p.relative_to(package)) for p in package.rglob("*.py") if calling.search(p.read_text())}
    assert found == DOOR | OLD


def test_the_core_and_the_installed_library_make_the_same_tokens(text: str) -> None:
    library, core, texts = library_tokenizer(text), _rust.LibraryTokenizer(text), pa.array(TEXTS)
    made = core.encode(TEXTS)
    ids = [library.encode(one, add_special_tokens=False).ids for one in TEXTS]
    assert [each.ids for each in made] == ids
    assert sum(map(len, ids)) > 50
    for skip in (True, False):
        assert core.decode(ids, skip_special_tokens=skip) == [library.decode(i, skip_special_tokens=skip) for i in ids]
    words = _rust.segment(texts)
    none = np.zeros(words.num_words, dtype=np.uint8)
    written = _rust.TokenEncoder(text).encode(texts, words, none, none)
    plain = slice(0, written.doc_offsets[NUM_PLAIN])  # the last text has special tokens, which stay text in documents
    assert written.input_ids[plain].tolist() == [number for own in ids[:NUM_PLAIN] for number in own]


def test_offsets_are_characters_and_padding_and_truncation_are_not_applied(text: str) -> None:
    content = json.loads(text)
    cut = {"max_length": 2, "stride": 0, "strategy": "LongestFirst", "direction": "Right"}
    core = _rust.LibraryTokenizer(json.dumps(content | {"truncation": cut}))
    (made,) = core.encode(["é ab"])
    assert [("é ab"[a:b]).strip() for a, b in made.offsets[-2:]] in (["a", "b"], ["é", "ab"])
    assert made.offsets[0][0] == 0
    assert made.offsets[-1][1] == 4
    assert sorted({*made.word_ids}) == [0, 1]


def test_parts_are_compared_as_the_library_reads_them(text: str) -> None:
    content: dict[str, Any] = json.loads(text)
    content["model"].pop("type")  # as files of old do
    assert differing_parts(json.dumps(content), text) == []
    assert differing_parts(json.dumps(content | {"normalizer": {"type": "NFC"}}), text) == ["normalizer"]
    assert names_in(text) >= {"ab" if "ByteLevel" in text else "##ab", "a"}


def test_a_vocabulary_that_the_normaliser_never_reads_is_told(text: str) -> None:
    said = list(tokenizer_notices("base", text, builds=False))
    assert len(said) == ('"lowercase":true' in text)
    assert all("capitals or accents" in notice for notice in said)


def test_a_tokenizer_of_transformers_is_opened_once(text: str) -> None:
    class Wrapped:
        backend_tokenizer = library_tokenizer(text)

    wrapped: Any = Wrapped()
    assert json.loads(json_of(wrapped))["model"]["vocab"] == json.loads(text)["model"]["vocab"]
    if hasattr(Tokenizer, "from_str"):  # 1.0 writes a version that the crate of the core does not read
        assert library_json(wrapped.backend_tokenizer) == text
        assert core_tokenizer(wrapped) is core_tokenizer(wrapped)
