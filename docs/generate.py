"""The generated pages of the documentation, as a hook of mkdocs: settings, command line, detectors, recipes, attacks,
formats, gates and the list of sources. All are read from the code, so that none can drift from it.

A page cites as ``[@key]``; the hook makes a link to the entry of ``docs/references.bib``. An unknown key fails.
"""

from __future__ import annotations

import dataclasses
import html
import importlib
import inspect
import posixpath
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).parents[1]
BIBLIOGRAPHY = ROOT / "docs" / "references.bib"
#: Folders of records and of the rules they are judged by, which pages link to; on the site they have the same paths.
RECORDS = ("benchmarks/record", "studies/record", "studies/reproduction")
CITATION = re.compile(r"\[@([\w:-]+)\]")


# ---------------------------------------------------------------------------------------------- the job's settings


def job_page() -> str:
    """Return every section and field of a job file, walked from `reticent.job.config.Job`."""
    from reticent.job.config import Job

    parts = [
        "# The job file\n\nOne TOML file says everything that a run does. An unknown field is refused before anything "
        "starts. On the command line `--set SECTION.FIELD=VALUE` sets one field.\n"
    ]
    for name, kind in sections(Job, ""):
        title = f"## `[{name}]`" if name else "## Top level"
        rows = [field_row(field, fields) for field, fields in fields_of(kind).items() if not subsection(fields)]
        inner = [field for field, fields in fields_of(kind).items() if subsection(fields)]
        about = f"{_paragraph(kind)}\n\n" if name or kind.__doc__ else ""
        more = "".join(f"\nSection of its own: `{f'{name}.{field}'.lstrip('.')}`.\n" for field in inner if name)
        parts.append(f"{title}\n\n{about}{table(('field', 'type', 'default', 'meaning'), rows) if rows else ''}{more}")
    return "\n".join(parts)


def sections(kind: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield (dotted name, class) of a configuration class and of all that lie in it, depth first."""
    yield name, kind
    for field, info in fields_of(kind).items():
        inner = subsection(info)
        if inner is not None:
            listed = typing.get_origin(_bare(info.annotation)) in (list, tuple)
            keyed = typing.get_origin(_bare(info.annotation)) in (dict, Mapping)
            below = f"{name}.{field}".lstrip(".")
            yield from sections(inner, f"[{below}]" if listed else f"{below}.NAME" if keyed else below)


@dataclasses.dataclass(frozen=True)
class _Field:
    """The parts of a pydantic or dataclass field that the page shows."""

    annotation: Any
    default: Any
    description: str
    bounds: str


def fields_of(kind: Any) -> dict[str, _Field]:
    """Return the fields of a pydantic model or a dataclass by name."""
    comments = _comments(kind)
    if hasattr(kind, "model_fields"):
        return {
            field: _Field(
                info.annotation,
                ... if info.is_required() else info.get_default(call_default_factory=True),
                info.description or comments.get(field, ""),
                _bounds(info.metadata),
            )
            for field, info in kind.model_fields.items()
            if not info.exclude  # what belongs to the whole job
        }
    hints = typing.get_type_hints(kind, include_extras=True)
    missing = dataclasses.MISSING
    return {
        field.name: _Field(
            hints[field.name],
            field.default
            if field.default is not missing
            else field.default_factory()
            if field.default_factory is not missing
            else ...,
            comments.get(field.name, ""),
            "",
        )
        for field in dataclasses.fields(kind)
        if field.init
    }


def subsection(field: _Field) -> Any:
    """Return the configuration class that a field holds, alone, optional, in a list or by name; None for none."""
    for kind in _classes(field.annotation):
        if hasattr(kind, "model_fields") or (dataclasses.is_dataclass(kind) and kind.__module__.startswith("reticent")):
            return kind
    return None


def field_row(name: str, field: _Field) -> tuple[str, str, str, str]:
    default = "required" if field.default is ... else f"`{_toml(field.default)}`"
    if field.default is None:
        default = "—"
    meaning = field.description[:1].upper() + field.description[1:]
    if meaning and meaning[-1] not in ".!?":
        meaning += "."
    return f"`{name}`", f"`{type_text(field.annotation)}`", default, " ".join(filter(None, (meaning, field.bounds)))


def type_text(kind: Any) -> str:
    """Return a type as a reader of TOML knows it: ``"a" or "b"``, ``list of int``."""
    kind = _bare(kind)
    origin, inner = typing.get_origin(kind), [each for each in typing.get_args(kind) if each is not type(None)]
    if origin is Literal:
        return " or ".join(f'"{value}"' if isinstance(value, str) else str(value).lower() for value in inner)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(type_text, inner)))
    if origin in (list, tuple, frozenset, set):
        inside = dict.fromkeys(type_text(each) for each in inner if each is not ...)
        return f"list of {' or '.join(inside)}"
    if origin is not None and inner and hasattr(origin, "keys"):
        return f"table of {type_text(inner[-1])}"
    plain = {"str": "text", "int": "whole number", "float": "number", "bool": "true or false", "ByteSize": "size"}
    name = getattr(kind, "__name__", str(kind))
    return plain.get(name, name)


def _bare(kind: Any) -> Any:
    """A type without Annotated, and without None where one other type is left."""
    while typing.get_origin(kind) is typing.Annotated:
        kind = typing.get_args(kind)[0]
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        left = [each for each in typing.get_args(kind) if each is not type(None)]
        if len(left) == 1:
            return _bare(left[0])
    return kind


def _classes(kind: Any) -> Iterator[Any]:
    kind = _bare(kind)
    inner = typing.get_args(kind)
    if inner and typing.get_origin(kind) is not Literal:
        for each in inner:
            yield from _classes(each)
    elif isinstance(kind, type):
        yield kind


def _bounds(metadata: list[Any]) -> str:
    words = {"ge": "at least", "gt": "over", "le": "at most", "lt": "under", "multiple_of": "a multiple of"}
    found = [f"{say} {getattr(each, key)}" for each in metadata for key, say in words.items() if hasattr(each, key)]
    shown = ", ".join(found).replace(str(2**63), "2^63")
    return f"{shown[:1].upper()}{shown[1:]}." if shown else ""


def _comments(kind: Any) -> dict[str, str]:
    """Comments ``#:`` above the fields of a class."""
    try:
        lines = inspect.getsource(kind).splitlines()
    except (OSError, TypeError):
        return {}
    found, held = {}, []
    for line in lines:
        text = line.strip()
        if text.startswith("#:"):
            held.append(text[2:].strip())
        elif held:
            found[text.partition(":")[0].strip()] = " ".join(held)
            held = []
    return found


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list | tuple | set | frozenset):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_toml(inner)}" for key, inner in value.items()) + "}"
    return f"{value:g}" if isinstance(value, float) else str(value)


