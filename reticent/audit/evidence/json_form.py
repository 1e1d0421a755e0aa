"""Evidence and JSON: `from_json` reads a dataclass strictly, `to_json` writes it.

A key that is not a field of the class is an error that names the key, so a value without a rule is never passed on. A
field that was not measured is None. It is left out of the JSON, or written as null if the field is `nullable`.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
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
    return _class_reader(cls)(value, where)  # type: ignore[arg-type, no-any-return]


def to_json(value: Any) -> Json:
    """Return evidence as JSON: dictionaries, lists and plain values."""
    if value is None or isinstance(value, str | int | float):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        shown = ((name, getattr(value, name)) for name, may_be_out, beside in _forms(type(value))
                 if not may_be_out or getattr(value, name) is not None
                 or (beside is not None and getattr(value, beside) is not None))  # fmt: skip
        return {name: to_json(part) for name, part in shown}
    if isinstance(value, Mapping):
        return {key: to_json(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(part) for part in value]
    return value


@cache
def _forms(cls: Any) -> list[tuple[str, bool, str | None]]:
    """Return name of each field, whether it is left out where it is None, and the field beside which it is not."""
    return [(part.name, "beside" in part.metadata, part.metadata.get("beside")) for part in fields(cls)]


#: Reads a value, which stands at a place that an error names.
Reader = Callable[[Any, str], Any]


@cache
def _class_reader(cls: Any) -> Reader:
    """Return what reads a class. Its hints are looked at once, as evidence has hundreds of thousands of values."""
    hints, known = get_type_hints(cls), {part.name: part for part in fields(cls)}
    needed = [name for name, part in known.items() if part.default is MISSING and part.default_factory is MISSING]
    readers: dict[str, Reader] = {}

    def read(value: Any, where: str) -> Any:
        _expect(isinstance(value, Mapping), "an object", value, where)
        for key in value:
            if key not in known:
                raise ArtifactError(
                    f"{where}: {key!r} is no field of {cls.__name__}, and has no rule by which it may leave"
                )
        for name in needed:
            if name not in value:
                raise ArtifactError(f"{where}: {name} is missing")
        if not readers:  # not before it is called: a class may hold instances of itself
            readers.update((name, _reader(hints[name])) for name in known)
        return cls(**{name: readers[name](part, f"{where}.{name}") for name, part in value.items()})

    return read


def _reader(hint: Any) -> Reader:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _reader(arguments[0])
    if origin in (Union, types.UnionType):
        return _one_of_reader(arguments)
    if hint in (Any, object):
        return lambda value, _: value
    if origin is Literal:
        return _literal_reader(arguments)
    if is_dataclass(hint):
        return _class_reader(hint)  # type: ignore[arg-type]
    if origin in (dict, Mapping):
        return _object_reader(_reader(arguments[0]), _reader(arguments[1]))
    if origin in (list, tuple):
        return _list_reader(origin, _reader(arguments[0]))
    return _plain_reader(hint)


def _one_of_reader(hints: tuple[Any, ...]) -> Reader:
    rest = [hint for hint in hints if hint is not type(None)]
    kinds = [dict if is_dataclass(hint) else get_origin(hint) or hint for hint in rest[:-1]]
    *readers, last = map(_reader, rest)
    choices, may_be_none = list(zip(kinds, readers, strict=True)), len(rest) < len(hints)

    def read(value: Any, where: str) -> Any:
        if value is None and may_be_none:
            return None
        for kind, reader in choices:
            if isinstance(value, kind):
                return reader(value, where)
        return last(value, where)

    return read


def _literal_reader(values: tuple[Any, ...]) -> Reader:
    def read(value: Any, where: str) -> Any:
        if value not in values:
            raise ArtifactError(f"{where}: not one of {', '.join(map(str, values))}")
        return value

    return read


def _object_reader(read_key: Reader, read_value: Reader) -> Reader:
    def read(value: Any, where: str) -> Any:
        _expect(isinstance(value, Mapping), "an object", value, where)
        return {read_key(key, where): read_value(part, f"{where}.{key}") for key, part in value.items()}

    return read


def _list_reader(kind: type, read_part: Reader) -> Reader:
    def read(value: Any, where: str) -> Any:
        _expect(isinstance(value, list | tuple), "a list", value, where)
        return kind([read_part(part, f"{where}[{number}]") for number, part in enumerate(value)])

    return read


def _plain_reader(hint: Any) -> Reader:
    kinds = {float: (int, float), int: int, str: str, bool: bool, type(None): type(None)}[hint]
    name = getattr(hint, "__name__", str(hint))

    def read(value: Any, where: str) -> Any:
        right = isinstance(value, kinds) and (hint is bool or not isinstance(value, bool))  # type: ignore[arg-type]
        _expect(right, name, value, where)
        return value

    return read


def _expect(right: bool, expected: str, value: Any, where: str) -> None:
    if not right:
        raise ArtifactError(f"{where}: expected {expected}, got {type(value).__name__}")
