"""The environment of every template of a report: everything is escaped, and an unknown name is an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jinja2

__all__ = ["template_environment"]


def template_environment() -> jinja2.Environment:
    """Return the environment of ``report/templates``."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("reticent.audit.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
