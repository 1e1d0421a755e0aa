"""Options that commands share, and the job that SOURCE and options make: one place for all commands.

SOURCE is documents, a run folder or a job file. What is said of documents on the command line becomes sections of a
job, so that a command checks, opens and searches documents exactly as `reticent run` does.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from reticent.core.artifact import JOB
from reticent.core.errors import ArtifactError, PolicyError
from reticent.core.json_toml import parse_toml

if TYPE_CHECKING:
    from reticent.core.progress import Progress
    from reticent.job.config import Job

__all__ = [
    "AsJson",
    "ColumnOptions",
    "DetectOptions",
    "MemoryLimit",
    "Out",
    "Quiet",
    "RunFolder",
    "Seed",
    "Set",
    "SourceOrJob",
    "Verify",
    "expanded",
    "is_job",
    "job_from_source",
    "job_of",
    "memory_setting",
    "models_of",
    "new_progress",
    "read_job",
    "refuse_given",
    "said",
    "without_others",
]

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress, only warnings and errors.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="Run folder; made if absent, private to you.")]
Seed = Annotated[int, typer.Option(min=0, metavar="<int>", help="Equal seeds give equal documents.")]
MemoryLimit = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="The most memory of the process while n-grams are counted, e.g. 4GB: what does not fit goes to disk "
        "beside the results, and a limit too small for the vocabulary is refused with the least that is not. Other "
        "stages take what they need, and one that takes more says so.",
    ),
]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnOptions:
    """How documents are read."""

    format: Annotated[
        str | None,
        typer.Option(
            metavar="FORMAT",
            help="Such as parquet, csv or jsonl (these two also .gz, .zst, .bz2), or a format with marks of humans, "
            "such as i2b2-2014 or brat; a wrong one lists all; by the suffix (default: auto).",
        ),
    ] = None
    doc_id: Annotated[str | None, typer.Option(help="Column of the document's id (default: doc_id).")] = None
    individual_id: Annotated[
        str | None,
        typer.Option(
            help="Column that says whose document it is (default: individual_id). Ids that differ only in how they "
            "are spelt stop the run; "
            "--set corpus.ids=fold joins them, exact keeps them apart."
        ),
    ] = None
    text: Annotated[str | None, typer.Option(help="Column of the text (default: text).")] = None
    household_id: Annotated[
        str | None,
        typer.Option(help="Column of a coarser unit, such as a household: it counts once and is never split up."),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectOptions:
    """How direct identifiers are found."""

    detector: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="gold, rules, records, gazetteer, context, spacy, transformers, presidio or eds; repeat to unite "
            "them (default: rules, and what other options or the job name). Options: --set detect.NAME.OPTION=VALUE.",
        ),
    ] = None
    spans: Annotated[
        str | None, typer.Option(help="Column of annotated identifiers: lists of (start, end, label).")
    ] = None
    records: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Parquet or CSV of record fields, a row an individual, found in that individual's documents; adds the "
            "detector records.",
        ),
    ] = None


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of each dataclass among its parameters, in its place, and call it with these."""
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {
        name: p.annotation for name, p in signature.parameters.items() if is_dataclass(p.annotation)
    }
    parameters = []
    for name, parameter in signature.parameters.items():
        if name not in groups:
            parameters.append(parameter.replace(kind=parameter.KEYWORD_ONLY))
            continue
        hints = get_type_hints(groups[name], include_extras=True)
        for option in fields(groups[name]):
            kind = inspect.Parameter.KEYWORD_ONLY
            parameters.append(
                inspect.Parameter(option.name, kind, default=option.default, annotation=hints[option.name])
            )

    @functools.wraps(command)
    def call(**values: Any) -> None:
        chosen: dict[str, Any] = {
            name: group(**{option.name: values.pop(option.name) for option in fields(group)})
            for name, group in groups.items()
        }
        command(**chosen, **values)

    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {}
    return call


def is_job(source: str | Path) -> bool:
    """Whether SOURCE is a run folder or a job file, which have settings of their own."""

    return Path(source).suffix == ".toml" or (Path(source) / JOB).is_file()


