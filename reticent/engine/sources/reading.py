"""Findings of reading a corpus beside its documents: as sentences for users, as counts for records.

It is known once the corpus was scanned; which files were passed over is known once it was opened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reticent.engine.sources.found import Found

__all__ = ["Reading"]


@dataclass(slots=True)
class Reading:
    """Files, what was passed over beside them, how CSV was read where that was found out, and what was left out.

    Attributes
    ----------
    found : Found
    dialects : file of CSV -> how it was read, where that is not as commas, double quotes and UTF-8, and was not said
    suspects : file of CSV -> how many rows hold a value with a line like a row of its own, and the first of them
    num_skipped : documents without a text, left out as ``on_null`` says
    """

    found: Found = field(default_factory=Found)
    dialects: dict[Path, str] = field(default_factory=dict)
    suspects: dict[Path, tuple[int, int]] = field(default_factory=dict)
    num_skipped: int = 0
    #: Who is told of the scan's notices when it ends.
    tell: Callable[[str], None] | None = None

    def notices(self) -> list[str]:
        """Sentences about what is not as expected, or was found out and not said."""
        opened = self.found.notice()
        return ([opened] if opened else []) + self.notices_of_scan()

    def notices_of_scan(self) -> list[str]:
        """The same without the facts that were known when the corpus was opened."""
        said = []
        for how, number in sorted(Counter(self.dialects.values()).items()):
            first = min(file for file, other in self.dialects.items() if other == how)
            more = f" and {number - 1:,} more" if number > 1 else ""
            said.append(f"{first}{more}: read {how}; set corpus.delimiter, corpus.quote or corpus.encoding otherwise")
        if self.suspects:
            file = min(self.suspects)
            rows, first_row = sum(rows for rows, _ in self.suspects.values()), self.suspects[file][1]
            said.append(
                f"{rows:,} quoted values of CSV hold a line that looks like a row of its own (the first: {file} row "
                f"{first_row}): where a quote is missing, a document stands in another's; look at these rows"
            )
        if self.num_skipped:
            said.append(f"{self.num_skipped:,} documents are left out: their text is null (corpus.on_null = skip)")
        return said

    def scanned(self) -> None:
        """Tell of the scan's notices."""
        if self.tell is not None:
            for notice in self.notices_of_scan():
                self.tell(notice)

    def skipped(self) -> dict[str, int]:
        """Documents that are left out for want of a text, for the counts of a stage; empty where none is."""
        return {"skipped": self.num_skipped} if self.num_skipped else {}

    def counts(self) -> dict[str, Any]:
        """Counts for manifests and reports; no name of a file."""
        return {
            "files": len(self.found.files),
            "passed_over": dict(sorted(self.found.passed_over.items())),
            "csv": dict(sorted(Counter(self.dialects.values()).items())),
            "suspect_rows": sum(rows for rows, _ in self.suspects.values()),
            "skipped": self.num_skipped,
        }
