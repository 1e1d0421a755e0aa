"""From public text, or that of reference individuals, to a small pre-trained model that serves as base model.

Nothing protects the reference individuals: their words stand in the vocabulary and are targets. Such a model is for
experiments; `reticent dossier export` holds back what was trained from it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from reticent.core.artifact import fingerprint
from reticent.engine.corpus import Corpus, open_corpus
from reticent.engine.schema import REFERENCE
from reticent.engine.split import Individuals
from reticent.engine.store import open_tokens
from reticent.engine.tokens import write_tokens
from reticent.engine.vocabularies import bytelevel_tokenizer_json, wordpiece_tokenizer_json
from reticent.job.artefact import Artefact, Step
from reticent.job.config import ModelSection
from reticent.job.run import Run
from reticent.trainer.base_files import read_tokenizer_json
from reticent.trainer.config import FoundationConfig, TrainConfig
from reticent.trainer.distributed import World
from reticent.trainer.recipes import get_recipe


def foundation_steps(run: Run) -> Iterator[Step]:
    """Yield a step for each model section with ``foundation``: it pre-trains a small base model (artefact
    ``foundation/MODEL``)."""
    for model in run.job.model:
        if model.foundation is not None:
            yield Step.of(
                _foundation_artefact(run, model, model.foundation),
                partial(_build_foundation, run, model, model.foundation),
            )


def _foundation_artefact(run: Run, model: ModelSection, settings: FoundationConfig) -> Artefact:
    """Return the artefact of a pre-trained base model, with its settings and the fingerprints of its text."""
    inputs = (
        {**run.corpus_input(), "split": run.fingerprints.of("split")}
        if settings.text == "reference"
        else {"text": open_corpus(settings.text, ids="exact").fingerprint()}
    )
    if settings.vocabulary is not None:
        inputs["vocabulary"] = fingerprint(settings.vocabulary)
    config = {
        **settings.model_dump(exclude={"text"}),
        "vocabulary": None,  # by its content, among the inputs
        "objective": model.objective,
        "seed": run.job.seed,
        "window_length": run.job.train.window_length,
    }
    if (bf16 := run.job.training(model).bf16) != "auto":
        config["bf16"] = bf16
    if _is_uncased(settings):
        config["lowercase"] = True
    return Artefact(f"foundation/{model.name}", "foundation", config, inputs)


def _build_foundation(
    run: Run, model: ModelSection, settings: FoundationConfig, folder: Path, counts: dict[str, Any]
) -> None:
    """Train a tokenizer (or take the given vocabulary) and a small model, without protection.

    Writes ``folder/model``, a plain ``save_pretrained`` folder.
    """
    from reticent.trainer.foundation import new_model
    from reticent.trainer.loop import train

    reference = settings.text == "reference"
    corpus = run.corpus if reference else open_corpus(settings.text, ids="exact")  # of no individual: not counted
    individuals = run.individuals if reference else None
    splits = (REFERENCE,) if reference else None
    if reference:
        run.progress.warn(
            f"{model.name} is pre-trained on the documents of the reference individuals, without protection: it is for "
            "experiments and must not leave; for a model that may, give a base, or foundation.text of no individual"
        )
    tokenizer = _make_tokenizer(settings, corpus, individuals, splits)
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
    with run.progress.task(f"pre-train {model.name}", None, "steps") as advance:
        result = train(
            network,
            open_tokens(tokens),
            get_recipe(model.objective),
            _pretraining_config(run, model, settings),
            trained,
            tokenizer=tokenizer,
            progress=advance,
            world=World(),
        )
    result.checkpoints[settings.num_epochs].rename(folder / "model")
    for leftover in (tokens, trained):
        shutil.rmtree(leftover)
    counts.update(
        documents=written["documents"],
        tokens=written["tokens"],
        steps=result.num_steps,
        parameters=sum(p.numel() for p in network.parameters()),
        final_loss=float(result.losses[-1]),
    )


def _make_tokenizer(
    settings: FoundationConfig, corpus: Corpus, individuals: Individuals | None, splits: tuple[str, ...] | None
) -> str:
    """Return the tokenizer as JSON text, from the given vocabulary or trained on the text."""
    from reticent.trainer.foundation import train_tokenizer

    if settings.vocabulary is not None:
        return _read_given_tokenizer(settings)
    return train_tokenizer(
        _iter_texts(corpus, individuals, splits),
        kind="wordpiece" if settings.kind == "bert" else "bytelevel",
        vocab_size=settings.vocab_size,
    )


def _pretraining_config(run: Run, model: ModelSection, settings: FoundationConfig) -> TrainConfig:
    """Return the training settings for pre-training a base model."""
    own = run.job.training(model)
    return TrainConfig(
        num_epochs=settings.num_epochs,
        checkpoint_epochs=(settings.num_epochs,),
        learning_rate=settings.learning_rate,
        warmup_steps=settings.warmup_steps,
        mask_share=settings.mask_share,
        batch_size=settings.batch_size,
        window_length=run.job.train.window_length,
        end_of_text=False,  # what is fine-tuned from it learns where texts end
        seed=run.job.seed,
        device=own.device,
        bf16=own.bf16,
    )


def _iter_texts(corpus: Any, individuals: Any, splits: tuple[str, ...] | None) -> Iterator[list[str]]:
    """Yield the texts of each batch of documents, of individuals in these splits only (None: all)."""
    wanted = None if splits is None else individuals.mask(*splits)
    for batch in corpus.batches(columns=("doc_id", "individual_id", "text")):
        texts = batch.column("text")
        if wanted is not None:
            texts = texts.filter(wanted[individuals.individual_codes(batch.column("individual_id"))])
        yield texts.to_pylist()


def _is_uncased(settings: FoundationConfig) -> bool:
    """Return whether the vocabulary in the settings is lower-case (uncased), judged by the name of its folder."""
    path = Path(settings.vocabulary or "")
    return settings.kind == "bert" and "uncased" in path.name and not path.is_file()


def _read_given_tokenizer(settings: FoundationConfig) -> str:
    """Return, as JSON text, the tokenizer that the settings name: a file, or a folder with its vocabulary."""
    path = Path(str(settings.vocabulary))
    if path.is_file():
        return read_tokenizer_json(path)
    if settings.kind == "bert":
        return wordpiece_tokenizer_json(path / "vocab.txt", lowercase=_is_uncased(settings))
    return bytelevel_tokenizer_json(path / "vocab.json", path / "merges.txt")
