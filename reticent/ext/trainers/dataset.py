"""Protected tokens for any trainer: a Hugging Face dataset of windows, and collators for it.

A row is a window of one document. Beside the inputs it has the column ``permitted``: for each token its id if it may be
a target, `PROTECTED` if it must not be, and -100 elsewhere. Correct labels agree with it wherever they are not -100,
whoever made them; :mod:`reticent.ext.trainers.guard` enforces this during training. By the column ``token_index`` its
ledger says which tokens were targets, and :mod:`reticent.ext.trainers.verify` compares that with the dataset.

The tokens are not copied: a dataset holds window numbers, and unpacks a row when it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from reticent.core.errors import ArtifactError, PolicyError, TrainingError
from reticent.engine.schema import IGNORE_INDEX
from reticent.engine.store import open_tokens
from reticent.job.pipeline import iter_step_states, stages_until
from reticent.trainer.labels import draw_targets, make_targets, protect_store
from reticent.trainer.ledger import Ledger
from reticent.trainer.models import load_tokenizer, special_ids
from reticent.trainer.windows import cut_windows

if TYPE_CHECKING:
    import datasets
    from transformers import PreTrainedTokenizerFast

    from reticent.engine.store import TokenStore
    from reticent.job.run import Run
    from reticent.trainer.recipes import Recipe
    from reticent.trainer.windows import Batch, Windows

#: Name of the column that says which token may be a target.
PERMITTED = "permitted"
#: Its value at a token that must not be one.
PROTECTED = -101
#: Name of the column with each token's number among all tokens of the training documents, -1 where there is none. A
#: guard notes by it which tokens were targets.
TOKEN_INDEX = "token_index"
#: The columns that a batch carries to the guard, with their value where there is no token of a document.
CARRIED = {PERMITTED: IGNORE_INDEX, TOKEN_INDEX: -1}


@dataclass(frozen=True, slots=True, repr=False)
class ProtectedWindows:
    """Transform of a protected dataset: rows ``{"window": numbers}`` to columns, from a store's windows under a recipe.

    ``random_ids`` and ``fingerprint`` are those of `reticent.trainer.labels.ProtectedStore`.
    """

    windows: Windows
    recipe: Recipe
    random_ids: np.ndarray | None
    fingerprint: str

    def __repr__(self) -> str:  # `datasets` prints it in a warning
        return f"ProtectedWindows({len(self.windows)} windows, {self.recipe.name})"

    def __call__(self, rows: Mapping[str, Sequence[int]]) -> dict[str, list[Any]]:
        numbers = np.asarray(rows["window"], dtype=np.int64)
        batch = self.windows.gather(numbers)
        permitted = self.permitted(batch)
        index = self.windows.token_positions(numbers, permitted.shape[1])
        columns = {"input_ids": batch.input_ids, "word_ids": batch.word_ids, PERMITTED: permitted, TOKEN_INDEX: index}
        if self.recipe.objective == "clm":
            columns["labels"] = np.where(permitted == PROTECTED, IGNORE_INDEX, permitted)
        lengths = batch.attention.sum(axis=1).tolist()
        cut = {name: [row[:n] for row, n in zip(column, lengths, strict=True)] for name, column in columns.items()}
        return {"window": numbers.tolist(), **cut, "attention_mask": [np.ones(n, np.int64) for n in lengths]}

    def permitted(self, batch: Batch) -> np.ndarray:
        """Return for each position of a batch its token id if it may be a prediction target, `PROTECTED` if it is
        protected, else -100; int64 (B, T).
        """
        permitted = draw_targets(batch, self.recipe, Ledger(), mask_share=1.0, seed=0, epoch=0)
        permitted[(batch.flags & self.recipe.protected_flags) != 0] = PROTECTED
        return permitted


def protected_dataset(
    store: TokenStore,
    recipe: Recipe,
    tokenizer: PreTrainedTokenizerFast,
    *,
    window_length: int = 512,
    has_spans_and_index: bool = False,
) -> datasets.Dataset:
    """Return a token store's windows as a Hugging Face dataset whose labels leave out protected tokens.

    Columns: ``window`` (its number), ``input_ids``, ``attention_mask``, ``word_ids`` (-1 outside words), ``permitted``
    and ``token_index`` (see the module), and of causal recipes ``labels``: all that may be targets. Targets of masked
    recipes are drawn by `ProtectedCollator`. ``select``, ``shuffle``, ``filter`` and ``train_test_split`` keep the
    columns; ``map`` writes them to a file of the library's cache, which is as secret as the documents.

    Parameters
    ----------
    window_length : int
        Tokens of a row at most, special tokens included.
    has_spans_and_index : bool
        As for `reticent.train`.

    Raises
    ------
    PolicyError
        The recipe rewrites its text for each epoch, or each batch: such a text is not there to be handed out. Or it
        promises DP-SGD.
    ArtifactError, TrainingError
        As `reticent.train`: the tokens hold invalid values, or not the flags that the recipe needs.
    """
    from datasets import Dataset

    if recipe.context == "surrogate" or recipe.replaces_indirect:
        raise PolicyError(
            f"recipe {recipe.name}: its text is rewritten while it trains; train it by `reticent train`, or choose a "
            "recipe that keeps the text"
        )
    if recipe.private:
        raise PolicyError(f"recipe {recipe.name}: DP-SGD is of `reticent train` alone; another trainer adds no noise")
    special = special_ids(tokenizer, recipe.objective)
    protected = protect_store(store, recipe, special, len(tokenizer), has_spans_and_index=has_spans_and_index)
    windows = cut_windows(protected.store, window_length, special)
    made = ProtectedWindows(windows, recipe, protected.random_ids, protected.fingerprint)
    return Dataset.from_dict({"window": np.arange(len(windows))}).with_transform(made)


def dataset_of_run(run: Run, recipe: str, model: str | None = None, window_length: int | None = None) -> Any:
    """Return a run's training documents under a recipe as a `protected_dataset`."""
    section = next((each for each in run.job.model if model in (None, each.name) and recipe in each.recipes), None)
    if section is None:
        raise PolicyError(f"the job has no model{f' {model}' if model else ''} with the recipe {recipe}")
    require_protected(run)
    store = open_tokens(run.folder / "tokens" / section.name / run.job.tokens(recipe))
    return protected_dataset(
        store,
        run.job.recipe(recipe),
        load_tokenizer(store.tokenizer_path),
        window_length=window_length or run.job.training(section).window_length,
        has_spans_and_index=True,
    )


