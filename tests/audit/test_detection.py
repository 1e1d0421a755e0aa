"""Counts of found and missed annotations: by hand, and beside a naive count over lists of spans."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fixtures.drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent import _rust
from reticent.audit.detection import evaluate_detection
from reticent.audit.evidence.json_form import to_json
from reticent.engine.detect.labels import category
from reticent.engine.detect.marks import Marks, gather_marks
from reticent.engine.schema import SPANS

Span = tuple[int, int, str]


def measured(marks: Marks, num_bootstrap: int) -> dict[str, Any]:
    """The evaluation as JSON."""
    found: dict[str, Any] = to_json(evaluate_detection(marks, num_bootstrap=num_bootstrap))
    return found


MENTION = pa.struct(
    [("start", pa.int32()), ("end", pa.int32()), ("label", pa.string()), ("entity_id", pa.string()),
     ("identifier_type", pa.string()), ("annotator", pa.string())]
)  # fmt: skip


def marks_of(
    texts: list[str],
    gold: list[list[Span] | None],
    found: dict[str, list[list[Span]]],
    individuals: list[str] | None = None,
    batch_rows: int = 2,
) -> Marks:
    spans = [None if g is None else [{"start": a, "end": b, "label": c} for a, b, c in g] for g in gold]
    return gathered(texts, pa.array(spans, pa.list_(MENTION)), "spans", found, individuals, batch_rows)


def gathered(
    texts: list[str], gold: pa.Array, column: str, found: Any, individuals: list[str] | None = None, batch_rows: int = 2
) -> Marks:
    if column == "spans":
        gold = gold.cast(pa.list_(pa.struct(list(MENTION)[:3])))
    documents = pa.record_batch(
        {
            "individual_id": individuals or [f"p{i}" for i in range(len(texts))],
            "text": pa.array(texts, pa.large_string()),
            column: gold,
        }
    )
    rows = [
        {"document": d, "doc_id": f"d{d}", "start": a, "end": b, "label": c, "detector": name, "score": 1.0}
        for name, documents_found in found.items()
        for d, spans in enumerate(documents_found)
        for a, b, c in spans
    ]
    rows.sort(key=lambda row: (row["document"], row["start"], row["end"], row["label"], row["detector"]))
    batches = [documents.slice(i, batch_rows) for i in range(0, len(texts), batch_rows)]
    return gather_marks(batches, pa.Table.from_pylist(rows, schema=SPANS))


def value(scores: dict[str, Any], *path: str) -> tuple[float | None, int]:
    for part in path:
        scores = scores[part]
    return scores["value"], scores.get("of", 0)


#       0123456789012345678901234567890123456789
TEXT = "Ann Lee saw Bob on 12 May; call 5551234."
GOLD: list[Span] = [(0, 7, "NAME"), (12, 15, "NAME"), (19, 25, "DATE"), (32, 39, "PHONE")]
#: One exact name; half of a date; the phone under another label; one false alarm ("saw"). Bob: nobody.
FOUND: list[Span] = [(0, 7, "PER"), (19, 21, "DATE"), (32, 39, "ID"), (8, 11, "NAME")]


def test_scores_by_hand() -> None:
    marks = marks_of([TEXT], [GOLD], {"a": [FOUND]})
    assert marks.categories == ("DATE", "ID", "NAME", "PHONE")
    result = measured(marks, num_bootstrap=100)
    assert (result["documents"], result["individuals"], result["words"]) == (1, 1, 9)
    union = result["union"]
    # Strict: the name alone. Relaxed: the name and the date. Words: Ann, Lee, 12 of Ann Lee Bob 12 May 5551234;
    # found are Ann Lee 12 5551234 saw.
    expected = {
        ("overall", "strict"): (1 / 4, 1 / 4),
        ("overall", "relaxed"): (2 / 4, 2 / 4),
        ("overall", "words"): (3 / 5, 3 / 6),
        ("any_label", "strict"): (2 / 4, 2 / 4),
        ("any_label", "relaxed"): (3 / 4, 3 / 4),
        ("any_label", "words"): (4 / 5, 4 / 6),
    }
    for (scope, match), (precision, recall) in expected.items():
        assert value(union, scope, match, "precision")[0] == pytest.approx(precision)
        assert value(union, scope, match, "recall")[0] == pytest.approx(recall)
        f1 = 2 * precision * recall / (precision + recall)
        assert value(union, scope, match, "f1")[0] == pytest.approx(f1)
    assert value(union, "categories", "NAME", "strict", "recall") == (0.5, 2)
    assert value(union, "categories", "NAME", "words", "recall") == (pytest.approx(2 / 3), 3)
    assert value(union, "categories", "PHONE", "relaxed", "recall") == (0.0, 1)
    assert value(union, "categories", "ID", "strict", "precision") == (0.0, 1)
    assert value(union, "categories", "ID", "strict", "recall") == (None, 0)
    # Covered: Ann Lee and, under whatever label, the phone; the date is half seen.
    assert value(union, "covered", "overall") == (0.5, 4)
    assert value(union, "covered", "PHONE") == (1.0, 1)
    assert value(union, "all_found", "documents") == (0.0, 1)
    assert result["missed"] == {"NAME": 1}
    assert result["partial"] == {"DATE": 1}
    assert result["mentions"] == {"DATE": 1, "NAME": 2, "PHONE": 1}


def test_a_span_in_a_longer_one_of_its_category_counts_where_it_is_right() -> None:
    spans: list[Span] = [(0, 7, "NAME"), (0, 3, "NAME"), (4, 7, "NAME"), (32, 39, "PHONE"), (32, 35, "DATE")]
    gold: list[Span] = [(0, 7, "NAME"), (0, 3, "NAME"), (32, 39, "PHONE")]
    union = measured(marks_of([TEXT], [gold], {"a": [spans]}), num_bootstrap=100)["union"]
    assert value(union, "overall", "strict", "precision") == (0.75, 4)  # Lee is in Ann Lee; the date is of its own
    assert value(union, "any_label", "strict", "precision") == (1.0, 3)
    assert value(union, "overall", "strict", "recall") == (1.0, 3)


def test_what_a_detector_alone_and_only_it_finds() -> None:
    found = {
        "a": [[(0, 7, "NAME"), (32, 39, "PHONE")]],
        "b": [[(0, 3, "NAME"), (19, 21, "DATE")]],
        "c": [[(4, 7, "NAME"), (22, 25, "DATE"), (32, 39, "ID")]],
    }
    result = measured(marks_of([TEXT], [GOLD], found), num_bootstrap=100)
    assert {name: value(scores, "covered", "overall")[0] for name, scores in result["alone"].items()} == {
        "a": 0.5,
        "b": 0.0,
        "c": 0.25,
    }
    # Ann Lee is covered by b and c together too; the date by both only together; the phone by a or c.
    assert result["only"] == {"a": {}, "b": {"DATE": 1}, "c": {"DATE": 1}}
    assert (result["missed"], result["partial"]) == ({"NAME": 1}, {})


def test_an_entity_counts_where_all_its_mentions_are_covered() -> None:
    text = "Ann came. Ann left. Bob and ann."
    gold: list[Span] = [(0, 3, "NAME"), (10, 13, "NAME"), (20, 23, "NAME"), (28, 31, "NAME")]
    seen: list[Span] = [(0, 3, "NAME"), (10, 13, "NAME"), (20, 23, "NAME")]
    result = measured(marks_of([text], [gold], {"a": [seen]}), num_bootstrap=100)
    assert value(result["union"], "covered", "overall") == (0.75, 4)
    assert value(result["union"], "entities", "overall") == (0.5, 2)  # "ann" is Ann, and was missed
    result = measured(marks_of([text], [gold], {"a": [[*seen, (28, 31, "X")]]}), num_bootstrap=100)
    assert value(result["union"], "entities", "overall") == (1.0, 2)


def test_an_entity_without_id_is_the_individuals_one_with_an_id_the_documents() -> None:
    texts, found = ["Ann", "Ann", "Ann"], {"a": [[(0, 3, "NAME")], [], [(0, 3, "NAME")]]}
    gold: list[list[Span] | None] = [[(0, 3, "NAME")]] * 3
    result = measured(marks_of(texts, gold, found, ["p", "p", "q"]), num_bootstrap=100)
    assert value(result["union"], "entities", "overall") == (0.5, 2)
    assert value(result["union"], "all_found", "documents") == (pytest.approx(2 / 3), 3)
    assert value(result["union"], "all_found", "individuals") == (0.5, 2)
    about = {"start": 0, "end": 3, "label": "NAME", "identifier_type": "DIRECT", "annotator": None}
    mentions = pa.array([[{**about, "entity_id": "e1"}] for _ in texts], pa.list_(MENTION))
    result = measured(gathered(texts, mentions, "mentions", found, ["p", "p", "q"]), num_bootstrap=100)
    assert value(result["union"], "entities", "overall") == (pytest.approx(2 / 3), 3)


def test_direct_and_quasi_identifiers_apart_and_what_needs_no_mask_left_out() -> None:
    #       012345678901234567890
    text = "Ann of Lyon and Paris"
    rows = [
        (0, 3, "PERSON", "e1", "DIRECT", "a1"),
        (7, 11, "LOC", "e2", "QUASI", "a1"),
        (16, 21, "LOC", "e2", "QUASI", "a1"),
        (7, 11, "LOC", "e2", "QUASI", "a2"),  # another annotator's e2
        (12, 15, "MISC", "e3", "NO_MASK", "a1"),
    ]
    mentions = pa.array([[dict(zip(MENTION.names, row, strict=True)) for row in rows]], pa.list_(MENTION))
    found = {"a": [[(0, 3, "PERSON"), (7, 11, "LOC"), (12, 15, "MISC")]]}
    result = measured(gathered([text], mentions, "mentions", found), num_bootstrap=100)
    assert value(result["union"], "entities", "DIRECT") == (1.0, 1)
    assert value(result["union"], "entities", "QUASI") == (0.5, 2)
    assert value(result["union"], "entities", "overall") == (pytest.approx(2 / 3), 3)
    assert value(result["union"], "overall", "strict", "precision") == (pytest.approx(2 / 3), 3)
    assert value(result["union"], "overall", "strict", "recall") == (pytest.approx(2 / 3), 3)  # distinct spans


def test_documents_that_nobody_marked_are_not_measured() -> None:
    found = {"a": [[(0, 3, "NAME")], [(0, 3, "NAME")], [(0, 3, "NAME")]]}
    marks = marks_of(["Ann", "Bob", "Cyd"], [[(0, 3, "NAME")], None, []], found)
    result = measured(marks, num_bootstrap=100)
    assert (result["documents"], result["unmarked"]) == (2, 1)
    assert value(result["union"], "overall", "strict", "precision") == (0.5, 2)
    assert value(result["union"], "overall", "strict", "recall") == (1.0, 1)


@pytest.mark.parametrize("gold", [[[], []], [None, None]])
def test_no_gold_and_no_detector_are_fine(gold: list[list[Span] | None]) -> None:
    result = measured(marks_of(["Ann", ""], gold, {}), num_bootstrap=100)
    assert value(result["union"], "overall", "strict", "recall") == (None, 0)
    assert (result["alone"], result["only"], result["missed"]) == ({}, {}, {})


def test_a_mention_without_a_word_is_covered_where_it_is_overlapped() -> None:
    gold: list[list[Span] | None] = [[(2, 4, "ID"), (5, 7, "ID")]]
    result = measured(marks_of(["a -- ++ b"], gold, {"x": [[(1, 3, "ID")]]}), num_bootstrap=100)
    assert value(result["union"], "covered", "overall") == (0.5, 2)


def test_intervals_resample_individuals_whole() -> None:
    texts = ["Ann"] * 40
    found = {"a": [[(0, 3, "NAME")] if i % 4 else [] for i in range(40)]}
    gold: list[list[Span] | None] = [[(0, 3, "NAME")]] * 40
    apart = measured(marks_of(texts, gold, found), num_bootstrap=500)["union"]["covered"]["overall"]
    together = measured(marks_of(texts, gold, found, [f"p{i % 4}" for i in range(40)]), num_bootstrap=500)["union"][
        "covered"
    ]["overall"]
    assert apart["value"] == together["value"] == 0.75
    assert (apart["n"], together["n"]) == (40, 4)
    assert together["high"] - together["low"] > 2 * (apart["high"] - apart["low"])
    assert together["high"] == 1.0


# A naive count over lists.

LABELS = ("NAME", "PER", "DATE", "ZEBRA")


def naive(texts: list[str], gold: list[list[Span]], found: dict[str, list[list[Span]]], owners: list[str]) -> Any:
    """Counts of everything, by loops over lists and sets."""
    words = []
    for text in texts:
        segmented = _rust.segment(pa.array([text]))
        starts, ends = segmented.char_spans(pa.array([text]))
        words.append(list(zip(starts.tolist(), ends.tolist(), strict=True)))

    def touching(d: int, span: Span) -> set[int]:
        return {w for w, (a, b) in enumerate(words[d]) if a < span[1] and b > span[0]}

    def overlap(a: Span, b: Span) -> bool:
        return a[0] < b[1] and b[0] < a[1]

    def score(names: tuple[str, ...]) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for scope, cat in (("overall", category), ("any_label", lambda label: "")):
            g = {(d, a, b, cat(c)) for d, spans in enumerate(gold) for a, b, c in spans}
            f = {(d, a, b, cat(c)) for n in names for d, spans in enumerate(found[n]) for a, b, c in spans}
            everything = f
            inner = {
                s for s in f for o in f if o != s and o[0] == s[0] and o[3] == s[3] and o[1] <= s[1] and s[2] <= o[2]
            }
            f = f - (inner - g)
            gw = {(s[0], w, s[3]) for s in g for w in touching(s[0], s[1:])}
            fw = {(s[0], w, s[3]) for s in everything for w in touching(s[0], s[1:])}

            def near(s: Any, others: Any) -> bool:
                return any(o[0] == s[0] and o[3] == s[3] and overlap(o[1:], s[1:]) for o in others)

            out[scope, "strict"] = (len(g & f), len(f)), (len(g & f), len(g))
            out[scope, "relaxed"] = (sum(near(s, g) for s in f), len(f)), (sum(near(s, f) for s in g), len(g))
            out[scope, "words"] = (len(gw & fw), len(fw)), (len(gw & fw), len(gw))
        return out

    def is_covered(d: int, span: Span, names: tuple[str, ...]) -> bool:
        spans = [s for n in names for s in found[n][d]]
        mine = touching(d, span)
        if not mine:
            return any(overlap(span, s) for s in spans)
        return mine <= set().union(*(touching(d, s) for s in spans))

    everyone = tuple(found)
    mentions = [(d, span) for d, spans in enumerate(gold) for span in spans]
    entities: dict[Any, list[bool]] = {}
    people: dict[str, list[bool]] = {}
    for d, span in mentions:
        key = owners[d], category(span[2]), texts[d][span[0] : span[1]].lower()
        entities.setdefault(key, []).append(is_covered(d, span, everyone))
        people.setdefault(owners[d], []).append(is_covered(d, span, everyone))
    return {
        "union": score(everyone),
        "alone": {name: score((name,)) for name in found},
        "covered": sum(is_covered(d, s, everyone) for d, s in mentions),
        "only": {
            name: sum(
                is_covered(d, s, everyone) and not is_covered(d, s, tuple(n for n in found if n != name))
                for d, s in mentions
            )
            for name in found
        },
        "missed": sum(not any(overlap(s, o) for n in found for o in found[n][d]) for d, s in mentions),
        "entities": (sum(map(all, entities.values())), len(entities)),
        "individuals": (sum(map(all, people.values())), len(people)),
    }


@st.composite
def cases(draw: st.DrawFn) -> Any:
    texts = draw(st.lists(st.text(st.sampled_from("ab é.-Aשׁ😀\u0301"), max_size=12), min_size=1, max_size=4))

    def spans(text: str) -> list[Span]:
        if not text:
            return []
        bounds = st.tuples(st.integers(0, len(text) - 1), st.integers(1, 5), st.sampled_from(LABELS))
        drawn = draw(st.lists(bounds, max_size=4))
        return [(a, min(a + n, len(text)), label) for a, n, label in drawn]

    gold = [list(dict.fromkeys(spans(text))) for text in texts]
    found = {name: [list(dict.fromkeys(spans(text))) for text in texts] for name in ("x", "y")}
    return texts, gold, found, draw(st.lists(st.sampled_from("pq"), min_size=len(texts), max_size=len(texts)))


@settings(max_examples=examples(150))
@given(cases(), st.integers(1, 3))
def test_evaluation_matches_oracle(case: Any, batch_rows: int) -> None:
    texts, gold, found, owners = case
    result = measured(marks_of(texts, gold, found, owners, batch_rows), num_bootstrap=100)
    expected = naive(texts, gold, found, owners)

    def check(estimate: dict[str, Any], ratio: tuple[int, int]) -> None:
        right, of = ratio
        assert estimate["of"] == of
        assert estimate["value"] == (pytest.approx(right / of) if of else None)
        if of:
            assert estimate["low"] - 1e-12 <= estimate["value"] <= estimate["high"] + 1e-12

    sections = [(result["union"], expected["union"])]
    sections += [(result["alone"][name], expected["alone"][name]) for name in result["alone"]]
    for scores, counts in sections:
        for scope, match in itertools.product(("overall", "any_label"), ("strict", "relaxed", "words")):
            precision, recall = counts[scope, match]
            check(scores[scope][match]["precision"], precision)
            check(scores[scope][match]["recall"], recall)
        for match in ("strict", "words"):  # what is right adds up over the categories
            parts = [about[match]["recall"] for about in scores["categories"].values()]
            assert sum((p["value"] or 0) * p["of"] for p in parts) == pytest.approx(counts["overall", match][1][0])
    num_mentions = sum(map(len, gold))
    check(result["union"]["covered"]["overall"], (expected["covered"], num_mentions))
    check(result["union"]["entities"]["overall"], expected["entities"])
    check(result["union"]["all_found"]["individuals"], expected["individuals"])
    assert sum(result["missed"].values()) == expected["missed"]
    missing = dict.fromkeys(found, 0)
    assert missing | {name: sum(c.values()) for name, c in result["only"].items()} == expected["only"]
    for name in set(found) - set(result["only"]):
        assert not any(found[name])


def test_a_choice_of_detectors_and_categories_is_as_if_the_rest_were_not_there() -> None:
    found = {"a": [FOUND, []], "b": [[(12, 15, "NAME")], [(0, 3, "DATE")]]}
    texts, gold = [TEXT, "May"], [GOLD, [(0, 3, "DATE")]]
    marks = marks_of(texts, gold, found)
    alone = measured(marks.with_only(detectors=["b", "c"]), num_bootstrap=100)
    assert alone["union"] == measured(marks, num_bootstrap=100)["alone"]["b"]
    assert list(alone["alone"]) == ["b", "c"]
    names = measured(marks.with_only(categories=["NAME"]), num_bootstrap=100)
    assert names["mentions"] == {"NAME": 2}
    assert value(names["union"], "overall", "strict", "precision") == (pytest.approx(2 / 3), 3)
    assert value(names["union"], "entities", "overall") == (1.0, 2)
    assert names["missed"] == {}


def test_marks_hold_no_text() -> None:
    marks = marks_of([TEXT], [GOLD], {"a": [FOUND]})
    for name in marks.__slots__:
        assert "Ann" not in repr(getattr(marks, name))
    assert isinstance(marks.entity, np.ndarray)
