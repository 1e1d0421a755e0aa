"""Tags and surrogates: nothing that replaces an identifier is a target, and no protection of the original is lost."""

from __future__ import annotations

import itertools
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fixtures.cases import Case, written_case
from fixtures.drawing import examples
from fixtures.tokenizers import bytelevel
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from reticent import _rust
from reticent.core.errors import ArtifactError
from reticent.engine.epochs import EpochTokens
from reticent.engine.ngrams import NgramIndex
from reticent.engine.protect import Policy
from reticent.engine.schema import DIRECT, INDIRECT
from reticent.engine.store import TokenStore, open_tokens, open_view
from reticent.engine.tokens import RewrittenTokens, write_tokens

KEY = bytes(range(32))
IDENTIFIERS = [
    "«Zyxwvut|NAME»", "«Zyxwvut Qwerty-Uiop|NAME»", "«Qwertz|NAME»'s", "«2019-03-04|DATE»", "«(555) 123-4567|PHONE»",
    "«a.b@zyx.org|EMAIL»", "«12 Plugh St., Xyzzy|ADDRESS»", "«*|ID»", "sub«way|DATE»s", "Zyxwvut",
]  # fmt: skip
KEPT = ["saw ", ", odd (", ") and 5. ", "- ", "; saw the x-ray: ", ". ", ""]


def chars_of(store: TokenStore) -> list[tuple[str, list[int]]]:
    """Text of each document (ASCII, by byte-level pieces), and the flags of the token each character is in."""
    decode = Tokenizer.from_str(bytelevel())
    pieces = [decode.decode([number]) for number in store.input_ids.tolist()]
    found = []
    for first, end in itertools.pairwise(store.doc_offsets.tolist()):
        flags = [int(store.flags[t]) for t in range(first, end) for _ in pieces[t]]
        found.append(("".join(pieces[first:end]), flags))
    return found


def made(case: Case, style: Any, draw: int = 1, folder: str = "out") -> tuple[TokenStore, dict[str, Any]]:
    builder = _rust.IndexBuilder()
    texts = pa.concat_arrays([batch.column("text") for batch in case.corpus.batches(columns=("text",))])
    builder.add(texts, np.arange(len(texts), dtype=np.uint32))
    index, out = NgramIndex(builder.finish()), case.folder / folder
    out.mkdir()
    if style in (None, "tag"):
        counts = write_tokens(
            out, case.corpus, case.individuals, bytelevel(), index=index, spans=case.spans, policy=Policy(), style=style
        )
        return open_tokens(out), counts
    original = case.folder / f"{folder}-original"
    original.mkdir()
    write_tokens(original, case.corpus, case.individuals, bytelevel(), index=index, spans=case.spans, policy=Policy())
    maker = RewrittenTokens(
        style, open_view(original), case.corpus, case.individuals, bytelevel(), spans=case.spans, policy=Policy()
    )
    counts = maker.write(out, key=KEY, draw=draw)
    return open_tokens(case.folder / folder), counts


def test_tags_of_hand_worked_documents(tmp_path: Path) -> None:
    texts = ["saw «Ann Lee|NAME», odd «5 May|DATE».", "odd: Lee saw «Lee|NAME»'s x", "saw odd"]
    case = written_case(tmp_path, [(f"p{i}", text) for i, text in enumerate(texts)])
    store, counts = made(case, "tag")
    found = chars_of(store)
    assert [text for text, _ in found] == ["saw [NAME], odd [DATE].", "odd: [NAME] saw [NAME] x", "saw odd"]
    direct = ["".join(c for c, f in zip(text, flags, strict=True) if f & DIRECT) for text, flags in found]
    # The token ". ", ", " or "]," that holds a bracket, or may, is never a target; words beside it are.
    assert [set(re.findall(r"\w+", text)) for text in direct] == [{"NAME", "DATE"}, {"NAME"}, set()]
    assert counts["direct"] == 4
    assert all(flags[text.index("saw")] == 0 for text, flags in found)
    assert found[1][1][found[1][0].index("x")] == INDIRECT


