"""Options of commands: one set, one way from SOURCE to a job; and how each reads a run's settings."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from fixtures.command import command

import reticent
from reticent.cli import RESUMED, RESUMED_IN_A_RUN, app
from reticent.cli.help import REMOVED
from reticent.cli.options import job_of
from reticent.core.artifact import read_manifest
from reticent.guard import open_guard

SECRET = "Zyxwvut"
NOTE = " ".join(f"letter{i}" for i in range(60))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Six documents of three individuals; the second repeats the first."""
    texts = [NOTE, f"{NOTE} ", f"{SECRET} mails a@b.org", "on 3 May 2019", "nothing", "nothing more"]
    table = {
        "doc_id": [f"d{i}" for i in range(6)],
        "individual_id": ["p", "p", "q", "q", "r", "r"],
        "home": ["h", "h", "h", "h", "i", "i"],
        "surname": [None, None, SECRET, SECRET, None, None],
        "text": pa.array(texts, pa.large_string()),
    }
    pq.write_table(pa.table(table), tmp_path / "notes.parquet")
    return tmp_path / "notes.parquet"


def test_commands_over_documents_have_the_same_options() -> None:
    group: Any = typer.main.get_command(app)
    commands = {name: group.commands[name] for name in ("index", "detect", "dedup", "scrub", "classify")}
    commands["build"] = group.commands["guard"].commands["build"]
    for name, verb in commands.items():
        wanted = {"source", "out", "settings", "quiet", "as_json"}
        wanted |= {"detector"} if name not in ("dedup", "classify") else set()
        assert wanted <= {parameter.name for parameter in verb.params}, name


GONE = [(verb, option, setting) for verb, options in REMOVED.items() for option, setting in options.items()]
#: Values of settings that are no text.
VALUES = {
    "classify.from_epochs": "8",
    "classify.windows": "first",
    "corpus.format": "csv",
    "dedup.mode": "near",
    "dedup.scope": "corpus",
    "dossier.languages": "fr",
    "memory_limit": "4GB",
    "protect.policy": "cover",
}


@pytest.mark.parametrize(("verb", "option", "setting"), GONE)
def test_an_option_that_repeated_a_field_fails_with_the_setting(
    capfd: pytest.CaptureFixture[str], verb: str, option: str, setting: str
) -> None:
    for given in ((option,) if setting.endswith("=true") else (option, "8"), (f"{option}=8",)):
        assert command(*verb.split(), "somewhere", *given) == 2
        said = capfd.readouterr().err.strip()
        assert said.startswith(f"reticent: {option}: is no option any more; use --set ")
        assert shlex.split(said)[-1] == setting
    field, _, value = setting.partition("=")
    text = value.replace("VALUE", VALUES.get(field, "0.5" if re.search("held|rate|threshold", field) else "3"))
    if field.startswith("corpus.") or field in ("detect.records.table", "classify.label", "dossier.key"):
        text = VALUES.get(field, "somewhere")
    beside = {"detect.records": "detect.detectors=['records']", "protect.n": "index.max_n=3"}
    beside |= {"classify": "classify.label=status", "dedup.": "dedup.mode=exact"}
    settings = [other for name, other in beside.items() if field.startswith(name) and not other.startswith(f"{field}=")]
    made = [job_of({"out": "run", "corpus": {"source": "x"}}, given) for given in ([f"{field}={text}", *settings], [])]
    values = [job.model_dump() for job in made]
    for name in field.split(".")[:-1]:
        values = [each.get(name) or {} for each in values]
    last = field.rpartition(".")[2]
    assert values[0][last] != values[1].get(last)


def test_the_setting_in_place_of_an_option_does_what_the_option_did(source: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"individual_id": ["q"], "name": [SECRET]}), tmp_path / "r.parquet")
    columns = ("--set", "corpus.label=home", "--set", "memory_limit=4GB", "--set", "seed=1")
    records = ("--set", f"detect.records.table={tmp_path / 'r.parquet'}", "--set", "index.updatable=true")
    assert command("index", source, "--out", tmp_path / "run", "-n", 2, *columns, *records, "-q") == 0
    job = json.loads((tmp_path / "run" / "job.json").read_text())
    assert job["detect"]["detectors"] == ["rules", "records"]
    assert (job["corpus"]["label"], job["memory_limit"]) == ("home", 4 * 10**9)
    assert (job["index"]["max_n"], job["index"]["updatable"]) == (2, True)
    assert command("index", source, "--out", tmp_path / "other", "--set", "corpus.docid=x") == 2
    assert not (tmp_path / "other").exists()


def test_no_command_has_an_option_that_was_removed() -> None:
    group: Any = typer.main.get_command(app)
    for verb, options in REMOVED.items():
        name, _, below = verb.partition(" ")
        found = group.commands[name].commands[below] if below else group.commands[name]
        assert not {each for parameter in found.params for each in parameter.opts} & options.keys(), verb


