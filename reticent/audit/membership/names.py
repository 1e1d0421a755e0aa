"""Names of attacks that settings need before an attack is loaded: this module imports nothing heavy."""

from __future__ import annotations

from typing import Final

__all__ = ["ATTACKS_ON_SIZES", "DEFAULT_ATTACKS", "DEFAULT_SHADOW_ATTACKS", "USER_INFERENCE"]

#: The attack on documents that were held back: it alone scores other documents than the rest.
USER_INFERENCE: Final = "user_inference"
#: Attacks that need the compressed sizes of the texts.
ATTACKS_ON_SIZES: Final = frozenset({"zlib"})
#: Attacks of a job that names none; a report shows these first, in this order.
DEFAULT_ATTACKS: Final = ("loss", "reference", "zlib", "min_k", "min_k_plus_plus", "wbc", "ez")
#: Attacks with shadow models of a job that names none.
DEFAULT_SHADOW_ATTACKS: Final = ("shadow", "lira_online", "lira_offline", "lira_sequence", "rmia")
