"""Manifests: the identity of an artefact, the version of each kind, and how its files are hashed.

Nothing is written here; :mod:`reticent.core.artifact` does, and reads manifests.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from reticent.core.errors import ArtifactError
from reticent.core.json_toml import parse_json

__all__ = [
    "FORMAT",
    "FORMATS",
    "JOB",
    "MANIFEST",
    "STATE",
    "Manifest",
    "canonical",
    "format_of",
    "hash_file",
    "holds_results",
    "read_object",
    "reason",
    "verify",
    "versions",
]

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
    "measures": 6,
    "shadows": 1,
    "canaries": 1,
    "extraction": 2,
    "gates": 1,
    "classification": 2,
    "audit": 2,
    "report": 1,
    "dossier": 1,
    "guard": 3,
    "tagger": 1,
}
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
        """Hash of everything that identifies this artefact; counts, versions and times are left out."""
        content: dict[str, Any] = {"kind": self.kind, "kind_format": self.kind_format, "config": self.config}
        files = {name: about for name, about in self.files.items() if not name.startswith(TIMES)}
        content |= {"inputs": self.inputs, "files": files}
        return hashlib.sha256(canonical(content)).hexdigest()


def holds_results(folder: Path) -> bool:
    """Say whether a folder is an artefact or a run folder: its files are results, and not documents.

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
    """The JSON object in a file; empty where there is none."""
    try:
        content = parse_json(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def format_of(kind: str) -> int:
    return FORMATS.get(kind, 1)


def verify(path: Path, manifest: Manifest) -> None:
    """Raise `ArtifactError` where a file is not as it was written, byte for byte."""
    for name, about in manifest.files.items():
        require_hash(path / name, about["sha256"])


def require_hash(file: Path, sha256: str) -> None:
    """Raise `ArtifactError` where a file is not as it was written."""
    if hash_file(file) != sha256:
        raise ArtifactError(f"{file}: changed since it was written; make it again")


def reason(error: OSError) -> str:
    """Message of a system error, with its file."""
    said = os.strerror(error.errno) if error.errno is not None else type(error).__name__
    return f"{said}: {error.filename}" if error.filename else said


def canonical(content: Any) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def hash_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read ({reason(error)})") from None


@cache
def versions() -> dict[str, str]:
    """Versions of the packages that are installed, read once: finding them takes longer than writing a small file."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in ("reticent", *PACKAGES):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
