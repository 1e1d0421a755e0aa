"""Guard: generated text is checked before it is shown.

Two things must not get out: a stretch of training text of 50 characters or more, and a direct identifier that the
detectors know. :class:`Guard` finds both in finished texts; :class:`GuardStream` reads text as it comes and lets none
out that may still become part of a match; :class:`GuardedModel` wraps ``generate`` of transformers.

Three policies. "block": a text with a finding is replaced by a notice. "redact": each finding is replaced by its
category in brackets. "stop": the text ends before its first finding. What leaves by any of them is checked once more,
since a tag may complete what was cut out, and holds no such stretch. Only what is generated is read, not the prompt.
"""

from __future__ import annotations

from reticent.ext.guard.model import GuardedModel
from reticent.ext.guard.texts import (
    NOTICE,
    POLICIES,
    Finding,
    Guard,
    GuardedText,
    GuardStream,
    built_detectors,
    guard_detectors,
    open_guard,
    refuse_detectors,
)

__all__ = [
    "NOTICE",
    "POLICIES",
    "Finding",
    "Guard",
    "GuardStream",
    "GuardedModel",
    "GuardedText",
    "built_detectors",
    "guard_detectors",
    "open_guard",
    "refuse_detectors",
]
