"""A learned tagger: trained on marked documents of a hospital, in any language, it finds identifiers at the speed of
rules.

It is a linear-chain conditional random field [@lafferty2001] over hashed features of words, which the core learns and
runs (``rust_ext/src/detect/learned``). It sees words, their forms, their neighbours, their place in a line and in a
field, what the detectors beside it find there and, if asked, how the corpus writes them.

Every feature is had by at least ``k`` individuals of those who taught it, and a word that fewer have outside of marks
by ``2k - 1``, so a word of fewer and a name of k are read by their form alone. That is no differential privacy: a name
of more is read, and weights remember. A tagger holds no word: features are hashes under a key, which stops reading its
table, not asking the tagger. It is as private as the documents.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reticent import _rust
from reticent.core.artifact import write_private
from reticent.core.errors import ArtifactError, CorpusError, PolicyError
from reticent.engine.detect.detector import FOUND, spans_batch, texts_of
from reticent.engine.detect.labels import CATEGORIES, category
from reticent.engine.sources.columns import sorted_codes

if TYPE_CHECKING:
    from reticent._rust import CommonWords

#: Marked documents: spans of identifiers, and what a document counts beside one that people marked.
LESSONS: Final = pa.schema(
    [
        pa.field("individual_id", pa.string()),
        pa.field("text", pa.large_string()),
        pa.field("spans", pa.list_(pa.struct({"start": pa.int32(), "end": pa.int32(), "label": pa.string()}))),
        pa.field("weight", pa.float32()),
    ]
)
#: The key of taggers that are published.
PUBLIC_KEY: Final = b"reticent: public"
#: Label of a stretch of which nobody says whether it identifies.
UNKNOWN: Final = "?"
#: A category with fewer marks is not learned.
MIN_EXAMPLES: Final = 10
#: Format of a tagger's file, and what its features are; another one is learned again.
FORMAT: Final = "reticent.learned/2"
#: Offsets (int64), starts and ends (int32) and numbers (uint32) of spans, those of each document together.
_Spans: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
_WIDTH: Final = 32
_UNKNOWN_LANE: Final = 2**32 - 1
_FILE: Final = pa.schema(
    [
        pa.field("hash", pa.uint64(), nullable=False),
        pa.field("row", pa.uint8(), nullable=False),
        pa.field("weights", pa.binary(2 * _WIDTH), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggerConfig:
    """Hyperparameters of learning a tagger.

    Parameters
    ----------
    k : int
        Individuals that have each feature, at the least; 2k - 1 of a word that fewer than k have outside of marks.
    corpus : bool
        It sees how the corpus writes a word, too.
    affixes : bool
        It sees the ends of words, also of rare ones: for public text, whose words are no secrets.
    epochs, l2, rate, seed : passes over the documents, decay of the weights, length of the steps, and their order
    """

    k: int = 10
    corpus: bool = True
    affixes: bool = False
    epochs: int = 20
    l2: float = 1.0
    rate: float = 0.2
    seed: int = 0

    def __post_init__(self) -> None:
        if self.k < 1:
            raise PolicyError(f"k: expected 1 or more, got {self.k}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnConfig:
    """The training data and settings of a run's tagger: the options of ``[detect.learned]`` without ``model``.

    Parameters
    ----------
    marks : path, optional
        Documents that people marked: what annotators of ``detect sample`` gave back, or a folder or file of documents
        with marks in the format ``marks_format`` ("auto": a folder of BRAT, or by the suffix, with a column spans).
    teacher : str, optional
        A preset or a detector whose finds in ``documents`` drawn documents are taken for marks.
    teacher_options : detector -> its options, of the teacher alone
    certain : bool
        Values of records, and what rules know by its form, in drawn documents are taken for marks, too; words with a
        capital that nobody found are not learned there.
    weights : source -> what a document of it counts: marks 1, teacher 0.3, certain 0.1
    k : individuals that have each feature, by default as ``protect.k`` says
    corpus : whether the tagger sees how the corpus writes a word
    precision : float
        Of words that it finds in documents that it has not seen, as it is measured: the more is found, the less of it
        is right, and so much at least has to be.
    """

    marks: str | Path | None = None
    marks_format: str = "auto"
    teacher: str | None = None
    teacher_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    documents: int = 2000
    certain: bool = False
    weights: Mapping[str, float] = field(default_factory=dict)
    k: int | None = None
    corpus: bool = True
    precision: float = 0.95

    def __post_init__(self) -> None:
        if not (self.marks or self.teacher or self.certain):
            raise PolicyError("detector learned needs something to learn from: marks, teacher or certain")
        if unknown := set(self.weights) - set(WEIGHTS):
            raise PolicyError(f"detect.learned.weights: unknown {sorted(unknown)[0]!r}; expected {', '.join(WEIGHTS)}")
        if any(not 0 < weight <= 1 for weight in self.weights.values()):
            raise PolicyError("detect.learned.weights: expected numbers over 0, and 1 at the most")
        if self.documents < 2:
            raise PolicyError(f"detect.learned.documents: expected 2 or more, got {self.documents}")
        if not 0 < self.precision < 1:
            raise PolicyError(f"detect.learned.precision: expected a number between 0 and 1, got {self.precision}")

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> LearnConfig | None:
        """Return the training settings in the options of the detector ``learned``; None if the options name a trained
        model's file."""
        if options.get("model"):
            return None
        return cls(**{name: value for name, value in options.items() if name not in ("model", "key", "num_threads")})

    def weight(self, source: str) -> float:
        """Return the training weight of documents by the source of their labels: "marks" (annotators), "teacher"
        (another detector) or "certain" (records and rules)."""
        return self.weights.get(source, WEIGHTS[source])


