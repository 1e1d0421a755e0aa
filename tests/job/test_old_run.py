"""A run, its update and its signed dossier as commit 5750ba4a wrote them: they open, nothing is trained anew, and the
dossier holds.

``old-run.tar.xz`` was made by a script that the history keeps (``tools/make_old_run.py``), in another folder than it
is unpacked in here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from fixtures.command import command
from fixtures.jobs import Recorder, unpack_old_run
from safetensors.numpy import load_file

import reticent
from reticent.audit.evidence.audit import AuditEvidence
from reticent.audit.evidence.json_form import from_json
from reticent.core.artifact import read_manifest, verify
from reticent.core.errors import ArtifactError
from reticent.engine.split import open_individuals
from reticent.ext.dossier.job import check_dossier
from reticent.ext.dossier.seal import dossier_digest
from reticent.ext.dossier.verify import read_evidence
from reticent.job.config import load_kept_job
from reticent.job.pipeline import execute
from reticent.job.run import Run
from reticent.job.status import job_status
from reticent.trainer.verify import read_ledger

pytestmark = pytest.mark.usefixtures("one_thread", "without_figures")

PATCHES = "rewritten text was kept as patches of its original, a format that is gone"
TOKENS = (
    "its manifest names the tokens of the rewritten text, which are other files; the ledger is the same bytes, the "
    "weights differ by what another processor rounds otherwise"
)
MEASURED = "its rates were not yet given over what one side alone uses, and it did not count the members who are told"
#: Models that were measured, and asked for passages: both base models, and the last checkpoint of each training.
MEASURES = ("bert/base/epoch-0000", "gpt2/base/epoch-0000", *(f"{name}/epoch-0002" for name in (
    "bert/ppmlm", "bert/wider", "gpt2/clm", "gpt2/clma", "gpt2/ppclm-surrogate", "gpt2/tagged",
)))  # fmt: skip
#: Results of the old run that today's code makes again, and why.
MADE_AGAIN = {
    **{f"{kind}/{name}": MEASURED for kind in ("measures", "extraction") for name in MEASURES},
    "tokens/gpt2/train-pseudonymised": PATCHES,
    "tokens/gpt2/train-tag": PATCHES,
    "tuesday/tokens/gpt2/train-pseudonymised": PATCHES,
    "tuesday/tokens/gpt2/train-tag": PATCHES,
    "models/gpt2/tagged": TOKENS,
    "near-copies": "equal texts without a word counted as copies",
    "audit": "it names that training",
    "report": "it is made of the audit",
    "dossier": "it is made of the report",
}
#: Trainings on tokens that are made again: their ledgers can be drawn again once these are there.
ON_PATCHES = {"gpt2/clma", "gpt2/tagged"}

TRAININGS = ("bert/ppmlm", "bert/wider", "gpt2/clm", "gpt2/clma", "gpt2/ppclm-surrogate", "gpt2/tagged")
VIEWS = (
    *("bert/train", "bert/train-k3-n1-all", "bert/audit", "gpt2/train", "gpt2/train-pseudonymised", "gpt2/train-tag"),
    "gpt2/audit",
)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the run ``monday``, its update ``tuesday``, the hospital and the keys; nothing writes there."""
    return unpack_old_run(tmp_path_factory.mktemp("old"))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return unpack_old_run(tmp_path)


def run_again(folder: Path, until: str = "report") -> Recorder:
    recorder = Recorder()
    execute(Run(load_kept_job(folder / "job.json"), recorder), until)
    return recorder


def state_of(folder: Path) -> dict[str, tuple[str, int, int]]:
    """Digest, inode and time of every file of models, shadows and base models."""
    files = [path for kind in ("models", "shadows", "foundation") for path in (folder / kind).rglob("*")]
    return {
        path.relative_to(folder).as_posix(): (
            hashlib.sha256(path.read_bytes()).hexdigest(),
            path.stat().st_ino,
            path.stat().st_mtime_ns,
        )
        for path in files
        if path.is_file() and not path.name.startswith(".")
    }


def test_every_artefact_is_as_it_was_written(old: Path) -> None:
    found = [path.parent for path in old.glob("*day/**/manifest.json")]
    assert len(found) > 60
    for folder in found:
        verify(folder, read_manifest(folder))


@pytest.mark.parametrize("day", ["monday", "tuesday"])
def test_public_readers_open_indexes_split_spans_and_tokens(old: Path, day: str) -> None:
    run = old / day
    for name in ("index", "index-joint"):
        assert reticent.open_index(run / name).max_n == 2
    individuals = open_individuals(run / "split")
    assert set(individuals.table["split"].to_pylist()) == {"members", "heldout"}
    assert pq.read_table(run / "spans/spans.parquet").num_rows > 150
    for name in VIEWS:
        if f"tokens/{name}" in MADE_AGAIN:
            with pytest.raises(ArtifactError, match=r"run protect again$"):
                reticent.open_tokens(run / "tokens" / name)
            continue
        store = reticent.open_tokens(run / "tokens" / name)
        assert store.num_documents > 10
        assert len(store.input_ids) == len(store.word_ids) == len(store.flags) == store.num_tokens
        assert store.has_flag(3) == (name != "gpt2/train-pseudonymised" or store.has_flag(2))


