"""The compiled core. Texts come in as any Arrow array of strings without nulls, offsets count characters unless a name
says bytes, and `num_threads` 0 is ``RAYON_NUM_THREADS`` or every core; no result depends on it.

Every function raises `CorpusError` for texts it cannot use, `PolicyError` for settings out of range.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, final

import numpy as np
from numpy.typing import NDArray

__version__: str

LEFT_OUT: int
"""The unit of a document that an `IndexBuilder` leaves out."""
LEAST_BYTES: int
"""Memory that an `IndexBuilder` needs at least beside what it holds: all of it together, ..."""
LEAST_BYTES_PER_THREAD: int
"""... and for each thread, whichever is more."""
BYTES_PER_DOCUMENT: int
"""Memory that an `IndexBuilder` holds of each document whose words it writes down."""
ID_DIFFERENCES: list[str]
"""In what ids may differ that fold to one another."""
MISSING: int
"""What `IdRows.rows` returns for an id that is not there."""

_Surface = Literal["exact", "casefold", "fold"]
_Policy = Literal["all", "last", "cover", "paper"]

class _ArrowArray(Protocol):
    """Anything with the Arrow PyCapsule interface: pyarrow, polars, duckdb, Spark batches."""

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]: ...

@final
class ParquetFile:
    """A Parquet file whose columns of strings are read here, a page at a time."""

    @staticmethod
    def open(path: Path | str) -> ParquetFile | None:
        """None where pyarrow shall read the file, or say why it cannot be read."""
    @property
    def num_rows(self) -> list[int]:
        """Number of rows of each row group."""
    def read(
        self, columns: Sequence[str], *, large: Sequence[bool], row_groups: Sequence[int] | None = None
    ) -> ParquetRows | None:
        """Rows of these row groups (None: all), of these columns; ``large[c]``: as large strings.

        None where pyarrow shall read them, or say what is wrong: a column is missing, twice there, of another type.
        """

@final
class ParquetRows:
    """Rows of a Parquet file, from the first to the last."""

    def next(self, num_rows: int) -> ArrowBatch | None:
        """The next rows, so many but at the end; None there. Whether they are UTF-8 is for `check_utf8` to say.

        Raises
        ------
        CorpusError
            The file is broken; the error does not name it.
        """

@final
class CsvCheck:
    """Whether the bytes of a CSV file, which come in blocks, are rows as RFC 4180 writes them."""

    def __new__(cls, *, delimiter: int, quote: int | None, max_row: int, id_columns: Sequence[int]) -> CsvCheck:
        """``delimiter`` and ``quote`` are one byte, ``max_row`` is in bytes; ids tell a row from a line of text."""
    def feed(self, block: bytes) -> None:
        """Look at the next bytes.

        Raises
        ------
        CorpusError
            A quote stands where none may, or a row is too long; names row (1 follows the header), and no file.
        """
    def finish(self) -> None:
        """Say that there are no more bytes; `CorpusError` where a quoted value is open."""
    @property
    def num_rows(self) -> int:
        """Rows that are whole, the header among them."""
    @property
    def suspects(self) -> tuple[int, int | None]:
        """How many rows hold a value with a line like a row of its own, and the first of them."""

@final
class ArrowBatch:
    """A record batch on its way to Python; ``pyarrow.record_batch(x)`` takes it without a copy."""

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]: ...

@final
class Words:
    """Words of a batch of documents: those of document d are ``doc_offsets[d]`` to ``doc_offsets[d + 1]``."""

    @property
    def doc_offsets(self) -> NDArray[np.int64]: ...
    @property
    def starts(self) -> NDArray[np.uint32]:
        """Byte offsets in the word's own document; `ends` are exclusive."""
    @property
    def ends(self) -> NDArray[np.uint32]: ...
    @property
    def num_words(self) -> int: ...
    @property
    def num_documents(self) -> int: ...
    def char_spans(self, texts: _ArrowArray) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """Return starts and ends in characters."""
    def surfaces(self, texts: _ArrowArray) -> ArrowBatch:
        """Return the words themselves, column ``word``."""

