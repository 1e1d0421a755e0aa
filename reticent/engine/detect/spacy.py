"""spaCy: the entities of any installed pipeline, a path, or a blank pipeline with patterns.

Components that cannot change the entities are switched off. Each distinct text is looked at once, the longest first
(:mod:`reticent.engine.detect.passages`); several processes share one loaded pipeline
(:mod:`reticent.engine.detect.workers`).
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from reticent.core.errors import PolicyError
from reticent.engine.detect.common import without_common_words
from reticent.engine.detect.detector import texts_of
from reticent.engine.detect.passages import Found, cut_passages, cut_texts, find_in_pieces, join_spans
from reticent.engine.detect.workers import Workers

if TYPE_CHECKING:
    from reticent._rust import CommonWords
    from reticent.engine.detect.passages import SpanCache

#: Components that write neither entities nor anything that a recogniser of entities reads.
IDLE = (
    "tagger",
    "morphologizer",
    "attribute_ruler",
    "lemmatizer",
    "trainable_lemmatizer",
    "textcat",
    "textcat_multilabel",
)
#: Attributes that a pattern of a ruler may use and these components write.
WRITTEN = ("POS", "TAG", "LEMMA", "MORPH", "DEP", "SENT", "_")
#: Factories known not to read the attributes that `IDLE` writes; beside any other, everything stays on.
KNOWN = (*IDLE, "tok2vec", "transformer", "curated_transformer", "parser", "senter", "sentencizer", "ner", "beam_ner")


class SpacyDetector:
    """Named entities of a spaCy pipeline.

    Parameters
    ----------
    pipeline : str or Path
        Name of an installed package, a folder that ``nlp.to_disk`` wrote, or ``blank:<language>``.
    patterns : sequence of dict, optional
        Patterns for an ``entity_ruler``; for a blank pipeline they are all there is.
    labels : sequence of str, optional
        Entity labels to keep; default: all but `IGNORED`, or those of ``patterns``.
    batch_size : int
        Texts that go through the pipeline together.
    num_processes : int
        Processes that share the texts and one loaded pipeline.
    device : {"cpu", "cuda", "auto"}
        "cuda" needs spaCy's own GPU packages (cupy); "auto" takes the GPU where they are.
    window : int, optional
        Longer texts, in characters, are cut into windows that overlap; default: the pipeline's ``max_length``.
    sentences : bool
        False: the parser is switched off too, which saves about a fifth of the time; entities may then run across
        the ends of sentences.
    passages : bool
        Whether the pipeline sees one paragraph at a time, so that a passage that was copied from an older note costs
        nothing; else whole texts.
    guard : bool
        Whether names that are all common words of the corpus are left out (:mod:`reticent.engine.detect.common`).
    """

    name = "spacy"
    columns: tuple[str, ...] = ()
    #: Labels of the usual pipelines that say nothing of an individual.
    IGNORED = frozenset(("CARDINAL", "MONEY", "ORDINAL", "PERCENT", "QUANTITY", "TIME")) | frozenset(
        ("EVENT", "LANGUAGE", "LAW", "MISC", "PRODUCT", "WORK_OF_ART")
    )

    def __init__(
        self,
        pipeline: str | Path,
        *,
        patterns: Sequence[Mapping[str, Any]] | None = None,
        labels: Sequence[str] | None = None,
        batch_size: int = 64,
        num_processes: int = 1,
        device: Literal["cpu", "cuda", "auto"] = "cpu",
        window: int | None = None,
        sentences: bool = True,
        passages: bool = False,
        guard: bool = False,
        num_threads: int = 0,
    ):
        for option, value in (("batch_size", batch_size), ("num_processes", num_processes), ("window", window or 1000)):
            if value < (1 if option != "window" else 200):
                raise PolicyError(f"detector spacy: {option} = {value} is too small")
        if num_processes > 1 and device != "cpu":
            raise PolicyError("detector spacy: several processes would share one GPU; set device or num_processes")
        _pick_device(device)
        self._loading = (pipeline, [dict(pattern) for pattern in patterns or ()], sentences)
        self._nlp = _load_trimmed(*self._loading)
        if labels is None and patterns:
            labels = sorted({pattern["label"] for pattern in patterns})
        self._labels = frozenset(labels) if labels is not None else None
        self._batch_size = batch_size
        self._window = min(window or self._nlp.max_length, self._nlp.max_length)
        self._passages = passages
        self._num_processes = num_processes
        self.num_threads = num_threads
        #: None until they are learned; False without a guard.
        self.common_words: CommonWords | Literal[False] | None = None if guard else False
        #: Spans of passages that were seen before, of whoever wants to keep them.
        self.cache: SpanCache | None = None
        self._workers: Workers | None = None

    @property
    def language(self) -> str:
        """Language code of the pipeline; "xx" for several."""
        return str(self._nlp.lang)

    def cache_key(self) -> str:
        """Return a key of everything that affects the spans of a text: pipeline, weights and version of spaCy."""
        import spacy

        content = hashlib.sha256(self._nlp.to_bytes()).hexdigest()
        return f"spacy {spacy.__version__} {content} {self._nlp.disabled}"

    def detect(self, batch: pa.RecordBatch) -> pa.Table:
        """Return the entities of the pipeline in a batch of documents, as spans (schema `BATCH_SPANS`)."""
        texts = texts_of(batch).to_pylist()
        if self._passages:
            windows = cut_passages(texts, self._window)
        else:
            windows = cut_texts(texts, self._window, min(400, self._window // 4))
        found = find_in_pieces([texts[w.document][w.start : w.end] for w in windows], self._find_entities, self.cache)
        spans = join_spans(windows, [[s for s in spans if self._is_wanted(s[2])] for spans in found])
        return without_common_words(spans, batch.column("text"), self.common_words) if self.common_words else spans

    def _find_entities(self, texts: list[str]) -> list[list[Found]]:
        """Return the entities of each text as (start, end, label, score), computed here or by worker processes."""
        if self._num_processes == 1:
            return _entities(self._nlp, self._batch_size, texts)
        if self._workers is None:
            self._workers = Workers(_make_finder, (*self._loading, self._batch_size), self._num_processes, self.name)
        return self._workers.find(texts, self._batch_size)

    def _is_wanted(self, label: str) -> bool:
        """Whether entities with this label are to be returned."""
        return label in self._labels if self._labels is not None else label not in self.IGNORED


def load_pipeline(pipeline: str | Path, patterns: Sequence[dict[str, Any]] = (), detector: str = "spacy") -> Any:
    """Return a spaCy pipeline: an installed package, a folder or ``blank:<language>``, with optional patterns.

    Raises
    ------
    PolicyError
        spaCy or the pipeline is not there, or a pattern is none.
    """
    try:
        import spacy
    except ImportError:
        raise PolicyError(f"detector {detector} needs spaCy: install reticent[ner]") from None
    spacy.blank("xx")  # registers spaCy's components: once edsnlp is imported, loading a pipeline does not
    name = str(pipeline)
    try:
        nlp = spacy.blank(name.removeprefix("blank:")) if name.startswith("blank:") else spacy.load(pipeline)
    except (OSError, ImportError, ValueError):  # ValueError: a component of a package that is not installed
        raise PolicyError(
            f"spaCy pipeline {name!r} is neither installed nor a readable folder, or needs a package that is missing"
        ) from None
    if patterns:
        try:
            ruler: Any = nlp.add_pipe("entity_ruler")
            ruler.add_patterns(list(patterns))
        except (ValueError, KeyError, TypeError):
            raise PolicyError(f"detector {detector}: patterns are not those of an entity_ruler") from None
    return nlp


def _load_trimmed(pipeline: str | Path, patterns: Sequence[dict[str, Any]], sentences: bool) -> Any:
    """Return a spaCy pipeline with the components disabled that do not change its entities."""
    nlp = load_pipeline(pipeline, patterns)
    for component in _unneeded_components(nlp, sentences):
        nlp.disable_pipe(component)
    return nlp


def _unneeded_components(nlp: Any, sentences: bool) -> list[str]:
    """Return the names of the components that can be disabled without changing the entities. Components that split
    sentences are kept if ``sentences`` is True."""
    factories = {name: nlp.get_pipe_meta(name).factory for name in nlp.pipe_names}
    for name, factory in factories.items():
        if factory in ("entity_ruler", "span_ruler"):
            tokens = [token for pattern in nlp.get_pipe(name).patterns for token in _token_patterns(pattern)]
            if any(key.upper().startswith(WRITTEN) for token in tokens for key in token):
                return []
        elif factory not in KNOWN:
            return []
    idle = IDLE if sentences else (*IDLE, "parser", "senter", "sentencizer")
    return [name for name, factory in factories.items() if factory in idle]


def _token_patterns(pattern: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the token descriptions of a spaCy pattern; an empty list for a pattern given as a phrase."""
    return pattern["pattern"] if isinstance(pattern["pattern"], list) else []


