"""Patches are the tokens that the rewritten text gives, bit for bit, though only regions of it were tokenised."""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.cases import Case, real_case
from fixtures.small_files import files_of_at_most
from fixtures.tokenizer_kinds import KINDS, published_tokenizers, tokenizer_json
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.core.artifact import HashedFile, fingerprint, write_artifact
from reticent.core.errors import ArtifactError
from reticent.engine import packed as packed_module
from reticent.engine.flagged_words import FlaggedWords
from reticent.engine.index import IndexConfig, build_index
from reticent.engine.names import SurrogateNames
from reticent.engine.protect import Policy
from reticent.engine.regions import Regions
from reticent.engine.schema import MEMBERS
from reticent.engine.store import TokenStore, open_tokens, open_view
from reticent.engine.text_pass import Encoding, TextPass
from reticent.engine.token_copy import copy_tokens
from reticent.engine.tokens import TokenMaker

#: Documents of a real corpus; 0 for all.
LIMIT = int(os.environ.get("RETICENT_VIEW_DOCUMENTS", "12")) or None
KEY = bytes(range(32))
STYLES = ("x", "tag", "surrogate", "rotate")
COLUMNS = ("input_ids", "word_ids", "flags", "ngram_starts", "doc_offsets", "individual")
TOKENIZERS = {name: tokenizer_json(name) for name in KINDS}


@dataclass
class Rewritings:
    """The ids of a case, and what makes its rewritten text, as a patch and whole."""

    case: Any
    tokenizer: str
    policy: Policy
    num_threads: int = 1

    def __post_init__(self) -> None:
        self.ids = self.case.folder / "ids"
        self.ids.mkdir()
        TextPass(self.case.corpus, encodings=[Encoding(self.tokenizer, self.ids)], num_threads=self.num_threads).run()
        self.index = build_index(
            self.case.corpus, self.case.individuals, splits=(MEMBERS,), config=IndexConfig(max_n=self.policy.n)
        )

    def maker(
        self, by_category: bool, *, patch: bool, kept: Path | None = None, names: str = "realistic"
    ) -> TokenMaker:
        flagged = FlaggedWords(
            self.case.corpus,
            self.case.individuals,
            splits=(MEMBERS,),
            index=self.index,
            spans=self.case.spans,
            policy=self.policy,
            by_category=by_category,
            num_threads=self.num_threads,
        )
        drawn = SurrogateNames(source=names)
        return TokenMaker(flagged, self.tokenizer, ids=self.ids if patch else None, kept=kept, names=drawn)

    def both(self, style: str, draw: int = 1) -> list[tuple[TokenStore, dict[str, Any]]]:
        found = []
        for patch in (True, False):
            folder = self.case.folder / f"{style}-{draw}-{'patch' if patch else 'store'}"
            folder.mkdir()
            maker = self.maker(style != "x", patch=patch, names="syllables" if draw % 2 else "realistic")
            counts = maker.write(folder, style=style, key=KEY, draw=draw)
            found.append((open_tokens(folder, ids=self.ids if patch else None), counts))
        return found


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


