"""Training and scoring speed of a model on a device, in tokens a second; a few seconds each."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from reticent.audit.scoring.scores import score_models
from reticent.core.device import pick_device
from reticent.engine.corpus import open_configured
from reticent.engine.store import open_tokens
from reticent.engine.tokens import write_tokens
from reticent.ext.bench.documents import corpus_of_table, first_documents, time_block
from reticent.ext.propile.prompts import objective_of
from reticent.trainer.loop import train
from reticent.trainer.models import load_model, load_tokenizer, max_positions, special_ids
from reticent.trainer.recipes import get_recipe
from reticent.trainer.tokenizer_of_model import tokenizer_json_of

if TYPE_CHECKING:
    from reticent.engine.store import TokenStore
    from reticent.job.config import Job

#: Documents that a row begins with, and the seconds that it takes at least where there are documents enough.
FEWEST_DOCUMENTS, MODEL_SECONDS = 8, 3.0


def measure_model(job: Job, num_documents: int, base: str, device: str) -> list[dict[str, Any]]:
    """Time scoring and training of the model ``base`` on a job's first documents on a device; return one row for each,
    with seconds and document tokens.

    Nothing is protected: what a token costs does not depend on it. Training is that of the plain recipe, from its first
    step to its last.
    """
    objective, tokenizer, where = objective_of(base), load_tokenizer(base), pick_device(device)
    model, special = load_model(base, objective), special_ids(tokenizer, objective)
    window = min(job.train.window_length, max_positions(model))
    changed = {"num_epochs": 1, "checkpoint_epochs": (), "save_steps": 0, "device": device, "window_length": window}
    changed |= {"max_steps": None, "eval_strategy": "no", "early_stopping_patience": 0}
    settings = job.train.model_copy(update=changed)

    def score(store: TokenStore, row: dict[str, Any]) -> None:
        """Score all tokens of a store with the model, to be timed by the caller. Write the number of tokens to ``row``,
        the entry of this timing.
        """
        score_models([model], objective, store, special, window_length=window, device=device, bf16=settings.bf16)
        row["tokens"] = store.num_tokens

    def warm_up(store: TokenStore) -> None:
        """Score a few documents of a token store untimed: the first call compiles kernels and loads libraries."""
        score(store.select(np.arange(min(FEWEST_DOCUMENTS, store.num_documents))), {})

    def train_epoch(store: TokenStore, row: dict[str, Any]) -> None:
        """Train the model on a token store for one epoch. Write seconds and number of tokens to ``row``, the entry of
        this timing; the first step, which warms up, is left out of both if there are others.
        """
        times: list[tuple[float, float]] = []
        train(
            model, store, get_recipe(objective), settings, folder / "made", tokenizer=base, resume=False,
            progress=lambda _: times.append((time.perf_counter(), time.process_time())),
        )  # fmt: skip
        if len(times) > 1:  # from the end of the first step
            row["seconds"], row["cpu_seconds"] = (end - start for start, end in zip(times[0], times[-1], strict=True))
        row["tokens"] = store.num_tokens * max(len(times) - 1, 1) // len(times)

    rows: list[dict[str, Any]] = []
    with TemporaryDirectory() as made:
        folder = Path(made)
        corpus = corpus_of_table(first_documents(open_configured(job.corpus), num_documents))
        write_tokens(folder, corpus, None, tokenizer_json_of(base), num_threads=job.num_threads)
        store = open_tokens(folder)
        warm_up(store)
        for what, work in (("scoring", score), ("training", train_epoch)):
            documents = FEWEST_DOCUMENTS
            while True:  # of more documents, until it takes long enough to tell
                own = store.select(np.arange(min(documents, store.num_documents)))
                found: list[dict[str, Any]] = []
                with time_block(found, f"{what}, {objective}, on {where}") as row:
                    work(own, row)
                if row["seconds"] > MODEL_SECONDS or own.num_documents == store.num_documents:
                    break
                documents *= 4
            rows += found
    return rows