@final
class IndexBuilder:
    """Collects documents for an `NgramIndex`; finished once."""

    def __new__(
        cls,
        *,
        max_n: int = 1,
        surface: _Surface | str = "exact",
        documents_per_unit: NDArray[np.uint32] | None = None,
        subset: NDArray[np.bool_] | None = None,
        num_threads: int = 0,
        memory_limit: int | None = None,
        memory_used: int | None = None,
        folder: Path | str | None = None,
    ) -> IndexBuilder:
        """Parameters
        ----------
        documents_per_unit : uint32, shape (num_units,), optional
            How many documents of each unit will be added; `finish` raises `PolicyError` where there were others. Saves
            time and memory where a unit's documents come in one call, next to each other.
        subset : bool, shape (num_units,), optional
            Units that have an index of their own as well, which `finish_both` makes; those past the end do not.
        memory_limit : int, optional
            Bytes beside what the process uses now; the rest goes to nameless files in ``folder``.
        memory_used : int, optional
            Bytes the process uses now; with it a limit that does not hold what stays in memory (the vocabulary, where
            documents stand) is refused by `add` or `finish`: a `PolicyError` that names the least one.
        """
    def add(self, texts: _ArrowArray, units: NDArray[np.uint32]) -> int:
        """Add documents, each owned by its unit (individual or household; `LEFT_OUT`: it is not added); returns the
        number of words.

        Works in the calling thread; many threads may call at once. After an `OSError` (a full disk) documents that
        were added before are lost, and `finish` raises `PolicyError`.
        """
    def finish(self, *, min_support: int = 2) -> NgramIndex:
        """Count; n-grams under ``min_support`` are not extended."""
    def finish_both(self, *, min_support: int = 2) -> tuple[NgramIndex | None, NgramIndex]:
        """The index of the subset, where there is one, and that of all units; `CorpusError` for a subset without
        documents."""

@final
class NgramIndex:
    """How many units use each word and each n-gram."""

    @property
    def max_n(self) -> int: ...
    @property
    def num_units(self) -> int: ...
    @property
    def num_documents(self) -> int: ...
    @property
    def num_words(self) -> int:
        """Distinct words."""
    @property
    def num_occurrences(self) -> int: ...
    @property
    def num_unspaced(self) -> int:
        """Occurrences of words that are one letter of a script without spaces (Han, Thai, …)."""
    @property
    def min_support(self) -> int: ...
    @property
    def spilled_bytes(self) -> int:
        """The most bytes that building it had on disk at once; 0 without a memory limit."""
    @property
    def surface(self) -> str: ...
    def words(self, start: int = 0, length: int | None = None) -> ArrowBatch:
        """Return columns word, support, occurrences, in byte order of the word: all, or these rows."""
    def num_ngrams(self, n: int) -> int:
        """Distinct n-grams of the level, n >= 2."""
    def level(self, n: int, start: int = 0, length: int | None = None) -> ArrowBatch:
        """Return columns left, right, support of the n-grams, n >= 2, sorted by (left, right): all, or these rows."""
    def table_bytes(self, *, k: int, n: int) -> int:
        """Memory of the tables that protection by this k and n makes of the n-grams."""
    def forget_tables(self) -> None:
        """Give the memory of those tables back."""
    @staticmethod
    def from_tables(
        words: _ArrowArray,
        levels: Sequence[_ArrowArray | Path],
        *,
        max_n: int,
        num_units: int,
        num_documents: int,
        min_support: int,
        surface: str,
    ) -> NgramIndex:
        """Return the index of these tables; `ArtifactError` when they do not fit together. A level that is a path
        stays in its file, which is read where it is asked for."""
    def merge(self, other: NgramIndex) -> NgramIndex:
        """Return the index of the union of two sets of documents that share no unit (both with ``min_support`` 1)."""
    def prune(self, min_support: int) -> NgramIndex:
        """Return the index that the same documents give with a greater ``min_support``."""
    def update(
        self, removed: NgramIndex, added: NgramIndex, k: int
    ) -> tuple[NgramIndex, list[tuple[int, int, int, int]]]:
        """Return this index less the documents of ``removed``, with those of ``added``; and for each n how many n-grams
        are new, gone, identifying now and were not, shared now and were not. All with ``min_support`` 1."""
    def number_words(self, texts: _ArrowArray, words: Words, *, num_threads: int = 0) -> NDArray[np.uint32]:
        """Return the row of each word in the table of words; `MISSING` for a word that is none of them."""
    def protect(
        self,
        texts: _ArrowArray,
        words: Words,
        *,
        k: int,
        n: int,
        policy: _Policy | str = "all",
        max_document_frequency: float | None = None,
        num_threads: int = 0,
    ) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Return flags of each word (2 = INDIRECT), and bit n - 1 where a minimal identifying n-gram starts at it."""

@final
class Part:
    """The documents of some units, counted level by level in a task of a cluster: supports of a level's n-grams are
    summed over all parts, and a part is answered with them. Its bytes hold words of documents."""

    @staticmethod
    def of_documents(builder: IndexBuilder, *, min_support: int = 2, num_threads: int = 1) -> Part:
        """Return the documents that were added to a builder, which is used up, with their words counted.

        ``min_support`` is that of the index of all documents.
        """
    @staticmethod
    def from_bytes(data: bytes, *, num_threads: int = 1) -> Part:
        """Raises `ArtifactError` unless `to_bytes` made them."""
    def to_bytes(self) -> bytes: ...
    @property
    def n(self) -> int:
        """The length of the n-grams at hand; ``max_n + 1`` once everything is answered."""
    @property
    def num_rows(self) -> int:
        """Rows of the table at hand."""
    @property
    def num_units(self) -> int: ...
    @property
    def num_documents(self) -> int: ...
    def rows(self) -> ArrowBatch:
        """Return the distinct n-grams at hand, each with its support in this part: columns word, support, occurrences
        (in byte order of the words); or left, right (ids over all parts of the n-grams that it is made of), support."""
    def answer_words(self, words: _ArrowArray, support: NDArray[np.int64], ids: NDArray[np.int64]) -> None:
        """Take support and id over all parts of those words that are kept, in any order; count the next level.

        Raises `ArtifactError` where a word is none of this part, is answered twice, or lacks an answer.
        """
    def answer_pairs(
        self, left: NDArray[np.int64], right: NDArray[np.int64], support: NDArray[np.int64], ids: NDArray[np.int64]
    ) -> None:
        """The same for n-grams of two words or more."""
    def index(self, num_units: int, num_documents: int) -> NgramIndex:
        """Return the index of this part with the supports of all, of which there are so many; the part is used up."""

@final
class Blacklist:
    """Surfaces of direct identifiers protected beyond their span; numbers of up to three digits are never spread.

    ``index`` says which surfaces are too common for the corpus and spread over their unit alone; without it none is.
    """

    def __new__(cls, *, surface: _Surface | str = "exact", index: NgramIndex | None = None) -> Blacklist: ...
    @property
    def num_surfaces(self) -> int: ...
    def add(
        self,
        texts: _ArrowArray,
        words: Words,
        mask: NDArray[np.uint8],
        units: NDArray[np.uint32],
        *,
        everywhere: bool,
    ) -> None:
        """Add the masked words, for the whole corpus (``everywhere``) or for the unit of their document."""
    def surfaces(self) -> tuple[ArrowBatch, NDArray[np.bool_]]:
        """Return every surface on the list in byte order (column ``word``), and whether it is protected wherever it
        stands."""
    def add_surfaces(self, surfaces: _ArrowArray) -> None:
        """Protect surfaces, as `surfaces` gives them, wherever they stand, but those that are too common."""
    def match(
        self, texts: _ArrowArray, words: Words, units: NDArray[np.uint32], *, num_threads: int = 0
    ) -> NDArray[np.uint8]:
        """Return 1 for each word on the list."""

@final
class ReadWords:
    """Words that identify, as a tokenizer spells them, and a look for them in what a model reads.

    ``words`` are surfaces of an index, ``is_rare`` (uint8, one a word) says which identify. A spelling that another
    word has too is left out.
    """

    def __new__(
        cls,
        tokenizer_json: str,
        words: _ArrowArray,
        is_rare: NDArray[np.uint8],
        *,
        surface: Literal["exact", "casefold", "fold"] | str = "exact",
        num_threads: int = 0,
    ) -> ReadWords: ...
    @property
    def num_rare(self) -> int:
        """Spellings that only identifying words have."""
    @property
    def unknown(self) -> int | None:
        """The id of characters without a piece; None where every character has one."""
    def classes(self) -> NDArray[np.uint8]:
        """Return bits of each id: 1 a space before it, 2 first letter upper case, 4 a digit, 8 a lower-case letter."""
    def count(self, input_ids: NDArray[np.int64], word_ids: NDArray[np.int32], skipped: NDArray[np.bool_]) -> int:
        """Return how many words of the rows identify; arrays (B, T). A word with a skipped token is passed over."""
    def is_rare(self, ids: NDArray[np.uint32], offsets: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return 1 for each run ``ids[offsets[i]:offsets[i + 1]]`` that spells a word that identifies."""

