"""Artefacts: folders that hold a complete result or do not exist. The only module that writes results.

An artefact is data files and, written last, ``manifest.json``. It is made in a temporary folder beside its place and
renamed into it, so a crash at any point leaves the old result or the whole new one. Leftovers of a crash are recovered
when the same artefact is written or read next, and in the whole run folder when a job starts (:func:`recover_folder`).
Folders are 0700, files 0600. Beside an artefact stands its lock, ``.NAME.lock``, empty and for good: to delete it could
give the lock to two processes, one that waits for the old file and one that made a new one.

A result that takes hours is made in a folder that outlives its writer, ``.NAME.part-DIGEST``, once it holds a `STATE`
to go on from. Its name is bound to kind, configuration and inputs: the next writer of the same goes on in it, one of
anything else deletes it.

Checks: :func:`read_manifest` looks at the size of every file, which costs nothing; :func:`is_up_to_date` and
:func:`fingerprint` hash every byte again, at the speed of the disk. A job hashes what changed since it was hashed last
(:mod:`reticent.core.artifact`).
"""

from __future__ import annotations

import fcntl
import glob
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from reticent.core.errors import ArtifactError, ReticentError
from reticent.core.json_toml import parse_json

# ------------------------------------------------------------------------------------------------------------ manifest
#
# Manifests: the identity of an artefact, the version of each kind, and how its files are hashed.
#
# Nothing is written here; :mod:`reticent.core.artifact` does, and reads manifests.