def _options_of(command: Any) -> Any:
    verbs = getattr(command, "commands", {})
    return [parameter.opts for parameter in command.params], {name: _options_of(verbs[name]) for name in verbs}


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        *((verb, "interrupted; what is finished is kept, and the same command goes on") for verb in RESUMED),
        *((verb, "interrupted; what a run folder had finished is kept there") for verb in RESUMED_IN_A_RUN),
        *((verb, "interrupted; nothing is kept") for verb in ("probe", "guard", "tagger", "synth", "dedup", "x")),
    ],
)
def test_an_interrupted_command_says_what_of_its_work_is_kept(
    verb: str, said: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def importing(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("reticent.cli._command_line", importing)
    assert command(verb) == 130
    shown = capfd.readouterr().err
    assert said in shown
    assert "internal" not in shown


def test_version_is_that_of_the_package(capfd: pytest.CaptureFixture[str]) -> None:
    assert command("--version") == 0
    assert capfd.readouterr().out == f"reticent {reticent.__version__}\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--style", "x", "--names", "syllables"), "--names: about surrogates; --style x puts none in"),
        (("--style", "tag", "--language", "en", "--date-order", "dmy"), "--language, --date-order: about surrogates"),
        (("--style", "tag", "--keep-key"), "nothing depends on the key"),
        (("--draw", 3), "--draw: belongs to --style rotate"),
        (("--names", "syllables", "--language", "en"), "those of syllables have none"),
    ],
)
def test_an_option_that_a_style_of_scrub_would_ignore_is_refused(
    source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], options: tuple[object, ...], said: str
) -> None:
    assert command("scrub", source, "--out", tmp_path / "out", *options, "-q") == 2
    assert said in " ".join(capfd.readouterr().err.split())
    assert not (tmp_path / "out").exists()


def test_scrub_refuses_a_column_that_is_not_there_before_it_searches(
    source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for field in ("label", "household_id"):
        assert command("scrub", source, "--out", tmp_path / "out", "--set", f"corpus.{field}=none") == 1
        said = capfd.readouterr().err
        assert "column none is missing" in said
        assert "spans" not in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("new-job", "--minimal", "--size", "base"), "--size: has no effect with --minimal"),
        (
            ("guard", "check", "GUARD", "FILE", "--verbatim-only", "--detector", "rules"),
            "--verbatim-only does not look",
        ),
        (("tagger", "attack", "M", "--out", "OUT", "--run", "RUN", "--fewer"), "--fewer has no effect with --run"),
        (("detect", "notes.parquet", "--set", "corpus.spans=marks"), "corpus.spans: has no effect without --evaluate"),
    ],
)
def test_an_option_that_another_makes_idle_is_refused(
    capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert command(*arguments) == 2
    assert said in " ".join(capfd.readouterr().err.split())


@pytest.mark.parametrize(
    ("verb", "arguments", "message"),
    [
        (("detect",), ("--out", "x"), "--out: a run or a job has its own place"),
        (("scrub",), ("--out", "x", "--detector", "rules"), "--detector: a run or a job has its own"),
        (("index",), ("--out", "x"), "has its own settings; use `reticent run {run} --until index`"),
    ],
)
def test_an_option_that_a_run_would_ignore_is_refused(
    source: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    verb: tuple[str, ...],
    arguments: tuple[str, ...],
    message: str,
) -> None:
    assert command("detect", source, "--out", tmp_path / "run", "-q") == 0
    before = (tmp_path / "run" / "job.json").read_bytes()
    capfd.readouterr()
    assert command(*verb, tmp_path / "run", *arguments) == 2
    assert message.format(run=tmp_path / "run") in capfd.readouterr().err
    assert (tmp_path / "run" / "job.json").read_bytes() == before


@pytest.mark.parametrize(
    ("verb", "ignored"),
    [
        (("report", "RUN"), ("protect.k=3", "audit.small_cell=9", "train.num_epochs=1", "out=elsewhere")),
        (("stats", "RUN"), ("split.heldout=0.2", "index.max_n=2", "corpus.source=x", "audit.attacks=[]")),
        (("dedup", "RUN"), ("protect.n=2", "seed=3", "train.num_epochs=1")),
        (("scrub", "RUN", "--out", "OUT"), ("seed=3", "gate=[]", "audit.small_cell=9")),
        (("detect", "SOURCE"), ("train.num_epochs=1", "index.max_n=2", "audit.num_bootstrap=200")),
        (("scrub", "SOURCE", "--out", "OUT"), ("split.user_inference_holdout=0.5", "canaries.num=3", "model=[]")),
        (
            ("guard", "build", "RUN", "--out", "OUT"),
            ("protect.k=3", "seed=1", "detect.propagate=true", "detect.on_error=quarantine", "detect.cache=false"),
        ),
        (
            ("classify", "SOURCE", "--model", "x", "--set", "classify.label=y"),
            ("train.num_epochs=2", "split.user_inference_holdout=0.5", "gate=[]"),
        ),
        (("guard", "check", "GUARD"), ("corpus.source=x", "seed=1", "detect.propagate=true")),
    ],
)
def test_a_setting_that_a_command_does_not_look_at_is_refused(
    source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], verb: tuple[str, ...], ignored: tuple[str, ...]
) -> None:
    run, guard = tmp_path / "run", tmp_path / "guard"
    assert command("detect", source, "--out", run, "-q") == 0
    if "GUARD" in verb:
        assert command("guard", "build", source, "--out", guard, "-q") == 0
    before = (run / "job.json").read_bytes()
    places = {"RUN": run, "SOURCE": source, "OUT": tmp_path / "new", "GUARD": guard}
    for setting in ignored:
        capfd.readouterr()
        assert command(*(places.get(word, word) for word in verb), "--set", setting) == 2
        assert f"--set {setting.partition('=')[0]}: has no effect here" in capfd.readouterr().err
    assert (run / "job.json").read_bytes() == before
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("more", [("--set", "train.num_epochs=1"), ("--restart",)])
def test_a_proof_of_a_ledger_takes_no_setting(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], more: tuple[object, ...]
) -> None:
    assert command("train", "--verify", tmp_path / "ledger.json", *more) == 2
    assert "goes by the settings of the finished training" in capfd.readouterr().err


