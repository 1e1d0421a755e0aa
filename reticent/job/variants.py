"""The token stores that a run makes for a model's tokenizer: whose documents, which index flags them, which style of
text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reticent.engine.schema import HELDOUT, MEMBERS

if TYPE_CHECKING:
    from reticent.engine.protect import Policy
    from reticent.engine.pseudonymize import Style
    from reticent.engine.rewrite import TextStyle

#: Tokens of the members' documents in another style than the original's: their name -> the style.
REWRITTEN: dict[str, Style] = {"train-pseudonymised": "x", "train-tag": "tag"}
#: Whose documents the views for training and for the audit hold.
TRAIN: tuple[str, ...] = (MEMBERS,)
AUDIT: tuple[str, ...] = (MEMBERS, HELDOUT)


@dataclass(frozen=True, slots=True)
class Variant:
    """One token store of a model: whose documents it holds, which index flags them, and the style of their text."""

    name: str
    index: str = "index"
    splits: tuple[str, ...] = TRAIN
    style: TextStyle | None = None
    #: None: that of the job.
    policy: Policy | None = None
