"""A run that learns a tagger: marks and a teacher in, its spans out, and nobody measured on what taught it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from detect.test_learned import notes

from reticent.core.artifact import read_manifest
from reticent.core.errors import ReticentError
from reticent.core.progress import Progress
from reticent.engine.detect.detector import FOUND
from reticent.engine.detect.learned import LESSONS, TaggerConfig
from reticent.ext.annotate.command import evaluate_sample, sample_documents
from reticent.ext.learn.command import learn_in_run
from reticent.ext.learn.stage import choose_lean, cross_validate
from reticent.job.config import parse_job
from reticent.job.detection import detect_documents
from reticent.job.detection_learned import languages_of
from reticent.job.pipeline import execute
from reticent.job.run import Run

QUIET = Progress(quiet=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """150 notes of a run with their marks, and 40 marked ones of others."""
    for name, table in (("notes", notes(150, seed=5)), ("marked", notes(40, seed=6, first=1000))):
        ids = pa.array([f"{name}{row}" for row in range(len(table))])
        pq.write_table(table.drop_columns("weight").add_column(0, "doc_id", ids), tmp_path / f"{name}.parquet")
    return tmp_path


def job(folder: Path, learned: dict[str, Any], **detect: Any) -> Any:
    return parse_job(
        {
            "out": str(folder / "run"),
            "corpus": {"source": str(folder / "notes.parquet"), "spans": "spans"},
            "protect": {"k": 3},
            "detect": {"detectors": ["rules", "learned"], "learned": learned, **detect},
            "audit": {"num_bootstrap": 100},
        }
    )


def spans_of(folder: Path) -> pa.Table:
    return pq.read_table(folder / "run" / "spans" / "spans.parquet")


def test_marks_teach_a_run_and_its_documents_are_tagged(folder: Path) -> None:
    asked = job(folder, {"marks": str(folder / "marked.parquet")})
    report = learn_in_run(asked, QUIET)
    assert report["sources"] == {"marks": 40, "drawn": 0}
    overall = report["overall"]
    assert overall["recall"]["value"] > 0.95
    assert overall["recall"]["low"] < overall["recall"]["value"] <= overall["recall"]["high"]
    assert overall["precision"]["value"] > 0.95
    assert report["categories"].keys() == {"NAME"}
    found = spans_of(folder).filter(pa.compute.equal(spans_of(folder).column("detector"), "learned"))
    assert found.num_rows > 250
    result = detect_documents(asked, keep=True, evaluate=True, progress=QUIET)
    assert result.evaluation.union.overall.words.recall.value > 0.95
    assert result.evaluation.unmarked == 0
    for file in (folder / "run").rglob("*"):  # private, as the documents
        assert not file.stat().st_mode & 0o077
    text = (folder / "run" / "learned" / "learned.json").read_text()
    assert not [
        word
        for row in notes(40, seed=6).column("text").to_pylist()
        for word in row.split()
        if len(word) > 9 and word in text
    ]


def test_an_interrupted_run_goes_on_and_a_changed_source_is_learned_again(folder: Path, monkeypatch) -> None:
    import reticent.ext.learn.stage as stage

    asked = job(folder, {"marks": str(folder / "marked.parquet"), "teacher": "rules", "documents": 60})
    seen = []
    teach, learn = stage._run_teacher, stage.learn_tagger
    monkeypatch.setattr(stage, "_run_teacher", lambda *args: (seen.append("teacher"), teach(*args))[1])
    shutil.copy(folder / "notes.parquet", folder / "before.parquet")
    table = pq.read_table(folder / "notes.parquet")
    texts = pa.array([f"{text} Tel: 0612345678" for text in table.column("text").to_pylist()], pa.large_string())
    pq.write_table(table.set_column(table.schema.get_field_index("text"), "text", texts), folder / "notes.parquet")

    def killed(*args: Any, **kwargs: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(stage, "learn_tagger", killed)
    with pytest.raises(KeyboardInterrupt):
        execute(Run(asked), "detect", alone=True)
    monkeypatch.setattr(stage, "learn_tagger", learn)
    execute(Run(asked), "detect", alone=True)
    first = (folder / "run" / "learned" / "tagger.parquet").read_bytes()
    key = (folder / "run" / "learned.key").read_bytes()
    assert seen == ["teacher"]
    execute(Run(asked), "detect", alone=True)
    assert (folder / "run" / "learned" / "tagger.parquet").read_bytes() == first
    other = job(folder, {"marks": str(folder / "marked.parquet"), "teacher": "rules", "documents": 60, "k": 5})
    execute(Run(other), "detect", alone=True)
    assert seen == ["teacher"]
    assert (folder / "run" / "learned" / "tagger.parquet").read_bytes() != first
    assert (folder / "run" / "learned.key").read_bytes() == key
    assert set(pq.read_table(folder / "run" / "learned" / "taught.parquet").column("individual_id").to_pylist()) > {
        "p1000"
    }


@pytest.mark.parametrize("teacher", [{}, {"teacher": "gold"}])
def test_records_teach_the_names_that_they_do_not_hold(
    teacher: dict[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ``certain`` the individuals' own names teach; nobody marked anything, and others' names are found. Each
    drawn document is read, counted and measured once, and others' names are measured where a teacher knows them."""
    import reticent.ext.learn.stage as stage

    read, find = [], stage.find_in_turn
    monkeypatch.setattr(stage, "find_in_turn", lambda made, batch: (read.append(len(batch)), find(made, batch))[1])
    rows = pq.read_table(folder / "notes.parquet").to_pylist()
    own = [(row["individual_id"], row["text"][row["spans"][0]["start"] : row["spans"][0]["end"]]) for row in rows]
    ids, names = zip(*own, strict=True)
    pq.write_table(pa.table({"individual_id": ids, "surname": names}), folder / "records.parquet")
    records = {"table": str(folder / "records.parquet"), "fields": {"last_name": "surname"}}
    learned = {"certain": True, "documents": 150, **teacher}
    report = learn_in_run(job(folder, learned, detectors=["rules", "records", "learned"], records=records), QUIET)
    assert sum(read) == report["documents"] == report["measured"] == report["sources"]["drawn"] == 150
    assert report["overall"]["precision"]["value"] == 1.0
    assert teacher or report["lean"] < 1.0  # or it would mark every word with a capital
    assert report["overall"]["recall"]["words"] == sum(len(row["spans"]) for row in rows) // (1 if teacher else 3)
    found = {(row["document"], row["start"]) for row in spans_of(folder).to_pylist() if row["detector"] == "learned"}
    others = {(number, span["start"]) for number, row in enumerate(rows) for span in row["spans"][1:]}
    assert len(found & others) > 0.9 * len(others)