@final
class TokenEncoder:
    """A ``tokenizer.json`` whose tokens know their words; no text comes to the id of a special token."""

    def __new__(cls, tokenizer_json: str, *, num_threads: int = 0) -> TokenEncoder: ...
    @property
    def vocab_size(self) -> int:
        """Ids run from 0 to this, exclusive."""
    @property
    def path(self) -> Literal["bert", "bytelevel", "library"]:
        """ "bert" or "bytelevel" where each distinct pretoken is tokenised once, "library" where each document is."""
    def encode(
        self,
        texts: _ArrowArray,
        words: Words,
        word_flags: NDArray[np.uint8],
        ngram_starts: NDArray[np.uint8],
        *,
        gaps: Words | None = None,
    ) -> Tokens:
        """Return the tokens; the two arrays have one byte a word. What meets a stretch of ``gaps`` is direct."""
    def pack(
        self,
        texts: _ArrowArray,
        words: Words,
        word_flags: NDArray[np.uint8],
        ngram_starts: NDArray[np.uint8],
        *,
        gaps: Words | None = None,
    ) -> PackedTokens:
        """Return the tokens of `encode` as :mod:`reticent.engine.packed` keeps them."""

@final
class Tokens:
    """Tokens of a batch; every array but ``doc_offsets`` has one entry a token."""

    @property
    def doc_offsets(self) -> NDArray[np.int64]: ...
    @property
    def input_ids(self) -> NDArray[np.uint32]: ...
    @property
    def word_ids(self) -> NDArray[np.int32]:
        """Number of the first word it meets in its document, -1 for none."""
    @property
    def flags(self) -> NDArray[np.uint8]:
        """Flags of all words it meets."""
    @property
    def ngram_starts(self) -> NDArray[np.uint8]:
        """Of the words whose first token it is."""

