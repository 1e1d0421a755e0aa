"""EpochTokens: the tokens of each epoch of a training whose text changes from epoch to epoch.

They are made while the previous epoch is read, in a private folder that holds at most two epochs and is deleted at the
end. The tokens of an epoch are a function of its number, so a training resumed at epoch e reads the same tokens.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from reticent.engine.store import TokenStore, open_tokens

__all__ = ["EpochTokens"]


class EpochTokens:
    """A context in which ``tokens(epoch)`` is a `TokenStore`.

    Parameters
    ----------
    folder : Path
        Of this run alone; whatever an interrupted run left there is deleted.
    make : callable
        Writes the tokens of an epoch into a folder: the same ones whenever it is asked.
    num_epochs : int
        Epochs run from 1 to this; the next one is made ahead.
    ids : Path, optional
        Folder of the ids that the tokens of an epoch change, where they are a patch.
    """

    def __init__(self, folder: Path, make: Callable[[Path, int], object], num_epochs: int, *, ids: Path | None = None):
        self._folder, self._make, self._num_epochs, self._ids = folder, make, num_epochs, ids
        self._made: dict[int, Future[Path]] = {}

    def __enter__(self) -> EpochTokens:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(mode=0o700, parents=True)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="reticent-epochs")
        return self

    def __call__(self, epoch: int) -> TokenStore:
        """Return the tokens of an epoch, and begin those of the next; those of others are deleted."""
        for other in [other for other in self._made if other not in (epoch, epoch + 1)]:
            # A store that is still mapped keeps its data until it is let go.
            shutil.rmtree(self._made.pop(other).result())
        made = self._begin(epoch).result()
        if epoch < self._num_epochs:
            self._begin(epoch + 1)
        return open_tokens(made, ids=self._ids)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)
        shutil.rmtree(self._folder)

    def _begin(self, epoch: int) -> Future[Path]:
        if epoch not in self._made:
            self._made[epoch] = self._thread.submit(self._write, epoch)
        return self._made[epoch]

    def _write(self, epoch: int) -> Path:
        folder = self._folder / f"epoch-{epoch:04d}"
        folder.mkdir(mode=0o700)
        self._make(folder, epoch)
        return folder
