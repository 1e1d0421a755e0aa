"""Sources that are no local files, by the scheme of their address. They are read once, into files (`staged`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Final, Protocol

from reticent.engine.sources.corpus_config import CorpusConfig
from reticent.engine.sources.remote_config import LAKES, STORES, scheme_of
from reticent.engine.sources.source import Source

__all__ = ["RemoteSource", "open_remote"]


class RemoteSource(Source, Protocol):
    """A source that may hold something open."""

    @property
    def passed_over(self) -> int:
        """How many objects beside the documents were not read; known once it has a version."""

    def close(self) -> None:
        """Let go of it: a snapshot, a connection."""


#: Scheme -> module and name of the class of its source.
_OPENERS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "postgresql": ("postgres", "Postgres"),
        "postgres": ("postgres", "Postgres"),
        "adbc": ("adbc", "AdbcDatabase"),
        **dict.fromkeys(STORES, ("objects", "Objects")),
        **{scheme: ("delta", "DeltaSource") for scheme in LAKES if scheme != "iceberg"},
        "iceberg": ("iceberg", "IcebergSource"),
    }
)


@contextmanager
def open_remote(settings: CorpusConfig, scratch: Path) -> Iterator[RemoteSource]:
    """Open the source of a job that is no local file.

    Parameters
    ----------
    scratch : a private folder, for objects that are read from a file

    Raises
    ------
    PolicyError
        Its driver is not installed.
    CorpusError
        It cannot be reached.
    """
    assert settings.remote is not None
    module, name = _OPENERS[scheme_of(settings.remote)]
    opener: Callable[[CorpusConfig, Path], RemoteSource]
    opener = getattr(import_module(f"reticent.engine.sources.{module}"), name)
    source = opener(settings, scratch)
    try:
        yield source
    finally:
        source.close()