@final
class PackedTokens:
    """Tokens of a batch. Bits begin with the lowest of the first byte; tokens count from the batch's first."""

    @property
    def doc_offsets(self) -> NDArray[np.int64]: ...
    @property
    def ids(self) -> NDArray[np.uint16]:
        """The lower two bytes of each id."""
    @property
    def high(self) -> NDArray[np.uint8]:
        """The third byte of each id; empty where the vocabulary needs none."""
    @property
    def begins(self) -> NDArray[np.uint8]:
        """Bits: the token's first word is another than that of the token before."""
    @property
    def outside(self) -> NDArray[np.uint8]:
        """Bits: the token meets no word."""
    @property
    def direct(self) -> NDArray[np.uint8]: ...
    @property
    def indirect(self) -> NDArray[np.uint8]: ...
    @property
    def exceptions(self) -> NDArray[np.int64]:
        """Tokens whose words do not follow from the bits, ascending."""
    @property
    def skipped(self) -> NDArray[np.uint32]:
        """Words that each of them passes over."""
    @property
    def more(self) -> NDArray[np.uint32]:
        """Words that each of them meets beside its first."""
    @property
    def ngram_tokens(self) -> NDArray[np.int64]:
        """Tokens where minimal identifying n-grams start, ascending."""
    @property
    def ngram_lengths(self) -> NDArray[np.uint8]:
        """Their lengths: bit n - 1."""

@final
class MarkedSpans:
    """The words that spans meet, and what the spans hold between words."""

    @property
    def firsts(self) -> NDArray[np.uint32]:
        """Of each span the first word that it meets, by its number in the document."""
    @property
    def ends(self) -> NDArray[np.uint32]:
        """One past the last."""
    @property
    def mask(self) -> NDArray[np.uint8]: ...
    @property
    def gaps(self) -> Words: ...

_NumberedDocuments = tuple[
    tuple[NDArray[np.uint8], int],
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.uint32],
    NDArray[np.bool_],
    NDArray[np.int64],
    NDArray[np.uint32],
    NDArray[np.uint32],
    NDArray[np.uint8],
]

@final
class Planes:
    """One bit a token for direct and for indirect identifiers, and where minimal identifying n-grams start."""

    @property
    def direct(self) -> NDArray[np.uint8]: ...
    @property
    def indirect(self) -> NDArray[np.uint8]: ...
    @property
    def ngram_tokens(self) -> NDArray[np.int64]: ...
    @property
    def ngram_lengths(self) -> NDArray[np.uint8]: ...
    @property
    def untold_words(self) -> NDArray[np.int64]: ...
    @property
    def untold_flags(self) -> NDArray[np.uint8]: ...
    @property
    def untold_lengths(self) -> NDArray[np.uint8]: ...

