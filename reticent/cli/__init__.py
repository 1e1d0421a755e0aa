"""The command line: parse, call, print. No stage's logic lives here; nothing heavy is imported before a command runs.

Exit status: 0 done, 1 failed, 2 usage, 3 a privacy gate failed, 130 interrupted, 143 or 129 stopped by SIGTERM, SIGHUP.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback

import typer

from reticent.cli import documents, experiment, runs
from reticent.cli.classify import classify
from reticent.cli.guard import guard_app
from reticent.cli.probe import probe
from reticent.cli.tagger import tagger_app

__all__ = ["app", "main"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Fine-tune language models on personal documents without ever teaching them who the people are, and measure
    by attack how much they still leak.

    Start with [bold]reticent demo[/bold]. For your own documents [bold]reticent new-job[/bold] writes a job file, the
    paper's whole experiment at a size of your choice; change it and use [bold]reticent run JOB.toml[/bold]. Or go stage
    by stage: index, protect, train, audit.

    Exit status: 0 done, 1 failed, 2 a wrong setting or option, 3 a gate failed or guard check found something, 130
    interrupted.""",
    rich_markup_mode="rich",
)
for panel, commands in (
    ("All at once", (runs.demo, experiment.new_job, runs.run, experiment.status)),
    ("Documents", (documents.synth, documents.detect, documents.dedup, documents.scrub)),
    (
        "Stage by stage",
        (
            *(runs.index, runs.update, documents.stats, runs.protect, runs.train, classify),
            *(runs.audit, runs.report, runs.budget),
        ),
    ),
):
    for command in commands:
        app.command(rich_help_panel=panel)(command)
app.command(rich_help_panel="A finished model")(probe)
app.add_typer(guard_app, name="guard", rich_help_panel="A finished model")
app.add_typer(tagger_app, name="tagger", rich_help_panel="A finished model")


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
            print(
                "reticent: interrupted; what is finished is kept, and the same command goes on from there",
                file=sys.stderr,
            )
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
