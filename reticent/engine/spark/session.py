"""The session that work runs in: the one that runs, or one on this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reticent.core.errors import PolicyError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["local_session", "session_of"]

#: Rows of a batch on its way to Python. Spark's 10,000 notes of 5 KB would be 50 MB, several times over.
ROWS_PER_BATCH = 512


def session_of(documents: object = None) -> SparkSession:
    """Return the session of a data frame, or the one that runs.

    Raises
    ------
    PolicyError
        pyspark is not installed, or no session runs: it is started by spark-submit, or by the caller.
    """
    SparkSession = _session_class()
    session = getattr(documents, "sparkSession", None) or SparkSession.getActiveSession()
    if session is None and "PYSPARK_GATEWAY_PORT" in os.environ:  # started by spark-submit
        session = SparkSession.builder.appName("reticent").getOrCreate()
    if session is None:
        raise PolicyError("no Spark session runs: start it with spark-submit, give a data frame, or use --master local")
    return session


def _session_class() -> Any:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise PolicyError("Spark needs pyspark 4 and Java 17: pip install 'reticent[spark]'") from None
    return SparkSession


def local_session(master: str, folder: Path | str) -> SparkSession:
    """Return a session on this machine, with all that is written encrypted in ``folder`` (0700).

    ``master`` is "local" or "local[N]". A session that runs already is refused.
    """
    SparkSession = _session_class()
    if SparkSession.getActiveSession() is not None:
        raise PolicyError("--master: a Spark session runs already")
    if master != "local" and not (master.startswith("local[") and master.endswith("]")):
        raise PolicyError("--master: only local and local[N] are started here; use spark-submit for a cluster")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        "spark.local.dir": str(folder),
        "spark.io.encryption.enabled": "true",
        "spark.network.crypto.enabled": "true",
        "spark.authenticate": "true",
        "spark.eventLog.enabled": "false",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.python.daemon.module": "reticent.engine.spark.daemon",
    }
    builder = SparkSession.builder.appName("reticent").master("local[*]" if master == "local" else master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
