"""Jobs that Spark does not do are refused, each with its reason; no Spark is needed to say so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from reticent.core.errors import PolicyError
from reticent.ext.spark.job import refuse_job
from reticent.job.config import parse_job


@pytest.fixture
def values(tmp_path: Path) -> dict[str, Any]:
    pl.DataFrame({"doc_id": ["a"], "individual_id": ["b"], "text": ["c"]}).write_parquet(tmp_path / "notes.parquet")
    return {"out": str(tmp_path / "out"), "corpus": {"source": str(tmp_path / "notes.parquet")}}


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        ({"dedup": {"mode": "near"}}, "comparing all documents"),
        ({"dedup": {"mode": "exact", "scope": "corpus"}}, "comparing all documents"),
        ({"dedup": {"mode": "exact"}}, "copies are not left out"),
        ({"detect": {"propagate": True}}, "looked for in all documents"),
        ({"detect": {"preset": "fast"}}, "looked for in all documents"),
        ({"threshold": {"epsilon": 1.0}}, "noisy threshold"),
        ({"detect": {"on_error": "quarantine"}}, "quarantine"),
        ({"canaries": {"num": 1}}, "made-up secrets"),
        ({"split": {"user_inference_holdout": 0.2}}, "no documents are held back on Spark"),
        ({"corpus": {"format": "csv"}}, "data frame"),
        ({"corpus": {"source": "postgresql://host/db", "table": "note"}}, "data frame"),
    ],
)
def test_what_needs_all_documents_at_once_is_refused(
    values: dict[str, Any], sections: dict[str, Any], reason: str
) -> None:
    refuse_job(parse_job(values))
    for name, given in sections.items():
        values[name] = {**values.get(name, {}), **given}
    with pytest.raises(PolicyError, match=reason):
        refuse_job(parse_job(values))
