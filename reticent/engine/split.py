"""Split: every individual becomes a member, held-out or reference, before the documents are used in any other way.

The side is a pure function of the seed and the unit's id (the household, if there is one): a keyed hash is compared
with the shares. So an individual never changes side when others come or go, and the content of documents has no
influence. The same rule draws the user-inference holdout on both sides.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from reticent import _rust
from reticent.core.errors import ArtifactError, CorpusError, PolicyError
from reticent.engine.config import SplitConfig
from reticent.engine.corpus import Corpus, Documents, as_corpus
from reticent.engine.randomness import generator
from reticent.engine.schema import HELDOUT, INDIVIDUALS, MEMBERS, SPLITS, one_array
from reticent.engine.sources.columns import sorted_codes


@dataclass(frozen=True, slots=True, repr=False)
class Individuals:
    """The individuals of a corpus in the order of their ids, with unit and split of each (schema `INDIVIDUALS`)."""

    table: pa.Table
    #: The rows of ids, once they were asked for: batches come one by one.
    _rows: list[_rust.IdRows] = field(default_factory=list, init=False, repr=False, compare=False)

    def __reduce__(self) -> tuple[type[Individuals], tuple[pa.Table]]:
        return Individuals, (self.table,)

    def __repr__(self) -> str:  # without an id
        return f"Individuals({len(self.table):,})"

    def individual_codes(self, ids: pa.Array) -> np.ndarray:
        """Return the integer code (row in the table of individuals) of each individual id, uint32; `CorpusError` for an
        unknown id."""

        ids = one_array(ids)
        ids = ids.cast(pa.string()) if pa.types.is_dictionary(ids.type) or pa.types.is_integer(ids.type) else ids
        if not self._rows:
            self._rows.append(_rust.IdRows(self.table.column("individual_id").combine_chunks()))
        codes = self._rows[0].rows(ids)
        missing = np.flatnonzero(codes == _rust.MISSING)
        if len(missing):
            raise CorpusError(
                f"an individual of this batch (row {missing[0]}) is not in the split; run the split again"
            )
        return codes

    @property
    def units(self) -> np.ndarray:
        """Integer code of each individual's unit (household, or the individual itself), uint32 (num_individuals,)."""
        return self.table.column("unit").to_numpy()

    @property
    def num_units(self) -> int:
        """Number of units: households, or individuals without households."""
        return int(self.units.max()) + 1

    def mask(self, *splits: str) -> np.ndarray:
        """Return which individuals belong to one of these splits, bool (num_individuals,)."""
        unknown = set(splits) - set(SPLITS)
        if unknown:
            raise PolicyError(f"unknown split {unknown.pop()!r}; expected {', '.join(SPLITS)}")
        sides = self.table.column("split").combine_chunks()
        codes = [SPLITS.index(split) for split in splits]
        return np.isin(sides.indices.to_numpy(), codes)


def households_of(units: np.ndarray | None) -> np.ndarray | None:
    """Return ``units`` (unit code of each individual) if a unit is a household of several individuals, otherwise
    None."""
    return None if units is None or len(np.unique(units)) == len(units) else np.asarray(units)


def households_named(corpus: Corpus, individuals: Individuals) -> np.ndarray | None:
    """Return the household code of each individual as given in the documents, uint32 (num_individuals,), even if the
    split is by individual; None without a household column."""
    ids = corpus.scan()
    if "household_id" not in ids.column_names:
        return None
    names, documents = sorted_codes(ids.column("individual_id"))
    column = corpus.columns.household_id or "household_id"
    found = np.zeros(individuals.table.num_rows, dtype=np.uint32)
    found[individuals.individual_codes(names)] = _assign_households(ids, documents, len(names), column)[1]
    return found


def split_individuals(corpus: Corpus | Documents, config: SplitConfig | None = None) -> Individuals:
    """Return a random split of a corpus's individuals into members, held-out and reference individuals.

    Raises
    ------
    CorpusError
        Two documents give one individual different households, a household is missing for some, or a side with a
        share is empty.
    """

    corpus = as_corpus(corpus)

    config = config or SplitConfig()
    names, documents, unit_names, units = _assign_units(corpus, config)
    uniform = _rust.hash_units(unit_names, seed=config.seed).astype(np.float64) / 2.0**64
    sides = np.where(uniform < config.heldout, 1, np.where(uniform < config.heldout + config.reference, 2, 0))[units]
    require_sides(config, set(np.unique(sides).tolist()), len(names))
    return make_individuals(names, units, sides, np.bincount(documents, minlength=len(names)))


