"""Runs one script by its command line; or every script of some folders, and says which failed, which skipped what.

Every module of ``benchmarks`` and ``studies`` that has a function ``run(size)`` is run: a new one cannot be forgotten.
First the examples of its docstrings are tried. At toy size two or more run at once, no record is written, and each
process is a fork of one that has imported the libraries, which takes longer than many scripts.
"""

from __future__ import annotations

import argparse
import doctest
import os
import pkgutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from types import NoneType, UnionType
from typing import IO, Annotated, Any, get_args, get_origin, get_type_hints

ROOT = Path(__file__).parents[1]
#: Seconds after which a script at toy size is stopped.
LIMIT = 600
#: These take longest, so they start first.
LONGEST = ("reproduce", "holes", "foundation_models", "engine", "inversion")
#: Models this small only lose by a second thread.
TOY = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
LIBRARIES = (
    *("matplotlib.backends.backend_svg", "polars", "pyarrow.parquet", "scipy.stats", "sklearn.linear_model", "torch"),
    *("transformers.models.bert.modeling_bert", "transformers.models.gpt2.modeling_gpt2", "reticent.job.pipeline"),
)


def command(run: Callable[..., Any]) -> None:
    """Call a script's ``run`` with what the command line gives: each parameter is an option.

    `Annotated` adds choices (any collection of names) and help (a text). An option of a sequence takes several values.
    """
    parser = argparse.ArgumentParser(
        description=sys.modules[run.__module__].__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
    )
    hints = get_type_hints(run, include_extras=True)
    for name, parameter in signature(run).parameters.items():
        kind, *about = get_args(hints[name]) if get_origin(hints[name]) is Annotated else (hints[name],)
        if get_origin(kind) is UnionType:
            (kind,) = (each for each in get_args(kind) if each is not NoneType)
        options: dict[str, Any] = {"required": parameter.default is Parameter.empty}
        for each in about:
            options |= {"help": each} if isinstance(each, str) else {"choices": list(each)}
        if get_origin(kind) is Sequence:
            options |= {"action": "extend", "nargs": "+"}
            (kind,) = get_args(kind)
        options |= {"action": "store_true"} if kind is bool else {"type": kind}
        parser.add_argument(f"--{name.replace('_', '-')}", **options)
    run(**vars(parser.parse_args()))


@dataclass(frozen=True, slots=True)
class Running:
    """A script that was started, when, and where its output goes."""

    module: str
    started: float
    output: IO[str]


def scripts(packages: tuple[str, ...]) -> list[str]:
    """Return the modules of packages that can be run, the longest first."""
    found = []
    for package in packages:
        folder = Path(import_module(package).__file__ or "").parent
        modules = [each.name for each in pkgutil.iter_modules([str(folder)]) if not each.ispkg]
        found += [f"{package}.{name}" for name in modules if "\ndef run(" in (folder / f"{name}.py").read_text()]
    turns = {name: turn for turn, name in enumerate(LONGEST)}
    return sorted(found, key=lambda name: turns.get(name.partition(".")[2], len(turns)))


def start(module: str, size: str) -> tuple[int, Running]:
    """Start a script; returns its process."""
    output = tempfile.TemporaryFile("w+")  # noqa: SIM115  it is read when the script has ended
    if process := os.fork():
        return process, Running(module, time.monotonic(), output)
    status = 1
    try:
        os.setsid()
        for stream in (1, 2):
            os.dup2(output.fileno(), stream)
        loaded = import_module(module)
        failed, tried = doctest.testmod(loaded)
        if failed:
            print(f"{failed} examples of {tried} fail")
        else:
            loaded.run(size)
            status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def end(script: Running, size: str, status: int, seconds: float) -> bool:
    """Say how a script ended, with wall and CPU seconds, and show its lines where it failed or says what it skipped."""
    script.output.seek(0)
    lines = script.output.read().splitlines()
    script.output.close()
    code = os.waitstatus_to_exitcode(status)
    how = {0: "ok", -signal.SIGKILL: f"FAILED (killed, as after {LIMIT} s)"}.get(code, f"FAILED (exit {code})")
    shown = [line for line in lines if line.startswith("skipped")] if code == 0 and size == "toy" else lines
    took = f"{time.monotonic() - script.started:.1f} s, {seconds:.1f} CPU s"
    print(f"{script.module}: {how}, {took}", *(f"  {line}" for line in shown), sep="\n", flush=True)
    return code == 0


def main(*packages: str) -> None:
    """Run all scripts of packages; the exit status is 1 where any failed."""
    parser = argparse.ArgumentParser(description=f"Run all of {' and '.join(packages)}.")
    parser.add_argument("--size", choices=["toy", "cpu"], default="toy")
    parser.add_argument("names", nargs="*", help="only these")
    options = parser.parse_args()
    todo = [name for name in scripts(packages) if not options.names or name.partition(".")[2] in options.names]
    if missing := set(options.names) - {name.partition(".")[2] for name in todo}:
        parser.error(f"no such script: {', '.join(sorted(missing))}")
    os.chdir(ROOT)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    began, jobs = time.perf_counter(), 1
    if size_is_toy := options.size == "toy":
        jobs = os.cpu_count() or 1
        os.environ |= TOY
        if "TMPDIR" not in os.environ and os.access("/dev/shm", os.W_OK):
            os.environ["TMPDIR"] = tempfile.tempdir = "/dev/shm"
        for name in LIBRARIES:
            import_module(name)
    total, failed, running = len(todo), [], dict[int, Running]()
    while todo or running:
        while todo and len(running) < jobs:
            process, script = start(todo.pop(0), options.size)
            running[process] = script
        time.sleep(0.05)
        for process, script in list(running.items()):
            ended, status, usage = os.wait4(process, os.WNOHANG)
            if ended:
                del running[process]
                if not end(script, options.size, status, usage.ru_utime + usage.ru_stime):
                    failed.append(script.module)
            elif size_is_toy and time.monotonic() - script.started > LIMIT:
                os.killpg(process, signal.SIGKILL)
    print(f"{total} scripts, {time.perf_counter() - began:.0f} s; failed: {', '.join(failed) or 'none'}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main("benchmarks", "studies")
