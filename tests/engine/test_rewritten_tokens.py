"""Tokens of rewritten text carry the flags of the original's view: those that looking the original's words up gives."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fixtures.cases import real_case, written_case
from fixtures.drawing import examples
from fixtures.tokenizer_kinds import KINDS, published_tokenizers, tokenizer_json
from fixtures.views import COLUMNS, Views
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent import _rust
from reticent.core.artifact import HashedFile, write_artifact
from reticent.core.errors import ArtifactError, CorpusError
from reticent.engine.flagged_words import Flagged, FlaggedWords
from reticent.engine.names import SurrogateNames
from reticent.engine.ngrams import NgramIndex
from reticent.engine.protect import Policy
from reticent.engine.rewrite import Rewritten, protection_of_words, replace_spans, replace_words_by_x
from reticent.engine.schema import MEMBERS
from reticent.engine.store import TokenStore, open_tokens, open_view
from reticent.engine.tokens import RewrittenTokens, _write_rewritten
from reticent.engine.word_ids import WordSpans

#: Documents of a real corpus.
LIMIT = 12
KEY = bytes(range(32))
STYLES = ("x", "tag", "surrogate", "rotate")
TOKENIZERS = {name: tokenizer_json(name) for name in KINDS}


@dataclass
class Rewritings:
    """The view of a case, and what makes its rewritten text by it, and by looking the original's words up."""

    case: Any
    tokenizer: str
    policy: Policy
    num_threads: int = 1

    def __post_init__(self) -> None:
        views = Views(self.case, self.tokenizer, self.policy, num_threads=self.num_threads)
        views.view("train", (MEMBERS,))
        self.view, self.index = views.folder / "train", views.index((MEMBERS,))

    def maker(self, style: Any, names: str = "realistic") -> RewrittenTokens:
        case = self.case
        return RewrittenTokens(
            style, open_view(self.view), case.corpus, case.individuals, self.tokenizer, splits=(MEMBERS,),
            spans=case.spans, policy=self.policy, names=SurrogateNames(source=names), num_threads=self.num_threads,
        )  # fmt: skip

    def both(self, style: str, draw: int = 1) -> list[tuple[TokenStore, dict[str, Any]]]:
        names = "syllables" if draw % 2 else "realistic"
        write = partial(self.maker(style, names).write, key=KEY, draw=draw)
        found = []
        for how, made in (("view", write), ("text", partial(self.by_text, style, draw, names))):
            folder = self.case.folder / f"{style}-{draw}-{how}"
            folder.mkdir()
            counts = made(folder)
            found.append((open_tokens(folder), counts))
        return found

    def by_text(self, style: Any, draw: int, names: str, folder: Path) -> dict[str, Any]:
        """Flags of the original's words are looked up in the index, and follow the words into the new text."""
        case, threads = self.case, self.num_threads
        flagged = FlaggedWords(
            case.corpus, case.individuals, splits=(MEMBERS,), index=self.index, spans=case.spans, policy=self.policy,
            by_category=style != "x", num_threads=threads,
        )  # fmt: skip
        options = {"num_threads": threads}
        if style in ("surrogate", "rotate"):
            options |= {"draw": draw, **flagged.survey().options(SurrogateNames(source=names))}

        def rewritten(documents: Flagged) -> Rewritten:
            part, words, flags, starts, gaps = documents
            if style == "x":
                return replace_words_by_x(part.texts, words, flags, starts, gaps, num_threads=threads)
            individuals = pa.array(part.codes).cast(pa.string())
            batch = pa.record_batch([part.texts, individuals, part.doc_ids], ["text", "individual_id", "doc_id"])
            return replace_spans(batch, words, flags, starts, flagged.spans_of(part, words), style, KEY, **options)

        encoder = _rust.TokenEncoder(self.tokenizer, num_threads=threads)
        texts = ((documents, rewritten(documents)) for documents in flagged)
        return _write_rewritten(folder, flagged, texts, encoder, self.tokenizer, None)


