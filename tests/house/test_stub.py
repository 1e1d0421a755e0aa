"""The typed stub of the compiled core: it names what the module exports, with the same parameters, and nothing else."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import reticent
from reticent import _rust

PACKAGE = Path(reticent.__file__).parent
STUB = PACKAGE / "_rust.pyi"
Parameters = list[tuple[str, str, object]]


def stub_items() -> Iterator[tuple[str, ast.FunctionDef | None]]:
    """Name and definition of every public function, method, property and class of the stub."""
    for node in ast.parse(STUB.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, None
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name, None
            for method in node.body:
                if isinstance(method, ast.FunctionDef):
                    yield f"{node.name}.{method.name}", method


def module_items() -> Iterator[tuple[str, object]]:
    """Name and object of everything the module exports."""
    for name, value in vars(_rust).items():
        if name.startswith("__") and name != "__version__":
            continue
        yield name, value
        if inspect.isclass(value):
            for attribute in vars(value):
                if attribute == "__new__" and value.__text_signature__ is not None:
                    yield f"{name}.__new__", value
                elif not attribute.startswith("__") or attribute == "__arrow_c_array__":
                    yield f"{name}.{attribute}", getattr(value, attribute)


STUBBED = dict(stub_items())
EXPORTED = dict(module_items())
CALLABLE = [name for name, value in EXPORTED.items() if inspect.isroutine(value) or name.endswith("__new__")]


def parameters_of_stub(definition: ast.FunctionDef) -> Parameters:
    found: Parameters = []
    arguments = definition.args
    assert not arguments.vararg
    assert not arguments.kwarg
    missing = [inspect.Parameter.empty] * (len(arguments.args) - len(arguments.defaults))
    defaults = [*missing, *map(ast.literal_eval, arguments.defaults)]
    found += [(argument.arg, "positional", value) for argument, value in zip(arguments.args, defaults, strict=True)]
    for argument, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        found.append((argument.arg, "keyword", inspect.Parameter.empty if value is None else ast.literal_eval(value)))
    return [item for item in found if item[0] not in ("self", "cls")]


def parameters_of_module(value: object) -> Parameters:
    kinds = {inspect.Parameter.POSITIONAL_OR_KEYWORD: "positional", inspect.Parameter.KEYWORD_ONLY: "keyword"}
    signature = inspect.signature(value)  # type: ignore[arg-type]
    return [(p.name, kinds[p.kind], p.default) for p in signature.parameters.values() if p.name != "self"]


def test_stub_names_exactly_what_the_module_exports() -> None:
    assert len(EXPORTED) > 50
    assert set(STUBBED) == set(EXPORTED)


@pytest.mark.parametrize("name", CALLABLE)
def test_stub_has_the_parameters_of_the_module(name: str) -> None:
    definition = STUBBED[name]
    assert definition is not None
    assert parameters_of_stub(definition) == parameters_of_module(EXPORTED[name])


def test_properties_are_properties_on_both_sides() -> None:
    properties = {
        name
        for name, value in EXPORTED.items()
        if inspect.isgetsetdescriptor(value) or inspect.ismemberdescriptor(value)
    }
    decorated = {
        name
        for name, definition in STUBBED.items()
        if definition is not None
        and any(isinstance(d, ast.Name) and d.id == "property" for d in definition.decorator_list)
    }
    assert len(properties) > 15
    assert decorated == properties


def test_every_parameter_and_result_is_typed() -> None:
    for name, definition in STUBBED.items():
        if definition is not None:
            arguments = [*definition.args.args, *definition.args.kwonlyargs]
            assert definition.returns is not None, name
            assert all(a.annotation is not None for a in arguments if a.arg not in ("self", "cls")), name


def test_names_used_by_the_package_are_exported() -> None:
    """Whatever follows ``_rust.`` in the package is there: a renamed function would fail on its first call only."""
    used = {
        match
        for path in PACKAGE.rglob("*.py")
        for match in re.findall(r"\b_rust\.([A-Za-z_]\w*)", path.read_text(encoding="utf-8"))
    }
    assert len(used) > 10
    assert used - set(EXPORTED) == set()


def test_package_says_that_it_is_typed() -> None:
    assert (PACKAGE / "py.typed").exists()


def test_classes_and_functions_are_shown_where_they_are_imported_from() -> None:
    values = vars(_rust).items()
    shown = {name: value.__module__ for name, value in values if inspect.isclass(value) or inspect.isbuiltin(value)}
    shown = {name: module for name, module in shown.items() if not name.startswith("__")}
    assert {"IndexBuilder", "NgramIndex", "segment"} <= shown.keys()
    assert set(shown.values()) == {"reticent._rust"}
