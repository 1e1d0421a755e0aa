"""The job that a run folder keeps: its paths lead to the same files from any directory, and when the folder moves.

The job is kept with absolute paths. If the folder has moved, a path that was inside it is looked for inside it. Any
other path is looked for where it was and, if it does not exist any more, where it would be had it moved along with the
folder. Names, such as those of the hub, are no paths.
"""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from reticent.core.errors import PolicyError, ReticentError
from reticent.core.json_toml import read_json
from reticent.core.manifest import JOB
from reticent.job.config.job import Job, load_job, parse_job

__all__ = ["changed_sections", "kept_content", "load_kept_job", "require_withdrawals"]

#: Fields that are always paths, and fields that may also be a name, such as one of the hub.
PATHS = (
    *("corpus.source", "corpus.withdrawn", "model.foundation.vocabulary", "probe.subjects", "probe.templates"),
    *("train.dp.budget_file", "model.train.dp.budget_file", "dossier.key"),
)
PERHAPS_PATHS = ("model.base", "model.foundation.text", "surrogates.pool", "surrogates.names")
#: Values of these that are no path, though a file may be called so.
WORDS = ("reference", "generated", "realistic", "syllables")


def kept_content(job: Job) -> bytes:
    """Return the content of ``job.json`` for a job whose relative paths start at the current directory."""

    def absolute(path: str, certain: bool) -> str:
        is_name = not path or "://" in path or not (certain or _is_there(path))
        return path if is_name else os.path.abspath(path if _is_there(path) else os.path.expanduser(path))

    values = _changed(job.model_dump(mode="json"), absolute)
    return json.dumps({**values, "out": os.path.abspath(job.out)}, indent=1).encode()


def changed_sections(file: Path, content: bytes) -> list[str]:
    """Return the sections in which the job in ``file`` differs from another (`kept_content`), and "corpus.source";
    none if there is no job there that can be read."""
    try:
        before = json.loads(kept_content(load_kept_job(file)))
    except (ReticentError, OSError):
        return []
    now = json.loads(content)
    changed = [name for name in now if name != "out" and before.get(name) != now[name]]
    moved = "corpus" in changed and before["corpus"].get("source") != now["corpus"].get("source")
    return ["corpus.source" if name == "corpus" and moved else name for name in changed]


def load_kept_job(file: Path) -> Job:
    """Read the ``job.json`` of a run folder; its ``out`` is where that folder is now."""
    job, folder = load_job(file), file.parent

    def found(path: str, certain: bool) -> str:
        inside = os.path.relpath(path, job.out) if path and os.path.isabs(path) == os.path.isabs(job.out) else None
        if inside is None or "://" in path:
            return path
        moved = os.path.normpath(folder / inside)
        if not inside.startswith(os.pardir):
            return moved if certain or _is_there(moved) else path
        # Earlier versions kept relative paths, and did not record the directory that they start at.
        places = (path, moved) if os.path.isabs(path) else (moved, path)
        return next(filter(_is_there, places), path)

    return parse_job({**_changed(job.model_dump(), found), "out": str(folder)}, str(file))


def require_withdrawals(job: Job) -> None:
    """Raise `PolicyError` if an individual whom the job of the run folder leaves out as withdrawn would come back."""
    file = Path(job.out) / JOB
    if not file.exists() or not _withdraws(read_json(file)):
        return
    now = {Path(path).resolve() for path in job.corpus.withdrawn}
    gone = {line for path in now for line in _lines(path) or ()}
    for path in load_kept_job(file).corpus.withdrawn:
        lines = _lines(Path(path))
        if Path(path).resolve() not in now and (lines is None or lines - gone):
            raise PolicyError(
                f"{job.out}: leaves out who withdrew in {path}, and individuals of that list would come back; name it "
                "again (`reticent update --remove`, corpus.withdrawn of a job), or choose another --out"
            )


def _withdraws(values: Any) -> bool:
    corpus = values.get("corpus") if isinstance(values, dict) else None
    return isinstance(corpus, dict) and bool(corpus.get("withdrawn"))


def _lines(file: Path) -> set[str] | None:
    """Return the lines of a list of ids; None if it cannot be read."""
    try:
        return set(filter(None, map(str.strip, file.read_text(encoding="utf-8-sig").split("\n"))))
    except (OSError, UnicodeDecodeError):
        return None


def _is_there(path: str) -> bool:
    return os.path.exists(path) or next(glob.iglob(path, recursive=True), None) is not None


def _changed(values: dict[str, Any], change: Callable[..., str]) -> dict[str, Any]:
    """Return a copy of a job's values with every path replaced by ``change(path, is_certainly_a_path)``."""
    for field, certain in _fields():
        values = _at(values, field.split("."), partial(change, certain=certain))
    return values


def _fields() -> Iterator[tuple[str, bool]]:
    from reticent.engine.detect.choose import DETECTORS

    yield from ((field, True) for field in PATHS)
    yield from ((field, False) for field in PERHAPS_PATHS)
    for name, row in DETECTORS.items():
        yield from ((f"detect.{name}.{option}", True) for option in row.files)
        yield from ((f"detect.{name}.{option}", False) for option in row.perhaps_files)


def _at(node: Any, keys: list[str], change: Callable[[str], str]) -> Any:
    if isinstance(node, list | tuple):
        return [_at(each, keys, change) for each in node]
    if keys and isinstance(node, dict):
        return {**node, keys[0]: _at(node[keys[0]], keys[1:], change)} if keys[0] in node else node
    if isinstance(node, dict):
        return {key: _at(each, [], change) for key, each in node.items()}
    return change(node) if isinstance(node, str) and not keys and node not in WORDS else node
