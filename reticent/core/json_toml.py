"""Reading JSON and TOML, with errors that hold no content; the only module that parses them.

An error of a file has its path and place, and never its content. A file may nest `MAX_DEPTH`
levels: deeper ones overflow the stack of the next reader.
"""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

from reticent.core.errors import ArtifactError, PolicyError, ReticentError

#: Levels of tables and lists inside each other; results of ours have about 10, a tokenizer.json at most 128.
MAX_DEPTH = 128
#: Bytes of a TOML text, which a person writes: its parser takes seconds a megabyte.
MAX_TOML = 1 << 20


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text; `ValueError`, with a message that quotes nothing, if it is invalid."""
    try:
        return _check_depth(json.loads(text))
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON: {error.msg} in line {error.lineno}, column {error.colno}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"not valid JSON: not UTF-8 (byte {error.start})") from None
    except RecursionError:
        raise ValueError(_too_deep_text()) from None


def parse_toml(text: str | bytes) -> dict[str, Any]:
    """Return the values of a TOML text; `ValueError` if it is invalid or has more than `MAX_TOML` bytes."""
    if len(text) > MAX_TOML:
        raise ValueError(f"{len(text):,} bytes of TOML: expected at most {MAX_TOML:,}")
    try:
        return _check_depth(tomllib.loads(text.decode("utf-8-sig") if isinstance(text, bytes) else text))
    except tomllib.TOMLDecodeError as error:
        twice = str(error).startswith(("Cannot overwrite", "Cannot declare"))
        more = "; a name is given twice, by lines or as a line and a [table]: one of them has to go" if twice else ""
        raise ValueError(f"not valid TOML: {error}{more}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"not valid TOML: not UTF-8 (byte {error.start})") from None
    except RecursionError:
        raise ValueError(_too_deep_text()) from None


def read_json(path: Path | str, error: type[ReticentError] = ArtifactError) -> Any:
    """Return the value of a JSON file; raise ``error`` if it cannot be read or is invalid."""
    data = _read_bytes(path, error)
    try:
        return parse_json(data)
    except ValueError as wrong:
        raise error(f"{path}: {wrong}") from None


def read_toml(path: Path | str, error: type[ReticentError] = PolicyError) -> dict[str, Any]:
    """Return the values of a TOML file; raise ``error`` if it cannot be read or is invalid."""
    data = _read_bytes(path, error)
    try:
        return parse_toml(data)
    except ValueError as wrong:
        raise error(f"{path}: {wrong}") from None


def depth_of(value: Any) -> int:
    """Return the nesting depth of dicts and lists, computed without recursion; values deeper than ``MAX_DEPTH`` give
    ``MAX_DEPTH + 1``."""
    level, depth = [value], 0
    while depth <= MAX_DEPTH:
        level = [each for each in level if isinstance(each, dict | list)]
        if not level:
            break
        depth += 1
        level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
    return depth


def _check_depth(value: Any) -> Any:
    """Return the value unchanged; `ValueError` if it is nested too deep."""
    if depth_of(value) > MAX_DEPTH:
        raise ValueError(_too_deep_text())
    return value


def _too_deep_text() -> str:
    """Return the error message for values that are nested too deep."""
    return f"tables and lists lie inside each other more than {MAX_DEPTH} deep"


def _read_bytes(path: Path | str, error: type[ReticentError]) -> bytes:
    """Return the content of a file; raise ``error`` if it cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError as wrong:
        reason = os.strerror(wrong.errno) if wrong.errno is not None else type(wrong).__name__
        raise error(f"{path}: cannot be read ({reason})") from None
    except ValueError:  # of paths: a NUL, half a surrogate pair
        raise error(f"{str(path)!r}: no file can have this name") from None
