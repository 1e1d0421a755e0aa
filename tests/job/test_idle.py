"""Settings of a job that nothing looks at are refused before anything starts, and defaults never are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fixtures.command import command

from reticent.core.errors import PolicyError, ReticentError
from reticent.core.progress import Progress
from reticent.job.checks import refuse_ineffective
from reticent.job.config import parse_job
from reticent.job.pipeline import execute
from reticent.job.run import Run

MASKED: dict[str, Any] = {"name": "bert", "base": "b", "objective": "mlm", "recipes": ["mlm", "ppmlm"]}
CAUSAL: dict[str, Any] = {"name": "gpt2", "base": "g", "objective": "clm", "recipes": ["clm", "ppclm"]}
MADE: dict[str, Any] = {
    "name": "new",
    "objective": "clm",
    "recipes": ["clm"],
    "foundation": {"kind": "gpt2", "text": "x"},
}
SHADOW: dict[str, Any] = {"recipes": ["clm"], "attacks": ["lira_online"]}


def job_of(*models: dict[str, Any], **more: Any) -> Any:
    return parse_job({"out": "run", "corpus": {"source": "x.parquet"}, "model": list(models), **more})


def refuse(*models: dict[str, Any], **more: Any) -> None:
    refuse_ineffective(job_of(*models, **more), models=True, trains=True, audits=True)


def made(**foundation: Any) -> dict[str, Any]:
    return {**MADE, "foundation": {**MADE["foundation"], **foundation}}


@pytest.mark.parametrize(
    ("models", "more", "said"),
    [
        ([MASKED], {"extraction": {}}, "extraction"),
        ([MASKED], {"audit": {"generation": {}}}, "audit.generation"),
        ([CAUSAL], {"audit": {"all_occurrences": True}}, "audit.all_occurrences"),
        ([CAUSAL], {"audit": {"attacks": ["loss", "mlm_ratio"]}}, "audit.attacks: mlm_ratio attacks masked models"),
        ([MASKED], {"audit": {"attacks": ["loss", "icp"]}}, "audit.attacks: icp attacks causal models only"),
        ([CAUSAL], {"audit": {"shadow": {**SHADOW, "rmia_slope": 0.5}}}, "audit.shadow.rmia_slope"),
        ([CAUSAL], {"audit": {"shadow": {**SHADOW, "population": 0.5}}}, "audit.shadow.population"),
        ([CAUSAL], {"audit": {"inversion": {"association": False, "language": "fr"}}}, "audit.inversion.language"),
        ([CAUSAL], {"probe": {"masking": "one_by_one"}}, "probe.masking"),
        ([MASKED], {"probe": {"beam_sizes": [5]}}, "probe.beam_sizes"),
        ([MASKED], {"probe": {"soft_prompt": True}}, "probe.soft_prompt"),
        ([made(vocabulary="v", vocab_size=500)], {}, "model new: foundation.vocab_size"),
        ([made(mask_share=0.2)], {}, "model new: foundation.mask_share"),
        ([CAUSAL], {"train": {"mask_share": 0.2}}, "train.mask_share"),
        ([MASKED, {**CAUSAL, "train": {"mask_share": 0.2}}], {}, "model gpt2: train.mask_share"),
        ([CAUSAL], {"dedup": {"scope": "corpus"}}, "dedup.scope"),
        ([CAUSAL], {"protect": {"max_document_frequency": 0.5}}, "protect.max_document_frequency"),
        ([CAUSAL], {"surrogates": {"pool": "words.txt"}}, "surrogates.pool"),
        ([CAUSAL], {"surrogates": {"names": "syllables", "language": "fr"}}, "surrogates.language"),
        ([CAUSAL], {"recipes": {"own": {"base": "clm", "goldfish_h": 5}}}, "recipes.own.goldfish_h"),
        (
            [{**CAUSAL, "recipes": ["dp-clm"]}, {**MASKED, "train": {"dp": {"noise_multiplier": 2.0}}}],
            {"train": {"dp": {"noise_multiplier": 1.0}}},
            "model bert: train.dp",
        ),
    ],
)  # fmt: skip
def test_a_setting_that_no_model_of_the_job_looks_at_is_refused(
    models: list[dict[str, Any]], more: dict[str, Any], said: str
) -> None:
    with pytest.raises(PolicyError, match=f"^{said}.*leave it out$") as caught:
        refuse(*models, **more)
    assert "; audit" not in str(caught.value)  # nothing else is


@pytest.mark.parametrize("probe", [{"soft_subjects": 10}, {"soft_prompt": False, "soft_epochs": 10}])
def test_settings_of_soft_prompts_need_soft_prompts(probe: dict[str, Any]) -> None:
    with pytest.raises(PolicyError, match="soft_subjects, soft_epochs: have no effect without soft_prompt = true"):
        job_of(CAUSAL, probe=probe)


def test_a_setting_that_some_model_of_the_job_looks_at_is_taken() -> None:
    refuse(
        MASKED,
        CAUSAL,
        made(vocab_size=500),
        train={"mask_share": 0.2},
        extraction={},
        probe={"masking": "one_by_one", "beam_sizes": [5], "soft_prompt": True},
        audit={
            "generation": {},
            "all_occurrences": True,
            "attacks": ["mlm_ratio", "icp", "ngram_coverage"],
            "shadow": {"recipes": ["clm"], "rmia_slope": 0.5, "population": 0.5},
            "inversion": {"language": "fr"},
        },
        dedup={"mode": "exact", "scope": "corpus", "threshold": 0.9},  # near copies are counted all the same
        index={"max_n": 2},
        protect={"n": 2, "max_document_frequency": 0.5},
        surrogates={"names": "syllables"},
    )
    refuse(CAUSAL, dedup={"threshold": 0.9, "passage_words": 9})  # `reticent dedup RUN` counts copies by them
    dp = {"train": {"dp": {"noise_multiplier": 2.0}}}
    refuse({**CAUSAL, "recipes": ["dp-clm"], **dp}, MASKED | dp, tag={"private": True, "text": "keep"})
    own = {"own": {"base": "ppclm", "n": 2, "context_indirect": "surrogate"}}
    refuse(
        {**CAUSAL, "recipes": ["own"]},
        recipes=own,
        index={"max_n": 2},
        protect={"max_document_frequency": 0.5},
        surrogates={"pool": "words.txt"},
    )


@pytest.mark.parametrize("model", [MASKED, CAUSAL, MADE])
def test_defaults_are_never_refused(model: dict[str, Any]) -> None:
    job = job_of(model)
    refuse_ineffective(parse_job(job.model_dump()), models=True, trains=True, audits=True)  # as a run folder keeps them


@pytest.mark.parametrize(
    ("models", "train", "said"),
    [
        ([CAUSAL], {"num_epochs": 5, "checkpoint_epochs": [4, 8, 64]}, r"^train\.checkpoint_epochs: .* so 8, 64 "),
        ([CAUSAL, {**MASKED, "train": {"num_epochs": 64}}], {"num_epochs": 5, "checkpoint_epochs": [4, 8, 64]}, None),
        ([CAUSAL, {**MASKED, "train": {"checkpoint_epochs": [9]}}], {}, r"^model bert: train\.checkpoint.* so 9 "),
        ([{**MASKED, "train": {"checkpoint_epochs": [8]}}], {"checkpoint_epochs": [9]}, None),
        ([CAUSAL], {"num_epochs": 2}, None),
    ],
)  # fmt: skip
def test_a_checkpoint_after_the_last_epoch_is_refused(
    models: list[dict[str, Any]], train: dict[str, Any], said: str | None
) -> None:
    if said is None:
        refuse(*models, train=train)
        return
    with pytest.raises(PolicyError, match=said):
        refuse(*models, train=train)


def test_a_run_checks_its_own_stages_alone_and_starts_nothing(tmp_path: Any) -> None:
    job = job_of(MASKED, extraction={}, train={"num_epochs": 2, "checkpoint_epochs": [3]})
    job = job.changed(out=str(tmp_path / "run"))
    refuse_ineffective(job, models=True, trains=False, audits=False)
    for until, said in (("train", r"^train\.checkpoint_epochs"), ("report", r"train\.checkpoint_epochs.*; extraction")):
        with pytest.raises(PolicyError, match=said):
            execute(Run(job), until)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("seed", "until", "said"), [(0, "train", True), (7, "train", False), (0, "index", False)])
def test_a_seed_that_everybody_can_guess_is_said_before_anything_runs(
    seed: int, until: str, said: bool, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(Progress, "say_once", lambda _, line: lines.append(line))
    job = job_of(MASKED).changed(out=str(tmp_path / "run"), seed=seed)
    with pytest.raises(ReticentError):  # its documents are not there
        execute(Run(job), until)
    assert any(line.startswith("seed = 0: everybody can guess it") for line in lines) == said


def test_a_scope_of_copies_that_are_only_counted_is_refused(tmp_path: Any, capfd: pytest.CaptureFixture[str]) -> None:
    notes = [{"doc_id": name, "individual_id": name, "text": "Seen today."} for name in "ab"]
    (tmp_path / "notes.jsonl").write_text("\n".join(map(json.dumps, notes)))
    for more in (("--set", "dedup.mode=exact", "--set", "dedup.scope=corpus"), ("--set", "dedup.threshold=0.9")):
        assert command("dedup", tmp_path / "notes.jsonl", *more, "-q") == 0
    assert command("dedup", tmp_path / "notes.jsonl", "--set", "dedup.scope=corpus", "-q") == 2
    assert "dedup.scope: has no effect where dedup.mode is off" in capfd.readouterr().err
