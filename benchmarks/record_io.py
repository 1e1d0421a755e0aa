"""Records: where a measurement is kept, with the machine, the versions and the commit it was made on."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
#: Records of the benchmarks and of the studies: summaries of 50 KB at most.
RECORD, STUDIES = ROOT / "benchmarks" / "record", ROOT / "studies" / "record"
#: The rows behind a record, made again by its command; git ignores them.
RAW = ROOT / "benchmarks" / "raw"
#: Bytes of a record, numbers of a list in it, and what it keeps of an estimate; characters of a line.
MOST_BYTES, MOST_NUMBERS = 50_000, 30
ESTIMATE = ("value", "low", "high", "n", "of", "bound")
LINE = 120
DATA = Path(os.environ.get("RETICENT_DATA", ROOT / ".." / "shared" / "data"))


def machine() -> dict[str, Any]:
    """Return what a reader needs to judge a time: processor, cores, memory, versions, commit."""
    cpu = next(
        (line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor(),
    )
    memory = next((int(line.split()[1]) // 1024 for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    try:
        import torch
    except ModuleNotFoundError:  # what is measured needs none
        torch = None  # type: ignore[assignment]

    packages = ("torch", "transformers", "tokenizers", "polars", "duckdb", "scikit-learn", "pyarrow", "numba", "numpy")
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads() if torch else None,
        "memory_mib": memory,
        "python": platform.python_version(),
        "gpu": torch.cuda.get_device_name() if torch and torch.cuda.is_available() else None,
        "versions": {name: found for name in packages if (found := _version(name))},
        "commit": commit(),
    }


def commit() -> str | None:
    """Return the commit this is, or the one that ``RETICENT_COMMIT`` names where there is no repository."""
    if named := os.environ.get("RETICENT_COMMIT"):
        return named
    command = ["git", "rev-parse", "--short", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    except FileNotFoundError:
        return None
    return done.stdout.strip() or None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return median, least and greatest, and how many there are."""
    return {"median": median(values), "low": min(values), "high": max(values), "n": len(values)}


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Return how values grow with sizes: the slope of their logarithms by least squares.

    >>> round(exponent([100, 200, 4000], [3 * size**1.5 for size in (100, 200, 4000)]), 9)
    1.5
    """
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def mean_over_seeds(found: Sequence[Any]) -> Any:
    """Return the results of several seeds as one: of each estimate the means of value and ends, and the least n; of
    what differs otherwise a list; what is the same stays. (`reticent.audit.stats.seeds` says why means of ends.)

    >>> mean_over_seeds([{"a": {"value": v, "low": 0.0, "high": 1.0, "n": 9}, "k": "x", "p": v} for v in (0.25, 0.75)])
    {'a': {'value': 0.5, 'low': 0.0, 'high': 1.0, 'n': 9}, 'k': 'x', 'p': [0.25, 0.75]}
    """
    first = found[0]
    if isinstance(first, dict) and first.keys() >= {"value", "low", "high"}:
        kept = [each for each in found if each["value"] is not None]
        if not kept:
            return first
        ends = ("value", "low", "high")
        means = {k: None if any(e[k] is None for e in kept) else fmean(e[k] for e in kept) for k in ends}
        return {**first, **means, "n": min(each["n"] for each in kept)}
    if isinstance(first, dict):
        return {k: mean_over_seeds([e[k] for e in found]) for k in first if all(k in e for e in found)}
    if isinstance(first, list) and all(isinstance(each, list) and len(each) == len(first) for each in found):
        return [mean_over_seeds(items) for items in zip(*found, strict=True)]
    return first if all(each == first for each in found) else list(found)


def markdown(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a table, figures to the right."""
    lines = [heads, ["---" if number == 0 else "---:" for number in range(len(heads))], *rows]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)


def estimate_text(estimate: Mapping[str, Any] | None, digits: int = 3, percent: bool = False) -> str:
    """Return an estimate with its interval, or a median with its range, as far as there are such.

    >>> estimate_text({"value": 0.5, "low": 0.4, "high": 0.6}), estimate_text({"value": 0.5, "low": None}, 1)
    ('0.500 [0.400, 0.600]', '0.5')
    >>> estimate_text({"value": None}), estimate_text(spread([0.25, 0.5, 0.75]), 0, percent=True)
    ('-', '50 % [25, 75]')
    """
    middle = (estimate or {}).get("value", (estimate or {}).get("median"))
    if estimate is None or middle is None:
        return "-"
    value, low, high = (
        end if end is None else f"{(100 if percent else 1) * end:,.{digits}f}"
        for end in (middle, estimate["low"], estimate.get("high"))
    )
    value = f"{value} %" if percent else str(value)
    return value if low is None else f"{value} [{low}, {high}]"


