"""Supports beside the words of a run, for another k, n or policy: ``supports/INDEX`` (`reticent.engine.capped`).

They are written by the first view that looks n-grams up, which has them at hand, and again where a view asks for a
smaller k or a larger n. They are no step of the plan: nothing follows from them that does not follow from the index
and the words, and a view comes out the same without them. Their inputs are those of the view, so an index that was
updated, or another split, never meets the supports of before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from reticent.core.errors import ArtifactError

if TYPE_CHECKING:
    from reticent.engine.protect import Policy
    from reticent.job.run import Run

__all__ = ["NONE", "Capped", "capped_supports"]

KIND = "capped-supports"


class Capped(NamedTuple):
    """The folder of supports that answer a policy, or what opens a new one for them; neither where they are no help."""

    folder: Path | None = None
    keep: Callable[[], AbstractContextManager[Path]] | None = None


NONE = Capped()


def capped_supports(run: Run, index: str, splits: tuple[str, ...], policy: Policy) -> Capped:
    """Return the supports of the documents of these splits by an index of the run, for a policy."""
    from reticent.engine.capped import CAP

    path = run.folder / "supports" / index
    fingerprints = run.fingerprints
    inputs = {**run.corpus_input(), **{name: fingerprints.of(name) for name in ("split", "words", index)}}
    can_answer = policy.n > 1 and policy.k <= CAP
    if can_answer and _answers(run, path, inputs, splits, policy):
        return Capped(path)
    if can_answer and policy.max_document_frequency is None:  # with a limit some n-grams are not looked up
        config = {"k": policy.k, "n": policy.n, "splits": list(splits)}
        return Capped(keep=partial(_written, run, path, config, inputs))
    _delete_of_others(path, inputs)
    return NONE


def _delete_of_others(path: Path, inputs: dict[str, str]) -> None:
    """Delete supports of another corpus, split or index, of documents that may have been withdrawn, where no others
    take their place.
    """
    from reticent.core.artifact import delete_artifact, read_manifest

    with suppress(ArtifactError):  # none, or not to be read: what cannot be deleted is not read either
        if read_manifest(path).inputs != inputs:
            delete_artifact(path)


def _answers(run: Run, path: Path, inputs: dict[str, str], splits: tuple[str, ...], policy: Policy) -> bool:
    from reticent.core.artifact import require_kind

    try:
        manifest = require_kind(path, KIND)
        config = manifest.config
        fits = manifest.inputs == inputs and config["splits"] == list(splits)
        if not fits or config["k"] > policy.k or config["n"] < policy.n:
            return False
        run.verified.verify(path, manifest)
    except (ArtifactError, KeyError, TypeError):  # none, of another version, or damaged: they are made again
        return False
    return True


@contextmanager
def _written(run: Run, path: Path, config: dict[str, object], inputs: dict[str, str]) -> Iterator[Path]:
    from reticent.core.artifact import write_artifact

    with write_artifact(path, kind=KIND, config=config, inputs=inputs) as writer:
        yield writer.path
        run.fingerprints.require_unchanged(inputs.values())
    run.verified.made(path)
