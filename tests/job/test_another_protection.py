"""Another k, n or policy in a run that is there: its tokens are those of a run from nothing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from fixtures.drawing import share_of
from fixtures.jobs import Values, changed, content, protected_by_three, run

from reticent.core.errors import ArtifactError, PolicyError
from reticent.engine.ngrams import NgramIndex
from reticent.engine.protect import POLICIES
from reticent.job import views

TOKENS = ("tokens/toy/train", "tokens/toy/audit")


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> Values:
    return protected_by_three(tmp_path_factory.mktemp("hospital"), num_threads=2)


@pytest.fixture(scope="module")
def first(values: Values) -> Path:
    run(values)
    return Path(values["out"])


@pytest.fixture
def again(first: Path, values: Values, tmp_path: Path) -> Values:
    """The same run with another k."""
    shutil.copytree(first, tmp_path / "run")
    return changed(values, out=str(tmp_path / "run"), protect__k=4)


def tokens(folder: Path) -> dict[str, dict[str, bytes]]:
    return {name: content(folder / name) for name in TOKENS}


def left(values: Values) -> list[str]:
    """What is beside the artefacts of the tokens, locks aside."""
    names = (path.name for path in (Path(values["out"]) / "tokens" / "toy").iterdir())
    return sorted(name for name in names if name not in ("ids", "gaps", "train", "audit") and ".lock" not in name)


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("extra", "first", "least"),
    [
        ({}, 0, 5),
        ({"dedup__mode": "exact"}, 1, 2),
        ({"split__reference": 0.2, "split__user_inference_holdout": 0.2}, 5, 2),
    ],
)
def test_another_protection_makes_the_tokens_of_a_run_from_nothing(
    values: Values, tmp_path: Path, extra: dict[str, Any], first: int, least: int
) -> None:
    settings = changed(values, out=str(tmp_path / "run"), **extra)
    run(settings)
    many = [(k, n, POLICIES[(number + n) % 4]) for number, k in enumerate((2, 3, 5, 15, 16, 40)) for n in (1, 2, 3)]
    for k, n, policy in share_of(many, first, least):
        protection = {"protect__k": k, "protect__n": n, "protect__policy": policy}
        made = run(changed(settings, **protection)).made
        assert not {*made} - {"dedup", *TOKENS}
        run(changed(settings, out=str(tmp_path / f"{k}-{n}"), **protection))
        assert tokens(tmp_path / "run") == tokens(tmp_path / f"{k}-{n}"), protection


@pytest.mark.parametrize("setting", [{"num_threads": 1}, {"memory_limit": "64GB"}])
def test_neither_threads_nor_a_memory_limit_change_a_view(
    again: Values, tmp_path: Path, setting: dict[str, Any]
) -> None:
    shutil.copytree(tmp_path / "run", tmp_path / "other")
    assert run(again).made == list(TOKENS)
    run(changed(again, out=str(tmp_path / "other"), **setting))
    assert tokens(tmp_path / "run") == tokens(tmp_path / "other")


def test_another_protection_reads_neither_all_texts_nor_the_tokenizer_by_the_core(
    again: Values, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reticent import _rust

    monkeypatch.setattr(_rust, "TokenEncoder", None)
    monkeypatch.setattr(_rust, "segment", None)
    assert run(again).made == list(TOKENS)


@pytest.mark.parametrize("error", [ArtifactError("no room"), KeyboardInterrupt()])
def test_a_view_that_fails_leaves_the_one_before_it_whole_and_its_own_as_it_was(
    again: Values, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    before = tokens(tmp_path / "run")
    write = views.write_view_of

    def fails(*arguments: Any) -> dict[str, Any]:
        counts = write(*arguments)
        if "audit" in arguments[2].name:
            raise error
        return counts

    monkeypatch.setattr(views, "write_view_of", fails)
    with pytest.raises(type(error)):
        run(again)
    after = tokens(tmp_path / "run")
    assert after[TOKENS[0]] != before[TOKENS[0]]
    assert after[TOKENS[1]] == before[TOKENS[1]]
    assert left(again) == []
    monkeypatch.undo()
    assert run(again).made == ["tokens/toy/audit"]


def test_tables_of_ngrams_that_do_not_fit_into_the_memory_limit_are_refused(
    again: Values, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NgramIndex, "table_bytes", lambda *_, **__: 1 << 50)
    with pytest.raises(PolicyError, match="n-grams that protect tokens take"):
        run(changed(again, memory_limit="20GB"))
