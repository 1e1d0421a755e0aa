"""Names of attacks that the settings need. This module imports nothing heavy, so reading a job stays fast."""

from __future__ import annotations

from typing import Final

__all__ = ["ATTACKS_ON_SIZES", "DEFAULT_ATTACKS", "DEFAULT_SHADOW_ATTACKS", "USER_INFERENCE"]

#: The attack on the user-inference holdout; all other attacks score the documents of the audit.
USER_INFERENCE: Final = "user_inference"
#: Attacks that need the compressed sizes of the texts.
ATTACKS_ON_SIZES: Final = frozenset({"zlib"})
#: Default attacks of a job; a report shows these first, in this order.
DEFAULT_ATTACKS: Final = ("loss", "reference", "zlib", "min_k", "min_k_plus_plus", "wbc", "ez")
#: Default attacks with shadow models.
DEFAULT_SHADOW_ATTACKS: Final = ("shadow", "lira_online", "lira_offline", "lira_sequence", "rmia")
