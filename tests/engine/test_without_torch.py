"""The engine, on Spark too, imports and works where nothing of the trainer and the audit is installed."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import reticent

ROOT = Path(reticent.__file__).parents[1]

PROGRAM = """
import importlib.abc, sys

BLOCKED = set(sys.argv[1].split(","))


class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


sys.meta_path.insert(0, Blocked())
import pyarrow as pa
import reticent, reticent.spark
from reticent.engine.config import IndexConfig
from reticent.engine.flagged_words import FlaggedWords
from reticent import _rust
from reticent.ext.spark.index import _count_next_length, _count_words, _local_ngrams
from reticent.ext.spark.tables import encoded

frame = {"doc_id": list("abcdef"), "individual_id": list("uvwxyz"), "text": ["fever and cough", "no fever"] * 3}
individuals = reticent.split_individuals(frame)
index = reticent.build_index(frame, individuals, config=IndexConfig(max_n=2))
assert index.num_words == 4 and sum(len(flagged.flags) for flagged in FlaggedWords(
    reticent.open_corpus(frame), individuals, index=index)) == 15
table = pa.table({**frame, "unit": list(range(6)), "side": pa.array([0] * 6, pa.int8())})
part = _count_words(IndexConfig(max_n=2), (0,), encoded(table))
rows = _local_ngrams(0, part)
assert rows.column("word").to_pylist() == ["and", "cough", "fever", "no"]
assert _rust.Part.from_bytes(_count_next_length(part, encoded(rows))).n == 2
assert not BLOCKED & {name.partition(".")[0] for name in sys.modules}
"""


def test_the_engine_works_without_any_library_of_an_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    distributions = {line.split(">")[0].split("[")[0].strip() for extra in extras.values() for line in extra}
    assert {"torch", "transformers", "pyspark"} <= distributions
    modules = {name.replace("-", "_").lower() for name in distributions} - {"pyarrow"}
    modules |= {"sklearn", "adbc_driver_manager"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, ",".join(sorted(modules))], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
