"""Supports that a run keeps for another k, n or policy: its tokens are those of a run from nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from fixtures.jobs import Recorder, Values, changed, content, protected_by_three, run

from reticent.core.artifact import VERIFIED, locked, read_manifest
from reticent.core.errors import PolicyError
from reticent.engine import views as views_module
from reticent.engine.capped import CappedSupports
from reticent.engine.ngrams import NgramIndex
from reticent.job.config import parse_job
from reticent.job.run import Run
from reticent.job.update import update_run

SUPPORTS = ("supports/index", "supports/index-joint")
TOKENS = ("tokens/toy/train", "tokens/toy/audit")


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> Values:
    return protected_by_three(tmp_path_factory.mktemp("hospital"), index__updatable=True)


@pytest.fixture(scope="module")
def first(values: Values) -> Path:
    run(values)
    return Path(values["out"])


@pytest.fixture
def again(first: Path, values: Values, tmp_path: Path) -> Values:
    shutil.copytree(first, tmp_path / "run")
    return changed(values, out=str(tmp_path / "run"))


def from_nothing(values: Values, folder: Path, **protection: Any) -> dict[str, dict[str, bytes]]:
    fresh = changed(values, out=str(folder), **{f"protect__{name}": value for name, value in protection.items()})
    run(fresh)
    return tokens(folder)


def tokens(folder: Path) -> dict[str, dict[str, bytes]]:
    return {name: content(folder / name) for name in TOKENS}


def inodes(folder: Path) -> list[int]:
    return [(folder / name / "supports_2.bin").stat().st_ino for name in SUPPORTS]


def about(folder: Path) -> list[tuple[int, int]]:
    return [(config["k"], config["n"]) for config in (read_manifest(folder / name).config for name in SUPPORTS)]


@pytest.mark.heavy
@pytest.mark.parametrize(
    "extra", [{}, {"dedup__mode": "exact"}, {"split__reference": 0.2, "split__user_inference_holdout": 0.2}]
)
def test_another_protection_makes_the_tokens_of_a_run_from_nothing(
    values: Values, tmp_path: Path, extra: dict[str, Any]
) -> None:
    settings = changed(values, out=str(tmp_path / "run"), **extra)
    run(settings)
    kept = inodes(tmp_path / "run")
    for number, k in enumerate((2, 3, 5, 15, 16, 40)):
        for n in (1, 2, 3):
            policy = ("all", "last", "cover", "paper")[(number + n) % 4]
            protection = {"k": k, "n": n, "policy": policy}
            run(changed(settings, **{f"protect__{name}": value for name, value in protection.items()}))
            expected = from_nothing(settings, tmp_path / f"{k}-{n}", **protection)
            assert tokens(tmp_path / "run") == expected, protection
            assert (tmp_path / f"{k}-{n}/supports").exists() == (n > 1 and k <= 15)
    assert inodes(tmp_path / "run") == kept


def test_supports_are_private_and_take_the_place_of_look_ups(again: Values, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(again["out"])
    for path in (folder / "supports").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0
    opened = []

    class Seen(CappedSupports):
        def __init__(self, folder: Path, num_words: int):
            opened.append(folder.name)
            super().__init__(folder, num_words)

    monkeypatch.setattr(views_module, "CappedSupports", Seen)
    run(changed(again, protect__k=4, protect__policy="last"))
    assert sorted(opened) == ["index", "index-joint"]  # made at a time


def test_a_smaller_k_or_a_larger_n_has_them_made_again(again: Values, tmp_path: Path) -> None:
    folder = Path(again["out"])
    shutil.rmtree(folder / "supports")
    for k, n, expected in ((4, 2, (4, 2)), (9, 2, (4, 2)), (3, 2, (3, 2)), (5, 3, (5, 3)), (2, 3, (2, 3))):
        run(changed(again, protect__k=k, protect__n=n))
        assert about(folder) == [expected] * 2
        assert tokens(folder) == from_nothing(again, tmp_path / f"{k}-{n}", k=k, n=n)


@pytest.mark.parametrize("trusted", [False, True])
def test_damaged_supports_are_made_again(again: Values, tmp_path: Path, trusted: bool) -> None:
    folder = Path(again["out"])
    for name, place in zip(SUPPORTS, (0, -1), strict=True):
        path = folder / name / "supports_2.bin"
        data = bytearray(path.read_bytes())
        data[place] ^= 0xFF
        path.write_bytes(data if place else data[:-1])
    if not trusted:
        (folder / VERIFIED).unlink()
    run(changed(again, protect__k=4))
    assert tokens(folder) == from_nothing(again, tmp_path / "fresh", k=4)
    assert about(folder) == [(4, 3)] * 2
    damaged = folder / "supports/index/manifest.json"
    damaged.write_text(json.dumps(json.loads(damaged.read_text()) | {"config": {"k": "x"}}))
    run(changed(again, protect__k=5))
    assert tokens(folder) == from_nothing(again, tmp_path / "other", k=5)


def test_an_interrupted_writer_leaves_those_before(
    again: Values, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(again["out"])
    shutil.rmtree(folder / "supports")
    run(changed(again, protect__k=4, protect__n=2))
    before = content(folder / "supports")

    class Failing(views_module.CappedWriter):
        def write(self, planes: Any) -> None:
            super().write(planes)
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(views_module, "CappedWriter", Failing)
        with pytest.raises(KeyboardInterrupt):
            run(changed(again, protect__k=3, protect__n=2))
    assert content(folder / "supports") == before
    run(changed(again, protect__k=3, protect__n=2))
    assert tokens(folder) == from_nothing(again, tmp_path / "fresh", k=3, n=2)
    assert not [path for path in folder.rglob(".*") if ".tmp-" in path.name]


@pytest.mark.heavy
def test_an_updated_index_never_meets_the_supports_of_before(again: Values, tmp_path: Path) -> None:
    folder, added, kept = Path(again["out"]), tmp_path / "added", tmp_path / "kept"
    table = pq.read_table(again["corpus"]["source"])
    homes = np.array(table.column("household_id").to_pylist())
    new = np.isin(homes, np.unique(homes)[::7])
    for place, chosen in ((added, new), (kept, ~new)):
        place.mkdir()
        pq.write_table(table.filter(chosen), place / "part.parquet")
    run(changed(again, corpus__source=str(kept)))
    before = Run(parse_job(json.loads((folder / "job.json").read_text())))
    update_run(before, tmp_path / "updated", [str(added)], [], Recorder())
    updated = json.loads((tmp_path / "updated/job.json").read_text())
    # As if they had come along.
    shutil.rmtree(tmp_path / "updated/supports", ignore_errors=True)
    shutil.copytree(folder / "supports", tmp_path / "updated/supports")
    for k in (3, 7):
        run(changed(updated, protect__k=k))
        run(changed(updated, out=str(tmp_path / f"fresh-{k}"), protect__k=k))
        assert tokens(tmp_path / "updated") == tokens(tmp_path / f"fresh-{k}")


def test_a_view_does_without_supports_that_another_process_writes(again: Values, tmp_path: Path) -> None:
    folder = Path(again["out"])
    shutil.rmtree(folder / "supports")
    with locked(folder / "supports/index"), locked(folder / "supports/index-joint"):
        run(changed(again, protect__k=3))
    assert not any((folder / name).exists() for name in SUPPORTS)
    assert tokens(folder) == from_nothing(again, tmp_path / "fresh", k=3)


def test_supports_of_other_documents_are_deleted_where_nothing_takes_their_place(again: Values) -> None:
    folder = Path(again["out"])
    run(changed(again, split__heldout=0.3, protect__n=1))
    assert not any((folder / name).exists() for name in SUPPORTS)


def test_supports_need_no_room_for_tables_of_ngrams(again: Values, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NgramIndex, "table_bytes", lambda *_, **__: 1 << 50)
    limited = changed(again, memory_limit="20GB")
    run(changed(limited, protect__k=4))
    with pytest.raises(PolicyError, match="n-grams that protect tokens take"):
        run(changed(limited, protect__k=40))