FORMAT = "reticent.artifact/1"
MANIFEST = "manifest.json"
#: File that makes an unfinished folder worth keeping; a finished artefact holds none.
STATE = "state.safetensors"
#: Files of an artefact that hold times, which no digest depends on.
TIMES = ("timings.jsonl", "tensorboard/")
#: File that makes a folder a run folder: the job of the results in it.
JOB = "job.json"
#: Version of the content and meaning of each kind of artefact. Raise it with every change after which an old result
#: must not be taken for a new one: it is then made again, and with it all that was made from it.
FORMATS = {
    "synth": 1,
    "corpus": 1,
    "dedup": 1,
    "scrub": 1,
    "split": 1,
    "teacher": 1,
    "learned": 2,
    "spans": 4,
    "sampled-recall": 2,
    "index": 3,
    "foundation": 1,
    "token-ids": 1,
    "token-gaps": 1,
    "tokens": 4,
    "text-sizes": 1,
    "near-copies": 1,
    "words": 2,
    "word-spans": 2,
    "text-check": 1,
    "models": 2,
    "measures": 8,
    "shadows": 1,
    "canaries": 1,
    "extraction": 3,
    "gates": 1,
    "classification": 2,
    "head-shadows": 1,
    "heads": 1,
    "audit": 2,
    "report": 1,
    "dossier": 1,
    "guard": 3,
    "tagger": 1,
}
#: Result of a run -> the command that makes it, of those that others need; {} is the run folder.
MADE_BY = dict.fromkeys(("split", "index"), "run {} --until index") | dict.fromkeys(("audit", "report"), "audit {}")
PACKAGES = ("numpy", "pyarrow", "regex", "tokenizers", "torch", "transformers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Manifest of an artefact: its kind, the configuration and inputs it was made from, its files and counts."""

    kind: str
    config: dict[str, Any]
    inputs: dict[str, str]
    files: dict[str, dict[str, Any]]
    counts: dict[str, Any]
    versions: dict[str, str]
    kind_format: int = 1

    @property
    def digest(self) -> str:
        """SHA-256 (hexadecimal) of the fields of the manifest that identify an artefact, a stored result: all but
        counts, versions and times."""
        content: dict[str, Any] = {"kind": self.kind, "kind_format": self.kind_format, "config": self.config}
        files = {name: about for name, about in self.files.items() if not name.startswith(TIMES)}
        content |= {"inputs": self.inputs, "files": files}
        return hashlib.sha256(canonical(content)).hexdigest()


def holds_results(folder: Path) -> bool:
    """Whether a folder holds results of this program (a stored artefact or a job's run folder), so that its files must
    not be read as input documents.

    Generated and scrubbed documents (kinds "synth" and "scrub") are documents.
    """
    manifest, job = read_object(folder / MANIFEST), read_object(folder / JOB)
    artefact = str(manifest.get("format", "")).startswith(FORMAT.partition("/")[0] + "/")
    return (artefact and manifest.get("kind") not in ("synth", "scrub")) or {
        "out",
        "corpus",
        "protect",
        "audit",
    } <= job.keys()


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; an empty dict if the file is missing or holds none."""
    try:
        content = parse_json(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def format_of(kind: str) -> int:
    """Return the version number of the file format in which artefacts (stored results) of a kind, such as "spans", are
    written now."""
    return FORMATS.get(kind, 1)


def verify(path: Path, manifest: Manifest) -> None:
    """Raise `ArtifactError` if a file of the artefact differs from its hash in the manifest."""
    for name, about in manifest.files.items():
        require_hash(path / name, about["sha256"])


def require_hash(file: Path, sha256: str) -> None:
    """Raise `ArtifactError` if the file's SHA-256 is not this one."""
    if hash_file(file) != sha256:
        raise ArtifactError(f"{file}: changed since it was written; make it again")


def reason(error: OSError) -> str:
    """Return the operating system's message for an error, with the file name."""
    said = os.strerror(error.errno) if error.errno is not None else type(error).__name__
    return f"{said}: {error.filename}" if error.filename else said


def canonical(content: Any) -> bytes:
    """Return a value as canonical JSON bytes (sorted keys, no spaces), for hashing."""
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def hash_file(path: Path) -> str:
    """Return the SHA-256, hexadecimal, of a file; `ArtifactError` if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read ({reason(error)})") from None


@cache
def versions() -> dict[str, str]:
    """Return package name -> version of the installed packages on which results depend. It is looked up once and
    cached."""

    found = {}
    for name in ("reticent", *PACKAGES):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


# ------------------------------------------------------------------------------------------------------------ deletion
#
# Deleting results so that no half of one is ever taken for a whole.


def delete(path: Path) -> None:
    """Delete a file or folder; in a folder the manifest goes first, so that a half-deleted artefact is never taken for
    a whole one."""
    if path.is_dir():
        (path / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(path)
    else:
        path.unlink()


def discard(backup: Path, under: Path) -> None:
    """Delete the backup of a replaced result. It is renamed to the temporary path ``under`` first, so that an
    interrupted deletion can be finished later; on a full disk, where renaming may fail, it is deleted in place."""
    with suppress(OSError):
        backup.rename(under)
    for left in (under, backup):
        if left.exists():
            delete(left)


# ----------------------------------------------------------------------------------------------------------- leftovers
#
# Names of folders that are no results, or no longer: temporary and unfinished ones, backups, and where they lie.


def backup_of(path: Path) -> Path:
    """Return the path to which the old result at ``path`` is moved while a new one replaces it."""
    return path.parent / f".{path.name}.old"


def temporary_of(path: Path) -> Path:
    """Return a new temporary path next to ``path``, under which a result is written until it is finished."""
    return path.parent / f".{path.name}.tmp-{uuid.uuid4().hex[:12]}"


def resumable_folders_of(path: Path) -> list[Path]:
    """Return the partly written folders of ``path`` from which an interrupted writer can resume."""
    return list(path.parent.glob(f".{glob.escape(path.name)}.part-{'[0-9a-f]' * 12}"))


def leftovers_of(path: Path) -> list[Path]:
    """Return what an interrupted writer of the result at ``path`` left behind: its temporary folders, and the backup of
    the older result if there is one."""
    found = list(path.parent.glob(f".{glob.escape(path.name)}.tmp-{'[0-9a-f]' * 12}"))
    return [*found, backup] if ((backup := backup_of(path)) / MANIFEST).exists() else found


def is_vacant(path: Path) -> bool:
    """Whether a new result can be renamed to this path: nothing exists there, or only an empty folder."""
    return not path.exists() or (path.is_dir() and not any(path.iterdir()))


def artifacts_in(folder: Path) -> list[Path]:
    """Return the paths of the finished artefacts (stored results) in a run folder and its subfolders, links followed;
    artefacts inside another artefact are left out."""
    found = []
    for name, folders, files in os.walk(folder, followlinks=True):
        if MANIFEST in files and Path(name) != folder:
            found.append(Path(name))
            folders.clear()
        folders[:] = [entry for entry in folders if not entry.startswith(".")]
    return sorted(found)


def interrupted_in(folder: Path) -> list[Path]:
    """Return the paths of the artefacts in a run folder, links followed, whose writer was interrupted and left
    temporary files beside them."""
    found = set()
    for name, folders, files in os.walk(folder, followlinks=True):
        real = Path(os.path.realpath(name))
        if MANIFEST in files:
            folders.clear()
            continue
        for entry in (*folders, *files):
            if match := re.fullmatch(r"\.(.+)\.(old|tmp-[0-9a-f]{12})", entry):
                if match[2] != "old" or (real / entry / MANIFEST).exists():
                    found.add(real / match[1])
            elif (real / entry).is_symlink() and leftovers_of(there := Path(os.path.realpath(real / entry))):
                found.add(there)
        deepest = len(Path(name).relative_to(folder).parts) == 3  # models/MODEL/RECIPE/seed-0
        folders[:] = [entry for entry in folders if not entry.startswith(".") and not deepest]
    return sorted(found)


# --------------------------------------------------------------------------------------------------------------- locks
#
# Locks of artefacts, and signals that wait while one is cleaned up.


@contextmanager
def signals_deferred() -> Iterator[None]:
    """Defer signals to the end of the ``with`` block: a second Ctrl-C must not stop the first's clean-up."""
    came: list[int] = []
    handlers: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():  # which alone gets them
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            handlers[each] = signal.signal(each, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler if handler is not None else signal.SIG_DFL)
        for number in came:
            signal.raise_signal(number)


class InUseError(ArtifactError):
    """Another process holds the artefact's lock."""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of the artefact (stored result) at ``path`` in the ``with`` block; raise `ArtifactError` if another
    process holds it."""
    # Imported here: it takes 35 ms, which `--help` would pay too. A lock costs 0.15 ms (flock by hand: 0.02) and is
    # let go by name: a process forked meanwhile, which has the file open too, does not hold it on.

    # No fall-back to a lock that is a file's existence: a process that is killed would leave it locked for good.
    lock = FileLock(path.parent / f".{path.name}.lock", mode=0o600, blocking=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        raise InUseError(f"{path}: in use by another process; wait until it ends, or stop it") from None
    except OSError as error:
        raise ArtifactError(f"{path.parent}: cannot be written ({reason(error)})") from None
    try:
        yield
    finally:
        lock.release()


# ------------------------------------------------------------------------------------------------------------- written
#
# Files that are hashed while they are written, so that they need not be read again for it.


#: (device, inode) -> size, time of the last change, and SHA-256 of a file as it was closed here.
_known: dict[tuple[int, int], tuple[int, int, str]] = {}


class HashedFile:
    """A new file for appending bytes; `close` records its SHA-256 for `written_digest`."""

    def __init__(self, path: Path):
        self._file = path.open("xb", buffering=0)
        self._digest = hashlib.sha256()

    def write(self, data: Any) -> None:
        """Append all bytes of a buffer."""
        left = memoryview(data).cast("B")
        self._digest.update(left)
        while left:
            left = left[self._file.write(left) :]

    def close(self) -> None:
        """Close the file, and remember its SHA-256 for `written_digest`."""
        about = os.fstat(self._file.fileno())
        _known[about.st_dev, about.st_ino] = (about.st_size, about.st_mtime_ns, self._digest.hexdigest())
        self._file.close()


def written_digest(path: Path) -> str | None:
    """Return the SHA-256 of a file that this process wrote through `HashedFile`, and forget it; None if the file was
    written otherwise, has changed since, or was asked for before."""
    about = path.stat()
    size, changed, digest = _known.pop((about.st_dev, about.st_ino), (-1, -1, ""))
    return digest if (size, changed) == (about.st_size, about.st_mtime_ns) else None


@dataclass(slots=True)
class ArtifactWriter:
    """The folder to write data files to, and counts to keep in the manifest."""

    path: Path
    counts: dict[str, Any] = field(default_factory=dict)


@contextmanager
def write_artifact(
    path: Path | str, *, kind: str, config: dict[str, Any], inputs: dict[str, str], resume: bool | None = None
) -> Iterator[ArtifactWriter]:
    """Yield a writer with a temporary folder, which becomes the artefact (a stored result with a manifest) at ``path``
    if the ``with`` block ends without an error.

    A link is followed: the artefact it leads to is replaced, the link stays.

    Parameters
    ----------
    resume : bool, optional
        None: the files of a writer that failed are deleted. Else a folder with a `STATE` in it is kept, and True begins
        with the one that an earlier writer of the same configuration and inputs left, False with an empty one.

    Raises
    ------
    ArtifactError
        Another process is writing this artefact, the folder there is not one of ours and not empty or an artefact of
        another kind (it is left alone), or the place cannot be written (read-only, a full disk); the old artefact then
        stands as it was.
    """
    path = Path(path)
    try:
        with _write_whole(Path(os.path.realpath(path)), kind, config, inputs, resume) as writer:
            yield writer
    except Exception as error:
        number = _errno(error)
        if number is None:  # ours, or not about a file
            raise
        where = f": {error.filename}" if isinstance(error, OSError) and error.filename else ""
        raise ArtifactError(f"{path}: not written ({os.strerror(number)}{where})") from error


@contextmanager
def _write_whole(
    path: Path, kind: str, config: dict[str, Any], inputs: dict[str, str], resume: bool | None
) -> Iterator[ArtifactWriter]:
    """Yield the writer of `write_artifact`, with the artefact's lock held and leftovers of earlier writers removed."""
    make_private_folder(path.parent)
    with locked(path):
        _recover(path)
        if path.exists() and not (path / MANIFEST).exists():
            if not path.is_dir() or any(path.iterdir()):
                raise ArtifactError(f"{path}: exists and is not an artefact of ours; choose another place")
            path.rmdir()
        _refuse_other_kind(path, kind)
        _free_backup_of(path)
        temporary = temporary_of(path) if resume is None else unfinished_path(path, kind, config, inputs)
        for part in resumable_folders_of(path):
            if part != temporary or not resume or not _is_begun(part):
                delete(part)
        old_umask = os.umask(0o077)
        try:
            temporary.mkdir(mode=0o700, exist_ok=bool(resume))
            writer = ArtifactWriter(temporary)
            yield writer
            _finish(temporary, kind, config, inputs, writer.counts)
            _replace(path, temporary)
        except BaseException:
            with signals_deferred(), suppress(OSError):  # the next writer deletes the files that this one cannot
                _recover(path)
                if resume is not None and temporary.exists() and not _is_begun(temporary):
                    delete(temporary)
            raise
        finally:
            os.umask(old_umask)


def _is_begun(folder: Path) -> bool:
    """Whether an unfinished folder holds a saved state from which writing can resume."""
    return next(folder.rglob(STATE), None) is not None


def _refuse_other_kind(path: Path, kind: str) -> None:
    """Raise `ArtifactError` if the path holds an artefact of another kind, which must not be overwritten."""
    held = read_object(path / MANIFEST).get("kind", kind)  # one that cannot be read is replaced
    if held != kind:
        raise ArtifactError(f"{path}: holds an artefact of kind {held}; choose another place for one of kind {kind}")


def read_manifest(path: Path | str) -> Manifest:
    """Return the manifest of an artefact, after checking that its files exist with the recorded sizes.

    Raises
    ------
    ArtifactError
        There is no artefact, it is of another format, or a data file is missing or has another size.
    """
    path = Path(path)
    real = Path(os.path.realpath(path))
    if is_vacant(real) and backup_of(real).exists():
        with locked(real):
            _recover(real)
    try:
        content = parse_json((path / MANIFEST).read_bytes())
        own = content.pop("sha256", None)  # earlier versions wrote none
        own_now = _content_digest(content)
        if content.pop("format") != FORMAT:
            raise ArtifactError(f"{path}: an artefact of another format; expected {FORMAT}")
        if own not in (None, own_now):
            raise ArtifactError(f"{path / MANIFEST}: changed since it was written; make it again")
        manifest = Manifest(**content)
        if not all(isinstance(part, dict) for part in (manifest.config, manifest.inputs, manifest.counts)):
            raise ValueError
        files = {name: (about["num_bytes"], about["sha256"]) for name, about in manifest.files.items()}
    except (FileNotFoundError, NotADirectoryError):
        made_by = MADE_BY.get(path.name, "").format(shlex.quote(str(path.parent)))
        way = f"; `reticent {made_by}` makes it" if made_by else ""
        raise ArtifactError(
            f"{path}: no artefact here (no {MANIFEST}): what makes it was not run, or did not finish{way}"
        ) from None
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ArtifactError(f"{path / MANIFEST}: not a readable manifest") from None
    except OSError as error:
        if error.errno is None:  # ours
            raise
        raise ArtifactError(f"{path / MANIFEST}: cannot be read ({reason(error)})") from None
    for name, (num_bytes, _) in files.items():
        if not (path / name).is_file() or (path / name).stat().st_size != num_bytes:
            raise ArtifactError(f"{path / name}: missing, or not of the size its manifest says")
    return manifest


def require_kind(path: Path | str, kind: str) -> Manifest:
    """Return the manifest of an artefact; `ArtifactError` unless it has this kind, in this version's format."""
    manifest = read_manifest(path)
    if manifest.kind != kind:
        raise ArtifactError(f"{path}: an artefact of kind {manifest.kind}, expected {kind}")
    if manifest.kind_format != format_of(kind):
        raise ArtifactError(
            f"{path}: written by another version of Reticent (format {manifest.kind_format} of {kind}, expected "
            f"{format_of(kind)}); make it again"
        )
    return manifest


def is_up_to_date(
    path: Path | str,
    *,
    kind: str,
    config: dict[str, Any],
    inputs: dict[str, str],
    check: Callable[[Path, Manifest], None] = verify,
) -> bool:
    """Whether the artefact at ``path`` was made from this configuration and these inputs, in this version's format, and
    is unchanged since. Cost: one pass over its files.

    ``check`` raises `ArtifactError` where a file is not as it was written; a job's trusts files that have not changed
    since they were hashed (:class:`reticent.core.artifact.VerifiedFiles`).
    """
    try:
        manifest = require_kind(path, kind)
        if canonical(manifest.config) != canonical(config) or manifest.inputs != inputs:
            return False
        check(Path(path), manifest)
    except ArtifactError:
        return False
    return True


def fingerprint(path: Path | str) -> str:
    """Return the SHA-256 of an artefact (from its verified manifest), of a file, or of all files of a folder. Cost: one
    pass over them.

    Raises
    ------
    ArtifactError
        There is nothing, a file cannot be read, or an artefact is not as its manifest says.
    """
    path = Path(path)
    if path.is_dir() and (path / MANIFEST).exists():
        manifest = read_manifest(path)
        verify(path, manifest)
        return manifest.digest
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file() and not file.name.startswith("."))
        content = {str(file.relative_to(path)): hash_file(file) for file in files}
        return hashlib.sha256(canonical(content)).hexdigest()
    if path.is_file():
        return hash_file(path)
    raise ArtifactError(f"{path}: no such file or folder")


