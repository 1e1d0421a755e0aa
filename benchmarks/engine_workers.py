"""Processes of the engine's benchmark: our commands, the peers, and their preparation.

A worker gets a folder of documents and prints one JSON object: the wall and processor seconds of its timed block, the
resident memory before the block and at its peak, and the answer that is compared (how many n-grams have support k or
more, or the token ids of a sample). The peers that count integers read ``numbered.npz``, made by :func:`number`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers import digest
from benchmarks.record_io import DATA

#: Documents the slow tokenising peers see; their tokens a second are compared, not their seconds.
PEER_DOCUMENTS = 2000
#: Documents whose tokens are compared.
SAMPLE = 200
EVERYBODY = ("members", "heldout", "reference")
#: Settings that give a generated corpus the shape of the published one.
WORDS, DOCUMENTS_EACH, VOCABULARY = 735, 2.5, 350_000


class Clock:
    """Wall and processor seconds of a block, and the resident memory before it and at its peak."""

    def __enter__(self) -> Clock:
        _forget_peak()
        self._before = resident("VmRSS")
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.spent = {
            "seconds": time.perf_counter() - self._wall,
            "cpu_seconds": time.process_time() - self._cpu,
            "before_bytes": self._before,
            "peak_bytes": resident("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }


def _forget_peak() -> None:
    with contextlib.suppress(OSError):  # else the peak is that of the whole process
        Path("/proc/self/clear_refs").write_text("5")


def resident(field: str, process: str = "self") -> int:
    """Return the bytes of a field of a process's status; 0 where there is none."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(field)), 0)


# ------------------------------------------------------------------ corpora


def make_corpus(folder: Path, documents: int) -> dict[str, Any]:
    """Write a corpus of the published shape: 2.5 documents an individual, 700 words a document."""
    from reticent.engine.synthetic import SynthConfig, synthesize

    config = SynthConfig(
        num_individuals=max(int(documents / DOCUMENTS_EACH), 2),
        words_per_document=WORDS,
        documents_per_individual=DOCUMENTS_EACH,
        vocabulary=VOCABULARY,
    )
    return synthesize(folder, config)


def synth_notes(
    individuals: range, words: int, *, seed: int = 0, languages: Sequence[str] = ("en",), **more: Any
) -> Any:
    """Return generated notes of individuals by number, one of each where nothing else is said: a table."""
    import pyarrow as pa

    from reticent import _rust

    options = {"documents_per_individual": 1.0, "vocabulary": 100_000, **more}
    made = _rust.synth_documents(
        seed=seed, first_individual=individuals.start, num_individuals=len(individuals), languages=list(languages),
        words_per_document=words, **options,
    )  # fmt: skip
    return pa.table(pa.record_batch(made)).select(["doc_id", "individual_id", "text"])


def take_documents(corpus: Path, out: Path, documents: int) -> dict[str, Any]:
    """Write the first documents of a corpus, with the whole of their text and whose they are."""
    import pyarrow as pa

    from reticent.engine.corpus import open_corpus
    from reticent.engine.sources.parquet import document_writer

    out.mkdir()
    writer, left = None, documents
    for batch in open_corpus(str(corpus)).batches(columns=("doc_id", "individual_id", "text")):
        table = pa.Table.from_batches([batch.slice(0, left)])
        writer = writer or document_writer(out / "part-00000.parquet", table.schema)
        writer.write_table(table)
        left -= table.num_rows
        if left == 0:
            break
    if writer:
        writer.close()
    return {"documents": documents - left}


def write_text(corpus: Path, path: Path) -> dict[str, Any]:
    """Write the documents as plain text for ``wc``, a line feed after each."""
    from reticent.engine.corpus import open_corpus

    documents = num_bytes = 0
    with path.open("wb") as file:
        for batch in open_corpus(str(corpus)).batches(columns=("text",)):
            for text in batch.column("text"):
                num_bytes += file.write(text.as_buffer())
                file.write(b"\n")
            documents += batch.num_rows
    return {"documents": documents, "num_bytes": num_bytes}


