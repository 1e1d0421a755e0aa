"""Detectors by name: where each class is, which options it takes, and which of them are files.

A detector's options are the keyword arguments of its class; a job gives them as the table ``[detect.<name>]``. They
are checked against the class's signature, for which no library of a detector is imported: those are imported when a
detector is made.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from reticent.core.errors import PolicyError
from reticent.engine.detect.detector import Detector
from reticent.engine.identity import Ids

__all__ = ["DETECTORS", "FILES", "PERHAPS_FILES", "check_options", "make_detectors", "option_files"]

#: Name -> module of this package and class.
DETECTORS: Final[Mapping[str, tuple[str, str]]] = {
    "gold": ("gold", "GoldDetector"),
    "rules": ("rules", "RulesDetector"),
    "records": ("records", "RecordsDetector"),
    "gazetteer": ("gazetteer", "GazetteerDetector"),
    "spacy": ("spacy", "SpacyDetector"),
    "transformers": ("transformers", "TransformersDetector"),
    "presidio": ("presidio", "PresidioDetector"),
    "eds": ("eds", "EdsDetector"),
}
#: Options that are files always, and those that may be a file, a folder or a name that is known elsewhere.
FILES: Final = ("table", "lists", "common")
PERHAPS_FILES: Final = ("pipeline", "model", "path")
#: An example of each option that a detector cannot do without.
_EXAMPLES: Final = {
    "table": '"records.parquet"',
    "lists": '{ CITY = "cities.txt" }',
    "pipeline": '"pipeline name or path"',
    "model": '"model folder or hub name"',
    "path": '"folder"',
}
#: Keyword arguments that are no options: the job says them of its documents.
_OF_CORPUS: Final = ("ids",)
#: Detectors that cannot do without one of several options.
_ONE_OF: Final = {"records": ("table", "columns")}


def make_detectors(
    names: Sequence[str],
    options: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    num_threads: int = 0,
    ids: Ids = "stop",
) -> list[Detector]:
    """Return the detectors of these names, in their order.

    Parameters
    ----------
    options : detector -> its options, the keyword arguments of its class
    ids : as the corpus is opened (:func:`reticent.engine.corpus.open_corpus`)

    Raises
    ------
    PolicyError
        No such detector or option, an option that is needed is missing, or a library is not installed.

    >>> [detector.name for detector in make_detectors(["gold", "rules"], {"rules": {"labels": ["EMAIL"]}})]
    ['gold', 'rules']
    """
    detectors = []
    for name in names:
        given = dict((options or {}).get(name, {}))
        check_options(name, given)
        kind = _class(name)
        parameters = inspect.signature(kind).parameters
        if "num_threads" in parameters:
            given.setdefault("num_threads", num_threads)
        if "ids" in parameters:
            given["ids"] = ids
        detectors.append(kind(**given))
    return detectors


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Raise `PolicyError` unless the detector exists, has these options, and needs no other one."""
    every = inspect.signature(_class(name)).parameters
    parameters = {option: parameter for option, parameter in every.items() if option not in _OF_CORPUS}
    for option in options:
        if option not in parameters:
            known = ", ".join(parameters) or "it has none"
            raise PolicyError(f"detector {name} has no option {option!r} (detect.{name}.{option}); expected {known}")
    for option, parameter in parameters.items():
        if parameter.default is parameter.empty and options.get(option) in (None, "", {}, []):
            example = _EXAMPLES.get(option, "…")
            raise PolicyError(f"detector {name} needs detect.{name}.{option} = {example}")
    if name in _ONE_OF and not any(options.get(option) for option in _ONE_OF[name]):
        first, *others = _ONE_OF[name]
        raise PolicyError(f"detector {name} needs detect.{name}.{first} = {_EXAMPLES[first]}, or {', '.join(others)}")


def option_files(options: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, Path]]:
    """Yield (which option, path) of every file and folder that these detectors read."""
    for name, table in options.items():
        for option, value in table.items():
            values = value if isinstance(value, Mapping) else {"": value}
            for key, path in values.items():
                certain = option in FILES
                if isinstance(path, str | Path) and (certain or (option in PERHAPS_FILES and Path(path).exists())):
                    yield f"{name}.{option}" + (f".{key}" if key else ""), Path(path)


def _class(name: str) -> Any:
    if name not in DETECTORS:
        *most, last = DETECTORS
        raise PolicyError(f"unknown detector {name!r}; expected {', '.join(most)} or {last}")
    module, kind = DETECTORS[name]
    return getattr(importlib.import_module(f"reticent.engine.detect.{module}"), kind)
