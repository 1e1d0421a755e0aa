"""The command line: help that is quick and complete, exit codes, errors without text of documents."""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer.main
from fixtures.command import command
from fixtures.processor_time import processor_seconds
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

import reticent
from reticent.cli import app
from reticent.cli.help import EXAMPLES
from reticent.core import errors
from reticent.job.config import parse_job
from reticent.job.demo import NUM_INDIVIDUALS
from reticent.job.pipeline import STAGES

COMMANDS = ("demo", "synth", "run", "detect", "dedup", "guard", "scrub")
COMMANDS += ("index", "update", "protect", "train", "classify", "audit", "report", "dossier", "stats")
COMMANDS += (
    "bench",
    "reproduce",
    "new-job",
    "status",
    "budget",
    "audit-model",
    "score",
    "probe",
    "tagger",
    "export",
    "spark",
)
COMMANDS += ("redact",)
SECRET = "Zyxwvut"


def reticent_command(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from reticent.cli import main; main()", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def write_documents(path: Path, **columns: list[object] | None) -> Path:
    rows = len(next(values for values in columns.values() if values is not None))
    table = {
        "doc_id": [f"d{i}" for i in range(rows)],
        "individual_id": [f"p{i}" for i in range(rows)],
        "text": [f"{SECRET} was seen today." for _ in range(rows)],
        **columns,
    }
    pq.write_table(pa.table({name: values for name, values in table.items() if values is not None}), path)
    return path


def test_help_of_every_command_is_shown_and_imports_nothing_heavy() -> None:
    code = (
        "import json, sys; from typer.testing import CliRunner; from reticent.cli import app; "
        "names = [[], *([c.name or c.callback.__name__.replace('_', '-')] for c in app.registered_commands), "
        "*([g.name] for g in app.registered_groups)]; "
        "results = {' '.join(name): CliRunner().invoke(app, [*name, '--help']) for name in names}; "
        "heavy = {'torch', 'transformers', 'polars', 'spacy', 'numba', 'sklearn', 'scipy', 'matplotlib', "
        "'tokenizers'} & set(sys.modules); "
        "print(json.dumps([{name: [r.exit_code, r.output] for name, r in results.items()}, sorted(heavy)]))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    results, heavy = json.loads(shown)
    assert heavy == []
    assert set(results) == {"", *COMMANDS}
    assert all(command in results[""][1] for command in COMMANDS)
    for name, (status, output) in results.items():
        assert status == 0
        assert f"Usage: {'root' if not name else f'root {name}'} [OPTIONS]" in output
        assert "--help" in output
        assert not name or "Example: reticent " in output, name
        assert "…" not in output, name  # no name is cut short at 80 columns
    assert f"default: {NUM_INDIVIDUALS}" in results["demo"][1]
    assert all(recipe in results["protect"][1] for recipe in ("mlm", "clm", "mlma", "clma", "dpp-", "ipp-", "ppmlm"))
    assert all(stage in results["run"][1] for stage in STAGES)


def test_every_argument_and_option_is_explained() -> None:
    group: Any = typer.main.get_command(app)
    verbs = [*group.commands.items(), *group.commands["guard"].commands.items()]
    parameters = [(name, parameter) for name, verb in verbs for parameter in verb.params]
    assert len(parameters) > 40
    assert [(name, parameter.name) for name, parameter in parameters if not parameter.help] == []


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, reticent; assert not {'torch', 'numpy', 'pyarrow', 'pydantic'} & set(sys.modules)"
    _python(code)


def test_help_is_quick() -> None:
    # Beside the least that any such command needs, for a slow machine is slow for both.
    library = processor_seconds(lambda: _python("import typer, rich.console"), clock=_of_children)
    assert processor_seconds(lambda: reticent_command("--help"), clock=_of_children) < 4 * library


def _python(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)


def _of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def test_every_public_name_can_be_imported() -> None:
    missing = [name for name in reticent.__all__ if not hasattr(reticent, name)]
    assert reticent.__all__
    assert not missing


@pytest.mark.parametrize(
    ("job", "said"),
    [('out = "run"\n[corpus]\nsource = "x.parquet"\ncolour = "red"\n', "corpus.colour"), ("out = \n", "line 1")],
)
def test_a_job_that_is_none_is_refused_with_the_place(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], job: str, said: str
) -> None:
    (tmp_path / "job.toml").write_text(job)
    assert command("run", tmp_path / "job.toml") == 2
    shown = capfd.readouterr().err
    assert said in shown
    assert "Traceback" not in shown


@pytest.mark.parametrize(
    ("verb", "needed", "maker"),
    [("report", "audit", "audit {}"), ("dossier", "report", "audit {}"), ("stats", "index", "run {} --until index")],
)
def test_a_command_before_what_it_needs_says_what_makes_it(
    verb: str, needed: str, maker: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = write_documents(tmp_path / "d.parquet", doc_id=["1", "2", "3"])
    folder = tmp_path / "a run"
    assert command("index", source, "--out", folder) == 0
    shutil.rmtree(folder / "index")
    assert command(verb, folder) == 1
    shown = capfd.readouterr().err
    assert f"{folder / needed}: no artefact here" in shown
    line = maker.format(f"'{folder}'")
    assert f"`reticent {line}` makes it" in shown
    if verb == "stats":  # as it is copied into a shell
        assert command(*shlex.split(line), "-q") == 0
        assert command(verb, folder) == 0


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"text": None, "note": ["a", "b", "c"]}, ("column text is missing", "note")),
        ({"individual_id": ["a", "b", " "]}, ("d.parquet row 3 column individual_id",)),
    ],
)
def test_documents_that_cannot_be_read_are_told_by_their_place_and_no_text(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], columns: Any, said: tuple[str, ...]
) -> None:
    source = write_documents(tmp_path / "d.parquet", doc_id=["1", "2", "3"], **columns)
    assert command("index", source, "--out", tmp_path / "run") == 1
    shown = capfd.readouterr().err
    assert all(words in shown for words in said)
    assert SECRET not in shown
    assert "Traceback" not in shown


