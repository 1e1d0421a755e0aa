"""The Jinja environment of every template of a report: everything is escaped, and an unknown name is an error."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from reticent.audit.report.format_estimate import beside, ends, percent, value
from reticent.audit.report.risk_text import epochs_in_words, note_of_all, notes_of_model
from reticent.audit.texts import Mark, Texts, capital, marks_of

if TYPE_CHECKING:
    import jinja2


def template_environment(t: Texts, package: str = "reticent.audit.report") -> jinja2.Environment:
    """Return the Jinja environment of a package's ``templates``, with the texts and number filters of the language of
    ``t``; a page adds its own filters."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(package, "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        bytecode_cache=_bytecode_cache(),
    )
    environment.globals["t"] = t
    environment.filters.update(
        value=lambda estimate, digits=3: value(estimate, digits, t),
        ends=lambda estimate, digits=3: ends(estimate, digits, t),
        beside=lambda number, threshold: beside(number, threshold, t),
        percent=lambda share: percent(share, t),
        num=t.count,
        evidence=t.evidence,
        epochs=lambda row: epochs_in_words(row, t),
        note_of_all=note_of_all,
        notes_of_model=notes_of_model,
        capital=capital,
        marks=mark_attributes,
        marked=_marked_html,
    )
    return environment


def mark_attributes(*texts: str | Mark) -> Markup:
    """Return ``data-`` attributes for an HTML element from the marks that texts carry (machine-readable statements on a
    model); several values of one field are joined by "|"."""
    marks = list(dict.fromkeys(
        mark for text in texts for mark in ((text,) if isinstance(text, Mark) else marks_of(text))
    ))  # fmt: skip
    fields = zip(Mark._fields, zip(*marks, strict=True), strict=True) if marks else ()
    return Markup("").join(Markup(' data-{}="{}"').format(name, "|".join(values)) for name, values in fields)


def _marked_html(sentences: Iterable[str]) -> Markup:
    """Return sentences as HTML. A sentence that carries marks (machine-readable statements on a model) is put into a
    ``span`` with the marks as attributes."""
    span = Markup("<span{}>{}</span>")
    parts = [span.format(mark_attributes(text), str(text)) if marks_of(text) else escape(text) for text in sentences]
    return Markup(" ").join(parts)


@cache
def _bytecode_cache() -> jinja2.BytecodeCache:
    """Return this process's cache of compiled Jinja templates."""
    import jinja2
    from jinja2.bccache import Bucket

    class Compiled(jinja2.BytecodeCache):
        def __init__(self) -> None:
            self.codes: dict[tuple[str, str], object] = {}

        def load_bytecode(self, bucket: Bucket) -> None:
            """Fill the bucket with the cached code of its template, if any."""
            bucket.code = self.codes.get((bucket.key, bucket.checksum))  # type: ignore[assignment]

        def dump_bytecode(self, bucket: Bucket) -> None:
            """Cache the code of the bucket's template."""
            self.codes[bucket.key, bucket.checksum] = bucket.code

    return Compiled()
