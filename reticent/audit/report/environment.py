"""The environment of every template of a report: everything is escaped, and an unknown name is an error."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jinja2

__all__ = ["template_environment"]


def template_environment() -> jinja2.Environment:
    """Return the environment of ``report/templates``, to which a page adds its filters."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("reticent.audit.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        bytecode_cache=_compiled(),
    )


@cache
def _compiled() -> jinja2.BytecodeCache:
    """Return what keeps the compiled templates of this process: a page has filters of its own, by the same names."""
    import jinja2
    from jinja2.bccache import Bucket

    class Compiled(jinja2.BytecodeCache):
        def __init__(self) -> None:
            self.codes: dict[tuple[str, str], object] = {}

        def load_bytecode(self, bucket: Bucket) -> None:
            bucket.code = self.codes.get((bucket.key, bucket.checksum))  # type: ignore[assignment]

        def dump_bytecode(self, bucket: Bucket) -> None:
            self.codes[bucket.key, bucket.checksum] = bucket.code

    return Compiled()
