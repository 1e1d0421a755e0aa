"""Runs one script by its command line; or every script of a folder, and says which failed, which skipped what, and why.

Every module of ``benchmarks`` and ``studies`` that has a function ``run(size)`` is run: a new one cannot be forgotten.
First the examples of its docstrings are tried. At toy size two or more run at once and no record is written.
"""

from __future__ import annotations

import argparse
import os
import pkgutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

ROOT = Path(__file__).parents[1]
#: Seconds after which a script at toy size is stopped.
LIMIT = 600
SCRIPT = """
import doctest, importlib, sys
module = importlib.import_module(sys.argv[1])
failed, tried = doctest.testmod(module)
if failed:
    sys.exit(f"{failed} examples of {tried} fail")
module.run(sys.argv[2])
"""
#: These take longest, so they start first.
LONGEST = ("holes", "foundation_models", "engine", "inversion")


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


def scripts(package: str) -> list[str]:
    """Return the names of the modules of a package that can be run."""
    folder = Path(import_module(package).__file__ or "").parent
    modules = [found.name for found in pkgutil.iter_modules([str(folder)]) if not found.ispkg]
    texts = {name: (folder / f"{name}.py").read_text() for name in modules}
    names = [name for name, text in texts.items() if "\ndef run(" in text]
    return sorted(names, key=lambda name: LONGEST.index(name) if name in LONGEST else len(LONGEST))


def run_one(module: str, size: str) -> tuple[str, str, list[str]]:
    """Run one script; returns its name, how it ended with wall and CPU seconds, and the lines to show."""
    started = time.monotonic()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}
    if size == "toy":  # models this small only lose by a second thread
        environment |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        if "TMPDIR" not in os.environ and os.access("/dev/shm", os.W_OK):
            environment["TMPDIR"] = "/dev/shm"
    with tempfile.TemporaryFile("w+") as output:
        command = [sys.executable, "-c", SCRIPT, module, size]
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=ROOT, start_new_session=True
        )
        while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
            if size == "toy" and time.monotonic() - started > LIMIT:
                os.killpg(process.pid, signal.SIGKILL)
            time.sleep(0.05)
        _, status, usage = ended
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        lines = output.read().splitlines()
    how = {0: "ok", -signal.SIGKILL: f"FAILED (killed, as after {LIMIT} s)"}.get(process.returncode)
    how = how or f"FAILED (exit {process.returncode})"
    shown = [line for line in lines if line.startswith("skipped")] if how == "ok" and size == "toy" else lines
    took = f"{time.monotonic() - started:.1f} s, {usage.ru_utime + usage.ru_stime:.1f} CPU s"
    return module, f"{how}, {took}", shown


def main(package: str) -> None:
    """Run all scripts of a package; the exit status is 1 where any failed."""
    parser = argparse.ArgumentParser(description=f"Run all of {package}.")
    parser.add_argument("--size", choices=["toy", "cpu"], default="toy")
    parser.add_argument("names", nargs="*", help="only these")
    options = parser.parse_args()
    names = [name for name in scripts(package) if not options.names or name in options.names]
    if missing := set(options.names) - set(names):
        parser.error(f"no such script: {', '.join(sorted(missing))}")
    jobs = (os.cpu_count() or 1) if options.size == "toy" else 1
    failed, started = [], time.perf_counter()
    with ThreadPoolExecutor(jobs) as pool:
        for module, how, lines in pool.map(lambda name: run_one(f"{package}.{name}", options.size), names):
            print(f"{module}: {how}", *(f"  {line}" for line in lines), sep="\n", flush=True)
            if not how.startswith("ok"):
                failed.append(module)
    print(f"{len(names)} scripts, {time.perf_counter() - started:.0f} s; failed: {', '.join(failed) or 'none'}")
    sys.exit(1 if failed else 0)
