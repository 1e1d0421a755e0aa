"""``reticent update`` against ``reticent index`` of the same documents, and what it refuses."""

from __future__ import annotations

import hashlib
import json
import shutil
import stat
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.command import command
from fixtures.models import toy_tokenizer

from reticent.core.artifact import read_manifest
from reticent.engine.withdrawn import RECORD
from reticent.job.config import parse_job
from reticent.job.run import Run
from reticent.job.stages.index import INDEXES
from reticent.job.update import affected_artifacts

SECRET = "Zyxwvut"
#: Document, individual, text.
ROWS = [(f"d{i}", f"p{i % 40}", f"alpha beta gamma was seen on day {i % 7}") for i in range(60)] + [
    ("e1", "q1", "alpha delta epsilon"),
    ("e2", "q2", "delta epsilon zeta"),
    ("e3", "q3", f"zeta {SECRET} alpha"),
]
NEW = [("f1", "p0", f"alpha {SECRET} beta"), ("f2", "r1", "eta theta zeta"), ("f3", "r2", "eta theta")]


def write(path: Path, rows: list[tuple[str, str, str]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    names = ("doc_id", "individual_id", "text")
    pq.write_table(pa.table({name: [row[at] for row in rows] for at, name in enumerate(names)}), path)
    return path


def files_of(run: Path) -> dict[str, bytes]:
    """Every byte of the split and the indexes but for times and counts."""
    found = {f"{name}/{file.name}": file.read_bytes() for name in INDEXES for file in (run / name).glob("*.parquet")}
    assert len(found) == 6
    return found | {"split": (run / "split" / "individuals.parquet").read_bytes()}


@pytest.fixture(scope="module")
def monday(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("update")
    source = write(folder / "notes" / "a.parquet", ROWS)
    write(folder / "new" / "b.parquet", NEW)
    assert (
        command("index", source.parent, "--out", folder / "monday", "-n", 3, "--set", "index.updatable=true", "-q") == 0
    )
    return folder / "monday"


@pytest.fixture
def withdrawn(tmp_path: Path) -> Path:
    file = tmp_path / "withdrawn.txt"
    file.write_text("q2\n\np7\r\n", newline="")
    return file


@pytest.mark.parametrize("what", ["add", "remove", "both"])
def test_the_result_is_that_of_a_rebuild(monday: Path, withdrawn: Path, tmp_path: Path, what: str) -> None:
    before = files_of(monday)
    options = [] if what == "remove" else ["--add", monday.parent / "new"]
    options += [] if what == "add" else ["--remove", withdrawn]
    assert command("update", monday, *options, "--out", tmp_path / "tuesday", "-q") == 0
    gone = set() if what == "add" else {"q2", "p7"}
    rows = [row for row in ROWS + (NEW if what != "remove" else []) if row[1] not in gone]
    source = write(tmp_path / "rows" / "c.parquet", rows)
    assert command("index", source, "--out", tmp_path / "rebuilt", "-n", 3, "--set", "index.updatable=true", "-q") == 0
    assert files_of(tmp_path / "tuesday") == files_of(tmp_path / "rebuilt") != before
    assert files_of(monday) == before
    for name in INDEXES:
        ours, theirs = (read_manifest(tmp_path / run / name).counts for run in ("tuesday", "rebuilt"))
        assert {key: ours[key] for key in theirs} == theirs


def test_later_commands_go_on_from_an_update_and_protect_as_without_it(
    monday: Path, withdrawn: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tuesday = tmp_path / "tuesday"
    assert command("update", monday, "--remove", withdrawn, "--out", tuesday, "-q") == 0
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "tokenizer.json").write_text(toy_tokenizer("bert"))
    model = ("--model", f"toy={tmp_path / 'base'}", "--recipe", "ppmlm", "--set", "protect.n=3")
    capfd.readouterr()
    assert command("protect", tuesday, *model) == 0
    assert "index: up to date" in capfd.readouterr().err
    source = write(tmp_path / "rows" / "c.parquet", [row for row in ROWS if row[1] not in ("q2", "p7")])
    assert command("index", source, "--out", tmp_path / "rebuilt", "-n", 3, "-q") == 0  # not updatable
    assert command("protect", tmp_path / "rebuilt", *model, "-q") == 0
    flags = [
        {
            file.name: file.read_bytes()
            for file in (run / "tokens" / "toy" / "train").iterdir()
            if file.suffix != ".json"
        }
        for run in (tuesday, tmp_path / "rebuilt")
    ]
    assert flags[0]
    assert flags[0] == flags[1]


def test_it_says_how_many_ngrams_changed_side(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """All are members or held out; of these the joint index counts. Worked by hand."""
    rows = [("1", "p1", "a b"), ("2", "p2", "a b c"), ("3", "p3", "c"), ("4", "p4", "a d"), ("5", "p5", "e")]
    source = write(tmp_path / "a.parquet", rows)
    added = write(tmp_path / "b.parquet", [("6", "p1", "d e")])
    run, out = tmp_path / "run", tmp_path / "out"
    assert command("index", source, "--out", run, "-n", 2, "--set", "index.updatable=true", "-q", "-s", "seed=1") == 0
    (tmp_path / "gone.txt").write_text("p2")
    capfd.readouterr()
    assert command("update", run, "--add", added, "--remove", tmp_path / "gone.txt", "--out", out, "--json", "-q") == 0
    shown = capfd.readouterr()
    found = json.loads(shown.out)["index-joint"]
    assert shown.err == ""
    assert found["recounted"] == 2
    # b and c have p1 and p3 alone now; d and e have p1 besides p4 and p5. Of the pairs (a, b) has p1 alone now,
    # (b, c) was p2's, (d, e) is new.
    assert found["moved"] == [
        {"n": 1, "new": 0, "gone": 0, "to_identifying": 2, "to_shared": 2},
        {"n": 2, "new": 1, "gone": 1, "to_identifying": 1, "to_shared": 0},
    ]
    assert command("update", run, "--add", added, "--remove", tmp_path / "gone.txt", "--out", out) == 0
    shown = capfd.readouterr()
    assert "index-joint: up to date" in shown.err
    members = json.loads((out / "index" / "manifest.json").read_text())["counts"]["moved"][0]
    assert (
        f"  n = 1: {members['to_identifying']} n-grams became identifying, {members['to_shared']} ceased to be; "
        in (shown.out)
    )


@pytest.mark.parametrize("new", [True, False])
def test_an_update_of_an_update_whose_list_may_name_who_has_withdrawn_before(
    monday: Path, withdrawn: Path, tmp_path: Path, new: bool
) -> None:
    tuesday, wednesday = tmp_path / "tuesday", tmp_path / "wednesday"
    assert command("update", monday, "--remove", withdrawn, "--out", tuesday, "-q") == 0
    (tmp_path / "more.txt").write_text("q1\n" if new else withdrawn.read_text() + "q1\n")
    options = ["--remove", tmp_path / "more.txt", *(["--add", monday.parent / "new"] if new else [])]
    assert command("update", tuesday, *options, "--out", wednesday, "-q") == 0
    rows = [row for row in (ROWS + NEW if new else ROWS) if row[1] not in ("q1", "q2", "p7")]
    source = write(tmp_path / "c.parquet", rows)
    assert command("index", source, "--out", tmp_path / "rebuilt", "-n", 3, "--set", "index.updatable=true", "-q") == 0
    assert files_of(wednesday) == files_of(tmp_path / "rebuilt")


def test_a_withdrawal_is_not_undone_by_another_job_in_its_folder(
    monday: Path, withdrawn: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tuesday, notes, new = tmp_path / "tuesday", monday.parent / "notes", monday.parent / "new"
    assert command("update", monday, "--remove", withdrawn, "--out", tuesday, "-q") == 0
    before = files_of(tuesday)
    (tmp_path / "more.txt").write_text("q1\n")
    (tmp_path / "job.toml").write_text(f'out = "{tuesday}"\n[corpus]\nsource = "{notes}"\n')
    for arguments in (
        ("update", monday, "--add", new, "--out", tuesday),
        ("update", monday, "--remove", tmp_path / "more.txt", "--out", tuesday),
        ("index", notes, "--out", tuesday),
        ("run", tmp_path / "job.toml", "--until", "index"),
    ):
        assert command(*arguments) == 2
        said = capfd.readouterr().err
        assert "2 individual(s) whom an earlier reading left out as withdrawn would come back" in said
        assert files_of(tuesday) == before
    longer = tmp_path / "all.txt"
    longer.write_text(withdrawn.read_text() + "q1\n")
    assert command("update", monday, "--remove", longer, "--add", new, "--out", tuesday, "-q") == 0
    assert "q1" not in pq.read_table(tuesday / "split" / "individuals.parquet").column("individual_id").to_pylist()


@pytest.mark.parametrize("merged", [False, True])
def test_who_withdrew_before_a_detection_alone_stays_out_of_the_next_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], merged: bool
) -> None:
    notes, gone, run = tmp_path / "notes.parquet", tmp_path / "gone.txt", tmp_path / "run"
    detect = ["detect", write(notes, ROWS), "--out", run, "--set", f'corpus.withdrawn=["{gone}"]', "-q"]
    gone.write_text("q2\np7\n")
    assert command(*detect) == 0
    assert (run / RECORD).exists()
    if merged:
        write(notes, [("e9", "q1", text) if who == "q2" else (name, who, text) for name, who, text in ROWS])
    else:
        gone.write_text("p7\n")
    capfd.readouterr()
    assert command(*detect) == 2
    said = capfd.readouterr().err
    assert ("1 document(s) of individuals who withdrew now have the id" if merged else "would come back") in said


def test_a_list_that_has_grown_since_the_run_is_said(
    monday: Path, withdrawn: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tuesday = tmp_path / "tuesday"
    assert command("update", monday, "--remove", withdrawn, "--out", tuesday, "-q") == 0
    with withdrawn.open("a") as file:
        file.write("q1\n")
    said = refused(capfd, tmp_path, tuesday, "--remove", withdrawn)
    assert "a list of who withdrew (corpus.withdrawn)" in said
    assert "a file of its own" in said


def test_an_individual_withdraws_whose_documents_are_copies_of_others(tmp_path: Path) -> None:
    copies = [("c1", "copy", ROWS[0][2])]
    write(tmp_path / "notes" / "a.parquet", ROWS + copies)
    (tmp_path / "gone.txt").write_text("copy\n")
    options = (
        "-n",
        3,
        "--set",
        "dedup.mode=exact",
        "--set",
        "dedup.scope=corpus",
        "--set",
        "index.updatable=true",
        "-q",
    )
    run = tmp_path / "run"
    assert command("index", tmp_path / "notes", "--out", run, *options) == 0
    assert command("update", run, "--remove", tmp_path / "gone.txt", "--out", tmp_path / "out", "-q") == 0
    write(tmp_path / "rest" / "a.parquet", ROWS)
    assert command("index", tmp_path / "rest", "--out", tmp_path / "rebuilt", *options) == 0
    assert files_of(tmp_path / "out") == files_of(tmp_path / "rebuilt")


def test_the_result_is_private(monday: Path, withdrawn: Path, tmp_path: Path) -> None:
    assert command("update", monday, "--remove", withdrawn, "--out", tmp_path / "out", "-q") == 0
    paths = [tmp_path / "out", *(tmp_path / "out").rglob("*")]
    assert len(paths) > 8
    assert not [path for path in paths if stat.S_IMODE(path.stat().st_mode) & 0o077]


# -------------------------------------------------------------------- what is refused


def refused(capfd: pytest.CaptureFixture[str], tmp_path: Path, *arguments: object) -> str:
    capfd.readouterr()
    assert command("update", *arguments, "--out", tmp_path / "out") in (1, 2)
    shown = capfd.readouterr()
    assert shown.out == ""
    assert "Traceback" not in shown.err
    assert SECRET not in shown.err
    assert not (tmp_path / "out" / "index").exists()
    return shown.err


def test_an_index_that_was_not_built_for_it(monday: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert command("index", monday.parent / "notes", "--out", tmp_path / "run", "-n", 3, "-q") == 0
    said = refused(capfd, tmp_path, tmp_path / "run", "--add", monday.parent / "new")
    assert "reticent index --set index.updatable=true" in said


def test_a_run_that_holds_documents_back(monday: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    options = ("--set", "index.updatable=true", "--set", "split.user_inference_holdout=0.5", "-q")
    assert command("index", monday.parent / "notes", "--out", tmp_path / "run", *options) == 0
    assert "split.user_inference_holdout" in refused(capfd, tmp_path, tmp_path / "run", "--add", monday.parent / "new")


def test_an_id_of_nobody_in_a_list_is_counted_and_never_quoted(
    monday: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for ids, said, status in (
        (f"q1\n{SECRET}\nr1\n", "3 ids of who withdrew, of which 1 are individuals here; none of their", 0),
        (f"{SECRET}\n", "1 ids of who withdrew, of which 0 are individuals here; its ids may be of another system", 0),
        (
            f"{SECRET}\n",
            "of which 0 are individuals here; its ids may be of another system, or of an older export (",
            1,
        ),
    ):
        (tmp_path / "gone.txt").write_text(ids)
        out, more = tmp_path / f"out-{len(ids)}-{status}", ["--set", "corpus.on_unmatched=stop"] if status else []
        assert command("update", monday, "--remove", tmp_path / "gone.txt", "--out", out, *more) == status
        shown = capfd.readouterr()
        assert said in shown.err
        assert SECRET not in shown.err + shown.out
    counts = read_manifest(tmp_path / f"out-{len(SECRET) + 7}-0" / "split").counts
    assert counts["withdrawn"] == [{"ids": 3, "individuals": 1}]
    lists = ("--set", f'corpus.withdrawn=["{tmp_path}/gone.txt"]', "--set", "corpus.on_unmatched=stop")
    assert command("detect", monday.parent / "notes", "--detector", "rules", *lists) == 1
    assert said in capfd.readouterr().err


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot be read"), (b"\n \n", "no id"), (b"\xff\xfe", "not UTF-8")],
)
def test_a_list_of_ids_that_cannot_be_used(
    monday: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "gone.txt").write_bytes(content)
    assert message in refused(capfd, tmp_path, monday, "--remove", tmp_path / "gone.txt")


def test_a_document_that_is_there_already(monday: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    again = write(tmp_path / "again.parquet", [NEW[0], ROWS[4]])
    said = refused(capfd, tmp_path, monday, "--add", again)
    assert "column doc_id: the same document id stands at" in said
    assert "again.parquet row 2" in said
    assert "a.parquet row 5" in said
    assert "1 of its 1 files are documents of the run already" in refused(
        capfd, tmp_path, monday, "--add", monday.parent / "notes"
    )


def test_new_documents_without_a_column(monday: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pq.write_table(pa.table({"doc_id": ["x"], "individual_id": ["y"], "note": [SECRET]}), tmp_path / "x.parquet")
    said = refused(capfd, tmp_path, monday, "--add", tmp_path / "x.parquet")
    assert "x.parquet" in said
    assert "text" in said
    assert "note" in said


def test_documents_that_changed_since_they_were_indexed(
    monday: Path, withdrawn: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = write(tmp_path / "notes" / "a.parquet", ROWS)
    assert command("index", source.parent, "--out", tmp_path / "run", "--set", "index.updatable=true", "-q") == 0
    write(source, [(*ROWS[0][:2], "alpha"), *ROWS[1:]])
    assert "documents have changed" in refused(capfd, tmp_path, tmp_path / "run", "--remove", withdrawn)
    write(source, ROWS)
    write(tmp_path / "notes" / "b.parquet", NEW)
    said = refused(capfd, tmp_path, tmp_path / "run", "--remove", withdrawn)
    assert "keep new documents apart until they are added" in said


def test_nothing_to_do_and_the_run_itself_are_refused(
    monday: Path, withdrawn: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert "nothing to do" in refused(capfd, tmp_path, monday)
    before = files_of(monday)
    for out in (monday, monday / "tuesday"):
        assert command("update", monday, "--remove", withdrawn, "--out", out) == 2
        assert "a folder of its own" in capfd.readouterr().err
    assert not (monday / "tuesday").exists()
    assert files_of(monday) == before


def test_a_run_over_other_documents_is_not_replaced(
    monday: Path, withdrawn: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    other = write(tmp_path / "other" / "a.parquet", ROWS).parent
    assert command("index", other, "--out", tmp_path / "run", "-n", 3, "--set", "index.updatable=true", "-q") == 0
    (tmp_path / "run" / "tokens").mkdir()
    before = files_of(tmp_path / "run")
    assert command("update", monday, "--remove", withdrawn, "--out", tmp_path / "run", "-q") == 2
    assert "is a run over other documents and holds their tokens" in capfd.readouterr().err
    assert files_of(tmp_path / "run") == before


def test_models_and_dossiers_that_an_update_touches_are_named(
    monday: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = Path(shutil.copytree(monday, tmp_path / "before"))
    for name in ("models/gpt2/clm", "models/gpt2/ppclm/seed-1"):
        (before / name).mkdir(parents=True)
        (before / name / "manifest.json").write_text("{}")
    for name, sums in (("dossier", b"now"), ("replaced-dossiers/0123456789abcdef", b"then")):
        (before / name).mkdir(parents=True)
        (before / name / "SHA256SUMS").write_bytes(sums)
    digest = hashlib.sha256(b"now").hexdigest()
    sides = pq.read_table(before / "split" / "individuals.parquet").to_pydict()
    one_of = {str(side): str(who) for who, side in zip(sides["individual_id"], sides["split"], strict=True)}
    for side in ("members", "heldout"):
        (tmp_path / side).write_text(one_of[side])
        out = tmp_path / f"after-{side}"
        assert command("update", before, "--remove", tmp_path / side, "--out", out, "--json", "-q") == 0
        assert json.loads(capfd.readouterr().out)["touched"] == {
            "trained_on_withdrawn": ["models/gpt2/clm", "models/gpt2/ppclm/seed-1"] if side == "members" else [],
            "models": ["models/gpt2/clm", "models/gpt2/ppclm/seed-1"],
            "dossier": digest,
            "replaced": ["0123456789abcdef"],
        }
        assert json.loads((out / "job.json").read_text())["dossier"]["replaces"] == digest
    assert command("update", before, "--remove", tmp_path / "members", "--out", tmp_path / "said", "-q") == 0
    said = capfd.readouterr().out
    assert "who withdrew or are gone: models/gpt2/clm, models/gpt2/ppclm/seed-1. Train them again" in said
    assert f"Dossiers of the documents as they were before: {digest[:16]}, 0123456789abcdef." in said
    assert one_of["members"] not in said


@pytest.mark.parametrize(
    ("side", "trained"),
    [
        ("members", ["models/base/clm", "models/own/clm", "tagging/own/base", "shadows/base/clm/00"]),
        ("heldout", ["shadows/base/clm/00", "learned"]),
        ("reference", ["models/own/clm", "tagging/own/base", "foundation/own"]),
    ],
)
def test_weights_that_somebody_who_is_gone_has_taught_are_named(tmp_path: Path, side: str, trained: list[str]) -> None:
    """Whoever says that they are gone: here the documents themselves, as after a refresh."""
    notes, before = write(tmp_path / "notes.parquet", ROWS), tmp_path / "before"
    assert command("index", notes, "--out", before, "--set", "split.reference=0.2", "-q") == 0
    sides = pq.read_table(before / "split" / "individuals.parquet").to_pydict()
    gone = next(who for who, at in zip(sides["individual_id"], sides["split"], strict=True) if at == side)
    rest = write(tmp_path / "rest.parquet", [row for row in ROWS if row[1] != gone])
    places = ["models/base/clm", "models/own/clm", "tagging/own/base", "shadows/base/clm/00", "foundation/own"]
    for place in (*places, "learned", "shadows/base/clm/01", "foundation/base"):
        (before / place).mkdir(parents=True)
        (before / place / "manifest.json").write_text("{}")
    for place in ("tagging/own/base", "shadows/base/clm/00"):  # of other shadows, scores alone
        (before / place / "model.safetensors").touch()
    heldout = [who for who, at in zip(sides["individual_id"], sides["split"], strict=True) if at == "heldout"]
    pq.write_table(pa.table({"individual_id": heldout}), before / "learned" / "taught.parquet")
    values = json.loads((before / "job.json").read_text())
    values["detect"] = {"detectors": ["rules", "learned"], "learned": {"teacher": "rules"}}
    own, public = ({"kind": "gpt2", "text": text} for text in ("reference", str(notes)))
    values["model"] = [
        {"name": name, "foundation": base, "objective": "clm", "recipes": ["clm"]}
        for name, base in (("own", own), ("base", public))
    ]
    after = Run(parse_job({"out": str(tmp_path / "after"), "corpus": {"source": str(rest)}}))
    found = affected_artifacts(Run(parse_job(values)), after)
    assert sorted(found.models) == sorted([*places, "learned"])
    assert sorted(found.trained_on_withdrawn) == sorted(trained)
    assert f"{', '.join(found.trained_on_withdrawn)}. Train them again" in found.lines()[0]
    assert not set(found.trained_on_withdrawn) & set(found.lines()[1].rstrip(".").partition(": ")[2].split(", "))
