"""The records of an invented hospital: documents with gold spans, record fields, and public text.

Everything about an individual is a function of the seed and the individual's number (``rust_ext/src/synth``). So a
corpus can be generated in chunks of any size, and a larger corpus begins with a smaller one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reticent import _rust
from reticent.core.errors import PolicyError
from reticent.engine.randomness import generator
from reticent.engine.schema import DOCUMENTS
from reticent.engine.sources.parquet import document_writer

INDIVIDUALS_PER_BATCH = 2048
DOCUMENTS_PER_PART = 1 << 18
#: Diagnoses and wards that nothing else of an individual goes with, by names that both languages have; the first half
#: of the diagnoses is sensitive. Language -> what says one in a note.
DIAGNOSES, WARDS = ("syphilis", "lupus", "psoriasis", "vitiligo"), ("A1", "A2", "B1", "B2", "C1", "C2")
SAID = {"en": "Diagnosis: {}.", "fr": "Diagnostic : {}."}
_STREAM_DIAGNOSES = 83


@dataclass(frozen=True, slots=True, kw_only=True)
class SynthConfig:
    """Settings of the generator of synthetic hospital records.

    Parameters
    ----------
    words_per_document : int
        Mean length; lengths spread from 0.7 to 1.3 times this.
    documents_per_individual : float, at least 1
        Mean number of notes; 1 plus a geometric number.
    vocabulary : int
        Invented words that notes draw from by Zipf's law, about one word in 17; 0: none. With 350,000 of them, 20,000
        individuals and 735 words a document, words are spread as in the records of a real hospital: some 330,000
        distinct ones, of which 57 % belong to one individual and make up 0.9 % of what is written.
    public_documents : int
        Documents of public text for a stand-in foundation model: the same language, no individual's identity.
    diagnoses : bool
        Also a diagnosis of each individual at the end of each note, one that stands in the record alone, and a ward:
        all three independent of everything else. ``diagnoses.parquet`` has them by individual, with the date of birth
        and the city, and ``diagnoses.toml`` the list. What there is without them stays as it is.
    languages : tuple of "en", "fr"
        Households take turns.
    """

    num_individuals: int
    seed: int = 0
    languages: tuple[str, ...] = ("en", "fr")
    words_per_document: int = 150
    documents_per_individual: float = 2.5
    vocabulary: int = 0
    public_documents: int = 0
    diagnoses: bool = False
    num_threads: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.num_individuals <= 1 << 26:
            raise PolicyError(f"num_individuals: expected 1 to {1 << 26}, got {self.num_individuals}")
        if not 0 <= self.seed < 1 << 63:
            raise PolicyError(f"seed: expected 0 to {(1 << 63) - 1}, got {self.seed}")
        if self.words_per_document < 20:
            raise PolicyError(f"words_per_document: expected at least 20, got {self.words_per_document}")
        if self.documents_per_individual < 1:
            raise PolicyError(f"documents_per_individual: expected at least 1, got {self.documents_per_individual}")
        if not 0 <= self.vocabulary <= 1 << 32:
            raise PolicyError(f"vocabulary: expected 0 to {1 << 32}, got {self.vocabulary}")
        if not self.languages or set(self.languages) - {"en", "fr"}:
            raise PolicyError("languages: expected en, fr or both")


def synthesize(
    folder: Path | str, config: SynthConfig, *, progress: Callable[[int], None] | None = None
) -> dict[str, Any]:
    """Write a synthetic hospital (``documents/``, ``records.parquet``, ``public/``) to ``folder``; return counts.

    Equal configurations give byte-equal files. Memory is bounded by a batch of individuals.
    """
    folder = Path(folder)
    drawn = _draw_diagnoses(config)
    counts: dict[str, Any] = {"individuals": config.num_individuals, "documents": 0, "num_bytes": 0}

    def documents() -> Iterator[pa.RecordBatch]:
        """Yield the notes in record batches, and count them."""
        for first, batch in _generate_batches(config, "synth_documents"):
            if config.diagnoses:
                batch = _append_diagnoses(config, drawn[:, 0], batch)
            counts["documents"] += batch.num_rows
            counts["num_bytes"] += pc.sum(pc.binary_length(batch.column("text"))).as_py()
            yield batch
            if progress:
                progress(min(first + INDIVIDUALS_PER_BATCH, config.num_individuals))

    _write_parts(folder / "documents", documents())
    records = pa.Table.from_batches(list(iter_records(config)))
    pq.write_table(records, folder / "records.parquet", compression="zstd")
    if config.diagnoses:
        _write_diagnoses(folder, drawn, records)
    if config.public_documents:
        _write_parts(folder / "public", _generate_public(config))
        counts["public_documents"] = config.public_documents
    return counts


def iter_records(config: SynthConfig) -> Iterator[pa.RecordBatch]:
    """Yield the structured record fields (name, birth date …) of the synthetic individuals, one row each."""
    for _, batch in _generate_batches(config, "synth_records"):
        yield batch


def _generate_batches(config: SynthConfig, function: str) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the first individual's number and a record batch for each range of individuals, from this function of the
    Rust core."""
    more: dict[str, Any] = {}
    if function == "synth_documents":
        more = {
            "words_per_document": config.words_per_document,
            "documents_per_individual": config.documents_per_individual,
            "vocabulary": config.vocabulary,
        }
    for first in range(0, config.num_individuals, INDIVIDUALS_PER_BATCH):
        batch = getattr(_rust, function)(
            seed=config.seed,
            first_individual=first,
            num_individuals=min(INDIVIDUALS_PER_BATCH, config.num_individuals - first),
            languages=list(config.languages),
            num_threads=config.num_threads,
            **more,
        )
        yield first, pa.record_batch(batch)


