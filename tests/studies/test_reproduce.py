"""The reproduction: the rule of a verdict, published numbers, rows, pictures from hand-made evidence."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from studies.reproduce import freeze
from studies.reproduction.page import pages
from studies.reproduction.rows import (
    CANNOT,
    NOT,
    REPRODUCED,
    SAME,
    Anchor,
    Row,
    anchors,
    less,
    over,
    rule_hash,
    verdict,
    verdict_of_row,
)
from studies.reproduction.table import PARTS, ROWS


def estimate(value: float | None, low: float | None = None, high: float | None = None, n: int = 70) -> dict[str, Any]:
    return {"value": value, "low": low, "high": high, "n": n}


def anchor(**values: Any) -> Anchor:
    return Anchor(**{"source": 1, "place": "Figure 0", "key": "a", "says": "", "on": "", "quote": ""} | values)


NEAR = {"value": 0.8, "tolerance": 0.05}
UP = {"against": 0.5, "sign": 1}


@pytest.mark.parametrize(
    ("about", "ours", "word"),
    [
        (NEAR, {"a": estimate(0.84, 0.6, 0.9)}, REPRODUCED),
        (NEAR, {"a": estimate(0.86, 0.7, 0.9)}, NOT),
        (NEAR, {}, CANNOT),
        (NEAR, {"a": None}, CANNOT),
        (NEAR, {"a": estimate(None)}, CANNOT),
        (NEAR | UP, {"a": estimate(0.84, 0.4, 0.9)}, REPRODUCED),
        (NEAR | {"against": 0.9, "sign": 1}, {"a": estimate(0.84, 0.8, 0.88)}, NOT),  # near, and on the wrong side
        (NEAR | UP, {"a": estimate(0.7, 0.6, 0.8)}, SAME),
        (NEAR | UP, {"a": estimate(0.7, 0.5, 0.8)}, NOT),  # the interval holds no difference
        (NEAR | UP, {"a": estimate(0.7)}, NOT),  # nobody knows how sure it is
        (UP, {"a": estimate(0.7, 0.6, 0.8)}, SAME),
        ({"against": "b", "sign": -1}, {"a": estimate(0.3, 0.2, 0.4), "b": estimate(0.6, 0.5, 0.7)}, SAME),
        ({"against": "b", "sign": -1}, {"a": estimate(0.3, 0.2, 0.6), "b": estimate(0.4, 0.3, 0.5)}, NOT),
        ({"against": "b", "sign": -1}, {"a": estimate(0.3, 0.2, 0.6)}, CANNOT),
    ],
)
def test_the_rule_of_a_verdict(about: dict[str, Any], ours: dict[str, Any], word: str) -> None:
    assert verdict(anchor(**about), ours).word == word


@pytest.mark.parametrize("about", [{}, {"sign": 1}, {"against": 0.5}])
def test_an_anchor_that_decides_nothing_is_refused(about: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match="Figure 0 a"):
        anchor(**about)


def test_a_row_has_the_weakest_word_of_its_numbers() -> None:
    row = Row(source=1, place="Figure 0", title="")
    found = [verdict(anchor(**NEAR), {"a": estimate(value)}) for value in (0.8, 0.2)] + [verdict(anchor(**NEAR), {})]
    assert verdict_of_row(row, found) == NOT
    assert verdict_of_row(row, [found[0], found[2]]) == REPRODUCED
    assert verdict_of_row(row, found[2:]) == CANNOT


def test_differences_and_ratios_have_intervals_of_both() -> None:
    one, other = estimate(0.8, 0.7, 0.9), estimate(0.4, 0.3, 0.5)
    assert less(one, other) == pytest.approx(estimate(0.4, 0.4 - 0.02**0.5, 0.4 + 0.02**0.5))
    assert over(one, other, 1.0) == pytest.approx(estimate(1.0, 0.4, 2.0))
    assert less(one, None) is None
    assert over(one, estimate(0.0, 0.0, 0.1)) is None


def test_the_rule_is_fixed_before_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    freeze(tmp_path)
    freeze(tmp_path)
    kept = json.loads((tmp_path / "rules.json").read_text())
    assert kept["1"] == rule_hash(1)
    (tmp_path / "rules.json").write_text(json.dumps(kept | {"4": "other"}))
    with pytest.raises(SystemExit, match="rule for source 4"):
        freeze(tmp_path)
    with pytest.raises(ValueError, match="changed after the run"):
        list(pages({"s1-experiment": {"rule": {"1": "other"}}}))


def test_published_numbers_belong_to_rows_and_are_there_once() -> None:
    keys = [(each.source, each.place, each.key) for each in anchors()]
    assert len(keys) == len(set(keys))
    places = {(row.source, row.place) for row in ROWS}
    assert {key[:2] for key in keys} <= places
    assert {row.part for row in ROWS if not row.cannot} <= {part.name for part in PARTS}
    assert len({row.slug for row in ROWS}) == len(ROWS)
    assert all(row.cannot or row.part for row in ROWS)


SOURCES = Path(os.environ.get("RETICENT_SOURCES", "/nowhere"))


@pytest.mark.skipif(not SOURCES.is_dir(), reason="needs the sources in RETICENT_SOURCES as 1.txt to 4.txt")
def test_the_words_of_every_published_number_stand_in_its_source() -> None:
    texts = {n: re.sub(r"\s+", " ", (SOURCES / f"{n}.txt").read_text(encoding="utf-8")) for n in range(1, 5)}
    assert [each.key for each in anchors() if each.quote not in texts[each.source]] == []
