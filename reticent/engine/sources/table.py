"""The table of document sources that are not local files, by the scheme of their address.

To add one, write its opener in a file of its own and its row here.

An address may name a user and never a password: credentials come from the places that the driver looks at itself. What
is shown of an address in manifests and messages is its scheme, host and path.
"""

from __future__ import annotations

import glob
import os
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from reticent.core.errors import PolicyError


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRow:
    """Description of a type of remote source: scheme, kind, opener and permitted parameters.

    Parameters
    ----------
    scheme : str
        Scheme of its addresses (the part before ``://``), in lower case.
    kind : {"database", "store", "lake", "export"}
        Decides which settings have an effect: a database needs ``corpus.table``, ``query`` or ``preset``; the objects
        of a store are files, of a format; a lake has ``corpus.version``; an export is a local folder.
    opener : str
        ``package.module:name`` of a function of the settings (`CorpusConfig`) and a private folder for what must be a
        file. It returns a `RemoteSource`.
    parameters : tuple of str
        Names of the parameters that an address may have; any other is refused, as it may be a secret.
    names_user : bool
        Whether an address may hold a user name.
    """

    scheme: str
    kind: Literal["database", "store", "lake", "export"]
    opener: str
    parameters: tuple[str, ...] = ()
    names_user: bool = False


_OBJECTS: Final = "reticent.ext.warehouse.objects:Objects"
_DELTA: Final = "reticent.ext.warehouse.lakes:DeltaSource"
_POSTGRES: Final = SourceRow(
    scheme="postgresql",
    kind="database",
    opener="reticent.ext.warehouse.postgres:Postgres",
    parameters=(
        *("host", "hostaddr", "port", "dbname", "user", "service", "passfile", "connect_timeout", "application_name"),
        *("sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl", "target_session_attrs", "channel_binding"),
        *("gssencmode", "krbsrvname", "require_auth", "keepalives", "keepalives_idle", "tcp_user_timeout"),
    ),
    names_user=True,
)
_STORES: Final = (
    SourceRow(scheme="s3", kind="store", opener=_OBJECTS, parameters=("region", "scheme", "endpoint_override")),
    SourceRow(scheme="gs", kind="store", opener=_OBJECTS, parameters=("scheme", "endpoint_override")),
    SourceRow(scheme="abfs", kind="store", opener=_OBJECTS, parameters=("enable_tls",), names_user=True),
    SourceRow(scheme="hdfs", kind="store", opener=_OBJECTS, parameters=("replication", "buffer_size"), names_user=True),
)
_ROWS: Final = (
    SourceRow(scheme="adbc", kind="database", opener="reticent.ext.warehouse.adbc:AdbcDatabase"),
    SourceRow(scheme="delta", kind="lake", opener=_DELTA),
    SourceRow(scheme="iceberg", kind="lake", opener="reticent.ext.warehouse.lakes:IcebergSource"),
    _POSTGRES,
    replace(_POSTGRES, scheme="postgres"),
    *_STORES,
    *(replace(store, scheme=f"delta+{store.scheme}", kind="lake", opener=_DELTA) for store in _STORES),
    *(
        SourceRow(scheme=scheme, kind="export", opener="reticent.ext.exports.source:Exports")
        for scheme in ("fhir", "hl7", "cda", "pages")
    ),
)
#: Scheme -> source.
SOURCES: Final[Mapping[str, SourceRow]] = MappingProxyType({row.scheme: row for row in _ROWS})


def is_remote(source: str) -> bool:
    """Whether a document source is an address (URL), not a local path."""
    return "://" in source


def row_of(address: str) -> SourceRow:
    """Return the description of the source kind (a row of the table of sources) for an address, by its scheme."""
    return SOURCES[_scheme_of(address)]


def _scheme_of(source: str) -> str:
    """Return the scheme of an address, in lower case: what precedes "://"."""
    return source.partition("://")[0].lower()


