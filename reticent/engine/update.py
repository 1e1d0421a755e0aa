"""Updates of an n-gram index for new documents and withdrawn individuals, without recounting the others.

Support is a sum over units, so the old documents of some units are subtracted from the tables and their new ones are
added (``rust_ext/src/index/update.rs``). That needs tables that have forgotten nothing: an index built with
``min_support`` 1, from which ``index.prune(2)`` makes the one that :func:`reticent.engine.index.build_index` gives by
default.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
import polars as pl

from reticent.engine.corpus import Corpus
from reticent.engine.index import IndexConfig, count_documents
from reticent.engine.ngrams import NgramIndex
from reticent.engine.schema import MEMBERS
from reticent.engine.split import Individuals


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Numbers of distinct n-grams of one length that changed status in an update.

    Attributes
    ----------
    n : int
    new, gone : int
        In the new documents only; in the old ones only.
    to_identifying, to_shared : int
        In both, and under k now where it was not, or the other way. A withdrawal makes n-grams identifying for those
        who are left.
    """

    n: int
    new: int
    gone: int
    to_identifying: int
    to_shared: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """The updated index, the changes for each n, and how many individuals were counted again."""

    index: NgramIndex
    moved: tuple[Moved, ...]
    num_recounted: int


def update_index(
    index: NgramIndex,
    before: Corpus,
    individuals_before: Individuals,
    after: Corpus,
    individuals_after: Individuals,
    *,
    splits: tuple[str, ...] = (MEMBERS,),
    k: int = 2,
    changed: Collection[str] = (),
    config: IndexConfig | None = None,
    progress: Callable[[int], None] | None = None,
) -> Update:
    """Return the n-gram index of the changed corpus ``after``, and counts of what changed. Only individuals with
    changes are counted, and added to or removed from ``index``, the index of the corpus ``before``; the result equals a
    newly built index byte for byte.

    An individual is counted again where the ids of the documents, the household or the side of the split differ; with
    one member of a household all are. Row groups without documents of theirs are not read.

    Parameters
    ----------
    index : the index of these splits of ``before``, built with ``min_support`` 1
    k : support on whose sides n-grams are said to have moved
    changed : ids of individuals whose texts differ though the ids of their documents do not
    config : number of threads, memory limit (of each of the two counts); max_n and surface are the index's

    Raises
    ------
    PolicyError
        The index was built with another ``min_support``, or not from ``before``.
    CorpusError
        A document cannot be read.
    """
    old, new = (
        _describe_documents(before, individuals_before, splits),
        _describe_documents(after, individuals_after, splits),
    )
    units, num_recounted = _changed_units(old, new, changed)
    config = (config or IndexConfig()).replace(max_n=index.max_n, surface=index.surface, min_support=1)
    removed, added = (
        count_documents(
            corpus,
            documents["unit"].to_numpy(),
            (documents["kept"] & documents["unit_name"].is_in(units.implode())).to_numpy(),
            config,
            progress,
        )
        for corpus, documents in ((before, old), (after, new))
    )
    updated, moved = index.update(removed, added, k)
    return Update(
        index=updated,
        moved=tuple(
            Moved(n=n, new=new, gone=gone, to_identifying=to_identifying, to_shared=to_shared)
            for n, (new, gone, to_identifying, to_shared) in enumerate(moved, 1)
        ),
        num_recounted=num_recounted,
    )


def _describe_documents(corpus: Corpus, individuals: Individuals, splits: tuple[str, ...]) -> pl.DataFrame:
    """Return a polars data frame with one row per document: its id, individual, unit (number and name), and whether the
    individual is in one of the splits."""
    ids = corpus.scan()
    codes = individuals.individual_codes(ids.column("individual_id"))
    by_individual = np.array_equal(individuals.units, np.arange(len(individuals.units)))
    frame = pl.from_arrow(ids.select(["doc_id", "individual_id"]))
    assert isinstance(frame, pl.DataFrame)
    name = frame["individual_id"] if by_individual else pl.Series(ids.column("household_id"))
    return frame.with_columns(unit=individuals.units[codes], unit_name=name, kept=individuals.mask(*splits)[codes])


def _changed_units(old: pl.DataFrame, new: pl.DataFrame, changed: Collection[str]) -> tuple[pl.Series, int]:
    """Return the names of the individuals or households that must be counted again, since their documents differ
    between ``old`` and ``new`` or they include someone in ``changed``; and the number of individuals in them.

    A unit with an individual that changed is counted again, old and new, and with it every individual who is or was in
    it.
    """
    what = ["doc_id", "individual_id", "unit_name", "kept"]
    both = pl.concat([old.select(what), new.select(what)])
    differ = both.filter(pl.len().over(what) == 1)["individual_id"]
    affected = pl.concat([differ, pl.Series(list(changed), dtype=pl.String)]).unique()
    while True:
        units = both.filter(pl.col("individual_id").is_in(affected.implode()))["unit_name"].unique()
        grown = both.filter(pl.col("unit_name").is_in(units.implode()))["individual_id"].unique()
        if len(grown) <= len(affected):
            return units, len(grown)
        affected = grown
