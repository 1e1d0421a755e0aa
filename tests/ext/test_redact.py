"""One text without its direct identifiers, and back again: ``reticent.redact`` and ``reticent redact``."""

from __future__ import annotations

import io
import json
import re
import time
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from fixtures.command import command
from hypothesis import given
from hypothesis import strategies as st

from reticent import make_detectors, redact, redact_reversibly
from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.detect.detector import BATCH_SPANS
from reticent.ext.redact import _find_again

NOTE = "Dr. Maria Lopez saw him on 3 May 2021. Maria Lopez agreed; call 555-213-9876."


@pytest.mark.parametrize(
    ("text", "record", "expected"),
    [
        (NOTE, None, "Dr. [NAME] saw him on [DATE]. [NAME] agreed; call [PHONE]."),
        ("Le Dr Jean Dupont a vu Mme Martin.", None, "Le Dr [NAME] a vu Mme [NAME]."),
        ("Mr Ivo Kasper came. IVO  KASPER, ivo\nkasper.", None, "Mr [NAME] came. [NAME], [NAME]."),
        ("weber came, born 14.3.1958", {"last_name": "Weber"}, "[NAME] came, born [DATE]"),
        ("Room 12 is warm.", {"last_name": ""}, "Room 12 is warm."),
        ("", None, ""),
        (" \n\t", None, " \n\t"),
    ],
)
def test_a_text_without_its_identifiers(text: str, record: dict[str, str] | None, expected: str) -> None:
    assert redact(text, record=record) == expected


@given(st.text(max_size=60))
def test_what_is_restored_is_the_text(noise: str) -> None:
    text = f"{noise} [NAME_1] Mr. Ivo Kasper wrote to ivo@kasper.example {noise}"
    made = redact_reversibly(text)
    assert "kasper" not in made.text.lower()
    assert made.restore() == text


_SIGNS = st.sampled_from("aAbBkK\u212aßẞsSſiIİıσςΣ_1@.- \n\u00a0")


@given(st.text(_SIGNS, max_size=40), st.lists(st.tuples(st.integers(0, 39), st.integers(3, 9)), max_size=5), st.data())
def test_what_stands_again_matches_oracle(text: str, places: list[tuple[int, int]], data: st.DataObject) -> None:
    values = {text[at : at + length].swapcase(): "NAME" for at, length in places if text[at : at + length].strip()}
    values |= dict.fromkeys(data.draw(st.lists(st.text(_SIGNS, max_size=4).filter(str.strip), max_size=3)), "ID")
    expected = [
        (place.start(), place.end(), label)
        for value, label in values.items()
        if len(value) > 2
        for words in [r"\s+".join(map(re.escape, value.split()))]
        for place in re.finditer(rf"(?<!\w){words}(?!\w)", text, re.IGNORECASE)
    ]
    assert sorted(_find_again(text, values)) == sorted(expected)


@pytest.mark.parametrize("form", ["person{}@mail{}.example", "https://host.example/{}/{}"])
def test_a_text_with_thousands_of_identifiers_takes_linear_time(form: str) -> None:
    detectors = make_detectors(["rules"], {"rules": {"labels": ["EMAIL", "URL"]}})
    text = "\n".join(f"Write to {form.format(number, number)} soon." for number in range(4000))
    before = time.process_time()
    assert len(redact_reversibly(text, detectors=detectors).values) == 4000
    assert time.process_time() - before < 2.5


def test_one_tag_for_a_value_and_none_that_the_text_has() -> None:
    made = redact_reversibly(f"{NOTE} See [NAME_1].")
    assert made.text.count("[NAME_2]") == 2
    assert not any(value in repr(made) for value in made.values.values())
    assert made.restore("Thank [NAME_2] and [NAME_1], [NAME_9].") == "Thank Maria Lopez and [NAME_1], [NAME_9]."


def test_detectors_of_ones_own() -> None:
    assert redact(NOTE, detectors=make_detectors(["rules"], {"rules": {"labels": ["PHONE"]}})).endswith("[PHONE].")
    with pytest.raises(PolicyError, match="spans"):
        redact(NOTE, detectors=make_detectors(["gold"]))
    with_record = redact("Zorro 77, ward 12", record={"last_name": "Zorro"}, detectors=[])
    assert with_record == "[NAME] 77, ward 12"


def test_a_tag_of_any_category_is_turned_back() -> None:
    class Wards:
        name, columns = "wards", ("text",)

        def detect(self, batch: pa.RecordBatch) -> pa.Table:
            place = {"document": [0], "start": [3], "end": [5], "label": ["ward_code"], "score": [1.0]}
            return pa.table(place, BATCH_SPANS)

    made = redact_reversibly("in W7 now", detectors=[Wards()])
    assert made.text != "in W7 now" == made.restore()


def test_half_of_a_surrogate_pair_is_an_error() -> None:
    with pytest.raises(CorpusError):
        redact("a\ud800")


def test_the_command_there_and_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "note.txt").write_text(NOTE)
    (tmp_path / "record.json").write_text(json.dumps({"mrn": "77-18"}))
    kept = tmp_path / "kept.json"
    assert command("redact", tmp_path / "note.txt", "--record", tmp_path / "record.json", "--keep", kept) == 0
    shown = capsys.readouterr().out
    assert "Lopez" not in shown
    assert kept.stat().st_mode & 0o777 == 0o600
    (tmp_path / "answer.txt").write_text(shown)
    assert command("redact", tmp_path / "answer.txt", "--restore", kept) == 0
    assert capsys.readouterr().out == NOTE


@pytest.mark.parametrize("kept", ["kept.json", "note.txt"])
def test_no_file_is_overwritten_by_what_is_kept(kept: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An earlier text could be restored no more, or with the names of this one."""
    (tmp_path / "note.txt").write_text(NOTE)
    (tmp_path / "kept.json").write_text('{"[NAME_1]": "Ivo Kasper"}')
    before = (tmp_path / kept).read_bytes()
    assert command("redact", tmp_path / "note.txt", "--keep", tmp_path / kept) == 2
    said = capsys.readouterr()
    assert "would be lost; move it away" in said.err
    assert not said.out
    assert (tmp_path / kept).read_bytes() == before


def test_standard_input_and_a_language_that_nobody_knows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(("pasienten ble sett og er bra " * 8).encode())))
    assert command("redact") == 0
    assert "no language" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", b"[1]", b'{"last_name": 3}', b"\xff"])
def test_a_file_of_values_that_is_none(tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "values.json").write_bytes(content)
    (tmp_path / "note.txt").write_text(NOTE)
    assert command("redact", tmp_path / "note.txt", "--restore", tmp_path / "values.json") == 1
    assert "values.json" in capsys.readouterr().err


@pytest.mark.parametrize(
    "given",
    [["Mr John Smith, born 3 May 1950. "], ["Mr John Smith, born 3 May 1950. " * 100], ["Mr", "John", "Smith"]],
)
def test_a_text_in_place_of_its_file_is_not_printed(given: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert command("redact", *given) != 0
    said = capfd.readouterr()
    assert "on stdin" in said.err
    assert "Smith" not in said.err + said.out