def test_a_folder_that_is_not_a_run_is_left_alone(tmp_path: Path) -> None:
    precious = tmp_path / "run" / "thesis.txt"
    precious.parent.mkdir()
    precious.write_text("two years of work")
    source = write_documents(tmp_path / "d.parquet", doc_id=[str(i) for i in range(9)])
    assert command("index", source, "--out", precious.parent) == 1
    assert precious.read_text() == "two years of work"
    assert [path.name for path in precious.parent.iterdir()] == ["thesis.txt"]


def test_a_program_makes_an_index_once_and_bad_input_leaves_it_as_it_was(tmp_path: Path) -> None:
    people = [f"p{i}" for i in range(40)]
    source = write_documents(tmp_path / "d.parquet", individual_id=people, doc_id=[str(i) for i in range(40)])
    first = reticent_command("index", source, "--out", tmp_path / "run", "--json")
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout)["index"]["words"] == 4
    again = reticent_command("index", source, "--out", tmp_path / "run")
    assert "index: up to date" in again.stderr
    before = {p: p.read_bytes() for p in (tmp_path / "run" / "index").iterdir()}
    write_documents(source, individual_id=["a", None, "b"])
    assert reticent_command("index", source, "--out", tmp_path / "run").returncode == 1
    assert before == {p: p.read_bytes() for p in (tmp_path / "run" / "index").iterdir()}


