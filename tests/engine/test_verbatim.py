"""Verbatim matches: none is missed, whatever the case, the accents, the white space and the pieces a text comes in."""

from __future__ import annotations

import itertools
import random
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.drawing import examples
from fixtures.small_files import files_of_at_most
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reticent import _rust
from reticent.core.artifact import write_artifact
from reticent.core.errors import ArtifactError, CorpusError, PolicyError
from reticent.engine.corpus import open_corpus
from reticent.engine.verbatim import build_verbatim, open_verbatim, write_verbatim

LENGTH = 18  # a match is eight hits of eleven characters
SIGNS = {"'": "´ʼ‘’‚‛′‹›", '"': "«»“”„‟″", "-": "‐‑‒–—―⁃−﹘"}
PLAIN = {sign: plain for plain, signs in SIGNS.items() for sign in signs}
ALPHABET = "aAbé\u0301 \n\t\u00a0\u00ad\0\x1f\ufffdßﬁ田😀’'„−-"


def index_of(training: list[str], *, length: int = LENGTH, num_bytes: int = 1 << 16, key: int = 1) -> Any:
    index = _rust.VerbatimFilter(num_bytes, length=length, key=key)
    index.add(pa.array(training, pa.large_string()))
    return index


def found(index: Any, *texts: str) -> list[list[tuple[int, int]]]:
    rows = pa.record_batch(index.find(pa.array(texts, pa.large_string()))).to_pylist()
    return [[(row["start"], row["end"]) for row in rows if row["document"] == number] for number in range(len(texts))]


def streamed(index: Any, pieces: list[str]) -> list[tuple[int, int]]:
    stream = index.stream()
    spans = [span for piece in pieces for span in stream.push(piece)]
    return [*spans, *([stream.open] if stream.open else [])]


def folded(text: str) -> list[tuple[str, int]]:
    """Characters as they are compared, with where each stood."""
    result: list[tuple[str, int]] = []
    for at, c in enumerate(text):
        if c == "\ufffd" or (unicodedata.category(c) == "Cc" and c not in "\t\n\v\f\r\x85"):
            continue
        c = PLAIN.get(c, c)
        for part in unicodedata.normalize("NFKC", c).upper().lower():
            for letter in unicodedata.normalize("NFD", part):
                if unicodedata.category(letter).startswith("M") or letter in "\u00ad\u200b":
                    continue
                letter = " " if letter.isspace() else letter
                if not (letter == " " and result and result[-1][0] == " "):
                    result.append((letter, at))
    return result


def oracle(training: list[str], text: str, length: int) -> set[int]:
    """Characters of the text that lie in a match, by substring search; what folds to nothing lies in none."""
    sources = ["".join(c for c, _ in folded(document)) for document in training]
    characters = folded(text)
    inside = set()
    for at in range(len(characters) - length + 1):
        stretch = "".join(c for c, _ in characters[at : at + length])
        if any(stretch in source for source in sources):
            inside.update(place for _, place in characters[at : at + length])
    return inside


def covered(spans: list[tuple[int, int]], text: str) -> set[int]:
    visible = {place for _, place in folded(text)}
    return {at for start, end in spans for at in range(start, end)} & visible


short_texts = st.text(st.sampled_from("ab "), max_size=60) | st.text(st.sampled_from(ALPHABET), max_size=60)


@settings(max_examples=examples(300))
@given(st.lists(short_texts, max_size=4), short_texts, st.data())
@example(["aé\u00ad田" * 6], "AE\u0301田" * 6, None)
def test_find_matches_oracle(training: list[str], text: str, data: st.DataObject | None) -> None:
    if training and data is not None and data.draw(st.booleans()):  # a copy with something before and after it
        source = data.draw(st.sampled_from(training))
        text = text[:10] + source[data.draw(st.integers(0, 20)) :].swapcase() + text[10:20]
    index = index_of(training)
    (spans,) = found(index, text)
    expected = oracle(training, text, LENGTH)
    assert expected <= covered(spans, text)
    # Only text of which every stretch of eleven characters is the training's can be taken for a match.
    assert covered(spans, text) <= oracle(training, text, LENGTH - 7)
    assert all(b < c for (_, b), (c, _) in itertools.pairwise(spans))


@settings(max_examples=examples(150))
@given(st.lists(short_texts, min_size=1, max_size=3), st.data())
def test_a_stream_finds_what_the_whole_text_holds_in_any_pieces(training: list[str], data: st.DataObject) -> None:
    text = "".join(data.draw(st.lists(st.sampled_from(training) | short_texts, max_size=4)))
    index = index_of(training)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert [streamed(index, pieces)] == found(index, text)
    assert [streamed(index, list(text))] == found(index, text)


