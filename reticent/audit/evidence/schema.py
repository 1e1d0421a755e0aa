"""JSON Schema (2020-12) of evidence classes, as `from_json` reads them: strict, without fields of another name."""

from __future__ import annotations

import inspect
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from reticent.audit.evidence.json_form import Json

__all__ = ["schema_of"]

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def schema_of(cls: type, identifier: str) -> Json:
    """Return the schema of an evidence class; classes in it stand in ``$defs`` by their names.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Row:
    ...     n: int
    >>> schema_of(Row, "row/1")["$defs"]["Row"]["required"]
    ['n']
    """
    found: dict[str, Json] = {}
    _add(cls, found)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": identifier}
    return {**head, "$ref": f"#/$defs/{cls.__name__}", "$defs": dict(sorted(found.items()))}


def _add(cls: Any, found: dict[str, Json]) -> None:
    if cls.__name__ in found:
        return
    found[cls.__name__] = {}  # it may hold itself
    hints = get_type_hints(cls, include_extras=True)
    parts = fields(cls)
    found[cls.__name__] = {
        "type": "object",
        "description": " ".join((inspect.getdoc(cls) or "").split()),
        "properties": {part.name: _of(hints[part.name], found) for part in parts},
        "required": [p.name for p in parts if p.default is MISSING and p.default_factory is MISSING],
        "additionalProperties": False,
    }


def _of(hint: Any, found: dict[str, Json]) -> Json:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _of(arguments[0], found)
    if origin in (Union, types.UnionType):
        return {"anyOf": [_of(argument, found) for argument in arguments]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": _of(arguments[1], found)}
    if origin in (list, tuple):
        return {"type": "array", "items": _of(arguments[0], found)}
    if is_dataclass(hint):
        _add(hint, found)
        return {"$ref": f"#/$defs/{hint.__name__}"}  # type: ignore[union-attr]
    return {"type": _PLAIN[hint]} if hint in _PLAIN else {}
