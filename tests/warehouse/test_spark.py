"""The engine on Spark gives what one machine gives: supports, spans, flags and tokens."""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures import tokenizers
from fixtures.notes import listed
from fixtures.spark import (
    SECRET,
    SURNAMES,
    CountedDetection,
    SparkHome,
    content,
    fail_in_words,
    fail_with_text,
    flags_of,
    flags_of_one,
    index_tables,
    missing,
    notes,
    one_machine,
)
from fixtures.tiny_taggers import save_model

import reticent
from reticent import spark as on_spark
from reticent.core.errors import CorpusError, PolicyError
from reticent.core.progress import Progress
from reticent.engine.config import IndexConfig, SplitConfig
from reticent.engine.detect import detect_spans, make_detectors
from reticent.engine.detect.spans import SpanReader
from reticent.engine.flagged_words import FlaggedWords
from reticent.engine.protect import Policy
from reticent.engine.schema import SPLITS
from reticent.engine.sources.config import Columns
from reticent.engine.withdrawn import RECORD
from reticent.ext.spark.job import OnSpark, run_on_spark
from reticent.ext.spark.tables import decoded
from reticent.ext.spark.tasks import Task
from reticent.job.config import parse_job

pytestmark = [pytest.mark.heavy, pytest.mark.skipif(missing() is not None, reason=missing() or "")]


@pytest.fixture(scope="module")
def session(home: SparkHome) -> Iterator[Any]:
    with home.session("local[2]") as spark:
        yield spark


def test_files_give_the_index_spans_flags_and_tokens_of_one_machine(session: Any, files: Path, tmp_path: Path) -> None:
    corpus, individuals, expected = one_machine(files, IndexConfig(max_n=3))
    documents = on_spark.open_documents(str(files), num_parts=3, spark=session)
    assert documents.individuals().table.equals(individuals.table)
    index = on_spark.build_index(documents, config=IndexConfig(max_n=3))
    assert index_tables(index, tmp_path / "spark") == index_tables(expected, tmp_path / "one")
    assert [index.num_words, index.num_ngrams(3)] == [expected.num_words, expected.num_ngrams(3)]
    read = reticent.open_index(tmp_path / "spark")
    (tmp_path / "spans").mkdir()
    detect_spans(corpus, make_detectors(["rules"]), tmp_path / "spans")
    spans = on_spark.detect(documents, ["rules"])
    found = pa.concat_tables(spans.tables())
    assert found.num_rows > 50
    assert found.equals(pq.read_table(tmp_path / "spans" / "spans.parquet"))
    reader = SpanReader(tmp_path / "spans")
    settings = [
        (Policy(k=2, n=3, scopes={"DATE": "corpus"}), None),
        (Policy(k=3, n=1), None),
        (Policy(k=5, n=2, policy="cover", max_document_frequency=0.5), ("members", "heldout")),
    ]
    for policy, splits in settings:
        flagged = FlaggedWords(corpus, individuals, index=expected, spans=reader, policy=policy, splits=splits)
        flags = on_spark.protect(documents, index, spans=spans, policy=policy, splits=splits)
        rows = flags_of(flags)
        assert rows == flags_of_one(flagged)
        flagged = FlaggedWords(corpus, individuals, index=read, spans=reader, policy=policy, splits=splits)
        assert rows == flags_of_one(flagged), "the index that was written says something else"
        assert flags.counts["blacklisted"] == flagged.num_blacklisted > 0
    by_id = {row.doc_id: bytes(row.flags) for row in flags.frame().select("doc_id", "flags").collect()}
    assert by_id == {doc_id: own for doc_id, own, _ in rows}
    tokenizer = tokenizers.wordpiece()
    for folder in ("tokens-one", "tokens-spark"):
        (tmp_path / folder).mkdir()
    policy = Policy(k=2, n=3)
    counts = reticent.write_tokens(
        tmp_path / "tokens-one", corpus, individuals, tokenizer, index=expected, spans=reader, policy=policy
    )
    made = on_spark.write_tokens(
        tmp_path / "tokens-spark", documents, tokenizer, index=index, spans=spans, policy=policy
    )
    assert made == {name: counts[name] for name in made}
    assert made["retention"] == 1 - made["protected_tokens"] / made["tokens"]
    assert content(tmp_path / "tokens-spark") == content(tmp_path / "tokens-one")
    assert reticent.open_tokens(tmp_path / "tokens-spark").num_tokens == counts["tokens"]
    with pytest.raises(PolicyError, match=r"n = 1: .* and Spark groups at most 9; use one machine"):
        on_spark.build_index(documents, max_rows=9)