def count_units(corpus: Corpus, config: SplitConfig) -> int:
    """Return the number of units that a random split would assign: households, if all individuals of one go to the same
    side, else individuals. It raises the errors of `split_individuals`."""
    return len(_assign_units(corpus, config)[2])


def require_sides(config: SplitConfig, present: Collection[int], num_individuals: int) -> None:
    """Raise `CorpusError` if a side of the split (members, held out, reference) has a share above 0 but no individual.
    ``present`` are the sides that have individuals, as indices into `SPLITS`."""
    for code, share in enumerate((1 - config.heldout - config.reference, config.heldout, config.reference)):
        if share > 0 and code not in present:
            raise CorpusError(
                f"split: no individual fell on the side {SPLITS[code]!r} ({num_individuals} individuals, "
                f"share {share:.2f}); use more individuals, other shares or another seed"
            )


def given_sides(
    corpus: Corpus, is_member: np.ndarray, split_by: Literal["auto", "individual", "household"]
) -> Individuals:
    """Return a split that is given, not drawn: individuals of the documents in the mask ``is_member`` are members, all
    others are held out. Raise `CorpusError` if a side is empty or an individual, or a household if ``split_by`` keeps
    these together, is on both sides.

    Parameters
    ----------
    is_member : bool array, shape (num_documents,)
    split_by : as in `SplitConfig`: whether households have to be whole

    Raises
    ------
    CorpusError
        A side is empty, or an individual or a household is on both.
    """
    names, documents, unit_names, units = _assign_units(corpus, SplitConfig(by=split_by))
    num_members = np.bincount(documents[is_member], minlength=len(names))
    num_documents = np.bincount(documents, minlength=len(names))
    if both := int(np.count_nonzero((num_members > 0) & (num_members < num_documents))):
        raise CorpusError(
            f"subject: {both:,} individuals are on both sides: some of their documents were trained on and others not; "
            "an individual is a member with all documents, or held out with all"
        )
    sides = np.where(num_members > 0, 0, 1)
    of_units = [np.unique(units[sides == side]) for side in (0, 1)]
    if both := len(np.intersect1d(of_units[0], of_units[1])):
        raise CorpusError(
            f"subject: {both:,} households of {len(unit_names):,} are on both sides, with members and others; their "
            "texts are alike, so leave the others of a member's household out, or set split.by to individual"
        )
    if not len(of_units[1]):
        raise CorpusError(
            "subject: the list names every individual of the documents; without people who were not trained on no rate "
            "has a control, so none is given: add documents of such people (`reticent probe` alone asks without them)"
        )
    if not len(of_units[0]):
        raise CorpusError("subject: no individual of the documents was trained on, so there is nothing to look for")
    return make_individuals(names, units, sides, num_documents)


def _assign_units(corpus: Corpus, config: SplitConfig) -> tuple[pa.Array, np.ndarray, pa.Array, np.ndarray]:
    """Return the ids of the individuals, each document's individual (code), the ids of the units that are not split
    (households, else individuals), and each individual's unit (code)."""
    ids = corpus.scan()
    names, documents = sorted_codes(ids.column("individual_id"))
    if splits_households(ids.column_names, config):
        column = corpus.columns.household_id or "household_id"
        return names, documents, *_assign_households(ids, documents, len(names), column)
    return names, documents, names, np.arange(len(names), dtype=np.uint32)


def make_individuals(
    individual_ids: pa.Array, units: np.ndarray, split_codes: np.ndarray, num_documents: np.ndarray
) -> Individuals:
    """Return the split as an `Individuals` table. ``units``, ``split_codes`` (indices into `SPLITS`) and
    ``num_documents`` have one entry per individual, in the order of ``individual_ids``."""
    columns = {
        "individual_id": individual_ids,
        "individual": pa.array(np.arange(len(individual_ids), dtype=np.uint32)),
        "unit": pa.array(units.astype(np.uint32)),
        "split": pa.DictionaryArray.from_arrays(pa.array(split_codes.astype(np.int8)), pa.array(SPLITS)),
        "num_documents": pa.array(num_documents.astype(np.uint32)),
    }
    return Individuals(pa.table(columns, schema=INDIVIDUALS))


