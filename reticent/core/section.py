"""Section: the base of every configuration class, and the mark of fields whose value belongs to the whole job.

The settings of a component are one class, which stands beside the component. A library user makes it with keyword
arguments; in a job file it is a table. So each value is declared, documented and checked once. What a job says once for
all of its components (seed, threads, device) is a field marked with :func:`of_job`: a library user gives it as any
other, a job fills it in, no table of a job file may hold it, and no dump does.
"""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from reticent.core.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Section", "explain", "of_job", "shared_fields"]

Part = TypeVar("Part", bound="Section")


def of_job(path: str | None) -> Any:
    """Mark a field, ``seed: Annotated[int, of_job("seed")] = 0``, whose value a job has at ``path``.

    ``path`` is ``"seed"`` or ``"train.device"``; None: no table of a job holds it, the run gives it or leaves the
    default.
    """
    return Field(exclude=True, json_schema_extra={"of_job": path})


def shared_fields(kind: type[BaseModel]) -> Mapping[str, str | None]:
    """Return the fields of a class that are marked with :func:`of_job`, each with its path."""
    found = {}
    for name, field in kind.model_fields.items():
        if isinstance(field.json_schema_extra, dict) and "of_job" in field.json_schema_extra:
            path = field.json_schema_extra["of_job"]
            found[name] = None if path is None else str(path)
    return found


def explain(error: ValidationError, table: str = "", kind: type[BaseModel] | None = None) -> str:
    """Return every field that is wrong, and why; of the values only numbers are quoted: others may be text. ``kind`` is
    the class that refused them: an unknown field is told which known one is like it.
    """
    lines = []
    errors = error.errors(include_url=False)
    for wrong in errors:
        if wrong["type"] == "too_short" and any(
            each["loc"][: len(wrong["loc"])] == wrong["loc"] for each in errors if each is not wrong
        ):
            continue  # of a list whose wrong members do not count
        said = wrong["msg"].removeprefix("Value error, ").replace("Input should be ", "expected ")
        if wrong["type"] == "extra_forbidden":
            said = "unknown field" + _meant(wrong["loc"], kind)
        elif wrong["type"].startswith("byte_size"):
            said = 'expected a size in bytes, such as "8GB" or "500MB"'
        elif isinstance(wrong["input"], int | float) and wrong["type"] != "value_error":
            said += f", got {wrong['input']}"
        where = ".".join(filter(None, (table, *map(str, wrong["loc"]))))
        lines.append(": ".join(filter(None, (where, said))))
    return "; ".join(lines)


def _meant(place: tuple[int | str, ...], kind: type[BaseModel] | None) -> str:
    """The known fields that are like an unknown one: of its own section; else sections that have one of its name."""
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
    return f" (did you mean {' or '.join(near)}?)" if near else ""


def _sections_in(annotation: Any) -> list[type[BaseModel]]:
    """The sections that a type names, however deep."""
    if isinstance(annotation, type) and not get_args(annotation):
        return [annotation] if issubclass(annotation, BaseModel) else []
    return [section for part in get_args(annotation) for section in _sections_in(part)]


class Section(BaseModel):
    """Settings that never change; an unknown field and a value out of range are refused.

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

    def check_complete(self) -> None:
        """Refuse faults of settings that are complete, as a user of the library gives them; to those of a job
        the run adds what they lack.
        """

    def replace(self, **changes: Any) -> Self:
        """Return these settings with other values, checked again."""
        return type(self)(**{**dict(self), **changes})

    def only(self, kind: type[Part]) -> Part:
        """Return the fields that this class has from ``kind``, which it inherits from, as that alone."""
        return kind(**{name: getattr(self, name) for name in kind.model_fields})

    def all_values(self, without: Collection[str] = ()) -> dict[str, Any]:
        """Return every field but those named, also those that a dump leaves out as they belong to the whole job."""
        return {
            name: value.all_values() if isinstance(value, Section) else value
            for name, value in ((name, getattr(self, name)) for name in type(self).model_fields)
            if name not in without
        }
