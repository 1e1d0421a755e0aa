"""Attacks of all families in one table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from reticent.audit.membership.asking import ASKING_ATTACKS
from reticent.audit.membership.attacks import ATTACKS
from reticent.audit.membership.shadow import SHADOW_ATTACKS
from reticent.audit.membership.table import Attack, table_of

__all__ = ["EVERY_ATTACK"]

#: Attacks by name, in the order in which a report explains them.
EVERY_ATTACK: Final[Mapping[str, Attack]] = table_of(
    (*ATTACKS.values(), *ASKING_ATTACKS.values(), *SHADOW_ATTACKS.values())
)