#: What a document of each source counts.
WEIGHTS: Final = {"marks": 1.0, "teacher": 0.3, "certain": 0.1}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Header:
    """Metadata of a tagger: categories, settings, training data and numbers needed to read its tables."""

    format: str
    key_id: str
    categories: list[str]
    hints: list[str]
    config: dict[str, Any]
    individuals: int
    documents: int
    languages: list[str] = field(default_factory=list)
    #: Taken from the score of no identifier.
    lean: float = 0.0
    scale: float = 0.0
    num_lanes: int = 0
    transitions: list[int] = field(default_factory=list)
    digest: str = ""


def _check_header(header: _Header) -> None:
    """Raise `TypeError`, `ValueError` or `KeyError` if a value in a tagger file's header is missing, of a wrong type or
    inconsistent with another."""
    flags, names = (header.config["corpus"], header.config["affixes"]), (*header.categories, *header.hints)
    if not all(isinstance(flag, bool) for flag in flags) or not all(isinstance(name, str) for name in names):
        raise TypeError
    if not isinstance(header.lean, int | float):
        raise TypeError
    if len(set(header.categories)) != len(header.categories) or len(header.categories) < header.num_lanes - 1:
        raise ValueError


@dataclass(frozen=True, slots=True)
class Tagger:
    """A tagger (its Rust model and metadata); made by `learn_tagger` or `read_tagger`."""

    core: Any
    header: _Header

    @property
    def detectors(self) -> tuple[str, ...]:
        """Names of the detectors whose spans the tagger reads as features."""
        return tuple(dict.fromkeys(hint.partition(":")[0] for hint in self.header.hints))

    def with_bias(self, bias: float) -> Tagger:
        """Return a copy of the tagger with ``bias`` subtracted from the score of the class "no identifier", which
        raises recall."""
        return Tagger(self.core, replace(self.header, lean=bias))

    def find(
        self, texts: pa.Array, found: pa.Table, *, common: CommonWords | None = None, num_threads: int = 0
    ) -> pa.Table:
        """Return the spans that the tagger predicts in texts (schema `BATCH_SPANS`). ``found``, the spans of other
        detectors in these texts (schema `FOUND`), serves as features."""
        header = self.header
        hints = _hint_arrays(found, len(texts), header.hints)
        common = common if header.config["corpus"] else None
        batch = pa.record_batch(
            self.core.find(texts, hints, header.hints, lean=header.lean, common=common, num_threads=num_threads)
        )
        lanes = pa.array(["", *self.header.categories], pa.string()).take(batch.column("lane"))
        return spans_batch(batch.column("document"), batch.column("start"), batch.column("end"), lanes)

    def to_bytes(self) -> bytes:
        """Return the tagger as the bytes of its Parquet file; equal taggers give equal bytes, which contain no word of
        the training texts."""
        keys, slots, weights, scale, transitions = self.core.tables()
        rows = np.repeat(slots, slots)
        numbers = _row_numbers(slots)
        packed = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(2 * _WIDTH), len(rows), [None, pa.py_buffer(np.ascontiguousarray(weights, dtype="<i2"))]
        )
        columns = [pa.array(np.repeat(keys, slots)), pa.array(numbers.astype(np.uint8)), packed]
        header = asdict(self.header) | {
            "scale": scale,
            "num_lanes": self.core.num_lanes,
            "transitions": transitions.tolist(),
            "digest": _digest_arrays(keys, slots, weights, transitions),
        }
        table = pa.table(columns, schema=_FILE.with_metadata({"reticent": json.dumps(header, sort_keys=True)}))
        file = io.BytesIO()
        pq.write_table(table, file, compression="zstd", use_dictionary=False, store_schema=True)
        return file.getvalue()

    def write(self, path: Path | str) -> None:
        """Write the tagger to a file (mode 0600)."""
        write_private(Path(path), self.to_bytes())


