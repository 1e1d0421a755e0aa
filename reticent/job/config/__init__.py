"""The job: one TOML file that says everything a run does, checked before anything starts.

Each section is the configuration object of one stage; unknown keys are refused. A run folder keeps the resolved
job as ``job.json``, so that a stage run later starts from the same settings.
"""

from __future__ import annotations

from reticent.job.config.audit import (
    AuditSection,
    CanariesSection,
    ExtractionSection,
    GateSection,
    GenerationSection,
    InversionSection,
    ProbeSection,
    ShadowSection,
)
from reticent.job.config.documents import (
    CorpusSection,
    DedupSection,
    DetectSection,
    IndexSection,
    ProtectSection,
    SplitSection,
)
from reticent.job.config.job import Job, load_job, parse_job
from reticent.job.config.kept import kept_content, load_kept_job
from reticent.job.config.training import (
    ClassifySection,
    DpSection,
    FoundationSection,
    LoraSection,
    ModelSection,
    RecipeSection,
    TrainSection,
)

__all__ = [
    "AuditSection",
    "CanariesSection",
    "ClassifySection",
    "CorpusSection",
    "DedupSection",
    "DetectSection",
    "DpSection",
    "ExtractionSection",
    "FoundationSection",
    "GateSection",
    "GenerationSection",
    "IndexSection",
    "InversionSection",
    "Job",
    "LoraSection",
    "ModelSection",
    "ProbeSection",
    "ProtectSection",
    "RecipeSection",
    "ShadowSection",
    "SplitSection",
    "TrainSection",
    "kept_content",
    "load_job",
    "load_kept_job",
    "parse_job",
]