def assert_same(found: tuple[TokenStore, dict[str, Any]], expected: tuple[TokenStore, dict[str, Any]]) -> None:
    for name in COLUMNS:
        np.testing.assert_array_equal(getattr(found[0], name), getattr(expected[0], name), err_msg=name)
        assert getattr(found[0], name).dtype == getattr(expected[0], name).dtype
    assert found[0].doc_ids.to_pylist() == expected[0].doc_ids.to_pylist()
    assert found[1] == expected[1]
    assert found[0].flags_fingerprint() == expected[0].flags_fingerprint()
    assert found[0].text_fingerprint() == expected[0].text_fingerprint()
    assert_same_windows(found[0], expected[0])


def assert_same_windows(found: TokenStore, expected: TokenStore) -> None:
    """Windows of every length from every place of the longest documents."""
    lengths = np.diff(expected.doc_offsets)
    documents, starts, ends = [], [], []
    for document in np.argsort(-lengths)[:2]:
        first, last = expected.doc_offsets[document : document + 2]
        for start in range(first, last, max((last - first) // 40, 1)):
            for length in {1, 7, last - start}:
                documents.append(document)
                starts.append(start)
                ends.append(min(length, last - start))
    if not documents:
        return
    arrays = [np.array(column, dtype=np.int64) for column in (documents, starts, ends)]
    made = []
    for store in (found, expected):
        shape = len(documents), int(max(ends)) + 2
        out = np.empty(shape, np.int64), np.empty(shape, np.int32), np.empty(shape, np.uint8)
        store.gather(*arrays, 1, 99, out)
        made.append(out)
    for one, other in zip(*made, strict=True):
        np.testing.assert_array_equal(one, other)


pieces = st.sampled_from(
    [
        *("a", "b", "a b", "Smith", "smith", "été", "e\u0301t", "12", "1234", "12/05", "-", "@", ".", " ", " ", "\n"),
        *("\u00a0", "\u200b", "\u00ad", "Smi\u00adth", "th\x0be", "was seen by", "\ue123", "\ue123 ", "😀", "'s", "("),
        *("田中", "ก", "カナ", "א'", "\u0301", "ß", "[MASK]", "<s>", "½", "5.", "  ", "on the ward of", "2021-03-04"),
    ]
)  # fmt: skip
plain = st.lists(pieces, max_size=7).map("".join)
spaced = st.lists(pieces, max_size=7).map(" ".join)
labels = st.sampled_from(["NAME", "CITY", "DATE", "ID", "AGE", "QUANTITY"])
inside = st.lists(pieces, min_size=1, max_size=3).map("".join)
marked = st.tuples(inside, labels).map(lambda m: f"«{m[0]}|{m[1]}»")
documents = st.lists(st.one_of(plain, spaced, marked, marked.map(lambda m: f" {m} ")), max_size=7).map("".join)
people = st.sampled_from(["p0", "p1", "p2", "p3", "held0", "held1"])


@pytest.mark.heavy
@settings(max_examples=examples(160))
@given(
    st.lists(st.tuples(people, documents), min_size=1, max_size=7),
    st.sampled_from(list(TOKENIZERS)),
    st.sampled_from(STYLES),
    st.integers(1, 3),
    st.sampled_from(["occurrence", "individual", "corpus"]),
    st.booleans(),
)
def test_flags_of_rewritten_text_are_those_of_the_words_of_the_original(
    tmp_path_factory: pytest.TempPathFactory,
    documents: list[tuple[str, str]],
    tokenizer: str,
    style: str,
    n: int,
    scope: Any,
    households: bool,
) -> None:
    homes = {"p0": "h", "p1": "h", "p2": "i", "p3": "j", "held0": "k", "held1": "l"} if households else None
    # BERT drops private-use and lone combining characters, and a document without a token is refused: each has a word.
    documents = [("p0", "a b"), ("p2", ""), *((person, f"{text} a") for person, text in documents)]
    case = written_case(tmp_path_factory.mktemp("case"), documents, homes)
    rewritings = Rewritings(
        case, TOKENIZERS[tokenizer], Policy(n=n, scopes=dict.fromkeys(["NAME", "CITY", "ID"], scope))
    )
    assert_same(*rewritings.both(style, draw=n))


SAID = "th\x0be patient was seen by Dr. «Smith|NAME» on the ward of the old hospital"
HAND_MADE = [
    ("p0", f"{SAID} with Smith and so on, a b a on 2021-03-04 and «05/06/2021|DATE»"),
    ("p1", "the patient was s\x0been by rare on 12/«05|DATE»-b; th\x0be ward of the old «hospital|CITY»"),
    ("p1", ""),
    ("held0", f"a\u00adb {SAID}"),
    ("p1", "the hospital of the patient, seldom seen on «13/06/2021|DATE», and été «Élie|NAME» «Ann Smith|NAME» was"),
    ("p2", "nothing here to see"),
    ("p3", "«Ann|NAME»"),
    ("p2", " «\n|ID» Ann and on the ward of \ue123 \ue123 Smith on \ue123"),
]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("tokenizer", list(TOKENIZERS))
def test_hand_made_documents_keep_the_flags_beside_their_identifiers(
    tmp_path: Path, tokenizer: str, style: str
) -> None:
    rewritings = Rewritings(written_case(tmp_path, HAND_MADE), TOKENIZERS[tokenizer], Policy(n=2))
    found, expected = rewritings.both(style)
    assert_same(found, expected)
    assert found[0].has_flag(2)


def test_no_word_of_rewritten_text_is_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rewritings = Rewritings(written_case(tmp_path, HAND_MADE), TOKENIZERS["WordPiece, uncased"], Policy(n=2))
    monkeypatch.setattr(NgramIndex, "protect", None)
    monkeypatch.setattr(NgramIndex, "number_words", None)
    (tmp_path / "out").mkdir()
    rewritings.maker("rotate").write(tmp_path / "out", key=KEY, draw=1)
    assert open_tokens(tmp_path / "out").has_flag(2)


def test_rewritten_tokens_are_the_same_bytes_for_any_number_of_threads(tmp_path: Path) -> None:
    made: dict[str, set[bytes]] = {}
    documents = [(f"p{i % 7}", f"a «Smith|NAME» seen on 12/«{i}|DATE» with b{i % 11} " * 5) for i in range(200)]
    for threads in (1, 2, 5):
        (tmp_path / str(threads)).mkdir()
        case = written_case(tmp_path / str(threads), documents)
        maker = Rewritings(case, TOKENIZERS["byte-level BPE"], Policy(n=2), num_threads=threads).maker("rotate")
        for number, draw in enumerate((3, 4, 3)):
            folder = case.folder / str(number)
            folder.mkdir()
            maker.write(folder, key=KEY, draw=draw)
            for path in folder.iterdir():
                made.setdefault(f"{draw} {path.name}", set()).add(path.read_bytes())
    assert len(made) == 2 * 15
    assert all(len(content) == 1 for content in made.values())
    assert made["3 ids.bin"] != made["4 ids.bin"]


@pytest.mark.parametrize("style", ["surrogate", "rotate"])
def test_the_words_of_surrogates_stand_beside_their_tokens(tmp_path: Path, style: str) -> None:
    rewritings = Rewritings(written_case(tmp_path, HAND_MADE), TOKENIZERS["WordPiece, uncased"], Policy(n=2))
    (tmp_path / "out").mkdir()
    rewritings.maker(style).write(tmp_path / "out", key=KEY, draw=1)
    store, spans = open_tokens(tmp_path / "out"), WordSpans(tmp_path / "out")
    owners = np.repeat(np.arange(store.num_documents), np.diff(store.doc_offsets))
    rows = np.repeat(np.arange(store.num_documents), np.diff(spans.doc_offsets))
    bounds = zip(rows.tolist(), spans.firsts.tolist(), spans.ends.tolist(), strict=True)
    direct = ((store.flags & 1) > 0) & (store.word_ids >= 0)
    found = {(row, word) for row, first, end in bounds for word in range(first, end)}
    flagged = {*zip(owners[direct].tolist(), store.word_ids[direct].tolist(), strict=True)}
    assert found <= flagged
    assert {(row, word + 1) for row, word in flagged - found} <= found  # a token of the word before and of its first
    assert {"NAME", "DATE"} <= set(spans.names)


def test_a_view_of_other_documents_or_words_is_refused(tmp_path: Path) -> None:
    rewritings = Rewritings(written_case(tmp_path, HAND_MADE), TOKENIZERS["WordPiece, uncased"], Policy())
    for name, documents in (("others", HAND_MADE[2:]), ("words", [(person, "a") for person, _ in HAND_MADE])):
        (tmp_path / name).mkdir()
        other = Rewritings(written_case(tmp_path / name, documents), TOKENIZERS["WordPiece, uncased"], Policy())
        other.view = rewritings.view
        (tmp_path / name / "out").mkdir()
        with pytest.raises(ArtifactError, match=r"tokens of other (documents|words)"):
            other.maker("x").write(tmp_path / name / "out")


def test_tokens_of_patches_are_of_an_older_version(tmp_path: Path) -> None:
    rewritings = Rewritings(written_case(tmp_path, HAND_MADE), TOKENIZERS["WordPiece, uncased"], Policy())
    (rewritings.view / "patches.parquet").touch()
    with pytest.raises(ArtifactError, match="an older version of Reticent; run protect again"):
        open_tokens(rewritings.view)


def test_a_text_that_loses_all_its_tokens_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = written_case(tmp_path, [("p0", "a b"), ("p1", "a «b|NAME»")])
    rewritings = Rewritings(case, TOKENIZERS["WordPiece, uncased"], Policy())
    (tmp_path / "out").mkdir()
    monkeypatch.setattr("reticent.engine.tokens.replace_words_by_x", lambda texts, *_, **__: emptied(texts))
    with pytest.raises(CorpusError, match="row 2"):
        rewritings.maker("x").write(tmp_path / "out")


def emptied(texts: pa.Array) -> Rewritten:
    texts = pa.array(["a b", *[""] * (len(texts) - 1)], pa.large_string())
    words = _rust.segment(texts)
    nothing = np.zeros(words.num_words, dtype=np.uint8)
    return Rewritten(texts, words, nothing, nothing)


@pytest.mark.parametrize("tokenizer", list(TOKENIZERS))
def test_words_of_a_view_are_protected_as_they_were_when_it_was_made(tmp_path: Path, tokenizer: str) -> None:
    rewritings = Rewritings(written_case(tmp_path, HAND_MADE * 3), TOKENIZERS[tokenizer], Policy(n=2))
    view, case = open_view(rewritings.view), rewritings.case
    flagged = FlaggedWords(case.corpus, case.individuals, splits=(MEMBERS,), index=rewritings.index, policy=Policy(n=2))
    first = first_word = 0
    for part, words, flags, starts, _ in flagged:
        found = protection_of_words(view, first, first + len(part.codes), words.doc_offsets, first_word)
        assert found[0].tolist() == flags.tolist()
        assert found[1].tolist() == starts.tolist()
        first, first_word = first + len(part.codes), first_word + words.num_words
    some_are_untold = len(view.untold) > 0
    assert some_are_untold == (rewritings.view / "untold.parquet").exists()
    assert some_are_untold or tokenizer not in ("superword BPE", "WordPiece, uncased")


@pytest.mark.heavy
@pytest.mark.parametrize("corpus", ["aci_bench"])
def test_rewritten_tokens_of_a_real_corpus_have_the_flags_of_its_words(corpus: str, tmp_path: Path) -> None:
    tokenizers = published_tokenizers() or TOKENIZERS
    for number, name in enumerate(("bert-base-uncased", "gpt2")):
        (tmp_path / str(number)).mkdir()
        case = real_case(corpus, tmp_path / str(number), LIMIT)
        tokenizer = tokenizers.get(name) or TOKENIZERS[("WordPiece, uncased", "byte-level BPE")[number]]
        rewritings = Rewritings(case, tokenizer, Policy(n=2))
        for style in STYLES:
            assert_same(*rewritings.both(style))


def test_a_disk_that_is_full_at_any_write_leaves_nothing_that_is_taken_for_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewritings = Rewritings(written_case(tmp_path, HAND_MADE), TOKENIZERS["WordPiece, uncased"], Policy(n=2))
    tokens, whole, failures = tmp_path / "out", HashedFile.write, 0
    expected = rewritings.both("rotate")[0][0].flags_fingerprint()
    maker = rewritings.maker("rotate", "syllables")
    while not tokens.exists():
        left = failures

        def write(self: HashedFile, data: Any) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError(errno.ENOSPC, "full")
            whole(self, data)

        monkeypatch.setattr(HashedFile, "write", write if failures < 8 else whole)
        try:
            with write_artifact(tokens, kind="tokens", config={}, inputs={}) as writer:
                maker.write(writer.path, key=KEY, draw=1)
        except OSError:
            failures += 1
            assert not tokens.exists()
    assert failures == 8
    assert open_tokens(tokens).flags_fingerprint() == expected