def delete_artifact(path: Path) -> None:
    """Delete an artefact completely, except its lock file; do nothing if there is none."""
    if (path / MANIFEST).exists():
        with locked(path):
            delete(path)


def nest_artifact(path: Path, name: str) -> None:
    """Move the artefact at ``path`` into its own subfolder ``path/name`` atomically, to make room for others beside it;
    do nothing if there is none at ``path``."""
    if not (path / MANIFEST).exists():
        return
    with locked(path):
        _recover(path)
        backup, nested = _free_backup_of(path), temporary_of(path)
        nested.mkdir(mode=0o700)
        path.rename(backup)  # from where `_recover` brings it back
        nested.rename(path)
        backup.rename(path / name)
        sync(path.parent)


def write_private(path: Path, content: bytes) -> None:
    """Write a file (mode 0600) atomically: it is complete or absent, however the process ends."""
    if path.is_dir():
        raise ArtifactError(f"{path}: a folder; give the name of a file")
    with locked(path):
        _recover(path)
        temporary = temporary_of(path)
        try:
            temporary.touch(mode=0o600)
            temporary.write_bytes(content)
            sync(temporary)
            temporary.replace(path)
            sync(path.parent)
        except BaseException:
            with signals_deferred(), suppress(OSError):
                _recover(path)
            raise


