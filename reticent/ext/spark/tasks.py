"""Functions that run in executors, and their errors: no error of a task carries text of a document.

Spark writes the error of a task, message and traceback, into the logs of executor and driver and into the event log. So
an error leaves a task as `TaskError`, whose message is one of this package's, or the type of the error alone.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from reticent.core.errors import ArtifactError, CorpusError, PolicyError, ReticentError


class SparkError(ReticentError, RuntimeError):
    """An error of Spark; its message is withheld, since it may quote a document.

    Attributes
    ----------
    kind : the condition that Spark names, or a class of the JVM; empty where there is none
    """

    def __init__(self, message: str, kind: str = ""):
        super().__init__(message)
        self.kind = kind


class TaskError(Exception):
    """An error raised by a task, whose message holds no document text."""


#: Kinds of errors whose messages are ours.
_OWN: Final = {kind.__name__: kind for kind in (CorpusError, PolicyError, ArtifactError)}
#: Errors of a full disk, and what is said of them.
_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)
_FULL: Final = (
    "a disk is full on the driver or on an executor: Spark keeps temporary files in spark.local.dir there, and "
    "detectors in TMPDIR"
)
_MARK: Final = re.compile(r"<<reticent (\w+)>>(.*?)<</reticent>>", re.DOTALL)


def _as_task_error(error: BaseException) -> TaskError:
    """Return a `TaskError` that stands for an error in a task, with its message only if it is an error of
    this package.
    """
    for name, kind in _OWN.items():
        if isinstance(error, kind):
            return TaskError(f"<<reticent {name}>>{error}<</reticent>>")
    if isinstance(error, OSError) and error.errno is not None:
        return TaskError(f"<<reticent OSError>>{error.errno}<</reticent>>")
    if isinstance(error, MemoryError):
        return TaskError("<<reticent MemoryError>><</reticent>>")
    return TaskError(f"<<reticent {type(error).__name__}>>its message is withheld<</reticent>>")


@dataclass(frozen=True, slots=True)
class Task:
    """Wrapper by which Spark calls a generator function: its errors become `TaskError`, without document text."""

    work: Callable[..., Iterable[Any]]

    def __call__(self, *arguments: Any) -> Iterator[Any]:
        failure: TaskError | None = None
        try:
            yield from self.work(*arguments)
        except Exception as error:
            failure = error if isinstance(error, TaskError) else _as_task_error(error)
        if failure is not None:  # outside of the handler, so that nothing is chained to it
            raise failure


@contextmanager
def errors_of_tasks() -> Iterator[None]:
    """Context manager that replaces errors of Spark: by the error that the task raised or, if it is no error of this
    package, by a `SparkError` without its message, which may quote document text.

    Raises
    ------
    CorpusError, PolicyError, ArtifactError, OSError, MemoryError
        A task failed with it.
    SparkError
        Anything else that Spark fails with: a driver or its executors were lost, a source cannot be read.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    failure: BaseException | None = None
    try:
        yield
    except (PySparkException, Py4JError, ConnectionError, EOFError) as error:
        failure = _translate_error(error)
    if failure is not None:
        raise failure


def _translate_error(error: BaseException) -> BaseException:
    """Return the error to raise in place of Spark's error: the task's own, or a `SparkError` without its message."""
    java = getattr(error, "java_exception", None)
    try:
        text = str(error) if java is None else f"{error}\n{java.toString()}"
    except Exception:  # the JVM that would say it is gone
        text = ""
    if found := _MARK.search(text):
        name, message = found.groups()
        if name in _OWN:
            return _OWN[name](message)
        if name == "OSError":
            number = int(message)
            return SparkError(_FULL) if number in _NO_SPACE else OSError(number, os.strerror(number))
        if name == "MemoryError":
            return MemoryError("a task of Spark has no memory left; cut the documents into more parts (num_parts)")
        return SparkError(f"a task of Spark failed ({name}); its message is withheld")
    if any(os.strerror(number) in text for number in _NO_SPACE):
        return SparkError(_FULL)
    kind = _error_kind(error, text)
    return SparkError(f"Spark failed ({kind}); its message is withheld, since it may quote a document", kind)


def _error_kind(error: BaseException, text: str) -> str:
    """Return the kind of a Spark error: its error condition, else the JVM or Python class name."""
    condition = getattr(error, "getCondition", None) or getattr(error, "getErrorClass", None)
    try:
        if condition is not None and (name := condition()) and re.fullmatch(r"[A-Z_0-9.]+", name):
            return str(name)
    except Exception:
        pass
    classes = re.findall(r"\b(?:java|org\.apache\.spark|org\.apache\.hadoop)[\w.$]*(?:Exception|Error)\b", text)
    return classes[-1] if classes else type(error).__name__
