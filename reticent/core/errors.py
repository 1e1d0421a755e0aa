"""The exceptions of Reticent, and the rule for their messages.

**No message carries text of a document.** A message says what was expected, what was found and where
(file, row, column, document number); never a word, a name or an identifier. Ids of documents and of
individuals are personal data too: messages name rows, not ids.
"""

from __future__ import annotations

import errno
import os


class ReticentError(Exception):
    """Base of every error Reticent raises on purpose; the command line prints it without a traceback."""

    exit_code = 1


class CorpusError(ReticentError, ValueError):
    """The documents, spans or records cannot be used as they are; the message names file, row and column."""


class PolicyError(ReticentError, ValueError):
    """A setting is out of range or two settings contradict each other."""

    exit_code = 2


class ArtifactError(ReticentError, OSError):
    """An artefact folder is missing, incomplete, in use, or was made from other inputs."""


class TrainingError(ReticentError, RuntimeError):
    """Training or scoring cannot go on: a protected target, no eligible target, a loss that is not finite."""


class GateError(ReticentError, RuntimeError):
    """A privacy gate failed: the result exists, and it is not good enough."""

    exit_code = 3


def cause(error: Exception) -> str:
    """Return the operating system's message for an error, without the file; for other errors the name of their type, as
    a message may quote text."""
    number = getattr(error, "errno", None)
    if number is None and isinstance(error, FileNotFoundError):  # of Polars
        number = errno.ENOENT
    return os.strerror(number) if isinstance(number, int) else type(error).__name__
