"""Files of documents in folders and globs: the files that are read, and those that are skipped, with the reason.

Nothing is skipped in silence. A file that is no document is counted under its reason. A folder that cannot be listed,
or a broken link in the place of a document, is an error that names it.
"""

from __future__ import annotations

import errno
import functools
import glob
import itertools
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from reticent.core.artifact import holds_results
from reticent.core.errors import CorpusError
from reticent.engine.sources.found import FOLDERS, HIDDEN, LINKS, NOTHING, OTHERS, RESULTS, SPECIAL, Found

__all__ = ["find_files"]


def find_files(sources: Sequence[str | Path], is_document: Callable[[Path], bool]) -> Found:
    """Find the files of documents among files, folders and globs; a file that is named, or that a glob matches, is one.

    In folders, hidden entries, linked folders, run folders and artefacts, and what ``is_document`` does not hold for
    are passed over; where a glob looks, run folders and artefacts are.

    Raises
    ------
    CorpusError
        A folder cannot be listed, a file cannot be looked at, a link to a document leads nowhere, a source is neither
        file nor folder, is empty or holds results of ours only.
    """
    if "" in sources:  # what a shell makes of a variable that is not set
        raise CorpusError("a source is empty; name a file, a folder (. is the current one) or a glob")
    found, files, seen = Found(), set[Path](), set[Path]()
    for source in map(Path, sources):
        for path in _named(source, found, is_document, seen):
            files.add(path)
    # The order of the documents depends neither on the spelling of the sources nor on the working folder.
    found.files = tuple(sorted(files, key=os.path.abspath))
    if seen:
        found.passed_over[RESULTS] = len(seen)
    return found


def _named(source: Path, found: Found, is_document: Callable[[Path], bool], results: set[Path]) -> Iterator[Path]:
    mode = _mode(source)
    if mode is not None and stat.S_ISDIR(mode):
        if holds_results(source):
            raise CorpusError(f"{source}: a run folder or an artefact, which holds results and no documents")
        yield from _in_folder(source, found, is_document, results)
    elif mode is not None:
        if not stat.S_ISREG(mode):
            raise CorpusError(f"{source}: neither a file nor a folder; documents are read more than once, from files")
        yield source
    elif os.path.islink(source):
        raise CorpusError(f"{source}: a link to nothing; repair the link")
    else:
        yield from _of_glob(source, found, results)


def _in_folder(source: Path, found: Found, is_document: Callable[[Path], bool], results: set[Path]) -> Iterator[Path]:
    folders = [source]
    while folders:
        folder = folders.pop()
        for entry in _entries(folder):
            path = folder / entry.name
            if entry.name.startswith("."):
                found.passed_over[HIDDEN] += 1
            elif entry.is_dir(follow_symlinks=False):
                if holds_results(path):
                    results.add(path)
                else:
                    folders.append(path)
            elif (mode := _mode(path)) is None:
                if is_document(path):
                    raise CorpusError(f"{path}: a link to nothing; repair the link or take it away")
                found.passed_over[NOTHING] += 1
            elif stat.S_ISDIR(mode):
                found.passed_over[LINKS] += 1
            elif not stat.S_ISREG(mode):
                found.passed_over[SPECIAL] += 1
            elif is_document(path):
                yield path
            else:
                found.passed_over[OTHERS] += 1
                if re.fullmatch(r"\.[A-Za-z0-9]{1,5}", path.suffix):
                    found.other_suffixes.add(path.suffix.lower())


def _of_glob(source: Path, found: Found, results: set[Path]) -> Iterator[Path]:
    parts = source.parts
    named = list(itertools.takewhile(lambda part: not re.search(r"[*?[]", part), parts))
    for length in range(max(len(named), 1), len(parts)):  # `glob` reports no error for a folder that it cannot list
        for folder in glob.glob(os.path.join(*parts[:length], ""), recursive=True):
            _entries(Path(folder))
    holds = functools.cache(holds_results)
    for path in map(Path, glob.glob(str(source), recursive=True)):
        within = {folder for folder in path.parents if len(folder.parts) > len(named) and holds(folder)}
        results |= within
        mode = _mode(path)
        if within:
            continue
        if mode is None:
            raise CorpusError(f"{path}: a link to nothing; repair the link or take it away")
        if stat.S_ISREG(mode):
            yield path
        elif stat.S_ISDIR(mode):
            if "**" not in parts:  # which goes into it
                found.passed_over[FOLDERS] += 1
        else:
            found.passed_over[SPECIAL] += 1


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise CorpusError(f"{folder}: cannot be listed ({error.strerror}); its documents would be missing") from None


def _mode(path: Path) -> int | None:
    """Return the file status of a path, links followed; None where no file exists."""
    try:
        return os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if os.path.islink(path) and error.errno == errno.ELOOP:
            return None
        raise CorpusError(f"{path}: cannot be read ({error.strerror})") from None
