"""Section: the base of every configuration class, and marks for fields that are shared by a job or published.

The settings of a component are one class, which stands beside the component. A library user makes it with keyword
arguments; in a job file it is a table. So each value is declared, documented and checked once. What a job says once for
all of its components (seed, threads, device) is a field marked with :func:`of_job`: a library user gives it as any
other, a job fills it in, no table of a job file may hold it, and no dump does.

A report shows the settings of its run. A number, yes or no, and a word of a closed list are published, but for seeds:
the split and the inclusion of canaries are functions of seed and ids, so a reader who has both would know the members.
Free text is withheld, as it may be a path, an address, a column or a name, unless its field is marked:
``device: Annotated[str, PUBLISHED] = "auto"``. A number that must not leave is marked `WITHHELD`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo

from reticent.core.errors import PolicyError

Part = TypeVar("Part", bound="Section")


@dataclass(frozen=True, slots=True)
class Publication:
    """Mark of a field: whether a report shows its value (paths cut to their last part)."""

    published: bool


PUBLISHED, WITHHELD = Publication(True), Publication(False)
#: The largest number of a setting that counts something and has no bound of its own.
MOST = 1_000_000_000
#: Faults of settings that a message lists.
MOST_FAULTS = 20


def of_job(path: str | None) -> Any:
    """Return a pydantic field for a setting, such as the seed, that a job specifies once for several components: it
    takes its value from the job's setting at ``path``, and is left out when the component's settings are dumped.

    It is used as ``seed: Annotated[int, of_job("seed")] = 0``.

    ``path`` is ``"seed"`` or ``"train.device"``; None: no table of a job holds it, the run gives it or leaves the
    default.
    """
    return Field(exclude=True, json_schema_extra={"of_job": path})


def shared_fields(kind: type[BaseModel]) -> Mapping[str, str | None]:
    """Return the fields of a class of settings that take their value from the job (those made by :func:`of_job`), as a
    dict from field name to the path of the job's setting."""
    found = {}
    for name, field in kind.model_fields.items():
        if isinstance(field.json_schema_extra, dict) and "of_job" in field.json_schema_extra:
            path = field.json_schema_extra["of_job"]
            found[name] = None if path is None else str(path)
    return found


#: Kind of an error of pydantic -> what was expected, in words of a job file.
_SIMPLE: dict[str, str] = {
    **dict.fromkeys(("int_parsing", "int_type"), "a whole number"),
    **dict.fromkeys(("float_parsing", "float_type"), "a number"),
    **dict.fromkeys(("bool_parsing", "bool_type"), "true or false"),
    "string_type": "text, in quotes",
}


def explain(error: ValidationError, table: str = "", kind: type[BaseModel] | None = None) -> str:
    """Return a message that lists every invalid setting and why; values are quoted only if they are numbers, as others
    may be private. ``kind`` is the class that was validated: similar known fields are suggested for an unknown one."""
    lines: list[str] = []
    told: set[str] = set()
    errors = error.errors(include_url=False)
    for wrong in errors[:MOST_FAULTS]:
        if wrong["type"] == "too_short" and any(
            each["loc"][: len(wrong["loc"])] == wrong["loc"] for each in errors if each is not wrong
        ):
            continue  # of a list whose wrong members do not count
        where = ".".join(filter(None, (table, *map(str, wrong["loc"]))))
        said = wrong["msg"].removeprefix("Value error, ").replace("Input should be ", "expected ")
        if wrong["type"] == "extra_forbidden":
            meant = _suggest_fields(wrong["loc"], kind)
            said = "unknown field" + ("" if meant in told else meant)
            told.add(meant)
        elif wrong["type"] == "missing":
            said = "is missing, and must be given"
        elif wrong["type"] in ("tuple_type", "list_type"):
            table_of = f"a table of [[{where}]] each: write [[{where}]], not [{where}]"
            said = f"expected {table_of}" if isinstance(wrong["input"], Mapping) else "expected a list, in brackets"
        elif wrong["type"] in ("model_type", "model_attributes_type", "dict_type"):
            said = f"expected a table, [{where}]" if where else "expected a table"
        elif wrong["type"] in _SIMPLE:
            said = f"expected {_SIMPLE[wrong['type']]}"
        elif wrong["type"].startswith("byte_size"):
            said = 'expected a size in bytes, such as "8GB" or "500MB"'
        elif isinstance(wrong["input"], int | float) and wrong["type"] != "value_error":
            said += f", got {wrong['input']}"
        lines.append(": ".join(filter(None, (where, said))))
    if len(errors) > MOST_FAULTS:
        lines.append(f"and {len(errors) - MOST_FAULTS:,} faults more")
    return "; ".join(lines)


def _suggest_fields(place: tuple[int | str, ...], kind: type[BaseModel] | None) -> str:
    """Return suggestions for an unknown setting, as text: similar names in its section (class of settings), else
    sections with a setting of that name, else all settings of its section."""
    if kind is None:
        return ""
    name, holder = str(place[-1]), kind
    for step in place[:-1]:
        inner = (
            next(iter(_sections_in(holder.model_fields[str(step)].annotation)), None)
            if (str(step) in holder.model_fields)
            else holder
        )
        if inner is None:
            return ""
        holder = inner
    near = get_close_matches(name, holder.model_fields, n=2, cutoff=0.7)
    if not near and len(place) == 1:
        near = [
            f"{own}.{name}"
            for own, field in kind.model_fields.items()
            if get_origin(field.annotation) is not dict  # tables by name
            for section in _sections_in(field.annotation)
            if name in section.model_fields and name not in shared_fields(section)
        ][:2]
    known = ", ".join(field for field in holder.model_fields if field not in shared_fields(holder))
    return f" (did you mean {' or '.join(near)}?)" if near else f" (known: {known})" if known else ""


