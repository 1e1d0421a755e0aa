"""The stage and the command scrub: documents in; the same documents without direct identifiers out."""

from __future__ import annotations

import json
import re
import stat
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.command import command
from fixtures.documents import write_documents

from reticent.core.artifact import read_manifest
from reticent.core.errors import ArtifactError, PolicyError
from reticent.engine.corpus import Columns, open_corpus
from reticent.engine.detect import detect_spans, make_detectors
from reticent.engine.detect.rules import RulesDetector
from reticent.engine.detect.spans import SpanReader
from reticent.engine.names import SurrogateNames
from reticent.engine.pseudonymize import STYLES, DateOptions, span_arrays
from reticent.engine.schema import DOCUMENTS, SPAN_TYPE
from reticent.engine.synthetic import SynthConfig, synthesize
from reticent.ext.scrub.scrub import ScrubConfig, key_of_seed, new_key, read_key, read_offsets, scrub_corpus

SECRET = "Zyxwvut"
COLUMNS = Columns(household_id="household_id", label="label", spans="spans")
KEY = key_of_seed(7)
OPTIONS = (
    "--set",
    "corpus.spans=spans",
    "--set",
    "corpus.household_id=household_id",
    "--set",
    "corpus.label=label",
    "--seed",
    7,
    "-q",
)


