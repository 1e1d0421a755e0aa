"""Caches: folders that a run keeps beside its artefacts to be quicker the next time.

No step of the plan makes one, and nothing follows from it that does not follow from its inputs: a run is the same
without. Documents that were updated, or another split, never meet what was cached before, since its inputs are other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reticent.core.errors import ArtifactError

if TYPE_CHECKING:
    from reticent.job.run import Run

__all__ = ["Cached"]


class Cached:
    """A folder of a run that holds a result of these inputs, or not."""

    def __init__(self, run: Run, name: str, kind: str, inputs: dict[str, str]):
        self.path = run.folder / name
        self._run, self._kind, self._inputs = run, kind, inputs

    def answers(self, fits: Callable[[dict[str, Any]], bool]) -> bool:
        """Say whether it is whole, of these inputs, and of settings that fit."""
        from reticent.core.artifact import require_kind

        try:
            manifest = require_kind(self.path, self._kind)
            if manifest.inputs != self._inputs or not fits(manifest.config):
                return False
            self._run.verified.verify(self.path, manifest)
        except (ArtifactError, KeyError, TypeError):  # none, of another version, or damaged: it is made again
            return False
        return True

    @contextmanager
    def written(self, config: dict[str, Any]) -> Iterator[Path | None]:
        """Open a new folder for it, which takes its place at the end; None where another process writes it.

        Raises
        ------
        ArtifactError
            Its inputs have changed.
        CorpusError
            Documents have changed since the run read them.
        """
        from reticent.core.artifact import write_artifact

        with ExitStack() as opened:
            writer = None
            with suppress(ArtifactError):  # a run is the same without
                whole = write_artifact(self.path, kind=self._kind, config=config, inputs=self._inputs)
                writer = opened.enter_context(whole)
            if writer is None:
                yield None
                return
            yield writer.path
            self._run.fingerprints.require_unchanged(self._inputs.values())
            self._run.require_unchanged()
        self._run.verified.made(self.path)

    def delete_of_others(self) -> None:
        """Delete what was made of other inputs, of documents that may have been withdrawn, where nothing takes its
        place.
        """
        from reticent.core.artifact import delete_artifact, read_manifest

        with suppress(ArtifactError):  # none, or not to be read: what cannot be deleted is not read either
            if read_manifest(self.path).inputs != self._inputs:
                delete_artifact(self.path)