def _sections_in(annotation: Any) -> list[type[BaseModel]]:
    """Return the classes of settings (sections) that a type annotation names, however nested."""
    if isinstance(annotation, type) and not get_args(annotation):
        return [annotation] if issubclass(annotation, BaseModel) else []
    return [section for part in get_args(annotation) for section in _sections_in(part)]


class Section(BaseModel):
    """Base of configuration classes: immutable settings; unknown fields and values out of range are refused.

    Raises
    ------
    PolicyError
        A field is unknown or wrong; the message names all such fields.
    """

    #: A validator is built where a class is first used: that of the job checks most sections itself.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)
    #: The table of a job file that the class is: messages name a field by it.
    section: ClassVar[str] = ""

    if not TYPE_CHECKING:  # type checkers take the arguments from the fields

        def __init__(self, /, **values: Any) -> None:
            try:
                self.__pydantic_validator__.validate_python(values, self_instance=self)
            except ValidationError as error:
                raise PolicyError(explain(error, self.section, type(self))) from None
            self.check_complete()

        #: A table inside another is checked with it: the error of the whole then says where each part of it stands.
        __init__.__pydantic_base_init__ = True

    @model_validator(mode="after")
    def _check_numbers(self) -> Self:
        """Raise `ValueError` for a count above `MOST`, which would only exhaust a machine; seeds and bytes may be
        larger."""
        for name in type(self).model_fields:
            value = getattr(self, name)
            for number in value if isinstance(value, tuple) else (value,):
                if isinstance(number, int) and number > MOST and not names_a_seed(name) and name != "memory_limit":
                    raise ValueError(f"{name}: expected at most {MOST:,}, got {number}")
        return self

    def check_complete(self) -> None:
        """Raise an error if settings contradict each other. It is called when all values are known: in a job, after the
        values that several components share have been filled in."""

    def replace(self, **changes: Any) -> Self:
        """Return a copy with these values changed, validated again."""
        return type(self)(**{**dict(self), **changes})

    def only(self, base_class: type[Part]) -> Part:
        """Return the settings that ``base_class`` defines, without those of this subclass, as an object of
        ``base_class``."""
        return base_class(**{name: getattr(self, name) for name in base_class.model_fields})

    def all_values(self, without: Collection[str] = ()) -> dict[str, Any]:
        """Return all settings except those named in ``without`` as a dict, also the fields that `model_dump` omits
        because a job sets them."""
        return {
            name: value.all_values() if isinstance(value, Section) else value
            for name, value in ((name, getattr(self, name)) for name in type(self).model_fields)
            if name not in without
        }

    @classmethod
    def published(cls, values: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
        """Return the settings in ``values`` (name -> value) that may be shown in a report, and the number of settings
        with a value that are withheld.

        An unknown name is one of the others. Nothing is withheld where a field without a mark is empty.

        >>> class Copies(Section):
        ...     share: float = 0.5
        ...     column: str | None = None
        ...     seed: int = 0
        >>> Copies.published({"share": 0.8, "column": "ward", "seed": 7, "folder": "/home/a"})
        ({'share': 0.8}, 3)
        """
        shown: dict[str, Any] = {}
        withheld = 0
        for name, value in values.items():
            field = cls.model_fields.get(name)
            sections = _sections_in(field.annotation) if field else []
            if field is not None and sections and isinstance(value, Mapping | list | tuple):
                shown[name], count = _published_parts(sections[0], field, value)
                withheld += count
            elif field is not None and ((sections and value is None) or _is_published(name, field)):
                shown[name] = value
            else:
                withheld += holds_something(value)
        return shown, withheld


def names_a_seed(key: str) -> bool:
    """Whether the name of a setting says that it holds one or several random seeds.

    >>> [names_a_seed(key) for key in ("seed", "data_seed", "seeds", "seeded")]
    [True, True, True, False]
    """
    return re.search(r"(?:^|[^a-z])seeds?(?:$|[^a-z])", key, re.IGNORECASE) is not None


def holds_something(value: Any) -> bool:
    """Whether a value is neither None nor an empty text, list or dict."""
    return value is not None and value not in ("", (), [], {})


def _published_parts(section: Any, field: FieldInfo, value: Any) -> tuple[Any, int]:
    """Return what a report may show of nested settings (one section, a list of sections, or a dict of named ones, which
    is shown only if marked `PUBLISHED`), and the number of withheld settings."""
    if isinstance(value, list | tuple):
        parts = [section.published(part) for part in value]
        return [shown for shown, _ in parts], sum(count for _, count in parts)
    if get_origin(field.annotation) is not dict:
        shown, count = section.published(value)
        return shown, count
    if PUBLISHED not in field.metadata:
        return {}, len(value)
    named = {name: section.published(part) for name, part in value.items()}
    return {name: shown for name, (shown, _) in named.items()}, sum(count for _, count in named.values())


def _is_published(name: str, field: FieldInfo) -> bool:
    """Whether a report may show the value of a setting. Its mark of the class `Publication` decides; without one,
    values are shown if the type allows only numbers and fixed words and the name is not that of a seed."""
    marks = [mark for mark in field.metadata if isinstance(mark, Publication)]
    return marks[-1].published if marks else _is_closed(field.annotation) and not names_a_seed(name)


def _is_closed(kind: Any) -> bool:
    """Whether a type annotation allows only numbers, booleans and fixed words (`Literal`)."""
    if get_origin(kind) is Literal or kind is Ellipsis:
        return True
    if isinstance(kind, type) and not get_args(kind):
        return issubclass(kind, int | float | type(None))
    parts = get_args(kind)[:1] if get_origin(kind) is Annotated else get_args(kind)
    return bool(parts) and all(map(_is_closed, parts))
