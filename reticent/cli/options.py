"""Options shared by commands, and the job made from SOURCE and options, for all commands in one
place.

SOURCE is documents, a run folder or a job file. Command-line options on documents become sections of a job, so that a
command checks, opens and searches documents exactly as `reticent run` does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from reticent.core.artifact import JOB
from reticent.core.errors import ArtifactError, CorpusError, PolicyError
from reticent.core.json_toml import parse_toml
from reticent.core.memory import explain_abort
from reticent.core.progress import JsonProgress, Progress, is_json
from reticent.engine.detect import DETECTORS
from reticent.engine.sources.corpus_config import CorpusConfig
from reticent.job.config import Job, load_job, load_kept_job, parse_job

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress, only warnings and errors.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="Run folder; made if absent, private to you.")]
Seed = Annotated[int, typer.Option(min=0, metavar="<int>", help="Equal seeds give equal documents.")]
Verify = Annotated[
    bool,
    typer.Option(
        "--verify",
        help="Read every byte of documents and finished results again, also of files that have not changed since they "
        "were last hashed: what a failing disk changed is made again.",
    ),
]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder that an earlier command made.")]
SourceOrJob = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="Documents (file, folder or glob), a run folder, or a job file (.toml), whose settings are taken.",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        "-s",
        metavar="SECTION.KEY=VALUE",
        help="Change one field of the job, e.g. protect.k=5 (may be repeated).",
    ),
]


Detector = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="gold, rules, records, gazetteer, context, learned, shipped, spacy, transformers, presidio or eds; repeat "
        "to unite them (default: rules; gold where documents have marks; records where --set detect.records gives "
        "fields of individuals). Options: --set detect.NAME.OPTION=VALUE.",
    ),
]


def is_job(source: str | Path) -> bool:
    """Return whether SOURCE is a run folder or a job file and not documents: these have settings of their own."""

    return Path(source).suffix == ".toml" or (Path(source) / JOB).is_file()


def job_from_source(
    source: str,
    out: Path | None,
    detectors: list[str] | None = None,
    *,
    marked: bool = False,
    keep: tuple[str, ...] = (),
    sections: Mapping[str, Mapping[str, Any]] | None = None,
    settings: list[str] | None = None,
    used: tuple[str, ...] | None = None,
) -> Job:
    """Return the job to run: that of SOURCE if it is a run folder or job file, else a new job that reads SOURCE as
    documents. The command's options are applied to it.

    Parameters
    ----------
    out : Path, optional
        The run folder of documents; None where nothing is kept.
    detectors : names of ``--detector``, which take the place of those of SOURCE
    marked : bool
        Annotations in documents are believed: the detector gold is added where there are any.
    keep : sections of the job that a run folder ``out`` keeps from earlier commands
    sections : section -> settings of ``-k`` and ``-n``; None for one that was not given
    settings : of ``--set``, which have the last word
    used : sections and fields that the command looks at, as in :func:`job_of`
    """

    if own := is_job(source):
        values = read_job(Path(source))
        if detectors:
            values["detect"] = only_detectors(values["detect"], detectors) | {"detectors": detectors}
            values["detect"].pop("preset", None)  # it was another choice of detectors
    else:
        earlier = read_job(out) if keep and out is not None and (out / JOB).exists() else {}
        values = {name: earlier[name] for name in keep if name in earlier}
        values |= {"out": str(out or "."), "corpus": {"source": source}}
        if detectors:
            values["detect"] = {"detectors": detectors}
    for section, given in (sections or {}).items():
        values[section] = {**(values.get(section) or {}), **given_settings(given)}
    values = _apply_settings(values, settings, used)
    if not own:
        _choose_detectors(values, detectors or None, marked)
    return job_of(values, None)


def _choose_detectors(values: dict[str, Any], detectors: list[str] | None, has_gold_spans: bool) -> None:
    """Set ``values["detect"]["detectors"]`` in place, unless a setting chose them: to ``detectors`` or, if None, to a
    default. The detector ``records`` is added if there is a table of records."""
    corpus, detect = values["corpus"], values.setdefault("detect", {})
    if not isinstance(corpus, dict) or not isinstance(detect, dict):
        return  # refused when the job is checked
    if detect.get("detectors") != detectors or (detectors is None and detect.get("preset")):
        return
    names = list(detectors or [])
    if not names:
        has_marks = corpus.get("spans") or CorpusConfig.model_construct(format=corpus.get("format", "auto")).marked
        names = [*(["gold"] if has_gold_spans and has_marks else []), "rules"]
    detect["detectors"] = [*names, *(["records"] if detect.get("records") and "records" not in names else [])]


def only_detectors(detect_section: dict[str, Any], kept_detectors: list[str]) -> dict[str, Any]:
    """Return the section [detect] of a job without the options of detectors that are not in ``kept_detectors``."""
    return {name: table for name, table in detect_section.items() if name not in DETECTORS or name in kept_detectors}


def refuse_given(context: typer.Context, because: str, *options: str) -> None:
    """Raise `PolicyError`, with the reason ``because``, if one of these options was given on the command line although
    it has no effect."""

    for option in options:
        source = context.get_parameter_source(option)
        if source is not None and source.name != "DEFAULT":
            raise PolicyError(f"{next(p.opts[0] for p in context.command.params if p.name == option)} {because}")


def given_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return only the settings that were given (not None), so that the others keep their default."""
    return {name: value for name, value in values.items() if value is not None}


