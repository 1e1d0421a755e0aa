"""All settings of a job: what an audit holds of its run, and by the marks of their fields what a report shows of them.

Each section is the configuration class of one component, which stands beside the component. The job itself
(:mod:`reticent.job.config`) adds the conditions between sections.
"""

# No `from __future__ import annotations` here: pydantic would compile each annotation from its text at every start.

from typing import Annotated

from pydantic import ByteSize, Field

from reticent.audit.config import (
    AuditConfig,
    CanaryAudit,
    DossierConfig,
    ExtractionConfig,
    ProbeConfig,
    SubjectConfig,
    VerdictConfig,
)
from reticent.audit.judgement.rows import GateConfig
from reticent.core.section import PUBLISHED, Section
from reticent.engine.config import DedupConfig, IndexConfig, SplitConfig, SurrogateConfig, ThresholdConfig
from reticent.engine.detect.config import DetectConfig
from reticent.engine.protect import Policy
from reticent.engine.sources.corpus_config import CorpusConfig
from reticent.trainer.config import ClassifyConfig, ModelSection, TagConfig, TrainConfig
from reticent.trainer.recipes import RecipeChanges

#: As in the core (pool.rs).
MAX_THREADS = 1024


class JobSettings(Section):
    """The fields of a job."""

    out: str
    seed: int = Field(
        default=0,
        ge=0,
        lt=2**63,
        description='of the split and of all that is drawn; "draw" draws one that nobody can guess, and the run folder '
        "keeps it in `job.json`",
    )
    num_threads: int = Field(default=0, ge=0, le=MAX_THREADS)
    memory_limit: ByteSize | None = Field(
        default=None,
        description='memory of the process, files that it maps aside, such as "4GB". Counts of n-grams that do not fit '
        "are written beside the results; a limit under the memory that cannot be written out is refused. A stage that "
        "takes a tenth more says so",
    )
    corpus: CorpusConfig
    dedup: DedupConfig = DedupConfig()
    split: SplitConfig = SplitConfig()
    detect: DetectConfig = DetectConfig()
    index: IndexConfig = IndexConfig()
    protect: Policy = Policy()
    threshold: ThresholdConfig = ThresholdConfig()
    surrogates: SurrogateConfig = SurrogateConfig()
    model: tuple[ModelSection, ...] = ()
    subject: SubjectConfig | None = None
    recipes: Annotated[dict[str, RecipeChanges], PUBLISHED] = Field(
        default={}, description="the job's own recipes, by name"
    )
    train: TrainConfig = TrainConfig()
    classify: ClassifyConfig | None = None
    tag: TagConfig | None = None
    audit: AuditConfig = AuditConfig()
    probe: ProbeConfig | None = None
    canaries: CanaryAudit | None = None
    extraction: ExtractionConfig | None = None
    gate: tuple[GateConfig, ...] = ()
    verdict: VerdictConfig | None = None
    dossier: DossierConfig = DossierConfig()
