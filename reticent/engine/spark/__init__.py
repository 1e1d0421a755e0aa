"""The engine on Spark: what one machine makes of documents, made of more of them than one machine holds.

Documents are cut into *parts* by a hash of the individual (or household), all documents of one in one part. A part is
counted, searched and protected by the same core as on one machine; the supports of n-grams over all parts come from an
exchange of sorted tables (:mod:`reticent.engine.spark.exchange`). The results are those of one machine, byte for byte.

Executors need ``pip install reticent`` alone: no torch, no model but those of the detectors that are asked for.
"""
