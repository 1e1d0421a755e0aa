"""Reticent on Spark: the public names.

>>> from reticent import spark                                      # doctest: +SKIP
>>> notes = spark.open_documents(frame)  # doctest: +SKIP
>>> index = spark.build_index(notes, config=IndexConfig(max_n=3))  # doctest: +SKIP
>>> index.write("index")  # doctest: +SKIP
>>> spans = spark.detect(notes, ["rules"])  # doctest: +SKIP
>>> spark.protect(notes, index, spans=spans).frame()  # doctest: +SKIP

Importing it starts nothing, and needs neither torch nor pyspark; a session is the caller's.
"""

from __future__ import annotations

from reticent.ext.spark.documents import SparkDocuments, open_documents
from reticent.ext.spark.index import SparkIndex, build_index
from reticent.ext.spark.protection import SparkFlags, protect, write_tokens
from reticent.ext.spark.session import check_session, local_session
from reticent.ext.spark.spans import SparkSpans, detect
from reticent.ext.spark.tasks import SparkError

__all__ = [
    "SparkDocuments",
    "SparkError",
    "SparkFlags",
    "SparkIndex",
    "SparkSpans",
    "build_index",
    "check_session",
    "detect",
    "local_session",
    "open_documents",
    "protect",
    "write_tokens",
]