@final
class Numbering:
    """Protection of documents whose words are rows of one index, by the supports of another.

    Documents are the bytes of their words' numbers, word offsets, units, which of them count, span offsets, and of each
    span its first word, one past the last, and its scope.
    """

    def __new__(
        cls,
        numbered: NgramIndex,
        by: NgramIndex,
        *,
        k: int,
        n: int,
        policy: str,
        max_document_frequency: float | None = None,
        num_threads: int = 0,
    ) -> Numbering: ...
    @property
    def num_blacklisted(self) -> int: ...
    def add(self, documents: _NumberedDocuments) -> None:
        """Add what the spans of documents protect beyond themselves."""
    def flag_words(self, documents: _NumberedDocuments) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Return flags of each word (4: too common to identify anybody), and bit n - 1 where a minimal identifying
        n-gram of n words starts, zero for
        documents that do not count.
        """

@final
class CommonWords:
    """Which words are common, by how documents write them; `merge` before it is asked."""

    def __new__(cls) -> CommonWords: ...
    @property
    def num_words(self) -> int: ...
    @property
    def num_documents(self) -> int:
        """Documents that were counted before the last `merge`; 0 of a list."""
    def add(self, texts: _ArrowArray, individuals: _ArrowArray | None = None, *, num_threads: int = 0) -> None:
        """Count the words of documents; texts without case say nothing. ``individuals``, one a document, tell which
        words several have."""
    def add_list(self, words: _ArrowArray) -> None:
        """Add words that are common whatever documents say."""
    def merge(self) -> None:
        """Bring together what threads have counted."""
    def are_widespread(self, words: _ArrowArray) -> NDArray[np.uint8]:
        """Of each word, 1 where it is common and stands in small letters in many documents."""

    def classes(self, words: _ArrowArray) -> NDArray[np.uint8]:
        """Return of each word 0: a name, 1: a name as often as not, 2: common."""

_Spans = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32], NDArray[np.uint32]]

@final
class Tagger:
    """A tagger that was learned: rows of 32 weights by the hash of a feature, under a key of 16 bytes.

    Spans are (offsets, starts, ends, numbers): those of document d are ``offsets[d]`` to ``offsets[d + 1]``.
    """

    def __new__(
        cls,
        key: bytes,
        keys: NDArray[np.uint64],
        slots: NDArray[np.uint8],
        weights: NDArray[np.int16],
        scale: float,
        transitions: NDArray[np.int16],
        *,
        num_lanes: int,
        affixes: bool,
    ) -> Tagger:
        """From `tables`. Raises `ArtifactError` where they do not match."""
    @staticmethod
    def learn(
        key: bytes,
        texts: _ArrowArray,
        individuals: NDArray[np.uint32],
        weights: NDArray[np.float32],
        marks: _Spans,
        hints: _Spans,
        names: Sequence[str],
        *,
        common: CommonWords | None = None,
        k: int,
        epochs: int,
        seed: int,
        affixes: bool,
        l2: float,
        rate: float,
    ) -> Tagger:
        """Learn from documents; ``marks`` are numbered by lane (1 to 15; 2^32 - 1: unknown), ``hints`` by name."""
    @property
    def num_lanes(self) -> int: ...
    def tables(
        self,
    ) -> tuple[NDArray[np.uint64], NDArray[np.uint8], NDArray[np.int16], float, NDArray[np.int16]]:
        """Return hashes (ascending), rows of each, weights, the worth of one step, and the scores of transitions."""
    def find(
        self,
        texts: _ArrowArray,
        hints: _Spans,
        names: Sequence[str],
        *,
        lean: float = 0.0,
        common: CommonWords | None = None,
        num_threads: int = 0,
    ) -> ArrowBatch:
        """Return columns document, start, end and lane; ``lean`` is taken from the score of no span."""

@final
class Gazetteer:
    """A list of names, each with a label."""

    def __new__(
        cls,
        patterns: _ArrowArray,
        labels: _ArrowArray,
        *,
        surface: _Surface | str = "fold",
        are_names: Sequence[bool] | None = None,
    ) -> Gazetteer: ...
    def find(self, texts: _ArrowArray, *, common: CommonWords | None = None, num_threads: int = 0) -> ArrowBatch:
        """Return columns document, start, end, label, rule of every free-standing occurrence that is no common word."""

@final
class Records:
    """Values of record fields (name, date, phone, code, address or text), each of one unit, with a label."""

    def __new__(
        cls, units: NDArray[np.uint32], values: _ArrowArray, fields: _ArrowArray, labels: _ArrowArray
    ) -> Records: ...
    def find(
        self,
        texts: _ArrowArray,
        units: NDArray[np.uint32],
        *,
        common: CommonWords | None = None,
        initials: bool = False,
        num_threads: int = 0,
    ) -> ArrowBatch:
        """Return columns document, start, end, label, rule ("record" or "edited") of each unit's values in its
        documents."""

@final
class Surfaces:
    """What was found once, to be found wherever else it may stand; spans count characters."""

    def __new__(cls) -> Surfaces: ...
    def add(
        self,
        texts: _ArrowArray,
        units: NDArray[np.uint32],
        span_offsets: NDArray[np.int64],
        starts: NDArray[np.int32],
        ends: NDArray[np.int32],
        labels: NDArray[np.uint32],
        scopes: NDArray[np.uint8],
        names: NDArray[np.uint8],
        sources: NDArray[np.uint32],
        *,
        counted: CommonWords | None = None,
        num_threads: int = 0,
    ) -> None:
        """Take the spans of a batch. ``scopes``: 0 nowhere, 1 the unit's documents, 2 all; ``names``: 1 where the parts
        of the span count too; ``labels`` and ``sources`` are numbers of the caller's; ``counted`` counts the words on
        the way."""
    def finish(self, common: CommonWords) -> tuple[int, int, int]:
        """Return how many surfaces spread, and how many are too short or too common to, by the words of all documents;
        nothing is added afterwards."""
    def find(
        self,
        texts: _ArrowArray,
        units: NDArray[np.uint32],
        span_offsets: NDArray[np.int64],
        starts: NDArray[np.int32],
        ends: NDArray[np.int32],
        labels: NDArray[np.uint32],
        *,
        common: CommonWords,
        num_threads: int = 0,
    ) -> ArrowBatch:
        """Return columns document, start, end, label, source of what lies in no span of the same label."""

@final
class CopyCollector:
    """Collects documents among which copies are looked for; finished once. 8 bytes a word."""

    def __new__(cls) -> CopyCollector: ...
    def add(self, first: int, texts: _ArrowArray) -> None:
        """Add documents numbered from ``first`` on, in any order; many threads may call at once."""
    def finish(self, *, num_threads: int = 0) -> Copies:
        """Return the documents, whose numbers must run from 0 without a gap."""

@final
class Copies:
    """Documents among which copies are looked for; every array has one entry a document."""

    @property
    def num_words(self) -> NDArray[np.uint32]: ...
    @property
    def first_equal(self) -> NDArray[np.uint32]:
        """The first document with an equal text: in NFC, each run of white space as one space."""
    def near(
        self, owners: NDArray[np.uint32], *, threshold: float = 0.8, shingle: int = 5
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """Return the first document of the cluster of near duplicates, and the first kept document of the same owner
        that it repeats (2^32 - 1 where it is kept itself). Near: the Jaccard similarity of the sets of ``shingle``
        words is at least ``threshold``; pairs are found by MinHash, then compared in full."""
    def passages(
        self, units: NDArray[np.uint32], *, num_words: int = 50
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """Return how many words lie in passages of ``num_words`` that another document of the same unit has too, and
        that one of another unit has."""

@final
class VerbatimFilter:
    """Every stretch of training texts, by keyed hashes: what matches it verbatim is never missed."""

    def __new__(cls, num_bytes: int, *, length: int = 50, key: int = 0, letters: bool = False) -> VerbatimFilter:
        """``num_bytes``: of the texts together, and about the size of the filter; twice that with ``letters``, which
        compares letters and digits alone as well."""
    @staticmethod
    def from_bits(bits: NDArray[np.uint64], *, length: int, key: int, letters: bool = False) -> VerbatimFilter:
        """Raise `ArtifactError` for bits that are no whole blocks."""
    @property
    def length(self) -> int: ...
    @property
    def letters(self) -> bool: ...
    @property
    def key(self) -> int: ...
    @property
    def num_bytes(self) -> int: ...
    @property
    def num_stretches(self) -> int:
        """Stretches added, repeats included."""
    @property
    def error(self) -> float:
        """Share of unknown stretches that are taken for known ones, measured; a match needs eight in a row."""
    def bits(self) -> NDArray[np.uint64]: ...
    def add(self, texts: _ArrowArray) -> None:
        """Add training texts; many threads may call at once."""
    def find(self, texts: _ArrowArray, *, num_threads: int = 0) -> ArrowBatch:
        """Return columns document, start, end of the matches, which do not overlap."""
    def stream(self) -> VerbatimStream:
        """Return a reader of a text that comes piece by piece."""

@final
class VerbatimStream:
    """A text that is read piece by piece; offsets count its characters from the first piece on."""

    def push(self, text: str) -> list[tuple[int, int]]:
        """Read on; return the matches (start, end) that no further text can lengthen."""
    @property
    def open(self) -> tuple[int, int] | None:
        """The match that further text may lengthen."""
    @property
    def pending(self) -> int:
        """The first character that is in the open match, or may come to lie in one."""

def segment(texts: _ArrowArray, *, num_threads: int = 0, instruction_set: str | None = None) -> Words:
    """Return the words of documents (UAX #29, numbers kept whole).

    ``instruction_set`` is for tests: "table" is what machines without AVX2 take. The words do not depend on it.
    """

def explain_abort() -> None:
    """End this process with "out of memory" where a library aborts it for want of memory: a handler of SIGABRT."""

def resolve_threads(num_threads: int) -> int:
    """Return the number of threads meant: 0 is ``RAYON_NUM_THREADS``, or every core; `PolicyError` beyond 1,024."""

class TokenisedText:
    """The tokens of a text: their ids, the characters of each, and its word as the tokenizer cuts words."""

    @property
    def ids(self) -> list[int]: ...
    @property
    def offsets(self) -> list[tuple[int, int]]: ...
    @property
    def word_ids(self) -> list[int | None]: ...

class LibraryTokenizer:
    """A tokenizer as the crate ``tokenizers`` has it, without padding or truncation; `ArtifactError` where it fails."""

    def __new__(cls, tokenizer_json: str) -> LibraryTokenizer: ...
    def encode(self, texts: list[str]) -> list[TokenisedText]:
        """Return the tokens of texts, without special tokens around them."""

    def decode(self, rows: list[list[int]], *, skip_special_tokens: bool) -> list[str]:
        """Return the texts of rows of ids."""

def check_tokenizer(tokenizer_json: str) -> None:
    """Raise `ArtifactError` for a tokenizer that cannot be read, or that the library fails on with ordinary text."""

def count_listed_words(
    texts: _ArrowArray, lists: Sequence[Sequence[str]], num_characters: int, *, num_threads: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of words in so many characters of each text, int64, and how many of them are of each list,
    uint32, shape (texts x lists,). -1: the text may have a script without spaces, and nothing is told of it.
    """

def instruction_set() -> str:
    """Return what words are cut with on this machine: "avx2" or "table"."""

def release_memory() -> None:
    """Give memory that was freed back to the system."""

def hash_units(ids: _ArrowArray, *, seed: int) -> NDArray[np.uint64]:
    """Return the XXH3-64 of each id under a seed; it never changes."""

def json_too_deep(json: bytes, *, limit: int) -> int | None:
    """Where the first value begins that stands in more than ``limit`` others, or None."""

def check_utf8(texts: _ArrowArray) -> int | None:
    """Return the first row that is not valid UTF-8, or None."""

def blank_rows(ids: _ArrowArray) -> NDArray[np.int64]:
    """Return the rows of strings that are empty or of characters alone that print nothing; nulls are not."""

def count_distinct(ids: _ArrowArray) -> int:
    """Return how many of these strings are distinct."""

def sorted_codes(ids: _ArrowArray) -> tuple[ArrowBatch, NDArray[np.uint32]]:
    """Return the distinct strings in byte order (column ``name``), and which of them each row holds."""

@final
class IdRows:
    """Distinct ids, whose rows are looked up batch after batch."""

    def __new__(cls, names: _ArrowArray) -> IdRows: ...
    def rows(self, ids: _ArrowArray) -> NDArray[np.uint32]:
        """Return the row that holds each id, or `MISSING`."""

def fold_ids(ids: _ArrowArray) -> ArrowBatch:
    """Return the form of each id that ids are compared by (column ``id``); nulls stay."""

def id_groups(ids: _ArrowArray) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]:
    """Return the first rows of ids that fold to one another, by group, the bounds of the groups, and what differs in
    each (a bit of each of `ID_DIFFERENCES`).
    """