# ---------------------------------------------------------------------------------------------- the command line


def command_page() -> str:
    """Return every command with its arguments and options, from the command line itself."""
    import typer

    import reticent.cli

    root: Any = typer.main.get_command(reticent.cli.app)
    parts = [
        "# The command line\n\nExit status: 0 done, 1 failed, 2 a wrong setting or option, 3 a gate failed or the "
        "guard found something, 4 nobody vouches for a dossier, 130 "
        "interrupted, 143 and 129 stopped by SIGTERM and SIGHUP.\n"
    ]
    panels: dict[str, list[tuple[str, Any]]] = {}
    for name, command in root.commands.items():
        panels.setdefault(getattr(command, "rich_help_panel", None) or "Commands", []).append((name, command))
    for panel, commands in panels.items():
        parts.append(f"## {panel}\n")
        for name, command in commands:
            parts += _command(f"reticent {name}", command)
    return "\n".join(parts)


def _command(name: str, command: Any) -> Iterator[str]:
    yield f"### `{name}`\n\n{_prose(command.help or '')}\n"
    for inner_name, inner in getattr(command, "commands", {}).items():
        yield from (text.replace("### ", "#### ", 1) for text in _command(f"{name} {inner_name}", inner))
    rows = []
    for parameter in command.params:
        if getattr(parameter, "hidden", False) or parameter.name == "help":
            continue
        argument = parameter.param_type_name == "argument"
        shown = (parameter.metavar or parameter.name.upper()) if argument else ", ".join(parameter.opts)
        if not argument and parameter.secondary_opts:
            shown += " / " + ", ".join(parameter.secondary_opts)
        default = "" if callable(parameter.default) or _is_unset(parameter.default) else f"`{parameter.default}`"
        rows.append((f"`{shown}`", default, _prose(getattr(parameter, "help", None) or "")))
    if rows:
        yield table(("argument or option", "default", "meaning"), rows)


