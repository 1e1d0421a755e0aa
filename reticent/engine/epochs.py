"""EpochTokens: token stores for a training whose text changes from epoch to epoch.

They are made while the previous epoch is read, in a private folder that holds at most two epochs and is deleted at the
end. The tokens of an epoch are a function of its number, so a training resumed at epoch e reads the same tokens. The
processes of one machine share the folder: one of them makes the tokens, the others open them.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from reticent.engine.store import TokenStore, open_tokens

#: Seconds between two looks for tokens that another process makes.
LOOK_AGAIN = 0.05


class EpochTokens:
    """A context in which ``tokens(epoch)`` returns an epoch's `TokenStore`; the next is made in the background.

    Parameters
    ----------
    folder : Path
        Of one training on this machine; no other has the same.
    make : callable or None
        Writes the tokens of an epoch into a folder: the same ones whenever it is asked. None: another process of this
        machine makes them, and is at the same epoch; it fails together with this one.
    num_epochs : int
        Epochs run from 1 to this; the next one is made ahead.
    """

    def __init__(self, folder: Path, make: Callable[[Path, int], object] | None, num_epochs: int):
        self._folder, self._make, self._num_epochs = folder, make, num_epochs
        self._made: dict[int, Future[Path]] = {}

    def __enter__(self) -> EpochTokens:
        if self._make is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder.mkdir(mode=0o700, parents=True)
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="reticent-epochs")
        return self

    def __call__(self, epoch: int) -> TokenStore:
        """Return the tokens of an epoch, and start making those of the next; those of other epochs are deleted."""
        if self._make is None:
            while not (place := self._path_of(epoch)).exists():
                time.sleep(LOOK_AGAIN)
            return open_tokens(place)
        for other in [other for other in self._made if other not in (epoch, epoch + 1)]:
            # A store that is still mapped keeps its data until it is let go.
            shutil.rmtree(self._made.pop(other).result())
        made = self._start_writing(epoch).result()
        if epoch < self._num_epochs:
            self._start_writing(epoch + 1)
        return open_tokens(made)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._make is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)
            shutil.rmtree(self._folder)

    def _path_of(self, epoch: int) -> Path:
        """Return the folder of an epoch's token store."""
        return self._folder / f"epoch-{epoch:04d}"

    def _start_writing(self, epoch: int) -> Future[Path]:
        """Start to write an epoch's token store in the background, unless that was done before; return the future of
        its folder."""
        if epoch not in self._made:
            self._made[epoch] = self._thread.submit(self._write_epoch, epoch)
        return self._made[epoch]

    def _write_epoch(self, epoch: int) -> Path:
        """Write the token store of an epoch; return its folder, which appears only when it is complete."""
        assert self._make is not None
        unfinished = self._folder / f".epoch-{epoch:04d}"
        unfinished.mkdir(mode=0o700)
        self._make(unfinished, epoch)
        return unfinished.rename(self._path_of(epoch))
