"""Errors about one document: where it stands, and what is wrong with it. Its text is never quoted."""

from __future__ import annotations

import re
from collections.abc import Callable

from reticent.core.errors import CorpusError

__all__ = ["no_token", "placed"]


def placed(error: CorpusError, place: Callable[[int], str]) -> CorpusError:
    """Return an error about a document of a batch as one about a row of a file; ``place`` maps a row of the batch."""
    found = re.match(r"document (\d+) of the batch: ", str(error))
    return error if found is None else CorpusError(f"{place(int(found[1]))}: {str(error)[found.end() :]}")


def no_token(num_words: int) -> str:
    """Return the message for a document that has words but no token."""
    return (
        f"the tokenizer makes no token of its words ({num_words:,}), so it would be passed over in silence; use a "
        "tokenizer that has an unknown token or falls back to bytes, or leave the document out"
    )
