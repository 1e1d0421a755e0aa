"""Words for the outcome of a gate, and of an attack against a threshold: in evidence, on the page, on the terminal."""

from __future__ import annotations

__all__ = ["BEYOND", "FAIL", "NOT_SHOWN", "PASS", "WITHIN"]

#: Of a gate; beside them stands NO_POWER of :mod:`reticent.audit.membership.validity`.
PASS, FAIL = "pass", "fail"
#: Of a risk, and of a model.
WITHIN, BEYOND, NOT_SHOWN = "within", "beyond", "not shown"
