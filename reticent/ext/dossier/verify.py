"""Check of a dossier: its files, its signature, and whether model files are those that were tested."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from types import MappingProxyType

from reticent.audit.evidence.dossier import EVIDENCE_FORMAT, DossierEvidence, ModelUnderTest
from reticent.audit.evidence.json_form import from_json
from reticent.audit.texts import LANGUAGES, Language
from reticent.core.artifact import MANIFEST, hash_file
from reticent.core.errors import ArtifactError, ReticentError
from reticent.core.json_toml import read_json
from reticent.ext.dossier.page import page_name, render
from reticent.ext.dossier.provenance import code_digest
from reticent.ext.dossier.rules import RULES_FILE
from reticent.ext.dossier.seal import EVIDENCE, NAMESPACE, SIGNATURE, SUMS, read_sums, run_ssh_keygen, signed_files
from reticent.job.outcomes import without_model_card
from reticent.trainer.given import PICKLES

#: Files that may hold weights, or say that there are some; those of these that a training leaves beside a model.
WEIGHTS = ("*.safetensors", "*.gguf", "*adapter_config.json", *PICKLES)
OF_TRAINER = frozenset({"training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth"})

#: Model section, recipe, epoch, and number of the training where there are several.
Tested = tuple[str, str, int, int | None]

#: What is said of the manifest in a copy of a run's own folder.
_OF_A_RUN = "; a run keeps it beside its dossier, and a copy by `reticent dossier RUN --out FOLDER` has none"


@dataclass(slots=True)
class Checked:
    """Results of a check as sentences: checks that hold, faults, and checks that were not made."""

    holds: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    #: Outcomes of a dossier that an older version made, which today's rules judge otherwise.
    changed: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    #: Language of the first page; what is printed follows it, and the sentences here are English.
    language: Language = "en"
    #: Fingerprint of the key of the signature; None without a valid signature.
    key: str | None = None
    #: Name of the signer in the list of allowed signers; None where this was not checked.
    signer: str | None = None


def read_evidence(folder: Path) -> DossierEvidence:
    """Return the parsed ``evidence.json`` of a dossier.

    Raises
    ------
    ArtifactError
        It is missing, of another version, or has a field that no version has.
    """
    content = read_json(folder / EVIDENCE)
    if not isinstance(content, dict) or content.get("format") != EVIDENCE_FORMAT:
        raise ArtifactError(f"{folder / EVIDENCE}: not evidence of the format {EVIDENCE_FORMAT}")
    return from_json(DossierEvidence, content, EVIDENCE)


def verify_dossier(
    folder: Path,
    models: Sequence[Path] = (),
    signers: Path | None = None,
    *,
    own: Mapping[Path, Tested] = MappingProxyType({}),
) -> Checked:
    """Verify a dossier: its files, signature (by a key in the file of allowed ``signers``, if given), pages and
    preregistered rules, and whether the folders ``models`` hold models that it tested. ``own`` maps checkpoints of the
    dossier's run to the tested model that each must be.

    Parameters
    ----------
    models : folders of models that must be among those that were tested
    signers : file of allowed signers (ssh-keygen(1)): the signature must be of one of them. Without it only that the
        signature fits the files is checked.
    own : folders of the run's own checkpoints, each of which must hold this very model

    Raises
    ------
    ArtifactError
        There is no list of digests: this is no dossier.
    """
    checked = Checked(language=_language(folder))
    _check_files(folder, checked)
    evidence = None
    try:
        evidence = read_evidence(folder)
    except (ReticentError, OSError, ValueError) as error:
        checked.faults.append(f"{EVIDENCE} cannot be read: {error}")
    if evidence is not None and evidence.rules is not None:
        held = (folder / RULES_FILE).is_file() and hash_file(folder / RULES_FILE) == evidence.rules.digest
        (checked.holds if held else checked.faults).append(
            f"{RULES_FILE}: {'the' if held else 'not the'} rules that were written down before the scores"
        )
    _check_signature(folder, evidence, signers, checked)
    if evidence is not None and not checked.faults:
        _check_pages(folder, evidence, checked)
    for model, of in {**dict.fromkeys(models), **own}.items() if evidence else ():
        assert evidence is not None
        found = verify_model(evidence, model, of=of)
        if found is None:
            other = (
                "no model of this dossier has these files" if of is None else "not the files of the model tested there"
            )
            checked.faults.append(f"{model}: {other}")
        else:
            seed = "" if found.training is None else f", training {found.training}"
            checked.holds.append(
                f"{model}: the files of {found.recipe} of {found.model}, epoch {found.epoch}{seed}, as tested"
            )
    if evidence and not models and not own:
        checked.unchecked.append("model files: name their folders with --model")
    return checked


def _language(folder: Path) -> Language:
    """Return the language of the dossier's first page; English if the page is missing or has none."""
    page = folder / "dossier.html"
    head = page.read_bytes()[:200] if page.is_file() else b""
    return next((language for language in LANGUAGES if f'<html lang="{language}"'.encode() in head), "en")


