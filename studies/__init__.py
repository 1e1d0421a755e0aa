"""Studies: each was run once for a question, and its record is kept under ``record/``; it still runs at toy size."""

import benchmarks  # noqa: F401  the fixtures of the tests are found
