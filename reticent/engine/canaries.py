"""Canaries: made-up secrets written into members' documents, so that a model's memory of them can be measured.

Four arms, as in definitions.md#extraction-and-canaries. ``protected``: a code that the detector found. ``missed``: a
code that no detector found and that k individuals share, so that nothing protects it: the positive control.
``context``: a protected code with ordinary words after it, which are targets; can the code be inferred from them?
``ngram``: a sequence of common words that no individual uses together. Each canary is written with probability 1/2. The
others are the control, and a one-run audit guesses which were written (Steinke et al. 2023).

A model trained on canaries is for measurement only. Everything is a function of the seed and as secret as the
documents, because an adversary who knows which canaries were written can defeat the audit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reticent import _rust
from reticent.core.errors import ArtifactError, CorpusError, PolicyError
from reticent.engine.config import Arm, CanaryConfig
from reticent.engine.corpus import Columns, Corpus, open_corpus
from reticent.engine.detect.spans import SpanReader
from reticent.engine.index import IndexConfig, build_index
from reticent.engine.randomness import generator
from reticent.engine.schema import DOCUMENTS, MEMBERS, SPANS, with_version
from reticent.engine.sources.columns import SOURCE_COLUMN
from reticent.engine.sources.parquet import document_writer
from reticent.engine.split import Individuals
from reticent.engine.store import TokenStore

ARMS: Final = get_args(Arm)
#: Arms whose code the engine marks as a detector would have.
MARKED: Final = ("protected", "context")
DETECTOR, LABEL = "canary", "ID"
#: Words of the secret of ``ngram``, and of the text after the code of ``context``.
NUM_WORDS: Final = 6
#: Common words that are drawn from, and the fewest there may be: 20^6 rows are more than any number of references.
MOST_WORDS, FEWEST_WORDS = 500, 20

_CANARIES: Final = with_version(
    pa.schema(
        [
            pa.field("arm", pa.string(), nullable=False),
            pa.field("included", pa.bool_(), nullable=False),
            pa.field("prefix", pa.string(), nullable=False),
            pa.field("secret", pa.string(), nullable=False),
            pa.field("suffix", pa.string(), nullable=False),
            pa.field("individual_ids", pa.list_(pa.string()), nullable=False),
            pa.field("references", pa.list_(pa.string()), nullable=False),
        ]
    ),
    "canaries",
)
#: Where canaries stand: row of the document, characters of the canary and of its secret.
_PLACES: Final = with_version(
    pa.schema([(name, pa.int64()) for name in ("document", "canary", "start", "end", "secret_start", "secret_end")]),
    "canary-places",
)


@dataclass(frozen=True, slots=True)
class Planted:
    """The canaries of a run, and where their copies are; see :func:`open_canaries`.

    ``table`` has a row a canary: arm, included, prefix, secret, suffix, individual_ids, references. The canary is the
    three texts one after the other; a reference stands in the place of the secret. ``places`` has a row a copy.
    """

    table: pa.Table
    places: pa.Table

    @property
    def arms(self) -> np.ndarray:
        """Experimental arm of each canary ("protected", "missed", "context" or "ngram"), string (num_canaries,)."""
        return np.array(self.table.column("arm").to_pylist())

    @property
    def included(self) -> np.ndarray:
        """Whether each canary was inserted into documents (its coin flip), bool (num_canaries,)."""
        return self.table.column("included").to_numpy(zero_copy_only=False)

    def without(self, documents: np.ndarray) -> Planted:
        """Return a copy without the canaries in ``documents`` (row numbers, int64). A canary that was inserted only
        there is dropped altogether."""
        document, canary = (self.places.column(name).to_numpy() for name in ("document", "canary"))
        stays = ~np.isin(document, documents)
        kept = np.ones(self.table.num_rows, dtype=bool)
        kept[np.setdiff1d(canary, canary[stays])] = False
        places = self.places.filter(pa.array(stays))
        number = pa.array((np.cumsum(kept) - 1)[canary[stays]])
        places = places.set_column(places.schema.get_field_index("canary"), _PLACES.field("canary"), number)
        return Planted(self.table.filter(pa.array(kept)).combine_chunks(), places.combine_chunks())


def common_words(corpus: Corpus, individuals: Individuals, config: CanaryConfig) -> list[str]:
    """Return lower-case words that at least k members each use, the most widely used first: text that single-word
    protection does not mask."""

    index = build_index(corpus, individuals, splits=(MEMBERS,), config=IndexConfig(max_n=1))
    words = pa.table(pa.record_batch(index.words(0, index.num_words)))
    plain = pc.match_substring_regex(words.column("word").cast(pa.string()), r"^\p{Ll}{3,12}$")
    words = words.filter(pc.and_(plain, pc.greater_equal(words.column("support"), config.k)))
    words = words.sort_by([("support", "descending"), ("word", "ascending")]).slice(0, MOST_WORDS)
    if words.num_rows < FEWEST_WORDS:
        raise CorpusError(
            f"canaries: only {words.num_rows} plain words are used by {config.k} members; {FEWEST_WORDS} are needed"
        )
    return words.column("word").to_pylist()


def draw_canaries(individuals: Individuals, words: Sequence[str], config: CanaryConfig) -> pa.Table:
    """Return a table of random canaries, one row each: arm of the experiment, coin flip for inclusion, parts of the
    text, and the members into whose documents it is to be inserted. Phrases are made of ``words``.

    Raises
    ------
    CorpusError
        There are fewer members (households) than canaries: two of one individual would not be independent.
    """
    codes = np.flatnonzero(individuals.mask(MEMBERS))
    random = generator(config.chosen_seed, 41)
    codes = random.permutation(codes)
    codes = codes[np.sort(np.unique(individuals.units[codes], return_index=True)[1])]  # one of a household
    if len(codes) < config.num_individuals:
        raise CorpusError(
            f"canaries: {config.num} of each arm need {config.num_individuals} members of different households, "
            f"there are {len(codes)}; plant fewer"
        )
    arms = np.repeat(np.array(config.arms), config.num)
    included = random.random(len(arms)) < 0.5
    carriers = np.where(arms == "missed", config.k, 1)
    bounds = np.concatenate([[0], np.cumsum(carriers)])
    names = individuals.table.column("individual_id").combine_chunks().cast(pa.string())
    owners = pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), names.take(pa.array(codes[: bounds[-1]])))
    texts = _draw_texts(random, arms, words, config)
    columns = {"arm": pa.array(arms), "included": pa.array(included), **texts, "individual_ids": owners}
    return pa.table([columns[name] for name in _CANARIES.names], schema=_CANARIES)


def _draw_texts(
    random: np.random.Generator, arms: np.ndarray, words: Sequence[str], config: CanaryConfig
) -> dict[str, pa.Array]:
    """Return the random texts of canaries as columns prefix, secret, suffix and references (alternative secrets), with
    one entry for each of ``arms``. No two secrets are equal; phrases are made of ``words``."""
    num, width = len(arms), config.num_references + 1
    codes = _draw_codes(random, num * width).reshape(num, width)
    rows = _draw_phrases(random, words, num * width).reshape(num, width)
    numbers = 100_000 + random.choice(900_000, num, replace=False)
    secrets = np.where((arms == "ngram")[:, None], rows, codes)
    prefixes, suffixes = [], []
    for arm, number, row in zip(arms, numbers, rows[:, 0], strict=True):
        by_number = f"\nRecord {number}: " + ("" if arm == "ngram" else "the code is ")
        prefixes.append("\nThe code " if arm == "context" else by_number)
        suffixes.append(f" says {row}." if arm == "context" else ".")
    bounds = pa.array(np.arange(num + 1) * config.num_references, pa.int32())
    return {
        "prefix": pa.array(prefixes),
        "secret": pa.array(secrets[:, 0], pa.string()),
        "suffix": pa.array(suffixes),
        "references": pa.ListArray.from_arrays(bounds, pa.array(secrets[:, 1:].ravel(), pa.string())),
    }


def _draw_codes(random: np.random.Generator, num: int) -> np.ndarray:
    """Return ``num`` distinct random codes such as 123-45-6789."""
    drawn = random.choice(10**9, num, replace=False)
    return np.array([f"{n // 10**6:03d}-{n // 10**4 % 100:02d}-{n % 10**4:04d}" for n in drawn.tolist()], dtype=object)


def _draw_phrases(random: np.random.Generator, words: Sequence[str], num: int) -> np.ndarray:
    """Return ``num`` distinct random phrases, each of `NUM_WORDS` words drawn from ``words``."""
    base, rows = len(words), np.empty(0, dtype=np.int64)
    while len(rows) < num:
        drawn = random.integers(0, base**NUM_WORDS, num)
        rows = np.concatenate([rows, drawn])
        rows = rows[np.sort(np.unique(rows, return_index=True)[1])]
    digits = rows[:num, None] // base ** np.arange(NUM_WORDS) % base
    chosen = np.array(words, dtype=object)[digits]
    return np.array([" ".join(row) for row in chosen], dtype=object)


def plant(
    corpus: Corpus,
    individuals: Individuals,
    canaries: pa.Table,
    folder: Path,
    config: CanaryConfig,
    *,
    more_columns: Sequence[str] = (),
) -> dict[str, int]:
    """Write a copy of the corpus to ``folder``, with every included canary appended to random documents of its
    individuals, and a table of the canaries' positions. Return the numbers of inserted copies and of changed documents.

    A canary stands at the end of its individual's documents, each copy in one drawn at random, so that the spans that a
    corpus brings stay where they are. Returns counts. ``more_columns`` of the source are taken along, as text.

    Cost: one pass over the documents; ``folder/documents`` takes their size.
    """
    clash = set(more_columns) & set(DOCUMENTS.names)
    if clash:
        raise PolicyError(f"canaries: the source's column {min(clash)} would stand beside ours of that name; rename it")
    addition, places = _texts_to_append(corpus, individuals, canaries, config)
    lengths = np.zeros(len(addition), dtype=np.int64)
    texts = pa.array(["", *(text for text in addition.values())], pa.large_string())
    where = np.array(sorted(addition), dtype=np.int64)
    order = {document: number for number, document in enumerate(addition, start=1)}
    slots = np.array([order[document] for document in where.tolist()], dtype=np.int64)
    (folder / "documents").mkdir()
    first = 0
    writer: pq.ParquetWriter | None = None
    try:
        for batch in corpus.batches(columns=(*DOCUMENTS.names, *(f"{SOURCE_COLUMN}{name}" for name in more_columns))):
            here = slice(*np.searchsorted(where, [first, first + batch.num_rows]))
            take = np.zeros(batch.num_rows, dtype=np.int64)
            take[where[here] - first] = slots[here]
            number = batch.schema.get_field_index("text")
            text = batch.column(number)
            lengths[slots[here] - 1] = pc.utf8_length(text).to_numpy()[where[here] - first]
            whole = pc.binary_join_element_wise(text, texts.take(pa.array(take)), pa.scalar("", pa.large_string()))
            batch = batch.set_column(number, DOCUMENTS.field("text"), whole)
            batch = batch.rename_columns([name.removeprefix(SOURCE_COLUMN) for name in batch.schema.names])
            batch = batch.replace_schema_metadata(DOCUMENTS.metadata)
            if writer is None:
                writer = document_writer(folder / "documents" / "part-00000.parquet", batch.schema)
            writer.write_batch(batch)
            first += batch.num_rows
    finally:
        if writer is not None:
            writer.close()
    shift = lengths[[order[document] - 1 for document in places.column("document").to_pylist()]]
    for name in ("start", "end", "secret_start", "secret_end"):
        moved = pa.array(places.column(name).to_numpy() + shift)
        places = places.set_column(places.schema.get_field_index(name), _PLACES.field(name), moved)
    pq.write_table(places.sort_by([("document", "ascending"), ("start", "ascending")]), folder / "places.parquet")
    return {"copies": places.num_rows, "documents": len(addition)}


def _texts_to_append(
    corpus: Corpus, individuals: Individuals, canaries: pa.Table, config: CanaryConfig
) -> tuple[dict[int, str], pa.Table]:
    """Return the text to append to each document (row number -> text), and a table of the canaries' character ranges in
    these texts."""
    owner_of = individuals.individual_codes(corpus.scan().column("individual_id").combine_chunks())
    by_owner = np.argsort(owner_of, kind="stable")
    bounds = np.searchsorted(owner_of[by_owner], np.arange(individuals.table.num_rows + 1))
    random = generator(config.chosen_seed, 42)
    added: dict[int, str] = {}
    rows: list[tuple[int, ...]] = []
    for number, canary in enumerate(canaries.to_pylist()):  # some hundred
        # As many numbers are drawn for one that is left out: no coin moves another canary's place.
        drawn = random.random((len(canary["individual_ids"]), config.repetitions))
        if not canary["included"]:
            continue
        text = canary["prefix"] + canary["secret"] + canary["suffix"]
        owners = individuals.individual_codes(pa.array(canary["individual_ids"], pa.string()))
        own = bounds[owners + 1] - bounds[owners]
        documents = by_owner[bounds[owners][:, None] + np.floor(drawn * own[:, None]).astype(np.int64)]
        for document in documents.ravel().tolist():
            start = len(added.get(document, ""))
            secret = start + len(canary["prefix"])
            rows.append((document, number, start, start + len(text), secret, secret + len(canary["secret"])))
            added[document] = added.get(document, "") + text
    columns = np.array(rows, dtype=np.int64).reshape(-1, len(_PLACES.names)).T
    return added, pa.table([pa.array(column) for column in columns], schema=_PLACES)


def mark_spans(file: Path, planted: Planted, doc_ids: pa.Array, left_out: np.ndarray) -> int:
    """Rewrite the file of detected spans so that of each canary only a secret that is to be protected is a span; return
    how many spans of secrets were added. Quarantined documents (row numbers ``left_out``) have no spans and are not
    counted in the file's document numbers.

    What detectors found inside a canary goes, and a span that reaches into one ends before it; the codes of
    the groups ``protected`` and ``context`` become spans of the detector "canary".

    Parameters
    ----------
    file : ``spans.parquet``
    doc_ids : shape (num_documents,)
        Of the planted documents.
    left_out : int array
        Documents in quarantine: spans number the others.
    """
    stays = np.ones(len(doc_ids), dtype=bool)
    stays[left_out] = False
    number_of = np.cumsum(stays) - 1
    places = planted.places.filter(pa.array(stays[planted.places.column("document").to_numpy()]))
    tails = np.full(int(stays.sum()), np.iinfo(np.int32).max, dtype=np.int64)
    np.minimum.at(tails, number_of[places.column("document").to_numpy()], places.column("start").to_numpy())
    own = places.filter(pa.array(np.isin(planted.arms[places.column("canary").to_numpy()], MARKED)))
    added = pa.table(
        {
            "document": pa.array(number_of[own.column("document").to_numpy()]),
            "doc_id": doc_ids.take(own.column("document").combine_chunks()),
            "start": own.column("secret_start").cast(pa.int32()),
            "end": own.column("secret_end").cast(pa.int32()),
            "label": pa.repeat(LABEL, own.num_rows),
            "detector": pa.repeat(DETECTOR, own.num_rows),
            "score": pa.repeat(pa.scalar(1.0, pa.float32()), own.num_rows),
        },
        schema=SPANS,
    )
    before = file.rename(file.with_name("found.parquet"))
    reader = SpanReader(before)
    with pq.ParquetWriter(file, SPANS, compression="zstd") as writer:
        for first in range(0, len(tails), 1 << 16):
            spans = reader.table(first, 1 << 16)
            tail = tails[spans.column("document").to_numpy()]
            start, end = (spans.column(name).to_numpy() for name in ("start", "end"))
            spans = spans.set_column(
                SPANS.get_field_index("end"), SPANS.field("end"), pa.array(np.minimum(end, tail).astype(np.int32))
            ).filter(pa.array(start < tail))
            numbers = added.column("document")
            here = pc.and_(pc.greater_equal(numbers, first), pc.less(numbers, first + (1 << 16)))
            both = pa.concat_tables([spans, added.filter(here)])
            order = [(name, "ascending") for name in ("document", "start", "end")]
            writer.write_table(both.sort_by(order))
    before.unlink()
    return added.num_rows


def write_canaries(canaries: pa.Table, folder: Path) -> None:
    """Write the table of canaries (texts, whether each is inserted, and the individuals into whose documents) to
    ``canaries.parquet``."""
    pq.write_table(canaries, folder / "canaries.parquet", compression="zstd")


def open_canaries(folder: Path | str) -> Planted:
    """Return the canaries and their positions as stored by :func:`write_canaries` and :func:`plant`; `ArtifactError` if
    they cannot be read."""
    tables = []
    for name, schema in (("canaries", _CANARIES), ("places", _PLACES)):
        path = Path(folder) / f"{name}.parquet"
        try:
            table = pq.read_table(path)
        except (OSError, pa.ArrowException) as error:
            raise ArtifactError(f"{path}: not readable ({type(error).__name__})") from None
        if not table.schema.equals(schema):
            raise ArtifactError(f"{path}: not a table of this version")
        tables.append(table.combine_chunks())
    return Planted(*tables)


def without_canaries(store: TokenStore, planted: Planted, corpus: Corpus, tokenizer_json: str) -> TokenStore:
    """Return a copy of a token store in which each document is cut off before its first canary; the same store if there
    are no canaries.

    Parameters
    ----------
    store : of documents of ``corpus``
    corpus : of `open_planted`
    tokenizer_json : of the store; a canary begins with a line break, which has a token of its own or none

    Cost: one pass over the documents that have canaries.
    """
    rows = planted.places.column("document").to_numpy()
    ends = np.full(corpus.num_documents, np.iinfo(np.int32).max, dtype=np.int64)
    np.minimum.at(ends, rows, planted.places.column("start").to_numpy())
    wanted = np.zeros(corpus.num_documents, dtype=bool)
    wanted[rows] = True
    kept, done = np.ones(store.num_tokens, dtype=bool), np.flatnonzero(wanted)
    line, no_words = pa.array(["\n"], pa.large_string()), np.zeros(0, dtype=np.uint8)
    breaks = _rust.TokenEncoder(tokenizer_json).encode(line, _rust.segment(line), no_words, no_words).input_ids
    number_of = {doc_id: number for number, doc_id in enumerate(store.doc_ids.to_pylist())}
    for batch in corpus.batches(columns=("doc_id", "text"), wanted=wanted):
        own, done = done[: batch.num_rows], done[batch.num_rows :]
        texts = batch.column("text").cast(pa.large_string())
        words = _rust.segment(texts)
        bounds = np.arange(len(own) + 1, dtype=np.int64)
        starts, last = ends[own].astype(np.int32), pc.utf8_length(texts).to_numpy().astype(np.int32)
        in_tail = np.flatnonzero(_rust.mark_spans(texts, words, bounds, starts, last).mask)
        first = words.doc_offsets[:-1]
        first_in_tail = in_tail[np.searchsorted(in_tail, first)] - first
        for doc_id, word in zip(batch.column("doc_id").to_pylist(), first_in_tail.tolist(), strict=True):
            if (number := number_of.get(doc_id)) is not None:
                tokens = slice(*store.doc_offsets[number : number + 2])
                end = tokens.start + int(np.argmax(store.word_ids[tokens] >= word))
                kept[end - int(store.word_ids[end - 1] < 0 and store.input_ids[end - 1] in breaks) : tokens.stop] = (
                    False
                )
    if kept.all():
        return store
    ids, words_of, flags, starts_of = (
        column[kept] for column in (store.input_ids, store.word_ids, store.flags, store.ngram_starts)
    )
    offsets = np.concatenate([[0], np.cumsum(kept)])[store.doc_offsets]
    return TokenStore(ids, words_of, flags, starts_of, offsets, store.individual, store.doc_ids, store.path)


def open_planted(folder: Path | str) -> Corpus:
    """Return the corpus with inserted canaries that :func:`plant` wrote; every column has its standard name."""

    path = Path(folder) / "documents"
    there = set(pq.read_schema(path / "part-00000.parquet").names) & set(DOCUMENTS.names)
    # Their ids have the types that the documents' were read as.
    return open_corpus(str(path), columns=Columns(**{name: name for name in there}), ids="exact")
