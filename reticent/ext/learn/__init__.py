"""A tagger that learns from the marks and the notes of a run."""
