"""The table of detectors: one row describes each detector; its code is one file of this folder.

A detector's options are the keyword arguments of its class; a job gives them as the table ``[detect.<name>]``. They
are checked against the class's signature, for which no library of a detector is imported: those are imported when a
detector is made. Adding a detector is adding its file and a row here.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from reticent import _rust
from reticent.core.errors import PolicyError
from reticent.core.model_folder import folder_of_model
from reticent.engine import languages
from reticent.engine.detect.detector import Detector
from reticent.engine.identity import Ids


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorRow:
    """Description of a detector: its class, options and requirements.

    Parameters
    ----------
    module, kind : module of this package, and the class in it
    about : the things it finds, in a few words
    extra : extra of the package that installs its library; None: nothing more is needed
    library : package of the library whose own rules it runs, which another version may change
    needs : options, of which one must be given, each with an example
    files : options that are files
    perhaps_files : options that are a file, a folder or a name that is known elsewhere
    from_hub : those of them whose name may be one on the hub
    published : options of text that a report shows, paths cut to their last part; it shows every number
    short : key of ``[detect]`` -> the option that it is short for
    depends : takes the options; the reason why its spans of a document depend on other documents, or nothing
    """

    name: str
    module: str
    kind: str
    about: str
    extra: str | None = None
    library: str | None = None
    needs: Mapping[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    perhaps_files: tuple[str, ...] = ()
    from_hub: tuple[str, ...] = ()
    published: tuple[str, ...] = ()
    short: Mapping[str, str] = field(default_factory=dict)
    depends: Callable[[Mapping[str, Any]], str] = lambda _: ""

    def options(self) -> dict[str, inspect.Parameter]:
        """Return the options that a user can set for this detector, by name: the parameters of its class, except
        ``ids``, which comes from the corpus settings."""
        parameters = inspect.signature(self.load()).parameters
        return {name: parameter for name, parameter in parameters.items() if name not in _OF_CORPUS}

    def load(self) -> Any:
        """Import the detector's module, and return its class."""
        return getattr(importlib.import_module(f"reticent.engine.detect.{self.module}"), self.kind)


def _why_common_words_matter(options: Mapping[str, Any]) -> str:
    """Return the reason, as text for a message, why a detector's spans in one document depend on all documents: it
    learns common words from them. Empty if its options name a list of common words or set ``guard`` to False."""
    has_list = options.get("common") or options.get("guard") is False
    return "" if has_list else "it learns the common words from all documents (the option common names a list of them)"


def _why_batches_matter(_: Mapping[str, Any]) -> str:
    """Return why a neural detector's spans in one document depend on other documents, whatever its options: rounding
    varies with the batch."""
    return "the last digits of a model's numbers depend on the documents in its batch"


#: Keyword arguments that are no options: the job says them of its documents.
_OF_CORPUS: Final = ("ids",)
_ROWS: Final = (
    DetectorRow(
        name="gold",
        module="gold",
        kind="GoldDetector",
        about="annotations in the documents",
        published=("labels",),
    ),
    DetectorRow(
        name="rules",
        module="rules",
        kind="RulesDetector",
        about="identifiers that have a form: numbers, dates, mail, titles before names",
        published=("labels",),
    ),
    DetectorRow(
        name="records",
        module="records",
        kind="RecordsDetector",
        about="fields of an individual's record in that individual's documents",
        published=("table", "fields", "columns", "common"),
        needs={"table": '"records.parquet"', "columns": '{ last_name = "surname" }'},
        files=("table", "common"),
        short={"records": "table"},
        depends=_why_common_words_matter,
    ),
    DetectorRow(
        name="gazetteer",
        module="gazetteer",
        kind="GazetteerDetector",
        about="names of lists",
        published=("lists", "surface", "common"),
        needs={"lists": '{ CITY = "cities.txt" }'},
        files=("lists", "common"),
        short={"lists": "lists"},
        depends=_why_common_words_matter,
    ),
    DetectorRow(
        name="shipped",
        module="shipped",
        kind="ShippedDetector",
        about="names, places and organisations, by a tagger of the document's language",
        published=("common",),
        files=("common",),
        depends=_why_common_words_matter,
    ),
    DetectorRow(
        name="learned",
        module="learned",
        kind="LearnedDetector",
        about="what a tagger finds that has learned from marked notes of this hospital",
        published=("teacher", "weights"),
        needs={
            "marks": '"folder of marked notes"',
            "teacher": '"thorough"',
            "certain": "true",
            "model": '"tagger.parquet"',
        },
        files=("model", "key"),
        perhaps_files=("marks",),
        depends=lambda _: "it reads how all documents write a word",
    ),
    DetectorRow(
        name="spacy",
        module="spacy",
        kind="SpacyDetector",
        about="entities of a spaCy pipeline",
        published=("pipeline", "labels", "device"),
        extra="ner",
        needs={"pipeline": '"pipeline name or path"'},
        perhaps_files=("pipeline",),
        short={"spacy": "pipeline"},
        depends=_why_batches_matter,
    ),
    DetectorRow(
        name="transformers",
        module="transformers",
        kind="TransformersDetector",
        about="entities of a token classifier of transformers",
        published=("model", "labels", "device"),
        needs={"model": '"model folder or hub name"'},
        perhaps_files=("model",),
        from_hub=("model",),
        short={"transformers": "model"},
        depends=_why_batches_matter,
    ),
    DetectorRow(
        name="presidio",
        module="presidio",
        kind="PresidioDetector",
        about="what Presidio finds",
        published=("language", "pipeline", "entities"),
        extra="presidio",
        library="presidio-analyzer",
        perhaps_files=("pipeline",),
        depends=_why_batches_matter,
    ),
    DetectorRow(
        name="eds",
        module="eds",
        kind="EdsDetector",
        about="what edsnlp finds in French notes",
        published=("pipeline", "groups", "labels"),
        extra="eds",
        library="edsnlp",
        perhaps_files=("pipeline",),
        depends=_why_batches_matter,
    ),
)
#: Every detector by name.
DETECTORS: Final[Mapping[str, DetectorRow]] = MappingProxyType({row.name: row for row in _ROWS})


