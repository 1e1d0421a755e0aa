"""The command line: parse, call, print. No stage's logic lives here; nothing heavy is imported before a command runs.

Exit status: 0 done, 1 failed, 2 usage, 3 a privacy gate failed, 130 interrupted, 143 or 129 stopped by SIGTERM, SIGHUP.
"""

from __future__ import annotations

import ast
import atexit
import errno
import gc
import importlib
import io
import os
import signal
import sys
import traceback
import warnings
from functools import cache
from importlib import resources
from itertools import pairwise
from typing import Annotated, Any, cast

import typer
from typer.core import TyperGroup

from reticent import __version__
from reticent.cli.help import example_of, removed_option_message, unwrap_help
from reticent.core.errors import PolicyError, ReticentError
from reticent.core.memory import OUT_OF_MEMORY, is_out_of_memory, lacks_address_space
from reticent.core.progress import FORMATS, VARIABLE, is_json, log
from reticent.core.without_pandas import keep_pandas_out
from reticent.engine.sources.table import refuse_secrets

ABOUT = """Fine-tune language models on personal documents without ever teaching them who the people are, and measure
    by attack how much they still leak.

    Start with [bold]reticent demo[/bold]. For your own documents [bold]reticent new-job[/bold] writes a job file, the
    experiment of Boutet et al. (2025) at a size of your choice; change it and use [bold]reticent run JOB.toml[/bold].
    Or go stage by stage: index, protect, train, audit.

    Completion in your shell: [bold]reticent --install-completion[/bold].

    Exit status: 0 done, 1 failed, 2 a wrong setting or option, 3 a gate failed or guard check found something, 130
    interrupted, 143 or 129 stopped by SIGTERM or SIGHUP."""
#: Panel of the help -> its commands, and the module of this package that each stands in.
PANELS = {
    "All at once": {
        "demo": "runs",
        "new_job": "experiment",
        "run": "runs",
        "status": "experiment",
        "bench": "bench",
        "reproduce": "reproduce",
    },
    "Documents": dict.fromkeys(("synth", "detect", "dedup", "scrub"), "documents") | {"redact": "redact"},
    "Stage by stage": {
        "index": "runs",
        "update": "runs",
        "stats": "documents",
        "protect": "runs",
        "export": "runs",
        "train": "runs",
        "classify": "classify",
        "audit": "runs",
        "report": "runs",
        "dossier": "dossier",
        "budget": "runs",
    },
    "A cluster": {"spark_app": "spark"},
    "A finished model": {
        "audit_model": "audit_model",
        "score": "score",
        "probe": "probe",
        "guard_app": "guard",
        "tagger_app": "tagger",
    },
}

#: Commands that are one themselves and have others below them -> module and class of that.
BELOW = {"detect": "documents.DetectCommand", "dossier": "dossier.DossierCommand"}
#: Commands that work in a run folder, so that finished results are there when they are stopped; and those that do
#: where they are given one.
RESUMED = (
    *("demo", "reproduce", "run", "index", "update", "protect", "export", "train", "audit", "audit-model", "report"),
    "dossier",
)
RESUMED_IN_A_RUN = ("detect", "scrub", "classify", "stats")


def _print_version(wanted: bool) -> None:
    """Print the version and exit, if ``--version`` was given (``wanted`` is then True)."""
    if wanted:
        typer.echo(f"reticent {__version__}")
        raise typer.Exit


def _global_options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
    log_format: Annotated[
        str | None,  # taken by `main`, wherever it stands
        typer.Option(
            metavar="text|json",
            help="Form of the log on stderr: text, or one JSON object per line. RETICENT_LOG_FORMAT sets it too.",
        ),
    ] = None,
) -> None:
    """Declare the options that stand before the name of a command: --version and --log-format."""


#: Commands whose arguments may be words of a text, given without quotes in place of its file.
READ_TEXTS = ("redact", "guard check")


