"""The command ``reticent probe``: how likely models are to complete individuals' personal items."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
import typer
from rich.console import Console

from reticent.audit.config import Init
from reticent.audit.evidence.json_form import to_json
from reticent.audit.evidence.rules import publish
from reticent.cli.options import AsJson, Quiet, given_settings, new_progress, refuse_given
from reticent.core.artifact import fingerprint
from reticent.core.device import check_device, pick_device
from reticent.core.errors import ArtifactError, CorpusError, PolicyError
from reticent.core.names import require_name
from reticent.engine.detect import make_detectors
from reticent.ext.propile.prompts import (
    ProbeConfig,
    ProbeModel,
    SoftPromptConfig,
    SoftPromptStudy,
    objective_of,
    require_language,
    require_questions,
    sizes_that_fit,
)
from reticent.ext.propile.subjects import Subjects, read_items, read_subjects, subjects_from_notes, subjects_from_spans
from reticent.ext.propile.templates import Template, read_templates

#: Types that ``--self`` asks for on a terminal.
ASKED = ("name", "phone", "email", "address", "birth_date", "patient_id")


def probe(
    context: typer.Context,
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL...", help="Model folders or hub names, or NAME=PATH; several are compared."),
    ],
    subjects: Annotated[
        Path | None,
        typer.Option(
            metavar="TABLE",
            help="People's items: Parquet, CSV or JSON lines; a row a person, a column a type (name, phone, email).",
        ),
    ] = None,
    documents: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Instead: Parquet of documents; items are taken from their marked spans, or from what rules find.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Folder of the results, private (default: only a table is printed); with --self, the page.",
        ),
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(metavar="TYPE", help="Type that is asked for, e.g. phone; repeat (default: every column)."),
    ] = None,
    level: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LEVEL",
            help="twin (the name is given), triplet, quadruplet (1, 2 items more); repeat (default: twin, triplet).",
        ),
    ] = None,
    given: Annotated[
        list[str] | None, typer.Option(metavar="TYPE", help="Items given beside the name, in this order; repeat.")
    ] = None,
    language: Annotated[
        str | None, typer.Option(help="Language of the built-in templates, en or fr (default: en).")
    ] = None,
    templates: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Your templates instead: TOML, or text with one a line.")
    ] = None,
    beams: Annotated[
        list[int] | None, typer.Option(min=1, metavar="<int>", help="Beam size; repeat (default: 3).")
    ] = None,
    published: Annotated[
        bool,
        typer.Option(
            "--published", help="Generate the published number of tokens for a type, also where the longest has more."
        ),
    ] = False,
    masking: Annotated[
        str | None,
        typer.Option(
            help="Of the item, what a masked model does not see: together, one_by_one or left_to_right (default: "
            "together)."
        ),
    ] = None,
    soft_prompt: Annotated[
        bool,
        typer.Option(
            "--soft-prompt", help="White box too: train soft prompts, on some of the people; others are measured."
        ),
    ] = False,
    soft_subjects: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="<int>", help="Individuals a soft prompt is trained on (default: 128) or as many as fit."
        ),
    ] = None,
    soft_tokens: Annotated[
        int | None, typer.Option(min=1, metavar="<int>", help="Length of a soft prompt (default: 20).")
    ] = None,
    soft_epochs: Annotated[
        int | None, typer.Option(min=1, metavar="<int>", help="Most epochs of a soft prompt (default: 700).")
    ] = None,
    soft_init: Annotated[
        str | None, typer.Option(help="Start of a soft prompt: type, uniform or mean (default: type).")
    ] = None,
    sweep: Annotated[
        bool,
        typer.Option("--sweep", help="Vary soft prompts: up to 512 people, or half of them; 5 to 50 tokens; starts."),
    ] = False,
    myself: Annotated[
        bool, typer.Option("--self", help="For one person: ask for that person's items; nothing is kept but the page.")
    ] = False,
    items: Annotated[
        Path | None, typer.Option(metavar="FILE", help='With --self: lines like name = "VALUE" (default: asked here).')
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda.")] = "auto",
    bf16: Annotated[bool, typer.Option("--bf16", help="Half the precision, and faster on a GPU.")] = False,
    seed: Annotated[
        int, typer.Option(min=0, metavar="<int>", help="Of the random other people, splits and intervals.")
    ] = 0,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Probe models with people's own items (ProPILE): given some of them, how likely are models to give the rest?

    Black box by default, white box too with --soft-prompt. Results hold no item: estimates in probe.json, probe.html,
    and numbers by person in a private table.
    """
    if not soft_prompt:
        refuse_given(
            context, "belongs to --soft-prompt", "soft_subjects", "soft_tokens", "soft_epochs", "soft_init", "sweep"
        )
    check_device(device)
    asked = {
        "targets": target, "levels": level, "given": given, "language": language, "beam_sizes": beams,
        "longest": "published" if published else None, "masking": masking,
    }  # fmt: skip
    config = ProbeConfig(**given_settings(asked), seed=seed, device=device, bf16=bf16)
    if myself:
        refuse_given(
            context, "has no effect with --self", "documents", "target", "level", "given", "templates", "published",
            "soft_prompt", "bf16", "as_json",
        )  # fmt: skip
        _probe_myself(models, items, subjects, out, config)
        return
    refuse_given(context, "belongs to --self", "items")
    if (subjects is None) == (documents is None):
        raise PolicyError("give --subjects or --documents, one of them (or --self)")
    how = {"num_subjects": soft_subjects, "num_tokens": soft_tokens, "num_epochs": soft_epochs, "init": soft_init}
    if soft_prompt:
        SoftPromptConfig(**given_settings(how))  # refused before anything is read
    own = read_templates(templates) if templates is not None else None
    table, source = _load_subjects(subjects, documents)
    targets = {target for target, _ in require_questions(table, config, own)}
    fewest = min(sum(item is not None for item in table.items[target]) for target in targets)
    study = _soft_prompt_study(given_settings(how), sweep, fewest, seed) if soft_prompt else None
    _run_probe(_parse_models(models), table, source, config, study, own, templates, out, quiet, as_json)