def _row_numbers(counts: np.ndarray) -> np.ndarray:
    """Return the index of each row within its feature, int64, given the number of rows of each feature: counts 2 and 3
    give 0, 1, 0, 1, 2."""
    ends = np.cumsum(counts, dtype=np.int64)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)


def _digest_arrays(*tables: np.ndarray) -> str:
    """Return the SHA-256, hexadecimal, of the bytes of these arrays."""
    digest = hashlib.sha256()
    for table in tables:
        digest.update(np.ascontiguousarray(table).tobytes())
    return digest.hexdigest()


def key_id(key: bytes) -> str:
    """Return a short identifier of a key, from which the key cannot be derived."""
    return hashlib.blake2b(b"", key=key, person=b"learned", digest_size=8).hexdigest()


def read_key(path: Path | str | None) -> bytes:
    """Return the 16-byte key for hashing a tagger's features, read from a 32-byte file; a public constant if ``path``
    is None."""
    if path is None:
        return PUBLIC_KEY
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ArtifactError(f"{path}: not a readable key ({type(error).__name__})") from None
    if len(content) != 32:
        raise ArtifactError(f"{path}: expected a key of 32 bytes, got {len(content)}")
    return content[:16]


def read_tagger(path: Path | str, key: bytes = PUBLIC_KEY) -> Tagger:
    """Return the tagger stored in a file; ``key`` is the key under which its features were hashed.

    Raises
    ------
    ArtifactError
        The file is damaged or no tagger, of another version, or of another key.
    """
    try:
        table = pq.read_table(path)
        content = json.loads((table.schema.metadata or {})[b"reticent"])
    except (OSError, pa.ArrowException, KeyError, ValueError) as error:
        raise ArtifactError(f"{path}: not a readable tagger ({type(error).__name__}); learn it again") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ArtifactError(f"{path}: a tagger of another version than {FORMAT}; learn it again")
    try:
        header = _Header(**content)
        _check_header(header)
        transitions = np.array(header.transitions, dtype=np.int16)
    except (TypeError, ValueError, OverflowError, KeyError):
        raise ArtifactError(f"{path}: a damaged tagger, whose header cannot be read; learn it again") from None
    if header.key_id != key_id(key):
        raise ArtifactError(
            f"{path}: made under another key than the one that is given; a tagger of a run is read with the run's "
            "learned.key, a shipped one without a key"
        )
    if table.schema.remove_metadata() != _FILE:
        raise ArtifactError(f"{path}: a damaged tagger, whose columns are not those of one; learn it again")
    rows = table.column("hash").to_numpy()
    keys, counts = np.unique(rows, return_counts=True)
    slots = counts.astype(np.uint8)
    if not (
        np.array_equal(np.repeat(keys, counts), rows)
        and np.array_equal(_row_numbers(counts), table.column("row").to_numpy())
    ):
        raise ArtifactError(f"{path}: a damaged tagger, where rows of a feature are missing or moved; learn it again")
    packed = table.column("weights").combine_chunks()
    weights = np.frombuffer(packed.buffers()[1], dtype="<i2")[packed.offset * _WIDTH :][: len(rows) * _WIDTH]
    if _digest_arrays(keys, slots, weights, transitions) != header.digest:
        raise ArtifactError(f"{path}: a damaged tagger, which is not as it was written; learn it again")
    try:
        core = _rust.Tagger(
            key,
            keys,
            slots,
            np.ascontiguousarray(weights, dtype=np.int16),
            header.scale,
            transitions,
            num_lanes=header.num_lanes,
            affixes=header.config["affixes"],
        )
    except (ArtifactError, TypeError, OverflowError) as error:
        raise ArtifactError(f"{path}: a damaged tagger: {error}; learn it again") from None
    return Tagger(core, header)


