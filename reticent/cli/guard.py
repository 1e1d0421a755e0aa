"""The commands of the output guard: ``reticent guard build`` and ``reticent guard check``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from reticent.cli.help import example_of
from reticent.cli.options import (
    AsJson,
    Quiet,
    Set,
    SourceOrJob,
    is_job,
    job_from_source,
    job_of,
    new_progress,
    only_detectors,
    read_text,
)
from reticent.core.artifact import fingerprint, require_kind, write_artifact
from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.detect import DETECTORS, make_detectors
from reticent.engine.schema import MEMBERS
from reticent.engine.verbatim import build_verbatim, write_verbatim
from reticent.guard import built_detectors, guard_detectors, open_guard, refuse_detectors
from reticent.job.run import Run

guard_app = typer.Typer(
    no_args_is_help=True,
    help="""Keep training text and identifiers out of what a model says.

    Build the index of the training documents, then check texts against it; in Python, reticent.guard.GuardedModel
    does so while it generates. Only what is generated is read, not the prompt. The folder of a guard answers whether a
    text was trained on: keep it as private as the documents.""",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@guard_app.command(epilog=example_of("guard build"))
def build(
    source: SourceOrJob,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the guard; private to you.")],
    length: Annotated[
        int, typer.Option(min=16, max=4096, metavar="<int>", help="Characters from which on a match is verbatim.")
    ] = 50,
    detector: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="What looks for identifiers: rules, gazetteer, context, learned, shipped, spacy, transformers, "
            "presidio or eds; repeat for more (default: the job's but gold and records, which need more than a text; "
            "else rules).",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=(1 << 64) - 1, metavar="<int>", help="Key of the hashes.")] = 0,
    *,
    settings: Set = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Index every passage of the training documents by keyed hashes, two bytes a byte of text, without the text.

    Of a run the members' documents are taken; of other documents all.
    """
    job = job_from_source(source, None, detector, settings=settings, used=("corpus", *_used_settings()))
    if detector:
        refuse_detectors(detector)
    detectors = guard_detectors(job.detect.detectors, job.detect.options)
    make_detectors(list(detectors), detectors)  # a missing package or file is an error now
    run = Run(job)
    corpus, keep, inputs = _open_training_documents(run, members_only=is_job(source))
    config = {"length": length, "key": seed, "detect": detectors}
    with (
        new_progress(quiet).task("guard", corpus.num_documents, "documents") as advance,
        write_artifact(out, kind="guard", config=config, inputs=inputs) as writer,
    ):
        index = build_verbatim(corpus, keep=keep, length=length, key=seed, progress=advance)
        writer.counts.update(write_verbatim(index, writer.path), error=index.error)
        counts = {"documents": int(keep.sum()) if keep is not None else corpus.num_documents, **writer.counts}
        counts.update(corpus.reading.skipped())
        writer.counts.update(counts)
        run.require_unchanged()
    if as_json:
        print(json.dumps({"folder": str(out), **counts}))
    else:
        print(
            f"{out}: {counts['documents']:,} documents, {counts['num_bytes']:,} bytes; finds every match of {length} "
            f"characters; text that shares no {length - 7} characters is taken for one at {counts['error'] ** 8:.0e} a "
            f"character; detectors: {', '.join(detectors)}"
        )


@guard_app.command(epilog=example_of("guard check"))
def check(
    guard: Annotated[Path, typer.Argument(metavar="GUARD", help="Folder that guard build made.")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="Text (UTF-8) to check; - is stdin.")] = "-",
    identifiers: Annotated[
        bool, typer.Option("--identifiers/--verbatim-only", help="Look for identifiers as well.")
    ] = True,
    detector: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="What looks for identifiers; repeat for several (default: as guard build)."),
    ] = None,
    settings: Set = None,
) -> None:
    """Print as JSON where a text repeats training documents or has identifiers, not which. Exit status 3 if it does."""
    if not identifiers and (detector or settings):
        raise PolicyError("--detector, --set: about identifiers, which --verbatim-only does not look for")
    detectors: Any = None if identifiers else ()
    if detector or settings:
        detectors = _make_detectors(guard, detector, settings)
    opened, text = open_guard(guard, detectors), read_text(file)
    (findings,) = opened.find([text])
    print(json.dumps({"characters": len(text), "findings": [asdict(finding) for finding in findings]}))
    if findings:
        raise typer.Exit(3)


def _make_detectors(guard: Path, names: list[str] | None, settings: list[str] | None) -> list[Any]:
    """Return the detectors of a guard, or those with these ``names`` instead, after their options are checked like a
    job's."""
    detect: dict[str, Any] = built_detectors(guard)
    detect["detectors"] = list(detect)
    if names:
        refuse_detectors(names)
        detect = only_detectors(detect, names) | {"detectors": names}
    job = job_of({"out": ".", "corpus": {"source": "."}, "detect": detect}, settings, used=_used_settings())
    return make_detectors(job.detect.detectors, job.detect.options, num_threads=1)


def _used_settings() -> tuple[str, ...]:
    """Return the names of the job's settings that have an effect when a guard is built: the detectors and their
    options.

    Generated text is no corpus to propagate names in, and none of it is quarantined.
    """
    options = dict.fromkeys((*DETECTORS, *(key for row in DETECTORS.values() for key in row.short)))
    return ("detect.detectors", "detect.preset", *(f"detect.{name}" for name in options))


def _open_training_documents(run: Run, *, members_only: bool) -> tuple[Any, Any, dict[str, str]]:
    """Return the corpus, a bool mask of the documents to index (None: all) and fingerprints of the inputs. With
    ``members_only`` the mask selects the documents of the run's members."""
    if not members_only:
        return run.whole_corpus, None, {"corpus": run.whole_corpus.fingerprint()}
    split = require_kind(run.folder / "split", "split")
    if split.inputs.get("corpus") != run.deduplicated.fingerprint():
        raise CorpusError(
            f"{run.folder}: its documents have changed since they were split, so its models were not trained on them; "
            "run the job again"
        )
    codes = run.individuals.individual_codes(run.corpus.scan().column("individual_id").combine_chunks())
    inputs = {"corpus": run.corpus.fingerprint(), "split": fingerprint(run.folder / "split")}
    return run.corpus, run.individuals.mask(MEMBERS)[codes], inputs
