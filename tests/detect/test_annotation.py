"""What annotators get and what comes back: private files, offsets in characters, and errors that say where."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reticent.core.errors import ArtifactError, CorpusError
from reticent.ext.annotate.annotation import check_texts, merge_spans, read_annotation, write_annotation
from reticent.ext.annotate.sample import Sample, SampledDocument, text_digest

SECRET = "Zyxwvut"
TEXTS = {4: f"Mme {SECRET}\n\tet 😀 </script> Né", 7: "plain\r\ntext", 9: f"{SECRET} 1.1.1970"}
FOUND = {4: [(4, 11, "PER"), (4, 8, "CITY")], 9: [(8, 16, "DATE")]}


@pytest.fixture
def sample() -> Sample:
    documents = tuple(
        SampledDocument(name=f"{number:04d}", row=row, stratum=stratum, sha256=text_digest(TEXTS[row]))
        for number, (row, stratum) in enumerate(((9, 1), (4, 0), (7, 1)), start=1)
    )
    return Sample(corpus="c0ffee", strata=(5, 8), documents=documents)


@pytest.fixture
def folder(sample: Sample, tmp_path: Path) -> Path:
    write_annotation(tmp_path / "out", sample, TEXTS, FOUND)
    return tmp_path / "out"


def data_of(page: Path) -> Any:
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found
    return json.loads(found[1])


@pytest.fixture
def saved(folder: Path) -> Path:
    """A file as the page saves it."""
    content = data_of(folder / "annotate.html")
    del content["labels"]
    content["annotator"] = "A"
    for document in content["documents"]:
        del document["text"]
        document["reviewed"] = True
    (folder.parent / "saved.json").write_text(json.dumps(content))
    return folder.parent / "saved.json"


def test_overlapping_spans_become_one_of_the_longest_ones_category() -> None:
    assert merge_spans([]) == []
    assert merge_spans([(5, 9, "LOC"), (0, 6, "PER"), (8, 20, "DATE"), (20, 21, "ID")]) == [
        (0, 20, "DATE"),
        (20, 21, "ID"),
    ]
    assert merge_spans([(0, 4, "PER"), (0, 4, "LOC")]) == [(0, 4, "LOCATION")]  # the first by its label


def test_everything_is_for_the_owner_alone(folder: Path) -> None:
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
    brat = {f"brat/{number:04d}.{kind}" for number in (1, 2, 3) for kind in ("txt", "ann")}
    assert names == {"annotate.html", "brat", "brat/annotation.conf", "brat/sample.json", *brat}
    for path in (folder, *folder.rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
    assert list(folder.parent.iterdir()) == [folder]


def test_both_forms_come_back_as_they_went(folder: Path, saved: Path, sample: Sample) -> None:
    spans = (((8, 16, "DATE"),), ((4, 11, "NAME"),), ())
    for path in (folder, folder / "brat", saved):
        back = read_annotation(path)
        assert (back.sample, back.spans) == (sample, spans)
        check_texts(back, TEXTS, path)
    assert SECRET not in saved.read_text()


def test_the_page_runs_its_own_script_alone_and_fetches_nothing(folder: Path) -> None:
    page = (folder / "annotate.html").read_text(encoding="utf-8")
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; script-src 'sha256-{digest}'" in page
    assert not re.search(r'(?:src|href)="(?!#)', page)
    assert not re.search(r"https?://|localStorage|fetch\(|XMLHttp|@[A-Z_]+@", page)
    assert [document["text"] for document in data_of(folder / "annotate.html")["documents"]] == [
        TEXTS[9],
        TEXTS[4],
        TEXTS[7],
    ]


def test_an_annotators_work_is_not_overwritten(folder: Path, sample: Sample) -> None:
    before = (folder / "annotate.html").read_bytes()
    with pytest.raises(ArtifactError, match="may hold an annotator's work"):
        write_annotation(folder, sample, TEXTS, {})
    assert (folder / "annotate.html").read_bytes() == before


def test_nothing_is_left_where_writing_fails(sample: Sample, tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        write_annotation(tmp_path / "out", sample, {9: "x"}, {})
    assert list(tmp_path.iterdir()) == []


Change = Callable[[Any], None]


def changed(**values: Any) -> Change:
    """Change the only span of the first document."""
    return lambda content: content["documents"][0]["spans"][0].update(values)


def without(*names: str) -> Change:
    def change(content: Any) -> None:
        for name in names:
            del content["documents"][0]["spans"][0][name]

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("start", "end"), "document 0001 span 1: has lost its offsets"),
        (changed(start="8"), "document 0001 span 1: has lost its offsets"),
        (changed(end=True), "document 0001 span 1: has lost its offsets"),
        (changed(end=8), "document 0001 span 1: from 8 to 8 is no stretch"),
        (changed(start=-1), "document 0001 span 1: from -1 to 16 is no stretch"),
        (changed(end=17), "document 0001 span 1: ends at 17, outside of its 16 characters"),
        (changed(label=" "), "document 0001 span 1: has no label"),
        (lambda content: content["documents"][0].update(spans=None), "document 0001: its spans are missing"),
        (lambda content: content["documents"][0]["spans"].append(3), "document 0001 span 2: not a span"),
        (lambda content: content["documents"][1].update(reviewed=False), "document 0002: not marked as reviewed"),
        (lambda content: content["documents"].pop(1), "document 0002 of the 3 that were drawn is missing"),
        (lambda content: content.update(documents=[]), "document 0001 and 2 more of the 3 that were drawn"),
        (lambda content: content["documents"].append(content["documents"][0]), "document 0001 stands there 2 times"),
        (lambda content: content["documents"][0].update(stratum=0), "its documents are not those of its strata"),
        (lambda content: content["documents"][0].update(row="9"), "not a whole sample"),
        (lambda content: content.update(strata=3), "not a whole sample"),
        (lambda content: content["documents"][0].update(sha256="0"), "document 0001: its text is not the one"),
        (lambda content: content.update(format="other"), "not an annotation of format"),
    ],
)
def test_a_spoilt_file_is_an_error_that_says_where_and_no_text(saved: Path, change: Change, message: str) -> None:
    content = json.loads(saved.read_text())
    change(content)
    saved.write_text(json.dumps(content))
    with pytest.raises(CorpusError, match=re.escape(message)) as error:
        check_texts(read_annotation(saved), TEXTS, saved)
    assert SECRET not in str(error.value)
    assert str(saved) in str(error.value)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("0001.ann", "T1\tDATE\t1.1.1970\n", "0001.ann line 1: not an annotation of BRAT"),
        ("0001.ann", "T1\tDATE 8 16\n", "0001.ann annotation T1: its offsets do not hold the text that it quotes"),
        ("0001.ann", "T1\tDATE 7 15\t1.1.1970\n", "0001.ann annotation T1: its offsets do not hold the text"),
        ("0001.ann", "T7\tDATE 8 17\t1.1.1970\n", "annotation T7: from 8 to 17 is no stretch of its 16 characters"),
        ("0001.txt", f"{SECRET}  1.1.1970", "0001.txt: its text was changed"),
        ("0001.ann", None, "document 0001 is missing"),
        ("0002.txt", None, "document 0002 is missing"),
        ("sample.json", None, "no sample.json here"),
        ("sample.json", "{", "sample.json: not valid JSON"),
    ],
)
def test_a_spoilt_folder_is_an_error_that_says_where_and_no_text(
    folder: Path, file: str, content: str | None, message: str
) -> None:
    path = folder / "brat" / file
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(CorpusError, match=re.escape(message)) as error:
        read_annotation(folder)
    assert SECRET not in str(error.value)


def test_a_mark_over_lines_or_in_parts_is_read_by_its_offsets(folder: Path) -> None:
    (folder / "brat" / "0002.ann").write_text(
        f"T1\tNAME 4 15\t{SECRET}  et\nT2\tID 0 3;16 17\tMme 😀\n#1\tNote T1\tx\n"
    )
    assert read_annotation(folder).spans[1] == ((4, 15, "NAME"), (0, 3, "ID"), (16, 17, "ID"))


def test_the_page_itself_is_no_annotation(folder: Path) -> None:
    with pytest.raises(CorpusError, match="give the file that it saves"):
        read_annotation(folder / "annotate.html")
    with pytest.raises(CorpusError):
        read_annotation(folder / "absent.json")