class _Commands(TyperGroup):
    """Group of all commands; an option that was removed fails with a message that names the setting replacing it."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command. An option that was removed raises `PolicyError` with the setting that replaces it, and an
        error never quotes a text that was given where a file name is expected."""
        try:
            return super().invoke(ctx)
        except Exception as failed:
            option, place = getattr(failed, "option_name", None), getattr(failed, "ctx", None)
            names = place.command_path.removeprefix(f"{ctx.command_path} ") if place is not None else ""
            if option is not None and (instead := removed_option_message(names, option)) is not None:
                raise PolicyError(instead) from None
            if names in READ_TEXTS and "unexpected extra argument" in getattr(failed, "message", ""):
                raise PolicyError("FILE: one file, but more were given; give a text on stdin") from None
            raise


def _command_line(name: str | None = None, *, outline: bool = False) -> typer.Typer:
    """Return the typer app with only the command ``name`` or, if there is none of this name, with all commands. With
    ``outline`` these are placeholders for the list of commands: their modules are not loaded."""
    app = typer.Typer(
        cls=_Commands,
        no_args_is_help=True,
        add_completion=name is None or name.endswith("-completion"),
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        help=ABOUT,
        rich_markup_mode="rich",
    )
    app.callback()(_global_options)
    shown = {
        attribute.removesuffix("_app").replace("_", "-"): (panel, attribute, module)
        for panel, commands in PANELS.items()
        for attribute, module in commands.items()
    }
    for each in [name] if name in shown else shown:
        panel, attribute, module = shown[each]
        if outline and name not in shown:
            app.command(each, help=_first_help_line(module, attribute), rich_help_panel=panel)(_unloaded_command)
            continue
        command = getattr(importlib.import_module(f"reticent.cli.{module}"), attribute)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=each, rich_help_panel=panel, epilog=example_of(each))
        else:
            place, _, kind = BELOW.get(each, "").partition(".")
            own = getattr(importlib.import_module(f"reticent.cli.{place}"), kind) if kind else None
            app.command(cls=own, rich_help_panel=panel, epilog=example_of(each))(command)
    return unwrap_help(app)


def _unloaded_command() -> None:
    """Placeholder for a command whose module is not loaded, to list its name in the help."""


def _first_help_line(module: str, attribute: str) -> str:
    """Return the first line of a command's help from the source: a docstring, or a group's ``help=``."""
    for node in _parse_module(module):
        if isinstance(node, ast.FunctionDef) and node.name == attribute:
            return (ast.get_docstring(node) or "").partition("\n\n")[0]
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == attribute:
            made = cast("ast.Call", node.value)
            return next((ast.literal_eval(each.value) for each in made.keywords if each.arg == "help"), "")
    raise AttributeError(f"{module}.py has no command {attribute}")


@cache
def _parse_module(module: str) -> list[ast.stmt]:
    """Return the top-level statements (AST nodes) of a module of this package."""
    return ast.parse(resources.files(__name__).joinpath(f"{module}.py").read_text(encoding="utf-8")).body


def __getattr__(name: str) -> Any:
    if name == "app":
        return _command_line()
    raise AttributeError(f"module 'reticent.cli' has no attribute {name!r}")


