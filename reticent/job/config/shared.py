"""Settings of the whole job: put into the section of each component, and refused in a section's table."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Any

from reticent.core.section import Section, shared_fields

__all__ = ["set_in_a_section", "with_shared"]


def set_in_a_section(section: Section, where: str = "") -> Iterator[str]:
    """Yield a message for each field that a table has and that belongs to the whole job."""
    shared = shared_fields(type(section))
    for name in section.model_fields_set:
        if name in shared:
            path = shared[name]
            yield f"{where}{name}: " + ("unknown field" if path is None else f"belongs to the whole job: set {path}")
            continue
        for place, inner in _sections(getattr(section, name)):
            yield from set_in_a_section(inner, f"{where}{name}.{place}")


def with_shared(section: Section, job: Section) -> Any:
    """Return a section with the settings of the whole job, which are also put into the sections that it holds.

    A field that was set stays marked as set, so the dump of the section does not change.
    """
    update: dict[str, Any] = {}
    for name, path in shared_fields(type(section)).items():
        if path is not None:
            update[name] = attrgetter(path)(job)
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, Section):
            update[name] = with_shared(value, job)
        elif isinstance(value, tuple) and any(isinstance(each, Section) for each in value):
            update[name] = tuple(with_shared(each, job) for each in value)
    if not update:
        return section
    changed = section.model_copy(update=update)
    changed.model_fields_set.intersection_update(section.model_fields_set)
    return changed


def _sections(value: Any) -> Iterator[tuple[str, Section]]:
    """Yield the sections that a field holds, with their places in it."""
    if isinstance(value, Section):
        yield "", value
    elif isinstance(value, tuple):
        yield from ((f"{number}.", each) for number, each in enumerate(value) if isinstance(each, Section))