def recover_folder(folder: Path) -> None:
    """Restore or delete what interrupted writers left in a run folder, so that no document text remains in a forgotten
    file; artefacts in use by another process are left alone.

    Raises
    ------
    ArtifactError
        Something cannot be deleted.
    """
    if not (folder / JOB).is_file():  # nothing of ours
        return
    for path in interrupted_in(folder):
        try:
            with locked(path):
                _recover(path)
        except InUseError:
            continue
        except OSError as error:
            if error.errno is None:  # ours
                raise
            raise ArtifactError(f"{path}: what an interrupted run left cannot be deleted ({reason(error)})") from None


def unfinished_path(path: Path, kind: str, config: dict[str, Any], inputs: dict[str, str]) -> Path:
    """Return the path of the unfinished folder for an artefact with this configuration and these inputs; a writer that
    was interrupted resumes from it."""
    path = Path(os.path.realpath(path))
    digest = hashlib.sha256(canonical([kind, format_of(kind), config, inputs])).hexdigest()
    return path.parent / f".{path.name}.part-{digest[:12]}"


def delete_unfinished(folder: Path) -> None:
    """Delete the resumable folders under ``folder``, except one that is being written."""
    for part in list(folder.rglob(f".*.part-{'[0-9a-f]' * 12}")):
        path = part.with_name(part.name[1:].rpartition(".part-")[0])
        with suppress(InUseError), locked(path):
            delete(part)