def _is_unset(value: Any) -> bool:
    return value is False or value in (None, (), [], "") or type(value).__name__ == "Sentinel" or "UNSET" in repr(value)


def _prose(text: str) -> str:
    """Help text as Markdown: its rich markup is bold, its paragraphs are joined lines."""
    text = re.sub(r"\[/?bold\]", "**", inspect.cleandoc(text))
    text = re.sub(r"\[(/?)(cyan|green|dim|italic|red|yellow)\]", "", text)
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n")).replace("<", "&lt;")


# ---------------------------------------------------------------------------------------------- tables of the code


def detector_page() -> str:
    """Return the detectors, each with its options, from the signatures of their classes, and every rule."""
    from reticent.engine.detect import choose
    from reticent.engine.detect.rules import list_rules

    parts = [
        "# Detectors\n\n`detect.detectors` names them and their spans are united. Options stand in `[detect.NAME]`. "
        "How to choose: [Find direct identifiers](../how-to/detect.md).\n"
    ]
    for name, row in choose.DETECTORS.items():
        rows = []
        for option, parameter in row.options().items():
            default = "required" if parameter.default is parameter.empty else f"`{_toml(parameter.default)}`"
            if parameter.default is None:
                default = "—"
            rows.append((f"`{option}`", f"`{_signature_type(parameter.annotation)}`", default))
        shown = table(("option", "type", "default"), rows) if rows else "It has no option.\n"
        if name == "rules":
            found = [(f"`{rule.name}`", rule.label, rule.finds) for rule in list_rules()]
            shown += "\n" + table(("rule", "label", "finds"), found)
        parts.append(f"## `{name}`\n\n{_docstring(row.load())}\n\n{shown}")
    return "\n".join(parts)


def recipe_page() -> str:
    """Return the built-in recipes, a row each."""
    from reticent.trainer.recipes import FLAGS, RECIPES

    rows = [
        (
            f"`{name}`",
            recipe.objective,
            recipe.text,
            ", ".join(flag for flag, bit in FLAGS.items() if recipe.never_target & bit) or "nothing",
            recipe.context,
            ("DP-SGD" if recipe.words == "counted" else f"DP-SGD; words: {recipe.words}")
            if recipe.private
            else f"one token in {recipe.goldfish_k} is dropped"
            if recipe.goldfish_k
            else "",
        )
        for name, recipe in RECIPES.items()
    ]
    heads = ("recipe", "objective", "text", "never a target", "context", "")
    return (
        "# Recipes\n\nA recipe says which text a model sees, what it predicts and what is never a target. A job adds "
        "its own as `[recipes.NAME]`: [Train](../how-to/train.md). The definitions: "
        "[Training](../explanation/definitions.md#training).\n\n" + table(heads, rows)
    )


def stage_page() -> str:
    """Return the stages that the guarantee from documents to weights answers for, from the table that refuses them."""
    from reticent.trainer.privacy import STAGES

    open_rows, accounted = (
        [(stage.name, stage.reason, stage.way_out) for stage in STAGES.values() if stage.accounted is side]
        for side in (False, True)
    )
    return (
        "# Stages and epsilon\n\nStages before a training, or around it, by which one individual could move the "
        "documents of others. The theorem that needs them: [From documents to weights](../explanation/definitions.md"
        "#from-documents-to-weights).\n\n## Refused, or no epsilon\n\nWith `target_epsilon`, and for recipes with "
        'words that are "public" or "private", these are refused before training. With `noise_multiplier` a recipe '
        "that counts words is trained, and its guarantee names them in place of an epsilon.\n\n"
        + table(("stage", "why", "instead"), open_rows)
        + "\n## Accounted\n\n"
        + table(("stage", "why it matters", "how it is borne"), accounted)
    )


def attack_page() -> str:
    """Return the membership attacks, each with the first sentence of its score's docstring."""
    from reticent.audit.membership.attacks import ATTACKS

    rows = []
    for name, attack in ATTACKS.items():
        score = getattr(attack, "score", attack)
        formula = " ".join((inspect.getdoc(score) or "").split()).removeprefix("Return ")
        rows.append((f"`{name}`", formula[:1].upper() + formula[1:] or getattr(attack, "about", "")))
    return (
        "# Attacks on membership\n\n`audit.attacks` names them; a higher score always means more likely a member. "
        "Formulas and sources: [Membership](../explanation/definitions.md#membership). Attacks with shadow models are "
        "named in `[audit.shadow]`.\n\n" + table(("attack", "score"), rows)
    )


