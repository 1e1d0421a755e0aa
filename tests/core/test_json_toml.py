"""JSON and TOML that is no JSON or TOML, or nests without end, is a clear error wherever one of our files is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reticent.core.artifact import holds_results, read_manifest
from reticent.core.errors import ArtifactError, CorpusError, PolicyError, ReticentError
from reticent.core.eta import Timings
from reticent.core.json_toml import MAX_DEPTH, depth_of, parse_json, parse_toml, read_json, read_toml
from reticent.engine.vocabularies import bytelevel_tokenizer_json
from reticent.ext.dp.budget import read_budget
from reticent.ext.propile.subjects import read_items
from reticent.ext.propile.templates import read_templates
from reticent.job.config import load_job, parse_job
from reticent.trainer.base_files import check_base, read_tokenizer_json
from reticent.trainer.verify import read_ledger

SECRET = "Zyxwvut"
VALID: dict[str, Any] = {"out": "run", "corpus": {"source": "x"}}


def nested(depth: int) -> bytes:
    return b'{"a": ' + b"[" * depth + f'"{SECRET}"'.encode() + b"]" * depth + b"}"


def nested_toml(depth: int) -> bytes:
    return b"a = " + b"[" * depth + f'"{SECRET}"'.encode() + b"]" * depth


HOSTILE_JSON = [nested(3000), nested(100_000), nested(MAX_DEPTH), b"{", b"", b'"\xff"', b"9" * 5000, b'{"a": ' * 3000]
HOSTILE_TOML = [
    nested_toml(3000),
    nested_toml(100_000),
    nested_toml(MAX_DEPTH),
    b"=",
    b'a = "\xff"',
    b"a = " + b"9" * 5000,
]
READERS: list[tuple[str, Callable[[Path], Any], type[ReticentError]]] = [
    ("job.json", load_job, PolicyError),
    ("manifest.json", lambda path: read_manifest(path.parent), ArtifactError),
    ("config.json", lambda path: check_base(path.parent), ArtifactError),
    ("tokenizer_config.json", lambda path: check_base(path.parent), ArtifactError),
    ("tokenizer.json", read_tokenizer_json, ArtifactError),
    ("ledger.json", read_ledger, ArtifactError),
    ("budget.json", read_budget, ArtifactError),
    ("vocab.json", lambda path: bytelevel_tokenizer_json(path, path), ArtifactError),
    ("report.json", read_json, ArtifactError),
]
TOML_READERS: list[tuple[str, Callable[[Path], Any], type[ReticentError]]] = [
    ("job.toml", load_job, PolicyError),
    ("t.toml", read_templates, PolicyError),
    ("i.toml", read_items, CorpusError),
]


@pytest.mark.parametrize(
    ("name", "read", "error", "content"),
    [
        pytest.param(*reader, content, id=f"{number}-{reader[0]}")
        for readers, contents in ((READERS, HOSTILE_JSON), (TOML_READERS, HOSTILE_TOML))
        for reader in readers
        for number, content in enumerate(contents)
    ],
)
def test_hostile_json_or_toml_is_refused_by_name_and_quotes_nothing(
    tmp_path: Path, name: str, read: Callable[[Path], Any], error: type[ReticentError], content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(error) as caught:
        read(tmp_path / name)
    assert str(tmp_path / name if name.endswith(".toml") else tmp_path) in str(caught.value)
    assert SECRET not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_the_limit_is_on_depth_alone() -> None:
    assert depth_of(parse_json(nested(MAX_DEPTH - 1))) == MAX_DEPTH
    assert depth_of(parse_toml(nested_toml(MAX_DEPTH - 1))) == MAX_DEPTH
    assert depth_of(json.loads(nested(900))) == MAX_DEPTH + 1
    assert [depth_of(value) for value in (1, [], {}, [[], {"a": [1]}])] == [0, 1, 1, 3]
    assert len(parse_json(json.dumps(list(range(100_000))))) == 100_000


def test_toml_may_begin_with_a_byte_order_mark() -> None:
    assert parse_toml('\ufeffk = "é"'.encode()) == {"k": "é"}


def test_a_job_that_nests_without_end_is_refused_wherever_it_comes_from() -> None:
    with pytest.raises(PolicyError, match=rf"more than {MAX_DEPTH} deep"):
        parse_job({**VALID, "detect": {"rules": json.loads(nested(900))}})


def test_a_look_in_passing_takes_a_hostile_file_for_none(tmp_path: Path) -> None:
    for name in ("manifest.json", "job.json"):
        (tmp_path / name).write_bytes(nested(3000))
    assert not holds_results(tmp_path)
    (tmp_path / ".timings.jsonl").write_bytes(nested(3000) + b'\n{"name": "a", "seconds": 1}\n')
    assert list(Timings(tmp_path).read()) == ["a"]


@pytest.mark.parametrize("read", [read_json, read_toml])
def test_a_path_that_no_file_can_have_is_an_error_that_says_so(tmp_path: Path, read: Callable[..., Any]) -> None:
    for name in ("a\0b", "\ud800"):
        with pytest.raises(ReticentError, match="no file can have this name"):
            read(tmp_path / name)
    with pytest.raises(ReticentError, match=r"none\.json: cannot be read \(No such file or directory\)"):
        read(tmp_path / "none.json")


PATHS = [
    ("out",), ("corpus", "source"), ("corpus", "withdrawn"), ("detect", "records"),
    ("detect", "gazetteer", "lists", "A"), ("model", 0, "base"),
    ("train", "dp", "budget_file"), ("probe", "subjects"), ("probe", "templates"),
]  # fmt: skip


@pytest.mark.parametrize("where", PATHS, ids=[".".join(map(str, where)) for where in PATHS])
@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_a_nul_in_a_path_is_refused_with_the_name_of_the_setting(where: tuple[Any, ...], text: str) -> None:
    values: Any = {"out": "run", "corpus": {"source": "x", "withdrawn": []}, "detect": {"gazetteer": {"lists": {}}}}
    values |= {"model": [{"name": "a", "objective": "clm", "recipes": ["clm"]}], "train": {"dp": {}}, "probe": {}}
    target = values
    for key in where[:-1]:
        target = target[key]
    target[where[-1]] = [text] if where[-1] == "withdrawn" else text
    name = ".".join(map(str, where)).replace(".", r"\.")
    with pytest.raises(PolicyError, match=rf"^job: {name}(\.0)?: holds a NUL"):
        parse_job(values)