def check_address(source: str) -> None:
    """Raise `PolicyError` for an address with an unknown scheme, or one that may hold a password or a key.

    Raises
    ------
    PolicyError
        Nothing of the address is quoted, but for a known scheme.
    """
    row = SOURCES.get(_scheme_of(source))
    if row is None:
        known = ", ".join(f"{name}://" for name in SOURCES)
        raise PolicyError(f"corpus.source: expected a path or an address that begins with one of {known}")
    if not source.isprintable() or (row.kind == "database" and " " in source):
        raise PolicyError("corpus.source: the address holds a blank or a character that cannot be printed")
    try:
        parts = urlsplit(source)
        user, at, _ = parts.netloc.rpartition("@")
        given = [(unquote(name).lower(), value) for name, value in parse_qsl(parts.query, keep_blank_values=True)]
    except ValueError:
        raise PolicyError("corpus.source: not a valid address") from None
    said = f"{_CREDENTIALS} (PGPASSFILE, PGSERVICE, the cloud's own)"
    if at and (":" in unquote(user) or "@" in unquote(user) or not row.names_user):
        raise PolicyError(f"corpus.source: the address holds a password or a key, which no job keeps; {said}")
    if any(re.search(":.*@", value) or (name == "user" and ":" in value) for name, value in given):
        raise PolicyError(f"corpus.source: a parameter of the address may hold a password, which no job keeps; {said}")
    if _may_hold_password(row, parts.netloc.rpartition("@")[2], parts.path):
        raise PolicyError(
            "corpus.source: the address may hold a password behind a colon or a slash, which no job keeps; "
            f"a database has one name behind its host; {said}"
        )
    if any(name not in row.parameters for name, _ in given) or parts.fragment:
        allowed = ", ".join(row.parameters) or "none"
        raise PolicyError(f"corpus.source: the address has a parameter that it may not have (allowed: {allowed})")


#: A host and its port.
_HOST: Final = re.compile(r"(?:\[[^\[\]@/]*\]|[^\[\]:@/]*)(?::\d+)?")
#: A profile of ADBC: its name, that in a folder, or its file.
_PROFILE: Final = re.compile(r"[^:@/]*(?:/[^:@/]*)?|/[^:@]*|[^:@]*\.toml")


def _may_hold_password(row: SourceRow, host: str, path: str) -> bool:
    """Whether host or path of an address contains a character that may be part of a misplaced password."""
    plain = unquote(unquote(path))
    if row.scheme == "adbc":
        return not _PROFILE.fullmatch(unquote(unquote(host)) + plain)
    # A socket of PostgreSQL is a folder, or an abstract name, and is written with %2F or %40 before it.
    hosts = [each[3:] if each[:3].lower() in ("%2f", "%40") else unquote(unquote(each)) for each in host.split(",")]
    is_plain = all(map(_HOST.fullmatch, hosts)) and ",".join(hosts).count(":") == host.count(":")
    if row.kind == "database":
        return not is_plain or path.count("/") > 1 or re.search("[:@]", plain) is not None
    has_port = re.fullmatch(r"(?:\[.*\]|[^:]*):?", host) is None
    if not row.scheme.endswith("hdfs"):
        return has_port
    # A name in this file system has no colon.
    is_slipped = ":" in plain or (":" in host and "@" in plain)
    return not is_plain or is_slipped or (has_port and row.scheme != "hdfs")


