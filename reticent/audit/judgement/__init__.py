"""The judgement: rows of numbers, and the verdicts on them."""
