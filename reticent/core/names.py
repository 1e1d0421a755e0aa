"""Rules for names chosen by users: names that become folders or parts of file names, and column names."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from reticent.core.errors import PolicyError

#: Characters of a name, of the 255 bytes that file systems allow with what is written before and after it.
MAX_LENGTH = 100
NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


def require_name(name: str, where: str) -> str:
    """Return ``name`` if it is valid as a folder name; otherwise raise `PolicyError`, which names ``where``.

    >>> require_name("bert-base.v2", "model.name")
    'bert-base.v2'
    """
    if not NAME.fullmatch(name) or len(name) > MAX_LENGTH:
        shown = repr(name) if len(name) <= MAX_LENGTH else f"one of {len(name)} characters"
        raise PolicyError(
            f"{where}: a name is of letters (a to z), digits, dots, dashes and underscores, begins with no dot and has "
            f"at most {MAX_LENGTH} characters, as it becomes the name of a folder; got {shown}"
        )
    return name


def require_distinct(names: Iterable[str], what: str) -> None:
    """Raise `PolicyError` if two names are equal when case is ignored, as on some file systems."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.get(name.lower())
        if other == name:
            raise PolicyError(f"two {what} have the same name")
        if other is not None:
            raise PolicyError(f"two {what} have names that differ by case alone, {other} and {name}; choose another")
        seen[name.lower()] = name


def plain_name(column: str) -> str:
    """Return a column name normalised for comparison: lower case, no accents, underscores for blanks and dashes.

    >>> plain_name("Date de naissance"), plain_name("PRÉNOM")
    ('date_de_naissance', 'prenom')
    """
    letters = "".join(each for each in unicodedata.normalize("NFKD", column) if not unicodedata.combining(each))
    return re.sub(r"[\s-]+", "_", letters.strip().lower())
