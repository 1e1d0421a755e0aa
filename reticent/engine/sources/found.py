"""Found: the files of documents that were found, and those that were passed over and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

__all__ = ["Found"]

HIDDEN: Final = "hidden"
RESULTS: Final = "run folders and artefacts"
LINKS: Final = "linked folders"
OTHERS: Final = "files of another format"
SPECIAL: Final = "neither files nor folders"
NOTHING: Final = "links to nothing"
FOLDERS: Final = "folders where files are asked for"
#: Where users put nothing that should be read; of the rest they are warned.
EXPECTED: Final = (HIDDEN, RESULTS)


@dataclass(slots=True)
class Found:
    """Files of documents (in the order of their names), and how much was passed over for which reason."""

    files: tuple[Path, ...] = ()
    passed_over: Counter[str] = field(default_factory=Counter)
    #: Suffixes of files of another format that are short enough to be one.
    other_suffixes: set[str] = field(default_factory=set)

    def notice(self) -> str | None:
        """The files read and those passed over, as a sentence; None where there are none."""
        if not self.passed_over:
            return None
        shown = {LINKS: "name them to read them"}
        if self.other_suffixes:
            shown[OTHERS] = ", ".join(sorted(self.other_suffixes)[:8])
        parts = [
            f"{reason} {count:,}" + (f" ({shown[reason]})" if reason in shown else "")
            for reason, count in sorted(self.passed_over.items())
        ]
        return f"documents: files read {len(self.files):,}; passed over: {', '.join(parts)}"

    @property
    def surprising(self) -> bool:
        """Whether something was passed over that may have been meant."""
        return any(reason not in EXPECTED for reason in self.passed_over)
