"""The folder of a run: what is opened from it, and which of its artefacts are still what the job would make.

An artefact is made again exactly if its settings or inputs changed. The job of the last run is kept as ``job.json``;
an earlier one stays until the first result of the new one stands. Which documents a stage sees is decided here alone:
``whole_corpus`` is what was given less whoever withdrew, ``deduplicated`` are those less the copies that deduplication
leaves out, ``remaining`` those less the ``fresh_documents``, which only one attack sees, ``documents`` the same with
canaries planted, ``corpus`` those less the ones in quarantine.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reticent.core.progress import Progress
from reticent.job.config import Job, ModelSection, kept_content
from reticent.job.plan import Timings

if TYPE_CHECKING:
    from reticent.engine.corpus import Corpus
    from reticent.engine.dedup import DedupConfig
    from reticent.engine.protect import Policy

__all__ = ["RunFolder", "Training"]


@dataclass(frozen=True, slots=True)
class Training:
    """One training of a job: a recipe on a model, with one of the seeds of ``[train]`` (None: the job's own)."""

    model: ModelSection
    recipe: str
    seed: int | None = None

    @property
    def name(self) -> str:
        """Name of its artefact."""
        folder = f"models/{self.model.name}/{self.recipe}"
        return folder if self.seed is None else f"{folder}/seed-{self.seed}"


class RunFolder:
    """The folder of a job, what flows between its stages, and its artefacts.

    Parameters
    ----------
    job : Job
    progress : Progress, optional
        Where stages say what they do; silent by default.
    fresh : bool
        Begin unfinished trainings anew instead of going on with them.
    """

    def __init__(self, job: Job, progress: Progress | None = None, *, fresh: bool = False):
        self.job = job
        self.fresh = fresh
        self.folder = Path(job.out)
        self.progress = progress or Progress(quiet=True)
        self._opened: dict[str, Any] = {}
        self._fingerprints: dict[Path, str] = {}
        self._job_kept = False
        self._recovered = False
        self._told_peak = 0.0
        self.timings = Timings(self.folder)

    @property
    def whole_corpus(self) -> Any:
        """The documents as they were given, less those of individuals who have withdrawn; opened once."""
        if "whole_corpus" not in self._opened:
            from reticent.engine.corpus import Columns, open_corpus
            from reticent.engine.sources.csv_dialect import CsvDialect
            from reticent.engine.sources.standoff import Markup

            settings = self.job.corpus
            columns = Columns(**{f.name: getattr(settings, f.name) for f in fields(Columns)})
            markup = Markup(
                offsets=settings.offsets,
                individual=settings.individual,
                annotator=settings.annotator,
                identifiers=tuple(settings.identifiers),
            )
            dialect = CsvDialect(delimiter=settings.delimiter, quote=settings.quote, encoding=settings.encoding)
            corpus = open_corpus(
                settings.source,
                columns=columns,
                format=settings.format,
                markup=markup,
                csv=dialect,
                on_null=settings.on_null,
                ids=settings.ids,
            )
            self._tell_reading(corpus)
            if settings.withdrawn:
                from reticent.engine.update import without_withdrawn

                corpus = without_withdrawn(corpus, settings.withdrawn)
            self._opened["whole_corpus"] = corpus
        return self._opened["whole_corpus"]

    def _tell_reading(self, corpus: Corpus) -> None:
        """Say what is passed over, and once documents were read what was found out and left out."""
        found = corpus.reading.found
        if notice := found.notice():
            (self.progress.warn_once if found.surprising else self.progress.say_once)(notice)
        corpus.reading.tell = self.progress.warn_once

    @property
    def deduplicated(self) -> Any:
        """The documents less the copies that deduplication leaves out: whose individuals are split."""
        if "deduplicated" not in self._opened:
            corpus = self.whole_corpus
            if self.job.dedup.mode != "off":
                from reticent.core.artifact import require_kind
                from reticent.engine.dedup import read_left_out

                require_kind(self.folder / "dedup", "dedup")
                corpus = corpus.without(read_left_out(self.folder / "dedup"))
            self._opened["deduplicated"] = corpus
        return self._opened["deduplicated"]

    @property
    def remaining(self) -> Any:
        """The same less the fresh documents, where the job holds some back: what everything after the split sees."""
        return self._parted[0] if self.job.split.fresh else self.deduplicated

    @property
    def fresh_documents(self) -> Any:
        """The documents that are held back from everything but the attack user_inference; the job must want some."""
        return self._parted[1]

    @property
    def _parted(self) -> tuple[Any, Any]:
        if "parted" not in self._opened:
            from reticent.engine.split import draw_fresh

            corpus = self.deduplicated
            fresh = draw_fresh(corpus, self.job.split.fresh, self.job.seed)
            self._opened["parted"] = tuple(corpus.without(rows.nonzero()[0]) for rows in (fresh, ~fresh))
        return self._opened["parted"]

    @property
    def documents(self) -> Any:
        """The same, with canaries where the job plants some: what detectors see."""
        if self.job.canaries is None:
            return self.remaining
        if "documents" not in self._opened:
            from reticent.core.artifact import require_kind
            from reticent.engine.canaries import open_planted

            require_kind(self.folder / "canaries", "canaries")
            self._opened["documents"] = open_planted(self.folder / "canaries")
        return self._opened["documents"]

    @property
    def corpus(self) -> Any:
        """The documents without those in quarantine: what every stage after ``detect`` sees."""
        if "corpus" not in self._opened:
            from reticent.engine.detect import quarantined_rows

            rows = quarantined_rows(self.folder / "spans")
            self._opened["corpus"] = self.documents.without(rows) if len(rows) else self.documents
        return self._opened["corpus"]

    @property
    def individuals(self) -> Any:
        """The split, opened once."""
        if "individuals" not in self._opened:
            from reticent.engine.split import open_individuals

            self._opened["individuals"] = open_individuals(self.folder / "split")
        return self._opened["individuals"]

    @property
    def dedup_config(self) -> DedupConfig:
        """What counts as a copy, and which copies are left out."""
        from reticent.engine.dedup import DedupConfig

        settings, k, surface = self.job.dedup, self.job.protect.k, self.job.index.surface
        return DedupConfig(**settings.model_dump(), k=k, surface=surface, num_threads=self.job.num_threads)

    @property
    def policy(self) -> Policy:
        """What is protected."""
        from reticent.engine.protect import Policy

        return Policy(**self.job.protect.model_dump())

    def trainings(self) -> list[Training]:
        """Every training of the job: all recipes with the first seed, then with the next, so that a run that stops
        half-way has compared the recipes.
        """
        found = [
            (number, Training(model, recipe, seed))
            for model in self.job.model
            for number, seed in enumerate(self.job.training(model).seeds or [None])
            for recipe in model.recipes
        ]
        return [training for _, training in sorted(found, key=lambda row: row[0])]

    def checkpoints(self, model: ModelSection, recipe: str, seed: int | None = None) -> dict[int, Path]:
        """Epoch -> model folder, of one training; of the first seed's where the job has seeds and none is said."""
        seeds = self.job.training(model).seeds
        training = Training(model, recipe, seeds[0] if seed is None and seeds else seed)
        folder = self.folder / training.name
        return {int(path.name.removeprefix("epoch-")): path for path in sorted(folder.glob("epoch-*"))}

    def invalidate(self, *names: str) -> None:
        """Forget what was opened under these names: what it was made from has changed."""
        for name in names:
            self._opened.pop(name, None)

    # -------------------------------------------------------------- bookkeeping

    def prepare_folder(self) -> None:
        """Make the run folder, private, and mark a new one with the resolved job; a foreign folder is refused."""
        from reticent.core.artifact import JOB, make_private_folder
        from reticent.core.errors import ArtifactError

        job_file = self.folder / JOB
        with self._writable():
            make_private_folder(self.folder)
            if not job_file.exists():
                if any(not path.name.startswith(f".{JOB}.") for path in self.folder.iterdir()):
                    raise ArtifactError(f"{self.folder}: not empty and not a run folder; choose another --out")
                self.keep_job()

    def keep_job(self) -> None:
        """Make this job the run folder's own. An earlier job stays until the first result of this one stands, so that
        one that fails at its start leaves no settings to the commands after it.
        """
        from reticent.core.artifact import JOB, write_private

        if self._job_kept:
            return
        job_file, content = self.folder / JOB, kept_content(self.job)
        with self._writable():
            if not job_file.exists() or job_file.read_bytes() != content:
                write_private(job_file, content)
        self._job_kept = True

    @contextmanager
    def _writable(self) -> Iterator[None]:
        from reticent.core.errors import ArtifactError

        try:
            yield
        except FileExistsError:
            raise ArtifactError(f"{self.folder}: not a folder; choose another --out") from None
        except OSError as error:
            if error.errno is None:  # ours
                raise
            raise ArtifactError(f"{self.folder}: cannot be written ({error.strerror})") from None

    def recover(self) -> None:
        """Wipe what an interrupted run left, once and before anything can fail."""
        from reticent.core.artifact import recover_folder

        if not self._recovered:
            recover_folder(self.folder)
        self._recovered = True

    def fingerprint_of(self, name: str) -> str:
        """Fingerprint of an artefact."""
        return self.fingerprint_at(self.folder / name)

    def fingerprint_at(self, path: Path) -> str:
        """Fingerprint of a file or folder, whose bytes are read once a run however many stages ask."""
        from reticent.core.artifact import fingerprint

        if path not in self._fingerprints:
            self._fingerprints[path] = fingerprint(path)
        return self._fingerprints[path]

    def make(
        self,
        name: str,
        config: dict[str, Any],
        inputs: dict[str, str],
        build: Callable[[Path, dict[str, Any]], None],
        *,
        kind: str | None = None,
        resume: bool | None = None,
        alone: bool = False,
    ) -> None:
        """Make the artefact of this name, unless it is there and made with the same settings and inputs.

        ``resume`` as in :func:`reticent.core.artifact.write_artifact`; what may be resumed is made by all processes
        together, where torchrun started several: the first decides and writes, the others help. Not so ``alone``.
        """
        from reticent.core.artifact import is_up_to_date, read_manifest, unfinished_path, write_artifact
        from reticent.trainer.distributed import join_world, launched

        path, kind = self.folder / name, kind or name
        config = json.loads(json.dumps(config, default=str))
        together = resume is not None and not alone and launched().size > 1
        if not launched().is_main:
            if together and join_world().broadcast_from_main(False):
                build(unfinished_path(path, kind, config, inputs), {})
            return
        self.recover()
        current = is_up_to_date(path, kind=kind, config=config, inputs=inputs)
        if together:
            join_world().broadcast_from_main(not current)
        if current:
            self.progress.kept(name, read_manifest(path).counts)
        else:
            started = time.perf_counter()
            with (
                self._timed(name) as counts,
                write_artifact(path, kind=kind, config=config, inputs=inputs, resume=resume) as writer,
            ):
                build(writer.path, writer.counts)
                counts.update(writer.counts)
            work = self.progress.plan.finish() if self.progress.plan else None
            self.timings.add(name, time.perf_counter() - started, work)
            self._tell_memory(name)
            self.keep_job()
        self._fingerprints[path] = read_manifest(path).digest
        self._fingerprints.pop(path / "text", None)

    def _tell_memory(self, name: str) -> None:
        """Say which stage took more than the memory limit, and again where a later one takes yet more."""
        from reticent.core.memory import peak_bytes

        limit = self.job.memory_limit
        if limit is not None and (peak := peak_bytes()) > max(limit, 1.1 * self._told_peak):
            self._told_peak = peak
            self.progress.warn(
                f"{name} took the process to {peak / 1e6:,.0f} MB (files that it maps among them), over the memory "
                f"limit of {limit / 1e6:,.0f} MB, which holds for the count of n-grams alone"
            )

    def looks_current(self, name: str, config: dict[str, Any], inputs: dict[str, str], *, kind: str) -> bool:
        """Whether the artefact of this name was made with these settings and inputs, by its manifest alone: for a plan,
        which must not read every byte. `make` does before it believes it.
        """
        from reticent.core.artifact import require_kind
        from reticent.core.errors import ArtifactError

        try:
            manifest = require_kind(self.folder / name, kind)
        except ArtifactError:
            return False
        return manifest.config == json.loads(json.dumps(config, default=str)) and manifest.inputs == inputs

    def text_fingerprint_of(self, name: str) -> str:
        """Fingerprint of protected tokens without their flags."""
        from reticent.engine.store import open_tokens

        key = self.folder / name / "text"  # no file: the name in the cache
        if key not in self._fingerprints:
            self.fingerprint_of(name)  # the bytes are those that were written
            self._fingerprints[key] = open_tokens(self.folder / name).text_fingerprint()
        return self._fingerprints[key]

    def checkpoint_fingerprint(self, training: Training, epoch: int) -> str:
        """Fingerprint of one checkpoint, from the manifest of its training."""
        from reticent.core.artifact import read_manifest

        files = read_manifest(self.folder / training.name).files
        own = {name: about["sha256"] for name, about in files.items() if name.startswith(f"epoch-{epoch:04d}/")}
        return hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()

    @contextmanager
    def _timed(self, name: str) -> Iterator[dict[str, Any]]:
        counts: dict[str, Any] = {}
        with self.progress.stage(name, counts):
            yield counts
