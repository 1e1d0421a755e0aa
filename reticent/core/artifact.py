"""Artefacts: folders that hold a whole result or do not exist. The only place that writes results.

An artefact is data files and, written last, ``manifest.json``. It is made in a temporary folder beside its place and
renamed into it, so a crash at any point leaves the old result or the whole new one. Leftovers of a crash are recovered
when the same artefact is written or read next, and in the whole run folder when a job starts (:func:`recover_folder`).
Folders are 0700, files 0600. Beside an artefact stands its lock, ``.NAME.lock``, empty and for good: to delete it could
give the lock to two processes, one that waits for the old file and one that made a new one.

What takes hours is made in a folder that outlives its writer, ``.NAME.part-DIGEST``, once it holds a `STATE` to go on
from. Its name is bound to kind, configuration and inputs: the next writer of the same goes on in it, one of anything
else deletes it.

What is checked: :func:`read_manifest` looks at the size of every file, which costs nothing; :func:`is_up_to_date` and
:func:`fingerprint`, by which a job decides what is still good, hash every byte again, at the speed of the disk.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import shutil
import signal
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from reticent.core.errors import ArtifactError, ReticentError
from reticent.core.json_toml import parse_json

__all__ = [
    "ArtifactWriter",
    "Manifest",
    "delete_artifact",
    "delete_unfinished",
    "fingerprint",
    "holds_results",
    "is_up_to_date",
    "make_private_folder",
    "nest_artifact",
    "read_manifest",
    "recover_folder",
    "require_kind",
    "unfinished_path",
    "write_artifact",
    "write_private",
]

FORMAT = "reticent.artifact/1"
MANIFEST = "manifest.json"
#: File that makes an unfinished folder worth keeping; a finished artefact holds none.
STATE = "state.safetensors"
#: Files of an artefact that hold times, which no digest depends on.
TIMES = ("timings.jsonl", "tensorboard/")
#: File that makes a folder a run folder: the job of the results in it.
JOB = "job.json"
#: Version of what each kind of artefact holds and means. Raise it with every change after which an old result must not
#: be taken for a new one: it is then made again, and with it what was made from it.
FORMATS = {
    "synth": 1,
    "dedup": 1,
    "scrub": 1,
    "split": 1,
    "spans": 1,
    "index": 3,
    "foundation": 1,
    "tokens": 2,
    "text-check": 1,
    "models": 2,
    "measures": 2,
    "shadows": 1,
    "canaries": 1,
    "extraction": 1,
    "gates": 1,
    "classification": 1,
    "audit": 2,
    "report": 1,
    "guard": 2,
    "tagger": 1,
}
PACKAGES = ("numpy", "pyarrow", "tokenizers", "torch", "transformers")


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
        """Hash of everything that makes this artefact what it is; counts, versions and times are left out."""
        content: dict[str, Any] = {"kind": self.kind, "kind_format": self.kind_format, "config": self.config}
        files = {name: about for name, about in self.files.items() if not name.startswith(TIMES)}
        content |= {"inputs": self.inputs, "files": files}
        return hashlib.sha256(_canonical(content)).hexdigest()


@dataclass(slots=True)
class ArtifactWriter:
    """Where to write the data files, and counts to keep in the manifest."""

    path: Path
    counts: dict[str, Any] = field(default_factory=dict)


@contextmanager
def write_artifact(
    path: Path | str, *, kind: str, config: dict[str, Any], inputs: dict[str, str], resume: bool | None = None
) -> Iterator[ArtifactWriter]:
    """Yield a writer whose folder becomes the artefact at ``path`` when the block ends without an error.

    A link is followed: the artefact it leads to is replaced, the link stays.

    Parameters
    ----------
    resume : bool, optional
        None: what a writer that failed had written is deleted. Else a folder with a `STATE` is kept, and True begins
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
    make_private_folder(path.parent)
    with _locked(path):
        _recover(path)
        if path.exists() and not (path / MANIFEST).exists():
            if not path.is_dir() or any(path.iterdir()):
                raise ArtifactError(f"{path}: exists and is not an artefact of ours; choose another place")
            path.rmdir()
        _refuse_other_kind(path, kind)
        temporary = _temporary(path) if resume is None else unfinished_path(path, kind, config, inputs)
        for part in _parts(path):
            if part != temporary or not resume or not (part / STATE).is_file():
                _delete(part)
        old_umask = os.umask(0o077)
        try:
            temporary.mkdir(mode=0o700, exist_ok=bool(resume))
            writer = ArtifactWriter(temporary)
            yield writer
            _finish(temporary, kind, config, inputs, writer.counts)
            _replace(path, temporary)
        except BaseException:
            with _signals_deferred(), suppress(OSError):  # the next writer deletes what this one cannot
                _recover(path)
                if resume is not None and temporary.exists() and not (temporary / STATE).is_file():
                    _delete(temporary)
            raise
        finally:
            os.umask(old_umask)