def test_detect_keeps_the_household_that_later_commands_count_by(source: Path, tmp_path: Path) -> None:
    assert command("detect", source, "--out", tmp_path / "run", "--set", "corpus.household_id=home", "-q") == 0
    assert json.loads((tmp_path / "run" / "job.json").read_text())["corpus"]["household_id"] == "home"


def test_records_may_be_columns_of_the_documents_alone(
    source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    options = ("--detector", "records", "--set", 'detect.records.columns={last_name="surname"}')
    assert command("detect", source, *options, "--json", "-q") == 0
    assert json.loads(capfd.readouterr().out)["spans"] == {"records": {"NAME": 1}}
    pq.write_table(pa.table({"individual_id": ["p", "q", "r"], "name": ["", SECRET, None]}), tmp_path / "r.parquet")
    assert (
        command(
            "detect", source, "--set", f"detect.records.table={tmp_path / 'r.parquet'}", "--out", tmp_path / "run", "-q"
        )
        == 0
    )
    assert read_manifest(tmp_path / "run" / "spans").counts["empty_fields"] == 2


def test_scrub_leaves_out_what_deduplication_leaves_out(source: Path, tmp_path: Path) -> None:
    settings = ("--set", "dedup.mode=exact")
    assert command("scrub", source, "--out", tmp_path / "one", "--style", "tag", *settings, "-q") == 0
    assert command("detect", source, "--out", tmp_path / "run", *settings, "-q") == 0
    assert command("scrub", tmp_path / "run", "--out", tmp_path / "two", "--style", "tag", "-q") == 0
    for out in ("one", "two"):
        table = pq.read_table(tmp_path / out / "documents")
        assert table.column("doc_id").to_pylist() == ["d0", "d2", "d3", "d4", "d5"]
        assert table.column("text").to_pylist()[1:3] == [f"{SECRET} mails [EMAIL]", "on [DATE]"]


def test_scrub_into_a_run_folder_changes_nothing_in_it(source: Path, tmp_path: Path) -> None:
    assert command("detect", source, "--out", tmp_path / "run", "-q") == 0
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert command("scrub", source, "--out", tmp_path / "run", "-q") == 1
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before


def test_scrubbed_documents_keep_marks_where_they_are_in_the_new_text(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in "ab":
        (tmp_path / "in" / f"{name}.txt").write_text(f"seen by {SECRET}\n")
        (tmp_path / "in" / f"{name}.ann").write_text(f"T1\tNAME 8 15\t{SECRET}\n")
    out = tmp_path / "out"
    assert command("scrub", tmp_path / "in", "--set", "corpus.format=brat", "--out", out, "--style", "tag", "-q") == 0
    table = pq.read_table(out / "documents")
    assert table.column("text").to_pylist() == ["seen by [NAME]\n"] * 2
    for column in ("spans", "mentions"):
        (mark,), (other,) = table.column(column).to_pylist()
        assert (mark["start"], mark["end"]) == (other["start"], other["end"]) == (8, 14)


def test_copies_are_counted_of_a_run_by_its_settings(
    source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job.toml"
    job.write_text(f'out = "{tmp_path / "run"}"\n[corpus]\nsource = "{source}"\n[dedup]\npassage_words = 99\n')
    assert command("detect", job, "-q") == 0
    found = []
    for arguments in ((tmp_path / "run",), (job, "--set", "dedup.passage_words=50"), (source,)):
        capfd.readouterr()
        assert command("dedup", *arguments, "--json", "-q") == 0
        found.append(json.loads(capfd.readouterr().out))
    assert found[1] == found[2] != found[0]
    assert found[0]["exact"]["within"]["documents"] == 1


def test_a_guard_looks_with_the_detectors_of_the_run_or_those_that_are_named(
    source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("towns.txt").write_text("Umbria\n")
    Path("said.txt").write_text("Umbria, a@b.org")
    gazetteer = ("--set", 'detect.gazetteer.lists={CITY="towns.txt"}')
    for out, options in (("run", ("--detector", "gazetteer", *gazetteer)), ("other", ())):
        assert command("index", source, "--out", out, *options, "--set", "seed=1", "-q") == 0

    def categories(*arguments: object) -> list[str]:
        capfd.readouterr()
        assert command("guard", "check", *arguments) == 3
        return [finding["category"] for finding in json.loads(capfd.readouterr().out)["findings"]]

    assert command("guard", "build", "run", "--out", "a", "-q") == 0
    assert command("guard", "build", "other", "--out", "b", "-q") == 0
    assert [detector.name for detector in open_guard("a").detectors] == ["gazetteer"]
    assert categories("a", "said.txt") == ["LOCATION"]
    assert categories("b", "said.txt") == ["EMAIL"]
    assert categories("a", "said.txt", "--detector", "rules") == ["EMAIL"]
    assert categories("b", "said.txt", "--detector", "rules", "--detector", "gazetteer", *gazetteer) == [
        "LOCATION",
        "EMAIL",
    ]
    options = ("--detector", "gazetteer", *gazetteer)
    assert command("guard", "build", source, "--out", "c", *options, "-q") == 0
    assert categories("c", "said.txt") == ["LOCATION"]
    for name in ("records", "gold"):
        assert command("guard", "check", "a", "said.txt", "--detector", name) == 2
        assert "needs more than a text" in capfd.readouterr().err


def test_a_guard_looks_with_all_detectors_of_a_run_also_those_without_options(
    source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("towns.txt").write_text("Umbria\n")
    Path("said.txt").write_text("Umbria, a@b.org, his wife Zorba came")
    gazetteer = ("--set", 'detect.gazetteer.lists={CITY="towns.txt"}')
    names = ("--detector", "rules", "--detector", "gazetteer", "--detector", "shipped", *gazetteer)
    assert command("index", source, "--out", "run", *names, "--set", "seed=1", "-q") == 0
    for documents, options in (("run", ()), (source, names)):
        assert command("guard", "build", documents, "--out", f"guard-{len(options)}", *options, "-q") == 0
        looking = {found.name for found in open_guard(f"guard-{len(options)}").detectors}
        assert looking == {"rules", "gazetteer", "shipped"}
        capfd.readouterr()
        assert command("guard", "check", f"guard-{len(options)}", "said.txt") == 3
        found = json.loads(capfd.readouterr().out)["findings"]
        assert {finding["category"] for finding in found} == {"LOCATION", "EMAIL", "NAME"}


def test_a_preset_takes_the_place_of_the_default_detectors_and_gives_way_to_chosen_ones(
    source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pq.write_table(pa.table({"individual_id": ["p"], "last_name": ["Zorba"]}), tmp_path / "records.parquet")
    options = (
        "--set",
        f"detect.records.table={tmp_path / 'records.parquet'}",
        "--set",
        "detect.preset=fast",
        "--set",
        "seed=1",
    )
    assert command("index", source, "--out", tmp_path / "run", *options, "-q") == 0

    def looking(*arguments: object) -> set[str]:
        capfd.readouterr()
        assert command(*arguments, "-q", "--json") == 0
        return set(json.loads(capfd.readouterr().out)["spans"])

    assert looking("detect", tmp_path / "run") == {"rules", "records", "shipped"}
    assert looking("detect", source, "--set", "detect.preset=fast") == {"rules", "shipped"}
    assert looking("detect", tmp_path / "run", "--detector", "rules") == {"rules"}
    assert command("detect", source, "--detector", "rules", "--set", "detect.preset=fast") == 2
    assert "give preset or detectors" in capfd.readouterr().err


def test_help_does_not_lose_the_name_of_a_section(capfd: pytest.CaptureFixture[str]) -> None:
    assert command("synth", "--help") == 0
    words = capfd.readouterr().out.replace("│", " ").split()
    assert "[audit.diagnoses]." in words