def apply_surface(words: _ArrowArray, *, surface: _Surface | str) -> ArrowBatch:
    """Return the surface of each string, column ``word``: what words are counted by, or leaks matched on."""

def seen_surfaces(words: _ArrowArray, *, surface: _Surface | str) -> ArrowBatch:
    """Return the surfaces of what is seen of strings, distinct and in byte order (column ``word``): what a `Blacklist`
    holds."""

def pack_numbers(numbers: NDArray[np.uint32], offsets: NDArray[np.int64], bits: int) -> NDArray[np.uint8]:
    """Return the numbers of the words of documents in so many bits each; see `unpack_numbers`."""

def unpack_numbers(
    packed: NDArray[np.uint8],
    bits: int,
    firsts: NDArray[np.int64],
    lengths: NDArray[np.int64],
) -> NDArray[np.uint32]:
    """Return the numbers of documents, given the first byte of each and how many words it has; `ArtifactError` where
    they do not fit."""

def planes(
    begins: NDArray[np.uint8],
    outside: NDArray[np.uint8],
    gaps: NDArray[np.uint8] | None,
    exceptions: NDArray[np.int64],
    skipped: NDArray[np.uint32],
    more: NDArray[np.uint32],
    token_offsets: NDArray[np.int64],
    flags: NDArray[np.uint8],
    ngram_starts: NDArray[np.uint8],
    word_offsets: NDArray[np.int64],
    kept: NDArray[np.bool_],
    *,
    num_threads: int = 0,
) -> Planes:
    """Return the planes of the kept documents, from the flags of their words.

    Bits and exceptions are those of the whole store; ``token_offsets`` are the numbers that the tokens of these
    documents have in it.
    """