def _pick_device(device: str) -> None:
    """Make spaCy use the GPU if ``device`` is "cuda" (or "auto" and there is one); `PolicyError` if that is not
    possible."""
    if device not in ("cpu", "cuda", "auto"):
        raise PolicyError(f"detector spacy: device is cpu, cuda or auto, not {device!r}")
    if device == "cpu":
        return
    try:
        import spacy

        spacy.prefer_gpu() if device == "auto" else spacy.require_gpu()
    except ImportError:
        raise PolicyError("detector spacy needs spaCy: install reticent[ner]") from None
    except ValueError:
        raise PolicyError("detector spacy: no GPU that spaCy can use (it needs cupy beside CUDA)") from None


def _make_finder(
    pipeline: str | Path, patterns: Sequence[dict[str, Any]], sentences: bool, batch_size: int
) -> Callable[[list[str]], list[list[Found]]]:
    """Load a pipeline in this process; return a function from a list of texts to a list of entities for each."""
    return partial(_entities, _load_trimmed(pipeline, patterns, sentences), batch_size)


def _entities(nlp: Any, batch_size: int, texts: Sequence[str]) -> list[list[Found]]:
    """Return the entities of each text as (start, end, label, score)."""
    with getattr(nlp, "memory_zone", contextlib.nullcontext)():  # or every new word is kept for ever
        return [
            [(entity.start_char, entity.end_char, entity.label_, 1.0) for entity in parsed.ents]
            for parsed in nlp.pipe(texts, batch_size=batch_size)
        ]
