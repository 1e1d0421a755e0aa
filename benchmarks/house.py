"""How the code is built: import cycles, storeys, long files and functions, mirrored classes, untyped evidence, words.

    python -m benchmarks.house            # prints the table; exit status 1 where a goal is not met
    python -m benchmarks.house --changes  # for eight changes: the files one has to open

Nothing is imported and nothing is run: the source is read. The goals stand in `GOALS`; a function that is longer than
the goal stands in `LONG_FUNCTIONS` with its reason.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "reticent"

#: Most that each measure may be.
GOALS = {
    "import cycles": 0,
    "imports upward between floors": 0,
    "storeys (longest chain of imports)": 8,
    "files over 400 lines": 0,
    "functions over 50 lines without a reason": 0,
    "mirrored configuration classes": 0,
    "dict[str, Any] in the evidence": 0,
    "identifiers of the left column": 0,
    "phrases of the left column": 0,
}
MOST_LINES, MOST_LINES_OF_A_FUNCTION = 400, 50
#: Name of a function over the limit -> why it is one piece.
LONG_FUNCTIONS: dict[str, str] = {
    "reticent.trainer.loop.train": "the loop is read from top to bottom in one place",
    "reticent.engine.graph._count_distinct": "one kernel: its hash table is five arrays that all steps read and grow",
}
#: From the ground up. A floor imports from those before it alone.
FLOORS = ("core", "engine", "trainer", "audit", "guard", "job", "cli")
#: Fields that two configuration classes may share: they say where something runs, and each component needs them.
SHARED = {"seed", "device", "num_threads", "num_bootstrap", "batch_size", "window_length", "progress", "small_cell"}

#: Words that are no identifier (nor a part of one between underscores), and the words of the field for them.
WORDS = {
    "stranger": "held-out",
    "strangers": "held-out",
    "who_sees_whom": "block_diagonal_mask",
    "what_it_computes": "cache_key",
    "looks_current": "is_up_to_date",
    "is_current": "is_up_to_date",
    "reopen": "invalidate",
    "mend": "recover",
    "wipe": "delete",
    "aside": "backup",
    "undisturbed": "signals_deferred",
    "piece": "measurement",
    "examine": "evaluate",
    "people": "individuals",
    "person": "individual",
    "nobody": "no individual",
    "somebody": "an individual",
    "people_groups": "subgroups",
    "worst_group": "worst_subgroup",
    "head_alone": "lm_head",
    "stop_kept": "graceful_stop",
    "forget_state": "delete_state",
    "told_apart": "distinguishable",
    "mended": "repaired",
    "wiped": "deleted",
    "everybody": "all",
    "anybody": "an individual",
}
LEFT_WORDS = re.compile(f"_(?:{'|'.join(WORDS)})_")
#: Identifiers that have such a word for a reason.
ALLOWED = {
    "person_labels": "labels PER of a tagger",
    "person_BT": "tokens that carry a label PER",
    "persons": "a table of OMOP",
}
#: Phrases that no comment, docstring or message has.
PHRASES = (
    "told apart",
    "at first ",
    "who sees whom",
    "a coin would",
    "no better than a coin",
    "than guessing",
    "strangers",
    "stranger ",
    "nobody's",
    "somebody's",
    "what it computes",
    "looks current",
    "set aside",
    "mended",
    "wiped",
    "a base said",
    "that it was asked",
    "people marked",
)
#: Words for individuals that no comment or docstring has, ...
PRONOUNS = re.compile(
    r"\b(?:people|somebody|someone|nobody|anybody|anyone|everybody|everyone|strangers?)\b", re.IGNORECASE
)
#: ... but in rooms whose docstrings are help, or whose texts a reader without training sees.
FOR_READERS = ("reticent.cli", "reticent.audit.report")


@dataclass(frozen=True)
class Module:
    """One module of the package."""

    name: str
    path: Path
    tree: ast.Module
    text: str

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of the tree: several measures look at all of them."""
        return tuple(ast.walk(self.tree))

    @property
    def floor(self) -> str:
        parts = self.name.split(".")
        return parts[1] if len(parts) > 1 and parts[1] in FLOORS else ""


