"""Where the numbers of a dossier come from: digests of a run's inputs and results, of its models, and of the code.

Digests of what is not released are keyed (HMAC) by ``dossier.key`` of the run folder, 32 random bytes, so that a reader
of a dossier cannot test a guess of the documents, or of the split, by them.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import os
import secrets
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from reticent.audit.evidence.dossier import KeyedDigests, ModelUnderTest
from reticent.core.artifact import MANIFEST, artifacts_in, canonical, read_manifest, read_object, write_private
from reticent.core.errors import ArtifactError
from reticent.job.artefact import measurements_of
from reticent.job.outcomes import without_model_card
from reticent.trainer.base_files import shapes_of

if TYPE_CHECKING:
    from reticent.audit.evidence.dossier import KeyedDigests, ModelUnderTest
    from reticent.job.run import Run

#: Key of the digests of what stays inside.
KEY = "dossier.key"
#: Files of the package that its results depend on.
CODE = ("*.py", "*.j2", "*.toml", "*.html", "*.css", "*.js", "*.so")


def hmac_of(run: Run, *digests: str) -> str:
    """Return the HMAC-SHA-256 (hexadecimal) of these digests under the run's secret key. The key is created if missing.

    Raises
    ------
    ArtifactError
        A plan is only looked at, and there is no key.
    """

    file = run.folder / KEY
    if not file.exists():
        if run.fingerprints.looking:
            raise ArtifactError(f"{file}: no dossier was made yet")
        write_private(file, _new_key(run))
    return hmac.new(file.read_bytes(), "\n".join(digests).encode(), "sha256").hexdigest()


def _new_key(run: Run) -> bytes:
    """Return 32 random bytes; with SOURCE_DATE_EPOCH (reproducible output), a digest of the documents instead."""
    if "SOURCE_DATE_EPOCH" in os.environ:
        return hashlib.sha256(f"{KEY} {run.corpus.fingerprint()}".encode()).digest()
    return secrets.token_bytes(32)


def keyed_digests(run: Run) -> KeyedDigests:
    """Return the keyed digests (HMAC-SHA-256) of a run's job, documents, split, spans, indexes, tokens and audit."""

    job = canonical(run.job.model_dump(mode="json", exclude={"out", "dossier"}))

    def of(name: str) -> str:
        """Return the HMAC of the fingerprint of the artefact with this name."""
        return hmac_of(run, run.fingerprints.of(name))

    # Stores by name: a token store is in a folder of its own, and shadow models have theirs.
    stores = {
        store for model in run.job.model for store in (run.folder / "tokens" / model.name).glob("*/manifest.json")
    }
    names = sorted(store.parent.relative_to(run.folder).as_posix() for store in stores)
    return KeyedDigests(
        corpus=hmac_of(run, run.corpus.fingerprint()),
        split=of("split"),
        spans=of("spans"),
        indexes={name: of(name) for name in ("index", "index-joint") if (run.folder / name).is_dir()},
        protection={name: of(name) for name in names if "-shadow-" not in name},
        audit=of("audit"),
        job=hmac_of(run, hashlib.sha256(job).hexdigest()),
        counts=hmac_of(run, digest_of_counts(run.folder)),
    )


def digest_of_counts(folder: Path) -> str:
    """Return one SHA-256 over the counts (training targets, protected targets …) that the manifests of all trainings
    and token stores in a run ``folder`` record.
    """
    found = [path for name in ("models", "tokens") for path in artifacts_in(folder / name)]
    counts = {path.relative_to(folder).as_posix(): read_object(path / MANIFEST).get("counts") for path in found}
    return hashlib.sha256(canonical(counts)).hexdigest()


def models_under_test(run: Run) -> Iterator[ModelUnderTest]:
    """Yield every checkpoint that a run's audit measured, with its number of parameters and the digests of its files
    from the manifest.
    """

    for section in run.job.model:
        seeds = list(run.job.training(section).seeds or [None])
        for measurement in measurements_of(run.job, section):
            if measurement.training is None:
                continue
            folder = run.folder / measurement.training.name
            made, start = read_manifest(folder), f"epoch-{measurement.epoch:04d}/"
            files = made.files
            own = {name.removeprefix(start): about["sha256"] for name, about in files.items() if name.startswith(start)}
            ledger = folder / "ledger.json"
            ended = read_object(ledger).get("ended", {}) if ledger.is_file() else {}
            yield ModelUnderTest(
                model=section.name,
                recipe=measurement.recipe,
                objective=section.objective,
                epoch=measurement.epoch,
                training=seeds.index(measurement.seed) + 1 if len(seeds) > 1 else None,
                epochs_passed=ended.get("passes", ended.get("epoch")),  # earlier versions kept whole epochs alone
                best_epoch=ended.get("best_epoch"),
                num_parameters=_num_parameters(folder / start),
                files=without_model_card(dict(sorted(own.items()))),
                given=made.counts.get("given"),
                ledger=hmac_of(run, files["ledger.json"]["sha256"]) if "ledger.json" in files else hmac_of(run),
            )


@cache
def code_digest() -> str:
    """Return the SHA-256 over all code files of the installed package, compiled ones too."""
    package, digest = Path(__file__).parents[2], hashlib.sha256()
    for path in sorted(path for pattern in CODE for path in package.rglob(pattern)):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _num_parameters(folder: Path) -> int:
    """Return the number of parameters of a checkpoint, from the weight files' headers; tied weights count once."""
    return sum(math.prod(shape) for file in folder.glob("*.safetensors") for shape in shapes_of(file))
