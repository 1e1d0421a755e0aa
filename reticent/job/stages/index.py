"""From members' documents to the supports of words and n-grams; for the audit also over members and held-out.

Members alone shape the protection that training sees. For the audit a second, *joint* index over members and held-out
individuals flags both sides by the same rule, so that their leak rates can be compared. One pass counts for both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reticent.engine.index import build_index, build_nested_indexes, write_index
from reticent.engine.schema import HELDOUT, MEMBERS
from reticent.job.artefact import Artefact, Output, Outputs, Step

if TYPE_CHECKING:
    from reticent.engine.index import IndexConfig
    from reticent.engine.ngrams import NgramIndex
    from reticent.job.run import Run

#: Artefact -> the sides whose documents it counts. The first is nested in the second.
INDEXES = {"index": (MEMBERS,), "index-joint": (MEMBERS, HELDOUT)}

#: A run warns if at least this share of the words are single letters of scripts without spaces.
UNSPACED_SHARE = 0.01

#: Takes the run, the names of the wanted indexes, the folder of the first of them, and a function for progress.
#: Returns that index, and others of the same pass.
Count = Callable[["Run", Sequence[str], Output, Callable[[int], None]], "dict[str, NgramIndex]"]


def index_steps(run: Run, count: Count | None = None) -> Iterator[Step]:
    """Yield the step that counts n-grams and writes both indexes: of the members, and of members and held-out
    individuals together. ``count`` is the function that counts (default: `count_documents`); an update gives one that
    recounts changed individuals only.
    """
    yield Step(
        tuple(index_artefact(run, name) for name in INDEXES), partial(_build_indexes, run, count or count_documents)
    )  # fmt: skip


def index_artefact(run: Run, name: str) -> Artefact:
    """Return the artefact of the index of this name. Its settings omit ``updatable`` if that is off, so an index from
    before this setting stays up to date."""
    settings = run.job.index.model_dump(exclude=set() if run.job.index.updatable else {"updatable"})
    inputs = {**run.corpus_input(), "split": run.fingerprints.of("split")}
    return Artefact(name, "index", {**settings, "splits": list(INDEXES[name])}, inputs)


def index_config(run: Run, spill_folder: Path) -> IndexConfig:
    """Return the settings for counting n-grams; ``spill_folder`` takes counts that exceed the memory limit."""
    return run.job.index.replace(spill_folder=spill_folder)


def _build_indexes(run: Run, count: Count, outputs: Outputs) -> None:
    """Count the n-grams for the outdated indexes and write each with its counts."""
    run.invalidate(*outputs, "numbered")
    counted: dict[str, NgramIndex] = {}
    for number, (name, writer) in enumerate(outputs.items()):
        title = f"index of {' and '.join(INDEXES[name])}"
        with writer() as output, run.progress.task(title, run.corpus.num_documents, "documents") as advance:
            if name not in counted:
                counted |= count(run, list(outputs)[number:], output, advance)
            index, counts = counted.pop(name), output.counts
            counts.update(words=index.num_words, occurrences=index.num_occurrences, individuals=index.num_units)
            counts["unspaced"] = index.num_unspaced
            write_index(index, output.folder)
            if name == "index":
                _warn_of_unspaced(run, counts)


def count_documents(
    run: Run, wanted: Sequence[str], output: Output, progress: Callable[[int], None]
) -> dict[str, NgramIndex]:
    """Count the n-grams of the documents in one pass, and return index name -> index for the ``wanted`` ones: ``index``
    (members) or ``index-joint`` (members and held-out individuals).
    """

    (inner, within), (outer, splits) = INDEXES.items()
    config = index_config(run, output.folder)
    if set(wanted) == {inner, outer}:
        nested = build_nested_indexes(
            run.corpus, run.individuals, splits=splits, within=within, config=config, progress=progress
        )
        return dict(zip((inner, outer), nested, strict=True))
    (name,) = wanted
    index = build_index(run.corpus, run.individuals, splits=INDEXES[name], config=config, progress=progress)
    return {name: index}


def _warn_of_unspaced(run: Run, counts: dict[str, Any]) -> None:
    """Warn where many words are single letters of scripts without spaces, which counting hardly protects."""
    share = counts["unspaced"] / max(counts["occurrences"], 1)
    if share > UNSPACED_SHARE:
        run.progress.warn(
            f"{share:.0%} of the words are single letters of scripts without spaces (Han, Hiragana, Thai, Lao, "
            "Khmer, Burmese), where counting words protects almost nothing: rely on records and a trained NER for "
            "names, and set protect.n to 3 or more (index.max_n too), so that rare runs of letters are counted"
        )
