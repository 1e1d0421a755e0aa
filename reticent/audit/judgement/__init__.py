"""The judgement: the numbers by which a model is judged, and the verdicts on them."""
