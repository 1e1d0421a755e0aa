"""Settings out of their range: each is refused when its section is made, in the words of the table."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from typing import Any

import pytest

from reticent.audit.config import AuditConfig, InversionConfig, ProbeConfig, SoftPromptConfig, VerdictConfig
from reticent.core.errors import PolicyError
from reticent.engine.config import DedupConfig, SplitConfig
from reticent.engine.protect import Policy
from reticent.engine.synthetic import SynthConfig
from reticent.job.config import parse_job
from reticent.trainer.config import LoraSettings, PrivacyConfig, TrainConfig


def synth(**options: Any) -> SynthConfig:
    return SynthConfig(**{"num_individuals": 10, **options})


def job(**train: Any) -> Any:
    return parse_job({"out": "run", "corpus": {"source": "x.parquet"}, "train": train})


NOISE = {"noise_multiplier": 1.0}
#: What is made, what is said ({}: the first of the settings), and the settings, one refusal each.
REFUSED: list[tuple[Callable[..., Any], str, list[dict[str, Any]]]] = [
    (AuditConfig, "{}", [{"attacks": ("loss", "guess")}, {"graph_shares": ()}, {"graph_shares": (1.0, 0.0)},
                         {"graph_shares": (1.5,)}, {"num_bootstrap": 0}, {"batch_size": 0}, {"folds": 0}]),
    (DedupConfig, "{}", [{"mode": "all"}, {"scope": "all"}, {"threshold": 0.0}, {"threshold": 1.5},
                         {"shingle_words": 0}, {"k": 1}]),
    (InversionConfig, "inversion.{}", [{"kinds": ("phone",)}, {"num_decoys": 0}, {"term_support": (0.5, 0.1)},
                                       {"per_individual": 0}]),
    (LoraSettings, r"train\.lora", [{"r": 0}, {"lora_alpha": 0.0}, {"lora_dropout": 1.0}, {"lora_dropout": -0.1}]),
    (Policy, r"protect\.k: .* 2, got 1", [{"k": 1}]),
    (Policy, r"protect\.k: .* 255, got 256", [{"k": 256}]),
    (Policy, r"protect\.n: .* 1, got 0", [{"n": 0}]),
    (Policy, r"protect\.n: .* 8, got 9", [{"n": 9}]),
    (Policy, r"protect\.policy: expected 'all', 'last', 'cover' or 'paper'", [{"policy": "some"}]),
    (Policy, r"protect\.max_document_frequency: .* 0, got 0", [{"max_document_frequency": 0.0}]),
    (Policy, r"protect\.max_document_frequency: .* 1, got 1\.1", [{"max_document_frequency": 1.1}]),
    (Policy, r"protect\.max_document_frequency: expected a finite number", [{"max_document_frequency": nan}]),
    (Policy, r"protect\.scopes\.DATE: expected 'corpus', 'individual' or 'occurr", [{"scopes": {"DATE": "always"}}]),
    (PrivacyConfig, r"train\.dp", [
        {}, {"target_epsilon": 8.0, **NOISE}, {"target_epsilon": 0.0}, {"target_epsilon": (8.0, 0.0)},
        {"target_epsilon": (8.0, 8.0)}, {"target_epsilon": ()}, {"noise_multiplier": -1.0}, {"noise_multiplier": nan},
        {**NOISE, "target_delta": 1.0}, {**NOISE, "max_grad_norm": 0.0}, {**NOISE, "sample_rate": 1.5},
        {**NOISE, "max_documents": 0}, {**NOISE, "budget_epsilon": 3.0}, {**NOISE, "budget_file": "b.json"}]),
    (ProbeConfig, "{}", [{"levels": ("pair",)}, {"levels": ()}, {"beam_sizes": (0,)}, {"longest": "x"},
                         {"masking": "x"}]),
    (SoftPromptConfig, "{}", [{"num_tokens": 0}, {"learning_rate": 0.0}, {"init": "zeros"}, {"select_by": "x"},
                              {"patience": -1}]),
    (SplitConfig, "split", [{"heldout": 0}, {"heldout": 1}, {"heldout": -0.1}, {"heldout": nan}, {"reference": -0.1},
                            {"reference": 1.0}, {"heldout": 0.6, "reference": 0.4}, {"by": "document"}]),
    (VerdictConfig, "{}", [{"risks": ["fame"]}, {"emission": 0.0}, {"words": 0.5}, {"individual": 1.1}]),
    (synth, "num_individuals: expected 1 to", [{"num_individuals": 0}, {"num_individuals": (1 << 26) + 1}]),
    (synth, "words_per_document: expected at least 20, got 19", [{"words_per_document": 19}]),
    (synth, "seed: expected 0 to 9223372036854775807, got -1", [{"seed": -1}]),
    (synth, "documents_per_individual: expected at least 1", [{"documents_per_individual": 0.5}]),
    (synth, "languages: expected en, fr or both", [{"languages": ()}, {"languages": ("en", "de")}]),
    (TrainConfig, "{}", [
        {"num_epochs": 0}, {"warmup_steps": -1}, {"batch_size": 0}, {"window_length": 0},
        {"gradient_accumulation_steps": 0}, {"mask_share": 0.0}, {"mask_share": 1.0}, {"mask_share": nan},
        {"learning_rate": 0.0}, {"learning_rate": nan}, {"learning_rate": inf}, {"max_grad_norm": 0.0},
        {"weight_decay": -0.1}, {"weight_decay": nan}]),
    (job, "train.seeds", [{"seeds": []}]),
    (job, "a seed is listed twice", [{"seeds": [0, 1, 0]}]),
    (job, r"train\.seeds\.0: .* 0, got -1", [{"seeds": [-1]}]),
    (job, "increasing", [{"checkpoint_epochs": [4, 4]}, {"checkpoint_epochs": [8, 4]}]),
    (job, "first epoch is 1", [{"checkpoint_epochs": [0, 4]}]),
]  # fmt: skip


@pytest.mark.parametrize(("make", "said", "wrong"), [(*row[:2], wrong) for row in REFUSED for wrong in row[2]])
def test_a_setting_out_of_its_range_is_refused(make: Callable[..., Any], said: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(PolicyError, match=said.format(*wrong)):
        make(**wrong)