def make_private_folder(path: Path) -> None:
    """Create a folder and its missing parents, all with mode 0700; an existing folder keeps its mode."""
    if not path.exists():
        make_private_folder(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)


def write_failure(error: Exception) -> str:
    """Return why a write failed, as text: the operating system's message, or the name of the error's type."""
    number = _errno(error)
    return type(error).__name__ if number is None else os.strerror(number)


def _errno(error: Exception) -> int | None:
    """Return the operating system's error number of an exception; for one of a Rust library, which has no number, it is
    read from the message. None if there is no number."""
    if isinstance(error, OSError):
        return error.errno
    if isinstance(error, ReticentError):
        return None
    quoted = re.search(r"\(os error (\d+)\)", str(error))
    return int(quoted[1]) if quoted else None


def _content_digest(content: dict[str, Any]) -> str:
    """Return the SHA-256 (hexadecimal) of the whole content of a manifest, counts included."""
    return hashlib.sha256(canonical(content)).hexdigest()


def _finish(folder: Path, kind: str, config: dict[str, Any], inputs: dict[str, str], counts: dict[str, Any]) -> None:
    """Flush every file to disk and make it private (mode 0600), then write the manifest with all hashes."""
    files = {}
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        file.chmod(0o600)
        sync(file)
        digest = written_digest(file) or hash_file(file)
        files[str(file.relative_to(folder))] = {"sha256": digest, "num_bytes": file.stat().st_size}
    content: dict[str, Any] = {"format": FORMAT, "kind": kind, "kind_format": format_of(kind), "config": config}
    content |= {"inputs": inputs, "files": files, "counts": counts, "versions": versions()}
    content["sha256"] = _content_digest(content)
    manifest = folder / MANIFEST
    manifest.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")
    manifest.chmod(0o600)
    sync(manifest)
    for directory in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        directory.chmod(0o700)
        sync(directory)