@cache
def modules() -> dict[str, Module]:
    """Return every module of the package by name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text(encoding="utf-8")
        found[name] = Module(name, path, ast.parse(text), text)
    return found


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def _imports(node: ast.AST, *, inner: bool, top: bool = True) -> Iterator[str]:
    """Yield names that a module imports when it runs; with ``inner`` also inside functions."""
    for child in ast.iter_child_nodes(node):
        if _is_type_checking(child):
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module:
            yield child.module
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        elif isinstance(child, ast.expr):
            continue
        elif inner or not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _imports(child, inner=inner, top=False)


@cache
def graph(inner: bool = True) -> dict[str, set[str]]:
    """Return module -> modules of the package that it imports."""
    known = modules()
    edges: dict[str, set[str]] = {}
    for name, module in known.items():
        wanted = {other for other in _imports(module.tree, inner=inner) if other in known and other != name}
        # `from package import module` names both; the package counts only where nothing of it is a module.
        edges[name] = {o for o in wanted if not any(w.startswith(f"{o}.") for w in wanted)}
    return edges


def cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected components of more than one module (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in edges[name]:
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            component = []
            while True:
                component.append(stack.pop())
                if component[-1] == name:
                    break
            if len(component) > 1:
                found.append(sorted(component))

    sys.setrecursionlimit(10_000)
    for name in edges:
        if name not in index:
            visit(name)
    return found


def storeys(edges: dict[str, set[str]]) -> list[str]:
    """Return the longest chain of imports, from the top down; the graph has no cycle."""

    @cache
    def below(name: str) -> tuple[str, ...]:
        return (name, *max((below(other) for other in edges[name]), key=len, default=()))

    return list(max(map(below, edges), key=len))


def upward() -> list[str]:
    """Return the imports from a floor above."""
    known = modules()
    return [
        f"{name} -> {other}"
        for name, others in graph().items()
        for other in sorted(others)
        if known[name].floor
        and known[other].floor
        and FLOORS.index(known[other].floor) > FLOORS.index(known[name].floor)
    ]


def long_files() -> list[str]:
    """Return the files over the limit, of Python and Rust."""
    files = [*PACKAGE.rglob("*.py"), *(ROOT / "rust_ext").rglob("*.rs")]
    sizes = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    long = sorted((path for path, size in sizes.items() if size > MOST_LINES), key=lambda path: -sizes[path])
    return [f"{path.relative_to(ROOT)} ({sizes[path]})" for path in long]


def long_functions() -> list[str]:
    """Return the functions over the limit of lines that have no reason in `LONG_FUNCTIONS`; docstrings do not count."""
    found = []
    for name, module in modules().items():
        for node in module.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                size = (node.end_lineno or node.lineno) - node.body[0].lineno + 1
                if ast.get_docstring(node) is not None:
                    size -= (node.body[0].end_lineno or 0) - node.body[0].lineno + 1
                if size > MOST_LINES_OF_A_FUNCTION and f"{name}.{node.name}" not in LONG_FUNCTIONS:
                    found.append(f"{name}.{node.name} ({size})")
    return found


def _fields(node: ast.ClassDef) -> set[tuple[str, str]]:
    """Return (name, default) of each field of a class."""
    return {
        (child.target.id, ast.unparse(child.value) if child.value is not None else "")
        for child in node.body
        if isinstance(child, ast.AnnAssign)
        and isinstance(child.target, ast.Name)
        and not ast.unparse(child.annotation).startswith("ClassVar")
    }


def _default_of(value: str) -> str:
    """The default alone: a description in a ``Field`` may differ."""
    found = re.match(r"Field\((?:default=)?([^,)]*)", value)
    return found.group(1) if found else value


def mirrors() -> list[str]:
    """Return pairs of configuration classes that share four fields or more, each with its default."""
    classes = {}
    for name, module in modules().items():
        for node in module.nodes:
            if isinstance(node, ast.ClassDef) and re.search(r"(Config|Section|Settings|Options)$", node.name):
                fields = {(field, _default_of(value)) for field, value in _fields(node)}
                classes[f"{name}.{node.name}"] = {(f, value) for f, value in fields if f not in SHARED and value}
    pairs = combinations(classes.items(), 2)
    return [f"{a} = {b}: {', '.join(sorted(name for name, _ in x & y))}" for (a, x), (b, y) in pairs if len(x & y) >= 4]


def untyped_evidence() -> list[str]:
    """Return the places of the audit that pass evidence as ``dict[str, Any]``."""
    return [
        f"{module.path.relative_to(ROOT)}:{number}"
        for name, module in modules().items()
        if name.startswith("reticent.audit")
        for number, line in enumerate(module.text.splitlines(), 1)
        for _ in re.findall(r"dict\[str, Any\]", line)
    ]


def left_identifiers(known: Iterable[Module] | None = None) -> list[str]:
    """Return the identifiers that are, or hold, a word of the left column."""
    found = []
    for module in modules().values() if known is None else known:
        names: set[tuple[str, int]] = set()
        for node in module.nodes:
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
                names.add((node.name, node.lineno))
            elif isinstance(node, ast.arg):
                names.add((node.arg, node.lineno))
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add((node.id, node.lineno))
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                names.add((node.attr, node.lineno))
        for name, line in sorted(names, key=lambda row: row[1]):
            if name not in ALLOWED and LEFT_WORDS.search(f"_{name.lower()}_"):
                found.append(f"{module.path.relative_to(ROOT)}:{line}: {name}")
    return found


def _prose(module: Module) -> Iterator[tuple[int, str]]:
    """Yield number and text of the lines of comments and docstrings."""
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in module.nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node, clean=False)
            if text is not None:
                yield from enumerate(text.splitlines(), node.body[0].lineno)


def left_phrases(known: Iterable[Module] | None = None) -> list[str]:
    """Return the lines that hold a listed phrase, and the comments and docstrings that hold a listed pronoun or begin
    with a clause of *what*.
    """
    found = []
    for module in modules().values() if known is None else known:
        phrases = [phrase for phrase in PHRASES if phrase in module.text]
        rows = [
            (number, phrase.strip())
            for number, line in enumerate(module.text.splitlines(), 1)
            for phrase in phrases
            if phrase in line
        ]
        # Most modules have no such word at all, and finding comments takes longer than everything else here.
        if not module.name.startswith(FOR_READERS) and PRONOUNS.search(module.text):
            rows += [(number, word) for number, text in _prose(module) for word in PRONOUNS.findall(text)]
        for node in module.nodes:
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text is not None and text.startswith("What "):
                    rows.append((node.body[0].lineno, "What"))
        found += [f"{module.path.relative_to(ROOT)}:{number}: {phrase}" for number, phrase in sorted(rows)]
    return found


def measures() -> dict[str, list[str]]:
    """Return measure -> what counts against it. Of storeys: the chain."""
    every = graph()
    return {
        "import cycles": [" <-> ".join(cycle) for cycle in cycles(every)],
        "imports upward between floors": upward(),
        "storeys (longest chain of imports)": storeys(graph(inner=False)),
        "files over 400 lines": long_files(),
        "functions over 50 lines without a reason": long_functions(),
        "mirrored configuration classes": mirrors(),
        "dict[str, Any] in the evidence": untyped_evidence(),
        "identifiers of the left column": left_identifiers(),
        "phrases of the left column": left_phrases(),
    }


@dataclass(frozen=True)
class Change:
    """A change, and the files to open for it, beside its test and the changelog.

    ``before`` are the files of the house before it was redesigned (commit c0c79b6); the names are of that time.
    """

    name: str
    before: tuple[str, ...]
    after: tuple[str, ...]


#: `CONTRIBUTING.md` has the steps of the attack, gate, detector, format and source; a test follows them.
CHANGES = (
    Change(
        "attack on membership",
        ("audit/membership.py", "audit/report.py", "audit/run.py", "config/audit.py"),
        ("audit/membership/attacks.py",),
    ),
    Change(
        "detector",
        ("engine/detect/NEW.py", "engine/detect/choose.py", "engine/detect/union.py", "config/documents.py"),
        ("engine/detect/NEW.py", "engine/detect/choose.py"),
    ),
    Change("recipe", ("trainer/recipes.py",), ("trainer/recipes.py",)),
    Change(
        "format",
        ("engine/NEW.py", "engine/corpus.py", "engine/formats.py", "engine/folders.py", "config/documents.py"),
        ("engine/sources/NEW.py", "engine/sources/formats.py"),
    ),
    Change(
        "plot of the report",
        ("audit/plots.py", "audit/report.py", "audit/templates/report.html.j2"),
        ("audit/report/NEW.py", "audit/report/table.py"),
    ),
    Change("gate", ("audit/verdict.py", "config/audit.py", "config/job.py"), ("audit/gates.py",)),
    Change("national id (a rule)", ("rust_ext/src/rules/numbers.rs",), ("rust_ext/src/rules/numbers.rs",)),
    Change(
        "source of documents",
        ("engine/corpus.py", "engine/columns.py", "engine/batches.py", "config/documents.py", "run_folder.py"),
        ("engine/sources/NEW.py",),
    ),
)


def missing_files() -> list[str]:
    """Return the files that `CHANGES` names and that are not there."""
    named = {file for change in CHANGES for file in change.after if "NEW" not in file}
    return [file for file in sorted(named) if not any((root / file).exists() for root in (PACKAGE, ROOT))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verbose", "-v", action="store_true", help="name what counts against each measure")
    parser.add_argument("--changes", action="store_true", help="for eight changes, the files one has to open")
    arguments = parser.parse_args()
    if arguments.changes:
        for change in CHANGES:
            print(f"{change.name:22} {len(change.before)} files -> {len(change.after)}: {', '.join(change.after)}")
        print(*(f"not there: {file}" for file in missing_files()), sep="\n")
        return int(bool(missing_files()))
    failed = False
    for name, found in measures().items():
        is_met = len(found) <= GOALS[name]
        failed |= not is_met
        print(f"{name:45} {len(found):5}  goal {GOALS[name]:3}  {'ok' if is_met else 'NOT MET'}")
        if arguments.verbose:
            print(*(f"    {row}" for row in found), sep="\n")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
