"""Names for surrogates of identifiers: realistic ones from fixed public lists, or invented syllables.

``realistic``: ``names.toml`` beside this file, made from the lists of Faker (``tools/name_pools.py``). They hide
an identifier that no detector found among surrogates that look like it [@carrell2013]. ``syllables``: names that no
individual bears, so that a missed name shows. A file of one's own has the form of ``names.toml``: a table a language,
in it the names of ``women``, ``men``, ``surnames`` and ``places`` between white space.

No name is left out of a pool because of the corpus: that would tell which names the corpus holds. Surrogates that are a
name of the corpus by coincidence are counted.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from reticent import _rust
from reticent.core.errors import PolicyError

if TYPE_CHECKING:
    from reticent._rust import NamePool

REALISTIC: Final = "realistic"
SYLLABLES: Final = "syllables"
#: The language of most documents.
AUTO: Final = "auto"
KINDS: Final = ("women", "men", "surnames", "places")
_FILE: Final = Path(__file__).with_name("names.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class SurrogateNames:
    """The source and language of the names that surrogates are drawn from.

    Parameters
    ----------
    source : str
        "realistic", "syllables", or the path of a file of names.
    language : str
        A language of the source, or "auto": the one of most documents. One language serves the whole corpus, so that an
        individual's name stays the same in all documents.

    Raises
    ------
    PolicyError
        The file cannot be read, has another form, or does not have the language.
    """

    source: str = REALISTIC
    language: str = AUTO

    def __post_init__(self) -> None:
        if self.source != SYLLABLES and self.language != AUTO and self.language not in self._tables():
            known = ", ".join(sorted(self._tables()))
            raise PolicyError(f"language of names: expected {AUTO} or one of {known}, got {self.language!r}")

    def digest(self) -> str | None:
        """Return the SHA-256, hexadecimal, of all names that surrogates can be drawn from; None if they are invented
        syllables."""
        if self.source == SYLLABLES:
            return None
        tables = self._tables()
        drawn = tables if self.language == AUTO else {self.language: tables[self.language]}
        return hashlib.sha256(json.dumps(drawn, sort_keys=True).encode()).hexdigest()

    def pool(self, language_of_documents: str | None = None) -> NamePool | None:
        """Return the names that surrogates are drawn from, as a Rust object; None if they are invented syllables.

        Parameters
        ----------
        language_of_documents : str, optional
            What "auto" means (:mod:`reticent.engine.languages`). Without it, or where the source does not have it:
            English, or else the first language of the source.
        """
        if self.source == SYLLABLES:
            return None
        tables = self._tables()
        if self.language != AUTO:
            return _make_pool(self.source, self.language)
        chosen = (language_of_documents, "en", *sorted(tables))
        return _make_pool(self.source, next(name for name in chosen if name in tables))

    def _tables(self) -> Mapping[str, Mapping[str, tuple[str, ...]]]:
        """Return the names of the source as a dict: language -> kind -> names."""
        return _read(self.source)


def name_lists(language: str) -> Mapping[str, tuple[str, ...]]:
    """Return the built-in realistic names of a language by kind (`KINDS`); the English ones if the language has
    none."""
    tables = _read(REALISTIC)
    return tables.get(language, tables["en"])


@lru_cache(maxsize=8)
def _make_pool(source: str, language: str) -> NamePool:
    """Return the names of a source in one language as a Rust object."""
    table = _read(source)[language]
    try:
        return _rust.NamePool(*(pa.array(table[kind], pa.string()) for kind in KINDS))
    except PolicyError as error:
        raise PolicyError(f"{_setting_text(source)}: {language}: {error}") from None


@lru_cache(maxsize=2)
def _read(source: str) -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    """Return a dict from language to kind to distinct names, read from a TOML file or the built-in lists."""
    try:
        tables = tomllib.loads((_FILE if source == REALISTIC else Path(source)).read_text(encoding="utf-8"))
    except OSError as error:
        raise PolicyError(
            f"{_setting_text(source)}: cannot be read ({error.strerror}); "
            f"expected {REALISTIC!r}, {SYLLABLES!r} or a file"
        ) from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError):
        raise PolicyError(f"{_setting_text(source)}: not a file of TOML in UTF-8") from None
    for language, table in tables.items():
        if not isinstance(table, dict) or not all(isinstance(table.get(kind), str) for kind in KINDS):
            raise PolicyError(
                f"{_setting_text(source)}: {language}: expected a table with the names of {', '.join(KINDS)}"
            )
    if not tables:
        raise PolicyError(f"{_setting_text(source)}: expected a table a language")
    return {
        language: {kind: tuple(dict.fromkeys(table[kind].split())) for kind in KINDS}
        for language, table in tables.items()
    }


def _setting_text(source: str) -> str:
    """Return the job's setting for surrogate names, with its value, as text for an error message."""
    return f"surrogates.names: {source}"
