"""An artefact is a value; a step makes one or several of them in one pass.

The plan of a job is a sequence of steps (:mod:`reticent.job.pipeline`). A step says the name of each result, its
settings and inputs, and how it is made. Running, the status, the expected end and the deletion of stale results are
loops over that one plan: none of them knows the work of a stage.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reticent.core.eta import Work

__all__ = ["Artefact", "Output", "Outputs", "Step"]


@dataclass(frozen=True, slots=True)
class Artefact:
    """A folder of the run, named by all that it depends on: it is made again exactly if settings or inputs changed.

    Attributes
    ----------
    name : str
        Its path in the run folder.
    kind : str
        Kind of its manifest.
    settings : dict
        Settings that it depends on, as JSON holds them.
    inputs : dict of str
        Fingerprints of the results and files that it is made from, by name.
    """

    name: str
    kind: str
    settings: dict[str, Any]
    inputs: dict[str, str]

    def __post_init__(self) -> None:
        # A manifest is JSON: tuples are lists there, and the comparison with it must not see a difference.
        object.__setattr__(self, "settings", json.loads(json.dumps(self.settings, default=str)))


@dataclass(frozen=True, slots=True)
class Output:
    """Where an artefact is being written, and the counts that its manifest will hold (filled by the build)."""

    folder: Path
    counts: dict[str, Any]


#: Name of each stale output -> its writer, whose folder becomes the artefact when the block ends without an error. So
#: the outputs of one pass stand one after the other, and an interruption loses the later ones alone.
Outputs = Mapping[str, Callable[[], AbstractContextManager[Output]]]


@dataclass(frozen=True, slots=True)
class Step:
    """One pass of work and the artefacts that it leaves.

    Attributes
    ----------
    outputs : tuple of Artefact
    build : callable
        Takes the writers of the stale outputs alone, and uses each once.
    resume : bool, optional
        As in :func:`reticent.core.artifact.write_artifact`. A step that may be resumed is built by all processes
        together where torchrun started several: the first decides and writes, the others help.
    alone : bool
        Only the first process builds the step, even where it may be resumed.
    prepare : callable, optional
        Called before the outputs are compared with the content of the folder; not called when a plan is only read.
    group : str, optional
        Steps of one group are made by one part of a run (:mod:`reticent.job.parts`); those of none are made by no part
        but the first, or when the parts are joined.
    work : callable, optional
        Returns the work that the expected end counts; None for steps that are not part of the experiment. It raises
        `ArtifactError` if the tokens that it counts do not exist yet.
    """

    outputs: tuple[Artefact, ...]
    build: Callable[[Outputs], None]
    resume: bool | None = None
    alone: bool = False
    group: str | None = None
    prepare: Callable[[], None] | None = None
    work: Callable[[], Work] | None = None

    @classmethod
    def of(cls, artefact: Artefact, build: Callable[[Path, dict[str, Any]], None], **more: Any) -> Step:
        """Return the step of one artefact; ``build`` takes its folder and its counts."""

        def build_one(outputs: Outputs) -> None:
            with outputs[artefact.name]() as output:
                build(output.folder, output.counts)

        return cls((artefact,), build_one, **more)