def _replace(path: Path, temporary: Path) -> None:
    """Move ``temporary`` to ``path``, replacing the old artefact; `_recover` repairs a crash in between."""
    backup = backup_of(path)
    replaces = path.exists()
    if replaces:
        path.rename(backup)
    try:
        temporary.rename(path)
        sync(path.parent)
    except BaseException:
        if path.exists():
            path.rename(temporary)
        raise
    if replaces:
        discard(backup, temporary_of(path))


def _recover(path: Path) -> None:
    """Restore the old result where a crash interrupted its replacement, and delete the leftovers of an interrupted
    writer of ``path``."""
    for leftover in leftovers_of(path):
        if leftover != backup_of(path):
            delete(leftover)
        elif is_vacant(path):
            leftover.rename(path)
        else:
            discard(leftover, temporary_of(path))


def _free_backup_of(path: Path) -> Path:
    """Return the path for a backup of the result at ``path``, at which no file exists; `ArtifactError` if a file of
    somebody else is there. `_recover` must have been called before."""
    if os.path.lexists(backup := backup_of(path)):
        raise ArtifactError(f"{backup}: not ours, and in the place of a backup; move it away")
    return backup


def sync(path: Path) -> None:
    """Flush a file or folder to disk (fsync)."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


# ------------------------------------------------------------------------------------------------------------ verified
#
# Files that were hashed and have not changed since, by what the system says of them: they are not read again.
#
# A file is unchanged while its device, inode, size and both times of change are those it had when it was hashed. The
# time at which an inode changed (ctime) is set by the system alone; no program can turn it back. What changed less
# than `SETTLED` seconds before it was looked at is not remembered, since the clocks of file systems are coarse: a
# second change could bear the same time. A disk that changes bytes by itself is not found out this way; reading them
# is.


#: Seconds. The clocks of local file systems tick every 1 to 10 ms.
SETTLED = 0.1
VERIFIED, FORMAT_VERIFIED = ".verified.json", 1
#: Bytes. A smaller file of documents is hashed about as quickly as it is looked up, and there may be a million.
LARGE = 1 << 20

#: Device, inode, size, and the times of the last change of the content and of the inode, in ns.
_State = tuple[int, ...]


def _file_status(path: Path) -> _State:
    """Return device, inode, size and times of a file, which change with its content."""
    about = path.stat()
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


class VerifiedFiles:
    """Cache, in a folder, of the hashes of its results and of document files whose status is unchanged.

    Parameters
    ----------
    folder : Path
    reread : bool
        Trust nothing that an earlier process remembered.
    """

    def __init__(self, folder: Path, *, reread: bool = False):
        self._folder = folder
        self._known: dict[str, tuple[_State, str]] = {} if reread else self._read_cache()
        self._saved = dict(self._known)
        self._made: list[Path] = []

    def verify(self, path: Path, manifest: Manifest) -> None:
        """Raise `ArtifactError` if a file of the artefact differs from its hash in the manifest. Files whose size and
        times are as at the last check are not read again."""
        for name, about in manifest.files.items():
            file = path / name
            try:
                state = _file_status(file)
            except OSError:
                raise ArtifactError(f"{file}: missing") from None
            if self._known.get(self._relative_name(file)) != (state, about["sha256"]):
                require_hash(file, about["sha256"])
                self._remember(file, state, about["sha256"])

    def sha256(self, file: Path) -> bytes:
        """Return the SHA-256 of a document file; it is taken from the cache if size and times of the file are
        unchanged.

        Raises
        ------
        OSError
            It cannot be read.
        """
        state = _file_status(file)
        known = self._known.get(self._relative_name(file))
        if known is not None and known[0] == state:
            return bytes.fromhex(known[1])
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256")
        if file.stat().st_size >= LARGE:
            self._remember(file, state, digest.hexdigest())
        return digest.digest()

    def made(self, path: Path) -> None:
        """Register an artefact (stored result) that this process wrote, so that `save` adds the hashes of its files to
        the cache."""
        self._made.append(path)

    def save(self) -> None:
        """Write the cache of verified hashes for the next process; a failure to write costs time only."""
        for path in self._made:
            with suppress(OSError):
                # The manifest is written after all files: what changed later is not what was hashed.
                end = (path / MANIFEST).stat().st_ctime_ns
                for name, about in read_object(path / MANIFEST)["files"].items():
                    state = _file_status(path / name)
                    if state[-1] <= end:
                        self._remember(path / name, state, about["sha256"])
        self._made.clear()
        if self._known != self._saved and self._folder.is_dir():
            known = ((name, kept) for name, kept in self._known.items() if (self._folder / name).is_file())
            here = {name: [*state, digest] for name, (state, digest) in known}
            with suppress(OSError, ArtifactError):
                write_private(self._folder / VERIFIED, json.dumps({"format": FORMAT_VERIFIED, "files": here}).encode())
                self._saved = dict(self._known)

    def _remember(self, file: Path, state: _State, digest: str) -> None:
        """Add a file's hash to the cache, unless the file changed in the last moments or since ``state`` was taken."""
        if time.time_ns() - state[-1] > SETTLED * 1e9 and _file_status(file) == state:
            self._known[self._relative_name(file)] = (state, digest)

    def _read_cache(self) -> dict[str, tuple[_State, str]]:
        """Return the stored cache: file name -> file status and SHA-256; empty if it cannot be used."""
        content = read_object(self._folder / VERIFIED)
        try:
            if content["format"] != FORMAT_VERIFIED:
                return {}
            return {name: (tuple(state), digest) for name, (*state, digest) in content["files"].items()}
        except (AttributeError, KeyError, TypeError, ValueError):  # made again
            return {}

    def _relative_name(self, path: Path) -> str:
        """Return the path of a file relative to the run folder."""
        return os.path.relpath(path, self._folder)


