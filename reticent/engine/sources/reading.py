"""Findings while a corpus is read (files passed over, dialects, nulls), as sentences for users and as counts.

They are known once the corpus was scanned; which files were passed over is known once it was opened. Nulls that must
not be are counted once one was found, so that all can be repaired at once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, Final

import numpy as np
import pyarrow as pa

from reticent.core.errors import CorpusError

HIDDEN: Final = "hidden"
UNDERSCORES: Final = "names that begin with _"
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
    """Document files, ordered by name, and the number of files passed over, by reason."""

    files: tuple[Path, ...] = ()
    passed_over: Counter[str] = field(default_factory=Counter)
    #: Suffixes of files of another format that are short enough to be one.
    other_suffixes: set[str] = field(default_factory=set)
    #: File -> the folder that was named, or in which the first glob begins.
    roots: dict[Path, Path] = field(default_factory=dict)
    #: The nearest folder of each file that may be the table of a lake: all between, which were listed, are none.
    folders: set[str] = field(default_factory=set)
    #: Files that are links.
    links: list[Path] = field(default_factory=list)

    def notice(self) -> str | None:
        """Return a sentence for the user on the files read and passed over; None if none was passed over."""
        if not self.passed_over:
            return None
        shown = {LINKS: "name them to read them", UNDERSCORES: "such as what Spark has not finished"}
        if self.other_suffixes:
            shown[OTHERS] = ", ".join(sorted(self.other_suffixes)[:8])
        parts = [
            f"{reason} {count:,}" + (f" ({shown[reason]})" if reason in shown else "")
            for reason, count in sorted(self.passed_over.items())
        ]
        return f"documents: files read {len(self.files):,}; passed over: {', '.join(parts)}"

    @property
    def surprising(self) -> bool:
        """Whether files were passed over that the user may have meant to be read."""
        return any(reason not in EXPECTED for reason in self.passed_over)


@dataclass(slots=True)
class Reading:
    """Findings of reading a corpus: files passed over, CSV dialects, suspicious rows and skipped documents.

    Attributes
    ----------
    found : Found, the files that were found and passed over
    dialects : CSV file, or address of an object -> text on its dialect, where that was detected and is not commas,
        double quotes and UTF-8
    suspects : the same -> (number of rows with a value that has a line like a row of its own, number of the first)
    num_skipped : int, number of documents without a text, left out as ``corpus.on_null`` says
    """

    found: Found = field(default_factory=Found)
    dialects: dict[Path | str, str] = field(default_factory=dict)
    suspects: dict[Path | str, tuple[int, int]] = field(default_factory=dict)
    num_skipped: int = 0
    #: What the first texts and the ids look like that is not as expected.
    oddities: list[str] = field(default_factory=list)
    #: Who is told of the scan's notices when it ends.
    tell: Callable[[str], None] | None = None

    def notices(self) -> list[str]:
        """Return sentences for the user about everything unexpected while reading, and about CSV dialects that were
        detected."""
        opened = self.found.notice()
        return ([opened] if opened else []) + self.notices_of_scan()

    def notices_of_scan(self) -> list[str]:
        """Return the sentences of `notices` that only the scan of all documents could find."""
        said = []
        for how, number in sorted(Counter(self.dialects.values()).items()):
            first = min((file for file, other in self.dialects.items() if other == how), key=str)
            more = f" and {number - 1:,} more" if number > 1 else ""
            said.append(f"{first}{more}: read {how}; set corpus.delimiter, corpus.quote or corpus.encoding otherwise")
        if self.suspects:
            file = min(self.suspects, key=str)
            rows, first_row = sum(rows for rows, _ in self.suspects.values()), self.suspects[file][1]
            said.append(
                f"{rows:,} quoted values of CSV hold a line that looks like a row of its own (the first: {file} row "
                f"{first_row}): where a quote is missing, a document stands in another's; look at these rows"
            )
        said += self.oddities
        if self.num_skipped:
            said.append(f"{self.num_skipped:,} documents are left out: their text is null (corpus.on_null = skip)")
        return said

    def tell_scan_notices(self) -> None:
        """Pass each sentence about the scan to the function ``tell``, if that is set."""
        if self.tell is not None:
            for notice in self.notices_of_scan():
                self.tell(notice)

    def skipped(self) -> dict[str, int]:
        """Return {"skipped": number of documents skipped for their null text}; empty if there are none."""
        return {"skipped": self.num_skipped} if self.num_skipped else {}

    def counts(self) -> dict[str, Any]:
        """Return counts of files, dialects and skipped rows, for manifests and reports; they name no file."""
        return {
            "files": len(self.found.files),
            "passed_over": dict(sorted(self.found.passed_over.items())),
            "csv": dict(sorted(Counter(self.dialects.values()).items())),
            "suspect_rows": sum(rows for rows, _ in self.suspects.values()),
            "skipped": self.num_skipped,
        }


#: What a text begins with that is no plain text.
_KINDS: Final = {
    "RTF": re.compile(r"\s*\{\\rtf"),
    "HTML": re.compile(r"\s*<(?:!doctype html|html|head|body|div|p|br|span|table)\b[^<>]*>", re.IGNORECASE),
    "HL7": re.compile(r"\s*(?:MSH|FHS|BHS)[|^]"),
    "XML": re.compile(r"\s*<\?xml\b"),
}
#: Documents from which on few values in a column are odd, and documents to each value.
MANY: Final = 100
NUM_EACH: Final = 20


def oddities(texts: Sequence[str], num_documents: int, num_individuals: int, text: str, individual: str) -> list[str]:
    """Return warnings about texts and ids that suggest a wrong column, or text that should have been converted (HTML,
    RTF …). ``text`` and ``individual`` are the names of the columns.

    Parameters
    ----------
    texts : sequence of str, the texts of the first documents
    num_documents, num_individuals : int, numbers in the whole corpus
    text, individual : str, names of the columns of texts and of individual ids
    """
    said = []
    for kind, begins in _KINDS.items():
        if count := sum(begins.match(each) is not None for each in texts):
            said.append(
                f"{count:,} of the first {len(texts):,} texts look like {kind}: they are read as they stand, markup "
                "and all; where that is not meant, convert them to plain text, or read the files by pages:// or hl7://"
            )
    if len(texts) >= MANY and (distinct := len(set(texts))) * NUM_EACH <= len(texts):
        said.append(
            f"column {text} has {distinct:,} different texts in the first {len(texts):,} documents; is it the text?"
        )
    if num_documents >= MANY and num_individuals * NUM_EACH * 2 <= num_documents and num_individuals < NUM_EACH:
        said.append(
            f"column {individual} names {num_individuals:,} individuals in {num_documents:,} documents, too few for a "
            "split and for intervals; is it the individual?"
        )
    return said


#: Rows that are named of each column.
NUM_NAMED = 4


def count_nulls(
    files: Iterable[tuple[Path | str, Iterator[pa.RecordBatch]]], columns: Sequence[str], text_column: str
) -> str:
    """Return text for an error about a null: number of nulls by column, where they are, and settings that help.

    Cost: a pass over these columns.
    """
    counts, places = dict.fromkeys(columns, 0), {column: list[str]() for column in columns}
    num_rows, is_whole = 0, True
    try:
        for file, batches in files:
            row, name = 0, PurePath(file).name
            for batch in batches:
                for column in columns:
                    array = batch.column(batch.schema.get_field_index(column))
                    if array.null_count:
                        counts[column] += array.null_count
                        wanted = NUM_NAMED - len(places[column])
                        nulls = np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[:wanted]
                        places[column] += [f"{name} row {row + int(at) + 1}" for at in nulls]
                row += batch.num_rows
            num_rows += row
    except CorpusError:
        is_whole = False  # something else is wrong after this
    parts = []
    if sum(counts.values()) > 1:
        for column, count in counts.items():
            if count:
                more = ", …" if count > len(places[column]) else ""
                parts.append(f"{count:,} of column {column} ({', '.join(places[column])}{more})")
        least = "" if is_whole else " at least"
        parts = [f"; null{least}: {' and '.join(parts)}, of {num_rows:,} rows"]
    if counts.get(text_column):
        parts.append('; corpus.on_null = "skip" leaves documents without a text out')
    return "".join(parts)
