"""Which module uses which: circles, arrows upward, imports inside functions, lines by room.

    python -m tools.house             # the size of each room, circles, arrows upward; exit status 1 where there is one
    python -m tools.house --verbose   # also every light import inside a function, and every file with one importer

Nothing is imported and nothing is run: the source is read. **Every** arrow counts: imports at the top of a module,
those inside functions, under ``TYPE_CHECKING``, and names of modules in strings (``"reticent.ext.spark:run"``).
Only two things are asserted: no circle and no arrow upward. The rest is printed for a reader to judge.

A row of a table that names a module of ``reticent.ext`` as a string is how the core reaches a sibling that it does not
know (`reticent.core.resolve`): those arrows are printed, and neither close a circle nor point upward. All other strings
count.
"""

from __future__ import annotations

import argparse
import ast
import graphlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parents[1]
PACKAGE = "reticent"
#: From the ground up. A floor imports from itself and those before it alone.
FLOORS = ("core", "engine", "trainer", "audit", "job", "ext", "cli")
#: Libraries that take long to load, or that come with an extra: an import of them may stand inside a function.
HEAVY = {
    *("torch", "transformers", "safetensors", "huggingface_hub", "peft", "opacus", "dp_accounting", "scipy", "sklearn"),
    *("matplotlib", "spacy", "edsnlp", "presidio_analyzer", "numba", "polars", "pandas", "pyspark", "deltalake"),
    *("pyiceberg", "adbc_driver_manager", "adbc_driver_postgresql", "duckdb", "jinja2", "weasyprint", "phonenumbers"),
    *("rapidfuzz", "sacrebleu", "rouge_score", "tensorboard", "wordfreq", "tokenizers", "tldextract", "py4j"),
}

Kind = Literal["top", "inner", "types", "late"]


@dataclass(frozen=True)
class Arrow:
    """One import: from module to module, with its kind and line."""

    source: str
    target: str
    kind: Kind
    line: int


