"""The job: one TOML file with every setting of a run, checked before anything starts.

Each section is the configuration class of one component, which stands beside it in the engine, the trainer or the
audit; here they are composed, and the conditions between them are checked. A run folder keeps the resolved job as
``job.json``, so that a stage run later starts from the same settings.
"""

from __future__ import annotations

from reticent.job.config.job import Job, kept_content, load_job, load_kept_job, parse_job
from reticent.trainer.config import ModelSection

__all__ = ["Job", "ModelSection", "kept_content", "load_job", "load_kept_job", "parse_job"]