@pytest.mark.parametrize("style", ["tag", "rotate"])
def test_a_replacement_is_no_rare_word_and_the_rest_of_a_word_that_a_span_cuts_is_what_it_was(
    style: str, tmp_path: Path
) -> None:
    texts = ["saw «Ann Lee|NAME» end", "saw «Zyxwvut|DATE»way end", "saw «Impasse Qwertz|LOCATION» end"]
    case = written_case(tmp_path, [(f"p{number}", text) for number, text in enumerate(texts)])
    (whole, flags), (cut, cut_flags), (place, place_flags) = chars_of(made(case, style)[0])
    inside = range(len("saw "), len(whole) - len(" end"))
    assert {flags[at] for at in inside if whole[at].isalpha()} == {DIRECT}
    assert "Ann" not in whole
    assert cut.endswith("way end")
    assert set(cut_flags[-len("way end") : -len(" end")]) == {DIRECT | INDIRECT}
    stays = "Impasse" if style == "rotate" else ""  # a word of any address
    assert place.startswith(f"saw {stays}")
    assert "Qwertz" not in place
    places = range(len("saw "), len(place) - len(" end"))
    rare = {at for at in places if place[at].isalpha() and place_flags[at] & INDIRECT}
    assert rare == set(places[: len(stays)])


documents = st.lists(st.tuples(st.sampled_from(KEPT), st.sampled_from(IDENTIFIERS)), min_size=1, max_size=6)


@pytest.mark.heavy
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(documents, min_size=1, max_size=3), st.sampled_from(["tag", "rotate"]), st.integers(1, 3))
def test_replacements_are_never_a_target_and_other_words_keep_their_flags(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[list[tuple[str, str]]], style: str, epoch: int
) -> None:
    marks = itertools.count()
    marked = [
        "saw «Zyxwvut|NAME» end",
        *("".join(f" q{next(marks)} {kept}{name} " for kept, name in parts) + "end" for parts in drawn),
    ]
    case = written_case(tmp_path_factory.mktemp("case"), [(f"p{i}", text) for i, text in enumerate(marked)])
    before, after = chars_of(made(case, None, folder="old")[0]), chars_of(made(case, style, epoch)[0])
    for (old, old_flags), (new, new_flags), text in zip(before, after, marked, strict=True):
        assert old == re.sub(r"«(.*?)\|\w+»", r"\1", text)
        # A word in a span, or of a span elsewhere, is replaced; everything else stays.
        pieces = re.split(r"«.*?\|\w+»(?:'s)?|\bZyxwvut\b", text)
        found = re.fullmatch("(.+?)".join(f"({re.escape(piece)})" for piece in pieces), new, re.DOTALL)
        assert found is not None, (old, new)
        for number, piece in enumerate(found.groups()):
            start, end = found.span(number + 1)
            if number % 2:
                assert all(new_flags[at] & DIRECT for at in range(start, end) if not new[at].isspace()), piece
                assert style != "tag" or re.fullmatch(r"(\[[A-Z]+\])+", piece)
            else:
                at_old = old.index(piece.split()[0]) if piece.split() else None
                for at in range(start, end):
                    if new[at].isalnum() and at_old is not None and re.match(r" q\d+ ", piece):
                        was = old_flags[old.index(piece) + at - start]
                        assert new_flags[at] & was == was
        assert not re.search(r"Zyxwvut|Qwert|Plugh", new)