def main() -> None:
    """Run the command line: run the command in ``sys.argv``, and map errors to exit codes; only bugs show a
    traceback."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # of other packages: they would see the job
    os.umask(0o077)
    gc.set_threshold(20_000)  # by 700, modules are searched for garbage again and again: an eighth of a start
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # `nohup` has it ignored
            signal.signal(number, _exit_on_signal)
    atexit.register(_skip_garbage_collection)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr: a locale may lack a dash of a table
    keep_pandas_out()
    try:
        try:
            if lacks_address_space():
                raise MemoryError
            _run_command()
        finally:
            if sys.stdout is not None:  # closed
                sys.stdout.flush()
    except (SystemExit, KeyboardInterrupt) as end:
        code = 130 if isinstance(end, KeyboardInterrupt) else end.code  # typer's status of Ctrl-C
        if code in (129, 130, 143):  # a signal
            _log_failure(f"interrupted; {_resume_hint(sys.argv[1:2])}")
        sys.exit(code)
    except ReticentError as error:
        if is_out_of_memory(error):  # which may have been met over one document
            _log_failure(OUT_OF_MEMORY)
            sys.exit(1)
        _log_failure(str(error))
        sys.exit(error.exit_code)
    except BaseException as error:
        if is_out_of_memory(error):
            _log_failure(OUT_OF_MEMORY)
        elif isinstance(error, ModuleNotFoundError) and (extra := _extra_of(error.name)):
            _log_failure(f"this command needs {error.name}: pip install 'reticent[{extra}]'")
        elif isinstance(error, OSError) and error.errno is not None:
            if error.errno in (errno.EPIPE, errno.ENOSPC):  # stdout may be what cannot be written, by `| head` say
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            _log_failure(f"{error.filename or 'system'}: {os.strerror(error.errno)}")
        else:  # a bug; a library's message may quote a document, so only the place is shown
            for line in traceback.format_tb(error.__traceback__):
                log(line.rstrip(), level="error")
            _log_failure(f"internal error ({type(error).__name__}); its message is withheld")
        sys.exit(1)


def _extra_of(module: str | None) -> str:
    """Return the name of the package's optional dependencies ("train", "audit") that a module belongs to; "" if it is
    always installed."""
    name = (module or "").partition(".")[0]
    audit = ("rapidfuzz", "sklearn", "scipy", "jinja2", "sacrebleu", "rouge_score", "phonenumbers", "matplotlib")
    extras = dict.fromkeys(("torch", "transformers", "huggingface_hub", "safetensors"), "train")
    return (extras | dict.fromkeys(audit, "audit")).get(name, "")


def _run_command() -> None:
    """Run the command given by the arguments; with a JSON log, usage errors are log lines too."""
    _take_log_format()
    for before, argument in pairwise(sys.argv):
        is_web = before == "--endpoint"  # no source is at an address of the web
        refuse_secrets(f"{before}={argument}" if is_web else argument)
    # A shell that completes asks for the options of each command.
    outline = "_RETICENT_COMPLETE" not in os.environ
    command = _command_line(sys.argv[1] if len(sys.argv) > 1 else None, outline=outline)
    if not is_json():
        command(standalone_mode=True)
        return
    warnings.showwarning = _log_warning  # type: ignore[assignment]
    try:
        code = command(standalone_mode=False)
    except typer.Abort:
        raise KeyboardInterrupt from None
    except Exception as failed:
        error: Any = failed
        if not (hasattr(error, "format_message") and hasattr(error, "exit_code")):  # not one of typer
            raise
        _log_failure(error.format_message())
        code = error.exit_code
    sys.exit(code if isinstance(code, int) else 0)


def _take_log_format() -> None:
    """Remove ``--log-format`` from ``sys.argv``, wherever it is, and set the log format."""
    name, chosen, left = "--log-format", os.environ.get(VARIABLE), []
    arguments = iter(sys.argv[1:])
    for argument in arguments:
        if argument == "--":
            left += [argument, *arguments]
        elif argument == name:
            chosen = next(arguments, "")
        elif argument.startswith(f"{name}="):
            chosen = argument.removeprefix(f"{name}=")
        else:
            left.append(argument)
    sys.argv[1:] = left
    if chosen is not None and chosen not in FORMATS:
        raise PolicyError(f"--log-format: expected {' or '.join(FORMATS)}")
    if chosen is not None:
        os.environ[VARIABLE] = chosen  # for processes that a command starts


def _log_failure(message: str) -> None:
    """Log the final error message of a failed command."""
    log(message, level="error", text=f"reticent: {message}")


def _log_warning(message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any) -> None:
    """Log a Python warning with its category and place; a replacement for `warnings.showwarning`."""
    log(str(message), level="warning", category=category.__name__, place=f"{os.path.basename(filename)}:{lineno}")


def _resume_hint(command: list[str]) -> str:
    """Return a clause for the message after an interruption: which results are kept, and how to continue."""
    if command and command[0] in RESUMED:
        return "what is finished is kept, and the same command goes on from there"
    if command and command[0] in RESUMED_IN_A_RUN:
        return "what a run folder had finished is kept there, nothing else is; the same command does the rest again"
    return "nothing is kept, and the same command begins anew"


def _exit_on_signal(number: int, _: object) -> None:
    """Exit on a signal in the same way as after Ctrl-C, so that no file is left half written."""
    raise SystemExit(128 + number)


def _skip_garbage_collection() -> None:
    """Skip the final garbage collection at exit (0.1 s), unless torch is loaded, whose libraries would report leaks."""
    if "torch" not in sys.modules:
        gc.freeze()
