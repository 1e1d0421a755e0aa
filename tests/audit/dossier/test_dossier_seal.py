"""The seal of a dossier: an untouched one holds, and each kind of tampering is found and named."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fixtures.audits import filled
from fixtures.command import command
from fixtures.dossiers import dossier_evidence
from fixtures.places import ROOT

from reticent.audit.config import DossierConfig
from reticent.audit.evidence.dossier import EVIDENCE_FORMAT, DossierEvidence, ModelUnderTest
from reticent.audit.evidence.json_form import schema_of, to_json
from reticent.audit.texts import Texts
from reticent.core.artifact import JOB, MANIFEST
from reticent.core.errors import ArtifactError, GateError
from reticent.ext.dossier import job as dossier_of_run
from reticent.ext.dossier.export import export_with_card
from reticent.ext.dossier.job import check_dossier, copy_dossier
from reticent.ext.dossier.provenance import code_digest
from reticent.ext.dossier.seal import EVIDENCE, NAMESPACE, SIGNATURE, SUMS, dossier_digest, fingerprint_of_key, seal
from reticent.ext.dossier.stage import DOSSIER, _keep_replaced
from reticent.ext.dossier.verify import Checked, model_digests, read_evidence, verify_dossier, verify_model
from reticent.ext.dossier.write import write_dossier

pytestmark = pytest.mark.usefixtures("without_figures")

CONFIG = DossierConfig(pdf="off")


def new_key(folder: Path, name: str) -> str:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(folder / name)]
    subprocess.run(command, check=True)
    return str(folder / name)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two keys, a list of allowed signers, a model, and a dossier of it signed and one that is not."""
    folder = tmp_path_factory.mktemp("dossiers")
    keys = {name: new_key(folder, name) for name in ("dpo", "other")}
    public = Path(f"{keys['dpo']}.pub").read_text().split()
    (folder / "signers").write_text(f'dpo@hospital namespaces="{NAMESPACE}" {public[0]} {public[1]}\n')
    model = folder / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(b"weights")
    (model / "README.md").write_text("a card of its own")
    evidence = dossier_evidence()
    models = [replace(evidence.models[0], files=model_digests(model)), evidence.models[1]]
    for name, key in (("plain", None), ("signed", keys["dpo"])):
        (folder / name).mkdir()
        signed_by = fingerprint_of_key(key) if key else None
        write_dossier(
            folder / name,
            replace(evidence, models=models, signed_by=signed_by, code=code_digest()),
            CONFIG.replace(key=key),
        )
    return folder


@pytest.fixture
def copy(places: Path, tmp_path: Path) -> Path:
    """The signed dossier, to be changed."""
    return Path(shutil.copytree(places / "signed", tmp_path / "dossier"))


def english_in(checked: Checked) -> list[str]:
    """Sentences of a check that have no French."""
    said = [*checked.holds, *checked.faults, *checked.unchecked, *checked.changed]
    return [line for line in said if Texts("fr").evidence(line) == line]


def test_what_a_check_says_follows_the_language_of_the_first_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for languages in (("fr", "en"), ("en", "fr")):
        folder = tmp_path / languages[0]
        folder.mkdir()
        evidence = replace(dossier_evidence(), code=code_digest())
        write_dossier(folder, evidence, DossierConfig(pdf="off", languages=languages))
        assert verify_dossier(folder).language == languages[0]
    capsys.readouterr()
    assert command("dossier", "verify", tmp_path / "fr") == 4
    said = capsys.readouterr().out
    assert "Le dossier est intact, et personne ne répond de qui l’a fait." in said
    assert "sont conformes à SHA256SUMS" in said
    assert not re.search(r"\b(holds|checked|the|is)\b", said)


