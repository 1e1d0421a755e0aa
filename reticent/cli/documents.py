"""The commands on documents: generate, detect identifiers, count copies, scrub, count identifying words. No model is
needed.
"""

from __future__ import annotations

import json
import shlex
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from reticent.audit.evidence.json_form import to_json
from reticent.audit.evidence.rules import publish
from reticent.audit.evidence.sampled import SampledRecall
from reticent.cli.help import CommandWithOthers, example_of, subcommands_app
from reticent.cli.options import (
    AsJson,
    Detector,
    Quiet,
    RunFolder,
    Seed,
    Set,
    SourceOrJob,
    is_job,
    job_from_source,
    job_of,
    new_progress,
    read_job,
)
from reticent.cli.show import (
    print_copies,
    print_counts,
    print_detection,
    print_rules,
    print_statistics,
    sampled_lines,
    sampled_table,
    write_statistics,
)
from reticent.core.artifact import write_artifact
from reticent.core.errors import PolicyError
from reticent.engine.dedup import find_copies, write_left_out
from reticent.engine.names import SYLLABLES, SurrogateNames
from reticent.engine.pseudonymize import DateOptions
from reticent.engine.synthetic import SynthConfig, synthesize
from reticent.ext.learn.command import learn_in_run
from reticent.ext.learn.show import print_learned
from reticent.ext.scrub.command import scrub_documents
from reticent.ext.scrub.scrub import ScrubConfig, key_of_seed, read_key
from reticent.job.checks import refuse_ineffective_scope
from reticent.job.config import Job
from reticent.job.detection import detect_documents
from reticent.job.pipeline import execute
from reticent.job.run import Run

#: Settings that the identifiers found in documents depend on; `reticent detect` finds them with canaries too.
SEARCHED = ("corpus", "dedup", "detect", "protect.k", "protect.scopes", "index.surface", "num_threads")


class ScrubStyle(Enum):
    """What replaces an identifier (option --style)."""

    X = "x"
    TAG = "tag"
    SURROGATE = "surrogate"
    ROTATE = "rotate"


class DateOrder(Enum):
    """Order of day and month in numeric dates such as 03/04/2019."""

    AUTO = "auto"
    DMY = "dmy"
    MDY = "mdy"


def synth(
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT",
            help="Folder to write: documents/ and records.parquet; public/ and diagnoses with their options.",
        ),
    ],
    individuals: Annotated[int, typer.Option(help="Number of individuals.")] = 1000,
    words_per_document: Annotated[int, typer.Option(help="Words a note has on average.")] = 150,
    documents_per_individual: Annotated[float, typer.Option(help="Notes an individual has on average.")] = 2.5,
    vocabulary: Annotated[
        int,
        typer.Option(help="Number of invented words that notes also draw from; 350000 is as rich as a real corpus."),
    ] = 0,
    public_documents: Annotated[
        int, typer.Option(help="Documents of public text, for a stand-in foundation model.")
    ] = 0,
    diagnoses: Annotated[
        bool,
        typer.Option(
            "--diagnoses", help="Also diagnoses that are independent of everything else, for \\[audit.diagnoses]."
        ),
    ] = False,
    language: Annotated[
        list[str] | None,
        typer.Option(metavar="LANGUAGE", help="en or fr; repeat for both, which is the default."),
    ] = None,
    seed: Seed = 0,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Generate the records of a hospital that does not exist, with gold spans of every identifier."""
    config = SynthConfig(
        num_individuals=individuals,
        words_per_document=words_per_document,
        documents_per_individual=documents_per_individual,
        vocabulary=vocabulary,
        public_documents=public_documents,
        diagnoses=diagnoses,
        languages=tuple(language or ("en", "fr")),
        seed=seed,
    )
    progress = new_progress(quiet)
    settings = {
        "individuals": individuals,
        "words": words_per_document,
        "documents": documents_per_individual,
        "vocabulary": vocabulary,
        "public": public_documents,
        **({"diagnoses": True} if diagnoses else {}),
        "languages": list(config.languages),
        "seed": seed,
    }
    with (
        progress.task("generate", individuals, "individuals") as advance,
        write_artifact(out, kind="synth", config=settings, inputs={}) as writer,
    ):
        writer.counts.update(synthesize(writer.path, config, progress=advance))
    print_counts(writer.counts, out, as_json)


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
    evaluate: Annotated[
        bool, typer.Option("--evaluate", help="Measure what is found against annotated spans.")
    ] = False,
    list_rules: Annotated[bool, typer.Option("--list-rules", help="Print what each rule finds, and stop.")] = False,
    *,
    detector: Detector = None,
    settings: Set = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Find direct identifiers, count them by detector and category, and measure them against annotations.

    Commands below it: [bold]reticent detect sample RUN[/bold] draws documents for annotators,
    [bold]reticent detect evaluate RUN ANNOTATION[/bold] says what detection misses, from their corrections.
    """
    if list_rules:
        print_rules(as_json)
        return

    if source is None:
        raise PolicyError("SOURCE is missing: documents, a run folder or a job file")
    own = is_job(source)
    if own and out is not None:
        raise PolicyError("--out: a run or a job has its own place")
    # Settings of later commands stay as they were.
    keep = ("seed", "dedup", "split", "index", "protect", "model", "train", "classify", "tag", "audit")
    kept = own or out is not None
    used = (*SEARCHED, "split", "canaries", "seed", *(["audit.num_bootstrap"] if evaluate else []))
    job = job_from_source(source, out, detector, keep=keep, settings=settings, used=None if kept else used)
    if not (kept or evaluate or "gold" in job.detect.detectors) and job.corpus.spans is not None:
        raise PolicyError("corpus.spans: has no effect without --evaluate or --detector gold")
    result = detect_documents(job, keep=kept, evaluate=evaluate, progress=new_progress(quiet))
    print_detection(result, as_json)


