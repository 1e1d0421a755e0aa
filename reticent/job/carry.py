"""Results that an update takes from the run before it, and the reasons why some are made anew.

Artefacts of the new run are byte for byte those of a run from nothing, so only what follows from a document alone is
taken. The run before stays as it is, and nothing of it is needed later.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from reticent.engine.carried_text import CarriedText
    from reticent.engine.carry import CarriedSpans
    from reticent.engine.text_pass import TextPass
    from reticent.job.artefact import Artefact
    from reticent.job.run import Run
    from reticent.job.stages.corpus import Refresh

__all__ = ["Carry"]


class Carry:
    """An update of a run, seen from the new run ``run``."""

    def __init__(self, refresh: Refresh, run: Run):
        self._before, self._refresh, self._run = refresh.before, refresh, run

    # ------------------------------------------------------------------ documents

    @cached_property
    def _rows(self) -> np.ndarray:
        """Of each document of the new run, its number among those of before, or -1."""
        from reticent.engine.carry import rows_before

        return rows_before(self._before.corpus, self._run.documents)

    @cached_property
    def _differing(self) -> np.ndarray:
        """Documents of both runs whose texts are not the same. Local files are: the index of before has their bytes."""
        from reticent.engine.carry import differing_texts

        if not self._may_differ:
            return np.empty(0, dtype=np.int64)
        if self._refresh.changed is not None:
            changed = pa.array(self._refresh.changed, pa.string())
            known = pc.is_in(self._run.documents.scan().column("doc_id").cast(pa.string()), value_set=changed)
            return np.flatnonzero(known.to_numpy() & (self._rows >= 0))
        threads = self._run.job.num_threads
        return differing_texts(self._before.corpus, self._run.documents, self._rows, threads)

    @cached_property
    def _may_differ(self) -> bool:
        if self._run.job.corpus.remote is None:
            return False
        old, new = (corpus.source.version() for corpus in (self._before.corpus, self._run.documents))
        return bool(old != new)

    def changed_individuals(self) -> set[str]:
        """Return the ids of the individuals who have a document in both runs whose text is not the same."""
        if not len(self._differing):
            return set()
        sides = ((self._before.corpus, self._rows[self._differing]), (self._run.documents, self._differing))
        found = [corpus.scan().column("individual_id").take(rows).to_pylist() for corpus, rows in sides]
        return {*found[0], *found[1]}

    @cached_property
    def _carried(self) -> np.ndarray:
        from reticent.engine.carry import with_same_individual

        rows = with_same_individual(self._before.corpus, self._run.documents, self._rows)
        rows[self._differing] = -1
        return rows

    # ------------------------------------------------------------------ spans

    @cached_property
    def has_spans(self) -> bool:
        """Whether spans were found in the run before, so that the new one has some too."""
        return (self._before.folder / "spans").exists()

    def spans(self) -> CarriedSpans | None:
        """Return the spans that are taken; None, and a line that says why, where all documents are searched again."""
        from reticent.engine.carry import CarriedSpans
        from reticent.engine.detect.passages import take_cache
        from reticent.job.stages.detect import NER_CACHE

        if why := self._why_not_spans():
            self._run.progress.say_once(f"identifiers are searched for in all documents again: {why}")
            if self._run.job.detect.cache:
                take_cache(self._run.folder / NER_CACHE, self._before.folder / NER_CACHE)
            return None
        return CarriedSpans(self._before.folder / "spans", self._carried)

    def _why_not_spans(self) -> str:
        from reticent.engine.detect.choose import DETECTORS
        from reticent.job.stages.detect import spans_artefact

        settings, before = self._run.job.detect, spans_artefact(self._before)
        if not _is_whole(self._before, before):
            return "their settings, or a file that a detector reads, have changed"
        if settings.confirm:
            return "detect.confirm judges names by those of all documents"
        if settings.propagate:
            return "detect.propagate looks everywhere for an identifier that was found once"
        for name in settings.detectors:
            if why := DETECTORS[name].depends(settings.of(name)):
                return f"detector {name}: {why}"
            if self._may_differ and (name == "gold" or settings.of(name).get("columns")):
                return f"detector {name}: it reads columns beside the text, which were read again"
        return ""

    # ------------------------------------------------------------------ words and tokens

    @cached_property
    def has_text(self) -> bool:
        """Whether the pass over the text was made in the run before, and its results are whole and up to date."""
        from reticent.core.errors import ReticentError
        from reticent.job.stages.protect import text_artefacts

        models = self._run.job.model
        if not self.has_spans or not models or any(model.foundation is not None for model in models):
            return False
        try:
            return all(_is_whole(self._before, artefact) for artefact in text_artefacts(self._before))
        except (ReticentError, OSError):  # a tokenizer that is gone: the command that needs it says so
            return False

    def text(self, text: TextPass) -> CarriedText:
        """Return the results of the pass over the text that are taken, of those that ``text`` is to make."""
        from reticent.engine.carried_text import CarriedText, CarriedTokens, CarriedWords, same_spans
        from reticent.engine.detect import quarantined_rows
        from reticent.engine.detect.spans import SpanReader
        from reticent.engine.numbered import WordSpans

        old, run = self._before.folder, self._run
        rows = np.delete(self._carried, quarantined_rows(run.folder / "spans"))
        words = None
        if text.words is not None:
            words = CarriedWords(old / "words", _words(self._before), _words(run))
            rows = words.known(rows)
        if text.spans is not None:
            rows = same_spans(SpanReader(old / "spans"), text.spans, rows)
        word_spans = WordSpans(old / "word-spans") if text.word_spans is not None else None
        models = {run.tokenizer_of(model): old / "tokens" / model.name for model in run.job.model}
        folders = [models[encoding.tokenizer_json] for encoding in text.encodings]
        return CarriedText(rows, words, word_spans, [CarriedTokens(each / "ids", each / "gaps") for each in folders])


def _is_whole(run: Run, artefact: Artefact) -> bool:
    from reticent.core.artifact import is_up_to_date

    return is_up_to_date(
        run.folder / artefact.name, kind=artefact.kind, config=artefact.settings, inputs=artefact.inputs
    )


def _words(run: Run) -> pa.Array:
    """The words of the joint index, by their rows."""
    import pyarrow.parquet as pq

    column = pq.read_table(run.folder / "index-joint" / "words.parquet", columns=["word"], use_threads=False)
    return column.column("word").combine_chunks()