def test_an_untouched_dossier_holds_and_says_what_it_did_not_check(places: Path) -> None:
    plain = verify_dossier(places / "plain")
    assert plain.faults == []
    assert (plain.key, plain.signer) == (None, None)
    assert any("signature: there is none" in line for line in plain.unchecked)
    assert any("--model" in line for line in plain.unchecked)
    assert english_in(plain) == []
    signed = verify_dossier(places / "signed", [places / "model"], places / "signers")
    assert (signed.faults, signed.unchecked) == ([], [])
    assert signed.signer == "dpo@hospital"
    assert signed.key == fingerprint_of_key(str(places / "dpo"))
    assert any("clm of gpt2, epoch 16" in line for line in signed.holds)
    assert english_in(signed) == []


def test_tools_that_are_not_ours_check_it_too(places: Path) -> None:
    subprocess.run(["sha256sum", "--quiet", "-c", SUMS], cwd=places / "signed", check=True)


def change_evidence(folder: Path) -> None:
    content = json.loads((folder / "evidence.json").read_text())
    content["audit"]["models"][0]["privacy"]["both"]["num_leaked"] = 0
    (folder / "evidence.json").write_text(json.dumps(content))


def list_again(folder: Path) -> None:
    """The list of digests made anew, as one would who changes a number."""
    signature = (folder / SIGNATURE).read_bytes()
    change_evidence(folder)
    seal(folder, None)
    (folder / SIGNATURE).write_bytes(signature)


def sign_again(folder: Path) -> None:
    (folder / SIGNATURE).unlink()
    seal(folder, new_key(folder.parent, "stolen"))


def without_the_signature(folder: Path) -> None:
    (folder / SIGNATURE).unlink()


def link_out(folder: Path) -> None:
    (folder / "dossier.html").rename(folder.parent / "kept.html")
    (folder / "dossier.html").symlink_to(folder.parent / "kept.html")


def unknown_field(folder: Path) -> None:
    content = json.loads((folder / "evidence.json").read_text())
    content["approved"] = True
    (folder / "evidence.json").write_text(json.dumps(content))


def change_page(folder: Path) -> None:
    page = folder / "dossier.fr.html"
    page.write_text(page.read_text() + " ")


@pytest.mark.parametrize(
    ("tamper", "fault"),
    [
        (change_evidence, "evidence.json: is not the file that was listed"),
        (change_page, "dossier.fr.html: is not the file that was listed"),
        (lambda folder: (folder / "dossier.html").unlink(), "dossier.html: is missing"),
        (lambda folder: (folder / "more.pdf").write_text("x"), "more.pdf: is not in SHA256SUMS"),
        (lambda folder: (folder / "more").mkdir(), "more: an empty folder, which no dossier has"),
        (lambda folder: (folder / MANIFEST).write_text("{}"), "manifest.json: is not in SHA256SUMS; a run keeps it"),
        (link_out, "dossier.html: is not the file that was listed"),
        (list_again, "SHA256SUMS.sig: does not fit SHA256SUMS"),
        (without_the_signature, "SHA256SUMS.sig: is missing; the dossier says it was signed"),
        (sign_again, "SHA256SUMS.sig: is of another key than evidence.json says"),
        (unknown_field, "evidence.json cannot be read: evidence.json: 'approved' is no field, and has no rule"),
        (lambda folder: (folder / "evidence.json").write_text("{"), "evidence.json cannot be read"),
        (lambda folder: (folder / SIGNATURE).write_text("no signature"), "SHA256SUMS.sig: does not fit SHA256SUMS"),
    ],
)
def test_tampering_is_found_and_named(copy: Path, tamper: Callable[[Path], object], fault: str) -> None:
    tamper(copy)
    checked = verify_dossier(copy)
    faults = checked.faults
    assert any(line.startswith(fault) for line in faults), faults
    assert english_in(checked) == []


DIGEST = "0" * 64


@pytest.mark.parametrize("text", ["", "0 evidence.json\n", "nonsense", f"{DIGEST}  evidence.json\n" * 2])
def test_what_has_no_list_of_digests_is_no_dossier(copy: Path, text: str) -> None:
    (copy / SUMS).write_text(text)
    with pytest.raises(ArtifactError, match="not a list of digests"):
        verify_dossier(copy)
    (copy / SUMS).unlink()
    with pytest.raises(ArtifactError, match="no dossier here"):
        verify_dossier(copy)