# ----------------------------------------------------------------------------------------------------------- temporary
#
# Temporary folders that outlive a killed process only until the next one asks for a folder of the same name.


#: Prefix of the folder in a run where a training's targets are drawn again.
VERIFY = ".verify-"
#: The file in such a folder that its process holds locked. A folder without it is not ours, whatever its name.
HELD = ".held"


@contextmanager
def held_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """Yield a temporary folder (mode 0700) in ``parent`` (default: the system's), locked as in use, and delete it at
    the end of the block.

    Those that :func:`delete_left` finds are deleted first.
    """
    parent = parent or Path(tempfile.gettempdir())
    delete_left(prefix, parent)
    made = tempfile.TemporaryDirectory(prefix=prefix, dir=parent, ignore_cleanup_errors=True)
    with made, _lock_folder(Path(made.name)):
        yield Path(made.name)


def delete_left(prefix: str, parent: Path) -> None:
    """Delete temporary folders in ``parent`` that a dead process of this user left: their names begin with ``prefix``,
    and no process holds their lock."""
    for left in parent.glob(f"{prefix}*"):
        try:
            with _lock_folder(left, fcntl.LOCK_NB, is_new=False):
                if left.stat().st_uid == os.getuid():
                    shutil.rmtree(left, ignore_errors=True)
        except OSError:
            continue  # its process is alive, or it is none of ours