def _draw_diagnoses(config: SynthConfig) -> np.ndarray:
    """Draw two different diagnoses and a ward for each individual. Return their indices, int64 (N, 3): the diagnosis
    that is in the notes and the record, the one that is only in the record, the ward."""
    num, draws = len(DIAGNOSES), generator(config.seed, _STREAM_DIAGNOSES).random((config.num_individuals, 3))
    written, more, ward = (draws * (num, num - 1, len(WARDS))).astype(np.int64).T
    return np.stack([written, (written + 1 + more) % num, ward], axis=1)


def _append_diagnoses(config: SynthConfig, diagnoses: np.ndarray, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch of notes with a sentence at the end of each text that states the individual's diagnosis."""
    owners = pc.cast(pc.utf8_slice_codeunits(batch.column("individual_id"), 1), pa.int64()).to_numpy()
    households = [int(name[1:]) for name in batch.column("household_id").to_pylist()]
    texts = [
        f"{text}{SAID[config.languages[household % len(config.languages)]].format(DIAGNOSES[diagnoses[owner]])}\n"
        for text, owner, household in zip(batch.column("text").to_pylist(), owners.tolist(), households, strict=True)
    ]
    at = batch.schema.get_field_index("text")
    return batch.set_column(at, batch.schema.field(at), pa.array(texts, batch.schema.field(at).type))


def _write_diagnoses(folder: Path, drawn: np.ndarray, records: pa.Table) -> None:
    """Write the individuals' diagnoses and wards to ``diagnoses.parquet``, and the list of all diagnoses to
    ``diagnoses.toml``."""
    said = [f"{DIAGNOSES[written]}; {DIAGNOSES[alone]}" for written, alone, _ in drawn]
    table = records.select(["individual_id", "birth_date", "city"])
    table = table.append_column("ward", [[WARDS[ward] for _, _, ward in drawn]]).append_column("diagnoses", [said])
    pq.write_table(table, folder / "diagnoses.parquet", compression="zstd")
    named = (
        f'[[diagnosis]]\nname = "{name}"\nsensitive = {"true" if 2 * number < len(DIAGNOSES) else "false"}\n'
        for number, name in enumerate(DIAGNOSES)
    )
    (folder / "diagnoses.toml").write_text("\n".join(named), encoding="utf-8")


def _generate_public(config: SynthConfig) -> Iterator[pa.RecordBatch]:
    """Yield record batches of public documents about no individual."""
    for first in range(0, config.public_documents, INDIVIDUALS_PER_BATCH):
        yield pa.record_batch(
            _rust.synth_public(
                seed=config.seed,
                first_document=first,
                num_documents=min(INDIVIDUALS_PER_BATCH, config.public_documents - first),
                languages=list(config.languages),
                words_per_document=config.words_per_document,
                num_threads=config.num_threads,
            )
        )


def _write_parts(folder: Path, batches: Iterator[pa.RecordBatch]) -> None:
    """Write record batches to numbered Parquet files of about `DOCUMENTS_PER_PART` rows."""
    folder.mkdir(parents=True)
    writer: pq.ParquetWriter | None = None
    num_parts = num_rows = 0
    for batch in batches:
        table = pa.Table.from_batches([batch]).replace_schema_metadata(DOCUMENTS.metadata)
        if writer is None:
            writer = document_writer(folder / f"part-{num_parts:05d}.parquet", table.schema)
            num_parts, num_rows = num_parts + 1, 0
        writer.write_table(table)
        num_rows += batch.num_rows
        if num_rows >= DOCUMENTS_PER_PART:
            writer.close()
            writer = None
    if writer is not None:
        writer.close()
