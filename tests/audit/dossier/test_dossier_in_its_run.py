"""A dossier in its run folder: its outcomes and models are those of the run's own audit, and nothing that an earlier
audit found is dropped by the next one. The run is the old one, made up to date.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from fixtures.command import command
from fixtures.jobs import unpack_old_run

from reticent.audit.config import DossierConfig
from reticent.audit.evidence.audit import AuditEvidence
from reticent.audit.evidence.json_form import from_json
from reticent.audit.judgement.verdict import ARITHMETIC, STANDS
from reticent.cli.dossier import UNVOUCHED
from reticent.core.artifact import MANIFEST
from reticent.core.errors import ArtifactError, GateError
from reticent.ext.dossier.export import export_with_card
from reticent.ext.dossier.job import check_dossier
from reticent.ext.dossier.page import page_name, render
from reticent.ext.dossier.seal import EVIDENCE, SIGNATURE, seal
from reticent.ext.dossier.verify import read_evidence
from reticent.job.config import load_kept_job, parse_job
from reticent.job.outcomes import OUTCOMES
from reticent.job.pipeline import execute
from reticent.job.run import Run

pytestmark = pytest.mark.usefixtures("one_thread", "without_figures")


def job_of(run: Path, **changes: Any) -> Run:
    values = load_kept_job(run / "job.json").model_dump(mode="json")
    for name, value in changes.items():
        values["audit"][name] = value
    return Run(parse_job(values))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The old run, and beside it the same once today's version has audited it."""
    folder = unpack_old_run(tmp_path_factory.mktemp("runs"))
    shutil.copytree(folder / "monday", folder / "old")
    execute(job_of(folder / "monday"))
    return folder