def _parse_models(models: list[str]) -> list[ProbeModel]:
    """Return the models to probe, from NAME=PATH or PATH arguments, with the objective of each."""
    named = {}
    for model in models:
        name, equals, path = model.partition("=")
        name, path = (name, path) if equals else (Path(model).name, model)
        if name in named:
            raise PolicyError("two models have the same name; give NAME=PATH")
        named[name] = path
    return [ProbeModel(name, path, objective_of(path)) for name, path in named.items()]


def _soft_prompt_study(how: dict[str, Any], sweep: bool, fewest: int, seed: int) -> SoftPromptStudy:
    """Return the settings of the soft-prompt study. A number of training subjects that was not given is chosen to fit
    ``fewest``, the number of subjects who have the rarest type of item."""
    sizes = sizes_that_fit(fewest)
    fitting = {"num_subjects": min(SoftPromptConfig().num_subjects, sizes[-1])} if sizes else {}
    prompt = SoftPromptConfig(**{**fitting, **how}, seed=seed)
    if not sweep:
        return SoftPromptStudy(prompt=prompt)
    return SoftPromptStudy(
        prompt=prompt,
        num_subjects=tuple(n for n in sizes if n != prompt.num_subjects),
        num_tokens=tuple(n for n in (5, 10, 20, 50) if n != prompt.num_tokens),
        init=tuple(start for start in get_args(Init) if start != prompt.init),
    )


def _load_subjects(subjects: Path | None, documents: Path | None) -> tuple[Subjects, Path]:
    """Return the subjects, from a table or gathered from documents, and the path they came from."""
    if subjects is not None:
        return read_subjects(subjects), subjects
    assert documents is not None
    try:
        table = pq.read_table(documents)
    except (OSError, pa.ArrowException):
        table = pa.table({})
    if {"individual_id", "text"} - {*table.column_names}:
        raise CorpusError(f"{documents}: not Parquet with columns individual_id and text (and spans)")
    if "spans" in table.column_names:
        kind = table.schema.field("spans").type
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        names = {field.name for field in kind.value_type} if is_list and pa.types.is_struct(kind.value_type) else ()
        if not {"start", "end", "label"}.issubset(names):
            raise CorpusError(f"{documents} column spans: expected a list of (start, end, label), got {kind}")
        return subjects_from_spans(table), documents
    return subjects_from_notes(table, make_detectors(["rules"])), documents