def dedup(
    source: SourceOrJob,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for the counts and left_out.parquet; private to you.")
    ] = None,
    *,
    settings: Set = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Count copies of documents and passages, within individuals and across them, and how they weaken protection.

    Nothing is changed: a job leaves out what its section \\[dedup] says. The same settings count here, such as --set
    dedup.mode=near or dedup.passage_words=50.
    """
    progress = new_progress(quiet)
    used = ("corpus", "dedup", "protect.k", "index.surface", "num_threads")
    run = Run(job_from_source(source, None, settings=settings, used=used), progress)
    refuse_ineffective_scope(run.job.dedup)
    with progress.task("dedup", run.whole_corpus.num_documents, "documents") as advance:
        found = find_copies(run.whole_corpus, run.job.dedup, progress=advance)
    if out is not None:
        inputs = {"corpus": run.whole_corpus.fingerprint()}
        with write_artifact(out, kind="dedup", config=run.job.dedup.all_values(), inputs=inputs) as writer:
            write_left_out(found.left_out, writer.path)
            writer.counts.update(found.counts, **run.whole_corpus.reading.skipped())
    print_copies({**found.counts, **run.whole_corpus.reading.skipped()}, as_json)


def scrub(
    source: SourceOrJob,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder to write: documents/, offsets.parquet; private to you.")
    ],
    style: Annotated[
        ScrubStyle,
        typer.Option(
            metavar="STYLE",
            help="x: X for each word. tag: [NAME], [DATE] and so on. surrogate: the same other name for the same "
            "name, in all documents of one individual. rotate: drawn afresh at every occurrence.",
        ),
    ] = ScrubStyle.SURROGATE,
    shift_dates: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="DAYS",
            help="Move all dates of an individual by the same number of days, -DAYS to DAYS but not 0: intervals stay. "
            "Otherwise each date moves on its own. A date that cannot be read becomes [DATE].",
        ),
    ] = None,
    date_order: Annotated[
        DateOrder,
        typer.Option(
            metavar="ORDER",
            help="How 03/04/2019 is read: dmy, mdy; auto: as the document's other dates, else as most of the corpus.",
        ),
    ] = DateOrder.AUTO,
    names: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="realistic (default): names from public lists, among which a missed one is hard to find. syllables: "
            "names that nobody bears. Or a file of names. Of a job: what its section \\[surrogates] says.",
        ),
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(
            metavar="LANGUAGE", help="Language of realistic names, such as en or fr; auto: that of most documents."
        ),
    ] = None,
    draw: Annotated[int, typer.Option(min=0, metavar="<int>", help="Which draw, for rotate: an epoch's number.")] = 0,
    new_ids: Annotated[
        bool,
        typer.Option(
            "--new-ids",
            help="Replace doc_id, individual_id and household_id too, which may name people themselves. "
            "They are kept otherwise.",
        ),
    ] = False,
    keep_key: Annotated[
        bool,
        typer.Option(
            "--keep-key",
            help="Keep the secret key in OUT/scrub.key, so that later documents get the same surrogates. Who has it "
            "can test who a surrogate is; without this option it is thrown away.",
        ),
    ] = False,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace what an earlier scrub wrote to OUT; a key it kept is taken again."),
    ] = False,
    renew_key: Annotated[
        bool, typer.Option("--new-key", help="With --overwrite: give up the key that is kept in OUT.")
    ] = False,
    key: Annotated[
        Path | None, typer.Option("--key", metavar="FILE", help="Take the key that an earlier scrub kept.")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, metavar="<int>", help="For tests: a key that anyone who knows the seed can make."),
    ] = None,
    *,
    detector: Detector = None,
    settings: Set = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Replace direct identifiers in documents by X, tags or surrogates, and write the documents with the new spans.

    Only what a detector finds is replaced: look at `reticent detect --evaluate` before you hand anything on. Other
    mapped columns are kept; columns that are not mapped are left out. OUT/offsets.parquet maps characters back. Of
    fhir:// and hl7:// OUT/export has resources or messages again, of the ids and the text alone.
    """
    if key is not None and seed is not None:
        raise PolicyError("--key and --seed: give one of them")
    if renew_key and not overwrite:
        raise PolicyError("--new-key: belongs to --overwrite")
    _refuse_ineffective(
        style, names, language, date_order, draw, keeps_key=(keep_key or key is not None) and not new_ids
    )
    if is_job(source) and detector:
        raise PolicyError("--detector: a run or a job has its own; change it with --set detect.detectors=[...]")
    job = job_from_source(source, None, detector, marked=True, settings=settings, used=SEARCHED)
    if language is not None and (names or job.surrogates.names) == SYLLABLES:
        raise PolicyError("--language: of realistic names; those of syllables have none")
    config = ScrubConfig(
        style=style.value,
        names=SurrogateNames(source=names or job.surrogates.names, language=language or job.surrogates.language),
        draw=draw,
        dates=DateOptions(shift_days=shift_dates, order=date_order.value),
        new_ids=new_ids,
    )
    secret = read_key(key) if key is not None else None if seed is None else key_of_seed(seed)
    progress = new_progress(quiet)
    counts = scrub_documents(
        job, out, config, in_run_folder=is_job(source), progress=progress, key=secret, keep_key=keep_key,
        overwrite=overwrite, renew_key=renew_key,
    )  # fmt: skip
    print_counts(counts, out, as_json)