def make_detectors(
    names: Sequence[str],
    options: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    num_threads: int = 0,
    ids: Ids = "stop",
) -> list[Detector]:
    """Return new detectors of these names, in order. ``options`` maps a name to the keyword arguments of its class;
    ``ids`` says how individual ids in different spellings are treated (job setting ``corpus.ids``).

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
        kind = DETECTORS[require_detector(name)].load()
        parameters = inspect.signature(kind).parameters
        if "num_threads" in parameters:
            given.setdefault("num_threads", num_threads)
        if "ids" in parameters:
            given["ids"] = ids
        detectors.append(kind(**given))
    return detectors


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Raise `PolicyError` if the detector or one of the options does not exist, or a required option is missing."""
    row = DETECTORS[require_detector(name)]
    parameters = row.options()
    for option in options:
        if option not in parameters:
            known = ", ".join(parameters) or "it has none"
            raise PolicyError(f"detector {name} has no option {option!r} (detect.{name}.{option}); expected {known}")
    if row.needs and not any(options.get(option) for option in row.needs):
        (first, example), *others = row.needs.items()
        more = f", or {', '.join(option for option, _ in others)}" if others else ""
        raise PolicyError(f"detector {name} needs detect.{name}.{first} = {example}{more}")


def option_files(options: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, Path]]:
    """Yield (option name, path) for every file and folder that detector options name; ``options`` maps a detector to
    its options."""
    for name, table in options.items():
        row = DETECTORS[require_detector(name)]
        for option, value in table.items():
            values = value if isinstance(value, Mapping) else {"": value}
            for key, path in values.items():
                if not isinstance(path, str | Path):
                    continue
                found = None
                if option in row.from_hub:
                    found = folder_of_model(path)  # of a name on the hub, what the local cache holds
                elif option in row.files or (option in row.perhaps_files and Path(path).exists()):
                    found = Path(path)
                if found is not None:
                    yield f"{name}.{option}" + (f".{key}" if key else ""), found


def option_packages(options: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the versions of the installed packages that detectors run, by package name: pipelines and models that
    their options name, and libraries with rules; ``options`` maps a detector to its options."""

    found = {}
    for name, table in options.items():
        row = DETECTORS[require_detector(name)]
        named = [table.get(option) for option in row.perhaps_files]
        packages = [value for value in named if isinstance(value, str) and value and not Path(value).exists()]
        for package in [*packages, *([row.library] if row.library else [])]:
            with suppress(PackageNotFoundError, ValueError):
                found[package] = version(package)
    return found


@cache
def rules_digest() -> str:
    """Return a short hash of all detection code and word lists; if it changes, detection may find other identifiers.

    Spans do not depend on it, or each new version would make every result of a run again: who keeps or takes over spans
    compares it.
    """
    digest = hashlib.sha256(_rust.RULES.encode())
    own = [path for path in Path(__file__).parent.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    for path in sorted([*own, Path(languages.__file__)]):  # it says which tagger reads a document
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def require_detector(name: str) -> str:
    """Return ``name`` if there is such a detector; otherwise raise `PolicyError`."""
    if name == "context":
        raise PolicyError("detector context is gone: detector shipped finds names in running text")
    if name not in DETECTORS:
        *most, last = DETECTORS
        raise PolicyError(f"unknown detector {name!r}; expected {', '.join(most)} or {last}")
    return name
