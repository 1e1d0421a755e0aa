"""The engine on Spark: equal supports and flags, of more documents than one machine holds.

Documents are cut into *parts* by a hash of the individual (or household), all documents of one in one part. A part is
counted, searched and protected by the same core as on one machine. What lies between parts is Spark's: a `groupBy` of
the distinct n-grams of each part sums their supports, and a join brings the sums back to the parts that have them.

Executors need ``pip install reticent`` alone: no torch, no model but those of the detectors that are asked for.
"""