def job_from_source(
    source: str,
    out: Path | None,
    columns: ColumnOptions,
    found: DetectOptions | None = None,
    *,
    marked: bool = False,
    keep: tuple[str, ...] = (),
    sections: dict[str, Any] | None = None,
    settings: list[str] | None = None,
    used: tuple[str, ...] | None = None,
) -> Job:
    """Return the job that is SOURCE, or that SOURCE and the options make.

    Parameters
    ----------
    out : Path, optional
        The run folder of documents; None where nothing is kept.
    marked : bool
        Annotations in documents are believed: the detector gold is added where there are any.
    keep : sections of the job that a run folder ``out`` keeps from earlier commands
    sections : section -> settings that other options of the command make
    settings : of ``--set``, which have the last word
    used : sections and fields that the command looks at, as in :func:`job_of`

    Raises
    ------
    PolicyError
        SOURCE has settings of its own and an option says otherwise, but for the choice of detectors.
    """

    if is_job(source):
        _refuse_options(columns, found)
        values = read_job(Path(source))
        if found is not None and found.detector:
            values["detect"] = without_others(values["detect"], found.detector) | {"detectors": found.detector}
            values["detect"].pop("preset", None)  # it was another choice of detectors
    else:
        earlier = read_job(out) if keep and out is not None and (out / JOB).exists() else {}
        values = {name: earlier[name] for name in keep if name in earlier}
        values["out"] = str(out or ".")
        values["corpus"] = {"source": source, **said(_values(columns))}
        if found is not None:
            values["corpus"]["spans"] = found.spans
            is_preset = any(setting.partition("=")[0].strip() == "detect.preset" for setting in settings or ())
            chosen = [] if is_preset and not found.detector else _detectors(columns, found, marked)
            values["detect"] = {"detectors": chosen} if chosen else {}
            if found.records:
                values["detect"]["records"] = {"table": found.records}
    for section, given in (sections or {}).items():
        if given or section in values:
            values[section] = {**(values.get(section) or {}), **given} or None
    return job_of(values, settings, used)


def _values(options: Any) -> dict[str, Any]:
    return {option.name: getattr(options, option.name) for option in fields(options)}


def _refuse_options(*groups: Any) -> None:
    for options in filter(None, groups):
        for option in fields(options):
            if option.name != "detector" and getattr(options, option.name) != option.default:
                section = "detect" if option.name == "records" else "corpus"
                raise PolicyError(
                    f"--{option.name.replace('_', '-')}: a run or a job has its own; "
                    f"change it with --set {section}.{option.name}=VALUE"
                )


def _detectors(columns: ColumnOptions, found: DetectOptions, marked: bool) -> list[str]:
    from reticent.engine.sources.corpus_config import CorpusConfig

    names = list(found.detector or [])
    if not names:
        has_marks = found.spans is not None or CorpusConfig.model_construct(format=columns.format or "auto").marked
        names = [*(["gold"] if marked and has_marks else []), "rules"]
    return [*names, *(["records"] if found.records and "records" not in names else [])]


def without_others(section: dict[str, Any], detectors: list[str]) -> dict[str, Any]:
    """The section [detect] without the options of detectors that are not chosen any more."""
    from reticent.engine.detect import DETECTORS

    return {name: table for name, table in section.items() if name not in DETECTORS or name in detectors}


def refuse_given(context: typer.Context, because: str, *options: str) -> None:
    """Raise `PolicyError` for an option that was given and would be ignored."""

    for option in options:
        source = context.get_parameter_source(option)
        if source is not None and source.name != "DEFAULT":
            raise PolicyError(f"{next(p.opts[0] for p in context.command.params if p.name == option)} {because}")


def said(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that options give. One that was not given is None, so that its default is that of the
    setting's class, which alone knows it.
    """
    return {name: value for name, value in given.items() if value is not None}


def new_progress(quiet: bool) -> Progress:
    """Return a command's messages, on stderr; from here on a library that aborts for want of memory says so too."""
    from reticent.core.memory import explain_abort
    from reticent.core.progress import JsonProgress, Progress, is_json

    explain_abort()
    return (JsonProgress if is_json() else Progress)(quiet=quiet)


def read_job(path: Path) -> dict[str, Any]:
    """Return the settings of a run folder, which stays where it is now, or of a job file."""
    from reticent.job.config import load_job, load_kept_job

    if path.suffix == ".toml" and not path.is_dir():
        return load_job(path).model_dump()
    if not (path / JOB).exists():
        raise ArtifactError(f"{path}: not a run folder (no {JOB}); start with `reticent index` or `reticent run`")
    return load_kept_job(path / JOB).model_dump()


def memory_setting(memory_limit: str | None) -> list[str]:
    """Return the setting that ``--memory-limit`` is short for."""
    return [] if memory_limit is None else [f"memory_limit={json.dumps(memory_limit)}"]


def job_of(values: dict[str, Any], settings: list[str] | None, used: tuple[str, ...] | None = None) -> Job:
    """Apply SECTION.KEY=VALUE changes to a job and check it; values are TOML, and a bare word is a string.

    ``used`` are the sections and fields that a command looks at: `PolicyError` for a change of another one. None where
    the run folder keeps the job, so that a command after this one may look at it.
    """
    from reticent.job.config import parse_job

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
    return parse_job(values)


def models_of(job: Job, models: list[str], recipes: list[str]) -> list[dict[str, Any]]:
    """Return the tables [[model]] of NAME=PATH and recipes, all of one objective."""

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