def mark_spans(
    texts: _ArrowArray,
    words: Words,
    span_offsets: NDArray[np.int64],
    starts: NDArray[np.int32],
    ends: NDArray[np.int32],
    *,
    num_threads: int = 0,
) -> MarkedSpans:
    """Return the words of each span, those that meet one in at least one character, and what spans hold beside them."""

def replace_words(
    texts: _ArrowArray,
    words: Words,
    mask: NDArray[np.uint8],
    replacement: str = "X",
    *,
    gaps: Words | None = None,
    num_threads: int = 0,
) -> tuple[ArrowBatch, NDArray[np.int64]]:
    """Return the texts with each masked word, and each run of symbols in ``gaps``, replaced (column ``text``), and the
    byte at which each word, or what replaces it, begins in its own.
    """

@final
class NamePool:
    """Realistic names of which surrogates are drawn.

    Raises
    ------
    PolicyError
        A name begins with no letter from a to z (accents aside), or fewer than two letters have names of every kind.
    """

    def __new__(cls, women: _ArrowArray, men: _ArrowArray, surnames: _ArrowArray, places: _ArrowArray) -> NamePool: ...

def scrub_texts(
    texts: _ArrowArray,
    individuals: _ArrowArray,
    doc_ids: _ArrowArray,
    span_offsets: NDArray[np.int64],
    starts: NDArray[np.int32],
    ends: NDArray[np.int32],
    span_categories: NDArray[np.uint32],
    categories: Sequence[str],
    *,
    style: str,
    key: bytes,
    draw: int = 0,
    shift_days: int | None = None,
    date_order: str = "mdy",
    order_is_sure: bool = False,
    avoid: NDArray[np.uint64] | None = None,
    names: NamePool | None = None,
    num_threads: int = 0,
) -> tuple[ArrowBatch, ArrowBatch]:
    """Return documents with their spans replaced (columns text, first_edit) and the edits (columns old_start, old_end,
    new_start, new_end, span, outcome); what style, key and outcome mean stands in ``engine/pseudonymize.py``."""