def _refuse_other_kind(path: Path, kind: str) -> None:
    """Raise `ArtifactError` for a result of another sort, which a caller of ``--out`` does not mean to lose."""
    held = _read_object(path / MANIFEST).get("kind", kind)  # one that cannot be read is replaced
    if held != kind:
        raise ArtifactError(f"{path}: holds an artefact of kind {held}; choose another place for one of kind {kind}")


def read_manifest(path: Path | str) -> Manifest:
    """Read the manifest of an artefact.

    Raises
    ------
    ArtifactError
        There is no artefact, it is of another format, or a data file is missing or has another size.
    """
    path = Path(path)
    real = Path(os.path.realpath(path))
    if not real.exists() and _backup_of(real).exists():
        with _locked(real):
            _recover(real)
    try:
        content = parse_json((path / MANIFEST).read_bytes())
        if content.pop("format") != FORMAT:
            raise ArtifactError(f"{path}: an artefact of another format; expected {FORMAT}")
        manifest = Manifest(**content)
        files = {name: (about["num_bytes"], about["sha256"]) for name, about in manifest.files.items()}
    except (FileNotFoundError, NotADirectoryError):
        raise ArtifactError(f"{path}: no artefact here (no {MANIFEST})") from None
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ArtifactError(f"{path / MANIFEST}: not a readable manifest") from None
    except OSError as error:
        if error.errno is None:  # ours
            raise
        raise ArtifactError(f"{path / MANIFEST}: cannot be read ({_reason(error)})") from None
    for name, (num_bytes, _) in files.items():
        if not (path / name).is_file() or (path / name).stat().st_size != num_bytes:
            raise ArtifactError(f"{path / name}: missing, or not of the size its manifest says")
    return manifest


def require_kind(path: Path | str, kind: str) -> Manifest:
    """Read the manifest of an artefact that must be of this kind, in the format of this version of Reticent."""
    manifest = read_manifest(path)
    if manifest.kind != kind:
        raise ArtifactError(f"{path}: an artefact of kind {manifest.kind}, expected {kind}")
    if manifest.kind_format != _format_of(kind):
        raise ArtifactError(
            f"{path}: written by another version of Reticent (format {manifest.kind_format} of {kind}, expected "
            f"{_format_of(kind)}); make it again"
        )
    return manifest


def is_up_to_date(path: Path | str, *, kind: str, config: dict[str, Any], inputs: dict[str, str]) -> bool:
    """Say whether the artefact at ``path`` was made from this configuration and these inputs, in this version's format,
    and is to the last byte what was written. Cost: one pass over its files.
    """
    try:
        manifest = require_kind(path, kind)
        if _canonical(manifest.config) != _canonical(config) or manifest.inputs != inputs:
            return False
        _verify(Path(path), manifest)
    except ArtifactError:
        return False
    return True


def fingerprint(path: Path | str) -> str:
    """Hash of an artefact (from its manifest), of a file, or of every file under a folder. Cost: one pass over them.

    Raises
    ------
    ArtifactError
        There is nothing, a file cannot be read, or an artefact is not what its manifest says.
    """
    path = Path(path)
    if path.is_dir() and (path / MANIFEST).exists():
        manifest = read_manifest(path)
        _verify(path, manifest)
        return manifest.digest
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file() and not file.name.startswith("."))
        content = {str(file.relative_to(path)): _hash_file(file) for file in files}
        return hashlib.sha256(_canonical(content)).hexdigest()
    if path.is_file():
        return _hash_file(path)
    raise ArtifactError(f"{path}: no such file or folder")


def holds_results(folder: Path) -> bool:
    """Say whether a folder is an artefact or a run folder: its files are results, and not documents.

    Generated and scrubbed documents (kinds "synth" and "scrub") are documents.
    """
    manifest, job = _read_object(folder / MANIFEST), _read_object(folder / JOB)
    artefact = str(manifest.get("format", "")).startswith(FORMAT.partition("/")[0] + "/")
    return (artefact and manifest.get("kind") not in ("synth", "scrub")) or {
        "out",
        "corpus",
        "protect",
        "audit",
    } <= job.keys()