def test_checkpoints_and_base_models_load(old: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

    for name in TRAININGS:
        ledger = read_ledger(old / "monday/models" / name / "ledger.json")
        assert ledger["violations"] == 0
        assert len(ledger["epochs"]) == 2
    folders = (*old.glob("monday/models/*/*/epoch-*"), *old.glob("monday/foundation/*/model"))
    assert len(folders) == len(TRAININGS) + 2
    for folder in folders:
        kind = AutoModelForMaskedLM if "bert" in folder.parts else AutoModelForCausalLM
        model = kind.from_pretrained(folder, local_files_only=True)
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        assert model.config.vocab_size >= len(tokenizer) > 200


def test_evidence_of_the_report_and_of_the_dossier_can_be_read(old: Path) -> None:
    report = json.loads((old / "monday/report/report.json").read_text())
    audit = from_json(AuditEvidence, report, "report")
    recipes = {(model.model, model.recipe) for model in audit.models}
    assert recipes == {("gpt2", "base"), ("bert", "base"), *(tuple(name.split("/")) for name in TRAININGS)}
    evidence = read_evidence(old / "monday/dossier")
    assert {f"{model.model}/{model.recipe}" for model in evidence.models} == set(TRAININGS)
    assert evidence.signed_by is not None


def test_a_run_makes_nothing_anew(copy: Path) -> None:
    before = state_of(copy / "monday")
    assert len(before) > 40
    checkpoint = copy / "monday/models/gpt2/tagged/epoch-0002/model.safetensors"
    weights = load_file(checkpoint)
    found = run_again(copy / "monday")
    assert set(found.made) == {name for name in MADE_AGAIN if not name.startswith("tuesday/")}
    models = {f"models/{name}" for name in TRAININGS}
    assert {*models, "audit", "report", "dossier"} <= {*found.up_to_date, *MADE_AGAIN}
    after, anew = state_of(copy / "monday"), "models/gpt2/tagged/"
    ledger = f"{anew}ledger.json"
    assert after[ledger][0] == before[ledger][0]
    trained = load_file(checkpoint)
    assert trained.keys() == weights.keys()
    for name, tensor in weights.items():  # in training they moved by up to 2e-2
        np.testing.assert_allclose(trained[name], tensor, rtol=0, atol=2e-5)
    assert {name: of for name, of in after.items() if not name.startswith(anew)} == {
        name: of for name, of in before.items() if not name.startswith(anew)
    }
    assert run_again(copy / "monday").made == []


def test_a_run_of_the_update_makes_nothing_anew(copy: Path) -> None:
    found = run_again(copy / "tuesday", "protect")
    of_tuesday = {name.removeprefix("tuesday/") for name in MADE_AGAIN if name.startswith("tuesday/")}
    assert set(found.made) == of_tuesday
    assert {"index", "index-joint", "split", "spans"} <= {*found.up_to_date, *of_tuesday}


def test_status_says_that_nothing_is_left(old: Path) -> None:
    artifacts = job_status(Run(load_kept_job(old / "monday/job.json")))["artifacts"]
    left = {one["name"] for one in artifacts if one["state"] != "done"}
    assert {name for name in MADE_AGAIN if not name.startswith("tuesday/")} <= left
    own = {name.removeprefix("models/") for name in left if name.startswith("models/")}
    assert own <= ON_PATCHES  # of the tokens that are not there, nothing is known before they are made
    assert not any(name.startswith(("shadows/", "foundation/")) for name in left)


@pytest.mark.parametrize("name", TRAININGS)
def test_every_target_is_drawn_again_as_the_ledger_says(copy: Path, name: str) -> None:
    if name in ON_PATCHES:
        run_again(copy / "monday", "train")
    assert command("train", "--verify", copy / "monday/models" / name / "ledger.json", "--quiet") == 0


def test_the_signed_dossier_holds(old: Path) -> None:
    checked = check_dossier(old / "monday/dossier", signers=old / "keys/signers")
    pages = "dossier.fr.html, dossier.html: of another version, so not compared with evidence.json"
    assert (checked.faults, checked.unchecked) == ([], [pages])
    assert checked.signer == "institution"
    assert sum("as tested" in line for line in checked.holds) == len(TRAININGS)
    assert any("are those of the run" in line for line in checked.holds)
    arguments = ("dossier", "verify", old / "monday/dossier", "--signers", old / "keys/signers")
    assert command(*arguments) == 0


def test_the_dossier_that_the_signed_one_replaced_holds_too(old: Path) -> None:
    (replaced,) = old.glob("monday/replaced-dossiers/*")
    assert check_dossier(replaced).faults == []
    assert read_evidence(old / "monday/dossier").replaces == dossier_digest(replaced)


def change_weights(old: Path) -> None:
    path = old / "monday/models/gpt2/clm/epoch-0002/model.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def change_page(old: Path) -> None:
    page = old / "monday/dossier/dossier.html"
    page.write_text(page.read_text() + " ")


@pytest.mark.parametrize("change", [change_weights, change_page])
def test_the_dossier_holds_no_more_once_something_was_changed(copy: Path, change: Callable[[Path], None]) -> None:
    change(copy)
    assert command("dossier", "verify", copy / "monday/dossier", "--signers", copy / "keys/signers") == 1


def test_the_old_run_can_be_updated_again_to_what_it_was(copy: Path) -> None:
    hospital = copy / "hospital"
    more = ("--add", hospital / "later", "--remove", hospital / "gone.txt")
    assert command("update", copy / "monday", *more, "--out", copy / "again", "--quiet") == 0
    for name in ("split", "spans", "index", "index-joint"):
        assert read_manifest(copy / "again" / name).digest == read_manifest(copy / "tuesday" / name).digest
