"""The commands of the output guard: ``reticent guard build`` and ``reticent guard check``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["guard_app"]

guard_app = typer.Typer(
    no_args_is_help=True,
    help="""Keep training text and identifiers out of what a model says: build the index of the training documents, then
    check texts against it. In Python: reticent.audit.guard.GuardedModel.""",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@guard_app.command()
def build(
    source: Annotated[
        str,
        typer.Argument(
            metavar="RUN|SOURCE", help="A run folder, whose members' documents are taken; or documents, all of them."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the guard; private to you.")],
    length: Annotated[
        int, typer.Option(min=16, max=4096, metavar="<int>", help="Characters from which on a match is verbatim.")
    ] = 50,
    doc_id: Annotated[str, typer.Option(help="Column of the document's id (of SOURCE).")] = "doc_id",
    individual_id: Annotated[str, typer.Option(help="Column that says whose document it is.")] = "individual_id",
    text: Annotated[str, typer.Option(help="Column of the text.")] = "text",
    seed: Annotated[int, typer.Option(min=0, metavar="<int>", help="Key of the hashes.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but warnings and errors.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")] = False,
) -> None:
    """Index every stretch of the training documents, by keyed hashes: one byte a byte of text, and none of the text."""
    from reticent.artifact import write_artifact
    from reticent.engine.verbatim import build_verbatim, write_verbatim
    from reticent.progress import Progress

    corpus, keep, inputs = _training(source, {"doc_id": doc_id, "individual_id": individual_id, "text": text})
    config = {"length": length, "key": seed}
    with (
        Progress(quiet=quiet).task("guard", corpus.num_documents, "documents") as advance,
        write_artifact(out, kind="guard", config=config, inputs=inputs) as writer,
    ):
        index = build_verbatim(corpus, keep=keep, length=length, key=seed, progress=advance)
        writer.counts.update(write_verbatim(index, writer.path), error=index.error)
        counts = {"documents": int(keep.sum()) if keep is not None else corpus.num_documents, **writer.counts}
        writer.counts.update(counts)
    if as_json:
        print(json.dumps({"folder": str(out), **counts}))
    else:
        print(
            f"{out}: {counts['documents']:,} documents, {counts['num_bytes']:,} bytes; finds every match of {length} "
            f"characters; text that shares no {length - 7} characters is taken for one at {counts['error'] ** 8:.0e} a "
            "character"
        )


@guard_app.command()
def check(
    guard: Annotated[Path, typer.Argument(metavar="GUARD", help="Folder that guard build made.")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="Text (UTF-8) to check; - is stdin.")] = "-",
    identifiers: Annotated[
        bool, typer.Option("--identifiers/--verbatim-only", help="Look for identifiers by rules as well.")
    ] = True,
) -> None:
    """Print what is found in a text as JSON: where and of what category, never what. Exit status 3 if anything is."""
    from dataclasses import asdict

    from reticent.audit.guard import open_guard

    text = _read(file)
    (findings,) = open_guard(guard, None if identifiers else ()).find([text])
    print(json.dumps({"characters": len(text), "findings": [asdict(finding) for finding in findings]}))
    if findings:
        raise typer.Exit(3)


def _training(source: str, columns: dict[str, str]) -> tuple[Any, Any, dict[str, str]]:
    """Documents, which of them were trained on (None: all), and fingerprints."""
    from reticent.artifact import JOB
    from reticent.engine.corpus import Columns, open_corpus

    folder = Path(source)
    if not (folder / JOB).is_file():
        corpus = open_corpus(source, columns=Columns(**columns))
        return corpus, None, {"corpus": corpus.fingerprint()}
    from reticent.artifact import fingerprint, require_kind
    from reticent.config import load_job, parse_job
    from reticent.engine.schema import MEMBERS
    from reticent.job import Run

    run = Run(parse_job({**load_job(folder / JOB).model_dump(), "out": str(folder)}))
    require_kind(folder / "split", "split")
    codes = run.individuals.individual_codes(run.corpus.scan().column("individual_id").combine_chunks())
    inputs = {"corpus": run.corpus.fingerprint(), "split": fingerprint(folder / "split")}
    return run.corpus, run.individuals.mask(MEMBERS)[codes], inputs


def _read(file: str) -> str:
    from reticent.errors import CorpusError

    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return content.decode()
    except UnicodeDecodeError as error:
        raise CorpusError(f"{file}: not valid UTF-8 (byte {error.start})") from None
    except OSError as error:
        raise CorpusError(f"{file}: cannot be read ({error.strerror})") from None