def _read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty where there is none."""
    try:
        content = parse_json(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def delete_artifact(path: Path) -> None:
    """Delete an artefact, so that it is gone whole; its lock stays. Nothing is done where there is none."""
    if (path / MANIFEST).exists():
        with _locked(path):
            _delete(path)


def nest_artifact(path: Path, name: str) -> None:
    """Move the artefact at ``path`` to ``path/name``; nothing is done where there is none.

    Two renames in a row; a crash before them leaves it where it was.
    """
    if not (path / MANIFEST).exists():
        return
    with _locked(path):
        backup, nested = _backup_of(path), _temporary(path)
        nested.mkdir(mode=0o700)
        path.rename(backup)  # from where `_recover` brings it back
        nested.rename(path)
        backup.rename(path / name)
        _sync(path.parent)


def write_private(path: Path, content: bytes) -> None:
    """Write a file (0600) whole or not at all, whatever kills the writer."""
    with _locked(path):
        _recover(path)
        temporary = _temporary(path)
        try:
            temporary.touch(mode=0o600)
            temporary.write_bytes(content)
            _sync(temporary)
            temporary.replace(path)
            _sync(path.parent)
        except BaseException:
            with _signals_deferred(), suppress(OSError):
                _recover(path)
            raise


def recover_folder(folder: Path) -> None:
    """Recover every artefact of a run folder, also those that the job at hand has no stage for, so that no text of a
    document lies in a forgotten place. Artefacts that another process is writing are left alone.

    Raises
    ------
    ArtifactError
        Something cannot be deleted.
    """
    if not (folder / JOB).is_file():  # nothing of ours
        return
    for path in _interrupted(folder):
        try:
            with _locked(path):
                _recover(path)
        except _InUseError:
            continue
        except OSError as error:
            if error.errno is None:  # ours
                raise
            raise ArtifactError(f"{path}: what an interrupted run left cannot be deleted ({_reason(error)})") from None


def unfinished_path(path: Path, kind: str, config: dict[str, Any], inputs: dict[str, str]) -> Path:
    """Return where a writer that may be interrupted makes this artefact, of this configuration and these inputs."""
    path = Path(os.path.realpath(path))
    digest = hashlib.sha256(_canonical([kind, _format_of(kind), config, inputs])).hexdigest()
    return path.parent / f".{path.name}.part-{digest[:12]}"


def delete_unfinished(folder: Path) -> None:
    """Wipe every folder under ``folder`` that a writer left to go on from; what is being written is left alone."""
    for part in list(folder.rglob(f".*.part-{'[0-9a-f]' * 12}")):
        path = part.with_name(part.name[1:].rpartition(".part-")[0])
        with suppress(_InUseError), _locked(path):
            _delete(part)


def make_private_folder(path: Path) -> None:
    """Make a folder and what is missing above it, all 0700; a folder that is there keeps its mode."""
    if not path.exists():
        make_private_folder(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)


def _format_of(kind: str) -> int:
    return FORMATS.get(kind, 1)


def _verify(path: Path, manifest: Manifest) -> None:
    """Raise `ArtifactError` where a file is not, byte for byte, what was written."""
    for name, about in manifest.files.items():
        if _hash_file(path / name) != about["sha256"]:
            raise ArtifactError(f"{path / name}: changed since it was written; make it again")


def _reason(error: OSError) -> str:
    """Message of a system error, with its file."""
    said = os.strerror(error.errno) if error.errno is not None else type(error).__name__
    return f"{said}: {error.filename}" if error.filename else said


def _errno(error: Exception) -> int | None:
    """The system's error number; libraries written in Rust raise exceptions of their own, and quote it."""
    if isinstance(error, OSError):
        return error.errno
    if isinstance(error, ReticentError):
        return None
    quoted = re.search(r"\(os error (\d+)\)", str(error))
    return int(quoted[1]) if quoted else None


def _canonical(content: Any) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _hash_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read ({_reason(error)})") from None


