"""The results of the four sources: published numbers, ours beside them, and the rule that compares the two."""
