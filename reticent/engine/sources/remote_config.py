"""Settings of documents that are no local files: a database, an object store, a table of a lake; and their addresses.

An address may name a user and never a password: credentials come from the places that the driver looks at itself. What
is shown of an address in manifests and messages is its scheme, host and path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import Field

from reticent.core.errors import PolicyError
from reticent.core.section import Section

__all__ = ["DATABASES", "LAKES", "STORES", "Warehouse", "check_address", "is_remote", "scheme_of", "shown"]

DATABASES: Final = ("postgresql", "postgres", "adbc")
STORES: Final = ("s3", "gs", "abfs", "hdfs")
LAKES: Final = ("delta", *(f"delta+{store}" for store in STORES), "iceberg")
_POSTGRES: Final = (
    *("host", "hostaddr", "port", "dbname", "user", "service", "passfile", "connect_timeout", "application_name"),
    *("sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl", "target_session_attrs", "channel_binding"),
    *("gssencmode", "krbsrvname", "require_auth", "keepalives", "keepalives_idle", "tcp_user_timeout"),
)
#: Parameters that an address may have; any other may be a secret.
PARAMETERS: Final[Mapping[str, tuple[str, ...]]] = {
    "postgresql": _POSTGRES,
    "postgres": _POSTGRES,
    "s3": ("region", "scheme", "endpoint_override"),
    "gs": ("scheme", "endpoint_override"),
    "abfs": ("enable_tls",),
    "hdfs": ("replication", "buffer_size"),
}


class Warehouse(Section):
    """How documents are chosen and read that are no local files."""

    section: ClassVar[str] = "corpus"

    table: str | None = Field(
        default=None, description="databases: the table or view of the notes, SCHEMA.TABLE, with the columns above"
    )
    query: str | None = Field(default=None, description="databases: a SELECT with the columns above")
    preset: Literal["omop", "i2b2"] | None = Field(
        default=None, description="databases: tables and columns of a model of clinical data; table names its notes"
    )
    opt_out: str | None = Field(
        default=None,
        description="databases: a table of individuals who withdrew, SCHEMA.TABLE, none of whose notes is read; its "
        "column of their ids is called as that of the notes",
    )
    version: str | None = Field(
        default=None, description="Delta: number of the version; Iceberg: id of the snapshot (default: the newest)"
    )
    connections: int = Field(
        default=1,
        ge=1,
        le=64,
        description="stretches that are read at the same time, each by a connection of its own; of one snapshot",
    )

    def check_remote(self, sources: Sequence[str]) -> None:
        """Refuse settings that contradict the source, or each other, and an address with a secret in it.

        Raises
        ------
        PolicyError
            No value is quoted: it may be the secret.
        """
        remote = [source for source in sources if is_remote(source)]
        choices = ("table", "query", "preset", "opt_out", "version")
        given = [name for name in choices if getattr(self, name) is not None]
        if not remote:
            if given or self.connections != 1:
                names = ", ".join(f"corpus.{name}" for name in given or ["connections"])
                raise PolicyError(f"{names}: means nothing for local files")
            return
        for source in remote:
            check_address(source)
        if len(sources) > 1:
            raise PolicyError("corpus.source: a database, an object store or a lake is the only source of a job")
        self._check_choice(scheme_of(remote[0]), given)

    def _check_choice(self, scheme: str, given: Sequence[str]) -> None:
        chosen = [name for name in given if name not in ("version", "opt_out")]
        if scheme not in DATABASES:
            if chosen := [name for name in given if name != "version"]:
                raise PolicyError(f"corpus.{chosen[0]}: means something for a database alone")
            if "version" in given and scheme not in LAKES:
                raise PolicyError("corpus.version: means something for Delta and Iceberg alone")
            return
        if "version" in given:
            raise PolicyError("corpus.version: a database has none; its snapshot is taken when it is read")
        if ("query" in chosen and len(chosen) > 1) or not chosen:
            raise PolicyError("corpus: a database needs table, query or preset (table and preset go together)")


def is_remote(source: str) -> bool:
    """Whether a source is an address, and no path of a local file."""
    return "://" in source


def scheme_of(source: str) -> str:
    """Return the scheme of an address, in small letters."""
    return source.partition("://")[0].lower()


def check_address(source: str) -> None:
    """Refuse an address of an unknown scheme, and one that holds a password, a key or anything that may be one.

    Raises
    ------
    PolicyError
        Nothing of the address is quoted, but for a known scheme.
    """
    scheme = scheme_of(source)
    if scheme not in (*DATABASES, *STORES, *LAKES):
        known = ", ".join(f"{name}://" for name in (*DATABASES, *STORES, *LAKES))
        raise PolicyError(f"corpus.source: expected a path or an address that begins with one of {known}")
    if not source.isprintable() or (scheme in DATABASES and " " in source):
        raise PolicyError("corpus.source: the address holds a blank or a character that cannot be printed")
    try:
        parts = urlsplit(source)
        user, at, _ = parts.netloc.rpartition("@")
        given = [unquote(name).lower() for name, _ in parse_qsl(parts.query, keep_blank_values=True)]
    except ValueError:
        raise PolicyError("corpus.source: not a valid address") from None
    said = "credentials come from the environment and the files of the driver (PGPASSFILE, PGSERVICE, the cloud's own)"
    names_user = scheme in ("postgresql", "postgres", "abfs", "delta+abfs", "hdfs", "delta+hdfs")
    if at and (":" in unquote(user) or "@" in unquote(user) or not names_user):
        raise PolicyError(f"corpus.source: the address holds a password or a key, which no job keeps; {said}")
    allowed = PARAMETERS.get(scheme.removeprefix("delta+"), ())
    if any(name not in allowed for name in given) or parts.fragment:
        shown_allowed = ", ".join(allowed) or "none"
        raise PolicyError(f"corpus.source: the address has a parameter that it may not have (allowed: {shown_allowed})")


def shown(source: str) -> str:
    """Return what messages and manifests show of an address: neither the user nor its parameters."""
    parts = urlsplit(source)
    if scheme_of(source).endswith("abfs"):  # its container stands where others have a user
        return f"{parts.scheme}://{parts.netloc}{parts.path}"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