def splits_households(columns: Collection[str], config: SplitConfig) -> bool:
    """Return whether whole households, not individuals, are assigned to the sides of a split. It depends on ``config``
    and on the ``columns`` of the documents; `CorpusError` if households are required and there is no such column."""
    present = "household_id" in columns
    if config.by == "household" and not present:
        raise CorpusError("split by household needs the column household_id")
    return present and config.by != "individual"


def _assign_households(ids: pa.Table, documents: np.ndarray, num: int, column: str) -> tuple[pa.Array, np.ndarray]:
    """Return the sorted household ids, and each individual's household code, uint32; `CorpusError` if an individual has
    two."""
    households = ids.column("household_id")
    if households.null_count:
        row = np.flatnonzero(households.is_null())[0]
        raise CorpusError(f"column {column}: document {row + 1} of the corpus has no household")
    names, of_document = sorted_codes(households)
    units = np.zeros(num, dtype=np.uint32)
    units[documents[::-1]] = of_document[::-1]  # the first document of an individual decides
    conflict = np.flatnonzero(units[documents] != of_document)
    if len(conflict):
        raise CorpusError(
            f"column {column}: document {conflict[0] + 1} of the corpus gives its individual a second household"
        )
    return names, units


def draw_user_inference_holdout(corpus: Corpus, share: float, seed: int = 0) -> np.ndarray:
    """Return a random mask of the documents that are kept out of training for the user-inference attack, bool
    (num_documents,).

    Of an individual with n documents they are the round(share * n), at least 1 and at most n - 1, of the lowest keyed
    hash of their ids; of one with a single document there are none. No other individual's documents matter. Held-out
    individuals are treated as members are: were all of their documents compared with a few of each member's, then the
    means over few and over many would be distinguishable under a model that saw no individual.

    A held-back document that repeats one that stays is not held back: leave copies out first (``[dedup]``).

    Raises
    ------
    CorpusError
        No individual has two documents.
    """

    import pyarrow.compute as pc

    ids = corpus.scan()
    _, owners = sorted_codes(ids.column("individual_id"))
    # Each id is hashed with a prefix: the hash of an id that is also an individual's has decided that one's side. The
    # prefix is that of earlier versions, whose draws stay.
    names = pc.binary_join_element_wise("fresh", ids.column("doc_id").combine_chunks().cast(pa.string()), "\n")
    num_documents = np.bincount(owners)
    num_held_back = np.clip(np.floor(share * num_documents + 0.5), 1, num_documents - 1).astype(np.int64)
    order = np.lexsort((_rust.hash_units(names, seed=seed), owners))
    rank = np.empty(len(owners), dtype=np.int64)
    rank[order] = np.arange(len(owners)) - np.repeat(np.cumsum(num_documents) - num_documents, num_documents)
    is_held_back = rank < num_held_back[owners]
    if not is_held_back.any():
        raise CorpusError(
            "split.user_inference_holdout: no individual has two documents, one to train on and one to hold back"
        )
    return is_held_back


#: Stream of the draw of a positive control; those of shadow models are three others.
_STREAM_REPEATED = (1 << 32) + 3


def draw_repeated(individuals: Individuals, num: int, *, seed: int) -> np.ndarray:
    """Return a random mask of the individuals whose documents will be repeated in training as a positive control, bool
    (num_individuals,): those of ``num`` units (households or individuals) among the members, and about the same share
    of the held-out units."""
    keys = generator(seed, _STREAM_REPEATED).random(individuals.num_units)
    of_members = np.sort(keys[np.unique(individuals.units[individuals.mask(MEMBERS)])])
    highest = of_members[: max(num, 1)].max(initial=0.0)
    return individuals.mask(MEMBERS, HELDOUT) & (keys[individuals.units] <= highest)


def write_individuals(individuals: Individuals, folder: Path | str) -> None:
    """Write the split (ids, units and splits of all individuals) to ``individuals.parquet`` (secret)."""

    import pyarrow.parquet as pq

    pq.write_table(individuals.table, Path(folder) / "individuals.parquet", compression="zstd")


def open_individuals(path: Path | str) -> Individuals:
    """Return the split stored in a folder by :func:`write_individuals`; this needs neither the Rust core nor polars."""

    import pyarrow.parquet as pq

    file = Path(path) / "individuals.parquet"
    try:
        table = pq.ParquetFile(file).read(use_threads=False)  # `read_table` loads a library more, and so does a cast
        table = table if table.schema == INDIVIDUALS else table.cast(INDIVIDUALS)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise ArtifactError(f"{file}: not a readable split ({type(error).__name__})") from None
    return Individuals(table.unify_dictionaries())