@pytest.fixture(scope="module")
def synth(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("synth")
    synthesize(folder, SynthConfig(num_individuals=150, words_per_document=80, seed=3))
    return folder / "documents"


def scrub_source(source: Path, folder: Path, config: ScrubConfig, columns: Columns = COLUMNS) -> dict[str, Any]:
    """Scrub with the gold spans."""
    folder.mkdir()
    corpus = open_corpus(source, columns=columns)
    (folder / "spans").mkdir()
    detect_spans(corpus, make_detectors(["gold"]), folder / "spans")
    return scrub_corpus(corpus, SpanReader(folder / "spans"), folder, config, KEY)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return pq.read_table(folder).to_pylist()  # type: ignore[no-any-return]


def surfaces_left(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> tuple[int, list[tuple[str, bool]]]:
    """How many surfaces of four letters and more were marked; and each that still stands, as a word, in a document of
    the same individual: its label and whether it was put there.
    """
    surfaces, texts = defaultdict(set), defaultdict(list)
    for before, after in zip(old, new, strict=True):
        for span in before["spans"]:
            surface = before["text"][span["start"] : span["end"]].strip()
            if sum(map(str.isalpha, surface)) >= 4:
                surfaces[before["individual_id"]].add((surface, span["label"]))
        texts[before["individual_id"]].append(after)
    left = []
    for individual, marked in surfaces.items():
        for surface, label in marked:
            for row in texts[individual]:
                for match in re.finditer(rf"(?<!\w){re.escape(surface)}(?!\w)", row["text"]):
                    put = any(s["start"] < match.end() and match.start() < s["end"] for s in row["spans"])
                    left.append((label, put))
    return sum(map(len, surfaces.values())), left


@pytest.mark.parametrize(("style", "source"), [*((style, "syllables") for style in STYLES), ("surrogate", "realistic")])
def test_no_marked_surface_of_an_individual_is_left(synth: Path, tmp_path: Path, style: Any, source: str) -> None:
    dates = DateOptions(shift_days=60) if style in ("surrogate", "rotate") else DateOptions()
    names = SurrogateNames(source=source)
    counts = scrub_source(synth, tmp_path / "out", ScrubConfig(style=style, dates=dates, names=names))
    old, new = rows_of(synth), rows_of(tmp_path / "out" / "documents")
    num_surfaces, left = surfaces_left(old, new)
    assert num_surfaces > 500
    assert left == []
    assert counts["documents"] == len(old) == len(new)
    assert counts["replaced"] == counts["spans"] == sum(len(row["spans"]) for row in old)
    assert counts["tagged"] == counts["cut_words"] == 0
    # A realistic name may be one of the corpus; it is counted and stays.
    assert (counts["collided"] > 0) == (source == "realistic")
    assert sum(category["replaced"] for category in counts["categories"].values()) == counts["replaced"]


def test_columns_and_order_stay_and_spans_are_those_of_the_new_text(synth: Path, tmp_path: Path) -> None:
    scrub_source(synth, tmp_path / "out", ScrubConfig(style="tag"))
    table = pq.read_table(tmp_path / "out" / "documents")
    assert table.schema.names == [name for name in DOCUMENTS.names if name != "mentions"]
    assert table.schema.metadata == DOCUMENTS.metadata
    old = pq.read_table(synth)
    for name in ("doc_id", "individual_id", "household_id", "label"):
        assert table.column(name).to_pylist() == old.column(name).to_pylist()
    for row, before in zip(table.to_pylist(), old.to_pylist(), strict=True):
        assert [span["label"] for span in row["spans"]] == [span["label"] for span in before["spans"]]
        assert all(re.fullmatch(r"\[[A-Z]+\]", row["text"][s["start"] : s["end"]]) for s in row["spans"])


def test_offsets_of_the_artefact_map_gold_spans_to_the_new_ones(synth: Path, tmp_path: Path) -> None:
    scrub_source(synth, tmp_path / "out", ScrubConfig())
    doc_ids, edits = read_offsets(tmp_path / "out")
    old, new = pq.read_table(synth), pq.read_table(tmp_path / "out" / "documents")
    assert doc_ids.to_pylist() == old.column("doc_id").to_pylist()
    bounds, starts, ends, _ = span_arrays(old.column("spans").combine_chunks())
    document = np.repeat(np.arange(old.num_rows), np.diff(bounds))
    _, new_starts, new_ends, _ = span_arrays(new.column("spans").combine_chunks())
    mapped = edits.to_new(document, starts, ends)
    assert np.array_equal(mapped, (new_starts, new_ends))
    assert np.array_equal(edits.to_old(document, new_starts, new_ends), (starts, ends))


def test_spans_found_again_lie_where_surrogates_were_put(synth: Path, tmp_path: Path) -> None:
    """Rules on the scrubbed text: what they find, mapped back, meets what was marked there."""
    scrub_source(synth, tmp_path / "out", ScrubConfig())
    corpus = open_corpus(tmp_path / "out" / "documents", columns=COLUMNS)
    (tmp_path / "again").mkdir()
    detect_spans(corpus, make_detectors(["rules"]), tmp_path / "again")
    found = pq.read_table(tmp_path / "again" / "spans.parquet")
    document, start, end = (found.column(name).to_numpy() for name in ("document", "start", "end"))
    _, edits = read_offsets(tmp_path / "out")
    old_start, old_end = edits.to_old(document, start, end)
    gold = [row["spans"] for row in rows_of(synth)]
    meets = [
        any(span["start"] < b and a < span["end"] for span in gold[row])
        for row, a, b in zip(document, old_start, old_end, strict=True)
    ]
    assert len(meets) > 500
    assert np.mean(meets) > 0.95


def test_scrubbed_documents_can_be_scrubbed_and_indexed(synth: Path, tmp_path: Path) -> None:
    assert command("scrub", synth, "--out", tmp_path / "once", *OPTIONS) == 0
    assert command("scrub", tmp_path / "once" / "documents", "--out", tmp_path / "twice", *OPTIONS) == 0
    assert (
        command(
            "index", tmp_path / "twice" / "documents", "--out", tmp_path / "run", "--set", "corpus.spans=spans", "-q"
        )
        == 0
    )


def test_artefact_is_private_and_holds_no_old_span_and_no_key(synth: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert command("scrub", synth, "--out", out, *OPTIONS) == 0
    files = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    assert files == ["documents/part-00000.parquet", "manifest.json", "offsets.parquet"]
    for path in (out, *out.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)
    manifest = read_manifest(out)
    assert manifest.kind == "scrub"
    assert manifest.config["style"] == "surrogate"
    assert manifest.counts["categories"]["NAME"]["replaced"] > 100
    assert "seed" not in json.dumps(manifest.config)
    assert [path.name for path in tmp_path.iterdir() if not path.name.endswith(".lock")] == ["out"]


def test_manifest_holds_no_option_of_a_detector(synth: Path, tmp_path: Path) -> None:
    (tmp_path / f"{SECRET}.txt").write_text(f"{SECRET}\n")
    lists = f"detect.gazetteer.lists={{ NAME = '{tmp_path / SECRET}.txt' }}"
    options = ("--detector", "gazetteer", "--set", lists, "-q")
    assert command("scrub", synth, "--out", tmp_path / "out", *options) == 0
    assert read_manifest(tmp_path / "out").config["detect"]["detectors"] == ["gazetteer"]
    assert SECRET not in (tmp_path / "out" / "manifest.json").read_text()


def test_a_kept_key_gives_the_same_surrogates_again(synth: Path, tmp_path: Path) -> None:
    options = ("--set", "corpus.spans=spans", "-q")
    for out, more in (
        ("a", ("--keep-key",)),
        ("b", ("--key", tmp_path / "a" / "scrub.key")),
        ("c", ()),
        ("d", ()),
    ):
        assert command("scrub", synth, "--out", tmp_path / out, *options, *more) == 0
    texts = {out: [row["text"] for row in rows_of(tmp_path / out / "documents")] for out in "abcd"}
    assert texts["a"] == texts["b"]
    assert len({texts[out][0] for out in "acd"}) == 3  # without it, others each time
    assert not (tmp_path / "c" / "scrub.key").exists()
    assert len(read_key(tmp_path / "a" / "scrub.key")) == len(new_key()) == 32


def test_nothing_is_overwritten_unasked_and_no_kept_key_is_lost_unasked(
    synth: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out, other = tmp_path / "out", tmp_path / "other.key"
    file = out / "scrub.key"
    other.write_text(new_key().hex())

    def scrub(*more: object) -> object:
        return command("scrub", synth, "--out", out, "--set", "corpus.spans=spans", "-q", *more)

    assert scrub("--keep-key") == 0
    key, texts = file.read_bytes(), rows_of(out / "documents")
    before = {path: path.stat().st_ino for path in out.rglob("*")}
    for more, said in (
        ((), "holds a result already; choose another --out, or replace it with --overwrite"),
        (("--keep-key",), "holds a result already"),
        (("--new-key",), "--new-key: belongs to --overwrite"),
        (("--overwrite", "--key", other), "another key than the one to scrub with would be lost"),
        (("--overwrite", "--seed", 3), "another key than the one to scrub with would be lost"),
    ):
        capfd.readouterr()
        assert scrub(*more) == 2
        assert said in capfd.readouterr().err
        assert {path: path.stat().st_ino for path in out.rglob("*")} == before
    # The old key is the one that is taken, however it is named, and stays.
    for more in ((), ("--keep-key",), ("--key", file), ("--key", file, "--keep-key")):
        assert scrub("--overwrite", *more) == 0
        assert (file.read_bytes(), rows_of(out / "documents")) == (key, texts)
    assert scrub("--overwrite", "--new-key", "--keep-key") == 0
    assert file.read_bytes() != key
    assert rows_of(out / "documents") != texts
    assert scrub("--overwrite", "--new-key") == 0
    assert not file.exists()
    assert scrub("--overwrite") == 0


def test_seed_and_threads_give_the_same_bytes(synth: Path, tmp_path: Path) -> None:
    for out, threads in (("a", 1), ("b", 2)):
        assert command("scrub", synth, "--out", tmp_path / out, *OPTIONS, "--set", f"num_threads={threads}") == 0
    for name in ("documents/part-00000.parquet", "offsets.parquet"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_new_ids_are_consistent_and_belong_to_no_individual(synth: Path, tmp_path: Path) -> None:
    scrub_source(synth, tmp_path / "out", ScrubConfig(style="x", new_ids=True))
    old, new = pq.read_table(synth), pq.read_table(tmp_path / "out" / "documents")
    for name in ("doc_id", "individual_id", "household_id"):
        pairs = set(zip(old.column(name).to_pylist(), new.column(name).to_pylist(), strict=True))
        assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})
        assert all(re.fullmatch("[0-9a-f]{16}", b) for _, b in pairs)
    assert read_offsets(tmp_path / "out")[0].to_pylist() == new.column("doc_id").to_pylist()


def test_run_folder_gives_its_spans_and_columns(synth: Path, tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "out"
    assert (
        command(
            "index",
            synth,
            "--out",
            run,
            "--set",
            "corpus.spans=spans",
            "--set",
            "corpus.household_id=household_id",
            "-q",
        )
        == 0
    )
    assert command("scrub", run, "--out", out, "--style", "tag", "-q") == 0
    assert read_manifest(out).counts["spans"] == read_manifest(run / "spans").counts["spans"]
    assert "household_id" in pq.read_schema(out / "documents" / "part-00000.parquet").names
    assert command("scrub", run, "--out", out, "--detector", "rules") == 2


def test_planted_or_held_back_documents_of_a_job_change_nothing_that_is_scrubbed(synth: Path, tmp_path: Path) -> None:
    job, more = tmp_path / "job.toml", '[detect]\ndetectors = ["gold"]\n'
    corpus = f'[corpus]\nsource = "{synth}"\nspans = "spans"\nhousehold_id = "household_id"\nlabel = "label"\n'
    for name, own in (
        ("plain", ""),
        ("planted", "[canaries]\nnum = 4\n"),
        ("held-back", "[split]\nuser_inference_holdout = 0.5\n"),
    ):
        run = tmp_path / name
        job.write_text(f'out = "{run}"\n' + corpus + more + own)
        for number in range(2):  # where the run folder has nothing, and where it has what the job trains on
            out = tmp_path / f"{name}-{number}"
            assert command("scrub", job, "--out", out, "--style", "tag", "-q") == 0
            assert rows_of(out / "documents") == rows_of(tmp_path / "plain-0" / "documents")
            if number == 0:
                assert command("run", job, "--until", "detect", "-q") == 0
        assert (run / "canaries").exists() == (name == "planted")


@pytest.mark.parametrize("propagate", [False, True])
def test_documents_that_a_run_has_searched_are_not_searched_again(
    synth: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, propagate: bool
) -> None:
    searched: list[int] = []
    detect = RulesDetector.detect

    def counted(self: RulesDetector, batch: pa.RecordBatch) -> pa.Table:
        searched.append(batch.num_rows)
        return detect(self, batch)

    monkeypatch.setattr(RulesDetector, "detect", counted)
    num, job = pq.read_table(synth).num_rows, tmp_path / "job.toml"
    texts = {}
    for name, own, share in (
        ("plain", "", 0.0),
        ("planted", "[canaries]\nnum = 4\n", 0.0),
        ("held-back", "[split]\nuser_inference_holdout = 0.5\n", 0.5),
    ):
        job.write_text(
            f'out = "{tmp_path / name}"\n[corpus]\nsource = "{synth}"\n[detect]\ndetectors = ["rules"]\n'
            f"propagate = {str(propagate).lower()}\n{own}"
        )
        assert command("run", job, "--until", "detect", "-q") == 0
        searched.clear()
        assert command("scrub", job, "--out", tmp_path / f"{name}-out", "--style", "tag", "-q") == 0
        assert sum(searched) <= share * num
        assert (sum(searched) > 0) == (share > 0)
        texts[name] = [row["text"] for row in rows_of(tmp_path / f"{name}-out" / "documents")]
        assert not (tmp_path / f"{name}-out" / "work").exists()
    assert texts["held-back"] == texts["plain"]
    assert texts["planted"] == texts["plain"]


def write(path: Path, texts: list[str], spans: list[list[dict[str, Any]]]) -> Path:
    return write_documents(path, texts, spans=pa.array(spans, pa.list_(SPAN_TYPE)))


def test_errors_hold_no_text_and_leave_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = write(tmp_path / "in.parquet", [f"seen by {SECRET}"] * 2, [[], [{"start": 8, "end": 99, "label": "NAME"}]])
    assert command("scrub", source, "--out", tmp_path / "out", "--set", "corpus.spans=spans") == 1
    said = "".join(capfd.readouterr())
    assert "row 2" in said
    assert SECRET not in said
    assert not (tmp_path / "out").exists()
    assert {path.name for path in tmp_path.iterdir()} <= {"in.parquet", ".out.lock"}


def test_replacements_not_done_as_asked_are_reported(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    texts = ["on 3/4/2019 Smithson", "a while ago"]
    spans = [
        [{"start": 3, "end": 11, "label": "DATE"}, {"start": 12, "end": 17, "label": "NAME"}],
        [{"start": 0, "end": 7, "label": "DATE"}],
    ]
    source = write(tmp_path / "in.parquet", texts, spans)
    options = ("--detector", "gold", "--set", "corpus.spans=spans", "--shift-dates", 9, "--json")
    assert command("scrub", source, "--out", tmp_path / "out", *options) == 0
    said = capfd.readouterr()
    counts = json.loads(said.out)
    assert (counts["tagged"], counts["ambiguous_dates"], counts["cut_words"]) == (1, 1, 1)
    assert counts["categories"] == {"DATE": {"replaced": 2, "tagged": 1}, "NAME": {"replaced": 1, "tagged": 0}}
    assert "1 spans begin or end inside a word" in said.err
    assert "1 dates such as 3/4" in said.err
    assert rows_of(tmp_path / "out" / "documents")[1]["text"] == "[DATE] ago"


def test_marks_of_annotators_stand_where_their_text_is_in_the_new_one(tmp_path: Path) -> None:
    texts = ["Seen: Christopher Alexander, of Bo Town, on 3 May", "nobody", "Bo Li"]
    marks = [[(6, 27), (32, 39)], None, [(0, 5)]]
    about = {"label": "NAME", "entity_id": "e1", "identifier_type": "DIRECT", "annotator": None}
    rows = [
        {
            "doc_id": f"d{number}",
            "individual_id": f"p{number}",
            "text": text,
            "spans": [{"start": start, "end": end, "label": "NAME"} for start, end in (of or [])[:1]],
            "mentions": None if of is None else [{"start": start, "end": end, **about} for start, end in of],
        }
        for number, (text, of) in enumerate(zip(texts, marks, strict=True))
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=DOCUMENTS), tmp_path / "in.parquet")
    columns = Columns(spans="spans", mentions="mentions")
    scrub_source(tmp_path / "in.parquet", tmp_path / "out", ScrubConfig(style="tag"), columns)
    new = rows_of(tmp_path / "out" / "documents")
    assert [row["text"] for row in new] == ["Seen: [NAME], of Bo Town, on 3 May", "nobody", "[NAME]"]
    assert [row["mentions"] for row in new] == [
        [{"start": 6, "end": 12, **about}, {"start": 17, "end": 24, **about}],
        None,
        [{"start": 0, "end": 6, **about}],
    ]


def test_documents_in_quarantine_are_counted_and_not_in_the_result(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = RulesDetector.detect

    def detect(self: RulesDetector, batch: pa.RecordBatch) -> pa.Table:
        if SECRET in "".join(batch.column("text").to_pylist()):
            raise ValueError(SECRET)
        return found(self, batch)

    monkeypatch.setattr(RulesDetector, "detect", detect)
    source = write(tmp_path / "in.parquet", ["on 3/4/2019", f"by {SECRET}", "nothing"], [[], [], []])
    options = ("--set", "detect.on_error='quarantine'", "--json")
    assert command("scrub", source, "--out", tmp_path / "out", *options) == 0
    said = capfd.readouterr()
    assert json.loads(said.out)["quarantined"] == read_manifest(tmp_path / "out").counts["quarantined"] == 1
    assert "1 documents are not in the result" in said.err
    assert SECRET not in said.out + said.err
    assert len(rows_of(tmp_path / "out" / "documents")) == 2


def test_settings_are_checked(synth: Path, tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="style"):
        ScrubConfig(style="blur")  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match="draw"):
        ScrubConfig(draw=-1)
    with pytest.raises(PolicyError, match="shift_days"):
        ScrubConfig(style="tag", dates=DateOptions(shift_days=3))
    (tmp_path / "key").write_text("not a key")
    for path in (tmp_path / "key", tmp_path / "absent"):
        with pytest.raises(ArtifactError):
            read_key(path)
    assert command("scrub", synth, "--out", tmp_path / "out", "--style", "blur") == 2
    assert command("scrub", synth, "--out", tmp_path / "out", "--key", tmp_path / "key", "--seed", 1) == 2
    assert command("scrub", synth, "--out", synth.parent) == 2
    assert len(rows_of(synth)) > 100


@pytest.mark.heavy
@pytest.mark.corpus
@pytest.mark.parametrize("names", ["syllables", "realistic"])
def test_meddocan_keeps_no_marked_surface_but_what_was_put_or_never_marked(
    data: Path, tmp_path: Path, names: str
) -> None:
    """Human spans of real case reports: the rest are mentions without a mark, and dates and ages that another
    date or age became. A realistic name or town may be one that stands elsewhere in the same report.
    """
    rows = []
    for name in ("train", "dev", "test"):
        path = data / "meddocan" / f"{name}.jsonl"
        rows += [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    if not rows:
        pytest.skip("no meddocan under RETICENT_DATA")
    spans = [[{"start": s["start"], "end": s["end"], "label": s["type"]} for s in row["spans"]] for row in rows]
    source = write(tmp_path / "in.parquet", [row["text"] for row in rows], spans)
    config = ScrubConfig(dates=DateOptions(shift_days=30), names=SurrogateNames(source=names))
    counts = scrub_source(source, tmp_path / "out", config, Columns(spans="spans"))
    num_surfaces, left = surfaces_left(rows_of(source), rows_of(tmp_path / "out" / "documents"))
    unmarked = [label for label, put in left if not put]
    put = {label for label, put in left if put}
    print(f"{len(rows)} documents, {num_surfaces} surfaces, {len(left)} left, of which {len(unmarked)} never marked")
    assert num_surfaces > 5000
    assert len(unmarked) < 0.01 * num_surfaces
    put_again = {"FECHAS", "EDAD_SUJETO_ASISTENCIA", "FAMILIARES_SUJETO_ASISTENCIA"}  # the last: a relative's age
    if names == "syllables":
        assert put <= put_again
    coincidences = [label for label, by_us in left if by_us and label not in put_again]
    assert len(coincidences) < 0.005 * num_surfaces
    assert counts["categories"]["NAME"]["tagged"] == counts["categories"]["ID"]["tagged"] == 0
    assert counts["categories"]["DATE"]["tagged"] < 0.05 * counts["categories"]["DATE"]["replaced"]