def test_a_signature_that_is_asked_for_must_be_of_an_allowed_signer(places: Path, copy: Path) -> None:
    assert verify_dossier(places / "plain", signers=places / "signers").faults == [
        "SHA256SUMS.sig: is missing; the dossier is not signed"
    ]
    other = Path(f"{places / 'other'}.pub").read_text().split()
    (copy.parent / "signers").write_text(f"other@hospital {other[0]} {other[1]}\n")
    assert verify_dossier(copy, signers=copy.parent / "signers").faults == [
        "SHA256SUMS.sig: its key is not one of the allowed signers"
    ]


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (None, "no file of allowed signers is there"),
        ('valid-before="20200101" ', "names its key, which is expired there"),
        ('valid-after="20990101" ', "names its key, which is not yet valid there"),
    ],
)
def test_why_nobody_vouches_for_a_key_is_said(places: Path, copy: Path, option: str | None, said: str) -> None:
    signers = copy.parent / "signers"
    if option is not None:
        public = Path(f"{places / 'dpo'}.pub").read_text().split()
        signers.write_text(f"dpo@hospital {option}{public[0]} {public[1]}\n")
    (fault,) = verify_dossier(copy, signers=signers).faults
    assert said in fault


def test_a_page_that_says_something_else_than_the_evidence_is_found(places: Path, tmp_path: Path) -> None:
    for language, page in (("en", "dossier.html"), ("fr", "dossier.fr.html")):
        folder = Path(shutil.copytree(places / "plain", tmp_path / language))
        assert "dossier.fr.html, dossier.html: as evidence.json gives them" in verify_dossier(folder).holds
        (folder / page).write_text((folder / page).read_text().replace("</html>", "<!-- within --></html>"))
        seal(folder, None)  # as who forges a dossier does
        assert "dossier.fr.html, dossier.html: not the pages that evidence.json gives" in verify_dossier(folder).faults
        (folder / "evidence.json").write_text((folder / "evidence.json").read_text().replace(code_digest(), "0" * 64))
        seal(folder, None)
        checked = verify_dossier(folder)
        assert not checked.faults
        assert any("of another version, so not compared" in line for line in checked.unchecked)


@pytest.mark.parametrize(
    ("name", "signers", "status"), [("plain", False, 4), ("signed", False, 4), ("signed", True, 0)]
)
def test_a_dossier_that_nobody_vouches_for_has_a_status_of_its_own(
    places: Path, name: str, signers: bool, status: int
) -> None:
    more = ("--signers", places / "signers") if signers else ()
    assert command("dossier", "verify", places / name, *more) == status


def test_a_signature_made_for_something_else_does_not_hold(places: Path, copy: Path) -> None:
    (copy / SIGNATURE).unlink()
    command = ["ssh-keygen", "-q", "-Y", "sign", "-f", str(places / "dpo"), "-n", "file", str(copy / SUMS)]
    subprocess.run(command, check=True, capture_output=True)
    assert verify_dossier(copy).faults == ["SHA256SUMS.sig: does not fit SHA256SUMS"]


@pytest.mark.parametrize(
    "tamper",
    [
        lambda model: (model / "model.safetensors").write_bytes(b"weightz"),
        lambda model: (model / "config.json").unlink(),
        lambda model: (model / "adapter.py").write_text("import os"),
        lambda model: shutil.rmtree(model),
    ],
)
def test_model_files_that_were_not_tested_are_found(
    places: Path, tmp_path: Path, tamper: Callable[[Path], object]
) -> None:
    model = Path(shutil.copytree(places / "model", tmp_path / "model"))
    assert verify_model(read_evidence(places / "signed"), model) is not None
    tamper(model)
    assert verify_dossier(places / "signed", [model]).faults == [f"{model}: no model of this dossier has these files"]


