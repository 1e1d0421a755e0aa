"""The ledger of a training: counts of tokens that may be targets, must not be, were, and were in violation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from reticent.core.errors import TrainingError
from reticent.engine.schema import IGNORE_INDEX

COUNTS = ("eligible", "protected", "targets", "violations")
#: Counts of a recipe that replaces indirect identifiers in the context; a ledger of another has none.
CONTEXT_COUNTS = ("replaced", "filled", "coincidences", "read")
#: The counts of an epoch, each kind with its digest.
_PARTS = ((COUNTS, "digest"), (CONTEXT_COUNTS, "inputs"))


@dataclass(slots=True)
class Ledger:
    """Counts of tokens over all batches of a run; every epoch counts its tokens again.

    eligible: tokens that may be targets; protected: tokens that must not be; targets: tokens that were; violations:
    protected tokens that were. The run stops at the first violation. ``epochs`` holds the same four counts for each
    epoch, the digest of its targets (`hash_ids`), and the fingerprint of its protection.

    If a recipe replaces indirect identifiers in the context, four counts of words follow. replaced: words with a
    replacement; filled: words without a public word of as many tokens; coincidences: public words that happen to
    identify; read: identifying words in an input. The run stops at the first word that is read, too. An epoch then also
    has the digest of its public words, ``inputs``.
    """

    eligible: int = 0
    protected: int = 0
    targets: int = 0
    violations: int = 0
    replaced: int = 0
    filled: int = 0
    coincidences: int = 0
    read: int = 0
    epochs: dict[int, dict[str, Any]] = field(default_factory=dict, compare=False)

    def to_dict(self) -> dict[str, int]:
        """Return the counts of all epochs by name: those of targets and protected tokens, and, if words of the context
        were replaced, those of replaced words.
        """
        return {name: getattr(self, name) for name in (COUNTS + CONTEXT_COUNTS if self.replaced else COUNTS)}

    def state(self) -> dict[str, Any]:
        """Return the ledger with all epochs as JSON values, which `from_states` reads."""
        rows = [{"epoch": epoch, **_row_to_json(row)} for epoch, row in sorted(self.epochs.items())]
        return {**self.to_dict(), "epochs": rows}

    @classmethod
    def from_states(cls, *states: Mapping[str, Any]) -> Ledger:
        """Return one ledger with the summed counts of ledgers, each given as its `state`."""
        ledger = cls()
        for state in states:
            for row in state["epochs"]:
                counts = {name: int(row[name]) for name in COUNTS}
                ledger._add(int(row["epoch"]), counts, int(row["digest"], 16))
                if "replaced" in row:
                    counts = {name: int(row[name]) for name in CONTEXT_COUNTS}
                    ledger._add(int(row["epoch"]), counts, int(row["inputs"], 16), "inputs")
                ledger.begin_epoch(int(row["epoch"]), row["protection"])
        return ledger

    def summed(self, add: Callable[..., Sequence[float]]) -> Ledger:
        """Return the ledger summed over all processes; ``add`` returns the sum of each of its arguments over them,
        exact below 2^53."""
        rows = [self._epoch_row(epoch) for epoch in range(1, max(self.epochs, default=0) + 1)]
        # Digests in halves.
        numbers = [
            value
            for row in rows
            for names, digest in _PARTS
            for value in (*(row[name] for name in names), row[digest] & 0xFFFFFFFF, row[digest] >> 32)
        ]
        sums = iter([int(value) for value in add(*numbers)])
        total = Ledger()
        for epoch, row in enumerate(rows, 1):
            for names, digest in _PARTS:
                total._add(epoch, {name: next(sums) for name in names}, next(sums) + (next(sums) << 32), digest)
            total.begin_epoch(epoch, row["protection"])
        return total

    def add(self, other: Ledger) -> None:
        """Add the counts of another ledger, such as that of one training step."""
        for epoch, row in other.epochs.items():
            for names, digest in _PARTS:
                self._add(epoch, {name: row[name] for name in names}, row[digest], digest)

    def begin_epoch(self, epoch: int, protection: str) -> None:
        """Store the fingerprint of an epoch's tokens and protection flags (`fingerprint_protection`)."""
        self._epoch_row(epoch)["protection"] = protection

    def check(
        self, labels: np.ndarray, protected: np.ndarray, num_eligible: int, *, epoch: int = 0, digest: int = 0
    ) -> None:
        """Count a batch's eligible tokens, protected tokens, targets and violations; raise `TrainingError` if a
        protected token is a target."""
        is_target = labels != IGNORE_INDEX
        violations = int(np.count_nonzero(is_target & protected))
        counts = (num_eligible, int(np.count_nonzero(protected)), int(np.count_nonzero(is_target)), violations)
        self._add(epoch, dict(zip(COUNTS, counts, strict=True)), digest)
        if violations:
            raise TrainingError(
                f"{violations} protected tokens are targets in a batch; training stopped before its step"
            )

    def check_context(self, counts: dict[str, int], *, epoch: int, digest: int) -> None:
        """Count a batch's replaced words; raise `TrainingError` if the input still holds an identifying word."""
        self._add(epoch, counts, digest, "inputs")
        if counts["read"]:
            raise TrainingError(
                f"{counts['read']} words that identify stand in the inputs of a batch; training stopped before its step"
            )

    def _add(self, epoch: int, counts: dict[str, int], value: int, digest: str = "digest") -> None:
        """Add counts to the totals and to the row of an epoch, and ``value`` to the epoch's digest of this name (modulo
        2^64)."""
        row = self._epoch_row(epoch)
        for name, count in counts.items():
            setattr(self, name, getattr(self, name) + count)
            row[name] += count
        row[digest] = (row[digest] + value) & (2**64 - 1)

    def _epoch_row(self, epoch: int) -> dict[str, Any]:
        """Return the counts of an epoch, zeros if it is new."""
        numbers = (*COUNTS, "digest", *CONTEXT_COUNTS, "inputs")
        return self.epochs.setdefault(epoch, {**dict.fromkeys(numbers, 0), "protection": ""})


def _row_to_json(row: dict[str, Any]) -> dict[str, Any]:
    """Return an epoch's counts as JSON values, without counts of context words if none was replaced."""
    names = (*COUNTS, "digest", "protection", *((*CONTEXT_COUNTS, "inputs") if row["replaced"] else ()))
    return {name: f"{row[name]:016x}" if name in ("digest", "inputs") else row[name] for name in names}
