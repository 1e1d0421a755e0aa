"""One individual is one id: ids that differ only in how they are spelt stop the run, are joined, or are different."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.command import command
from fixtures.documents import write_documents
from hypothesis import given
from hypothesis import strategies as st

from reticent.core.artifact import read_manifest
from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.canaries import open_planted
from reticent.engine.corpus import Columns, Corpus, open_corpus
from reticent.engine.detect import check_options
from reticent.engine.identity import find_spellings, fold_ids
from reticent.engine.index import build_index
from reticent.engine.schema import HELDOUT, MEMBERS
from reticent.engine.split import SplitConfig, open_individuals, split_individuals
from reticent.engine.withdrawn import leave_out, read_ids
from reticent.ext.propile.stage import run_probes
from reticent.ext.propile.subjects import read_subjects
from reticent.job.config import parse_job
from reticent.job.pipeline import execute
from reticent.job.run import Run

#: In what two ids differ, and the two, of which no other id of these tests is a part.
SAME = [
    ("letter case", "Zk9Q", "zK9q"),
    ("letter case", "STRASSE7Z", "straße7z"),
    ("white space", "Zk9Q", "Zk9Q "),
    ("white space", "Zk9Q", "\tZk9Q"),
    ("white space", "Zk9Q", "Zk9Q\n"),
    ("white space", "Zk9Q", "Zk9Q\u00a0"),
    ("white space", "Zk 9Q", "Zk\u202f9Q"),
    ("white space", "Zk 9Q", "Zk9Q"),
    ("invisible characters", "Zk9Q", "\ufeffZk9Q"),
    ("invisible characters", "Zk9Q", "Zk\u200b9Q"),
    ("invisible characters", "Zk9Q", "Zk9Q\u200d"),
    ("invisible characters", "Zk9Q", "Zk\u00ad9Q"),
    ("invisible characters", "Zk9Q", "Zk9Q\0"),
    ("invisible characters", "Zk9Q", "\u2066Zk9Q\u2069"),
    ("Unicode form or width", "Zk9Q", "Zk９Q"),
    ("Unicode form or width", "Zké9Q", "Zke\u03019Q"),
    ("Unicode form or width", "Zk9Q", "Zk٩Q"),
    ("Unicode form or width", "Zk-9Q", "Zk\u20119Q"),
    ("Unicode form or width", "ﬁ9Q", "fi9Q"),
    ("zero padding", "77123", "0077123"),
    ("zero padding", "ZkQ-7", "ZkQ-007"),
    ("zero padding", "Z0", "Z000"),
    ("a trailing .0", "77123", "77123.0"),
    ("a trailing .0", "77123", "77123.000"),
    ("letter case, zero padding", "ZQ07", "zq7"),
    ("Unicode form or width, letter case", "Zk9Q", "ｚk9Q"),
    ("Unicode form or width, zero padding", "77123", "００77123"),
    ("white space, a trailing .0, zero padding", "77123", " 077123.0"),
]
DIFFERENT = [
    ("Zk9Q", "Zk9P"),
    ("Zké9Q", "Zke9Q"),
    ("10", "1"),
    ("1", "100"),
    ("-1", "1"),
    ("1-2", "12"),
    ("1_2", "1-2"),
    ("007Z", "7Z"),
    ("12.5", "12"),
    ("12.5", "12.50"),
    ("A1.0", "A1"),
    ("1.0.0", "1"),
    ("x0y1", "xy1"),
    ("ZkО", "ZkO"),  # Cyrillic
    ("Z²", "Z3"),
]
INVISIBLE = ["\u200b", "\ufeff", "\u2060\u00ad", " \u200e\n", "\0", "\u3164", "\u2800", "\u00a0\u200d"]


def write(path: Path, individuals: Sequence[str], **more: Any) -> Path:
    ids = [f"{path.stem}{row}" for row in range(len(individuals))]
    return write_documents(path, ["seen today"] * len(ids), individuals, **{"doc_id": ids, **more})


def corpus(folder: Path, individuals: Sequence[str], ids: Any = "stop", **more: Any) -> Corpus:
    return open_corpus(write(folder / "a.parquet", individuals, **more), ids=ids)


def people(found: Corpus) -> list[str]:
    return found.scan().column("individual_id").to_pylist()


# ---------------------------------------------------------------------------------------------------------------- stop


@pytest.mark.parametrize(("kind", "one", "other"), SAME)
def test_two_spellings_of_an_id_stop_the_scan_with_what_differs_and_where_and_no_id(
    tmp_path: Path, kind: str, one: str, other: str
) -> None:
    with pytest.raises(CorpusError) as error:
        corpus(tmp_path, ["else", one, one, other]).scan()
    said = str(error.value)
    place = tmp_path / "a.parquet"
    assert "column individual_id: 2 ids are 1 but for how they are spelt" in said
    assert f": {place} row 2 and {place} row 4 ({kind}). " in said
    assert 'corpus.ids = "fold"' in said
    assert '"exact"' in said
    shown = said.replace(str(tmp_path), "")
    assert not any(part.strip() in shown for part in (one, other, "else"))


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_ids_that_differ_in_more_are_left_alone(tmp_path: Path, one: str, other: str) -> None:
    assert people(corpus(tmp_path, [one, other])) == [one, other]


def test_the_message_counts_groups_and_names_the_first_over_all_files(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", ["aa", "bb", "cc", "dd"])
    write(tmp_path / "b.parquet", ["AA", "bb ", "dd", "DD", "Cc", "Cc ", "ee"])
    with pytest.raises(CorpusError) as error:
        open_corpus(tmp_path).scan()
    a, b = tmp_path / "a.parquet", tmp_path / "b.parquet"
    assert str(error.value).startswith(
        "column individual_id: 9 ids are 4 but for how they are spelt, and each would count by itself. They differ in "
        f"white space (2), letter case (3): {a} row 1 and {b} row 1 (letter case); {a} row 2 and {b} row 2 "
        f"(white space); {a} row 3 and {b} row 5 (white space, letter case); …. Correct them"
    )


def test_households_are_asked_about_too(tmp_path: Path) -> None:
    source = write(tmp_path / "a.parquet", ["a", "b", "c"], home=["h1", None, "H1"])
    found = open_corpus(source, columns=Columns(household_id="home"))
    with pytest.raises(CorpusError, match=r"column home: 2 ids .* row 1 and .* row 3 \(letter case\)"):
        found.scan()
    assert open_corpus(source).scan().num_rows == 3


def test_ids_of_documents_are_compared_as_they_are(tmp_path: Path) -> None:
    assert corpus(tmp_path, ["a", "b"], doc_id=["x", "X"]).num_documents == 2


@pytest.mark.parametrize("blank", INVISIBLE)
@pytest.mark.parametrize("column", ["doc_id", "individual_id", "household_id"])
def test_an_id_that_prints_nothing_is_blank(tmp_path: Path, column: str, blank: str) -> None:
    values = {"doc_id": ["d1", "d2"], "individual_id": ["a", "b"], "household_id": ["g", "h"]}
    values[column][1] = blank
    source = tmp_path / "a.parquet"
    pq.write_table(pa.table(values | {"text": ["x", "y"]}), source)
    for ids in ("stop", "fold", "exact"):
        with pytest.raises(CorpusError, match=rf"row 2 column {column}: is blank$"):
            open_corpus(source, columns=Columns(household_id="household_id"), ids=ids).scan()


def test_an_unknown_choice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"corpus\.ids: expected stop, fold, exact"):
        corpus(tmp_path, ["a", "b"], "join")


# ------------------------------------------------------------------------------------------------------- fold and exact


@pytest.mark.parametrize(("kind", "one", "other"), SAME)
def test_fold_joins_them_wherever_documents_are_read_and_exact_does_not(
    tmp_path: Path, kind: str, one: str, other: str
) -> None:
    for ids, distinct in (("fold", 2), ("exact", 3)):
        found = corpus(tmp_path, [one, "else", other, one], ids)
        whole = people(found)
        assert len(set(whole)) == distinct == found.num_individuals
        assert (whole[0] == whole[2]) == (ids == "fold")
        assert whole[0] == whole[3] != whole[1]
        assert [name for batch in found.batches() for name in batch.column("individual_id").to_pylist()] == whole
        read: dict[int, list[str]] = {}
        found.for_each_batch(lambda first, batch: read.update({first: batch.column(1).to_pylist()}), num_threads=2)  # noqa: B023
        assert [name for first in sorted(read) for name in read[first]] == whole
        assert bool(found.repaired) == (ids == "fold")
        assert people(found.without([1, 3]) if ids == "exact" else found) == (whole[::2] if ids == "exact" else whole)


def test_a_word_of_one_individual_under_two_ids_has_support_1_once_they_are_joined(tmp_path: Path) -> None:
    ids = ["Zk9Q", "zk9q", *(f"p{i}" for i in range(20))]
    texts = ["secretword", "secretword", *(["shared"] * 20)]
    for choice, support in (("fold", 1), ("exact", 2)):
        found = corpus(tmp_path, ids, choice, text=texts)
        individuals = split_individuals(found, SplitConfig(heldout=0.5))
        index = build_index(found, individuals, splits=(MEMBERS, HELDOUT))
        words = pa.table(pa.record_batch(index.words(0, index.num_words))).to_pylist()
        assert {row["word"]: row["support"] for row in words} == {"secretword": support, "shared": 20}
        assert index.num_units == 20 + support


def test_joined_ids_are_on_one_side_whichever_spelling_comes_first_or_alone(tmp_path: Path) -> None:
    names = [f"Ab{i}Q" for i in range(100)]
    spelt = [names, [name.upper() for name in names], [f" {name.lower()}" for name in names[::-1]]]
    sides = []
    for ids in (*spelt, [*spelt[0], *spelt[1], *spelt[2]]):
        individuals = split_individuals(corpus(tmp_path, ids, "fold"), SplitConfig(heldout=0.5))
        sides.append(individuals.table.select(["individual_id", "split"]).to_pylist())
    assert sides[0] == sides[1] == sides[2] == sides[3]
    assert len(sides[0]) == 100
    table = split_individuals(corpus(tmp_path, [*spelt[0], *spelt[1]], "exact"), SplitConfig(heldout=0.5)).table
    exact = dict(zip(table["individual_id"].to_pylist(), table["split"].to_pylist(), strict=True))
    assert any(exact[name] != exact[name.upper()] for name in names), "halves of one person on both sides"


def test_households_are_joined(tmp_path: Path) -> None:
    source = write(tmp_path / "a.parquet", ["a", "b", "c"], household_id=["H 1", "h1", "h2"])
    found = open_corpus(source, columns=Columns(household_id="household_id"), ids="fold")
    assert split_individuals(found, SplitConfig(heldout=0.5, seed=1)).units.tolist() == [0, 0, 1]
    assert found.repaired == {"spellings of household_id joined with others": 1}


def test_the_fingerprint_is_another_only_where_ids_are_read_otherwise(tmp_path: Path) -> None:
    stop, exact, fold = (corpus(tmp_path, ["a", "B"], ids).fingerprint() for ids in ("stop", "exact", "fold"))
    assert stop == exact != fold


def test_planted_documents_have_the_ids_that_were_read(tmp_path: Path) -> None:
    write(tmp_path / "documents" / "part-00000.parquet", ["a", "A"])
    assert people(open_planted(tmp_path)) == ["a", "A"]


IDS = st.lists(st.none() | st.text(st.sampled_from("aAée\u0301ß0०1.- \u00a0\u200bＡﬁ") | st.characters()), max_size=20)


@given(IDS)
def test_folding_a_folded_id_changes_nothing(ids: list[str | None]) -> None:
    ids = [None if value is None else value.encode("utf-8", "ignore").decode() for value in ids]
    once = fold_ids(pa.array(ids, pa.string()))
    assert fold_ids(once) == once
    assert [value is None for value in once.to_pylist()] == [value is None for value in ids]


@given(IDS)
def test_groups_of_spellings_match_oracle(ids: list[str | None]) -> None:
    ids = [None if value is None else value.encode("utf-8", "ignore").decode() for value in ids]
    firsts: dict[str, dict[str, int]] = {}
    for row, (value, form) in enumerate(zip(ids, fold_ids(pa.array(ids, pa.string())).to_pylist(), strict=True)):
        if value is not None:
            firsts.setdefault(form, {}).setdefault(value, row)
    expected = [sorted(rows.values()) for rows in firsts.values() if len(rows) > 1]
    found = find_spellings(pa.array(ids, pa.string()))
    assert [rows.tolist() for rows in np.split(found.rows, found.bounds[1:-1])][: len(found)] == sorted(expected)
    assert found.num_joined == sum(len(rows) - 1 for rows in expected)
    assert all(found.differences)


# ------------------------------------------------------------------------------------------- lists beside the documents


def test_a_withdrawn_id_that_is_spelt_otherwise_stops_or_withdraws_and_is_never_passed_over(tmp_path: Path) -> None:
    (tmp_path / "gone.txt").write_text("p2\nZK9q \n", encoding="utf-8")
    ids = ["p1", "p2", "Zk9Q", "p3"]
    with pytest.raises(CorpusError) as error:
        leave_out(corpus(tmp_path, ids), [tmp_path / "gone.txt"])
    assert "gone.txt: 1 id(s) spelt otherwise than in the documents: line 2 (white space, letter case)" in str(
        error.value
    )
    assert "9" not in str(error.value).replace(str(tmp_path), "")
    folded, gone, about = leave_out(corpus(tmp_path, ids, "fold"), [tmp_path / "gone.txt"])
    assert (people(folded), gone.to_pylist()) == (["p1", "p3"], ["p2", "zk9q"])
    assert about == [(str(tmp_path / "gone.txt"), 2, 2)]
    exact, _, about = leave_out(corpus(tmp_path, ids, "exact"), [tmp_path / "gone.txt"])
    assert (sorted(people(exact)), about[0][1:]) == (
        ["Zk9Q", "p1", "p3"],
        (2, 1),
    )  # the other is nobody's
    assert read_ids(tmp_path / "gone.txt", pa.chunked_array([["p1"]]))[0].to_pylist() == []


def test_lists_of_who_withdrew_may_name_the_same_individual(tmp_path: Path) -> None:
    (tmp_path / "may.txt").write_text("p2\n", encoding="utf-8")
    (tmp_path / "june.txt").write_text("p2\np4\n", encoding="utf-8")
    lists = [tmp_path / "may.txt", tmp_path / "june.txt"]
    assert people(leave_out(corpus(tmp_path, ["p1", "p2", "p3", "p4"]), lists)[0]) == ["p1", "p3"]


def job(tmp_path: Path, ids: str = "stop", **more: Any) -> dict[str, Any]:
    return {
        "out": str(tmp_path / "run"),
        "corpus": {"source": str(tmp_path / "a.parquet"), "ids": ids},
        "split": {"heldout": 0.5},
    } | more


def test_records_under_another_spelling_stop_or_are_found(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    texts = ["Lefort came", "Durand came", *["nobody came"] * 8]
    write(tmp_path / "a.parquet", ["7", "Zk9Q", *(f"p{i}" for i in range(8))], text=texts)
    records = {"individual_id": ["007", "Zk9Q", "zk8q"], "last_name": ["Lefort", "Durand", "Petit"]}
    pq.write_table(pa.table(records), tmp_path / "r.parquet")
    detect = {"detectors": ["records"], "records": str(tmp_path / "r.parquet")}
    for ids, status, spans in (("stop", 1, 0), ("exact", 0, 1), ("fold", 0, 2)):
        (tmp_path / "job.json").unlink(missing_ok=True)
        path = tmp_path / f"{ids}.toml"
        path.write_text(
            f'out = "{tmp_path}/{ids}"\n[corpus]\nsource = "{tmp_path}/a.parquet"\nids = "{ids}"\n[detect]\n'
            f'detectors = ["records"]\nrecords = {json.dumps(detect["records"])}\n'
        )
        assert command("detect", path, "-q") == status
        said = capfd.readouterr().err
        if ids == "stop":
            assert (
                "r.parquet column individual_id: 1 id(s) spelt otherwise than in the documents: row 1 (zero p" in said
            )
            assert not (tmp_path / ids / "spans").exists()
        else:
            assert read_manifest(tmp_path / ids / "spans").counts["spans"] == spans


def test_records_under_another_spelling_stop_a_run_that_passed_over_them_before(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", ["7", *(f"p{i}" for i in range(9))], text=["Lefort came", *["nobody came"] * 9])
    pq.write_table(pa.table({"individual_id": ["007", "p1"], "last_name": ["Lefort", "Petit"]}), tmp_path / "r.parquet")
    more = {"detect": {"detectors": ["records"], "records": str(tmp_path / "r.parquet")}}
    execute(Run(parse_job(job(tmp_path, "exact", **more))), "detect")
    with pytest.raises(CorpusError, match=r"spelt otherwise than in the documents: row 1 \(zero padding\)"):
        execute(Run(parse_job(job(tmp_path, "stop", **more))), "detect")


def test_how_ids_are_read_is_the_corpus_s_to_say_and_no_option_of_a_detector() -> None:
    with pytest.raises(PolicyError, match=r"no option 'ids'"):
        check_options("records", {"table": "r.parquet", "ids": "fold"})


def test_blank_ids_of_records_are_refused(tmp_path: Path) -> None:
    from reticent.engine.detect.records import read_records

    pq.write_table(pa.table({"individual_id": ["a", "\u200b"], "name": ["x", "y"]}), tmp_path / "r.parquet")
    with pytest.raises(CorpusError, match="individual_id has 1 blank values"):
        read_records(tmp_path / "r.parquet")


def test_subjects_of_a_probe_under_another_spelling_stop_it(tmp_path: Path) -> None:
    found = corpus(tmp_path, ["Zk9Q", "p1", "p2", "p3"])
    pq.write_table(pa.table({"individual_id": ["p1", "zk9q"], "zip": ["1", "2"]}), tmp_path / "s.parquet")
    model = {"name": "m", "objective": "clm", "recipes": ["ppclm"], "base": "x"}
    values = job(tmp_path, model=[model], probe={"subjects": str(tmp_path / "s.parquet"), "targets": ["zip"]})
    run: Any = SimpleNamespace(job=parse_job(values), individuals=split_individuals(found, SplitConfig(heldout=0.5)))
    with pytest.raises(
        CorpusError, match=r"s\.parquet: 1 id\(s\) spelt otherwise than in the documents: row 2 \(letter"
    ):
        run_probes(run)
    assert read_subjects(tmp_path / "s.parquet", fold=True).ids == ["p1", "zk9q"]
    pq.write_table(pa.table({"individual_id": ["p1", "P1"], "zip": ["1", "2"]}), tmp_path / "t.parquet")
    with pytest.raises(CorpusError, match="row 2: same individual_id as row 1"):
        read_subjects(tmp_path / "t.parquet", fold=True)


# ------------------------------------------------------------------------------------------------------------- commands


def test_a_run_stops_before_anything_is_made_and_goes_on_as_it_is_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = write(tmp_path / "a.parquet", ["Zk9Q", "zk9q", "p1", "p1", *(f"p{i}" for i in range(2, 20))])
    assert command("index", source, "--out", tmp_path / "run", "-q") == 1
    said = capfd.readouterr().err
    assert "column individual_id: 2 ids are 1" in said
    assert "--set corpus.ids=fold" in said
    assert "Traceback" not in said
    assert "k9" not in said.lower().replace(str(tmp_path).lower(), "")
    assert not (tmp_path / "run" / "split").exists()
    for ids, num in (("fold", 20), ("exact", 21)):
        assert command("index", source, "--out", tmp_path / ids, "-q", "--set", f"corpus.ids={ids}") == 0
        assert open_individuals(tmp_path / ids / "split").table.num_rows == num
        said = capfd.readouterr().err
        assert ("warning: spellings of individual_id joined with others: 1\n" in said) == (ids == "fold")


def test_an_update_withdraws_who_is_spelt_otherwise(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "gone.txt").write_text("007\n")
    source = write(tmp_path / "a.parquet", ["7", "7", *(f"p{i}" for i in range(20))])
    for ids, status in (("stop", 1), ("fold", 0)):
        run = tmp_path / ids
        assert (
            command("index", source, "-o", run, "-q", "--set", "index.updatable=true", "--set", f"corpus.ids={ids}")
            == 0
        )
        assert command("update", run, "--remove", tmp_path / "gone.txt", "-o", tmp_path / f"{ids}2", "-q") == status
    assert "gone.txt: 1 id(s) spelt otherwise than in the documents: line 1 (zero padding)" in capfd.readouterr().err
    assert "7" not in open_individuals(tmp_path / "fold2" / "split").table["individual_id"].to_pylist()


def unique_warnings(capfd: pytest.CaptureFixture[str]) -> int:
    return capfd.readouterr().err.count("documents has an individual of its own")


def test_a_column_that_is_another_for_every_document_is_warned_of_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = write(tmp_path / "a.parquet", [f"p{i}" for i in range(20)])
    assert command("index", source, "-o", tmp_path / "run", "-q") == 0
    assert unique_warnings(capfd) == 1
    assert command("index", source, "-o", tmp_path / "run", "-q") == 0
    assert command("stats", tmp_path / "run", "-q") == 0
    assert unique_warnings(capfd) == 0
    (tmp_path / "job.toml").write_text(f'out = "{tmp_path}/new"\n[corpus]\nsource = "{source}"\n')
    assert command("stats", tmp_path / "job.toml", "-q") == 0
    assert unique_warnings(capfd) == 1
    write(source, ["p0", *(f"p{i}" for i in range(19))])
    assert command("index", source, "-o", tmp_path / "other", "-q") == 0
    assert unique_warnings(capfd) == 0


def test_a_format_that_does_not_say_whose_a_document_is_is_warned_of_as_such_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in (f"n{i}" for i in range(12)):
        (tmp_path / f"{name}.txt").write_text("seen today")
        (tmp_path / f"{name}.ann").write_text("")
    for settings, kinds in (
        ([], "does not say whose"),
        (["--set", "corpus.individual=(.*)"], "an individual of its own"),
    ):
        out = tmp_path / kinds.split()[0]
        assert command("index", tmp_path, "--set", "corpus.format=brat", "-o", out, "-q", *settings) == 0
        said = [line for line in capfd.readouterr().err.splitlines() if "individual" in line]
        assert len(said) == 1
        assert kinds in said[0]
