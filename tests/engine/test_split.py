"""The split: individuals before anything else, from the seed and their own id alone."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.core.errors import ArtifactError, CorpusError, PolicyError
from reticent.engine.corpus import Columns, Corpus, open_corpus
from reticent.engine.schema import HELDOUT, INDIVIDUALS, MEMBERS, REFERENCE
from reticent.engine.split import Individuals, SplitConfig, open_individuals, split_individuals, write_individuals

Documents = list[tuple[str, str | None]]  # individual and household, one pair a document

HALF = SplitConfig(heldout=0.5)


def corpus(folder: Path, documents: Documents, *, num_files: int = 1, household: bool = True) -> Corpus:
    folder.mkdir(exist_ok=True)
    for part in range(num_files):
        rows = documents[part::num_files]
        columns = {
            "doc_id": [f"{part}-{i}" for i in range(len(rows))],
            "individual_id": pa.array([individual for individual, _ in rows], pa.string()),
            "text": ["x"] * len(rows),
            "household_id": pa.array([home for _, home in rows], pa.string()),
        }
        pq.write_table(pa.table(columns), folder / f"{part}.parquet")
    return open_corpus(folder, columns=Columns(household_id="household_id" if household else None))


def split(folder: Path, documents: Documents, config: SplitConfig = HALF, **options: object) -> Individuals:
    return split_individuals(corpus(folder, documents, **options), config)  # type: ignore[arg-type]


def sides(individuals: Individuals) -> dict[str, str]:
    table = individuals.table
    return dict(zip(table.column("individual_id").to_pylist(), table.column("split").to_pylist(), strict=True))


def people(num: int, *, household: int = 1) -> Documents:
    return [(f"p{i:04d}", f"h{i // household:04d}") for i in range(num)]


def test_every_individual_is_on_one_side_with_a_code_and_a_count_of_documents(tmp_path: Path) -> None:
    documents = [("c", None), ("a", None), ("b", None), ("a", None), ("é", None), ("a", None)]
    individuals = split(tmp_path, documents, SplitConfig(heldout=0.5, seed=3), household=False)
    assert individuals.table.schema == INDIVIDUALS
    assert individuals.table.column("individual_id").to_pylist() == ["a", "b", "c", "é"]
    assert individuals.table.column("individual").to_pylist() == [0, 1, 2, 3]
    assert individuals.table.column("num_documents").to_pylist() == [3, 1, 1, 1]
    assert individuals.units.tolist() == [0, 1, 2, 3]
    assert individuals.num_units == 4
    masks = [individuals.mask(side) for side in (MEMBERS, HELDOUT, REFERENCE)]
    assert np.sum(masks, axis=0).tolist() == [1, 1, 1, 1]
    assert individuals.mask(MEMBERS, HELDOUT, REFERENCE).all()
    assert not individuals.mask().any()
    assert individuals.individual_codes(pa.array(["é", "a", "a"])).tolist() == [3, 0, 0]


def test_sides_of_known_individuals_never_change(tmp_path: Path) -> None:
    """A split is rebuilt years later and elsewhere: these sides are the law for seed 0 and shares .4 and .2."""
    individuals = split(tmp_path, people(12), SplitConfig(heldout=0.4, reference=0.2), household=False)
    assert "".join(side[0] for side in sides(individuals).values()) == "hhhhmhrhhrhr"


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3)), min_size=1, max_size=60),
    st.randoms(use_true_random=False),
    st.integers(1, 4),
    st.sampled_from(["individual", "household"]),
)
def test_sides_depend_on_neither_order_nor_files_nor_the_number_of_documents(
    tmp_path_factory: pytest.TempPathFactory,
    drawn: list[tuple[int, int]],
    draw: random.Random,
    num_files: int,
    by: str,
) -> None:
    folder = tmp_path_factory.mktemp("split")
    documents: Documents = [*people(60, household=3), *((f"p{i:04d}", f"h{i // 3:04d}") for i, _ in drawn)]
    config = SplitConfig(heldout=0.5, by=by)  # type: ignore[arg-type]
    first = split(folder / "a", documents, config)
    draw.shuffle(documents)
    again = split(folder / "b", documents, config, num_files=num_files)
    assert first.table == again.table
    once = split(folder / "c", people(60, household=3), config)
    assert sides(once) == sides(first)


@pytest.mark.parametrize("by", ["individual", "household"])
def test_no_individual_changes_side_when_others_come_or_go(tmp_path: Path, by: str) -> None:
    config = SplitConfig(heldout=0.3, reference=0.3, by=by)  # type: ignore[arg-type]
    everyone = people(300, household=2)
    full = sides(split(tmp_path / "a", everyone, config))
    some = sides(split(tmp_path / "b", [*everyone[::3], ("aaa", "aaa"), ("zzz", "zzz")], config))
    kept = set(full) & set(some)
    assert len(kept) == 100
    assert {name: full[name] for name in kept} == {name: some[name] for name in kept}


def test_the_seed_decides(tmp_path: Path) -> None:
    tables = {seed: sides(split(tmp_path / "a", people(200), SplitConfig(seed=seed))) for seed in (0, 1, 2, 2**63)}
    assert sides(split(tmp_path / "b", people(200), SplitConfig(seed=1))) == tables[1]
    for first, second in ((0, 1), (1, 2), (0, 2**63)):
        changed = sum(tables[first][name] != tables[second][name] for name in tables[first])
        assert 60 < changed < 135  # 2 · .4 · .6 · 200 = 96 expected of two draws that know nothing of each other


@pytest.mark.parametrize(("heldout", "reference"), [(0.4, 0.0), (0.1, 0.2), (0.5, 0.45)])
def test_sides_have_their_shares(tmp_path: Path, heldout: float, reference: float) -> None:
    num = 20_000
    individuals = split(tmp_path, people(num), SplitConfig(heldout=heldout, reference=reference), household=False)
    for side, share in ((MEMBERS, 1 - heldout - reference), (HELDOUT, heldout), (REFERENCE, reference)):
        assert abs(individuals.mask(side).mean() - share) < 4 * np.sqrt(share * (1 - share) / num) + 1e-9


def test_larger_held_out_share_keeps_who_was_held_out(tmp_path: Path) -> None:
    small = split(tmp_path / "a", people(300), SplitConfig(heldout=0.2)).mask(HELDOUT)
    large = split(tmp_path / "b", people(300), SplitConfig(heldout=0.5)).mask(HELDOUT)
    assert small.sum() < large.sum()
    assert not (small & ~large).any()


@pytest.mark.parametrize("by", ["auto", "household"])
def test_a_household_is_never_split_and_is_one_unit(tmp_path: Path, by: str) -> None:
    config = SplitConfig(heldout=0.5, by=by)  # type: ignore[arg-type]
    individuals = split(tmp_path, people(300, household=3), config)
    assert individuals.num_units == 100
    assert individuals.units.tolist() == [i // 3 for i in range(300)]
    of_unit = individuals.mask(MEMBERS).reshape(100, 3)
    assert (of_unit.all(axis=1) | ~of_unit.any(axis=1)).all()
    assert 20 < of_unit.all(axis=1).sum() < 80


def test_households_are_left_aside_when_the_split_is_by_individual(tmp_path: Path) -> None:
    individuals = split(tmp_path, people(300, household=300), SplitConfig(heldout=0.5, by="individual"))
    assert individuals.num_units == 300
    assert 100 < individuals.mask(MEMBERS).sum() < 200


def test_split_by_household_needs_the_column(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="split by household needs the column household_id"):
        split(tmp_path, people(50), SplitConfig(by="household"), household=False)


def test_a_document_without_a_household_is_refused_with_its_number(tmp_path: Path) -> None:
    documents = [*people(20), ("p0003", None), *people(4)]
    with pytest.raises(CorpusError, match="column household_id: document 21 of the corpus has no household") as caught:
        split(tmp_path, documents)
    assert "p0003" not in str(caught.value)


def test_an_individual_of_two_households_is_refused_with_the_document(tmp_path: Path) -> None:
    documents = [*people(20), ("p0003", "h0003"), ("p0003", "h0004"), ("p0005", "h0001")]
    with pytest.raises(CorpusError, match="document 22 of the corpus gives its individual a second") as caught:
        split(tmp_path, documents)
    assert "p0003" not in str(caught.value)


@pytest.mark.parametrize(
    ("config", "side"),
    [
        (SplitConfig(heldout=0.001), "heldout"),
        (SplitConfig(heldout=0.999), "members"),
        (SplitConfig(heldout=0.5, reference=0.001), "reference"),
    ],
)
def test_an_empty_side_is_refused(tmp_path: Path, config: SplitConfig, side: str) -> None:
    with pytest.raises(CorpusError, match=f"no individual fell on the side '{side}' .10 individuals"):
        split(tmp_path, people(10), config)


def test_a_side_without_a_share_may_be_empty(tmp_path: Path) -> None:
    assert not split(tmp_path, people(10), HALF).mask(REFERENCE).any()


def test_unknown_side_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="unknown split 'train'; expected members, heldout, reference"):
        split(tmp_path, people(10)).mask("train")


def test_unknown_individual_is_refused_without_the_id(tmp_path: Path) -> None:
    individuals = split(tmp_path, people(10))
    with pytest.raises(CorpusError, match=r"row 1\) is not in the split; run the split again") as caught:
        individuals.individual_codes(pa.array(["p0001", "unknown"]))
    assert "unknown" not in str(caught.value)


@pytest.mark.parametrize("household", [True, False])
def test_a_written_split_is_the_same_when_opened_and_byte_identical_when_written_again(
    tmp_path: Path, household: bool
) -> None:
    individuals = split(tmp_path / "a", people(50, household=2), household=household)
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        write_individuals(individuals, tmp_path / folder)
    opened = open_individuals(tmp_path / "one")
    assert opened.table == individuals.table
    assert opened.mask(HELDOUT).tolist() == individuals.mask(HELDOUT).tolist()
    one, two = ((tmp_path / folder / "individuals.parquet").read_bytes() for folder in ("one", "two"))
    assert one == two


def test_a_split_that_cannot_be_read_is_an_artifact_error(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"individuals\.parquet: not a readable split"):
        open_individuals(tmp_path)
    (tmp_path / "individuals.parquet").write_bytes(b"PAR1")
    with pytest.raises(ArtifactError, match=r"individuals\.parquet: not a readable split"):
        open_individuals(tmp_path)
    pq.write_table(pa.table({"another": ["table"]}), tmp_path / "individuals.parquet")
    with pytest.raises(ArtifactError, match=r"individuals\.parquet: not a readable split"):
        open_individuals(tmp_path)
