"""The Spark session, and a check that it does not expose documents, made before the first is read.

Documents, and words of them, are in shuffle files, spills and cached partitions on local disks, in checkpoints, in heap
dumps, and on the network. Settings, paths, names of columns and plans are in event logs.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from reticent.core.errors import PolicyError
from reticent.ext.spark.tasks import errors_of_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Rows of a batch on its way to Python. Spark's 10,000 notes of 5 KB would be 50 MB, several times over.
ROWS_PER_BATCH = 512
#: File systems whose permissions mean something; object stores make some up.
_WITH_MODES: Final = ("file", "hdfs", "viewfs", "webhdfs", "swebhdfs")
#: Settings with options of a JVM.
_JVM_OPTIONS: Final = tuple(
    f"spark.{which}.{kind}JavaOptions" for which in ("driver", "executor") for kind in ("default", "extra")
)


def session_of(documents: object = None) -> SparkSession:
    """Return the Spark session of a data frame, or the active one; raise `PolicyError` if there is none.

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


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Context manager: change a setting of the Spark session in its block."""
    before = spark.conf.get(name, None)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)


def _session_class() -> Any:
    """Return pyspark's ``SparkSession`` class; raise `PolicyError` if pyspark is not installed."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise PolicyError("Spark needs pyspark 4 and Java 17: pip install 'reticent[spark]'") from None
    return SparkSession


def local_session(master: str, folder: Path | str) -> SparkSession:
    """Start a Spark session on this machine whose temporary files are encrypted and lie in ``folder``.

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


def check_session(spark: SparkSession, *, unencrypted: bool = False, is_frame: bool = True) -> list[str]:
    """Raise `PolicyError` if a Spark session writes or sends document text unencrypted; return warnings as sentences.

    Parameters
    ----------
    unencrypted : bool
        The caller vouches for disks and network: what is asked is private local folders and checkpoints.
    is_frame : bool
        Whether documents are a data frame of the caller's, whose plan may hold any value.

    Raises
    ------
    PolicyError
        It is no classic session (Spark Connect has no tables by position); its temporary files are not encrypted, or
        what executors send each other is not; its JVMs dump their heap; or a folder that holds text in clear can be
        read by others.
    SparkError
        The checkpoint folder cannot be looked at.
    """
    context = getattr(spark, "_sc", None)
    if context is None:
        raise PolicyError("this is a session of Spark Connect; a classic one is needed, as spark-submit starts it")
    settings = context.getConf()
    wanted = _unsafe_settings(settings)
    if wanted and not unencrypted:
        raise PolicyError(
            f"this Spark session does not encrypt: set {' and '.join(wanted)}; or say that disks and network are "
            "trusted (unencrypted=True, --unencrypted)"
        )
    open_to_others = [folder for folder in _local_folders(settings) if _is_readable_by_others(folder)]
    if wanted and open_to_others:
        raise PolicyError(
            f"spark.local.dir: {open_to_others[0]} can be read by other users, and temporary files are not encrypted; "
            "chmod 700"
        )
    return [*_checkpoint_warnings(context), *_event_log_warnings(settings, is_frame)]


def _is_on(settings: Any, name: str) -> bool:
    """Return whether a Spark setting is "true"."""
    return str(settings.get(name, "false")).lower() == "true"


def _unsafe_settings(settings: Any) -> list[str]:
    """Return the settings, each with its reason, that must change so that Spark writes and sends no text
    unencrypted.
    """
    wanted = []
    if not _is_on(settings, "spark.io.encryption.enabled"):
        wanted.append("spark.io.encryption.enabled=true (temporary files hold text of documents)")
    master = settings.get("spark.master", "")
    encrypting = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled", "spark.authenticate.enableSaslEncryption")
    if not (master == "local" or master.startswith("local[")) and not any(_is_on(settings, on) for on in encrypting):
        wanted.append("spark.network.crypto.enabled=true with spark.authenticate=true (executors exchange text)")
    manager = settings.get("spark.shuffle.manager", "sort")
    if manager not in ("sort", "tungsten-sort") and not manager.startswith("org.apache.spark.shuffle.sort."):
        wanted.append("spark.shuffle.manager=sort (whether another one encrypts is not known here)")
    for name in _JVM_OPTIONS:
        if "+HeapDumpOnOutOfMemoryError" in settings.get(name, ""):
            wanted.append(f"{name} without HeapDumpOnOutOfMemoryError (a dump of the heap holds text in clear)")
    return wanted


def _local_folders(settings: Any) -> list[Path]:
    """Return the folders of Spark's temporary files on this machine."""
    given = os.environ.get("SPARK_LOCAL_DIRS") or settings.get("spark.local.dir", "")
    return [Path(folder) for folder in given.split(",") if folder]


def _is_readable_by_others(folder: Path) -> bool:
    """Return whether the group or others have any permission on a folder; False if it is not there."""
    try:
        return bool(folder.stat().st_mode & 0o077)
    except OSError:
        return False  # it is on other machines, or Spark makes it


def _checkpoint_warnings(context: Any) -> list[str]:
    """Return warnings on Spark's checkpoint folder, which is never encrypted; raise `PolicyError` if other users can
    read it.
    """
    folder = context.getCheckpointDir() if hasattr(context, "getCheckpointDir") else None
    if folder is None:
        return []
    with errors_of_tasks():
        path = context._jvm.org.apache.hadoop.fs.Path(folder)
        system = path.getFileSystem(context._jsc.hadoopConfiguration())
        if system.getUri().getScheme() not in _WITH_MODES:
            return [f"Spark does not encrypt checkpoints: see that {_shown(folder)} is as private as the documents"]
        while path is not None:
            if system.getFileStatus(path).getPermission().toShort() & 0o007 == 0:
                return []
            path = path.getParent()
    raise PolicyError(
        f"the checkpoint folder {_shown(folder)} can be read by other users, and Spark does not encrypt checkpoints, "
        "which hold words of documents; chmod 700 of the folder that setCheckpointDir is given"
    )


def _event_log_warnings(settings: Any, is_frame: bool) -> list[str]:
    """Return a warning if Spark's event log is on, which shows plans with filter values."""
    if not _is_on(settings, "spark.eventLog.enabled"):
        return []
    said = (
        f"Spark's event log is on ({_shown(settings.get('spark.eventLog.dir', 'file:///tmp/spark-events'))}): it keeps "
    )
    said += "settings, paths, names of columns and plans, and no text of a document"
    if is_frame:
        said += (
            "; a plan shows every value that the data frame was filtered or made with, so set "
            "spark.eventLog.enabled=false where one names an individual"
        )
    return [said]


def _shown(address: str) -> str:
    """Return a URL without the part before "@", which may hold a password or key."""
    return re.sub(r"(?<=://)[^/@]*@", "", address)