def require_protected(run: Run) -> None:
    """Raise `ArtifactError` if the run's protected tokens do not exist or are stale under its job."""
    looked = iter_step_states(run.read_only_copy(), stages_until("protect"))
    if not all(look.step is not None and look.is_done for look in looked):
        raise ArtifactError(f"{run.folder}: its tokens are not made as the job says now; run it until protect first")


def windows_of(dataset: Any) -> ProtectedWindows | None:
    """Return the `ProtectedWindows` transform of a dataset made by `protected_dataset`; None for any other dataset."""
    transform = getattr(dataset, "format", {}).get("format_kwargs", {}).get("transform")
    return transform if isinstance(transform, ProtectedWindows) else None


class ProtectedCollator:
    """Collator for a `protected_dataset`: pads rows and draws the targets of masked recipes, as `reticent.train` does.

    For equal ``seed`` and ``epoch`` a window has the targets that the own loop gives it. ``epoch`` counts from 1; a
    guarded trainer sets it.

    Raises
    ------
    PolicyError
        The dataset is not one of `protected_dataset`.
    """

    def __init__(self, dataset: Any, *, mask_share: float = 0.15, seed: int = 0):
        found = windows_of(dataset)
        if found is None:
            raise PolicyError("ProtectedCollator: expected a dataset of protected_dataset, or of Run.dataset")
        self.source, self.mask_share, self.seed = found, mask_share, seed
        #: In memory that the workers of a data loader share, which may live on over epochs.
        self._epoch = torch.ones((), dtype=torch.int64).share_memory_()

    @property
    def epoch(self) -> int:
        """Epoch whose masks are drawn, an integer that all worker processes share."""
        return int(self._epoch)

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        """Set the epoch whose masks are drawn."""
        self._epoch.fill_(epoch)

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """Return ``input_ids``, ``attention_mask``, ``labels``, ``permitted``, ``token_index``, int64 (B, T) each.

        Raises
        ------
        TrainingError
            Rows without the number of their window, as after packing, or of joined datasets; or, which nothing here
            can cause, a protected token is a target.
        """
        if not all("window" in row for row in rows):
            raise TrainingError("ProtectedCollator: rows without their window; use with_permitted(collator) for such")
        batch = self.source.windows.gather(np.array([row["window"] for row in rows], dtype=np.int64))
        # Datasets that were joined have only numbers of windows, of one or the other.
        given = np.concatenate([np.asarray(row.get("input_ids", ())) for row in rows])
        if not np.array_equal(given, batch.input_ids[batch.attention != 0]):
            raise TrainingError("ProtectedCollator: rows of joined datasets; join their documents in one run instead")
        targets = make_targets(
            batch,
            self.source.recipe,
            Ledger(),
            mask_id=self.source.windows.special.mask,
            mask_share=self.mask_share,
            seed=self.seed,
            epoch=self.epoch,
            random_ids=self.source.random_ids,
        )
        made = {
            "input_ids": targets.input_ids,
            "attention_mask": batch.attention.astype(np.int64),
            "labels": targets.labels,
            PERMITTED: self.source.permitted(batch),
            TOKEN_INDEX: self.source.windows.token_positions(batch.windows, batch.input_ids.shape[1]),
        }
        return {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in made.items()}


