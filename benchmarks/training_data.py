"""Token stores to train on: generated notes whose lengths spread as those of real reports do.

Needs the Rust core and Polars; what it writes needs neither, so a GPU machine without them trains on a folder that was
prepared elsewhere.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.record_io import DATA

__all__ = ["SHAPES", "Shape", "prepare"]

#: Words of the reports of MTSamples at the 5th, 15th, …, 95th percentile: a tenth of the notes has each mean length.
WORDS = (126, 199, 259, 315, 385, 450, 545, 647, 796, 1121)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Data and model of one size.

    ``vocab_size`` None is the published vocabulary (BERT cased, GPT-2); where it is not at hand, one of 30,000 is
    trained. At size cpu the vocabulary is small so that the head has the share of the work that it has in BERT-base.
    """

    hidden_size: int
    num_layers: int
    num_heads: int
    vocab_size: int | None
    window_length: int
    batch_size: int
    num_notes: int
    shorten: int
    rounds: int


SHAPES = {
    "toy": Shape(
        hidden_size=32, num_layers=1, num_heads=2, vocab_size=600, window_length=64, batch_size=4,
        num_notes=20, shorten=6, rounds=1,
    ),
    "cpu": Shape(
        hidden_size=128, num_layers=2, num_heads=2, vocab_size=2000, window_length=256, batch_size=8,
        num_notes=40, shorten=1, rounds=3,
    ),
    "gpu": Shape(
        hidden_size=768, num_layers=12, num_heads=12, vocab_size=None, window_length=512, batch_size=32,
        num_notes=480, shorten=1, rounds=3,
    ),
}  # fmt: skip


def prepare(folder: Path, shape: Shape) -> None:
    """Write ``folder/bert`` and ``folder/gpt2``, token stores of the same notes; stores that are there are kept."""
    from reticent.engine.corpus import open_corpus
    from reticent.engine.index import build_index
    from reticent.engine.split import SplitConfig, split_individuals
    from reticent.engine.tokens import write_tokens

    missing = [kind for kind in ("bert", "gpt2") if not (folder / kind / "tokenizer.json").is_file()]
    if not missing:
        return
    with tempfile.TemporaryDirectory(prefix="reticent-bench-") as scratch:
        pq.write_table(_notes(shape), Path(scratch) / "notes.parquet")
        corpus = open_corpus(Path(scratch) / "notes.parquet")
        individuals = split_individuals(corpus, SplitConfig(heldout=0.1))
        index = build_index(corpus, individuals)
        for kind in missing:
            (folder / kind).mkdir(parents=True, exist_ok=True)
            write_tokens(folder / kind, corpus, individuals, _tokenizer(kind, shape.vocab_size), index=index)


def _notes(shape: Shape) -> pa.Table:
    from reticent import _rust

    tenth = shape.num_notes // len(WORDS)
    batches = [
        _rust.synth_documents(
            seed=0,
            first_individual=number * tenth,
            num_individuals=tenth,
            languages=["en"],
            words_per_document=max(20, words // shape.shorten),
            documents_per_individual=1.0,
            vocabulary=100_000,
        )
        for number, words in enumerate(WORDS)
    ]
    table = pa.Table.from_batches([pa.record_batch(batch) for batch in batches])
    return table.select(["doc_id", "individual_id", "text"])


def _tokenizer(kind: str, vocab_size: int | None) -> str:
    from reticent import _rust
    from reticent.engine.vocabularies import bytelevel_tokenizer_json, wordpiece_tokenizer_json
    from reticent.trainer.foundation import train_tokenizer

    published = DATA / "tokenizer_vocabs" / {"bert": "bert-base-cased", "gpt2": "gpt2"}[kind]
    if vocab_size is None and published.is_dir():
        if kind == "bert":
            return wordpiece_tokenizer_json(published / "vocab.txt")
        return bytelevel_tokenizer_json(published / "vocab.json", published / "merges.txt")
    public = pa.record_batch(
        _rust.synth_public(seed=0, first_document=0, num_documents=500, languages=["en"], words_per_document=200)
    )
    kinds = {"bert": "wordpiece", "gpt2": "bytelevel"}
    return train_tokenizer([public.column("text").to_pylist()], kinds[kind], vocab_size or 30_000)  # type: ignore[arg-type]
