"""Building the outputs of a step that are not up to date, each whole or not at all; and the states of artefacts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from reticent.core.artifact import is_up_to_date as is_whole
from reticent.core.artifact import read_manifest, require_kind, resumable_folders_of, unfinished_path, write_artifact
from reticent.core.errors import ArtifactError
from reticent.core.memory import OwnMemory
from reticent.engine.threads import mapped
from reticent.job.artefact import Artefact, Output, Step
from reticent.job.fingerprints import TO_DO, replaced_error
from reticent.trainer.distributed import join_world, launched

if TYPE_CHECKING:
    from reticent.job.run import Run


def build_step(run: Run, step: Step) -> None:
    """Build the outputs of a step that are missing, were made with other settings or inputs, or have changed on disk.

    Where torchrun started several processes, the first decides. The others take part in the steps that may be
    resumed, and skip all others.
    """

    together = step.resume is not None and not step.alone and launched().size > 1
    if not launched().is_main:
        if together and join_world().broadcast_from_main(False):
            step.build({output.name: partial(_open_output_as_helper, run, output) for output in step.outputs})
        return
    run.recover()
    if step.prepare is not None:
        step.prepare()

    def is_stale(output: Artefact) -> bool:
        """Return whether an output is missing, has other settings or inputs, or has changed on disk."""
        path = run.folder / output.name
        about = {"config": output.settings, "inputs": output.inputs}
        return not is_whole(path, kind=output.kind, **about, check=run.verified.verify)

    # Files that changed are hashed: those of several artefacts at once.
    stale = [output for output, found in zip(step.outputs, mapped(is_stale, step.outputs), strict=True) if found]
    if together:
        join_world().broadcast_from_main(bool(stale))
    for output in step.outputs:
        if output not in stale:
            run.progress.kept(output.name, read_manifest(run.folder / output.name).counts)
    if stale:
        step.build({output.name: partial(_open_output, run, output, step.resume) for output in stale})
    for output in step.outputs:
        manifest = read_manifest(run.folder / output.name)
        if (manifest.config, manifest.inputs) != (output.settings, output.inputs):
            raise replaced_error(run.folder / output.name)
        run.fingerprints.set(output.name, manifest.digest)


@contextmanager
def _open_output(run: Run, artefact: Artefact, resume: bool | None) -> Iterator[Output]:
    """Context manager for building an artefact: it yields folder and counts to write to. At the end it checks that the
    inputs have not changed, and records duration and peak memory. ``resume`` says whether to continue an interrupted
    build (None: impossible).
    """
    started = time.perf_counter()
    counts: dict[str, Any] = {}
    path, about = run.folder / artefact.name, {"config": artefact.settings, "inputs": artefact.inputs}
    limited = run.job.memory_limit is not None
    with run.progress.stage(artefact.name, counts), OwnMemory() if limited else nullcontext() as memory:
        with write_artifact(path, kind=artefact.kind, **about, resume=resume) as writer:
            yield Output(writer.path, writer.counts)
            if "corpus" in artefact.inputs:
                run.require_unchanged()
            run.fingerprints.require_unchanged(artefact.inputs.values())
        run.verified.made(path)
        counts.update(writer.counts)
    work = run.progress.plan.finish() if run.progress.plan else None
    run.timings.add(artefact.name, time.perf_counter() - started, work)
    if memory:
        run.warn_of_memory(artefact.name, memory.peak)
    run.keep_job()


@contextmanager
def _open_output_as_helper(run: Run, artefact: Artefact) -> Iterator[Output]:
    """Context manager for a process that helps in a distributed training: it yields the folder of the artefact that the
    main process has opened. The main process finishes the artefact.
    """
    yield Output(unfinished_path(run.folder / artefact.name, artefact.kind, artefact.settings, artefact.inputs), {})


def is_up_to_date(run: Run, artefact: Artefact) -> bool:
    """Return whether an artefact's manifest has these settings and inputs. Only the manifest is read; `build_step`
    verifies the bytes before it relies on them."""

    try:
        manifest = require_kind(run.folder / artefact.name, artefact.kind)
    except ArtifactError:
        return False
    return manifest.config == artefact.settings and manifest.inputs == artefact.inputs


def artifact_state(run: Run, artefact: Artefact) -> str:
    """Return the state of an artefact: "done", "to do", "out of date", or "begun" where a saved state allows resuming.
    One that is not done gets the fingerprint `TO_DO`, so nothing that depends on it is done either."""
    if is_up_to_date(run, artefact):
        return "done"
    run.fingerprints.set(artefact.name, TO_DO)
    path = run.folder / artefact.name
    if resumable_folders_of(path):
        return "begun"
    return "out of date" if (path / "manifest.json").exists() else TO_DO