@settings(max_examples=examples(100))
@given(st.lists(short_texts, min_size=1, max_size=3), st.data())
def test_text_before_pending_never_comes_to_lie_in_a_match(training: list[str], data: st.DataObject) -> None:
    text = "".join(data.draw(st.lists(st.sampled_from(training) | short_texts, max_size=4)))
    index = index_of(training)
    (spans,) = found(index, text)
    stream, closed, last = index.stream(), [], 0
    for c in text:
        closed += stream.push(c)
        pending = stream.pending
        assert pending >= last
        last = pending
        assert all(end <= pending or start >= pending for start, end in spans)
        assert [span for span in spans if span[1] < pending and span not in closed] in ([], [stream.open])


@pytest.mark.parametrize("plain", SIGNS)
def test_every_quote_and_dash_counts_as_its_plain_sign(plain: str) -> None:
    text = f"Frau Weber sagt{plain} sie kommt"
    for sign in SIGNS[plain]:
        written = text.replace(plain, sign)
        assert found(index_of([text]), written) == found(index_of([written]), text) == [[(0, len(text))]]


def planted(seed: int, length: int, num: int) -> tuple[list[str], list[str]]:
    """Random documents, and texts with one stretch of so many characters of one of them."""
    rng = random.Random(seed)
    letters = "abcdefghijklmnopqrstuvwxyz  ,.0123456789"
    documents = ["".join(rng.choices(letters, k=rng.randrange(60, 400))).strip() for _ in range(num)]
    documents = [" ".join(document.split()) for document in documents]
    texts = []
    for document in documents:
        at = rng.randrange(len(document) - length) if len(document) > length else 0
        texts.append("QQ#" + document[at : at + length] + "#QQ")
    return documents, texts


@pytest.mark.parametrize("length", [50, 51, 120])
def test_every_planted_copy_is_found_whole(length: int) -> None:
    documents, texts = planted(length, length, 400)
    index = index_of(documents, length=50, num_bytes=sum(map(len, documents)))
    for spans, text in zip(found(index, *texts), texts, strict=True):
        assert spans
        assert spans[0][0] <= 3
        assert spans[-1][1] >= len(text) - 3


def test_one_character_less_is_let_through() -> None:
    documents, texts = planted(49, 49, 2000)
    index = index_of(documents, length=50, num_bytes=sum(map(len, documents)))
    wrong = sum(map(bool, found(index, *texts)))
    # Either neighbour is taken for known with the filter's error.
    assert 0.01 < index.error < 0.04
    assert wrong / len(texts) < 4 * index.error
    roomy = index_of(documents, length=50, num_bytes=20 * sum(map(len, documents)))
    assert sum(map(bool, found(roomy, *texts))) == 0


def test_unrelated_text_is_let_through() -> None:
    documents, _ = planted(1, 50, 500)
    others, _ = planted(2, 50, 500)
    index = index_of(documents, length=50, num_bytes=sum(map(len, documents)))
    assert sum(map(bool, found(index, *others))) == 0


@pytest.mark.parametrize(
    "text",
    [
        "THE PATIENT WAS SEEN ON THE WARD AND WAS IN NO PAIN",
        "the patient\twas  seen\r\non the ward and\u00a0was in no pain",
        "The p\u00adatient was seen on the wa\u200brd and was in no pain",
        "Thé patie\u0301nt was seen on the ward and was in nô pain",
        "Ｔｈｅ patient was seen on the ward and was in no pain",
        "> the patient was seen on the ward and was in no pain",
        "the\0 patient was\x1f seen on the \ufffdward and was in no pain",
    ],
)
def test_spelling_does_not_hide_a_match(text: str) -> None:
    index = index_of(["so: The patient was seen on the ward and was in no pain."], length=50)
    assert len(found(index, text)[0]) == 1


@pytest.mark.parametrize("training", [[], [""], ["short"], ["a" * (LENGTH - 1)], ["a" * 10, "a" * 10]])
def test_training_text_that_is_too_short_matches_nothing(training: list[str]) -> None:
    index = index_of(training)
    assert index.num_stretches == 0
    assert found(index, "", "a" * 100) == [[], []]


