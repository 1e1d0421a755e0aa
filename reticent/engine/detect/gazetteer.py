"""Gazetteers: long lists of names, looked up in every document, with a guard against names that are common words."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from reticent import _rust
from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.detect.common import read_common_words, read_lines
from reticent.engine.detect.detector import spans_batch, texts_of
from reticent.engine.detect.labels import category

if TYPE_CHECKING:
    from reticent._rust import CommonWords, Gazetteer


def read_lists(lists: Mapping[str, str | Path]) -> pa.Table:
    """Return the distinct names in text files (``lists``: label -> file of one name a line) as a table of pattern and
    label."""
    patterns: list[str] = []
    labels: list[str] = []
    for label, path in lists.items():
        names = dict.fromkeys(read_lines(path, "a list of names"))
        if not names:  # it would find nothing, in silence
            raise CorpusError(f"{path}: holds no name")
        for number, name in enumerate(names, 1):
            if sum(map(str.isalnum, name)) < 2:
                raise CorpusError(f"{path}: name {number} has fewer than 2 letters or digits")
        patterns += names
        labels += [label] * len(names)
    return pa.table({"pattern": pa.array(patterns, pa.large_string()), "label": pa.array(labels, pa.large_string())})


class GazetteerDetector:
    """Detects every whole-word occurrence of a listed name, by default whatever its case and accents.

    A name that is also a common word counts only where something says so: a title, a cue ("Patient:") or an initial
    beside it, another name beside it, or, where the corpus writes it as a name as often as not, a capital inside a
    sentence. ``Crohn's disease`` and dates in May are no names, nor is what stands in the name of a place or a firm.

    Parameters
    ----------
    lists : label -> text file with one name a line
    surface : {"fold", "casefold", "exact"}
        Which spellings are the same: neither case nor accents count, case does not, or all do.
    guard : bool
        False takes common words as they stand.
    common : path, optional
        Text file of common words, one a line; by default they are learned from the corpus, in a pass of its own.
    """

    name = "gazetteer"
    columns: tuple[str, ...] = ()
    exact_offsets = True

    def __init__(
        self,
        lists: Mapping[str, str | Path],
        *,
        surface: str = "fold",
        guard: bool = True,
        common: str | Path | None = None,
        num_threads: int = 0,
    ):
        if common is not None and not guard:
            raise PolicyError("detector gazetteer: common words are given, but guard = false does not look at them")
        self.num_threads = num_threads
        #: None until they are learned; False without a guard.
        self.common_words: CommonWords | Literal[False] | None = None if guard else False
        if common is not None:
            self.common_words = read_common_words(common)
        table = read_lists(lists)
        are_names = {label: category(label) == "NAME" for label in lists}
        self._gazetteer = _rust.Gazetteer(
            table.column("pattern").combine_chunks(),
            table.column("label").combine_chunks(),
            surface=surface,
            are_names=[are_names[label] for label in table.column("label").to_pylist()],
        )

    def detect(self, batch: pa.RecordBatch) -> pa.Table:
        """Return the identifier spans found in a batch of documents (schema `BATCH_SPANS`)."""
        common = self.common_words or None
        found = self._gazetteer.find(texts_of(batch), common=common, num_threads=self.num_threads)
        return self.as_spans(pa.record_batch(found))

    def choice(self) -> tuple[Gazetteer, CommonWords | None]:
        """Return what `detect_together` passes to the Rust core for this detector: compiled name lists, and common
        words or None."""
        return self._gazetteer, self.common_words or None

    def as_spans(self, found: pa.RecordBatch) -> pa.Table:
        """Return the Rust core's matches as a table of spans (schema `BATCH_SPANS`)."""
        return spans_batch(*(found.column(name) for name in ("document", "start", "end", "label")))