#: Schemes of paths that Spark reads, beside those of `SOURCES`.
_OF_SPARK: Final = frozenset(
    ("file", "viewfs", "webhdfs", "swebhdfs", "s3a", "s3n", "abfss", "wasb", "wasbs", "dbfs", "adl", "ofs", "o3fs")
)
#: ``SECTION.FIELD=`` or ``--option=`` before a value.
_FIELD: Final = re.compile(r"--?[\w-]+=|[A-Za-z_][\w-]*(?:\.[\w-]+)+\s*=|corpus\s*=")
#: ``password=``, however it is spelt or slipped; in several languages.
_KEY: Final = re.compile(
    r"(?:pas+[^\s=:;,&/]*|p\s?w\s?d?|psw\w*|pw\w*|\w*pwd|\w*pass\w*|\w*secret\w*|\w*token|\w*credentials?|\w*api_?key|"
    r"\w*access_?key\w*|\w*account_?key|\w*private_?key|sig|signature|sas|mdp|mot_?de_?passe|\w*kennwort|contrase\w*|auth)"
    r"[\"'\]})]*\s*(?:=|:(?!//))\s*\S",
    re.IGNORECASE,
)
#: Two settings of a connection: ``host=… user=…``, ``Server=…;Uid=…``.
_PAIRS: Final = re.compile(
    r"(?:^|[\s;?&{,=\"'(])(?:host(?:addr|name)?|server|data ?source|address|uid|user(?: ?id|_?name)?|usr|dbname|"
    r"database|initial ?catalog|driver|dsn|sslmode|port|service|url)\s*=\s*[^\s;&]+[\s;&]+\s*\S",
    re.IGNORECASE,
)
#: A user and what may be a password before a host; or a name of a driver without the slashes of an address.
_BEFORE_HOST: Final = re.compile(
    r":.*@|@//|[^\s@/]+/[^\s@]+@[\w.-]+:\d|^\W*(?:jdbc|odbc|mysql|mariadb|mssql|sqlserver|oracle|postgres\w*|psql|"
    r"redshift|snowflake|bigquery|mongodb\S*|clickhouse|adbc)\s*[:;]",
    re.IGNORECASE | re.DOTALL,
)


def refuse_secrets(argument: str, name: str = "an argument") -> None:
    """Raise `PolicyError` for a command-line argument or setting that may hold a password or a key.

    A path that is there is none, nor are addresses that `check_address` passes, and paths that Spark reads.

    Raises
    ------
    PolicyError
        Nothing of it is quoted.
    """
    if "\0" not in argument and (os.path.exists(argument) or (glob.has_magic(argument) and glob.glob(argument))):
        return
    argument = unicodedata.normalize("NFKC", argument)  # ： and ＠ are slips of the pen
    found = _FIELD.match(argument)
    value = (argument[found.end() :] if found else argument).strip().strip("\"'[]").strip()
    if re.match(r"(?:select|with)\s", value, re.IGNORECASE) and found:  # a query has colons and signs of its own
        return
    scheme = _scheme_of(value) if "://" in value else ""
    if scheme in SOURCES:
        check_address(value)
        return
    said = f"{name} may hold a password or a key, and is not repeated here; " + _CREDENTIALS
    if "://" in value:
        place = unquote(unquote(value.partition("://")[2]))
        host = re.split("[/?#]", place, maxsplit=1)[0]
        behind_colon = host.rpartition("@")[2].partition("]")[2] or host.rpartition("@")[2]
        has_colon = ":" in host.rpartition("@")[0] or re.search(r":(?!\d*$)", behind_colon) is not None
        is_path = scheme in _OF_SPARK or (found is not None and re.fullmatch("https?", scheme))
        slipped = "@" in place[len(host) :] and (":" in host or not is_path)
        if has_colon or slipped or not is_path:
            raise PolicyError(said if is_path else f"{said}. Known addresses begin with {', '.join(SOURCES)}")
        value = place[len(host) :]
    elif (
        _BEFORE_HOST.search(unquote(unquote(value)))
        and not (found and re.search(r"\s", value))
        and not glob.glob(value)
    ):
        raise PolicyError(said)
    if _KEY.search(unquote(value)) or _PAIRS.search(unquote(value)):
        raise PolicyError(said)


_CREDENTIALS: Final = "credentials come from the environment and the files of the driver"


def shown(source: str) -> str:
    """Return an address without user name, password and parameters, for messages and manifests."""
    parts = urlsplit(source)
    if _scheme_of(source).endswith("abfs"):  # its container stands where others have a user
        return f"{parts.scheme}://{parts.netloc}{parts.path}"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
