"""Reticent on Spark: the public names.

>>> from reticent import spark                                      # doctest: +SKIP
>>> notes = spark.open_documents(frame)                             # a DataFrame, or paths of Parquet files
>>> index = spark.build_index(notes, config=IndexConfig(max_n=3))
>>> index.write("index")                                            # the files that one machine would write
>>> spans = spark.detect(notes, ["rules"])
>>> spark.protect(notes, index, spans=spans).frame()                # flags of each word, by document

Importing it starts nothing, and needs neither torch nor pyspark; a session is the caller's.
"""

from __future__ import annotations

from reticent.engine.spark.checks import check_session
from reticent.engine.spark.documents import SparkDocuments, open_documents
from reticent.engine.spark.index import SparkIndex, build_index
from reticent.engine.spark.protection import SparkFlags, protect
from reticent.engine.spark.session import local_session
from reticent.engine.spark.spans import SparkSpans, detect
from reticent.engine.spark.tasks import SparkError
from reticent.engine.spark.tokens import write_tokens

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
