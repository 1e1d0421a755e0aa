"""Views are the tokens that the text gives, bit for bit: numbers instead of text change nothing."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fixtures.cases import real_case
from fixtures.corpora import CORPORA
from fixtures.drawing import examples, share_of
from fixtures.tokenizer_kinds import KINDS, published_tokenizers, tokenizer_json
from fixtures.tokenizers import plain_tokenizer
from fixtures.views import SIDES, Views, assert_same, case_of
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.core.errors import ArtifactError, CorpusError
from reticent.engine import packed as packed_module
from reticent.engine import token_views as views_module
from reticent.engine.detect import alignment
from reticent.engine.packed import StoredIds
from reticent.engine.protect import POLICIES, Policy
from reticent.engine.schema import HELDOUT, MEMBERS
from reticent.engine.single_pass import Encoding, SinglePass
from reticent.engine.store import open_tokens
from reticent.engine.token_copy import copy_tokens
from reticent.engine.word_ids import NumberedWords, WordWriter

#: Of every way that a text comes to tokens, and one whose ids need three bytes.
WIDE = plain_tokenizer(*(f"none{i}" for i in range(70_000)), "a", "b", "Smith", "12")
TOKENIZERS = {**{name: tokenizer_json(name) for name in KINDS}, "wide": WIDE}
#: Documents of a real corpus.
LIMIT = 60


pieces = st.sampled_from(
    [
        *("a", "b", "a", "b", "Smith", "smith", "été", "e\u0301t", "12", "1234", "12/05", "-", "@", ".", " ", " "),
        *("\u00a0", "\u200b", "\u00ad", "Smi\u00adth", "th\x0be", "was seen by", "\ue123", "😀", "👩\u200d⚕\ufe0f"),
        *("田中", "ก", "カナ", "א'", "\u0301", "ß", "ﬁ", "[MASK]", "<s>", "½", "\n"),
    ]
)  # fmt: skip
plain = st.lists(pieces, max_size=7).map("".join)
labels = st.sampled_from(["NAME", "CITY", "DATE", "ID"])
marked = st.tuples(st.lists(pieces, min_size=1, max_size=3).map("".join), labels).map(lambda m: f"«{m[0]}|{m[1]}»")
documents = st.lists(st.one_of(plain, plain, marked), max_size=6).map("".join)
people = st.sampled_from(["p0", "p1", "p2", "p3", "held0", "held1"])


@pytest.mark.heavy
@settings(max_examples=examples(150))
@given(
    st.lists(st.tuples(people, documents), min_size=2, max_size=9),
    st.sampled_from(list(TOKENIZERS)),
    st.sampled_from(["exact", "casefold", "fold"]),
    st.integers(2, 3),
    st.integers(1, 3),
    st.sampled_from(POLICIES),
    st.sampled_from([None, 0.5, 0.75]),
    st.booleans(),
)
def test_a_view_is_what_the_text_gives(
    tmp_path_factory: pytest.TempPathFactory,
    documents: list[tuple[str, str]],
    tokenizer: str,
    surface: str,
    k: int,
    n: int,
    policy: Any,
    share: float | None,
    households: bool,
) -> None:
    homes = {"p0": "h", "p1": "h", "p2": "i", "p3": "j", "held0": "k", "held1": "l"} if households else None
    # BERT drops private-use and lone combining characters, and a document without a token is refused: each has a word.
    documents = [("p0", "a b"), ("p2", "b a"), ("held0", "a"), *((person, f"{text} a") for person, text in documents)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alignment, "_MIN_SPANS", 1000)  # those drawn cut words
        patch.setattr(alignment, "_MIN_SHIFTED", 1000)
        case = case_of(tmp_path_factory.mktemp("case"), documents, homes)
    settings = Policy(k=k, n=n, policy=policy, max_document_frequency=share)
    views = Views(case, TOKENIZERS[tokenizer], settings, surface=surface)
    for name, splits in SIDES.items():
        assert_same(views.view(name, splits), views.of_text(name, splits))


@pytest.mark.parametrize("tokenizer", ["superword BPE", "WordPiece, uncased"])
def test_a_token_of_several_words_keeps_every_flag(tmp_path: Path, tokenizer: str) -> None:
    said = "th\x0be patient was seen by Dr. «Smith|NAME» on the ward of the old hospital"
    documents = [
        ("p0", f"{said} with Smith and so on"),
        ("p1", "the patient was s\x0been by rare on 12/«05|DATE»-b; th\x0be ward of the old «hospital|CITY»"),
        ("p1", "the hospital of the patient, seldom"),
        ("held0", f"a\u00adb {said}"),
    ]
    views = Views(case_of(tmp_path, documents), tokenizer_json(tokenizer), Policy(n=2))
    store, _ = found = views.view("train", (MEMBERS,))
    assert_same(found, views.of_text("train", (MEMBERS,)))
    assert StoredIds(views.folders["ids"]).more.max() > 0
    assert store.flags.any()
    assert store.ngram_starts.any()


@pytest.mark.parametrize("at_once", [1, 5, 30])
def test_blocks_do_not_change_a_view(tmp_path: Path, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    case = case_of(tmp_path, [(f"p{i % 3}", "a «Smith|NAME» b rare" * (i % 4) + " a 12/05") for i in range(40)])
    views = Views(case, tokenizer_json("WordPiece, cased"), Policy(n=3))
    expected = views.view("whole", (MEMBERS,))
    monkeypatch.setattr(views_module, "WORDS_AT_ONCE", at_once)
    assert_same(views.view("train", (MEMBERS,)), expected)
    content = [
        {path.name: path.read_bytes() for path in (views.folder / name).iterdir()} for name in ("whole", "train")
    ]
    assert content[0] == content[1]


@pytest.mark.heavy
def test_what_is_made_is_the_same_bytes_for_any_number_of_threads_and_any_part(tmp_path: Path) -> None:
    documents = [(f"p{i % 7}", f"a «Smith|NAME» seen on 12/«{i}|DATE» with b{i % 11} " * 9) for i in range(300)]
    made: dict[str, set[bytes]] = {}
    for threads in (1, 2, 5):
        (tmp_path / str(threads)).mkdir()
        views = Views(case_of(tmp_path / str(threads), documents), WIDE, Policy(n=2), num_threads=threads)
        views.view("train", (MEMBERS,))
        for path in sorted(views.folder.glob("*/*")):
            made.setdefault(f"{path.parent.name}/{path.name}", set()).add(path.read_bytes())
        for name, folder in views.folders.items():  # each alone
            alone = views.case.folder / f"{name}-alone"
            alone.mkdir()
            text = SinglePass(views.case.corpus, index=views.joint, spans=views.case.spans)
            if name in ("words", "spans"):
                setattr(text, {"words": "words", "spans": "word_spans"}[name], alone)
            else:
                text.encodings = [Encoding(WIDE, **{name: alone})]
            text.run()
            assert {p.name: p.read_bytes() for p in alone.iterdir()} == {
                p.name: p.read_bytes() for p in folder.iterdir()
            }
    assert all(len(content) == 1 for content in made.values())
    assert len(made) >= 15


@pytest.mark.parametrize("at_once", [1, 40, 1 << 20])
@pytest.mark.parametrize("tokenizer", ["superword BPE", "WordPiece, uncased", "wide"])
def test_a_copy_is_what_the_text_of_these_documents_gives(
    tmp_path: Path, tokenizer: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "th\x0be patient was seen by Dr. «Smith|NAME» on 12/«05|DATE» b"
    people = ("p0", "held0", "p1", "held1", "p2")
    documents = [(people[i % 5], f"{said * (i % 3)} a rare{i} the ward b") for i in range(33)]
    views = Views(case_of(tmp_path, documents), TOKENIZERS[tokenizer], Policy(n=2))
    views.view("train", (MEMBERS,))
    _, counts = views.of_text("text", (MEMBERS,))
    monkeypatch.setattr(packed_module, "TOKENS_AT_ONCE", at_once)
    (tmp_path / "copy").mkdir()
    found = copy_tokens(views.folder / "train", tmp_path / "copy")
    assert found == {name: counts[name] for name in found}
    files = [{p.name: p.read_bytes() for p in (tmp_path / name).iterdir()} for name in ("copy", "text")]
    assert files[0] == files[1]
    assert open_tokens(tmp_path / "copy").num_documents == counts["documents"]


def test_documents_without_a_token_are_refused_where_they_count(tmp_path: Path) -> None:
    nothing = plain_tokenizer("a", "b")
    content = json.loads(nothing)
    content["normalizer"] = {"type": "Replace", "pattern": {"String": "gone"}, "content": ""}
    case = case_of(tmp_path, [("p0", "a b"), ("held0", "gone")])
    views = Views(case, json.dumps(content), Policy())
    views.view("train", (MEMBERS,))
    with pytest.raises(CorpusError, match=r"part-0\.parquet row 2: the tokenizer makes no token of its words \(1\)"):
        views.view("audit", (MEMBERS, HELDOUT))


def test_parts_that_do_not_fit_each_other_are_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    views = Views(case_of(tmp_path, [("p0", "a b"), ("p1", "b a c")]), WIDE, Policy())
    other = Views(case_of(tmp_path / "other", [("p0", "a"), ("p1", "b"), ("p1", "c")]), WIDE, Policy())
    views.numbered.words = other.numbered.words
    with pytest.raises(ArtifactError, match="ids, words, spans and documents differ in number; run protect again"):
        views.view("train", (MEMBERS,))
    with pytest.raises(CorpusError, match="no document belongs to the splits heldout"):
        other.view("train", (HELDOUT,))
    for name, says in (("words.bin", "do not fit their documents"), ("word_ends.bin", "cannot be read")):
        path = other.folders["words"] / name
        path.unlink()
        path.write_bytes(b"")
        if name == "word_ends.bin":
            path.unlink()
        with pytest.raises(ArtifactError, match=says):
            NumberedWords(other.folders["words"])


@given(
    st.sampled_from([1, 2, 3, 255, 256, 1 << 19, (1 << 24) - 1, 1 << 24, (1 << 32) - 1]),
    st.lists(st.lists(st.floats(0, 1), max_size=20), max_size=6),
    st.data(),
)
def test_stored_numbers_are_those_that_were_written(num_listed: int, drawn: list[list[float]], data: Any) -> None:
    """By a sum of powers of two; documents in any order, a fifth of the words in no index."""
    documents = [[int(x * num_listed * 1.25) for x in document] for document in drawn]
    documents = [[number if number < num_listed else 0xFFFFFFFF for number in document] for document in documents]
    offsets = np.cumsum([0, *map(len, documents)]).astype(np.int64)
    with tempfile.TemporaryDirectory() as folder:
        writer, half = WordWriter(Path(folder), num_listed), len(documents) // 2
        for first, end in ((0, half), (half, len(documents))):
            numbers = np.array([number for document in documents[first:end] for number in document], dtype=np.uint32)
            writer.write(numbers, offsets[first : end + 1] - offsets[first])
        writer.close()
        stored = (Path(folder) / "words.bin").read_bytes()
        words = NumberedWords(Path(folder))
        order = np.array(data.draw(st.permutations(range(len(documents)))), dtype=np.int64)
        found = words.index_rows(order).tolist()
        assert words.index_rows(np.arange(half, len(documents))).tolist() == [
            n for document in documents[half:] for n in document
        ]
    assert words.doc_offsets.tolist() == offsets.tolist()
    assert found == [number for row in order for number in documents[row]]
    bits, place = stored[0], 1
    assert 2**bits > num_listed >= 2 ** (bits - 1)
    for document in documents:
        number_of_all = sum((number & (2**bits - 1)) << (bits * at) for at, number in enumerate(document))
        length = -(-len(document) * bits // 8)
        assert stored[place : place + length] == number_of_all.to_bytes(length, "little")
        place += length
    assert place == len(stored)


def test_words_of_people_who_are_in_no_index_protect_nothing(tmp_path: Path) -> None:
    case = case_of(tmp_path, [("p0", "a b «Smith|NAME»"), ("p1", "a b Smith"), ("held0", "a unheard «Jones|NAME» b")])
    views = Views(case, WIDE, Policy())
    views.numbered.index = views.index((MEMBERS,))
    folder = views.folders["words"]
    for path in folder.iterdir():
        path.unlink()
    SinglePass(case.corpus, folder, views.numbered.index).run()
    views.numbered.words = NumberedWords(folder)
    assert_same(views.view("train", (MEMBERS,)), views.of_text("train", (MEMBERS,)))
    with pytest.raises(ArtifactError, match="a document that counts holds a word that the index does not"):
        views.view("audit", (MEMBERS, HELDOUT))


@pytest.mark.heavy
@pytest.mark.parametrize("corpus", [name for name in CORPORA if not name.startswith("meddocan_")])
def test_views_of_real_corpora_are_what_their_text_gives(corpus: str, tmp_path: Path) -> None:
    tokenizers = published_tokenizers() or {
        name: tokenizer_json(name) for name in ("WordPiece, uncased", "byte-level BPE")
    }
    for number, (name, tokenizer) in share_of(list(enumerate(tokenizers.items())), list(CORPORA).index(corpus)):
        (tmp_path / str(number)).mkdir()
        policy = Policy(k=2 + number % 2, n=3 - number % 3, policy=POLICIES[number % 4])
        views = Views(real_case(corpus, tmp_path / str(number), LIMIT), tokenizer, policy)
        for side, splits in SIDES.items():
            assert_same(views.view(side, splits), views.of_text(side, splits)), name
