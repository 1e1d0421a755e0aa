"""Two releases of a model: by hand, on models that were trained with and without some people, and in a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fixtures.scores import scores_of
from fixtures.stores import make_store
from transformers import GPT2Config, GPT2LMHeadModel

from reticent.audit.judgement.rows import RISKS, Subject
from reticent.audit.membership.releases import withdrawn_attack
from reticent.audit.scoring.scores import score_models
from reticent.core.errors import PolicyError
from reticent.core.progress import Progress
from reticent.engine.schema import HELDOUT
from reticent.engine.synthetic import SynthConfig, synthesize
from reticent.job.checks import require_audit
from reticent.job.config import parse_job
from reticent.job.pipeline import execute
from reticent.job.run import Run
from reticent.job.update import update_run
from reticent.trainer.windows import SpecialIds

pytestmark = pytest.mark.usefixtures("one_thread", "without_figures")

SPECIAL = SpecialIds(prefix=1, suffix=None, pad=0, mask=None)
PEOPLE, LENGTH, VOCABULARY = 48, 16, 120
#: Every fourth withdrew, every second was a member before.
LEFT, MEMBERS = np.arange(PEOPLE) % 4 == 0, np.arange(PEOPLE) % 2 == 0
OPTIONS: Any = {"num_bootstrap": 200, "seed": 0}


def test_the_score_is_the_loss_that_came_back_and_individuals_are_means() -> None:
    before = scores_of([-1.0, -3.0], [-2.0], [-2.0], [-1.5])
    after = scores_of([-2.0, -6.0], [-1.0], [-2.0], [-1.0])
    # Documents: 2, -1, 0, -0.5. The first two are one person's, 0.5, who is above the two others.
    found = withdrawn_attack(before, after, np.array([7, 7, 8, 9]), np.array([True, True, False, False]), **OPTIONS)
    assert (found.auc.value, found.num_members, found.num_nonmembers) == (1.0, 1, 2)
    assert found.told is not None
    assert found.told.num_above == 1
    assert found.told.p_value == pytest.approx(1 / 3)
    other = withdrawn_attack(after, before, np.array([7, 7, 8, 9]), np.array([True, True, False, False]), **OPTIONS)
    assert other.auc.value == 0.0
    copied = np.isin(np.arange(10), [7, 9])  # 9 holds copies, 7 left
    after = scores_of([-2.0, -6.0], [-1.0], [-2.0], [-4.0])
    found = withdrawn_attack(before, after, np.array([7, 7, 8, 9]), np.array([True, True, False, False]), copied,
                             **OPTIONS)  # fmt: skip
    assert (found.auc.value, found.num_members, found.num_nonmembers) == (1.0, 1, 1)


def trained(base: Any, ids: np.ndarray) -> Any:
    model = GPT2LMHeadModel(base.config)
    model.load_state_dict(base.state_dict())
    batch = torch.from_numpy(np.concatenate([np.ones((len(ids), 1), dtype=np.int64), ids], axis=1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(40):
        optimizer.zero_grad()
        model(input_ids=batch, labels=batch).loss.backward()
        optimizer.step()
    return model


def test_who_left_is_told_and_nobody_by_a_release_that_never_knew_them() -> None:
    torch.manual_seed(0)
    base = GPT2LMHeadModel(
        GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=1, n_head=2, n_positions=32, bos_token_id=1,
                   eos_token_id=1, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    )  # fmt: skip
    ids = np.random.default_rng(0).integers(4, VOCABULARY, (PEOPLE, LENGTH))
    store = make_store(*[[(int(i), n, 0) for n, i in enumerate(row)] for row in ids])
    before = trained(base, ids[MEMBERS])
    after = trained(base, ids[MEMBERS & ~LEFT])
    without = trained(base, ids[MEMBERS & ~LEFT][1:])  # one that never knew those who left, and differs all the same
    asked = np.flatnonzero(LEFT | ~MEMBERS)
    areas = []
    for old in (before, without):
        scores = score_models([old, after], "clm", store.select(asked), SPECIAL, device="cpu")
        areas.append(withdrawn_attack(*scores, asked.astype(np.uint32), LEFT[asked], **OPTIONS).auc)
    assert areas[0].low > 0.7
    assert areas[1].low <= 0.5 <= areas[1].high


# ------------------------------------------------------------------------------------------------------------- in a job


@pytest.fixture(scope="module")
def tuesday(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run after a withdrawal, which names the run before; both trained long on little."""
    folder = tmp_path_factory.mktemp("releases")
    (folder / "hospital").mkdir()
    synthesize(folder / "hospital", SynthConfig(num_individuals=60, words_per_document=20, public_documents=20,
                                                documents_per_individual=1.0, languages=("en",)))  # fmt: skip
    foundation = {"kind": "gpt2", "text": str(folder / "hospital/public"), "vocab_size": 400, "num_layers": 1,
                  "hidden_size": 32, "num_heads": 2, "num_epochs": 1}  # fmt: skip
    values = {
        "out": str(folder / "monday"),
        "corpus": {"source": str(folder / "hospital/documents"), "spans": "spans"},
        "split": {"heldout": 0.5},
        "index": {"updatable": True},
        "detect": {"detectors": ["gold"]},
        "model": [{"name": "m", "objective": "clm", "recipes": ["clm"], "foundation": foundation}],
        "train": {
            "num_epochs": 30,
            "learning_rate": 0.01,
            "window_length": 64,
            "checkpoint_epochs": [30],
            "warmup_steps": 0,
            "batch_size": 8,
        },
        "audit": {"num_bootstrap": 100, "attacks": ["loss"]},
    }
    monday = Run(parse_job(values))
    execute(monday, "train")
    ids = monday.individuals.table.filter(~np.asarray(monday.individuals.mask(HELDOUT)))["individual_id"].to_pylist()
    (folder / "gone.txt").write_text("".join(f"{each}\n" for each in ids[:12]))
    update_run(monday, folder / "tuesday", [], [folder / "gone.txt"], Progress(quiet=True))
    values |= {"out": str(folder / "tuesday"), "audit": {**values["audit"], "earlier": str(folder / "monday")}}  # type: ignore[dict-item]
    values["corpus"] |= {"withdrawn": [str(folder / "gone.txt")]}  # type: ignore[operator]
    run = Run(parse_job(values))
    execute(run)
    return run


@pytest.mark.slow
def test_a_run_says_how_surely_two_releases_tell_who_left(tuesday: Run) -> None:
    model = next(model for model in tuesday.evidence.models if model.recipe == "clm")
    assert model.withdrawn is not None
    assert (model.withdrawn.num_members, model.withdrawn.auc.value) == (12, pytest.approx(1.0, abs=0.15))
    assert model.withdrawn.auc.low > 0.5
    numbers = {n.what: n.estimate for n in RISKS["individual"].numbers(Subject(model, None)) if n.estimate}
    assert numbers["who withdrew since the release before, attack two_releases"].low > 0.5
    assert "Two releases" in (tuesday.folder / "report/report.html").read_text()
    assert str(tuesday.job.audit.earlier) not in (tuesday.folder / "report/report.json").read_text()
    base = next(model for model in tuesday.evidence.models if model.recipe == "base")
    assert base.withdrawn is None


def test_a_release_before_that_is_not_there_is_refused_at_once(tmp_path: Path) -> None:
    values = {"out": str(tmp_path / "run"), "corpus": {"source": str(tmp_path)}, "audit": {"earlier": str(tmp_path)}}
    with pytest.raises(PolicyError, match=r"audit\.earlier: .* is no run folder"):
        require_audit(Run(parse_job(values)))
