"""The seal of a dossier: a list of the SHA-256 of its files, and the signature of that list by an SSH key.

Both are checked without Reticent: ``sha256sum -c SHA256SUMS``, ``ssh-keygen -Y verify -n reticent-dossier …``.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from reticent.core.artifact import JOB, MANIFEST, hash_file
from reticent.core.errors import ArtifactError

EVIDENCE, SUMS, SIGNATURE = "evidence.json", "SHA256SUMS", "SHA256SUMS.sig"
#: Purpose of the signature; a signature for another purpose is not valid.
NAMESPACE = "reticent-dossier"
_LINE = re.compile(r"([0-9a-f]{64})  (\S.*)")


def signed_files(folder: Path) -> list[str]:
    """Return the relative paths of all files of a dossier that its list of digests must cover."""
    files = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file() or path.is_symlink())
    # The run folder is its parent; of a dossier that was replaced, the parent of that.
    in_run = any((parent / JOB).is_file() for parent in folder.absolute().parents[:2])
    unlisted = {SUMS, SIGNATURE, MANIFEST} if in_run else {SUMS, SIGNATURE}
    return sorted(name for name in files if name not in unlisted)


def seal(folder: Path, key: str | None) -> None:
    """Write a dossier's list of file digests and, if a key is given, its SSH signature.

    Raises
    ------
    ArtifactError
        The key cannot be used, or ssh-keygen is not installed.
    """
    lines = (f"{hash_file(folder / name)}  {name}\n" for name in signed_files(folder))
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")
    if key is not None:
        run_ssh_keygen(["-Y", "sign", "-f", str(Path(key).expanduser()), "-n", NAMESPACE, str(folder / SUMS)])


def dossier_digest(folder: Path) -> str:
    """Return the SHA-256 of a dossier's list of digests, which identifies the dossier."""
    return hash_file(folder / SUMS)


def read_sums(folder: Path) -> dict[str, str]:
    """Return file name -> SHA-256 from the list of digests; raise `ArtifactError` if it is missing or malformed."""
    try:
        lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise ArtifactError(
            f"{folder}: no dossier here (no readable {SUMS}); `reticent dossier RUN` makes RUN/dossier"
        ) from None
    found = [_LINE.fullmatch(line) for line in lines]
    digests = {match[2]: match[1] for match in found if match}
    if not all(found) or not found or len(digests) < len(found):  # of a name that stands twice, which one holds?
        raise ArtifactError(f"{folder / SUMS}: not a list of digests")
    return digests


def fingerprint_of_key(key: str) -> str:
    """Return the fingerprint of an SSH key file, ``SHA256:…``, as ssh-keygen prints it."""
    return _parse_fingerprint(run_ssh_keygen(["-l", "-f", str(Path(key).expanduser())]))


def _parse_fingerprint(output: str) -> str:
    """Return the key fingerprint in the ``output`` of ssh-keygen."""
    found = re.search(r"SHA256:[A-Za-z0-9+/]+", output)
    if found is None:
        raise ArtifactError("ssh-keygen: no fingerprint in its answer")
    return found[0]


def run_ssh_keygen(arguments: Sequence[str], stdin: bytes | None = None) -> str:
    """Return the output of ssh-keygen; raise `ArtifactError` if it fails or is not installed."""
    try:
        done = subprocess.run(["ssh-keygen", *arguments], input=stdin, capture_output=True, check=False)
    except OSError:
        raise ArtifactError("ssh-keygen cannot be started: signatures need OpenSSH 8.1 or newer") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise ArtifactError(f"ssh-keygen: {'; '.join(said) or 'failed'}")
    return (done.stdout + done.stderr).decode(errors="replace")