# -------------------------------------------------------------------------------------------------------- public names

#: Heads of the sections of a docstring, as numpydoc has them.
SECTIONS = re.compile(r"^(Parameters|Attributes|Returns|Yields|Raises|Notes|Examples)\n-{3,}\n", re.MULTILINE)


def api_page() -> str:
    """Return the public names with their signatures and docstrings, of classes with their public methods."""
    import reticent

    parts = [
        "# Python\n\nThe names of `reticent`; `reticent.guard`, `reticent.spark` and `reticent.trainers` have more.\n"
    ]
    modules = {"reticent": [n for n in reticent.__all__ if not n.startswith("_")]}
    for name in ("guard", "trainers", "spark"):
        modules[f"reticent.{name}"] = list(importlib.import_module(f"reticent.{name}").__all__)
    for module, names in modules.items():
        parts.append(f"## `{module}`\n")
        home = importlib.import_module(module)
        parts += [_entry(name, getattr(home, name), "###") for name in sorted(names, key=str.lower)]
    return "\n".join(parts)


def _entry(name: str, thing: Any, level: str) -> str:
    """A name with its signature and docstring; of a class also its public methods and properties."""
    text = f"{level} `{name}`\n\n"
    if hasattr(thing, "model_fields"):
        return f"{text}{_docstring_markdown(thing)}\nA section of [the job](job.md): its fields are the arguments.\n"
    if not callable(thing):
        return f"{text}A value of type `{type(thing).__name__}`.\n"
    is_error = inspect.isclass(thing) and issubclass(thing, Exception)
    if not is_error and (signature := _signature(name, thing)):
        text += f"```text\n{signature}\n```\n\n"
    text += _docstring_markdown(thing)
    if inspect.isclass(thing) and not is_error:
        for inner, member in vars(thing).items():
            function = getattr(member, "__func__", getattr(member, "fget", member))
            if not inner.startswith("_") and inspect.isfunction(function) and inspect.getdoc(function):
                text += "\n" + _entry(f"{name}.{inner}", function, level + "#")
    return text


def _signature(name: str, thing: Any) -> str:
    """The signature, a parameter a line where it is long."""
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    kinds = [each.kind for each in signature.parameters.values()]
    pieces = [str(each).replace("'", "") for each in signature.parameters.values() if each.name != "self"]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        first = kinds.index(inspect.Parameter.KEYWORD_ONLY) - (len(kinds) - len(pieces))
        pieces.insert(first, "*")
    result = signature.return_annotation
    end = "" if result is inspect.Signature.empty or inspect.isclass(thing) else f" -> {result}"
    text = f"{name}({', '.join(pieces)}){end}"
    if len(text) > 90:
        text = f"{name}(\n" + "".join(f"    {piece},\n" for piece in pieces) + f"){end}"
    return re.sub(r"<factory>|<function [^>]*>|functools\.partial\([^)]*\)", "…", text)


def _docstring_markdown(thing: Any) -> str:
    """A docstring as Markdown: sections as tables of two columns, examples as code, the rest as it stands."""
    text = inspect.getdoc(thing) or ""
    if text.startswith(f"{getattr(thing, '__name__', '')}("):  # what dataclasses write by themselves
        return ""
    first, *others = SECTIONS.split(text)
    parts = [*_free(first)]
    for head, body in zip(others[::2], others[1::2], strict=True):
        parts.append(f"**{head}**")
        rows: list[tuple[str, str]] = []
        for paragraph in body.strip().split("\n\n"):
            items = [[line.strip() for line in item.splitlines()] for item in re.split(r"\n(?=\S)", paragraph)]
            # an entry is a name, or has a type, or is explained below: all else is prose behind the section
            if not all(len(item) > 1 or " : " in item[0] or " " not in item[0] for item in items):
                parts += [*_rows(rows), *_free(paragraph)]
                rows = []
                continue
            for opening, *more in items:
                name, _, kind = opening.partition(" : ")
                rows.append((f"`{name}`", _roles(" ".join(filter(None, [kind, *more])))))
        parts += _rows(rows)
    return "\n\n".join(parts) + "\n"


def _rows(rows: list[tuple[str, str]]) -> list[str]:
    return [table(("name", "meaning"), rows).strip()] if rows else []


