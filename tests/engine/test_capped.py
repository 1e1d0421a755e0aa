"""Capped supports answer another k, n and policy with the same bytes as looking n-grams up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np
import pytest
from fixtures.tokenizers import plain_tokenizer
from fixtures.views import SIDES, Views, assert_same, case_of

from reticent.core.errors import ArtifactError
from reticent.engine import capped
from reticent.engine import views as views_module
from reticent.engine.capped import CAP, CappedSupports, CappedWriter
from reticent.engine.protect import POLICIES, Policy
from reticent.engine.schema import MEMBERS

TOKENIZER = plain_tokenizer(*(f"w{i}" for i in range(9)))


@pytest.fixture(autouse=True)
def few_words_a_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capped, "FRAME", 100)


@pytest.fixture
def views(tmp_path: Path) -> Views:
    return views_in(tmp_path)


def views_in(folder: Path, num_threads: int = 0, max_n: int = 3) -> Views:
    """Frequent and rare words, with supports on both sides of the cap; documents of no word, one and two."""
    generator = np.random.default_rng(5)
    documents = [("p0", "w0"), ("held0", "w1 w2"), ("p1", "."), ("p2", "«w3|NAME»")]
    for i in range(150):
        ranks = np.minimum(generator.geometric(0.3, 40) - 1, 8)
        words = [f"w{rank}" if rank < 8 else f"w{generator.integers(8, 60)}" for rank in ranks]
        words[7] = f"«{words[7]}|NAME»"
        documents.append((f"{'held' if i % 5 == 0 else 'p'}{i % 47}", " ".join(words)))
    return Views(case_of(folder, documents), TOKENIZER, Policy(k=2, n=max_n), num_threads=num_threads, max_n=max_n)


def keeping(folder: Path) -> Callable[[], AbstractContextManager[Path]]:
    @contextmanager
    def keep() -> Iterator[Path]:
        folder.mkdir()
        yield folder

    return keep


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_views_by_capped_supports_are_those_by_look_ups(views: Views, tmp_path: Path) -> None:
    for name, splits in SIDES.items():
        kept = tmp_path / f"capped-{name}"
        views.policy = Policy(k=2, n=3)
        _, counts = views.view(f"first-{name}", splits, keep=keeping(kept))
        (supports,) = CappedSupports(kept, counts["words"]).of(slice(0, counts["words"]))
        assert {*(supports & 15), *(supports >> 4)} >= {0, 2, 5, 14, CAP}
        for k in (2, 3, 5, CAP):
            for n in (1, 2, 3):
                for policy in POLICIES:
                    for share in (None, 0.4):
                        views.policy = Policy(k=k, n=n, policy=policy, max_document_frequency=share)
                        case = f"{name}-{k}-{n}-{policy}-{share}"
                        found, expected = views.view(case, splits, capped=kept), views.view(f"{case}-found", splits)
                        assert found[1] == expected[1], case
                        assert content(views.folder / case) == content(views.folder / f"{case}-found"), case
                assert_same(found, views.of_text(f"{name}-{k}-{n}", splits))


def test_supports_of_a_larger_k_answer_it_and_those_above(views: Views, tmp_path: Path) -> None:
    views.policy = Policy(k=5, n=3)
    views.view("first", (MEMBERS,), keep=keeping(tmp_path / "capped"))
    for k in (5, 6, CAP):
        views.policy = Policy(k=k, n=3)
        views.view(f"capped-{k}", (MEMBERS,), capped=tmp_path / "capped")
        views.view(f"found-{k}", (MEMBERS,))
        assert content(views.folder / f"capped-{k}") == content(views.folder / f"found-{k}")


def test_supports_of_more_than_three_words_have_a_plane_of_their_own(tmp_path: Path) -> None:
    views = views_in(tmp_path, max_n=5)
    views.view("first", (MEMBERS,), keep=keeping(tmp_path / "capped"))
    assert sorted(content(tmp_path / "capped")) == ["ends_2.bin", "ends_4.bin", "supports_2.bin", "supports_4.bin"]
    for n in (2, 4, 5):
        views.policy = Policy(k=4, n=n, policy="cover")
        views.view(f"capped-{n}", (MEMBERS,), capped=tmp_path / "capped")
        views.view(f"found-{n}", (MEMBERS,))
        assert content(views.folder / f"capped-{n}") == content(views.folder / f"found-{n}")


def test_nothing_is_kept_that_answers_no_other_k(views: Views, tmp_path: Path) -> None:
    for number, policy in enumerate((Policy(n=1), Policy(n=3, k=CAP + 1), Policy(n=2, max_document_frequency=0.5))):
        views.policy = policy
        views.view(f"first-{number}", (MEMBERS,), keep=keeping(tmp_path / "capped"))
        assert not (tmp_path / "capped").exists()


def test_supports_and_views_are_the_same_bytes_for_any_number_of_threads(tmp_path: Path) -> None:
    made: dict[str, set[bytes]] = {}
    for threads in (1, 2, 5):
        (tmp_path / str(threads)).mkdir()
        views, kept = views_in(tmp_path / str(threads), num_threads=threads), tmp_path / str(threads) / "capped"
        views.view("first", (MEMBERS,), keep=keeping(kept))
        views.policy = Policy(k=6, n=3, policy="last")
        views.view("second", (MEMBERS,), capped=kept)
        for folder in (kept, views.folder / "second"):
            for name, data in content(folder).items():
                made.setdefault(f"{folder.name}/{name}", set()).add(data)
    assert len(made) == 6
    assert all(len(data) == 1 for data in made.values())


def test_supports_that_do_not_fit_are_refused(views: Views, tmp_path: Path) -> None:
    kept = tmp_path / "capped"
    views.policy = Policy(k=3, n=2)
    views.view("first", (MEMBERS,), keep=keeping(kept))
    with pytest.raises(ArtifactError):  # of other documents
        views.view("audit", SIDES["audit"], capped=kept)
    views.policy = Policy(k=CAP + 1, n=2)
    with pytest.raises(ArtifactError, match="do not fit their documents and settings"):
        views.view("large", (MEMBERS,), capped=kept)
    with pytest.raises(ArtifactError, match="holds no supports"):
        CappedSupports(tmp_path, 3)


@pytest.mark.parametrize("at_once", [1, 7, 130])
def test_neither_blocks_nor_frames_change_a_view(
    views: Views, tmp_path: Path, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    views.view("first", (MEMBERS,), keep=keeping(tmp_path / "whole"))
    monkeypatch.setattr(views_module, "WORDS_AT_ONCE", at_once)
    views.view("parts", (MEMBERS,), keep=keeping(tmp_path / "parts"))
    views.view("second", (MEMBERS,), capped=tmp_path / "whole")
    assert content(tmp_path / "parts") == content(tmp_path / "whole")
    assert content(views.folder / "second") == content(views.folder / "first") == content(views.folder / "parts")


def test_frames_that_are_damaged_are_told(tmp_path: Path) -> None:
    words = np.arange(250) % 256
    with CappedWriter(tmp_path, 1) as writer:
        for part in np.split(words.astype(np.uint8), [3, 3, 120, 249]):
            writer.write([part])
    supports = CappedSupports(tmp_path, 250)
    for start, stop in ((0, 250), (99, 101), (100, 200), (249, 250), (250, 250), (0, 0)):
        assert supports.of(slice(start, stop))[0].tolist() == words[start:stop].tolist()
    data = bytearray((tmp_path / "supports_2.bin").read_bytes())
    data[0] ^= 0xFF
    (tmp_path / "supports_2.bin").write_bytes(data)
    with pytest.raises(ArtifactError, match="supports that cannot be read"):
        CappedSupports(tmp_path, 250).of(slice(0, 1))
    ends = np.fromfile(tmp_path / "ends_2.bin", dtype="<i8")
    ends[[0, 1]] = ends[[1, 0]]
    ends.tofile(tmp_path / "ends_2.bin")
    with pytest.raises(ArtifactError, match="supports that cannot be read"):
        CappedSupports(tmp_path, 250)
    with pytest.raises(ArtifactError):
        CappedSupports(tmp_path, 350)
