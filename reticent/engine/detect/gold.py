"""Gold spans: the ``spans`` column of the documents themselves."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from reticent.core.errors import CorpusError
from reticent.engine.detect import spans_batch


class GoldDetector:
    """Returns the human annotations of the documents' column ``spans``; a null list has no span."""

    name = "gold"
    columns: tuple[str, ...] = ("spans",)

    def detect(self, batch: pa.RecordBatch) -> pa.Table:
        """Return the annotated spans in the batch's own column ``spans``, as a table (schema `BATCH_SPANS`)."""
        if "spans" not in batch.schema.names:
            raise CorpusError("detector gold needs the column spans; map it with Columns(spans=…)")
        spans = batch.column("spans")
        document = pc.list_parent_indices(spans)
        flat = pc.list_flatten(spans)
        fields = [pc.struct_field(flat, name) for name in ("start", "end", "label")]
        return spans_batch(document, *fields)