def test_no_match_reaches_over_two_documents() -> None:
    index = index_of(["abcdefghijklm", "nopqrstuvwxyz"])
    assert found(index, "abcdefghijklmnopqrstuvwxyz") == [[]]


def test_index_is_two_bytes_a_byte_and_does_not_depend_on_threads_and_order(tmp_path: Path) -> None:
    documents, texts = planted(5, 50, 300)
    size = sum(len(document.encode()) for document in documents)
    bits = []
    for number, threads in enumerate((1, 2, 2)):
        order = documents if number < 2 else documents[::-1]
        columns = {"doc_id": range(300), "individual_id": range(300), "text": pa.array(order, pa.large_string())}
        pq.write_table(pa.table(columns), tmp_path / f"{number}.parquet", row_group_size=20)
        index = build_verbatim(open_corpus(tmp_path / f"{number}.parquet"), num_threads=threads)
        assert 2 * size <= index.num_bytes < 2 * size + 64
        bits.append(index.bits())
    np.testing.assert_array_equal(bits[0], bits[1])
    np.testing.assert_array_equal(bits[0], bits[2])
    only = build_verbatim(open_corpus(tmp_path / "0.parquet"), keep=np.arange(300) < 100)
    spans = found(only, *texts)
    assert all(spans[:100])
    assert sum(map(bool, spans[100:])) < 10
    with pytest.raises(CorpusError, match="no document"):
        build_verbatim(open_corpus(tmp_path / "0.parquet"), keep=np.zeros(300, dtype=bool))


def test_a_guard_that_is_opened_again_finds_the_same(tmp_path: Path) -> None:
    documents, texts = planted(6, 60, 50)
    index = index_of(documents, length=50)
    with write_artifact(tmp_path / "guard", kind="guard", config={}, inputs={}) as writer:
        write_verbatim(index, writer.path)
    again = open_verbatim(tmp_path / "guard")
    assert (again.length, again.key) == (50, 1)
    assert found(again, *texts) == found(index, *texts)
    stored = b"".join(file.read_bytes() for file in (tmp_path / "guard").iterdir())
    assert not any(document[:12].encode() in stored for document in documents)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda folder: flip(folder / "verbatim.bin"), "changed since it was written"),
        (lambda folder: (folder / "verbatim.bin").write_bytes(b"short"), "not of the size"),
        (lambda folder: (folder / "verbatim.json").unlink(), "missing"),
        (lambda folder: (folder / "manifest.json").write_bytes(b"{"), "not a readable manifest"),
    ],
)
def test_a_damaged_guard_is_refused(tmp_path: Path, harm: Any, message: str) -> None:
    with write_artifact(tmp_path / "guard", kind="guard", config={}, inputs={}) as writer:
        write_verbatim(index_of(["a" * 100]), writer.path)
    harm(tmp_path / "guard")
    with pytest.raises(ArtifactError, match=message):
        open_verbatim(tmp_path / "guard")


def test_a_disk_that_fills_up_while_a_guard_is_written_is_named(tmp_path: Path) -> None:
    index = index_of(["a" * 100_000])
    with (
        pytest.raises(ArtifactError, match=r"guard: not written \(File too large"),
        files_of_at_most(1 << 13),
        write_artifact(tmp_path / "guard", kind="guard", config={}, inputs={}) as writer,
    ):
        write_verbatim(index, writer.path)
    assert [path.name for path in tmp_path.iterdir()] == [".guard.lock"]


@pytest.mark.parametrize("content", [b"[]", b"{}", b'{"length": "x", "key": 1}', b"\xff", b'{"length": 50, "key": -1}'])
def test_settings_that_are_none_are_refused(tmp_path: Path, content: bytes) -> None:
    with write_artifact(tmp_path / "guard", kind="guard", config={}, inputs={}) as writer:
        write_verbatim(index_of(["a" * 100]), writer.path)
        (writer.path / "verbatim.json").write_bytes(content)
    with pytest.raises(ArtifactError, match="not a readable guard"):
        open_verbatim(tmp_path / "guard")


@pytest.mark.parametrize("length", [0, 15, 4097])
def test_lengths_out_of_range_are_refused(length: int) -> None:
    with pytest.raises(PolicyError, match="16 to 4096"):
        _rust.VerbatimFilter(10, length=length)


def test_bits_that_are_no_whole_blocks_are_refused() -> None:
    for size in (0, 7, 9):
        with pytest.raises(ArtifactError, match="whole blocks"):
            _rust.VerbatimFilter.from_bits(np.zeros(size, dtype=np.uint64), length=50, key=0)
