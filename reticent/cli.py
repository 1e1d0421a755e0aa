"""The command line: parse, call, print. No stage's logic lives here; nothing heavy is imported before a command runs.

Exit status: 0 done, 1 failed, 2 usage, 3 a privacy gate failed, 130 interrupted, 143 or 129 stopped by SIGTERM, SIGHUP.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import traceback
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["app", "main"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Fine-tune language models on personal documents without ever teaching them who the people are, and measure
    by attack how much they still leak.

    Start with [bold]reticent demo[/bold]. For your own documents write a job file and use
    [bold]reticent run JOB.toml[/bold] (see the README), or go stage by stage: index, protect, train, audit.
    Exit status: 0 done, 1 failed, 2 a setting or an option is wrong, 130 interrupted, 143 terminated.""",
    rich_markup_mode="rich",
)


class Stage(Enum):
    """Stages of a job in order."""

    SPLIT = "split"
    DETECT = "detect"
    INDEX = "index"
    FOUNDATION = "foundation"
    PROTECT = "protect"
    TRAIN = "train"
    AUDIT = "audit"
    REPORT = "report"


Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but warnings and errors.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="Run folder; made if absent, private to you.")]
Seed = Annotated[int, typer.Option(min=0, metavar="<int>", help="Equal seeds give equal documents.")]
MemoryLimit = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="Memory the count of n-grams may use, e.g. 4GB; what does not fit goes to disk beside the results.",
    ),
]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder that an earlier command made.")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        "-s",
        metavar="SECTION.KEY=VALUE",
        help="Change one field of the job, e.g. protect.k=5 (may be repeated).",
    ),
]


