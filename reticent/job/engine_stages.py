"""The stages of a job that are more than a call: finding identifiers, a stand-in foundation model, the statistics.

Everything else in a job is one call into one floor and stands in :mod:`reticent.job.run`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from reticent.core.errors import CorpusError
from reticent.engine.schema import HELDOUT, MEMBERS, REFERENCE

if TYPE_CHECKING:
    from reticent.engine.detect import Detector
    from reticent.job.config import FoundationSection, ModelSection
    from reticent.job.data_stages import Preparation
    from reticent.job.run_folder import RunFolder

__all__ = ["build_foundation", "corpus_section", "find_identifiers"]


def find_identifiers(run: Preparation, detectors: Sequence[Detector], folder: Path, counts: dict[str, Any]) -> None:
    """Write the spans of all detectors, with ``detect.propagate`` also wherever else in the corpus they stand."""
    from reticent.engine.detect import detect_spans, quarantined_rows

    settings = run.job.detect
    for detector in detectors:
        if detector.name == "records":
            _check_records(run, detector, counts)
    with run.progress.task("detect", run.documents.num_documents, "documents") as advance:
        counts.update(detect_spans(run.documents, detectors, folder, on_error=settings.on_error, progress=advance))
    counts.update(run.whole_corpus.reading.skipped())
    rows = quarantined_rows(folder)
    if len(rows):
        run.progress.warn(
            f"{len(rows):,} of {run.documents.num_documents:,} documents are left out of everything that follows: a "
            f"detector failed on them; spans/quarantine.parquet lists them"
        )
    if settings.propagate:
        from reticent.engine.detect.propagate import propagate

        spans, united = folder / "spans.parquet", folder / "united.parquet"
        spans.rename(united)
        corpus = run.documents.without(rows) if len(rows) else run.documents
        with run.progress.task("propagate", corpus.num_documents, "documents") as advance:
            spread = propagate(
                corpus,
                united,
                spans,
                scopes=run.job.protect.scopes,
                num_threads=run.job.num_threads,
                progress=advance,
            )
        counts.update(spans=spread["spans"], propagated=spread["propagated"])
        united.unlink()
    if run.job.canaries is not None:
        from reticent.engine.canaries import mark_spans, open_canaries

        ids = run.documents.scan().column("doc_id").combine_chunks()
        counts["canaries"] = mark_spans(folder / "spans.parquet", open_canaries(run.folder / "canaries"), ids, rows)


def _check_records(run: Preparation, detector: Any, counts: dict[str, Any]) -> None:
    """Count individuals without a record and fields without a value; `CorpusError` where nobody has a record, as
    with ids of another system, or somebody has it under another spelling of the id.
    """
    if detector.num_skipped:
        counts["empty_fields"] = detector.num_skipped
    ids = run.documents.scan().column("individual_id").unique()
    path = run.job.detect.records.get("table")
    detector.check_ids(ids, f"{path} column individual_id")
    missing = detector.num_without(ids)
    if missing == len(ids):
        raise CorpusError(
            f"{path}: column individual_id holds none of the {len(ids):,} individuals of the documents "
            f"(their column {run.job.corpus.individual_id})"
        )
    if missing:
        counts["without_record"] = missing
        run.progress.warn(
            f"{missing:,} of {len(ids):,} individuals have no record in {path}; their names are left to the other "
            "detectors"
        )


def build_foundation(run: Preparation, model: ModelSection, folder: Path, counts: dict[str, Any]) -> None:
    """Train a tokenizer (or take the given vocabulary) and a small model on text that is nobody's.

    Writes ``folder/model``, a plain ``save_pretrained`` folder.
    """
    from reticent.engine.corpus import open_corpus
    from reticent.engine.store import open_tokens
    from reticent.engine.tokens import write_tokens
    from reticent.trainer.config import TrainConfig
    from reticent.trainer.distributed import World
    from reticent.trainer.foundation import new_model, train_tokenizer
    from reticent.trainer.loop import train
    from reticent.trainer.recipes import get_recipe

    settings = model.foundation
    assert settings is not None
    reference = settings.text == "reference"
    corpus = run.corpus if reference else open_corpus(settings.text, ids="exact")  # nobody's: not counted
    individuals = run.individuals if reference else None
    splits = (REFERENCE,) if reference else None
    if settings.vocabulary is not None:
        tokenizer = _given_tokenizer(settings)
    else:
        tokenizer = train_tokenizer(
            _texts(corpus, individuals, splits),
            kind="wordpiece" if settings.kind == "bert" else "bytelevel",
            vocab_size=settings.vocab_size,
        )

    tokens, trained = folder / "tokens", folder / "trained"
    tokens.mkdir()
    trained.mkdir()
    with run.progress.task(f"tokens for {model.name}", None, "documents") as advance:
        written = write_tokens(tokens, corpus, individuals, tokenizer, splits=splits, progress=advance)
    network = new_model(
        settings.kind,
        tokenizer,
        hidden_size=settings.hidden_size,
        num_layers=settings.num_layers,
        num_heads=settings.num_heads,
        max_length=run.job.train.window_length,
        seed=run.job.seed,
    )
    config = TrainConfig(
        num_epochs=settings.num_epochs,
        checkpoint_epochs=(settings.num_epochs,),
        learning_rate=settings.learning_rate,
        warmup_steps=settings.warmup_steps,
        mask_share=settings.mask_share,
        batch_size=settings.batch_size,
        window_length=run.job.train.window_length,
        seed=run.job.seed,
    )
    with run.progress.task(f"pre-train {model.name}", None, "steps") as advance:
        result = train(
            network,
            open_tokens(tokens),
            get_recipe(model.objective),
            config,
            trained,
            tokenizer=tokenizer,
            progress=advance,
            world=World(),
        )
    result.checkpoints[settings.num_epochs].rename(folder / "model")
    for leftover in (tokens, trained):
        for path in sorted(leftover.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        leftover.rmdir()
    counts.update(
        documents=written["documents"],
        tokens=written["tokens"],
        steps=result.num_steps,
        parameters=sum(p.numel() for p in network.parameters()),
        final_loss=float(result.losses[-1]),
    )


def corpus_section(run: RunFolder) -> dict[str, Any]:
    """Statistics of the members' documents and their identifiers, of a run that has its index: counts and
    distributions only (the seed's Figs. 5, 6 and 14), margin of support, retention and unicity.
    """
    from reticent.audit.stats.statistics import clopper_pearson
    from reticent.core.artifact import require_kind
    from reticent.engine.detect.spans import SpanReader
    from reticent.engine.index import open_index
    from reticent.engine.stats import corpus_statistics, detected_spans

    for name in ("split", "spans", "index"):
        require_kind(run.folder / name, name)
    with run.progress.task("statistics", run.corpus.num_documents, "documents") as advance:
        statistics = corpus_statistics(
            run.corpus,
            run.individuals,
            open_index(run.folder / "index"),
            policy=run.policy,
            spans=SpanReader(run.folder / "spans"),
            seed=run.job.seed,
            progress=advance,
            num_threads=run.job.num_threads,
        )
    for row in statistics["unicity"]:
        found, n = row.pop("num_singled_out"), row.pop("num_units")
        low, high = clopper_pearson(found, n) if n else (None, None)
        about = {"level": 0.95, "n": n, "unit": statistics["unit"], "method": "Clopper-Pearson"}
        row["share"] = {"value": found / n if n else None, "low": low, "high": high, **about}
    individual = run.individuals.individual_codes(run.corpus.scan().column("individual_id").combine_chunks())
    statistics["detected"] = detected_spans(
        run.folder / "spans" / "spans.parquet", individual, small_cell=run.job.audit.small_cell
    )
    if run.job.dedup.mode != "off":
        statistics["copies"] = require_kind(run.folder / "dedup", "dedup").counts
    statistics["reading"] = run.whole_corpus.reading.counts()
    statistics["num_individuals"] = {s: int(np.sum(run.individuals.mask(s))) for s in (MEMBERS, HELDOUT, REFERENCE)}
    return statistics


def _texts(corpus: Any, individuals: Any, splits: tuple[str, ...] | None) -> Iterator[list[str]]:
    for batch in corpus.batches(columns=("doc_id", "individual_id", "text")):
        texts = batch.column("text")
        if splits is not None:
            texts = texts.filter(individuals.mask(*splits)[individuals.individual_codes(batch.column("individual_id"))])
        yield texts.to_pylist()


def _given_tokenizer(settings: FoundationSection) -> str:
    from reticent.engine.vocabularies import bytelevel_tokenizer_json, wordpiece_tokenizer_json

    path = Path(str(settings.vocabulary))
    if path.is_file():
        from reticent.trainer.tokenizer_json import read_tokenizer_json

        return read_tokenizer_json(path)
    if settings.kind == "bert":
        return wordpiece_tokenizer_json(path / "vocab.txt", lowercase="uncased" in path.name)
    return bytelevel_tokenizer_json(path / "vocab.json", path / "merges.txt")
