"""Reticent: language models that learned the domain and were never taught who the people are.

The public API, loaded on first use so that importing the package costs nothing and never imports torch.

>>> import reticent
>>> reticent.get_recipe("ppclm").never_target   # direct and indirect identifiers
3
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_EXPORTS = {
    "Columns": "engine.corpus",
    "open_corpus": "engine.corpus",
    "SplitConfig": "engine.split",
    "split_individuals": "engine.split",
    "IndexConfig": "engine.index",
    "build_index": "engine.index",
    "open_index": "engine.index",
    "write_index": "engine.index",
    "Policy": "engine.protect",
    "detect_spans": "engine.detect",
    "make_detectors": "engine.detect",
    "write_tokens": "engine.tokens",
    "open_tokens": "engine.store",
    "TokenStore": "engine.store",
    "SynthConfig": "engine.synthetic",
    "synthesize": "engine.synthetic",
    "Recipe": "trainer.recipes",
    "RECIPES": "trainer.recipes",
    "get_recipe": "trainer.recipes",
    "TrainConfig": "trainer.config",
    "train": "trainer.loop",
    "ClassifyConfig": "trainer.classify",
    "classify": "trainer.classify",
    "label_documents": "trainer.classes",
    "export_model": "trainer.export",
    "audit_models": "audit.evaluate",
    "AuditConfig": "audit.evaluate",
    "ModelEntry": "audit.evaluate",
    "write_report": "audit.report.page",
    "Job": "job.config",
    "load_job": "job.config",
    "Run": "job.run",
    "ReticentError": "core.errors",
    "CorpusError": "core.errors",
    "PolicyError": "core.errors",
    "ArtifactError": "core.errors",
    "TrainingError": "core.errors",
}

__all__ = ["__version__", *sorted(_EXPORTS)]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'reticent' has no attribute {name!r}")
    return getattr(importlib.import_module(f"reticent.{_EXPORTS[name]}"), name)


def __dir__() -> list[str]:
    return __all__
