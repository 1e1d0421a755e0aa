"""Fingerprints (digests) of a run's inputs and results, each computed once for all stages.

A plan that is only looked at (:meth:`Fingerprints.read_only_copy`) trusts the manifests of results and reads none of
their bytes. A result that is missing or stale has the fingerprint `TO_DO`: then no result that follows from it is up to
date.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from pathlib import Path

from reticent.core.artifact import MANIFEST, fingerprint, read_manifest
from reticent.core.errors import ArtifactError
from reticent.engine.store import open_tokens

TO_DO = "to do"


def replaced_error(path: Path) -> ArtifactError:
    """Return the `ArtifactError` for a result that another process has replaced since this run made or read it."""
    return ArtifactError(
        f"{path}: replaced by another process while this run needs it; let one job at a time work in a run folder, and "
        "start again"
    )


class Fingerprints:
    """Fingerprints by path, and by name for results in the run folder.

    Parameters
    ----------
    folder : Path
        The run folder.
    looking : bool
        Whether to take fingerprints of results from their manifests instead of hashing their files.
    """

    def __init__(self, folder: Path, *, looking: bool = False):
        self.folder = folder
        self.looking = looking
        self._known: dict[Path, str] = {}
        self._texts: dict[str, str] = {}

    def read_only_copy(self) -> Fingerprints:
        """Return a copy that takes the fingerprints of results from their manifests and hashes no file. Fingerprints
        computed before are in the copy too.
        """
        copy = Fingerprints(self.folder, looking=True)
        copy._known = dict(self._known)
        copy._texts = dict(self._texts)
        return copy

    def trust_manifests(self) -> None:
        """Take the fingerprints of results from their manifests from now on, without hashing files. A missing result
        gets the fingerprint `TO_DO`.
        """
        self.looking = True

    def of(self, name: str) -> str:
        """Return the fingerprint (SHA-256) of the result of this name in the run folder."""
        return self.at(self.folder / name)

    def at(self, path: Path) -> str:
        """Return the fingerprint (SHA-256) of a file or folder, computed once."""

        if path not in self._known:
            if self.looking and self.folder in path.parents:
                self._known[path] = read_manifest(path).digest if path.exists() else TO_DO
            else:
                self._known[path] = fingerprint(path)
        return self._known[path]

    def require_unchanged(self, inputs: Collection[str]) -> None:
        """Raise `ArtifactError` if another process has replaced a result since this run read it. Only results whose
        fingerprint is among ``inputs`` are checked.
        """

        for path, digest in list(self._known.items()):  # other views may be at work
            is_ours = digest in inputs and self.folder in path.parents and (path / MANIFEST).exists()
            if is_ours and read_manifest(path).digest != digest:
                raise replaced_error(path)

    def of_text(self, name: str) -> str:
        """Return the fingerprint (SHA-256) of the documents and tokens in a token store, which does not depend on the
        protection flags.
        """

        if name not in self._texts:
            whole = self.of(name)  # it is of the bytes as they were written
            text = TO_DO if whole == TO_DO else open_tokens(self.folder / name).text_fingerprint()
            self._texts[name] = text
        return self._texts[name]

    def of_checkpoint(self, name: str, epoch: int) -> str:
        """Return the fingerprint of one checkpoint of a training, from the manifest of the training."""

        if self.looking and self.of(name) == TO_DO:
            return TO_DO
        files = read_manifest(self.folder / name).files
        own = {file: about["sha256"] for file, about in files.items() if file.startswith(f"epoch-{epoch:04d}/")}
        return hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()

    def set(self, name: str, digest: str) -> None:
        """Record the fingerprint of a result that was just written, or `TO_DO` for one that is out of date."""
        self._known[self.folder / name] = digest
        self._texts.pop(name, None)
