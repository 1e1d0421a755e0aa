"""The session that work runs in: the one that runs, or one on this machine."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from reticent.core.errors import PolicyError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["local_folder", "local_session", "session_of"]

#: Rows of a batch on its way to Python. Spark's 10,000 notes of 5 KB would be 50 MB, several times over.
ROWS_PER_BATCH = 512
#: Beginning of the names of folders of local sessions.
_PREFIX: Final = "reticent-spark-"


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


@contextmanager
def local_folder() -> Iterator[Path]:
    """Yield a folder (0700) for the temporary files of a local session, and delete it in the end.

    Folders of this user that a killed driver left are deleted first: what is in them is encrypted, with a key that died
    with it.
    """
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            with _held(left):
                if left.stat().st_uid == os.getuid() and any(left.iterdir()):  # an empty one is just being made
                    shutil.rmtree(left, ignore_errors=True)
        except OSError:
            continue  # its driver is alive, or it is gone
    with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as made, _held(Path(made)):
        yield Path(made)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Hold a folder as in use, until this process ends however it does; `OSError` where another process has it."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(number)