def with_permitted(collator: Callable[[list[dict[str, Any]]], Any]) -> Callable[[Sequence[Mapping[str, Any]]], Any]:
    """Wrap a collator of batches so that they also have the columns ``permitted`` (which tokens may be targets) and, if
    the rows have it, ``token_index`` (which tokens they are).

    Rows may be padded on either side, or joined into one. A place that is guessed wrong lets nothing through: the guard
    compares ids.

    Raises (when called)
    --------------------
    TrainingError
        A row has no column ``permitted``, or the batch has neither a row for each row nor all of them in one, with
        ``position_ids`` that begin again at each, so that no individual sees another.
    """

    def collate(rows: Sequence[Mapping[str, Any]]) -> Any:
        """Return the wrapped collator's batch with the carried columns, padded or joined in the same way."""
        if not all(PERMITTED in row for row in rows):
            raise TrainingError(f"a row has no column {PERMITTED!r}; does the dataset come from protected_dataset?")
        made = collator([{name: value for name, value in row.items() if name not in CARRIED} for row in rows])
        lengths = [len(row[PERMITTED]) for row in rows]
        places = _places_of_rows(made, lengths)
        for name, filler in CARRIED.items():
            if all(name in row for row in rows):
                laid = np.full(tuple(made["input_ids"].shape), filler, dtype=np.int64)
                laid.reshape(-1)[places] = np.concatenate([np.asarray(row[name], dtype=np.int64) for row in rows])
                made[name] = torch.from_numpy(laid)
        return made

    return collate


def _places_of_rows(made: Mapping[str, Any], lengths: Sequence[int]) -> np.ndarray:
    """Return where a collator has put the tokens of rows of these ``lengths``, as positions in the flattened batch
    ``made``, int64 (sum of the lengths,)."""
    height, width = made["input_ids"].shape
    if height == len(lengths) and max(lengths) <= width:
        attention = made.get("attention_mask")
        firsts = [
            width - length if attention is not None and length < width and not bool(attention[row, 0]) else 0
            for row, length in enumerate(lengths)
        ]
        starts = np.arange(height) * width + firsts
    elif height == 1 and sum(lengths) <= width:
        starts, positions = np.cumsum([0, *lengths])[:-1], made.get("position_ids")
        if positions is None or positions[0, starts].any():
            raise TrainingError("rows of several individuals in one, without position_ids that keep them apart")
    else:
        raise TrainingError("a batch was cut or joined so that nothing says which of its tokens are protected")
    return np.concatenate([start + np.arange(length) for start, length in zip(starts, lengths, strict=True)])
