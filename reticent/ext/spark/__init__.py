"""The engine on Spark: the same supports and flags, for more documents than one machine holds.

Documents are cut into *parts* by a hash of the individual (or household), so that all documents of one are in one part.
A part is counted, searched and protected by the same core as on one machine. Only the exchange between parts is
Spark's: a `groupBy` of the distinct n-grams of each part sums their supports, and a join brings the sums back to the
parts that have them.

Executors need ``pip install reticent`` alone: no torch, and no model except those of the detectors used.
"""