def _refuse_ineffective(
    style: ScrubStyle, names: str | None, language: str | None, date_order: DateOrder, draw: int, *, keeps_key: bool
) -> None:
    """Raise `PolicyError` for options that have no effect with this scrub style."""

    if style in (ScrubStyle.X, ScrubStyle.TAG):
        of_surrogates = {
            "--names": names is not None,
            "--language": language is not None,
            "--date-order": date_order != DateOrder.AUTO,
        }
        if given := [option for option, is_given in of_surrogates.items() if is_given]:
            raise PolicyError(f"{', '.join(given)}: about surrogates; --style {style.value} puts none in")
        if keeps_key:
            raise PolicyError(
                f"--key, --keep-key: nothing depends on the key in --style {style.value} without --new-ids"
            )
    if draw and style != ScrubStyle.ROTATE:
        raise PolicyError(f"--draw: belongs to --style rotate; --style {style.value} has one draw")


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
        typer.Option("--out", "-o", help="Folder for stats.json and its figures (SVG, PNG)."),
    ] = None,
    settings: Set = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Count what identifies people in the documents: by person, word and n-gram.

    Also how near to the line words are, what is left to learn from, and how often a few words that many people use
    still point to one person. No count of few people is shown.
    """
    from reticent.job.stages.audit import corpus_section

    used = None if source.is_file() else ("protect", "audit.small_cell", "seed", "num_threads")
    run = Run(job_of(read_job(source), settings, used), new_progress(quiet))
    if source.is_file():
        execute(run, "index")
    corpus = publish(corpus_section(run), run.job.audit.small_cell)
    found = json.dumps(to_json(corpus), indent=1)
    if as_json:
        print(found)
    elif out is None:
        print_statistics(corpus)
    if out is None:
        return
    for path in write_statistics(corpus, found, out):
        if not as_json:
            print(path)


# -------------------------------------------------------------------------------------------------------------- sample
#
# The commands below `reticent detect`: documents for annotators, and what their corrections say.


#: Folder of a run for annotators, where the user names no other.
FOLDER = "annotation"

_app = subcommands_app()


class DetectCommand(CommandWithOthers):
    """`reticent detect`, with the commands below it."""

    app = _app


@_app.command(epilog=example_of("detect sample"))
def sample(
    run: RunFolder,
    documents: Annotated[int, typer.Option(min=2, metavar="<int>", help="Documents to draw.")] = 100,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Folder for annotators, with the text of the documents; private to you (default: RUN/annotation).",
        ),
    ] = None,
    disagreement: Annotated[
        bool, typer.Option("--disagreement", help="Draw more of the documents in which detectors disagree.")
    ] = False,
    seed: Seed = 0,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Draw documents of a run for annotators: a page that works without a network, and BRAT.

    What was found is marked in them. Correct it in annotate.html, save the file, and give it to
    [bold]reticent detect evaluate[/bold].
    """
    from reticent.ext.annotate.command import sample_documents

    out = run / FOLDER if out is None else out
    counts = sample_documents(
        _load_run_job(run), out, documents, seed=seed, by_disagreement=disagreement, progress=new_progress(quiet)
    )
    if as_json:
        print(json.dumps({"folder": str(out), **counts}))
    else:
        print(f"{out}: {counts['documents']:,} of {counts['of']:,} documents, of {counts['strata']} strata")
        page, of = out / "annotate.html", shlex.quote(str(run))
        print(f"Correct {page} in a browser and save it; then: reticent detect evaluate {of} FILE")


