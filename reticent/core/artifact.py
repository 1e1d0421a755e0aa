"""Artefacts: folders that hold a whole result or do not exist. The only place that writes results.

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
(:mod:`reticent.core.verified`).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reticent.core.deletion import delete, discard
from reticent.core.errors import ArtifactError, ReticentError
from reticent.core.json_toml import parse_json
from reticent.core.leftovers import backup_of, interrupted_in, is_vacant, leftovers_of, parts_of, temporary_of
from reticent.core.locks import InUseError, locked, signals_deferred
from reticent.core.manifest import (
    FORMAT,
    JOB,
    MANIFEST,
    STATE,
    Manifest,
    canonical,
    format_of,
    hash_file,
    read_object,
    reason,
    verify,
    versions,
)
from reticent.core.written import written_digest

__all__ = [
    "ArtifactWriter",
    "Manifest",
    "delete_artifact",
    "delete_unfinished",
    "fingerprint",
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
        None: the files of a writer that failed are deleted. Else a folder with a `STATE` is kept, and True begins
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
    with locked(path):
        _recover(path)
        if path.exists() and not (path / MANIFEST).exists():
            if not path.is_dir() or any(path.iterdir()):
                raise ArtifactError(f"{path}: exists and is not an artefact of ours; choose another place")
            path.rmdir()
        _refuse_other_kind(path, kind)
        _free_backup_of(path)
        temporary = temporary_of(path) if resume is None else unfinished_path(path, kind, config, inputs)
        for part in parts_of(path):
            if part != temporary or not resume or not (part / STATE).is_file():
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
                if resume is not None and temporary.exists() and not (temporary / STATE).is_file():
                    delete(temporary)
            raise
        finally:
            os.umask(old_umask)


def _refuse_other_kind(path: Path, kind: str) -> None:
    """Raise `ArtifactError` for a result of another sort, which a caller of ``--out`` does not mean to lose."""
    held = read_object(path / MANIFEST).get("kind", kind)  # one that cannot be read is replaced
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
    if is_vacant(real) and backup_of(real).exists():
        with locked(real):
            _recover(real)
    try:
        content = parse_json((path / MANIFEST).read_bytes())
        if content.pop("format") != FORMAT:
            raise ArtifactError(f"{path}: an artefact of another format; expected {FORMAT}")
        manifest = Manifest(**content)
        if not all(isinstance(part, dict) for part in (manifest.config, manifest.inputs, manifest.counts)):
            raise ValueError
        files = {name: (about["num_bytes"], about["sha256"]) for name, about in manifest.files.items()}
    except (FileNotFoundError, NotADirectoryError):
        raise ArtifactError(
            f"{path}: no artefact here (no {MANIFEST}): what makes it was not run, or did not finish"
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
    """Read the manifest of an artefact that must be of this kind, in the format of this version of Reticent."""
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
    """Say whether the artefact at ``path`` was made from this configuration and these inputs, in this version's format,
    and is as it was written, to the last byte. Cost: one pass over its files.

    ``check`` raises `ArtifactError` where a file is not as it was written; a job's trusts files that have not changed
    since they were hashed (:class:`reticent.core.verified.VerifiedFiles`).
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
    """Hash of an artefact (from its manifest), of a file, or of every file under a folder. Cost: one pass over them.

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
    """Delete an artefact, so that it is gone whole; its lock stays. Nothing is done where there is none."""
    if (path / MANIFEST).exists():
        with locked(path):
            delete(path)


def nest_artifact(path: Path, name: str) -> None:
    """Move the artefact at ``path`` to ``path/name``, or leave it there whole; nothing is done where there is none."""
    if not (path / MANIFEST).exists():
        return
    with locked(path):
        _recover(path)
        backup, nested = _free_backup_of(path), temporary_of(path)
        nested.mkdir(mode=0o700)
        path.rename(backup)  # from where `_recover` brings it back
        nested.rename(path)
        backup.rename(path / name)
        _sync(path.parent)


def write_private(path: Path, content: bytes) -> None:
    """Write a file (0600) whole or not at all, whatever kills the writer."""
    with locked(path):
        _recover(path)
        temporary = temporary_of(path)
        try:
            temporary.touch(mode=0o600)
            temporary.write_bytes(content)
            _sync(temporary)
            temporary.replace(path)
            _sync(path.parent)
        except BaseException:
            with signals_deferred(), suppress(OSError):
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
    """Return where a writer that may be interrupted makes this artefact, of this configuration and these inputs."""
    path = Path(os.path.realpath(path))
    digest = hashlib.sha256(canonical([kind, format_of(kind), config, inputs])).hexdigest()
    return path.parent / f".{path.name}.part-{digest[:12]}"


def delete_unfinished(folder: Path) -> None:
    """Delete the folders under ``folder`` that writers left to go on from; one that is being written is left alone."""
    for part in list(folder.rglob(f".*.part-{'[0-9a-f]' * 12}")):
        path = part.with_name(part.name[1:].rpartition(".part-")[0])
        with suppress(InUseError), locked(path):
            delete(part)


def make_private_folder(path: Path) -> None:
    """Make a folder and those missing above it, all 0700; a folder that is there keeps its mode."""
    if not path.exists():
        make_private_folder(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)


def _errno(error: Exception) -> int | None:
    """The system's error number; libraries written in Rust raise exceptions of their own, and quote it."""
    if isinstance(error, OSError):
        return error.errno
    if isinstance(error, ReticentError):
        return None
    quoted = re.search(r"\(os error (\d+)\)", str(error))
    return int(quoted[1]) if quoted else None


def _finish(folder: Path, kind: str, config: dict[str, Any], inputs: dict[str, str], counts: dict[str, Any]) -> None:
    """Make every file durable and private, then write the manifest."""
    files = {}
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        file.chmod(0o600)
        _sync(file)
        digest = written_digest(file) or hash_file(file)
        files[str(file.relative_to(folder))] = {"sha256": digest, "num_bytes": file.stat().st_size}
    content: dict[str, Any] = {"format": FORMAT, "kind": kind, "kind_format": format_of(kind), "config": config}
    content |= {"inputs": inputs, "files": files, "counts": counts, "versions": versions()}
    manifest = folder / MANIFEST
    manifest.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")
    manifest.chmod(0o600)
    _sync(manifest)
    for directory in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        directory.chmod(0o700)
        _sync(directory)


def _replace(path: Path, temporary: Path) -> None:
    """Put ``temporary`` at ``path``. A crash between two renames is recovered by `_recover`."""
    backup = backup_of(path)
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
        discard(backup, temporary_of(path))


def _recover(path: Path) -> None:
    """Bring back an old result that a crash left as a backup, and delete the leftovers of an interrupted writer."""
    for leftover in leftovers_of(path):
        if leftover != backup_of(path):
            delete(leftover)
        elif is_vacant(path):
            leftover.rename(path)
        else:
            discard(leftover, temporary_of(path))


def _free_backup_of(path: Path) -> Path:
    """Return the place of the backup, after `_recover`, which leaves there only what is not ours."""
    if os.path.lexists(backup := backup_of(path)):
        raise ArtifactError(f"{backup}: not ours, and in the place of a backup; move it away")
    return backup


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