def case_of(folder: Path, documents: list[tuple[str, str]], homes: dict[str, str] | None = None) -> Case:
    case = Case(folder, documents, homes)
    case.write()
    return case


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
@settings(max_examples=int(os.environ.get("RETICENT_PATCH_EXAMPLES", "45")), deadline=None)
@given(
    st.lists(st.tuples(people, documents), min_size=1, max_size=7),
    st.sampled_from(list(TOKENIZERS)),
    st.sampled_from(STYLES),
    st.integers(1, 3),
    st.sampled_from(["occurrence", "individual", "corpus"]),
    st.booleans(),
)
def test_a_patch_is_what_the_rewritten_text_gives(
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
    case = case_of(tmp_path_factory.mktemp("case"), documents, homes)
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
@pytest.mark.parametrize("tokenizer", ["WordPiece, uncased", "byte-level BPE", "superword BPE"])
def test_hand_made_documents_keep_the_tokens_beside_their_identifiers(
    tmp_path: Path, tokenizer: str, style: str
) -> None:
    rewritings = Rewritings(case_of(tmp_path, HAND_MADE), TOKENIZERS[tokenizer], Policy(n=2))
    found, expected = rewritings.both(style)
    assert_same(found, expected)
    patched = (tmp_path / f"{style}-1-patch" / "patches.parquet").exists()
    assert patched == (tokenizer != "superword BPE")
    if patched:
        regions = pq.read_table(tmp_path / f"{style}-1-patch" / "patches.parquet").to_pydict()
        assert 0 < sum(regions["made"]) < 0.75 * found[0].num_tokens
        assert max(np.bincount(regions["document"])) > 1  # tokens between two regions stay


def test_blocks_select_and_other_readers_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rewritings = Rewritings(case_of(tmp_path, HAND_MADE * 3), TOKENIZERS["WordPiece, uncased"], Policy(n=2))
    (patch, _), (store, _) = rewritings.both("tag")
    monkeypatch.setattr(packed_module, "TOKENS_AT_ONCE", 20)
    chosen = np.array([4, 5, 6, 1, 0])
    for name in COLUMNS[:4]:
        assert [b.tolist() for b in patch.blocks(name)] == [b.tolist() for b in store.blocks(name)]
        assert getattr(patch.select(chosen), name).tolist() == getattr(store.select(chosen), name).tolist()
    assert [patch.has_flag(flag) for flag in (1, 2)] == [store.has_flag(flag) for flag in (1, 2)] == [True, True]
    with pytest.raises(ArtifactError, match="tokens of rewritten text; only those of the original are copied"):
        copy_tokens(tmp_path / "tag-1-patch", tmp_path)


def test_a_patch_is_the_same_bytes_for_any_number_of_threads_and_from_kept_regions(tmp_path: Path) -> None:
    made: dict[str, set[bytes]] = {}
    documents = [(f"p{i % 7}", f"a «Smith|NAME» seen on 12/«{i}|DATE» with b{i % 11} " * 5) for i in range(200)]
    for threads in (1, 2, 5):
        (tmp_path / str(threads)).mkdir()
        case = case_of(tmp_path / str(threads), documents)
        rewritings = Rewritings(case, TOKENIZERS["byte-level BPE"], Policy(n=2), num_threads=threads)
        kept = case.folder / "regions"
        maker = rewritings.maker(True, patch=True, kept=kept)
        for number, draw in enumerate((3, 4, 3)):
            folder = case.folder / str(number)
            folder.mkdir()
            maker.write(folder, style="rotate", key=KEY, draw=draw)
            assert kept.exists()
            for path in folder.iterdir():
                made.setdefault(f"{draw} {path.name}", set()).add(path.read_bytes())
    assert len(made) == 2 * 10
    assert all(len(content) == 1 for content in made.values())
    assert made["3 ids.bin"] != made["4 ids.bin"]


@pytest.mark.parametrize(
    ("column", "change"),
    [("document", 99), ("first", 0), ("first", 1 << 40), ("replaced", 1 << 30), ("made", 0), ("document", -1)],
)
def test_regions_that_do_not_fit_are_refused(tmp_path: Path, column: str, change: int) -> None:
    rewritings = Rewritings(case_of(tmp_path, HAND_MADE), TOKENIZERS["WordPiece, uncased"], Policy())
    rewritings.both("x")
    path = tmp_path / "x-1-patch" / "patches.parquet"
    table = pq.read_table(path)
    values = table.column(column).to_pylist()
    values[-1] = change
    number = table.schema.get_field_index(column)
    field = table.schema.field(number)
    pq.write_table(table.set_column(number, field, pa.array(values, field.type)), path)
    with pytest.raises(ArtifactError, match=r"damaged|cannot be read"):
        open_tokens(path.parent, ids=rewritings.ids)


def test_ids_that_were_made_again_are_refused(tmp_path: Path) -> None:
    rewritings = Rewritings(case_of(tmp_path, HAND_MADE), TOKENIZERS["WordPiece, uncased"], Policy())
    ids, patch = tmp_path / "tokens" / "ids", tmp_path / "tokens" / "patch"
    for text in ("first", "again"):
        with write_artifact(ids, kind="token-ids", config={"made": text}, inputs={}) as writer:
            shutil.copytree(rewritings.ids, writer.path, dirs_exist_ok=True)
        if text == "first":
            inputs = {"ids": fingerprint(ids)}
            with write_artifact(patch, kind="tokens", config={}, inputs=inputs) as writer:
                rewritings.maker(False, patch=True).write(writer.path, style="x")
            assert open_tokens(patch).num_documents == 7
    with pytest.raises(ArtifactError, match="not the ids that patch was made for; run protect again"):
        open_tokens(patch)


@pytest.mark.heavy
@pytest.mark.parametrize("corpus", ["aci_bench"])
def test_patches_of_a_real_corpus_are_what_its_rewritten_text_gives(corpus: str, tmp_path: Path) -> None:
    tokenizers = published_tokenizers() or TOKENIZERS
    for number, name in enumerate(("bert-base-uncased", "gpt2")):
        (tmp_path / str(number)).mkdir()
        case = real_case(corpus, tmp_path / str(number), LIMIT)
        tokenizer = tokenizers.get(name) or TOKENIZERS[("WordPiece, uncased", "byte-level BPE")[number]]
        rewritings = Rewritings(case, tokenizer, Policy(n=2))
        for style in STYLES:
            assert_same(*rewritings.both(style))


def test_a_disk_that_is_full_at_any_write_leaves_nothing_that_is_taken_for_a_patch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewritings = Rewritings(case_of(tmp_path, HAND_MADE), TOKENIZERS["WordPiece, uncased"], Policy(n=2))
    kept, patch, whole, failures = tmp_path / "regions", tmp_path / "patch", HashedFile.write, 0
    expected = rewritings.both("rotate")[0][0].flags_fingerprint()
    maker = rewritings.maker(True, patch=True, kept=kept, names="syllables")
    while not patch.exists():
        left = failures

        def write(self: HashedFile, data: Any) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError(errno.ENOSPC, "full")
            whole(self, data)

        monkeypatch.setattr(HashedFile, "write", write if failures < 8 else whole)
        try:
            with write_artifact(patch, kind="tokens", config={}, inputs={}) as writer:
                maker.write(writer.path, style="rotate", key=KEY, draw=1)
        except OSError:
            failures += 1
            assert not patch.exists()
    assert failures == 8
    assert kept.exists()
    assert TokenStore.of_packed(open_view(patch, rewritings.ids), patch).flags_fingerprint() == expected


def test_a_disk_that_fills_up_while_regions_are_kept_is_an_error_with_its_number(tmp_path: Path) -> None:
    regions = Regions(*[np.zeros(4000)] * len(fields(Regions)))
    with (
        (tmp_path / "regions").open("wb") as file,
        pytest.raises(OSError, match="File too large") as error,
        files_of_at_most(50_000),
    ):
        regions.save(file)
    assert error.value.errno == errno.EFBIG
