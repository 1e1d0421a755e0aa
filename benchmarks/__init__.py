"""Benchmarks: one file answers one question, checks the answer first, and writes a record under ``record/``."""