def learn_tagger(
    documents: pa.Table,
    found: pa.Table,
    config: TaggerConfig,
    *,
    key: bytes = PUBLIC_KEY,
    common: CommonWords | None = None,
    detectors: Sequence[str] = (),
    languages: Sequence[str] = (),
) -> Tagger:
    """Return a sequence tagger trained on documents with annotated spans (schema `LESSONS`); equal documents give
    bit-identical taggers.

    Parameters
    ----------
    found : `FOUND`
        What the detectors beside the tagger found in these documents.
    common : CommonWords, optional
        How the corpus writes its words; needed with ``config.corpus``.
    detectors : names of detectors
        Those whose finds are read; of others, and of all where none is named, nothing is.

    Raises
    ------
    CorpusError
        Fewer than two individuals taught, nothing is marked, no category has `MIN_EXAMPLES` marks, or a span does not
        fit its text.

    Cost: 12 to 15 passes over the documents on one thread, some 4 microseconds a word each; 200 bytes a word.
    """
    individuals = sorted_codes(documents.column("individual_id"))[1].astype(np.uint32)
    num_individuals = len(np.unique(individuals))
    if num_individuals < 2:
        raise CorpusError(f"a tagger is taught by the documents of two individuals or more, got {num_individuals}")
    marks = _mark_arrays(documents.column("spans"))
    counts = marked_categories(documents)
    learned = [name for name in CATEGORIES if counts.get(name, 0) >= MIN_EXAMPLES]
    if not learned:
        least = ", ".join(f"{name} {num}" for name, num in counts.items()) or "nothing is marked"
        raise CorpusError(f"no category has {MIN_EXAMPLES} marks or more to learn from ({least})")
    lanes = {name: number for number, name in enumerate(learned, start=1)}
    numbers = np.array([_class_of_label(label, lanes) for label in marks["label"].to_pylist()], dtype=np.uint32)
    found = found.filter(pc.is_in(found.column("detector"), pa.array(list(detectors), pa.string())))
    own, place = _hint_names(found)
    hints = sorted({own[number] for number in np.unique(place)})
    core = _rust.Tagger.learn(
        key,
        documents.column("text").combine_chunks(),
        individuals,
        documents.column("weight").to_numpy().astype(np.float32),
        (marks["offsets"], marks["start"], marks["end"], numbers),
        _hint_arrays(found, documents.num_rows, hints),
        hints,
        common=common if config.corpus else None,
        k=config.k,
        epochs=config.epochs,
        seed=config.seed,
        affixes=config.affixes,
        l2=config.l2,
        rate=config.rate,
    )
    header = _Header(
        format=FORMAT,
        key_id=key_id(key),
        categories=learned,
        hints=hints,
        config=asdict(config),
        individuals=num_individuals,
        documents=documents.num_rows,
        languages=sorted(languages),
    )
    return Tagger(core, header)


def marked_categories(documents: pa.Table) -> dict[str, int]:
    """Return the number of annotated spans by category in training documents (schema `LESSONS`), without those labelled
    `UNKNOWN`; labels without a category count as OTHER."""
    labels = pc.struct_field(pc.list_flatten(documents.column("spans")), "label").value_counts()
    counts: dict[str, int] = {}
    for row in labels.to_pylist():
        if row["values"] != UNKNOWN:
            name = _known_category(row["values"])
            counts[name] = counts.get(name, 0) + row["counts"]
    return dict(sorted(counts.items()))


def _known_category(label: str) -> str:
    """Return the category of a label (NAME, DATE, …); "OTHER" if it is none of the known ones."""
    name = category(label)
    return name if name in CATEGORIES else "OTHER"


