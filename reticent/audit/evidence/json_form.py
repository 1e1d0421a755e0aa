"""Evidence and JSON, by pydantic: `from_json` reads a dataclass strictly, `to_json` writes it.

A key that is not a field of the class is an error that names the key, so a value without a rule is never passed on. A
field that was not measured is None: it is written as null, or left out if it is `optional`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field, fields, is_dataclass
from functools import cache
from typing import Any, Optional, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema

from reticent.core.errors import ArtifactError

Evidence = TypeVar("Evidence")
#: JSON from a file. Its shape is unknown until `from_json` has read it.
Json = Any
#: Prefix of pydantic's error types -> name of the expected type in messages.
_NAMES = {"int": "int", "float": "float", "string": "str", "bool": "bool", "none": "null", "list": "a list",
          "tuple": "a list", "dict": "an object", "mapping": "an object", "dataclass": "an object"}  # fmt: skip


def optional() -> Any:
    """Return a dataclass field whose default is None and which is left out of the JSON while it is None."""
    return field(default=None, metadata={"exclude_if": _is_none})


def extended(instance: Any, cls: type[Evidence], **more: Any) -> Evidence:
    """Return an instance of the larger evidence class ``cls``: fields of the smaller ``instance`` are copied, the
    others come from ``more``."""
    return cls(**{own.name: getattr(instance, own.name) for own in fields(instance)}, **more)


def from_json(cls: type[Evidence], value: Json, where: str = "evidence") -> Evidence:
    """Return an instance of the evidence class ``cls`` built from a JSON value, whose keys and types must be exactly
    those of the class.

    Raises
    ------
    ArtifactError
        A key is not a field, a field without a default is missing, or a value has the wrong type. The message names the
        place and the key, never the value.
    """
    if value is None:
        raise ArtifactError(f"{where}: expected an object, got null")
    try:
        found: Evidence = _adapter_of(cls).validate_json(json.dumps(value), strict=True)  # type: ignore[arg-type]
    except ValidationError as error:
        raise ArtifactError(_first_fault(error, where)) from None
    return found


def to_json(value: Any) -> Json:
    """Return evidence as JSON: dictionaries, lists and plain values."""
    if is_dataclass(value) and not isinstance(value, type):
        return _adapter_of(type(value)).dump_python(value, mode="json", warnings="error")
    if isinstance(value, Mapping):
        return {key: to_json(part) for key, part in value.items()}
    return [to_json(part) for part in value] if isinstance(value, list | tuple) else value


def schema_of(cls: type, identifier: str) -> Json:
    """Return the JSON Schema (2020-12) of an evidence class, as `from_json` reads it; nested classes are in ``$defs``.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Row:
    ...     n: int
    >>> schema_of(Row, "row/1")["$defs"]["Row"]["required"]
    ['n']
    """
    found = _adapter_of(cls).json_schema(schema_generator=_WithoutTitles)
    head = {"$schema": GenerateJsonSchema.schema_dialect, "$id": identifier, "$ref": f"#/$defs/{cls.__name__}"}
    return {**head, "$defs": dict(sorted(found["$defs"].items()))}


class _WithoutTitles(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:
        """Return False: no field of the JSON Schema gets a title made from its name."""
        return False


def _is_none(value: object) -> bool:
    """Return whether a value is None."""
    return value is None


@cache
def _adapter_of(cls: Any) -> TypeAdapter[Any]:
    """Return the pydantic adapter that reads and writes instances of a dataclass; None is allowed too."""
    config = ConfigDict(extra="forbid", ser_json_inf_nan="constants")
    return TypeAdapter(Optional[cls], config=config)  # noqa: UP045 - not an expression that a checker knows


def _first_fault(error: ValidationError, where: str) -> str:
    """Return the error message for the first fault of the JSON: where it is, and what was expected."""
    first = error.errors(include_url=False, include_context=True)[0]
    *above, last = first["loc"] or ("",)
    holder, kind = where + "".join(map(_path_step, above)), first["type"]
    if kind == "unexpected_keyword_argument":
        return f"{holder}: {last!r} is no field, and has no rule by which it may leave"
    if kind == "missing":
        return f"{holder}: {last} is missing"
    place = holder + _path_step(last) if last != "" else holder
    if kind == "literal_error":
        return f"{place}: expected {first['ctx']['expected']}"
    expected = next((name for start, name in _NAMES.items() if kind.startswith(start)), first["msg"])
    return f"{place}: expected {expected}, got {type(first['input']).__name__}"


def _path_step(part: int | str) -> str:
    """Return one step of a JSON path: ``[0]`` for an index, ``.name`` for a key."""
    return f"[{part}]" if isinstance(part, int) else f".{part}"