def test_the_card_of_a_model_may_differ(places: Path, tmp_path: Path) -> None:
    model = Path(shutil.copytree(places / "model", tmp_path / "model"))
    (model / "README.md").write_text("the card of the exported model")
    assert verify_dossier(places / "signed", [model]).faults == []


def test_equal_evidence_gives_equal_bytes_and_one_digest(places: Path, tmp_path: Path) -> None:
    write_dossier(tmp_path, read_evidence(places / "plain"), CONFIG)
    assert dossier_digest(tmp_path) == dossier_digest(places / "plain")
    for file in (places / "plain").iterdir():
        assert (tmp_path / file.name).read_bytes() == file.read_bytes()


def test_evidence_of_another_format_is_refused(copy: Path) -> None:
    content = {**to_json(read_evidence(copy)), "format": "reticent.evidence/0"}
    (copy / "evidence.json").write_text(json.dumps(content))
    with pytest.raises(ArtifactError, match=r"not evidence of the format reticent\.evidence/1"):
        read_evidence(copy)


def test_an_audit_that_is_not_published_makes_no_dossier(tmp_path: Path) -> None:
    evidence = dossier_evidence()
    with pytest.raises(ArtifactError, match="published evidence alone"):
        write_dossier(tmp_path, replace(evidence, audit=replace(evidence.audit, small_cell=None)), CONFIG)
    assert not list(tmp_path.iterdir())


def test_a_key_that_cannot_be_used_is_an_error_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="ssh-keygen: "):
        fingerprint_of_key(str(tmp_path / "none"))


def test_the_published_schema_is_that_of_the_classes() -> None:
    """A change of the evidence is a change of its format: raise it, and publish its schema beside the old one."""
    version = EVIDENCE_FORMAT.rpartition("/")[2]
    published = json.loads((ROOT / "docs" / "reference" / f"evidence-{version}.schema.json").read_text())
    assert published == schema_of(DossierEvidence, EVIDENCE_FORMAT)
    fields = published["$defs"]["DossierEvidence"]
    assert fields["additionalProperties"] is False
    assert {"audit", "digests", "models", "code", "versions", "command"} <= set(fields["required"])


def test_a_dossier_that_is_replaced_is_kept_whole_even_if_its_first_copy_was_cut_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "dossier"
    old.mkdir()
    (old / "evidence.json").write_text("{}")
    (old / "SHA256SUMS").write_text("list")
    run: Any = SimpleNamespace(folder=tmp_path)

    def cut_short(source: Path, target: Path) -> None:
        target.mkdir()
        (target / "evidence.json").write_text("{}")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copytree", cut_short)
        with pytest.raises(KeyboardInterrupt):
            _keep_replaced(run)
    digest = _keep_replaced(run)
    assert digest == dossier_digest(tmp_path / "replaced-dossiers" / str(digest)[:16])


def test_a_checkpoint_of_the_run_that_was_not_tested_is_no_fault_and_one_that_was_must_be_as_tested(
    places: Path, tmp_path: Path
) -> None:
    shutil.copytree(places / "plain", tmp_path / DOSSIER)
    (tmp_path / JOB).write_text("{}")
    last, earlier = (tmp_path / "models" / "gpt2" / "clm" / f"epoch-{epoch:04d}" for epoch in (16, 8))
    for folder in (last, earlier):
        shutil.copytree(places / "model", folder)
    (earlier / "model.safetensors").write_bytes(b"half trained")
    checked = check_dossier(tmp_path / DOSSIER)
    assert checked.faults == []
    assert [line for line in checked.unchecked if "models/" in line] == ["models/gpt2/clm/epoch-0008: was not tested"]
    (last / "model.safetensors").write_bytes(b"others")
    assert check_dossier(tmp_path / DOSSIER).faults == [f"{last}: not the files of the model tested there"]