def _finish(folder: Path, kind: str, config: dict[str, Any], inputs: dict[str, str], counts: dict[str, Any]) -> None:
    """Make every file durable and private, then write the manifest."""
    files = {}
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        file.chmod(0o600)
        _sync(file)
        files[str(file.relative_to(folder))] = {"sha256": _hash_file(file), "num_bytes": file.stat().st_size}
    content: dict[str, Any] = {"format": FORMAT, "kind": kind, "kind_format": _format_of(kind), "config": config}
    content |= {"inputs": inputs, "files": files, "counts": counts, "versions": _versions()}
    manifest = folder / MANIFEST
    manifest.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")
    manifest.chmod(0o600)
    _sync(manifest)
    for directory in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        directory.chmod(0o700)
        _sync(directory)


@cache
def _versions() -> dict[str, str]:
    """Versions of the packages that are installed, read once: finding them takes longer than writing a small file."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in ("reticent", *PACKAGES):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _replace(path: Path, temporary: Path) -> None:
    """Put ``temporary`` at ``path``. A crash between two renames is recovered by `_recover`."""
    backup = _backup_of(path)
    replaces = path.exists()
    if replaces:
        path.rename(backup)
    try:
        temporary.rename(path)
        _sync(path.parent)
    except BaseException:
        if path.exists():
            path.rename(temporary)
        raise
    if replaces:
        _delete(backup)


def _backup_of(path: Path) -> Path:
    """Where the old result stands while the new one takes its place."""
    return path.parent / f".{path.name}.old"


def _temporary(path: Path) -> Path:
    """A new name for what is not yet a result."""
    return path.parent / f".{path.name}.tmp-{uuid.uuid4().hex[:12]}"


def _parts(path: Path) -> list[Path]:
    """Folders that unfinished writers of ``path`` left to go on from."""
    return list(path.parent.glob(f".{glob.escape(path.name)}.part-{'[0-9a-f]' * 12}"))


def _leftovers(path: Path) -> list[Path]:
    """Leftovers of an interrupted writer of ``path`` beside it."""
    found = list(path.parent.glob(f".{glob.escape(path.name)}.tmp-{'[0-9a-f]' * 12}"))
    return [*found, backup] if (backup := _backup_of(path)).exists() else found


def _interrupted(folder: Path) -> list[Path]:
    """Places in a run folder, links followed, beside which a writer left something."""
    found = set()
    for name, folders, files in os.walk(folder, followlinks=True):
        real = Path(os.path.realpath(name))
        if MANIFEST in files:
            folders.clear()
            continue
        for entry in (*folders, *files):
            if match := re.fullmatch(r"\.(.+)\.(old|tmp-[0-9a-f]{12})", entry):
                # A folder in .old is ours where there is a result, in it or in its place.
                if match[2] != "old" or any((real / at / MANIFEST).exists() for at in (entry, match[1])):
                    found.add(real / match[1])
            elif (real / entry).is_symlink() and _leftovers(there := Path(os.path.realpath(real / entry))):
                found.add(there)
        deepest = len(Path(name).relative_to(folder).parts) == 3  # models/MODEL/RECIPE/seed-0
        folders[:] = [entry for entry in folders if not entry.startswith(".") and not deepest]
    return sorted(found)


def _recover(path: Path) -> None:
    """Bring back an old result that a crash left as a backup, and delete the leftovers of an interrupted writer."""
    for leftover in _leftovers(path):
        if leftover == _backup_of(path) and not path.exists() and (leftover / MANIFEST).exists():
            leftover.rename(path)
        else:
            _delete(leftover)


def _delete(path: Path) -> None:
    """Delete a file or folder; the manifest first, so that what is half deleted is never brought back."""
    if path.is_dir():
        (path / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(path)
    else:
        path.unlink()


@contextmanager
def _signals_deferred() -> Iterator[None]:
    """Hold signals back, so that a second Ctrl-C does not stop the clean-up that the first one began."""
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


class _InUseError(ArtifactError):
    """Another process has the lock."""


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the artefact's lock; `ArtifactError` when another process has it."""
    # Imported here: it takes 35 ms, which `--help` would pay too. A lock costs 0.15 ms (flock by hand: 0.02) and is
    # let go by name: a process forked meanwhile, which has the file open too, does not hold it on.
    from filelock import FileLock, Timeout

    # No fall-back to a lock that is a file's existence: a process that is killed would leave it locked for good.
    lock = FileLock(path.parent / f".{path.name}.lock", mode=0o600, blocking=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        raise _InUseError(f"{path}: in use by another process; wait until it ends, or stop it") from None
    except OSError as error:
        raise ArtifactError(f"{path.parent}: cannot be written ({_reason(error)})") from None
    try:
        yield
    finally:
        lock.release()


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
