"""A run: a job bound to its folder, the results that it has opened, and the documents that each stage reads.

The job of the last run is kept as ``job.json``; an earlier one stays until the first result of the new one stands.
The documents of each stage are decided here alone: ``whole_corpus`` holds the given documents without those of
individuals who withdrew, ``deduplicated`` those without the copies that deduplication leaves out, ``remaining`` those
without the ``user_inference_holdout`` that only one attack sees, ``documents`` the same with canaries planted,
``corpus`` those without the ones in quarantine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from reticent.audit.evidence.audit import AuditEvidence
from reticent.audit.evidence.json_form import from_json
from reticent.core.artifact import (
    JOB,
    VERIFY,
    VerifiedFiles,
    artifacts_in,
    delete_left,
    make_private_folder,
    read_manifest,
    recover_folder,
    require_kind,
    write_private,
)
from reticent.core.errors import ArtifactError, ReticentError
from reticent.core.eta import Timings
from reticent.core.json_toml import read_json
from reticent.core.model_folder import folder_of_model
from reticent.core.progress import Progress
from reticent.core.resolve import resolve
from reticent.engine.canaries import open_planted
from reticent.engine.corpus import Corpus, open_configured
from reticent.engine.dedup import read_left_out
from reticent.engine.detect import quarantined_rows
from reticent.engine.index import open_index
from reticent.engine.ngrams import NgramIndex
from reticent.engine.protect import Policy
from reticent.engine.schema import HELDOUT, MEMBERS
from reticent.engine.sources.files import Files
from reticent.engine.split import draw_user_inference_holdout, open_individuals
from reticent.engine.token_views import NumberedCorpus
from reticent.engine.withdrawn import RECORD, LeftOut, OfList, Withdrawals, hash_texts, leave_out, list_message
from reticent.engine.word_ids import NumberedWords, WordSpans
from reticent.job.artefact import Measurement, Training
from reticent.job.config import Job, ModelSection
from reticent.job.config.job import changed_sections, kept_content, require_withdrawals
from reticent.job.fingerprints import Fingerprints
from reticent.job.staged import staged_job
from reticent.trainer.tokenizer_of_model import tokenizer_json_of

T = TypeVar("T")


class Run:
    """A job bound to its run folder; `execute` runs its stages.

    Parameters
    ----------
    job : Job
    progress : Progress, optional
        Reporter of messages and progress; silent by default.
    restart : bool
        Whether to begin interrupted trainings anew instead of resuming them.
    reread : bool
        Whether to hash every file of documents and finished results again, also those that have not changed since they
        were last hashed.
    """

    def __init__(self, job: Job, progress: Progress | None = None, *, restart: bool = False, reread: bool = False):
        self.job = job
        self.restart = restart
        self.folder = Path(job.out)
        self.progress = progress or Progress(quiet=True)
        self._opened: dict[str, Any] = {}
        self.fingerprints = Fingerprints(self.folder)
        self._job_kept = False
        #: Whether each base model of the job was loaded once, before the first training.
        self.bases_are_loaded = False
        self._recovered = False
        self._told_peak = 0.0
        self.timings = Timings(self.folder)
        self._reread = reread
        #: Of each list of who withdrew: its name, its ids, and how many are individuals; known once documents are open.
        self.withdrawn: list[OfList] = []

    @cached_property
    def verified(self) -> VerifiedFiles:
        """Cache of the digests of documents and finished results that were verified already and need not be hashed
        again."""
        return VerifiedFiles(self.folder, reread=self._reread)

    def verify_all(self) -> None:
        """Verify all results in the run folder against the SHA-256 in their manifests, if the run was opened with
        ``reread``; else do nothing.

        Raises
        ------
        ArtifactError
            One is not as it was written.
        """
        for path in artifacts_in(self.folder) if self._reread else ():
            self.verified.verify(path, read_manifest(path))

    def read_only_copy(self) -> Run:
        """Return a copy of this run for reading only: it prints nothing and trusts manifests."""
        look = Run(self.job, Progress(quiet=True))
        look._opened = dict(self._opened)
        look.fingerprints = self.fingerprints.read_only_copy()
        return look

    @property
    def whole_corpus(self) -> Any:
        """The documents as given, without those of withdrawn individuals; opened once."""
        if "whole_corpus" not in self._opened:
            corpus, record = self.given_corpus, LeftOut.read(self.folder)
            self.withdrawn = []
            gone = pa.array([], pa.string())
            if self.job.corpus.withdrawn:
                corpus, gone, self.withdrawn = leave_out(corpus, self.job.corpus.withdrawn)
            if self.job.corpus.remote is not None:  # of whom they left out when it was read, the stage `corpus` said so
                self.withdrawn = [each for each in self.withdrawn if each[2]]
                Withdrawals(self.job.corpus, record).require_named()
            for each in self.withdrawn:
                list_message(*each, self.job.corpus)  # stops where that is wanted
            if record:
                Withdrawals(staged_job(self.job).corpus, record).require(self.given_corpus.scan(), gone)
            self._opened["whole_corpus"] = corpus
        return self._opened["whole_corpus"]

    @property
    def given_corpus(self) -> Any:
        """The documents as given, including those of withdrawn individuals; opened once."""
        if "given_corpus" not in self._opened:
            corpus = open_configured(staged_job(self.job).corpus)
            if isinstance(corpus.source, Files):
                corpus.source = replace(corpus.source, sha256=self.verified.sha256)
            self._report_reading(corpus)
            self._opened["given_corpus"] = corpus
        return self._opened["given_corpus"]

    def require_unchanged(self) -> None:
        """Raise `CorpusError` where documents have changed since this run first read them."""
        if "whole_corpus" in self._opened:
            self._opened["whole_corpus"].require_unchanged()

    def left_out(self, *, again: bool = False) -> LeftOut:
        """Return the record of the documents that were excluded because their individuals withdrew. With ``again`` it
        is updated by the lists of withdrawn individuals that the job names now.

        Cost: one pass over the text, where someone is left out and it is brought up to date.

        Raises
        ------
        PolicyError
            Someone would come back, or a document of theirs that has another id now.
        """
        record, lists = LeftOut.read(self.folder), self.job.corpus.withdrawn
        # By the stage `corpus`, when the documents were read.
        is_kept = self.job.corpus.remote is not None and not self.withdrawn
        if not (lists or record) or (record and (is_kept or not again)):
            return record
        reading = Withdrawals(self.job.corpus, record)
        owners = self.given_corpus.scan().column("individual_id")
        columns = ["doc_id", "individual_id", "text"]
        batches = (batch.select(columns) for batch in self.given_corpus.batches(columns=columns))
        reading.end_with_tables(owners, hash_texts(batches), gone=reading.of_lists(owners))
        return reading.record

    def _report_reading(self, corpus: Corpus) -> None:
        """Report skipped files now, and the number of documents left out once they have been read."""
        found = corpus.reading.found
        if notice := found.notice():
            (self.progress.warn_once if found.surprising else self.progress.say_once)(notice)
        corpus.reading.tell = self.progress.warn_once

    @property
    def deduplicated(self) -> Any:
        """The documents without the copies that deduplication removes; the split is drawn over their individuals."""
        if "deduplicated" not in self._opened:
            corpus = self.whole_corpus
            if self.job.dedup.mode != "off":
                require_kind(self.folder / "dedup", "dedup")
                corpus = corpus.without(read_left_out(self.folder / "dedup"))
            self._opened["deduplicated"] = corpus
        return self._opened["deduplicated"]

    @property
    def remaining(self) -> Any:
        """The deduplicated documents without those reserved for the user-inference attack, as a corpus. Canaries are
        planted in these documents.
        """
        return self._remaining_and_holdout[0] if self.job.split.user_inference_holdout else self.deduplicated

    @property
    def user_inference_holdout(self) -> Any:
        """The documents reserved for the user-inference attack; the job must set a share for it."""
        return self._remaining_and_holdout[1]

    @property
    def _remaining_and_holdout(self) -> tuple[Any, Any]:
        """The deduplicated documents as two corpora: without those reserved for the user-inference attack, and those
        reserved."""
        if "parted" not in self._opened:
            corpus = self.deduplicated
            held_back = draw_user_inference_holdout(corpus, self.job.split.user_inference_holdout, self.job.seed)
            self._opened["parted"] = tuple(corpus.without(rows.nonzero()[0]) for rows in (held_back, ~held_back))
        return self._opened["parted"]

    @property
    def documents(self) -> Any:
        """The documents in which identifiers are searched for, as a corpus: those of `remaining`, with canaries if the
        job plants some.
        """
        if self.job.canaries is None:
            return self.remaining
        if "documents" not in self._opened:
            require_kind(self.folder / "canaries", "canaries")
            self._opened["documents"] = open_planted(self.folder / "canaries")
        return self._opened["documents"]

    @property
    def corpus(self) -> Any:
        """The documents that every stage after detection reads, as a corpus: all but those set aside because a detector
        failed on them.
        """
        if "corpus" not in self._opened:
            self._opened["corpus"] = self._without_quarantined(self.documents)
        return self._opened["corpus"]

    @property
    def unplanted(self) -> Any:
        """The documents of ``corpus`` without canaries."""
        if self.job.canaries is None:
            return self.corpus
        return self._without_quarantined(self.remaining)

    def _without_quarantined(self, documents: Any) -> Any:
        """Return these documents without those on which a detector failed."""
        rows = quarantined_rows(self.folder / "spans")
        return documents.without(rows) if len(rows) else documents

    @property
    def canaries_left_out(self) -> dict[str, str]:
        """The manifest entry of a result that is computed from documents without canaries: ``{"canaries": "left
        out"}``, or empty if the job plants none.
        """
        return {} if self.job.canaries is None else {"canaries": "left out"}

    @property
    def individuals(self) -> Any:
        """The split of the individuals into members, held-out and reference, opened once."""
        if "individuals" not in self._opened:
            self._opened["individuals"] = open_individuals(self.folder / "split")
        return self._opened["individuals"]

    @property
    def sides(self) -> tuple[int, int]:
        """The numbers of members and of held-out individuals (households, where the split keeps them together)."""
        members, heldout = (
            len(np.unique(self.individuals.units[self.individuals.mask(side)])) for side in (MEMBERS, HELDOUT)
        )
        return members, heldout

    def index(self, name: str = "index") -> NgramIndex:
        """Return the n-gram index of this name, opened once: ``index`` (of the members) or ``index-joint`` (of members
        and held-out)."""

        if name not in self._opened:
            self._opened[name] = open_index(self.folder / name)
        return self._opened[name]

    def memoize(self, name: str, key: bytes, make: Callable[[], T]) -> T:
        """Return the result of ``make()``, cached under ``name`` until ``key`` changes."""
        if (kept := self._opened.get(name)) is None or kept[0] != key:
            kept = self._opened[name] = key, make()
        made: T = kept[1]
        return made

    def forget_tables(self, *names: str) -> None:
        """Free the n-gram lookup tables of these indexes, where they are open."""
        for name in set(names) & set(self._opened):
            self._opened[name].forget_tables()

    @property
    def numbered(self) -> NumberedCorpus:
        """The documents with each word replaced by its id in the n-gram index of members and held-out individuals,
        opened once. The single pass over the text must have written them.
        """

        if "numbered" not in self._opened:
            words, spans = NumberedWords(self.folder / "words"), WordSpans(self.folder / "word-spans")
            self._opened["numbered"] = NumberedCorpus(
                self.corpus, words, spans, self.index("index-joint"), self.corpus.scan().column("individual_id")
            )
        return self._opened["numbered"]

    @property
    def policy(self) -> Policy:
        """The protection policy of the job."""
        return self.job.protect

    def checkpoints(self, model: ModelSection, recipe: str, seed: int | None = None) -> dict[int, Path]:
        """Return the checkpoints of one training, epoch -> model folder; by default of the first seed."""
        seeds = self.job.training(model).seeds
        training = Training(model, recipe, seeds[0] if seed is None and seeds else seed)
        folder = self.folder / training.name
        return {int(path.name.removeprefix("epoch-")): path for path in sorted(folder.glob("epoch-*"))}

    def checkpoint_of(self, measurement: Measurement) -> Path:
        """Return the model folder of a measured checkpoint or base model."""
        if measurement.training is None:
            return Path(self.base_of(measurement.model))
        return self.checkpoints(measurement.model, measurement.recipe, measurement.seed)[measurement.epoch]

    def base_of(self, model: ModelSection) -> str:
        """Return the folder of a model section's base model, which is downloaded from the Hugging Face hub if need be.
        Return its hub name if it cannot be downloaded, or if the run is a read-only copy.
        """
        if model.base is None:
            return str(self.folder / "foundation" / model.name / "model")
        name = f"base of {model.name}"
        if name not in self._opened:
            found = folder_of_model(model.base, download=not self.fingerprints.looking)
            if found is None:
                return model.base
            self._opened[name] = str(found)
        return str(self._opened[name])

    def base_input(self, model: ModelSection) -> dict[str, str]:
        """Return a model's base model as an entry {name: fingerprint} of a manifest's inputs."""
        if model.foundation is not None:
            return {"foundation": self.fingerprints.of(f"foundation/{model.name}")}
        base = self.base_of(model)
        return {"base": self.fingerprints.at(Path(base)) if Path(base).exists() else base}

    def tokenizer_of(self, model: ModelSection) -> str:
        """Return the tokenizer of a model's base model as JSON text; cached for a base model given as files, as it can
        have 10 MB.

        One that made the model's ids is not tested again.
        """

        name = f"tokenizer of {model.name}"
        if name not in self._opened:
            text = tokenizer_json_of(self.base_of(model), tested=self.tokenizer_of_ids(model))
            if model.base is None:  # the run makes it
                return text
            self._opened[name] = text
        return str(self._opened[name])

    def dataset(self, recipe: str, *, model: str | None = None, window_length: int | None = None) -> Any:
        """Return the members' token windows under a recipe as a Hugging Face dataset whose labels leave out protected
        tokens, for any trainer.

        ``model`` is the first model that has the recipe, ``window_length`` that of its training. Columns and errors are
        those of :func:`reticent.trainers.protected_dataset`; `ArtifactError` before ``execute(run, until="protect")``,
        and where the job or its documents have changed since.
        """
        return resolve("reticent.ext.trainers.dataset:dataset_of_run")(self, recipe, model, window_length)

    def tokenizer_of_ids(self, model: ModelSection) -> str | None:
        """Return the SHA-256 of the tokenizer by which a model's stored token ids were made; None if none are
        stored."""

        try:
            manifest = read_manifest(self.folder / "tokens" / model.name / "ids")
        except ReticentError:
            return None
        found = manifest.config.get("tokenizer")
        return found if isinstance(found, str) else None

    def corpus_input(self) -> dict[str, str]:
        """Return the fingerprint of the corpus as an input for manifests, by name."""
        return {"corpus": self.corpus.fingerprint()}

    @property
    def evidence(self) -> AuditEvidence:
        """The finished audit's evidence before publication, read from its file each time."""

        require_kind(self.folder / "audit", "audit")
        return from_json(AuditEvidence, read_json(self.folder / "audit" / "audit.json"), "audit")

    def invalidate(self, *names: str) -> None:
        """Close the opened results with these names, because their inputs have changed; they are opened again when
        needed."""
        for name in names:
            self._opened.pop(name, None)

    # -------------------------------------------------------------- bookkeeping

    def prepare_folder(self) -> None:
        """Create the private run folder, and save the resolved job in it if the folder is new. Raise an error if the
        folder holds something else, or if the job would include individuals again who have withdrawn.
        """

        if not (self.folder / RECORD).exists():  # a run of an earlier version has none
            require_withdrawals(self.job)
        job_file = self.folder / JOB
        with self._naming_write_errors():
            make_private_folder(self.folder)
            if not job_file.exists():
                if any(not path.name.startswith(f".{JOB}.") for path in self.folder.iterdir()):
                    raise ArtifactError(f"{self.folder}: not empty and not a run folder; choose another --out")
                self.keep_job()

    def keep_job(self) -> None:
        """Save the job in the run folder as ``job.json``, if it differs from the job there, and report in which
        sections it differs. It is called when the first result is written, so a job that fails before leaves the saved
        one.
        """

        if self._job_kept:
            return
        job_file, content = self.folder / JOB, kept_content(self.job)
        with self._naming_write_errors():
            if not job_file.exists() or job_file.read_bytes() != content:
                changed = changed_sections(job_file, content)
                write_private(job_file, content)
                if changed:
                    said = f"{job_file}: replaced by this job, which differs in {', '.join(changed)}"
                    self.progress.tell(said, is_warning="corpus.source" in changed)
        self._job_kept = True

    @contextmanager
    def _naming_write_errors(self) -> Iterator[None]:
        """Context manager: turn an operating-system error on writing into an `ArtifactError` that names the run
        folder."""
        try:
            yield
        except FileExistsError:
            raise ArtifactError(f"{self.folder}: not a folder; choose another --out") from None
        except OSError as error:
            if error.errno is None:  # ours
                raise
            raise ArtifactError(f"{self.folder}: cannot be written ({error.strerror})") from None

    def recover(self) -> None:
        """Delete the unfinished files that an interrupted run left in the run folder; later calls do nothing."""

        if not self._recovered:
            recover_folder(self.folder)
            if (self.folder / JOB).is_file():  # ours
                delete_left(VERIFY, self.folder)
        self._recovered = True

    def warn_of_memory(self, name: str, peak: int) -> None:
        """Warn if the peak memory (bytes) of the stage ``name`` exceeds the job's limit by more than a tenth. Later
        stages are warned of only if they exceed that peak by a tenth.
        """
        limit = self.job.memory_limit
        if limit is not None and peak > 1.1 * max(limit, self._told_peak):
            self._told_peak = peak
            self.progress.warn(
                f"{name} took the process to {peak / 1e6:,.0f} MB (files that it maps aside), over the memory "
                f"limit of {limit / 1e6:,.0f} MB"
            )