def test_a_frame_gives_the_index_of_its_documents_by_id_with_households_and_n_of_8(
    session: Any, tmp_path: Path
) -> None:
    table = notes(seed=1, num_individuals=30)
    columns, config = reticent.Columns(household_id="household_id"), IndexConfig(max_n=8, updatable=True)
    split = SplitConfig(heldout=0.3, seed=5)
    _, individuals, expected = one_machine(table.sort("doc_id"), config, columns, split, splits=SPLITS[:2])
    frame = session.createDataFrame(table.rows(), table.columns).repartition(3)
    documents = on_spark.open_documents(frame, columns=columns, split=split, num_parts=3)
    assert documents.individuals().table.equals(individuals.table)
    index = on_spark.build_index(documents, splits=SPLITS[:2], config=config)
    assert index_tables(index, tmp_path / "spark") == index_tables(expected, tmp_path / "one")
    corpus = reticent.open_corpus(table.sort("doc_id"), columns=columns)
    flagged = FlaggedWords(corpus, individuals, index=expected, policy=Policy(k=3, n=8))
    flags = on_spark.protect(documents, index, policy=Policy(k=3, n=8))
    assert flags_of(flags) == flags_of_one(flagged)


def at_d0003(table: pl.DataFrame, column: str, value: str | None) -> pl.DataFrame:
    """The table with this value in one document."""
    changed = pl.when(pl.col("doc_id") == "d0003").then(pl.lit(value)).otherwise(pl.col(column))
    return table.with_columns(changed.alias(column))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.with_columns(doc_id=pl.lit("d1")), "the same document id stands twice"),
        (lambda t: t.with_columns(individual_id=pl.lit("p")), "one individual only"),
        (lambda t: at_d0003(t, "text", None), "no text"),
        (lambda t: at_d0003(t, "individual_id", " "), "null or blank"),
    ],
)  # fmt: skip
def test_bad_documents_are_refused_in_words_that_name_none(session: Any, change: Any, message: str) -> None:
    table = change(notes(num_individuals=6))
    frame = session.createDataFrame(table.rows(), table.columns)
    with pytest.raises(CorpusError, match=message) as caught:
        on_spark.open_documents(frame, num_parts=2)
    assert "d0003" not in str(caught.value)


def test_an_error_of_a_task_carries_no_text_to_any_log(session: Any, home: SparkHome) -> None:
    table = notes(num_individuals=8)
    frame = session.createDataFrame(table.rows(), table.columns).coalesce(1)
    documents = on_spark.open_documents(frame, num_parts=2)
    for failing in (fail_with_text, fail_in_words):
        spans = on_spark.detect(documents, ["rules"])
        spans.parts = documents.parts.mapPartitions(Task(failing))
        with pytest.raises((on_spark.SparkError, CorpusError)) as caught:
            list(spans.tables())
        assert SECRET not in str(caught.value)
        assert SECRET not in repr(caught.value.__cause__)
    written = home.written()
    assert b"its message is withheld" in written, "the error itself was logged"
    assert b"TaskSetManager" in written
    for surname in (*SURNAMES, "Rare"):
        assert surname.encode() not in written
        assert surname.encode("utf-16-le") not in written


