"""Supports beside the words of a run, for another k, n or policy: ``supports/INDEX`` (`reticent.engine.capped`).

They are written by the first view that looks n-grams up, which has them at hand, and again where a view asks for a
smaller k or a larger n.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from reticent.job.cached import Cached

if TYPE_CHECKING:
    from reticent.engine.protect import Policy
    from reticent.job.run import Run

__all__ = ["NONE", "Capped", "capped_supports"]

KIND = "capped-supports"


class Capped(NamedTuple):
    """The folder of supports that answer a policy, or what opens a new one for them; neither where they are no help."""

    folder: Path | None = None
    keep: Callable[[], AbstractContextManager[Path | None]] | None = None


NONE = Capped()


def capped_supports(run: Run, index: str, splits: tuple[str, ...], policy: Policy) -> Capped:
    """Return the supports of the documents of these splits by an index of the run, for a policy."""
    from reticent.engine.capped import CAP

    fingerprints = run.fingerprints
    inputs = {**run.corpus_input(), **{name: fingerprints.of(name) for name in ("split", "words", index)}}
    cached = Cached(run, f"supports/{index}", KIND, inputs)
    settings = {"k": policy.k, "n": policy.n, "splits": list(splits)}

    def fits(made: dict[str, Any]) -> bool:
        return bool(made["splits"] == settings["splits"] and made["k"] <= policy.k and made["n"] >= policy.n)

    can_answer = policy.n > 1 and policy.k <= CAP
    if can_answer and cached.answers(fits):
        return Capped(cached.path)
    if can_answer and policy.max_document_frequency is None:  # with a limit some n-grams are not looked up
        return Capped(keep=partial(cached.written, settings))
    cached.delete_of_others()
    return NONE