@pytest.fixture(params=["monday", "old"])
def run(made: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return Path(shutil.copytree(made / request.param, tmp_path / request.param))


def change(run: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Change the evidence of a dossier, write its pages from that and seal it again, without a signature."""
    file = run / "dossier" / EVIDENCE
    content = json.loads(file.read_text())
    edit(content)
    content["signed_by"] = None
    file.write_text(json.dumps(content))
    evidence = read_evidence(run / "dossier")
    for language in DossierConfig().languages:
        name = page_name(language, DossierConfig().languages, "html")
        (run / "dossier" / name).write_text(render(evidence, language, DossierConfig().languages))
    (run / "dossier" / SIGNATURE).unlink(missing_ok=True)
    seal(run / "dossier", None)


def let_it_pass(content: dict[str, Any]) -> None:
    row = next(row for row in content["audit"]["risks"]["rows"] if row["recipe"] == "ppmlm")
    for each in (row, *row["results"]):
        each["outcome"] = "within"


def lend(content: dict[str, Any]) -> None:
    """The verdict of a protected model for the files of the plain one."""
    plain, protected = (
        next(one for one in content["models"] if (one["recipe"], one["epoch"]) == (recipe, 2))
        for recipe in ("clm", "ppclm-surrogate")
    )
    plain["files"], protected["files"] = protected["files"], plain["files"]


def nicer_number(content: dict[str, Any]) -> None:
    content["audit"]["models"][0]["privacy"]["both"]["num_identifiers"] = 1000


def test_an_untouched_dossier_says_what_the_audit_of_its_run_says(run: Path) -> None:
    checked = check_dossier(run / "dossier")
    assert checked.faults == []
    assert "every outcome is that of the audit of the run" in checked.holds


def test_an_edited_verdict_is_found_and_no_model_leaves_by_it(run: Path, tmp_path: Path) -> None:
    change(run, let_it_pass)
    faults = check_dossier(run / "dossier").faults
    said = "ppmlm of bert, the verdict: 'within' here, 'not shown' by the audit of the run"
    assert [line for line in faults if said in line], faults
    with pytest.raises(ArtifactError, match="ppmlm of bert, the verdict: 'within' here"):
        export_with_card(job_of(run), "bert", "ppmlm", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_outcome_that_the_rules_of_today_change_is_named(
    made: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(made / "old", tmp_path / "old"))
    change(run, let_it_pass)
    report = json.loads((run / "report" / "report.json").read_text())
    let_it_pass({"audit": report})
    (run / "report" / "report.json").write_text(json.dumps(report))
    assert command("dossier", "verify", run / "dossier") == UNVOUCHED, "it says what the report of its version said"
    said = "CHANGED since: ppmlm of bert, membership of the person: 'within' here, 'not shown' by the audit of the run"
    assert said in capfd.readouterr().out
    with pytest.raises(ArtifactError, match="make it again with `reticent dossier`"):
        export_with_card(job_of(run), "bert", "ppmlm", tmp_path / "out")


def test_a_verdict_cannot_be_lent_and_a_number_cannot_be_edited(made: Path, tmp_path: Path) -> None:
    for name, edit, fault in (
        ("lent", lend, "models/gpt2/clm/epoch-0002: not the files of the model tested there"),
        ("without its models", lend, "clm of gpt2, epoch 2: other files were measured"),
        ("edited", nicer_number, "its numbers are not those of the run's audit"),
    ):
        run = Path(shutil.copytree(made / "monday", tmp_path / name))
        for checkpoint in run.glob("models/*/*/epoch-*") if name == "without its models" else ():
            shutil.rmtree(checkpoint)
        change(run, edit)
        faults = check_dossier(run / "dossier").faults
        assert [line for line in faults if fault in line], faults


def test_counts_of_a_training_that_were_edited_in_its_manifest_are_found(made: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(made / "monday", tmp_path / "run"))
    file = run / "models" / "bert" / "ppmlm" / MANIFEST
    content = json.loads(file.read_text())
    content["counts"]["protected"] += 1
    content.pop("sha256", None)  # as an earlier version would have written it
    file.write_text(json.dumps(content))
    faults = check_dossier(run / "dossier").faults
    assert [line for line in faults if line.startswith("models, tokens: counts in the manifests")], faults


def test_a_model_that_is_not_shown_leaves_with_a_reason_alone(made: Path, tmp_path: Path) -> None:
    run = job_of(Path(shutil.copytree(made / "monday", tmp_path / "run")))
    for reason in ("", "  "):
        with pytest.raises(GateError, match="the verdict is 'not shown'"):
            export_with_card(run, "bert", "ppmlm", tmp_path / "out", despite=reason)
    export_with_card(run, "bert", "ppmlm", tmp_path / "out", despite="the board agreed")
    assert "The reason that was given:** the board agreed" in (tmp_path / "out" / "README.md").read_text()


def test_what_is_exported_goes_to_the_hub_and_nothing_else(
    made: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, hub, reason = Path(shutil.copytree(made / "monday", tmp_path / "run")), Mock(), ("--despite-verdict", "agreed")
    monkeypatch.setattr("huggingface_hub.HfApi", Mock(return_value=hub))

    def push(out: str, *options: str) -> tuple[int, str]:
        given = ("dossier", "export", run, "bert", "ppmlm", "--push-to-hub", "ours/ppmlm", "--out", tmp_path / out)
        return command(*given, *options), capfd.readouterr().err

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    status, said = push("x", *reason)
    assert (status, "HF_HUB_OFFLINE=0" in said) == (2, True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    assert push("x")[0] == 3
    assert not (tmp_path / "x").exists()
    assert hub.mock_calls == []
    assert push("sent", *reason)[0] == 0
    hub.create_repo.assert_called_once_with("ours/ppmlm", private=True, exist_ok=True)
    (upload,) = hub.upload_folder.call_args_list
    assert (upload.kwargs["repo_id"], upload.kwargs["folder_path"]) == ("ours/ppmlm", tmp_path / "sent")
    head = (tmp_path / "sent" / "README.md").read_text().split("---")[1]
    assert "pipeline_tag: fill-mask" in head
    assert "model-index" in head
    for error in (OSError, RuntimeError):  # httpx, which cannot connect, and the upload of large files raise no OSError
        hub.upload_folder.side_effect = error("https://token@hub")
        status, said = push(error.__name__, *reason)
        assert (status, f"the hub did not take it ({error.__name__})" in said, "token" in said) == (1, True, False)
        assert (tmp_path / error.__name__ / "README.md").is_file()


def notes_of(run: Path, recipe: str) -> list[str]:
    """What the report says of earlier audits of a model."""
    audit = from_json(AuditEvidence, json.loads((run / "report" / "report.json").read_text()))
    assert audit.risks
    row = next(row for row in audit.risks.rows if row.recipe == recipe)
    return [note for note in row.notes or [] if "earlier audit" in note]


def test_attacks_that_are_left_out_after_their_results_stay_in_the_report(made: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(made / "monday", tmp_path / "run"))
    kept = json.loads((run / OUTCOMES).read_text())["outcomes"]
    assert {row["arithmetic"] for row in kept} == {1, ARITHMETIC}, "those of the audit that was there before too"
    (mine,) = (r for r in kept if (r["recipe"], r["risk"], r["arithmetic"]) == ("ppmlm", "individual", ARITHMETIC))
    assert {"lira_online", "rmia", "loss"} <= set(mine["numbers"])
    mine["outcome"] = "beyond"  # as it would be of a model that leaks
    (run / OUTCOMES).write_text(json.dumps({"outcomes": [mine]}))
    why = {"model": "bert", "recipe": "ppmlm", "risk": "individual", "created": mine["created"], "why": "a false alarm"}
    less: dict[str, Any] = {"shadow": None, "attacks": ["zlib"]}
    for changes, answer in (
        ({"explained": [why]}, "explained: a false alarm"),
        ({"explained": [why], **less}, STANDS),
        (less, STANDS),
    ):
        execute(job_of(run, **{"explained": [], **changes}))
        (note,) = notes_of(run, "ppmlm")
        assert f"({mine['created']}, Reticent {mine['version']}) found membership of the person: beyond" in note
        assert note.endswith(answer)
        assert "An earlier audit of these files" in (run / "dossier" / "dossier.html").read_text()