def test_sessions_that_do_not_encrypt_are_refused(home: SparkHome, session: Any, tmp_path: Path) -> None:
    class Context:
        def __init__(self, **settings: str):
            self.settings = {f"spark.{name.replace('__', '.')}": value for name, value in settings.items()}

        def getConf(self) -> Any:
            return self.settings

    class Session:
        def __init__(self, **settings: str):
            self._sc = Context(**settings)

    def check(unencrypted: bool = False, **settings: str) -> None:
        on_spark.check_session(Session(**settings), unencrypted=unencrypted)  # type: ignore[arg-type]

    on_spark.check_session(session)
    check(master="local[2]", io__encryption__enabled="true")
    with pytest.raises(PolicyError, match=r"network\.crypto"):
        check(master="yarn", io__encryption__enabled="true")
    with pytest.raises(PolicyError, match=r"io\.encryption"):
        check(master="local[2]")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)
    check(unencrypted=True, master="yarn")
    check(master="yarn", io__encryption__enabled="true", authenticate__enableSaslEncryption="true")
    closed = {"master": "local[2]", "io__encryption__enabled": "true"}
    dumping = "-Xss4m -XX:+HeapDumpOnOutOfMemoryError"
    for name in ("driver__extraJavaOptions", "executor__defaultJavaOptions"):
        with pytest.raises(PolicyError, match=r"JavaOptions without HeapDumpOnOutOfMemoryError"):
            check(**closed, **{name: dumping})
        check(**closed, **{name: dumping.replace("+", "-")})
    with pytest.raises(PolicyError, match=r"spark\.shuffle\.manager=sort"):
        check(**closed, shuffle__manager="org.example.RemoteShuffleManager")
    check(**closed, shuffle__manager="org.apache.spark.shuffle.sort.SortShuffleManager")
    with pytest.raises(PolicyError, match="chmod 700"):
        check(unencrypted=True, master="yarn", local__dir=str(tmp_path / "open"))
    with pytest.raises(PolicyError, match="Spark Connect"):
        on_spark.check_session(object())  # type: ignore[arg-type]


def test_a_checkpoint_folder_that_others_can_read_is_refused(session: Any) -> None:
    context = session.sparkContext
    # Others come to /tmp, and not to the folders of pytest.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        try:
            context.setCheckpointDir(f"{folder}/closed/checkpoints")
            on_spark.check_session(session)
            Path(folder).chmod(0o755)
            with pytest.raises(PolicyError, match="can be read by other users, and Spark does not encrypt checkpoints"):
                on_spark.check_session(session, unencrypted=True)
            Path(folder).chmod(0o750)
            on_spark.check_session(session)
        finally:
            context._jsc.sc().setCheckpointDir(None)


def test_an_event_log_is_warned_of_and_holds_what_the_caller_wrote_and_no_text(session: Any, home: SparkHome) -> None:
    table = notes(num_individuals=20)
    session.conf.set("spark.sql.ui.explainMode", "extended")
    for frame in (session.createDataFrame(table.rows(), table.columns), session.createDataFrame(table.to_pandas())):
        chosen = frame.filter(frame["individual_id"] != "planted-literal")
        with pytest.warns(UserWarning, match="event log is on.*a plan shows every value"):
            on_spark.open_documents(chosen, num_parts=2, on_null="skip").release()  # it counts, and that is logged
    session.conf.unset("spark.sql.ui.explainMode")
    written = home.written()
    assert b"planted-literal" in written, "the plan is not logged, so the warning is wrong"
    assert not any(surname.encode() in written for surname in SURNAMES)
    (sentence,) = on_spark.check_session(session, is_frame=False)
    assert "no text of a document" in sentence
    assert "a plan shows" not in sentence


def test_paths_that_are_no_parquet_are_refused_by_name(session: Any, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="none: Spark finds nothing there"):
        on_spark.open_documents(str(tmp_path / "none"), spark=session)
    (tmp_path / "notes.txt").write_text(f"{SECRET} has a cough")
    with pytest.raises(CorpusError, match=r"notes\.txt: Spark cannot read it as Parquet \([\w.]+\)") as caught:
        on_spark.open_documents(str(tmp_path / "notes.txt"), spark=session)
    assert SECRET not in str(caught.value)
    notes(num_individuals=3).write_parquet(tmp_path / "notes.parquet")
    with pytest.raises(CorpusError, match=r"column body is missing; there are [^,]+, household_id, text, doc_id$"):
        on_spark.open_documents(str(tmp_path / "notes.parquet"), columns=reticent.Columns(text="body"), spark=session)


PATTERNS = [{"label": "NAME", "pattern": surname} for surname in SURNAMES]