@_app.command(epilog=example_of("detect evaluate"))
def evaluate(
    run: RunFolder,
    annotations: Annotated[
        list[Path],
        typer.Argument(
            metavar="ANNOTATION",
            help="A file that the page saved, or the folder of BRAT; of two annotators, both.",
        ),
    ],
    all_reviewed: Annotated[
        bool,
        typer.Option(
            "--all-reviewed",
            help="Of BRAT: every document was reviewed, also those in which no mark was changed. They are refused "
            "otherwise. The result says so.",
        ),
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Measure detection against annotators' marks: its recall, and how many identifiers it misses in all documents.

    The result is kept in the run, and the report shows it.
    """
    from reticent.ext.annotate.command import evaluate_sample

    found = evaluate_sample(_load_run_job(run), annotations, new_progress(quiet), all_reviewed=all_reviewed)
    _print_recall(found, as_json)


@_app.command(epilog=example_of("detect learn"))
def learn(
    run: RunFolder,
    marks: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Documents that people marked: what annotators of `reticent detect sample` gave back, or others, in "
            "BRAT or any format with marks (--set detect.learned.marks_format=i2b2-2014).",
        ),
    ] = None,
    teacher: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A preset or a detector whose finds in drawn documents are taken for marks."),
    ] = None,
    documents: Annotated[
        int | None, typer.Option(min=2, metavar="<int>", help="Documents to draw for the teacher (default: 2000).")
    ] = None,
    settings: Set = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Train a tagger of identifiers on marked documents, and use it beside the run's other detectors.

    The run keeps it: `reticent run` tags with it from now on.
    """
    values = read_job(run)
    own = {"marks": marks and str(marks), "teacher": teacher, "documents": documents}
    values["detect"] = with_tagger(values["detect"], {name: value for name, value in own.items() if value is not None})
    print_learned(learn_in_run(job_of(values, settings), new_progress(quiet)), as_json)


def with_tagger(section: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Return the section [detect] of a job (as a dictionary) with the trained tagger added as the detector ``learned``,
    whose options are changed to ``options``."""
    table = {**(section.get("learned") or {}), **options}
    table.pop("model", None)
    names = [*section["detectors"], *(["learned"] if "learned" not in section["detectors"] else [])]
    changed = {**section, "learned": table, "detectors": names}
    if section.get("preset"):
        changed.pop("detectors")
    return changed


def _load_run_job(run: Path) -> Job:
    """Return the job of a run folder."""
    return job_of(read_job(run), None)


def _print_recall(found: SampledRecall, as_json: bool) -> None:
    """Print the recall that was measured on a sample, as tables or JSON."""
    if as_json:
        print(json.dumps(to_json(found), indent=1))
        return

    console = Console()
    console.print(sampled_table(found))
    for line in sampled_lines(found):
        console.print(line, soft_wrap=True)