def real_identifiers(
    texts: _ArrowArray,
    span_offsets: NDArray[np.int64],
    starts: NDArray[np.int32],
    ends: NDArray[np.int32],
    span_categories: NDArray[np.uint32],
    categories: Sequence[str],
    *,
    num_threads: int = 0,
) -> tuple[NDArray[np.uint64], int, int]:
    """Return hashes of names and ids in the spans, ascending; how many dates must be day first; month first."""

def pseudonymise_ids(ids: _ArrowArray, *, key: bytes, purpose: str, num_threads: int = 0) -> ArrowBatch:
    """Return keyed pseudonyms of ids, column ``id``; ids of two purposes have nothing in common."""

def read_files(files: Sequence[Path], most: int) -> list[bytes]:
    """Return the bytes of each file, of a longer one the first ``most``; `OSError` with the name of one that cannot be
    read. The interpreter's lock is released meanwhile."""

def has_any(data: bytes, parts: Sequence[bytes]) -> bool:
    """Return whether one of several short parts stands in the data."""

def hl7_segments(message: str, signs: tuple[str, str, str, str, str]) -> list[tuple[list[str], bool]] | str:
    """Return the segments of a message of HL7 v2 that are read: their fields from the name on ("" where one is left
    out), and whether a line breaks in them where text cannot be told from fields.

    OBX that follow each other with one type and the same fields behind their values are one: name, type, status and
    values; of TX, FT and ST one value without escapes, which has a line for each of them and each repetition. A str is
    the name of a segment behind a line feed of which cannot be told whether it is text of the OBX before it. ``signs``
    are those of fields, components, repetitions, escapes and subcomponents.
    """

def hl7_unescape(text: str, signs: tuple[str, str, str, str, str]) -> str:
    """Return a field of HL7 v2 without its escapes: signs, breaks and spaces put in, formatting left out."""

def html_texts(pages: Sequence[bytes]) -> list[str | None]:
    """Return the text of each page of HTML, which is in UTF-8; None of one in which too many elements stand in each
    other. The interpreter's lock is released meanwhile."""

def is_utf8(data: bytes) -> bool:
    """Return whether the data are UTF-8."""

def scan_rules(
    texts: _ArrowArray,
    labels: Sequence[str] | None = None,
    *,
    fields: Sequence[tuple[str, str]] | None = None,
    common: CommonWords | None = None,
    num_threads: int = 0,
    filtered: bool = True,
) -> ArrowBatch:
    """Return columns document, start, end, label, rule of the identifiers that have a form; every rule for None.

    ``fields`` are names of fields of a form with the labels of their values, beside the names that are known. What is
    one of the ``common`` words ends a name behind its title.
    ``filtered`` False is for tests: every rule is tried at every place, which is the definition of what is found.
    """

def refine_formless(
    texts: _ArrowArray,
    documents: NDArray[np.int64],
    starts: NDArray[np.int32],
    ends: NDArray[np.int32],
    are_names: NDArray[np.bool_],
    *,
    num_threads: int = 0,
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Return the end of each span of a category without a fixed form, in characters, and whether it is kept.

    Dropped are spans without a letter, and names with a number ("EVA 7/10"), of a place or a thing ("Roy Avenue", "a
    Roy catheter") or of a closed list. A name includes the initial behind it ("Anna T., seen today"). The spans of a
    document stand together, with ascending starts.

    Raises CorpusError for spans that do not fit their documents.
    """

def find_together(
    texts: _ArrowArray,
    records: tuple[Records, NDArray[np.uint32], CommonWords | None, bool],
    gazetteer: tuple[Gazetteer, CommonWords | None],
    *,
    num_threads: int = 0,
) -> tuple[ArrowBatch, ArrowBatch]:
    """Return the batches of `Records.find` and `Gazetteer.find`, in one pass over the texts."""

def unescape(text: str) -> tuple[str, list[int]]:
    """Return a text without the escapes of an export, and where each of its characters begins in the original."""

#: Digest of the code and the lists by which the core finds identifiers.
RULES: str

def list_rules() -> list[tuple[str, str, str]]:
    """Return name, label and what it finds of every rule."""

def synth_documents(
    *,
    seed: int,
    first_individual: int,
    num_individuals: int,
    languages: Sequence[str],
    words_per_document: int,
    documents_per_individual: float,
    vocabulary: int = 0,
    num_threads: int = 0,
) -> ArrowBatch:
    """Return generated documents in the columns of ``schema.DOCUMENTS`` (doc_id, individual_id, text, …, spans)."""

def synth_records(
    *, seed: int, first_individual: int, num_individuals: int, languages: Sequence[str], num_threads: int = 0
) -> ArrowBatch:
    """Return the record fields of the same individuals."""

def synth_public(
    *,
    seed: int,
    first_document: int,
    num_documents: int,
    languages: Sequence[str],
    words_per_document: int,
    num_threads: int = 0,
) -> ArrowBatch:
    """Return nobody's documents: columns doc_id, individual_id (the same) and text."""