def _class_of_label(label: str, class_of_category: Mapping[str, int]) -> int:
    """Return the output class (integer) of a label. Labels of categories with too few examples share the class for
    unknown ones."""
    return _UNKNOWN_LANE if label == UNKNOWN else class_of_category.get(_known_category(label), _UNKNOWN_LANE)


def _mark_arrays(spans: pa.ChunkedArray) -> dict[str, Any]:
    """Return a list column of annotated spans as flat arrays for the Rust core: offsets by document, start, end,
    label."""
    spans = spans.combine_chunks()
    flat = pc.list_flatten(spans)
    lengths = pc.fill_null(pc.list_value_length(spans), 0).to_numpy()
    ends = {
        name: np.ascontiguousarray(pc.struct_field(flat, name).to_numpy(), dtype=np.int32) for name in ("start", "end")
    }
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return {"offsets": offsets, **ends, "label": pc.struct_field(flat, "label")}


def _hint_names(spans: pa.Table) -> tuple[list[str], np.ndarray]:
    """Return the distinct feature names "detector:category" of these spans, and for each span the index of its name,
    int64."""
    detector, label = (spans.column(name).combine_chunks().dictionary_encode() for name in ("detector", "label"))
    categories = [category(name) for name in label.dictionary.to_pylist()]
    names = [f"{name}:{own}" for name in detector.dictionary.to_pylist() for own in categories]
    return names, detector.indices.to_numpy().astype(np.int64) * len(categories) + label.indices.to_numpy()


def _hint_arrays(spans: pa.Table, num_documents: int, names: Sequence[str]) -> _Spans:
    """Return spans as arrays sorted by document: offsets by document, starts, ends, and indices into the feature
    ``names``. Spans whose feature is not listed are dropped."""
    known = {name: number for number, name in enumerate(names)}
    own, place = _hint_names(spans)
    numbers = np.array([known.get(name, -1) for name in own], dtype=np.int64)[place]
    document = spans.column("document").to_numpy()
    order = np.argsort(document, kind="stable")
    order = order[numbers[order] >= 0] if len(order) else order
    offsets = np.searchsorted(document[order], np.arange(num_documents + 1)).astype(np.int64)
    start, end = (spans.column(name).to_numpy()[order].astype(np.int32) for name in ("start", "end"))
    return offsets, start, end, numbers[order].astype(np.uint32)


class LearnedDetector:
    """Detects identifiers with a learned tagger.

    Parameters
    ----------
    model : path, optional
        The file of a tagger. Without it a run learns one, as the other options say (`LearnConfig`).
    key : path, optional
        File of the key it was made under; none for a tagger that is published.

    Raises
    ------
    ArtifactError
        The file is damaged, of another version, or of another key.
    """

    name = "learned"
    columns: tuple[str, ...] = ()
    exact_offsets = True

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        key: str | Path | None = None,
        marks: str | Path | None = None,
        marks_format: str = "auto",
        teacher: str | None = None,
        teacher_options: Mapping[str, Mapping[str, Any]] | None = None,
        documents: int = 2000,
        certain: bool = False,
        weights: Mapping[str, float] | None = None,
        k: int | None = None,
        corpus: bool = True,
        precision: float = 0.95,
        num_threads: int = 0,
    ):
        if model is None:
            raise PolicyError(
                "detector learned: a run learns its tagger in the stage detect; give detect.learned.model"
            )
        self.num_threads = num_threads
        self.tagger = read_tagger(model, read_key(key))
        #: Detectors whose finds `detect_beside` reads.
        self.reads = self.tagger.detectors
        #: Languages that it was taught in.
        self.languages = tuple(self.tagger.header.languages)
        if self.tagger.header.config["corpus"]:
            #: None until they are learned.
            self.common_words: CommonWords | None = None

    def detect(self, batch: pa.RecordBatch) -> pa.Table:
        """Return the spans predicted in a batch (schema `BATCH_SPANS`), without other detectors' spans as features."""
        return self.detect_beside(batch, FOUND.empty_table())

    def detect_beside(self, batch: pa.RecordBatch, found: pa.Table) -> pa.Table:
        """Return the spans predicted in a batch (schema `BATCH_SPANS`), with other detectors' spans ``found`` (schema
        `FOUND`) as features."""
        common = getattr(self, "common_words", None)
        return self.tagger.find(texts_of(batch), found, common=common, num_threads=self.num_threads)