@app.command()
def demo(
    out: Out = Path("demo-run"),
    seed: Annotated[
        int, typer.Option(min=0, metavar="<int>", help="Seed of the generated hospital and of everything after it.")
    ] = 0,
    individuals: Annotated[
        int | None, typer.Option(min=2, metavar="<int>", help="Size of the generated hospital (default: 120).")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Generate a small hospital, protect it, train with and without protection, attack, and write the report."""
    from reticent.demo import run_demo

    run = run_demo(out, seed=seed, num_individuals=individuals, progress=_progress(quiet))
    _print_summary(run.evidence, run.folder / "report" / "report.html")


@app.command()
def synth(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder to write: documents/, records.parquet, public/.")],
    individuals: Annotated[int, typer.Option(help="Number of individuals.")] = 1000,
    words_per_document: Annotated[int, typer.Option(help="Words a note has on average.")] = 150,
    documents_per_individual: Annotated[float, typer.Option(help="Notes an individual has on average.")] = 2.5,
    vocabulary: Annotated[
        int, typer.Option(help="Invented words that notes draw from, for a corpus as rich as a real one: 350000.")
    ] = 0,
    public_documents: Annotated[
        int, typer.Option(help="Documents of public text, for a stand-in foundation model.")
    ] = 0,
    language: Annotated[
        list[str] | None,
        typer.Option(metavar="LANGUAGE", help="en or fr; repeat for both, which is the default."),
    ] = None,
    seed: Seed = 0,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Generate the records of a hospital that does not exist, with gold spans of every identifier."""
    from reticent.artifact import write_artifact
    from reticent.engine.synthetic import SynthConfig, synthesize

    config = SynthConfig(
        num_individuals=individuals,
        words_per_document=words_per_document,
        documents_per_individual=documents_per_individual,
        vocabulary=vocabulary,
        public_documents=public_documents,
        languages=tuple(language or ("en", "fr")),
        seed=seed,
    )
    progress = _progress(quiet)
    settings = {
        "individuals": individuals,
        "words": words_per_document,
        "documents": documents_per_individual,
        "vocabulary": vocabulary,
        "public": public_documents,
        "languages": list(config.languages),
        "seed": seed,
    }
    with (
        progress.task("generate", individuals, "individuals") as advance,
        write_artifact(out, kind="synth", config=settings, inputs={}) as writer,
    ):
        writer.counts.update(synthesize(writer.path, config, progress=advance))
    _print_counts(writer.counts, out, as_json)


@app.command()
def run(
    job: Annotated[Path, typer.Argument(metavar="JOB.toml", help="The job file; see the README for one to copy.")],
    until: Annotated[
        Stage,
        typer.Option(metavar="STAGE", help=f"Stop after this stage: {', '.join(stage.value for stage in Stage)}."),
    ] = Stage.REPORT,
    memory_limit: MemoryLimit = None,
    settings: Set = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run a job: documents in; models, evidence and a report out. What is up to date is not run again."""
    _execute(_load(job, _limit(memory_limit) + (settings or [])), until.value, quiet, as_json)


@app.command()
def index(
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="File, folder or glob: Parquet, Arrow, CSV (commas, UTF-8) or JSONL."),
    ],
    out: Out,
    format: Annotated[
        str,
        typer.Option(
            metavar="FORMAT",
            help="parquet, arrow, csv, jsonl, or a format with marks of people, which are believed: i2b2-2006, "
            "i2b2-2014, meddocan, brat, tab; auto goes by the suffix.",
        ),
    ] = "auto",
    doc_id: Annotated[str, typer.Option(help="Column of the document's id.")] = "doc_id",
    individual_id: Annotated[str, typer.Option(help="Column that says whose document it is.")] = "individual_id",
    text: Annotated[str, typer.Option(help="Column of the text.")] = "text",
    household_id: Annotated[
        str | None,
        typer.Option(help="Column of a coarser unit, such as a household: it counts once and is never split up."),
    ] = None,
    spans: Annotated[
        str | None, typer.Option(help="Column of identifiers marked by people: lists of (start, end, label).")
    ] = None,
    records: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Parquet of record fields, a row an individual, found in that individual's documents."
        ),
    ] = None,
    max_n: Annotated[int, typer.Option(min=1, max=8, help="Longest n-gram that is counted, in words.")] = 1,
    memory_limit: MemoryLimit = None,
    settings: Set = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Split the individuals, find direct identifiers, and count how many individuals use each word and n-gram."""
    from reticent.config import CorpusSection

    corpus: dict[str, Any] = {
        "source": source,
        "format": format,
        "doc_id": doc_id,
        "individual_id": individual_id,
        "text": text,
        "household_id": household_id,
        "spans": spans,
    }
    marked = spans is not None or CorpusSection.model_construct(format=format).marked
    detectors = [*(["gold"] if marked else []), "rules", *(["records"] if records else [])]
    values: dict[str, Any] = {
        "out": str(out),
        "corpus": corpus,
        "detect": {"detectors": detectors, "records": records},
        "index": {"max_n": max_n},
    }
    if (out / "job.json").exists():  # what later commands chose stays theirs
        earlier = _read_job(out)
        values |= {name: earlier[name] for name in ("protect", "model", "train", "audit")}
    _execute(_job(values, _limit(memory_limit) + (settings or [])), "index", quiet, as_json)


@app.command()
def detect(
    source: Annotated[
        str | None,
        typer.Argument(metavar="SOURCE", help="Documents (file, folder or glob), a run folder, or a job file (.toml)."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Run folder to keep the spans of documents in; without it they are counted only."
        ),
    ] = None,
    detector: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="gold, rules, records, gazetteer, spacy, transformers, presidio or eds; repeat to unite several "
            "(default: rules, or what the job says). Options: --set detect.NAME.OPTION=VALUE.",
        ),
    ] = None,
    evaluate: Annotated[
        bool, typer.Option("--evaluate", help="Measure what is found against the spans that people marked.")
    ] = False,
    format: Annotated[
        str,
        typer.Option(
            help="auto (by the suffix), parquet, arrow, csv, jsonl, or one that brings gold spans: i2b2-2006, "
            "i2b2-2014, meddocan, brat, tab."
        ),
    ] = "auto",
    doc_id: Annotated[str, typer.Option(help="Column of the document's id.")] = "doc_id",
    individual_id: Annotated[str, typer.Option(help="Column that says whose document it is.")] = "individual_id",
    text: Annotated[str, typer.Option(help="Column of the text.")] = "text",
    spans: Annotated[
        str | None, typer.Option(help="Column of identifiers marked by people: lists of (start, end, label).")
    ] = None,
    records: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Parquet of record fields, a row an individual; adds the detector records."),
    ] = None,
    list_rules: Annotated[bool, typer.Option("--list-rules", help="Print what each rule finds, and stop.")] = False,
    settings: Set = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Find direct identifiers, count them by detector and category, and measure them against what people marked."""
    if list_rules:
        _print_rules(as_json)
        return
    from reticent.detection import detect_documents
    from reticent.errors import PolicyError

    if source is None:
        raise PolicyError("SOURCE is missing: documents, a run folder or a job file")
    path, earlier = Path(source), (Path(source) / "job.json").exists()
    if earlier or path.suffix == ".toml":
        from reticent.config import load_job

        if out is not None:
            raise PolicyError("--out: a run or a job has its own place")
        values = _read_job(path) if earlier else load_job(path).model_dump()
    else:
        columns = {"doc_id": doc_id, "individual_id": individual_id, "text": text, "spans": spans}
        values = _read_job(out) if out and (out / "job.json").exists() else {}  # what later commands chose stays theirs
        values |= {
            "out": str(out or "."),
            "corpus": {"source": source, "format": format, **columns},
            "detect": {"records": records},
        }
        detector = detector or ["rules"]
        detector = [*detector, "records"] if records and "records" not in detector else detector
    if detector:
        chosen = {name: table for name, table in values["detect"].items() if name not in _unchosen(detector)}
        values["detect"] = chosen | {"detectors": detector}
    keep = out is not None or earlier or path.suffix == ".toml"
    job = _job(values, settings)
    _print_detection(detect_documents(job, keep=keep, evaluate=evaluate, progress=_progress(quiet)), as_json)


@app.command()
def protect(
    run_folder: RunFolder,
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PATH", help="A base model: a name for it, and its folder or hub name; repeat for several."
        ),
    ] = None,
    recipe: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RECIPE",
            help="What these models will be trained with; repeat for several of one objective. mlm, clm: plain; "
            "mlma, clma: X for direct identifiers; dpp-, ipp-, ppmlm or -clm: direct, indirect, both never targets.",
        ),
    ] = None,
    k: Annotated[
        int | None, typer.Option(help="What fewer than k individuals use identifies them, 2 to 255 (at first 2).")
    ] = None,
    n: Annotated[
        int | None, typer.Option(help="Longest n-gram that can identify, at most --max-n of the index (at first 1).")
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            help="Protected words of a minimal identifying n-gram: all, the last, or the fewest that meet each "
            "(cover); paper: all words of every identifying n-gram, minimal or not (at first all)."
        ),
    ] = None,
    settings: Set = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Flag every token that must never be a target, for each base model's tokenizer."""
    from reticent.errors import PolicyError

    changes = [
        f"protect.{key}={json.dumps(value)}"
        for key, value in (("k", k), ("n", n), ("policy", policy))
        if value is not None
    ]
    values = _read_job(run_folder)
    if recipe and not model:
        raise PolicyError("--recipe: belongs to --model NAME=PATH; give both")
    if model:
        values["model"] = _models(model, recipe or [])
    _execute(_job(values, [*changes, *(settings or [])]), "protect", quiet, as_json)


@app.command()
def train(
    run_folder: RunFolder,
    epochs: Annotated[int | None, typer.Option(help="Passes over the members' documents (at first 8).")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Peak; falls linearly to 0 (at first 1e-4).")] = None,
    settings: Set = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Fine-tune every model of the run with its recipes; checkpoints are plain transformers folders."""
    changes = [f"train.num_epochs={epochs}"] if epochs is not None else []
    changes += [f"train.learning_rate={learning_rate}"] if learning_rate is not None else []
    _execute(_job(_read_job(run_folder), [*changes, *(settings or [])]), "train", quiet, as_json)


@app.command()
def audit(run_folder: RunFolder, settings: Set = None, quiet: Quiet = False, as_json: AsJson = False) -> None:
    """Attack every checkpoint of the run, and its base models, and write the report."""
    _execute(_job(_read_job(run_folder), settings), "report", quiet, as_json)


@app.command()
def report(run_folder: RunFolder, quiet: Quiet = False, as_json: AsJson = False) -> None:
    """Write report.json and report.html again from a finished audit."""
    from reticent.job import Run

    job_run = Run(_job(_read_job(run_folder), None), _progress(quiet))
    job_run.report()
    _print_summary(job_run.evidence, job_run.folder / "report" / "report.html", as_json)


@app.command()
def stats(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|JOB.toml",
            help="A run folder that has its index, or a job file, whose documents are split, searched and indexed "
            "first. Neither needs a model.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Folder for stats.json and its figures (SVG, PNG); without it the JSON is printed."
        ),
    ] = None,
    settings: Set = None,
    quiet: Quiet = False,
) -> None:
    """Count what identifies people in the documents: by person, word and n; how near to the line; what is left to
    learn from; and how often a few words that many people use still point to one person. No count of few people.
    """
    from reticent.audit.corpus_plots import write_corpus_plots
    from reticent.audit.report import published_corpus
    from reticent.job import Run
    from reticent.stages import corpus_section

    if source.is_file():
        job_run = Run(_load(source, settings), _progress(quiet))
        job_run.execute("index")
    else:
        job_run = Run(_job(_read_job(source), settings), _progress(quiet))
    found = json.dumps(published_corpus(corpus_section(job_run), job_run.job.audit.small_cell), indent=1)
    if out is None:
        print(found)
        return
    out.mkdir(parents=True, exist_ok=True)
    (out / "stats.json").write_text(found + "\n", encoding="utf-8")
    for path in [out / "stats.json", *write_corpus_plots(json.loads(found), out)]:
        print(path)


def main() -> None:
    """Entry point: map errors to exit codes; a traceback is for bugs only."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.umask(0o077)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # `nohup` has it ignored
            signal.signal(number, _stop)
    from reticent.errors import ReticentError

    try:
        try:
            app(standalone_mode=True)
        finally:
            sys.stdout.flush()
    except SystemExit as end:
        if end.code in (129, 130, 143):  # a signal; 130 is Ctrl-C, which typer turns into this
            print("reticent: interrupted; finished stages are kept", file=sys.stderr)
        raise
    except ReticentError as error:
        print(f"reticent: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BaseException as error:
        if isinstance(error, OSError) and error.errno is not None:
            if error.errno in (errno.EPIPE, errno.ENOSPC):  # stdout may be what cannot be written, by `| head` say
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            print(f"reticent: {error.filename or 'system'}: {os.strerror(error.errno)}", file=sys.stderr)
        else:  # a bug; a library's message may quote a document, so what is shown is where it happened
            traceback.print_tb(error.__traceback__)
            print(f"reticent: internal error ({type(error).__name__}); its message is withheld", file=sys.stderr)
        sys.exit(1)


def _stop(number: int, _: object) -> None:
    """Leave as after Ctrl-C, with nothing half written."""
    raise SystemExit(128 + number)


# --------------------------------------------------------------------------- helpers of the commands


def _progress(quiet: bool) -> Any:
    from reticent.progress import Progress

    return Progress(quiet=quiet)


def _read_job(run_folder: Path) -> dict[str, Any]:
    from reticent.config import load_job
    from reticent.errors import ArtifactError

    if not (run_folder / "job.json").exists():
        raise ArtifactError(
            f"{run_folder}: not a run folder (no job.json); start with `reticent index` or `reticent run`"
        )
    return {**load_job(run_folder / "job.json").model_dump(), "out": str(run_folder)}


def _limit(memory_limit: str | None) -> list[str]:
    return [] if memory_limit is None else [f"memory_limit={json.dumps(memory_limit)}"]


def _load(path: Path, settings: list[str] | None) -> Any:
    from reticent.config import load_job

    return _job(load_job(path).model_dump(), settings)


def _job(values: dict[str, Any], settings: list[str] | None) -> Any:
    """Apply SECTION.KEY=VALUE changes to a job; values are TOML, and a bare word is a string."""
    import tomllib

    from reticent.config import parse_job
    from reticent.errors import PolicyError

    for change in settings or []:
        name, equals, text = change.partition("=")
        if not equals:
            raise PolicyError(f"--set {name}: expected SECTION.KEY=VALUE")
        try:
            value = tomllib.loads(f"x = {text}")["x"]
        except tomllib.TOMLDecodeError:
            value = text
        *sections, key = name.split(".")
        target: Any = values
        for section in sections:
            target = target.setdefault(section, {}) if isinstance(target, dict) else None
            if not isinstance(target, dict):
                raise PolicyError(f"--set {name}: no such section of a job")
        target[key] = value
    return parse_job(values)


def _models(models: list[str], recipes: list[str]) -> list[dict[str, Any]]:
    from reticent.errors import PolicyError
    from reticent.trainer.recipes import get_recipe

    sections = []
    for model in models:
        name, equals, base = model.partition("=")
        if not equals:
            raise PolicyError("--model: expected NAME=PATH")
        objectives = {get_recipe(recipe).objective for recipe in recipes}
        if len(objectives) != 1:
            raise PolicyError("--recipe: give at least one recipe, all of one objective (mlm or clm)")
        sections.append({"name": name, "base": base, "objective": objectives.pop(), "recipes": recipes})
    return sections


def _execute(job: Any, until: str, quiet: bool, as_json: bool) -> None:
    from reticent.job import Run

    job_run = Run(job, _progress(quiet))
    folder = job_run.execute(until)
    if until == "report":
        _print_summary(job_run.evidence, folder / "report" / "report.html", as_json)
    elif as_json:
        from reticent.artifact import read_manifest

        manifests = sorted(folder.rglob("manifest.json"))
        print(
            json.dumps(
                {str(m.parent.relative_to(folder)): read_manifest(m.parent).counts for m in manifests},
                indent=1,
            )
        )


def _unchosen(detectors: list[str]) -> set[str]:
    """Detectors whose options a choice of other ones leaves behind."""
    from reticent.engine.detect import DETECTORS

    return set(DETECTORS) - set(detectors)


def _print_rules(as_json: bool) -> None:
    from reticent.engine.detect.rules import list_rules

    rules = [rule._asdict() for rule in list_rules()]
    if as_json:
        print(json.dumps(rules, indent=1))
        return
    from rich.console import Console

    from reticent.audit.detection_table import rules_table

    Console().print(rules_table(rules))


def _print_detection(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(found, indent=1))
        return
    from rich.console import Console

    from reticent.audit.detection_table import counts_table, evaluation_tables

    console = Console()
    console.print(counts_table(found["spans"]))
    for table in evaluation_tables(found["evaluation"]) if "evaluation" in found else ():
        console.print(table)
    if found["folder"]:
        console.print(f"Spans: {found['folder']}", soft_wrap=True)


def _print_counts(counts: dict[str, Any], folder: Path, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"folder": str(folder), **counts}))
    else:
        print(f"{folder}: " + ", ".join(f"{value:,} {key}" for key, value in counts.items() if isinstance(value, int)))


def _print_summary(evidence: dict[str, Any], page: Path, as_json: bool = False) -> None:
    """Print the last checkpoint of each recipe, the ledger, and where the report is."""
    if as_json:
        print(json.dumps(evidence))
        return
    from rich.console import Console

    from reticent.audit.summary import ledger_line, summary_table

    console = Console()
    console.print(summary_table(evidence))
    if line := ledger_line(evidence):
        console.print(line, soft_wrap=True)
    console.print(f"Report: {page}", soft_wrap=True)
