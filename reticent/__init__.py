"""Reticent: language models that learn a domain and are never taught who the individuals are.

The public API. A name is loaded on first use, so that importing the package costs nothing and never imports torch; type
checkers see every name with its type.

>>> import reticent
>>> reticent.get_recipe("ppclm").never_target   # direct and indirect identifiers
3
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Final

    from reticent.audit.config import AuditConfig as AuditConfig
    from reticent.audit.evaluate import ModelEntry as ModelEntry
    from reticent.audit.evaluate import audit_models as audit_models
    from reticent.audit.report.page import write_report as write_report
    from reticent.core.errors import ArtifactError as ArtifactError
    from reticent.core.errors import CorpusError as CorpusError
    from reticent.core.errors import PolicyError as PolicyError
    from reticent.core.errors import ReticentError as ReticentError
    from reticent.core.errors import TrainingError as TrainingError
    from reticent.engine.corpus import Columns as Columns
    from reticent.engine.corpus import Corpus as Corpus
    from reticent.engine.corpus import open_corpus as open_corpus
    from reticent.engine.detect import detect_spans as detect_spans
    from reticent.engine.detect import make_detectors as make_detectors
    from reticent.engine.index import IndexConfig as IndexConfig
    from reticent.engine.index import build_index as build_index
    from reticent.engine.index import open_index as open_index
    from reticent.engine.index import write_index as write_index
    from reticent.engine.ngrams import NgramIndex as NgramIndex
    from reticent.engine.protect import Policy as Policy
    from reticent.engine.split import Individuals as Individuals
    from reticent.engine.split import SplitConfig as SplitConfig
    from reticent.engine.split import split_individuals as split_individuals
    from reticent.engine.store import TokenStore as TokenStore
    from reticent.engine.store import open_tokens as open_tokens
    from reticent.engine.synthetic import SynthConfig as SynthConfig
    from reticent.engine.synthetic import synthesize as synthesize
    from reticent.engine.tokens import write_tokens as write_tokens
    from reticent.ext.classify.labels import label_documents as label_documents
    from reticent.ext.classify.tags import TagConfig as TagConfig
    from reticent.ext.classify.tags import tag as tag
    from reticent.ext.classify.tags import tag_documents as tag_documents
    from reticent.ext.classify.training import ClassifyConfig as ClassifyConfig
    from reticent.ext.classify.training import classify as classify
    from reticent.ext.redact import Redacted as Redacted
    from reticent.ext.redact import redact as redact
    from reticent.ext.redact import redact_reversibly as redact_reversibly
    from reticent.job.config import Job as Job
    from reticent.job.config import load_job as load_job
    from reticent.job.pipeline import execute as execute
    from reticent.job.run import Run as Run
    from reticent.trainer.config import TrainConfig as TrainConfig
    from reticent.trainer.export import export_model as export_model
    from reticent.trainer.loop import train as train
    from reticent.trainer.recipes import RECIPES as RECIPES
    from reticent.trainer.recipes import Recipe as Recipe
    from reticent.trainer.recipes import get_recipe as get_recipe

__version__ = "0.1.0"

#: Public name -> its module. A test holds this table to the imports above, which type checkers read.
_EXPORTS: Final = {
    "ArtifactError": "core.errors",
    "AuditConfig": "audit.config",
    "ClassifyConfig": "ext.classify.training",
    "Columns": "engine.corpus",
    "Corpus": "engine.corpus",
    "CorpusError": "core.errors",
    "IndexConfig": "engine.index",
    "Individuals": "engine.split",
    "Job": "job.config",
    "ModelEntry": "audit.evaluate",
    "NgramIndex": "engine.ngrams",
    "Policy": "engine.protect",
    "PolicyError": "core.errors",
    "RECIPES": "trainer.recipes",
    "Recipe": "trainer.recipes",
    "Redacted": "ext.redact",
    "ReticentError": "core.errors",
    "Run": "job.run",
    "SplitConfig": "engine.split",
    "SynthConfig": "engine.synthetic",
    "TagConfig": "ext.classify.tags",
    "TokenStore": "engine.store",
    "TrainConfig": "trainer.config",
    "TrainingError": "core.errors",
    "audit_models": "audit.evaluate",
    "build_index": "engine.index",
    "classify": "ext.classify.training",
    "detect_spans": "engine.detect",
    "execute": "job.pipeline",
    "export_model": "trainer.export",
    "get_recipe": "trainer.recipes",
    "label_documents": "ext.classify.labels",
    "load_job": "job.config",
    "make_detectors": "engine.detect",
    "open_corpus": "engine.corpus",
    "open_index": "engine.index",
    "open_tokens": "engine.store",
    "redact": "ext.redact",
    "redact_reversibly": "ext.redact",
    "split_individuals": "engine.split",
    "synthesize": "engine.synthetic",
    "tag": "ext.classify.tags",
    "tag_documents": "ext.classify.tags",
    "train": "trainer.loop",
    "write_index": "engine.index",
    "write_report": "audit.report.page",
    "write_tokens": "engine.tokens",
}

__all__ = ["__version__", *_EXPORTS]

if not TYPE_CHECKING:  # a name that is not there is an error of the type checker

    def __getattr__(name: str) -> object:
        if name not in _EXPORTS:
            raise AttributeError(f"module 'reticent' has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"reticent.{_EXPORTS[name]}"), name)


def __dir__() -> list[str]:
    return __all__