def read_modules(root: Path = ROOT) -> dict[str, Path]:
    """Return the file of every module of the package by name."""
    found = {}
    for path in sorted((root / PACKAGE).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def floor_of(name: str) -> int | None:
    """Return the number of the floor of a module; None for the package itself and the modules beside the floors."""
    parts = name.split(".")
    return FLOORS.index(parts[1]) if len(parts) > 1 and parts[1] in FLOORS else None


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def _imports(node: ast.AST, kind: Kind) -> Iterator[tuple[str, Kind, int]]:
    """Yield (name, kind, line) of all that is imported below a node; ``from a import b`` gives ``a`` and ``a.b``."""
    for child in ast.iter_child_nodes(node):
        below: Kind = kind
        if _is_type_checking(child):
            below = "types"
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and kind == "top":
            below = "inner"
        if isinstance(child, ast.Import):
            yield from ((alias.name, kind, child.lineno) for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module:
            yield child.module, kind, child.lineno
            yield from ((f"{child.module}.{alias.name}", kind, child.lineno) for alias in child.names)
        else:
            yield from _imports(child, below)


_NAMED = re.compile(r"(reticent(?:\.\w+)+)(?::\w+(?:\.\w+)*)?")


def _named(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the modules that strings seem to name, and their lines; docstrings name nothing."""
    prose: set[int] = set()
    for node in ast.walk(tree):  # what stands in a node comes after it
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            if match := _NAMED.fullmatch(node.value):
                yield match[1], node.lineno
        elif isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            prose |= {id(first.value) for first in node.body[:1] if isinstance(first, ast.Expr)}


@cache
def _read(path: Path) -> tuple[list[tuple[str, Kind, int]], list[tuple[str, int]]]:
    """Return what a file imports, and the modules that its strings seem to name."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return list(_imports(tree, "top")), list(_named(tree))


def read_arrows(root: Path = ROOT) -> list[Arrow]:
    """Return every arrow between modules of the package."""
    modules = read_modules(root)
    arrows = []
    for name, path in modules.items():
        imports, named = _read(path)
        found = [(other, kind, line) for other, kind, line in imports if other in modules]
        # `from package import module` names both: the package counts only where nothing else of the line is a module.
        # The root holds the version and the compiled core alone; its public names are loaded when they are asked for.
        lines = {(line, other) for other, _, line in found}
        for other, kind, line in found:
            if not any(at == line and more.startswith(f"{other}.") for at, more in lines) and other not in (
                name,
                PACKAGE,
            ):
                arrows.append(Arrow(name, other, kind, line))
        arrows += [Arrow(name, other, "late", line) for other, line in named if other in modules and other != name]
    return arrows


def is_row_of_a_sibling(arrow: Arrow) -> bool:
    """Whether a table names a module of ``ext``, to be loaded when it is asked for."""
    return arrow.kind == "late" and arrow.target.startswith(f"{PACKAGE}.ext.")


def circles(arrows: list[Arrow]) -> list[list[str]]:
    """Return the first circle of each module that is in one, without those of modules named before."""
    edges: dict[str, set[str]] = defaultdict(set)
    for arrow in arrows:
        if not is_row_of_a_sibling(arrow):
            edges[arrow.source].add(arrow.target)
    found = []
    while True:
        try:
            graphlib.TopologicalSorter(edges).prepare()
        except graphlib.CycleError as error:
            found.append(sorted(set(error.args[1])))
            for name in found[-1]:
                edges[name] = set()
        else:
            return found


def upward(arrows: list[Arrow]) -> list[Arrow]:
    """Return the arrows to a floor above."""
    return [
        arrow
        for arrow in arrows
        if not is_row_of_a_sibling(arrow)
        and (low := floor_of(arrow.source)) is not None
        and (high := floor_of(arrow.target)) is not None
        and high > low
    ]


def light_inner_imports(root: Path = ROOT) -> list[str]:
    """Return the imports inside functions of modules that neither are heavy nor load anything heavy at their top."""
    modules = read_modules(root)
    top: dict[str, set[str]] = {}
    inner: list[tuple[str, int, str]] = []
    for name, path in modules.items():
        found, _ = _read(path)
        top[name] = {other for other, kind, _ in found if kind == "top"}
        inner += [
            (name, line, other) for other, kind, line in found if kind == "inner" and not _is_attribute(other, modules)
        ]

    heavy = {name for name, others in top.items() if any(other.split(".")[0] in HEAVY for other in others)}
    while more := {name for name, others in top.items() if name not in heavy and others & heavy}:
        heavy |= more
    return [
        f"{modules[name].relative_to(root)}:{line}: {other}"
        for name, line, other in inner
        if other.split(".")[0] not in HEAVY and other not in heavy
    ]


def _is_attribute(name: str, modules: dict[str, Path]) -> bool:
    """Whether ``a.b`` is a name inside of the module ``a``, so that the line has been counted by ``a`` already."""
    return name not in modules and name.rpartition(".")[0] in modules


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verbose", "-v", action="store_true", help="name every light import and every only importer")
    verbose = parser.parse_args().verbose
    modules, arrows = read_modules(), read_arrows()

    rooms: Counter[str] = Counter()
    for name, path in modules.items():
        parts = name.split(".")
        room = ".".join(parts[1:-1]) if path.name != "__init__.py" else ".".join(parts[1:])
        rooms[room or PACKAGE] += len(path.read_text(encoding="utf-8").splitlines())
    for room, lines in sorted(rooms.items()):
        print(f"{room:24} {lines:7,}")
    print(f"{'all of Python':24} {rooms.total():7,}   {len(modules)} files")
    rust = [path.read_text(encoding="utf-8") for path in (ROOT / "rust_ext").rglob("*.rs")]
    print(f"{'rust_ext':24} {sum(len(text.splitlines()) for text in rust):7,}   {len(rust)} files\n")

    kinds = Counter(arrow.kind for arrow in arrows)
    print("arrows: " + ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()))
    all_inner = sum(
        kind == "inner" and not _is_attribute(other, modules)
        for path in modules.values()
        for other, kind, _ in _statements(path)
    )
    light = light_inner_imports()
    print(f"import statements inside functions: {all_inner}; of them load nothing heavy: {len(light)}")
    importers: dict[str, set[str]] = defaultdict(set)
    for arrow in arrows:
        importers[arrow.target].add(arrow.source)
    single = sorted((name, *who) for name, who in importers.items() if len(who) == 1)
    print(f"files with one importer: {len(single)}")
    if verbose:
        print(*(f"    {row}" for row in light), sep="\n")
        print(*(f"    {name} <- {who}" for name, who in single), sep="\n")
    found = circles(arrows)
    wrong = upward(arrows)
    rows = sorted({(arrow.source, arrow.target) for arrow in arrows if is_row_of_a_sibling(arrow)})
    print(f"rows of tables that name a sibling: {len(rows)}", *(f"    {a} -> {b}" for a, b in rows), sep="\n")
    print(f"\ncircles: {len(found)}", *(f"    {len(circle)}: {', '.join(circle)}" for circle in found), sep="\n")
    print(
        f"arrows upward: {len(wrong)}",
        *(f"    {arrow.source} -> {arrow.target} ({arrow.kind})" for arrow in wrong),
        sep="\n",
    )
    return int(bool(found or wrong))


def _statements(path: Path) -> Iterator[tuple[str, Kind, int]]:
    """Yield one name for each import statement of a file."""
    seen = set()
    for other, kind, line in _read(path)[0]:
        if line not in seen:
            seen.add(line)
            yield other, kind, line


if __name__ == "__main__":
    raise SystemExit(main())