@pytest.mark.parametrize(
    ("place", "is_there"),
    [("clm/seed-7", True), ("clm/seed-8", False), ("ppclm/seed-7", False)],
)
def test_a_tested_model_in_the_folder_of_another_is_found(
    places: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, is_there: bool
) -> None:
    tested, evidence = tmp_path / "models" / "gpt2" / place / "epoch-0016", read_evidence(places / "plain")
    shutil.copytree(places / "model", tested)
    own, other = model_digests(tested), {"model.safetensors": "d" * 64}
    models = [
        replace(evidence.models[0], recipe=recipe, training=training, files=files)
        for recipe, training, files in (("clm", 1, own), ("clm", 2, other), ("ppclm", 1, other), ("ppclm", 2, own))
    ]
    (tmp_path / DOSSIER).mkdir()
    write_dossier(tmp_path / DOSSIER, replace(evidence, models=models), CONFIG)
    (tmp_path / JOB).write_text("{}")
    job = SimpleNamespace(model=[SimpleNamespace(name="gpt2")], training=lambda _: SimpleNamespace(seeds=[7, 8]))
    monkeypatch.setattr(dossier_of_run, "load_kept_job", lambda _: job)
    faults = [] if is_there else [f"{tested}: not the files of the model tested there"]
    assert check_dossier(tmp_path / DOSSIER).faults == faults


def test_a_model_does_not_leave_by_a_dossier_that_was_changed(places: Path, tmp_path: Path) -> None:
    shutil.copytree(places / "plain", tmp_path / DOSSIER)
    section = SimpleNamespace(name="gpt2", recipes=("clm",), base=None, foundation=None)
    job = SimpleNamespace(model=[section], training=lambda _: SimpleNamespace(seeds=None))
    run: Any = SimpleNamespace(folder=tmp_path, job=job, checkpoints=lambda *_: {16: places / "model"})
    with pytest.raises(GateError, match="the verdict is 'beyond'"):
        export_with_card(run, "gpt2", "clm", tmp_path / "out")
    section.foundation = SimpleNamespace(text="reference")
    with pytest.raises(GateError, match="its base was pre-trained on the documents of the reference individuals"):
        export_with_card(run, "gpt2", "clm", tmp_path / "out")
    export_with_card(run, "gpt2", "clm", tmp_path / "despite", despite="the ward agreed")
    card = (tmp_path / "despite" / "README.md").read_text()
    assert "in the same run on the documents of the reference individuals, without protection" in card
    assert "base_model" not in card
    section.foundation = None
    evidence = tmp_path / DOSSIER / EVIDENCE
    evidence.write_text(evidence.read_text().replace('"outcome": "beyond"', '"outcome": "within"'))
    with pytest.raises(ArtifactError, match=r"evidence.json: is not the file that was listed"):
        export_with_card(run, "gpt2", "clm", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("more", "is_tested"),
    [("training_args.bin", True), ("notes.txt", True), ("pytorch_model.bin", False), ("adapter_config.json", False)],
)
def test_other_weights_beside_those_handed_over_are_not_the_tested_model(
    tmp_path: Path, more: str, is_tested: bool
) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    given = model_digests(tmp_path)
    model = filled(ModelUnderTest, {"recipe": "given", "files": {}, "given": given})
    (tmp_path / more).write_bytes(b"more")
    assert (verify_model(SimpleNamespace(models=[model]), tmp_path) is model) == is_tested  # type: ignore[arg-type]


def test_a_copy_of_a_dossier_has_the_files_for_a_secure_environment_too(places: Path, tmp_path: Path) -> None:
    (tmp_path / JOB).write_text("{}")
    folder = tmp_path / "dossier"
    shutil.copytree(places / "signed", folder)
    (folder / "secure-environment").mkdir()
    (folder / "secure-environment" / "form.json").write_text("{}")
    seal(folder, None)
    copy_dossier(folder, tmp_path / "copy")
    copied = {path.relative_to(tmp_path / "copy").as_posix() for path in (tmp_path / "copy").rglob("*.*")}
    assert copied == {path.relative_to(folder).as_posix() for path in folder.rglob("*.*")}