def new_progress(quiet: bool) -> Progress:
    """Return a progress reporter that writes to stderr (as JSON lines if the log is JSON). From then on, a library that
    aborts because memory ran out is explained to the user."""
    explain_abort()
    return (JsonProgress if is_json() else Progress)(quiet=quiet)


def read_job(path: Path) -> dict[str, Any]:
    """Return the settings of a job file, or of a run folder (with its current location as ``out``), as nested
    dictionaries."""
    if path.suffix == ".toml" and not path.is_dir():
        return load_job(path).model_dump()
    if not (path / JOB).exists():
        raise ArtifactError(f"{path}: not a run folder (no {JOB}); start with `reticent index` or `reticent run`")
    return load_kept_job(path / JOB).model_dump()


def job_of(values: dict[str, Any], settings: list[str] | None, used: tuple[str, ...] | None = None) -> Job:
    """Return the job with the settings ``values``, changed by SECTION.KEY=VALUE texts (``settings``) and then
    validated. A VALUE is TOML; what is not TOML is taken as a string.

    ``used`` are the sections and fields that a command looks at: `PolicyError` for a change of another one. None where
    the run folder keeps the job, so that a command after this one may look at it.
    """
    return parse_job(_apply_settings(values, settings, used))


def _apply_settings(values: dict[str, Any], settings: list[str] | None, used: tuple[str, ...] | None) -> dict[str, Any]:
    """Return ``values`` with SECTION.KEY=VALUE texts (``settings``) applied; raise `PolicyError` if a setting is not in
    ``used``, as it would have no effect."""
    for change in settings or []:
        name, equals, text = change.partition("=")
        if not equals:
            raise PolicyError(f"--set {name}: expected SECTION.KEY=VALUE")
        if used is not None and not any(f"{name}.".startswith(f"{field}.") for field in used):
            raise PolicyError(
                f"--set {name}: has no effect here; this command looks at {', '.join(used)} and at no other setting "
                "(`reticent run` and `reticent audit` look at all of a job)"
            )
        try:
            value = parse_toml(f"x = {text}")["x"]
        except ValueError:
            value = text
        *sections, key = name.split(".")
        target: Any = values
        for section in sections:
            if isinstance(target, dict) and target.get(section) is None:  # one that the job has not, or not yet
                target[section] = {}
            target = target[section] if isinstance(target, dict) else None
            if not isinstance(target, dict):
                raise PolicyError(f"--set {name}: no such section of a job")
        target[key] = value
    return values


def models_of(job: Job, models: list[str], recipes: list[str]) -> list[dict[str, Any]]:
    """Return the [[model]] tables of a job for models given as NAME=PATH, with these recipes, which must all have the
    same objective."""

    sections = []
    for model in models:
        name, equals, base = model.partition("=")
        if not equals:
            raise PolicyError("--model: expected NAME=PATH")
        objectives = {job.recipe(recipe).objective for recipe in recipes}
        if len(objectives) != 1:
            raise PolicyError("--recipe: give at least one recipe, all of one objective (mlm or clm)")
        sections.append({"name": name, "base": base, "objective": objectives.pop(), "recipes": recipes})
    return sections


def read_text(file: str) -> str:
    """Return the UTF-8 text of a file, or of stdin for "-"."""
    if file == "-" and sys.stdin is None:
        raise CorpusError("stdin is closed; give a file")
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return content.decode()
    except UnicodeDecodeError as error:
        raise CorpusError(f"{file}: not valid UTF-8 (byte {error.start})") from None
    except OSError as error:
        if not os.path.exists(file):
            raise CorpusError(
                f"FILE: cannot be read ({error.strerror}; its name is not printed, as it may be the text itself: give "
                "that on stdin)"
            ) from None
        raise CorpusError(f"{file}: cannot be read ({error.strerror})") from None