@pytest.mark.parametrize("name", ["spacy", "transformers"])
def test_a_model_is_loaded_once_in_each_process_and_finds_what_it_finds_on_one_machine(
    session: Any, files: Path, tmp_path: Path, name: str
) -> None:
    pytest.importorskip(name, reason=f"{name} is not installed")
    options: dict[str, Any] = {"model": str(tmp_path / "model"), "device": "cpu", "window": 64}
    if name == "spacy":
        import spacy

        pipeline = spacy.blank("en")
        pipeline.add_pipe("entity_ruler").add_patterns(PATTERNS)
        pipeline.to_disk(tmp_path / "model")
        options = {"pipeline": str(tmp_path / "model")}
    else:
        save_model(tmp_path / "model", ["O", "B-PER", "I-PER"], {".": "B-PER"})  # the end of a sentence
    corpus = reticent.open_corpus(files)
    (tmp_path / "spans").mkdir()
    detect_spans(corpus, make_detectors([name], {name: options}), tmp_path / "spans")
    documents = on_spark.open_documents(str(files), num_parts=6, spark=session)
    spans = on_spark.detect(documents, [name], {name: options})
    counted = CountedDetection((name,), {name: options}, str(tmp_path / "made"))
    spans.parts = documents.parts.mapPartitions(Task(counted))
    found = pa.concat_tables(spans.tables())
    assert found.num_rows > 20
    assert found.equals(pq.read_table(tmp_path / "spans" / "spans.parquet"))
    processes = (tmp_path / "made").read_text().split()
    assert 1 <= len(processes) == len(set(processes))  # six parts, and workers that take turns
    documents.release()


def test_records_and_gazetteers_with_lists_find_what_they_find_on_one_machine(session: Any, tmp_path: Path) -> None:
    table = notes(seed=2, num_individuals=12).with_columns(pat_last=pl.lit(SURNAMES[0]))
    table.sort("doc_id").write_parquet(tmp_path / "notes.parquet")
    recorded = table.select("individual_id", last_name=pl.lit(SURNAMES[1])).unique().slice(1)
    recorded.write_csv(tmp_path / "records.csv")
    (tmp_path / "common.txt").write_text("patient\nfever\n")
    (tmp_path / "names.txt").write_text("\n".join(SURNAMES[2:]))
    common = {"common": str(tmp_path / "common.txt")}
    records = {"table": str(tmp_path / "records.csv"), "columns": {"NAME": "pat_last"}, **common}
    options = {"gazetteer": {"lists": {"NAME": str(tmp_path / "names.txt")}, **common}, "records": records}
    detect_spans(reticent.open_corpus(tmp_path / "notes.parquet"), make_detectors(list(options), options), tmp_path)
    expected = pq.read_table(tmp_path / "spans.parquet")
    frame = session.createDataFrame(table.rows(), table.columns)
    documents = on_spark.open_documents(frame, more=["pat_last"], num_parts=2)
    said: list[str] = []
    spans = on_spark.detect(documents, list(options), options, warn=said.append)
    assert pa.concat_tables(spans.tables()).equals(expected)
    (warning,) = said
    assert warning.startswith(f"1 of {recorded.height + 1} individuals have no record in {tmp_path / 'records.csv'};")
    job = {"corpus": {"source": str(tmp_path / "notes.parquet")}, "out": str(tmp_path)}
    how = {"detect": {"detectors": list(options), **options}}
    run_on_spark(parse_job(job | how), "detect", tmp_path / "out", OnSpark(), progress=Progress(quiet=True))
    assert pq.read_table(tmp_path / "out" / "spans.parquet").equals(expected)
    assert set(expected["detector"].to_pylist()) == {"records", "gazetteer"}
    with pytest.raises(PolicyError, match="column doc_id: give it another name"):
        on_spark.open_documents(frame, more=["doc_id"], num_parts=2)
    with pytest.raises(CorpusError, match="column ward is missing"):
        on_spark.open_documents(frame, more=["ward"], num_parts=2)


def test_a_column_that_was_not_kept_is_refused_before_the_first_document_is_read() -> None:
    documents: Any = SimpleNamespace(columns=reticent.Columns(), more=())
    with pytest.raises(PolicyError, match=r"detect\.records\.columns: .* more=\['pat_last'\]"):
        on_spark.detect(documents, ["records"], {"records": {"columns": {"NAME": "pat_last"}, "common": "common.txt"}})


def test_detectors_that_learn_from_all_documents_are_refused() -> None:
    documents: Any = SimpleNamespace(columns=reticent.Columns())  # it is refused before the first is read
    learning = [("shipped", {}), ("gazetteer", {"lists": {"NAME": "names.txt"}})]
    learning += [("spacy", {"pipeline": "blank:en", "guard": True})]
    for name, options in learning:
        with pytest.raises(PolicyError, match="not done on Spark"):
            on_spark.detect(documents, [name], {name: options})


# -------------------------------------------------------------------- a value, a file and an individual are as anywhere