def range_text(found: Mapping[str, Any], digits: int = 2) -> str:
    """Return a median with its range, or an estimate with its interval: ``0.50 (0.25 to 0.75)``."""
    middle = found["median"] if "median" in found else found["value"]
    return f"{middle:,.{digits}f} ({found['low']:,.{digits}f} to {found['high']:,.{digits}f})"


def machine_line(record: Mapping[str, Any]) -> str:
    """Return the machine and the commit of a record, a sentence."""
    machine = record["machine"]
    return f"{machine['cpu']}, {machine['cores']} cores, commit {machine['commit']}."


def record_path(name: str) -> Path:
    """Return the file of a record that is there, of a benchmark or of a study."""
    path = RECORD / f"{name}.json"
    return path if path.exists() else STUDIES / path.name


def write_record(name: str, result: dict[str, Any], size: str, folder: Path = RECORD) -> Path:
    """Write the summary of a result as record ``name``, and all of it to `RAW`; toy runs leave neither.

    A result whose summary has more than `MOST_BYTES` is refused after it was written to `RAW`.
    """
    path = folder / f"{name}.json"
    if size != "toy":
        RAW.mkdir(exist_ok=True)
        (RAW / path.name).write_text(record_text({"machine": machine(), "size": size, **result}))
        path.write_text(record_text(summary({"machine": machine(), "size": size, **result})))
        assert path.stat().st_size <= MOST_BYTES, f"{path} has {path.stat().st_size:,} bytes: {MOST_BYTES:,} at most"
    return path


def write_raw(name: str, rows: Any, size: str) -> None:
    """Write the rows behind a record, where that is told another result than the rows."""
    if size != "toy":
        (RAW / f"{name}-rows.json").write_text(json.dumps(rows))


def summary(value: Any) -> Any:
    """Return what a record keeps of a result: of estimates the value, interval and n, no long lists of numbers, and
    seven digits of each.

    >>> summary({"auc": {"value": 0.123456789, "low": 0.0, "high": 1.0, "n": 9, "method": "x"}, "fpr": [0.5] * 99})
    {'auc': {'value': 0.1234568, 'low': 0.0, 'high': 1.0, 'n': 9}}
    """
    if isinstance(value, dict):
        is_estimate = value.keys() >= {"value", "low", "high"}
        kept = {key: own for key, own in value.items() if not is_estimate or key in ESTIMATE}
        return {key: summary(own) for key, own in kept.items() if not _is_long(own)}
    if isinstance(value, list | tuple):
        return [summary(own) for own in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value


def _is_long(value: Any) -> bool:
    return isinstance(value, list) and len(value) > MOST_NUMBERS and isinstance(value[0], int | float)


def record_text(values: dict[str, Any]) -> str:
    """Return values as JSON; an object or list that fits is one line.

    >>> print(record_text({"precision": {"value": 0.5, "of": 2}, "recall": list(range(100, 120))}), end="")
    {
     "precision": {"value": 0.5, "of": 2},
     "recall": [100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 114, 115, 116, 117, 118, 119]
    }
    >>> json.loads(record_text({"curve": dict.fromkeys(range(8, 32), 0.5)}))["curve"]["8"]
    0.5
    >>> [*json.loads(record_text({True: "long" * 20, None: "long" * 20}))]
    ['true', 'null']
    """
    return _text(values, 0) + "\n"


def _text(value: Any, depth: int) -> str:
    line = json.dumps(value)
    if len(line) <= LINE or not isinstance(value, dict | list):
        return line
    if isinstance(value, dict):  # keys as JSON writes them: True is "true"
        parts = [json.dumps({key: 0})[1:-2] + _text(each, depth + 1) for key, each in value.items()]
    else:
        parts = [_text(each, depth + 1) for each in value]
    inner = ",\n".join(" " * (depth + 1) + part for part in parts)
    begin, end = "{}" if isinstance(value, dict) else "[]"
    return f"{begin}\n{inner}\n{' ' * depth}{end}"


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