def _run_probe(
    entries: list[ProbeModel], table: Subjects, source: Path, config: ProbeConfig, study: SoftPromptStudy | None,
    own: tuple[Template, ...] | None, templates: Path | None, out: Path | None, quiet: bool, as_json: bool,
) -> None:  # fmt: skip
    """Probe the models, write the results if ``out`` is given, and print a table or JSON."""
    from reticent.ext.propile.measure import probe_models, write_probe

    if out is not None and study is not None:  # a soft prompt stands in a folder of the model's and the target's name
        for name in (*(entry.name for entry in entries), *(config.targets or table.types)):
            require_name(name, "probe --soft-prompt")
    progress = new_progress(quiet)
    inputs = {"subjects": fingerprint(source)}
    inputs |= {f"model:{e.name}": fingerprint(e.path) if Path(e.path).exists() else str(e.path) for e in entries}
    if templates is not None:
        inputs["templates"] = fingerprint(templates)
    with progress.task("probe", None, "rows") as advance:
        evidence, answers, learned = probe_models(
            entries, table, config, templates=own, study=study,
            progress=lambda what, done, total: advance(done, total, what),
        )  # fmt: skip
    page = write_probe(out, evidence, answers, learned, table, study=study, inputs=inputs) if out else None
    if as_json:
        print(json.dumps(to_json(publish(evidence, config.small_cell))))  # as in probe.json
        return

    from reticent.ext.propile.evidence import results_table

    console = Console()
    console.print(results_table(evidence))
    if page:
        console.print(f"Page: {page}", soft_wrap=True, markup=False)


def _probe_myself(models: list[str], items: Path | None, reference: Path | None, out: Path | None, config: Any) -> None:
    """Measure how likely a model gives one person's own items, and write the result as a page to a file or stdout;
    nothing else is written."""
    bases = [model for model in models if model.startswith("base=")]
    models = [model for model in models if model not in bases]
    if len(models) != 1 or len(bases) > 1:
        raise PolicyError("--self: give one model, and beside it base=PATH for the one it was made from")
    require_language(config.language)
    if items is None and not sys.stdin.isatty():
        raise PolicyError("--self: no terminal to ask for your items at; give them with --items FILE")
    values = read_items(items) if items is not None else _ask_items()
    others = read_subjects(reference) if reference is not None else None
    entries = _parse_models(models + bases)
    from reticent.ext.propile.self_probe import probe_myself, self_page
    from reticent.trainer.models import load_model, load_tokenizer

    device = pick_device(config.device)
    loaded: list[Any] = [load_model(entry.path, entry.objective) for entry in entries]
    loaded = [model.to(device=device) for model in loaded]
    if len({len(load_tokenizer(entry.path)) for entry in entries}) > 1 or len({e.objective for e in entries}) > 1:
        raise PolicyError("--self: the base has another vocabulary or objective than the model")
    found = probe_myself(
        loaded[0], load_tokenizer(entries[0].path), entries[0].objective, values, others, config,
        base=loaded[1] if bases else None,
    )  # fmt: skip
    page = self_page(found, language=config.language, invented=reference is None)
    if out is None:
        print(page)
    else:
        _write_page(out, page)


def _write_page(path: Path, page: str) -> None:
    """Write an HTML page to a file that only its owner can read, in place and without a lock."""

    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(page.encode())
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be written ({error.strerror})") from None


def _ask_items() -> dict[str, str]:
    """Ask at the terminal for a person's items, and return them by type. Prompts go to stderr, so that stdout holds
    only the page."""
    given = {}
    for name in ASKED:
        text = typer.prompt(name.replace("_", " "), default="", show_default=False, err=True).strip()
        if text:
            given[name] = text
    return given
