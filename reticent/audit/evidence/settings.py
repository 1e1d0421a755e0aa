"""The settings of a job that a report shows: only those listed here by name. The others are counted, not shown.

Seeds are never shown. The split and the inclusion of canaries are functions of seed and ids, so a reader who has both
would know the members. The seeds of trainings are left out too, because one of them is often the job's seed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["PRIVATE_SETTINGS", "PUBLISHED_SETTINGS", "names_a_seed", "published_settings"]

_TRAIN = (
    "num_epochs checkpoint_epochs window_length batch_size learning_rate lr_scheduler_type warmup_steps weight_decay "
    "mask_share gradient_accumulation_steps max_grad_norm device bf16 packing torch_compile save_steps logging_steps "
    "report_to lora dp"
)
_LORA = "r lora_alpha lora_dropout target_modules"
_DP = (
    "unit target_epsilon noise_multiplier target_delta max_grad_norm max_documents clipping sample_rate "
    "max_physical_batch_size accountant budget_epsilon budget_delta budget_file"
)
#: Dotted name of a section -> the names in it that are shown. A ``*`` matches any single name: a recipe, a label.
#: Items of a list have the name of the list.
PUBLISHED_SETTINGS: Mapping[str, frozenset[str]] = {
    section: frozenset(names.split())
    for section, names in {
        "": "dedup split detect index protect model recipes train audit canaries extraction gate verdict probe",
        "dedup": "mode scope threshold shingle_words passage_words",
        "split": "heldout reference by user_inference_holdout",
        "detect": (
            "preset detectors on_error propagate confirm cache "
            "gold rules records gazetteer spacy transformers presidio eds"
        ),
        "detect.gold": "labels",
        "detect.rules": "labels num_threads",
        "detect.records": "table fields columns initials common ids num_threads",
        "detect.records.fields": "*",
        "detect.records.columns": "*",
        "detect.gazetteer": "lists surface guard common num_threads",
        "detect.gazetteer.lists": "*",
        "detect.spacy": "pipeline guard labels batch_size num_processes device window sentences passages",
        "detect.transformers": "model labels min_score device batch_tokens window stride passages",
        "detect.presidio": "language pipeline entities min_score batch_size",
        "detect.eds": "pipeline groups labels batch_size",
        "index": "max_n surface updatable",
        "protect": "k n policy max_document_frequency scopes",
        "protect.scopes": "*",
        "model": "name base foundation objective recipes train",
        "model.foundation": "kind text vocabulary vocab_size hidden_size num_layers num_heads num_epochs learning_rate "
        "warmup_steps mask_share batch_size",
        "model.train": _TRAIN,
        "model.train.lora": _LORA,
        "model.train.dp": _DP,
        "recipes": "*",
        "recipes.*": "base objective text never_target context context_indirect freeze_embeddings goldfish_k "
        "goldfish_h mask_split private k n policy",
        "train": _TRAIN,
        "train.lora": _LORA,
        "train.dp": _DP,
        "audit": "attacks num_bootstrap batch_size small_cell graph_shares every_checkpoint all_occurrences generation "
        "inversion shadow",
        "audit.generation": "num_prompts prefix_tokens num_tokens num_samples temperature top_k",
        "audit.inversion": "num_decoys per_individual kinds association terms_per_individual term_support language "
        "embedding_shift",
        "audit.shadow": "recipes num_shadows attacks rmia_slope population keep_models",
        "canaries": "num arms repetitions num_references guesses delta",
        "extraction": "prefix_tokens suffix_tokens temperature top_k num_queries probability num_passages",
        "verdict": "risks emission context words individual passages",
        "gate": "measure at_most recipes attack arm part required",
        "probe": "targets levels associates given language beam_sizes longest masking num_bootstrap device "
        "batch_tokens bf16 small_cell soft_prompt soft_subjects soft_epochs",
        "probe.soft_prompt": "prompt targets num_subjects num_tokens init",
        "probe.soft_prompt.prompt": "num_tokens init learning_rate num_epochs batch_size num_subjects num_validation "
        "select_by eval_every patience",
    }.items()
}
#: Settings besides seeds that are never shown: they may contain an individual's words, or name a file that does.
PRIVATE_SETTINGS = frozenset({"detect.spacy.patterns", "detect.eds.components", "probe.subjects", "probe.templates"})


def names_a_seed(key: str) -> bool:
    """Return whether a key names one or several seeds.

    >>> [names_a_seed(key) for key in ("seed", "data_seed", "seeds", "seeded")]
    [True, True, True, False]
    """
    return re.search(r"(?:^|[^a-z])seeds?(?:$|[^a-z])", str(key), re.IGNORECASE) is not None


def published_settings(settings: Any, root: str = "") -> tuple[Any, int]:
    """Return the settings that are listed by name, and the number of those that are not.

    >>> published_settings({"seed": 7, "dedup": {"mode": "off", "folder": "/home/a"}})
    ({'dedup': {'mode': 'off'}}, 1)
    """
    if isinstance(settings, list | tuple):
        parts = [published_settings(part, root) for part in settings]
        return [kept for kept, _ in parts], sum(count for _, count in parts)
    if not isinstance(settings, Mapping):
        return settings, 0
    known, result, num_unknown = _known(root), {}, 0
    for key, value in settings.items():
        name = f"{root}.{key}" if root else str(key)
        if names_a_seed(key) or name in PRIVATE_SETTINGS:
            continue
        if key in known or "*" in known:
            result[key], count = published_settings(value, name)
            num_unknown += count
        else:
            num_unknown += 1
    return result, num_unknown


def _known(section: str) -> frozenset[str]:
    """The published names of a section, which is listed by its own name or matched by a ``*``."""
    if section in PUBLISHED_SETTINGS:
        return PUBLISHED_SETTINGS[section]
    parent, _, _ = section.rpartition(".")
    return PUBLISHED_SETTINGS.get(f"{parent}.*", frozenset())
