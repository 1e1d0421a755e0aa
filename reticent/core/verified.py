"""Files that were hashed and have not changed since, by what the system says of them: they are not read again.

A file is unchanged while its device, inode, size and both times of change are those it had when it was hashed. The
time at which an inode changed (ctime) is set by the system alone; no program can turn it back. What changed less than
`SETTLED` seconds before it was looked at is not remembered, since the clocks of file systems are coarse: a second
change could bear the same time. A disk that changes bytes by itself is not found out this way; reading them is.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from contextlib import suppress
from pathlib import Path

from reticent.core.artifact import write_private
from reticent.core.errors import ArtifactError
from reticent.core.manifest import MANIFEST, Manifest, read_object, require_hash

__all__ = ["SETTLED", "VERIFIED", "VerifiedFiles"]

#: Seconds. The clocks of local file systems tick every 1 to 10 ms.
SETTLED = 0.1
VERIFIED, FORMAT = ".verified.json", 1
#: Bytes. A smaller file of documents is hashed about as quickly as it is looked up, and there may be a million.
LARGE = 1 << 20

#: Device, inode, size, and the times of the last change of the content and of the inode, in ns.
_State = tuple[int, ...]


def _state_of(path: Path) -> _State:
    about = path.stat()
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


class VerifiedFiles:
    """The files of the results in a folder, and those of the documents that they are made of, as they were when they
    were hashed; kept in the folder itself.

    Parameters
    ----------
    folder : Path
    reread : bool
        Trust nothing that an earlier process remembered.
    """

    def __init__(self, folder: Path, *, reread: bool = False):
        self._folder = folder
        self._known: dict[str, tuple[_State, str]] = {} if reread else self._read()
        self._saved = dict(self._known)
        self._made: list[Path] = []

    def verify(self, path: Path, manifest: Manifest) -> None:
        """Raise `ArtifactError` where a file is not as it was written; one that did not change is not read."""
        for name, about in manifest.files.items():
            file = path / name
            try:
                state = _state_of(file)
            except OSError:
                raise ArtifactError(f"{file}: missing") from None
            if self._known.get(self._name(file)) != (state, about["sha256"]):
                require_hash(file, about["sha256"])
                self._remember(file, state, about["sha256"])

    def sha256(self, file: Path) -> bytes:
        """Return the digest of a file that is no result, one of documents; one that did not change is not read.

        Raises
        ------
        OSError
            It cannot be read.
        """
        state = _state_of(file)
        known = self._known.get(self._name(file))
        if known is not None and known[0] == state:
            return bytes.fromhex(known[1])
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256")
        if file.stat().st_size >= LARGE:
            self._remember(file, state, digest.hexdigest())
        return digest.digest()

    def made(self, path: Path) -> None:
        """An artefact was written by this process, which hashed its files; they are looked at by `save`."""
        self._made.append(path)

    def save(self) -> None:
        """Keep what is known for the next process. Nothing is lost but time where it cannot be written."""
        for path in self._made:
            with suppress(OSError):
                # The manifest is written after all files: what changed later is not what was hashed.
                end = (path / MANIFEST).stat().st_ctime_ns
                for name, about in read_object(path / MANIFEST)["files"].items():
                    state = _state_of(path / name)
                    if state[-1] <= end:
                        self._remember(path / name, state, about["sha256"])
        self._made.clear()
        if self._known != self._saved and self._folder.is_dir():
            here = {name: [*state, digest] for name, (state, digest) in self._known.items() if self._is_there(name)}
            with suppress(OSError, ArtifactError):
                write_private(self._folder / VERIFIED, json.dumps({"format": FORMAT, "files": here}).encode())
                self._saved = dict(self._known)

    def _remember(self, file: Path, state: _State, digest: str) -> None:
        if time.time_ns() - state[-1] > SETTLED * 1e9 and _state_of(file) == state:
            self._known[self._name(file)] = (state, digest)

    def _read(self) -> dict[str, tuple[_State, str]]:
        content = read_object(self._folder / VERIFIED)
        try:
            if content["format"] != FORMAT:
                return {}
            return {name: (tuple(state), digest) for name, (*state, digest) in content["files"].items()}
        except (AttributeError, KeyError, TypeError, ValueError):  # made again
            return {}

    def _is_there(self, name: str) -> bool:
        return (self._folder / name).is_file()

    def _name(self, path: Path) -> str:
        return os.path.relpath(path, self._folder)