def test_a_teacher_reads_records_by_the_folded_id(folder: Path) -> None:
    """With ``corpus.ids = "fold"`` a record whose id has another spelling is its individual's for the teacher too."""
    rows = pq.read_table(folder / "notes.parquet").to_pylist()
    ids = [row["individual_id"].upper() for row in rows]
    names = [row["text"][slice(row["spans"][0]["start"], row["spans"][0]["end"])] for row in rows]
    pq.write_table(pa.table({"individual_id": ids, "last_name": names}), folder / "records.parquet")
    records = {"table": str(folder / "records.parquet")}
    learned = {"teacher": "records", "documents": 150}
    asked = job(folder, learned, detectors=["rules", "records", "learned"], records=records).model_dump()
    asked["corpus"]["ids"] = "fold"
    execute(Run(parse_job(asked)), "detect", alone=True)
    assert read_manifest(folder / "run" / "teacher").counts["spans"] >= 150


@pytest.mark.parametrize("own", [False, True])
def test_a_teacher_with_another_list_teaches_again(folder: Path, own: bool) -> None:
    """Whether the list is the job's or the teacher's own, and whether its path or its content is another."""
    found = []
    for file, words in (("a", "Palpazione"), ("b", "Paracetamolo"), ("b", "Radiologia")):
        (folder / file).write_text(words)
        gazetteer = {"gazetteer": {"lists": {"CITY": str(folder / file)}}}
        learned = {"teacher": "gazetteer", "documents": 150} | ({"teacher_options": gazetteer} if own else {})
        given = {} if own else {"detectors": ["rules", "gazetteer", "learned"], **gazetteer}
        execute(Run(job(folder, learned, **given)), "detect", alone=True)
        found.append(pq.read_table(folder / "run" / "teacher" / "spans.parquet").column("start").to_pylist())
    assert found[0] != found[1] != found[2]


