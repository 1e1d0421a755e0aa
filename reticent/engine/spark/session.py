"""The session that work runs in, and whether it keeps documents to itself.

Spark writes what does not fit into memory, and what it shuffles, to local folders, and sends it from machine to
machine: text of documents. A session is looked at before the first document is read.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reticent.core.errors import PolicyError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["check_session", "local_session", "session_of"]

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
    }
    builder = SparkSession.builder.appName("reticent").master("local[*]" if master == "local" else master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def check_session(spark: SparkSession, *, unencrypted: bool = False) -> None:
    """Refuse a session that writes or sends text of documents in clear.

    Parameters
    ----------
    unencrypted : bool
        The caller vouches for disks and network: nothing is asked but private local folders.

    Raises
    ------
    PolicyError
        It is no classic session (Spark Connect has no tables by position), its temporary files are not encrypted or
        what executors send each other is not; or a local folder of this machine can be read by others.
    """
    context = getattr(spark, "_sc", None)
    if context is None:
        raise PolicyError("this is a session of Spark Connect; a classic one is needed, as spark-submit starts it")
    settings = context.getConf()

    def is_on(name: str) -> bool:
        return settings.get(name, "false").lower() == "true"

    open_to_others = [folder for folder in _local_folders(settings) if _is_readable_by_others(folder)]
    wanted = []
    if not is_on("spark.io.encryption.enabled"):
        wanted.append("spark.io.encryption.enabled=true (temporary files hold text of documents)")
    is_alone = settings.get("spark.master", "").startswith("local[") or settings.get("spark.master") == "local"
    if not is_alone and not (is_on("spark.network.crypto.enabled") or is_on("spark.ssl.rpc.enabled")):
        wanted.append("spark.network.crypto.enabled=true with spark.authenticate=true (executors exchange text)")
    if wanted and not unencrypted:
        raise PolicyError(
            f"this Spark session does not encrypt: set {' and '.join(wanted)}; or say that disks and network are "
            "trusted (unencrypted=True, --unencrypted)"
        )
    if wanted and open_to_others:
        raise PolicyError(
            f"spark.local.dir: {open_to_others[0]} can be read by other users, and temporary files are not encrypted; "
            "chmod 700"
        )


def _local_folders(settings: Any) -> list[Path]:
    given = os.environ.get("SPARK_LOCAL_DIRS") or settings.get("spark.local.dir", "")
    return [Path(folder) for folder in given.split(",") if folder]


def _is_readable_by_others(folder: Path) -> bool:
    try:
        return bool(folder.stat().st_mode & 0o077)
    except OSError:
        return False  # it is on other machines, or Spark makes it