# ------------------------------------------------------------------------------------- exit status and what is printed


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run up to the index, of 40 individuals, with the job file and a tokenizer beside it."""
    folder = tmp_path_factory.mktemp("cli")
    num = 40
    people = [f"p{i}" for i in range(num)]
    write_documents(folder / "d.parquet", individual_id=people, doc_id=[str(i) for i in range(num)])
    (folder / "base").mkdir()
    tokenizer = Tokenizer(WordLevel({"[UNK]": 0, "was": 1, "seen": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "base" / "tokenizer.json"))
    (folder / "job.toml").write_text(f'out = "{folder / "run"}"\n[corpus]\nsource = "{folder / "d.parquet"}"\n')
    assert command("run", folder / "job.toml", "--until", "index", "--quiet") == 0
    return folder / "run"


@pytest.mark.parametrize("verb", ["run", "index"])
def test_json_is_all_there_is_on_stdout_and_quiet_says_nothing(
    run: Path, capfd: pytest.CaptureFixture[str], verb: str
) -> None:
    what = [run.parent / "job.toml", "--until", "index"] if verb == "run" else [run.parent / "d.parquet", "--out", run]
    assert command(verb, *what, "--json", "--quiet") == 0
    shown = capfd.readouterr()
    assert json.loads(shown.out)["index-joint"] == {
        "words": 4, "occurrences": 160, "individuals": num_both(run), "unspaced": 0,
    }  # fmt: skip
    assert shown.err == ""
    assert command(verb, *what) == 0
    shown = capfd.readouterr()
    assert shown.out == ""
    assert [line.partition(":")[0] for line in shown.err.splitlines()] == ["split", "spans", "index", "index-joint"]


def num_both(run: Path) -> int:
    counts = json.loads((run / "split" / "manifest.json").read_text())["counts"]
    return counts["members"] + counts["heldout"]


def test_protect_works_on_a_run(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert command("protect", run) == 2
    assert "reticent: the job names no model; add a [[model]] section" in capfd.readouterr().err
    model = f"toy={run.parent / 'base'}"
    assert (
        command("protect", run, "--model", model, "--recipe", "ppmlm", "--set", "protect.k=3", "--json", "--quiet") == 0
    )
    shown = capfd.readouterr()
    assert json.loads(shown.out)["tokens/toy/train"]["retention"] == 1.0
    assert shown.err == ""


def test_stats_need_an_index_and_no_model(run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = (run / "job.json").read_bytes()
    assert command("stats", run, "--json", "--set", "protect.k=3") == 0
    found = json.loads(capfd.readouterr().out)
    assert (found["k"], found["num_distinct_words"], found["retention"]) == (3, 4, {"all": 1.0})
    assert SECRET not in json.dumps(found)
    assert (run / "job.json").read_bytes() == before
    shutil.copytree(run, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "index")
    assert command("stats", tmp_path / "run") == 1
    assert "index" in capfd.readouterr().err


def test_stats_say_what_is_counted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rows = range(80)
    table = {
        "doc_id": [f"d{i}" for i in rows],
        "individual_id": [f"p{i}" for i in rows],
        "home": [f"h{i // 2}" for i in rows],
        "text": ["alpha beta gamma"] * 80,
    }
    pq.write_table(pa.table(table), tmp_path / "d.parquet")
    for unit, options in (("individuals", ()), ("households", ("--set", "corpus.household_id=home"))):
        out = tmp_path / unit
        assert command("index", tmp_path / "d.parquet", "--out", out, *options, "-q") == 0
        capfd.readouterr()
        assert command("stats", out, "-q") == 0
        said = " ".join(capfd.readouterr().out.split())
        assert f"identifying: used by fewer than 2 {unit}" in said
        assert f"{unit} singled out" in said


def test_stats_of_a_job_are_made_from_its_documents_with_figures(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job.toml"
    job.write_text(f'out = "{tmp_path / "run"}"\n[corpus]\nsource = "{run.parent / "d.parquet"}"\n[index]\nmax_n = 2\n')
    assert command("stats", job, "--out", tmp_path / "figures", "--quiet") == 0
    listed = capfd.readouterr().out.split()
    assert listed == sorted(listed, key=listed.index)
    assert {Path(path).name for path in listed} == {path.name for path in (tmp_path / "figures").iterdir()}
    names = {Path(path).stem for path in listed}
    assert {"stats", "support", "by-n", "by-n-person", "margin-1", "margin-2", "unicity", "retention"} <= names
    written = (tmp_path / "figures" / "stats.json").read_text()
    assert SECRET not in written
    assert command("stats", tmp_path / "run", "--json") == 0
    assert json.loads(capfd.readouterr().out) == json.loads(written)
    found = json.loads(written)
    # Everybody writes the same four words, so nothing identifies and no set of them points to anybody.
    assert [row["all"]["distinct"] for row in found["identifiers_by_n"]] == [0, 0]
    assert [row["share"]["value"] for row in found["unicity"]] == [0.0] * 4 + [None] * 6
    assert found["unicity"][3]["share"]["high"] > 0
    images = {path.suffix for path in (tmp_path / "figures").iterdir()}
    assert images == {".json", ".svg", ".png"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "figures").iterdir())


def test_figures_that_cannot_be_written_are_an_error_that_names_their_folder(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    assert command("index", run.parent / "d.parquet", "--out", tmp_path / "run", "-q") == 0
    monkeypatch.setattr("reticent.cli.show.write_corpus_plots", full)
    assert command("stats", tmp_path / "run", "--out", tmp_path / "figures", "-q") == 1
    assert f"reticent: {tmp_path / 'figures'}: not written (No space left on device)\n" in capfd.readouterr().err


def test_indexing_again_keeps_what_later_commands_chose(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(run, tmp_path / "run"))
    model = f"toy={run.parent / 'base'}"
    assert command("protect", folder, "--model", model, "--recipe", "ppmlm", "--set", "protect.k=3", "-q") == 0
    before = (folder / "job.json").read_bytes()
    assert command("index", run.parent / "d.parquet", "--out", folder, "-q") == 0
    assert (folder / "job.json").read_bytes() == before
    assert command("stats", folder, "--json") == 0
    assert json.loads(capfd.readouterr().out)["k"] == 3
    assert command("index", run.parent / "d.parquet", "--out", folder, "--set", "protect.k=4", "-q") == 0
    assert json.loads((folder / "job.json").read_text())["protect"]["k"] == 4


def test_an_index_of_other_documents_does_not_replace_a_run(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(run, tmp_path / "run"))
    other = shutil.copy(run.parent / "d.parquet", tmp_path / "other.parquet")
    (folder / "tokens").mkdir(exist_ok=True)
    before = (folder / "job.json").read_bytes()
    assert command("index", other, "--out", folder, "-q") == 2
    assert "is a run over other documents" in capfd.readouterr().err
    assert (folder / "job.json").read_bytes() == before
    shutil.rmtree(folder / "tokens")
    assert command("index", other, "--out", folder, "-q") == 0


def test_records_of_the_command_line_are_detected(run: Path, tmp_path: Path) -> None:
    people = pa.table({"individual_id": [f"p{i}" for i in range(40)], "first_name": [SECRET] * 40})
    pq.write_table(people, tmp_path / "records.parquet")
    options = ["--out", tmp_path / "run", "--set", f"detect.records.table={tmp_path / 'records.parquet'}", "-q"]
    assert command("index", run.parent / "d.parquet", *options) == 0
    assert json.loads((tmp_path / "run" / "spans" / "manifest.json").read_text())["counts"]["records"] == 40


def test_a_command_that_failed_leaves_its_settings_to_none_after_it(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(run, tmp_path / "run"))
    shutil.rmtree(folder / "tokens", ignore_errors=True)
    before = (folder / "job.json").read_bytes()
    assert command("index", write_documents(tmp_path / "bad.parquet", text=["a"]), "--out", folder) == 1
    assert command("protect", folder, "--model", "toy=nowhere", "--recipe", "ppmlm") == 1
    assert "bad.parquet: column individual_id names one individual only" in capfd.readouterr().err
    assert (folder / "job.json").read_bytes() == before
    assert command("protect", folder, "--model", f"toy={run.parent / 'base'}", "--recipe", "ppmlm", "-q") == 0
    assert b'"nowhere"' not in (folder / "job.json").read_bytes()


def test_a_warning_is_printed_even_when_quiet(run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    texts = [f"only{i} mine{i} was" for i in range(40)]
    source = write_documents(
        tmp_path / "d.parquet",
        text=texts,
        individual_id=[f"p{i}" for i in range(40)],
        doc_id=[str(i) for i in range(40)],
    )
    assert command("index", source, "--out", tmp_path / "run", "-q") == 0
    assert "each of the 40 documents has an individual of its own" in capfd.readouterr().err
    options = ["--model", f"toy={run.parent / 'base'}", "--recipe", "ppmlm", "-q"]
    assert command("protect", tmp_path / "run", *options) == 0
    assert capfd.readouterr().err.startswith("warning: only 33% of the tokens stay usable as targets (k=2, n=1")


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["stats", "nowhere"], 1, "reticent: nowhere: not a run folder (no job.json); start with `reticent index`"),
        (["protect", "RUN", "--model", "bert"], 2, "reticent: --model: expected NAME=PATH"),
        (["protect", "RUN", "--model", "a=b", "--recipe", "x"], 2, "reticent: unknown recipe 'x'; expected one of clm"),
        (["protect", "RUN", "--model", "a=b"], 2, "reticent: --recipe: give at least one recipe"),
        (["protect", "RUN", "--recipe", "ppmlm"], 2, "reticent: --recipe: belongs to --model NAME=PATH; give both"),
        (
            ["protect", "RUN", "--set", "protect.k=1"],
            2,
            "reticent: job: protect.k: expected greater than or equal to 2",
        ),
        (["protect", "RUN", "--set", "protect.n=2"], 2, "reticent: job: protect.n = 2 needs index.max_n >= 2, got 1"),
        (["protect", "RUN", "--set", "protect"], 2, "reticent: --set protect: expected SECTION.KEY=VALUE"),
        (["protect", "RUN", "--set", "seed.x.y=1"], 2, "reticent: --set seed.x.y: no such section of a job"),
        (["run", "nowhere.toml"], 2, "reticent: nowhere.toml: cannot be read (No such file or directory)"),
        (["index", "nowhere.csv", "--out", "OUT"], 1, "reticent: nowhere.csv: no file found"),
        (["index", "x", "--out", "OUT", "-n", "9"], 2, "Invalid value for '-n'"),
        (["index", "x"], 2, "Missing option '--out'"),
        (["synth", "OUT", "--individuals", "0"], 2, "reticent: num_individuals: expected 1 to 67108864, got 0"),
        (["demo", "--out", "RUN"], 1, "run: holds the run of another job; choose another --out"),
        (["demo", "--out", "OUT", "--individuals", "0"], 2, "Invalid value for '--individuals'"),
        (["synth", "OUT", "--seed", "-1"], 2, "Invalid value for '--seed'"),
        (["synth", "/proc/nowhere/x"], 1, "reticent: /proc/nowhere/x: not written (No such file or directory"),
        (["bench", "RUN", "--out", "RUN", "-q"], 1, "run: a folder; give the name of a file"),
        (["nonsense"], 2, "No such command"),
        (["index", "--no-such-option"], 2, "No such option"),
    ],
)
def test_every_mistake_has_a_status_and_a_sentence(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], status: int, message: str
) -> None:
    places = {"RUN": run, "OUT": tmp_path / "out"}
    assert command(*(places.get(argument, argument) for argument in arguments)) == status
    shown = capfd.readouterr()
    assert message in shown.err
    assert shown.out == ""
    assert "Traceback" not in shown.err


class Panic(BaseException):
    """A panic of the Rust core in Python: no Exception."""


@pytest.mark.parametrize(
    ("error", "status", "last"),
    [
        (errors.CorpusError("a.csv row 3"), 1, "reticent: a.csv row 3"),
        (errors.GateError("leaks"), 3, "reticent: leaks"),
        (
            KeyboardInterrupt(),
            130,
            "reticent: interrupted; what is finished is kept, and the same command goes on from there",
        ),
        (PermissionError(13, SECRET, "a.csv"), 1, "reticent: a.csv: Permission denied"),
        (ValueError(f"cannot parse {SECRET}"), 1, "reticent: internal error (ValueError); its message is withheld"),
        (OSError(f"cannot parse {SECRET}"), 1, "reticent: internal error (OSError); its message is withheld"),
        (Panic(f"inside {SECRET}"), 1, "reticent: internal error (Panic); its message is withheld"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_a_failure_has_a_status_and_a_bug_shows_where_it_is_and_never_what_it_says(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    error: BaseException,
    status: int,
    last: str,
) -> None:
    def fail(*_: object) -> None:
        try:
            raise RuntimeError(f"a cause that quotes {SECRET}")
        except RuntimeError as cause:
            raise error from cause

    monkeypatch.setattr("reticent.cli.runs.execute", fail)
    assert command("index", "x.csv", "--out", tmp_path) == status
    shown = capfd.readouterr().err
    assert shown.rstrip("\n").rpartition("\n")[2] == last
    assert SECRET not in shown
    assert (", in fail" in shown) == ("internal error" in last)


def test_ctrl_c_ends_with_130_and_leaves_what_was_finished(run: Path, tmp_path: Path) -> None:
    code = (
        "import signal, sys; from reticent.engine import index; from reticent.cli import main\n"
        "def slow(*_, **__): print('indexing', flush=True); signal.pause()\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background jobs have it ignored
        "index.build_nested_indexes = slow; main()"
    )
    arguments = ["index", str(run.parent / "d.parquet"), "--out", str(tmp_path / "run")]
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "indexing\n"
        process.send_signal(signal.SIGINT)
        _, shown = process.communicate(timeout=20)
    assert process.returncode == 130
    assert shown.endswith("reticent: interrupted; what is finished is kept, and the same command goes on from there\n")
    assert "Traceback" not in shown
    assert sorted(path.name for path in (tmp_path / "run").glob("[!.]*")) == ["job.json", "spans", "split"]


def test_a_stdout_that_cannot_be_written_is_a_failure_without_a_traceback(run: Path) -> None:
    arguments = ["index", str(run.parent / "d.parquet"), "--out", str(run), "--json", "--quiet"]
    command = [sys.executable, "-c", "from reticent.cli import main; main()", *arguments]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=buffered)
    assert result.returncode == 1
    assert result.stderr == "reticent: system: No space left on device\n"


def test_closed_streams_and_a_locale_that_lacks_a_letter_end_without_a_traceback(run: Path) -> None:
    for closed, arguments, status in ((">&-", ["status", run], 0), ("<&-", ["redact"], 1)):
        command = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "reticent", *map(str, arguments)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (result.returncode, result.stderr) == (status, "reticent: stdin is closed; give a file\n" * status)
    command = [sys.executable, "-m", "reticent", "redact"]
    latin = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    result = subprocess.run(command, input="Dr. Müller – 5 €".encode(), capture_output=True, check=False, env=latin)
    assert result.stdout.decode() == "Dr. [NAME] – 5 €"  # a text is UTF-8, as it was read


def test_bars_and_colours_are_for_terminals_only(run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert command("index", run.parent / "d.parquet", "--out", tmp_path / "run") == 0
    shown = capfd.readouterr().err
    assert "\x1b" not in shown
    assert [line for line in shown.splitlines() if line.endswith("…")] == [
        "split …",
        "spans …",
        "index …",
        "index-joint …",
    ]


def test_the_example_of_every_command_is_a_line_that_the_command_takes() -> None:
    group: Any = typer.main.get_command(app)
    assert {name.split()[0] for name in EXAMPLES} == set(COMMANDS)
    for name, line in EXAMPLES.items():
        words = shlex.split(line.partition(" > ")[0])
        assert words[:1] + words[1 : 1 + len(name.split())][:1] == ["reticent", name.split()[0]]
        command_of: Any = group
        rest = words[1:]
        while rest and rest[0] in getattr(command_of, "commands", {}):
            command_of = command_of.commands[rest.pop(0)]
        parsed = command_of.make_context(name, rest)
        assert parsed.args == [], line
        assert not [p.name for p in command_of.params if p.required and parsed.params.get(p.name) is None], line


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("reticent do", "dossier"),
        ("reticent stat", "stats\nstatus"),
        ("reticent dossier ", ""),
        ("reticent nothing", ""),
    ],
)
def test_a_shell_completes_commands(
    typed: str, shown: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_RETICENT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(typed.count(" ")))
    assert command() == 0
    assert sorted(capfd.readouterr().out.split()) == shown.split()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"crpus": {}}, r"crpus: unknown field \(did you mean corpus\?\)"),
        ({"corpus": {"source": "x", "dialct": 1}}, r"corpus\.dialct: unknown field"),
        ({"index": {"max_m": 2}}, r"index\.max_m: unknown field \(did you mean max_n\?\)"),
        ({"k": 3}, r"job: k: unknown field \(did you mean protect\.k\?\)"),
        (
            {"audit": {"shadow": {"recipes": ["clm"], "num_shadow": 4}}},
            r"num_shadow: .* \(did you mean num_shadows\?\)",
        ),
        ({"model": [{"name": "a", "objective": "mlm", "recipies": []}]}, r"recipies: .* \(did you mean recipes\?\)"),
        ({"dossier": {"qqqq": 1}}, r"dossier\.qqqq: unknown field \(known: .*key"),
    ],
)
def test_an_unknown_field_of_a_job_is_told_which_known_one_is_like_it(values: dict[str, Any], said: str) -> None:
    with pytest.raises(errors.PolicyError, match=said):
        parse_job({"out": "run", "corpus": {"source": "notes.parquet"}, **values})


def test_stats_are_a_table_unless_json_is_asked_for(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert command("stats", run, "-q") == 0
    table = capfd.readouterr().out
    assert command("stats", run, "-q", "--json") == 0
    found = json.loads(capfd.readouterr().out)
    assert re.search(rf"^documents +{found['num_documents']}\b", table, re.MULTILINE)
    assert re.search(rf"^distinct words +{found['num_distinct_words']}\b", table, re.MULTILINE)
    assert "Words left to learn from" in table
    assert "left by indirect protection" in table, "direct identifiers are not taken off: they are no targets either"
    assert max(map(len, table.splitlines())) <= 80
    assert SECRET not in table


@pytest.mark.parametrize(
    "options", [(), ("--mlm", "bert-base"), ("notes.parquet", "--clm", "gpt2"), ("notes.parquet",)]
)
def test_a_minimal_job_is_short_whole_and_has_the_twin(
    options: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    assert command("new-job", *options, "--minimal", "--out", "here") == 0
    written = capfd.readouterr().out
    assert sum(not line.startswith("#") for line in written.splitlines()) < 35
    job = parse_job(tomllib.loads(written))
    (model,) = job.model
    assert model.recipes == (model.objective, f"pp{model.objective}")
    assert (job.out, model.objective) == ("here", "mlm" if "--mlm" in options else "clm")
    assert (model.foundation is None) == any(option.startswith("--") for option in options)
