"""Benchmarks: one file answers one question, checks the answer first, and writes a record under ``record/``.

What they share with the tests (corpora, trials, oracles) stands in ``tests/fixtures`` and ``tests/oracles``.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))