def of(folder: Path, name: str = "a.parquet", num: int = 40, **columns: Any) -> Path:
    """A file of documents of 20 individuals, with other columns, or beside these."""
    own = {"doc_id": [f"{name}-{i}" for i in range(num)], "individual_id": [f"p{i // 2}" for i in range(num)]}
    table = pa.table({**own, "text": [f"fever {i} and cough" for i in range(num)]} | columns)
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / name)
    return folder / name


def ids_of(documents: Any) -> set[str]:
    return set(documents.individuals().table.column("individual_id").to_pylist())


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
def test_a_time_is_the_same_day_whatever_the_zone_of_the_session(session: Any, tmp_path: Path, zone: str) -> None:
    days = [dt.datetime(1950, 3, 1) + dt.timedelta(days=i // 2) for i in range(40)]
    of(tmp_path / "notes", birth=pa.array(days, pa.timestamp("us", "UTC")), naive=pa.array(days, pa.timestamp("us")))
    hours = [day + dt.timedelta(hours=23) for day in days]
    of(tmp_path / "late", birth=pa.array(hours, pa.timestamp("us", "UTC")))
    before = session.conf.get("spark.sql.session.timeZone")
    session.conf.set("spark.sql.session.timeZone", zone)
    try:
        documents = on_spark.open_documents(str(tmp_path / "notes"), more=["birth", "naive"], spark=session)
        tables = [decoded(data) for data in documents.parts.collect() if data]
        for name in ("source:birth", "source:naive"):
            found = sorted(each[:10] for table in tables for each in table.column(name).to_pylist())
            assert found == sorted(f"{day:%Y-%m-%d}" for day in days)
        with pytest.raises(CorpusError, match="column birth: holds times with a zone that are not all midnight in UTC"):
            on_spark.open_documents(str(tmp_path / "late"), more=["birth"], spark=session)
        documents = on_spark.open_documents(
            str(tmp_path / "late"), more=["birth"], spark=session, time_zone="Europe/Paris"
        )
        firsts = {
            each[:10]
            for data in documents.parts.collect()
            if data
            for each in decoded(data).column("source:birth").to_pylist()
        }
        assert firsts == {f"{day + dt.timedelta(days=1):%Y-%m-%d}" for day in days}
    finally:
        session.conf.set("spark.sql.session.timeZone", before)


def test_files_that_are_passed_over_and_null_texts_are_counted(session: Any, tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    of(folder)
    of(folder, "b.parquet", text=pa.nulls(40, pa.string()))  # a stretch of nulls alone
    of(folder, "_c.parquet")
    said: list[str] = []
    documents = on_spark.open_documents(str(folder), on_null="skip", spark=session, num_parts=8, warn=said.append)
    assert (documents.num_documents, documents.num_skipped, documents.num_hidden) == (40, 40, 1)
    assert "40 documents are left out, as their text is null" in said
    assert "1 file(s) are not read: a name begins with _ or ." in said
    assert on_spark.build_index(documents, config=IndexConfig(max_n=1)).num_words > 3


@pytest.mark.parametrize(
    ("name", "how"), [("text", {"on_null": "skip"}), ("home", {"columns": Columns(household_id="home")}),
                      ("born 1", {"more": ["born 1"]})]
)  # fmt: skip
def test_a_column_that_a_file_lacks_is_not_read_as_null(
    session: Any, tmp_path: Path, name: str, how: dict[str, Any]
) -> None:
    folder = tmp_path / "a b"
    of(folder, **{"home": ["h"] * 40, "born 1": ["x"] * 40})
    pq.write_table(
        pq.read_table(of(folder, "b.parquet")).drop_columns(["text"] * (name == "text")), folder / "b.parquet"
    )
    with pytest.raises(CorpusError, match=f"a b/b.parquet: column {name} is missing"):
        on_spark.open_documents(str(folder), spark=session, **how)


@pytest.mark.parametrize(
    ("name", "message"),
    [("2020/b.parquet", "stands in a folder inside of the one that is read"), ("b.parquet", "an empty file")],
)
def test_a_file_that_spark_would_leave_out_in_silence_is_an_error(
    session: Any, tmp_path: Path, name: str, message: str
) -> None:
    folder = tmp_path / "notes"
    of(folder)
    of((folder / name).parent, "b.parquet")
    if "empty" in message:
        (folder / name).write_bytes(b"")
    with pytest.raises(CorpusError, match=f"{name}: .*{message}"):
        on_spark.open_documents(str(folder), spark=session)


@pytest.mark.parametrize("name", ["ignoreCorruptFiles", "ignoreMissingFiles"])
def test_no_setting_of_the_cluster_makes_files_disappear(session: Any, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "notes"
    of(folder)
    (folder / "b.parquet").write_bytes(b"PAR1 no parquet at all PAR1")
    session.conf.set(f"spark.sql.files.{name}", "true")
    try:
        with pytest.raises(Exception, match=r"Spark (failed|cannot read)"):
            on_spark.open_documents(str(folder), spark=session)
        with pytest.raises(PolicyError, match=f"spark.sql.files.{name} is true"):
            on_spark.open_documents(session.read.parquet(str(folder / "a.parquet")), spark=session)
    finally:
        session.conf.unset(f"spark.sql.files.{name}")


def test_columns_may_be_called_as_those_of_spark(session: Any, tmp_path: Path) -> None:
    names = ("file", "row", "file_path", "row_index", "document", "part")
    of(tmp_path / "notes", **{name: ["x"] * 40 for name in names})
    documents = on_spark.open_documents(str(tmp_path / "notes"), more=["file", "row"], spark=session)
    assert documents.num_documents == 40


@pytest.mark.parametrize(
    ("ids", "line", "gone"), [("stop", "p3", 1), ("exact", "p3", 1), ("fold", "P 03", 1), ("stop", "nobody", 0)]
)
def test_who_withdrew_is_left_out_and_no_plan_names_them(
    session: Any, home: SparkHome, tmp_path: Path, ids: Any, line: str, gone: int
) -> None:
    of(tmp_path / "notes")
    (tmp_path / "gone.txt").write_text(f"{line}\nZqWithdrew\n")
    documents = on_spark.open_documents(
        str(tmp_path / "notes"), ids=ids, withdrawn=[tmp_path / "gone.txt"], spark=session
    )
    assert ids_of(documents) == {f"p{i}" for i in range(20)} - ({"p3"} if gone else set())
    assert documents.withdrawn == ((str(tmp_path / "gone.txt"), 2, gone),)
    assert b"ZqWithdrew" not in home.written()
    (tmp_path / "gone.txt").write_text("P 03\n")
    with pytest.raises(CorpusError, match="spelt otherwise than in the documents: line 1"):
        on_spark.open_documents(str(tmp_path / "notes"), withdrawn=[tmp_path / "gone.txt"], spark=session)


@pytest.mark.parametrize("name", ["notes [1]", "no*es?", "{a,b}", "100%", "back\\\\slash", "a%20b"])
def test_a_path_that_is_there_is_no_pattern(session: Any, tmp_path: Path, name: str) -> None:
    of(tmp_path / name)
    of(tmp_path / name, "_hidden.parquet")
    of(tmp_path / "notes 1")  # which the pattern of the first means
    for path in (tmp_path / name, tmp_path / name / "a.parquet"):
        documents = on_spark.open_documents(str(path), spark=session, num_parts=2)
        assert (documents.num_documents, documents.num_hidden) == (40, int(path == tmp_path / name))
    of(tmp_path / name / "day=1")
    (tmp_path / name / "_delta_log").mkdir()
    (tmp_path / name / "_delta_log" / "00000000000000000000.json").write_text("{}")
    for path in (tmp_path / name, tmp_path / name / "day=1"):
        with pytest.raises(CorpusError, match="a Delta table, whose files hold rows that were deleted too"):
            on_spark.open_documents(str(path), spark=session)


#: Who is listed, and who opted in again; the documents that changed; who stays out, or what is said.
@pytest.mark.parametrize(
    ("withdrawn", "readmitted", "changes", "outcome"),
    [
        ((), (), {}, r"2 individual\(s\) whom an earlier reading left out as withdrawn would come back"),
        (("p7",), (), {}, r"1 individual\(s\) whom an earlier reading"),
        (("p7", "nobody"), (), {"individual_id": {"p3": "P 03"}}, r"1 individual\(s\) whom an earlier reading"),
        (("p7", "p3", "nobody"), (), {}, {"p3", "p7"}),
        (("p7",), ("p3",), {}, {"p7"}),
        (("p3", "p7"), (), {"individual_id": {"p3": "p5"}}, r"2 document\(s\) .* another individual \(1 of them\)"),
        (("p3", "p7"), (), {"individual_id": {"p3": "p5"}, "doc_id": {"a.parquet-6": "x", "a.parquet-7": "y"}},
         r"1 document\(s\) .* another individual \(1 of them\)"),  # the other's text is one that others have too
        (("p3", "p7"), ("p5",), {"individual_id": {"p3": "p5"}}, {"p3", "p7"}),
        (("p3", "p7", "p5"), (), {"individual_id": {"p3": "p5"}}, {"p3", "p5", "p7"}),
    ],
)  # fmt: skip
def test_who_was_left_out_on_spark_stays_out_of_the_next_reading(
    session: Any, home: SparkHome, tmp_path: Path, withdrawn: Any, readmitted: Any, changes: Any, outcome: Any
) -> None:
    texts = [f"Zqfever {i} and cough" for i in range(39)] + ["Zqfever 6 and cough"]
    file = of(tmp_path / "notes", text=texts)
    first = on_spark.open_documents(str(file), withdrawn=[listed(tmp_path, "old.txt", "p3", "p7")], spark=session)
    frame = pl.read_parquet(file).with_columns(pl.col(name).replace(new) for name, new in changes.items())
    frame.write_parquet(file)
    lists = {"withdrawn": withdrawn, "readmitted": readmitted}
    given: Any = {name: [listed(tmp_path, name, *ids)] for name, ids in lists.items() if ids}
    if isinstance(outcome, str):
        with pytest.raises(PolicyError, match=outcome):
            on_spark.open_documents(str(file), left_out=first.left_out, spark=session, **given)
    else:
        found = on_spark.open_documents(str(file), left_out=first.left_out, spark=session, **given)
        assert ids_of(found) == {f"p{i}" for i in range(20)} - outcome
    assert b"Zqfever" not in home.written()


@pytest.mark.parametrize("stage", ["index", "detect"])
def test_a_second_preparation_on_spark_reads_the_record_of_the_first(session: Any, tmp_path: Path, stage: Any) -> None:
    corpus = {"source": str(of(tmp_path / "notes")), "withdrawn": [str(listed(tmp_path, "old.txt", "p3"))]}
    out, how = tmp_path / "out", {"progress": Progress(quiet=True)}
    run_on_spark(parse_job({"corpus": corpus, "out": str(out)}), stage, out, OnSpark(), **how)
    before = content(out)
    assert RECORD in before
    del corpus["withdrawn"]
    with pytest.raises(PolicyError, match=r"1 individual\(s\) whom an earlier reading left out"):
        run_on_spark(parse_job({"corpus": corpus, "out": str(out)}), stage, out, OnSpark(), **how)
    assert content(out) == before


def test_a_file_whose_ids_are_of_another_type_is_named(session: Any, tmp_path: Path) -> None:
    of(tmp_path / "notes", individual_id=pa.array([i // 2 for i in range(40)]))
    of(tmp_path / "notes", "b.parquet")
    said = r"\.parquet column individual_id: is (string|bigint) there, and (bigint|string) in .*\.parquet"
    with pytest.raises(CorpusError, match=said):
        on_spark.open_documents(str(tmp_path / "notes"), spark=session)


#: Ids of the folders of a partition or of the rows; how they are compared; the individuals, or what is said.
@pytest.mark.parametrize(
    ("partition", "names", "ids", "outcome"),
    [
        (True, ("007", "7", "0008", "9", "1000"), "exact", {"0008", "007", "1000", "7", "9"}),
        (True, ("007", "7", "0008", "9", "1000"), "stop", "column individual_id: ids differ only in how they are"),
        (False, ("a", "nan", "b"), "stop", "column individual_id: a word for no id, such as NULL"),
    ],
)
def test_ids_of_folders_and_words_for_none_are_as_on_one_machine(
    session: Any, tmp_path: Path, partition: bool, names: tuple[str, ...], ids: Any, outcome: Any
) -> None:
    for name in names:
        path = of(tmp_path / f"notes/individual_id={name}" if partition else tmp_path / "notes", f"{name}.parquet", 3)
        table = pq.read_table(path, partitioning=None).drop("individual_id")
        own = table if partition else table.append_column("individual_id", pa.array([name] * 3))
        pq.write_table(own, path)
    if isinstance(outcome, set):
        assert ids_of(on_spark.open_documents(str(tmp_path / "notes"), ids=ids, spark=session)) == outcome
    else:
        with pytest.raises(CorpusError, match=outcome):
            on_spark.open_documents(str(tmp_path / "notes"), ids=ids, spark=session)