def model_digests(folder: Path) -> dict[str, str]:
    """Return relative path -> SHA-256 of the files of a model folder, without the model card."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    names = {path.relative_to(folder).as_posix(): path for path in files}
    return {name: hash_file(path) for name, path in without_model_card(names).items()}


def verify_model(evidence: DossierEvidence, folder: Path, *, of: Tested | None = None) -> ModelUnderTest | None:
    """Return the tested model of a dossier whose files are exactly those of ``folder``, or None. With ``of`` it must
    also be this (model, recipe, epoch, training).
    """
    digests = model_digests(folder) if folder.is_dir() else {}
    found = (
        model
        for model in evidence.models
        if digests and (model.files == digests or _matches_handed_over_files(model, digests))
    )
    return next((one for one in found if of in (None, (one.model, one.recipe, one.epoch, one.training))), None)


def _matches_handed_over_files(model: ModelUnderTest, digests: Mapping[str, str]) -> bool:
    """Return whether a folder holds a model as it was handed over for the test: every file of ``model.given`` is
    unchanged by the folder's ``digests`` (file -> SHA-256), and the folder has no other weight files.
    """
    weights = {name for name in digests if any(fnmatch(name, each) for each in WEIGHTS)} - OF_TRAINER
    given = model.given or {}
    return bool(given) and weights <= given.keys() and given.items() <= digests.items()


def _check_files(folder: Path, result: Checked) -> None:
    """Compare the files of a dossier with its list of digests, and add the outcome to ``result``."""
    listed = read_sums(folder)
    there = signed_files(folder)
    more = {MANIFEST: _OF_A_RUN}
    faults = [f"{name}: is not in {SUMS}{more.get(name, '')}" for name in there if name not in listed]
    for name, digest in listed.items():
        path = folder / name
        if name not in there:
            faults.append(f"{name}: is missing")
        elif path.is_symlink() or hash_file(path) != digest:
            faults.append(f"{name}: is not the file that was listed")
    if EVIDENCE not in listed:
        faults.append(f"{EVIDENCE}: is not in {SUMS}")
    empty = (path for path in sorted(folder.rglob("*")) if path.is_dir() and not any(path.iterdir()))
    faults += [f"{path.relative_to(folder).as_posix()}: an empty folder, which no dossier has" for path in empty]
    result.faults += faults
    if not faults:
        result.holds.append(f"{len(listed)} files are as {SUMS} says")


def _check_pages(folder: Path, evidence: DossierEvidence, result: Checked) -> None:
    """Render a dossier's HTML pages again from its evidence, compare them, and add the outcome to ``result``. Pages of
    another version's code are not compared.
    """
    names = sorted(path.name for path in folder.glob("dossier*.html"))
    if evidence.code != code_digest():
        result.unchecked.append(f"{', '.join(names)}: of another version, so not compared with {EVIDENCE}")
        return
    first = result.language
    languages = (first, *(each for each in LANGUAGES if each != first and f"dossier.{each}.html" in names))
    pages = {page_name(each, languages, "html"): each for each in languages}
    if sorted(pages) == names and all(
        _drop_svgs((folder / name).read_text(encoding="utf-8")) == _drop_svgs(render(evidence, each, languages))
        for name, each in pages.items()
    ):
        result.holds.append(f"{', '.join(names)}: as {EVIDENCE} gives them")
    else:
        result.faults.append(f"{', '.join(names) or 'dossier.html'}: not the pages that {EVIDENCE} gives")
    if any(folder.glob("dossier*.pdf")):
        result.unchecked.append(f"dossier*.pdf: not compared with {EVIDENCE}")


def _drop_svgs(page: str) -> str:
    """Return an HTML page in which each SVG is replaced by its labels, since drawings differ slightly between
    machines.
    """
    return re.sub(
        r"<svg\b.*?</svg>", lambda drawn: "".join(re.findall(r'aria-label="[^"]*"', drawn[0])), page, flags=re.S
    )


def _check_signature(folder: Path, evidence: DossierEvidence | None, signers: Path | None, result: Checked) -> None:
    """Verify the SSH signature of a dossier, against the allowed signers if given, and add the outcome to
    ``result``.
    """
    expected = evidence.signed_by if evidence else None
    if not (folder / SIGNATURE).is_file():
        if expected is not None or signers is not None:
            result.faults.append(f"{SIGNATURE}: is missing; the dossier says it was signed" if expected else
                                  f"{SIGNATURE}: is missing; the dossier is not signed")  # fmt: skip
        else:
            result.unchecked.append("signature: there is none, so whoever has the folder can have made it")
        return
    sums, signature = (folder / SUMS).read_bytes(), str(folder / SIGNATURE)
    try:
        said = run_ssh_keygen(["-Y", "check-novalidate", "-n", NAMESPACE, "-s", signature], sums)
    except ArtifactError:
        result.faults.append(f"{SIGNATURE}: does not fit {SUMS}")
        return
    key = re.search(r"SHA256:[A-Za-z0-9+/]+", said)
    result.key = key and key[0]
    if result.key != expected:
        result.faults.append(f"{SIGNATURE}: is of another key than {EVIDENCE} says")
        return
    if signers is None:
        result.holds.append(f"{SIGNATURE} fits, by the key {result.key}")
        result.unchecked.append("whose key it is: give a file of allowed signers with --signers")
        return
    if not signers.is_file():
        result.faults.append(f"{signers}: no file of allowed signers is there, so nobody vouches for {SIGNATURE}")
        return
    try:
        found = run_ssh_keygen(["-Y", "find-principals", "-s", signature, "-f", str(signers)]).strip()
        signer = found.splitlines()[0]
        identity = ["-I", signer.split(",")[0]]
        run_ssh_keygen(["-Y", "verify", "-f", str(signers), *identity, "-n", NAMESPACE, "-s", signature], sums)
    except (ArtifactError, IndexError) as error:
        dated = next((why for why in ("expired", "not yet valid") if why in str(error)), None)
        result.faults.append(
            f"{SIGNATURE}: {signers} names its key, which is {dated} there"
            if dated
            else f"{SIGNATURE}: its key is not one of the allowed signers"
        )
        return
    result.signer = signer
    result.holds.append(f"{SIGNATURE} fits, by {signer}, key {result.key}")