def _free(text: str) -> Iterator[str]:
    """Prose by paragraphs, in which an example becomes a block of code."""
    for paragraph in text.strip().split("\n\n"):
        is_code = paragraph.lstrip().startswith(">>>")
        yield f"```text\n{inspect.cleandoc(paragraph)}\n```" if is_code else _roles(paragraph)


def _roles(text: str) -> str:
    return re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text.replace("``", "`"))


def _signature_type(annotation: Any) -> str:
    """An annotation as written: its own text where annotations are not evaluated."""
    return str(getattr(annotation, "__name__", annotation)).replace("typing.", "")


def _docstring(kind: Any) -> str:
    """The first paragraphs of a docstring, up to its sections, as Markdown."""
    text = inspect.getdoc(kind) or ""
    text = re.split(r"\n\w[\w ]*\n-{3,}\n|\n>>> ", text)[0]
    text = re.sub(r":(?:class|func|mod|meth):`~?([^`]+)`", r"`\1`", text).replace("``", "`")
    return text.strip().replace("<", "&lt;")


def _paragraph(kind: Any) -> str:
    return _docstring(kind)


def table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a Markdown table; a bar within a cell is escaped."""
    lines = [heads, tuple("---" for _ in heads), *(tuple(cell.replace("|", "\\|") for cell in row) for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


# ---------------------------------------------------------------------------------------------- sources


def bibliography() -> dict[str, dict[str, str]]:
    """Return the entries of ``docs/references.bib`` by key; each field's outer braces are taken off."""
    found = {}
    for kind, key, body in re.findall(r"@(\w+)\{([\w:-]+),\n(.*?)\n\}", BIBLIOGRAPHY.read_text("utf-8"), re.DOTALL):
        fields = re.findall(r"^\s*(\w+)\s*=\s*\{(.*)\},?$", body, re.MULTILINE)
        found[key] = {"kind": kind, **{name: re.sub(r"[{}]", "", value) for name, value in fields}}
    return found


def reference_page() -> str:
    """Return the sources, by first author."""
    lines = ["# Sources\n"]
    for key, entry in sorted(bibliography().items(), key=lambda item: (item[1]["author"], item[1]["year"])):
        where = ", ".join(entry[name] for name in ("journal", "booktitle", "school", "note") if name in entry)
        link = f"https://doi.org/{entry['doi']}" if "doi" in entry else entry.get("url")
        if link is None and "eprint" in entry:
            link = f"https://arxiv.org/abs/{entry['eprint']}"
        title = f"[{entry['title']}]({link})" if link else entry["title"]
        authors = entry["author"].replace(" and ", "; ")
        lines.append(f'<span id="{key}"></span>{html.escape(authors)} ({entry["year"]}). {title}. {where}.\n')
    return "\n".join(lines)


def cite(markdown: str, page: str) -> str:
    """Return a page whose ``[@key]`` are links to the list of sources; `KeyError` names an unknown key."""
    known, up = bibliography(), "../" * page.count("/")

    def link(match: re.Match[str]) -> str:
        entry = known[match[1]]
        people = [name.partition(",")[0] for name in entry["author"].split(" and ")]
        who = people[0] if len(people) == 1 else " and ".join(people) if len(people) == 2 else f"{people[0]} et al."
        return f"[{who} {entry['year']}]({up}reference/sources.md#{match[1]})"

    return CITATION.sub(link, markdown)


#: Page -> the function that writes it.
PAGES: Mapping[str, Callable[[], str]] = {
    "reference/job.md": job_page,
    "reference/commands.md": command_page,
    "reference/detectors.md": detector_page,
    "reference/recipes.md": recipe_page,
    "reference/stages.md": stage_page,
    "reference/attacks.md": attack_page,
    "reference/python.md": api_page,
    "reference/sources.md": reference_page,
}


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages, and the records that pages link to."""
    from mkdocs.structure.files import File

    for page, write in PAGES.items():
        files.append(File.generated(config, page, content=write()))
    found = (path for folder in RECORDS for path in (ROOT / folder).iterdir() if path.suffix in (".json", ".toml"))
    for record in sorted(found):
        files.append(File.generated(config, record.relative_to(ROOT).as_posix(), abs_src_path=str(record)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Make links of citations, and of records, which have the same paths on the site."""
    text = cite(markdown, page.file.src_uri)
    for folder in RECORDS:
        place = posixpath.relpath(folder, posixpath.dirname(page.file.src_uri))
        text = text.replace(f"](../../{folder}/", f"]({place}/")
    return text
