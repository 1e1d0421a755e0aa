"""Evidence and JSON: `from_json` reads a dataclass strictly, `to_json` writes it.

A key that is not a field of the class is an error that names the key, so a value without a rule is never passed on. A
field that was not measured is None. It is left out of the JSON, or written as null if the field is `nullable`.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, field, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from reticent.core.errors import ArtifactError

__all__ = ["Json", "extended", "from_json", "nullable", "optional", "to_json"]

Evidence = TypeVar("Evidence")
#: JSON from a file. Its shape is unknown until `from_json` has read it.
Json = Any


def optional(*, beside: str | None = None) -> Any:
    """A field that is left out of the JSON if it is None. If the field named by ``beside`` is set, null is written."""
    return field(default=None, metadata={"beside": beside})


def nullable() -> Any:
    """A field that is written as null if it is None."""
    return field(default=None, metadata={"null": True})


def extended(part: Any, cls: type[Evidence], **more: Any) -> Evidence:
    """Return the evidence as an instance of ``cls``, a class with more fields, whose values are ``more``."""
    return cls(**{own.name: getattr(part, own.name) for own in fields(part)}, **more)


def from_json(cls: type[Evidence], value: Json, where: str = "evidence") -> Evidence:
    """Return JSON as an evidence class.

    Raises
    ------
    ArtifactError
        A key is not a field, a field without a default is missing, or a value has the wrong type. The message names the
        place and the key, never the value.
    """
    return _read(cls, value, where)  # type: ignore[no-any-return]


def to_json(value: Any) -> Json:
    """Return evidence as JSON: dictionaries, lists and plain values."""
    if is_dataclass(value) and not isinstance(value, type):
        return {
            part.name: to_json(getattr(value, part.name)) for part in fields(value) if not _is_left_out(value, part)
        }
    if isinstance(value, Mapping):
        return {key: to_json(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(part) for part in value]
    return value


def _is_left_out(value: Any, part: Any) -> bool:
    if getattr(value, part.name) is not None or "beside" not in part.metadata:
        return False
    beside = part.metadata["beside"]
    return beside is None or getattr(value, beside) is None


_hints = cache(get_type_hints)


def _read(hint: Any, value: Any, where: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _read(arguments[0], value, where)
    if origin in (Union, types.UnionType):
        return _read_one_of(arguments, value, where)
    if hint in (Any, object):
        return value
    if origin is Literal:
        if value not in arguments:
            raise ArtifactError(f"{where}: not one of {', '.join(map(str, arguments))}")
        return value
    if is_dataclass(hint):
        return _read_class(hint, value, where)
    if origin in (dict, Mapping):
        _expect(isinstance(value, Mapping), "an object", value, where)
        return {_read(arguments[0], key, where): _read(arguments[1], v, f"{where}.{key}") for key, v in value.items()}
    if origin in (list, tuple):
        _expect(isinstance(value, list | tuple), "a list", value, where)
        read = (_read(arguments[0], part, f"{where}[{number}]") for number, part in enumerate(value))
        return list(read) if origin is list else tuple(read)
    kinds = {float: (int, float), int: int, str: str, bool: bool, type(None): type(None)}[hint]
    right = isinstance(value, kinds) and (hint is bool or not isinstance(value, bool))  # type: ignore[arg-type]
    _expect(right, getattr(hint, "__name__", str(hint)), value, where)
    return value


def _read_one_of(hints: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in hints:
        return None
    rest = [hint for hint in hints if hint is not type(None)]
    for hint in rest[:-1]:
        kind = get_origin(hint) or hint
        if isinstance(value, dict if is_dataclass(hint) else kind):
            return _read(hint, value, where)
    return _read(rest[-1], value, where)


def _read_class(cls: Any, value: Any, where: str) -> Any:
    _expect(isinstance(value, Mapping), "an object", value, where)
    hints, known = _hints(cls), {part.name: part for part in fields(cls)}
    for key in value:
        if key not in known:
            raise ArtifactError(
                f"{where}: {key!r} is no field of {cls.__name__}, and has no rule by which it may leave"
            )
    for name, part in known.items():
        if name not in value and part.default is MISSING and part.default_factory is MISSING:
            raise ArtifactError(f"{where}: {name} is missing")
    return cls(**{name: _read(hints[name], part, f"{where}.{name}") for name, part in value.items()})


def _expect(right: bool, expected: str, value: Any, where: str) -> None:
    if not right:
        raise ArtifactError(f"{where}: expected {expected}, got {type(value).__name__}")