def measure_shape(corpus: Path) -> dict[str, Any]:
    """Return what the words of a corpus look like, in numbers."""
    index = _build(*_split(corpus), n=1)
    support, occurrences = _columns(index.words(), "support", "occurrences")
    return {
        "documents": index.num_documents,
        "individuals": index.num_units,
        "words": int(occurrences.sum()),
        "words_per_document": float(occurrences.sum() / index.num_documents),
        "distinct_words": len(support),
        "types_of_one_individual": float(np.mean(support == 1)),
        "their_occurrences": float(occurrences[support == 1].sum() / occurrences.sum()),
    }


def number(corpus: Path, out: Path) -> dict[str, Any]:
    """Write the words of a corpus as integers, with their individuals and documents, for peers that count integers."""
    ids, units, docs = _numbered(corpus)
    np.savez(out, ids=ids, units=units, docs=docs)
    return {"words": len(ids)}


def _numbered(corpus: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Words cut by us (no peer has the rule), numbered by Polars' dictionary encoding."""
    import polars as pl
    import pyarrow as pa

    from reticent import _rust
    from reticent.engine.corpus import open_corpus

    words, owners, lengths = [], [], []
    for batch in open_corpus(str(corpus)).batches(columns=("individual_id", "text")):
        cut = _rust.segment(batch.column("text"))
        words.append(pl.Series(pa.record_batch(cut.surfaces(batch.column("text"))).column(0)).cast(pl.Categorical))
        owners.append(pl.Series(batch.column("individual_id")).cast(pl.Categorical))
        lengths.append(np.diff(cut.doc_offsets))
    per_document = np.concatenate(lengths)
    ids, people = (pl.concat(parts).to_physical().to_numpy().astype(np.uint32) for parts in (words, owners))
    documents = np.arange(len(per_document), dtype=np.uint32)
    return ids, np.repeat(people, per_document), np.repeat(documents, per_document)


# ------------------------------------------------------------------ counting


def _split(corpus: Path) -> tuple[Any, Any]:
    from reticent.engine.corpus import open_corpus
    from reticent.engine.split import SplitConfig, split_individuals

    documents = open_corpus(str(corpus))
    return documents, split_individuals(documents, SplitConfig())


def _build(documents: Any, individuals: Any, *, n: int, min_support: int = 2, memory_limit: int | None = None) -> Any:
    from reticent.engine.index import IndexConfig, build_index

    config = IndexConfig(max_n=n, min_support=min_support, memory_limit=memory_limit)
    return build_index(documents, individuals, splits=EVERYBODY, config=config)


def _import_engine() -> None:
    """Import what a run needs, so that it is not part of its time."""
    import reticent._rust
    import reticent.engine.corpus
    import reticent.engine.index
    import reticent.engine.split  # noqa: F401


def _columns(table: Any, *names: str) -> tuple[np.ndarray, ...]:
    import pyarrow as pa

    batch = pa.record_batch(table)
    return tuple(batch.column(name).to_numpy() for name in names)


def count_reticent(
    corpus: Path, n: int, k: int, min_support: int = 2, memory_limit: int | None = None
) -> dict[str, Any]:
    _import_engine()
    with Clock() as split:
        documents, individuals = _split(corpus)
    with Clock() as clock:
        index = _build(documents, individuals, n=n, min_support=min_support, memory_limit=memory_limit)
        tables = [index.words(), *(index.level(level) for level in range(2, n + 1))]
    import pyarrow.compute as pc  # what the index does without, it is measured without

    supports = [_columns(table, "support")[0] for table in tables]
    kept = {each: [int(np.count_nonzero(support >= each)) for support in supports] for each in {k, 10}}
    texts = (batch.column("text") for batch in documents.batches(columns=("text",)))
    about = {
        "memory_limit": memory_limit,
        "split_seconds": split.spent["seconds"],
        "documents": documents.num_documents,
        "text_bytes": sum(pc.sum(pc.binary_length(text)).as_py() for text in texts),
    }
    return {**clock.spent, **about, "kept": kept}


def count_reticent_alone(corpus: Path, n: int, k: int) -> dict[str, Any]:
    """Counting alone, as the peers': words are cut and numbered before the clock starts."""
    import pyarrow as pa

    from reticent import _rust

    _import_engine()
    documents, individuals = _split(corpus)
    codes = individuals.individual_codes(documents.scan().column("individual_id"))
    units = individuals.units[codes]
    builder = _rust.IndexBuilder(max_n=n)

    def add(first: int, batch: pa.RecordBatch) -> None:
        builder.add(batch.column("text"), units[first : first + batch.num_rows])

    documents.for_each_batch(add, columns=("text",), num_threads=_rust.resolve_threads(0))
    with Clock() as clock:
        index = builder.finish(min_support=2)
        tables = [index.words(), *(index.level(level) for level in range(2, n + 1))]
    supports = [_columns(table, "support")[0] for table in tables]
    return {**clock.spent, "kept": {each: [int(np.count_nonzero(s >= each)) for s in supports] for each in {k, 10}}}


def kept_in_files(folder: Path, n: int, k: int) -> dict[str, Any]:
    """Read how many n-grams an index that the command line wrote keeps."""
    import pyarrow.parquet as pq

    files = [folder / "words.parquet", *(folder / f"ngrams_{level}.parquet" for level in range(2, n + 1))]
    supports = [pq.read_table(file, columns=["support"]).column(0).to_numpy() for file in files]
    return {"kept": {k: [int(np.count_nonzero(support >= k)) for support in supports]}}


def _frames(corpus: Path, numbered: Path, end_to_end: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if end_to_end:
        return _numbered(corpus)
    with np.load(numbered) as arrays:
        return arrays["ids"], arrays["units"], arrays["docs"]


def _keys(ids: np.ndarray, units: np.ndarray, docs: np.ndarray, level: int) -> tuple[np.ndarray, np.ndarray]:
    """Every n-gram inside a document as one integer, and whose it is; exact while 64 bits hold the product."""
    size = int(ids.max(initial=0)) + 1
    assert size**level < 1 << 64, f"{size} words: {level}-grams do not fit into 64 bits"
    length = max(len(ids) - level + 1, 0)
    key = ids[:length].astype(np.uint64)
    for ahead in range(1, level):
        key = key * np.uint64(size) + ids[ahead : ahead + length]
    same = docs[:length] == docs[level - 1 :]
    return (key, units[:length]) if level == 1 else (key[same], units[:length][same])


def count_polars(corpus: Path, numbered: Path, n: int, k: int, *, minmax: bool, end_to_end: bool) -> dict[str, Any]:
    import polars as pl

    _import_engine()
    arrays = None if end_to_end else _frames(corpus, numbered, False)
    kept = []
    with Clock() as clock:
        arrays = arrays or _frames(corpus, numbered, True)
        for level in range(1, n + 1):
            key, unit = _keys(*arrays, level)
            query = pl.DataFrame({"key": key, "unit": unit}).lazy().group_by("key")
            if minmax:
                counted = query.agg(low=pl.col("unit").min(), high=pl.col("unit").max())
                enough = pl.col("low") != pl.col("high")
            else:
                counted = query.agg(support=pl.col("unit").n_unique())
                enough = pl.col("support") >= k
            kept.append(int(counted.select(enough.sum()).collect(engine="streaming").item()))
    return {**clock.spent, "kept": {k: kept}}


def count_duckdb(corpus: Path, numbered: Path, n: int, k: int, *, minmax: bool, end_to_end: bool) -> dict[str, Any]:
    import duckdb
    import polars  # noqa: F401  (numbers the words, end to end)
    import pyarrow as pa

    _import_engine()
    enough = "min(unit) <> max(unit)" if minmax else f"count(DISTINCT unit) >= {k}"
    arrays = None if end_to_end else _frames(corpus, numbered, False)
    kept = []
    with Clock() as clock:
        arrays = arrays or _frames(corpus, numbered, True)
        database = duckdb.connect()
        for level in range(1, n + 1):
            key, unit = _keys(*arrays, level)
            database.register("grams", pa.table({"key": key, "unit": unit}))
            query = f"SELECT count(*) FROM (SELECT key FROM grams GROUP BY key HAVING {enough})"
            kept.append(database.sql(query).fetchall()[0][0])
    return {**clock.spent, "kept": {k: kept}}


def count_python(corpus: Path, numbered: Path, n: int, k: int) -> dict[str, Any]:
    arrays, kept = _frames(corpus, numbered, False), []
    pairs = [[column.tolist() for column in _keys(*arrays, level)] for level in range(1, n + 1)]
    with Clock() as clock:
        for keys, people in pairs:
            first: dict[int, int] = {}
            shared: set[int] = set()
            for key, person in zip(keys, people, strict=True):
                if first.setdefault(key, person) != person:
                    shared.add(key)
            kept.append(len(shared))
    return {**clock.spent, "kept": {k: kept}}


def count_sklearn(corpus: Path, numbered: Path, n: int, k: int) -> dict[str, Any]:
    from sklearn.feature_extraction.text import CountVectorizer

    ids, units, docs = _frames(corpus, numbered, False)
    names = [f"w{number}" for number in range(int(ids.max(initial=0)) + 1)]
    bounds = np.flatnonzero(np.diff(docs, prepend=-1, append=-1)) if len(docs) else np.zeros(1, np.int64)
    people: dict[int, list[list[str]]] = {}
    for start, end in itertools.pairwise(bounds):
        people.setdefault(int(units[start]), []).append([names[number] for number in ids[start:end].tolist()])

    def analyzer(documents: list[list[str]]) -> list[str]:
        grams = [word for words in documents for word in words]
        for level in range(2, n + 1):
            grams += [" ".join(words[i : i + level]) for words in documents for i in range(len(words) - level + 1)]
        return grams

    with Clock() as clock:
        vectorizer = CountVectorizer(analyzer=analyzer, binary=True)
        support = np.asarray(vectorizer.fit_transform(people.values()).sum(axis=0)).reshape(-1)
        common = vectorizer.get_feature_names_out()[support >= k]
    levels = np.array([name.count(" ") + 1 for name in common])
    return {**clock.spent, "kept": {k: [int(np.count_nonzero(levels == level)) for level in range(1, n + 1)]}}


def count_networkx(corpus: Path, numbered: Path, n: int, k: int) -> dict[str, Any]:
    import networkx

    ids, units, _ = _frames(corpus, numbered, False)
    words, people = ids.tolist(), [f"p{unit}" for unit in units.tolist()]
    with Clock() as clock:
        graph = networkx.Graph()
        graph.add_edges_from(zip(people, words, strict=True))
        kept = sum(degree >= k for _, degree in graph.degree(set(words)))
    return {**clock.spent, "kept": {k: [kept]}}


# ------------------------------------------------------------------ tokens


def tokenizer_json(name: str) -> str:
    """Return the tokenizer of a published vocabulary under ``RETICENT_DATA``."""
    from reticent.engine.vocabularies import bytelevel_tokenizer_json, wordpiece_tokenizer_json

    folder = DATA / "tokenizer_vocabs" / name
    if (folder / "vocab.txt").exists():
        return wordpiece_tokenizer_json(folder / "vocab.txt")
    return bytelevel_tokenizer_json(folder / "vocab.json", folder / "merges.txt")


def digests(ids: np.ndarray, doc_offsets: np.ndarray) -> list[str]:
    """Return the digests of the first documents' ids, which all tokenisers must have."""
    return [digest(ids[start:end].tolist()) for start, end in itertools.pairwise(doc_offsets[: SAMPLE + 1].tolist())]


def tokens_reticent(corpus: Path, name: str) -> dict[str, Any]:
    """The n = 1 index from Parquet; words, flags, ids and word index of texts in memory, as the peers' texts are."""
    from reticent import _rust

    made = tokenizer_json(name)
    _import_engine()
    documents, individuals = _split(corpus)
    batches = [batch.column("text") for batch in documents.batches(columns=("text",))]
    encoder, tokens = _rust.TokenEncoder(made), 0
    sample: list[str] = []
    with Clock() as clock:
        index = _build(documents, individuals, n=1)
        index_seconds = time.perf_counter() - clock._wall
        for texts in batches:
            words = _rust.segment(texts)
            flags, starts = index.protect(texts, words, k=2, n=1)
            encoded = encoder.encode(texts, words, flags, starts)
            tokens += int(encoded.doc_offsets[-1])
            sample = sample or digests(encoded.input_ids, encoded.doc_offsets)
    parts = {"index_seconds": index_seconds, "tokens": tokens, "path": encoder.path}
    return {**clock.spent, **parts, "sample": sample}


def tokens_written(corpus: Path, name: str) -> dict[str, Any]:
    """The same from Parquet to the files of a token store."""
    from reticent.engine.protect import Policy
    from reticent.engine.store import open_tokens
    from reticent.engine.tokens import write_tokens

    made = tokenizer_json(name)
    _import_engine()
    with tempfile.TemporaryDirectory(prefix="reticent-bench-") as folder:
        with Clock() as clock:
            documents, individuals = _split(corpus)
            index = _build(documents, individuals, n=1)
            index_seconds = time.perf_counter() - clock._wall
            counts = write_tokens(folder, documents, individuals, made, index=index, policy=Policy(k=2, n=1))
        store = open_tokens(folder)
        sample = digests(store.input_ids, store.doc_offsets)
    parts = {"index_seconds": index_seconds, "tokens": counts["tokens"], "path": counts["pretokens"]}
    return {**clock.spent, **parts, "sample": sample}


def tokens_peer(corpus: Path, method: str, name: str) -> dict[str, Any]:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    from reticent.engine.corpus import open_corpus

    batches = open_corpus(str(corpus)).batches(columns=("text",), batch_rows=PEER_DOCUMENTS)
    texts = next(batches).column("text").to_pylist()[:PEER_DOCUMENTS]
    library = Tokenizer.from_str(tokenizer_json(name))
    library.encode_special_tokens = True
    if method == "transformers":
        fast = PreTrainedTokenizerFast(tokenizer_object=library)
        with Clock() as clock:
            found = fast(texts, add_special_tokens=False, return_offsets_mapping=True)
            tokens = sum(len(found[number].word_ids) for number in range(len(texts)))
        sample = [digest(row) for row in found["input_ids"][:SAMPLE]]
    else:
        with Clock() as clock:
            encodings = library.encode_batch_fast(texts, add_special_tokens=False)
        tokens = sum(len(encoding.ids) for encoding in encodings)
        sample = [digest(encoding.ids) for encoding in encodings[:SAMPLE]]
    text_bytes = sum(len(text.encode()) for text in texts)
    return {**clock.spent, "tokens": tokens, "text_bytes": text_bytes, "documents": len(texts), "sample": sample}


# ------------------------------------------------------------------ by name

PEERS: dict[str, Callable[..., dict[str, Any]]] = {
    "polars min/max": lambda *a, end_to_end=False: count_polars(*a, minmax=True, end_to_end=end_to_end),
    "polars n_unique": lambda *a, end_to_end=False: count_polars(*a, minmax=False, end_to_end=end_to_end),
    "duckdb min/max": lambda *a, end_to_end=False: count_duckdb(*a, minmax=True, end_to_end=end_to_end),
    "duckdb count(distinct)": lambda *a, end_to_end=False: count_duckdb(*a, minmax=False, end_to_end=end_to_end),
    "python dict": count_python,
    "scikit-learn CountVectorizer": count_sklearn,
    "networkx": count_networkx,
}


def main() -> None:
    """Run the worker whose name and arguments come as one JSON object."""
    request = json.loads(sys.argv[1])
    path = {key: Path(value) for key, value in request.pop("paths").items()}
    task = request.pop("task")
    if task == "peer":
        method: Callable[..., Any] = PEERS[request.pop("method")]
        n, k = request.pop("n"), request.pop("k")
        answer = method(path["corpus"], path["numbered"], n, k, **request)
    else:
        tasks: dict[str, Callable[..., Any]] = {
            "make_corpus": make_corpus, "take_documents": take_documents, "write_text": write_text, "number": number,
            "shape": measure_shape, "reticent": count_reticent, "reticent_alone": count_reticent_alone,
            "kept_in_files": kept_in_files,
            "tokens_reticent": tokens_reticent, "tokens_written": tokens_written, "tokens_peer": tokens_peer,
        }  # fmt: skip
        answer = tasks[task](*path.values(), **request)
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
