"""Quarantine: the documents that a detector failed on, and no later stage sees; as secret as these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from reticent.core.errors import ArtifactError

__all__ = ["quarantined_rows", "write_quarantine"]

NAME: Final = "quarantine.parquet"
#: One row a document and detector that failed on it; ``row`` counts the documents of the corpus from 1.
SCHEMA: Final = pa.schema(
    [
        pa.field("row", pa.int64(), nullable=False),
        pa.field("doc_id", pa.string(), nullable=False),
        pa.field("detector", pa.string(), nullable=False),
        pa.field("error", pa.string(), nullable=False),
    ]
)


def write_quarantine(rows: Sequence[Mapping[str, Any]], folder: Path | str) -> None:
    """Write these rows of `SCHEMA` into ``folder``."""
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(list(rows), schema=SCHEMA), Path(folder) / NAME)


def quarantined_rows(folder: Path | str) -> np.ndarray:
    """Return the documents (int64, ascending, from 0) that the folder's ``quarantine.parquet`` lists; none without it.

    Raises
    ------
    ArtifactError
        It is there, and not a readable table of this version.
    """
    path = Path(folder) / NAME
    if not path.exists():
        return np.empty(0, dtype=np.int64)

    import pyarrow.parquet as pq

    try:
        rows = pq.read_table(path, schema=SCHEMA).column("row").to_numpy()
    except (OSError, pa.ArrowException) as error:
        raise ArtifactError(f"{path}: not a readable list of documents ({type(error).__name__})") from None
    return np.unique(rows) - 1