def test_a_language_that_was_taught_is_known(folder: Path) -> None:
    """Notes of 30 words or more in Italian are counted as another language until the tagger has learned from some."""
    for file in ("notes.parquet", "marked.parquet"):
        rows = pq.read_table(folder / file).to_pylist()
        for row in rows:
            row["text"] += " Il dolore alla gamba e la febbre non si vedono che di notte, con la tosse. " * 3
        pq.write_table(pa.Table.from_pylist(rows), folder / file)
    alone = job(folder, {}, detectors=["rules"])
    execute(Run(alone), "detect", alone=True)
    counts = read_manifest(folder / "run" / "spans").counts
    assert (counts["long_documents"], counts["other_language"]) == (150, 150)
    learn_in_run(asked := job(folder, {"marks": str(folder / "marked.parquet")}), QUIET)
    assert read_manifest(folder / "run" / "spans").counts["other_language"] == 0
    assert languages_of(asked)[-1] == "it"


def annotated(folder: Path, run: Any, num: int) -> Path:
    """A sample of a run as an annotator saves it who marks exactly the gold spans."""
    sample_documents(run, folder / "sample", num, seed=0, by_disagreement=False, progress=QUIET)
    columns = (pq.read_table(folder / "notes.parquet").column(name).to_pylist() for name in ("text", "spans"))
    gold = dict(zip(*columns, strict=True))
    content = json.loads((folder / "sample" / "brat" / "sample.json").read_text())
    texts = {file.stem: file.read_text() for file in (folder / "sample" / "brat").glob("*.txt")}
    for document in content["documents"]:
        document |= {"reviewed": True, "spans": gold[texts[document["name"]]]}
    (folder / "saved.json").write_text(json.dumps(content))
    return folder / "saved.json"


def test_who_taught_is_left_out_of_every_recall(folder: Path) -> None:
    """And of the documents that are offered next, those come first in which tagger and rules disagree most."""
    rows = pq.read_table(folder / "notes.parquet").to_pylist()
    for row in rows[::3]:
        shift = len(row["text"])
        again = [{**span, "start": span["start"] + shift, "end": span["end"] + shift} for span in row["spans"]]
        row |= {"text": 2 * row["text"], "spans": [*row["spans"], *again]}
    pq.write_table(pa.Table.from_pylist(rows), folder / "notes.parquet")
    saved = annotated(folder, job(folder, {}, detectors=["rules"]), 30)
    taught = job(folder, {"marks": str(saved)})
    learn_in_run(taught, QUIET)
    result = detect_documents(taught, keep=True, evaluate=True, progress=QUIET)
    assert result.evaluation.unmarked == 30
    assert result.evaluation.documents == 120
    with pytest.raises(ReticentError, match="every individual of this sample taught"):
        evaluate_sample(taught, [saved], QUIET)
    sample_documents(taught, folder / "more", 40, seed=1, by_disagreement=True, progress=QUIET)
    drawn = json.loads((folder / "more" / "brat" / "sample.json").read_text())["documents"]
    counts = spans_of(folder).column("document").value_counts().to_pylist()
    disagreed = {row["values"]: row["counts"] for row in counts}  # the rules find nothing in these notes
    order = [disagreed.get(document["row"], 0) for document in sorted(drawn, key=lambda row: row["name"])]
    assert len(order) == 40
    assert order == sorted(order, reverse=True)
    assert order[0] > order[-1]