@contextmanager
def _lock_folder(folder: Path, lock_flags: int = 0, *, is_new: bool = True) -> Iterator[None]:
    """Hold an exclusive lock on a folder for the ``with`` block; with ``LOCK_NB`` in ``lock_flags``, raise `OSError`
    instead of waiting if another process holds it. ``is_new``: create the lock file inside the folder, which must not
    exist yet."""
    inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        flags = os.O_RDWR | os.O_NOFOLLOW | (os.O_CREAT | os.O_EXCL if is_new else 0)
        number = os.open(HELD, flags, mode=0o600, dir_fd=inside)
    finally:
        os.close(inside)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | lock_flags)
        yield
    finally:
        os.close(number)


# ---------------------------------------------------------------------------------------------------------- new folder
#
# Folders that are handed to others: what is written there is whole, or nothing of it stays.


def require_new(out: Path) -> None:
    """Raise `ArtifactError` unless ``out`` does not exist, or is an empty folder or a link to one."""
    if os.path.lexists(out) and (not out.is_dir() or any(out.iterdir())):
        raise ArtifactError(f"{out}: a file, a link to no folder, or not empty; choose a new folder")


@contextmanager
def writing_to(out: Path) -> Iterator[None]:
    """Raise an `OSError` of the ``with`` block as an `ArtifactError` that names ``out``, as the error of a full disk
    names no file."""
    try:
        yield
    except OSError as error:
        if isinstance(error, ReticentError) or error.errno is None:
            raise
        raise ArtifactError(f"{out}: not written ({os.strerror(error.errno)})") from error


@contextmanager
def new_folder(out: Path) -> Iterator[None]:
    """Create the folder ``out`` (mode 0700) for the ``with`` block to fill; after an error or signal it is absent or
    empty again, as before.

    The folder has its name from the beginning, since an empty one may be a disk that no other can take the place of.

    Raises
    ------
    ArtifactError
        As :func:`require_new` says, or ``out`` cannot be written.
    """
    require_new(out)
    was_there = out.exists()
    try:
        with writing_to(out):
            out.mkdir(mode=0o700, parents=True, exist_ok=True)
            yield
    except BaseException:
        with signals_deferred(), suppress(OSError):
            _delete_content(out)
            if not was_there:
                out.rmdir()
        raise


def _delete_content(folder: Path) -> None:
    """Delete everything in a folder, but not the folder itself."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
