"""The stores of tokens that a run makes of a model's ids: whose documents, flagged by which index, in which style."""

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
    """One store of tokens of a model: whose documents, flagged by which index, in which style."""

    name: str
    index: str = "index"
    splits: tuple[str, ...] = TRAIN
    style: TextStyle | None = None
    #: None: that of the job.
    policy: Policy | None = None