def test_a_sample_teaches_without_those_who_withdrew_since(folder: Path) -> None:
    saved = annotated(folder, job(folder, {}, detectors=["rules"]), 30)
    table = pq.read_table(folder / "notes.parquet")
    learn_in_run(job(folder, {"marks": str(saved)}), QUIET)
    taught = pq.read_table(folder / "run" / "learned" / "taught.parquet").column("individual_id").to_pylist()
    (folder / "gone.txt").write_text("\n".join(taught[:5]))
    again = job(folder, {"marks": str(saved)})
    values = again.model_dump()
    values["corpus"]["withdrawn"] = [str(folder / "gone.txt")]
    values["out"] = str(folder / "run2")
    learn_in_run(parse_job(values), QUIET)
    left = pq.read_table(folder / "run2" / "learned" / "taught.parquet").column("individual_id").to_pylist()
    assert set(left) == set(taught[5:])
    assert len(table) == 150


def test_marks_that_do_not_say_whose_they_are_count_individuals(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten notes a person, in BRAT: features count people, who withdrew does not teach, what is of others is said."""
    rows = pq.read_table(folder / "notes.parquet").to_pylist()
    for number, row in enumerate(rows):
        row["individual_id"] = f"p{number // 10}"
    pq.write_table(pa.Table.from_pylist(rows), folder / "notes.parquet")
    (folder / "brat").mkdir()
    for number, row in enumerate([*rows[:50], *pq.read_table(folder / "marked.parquet").to_pylist()[:2]]):
        (folder / "brat" / f"{number}.txt").write_text(row["text"])
        own = [(f"{s['label']} {s['start']} {s['end']}", row["text"][s["start"] : s["end"]]) for s in row["spans"]]
        marks = (f"T{at}\t{place}\t{text}\n" for at, (place, text) in enumerate(own, start=1))
        (folder / "brat" / f"{number}.ann").write_text("".join(marks))
    (folder / "gone.txt").write_text("p0")
    values = job(folder, {"marks": str(folder / "brat")}).model_dump()
    values["corpus"]["withdrawn"] = [str(folder / "gone.txt")]
    report = learn_in_run(parse_job(values), QUIET)
    assert (report["documents"], report["individuals"]) == (42, 6)
    taught = pq.read_table(folder / "run" / "learned" / "taught.parquet").column("individual_id").to_pylist()
    assert {f"p{number}" for number in range(1, 5)} < set(taught)
    assert "12 of 52 are none of this run" in capsys.readouterr().err


def test_copies_and_planted_canaries_are_known_again(folder: Path) -> None:
    """Marks are of texts: two documents may have one, and a canary behind it is none of it."""
    rows = pq.read_table(folder / "notes.parquet").to_pylist()
    for row in rows:  # canaries are made of plain words
        row["text"] += (
            "sono sempre stato bene fino alla scorsa estate quando ebbe inizio una lieve tosse secca con poca aria"
        )
    rows[1] |= {"text": rows[0]["text"], "spans": rows[0]["spans"]}
    pq.write_table(pa.Table.from_pylist(rows), folder / "notes.parquet")
    planted = {"canaries": {"num": 12, "arms": ["protected", "missed"], "num_references": 8, "seed": 3}}
    asked = parse_job(job(folder, {}, detectors=["rules"]).model_dump() | planted | {"split": {"heldout": 0.3}})
    sample_documents(asked, folder / "sample", 150, seed=0, by_disagreement=False, progress=QUIET)
    content = json.loads((folder / "sample" / "brat" / "sample.json").read_text())
    gold = {row["text"].rstrip(): row["spans"] for row in rows}
    texts = {file.stem: file.read_text() for file in (folder / "sample" / "brat").glob("*.txt")}
    for document in content["documents"]:
        document |= {"reviewed": True, "spans": gold[texts[document["name"]].rstrip()]}
    (folder / "saved.json").write_text(json.dumps(content))
    taught = parse_job(
        asked.model_dump() | {"detect": job(folder, {"marks": str(folder / "saved.json")}).detect.model_dump()}
    )
    assert learn_in_run(taught, QUIET)["sources"]["marks"] == 150


def test_a_category_that_is_not_found_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Marks that follow no rule, those of too few, and those that are too few without a fold: a sentence says which and
    how many."""
    rows = pq.read_table(folder / "marked.parquet").to_pylist()
    for number, row in enumerate(rows):
        at = row["text"].index(" ", 7 + 5 * (number % 20)) + 1
        if all(at < span["start"] or span["end"] < at for span in row["spans"]):
            row["spans"].append({"start": at, "end": at + 1, "label": "PROFESSION"})
        if number < 4:
            row["spans"].append({"start": 0, "end": 1, "label": "AGE"})
        if number in range(10, 20):
            row["spans"].append({"start": 0, "end": 1, "label": "CITY"})
    pq.write_table(pa.Table.from_pylist(rows), folder / "marked.parquet")
    report = learn_in_run(job(folder, {"marks": str(folder / "marked.parquet")}), QUIET)
    told = capsys.readouterr().err
    assert "category AGE has 4 marks, of 10" in told
    assert "category PROFESSION: of " in told
    assert "category LOCATION has 10 marks: in cross-validation too little of it" in told
    assert "category LOCATION: of " not in told
    assert report["categories"]["LOCATION"]["recall"]["value"] is None
    assert report["categories"]["AGE"]["recall"]["value"] == 0.0


def test_folds_without_which_nothing_can_be_learned_are_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of ten documents four have marks, twelve in all: without one of them too few are left to learn from."""
    rows = pq.read_table(folder / "marked.parquet").slice(0, 10).to_pylist()
    for row in rows[4:]:
        row["spans"] = []
    pq.write_table(pa.Table.from_pylist(rows), folder / "marked.parquet")
    report = learn_in_run(job(folder, {"marks": str(folder / "marked.parquet")}), QUIET)
    num = report["folds_not_learned"]
    assert 2 <= num <= 4
    assert report["measured"] == 10 - 2 * num
    assert report["overall"]["recall"]["value"] is None
    assert f"{num} of 5 folds: too little is left" in capsys.readouterr().err


def outside(folder: Path) -> dict[str, Any]:
    table = notes(40).drop_columns("weight").to_pylist()
    table[7]["spans"][0]["end"] = 10_000
    pq.write_table(
        pa.Table.from_pylist([row | {"doc_id": str(at)} for at, row in enumerate(table)]), folder / "marked.parquet"
    )
    return {"marks": str(folder / "marked.parquet")}


def few(folder: Path) -> dict[str, Any]:
    pq.write_table(pq.read_table(folder / "marked.parquet").slice(0, 2), folder / "marked.parquet")
    return {"marks": str(folder / "marked.parquet")}


def few_with_many_documents(folder: Path) -> dict[str, Any]:
    """Over 500 documents are cross-validated in thirds: of 4 individuals 2 are left, fewer than k."""
    table = pa.concat_tables([pq.read_table(folder / "marked.parquet")] * 13)
    table = table.set_column(0, "doc_id", pa.array(map(str, range(len(table)))))
    at = table.column_names.index("individual_id")
    table = table.set_column(at, "individual_id", pa.array(str(row % 4) for row in range(len(table))))
    pq.write_table(table, folder / "marked.parquet")
    return {"marks": str(folder / "marked.parquet")}


def of_others(folder: Path) -> dict[str, Any]:
    sample_documents(
        job(folder, {}, detectors=["rules"]), folder / "sample", 20, seed=0, by_disagreement=False, progress=QUIET
    )
    table = notes(150, seed=77).drop_columns("weight").to_pylist()
    pq.write_table(
        pa.Table.from_pylist([row | {"doc_id": str(at)} for at, row in enumerate(table)]), folder / "notes.parquet"
    )
    return {"marks": str(folder / "sample" / "brat")}


def no_marks(folder: Path) -> dict[str, Any]:
    (folder / "empty").mkdir()
    return {"marks": str(folder / "empty")}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (outside, "does not fit its text"),
        (few, "2 individuals"),
        (few_with_many_documents, "4 individuals: with k = 3 a tagger needs 5"),
        (of_others, "other documents"),
        (lambda folder: {"teacher": "rules", "documents": 20}, "found nothing"),
        (
            lambda folder: {"teacher": "fst"},
            "teacher: unknown detector 'fst'; expected gold, rules.*, or a preset: fast, thorough",
        ),
        (lambda folder: {"teacher": "context"}, "teacher: detector context is gone"),
        (lambda folder: {"teacher": "thorough", "teacher_options": {}}, "trained NER|pipeline"),
        (lambda folder: {"marks": str(folder / "none.parquet")}, "none.parquet"),
        (no_marks, "empty: no marks in this folder; expected what .* BRAT, .* i2b2-2006"),
    ],
)
def test_what_cannot_teach_is_refused(folder: Path, make: Any, message: str) -> None:
    options = make(folder)
    with pytest.raises(ReticentError, match=message):
        learn_in_run(job(folder, options), QUIET)


def measured_on(marked: pa.Table, drawn: list[dict[str, Any]]) -> dict[str, Any]:
    """Report of a tagger of marked documents, which are measured, and of others; `drawn` are rows of `LESSONS`."""
    lessons = pa.concat_tables([marked, pa.Table.from_pylist(drawn, schema=LESSONS)]).combine_chunks()
    settings, none = TaggerConfig(k=3, corpus=False), FOUND.empty_table()
    options = {"key": bytes(16), "common": None, "detectors": (), "precision": 0.95, "num_bootstrap": 100}
    return cross_validate(lessons, none, settings, measured=len(marked), **options)[0]


@pytest.mark.parametrize(("word", "label", "precision"), [("Radiologia", "NAME", 0.75), ("", "CITY", 1.0)])
def test_finds_of_a_category_that_people_did_not_mark_count(word: str, label: str, precision: float) -> None:
    """People marked three names a note. A teacher that takes a word of each for a place, too, makes false finds; one
    that takes names for places makes right ones, as an identifier of any category is asked for."""
    drawn = notes(80, seed=7, first=1000).to_pylist()
    for row in drawn:
        row["spans"] = [span | {"label": label} for span in row["spans"]]
        if word:
            at = row["text"].index(word)
            row["spans"].append({"start": at, "end": at + len(word), "label": "CITY"})
    marked = notes(40).set_column(3, LESSONS.field(3), pa.array([0.01] * 40, pa.float32()))
    report = measured_on(marked, drawn)
    assert report["overall"]["recall"]["value"] == 1.0
    assert report["overall"]["precision"]["value"] == precision
    assert report["categories"]["LOCATION"]["precision"]["value"] == 0.0
    assert report["categories"]["LOCATION"]["recall"]["value"] is None


def test_fields_do_not_outweigh_false_finds_in_running_text() -> None:
    gold = np.array([True] * 100 + [True, False, False, False])
    running = np.array([False] * 100 + [True] * 4)
    careful, bold = gold.astype(np.int64), np.ones(104, dtype=np.int64)
    assert choose_lean({0.0: careful, 1.0: bold}, gold, running, 0.95) == 0.0
    assert choose_lean({0.0: careful, 1.0: bold}, gold, np.zeros(104, dtype=bool), 0.95) == 1.0


def test_without_the_asked_precision_a_tagger_leans_as_far_as_its_f1_bears() -> None:
    gold, none = np.array([True] * 100 + [False] * 100), np.zeros(200, dtype=bool)
    found = {lean: (np.arange(200) < right) | (np.arange(200) >= 200 - wrong) for lean, right, wrong in
             [(0.0, 60, 10), (0.5, 80, 20), (1.0, 82, 24), (2.0, 95, 70)]}  # fmt: skip
    lanes = {lean: hit.astype(np.int64) for lean, hit in found.items()}
    assert choose_lean(lanes, gold, none, 0.95) == 1.0
    assert choose_lean({0.0: lanes[0.0], 0.5: lanes[0.5]}, gold, none, 0.95) == 0.5
    assert choose_lean({0.0: lanes[0.0], 2.0: lanes[2.0]}, gold, none, 0.85) == 0.0
    assert choose_lean(dict.fromkeys((0.0, 3.0), np.zeros(200, dtype=np.int64)), gold, none, 0.95) == 0.0
