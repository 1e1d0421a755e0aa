"""What a reader of exports finds: a document, or a place that it could not read and why."""

from __future__ import annotations

from typing import NamedTuple


class FoundDocument(NamedTuple):
    """A document and whose it is; ``date`` and ``type`` as the export writes them."""

    doc_id: str
    individual_id: str
    text: str
    date: str | None = None
    type: str | None = None


class Unread(NamedTuple):
    """A place (file, and line, entry or message in it) that holds a text which was not read, and the reason."""

    place: str
    reason: str
