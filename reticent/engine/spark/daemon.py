"""The program that starts Python workers of Spark, with the engine already imported: ``spark.python.daemon.module``.

A worker is a fork of its daemon. Spark's own daemon imports nothing, so that each worker imports NumPy, Arrow and the
engine anew (about a second), and after each of its tasks collects the garbage of all their modules. Here both are done
once for all workers of an executor. The daemon starts no thread of its own, and forks before anything is computed.
"""

from __future__ import annotations

import gc
import importlib
from contextlib import suppress
from typing import Final

#: What the tasks import, and what the libraries that they call import at the first call.
MODULES: Final = (
    "pyarrow.acero",
    "pyspark.sql.pandas.serializers",
    "pyspark.worker",
    "reticent.engine.corpus",
    "reticent.engine.detect.rules",
    "reticent.engine.detect.union",
    "reticent.engine.spark.documents",
    "reticent.engine.spark.index",
    "reticent.engine.spark.spans",
    "reticent.engine.spark.tokens",
)


def main() -> None:
    """Import, then serve as Spark's own daemon does."""
    for name in MODULES:
        importlib.import_module(name)
    with suppress(ImportError):
        importlib.import_module("pandas")  # Arrow looks for it when it first converts a list
    from pyspark.daemon import manager

    gc.collect()
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