def test_surrogates_are_new_in_each_epoch_and_the_same_ones_again(tmp_path: Path) -> None:
    case = written_case(
        tmp_path, [("p0", "saw «Zyxwvut Qwerty|NAME» on «2019-03-04|DATE», odd"), ("p1", "saw «Qwerty|NAME»")]
    )
    texts = [[t for t, _ in chars_of(made(case, "rotate", epoch, f"e{i}")[0])] for i, epoch in enumerate((1, 2, 1))]
    assert texts[0] == texts[2] != texts[1]
    assert all(not re.search("Zyxwvut|Qwerty", text) for epoch in texts for text in epoch)
    assert all(text.startswith("saw ") for epoch in texts for text in epoch)


def test_tokens_of_an_epoch_are_made_one_ahead_kept_private_and_deleted(tmp_path: Path) -> None:
    case, calls = written_case(tmp_path, [("p0", "saw «Ann|NAME»"), ("p1", "odd")]), []
    (tmp_path / "original").mkdir()
    write_tokens(tmp_path / "original", case.corpus, case.individuals, bytelevel(), spans=case.spans)
    view = open_view(tmp_path / "original")
    maker = RewrittenTokens("rotate", view, case.corpus, case.individuals, bytelevel(), spans=case.spans)
    folder = tmp_path / "run" / "epochs"
    folder.mkdir(parents=True)
    (folder / "left").write_text("by an interrupted run")

    def make(into: Path, epoch: int) -> None:
        calls.append(epoch)
        maker.write(into, key=KEY, draw=epoch)

    with EpochTokens(folder, make, 3) as epoch_store:
        assert not (folder / "left").exists()
        assert folder.stat().st_mode & 0o777 == 0o700
        first, again = epoch_store(1), epoch_store(1)
        assert first.input_ids.tolist() == again.input_ids.tolist()
        kept = first.input_ids.tolist()
        epoch_store(2)
        third = epoch_store(3)
        assert {path.name for path in folder.iterdir()} == {"epoch-0003"}
        assert first.input_ids.tolist() == kept  # mapped, though its file is gone
    assert calls == [1, 2, 3]
    assert not folder.exists()
    assert third.num_documents == 2


def test_processes_of_one_machine_share_the_tokens_of_an_epoch(tmp_path: Path) -> None:
    case, calls = written_case(tmp_path, [("p0", "saw «Ann|NAME»"), ("p1", "odd")]), []

    def make(into: Path, epoch: int) -> None:
        calls.append(epoch)
        write_tokens(into, case.corpus, case.individuals, bytelevel())

    with ThreadPoolExecutor(1) as other, EpochTokens(tmp_path / "e", None, 3) as waiting:
        first = other.submit(waiting, 1)
        time.sleep(0.1)
        with EpochTokens(tmp_path / "e", make, 3) as epoch_store:
            for epoch in (1, 2, 3):
                store = epoch_store(epoch)
                assert (first.result() if epoch == 1 else waiting(epoch)).path == store.path
                assert len([*(tmp_path / "e").iterdir()]) <= 2
    assert calls == [1, 2, 3]
    assert not (tmp_path / "e").exists()


def test_an_error_in_an_epoch_made_ahead_is_raised_and_the_folder_deleted(tmp_path: Path) -> None:
    def make(into: Path, epoch: int) -> None:
        raise ArtifactError(f"epoch {epoch}")

    with pytest.raises(ArtifactError, match="epoch 1"), EpochTokens(tmp_path / "e", make, 3) as epoch_store:
        epoch_store(1)
    assert not (tmp_path / "e").exists()


def test_documents_without_identifiers_are_the_same_in_every_style(tmp_path: Path) -> None:
    case = written_case(tmp_path, [("p0", ""), ("p1", "saw odd, 5.6"), ("p2", " \n")])
    stores = [made(case, style, folder=str(style))[0] for style in (None, "tag", "rotate")]
    for store in stores[1:]:
        assert pa.array(store.input_ids).equals(pa.array(stores[0].input_ids))
        assert store.flags.tolist() == stores[0].flags.tolist()
        assert store.ngram_starts.tolist() == stores[0].ngram_starts.tolist()
